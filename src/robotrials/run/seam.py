"""The seams of an episode: what passes between host and policy, and what its numbers mean."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.record import Event
from robotrials.record.episode import ParameterValue
from robotrials.record.trajectory import Camera
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.record import Episode
    from robotrials.record.footage import FilmStates


# What numbers in an action and an observation mean. Both sides of a trial state it; a mismatch is found at start.

E = TypeVar('E', bound=enum.StrEnum)
LONGEST_HISTORY = 1000  # control steps


class ControlMode(enum.StrEnum):
    JOINT_POSITION = 'joint_position'  # rad (m for a prismatic joint)
    JOINT_VELOCITY = 'joint_velocity'  # rad/s
    SE3 = 'se3'  # metres and a rotation of the tool


class Target(enum.StrEnum):
    ABSOLUTE = 'absolute'  # where to be
    DELTA = 'delta'  # how far to move in one control step


class Frame(enum.StrEnum):
    WORLD = 'world'
    BASE = 'base'
    TOOL = 'tool'
    JOINT = 'joint'


class Rotation(enum.StrEnum):
    NONE = 'none'  # translation only
    AXIS_ANGLE = 'axis_angle'
    EULER_XYZ = 'euler_xyz'
    QUATERNION_WXYZ = 'quaternion_wxyz'
    QUATERNION_XYZW = 'quaternion_xyzw'
    MATRIX_6D = 'matrix_6d'  # the first two columns of the rotation matrix


class Gripper(enum.StrEnum):
    """The sign of the gripper command; its range follows."""

    NONE = 'none'
    OPEN_IS_PLUS_ONE = 'open_is_plus_one'  # -1 closed .. +1 open
    CLOSED_IS_PLUS_ONE = 'closed_is_plus_one'  # -1 open .. +1 closed
    OPEN_IS_ONE = 'open_is_one'  # 0 closed .. 1 open
    CLOSED_IS_ONE = 'closed_is_one'  # 0 open .. 1 closed


ROTATION_WIDTH: Mapping[Rotation, int] = {
    Rotation.NONE: 0,
    Rotation.AXIS_ANGLE: 3,
    Rotation.EULER_XYZ: 3,
    Rotation.QUATERNION_WXYZ: 4,
    Rotation.QUATERNION_XYZW: 4,
    Rotation.MATRIX_6D: 6,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionConvention:
    """How one action is written: motion first (joints, or translation then rotation), the gripper last."""

    control_mode: ControlMode
    target: Target
    frame: Frame
    n_joints: int = 0  # for joint modes
    rotation: Rotation = Rotation.NONE  # for SE(3)
    gripper: Gripper = Gripper.NONE

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            kind = _ENUMS.get(f.name)
            if kind is not None:
                object.__setattr__(self, f.name, enum_value(kind, getattr(self, f.name), f.name))
        if self.control_mode is ControlMode.SE3:
            if self.n_joints:
                raise InputError(f'n_joints is {self.n_joints} in an SE(3) convention, wanted 0')
            if self.frame is Frame.JOINT:
                raise InputError('frame is joint in an SE(3) convention, wanted world, base or tool')
        elif self.n_joints < 1 or self.rotation is not Rotation.NONE or self.frame is not Frame.JOINT:
            raise InputError(
                f'a {self.control_mode} convention wants n_joints >= 1, rotation none and frame joint, '
                f'found {self.n_joints}, {self.rotation} and {self.frame}'
            )

    @property
    def motion_width(self) -> int:
        """How many numbers of an action move the arm."""
        return 3 + ROTATION_WIDTH[self.rotation] if self.control_mode is ControlMode.SE3 else self.n_joints

    @property
    def width(self) -> int:
        """How many numbers an action has."""
        return self.motion_width + (self.gripper is not Gripper.NONE)


_ENUMS: dict[str, type[enum.StrEnum]] = {
    'control_mode': ControlMode,
    'target': Target,
    'frame': Frame,
    'rotation': Rotation,
    'gripper': Gripper,
}


def enum_value(kind: type[E], value: str, name: str) -> E:
    """The member with this value, or an error that lists the members."""
    try:
        return kind(value)
    except ValueError as error:
        raise InputError(f'{name} is {value!r}, wanted one of: {", ".join(m.value for m in kind)}') from error


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """What a host takes and shows. `images` maps a camera to (height, width) in pixels, RGB, uint8."""

    name: str
    action: ActionConvention
    control_rate_hz: float
    state_width: int = 0
    state_layout: tuple[str, ...] = ()  # what each number of the state is, with its unit: ('joint_0_rad', ...)
    images: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    conditions: tuple[str, ...] = ()  # the conditions it can bring about, besides nominal
    tasks: tuple[str, ...] = ()  # the tasks it knows; empty: it does not say
    labels: tuple[str, ...] = ()  # the nuisance labels it can bring about by itself
    transport_latency_s: float | None = None  # from the command to the first motion, if known
    shows_upside_down: bool = False  # its pictures are, as checkpoints were trained on them; films are turned

    def __post_init__(self) -> None:
        if not self.control_rate_hz > 0:
            raise InputError(f'host {self.name}: control_rate_hz is {self.control_rate_hz}, wanted > 0')
        if self.state_layout and len(self.state_layout) != self.state_width:
            count = f'{len(self.state_layout)} names for a state of {self.state_width} numbers'
            raise InputError(f'host {self.name}: state_layout has {count}')


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """What a policy gives and needs; None means that it does not care.

    `images` maps the host's cameras to the (height, width) wanted, or None for any size.
    """

    name: str
    action: ActionConvention
    chunk_length: int = 1
    control_rate_hz: float | None = None
    state_width: int | None = None
    state_layout: tuple[str, ...] = ()  # empty: it does not say
    images: Mapping[str, tuple[int, int] | None] = field(default_factory=dict)
    execute: int | None = None  # actions of a chunk that are taken before it is asked again, unless the plan says
    is_remote: bool = False  # behind a wire: what each answer took is recorded, whether or not it is charged
    moments: tuple[int, ...] = ()  # earlier control steps that it is shown with the present one, such as (-15,)

    def __post_init__(self) -> None:
        if self.chunk_length < 1:
            raise InputError(f'policy {self.name}: chunk_length is {self.chunk_length}, wanted >= 1')
        if any(not -LONGEST_HISTORY <= moment < 0 for moment in self.moments):
            raise InputError(f'policy {self.name}: moments are {self.moments}, wanted -{LONGEST_HISTORY} to -1')
        if self.execute is not None and not 1 <= self.execute <= self.chunk_length:
            raise InputError(f'policy {self.name}: execute is {self.execute}, wanted 1 to {self.chunk_length}')


def check_conventions(host: HostSpec, policy: PolicySpec, *, policy_name: str | None = None) -> None:
    """Raise InputError that lists every mismatch, naming both sides; `policy_name` stands in for the policy's own."""
    clashes = list(_mismatches(host, policy))
    if clashes:
        label = policy_name or policy.name
        lines = [f'{what}: host {host.name} has {ours}, policy {label} has {theirs}' for what, ours, theirs in clashes]
        if policy.state_width is not None and policy.state_width > host.state_width:
            lines.append('if the policy reads the true state, say state = "privileged" among the options of the host')
        raise InputError('host and policy do not fit together: ' + '; '.join(lines))


def _mismatches(host: HostSpec, policy: PolicySpec) -> Iterator[tuple[str, object, object]]:
    for f in dataclasses.fields(ActionConvention):
        ours, theirs = getattr(host.action, f.name), getattr(policy.action, f.name)
        if ours != theirs:
            yield f.name, ours, theirs
    if policy.control_rate_hz is not None and policy.control_rate_hz != host.control_rate_hz:
        yield 'control_rate_hz', f'{host.control_rate_hz:g}', f'{policy.control_rate_hz:g}'
    if policy.state_width is not None and policy.state_width != host.state_width:
        yield 'state_width', host.state_width, policy.state_width
    if policy.state_layout and policy.state_layout != host.state_layout:
        yield 'state_layout', list(host.state_layout) or 'none', list(policy.state_layout)
    for camera, size in policy.images.items():
        if camera not in host.images:
            yield f'camera {camera}', f'only {", ".join(host.images) or "no cameras"}', 'a need of it'
        elif size is not None and tuple(size) != tuple(host.images[camera]):
            yield f'camera {camera} (height, width)', tuple(host.images[camera]), tuple(size)


FloatArray = NDArray[np.floating[Any]]
Action = FloatArray  # (A,), as the ActionConvention says


def is_finite(values: NDArray[Any]) -> bool:
    """Whether numbers are all finite; of the few of a control step `.all()` would take three times as long."""
    return b'\0' not in np.isfinite(values).tobytes()


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """What the host shows at `t_s` seconds after the reset. The arrays are the receiver's: the host keeps none."""

    t_s: float
    state: FloatArray  # (S,)
    images: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)  # camera -> (H, W, 3)
    depth_m: Mapping[str, FloatArray] = field(default_factory=dict)  # camera -> (H, W), along the optical axis
    cameras: Mapping[str, Camera] = field(default_factory=dict)  # calibration as it stands at t_s
    under_way: FloatArray | None = None  # (m, A): the policy's commands not carried out at t_s; None: it is not told
    past: Mapping[int, Observation] = field(default_factory=dict)  # the earlier steps that the policy's spec asks for


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A policy's answer: h actions to be taken one a control step, and how long the model itself thought, if known."""

    actions: FloatArray  # (h, A)
    inference_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What an episode is to be, for both sides; it names no policy."""

    task: str
    seed: int
    instruction: str = ''
    stratum: str = ''
    condition: str = 'nominal'
    condition_parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    instance: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    items: int | None = None


def setup_again(episode: Episode) -> Setup:
    """The set-up of a recorded episode, without its labels: those also say how it was run."""
    names = ('task', 'instruction', 'stratum', 'condition', 'condition_parameters', 'items')
    shared = {name: getattr(episode, name) for name in names}
    return Setup(seed=episode.seed or 0, instance=episode.instance or 0, **shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """The host's own account of a finished episode; what it does not know is None."""

    success: bool | None = None
    score: float | None = None
    max_score: float | None = None
    items: int | None = None
    items_placed: int | None = None
    items_lost: int | None = None
    is_unrecoverable: bool | None = None
    reason: str = ''
    instruction: str = ''  # what was asked for in words, if the host drew it
    labels: Mapping[str, str] = field(default_factory=dict)  # what else it knows of the episode
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class StepPart:
    """A part of a control step: from substep `start` on the arm follows `action`, until the next part begins.

    The action is complete at substep `ends`, which may lie in a later control step: of a displacement so much is
    carried out as substeps of it pass, and a target is to be reached by then.
    """

    start: int
    action: Action
    ends: int


@dataclass(frozen=True, slots=True, eq=False)
class Shot:
    """What one camera saw of an episode: a frame (H, W, 3) for each of the footage's steps, drawn when asked for."""

    camera: Camera  # named as the host names it, calibrated at the film's size
    frames: Iterable[NDArray[np.uint8]]


@dataclass(frozen=True, slots=True, eq=False)
class Footage:
    """An episode as its host can draw it. The shots are taken one after the other, before anything else is asked."""

    states: FilmStates
    shots: tuple[Shot, ...]


@runtime_checkable
class Session(Protocol):
    """One episode's worth of acting; nothing of it outlives the episode."""

    def act(self, observation: Observation) -> Chunk: ...


@runtime_checkable
class Policy(Protocol):
    """Who acts. Opened once by a worker; starts a session for every episode."""

    @property
    def spec(self) -> PolicySpec: ...

    def start(self, setup: Setup, *, seed: int) -> Session:
        """Begin an episode; `seed` is for the policy's own randomness."""


@runtime_checkable
class FittedPolicy(Protocol):
    """A policy that maps between its own conventions and a host's. Fitted before conventions are compared."""

    def fit(self, host: HostSpec) -> None:
        """Bind the mapping to a host; InputError says what does not fit. Afterwards `spec` is in the host's terms."""


@runtime_checkable
class ClosablePolicy(Protocol):
    """A policy (or a session) with something to release."""

    def close(self) -> None: ...


# Protocol facts: what a host says of its own rules, so that two results can be told to be about the same thing.

HASH_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolFacts:
    """The rules of a host. None and '' mean that the host does not know.

    `step_cap` is the benchmark's own, in control steps; the plan's time cap is what ends an episode. `assets_note` says
    what is wrong with the assets, and is shown in every report; empty means that they are the originals, or that the
    host has none.
    """

    benchmark: str
    control_rate_hz: float
    step_cap: int | None = None
    settling_steps: int | None = None
    initial_states: str = ''  # how an instance becomes a start state, with a hash of what it is read from
    success_predicate: str = ''
    success_source: str = ''  # hash of the predicate's source
    success_at_reset: str = ''  # what a start state that already meets the predicate counts as
    assets: str = ''  # hash
    assets_note: str = ''
    simulator: str = ''
    packages: Mapping[str, str] = field(default_factory=dict)
    render_flags: Mapping[str, str] = field(default_factory=dict)

    def stated(self) -> dict[str, str]:
        """Everything but packages and render flags that is known, as text, by name."""
        separate = ('packages', 'render_flags')
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in separate}
        return {n: f'{v:g}' if isinstance(v, float) else str(v) for n, v in values.items() if v not in (None, '')}


def source_hash(*things: object) -> str:
    """A hash of the source of functions or classes, as they stand in their files."""
    text = '\n'.join(inspect.getsource(thing) for thing in things)  # type: ignore[arg-type]
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


def openblas_kernels() -> dict[str, str]:
    """Which processor's kernels numpy's OpenBLAS has chosen: others round otherwise. Empty where it is not told."""
    import ctypes

    maps = Path('/proc/self/maps')
    files = {line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines()} if maps.exists() else set()
    for file in sorted(file for file in files if 'openblas' in file and 'numpy' in file):
        library = ctypes.CDLL(file)  # numpy has loaded it: this is another handle to the same
        for name in ('scipy_openblas_get_corename64_', 'openblas_get_corename64_', 'openblas_get_corename'):
            if hasattr(library, name):
                ask = getattr(library, name)
                ask.restype = ctypes.c_char_p
                return {'openblas kernels': ask().decode()}
    return {}
