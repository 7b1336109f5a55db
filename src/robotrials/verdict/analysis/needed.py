"""How many units per cell a pair would need, if the truth is what the data show."""

from __future__ import annotations

import math
from dataclasses import dataclass

from robotrials.stats import Interval
from robotrials.stats.allowance import ENDLESS
from robotrials.stats.normal import STANDARD
from robotrials.stats.unseen import unseen_reach

POWER = 0.8
MOST_TIMES = 10_000.0
HALVINGS = 60


@dataclass(frozen=True, slots=True)
class NeededUnits:
    """Units per cell for the power asked; infinite when the data show no difference.

    `low` is what the far end of the estimate's interval would need, `high` what the near end would (infinite where the
    interval includes no difference).
    """

    n: float
    low: float
    high: float
    power: float
    alpha: float


def needed_units(
    *, gap: float, interval: Interval | None, variance: float, n_star: float, n_cells: int, alpha: float,
    power: float = POWER,
) -> NeededUnits:  # fmt: skip
    """Solve for the multiple of today's units at which R would call the gap with this power.

    `gap` is how far the estimate is from "level" and `interval` that of the signed gap; the variance shrinks by the
    multiple, N* grows by it. `alpha` is that of the first step of the correction.
    """

    def solve(size: float) -> float:
        if size <= 0 or not math.isfinite(size):
            return math.inf
        z_power = STANDARD.inv_cdf(power)

        def reaches(times: float) -> bool:
            v = variance / times
            return size >= float(unseen_reach(v, ENDLESS, n_star * times, alpha)) + z_power * math.sqrt(v)

        if not reaches(MOST_TIMES):
            return math.inf
        low, high = 1 / MOST_TIMES, MOST_TIMES
        for _ in range(HALVINGS):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if reaches(middle) else (middle, high)
        return float(math.ceil(high * n_star / n_cells - 1e-9))

    if interval is None:
        return NeededUnits(solve(gap), 0.0, math.inf, power, alpha)
    low, high = interval.low, interval.high
    if abs(low) > abs(high):
        low, high = -high, -low
    return NeededUnits(solve(gap), solve(high), solve(low), power, alpha)
