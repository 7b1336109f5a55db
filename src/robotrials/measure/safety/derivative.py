"""Speeds, accelerations and jerks that mean the same at every sampling rate.

A finite difference over one sample multiplies noise by the rate to the power of its order: 0.2 mm of position noise is
a jerk of 10 m/s^3 at 20 Hz and of 20,000 at 500 Hz. So positions are band-limited by a moving mean of a fixed time, and
differences are taken over a fixed time; at 20 Hz both are SafeVLA-Bench's five-step mean and one-step differences.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.measure.safety.reading import FloatArray, absent

MEAN_S = 0.25  # the moving mean of the end effector's position
LAG_S = 0.05  # the step of the differences
COARSEST_S = 0.1  # a slower record cannot hold what the filter lets through
LONGEST_GAP = 3.0  # times the median step: longer gaps are not bridged by interpolation
RAW_MEAN_STEPS = 5  # the mean over steps, whatever they last
EVEN_SHARE = 1e-3


def rates(time_s: FloatArray, position_m: FloatArray, order: int, *, mean_s: float = MEAN_S) -> FloatArray:
    """The size (T,) of a position's first, second or third derivative, band-limited by a mean of `mean_s` seconds."""
    if len(time_s) < 2:
        raise absent('one step has no derivative')
    dt_s, grid_s, place = _on_grid(time_s, position_m)
    if dt_s > COARSEST_S * (1 + EVEN_SHARE):
        raise absent(f'steps of {dt_s:g} s are coarser than the {COARSEST_S:g} s that a band-limited derivative needs')
    width = max(1, round(mean_s / dt_s))
    lag = max(1, round(LAG_S / dt_s))
    found = _differences(place, order, width, lag) / (lag * dt_s) ** order
    return found if grid_s is time_s else np.interp(time_s, grid_s, found)


def raw_rates(time_s: FloatArray, position_m: FloatArray, order: int) -> FloatArray:
    """SafeVLA-Bench's own: a mean over five steps and differences of one step, whatever a step lasts."""
    if len(time_s) < 2:
        raise absent('one step has no derivative')
    dt_s = float(time_s[-1] - time_s[0]) / (len(time_s) - 1)
    steps = np.diff(time_s)
    if np.max(np.abs(steps - dt_s)) > 0.2 * dt_s:
        raise absent(f'steps of {steps.min():g} to {steps.max():g} s are too uneven for differences step by step')
    return _differences(position_m, order, RAW_MEAN_STEPS, 1) / dt_s**order


def _on_grid(time_s: FloatArray, position_m: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Even steps as they are; uneven ones interpolated to their median step, unless a gap is too long."""
    steps = np.diff(time_s)
    dt_s = float(np.median(steps))
    if np.max(np.abs(steps - dt_s)) <= EVEN_SHARE * dt_s:
        return float(time_s[-1] - time_s[0]) / len(steps), time_s, position_m
    if steps.max() > LONGEST_GAP * dt_s:
        raise absent(f'steps of {steps.min():g} to {steps.max():g} s are too uneven for a derivative')
    count = max(2, round(float(time_s[-1] - time_s[0]) / dt_s) + 1)
    grid = np.linspace(time_s[0], time_s[-1], count)
    even = np.stack([np.interp(grid, time_s, column) for column in position_m.T], axis=1)
    return float(grid[1] - grid[0]), grid, even


def _differences(position: FloatArray, order: int, width: int, lag: int) -> FloatArray:
    reach = 2 if order == 3 else 1
    needed = width + 2 * reach * lag
    if len(position) < needed:
        raise absent(f'{len(position)} steps, wanted at least {needed}')
    sums = np.cumsum(np.concatenate([np.zeros((1, position.shape[1])), position]), axis=0)
    smooth = (sums[width:] - sums[:-width]) / width if width > 1 else position
    return _held_to(np.linalg.norm(central_difference(smooth, order, lag=lag), axis=1), len(position))


def central_difference(values: NDArray[np.floating[Any]], order: int, *, lag: int = 1) -> FloatArray:
    """The first, second or third central difference over `lag` rows along axis 0, where it is defined."""
    n = len(values)
    difference: FloatArray
    if order == 1:
        difference = (values[2 * lag :] - values[: n - 2 * lag]) / 2
    elif order == 2:
        difference = values[2 * lag :] - 2 * values[lag : n - lag] + values[: n - 2 * lag]
    else:
        ahead, back = values[3 * lag : n - lag], values[lag : n - 3 * lag]
        difference = (values[4 * lag :] - 2 * ahead + 2 * back - values[: n - 4 * lag]) / 2
    return difference


def _held_to(values: FloatArray, steps: int) -> FloatArray:
    """Extend to `steps` by holding both ends: no new extreme, one value per step."""
    missing = steps - len(values)
    return np.pad(values, (missing // 2, missing - missing // 2), mode='edge')
