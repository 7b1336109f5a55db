"""The episode-clustered bootstrap, and robust aggregates of many runs on many tasks with its intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.stats.interval import (
    BootstrapMethod,
    FloatArray,
    IntArray,
    Interval,
    bootstrap_interval,
    check_count,
    check_labels,
    check_rng,
    check_values,
)
from robotrials.value import dataclass

WeightedStatistic = Callable[[NDArray[Any], FloatArray], FloatArray]
"""(values (n, ...), weights (B, n)) -> one statistic per row of weights, (B,)."""

BATCH_ENTRIES = 4_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Bootstrap:
    """An estimate, its interval and the draws (n_resamples,) that gave it."""

    estimate: float
    interval: Interval
    draws: FloatArray
    level: float
    method: BootstrapMethod

    @property
    def standard_error(self) -> float:
        return float(np.std(self.draws, ddof=1))


def weighted_mean(values: NDArray[Any], weights: FloatArray) -> FloatArray:
    """The mean of `values` (n,) under each row of `weights` (B, n)."""
    # einsum, not BLAS: the last bit must not depend on the batch or on the number of threads.
    return np.asarray(np.einsum('bn,n->b', weights, values) / weights.sum(axis=1))


def cluster_bootstrap(
    values: ArrayLike,
    clusters: ArrayLike,
    *,
    statistic: WeightedStatistic = weighted_mean,
    n_resamples: int,
    rng: np.random.Generator,
    level: float = 0.95,
    method: BootstrapMethod = 'percentile',
    strata: ArrayLike | None = None,
) -> Bootstrap:
    """A bootstrap interval in which whole clusters (episodes) are drawn with replacement, within strata if given.

    `values` is (n, ...) and may hold infinities (hard failures); `clusters` (n,) says which episode each row came from,
    `strata` (n,) which cell, the same for a whole cluster. `statistic(values, weights)` gets weights (B, n), how often
    each row was drawn, and returns (B,).
    The same generator state gives the same draws, whatever the batch size.
    """
    rows = check_values('values', values, infinite=True)
    codes, distinct = check_labels('clusters', clusters, n=rows.shape[0] if rows.ndim else 0, of='rows of values')
    cells = _cluster_strata(codes, len(distinct), strata)
    estimate = float(_evaluate(statistic, rows, np.ones((1, codes.size)))[0])
    draws = np.empty(check_count('n_resamples', n_resamples, least=1))
    batch = max(1, BATCH_ENTRIES // max(codes.size, len(distinct)))
    for start in range(0, draws.size, batch):
        size = min(batch, draws.size - start)
        counts = resample_counts(cells, n_resamples=size, rng=rng)
        draws[start : start + size] = _evaluate(statistic, rows, counts[:, codes].astype(np.float64))
    jackknife = jackknife_statistics(statistic, rows, codes) if method == 'bca' else None
    interval = bootstrap_interval(estimate, draws, level=level, method=method, jackknife=jackknife, strata=cells)
    return Bootstrap(estimate, interval, draws, level, method)


def resample_counts(strata: ArrayLike | int, *, n_resamples: int, rng: np.random.Generator) -> IntArray:
    """How often each cluster was drawn, (n_resamples, clusters); `strata` is one label per cluster, or their number."""
    labels = np.zeros(strata, dtype=np.int64) if isinstance(strata, int) else np.asarray(strata)
    codes, distinct = check_labels('strata', labels, n=labels.size, of='clusters')
    if codes.size == 0:
        raise InputError('a bootstrap needs at least one cluster, found none')
    members = [np.flatnonzero(codes == k) for k in range(len(distinct))]
    counts = np.zeros((n_resamples, codes.size), dtype=np.int64)
    offset = np.arange(n_resamples)[:, None] * codes.size
    # One draw of all strata a resample, so that the stream does not depend on how resamples are batched.
    uniform = check_rng(rng).random((n_resamples, codes.size))
    for ids in members:
        drawn = ids[(uniform[:, ids] * ids.size).astype(np.int64)]
        counts += np.bincount((drawn + offset).ravel(), minlength=counts.size).reshape(counts.shape)
    return counts


def jackknife_statistics(statistic: WeightedStatistic, values: NDArray[Any], clusters: IntArray) -> FloatArray:
    """The statistic with each cluster left out in turn, (clusters,)."""
    k = int(clusters.max()) + 1
    left = np.empty(k)
    batch = max(1, BATCH_ENTRIES // clusters.size)
    for start in range(0, k, batch):
        out = np.arange(start, min(start + batch, k))
        left[out] = _evaluate(statistic, values, (clusters[None, :] != out[:, None]).astype(np.float64))
    return left


def _cluster_strata(codes: IntArray, k: int, strata: ArrayLike | None) -> IntArray:
    """The stratum of each cluster; a cluster in two strata cannot be drawn within one."""
    if strata is None:
        return np.zeros(k, dtype=np.int64)
    cell = check_labels('strata', strata, n=codes.size, of='rows of values')[0]
    of_cluster = np.zeros(k, dtype=np.int64)
    of_cluster[codes] = cell
    torn = np.flatnonzero(of_cluster[codes] != cell)
    if torn.size:
        raise InputError(f'a cluster must lie within one stratum, but that of row {torn[0]} is in two')
    return of_cluster


def _evaluate(statistic: WeightedStatistic, values: NDArray[Any], weights: FloatArray) -> FloatArray:
    with np.errstate(invalid='ignore', divide='ignore'):
        try:
            result = np.asarray(statistic(values, weights), dtype=np.float64)
        except TypeError as error:
            raise InputError(
                f'statistic is called with values (n, ...) and weights (B, n), and returns (B,); it failed: {error}'
            ) from error
    if result.shape != (weights.shape[0],):
        raise InputError(
            f'statistic must return one number per row of weights ({weights.shape[0]},), found {result.shape}'
        )
    return result


# Scores of many runs on many tasks: robust means, profiles, probability of improvement, ranks; all with intervals.
# Matrices are (runs, tasks), and functions of them work on any leading axes. Definitions follow Agarwal et al. 2021
# ("Deep reinforcement learning at the edge of the statistical precipice"); intervals resample runs within each task.

Aggregate = Callable[[FloatArray], FloatArray]


def iqm(scores: FloatArray) -> FloatArray:
    """The interquartile mean over all runs and tasks: the middle half, a quarter cut (rounded down) at each end."""
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return np.asarray(flat[..., cut : flat.shape[-1] - cut].mean(axis=-1))


def mean_score(scores: FloatArray) -> FloatArray:
    """The mean over tasks of each task's mean."""
    return np.asarray(scores.mean(axis=(-2, -1)))


def median_score(scores: FloatArray) -> FloatArray:
    """The median over tasks of each task's mean."""
    return np.asarray(np.median(scores.mean(axis=-2), axis=-1))


def optimality_gap(scores: FloatArray, *, target: float = 1.0) -> FloatArray:
    """By how much runs fall short of `target`, on average; what exceeds it does not make up for it."""
    return np.asarray(target - np.minimum(scores, target).mean(axis=(-2, -1)))


AGGREGATES: Mapping[str, Aggregate] = {
    'iqm': iqm,
    'mean': mean_score,
    'median': median_score,
    'optimality_gap': optimality_gap,
}


def aggregate(
    scores: ArrayLike,
    statistic: str | Aggregate = 'iqm',
    *,
    n_resamples: int,
    rng: np.random.Generator,
    level: float = 0.95,
) -> Bootstrap:
    """One policy's aggregate over (runs, tasks), with the interval of runs drawn anew within each task."""
    matrix, chosen = check_matrix('scores', scores), _aggregate(statistic)
    estimate = float(chosen(matrix))
    draws = _draw([matrix], lambda drawn: chosen(drawn[0]), check_count('n_resamples', n_resamples, least=1), rng)
    return Bootstrap(estimate, bootstrap_interval(estimate, draws, level=level), draws, level, 'percentile')


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """The share of runs (or of tasks' means) that score above each threshold, with pointwise bounds."""

    thresholds: FloatArray
    share: FloatArray
    low: FloatArray
    high: FloatArray


def performance_profile(
    scores: ArrayLike,
    thresholds: ArrayLike,
    *,
    n_resamples: int,
    rng: np.random.Generator,
    level: float = 0.95,
    of: str = 'runs',
) -> Profile:
    """The share above each threshold, of single runs ('runs') or of the tasks' mean scores ('tasks')."""
    if of not in ('runs', 'tasks'):
        raise UnknownName('profile', of, ['runs', 'tasks'])
    matrix, at = check_matrix('scores', scores), check_values('thresholds', thresholds).astype(np.float64).ravel()

    def shares(drawn: FloatArray) -> FloatArray:
        units = drawn.mean(axis=-2) if of == 'tasks' else drawn.reshape(*drawn.shape[:-2], -1)
        return np.stack([(units > t).mean(axis=-1) for t in at], axis=-1)

    draws = _draw([matrix], lambda drawn: shares(drawn[0]), check_count('n_resamples', n_resamples, least=1), rng)
    share = shares(matrix)
    bounds = [bootstrap_interval(float(s), draws[:, k], level=level) for k, s in enumerate(share)]
    return Profile(at, share, np.array([b.low for b in bounds]), np.array([b.high for b in bounds]))


def improvement_chance(a: FloatArray, b: FloatArray) -> FloatArray:
    """The mean over tasks of P(a run of a beats a run of b), ties counted half: (runs_a, tasks), (runs_b, tasks)."""
    difference = a[..., :, None, :] - b[..., None, :, :]
    wins = (difference > 0).mean(axis=(-3, -2)) + (difference == 0).mean(axis=(-3, -2)) / 2
    return np.asarray(wins.mean(axis=-1))


def probability_of_improvement(
    a: ArrayLike, b: ArrayLike, *, n_resamples: int, rng: np.random.Generator, level: float = 0.95
) -> Bootstrap:
    """P(a run of a beats a run of b on the same task), mean over tasks, with its stratified bootstrap interval."""
    first, second = check_matrix('a', a), check_matrix('b', b)
    if first.shape[1] != second.shape[1]:
        raise InputError(f'a and b must have the same tasks, found {first.shape[1]} and {second.shape[1]} columns')
    estimate = float(improvement_chance(first, second))
    draws = _draw(
        [first, second],
        lambda drawn: improvement_chance(drawn[0], drawn[1]),
        check_count('n_resamples', n_resamples, least=1),
        rng,
        cells=first.shape[0] * second.shape[0] * first.shape[1],
    )
    return Bootstrap(estimate, bootstrap_interval(estimate, draws, level=level), draws, level, 'percentile')


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """Each policy's rank (1 is best) on the data, and how sure it is: `chance[i, k]` is that of rank k + 1."""

    names: tuple[str, ...]
    rank: tuple[float, ...]
    chance: FloatArray
    interval: tuple[Interval, ...]

    @property
    def expected(self) -> FloatArray:
        """The mean rank over resamples."""
        return self.chance @ np.arange(1, len(self.names) + 1)


def rank_policies(
    scores: Mapping[str, ArrayLike],
    statistic: str | Aggregate = 'mean',
    *,
    n_resamples: int,
    rng: np.random.Generator,
    level: float = 0.95,
    larger_is_better: bool | None = None,
) -> Ranks:
    """Ranks by an aggregate of (runs, tasks) matrices, with the distribution of ranks over stratified resamples.

    Ties share their mean rank on the data, and are broken at random in each resample. 'optimality_gap' ranks the
    smallest first unless told otherwise.
    """
    names = tuple(scores)
    if len(names) < 2:
        raise InputError(f'wanted at least two policies to rank, found {len(names)}')
    matrices, chosen = [check_matrix(name, scores[name]) for name in names], _aggregate(statistic)
    rising = statistic != 'optimality_gap' if larger_is_better is None else larger_is_better
    sign = -1.0 if rising else 1.0
    n_resamples = check_count('n_resamples', n_resamples, least=1)
    values = np.stack([_draw([m], lambda drawn: chosen(drawn[0]), n_resamples, rng) for m in matrices], axis=1)
    order = np.lexsort((rng.random(values.shape), sign * values), axis=1)
    places = np.argsort(order, axis=1)
    chance = np.stack([(places == k).mean(axis=0) for k in range(len(names))], axis=1)
    observed = sign * np.array([float(chosen(m)) for m in matrices])
    rank = tuple(float((observed < x).sum() + ((observed == x).sum() + 1) / 2) for x in observed)
    drawn = (places + 1).astype(np.float64)
    interval = tuple(bootstrap_interval(rank[i], drawn[:, i], level=level) for i in range(len(names)))
    return Ranks(names, rank, chance, interval)


def check_matrix(name: str, scores: ArrayLike) -> FloatArray:
    """A (runs, tasks) matrix of finite scores; (runs,) is one task."""
    matrix = check_values(name, scores).astype(np.float64)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2:
        raise InputError(f'{name} must be a (runs, tasks) matrix, found shape {matrix.shape}')
    return matrix


def _aggregate(statistic: str | Aggregate) -> Aggregate:
    if not isinstance(statistic, str):
        return statistic
    if statistic not in AGGREGATES:
        raise UnknownName('aggregate', statistic, AGGREGATES)
    return AGGREGATES[statistic]


def _draw(
    matrices: list[FloatArray],
    statistic: Callable[[list[FloatArray]], FloatArray],
    n_resamples: int,
    rng: np.random.Generator,
    *,
    cells: int | None = None,
) -> FloatArray:
    """The statistic on resamples in which each task's runs are drawn anew; the draws do not depend on batches."""
    batch = max(1, BATCH_ENTRIES // (cells or max(m.size for m in matrices)))
    parts = []
    for start in range(0, n_resamples, batch):
        size = min(batch, n_resamples - start)
        uniform = rng.random((size, sum(m.size for m in matrices)))
        drawn, done = [], 0
        for m in matrices:
            rows = (uniform[:, done : done + m.size].reshape(size, *m.shape) * m.shape[0]).astype(np.int64)
            drawn.append(np.take_along_axis(m[None], rows, axis=1))
            done += m.size
        parts.append(np.asarray(statistic(drawn)))
    return np.concatenate(parts)
