"""What hangs on the arm and its controller does not know of: a drag against the tool's motion, and a pull."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from robotrials.run.conditions import Disturbance
from robotrials.worlds.cell.scene import Scene, load_mujoco


class Load:
    """The force of a disturbance on the hand, renewed before every substep."""

    def __init__(self, disturbance: Disturbance, scene: Scene, data: Any) -> None:
        self._mujoco = load_mujoco()
        self._model, self._data, self._body = scene.model, data, scene.hand_body
        self._drag = disturbance.drag_n_s_m
        azimuth = disturbance.pull_azimuth_rad
        self._pull = disturbance.pull_n * np.array([math.cos(azimuth), math.sin(azimuth), 0.0])
        self._twist = np.zeros(6)
        self._force = data.xfrc_applied[self._body]

    def push(self) -> None:
        kind = self._mujoco.mjtObj.mjOBJ_XBODY.value
        self._mujoco.mj_objectVelocity(self._model, self._data, kind, self._body, self._twist, 0)
        self._force[:3] = self._pull - self._drag * self._twist[3:]
