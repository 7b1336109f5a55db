"""Compiled Kaplan-Meier passes over resampled episodes.

Operations of a cell are sorted once by time, events before censorings at a tie. A resample is a weight an episode; one
pass over the sorted operations gives the curve: tied events are taken one after another, which telescopes to the tied
factor. Where it pays, LANES resamples go through a pass together, so that the processor's vector units divide for all
of them at once. Ghosts (T = infinity) never leave the risk set, so they are only in its first size. Every resample has
its own counter-based random stream, so that results do not depend on how resamples are spread over threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.compiled import njit

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

END_OF_TIE = 2

POOLED_BOOTSTRAP, PERMUTATION, PAIRED_SWAP = 0, 1, 2
N_SCALARS = 4  # RMST(tau), F(tau), integral of t dF up to tau, F at the last finite time
SLACK = 1e-12
LANES = 16


@njit(nogil=True)
def _mixed(state: Any) -> Any:
    """Splitmix64's output function."""
    z = (state ^ (state >> S30)) * MIX_A
    z = (z ^ (z >> S27)) * MIX_B
    return z ^ (z >> S31)


@njit(nogil=True)
def _stream(seed: Any, index: Any) -> Any:
    """The start of stream `index`: two rounds of mixing keep neighbouring streams apart."""
    return _mixed(_mixed(seed + np.uint64(index) * GOLDEN) + GOLDEN)


@njit(nogil=True)
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


@njit(nogil=True)
def _clear(weight: F8, risk: F8) -> None:
    # Loops, because a slice assignment takes the compiler seconds.
    for e in range(weight.shape[0]):
        for k in range(weight.shape[1]):
            weight[e, k] = 0.0
    for k in range(len(risk)):
        risk[k] = 0.0


@njit(nogil=True)
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


@njit(nogil=True, error_model='numpy')
def _scalar_lanes(
    gaps: F8, n_to_tau: int, last_gap: float, tau: float, cluster: U4, event: U1, weight: F8, at_risk: F8, out: F8
) -> None:
    """N_SCALARS of 2 LANES weighted curves; gaps are the times between operations, last_gap that from the last to tau.

    One division serves two lanes: 1/(n m).
    """
    survival, area = np.ones(2 * LANES), np.zeros(2 * LANES)
    for i in range(len(gaps)):
        w, gap = weight[cluster[i]], gaps[i]
        if i == n_to_tau:
            _keep_at_tau(survival, area, last_gap, tau, out)
        if event[i]:
            for k in range(LANES):
                n, m = max(at_risk[k], 1.0), max(at_risk[k + LANES], 1.0)
                inverse = 1.0 / (n * m)
                area[k] += survival[k] * gap
                area[k + LANES] += survival[k + LANES] * gap
                survival[k] *= 1.0 - w[k] * m * inverse
                survival[k + LANES] *= 1.0 - w[k + LANES] * n * inverse
                at_risk[k] -= w[k]
                at_risk[k + LANES] -= w[k + LANES]
        else:
            for k in range(2 * LANES):
                area[k] += survival[k] * gap
                at_risk[k] -= w[k]
    if n_to_tau == len(gaps):
        _keep_at_tau(survival, area, last_gap, tau, out)
    for k in range(2 * LANES):
        out[k, 3] = 1.0 - survival[k]


@njit(nogil=True)
def _keep_at_tau(survival: F8, area: F8, last_gap: float, tau: float, out: F8) -> None:
    for k in range(len(survival)):
        mean = area[k] + survival[k] * last_gap
        # Integrating by parts: the integral of t dF up to tau is RMST less tau times what is left; 0 without a success.
        moment = mean - tau * survival[k] if survival[k] < 1.0 else 0.0
        out[k, 0], out[k, 1], out[k, 2] = mean, 1.0 - survival[k], moment


@njit(nogil=True)
def bootstrap_scalars(
    times: F8, cluster: I4, event: U1, sizes: I4, inverse: F8, tau: float, levels: F8, seed: Any, start: int, out: F8
) -> None:
    """Rows `start`, `start + 1`, ... of an episode bootstrap; `out` is (rows, N_SCALARS + levels)."""
    if len(levels) == 0:
        _bootstrap_lanes(times, cluster, event, sizes, tau, seed, start, out)
        return
    weight = np.zeros(len(sizes), dtype=np.int32)
    for row in range(out.shape[0]):
        for e in range(len(sizes)):
            weight[e] = 0
        _draw_episodes(_stream(seed, start + row), len(sizes), weight)
        curve_scalars(times, cluster, event, sizes, weight, inverse, tau, levels, out[row])


@njit(nogil=True)
def _bootstrap_lanes(times: F8, cluster: I4, event: U1, sizes: I4, tau: float, seed: Any, start: int, out: F8) -> None:
    place = cluster.astype(np.uint32)
    gaps, n_to_tau, before = np.empty(len(times)), 0, 0.0
    for i in range(len(times)):
        gaps[i] = times[i] - before
        before = times[i]
        if times[i] <= tau:
            n_to_tau += 1
    last_gap = tau - times[n_to_tau - 1] if n_to_tau > 0 else tau
    weight, at_risk = np.empty((len(sizes), 2 * LANES)), np.empty(2 * LANES)
    kept = np.empty((2 * LANES, N_SCALARS))
    for first in range(0, out.shape[0], 2 * LANES):
        lanes = min(2 * LANES, out.shape[0] - first)
        _clear(weight, at_risk)
        for k in range(lanes):
            at_risk[k] = _draw_lane(_stream(seed, start + first + k), sizes, weight, k)
        _scalar_lanes(gaps, n_to_tau, last_gap, tau, place, event, weight, at_risk, kept)
        for k in range(lanes):
            for c in range(N_SCALARS):
                out[first + k, c] = kept[k, c]


@njit(nogil=True)
def _draw_lane(state: Any, sizes: I4, weight: F8, lane: int) -> int:
    """As many draws with replacement as there are episodes, the same as _draw_episodes makes; gives the risk set."""
    size, left, at_risk = np.uint64(len(sizes)), len(sizes), 0
    while left > 0:
        state += GOLDEN
        z = _mixed(state)
        pick = ((z & LOW32) * size) >> S32
        weight[pick, lane] += 1.0
        at_risk += sizes[pick]
        if left > 1:
            pick = ((z >> S32) * size) >> S32
            weight[pick, lane] += 1.0
            at_risk += sizes[pick]
        left -= 2
    return at_risk


@njit(nogil=True)
def bootstrap_curves(times: F8, cluster: I4, event: U1, sizes: I4, grid: F8, seed: Any, start: int, out: F8) -> None:
    """F at each time of the sorted `grid`, one row a resample."""
    place = cluster.astype(np.uint32)
    weight, at_risk = np.empty((len(sizes), LANES)), np.empty(LANES)
    for first in range(0, out.shape[0], LANES):
        rows = out[first : first + LANES]
        _clear(weight, at_risk)
        for k in range(len(rows)):
            at_risk[k] = _draw_lane(_stream(seed, start + first + k), sizes, weight, k)
        survival, c = np.ones(LANES), 0
        for i in range(len(times)):
            while c < len(grid) and grid[c] < times[i]:
                _keep_chance(survival, c, rows)
                c += 1
            _step_lanes(weight[place[i]], event[i], at_risk, survival)
        for rest in range(c, len(grid)):
            _keep_chance(survival, rest, rows)


@njit(nogil=True, error_model='numpy')
def _step_lanes(w: F8, event: int, at_risk: F8, survival: F8) -> None:
    for k in range(LANES):
        # A curve whose last one at risk succeeds is exactly 0.
        survival[k] *= 1.0 - event * w[k] / max(at_risk[k], 1.0)
        at_risk[k] -= w[k]


@njit(nogil=True)
def _keep_chance(survival: F8, column: int, rows: F8) -> None:
    for k in range(len(rows)):
        rows[k, column] = 1.0 - survival[k]


@njit(nogil=True)
def bootstrap_jumps(cluster: I4, event: U1, sizes: I4, where: I8, share: float, seed: Any, start: int, out: F8) -> None:
    """Add `share` of the resampled curve's jump at operation i to out[row, where[i]], one row a resample."""
    place = cluster.astype(np.uint32)
    weight, at_risk = np.empty((len(sizes), LANES)), np.empty(LANES)
    before = np.empty(LANES)
    for first in range(0, out.shape[0], LANES):
        rows = out[first : first + LANES]
        _clear(weight, at_risk)
        for k in range(len(rows)):
            at_risk[k] = _draw_lane(_stream(seed, start + first + k), sizes, weight, k)
        survival = np.ones(LANES)
        for i in range(len(place)):
            if where[i] >= out.shape[1]:
                break
            for k in range(LANES):
                before[k] = survival[k]
            _step_lanes(weight[place[i]], event[i], at_risk, survival)
            if event[i]:
                for k in range(len(rows)):
                    rows[k, where[i]] += (before[k] - survival[k]) * share


@njit(nogil=True)
def bootstrap_auc(
    rank: I4, cluster: I4, event: U1, sizes: I4, n_a: int, seed_a: Any, seed_b: Any, start: int, out: F8
) -> None:
    """Resample both cells: episodes 0..n_a - 1 are a's, the rest b's; each has the stream its own seed gives."""
    place = cluster.astype(np.uint32)
    weight = np.empty((len(sizes), LANES))
    risk_a, risk_b, kept = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    for first in range(0, len(out), LANES):
        lanes = min(LANES, len(out) - first)
        _clear(weight, risk_a)
        _clear(weight, risk_b)
        for k in range(lanes):
            risk_a[k] = _draw_lane(_stream(seed_a, start + first + k), sizes[:n_a], weight[:n_a], k)
            risk_b[k] = _draw_lane(_stream(seed_b, start + first + k), sizes[n_a:], weight[n_a:], k)
        _auc_lanes(rank, place, event, n_a, weight, risk_a, risk_b, kept)
        for k in range(lanes):
            out[first + k] = kept[k]


@njit(nogil=True)
def _auc_lanes(rank: I4, place: U4, event: U1, n_a: int, weight: F8, risk_a: F8, risk_b: F8, out: F8) -> None:
    """P(Ta < Tb) + P(Ta = Tb)/2 of LANES pairs of weighted curves, over one merged, sorted list of operations.

    Mass that is left at the end, or from where one risk set is empty with its curve short of 1, counts as tied: such a
    pair is no longer open.
    """
    sa, sb, before_a, before_b = np.ones(LANES), np.ones(LANES), np.ones(LANES), np.ones(LANES)
    is_open, tied = np.ones(LANES), np.zeros(LANES)
    for k in range(LANES):
        out[k] = 0.0
    for i in range(len(place)):
        if place[i] < n_a:
            _step_lanes(weight[place[i]], event[i], risk_a, sa)
        else:
            _step_lanes(weight[place[i]], event[i], risk_b, sb)
        if i + 1 < len(place) and rank[i + 1] == rank[i]:
            continue
        for k in range(LANES):
            out[k] += is_open[k] * (before_a[k] - sa[k]) * (before_b[k] + sb[k])
        for k in range(LANES):
            before_a[k], before_b[k] = sa[k], sb[k]
        n_empty = 0
        for k in range(LANES):
            n_empty += (risk_a[k] < 0.5) | (risk_b[k] < 0.5)
        if n_empty:
            for k in range(LANES):
                if is_open[k] and ((risk_a[k] < 0.5 and sa[k] > SLACK) or (risk_b[k] < 0.5 and sb[k] > SLACK)):
                    is_open[k], tied[k] = 0.0, sa[k] * sb[k]
    for k in range(LANES):
        out[k] = 0.5 * (out[k] + tied[k] + is_open[k] * sa[k] * sb[k])


@njit(nogil=True, error_model='numpy')
def _ks_lanes(n_ops: int, place: U4, mark: U1, weight: F8, at_risk: F8, survival: F8, largest: F8) -> None:
    """Largest |Fa - Fb| of LANES pairs of weighted curves; lane k has arm a in column k and arm b in k + LANES.

    One division serves both arms: 1/(na nb).
    """
    for k in range(LANES):
        survival[k] = survival[k + LANES] = 1.0
        largest[k] = 0.0
    for i in range(n_ops):
        w = weight[place[i]]
        if mark[i]:
            is_end = 1.0 if mark[i] == END_OF_TIE else 0.0
            for k in range(LANES):
                na, nb = max(at_risk[k], 1.0), max(at_risk[k + LANES], 1.0)
                inverse = 1.0 / (na * nb)
                sa = survival[k] * (1.0 - w[k] * nb * inverse)
                sb = survival[k + LANES] * (1.0 - w[k + LANES] * na * inverse)
                survival[k], survival[k + LANES] = sa, sb
                at_risk[k] -= w[k]
                at_risk[k + LANES] -= w[k + LANES]
                largest[k] = max(largest[k], abs(sa - sb) * is_end)
        else:
            for k in range(2 * LANES):
                at_risk[k] -= w[k]


@njit(nogil=True, error_model='numpy')
def _contrast_lanes(
    n_ops: int, times: F8, place: U4, mark: U1, weight: F8, at_risk: F8, survival: F8, tau: float, thresholds: F8,
    out: F8,
) -> None:  # fmt: skip
    """Set rows of `out`: sup|Fa - Fb| up to tau, RMST_a - RMST_b at tau, then Fa - Fb at each sorted threshold.

    Lanes are those of _ks_lanes, each a column of out (contrasts, LANES).
    """
    for k in range(LANES):
        survival[k] = survival[k + LANES] = 1.0
        out[0, k] = out[1, k] = 0.0
    before, c = 0.0, 2
    for i in range(n_ops):
        t, w = times[i], weight[place[i]]
        while c < 2 + len(thresholds) and thresholds[c - 2] < t:
            _keep_difference(survival, out[c])
            c += 1
        if mark[i]:
            gap = max(min(t, tau) - before, 0.0)
            before += gap
            counts = 1.0 if mark[i] == END_OF_TIE and t <= tau else 0.0
            for k in range(LANES):
                na, nb = max(at_risk[k], 1.0), max(at_risk[k + LANES], 1.0)
                inverse = 1.0 / (na * nb)
                out[1, k] += (survival[k] - survival[k + LANES]) * gap
                sa = survival[k] * (1.0 - w[k] * nb * inverse)
                sb = survival[k + LANES] * (1.0 - w[k + LANES] * na * inverse)
                survival[k], survival[k + LANES] = sa, sb
                out[0, k] = max(out[0, k], abs(sa - sb) * counts)
        for k in range(2 * LANES):
            at_risk[k] -= w[k]
    for rest in range(c, 2 + len(thresholds)):
        _keep_difference(survival, out[rest])
    for k in range(LANES):
        out[1, k] += (survival[k] - survival[k + LANES]) * max(tau - before, 0.0)


@njit(nogil=True)
def _keep_difference(survival: F8, row: F8) -> None:
    for k in range(LANES):
        row[k] = survival[k + LANES] - survival[k]


@njit(nogil=True)
def _select(
    lo: int, hi: int, rank: I4, cluster: I4, event: U1, local: I4, op_out: I4, place_out: U4, mark_out: U1
) -> int:
    """Copy the operations lo..hi - 1 of chosen episodes (local >= 0), marking events and the last event of a tie."""
    n = 0
    for i in range(lo, hi):
        if local[cluster[i]] >= 0:
            op_out[n], place_out[n], mark_out[n] = i, local[cluster[i]], event[i]
            n += 1
    later = -1
    for k in range(n - 1, -1, -1):
        if mark_out[k]:
            r = rank[op_out[k]]
            if r != later:
                mark_out[k] = END_OF_TIE
            later = r
    return n


@njit(nogil=True)
def _renumber(units: I4, local: I4, sizes: I4, unit_local: U4, unit_size: I4) -> int:
    """Number the distinct episodes among `units` from 0; fills `local` (-1 elsewhere) and each unit's own."""
    for e in range(len(local)):
        local[e] = -1
    n = 0
    for u in range(len(units)):
        e = units[u]
        if local[e] < 0:
            local[e] = n
            n += 1
        unit_local[u], unit_size[u] = local[e], sizes[e]
    return n


@njit(nogil=True)
def _weigh_as_given(unit_local: U4, unit_size: I4, n_a: int, weight: F8, risk: F8) -> None:
    """Weights of the arrangement itself, in lane 0: the first `n_a` units are arm a, the rest arm b."""
    _clear(weight, risk)
    b = weight.shape[1] // 2
    for u in range(len(unit_local)):
        arm = 0 if u < n_a else b
        weight[unit_local[u], arm] += 1.0
        risk[arm] += unit_size[u]


@njit(nogil=True)
def _weigh_pooled(
    seed: Any, first: Any, lanes: int, unit_local: U4, unit_size: I4, n_a: int, weight: F8, risk: F8
) -> None:
    """Both arms drawn with replacement from all units, in their own sizes; two draws from each random number."""
    n, b = np.uint64(len(unit_local)), weight.shape[1] // 2
    for lane in range(lanes):
        state = _stream(seed, first + np.uint64(lane))
        for arm in range(2):
            column = np.uint64(lane + arm * b)
            left = n_a if arm == 0 else len(unit_local) - n_a
            at_risk = 0
            while left > 0:
                state += GOLDEN
                z = _mixed(state)
                pick = ((z & LOW32) * n) >> S32
                weight[unit_local[pick], column] += 1.0
                at_risk += unit_size[pick]
                if left > 1:
                    pick = ((z >> S32) * n) >> S32
                    weight[unit_local[pick], column] += 1.0
                    at_risk += unit_size[pick]
                left -= 2
            risk[column] = at_risk


@njit(nogil=True)
def _weigh_permuted(
    seed: Any, first: Any, lanes: int, unit_local: U4, unit_size: I4, n_a: int, weight: F8, risk: F8, order: U4
) -> None:
    """The units dealt to the arms without replacement, in their own sizes (a partial Fisher-Yates shuffle)."""
    n, b = len(unit_local), weight.shape[1] // 2
    for lane in range(lanes):
        state = _stream(seed, first + np.uint64(lane))
        risk_a, risk_b = 0, 0
        for u in range(n):
            order[u] = u
        for u in range(n_a):
            state += GOLDEN
            swap = np.uint64(u) + (((_mixed(state) & LOW32) * np.uint64(n - u)) >> S32)
            pick = order[swap]
            order[swap] = order[u]
            weight[unit_local[pick], lane] += 1.0
            risk_a += unit_size[pick]
        for u in range(n_a, n):
            pick = order[u]
            weight[unit_local[pick], lane + b] += 1.0
            risk_b += unit_size[pick]
        risk[lane], risk[lane + b] = risk_a, risk_b


@njit(nogil=True)
def _weigh_swapped(
    seed: Any, first: Any, lanes: int, unit_local: U4, unit_size: I4, n_a: int, weight: F8, risk: F8
) -> None:
    """Unit u of arm a is paired with unit u of arm b; a fair coin swaps each pair."""
    b = weight.shape[1] // 2
    for lane in range(lanes):
        state = _stream(seed, first + np.uint64(lane))
        for u in range(n_a):
            state += GOLDEN
            flip = np.int64(_mixed(state) >> np.uint64(63))
            one, other = (u + n_a, u) if flip else (u, u + n_a)
            weight[unit_local[one], lane] += 1.0
            weight[unit_local[other], lane + b] += 1.0
            risk[lane] += unit_size[one]
            risk[lane + b] += unit_size[other]


@njit(nogil=True)
def _weigh(
    method: int, seed: Any, first: Any, lanes: int, unit_local: U4, unit_size: I4, n_a: int, weight: F8, risk: F8,
    order: U4,
) -> None:  # fmt: skip
    """Weights of `lanes` resamples, whose streams are numbered from `first`."""
    _clear(weight, risk)
    if method == POOLED_BOOTSTRAP:
        _weigh_pooled(seed, first, lanes, unit_local, unit_size, n_a, weight, risk)
    elif method == PERMUTATION:
        _weigh_permuted(seed, first, lanes, unit_local, unit_size, n_a, weight, risk, order)
    else:
        _weigh_swapped(seed, first, lanes, unit_local, unit_size, n_a, weight, risk)


@njit(nogil=True)
def _widest(offsets: I8) -> int:
    most = 0
    for s in range(len(offsets) - 1):
        most = max(most, offsets[s + 1] - offsets[s])
    return most


@njit(nogil=True)
def macro_ks_trials(
    rank: I4, cluster: I4, event: U1, op_offsets: I8, sizes: I4, episode_offsets: I8, units: I4, unit_offsets: I8,
    n_a: I8, method: int, seed: Any, first_trial: int, first_resample: int, observed: F8, null: F8,
) -> None:  # fmt: skip
    """Many macro-KS tests: trial r's arms are row r of `units`, its resamples row r of `null`.

    Stratum s has operations op_offsets[s]..op_offsets[s + 1], episodes likewise, and units unit_offsets[s].., of which
    the first n_a[s] are arm a. `observed` (trials, strata) gets each stratum's KS, `null` (trials, resamples) the
    macro-averages under the null. Streams are numbered by trial, stratum and resample alone.
    """
    strata = len(n_a)
    most_ops = _widest(op_offsets)
    most_units = _widest(unit_offsets)
    op, place, mark = np.empty(most_ops, np.int32), np.empty(most_ops, np.uint32), np.empty(most_ops, np.uint8)
    local = np.empty(_widest(episode_offsets), dtype=np.int32)
    unit_local, unit_size = np.empty(most_units, np.uint32), np.empty(most_units, np.int32)
    order = np.empty(most_units, dtype=np.uint32)
    weight, risk = np.empty((most_units, 2 * LANES)), np.empty(2 * LANES)
    survival, largest = np.empty(2 * LANES), np.empty(LANES)
    for trial in range(units.shape[0]):
        for b in range(null.shape[1]):
            null[trial, b] = 0.0
        for s in range(strata):
            row = units[trial, unit_offsets[s] : unit_offsets[s + 1]]
            own_sizes = sizes[episode_offsets[s] : episode_offsets[s + 1]]
            ul, us = unit_local[: len(row)], unit_size[: len(row)]
            n_local = _renumber(row, local, own_sizes, ul, us)
            n_ops = _select(op_offsets[s], op_offsets[s + 1], rank, cluster, event, local, op, place, mark)
            w = weight[:n_local]
            _weigh_as_given(ul, us, n_a[s], w, risk)
            _ks_lanes(n_ops, place, mark, w, risk, survival, largest)
            observed[trial, s] = largest[0]
            base = np.uint64((first_trial + trial) * strata + s) << S32
            for first in range(0, null.shape[1], LANES):
                lanes = min(LANES, null.shape[1] - first)
                stream = base + np.uint64(first_resample + first)
                _weigh(method, seed, stream, lanes, ul, us, n_a[s], w, risk, order)
                _ks_lanes(n_ops, place, mark, w, risk, survival, largest)
                for k in range(lanes):
                    null[trial, first + k] += largest[k] / strata


@njit(nogil=True)
def contrast_trials(
    times: F8, rank: I4, cluster: I4, event: U1, op_offsets: I8, sizes: I4, episode_offsets: I8, units: I4,
    unit_offsets: I8, n_a: I8, method: int, seed: Any, first_trial: int, first_resample: int, tau: float,
    thresholds: F8, observed: F8, null: F8,
) -> None:  # fmt: skip
    """As macro_ks_trials, with every contrast of _contrast_pass, macro-averaged: (trials, resamples, contrasts).

    `observed` is (trials, strata, contrasts); `null` is added to: it comes as zeros.
    """
    strata = len(n_a)
    most_ops = _widest(op_offsets)
    most_units = _widest(unit_offsets)
    op, place, mark = np.empty(most_ops, np.int32), np.empty(most_ops, np.uint32), np.empty(most_ops, np.uint8)
    local = np.empty(_widest(episode_offsets), dtype=np.int32)
    unit_local, unit_size = np.empty(most_units, np.uint32), np.empty(most_units, np.int32)
    order = np.empty(most_units, dtype=np.uint32)
    weight, risk = np.empty((most_units, 2 * LANES)), np.empty(2 * LANES)
    survival, found = np.empty(2 * LANES), np.empty((null.shape[2], LANES))
    own_times = np.empty(most_ops, dtype=np.float64)
    for trial in range(units.shape[0]):
        for s in range(strata):
            row = units[trial, unit_offsets[s] : unit_offsets[s + 1]]
            own_sizes = sizes[episode_offsets[s] : episode_offsets[s + 1]]
            ul, us = unit_local[: len(row)], unit_size[: len(row)]
            n_local = _renumber(row, local, own_sizes, ul, us)
            n_ops = _select(op_offsets[s], op_offsets[s + 1], rank, cluster, event, local, op, place, mark)
            for i in range(n_ops):
                own_times[i] = times[op[i]]
            w = weight[:n_local]
            _weigh_as_given(ul, us, n_a[s], w, risk)
            _contrast_lanes(n_ops, own_times, place, mark, w, risk, survival, tau, thresholds, found)
            for c in range(null.shape[2]):
                observed[trial, s, c] = found[c, 0]
            base = np.uint64((first_trial + trial) * strata + s) << S32
            for first in range(0, null.shape[1], LANES):
                lanes = min(LANES, null.shape[1] - first)
                stream = base + np.uint64(first_resample + first)
                _weigh(method, seed, stream, lanes, ul, us, n_a[s], w, risk, order)
                _contrast_lanes(n_ops, own_times, place, mark, w, risk, survival, tau, thresholds, found)
                for k in range(lanes):
                    for c in range(null.shape[2]):
                        null[trial, first + k, c] += found[c, k] / strata
