"""An interval with its two ends, and a test's outcome with its evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from robotrials.errors import InputError
from robotrials.stats.argument import Alternative, check_open_unit


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
