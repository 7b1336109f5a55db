"""A real arm as a host, over rosbridge: joint states, commands, cameras, stage and emergency stop.

What the arm is and which topics it has is declared in the options. Whatever the rig does wrong (silence, messages that
are none, a lost connection) ends the episode as INVALID; the emergency stop ends it as a safety stop.
"""

from __future__ import annotations

import base64
import enum
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError, InputError, NoAnswer, RigError, RobotrialsError
from robotrials.record import Camera, Event, EventKind, Outcome, Scene
from robotrials.record.footage import KnownScene, View, read_scene
from robotrials.run.host import SteppedHost
from robotrials.run.seam import (
    Action,
    ActionConvention,
    ControlMode,
    FloatArray,
    Frame,
    Gripper,
    HostReport,
    HostSpec,
    Observation,
    ProtocolFacts,
    Rotation,
    Setup,
    Target,
)
from robotrials.value import read_table
from robotrials.wire.array import decode_image
from robotrials.wire.websocket import RosbridgeLink
from robotrials.worlds.depth import DepthEntry, DepthWatch, is_number, reset_fault, stamp_s

JOINT_STATE, IMAGE = 'sensor_msgs/msg/JointState', 'sensor_msgs/msg/CompressedImage'
POSE, FLOAT, TRUTH, TEXT = ('geometry_msgs/msg/PoseStamped', 'std_msgs/msg/Float64', 'std_msgs/msg/Bool',
                            'std_msgs/msg/String')  # fmt: skip


class CommandKind(enum.StrEnum):
    JOINT_POSITIONS = 'joint_positions'  # std_msgs/Float64MultiArray, as ros2_control's forward controllers take
    JOINT_TRAJECTORY = 'joint_trajectory'  # trajectory_msgs/JointTrajectory of one point
    TWIST = 'twist'  # geometry_msgs/TwistStamped, as MoveIt Servo takes

    @property
    def message_type(self) -> str:
        return {
            'joint_positions': 'std_msgs/msg/Float64MultiArray',
            'joint_trajectory': 'trajectory_msgs/msg/JointTrajectory',
            'twist': 'geometry_msgs/msg/TwistStamped',
        }[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEntry:
    topic: str
    kind: CommandKind
    frame: str = 'base_link'  # of a twist


@dataclass(frozen=True, slots=True, kw_only=True)
class GripperEntry:
    """How the gripper is commanded (a Float64), and by which joint it is measured."""

    topic: str
    joint: str
    open: float = 1.0  # what is sent for open and closed
    closed: float = 0.0
    joint_open: float = 1.0  # where the joint then is
    joint_closed: float = 0.0

    def __post_init__(self) -> None:
        if self.open == self.closed or self.joint_open == self.joint_closed:
            raise InputError('open and closed are the same number')


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraEntry:
    topic: str
    height: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEntry:
    """The service that sets the scene; {task}, {seed}, {instance}, {stratum} and {items} stand for the episode's."""

    service: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictEntry:
    """A topic of std_msgs/String on which a judge says how it ended."""

    topic: str
    success: str = 'success'
    failure: str = 'failure'


@dataclass(frozen=True, slots=True, kw_only=True)
class RosbridgeOptions:
    """An arm behind a rosbridge. Topics that are not named are not there.

    stop: std_msgs/Bool, true while the emergency stop is pressed; it must be latched or repeated. halt: a service
    without arguments that stops the arm; called when an episode ends badly. tool: the measured pose of the tool.
    max_age_s: for how long joint states may be silent; camera_age_s: how old a picture may be.
    depth: RGB-D cameras, whose views are kept and can be scored by anyone; known: the file of what is known of a scene,
    with {task}, {seed} and {instance} for the episode's; park: a service that drives the arm out of their sight at the
    end; check_reset: whether a scene that is not as known is refused; across_s: how far cameras may lie apart in time.
    """

    url: str
    joints: tuple[str, ...]
    command: CommandEntry
    joint_states: str = '/joint_states'
    control_rate_hz: float = 20.0
    name: str = 'rosbridge'
    gripper: GripperEntry | None = None
    cameras: Mapping[str, CameraEntry] = field(default_factory=dict)
    tool: str = ''
    stage: StageEntry | None = None
    verdict: VerdictEntry | None = None
    stop: str = ''
    halt: str = ''
    torque_limit_nm: tuple[float, ...] = ()
    connect_s: float = 10.0
    max_age_s: float = 0.5
    camera_age_s: float = 1.0
    depth: Mapping[str, DepthEntry] = field(default_factory=dict)
    known: str = ''
    park: str = ''
    check_reset: bool = False
    across_s: float = 0.1

    def __post_init__(self) -> None:
        if bool(self.depth) != bool(self.known):
            raise InputError('depth cameras and the file of what is known of a scene (known) belong together')
        if self.check_reset and not self.depth:
            raise InputError('check_reset needs depth cameras: give depth and known')
        if not self.joints or len(set(self.joints)) != len(self.joints):
            raise InputError(f'joints is {list(self.joints)}, wanted the names of different joints')
        if self.torque_limit_nm and len(self.torque_limit_nm) != len(self.joints):
            raise InputError(f'torque_limit_nm has {len(self.torque_limit_nm)} numbers for {len(self.joints)} joints')
        for name in ('connect_s', 'max_age_s', 'camera_age_s'):
            if not getattr(self, name) > 0:
                raise InputError(f'{name} is {getattr(self, name)}, wanted > 0')


class RosbridgeHost(SteppedHost):
    """An arm behind a rosbridge server; the options are the keys of `RosbridgeOptions`.

    Run it on the wall clock. A step sends the command and waits for joint states that came after it.
    """

    def __init__(self, **options: Any) -> None:
        self._options = read_table(RosbridgeOptions, options, where='rosbridge host')
        self._link: RosbridgeLink | None = None
        self._outcome: Outcome | None = None
        self._sent: FloatArray | None = None
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._spec = _spec(self._options)
        self._watch = DepthWatch(
            self._options.depth, timeout_s=self._options.camera_age_s, across_s=self._options.across_s
        )
        self._before: dict[str, int] = {}
        self._scene: KnownScene | None = None
        self._open()

    def prepare(self, setup: Setup) -> None:
        self._setup = setup

    def reset(self, task: str, *, seed: int) -> Observation:
        """Set the scene and look at it; a pressed emergency stop is a rig that is not ready."""
        setup = self._setup_for(task, seed=seed)
        self._is_begun = False
        link = self._listening()
        if self._is_stopped(link):  # the connection is kept: a stop that is not said again must not be forgotten
            raise RigError('the emergency stop is pressed; release it and start again')
        try:
            return self._begin(link, setup)
        except RobotrialsError:
            self._drop()
            raise

    def step(self, action: Action) -> Observation:
        self._check_begun()
        sent, link = self._checked(action), self._link
        if link is None:
            raise RigError(f'{self._options.url}: the connection was lost')
        try:
            link.listen()
            before = link.count(self._options.joint_states)
            self._judge(link)
            if self._outcome is None:
                self._command(link, sent)
            seen = self._look(link, after=before)
            self._judge(link)
        except Exception:  # whatever it was, the arm must not go on
            self._halt()
            self._drop()
            raise
        if self._outcome is Outcome.SAFETY_STOP:
            self._halt()
        self._sent = sent
        return seen

    def outcome(self) -> Outcome | None:
        return self._outcome if self._is_begun else None

    def hold(self) -> Action:
        """Where the arm was commanded to be, and before that where it is; for twists no motion."""
        self._check_begun()
        if self._spec.action.target is Target.DELTA:
            held = np.zeros(self._spec.action.width)
            if self._options.gripper is not None:
                held[-1] = self._sent[-1] if self._sent is not None else self._state[-1]
            return held
        return np.array(self._sent if self._sent is not None else self._state)

    def report(self) -> HostReport:
        self._check_begun()
        known = {Outcome.SUCCESS: True, Outcome.FAILURE: False, Outcome.SAFETY_STOP: False}
        events: tuple[Event, ...] = ()
        if self._outcome is Outcome.SAFETY_STOP:
            events = (Event(self._t_s, EventKind.SAFETY_STOP),)
        success = None if self._outcome is None else known.get(self._outcome)
        return HostReport(success=success, reason=self._reason, events=events)

    def signals(self) -> Mapping[str, Any]:
        self._check_begun()
        options, message = self._options, self._message
        measured: dict[str, Any] = {'joint_position_rad': self._state[: len(options.joints)]}
        for name, column in (('velocity', 'joint_velocity_rad_s'), ('effort', 'joint_torque_nm')):
            values = joint_values(message, name, options.joints) if message.get(name) else None
            if values is not None:
                measured[column] = values
        if options.torque_limit_nm and 'joint_torque_nm' in measured:
            measured['joint_torque_limit_nm'] = np.array(options.torque_limit_nm)
        if options.gripper is not None:
            measured['gripper_position'] = float(self._state[-1])
        if self._tool is not None:
            measured['ee_pose'] = self._tool
        return measured

    def scene(self) -> Scene:
        cameras = self._options.cameras.items()
        return Scene(cameras=tuple(Camera(name, None, None, entry.width, entry.height) for name, entry in cameras))

    def protocol(self) -> ProtocolFacts:
        verdict = self._options.verdict
        stage = self._options.stage
        return ProtocolFacts(
            benchmark=self._options.name,
            control_rate_hz=self._spec.control_rate_hz,
            initial_states=f'set by the service {stage.service}' if stage is not None else 'set by the operator',
            success_predicate=f'what is said on {verdict.topic}'
            if verdict is not None
            else 'none: somebody has to judge',
            success_at_reset='not looked at: what was said before the reset does not count',
        )

    def close(self) -> None:
        """Stop the arm if an episode is under way, and let go."""
        if self._is_begun and self._outcome is None:
            self._halt()
        self._is_begun = False
        self._drop()

    # --- inside

    def _open(self) -> RosbridgeLink:
        options = self._options
        link = RosbridgeLink(options.url, timeout_s=options.connect_s)
        self._link = link
        link.subscribe(options.joint_states, JOINT_STATE)
        for entry in options.cameras.values():
            link.subscribe(entry.topic, IMAGE)
        self._watch.subscribe(link)
        for topic, kind in ((options.tool, POSE), (options.stop, TRUTH)):
            if topic:
                link.subscribe(topic, kind)
        if options.verdict is not None:
            link.subscribe(options.verdict.topic, TEXT)
        link.advertise(options.command.topic, options.command.kind.message_type)
        if options.gripper is not None:
            link.advertise(options.gripper.topic, FLOAT)
        return link

    def _listening(self) -> RosbridgeLink:
        """The connection with everything read, reopened if it was lost; an emergency stop must report its state."""
        link = self._link or self._open()
        try:
            link.listen()
        except RobotrialsError:
            self._drop()
            link = self._open()
        stop = self._options.stop
        if stop and link.heard(stop) is None:
            try:
                link.await_news(stop, after=0, timeout_s=self._options.max_age_s)
            except NoAnswer as error:
                raise NoAnswer(f'{stop} does not say whether the emergency stop is pressed ({error})') from error
        return link

    def _begin(self, link: RosbridgeLink, setup: Setup) -> Observation:
        stage = self._options.stage
        self._before = self._watch.counts(link)
        if stage is not None:
            arguments = {name: _filled(value, setup) for name, value in stage.arguments.items()}
            answer = link.call_service(stage.service, arguments, timeout_s=stage.timeout_s)
            if answer.get('success') is False:
                raise RigError(f'{stage.service}: the stage was not set: {str(answer.get("message", ""))[:300]}')
        self._verdicts = link.count(self._options.verdict.topic) if self._options.verdict is not None else 0
        self._outcome = self._sent = self._first_s = self._last_s = None
        self._reason, self._t_s = '', 0.0
        topics = [entry.topic for entry in self._options.cameras.values()]
        before = {topic: link.count(topic) for topic in (*topics, self._options.joint_states)}
        for topic in topics:
            link.await_news(topic, after=before[topic], timeout_s=self._options.camera_age_s)
        seen = self._look(link, after=before[self._options.joint_states])
        if self._options.depth:
            given = {name: getattr(setup, name) for name in ('task', 'seed', 'instance', 'stratum')}
            self._scene = read_scene(self._options.known, given)
            if self._options.check_reset:
                views = self._watch.take(link, after=self._before, first_s=self._first_s)
                if fault := reset_fault(views, self._scene):
                    raise RigError(fault)
        self._is_begun = True
        return seen

    @property
    def has_views(self) -> bool:
        return bool(self._options.depth)

    def views(self, *, is_over: bool = False) -> Mapping[str, View]:
        """RGB-D of every depth camera, taken after the reset; when all is over, after the arm was parked."""
        self._check_begun()
        if not self.has_views:
            return super().views(is_over=is_over)
        link = self._link
        if link is None:
            raise RigError(f'{self._options.url}: the connection was lost')
        if is_over:
            self._before = self._watch.counts(link)
            if self._options.park:
                answer = link.call_service(self._options.park, {}, timeout_s=60.0)
                if answer.get('success') is False:
                    raise RigError(
                        f'{self._options.park}: the arm was not parked: {str(answer.get("message", ""))[:200]}'
                    )
        return self._watch.take(link, after=self._before, first_s=self._first_s)

    def known_scene(self) -> KnownScene:
        self._check_begun()
        return super().known_scene() if self._scene is None else self._scene

    def _look(self, link: RosbridgeLink, *, after: int) -> Observation:
        """Joint states of which more than `after` came, and the newest pictures."""
        options = self._options
        message = link.await_news(options.joint_states, after=after, timeout_s=options.max_age_s)
        self._message = message
        self._state = self._read_state(message)
        self._t_s = self._time(message)
        tool = link.heard(options.tool) if options.tool else None
        self._tool = pose(tool.message) if tool is not None else None
        images = {}
        for name, entry in options.cameras.items():
            heard = link.heard(entry.topic)
            if heard is None or time.monotonic() - heard.at_s > options.camera_age_s:
                raise NoAnswer(f'{options.url}: silence: no picture of {name} within {options.camera_age_s:g} s')
            images[name] = picture(heard.message, height_px=entry.height, width_px=entry.width)
        return Observation(self._t_s, self._state.copy(), images=images)

    def _read_state(self, message: Mapping[str, Any]) -> FloatArray:
        options, gripper = self._options, self._options.gripper
        names = (*options.joints, *([gripper.joint] if gripper is not None else []))
        values = joint_values(message, 'position', names)
        if values is None:
            raise AnswerError('a joint state without positions')
        if gripper is not None:
            values[-1] = (values[-1] - gripper.joint_closed) / (gripper.joint_open - gripper.joint_closed)
        return values

    def _time(self, message: Mapping[str, Any]) -> float:
        """Seconds since the first joint state of the episode, by its stamps or, without them, by our clock."""
        now_s = stamp_s(message)
        if now_s is None:
            now_s = time.monotonic()
        if self._last_s is not None and now_s <= self._last_s:
            raise RigError(f"the arm's clock went from {self._last_s} to {now_s} s; are its stamps set?")
        self._first_s = now_s if self._first_s is None else self._first_s
        self._last_s = now_s
        return now_s - self._first_s

    def _command(self, link: RosbridgeLink, sent: FloatArray) -> None:
        entry, gripper = self._options.command, self._options.gripper
        motion: list[float] = sent[: self._spec.action.motion_width].tolist()
        if gripper is not None:
            opening = float(np.clip(sent[-1], 0.0, 1.0))
            link.publish(gripper.topic, {'data': gripper.closed + (gripper.open - gripper.closed) * opening})
        if entry.kind is CommandKind.JOINT_POSITIONS:
            message = float_array(motion)
        elif entry.kind is CommandKind.JOINT_TRAJECTORY:
            message = trajectory(self._options.joints, motion, within_s=1.0 / self._spec.control_rate_hz)
        else:
            message = twist([v * self._spec.control_rate_hz for v in motion], frame=entry.frame)
        link.publish(entry.topic, message)

    def _judge(self, link: RosbridgeLink) -> None:
        if self._outcome is not None:
            return
        if self._is_stopped(link):
            self._outcome, self._reason = Outcome.SAFETY_STOP, 'the emergency stop was pressed'
            return
        verdict = self._options.verdict
        heard = link.heard(verdict.topic) if verdict is not None else None
        if verdict is None or heard is None or heard.count <= self._verdicts:
            return
        word = heard.message.get('data')
        if word == verdict.success:
            self._outcome = Outcome.SUCCESS
        elif word == verdict.failure:
            self._outcome = Outcome.FAILURE
        elif word not in ('', None):
            raise AnswerError(f'{verdict.topic} says {str(word)[:60]!r}, wanted {verdict.success} or {verdict.failure}')

    def _is_stopped(self, link: RosbridgeLink) -> bool:
        heard = link.heard(self._options.stop) if self._options.stop else None
        if heard is None:
            return False
        pressed = heard.message.get('data')
        if not isinstance(pressed, bool):
            raise AnswerError(f'{self._options.stop} says {str(pressed)[:60]!r}, wanted true or false')
        return pressed

    def _halt(self) -> None:
        """Stop the arm; what goes wrong with that does not hide why it had to stop."""
        if self._options.halt and self._link is not None:
            try:
                self._link.call_service(self._options.halt, {}, timeout_s=self._options.max_age_s)
            except RobotrialsError as error:
                self._reason = '; '.join(
                    filter(None, [self._reason, f'and {self._options.halt} did not answer: {error}'])
                )

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def _spec(options: RosbridgeOptions) -> HostSpec:
    grip = Gripper.OPEN_IS_ONE if options.gripper is not None else Gripper.NONE
    if options.command.kind is CommandKind.TWIST:
        action = ActionConvention(
            control_mode=ControlMode.SE3,
            target=Target.DELTA,
            frame=Frame.BASE,
            rotation=Rotation.AXIS_ANGLE,
            gripper=grip,
        )
    else:
        action = ActionConvention(
            control_mode=ControlMode.JOINT_POSITION, target=Target.ABSOLUTE, frame=Frame.JOINT,
            n_joints=len(options.joints), gripper=grip,
        )  # fmt: skip
    layout = (*(f'{joint}_rad' for joint in options.joints), *(['gripper_opening'] if options.gripper else []))
    return HostSpec(
        name=options.name,
        action=action,
        control_rate_hz=options.control_rate_hz,
        state_width=len(layout),
        state_layout=layout,
        images={name: (entry.height, entry.width) for name, entry in options.cameras.items()},
    )


def _filled(value: Any, setup: Setup) -> Any:
    """A value of the stage's arguments; a text that is one of the names in braces becomes what it stands for."""
    known = {'{task}': setup.task, '{seed}': setup.seed, '{instance}': setup.instance, '{stratum}': setup.stratum,
             '{items}': setup.items or 0, '{instruction}': setup.instruction}  # fmt: skip
    return known.get(value, value) if isinstance(value, str) else value


# ROS messages as rosbridge writes them in JSON: read with every field checked, and written.

Floats = NDArray[np.float64]
FORMATS = {'jpeg': 'jpeg', 'jpg': 'jpeg', 'png': 'png'}


def joint_values(message: Mapping[str, Any], field: str, joints: Sequence[str]) -> Floats | None:
    """One field of a JointState in the order of `joints`; None where it is not given, as effort often is not."""
    names, values = message.get('name'), message.get(field)
    if not isinstance(names, list) or not isinstance(values, list):
        raise AnswerError(f'a joint state without lists of name and {field}')
    if not values:
        return None
    if len(values) != len(names):
        raise AnswerError(f'a joint state with {len(names)} names and {len(values)} numbers of {field}')
    known = dict(zip(map(str, names), values, strict=True))
    missing = [joint for joint in joints if joint not in known]
    if missing:
        raise AnswerError(f'a joint state without {", ".join(missing)}; it has {", ".join(known)}')
    chosen = [known[joint] for joint in joints]
    if not all(map(is_number, chosen)):
        raise AnswerError(f'a joint state with {field} {chosen}, wanted finite numbers')
    return np.array(chosen, dtype=float)


def picture(message: Mapping[str, Any], *, height_px: int, width_px: int) -> NDArray[np.uint8]:
    """A CompressedImage as (H, W, 3) of uint8; its size is compared before it is decompressed."""
    declared = str(message.get('format', '')).lower()
    form = next((form for name, form in FORMATS.items() if name in declared), None)
    if form is None:
        raise AnswerError(f'an image of format {declared[:60]!r}, wanted jpeg or png')
    data = message.get('data')
    if not isinstance(data, str):
        raise AnswerError(f'an image with data of type {type(data).__name__}, wanted base64')
    try:
        return np.array(decode_image(base64.b64decode(data, validate=True), form, shape=(height_px, width_px, 3)))
    except ValueError as error:
        raise AnswerError(f'an image that cannot be read: {error}') from error


def pose(message: Mapping[str, Any]) -> Floats:
    """A PoseStamped as (x, y, z, qw, qx, qy, qz)."""
    inner = message.get('pose')
    try:
        position, turn = inner['position'], inner['orientation']  # type: ignore[index]
        values = [position[k] for k in 'xyz'] + [turn[k] for k in 'wxyz']
    except (KeyError, TypeError) as error:
        raise AnswerError(f'a pose without {error}') from error
    if not all(map(is_number, values)):
        raise AnswerError(f'a pose of {values}, wanted finite numbers')
    return np.array(values, dtype=float)


def float_array(values: Sequence[float]) -> dict[str, Any]:
    """A Float64MultiArray."""
    return {'layout': {'dim': [], 'data_offset': 0}, 'data': [float(v) for v in values]}


def trajectory(joints: Sequence[str], values: Sequence[float], *, within_s: float) -> dict[str, Any]:
    """A JointTrajectory of one point, to be reached within a control step."""
    seconds = math.floor(within_s)
    reach = {'sec': seconds, 'nanosec': round((within_s - seconds) * 1e9)}
    return {
        'joint_names': list(joints),
        'points': [{'positions': [float(v) for v in values], 'time_from_start': reach}],
    }


def twist(values: Sequence[float], *, frame: str) -> dict[str, Any]:
    """A TwistStamped: metres and radians a second."""
    linear, angular = (dict(zip('xyz', map(float, part), strict=True)) for part in (values[:3], values[3:6]))
    return {'header': {'frame_id': frame}, 'twist': {'linear': linear, 'angular': angular}}
