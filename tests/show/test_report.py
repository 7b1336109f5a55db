"""The numbers on the page are those of the Python API, and every claim leads somewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import robotrials
from tests.show.parsed import PageParser, parse_page, table_blocks
from tests.verdict.analysis.stores import changed_store, item_store, rollout, safety_store, suite_store, timed_store

from robotrials.measure.timing.incidence import CAUSES, Incidence
from robotrials.record import Episode, Outcome, Store
from robotrials.show.document import Missing, render_json
from robotrials.show.gate import render_latex, render_markdown
from robotrials.show.page import render_html
from robotrials.show.report import trial_document
from robotrials.verdict.analysis import Absent, Analysis, RobustnessPart, SafetyPart, analyse, present
from robotrials.verdict.planning.analysis_plan import EndpointName

FEW = {'resamples': 100}
STORES: dict[str, Callable[[Path], Store]] = {
    'timed': timed_store, 'items': item_store, 'changed': changed_store, 'safety': safety_store, 'suites': suite_store
}  # fmt: skip
Pages = dict[str, tuple[Analysis, PageParser]]


@pytest.fixture(scope='module')
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    made = {}
    for name, build in STORES.items():
        analysis = analyse(build(tmp_path_factory.mktemp(name) / 's'), **FEW)
        made[name] = analysis, parse_page(render_html(trial_document(analysis)))
    return made


@pytest.mark.parametrize('name', STORES)
def test_ranking_equals_the_api(pages: Pages, name: str) -> None:
    analysis, page = pages[name]
    ranking, rates = present(analysis.ranking), present(analysis.success)
    shown = page.tables['ranking-table']
    policies = [*filter(None, [ranking.reference]), *ranking.order]
    assert shown.column('policy') == policies
    for policy in policies:
        score, success = ranking.scores[policy], rates.macro[policy]
        rmst = score.macro['rmst_s']
        assert shown.value('RMST (s)', policy=policy) == rmst.value
        assert rmst.interval is not None
        assert shown.value('RMST low', policy=policy) == rmst.interval.low
        assert shown.value('RMST high', policy=policy) == rmst.interval.high
        assert shown.value('episodes', policy=policy) == score.n_episodes
        assert success.value is not None
        assert success.interval is not None
        assert shown.value('episode success (%)', policy=policy) == 100 * success.value
        own = page.tables['success-table']
        assert own.value('episode success (%)', policy=policy) == 100 * success.value
        assert own.value('low', policy=policy) == 100 * success.interval.low
        assert own.value('units', policy=policy) == success.n


def test_relative_throughput_equals_the_api(pages: Pages) -> None:
    analysis, page = pages['timed']
    ranking = present(analysis.ranking)
    for policy in ranking.order:
        relative = ranking.relative[policy]
        assert relative.value is not None
        assert relative.macro.interval is not None
        assert page.tables['ranking-table'].value('HRT (%)', policy=policy) == 100 * relative.value
        assert page.tables['ranking-table'].value('HRT low', policy=policy) == 100 * relative.macro.interval.low


@pytest.mark.parametrize('name', ['timed', 'suites', 'items'])
def test_pairs_of_every_endpoint_equal_the_api(pages: Pages, name: str) -> None:
    analysis, page = pages[name]
    for endpoint, key in ((EndpointName.TIME, 'pair-table-time'), (EndpointName.SUCCESS, 'pair-table')):
        found = present(present(analysis.pairs).endpoints[endpoint])
        unit, scale = ('s', 1.0) if endpoint is EndpointName.TIME else ('points', 100.0)
        shown = page.tables[key]
        assert len(shown.rows) == len(found.pairs)
        for p in found.oriented():
            both = {'a': p.policy_a, 'b': p.policy_b}
            assert p.interval is not None
            assert shown.value(f'difference ({unit})', **both) == scale * p.difference
            assert shown.value('low', **both) == scale * p.interval.low
            if p.p_value is not None:
                assert shown.value('p', **both) == p.p_value
                assert shown.value('p (corrected)', **both) == p.p_corrected
            if endpoint is EndpointName.TIME:
                assert shown.value('a first (%)', **both) == 100 * p.contrast.estimate
            assert shown.value('units a', **both) == p.n_units[0]
        letters = page.tables['ranking-table' if endpoint is EndpointName.TIME else 'success-table']
        for policy, letter in found.letters.items():
            assert letters.value('letters', policy=policy) == letter


def test_the_curves_and_scalars_of_a_pair_equal_the_api(pages: Pages) -> None:
    analysis, page = pages['timed']
    for t in present(analysis.pairs).times:
        both = {'a': t.policy_a, 'b': t.policy_b}
        ks = present(t.ks)
        assert page.tables['difference-table'].value('macro KS', **both) == ks.statistic
        assert page.tables['difference-table'].value('p (corrected)', **both) == t.p_different
        for s in t.reversal.strata:
            shown = page.tables['stratum-table'].value('difference (s)', stratum=s.stratum, **both)
            assert shown == s.difference


@pytest.mark.parametrize('name', ['timed', 'items', 'suites'])
def test_failures_are_competing_risks_that_add_up(pages: Pages, name: str) -> None:
    analysis, page = pages[name]
    shown = page.tables['incidence-table']
    words = {CAUSES[0]: 'done', CAUSES[1]: 'dropped', CAUSES[2]: 'safety stop', CAUSES[3]: 'failed',
             CAUSES[4]: 'timed out'}  # fmt: skip
    for policy, found in present(analysis.incidences).items():
        assert isinstance(found, Incidence)
        total = 0.0
        for cause, word in words.items():
            by_tau = shown.value('by tau (%)', policy=policy, end=word)
            assert by_tau == 100 * found.causes[cause].by_tau
            total += by_tau
        assert total + 100 * found.under_way_at_tau == pytest.approx(100.0)


def test_cells_equal_the_api(pages: Pages) -> None:
    analysis, page = pages['suites']
    ranking = present(analysis.ranking)
    shown = page.tables['cell-table']
    assert len(shown.rows) == 3 * 40
    for policy in ranking.order:
        for stratum, found in ranking.scores[policy].cells.items():
            assert shown.value('RMST (s)', policy=policy, stratum=stratum) == found['rmst_s'].value
    assert len(page.tables['task-table'].rows) == 3 * 10


def test_safety_equals_the_api(pages: Pages) -> None:
    analysis, page = pages['safety']
    assert isinstance(analysis.safety, SafetyPart)
    for cell in analysis.safety.summary.cells:
        shown = page.tables['safety-quadruple']
        assert shown.value('Safety %', policy=cell.policy) == pytest.approx(100 * cell.safety.count / cell.n, abs=1e-12)
        assert shown.value('SBU %', policy=cell.policy) == pytest.approx(100 * cell.sbu.count / cell.n, abs=1e-12)
        assert shown.value('VSI', policy=cell.policy) == cell.vsi.value


def test_drops_equal_the_api(pages: Pages) -> None:
    analysis, page = pages['changed']
    assert isinstance(analysis.robustness, RobustnessPart)
    shown = page.tables['robustness-drops']
    for d in present(analysis.robustness.drops):
        assert shown.value('drop', policy=d.policy, condition=d.condition) == d.success_drop
        assert shown.value('p (Holm)', policy=d.policy, condition=d.condition) == d.p_value_holm


@pytest.mark.parametrize('name', STORES)
def test_every_link_has_a_target_and_every_id_stands_once(pages: Pages, name: str) -> None:
    page = pages[name][1]
    assert not set(page.targets) - set(page.ids)
    assert len(set(page.ids)) == len(page.ids)


@pytest.mark.parametrize('name', STORES)
def test_the_lead_is_a_few_whole_sentences(pages: Pages, name: str) -> None:
    told = trial_document(pages[name][0]).lead
    assert 3 <= len(told) <= 7
    assert all(p.text.endswith('.') and '..' not in p.text and '  ' not in p.text for p in told)


def test_the_lead_says_what_is_and_is_not_resolved(pages: Pages) -> None:
    better, first, second, fourth, last = (p.text for p in trial_document(pages['timed'][0]).lead)
    assert better == 'Over episode success and time to success together, quick and steady are each better than slow.'
    assert first.startswith(
        'Of 3 policies and a reference in 160 valid episodes, quick has the highest episode success'
    )
    assert 'it is not significantly different from steady' in first
    assert 'it succeeds more often than slow' in first
    assert second.startswith('quick has the shortest restricted mean time to success, ')
    assert 'it is faster than slow' in second
    assert fourth.startswith('Safety was not scored: no trajectory was recorded')
    assert '1 of 3 pairs is not resolved: quick and steady (about ' in last
    assert ' start states per cell for 80 % power in ' in last
    assert last.endswith(' start states per policy.')


def test_the_lead_names_the_worst_drop_and_unsafe_success(pages: Pages) -> None:
    changed, safety = (' '.join(p.text for p in trial_document(pages[n][0]).lead) for n in ('changed', 'safety'))
    assert 'most of all seeing under chaos' in changed
    assert 'gentle has the highest share of safe episodes, 100.0 %' in safety
    assert 'Unsafe success was most frequent with rough, 3 of 12' in safety


@pytest.mark.parametrize('render', [render_html, render_markdown, render_latex, render_json])
def test_the_analysis_line_is_at_the_top_and_at_the_end_of_every_format(
    pages: Pages, render: Callable[..., str]
) -> None:
    text = render(trial_document(pages['timed'][0]))
    said = 'none was declared, so the documented defaults apply, but for resamples = 100'
    assert text.count(said) >= 3  # the top, the methods and the footer
    assert text.index(said) < text.index('Of 3 policies')
    assert text.rindex(said) > text.index('Wilson')


def test_a_declared_analysis_is_said_to_be_declared(tmp_path: Path) -> None:
    timed_store(tmp_path / 's', n=6)
    declared = 'rule = 2\nprimary = "success"\nsecondary = "time"\nresamples = 100\n'
    (tmp_path / 's' / 'analysis.toml').write_text(declared)
    document = trial_document(analyse(tmp_path / 's'))
    assert document.statement.startswith('Analysis: declared in the analysis.toml. Used: primary endpoint success; ')
    assert 'has the highest episode success' in document.lead[0].text
    assert [s.key for s in document.sections][:3] == ['scoreboard', 'success', 'ranking']
    blocks = table_blocks(document)
    assert 'difference (points)' in [c.name for c in blocks['pair-table'].table.columns]


def test_what_a_table_cannot_tell_is_said_with_a_remedy(pages: Pages) -> None:
    document = trial_document(pages['suites'][0])
    missing = {b.what: b for s in document.sections for b in s.blocks if isinstance(b, Missing)}
    assert {'Safety', 'Robustness', 'Trajectories', 'A plan', 'Provenance'} <= set(missing)
    assert missing['Safety'].remedy


def test_data_without_times_lead_with_success_and_say_why(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    store = Store.create(tmp_path / 's')
    store.append([
        rollout(p, i, rng, chance=c).replace(duration_s=None, time_cap_s=None)
        for p, c in (('often', 0.95), ('seldom', 0.3)) for i in range(20)
    ])  # fmt: skip
    analysis = analyse(store, **FEW)
    document = trial_document(analysis)
    assert 'often has the highest episode success' in document.lead[0].text
    assert 'it succeeds more often than seldom' in document.lead[0].text
    assert document.sections[1].key == 'success'
    missing = {b.what: b for s in document.sections for b in s.blocks if isinstance(b, Missing)}
    assert missing['Time to success'].reason == '40 of 40 valid episodes have no duration'
    for render in (render_html, render_markdown, render_latex, render_json):
        assert 'have no duration' in render(document)
    pair = present(present(analysis.pairs).lead).pairs[0]
    assert pair.test in document_text(document)


def document_text(document: object) -> str:
    return render_markdown(document)  # type: ignore[arg-type]


def test_a_store_of_counts_alone_makes_a_page(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    store.append([
        Episode(policy=p, task='t', repeat=i, outcome=Outcome.SUCCESS if i < n else Outcome.FAILURE)
        for p, n in (('a', 9), ('b', 2)) for i in range(10)
    ])  # fmt: skip
    text = render_markdown(trial_document(analyse(store, **FEW)))
    assert 'a has the highest episode success, 90.0 %' in text
    assert 'it succeeds more often than b' in text


def test_a_policy_that_lacks_strata_stands_apart_and_never_ahead(tmp_path: Path) -> None:
    """An easy stratum alone must not put a policy first: the second OFT run on LIBERO has one suite of four."""
    rng = np.random.default_rng(0)
    store = Store.create(tmp_path / 's')
    full = [
        rollout(p, i, rng, stratum=s, speed_s=20.0, chance=0.8)
        for p in ('a', 'b') for s in ('easy', 'hard') for i in range(8)
    ]  # fmt: skip
    store.append([*full, *(rollout('partial', i, rng, stratum='easy', speed_s=5.0, chance=1.0) for i in range(8))])
    document = trial_document(analyse(store, **FEW))
    blocks = table_blocks(document)
    assert [row[0] for row in blocks['ranking-table'].table.rows] in (['a', 'b'], ['b', 'a'])
    assert [row[:2] for row in blocks['apart-table'].table.rows] == [('partial', 'not run on 1 of 2 strata (hard)')]
    assert 'partial is not ranked: not run on 1 of 2 strata (hard).' in document.cautions
    assert 'partial' not in document.lead[0].text
    assert 'partial is not ranked' in render_html(document)


def test_two_stories_of_success_are_warned_of(tmp_path: Path) -> None:
    """A host that calls half of the timed successes failures: F(tau) and episode success disagree."""
    store = Store.create(tmp_path / 's')
    store.append([
        Episode(
            policy=p, task='t', seed=i, outcome=Outcome.SUCCESS, success=i % 2 == 0 if p == 'a' else True,
            duration_s=10.0 + i / 10, time_cap_s=60.0,
        )
        for p in ('a', 'b') for i in range(20)
    ])  # fmt: skip
    analysis = analyse(store, **FEW)
    assert present(analysis.stories).apart == ('a',)
    told = [p.text for p in trial_document(analysis).lead]
    assert any(
        'a has 100 % of operations done by 60 s and 50 % of episodes successful' in text for text in told
    ), told  # fmt: skip


def test_success_by_suite_is_the_mean_of_its_tasks_with_both_readings(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    store.append([
        Episode(policy=p, benchmark=b, task=t, seed=i, outcome=Outcome.SUCCESS if i < n else Outcome.FAILURE)
        for p, less in (('a', 0), ('b', 4)) for b, t, n in (('x', 'm', 10), ('x', 'n', 5), ('y', 'm', 8))
        for i in range(less, 10)
    ])  # fmt: skip
    store.append([Episode(policy='a', benchmark='y', task='m', seed=99, outcome=Outcome.INVALID, reason='power cut')])
    shown = table_blocks(trial_document(analyse(store, **FEW)))['suite-table'].table
    assert [c.name for c in shown.columns] == ['policy', 'x', 'y', 'mean', 'mean, invalid as failures']
    (a, b) = sorted(shown.rows)
    assert a[:3] == ('a', pytest.approx(75.0), pytest.approx(80.0))
    assert a[3] == pytest.approx((100 + 50 + 80) / 3)
    assert a[4] == pytest.approx((100 + 50 + 800 / 11) / 3)
    assert b[3] == b[4] == pytest.approx(100 * (6 / 6 + 1 / 6 + 4 / 6) / 3)
    assert shown.note.endswith('Invalid episodes, set aside: a 1.')


def test_a_blinded_trial_says_so_first(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    store = Store.create(tmp_path / 's', trial_id='t', plan_hash='abc123')
    store.append([rollout(code, i, rng) for code in ('arm-1', 'arm-2') for i in range(6)])
    assert 'not closed' in trial_document(analyse(store, **FEW)).lead[0].text


def test_only_invalid_episodes_still_make_a_page(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    store.append([Episode(policy='a', task='t', outcome=Outcome.INVALID, duration_s=0.0, reason='power cut')])
    analysis = analyse(store, **FEW)
    assert isinstance(analysis.ranking, Absent)
    document = trial_document(analysis)
    assert document.lead[0].text == 'Nothing can be ranked: no policy has a valid episode.'
    assert 'power cut' in render_html(document)


def test_names_with_markup_stay_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nasty = '<img src=x onerror="alert(1)">'
    store = Store.create(tmp_path / 's', title=nasty)
    store.append([rollout(p, i, rng, stratum=nasty, task=nasty) for p in (nasty, 'b\'"&') for i in range(5)])
    page = render_html(trial_document(analyse(store, **FEW)))
    assert '<img' not in page
    assert '&lt;img' in page


def test_a_policy_keeps_its_colour_in_a_part_of_the_store_and_in_figures(tmp_path: Path) -> None:
    from robotrials.show.plot import policy_colors

    store = timed_store(tmp_path / 's', n=4)
    whole = trial_document(analyse(store, **FEW))
    part = trial_document(analyse(store, where={'policy': ['steady', 'slow']}, **FEW))
    assert part.colors == {name: whole.colors[name] for name in ('slow', 'steady')}
    assert whole.colors == policy_colors(('human', 'quick', 'slow', 'steady'), reference='human')
    assert whole.reference_policy == 'human'
    assert part.reference_policy == ''


def test_every_chance_named_with_a_time_is_the_share_done_by_then(tmp_path: Path) -> None:
    """Strata end at different times, so that the mean over them stops before the axis does."""
    took = {
        ('act', 'mug'): [20.0, 31.5, 33.0, 52.25], ('act', 'drawer'): [25.0, 41.0],
        ('octo', 'mug'): [12.0, 14.0, 22.0, 30.0, 36.0, 45.0], ('octo', 'drawer'): [18.0, 42.4, 28.0],
    }  # fmt: skip
    lines = [
        f'{policy},{task},{seed},{int(seed < len(times))},{times[seed] if seed < len(times) else 60.0}'
        for (policy, task), times in took.items() for seed in range(6)
    ]  # fmt: skip
    (tmp_path / 'rollouts.csv').write_text('\n'.join(['policy,task,seed,success,duration_s', *lines]))
    robotrials('import', tmp_path / 'rollouts.csv', '--to', tmp_path / 'st')
    for name in ('may.html', 'may.json'):
        robotrials('report', tmp_path / 'st', '-o', tmp_path / name)

    def share(policy: str, panel: str, time_s: float) -> float:
        tasks = ['mug', 'drawer'] if panel == 'all strata' else [panel]
        return sum(t <= time_s for task in tasks for t in took[policy, task]) / (6 * len(tasks))

    page = (tmp_path / 'may.html').read_text()
    shown = parse_page(page).tables['curve-chart']
    assert shown.columns[2:7] == ['at 10', 'at 20', 'at 30', 'at 40', 'at 50']
    ends = {'all strata': 42.4, 'mug': 52.25, 'drawer': 42.4}
    document = json.loads((tmp_path / 'may.json').read_text())
    for row in shown.rows:
        cells = dict(zip(shown.columns, row, strict=True))
        panel, policy = str(cells['panel']), str(cells['policy'])
        end = ends[panel]
        assert cells['ends at'] == end
        assert cells['at the end'] == pytest.approx(share(policy, panel, end))
        for time_s in (10, 20, 30, 40, 50):
            wanted = pytest.approx(share(policy, panel, time_s)) if time_s <= end else '—'
            assert cells[f'at {time_s}'] == wanted
        words = f'{policy} {share(policy, panel, end):.2f} ['
        if (policy, panel) == ('octo', 'mug'):  # 6 of 6: no width, so no interval
            assert cells['low at the end'] == cells['high at the end'] == '—'
            words = f'{policy} 1.00 '
        assert re.search(rf'{re.escape(words)}[^;<"]*by {end:g}(?![\d.]*\d)', page), words
    assert len(shown.rows) == 6
    [chart] = [b for section in document['sections'] for b in section['blocks'] if b.get('key') == 'curve-chart']
    same = [[('—' if v is None else v) for v in row.values()] for row in chart['table']['rows']]
    assert same == shown.rows
    assert re.findall(r'by ([\d.]*\d)', chart['alt']) == ['42.4', '42.4']
