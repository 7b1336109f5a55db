"""Model servers of vla-eval: WebSocket frames ``{type, payload, seq, timestamp}``, the client speaks first."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from robotrials.errors import AnswerError, InputError, RemoteError, RigError, SetupError, undone_by
from robotrials.policies.mapping import ActionEntry, ServedOptions
from robotrials.policies.observe import Question
from robotrials.policies.served import MAX_TOLD, Reply, WebSocketPolicy, action_array, decoded, map_answer
from robotrials.run import Gripper, Rotation, Setup, Target
from robotrials.wire import LIMITS, WireLimits
from robotrials.wire.array import FORMATS, pack_vla_eval, unpack_vla_eval
from robotrials.wire.link import Deadline
from robotrials.wire.websocket import WebSocketLink

PROTOCOL_VERSION = 1
ROTATIONS = {
    'euler_xyz': Rotation.EULER_XYZ,
    'axis_angle': Rotation.AXIS_ANGLE,
    'quaternion_xyzw': Rotation.QUATERNION_XYZW,
}
GRIPPERS = {
    'binary_close_positive': Gripper.CLOSED_IS_PLUS_ONE,
    'binary_close_negative': Gripper.OPEN_IS_PLUS_ONE,
    'binary_close_01': Gripper.CLOSED_IS_ONE,
}


@dataclass(frozen=True, slots=True)
class VlaEvalFrame:
    """One frame of the wire."""

    type: str
    payload: Mapping[Any, Any]
    seq: int


class VlaEvalPolicy(WebSocketPolicy):
    """A vla-eval model server as a policy.

    Keys of the mapping with a dot, such as ``images.agentview``, are nested maps on the wire. image_format: how
    pictures travel: png (the peer's default), raw or jpeg. The server batches across connections by itself.
    """

    server = 'the vla-eval model server'

    def __init__(
        self,
        *,
        url: str,
        name: str = 'vla-eval',
        image_format: str = 'png',
        **common: Unpack[ServedOptions],
    ) -> None:
        if image_format not in FORMATS:
            raise InputError(f'image_format is {image_format!r}, wanted one of: {", ".join(FORMATS)}')
        super().__init__(url, name=name, **common)
        self._image_format = image_format
        self._seq = 0
        self._steps = 0
        self._started_s = 0.0

    def _greet(self, link: WebSocketLink, deadline: Deadline) -> None:
        from robotrials import __version__

        payload = {'harness_version': f'robotrials {__version__}', 'protocol_version': PROTOCOL_VERSION}
        seq = self._send(link, 'hello', payload, timeout_s=deadline.left_s())
        answer = self._read(link.receive(timeout_s=deadline.left_s()), seq)
        if answer.type != 'hello':
            raise AnswerError(f'{self.url}: the answer to hello is of type {answer.type!r}')
        version = answer.payload.get('protocol_version')
        if version != PROTOCOL_VERSION:
            raise SetupError(
                f'{self.url}: the server speaks version {str(version)[:20]} of the protocol, '
                f'robotrials {PROTOCOL_VERSION}'
            )
        self._metadata = answer.payload

    def problems(self, sample: Question) -> Iterable[str]:
        yield from _action_problems(self._metadata.get('action_spec'), self._mapping.action)
        yield from _observation_problems(self._metadata.get('observation_spec'), sample)

    def begin(self, setup: Setup, *, seed: int) -> None:
        link = self._renewed()
        task: dict[str, Any] = {'name': setup.task, 'instruction': setup.instruction, 'seed': setup.seed}
        self._steps, self._started_s = 0, time.monotonic()
        self._send(link, 'episode_start', {'task': task}, timeout_s=self._answer_s)

    def ask(self, question: Question) -> Reply:
        try:
            answer = self._ask(question)
        except RemoteError:
            raise  # the connection stays usable after an error message
        except BaseException:
            self.close()
            raise
        actions = answer.payload.get('actions')
        if actions is None:
            given = ', '.join(map(str, answer.payload))[:200]
            raise AnswerError(f"{self.url}: the server answered without 'actions'; it gave {given}")
        self._steps += 1
        return Reply(action_array(self.url, actions))

    def _ask(self, question: Question) -> VlaEvalFrame:
        link = self._link
        if link is None:
            raise RigError(f'{self.url}: the connection was lost during the episode')
        if link.is_stale():  # episode_start is answered only when it failed
            self._read(link.receive(timeout_s=self._answer_s), self._seq)
            raise AnswerError(f'{self.url}: the server sent more than it was asked for')
        seq = self._send(link, 'observation', nested(question), timeout_s=self._answer_s)
        answer = self._read(link.receive(timeout_s=self._answer_s), seq)
        if answer.type != 'action':
            raise AnswerError(f'{self.url}: the answer to an observation is of type {answer.type!r}')
        return answer

    def end(self) -> None:
        if self._link is None:
            return
        payload = {'metrics': {}, 'steps': self._steps, 'elapsed_sec': time.monotonic() - self._started_s}
        with undone_by(self.close):
            self._send(self._link, 'episode_end', payload, timeout_s=self._answer_s)

    def _send(self, link: WebSocketLink, kind: str, payload: Mapping[str, Any], *, timeout_s: float) -> int:
        self._seq += 1
        message = {'type': kind, 'payload': payload, 'seq': self._seq, 'timestamp': time.time()}
        link.send(pack_vla_eval(message, images=self._image_format), timeout_s=timeout_s)
        return self._seq

    def _read(self, frame: bytes | str, seq: int) -> VlaEvalFrame:
        if isinstance(frame, str):
            raise AnswerError(f'{self.url}: a text frame: {frame[:500]!r}')
        message = read_message(self.url, frame, limits=self._limits)
        if message.type == 'error':
            raise RemoteError(f'{self.url}: the server failed: {str(message.payload.get("error"))[:MAX_TOLD]}')
        if message.seq != seq:
            raise AnswerError(f'{self.url}: an answer to message {message.seq}, wanted one to {seq}')
        return message


def read_message(where: str, frame: bytes, *, limits: WireLimits = LIMITS) -> VlaEvalFrame:
    """A frame of the wire; AnswerError if it is none."""
    raw = map_answer(where, decoded(where, lambda: unpack_vla_eval(frame, limits=limits)))
    missing = [key for key in ('type', 'payload', 'seq', 'timestamp') if key not in raw]
    if missing:
        raise AnswerError(f'{where}: a message without {", ".join(missing)}')
    if not isinstance(raw['type'], str) or not isinstance(raw['seq'], int) or not isinstance(raw['payload'], Mapping):
        raise AnswerError(f'{where}: a message whose type, seq or payload is not a text, a number and a map')
    return VlaEvalFrame(raw['type'][:40], raw['payload'], raw['seq'])


def nested(question: Mapping[str, Any]) -> dict[str, Any]:
    """Keys with a dot as maps in maps."""
    result: dict[str, Any] = {}
    for key, value in question.items():
        *outer, last = key.split('.')
        table = result
        for name in outer:
            table = table.setdefault(name, {})
        table[last] = value
    return result


def _action_problems(spec: object, action: ActionEntry) -> Iterator[str]:
    """Width, rotation, target and gripper as the server states them, against the mapping."""
    if not isinstance(spec, Mapping):
        return
    convention = action.convention
    components = {str(name): part for name, part in spec.items() if isinstance(part, Mapping)}
    dims = [part.get('dims') for part in components.values()]
    total = sum(n for n in dims if isinstance(n, int))
    if dims and all(isinstance(n, int) for n in dims) and total < max((*action.order, convention.width - 1)) + 1:
        yield f'the server gives {total} numbers per action, the mapping takes {convention.width}'
    for part in components.values():
        form = part.get('format')
        if form in ROTATIONS and ROTATIONS[form] is not convention.rotation:
            yield f'rotation: the server gives {form}, the mapping says {convention.rotation}'
        if form in GRIPPERS and GRIPPERS[form] is not convention.gripper and not action.gripper_range:
            yield f'gripper: the server gives {form}, the mapping says {convention.gripper}'
        if form in ('delta_xyz', 'absolute_xyz'):
            target = Target.DELTA if form == 'delta_xyz' else Target.ABSOLUTE
            if convention.target is not target:
                yield f'target: the server gives {form}, the mapping says {convention.target}'


def _observation_problems(spec: object, sample: Question) -> Iterator[str]:
    """What the server says it wants, against what it will get; pictures and words are only counted."""
    if not isinstance(spec, Mapping):
        return
    vectors = [v for v in sample.values() if isinstance(v, np.ndarray) and v.ndim == 1]
    n_images = sum(isinstance(v, np.ndarray) and v.ndim == 3 for v in sample.values())
    for name, part in spec.items():
        if not isinstance(part, Mapping):
            continue
        dims, form = part.get('dims'), part.get('format')
        if form == 'rgb_hwc_uint8' and not n_images:
            yield f'the server wants pictures ({name}), the mapping sends none'
        if form == 'language' and not any(isinstance(v, str) for v in sample.values()):
            yield f'the server wants an instruction ({name}), the mapping sends none'
        is_vector = isinstance(dims, int) and dims > 0 and form not in ('rgb_hwc_uint8', 'language')
        if is_vector and not any(len(v) == dims for v in vectors):
            widths = ', '.join(str(len(v)) for v in vectors) or 'none'
            yield f'the server wants {name} of {dims} numbers ({form}), the mapping sends vectors of {widths}'
