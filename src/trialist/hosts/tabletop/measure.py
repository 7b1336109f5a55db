"""What a control step's worth of physics did: peaks over its substeps, so that nothing between two ticks is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trialist.hosts.tabletop.panda import N_JOINTS
from trialist.hosts.tabletop.scene import Scene

FloatArray = NDArray[np.floating[Any]]
FORCE_FLOOR_N = 1e-3  # lighter contacts are not kept
_AXES = np.arange(3)

ROBOT_BODIES = frozenset({*(f'link{i}' for i in range(8)), 'hand', 'left_finger', 'right_finger'})


class Monitor:
    """Largest contact force a pair of bodies and largest torque a joint, over the substeps of one control step."""

    def __init__(self, scene: Scene, data: Any) -> None:
        model = scene.model
        self._data = data
        self._dof = scene.joint_dof
        names = [model.body(i).name or 'world' for i in range(model.nbody)]
        self._bodies = tuple(dict.fromkeys(n.removesuffix('_half') for n in names))
        index = {name: i for i, name in enumerate(self._bodies)}
        self._group = np.array([index[n.removesuffix('_half')] for n in names])[model.geom_bodyid]
        self._count = len(self._bodies)
        self._peak = np.zeros(self._count**2)
        self.torque_nm = np.zeros(N_JOINTS)
        self._touched = False

    def begin(self) -> None:
        """Forget the last control step."""
        if self._touched:
            self._peak[:] = 0.0
            self._touched = False
        self.torque_nm = np.zeros(N_JOINTS)

    def observe(self) -> None:
        """Take in one substep. Contact forces are those of the solver: normal and tangential, in the contact's frame."""
        data = self._data
        torque = data.qfrc_actuator[self._dof]
        self.torque_nm = np.where(np.abs(torque) > np.abs(self.torque_nm), torque, self.torque_nm)
        if not data.ncon:
            return
        contact = data.contact
        rows = contact.efc_address
        groups = self._group[contact.geom]
        if rows.min() < 0:
            groups, rows = groups[rows >= 0], rows[rows >= 0]
            if not len(rows):
                return
        force = data.efc_force[rows[:, None] + _AXES]
        strength = np.sqrt(np.einsum('ij,ij->i', force, force))
        key = groups[:, 0] * self._count + groups[:, 1]
        np.maximum(self._peak, np.bincount(key, weights=strength, minlength=self._peak.size), out=self._peak)
        self._touched = True

    def contacts(self) -> list[tuple[str, str, float]]:
        """Pairs in touch during the control step with the largest force between them, in newton."""
        kept: dict[tuple[str, str], float] = {}
        for key in np.flatnonzero(self._peak > FORCE_FLOOR_N):
            a, b = self._bodies[key // self._count], self._bodies[key % self._count]
            pair = (a, b) if a <= b else (b, a)
            kept[pair] = max(kept.get(pair, 0.0), float(self._peak[key]))
        return [(a, b, force) for (a, b), force in sorted(kept.items())]


def held_items(contacts: list[tuple[str, str, float]], items: Mapping[str, int]) -> set[str]:
    """The items that both fingers touch."""
    touched: dict[str, set[str]] = {}
    for a, b, _ in contacts:
        for finger, item in ((a, b), (b, a)):
            if finger in ('left_finger', 'right_finger') and item in items:
                touched.setdefault(item, set()).add(finger)
    return {item for item, fingers in touched.items() if len(fingers) == 2}


def hardest_robot_contact_n(contacts: list[tuple[str, str, float]]) -> float:
    """The largest force on any part of the robot, its own parts and what it holds included; 0 N if it touches nothing."""
    return max((force for a, b, force in contacts if a in ROBOT_BODIES or b in ROBOT_BODIES), default=0.0)
