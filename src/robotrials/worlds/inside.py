"""Inside an isolated environment: an ordinary host, opened by name and driven over the worker's socket.

Runs with the environment's packages: numpy, msgpack and the simulator, and none of our other dependencies.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from robotrials.catalog import load_attribute
from robotrials.errors import InputError, RigError, RobotrialsError, SetupError
from robotrials.run.host import Ability, Host, HostLike, ResetVerdict, as_host
from robotrials.worlds.message import from_message, to_message

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
    """Pull the host's brake when told by a signal: the socket may be busy with a step. In a thread, as elsewhere."""
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
