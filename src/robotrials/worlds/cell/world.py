"""The conditions that the cell brings about in its own world, and how."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.run.conditions import (
    NOMINAL,
    Background,
    CameraShift,
    Condition,
    Displacement,
    Distractor,
    Disturbance,
    Layout,
    Light,
    RobotState,
    Support,
    parts_of,
    read_condition,
)
from robotrials.run.seam import Setup
from robotrials.value import dataclass
from robotrials.worlds.cell import panda
from robotrials.worlds.cell.control import LIMITS, kinematics
from robotrials.worlds.cell.panda import matrix_from_quaternion
from robotrials.worlds.cell.scene import BELT_PITCH_M, TIMESTEP_S, Look, Scene, load_mujoco

FloatArray = NDArray[np.floating[Any]]
SEEN_ONLY = ('background', 'light', *CameraShift.KINDS)  # without cameras they would change nothing
STATED = ('displacement', 'support')  # by their numbers alone: no severity draws them, and chaos has none
KINDS = ('layout', 'distractor', 'robot_state', 'disturbance', *SEEN_ONLY)
LOWEST_START_M = 0.12
LEAST_UPRIGHT_COSINE = 0.7  # cosine of the angle between the hand and straight down, at the start


@dataclass(frozen=True, slots=True)
class World:
    """One condition of each kind, or None."""

    layout: Layout | None = None
    displacement: Displacement | None = None
    support: Support | None = None
    distractor: Distractor | None = None
    robot_state: RobotState | None = None
    disturbance: Disturbance | None = None
    background: Background | None = None
    light: Light | None = None
    camera: CameraShift | None = None

    @classmethod
    def of(cls, setup: Setup, kinds: tuple[str, ...]) -> World:
        """The world that a set-up asks for; what the cell does not declare is refused."""
        condition = _read(setup)
        parts: tuple[Condition, ...] = () if condition is None else parts_of(condition)
        for part in parts:
            if part.kind not in kinds:
                raise UnknownName('condition of the tabletop cell', part.kind, kinds)
        fields = {part.kind: 'camera' if isinstance(part, CameraShift) else part.kind for part in parts}
        if len(set(fields.values())) < len(fields):
            raise InputError('a camera is bumped or moved, not both in one episode; leave one of them out')
        known: dict[str, Any] = {fields[part.kind]: part for part in parts}
        return cls(**known)

    def look(self, *, has_shadows: bool) -> Look:
        return Look(self.light, self.background, self.camera, has_shadows)

    @property
    def friction_scale(self) -> float:
        return 1.0 if self.disturbance is None else self.disturbance.friction_scale

    def start_angles(self, home_rad: FloatArray) -> FloatArray:
        """Where the joints start: home, or near it, and safe."""
        if self.robot_state is None:
            return home_rad
        return self.robot_state.initial_joints(
            home_rad, lower_rad=panda.JOINT_LOW_RAD + 0.02, upper_rad=panda.JOINT_HIGH_RAD - 0.02, is_safe=is_safe_start
        )


def _read(setup: Setup) -> Condition | None:
    name, parameters = setup.condition, dict(setup.condition_parameters)
    if name == NOMINAL:
        return None
    if name == 'robot_state' and 'severity' not in parameters:
        return _stated_robot_state(parameters, seed=setup.seed)
    is_known = any(key.rsplit('.', 1)[-1] == 'severity' for key in parameters)
    if not is_known:
        if name in (*KINDS, *STATED):
            raise InputError(f'condition {name} of the tabletop cell wants its drawn numbers; see draw_condition')
        raise UnknownName('condition of the tabletop cell', name, (*KINDS, *STATED))
    return read_condition(name, parameters)


def _stated_robot_state(parameters: Mapping[str, Any], *, seed: int) -> RobotState:
    """`robot_state` with its spread alone, as a plan may state it; 0.1 rad unless given."""
    unknown = sorted(set(parameters) - {'sd_rad'})
    if unknown:
        raise UnknownName('parameter of robot_state', unknown[0], [f.name for f in dataclasses.fields(RobotState)])
    sd_rad = float(parameters.get('sd_rad', 0.1))
    return RobotState(severity=min(1.0, sd_rad / 0.25), seed=seed, sd_rad=sd_rad)


def is_safe_start(angles_rad: FloatArray) -> bool:
    """The tool inside the workspace, well above the table, and pointing more or less down."""
    tool = kinematics().tool(angles_rad)
    low, high = np.array(LIMITS.low_m), np.array(LIMITS.high_m)
    low[2] = LOWEST_START_M
    is_inside = bool((tool[:3] >= low).all() and (tool[:3] <= high).all())
    return is_inside and -float(matrix_from_quaternion(tool[3:])[2, 2]) > LEAST_UPRIGHT_COSINE


# A conveyor belt along the table: its surface moves, and carries what lies on it off the table's far end.


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


# What hangs on the arm and its controller does not know of: a drag against the tool's motion, and a pull.


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
