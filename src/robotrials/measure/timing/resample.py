"""Resampling of episodes: cells sorted once, then thousands of weighted curves in passes over threads."""

from __future__ import annotations

import contextlib
import copy
import enum
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.operation import BoolArray, FloatArray, IntArray, Operations
from robotrials.stats.interval import check_rng
from robotrials.value import dataclass

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


# Large resampling as tasks of a Ray cluster: the same numbers, because every resample has a stream of its own.

LEAST_STEPS = 2_000_000_000  # operations passed over, about 3 s of one core: below, sending costs more than it brings
PIECES_A_CORE = 3  # so that a slow node does not hold up the rest


@dataclass(frozen=True, slots=True)
class Farm:
    """A cluster that takes pieces of a resampling; what is below `least_steps` stays on this machine."""

    ray: Any
    least_steps: int = LEAST_STEPS

    def takes(self, steps: int) -> bool:
        return steps >= self.least_steps

    def rows(self, draw: Callable[..., Any], *given: Any, n_resamples: int, **options: Any) -> Any:
        """`draw` over all resamples: its rows are resamples."""
        edges = self._edges(n_resamples)
        options = {**options, 'threads': 1}
        asked = [{'first': a, 'n_resamples': b - a, **options} for a, b in edges]
        return np.concatenate(self._map(draw, given, asked))

    def trials(self, test: Callable[..., Any], layout: Any, units: Any, *, n_resamples: int, **options: Any) -> Any:
        """`test` over all trials or, of few, over their resamples: (observed, null)."""
        over_trials = len(units) >= self._count()
        edges = self._edges(len(units) if over_trials else n_resamples)
        options = {**options, 'threads': 1}
        if over_trials:
            asked = [{'units': units[a:b], 'first_trial': a, 'n_resamples': n_resamples, **options} for a, b in edges]
        else:
            asked = [{'units': units, 'first_resample': a, 'n_resamples': b - a, **options} for a, b in edges]
        parts = self._map(test, (layout,), asked)
        observed = np.concatenate([seen for seen, _ in parts]) if over_trials else parts[0][0]
        return observed, np.concatenate([null for _, null in parts], axis=0 if over_trials else 1)

    def _count(self) -> int:
        return max(1, int(self.ray.cluster_resources().get('CPU', 1))) * PIECES_A_CORE

    def _edges(self, n: int) -> list[tuple[int, int]]:
        edges = np.linspace(0, n, min(self._count(), n) + 1).astype(int).tolist()
        return list(itertools.pairwise(edges))

    def _map(self, function: Callable[..., Any], given: Sequence[Any], asked: Sequence[dict[str, Any]]) -> list[Any]:
        # Pure functions of their arguments: a piece that was lost with its node is simply done again.
        call = self.ray.remote(_call).options(num_cpus=1, max_retries=5)
        shared = self.ray.put(tuple(given))
        return list(self.ray.get([call.remote(function, shared, options) for options in asked]))


def _call(function: Callable[..., Any], given: Sequence[Any], options: dict[str, Any]) -> Any:
    # What Ray hands over cannot be written to.
    return function(*copy.deepcopy(given), **copy.deepcopy(options))


_farm: ContextVar[Farm | None] = ContextVar('farm', default=None)


def current_farm() -> Farm | None:
    """The cluster that large resampling goes to, if any."""
    return _farm.get()


@contextlib.contextmanager
def farmed(ray: Any, *, least_steps: int = LEAST_STEPS) -> Iterator[None]:
    """Send resampling of at least so many steps to a cluster that `ray` is connected to."""
    token = _farm.set(Farm(ray, least_steps))
    try:
        yield
    finally:
        _farm.reset(token)


RMST, CHANCE, MOMENT, PLATEAU, FIRST_QUANTILE = range(5)


class NullMethod(enum.StrEnum):
    """How the null hypothesis is resampled."""

    POOLED_BOOTSTRAP = 'pooled_bootstrap'  # as published: both arms drawn with replacement from the pooled episodes
    PERMUTATION = 'permutation'  # episode labels shuffled within each stratum
    PAIRED_SWAP = 'paired_swap'  # labels swapped within matched scenes


CHUNK_ROWS = 32
FEWEST_STEPS_A_THREAD = 200_000  # about a quarter of a millisecond

METHOD_CODES = {NullMethod.POOLED_BOOTSTRAP: 0, NullMethod.PERMUTATION: 1, NullMethod.PAIRED_SWAP: 2}


@dataclass(frozen=True, slots=True, eq=False)
class SortedCell:
    """One cell's finite operations in time order (events before censorings at a tie), ready for the kernels."""

    times_s: FloatArray  # (n,)
    cluster: NDArray[np.int32]  # (n,)
    event: NDArray[np.uint8]  # (n,)
    sizes: NDArray[np.int32]  # (E,) operations an episode, ghosts included
    inverse: FloatArray  # (most at risk + 1,) 1/n, and 0 at n = 0

    @property
    def n_episodes(self) -> int:
        return len(self.sizes)


def sort_cell(cell: Operations) -> SortedCell:
    """The cell's operations sorted once; no operation at all is NotEstimable."""
    if cell.n_operations == 0:
        raise NotEstimable('no operation in this cell: no valid episode gives a time, so there is no curve')
    cluster = cell.cluster
    sizes = np.bincount(cluster, minlength=cell.n_episodes).astype(np.int32)
    finite = np.isfinite(cell.durations_s)
    times_s, event, cluster = cell.durations_s[finite], cell.observed[finite], cluster[finite]
    order = np.lexsort((~event, times_s))
    return SortedCell(
        times_s=np.ascontiguousarray(times_s[order]),
        cluster=cluster[order].astype(np.int32),
        event=event[order].astype(np.uint8),
        sizes=sizes,
        inverse=inverse_counts(int(sizes.max()) * len(sizes)),
    )


def inverse_counts(most: int) -> FloatArray:
    """1/n for n = 0 .. most, with 0 at n = 0 so that an empty risk set changes no curve."""
    return np.divide(1.0, np.arange(most + 1), out=np.zeros(most + 1), where=np.arange(most + 1) > 0)


def stream_seed(rng: np.random.Generator) -> np.uint64:
    """The 64-bit seed that a kernel's streams are numbered from."""
    return np.uint64(check_rng(rng).integers(0, 2**64, dtype=np.uint64))


def spread(
    n_rows: int, work: Callable[[int, int], None], *, steps_a_row: int, threads: int | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> None:  # fmt: skip
    """Call work(start, stop) over all rows, on `threads` threads (default: every core this process may use).

    The calling thread works too; chunks are taken one after another, which evens out what other processes take. What
    takes too few steps (operations passed over) to be worth waking a thread for is done at once.
    """
    wanted = threads if threads is not None else available_cores()
    if wanted < 1:
        raise InputError(f'threads is {threads}, wanted at least 1')
    count = min(wanted, -(-n_rows // chunk_rows), n_rows * steps_a_row // FEWEST_STEPS_A_THREAD)
    if count <= 1:
        work(0, n_rows)
        return
    # Whole lanes of the kernels a chunk, so that none is half empty.
    size = -(-n_rows // (4 * count * chunk_rows)) * chunk_rows
    starts = iter(range(0, n_rows, size))

    def take() -> None:
        for start in starts:
            work(start, min(start + size, n_rows))

    others = [helpers(count - 1).submit(take) for _ in range(count - 1)]
    take()
    for other in others:
        other.result()


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


_HELPERS: dict[int, ThreadPoolExecutor] = {}
# A forked child has none of its parent's threads.
os.register_at_fork(after_in_child=_HELPERS.clear)


def helpers(count: int) -> ThreadPoolExecutor:
    """Threads that wait for work: starting them costs more than many a pass takes."""
    if count not in _HELPERS:
        from concurrent.futures import ThreadPoolExecutor

        _HELPERS[count] = ThreadPoolExecutor(count, thread_name_prefix='robotrials-timing')
    return _HELPERS[count]


def scalar_draws(
    cell: SortedCell, *, n_resamples: int, seed: np.uint64, tau_s: float, levels: Sequence[float] = (),
    threads: int | None = None, first: int = 0,
) -> FloatArray:  # fmt: skip
    """(n_resamples, 4 + levels) episode-bootstrap draws: RMST, F(tau), integral of t dF, plateau, quantiles."""
    from robotrials.measure.timing import kernel

    if (farm := current_farm()) is not None and farm.takes(n_resamples * len(cell.times_s)):
        return np.asarray(farm.rows(scalar_draws, cell, n_resamples=n_resamples, seed=seed, tau_s=tau_s, levels=levels))
    out = np.empty((n_resamples, kernel.N_SCALARS + len(levels)))
    asked = np.array(levels, dtype=np.float64)

    def work(start: int, stop: int) -> None:
        kernel.bootstrap_scalars(
            cell.times_s,
            cell.cluster,
            cell.event,
            cell.sizes,
            cell.inverse,
            tau_s,
            asked,
            seed,
            first + start,
            out[start:stop],
        )

    spread(n_resamples, work, steps_a_row=len(cell.times_s), threads=threads)
    return out


def curve_draws(
    cell: SortedCell,
    grid_s: FloatArray,
    *,
    n_resamples: int,
    seed: np.uint64,
    threads: int | None = None,
    first: int = 0,
) -> FloatArray:
    """(n_resamples, grid) episode-bootstrap draws of F on a sorted grid of times."""
    from robotrials.measure.timing import kernel

    if (farm := current_farm()) is not None and farm.takes(n_resamples * len(cell.times_s)):
        return np.asarray(farm.rows(curve_draws, cell, grid_s, n_resamples=n_resamples, seed=seed))
    out = np.empty((n_resamples, len(grid_s)))
    grid = np.ascontiguousarray(grid_s, dtype=np.float64)

    def work(start: int, stop: int) -> None:
        kernel.bootstrap_curves(
            cell.times_s, cell.cluster, cell.event, cell.sizes, grid, seed, first + start, out[start:stop]
        )

    spread(n_resamples, work, steps_a_row=len(cell.times_s), threads=threads)
    return out


def macro_curve_draws(
    cells: Sequence[tuple[SortedCell, np.uint64]],
    grid_s: FloatArray,
    *,
    n_resamples: int,
    threads: int | None = None,
    first: int = 0,
) -> FloatArray:
    """(n_resamples, grid) draws of the equal-weight mean of cells' F, each cell resampled by its own seed."""
    from robotrials.measure.timing import kernel

    steps_a_row = sum(len(cell.times_s) for cell, _ in cells)
    if (farm := current_farm()) is not None and farm.takes(n_resamples * steps_a_row):
        return np.asarray(farm.rows(macro_curve_draws, cells, grid_s, n_resamples=n_resamples))
    out = np.zeros((n_resamples, len(grid_s)))
    places = [np.searchsorted(grid_s, cell.times_s).astype(np.int64) for cell, _ in cells]

    def work(start: int, stop: int) -> None:
        rows = out[start:stop]
        for (cell, seed), where in zip(cells, places, strict=True):
            kernel.bootstrap_jumps(
                cell.cluster, cell.event, cell.sizes, where, 1 / len(cells), seed, first + start, rows
            )
        np.cumsum(rows, axis=1, out=rows)

    spread(n_resamples, work, steps_a_row=steps_a_row, threads=threads)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class PairLayout:
    """Two policies' cells merged stratum by stratum and sorted once; a's episodes come first in each stratum."""

    strata: tuple[str, ...]
    times_s: FloatArray
    rank: NDArray[np.int32]  # equal times share a rank
    cluster: NDArray[np.int32]  # within its stratum
    event: NDArray[np.uint8]
    op_offsets: IntArray
    sizes: NDArray[np.int32]
    episode_offsets: IntArray
    n_a: IntArray  # a's episodes in each stratum
    inverse: FloatArray

    @property
    def n_b(self) -> IntArray:
        return np.diff(self.episode_offsets) - self.n_a

    def own_units(self) -> NDArray[np.int32]:
        """(1, units): the arrangement as recorded."""
        return np.concatenate([np.arange(n) for n in np.diff(self.episode_offsets)]).astype(np.int32)[None, :]


def pair_layout(
    a: Mapping[str, Operations], b: Mapping[str, Operations], *, tau_s: float | None = None,
    unit_factor: int = 1,
) -> PairLayout:  # fmt: skip
    """Merge two policies' cells; operations after tau_s stay in the risk set and out of the passes.

    The table of inverses covers arms of up to `unit_factor` times the stratum's episodes.
    """
    columns: list[tuple[FloatArray, NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]] = []
    sizes: list[NDArray[np.int32]] = []
    for name in a:
        columns.append(_merge_stratum(a[name], b[name], tau_s))
        parts = [np.bincount(c.cluster, minlength=c.n_episodes) for c in (a[name], b[name])]
        sizes.append(np.concatenate(parts).astype(np.int32))
    most = max(int(s.max(initial=0)) * len(s) for s in sizes) * unit_factor
    times, ranks, clusters, events = (np.concatenate(part) for part in zip(*columns, strict=True))
    return PairLayout(
        strata=tuple(a),
        times_s=times,
        rank=ranks,
        cluster=clusters,
        event=events,
        op_offsets=np.cumsum([0, *(len(c[0]) for c in columns)]).astype(np.int64),
        sizes=np.concatenate(sizes),
        episode_offsets=np.cumsum([0, *(len(s) for s in sizes)]).astype(np.int64),
        n_a=np.array([a[name].n_episodes for name in a], dtype=np.int64),
        inverse=inverse_counts(most),
    )


def _merge_stratum(
    a: Operations, b: Operations, tau_s: float | None
) -> tuple[FloatArray, NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8]]:
    times = np.concatenate([a.durations_s, b.durations_s])
    event = np.concatenate([a.observed, b.observed])
    cluster = np.concatenate([a.cluster, b.cluster + a.n_episodes])
    kept = np.isfinite(times) & (times <= (np.inf if tau_s is None else tau_s))
    times, event, cluster = times[kept], event[kept], cluster[kept]
    order = np.lexsort((~event, times))
    rank = np.unique(times[order], return_inverse=True)[1]
    return times[order], rank.astype(np.int32), cluster[order].astype(np.int32), event[order].astype(np.uint8)


def ks_trials(
    layout: PairLayout, units: NDArray[np.int32], *, n_a: IntArray, n_b: IntArray, n_resamples: int,
    method: NullMethod, seed: np.uint64, threads: int | None = None, first_trial: int = 0, first_resample: int = 0,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Many macro-KS tests over one layout: per-stratum KS (trials, strata) and null macro-KS (trials, n_resamples).

    Row r of `units` is trial r's arrangement: for each stratum n_a[s] episodes of arm a, then n_b[s] of arm b, each a
    place among the stratum's merged episodes (repeats allowed).
    """
    from robotrials.measure.timing import kernel

    if (farm := current_farm()) is not None and farm.takes(len(units) * n_resamples * len(layout.times_s)):
        asked = {'n_a': n_a, 'n_b': n_b, 'method': method, 'seed': seed}
        observed, null = farm.trials(ks_trials, layout, units, n_resamples=n_resamples, **asked)
        return observed, null
    offsets = unit_offsets(n_a, n_b)
    trials = len(units)
    observed = np.empty((trials, len(n_a)))
    null = np.empty((trials, n_resamples))
    over_trials = trials >= 16

    def work(start: int, stop: int) -> None:
        rows = slice(start, stop) if over_trials else slice(None)
        columns = slice(None) if over_trials else slice(start, stop)
        part, seen = np.empty(null[rows, columns].shape), np.empty_like(observed[rows])
        kernel.macro_ks_trials(
            layout.rank, layout.cluster, layout.event, layout.op_offsets, layout.sizes, layout.episode_offsets,
            units[rows], offsets, n_a, METHOD_CODES[method], seed,
            first_trial + (start if over_trials else 0), first_resample + (0 if over_trials else start), seen, part,
        )  # fmt: skip
        null[rows, columns], observed[rows] = part, seen

    if over_trials:
        spread(trials, work, steps_a_row=len(layout.times_s) * n_resamples, threads=threads, chunk_rows=1)
    else:
        spread(max(n_resamples, 1), work, steps_a_row=len(layout.times_s) * len(units), threads=threads)
    return observed, null


def contrast_trials(
    layout: PairLayout, units: NDArray[np.int32], *, n_a: IntArray, n_b: IntArray, n_resamples: int,
    method: NullMethod, seed: np.uint64, tau_s: float, thresholds_s: Sequence[float], threads: int | None = None,
    first_trial: int = 0, first_resample: int = 0,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """As ks_trials, for KS, RMST difference and F differences at sorted thresholds.

    Gives (trials, strata, 2 + thresholds) and the macro-averaged null (trials, n_resamples, 2 + thresholds).
    """
    from robotrials.measure.timing import kernel

    offsets = unit_offsets(n_a, n_b)
    asked = np.array(thresholds_s, dtype=np.float64)
    if np.any(np.diff(asked) < 0):
        raise InputError(f'thresholds_s is {list(thresholds_s)}, wanted them in increasing order')
    if (farm := current_farm()) is not None and farm.takes(len(units) * n_resamples * len(layout.times_s)):
        options = {'n_a': n_a, 'n_b': n_b, 'method': method, 'seed': seed}
        observed, null = farm.trials(
            contrast_trials, layout, units, n_resamples=n_resamples, tau_s=tau_s, thresholds_s=thresholds_s, **options
        )
        return observed, null
    observed = np.zeros((len(units), len(n_a), 2 + len(asked)))
    null = np.zeros((len(units), n_resamples, 2 + len(asked)))
    over_trials = len(units) >= 16

    def work(start: int, stop: int) -> None:
        rows = slice(start, stop) if over_trials else slice(None)
        columns = slice(None) if over_trials else slice(start, stop)
        part, seen = np.zeros(null[rows, columns].shape), np.zeros_like(observed[rows])
        kernel.contrast_trials(
            layout.times_s, layout.rank, layout.cluster, layout.event, layout.op_offsets, layout.sizes,
            layout.episode_offsets, units[rows], offsets, n_a, METHOD_CODES[method], seed,
            first_trial + (start if over_trials else 0), first_resample + (0 if over_trials else start), tau_s, asked,
            seen, part,
        )  # fmt: skip
        null[rows, columns], observed[rows] = part, seen

    if over_trials:
        spread(len(units), work, steps_a_row=len(layout.times_s) * n_resamples, threads=threads, chunk_rows=1)
    else:
        spread(max(n_resamples, 1), work, steps_a_row=len(layout.times_s) * len(units), threads=threads)
    return observed, null


def unit_offsets(n_a: IntArray, n_b: IntArray) -> IntArray:
    """Where each stratum's units start in an arrangement row."""
    return np.concatenate([[0], np.cumsum(np.asarray(n_a) + np.asarray(n_b))]).astype(np.int64)


# Each episode left out in turn, as BCa intervals need it: in nearly linear time, equal to doing it one by one.

SLACK = 1e-12


def scalar_jackknife(cell: SortedCell, *, tau_s: float, levels: Sequence[float] = ()) -> FloatArray:
    """(E + 1, 4 + levels): RMST, F(tau), integral of t dF, plateau and quantiles with each episode left out.

    The last row leaves none out. `levels` increase; a quantile that is not reached is NaN.
    """
    from robotrials.measure.timing.jackknife import kernel
    from robotrials.measure.timing.kernel import N_SCALARS, curve_scalars

    asked = np.array(levels, dtype=np.float64)
    left_out = np.empty((cell.n_episodes, kernel.FIRST_QUANTILE + len(asked)))
    n_to_tau = int(np.searchsorted(cell.times_s, tau_s, side='right'))
    kernel.left_out_curves(
        cell.times_s, cell.cluster, cell.event, cell.sizes, cell.times_s, n_to_tau, asked, left_out
    )  # fmt: skip
    out = np.empty((cell.n_episodes + 1, N_SCALARS + len(asked)))
    moment, missing = left_out[:, kernel.GAIN], left_out[:, kernel.AT_STOP]
    # Integrating by parts: the RMST is the integral of t dF up to tau, and tau times what is left.
    out[:-1, 0], out[:-1, 1], out[:-1, 2] = moment + tau_s * missing, 1.0 - missing, moment
    out[:-1, 3], out[:-1, N_SCALARS:] = 1.0 - left_out[:, kernel.AT_END], left_out[:, kernel.FIRST_QUANTILE :]
    none_left_out = np.ones(cell.n_episodes, dtype=np.int32)
    curve_scalars(
        cell.times_s, cell.cluster, cell.event, cell.sizes, none_left_out, cell.inverse, tau_s, asked, out[-1]
    )  # fmt: skip
    return out


def auc_jackknife(layout: PairLayout) -> FloatArray:
    """(E + 1,) AUC of a layout of one stratum with each episode left out, a's first, and last with none left out."""
    n_a, event = int(layout.n_a[0]), layout.event > 0
    is_a = layout.cluster < n_a
    a, b = _CurveSide.of(layout, is_a, slice(0, n_a)), _CurveSide.of(layout, ~is_a, slice(n_a, None))
    end = min(a.known_to, b.known_to)
    steps = np.where(event & is_a, a.steps[:-1] - a.steps[1:], 0.0)[:end]
    whole = float(steps @ b.middle[:end] + a.steps[end] * b.steps[end] / 2)
    # Whoever of the two is ahead, both shares and the ties make 1.
    return np.concatenate([_without(a, b, layout), 1.0 - _without(b, a, layout), [whole]])


@dataclass(frozen=True, slots=True, eq=False)
class _CurveSide:
    """One of the two curves, over the merged operations of both."""

    own: BoolArray  # (n,) its operations
    episodes: slice
    steps: FloatArray  # (n + 1,) 1 - F before each operation, and after all
    middle: FloatArray  # (n,) the mean of 1 - F before and after the instant of each operation
    known_to: int  # how many operations it is known for: all, unless its last was censored

    @classmethod
    def of(cls, layout: PairLayout, own: BoolArray, episodes: slice) -> _CurveSide:
        at_risk, rank = int(layout.sizes[episodes].sum()), layout.rank
        still = at_risk - (np.cumsum(own) - own)
        factor = np.where(own & (layout.event > 0), 1.0 - 1.0 / np.maximum(still, 1), 1.0)
        steps: FloatArray = np.cumprod(np.concatenate([[1.0], factor]), dtype=np.float64)
        middle = (steps[np.searchsorted(rank, rank)] + steps[np.searchsorted(rank, rank, side='right')]) / 2
        known_to = len(rank)
        if own.sum() == at_risk and steps[-1] > SLACK:
            known_to = _end_of_instant(rank, int(np.flatnonzero(own)[-1]))
        return cls(own, episodes, steps, middle, known_to)


def _without(side: _CurveSide, other: _CurveSide, layout: PairLayout) -> FloatArray:
    """P(T < T_other), ties halved, with each episode of `side` left out.

    The other side's curve stays as it is, so the AUC is an integral over this side's curve, up to where the other's is
    unknown, plus half of what both have left at the horizon.
    """
    from robotrials.measure.timing.jackknife import kernel

    own, sizes = side.own, layout.sizes[side.episodes]
    places, cluster = np.flatnonzero(own), (layout.cluster[own] - side.episodes.start).astype(np.int32)
    left_out = np.empty((len(sizes), kernel.FIRST_QUANTILE))
    kernel.left_out_curves(
        layout.times_s[own], cluster, layout.event[own], sizes, other.middle[own],
        int(np.searchsorted(places, other.known_to)), np.empty(0), left_out,
    )  # fmt: skip
    ends = np.minimum(_known_to(layout.rank, places, cluster, sizes, left_out[:, kernel.AT_END]), other.known_to)
    return np.asarray(left_out[:, kernel.GAIN] + left_out[:, kernel.AT_STOP] * other.steps[ends] / 2, dtype=np.float64)


def _known_to(
    rank: NDArray[np.int32], places: IntArray, cluster: NDArray[np.int32], sizes: NDArray[np.int32],
    at_end: FloatArray,
) -> IntArray:  # fmt: skip
    """(E,) how many operations of the layout each left-out curve is known for: all, unless its last was censored."""
    known = np.full(len(sizes), len(rank), dtype=np.int64)
    others = int(sizes.sum()) - sizes
    listed = len(places) - np.bincount(cluster, minlength=len(sizes))
    unknown = (others == listed) & (at_end > SLACK)
    if not unknown.any():
        return known
    if len(places):
        known[unknown] = _end_of_instant(rank, int(places[-1]))
        last = int(cluster[-1])
        rest = places[cluster != last]
        if unknown[last]:
            known[last] = _end_of_instant(rank, int(rest[-1]) if len(rest) else 0)
    known[unknown & (others == 0)] = _end_of_instant(rank, 0) if len(rank) else 0
    return known


def _end_of_instant(rank: NDArray[np.int32], place: int) -> int:
    """How many operations end by the instant of the one at `place`."""
    return int(np.searchsorted(rank, rank[place], side='right'))
