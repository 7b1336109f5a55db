"""Intervals of success rates and of their differences, from counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from robotrials.errors import InputError
from robotrials.stats.argument import check_count, check_open_unit, check_successes
from robotrials.stats.interval import Interval
from robotrials.stats.normal import two_sided_z


def wilson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Wilson's score interval of a proportion (JASA 1927).

    >>> print(wilson(7, 10))
    [0.3968, 0.8922]
    """
    x, n = check_successes(successes, n)
    z2 = two_sided_z(level) ** 2
    center = (x + z2 / 2) / (n + z2)
    half = math.sqrt(z2) * math.sqrt(x * (n - x) / n + z2 / 4) / (n + z2)
    # At 0 and n the interval reaches the end exactly; rounding must not leave 1e-17 there.
    return Interval(0.0 if x == 0 else max(0.0, center - half), 1.0 if x == n else min(1.0, center + half))


def wilson_of_share(share: float, n: float, level: float = 0.95) -> Interval:
    """Wilson's interval for a sample size that need not be whole."""
    z2 = two_sided_z(level) ** 2
    center = (n * share + z2 / 2) / (n + z2)
    half = math.sqrt(z2) * math.sqrt(n * share * (1 - share) + z2 / 4) / (n + z2)
    return Interval(min(share, max(0.0, center - half)), max(share, min(1.0, center + half)))


def clustered_wilson(hits: Sequence[int], sizes: Sequence[int], level: float = 0.95) -> Interval:
    """Wilson's interval of sum(hits) / sum(sizes), where trials of one cluster (marks of one episode) are alike.

    The sample size is the number of independent trials that show as much spread between clusters (the ratio estimator's
    variance), times (z / t)^2 for as few clusters as they are (Korn and Graubard, Survey Methodology 1998). Where all
    or none succeed, a cluster counts as one trial. Clusters without a trial say nothing.

    >>> print(clustered_wilson([4, 4, 0, 4, 4], [4, 4, 4, 4, 4]))
    [0.2572, 0.9788]
    """
    if len(hits) != len(sizes):
        raise InputError(f'{len(hits)} hits and {len(sizes)} sizes, wanted one of each per cluster')
    parts = [check_successes(x, n, names=('hits', 'sizes')) for x, n in zip(hits, sizes, strict=True) if n or x]
    if not parts:
        raise InputError('an interval of a share needs at least one trial, found none')
    n, k = sum(n for _, n in parts), len(parts)
    share = sum(x for x, _ in parts) / n
    effective = effective_trials(n, k, share, math.fsum((x - share * m) ** 2 for x, m in parts) / n**2)
    return wilson_of_share(share, effective * _few_clusters(k, level), level)


def effective_trials(n: int, n_clusters: int, rate: float, variance: float) -> float:
    """How many independent trials have this variance of a rate, between as many as clusters and as many as trials."""
    if n_clusters == n:
        return float(n)
    if not 0 < rate < 1 or n_clusters < 2:
        return float(n_clusters)
    clustered = variance * n_clusters / (n_clusters - 1)
    return float(min(max(rate * (1 - rate) / clustered, n_clusters), n)) if clustered > 0 else float(n)


def _few_clusters(n_clusters: int, level: float) -> float:
    from robotrials.stats.special import stdtrit

    if n_clusters < 2:
        return 1.0
    return float(two_sided_z(level) / stdtrit(n_clusters - 1, (1 + level) / 2)) ** 2


def newcombe(x1: int, n1: int, x2: int, n2: int, level: float = 0.95) -> Interval:
    """Newcombe's hybrid score interval of p1 - p2, independent samples (Statistics in Medicine 1998, method 10)."""
    x1, n1 = check_successes(x1, n1, names=('x1', 'n1'))
    x2, n2 = check_successes(x2, n2, names=('x2', 'n2'))
    p1, p2 = x1 / n1, x2 / n2
    first, second = wilson(x1, n1, level), wilson(x2, n2, level)
    low = p1 - p2 - math.hypot(p1 - first.low, second.high - p2)
    high = p1 - p2 + math.hypot(first.high - p1, p2 - second.low)
    return Interval(max(-1.0, low), min(1.0, high))


def newcombe_paired(both: int, only_first: int, only_second: int, neither: int, level: float = 0.95) -> Interval:
    """Newcombe's interval of p1 - p2 for paired proportions (1998, method 10, with the corrected phi)."""
    cells = [
        check_count(name, value)
        for name, value in zip(
            ('both', 'only_first', 'only_second', 'neither'), (both, only_first, only_second, neither), strict=True
        )
    ]
    e, f, g, h = cells
    n = sum(cells)
    if n == 0:
        raise InputError('a paired interval needs at least one pair, found none')
    p1, p2 = (e + f) / n, (e + g) / n
    first, second = wilson(e + f, n, level), wilson(e + g, n, level)
    phi = _newcombe_phi(e, f, g, h)
    dl1, du1, dl2, du2 = p1 - first.low, first.high - p1, p2 - second.low, second.high - p2
    low = p1 - p2 - math.sqrt(max(0.0, dl1**2 - 2 * phi * dl1 * du2 + du2**2))
    high = p1 - p2 + math.sqrt(max(0.0, du1**2 - 2 * phi * du1 * dl2 + dl2**2))
    return Interval(max(-1.0, low), min(1.0, high))


def _newcombe_phi(e: int, f: int, g: int, h: int) -> float:
    margins = (e + f) * (g + h) * (e + g) * (f + h)
    if margins == 0:
        return 0.0
    numerator: float = e * h - f * g
    if numerator > 0:
        numerator = max(numerator - (e + f + g + h) / 2, 0)
    return numerator / math.sqrt(margins)


def clopper_pearson(successes: int, n: int, level: float = 0.95) -> Interval:
    """The exact (conservative) interval of Clopper and Pearson (Biometrika 1934)."""
    from robotrials.stats.special import betaincinv

    x, n = check_successes(successes, n)
    tail = (1 - check_open_unit('level', level)) / 2
    low = 0.0 if x == 0 else float(betaincinv(x, n - x + 1, tail))
    high = 1.0 if x == n else float(betaincinv(x + 1, n - x, 1 - tail))
    return Interval(low, high)


def jeffreys(successes: int, n: int, level: float = 0.95) -> Interval:
    """The equal-tailed Jeffreys interval, reaching 0 or 1 when nothing or everything succeeded (Brown et al. 2001)."""
    from robotrials.stats.special import betaincinv

    x, n = check_successes(successes, n)
    tail = (1 - check_open_unit('level', level)) / 2
    low = 0.0 if x == 0 else float(betaincinv(x + 0.5, n - x + 0.5, tail))
    high = 1.0 if x == n else float(betaincinv(x + 0.5, n - x + 0.5, 1 - tail))
    return Interval(low, high)
