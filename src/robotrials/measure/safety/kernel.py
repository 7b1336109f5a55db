"""Compiled loops over ragged traces: episode e has the flat rows offsets[e] to offsets[e + 1].

A sliding minimum costs O(n) for any window: a wide one is the least of a suffix of one block of rows and a prefix of
the next (van Herk 1992, Gil and Werman 1993), a narrow one that of two spans whose length is a power of two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.compiled import njit

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.integer[Any]]


# NaN is refused before any kernel runs; infinities are ordinary values here.
WITHOUT_NAN = {'nnan', 'nsz', 'reassoc'}


NARROW = 128  # rows; up to here seven passes of doubled spans, each a vector loop, beat the block method's three


@njit(fastmath=WITHOUT_NAN)
def window_extreme(values: FloatArray, offsets: IntArray, low: IntArray, high: IntArray, sign: float) -> FloatArray:
    """out[t] = the least (sign 1) or greatest (sign -1) value over rows t + low to t + high of the same episode.

    Where there are none it is the extreme of nothing: sign times infinity.
    """
    out = np.empty_like(values)
    longest = 0
    for e in range(len(offsets) - 1):
        longest = max(longest, offsets[e + 1] - offsets[e])
    # Scratch of one episode stays in the cache.
    one, other = np.empty(longest + NARROW), np.empty(longest + NARROW)
    for e in range(len(offsets) - 1):
        trace, result = values[offsets[e] : offsets[e + 1]], out[offsets[e] : offsets[e + 1]]
        if high[e] < low[e]:
            result[:] = sign * np.inf
        elif high[e] - low[e] < NARROW:
            _extreme_by_doubling(trace, result, low[e], high[e], sign, one, other)
        else:
            _extreme_by_blocks(trace, result, low[e], high[e], sign, one, other)
    return out


@njit(fastmath=WITHOUT_NAN)
def _extreme_by_doubling(
    trace: FloatArray, result: FloatArray, low: int, high: int, sign: float, one: FloatArray, other: FloatArray
) -> None:
    """Least values over spans of 1, 2, 4, ... rows; two such spans cover the window."""
    n, width = len(trace), high - low + 1
    for i in range(n):
        one[i] = sign * trace[i]
    one[n : n + width] = np.inf
    other[n : n + width] = np.inf
    span = 1
    while 2 * span <= width:
        for i in range(n):
            other[i] = min(one[i], one[i + span])
        one, other = other, one
        span *= 2
    inside = max(0, n - low)
    for t in range(inside):
        result[t] = sign * min(one[t + low], one[t + low + width - span])
    result[inside:] = sign * np.inf


@njit(fastmath=WITHOUT_NAN)
def _extreme_by_blocks(
    trace: FloatArray, result: FloatArray, low: int, high: int, sign: float, prefix: FloatArray, suffix: FloatArray
) -> None:
    """The least of a suffix of one block and a prefix of the next."""
    n, width = len(trace), high - low + 1
    for first in range(0, n, width):
        last = min(first + width, n)
        ahead, back = np.inf, np.inf
        # Two chains in one loop, so that neither waits for the other.
        for k in range(last - first):
            ahead = min(ahead, sign * trace[first + k])
            back = min(back, sign * trace[last - 1 - k])
            prefix[first + k], suffix[last - 1 - k] = ahead, back
    # Windows that lie inside the trace, then those cut by its end, then those beyond it.
    whole = max(0, n - high)
    for t in range(whole):
        result[t] = sign * min(suffix[t + low], prefix[t + high])
    for t in range(whole, n):
        i = t + low
        if i >= n:
            result[t] = sign * np.inf
        elif i // width == (n - 1) // width:
            result[t] = sign * suffix[i]
        else:
            result[t] = sign * min(suffix[i], prefix[n - 1])


@njit(fastmath=WITHOUT_NAN)
def span_extreme(values: FloatArray, first: IntArray, last: IntArray, sign: float) -> FloatArray:
    """out[t] = the least (sign 1) or greatest (sign -1) value over the rows first[t] to last[t]; of none, sign * inf.

    Neither end may move back from one row to the next: a queue of candidates then sees every row once.
    """
    n = len(values)
    out = np.empty(n)
    queue = np.empty(n, dtype=np.int64)
    head, tail, seen = 0, 0, 0
    for t in range(n):
        while seen <= min(last[t], n - 1):
            while tail > head and sign * values[queue[tail - 1]] >= sign * values[seen]:
                tail -= 1
            queue[tail] = seen
            tail += 1
            seen += 1
        while head < tail and queue[head] < first[t]:
            head += 1
        out[t] = values[queue[head]] if head < tail and first[t] <= last[t] else sign * np.inf
    return out


@njit(fastmath=WITHOUT_NAN)
def count_not_binary(values: FloatArray) -> int:
    """How many values are neither 0 nor 1."""
    count = 0
    for value in values:
        count += (value != 0.0) & (value != 1.0)
    return count


@njit(fastmath=WITHOUT_NAN)
def suffix_extreme(values: FloatArray, offsets: IntArray, sign: float) -> FloatArray:
    """out[t] = the least (sign 1) or greatest (sign -1) value from row t to its episode's end."""
    out = np.empty_like(values)
    for e in range(len(offsets) - 1):
        least = np.inf
        for t in range(offsets[e + 1] - 1, offsets[e] - 1, -1):
            least = min(least, sign * values[t])
            out[t] = sign * least
    return out


@njit()
def until_forever(left: FloatArray, right: FloatArray, offsets: IntArray) -> FloatArray:
    """out[t] = max over t' >= t of min(right[t'], least left over t to t' - 1), per episode."""
    out = np.empty_like(left)
    for e in range(len(offsets) - 1):
        best = -np.inf
        for t in range(offsets[e + 1] - 1, offsets[e] - 1, -1):
            best = max(right[t], min(left[t], best))
            out[t] = best
    return out


@njit()
def shift_back(values: FloatArray, offsets: IntArray, steps: IntArray, fill: float) -> FloatArray:
    """out[t] = values[t + steps] within the same episode, `fill` past its end."""
    out = np.empty_like(values)
    for e in range(len(offsets) - 1):
        for t in range(offsets[e], offsets[e + 1]):
            source = t + steps[e]
            out[t] = values[source] if source < offsets[e + 1] else fill
    return out


@njit(fastmath=WITHOUT_NAN)
def bound_minimum(values: FloatArray, offsets: IntArray, bound: float, is_upper: bool) -> FloatArray:
    """Per episode, the least margin of values < bound (or > bound) over all its rows: one pass, no temporaries."""
    out = np.empty(len(offsets) - 1)
    for e in range(len(offsets) - 1):
        extreme = -np.inf if is_upper else np.inf
        if is_upper:
            for t in range(offsets[e], offsets[e + 1]):
                extreme = max(extreme, values[t])
            out[e] = bound - extreme
        else:
            for t in range(offsets[e], offsets[e + 1]):
                extreme = min(extreme, values[t])
            out[e] = extreme - bound
    return out


@njit(fastmath=WITHOUT_NAN)
def gated_bound_minimum(
    values: FloatArray, gate: FloatArray, offsets: IntArray, bound: float, is_upper: bool, is_literal: bool
) -> FloatArray:
    """As `bound_minimum`, of gate -> bound: over the rows whose gate is above 0.5, infinity where there are none.

    `is_literal` takes max(0.5 - gate, margin) at every row instead.
    """
    out = np.empty(len(offsets) - 1)
    for e in range(len(offsets) - 1):
        least = np.inf
        for t in range(offsets[e], offsets[e + 1]):
            margin = bound - values[t] if is_upper else values[t] - bound
            if is_literal:
                least = min(least, max(0.5 - gate[t], margin))
            elif gate[t] > 0.5:
                least = min(least, margin)
        out[e] = least
    return out
