"""How much of a box lies in its target, for the cell's own verdict: the exact IoU of `robotrials.measure.geometry`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.measure.geometry import Box, box_iou
from robotrials.worlds.cell import pose

FloatArray = NDArray[np.floating[Any]]


def box_overlap(a: FloatArray, b: FloatArray, *, size_m: tuple[float, float, float], turns: int = 1) -> float:
    """Exact IoU of two boxes of one size at poses (7,); the best over the item's equal turns about its z."""
    if math.dist(a[:3], b[:3]) >= math.hypot(*size_m):
        return 0.0
    target = _box(b[:3], b[3:], size_m)
    best = 0.0
    for turn in range(max(turns, 1)):
        half = math.pi * turn / max(turns, 1)
        turned = pose.multiply(a[3:], [math.cos(half), 0.0, 0.0, math.sin(half)])
        best = max(best, box_iou(_box(a[:3], turned, size_m), target))
    return best


def _box(center_m: FloatArray, quaternion: pose.Vector, size_m: tuple[float, float, float]) -> Box:
    unit = np.asarray(quaternion, dtype=float)
    return Box(center_m, size_m, pose.matrix_from_quaternion(unit / np.linalg.norm(unit)))
