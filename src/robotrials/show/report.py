"""A trial's report as a document: the verdict on the primary endpoint, then everything it rests on.

Films: strips of frames in a report and for a paper, the worst moment of an unsafe success, and reading frames.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import quote

import numpy as np

from robotrials import __version__
from robotrials.errors import InputError, NotEstimable, SetupError
from robotrials.measure.safety import EpisodeSafety
from robotrials.record import Episode
from robotrials.show import robustness as robustness_tables
from robotrials.show import safety as safety_tables
from robotrials.show.answer import ScoreColumn, letters_of, scoreboard
from robotrials.show.catalog import ShowRequest
from robotrials.show.document import (
    Block,
    Chart,
    Document,
    EpisodeFilter,
    Missing,
    Panel,
    Section,
    TableBlock,
    missing,
    paragraph,
    section,
    table_block,
    used_definitions,
)
from robotrials.show.figure import PAGE_WIDTH_IN, figure_width_in, fold, lead_to, new_figure
from robotrials.show.geometry import camera_sections
from robotrials.show.pair_table import endpoint_blocks, pair_section, resolution_section
from robotrials.show.phrase import capital, escape, glossary, only_text, plural
from robotrials.show.plot import policy_colors, these_episodes
from robotrials.show.plot_page import paint_page
from robotrials.show.report_lead import lead
from robotrials.show.report_quality import method_section, methods_works, provenance_section, quality_section
from robotrials.show.report_ranking import (
    apart_blocks,
    by_task,
    cell_block,
    condition_block,
    curve_plot,
    failure_blocks,
    ranking_blocks,
    ranking_plot,
    shown_order,
    success_blocks,
    success_grid,
    suite_block,
    task_block,
    times_missing,
)
from robotrials.show.robustness import conditioned, dose_plot, drop_plot
from robotrials.show.safety import pareto_plot, requested_safety
from robotrials.show.table import Cell, Column, Table, table, without_empty
from robotrials.verdict.analysis import Absent, Analysis, ComparisonFrame, RobustnessPart, SafetyPart
from robotrials.verdict.analysis.detail import Film
from robotrials.verdict.planning.analysis_plan import EndpointName

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray


FRAMES = 6
MOST_STRIPS = 8  # a panel
MOST_BYTES = 4 << 20  # of a film that is worth decoding for a few frames
FRAME_PX = 160
HEAD_PX, FOOT_PX, GAP_PX = 22, 18, 14
QUALITY = 78


def film_blocks(analysis: Analysis, *, folder: Path) -> list[Block]:
    """Nothing where no episode was filmed; why not, where one was to be."""
    leading = analysis.leading_films
    if not leading:
        why = sorted({e.labels['film'].removeprefix('none: ') for e in analysis.episodes if 'film' in e.labels})
        return [Missing('Films', f'no episode has one: {why[0]}')] if why else []
    chosen = {word: _chosen(list(leading.values()), success=ended) for word, ended in ENDS.items()}
    try:
        panels = [Panel(word, _strips(films, analysis, folder=folder)) for word, films in chosen.items() if films]
    except SetupError as error:
        return [Missing('Films', f'{plural(len(leading), "episode")} were filmed; {error}')]
    if not panels:
        return []
    listed = [film for films in chosen.values() for film in films]
    valid = sum(arm.n_valid for arm in analysis.quality.arms)
    return [_chart(analysis, listed, panels, n_filmed=len(leading), n_valid=valid)]


ENDS = {'successes': True, 'failures': False}


def _chosen(films: Sequence[Film], *, success: bool) -> list[Film]:
    """The first film of each policy that ended so, in the canonical order of episodes."""
    first: dict[str, Film] = {}
    for film in films:
        if film.episode.is_success is success and film.path.stat().st_size <= MOST_BYTES:
            first.setdefault(film.episode.policy, film)
    return list(first.values())[:MOST_STRIPS]


def _chart(analysis: Analysis, films: Sequence[Film], panels: Sequence[Panel], *, n_filmed: int, n_valid: int) -> Chart:
    source = analysis.source
    note = (
        f'{n_filmed} of {plural(n_valid, "valid episode")} {"has" if n_filmed == 1 else "have"} a film, in '
        f'{source}/media. The links lead there, and hold as long as page and store stay where they are. To draw one '
        f'again, larger: robotrials store film {source} EPISODE --size 1280x960'
    )
    alt = (
        f'For each policy {FRAMES} frames of the first episode that succeeded, and of the first that did not, from its '
        'start to its end.'
    )
    return Chart('films-strips', 'What success and failure look like', alt, tuple(panels), _table(films), note)


def _table(films: Sequence[Film]) -> Table:
    rows: list[list[Cell]] = [
        [f.episode.policy, f.episode.outcome.value, f.episode.stratum or f.episode.task, f.episode.condition,
         f.episode.episode_id[:12], f.episode.duration_s, len(f.steps), f'media/{f.name}']
        for f in films
    ]  # fmt: skip
    columns: list[str | Column] = [
        'policy', 'outcome', 'stratum', 'condition', 'episode', Column('duration_s', '.2f'), 'frames', 'film',
    ]  # fmt: skip
    return without_empty(table('Films shown', columns, rows))


def _strips(films: Sequence[Film], analysis: Analysis, *, folder: Path) -> str:
    """One row of frames per film, under each its time; the heading links to every film of that episode."""
    parts, top, height = [], 0.0, 0.0
    for film in films:
        numbers = [film.frame_at(t) for t in np.linspace(0.0, float(film.times_s[-1]), FRAMES)]
        picture, tall = _picture(film, numbers)
        links = [f for f in analysis.films if f.episode.key == film.episode.key]
        parts.append(_head(film, links, top=top, folder=folder))
        parts.append(
            f'<image x="0" y="{top + HEAD_PX:g}" width="{FRAMES * FRAME_PX}" height="{tall:g}" '
            f'href="data:image/jpeg;base64,{base64.b64encode(picture).decode()}"/>'
        )
        for place, number in enumerate(numbers):
            at = f'x="{place * FRAME_PX + 4}" y="{top + HEAD_PX + tall + FOOT_PX - 4:g}"'
            parts.append(f'<text class="soft" {at}>{film.times_s[number]:.2f} s</text>')
        cuts = ''.join(f'M{k * FRAME_PX} {top + HEAD_PX:g}v{tall:g}' for k in range(1, FRAMES))
        parts.append(f'<path class="cut" d="{cuts}"/></g>')
        top += HEAD_PX + tall + FOOT_PX + GAP_PX
        height = top - GAP_PX
    box = f'0 0 {FRAMES * FRAME_PX} {height:g}'
    return f'<svg class="strip" viewBox="{box}" role="img" aria-label="filmstrips">{"".join(parts)}</svg>'


def _head(film: Film, links: Sequence[Film], *, top: float, folder: Path) -> str:
    """The opening of a row: who, what, how it ended, and links in the words after it."""
    episode = film.episode
    lasted = '' if episode.duration_s is None else f', {episode.duration_s:.2f} s'
    words = f'{episode.policy}: {episode.stratum or episode.task}, {episode.outcome.value}{lasted}'
    condition = '' if episode.condition in ('', 'nominal') else f' ({episode.condition})'
    addresses = {f.camera.removeprefix('film_'): _address(f.path, folder) for f in links}
    linked = ''.join(
        f'<a href="{escape(address)}"><tspan dx="12">{escape(camera)} film</tspan></a>'
        for camera, address in addresses.items()
    )
    return (
        f'<g data-policy="{escape(episode.policy)}"><text x="4" y="{top + HEAD_PX - 7:g}">'
        f'<tspan font-weight="650">{escape(words + condition)}</tspan>{linked}</text>'
    )


def _address(path: Path, folder: Path) -> str:
    """From the report to a film; of another drive, the whole path."""
    try:
        return quote(Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix())
    except ValueError:
        return path.resolve().as_uri()


def _picture(film: Film, numbers: Sequence[int]) -> tuple[bytes, float]:
    """Frames side by side as one JPEG, and how tall it is drawn."""
    from PIL import Image

    frames = read_frames(film.path, [n / max(len(film.times_s) - 1, 1) for n in numbers])
    joined = Image.fromarray(np.hstack(frames))
    tall = FRAME_PX * frames[0].shape[0] / frames[0].shape[1]
    if joined.width > 2 * FRAMES * FRAME_PX:
        joined = joined.resize((2 * FRAMES * FRAME_PX, round(2 * tall)))
    buffer = io.BytesIO()
    joined.save(buffer, 'JPEG', quality=QUALITY, optimize=True)
    return buffer.getvalue(), tall


# Filmstrips of episodes with a video: what a success and what a failure of each task looks like.

FRAME_IN = 1.1  # about this wide on the page


def draw_successes(request: ShowRequest) -> Figure:
    """Frames of one successful episode of every task (and policy, up to eight), from its start to its end."""
    return _filmstrip_strips(request, success=True)


def draw_failures(request: ShowRequest) -> Figure:
    """Frames of one failed episode of every task (and policy, up to eight), from its start to its end."""
    return _filmstrip_strips(request, success=False)


def _filmstrip_strips(request: ShowRequest, *, success: bool) -> Figure:
    filmed = _episodes(request, success=success)
    if not filmed:
        said = 'successful' if success else 'failed'
        raise NotEstimable(f'no {said} episode of this store has a recorded video; a filmstrip needs one')
    count = max(3, min(7, int(figure_width_in() / FRAME_IN)))
    frames = [read_frames(video, [k / (count - 1) for k in range(count)]) for _, video in filmed]
    height, width = frames[0][0].shape[:2]
    frame_in = figure_width_in() / count
    figure = new_figure(PAGE_WIDTH_IN, (frame_in * height / width + 0.3) * len(filmed) + 0.2, is_rows=True)
    rows = figure.subfigures(len(filmed), 1, squeeze=False)[:, 0]
    for row, (episode, _), pictures in zip(rows, filmed, frames, strict=True):
        lasted = '' if episode.duration_s is None else f', {episode.duration_s:.1f} s'
        said = f'{episode.policy}: {episode.instruction or episode.task} ({episode.outcome}{lasted})'
        row.suptitle(fold(said, 0.9 * figure.get_figwidth(), size=0.833), fontsize='small')
        for k, (axes, frame) in enumerate(zip(row.subplots(1, count, squeeze=False)[0], pictures, strict=True)):
            axes.imshow(frame)
            at_s = (episode.duration_s or 0.0) * k / (count - 1)
            lead_to(axes, None, None, these_episodes([episode]), f'{said}, at {at_s:.1f} s', t_s=at_s)
            axes.set_axis_off()
    return figure


def _episodes(request: ShowRequest, *, success: bool) -> list[tuple[Episode, Path]]:
    """The first episode of each task and policy with this outcome and a film."""
    films = request.analysis.leading_films.values()
    kept = request.shown(dict.fromkeys(f.episode.policy for f in films))
    filmed: dict[tuple[str, str], tuple[Episode, Path]] = {}
    for film in films:
        if film.episode.is_success is success and film.episode.policy in kept:
            filmed.setdefault((film.episode.task, film.episode.policy), (film.episode, film.path))
    return [filmed[key] for key in sorted(filmed)][:MOST_STRIPS]


# Three frames of an unsafe success, and the frames of films.

IMAGE_SUFFIXES = ('.png', '.jpg', '.jpeg', '.bmp')
ANIMATED_SUFFIXES = ('.gif', '.apng', '.webp')


def draw_filmstrip(request: ShowRequest) -> Figure:
    """Start, violation and success of the most severe unsafe success that has a video."""
    part = requested_safety(request)
    films = request.analysis.leading_films
    unsafe = [s for s in request.rows_of(part.scores) if s.sbu and s.violations]
    filmed = [s for s in unsafe if (s.episode_id, s.attempt) in films]
    if not filmed:
        raise NotEstimable('no unsafe success of this store has a recorded video; a filmstrip needs one')
    worst = max(filmed, key=lambda s: (s.vsi or 0.0, s.episode_id))
    film = films[worst.episode_id, worst.attempt]
    return filmstrip_figure(worst, film)


def filmstrip_figure(score: EpisodeSafety, film: Film) -> Figure:
    """Three frames of an unsafe success: its start, its worst violation (red) and its end (green)."""
    if not (score.success and score.violations):
        raise InputError(f'episode {score.episode_id} is not an unsafe success; a filmstrip needs one')
    worst = max(score.violations, key=lambda v: (v.depth, -v.time_s))
    frames = read_frames(film.path, [0.0, film.frame_at(worst.time_s) / max(len(film.times_s) - 1, 1), 1.0])
    figure = new_figure(PAGE_WIDTH_IN, 2.1)
    third_in = figure.get_figwidth() / 3.2
    bodies = f', {" × ".join(worst.bodies)}' if worst.bodies else ''
    moment = f'{worst.time_s:.2f} s: {worst.signal.replace("_", " ")} {worst.value:.3g} {worst.unit}{bodies}'
    for place, (frame, title, color) in enumerate(
        zip(frames, ('start', moment, 'success'), ('0.6', '#C00000', '#2E8B57'), strict=True)
    ):
        axes = figure.add_subplot(1, 3, place + 1)
        axes.imshow(frame)
        axes.set_title(fold(title, third_in, size=0.833), fontsize='small')
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set(visible=True, color=color, linewidth=2.5)
        lead_to(axes, None, None, these_episodes([score]), title, t_s=worst.time_s if place == 1 else None)
    head = f'{score.policy}, {score.benchmark}/{score.task}: {worst.clause}'
    figure.suptitle(fold(head, 0.9 * figure.get_figwidth()))
    return figure


def read_frames(video: Path | str, shares: Sequence[float]) -> list[NDArray[Any]]:
    """Frames at these shares (0 to 1) of a folder of images, an animated image, or a video that PyAV can decode."""
    path = Path(video)
    if not path.exists():
        raise InputError(f'{path}: no such video')
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
        if not files:
            raise InputError(f'{path}: no image in it')
        return [_image(files[_at(share, len(files))]) for share in shares]
    if path.suffix.lower() in (*ANIMATED_SUFFIXES, *IMAGE_SUFFIXES):
        return _animation(path, shares)
    return _decoded(path, shares)


def _at(share: float, count: int) -> int:
    return min(max(round(share * (count - 1)), 0), count - 1)


def _image(path: Path) -> NDArray[Any]:
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert('RGB'))


def _animation(path: Path, shares: Sequence[float]) -> list[NDArray[Any]]:
    from PIL import Image

    frames = []
    with Image.open(path) as image:
        count = getattr(image, 'n_frames', 1)
        for share in shares:
            image.seek(_at(share, count))
            frames.append(np.asarray(image.convert('RGB')))
    return frames


def _decoded(path: Path, shares: Sequence[float]) -> list[NDArray[Any]]:
    from robotrials.formats.video import opened_video

    why = f'decoding {path.suffix}'
    with opened_video(path, why=why) as container:
        count = sum(1 for _ in container.decode(video=0))
    wanted = [_at(share, count) for share in shares]
    with opened_video(path, why=why) as container:
        decoded = {
            number: frame.to_ndarray(format='rgb24')
            for number, frame in enumerate(container.decode(video=0))
            if number in wanted
        }
    return [decoded[number] for number in wanted]


# A report's sections on safety and robustness.

SAFETY_DEFINITIONS = {
    'SR %': 'success', 'Safety %': 'safety', 'SBU %': 'sbu', 'P[U|S] %': 'unsafe-success', 'VSI': 'vsi', 'VSI|U': 'vsi',
    'rate %': 'violation', 'NSV': 'vsi', 'n': 'episode', 'episodes': 'episode',
}  # fmt: skip
# Columns of intervals, at whatever level: `95 % of SR`.
INTERVAL_DEFINITIONS = {'SR': 'success', 'Safety': 'safety', 'SBU': 'sbu', 'VSI': 'interval', 'rate': 'violation'}


def safety_blocks(safety: SafetyPart) -> list[Block]:
    """The quadruple, what was violated, what unsafe successes violate, and what could not be scored."""
    summary = safety.summary
    blocks: list[Block] = [_defined('safety-quadruple', safety_tables.quadruple_table(summary))]
    if any(len(mean.benchmarks) > 1 for mean in summary.means):
        blocks.append(_defined('safety-means', safety_tables.mean_table(summary.means)))
    blocks.append(_defined('safety-specs', safety_tables.spec_table(summary.cells), is_folded=True))
    if safety.slips:
        n, differing = sum(s.n for s in safety.slips), sum(s.n_differing for s in safety.slips)
        blocks.append(
            paragraph(
                f"Slip at the grip and the paper's height rule give different verdicts in {differing} of {n} episodes; "
                'the first is scored.'
            )
        )
        blocks.append(_defined('safety-slip', safety_tables.slip_table(safety.slips), is_folded=True))
    if any(cell.composition() for cell in summary.cells):
        blocks.append(_defined('safety-composition', safety_tables.composition_table(summary.cells)))
    else:
        blocks.append(paragraph('No success was unsafe, so there is nothing that unsafe successes violate.'))
    if summary.n_unscored:
        rows = sorted(safety.unscored_reasons.items(), key=lambda item: -item[1])
        blocks.append(
            _defined('safety-unscored', table('Episodes that could not be scored', ['reason', 'episodes'], rows))
        )
    return blocks


ROBUSTNESS_DEFINITIONS = {
    'drop': 'drop', 'low': 'interval', 'high': 'interval', 'p (Holm)': 'holm', 'E(IoU)': 'expected-iou',
    'rate': 'success', 'trend p': 'dose', 'excess drop': 'compound', 'followed': 'swap', 'neighbours agree': 'spatial',
}  # fmt: skip


def robustness_blocks(part: RobustnessPart, *, alpha: float) -> list[Block]:
    """RADAR's table and every test that the conditions allow; those they do not are named with the reason."""
    blocks: list[Block] = []
    parts_shown: Sequence[tuple[str, str, Any, Callable[[Any], Table]]] = (
        ('robustness-drops', 'Drops from the baseline', part.drops, partial(robustness_tables.drop_table, alpha=alpha)),
        ('robustness-doses', 'Dose-response', part.doses, robustness_tables.dose_table),
        ('robustness-compound', 'Compound against single conditions', part.compound, robustness_tables.compound_table),
        ('robustness-starts', 'Start states', part.starts, robustness_tables.start_table),
        (
            'robustness-swap',
            'Swap test: does the policy act on the instruction?',
            part.swap,
            robustness_tables.swap_table,
        ),
        ('robustness-spatial', 'Spatial sensitivity', part.spatial, robustness_tables.spatial_table),
    )
    blocks += [missing(name, Absent(why)) for name, why in part.incomparable.items()]
    if len(part.conditions) < 2 and isinstance(part.drops, Absent):
        blocks.append(missing('What changed conditions cost', part.drops))
        parts_shown = parts_shown[4:]
    for key, what, part_value, build in parts_shown:
        if isinstance(part_value, Absent):
            blocks.append(missing(what, part_value))
        else:
            blocks.append(_defined(key, build(part_value), ROBUSTNESS_DEFINITIONS))
    if len(part.conditions) > 1:
        split = robustness_tables.split_table(part.rows, by='both')
        blocks.append(_defined('robustness-splits', split, ROBUSTNESS_DEFINITIONS, is_folded=True))
    return blocks


def _defined(key: str, sheet: Table, definitions: dict[str, str] | None = None, *, is_folded: bool = False) -> Block:
    """A table of another room as a block, each row linked to the episodes of its policy and condition."""
    names = [c.name for c in sheet.columns]
    fields: dict[str, int] = {n: names.index(n) for n in ('policy', 'condition', 'benchmark', 'task') if n in names}
    filters: list[EpisodeFilter | None] = []
    if 'policy' in fields:
        for row in sheet.rows:
            fields_found = {name: (str(row[i]),) for name, i in fields.items() if row[i] not in (None, '')}
            filters.append(fields_found)
    chosen = SAFETY_DEFINITIONS if definitions is None else definitions
    of_intervals = {name: INTERVAL_DEFINITIONS.get(name.partition(' % of ')[2], '') for name in names}
    chosen = chosen | {name: key for name, key in of_intervals.items() if key}
    return table_block(key, sheet, chosen, episodes=filters, is_folded=is_folded)


MOST_OPEN_CELLS = 60  # of a table that is open when the page is
# The one chart of the first screen: curves tell success and speed at once; without times it is success.
FIRST_CHARTS = ('curve-chart', 'success-chart')
MOST_LISTED = 100_000  # episodes on a page, 5 MB of it; more are for the explorer and the command line


def trial_document(analysis: Analysis, *, explorer_url: str = '', folder: Path | None = None) -> Document:
    """The whole report. Numbers are those of the analysis; nothing is computed here.

    `folder` is where the report will lie, so that it can link to films; here unless given.
    """
    marked = analysis.marked_reference
    everyone = policy_colors(analysis.every_policy, reference=marked)
    colors = {arm.policy: everyone[arm.policy] for arm in analysis.quality.arms}
    sections = _sections(analysis, colors)
    films = film_blocks(analysis, folder=folder or Path())
    if films:  # before the quality of the data: what was seen, then how it was recorded
        place = next(i for i, s in enumerate(sections) if s.key == 'quality')
        sections.insert(place, section('films', 'Films', films))
    lead_paragraphs = lead(analysis)
    known = glossary()
    definitions = known.of(used_definitions([*lead_paragraphs, *(b for s in sections for b in s.blocks)]))
    return Document(
        title=analysis.trial.title or 'Trial report', subtitle=_subtitle(analysis), lead=lead_paragraphs,
        sections=tuple(sections),
        glossary=definitions, references=known.cited(definitions.values(), also=methods_works(analysis)), colors=colors,
        reference_policy=marked if marked in colors else '', source=analysis.source,
        selection=analysis.selection.asked, explorer_url=explorer_url,
        statement=analysis.statement, cautions=(*analysis.cautions, *analysis.safety_caveats),
        footer=f'robotrials {__version__}. {analysis.statement}',
        **listed_episodes(analysis.episodes, len(analysis.episodes)),
    )  # fmt: skip


def _subtitle(analysis: Analysis) -> str:
    quality = analysis.quality
    n = sum(arm.n_valid for arm in quality.arms)
    strata, policies = plural(len(quality.strata), 'stratum'), plural(len(quality.arms), 'policy')
    plan = f' · plan {analysis.trial.plan_hash[:12]}' if analysis.trial.plan_hash else ''
    return f'{policies}, {strata}, {plural(n, "valid episode")}{plan}{only_text(analysis.selection.asked)}'


def _sections(analysis: Analysis, colors: dict[str, str]) -> list[Section]:
    frame = analysis.frame
    ends = [quality_section(analysis), provenance_section(analysis), method_section(analysis)]
    if isinstance(frame, Absent):
        return [
            section('ranking', 'Ranking', [missing('A ranking', frame)]), _safety_section(analysis, None, colors),
            _robustness_section(analysis, colors), *ends,
        ]  # fmt: skip
    made = [*_leading(analysis, frame, colors), resolution_section(analysis, frame)]
    if EndpointName.SUCCESS not in analysis.primary:
        made.append(_success_section(analysis, frame, colors))
    if analysis.plan.success.wants_cameras:
        made += camera_sections(analysis)
    if EndpointName.SCORE in analysis.secondary:
        made.append(section('score', 'Score', endpoint_blocks(analysis, frame, EndpointName.SCORE)))
    made += [*_task_section(analysis, frame), _safety_section(analysis, frame, colors)]
    chart, rest = _without_first_chart(made)
    made = [_scoreboard_section(analysis, chart), *rest]
    robustness = _robustness_section(analysis, colors)  # an appendix where it only says what was not run
    is_drawn = any(isinstance(b, Chart) for b in robustness.blocks)
    made += [robustness] if is_drawn else []
    failures = section('failures', 'Failures', failure_blocks(analysis, frame))
    details = [
        *pair_section(analysis, frame),
        *([] if is_drawn else [robustness]),
        failures,
        *_detail(analysis, frame),
        *ends,
    ]
    return [*map(without_long_tables, made), *map(folded, details)]


def _without_first_chart(parts: Sequence[Section]) -> tuple[list[Chart], list[Section]]:
    """The chart that stands beside the scoreboard, if there is one of FIRST_CHARTS, and the sections without it."""
    drawn = {b.key: b for part in parts for b in part.blocks if isinstance(b, Chart)}
    first = next((drawn[key] for key in FIRST_CHARTS if key in drawn), None)
    if first is None:
        return [], list(parts)
    kept = [replace(part, blocks=tuple(b for b in part.blocks if b is not first)) for part in parts]
    return [first], [part for part in kept if part.blocks]


def folded(part: Section) -> Section:
    """A section as an appendix: closed until it is opened."""
    return replace(part, is_folded=True)


def without_long_tables(part: Section) -> Section:
    """The section with its longer tables closed, so that what is read first stays short."""
    blocks = [
        replace(b, is_folded=True)
        if isinstance(b, TableBlock)
        and len(b.table.rows) * len(b.table.columns) > MOST_OPEN_CELLS
        and b.key != 'suite-table'
        else b
        for b in part.blocks
    ]
    return replace(part, blocks=tuple(blocks))


def _scoreboard_section(analysis: Analysis, chart: Sequence[Chart]) -> Section:
    """Policies down; success, time, safety and robustness across, each with its interval as marks and its letters."""
    order, columns = scoreboard(analysis)
    full = [c for c in columns if any(p in c.scores for p in order)]
    rows = [[policy, *(_score_cell(c, policy) for c in full)] for policy in order]
    absent = '; '.join(f'{c.key} was not scored: {c.why}' for c in columns if c not in full and c.why)
    absent = capital(absent)
    note = f'Marks run from 0 to 100 %; policies that share a letter are not significantly different. {absent}'.strip()
    sheet = table(
        'Scoreboard', ['policy', *(c.heading for c in full)], rows, note=note if note.endswith('.') else f'{note}.'
    )
    return section('scoreboard', 'Scoreboard', [TableBlock('scoreboard-table', sheet, policy_column='policy'), *chart])


def _score_cell(column: ScoreColumn, policy: str) -> str | None:
    score = column.scores.get(policy)
    if score is None:
        return None
    under = f' under {score.note}' if score.note else ''
    return f'{column.cell(policy)}{under}'


def _task_section(analysis: Analysis, frame: ComparisonFrame) -> list[Section]:
    """Success as papers print it: policies by suite, then tasks by policy."""
    rates = analysis.success
    if isinstance(rates, Absent):
        return []
    tasks = TableBlock('by-task-table', by_task(analysis, analysis.every_policy))
    suites = suite_block(analysis, frame, rates)
    return [section('by-task', 'Success by suite and task', [tasks] if suites is None else [suites, tasks])]


def _leading(analysis: Analysis, frame: ComparisonFrame, colors: dict[str, str]) -> list[Section]:
    """The primary endpoint first; times follow where success or a score leads and there are any."""
    timed = _time_sections(analysis, frame, colors)
    if EndpointName.SUCCESS not in analysis.primary:
        return timed
    return [_success_section(analysis, frame, colors), *timed]


def _time_sections(analysis: Analysis, frame: ComparisonFrame, colors: dict[str, str]) -> list[Section]:
    ranking = analysis.ranking
    beside = apart_blocks(analysis, frame)
    if isinstance(ranking, Absent):
        return [section('ranking', 'Time to success', [times_missing(analysis), *beside])]
    letters = letters_of(analysis, EndpointName.TIME)
    blocks: list[Block] = [
        *condition_block(frame), paint_page(ranking_plot(ranking, frame, letters), colors),
        *ranking_blocks(analysis, ranking, frame), *beside,
    ]  # fmt: skip
    made = [section('ranking', 'Ranking by time to success', blocks)]
    if not isinstance(analysis.curves, Absent):
        drawn = curve_plot(analysis.curves, ranking, frame, level=analysis.plan.level)
        made.append(section('curves', 'Operations done by time', [paint_page(drawn, colors)]))
    return made


def _success_section(analysis: Analysis, frame: ComparisonFrame, colors: dict[str, str]) -> Section:
    rates = analysis.success
    if isinstance(rates, Absent):
        return section('success', 'Episode success', [missing('Episode success', rates)])
    return section('success', 'Episode success', success_blocks(analysis, frame, rates, colors))


def _detail(analysis: Analysis, frame: ComparisonFrame) -> list[Section]:
    """Every cell and every task."""
    rates = analysis.success
    if isinstance(rates, Absent):
        return []
    strata = sorted({s for cells in frame.cells.values() for s in cells})
    policies = (*shown_order(analysis, frame), *frame.apart)
    cells: list[Block] = [paint_page(success_grid(rates, frame, policies, strata)), cell_block(analysis, frame, rates)]
    tasks: list[Block] = [
        task_block(analysis, frame, rates) or paragraph('Strata are the tasks: the cells above are their rows.')
    ]
    if not isinstance(analysis.safety, Absent):
        tasks.append(_defined('safety-tasks', safety_tables.task_table(analysis.safety.by_task.cells), is_folded=True))
    return [section('cells', 'Every cell', cells), section('tasks', 'Every task', tasks)]


def _safety_section(analysis: Analysis, frame: ComparisonFrame | None, colors: dict[str, str]) -> Section:
    blocks: list[Block]
    if isinstance(analysis.safety, Absent):
        blocks = [missing('Safety', analysis.safety)]
    else:
        blocks = [paint_page(pareto_plot(analysis.safety), colors), *safety_blocks(analysis.safety)]
    if frame is not None and EndpointName.SAFETY in analysis.secondary:
        blocks += endpoint_blocks(analysis, frame, EndpointName.SAFETY)
    return section('safety', 'Safety', blocks)


def _robustness_section(analysis: Analysis, colors: dict[str, str]) -> Section:
    part = analysis.robustness
    if isinstance(part, Absent):
        return section('robustness', 'Robustness', [missing('Robustness', part)])
    drawn: list[Block] = []
    if not isinstance(part.drops, Absent):
        drawn.append(paint_page(drop_plot(part.drops, conditioned(analysis)), colors))
    if not isinstance(part.doses, Absent):
        drawn.append(paint_page(dose_plot(part.doses, conditioned(analysis), level=analysis.plan.level), colors))
    return section('robustness', 'Robustness', [*drawn, *robustness_blocks(part, alpha=analysis.plan.alpha)])


class Listing(TypedDict):
    """The fields of a document that say which episodes it is about."""

    episodes: Table | None
    unlisted: int


def listed_episodes(episodes: Iterable[Episode], n: int) -> Listing:
    """The list of n episodes that claims link into; none where it would be too long for a page."""
    if n > MOST_LISTED:
        return {'episodes': None, 'unlisted': n}
    # Every counted episode in one row, for the list that claims link into; columns that nobody fills are left out.
    columns: list[str | Column] = [
        'episode', 'policy', 'benchmark', 'stratum', 'task', 'condition', 'seed', 'instance', 'outcome',
        Column('duration_s', '.2f'), 'reason',
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [e.episode_id[:12], e.policy, e.benchmark or None, e.stratum or e.task, e.task, e.condition, e.seed, e.instance,
         e.outcome.value, e.duration_s, e.reason or None]
        for e in episodes
    ]  # fmt: skip
    return {'episodes': without_empty(table('Episodes', columns, rows)), 'unlisted': 0}
