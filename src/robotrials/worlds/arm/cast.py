"""What every body of a scene is to its task: robot, target, bystander or furniture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROBOT, GRIPPER, TARGET, BYSTANDER, FURNITURE, STRUCTURE = (
    'robot', 'gripper', 'target', 'bystander', 'furniture', 'structure',
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Cast:
    """Bodies grouped into things with one role each: an object or fixture is one thing, a robot's link another."""

    things: tuple[str, ...]
    thing_of_geom: NDArray[np.int64]  # (geoms,) index into things
    roles: Mapping[str, str]
    targets: tuple[str, ...]  # the movable objects that the goal is about
    destination: str  # what the first target goes to: an object, or a region of one; may be empty
    body_of: Mapping[str, int]  # movable object -> its root body
