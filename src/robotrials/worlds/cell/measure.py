"""What a control step's worth of physics did: peaks over its substeps, so that nothing between two ticks is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.record.trajectory import pair_points
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
        index = {name: i for i, name in enumerate(self._bodies)}
        self._group = np.array([index[n] for n in names])[model.geom_bodyid]
        self._peaks = np.zeros((len(self._bodies), len(self._bodies)))
        self._total = np.zeros_like(self._peaks)
        self._torques = np.zeros((SUBSTEPS, N_JOINTS))
        self._substep = 0
        self.torque_nm = np.zeros(N_JOINTS)

    def observe(self) -> None:
        """Take in one substep."""
        data = self._data
        self._torques[self._substep] = self._torque_view
        self._substep += 1
        contact = data.contact
        self._keep_peaks(self._peaks, self._total, contact.geom, contact.efc_address, data.efc_force, self._group)

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
        """Where the pairs touch (C, 3) as the last substep left them; NaN for a pair that had parted by then."""
        contact, n = self._data.contact, len(self._bodies)
        index = {name: i for i, name in enumerate(self._bodies)}
        wanted = [index[a] * n + index[b] for a, b, _ in contacts]
        if not len(contact.efc_address) or not wanted:
            return np.full((len(wanted), 3), np.nan)
        sides = self._group[contact.geom]
        pair = sides.min(axis=1) * n + sides.max(axis=1)
        rows = contact.efc_address
        forces = self._data.efc_force[
            np.minimum(np.maximum(rows, 0)[:, None] + np.arange(3), len(self._data.efc_force) - 1)
        ]
        magnitude = np.where(rows >= 0, np.linalg.norm(forces, axis=1), 0.0)
        points: FloatArray = pair_points(pair, magnitude, contact.pos, n_pairs=n * n)[wanted]
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
