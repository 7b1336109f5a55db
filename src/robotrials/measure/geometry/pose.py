"""How far a pose is from its target, with the object's symmetries taken out (RADAR, equations 3 and 6).

As printed, equation 3 takes the minimum over SO(3), which is always zero. Here the minimum is over the rotations that
leave the object as it is.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError
from robotrials.measure.geometry.box import Box, FloatArray, check_pose, check_rotation


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
    return Symmetry(f'cyclic {order}', np.array([_about_z(2 * math.pi * i / order) for i in range(order)]))


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
    frobenius: float


def alignment_angle(rotation: ArrayLike, target: ArrayLike, *, symmetry: Symmetry = NO_SYMMETRY) -> float:
    """The least angle, in radians, between `rotation` and `target` (both world-from-body) over the symmetries."""
    found, wanted = check_rotation('rotation', rotation), check_rotation('target', target)
    if symmetry.turning is Turning.POINT:
        return 0.0
    between = wanted.T @ found @ symmetry.rotations  # (K, 3, 3): target-from-body, one a symmetry
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
    return 2 * math.sqrt(2) * math.sin(alignment_angle(rotation, target, symmetry=symmetry) / 2)


def pose_error(pose: ArrayLike, target: ArrayLike, *, symmetry: Symmetry = NO_SYMMETRY) -> PoseError:
    """The error of a 4x4 world-from-body pose against its target."""
    found, wanted = check_pose('pose', pose), check_pose('target', target)
    angle = alignment_angle(found[:3, :3], wanted[:3, :3], symmetry=symmetry)
    distance = float(np.linalg.norm(found[:3, 3] - wanted[:3, 3]))
    return PoseError(distance, angle, 2 * math.sqrt(2) * math.sin(angle / 2))


def box_pose_error(result: Box, target: Box, *, symmetry: Symmetry | None = None) -> PoseError:
    """The error of a box against its target; the symmetry is that of the target's edges unless it is given."""
    group = box_symmetry(target.size) if symmetry is None else symmetry
    angle = alignment_angle(result.rotation, target.rotation, symmetry=group)
    distance = float(np.linalg.norm(result.center - target.center))
    return PoseError(distance, angle, 2 * math.sqrt(2) * math.sin(angle / 2))


def _about_z(angle_rad: float) -> FloatArray:
    c, s = math.cos(angle_rad), math.sin(angle_rad)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
