"""Estimates with episode-clustered bootstrap intervals, and how they combine: macro means, ratios, differences."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np

from robotrials.errors import NotEstimable
from robotrials.measure.timing.jackknife import scalar_jackknife
from robotrials.measure.timing.operation import FloatArray, IntArray, Operations
from robotrials.measure.timing.resample import (
    FIRST_QUANTILE,
    RMST,
    SortedCell,
    curve_draws,
    scalar_draws,
    sort_cell,
    stream_seed,
)
from robotrials.stats import Estimate, Interval, absent_estimate, bootstrap_interval
from robotrials.stats.argument import check_count

Kept = TypeVar('Kept')


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """A statistic: its value, its bootstrap draws, and its values with each episode left out (grouped by cell)."""

    value: float
    draws: FloatArray  # (B,)
    left_out: FloatArray  # (M,)
    group: IntArray  # (M,)


def combine(function: Callable[..., Any], parts: Sequence[Draws]) -> Draws:
    """`function` of independent statistics: draws go in parallel, one episode of one part is left out at a time."""
    values = [p.value for p in parts]
    left, group, start = [], [], 0
    with np.errstate(divide='ignore', invalid='ignore'):
        for i, part in enumerate(parts):
            left.append(np.broadcast_to(function(*values[:i], part.left_out, *values[i + 1 :]), part.left_out.shape))
            group.append(part.group + start)
            start += int(part.group.max(initial=-1)) + 1
        value = float(function(*(np.float64(v) for v in values)))
        draws = np.asarray(function(*(p.draws for p in parts)), dtype=np.float64)
    return Draws(value, draws, np.concatenate(left), np.concatenate(group))


def jointly(function: Callable[..., Any], parts: Sequence[Draws]) -> Draws:
    """`function` of several statistics of one cell: they are resampled, and their episodes left out, together."""
    with np.errstate(divide='ignore', invalid='ignore'):
        return Draws(
            float(function(*(np.float64(p.value) for p in parts))),
            np.asarray(function(*(p.draws for p in parts)), dtype=np.float64),
            np.asarray(function(*(p.left_out for p in parts)), dtype=np.float64),
            parts[0].group,
        )


def macro_mean(parts: Sequence[Draws]) -> Draws:
    """The equal-weight mean of the strata's statistics."""
    if not parts:
        raise NotEstimable('no stratum was given: there is no mean of nothing')
    n = len(parts)
    values = np.array([p.value for p in parts])
    starts = np.cumsum([0, *(int(p.group.max(initial=-1)) + 1 for p in parts)])
    with np.errstate(invalid='ignore'):
        # Sums before and after each part, since a value that is infinite can't be taken off the total.
        others = np.cumsum([0.0, *values[:-1]]) + np.cumsum([0.0, *values[:0:-1]])[::-1]
        left = [(other + p.left_out) / n for other, p in zip(others, parts, strict=True)]
        draws = np.sum([p.draws for p in parts], axis=0) / n
    return Draws(
        value=float(values.sum() / n),
        draws=np.asarray(draws, dtype=np.float64),
        left_out=np.concatenate(left),
        group=np.concatenate([p.group + start for p, start in zip(parts, starts[:-1], strict=True)]),
    )


def difference(a: Draws, b: Draws) -> Draws:
    return combine(lambda x, y: x - y, [a, b])


def ratio(a: Draws, b: Draws) -> Draws:
    return combine(lambda x, y: x / y, [a, b])


def pair_left_out(sample: Draws, pairs: Sequence[tuple[int, int]]) -> Draws:
    """Leave out matched episodes of two groups together; their effects on the value add up to first order."""
    left, group = [], []
    for number, (one, other) in enumerate(pairs):
        both = sample.left_out[sample.group == one] + sample.left_out[sample.group == other] - sample.value
        left.append(both)
        group.append(np.full(len(both), number, dtype=np.int64))
    used = {g for pair in pairs for g in pair}
    for number, rest in enumerate(sorted(set(sample.group.tolist()) - used), start=len(pairs)):
        left.append(sample.left_out[sample.group == rest])
        group.append(np.full(len(left[-1]), number, dtype=np.int64))
    return Draws(sample.value, sample.draws, np.concatenate(left), np.concatenate(group))


def estimate(sample: Draws, *, level: float = 0.95, note: str = '') -> Estimate:
    """Value and both intervals; an interval that the data can't give is None."""
    if np.isnan(sample.value):
        return absent_estimate(note or 'not estimable from these data')
    if len(sample.left_out) <= np.count_nonzero(np.bincount(sample.group)):
        return Estimate(sample.value, note=note or 'no interval: one episode per stratum does not vary')
    sample = Draws(sample.value, np.sort(sample.draws), sample.left_out, sample.group)
    intervals: list[Interval | None] = []
    for method in ('percentile', 'bca'):
        try:
            intervals.append(_interval(sample, level=level, method=method))
        except NotEstimable:
            intervals.append(None)
    if intervals[0] is None and not note:
        note = 'no interval: some resamples do not have this statistic'
    percentile, bca = intervals
    default = percentile
    if percentile is not None and percentile.width == 0:
        default, note = None, note or 'no interval: every resample gave the same value, which proves nothing'
    return Estimate(sample.value, default, note, percentile=percentile, bca=bca)


def _interval(sample: Draws, *, level: float, method: str) -> Interval:
    if method == 'percentile':
        return bootstrap_interval(sample.value, sample.draws, level=level, method='percentile')
    if sample.draws[0] == sample.draws[-1] == sample.value:
        return Interval(sample.value, sample.value)
    strata = sample.group if sample.group.any() else None
    return bootstrap_interval(
        sample.value, sample.draws, level=level, method='bca', jackknife=sample.left_out, strata=strata
    )


@dataclass(frozen=True, slots=True, eq=False)
class ResampledCell:
    """A cell with its own random stream: every statistic asked of it sees the same resampled episodes."""

    sorted: SortedCell
    seed: np.uint64
    n_resamples: int
    threads: int | None = None
    kept: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)  # what was worked out already

    def once(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """What `make` gives, worked out the first time that `key` is asked for."""
        if key not in self.kept:
            self.kept[key] = make()
        return cast('Kept', self.kept[key])

    def scalars(self, tau_s: float, levels: Sequence[float] = ()) -> tuple[Draws, ...]:
        """RMST, F(tau), integral of t dF, plateau, and a quantile a level (infinite where it is not reached)."""
        return self.once(('scalars', tau_s, tuple(levels)), lambda: self._scalars(tau_s, levels))

    def _scalars(self, tau_s: float, levels: Sequence[float]) -> tuple[Draws, ...]:
        asked = sorted(levels)
        draws = scalar_draws(
            self.sorted, n_resamples=self.n_resamples, seed=self.seed, tau_s=tau_s, levels=asked, threads=self.threads
        )
        left = scalar_jackknife(self.sorted, tau_s=tau_s, levels=asked)
        for table in (draws, left):
            quantiles = table[:, FIRST_QUANTILE:]
            quantiles[np.isnan(quantiles)] = np.inf
        return tuple(
            Draws(float(left[-1, k]), draws[:, k], left[:-1, k], np.zeros(len(left) - 1, dtype=np.int64))
            for k in (*range(FIRST_QUANTILE), *(FIRST_QUANTILE + asked.index(level) for level in levels))
        )

    def rmst(self, tau_s: float) -> Draws:
        return self.scalars(tau_s)[RMST]

    def chances(self, times_s: Sequence[float]) -> tuple[Draws, ...]:
        """F at each of some times; none for none."""
        return self.once(('chances', tuple(times_s)), lambda: self._chances(times_s))

    def _chances(self, times_s: Sequence[float]) -> tuple[Draws, ...]:
        if not len(times_s):
            return ()
        grid = np.sort(np.asarray(times_s, dtype=np.float64))
        draws = curve_draws(self.sorted, grid, n_resamples=self.n_resamples, seed=self.seed, threads=self.threads)
        left = np.stack([scalar_jackknife(self.sorted, tau_s=float(t))[:, 1] for t in grid], axis=1)
        zeros = np.zeros(len(left) - 1, dtype=np.int64)
        found = {t: Draws(float(left[-1, k]), draws[:, k], left[:-1, k], zeros) for k, t in enumerate(grid.tolist())}
        return tuple(found[float(t)] for t in times_s)


def resampled_cells(
    cells: Mapping[str, Operations], *, n_resamples: int, rng: np.random.Generator, threads: int | None = None
) -> dict[str, ResampledCell]:
    """Each stratum's cell with a stream of its own, drawn from `rng` in the mapping's order."""
    n_resamples = check_count('n_resamples', n_resamples, least=1)
    return {
        name: ResampledCell(sort_cell(cell), stream_seed(rng), n_resamples, threads) for name, cell in cells.items()
    }
