"""Compiled passes over simulated Brownian bridges, all bridges of a time side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.compiled import njit

F4 = NDArray[np.float32]


@njit(nogil=True)
def add_bridges(walk: F4, steps: F4, clock: F4, scale: Any, out: F4) -> None:
    """Add a Brownian bridge, times `scale`, to each column of out (k, bridges); walk (bridges, k + 1) is overwritten.

    `walk` holds standard normals, `steps` the spread of the clock's increments.
    """
    k = len(clock)
    for r in range(walk.shape[0]):
        total = np.float32(0.0)
        for j in range(k + 1):
            total += walk[r, j] * steps[j]
            walk[r, j] = total
        for j in range(k):
            out[j, r] += (walk[r, j] - clock[j] * total) * scale


@njit(nogil=True)
def sup_shifted(noise: F4, drift: F4, out: F4) -> None:
    """The largest |noise + drift| of each column of noise (k, bridges)."""
    for r in range(len(out)):
        out[r] = 0.0
    for j in range(len(drift)):
        row, shift = noise[j], drift[j]
        for r in range(len(out)):
            out[r] = max(out[r], abs(row[r] + shift))


@njit(nogil=True)
def sup_scaled(noise: F4, drift: F4, scale: F4, out: F4) -> None:
    """As sup_shifted, with the drift scaled column by column."""
    for r in range(len(out)):
        out[r] = 0.0
    for j in range(len(drift)):
        row, shift = noise[j], drift[j]
        for r in range(len(out)):
            out[r] = max(out[r], abs(row[r] + scale[r] * shift))
