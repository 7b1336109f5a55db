"""The observation's state vector: proprioception, and behind it (for scripted policies) the truth about every item.

Both layouts are public and fixed. Poses are (x, y, z, qw, qx, qy, qz) in the world's frame.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trialist.hosts.tabletop import panda, pose
from trialist.hosts.tabletop.item import ItemType
from trialist.hosts.tabletop.task import MAX_ITEMS

FloatArray = NDArray[np.floating[Any]]

# Proprioception: 7 joint angles in rad, then the gripper's opening, 0 closed .. 1 open.
PROPRIOCEPTION_WIDTH = 8
# Privileged: that; 7 joint velocities; measured tool pose; commanded tool pose; commanded opening; gripper in contact;
# then MAX_ITEMS slots of status, grip width in m, is yaw free, item pose, grasp pose of the tool, goal pose of the item.
SLOT_WIDTH = 3 + 7 * 3
PRIVILEGED_WIDTH = PROPRIOCEPTION_WIDTH + 7 + 7 + 7 + 1 + 1 + MAX_ITEMS * SLOT_WIDTH

ABSENT, TO_MOVE, PLACED, BYSTANDER, LOST = 0.0, 1.0, 2.0, 3.0, 4.0
TIP_M = 0.0105  # the tool's least height above what the item lies on: the fingertips reach 9 mm below the tool


def heading(quaternion: FloatArray) -> float:
    """The heading of an item's long axis in the plane, however it came to lie."""
    matrix = pose.matrix_from_quaternion(quaternion)
    if abs(matrix[2, 0]) < 0.7:
        return math.atan2(matrix[1, 0], matrix[0, 0])
    return math.atan2(matrix[1, 1], matrix[0, 1]) - math.pi / 2


def grasp_pose(item_pose: FloatArray, item: ItemType) -> FloatArray:
    """The tool's pose for a grasp from above: z down, the pads across the item's short side."""
    step = 2 * math.pi / item.turns
    yaw = heading(item_pose[3:])
    yaw -= step * round(yaw / step)
    at = np.asarray(item_pose[:3]) + pose.rotate(item_pose[3:], np.array(item.grasp_m))
    lowest = _bottom_m(item_pose, item) + TIP_M
    turn = np.array([0.0, math.cos(yaw / 2), math.sin(yaw / 2), 0.0])  # Rz(yaw) Rx(pi)
    return np.concatenate([at[:2], [max(float(at[2]), lowest)], turn])


def _bottom_m(item_pose: FloatArray, item: ItemType) -> float:
    row = np.abs(pose.matrix_from_quaternion(item_pose[3:])[2])
    return float(item_pose[2]) - float(row @ np.array(item.box_m)) / 2


def proprioception(angles_rad: FloatArray, opening: float) -> FloatArray:
    state = np.empty(PROPRIOCEPTION_WIDTH)
    state[: panda.N_JOINTS] = angles_rad
    state[panda.N_JOINTS] = opening
    return state


def slot(status: float, item: ItemType, item_pose: FloatArray, goal: FloatArray | None, is_yaw_free: bool) -> FloatArray:
    """One item as a policy sees it; an item without a goal has its own pose there."""
    grasp = grasp_pose(item_pose, item)
    end = item_pose if goal is None else goal
    return np.concatenate([[status, item.grip_width_m, float(is_yaw_free)], item_pose, grasp, end])
