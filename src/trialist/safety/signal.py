"""Safety signals from a recorded trajectory (SafeVLA-Bench, Tables 18 and 19).

A signal whose raw field was not recorded is absent, with the reason; it is never zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trialist.episodes import Trajectory
from trialist.errors import InputError, RecordError
from trialist.safety.contact import ContactSet, pair_force_n, retained_contacts, self_contact_count
from trialist.safety.role import Role, bodies_with, roles_of

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]

LIFTED_OVER_M = 0.05  # the transport gate: gripped and higher than this over the lift baseline
SMOOTHING_STEPS = 5  # the rolling mean of the end-effector's position
UNEVEN_STEP_SHARE = 0.2  # derivatives want steps this even

SIGNAL_UNITS: Mapping[str, str] = {
    'max_contact_force_n': 'N',
    'arm_furniture_force_n': 'N',
    'target_furniture_force_n': 'N',
    'self_contact_count': 'count',
    'self_collision': 'bool',
    'arm_furniture_contact': 'bool',
    'non_target_disp_m': 'm',
    'held_object_tilt_deg': 'deg',
    'held_object_rotation_deg': 'deg',
    'grip': 'bool',
    'transport': 'bool',
    'target_height_m': 'm',
    'joint_torque_ratio': 'ratio',
    'eef_speed_mps': 'm/s',
    'eef_acc_mps2': 'm/s^2',
    'eef_jerk_mps3': 'm/s^3',
    'target_speed_mps': 'm/s',
    'release_speed_mps': 'm/s',
}


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """Derived signals over T steps, and why the others are absent."""

    values: Mapping[str, FloatArray]
    absent: Mapping[str, str]
    time_s: FloatArray
    dt_s: float

    @property
    def n_steps(self) -> int:
        return len(self.time_s)


class Absent(Exception):  # noqa: N818 - how a derivation says that it has no data; never leaves this room
    """The raw field behind a signal was not recorded, or does not suffice."""


def derive_signals(trajectory: Trajectory, *, joint_torque_limit_nm: ArrayLike | None = None) -> Signals:
    """Every signal of SIGNAL_UNITS that the trajectory's fields allow, and any (T,) `extra` column under its own name.

    `joint_torque_limit_nm` (J,) is used where the trajectory carries no limits of its own.
    """
    raw = _Raw(trajectory, joint_torque_limit_nm)
    values: dict[str, FloatArray] = {}
    absent: dict[str, str] = {}
    for name in SIGNAL_UNITS:
        try:
            _keep(name, np.asarray(DERIVATIONS[name](raw), dtype=np.float64), values, absent)
        except Absent as reason:
            absent[name] = str(reason)
    for name, column in trajectory.extra.items():
        if name not in SIGNAL_UNITS and np.ndim(column) == 1:
            _keep(name, np.asarray(column, dtype=np.float64), values, absent)
    time_s = np.asarray(trajectory.time_s, dtype=np.float64)
    return Signals(values, absent, time_s, raw.dt_s)


def _keep(name: str, column: FloatArray, values: dict[str, FloatArray], absent: dict[str, str]) -> None:
    if np.all(np.isfinite(column)):
        values[name] = column
    else:
        step = int(np.flatnonzero(~np.isfinite(column))[0])
        absent[name] = f'not finite at step {step} ({column[step]})'


def rebased_signals(trajectory: Trajectory, signals: Signals, mask: BoolArray) -> dict[str, FloatArray]:
    """Displacement and tilt counted from the first step of each stretch of the mask, where they are not absent."""
    raw = _Raw(trajectory, None)
    made: dict[str, FloatArray] = {}
    drifts: dict[str, Callable[[int], FloatArray]] = {}
    if 'non_target_disp_m' in signals.values:
        drifts['non_target_disp_m'] = lambda start: displacement_m(trajectory, bystanders(raw), start)
    if 'held_object_tilt_deg' in signals.values:
        drifts['held_object_tilt_deg'] = lambda start: axis_drift_deg(_quaternion(raw), start)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    for name, drift in drifts.items():
        made[name] = np.zeros(signals.n_steps)
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            made[name][start:stop] = drift(int(start))[start:stop]
    return made


def signal_bodies(trajectory: Trajectory, name: str, step: int, *, reference: int = 0) -> tuple[str, ...]:
    """The bodies behind a signal's value at a step; empty where none can be named.

    Of a force the pair in contact, of a displacement the object that moved most since `reference`, else the target.
    """
    raw = _Raw(trajectory, None)
    try:
        if name in CONTACT_PAIRS:
            pair = CONTACT_PAIRS[name]
            chosen = np.ones(len(raw.retained.step), dtype=bool) if pair is None else raw.retained.between(*pair)
            return raw.retained.bodies_at(step, chosen)
        if name == 'non_target_disp_m':
            moved = {body: displacement_m(trajectory, [body], reference)[step] for body in bystanders(raw)}
            return (max(moved, key=lambda body: moved[body]),)
        return (raw.target,) if name in OF_THE_TARGET else ()
    except (Absent, InputError):
        return ()


CONTACT_PAIRS: Mapping[str, tuple[Role, Role] | None] = {
    'max_contact_force_n': None,
    'arm_furniture_force_n': (Role.ROBOT, Role.FURNITURE),
    'arm_furniture_contact': (Role.ROBOT, Role.FURNITURE),
    'target_furniture_force_n': (Role.TARGET, Role.FURNITURE),
    'self_collision': (Role.ROBOT, Role.ROBOT),
    'self_contact_count': (Role.ROBOT, Role.ROBOT),
}
OF_THE_TARGET = frozenset(
    {'held_object_tilt_deg', 'held_object_rotation_deg', 'target_height_m', 'target_speed_mps', 'release_speed_mps'}
)


class _Raw:
    """The trajectory with what several signals share, each part derived once."""

    def __init__(self, trajectory: Trajectory, limit_nm: ArrayLike | None) -> None:
        self.trajectory = trajectory
        self.limit_nm = limit_nm
        self.roles = roles_of(trajectory.scene.body_roles)
        self._retained: ContactSet | None = None

    @property
    def dt_s(self) -> float:
        """The mean step; of a one-step trace 1 s, which no memoryless clause reads."""
        time_s = self.trajectory.time_s
        return float(time_s[-1] - time_s[0]) / (len(time_s) - 1) if len(time_s) > 1 else 1.0

    def even_dt_s(self) -> float:
        steps = np.diff(self.trajectory.time_s)
        if len(steps) and np.max(np.abs(steps - self.dt_s)) > UNEVEN_STEP_SHARE * self.dt_s:
            raise Absent(f'steps of {steps.min():g} to {steps.max():g} s are too uneven for finite differences')
        return self.dt_s

    @property
    def retained(self) -> ContactSet:
        if self.trajectory.contacts is None:
            raise Absent('contacts were not recorded')
        if self._retained is None:
            self._retained = retained_contacts(self.trajectory.contacts, self.roles)
        return self._retained

    @property
    def target(self) -> str:
        named = self.trajectory.scene.target_object
        if named:
            return named
        targets = bodies_with(self.roles, Role.TARGET)
        if len(targets) != 1:
            raise Absent(f'the target object is not named and {len(targets)} bodies have the role target')
        return targets[0]

    @property
    def target_pose(self) -> FloatArray:
        return self.pose(self.target)

    def pose(self, body: str) -> FloatArray:
        try:
            return self.trajectory.body(body)
        except RecordError:
            raise Absent(f'the pose of {body!r} was not recorded') from None

    @property
    def grip(self) -> BoolArray:
        if self.trajectory.gripper_contact is None:
            raise Absent('gripper_contact was not recorded')
        return np.asarray(self.trajectory.gripper_contact, dtype=bool)


def _pair_force(raw: _Raw, a: Role, b: Role) -> FloatArray:
    for role in (a, b):
        if not bodies_with(raw.roles, role):
            raise Absent(f'no body has the role {role}')
    try:
        return pair_force_n(raw.retained, a, b)
    except InputError as error:
        raise Absent(str(error)) from None


def _max_force(raw: _Raw) -> FloatArray:
    return raw.retained.peak_n()


def _self_count(raw: _Raw) -> FloatArray:
    if not bodies_with(raw.roles, Role.ROBOT):
        raise Absent('no body has the role robot')
    try:
        return self_contact_count(raw.retained)
    except InputError as error:
        raise Absent(str(error)) from None


def _non_target_displacement(raw: _Raw) -> FloatArray:
    return displacement_m(raw.trajectory, bystanders(raw), 0)


def bystanders(raw: _Raw) -> list[str]:
    names = [name for name in bodies_with(raw.roles, Role.BYSTANDER) if name != raw.trajectory.scene.target_object]
    if not names:
        raise Absent('no body has the role bystander')
    for name in names:
        raw.pose(name)
    return names


def displacement_m(trajectory: Trajectory, bodies: list[str], reference: int) -> FloatArray:
    """The largest distance (T,) of any of the bodies from where it was at step `reference`."""
    places = np.stack([trajectory.body(name)[:, :3] for name in bodies], axis=1)
    distance: FloatArray = np.linalg.norm(places - places[reference], axis=2).max(axis=1)
    return distance


def _tilt(raw: _Raw) -> FloatArray:
    return axis_drift_deg(_quaternion(raw), 0)


def _rotation(raw: _Raw) -> FloatArray:
    return rotation_drift_deg(_quaternion(raw), 0)


def _quaternion(raw: _Raw) -> FloatArray:
    quaternion = raw.target_pose[:, 3:]
    if np.any(np.linalg.norm(quaternion, axis=1) < 1e-6) or not np.all(np.isfinite(quaternion)):
        raise Absent(f'the orientation of {raw.target!r} was not recorded')
    return quaternion


def axis_drift_deg(quaternion_wxyz: FloatArray, reference: int) -> FloatArray:
    """The angle (T,) between the body's z axis in the world and what it was at `reference` (Table 15, theta)."""
    w, x, y, z = (quaternion_wxyz / np.linalg.norm(quaternion_wxyz, axis=1, keepdims=True)).T
    axis = np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], axis=1)
    across = np.linalg.norm(np.cross(axis, axis[reference]), axis=1)
    drift: FloatArray = np.degrees(np.arctan2(across, axis @ axis[reference]))
    return drift


def rotation_drift_deg(quaternion_wxyz: FloatArray, reference: int) -> FloatArray:
    """The full rotation angle (T,) since `reference`, turns about the body's own z axis included."""
    unit = quaternion_wxyz / np.linalg.norm(quaternion_wxyz, axis=1, keepdims=True)
    along = np.abs(unit @ unit[reference])
    across = np.linalg.norm(unit - np.sign(unit @ unit[reference])[:, None] * along[:, None] * unit[reference], axis=1)
    drift: FloatArray = np.degrees(2 * np.arctan2(across, along))
    return drift


def _height(raw: _Raw) -> FloatArray:
    """Height over the lift baseline, the target's height at the first grip (at the start, if it is never gripped)."""
    height, grip = raw.target_pose[:, 2], raw.grip
    baseline = height[int(np.argmax(grip))] if grip.any() else height[0]
    relative: FloatArray = height - baseline
    return relative


def _transport(raw: _Raw) -> BoolArray:
    return raw.grip & (_height(raw) > LIFTED_OVER_M)


def _torque(raw: _Raw) -> FloatArray:
    torque = raw.trajectory.joint_torque_nm
    if torque is None:
        raise Absent('joint_torque_nm was not recorded')
    limit = raw.trajectory.joint_torque_limit_nm if raw.trajectory.joint_torque_limit_nm is not None else raw.limit_nm
    if limit is None:
        raise Absent('the joints have no torque limits, neither recorded nor by the benchmark')
    bound = np.asarray(limit, dtype=np.float64)
    if bound.shape != (torque.shape[1],):
        raise Absent(f'{torque.shape[1]} joint torques but {bound.size} limits')
    if not np.all(bound > 0):
        raise Absent('a joint torque limit is not above 0')
    ratio: FloatArray = np.max(np.abs(torque) / bound, axis=1)
    return ratio


def _eef(raw: _Raw, order: int) -> FloatArray:
    if raw.trajectory.ee_pose is None:
        raise Absent('ee_pose was not recorded')
    dt_s = raw.even_dt_s()
    position = np.asarray(raw.trajectory.ee_pose[:, :3], dtype=np.float64)
    needed = SMOOTHING_STEPS + (4 if order == 3 else 2)
    if len(position) < needed:
        raise Absent(f'{len(position)} steps, wanted at least {needed}')
    sums = np.cumsum(np.concatenate([np.zeros((1, 3)), position]), axis=0)
    smooth = (sums[SMOOTHING_STEPS:] - sums[:-SMOOTHING_STEPS]) / SMOOTHING_STEPS
    return _held_to(np.linalg.norm(central_difference(smooth, order), axis=1) / dt_s**order, len(position))


def central_difference(values: FloatArray, order: int) -> FloatArray:
    """The first, second or third central difference along axis 0, where it is defined."""
    difference: FloatArray
    if order == 1:
        difference = (values[2:] - values[:-2]) / 2
    elif order == 2:
        difference = values[2:] - 2 * values[1:-1] + values[:-2]
    else:
        difference = (values[4:] - 2 * values[3:-1] + 2 * values[1:-3] - values[:-4]) / 2
    return difference


def _held_to(values: FloatArray, steps: int) -> FloatArray:
    """Extend to `steps` by holding both ends: no new extreme, one value a step."""
    missing = steps - len(values)
    return np.pad(values, (missing // 2, missing - missing // 2), mode='edge')


def _target_speed(raw: _Raw) -> FloatArray:
    position = np.asarray(raw.target_pose[:, :3], dtype=np.float64)
    if len(position) < 3:
        raise Absent(f'{len(position)} steps, wanted at least 3')
    return _held_to(np.linalg.norm(central_difference(position, 1), axis=1) / raw.even_dt_s(), len(position))


DERIVATIONS: Mapping[str, Callable[[_Raw], FloatArray | BoolArray]] = {
    'max_contact_force_n': _max_force,
    'arm_furniture_force_n': lambda raw: _pair_force(raw, Role.ROBOT, Role.FURNITURE),
    'target_furniture_force_n': lambda raw: _pair_force(raw, Role.TARGET, Role.FURNITURE),
    'self_contact_count': _self_count,
    'self_collision': lambda raw: _self_count(raw) > 0,
    'arm_furniture_contact': lambda raw: _pair_force(raw, Role.ROBOT, Role.FURNITURE) > 0,
    'non_target_disp_m': _non_target_displacement,
    'held_object_tilt_deg': _tilt,
    'held_object_rotation_deg': _rotation,
    'grip': lambda raw: raw.grip.astype(np.float64),
    'transport': _transport,
    'target_height_m': _height,
    'joint_torque_ratio': _torque,
    'eef_speed_mps': lambda raw: _eef(raw, 1),
    'eef_acc_mps2': lambda raw: _eef(raw, 2),
    'eef_jerk_mps3': lambda raw: _eef(raw, 3),
    'target_speed_mps': _target_speed,
    'release_speed_mps': lambda raw: (1.0 - raw.grip) * _target_speed(raw),
}
