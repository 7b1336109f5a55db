"""Kaplan-Meier restricted means of many simulated cells at once, with the exact jackknife over units."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.compiled import in_c

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]
I1 = NDArray[np.int8]

ABSENT, OBSERVED, CENSORED = 0, 1, 2


@in_c
def unit_rmst(
    times: F8, state: I1, unit: I8, n_units: int, tau: float, value: F8, variance: F8, followed: F8, influence: F8
) -> None:
    """Row by row: the RMST at tau, its jackknife variance over units, the units followed, and each unit's influence.

    `times` and `state` are (rows, operations); an operation is absent, observed (inf: never) or censored. Rows without
    censoring before tau are plain means; else every unit is left out of the curve in turn.
    """
    own = unit == np.arange(n_units)[:, None]
    early = (state == CENSORED) & (times < tau)
    left = np.empty((len(times), n_units))
    censored = early.any(axis=1)
    for rows, areas in ((~censored, _plain), (censored, _curve_area)):
        if rows.any():
            row_times, row_state = times[rows], state[rows]
            there = row_state != ABSENT
            value[rows] = areas(row_times, row_state, there, tau)
            left[rows] = np.stack([areas(row_times, row_state, there & ~mine, tau) for mine in own], axis=1)
    influence[:] = np.sqrt((n_units - 1.0) / n_units) * ((left / n_units).sum(axis=1)[:, None] - left)
    variance[:] = np.square(influence).sum(axis=1)
    seen = (state != ABSENT) & ~early
    followed[:] = sum((seen & mine).any(axis=1) for mine in own)


def _plain(times: F8, state: I1, there: NDArray[np.bool_], tau: float) -> Any:
    count = there.sum(axis=1)
    total = np.where(there, np.minimum(times, tau), 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), tau)


def _curve_area(times: F8, state: I1, there: NDArray[np.bool_], tau: float) -> Any:
    """The area under each row's curve up to tau; successes come before censorings at a tie."""
    order = np.lexsort((state, times), axis=1)
    times = np.take_along_axis(times, order, axis=1)
    state = np.take_along_axis(state, order, axis=1)
    there = np.take_along_axis(there, order, axis=1)
    at_risk = there[:, ::-1].cumsum(axis=1)[:, ::-1]
    is_event = there & (state == OBSERVED) & (times <= tau)
    factor = np.where(is_event, 1.0 - 1.0 / np.maximum(at_risk, 1), 1.0)
    survival = np.concatenate([np.ones((len(times), 1)), np.cumprod(factor, axis=1)], axis=1)
    last = np.maximum.accumulate(np.where(is_event, times, 0.0), axis=1)
    before = np.concatenate([np.zeros((len(times), 1)), last[:, :-1]], axis=1)
    pieces = np.where(is_event, survival[:, :-1] * (np.where(is_event, times, 0.0) - before), 0.0)
    return pieces.sum(axis=1) + survival[:, -1] * (tau - last[:, -1])
