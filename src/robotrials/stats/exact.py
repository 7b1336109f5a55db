"""Exact tests of two success rates: McNemar for pairs, Barnard for independent arms."""

from __future__ import annotations

import math

import numpy as np

from robotrials.stats.argument import (
    Alternative,
    BoolArray,
    FloatArray,
    check_alternative,
    check_count,
    check_open_unit,
    check_successes,
)
from robotrials.stats.interval import Significance

NUISANCE_GRID = 513
NUISANCE_REFINEMENTS = 6


def exact_mcnemar(
    only_first: int, only_second: int, *, alternative: Alternative = 'two-sided', mid_p: bool = False
) -> Significance:
    """McNemar's test from the two discordant counts, by the binomial distribution; p = 1 when no pair disagrees.

    'greater' is "the first succeeds more often". `mid_p` counts the observed table half (Fagerland et al. 2013): nearer
    to nominal, no longer guaranteed. The statistic is only_first - only_second.
    """
    b, c = check_count('only_first', only_first), check_count('only_second', only_second)
    n = b + c
    observed = binomial_pmf(n, 0.5)
    upper, lower = float(observed[b:].sum()), float(observed[: b + 1].sum())
    half = float(observed[b]) / 2 if mid_p else 0.0
    tails = {'greater': upper - half, 'less': lower - half, 'two-sided': 2 * (min(upper, lower) - half)}
    p = tails[check_alternative(alternative)]
    return Significance(float(b - c), min(1.0, p), alternative)


def barnard(
    x1: int, n1: int, x2: int, n2: int, *, alternative: Alternative = 'two-sided', pooled: bool = True
) -> Significance:
    """Barnard's unconditional exact test of p1 = p2 with the Wald statistic as its order (Suissa and Shuster 1985).

    The p-value is the largest chance, over the common rate, of a table at least as extreme: the supremum is taken over
    a grid that is refined around its highest points. 'greater' is p1 > p2.
    """
    x1, n1 = check_successes(x1, n1, names=('x1', 'n1'))
    x2, n2 = check_successes(x2, n2, names=('x2', 'n2'))
    order = wald_order(n1, n2, pooled=pooled)
    region = as_extreme(order, float(order[x1, x2]), check_alternative(alternative))
    return Significance(float(order[x1, x2]), unconditional_size(region), alternative)


def barnard_p_values(n1: int, n2: int, *, alternative: Alternative = 'two-sided', pooled: bool = True) -> FloatArray:
    """Barnard's p-value of every table, (n1 + 1, n2 + 1); tables of one statistic share one value."""
    n1, n2 = check_count('n1', n1, least=1), check_count('n2', n2, least=1)
    alternative = check_alternative(alternative)
    order = wald_order(n1, n2, pooled=pooled)
    signed = {'greater': order, 'less': -order, 'two-sided': np.abs(order)}[alternative]
    flat = np.argsort(-signed, axis=None, kind='stable')
    values = signed.ravel()[flat]
    starts = np.flatnonzero(np.r_[True, values[:-1] - values[1:] > _slack(values[1:])])
    groups = np.split(flat, starts[1:])
    rates = _nuisance_grid()
    first, second = binomial_pmf_table(n1, rates), binomial_pmf_table(n2, rates)
    rejected = np.zeros(rates.size)
    p_values = np.empty(order.size)
    for group in groups:
        i, j = np.unravel_index(group, order.shape)
        rejected += (first[:, i] * second[:, j]).sum(axis=1)
        p_values[group] = rejected.max()
    return np.minimum(1.0, p_values).reshape(order.shape)


def barnard_region(n1: int, n2: int, *, alpha: float, alternative: Alternative = 'two-sided') -> BoolArray:
    """Which tables Barnard's test rejects at alpha, (n1 + 1, n2 + 1): the largest region of size at most alpha."""
    n1, n2 = check_count('n1', n1, least=1), check_count('n2', n2, least=1)
    alpha = check_open_unit('alpha', alpha)
    order = wald_order(n1, n2)
    signed = {'greater': order, 'less': -order, 'two-sided': np.abs(order)}[check_alternative(alternative)]
    values = np.sort(signed, axis=None)
    edges = values[np.r_[True, np.diff(values) > _slack(values[1:])]]
    low, high = 0, edges.size  # the size falls as the edge rises; edges.size rejects nothing
    while low < high:
        middle = (low + high) // 2
        if unconditional_size(as_extreme(signed, float(edges[middle]), 'greater')) <= alpha:
            high = middle
        else:
            low = middle + 1
    if low == edges.size:
        return np.zeros(order.shape, dtype=np.bool_)
    return as_extreme(signed, float(edges[low]), 'greater')


def wald_order(n1: int, n2: int, *, pooled: bool = True) -> FloatArray:
    """The z of p1 - p2 for every table (n1 + 1, n2 + 1); 0 where both arms are all failures or all successes."""
    p1, p2 = np.arange(n1 + 1)[:, None] / n1, np.arange(n2 + 1)[None, :] / n2
    if pooled:
        mean = (np.arange(n1 + 1)[:, None] + np.arange(n2 + 1)[None, :]) / (n1 + n2)
        variance = mean * (1 - mean) * (1 / n1 + 1 / n2)
    else:
        variance = p1 * (1 - p1) / n1 + p2 * (1 - p2) / n2
    with np.errstate(invalid='ignore', divide='ignore'):
        z: FloatArray = np.where(p1 == p2, 0.0, (p1 - p2) / np.sqrt(variance))
    return z


def as_extreme(order: FloatArray, observed: float, alternative: Alternative) -> BoolArray:
    """The tables at least as extreme as the observed statistic, ties within rounding included."""
    signed = {'greater': order, 'less': -order, 'two-sided': np.abs(order)}[alternative]
    edge = {'greater': observed, 'less': -observed, 'two-sided': abs(observed)}[alternative]
    region: BoolArray = signed >= edge - _slack(np.asarray(edge))
    return region


def unconditional_size(region: BoolArray) -> float:
    """The largest chance, over a common success rate, that a table falls into `region` (n1 + 1, n2 + 1)."""
    rates = _nuisance_grid()
    best, step = 0.0, float(np.max(np.diff(rates)))
    for _ in range(NUISANCE_REFINEMENTS):
        chances = region_chance(region, rates, rates)
        best = max(best, float(chances.max()))
        centres = rates[np.argsort(chances)[-5:]]
        rates = np.unique(np.clip(centres[:, None] + np.linspace(-step, step, 21), 0, 1))
        step /= 10
    return min(1.0, best)


def region_chance(region: BoolArray, rates1: FloatArray, rates2: FloatArray) -> FloatArray:
    """The chance of a table in `region` at each pair of success rates."""
    first = binomial_pmf_table(region.shape[0] - 1, rates1)
    second = binomial_pmf_table(region.shape[1] - 1, rates2)
    chances: FloatArray = np.einsum('ri,ri->r', first @ region, second)
    return chances


def binomial_pmf(n: int, rate: float) -> FloatArray:
    """The binomial probabilities of 0..n successes."""
    table: FloatArray = binomial_pmf_table(n, np.array([rate]))[0]
    return table


def binomial_pmf_table(n: int, rates: FloatArray) -> FloatArray:
    """The binomial probabilities (rates, n + 1), accurate at rates 0 and 1."""
    from robotrials.stats.special import gammaln, xlog1py, xlogy

    k = np.arange(n + 1)
    log_choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    table: FloatArray = np.exp(log_choose + xlogy(k, rates[:, None]) + xlog1py(n - k, -rates[:, None]))
    return table


def _nuisance_grid() -> FloatArray:
    """Rates in [0, 1], dense at the ends, where the chance of a region moves fastest."""
    return (1 - np.cos(np.linspace(0, math.pi, NUISANCE_GRID))) / 2


def _slack(values: FloatArray) -> FloatArray:
    finite = np.where(np.isfinite(values), np.abs(values), 0.0)
    return 1e-10 * (1 + finite)
