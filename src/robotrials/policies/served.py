"""A policy behind an endpoint: questions mapped from the host's observations, actions mapped back.

A dry run: one observation and one action as the policy sees them.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError, InputError, SetupError
from robotrials.policies.mapping import ActionEntry, MappingEntry, ObservationEntry
from robotrials.policies.observe import Converter, Observer, Question
from robotrials.run import Chunk, Host, HostSpec, Observation, Policy, PolicySpec, Session, Setup
from robotrials.run.seam import ClosablePolicy

# Temporal ensembling: ask at every step, and act on the average of all that was said of this step (ACT).


class Ensemble:
    """Chunks asked one step apart. Weights are exp(-decay * i), i counting from the oldest (Zhao et al. 2023, 4.2)."""

    def __init__(self, *, decay: float) -> None:
        self._decay = decay
        self._chunks: deque[NDArray[np.float64]] = deque()

    def add(self, chunk: NDArray[np.float64]) -> NDArray[np.float64]:
        """Take the newest chunk (h, A); the action (A,) for now."""
        self._chunks.append(chunk)
        while len(self._chunks[0]) < len(self._chunks):
            self._chunks.popleft()  # it says nothing of now any more
        ages = range(len(self._chunks) - 1, -1, -1)
        said = np.stack([old[age] for old, age in zip(self._chunks, ages, strict=True)])
        weights = np.array([math.exp(-self._decay * i) for i in range(len(said))])
        return np.asarray(weights @ said / weights.sum())


# What every wire has in common: it is connected to, told of episodes, asked, and let go of.

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


class PolicyEndpoint(Protocol):
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


class ServedPolicy:
    """The policy of every wire. Before its first episode it is fitted to the host, which checks the mapping."""

    def __init__(self, endpoint: PolicyEndpoint, mapping: MappingEntry, *, name: str, is_remote: bool = True) -> None:
        self._endpoint, self._mapping = endpoint, mapping
        self._observer: Observer | None = None
        self._converter: Converter | None = None
        action = mapping.action
        is_ensemble = action.ensemble_decay is not None
        self._spec = PolicySpec(
            name=name,
            action=action.convention,
            chunk_length=1 if is_ensemble else action.chunk_length,
            execute=None if is_ensemble else action.execute,
            control_rate_hz=action.control_rate_hz,
            images={image.camera: None for image in mapping.observation.images.values()},
            is_remote=is_remote,
        )

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    @property
    def endpoint(self) -> PolicyEndpoint:
        return self._endpoint

    @property
    def facts(self) -> Mapping[str, object]:
        """What the server says of itself."""
        return self._endpoint.facts()

    def fit(self, host: HostSpec) -> None:
        """Bind the mapping to a host and to what the server says of itself; InputError lists what does not fit."""
        observer = Observer(self._mapping.observation, host)
        converter = Converter(self._mapping.action, host)
        try:
            self._endpoint.connect()
            if isinstance(self._endpoint, HistoryEndpoint):
                observer.moments = self._endpoint.moments(self._mapping.observation)
            blank = blank_observation(host)
            blank = dataclasses.replace(blank, past=dict.fromkeys(observer.past, blank))
            sample = observer.question(blank, 'instruction')
            problems = list(self._endpoint.problems(sample, self._mapping.action))
            if problems:
                listed = '; '.join(problems)
                raise InputError(f'the mapping does not fit the server of policy {self._spec.name}: {listed}')
        except BaseException:
            self._endpoint.close()
            raise
        self._observer, self._converter = observer, converter
        self._spec = dataclasses.replace(
            self._spec, action=host.action, control_rate_hz=host.control_rate_hz, moments=observer.past
        )

    def start(self, setup: Setup, *, seed: int) -> Session:
        if self._observer is None or self._converter is None:
            raise InputError(f'policy {self._spec.name} was not fitted to a host: call fit(host.spec) first')
        self._endpoint.begin(setup, seed=seed)
        return ServedSession(
            self._endpoint,
            self._observer,
            self._converter,
            setup.instruction,
            decay=self._mapping.action.ensemble_decay,
        )

    @property
    def is_batched(self) -> bool:
        """Whether the wire takes several questions at once."""
        return isinstance(self._endpoint, BatchedEndpoint)

    def act_many(self, sessions: Sequence[Session], observations: Sequence[Observation]) -> Sequence[Chunk]:
        """Answers for several sessions of this policy, in one batch if the wire has one."""
        asked = [(s, o) for s, o in zip(sessions, observations, strict=True) if isinstance(s, ServedSession)]
        if len(asked) != len(sessions):
            raise InputError('act_many wants sessions of this policy')
        questions = [session.question(observation) for session, observation in asked]
        if isinstance(self._endpoint, BatchedEndpoint):
            replies = self._endpoint.ask_many(questions)
        else:
            replies = [self._endpoint.ask(question) for question in questions]
        return [session.chunk(reply, observation) for (session, observation), reply in zip(asked, replies, strict=True)]

    def question(self, observation: Observation, instruction: str) -> Question:
        """An observation as this policy is shown it."""
        if self._observer is None:
            raise InputError(f'policy {self._spec.name} was not fitted to a host: call fit(host.spec) first')
        return self._observer.question(observation, instruction)

    def close(self) -> None:
        self._endpoint.close()


class ServedSession:
    """One episode behind an endpoint."""

    def __init__(
        self,
        endpoint: PolicyEndpoint,
        observer: Observer,
        converter: Converter,
        instruction: str,
        *,
        decay: float | None,
    ) -> None:
        self._endpoint, self._observer, self._converter = endpoint, observer, converter
        self._instruction = instruction
        self._ensemble = None if decay is None else Ensemble(decay=decay)

    def act(self, observation: Observation) -> Chunk:
        return self.chunk(self._endpoint.ask(self.question(observation)), observation)

    def question(self, observation: Observation) -> Question:
        return self._observer.question(observation, self._instruction)

    def chunk(self, reply: Reply, observation: Observation) -> Chunk:
        """A reply as the host takes it."""
        actions = self._converter.convert(reply.actions, observation)
        if self._ensemble is not None:
            actions = self._ensemble.add(actions)[None]
        return Chunk(actions, reply.inference_s)

    def close(self) -> None:
        self._endpoint.end()


def blank_observation(host: HostSpec) -> Observation:
    """An observation with a host's shapes and nothing in it; rotations in it stay rotations."""
    images: dict[str, Any] = {camera: np.zeros((*size, 3), np.uint8) for camera, size in host.images.items()}
    return Observation(0.0, np.full(host.state_width, 0.5), images)


SHOWN_NUMBERS = 8


@dataclass(frozen=True, slots=True)
class SeenValue:
    """One value on the way: which side, its key, its shape and type, and what is in it."""

    side: str
    key: str
    shape: str
    content: str


@dataclass(frozen=True, slots=True)
class DryRun:
    """What went to the policy and came back, and how long it took."""

    values: tuple[SeenValue, ...]
    answer_s: float
    inference_s: float | None
    facts: tuple[tuple[str, str], ...]


def dry_run(host: Host, policy: Policy, *, task: str, instruction: str = '', seed: int = 0) -> DryRun:
    """Reset the host, ask the policy once, and say what each side saw. The policy is fitted already."""
    setup = Setup(task=task, seed=seed, instruction=instruction)
    host.prepare(setup)
    observation = host.reset(task, seed=seed)
    if not instruction:
        instruction = host.instruction()
        setup = Setup(task=task, seed=seed, instruction=instruction)
    session = policy.start(setup, seed=seed)
    began_s = time.perf_counter()
    chunk = session.act(observation)
    answer_s = time.perf_counter() - began_s
    closing: object = session
    if isinstance(closing, ClosablePolicy):
        closing.close()
    values = [*_described('host shows', {'state': observation.state, **observation.images})]
    facts: tuple[tuple[str, str], ...] = ()
    if isinstance(policy, ServedPolicy):
        values += _described('policy sees', policy.question(observation, instruction))
        facts = tuple((key, _content(value)) for key, value in policy.facts.items())
    values += _described('host gets', {'actions': np.asarray(chunk.actions)})
    return DryRun(tuple(values), answer_s, chunk.inference_s, facts)


def _described(side: str, values: dict[str, Any]) -> Iterator[SeenValue]:
    for key, value in values.items():
        shape = f'{value.shape} {value.dtype}' if isinstance(value, np.ndarray) else type(value).__name__
        yield SeenValue(side, key, shape, _content(value))


def _content(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return str(value)[:200]
    if value.ndim >= 3:
        return f'from {value.min():g} to {value.max():g}, mean {value.mean():.4g}'
    numbers = ' '.join(f'{number:.4g}' for number in value.ravel()[:SHOWN_NUMBERS])
    return numbers + (' ...' if value.size > SHOWN_NUMBERS else '')
