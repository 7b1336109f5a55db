"""Every named figure and table: made from simulated inputs, in a paper's width, listed in the documents."""

from __future__ import annotations

import csv
import io
import json
import re
import zlib
from pathlib import Path

import pytest
from tests.cli.command import robotrials
from tests.show.layout import covered, cut_off
from tests.test_documents import tool

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.show.catalog import (
    COUNTS,
    FIGURES,
    SIMULATED,
    TABLES,
    Input,
    ShowRequest,
    check_sources,
    find_figure,
    find_table,
    input_of,
    listed_figures,
    listed_tables,
    papers,
)
from robotrials.show.figure import (
    FigureMark,
    FigureStyle,
    figure_marks,
    figure_style,
    leading,
    new_figure,
    parse_length_in,
    save_figure,
    styled,
)
from robotrials.show.table import LATEX_SPECIAL, LatexLayout, TableOutput, render_all, table
from robotrials.testing.showcase import Showcase, make_showcase, showcase_request
from robotrials.verdict.analysis import present
from robotrials.verdict.analysis.ranking import curve_points

ROOT = Path(__file__).resolve().parent.parent.parent
COLUMN = figure_style('ieee', width='column')


@pytest.fixture(scope='module')
def case(tmp_path_factory: pytest.TempPathFactory) -> Showcase:
    return make_showcase(tmp_path_factory.mktemp('showcase'))


@pytest.mark.parametrize('name', FIGURES.names())
def test_every_figure_fits_a_paper_column_and_its_marks_lead_to_episodes(case: Showcase, name: str) -> None:
    draw = find_figure(name)
    request = showcase_request(case, name, draw, n_resamples=20)
    with styled(COLUMN), leading():
        figure = draw(request)
        assert cut_off(figure) == []
        assert covered(figure) == []
    assert figure.get_figwidth() == pytest.approx(252 / 72.27)
    if input_of(draw) is Input.STORE and name not in SIMULATED:
        check_marks(figure_marks(figure), request, name)


def check_marks(marks: tuple[FigureMark, ...], request: ShowRequest, name: str) -> None:
    """Every mark lies in the figure and matches an episode; a curve's marks name the episode of every placement."""
    is_example = name == 'sup-sign-cycle' and present(request.analysis.detail.shapes).cycle.is_example
    assert bool(marks) is not is_example
    episodes = request.analysis.selection.episodes
    for mark in marks:
        assert any(all(str(getattr(e, f)) in v for f, v in mark.episodes.items()) for e in episodes), mark
        assert -1e-9 <= mark.left <= mark.left + mark.width <= 1 + 1e-9
        assert -1e-9 <= mark.top <= mark.top + mark.height <= 1 + 1e-9
        assert mark.words
    if name == 'cdf':
        placed = {p.episode.episode_id for _, points in present(curve_points(request.analysis)) for p in points}
        assert {i for m in marks for i in m.episodes.get('episode_id', ())} == placed


@pytest.mark.parametrize('name', ['cdf', 'qq', 'safety-heatmap', 'condition-drops', 'claims', 'safety-composition'])
def test_figures_fit_a_page_too(case: Showcase, name: str) -> None:
    draw = find_figure(name)
    with styled(figure_style('neurips')):
        figure = draw(showcase_request(case, name, draw, n_resamples=20))
        assert cut_off(figure) == []
        assert covered(figure) == []
    assert figure.get_figwidth() == 5.5


@pytest.mark.parametrize('name', TABLES.names())
def test_every_table_is_made_in_every_form(case: Showcase, name: str) -> None:
    build = find_table(name)
    shown = build(showcase_request(case, name, build, n_resamples=20))
    assert shown
    assert all(one.rows for one in shown)
    forms = {form: render_all(shown, form, latex=LatexLayout()) for form in TableOutput}
    assert [len(t['rows']) for t in json.loads(forms[TableOutput.JSON])] == [len(t.rows) for t in shown]
    assert len(list(csv.reader(io.StringIO(forms[TableOutput.CSV])))) >= len(shown[0].rows) + 1
    odd = {ch for ch in forms[TableOutput.LATEX] if ord(ch) > 255}
    assert not odd, f'{name}: LaTeX has no word for {odd}; add it to LATEX_SPECIAL'
    assert forms[TableOutput.LATEX].count(r'\begin{tabular}') == len(shown)


def test_the_lists_name_everything_once_with_what_it_shows_and_wants() -> None:
    for listed, names in ((listed_figures(), FIGURES.names()), (listed_tables(), TABLES.names())):
        assert tuple(row[0] for row in listed) == names
        assert all(what and wanted for _, what, _, wanted in listed)
    printed = robotrials('tables', '--list', '-f', 'csv')
    assert 'headline' in printed
    assert 'PhAIL Table 2' in printed
    assert 'PhAIL Figures 1, 3' in robotrials('plot', '--list', '-f', 'csv')


def test_every_item_of_the_papers_has_a_name_that_exists_or_a_reason() -> None:
    counted = {
        'phail': (10, 8), 'benchmark-audit': (6, 10), 'multinet': (5, 4), 'radar': (11, 3), 'safevla-bench': (3, 23),
    }  # fmt: skip
    for paper in papers():
        figures, tables = counted[paper.id]
        wanted = [f'Figure {k + 1}' for k in range(figures)] + [f'Table {k + 1}' for k in range(tables)]
        assert [item.item for item in paper.items] == wanted
        for item in paper.items:
            assert set(item.figures) <= set(FIGURES.names())
            assert set(item.tables) <= set(TABLES.names())
            assert item.is_named or item.note


@pytest.mark.parametrize('page', ['figures.md', 'tables.md', 'papers.md'])
def test_the_pages_of_names_are_current(page: str) -> None:
    written = (ROOT / 'docs' / 'reference' / page).read_text(encoding='utf-8')
    assert written == tool('thumbnails').PAGES[page](), 'run: python tools/thumbnails.py --pages'


def test_every_figure_has_its_picture_and_they_are_small() -> None:
    folder = ROOT / 'docs' / 'images' / 'figures'
    assert {path.stem for path in folder.glob('*.png')} == set(FIGURES.names()), 'run: python tools/thumbnails.py'
    sizes = [path.stat().st_size for path in folder.glob('*.png')]
    assert max(sizes) <= 25_000
    assert sum(sizes) < 700_000


# --- styles


def test_saved_text_has_the_stated_size_and_font_and_the_file_the_stated_width(case: Showcase, tmp_path: Path) -> None:
    draw = find_figure('rmst-grid')
    style = FigureStyle(width_in=3.5, height_in=2.5, font='serif', font_size_pt=9.0)
    with styled(style):
        figure = draw(showcase_request(case, 'rmst-grid', draw, n_resamples=20))
        svg = save_figure(figure, tmp_path / 'f.svg').read_text()
        pdf = save_figure(figure, tmp_path / 'f.pdf').read_bytes()
    assert f'width="{3.5 * 72:g}pt" height="{2.5 * 72:g}pt"' in svg
    sizes = {float(s) for s in re.findall(r'font(?:-size)?: ([\d.]+)px', svg)}
    assert 9.0 in sizes
    assert max(sizes) == 9.0
    assert min(sizes) >= 9.0 * 0.69
    assert "'STIXGeneral'" in svg
    box = re.search(rb'/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]', pdf)
    assert box is not None
    assert (float(box[1]), float(box[2])) == (252.0, 180.0)
    drawn = b''.join(_streams(pdf))
    assert 9.0 in {float(s) for s in re.findall(rb'/F\d+ ([\d.]+) Tf', drawn)}
    assert b'/FontFile2' in pdf  # TrueType, embedded
    assert b'/Type3' not in pdf


def _streams(pdf: bytes) -> list[bytes]:
    found = []
    for match in re.finditer(rb'stream\r?\n(.*?)endstream', pdf, flags=re.DOTALL):
        try:
            found.append(zlib.decompress(match[1]))
        except zlib.error:
            continue
    return found


def test_lengths_are_read_in_the_units_of_authors() -> None:
    assert parse_length_in('3.5') == 3.5
    assert parse_length_in('252pt') == pytest.approx(3.4869, abs=1e-4)
    assert parse_length_in('89mm') == pytest.approx(3.5039, abs=1e-4)
    with pytest.raises(InputError, match='not a length'):
        parse_length_in('wide')


def test_a_style_ends_with_its_block_and_nonsense_is_refused() -> None:
    with styled(figure_style('nature', width='page')):
        assert new_figure(5.0, 3.0).get_figwidth() == pytest.approx(183 / 25.4)
    assert new_figure(5.0, 3.0).get_figwidth() == 5.0
    with pytest.raises(UnknownName, match='did you mean'):
        figure_style('ieeee')
    with pytest.raises(UnknownName, match='font'):
        figure_style(font='comic')
    with pytest.raises(InputError, match='inches'):
        figure_style(width='900in')
    with pytest.raises(InputError, match='points'):
        figure_style(font_size_pt=1.0)


# --- inputs


def test_the_wrong_kind_of_input_says_which_is_wanted(case: Showcase, tmp_path: Path) -> None:
    out = tmp_path / 'f.svg'
    for arguments, said in (
        (
            ['plot', 'claims', case.trial, '-o', out],
            'claims wants a vla-eval leaderboard file (.json); found the store',
        ),
        (
            ['plot', 'cdf', case.leaderboard, '-o', out],
            f'{case.leaderboard}: a rate without its number of trials; name the column with --map trials=COLUMN',
        ),
        (['plot', 'divergence', case.trial, '-o', out], 'divergence wants two stores'),
        (['plot', 'cutoffs', 'libero-spatal', '-o', out], "did you mean 'libero-spatial'"),
        (
            ['plot', 'amse', case.leaderboard, '-o', out],
            'a store of predicted actions (robotrials actions run), or the w',
        ),
        (['tables', 'survey', case.trial], 'survey wants nothing; found'),
        (['tables', 'headline', tmp_path / 'none'], 'no such file or folder'),
        (['tables', 'headline'], 'headline wants a store, or a file or folder of episodes; found nothing'),
        (['tables', 'claims', case.leaderboard, '-w', 'policy=x'], '--where cannot choose any'),
        (['tables', 'headlines', case.trial], "did you mean 'headline'"),
        (['tables'], 'robotrials tables --list'),
        (['tables', 'labels', case.trial], 'they have: camera_side, tote_side'),
    ):
        printed = robotrials(*arguments, code=2)
        assert said in printed, printed
    assert set(COUNTS) == set(Input)
    check_sources('safety-library', Input.REGISTRY, [])


def test_tables_are_printed_and_written(case: Showcase, tmp_path: Path) -> None:
    text = robotrials('tables', 'recorded', case.trial)
    assert 'duration (min)' in text
    target = tmp_path / 'deep' / 'h.tex'
    robotrials('tables', 'condition-success', case.conditions, '-f', 'latex', '-o', target, '--width', 'page')
    written = target.read_text()
    assert written.startswith('\\begin{table*}')
    assert r'\label{tab:condition-success}' in written
    published = robotrials('tables', 'action-errors', 'published', '-p', 'GPT', '-f', 'csv')
    assert 'GPT AMSE' in published
    assert 'JAT' not in published


def test_a_plug_ins_table_is_found_by_module_and_attribute(case: Showcase) -> None:
    build = find_table('robotrials.show.timing:recorded')
    assert input_of(build) is Input.STORE


def test_figures_say_what_a_store_lacks(case: Showcase, tmp_path: Path) -> None:
    for name in ('drop-forest', 'doses', 'starts', 'placement', 'success-filmstrips', 'safety-pareto'):
        draw = find_figure(name)
        with pytest.raises((NotEstimable, InputError)):
            draw(showcase_request(case, 'headline', draw, n_resamples=5))


# --- LaTeX


def test_a_latex_table_escapes_and_keeps_its_width() -> None:
    shown = table('50 % of a_b & c', ['x_1', 'text'], [[1.5, 'a long text that would not fit into a column at all']])
    written = render_all([shown, shown], 'latex', latex=LatexLayout(label='tab:x'))
    assert r'\caption{50 \% of a\_b \& c}' in written
    assert r'\resizebox{\ifdim\width>\columnwidth\columnwidth\else\width\fi}{!}{%' in written
    assert r'p{12em}' in written
    assert written.count(r'\label{tab:x}') == 1
    assert r'\label{tab:x-2}' in written
    assert all(ord(ch) < 128 for value in LATEX_SPECIAL.values() for ch in value)
    with pytest.raises(UnknownName, match='width of a LaTeX table'):
        LatexLayout(width='both')


def test_latex_writes_minus_signs_and_bars() -> None:
    written = render_all([table('P[U|S]', ['x'], [[-1.5]], note='A note.')], 'latex')
    assert r'$-$1.5 \\' in written
    assert r'\caption{P[U\textbar{}S]. A note}' in written
