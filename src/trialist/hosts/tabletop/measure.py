"""What a control step's worth of physics did: peaks over its substeps, so that nothing between two ticks is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trialist.hosts.tabletop.panda import N_JOINTS
from trialist.hosts.tabletop.scene import SUBSTEPS, Scene

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
FORCE_FLOOR_N = 1e-3  # lighter contacts are not kept

ROBOT_BODIES = frozenset({*(f'link{i}' for i in range(8)), 'hand', 'left_finger', 'right_finger'})


class Monitor:
    """Largest contact force a pair of bodies and largest torque a joint, over the substeps of one control step.

    Each substep is only copied; the arithmetic is done once a control step, on all of them together.
    """

    def __init__(self, scene: Scene, data: Any) -> None:
        model = scene.model
        self._data = data
        self._torque_view = data.qfrc_actuator[scene.joint_dof[0] : scene.joint_dof[-1] + 1]
        names = [(model.body(i).name or 'world').removesuffix('_half') for i in range(model.nbody)]
        self._bodies = tuple(dict.fromkeys(names))
        index = {name: i for i, name in enumerate(self._bodies)}
        self._group = np.array([index[n] for n in names])[model.geom_bodyid]
        self._torques = np.zeros((SUBSTEPS, N_JOINTS))
        self._first: list[IntArray] = []
        self._second: list[IntArray] = []
        self._rows: list[IntArray] = []
        self._forces: list[FloatArray] = []
        self._substep = 0
        self.torque_nm = np.zeros(N_JOINTS)

    def observe(self) -> None:
        """Take in one substep."""
        data = self._data
        self._torques[self._substep] = self._torque_view
        contact = data.contact
        self._first.append(contact.geom1.copy())
        self._second.append(contact.geom2.copy())
        self._rows.append(contact.efc_address.copy())
        self._forces.append(data.efc_force.copy())
        self._substep += 1

    def contacts(self) -> list[tuple[str, str, float]]:
        """Pairs in touch during the control step with the largest force between them, in newton; starts the next step.

        Contact forces are those of the solver, normal and tangential, summed over the contact points of a pair.
        """
        torques = self._torques[: self._substep]
        self.torque_nm = torques[np.abs(torques).argmax(axis=0), np.arange(N_JOINTS)]
        peaks = self._peaks()
        kept: dict[tuple[str, str], float] = {}
        for key in np.flatnonzero(peaks > FORCE_FLOOR_N).tolist():
            a, b = self._bodies[key // len(self._bodies)], self._bodies[key % len(self._bodies)]
            pair = (a, b) if a <= b else (b, a)
            kept[pair] = max(kept.get(pair, 0.0), float(peaks[key]))
        self._first, self._second, self._rows, self._forces, self._substep = [], [], [], [], 0
        return [(a, b, force) for (a, b), force in sorted(kept.items())]

    def _peaks(self) -> FloatArray:
        """The largest force of each ordered pair of bodies, (B * B,)."""
        from trialist.hosts.tabletop.kernel import pair_peaks

        peaks: FloatArray = pair_peaks(
            np.concatenate(self._rows),
            np.concatenate(self._first),
            np.concatenate(self._second),
            np.array([len(r) for r in self._rows]),
            np.concatenate(self._forces),
            np.array([len(f) for f in self._forces]),
            self._group,
            len(self._bodies),
        )
        return peaks


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
