"""Where the cameras really hang, and where they are reported to: the two differ once one was bumped."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.run.conditions import CameraShift
from robotrials.worlds.cell.pose import matrix_from_quaternion

FloatArray = NDArray[np.floating[Any]]
SHIFTED = ('wrist', 'front', 'side')
WRIST_SHARE = 0.25  # of the shift: its mount is as much smaller


def shift_cameras(model: Any, shift: CameraShift | None) -> None:
    """Turn and shift the cameras of a model that nobody uses yet."""
    if shift is None or shift.severity == 0:
        return
    import mujoco

    for name in SHIFTED:
        index = int(model.camera(name).id)
        rotation = matrix_from_quaternion(model.cam_quat[index])
        moved = displacement(shift, name)
        model.cam_pos[index] = model.cam_pos[index] + rotation @ moved[:3, 3]
        mujoco.mju_mat2Quat(model.cam_quat[index], np.ascontiguousarray(rotation @ moved[:3, :3]).ravel())


def reported_pose(name: str, world_from_camera: FloatArray, shift: CameraShift | None) -> FloatArray:
    """The pose that a host says a camera has, given the true one, both in MuJoCo's camera frame."""
    if shift is None or shift.severity == 0 or not shift.is_stale or name not in SHIFTED:
        return world_from_camera
    reported: FloatArray = world_from_camera @ np.linalg.inv(displacement(shift, name))
    return reported


def displacement(shift: CameraShift, name: str) -> FloatArray:
    """How one of the cell's cameras was moved in its own frame, (4, 4)."""
    moved = shift.displacement(name)
    if name == 'wrist':
        moved[:3, 3] *= WRIST_SHARE
    return moved
