"""The worker's side of a client's connection: a policy whose sessions ask over the link.

What goes wrong on the client's side is the policy's own fault, also a connection that ends: a client that could undo an
episode by hanging up would hang up whenever it was about to fail.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from robotrials.errors import AnswerError, InputError, NoAnswer, RemoteError, RigError
from robotrials.record.trajectory import Camera
from robotrials.run.seam import Action, Chunk, HostSpec, Observation, PolicySpec, Session, Setup
from robotrials.service.platform.job import TokenFault
from robotrials.value import read_table
from robotrials.wire import WireLimits, pack, unpack
from robotrials.wire.websocket import AcceptedWebSocket
from robotrials.worlds.wrapper import Interrupts

# What client and worker say to each other: msgpack maps with a `type`, one message a WebSocket frame.
# client worker begin_eval (version, token) -> <- welcome (host, limits on answers) policy (its spec) -> <- observation
# (step; the first also the setup) action (step) -> ... until <- end (how it ended)
# Nothing of an episode is told before its first observation: whoever has seen that has begun, and cannot choose any
# more. Either side may say `error` (code, message) instead, and hangs up. A client's message is bounded before it is
# read.

T = TypeVar('T')
VERSION = 2
CLIENT_LIMITS = WireLimits(max_bytes=4 << 20, max_values=20_000, max_depth=8, max_text_bytes=1 << 16)
WORKER_LIMITS = WireLimits()
LONGEST_CHUNK = 1000
LONGEST_REASON = 500
LARGEST_ACTION = 1e6  # in any robot's units; what would overflow a simulator is no action


class MessageType(enum.StrEnum):
    BEGIN_EVAL = 'begin_eval'
    WELCOME = 'welcome'
    POLICY = 'policy'
    OBSERVATION = 'observation'
    ACTION = 'action'
    END = 'end'
    ERROR = 'error'


class ErrorCode(enum.StrEnum):
    """Why one side hangs up."""

    MALFORMED = 'malformed'  # not a message, or not the one that was due
    TOO_LARGE = 'too_large'  # a frame above the limit
    VERSION = 'version'  # the other side speaks another version
    TOKEN_MALFORMED = 'token_malformed'
    TOKEN_FORGED = 'token_forged'
    TOKEN_WRONG_WORKER = 'token_wrong_worker'
    TOKEN_EXPIRED = 'token_expired'
    TOKEN_REPLAYED = 'token_replayed'
    LEASE_VOID = 'lease_void'  # the server does not know it, or has taken it back
    BUSY = 'busy'  # an episode is under way
    OUT_OF_SERVICE = 'out_of_service'
    DRAINING = 'draining'
    DOES_NOT_FIT = 'does_not_fit'  # conventions of host and policy differ
    BAD_ACTION = 'bad_action'  # of a wrong shape, not finite, of another step
    TIMEOUT = 'timeout'  # no answer in time
    POLICY_FAILED = 'policy_failed'  # the client says so of its own policy
    EMERGENCY_STOP = 'emergency_stop'
    WORKER_FAILED = 'worker_failed'  # the cell broke, and not the policy
    SERVER_UNREACHABLE = 'server_unreachable'  # the worker cannot ask whether the lease holds

    @classmethod
    def of_token(cls, fault: TokenFault) -> ErrorCode:
        return cls(f'token_{fault.value}')

    @property
    def is_passing(self) -> bool:
        """Whether asking for another lease may help."""
        return self in _PASSING


_PASSING = frozenset({
    ErrorCode.TOKEN_EXPIRED, ErrorCode.TOKEN_REPLAYED, ErrorCode.TOKEN_FORGED, ErrorCode.TOKEN_WRONG_WORKER,
    ErrorCode.LEASE_VOID, ErrorCode.BUSY, ErrorCode.OUT_OF_SERVICE, ErrorCode.DRAINING, ErrorCode.EMERGENCY_STOP,
    ErrorCode.WORKER_FAILED, ErrorCode.SERVER_UNREACHABLE, ErrorCode.TIMEOUT,
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeEnd:
    """How an episode ended; `outcome` is empty while blinding hides it."""

    outcome: str = ''
    reason: str = ''
    n_steps: int = 0


def encode(kind: MessageType, **fields: object) -> bytes:
    """One message as bytes."""
    return pack({'type': kind.value, **fields})


def encode_error(code: ErrorCode, message: str) -> bytes:
    return encode(MessageType.ERROR, code=code.value, message=message[:LONGEST_REASON])


def decode(data: bytes | str, *, limits: WireLimits) -> tuple[MessageType, dict[str, Any]]:
    """The type and fields of a message; InputError if it is none."""
    if not isinstance(data, bytes):
        raise InputError('a text frame, wanted a binary one')
    values = unpack(data, limits=limits)
    kind = values.pop('type', None) if isinstance(values, dict) else None
    if not isinstance(kind, str) or kind not in set(MessageType):
        raise InputError(f'a message of type {str(kind)[:40]!r}, wanted one of: {", ".join(MessageType)}')
    return MessageType(kind), values


def read_error(fields: Mapping[str, Any]) -> tuple[str, str]:
    """Code and message of an `error`."""
    return str(fields.get('code'))[:40], str(fields.get('message'))[:LONGEST_REASON]


# --- specs and setups


def spec_to_map(spec: HostSpec | PolicySpec) -> dict[str, Any]:
    """A spec as plain values; what is None, False or empty is left out, and a camera of any size has none."""
    values = dataclasses.asdict(spec)
    values['images'] = {name: [] if size is None else list(size) for name, size in spec.images.items()}
    return {key: value for key, value in values.items() if value is not None and value is not False and value != ()}


def host_spec_from_map(values: object) -> HostSpec:
    return _read(HostSpec, values, 'host')


def policy_spec_from_map(values: object) -> PolicySpec:
    """A client's description of its policy, checked."""
    if not isinstance(values, Mapping) or not isinstance(values.get('images', {}), Mapping):
        raise InputError('policy: wanted a map of a policy spec')
    sizes = values.get('images', {})
    given = {name: size for name, size in sizes.items() if size != []}
    spec = _read(PolicySpec, {**values, 'images': given}, 'policy')
    if spec.moments:
        raise InputError(f'policy: it wants the moments {list(spec.moments)}, and a platform shows the present alone')
    if spec.chunk_length > LONGEST_CHUNK:
        raise InputError(f'policy: chunk_length is {spec.chunk_length}, wanted at most {LONGEST_CHUNK}')
    return dataclasses.replace(spec, images={**dict.fromkeys(map(str, sizes), None), **spec.images})


def setup_to_map(setup: Setup) -> dict[str, Any]:
    values = ((f.name, getattr(setup, f.name)) for f in dataclasses.fields(setup))
    return {name: dict(v) if isinstance(v, Mapping) else v for name, v in values if v is not None}


def told_setup(setup: Setup, *, seed: int) -> Setup:
    """What a submitted policy is told of an episode: the task, its words, and a seed of its own.

    Scenes are matched. Seed, instance, condition or labels would say which of them this is, and whoever knows that can
    learn the start states of an open benchmark by heart.
    """
    return Setup(task=setup.task, instruction=setup.instruction, seed=seed)


def setup_from_map(values: object) -> Setup:
    return _read(Setup, values, 'setup')


def _read(kind: type[T], values: object, where: str) -> T:
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise InputError(f'{where}: wanted a map')
    return read_table(kind, values, where=where)


# --- observations and actions


def observation_to_map(observation: Observation, cameras: frozenset[str] | None) -> dict[str, Any]:
    """An observation as it is sent: of the cameras only those that the policy asked for, if it named any."""

    def sent(name: str) -> bool:
        return cameras is None or name in cameras

    values: dict[str, Any] = {'t_s': float(observation.t_s), 'state': observation.state}
    if observation.images:
        values['images'] = {name: image for name, image in observation.images.items() if sent(name)}
    if observation.depth_m:
        values['depth_m'] = {name: depth for name, depth in observation.depth_m.items() if sent(name)}
    if observation.cameras:
        values['cameras'] = {name: _camera_to_map(c) for name, c in observation.cameras.items() if sent(name)}
    return values


def observation_from_map(values: Mapping[str, Any]) -> Observation:
    cameras = {name: _camera_from_map(name, camera) for name, camera in values.get('cameras', {}).items()}
    return Observation(
        float(values['t_s']), values['state'], values.get('images', {}), values.get('depth_m', {}), cameras
    )  # fmt: skip


def _camera_to_map(camera: Camera) -> dict[str, Any]:
    return {
        'size_px': [camera.width_px, camera.height_px],
        'intrinsics_px': camera.intrinsics_px,
        'world_from_camera': camera.world_from_camera,
    }


def _camera_from_map(name: str, values: Mapping[str, Any]) -> Camera:
    width_px, height_px = values['size_px']
    return Camera(name, values['intrinsics_px'], values['world_from_camera'], width_px, height_px)


def read_action(fields: Mapping[str, Any], *, step: int) -> Chunk:
    """The answer to observation `step`; AnswerError if it is none. Shape and finiteness are judged by the loop."""
    if fields.get('step') != step or isinstance(fields.get('step'), bool):
        raise AnswerError(f'an action for step {str(fields.get("step"))[:20]}, wanted one for step {step}')
    actions, inference_s = fields.get('actions'), fields.get('inference_s')
    if not isinstance(actions, np.ndarray):
        raise AnswerError(f'actions are a {type(actions).__name__}, wanted an array')
    if inference_s is not None:
        is_number = isinstance(inference_s, int | float) and not isinstance(inference_s, bool)
        if not is_number or not math.isfinite(inference_s) or inference_s < 0:
            raise AnswerError(f'inference_s is {str(inference_s)[:40]}, wanted a finite number >= 0')
    chunk = Chunk(actions, inference_s)
    check_size(chunk)
    return chunk


def check_size(chunk: Chunk) -> None:
    """Refuse numbers that no robot is driven with: a host that chokes on them would seem to have broken by itself."""
    actions = np.asarray(chunk.actions)
    if actions.dtype.kind in 'fiu' and actions.size and np.any(np.abs(actions.astype(float)) > LARGEST_ACTION):
        raise AnswerError(f'actions of more than {LARGEST_ACTION:g} in size')


SEND_S = 10.0
GLANCE_S = 0.1  # how often a wait looks at the emergency stop
CLOSED_S = 1.0


class ClientLink:
    """One client's connection, message by message. Every fault of it is an error of the policy."""

    def __init__(self, socket: AcceptedWebSocket, interrupts: Interrupts) -> None:
        self._socket, self._interrupts = socket, interrupts

    def send(self, data: bytes) -> None:
        try:
            self._socket.send(data, timeout_s=SEND_S)
        except RigError as error:
            raise RemoteError(f'the client is gone: {error}') from error

    def receive(self, wanted: MessageType, *, timeout_s: float) -> dict[str, object]:
        """The fields of the next message, if it is of the type that is due."""
        data = self._next_frame(time.monotonic() + timeout_s, timeout_s)
        try:
            kind, fields = decode(data, limits=CLIENT_LIMITS)
        except InputError as error:
            raise AnswerError(f'the client sent a malformed message: {error}') from error
        if kind is MessageType.ERROR:
            raise RemoteError('the client says: {}: {}'.format(*read_error(fields)))
        if kind is not wanted:
            raise AnswerError(f'the client sent {kind}, wanted {wanted}')
        return fields

    def _next_frame(self, ends_s: float, timeout_s: float) -> bytes | str:
        while True:
            try:
                return self._socket.receive(timeout_s=GLANCE_S)
            except NoAnswer:
                if self._interrupts.stop.is_set():
                    raise Stopped from None
                if self._interrupts.lost.is_set():
                    raise RigError('the server has taken the lease back') from None
                if time.monotonic() > ends_s:
                    raise NoAnswer(f'no answer within {timeout_s:g} s') from None
            except RigError as error:
                raise RemoteError(f'the client is gone: {error}') from error

    def close(self, last: bytes | None = None) -> None:
        """Say a last word, if the client still listens, and hang up."""
        try:
            if last is not None:
                self._socket.send(last, timeout_s=CLOSED_S)
        except (RigError, AnswerError):
            pass  # it does not
        finally:
            self._socket.close()

    def refuse(self, code: ErrorCode, message: str) -> None:
        self.close(encode_error(code, message))


class Stopped(Exception):  # noqa: N818 - not an error: the emergency stop ends a wait
    """The emergency stop was pressed while a policy was thinking."""


def greet(link: ClientLink, host: HostSpec, *, answer_s: float, thinking_s: float, timeout_s: float) -> PolicySpec:
    """Tell a client of the cell, and hear what its policy is.

    What it is told is the same for every episode of a benchmark: the host, and how long one answer (`answer_s`) and all
    answers of the episode together (`thinking_s`) may take. Nothing that differs between tasks (a time cap) or attempts
    may be in it, as it would tell which episode comes next.
    """
    words = {'version': VERSION, 'host': spec_to_map(host), 'answer_s': answer_s, 'thinking_s': thinking_s}
    link.send(encode(MessageType.WELCOME, **words))
    fields = link.receive(MessageType.POLICY, timeout_s=timeout_s)
    try:
        return policy_spec_from_map(fields.get('spec'))
    except InputError as error:
        raise AnswerError(f'the client describes its policy incorrectly: {error}') from error


class LinkPolicy:
    """The policy at the other end of a link, for the run's own loop."""

    def __init__(
        self, link: ClientLink, spec: PolicySpec, *, code: str, seed: int, answer_s: float, hold: Callable[[], Action]
    ) -> None:
        self._link, self._seed, self._answer_s, self._hold = link, seed, answer_s, hold
        self._spec = dataclasses.replace(spec, name=code, is_remote=True)
        self.arrivals_s: dict[int, float] = {}  # by the number of its question: when the answer was there, perf_counter

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def start(self, setup: Setup, *, seed: int) -> Session:
        """A session, of which the client hears with its first question; `seed` is the loop's, it gets its own."""
        return _LinkSession(self, told_setup(setup, seed=self._seed))

    def ask(self, observation: Observation, step: int, setup: Setup) -> Chunk:
        """One question and its answer; with the first the client is told what it is to do."""
        link = self._link
        cameras = frozenset(self._spec.images) or None
        opening = {'setup': setup_to_map(setup)} if step == 0 else {}
        link.send(encode(MessageType.OBSERVATION, step=step, **opening, **observation_to_map(observation, cameras)))
        try:
            fields = link.receive(MessageType.ACTION, timeout_s=self._answer_s)
        except Stopped:
            return Chunk(np.tile(self._hold(), (self._spec.chunk_length, 1)))
        arrived_s = time.perf_counter()
        chunk = read_action(fields, step=step)
        self.arrivals_s[step] = arrived_s
        return chunk


class _LinkSession:
    def __init__(self, policy: LinkPolicy, setup: Setup) -> None:
        self._policy, self._setup = policy, setup
        self._asked = 0

    def act(self, observation: Observation) -> Chunk:
        self._asked += 1
        return self._policy.ask(observation, self._asked - 1, self._setup)
