"""From an action to joint references: limits, inverse kinematics, and a smooth reference for the impedance loop.

An SE(3) action moves the commanded pose of the tool (a displacement, then a turn, both in the base's frame); a joint
action names where the joints should be. Either way a joint reference follows that obeys the velocity and acceleration
limits, and the impedance (stiffness, damping, torque limit) of `panda` pulls the joints after it.

The conditions that the cell brings about in its own world, and how.
"""

from __future__ import annotations

import dataclasses
import functools
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
from robotrials.worlds.cell import panda as pose
from robotrials.worlds.cell.panda import matrix_from_quaternion
from robotrials.worlds.cell.scene import (
    BELT_PITCH_M,
    CONTROL_RATE_HZ,
    SUBSTEPS,
    TIMESTEP_S,
    Appearance,
    CompiledCell,
    load_mujoco,
)

FloatArray = NDArray[np.floating[Any]]
STEP_S = 1.0 / CONTROL_RATE_HZ


@dataclass(frozen=True, slots=True)
class Limits:
    """What a command may ask for; the rest is clipped, and both are recorded."""

    speed_m_s: float = 1.0
    turn_rad_s: float = 2.5
    acceleration_m_s2: float = 6.0
    turn_acceleration_rad_s2: float = 20.0
    low_m: tuple[float, float, float] = (0.25, -0.40, 0.010)
    high_m: tuple[float, float, float] = (0.72, 0.40, 0.60)
    lead_m: float = 0.06  # how far the command may run ahead of the measured tool


LIMITS = Limits()


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """A number of substeps that one command lasts, at most a control step, and the weights of its reference.

    The weights (n, 4) are those of (start, end, start velocity, end velocity), for position and for velocity.
    """

    lasting_s: float
    share: float  # of a control step
    fraction: FloatArray
    position: FloatArray
    rate: FloatArray


@functools.cache
def stretch(substeps: int) -> Stretch:
    """The stretch of this many substeps."""
    share = substeps / SUBSTEPS
    lasting_s = STEP_S * share
    s = (np.arange(substeps) + 1) / substeps
    position = np.stack([2 * s**3 - 3 * s**2 + 1, 3 * s**2 - 2 * s**3, s**3 - 2 * s**2 + s, s**3 - s**2], axis=1)
    rate = np.stack([6 * s**2 - 6 * s, 6 * s - 6 * s**2, 3 * s**2 - 4 * s + 1, 3 * s**2 - 2 * s], axis=1)
    position[:, 2:] *= lasting_s
    rate[:, :2] /= lasting_s
    return Stretch(lasting_s, share, s, position, rate)


WHOLE = stretch(SUBSTEPS)
_TABLE = np.array([(k.a_m, k.d_m, math.sin(k.alpha_rad), math.cos(k.alpha_rad)) for k in panda.LINKS])
_HAND = np.array([panda.FLANGE_M + panda.TOOL_OFFSET_M, math.sin(panda.HAND_YAW_RAD), math.cos(panda.HAND_YAW_RAD)])
_HOME = np.array(panda.HOME_RAD)
_EASE = np.array([0.05] * 6 + [0.0])  # towards home where the task does not mind; the wrist's turn is the task's own
_BRAKE = 0.3 * panda.JOINT_ACCELERATION_RAD_S2
_FASTEST = 0.8 * panda.JOINT_VELOCITY_RAD_S  # the joints swing past their reference a little; they too keep the limit
_LOW, _HIGH = panda.JOINT_LOW_RAD + 0.02, panda.JOINT_HIGH_RAD - 0.02
_FEEDFORWARD = panda.DAMPING_NM_S_RAD / panda.STIFFNESS_NM_RAD


class Kinematics:
    """Damped least-squares inverse kinematics on the arm alone."""

    def __init__(self) -> None:
        mujoco = load_mujoco()
        self._mujoco = mujoco
        self._model = mujoco.MjModel.from_xml_string(
            '<mujoco><compiler angle="radian"/><option><flag contact="disable"/></option>'
            '<default><default class="arm"/><default class="finger"/>'
            f'<default class="pad"/></default><worldbody>{panda.arm_xml()}</worldbody></mujoco>'
        )
        self._data = mujoco.MjData(self._model)
        self._site = int(self._model.site('tool').id)

    def tool(self, angles_rad: FloatArray) -> FloatArray:
        """The tool's pose (7,) at these joint angles."""
        self._data.qpos[: panda.N_JOINTS] = angles_rad
        self._mujoco.mj_kinematics(self._model, self._data)
        tool = np.empty(7)
        tool[:3] = self._data.site_xpos[self._site]
        self._mujoco.mju_mat2Quat(tool[3:], self._data.site_xmat[self._site])
        return tool

    def solve(self, target: FloatArray, start_rad: FloatArray, *, iterations: int = 2) -> FloatArray:
        """Joint angles whose tool is as near to `target` (7,) as a few steps from `start_rad` get."""
        from robotrials.worlds.cell.kernel import inverse

        goal, start = np.asarray(target, dtype=np.float64), np.asarray(start_rad, dtype=np.float64)
        angles = np.empty(len(start))
        inverse(_TABLE, _HAND, goal, start, _HOME, _EASE, _LOW, _HIGH, iterations, angles)
        return angles

    def effort(self, angles_rad: FloatArray, acceleration_rad_s2: FloatArray) -> FloatArray:
        """The torques (7,) that accelerate the arm and its hand so, gravity and velocity terms left out."""
        n = panda.N_JOINTS
        self._data.qpos[:n] = angles_rad
        self._mujoco.mj_fwdPosition(self._model, self._data)
        wanted, torque = np.zeros(self._model.nv), np.empty(self._model.nv)
        wanted[:n] = acceleration_rad_s2
        self._mujoco.mj_mulM(self._model, self._data, torque, wanted)
        return torque[:n]


@functools.cache
def kinematics() -> Kinematics:
    """The one solver of this process; it keeps no state between calls."""
    return Kinematics()


class Controller:
    """The commanded state of one episode: tool pose, joint reference, gripper reference."""

    def __init__(self, angles_rad: FloatArray, *, width: float, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.angles_rad: FloatArray = np.array(angles_rad, dtype=float)
        self.velocity_rad_s: FloatArray = np.zeros(panda.N_JOINTS)
        self._goal_rad: FloatArray = self.angles_rad
        self._end_rad: FloatArray = self.angles_rad
        self._end_velocity: FloatArray = self.velocity_rad_s
        self.tool = kinematics().tool(self.angles_rad)
        self.twist = [0.0] * 6  # the commanded velocity of the tool
        self.width = float(width)  # 0 closed .. 1 open, as commanded
        self.finger_m = float(width) * panda.FINGER_TRAVEL_M

    def move_tool(self, motion: FloatArray, measured_tool: FloatArray, lasting: Stretch = WHOLE) -> FloatArray:
        """Take a displacement and a turn for a control step; returns what is kept of it in this stretch, (6,)."""
        limit, lasting_s = self.limits, lasting.lasting_s
        asked = [v / STEP_S for v in motion.tolist()]
        moving = _approach(self.twist[:3], asked[:3], limit.speed_m_s, limit.acceleration_m_s2 * lasting_s)
        turning = _approach(self.twist[3:], asked[3:], limit.turn_rad_s, limit.turn_acceleration_rad_s2 * lasting_s)
        measured = measured_tool[:3].tolist()
        before = self.tool[:3].tolist()
        lead = [
            min(max(place + v * lasting_s, low), high) - at
            for place, v, low, high, at in zip(before, moving, limit.low_m, limit.high_m, measured, strict=True)
        ]
        place = [at + v for at, v in zip(measured, _shorten(lead, limit.lead_m), strict=True)]
        kept = [after - start for after, start in zip(place, before, strict=True)]
        turn = pose.multiply(pose.quaternion_from_vector([v * lasting_s for v in turning]), self.tool[3:].tolist())
        self.twist = [v / lasting_s for v in kept] + turning
        self.tool = np.array([*place, *turn])
        self._refer(kinematics().solve(self.tool, self.angles_rad), lasting_s)
        return np.array(kept + [v * lasting_s for v in turning])

    def move_joints(self, goal_rad: FloatArray, lasting: Stretch = WHOLE, *, left: float = 1.0) -> FloatArray:
        """Take joint angles to be at when `left` of a control step is over; returns those of this stretch's end."""
        goal = np.asarray(goal_rad, dtype=float)
        if left > lasting.share:
            goal = self._goal_rad + (goal - self._goal_rad) * (lasting.share / left)
        self._refer(goal, lasting.lasting_s)
        self.tool = kinematics().tool(self._end_rad)
        return self._end_rad.copy()

    def move_gripper(self, width: float) -> float:
        """Take the wanted opening, 0 closed .. 1 open; returns it within those bounds."""
        self.width = min(max(float(width), 0.0), 1.0)
        return self.width

    def _refer(self, goal_rad: FloatArray, lasting_s: float) -> None:
        """Where the reference will be, and how fast, when this time is over."""
        from robotrials.worlds.cell.kernel import refer

        goal = np.minimum(np.maximum(goal_rad, panda.JOINT_LOW_RAD), panda.JOINT_HIGH_RAD)
        self._end_rad, self._end_velocity = np.empty(len(goal)), np.empty(len(goal))
        refer(
            goal, self._goal_rad, self.angles_rad, self.velocity_rad_s, _BRAKE, _FASTEST,
            panda.JOINT_ACCELERATION_RAD_S2, lasting_s, self._end_rad, self._end_velocity,
        )  # fmt: skip
        self._goal_rad = goal

    def references(self, measured_finger_m: float, lasting: Stretch = WHOLE) -> FloatArray:
        """Advance by one control step, or a stretch of it: inputs of the joints and both fingers, (substeps, 9).

        The fingers' reference runs ahead of the fingers by no more than full force needs, so that they open at once.
        """
        knots = np.array([self.angles_rad, self._end_rad, self.velocity_rad_s, self._end_velocity])
        inputs = np.empty((len(lasting.fraction), panda.N_JOINTS + 2))
        acceleration = (self._end_velocity - self.velocity_rad_s) / lasting.lasting_s
        ahead = kinematics().effort(self.angles_rad, acceleration) / panda.STIFFNESS_NM_RAD
        inputs[:, : panda.N_JOINTS] = lasting.position @ knots + (lasting.rate @ knots) * _FEEDFORWARD + ahead
        self.angles_rad, self.velocity_rad_s = self._end_rad, self._end_velocity
        goal = self.width * panda.FINGER_TRAVEL_M
        reach = panda.FINGER_SPEED_M_S * lasting.lasting_s
        self.finger_m = max(self.finger_m, measured_finger_m - panda.FINGER_LEAD_M)
        end = self.finger_m + min(max(goal - self.finger_m, -reach), reach)
        inputs[:, panda.N_JOINTS :] = (self.finger_m + (end - self.finger_m) * lasting.fraction)[:, None]
        self.finger_m = end
        return inputs


def _approach(now: list[float], wanted: list[float], fastest: float, change: float) -> list[float]:
    """The velocity after one step from `now` towards `wanted`, of bounded length and bounded change."""
    capped = _shorten(wanted, fastest)
    step = _shorten([w - v for w, v in zip(capped, now, strict=True)], change)
    return [v + s for v, s in zip(now, step, strict=True)]


def _shorten(vector: list[float], longest: float) -> list[float]:
    length = math.hypot(*vector)
    return vector if length <= longest else [v * (longest / length) for v in vector]


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

    def look(self, *, has_shadows: bool) -> Appearance:
        return Appearance(self.light, self.background, self.camera, has_shadows)

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

    def __init__(self, speed_m_s: float, scene: CompiledCell, data: Any) -> None:
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

    def __init__(self, disturbance: Disturbance, scene: CompiledCell, data: Any) -> None:
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
