"""From an action to joint references: limits, inverse kinematics, and a smooth reference for the impedance loop.

An SE(3) action moves the commanded pose of the tool (a displacement, then a turn, both in the base's frame); a joint
action names where the joints should be. Either way a joint reference follows that obeys the velocity and acceleration
limits, and the impedance (stiffness, damping, torque limit) of `panda` pulls the joints after it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trialist.hosts.tabletop import panda, pose
from trialist.hosts.tabletop.scene import CONTROL_RATE_HZ, SUBSTEPS, load_mujoco

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
_FRACTION = (np.arange(SUBSTEPS) + 1) / SUBSTEPS


def _hermite() -> tuple[FloatArray, FloatArray]:
    """Weights of (start, end, start velocity, end velocity) for position and velocity at each substep."""
    s = _FRACTION
    position = np.stack([2 * s**3 - 3 * s**2 + 1, 3 * s**2 - 2 * s**3, s**3 - 2 * s**2 + s, s**3 - s**2], axis=1)
    rate = np.stack([6 * s**2 - 6 * s, 6 * s - 6 * s**2, 3 * s**2 - 4 * s + 1, 3 * s**2 - 2 * s], axis=1)
    position[:, 2:] *= STEP_S
    rate[:, :2] /= STEP_S
    return position, rate


_POSITION, _RATE = _hermite()
_FEEDFORWARD = panda.DAMPING_NM_S_RAD / panda.STIFFNESS_NM_RAD


class Kinematics:
    """Damped least-squares inverse kinematics on the arm alone."""

    def __init__(self) -> None:
        mujoco = load_mujoco()
        self._mujoco = mujoco
        self._model = mujoco.MjModel.from_xml_string(
            '<mujoco><compiler angle="radian"/><default><default class="arm"/><default class="finger"/>'
            f'<default class="pad"/></default><worldbody>{panda.arm_xml()}</worldbody></mujoco>'
        )
        self._data = mujoco.MjData(self._model)
        self._site = int(self._model.site('tool').id)
        self._jacobian = np.zeros((6, self._model.nv))

    def tool(self, angles_rad: FloatArray) -> FloatArray:
        """The tool's pose (7,) at these joint angles."""
        self._data.qpos[: panda.N_JOINTS] = angles_rad
        self._mujoco.mj_kinematics(self._model, self._data)
        matrix = self._data.site_xmat[self._site].reshape(3, 3)
        return np.concatenate([self._data.site_xpos[self._site], pose.quaternion_from_matrix(matrix)])

    def solve(self, target: FloatArray, start_rad: FloatArray, *, iterations: int = 3) -> FloatArray:
        """Joint angles whose tool is as near to `target` (7,) as a few steps from `start_rad` get."""
        mujoco, model, data, n = self._mujoco, self._model, self._data, panda.N_JOINTS
        angles = np.array(start_rad, dtype=float)
        home = np.array(panda.HOME_RAD)
        quaternion = np.empty(4)
        for _ in range(iterations):
            data.qpos[:n] = angles
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mju_mat2Quat(quaternion, data.site_xmat[self._site])
            error = np.concatenate(
                [
                    target[:3] - data.site_xpos[self._site],
                    pose.vector_from_quaternion(pose.multiply(target[3:], pose.conjugate(quaternion))),
                ]
            )
            mujoco.mj_jacSite(model, data, self._jacobian[:3], self._jacobian[3:], self._site)
            jacobian = self._jacobian[:, :n]
            gram = jacobian @ jacobian.T
            gram.flat[::7] += 1e-4
            ease = 0.05 * (home - angles)
            ease[-1] = 0.0  # the wrist's turn is the task's own
            step = jacobian.T @ np.linalg.solve(gram, error - jacobian @ ease) + ease
            angles = np.clip(
                angles + np.clip(step, -0.3, 0.3), panda.JOINT_LOW_RAD + 0.02, panda.JOINT_HIGH_RAD - 0.02
            )
        return angles


@functools.cache
def kinematics() -> Kinematics:
    """The one solver of this process; it keeps no state between calls."""
    return Kinematics()


class Controller:
    """The commanded state of one episode: tool pose, joint reference, gripper reference."""

    def __init__(self, angles_rad: FloatArray, *, width: float, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.angles_rad = np.array(angles_rad, dtype=float)
        self.velocity_rad_s = np.zeros(panda.N_JOINTS)
        self.tool = kinematics().tool(self.angles_rad)
        self.twist = np.zeros(6)  # the commanded velocity of the tool
        self.width = float(width)  # 0 closed .. 1 open, as commanded
        self.finger_m = float(width) * panda.FINGER_TRAVEL_M

    def move_tool(self, motion: FloatArray, measured_tool: FloatArray) -> FloatArray:
        """Take a displacement and a turn for this control step; returns what was kept of it, (6,)."""
        limit = self.limits
        twist = np.asarray(motion, dtype=float) / STEP_S
        parts = (
            (slice(0, 3), limit.speed_m_s, limit.acceleration_m_s2),
            (slice(3, 6), limit.turn_rad_s, limit.turn_acceleration_rad_s2),
        )
        kept = np.empty(6)
        for part, speed, acceleration in parts:
            change = _shorten(_shorten(twist[part], speed) - self.twist[part], acceleration * STEP_S)
            kept[part] = self.twist[part] + change
        place = np.clip(self.tool[:3] + kept[:3] * STEP_S, limit.low_m, limit.high_m)
        place = measured_tool[:3] + _shorten(place - measured_tool[:3], limit.lead_m)
        turn = pose.multiply(pose.quaternion_from_vector(kept[3:] * STEP_S), self.tool[3:])
        kept[:3] = (place - self.tool[:3]) / STEP_S
        self.twist = kept
        self.tool = np.concatenate([place, turn / np.linalg.norm(turn)])
        self._refer(kinematics().solve(self.tool, self.angles_rad))
        return kept * STEP_S

    def move_joints(self, goal_rad: FloatArray) -> FloatArray:
        """Take joint angles to be at by the end of this control step; returns those that the limits allow."""
        self._refer(np.asarray(goal_rad, dtype=float))
        self.tool = kinematics().tool(self._end_rad)
        return self._end_rad.copy()

    def move_gripper(self, width: float) -> float:
        """Take the wanted opening, 0 closed .. 1 open; returns it within those bounds."""
        self.width = min(max(float(width), 0.0), 1.0)
        return self.width

    def _refer(self, goal_rad: FloatArray) -> None:
        goal = np.clip(goal_rad, panda.JOINT_LOW_RAD, panda.JOINT_HIGH_RAD)
        velocity = np.clip(
            (goal - self.angles_rad) / STEP_S, -panda.JOINT_VELOCITY_RAD_S, panda.JOINT_VELOCITY_RAD_S
        )
        change = panda.JOINT_ACCELERATION_RAD_S2 * STEP_S
        velocity = np.clip(velocity, self.velocity_rad_s - change, self.velocity_rad_s + change)
        self._end_rad = self.angles_rad + velocity * STEP_S
        self._end_velocity = velocity

    def references(self) -> tuple[FloatArray, FloatArray]:
        """Advance by one control step: actuator inputs of the joints (SUBSTEPS, 7) and of a finger (SUBSTEPS,)."""
        knots = np.stack([self.angles_rad, self._end_rad, self.velocity_rad_s, self._end_velocity])
        joints = _POSITION @ knots + (_RATE @ knots) * _FEEDFORWARD
        self.angles_rad, self.velocity_rad_s = self._end_rad, self._end_velocity
        goal = self.width * panda.FINGER_TRAVEL_M
        reach = panda.FINGER_SPEED_M_S * STEP_S
        end = self.finger_m + min(max(goal - self.finger_m, -reach), reach)
        fingers = self.finger_m + (end - self.finger_m) * _FRACTION
        self.finger_m = end
        return joints, fingers


def _shorten(vector: FloatArray, longest: float) -> FloatArray:
    length = float(np.sqrt(vector @ vector))
    return vector if length <= longest else vector * (longest / length)
