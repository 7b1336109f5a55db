"""What a test of two arms says at any level: R with what has not been seen yet, curves where runs were lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from robotrials.errors import InputError
from robotrials.stats.allowance import ENDLESS, FEWEST_PER_CELL, Spread
from robotrials.stats.argument import FloatArray, check_count, check_open_unit
from robotrials.stats.interval import Interval
from robotrials.stats.matching import Units
from robotrials.stats.proportion import binomial_pmf, clopper_pearson
from robotrials.value import dataclass

# R: how far a macro quantity counted in comparisons may be from its estimate, with what has not been seen yet.
# A stratified mean of bounded comparisons (wins, successes) has an estimated variance V, but a loss that has not
# happened shows in no variance. N* is the size of the trial as its weakest cell makes it: strata x the fewest units of
# any cell. One unseen unit moves the macro mean by at most 1 / N*, so that k = V N*^2 is the variance in whole
# comparisons:
# p = max( 2 T_df(-(|D| - 0.6 / N*) / sqrt(V)), f Q(k + 1, k + |D| N*) ) f = 1 + (1/2) k / (k + 10) max(0, 1 - 8 k /
# N*)
# The first term is Brunner and Munzel's t with a continuity correction. The second is Garwood's exact Poisson limit:
# if the data vary as if k losses had been seen, how many more may be hidden? Without any it is exp(-|D| N*), the rule
# of three. Losses that hide in whole strata of a large trial broke the plain form (0.057 at 0.05), which is what f
# mends. There is no theorem: the size was searched for (docs/concepts/verdicts.md). No random number enters.
# A paired difference of rates lies between -1 and 1, so that one start which turns moves the mean by up to two
# comparisons; N* is divided by that (`UnseenRule.move`). Without it three starts with repeats, each decided for one
# policy or the other by a coin, were a claim in a quarter of trials.

CONTINUITY = 0.6  # comparisons; 0.5 let losses hidden in half of 20 strata reach 0.051
Numbers = FloatArray | float


def unseen_p_values(gap: Numbers, variance: Numbers, degrees: Numbers, n_star: Numbers) -> FloatArray:
    """(...,) two-sided p-values of "no gap" by R; arrays broadcast."""
    t_tail, hidden = _tails(np.abs(gap), variance, degrees, n_star)
    return np.minimum(1.0, np.maximum(2 * t_tail, hidden))


def one_sided_p_values(gap: Numbers, variance: Numbers, degrees: Numbers, n_star: Numbers) -> FloatArray:
    """(...,) one-sided p-values of "the truth is at most 0" for a signed gap: half the t term."""
    return np.maximum(*_tails(gap, variance, degrees, n_star))


def _tails(gap: Numbers, variance: Numbers, degrees: Numbers, n_star: Numbers) -> tuple[FloatArray, FloatArray]:
    """The t term, one-sided, and the Garwood term for a gap in the direction of the claim."""
    from robotrials.stats.special import gammaincc, ndtr, stdtr

    gap, variance, degrees, n_star = np.broadcast_arrays(gap, variance, degrees, np.asarray(n_star, dtype=np.float64))
    shifted = gap - CONTINUITY / n_star
    with np.errstate(divide='ignore', invalid='ignore'):
        t = np.where(variance > 0, shifted / np.sqrt(variance), np.copysign(np.inf, shifted))
    t_tail = np.where(degrees >= ENDLESS, ndtr(-t), stdtr(np.minimum(degrees, ENDLESS), -t))
    k = variance * n_star**2
    beyond = np.maximum(k + gap * n_star, 0.0)
    hidden = _widening(k, n_star) * gammaincc(k + 1, beyond)
    return t_tail, np.minimum(1.0, hidden)


def _widening(k: Numbers, n_star: Numbers) -> FloatArray:
    """f: what losses hidden in whole strata of a large trial need."""
    factor: FloatArray = 1 + 0.5 * np.divide(k, np.add(k, 10)) * np.maximum(0.0, 1 - 8 * np.divide(k, n_star))
    return factor


def unseen_reach(
    variance: Numbers, degrees: Numbers, n_star: Numbers, alpha: float, *, is_one_sided: bool = False
) -> FloatArray:
    """(...,) R(alpha): a gap beyond it is a claim at two-sided alpha (one-sided: the t term alone is doubled)."""
    from robotrials.stats.special import gammaincinv, ndtri, stdtrit

    variance, degrees, n_star = np.broadcast_arrays(variance, degrees, np.asarray(n_star, dtype=np.float64))
    high = 1 - (alpha if is_one_sided else alpha / 2)
    t = np.where(degrees >= ENDLESS, ndtri(high), stdtrit(np.minimum(degrees, ENDLESS), high))
    k = variance * n_star**2
    hidden = gammaincinv(k + 1, 1 - alpha / _widening(k, n_star)) - k
    return np.maximum(t * np.sqrt(variance) + CONTINUITY / n_star, hidden / n_star)


def fewest_for_claim(n_tests: int = 1, *, alpha: float = 0.05, farthest: float = 0.5) -> int:
    """The smallest N* at which R can make any claim among `n_tests` hypotheses, however clear: 2 ln(m / alpha).

    `farthest` is the largest gap there can be: 1/2 for a win probability, 1 for a difference of rates.

    >>> [fewest_for_claim(m) for m in (1, 6, 15, 28)]
    [6, 10, 12, 13]
    """
    each = check_open_unit('alpha', alpha) / check_count('n_tests', n_tests, least=1)
    return math.ceil(math.log(1 / each) / farthest - 1e-9)


@dataclass(frozen=True, slots=True, eq=False)
class UnseenRule:
    """An estimate judged by R: `value` against thresholds (1/2 for a win probability, 0 for a difference).

    `move` is by how many comparisons one unit can move the estimate: N* counts as N* / move.
    """

    value: float
    spread: Spread
    n_star: float
    null: float
    move: float = 1.0

    def __post_init__(self) -> None:
        if not (self.n_star > 0 and self.move >= 1):
            raise InputError(f'N* must be over 0 and a move at least 1, found {self.n_star} and {self.move}')

    @property
    def n_comparisons(self) -> float:
        return self.n_star / self.move

    @property
    def gap(self) -> float:
        return self.value - self.null

    @property
    def degrees(self) -> float:
        return self.spread.degrees(0.0)

    @property
    def p_value(self) -> float:
        return float(unseen_p_values(self.gap, self.spread.variance, self.degrees, self.n_comparisons))

    def p_one_sided(self, favours: str) -> float:
        """The p-value of "not in favour of this arm": half of the t term, the whole Garwood term."""
        return self.p_above(self.null) if favours == 'a' else self.p_below(self.null)

    def p_above(self, threshold: float) -> float:
        """One-sided, of "the truth is at most `threshold`"."""
        return self._p_beyond(self.value - threshold)

    def p_below(self, threshold: float) -> float:
        """One-sided, of "the truth is at least `threshold`"."""
        return self._p_beyond(threshold - self.value)

    def _p_beyond(self, gap: float) -> float:
        return float(one_sided_p_values(gap, self.spread.variance, self.degrees, self.n_comparisons))

    def bound(self, alpha: float, *, is_lower: bool) -> float:
        """The value at which the one-sided test turns, within 1 of zero: what is beyond it is ruled out at alpha."""
        reach = float(unseen_reach(self.spread.variance, self.degrees, self.n_comparisons, alpha, is_one_sided=True))
        return max(self.value - reach, -1.0) if is_lower else min(self.value + reach, 1.0)

    def reach(self, alpha: float) -> float:
        return float(unseen_reach(self.spread.variance, self.degrees, self.n_comparisons, alpha))

    def interval(self, level: float, *, low: float, high: float) -> Interval:
        """The estimate ± R, within [low, high]."""
        reach = self.reach(1 - check_open_unit('level', level))
        return Interval(max(self.value - reach, low), min(self.value + reach, high))


class Evidence(Protocol):
    """What a design's test says, at any level."""

    @property
    def p_value(self) -> float: ...
    def p_one_sided(self, favours: str) -> float: ...
    def interval(self, level: float, *, low: float, high: float) -> Interval: ...


@dataclass(frozen=True, slots=True)
class SignTest:
    """The exact sign test of wins against losses, with the Clopper-Pearson interval of the share of wins."""

    wins: int
    losses: int

    @property
    def p_value(self) -> float:
        return min(1.0, 2 * min(self.p_one_sided('a'), self.p_one_sided('b')))

    def p_one_sided(self, favours: str) -> float:
        ahead = self.wins if favours == 'a' else self.losses
        return min(1.0, float(binomial_pmf(self.wins + self.losses, 0.5)[ahead:].sum()))

    def interval(self, level: float, *, low: float, high: float) -> Interval:
        if not self.wins + self.losses:
            return Interval(low, high)
        return clopper_pearson(self.wins, self.wins + self.losses, level)


@dataclass(frozen=True, slots=True, eq=False)
class WorstCase:
    """Undecided comparisons counted against whoever claims: against a in `least`, against b in `most`."""

    least: Evidence
    most: Evidence

    @property
    def p_value(self) -> float:
        """The smaller of both claims' two-sided p-values; 1 for a claim that the worst case does not even favour."""
        sides = ((self.least, 'a', 'b'), (self.most, 'b', 'a'))
        return min(e.p_value if e.p_one_sided(x) < e.p_one_sided(y) else 1.0 for e, x, y in sides)

    def p_one_sided(self, favours: str) -> float:
        return self.least.p_one_sided('a') if favours == 'a' else self.most.p_one_sided('b')

    def interval(self, level: float, *, low: float, high: float) -> Interval:
        below, above = (e.interval(level, low=low, high=high) for e in (self.least, self.most))
        return Interval(min(below.low, above.low), max(below.high, above.high))


def check_side(favours: str) -> str:
    if favours not in ('a', 'b'):
        raise InputError(f"favours must be 'a' or 'b', found {favours!r}")
    return favours


def few_units(sizes: Sequence[float], n_tests: int, alpha: float, kind: str, *, farthest: float = 0.5) -> str:
    """Why R makes no claim with these units per stratum and a gap of at most `farthest`; empty where it may."""
    if min(sizes) < FEWEST_PER_CELL:
        return f'{min(sizes):g} {kind} in a cell; at least {FEWEST_PER_CELL} are needed'
    least, n_star = fewest_for_claim(n_tests, alpha=alpha, farthest=farthest), len(sizes) * min(sizes)
    if n_star < least:
        tests = '1 test' if n_tests == 1 else f'{n_tests} tests'
        return f'{n_star:g} comparable {kind} per policy; with {tests} no claim can be made below {least}'
    return ''


# The chance that one arm is done before another where runs were lost: Kaplan-Meier curves, each unit left out.
# Undecided comparisons scored one half (Gehan) do not hold for curves that cross (0.15 false at 15 % undecided), nor
# do scores by the other arm's curve with placement variances (0.16). The win probability of the two curves, with every
# unit really left out of its own curve, does (0.039).

ROWS_AT_ONCE = 2_000_000  # entries of a leave-one-out table held at once


def curve_win(
    times_a: FloatArray, ends_a: FloatArray, units_a: Units, times_b: FloatArray, ends_b: FloatArray, units_b: Units
) -> tuple[float, float, float]:
    """P of one stratum and its variance from either arm, by leaving each of its units out.

    Times are (runs,), infinite where not done; ends are when a run was lost, infinite where it was not. Leftover mass
    of a curve is never done.
    """
    curve_a, curve_b = (
        SuccessCurves(times, ends, units.weights[None, :])
        for times, ends, units in ((times_a, ends_a, units_a), (times_b, ends_b, units_b))
    )
    left_a = left_out_wins(times_a, ends_a, units_a, curve_b)
    left_b = left_out_wins(times_b, ends_b, units_b, curve_a)
    return float(curve_a.wins_over(curve_b)[0]), jackknife_variance(left_a), jackknife_variance(left_b)


def left_out_wins(times: FloatArray, ends: FloatArray, units: Units, other: SuccessCurves) -> FloatArray:
    """(units,) the arm's win probability over the other with each of its own units left out."""
    rows = max(1, ROWS_AT_ONCE // len(times))
    parts = []
    for start in range(0, units.n, rows):
        left = np.arange(start, min(units.n, start + rows))
        weights = np.where(units.codes[None, :] == left[:, None], 0.0, units.weights[None, :])
        parts.append(SuccessCurves(times, ends, weights).wins_over(other))
    return np.concatenate(parts)


def jackknife_variance(left_out: FloatArray) -> float:
    n = len(left_out)
    return float((n - 1) / n * np.sum((left_out - left_out.mean()) ** 2)) if n > 1 else 0.0


class SuccessCurves:
    """Weighted Kaplan-Meier curves of one cell, one per row of weights: the mass at each time, and what is left."""

    def __init__(self, times: FloatArray, ends: FloatArray, weights: FloatArray) -> None:
        watched = np.minimum(times, ends)  # a run lost at the time another was done is still at risk there
        order = np.lexsort((np.isinf(times), watched))
        done_at = np.isfinite(times)
        self.times, place = np.unique(times[done_at], return_inverse=True)
        at_risk_from = np.searchsorted(watched[order], self.times, side='left')
        ordered = weights[:, order]
        later = np.concatenate([np.cumsum(ordered[:, ::-1], axis=1)[:, ::-1], np.zeros((len(weights), 1))], axis=1)
        at_risk = later[:, at_risk_from]
        by_time = np.argsort(place, kind='stable')
        edges = np.searchsorted(place[by_time], np.arange(len(self.times)))
        done = np.add.reduceat(weights[:, done_at][:, by_time], edges, axis=1) if len(edges) else at_risk
        hazard = np.divide(done, at_risk, out=np.zeros_like(done), where=at_risk > 1e-12)
        survival = np.cumprod(1 - np.minimum(hazard, 1.0), axis=1)
        before = np.concatenate([np.ones((len(weights), 1)), survival], axis=1)
        self.mass = before[:, :-1] - before[:, 1:]
        self.left = before[:, -1]
        self.survival = before

    def wins_over(self, other: SuccessCurves) -> FloatArray:
        """(rows,) the chance to be earlier than the other cell's first curve, level by half."""
        below = other.survival[0][np.searchsorted(other.times, self.times, side='left')]
        beyond = other.survival[0][np.searchsorted(other.times, self.times, side='right')]
        wins: FloatArray = self.mass @ ((below + beyond) / 2) + self.left * other.left[0] / 2
        return wins
