"""Betting on a bounded mean: capital that can only grow against a false claim, and the intervals it leaves.

For values in [-1, 1] and a claimed mean m, a gambler who stakes the share c of what can be lost gains the factor
1 + c (x - m) / (1 + m) at each value (upwards; downwards by symmetry). If the mean is at most m the expected factor is
at most 1, so the capital, averaged over a fixed prior of shares, is an e-process: by Ville's inequality it ever reaches
1/a with chance at most a, however often one looks (Waudby-Smith & Ramdas, JRSS-B 2024; Robbins 1970 for the mixture).

Values may come in rounds of one from each stratum. With one share a round, the factors of a round multiply to an
e-value for the claim "the mean over strata is at most m" whatever the strata's own means, since by the inequality of
the arithmetic and geometric means prod_t (1 + g (mu_t - m)) <= (1 + g (mean_t mu_t - m))^T <= 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError
from robotrials.stats.argument import FloatArray, check_open_unit

SHARES = 48
LARGEST_SHARE = 0.98
SMALLEST_SHARE = 0.004
BISECTIONS = 32
EDGE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """Shares that are staked, and the part of the capital on each; fixed before the first value."""

    shares: FloatArray
    weights: FloatArray


def betting_prior(alpha: float, *, horizon: int | None = None, smallest_difference: float | None = None) -> Prior:
    """Shares spaced evenly in their logarithm, down to the smallest that can pay within the horizon.

    The best share for a mean d with variance v is about d / v, and for n values about sqrt(2 log(1/alpha) / (v n));
    what is staked below that is lost. Any prior is valid; a declared horizon or difference makes it a better one.
    """
    least = SMALLEST_SHARE
    if horizon is not None:
        least = max(least, 0.7 * math.sqrt(4 * math.log(1 / check_open_unit('alpha', alpha)) / horizon))
    if smallest_difference is not None:
        least = max(least, smallest_difference)
    shares = np.geomspace(min(least, 0.5), LARGEST_SHARE, SHARES)
    return Prior(shares, np.full(SHARES, 1 / SHARES))


def log_capital(values: FloatArray, counts: FloatArray, claimed: FloatArray, prior: Prior) -> FloatArray:
    """The log of the capital against "the mean is at most `claimed`", one a row.

    `values` (U,) are the distinct values in [-1, 1], `counts` (L, U) how often each was seen by each look, `claimed`
    (L,) one claim a look, over -1. Falls as the claim rises.
    """
    out = np.empty(claimed.size)
    log_weights = np.log(prior.weights)
    rows = max(1, 2_000_000 // (values.size * prior.shares.size))
    for start in range(0, claimed.size, rows):
        part = slice(start, start + rows)
        gains = (values[None, :] - claimed[part, None]) / (1 + claimed[part, None])
        factors = np.log1p(prior.shares[None, :, None] * gains[:, None, :])
        out[part] = _log_sum_exp(np.einsum('lju,lu->lj', factors, counts[part]) + log_weights)
    return out


def log_capital_path(values: FloatArray, prior: Prior) -> FloatArray:
    """The log of the capital against "the mean is at most 0" before any value and after each, (n + 1,)."""
    out = np.zeros(values.size + 1)
    held = np.log(prior.weights)
    batch = max(1, 2_000_000 // prior.shares.size)
    for start in range(0, values.size, batch):
        part = values[start : start + batch]
        path = held + np.cumsum(np.log1p(prior.shares[None, :] * part[:, None]), axis=0)
        out[start + 1 : start + 1 + part.size] = _log_sum_exp(path)
        held = path[-1]
    return out


def lower_bound(values: FloatArray, counts: FloatArray, *, alpha: float, prior: Prior) -> FloatArray:
    """The lower confidence sequence of the mean, one bound a row of `counts`: each claim below it was bet to ruin."""
    goal = math.log(1 / alpha)
    low, high = np.full(counts.shape[0], -1 + EDGE), np.ones(counts.shape[0])
    alive = log_capital(values, counts, low, prior) >= goal
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        refuted = log_capital(values, counts, middle, prior) >= goal
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
    return np.where(alive, low, -1.0)


def mean_bounds(values: FloatArray, counts: FloatArray, *, alpha: float, prior: Prior) -> tuple[FloatArray, FloatArray]:
    """The two-sided confidence sequence: lower and upper bounds, each with half of alpha."""
    if values.size and (values.min() < -1 or values.max() > 1):
        raise InputError(f'values must lie in [-1, 1] after scaling, found {values.min()} to {values.max()}')
    return (
        lower_bound(values, counts, alpha=alpha / 2, prior=prior),
        -lower_bound(-values, counts, alpha=alpha / 2, prior=prior),
    )


def _log_sum_exp(rows: FloatArray) -> FloatArray:
    top = rows.max(axis=1)
    total: FloatArray = top + np.log(np.exp(rows - top[:, None]).sum(axis=1))
    return total
