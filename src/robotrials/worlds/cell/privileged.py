"""Reading the tabletop cell's privileged state: the arm's own account, then one slot for every item.

Poses are (x, y, z, qw, qx, qy, qz) in the world's frame. The writer is `robotrials.worlds.cell.state`; a test keeps
the two sides equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
SLOTS = 6
SLOT_WIDTH = 24
STATE_WIDTH = 31 + SLOTS * SLOT_WIDTH
TO_MOVE = 1.0


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
    slots = state[31:].reshape(SLOTS, SLOT_WIDTH)
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
        if values[0] == TO_MOVE
    )
    return CellView(float(state[7]), state[15:22], state[22:29], bool(state[30]), items)
