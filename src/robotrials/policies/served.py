"""A policy behind a wire: questions mapped from the host's observations, actions mapped back.

A dry run: one observation and one action as the policy sees them.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import AnswerError, InputError, RigError, SetupError, undone_by
from robotrials.policies.mapping import ServedOptions, read_mapping
from robotrials.policies.observe import Converter, Observer, Question
from robotrials.run import Chunk, Host, HostSpec, Observation, Policy, PolicySpec, Session, Setup
from robotrials.run.seam import ClosablePolicy
from robotrials.wire import LIMITS, WireLimits
from robotrials.wire.link import Deadline, keep_trying
from robotrials.wire.websocket import WebSocketLink, check_url

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
            self._chunks.popleft()  # its actions are all in the past
        ages = range(len(self._chunks) - 1, -1, -1)
        said = np.stack([old[age] for old, age in zip(self._chunks, ages, strict=True)])
        weights = np.array([math.exp(-self._decay * i) for i in range(len(said))])
        return np.asarray(weights @ said / weights.sum())


# What every wire has in common: connecting, episodes, questions and answers, closing.

MAX_TOLD = 20_000  # characters of a server's traceback that are kept


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """What a server answered: actions (h, A) as it writes them, and how long it says it thought."""

    actions: NDArray[Any]
    inference_s: float | None = None


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


class ServedPolicy(abc.ABC):
    """A policy behind a wire: questions mapped from the host's observations, actions mapped back.

    Before its first episode it is fitted to the host, which checks the mapping. The wire is one connection in
    lock-step; a subclass says how it connects, asks and closes. The class of a fault says whose it is: RigError if the
    question or the answer was lost on the way, and NoAnswer, AnswerError or RemoteError if the question arrived and the
    server did not do its part.
    """

    def __init__(
        self,
        *,
        name: str,
        preset: str = '',
        observation: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        is_remote: bool = True,
        connect_timeout_s: float = 30.0,
        answer_timeout_s: float = 30.0,
        max_message_bytes: int = LIMITS.max_bytes,
    ) -> None:
        for what, seconds in (('connect_timeout_s', connect_timeout_s), ('answer_timeout_s', answer_timeout_s)):
            if not 0 < seconds < math.inf:
                raise InputError(f'{what} is {seconds}, wanted a finite number of seconds > 0')
        self._connect_s, self._answer_s = connect_timeout_s, answer_timeout_s
        self._limits = WireLimits(max_bytes=max_message_bytes)
        self._mapping = read_mapping(preset=preset, observation=observation, action=action)
        self._observer: Observer | None = None
        self._converter: Converter | None = None
        own = self._mapping.action
        is_ensemble = own.ensemble_decay is not None
        self.spec = PolicySpec(
            name=name,
            action=own.convention,
            chunk_length=1 if is_ensemble else own.chunk_length,
            execute=None if is_ensemble else own.execute,
            control_rate_hz=own.control_rate_hz,
            images={image.camera: None for image in self._mapping.observation.images.values()},
            is_remote=is_remote,
        )

    # --- the wire

    def connect(self) -> None:  # noqa: B027 - some wires keep no connection
        """Connect if there is no connection, waiting for a server that is still loading."""

    @property
    def facts(self) -> Mapping[str, object]:
        """What the server says of itself, for people to read."""
        return {}

    def moments(self) -> Mapping[str, tuple[int, ...]]:
        """Key of the mapping -> control steps up to the present one that are sent; some servers say which they want."""
        return self._mapping.observation.moments

    def problems(self, sample: Question) -> Iterable[str]:
        """What the server's own description says against the mapping; `sample` has the shapes of a real question."""
        return ()

    def begin(self, setup: Setup, *, seed: int) -> None:
        """A new episode; connects if need be."""
        self.connect()

    @abc.abstractmethod
    def ask(self, question: Question) -> Reply:
        """The server's answer to one question."""

    def ask_many(self, questions: Sequence[Question]) -> Sequence[Reply]:
        """Several answers; in one batch where the wire has one."""
        return [self.ask(question) for question in questions]

    def end(self) -> None:  # noqa: B027 - most wires have no word for it
        """The episode is over."""

    def close(self) -> None:  # noqa: B027
        """Let go of the connection."""

    # --- the policy

    def fit(self, host: HostSpec) -> None:
        """Bind the mapping to a host and to what the server says of itself; InputError lists what does not fit."""
        observer = Observer(self._mapping.observation, host)
        converter = Converter(self._mapping.action, host)
        with undone_by(self.close):
            self.connect()
            observer.moments = dict(self.moments())
            blank = blank_observation(host)
            blank = dataclasses.replace(blank, past=dict.fromkeys(observer.past, blank))
            if problems := list(self.problems(observer.question(blank, 'instruction'))):
                listed = '; '.join(problems)
                raise InputError(f'the mapping does not fit the server of policy {self.spec.name}: {listed}')
        self._observer, self._converter = observer, converter
        self.spec = dataclasses.replace(
            self.spec, action=host.action, control_rate_hz=host.control_rate_hz, moments=observer.past
        )

    def start(self, setup: Setup, *, seed: int) -> Session:
        self._fitted()
        self.begin(setup, seed=seed)
        return ServedSession(self, setup.instruction, decay=self._mapping.action.ensemble_decay)

    @property
    def is_batched(self) -> bool:
        """Whether the wire takes several questions at once."""
        return type(self).ask_many is not ServedPolicy.ask_many

    def act_many(self, sessions: Sequence[Session], observations: Sequence[Observation]) -> Sequence[Chunk]:
        """Answers for several sessions of this policy, in one batch if the wire has one."""
        asked = [(s, o) for s, o in zip(sessions, observations, strict=True) if isinstance(s, ServedSession)]
        if len(asked) != len(sessions):
            raise InputError('act_many wants sessions of this policy')
        replies = self.ask_many([self.question(observation, session.instruction) for session, observation in asked])
        return [session.chunk(reply, observation) for (session, observation), reply in zip(asked, replies, strict=True)]

    def question(self, observation: Observation, instruction: str) -> Question:
        """An observation as this policy sees it."""
        return self._fitted()[0].question(observation, instruction)

    def actions(self, reply: Reply, observation: Observation) -> NDArray[np.float64]:
        """The actions of a reply as the host takes them."""
        return self._fitted()[1].convert(reply.actions, observation)

    def _fitted(self) -> tuple[Observer, Converter]:
        if self._observer is None or self._converter is None:
            raise InputError(f'policy {self.spec.name} was not fitted to a host: call fit(host.spec) first')
        return self._observer, self._converter


class ServedSession:
    """One episode behind a wire."""

    def __init__(self, policy: ServedPolicy, instruction: str, *, decay: float | None) -> None:
        self._policy, self.instruction = policy, instruction
        self._ensemble = None if decay is None else Ensemble(decay=decay)

    def act(self, observation: Observation) -> Chunk:
        return self.chunk(self._policy.ask(self._policy.question(observation, self.instruction)), observation)

    def chunk(self, reply: Reply, observation: Observation) -> Chunk:
        """A reply as the host takes it."""
        actions = self._policy.actions(reply, observation)
        if self._ensemble is not None:
            actions = self._ensemble.add(actions)[None]
        return Chunk(actions, reply.inference_s)

    def close(self) -> None:
        self._policy.end()


class WebSocketPolicy(ServedPolicy):
    """A wire over one WebSocket: opened when it is first needed, and again after the server hung up."""

    server = 'the server'  # as a message about waiting for it says

    def __init__(self, url: str, *, name: str, **common: Unpack[ServedOptions]) -> None:
        check_url(url)
        super().__init__(name=name, **common)
        self.url = url
        self._headers: dict[str, str] = {}
        self._link: WebSocketLink | None = None
        self._metadata: Mapping[Any, Any] = {}  # what the server says of itself

    def connect(self) -> None:
        self._linked()

    def _linked(self) -> WebSocketLink:
        if self._link is None:
            what = f'{self.url}: {self.server}'
            self._link = keep_trying(self._open, what=what, timeout_s=self._connect_s)
        return self._link

    def _open(self, deadline: Deadline) -> WebSocketLink:
        link = WebSocketLink(self.url, deadline=deadline, headers=self._headers, limits=self._limits)
        with undone_by(link.close):
            self._greet(link, deadline)
        return link

    @abc.abstractmethod
    def _greet(self, link: WebSocketLink, deadline: Deadline) -> None:
        """What is said on a new connection before the first question; sets `_metadata`."""

    @property
    def facts(self) -> Mapping[str, object]:
        self.connect()
        return {str(key): value for key, value in self._metadata.items()}

    def _renewed(self) -> WebSocketLink:
        """The connection; another one if the server left since the last question."""
        if self._link is not None:
            try:
                self._link.is_stale()
            except RigError:
                self.close()
        return self._linked()

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def blank_observation(host: HostSpec) -> Observation:
    """An observation with a host's shapes and nothing in it; rotations in it stay rotations."""
    images: dict[str, Any] = {camera: np.zeros((*size, 3), np.uint8) for camera, size in host.images.items()}
    return Observation(0.0, np.full(host.state_width, 0.5), images)


SHOWN_NUMBERS = 8


@dataclass(frozen=True, slots=True)
class DryRun:
    """What went to the policy and came back, and how long it took."""

    values: tuple[tuple[str, str, str, str], ...]  # the side that sees it, its key, its shape and type, what is in it
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


def _described(side: str, values: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for key, value in values.items():
        shape = f'{value.shape} {value.dtype}' if isinstance(value, np.ndarray) else type(value).__name__
        yield side, key, shape, _content(value)


def _content(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return str(value)[:200]
    if value.ndim >= 3:
        return f'from {value.min():g} to {value.max():g}, mean {value.mean():.4g}'
    numbers = ' '.join(f'{number:.4g}' for number in value.ravel()[:SHOWN_NUMBERS])
    return numbers + (' ...' if value.size > SHOWN_NUMBERS else '')
