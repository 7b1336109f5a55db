"""Assumed curves: what a plan believes before there is any rollout, and rollouts drawn from that belief."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError
from robotrials.measure.timing.operation import FloatArray, Operations

LEVELS = 400


@dataclass(frozen=True, slots=True, eq=False)
class AssumedCurve:
    """F(t) by points, straight between them from (0, 0), flat after the last: what is left there never succeeds."""

    times_s: FloatArray  # (k,) increasing
    chance: FloatArray  # (k,) not decreasing, at most 1

    def __post_init__(self) -> None:
        times = np.asarray(self.times_s, dtype=np.float64)
        chance = np.asarray(self.chance, dtype=np.float64)
        if times.ndim != 1 or times.shape != chance.shape or len(times) == 0:
            raise InputError(f'times_s has shape {times.shape} and chance {chance.shape}, wanted the same (k,), k > 0')
        if not np.all(np.isfinite(times)) or times[0] < 0 or np.any(np.diff(times) <= 0):
            raise InputError('times_s must be finite seconds >= 0, each after the one before')
        if not np.all(np.isfinite(chance)) or chance[0] < 0 or chance[-1] > 1 or np.any(np.diff(chance) < 0):
            raise InputError('chance must run from at least 0 to at most 1 and never fall')
        object.__setattr__(self, 'times_s', times)
        object.__setattr__(self, 'chance', chance)

    @property
    def ceiling(self) -> float:
        """The chance of ever succeeding."""
        return float(self.chance[-1])

    def at(self, t_s: ArrayLike) -> FloatArray:
        """F at each time."""
        times, chance = self._points()
        return np.asarray(np.interp(np.asarray(t_s, dtype=np.float64), times, chance), dtype=np.float64)

    def quantile(self, level: ArrayLike) -> FloatArray:
        """The time by which a share `level` has succeeded; infinite above the ceiling."""
        times, chance = self._points()
        asked = np.asarray(level, dtype=np.float64)
        rising = np.concatenate([[True], np.diff(chance) > 0])
        return np.where(asked <= self.ceiling, np.interp(asked, chance[rising], times[rising]), np.inf)

    def _points(self) -> tuple[FloatArray, FloatArray]:
        if self.times_s[0] == 0:
            return self.times_s, self.chance
        return np.concatenate([[0.0], self.times_s]), np.concatenate([[0.0], self.chance])


def lognormal_curve(median_s: float, *, spread: float = 0.8, ceiling: float = 1.0) -> AssumedCurve:
    """A lognormal time with this median and log standard deviation, for the share `ceiling` that ever succeeds."""
    from robotrials.stats.special import ndtri

    if not (np.isfinite(median_s) and median_s > 0 and np.isfinite(spread) and spread > 0):
        raise InputError(f'median_s is {median_s} and spread {spread}, wanted finite numbers > 0')
    if not 0 < ceiling <= 1:
        raise InputError(f'ceiling is {ceiling}, wanted a chance over 0 and at most 1')
    level = (np.arange(LEVELS) + 0.5) / LEVELS
    times = median_s * np.exp(spread * ndtri(level))
    end = times[-1] * np.exp(spread)
    return AssumedCurve(np.append(times, end), ceiling * np.append(level, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class AssumedCell:
    """A curve, and how episodes come: operations in each, how alike they are, and when watching one stops.

    `correlation` is that of two operations' normal scores within an episode (0: independent). `watched_s` censors an
    operation that takes longer; None watches for ever.
    """

    curve: AssumedCurve
    operations_per_episode: int = 1
    correlation: float = 0.0
    watched_s: float | None = None

    def __post_init__(self) -> None:
        if self.operations_per_episode < 1:
            raise InputError(f'operations_per_episode is {self.operations_per_episode}, wanted at least 1')
        if not 0 <= self.correlation < 1:
            raise InputError(f'correlation is {self.correlation}, wanted 0 <= correlation < 1')
        if self.watched_s is not None and not self.watched_s > 0:
            raise InputError(f'watched_s is {self.watched_s}, wanted seconds > 0, or None')


def assumed_operations(cell: AssumedCell, n_episodes: int, *, rng: np.random.Generator) -> Operations:
    """Episodes drawn from the assumption: each operation's time has the curve's distribution."""
    from robotrials.stats.special import ndtr

    if n_episodes < 1:
        raise InputError(f'n_episodes is {n_episodes}, wanted at least 1')
    shared = rng.standard_normal((n_episodes, 1))
    own = rng.standard_normal((n_episodes, cell.operations_per_episode))
    level = ndtr(np.sqrt(cell.correlation) * shared + np.sqrt(1 - cell.correlation) * own).ravel()
    times = cell.curve.quantile(level)
    observed = np.ones(len(times), dtype=np.bool_)
    if cell.watched_s is not None:
        late = np.isfinite(times) & (times > cell.watched_s)
        times, observed = np.where(late, cell.watched_s, times), ~late
    episode = np.repeat(np.arange(n_episodes), cell.operations_per_episode)
    return Operations(times, observed, episode.astype(np.int64))


def assumed_cells(
    cells: Mapping[str, AssumedCell], n_episodes: int, *, rng: np.random.Generator
) -> dict[str, Operations]:
    """`n_episodes` drawn in every stratum."""
    return {name: assumed_operations(cell, n_episodes, rng=rng) for name, cell in cells.items()}
