"""Rotations between the formats that wires use; arrays of any leading shape."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError
from robotrials.run import Rotation

FloatArray = NDArray[np.float64]
TINY = 1e-12


def to_matrix(values: NDArray[Any], form: Rotation) -> FloatArray:
    """(..., 3, 3) matrices of rotations written as `form`; AnswerError where a rotation has no direction."""
    given = np.asarray(values, dtype=float)
    if form is Rotation.AXIS_ANGLE:
        return _from_vector(given)
    if form is Rotation.EULER_XYZ:
        return _about(given[..., 2], 2) @ _about(given[..., 1], 1) @ _about(given[..., 0], 0)
    if form is Rotation.QUATERNION_WXYZ:
        return _from_quaternion(given)
    if form is Rotation.QUATERNION_XYZW:
        return _from_quaternion(given[..., [3, 0, 1, 2]])
    if form is Rotation.MATRIX_6D:
        first = _unit(given[..., :3])
        second = given[..., 3:6] - first * np.sum(first * given[..., 3:6], axis=-1, keepdims=True)
        second = _unit(second)
        return np.stack([first, second, np.cross(first, second)], axis=-1)
    return np.broadcast_to(np.eye(3), (*given.shape[:-1], 3, 3)).copy()


def from_matrix(matrices: FloatArray, form: Rotation) -> FloatArray:
    """Matrices (..., 3, 3) written as `form`; quaternions have w >= 0."""
    if form is Rotation.AXIS_ANGLE:
        return _to_vector(matrices)
    if form is Rotation.EULER_XYZ:
        x = np.arctan2(matrices[..., 2, 1], matrices[..., 2, 2])
        y = np.arcsin(np.clip(-matrices[..., 2, 0], -1.0, 1.0))
        z = np.arctan2(matrices[..., 1, 0], matrices[..., 0, 0])
        return np.stack([x, y, z], axis=-1)
    if form is Rotation.QUATERNION_WXYZ:
        return _to_quaternion(matrices)
    if form is Rotation.QUATERNION_XYZW:
        return _to_quaternion(matrices)[..., [1, 2, 3, 0]]
    if form is Rotation.MATRIX_6D:
        return np.concatenate([matrices[..., :, 0], matrices[..., :, 1]], axis=-1)
    return np.empty((*matrices.shape[:-2], 0))


def convert_rotation(values: NDArray[Any], source: Rotation, target: Rotation) -> FloatArray:
    """Rotations written as `source`, written as `target`."""
    if source is target:
        return np.asarray(values, dtype=float)
    return from_matrix(to_matrix(values, source), target)


def _unit(vector: FloatArray) -> FloatArray:
    length = np.linalg.norm(vector, axis=-1, keepdims=True)
    if np.any(length < TINY):
        raise AnswerError('a rotation without a direction: its quaternion or axes are zero')
    return np.asarray(vector / length)


def _from_vector(vector: FloatArray) -> FloatArray:
    """Rodrigues' formula."""
    angle = np.linalg.norm(vector, axis=-1)
    safe = np.where(angle < TINY, 1.0, angle)
    a = np.where(angle < TINY, 1.0, np.sin(angle) / safe)[..., None, None]
    b = np.where(angle < TINY, 0.5, (1.0 - np.cos(angle)) / safe**2)[..., None, None]
    cross = np.zeros((*vector.shape[:-1], 3, 3))
    x, y, z = (vector[..., i] for i in range(3))
    cross[..., 0, 1], cross[..., 0, 2], cross[..., 1, 2] = -z, y, -x
    cross[..., 1, 0], cross[..., 2, 0], cross[..., 2, 1] = z, -y, x
    return np.asarray(np.eye(3) + a * cross + b * (cross @ cross))


def _to_vector(matrices: FloatArray) -> FloatArray:
    quaternion = _to_quaternion(matrices)
    w, axis = quaternion[..., :1], quaternion[..., 1:]
    length = np.linalg.norm(axis, axis=-1, keepdims=True)
    angle = 2.0 * np.arctan2(length, w)
    return np.asarray(axis * np.where(length < TINY, 2.0, angle / np.where(length < TINY, 1.0, length)))


def _from_quaternion(quaternion: FloatArray) -> FloatArray:
    w, x, y, z = (_unit(quaternion)[..., i] for i in range(4))
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def _to_quaternion(matrices: FloatArray) -> FloatArray:
    """By the largest of the four squares (Shepperd), so that no small number is divided by."""
    m = matrices
    xx, yy, zz = m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]
    sums = [m[..., i, j] + m[..., j, i] for i, j in ((1, 0), (0, 2), (2, 1))]  # xy, xz, yz
    gaps = [m[..., i, j] - m[..., j, i] for i, j in ((2, 1), (0, 2), (1, 0))]  # wx, wy, wz
    rows = [
        [1 + xx + yy + zz, gaps[0], gaps[1], gaps[2]],
        [gaps[0], 1 + xx - yy - zz, sums[0], sums[1]],
        [gaps[1], sums[0], 1 - xx + yy - zz, sums[2]],
        [gaps[2], sums[1], sums[2], 1 - xx - yy + zz],
    ]
    candidates = np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
    best = np.argmax(np.stack([1 + xx + yy + zz, 1 + xx - yy - zz, 1 - xx + yy - zz, 1 - xx - yy + zz], -1), axis=-1)
    chosen = np.take_along_axis(candidates, best[..., None, None], axis=-2)[..., 0, :]
    unit = chosen / np.linalg.norm(chosen, axis=-1, keepdims=True)
    return np.asarray(unit * np.where(unit[..., :1] < 0, -1.0, 1.0))


def _about(angle_rad: FloatArray, axis: int) -> FloatArray:
    vector = np.zeros((*np.shape(angle_rad), 3))
    vector[..., axis] = angle_rad
    return _from_vector(vector)
