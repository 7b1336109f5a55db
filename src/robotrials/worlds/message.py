"""The values of the host's seam as messages: maps, lists, numbers, texts and arrays, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from robotrials.errors import InputError
from robotrials.record import Camera, Event, Outcome, Scene
from robotrials.record.film import FilmStates
from robotrials.record.rgbd import BoxGoal, KnownBox, KnownObject, KnownScene, RegionGoal, View
from robotrials.run.conditions import Thing
from robotrials.run.convention import ActionConvention, HostSpec
from robotrials.run.host import ResetVerdict
from robotrials.run.plan_option import FilmOptions
from robotrials.run.protocol import ProtocolFacts
from robotrials.run.seam import HostReport, Observation, Part, Setup

KIND = '__kind__'
_DATACLASSES: tuple[type[Any], ...] = (
    ActionConvention, BoxGoal, Camera, Event, FilmOptions, FilmStates, HostReport, HostSpec, KnownBox, KnownObject,
    KnownScene, Observation, Part, ProtocolFacts, RegionGoal, ResetVerdict, Scene, Setup, Thing, View,
)  # fmt: skip
KINDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in _DATACLASSES}


def to_message(value: object) -> object:
    """A value of the seam with its dataclasses as maps that name their kind."""
    if isinstance(value, Outcome):
        return {KIND: 'Outcome', 'value': value.value}
    if isinstance(value, np.ndarray | np.generic | str | bytes | bool | int | float) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(name): to_message(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_message(part) for part in value]
    if type(value).__name__ in KINDS and dataclasses.is_dataclass(value):
        parts = {f.name: to_message(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {KIND: type(value).__name__, **parts}
    raise InputError(f'a {type(value).__name__} cannot cross to another environment')


def from_message(value: object) -> Any:
    """What `to_message` was given; lists come back as tuples."""
    if isinstance(value, dict):
        parts = {name: from_message(part) for name, part in value.items() if name != KIND}
        kind = value.get(KIND)
        if kind is None:
            return parts
        if not isinstance(kind, str) or kind not in (*KINDS, 'Outcome'):
            raise InputError(f'a message of unknown kind {kind!r:.60}')
        try:
            return Outcome(parts['value']) if kind == 'Outcome' else KINDS[kind](**parts)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InputError(f'a message that is no {kind}: {error}') from error
    if isinstance(value, list):
        return tuple(from_message(part) for part in value)
    return value
