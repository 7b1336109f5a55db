"""Intervals, checks of shared arguments, and the rule behind "better": an allowance for what has not been seen yet.

A mean of a bounded quantity (a time up to tau, a success) hides what has not happened: without a failure among n units
3.2 / n of them may still fail, with a chance of 4 % to have seen none, and no resampling scheme can show it. So z^2
unseen units at the far end of the scale are added to the jackknife variance: for the claim that a's mean is lower, at
a's high end and at b's low end. A unit among N moves a macro mean by (end - mean) / N, and both arms' moves are added
as squares. Where a single stratum has few units, another end or another mean than the rest, units unseen there alone
could move it further: a unit of stratum c moves it by (end - mean_c) / (strata x n_c), and the allowance is never less
than the largest such move. Degrees of freedom are Satterthwaite's with the allowance
taken as known.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.value import dataclass

Alternative = Literal['two-sided', 'greater', 'less']
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def check_count(name: str, value: float, *, least: int = 0) -> int:
    """A whole number that is at least `least`."""
    if isinstance(value, bool | np.bool_) or not math.isfinite(value) or value != int(value):
        raise InputError(f'{name} must be a whole number, found {value!r}')
    if value < least:
        raise InputError(f'{name} must be at least {least}, found {int(value)}')
    return int(value)


def check_successes(successes: float, n: float, *, names: tuple[str, str] = ('successes', 'n')) -> tuple[int, int]:
    """Successes among n trials, n > 0: a rate of no trials does not exist."""
    n = check_count(names[1], n, least=1)
    successes = check_count(names[0], successes)
    if successes > n:
        raise InputError(f'{names[0]} must be at most {names[1]} = {n}, found {successes}')
    return successes, n


def check_open_unit(name: str, value: float) -> float:
    """A number strictly between 0 and 1: a level, an alpha, a power."""
    if not 0 < value < 1:
        raise InputError(f'{name} must be strictly between 0 and 1, found {value!r} (95 % is 0.95)')
    return float(value)


def check_unit(name: str, value: float) -> float:
    """A probability in [0, 1]."""
    if not 0 <= value <= 1:
        raise InputError(f'{name} must be between 0 and 1, found {value!r} (a percentage is divided by 100)')
    return float(value)


def check_alternative(alternative: str) -> Alternative:
    if alternative == 'two-sided':
        return 'two-sided'
    if alternative == 'greater':
        return 'greater'
    if alternative == 'less':
        return 'less'
    raise InputError(f"alternative must be 'two-sided', 'greater' or 'less', found {alternative!r}")


def check_values(name: str, values: ArrayLike, *, infinite: bool = False) -> NDArray[Any]:
    """A non-empty array of numbers, never NaN; whole numbers and booleans become int64, so that sums are exact."""
    array = np.asarray(values)
    if array.dtype.kind in 'bui':
        array = array.astype(np.int64)
    elif array.dtype.kind == 'f':
        array = array.astype(np.float64)
    else:
        raise InputError(f'{name} must be numbers, found {array.dtype}')
    if array.size == 0:
        raise InputError(f'{name} is empty; wanted at least one value')
    bad = np.flatnonzero(np.isnan(array.ravel()) if infinite else ~np.isfinite(array.ravel()))
    if bad.size:
        wanted = 'numbers' if infinite else 'finite numbers'
        raise InputError(f'{name}[{bad[0]}] is {array.ravel()[bad[0]]}; wanted {wanted}')
    return array


def check_labels(name: str, labels: ArrayLike, *, n: int, of: str) -> tuple[IntArray, NDArray[Any]]:
    """One label a value: codes 0..k-1, and the k distinct labels in sorted order."""
    array = np.asarray(labels)
    if array.shape != (n,):
        raise InputError(f'{name} must have one label for each of the {n} {of}, found shape {array.shape}')
    if array.dtype.kind == 'f' and np.isnan(array).any():
        raise InputError(f'{name}[{int(np.flatnonzero(np.isnan(array))[0])}] is NaN; wanted a label')
    distinct, codes = np.unique(array, return_inverse=True)
    return codes.astype(np.int64), distinct


def stratify(name: str, values: ArrayLike, strata: ArrayLike | None) -> list[NDArray[Any]]:
    """The values of each stratum, in sorted order of labels; a 2-d array is (strata, samples) already."""
    array = check_values(name, values)
    if array.ndim == 2 and strata is None:
        return list(array)
    if array.ndim != 1:
        raise InputError(f'{name} must be (samples,) or (strata, samples), found shape {array.shape}')
    if strata is None:
        return [array]
    codes, distinct = check_labels('strata', strata, n=array.size, of=name)
    return [array[codes == k] for k in range(len(distinct))]


def check_rng(rng: object) -> np.random.Generator:
    """The generator itself; a seed or nothing is refused, since global or hidden randomness cannot be repeated."""
    if isinstance(rng, np.random.Generator):
        return rng
    raise InputError(f'rng is {rng!r}, wanted a numpy.random.Generator: pass rng=numpy.random.default_rng(seed)')


def check_p_values(p_values: Sequence[float] | FloatArray) -> FloatArray:
    array = np.asarray(p_values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise InputError(f'p_values must be a non-empty sequence, found shape {array.shape}')
    bad = np.flatnonzero(~((array >= 0) & (array <= 1)))
    if bad.size:
        raise InputError(f'p_values[{bad[0]}] is {array[bad[0]]}; wanted a probability in [0, 1]')
    return array


def exact_mean(values: FloatArray) -> float:
    """The mean of (n,) values, summed without rounding, so that it does not depend on their order."""
    return math.fsum(values.tolist()) / len(values)


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval; it unpacks as `low, high = interval`. An end may be infinite, never NaN.

    >>> Interval(0.2, 0.6).contains(0.5)
    True
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if math.isnan(self.low) or math.isnan(self.high) or self.low > self.high:
            raise InputError(f'an interval needs low <= high and no NaN, found [{self.low}, {self.high}]')

    def __iter__(self) -> Iterator[float]:
        yield self.low
        yield self.high

    def __str__(self) -> str:
        return f'[{self.low:.4g}, {self.high:.4g}]'

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def half_width(self) -> float:
        return self.width / 2

    @property
    def center(self) -> float:
        return (self.low + self.high) / 2

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high

    def excludes(self, value: float) -> bool:
        return not self.contains(value)

    def shifted(self, by: float) -> Interval:
        """Both ends moved by so much."""
        return Interval(self.low + by, self.high + by)

    def scaled(self, factor: float) -> Interval:
        """Both ends times `factor`, in order: percent from fractions, a sign turned by -1."""
        ends = sorted((self.low * factor, self.high * factor))
        return Interval(ends[0], ends[1])


@dataclass(frozen=True, slots=True)
class Significance:
    """A test's statistic and p-value, and which alternative it was against."""

    statistic: float
    p_value: float
    alternative: Alternative

    def rejects(self, alpha: float) -> bool:
        return self.p_value <= check_open_unit('alpha', alpha)


# The words in which every comparison of two policies ends.


class Verdict(enum.StrEnum):
    """What may be said of two policies; only the first names a winner."""

    BETTER = 'better'
    DEPENDS = 'depends on the stratum'
    SAME = 'the same within a margin'
    CROSSING = 'different but crossing'
    DIRECTION_UNRESOLVED = 'different, direction unresolved'
    UNRESOLVED = 'unresolved'


# The standard normal distribution, accurate in both tails and without scipy.

STANDARD = NormalDist()


def normal_quantile(probability: float) -> float:
    """Z with P(Z <= z) = probability."""
    return STANDARD.inv_cdf(check_open_unit('probability', probability))


def two_sided_z(level: float) -> float:
    """The z of a two-sided interval at `level`: 1.95996 for 0.95."""
    return -STANDARD.inv_cdf((1 - check_open_unit('level', level)) / 2)


def normal_cdf(z: float) -> float:
    """P(Z <= z), with full relative accuracy in the lower tail."""
    return math.erfc(-z / math.sqrt(2)) / 2


def normal_p_value(z: float, alternative: Alternative) -> float:
    """The p-value of a standard normal statistic; z may be infinite."""
    if alternative == 'greater':
        return normal_cdf(-z)
    if alternative == 'less':
        return normal_cdf(z)
    return min(1.0, 2 * normal_cdf(-abs(z)))


FEWEST_PER_CELL = 3
FEWEST_STRATA = 3  # for an interval of new strata
SMALLEST_P = 1e-12
HALVINGS = 60
Numbers = FloatArray | float
ENDLESS = 1e12  # degrees of freedom from which t is normal


@dataclass(frozen=True, slots=True, eq=False)
class MacroArm:
    """One policy's means of a bounded quantity, one per stratum, and the units behind each.

    `is_linked` says that units reach over several strata (sessions, operators): one unseen then moves them all.
    """

    means: FloatArray  # (strata,)
    low: FloatArray  # (strata,) the smallest value there can be
    high: FloatArray  # (strata,) the largest
    n_units: FloatArray  # (strata,) units that were followed to the end
    is_linked: bool = False

    @property
    def value(self) -> float:
        return math.fsum(self.means.tolist()) / len(self.means)

    def unseen(self, end: FloatArray) -> float:
        """How far one unit at `end` would move the macro mean, in the stratum where it would move it most."""
        n = len(self.means) * self.n_units
        endless = np.full(len(self.means), math.inf)  # where nobody was followed, nothing is known
        moves = np.divide(np.abs(end - self.means), n, out=endless, where=n > 0)
        return float(moves.sum() if self.is_linked else moves.max())

    def unseen_anywhere(self, end: FloatArray) -> float:
        """How far one unit at `end` would move it, all strata taken as one."""
        if self.is_linked:
            return self.unseen(end)
        n = float(self.n_units.sum())
        return abs(float(end.mean()) - self.value) / n if n else math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """The variance of a macro quantity as a sum of independent estimated terms, each with its degrees of freedom."""

    terms: FloatArray  # (k,)
    dof: FloatArray  # (k,)

    @property
    def variance(self) -> float:
        return math.fsum(self.terms.tolist())

    def degrees(self, unseen: float) -> float:
        """Satterthwaite's degrees of freedom with `unseen` added to the variance as a known part."""
        # Exact sums, so that the order of arms and strata changes no digit.
        below = math.fsum((self.terms**2 / self.dof).tolist())
        degrees = (self.variance + unseen) ** 2 / below if below > 0 else ENDLESS
        return min(max(degrees, float(self.dof.min())), ENDLESS)


def satterthwaite(terms: FloatArray, dof: FloatArray, unseen: Numbers) -> FloatArray:
    """(...,) degrees of freedom of sums (..., k) of variances, at least the fewest of any term."""
    total = terms.sum(axis=-1) + unseen
    below = (terms**2 / dof).sum(axis=-1)
    with np.errstate(divide='ignore', invalid='ignore'):
        degrees = np.where(below > 0, total**2 / below, ENDLESS)
    return np.clip(degrees, dof.min(axis=-1), ENDLESS)


def reaches(variance: Numbers, degrees: Numbers, unseen: Numbers, alpha: float) -> FloatArray:
    """T times the standard error, two-sided at alpha, with the allowance inside; arrays broadcast."""
    from robotrials.stats.special import ndtri, stdtrit

    high = 1 - alpha / 2
    t = np.where(degrees >= ENDLESS, ndtri(high), stdtrit(np.minimum(degrees, ENDLESS), high))
    return t * np.sqrt(variance + unseen)


def allowance_z(alpha: float) -> float:
    """The z of the allowance: one-sided, because errors by unseen units all fall on one side."""
    return max(0.0, STANDARD.inv_cdf(1 - alpha))


def reach(spread: Spread, moved: float, alpha: float) -> float:
    """How far from the estimate the rule looks; `moved` is the sum of squared moves of one unseen unit an arm."""
    unseen = allowance_z(alpha) ** 2 * moved
    return float(reaches(spread.variance, spread.degrees(unseen), unseen, alpha))


def smallest_alpha(gap: float, bound: Callable[[float], float]) -> float:
    """The smallest alpha at which `gap` exceeds bound(alpha), by bisection on its logarithm; 1 where none does."""
    if not gap > 0:
        return 1.0
    low, high = math.log(SMALLEST_P), 0.0
    if gap > bound(SMALLEST_P):
        return SMALLEST_P
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if gap > bound(math.exp(middle)) else (middle, high)
    return math.exp(high)


@dataclass(frozen=True, slots=True, eq=False)
class MacroDifference:
    """Second minus first macro mean: positive says that the first is lower (sooner, where the quantity is a time).

    `p_value` is two-sided: the smallest alpha at which the rule calls the sign.
    """

    difference: float
    variance: float
    moved_low: float  # squared moves by one unseen unit an arm, towards a smaller difference
    moved_high: float  # and towards a larger one
    spread: Spread

    def interval(self, level: float = 0.95) -> Interval:
        alpha = 1 - check_open_unit('level', level)
        below, above = (reach(self.spread, moved, alpha) for moved in (self.moved_low, self.moved_high))
        return Interval(self.difference - below, self.difference + above)

    @property
    def p_value(self) -> float:
        moved = self.moved_low if self.difference > 0 else self.moved_high
        return smallest_alpha(abs(self.difference), lambda alpha: reach(self.spread, moved, alpha))

    def p_above(self, threshold: float) -> float:
        """The smallest alpha at which the interval of level 1 - alpha lies above `threshold`."""
        return smallest_alpha(self.difference - threshold, lambda alpha: reach(self.spread, self.moved_low, alpha))

    def p_below(self, threshold: float) -> float:
        """The smallest alpha at which the interval of level 1 - alpha lies below `threshold`."""
        return smallest_alpha(threshold - self.difference, lambda alpha: reach(self.spread, self.moved_high, alpha))

    def p_within(self, margin: float) -> float:
        """The p-value of "the difference is at least `margin` either way" (two one-sided tests).

        Taken at the whole alpha from the interval of level 1 - alpha: the allowance holds one-sided at alpha, not at
        twice that.
        """
        if not (math.isfinite(margin) and margin > 0):
            raise InputError(f'margin must be a finite number over 0, found {margin}')
        return max(self.p_above(-margin), self.p_below(margin))

    def degrees(self, alpha: float) -> float:
        """With the rule's allowance for the sign that the difference has."""
        return self.spread.degrees(
            allowance_z(alpha) ** 2 * (self.moved_low if self.difference > 0 else self.moved_high)
        )


def macro_difference(first: MacroArm, second: MacroArm, spread: Spread) -> MacroDifference:
    """The rule's difference second - first from two arms over the same strata and the variance of their contrast."""
    if len(first.means) != len(second.means):
        raise InputError(f'both arms need the same strata, found {len(first.means)} and {len(second.means)}')
    return MacroDifference(
        difference=second.value - first.value,
        variance=spread.variance,
        moved_low=_moved(first, first.high, second, second.low),
        moved_high=_moved(first, first.low, second, second.high),
        spread=spread,
    )


def _moved(first: MacroArm, first_end: FloatArray, second: MacroArm, second_end: FloatArray) -> float:
    """The squared move of the difference by one unseen unit an arm, or in one stratum alone where that is more."""
    together = first.unseen_anywhere(first_end) ** 2 + second.unseen_anywhere(second_end) ** 2
    return max(together, first.unseen(first_end) ** 2, second.unseen(second_end) ** 2)


def macro_interval(arm: MacroArm, spread: Spread, *, level: float = 0.95) -> Interval:
    """The rule's interval of one policy's macro mean, kept within the scale."""
    alpha = 1 - check_open_unit('level', level)
    below, above = (reach(spread, arm.unseen(end) ** 2, alpha) for end in (arm.low, arm.high))
    floor, ceiling = float(arm.low.mean()), float(arm.high.mean())
    return Interval(max(arm.value - below, floor), min(arm.value + above, ceiling))


def new_strata_spread(values: FloatArray, spread: Spread) -> Spread:
    """The variance of a macro value as one for strata yet to come: that between strata, or within if it is larger."""
    strata = check_count('strata', len(values), least=FEWEST_STRATA)
    between = float(np.var(values, ddof=1)) / strata
    return Spread(np.array([max(between, spread.variance)]), np.array([strata - 1.0]))


def fewest_units(n_pairs: int = 1, *, alpha: float = 0.05) -> int:
    """Units a policy below which no pair can be called, however far apart: sqrt(2) K, rounded up.

    >>> fewest_units(1), fewest_units(6), fewest_units(15)
    (5, 9, 12)
    """
    return math.ceil(math.sqrt(2) * allowance_factor(n_pairs, alpha=alpha))


def allowance_factor(n_pairs: int = 1, *, alpha: float = 0.05) -> float:
    """K: the moves of one unseen unit that a difference must exceed when nothing varies; Bonferroni over pairs.

    >>> [round(allowance_factor(k), 1) for k in (1, 6, 15)]
    [3.2, 6.3, 8.0]
    """
    each = check_open_unit('alpha', alpha) / check_count('n_pairs', n_pairs, least=1)
    return STANDARD.inv_cdf(1 - each / 2) * STANDARD.inv_cdf(1 - each)


# Intervals from bootstrap draws.

TIE_SLACK = 1e-12
BootstrapMethod = Literal['percentile', 'bca']


def bootstrap_interval(
    estimate: float,
    draws: FloatArray,
    *,
    level: float = 0.95,
    method: BootstrapMethod = 'percentile',
    jackknife: FloatArray | None = None,
    strata: ArrayLike | None = None,
) -> Interval:
    """The percentile or BCa interval (Efron 1987) from bootstrap draws; BCa needs the leave-one-cluster-out statistics.

    Infinite draws are allowed (a median that was not reached); NaN draws raise NotEstimable.
    """
    tail = (1 - check_open_unit('level', level)) / 2
    draws = np.sort(np.asarray(draws, dtype=np.float64))
    missing = int(np.isnan(draws).sum())
    if missing or draws.size == 0:
        raise NotEstimable(f'the statistic does not exist in {missing} of {draws.size} resamples; too few clusters')
    if method == 'percentile':
        return Interval(_quantile(draws, tail), _quantile(draws, 1 - tail))
    if method != 'bca':
        raise InputError(f"method must be 'percentile' or 'bca', found {method!r}")
    if jackknife is None:
        raise InputError('BCa needs jackknife: the statistic with each cluster left out')
    # A draw that equals the estimate but for rounding is a tie: which side it falls on must not be the rounding's.
    slack = TIE_SLACK * max(abs(estimate), abs(float(draws[0])), abs(float(draws[-1])))
    slack = slack if math.isfinite(slack) else TIE_SLACK * abs(estimate)
    low, high = np.searchsorted(draws, estimate - slack), np.searchsorted(draws, estimate + slack, side='right')
    below = float(low + high) / 2 / draws.size
    if not 0 < below < 1:
        raise NotEstimable('BCa needs resamples on both sides of the estimate; use more resamples, or percentile')
    z0, a = normal_quantile(below), acceleration(jackknife, strata=strata)
    ends = []
    for z in (normal_quantile(tail), normal_quantile(1 - tail)):
        stretch = 1 - a * (z0 + z)
        # Beyond this the transformation folds back; the interval then reaches to the last draw.
        ends.append(normal_cdf(z0 + (z0 + z) / stretch) if stretch > 0 else float(z > 0))
    return Interval(_quantile(draws, ends[0]), _quantile(draws, ends[1]))


def acceleration(jackknife: FloatArray, *, strata: ArrayLike | None = None) -> float:
    """BCa's acceleration from leave-one-cluster-out statistics, strata as separate samples (Davison & Hinkley 5.3)."""
    left = np.asarray(jackknife, dtype=np.float64)
    if not np.isfinite(left).all():
        raise NotEstimable('the statistic does not exist with some cluster left out; use the percentile interval')
    code = np.zeros(left.size, dtype=np.int64) if strata is None else np.unique(strata, return_inverse=True)[1]
    size = np.bincount(code)
    left = left - left.mean()  # so that sums lose nothing to a large common part
    influence = ((size - 1) / size)[code] * ((np.bincount(code, weights=left) / size)[code] - left)
    squares = float(np.sum(influence**2))
    return float(np.sum(influence**3)) / (6 * squares**1.5) if squares > 0 else 0.0


def _quantile(ordered: FloatArray, probability: float) -> float:
    """Linear interpolation between order statistics; next to an infinite one, that one."""
    position = min(max(probability, 0.0), 1.0) * (ordered.size - 1)
    i = min(math.floor(position), ordered.size - 1)
    low, high = float(ordered[i]), float(ordered[min(i + 1, ordered.size - 1)])
    share = position - i
    if share == 0 or low == high:
        return low
    if math.isinf(high):
        return high
    return low if math.isinf(low) else low + share * (high - low)
