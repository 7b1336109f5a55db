"""ROS messages as rosbridge writes them in JSON: read with every field checked, and written."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError
from robotrials.wire.vla_eval_array import decode_image

FloatArray = NDArray[np.float64]
LARGEST = 1e300  # a whole number can be too long for a float
FORMATS = {'jpeg': 'jpeg', 'jpg': 'jpeg', 'png': 'png'}


def stamp_s(message: Mapping[str, Any]) -> float | None:
    """The time in a message's header, of ROS 1 or 2; None where there is none or it is zero."""
    header = message.get('header')
    stamp = header.get('stamp') if isinstance(header, Mapping) else None
    if not isinstance(stamp, Mapping):
        return None
    seconds, rest = stamp.get('sec', stamp.get('secs')), stamp.get('nanosec', stamp.get('nsecs'))
    if not _is_number(seconds) or not _is_number(rest):
        raise AnswerError(f'a stamp of {dict(stamp)}, wanted sec and nanosec')
    return float(seconds) + 1e-9 * float(rest) or None


def joint_values(message: Mapping[str, Any], field: str, joints: Sequence[str]) -> FloatArray | None:
    """One field of a JointState in the order of `joints`; None where it is not given, as effort often is not."""
    names, values = message.get('name'), message.get(field)
    if not isinstance(names, list) or not isinstance(values, list):
        raise AnswerError(f'a joint state without lists of name and {field}')
    if not values:
        return None
    if len(values) != len(names):
        raise AnswerError(f'a joint state with {len(names)} names and {len(values)} numbers of {field}')
    known = dict(zip(map(str, names), values, strict=True))
    missing = [joint for joint in joints if joint not in known]
    if missing:
        raise AnswerError(f'a joint state without {", ".join(missing)}; it has {", ".join(known)}')
    chosen = [known[joint] for joint in joints]
    if not all(map(_is_number, chosen)):
        raise AnswerError(f'a joint state with {field} {chosen}, wanted finite numbers')
    return np.array(chosen, dtype=float)


def picture(message: Mapping[str, Any], *, height_px: int, width_px: int) -> NDArray[np.uint8]:
    """A CompressedImage as (H, W, 3) of uint8; its size is compared before it is decompressed."""
    told = str(message.get('format', '')).lower()
    form = next((form for name, form in FORMATS.items() if name in told), None)
    if form is None:
        raise AnswerError(f'an image of format {told[:60]!r}, wanted jpeg or png')
    data = message.get('data')
    if not isinstance(data, str):
        raise AnswerError(f'an image with data of type {type(data).__name__}, wanted base64')
    try:
        return np.array(decode_image(base64.b64decode(data, validate=True), form, shape=(height_px, width_px, 3)))
    except ValueError as error:
        raise AnswerError(f'an image that cannot be read: {error}') from error


def pose(message: Mapping[str, Any]) -> FloatArray:
    """A PoseStamped as (x, y, z, qw, qx, qy, qz)."""
    inner = message.get('pose')
    try:
        position, turn = inner['position'], inner['orientation']  # type: ignore[index]
        values = [position[k] for k in 'xyz'] + [turn[k] for k in 'wxyz']
    except (KeyError, TypeError) as error:
        raise AnswerError(f'a pose without {error}') from error
    if not all(map(_is_number, values)):
        raise AnswerError(f'a pose of {values}, wanted finite numbers')
    return np.array(values, dtype=float)


def float_array(values: Sequence[float]) -> dict[str, Any]:
    """A Float64MultiArray."""
    return {'layout': {'dim': [], 'data_offset': 0}, 'data': [float(v) for v in values]}


def trajectory(joints: Sequence[str], values: Sequence[float], *, within_s: float) -> dict[str, Any]:
    """A JointTrajectory of one point, to be reached within a control step."""
    seconds = math.floor(within_s)
    reach = {'sec': seconds, 'nanosec': round((within_s - seconds) * 1e9)}
    return {
        'joint_names': list(joints),
        'points': [{'positions': [float(v) for v in values], 'time_from_start': reach}],
    }


def twist(values: Sequence[float], *, frame: str) -> dict[str, Any]:
    """A TwistStamped: metres and radians a second."""
    linear, angular = (dict(zip('xyz', map(float, part), strict=True)) for part in (values[:3], values[3:6]))
    return {'header': {'frame_id': frame}, 'twist': {'linear': linear, 'angular': angular}}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
