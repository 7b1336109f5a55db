"""Serving a robotrials policy on other people's wires: openpi's and vla-eval's clients can use it as it is.

A thread per connection, bounded in number; frames are bounded before they are read, a client that neither speaks nor
listens is disconnected, and `/healthz` and `/health` answer on the same port.

One policy for many workers of a trial: each with its own episode and seed, in batches where the policy can.

For processes of one trial that trust each other, as those of a Ray cluster do: objects go as they are over an
authenticated connection. For others' clients there is `robotrials.policies.server`.
"""

from __future__ import annotations

import contextlib
import http
import pickle
import queue
import socket
import struct
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NoAnswer, RigError, install_hint, load_optional, near_miss
from robotrials.policies.vla_eval import GRIPPERS, PROTOCOL_VERSION, ROTATIONS, read_message
from robotrials.run import (
    ActionConvention,
    Chunk,
    ControlMode,
    Gripper,
    HostSpec,
    Observation,
    Policy,
    PolicySpec,
    Rotation,
    Session,
    Setup,
    Target,
)
from robotrials.run.component import open_policy
from robotrials.run.plan import PolicyEntry
from robotrials.run.seam import ClosablePolicy, FittedPolicy
from robotrials.wire import LIMITS, WireLimits, pack, unpack
from robotrials.wire.array import pack_vla_eval

# One policy for many threads: a question at a time or, where it can answer several at once, in batches.


@runtime_checkable
class BatchedPolicy(Protocol):
    """A policy that can answer for several sessions at once."""

    @property
    def is_batched(self) -> bool: ...

    def act_many(self, sessions: Sequence[Session], observations: Sequence[Observation]) -> Sequence[Chunk]: ...


Waiting = tuple[Session, Observation, 'Future[Chunk]']


class PolicyTurns:
    """Lets threads take turns at a policy; with `most` above 1, one thread answers up to that many questions at once.

    A question waits at most `wait_s` for others, and `limit_s` for its answer. An error of a batch goes to every thread
    that was in it.
    """

    def __init__(self, policy: Policy, *, most: int, wait_s: float, limit_s: float) -> None:
        if most < 1 or not 0 <= wait_s < 60:
            raise InputError(f'a batch of {most} that waits {wait_s} s; wanted at least 1, and 0 to 60 s')
        self.policy, self._most, self._wait_s, self._limit_s = policy, most, wait_s, limit_s
        self.turn = threading.Lock()
        self._questions: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self.sizes: list[int] = []  # of the last batches, newest last
        self._thread: threading.Thread | None = None
        if most > 1:
            if not (isinstance(policy, BatchedPolicy) and policy.is_batched):
                raise InputError(f'policy {policy.spec.name} answers one question at a time; serve it without a batch')
            self._thread = threading.Thread(target=self._serve, args=(policy,), daemon=True, name='batch')
            self._thread.start()

    def start(self, setup: Setup, *, seed: int) -> Session:
        with self.turn:
            return self.policy.start(setup, seed=seed)

    def act(self, session: Session, observation: Observation) -> Chunk:
        """The answer to one question; NoAnswer if it is in a batch that takes too long."""
        if self._thread is None:
            with self.turn:
                return session.act(observation)
        answer: Future[Chunk] = Future()
        self._questions.put((session, observation, answer))
        if not wait([answer], self._limit_s).done:
            raise NoAnswer(f'no answer within {self._limit_s:g} s')
        return answer.result()

    def end(self, session: Session | None) -> None:
        closing: object = session
        if isinstance(closing, ClosablePolicy):
            with self.turn:
                closing.close()

    def close(self) -> None:
        if self._thread is not None:
            self._questions.put(None)
            self._thread.join(5.0)
        closing: object = self.policy
        if isinstance(closing, ClosablePolicy):
            closing.close()

    def _serve(self, policy: BatchedPolicy) -> None:
        while (batch := self._gather()) is not None:
            self.sizes = [*self.sizes[-99:], len(batch)]
            sessions, observations, answers = zip(*batch, strict=True)
            try:
                with self.turn:
                    chunks = policy.act_many(list(sessions), list(observations))
                if len(chunks) != len(batch):
                    raise InputError(f'{len(chunks)} answers to {len(batch)} questions')
                for answer, chunk in zip(answers, chunks, strict=True):
                    answer.set_result(chunk)
            except BaseException as error:
                for answer in answers:
                    answer.set_exception(error)

    def _gather(self) -> list[Waiting] | None:
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


class OfferedPolicy(PolicyTurns):
    """One policy for many clients, asked in their own keys."""

    def __init__(
        self, policy: Policy, *, state_width: int, names: WireNames, limit_s: float = 60.0, batch: int = 1,
        batch_wait_s: float = 0.005,
    ) -> None:  # fmt: skip
        super().__init__(policy, most=batch, wait_s=batch_wait_s, limit_s=limit_s)
        self.names, self._state_width = names, state_width

    def begin(self, instruction: str, *, seed: int) -> Session:
        return self.start(Setup(task='served', seed=seed, instruction=instruction), seed=seed)

    def answer(self, session: Session, question: Mapping[str, Any]) -> Chunk:
        return self.act(session, self.names.observation(question, state_width=self._state_width))


def _asked(question: Mapping[str, Any], key: str) -> NDArray[Any]:
    if key not in question:
        raise InputError(f'the question has no {key!r}: {near_miss(key, list(map(str, question)))}')
    return np.asarray(question[key])


MOST_AT_ONCE = 32
BATCH_WAIT_S = 0.003
ANSWER_S = 600.0  # the worker's own watchdog is stricter


class SharedPolicyServer:
    """Answers workers, a connection and a thread for each; what the policy cannot do concurrently waits its turn."""

    def __init__(self, policy: Policy, *, host: str, key: bytes) -> None:
        is_batched = isinstance(policy, BatchedPolicy) and policy.is_batched
        most = MOST_AT_ONCE if is_batched else 1
        self.turns = PolicyTurns(policy, most=most, wait_s=BATCH_WAIT_S, limit_s=ANSWER_S)
        self._fitted: HostSpec | None = None
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
                        answer = self.turns.act(session, given[0])
                    elif verb == 'start':
                        session = self.turns.start(given[0], seed=given[1])
                    else:
                        answer = self._fit(given[0]) if verb == 'fit' else self.turns.policy.spec
                    connection.send((True, answer))
                except Exception as error:
                    connection.send((False, _sendable(error)))

    def _fit(self, host: HostSpec) -> PolicySpec:
        policy = self.turns.policy
        with self.turns.turn:
            if isinstance(policy, FittedPolicy):
                if self._fitted is None:
                    policy.fit(host)
                    self._fitted = host
                elif self._fitted != host:
                    raise InputError(
                        f'a shared policy is fitted to host {self._fitted.name}; all workers need the same'
                    )
            return policy.spec

    def close(self) -> None:
        self._is_closed = True
        with contextlib.suppress(OSError):  # a thread that waits for a connection does not notice otherwise
            socket.create_connection((self._host, self.port), timeout=1.0).close()
        self._thread.join(5.0)
        self._listener.close()
        self.turns.close()


def _sendable(error: Exception) -> Exception:
    """The error itself, so that it is judged as in the worker's own process; as text if it cannot be pickled."""
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
        self.spec: PolicySpec = self._ask('spec')

    def fit(self, host: HostSpec) -> None:
        self.spec = self._ask('fit', host)

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
        return PolicyEntry(use='robotrials.policies.server:SharedPolicy', options=options)

    def live(self) -> None:
        """Return never, so that its end is noticed."""
        threading.Event().wait()


HEALTH_PATHS = ('/healthz', '/health')
SEND_S = 30
HANG_UP = 'Internal server error. Traceback included in previous frame.'


class Conversation(Protocol):
    """What one wire says on one connection."""

    def open(self, send: Any) -> None:
        """Whatever the server says first."""

    def hear(self, frame: bytes | str, send: Any) -> bool:
        """Answer one frame; whether the connection stays open."""

    def close(self) -> None: ...


class ConversationServer:
    """Holds conversations on one port, in threads, until closed; `converse` makes one for the nth connection."""

    def __init__(
        self,
        converse: Callable[[int], Conversation],
        *,
        host: str = '127.0.0.1',
        port: int = 0,
        idle_s: float = 600.0,
        most_connections: int = 64,
        limits: WireLimits = LIMITS,
    ) -> None:
        lack = f'websockets is not installed; {install_hint("wire")}'
        serve = load_optional('websockets.sync.server', lack).serve
        self._converse, self._idle_s = converse, idle_s
        self._places = threading.BoundedSemaphore(most_connections)
        self._count = 0
        try:
            self._server = serve(
                self._handle,
                host,
                port,
                compression=None,
                max_size=limits.max_bytes,
                max_queue=2,
                ping_interval=None,
                open_timeout=10,
                close_timeout=1,
                process_request=_answer_health,
            )
        except OSError as error:
            raise InputError(f'{host}:{port} cannot be listened on ({error.strerror}); give another port') from error
        self.port = int(self._server.socket.getsockname()[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True, name='policy server')
        self._thread.start()

    def wait(self) -> None:
        """Serve until the process is stopped."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def _handle(self, connection: Any) -> None:
        from websockets.exceptions import ConnectionClosed

        if not self._places.acquire(blocking=False):
            connection.close(code=1013, reason='too many connections')
            return
        # The wire's own sends have no deadline; the kernel's has.
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', SEND_S, 0))
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._count += 1
        conversation = self._converse(self._count)
        try:
            conversation.open(connection.send)
            while conversation.hear(connection.recv(timeout=self._idle_s), connection.send):
                pass
            connection.close(code=1011, reason=HANG_UP)
        except TimeoutError:
            connection.close(code=1001, reason='silent for too long')
        except (ConnectionClosed, OSError):
            pass  # the client left, or does not read
        finally:
            self._places.release()
            with contextlib.suppress(Exception):  # the client is gone; what a session leaves behind is its own
                conversation.close()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PolicyServer(ConversationServer):
    """Serves an OfferedPolicy on `wire` (openpi or vla-eval)."""

    def __init__(self, offered: OfferedPolicy, *, wire: str, limits: WireLimits = LIMITS, **options: Any) -> None:
        if wire not in CONVERSATIONS:
            raise InputError(f'wire is {wire!r}, wanted one of: {", ".join(CONVERSATIONS)}')
        self._offered = offered
        super().__init__(lambda n: CONVERSATIONS[wire](offered, seed=n, limits=limits), limits=limits, **options)

    def close(self) -> None:
        super().close()
        self._offered.close()


class OpenPiConversation:
    """Metadata first, then question and answer. A changed prompt begins a new session: the wire has no other sign."""

    def __init__(self, offered: OfferedPolicy, *, seed: int, limits: WireLimits) -> None:
        self._offered, self._seed, self._limits = offered, seed, limits
        self._session: Session | None = None
        self._instruction = ''
        self._last_total_ms: float | None = None

    def open(self, send: Any) -> None:
        spec = self._offered.policy.spec
        greeting = {
            'policy': spec.name, 'served_by': 'robotrials', 'action_horizon': spec.chunk_length,
            'action_dim': spec.action.width, 'control_rate_hz': spec.control_rate_hz,
        }  # fmt: skip
        send(pack(greeting))

    def hear(self, frame: bytes | str, send: Any) -> bool:
        began_s = time.perf_counter()
        try:
            answer = self._answer(frame)
        except Exception:
            send(traceback.format_exc())
            return False
        if self._last_total_ms is not None:
            answer['server_timing']['prev_total_ms'] = self._last_total_ms
        send(pack(answer))
        self._last_total_ms = (time.perf_counter() - began_s) * 1000
        return True

    def _answer(self, frame: bytes | str) -> dict[str, Any]:
        if isinstance(frame, str):
            raise InputError('a text frame, wanted a msgpack map')
        question = unpack(frame, limits=self._limits)
        if not isinstance(question, Mapping):
            raise InputError(f'the question is a {type(question).__name__}, wanted a map')
        instruction = self._offered.names.instruction(question)
        if self._session is None or instruction != self._instruction:
            self._offered.end(self._session)
            self._session = self._offered.begin(instruction, seed=self._seed)
            self._instruction = instruction
        began_s = time.perf_counter()
        chunk = self._offered.answer(self._session, question)
        return {'actions': chunk.actions, 'server_timing': {'infer_ms': (time.perf_counter() - began_s) * 1000}}

    def close(self) -> None:
        self._offered.end(self._session)


class VlaEvalConversation:
    """Hello, then episodes; chunks are kept here, and every observation is answered with one action."""

    def __init__(self, offered: OfferedPolicy, *, seed: int, limits: WireLimits) -> None:
        self._offered, self._seed, self._limits = offered, seed, limits
        self._session: Session | None = None
        self._rest: list[Any] = []

    def open(self, send: Any) -> None:
        """The client speaks first."""

    def hear(self, frame: bytes | str, send: Any) -> bool:
        if isinstance(frame, str):
            return False
        try:
            message = read_message('client', frame, limits=self._limits)
        except Exception:
            return False  # as its own servers do: what cannot be read ends the connection
        try:
            answer = self._answer(message.type, message.payload)
        except Exception as error:
            text = f'{message.type}_failed: {type(error).__name__}: {error}'
            answer = ('error', {'error': text[:2000]})
        if answer is not None:
            kind, payload = answer
            reply = {'type': kind, 'payload': payload, 'seq': message.seq, 'timestamp': time.time()}
            send(pack_vla_eval(reply))
        return True

    def _answer(self, kind: str, payload: Mapping[Any, Any]) -> tuple[str, dict[str, Any]] | None:
        if kind == 'hello':
            return 'hello', self._hello()
        if kind in ('episode_start', 'episode_end'):
            self._finish()
            return None
        if kind == 'observation':
            return 'action', {'actions': self._action(dict(_flat(payload)))}
        return None

    def _action(self, question: Mapping[str, Any]) -> Any:
        if self._session is None:
            self._session = self._offered.begin(self._offered.names.instruction(question), seed=self._seed)
        if not self._rest:
            spec = self._offered.policy.spec
            chunk = self._offered.answer(self._session, question)
            self._rest = list(chunk.actions[: spec.execute or spec.chunk_length])
        return self._rest.pop(0)

    def _hello(self) -> dict[str, Any]:
        from robotrials import __version__

        spec = self._offered.policy.spec
        return {
            'harness_version': f'robotrials {__version__}',
            'protocol_version': PROTOCOL_VERSION,
            'model_server': spec.name,
            'capabilities': {},
            'action_spec': action_spec(spec.action),
        }

    def _finish(self) -> None:
        session, self._session, self._rest = self._session, None, []
        self._offered.end(session)

    def close(self) -> None:
        self._finish()


CONVERSATIONS: dict[str, Any] = {'openpi': OpenPiConversation, 'vla-eval': VlaEvalConversation}

_ROTATION_FORMATS = {rotation: form for form, rotation in ROTATIONS.items()}
_GRIPPER_FORMATS = {gripper: form for form, gripper in GRIPPERS.items()} | {Gripper.OPEN_IS_ONE: 'continuous_01'}


def action_spec(convention: ActionConvention) -> dict[str, dict[str, Any]]:
    """A convention as vla-eval states it."""
    if convention.control_mode is not ControlMode.SE3:
        parts = {'joints': {'name': 'joints', 'dims': convention.n_joints, 'format': 'joint_positions'}}
        if convention.control_mode is ControlMode.JOINT_VELOCITY:
            parts['joints']['format'] = 'raw'
    else:
        place = 'delta_xyz' if convention.target is Target.DELTA else 'absolute_xyz'
        parts = {'position': {'name': 'position', 'dims': 3, 'format': place}}
        if convention.rotation is not Rotation.NONE:
            form = _ROTATION_FORMATS.get(convention.rotation, 'raw')
            parts['rotation'] = {'name': 'rotation', 'dims': convention.motion_width - 3, 'format': form}
    if convention.gripper is not Gripper.NONE:
        parts['gripper'] = {'name': 'gripper', 'dims': 1, 'format': _GRIPPER_FORMATS[convention.gripper]}
    return parts


def _flat(payload: Mapping[Any, Any], prefix: str = '') -> Iterator[tuple[str, Any]]:
    for key, value in payload.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f'{prefix}{key}.')
        else:
            yield f'{prefix}{key}', value


def _answer_health(connection: Any, request: Any) -> Any:
    if request.path.partition('?')[0] in HEALTH_PATHS:
        text = 'OK\n' if request.path.startswith('/healthz') else '{"status": "ok"}\n'
        return connection.respond(http.HTTPStatus.OK, text)
    return None
