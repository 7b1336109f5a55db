"""Every exception that robotrials raises on purpose.

    RobotrialsError
    ├── InputError (ValueError)        an argument, a file or a row is not what was wanted
    │   ├── RecordError                an episode, event or trajectory breaks the record's rules
    │   └── UnknownName                no such policy, task, host, figure, benchmark, ...; names the near one
    ├── StoreError                     a store is damaged, foreign, or from another version
    │   └── WriteError                 the disk did not take what was written: full, broken, read-only
    ├── RigError                       the rig, the network or an endpoint broke; the policy was not tested
    ├── PolicyError                    a policy behind a wire got the question, and did not do its part
    │   ├── AnswerError (ValueError)   it answered, and the answer is not one
    │   ├── NoAnswer (TimeoutError)    it did not answer in time, though the connection held
    │   └── RemoteError (RuntimeError) it said itself that it failed
    ├── NotEstimable (ArithmeticError) the data are fine, and can't answer the question asked
    └── SetupError                     something has to be installed or configured first

A message says what was wanted, what was found, where (file, row, field), and what to do.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from typing import Any

DISTRIBUTION = 'robotrials'


class RobotrialsError(Exception):
    """The root: catch this to catch everything robotrials raises on purpose."""


class InputError(RobotrialsError, ValueError):
    """An argument, a file or a row is not what was wanted."""


class RecordError(InputError):
    """An episode, event or trajectory breaks the record's rules."""


class UnknownName(InputError):  # noqa: N818 - reads as the fact it states
    """No such name; the near one is suggested.

    >>> str(UnknownName('host', 'libreo', ['libero', 'tabletop']))
    "no host named 'libreo': did you mean 'libero'? known: libero, tabletop"
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], *, most: int = 20) -> None:
        self.kind = kind
        self.name = name
        self.known = tuple(sorted(known))
        super().__init__(f'no {kind} named {name!r}: {near_miss(name, self.known, most=most)}')


class StoreError(RobotrialsError):
    """A store is damaged, foreign, or from another version."""


class WriteError(StoreError):
    """The disk did not take what was written: it is full, broken or read-only."""

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.number = number  # the system's error number


class RigError(RobotrialsError):
    """The rig, the network or an endpoint broke; the policy was not tested."""


class PolicyError(RobotrialsError):
    """A policy behind a wire got the question, and did not do its part."""


class AnswerError(PolicyError, ValueError):
    """A policy answered, and the answer is not one: undecodable, oversized, or not what the wire promises."""


class NoAnswer(PolicyError, TimeoutError):  # noqa: N818 - reads as the fact it states
    """A policy got the question and did not answer in time, though the connection held."""


class RemoteError(PolicyError, RuntimeError):
    """A policy's server said itself that it failed."""


class NotEstimable(RobotrialsError, ArithmeticError):  # noqa: N818 - reads as the fact it states
    """The data are fine, and can't answer the question asked."""


class SetupError(RobotrialsError):
    """Something has to be installed or configured first."""


def near_miss(name: str, known: Iterable[str], *, most: int = 20) -> str:
    """The tail of an unknown-name message: the nearest known name, then the known names."""
    names = list(known)
    if not names:
        return 'none are known'
    lowered = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.6)
    listed = ', '.join(names[:most]) + (f', ... ({len(names) - most} more)' if len(names) > most else '')
    hint = f'did you mean {lowered[close[0]]!r}? ' if close else ''
    return f'{hint}known: {listed}'


class undone_by:  # noqa: N801 - reads as what it does: with undone_by(link.close): ...
    """Calls what lets go of things if its body raises, also an interrupt; the error goes on."""

    def __init__(self, undo: Callable[[], object]) -> None:
        self._undo = undo

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._undo()


def load_optional(module: str, lack: str) -> Any:
    """A module of a package that an extra brings; where it is not installed, SetupError with the words of `lack`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise SetupError(lack) from error


def install_hint(extra: str) -> str:
    """The command that installs an extra of this distribution, to be pasted.

    >>> install_hint('sim')
    "pip install 'robotrials[sim]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"
