"""The upper envelope for several tasks and scores beyond 0/1: a dynamic program over a window that depends on R only.

A task moves p up and n down in all (d = p - n), and feels the rest only through sum d = L and sum n <= h, with
h = min(A, R N - A - L). Some optimal table has every d within 3 R of L / T (4 R when S = 2) and every headroom c, an
upper limit of n, within 4 R + 1 of h / T; ordered well, its partial sums stay within twice that of the straight line.
Both facts are proved in docs/concepts/topline-envelope.md.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.verdict.audit.envelope import most_downward, packed

IntArray = NDArray[np.integer[Any]]
UNREACHED = np.iinfo(np.int64).min // 4
MOST_CELLS = 10**10  # some ten seconds


@functools.lru_cache(maxsize=4096)
def windowed_q_high(headroom: int, gap: int, *, tasks: int, samples: int, max_score: int) -> int:
    """The greatest S Q over tables with this gap and total headroom; exact integers."""
    if max_score * max_score * samples * samples * tasks >= -UNREACHED:
        raise InputError(
            f'R^2 S^2 T is {max_score**2 * samples**2 * tasks}, beyond the exact integers of this method '
            f'(about 2e18); check tasks, samples and max_score'
        )
    reach_d = (3 if samples > 2 else 4) * max_score
    reach_c = 4 * max_score + 1
    if tasks * 8 * (2 * reach_d * 2 * reach_c) ** 2 > 2 * MOST_CELLS:
        raise InputError(
            f'several tasks ({tasks}) with scores 0..{max_score} are beyond the exact method (0..15 at 10 tasks); '
            f'classify per task, or on a coarser score'
        )
    differences = _near(gap, tasks, reach_d, low=-max_score * samples, high=max_score * samples)
    caps = _near(headroom, tasks, reach_c, low=0, high=max_score * (samples + 1))
    gain = _gains(differences, caps, samples, max_score)
    best: IntArray = np.zeros((1, 1), dtype=np.int64)
    start_d, start_c = 0, 0  # the sums that best[0, 0] stands for
    for task in range(1, tasks + 1):
        best = _add_task(best, gain)
        start_d, start_c = start_d + differences.start, start_c + caps.start
        rows, start_d = _clip(start_d, best.shape[0], gap * task, tasks, 2 * reach_d)
        columns, start_c = _clip(start_c, best.shape[1], headroom * task, tasks, 2 * reach_c)
        best = best[rows, columns]
    return int(best[gap - start_d, headroom - start_c])


def _near(total: int, parts: int, reach: int, *, low: int, high: int) -> range:
    """The integers within `reach` of total / parts, and within low..high."""
    return range(max(low, -((reach * parts - total) // parts)), min(high, (total + reach * parts) // parts) + 1)


def _clip(start: int, size: int, numerator: int, denominator: int, reach: int) -> tuple[slice, int]:
    """Where an axis of sums starting at `start` lies within `reach` of numerator / denominator."""
    first = max(start, numerator // denominator - reach)
    last = min(start + size - 1, numerator // denominator + 1 + reach)
    return slice(first - start, last - start + 1), first


def _gains(differences: range, caps: range, samples: int, max_score: int) -> IntArray:
    """S (Pi(p) + Pi(n)) - d^2 of the best task with difference d and n <= c, for every d and c."""
    gain = np.full((len(differences), len(caps)), UNREACHED, dtype=np.int64)
    for row, d in enumerate(differences):
        forced = max(0, -d)
        limit = forced + most_downward(abs(d), samples, max_score)
        for column, cap in enumerate(caps):
            if cap >= forced:
                down = min(cap, limit)
                squares = packed(d + down, max_score) + packed(down, max_score)
                gain[row, column] = samples * squares - d * d
    return gain


def _add_task(best: IntArray, gain: IntArray) -> IntArray:
    rows, columns = best.shape
    after = np.full((rows + gain.shape[0] - 1, columns + gain.shape[1] - 1), UNREACHED, dtype=np.int64)
    for i, j in np.argwhere(gain > UNREACHED):
        view = after[i : i + rows, j : j + columns]
        np.maximum(view, best + gain[i, j], out=view)
    return after
