"""Policies that need no server: do nothing, act at random, replay recordings, or call a Python function."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.catalog import load_attribute
from robotrials.errors import AnswerError, InputError
from robotrials.policies.observe import GRIPPER_ENDS, Question
from robotrials.policies.served import Reply, ServedPolicy, action_array
from robotrials.record import Trajectory, read_store
from robotrials.run.seam import (
    ActionConvention,
    Chunk,
    ControlMode,
    FloatArray,
    Frame,
    Gripper,
    HostSpec,
    Observation,
    PolicySpec,
    Rotation,
    Session,
    Setup,
    Target,
)

# A policy that is a Python function: the mapped observation in, actions out.

ActFunction = Callable[[Question], object]


class FunctionPolicy(ServedPolicy):
    """A function by ``module:attribute`` that takes the mapped observation (a dict) and gives actions (h, A).

    It may instead give a dict with ``actions``. A class is made once, without arguments, and its instance is called; if
    it has ``reset()``, that is called at every episode.
    """

    def __init__(
        self,
        *,
        function: str,
        preset: str = '',
        observation: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        name: str = 'function',
    ) -> None:
        super().__init__(preset=preset, observation=observation, action=action, name=name, is_remote=False)
        # A plan must not be able to run what was never meant as a policy, such as os:system.
        if function.partition(':')[0].partition('.')[0] in sys.stdlib_module_names:
            raise InputError(f'function is {function!r}, of the standard library; wanted a policy of your own')
        attribute: Any = load_attribute(function)
        if not callable(attribute):
            raise InputError(f'function {function} is a {type(attribute).__name__}, wanted something to call')
        if inspect.isclass(attribute) and '__call__' not in dir(attribute):
            raise InputError(f'function {function}: its instances have no __call__')
        self._target = function
        made: Any = attribute() if inspect.isclass(attribute) else attribute
        self._function: ActFunction = made

    @property
    def facts(self) -> Mapping[str, object]:
        return {'function': self._target}

    def begin(self, setup: Setup, *, seed: int) -> None:
        reset = getattr(self._function, 'reset', None)
        if callable(reset):
            reset()

    def ask(self, question: Question) -> Reply:
        answer = self._function(question)
        if isinstance(answer, Mapping):
            if 'actions' not in answer:
                raise AnswerError(f"{self._target}: a dict without 'actions'")
            answer = answer['actions']
        return Reply(action_array(self._target, answer))


# A policy that plays recorded actions back: for checks of determinism and hardware, or as a control arm.


class ReplayPolicy:
    """Plays back the actions of recorded episodes: for each start state, the episode of `policy` with the same one.

    condition: play what was recorded under this condition, whatever the episode's own is: a policy that does not look.

    store: the record. policy: whose actions. column: ``action_processed`` (what the host was given, the default) or
    ``action_raw``. An episode that outlasts the recording holds still if actions are deltas, else repeats the
    last action.
    """

    def __init__(
        self, *, store: str, policy: str, convention: Mapping[str, Any], column: str = 'action_processed',
        control_rate_hz: float | None = None, condition: str | None = None,
    ) -> None:  # fmt: skip
        if column not in ('action_processed', 'action_raw'):
            raise InputError(f"column is {column!r}, wanted 'action_processed' or 'action_raw'")
        self._store, self._policy, self._column = read_store(store), policy, column
        self._condition = condition
        self.spec = PolicySpec(
            name='replay', action=ActionConvention(**convention), chunk_length=1, control_rate_hz=control_rate_hz
        )

    def start(self, setup: Setup, *, seed: int) -> Session:
        where = {
            'policy': self._policy, 'task': setup.task, 'stratum': setup.stratum, 'seed': setup.seed,
            'condition': self._condition or setup.condition,
        }  # fmt: skip
        episodes = [e for e in self._store.episodes(where=where) if e.is_valid]
        if not episodes:
            raise InputError(
                f'{self._store.path}: {self._policy} has no valid episode on {setup.task} with seed {setup.seed}'
            )
        trajectory = self._store.trajectory(episodes[0], signals=[self._column])
        return ReplaySession(self._actions(trajectory, episodes[0].episode_id), convention=self.spec.action)

    def _actions(self, trajectory: Trajectory | None, episode_id: str) -> FloatArray:
        actions = None if trajectory is None else getattr(trajectory, self._column)
        if actions is None:
            raise InputError(f'{self._store.path}: episode {episode_id} has no {self._column}; record trajectories')
        kept: FloatArray = actions[np.isfinite(actions).all(axis=1)]
        if kept.shape[1:] != (self.spec.action.width,) or not len(kept):
            raise InputError(
                f'episode {episode_id}: actions of shape {actions.shape}, wanted (T, {self.spec.action.width})'
            )
        return kept


class ReplaySession:
    """One trajectory, played once."""

    def __init__(self, actions: FloatArray, *, convention: ActionConvention) -> None:
        self._actions = actions
        self._rest = np.array(actions[-1], dtype=float)
        if convention.target == 'delta':
            self._rest[: convention.motion_width] = 0.0
        self._next = 0

    def act(self, observation: Observation) -> Chunk:
        if self._next < len(self._actions):
            action = self._actions[self._next]
            self._next += 1
        else:
            action = self._rest
        return Chunk(np.array(action, dtype=float)[None])


UNFITTED = ActionConvention(
    control_mode=ControlMode.SE3, target=Target.DELTA, frame=Frame.WORLD, rotation=Rotation.NONE
)  # fmt: skip
IDENTITY = {
    Rotation.NONE: (), Rotation.AXIS_ANGLE: (0.0, 0.0, 0.0), Rotation.EULER_XYZ: (0.0, 0.0, 0.0),
    Rotation.QUATERNION_WXYZ: (1.0, 0.0, 0.0, 0.0), Rotation.QUATERNION_XYZW: (0.0, 0.0, 0.0, 1.0),
    Rotation.MATRIX_6D: (1.0, 0.0, 0.0, 0.0, 1.0, 0.0),
}  # fmt: skip


class _FittedPolicy:
    """Takes over whatever convention the host has."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.spec = PolicySpec(name=name, action=UNFITTED)

    def fit(self, host: HostSpec) -> None:
        self.spec = PolicySpec(name=self._name, action=host.action)


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
        return _RestSession(self.spec.action)


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
        return _RestSession(self.spec.action, scale=self._scale, rng=np.random.default_rng(seed))


class _RestSession:
    """The action that keeps the arm still; with a generator, uniform ones around it."""

    def __init__(
        self, convention: ActionConvention, *, scale: float = 0.0, rng: np.random.Generator | None = None
    ) -> None:
        self._convention, self._scale, self._rng = convention, scale, rng

    def act(self, observation: Observation) -> Chunk:
        convention = self._convention
        action = rest_action(convention, observation.state)
        if self._rng is not None:
            action[: convention.motion_width] += self._rng.uniform(-self._scale, self._scale, convention.motion_width)
            if convention.gripper is not Gripper.NONE:
                ends = GRIPPER_ENDS[convention.gripper]
                action[-1] = self._rng.uniform(min(ends), max(ends))
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
        width = self.spec.action.width
        if actions.ndim != 2 or actions.shape[1] != width or not len(actions) or not np.isfinite(actions).all():
            raise InputError(f'{path}: demo_{number} has actions of shape {actions.shape}, wanted (T, {width}), finite')
        return ReplaySession(actions, convention=self.spec.action)

    def _file(self, setup: Setup) -> Path:
        if self._path.is_file():
            return self._path
        if setup.task in self._files:
            return self._path / self._files[setup.task]
        file_name = f'{setup.instruction.replace(" ", "_")}_demo.hdf5'
        names = [f'{setup.task}.hdf5', f'{setup.task}_demo.hdf5', file_name]
        for name in names:
            if (self._path / name).is_file():
                return self._path / name
        scenes = re.compile(rf'[A-Z_]+_SCENE\d+_{re.escape(file_name)}')
        candidates = sorted(path for path in self._path.glob('*_SCENE*.hdf5') if scenes.fullmatch(path.name))
        if len(candidates) > 1:
            several = ', '.join(path.name for path in candidates)
            raise InputError(
                f'{self._path}: {setup.task} may be any of {several}; say which: files = {{{setup.task} = ...}}'
            )
        if not candidates:
            raise InputError(f'{self._path}: none of {", ".join([*names, f"..._SCENE.._{file_name}"])}')
        return candidates[0]


def check_rest(host: HostSpec, policy: str) -> None:
    """Raise InputError if it is not known which action keeps this host still."""
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
    _, opened = GRIPPER_ENDS[convention.gripper]
    return np.append(motion, opened)
