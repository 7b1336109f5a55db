"""Kaplan-Meier curves with one episode left out, all of them from a few passes.

Leaving an episode out takes c operations off the risk set, c being how many of its own are still to come (its ghosts
stay in c for ever). Between two of its operations c is constant, so that the left-out curve is there a rescaled piece
of the curve in which every risk set is c smaller. One table of that curve for each c serves all episodes: an episode's
curve is put together from as many pieces as it has operations. No table underflows: with n at risk a curve that is not
0 is at least 1/n, and where a table is 0 no other episode is left. An episode with more operations than the root of
their number in the cell goes through a pass of its own, which bounds the work by n^1.5.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.compiled import njit

F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
U1 = NDArray[np.uint8]

GAIN, AT_STOP, AT_END, FIRST_QUANTILE = 0, 1, 2, 3
SLACK = 1e-12


@njit(nogil=True)
def left_out_curves(
    times: F8, cluster: I4, event: U1, sizes: I4, gain: F8, n_counted: int, levels: F8, out: F8
) -> None:
    """Row e, without episode e: the sum of gain dF over the first n_counted operations, 1 - F there, 1 - F at the end,
    and the first time at which F reaches each of the increasing `levels` (NaN where it does not).

    Operations are in time order, events before censorings at a tie; `sizes` counts all of an episode's operations,
    also those (ghosts, or beyond a horizon) that are not in the list.
    """
    n_episodes, n_ops = len(sizes), len(times)
    total = 0
    for e in range(n_episodes):
        total += sizes[e]
    most_pieces = int(math.sqrt(total))
    widest = 0
    for e in range(n_episodes):
        if sizes[e] > most_pieces:
            _whole_pass(e, total - sizes[e], times, cluster, event, gain, n_counted, levels, out[e])
        else:
            widest = max(widest, sizes[e])
            out[e, GAIN], out[e, AT_STOP], out[e, AT_END] = 0.0, 1.0, 1.0
            for k in range(len(levels)):
                out[e, FIRST_QUANTILE + k] = np.nan
    starts, own = _own_operations(cluster, n_episodes)
    survival, gained = np.empty(n_ops + 1), np.empty(n_ops + 1)
    reached = np.zeros(n_episodes, dtype=np.int64)
    for c in range(widest, -1, -1):
        _tabulate(total - c, event, gain, survival, gained)
        for e in range(n_episodes):
            passed = sizes[e] - c
            if sizes[e] <= most_pieces and 0 <= passed <= starts[e + 1] - starts[e]:
                first = own[starts[e] + passed - 1] + 1 if passed > 0 else 0
                stop = own[starts[e] + passed] if starts[e] + passed < starts[e + 1] else n_ops
                reached[e] = _append_piece(
                    first, stop, survival, gained, n_counted, times, levels, reached[e], out[e]
                )  # fmt: skip


@njit(nogil=True)
def _own_operations(cluster: I4, n_episodes: int) -> tuple[I8, I8]:
    """Where each episode's operations stand in the list: own[starts[e]:starts[e + 1]], increasing."""
    starts = np.zeros(n_episodes + 1, dtype=np.int64)
    for i in range(len(cluster)):
        starts[cluster[i] + 1] += 1
    for e in range(n_episodes):
        starts[e + 1] += starts[e]
    free, own = starts[:-1].copy(), np.empty(len(cluster), dtype=np.int64)
    for i in range(len(cluster)):
        own[free[cluster[i]]] = i
        free[cluster[i]] += 1
    return starts, own


@njit(nogil=True)
def _tabulate(at_risk: int, event: U1, gain: F8, survival: F8, gained: F8) -> None:
    """The curve that starts with `at_risk` at risk, before each operation, and what it gained by then."""
    now, sum_ = 1.0, 0.0
    survival[0], gained[0] = now, sum_
    for i in range(len(event)):
        left = at_risk - i
        if event[i] and left > 0:
            after = now * (1.0 - 1.0 / left)
            sum_ += gain[i] * (now - after)
            now = after
        survival[i + 1], gained[i + 1] = now, sum_


@njit(nogil=True)
def _append_piece(
    first: int, stop: int, survival: F8, gained: F8, n_counted: int, times: F8, levels: F8, reached: int, row: F8
) -> int:
    """Go on along the table over operations first..stop - 1, none of which is the left-out episode's."""
    base, now = survival[first], row[AT_END]
    if base == 0.0:  # nobody else is left
        if first <= n_counted <= stop:
            row[AT_STOP] = now
        return reached
    scale = now / base
    if first <= n_counted:
        row[GAIN] += scale * (gained[min(stop, n_counted)] - gained[first])
        if n_counted <= stop:
            row[AT_STOP] = scale * survival[n_counted]
    now = scale * survival[stop]
    while reached < len(levels) and 1.0 - now >= levels[reached] - SLACK:
        low, high = first, stop - 1
        while low < high:
            middle = (low + high) // 2
            if 1.0 - scale * survival[middle + 1] >= levels[reached] - SLACK:
                high = middle
            else:
                low = middle + 1
        row[FIRST_QUANTILE + reached] = times[low]
        reached += 1
    row[AT_END] = now
    return reached


@njit(nogil=True)
def _whole_pass(
    e: int, at_risk: int, times: F8, cluster: I4, event: U1, gain: F8, n_counted: int, levels: F8, row: F8
) -> None:
    """The same row by going through all operations but those of episode e."""
    now, reached = 1.0, 0
    row[GAIN], row[AT_STOP] = 0.0, 1.0
    for k in range(len(levels)):
        row[FIRST_QUANTILE + k] = np.nan
    for i in range(len(times)):
        if cluster[i] == e:
            continue
        if event[i]:
            after = now * (1.0 - 1.0 / at_risk)
            if i < n_counted:
                row[GAIN] += gain[i] * (now - after)
            now = after
            while reached < len(levels) and 1.0 - now >= levels[reached] - SLACK:
                row[FIRST_QUANTILE + reached] = times[i]
                reached += 1
        at_risk -= 1
        if i < n_counted:
            row[AT_STOP] = now
    row[AT_END] = now
