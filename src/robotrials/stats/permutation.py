"""Permutation tests: sign flips for pairs, labels for independent arms, within strata.

The null distribution is exact (by convolution) for whole-number scores while the lattice is small, else Monte Carlo
with the observed arrangement counted among the resamples (Phipson and Smyth 2010), so that p is never 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError
from robotrials.stats.argument import (
    Alternative,
    FloatArray,
    IntArray,
    check_alternative,
    check_count,
    check_rng,
    stratify,
)
from robotrials.stats.wald import matched_strata

LATTICE_LIMIT = 200_000
WORK_LIMIT = 50_000_000
ENTRIES_LIMIT = 4_000_000


@dataclass(frozen=True, slots=True)
class Permutation:
    """A permutation test of a mean difference; `exact` says whether every arrangement was counted."""

    estimate: float
    p_value: float
    alternative: Alternative
    exact: bool
    n_resamples: int | None


def sign_flip(
    differences: ArrayLike,
    *,
    strata: ArrayLike | None = None,
    alternative: Alternative = 'two-sided',
    n_resamples: int = 9_999,
    rng: np.random.Generator | None = None,
) -> Permutation:
    """The paired test by sign flips; the statistic is the mean over strata of their mean differences.

    Under the null that the pair's members are exchangeable each difference is as likely positive as negative. For
    single-stratum binary pairs this is the exact McNemar test. `rng` is needed only where the exact count is too large.
    """
    alternative = check_alternative(alternative)
    parts = stratify('differences', differences, strata)
    estimate = _macro_mean(parts)
    scaled = _on_lattice(parts)
    if scaled is not None:
        steps = np.abs(np.concatenate(scaled))
        steps = steps[steps > 0]
        reach = int(steps.sum())
        if reach <= LATTICE_LIMIT and reach * steps.size <= WORK_LIMIT:
            chances = _flip_distribution(steps, reach)
            observed = sum(int(part.sum()) for part in scaled)
            return Permutation(
                estimate, _lattice_p_value(chances, reach, observed, alternative), alternative, True, None
            )
    weights = np.concatenate([part / (part.size * len(parts)) for part in parts])
    draws = _monte_carlo_flips(weights, check_count('n_resamples', n_resamples, least=1), _needed(rng))
    return Permutation(estimate, _plus_one(draws, estimate, alternative), alternative, False, n_resamples)


def label_permutation(
    a: ArrayLike,
    b: ArrayLike,
    *,
    strata_a: ArrayLike | None = None,
    strata_b: ArrayLike | None = None,
    alternative: Alternative = 'two-sided',
    n_resamples: int = 9_999,
    rng: np.random.Generator | None = None,
) -> Permutation:
    """The test of mean(a) - mean(b) by permuting labels within strata, each stratum of equal weight.

    Exact for whole-number scores of moderate size (for binary scores of one stratum it is Fisher's test, two-sided by
    the size of the difference); else Monte Carlo, which needs `rng`.
    """
    alternative = check_alternative(alternative)
    pairs = matched_strata(a, b, strata_a, strata_b)
    estimate = math.fsum(float(pa.mean() - pb.mean()) for pa, pb in pairs) / len(pairs)
    exact = _exact_labels(pairs, alternative)
    if exact is not None:
        return Permutation(estimate, exact, alternative, True, None)
    n_resamples = check_count('n_resamples', n_resamples, least=1)
    draws = _monte_carlo_labels(pairs, n_resamples, _needed(rng))
    return Permutation(estimate, _plus_one(draws, estimate, alternative), alternative, False, n_resamples)


def _needed(rng: np.random.Generator | None) -> np.random.Generator:
    if rng is None:
        raise InputError('too many arrangements to count all; pass rng=numpy.random.default_rng(seed) for Monte Carlo')
    return check_rng(rng)


def _macro_mean(parts: list[NDArray[Any]]) -> float:
    return math.fsum(float(part.mean()) for part in parts) / len(parts)


def _on_lattice(parts: list[NDArray[Any]]) -> list[IntArray] | None:
    """Whole-number differences times what makes every stratum weigh the same; None for scores that are not whole."""
    if any(part.dtype.kind != 'i' for part in parts):
        return None
    common = math.lcm(*(part.size for part in parts))
    if common > LATTICE_LIMIT:
        return None
    return [part * (common // part.size) for part in parts]


def _flip_distribution(steps: IntArray, reach: int) -> FloatArray:
    """The chance of each sum of randomly signed steps, over -reach..reach."""
    chances = np.zeros(2 * reach + 1)
    chances[reach] = 1.0
    for step in steps:
        moved = np.zeros_like(chances)
        moved[step:] += chances[:-step]
        moved[:-step] += chances[step:]
        chances = moved / 2
    return chances


def _lattice_p_value(chances: FloatArray, origin: int, observed: int, alternative: Alternative) -> float:
    at = np.arange(chances.size) - origin
    extreme = {'greater': at >= observed, 'less': at <= observed, 'two-sided': np.abs(at) >= abs(observed)}[alternative]
    return min(1.0, float(chances[extreme].sum()))


def _monte_carlo_flips(weighted: FloatArray, n_resamples: int, rng: np.random.Generator) -> FloatArray:
    draws = np.empty(n_resamples)
    batch = max(1, ENTRIES_LIMIT // weighted.size)
    for start in range(0, n_resamples, batch):
        size = min(batch, n_resamples - start)
        signs = np.where(rng.random((size, weighted.size)) < 0.5, -1.0, 1.0)
        draws[start : start + size] = np.einsum('bn,n->b', signs, weighted)
    return draws


def _exact_labels(pairs: list[tuple[NDArray[Any], NDArray[Any]]], alternative: Alternative) -> float | None:
    """The exact p-value by counting subsets stratum by stratum, or None where that is too much work."""
    if any(pa.dtype.kind != 'i' or pb.dtype.kind != 'i' for pa, pb in pairs):
        return None
    common = math.lcm(*(pa.size * pb.size for pa, pb in pairs))
    chances, origin, observed = np.ones(1), 0, 0
    for pa, pb in pairs:
        pool = np.concatenate([pa, pb])
        low = int(pool.min())
        pool = pool - low
        spread, n = int(pool.sum()), pool.size
        # With total W, the difference of means is sum_a (n_a + n_b)/(n_a n_b) - W/n_b: whole after times `common`.
        scale = common // (pa.size * pb.size)
        if n > 1000 or n * pa.size * (spread + 1) > WORK_LIMIT or spread * n * scale > LATTICE_LIMIT:
            return None
        sums = _subset_sums(pool, pa.size, spread)
        values = (np.arange(spread + 1) * n - spread * pa.size) * scale
        spaced = np.zeros(int(values[-1] - values[0]) + 1)
        spaced[values - values[0]] = sums
        if spaced.size + chances.size > LATTICE_LIMIT:
            return None
        chances = _convolve(chances, spaced)
        origin -= int(values[0])
        observed += (int(pa.sum() - low * pa.size) * n - spread * pa.size) * scale
    return _lattice_p_value(chances, origin, observed, alternative)


def _subset_sums(pool: IntArray, size: int, spread: int) -> FloatArray:
    """The chance of each sum of a random subset of `size` members of `pool`."""
    counts = np.zeros((size + 1, spread + 1))
    counts[0, 0] = 1.0
    for value in pool:
        counts[1:, value:] += counts[:-1, : spread + 1 - value].copy()
    chances: FloatArray = counts[size] / math.comb(pool.size, size)
    return chances


def _convolve(a: FloatArray, b: FloatArray) -> FloatArray:
    """Convolution over the non-zero entries of `b`: no cancellation, so that tiny tails keep their accuracy."""
    out = np.zeros(a.size + b.size - 1)
    for i in np.flatnonzero(b):
        out[i : i + a.size] += a * b[i]
    return out


def _monte_carlo_labels(
    pairs: list[tuple[NDArray[Any], NDArray[Any]]], n_resamples: int, rng: np.random.Generator
) -> FloatArray:
    draws = np.zeros(n_resamples)
    for pa, pb in pairs:
        pool = np.concatenate([pa, pb]).astype(np.float64)
        batch = max(1, ENTRIES_LIMIT // pool.size)
        for start in range(0, n_resamples, batch):
            size = min(batch, n_resamples - start)
            shuffled = rng.permuted(np.broadcast_to(pool, (size, pool.size)), axis=1)
            drawn = shuffled[:, : pa.size].mean(axis=1) - shuffled[:, pa.size :].mean(axis=1)
            draws[start : start + size] += drawn / len(pairs)
    return draws


def _plus_one(draws: FloatArray, observed: float, alternative: Alternative) -> float:
    slack = 1e-9 * (1 + abs(observed))
    extreme = {
        'greater': draws >= observed - slack,
        'less': draws <= observed + slack,
        'two-sided': np.abs(draws) >= abs(observed) - slack,
    }[alternative]
    return float(1 + np.count_nonzero(extreme)) / (1 + draws.size)
