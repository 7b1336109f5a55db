"""The mapping between a host and a policy, as a plan declares it under ``[policies.NAME.options]``.

``observation`` says how the host's observation becomes the policy's keys; ``action`` says what the policy's numbers
mean and which of them are taken. Both may start from a preset, whose values are kept where the plan says nothing else.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from robotrials.declaration import read_table
from robotrials.errors import InputError
from robotrials.policies.picture import ImageEntry
from robotrials.policies.statistic import StatisticEntry
from robotrials.run import ActionConvention, Gripper, Rotation

MAX_CHUNK = 10_000


class Number(enum.StrEnum):
    FLOAT32 = 'float32'
    FLOAT64 = 'float64'


class DeltaFrom(enum.StrEnum):
    PREVIOUS = 'previous'  # each action of a chunk moves on from the one before
    START = 'start'  # every action of a chunk is counted from where the arm was when it was asked


class Part(enum.StrEnum):
    ROTATION = 'rotation'
    GRIPPER = 'gripper'


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePart:
    """Some numbers of the host's state, by place or by name, and what they are turned into."""

    take: tuple[int, ...] = ()  # [first, last)
    names: tuple[str, ...] = ()  # of the host's state_layout
    fill: tuple[float, ...] = ()  # constants, for numbers that the host does not have
    rotation: Rotation = Rotation.NONE
    to_rotation: Rotation = Rotation.NONE
    gripper: Gripper = Gripper.NONE
    to_gripper: Gripper = Gripper.NONE
    scale: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        if sum(map(bool, (self.take, self.names, self.fill))) != 1:
            raise InputError('a part of the state wants exactly one of take, names and fill')
        if self.take and (len(self.take) != 2 or not 0 <= self.take[0] < self.take[1]):
            raise InputError(f'take is {list(self.take)}, wanted [first, last) of the state vector')
        for first, second in (('rotation', 'to_rotation'), ('gripper', 'to_gripper')):
            if (getattr(self, first).value == 'none') != (getattr(self, second).value == 'none'):
                raise InputError(f'{first} and {second} belong together: what the host has, and what the policy wants')


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntry:
    """One vector of the policy, from parts of the host's state."""

    parts: tuple[StatePart, ...]
    normalize: StatisticEntry | None = None
    number: Number = Number.FLOAT32


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationEntry:
    """What the policy is shown: key on its side -> picture, vector or text."""

    images: Mapping[str, ImageEntry] = field(default_factory=dict)
    state: Mapping[str, StateEntry] = field(default_factory=dict)
    prompt: str = ''  # the key of the instruction; empty: the policy gets none
    prompt_template: str = '{instruction}'
    # Key -> control steps that are sent, stacked in this order, 0 being the present: [-15, 0].
    moments: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if '{instruction}' not in self.prompt_template:
            raise InputError(f'prompt_template is {self.prompt_template!r}, wanted one with {{instruction}}')
        for key, steps in self.moments.items():
            if key not in {**self.images, **self.state}:
                raise InputError(f'moments of {key!r}, which is neither a picture nor a vector of the mapping')
            check_moments(key, steps)


def check_moments(key: str, steps: Sequence[object]) -> None:
    """Raise InputError unless these are present and past control steps in their order."""
    numbers = [s for s in steps if isinstance(s, int) and not isinstance(s, bool)]
    if not steps or len(numbers) != len(steps) or max(numbers) > 0 or numbers != sorted(set(numbers)):
        raise InputError(f'moments of {key} are {list(steps)}, wanted control steps up to the present one, as [-15, 0]')


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionEntry:
    """What the policy's numbers mean, and how many of them are the robot's.

    `convention` is the policy's own. What differs from the host's is converted; what cannot be is refused at start.
    """

    convention: ActionConvention
    chunk_length: int = 1  # how many steps of an answer are taken: its first ones
    execute: int | None = None  # replan after this many
    order: tuple[int, ...] = ()  # which numbers, in the convention's order; empty: the first ones
    unnormalize: StatisticEntry | None = None
    clip: tuple[float, ...] = ()  # [low, high] of what the policy gives
    scale: tuple[float, ...] = ()  # factors of the motion numbers, one for all or one each
    axes: tuple[str, ...] = ()  # the host's x, y and z as axes of the policy, such as ['y', '-x', 'z']
    delta_from: DeltaFrom = DeltaFrom.PREVIOUS
    pose: tuple[StatePart, ...] = ()  # the host's state numbers of the pose, to turn deltas into targets or back
    gripper_range: tuple[float, ...] = ()  # the policy's numbers for [closed, open]
    gripper_threshold: float | None = None  # open at or above this share of opening, else closed
    drop: tuple[Part, ...] = ()  # what the policy gives and the host does not have
    ensemble_decay: float | None = None  # ask at every step and average what was said of it (ACT's m)
    control_rate_hz: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.chunk_length <= MAX_CHUNK:
            raise InputError(f'chunk_length is {self.chunk_length}, wanted 1 to {MAX_CHUNK}')
        if self.execute is not None and not 1 <= self.execute <= self.chunk_length:
            raise InputError(f'execute is {self.execute}, wanted 1 to the chunk_length, {self.chunk_length}')
        _check_pair('clip', self.clip)
        _check_pair('gripper_range', self.gripper_range)
        if self.clip and not self.clip[0] < self.clip[1]:
            raise InputError(f'clip is {list(self.clip)}, wanted [low, high]')
        if self.order and (len(self.order) != self.convention.width or min(self.order) < 0):
            raise InputError(f'order is {list(self.order)}, wanted {self.convention.width} places of the answer')
        if self.axes and sorted(a.lstrip('-') for a in self.axes) != ['x', 'y', 'z']:
            raise InputError(f"axes is {list(self.axes)}, wanted x, y and z once each, such as ['y', '-x', 'z']")
        if self.scale and len(self.scale) not in (1, self.convention.motion_width):
            raise InputError(f'scale has {len(self.scale)} numbers, wanted 1 or {self.convention.motion_width}')
        if self.ensemble_decay is not None and self.ensemble_decay < 0:
            raise InputError(f'ensemble_decay is {self.ensemble_decay}, wanted >= 0')


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingEntry:
    """Both directions."""

    observation: ObservationEntry
    action: ActionEntry


def read_mapping(
    *, preset: str = '', observation: Mapping[str, Any] | None = None, action: Mapping[str, Any] | None = None
) -> MappingEntry:
    """The mapping of a plan's options over its preset; every mistake names the key."""
    from robotrials.policies.preset import preset_tables

    base = preset_tables(preset) if preset else {}
    merged = {
        'observation': _spell_out(merge(base.get('observation', {}), observation or {})),
        'action': merge(base.get('action', {}), action or {}),
    }
    return read_table(MappingEntry, merged, where=f'preset {preset} with options' if preset else 'options')


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`, table by table; a bare camera name over a picture's table replaces just the camera."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(below, value)
        elif isinstance(below, Mapping) and 'camera' in below and isinstance(value, str):
            merged[key] = {**below, 'camera': value}
        else:
            merged[key] = value
    return merged


def _spell_out(observation: Mapping[str, Any]) -> dict[str, Any]:
    """``[0, 8]``, a list of names and a list of parts are short for the table of a vector."""
    state = observation.get('state', {})
    if not isinstance(state, Mapping):
        raise InputError(f'observation state is {state!r}, wanted a table: key of the policy = part of the state')
    return {**observation, 'state': {key: _state_table(value) for key, value in state.items()}}


def _state_table(value: object) -> object:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return value
    if all(isinstance(item, str) for item in value):
        return {'parts': [{'names': list(value)}]}
    if all(isinstance(item, int) for item in value):
        return {'parts': [{'take': list(value)}]}
    return {'parts': list(value)}


def _check_pair(name: str, pair: tuple[float, ...]) -> None:
    if pair and (len(pair) != 2 or pair[0] == pair[1]):
        raise InputError(f'{name} is {list(pair)}, wanted two different numbers')
