"""The oriented box, and the exact intersection over union of two of them (RADAR, equation 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, NotEstimable

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]

ROTATION_SLACK = 1e-5  # what single-precision quaternions leave; beyond it the matrix is not a rotation
CORNER_SIGNS = np.array([[(c >> k & 1) * 2 - 1 for k in range(3)] for c in range(8)], dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """A box in the world: its centre, its full edge lengths, and the 3x3 world-from-box rotation.

    An edge may be zero: a flat box has no volume. A rotation that is off by rounding is brought back.
    """

    center: FloatArray  # (3,) metres
    size: FloatArray  # (3,) metres
    rotation: FloatArray  # (3, 3)

    def __init__(self, center: ArrayLike, size: ArrayLike, rotation: ArrayLike | None = None) -> None:
        put = object.__setattr__
        put(self, 'center', _vector('center', center))
        put(self, 'size', _vector('size', size))
        if (self.size < 0).any():
            raise InputError(f'size must be three edge lengths >= 0 in metres, found {self.size.tolist()}')
        put(self, 'rotation', check_rotation('rotation', np.eye(3) if rotation is None else rotation))

    def __repr__(self) -> str:
        return f'Box(center={self.center.tolist()}, size={self.size.tolist()}, rotation={self.rotation.tolist()})'

    @property
    def volume(self) -> float:
        """Cubic metres."""
        return float(np.prod(self.size))

    @property
    def corners(self) -> FloatArray:
        """The (8, 3) corners in the world; bits 0, 1, 2 of the row are the signs along x, y, z of the box."""
        corners: FloatArray = self.center + (CORNER_SIGNS * self.size / 2) @ self.rotation.T
        return corners

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """The lowest and the highest corner of the axis-aligned hull."""
        corners = self.corners
        return corners.min(axis=0), corners.max(axis=0)

    def contains(self, points: ArrayLike) -> BoolArray:
        """Which of the (N, 3) points lie inside or on the surface."""
        local = (np.asarray(points, dtype=np.float64) - self.center) @ self.rotation
        inside: BoolArray = np.all(np.abs(local) <= self.size / 2, axis=1)
        return inside

    def moved(self, world_from_body: ArrayLike) -> Box:
        """The box carried by a 4x4 rigid motion."""
        motion = check_pose('world_from_body', world_from_body)
        return Box(motion[:3, :3] @ self.center + motion[:3, 3], self.size, motion[:3, :3] @ self.rotation)


def box_from_pose(pose: ArrayLike, size: ArrayLike) -> Box:
    """A box at a recorded pose (x, y, z, qw, qx, qy, qz)."""
    values = np.asarray(pose, dtype=np.float64)
    if values.shape != (7,):
        raise InputError(f'a pose has 7 numbers (x, y, z, qw, qx, qy, qz), found shape {values.shape}')
    return Box(values[:3], size, rotation_from_quaternion(values[3:]))


def rotation_from_quaternion(quaternion_wxyz: ArrayLike) -> FloatArray:
    """The 3x3 rotation of a quaternion (w, x, y, z); it is normalised first."""
    q = np.asarray(quaternion_wxyz, dtype=np.float64)
    norm = float(np.linalg.norm(q))
    if q.shape != (4,) or not math.isfinite(norm) or norm < 1e-9:
        raise InputError(f'a quaternion has 4 finite numbers, not all zero, found {q.tolist()}')
    w, x, y, z = q / norm
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def box_iou(a: Box, b: Box) -> float:
    """Exact volume of the intersection over volume of the union, in [0, 1], the same bit for bit with a and b swapped.

    A flat box shares no volume with anything: 0. Two flat boxes have no union to divide by: NotEstimable.
    """
    iou = float(box_iou_pairs([a], [b])[0])
    if math.isnan(iou):
        raise NotEstimable(f'IoU of two boxes without volume is 0/0: sizes {a.size.tolist()} and {b.size.tolist()} m')
    return iou


def box_iou_pairs(a: Sequence[Box], b: Sequence[Box]) -> FloatArray:
    """IoU (N,) of the pairs a[i], b[i]; NaN where neither has a volume."""
    if len(a) != len(b):
        raise InputError(f'wanted as many boxes on both sides, found {len(a)} and {len(b)}')
    stacked = [np.array([getattr(box, name) for box in side]) for side in (a, b) for name in Box.__slots__]
    if not len(a):
        return np.empty(0)
    return box_iou_arrays(*stacked)


def box_iou_arrays(
    centers_a: FloatArray,
    sizes_a: FloatArray,
    rotations_a: FloatArray,
    centers_b: FloatArray,
    sizes_b: FloatArray,
    rotations_b: FloatArray,
) -> FloatArray:
    """The batched form: centers and sizes (N, 3), world-from-box rotations (N, 3, 3), all finite and checked before."""
    from robotrials.measure.geometry.kernel import intersection_volumes

    given = (centers_a, sizes_a, rotations_a, centers_b, sizes_b, rotations_b)
    arrays = [np.ascontiguousarray(x, dtype=np.float64) for x in given]
    n = len(arrays[0])
    for array, shape in zip(arrays, ((n, 3), (n, 3), (n, 3, 3)) * 2, strict=True):
        if array.shape != shape:
            raise InputError(f'wanted arrays of shapes (N, 3), (N, 3), (N, 3, 3) twice, found {array.shape}')
    shared = np.empty(n)
    ca, sa, ra, cb, sb, rb = arrays
    intersection_volumes(ca, sa, ra, cb, sb, rb, shared)
    first, second = sa.prod(axis=1), sb.prod(axis=1)
    # Rounding may leave the intersection a last bit above the smaller box.
    shared = np.minimum(shared, np.minimum(first, second))
    union = first + second - shared
    with np.errstate(invalid='ignore', divide='ignore'):
        iou: FloatArray = np.where(union > 0, np.minimum(shared / union, 1.0), np.nan)
    return iou


def check_rotation(name: str, rotation: ArrayLike) -> FloatArray:
    """The 3x3 matrix as a rotation, or an error that says how far it is from one."""
    matrix = np.array(rotation, dtype=np.float64)
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        raise InputError(f'{name} must be a finite 3x3 matrix, found shape {matrix.shape}')
    off = float(np.abs(matrix @ matrix.T - np.eye(3)).max())
    if off > ROTATION_SLACK or np.linalg.det(matrix) < 0:
        raise InputError(
            f'{name} must be a rotation (orthonormal, determinant +1), found |R R^T - I| = {off:.3g} and '
            f'determinant {np.linalg.det(matrix):.3g}'
        )
    if off > 1e-12:
        u, _, vt = np.linalg.svd(matrix)
        matrix = u @ vt
    return matrix


def check_pose(name: str, pose: ArrayLike) -> FloatArray:
    """A 4x4 rigid motion, checked."""
    matrix = np.array(pose, dtype=np.float64)
    if matrix.shape != (4, 4) or not np.isfinite(matrix).all() or not np.allclose(matrix[3], (0, 0, 0, 1), atol=1e-9):
        raise InputError(f'{name} must be a finite 4x4 rigid motion with last row 0 0 0 1, found shape {matrix.shape}')
    matrix[:3, :3] = check_rotation(f'{name}[:3, :3]', matrix[:3, :3])
    return matrix


def _vector(name: str, values: ArrayLike) -> FloatArray:
    vector = np.array(values, dtype=np.float64)
    if vector.shape != (3,) or not np.isfinite(vector).all():
        raise InputError(f'{name} must be three finite numbers, found {np.asarray(values).tolist()}')
    return vector
