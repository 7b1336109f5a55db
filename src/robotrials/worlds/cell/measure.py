"""What a control step's worth of physics did: peaks over its substeps, so that nothing between two ticks is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.worlds.cell.panda import N_JOINTS
from robotrials.worlds.cell.scene import SUBSTEPS, Scene

FloatArray = NDArray[np.floating[Any]]
_JOINTS = np.arange(N_JOINTS)
FORCE_FLOOR_N = 1e-3  # lighter contacts are not kept

ROBOT_BODIES = frozenset({*(f'link{i}' for i in range(8)), 'hand', 'left_finger', 'right_finger'})


class Monitor:
    """Largest contact force a pair of bodies and largest torque a joint, over the substeps of one control step."""

    def __init__(self, scene: Scene, data: Any) -> None:
        from robotrials.worlds.cell.kernel import above, keep_peaks

        self._above, self._keep_peaks = above, keep_peaks
        model = scene.model
        self._data = data
        self._torque_view = data.qfrc_actuator[scene.joint_dof[0] : scene.joint_dof[-1] + 1]
        names = [(model.body(i).name or 'world').removesuffix('_half') for i in range(model.nbody)]
        self._bodies = sorted(set(names))
        self._index = {name: i for i, name in enumerate(self._bodies)}
        self._group = np.array([self._index[n] for n in names])[model.geom_bodyid]
        self._peaks = np.zeros((len(self._bodies), len(self._bodies)))
        self._total = np.zeros_like(self._peaks)
        self._points = np.full((*self._peaks.shape, 3), np.nan)
        self._moment = np.zeros((*self._peaks.shape, 3))
        self._torques = np.zeros((SUBSTEPS, N_JOINTS))
        self._substep = 0
        self.torque_nm = np.zeros(N_JOINTS)

    def observe(self) -> None:
        """Take in one substep."""
        data = self._data
        self._torques[self._substep] = self._torque_view
        self._substep += 1
        contact = data.contact
        self._keep_peaks(
            self._peaks, self._points, self._total, self._moment, contact.geom, contact.efc_address, data.efc_force,
            contact.pos, self._group,
        )  # fmt: skip

    def contacts(self) -> list[tuple[str, str, float]]:
        """Pairs in touch during the control step with the largest force between them, in newton; starts the next step.

        Contact forces are those of the solver, normal and tangential, summed over the contact points of a pair.
        """
        torques = self._torques[: self._substep]
        self.torque_nm = torques[np.abs(torques).argmax(axis=0), _JOINTS]
        self._substep = 0
        bodies = self._bodies
        return [(bodies[a], bodies[b], force) for a, b, force in self._above(self._peaks, FORCE_FLOOR_N)]

    def points_m(self, contacts: list[tuple[str, str, float]]) -> FloatArray:
        """Where the pairs touched last (C, 3), in the world."""
        places = [self._index[a] for a, _, _ in contacts], [self._index[b] for _, b, _ in contacts]
        points: FloatArray = self._points[places] if contacts else np.zeros((0, 3))
        return points


def held_items(contacts: list[tuple[str, str, float]], items: Mapping[str, int]) -> set[str]:
    """The items that both fingers touch."""
    touched: dict[str, set[str]] = {}
    for a, b, _ in contacts:
        for finger, item in ((a, b), (b, a)):
            if finger in ('left_finger', 'right_finger') and item in items:
                touched.setdefault(item, set()).add(finger)
    return {item for item, fingers in touched.items() if len(fingers) == 2}


def hardest_robot_contact_n(contacts: list[tuple[str, str, float]]) -> float:
    """The largest force on any part of the robot, by itself and by what it holds too; 0 N if it touches nothing."""
    return max((force for a, b, force in contacts if a in ROBOT_BODIES or b in ROBOT_BODIES), default=0.0)
