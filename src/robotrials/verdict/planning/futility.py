"""When going on is pointless: rules that stop without a winner.

Stopping early without a winner never adds a false claim of one, so which effects are asked about needs no proof: those
that the data leave plausible, the smallest difference of interest and up to one standard error beyond what has been
seen. A trial that is being won is never futile because a smaller difference could not be shown. The chance at each
effect is that of the stopping rule itself: counted where it can be, else over drawn futures.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from robotrials.stats.argument import FloatArray, IntArray
from robotrials.stats.normal import normal_cdf, normal_quantile
from robotrials.verdict.planning.betting import Prior
from robotrials.verdict.planning.sign_walk import walk_winners

FUTILE_POWER = 0.1
FUTURES = 400
WALKS = 120  # each has bounds of its own, which cost more
CLEAR_POWER = 0.3  # well above what is futile, whatever the draws
PLAUSIBLE_Z = 1.0


def plausible_effects(values: FloatArray, counts: FloatArray, smallest: float) -> tuple[float, ...]:
    """Differences in favour of a at which going on is judged: the smallest of interest, and what the data suggest.

    The spread counts one more value at each end, so that early looks are not too sure.
    """
    n = float(counts.sum())
    mean = float(counts @ values) / n
    spread = math.sqrt((float(counts @ (values - mean) ** 2) + (1 - mean) ** 2 + (1 + mean) ** 2) / (n + 2) / n)
    reachable = min(mean + PLAUSIBLE_Z * spread, 0.999)
    return (smallest,) if reachable <= smallest else (smallest, reachable)


def betting_power(
    values: FloatArray, counts: FloatArray, *, rest: int, difference: float, prior: Prior, alpha: float, strata: int = 1
) -> float:
    """The chance that a's advantage is shown by the horizon if it is `difference` from now on, by the rule itself.

    The future values are the past ones (and one of each extreme, so that early looks are not too sure), shifted in
    probability towards the difference by exponential tilting. Wins and losses of one stratum are counted exactly;
    other scores, and rounds of several strata, are drawn. Where the end of the horizon alone is clearly enough to go
    on, its chance is given.
    """
    support = np.concatenate([values, [-1.0, 0.0, 1.0]])
    law = _tilt(support, np.concatenate([counts, np.full(3, 1.0)]), difference)
    goal = math.log(2 / alpha)
    held = np.log1p(prior.shares[:, None] * values[None, :]) @ counts + np.log(prior.weights)
    gains = np.log1p(support[:, None] * prior.shares[None, :])
    rng = np.random.default_rng([int(counts.sum()), rest])
    at_end = held + rng.multinomial(rest, law, size=FUTURES // 4) @ gains
    chance = float(np.mean(np.logaddexp.reduce(at_end, axis=1) >= goal))
    if chance >= CLEAR_POWER:
        return chance
    if strata == 1 and np.isin(values, (-1.0, 0.0, 1.0)).all():
        seen = [int(counts[values == sign].sum()) for sign in (1.0, -1.0)]
        win, loss = (float(law[support == sign].sum()) for sign in (1.0, -1.0))
        return counted_power(seen[0], seen[1], rest=rest, win=win, loss=loss, prior=prior, goal=goal)
    return _drawn_power(held, gains, law, rest=rest, strata=strata, goal=goal, rng=rng)


def counted_power(
    wins: int, losses: int, *, rest: int, win: float, loss: float, prior: Prior, goal: float
) -> float:  # fmt: skip
    """Exactly: walks over the disagreements to come, ended where either side's capital reaches its goal."""
    from scipy.special import gammaln

    least = _least_wins(prior, goal, wins + losses + rest)
    share = win / (win + loss)
    chance = np.zeros(rest + 1)  # of each number of wins, among walks that go on
    chance[0] = 1.0
    won = np.arange(rest + 1)
    shown = np.zeros(rest + 1)  # by each number of disagreements
    for j in range(1, rest + 1):
        chance[1:] = chance[1:] * (1 - share) + chance[:-1] * share
        chance[0] *= 1 - share
        total = won[: j + 1] + wins, losses + j - won[: j + 1]
        for_a, for_b = total[0] >= least[total[1]], total[1] >= least[total[0]]
        shown[j] = shown[j - 1] + chance[: j + 1][for_a].sum()
        chance[: j + 1][for_a | for_b] = 0.0
    rate = min(win + loss, 1 - 1e-12)
    ways = gammaln(rest + 1) - gammaln(won + 1) - gammaln(rest - won + 1)
    return float(np.exp(ways + won * math.log(rate) + (rest - won) * math.log1p(-rate)) @ shown)


@lru_cache(maxsize=64)
def _least_wins(prior: Prior, goal: float, n: int) -> IntArray:
    """How many wins reach the goal beside 0, 1, ..., n losses; more than n where none do."""
    gain, cost, held = np.log1p(prior.shares), np.log1p(-prior.shares), np.log(prior.weights)
    found, wins = np.full(n + 1, n + 1), 0
    for losses in range(n + 1):
        while wins <= n and np.logaddexp.reduce(held + wins * gain + losses * cost) < goal:
            wins += 1
        found[losses] = wins
    return found


def _drawn_power(
    held: FloatArray, gains: FloatArray, law: FloatArray, *, rest: int, strata: int, goal: float,
    rng: np.random.Generator,
) -> float:  # fmt: skip
    """The share of drawn futures in which the capital reaches its goal after any whole round."""
    rounds = rest // strata
    if rounds == 0:
        return 0.0
    batch = max(1, 2_000_000 // (rounds * strata * held.size))
    reached = 0
    for first in range(0, FUTURES, batch):
        n = min(batch, FUTURES - first)
        drawn = rng.choice(law.size, size=(n, rounds, strata), p=law)
        path = held + np.cumsum(gains[drawn].sum(axis=2), axis=1)
        reached += int((np.logaddexp.reduce(path, axis=2).max(axis=1) >= goal).sum())
    return reached / FUTURES


def walk_power(signs: IntArray, *, horizon: int, difference: float, alpha: float) -> float:
    """The share of drawn futures in which a's lead in wins becomes decisive, if the difference is as given from now.

    `signs` are 1, -1 or 0, one a pair so far. The lead that decides hangs on when pairs disagreed, so that every future
    has bounds of its own. Where the normal law, or the first few, leave no doubt that one may go on, that is given.
    """
    rest, disagreements = horizon - signs.size, np.count_nonzero(signs)
    rate = max((disagreements + 1) / (signs.size + 2), difference)
    edge = normal_quantile(1 - alpha / 2.4) * math.sqrt(disagreements + rest * rate)
    spread = math.sqrt(max(rest * (rate - difference**2), 1e-12))
    chance = normal_cdf((int(signs.sum()) + rest * difference - edge) / spread)
    if chance >= 2 * CLEAR_POWER:
        return chance
    drawn = np.random.default_rng([signs.size, rest]).random((WALKS, rest))
    future = np.where(drawn < (rate + difference) / 2, 1, np.where(drawn < rate, -1, 0))
    few = float(np.mean(walk_winners(future[: WALKS // 4], past=signs, horizon=horizon, alpha=alpha) > 0))
    if few >= CLEAR_POWER:
        return few
    return float(np.mean(walk_winners(future, past=signs, horizon=horizon, alpha=alpha) > 0))


def _tilt(support: FloatArray, counts: FloatArray, mean: float) -> FloatArray:
    """Weights proportional to counts * exp(k * support) with the given mean."""
    low, high = -60.0, 60.0
    weights: FloatArray = counts / counts.sum()
    for _ in range(60):
        k = (low + high) / 2
        tilted = counts * np.exp(k * support - max(k, -k))
        weights = tilted / tilted.sum()
        low, high = (k, high) if weights @ support < mean else (low, k)
    return weights
