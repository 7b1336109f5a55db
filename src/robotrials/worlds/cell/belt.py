"""A conveyor belt along the table: its surface moves, and carries what lies on it off the table's far end."""

from __future__ import annotations

from typing import Any

from robotrials.worlds.cell.scene import BELT_PITCH_M, TIMESTEP_S, Scene


class Belt:
    """Keeps the belt running: before every substep its surface has its speed, and its body its place."""

    def __init__(self, speed_m_s: float, scene: Scene, data: Any) -> None:
        joint = scene.model.joint('belt')
        self._place = data.qpos[int(joint.qposadr[0]) : int(joint.qposadr[0]) + 1]
        self._speed = data.qvel[int(joint.dofadr[0]) : int(joint.dofadr[0]) + 1]
        self._marks = data.mocap_pos[int(scene.model.body('belt_marks').mocapid[0])]
        self._speed_m_s = speed_m_s
        self._travel_m = 0.0

    def run(self) -> None:
        self._place[0], self._speed[0] = 0.0, -self._speed_m_s
        self._travel_m += self._speed_m_s * TIMESTEP_S
        self._marks[1] = -(self._travel_m % BELT_PITCH_M)
