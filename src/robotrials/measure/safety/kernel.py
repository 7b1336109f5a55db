"""Loops over ragged traces: episode e has the flat rows offsets[e] to offsets[e + 1].

NaN is refused before any kernel runs; infinities are ordinary values here. Least and greatest values do not depend on
the order in which they are looked for, so that C, with a queue or blocks of rows, gives the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.compiled import in_c

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.integer[Any]]


@in_c
def window_extreme(
    values: FloatArray, offsets: IntArray, low: IntArray, high: IntArray, sign: float, out: FloatArray
) -> None:
    """out[t] = the least (sign 1) or greatest (sign -1) value over rows t + low to t + high of the same episode.

    Where there are none it is the extreme of nothing: sign times infinity.
    """
    sizes = np.diff(offsets)
    rows, ends = np.arange(len(values)), np.repeat(offsets[1:], sizes)
    last = np.minimum(rows + np.repeat(high, sizes), ends - 1)
    out[:] = _ranges(values, rows + np.repeat(low, sizes), last, sign)


@in_c
def span_extreme(values: FloatArray, first: IntArray, last: IntArray, sign: float, out: FloatArray) -> None:
    """out[t] = the least (sign 1) or greatest (sign -1) value over the rows first[t] to last[t]; of none, sign * inf.

    Neither end may move back from one row to the next: a queue of candidates then sees every row once.
    """
    out[:] = _ranges(values, first, np.minimum(last, len(values) - 1), sign)


def _ranges(values: FloatArray, first: IntArray, last: IntArray, sign: float) -> FloatArray:
    """The extreme over the rows first to last: of two spans, whose length is a power of two, that cover them."""
    width = last - first + 1
    out = np.full(len(first), sign * np.inf)
    extreme = np.minimum if sign > 0 else np.maximum
    spans, span = values, 1
    while span <= int(width.max(initial=0)):
        (here,) = np.nonzero((width >= span) & (width < 2 * span))
        out[here] = extreme(spans[first[here]], spans[last[here] + 1 - span])
        spans = extreme(spans[:-span], spans[span:])
        span *= 2
    return out


@in_c
def count_not_binary(values: FloatArray) -> int:
    """How many values are neither 0 nor 1."""
    return int(np.count_nonzero((values != 0.0) & (values != 1.0)))


@in_c
def suffix_extreme(values: FloatArray, offsets: IntArray, sign: float, out: FloatArray) -> None:
    """out[t] = the least (sign 1) or greatest (sign -1) value from row t to its episode's end."""
    extreme = np.minimum if sign > 0 else np.maximum
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        out[start:stop] = extreme.accumulate(values[start:stop][::-1])[::-1]


@in_c
def until_forever(left: FloatArray, right: FloatArray, offsets: IntArray, out: FloatArray) -> None:
    """out[t] = max over t' >= t of min(right[t'], least left over t to t' - 1), per episode."""
    sizes = np.diff(offsets)
    best = np.full(len(sizes), -np.inf)
    for back in range(1, int(sizes.max(initial=0)) + 1):
        (here,) = np.nonzero(sizes >= back)
        rows = offsets[1:][here] - back
        best[here] = np.maximum(right[rows], np.minimum(left[rows], best[here]))
        out[rows] = best[here]


def shift_back(values: FloatArray, offsets: IntArray, steps: IntArray, fill: float) -> FloatArray:
    """out[t] = values[t + steps] within the same episode, `fill` past its end."""
    sizes = np.diff(offsets)
    source, ends = np.arange(len(values)) + np.repeat(steps, sizes), np.repeat(offsets[1:], sizes)
    return np.where(source < ends, values[np.minimum(source, max(len(values) - 1, 0))], fill)


@in_c
def bound_minimum(values: FloatArray, offsets: IntArray, bound: float, is_upper: bool, out: FloatArray) -> None:
    """Per episode, the least margin of values < bound (or > bound) over all its rows: one pass, no temporaries."""
    extreme = _by_episode(np.maximum if is_upper else np.minimum, values, offsets, -np.inf if is_upper else np.inf)
    out[:] = bound - extreme if is_upper else extreme - bound


@in_c
def gated_bound_minimum(
    values: FloatArray,
    gate: FloatArray,
    offsets: IntArray,
    bound: float,
    is_upper: bool,
    is_literal: bool,
    out: FloatArray,
) -> None:
    """As `bound_minimum`, of gate -> bound: over the rows whose gate is above 0.5, infinity where there are none.

    `is_literal` takes max(0.5 - gate, margin) at every row instead.
    """
    margin = bound - values if is_upper else values - bound
    margin = np.maximum(0.5 - gate, margin) if is_literal else np.where(gate > 0.5, margin, np.inf)
    out[:] = _by_episode(np.minimum, margin, offsets, np.inf)


def _by_episode(extreme: np.ufunc, values: FloatArray, offsets: IntArray, of_none: float) -> FloatArray:
    least = np.full(len(offsets) - 1, of_none)
    (filled,) = np.nonzero(np.diff(offsets))
    if len(filled):
        least[filled] = extreme.reduceat(values, offsets[filled])
    return least
