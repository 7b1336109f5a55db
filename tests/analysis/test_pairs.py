"""Verdicts never overclaim."""

from __future__ import annotations

import numpy as np
import pytest

from trialist.analysis.pairs import AllPairs, compare_all, compare_timing
from trialist.episodes import Episode, Event, EventKind, Outcome
from trialist.errors import InputError
from trialist.testing import effect_pair, paper_like_cohort
from trialist.timing import (
    Cause,
    Cohort,
    Operations,
    Verdict,
    cohorts,
    failure_modes,
    label_sensitivity,
    macro_ks,
    operations_by_stratum,
    sensitivity_table,
)

INF = float('inf')


@pytest.fixture(scope='module')
def found() -> dict[str, Cohort]:
    return cohorts(paper_like_cohort(np.random.default_rng(1)))


def arm(times: np.ndarray) -> dict[str, Operations]:
    return {'s': Operations(times, np.ones(len(times), dtype=bool), np.arange(len(times)))}


def compare(a: dict[str, Operations], b: dict[str, Operations], **more: object) -> object:
    return compare_timing(a, b, rng=np.random.default_rng(0), n_resamples=600, **more)  # type: ignore[arg-type]


def test_a_clear_slowdown_is_better() -> None:
    first, second = effect_pair(np.random.default_rng(0), slowdown=2.0)
    result = compare_timing(
        operations_by_stratum(first), operations_by_stratum(second), rng=np.random.default_rng(0), n_resamples=600
    )
    assert result.verdict is Verdict.BETTER
    assert result.better == 'a'
    assert 'rmst_s' in result.favouring_a
    assert not result.favouring_b
    assert 'a is better than b' in result.sentence
    swapped = compare_timing(
        operations_by_stratum(second), operations_by_stratum(first), rng=np.random.default_rng(0), n_resamples=600
    )
    assert swapped.better == 'b'


def test_no_difference_is_unresolved() -> None:
    first, second = effect_pair(np.random.default_rng(3))
    result = compare_timing(
        operations_by_stratum(first), operations_by_stratum(second), rng=np.random.default_rng(0), n_resamples=600
    )
    assert result.verdict is Verdict.UNRESOLVED
    assert result.better is None
    assert result.n_for_power is not None
    assert result.needed is not None
    assert result.needed.interval is not None
    assert np.isinf(result.needed.interval.high), 'no pilot that fails to reject can promise a finite N'
    assert 'not told apart' in result.sentence


def test_crossing_curves_name_the_scalars_on_both_sides() -> None:
    """Fast but often failing against slow but sure: early chance favours one, RMST the other."""
    rng = np.random.default_rng(0)
    fast = np.where(rng.random(300) < 0.6, rng.exponential(10, 300), INF)
    sure = 40 + rng.exponential(20, 300)
    result = compare_timing(arm(fast), arm(sure), rng=rng, n_resamples=600)
    assert result.verdict is Verdict.CROSSING
    assert 'chance_30s' in result.favouring_a
    assert 'rmst_s' in result.favouring_b
    assert result.better is None


def test_scalars_that_only_lean_apart_do_not_make_a_crossing() -> None:
    """Different spreads around one mean: KS sees it, no scalar excludes zero, so the direction stays open."""
    rng = np.random.default_rng(4)
    narrow, wide = rng.normal(100, 4, 60), rng.normal(100, 14, 60)
    from trialist.timing import Scale

    result = compare_timing(arm(narrow), arm(wide), rng=rng, n_resamples=1500, scale=Scale(thresholds_s=(100.0,)))
    assert result.ks.p_value < 0.05
    assert result.verdict is Verdict.DIRECTION_UNRESOLVED
    assert not result.favouring_a
    assert not result.favouring_b


def test_a_reference_adds_its_scalars_and_none_takes_them_away(found: dict[str, Cohort]) -> None:
    with_reference = compare_timing(
        found['act'].cells,
        found['groot'].cells,
        rng=np.random.default_rng(0),
        reference=found['human'].cells,
        n_resamples=300,
    )
    without = compare_timing(found['act'].cells, found['groot'].cells, rng=np.random.default_rng(0), n_resamples=300)
    assert set(with_reference.advantages) - set(without.advantages) == {'hrt', 'auc_vs_reference'}


def test_matched_pairs_are_resampled_together() -> None:
    """The same scenes, one arm a quarter slower: scene noise cancels in paired intervals and not in others."""
    rng = np.random.default_rng(2)
    scene = rng.exponential(60, 40)
    arms = [
        {'s': Operations(scene * factor, np.ones(40, dtype=bool), np.arange(40), scenes=tuple(range(40)))}
        for factor in (1.0, 1.25)
    ]
    widths = {}
    for method in ('permutation', 'paired_swap'):
        result = compare_timing(
            arms[0], arms[1], rng=np.random.default_rng(0), reference=arms[0], n_resamples=800, method=method
        )
        found = result.advantages['rmst_s']
        assert found.percentile is not None
        assert found.bca is not None
        widths[method] = found.percentile.width, found.bca.width
    assert widths['paired_swap'][0] < 0.5 * widths['permutation'][0]
    assert widths['paired_swap'][1] < 0.5 * widths['permutation'][1]
    assert result.better == 'a'


def test_scenes_match_by_instance_when_seeds_differ() -> None:
    def made(policy: str, offset: int) -> list[Episode]:
        return [
            Episode(policy=policy, task='t', outcome=Outcome.SUCCESS, duration_s=5.0 + i, instance=i, seed=offset + i)
            for i in range(6)
        ]

    a, b = (operations_by_stratum(made(p, k)) for p, k in (('a', 0), ('b', 100)))
    assert macro_ks(a, b, n_resamples=9, rng=np.random.default_rng(0), method='paired_swap').n_episodes == (6, 6)


def test_letters_group_what_can_not_be_told_apart(found: dict[str, Cohort]) -> None:
    models = [c for c in found.values() if not c.is_reference]
    result = compare_all(models, rng=np.random.default_rng(0), reference=found['human'], n_resamples=999)
    assert set(result.letters['openpi']) & set(result.letters['groot'])
    assert not set(result.letters['smolvla']) & set(result.letters['openpi'])
    assert result.policies[-1] == 'smolvla'
    assert len(result.comparisons) == len(result.p_holm) == 6
    with pytest.raises(InputError, match='at least two'):
        compare_all(models[:1], rng=np.random.default_rng(0))


def test_alpha_must_be_a_probability() -> None:
    with pytest.raises(InputError, match='alpha'):
        compare(arm(np.ones(3)), arm(np.ones(3)), alpha=5)


def test_failure_modes_are_counts_of_the_record(found: dict[str, Cohort]) -> None:
    modes = failure_modes(found['smolvla'])
    episodes = found['smolvla'].valid
    assert modes.operations_by_cause[Cause.DROP_OUTSIDE] == sum(e.items_lost or 0 for e in episodes)
    assert modes.operations_by_cause[Cause.PLACEMENT] == sum(e.items_placed or 0 for e in episodes)
    assert sum(modes.operations_by_cause.values()) == modes.n_operations
    assert sum(modes.episodes_by_outcome.values()) == modes.n_episodes == len(episodes)
    assert modes.ghost_share == pytest.approx(found['smolvla'].pooled.n_ghosts / modes.n_operations)


def test_label_sensitivity_is_items_placed_over_items(found: dict[str, Cohort]) -> None:
    """Table 7's completion is over items, not over episodes or operations."""
    result = label_sensitivity(found['act'], label='camera_side=tote_side', rng=np.random.default_rng(0))
    assert {s.value for s in result.shares} == {'same', 'opposite'}
    placed = sum(e.items_placed or 0 for e in found['act'].valid)
    assert sum(s.n_placed for s in result.shares) == placed
    assert sum(s.n_items for s in result.shares) == 10 * found['act'].n_episodes
    assert result.is_balanced
    assert result.difference_interval is not None
    assert result.difference == pytest.approx(result.shares[0].completion - result.shares[1].completion)


def test_an_unbalanced_label_is_flagged(found: dict[str, Cohort]) -> None:
    kept = [e for i, e in enumerate(found['act'].valid) if e.labels['camera_side'] == 'left' or i % 4 == 1]
    result = label_sensitivity(cohorts(kept)['act'], label='camera_side', rng=np.random.default_rng(0))
    assert not result.is_balanced


def test_an_unknown_label_suggests_the_near_one(found: dict[str, Cohort]) -> None:
    with pytest.raises(InputError, match="did you mean 'camera_side'"):
        sensitivity_table(found, label='camera_sid', rng=np.random.default_rng(0))


def test_many_verdicts_are_as_careful_as_their_letters(found: dict[str, Cohort]) -> None:
    """A pair that only its own p-value resolves is not resolved once all pairs are counted."""
    models = [c for c in found.values() if not c.is_reference]
    result = compare_all(models, rng=np.random.default_rng(0), n_resamples=299, alpha=0.02)
    for c, p in zip(result.comparisons, result.p_holm, strict=True):
        together = bool(set(result.letters[c.policy_a]) & set(result.letters[c.policy_b]))
        assert (c.verdict is Verdict.UNRESOLVED) == (p > 0.02) == together
        assert c.p_corrected == p
        assert f'{p:.3g} after Holm' in c.sentence
    strict = compare_all(models, rng=np.random.default_rng(0), n_resamples=99, alpha=0.02)
    assert any(c.ks.p_value <= 0.02 for c in strict.comparisons)
    assert all(c.verdict is Verdict.UNRESOLVED and c.better is None for c in strict.comparisons)


def test_a_crossing_is_told_in_the_words_of_the_table() -> None:
    rng = np.random.default_rng(0)
    fast = np.where(rng.random(300) < 0.6, rng.exponential(10, 300), INF)
    result = compare_timing(arm(fast), arm(40 + rng.exponential(20, 300)), rng=rng, n_resamples=600)
    assert 'a is ahead by F(30 s)' in result.sentence
    assert 'b by RMST' in result.sentence
    assert '_' not in result.sentence


def test_strata_that_the_reference_lacks_are_named(found: dict[str, Cohort]) -> None:
    partial = {s: c for s, c in found['human'].cells.items() if s != 'towels'}
    a, b = found['act'].cells, found['groot'].cells
    result = compare_timing(a, b, rng=np.random.default_rng(0), reference=partial, n_resamples=50)
    assert result.without_reference == ('towels',)
    assert 'hrt' in result.advantages


def test_a_safety_stop_counts_the_same_everywhere() -> None:
    """An event makes it one, whatever the outcome is called; drops are counted by operation and by episode."""
    stop = Event(9.0, EventKind.SAFETY_STOP)
    drops = (Event(1.0, EventKind.DROP_OUTSIDE), Event(2.0, EventKind.DROP_OUTSIDE), Event(3.0, EventKind.PLACEMENT))
    made = [
        Episode(policy='p', task='t', outcome='failure', duration_s=9.0, events=(stop,), items=2, seed=0),  # type: ignore[arg-type]
        Episode(policy='p', task='t', outcome='timeout', duration_s=9.0, events=drops, items=4, seed=1),  # type: ignore[arg-type]
    ]
    cohort = cohorts(made)['p']
    modes = failure_modes(cohort)
    assert modes.n_safety_stops == cohort.n_safety_stops == 1
    assert modes.safety_stop_rate == 0.5
    assert modes.dropping_rate == 0.5
    assert modes.operation_rate(Cause.DROP_OUTSIDE) == 2 / 5
    assert modes.operation_rate(Cause.SAFETY_STOP) == modes.operation_rate(Cause.TAIL) == 1 / 5


def test_fewer_than_five_episodes_a_cell_promise_no_needed_number() -> None:
    def cells(count: int, time_s: float) -> dict[str, Operations]:
        return {stratum: arm(np.full(count, time_s))['s'] for stratum in ('cup', 'towel')}

    for count, is_planned in ((1, False), (2, False), (4, False), (5, True)):
        result = compare(cells(count, 2.0), cells(count, 9.0))
        assert (result.needed is not None) is is_planned  # type: ignore[attr-defined]


def test_what_is_planned_and_the_threads_change_no_other_number(found: dict[str, Cohort]) -> None:
    models = [c for n, c in found.items() if n != 'human']

    def compared(planned: str, threads: int) -> AllPairs:
        return compare_all(
            models, rng=np.random.default_rng(0), n_resamples=99, planned=planned, threads=threads, alpha=0.02
        )

    every, none = compared('all', 1), compared('none', 3)
    assert all(c.needed is not None for c in every.comparisons)
    assert all(c.needed is None for c in none.comparisons)
    assert every.p_holm == none.p_holm
    some = compare_all(models, rng=np.random.default_rng(0), n_resamples=999, planned='unresolved')
    whole = compare_all(models, rng=np.random.default_rng(0), n_resamples=999)
    unresolved = [c.verdict is Verdict.UNRESOLVED for c in some.comparisons]
    assert any(unresolved)
    assert not all(unresolved)
    for is_open, one, other in zip(unresolved, some.comparisons, whole.comparisons, strict=True):
        assert one.advantages == other.advantages
        assert one.needed == (other.needed if is_open else None)
