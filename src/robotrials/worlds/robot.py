"""Robots behind interfaces of their own: LeRobot's `Robot` (SO-101, Koch, plug-ins), and DROID's robot server.

Nobody but a person sets the scene and judges what happened: an episode ends at its cap, or when the operator says so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import pkgutil
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.catalog import load_attribute
from robotrials.errors import AnswerError, InputError, NoAnswer, RemoteError, RigError, SetupError, UnknownName
from robotrials.record import Outcome
from robotrials.run.host import SteppedHost
from robotrials.run.seam import (
    Action,
    ActionConvention,
    ControlMode,
    FloatArray,
    Frame,
    Gripper,
    HostSpec,
    Observation,
    ProtocolFacts,
    Rotation,
    Target,
)
from robotrials.wire.request import ZeroRpcLink
from robotrials.worlds.isolated import IsolatedHost

START_S = 300.0


class RobotHost(SteppedHost):
    """A real arm, run on the wall clock; a subclass says how it connects, takes an action and is read."""

    benchmark = ''

    def __init__(self, spec: HostSpec) -> None:
        self._spec, self._began_s = spec, 0.0
        self._state: FloatArray = np.zeros(0)  # as last seen
        self._sent: FloatArray | None = None  # what the robot made of the last action

    def reset(self, task: str, *, seed: int) -> Observation:
        """Connect if need be, and look; the operator has set the scene."""
        self._is_begun = False
        self._connect()
        self._is_begun, self._began_s, self._sent = True, time.monotonic(), None
        return self._look()

    def step(self, action: Action) -> Observation:
        self._check_begun()
        self._sent = self._command(self._checked(action))
        return self._look()

    def outcome(self) -> Outcome | None:
        return None

    def signals(self) -> Mapping[str, Any]:
        """What was sent after the robot's own limits."""
        return {} if self._sent is None else {'action_processed_own': self._sent}

    def protocol(self) -> ProtocolFacts:
        return ProtocolFacts(
            benchmark=self.benchmark or self._spec.name,
            control_rate_hz=self._spec.control_rate_hz,
            initial_states='set by the operator',
            success_predicate='none: somebody has to judge',
            success_at_reset='not looked at',
        )

    @abstractmethod
    def _connect(self) -> None:
        """Have the robot ready for an episode."""

    @abstractmethod
    def _command(self, action: FloatArray) -> FloatArray:
        """Send an action; what the robot made of it."""

    @abstractmethod
    def _read(self) -> tuple[FloatArray, Mapping[str, NDArray[np.uint8]]]:
        """State and pictures."""

    def _look(self) -> Observation:
        self._state, images = self._read()
        for name, size in self._spec.images.items():
            image = images.get(name)
            if image is None or image.shape != (*size, 3) or image.dtype != np.uint8:
                seen = 'nothing' if image is None else f'{image.shape} of {image.dtype}'
                raise AnswerError(f'camera {name} gave {seen}, wanted {(*size, 3)} of uint8')
        if not np.isfinite(self._state).all():
            raise AnswerError(f'robot {self._spec.name}: a state of {self._state}, wanted finite numbers')
        return Observation(time.monotonic() - self._began_s, self._state.copy(), images=dict(images))


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
        host='robotrials.worlds.robot:LeRobotRobotHost',
        options=options,
        start_timeout_s=START_S,
        timeout_s=timeout_s,
    )


class LeRobotRobotHost(RobotHost):
    """The robot itself. State and actions are its motors' numbers in the robot's own units and order."""

    def __init__(
        self,
        *,
        robot: str,
        settings: Mapping[str, Any] | None = None,
        plugins: Sequence[str] = (),
        control_rate_hz: float = 30.0,
    ) -> None:
        self._robot, self._kind = _make(robot, settings or {}, plugins), robot
        seen = self._robot.observation_features
        self._motors = tuple(name for name, kind in self._robot.action_features.items() if kind is float)
        self._names = tuple(name for name, kind in seen.items() if kind is float)
        cameras = {name: shape for name, shape in seen.items() if isinstance(shape, tuple)}
        if not self._motors:
            raise InputError(f'robot {robot} takes no numbers as actions; it takes {self._robot.action_features}')
        convention = ActionConvention(
            control_mode=ControlMode.JOINT_POSITION, target=Target.ABSOLUTE, frame=Frame.JOINT,
            n_joints=len(self._motors),
        )  # fmt: skip
        super().__init__(
            HostSpec(
                name=f'lerobot-{robot}', action=convention, control_rate_hz=control_rate_hz,
                state_width=len(self._names), state_layout=self._names,
                images={name: (shape[0], shape[1]) for name, shape in cameras.items()},
            )
        )  # fmt: skip

    def _connect(self) -> None:
        if self._robot.is_connected:
            return
        self._asked('does not connect', lambda: self._robot.connect(calibrate=False))
        if not self._robot.is_calibrated:
            self.close()
            raise SetupError(f'robot {self._kind} is not calibrated; run `lerobot-calibrate` for it first')

    def _command(self, action: FloatArray) -> FloatArray:
        asked = dict(zip(self._motors, map(float, action), strict=True))
        taken = self._asked('took no action', lambda: self._robot.send_action(asked))
        return np.array([float(taken.get(name, asked[name])) for name in self._motors])

    def _read(self) -> tuple[FloatArray, Mapping[str, NDArray[np.uint8]]]:
        seen = self._asked('gave no observation', self._robot.get_observation)
        missing = [name for name in (*self._names, *self._spec.images) if name not in seen]
        if missing:
            raise AnswerError(f'robot {self._kind}: an observation without {", ".join(missing)}')
        state = np.array([float(seen[name]) for name in self._names])
        return state, {name: np.asarray(seen[name]) for name in self._spec.images}

    def _asked(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            raise RigError(f'robot {self._kind} {what}: {type(error).__name__}: {error}') from error

    def hold(self) -> Action:
        """What the robot was last sent, and before that where its motors are."""
        if self._sent is not None:
            return self._sent.copy()
        self._check_begun()
        missing = [name for name in self._motors if name not in self._names]
        if missing:
            raise InputError(f'robot {self._kind} does not say where {", ".join(missing)} is, so it cannot be held')
        return np.array([self._state[self._names.index(name)] for name in self._motors])

    def protocol(self) -> ProtocolFacts:
        from importlib.metadata import version

        return dataclasses.replace(super().protocol(), packages={'lerobot': version('lerobot')})

    def close(self) -> None:
        self._is_begun = False
        if self._robot.is_connected:
            self._robot.disconnect()


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


# DROID (github.com/droid-dataset/droid): its server (scripts/server/run_server.py) gives out its `FrankaRobot` with
# zerorpc, on ZeroMQ and msgpack, port 4242. What is called here, and with which arguments, is what its own client
# (droid/misc/server_interface.py) and environment (droid/robot_env.py) call. Cameras are no part of that server.

RATE_HZ = 15.0  # control_hz of RobotEnv
HOME_RAD = (0.0, -np.pi / 5, 0.0, -4 * np.pi / 5, 0.0, 3 * np.pi / 5, 0.0)  # reset_joints of RobotEnv
N_JOINTS = 7
LAYOUT = (
    *(f'joint_{n}_rad' for n in range(N_JOINTS)), 'gripper_closed', 'tool_x_m', 'tool_y_m', 'tool_z_m',
    'tool_euler_x_rad', 'tool_euler_y_rad', 'tool_euler_z_rad',
)  # fmt: skip
_JOINTS: dict[str, Any] = {'frame': Frame.JOINT, 'n_joints': N_JOINTS}
_POSE: dict[str, Any] = {'control_mode': ControlMode.SE3, 'frame': Frame.BASE, 'rotation': Rotation.EULER_XYZ}
# DROID's names of its action spaces -> what their numbers are. Speeds are -1 to 1 of the most that DROID allows.
SPACES: Mapping[str, ActionConvention] = {
    name: ActionConvention(gripper=Gripper.CLOSED_IS_ONE, **convention)
    for name, convention in {
        'joint_velocity': {'control_mode': ControlMode.JOINT_VELOCITY, 'target': Target.ABSOLUTE, **_JOINTS},
        'joint_position': {'control_mode': ControlMode.JOINT_POSITION, 'target': Target.ABSOLUTE, **_JOINTS},
        'cartesian_velocity': {'target': Target.DELTA, **_POSE},
        'cartesian_position': {'target': Target.ABSOLUTE, **_POSE},
    }.items()
}
Cameras = Callable[[], Mapping[str, NDArray[np.uint8]]]


class DroidHost(RobotHost):
    """A Franka arm of DROID's; run it on the wall clock.

    url: of the robot server, ``tcp://NUC:4242``. action_space: as DROID names it; the gripper is always a position (0
    open, 1 closed). launch: start controller and robot at the first reset, as DROID's client does. moves_home: open the
    gripper and move to DROID's rest pose at every reset. cameras: ``module:attribute`` of a function of yours that
    gives one RGB picture for each camera's name. timeout_s: for a call that moves nothing far; move_timeout_s: for
    moving home and for launching.
    """

    def __init__(
        self,
        *,
        url: str,
        action_space: str = 'joint_velocity',
        launch: bool = True,
        moves_home: bool = True,
        home_rad: Sequence[float] = HOME_RAD,
        cameras: str = '',
        control_rate_hz: float = RATE_HZ,
        timeout_s: float = 1.0,
        move_timeout_s: float = 30.0,
    ) -> None:
        if action_space not in SPACES:
            raise UnknownName("action space of DROID's", action_space, SPACES)
        if len(home_rad) != N_JOINTS:
            raise InputError(f'home_rad has {len(home_rad)} numbers, wanted {N_JOINTS}, one for each joint')
        self._link = ZeroRpcLink(url)
        self._space, self._is_launched, self._moves_home = action_space, not launch, moves_home
        self._home_rad = [float(angle) for angle in home_rad]
        self._timeout_s, self._move_timeout_s = timeout_s, move_timeout_s
        reader: Any = load_attribute(cameras) if cameras else dict
        self._cameras: Cameras = reader
        self.benchmark = f'droid, {action_space}'
        sizes = {name: (image.shape[0], image.shape[1]) for name, image in self._cameras().items()}
        super().__init__(
            HostSpec(
                name='droid', action=SPACES[action_space], control_rate_hz=control_rate_hz, state_width=len(LAYOUT),
                state_layout=LAYOUT, images=sizes,
            )
        )  # fmt: skip

    def _connect(self) -> None:
        """Launch what is not running yet, and go home."""
        if not self._is_launched:
            for name in ('launch_controller', 'launch_robot'):
                self._call(name, timeout_s=self._move_timeout_s)
            self._is_launched = True
        if self._moves_home:
            self._call('update_gripper', 0, False, True, timeout_s=self._move_timeout_s)
            self._call('update_joints', self._home_rad, False, True, None, timeout_s=self._move_timeout_s)

    def _command(self, action: FloatArray) -> FloatArray:
        if 'velocity' in self._space:  # DROID refuses others
            action[:-1] = np.clip(action[:-1], -1.0, 1.0)
        action[-1] = np.clip(action[-1], 0.0, 1.0)
        self._call('update_command', action.tolist(), self._space, 'position', False)
        return action

    def _read(self) -> tuple[FloatArray, Mapping[str, NDArray[np.uint8]]]:
        answer = self._call('get_robot_state')
        if not (isinstance(answer, list) and len(answer) == 2 and isinstance(answer[0], dict)):
            raise AnswerError(f'{self._link.url}: get_robot_state gave {str(answer)[:100]}, wanted [state, timestamps]')
        self._measured: Mapping[str, Any] = answer[0]
        wanted = {'joint_positions': N_JOINTS, 'gripper_position': 1, 'cartesian_position': 6}
        state = np.concatenate([self._numbers(name, width) for name, width in wanted.items()])
        return state, {name: np.array(image) for name, image in self._cameras().items()}

    def hold(self) -> Action:
        """No speed, or the position it was last sent to, before that the one it is at; the gripper as commanded."""
        self._check_begun()
        gripper = self._state[N_JOINTS] if self._sent is None else self._sent[-1]
        if 'velocity' in self._space:
            return np.append(np.zeros(self._spec.action.motion_width), gripper)
        if self._sent is not None:
            return self._sent.copy()
        own = self._state[:N_JOINTS] if self._space == 'joint_position' else self._state[N_JOINTS + 1 :]
        return np.append(own, gripper)

    def signals(self) -> Mapping[str, Any]:
        """What DROID measures, and what was sent to it after its limits."""
        self._check_begun()
        return {
            'joint_position_rad': self._state[:N_JOINTS], 'gripper_position': float(self._state[N_JOINTS]),
            'joint_velocity_rad_s': self._numbers('joint_velocities', N_JOINTS),
            'joint_torque_nm': self._numbers('motor_torques_measured', N_JOINTS), **super().signals(),
        }  # fmt: skip

    def protocol(self) -> ProtocolFacts:
        starts = 'arm in its rest pose, scene set by the operator' if self._moves_home else 'set by the operator'
        return dataclasses.replace(super().protocol(), initial_states=starts)

    def close(self) -> None:
        """Disconnect. The controller keeps holding the arm, as it does when DROID's own client ends."""
        self._is_begun = False
        self._link.close()

    def _numbers(self, name: str, width: int) -> FloatArray:
        try:
            values = np.atleast_1d(np.asarray(self._measured[name], dtype=float))
        except (KeyError, TypeError, ValueError) as error:
            raise AnswerError(f'{self._link.url}: the state of the robot has no numbers as {name!r}') from error
        if values.shape != (width,):
            raise AnswerError(f'{self._link.url}: {name} is {values}, wanted {width} numbers')
        return values

    def _call(self, name: str, *given: object, timeout_s: float | None = None) -> Any:
        try:
            return self._link.call(name, *given, timeout_s=timeout_s or self._timeout_s)
        except (NoAnswer, RemoteError) as error:  # a robot's faults are always the rig's
            raise RigError(str(error)) from error
