"""Errors of predicted actions and the numbers drawn from them (MultiNet section 3.3).

Every function raises NotEstimable where the number does not exist; none returns 0.0 for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.formats.space import FloatArray
from robotrials.stats import Interval, bootstrap_interval, resample_counts

QUANTILES = (0.05, 0.95)


def action_errors(predicted: ArrayLike, target: ArrayLike) -> FloatArray:
    """The mean squared error of each timestep, (T,), of actions (T, D)."""
    difference = _differences(predicted, target)
    errors: FloatArray = (difference**2).mean(axis=1)
    return errors


def absolute_errors(predicted: ArrayLike, target: ArrayLike) -> FloatArray:
    """The mean absolute error of each timestep, (T,), of actions (T, D)."""
    errors: FloatArray = np.abs(_differences(predicted, target)).mean(axis=1)
    return errors


def _differences(predicted: ArrayLike, target: ArrayLike) -> FloatArray:
    a, b = np.asarray(predicted, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if a.ndim != 2 or a.shape != b.shape or a.size == 0:
        raise InputError(f'predicted {a.shape} and target {b.shape} must be of one shape (T, D), and not empty')
    for name, values in (('predicted', a), ('target', b)):
        if not np.isfinite(values).all():
            step = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
            raise InputError(f'{name}[{step}] is not finite; score an invalid answer by a named choice first')
    return a - b


def amse(episodes: Sequence[ArrayLike]) -> float:
    """The mean over all timesteps of their errors: what the paper's tables hold (timestep-weighted)."""
    return float(np.concatenate(_checked(episodes)).mean())


def amse_by_episode(episodes: Sequence[ArrayLike]) -> float:
    """The mean over episodes of each episode's mean error: what the paper's text says (episode-weighted)."""
    return float(np.mean([e.mean() for e in _checked(episodes)]))


def namse(errors: ArrayLike) -> float:
    """(mean - min) / (max - min) of one run's timestep errors, in [0, 1].

    It measures the shape of a model's own errors, so it cannot compare models.
    """
    values = _flat(errors)
    low, high = float(values.min()), float(values.max())
    if values.size < 2 or low == high:
        why = f'one timestep error ({low:g})' if values.size < 2 else f'{values.size} equal timestep errors ({low:g})'
        raise NotEstimable(f'a normalised error needs timestep errors that differ, found {why}')
    return float((values.mean() - low) / (high - low))


def quantile_filtered(errors: ArrayLike, quantiles: tuple[float, float] = QUANTILES) -> float:
    """The normalised mean of the errors between two quantiles, the quantiles themselves included."""
    values = _flat(errors)
    low, high = np.quantile(values, quantiles)
    kept = values[(values >= low) & (values <= high)]
    if kept.size == 0:
        raise NotEstimable(f'none of the {values.size} errors lies between their own quantiles {quantiles}')
    return namse(kept)


def max_over_median(errors: ArrayLike) -> float:
    """The largest error over the median error."""
    values = _flat(errors)
    return float(values.max() / _median(values))


def share_beyond_medians(errors: ArrayLike, *, medians: float = 3.0) -> float:
    """The share of errors above some multiple of the median error."""
    values = _flat(errors)
    return float((values > medians * _median(values)).mean())


def _median(values: FloatArray) -> float:
    median = float(np.median(values))
    if median == 0:
        raise NotEstimable('the median error is 0, so nothing can be measured in medians')
    return median


def completes(predicted: ArrayLike, target: ArrayLike, *, tolerance: ArrayLike | None = None) -> bool:
    """Whether the last predicted action is the last recorded one, exactly or within a tolerance a dimension.

    Exact is equality as float32, the precision of the recordings. A last answer of NaN (invalid) completes nothing.
    """
    a = np.asarray(predicted, dtype=np.float64)[-1].astype(np.float32)
    b = np.asarray(target, dtype=np.float64)[-1].astype(np.float32)
    if tolerance is None:
        return bool(np.array_equal(a, b))
    slack = np.broadcast_to(np.asarray(tolerance, dtype=np.float64), b.shape)
    if (slack < 0).any() or np.isnan(slack).any():
        raise InputError(f'tolerance is {tolerance}, wanted numbers >= 0')
    return bool((np.abs(a.astype(np.float64) - b) <= slack).all())


@dataclass(frozen=True, slots=True, eq=False)
class ClassMetrics:
    """Predicted against recorded classes. Counts are kept; `precision` and the rest follow from them.

    `confusion` is (recorded, predicted); invalid answers are in `invalid`, by recorded class, and count as errors.
    """

    classes: tuple[float, ...]
    confusion: NDArray[np.int64]
    invalid: NDArray[np.int64]

    @property
    def n(self) -> int:
        return int(self.confusion.sum() + self.invalid.sum())

    @property
    def accuracy(self) -> float:
        return float(np.trace(self.confusion) / self.n)

    @property
    def precision(self) -> tuple[float | None, ...]:
        """By class; None where the class was never predicted."""
        said = self.confusion.sum(axis=0)
        return tuple(float(self.confusion[i, i] / n) if n else None for i, n in enumerate(said))

    @property
    def recall(self) -> tuple[float | None, ...]:
        """By class; None where the class was never recorded."""
        there = self.confusion.sum(axis=1) + self.invalid
        return tuple(float(self.confusion[i, i] / n) if n else None for i, n in enumerate(there))

    @property
    def f1(self) -> tuple[float | None, ...]:
        """By class: 2 hits / (predicted + recorded); None where the class was neither."""
        counts = self.confusion.sum(axis=0) + self.confusion.sum(axis=1) + self.invalid
        return tuple(float(2 * self.confusion[i, i] / n) if n else None for i, n in enumerate(counts))

    @property
    def macro_f1(self) -> float:
        """The mean F1 over the classes that were recorded or predicted."""
        return float(np.mean([f for f in self.f1 if f is not None]))


def class_metrics(predicted: ArrayLike, target: ArrayLike, *, classes: Sequence[float] | None = None) -> ClassMetrics:
    """Class metrics of a discrete action (T,); NaN is an invalid answer, any value outside the classes raises."""
    a, b = np.asarray(predicted, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or a.size == 0:
        raise InputError(f'predicted {a.shape} and target {b.shape} must be of one shape (T,), and not empty')
    known = np.unique(np.concatenate([b, a[~np.isnan(a)]])) if classes is None else np.array(sorted(set(classes)))
    for name, values in (('predicted', a[~np.isnan(a)]), ('target', b)):
        stray = values[~np.isin(values, known)]
        if stray.size:
            raise InputError(f'{name} holds {stray[0]:g}, which is none of the classes {known.tolist()}')
    rows = np.searchsorted(known, b)
    valid = ~np.isnan(a)
    confusion = np.zeros((known.size, known.size), dtype=np.int64)
    np.add.at(confusion, (rows[valid], np.searchsorted(known, a[valid])), 1)
    invalid = np.bincount(rows[~valid], minlength=known.size).astype(np.int64)
    return ClassMetrics(tuple(known.tolist()), confusion, invalid)


def _flat(errors: ArrayLike) -> FloatArray:
    values = np.asarray(errors, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise InputError(f'errors must be (T,) with at least one timestep, found shape {values.shape}')
    if not np.isfinite(values).all() or (values < 0).any():
        raise InputError('errors must be finite and >= 0')
    return values


def _checked(episodes: Sequence[ArrayLike]) -> list[FloatArray]:
    if len(episodes) == 0:
        raise InputError('no episodes; wanted at least one array of timestep errors')
    return [_flat(e) for e in episodes]


# Episode-clustered resampling of a run's timestep errors: each statistic for many draws of whole episodes at once.

BATCH_ENTRIES = 4_000_000

Counts = NDArray[Any]
"""(B, episodes): how often each episode was drawn."""


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The timestep errors of a run: episode by episode, and sorted together for quantiles."""

    totals: FloatArray  # (episodes,)
    lengths: FloatArray
    lows: FloatArray
    highs: FloatArray
    ordered: FloatArray  # (timesteps,)
    owner: NDArray[np.int64]  # the episode of each ordered error

    @classmethod
    def of(cls, episodes: Sequence[FloatArray]) -> Pool:
        joined = np.concatenate(episodes)
        owner = np.repeat(np.arange(len(episodes)), [len(e) for e in episodes])
        order = np.argsort(joined, kind='stable')
        return cls(
            totals=np.array([e.sum() for e in episodes]),
            lengths=np.array([float(len(e)) for e in episodes]),
            lows=np.array([e.min() for e in episodes]),
            highs=np.array([e.max() for e in episodes]),
            ordered=joined[order],
            owner=owner[order],
        )

    def mean(self, counts: Counts) -> FloatArray:
        return ratio(counts, self.totals, self.lengths)

    def mean_by_episode(self, counts: Counts) -> FloatArray:
        return ratio(counts, self.totals / self.lengths, np.ones_like(self.totals))

    def normalized(self, counts: Counts) -> FloatArray:
        low = np.where(counts > 0, self.lows, np.inf).min(axis=1)
        high = np.where(counts > 0, self.highs, -np.inf).max(axis=1)
        return _scaled(self.mean(counts), low, high)

    def quantile_filtered(self, counts: Counts, quantiles: tuple[float, float]) -> FloatArray:
        weights = counts[:, self.owner].astype(np.float64)
        low, high = (self._quantile(weights, q) for q in quantiles)
        weights *= (self.ordered >= low[:, None]) & (self.ordered <= high[:, None])
        first = self.ordered[np.argmax(weights > 0, axis=1)]
        last = self.ordered[weights.shape[1] - 1 - np.argmax(weights[:, ::-1] > 0, axis=1)]
        size = weights.sum(axis=1)  # 0 where so few errors were drawn that none lies between the quantiles
        mean = np.einsum('bn,n->b', weights, self.ordered) / np.where(size > 0, size, 1.0)
        return np.where(size > 0, _scaled(mean, first, last), np.nan)

    def max_over_median(self, counts: Counts) -> FloatArray:
        median = self._quantile(counts[:, self.owner].astype(np.float64), 0.5)
        high = np.where(counts > 0, self.highs, -np.inf).max(axis=1)
        return np.where(median > 0, high / np.where(median > 0, median, 1.0), np.nan)

    def share_beyond(self, counts: Counts, medians: float) -> FloatArray:
        weights = counts[:, self.owner].astype(np.float64)
        median = self._quantile(weights, 0.5)
        beyond = (weights * (self.ordered > medians * median[:, None])).sum(axis=1) / weights.sum(axis=1)
        return np.where(median > 0, beyond, np.nan)

    def _quantile(self, weights: FloatArray, probability: float) -> FloatArray:
        """The linear quantile (numpy's) of the sample in which each ordered error is repeated by its weight."""
        reached = np.cumsum(weights, axis=1)
        position = probability * (reached[:, -1] - 1)
        below = np.floor(position)
        low = self.ordered[(reached <= below[:, None]).sum(axis=1)]
        above = np.minimum(below + 1, reached[:, -1] - 1)
        high = self.ordered[(reached <= above[:, None]).sum(axis=1)]
        quantile: FloatArray = low + (position - below) * (high - low)
        return quantile


def ratio(counts: Counts, totals: FloatArray, sizes: FloatArray) -> FloatArray:
    """Drawn totals over drawn sizes; NaN where nothing was drawn."""
    weights = counts.astype(np.float64)
    above, below = np.einsum('bk,k->b', weights, totals), np.einsum('bk,k->b', weights, sizes)
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan)


def _scaled(mean: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    spread = high - low
    return np.where(spread > 0, (mean - low) / np.where(spread > 0, spread, 1.0), np.nan)


@dataclass(frozen=True, slots=True)
class ErrorMeasure:
    """A number with its interval; None where it does not exist, and then `why` says so."""

    value: float | None
    interval: Interval | None = None
    why: str = ''

    def require(self, name: str) -> float:
        if self.value is None:
            raise NotEstimable(f'{name} does not exist: {self.why}')
        return self.value


def measure(
    statistic: Callable[[Counts], FloatArray], *, n_episodes: int, n_timesteps: int, n_resamples: int, seed: int,
    level: float, why: str,
) -> ErrorMeasure:  # fmt: skip
    """The statistic of the run as it is, with a percentile interval over draws of whole episodes.

    The same seed draws the same episodes for every statistic.
    """
    value = float(statistic(np.ones((1, n_episodes), dtype=np.int64))[0])
    if np.isnan(value):
        return ErrorMeasure(None, None, why)
    if n_resamples == 0:
        return ErrorMeasure(value, None, 'no interval was asked for')
    if n_episodes < 2:
        return ErrorMeasure(value, None, 'no interval: one episode only')
    rng = np.random.default_rng(seed)
    draws = np.empty(n_resamples)
    batch = max(1, BATCH_ENTRIES // max(n_timesteps, n_episodes))
    for start in range(0, n_resamples, batch):
        size = min(batch, n_resamples - start)
        draws[start : start + size] = statistic(resample_counts(n_episodes, n_resamples=size, rng=rng))
    try:
        return ErrorMeasure(value, bootstrap_interval(value, draws, level=level))
    except NotEstimable as error:
        return ErrorMeasure(value, None, f'no interval: {error}')
