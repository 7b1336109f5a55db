"""Before and after: known changes are found, chance is not, and the numbers are those of the rooms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.verdict.analysis.pair import plain_store, rollouts, store_of
from tests.verdict.analysis.test_gate import safety_store

from robotrials.errors import InputError, UnknownName
from robotrials.measure.timing import cohorts, rmst, success_curve
from robotrials.record import Store
from robotrials.show.change import change_document, change_lead, change_table, change_tables, stratum_change_table
from robotrials.show.document import TableBlock, render_json
from robotrials.show.gate import render_latex, render_markdown
from robotrials.show.page import render_html
from robotrials.show.table import render
from robotrials.stats import holm
from robotrials.verdict.analysis.arm import two_sides
from robotrials.verdict.analysis.change import StoreChange, compare_stores
from robotrials.verdict.planning.analysis_plan import AnalysisPlan


@pytest.fixture(scope='module')
def before(tmp_path_factory: pytest.TempPathFactory) -> Store:
    rng = np.random.default_rng(1)
    path = tmp_path_factory.mktemp('change') / 'before'
    return store_of(
        path, rollouts(rng, 'pi', 0.9, n=40), rollouts(rng, 'act', 0.6, n=40), rollouts(rng, 'old', 0.5, n=3)
    )


@pytest.fixture(scope='module')
def change(before: Store, tmp_path_factory: pytest.TempPathFactory) -> StoreChange:
    """`pi` fails more often than before, `act` is as it was, `old` is gone and `fresh` is new."""
    rng = np.random.default_rng(2)
    after = store_of(
        tmp_path_factory.mktemp('change') / 'after',
        rollouts(rng, 'pi', 0.5, n=40), rollouts(rng, 'act', 0.6, n=40), rollouts(rng, 'fresh', 0.5, n=3),
        rollouts(rng, 'act', 0.6, n=3, condition='dim'),
    )  # fmt: skip
    return compare_stores(before, after)


def test_what_got_worse_is_found_and_what_did_not_change_is_not(change: StoreChange) -> None:
    assert {(s.policy, s.metric) for s in change.resolved} == {
        ('pi', 'success'), ('pi', 'faster')
    }  # fmt: skip
    assert not any(s.is_improvement for s in change.resolved)


def test_values_are_means_over_cells(change: StoreChange, before: Store) -> None:
    found = {(s.policy, s.metric): s for s in change.means}
    cells = cohorts(before.episodes())['pi'].cells.values()
    means = [rmst(success_curve(c.durations_s, c.observed), 60.0) for c in cells]
    rates = [np.mean([e.outcome == 'success' for e in before.episodes(where={'policy': 'pi', 'stratum': s})])
             for s in ('block', 'spoon', 'towel')]  # fmt: skip
    assert found['pi', 'success'].before == pytest.approx(np.mean(rates))
    assert found['pi', 'rmst_s'].before == pytest.approx(np.mean(means))
    assert found['pi', 'rmst_s'].p_value is None  # the size of `faster`, which is what is tested
    for shift in change.means:
        assert shift.difference == pytest.approx((shift.after or 0) - (shift.before or 0))
        assert shift.interval is not None
        assert shift.interval.contains(shift.difference or 0.0)


def test_cells_are_corrected_over_all_policies_cells_and_metrics(change: StoreChange) -> None:
    tested = [s for s in change.cells if s.p_value is not None]
    assert len(tested) == 2 * 3 * 2
    assert [s.p_holm for s in tested] == pytest.approx(list(holm([float(s.p_value or 0) for s in tested])))


def test_what_appeared_and_disappeared_is_named(change: StoreChange) -> None:
    assert change.appeared.policies == ('fresh',)
    assert change.disappeared.policies == ('old',)
    assert change.appeared.conditions == ('dim',)
    assert change.disappeared.conditions == ()
    act = next(p for p in change.policies if p.policy == 'act')
    assert [(out.name, out.why, out.n) for out in act.left_out] == [
        ('act after', 'run under another condition than nominal', 9)
    ]
    assert act.cell_names == ('block', 'spoon', 'towel')


def test_a_renamed_policy_is_compared_by_the_mapping(before: Store, tmp_path: Path) -> None:
    after = plain_store(tmp_path / 'after', 0.9, seed=3, policy='pi-2')
    with pytest.raises(InputError, match='no policy is in both'):
        compare_stores(before, after)
    found = compare_stores(before, after, names={'pi': 'pi-2'})
    assert (found.policies[0].policy_before, found.policies[0].policy) == ('pi', 'pi-2')
    with pytest.raises(UnknownName, match='pj'):
        compare_stores(before, after, names={'pj': 'pi-2'})


def test_equal_stores_show_no_change_and_pairs_are_used(before: Store, tmp_path: Path) -> None:
    after = plain_store(tmp_path / 'after', 0.9, seed=4, n=40)
    found = compare_stores(before, after)
    assert found.policies[0].design == 'paired by start state'
    assert not found.resolved
    text = ' '.join(p.text for p in change_lead(found))
    assert 'nothing changed beyond chance' in text
    assert 'Unresolved is not unchanged' in text


def test_chance_is_called_a_change_in_at_most_about_alpha() -> None:
    """Forty equal pairs of stores of two metrics: Holm keeps any false claim at 5 %, here at most 6 of 40."""
    from robotrials.verdict.analysis.change import (  # the parts without the files
        _holm,
        _Scope,
        _success_shift,
        _timing_shifts,
    )

    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(40):
        plan = AnalysisPlan()
        arms = rollouts(rng, 'a', 0.7, n=10), rollouts(rng, 'a', 0.7, n=10, first_seed=500)
        scope = _Scope('a', *two_sides(*arms, plan, names=('after', 'before')), plan)
        wrong += any(s.is_resolved(0.05) for s in _holm([_success_shift(scope), *_timing_shifts(scope)]))
    assert wrong <= 6


def test_the_interval_and_the_test_of_a_row_are_about_the_same_null(change: StoreChange) -> None:
    """An interval without 0 has p < alpha, and one with it has not; single rows are not corrected."""
    timed = [s for s in (*change.means, *change.cells) if s.metric in ('success', 'faster')]
    assert len(timed) >= 8
    for shift in timed:
        assert shift.interval is not None
        assert shift.p_value is not None
        assert shift.interval.excludes(0.0) == (shift.p_value < change.alpha)


def test_the_declared_analysis_is_used_and_what_differs_is_marked(before: Store, tmp_path: Path) -> None:
    after = plain_store(tmp_path / 'after', 0.8, seed=6, n=40)
    assert 'none was declared' in compare_stores(before, after).statement
    (tmp_path / 'after' / 'analysis.toml').write_text(
        'alpha = 0.1\n[tau_s]\nblock = 30.0\nspoon = 40.0\ntowel = 50.0\n'
    )
    found = compare_stores(before, after)
    assert found.alpha == 0.1
    assert found.policies[0].taus_s == {'block': 30.0, 'spoon': 40.0, 'towel': 50.0}
    assert 'judged by rule 2. Used: tau 30 s to 50 s by cell' in found.statement
    assert 'NOT AS DECLARED: tau_s = 20' in compare_stores(before, after, tau_s=20.0).statement
    document = change_document(found)
    for form in (render_html, render_markdown, render_latex, render_json):
        assert form(document).count('declared in the analysis.toml') >= 2


def test_a_store_against_itself_is_refused(before: Store) -> None:
    with pytest.raises(InputError, match='the same store'):
        compare_stores(before, before)


def test_safety_changes_where_both_have_trajectories(tmp_path: Path) -> None:
    found = compare_stores(safety_store(tmp_path / 'a', 2), safety_store(tmp_path / 'b', 30))
    shifts = {s.metric: s for s in found.means}
    assert shifts['safety'].difference == pytest.approx(-28 / 40)
    assert shifts['sbu'].difference == pytest.approx(28 / 40)
    assert (shifts['vsi'].difference or 0) > 0
    assert {s.metric for s in found.resolved} == {'safety'}, 'unsafe successes and severity are told with it'


def test_without_trajectories_the_reason_is_given(change: StoreChange) -> None:
    assert all('no trajectory was recorded' in p.no_safety for p in change.policies)


def test_tables_show_the_values_in_points_and_seconds(change: StoreChange) -> None:
    shown = change_table(change)
    names = [c.name for c in shown.columns]
    for row, shift in zip(shown.rows, change.means, strict=True):
        scale = 1.0 if shift.metric == 'rmst_s' else 100.0
        assert row[names.index('change')] == pytest.approx(scale * (shift.difference or 0))
        assert row[names.index('p (Holm)')] == shift.p_holm
    assert len(stratum_change_table(change).rows) == len(change.cells)
    assert all(render(one) for one in change_tables(change))


def test_the_document_renders_in_every_form(change: StoreChange) -> None:
    document = change_document(change)
    for form in (render_html, render_markdown, render_latex, render_json):
        text = form(document)
        assert 'pi' in text
        assert 'fresh' in text
    keys = [b.key for s in document.sections for b in s.blocks if isinstance(b, TableBlock)]
    assert keys == ['change-table', 'strata-table', 'scope-table', 'presence-table']
    assert len(document.lead) <= 3
    assert 'worse: pi on episode success' in document.lead[0].text.replace('\xa0', ' ')
