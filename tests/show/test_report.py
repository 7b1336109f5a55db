"""The numbers on the page are those of the Python API, and every claim leads somewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.analysis.stores import changed_store, item_store, rollout, safety_store, suite_store, timed_store
from tests.show.parsed import PageParser, parse_page

from trialist.analysis import Absent, Ranking, ReportOptions, RobustnessPart, SafetyPart, TrialReport, build_report
from trialist.analysis.pairs import AllPairs
from trialist.episodes import Episode, Outcome, Store
from trialist.show.document import Missing
from trialist.show.page import render_html
from trialist.show.report import trial_document

FEW = ReportOptions(n_resamples=100)
STORES: dict[str, Callable[[Path], Store]] = {
    'timed': timed_store, 'items': item_store, 'changed': changed_store, 'safety': safety_store, 'suites': suite_store
}  # fmt: skip


@pytest.fixture(scope='module')
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[TrialReport, PageParser]]:
    made = {}
    for name, build in STORES.items():
        report = build_report(build(tmp_path_factory.mktemp(name) / 's'), FEW)
        made[name] = report, parse_page(render_html(trial_document(report)))
    return made


@pytest.mark.parametrize('name', STORES)
def test_ranking_equals_the_api(pages: dict[str, tuple[TrialReport, PageParser]], name: str) -> None:
    report, page = pages[name]
    assert isinstance(report.ranking, Ranking)
    shown = page.tables['ranking-table']
    assert shown.column('policy') == list(report.ranking.policies)
    for policy in report.ranking.policies:
        score, count = report.ranking.scores[policy], report.ranking.successes[policy, '']
        rmst = score.macro['rmst_s']
        assert shown.value('RMST (s)', policy=policy) == rmst.value
        assert rmst.percentile is not None
        assert shown.value('RMST low', policy=policy) == rmst.percentile.low
        assert shown.value('RMST high', policy=policy) == rmst.percentile.high
        assert shown.value('success (%)', policy=policy) == 100 * count.successes / count.n
        assert shown.value('success low', policy=policy) == 100 * count.interval.low
        assert shown.value('episodes', policy=policy) == score.n_episodes


def test_relative_throughput_equals_the_api(pages: dict[str, tuple[TrialReport, PageParser]]) -> None:
    report, page = pages['timed']
    assert isinstance(report.ranking, Ranking)
    for policy in report.ranking.order:
        value = report.ranking.relative[policy].value
        assert value is not None
        assert page.tables['ranking-table'].value('HRT (%)', policy=policy) == 100 * value


def test_pairs_equal_the_api(pages: dict[str, tuple[TrialReport, PageParser]]) -> None:
    report, page = pages['timed']
    assert isinstance(report.ranking, Ranking)
    assert isinstance(report.ranking.pairs, AllPairs)
    shown = page.tables['pair-table']
    for c, p in zip(report.ranking.pairs.comparisons, report.ranking.pairs.p_holm, strict=True):
        both = {'a': c.policy_a, 'b': c.policy_b}
        assert shown.value('macro KS', **both) == c.ks.statistic
        assert shown.value('p', **both) == c.ks.p_value
        assert shown.value('p (Holm)', **both) == p
        assert shown.value('RMST advantage (s)', **both) == c.advantages['rmst_s'].value


def test_cells_equal_the_api(pages: dict[str, tuple[TrialReport, PageParser]]) -> None:
    report, page = pages['suites']
    assert isinstance(report.ranking, Ranking)
    shown = page.tables['cell-table']
    assert len(shown.rows) == 3 * 4
    for policy in report.ranking.policies:
        for stratum, found in report.ranking.scores[policy].cells.items():
            assert shown.value('RMST (s)', policy=policy, stratum=stratum) == found['rmst_s'].value
    assert len(page.tables['task-table'].rows) == 3 * 10


def test_safety_equals_the_api(pages: dict[str, tuple[TrialReport, PageParser]]) -> None:
    report, page = pages['safety']
    assert isinstance(report.safety, SafetyPart)
    for cell in report.safety.summary.cells:
        shown = page.tables['safety-quadruple']
        assert shown.value('Safety %', policy=cell.policy) == pytest.approx(100 * cell.safety.count / cell.n, abs=1e-12)
        assert shown.value('SBU %', policy=cell.policy) == pytest.approx(100 * cell.sbu.count / cell.n, abs=1e-12)
        assert shown.value('VSI', policy=cell.policy) == cell.vsi.value


def test_drops_equal_the_api(pages: dict[str, tuple[TrialReport, PageParser]]) -> None:
    report, page = pages['changed']
    assert isinstance(report.robustness, RobustnessPart)
    assert not isinstance(report.robustness.drops, Absent)
    shown = page.tables['robustness-drops']
    for d in report.robustness.drops:
        assert shown.value('drop', policy=d.policy, condition=d.condition) == d.success_drop
        assert shown.value('p (Holm)', policy=d.policy, condition=d.condition) == d.p_value_holm


@pytest.mark.parametrize('name', STORES)
def test_every_link_has_a_target_and_every_id_stands_once(
    pages: dict[str, tuple[TrialReport, PageParser]], name: str
) -> None:
    page = pages[name][1]
    assert not set(page.targets) - set(page.ids)
    assert len(set(page.ids)) == len(page.ids)


@pytest.mark.parametrize('name', STORES)
def test_the_lead_is_three_sentences(pages: dict[str, tuple[TrialReport, PageParser]], name: str) -> None:
    told = trial_document(pages[name][0]).lead
    assert len(told) == 3
    assert all(p.text.endswith('.') and '..' not in p.text and '  ' not in p.text for p in told)


def test_the_lead_says_what_is_and_is_not_resolved(pages: dict[str, tuple[TrialReport, PageParser]]) -> None:
    first, second, third = (p.text for p in trial_document(pages['timed'][0]).lead)
    assert first.startswith('Of 3 policies and a reference in 160 valid episodes, ')
    assert 'is better than slow' in first
    assert second.startswith('Safety was not scored: no trajectory was recorded')
    assert 'do not resolve 1 of 3 pairs' in third


def test_the_lead_names_the_worst_drop_and_unsafe_success(pages: dict[str, tuple[TrialReport, PageParser]]) -> None:
    assert 'most of all seeing under chaos' in trial_document(pages['changed'][0]).lead[1].text
    safety = trial_document(pages['safety'][0]).lead[1].text
    assert 'gentle was safe most often, in 12 of 12 episodes' in safety
    assert 'unsafe success was most frequent with rough, 3 of 12' in safety


def test_what_a_table_can_not_tell_is_said_with_a_remedy(pages: dict[str, tuple[TrialReport, PageParser]]) -> None:
    document = trial_document(pages['suites'][0])
    missing = {b.what: b for s in document.sections for b in s.blocks if isinstance(b, Missing)}
    assert {'Safety', 'Robustness', 'Trajectories', 'A plan', 'Provenance'} <= set(missing)
    assert missing['Safety'].remedy


def test_a_blinded_trial_says_so_first(tmp_path: Path) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    store = Store.create(tmp_path / 's', trial_id='t', plan_hash='abc123')
    store.append([rollout(code, i, rng) for code in ('arm-1', 'arm-2') for i in range(6)])
    assert 'not closed' in trial_document(build_report(store, FEW)).lead[0].text


def test_only_invalid_episodes_still_make_a_page(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 's')
    store.append([Episode(policy='a', task='t', outcome=Outcome.INVALID, duration_s=0.0, reason='power cut')])
    document = trial_document(build_report(store, FEW))
    assert document.lead[0].text == 'Nothing can be ranked: no policy has a valid episode.'
    assert 'power cut' in render_html(document)


def test_names_with_markup_stay_text(tmp_path: Path) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    nasty = '<img src=x onerror="alert(1)">'
    store = Store.create(tmp_path / 's', title=nasty)
    store.append([rollout(p, i, rng, stratum=nasty, task=nasty) for p in (nasty, 'b\'"&') for i in range(5)])
    page = render_html(trial_document(build_report(store, FEW)))
    assert '<img' not in page
    assert '&lt;img' in page


def test_a_policy_keeps_its_colour_in_a_part_of_the_store_and_in_figures(tmp_path: Path) -> None:
    from trialist.show.policy_look import policy_colors

    store = timed_store(tmp_path / 's', n=4)
    whole = trial_document(build_report(store, FEW))
    part = trial_document(build_report(store, FEW, where={'policy': ['steady', 'slow']}))
    assert part.colors == {name: whole.colors[name] for name in ('slow', 'steady')}
    assert whole.colors == policy_colors(('human', 'quick', 'slow', 'steady'), reference='human')
    assert whole.reference_policy == 'human'
    assert part.reference_policy == ''
