"""Scores of many runs on many tasks: robust means, profiles, probability of improvement, ranks; all with intervals.

Matrices are (runs, tasks), and functions of them work on any leading axes. Definitions follow Agarwal et al. 2021
("Deep reinforcement learning at the edge of the statistical precipice"); intervals resample runs within each task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError, UnknownName
from robotrials.stats.argument import FloatArray, check_count, check_values
from robotrials.stats.bootstrap import Bootstrap, bootstrap_interval
from robotrials.stats.interval import Interval

Aggregate = Callable[[FloatArray], FloatArray]
BATCH_ENTRIES = 4_000_000


def iqm(scores: FloatArray) -> FloatArray:
    """The interquartile mean over all runs and tasks: the middle half, a quarter cut (rounded down) at each end."""
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    middle: FloatArray = flat[..., cut : flat.shape[-1] - cut].mean(axis=-1)
    return middle


def mean_score(scores: FloatArray) -> FloatArray:
    """The mean over tasks of each task's mean."""
    means: FloatArray = scores.mean(axis=(-2, -1))
    return means


def median_score(scores: FloatArray) -> FloatArray:
    """The median over tasks of each task's mean."""
    medians: FloatArray = np.median(scores.mean(axis=-2), axis=-1)
    return medians


def optimality_gap(scores: FloatArray, *, target: float = 1.0) -> FloatArray:
    """By how much runs fall short of `target`, on average; what exceeds it does not make up for it."""
    gap: FloatArray = target - np.minimum(scores, target).mean(axis=(-2, -1))
    return gap


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
        above: FloatArray = np.stack([(units > t).mean(axis=-1) for t in at], axis=-1)
        return above

    draws = _draw([matrix], lambda drawn: shares(drawn[0]), check_count('n_resamples', n_resamples, least=1), rng)
    share = shares(matrix)
    bounds = [bootstrap_interval(float(s), draws[:, k], level=level) for k, s in enumerate(share)]
    return Profile(at, share, np.array([b.low for b in bounds]), np.array([b.high for b in bounds]))


def improvement_chance(a: FloatArray, b: FloatArray) -> FloatArray:
    """The mean over tasks of P(a run of a beats a run of b), ties counted half: (runs_a, tasks), (runs_b, tasks)."""
    difference = a[..., :, None, :] - b[..., None, :, :]
    wins = (difference > 0).mean(axis=(-3, -2)) + (difference == 0).mean(axis=(-3, -2)) / 2
    chance: FloatArray = wins.mean(axis=-1)
    return chance


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
        means: FloatArray = self.chance @ np.arange(1, len(self.names) + 1)
        return means


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
