"""What every wire has in common: it is connected to, told of episodes, asked, and let go of."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError, InputError, SetupError
from robotrials.policies.mapping import ActionEntry, ObservationEntry
from robotrials.policies.observe import Question
from robotrials.run import Setup

MAX_TOLD = 20_000  # characters of a server's traceback that are kept


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """What a server answered: actions (h, A) as it writes them, and how long it says it thought."""

    actions: NDArray[Any]
    inference_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a wire is waited for."""

    connect_s: float = 30.0
    answer_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ('connect_s', 'answer_s'):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f'{name} is {getattr(self, name)}, wanted a finite number of seconds > 0')


class Endpoint(Protocol):
    """One connection to a served policy, in lock-step.

    Faults are told apart by class: RigError if the question or the answer was lost on the way, NoAnswer, AnswerError
    and RemoteError if it arrived and the server did not do its part.
    """

    def connect(self) -> None:
        """Connect if there is no connection, waiting for a server that still loads."""

    def facts(self) -> Mapping[str, object]:
        """What the server says of itself, for people to read."""

    def problems(self, sample: Question, action: ActionEntry) -> Iterable[str]:
        """What the server's own description says against the mapping; `sample` has the shapes of a real question."""

    def begin(self, setup: Setup, *, seed: int) -> None:
        """A new episode; connects if need be."""

    def ask(self, question: Question) -> Reply: ...

    def end(self) -> None:
        """The episode is over."""

    def close(self) -> None: ...


@runtime_checkable
class BatchedEndpoint(Protocol):
    """An endpoint whose server answers several questions at once."""

    def ask_many(self, questions: Sequence[Question]) -> Sequence[Reply]: ...


@runtime_checkable
class HistoryEndpoint(Protocol):
    """An endpoint whose server says which moments of an observation it wants."""

    def moments(self, entry: ObservationEntry) -> dict[str, tuple[int, ...]]:
        """Key of the mapping -> control steps up to the present one; InputError where the mapping says otherwise."""


def key_from(variable: str, *, what: str) -> str:
    """A secret from the environment variable that a plan names."""
    if variable not in os.environ:
        raise SetupError(f'the environment variable {variable}, which holds the key of {what}, is not set')
    return os.environ[variable]


def decoded(where: str, read: Callable[[], Any]) -> Any:
    """The result of reading a server's bytes; what is malformed is the server's fault."""
    try:
        return read()
    except AnswerError:
        raise
    except InputError as error:
        raise AnswerError(f'{where}: {error}') from error


def map_answer(where: str, answer: object) -> Mapping[Any, Any]:
    """The answer, if it is a map."""
    if not isinstance(answer, Mapping):
        raise AnswerError(f'{where}: the answer is a {type(answer).__name__}, wanted a map')
    return answer


def action_array(where: str, value: object) -> NDArray[Any]:
    """Actions as an array (h, A); one action alone is a chunk of one."""
    try:
        actions = np.asarray(value)
    except ValueError as error:
        raise AnswerError(f'{where}: actions of unequal lengths ({error})') from error
    if actions.dtype.kind not in 'fiu':
        raise AnswerError(f'{where}: actions of {actions.dtype}, wanted numbers')
    if actions.ndim == 1 and actions.size:
        actions = actions[None]
    if actions.ndim != 2:
        raise AnswerError(f'{where}: actions of shape {actions.shape}, wanted (steps, numbers)')
    return actions


def seconds_told(where: str, milliseconds: object) -> float | None:
    """How long a server says it thought; absent is None, and nonsense is its fault."""
    if milliseconds is None:
        return None
    try:
        seconds = float(milliseconds) / 1000.0  # type: ignore[arg-type]  # whatever it is, it must become a number
    except (TypeError, ValueError) as error:
        raise AnswerError(f'{where}: a thinking time of {str(milliseconds)[:40]!r}, wanted milliseconds') from error
    if not 0 <= seconds < 1e6:
        raise AnswerError(f'{where}: a thinking time of {seconds} s')
    return seconds
