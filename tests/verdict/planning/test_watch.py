"""A trial watched while it runs: what it says, when it may stop, and how often it is wrong."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing import rmst, success_curve
from robotrials.record import Episode, Event
from robotrials.testing.scene import PAPER_LIKE, cell_episodes
from robotrials.verdict.planning import Decision, episode_promptness, promptness, sequential_comparison, watch_trial

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
PROFILES = {p.name: p for p in PAPER_LIKE}


def episode(policy: str, number: int, *, success: bool = True, duration_s: float = 20.0, **more: object) -> Episode:
    return Episode(
        policy=policy, task='pick', outcome='success' if success else 'failure', duration_s=duration_s, seed=number,
        started_at=START + dt.timedelta(minutes=number), time_cap_s=60.0, **more,
    )  # type: ignore[arg-type]  # fmt: skip


def trial(rates: dict[str, float], n: int, seed: int = 0, strata: tuple[str, ...] = ('',)) -> list[Episode]:
    rng = np.random.default_rng(seed)
    return [
        episode(p, i, success=bool(rng.random() < r), stratum=s)
        for i in range(n)
        for s in strata
        for p, r in rates.items()
    ]


@given(st.lists(st.floats(0, 200), max_size=5), st.floats(1, 150))
def test_promptness_is_one_less_the_restricted_mean_over_tau(times: list[float], tau: float) -> None:
    """Of an episode's items, with those that were never placed as ghosts."""
    durations = np.array([*times, *[np.inf] * (6 - len(times))])
    mean = rmst(success_curve(durations, np.ones(6, dtype=bool)), tau)
    assert promptness(times, tau_s=tau, items=6) == pytest.approx(1 - mean / tau, abs=1e-9)


def test_promptness_of_episodes() -> None:
    assert episode_promptness(episode('a', 0, duration_s=15.0), tau_s=60.0) == pytest.approx(0.75)
    assert episode_promptness(episode('a', 0, success=False), tau_s=60.0) == 0.0
    placed = (Event(10.0, 'placement'), Event(40.0, 'placement', count=2))
    several = episode('a', 0, success=False, duration_s=50.0, items=5, events=placed)
    assert episode_promptness(several, tau_s=50.0) == pytest.approx((0.8 + 0.2 + 0.2) / 5)
    late = replace(several, outcome='timeout')  # type: ignore[arg-type]
    assert episode_promptness(late, tau_s=50.0) == pytest.approx(0.24)
    with pytest.raises(NotEstimable, match='within the time cap'):
        episode_promptness(late, tau_s=60.0)
    with pytest.raises(InputError, match='timed'):
        episode_promptness(replace(several, items_placed=4), tau_s=50.0)
    with pytest.raises(InputError, match='at most 1'):
        promptness([1.0, 2.0], tau_s=5.0)


def test_clearly_different_policies_may_stop_and_the_better_one_is_named() -> None:
    found = watch_trial(trial({'good': 0.9, 'bad': 0.3}, 60))
    (pair,) = found.arms.pairs
    assert found.may_stop
    assert {pair.a: Decision.A_BETTER, pair.b: Decision.B_BETTER}['good'] == pair.decision
    assert pair.comparison.stopped_at is not None
    assert pair.comparison.stopped_at.n_a < 60
    assert found.n_episodes == {'bad': 60, 'good': 60}


def test_the_order_of_starting_counts_and_not_the_order_of_the_store() -> None:
    episodes = trial({'a': 0.6, 'b': 0.5}, 40)
    shuffled = [episodes[i] for i in np.random.default_rng(0).permutation(len(episodes))]
    looks = [watch_trial(e).arms.pairs[0].comparison.looks for e in (episodes, shuffled)]
    assert looks[0] == looks[1]
    undated = [replace(e, started_at=None) for e in episodes]
    assert not watch_trial(undated).is_ordered


def test_it_is_the_sequential_comparison_of_the_scores() -> None:
    episodes = trial({'a': 0.7, 'b': 0.5}, 30, strata=('x', 'y'))
    found = watch_trial(episodes).arms.pairs[0].comparison
    values = {
        p: (
            [float(e.outcome == 'success') for e in episodes if e.policy == p],
            [e.stratum for e in episodes if e.policy == p],
        )
        for p in 'ab'
    }
    direct = sequential_comparison(
        values['a'][0], values['b'][0], paired=False, strata=(values['a'][1], values['b'][1]), tasks=['x', 'y']
    )
    assert found.looks == direct.looks


def test_declared_strata_hold_back_a_decision_until_all_have_begun() -> None:
    episodes = trial({'a': 1.0, 'b': 0.0}, 40, strata=('x',))
    assert watch_trial(episodes).may_stop
    held = watch_trial(episodes, strata=['x', 'y'])
    assert not held.may_stop
    assert held.arms.pairs[0].comparison.looks == ()


def test_unequal_arrivals_wait_and_invalid_episodes_do_not_count() -> None:
    episodes = [e for e in trial({'a': 0.5, 'b': 0.5}, 20) if e.policy == 'a' or (e.seed or 0) < 12]
    episodes.append(replace(episode('b', 50), outcome='invalid'))  # type: ignore[arg-type]
    found = watch_trial(episodes)
    assert found.n_waiting == 8
    assert found.n_invalid == 1
    assert found.arms.pairs[0].comparison.looks[-1].n_a == 12


def test_paired_scenes_are_matched_by_seed_and_sharper() -> None:
    rng = np.random.default_rng(0)
    hard = rng.random(120) < 0.5
    episodes = [
        episode(p, i, success=bool(not hard[i] and rng.random() < (0.95 if p == 'a' else 0.55)))
        for i in range(120)
        for p in ('a', 'b')
    ]
    mixed = [episodes[i] for i in rng.permutation(len(episodes))]
    paired = watch_trial(mixed, paired=True)
    assert paired.arms.pairs[0].decision is Decision.A_BETTER
    with pytest.raises(InputError, match='neither seed nor instance'):
        watch_trial([replace(e, seed=None) for e in episodes], paired=True)
    with pytest.raises(InputError, match='finished by both a and b'):
        watch_trial([e for e in episodes if ((e.seed or 0) % 2 == 0) == (e.policy == 'a')], paired=True)


def test_a_small_difference_at_the_horizon_is_futile() -> None:
    found = watch_trial(trial({'a': 0.5, 'b': 0.5}, 50, seed=3), horizon=50, smallest_difference=0.2)
    assert found.arms.pairs[0].decision is Decision.FUTILE
    assert found.may_stop


def test_three_arms_are_judged_together() -> None:
    found = watch_trial(trial({'a': 0.95, 'b': 0.9, 'c': 0.2}, 80))
    decided = {(p.a, p.b): p.decision for p in found.arms.pairs}
    assert decided['a', 'c'] is Decision.A_BETTER
    assert decided['b', 'c'] is Decision.A_BETTER
    assert not found.may_stop
    assert found.arms.pairs[0].comparison.alpha == pytest.approx(0.05 / 3)


def test_too_little_is_said_to_be_too_little() -> None:
    with pytest.raises(InputError, match='at least two policies'):
        watch_trial([episode('a', 0)])
    with pytest.raises(InputError, match='tau_s'):
        watch_trial(trial({'a': 1, 'b': 0}, 3), score='promptness')
    with pytest.raises(ValueError, match='speed'):
        watch_trial(trial({'a': 1, 'b': 0}, 3), score='speed')


def timed_trial(rng: np.random.Generator, slow: float, n: int) -> list[Episode]:
    """Interleaved episodes of two objects; b is slower by a factor."""
    base = PROFILES['groot']
    arms = [replace(base, name='a'), replace(base, name='b', median_s=base.median_s * slow)]
    return [e for o in ('spoons', 'towels') for p in arms for e in cell_episodes(rng, p, o, n_episodes=n)]


def false_claims(trials: int, seed: int) -> int:
    rng = np.random.default_rng(seed)
    wrong = 0
    for _ in range(trials):
        found = watch_trial(timed_trial(rng, 1.0, 25), score='promptness', tau_s=240.0)
        wrong += found.arms.pairs[0].decision is not Decision.CONTINUE
    return wrong


def test_time_to_success_finds_a_slower_policy_and_rarely_invents_one() -> None:
    found = watch_trial(timed_trial(np.random.default_rng(0), 6.0, 40), score='promptness', tau_s=240.0)
    assert found.arms.pairs[0].decision is Decision.A_BETTER
    assert false_claims(20, 1) <= 4


@pytest.mark.study
def test_time_to_success_keeps_its_error_over_all_looks() -> None:
    trials = 400
    wrong = false_claims(trials, 2)
    print(f'promptness: {wrong} false claims in {trials} null trials of 25 looks')
    assert wrong / trials <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / trials)
