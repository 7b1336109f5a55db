"""The oriented box, and the exact intersection over union of two of them (RADAR, equation 4)."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from itertools import permutations, product
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.value import dataclass

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
        return np.asarray(self.center + (CORNER_SIGNS * self.size / 2) @ self.rotation.T)

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """The lowest and the highest corner of the axis-aligned hull."""
        corners = self.corners
        return corners.min(axis=0), corners.max(axis=0)

    def contains(self, points: ArrayLike) -> BoolArray:
        """Which of the (N, 3) points lie inside or on the surface."""
        local = (np.asarray(points, dtype=np.float64) - self.center) @ self.rotation
        return np.asarray(np.all(np.abs(local) <= self.size / 2, axis=1))

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


# How far a pose is from its target, with the object's symmetries taken out (RADAR, equations 3 and 6).
# As printed, equation 3 takes the minimum over SO(3), which is always zero. Here the minimum is over the rotations
# that leave the object as it is.


class Turning(enum.StrEnum):
    """What a continuous symmetry turns about."""

    NONE = 'none'
    AXIS = 'axis'  # any angle about the body's z
    POINT = 'point'  # a sphere: every rotation


@dataclass(frozen=True, slots=True, eq=False)
class Symmetry:
    """The rotations of the body's own frame that leave the object as it is: some matrices (K, 3, 3), and a turning."""

    name: str
    rotations: FloatArray
    turning: Turning = Turning.NONE

    def __post_init__(self) -> None:
        group = np.asarray(self.rotations, dtype=np.float64)
        if group.ndim != 3 or group.shape[1:] != (3, 3) or not len(group):
            raise InputError(f'a symmetry needs rotations of shape (K, 3, 3), found {group.shape}')
        checked = np.array([check_rotation(f'rotations[{i}]', r) for i, r in enumerate(group)])
        object.__setattr__(self, 'rotations', checked)


def cyclic(order: int) -> Symmetry:
    """Turns by 360/order degrees about the body's z."""
    if order < 1:
        raise InputError(f'the order of a symmetry must be >= 1, found {order}')
    return Symmetry(f'cyclic {order}', np.array([about_z(2 * math.pi * i / order) for i in range(order)]))


def dihedral(order: int) -> Symmetry:
    """`cyclic`, and the half turns that put the body upside down: a prism with `order` equal sides."""
    turns = cyclic(order).rotations
    return Symmetry(f'dihedral {order}', np.concatenate([turns, turns @ np.diag([1.0, -1.0, -1.0])]))


NO_SYMMETRY = Symmetry('none', np.eye(3)[None])
CYLINDER = Symmetry('cylinder', np.array([np.eye(3), np.diag([1.0, -1.0, -1.0])]), Turning.AXIS)
CONE = Symmetry('cone', np.eye(3)[None], Turning.AXIS)
SPHERE = Symmetry('sphere', np.eye(3)[None], Turning.POINT)


def box_symmetry(size: ArrayLike, *, tolerance_m: float = 1e-6) -> Symmetry:
    """The rotations of a plain box: 4 with three different edges, 8 with two equal ones, 24 for a cube."""
    edges = np.asarray(size, dtype=np.float64)
    group = []
    for order in permutations(range(3)):
        if np.abs(edges[list(order)] - edges).max() > tolerance_m:
            continue
        for signs in product((1.0, -1.0), repeat=3):
            matrix = np.zeros((3, 3))
            matrix[list(order), range(3)] = signs
            if np.linalg.det(matrix) > 0:
                group.append(matrix)
    return Symmetry(f'box {len(group)}', np.array(group))


@dataclass(frozen=True, slots=True)
class PoseError:
    """Distance of the centres, and the least rotation that is left over the symmetries, in two measures."""

    translation_m: float
    angle_rad: float

    @property
    def frobenius(self) -> float:
        """The norm of equation 3: 2 sqrt(2) sin(angle / 2)."""
        return _frobenius(self.angle_rad)


def _frobenius(angle_rad: float) -> float:
    return 2 * math.sqrt(2) * math.sin(angle_rad / 2)


def alignment_angle(rotation: ArrayLike, target: ArrayLike, *, symmetry: Symmetry = NO_SYMMETRY) -> float:
    """The least angle, in radians, between `rotation` and `target` (both world-from-body) over the symmetries."""
    turned, wanted = check_rotation('rotation', rotation), check_rotation('target', target)
    if symmetry.turning is Turning.POINT:
        return 0.0
    between = wanted.T @ turned @ symmetry.rotations  # (K, 3, 3): target-from-body, one a symmetry
    if symmetry.turning is Turning.AXIS:
        # After the best turn about z, what is left is the angle between the two axes.
        sine = np.hypot(between[:, 0, 2], between[:, 1, 2])
        return float(np.arctan2(sine, between[:, 2, 2]).min())
    trace = np.trace(between, axis1=1, axis2=2)
    skew = np.stack(
        [between[:, 2, 1] - between[:, 1, 2], between[:, 0, 2] - between[:, 2, 0], between[:, 1, 0] - between[:, 0, 1]]
    )
    # atan2 keeps small angles, which the arc cosine of a trace near 3 loses.
    return float(np.arctan2(np.linalg.norm(skew, axis=0), trace - 1).min())


def alignment_error(rotation: ArrayLike, target: ArrayLike, *, symmetry: Symmetry = NO_SYMMETRY) -> float:
    """The Frobenius norm of equation 3, minimised over the symmetries: 2 sqrt(2) sin(angle / 2)."""
    return _frobenius(alignment_angle(rotation, target, symmetry=symmetry))


def pose_error(pose: ArrayLike, target: ArrayLike, *, symmetry: Symmetry = NO_SYMMETRY) -> PoseError:
    """The error of a 4x4 world-from-body pose against its target."""
    placed, wanted = check_pose('pose', pose), check_pose('target', target)
    angle = alignment_angle(placed[:3, :3], wanted[:3, :3], symmetry=symmetry)
    distance = float(np.linalg.norm(placed[:3, 3] - wanted[:3, 3]))
    return PoseError(distance, angle)


def box_pose_error(result: Box, target: Box, *, symmetry: Symmetry | None = None) -> PoseError:
    """The error of a box against its target; the symmetry is that of the target's edges unless it is given."""
    group = box_symmetry(target.size) if symmetry is None else symmetry
    angle = alignment_angle(result.rotation, target.rotation, symmetry=group)
    distance = float(np.linalg.norm(result.center - target.center))
    return PoseError(distance, angle)


def about_z(angle_rad: float) -> FloatArray:
    """The rotation by an angle about z."""
    c, s = math.cos(angle_rad), math.sin(angle_rad)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


# Volumetric IoU of shapes that are not boxes, by counting voxels.

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
    in_both = in_either = 0
    rows = max(1, SLAB // max(1, len(axes[1]) * len(axes[2])))
    for start in range(0, len(axes[0]), rows):
        grid = np.meshgrid(axes[0][start : start + rows], axes[1], axes[2], indexing='ij')
        points = np.stack([g.ravel() for g in grid], axis=1)
        in_a, in_b = a.contains(points), b.contains(points)
        in_both += int(np.count_nonzero(in_a & in_b))
        in_either += int(np.count_nonzero(in_a | in_b))
    if in_either == 0:
        raise NotEstimable(f'neither shape holds the centre of a voxel of {voxel_m} m; use a smaller voxel_m')
    return in_both / in_either
