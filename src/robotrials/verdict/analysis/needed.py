"""How many units per cell a pair would need, if the truth is what the data show."""

from __future__ import annotations

import math
from dataclasses import dataclass

from robotrials.stats import Interval
from robotrials.stats.allowance import allowance_z
from robotrials.stats.normal import STANDARD

POWER = 0.8
MOST_TIMES = 10_000.0
HALVINGS = 60


@dataclass(frozen=True, slots=True)
class NeededUnits:
    """Units per cell for the power asked; infinite when the data show no difference.

    `low` is what the far end of the difference's interval would need, `high` what the near end would (infinite where
    the interval includes no difference).
    """

    n: float
    low: float
    high: float
    power: float
    alpha: float


def needed_units(
    *, difference: float, interval: Interval | None, variance: float, moved: float, per_cell: float, alpha: float,
    power: float = POWER,
) -> NeededUnits:  # fmt: skip
    """Solve for the multiple of today's units at which the rule would call the difference with this power.

    `variance` is that of the difference today and `moved` the squared move by one unseen unit; both shrink as units
    are added (by the multiple, and by its square). `alpha` is that of the first step of the correction over pairs.
    """

    def solve(gap: float) -> float:
        if gap <= 0 or not math.isfinite(gap):
            return math.inf
        z, z_u, z_power = STANDARD.inv_cdf(1 - alpha / 2), allowance_z(alpha), STANDARD.inv_cdf(power)

        def reaches(times: float) -> bool:
            v, u = variance / times, z_u**2 * moved / times**2
            return gap >= z * math.sqrt(v + u) + z_power * math.sqrt(v)

        if not reaches(MOST_TIMES):
            return math.inf
        low, high = 1 / MOST_TIMES, MOST_TIMES
        for _ in range(HALVINGS):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if reaches(middle) else (middle, high)
        return float(math.ceil(high * per_cell - 1e-9))

    size = abs(difference)
    if interval is None:
        return NeededUnits(solve(size), 0.0, math.inf, power, alpha)
    ends = (interval.low, interval.high) if difference >= 0 else (-interval.high, -interval.low)
    far, near = max(abs(ends[0]), abs(ends[1])), ends[0]
    return NeededUnits(solve(size), solve(far), solve(near), power, alpha)
