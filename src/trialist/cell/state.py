"""The observation's state vector: proprioception, and behind it (for scripted policies) the truth about every item.

Both layouts are public and fixed. Poses are (x, y, z, qw, qx, qy, qz) in the world's frame.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trialist.cell import panda, pose
from trialist.cell.item import ItemType
from trialist.cell.task import MAX_ITEMS

FloatArray = NDArray[np.floating[Any]]

# Proprioception: 7 joint angles in rad, then the gripper's opening, 0 closed .. 1 open.
PROPRIOCEPTION_WIDTH = 8
# Privileged: that; 7 joint velocities; measured tool pose; commanded tool pose; commanded opening; gripper in contact;
# then MAX_ITEMS slots, in the order of the goals: status, grip width in m,
# is yaw free, item pose, grasp pose of the tool, goal pose of the item.
SLOT_WIDTH = 3 + 7 * 3
PRIVILEGED_WIDTH = PROPRIOCEPTION_WIDTH + 7 + 7 + 7 + 1 + 1 + MAX_ITEMS * SLOT_WIDTH

ABSENT, TO_MOVE, PLACED, BYSTANDER, LOST = 0.0, 1.0, 2.0, 3.0, 4.0
TIP_M = 0.012  # the tool's least height above what the item lies on: the fingertips reach 9 mm below the tool


def heading(quaternion: Sequence[float]) -> float:
    """The heading of an item's long axis in the plane, however it came to lie."""
    w, x, y, z = quaternion
    if abs(2 * (x * z - w * y)) < 0.7:
        return math.atan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z))
    return math.atan2(1 - 2 * (x * x + z * z), 2 * (x * y - w * z)) - math.pi / 2


def grasp_pose(item_pose: Sequence[float], item: ItemType) -> list[float]:
    """The tool's pose for a grasp from above: z down, the pads across the item's short side."""
    step = 2 * math.pi / item.turns
    yaw = heading(item_pose[3:])
    yaw -= step * round(yaw / step)
    w, x, y, z = item_pose[3:]
    gx, gy, gz = item.grasp_m
    tx, ty, tz = 2 * (y * gz - z * gy), 2 * (z * gx - x * gz), 2 * (x * gy - y * gx)
    up = 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)
    bottom = item_pose[2] - sum(abs(u) * edge for u, edge in zip(up, item.box_m, strict=True)) / 2
    return [
        item_pose[0] + gx + w * tx + y * tz - z * ty,
        item_pose[1] + gy + w * ty + z * tx - x * tz,
        max(item_pose[2] + gz + w * tz + x * ty - y * tx, bottom + TIP_M),
        *(0.0, math.cos(yaw / 2), math.sin(yaw / 2), 0.0),  # Rz(yaw) Rx(pi)
    ]


def nearest_turn(goal: list[float], item_pose: Sequence[float], turns: int) -> list[float]:
    """The goal, turned about its own z to the equal pose nearest to how the item is turned now."""
    step = 2 * math.pi / turns
    angle = step * round((heading(item_pose[3:]) - heading(goal[3:])) / step)
    return [*goal[:3], *pose.multiply(goal[3:], [math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)])]


def proprioception(angles_rad: FloatArray, opening: float) -> FloatArray:
    state = np.empty(PROPRIOCEPTION_WIDTH)
    state[: panda.N_JOINTS] = angles_rad
    state[panda.N_JOINTS] = opening
    return state


def slot(
    status: float, item: ItemType, item_pose: FloatArray, *, goal: FloatArray | None, is_yaw_free: bool
) -> list[float]:
    """One item as a policy sees it; an item without a goal has its own pose there."""
    own: list[float] = item_pose.tolist()
    end: list[float] = own if goal is None else nearest_turn(goal.tolist(), own, item.turns)
    return [status, item.grip_width_m, float(is_yaw_free), *own, *grasp_pose(own, item), *end]
