"""One contrast: which cells, how long, which units, and the claims that follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.verdict.analysis.pair import rollouts

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.operation import Unit
from robotrials.record import Episode, Event, EventKind, EventSource, Outcome
from robotrials.show.phrase import decision_sentence
from robotrials.stats.dominance import PairVerdict as Overall
from robotrials.verdict.analysis import Absent, analyse, present
from robotrials.verdict.analysis.arm import Side, two_sides
from robotrials.verdict.analysis.contrast import Cells, Contrast, contrast
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, EndpointName

PLAN = AnalysisPlan()


def between(
    a: Sequence[Episode], b: Sequence[Episode], endpoint: EndpointName = EndpointName.SUCCESS, **plan: Any
) -> Contrast:
    chosen = AnalysisPlan(**plan)
    return contrast(*two_sides(a, b, chosen, names=('a', 'b')), endpoint=endpoint, plan=chosen)


def run(policy: str, seed: int | None, lasts_s: float | None, *, done: bool = True, **more: Any) -> Episode:
    fields: dict[str, Any] = {'task': 'pick', 'time_cap_s': 60.0} | more
    outcome = Outcome.SUCCESS if done else Outcome.TIMEOUT
    return Episode(policy=policy, seed=seed, outcome=outcome, duration_s=lasts_s, **fields)


# --- how long


def under_cap(rng: np.random.Generator, policy: str, cap_s: float, n: int = 40) -> list[Episode]:
    """One law of times, whatever the cap."""
    times = [float(rng.exponential(60.0)) for _ in range(n)]
    return [run(policy, k, min(t, cap_s), done=t < cap_s, time_cap_s=cap_s) for k, t in enumerate(times)]


def test_success_is_counted_within_the_time_that_both_had() -> None:
    rng = np.random.default_rng(0)
    short, long = under_cap(rng, 'short', 60.0), under_cap(rng, 'long', 120.0)
    found = between(long, short)
    within = np.mean([e.is_success and e.known_duration_s <= 60 for e in long])
    assert found.values[0] == pytest.approx(within)
    assert found.cells[0].until_s == 60.0
    assert 'different time caps' in found.note
    whole = np.mean([e.is_success for e in long])
    assert whole > within + 0.1


def test_one_law_under_two_caps_names_nobody_in_success() -> None:
    named = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        found = present(analyse([*under_cap(rng, 'a', 60.0), *under_cap(rng, 'b', 120.0)], resamples=20).pairs)
        named += any(d.is_different for d in found.decisions)
    assert named <= 7  # as run, b would win in most


def test_success_under_unequal_caps_needs_to_know_when() -> None:
    a = [run('a', k, None, time_cap_s=60.0) for k in range(8)]
    b = [run('b', k, None, time_cap_s=120.0) for k in range(8)]
    with pytest.raises(NotEstimable, match='whether it succeeded within 60 s is not known'):
        between(a, b)


def test_every_cell_has_its_own_tau_and_a_pair_asks_nobody_else() -> None:
    rng = np.random.default_rng(1)
    found = present(
        analyse(
            [*under_cap(rng, 'a', 120.0), *under_cap(rng, 'b', 120.0), *under_cap(rng, 'c', 30.0)], resamples=20
        ).pairs
    )
    time = present(found.endpoints[EndpointName.TIME])
    assert set(time.pair('a', 'b').contrast.taus_s.values()) == {120.0}
    assert set(time.pair('a', 'c').contrast.taus_s.values()) == {30.0}


# --- which units


def test_twenty_of_twenty_matched_starts_are_a_claim() -> None:
    """All successful, each a little faster on its own start, while starts differ far more."""
    starts = np.random.default_rng(0).uniform(5, 50, 20)
    found = present(
        analyse([e for k, s in enumerate(starts) for e in (run('a', k, s), run('b', k, s + 0.5))], resamples=20).pairs
    )
    decided = found.decision('a', 'b')
    assert (decided.verdict, decided.winner, decided.claims_for_a) == (Overall.BETTER, 'a', ('time',))
    assert present(found.endpoints[EndpointName.TIME]).pair('a', 'b').contrast.estimate == 1.0


def test_a_constant_seed_column_is_not_a_start_state() -> None:
    rng = np.random.default_rng(2)
    a = [run('a', 7, float(t), episode_id=f'a{k}') for k, t in enumerate(rng.uniform(5, 10, 12))]
    b = [run('b', 7, float(t), episode_id=f'b{k}') for k, t in enumerate(rng.uniform(20, 30, 12))]
    found = between(a, b, EndpointName.TIME)
    assert (found.unit, found.n_units, found.n_matched) == ('episode', (12, 12), 0)
    assert found.p_value is not None
    assert found.p_value < 0.01
    repeats = [[e.replace(repeat=k) for k, e in enumerate(side)] for side in (a, b)]
    one = between(*repeats, endpoint=EndpointName.TIME)
    assert one.n_units == (1, 1)  # numbered repeats of one start are one unit
    assert one.withheld


def test_unmatched_starts_are_used_and_what_is_not_is_told() -> None:
    rng = np.random.default_rng(3)
    a = rollouts(rng, 'a', 0.9, n=20, strata=('block',))
    b = rollouts(rng, 'b', 0.5, n=20, strata=('block',), first_seed=10)
    found = between(a, b)
    assert (found.n_matched, found.n_units) == (10, (20, 20))
    assert not found.left_out
    rates = [np.mean([e.is_success for e in side]) for side in (a, b)]
    assert found.estimate == pytest.approx(rates[0] - rates[1])
    alone = between(a, b, pairing='paired')
    assert alone.n_units == (10, 10)
    assert {(out.name, out.n) for out in alone.left_out} == {('a', 10), ('b', 10)}


def test_the_same_contrast_from_the_other_side() -> None:
    rng = np.random.default_rng(4)
    a, b = rollouts(rng, 'a', 0.9, n=12), rollouts(rng, 'b', 0.6, n=12, median_s=20.0)
    for endpoint in (EndpointName.SUCCESS, EndpointName.TIME):
        one, other = between(a, b, endpoint), between(b, a, endpoint)
        turned = one.seen_from('b')
        assert turned.estimate == pytest.approx(2 * one.null - one.estimate)
        assert one.p_value == pytest.approx(other.p_value)
        assert turned.estimate == pytest.approx(other.estimate)
        assert turned.p_behind('b') == pytest.approx(one.p_behind('b'))
        assert one.p_behind('b') == pytest.approx(other.p_behind('a'))  # arm names went with the arms


# --- which cells


def test_only_shared_cells_are_compared_and_the_rest_is_named() -> None:
    rng = np.random.default_rng(5)
    a = [*rollouts(rng, 'a', 0.8, n=6), *rollouts(rng, 'a', 0.8, n=6, strata=('cup',))]
    found = between(a, rollouts(rng, 'b', 0.8, n=6))
    assert [c.name for c in found.cells] == ['block', 'spoon', 'towel']
    assert [(out.name, out.n) for out in found.left_out] == [('a', 6)]
    assert 'cup' in found.left_out[0].why
    with pytest.raises(InputError, match='no cell in common'):
        between(rollouts(rng, 'a', 0.8, n=3, strata=('x',)), rollouts(rng, 'b', 0.8, n=3, strata=('y',)))


def test_the_baseline_condition_is_compared_where_both_have_it() -> None:
    rng = np.random.default_rng(6)
    sides = [
        [*rollouts(rng, p, 0.8, n=6), *rollouts(rng, p, 0.2, n=6, condition='dim')] for p in ('a', 'b')
    ]  # fmt: skip
    found = between(*sides)
    assert [c.name for c in found.cells] == ['block', 'spoon', 'towel']
    assert {out.n for out in found.left_out} == {18}
    dim = [[e for e in side if e.condition == 'dim'] for side in sides]
    bright = [rollouts(rng, p, 0.8, n=6, condition='bright') for p in ('a', 'b')]
    both = between([*dim[0], *bright[0]], [*dim[1], *bright[1]])
    assert [c.name for c in both.cells][:2] == ['block, bright', 'block, dim']


def test_declared_cells_count_runs_that_were_never_made_as_failures() -> None:
    rng = np.random.default_rng(7)
    full = Side('a', {s: rollouts(rng, 'a', 1.0, n=10, strata=(s,)) for s in 'xy'}, Unit.START)
    never = {'y': rollouts(rng, 'b', 1.0, n=10, strata=('y',))}
    lazy = Side('b', {'x': rollouts(rng, 'b', 1.0, n=10, strata=('x',))}, Unit.START, missing=never)
    found = contrast(full, lazy, endpoint=EndpointName.SUCCESS, plan=PLAN, cells=Cells.DECLARED)
    assert found.values == (1.0, 0.5)
    assert found.ahead == 'a'
    shared = contrast(full, lazy.only('x'), endpoint=EndpointName.SUCCESS, plan=PLAN)
    assert shared.values == (1.0, 1.0)


# --- what is said


def test_fast_and_failing_against_slow_and_sure_is_a_trade_off() -> None:
    """hasty is first on 30 of 40 starts and never done on the others; careful succeeds on all."""
    rng = np.random.default_rng(8)
    hasty = [run('hasty', k, float(rng.uniform(4, 6)) if k < 30 else 60.0, done=k < 30) for k in range(40)]
    careful = [run('careful', k, float(rng.uniform(40, 55))) for k in range(40)]
    found = present(analyse([*hasty, *careful], resamples=20).pairs)
    decided = found.decision('careful', 'hasty')
    assert (decided.verdict, decided.winner) == (Overall.TRADE_OFF, None)
    assert (decided.claims_for_a, decided.claims_for_b) == (('success',), ('time',))
    said = decision_sentence(found, 'careful', 'hasty')
    assert said == 'A trade-off: careful succeeds more often, hasty is faster.'


def test_a_shown_reversal_depends_on_the_stratum() -> None:
    rng = np.random.default_rng(9)
    made = []
    for policy, means in (('a', (10.0, 30.0)), ('b', (30.0, 10.0))):
        for task, mean_s in zip(('x', 'y'), means, strict=True):
            made += [run(policy, k, mean_s + float(rng.uniform(-2, 2)), task=task) for k in range(20)]
    found = present(analyse(made, resamples=20).pairs)
    assert found.decision('a', 'b').verdict is Overall.DEPENDS


def test_items_are_raced_and_losing_them_is_a_claim_of_its_own() -> None:
    rng = np.random.default_rng(10)

    def episode(policy: str, seed: int, gap_s: float, drops: int) -> Episode:
        times = np.cumsum(rng.uniform(0.8, 1.2, 4) * gap_s).tolist()
        kinds = [EventKind.DROP_OUTSIDE if k < drops else EventKind.PLACEMENT for k in range(4)]
        events = tuple(Event(t_s=t, kind=k, source=EventSource.HOST) for t, k in zip(times, kinds, strict=True))
        outcome = Outcome.FAILURE if drops else Outcome.SUCCESS
        return Episode(
            policy=policy, task='bin', seed=seed, outcome=outcome, items=4, events=events, time_cap_s=100.0,
            duration_s=times[-1],
        )  # fmt: skip

    made = [e for k in range(20) for e in (episode('deft', k, 5.0, 0), episode('clumsy', k, 5.0, k % 2))]
    found = analyse(made, resamples=20)
    assert found.primary == (EndpointName.SUCCESS, EndpointName.TIME, EndpointName.LOST)
    pairs = present(found.pairs)
    time = present(pairs.endpoints[EndpointName.TIME]).pair('deft', 'clumsy')
    short = present(analyse(made, resamples=20, tau_s=6.0).pairs)  # the time of one item ends no race of four
    raced = present(short.endpoints[EndpointName.TIME]).pair('deft', 'clumsy')
    assert raced.contrast.estimate == time.contrast.estimate
    assert set(raced.contrast.taus_s.values()) == {6.0}
    lost = present(pairs.endpoints[EndpointName.LOST]).pair('deft', 'clumsy')
    assert time.contrast.n_items == 4
    assert lost.contrast.values == (0.0, 0.5)
    assert lost.difference == 0.5
    assert pairs.decision('deft', 'clumsy').winner == 'deft'


def test_lost_runs_are_not_taken_for_failures() -> None:
    """A run that watching lost before the end of the follow-up says so, and the assumption is named."""
    rng = np.random.default_rng(11)
    a = [run('a', None, float(t), episode_id=f'a{k}') for k, t in enumerate(rng.uniform(5, 15, 20))]
    b = [run('b', None, float(t), episode_id=f'b{k}') for k, t in enumerate(rng.uniform(25, 35, 20))]
    b[3] = b[3].replace(outcome=Outcome.TIMEOUT, duration_s=2.0)
    found = between(a, b, EndpointName.TIME)
    assert '1 runs were lost' in found.note
    assert not isinstance(found, Absent)
