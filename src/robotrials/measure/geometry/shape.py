"""Volumetric IoU of shapes that are not boxes, by counting voxels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.geometry.box import BoolArray, FloatArray, check_rotation

MOST_VOXELS = 200_000_000
SLAB = 2_000_000


class Shape(Protocol):
    """Anything with an inside: a box, a cylinder, a reconstruction, or a user's own."""

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]: ...

    def contains(self, points: ArrayLike) -> BoolArray: ...


@dataclass(frozen=True, slots=True, eq=False)
class Cylinder:
    """A cylinder about its own z: centre, radius and height in metres, world-from-cylinder rotation."""

    center: FloatArray
    radius_m: float
    height_m: float
    rotation: FloatArray

    def __init__(
        self, center: ArrayLike, radius_m: float, *, height_m: float, rotation: ArrayLike | None = None
    ) -> None:
        put = object.__setattr__
        put(self, 'center', np.array(center, dtype=np.float64))
        put(self, 'rotation', check_rotation('rotation', np.eye(3) if rotation is None else rotation))
        put(self, 'radius_m', float(radius_m))
        put(self, 'height_m', float(height_m))
        if self.center.shape != (3,) or not np.isfinite(self.center).all():
            raise InputError(f'center must be three finite numbers, found {self.center.tolist()}')
        if not (radius_m >= 0 and height_m >= 0 and math.isfinite(radius_m + height_m)):
            raise InputError(f'radius and height must be finite and >= 0, found {radius_m} and {height_m} m')

    @property
    def volume(self) -> float:
        return math.pi * self.radius_m**2 * self.height_m

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        axis = self.rotation[:, 2]
        reach = self.height_m / 2 * np.abs(axis) + self.radius_m * np.sqrt(np.maximum(0.0, 1 - axis**2))
        return self.center - reach, self.center + reach

    def contains(self, points: ArrayLike) -> BoolArray:
        local = (np.asarray(points, dtype=np.float64) - self.center) @ self.rotation
        inside: BoolArray = (np.hypot(local[:, 0], local[:, 1]) <= self.radius_m) & (
            np.abs(local[:, 2]) <= self.height_m / 2
        )
        return inside


def volumetric_iou(a: Shape, b: Shape, *, voxel_m: float) -> float:
    """IoU of two shapes by the centres of voxels of edge `voxel_m`; its error falls with the voxel.

    Where no voxel's centre lies in either shape there is nothing to divide by: NotEstimable.
    """
    if not (voxel_m > 0 and math.isfinite(voxel_m)):
        raise InputError(f'voxel_m must be a length > 0 in metres, found {voxel_m}')
    (low_a, high_a), (low_b, high_b) = a.bounds, b.bounds
    low, high = np.minimum(low_a, low_b), np.maximum(high_a, high_b)
    axes = [np.arange(low[k] + voxel_m / 2, high[k] + voxel_m / 2, voxel_m) for k in range(3)]
    n = math.prod(len(axis) for axis in axes)
    if n > MOST_VOXELS:
        raise InputError(f'{n:.3g} voxels of {voxel_m} m are more than {MOST_VOXELS:.0e}; use a larger voxel_m')
    both = either = 0
    rows = max(1, SLAB // max(1, len(axes[1]) * len(axes[2])))
    for start in range(0, len(axes[0]), rows):
        grid = np.meshgrid(axes[0][start : start + rows], axes[1], axes[2], indexing='ij')
        points = np.stack([g.ravel() for g in grid], axis=1)
        in_a, in_b = a.contains(points), b.contains(points)
        both += int(np.count_nonzero(in_a & in_b))
        either += int(np.count_nonzero(in_a | in_b))
    if either == 0:
        raise NotEstimable(f'neither shape holds the centre of a voxel of {voxel_m} m; use a smaller voxel_m')
    return both / either
