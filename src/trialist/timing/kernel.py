"""Compiled Kaplan-Meier passes over resampled episodes.

Operations of a cell are sorted once by time, events before censorings at a tie. A resample is a weight an episode; one
pass over the sorted operations gives the curve: tied events are taken one after another, which telescopes to the tied
factor. Ghosts (T = infinity) never leave the risk set, so they are only in its first size. Every resample has its own
counter-based random stream, so that results do not depend on how resamples are spread over threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
U1 = NDArray[np.uint8]
U4 = NDArray[np.uint32]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_A = np.uint64(0xBF58476D1CE4E5B9)
MIX_B = np.uint64(0x94D049BB133111EB)
LOW32 = np.uint64(0xFFFFFFFF)
S27, S30, S31, S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)

ONE = np.uint64(1)
END_OF_TIE = 2

POOLED_BOOTSTRAP, PERMUTATION, PAIRED_SWAP = 0, 1, 2
N_SCALARS = 4  # RMST(tau), F(tau), integral of t dF up to tau, F at the last finite time
SLACK = 1e-12


@njit(cache=True, nogil=True, inline='always')
def _mixed(state: Any) -> Any:
    """Splitmix64's output function."""
    z = (state ^ (state >> S30)) * MIX_A
    z = (z ^ (z >> S27)) * MIX_B
    return z ^ (z >> S31)


@njit(cache=True, nogil=True, inline='always')
def _stream(seed: Any, index: Any) -> Any:
    """The start of stream `index`: two rounds of mixing keep neighbouring streams apart."""
    return _mixed(_mixed(seed + np.uint64(index) * GOLDEN) + GOLDEN)


@njit(cache=True, nogil=True)
def _draw_episodes(state: Any, n_draws: int, weight: I4) -> Any:
    """Add `n_draws` draws with replacement from len(weight) episodes; gives the stream's new state."""
    size = np.uint64(len(weight))
    left = n_draws
    while left > 0:
        state += GOLDEN
        z = _mixed(state)
        weight[((z & LOW32) * size) >> S32] += 1
        if left > 1:
            weight[((z >> S32) * size) >> S32] += 1
        left -= 2
    return state


@njit(cache=True, nogil=True)
def curve_scalars(
    times: F8, cluster: I4, event: U1, sizes: I4, weight: I4, inverse: F8, tau: float, levels: F8, out: F8
) -> None:
    """One weighted curve's N_SCALARS, then the quantile at each of `levels` (NaN where it is not reached)."""
    at_risk = 0
    for e in range(len(sizes)):
        at_risk += weight[e] * sizes[e]
    survival, area, first_moment, before = 1.0, 0.0, 0.0, 0.0
    at_tau, reached = -1.0, 0
    for k in range(len(levels)):
        out[N_SCALARS + k] = np.nan
    for i in range(len(times)):
        w = weight[cluster[i]]
        if w == 0:
            continue
        t = times[i]
        if at_tau < 0.0 and t > tau:
            area += survival * (tau - before)
            at_tau = survival
        if event[i]:
            if at_tau < 0.0:
                area += survival * (t - before)
                before = t
            after = survival * (1.0 - w * inverse[at_risk])
            if at_tau < 0.0:
                first_moment += t * (survival - after)
            survival = after
            while reached < len(levels) and 1.0 - survival >= levels[reached] - SLACK:
                out[N_SCALARS + reached] = t
                reached += 1
        at_risk -= w
    if at_tau < 0.0:
        area += survival * (tau - before)
        at_tau = survival
    out[0], out[1], out[2], out[3] = area, 1.0 - at_tau, first_moment, 1.0 - survival


@njit(cache=True, nogil=True)
def bootstrap_scalars(
    times: F8, cluster: I4, event: U1, sizes: I4, inverse: F8, tau: float, levels: F8, seed: Any, start: int, out: F8
) -> None:
    """Rows `start`, `start + 1`, ... of an episode bootstrap; `out` is (rows, N_SCALARS + levels)."""
    weight = np.zeros(len(sizes), dtype=np.int32)
    for row in range(out.shape[0]):
        weight[:] = 0
        _draw_episodes(_stream(seed, start + row), len(sizes), weight)
        curve_scalars(times, cluster, event, sizes, weight, inverse, tau, levels, out[row])


@njit(cache=True, nogil=True)
def jackknife_scalars(
    times: F8, cluster: I4, event: U1, sizes: I4, inverse: F8, tau: float, levels: F8, out: F8
) -> None:
    """Row e leaves episode e out; the last row leaves none out."""
    weight = np.ones(len(sizes), dtype=np.int32)
    for e in range(len(sizes) + 1):
        if e > 0:
            weight[e - 1] = 1
        if e < len(sizes):
            weight[e] = 0
        curve_scalars(times, cluster, event, sizes, weight, inverse, tau, levels, out[e])


@njit(cache=True, nogil=True)
def bootstrap_curves(
    times: F8, cluster: I4, event: U1, sizes: I4, inverse: F8, grid: F8, seed: Any, start: int, out: F8
) -> None:
    """F at each time of the sorted `grid`, one row a resample."""
    weight = np.zeros(len(sizes), dtype=np.int32)
    for row in range(out.shape[0]):
        weight[:] = 0
        _draw_episodes(_stream(seed, start + row), len(sizes), weight)
        at_risk = 0
        for e in range(len(sizes)):
            at_risk += weight[e] * sizes[e]
        survival, k = 1.0, 0
        for i in range(len(times)):
            while k < len(grid) and grid[k] < times[i]:
                out[row, k] = 1.0 - survival
                k += 1
            w = weight[cluster[i]]
            if event[i]:
                survival *= 1.0 - w * inverse[at_risk]
            at_risk -= w
        while k < len(grid):
            out[row, k] = 1.0 - survival
            k += 1


@njit(cache=True, nogil=True)
def curve_auc(
    rank: I4, cluster: I4, event: U1, weight_a: I4, weight_b: I4, risk_a: int, risk_b: int, inverse: F8
) -> float:
    """P(Ta < Tb) + P(Ta = Tb)/2 of two weighted curves over one merged, sorted list of operations up to the horizon.

    Mass that is left at the horizon, or from where one risk set is empty with its curve short of 1, counts as tied.
    """
    sa, sb, total = 1.0, 1.0, 0.0
    n = len(rank)
    i = 0
    while i < n:
        before_a, before_b = sa, sb
        r = rank[i]
        while i < n and rank[i] == r:
            wa, wb = weight_a[cluster[i]], weight_b[cluster[i]]
            if event[i]:
                sa *= 1.0 - wa * inverse[risk_a]
                sb *= 1.0 - wb * inverse[risk_b]
            risk_a -= wa
            risk_b -= wb
            i += 1
        total += (before_a - sa) * (sb + 0.5 * (before_b - sb))
        if (risk_a == 0 and sa > SLACK) or (risk_b == 0 and sb > SLACK):
            break
    return total + 0.5 * sa * sb


@njit(cache=True, nogil=True)
def bootstrap_auc(
    rank: I4, cluster: I4, event: U1, sizes: I4, n_a: int, inverse: F8, seed_a: Any, seed_b: Any, start: int, out: F8
) -> None:
    """Resample both cells: episodes 0..n_a - 1 are a's, the rest b's; each has the stream its own seed gives."""
    n = len(sizes)
    wa, wb = np.zeros(n, dtype=np.int32), np.zeros(n, dtype=np.int32)
    for row in range(len(out)):
        wa[:] = 0
        wb[:] = 0
        _draw_episodes(_stream(seed_a, start + row), n_a, wa[:n_a])
        _draw_episodes(_stream(seed_b, start + row), n - n_a, wb[n_a:])
        risk_a, risk_b = 0, 0
        for e in range(n):
            risk_a += wa[e] * sizes[e]
            risk_b += wb[e] * sizes[e]
        out[row] = curve_auc(rank, cluster, event, wa, wb, risk_a, risk_b, inverse)


@njit(cache=True, nogil=True)
def _ks_pass(n_ops: int, place: U4, mark: U1, weight: U4, first_risk_a: int, first_risk_b: int, inverse: F8) -> float:
    """Largest |Fa - Fb| over the operations' times. Weights are (episodes, 2), flat; indices are unsigned for speed."""
    sa, sb, largest = 1.0, 1.0, 0.0
    risk_a, risk_b = np.uint64(first_risk_a), np.uint64(first_risk_b)
    for i in range(n_ops):
        c = np.uint64(place[i])
        wa, wb = weight[c], weight[c + ONE]
        if mark[i]:
            sa *= 1.0 - np.float64(wa) * inverse[risk_a]
            sb *= 1.0 - np.float64(wb) * inverse[risk_b]
            if mark[i] == END_OF_TIE:
                gap = abs(sa - sb)
                if gap > largest:
                    largest = gap
        risk_a -= np.uint64(wa)
        risk_b -= np.uint64(wb)
    return largest


@njit(cache=True, nogil=True)
def _contrast_pass(
    n_ops: int, times: F8, place: U4, mark: U1, weight: U4, first_risk_a: int, first_risk_b: int, inverse: F8,
    tau: float, thresholds: F8, out: F8,
) -> None:  # fmt: skip
    """Add to `out`: sup|Fa - Fb| up to tau, RMST_a - RMST_b at tau, then Fa - Fb at each of the sorted thresholds."""
    sa, sb, largest, area, before, k = 1.0, 1.0, 0.0, 0.0, 0.0, 0
    risk_a, risk_b = np.uint64(first_risk_a), np.uint64(first_risk_b)
    for i in range(n_ops):
        t = times[i]
        while k < len(thresholds) and thresholds[k] < t:
            out[2 + k] += sb - sa
            k += 1
        c = np.uint64(place[i])
        wa, wb = weight[c], weight[c + ONE]
        if mark[i]:
            if before < tau:
                stop = min(t, tau)
                area += (sa - sb) * (stop - before)
                before = stop
            sa *= 1.0 - np.float64(wa) * inverse[risk_a]
            sb *= 1.0 - np.float64(wb) * inverse[risk_b]
            if mark[i] == END_OF_TIE and t <= tau:
                largest = max(largest, abs(sa - sb))
        risk_a -= np.uint64(wa)
        risk_b -= np.uint64(wb)
    while k < len(thresholds):
        out[2 + k] += sb - sa
        k += 1
    out[0] += largest
    out[1] += area + (sa - sb) * (tau - before)


@njit(cache=True, nogil=True)
def _select(
    lo: int, hi: int, rank: I4, cluster: I4, event: U1, local: I4, op_out: I4, place_out: U4, mark_out: U1
) -> int:
    """Copy the operations lo..hi - 1 of chosen episodes (local >= 0), marking events and the last event of a tie."""
    n = 0
    for i in range(lo, hi):
        if local[cluster[i]] >= 0:
            op_out[n], place_out[n], mark_out[n] = i, 2 * local[cluster[i]], event[i]
            n += 1
    later = -1
    for k in range(n - 1, -1, -1):
        if mark_out[k]:
            r = rank[op_out[k]]
            if r != later:
                mark_out[k] = END_OF_TIE
            later = r
    return n


@njit(cache=True, nogil=True)
def _renumber(units: I4, local: I4, sizes: I4, unit_local: I4, unit_size: I4) -> int:
    """Number the distinct episodes among `units` from 0; fills `local` (-1 elsewhere) and each unit's own."""
    local[:] = -1
    n = 0
    for u in range(len(units)):
        e = units[u]
        if local[e] < 0:
            local[e] = n
            n += 1
        unit_local[u], unit_size[u] = local[e], sizes[e]
    return n


@njit(cache=True, nogil=True)
def _weigh_as_given(unit_local: I4, unit_size: I4, n_a: int, weight: U4) -> tuple[int, int]:
    """Weights of the arrangement itself: the first `n_a` units are arm a, the rest arm b; gives the risk sets."""
    risk_a, risk_b = 0, 0
    for u in range(len(unit_local)):
        if u < n_a:
            weight[2 * unit_local[u]] += 1
            risk_a += unit_size[u]
        else:
            weight[2 * unit_local[u] + 1] += 1
            risk_b += unit_size[u]
    return risk_a, risk_b


@njit(cache=True, nogil=True)
def _weigh_pooled(state: Any, unit_local: I4, unit_size: I4, n_a: int, weight: U4) -> tuple[int, int]:
    """Both arms drawn with replacement from all units, in their own sizes."""
    n = np.uint64(len(unit_local))
    risk_a, risk_b = 0, 0
    z = np.uint64(0)
    for u in range(len(unit_local)):
        if u & 1:
            z >>= S32
        else:
            state += GOLDEN
            z = _mixed(state)
        pick = ((z & LOW32) * n) >> S32
        place = 2 * unit_local[pick]
        if u < n_a:
            weight[place] += 1
            risk_a += unit_size[pick]
        else:
            weight[place + 1] += 1
            risk_b += unit_size[pick]
    return risk_a, risk_b


@njit(cache=True, nogil=True)
def _weigh_permuted(state: Any, unit_local: I4, unit_size: I4, n_a: int, weight: U4, order: I4) -> tuple[int, int]:
    """The units dealt to the arms without replacement, in their own sizes (a partial Fisher-Yates shuffle)."""
    n = len(unit_local)
    risk_a, risk_b = 0, 0
    for u in range(n):
        order[u] = u
    for u in range(n):
        if u < n_a:
            state += GOLDEN
            swap = u + np.int64(((_mixed(state) & LOW32) * np.uint64(n - u)) >> S32)
            pick = order[swap]
            order[swap] = order[u]
            weight[2 * unit_local[pick]] += 1
            risk_a += unit_size[pick]
        else:
            pick = order[u]
            weight[2 * unit_local[pick] + 1] += 1
            risk_b += unit_size[pick]
    return risk_a, risk_b


@njit(cache=True, nogil=True)
def _weigh_swapped(state: Any, unit_local: I4, unit_size: I4, n_a: int, weight: U4) -> tuple[int, int]:
    """Unit u of arm a is paired with unit u of arm b; a fair coin swaps each pair."""
    risk_a, risk_b = 0, 0
    for u in range(n_a):
        state += GOLDEN
        flip = np.int64(_mixed(state) >> np.uint64(63))
        first, second = (u + n_a, u) if flip else (u, u + n_a)
        weight[2 * unit_local[first]] += 1
        weight[2 * unit_local[second] + 1] += 1
        risk_a += unit_size[first]
        risk_b += unit_size[second]
    return risk_a, risk_b


@njit(cache=True, nogil=True)
def _weigh(method: int, state: Any, unit_local: I4, unit_size: I4, n_a: int, weight: U4, order: I4) -> tuple[int, int]:
    weight[:] = 0
    if method == POOLED_BOOTSTRAP:
        return _weigh_pooled(state, unit_local, unit_size, n_a, weight)
    if method == PERMUTATION:
        return _weigh_permuted(state, unit_local, unit_size, n_a, weight, order)
    return _weigh_swapped(state, unit_local, unit_size, n_a, weight)


@njit(cache=True, nogil=True)
def macro_ks_trials(
    rank: I4, cluster: I4, event: U1, op_offsets: I8, sizes: I4, episode_offsets: I8, units: I4, unit_offsets: I8,
    n_a: I8, inverse: F8, method: int, seed: Any, first_trial: int, first_resample: int, observed: F8, null: F8,
) -> None:  # fmt: skip
    """Many macro-KS tests: trial r's arms are row r of `units`, its resamples row r of `null`.

    Stratum s has operations op_offsets[s]..op_offsets[s + 1], episodes likewise, and units unit_offsets[s].., of which
    the first n_a[s] are arm a. `observed` (trials, strata) gets each stratum's KS, `null` (trials, resamples) the
    macro-averages under the null. Streams are numbered by trial, stratum and resample alone.
    """
    strata = len(n_a)
    most_ops = np.max(op_offsets[1:] - op_offsets[:-1])
    most_units = np.max(unit_offsets[1:] - unit_offsets[:-1])
    op = np.empty(most_ops, dtype=np.int32)
    place, mark = np.empty(most_ops, np.uint32), np.empty(most_ops, np.uint8)
    local = np.empty(np.max(episode_offsets[1:] - episode_offsets[:-1]), dtype=np.int32)
    unit_local, unit_size = np.empty(most_units, np.int32), np.empty(most_units, np.int32)
    order = np.empty(most_units, dtype=np.int32)
    weight = np.empty(2 * most_units, dtype=np.uint32)
    null[:] = 0.0
    for trial in range(units.shape[0]):
        for s in range(strata):
            row = units[trial, unit_offsets[s] : unit_offsets[s + 1]]
            own_sizes = sizes[episode_offsets[s] : episode_offsets[s + 1]]
            ul, us = unit_local[: len(row)], unit_size[: len(row)]
            n_local = _renumber(row, local, own_sizes, ul, us)
            n_ops = _select(op_offsets[s], op_offsets[s + 1], rank, cluster, event, local, op, place, mark)
            w = weight[: 2 * n_local]
            w[:] = 0
            risk_a, risk_b = _weigh_as_given(ul, us, n_a[s], w)
            observed[trial, s] = _ks_pass(n_ops, place, mark, w, risk_a, risk_b, inverse)
            base = np.uint64((first_trial + trial) * strata + s) << S32
            for b in range(null.shape[1]):
                state = _stream(seed, base + np.uint64(first_resample + b))
                risk_a, risk_b = _weigh(method, state, ul, us, n_a[s], w, order)
                null[trial, b] += _ks_pass(n_ops, place, mark, w, risk_a, risk_b, inverse) / strata


@njit(cache=True, nogil=True)
def contrast_trials(
    times: F8, rank: I4, cluster: I4, event: U1, op_offsets: I8, sizes: I4, episode_offsets: I8, units: I4,
    unit_offsets: I8, n_a: I8, inverse: F8, method: int, seed: Any, first_trial: int, first_resample: int, tau: float,
    thresholds: F8, observed: F8, null: F8,
) -> None:  # fmt: skip
    """As macro_ks_trials, with every contrast of _contrast_pass, macro-averaged: (trials, resamples, contrasts)."""
    strata = len(n_a)
    most_ops = np.max(op_offsets[1:] - op_offsets[:-1])
    most_units = np.max(unit_offsets[1:] - unit_offsets[:-1])
    op = np.empty(most_ops, dtype=np.int32)
    place, mark = np.empty(most_ops, np.uint32), np.empty(most_ops, np.uint8)
    local = np.empty(np.max(episode_offsets[1:] - episode_offsets[:-1]), dtype=np.int32)
    unit_local, unit_size = np.empty(most_units, np.int32), np.empty(most_units, np.int32)
    order = np.empty(most_units, dtype=np.int32)
    weight = np.empty(2 * most_units, dtype=np.uint32)
    own_times = np.empty(most_ops, dtype=np.float64)
    observed[:] = 0.0
    null[:] = 0.0
    for trial in range(units.shape[0]):
        for s in range(strata):
            row = units[trial, unit_offsets[s] : unit_offsets[s + 1]]
            own_sizes = sizes[episode_offsets[s] : episode_offsets[s + 1]]
            ul, us = unit_local[: len(row)], unit_size[: len(row)]
            n_local = _renumber(row, local, own_sizes, ul, us)
            n_ops = _select(op_offsets[s], op_offsets[s + 1], rank, cluster, event, local, op, place, mark)
            for i in range(n_ops):
                own_times[i] = times[op[i]]
            w = weight[: 2 * n_local]
            w[:] = 0
            risk_a, risk_b = _weigh_as_given(ul, us, n_a[s], w)
            _contrast_pass(
                n_ops, own_times, place, mark, w, risk_a, risk_b, inverse, tau, thresholds, observed[trial, s]
            )
            base = np.uint64((first_trial + trial) * strata + s) << S32
            for b in range(null.shape[1]):
                state = _stream(seed, base + np.uint64(first_resample + b))
                risk_a, risk_b = _weigh(method, state, ul, us, n_a[s], w, order)
                _contrast_pass(
                    n_ops, own_times, place, mark, w, risk_a, risk_b, inverse, tau, thresholds, null[trial, b]
                )
    null /= strata
