"""Passes over simulated Brownian bridges, all bridges of a time side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.compiled import in_c

F4 = NDArray[np.float32]


@in_c
def add_bridges(walk: F4, steps: F4, clock: F4, scale: Any, out: F4) -> None:
    """Add a Brownian bridge, times `scale`, to each column of out (k, bridges); walk (bridges, k + 1) is overwritten.

    `walk` holds standard normals, `steps` the spread of the clock's increments.
    """
    np.cumsum(walk * steps, axis=1, out=walk)
    out += ((walk[:, :-1] - clock * walk[:, -1:]) * np.float32(scale)).T


@in_c
def sup_shifted(noise: F4, drift: F4, out: F4) -> None:
    """The largest |noise + drift| of each column of noise (k, bridges)."""
    out[:] = 0.0
    for row, shift in zip(noise, drift, strict=True):
        np.maximum(out, np.abs(row + shift), out=out)


@in_c
def sup_scaled(noise: F4, drift: F4, scale: F4, out: F4) -> None:
    """As sup_shifted, with the drift scaled column by column."""
    out[:] = 0.0
    for row, shift in zip(noise, drift, strict=True):
        np.maximum(out, np.abs(row + scale * shift), out=out)
