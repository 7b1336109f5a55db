"""A robot behind LeRobot's `Robot` interface as a host: SO-101, Koch, and whatever has a plug-in for LeRobot.

It runs in LeRobot's environment. Nobody but a person sets the scene and judges what happened: an episode ends at its
cap, or when the operator says so.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robotrials.errors import AnswerError, InputError, RigError, SetupError
from robotrials.record import Outcome
from robotrials.run.host import Host
from robotrials.run.seam import (
    Action,
    ActionConvention,
    ControlMode,
    FloatArray,
    Frame,
    HostSpec,
    Observation,
    ProtocolFacts,
    Target,
)
from robotrials.worlds.isolated import IsolatedHost

START_S = 300.0


def lerobot_robot_host(
    *,
    robot: str,
    settings: Mapping[str, Any] | None = None,
    plugins: Sequence[str] = (),
    control_rate_hz: float = 30.0,
    environment: str = 'lerobot-0.6',
    timeout_s: float | None = None,
) -> IsolatedHost[LeRobotRobotHost]:
    """A robot of LeRobot's, in LeRobot's environment; run it on the wall clock.

    robot: its kind, as ``--robot.type``. settings: what else LeRobot wants to know, as ``--robot.NAME``, cameras
    included. plugins: modules that register further kinds; packages named ``lerobot_robot_*`` are found without.
    environment: a recipe of your own where the robot's drivers or plug-in are not in ours.
    """
    options = {
        'robot': robot, 'settings': dict(settings or {}), 'plugins': list(plugins), 'control_rate_hz': control_rate_hz,
    }  # fmt: skip
    return IsolatedHost(
        environment=environment,
        host='robotrials.worlds.lerobot_robot:LeRobotRobotHost',
        options=options,
        start_timeout_s=START_S,
        timeout_s=timeout_s,
    )


class LeRobotRobotHost(Host):
    """The robot itself. State and actions are its motors' numbers in the robot's own units and order."""

    def __init__(
        self,
        *,
        robot: str,
        settings: Mapping[str, Any] | None = None,
        plugins: Sequence[str] = (),
        control_rate_hz: float = 30.0,
    ) -> None:
        self._robot = _make(robot, settings or {}, plugins)
        self._kind, self._is_begun, self._began_s = robot, False, 0.0
        seen = self._robot.observation_features
        self._motors = tuple(name for name, kind in self._robot.action_features.items() if kind is float)
        self._state = tuple(name for name, kind in seen.items() if kind is float)
        self._cameras = {name: tuple(shape) for name, shape in seen.items() if isinstance(shape, tuple)}
        if not self._motors:
            raise InputError(f'robot {robot} takes no numbers as actions; it takes {self._robot.action_features}')
        self._sent: FloatArray | None = None
        self._spec = HostSpec(
            name=f'lerobot-{robot}',
            action=ActionConvention(
                control_mode=ControlMode.JOINT_POSITION, target=Target.ABSOLUTE, frame=Frame.JOINT,
                n_joints=len(self._motors),
            ),
            control_rate_hz=control_rate_hz,
            state_width=len(self._state),
            state_layout=self._state,
            images={name: (shape[0], shape[1]) for name, shape in self._cameras.items()},
        )  # fmt: skip

    @property
    def spec(self) -> HostSpec:
        return self._spec

    def reset(self, task: str, *, seed: int) -> Observation:
        """Connect if need be, and look; the operator has set the scene."""
        if not self._robot.is_connected:
            try:
                self._robot.connect(calibrate=False)
            except Exception as error:
                raise RigError(f'robot {self._kind} does not connect: {type(error).__name__}: {error}') from error
            if not self._robot.is_calibrated:
                self.close()
                raise SetupError(f'robot {self._kind} is not calibrated; run `lerobot-calibrate` for it first')
        self._is_begun, self._began_s, self._sent = True, time.monotonic(), None
        return self._look()

    def step(self, action: Action) -> Observation:
        wanted = np.asarray(action, dtype=float)
        if not self._is_begun:
            raise InputError('no episode is under way; call reset(task, seed=...) first')
        if wanted.shape != (len(self._motors),) or not np.isfinite(wanted).all():
            raise InputError(f'an action is {wanted}, wanted {len(self._motors)} finite numbers')
        asked = dict(zip(self._motors, map(float, wanted), strict=True))
        try:
            told = self._robot.send_action(asked)
        except Exception as error:
            raise RigError(f'robot {self._kind} took no action: {type(error).__name__}: {error}') from error
        self._sent = np.array([float(told.get(name, asked[name])) for name in self._motors])
        return self._look()

    def outcome(self) -> Outcome | None:
        return None

    def hold(self) -> Action:
        """What the robot was last sent, and before that where its motors are."""
        if self._sent is not None:
            return self._sent.copy()
        if not self._is_begun:
            raise InputError('no episode is under way; call reset(task, seed=...) first')
        missing = [name for name in self._motors if name not in self._state]
        if missing:
            raise InputError(f'robot {self._kind} does not say where {", ".join(missing)} is, so it cannot be held')
        return np.array([self._seen[self._state.index(name)] for name in self._motors])

    def signals(self) -> Mapping[str, Any]:
        """What was sent after the robot's own limits."""
        return {} if self._sent is None else {'action_processed_own': self._sent}

    def protocol(self) -> ProtocolFacts:
        from importlib.metadata import version

        return ProtocolFacts(
            benchmark=self._spec.name,
            control_rate_hz=self._spec.control_rate_hz,
            initial_states='set by the operator',
            success_predicate='none: somebody has to judge',
            success_at_reset='not looked at',
            packages={'lerobot': version('lerobot')},
        )

    def close(self) -> None:
        self._is_begun = False
        if self._robot.is_connected:
            self._robot.disconnect()

    def _look(self) -> Observation:
        try:
            seen = self._robot.get_observation()
        except Exception as error:
            raise RigError(f'robot {self._kind} gave no observation: {type(error).__name__}: {error}') from error
        missing = [name for name in (*self._state, *self._cameras) if name not in seen]
        if missing:
            raise AnswerError(f'robot {self._kind}: an observation without {", ".join(missing)}')
        state = np.array([float(seen[name]) for name in self._state])
        images = {name: np.asarray(seen[name]) for name in self._cameras}
        for name, image in images.items():
            if image.shape != self._cameras[name] or image.dtype != np.uint8:
                raise AnswerError(f'camera {name} gave {image.shape} of {image.dtype}, wanted {self._cameras[name]}')
        if not np.isfinite(state).all():
            raise AnswerError(f'robot {self._kind}: motors at {state}, wanted finite numbers')
        self._seen = state
        return Observation(time.monotonic() - self._began_s, state.copy(), images=images)


def _make(robot: str, settings: Mapping[str, Any], plugins: Sequence[str]) -> Any:
    """A robot by its kind; nothing is connected yet."""
    import draccus
    import lerobot.robots
    from lerobot.robots import RobotConfig
    from lerobot.robots.utils import make_robot_from_config

    try:
        from lerobot.utils.import_utils import register_third_party_plugins
    except ImportError:  # before 0.5
        from lerobot.utils.import_utils import register_third_party_devices as register_third_party_plugins
    for module in pkgutil.iter_modules(lerobot.robots.__path__):
        if module.ispkg:
            with contextlib.suppress(ImportError):  # of robots whose drivers are not installed
                importlib.import_module(f'lerobot.robots.{module.name}')
    register_third_party_plugins()
    for name in plugins:
        importlib.import_module(name)
    known = RobotConfig.get_known_choices()
    if robot not in known:
        listed = ', '.join(sorted(known)) or 'none'
        raise InputError(f'LeRobot knows no robot {robot!r}; it knows {listed}; name the module of yours in plugins')
    try:
        return make_robot_from_config(draccus.decode(RobotConfig, {'type': robot, **settings}))
    except (draccus.utils.DecodingError, TypeError) as error:
        raise InputError(f'robot {robot}: {error}') from error
