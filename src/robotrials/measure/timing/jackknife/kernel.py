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

from robotrials.stats.compiled import in_c

F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
U1 = NDArray[np.uint8]

GAIN, AT_STOP, AT_END, FIRST_QUANTILE = 0, 1, 2, 3
SLACK = 1e-12


@in_c
def left_out_curves(
    times: F8, cluster: I4, event: U1, sizes: I4, gain: F8, n_counted: int, levels: F8, out: F8
) -> None:
    """Row e, without episode e: the sum of gain dF over the first n_counted operations, 1 - F there, 1 - F at the end,
    and the first time at which F reaches each of the increasing `levels` (NaN where it does not).

    Operations are in time order, events before censorings at a tie; `sizes` counts all of an episode's operations,
    also those (ghosts, or beyond a horizon) that are not in the list.
    """
    n_ops, total = len(times), int(sizes.sum())
    is_large = sizes > int(math.sqrt(total))
    out[:, GAIN], out[:, AT_STOP], out[:, AT_END], out[:, FIRST_QUANTILE:] = 0.0, 1.0, 1.0, np.nan
    for e in np.flatnonzero(is_large).tolist():
        _whole_pass(e, total - int(sizes[e]), times, cluster, event, gain, n_counted, levels, out[e])
    # Where each episode's operations stand in the list: own[starts[e]:starts[e + 1]], increasing; the last is no one's.
    own = np.append(np.argsort(cluster, kind='stable'), n_ops)
    starts = np.concatenate([[0], np.cumsum(np.bincount(cluster, minlength=len(sizes)))])
    reached = np.zeros(len(sizes), dtype=np.int64)
    for still in range(int(sizes[~is_large].max(initial=-1)), -1, -1):
        passed = sizes - still
        (rows,) = np.nonzero(~is_large & (passed >= 0) & (passed <= np.diff(starts)))
        if not len(rows):
            continue
        at, ends = starts[rows] + passed[rows], starts[rows + 1]
        first = np.where(passed[rows] > 0, own[at - 1] + 1, 0)
        stop = np.where(at < ends, own[at], n_ops)
        _append_pieces(rows, first, stop, _table(total - still, event, gain), n_counted, times, levels, reached, out)


def _table(at_risk: int, event: U1, gain: F8) -> tuple[F8, F8]:
    """The curve that starts with `at_risk` at risk, before each operation, and what it gained by then."""
    left = at_risk - np.arange(len(event))
    factor = np.where((event > 0) & (left > 0), 1.0 - 1.0 / np.maximum(left, 1), 1.0)
    survival = np.concatenate([[1.0], np.cumprod(factor)])
    return survival, np.concatenate([[0.0], np.cumsum(gain * (survival[:-1] - survival[1:]))])


def _append_pieces(
    rows: I8, first: I8, stop: I8, table: tuple[F8, F8], n_counted: int, times: F8, levels: F8, reached: I8, out: F8
) -> None:
    """Go on along the table over operations first..stop - 1 of each row, none of which is the left-out episode's."""
    survival, gained = table
    base, now = survival[first], out[rows, AT_END]
    is_alone = base == 0.0  # nobody else is left
    scale = np.where(is_alone, 0.0, now / np.where(is_alone, 1.0, base))
    begun = first <= n_counted
    more = begun & ~is_alone
    out[rows[more], GAIN] += (scale * (gained[np.minimum(stop, n_counted)] - gained[first]))[more]
    ends_here = begun & (n_counted <= stop)
    at_stop = np.where(is_alone, now, scale * survival[n_counted])
    out[rows[ends_here], AT_STOP] = at_stop[ends_here]
    after = np.where(is_alone, now, scale * survival[stop])
    for k, level in enumerate(levels):
        crossing = ~is_alone & (reached[rows] == k) & (1.0 - after >= level - SLACK)
        low, high = first[crossing], stop[crossing] - 1
        while (low < high).any():
            middle = (low + high) // 2
            is_there = 1.0 - scale[crossing] * survival[middle + 1] >= level - SLACK
            high, low = np.where(is_there, middle, high), np.where(is_there, low, np.minimum(middle + 1, high))
        out[rows[crossing], FIRST_QUANTILE + k] = times[low]
        reached[rows[crossing]] = k + 1
    out[rows, AT_END] = after


def _whole_pass(
    e: int, at_risk: int, times: F8, cluster: I4, event: U1, gain: F8, n_counted: int, levels: F8, row: F8
) -> None:
    """The same row by going through all operations but those of episode e."""
    (others,) = np.nonzero(cluster != e)
    survival, gained = _table(at_risk, event[others], gain[others])
    counted = int(np.searchsorted(others, n_counted))
    row[GAIN], row[AT_STOP], row[AT_END] = gained[counted], survival[counted], survival[-1]
    for k, level in enumerate(levels):
        crossed = 1.0 - survival[1:] >= level - SLACK
        row[FIRST_QUANTILE + k] = times[others[np.argmax(crossed)]] if crossed.any() else np.nan
