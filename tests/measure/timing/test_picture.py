"""Traces, tables, figures and verbs, end to end over a store."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from robotrials.cli import full_app
from robotrials.errors import InputError, NotEstimable, RobotrialsError, UnknownName
from robotrials.measure.timing import cohorts, mtbf, success_curve, uph_of_rmst
from robotrials.measure.timing.curve_test import pp_trace, qq_trace, trade_off_trace
from robotrials.record import Episode, Outcome, Store
from robotrials.show.catalog import FIGURES, FigureRequest, find_figure, summary_of
from robotrials.show.curve import curve_panels, pair_plots, rmst_grid
from robotrials.show.figure import save_figure
from robotrials.show.table import render
from robotrials.show.timing import scalar_name
from robotrials.testing import paper_like_cohort
from robotrials.verdict.analysis import Analysis, analyse, present
from robotrials.verdict.analysis.ranking import ALL_STRATA

app = full_app()

PAPER_FIGURES = {'cdf', 'pp', 'sup-sign-cycle', 'rmst-grid', 'pairwise-pp', 'qq', 'uph-mtbf', 'uph-mtbf-macro'}


@pytest.fixture(scope='module')
def episodes() -> tuple[Episode, ...]:
    return tuple(paper_like_cohort(np.random.default_rng(1)))


@pytest.fixture(scope='module')
def store(tmp_path_factory: pytest.TempPathFactory, episodes: tuple[Episode, ...]) -> Path:
    path = tmp_path_factory.mktemp('store') / 'runs'
    made = Store.create(path)
    broken = Episode(
        policy='act', task='bin-to-bin', stratum='towels', outcome=Outcome.INVALID, duration_s=1.0, seed=999
    )
    made.append([*episodes, broken])
    return path


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_qq_stops_at_the_last_level_both_reach() -> None:
    model = success_curve([10, 20, float('inf'), float('inf')], [True] * 4)
    reference = success_curve([1, 2, 3, 4], [True] * 4)
    trace = qq_trace(model, reference, n_levels=2)
    assert trace.last_level == 0.5
    assert trace.levels.tolist() == [0.25, 0.5]
    assert trace.model_s.tolist() == [10, 20]
    assert trace.reference_s.tolist() == [1, 2]


def test_trade_off_traces_the_two_scalars_of_table_1() -> None:
    curve = success_curve([10, 50, 100, float('inf')], [True] * 4)
    trace = trade_off_trace([curve])
    assert trace.uph[-1] == pytest.approx(uph_of_rmst(curve, 240))
    assert trace.mtbf_s[0] == pytest.approx(mtbf(curve, 30))
    assert np.all(np.diff(trace.uph) < 0)
    assert np.all(np.diff(trace.mtbf_s) > 0)
    with pytest.raises(InputError, match='low < high'):
        trade_off_trace([curve], low_s=50, high_s=40)


def test_pp_of_equal_curves_is_the_diagonal() -> None:
    curve = success_curve([1, 2, 3], [True] * 3)
    trace = pp_trace(curve, curve)
    assert trace.auc == pytest.approx(0.5)
    assert trace.ks == 0
    assert trace.ks_time_s is None


def test_every_figure_of_the_paper_is_in_the_catalogue() -> None:
    assert set(FIGURES.names()) >= PAPER_FIGURES
    assert all(summary_of(find_figure(name)) for name in FIGURES.names())


@pytest.fixture(scope='module')
def analysis(episodes: tuple[Episode, ...]) -> Analysis:
    return analyse(episodes, resamples=30)


@pytest.mark.parametrize('name', sorted(PAPER_FIGURES))
def test_every_figure_is_drawn_from_an_analysis(name: str, analysis: Analysis, tmp_path: Path) -> None:
    drawn = find_figure(name)(FigureRequest(subject=analysis))
    assert drawn.axes
    assert any(ax.lines or ax.collections or ax.containers or ax.texts for ax in drawn.axes)
    assert save_figure(drawn, tmp_path / f'{name}.svg').stat().st_size > 2000


def test_equal_data_give_equal_figure_files(episodes: tuple[Episode, ...], tmp_path: Path) -> None:
    files = [
        save_figure(find_figure('cdf')(FigureRequest(subject=analyse(rows, resamples=30))), tmp_path / f'{k}.svg')
        for k, rows in enumerate((episodes, episodes[::-1]))
    ]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_figures_say_what_they_miss(analysis: Analysis, episodes: tuple[Episode, ...]) -> None:
    alone = analyse([e for e in episodes if e.policy == 'act'], resamples=30)
    with pytest.raises(InputError, match='against a reference, and none is marked'):
        find_figure('pp')(FigureRequest(subject=alone))
    with pytest.raises(NotEstimable, match='only one policy was tested'):
        find_figure('pairwise-pp')(FigureRequest(subject=alone))
    for name in ('qq', 'cdf', 'rmst-grid', 'uph-mtbf', 'pp'):
        with pytest.raises(UnknownName, match="did you mean 'towels'"):
            find_figure(name)(FigureRequest(subject=analysis, strata=('towel',)))
    with pytest.raises(InputError, match='over all strata'):
        find_figure('ranks')(FigureRequest(subject=analysis, strata=('towels',)))


def test_what_the_curves_figure_shows_is_the_analysis(analysis: Analysis) -> None:
    (panel,) = curve_panels(FigureRequest(subject=analysis))
    curves = present(analysis.curves)[ALL_STRATA]
    assert {c.policy: c for c in panel.curves} == {c.policy: c for c in curves}
    assert panel.tau_s == present(analysis.times).tau_s == 300.0
    operations = {p: sum(c.n_operations for c in o.cells.values()) for p, o in present(analysis.times).cohorts.items()}
    assert {p: counts[0] for p, counts in panel.at_risk.items()} == operations
    first, second = curve_panels(FigureRequest(subject=analysis, strata=('spoons', 'towels'), policies=('act',)))
    assert [c.policy for c in first.curves] == [c.policy for c in second.curves] == ['act']
    assert (first.stratum, second.stratum) == ('spoons', 'towels')


def test_what_the_grid_and_the_pairs_show_is_the_analysis(analysis: Analysis) -> None:
    _, strata, points = rmst_grid(FigureRequest(subject=analysis, policies=('act', 'groot')))
    assert len(points) == 2 * len(strata) == 8
    scores = present(analysis.ranking).scores
    for (policy, stratum), rmst in points.items():
        assert rmst.interval is not None
        assert rmst == scores[policy].cells[stratum]['rmst_s']
    for pair in pair_plots(FigureRequest(subject=analysis)):
        compared = present(analysis.pairs).time_pair(pair.policy_a, pair.policy_b)
        assert compared is not None
        assert pair.auc.value == pytest.approx((compared.advantages['auc_between'].value or 0) + 0.5)
        turned = pair.seen_from(pair.policy_b)
        assert turned.auc.value == pytest.approx(1 - (pair.auc.value or 0))
        assert turned.trace.ks == pair.trace.ks
        assert turned.trace.model.tolist() == pair.trace.reference.tolist()


def test_score_prints_table_2s_layout(store: Path) -> None:
    success, document = json.loads(run('score', store, '--resamples', '100', '-f', 'json'))
    assert document['title'] == 'Time to success'
    rows = {row['policy']: row for row in document['rows']}
    assert list(rows) == ['human', *sorted((p for p in rows if p != 'human'), key=lambda p: rows[p]['RMST (s)'])]
    assert [row['rank'] for row in document['rows']] == [None, 1, 2, 3, 4]
    assert rows['human']['HRT (%)'] == 100
    assert rows['act']['invalid'] == 1
    assert rows['openpi']['RMST low'] < rows['openpi']['RMST (s)'] < rows['openpi']['RMST high']
    assert 0 < rows['smolvla']['intervention (%)'] < 100
    assert success['title'] == 'Episode success'
    assert {row['policy'] for row in success['rows']} == set(rows)


def test_score_without_a_reference_says_why_there_is_no_hrt(store: Path) -> None:
    _, document = json.loads(run('score', store, '-w', 'policy=act', '--resamples', '50', '-f', 'json'))
    assert document['rows'][0]['HRT (%)'] is None
    assert 'no policy is marked as the reference' in document['note']
    assert 'none was declared' in document['analysis']
    assert 'only episodes with policy act' in document['analysis']


def test_what_score_leaves_out_has_names(store: Path) -> None:
    asked = {
        'scalars': 'UPH of successes', 'scalars-by-stratum': 'act (towels)', 'relative': 'AUC = P(T < T reference)',
        'failures': 'Failure modes',
    }  # fmt: skip
    for name, wanted in asked.items():
        assert wanted in run('tables', name, store, '--resamples', '50')
    assert 'opposite' in run('tables', 'labels', store, '--label', 'camera_side=tote_side', '--resamples', '50')


def test_compare_prints_a_verdict_and_all_pairs_print_letters(store: Path) -> None:
    text = ' '.join(run('compare', store, 'openpi', 'smolvla', '--resamples', '200', '--details').split())
    assert 'A trade-off: openpi is faster than smolvla, but looks worse in items lost' in text
    assert (
        'openpi is faster than smolvla on average over these 4 strata (its k-th of 10 items in place first in ' in text
    )
    text = ' '.join(run('compare', store, '--resamples', '200', '--details').split())
    assert 'Policies sharing a letter are not significantly different in time to success' in text
    differences = ' '.join(run('tables', 'stratum-differences', store, '--resamples', '200').split())
    assert 'corrected over all pairs and strata (24 comparisons)' in differences


def test_logrank_of_all_pairs_is_corrected_over_them(store: Path) -> None:
    """Table 3: Bonferroni over the 6 pairs, for each of the four kinds of test."""
    (ranks,) = json.loads(run('tables', 'logrank', store, '--resamples', '50', '-f', 'json'))
    assert len(ranks['rows']) == 24
    for row in ranks['rows']:
        assert row['p (Bonferroni)'] == pytest.approx(min(1, 6 * row['p']))
        assert row['p'] <= row['p (Holm)'] <= row['p (Bonferroni)'] + 1e-12
    kinds = {(row['strata'], row['variance']) for row in ranks['rows']}
    assert kinds == {(s, v) for s in ('stratified', 'pooled') for v in ('classical', 'robust')}
    tables = json.loads(run('compare', store, '--resamples', '50', '-f', 'json'))
    everything = next(t for t in tables if t['title'] == 'All pairs: time to success')
    robust = {
        frozenset((r['a'], r['b'])): r['p'] for r in ranks['rows']
        if (r['strata'], r['variance']) == ('stratified', 'robust')
    }  # fmt: skip
    assert {frozenset((r['a'], r['b'])): r['p logrank (robust)'] for r in everything['rows']} == robust


def test_a_verdict_uses_the_words_of_its_table(store: Path) -> None:
    text = run('compare', store, 'act', 'groot', '--resamples', '300', '--details')
    for internal in ('chance_', 'auc_', 'hard_failure', 'rmst_s'):
        assert internal not in text


def test_the_same_seed_prints_the_same_numbers(store: Path) -> None:
    first, again, other = (
        run('compare', store, 'act', 'groot', '--resamples', '100', '--seed', s, '-f', 'csv') for s in '001'
    )
    assert first == again
    assert first != other


def test_calibrate_prints_table_8s_layout(store: Path) -> None:
    document = json.loads(
        run('calibrate', store, '--trials', '20', '--resamples', '19', '--label', 'tote_side', '-f', 'json')
    )
    assert {row['setup'] for row in document['rows']} == {'same_policy', 'reference', 'permutation', 'mean', 'nominal'}
    *rows, mean, _ = document['rows']
    assert mean['Pr(p<=0.1)'] == pytest.approx(np.mean([row['Pr(p<=0.1)'] for row in rows]))


def test_plot_writes_a_file_and_lists_names(store: Path, tmp_path: Path) -> None:
    assert 'wrote' in run('plot', 'rmst-grid', store, '-o', tmp_path / 'grid.pdf', '--resamples', '20')
    assert (tmp_path / 'grid.pdf').read_bytes().startswith(b'%PDF')
    assert 'sup-sign-cycle' in run('plot', '--list')


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['compare', 'STORE', 'openpi', 'grot'], "did you mean 'groot'"),
        (['compare', 'STORE', 'openpi'], 'wanted two policies'),
        (['calibrate', 'STORE', '--method', 'permute'], "no method named 'permute'"),
        (['compare', 'STORE', 'openpi', 'human'], 'human is the reference'),
        (['plot', 'cdff', 'STORE'], "did you mean 'cdf'"),
        (['plot', 'cdf'], 'cdf wants a store, or a file or folder of episodes; found nothing'),
        (['plot', 'cdf', 'STORE', '-o', 'fig.bmp'], 'wanted a figure file'),
        (['calibrate', 'STORE', '--setup', 'same'], 'no null setup'),
        (['tables', 'labels', 'STORE', '--label', 'camera'], 'camera_side'),
        (['score', 'STORE', '-w', 'policy=nobody'], 'no episode matches'),
        (['score', 'STORE', '--reference', 'humn'], "did you mean 'human'"),
        (['score', 'STORE', '--tau', '0'], 'tau_s is 0'),
    ],
)
def test_bad_arguments_are_one_clear_line(store: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(RobotrialsError, match=message):
        run(*(str(store) if a == 'STORE' else a for a in arguments))


def test_scalars_have_names_for_people(episodes: tuple[Episode, ...]) -> None:
    assert scalar_name('chance_30s') == 'share done within 30 s'
    assert scalar_name('chance_tau') == 'share done within tau'
    assert scalar_name('quantile_0.25_s') == 'quantile 0.25 (s)'
    assert cohorts(episodes)['human'].is_reference


def test_wide_tables_keep_their_digits() -> None:
    from robotrials.show.table import table

    wide = table('t', [f'column {k}' for k in range(14)], [[123456.789] * 14])
    text = render(wide, width=80)
    assert text.count('123456.789') == 14 + text.count('column 0') - 1  # the first column names the rows of every part


def test_conditions_that_are_pooled_are_named(tmp_path: Path, episodes: tuple[Episode, ...]) -> None:
    chosen = [e.replace(condition='dark', episode_id='') for e in episodes if e.policy == 'act'][:20]
    Store.create(tmp_path / 's').append([*chosen, *(e.replace(condition='dim', episode_id='') for e in chosen)])
    arguments = ['score', str(tmp_path / 's'), '--resamples', '10']
    mixed, one, based = (
        CliRunner().invoke(app, [*arguments, *more]) for more in ([], ['-w', 'condition=dim'], ['--baseline', 'dim'])
    )
    assert '2 conditions are pooled, because none of them is the baseline (nominal)' in ' '.join(mixed.stdout.split())
    assert 'pooled,' not in one.stdout
    assert 'pooled,' not in based.stdout
