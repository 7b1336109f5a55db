"""Inside an isolated environment: an ordinary host, opened by name and driven over the worker's socket.

Runs with the environment's packages: numpy, msgpack and the simulator, and none of our other dependencies.
"""

from __future__ import annotations

import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from robotrials.catalog import load_attribute
from robotrials.errors import InputError, RigError, RobotrialsError, SetupError
from robotrials.record import Camera, Event, Outcome, Scene
from robotrials.record.footage import (
    BoxGoal,
    FilmStates,
    KnownBox,
    KnownJoint,
    KnownObject,
    KnownScene,
    PoseGoal,
    RegionGoal,
    View,
)
from robotrials.run.conditions import Thing
from robotrials.run.host import Ability, Host, HostLike, ResetVerdict, as_host
from robotrials.run.plan import FilmOptions
from robotrials.run.seam import ActionConvention, HostReport, HostSpec, Observation, ProtocolFacts, Setup, StepPart

# The values of the host's seam as messages: maps, lists, numbers, texts and arrays, and back.

KIND = '__kind__'
_DATACLASSES: tuple[type[Any], ...] = (
    ActionConvention, BoxGoal, Camera, Event, FilmOptions, FilmStates, HostReport, HostSpec, KnownBox, KnownJoint,
    KnownObject, KnownScene, Observation, StepPart, PoseGoal, ProtocolFacts, RegionGoal, ResetVerdict, Scene, Setup,
    Thing,
    View,
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
            raise InputError(f'a message that is not a valid {kind}: {error}') from error
    if isinstance(value, list):
        return tuple(from_message(part) for part in value)
    return value


# What is asked of the host by name; the others have calls of their own, or the process ends (close, stop).
ASKED = (
    'prepare', 'check_cell', 'instruction', 'things', 'hold', 'report', 'signals', 'scene', 'protocol', 'views',
    'known_scene', 'look',
)  # fmt: skip
ERRORS: dict[str, type[RobotrialsError]] = {'input': InputError, 'setup': SetupError, 'rig': RigError}
STOP_SIGNAL = signal.SIGUSR2


class HostService:
    """One host. Every answer is a map: ``value``, or ``raised`` with the kind of error and its message."""

    def __init__(self, host: HostLike | None = None) -> None:
        self._opened = as_host(host) if host is not None else None
        self._shots: list[Iterator[Any]] = []

    @property
    def _host(self) -> Host:
        if self._opened is None:
            raise InputError('the host was not opened yet')
        return self._opened

    def open(self, value: dict[str, Any]) -> dict[str, Any]:
        """Make the host, unless it is there; says what it is and what it can do."""

        def opened() -> dict[str, Any]:
            if self._opened is None:
                make: Any = load_attribute(value['host'])
                try:
                    self._opened = as_host(make(**value['options']))
                except TypeError as error:
                    raise InputError(f'host {value["host"]} does not take these options: {error}') from error
            host = self._host
            _listen_for_stop(host)
            return {
                'spec': host.spec, 'abilities': [a.value for a in host.abilities], 'substeps': host.substeps,
                'film_cameras': host.film_cameras, 'has_views': host.has_views,
            }  # fmt: skip

        return _told(opened)

    def reset(self, value: dict[str, Any]) -> dict[str, Any]:
        return _told(lambda: self._seen(self._host.reset(value['task'], seed=value['seed']), value))

    def step(self, value: dict[str, Any]) -> dict[str, Any]:
        """One control step; the outcome, and the signals where they are wanted, come with the observation."""
        return _told(lambda: self._seen(self._expecting(value).step(np.array(value['action'])), value))

    def step_through(self, value: dict[str, Any]) -> dict[str, Any]:
        return _told(lambda: self._seen(self._expecting(value).step_through(from_message(value['parts'])), value))

    def ask(self, value: dict[str, Any]) -> dict[str, Any]:
        """One of the methods that take and give plain values."""
        name = value['name']
        if name not in ASKED:
            return {'raised': ['input', f'no method named {name!r}']}
        given, options = from_message(value['given']), from_message(value['options'])
        return _told(lambda: getattr(self._host, name)(*given, **options))

    def check_reset(self, value: object) -> dict[str, Any]:
        def checked() -> ResetVerdict | None:
            check = self._host.check_reset()
            return None if check is None else ResetVerdict(bool(check.is_as_planned), str(check.reason))

        return _told(checked)

    def film(self, value: dict[str, Any]) -> dict[str, Any]:
        """What is drawn and with which cameras; the frames are drawn one by one as they are asked for."""

        def filmed() -> dict[str, Any]:
            footage = self._host.film(from_message(value['options']), states=from_message(value['states']))
            self._shots = [iter(shot.frames) for shot in footage.shots]
            return {'states': footage.states, 'cameras': [shot.camera for shot in footage.shots]}

        return _told(filmed)

    def frame(self, number: int) -> dict[str, Any]:
        """The next frame of a shot; None after the last."""
        return _told(lambda: next(self._shots[number], None))

    def _expecting(self, value: dict[str, Any]) -> Host:
        self._host.expect_look(value.get('looks', True))
        return self._host

    def _seen(self, observation: Any, value: dict[str, Any]) -> dict[str, Any]:
        signals = self._host.signals() if value['signals'] else None
        return {'observation': observation, 'outcome': self._host.outcome(), 'signals': signals}


def _listen_for_stop(host: Host) -> None:
    """Pull the host's brake on a signal: the socket may be busy with a step. In a thread, as elsewhere."""
    if Ability.STOP in host.abilities and threading.current_thread() is threading.main_thread():
        signal.signal(STOP_SIGNAL, lambda *_: threading.Thread(target=host.stop, daemon=True).start())


def _told(call: Callable[[], Any]) -> dict[str, Any]:
    """The answer for a call; our own errors keep their kind, all others end as a traceback outside."""
    try:
        return {'value': to_message(call())}
    except RobotrialsError as error:
        for name, kind in ERRORS.items():
            if isinstance(error, kind):
                return {'raised': [name, str(error)]}
        raise
