"""Inside an isolated environment: an ordinary host, opened by name and driven over the worker's socket.

Runs with the environment's packages: numpy, msgpack and the simulator, and none of our other dependencies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from robotrials.catalog import load_attribute
from robotrials.errors import InputError, RigError, RobotrialsError, SetupError
from robotrials.worlds.message import from_message, to_message

# What a host may have beyond reset, step and outcome: all of it is called without or with one value.
OPTIONAL = ('prepare', 'instruction', 'hold', 'report', 'signals', 'scene', 'protocol')
WITH_VALUE = ('prepare',)
ERRORS: dict[str, type[RobotrialsError]] = {'input': InputError, 'setup': SetupError, 'rig': RigError}


class HostService:
    """One host. Every answer is a map: ``value``, or ``raised`` with the kind of error and its message."""

    def __init__(self) -> None:
        self._host: Any = None

    def open(self, value: dict[str, Any]) -> dict[str, Any]:
        """Make the host; says what it is and which of the optional methods it has."""

        def opened() -> dict[str, Any]:
            make: Any = load_attribute(value['host'])
            try:
                self._host = make(**value['options'])
            except TypeError as error:
                raise InputError(f'host {value["host"]} does not take these options: {error}') from error
            has = [name for name in OPTIONAL if callable(getattr(self._host, name, None))]
            return {'spec': self._host.spec, 'has': has}

        return _told(opened)

    def reset(self, value: dict[str, Any]) -> dict[str, Any]:
        return _told(lambda: self._seen(self._host.reset(value['task'], seed=value['seed']), value))

    def step(self, value: dict[str, Any]) -> dict[str, Any]:
        """One control step; the outcome, and the signals where they are wanted, come with the observation."""
        return _told(lambda: self._seen(self._host.step(np.array(value['action'])), value))

    def ask(self, value: dict[str, Any]) -> dict[str, Any]:
        """One of the optional methods."""
        name = value['name']
        if name not in OPTIONAL:
            return {'raised': ['input', f'no seam named {name!r}']}
        given = [from_message(value['value'])] if name in WITH_VALUE else []
        return _told(lambda: getattr(self._host, name)(*given))

    def outcome(self, value: object) -> dict[str, Any]:
        return _told(lambda: self._host.outcome())

    def _seen(self, observation: Any, value: dict[str, Any]) -> dict[str, Any]:
        signals = self._host.signals() if value['signals'] else None
        return {'observation': observation, 'outcome': self._host.outcome(), 'signals': signals}


def _told(call: Callable[[], Any]) -> dict[str, Any]:
    """The answer for a call; our own errors keep their kind, all others end as a traceback outside."""
    try:
        return {'value': to_message(call())}
    except RobotrialsError as error:
        for name, kind in ERRORS.items():
            if isinstance(error, kind):
                return {'raised': [name, str(error)]}
        raise
