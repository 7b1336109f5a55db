"""A number with its interval, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from robotrials.stats.interval import Interval
from robotrials.stats.proportion import wilson


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with the interval that is shown by default; what cannot be estimated is None, and `note` says why.

    `percentile` and `bca` are bootstrap intervals by name, where they were worked out.
    """

    value: float | None
    interval: Interval | None = None
    note: str = ''
    n: int | None = None  # units behind it
    percentile: Interval | None = None
    bca: Interval | None = None

    def excludes(self, null: float) -> bool:
        """Whether the interval leaves out `null`."""
        return self.interval is not None and self.interval.excludes(null)


def absent_estimate(note: str) -> Estimate:
    """An estimate that does not exist, and why."""
    return Estimate(None, note=note)


@dataclass(frozen=True, slots=True)
class Rate:
    """A count over a number of trials, with its Wilson interval. No rate exists over nothing.

    >>> Rate(14, 20).value
    0.7
    """

    count: int
    n: int
    level: float = 0.95

    @property
    def value(self) -> float | None:
        return self.count / self.n if self.n else None

    @property
    def interval(self) -> Interval | None:
        return wilson(self.count, self.n, self.level) if self.n else None
