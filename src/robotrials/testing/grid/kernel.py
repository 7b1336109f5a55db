"""Kaplan-Meier restricted means of many simulated cells at once, with the exact jackknife over units."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.compiled import njit

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
I1 = NDArray[np.int8]

ABSENT, OBSERVED, CENSORED = 0, 1, 2


@njit(nogil=True)
def unit_rmst(
    times: F8, state: I1, unit: I8, n_units: int, tau: float, value: F8, variance: F8, followed: F8, influence: F8
) -> None:
    """Row by row: the RMST at tau, its jackknife variance over units, the units followed, and each unit's influence.

    `times` and `state` are (rows, operations); an operation is absent, observed (inf: never) or censored. Rows without
    censoring before tau are plain means; else every unit is left out of the curve in turn.
    """
    n = times.shape[1]
    left = np.empty(n_units)
    seen = np.zeros(n_units, dtype=np.bool_)
    for row in range(times.shape[0]):
        early = 0
        for g in range(n_units):
            seen[g] = False
        for i in range(n):
            if state[row, i] == CENSORED and times[row, i] < tau:
                early += 1
            elif state[row, i] != ABSENT:
                seen[unit[i]] = True
        if early == 0:
            whole = _plain(times[row], state[row], unit, n_units, tau, left)
        else:
            order = _time_order(times[row], state[row])
            whole = _curve_area(times[row], state[row], unit, order, -1, tau)
            for g in range(n_units):
                left[g] = _curve_area(times[row], state[row], unit, order, g, tau)
        mean, sum_ = 0.0, 0.0
        for g in range(n_units):
            mean += left[g] / n_units
        scale = np.sqrt((n_units - 1.0) / n_units)
        for g in range(n_units):
            influence[row, g] = scale * (mean - left[g])
            sum_ += influence[row, g] ** 2
        value[row], variance[row] = whole, sum_
        followed[row] = 0.0
        for g in range(n_units):
            followed[row] += 1.0 if seen[g] else 0.0


@njit(nogil=True)
def _plain(times: F8, state: I1, unit: I8, n_units: int, tau: float, left: F8) -> float:
    total, count = 0.0, 0
    sums, sizes = np.zeros(n_units), np.zeros(n_units)
    for i in range(len(times)):
        if state[i] != ABSENT:
            capped = min(times[i], tau)
            total += capped
            count += 1
            sums[unit[i]] += capped
            sizes[unit[i]] += 1.0
    for g in range(n_units):
        rest = count - sizes[g]
        left[g] = (total - sums[g]) / rest if rest > 0 else tau
    return total / count if count > 0 else tau


@njit(nogil=True)
def _time_order(times: F8, state: I1) -> I8:
    """Operations in time order, successes before censorings at a tie."""
    keys = np.empty(len(times))
    for i in range(len(times)):
        keys[i] = times[i]
    order = np.argsort(keys, kind='mergesort')
    for k in range(1, len(order)):
        j = k
        while (
            j > 0 and times[order[j]] == times[order[j - 1]]
            and state[order[j]] == OBSERVED and state[order[j - 1]] == CENSORED
        ):  # fmt: skip
            order[j], order[j - 1] = order[j - 1], order[j]
            j -= 1
    return order


@njit(nogil=True)
def _curve_area(times: F8, state: I1, unit: I8, order: I8, without: int, tau: float) -> float:
    at_risk = 0
    for i in range(len(times)):
        if state[i] != ABSENT and unit[i] != without:
            at_risk += 1
    survival, area, before = 1.0, 0.0, 0.0
    for k in range(len(order)):
        i = order[k]
        if state[i] == ABSENT or unit[i] == without:
            continue
        if times[i] > tau:
            break
        if state[i] == OBSERVED:
            area += survival * (times[i] - before)
            before = times[i]
            survival *= 1.0 - 1.0 / at_risk
        at_risk -= 1
    return area + survival * (tau - before)
