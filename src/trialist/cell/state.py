"""The observation's state vector: proprioception, and behind it (for scripted policies) the truth about every item.

Both layouts are public and fixed. Poses are (x, y, z, qw, qx, qy, qz) in the world's frame.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trialist.cell import panda
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
    from trialist.cell.kernel import heading as compiled

    return float(compiled(*quaternion))


def proprioception(angles_rad: FloatArray, opening: float) -> FloatArray:
    state = np.empty(PROPRIOCEPTION_WIDTH)
    state[: panda.N_JOINTS] = angles_rad
    state[panda.N_JOINTS] = opening
    return state


def write_slot(
    row: FloatArray, status: float, item: ItemType, item_pose: FloatArray, *, goal: FloatArray | None, is_yaw_free: bool
) -> None:
    """One item as a policy sees it, into its slot; an item without a goal has its own pose there."""
    from trialist.cell.kernel import write_grasp, write_nearest_turn

    grasp_m, box_m = _measures(item)
    row[0], row[1], row[2] = status, item.grip_width_m, is_yaw_free
    row[3:10] = item_pose
    write_grasp(row[10:17], item_pose, grasp_m, box_m, item.turns, TIP_M)
    if goal is None:
        row[17:24] = item_pose
    else:
        write_nearest_turn(row[17:24], goal, item_pose, item.turns)


@functools.lru_cache(maxsize=64)
def _measures(item: ItemType) -> tuple[FloatArray, FloatArray]:
    return np.array(item.grasp_m, dtype=float), np.array(item.box_m, dtype=float)
