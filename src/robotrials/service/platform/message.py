"""What client and worker say to each other: msgpack maps with a `type`, one message a WebSocket frame.

    client                          worker
    begin_eval (version, token)  ->
                                 <- welcome (host, limits on answers)
    policy (its spec)            ->
                                 <- observation (step; the first also the setup)
    action (step)                ->        ... until
                                 <- end (how it ended)

Nothing of an episode is told before its first observation: whoever has seen that has begun, and cannot choose any more.
Either side may say `error` (code, message) instead, and hangs up. A client's message is bounded before it is read.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from robotrials.declaration import read_table
from robotrials.errors import AnswerError, InputError
from robotrials.record.trajectory import Camera
from robotrials.run.convention import HostSpec, PolicySpec
from robotrials.run.seam import Chunk, Observation, Setup
from robotrials.service.platform.lease_token import TokenFault
from robotrials.wire import WireLimits, pack, unpack

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


@dataclass(frozen=True, slots=True)
class PeerError:
    """An `error` message."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """What a client is told before it says what its policy is: the same for every episode of a benchmark.

    Nothing that differs between tasks (a time cap) or attempts may be here: it would tell which episode comes next.
    """

    host: HostSpec
    answer_s: float  # for one answer
    thinking_s: float  # for all answers of the episode together


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
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


def read_error(fields: Mapping[str, Any]) -> PeerError:
    code, message = fields.get('code'), fields.get('message')
    return PeerError(str(code)[:40], str(message)[:LONGEST_REASON])


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
    values = {f.name: getattr(setup, f.name) for f in dataclasses.fields(setup)}
    plain = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
    return {key: value for key, value in plain.items() if value is not None}


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
