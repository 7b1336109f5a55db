"""Statistics of a dataset's features, as LeRobot and openpi keep them: min, max, mean, std, count and quantiles.

Per episode, quantiles are exact. Over the dataset they come from histograms of 5,000 bins between the known extremes,
so that memory does not grow with the data; they are right to a 5,000th of the range.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
QUANTILES = {'q01': 0.01, 'q10': 0.10, 'q50': 0.50, 'q90': 0.90, 'q99': 0.99}
BINS = 5000


def episode_statistics(values: Array) -> dict[str, list[float]]:
    """The statistics of one vector feature (T, K), of its finite numbers; a component that has none is NaN."""
    rows = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
    known = ~np.isnan(rows).all(axis=0)
    stats: dict[str, Array] = {
        name: np.full(rows.shape[1], np.nan) for name in ('min', 'max', 'mean', 'std', *QUANTILES)
    }
    if known.any():
        some = rows[:, known]
        for name, function in (('min', np.nanmin), ('max', np.nanmax), ('mean', np.nanmean), ('std', np.nanstd)):
            stats[name][known] = function(some, axis=0)
        levels = np.nanquantile(some, list(QUANTILES.values()), axis=0)
        for level, name in enumerate(QUANTILES):
            stats[name][known] = levels[level]
    return {**{name: value.tolist() for name, value in stats.items()}, 'count': [len(values)]}


def image_statistics(frames: Array) -> dict[str, Any]:
    """The statistics of sampled frames (N, height, width, 3) of uint8, by channel, in 0..1 and shaped (3, 1, 1)."""
    flat = frames.reshape(-1, frames.shape[-1]) / 255.0
    stats = episode_statistics(flat)
    shaped = {name: [[[v]] for v in values] for name, values in stats.items() if name != 'count'}
    return {**shaped, 'count': [len(frames)]}


@dataclass(slots=True)
class Extremes:
    """The least and greatest of each number of a feature."""

    low: Array | None = None
    high: Array | None = None

    def add(self, values: Array) -> None:
        finite = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
        low, high = np.fmin.reduce(finite, axis=0), np.fmax.reduce(finite, axis=0)
        self.low = low if self.low is None else np.fmin(self.low, low)
        self.high = high if self.high is None else np.fmax(self.high, high)


@dataclass(slots=True)
class Running:
    """Statistics of one feature over all episodes, given its extremes."""

    low: Array
    high: Array
    count: int = 0
    total: Array = field(init=False)
    squares: Array = field(init=False)
    histogram: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.low = np.nan_to_num(np.atleast_1d(self.low))
        self.high = np.nan_to_num(np.atleast_1d(self.high))
        size = len(self.low)
        self.total, self.squares = np.zeros(size), np.zeros(size)
        self.histogram = np.zeros((size, BINS), dtype=np.int64)

    def add(self, values: Array) -> None:
        """Take in (T, K) more; numbers that are not finite are left out."""
        rows = values.astype(np.float64)
        middle = (self.low + self.high) / 2
        centred = np.where(np.isfinite(rows), rows - middle, 0.0)
        self.count += len(rows)
        self.total += centred.sum(axis=0)
        self.squares += (centred**2).sum(axis=0)
        span = np.where(self.high > self.low, self.high - self.low, 1.0)
        place = np.clip(((centred + middle - self.low) / span * BINS).astype(np.int64), 0, BINS - 1)
        for k in range(place.shape[1]):
            self.histogram[k] += np.bincount(place[:, k], minlength=BINS)

    def statistics(self) -> dict[str, list[float]]:
        mean = self.total / self.count
        std = np.sqrt(np.maximum(0.0, self.squares / self.count - mean**2))
        stats = {'min': self.low, 'max': self.high, 'mean': mean + (self.low + self.high) / 2, 'std': std}
        quantiles = {name: np.array([self._quantile(k, q) for k in range(len(mean))]) for name, q in QUANTILES.items()}
        listed = {name: value.tolist() for name, value in {**stats, **quantiles}.items()}
        return {**listed, 'count': [self.count]}

    def _quantile(self, k: int, level: float) -> float:
        counts = np.cumsum(self.histogram[k])
        target = level * counts[-1]
        at = int(np.searchsorted(counts, target))
        before = counts[at - 1] if at else 0
        share = (target - before) / max(1, counts[at] - before)
        return float(self.low[k] + (at + share) / BINS * (self.high[k] - self.low[k]))
