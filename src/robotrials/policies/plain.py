"""Policies that run on every host: do nothing, act at random, play demonstrations back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from robotrials.errors import InputError
from robotrials.policies.replay import ReplaySession
from robotrials.run.convention import (
    ActionConvention,
    ControlMode,
    Frame,
    Gripper,
    HostSpec,
    PolicySpec,
    Rotation,
    Target,
)
from robotrials.run.seam import Chunk, FloatArray, Observation, Session, Setup

UNFITTED = ActionConvention(
    control_mode=ControlMode.SE3, target=Target.DELTA, frame=Frame.WORLD, rotation=Rotation.NONE
)  # fmt: skip
GRIPPER_RANGE = {
    Gripper.OPEN_IS_PLUS_ONE: (-1.0, 1.0), Gripper.CLOSED_IS_PLUS_ONE: (-1.0, 1.0),
    Gripper.OPEN_IS_ONE: (0.0, 1.0), Gripper.CLOSED_IS_ONE: (0.0, 1.0),
}  # fmt: skip
IDENTITY = {
    Rotation.NONE: (), Rotation.AXIS_ANGLE: (0.0, 0.0, 0.0), Rotation.EULER_XYZ: (0.0, 0.0, 0.0),
    Rotation.QUATERNION_WXYZ: (1.0, 0.0, 0.0, 0.0), Rotation.QUATERNION_XYZW: (0.0, 0.0, 0.0, 1.0),
    Rotation.MATRIX_6D: (1.0, 0.0, 0.0, 0.0, 1.0, 0.0),
}  # fmt: skip


class _FittedPolicy:
    """Takes over whatever convention the host has."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec = PolicySpec(name=name, action=UNFITTED)

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def fit(self, host: HostSpec) -> None:
        self._spec = PolicySpec(name=self._name, action=host.action)


class NoOpPolicy(_FittedPolicy):
    """Keeps still with the gripper open: no motion where actions are deltas or velocities, else the joints as they are.

    A host that takes absolute joint angles has to show them as the first numbers of its state.
    """

    def __init__(self) -> None:
        super().__init__('no_op')

    def fit(self, host: HostSpec) -> None:
        check_rest(host, self._name)
        super().fit(host)

    def start(self, setup: Setup, *, seed: int) -> Session:
        return _NoOpSession(self._spec.action)


class _NoOpSession:
    def __init__(self, convention: ActionConvention) -> None:
        self._convention = convention

    def act(self, observation: Observation) -> Chunk:
        return Chunk(rest_action(self._convention, observation.state)[None])


class RandomPolicy(_FittedPolicy):
    """Uniform actions around rest, drawn from the episode's seed. scale: the largest motion, in the action's unit."""

    def __init__(self, *, scale: float = 0.05) -> None:
        if not (np.isfinite(scale) and scale >= 0):
            raise InputError(f'scale is {scale}, wanted a finite number >= 0')
        super().__init__('random')
        self._scale = float(scale)

    def fit(self, host: HostSpec) -> None:
        check_rest(host, self._name)
        super().fit(host)

    def start(self, setup: Setup, *, seed: int) -> Session:
        return _RandomSession(self._spec.action, self._scale, np.random.default_rng(seed))


class _RandomSession:
    def __init__(self, convention: ActionConvention, scale: float, rng: np.random.Generator) -> None:
        self._convention, self._scale, self._rng = convention, scale, rng

    def act(self, observation: Observation) -> Chunk:
        convention = self._convention
        action = rest_action(convention, observation.state)
        action[: convention.motion_width] += self._rng.uniform(-self._scale, self._scale, convention.motion_width)
        if convention.gripper is not Gripper.NONE:
            action[-1] = self._rng.uniform(*GRIPPER_RANGE[convention.gripper])
        return Chunk(action[None])


class DemonstrationPolicy(_FittedPolicy):
    """Plays the actions of robomimic or LIBERO demonstrations back, one demonstration an instance, in their order.

    path: the HDF5 file of one task, or a folder with one for each: ``TASK.hdf5``, ``TASK_demo.hdf5``, or LIBERO's name,
    which is the instruction with underscores, after the scene on LIBERO-10 and LIBERO-90. files: task -> name in the
    folder, where several scenes have the same instruction. From another start state than its own a demonstration is
    played blindly.
    """

    def __init__(self, *, path: str, files: Mapping[str, str] | None = None) -> None:
        super().__init__('demonstration')
        self._path, self._files = Path(path), dict(files or {})
        if not self._path.exists():
            raise InputError(f'{self._path}: no such file or folder of demonstrations')
        for task, name in self._files.items():
            if not (self._path / name).is_file():
                raise InputError(f'files: {task} is {name!r}, which is not in {self._path}')

    def start(self, setup: Setup, *, seed: int) -> Session:
        from robotrials.formats.hdf5_format import demo_numbers, opened

        path = self._file(setup)
        with opened(path) as file:
            numbers = demo_numbers(file, path)
            number = numbers[setup.instance % len(numbers)]
            actions: FloatArray = np.asarray(file['data'][f'demo_{number}']['actions'], dtype=float)
        width = self._spec.action.width
        if actions.ndim != 2 or actions.shape[1] != width or not len(actions) or not np.isfinite(actions).all():
            raise InputError(f'{path}: demo_{number} has actions of shape {actions.shape}, wanted (T, {width}), finite')
        return ReplaySession(actions, convention=self._spec.action)

    def _file(self, setup: Setup) -> Path:
        if self._path.is_file():
            return self._path
        if setup.task in self._files:
            return self._path / self._files[setup.task]
        told = f'{setup.instruction.replace(" ", "_")}_demo.hdf5'
        names = [f'{setup.task}.hdf5', f'{setup.task}_demo.hdf5', told]
        for name in names:
            if (self._path / name).is_file():
                return self._path / name
        scenes = re.compile(rf'[A-Z_]+_SCENE\d+_{re.escape(told)}')
        found = sorted(path for path in self._path.glob('*_SCENE*.hdf5') if scenes.fullmatch(path.name))
        if len(found) > 1:
            several = ', '.join(path.name for path in found)
            raise InputError(
                f'{self._path}: {setup.task} may be any of {several}; say which: files = {{{setup.task} = ...}}'
            )
        if not found:
            raise InputError(f'{self._path}: none of {", ".join([*names, f"..._SCENE.._{told}"])}')
        return found[0]


def check_rest(host: HostSpec, policy: str) -> None:
    """Raise InputError if nobody can say which action keeps this host still."""
    convention = host.action
    is_absolute = convention.target is Target.ABSOLUTE and convention.control_mode is not ControlMode.JOINT_VELOCITY
    if is_absolute and convention.control_mode is ControlMode.SE3:
        raise InputError(
            f'policy {policy} does not know where the tool of host {host.name} is: it takes absolute poses'
        )
    if is_absolute and host.state_width < convention.n_joints:
        raise InputError(
            f'policy {policy} wants the {convention.n_joints} joint angles as the first numbers of the state; host '
            f'{host.name} shows {host.state_width} numbers'
        )


def rest_action(convention: ActionConvention, state: FloatArray) -> FloatArray:
    """The action that keeps the arm where it is, with the gripper open."""
    motion: FloatArray = np.zeros(convention.motion_width)
    if convention.control_mode is ControlMode.SE3:
        motion[3:] = IDENTITY[convention.rotation]
    elif convention.control_mode is ControlMode.JOINT_POSITION and convention.target is Target.ABSOLUTE:
        motion[:] = state[: convention.n_joints]
    if convention.gripper is Gripper.NONE:
        return motion
    low, high = GRIPPER_RANGE[convention.gripper]
    is_open_high = convention.gripper in (Gripper.OPEN_IS_PLUS_ONE, Gripper.OPEN_IS_ONE)
    return np.append(motion, high if is_open_high else low)
