"""Verdicts never overclaim."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.measure.timing import (
    Cause,
    Cohort,
    Operations,
    cohorts,
    failure_modes,
    label_sensitivity,
    macro_ks,
    operations_by_stratum,
)
from robotrials.measure.timing.incidence import check_label
from robotrials.record import Episode, Event, EventKind, Outcome
from robotrials.testing import effect_pair, paper_like_cohort
from robotrials.verdict.analysis import Absent, Analysis, TimeComparison, analyse, present
from robotrials.verdict.analysis.endpoint_pairs import compare_timing
from robotrials.verdict.planning.analysis_plan import EndpointName

INF = float('inf')


@pytest.fixture(scope='module')
def found() -> dict[str, Cohort]:
    return cohorts(paper_like_cohort(np.random.default_rng(1)))


@pytest.fixture(scope='module')
def analysis() -> Analysis:
    return analyse(paper_like_cohort(np.random.default_rng(1)), resamples=299)


def arm(times: np.ndarray) -> dict[str, Operations]:
    return {'s': Operations(times, np.ones(len(times), dtype=bool), np.arange(len(times)))}


def compare(a: dict[str, Operations], b: dict[str, Operations], **more: Any) -> TimeComparison:
    return compare_timing(a, b, **{'rng': np.random.default_rng(0), 'n_resamples': 600, **more})


def test_a_clear_slowdown_shows_in_the_mean() -> None:
    first, second = (operations_by_stratum(e) for e in effect_pair(np.random.default_rng(0), slowdown=2.0))
    result = compare(first, second)
    assert 'rmst_s' in result.favouring_a
    assert not result.favouring_b
    assert 'rmst_s' in compare(second, first).favouring_b


def test_crossing_curves_name_the_scalars_on_both_sides() -> None:
    """Fast but often failing against slow but sure: early chance favours one, RMST the other."""
    rng = np.random.default_rng(0)
    fast = np.where(rng.random(300) < 0.6, rng.exponential(10, 300), INF)
    result = compare(arm(fast), arm(40 + rng.exponential(20, 300)), tau_s=120.0)
    assert 'chance_30s' in result.favouring_a
    assert 'chance_tau' in result.favouring_b
    ahead, behind = result.crossing_text
    assert 'share done within 30 s' in ahead
    assert 'share done within tau' in behind


def test_a_difference_in_shape_favours_nobody() -> None:
    """Different spreads around one mean: KS sees it, no scalar excludes zero."""
    rng = np.random.default_rng(4)
    narrow, wide = rng.normal(100, 4, 60), rng.normal(100, 14, 60)
    result = compare(arm(narrow), arm(wide), n_resamples=1500, thresholds_s=(100.0,))
    assert not isinstance(result.ks, Absent)
    assert result.ks.p_value < 0.05
    assert not result.favouring_a
    assert not result.favouring_b


def test_matched_pairs_are_left_out_together() -> None:
    """The same scenes, one arm a quarter slower: scene noise cancels in paired intervals and not in others."""
    scene = np.random.default_rng(2).exponential(60, 40)
    arms = [
        {'s': Operations(scene * factor, np.ones(40, dtype=bool), np.arange(40), units=tuple(range(40)))}
        for factor in (1.0, 1.25)
    ]
    results = {paired: compare(*arms, tau_s=600.0, paired=paired) for paired in (False, True)}
    assert results[True].better.variance < 0.25 * results[False].better.variance
    widths = {paired: r.better.interval.width for paired, r in results.items() if r.better.interval is not None}
    assert widths[True] < widths[False]


def test_scenes_match_by_instance_when_seeds_differ() -> None:
    def made(policy: str, offset: int) -> list[Episode]:
        return [
            Episode(policy=policy, task='t', outcome=Outcome.SUCCESS, duration_s=5.0 + i, instance=i, seed=offset + i)
            for i in range(6)
        ]

    a, b = (operations_by_stratum(made(p, k)) for p, k in (('a', 0), ('b', 100)))
    assert macro_ks(a, b, n_resamples=9, rng=np.random.default_rng(0), method='paired_swap').n_episodes == (6, 6)


def test_letters_group_what_is_not_significantly_different(analysis: Analysis) -> None:
    result = present(present(analysis.pairs).endpoints[EndpointName.TIME])
    assert set(result.letters['openpi']) & set(result.letters['groot'])
    assert not set(result.letters['smolvla']) & set(result.letters['openpi'])
    assert result.policies[-1] == 'smolvla'
    assert len(result.pairs) == 6


def test_many_verdicts_are_as_careful_as_their_letters(analysis: Analysis) -> None:
    """A pair that only its own p-value resolves is not resolved once all pairs are counted."""
    compared = present(analysis.pairs)
    for endpoint in compared.endpoints.values():
        result = present(endpoint)
        for pair in result.pairs:
            assert pair.p_value is not None
            assert pair.p_corrected is not None
            assert pair.p_corrected >= pair.p_value
            together = bool(set(result.letters[pair.policy_a]) & set(result.letters[pair.policy_b]))
            assert (pair.p_corrected > result.alpha) == together
            assert (pair.ahead is None) == together


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


def test_two_labels_are_crossed(found: dict[str, Cohort]) -> None:
    """PhAIL's Table 7: every combination of where the camera and the tote stand."""
    result = label_sensitivity(found['act'], label='camera_side*tote_side', rng=np.random.default_rng(0))
    sides = {e.labels['camera_side'] for e in found['act'].valid}, {e.labels['tote_side'] for e in found['act'].valid}
    assert {s.value for s in result.shares} == {f'{c} x {t}' for c in sides[0] for t in sides[1]}
    assert sum(s.n_items for s in result.shares) == 10 * found['act'].n_episodes


def test_a_share_that_never_varies_has_no_interval() -> None:
    made = [
        Episode(policy='a', task='t', seed=k, outcome=Outcome.SUCCESS, duration_s=1.0, labels={'side': 'l'})
        for k in range(9)
    ]
    (share,) = label_sensitivity(cohorts(made)['a'], label='side', rng=np.random.default_rng(0)).shares
    assert (share.completion, share.interval) == (1.0, None)


def test_an_unbalanced_label_is_flagged(found: dict[str, Cohort]) -> None:
    kept = [e for i, e in enumerate(found['act'].valid) if e.labels['camera_side'] == 'left' or i % 4 == 1]
    result = label_sensitivity(cohorts(kept)['act'], label='camera_side', rng=np.random.default_rng(0))
    assert not result.is_balanced


def test_an_unknown_label_suggests_the_near_one(found: dict[str, Cohort]) -> None:
    with pytest.raises(InputError, match="did you mean 'camera_side'"):
        check_label(found, 'camera_sid')


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


def test_too_few_units_promise_no_needed_number() -> None:
    for count, is_planned in ((1, False), (2, False), (30, True)):
        made = [
            Episode(policy=p, task='t', seed=k, outcome=Outcome.SUCCESS, duration_s=s, time_cap_s=20.0)
            for p, s in (('a', 2.0), ('b', 9.0)) for k in range(count)
        ]  # fmt: skip
        time = present(present(analyse(made, resamples=20).pairs).endpoints[EndpointName.TIME])
        assert (time.pairs[0].needed is not None) is is_planned
