"""What a condition is: a small value that says what is disturbed, how hard, and by which draw.

A condition holds the drawn numbers themselves, so that an episode's record stays true whatever later versions would
draw. A severity of 0 disturbs nothing; along a ladder of severities one seed keeps its direction and grows.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.record.episode import ParameterValue
from robotrials.value import dataclass

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]

NOMINAL = 'nominal'


class Effect(enum.StrEnum):
    """What a condition changes: a policy that doesn't read it should not care."""

    RGB = 'rgb'
    DEPTH = 'depth'
    CALIBRATION = 'calibration'
    INSTRUCTION = 'instruction'
    LAYOUT = 'layout'  # where the objects start
    OBJECTS = 'objects'  # which objects there are
    ROBOT_STATE = 'robot_state'
    PHYSICS = 'physics'
    TIMING = 'timing'


@runtime_checkable
class Condition(Protocol):
    """One disturbance. `kind` names it in records and plans; `effects` are declared, not measured."""

    @property
    def kind(self) -> str: ...

    @property
    def effects(self) -> frozenset[Effect]: ...

    @property
    def severity(self) -> float: ...

    @property
    def seed(self) -> int: ...


@dataclass(frozen=True, slots=True, eq=False)
class CameraFrame:
    """One camera's image, with depth and calibration where the host has them."""

    camera: str
    rgb: NDArray[np.uint8]  # (H, W, 3)
    depth_m: FloatArray | None = None  # (H, W), missing where not finite or not positive
    intrinsics_px: FloatArray | None = None  # (3, 3)
    world_from_camera: FloatArray | None = None  # (4, 4)
    background: BoolArray | None = None  # (H, W) which pixels are table or background, where that is known

    def __post_init__(self) -> None:
        if self.rgb.dtype != np.uint8 or self.rgb.ndim != 3 or self.rgb.shape[2] != 3:
            raise InputError(
                f'camera {self.camera}: rgb must be (H, W, 3) uint8, found {self.rgb.shape} {self.rgb.dtype}'
            )
        for name in ('depth_m', 'background'):
            plane = getattr(self, name)
            if plane is not None and plane.shape != self.rgb.shape[:2]:
                raise InputError(f'camera {self.camera}: {name} is {plane.shape}, wanted {self.rgb.shape[:2]}')


@runtime_checkable
class FrameCondition(Condition, Protocol):
    """A condition that can be laid over any host's camera frames."""

    def disturb(self, frame: CameraFrame, *, step: int) -> CameraFrame:
        """The disturbed frame; the same seed, camera and step give the same noise."""


def check_severity(kind: str, severity: float) -> float:
    """The severity as a float in [0, 1]."""
    if isinstance(severity, bool) or not (math.isfinite(severity) and 0 <= severity <= 1):
        raise InputError(f'condition {kind}: severity must lie in [0, 1], found {severity!r}')
    return float(severity)


def generator(kind: str, seed: int, *more: int | str) -> np.random.Generator:
    """The random stream of a condition, and of a camera and a step of it."""
    parts = [zlib.crc32(kind.encode()), int(seed), *(zlib.crc32(m.encode()) if isinstance(m, str) else m for m in more)]
    return np.random.default_rng(parts)


def signed_size(rng: np.random.Generator, *, least: float = 0.6) -> float:
    """A size in [least, 1] with a random sign: what a severity of 1 is multiplied by."""
    return float(rng.uniform(least, 1.0) * rng.choice((-1.0, 1.0)))


@dataclass(frozen=True, slots=True)
class Compound:
    """Several conditions at once, in the order in which they are applied."""

    name: str
    parts: tuple[Condition, ...]

    def __post_init__(self) -> None:
        kinds = [part.kind for part in self.parts]
        if len(set(kinds)) != len(kinds):
            raise InputError(f'a compound condition takes each kind once, found {", ".join(kinds)}')
        if not self.parts:
            raise InputError('a compound condition needs at least one part')

    @property
    def kind(self) -> str:
        return self.name

    @property
    def effects(self) -> frozenset[Effect]:
        return frozenset().union(*(part.effects for part in self.parts))

    @property
    def severity(self) -> float:
        return max(part.severity for part in self.parts)

    @property
    def seed(self) -> int:
        return self.parts[0].seed

    def disturb(self, frame: CameraFrame, *, step: int) -> CameraFrame:
        """Every part that can be laid over frames, in order."""
        for part in self.parts:
            if isinstance(part, FrameCondition):
                frame = part.disturb(frame, step=step)
        return frame


def compose(*conditions: Condition, name: str = '') -> Condition:
    """One condition of several; compounds are taken apart. A single one stays as it is."""
    parts = [p for c in conditions for p in (c.parts if isinstance(c, Compound) else (c,))]
    if len(parts) == 1 and not name:
        return parts[0]
    return Compound(name or '+'.join(part.kind for part in parts), tuple(parts))


def parts_of(condition: Condition) -> tuple[Condition, ...]:
    """The single conditions that a condition is made of."""
    return condition.parts if isinstance(condition, Compound) else (condition,)


C = TypeVar('C')


class ConditionKinds:
    """Kinds by name, for reading records back. A new kind registers its class."""

    def __init__(self) -> None:
        self._classes: dict[str, type[Any]] = {}

    def add(self, kind: type[C]) -> type[C]:
        for name in getattr(kind, 'KINDS'):  # noqa: B009 - a ClassVar that the type variable does not know of
            self._classes[name] = kind
        return kind

    def find(self, kind: str) -> type[Any]:
        if kind not in self._classes:
            raise UnknownName('condition', kind, self._classes)
        return self._classes[kind]

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._classes))


CONDITIONS = ConditionKinds()


def condition_parameters(condition: Condition) -> dict[str, ParameterValue]:
    """What an episode records of a condition, beside its name: every drawn number.

    A compound's parameters are named `kind.field`, so that none is mistaken for another.
    """
    if isinstance(condition, Compound):
        return {f'{p.kind}.{name}': v for p in condition.parts for name, v in condition_parameters(p).items()}
    values: dict[str, ParameterValue] = {}
    for field in dataclasses.fields(condition):  # type: ignore[arg-type]
        value = getattr(condition, field.name)
        if not isinstance(value, str | int | float | bool):
            raise InputError(
                f'condition {condition.kind}: field {field.name} is {type(value).__name__}, wanted a scalar'
            )
        values[field.name] = value
    return values


def read_condition(name: str, parameters: Mapping[str, ParameterValue]) -> Condition | None:
    """The condition that an episode records; None for the nominal one."""
    if name == NOMINAL and not parameters:
        return None
    prefixes = list(dict.fromkeys(key.split('.', 1)[0] for key in parameters if '.' in key))
    if prefixes:
        parts = [
            read_condition(p, {k.split('.', 1)[1]: v for k, v in parameters.items() if k.startswith(f'{p}.')})
            for p in prefixes
        ]
        # An episode sorts its parameters; the order of application is that of the kinds' own table.
        known = [part for part in parts if part is not None]
        known.sort(key=lambda part: APPLICATION_ORDER.index(part.kind) if part.kind in APPLICATION_ORDER else 99)
        return Compound(name, tuple(known))
    kind = CONDITIONS.find(name)
    wanted = {f.name for f in dataclasses.fields(kind)}
    # A field that came later has a default that means what records without it did.
    needed = {f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING}
    if not needed <= set(parameters) <= wanted:
        missing, extra = sorted(needed - set(parameters)), sorted(set(parameters) - wanted)
        raise InputError(f'condition {name}: parameters missing {missing or "none"}, unknown {extra or "none"}')
    read: Condition = kind(**parameters)
    return read


APPLICATION_ORDER: Sequence[str] = (
    'layout', 'displacement', 'support', 'distractor', 'robot_state', 'disturbance', 'background', 'light',
    'camera_bumped', 'camera_moved', 'exposure+', 'exposure-', 'sensor_noise', 'instruction', 'latency',
)  # fmt: skip


class SingleCondition:
    """What the kinds share: a fixed kind name and declared effects."""

    KINDS: ClassVar[tuple[str, ...]] = ()
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset()
    __slots__ = ()

    @property
    def kind(self) -> str:
        return self.KINDS[0]

    @property
    def effects(self) -> frozenset[Effect]:
        return self.EFFECTS


# What the world and the wires do: friction, drag, and time that passes between seeing and acting.


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance(SingleCondition):
    """Unmodelled disturbance: another friction of all surfaces, a drag on the tool, and a cable that pulls at it."""

    KINDS: ClassVar[tuple[str, ...]] = ('disturbance',)
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.PHYSICS})

    severity: float
    seed: int
    friction_scale: float  # times the host's own friction
    drag_n_s_m: float  # force against the tool's motion, a newton for each metre a second
    pull_n: float  # a steady force on the tool, level
    pull_azimuth_rad: float

    @classmethod
    def draw(cls, severity: float, *, seed: int) -> Disturbance:
        s, rng = check_severity('disturbance', severity), generator('disturbance', seed)
        return cls(
            severity=s,
            seed=seed,
            friction_scale=float(2.0 ** (s * 1.5 * signed_size(rng))),
            drag_n_s_m=60.0 * s * float(rng.uniform(0.6, 1.0)),
            pull_n=60.0 * s * float(rng.uniform(0.6, 1.0)),
            pull_azimuth_rad=float(rng.uniform(-np.pi, np.pi)),
        )


@dataclass(frozen=True, slots=True)
class Delay:
    """The three parts of the time between an observation and its action (equation 2), in seconds."""

    network_s: float
    inference_s: float
    transport_s: float

    @property
    def total_s(self) -> float:
        return self.network_s + self.inference_s + self.transport_s

    def plus(self, other: Delay) -> Delay:
        return Delay(
            self.network_s + other.network_s, self.inference_s + other.inference_s, self.transport_s + other.transport_s
        )


@CONDITIONS.add
@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(SingleCondition):
    """Delay between seeing and acting: three means, and a jitter as a share of each; the loop charges it."""

    KINDS: ClassVar[tuple[str, ...]] = ('latency',)
    EFFECTS: ClassVar[frozenset[Effect]] = frozenset({Effect.TIMING})

    severity: float
    seed: int
    network_s: float
    inference_s: float
    transport_s: float
    jitter: float

    @classmethod
    def draw(cls, severity: float, *, seed: int) -> Latency:
        s, rng = check_severity('latency', severity), generator('latency', seed)
        size = [float(v) for v in rng.uniform(0.7, 1.0, 3)]
        return cls(
            severity=s,
            seed=seed,
            network_s=0.2 * s * size[0],
            inference_s=0.2 * s * size[1],
            transport_s=0.04 * s * size[2],
            jitter=0.5 if s else 0.0,
        )

    def delay(self, step: int) -> Delay:
        """The delay of one step: each part times a log-normal factor of mean one."""
        rng = generator('latency', self.seed, step)
        spread = float(np.sqrt(np.log1p(self.jitter**2)))
        factor = np.exp(spread * rng.standard_normal(3) - spread**2 / 2)
        return Delay(
            float(self.network_s * factor[0]), float(self.inference_s * factor[1]), float(self.transport_s * factor[2])
        )
