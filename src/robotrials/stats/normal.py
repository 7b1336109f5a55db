"""The standard normal distribution, accurate in both tails and without scipy."""

from __future__ import annotations

import math
from statistics import NormalDist

from robotrials.stats.argument import Alternative, check_open_unit

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
