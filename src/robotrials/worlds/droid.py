"""A DROID robot as a host: a Franka arm behind the robot server of github.com/droid-dataset/droid.

The server (scripts/server/run_server.py) gives out its ``FrankaRobot`` with zerorpc, on ZeroMQ and msgpack, port 4242;
what is called here, and with which arguments, is what its own client (droid/misc/server_interface.py) and environment
(droid/robot_env.py) call. Cameras are no part of that server. Nobody but a person sets the scene and judges what
happened: an episode ends at its cap, or when the operator says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.catalog import load_attribute
from robotrials.errors import AnswerError, InputError, NoAnswer, RemoteError, RigError, UnknownName
from robotrials.record import Outcome
from robotrials.run.host import Host
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


class DroidHost(Host):
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
        reader: Any = load_attribute(cameras) if cameras else None
        self._cameras: Cameras | None = reader
        pictures = self._cameras() if self._cameras is not None else {}
        self._is_begun, self._began_s, self._sent = False, 0.0, None
        self._spec = HostSpec(
            name='droid',
            action=SPACES[action_space],
            control_rate_hz=control_rate_hz,
            state_width=len(LAYOUT),
            state_layout=LAYOUT,
            images={name: (image.shape[0], image.shape[1]) for name, image in pictures.items()},
        )

    _sent: FloatArray | None

    @property
    def spec(self) -> HostSpec:
        return self._spec

    def reset(self, task: str, *, seed: int) -> Observation:
        """Launch what is not running yet, go home, and look; the operator has set the scene."""
        self._is_begun = False
        if not self._is_launched:
            for name in ('launch_controller', 'launch_robot'):
                self._call(name, timeout_s=self._move_timeout_s)
            self._is_launched = True
        if self._moves_home:
            self._call('update_gripper', 0, False, True, timeout_s=self._move_timeout_s)
            self._call('update_joints', self._home_rad, False, True, None, timeout_s=self._move_timeout_s)
        self._is_begun, self._began_s, self._sent = True, time.monotonic(), None
        return self._look()

    def step(self, action: Action) -> Observation:
        self._check_begun()
        wanted, width = np.asarray(action, dtype=float), self._spec.action.width
        if wanted.shape != (width,) or not np.isfinite(wanted).all():
            raise InputError(f'an action is {wanted}, wanted {width} finite numbers')
        sent = wanted.copy()
        if 'velocity' in self._space:  # DROID refuses others
            sent[:-1] = np.clip(sent[:-1], -1.0, 1.0)
        sent[-1] = np.clip(sent[-1], 0.0, 1.0)
        self._call('update_command', sent.tolist(), self._space, 'position', False)
        self._sent = sent
        return self._look()

    def outcome(self) -> Outcome | None:
        return None

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
        measured: dict[str, Any] = {
            'joint_position_rad': self._state[:N_JOINTS], 'gripper_position': float(self._state[N_JOINTS]),
            'joint_velocity_rad_s': self._read('joint_velocities', N_JOINTS),
            'joint_torque_nm': self._read('motor_torques_measured', N_JOINTS),
        }  # fmt: skip
        return measured if self._sent is None else {**measured, 'action_processed_own': self._sent}

    def protocol(self) -> ProtocolFacts:
        return ProtocolFacts(
            benchmark=f'droid, {self._space}',
            control_rate_hz=self._spec.control_rate_hz,
            initial_states='arm in its rest pose, scene set by the operator'
            if self._moves_home
            else 'set by the operator',
            success_predicate='none: somebody has to judge',
            success_at_reset='not looked at',
        )

    def close(self) -> None:
        """Hang up. The controller goes on holding the arm, as it does when DROID's own client ends."""
        self._is_begun = False
        self._link.close()

    # --- inside

    def _look(self) -> Observation:
        told = self._call('get_robot_state')
        if not (isinstance(told, list) and len(told) == 2 and isinstance(told[0], dict)):
            raise AnswerError(f'{self._link.url}: get_robot_state gave {str(told)[:100]}, wanted [state, timestamps]')
        self._measured: Mapping[str, Any] = told[0]
        gripper = self._read('gripper_position', 1)
        self._state = np.concatenate(
            [self._read('joint_positions', N_JOINTS), gripper, self._read('cartesian_position', 6)]
        )
        images = {} if self._cameras is None else {name: np.array(image) for name, image in self._cameras().items()}
        for name, size in self._spec.images.items():
            if name not in images or images[name].shape != (*size, 3) or images[name].dtype != np.uint8:
                raise RigError(f'camera {name} gave no RGB picture of {size[0]} x {size[1]} pixels')
        return Observation(time.monotonic() - self._began_s, self._state.copy(), images=images)

    def _read(self, name: str, width: int) -> FloatArray:
        try:
            values = np.atleast_1d(np.asarray(self._measured[name], dtype=float))
        except (KeyError, TypeError, ValueError) as error:
            raise AnswerError(f'{self._link.url}: the state of the robot has no numbers as {name!r}') from error
        if values.shape != (width,) or not np.isfinite(values).all():
            raise AnswerError(f'{self._link.url}: {name} is {values}, wanted {width} finite numbers')
        return values

    def _call(self, name: str, *given: object, timeout_s: float | None = None) -> Any:
        try:
            return self._link.call(name, *given, timeout_s=timeout_s or self._timeout_s)
        except (NoAnswer, RemoteError) as error:  # a robot's faults are nobody's but the rig's
            raise RigError(str(error)) from error

    def _check_begun(self) -> None:
        if not self._is_begun:
            raise InputError('no episode is under way; call reset(task, seed=...) first')
