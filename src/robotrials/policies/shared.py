"""One policy for many workers of a trial: each with its own episode and seed, in batches where the policy can.

For processes of one trial that trust each other, as those of a Ray cluster do: objects go as they are over an
authenticated connection. For others' clients there is `robotrials.policies.server`.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NoAnswer, RigError, near_miss
from robotrials.run import Chunk, HostSpec, Observation, Policy, PolicySpec, Session, Setup
from robotrials.run.component import open_policy
from robotrials.run.plan import PolicyEntry
from robotrials.run.seam import ClosablePolicy, FittedPolicy

# Gathering questions of parallel clients into one, for policies that can answer several at once.

Q = TypeVar('Q')
A = TypeVar('A')


@dataclass(slots=True, eq=False)
class _Pending(Generic[Q, A]):
    question: Q
    done: threading.Event = field(default_factory=threading.Event)
    answer: A | None = None
    error: BaseException | None = None


class Batcher(Generic[Q, A]):
    """Answers questions of many threads by `answer_many`, at most `most` at a time, in one thread of its own.

    A question waits at most `wait_s` for others. An error of the batch goes to every thread that was in it.
    """

    def __init__(self, answer_many: Callable[[Sequence[Q]], Sequence[A]], *, most: int, wait_s: float) -> None:
        if most < 1 or not 0 <= wait_s < 60:
            raise InputError(f'a batch of {most} that waits {wait_s} s; wanted at least 1, and 0 to 60 s')
        self._answer_many, self._most, self._wait_s = answer_many, most, wait_s
        self._questions: queue.SimpleQueue[_Pending[Q, A] | None] = queue.SimpleQueue()
        self.sizes: list[int] = []  # of the last batches, newest last
        self._thread = threading.Thread(target=self._serve, daemon=True, name='batch')
        self._thread.start()

    def ask(self, question: Q, *, timeout_s: float) -> A:
        """The answer to one question; NoAnswer if it takes too long."""
        pending: _Pending[Q, A] = _Pending(question)
        self._questions.put(pending)
        if not pending.done.wait(timeout_s):
            raise NoAnswer(f'no answer within {timeout_s:g} s')
        if pending.error is not None:
            raise pending.error
        return pending.answer  # type: ignore[return-value]  # set whenever done is, unless error is

    def close(self) -> None:
        self._questions.put(None)
        self._thread.join(5.0)

    def _serve(self) -> None:
        while (batch := self._gather()) is not None:
            self.sizes = [*self.sizes[-99:], len(batch)]
            try:
                answers = self._answer_many([pending.question for pending in batch])
                if len(answers) != len(batch):
                    raise InputError(f'{len(answers)} answers to {len(batch)} questions')
                for pending, answer in zip(batch, answers, strict=True):
                    pending.answer = answer
            except BaseException as error:
                for pending in batch:
                    pending.error = error
            for pending in batch:
                pending.done.set()

    def _gather(self) -> list[_Pending[Q, A]] | None:
        first = self._questions.get()
        if first is None:
            return None
        batch, deadline_s = [first], time.monotonic() + self._wait_s
        while len(batch) < self._most:
            try:
                following = self._questions.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                break
            if following is None:
                self._questions.put(None)
                break
            batch.append(following)
        return batch


# A robotrials policy as others' clients see it: their keys in, its actions out.


@runtime_checkable
class BatchedPolicy(Protocol):
    """A policy that can answer for several sessions at once."""

    @property
    def is_batched(self) -> bool: ...

    def act_many(self, sessions: Sequence[Session], observations: Sequence[Observation]) -> Sequence[Chunk]: ...


@dataclass(frozen=True, slots=True)
class WireNames:
    """A client's keys: for cameras, for parts [first, last) of the state, and for the instruction."""

    images: Mapping[str, str]
    state: Mapping[str, tuple[int, int]]
    prompt: str

    def observation(self, question: Mapping[str, Any], *, state_width: int) -> Observation:
        """A client's question as an observation; InputError says what is missing or misshapen."""
        state = np.zeros(state_width)
        for key, (first, last) in self.state.items():
            vector = _asked(question, key)
            if vector.dtype.kind not in 'fiu' or vector.shape != (last - first,):
                raise InputError(f'{key!r} is {vector.shape} of {vector.dtype}, wanted {last - first} numbers')
            state[first:last] = vector
        images: dict[str, NDArray[np.uint8]] = {}
        for key, camera in self.images.items():
            image = _asked(question, key)
            if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
                raise InputError(f'{key!r} is {image.shape} of {image.dtype}, wanted (height, width, 3) of uint8')
            images[camera] = image
        return Observation(0.0, state, images)

    def instruction(self, question: Mapping[str, Any]) -> str:
        text = question.get(self.prompt, '')
        if not isinstance(text, str):
            raise InputError(f'{self.prompt!r} is a {type(text).__name__}, wanted text')
        return text


def openpi_names(host: HostSpec) -> WireNames:
    """Keys as openpi's checkpoints have them: ``observation/CAMERA``, ``observation/state``, ``prompt``."""
    images = {f'observation/{camera}': camera for camera in host.images}
    return WireNames(images, {'observation/state': (0, host.state_width)} if host.state_width else {}, 'prompt')


def vla_eval_names(host: HostSpec) -> WireNames:
    """Keys as vla-eval's benchmarks have them: ``images.CAMERA``, ``states``, ``task_description``."""
    images = {f'images.{camera}': camera for camera in host.images}
    return WireNames(images, {'states': (0, host.state_width)} if host.state_width else {}, 'task_description')


class OfferedPolicy:
    """One policy for many clients: asked one at a time, or in batches if it can."""

    def __init__(
        self, policy: Policy, *, state_width: int, names: WireNames, limit_s: float = 60.0, batch: int = 1,
        batch_wait_s: float = 0.005,
    ) -> None:  # fmt: skip
        self.policy, self.names, self._state_width, self._limit_s = policy, names, state_width, limit_s
        self._lock = threading.Lock()
        if batch > 1 and not (isinstance(policy, BatchedPolicy) and policy.is_batched):
            raise InputError(f'policy {policy.spec.name} answers one question at a time; serve it without a batch')
        self.batcher: Batcher[tuple[Session, Observation], Chunk] | None = None
        if batch > 1:
            self.batcher = Batcher(self._act_many, most=batch, wait_s=batch_wait_s)

    def start(self, instruction: str, *, seed: int) -> Session:
        with self._lock:
            return self.policy.start(Setup(task='served', seed=seed, instruction=instruction), seed=seed)

    def act(self, session: Session, question: Mapping[str, Any]) -> Chunk:
        observation = self.names.observation(question, state_width=self._state_width)
        if self.batcher is not None:
            return self.batcher.ask((session, observation), timeout_s=self._limit_s)
        with self._lock:
            return session.act(observation)

    def _act_many(self, asked: Sequence[tuple[Session, Observation]]) -> Sequence[Chunk]:
        policy = self.policy
        if not isinstance(policy, BatchedPolicy):
            raise TypeError('the policy lost its act_many')
        with self._lock:
            return policy.act_many([session for session, _ in asked], [observation for _, observation in asked])

    def end(self, session: Session | None) -> None:
        closing: object = session
        if isinstance(closing, ClosablePolicy):
            with self._lock:
                closing.close()

    def close(self) -> None:
        if self.batcher is not None:
            self.batcher.close()
        closing: object = self.policy
        if isinstance(closing, ClosablePolicy):
            closing.close()


def _asked(question: Mapping[str, Any], key: str) -> NDArray[Any]:
    if key not in question:
        raise InputError(f'the question has no {key!r}: {near_miss(key, list(map(str, question)))}')
    return np.asarray(question[key])


MOST_AT_ONCE = 32
BATCH_WAIT_S = 0.003
ANSWER_S = 600.0  # the worker's own watchdog is stricter


class SharedPolicyServer:
    """Answers workers, a connection and a thread for each; what the policy can't do side by side waits its turn."""

    def __init__(self, policy: Policy, *, host: str, key: bytes) -> None:
        self.policy = policy
        self._turn = threading.Lock()
        self._fitted: HostSpec | None = None
        self.batcher: Batcher[tuple[Session, Observation], Chunk] | None = None
        if isinstance(policy, BatchedPolicy) and policy.is_batched:
            self.batcher = Batcher(self._act_many, most=MOST_AT_ONCE, wait_s=BATCH_WAIT_S)
        self._listener = Listener((host, 0), backlog=128, authkey=key)
        self.port = int(self._listener.address[1])
        self._host, self._is_closed = host, False
        self._thread = threading.Thread(target=self._accept, daemon=True, name='shared policy')
        self._thread.start()

    def _accept(self) -> None:
        from multiprocessing import AuthenticationError

        while not self._is_closed:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError):
                continue  # not one of ours, or gone again
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), daemon=True, name='shared policy client').start()

    def _serve(self, connection: Connection) -> None:
        session: Session | None = None
        with contextlib.suppress(EOFError, OSError):
            while True:
                verb, *given = connection.recv()
                try:
                    answer: Any = None
                    if verb == 'act' and session is not None:
                        answer = self._act(session, given[0])
                    elif verb == 'start':
                        with self._turn:
                            session = self.policy.start(given[0], seed=given[1])
                    else:
                        answer = self._fit(given[0]) if verb == 'fit' else self.policy.spec
                    connection.send((True, answer))
                except Exception as error:
                    connection.send((False, _sendable(error)))

    def _act(self, session: Session, observation: Observation) -> Chunk:
        if self.batcher is not None:
            return self.batcher.ask((session, observation), timeout_s=ANSWER_S)
        with self._turn:
            return session.act(observation)

    def _act_many(self, asked: Sequence[tuple[Session, Observation]]) -> Sequence[Chunk]:
        policy: Any = self.policy
        with self._turn:
            answers: Sequence[Chunk] = policy.act_many([s for s, _ in asked], [o for _, o in asked])
            return answers

    def _fit(self, host: HostSpec) -> PolicySpec:
        with self._turn:
            if isinstance(self.policy, FittedPolicy):
                if self._fitted is None:
                    self.policy.fit(host)
                    self._fitted = host
                elif self._fitted != host:
                    raise InputError(
                        f'a shared policy is fitted to host {self._fitted.name}; all workers need the same'
                    )
            return self.policy.spec

    def close(self) -> None:
        self._is_closed = True
        with contextlib.suppress(OSError):  # a thread that waits for a connection does not notice otherwise
            socket.create_connection((self._host, self.port), timeout=1.0).close()
        self._thread.join(5.0)
        self._listener.close()
        if self.batcher is not None:
            self.batcher.close()
        closing: object = self.policy
        if isinstance(closing, ClosablePolicy):
            closing.close()


def _sendable(error: Exception) -> Exception:
    """The error itself, so that it is judged as in the worker's own process; in words if it can't travel."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f'{type(error).__name__}: {error}')
    return error


class SharedPolicy:
    """A worker's end: a policy like any other, whose thinking is done elsewhere. A lost server is the rig's fault."""

    def __init__(self, *, host: str, port: int, key: str) -> None:
        try:
            self._connection = Client((host, port), authkey=bytes.fromhex(key))
        except (OSError, EOFError) as error:
            raise RigError(f'the policy server of this trial does not answer ({error})') from error
        self._spec: PolicySpec = self._ask('spec')

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def fit(self, host: HostSpec) -> None:
        self._spec = self._ask('fit', host)

    def start(self, setup: Setup, *, seed: int) -> Session:
        self._ask('start', setup, seed)
        return _SharedSession(self)

    def _ask(self, *question: Any) -> Any:
        try:
            self._connection.send(question)
            is_answer, answer = self._connection.recv()
        except (OSError, EOFError) as error:
            raise RigError(f'the policy server of this trial was lost ({type(error).__name__})') from error
        if not is_answer:
            raise answer
        return answer

    def close(self) -> None:
        self._connection.close()


class _SharedSession:
    def __init__(self, policy: SharedPolicy) -> None:
        self._policy = policy

    def act(self, observation: Observation) -> Chunk:
        chunk: Chunk = self._policy._ask('act', observation)
        return chunk


class PolicyHost:
    """The Ray actor around a shared policy."""

    def __init__(self, entry: PolicyEntry, key: str) -> None:
        import ray

        self._key = key
        self._host = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        self._server = SharedPolicyServer(open_policy(entry), host=self._host, key=bytes.fromhex(key))

    def entry(self) -> PolicyEntry:
        """How a worker opens it."""
        options = {'host': self._host, 'port': self._server.port, 'key': self._key}
        return PolicyEntry(use='robotrials.policies.shared:SharedPolicy', options=options)

    def live(self) -> None:
        """Return never, so that its end is noticed."""
        threading.Event().wait()
