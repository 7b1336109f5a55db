"""What is recorded of the arm after every control step, and how its actions read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.record import Camera, Scene
from robotrials.run.convention import ActionConvention, ControlMode, Frame, Gripper, Rotation, Target
from robotrials.worlds.arm.cast import Cast
from robotrials.worlds.arm.monitor import Monitor, held_things

FloatArray = NDArray[np.float64]

CONVENTION = ActionConvention(
    control_mode=ControlMode.SE3, target=Target.DELTA, frame=Frame.BASE, rotation=Rotation.AXIS_ANGLE,
    gripper=Gripper.CLOSED_IS_PLUS_ONE,
)  # fmt: skip
REST = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0])


def checked_action(action: object) -> FloatArray:
    """Six numbers for OSC_POSE and the gripper, or an InputError."""
    sent = np.asarray(action, dtype=float)
    if sent.shape != (CONVENTION.width,) or not np.isfinite(sent).all():
        raise InputError(f'an action is {sent}, wanted {CONVENTION.width} finite numbers')
    return sent


def hand_pose(data: Any, site: int) -> FloatArray:
    """Position and quaternion (w x y z) of the hand's site."""
    import mujoco

    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, data.site_xmat[site])
    return np.concatenate([data.site_xpos[site], quaternion])


def body_pose(data: Any, body: int) -> FloatArray:
    return np.concatenate([data.xpos[body], data.xquat[body]])


def arm_signals(env: Any, cast: Cast, monitor: Monitor | None, *, site: int, fingers: Any) -> dict[str, Any]:
    """The last control step: peaks of torque and contact force over its substeps, poses at its end.

    site: of the hand. fingers: where the gripper's joints lie in qpos.
    """
    data, robot = env.sim.data._data, env.robots[0]
    known: dict[str, Any] = {
        'ee_pose': hand_pose(data, site),
        'joint_position_rad': data.qpos[robot._ref_joint_pos_indexes],
        'gripper_position': float(np.abs(data.qpos[fingers]).sum()),
        'joint_velocity_rad_s': data.qvel[robot._ref_joint_vel_indexes],
        'body_pose': {name: body_pose(data, body) for name, body in cast.body_of.items()},
    }
    if monitor is not None:
        known |= {
            'joint_torque_nm': monitor.torque_nm,
            'joint_torque_limit_nm': monitor.torque_limit_nm,
            'contacts': monitor.contacts,
            'contact_point_m': monitor.points_m,
            'gripper_contact': bool(held_things(monitor.contacts, cast)),
        }
    return known


def arm_scene(cast: Cast, cameras: Iterable[str], *, height_px: int, width_px: int) -> Scene:
    """What holds for the whole episode."""
    return Scene(
        body_roles=dict(cast.roles),
        target_object=cast.targets[0] if cast.targets else '',
        cameras=tuple(Camera(name, None, None, width_px, height_px) for name in cameras),
    )
