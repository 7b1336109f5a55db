"""How much of a box lies in its target, for the cell's own verdict at control rate.

The record keeps poses and the target, so that `trialist.geometry` can score the same episode exactly afterwards.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trialist.hosts.tabletop import pose

FloatArray = NDArray[np.floating[Any]]
GRID = 20  # points along an edge: the IoU is within 0.02


@functools.cache
def _grid() -> FloatArray:
    ticks = (np.arange(GRID) + 0.5) / GRID - 0.5
    return np.stack(np.meshgrid(ticks, ticks, ticks, indexing='ij'), axis=-1).reshape(-1, 3)


def box_overlap(a: FloatArray, b: FloatArray, *, size_m: tuple[float, float, float], turns: int = 1) -> float:
    """IoU of two boxes of one size at poses (7,), by the share of a's grid inside b; best over its turns about z.

    For boxes of one volume V with intersection I, the IoU is I / (2V - I).
    """
    size = np.array(size_m)
    if float(np.linalg.norm(a[:3] - b[:3])) >= float(np.linalg.norm(size)):
        return 0.0
    relative = pose.compose(pose.invert(b), a)
    points = _grid() * size @ pose.matrix_from_quaternion(relative[3:]).T + relative[:3]
    best = 0.0
    for turn in range(max(turns, 1)):
        angle = 2 * math.pi * turn / max(turns, 1)
        c, s = math.cos(angle), math.sin(angle)
        x, y = points[:, 0] * c + points[:, 1] * s, points[:, 1] * c - points[:, 0] * s
        inside = (np.abs(x) <= size[0] / 2) & (np.abs(y) <= size[1] / 2) & (np.abs(points[:, 2]) <= size[2] / 2)
        share = float(inside.mean())
        best = max(best, share / (2 - share))
    return best
