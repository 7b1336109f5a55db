"""The observation's state vector: proprioception, and behind it (for scripted policies) the truth about every item.

Both layouts are public and fixed. Poses are (x, y, z, qw, qx, qy, qz) in the world's frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.value import dataclass
from robotrials.worlds.cell.item import ItemType
from robotrials.worlds.cell.task import MAX_ITEMS, Goal

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
    from robotrials.worlds.cell.kernel import heading as of_four

    return of_four(*quaternion)


class Slots:
    """The items' part of the privileged state, for one episode; items in the order of their slots."""

    def __init__(self, items: Sequence[ItemType], goals: Sequence[Goal | None]) -> None:
        from robotrials.worlds.cell.kernel import write_slots

        self._write = write_slots
        taken = list(zip(items, goals, strict=True))[:MAX_ITEMS]
        self._measures = np.array(
            [(i.grip_width_m, g is not None and g.is_yaw_free, *i.grasp_m, *i.box_m) for i, g in taken], dtype=float
        ).reshape(-1, 8)
        self._turns = np.array([item.turns for item, _ in taken], dtype=np.int64)
        self._goals = np.array([[np.nan] * 7 if g is None else g.pose for _, g in taken], dtype=float).reshape(-1, 7)

    def write(self, out: FloatArray, poses: FloatArray, status: FloatArray) -> None:
        """Into `out` (MAX_ITEMS, SLOT_WIDTH): the poses (n, 7) and what became of the items (n,)."""
        n = len(self._turns)
        out[n:] = ABSENT
        self._write(out, poses[:n], self._measures, self._turns, self._goals, status[:n], TIP_M)


# Reading the tabletop cell's privileged state: the arm's own account, then one slot for every item.
# Poses are (x, y, z, qw, qx, qy, qz) in the world's frame. The writer is `robotrials.worlds.cell.state`; a test keeps
# the two sides equal.

SLOTS = 6
PRIVILEGED_SLOT_WIDTH = 24
STATE_WIDTH = 31 + SLOTS * PRIVILEGED_SLOT_WIDTH
PRIVILEGED_TO_MOVE = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class ItemView:
    """An item that is still to be moved: where it is, how to grasp it from above, where it should go."""

    slot: int
    width_m: float
    is_yaw_free: bool
    pose: FloatArray
    grasp: FloatArray
    goal: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class CellView:
    """The part of an observation's state that scripted policies use."""

    opening: float  # 0 closed .. 1 open
    tool: FloatArray
    command: FloatArray
    has_contact: bool
    items: tuple[ItemView, ...]


def read_state(state: FloatArray) -> CellView:
    """The privileged state vector, by name."""
    slots = state[31:].reshape(SLOTS, PRIVILEGED_SLOT_WIDTH)
    items = tuple(
        ItemView(
            slot=row,
            width_m=float(values[1]),
            is_yaw_free=bool(values[2]),
            pose=values[3:10],
            grasp=values[10:17],
            goal=values[17:24],
        )
        for row, values in enumerate(slots)
        if values[0] == PRIVILEGED_TO_MOVE
    )
    return CellView(float(state[7]), state[15:22], state[22:29], bool(state[30]), items)
