"""Tests and intervals of mean differences: large-sample ones, and permutations within strata."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.stats.interval import (
    Alternative,
    FloatArray,
    IntArray,
    Interval,
    check_alternative,
    check_count,
    check_labels,
    check_open_unit,
    check_rng,
    check_values,
    normal_p_value,
    stratify,
    two_sided_z,
)
from robotrials.value import dataclass

# Large-sample tests and intervals of mean differences, pooled or stratified by task.


@dataclass(frozen=True, slots=True)
class Wald:
    """A mean difference with its standard error, z, p-value and two-sided interval.

    Where the estimated variance is zero, z is +inf, 0 or -inf by the sign of the estimate (`zero_variance` is then True
    and the interval is a point: it says that the data show no spread, not that the truth is known).
    """

    estimate: float
    standard_error: float
    z: float
    p_value: float
    alternative: Alternative
    interval: Interval
    n: tuple[int, ...]

    @property
    def zero_variance(self) -> bool:
        return self.standard_error == 0


def paired_wald(
    differences: ArrayLike,
    level: float = 0.95,
    *,
    strata: ArrayLike | None = None,
    alternative: Alternative = 'two-sided',
) -> Wald:
    """The paired Wald test of a mean difference, ddof = 1; tasks, if given, are fixed strata of equal weight.

    `differences` is (pairs,), with `strata` one label a pair, or (tasks, samples). The estimand is the mean over strata
    of the mean difference within each, and its variance is sum_t var_t / (T^2 S_t).
    """
    if np.ndim(level):
        raise InputError('paired_wald takes one array of differences; pass a - b, or use two_sample_wald(a, b)')
    parts = stratify('differences', differences, strata)
    estimate = math.fsum(_mean(part) for part in parts) / len(parts)
    variance = math.fsum(_variance('differences', part) / part.size for part in parts) / len(parts) ** 2
    return _wald(estimate, variance, level, alternative, (sum(part.size for part in parts),))


def two_sample_wald(
    a: ArrayLike,
    b: ArrayLike,
    *,
    strata_a: ArrayLike | None = None,
    strata_b: ArrayLike | None = None,
    level: float = 0.95,
    alternative: Alternative = 'two-sided',
) -> Wald:
    """The Wald test of mean(a) - mean(b) for independent samples of bounded scores, unpooled variances, ddof = 1.

    With strata (labels, or rows of 2-d arrays) each task counts the same: sum_t (mean a_t - mean b_t) / T.
    """
    parts = list(matched_strata(a, b, strata_a, strata_b))
    tasks = len(parts)
    estimate = math.fsum(_mean(pa) - _mean(pb) for pa, pb in parts) / tasks
    variance = math.fsum(_variance('a', pa) / pa.size + _variance('b', pb) / pb.size for pa, pb in parts) / tasks**2
    sizes = (sum(pa.size for pa, _ in parts), sum(pb.size for _, pb in parts))
    return _wald(estimate, variance, level, alternative, sizes)


def welch(a: ArrayLike, b: ArrayLike, *, level: float = 0.95, alternative: Alternative = 'two-sided') -> Wald:
    """Welch's t-test of mean(a) - mean(b) with its t interval; `z` holds the t statistic."""
    alternative = check_alternative(alternative)
    first, second = check_values('a', a).ravel(), check_values('b', b).ravel()
    va, vb = _variance('a', first) / first.size, _variance('b', second) / second.size
    estimate, error = _mean(first) - _mean(second), math.sqrt(va + vb)
    if error == 0:
        return _wald(estimate, 0.0, level, alternative, (first.size, second.size))
    df = (va + vb) ** 2 / (va**2 / (first.size - 1) + vb**2 / (second.size - 1))
    return _by_t(estimate, error, df, level, alternative, (first.size, second.size))


def clustered_wald(
    a: ArrayLike,
    b: ArrayLike,
    *,
    clusters_a: ArrayLike,
    clusters_b: ArrayLike,
    level: float = 0.95,
    alternative: Alternative = 'two-sided',
) -> Wald:
    """The test of mean(a) - mean(b) when rollouts come in clusters: the same start state run again and again.

    Residuals are summed within clusters (the sandwich estimator, times G / (G - 1)) and judged by t with G - 1 degrees
    of freedom. A label that occurs in both arms is one cluster, so that shared start states count as matched.
    """
    alternative = check_alternative(alternative)
    first, second = check_values('a', a).ravel(), check_values('b', b).ravel()
    codes, distinct = check_labels(
        'clusters', np.concatenate([clusters_a, clusters_b]), n=first.size + second.size, of='rollouts'
    )
    groups = len(distinct)
    if groups < 2:
        raise NotEstimable('a clustered interval needs at least 2 clusters, found 1; use more start states')
    estimate = _mean(first) - _mean(second)
    influence = np.r_[(first - _mean(first)) / first.size, (_mean(second) - second) / second.size]
    sums = np.bincount(codes, weights=influence, minlength=groups)
    error = math.sqrt(groups / (groups - 1) * math.fsum((sums**2).tolist()))
    if error == 0:
        return _wald(estimate, 0.0, level, alternative, (first.size, second.size))
    return _by_t(estimate, error, groups - 1, level, alternative, (first.size, second.size))


def matched_strata(
    a: ArrayLike, b: ArrayLike, strata_a: ArrayLike | None, strata_b: ArrayLike | None
) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    if (strata_a is None) != (strata_b is None):
        raise InputError('strata must be given for both samples or for neither')
    parts_a, parts_b = stratify('a', a, strata_a), stratify('b', b, strata_b)
    if strata_a is not None and strata_b is not None:
        names_a = check_labels('strata_a', strata_a, n=np.size(a), of='values of a')[1].tolist()
        names_b = check_labels('strata_b', strata_b, n=np.size(b), of='values of b')[1].tolist()
        if names_a != names_b:
            lone = sorted(map(str, set(names_a) ^ set(names_b)))
            raise InputError(f'both samples must have the same strata; only one has: {", ".join(lone)}')
    if len(parts_a) != len(parts_b):
        raise InputError(f'both samples must have the same strata, found {len(parts_a)} and {len(parts_b)}')
    return list(zip(parts_a, parts_b, strict=True))


def _mean(part: NDArray[Any]) -> float:
    return int(part.sum()) / part.size if part.dtype.kind == 'i' else math.fsum(part.tolist()) / part.size


def _variance(name: str, part: NDArray[Any]) -> float:
    """The unbiased variance; exact for integers, and exactly 0 where all values are equal."""
    n = part.size
    if n < 2:
        raise NotEstimable(f'a variance needs at least 2 values in every stratum of {name}, found {n}; add samples')
    if part.dtype.kind == 'i':
        small = int(np.abs(part).max()) < 2**15 and n < 2**31  # squares and their sum fit 64 bits
        squares = int((part * part).sum()) if small else sum(int(v) ** 2 for v in part)
        total = int(part.sum()) if small else sum(int(v) for v in part)
        return (n * squares - total**2) / (n * (n - 1))
    return 0.0 if part.min() == part.max() else float(np.var(part, ddof=1))


def _wald(estimate: float, variance: float, level: float, alternative: str, n: tuple[int, ...]) -> Wald:
    alternative = check_alternative(alternative)
    reach = two_sided_z(level)
    error = math.sqrt(variance)
    without_spread = math.copysign(math.inf, estimate) if estimate else 0.0
    z = estimate / error if error > 0 else without_spread
    interval = Interval(estimate - reach * error, estimate + reach * error)
    return Wald(estimate, error, z, normal_p_value(z, alternative), alternative, interval, n)


def _by_t(estimate: float, error: float, df: float, level: float, alternative: Alternative, n: tuple[int, ...]) -> Wald:
    """Judged by Student's t; the statistic is kept under the name z."""
    from robotrials.stats.special import stdtr, stdtrit

    t = estimate / error
    tail = {'greater': stdtr(df, -t), 'less': stdtr(df, t), 'two-sided': 2 * stdtr(df, -abs(t))}[alternative]
    reach = float(stdtrit(df, (1 + check_open_unit('level', level)) / 2)) * error
    interval = Interval(estimate - reach, estimate + reach)
    return Wald(estimate, error, t, float(min(1.0, tail)), alternative, interval, n)


# Permutation tests: sign flips for pairs, labels for independent arms, within strata.
# The null distribution is exact (by convolution) for whole-number scores while the lattice is small, else Monte Carlo
# with the observed arrangement counted among the resamples (Phipson and Smyth 2010), so that p is never 0.

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
    estimate = math.fsum(float(part.mean()) for part in parts) / len(parts)
    scaled = _on_lattice(parts)
    if scaled is not None:
        steps = np.abs(np.concatenate(scaled))
        steps = steps[steps > 0]
        reach = int(steps.sum())
        if reach <= LATTICE_LIMIT and reach * steps.size <= WORK_LIMIT:
            # The chance of each sum of randomly signed steps, over -reach..reach.
            chances = np.zeros(2 * reach + 1)
            chances[reach] = 1.0
            for step in steps:
                moved = np.zeros_like(chances)
                moved[step:] += chances[:-step]
                moved[:-step] += chances[step:]
                chances = moved / 2
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


def _on_lattice(parts: list[NDArray[Any]]) -> list[IntArray] | None:
    """Whole-number differences times what makes every stratum weigh the same; None for scores that are not whole."""
    if any(part.dtype.kind != 'i' for part in parts):
        return None
    common = math.lcm(*(part.size for part in parts))
    if common > LATTICE_LIMIT:
        return None
    return [part * (common // part.size) for part in parts]


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
    return np.asarray(counts[size] / math.comb(pool.size, size))


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
