"""An interval with its two ends, the normal distribution behind many, and the words a comparison ends in."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from statistics import NormalDist

from robotrials.errors import InputError
from robotrials.stats.argument import Alternative, check_open_unit
from robotrials.value import dataclass


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
