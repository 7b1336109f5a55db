"""Episode-clustered resampling of a run's timestep errors: each statistic for many draws of whole episodes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import NotEstimable
from robotrials.formats.space import FloatArray
from robotrials.stats import Interval, bootstrap_interval, resample_counts

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
class Measure:
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
) -> Measure:  # fmt: skip
    """The statistic of the run as it is, with a percentile interval over draws of whole episodes.

    The same seed draws the same episodes for every statistic.
    """
    value = float(statistic(np.ones((1, n_episodes), dtype=np.int64))[0])
    if np.isnan(value):
        return Measure(None, None, why)
    if n_resamples == 0:
        return Measure(value, None, 'no interval was asked for')
    if n_episodes < 2:
        return Measure(value, None, 'no interval: one episode only')
    rng = np.random.default_rng(seed)
    draws = np.empty(n_resamples)
    batch = max(1, BATCH_ENTRIES // max(n_timesteps, n_episodes))
    for start in range(0, n_resamples, batch):
        size = min(batch, n_resamples - start)
        draws[start : start + size] = statistic(resample_counts(n_episodes, n_resamples=size, rng=rng))
    try:
        return Measure(value, bootstrap_interval(value, draws, level=level))
    except NotEstimable as error:
        return Measure(value, None, f'no interval: {error}')
