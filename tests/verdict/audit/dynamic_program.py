"""Appendix C.4 as it is printed: the upper envelope by allocating both totals over the tasks. Slow; the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.integer[Any]]
UNREACHED = np.iinfo(np.int64).min // 4


def task_maximum(count_a: int, count_b: int, *, samples: int, max_score: int) -> int:
    """S q_max^(R)(a, b; S): the greatest S-fold contribution of one task with these two totals.

    Goes through every downward movement j, rather than only the largest, so that it leans on no monotonicity.
    """
    low, high = min(count_a, count_b), max(count_a, count_b)
    gap = high - low
    best = None
    for down in range(min(low, max_score * samples - high) + 1):
        if -(-(gap + down) // max_score) - (-down // max_score) > samples:
            continue
        squares = sum((x // max_score) * max_score**2 + (x % max_score) ** 2 for x in (gap + down, down))
        best = squares if best is None else max(best, squares)
    if best is None:
        raise ArithmeticError(f'no table of {samples} samples has totals {count_a} and {count_b}')
    return samples * best - gap * gap


def task_maxima(*, samples: int, max_score: int) -> IntArray:
    """`task_maximum` for every pair of totals, shape (R S + 1, R S + 1)."""
    size = max_score * samples + 1
    rows = [[task_maximum(a, b, samples=samples, max_score=max_score) for b in range(size)] for a in range(size)]
    return np.array(rows, dtype=np.int64)


def dynamic_program(*, tasks: int, samples: int, max_score: int = 1, most_a: int | None = None) -> IntArray:
    """S Q_hi for every pair of totals: out[A, B], shape (R T S + 1, R T S + 1), or fewer rows with `most_a`."""
    gain = task_maxima(samples=samples, max_score=max_score)
    total = max_score * tasks * samples
    rows = total if most_a is None else min(most_a, total)
    best: IntArray = np.full((rows + 1, total + 1), UNREACHED, dtype=np.int64)
    best[0, 0] = 0
    for _ in range(tasks):
        best = add_task(best, gain)
    return best


def add_task(best: IntArray, gain: IntArray) -> IntArray:
    """One step of the program: the best totals after one more task."""
    after = np.full_like(best, UNREACHED)
    rows, columns = best.shape
    for a in range(min(len(gain), rows)):
        for b in range(min(len(gain), columns)):
            reached = best[: rows - a, : columns - b] + gain[a, b]
            np.maximum(after[a:, b:], reached, out=after[a:, b:])
    return after
