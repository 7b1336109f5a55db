"""The numbers that say where the arm itself is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

PROPRIOCEPTION = (
    'eef_x_m', 'eef_y_m', 'eef_z_m', 'eef_rx_rad', 'eef_ry_rad', 'eef_rz_rad', 'finger_left_m', 'finger_right_m',
)  # fmt: skip


def axis_angle(quaternion_xyzw: FloatArray) -> FloatArray:
    """The rotation vector, as published LIBERO evaluations compute it."""
    w = min(max(float(quaternion_xyzw[3]), -1.0), 1.0)
    length = math.sqrt(1.0 - w * w)
    if math.isclose(length, 0.0):
        return np.zeros(3)
    turned: FloatArray = quaternion_xyzw[:3] * 2.0 * math.acos(w) / length
    return turned


def proprioception(observed: Any) -> FloatArray:
    """Eight numbers: hand position, hand rotation vector, finger joints."""
    return np.concatenate(
        [observed['robot0_eef_pos'], axis_angle(observed['robot0_eef_quat']), observed['robot0_gripper_qpos']]
    )
