"""Which demonstrations begin in mid-motion, by where the arm stands at their first step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError

FARTHEST = 0.5


def begins_in_motion(
    state: NDArray[np.floating[Any]], starts: NDArray[np.integer[Any]], *, farthest: float = FARTHEST
) -> NDArray[np.bool_]:
    """For each demonstration, whether it begins away from where demonstrations begin; state (N, S), starts (E + 1,).

    A number of the state is measured by its spread over all steps. Whole demonstrations begin near one pose, so that
    their starts differ little by that measure; segments cut out of longer ones begin anywhere. A start that is farther
    than `farthest` spreads (root mean square over the numbers that vary) from the median start is away.
    """
    if state.ndim != 2 or not len(state) or starts[-1] != len(state):
        raise InputError(f'state {state.shape} and {len(starts) - 1} demonstrations do not fit together')
    values = np.asarray(state, dtype=np.float64)
    spread = values.std(axis=0)
    first = values[starts[:-1]][:, spread > 1e-9] / spread[spread > 1e-9]
    if not first.shape[1]:
        return np.zeros(len(first), dtype=bool)
    away = np.sqrt(np.mean((first - np.median(first, axis=0)) ** 2, axis=1))
    return np.asarray(away > farthest)
