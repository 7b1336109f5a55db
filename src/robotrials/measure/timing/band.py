"""Confidence bands of success curves: pointwise, and simultaneous over the whole curve."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.curve import clustered_variance, success_curve
from robotrials.measure.timing.operation import FloatArray, Operations
from robotrials.measure.timing.resample import macro_curve_draws, sort_cell, stream_seed


class BandKind(enum.StrEnum):
    GREENWOOD = 'greenwood'  # pointwise, log-log, operations taken as independent
    CLUSTERED = 'clustered'  # pointwise, log-log, operations clustered in episodes
    BOOTSTRAP = 'bootstrap'  # pointwise, percentiles of resampled episodes
    SIMULTANEOUS = 'simultaneous'  # the whole curve at once, calibrated by resampled episodes


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """Lower and upper limits of F at each of `times_s`."""

    times_s: FloatArray
    low: FloatArray
    high: FloatArray
    kind: BandKind
    level: float


def curve_band(
    cell: Operations, *, kind: BandKind | str = BandKind.BOOTSTRAP, rng: np.random.Generator | None = None,
    n_resamples: int = 1000, level: float = 0.95, grid_s: FloatArray | None = None, threads: int | None = None,
) -> Band:  # fmt: skip
    """The band of one cell's curve at its success times, or on `grid_s`."""
    return macro_band(
        {'': cell}, kind=kind, rng=rng, n_resamples=n_resamples, level=level, grid_s=grid_s, threads=threads
    )


def macro_band(
    cells: Mapping[str, Operations], *, kind: BandKind | str = BandKind.BOOTSTRAP,
    rng: np.random.Generator | None = None, n_resamples: int = 1000, level: float = 0.95,
    grid_s: FloatArray | None = None, threads: int | None = None,
) -> Band:  # fmt: skip
    """The band of the equal-weight mean of the strata's curves, at its success times or on `grid_s`, in time order."""
    kind = BandKind(kind)
    if not 0 < level < 1:
        raise InputError(f'level is {level}, wanted a number between 0 and 1')
    curves = [success_curve(c.durations_s, c.observed) for c in cells.values()]
    times = np.unique(np.concatenate([c.times_s[c.n_success > 0] for c in curves])) if grid_s is None else grid_s
    times = np.sort(np.asarray(times, dtype=np.float64))
    if len(times) == 0:
        raise NotEstimable('no success was seen: the curve is 0 as far as it goes, and has no band')
    chance = np.mean([np.atleast_1d(c.at(times)) for c in curves], axis=0)
    if kind in (BandKind.GREENWOOD, BandKind.CLUSTERED):
        return _log_log(times, chance, _variance(cells, times, kind), kind, level)
    if rng is None:
        raise InputError(f'a {kind} band resamples episodes; pass rng=numpy.random.default_rng(seed)')
    resampled = [(sort_cell(c), stream_seed(rng)) for c in cells.values()]
    draws = macro_curve_draws(resampled, times, n_resamples=n_resamples, threads=threads)
    if kind is BandKind.BOOTSTRAP:
        low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return Band(times, low, high, kind, level)
    return _simultaneous(times, np.asarray(chance, dtype=np.float64), draws, level)


def _variance(cells: Mapping[str, Operations], times: FloatArray, kind: BandKind) -> FloatArray:
    parts = []
    for c in cells.values():
        if kind is BandKind.GREENWOOD:
            parts.append(success_curve(c.durations_s, c.observed).greenwood_variance(times))
        else:
            parts.append(clustered_variance(c.durations_s, c.observed, c.episode, times))
    return np.asarray(np.sum(parts, axis=0) / len(parts) ** 2, dtype=np.float64)


def _log_log(times: FloatArray, chance: FloatArray, variance: FloatArray, kind: BandKind, level: float) -> Band:
    """S^exp(-+z se / (S |log S|)): stays within 0 and 1; where the variance is 0 the band has no width."""
    from robotrials.stats.special import ndtri

    survival = 1.0 - chance
    inner = (survival > 0) & (survival < 1)
    safe = np.where(inner, survival, 0.5)
    reach = ndtri((1 + level) / 2) * np.sqrt(variance) / (safe * -np.log(safe))
    low = np.where(inner, 1.0 - safe ** np.exp(-reach), chance)
    high = np.where(inner, 1.0 - safe ** np.exp(reach), chance)
    return Band(times, low, high, kind, level)


def _simultaneous(times: FloatArray, chance: FloatArray, draws: FloatArray, level: float) -> Band:
    """Constant width on the scale asin(sqrt F), as wide as the largest resampled deviation at this level.

    That scale makes the variance nearly constant, so that no estimated standard error enters: studentised bands cover
    too little with some forty episodes.
    """
    middle = _angle(chance)
    # Row by row, so that a long curve is not held three times over.
    widest = [float(np.max(np.abs(_angle(row) - middle))) for row in draws]
    reach = float(np.quantile(widest, level))
    low, high = (np.sin(np.clip(middle + side * reach, 0, np.pi / 2)) ** 2 for side in (-1, 1))
    return Band(times, low, high, BandKind.SIMULTANEOUS, level)


def _angle(chance: FloatArray) -> FloatArray:
    return np.arcsin(np.sqrt(np.clip(chance, 0.0, 1.0)))
