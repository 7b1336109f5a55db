"""Futility at plausible effects, horizons that can show what they should, repeats as units, a safe logrank test."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from typing import Any

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.record import Episode
from robotrials.stats.interval import FloatArray
from robotrials.verdict.planning import (
    Decision,
    check_horizon,
    safe_logrank,
    sequential_comparison,
    unit_scores,
    watch_trial,
)
from robotrials.verdict.planning.betting import (
    FUTILE_POWER,
    _drawn_power,
    _tilt,
    betting_power,
    betting_prior,
    counted_power,
    walk_power,
    walk_winners,
)
from robotrials.verdict.planning.group_sequential import _log_likelihood, _tables
from robotrials.verdict.planning.sequential import wins_needed


@pytest.mark.parametrize('method', ['betting', 'sign_walk'])
@pytest.mark.parametrize('horizon', [8, 12, 20, 40, 100])
@pytest.mark.parametrize('smallest', [0.1, 0.2, 0.3])
def test_a_trial_that_is_being_won_is_not_futile(method: str, horizon: int, smallest: float) -> None:
    """6 of 6 against 0 of 6 was "no difference worth finding"."""
    found = sequential_comparison(
        [1] * 6,
        [0] * 6,
        paired=True,
        horizon=horizon,
        smallest_difference=smallest,
        method=method,  # type: ignore[arg-type]
    )
    assert Decision.FUTILE not in {look.decision for look in found.looks}


def test_a_horizon_that_no_outcome_can_decide_says_so() -> None:
    found = sequential_comparison([1] * 3, [0] * 3, paired=True, horizon=6, smallest_difference=0.3)
    assert found.decision is Decision.FUTILE
    assert 'the horizon is too short' in found.reason


def test_equal_policies_still_stop_for_futility_and_winners_seldom_do() -> None:
    rng = np.random.default_rng(0)
    ends = {0.0: [0, 0], 0.35: [0, 0]}
    for gap, tally in ends.items():
        for _ in range(30):
            a, b = rng.random(120) < 0.5 + gap / 2, rng.random(120) < 0.5 - gap / 2
            found = sequential_comparison(a, b, paired=True, horizon=120, smallest_difference=0.3, method='sign_walk')
            stop = found.stopped_at
            tally[0] += stop is not None and stop.decision is Decision.FUTILE and stop.blocks < 110
            tally[1] += stop is not None and stop.decision is Decision.A_BETTER
    assert ends[0.0][0] >= 15
    assert ends[0.35][0] <= 4
    assert ends[0.35][1] >= 20


def replayed(past: FloatArray, law: dict[float, float], rest: int, rng: np.random.Generator, **rules: Any) -> float:
    """How often the comparison itself ends for a, over drawn futures of the same trial."""
    wins, n = 0, 200
    for _ in range(n):
        future = rng.choice(list(law), size=rest, p=list(law.values()))
        blocks = np.concatenate([past, future])
        strata = rules.get('strata')
        labels = None if strata is None else np.tile(np.arange(strata), blocks.size // strata)
        found = sequential_comparison(
            (blocks + 1) / 2, (1 - blocks) / 2, paired=True, horizon=blocks.size, strata=labels,
            smallest_difference=None, method=rules.get('method', 'betting'),
        )  # fmt: skip
        wins += found.decision is Decision.A_BETTER
    return wins / n


@pytest.mark.parametrize('past', [[], [1.0] * 4 + [-1.0, 0.0], [-1.0, -1.0, 0.0, 1.0, 0.0, 0.0]])
@pytest.mark.parametrize('difference', [0.2, 0.45])
def test_the_chance_of_a_bet_is_that_of_the_comparison_itself(past: list[float], difference: float) -> None:
    """One stratum of wins and losses is counted; the same trial replayed through the rule must agree."""
    seen, rest = np.array(past), 34
    values, counts = np.array([-1.0, 0.0, 1.0]), np.array([float((seen == v).sum()) for v in (-1, 0, 1)])
    law = dict(zip(values.tolist(), _tilt(values, counts + 1, difference).tolist(), strict=True))
    prior = betting_prior(0.025, horizon=seen.size + rest)
    chance = counted_power(
        int(counts[2]), int(counts[0]), rest=rest, win=law[1.0], loss=law[-1.0], prior=prior, goal=math.log(40)
    )
    screened = betting_power(values, counts, rest=rest, difference=difference, prior=prior, alpha=0.05)
    assert screened == chance if chance < 0.2 else screened >= 0.2
    again = replayed(seen, law, rest, np.random.default_rng(1))
    assert abs(chance - again) < 4 * math.sqrt(0.25 / 200)
    drawn = _drawn_power(
        np.log1p(prior.shares[:, None] * values[None, :]) @ counts + np.log(prior.weights),
        np.log1p(values[:, None] * prior.shares[None, :]), np.array(list(law.values())), rest=rest, strata=1,
        goal=math.log(40), rng=np.random.default_rng(2),
    )  # fmt: skip
    assert abs(chance - drawn) < 4 * math.sqrt(0.25 / 400)


def test_the_chance_over_rounds_of_strata_and_other_scores_is_drawn() -> None:
    past, rest = np.array([0.5, -0.5, 1.0, 0.0, 0.5, 0.5]), 30
    values, counts = np.unique(past, return_counts=True)
    support = np.concatenate([values, [-1.0, 0.0, 1.0]])
    law = _tilt(support, np.concatenate([counts, [1.0, 1.0, 1.0]]), 0.35)
    joined = {float(v): float(law[support == v].sum()) for v in np.unique(support)}
    prior = betting_prior(0.025, horizon=past.size + rest)
    chance = betting_power(
        values, counts.astype(float), rest=rest, difference=0.35, prior=prior, alpha=0.05, strata=3
    )  # fmt: skip
    again = replayed(past, joined, rest, np.random.default_rng(3), strata=3)
    assert chance <= again + 4 * math.sqrt(0.25 / 200)  # at the end alone, where that is enough to go on
    assert chance >= min(FUTILE_POWER, again - 4 * math.sqrt(0.25 / 200))


@pytest.mark.parametrize('difference', [0.15, 0.4])
def test_the_chance_of_a_walk_is_that_of_the_comparison_itself(difference: float) -> None:
    signs = np.array([1, 0, -1, 1, 1, 0])
    chance = walk_power(signs, horizon=40, difference=difference, alpha=0.05)
    rate = max(5 / 8, difference)
    law = {1.0: (rate + difference) / 2, -1.0: (rate - difference) / 2, 0.0: 1 - rate}
    again = replayed(signs.astype(float), law, 34, np.random.default_rng(4), method='sign_walk')
    assert abs(chance - again) < 4 * math.sqrt(0.25 / 200 + 0.25 / 30)
    signs = np.where(np.random.default_rng(5).random((30, 40)) < 0.3, 1, -1) * (np.arange(40) % 3 > 0)
    for row, winner in zip(signs, walk_winners(signs, horizon=40, alpha=0.05).tolist(), strict=True):
        ended = sequential_comparison(row > 0, row < 0, paired=True, horizon=40, method='sign_walk').decision
        assert {Decision.A_BETTER: 1, Decision.B_BETTER: -1}.get(ended, 0) == winner


def test_a_plan_that_cannot_show_its_own_difference_is_refused() -> None:
    assert check_horizon(6, 0.1).is_refused
    assert check_horizon(40, 0.1).is_refused
    enough = check_horizon(check_horizon(40, 0.1).blocks_needed, 0.1)
    assert not enough.is_refused
    assert enough.chance >= 0.8
    assert not check_horizon(100, 0.3, method='sign_walk').is_refused
    assert 'can show a difference of 0.1 with a chance of at most' in str(check_horizon(40, 0.1))


@pytest.mark.parametrize('method', ['betting', 'sign_walk'])
def test_wins_needed_are_what_the_comparison_needs(method: str) -> None:
    wins = wins_needed(30, method=method)
    spaced = np.zeros(30)
    spaced[np.ceil(np.arange(1, wins + 1) * 30 / wins).astype(int) - 1] = 1
    found = sequential_comparison(spaced, np.zeros(30), paired=True, horizon=30, method=method)  # type: ignore[arg-type]
    assert found.decision is Decision.A_BETTER
    spaced[-1] = 0
    fewer = sequential_comparison(spaced, np.zeros(30), paired=True, horizon=30, method=method)  # type: ignore[arg-type]
    assert fewer.decision is not Decision.A_BETTER


def test_estimates_after_stopping_are_nearer_the_truth() -> None:
    rng = np.random.default_rng(1)
    for method in ('betting', 'sign_walk'):
        naive, adjusted = [], []
        for _ in range(40):
            a, b = rng.random(100) < 0.7, rng.random(100) < 0.4
            found = sequential_comparison(a, b, paired=True, horizon=100, method=method)  # type: ignore[arg-type]
            if found.stopped_at is not None and found.adjusted_difference is not None:
                naive.append(found.stopped_at.difference)
                adjusted.append(found.adjusted_difference)
        assert abs(np.mean(adjusted) - 0.3) < abs(np.mean(naive) - 0.3)
    assert sequential_comparison([1, 0], [0, 1], paired=True).adjusted_difference is None


def test_repeats_count_once_or_as_a_declared_mean() -> None:
    scores, units = [1.0, 0.0, 1.0, 1.0, 0.0], ['x', 'x', 'y', None, None]
    first = unit_scores(scores, units)
    assert first.scores.tolist() == [1.0, 1.0, 1.0, 0.0]
    assert (first.first, first.n_unused) == ((0, 2, 3, 4), 1)
    whole = unit_scores(scores, units, repeats=2)
    assert whole.scores.tolist() == [0.5, 1.0, 0.0]
    assert whole.n_unused == 1
    with pytest.raises(InputError, match='wanted one a run'):
        unit_scores(scores, units[:2])


def repeated(rng: np.random.Generator) -> list[Episode]:
    """Six starts x five repeats of two equal policies; a start succeeds always or never."""
    made, now = [], dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    for policy in 'ab':
        easy = rng.random(6) < 0.5
        for k in range(30):
            start, run = k % 6, k // 6
            made.append(
                Episode(
                    policy=policy, task='t', outcome='success' if easy[start] else 'failure', duration_s=5.0,  # type: ignore[arg-type]
                    instance=start, repeat=run, started_at=now + dt.timedelta(minutes=2 * k + (policy == 'b')),
                )
            )  # fmt: skip
    return made


def test_watching_repeats_keeps_its_promise() -> None:
    """Equal policies were told apart in 0.44 of trials when repeats of a start counted as independent."""
    rng = np.random.default_rng(7)
    named = {'start state': 0, 'episode': 0}
    for _ in range(60):
        episodes = repeated(rng)
        for unit in named:
            found = watch_trial(episodes, unit=unit)
            named[unit] += found.arms.pairs[0].decision in (Decision.A_BETTER, Decision.B_BETTER)
    assert named['start state'] <= 4
    assert named['episode'] >= 15
    assert watch_trial(repeated(rng)).n_repeats == 48
    assert watch_trial(repeated(rng), repeats=5).n_repeats == 0


def test_the_logrank_e_value_has_mean_one_over_all_label_orders() -> None:
    """Every assignment of six times to two arms of three: under equal hazards the likelihood ratio averages to 1."""
    times = np.array([3.0, 5.0, 5.0, 8.0, 11.0, math.inf])
    total, ratio = 0.0, np.array([2.5])
    orders = list(itertools.combinations(range(6), 3))
    for chosen in orders:
        mask = np.isin(np.arange(6), chosen)
        tables = _tables(times[mask], np.ones(3, dtype=bool), times[~mask], np.ones(3, dtype=bool))
        total += math.exp(float((_log_likelihood(tables, ratio) - _log_likelihood(tables, np.ones(1)))[0]))
    assert total / len(orders) == pytest.approx(1.0)


def test_the_safe_logrank_finds_the_faster_and_swapping_arms_inverts_it() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.exponential(20, 80), rng.exponential(50, 80)
    found = safe_logrank(np.minimum(a, 60), a <= 60, np.minimum(b, 60), b <= 60)
    assert found.faster == 'a'
    assert found.hazard_ratio is not None
    assert found.hazard_ratio.contains(2.5)
    other = safe_logrank(np.minimum(b, 60), b <= 60, np.minimum(a, 60), a <= 60)
    assert other.faster == 'b'
    assert other.p_value == pytest.approx(found.p_value)
    assert safe_logrank([1.0], [True], [], []).looks == ()
    with pytest.raises(InputError, match='never succeeded is inf and observed'):
        safe_logrank([math.inf], [False], [1.0], [True])


def test_the_safe_logrank_keeps_its_error_at_every_look() -> None:
    rng = np.random.default_rng(5)
    named = 0
    for _ in range(60):
        a, b = rng.exponential(30, 60), rng.exponential(30, 60)
        named += safe_logrank(np.minimum(a, 60), a <= 60, np.minimum(b, 60), b <= 60).faster is not None
    assert named <= 6
