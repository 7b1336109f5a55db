"""Small rigid-body algebra on poses (x, y, z, qw, qx, qy, qz): scalar code, as it runs at every control step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
Vector = Sequence[float] | FloatArray


def multiply(a: Vector, b: Vector) -> list[float]:
    """The product of two wxyz quaternions."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return [
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    ]


def conjugate(q: Vector) -> list[float]:
    return [q[0], -q[1], -q[2], -q[3]]


def rotate(q: Vector, v: Vector) -> list[float]:
    """The vector `v` turned by the quaternion `q`."""
    w, x, y, z = q
    tx, ty, tz = 2 * (y * v[2] - z * v[1]), 2 * (z * v[0] - x * v[2]), 2 * (x * v[1] - y * v[0])
    return [v[0] + w * tx + y * tz - z * ty, v[1] + w * ty + z * tx - x * tz, v[2] + w * tz + x * ty - y * tx]


def quaternion_from_vector(rotation_rad: Vector) -> list[float]:
    """The quaternion of an axis-angle vector."""
    x, y, z = rotation_rad
    angle = math.sqrt(x * x + y * y + z * z)
    scale = 0.5 - angle * angle / 48 if angle < 1e-6 else math.sin(angle / 2) / angle
    return [math.cos(angle / 2), x * scale, y * scale, z * scale]


def vector_from_quaternion(q: Vector) -> list[float]:
    """The axis-angle vector of a unit quaternion, the short way round."""
    w, x, y, z = q
    if w < 0:
        w, x, y, z = -w, -x, -y, -z
    sine = math.sqrt(x * x + y * y + z * z)
    scale = 2.0 if sine < 1e-9 else 2 * math.atan2(sine, w) / sine
    return [x * scale, y * scale, z * scale]


def compose(a: Vector, b: Vector) -> FloatArray:
    """The pose of `b`, given in the frame `a`, in the frame that `a` is given in."""
    x, y, z = rotate(a[3:], b[:3])
    return np.array([a[0] + x, a[1] + y, a[2] + z, *multiply(a[3:], b[3:])])


def invert(a: Vector) -> FloatArray:
    back = conjugate(a[3:])
    x, y, z = rotate(back, a[:3])
    return np.array([-x, -y, -z, *back])


def yaw_pose(x_m: float, y_m: float, z_m: float, *, yaw_rad: float = 0.0) -> FloatArray:
    """A pose turned about z alone."""
    return np.array([x_m, y_m, z_m, math.cos(yaw_rad / 2), 0.0, 0.0, math.sin(yaw_rad / 2)])


def matrix_from_quaternion(q: Vector) -> FloatArray:
    w, x, y, z = (float(v) for v in q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
