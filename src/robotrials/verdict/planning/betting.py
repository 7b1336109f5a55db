"""Betting on a bounded mean: capital that can only grow against a false claim, and the intervals it leaves.

For values in [-1, 1] and a claimed mean m, a gambler who stakes the share c of what can be lost gains the factor
1 + c (x - m) / (1 + m) at each value (upwards; downwards by symmetry). If the mean is at most m the expected factor is
at most 1, so the capital, averaged over a fixed prior of shares, is an e-process: by Ville's inequality it ever reaches
1/a with chance at most a, however often one looks (Waudby-Smith & Ramdas, JRSS-B 2024; Robbins 1970 for the mixture).

Values may come in rounds of one from each stratum. With one share a round, the factors of a round multiply to an
e-value for the claim "the mean over strata is at most m" whatever the strata's own means, since by the inequality of
the arithmetic and geometric means prod_t (1 + g (mu_t - m)) <= (1 + g (mean_t mu_t - m))^T <= 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.stats.interval import (
    FloatArray,
    IntArray,
    check_count,
    check_labels,
    check_open_unit,
    check_values,
    normal_cdf,
    normal_quantile,
)

SHARES = 48
LARGEST_SHARE = 0.98
SMALLEST_SHARE = 0.004
BISECTIONS = 32
EDGE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """Shares that are staked, and the part of the capital on each; fixed before the first value."""

    shares: FloatArray
    weights: FloatArray


def betting_prior(alpha: float, *, horizon: int | None = None, smallest_difference: float | None = None) -> Prior:
    """Shares spaced evenly in their logarithm, down to the smallest that can pay within the horizon.

    The best share for a mean d with variance v is about d / v, and for n values about sqrt(2 log(1/alpha) / (v n));
    what is staked below that is lost. Any prior is valid; a declared horizon or difference makes it a better one.
    """
    least = SMALLEST_SHARE
    if horizon is not None:
        least = max(least, 0.7 * math.sqrt(4 * math.log(1 / check_open_unit('alpha', alpha)) / horizon))
    if smallest_difference is not None:
        least = max(least, smallest_difference)
    shares = np.geomspace(min(least, 0.5), LARGEST_SHARE, SHARES)
    return Prior(shares, np.full(SHARES, 1 / SHARES))


def log_capital(values: FloatArray, counts: FloatArray, claimed: FloatArray, prior: Prior) -> FloatArray:
    """The log of the capital against "the mean is at most `claimed`", one a row.

    `values` (U,) are the distinct values in [-1, 1], `counts` (L, U) how often each was seen by each look, `claimed`
    (L,) one claim a look, over -1. Falls as the claim rises.
    """
    out = np.empty(claimed.size)
    log_weights = np.log(prior.weights)
    rows = max(1, 2_000_000 // (values.size * prior.shares.size))
    for start in range(0, claimed.size, rows):
        part = slice(start, start + rows)
        gains = (values[None, :] - claimed[part, None]) / (1 + claimed[part, None])
        factors = np.log1p(prior.shares[None, :, None] * gains[:, None, :])
        out[part] = _log_sum_exp(np.einsum('lju,lu->lj', factors, counts[part]) + log_weights)
    return out


def log_capital_path(values: FloatArray, prior: Prior) -> FloatArray:
    """The log of the capital against "the mean is at most 0" before any value and after each, (n + 1,)."""
    out = np.zeros(values.size + 1)
    held = np.log(prior.weights)
    batch = max(1, 2_000_000 // prior.shares.size)
    for start in range(0, values.size, batch):
        part = values[start : start + batch]
        path = held + np.cumsum(np.log1p(prior.shares[None, :] * part[:, None]), axis=0)
        out[start + 1 : start + 1 + part.size] = _log_sum_exp(path)
        held = path[-1]
    return out


def lower_bound(values: FloatArray, counts: FloatArray, *, alpha: float, prior: Prior) -> FloatArray:
    """The lower confidence sequence of the mean, one bound a row of `counts`: each claim below it was bet to ruin."""
    goal = math.log(1 / alpha)
    low, high = np.full(counts.shape[0], -1 + EDGE), np.ones(counts.shape[0])
    alive = log_capital(values, counts, low, prior) >= goal
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        refuted = log_capital(values, counts, middle, prior) >= goal
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
    return np.where(alive, low, -1.0)


def mean_bounds(values: FloatArray, counts: FloatArray, *, alpha: float, prior: Prior) -> tuple[FloatArray, FloatArray]:
    """The two-sided confidence sequence: lower and upper bounds, each with half of alpha."""
    if values.size and (values.min() < -1 or values.max() > 1):
        raise InputError(f'values must lie in [-1, 1] after scaling, found {values.min()} to {values.max()}')
    return (
        lower_bound(values, counts, alpha=alpha / 2, prior=prior),
        -lower_bound(-values, counts, alpha=alpha / 2, prior=prior),
    )


def _log_sum_exp(rows: FloatArray) -> FloatArray:
    top = rows.max(axis=1)
    return np.asarray(top + np.log(np.exp(rows - top[:, None]).sum(axis=1)))


# Blocks of rollouts that are compared with each other, in the order in which they were started.

Strata = ArrayLike | tuple[ArrayLike, ArrayLike]
"""One label a rollout, the same for both arms (pairs), or a pair of label arrays (of a, of b)."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Differences in the order of rounds; a round holds one block of each stratum. Scaled to [-1, 1]."""

    differences: FloatArray
    strata: int
    waiting_a: int
    waiting_b: int

    @property
    def rounds(self) -> int:
        return self.differences.size // self.strata


def pair_blocks(
    a: ArrayLike,
    b: ArrayLike,
    *,
    paired: bool,
    strata: Strata | None = None,
    tasks: Sequence[object] | None = None,
    score_range: tuple[float, float] = (0, 1),
    allocation: tuple[int, int] = (1, 1),
) -> Blocks:
    """The i-th block of a against the i-th of b in each stratum, in complete rounds over `tasks` (or the strata seen).

    Which rollouts meet depends only on their order, never on outcomes or durations: pairing by what has finished would
    favour a policy whose successes are quicker than its failures.
    """
    low, high = score_range
    arms = [_check_scores(name, x, score_range) for name, x in (('a', a), ('b', b))]
    if paired and (arms[0].size != arms[1].size or allocation != (1, 1)):
        raise InputError(
            f'paired arms need one a for each b, found {arms[0].size} and {arms[1].size} with allocation {allocation}'
        )
    sizes = [check_count('allocation', k, least=1) for k in allocation]
    codes, count = _strata_codes(strata, arms, tasks)
    queues = [
        [_block_means(arm[code == t], size) for t in range(count)]
        for arm, code, size in zip(arms, codes, sizes, strict=True)
    ]
    rounds = min(len(queue) for arm in queues for queue in arm)
    first, second = (np.array([queue[:rounds] for queue in arm]).reshape(count, rounds) for arm in queues)
    used = rounds * count
    differences = np.clip(((first - second) / (high - low)).T.ravel(), -1, 1)
    return Blocks(differences, count, arms[0].size - used * sizes[0], arms[1].size - used * sizes[1])


def block_counts(blocks: Blocks, at: IntArray) -> tuple[FloatArray, FloatArray]:
    """The distinct differences, and how often each was seen by each look."""
    values, codes = np.unique(blocks.differences, return_inverse=True)
    counts = np.empty((at.size, values.size))
    running = np.zeros(values.size)
    done = 0
    for i, rounds in enumerate(at):
        n = int(rounds) * blocks.strata
        running += np.bincount(codes[done:n], minlength=values.size)
        counts[i] = running
        done = n
    return values, counts


def check_range(score_range: tuple[float, float]) -> float:
    low, high = score_range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f'score_range must be two finite numbers in order, found {score_range}')
    return high - low


def _check_scores(name: str, scores: ArrayLike, score_range: tuple[float, float]) -> FloatArray:
    if np.size(scores) == 0:
        return np.zeros(0)
    array = check_values(name, scores).astype(np.float64)
    if array.ndim != 1:
        raise InputError(f'{name} must be one outcome a rollout (n,), found shape {array.shape}')
    bad = np.flatnonzero((array < score_range[0]) | (array > score_range[1]))
    if bad.size:
        raise InputError(f'{name}[{bad[0]}] is {array[bad[0]]}, outside score_range {score_range}; pass the true range')
    return array


def _strata_codes(
    strata: Strata | None, arms: list[FloatArray], tasks: Sequence[object] | None
) -> tuple[list[IntArray], int]:
    """Each rollout's stratum in both arms, and how many strata there are: the declared tasks, or those seen."""
    if strata is None:
        if tasks is not None:
            raise InputError('tasks are declared, so strata must give the task of each rollout')
        return [np.zeros(arm.size, dtype=np.int64) for arm in arms], 1
    labels: list[NDArray[Any]] = (
        [np.asarray(part) for part in strata] if isinstance(strata, tuple) else [np.asarray(strata)] * 2
    )
    if len(labels) != 2:
        raise InputError(f'strata must be one array, or a pair (of a, of b), found {len(labels)}')
    for name, label, arm in zip('ab', labels, arms, strict=True):
        if label.shape != arm.shape:
            raise InputError(f'strata must have one label for each of the {arm.size} rollouts of {name}')
    codes, distinct = check_labels('strata', np.concatenate(labels), n=sum(x.size for x in labels), of='rollouts')
    count = max(1, len(distinct))
    if tasks is not None:
        declared = {str(task): k for k, task in enumerate(tasks)}
        unknown = [str(label) for label in distinct if str(label) not in declared]
        if unknown:
            raise UnknownName('task', unknown[0], declared)
        codes = np.array([declared[str(label)] for label in distinct], dtype=np.int64)[codes]
        count = len(declared)
    return [codes[: arms[0].size], codes[arms[0].size :]], count


def _block_means(values: FloatArray, size: int) -> FloatArray:
    whole = values.size // size
    return np.asarray(values[: whole * size].reshape(whole, size).mean(axis=1))


# An exact sequential sign test for binary pairs with a declared horizon.
# Among pairs on which the policies disagree, the winner is a fair coin if they are equally good, whatever the rate of
# disagreement: the difference of wins is a symmetric walk, and its boundary at each disagreement follows by exact
# recursion from an error-spending function of the share of the horizon used. No normal approximation, no nuisance
# rate.

SPENDING_POWER = 2.0


def walk_bounds(disagreed_at: IntArray, *, horizon: int, alpha: float) -> IntArray:
    """The lead in wins that stops the trial at each disagreement; horizon + 1 where no lead can.

    `disagreed_at` holds the numbers of the pairs (1-based) that disagreed, in order. Each side may spend
    (alpha / 2) (n / horizon)^2 by pair n.
    """
    if disagreed_at.size and int(disagreed_at[-1]) > horizon:
        raise InputError(f'pair {int(disagreed_at[-1])} lies beyond the declared horizon of {horizon} pairs')
    size = disagreed_at.size
    chance = np.zeros(2 * size + 3)  # of each lead among walks that have not stopped; lead 0 at index size + 1
    chance[size + 1] = 1.0
    bounds = np.full(size, horizon + 1, dtype=np.int64)
    spent = 0.0
    for t, n in enumerate(disagreed_at):
        moved = np.zeros_like(chance)
        moved[1:] += chance[:-1] / 2
        moved[:-1] += chance[1:] / 2
        budget = alpha / 2 * (int(n) / horizon) ** SPENDING_POWER - spent
        lead = _smallest_lead(moved, size + 1, budget)
        if lead is not None:
            bounds[t] = lead
            spent += float(moved[size + 1 + lead :].sum())
            moved[size + 1 + lead :] = 0
            moved[: size + 2 - lead] = 0
        chance = moved
    return bounds


def _smallest_lead(chance: FloatArray, origin: int, budget: float) -> int | None:
    tail = np.cumsum(chance[origin + 1 :][::-1])[::-1]  # of a lead of at least 1, 2, ...
    fits = np.flatnonzero(tail <= budget)
    if fits.size == 0:
        return None
    lead = int(fits[0]) + 1
    return lead if tail[lead - 1] > 0 else None


def walk_winners(signs: IntArray, *, horizon: int, alpha: float, past: IntArray | None = None) -> IntArray:
    """Who decides each trial, one a row of `signs`: 1 for a, -1 for b, 0 where no lead does by the end.

    `walk_bounds` of many trials at once: each disagrees at pairs of its own, so each has bounds of its own. They may
    share a `past` (pairs,), which is gone through once.
    """
    shared = np.zeros(0, dtype=np.int64) if past is None else past
    width = int(np.count_nonzero(shared)) + int(np.count_nonzero(signs, axis=1).max(initial=0)) + 1
    chance = np.zeros((1, 2 * width + 1))
    chance[:, width] = 1.0
    spent, lead, winner = np.zeros(1), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    sizes = np.arange(1, width + 1)
    for n, column in enumerate((*shared[:, None], *signs.T), start=1):
        if n == shared.size + 1:
            chance = np.repeat(chance, column.size, axis=0)
            spent, lead, winner = (
                np.repeat(spent, column.size),
                np.repeat(lead, column.size),
                np.repeat(winner, column.size),
            )
        rows = np.flatnonzero((column != 0) & (winner == 0))
        if rows.size == 0:
            continue
        lead[rows] += column[rows]
        moved = np.zeros((rows.size, 2 * width + 1))
        moved[:, 1:] += chance[rows, :-1] / 2
        moved[:, :-1] += chance[rows, 1:] / 2
        tail = np.cumsum(moved[:, :width:-1], axis=1)[:, ::-1]  # of a lead of at least 1, 2, ...
        fits = tail <= (alpha / 2 * (n / horizon) ** SPENDING_POWER - spent[rows])[:, None]
        first = np.where(fits.any(axis=1), fits.argmax(axis=1), width - 1)
        reach = np.take_along_axis(tail, first[:, None], axis=1)[:, 0]
        bound = np.where(fits.any(axis=1) & (reach > 0), first + 1, width + 1)
        spent[rows] += np.where(bound <= width, reach, 0.0)
        beyond = sizes[None, :] >= bound[:, None]
        moved[:, width + 1 :][beyond] = 0.0
        moved[:, :width][:, ::-1][beyond] = 0.0
        chance[rows] = moved
        winner[rows] = np.where(np.abs(lead[rows]) >= bound, np.sign(lead[rows]), 0)
    return winner


def walk_estimate(signs: IntArray, *, horizon: int, alpha: float) -> float:
    """The median-unbiased difference of rates when a walk has stopped (or ended), by the order of stopping.

    Stopping earlier, or with a larger lead at the same pair, is stronger evidence (Tsiatis, Rosner and Mehta 1984). The
    chance of a win among disagreements is the one at which what was seen, or stronger, has chance one half; the rate
    of disagreement is that seen. `signs` are 1, -1 or 0, one a pair, up to the stop.
    """
    at = np.flatnonzero(signs)
    if at.size == 0:
        return 0.0
    lead = int(signs.sum())
    if lead == 0:
        return 0.0
    bounds = walk_bounds(at + 1, horizon=horizon, alpha=alpha)
    low, high = 0.0, 1.0
    for _ in range(50):
        chance = (low + high) / 2
        # The chance of evidence at least this strong for the side that leads rises with its chance of a win.
        low, high = (chance, high) if _stronger(bounds, abs(lead), chance) < 0.5 else (low, chance)
    return float(np.sign(lead)) * (2 * (low + high) / 2 - 1) * at.size / signs.size


def _stronger(bounds: IntArray, lead: int, win: float) -> float:
    """The chance of stopping above earlier, or of a lead of at least `lead` at the last disagreement."""
    size = bounds.size
    chance = np.zeros(2 * size + 3)
    chance[size + 1] = 1.0
    above = 0.0
    for t, bound in enumerate(bounds.tolist()):
        moved = np.zeros_like(chance)
        moved[1:] += chance[:-1] * win
        moved[:-1] += chance[1:] * (1 - win)
        if t == size - 1:
            return above + float(moved[size + 1 + lead :].sum())
        reach = min(bound, size + 1)
        above += float(moved[size + 1 + reach :].sum())
        moved[size + 1 + reach :] = 0
        moved[: size + 2 - reach] = 0
        chance = moved
    return above


# When going on is pointless: rules that stop without a winner.
# Stopping early without a winner never adds a false claim of one, so which effects are asked about needs no proof:
# those that the data leave plausible, the smallest difference of interest and up to one standard error beyond what has
# been seen. A trial that is being won is never futile because a smaller difference could not be shown. The chance at
# each effect is that of the stopping rule itself: counted where it can be, else over drawn futures.

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
    reached = np.zeros(rest + 1)  # by each number of disagreements
    for j in range(1, rest + 1):
        chance[1:] = chance[1:] * (1 - share) + chance[:-1] * share
        chance[0] *= 1 - share
        total = won[: j + 1] + wins, losses + j - won[: j + 1]
        for_a, for_b = total[0] >= least[total[1]], total[1] >= least[total[0]]
        reached[j] = reached[j - 1] + chance[: j + 1][for_a].sum()
        chance[: j + 1][for_a | for_b] = 0.0
    rate = min(win + loss, 1 - 1e-12)
    ways = gammaln(rest + 1) - gammaln(won + 1) - gammaln(rest - won + 1)
    return float(np.exp(ways + won * math.log(rate) + (rest - won) * math.log1p(-rate)) @ reached)


@lru_cache(maxsize=64)
def _least_wins(prior: Prior, goal: float, n: int) -> IntArray:
    """How many wins reach the goal beside 0, 1, ..., n losses; more than n where none do."""
    gain, cost, held = np.log1p(prior.shares), np.log1p(-prior.shares), np.log(prior.weights)
    least, wins = np.full(n + 1, n + 1), 0
    for losses in range(n + 1):
        while wins <= n and np.logaddexp.reduce(held + wins * gain + losses * cost) < goal:
            wins += 1
        least[losses] = wins
    return least


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
