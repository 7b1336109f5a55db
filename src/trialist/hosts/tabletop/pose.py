"""Small rigid-body algebra on poses (x, y, z, qw, qx, qy, qz): scalar code, as it runs at every control step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]


def multiply(a: FloatArray, b: FloatArray) -> FloatArray:
    """The product of two wxyz quaternions."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return np.array(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ]
    )


def conjugate(q: FloatArray) -> FloatArray:
    return np.array([q[0], -q[1], -q[2], -q[3]])


def rotate(q: FloatArray, v: FloatArray) -> FloatArray:
    """The vector `v` turned by the quaternion `q`."""
    w, x, y, z = q
    tx, ty, tz = 2 * (y * v[2] - z * v[1]), 2 * (z * v[0] - x * v[2]), 2 * (x * v[1] - y * v[0])
    return np.array(
        [v[0] + w * tx + y * tz - z * ty, v[1] + w * ty + z * tx - x * tz, v[2] + w * tz + x * ty - y * tx]
    )


def quaternion_from_vector(rotation_rad: FloatArray) -> FloatArray:
    """The quaternion of an axis-angle vector."""
    x, y, z = (float(v) for v in rotation_rad)
    angle = math.sqrt(x * x + y * y + z * z)
    scale = 0.5 - angle * angle / 48 if angle < 1e-6 else math.sin(angle / 2) / angle
    return np.array([math.cos(angle / 2), x * scale, y * scale, z * scale])


def vector_from_quaternion(q: FloatArray) -> FloatArray:
    """The axis-angle vector of a unit quaternion, the short way round."""
    w, x, y, z = (float(v) for v in q)
    if w < 0:
        w, x, y, z = -w, -x, -y, -z
    sine = math.sqrt(x * x + y * y + z * z)
    scale = 2.0 if sine < 1e-9 else 2 * math.atan2(sine, w) / sine
    return np.array([x * scale, y * scale, z * scale])


def compose(a: FloatArray, b: FloatArray) -> FloatArray:
    """The pose of `b`, given in the frame `a`, in the frame of `a` itself."""
    return np.concatenate([np.asarray(a[:3]) + rotate(a[3:], b[:3]), multiply(a[3:], b[3:])])


def invert(a: FloatArray) -> FloatArray:
    back = conjugate(a[3:])
    return np.concatenate([-rotate(back, a[:3]), back])


def yaw_pose(x_m: float, y_m: float, z_m: float, *, yaw_rad: float = 0.0) -> FloatArray:
    """A pose turned about z alone."""
    return np.array([x_m, y_m, z_m, math.cos(yaw_rad / 2), 0.0, 0.0, math.sin(yaw_rad / 2)])


def yaw_of(q: FloatArray) -> float:
    """The heading of the frame's x axis in the plane."""
    w, x, y, z = (float(v) for v in q)
    return math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def quaternion_from_matrix(m: FloatArray) -> FloatArray:
    """The wxyz quaternion, w >= 0, of a 3x3 rotation."""
    k = np.array(
        [
            [m[0, 0] - m[1, 1] - m[2, 2], 0, 0, 0],
            [m[0, 1] + m[1, 0], m[1, 1] - m[0, 0] - m[2, 2], 0, 0],
            [m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], m[2, 2] - m[0, 0] - m[1, 1], 0],
            [m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1], m[0, 0] + m[1, 1] + m[2, 2]],
        ]
    )
    vectors = np.linalg.eigh(k / 3, UPLO='L')[1]
    x, y, z, w = vectors[:, -1]
    q = np.array([w, x, y, z])
    return -q if w < 0 else q


def matrix_from_quaternion(q: FloatArray) -> FloatArray:
    w, x, y, z = (float(v) for v in q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
