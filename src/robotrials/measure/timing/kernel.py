"""Kaplan-Meier passes over resampled episodes.

Operations of a cell are sorted once by time, events before censorings at a tie. A resample is a weight an episode; one
pass over the sorted operations gives the curve: tied events are taken one after another, which telescopes to the tied
factor. Ghosts (T = infinity) never leave the risk set, so they are only in its first size. Every resample has its own
counter-based random stream, so that results do not depend on how resamples are spread over threads.

Here a block of resamples is one array (operations, resamples), in C a pass has a few lanes; the arithmetic is the same
step by step, divisions shared by two lanes included, so that both give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.compiled import in_c

F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
U1 = NDArray[np.uint8]
U8 = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_A = np.uint64(0xBF58476D1CE4E5B9)
MIX_B = np.uint64(0x94D049BB133111EB)
LOW32 = np.uint64(0xFFFFFFFF)
S27, S30, S31, S32, S63 = (np.uint64(shift) for shift in (27, 30, 31, 32, 63))

END_OF_TIE = 2

POOLED_BOOTSTRAP, PERMUTATION, PAIRED_SWAP = 0, 1, 2
N_SCALARS = 4  # RMST(tau), F(tau), integral of t dF up to tau, F at the last finite time
SLACK = 1e-12
LANES = 16
BLOCK = 1 << 20  # numbers in an array of (operations, resamples)


def _mixed(state: U8) -> U8:
    """Splitmix64's output function."""
    z = (state ^ (state >> S30)) * MIX_A
    z = (z ^ (z >> S27)) * MIX_B
    return z ^ (z >> S31)


def _streams(seed: Any, first: int, count: int) -> U8:
    """The starts of streams `first`, `first + 1`, ...: two rounds of mixing keep neighbouring streams apart."""
    start = np.arange(count, dtype=np.uint64)
    start += np.uint64(first % 2**64)
    start *= GOLDEN
    start += np.uint64(int(seed) % 2**64)
    return _mixed(_mixed(start) + GOLDEN)


def _numbers(starts: U8, first: int, count: int) -> U8:
    """(streams, count) numbers of each stream, from its number `first` on."""
    return _mixed(starts[:, None] + np.arange(first + 1, first + 1 + count, dtype=np.uint64) * GOLDEN)


def _picks(numbers: U8, size: int, count: int) -> I8:
    """`count` places in 0..size - 1 from each row, two from each number."""
    picks = np.empty((len(numbers), 2 * numbers.shape[1]), dtype=np.int64)
    picks[:, 0::2] = ((numbers & LOW32) * np.uint64(size)) >> S32
    picks[:, 1::2] = ((numbers >> S32) * np.uint64(size)) >> S32
    return picks[:, :count]


def draw_episodes(seed: Any, first: int, count: int, n_episodes: int) -> I8:
    """(count, n_episodes) draws with replacement: row r is what stream `first + r` picks."""
    return _picks(_numbers(_streams(seed, first, count), 0, -(-n_episodes // 2)), n_episodes, n_episodes)


def _counted(places: I8, size: int) -> F8:
    """(size, rows): how often each row of `places` has each place."""
    rows = len(places)
    flat = places + np.arange(rows)[:, None] * size
    return np.bincount(flat.ravel(), minlength=rows * size).reshape(rows, size).T.astype(np.float64)


def _blocks(rows: int, steps: int, whole: int) -> Iterator[slice]:
    """Rows in blocks that fit into memory, each but the last a multiple of `whole`."""
    size = max(1, BLOCK // max(steps, 1) // whole) * whole
    for first in range(0, rows, size):
        yield slice(first, min(first + size, rows))


def _before(weights: F8) -> F8:
    """Along operations, the sum of all weights before each."""
    return np.cumsum(weights, axis=0) - weights


def _from_one(factors: F8) -> F8:
    """(n + 1, rows): 1 before the first operation, then the running product."""
    return np.concatenate([np.ones((1, factors.shape[1])), np.cumprod(factors, axis=0)])


@in_c
def curve_scalars(
    times: F8, cluster: I4, event: U1, sizes: I4, weight: I4, inverse: F8, tau: float, levels: F8, out: F8
) -> None:
    """One weighted curve's N_SCALARS, then the quantile at each of `levels` (NaN where it is not reached)."""
    weights = weight[cluster].astype(np.int64)
    is_event = (event > 0) & (weights > 0)
    at_risk = int(weight.astype(np.int64) @ sizes.astype(np.int64)) - (np.cumsum(weights) - weights)
    t, factor = times[is_event], 1.0 - weights[is_event] * inverse[at_risk[is_event]]
    survival = np.concatenate([[1.0], np.cumprod(factor)])
    n = int(np.searchsorted(t, tau, side='right'))
    before = np.concatenate([[0.0], t[:n]])
    area = np.cumsum(np.concatenate([survival[:n] * np.diff(before), [survival[n] * (tau - before[-1])]]))[-1]
    moment = np.cumsum(np.concatenate([[0.0], t[:n] * (survival[:n] - survival[1 : n + 1])]))[-1]
    out[:N_SCALARS] = area, 1.0 - survival[n], moment, 1.0 - survival[-1]
    for k, level in enumerate(levels):
        reached = 1.0 - survival[1:] >= level - SLACK
        out[N_SCALARS + k] = t[np.argmax(reached)] if reached.any() else np.nan


@in_c
def bootstrap_scalars(
    times: F8, cluster: I4, event: U1, sizes: I4, inverse: F8, tau: float, levels: F8, seed: Any, start: int, out: F8
) -> None:
    """Rows `start`, `start + 1`, ... of an episode bootstrap; `out` is (rows, N_SCALARS + levels)."""
    if len(levels) == 0:
        for part in _blocks(len(out), len(times) + len(sizes), 2 * LANES):
            _bootstrap_block(times, cluster, event, sizes, tau, seed, start + part.start, out[part])
        return
    for row in range(len(out)):
        weight = np.bincount(draw_episodes(seed, start + row, 1, len(sizes))[0], minlength=len(sizes))
        curve_scalars(
            times, cluster, event, sizes, weight.astype(np.int32), inverse, tau, levels, out[row]
        )  # fmt: skip


def _bootstrap_block(times: F8, cluster: I4, event: U1, sizes: I4, tau: float, seed: Any, start: int, out: F8) -> None:
    rows = len(out)
    lanes = -(-rows // (2 * LANES)) * 2 * LANES
    picks = draw_episodes(seed, start, rows, len(sizes))
    weight, risk = np.zeros((len(sizes), lanes)), np.zeros(lanes)
    weight[:, :rows], risk[:rows] = _counted(picks, len(sizes)), sizes[picks].sum(axis=1)
    w = weight[cluster]
    at_risk = np.maximum(risk - _before(w), 1.0)
    # A lane shares its division with the one LANES away.
    partner = at_risk[:, np.arange(lanes) ^ LANES]
    factor = np.where(event[:, None] > 0, 1.0 - w * partner * (1.0 / (at_risk * partner)), 1.0)
    survival = _from_one(factor)[:, :rows]
    n = int(np.searchsorted(times, tau, side='right'))
    gaps = np.diff(np.concatenate([[0.0], times[:n]]))
    area = np.cumsum(survival[:n] * gaps[:, None], axis=0)[-1] if n else np.zeros(rows)
    at_tau = survival[n]
    mean = area + at_tau * (tau - times[n - 1] if n else tau)
    out[:, 0], out[:, 1], out[:, 3] = mean, 1.0 - at_tau, 1.0 - survival[-1]
    # Integrating by parts: the integral of t dF up to tau is RMST less tau times what is left; 0 without a success.
    out[:, 2] = np.where(at_tau < 1.0, mean - tau * at_tau, 0.0)


def _curves(cluster: I4, event: U1, sizes: I4, seed: Any, first: int, rows: int) -> tuple[F8, F8]:
    """(n + 1, rows) of resampled curves, before each operation and after all: 1 - F, and how many are at risk."""
    picks = draw_episodes(seed, first, rows, len(sizes))
    w = _counted(picks, len(sizes))[cluster]
    whole = sizes[picks].sum(axis=1)
    at_risk = np.concatenate([whole[None], whole - np.cumsum(w, axis=0)])
    return _from_one(1.0 - event[:, None] * w / np.maximum(at_risk[:-1], 1.0)), at_risk


@in_c
def bootstrap_curves(times: F8, cluster: I4, event: U1, sizes: I4, grid: F8, seed: Any, start: int, out: F8) -> None:
    """F at each time of the sorted `grid`, one row per resample."""
    places = np.searchsorted(times, grid, side='right')
    for part in _blocks(len(out), len(times) + len(sizes), LANES):
        survival, _ = _curves(cluster, event, sizes, seed, start + part.start, part.stop - part.start)
        out[part] = 1.0 - survival[places].T


@in_c
def bootstrap_jumps(cluster: I4, event: U1, sizes: I4, where: I8, share: float, seed: Any, start: int, out: F8) -> None:
    """Add `share` of the resampled curve's jump at operation i to out[row, where[i]], one row per resample."""
    taken = (event > 0) & (where < out.shape[1])
    for part in _blocks(len(out), len(where) + len(sizes), LANES):
        survival, _ = _curves(cluster, event, sizes, seed, start + part.start, part.stop - part.start)
        np.add.at(out[part].T, where[taken], (survival[:-1][taken] - survival[1:][taken]) * share)


@in_c
def bootstrap_auc(
    rank: I4, cluster: I4, event: U1, sizes: I4, n_a: int, seed_a: Any, seed_b: Any, start: int, out: F8
) -> None:
    """Resample both cells: episodes 0..n_a - 1 are a's, the rest b's; each has the stream its own seed gives.

    Each number is P(Ta < Tb) + P(Ta = Tb)/2. Mass that is left at the end, or from where one risk set is empty with its
    curve short of 1, counts as tied: such a pair is no longer open.
    """
    is_a = cluster < n_a
    ends = np.flatnonzero(np.append(rank[1:] != rank[:-1], True)) if len(rank) else np.empty(0, dtype=np.int64)
    for part in _blocks(len(out), len(rank) + len(sizes), LANES):
        rows = part.stop - part.start
        curves, is_lost = [], []
        for own, seed, own_sizes, shift in ((is_a, seed_a, sizes[:n_a], 0), (~is_a, seed_b, sizes[n_a:], n_a)):
            survival, at_risk = _curves(cluster[own] - shift, event[own], own_sizes, seed, start + part.start, rows)
            # How many of its own operations are over when each instant ends.
            over = np.cumsum(own)[ends]
            curves.append(survival[over])
            is_lost.append((at_risk[over] < 0.5) & (survival[over] > SLACK))
        first = np.ones((1, rows))
        (sa, sb), (before_a, before_b) = curves, (np.concatenate([first, c])[:-1] for c in curves)
        lost = is_lost[0] | is_lost[1]
        # An instant counts as long as no earlier one lost a curve.
        is_open: NDArray[np.bool_] = np.cumsum(lost, axis=0) - lost == 0
        parts = np.where(is_open, (before_a - sa) * (before_b + sb), 0.0)
        total = np.cumsum(parts, axis=0)[-1] if len(ends) else np.zeros(rows)
        closing = np.where(lost.any(axis=0), np.argmax(lost, axis=0), len(ends) - 1) if len(ends) else None
        rest = np.ones(rows) if closing is None else (sa * sb)[closing, np.arange(rows)]
        out[part] = 0.5 * (total + rest)


class _Arrangement:
    """One stratum of one trial: its distinct episodes numbered from 0, and their operations in time order."""

    def __init__(self, units: I4, sizes: I4, n_a: int, rank: I4, cluster: I4, event: U1) -> None:
        episodes, place = np.unique(units, return_inverse=True)
        self.n_local = len(episodes)
        self.unit_local, self.unit_size, self.n_a = place.ravel(), sizes[units].astype(np.float64), n_a
        local = np.full(len(sizes), -1)
        local[episodes] = np.arange(len(episodes))
        self.ops = np.flatnonzero(local[cluster] >= 0) if len(cluster) else np.empty(0, dtype=np.int64)
        self.place = local[cluster[self.ops]]
        self.is_event = event[self.ops] > 0
        own_rank = rank[self.ops][self.is_event]
        self.is_end = np.zeros(len(self.ops), dtype=np.bool_)
        self.is_end[self.is_event] = np.append(own_rank[1:] != own_rank[:-1], True) if len(own_rank) else False

    def given(self) -> tuple[I8, I8]:
        """The units of both arms as recorded, as one row."""
        n = len(self.unit_local)
        return np.arange(self.n_a)[None], np.arange(self.n_a, n)[None]

    def drawn(self, method: int, seed: Any, first: int, rows: int) -> tuple[I8, I8]:
        """(rows, units) of both arms under the null, whose streams are numbered from `first`."""
        n, n_a, starts = len(self.unit_local), self.n_a, _streams(seed, first, rows)
        if method == POOLED_BOOTSTRAP:
            # Both arms drawn with replacement from all units; two draws from each random number.
            half = -(-n_a // 2)
            of_b = _numbers(starts, half, -(-(n - n_a) // 2))
            return _picks(_numbers(starts, 0, half), n, n_a), _picks(of_b, n, n - n_a)
        numbers = _numbers(starts, 0, n_a)
        if method == PERMUTATION:
            # The units dealt to the arms without replacement (a partial Fisher-Yates shuffle).
            order, row = np.tile(np.arange(n), (rows, 1)), np.arange(rows)
            for u in range(n_a):
                swap = u + (((numbers[:, u] & LOW32) * np.uint64(n - u)) >> S32).astype(np.int64)
                order[row, u], order[row, swap] = order[row, swap], order[row, u]
            return order[:, :n_a], order[:, n_a:]
        # Unit u of arm a is paired with unit u of arm b; a fair coin swaps each pair.
        flip, own = (numbers >> S63) > 0, np.arange(n_a)
        return np.where(flip, own + n_a, own), np.where(flip, own, own + n_a)

    def curves(self, arms: tuple[I8, I8]) -> tuple[F8, F8]:
        """(n + 1, rows) 1 - F of both arms before each operation and after all; one division serves both."""
        (wa, na), (wb, nb) = (self._weighed(arm) for arm in arms)
        inverse, event = 1.0 / (na * nb), self.is_event[:, None]
        return (
            _from_one(np.where(event, 1.0 - wa * nb * inverse, 1.0)),
            _from_one(np.where(event, 1.0 - wb * na * inverse, 1.0)),
        )

    def _weighed(self, arm: I8) -> tuple[F8, F8]:
        w = _counted(self.unit_local[arm], self.n_local)[self.place]
        return w, np.maximum(self.unit_size[arm].sum(axis=1) - _before(w), 1.0)


def _trials(
    rank: I4, cluster: I4, event: U1, op_offsets: I8, sizes: I4, episode_offsets: I8, units: I4, unit_offsets: I8,
    n_a: I8, method: int, seed: Any, first_trial: int, first_resample: int, times: F8 | None, tau: float,
    thresholds: F8, observed: F8, null: F8,
) -> None:  # fmt: skip
    """Either kind of trials; `observed` is (trials, strata, contrasts) and `null` (trials, resamples, contrasts)."""
    strata = len(n_a)
    null[:] = 0.0
    for trial in range(len(units)):
        for s in range(strata):
            ops = slice(op_offsets[s], op_offsets[s + 1])
            own = _Arrangement(
                units[trial, unit_offsets[s] : unit_offsets[s + 1]], sizes[episode_offsets[s] : episode_offsets[s + 1]],
                int(n_a[s]), rank[ops], cluster[ops], event[ops],
            )  # fmt: skip
            own_times = None if times is None else times[ops][own.ops]
            observed[trial, s] = _contrasts(own, own.given(), own_times, tau, thresholds)[0]
            base = (((first_trial + trial) * strata + s) << 32) + first_resample
            for part in _blocks(null.shape[1], len(own.ops) + len(own.unit_local), LANES):
                arms = own.drawn(method, seed, base + part.start, part.stop - part.start)
                null[trial, part] += _contrasts(own, arms, own_times, tau, thresholds) / strata


def _contrasts(own: _Arrangement, arms: tuple[I8, I8], times: F8 | None, tau: float, thresholds: F8) -> F8:
    """(rows, contrasts): sup|Fa - Fb|; with times that up to tau, RMST_a - RMST_b, and Fa - Fb at each threshold."""
    sa, sb = own.curves(arms)
    counts = own.is_end if times is None else own.is_end & (times <= tau)
    sup: F8 = np.abs(sa[1:][counts] - sb[1:][counts]).max(axis=0, initial=0.0)
    if times is None:
        return sup[:, None]
    gaps, before = [], 0.0
    for t in times[own.is_event].tolist():
        gaps.append(max(min(t, tau) - before, 0.0))
        before += gaps[-1]
    pieces = (sa[:-1] - sb[:-1])[own.is_event] * np.array(gaps)[:, None]
    area = np.cumsum(pieces, axis=0)[-1] if gaps else np.zeros(len(sup))
    places = np.searchsorted(times, thresholds, side='right')
    return np.column_stack([sup, area + (sa[-1] - sb[-1]) * max(tau - before, 0.0), (sb[places] - sa[places]).T])


@in_c
def macro_ks_trials(
    rank: I4, cluster: I4, event: U1, op_offsets: I8, sizes: I4, episode_offsets: I8, units: I4, unit_offsets: I8,
    n_a: I8, method: int, seed: Any, first_trial: int, first_resample: int, observed: F8, null: F8,
) -> None:  # fmt: skip
    """Many macro-KS tests: trial r's arms are row r of `units`, its resamples row r of `null`.

    Stratum s has operations op_offsets[s]..op_offsets[s + 1], episodes likewise, and units unit_offsets[s].., of which
    the first n_a[s] are arm a. `observed` (trials, strata) gets each stratum's KS, `null` (trials, resamples) the
    macro-averages under the null. Streams are numbered by trial, stratum and resample alone.
    """
    _trials(
        rank, cluster, event, op_offsets, sizes, episode_offsets, units, unit_offsets, n_a, method, seed, first_trial,
        first_resample, None, 0.0, np.empty(0), observed[:, :, None], null[:, :, None],
    )  # fmt: skip


@in_c
def contrast_trials(
    times: F8, rank: I4, cluster: I4, event: U1, op_offsets: I8, sizes: I4, episode_offsets: I8, units: I4,
    unit_offsets: I8, n_a: I8, method: int, seed: Any, first_trial: int, first_resample: int, tau: float,
    thresholds: F8, observed: F8, null: F8,
) -> None:  # fmt: skip
    """As macro_ks_trials, macro-averaged for every contrast: sup|Fa - Fb| up to tau, RMST, Fa - Fb at each threshold.

    `observed` is (trials, strata, contrasts), `null` (trials, resamples, contrasts).
    """
    _trials(
        rank, cluster, event, op_offsets, sizes, episode_offsets, units, unit_offsets, n_a, method, seed, first_trial,
        first_resample, times, tau, thresholds, observed, null,
    )  # fmt: skip
