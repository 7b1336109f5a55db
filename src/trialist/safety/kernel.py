"""Compiled loops over ragged traces: episode e has the flat rows offsets[e] to offsets[e + 1].

A sliding minimum keeps a monotonic queue of row numbers, so each row enters and leaves once: O(n) for any window.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.integer[Any]]


@njit(cache=True)
def window_minimum(values: FloatArray, offsets: IntArray, low: IntArray, high: IntArray) -> FloatArray:
    """out[t] = the least value over rows t + low to t + high of the same episode; infinity where there are none."""
    out = np.empty_like(values)
    longest = 0
    for e in range(len(offsets) - 1):
        longest = max(longest, offsets[e + 1] - offsets[e])
    queue = np.empty(longest, np.int64)
    for e in range(len(offsets) - 1):
        start, stop = offsets[e], offsets[e + 1]
        head, tail = 0, 0
        entering = stop - 1
        # From the end backwards: row t sees what lies ahead of it.
        for t in range(stop - 1, start - 1, -1):
            while entering >= t + low[e]:
                while tail > head and values[queue[tail - 1]] >= values[entering]:
                    tail -= 1
                queue[tail] = entering
                tail += 1
                entering -= 1
            while tail > head and queue[head] > t + high[e]:
                head += 1
            out[t] = values[queue[head]] if tail > head else np.inf
    return out


@njit(cache=True)
def suffix_minimum(values: FloatArray, offsets: IntArray) -> FloatArray:
    """out[t] = the least value from row t to its episode's end."""
    out = np.empty_like(values)
    for e in range(len(offsets) - 1):
        least = np.inf
        for t in range(offsets[e + 1] - 1, offsets[e] - 1, -1):
            least = min(least, values[t])
            out[t] = least
    return out


@njit(cache=True)
def until_forever(left: FloatArray, right: FloatArray, offsets: IntArray) -> FloatArray:
    """out[t] = max over t' >= t of min(right[t'], least left over t to t' - 1), per episode."""
    out = np.empty_like(left)
    for e in range(len(offsets) - 1):
        best = -np.inf
        for t in range(offsets[e + 1] - 1, offsets[e] - 1, -1):
            best = max(right[t], min(left[t], best))
            out[t] = best
    return out


@njit(cache=True)
def shift_back(values: FloatArray, offsets: IntArray, steps: IntArray, fill: float) -> FloatArray:
    """out[t] = values[t + steps] within the same episode, `fill` past its end."""
    out = np.empty_like(values)
    for e in range(len(offsets) - 1):
        for t in range(offsets[e], offsets[e + 1]):
            source = t + steps[e]
            out[t] = values[source] if source < offsets[e + 1] else fill
    return out


@njit(cache=True)
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


@njit(cache=True)
def gated_bound_minimum(
    values: FloatArray, gate: FloatArray, offsets: IntArray, bound: float, is_upper: bool
) -> FloatArray:
    """As `bound_minimum`, over the rows whose gate is above 0.5; infinity where there are none."""
    out = np.empty(len(offsets) - 1)
    for e in range(len(offsets) - 1):
        extreme = -np.inf
        for t in range(offsets[e], offsets[e + 1]):
            if gate[t] > 0.5:
                extreme = max(extreme, values[t] if is_upper else -values[t])
        out[e] = bound - extreme if is_upper else -extreme - bound
    return out
