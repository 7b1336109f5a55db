"""Every wire with a small server of it: what the fault suite, the mapping tests and the peers' tests share."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
from tests.servers import FaultyHttp, FaultyWebSocket, FaultyZmq

from robotrials.policies.groot import GrootPolicy
from robotrials.policies.openpi import OpenPiPolicy, RoboArenaPolicy
from robotrials.policies.openvla import OpenVlaPolicy
from robotrials.policies.positronic import PositronicPolicy
from robotrials.policies.served import ServedPolicy
from robotrials.policies.vla_eval import VlaEvalPolicy
from robotrials.run import ActionConvention, Chunk, HostSpec, Observation, Setup
from robotrials.wire import pack
from robotrials.wire.array import pack_groot, pack_json, pack_vla_eval, unpack_groot, unpack_vla_eval

JOINTS: dict[str, Any] = {
    'control_mode': 'joint_position',
    'target': 'absolute',
    'frame': 'joint',
    'n_joints': 7,
    'gripper': 'closed_is_one',
}
ACTION = {'convention': JOINTS, 'chunk_length': 2}
HOST = HostSpec(
    name='arm',
    action=ActionConvention(**JOINTS),
    control_rate_hz=10.0,
    state_width=8,
    images={'exterior': (8, 8), 'wrist': (8, 8)},
)
GOOD = np.arange(16, dtype=np.float32).reshape(2, 8) / 16
Payload = object  # the actions of an answer: an array, or something that must be refused


@dataclass(frozen=True)
class Wire:
    """How to make a policy and a server of one wire; `server(payload, **fault)` answers with those actions."""

    policy: Callable[..., ServedPolicy]
    server: Callable[..., Any]
    options: dict[str, Any]
    extra_questions: int = 0  # exchanges before the first question of an episode, on a fresh connection


def observation() -> Observation:
    image = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
    return Observation(0.0, np.linspace(0, 1, 8), {'exterior': image, 'wrist': image})


def ask(policy: ServedPolicy, *, times: int = 1) -> Chunk:
    """One episode of some questions; the last answer."""
    session = policy.start(Setup(task='t', seed=0, instruction='go'), seed=0)
    for _ in range(times):
        chunk = session.act(observation())
    session.close()  # type: ignore[attr-defined]  # sessions behind wires have it
    return chunk


IMAGES = {'exterior': 'observation/exterior_image_0_left', 'wrist': 'observation/wrist_image_left'}
OPENPI_OBSERVATION = {
    'images': {key: {'camera': camera, 'size_px': [8, 8]} for camera, key in IMAGES.items()},
    'state': {'observation/joint_position': [0, 7], 'observation/gripper_position': [7, 8]},
    'prompt': 'prompt',
}


def raw_openpi(actions: object) -> bytes:
    """An answer with actions that our own packer would refuse to write."""
    if isinstance(actions, bytes):
        return actions
    if isinstance(actions, np.ndarray) and actions.dtype.kind == 'O':
        entry = {b'__ndarray__': True, b'data': actions.dumps(), b'dtype': '|O', b'shape': actions.shape}
        return bytes(msgpack.packb({'actions': entry}))
    return pack({'actions': actions})


def openpi_server(actions: object = GOOD, **fault: Any) -> FaultyWebSocket:
    return FaultyWebSocket(lambda question: raw_openpi(actions), greeting=(pack({'name': 'x'}),), **fault)


def roboarena_server(actions: object = GOOD, **fault: Any) -> FaultyWebSocket:
    config = {'image_resolution': (8, 8), 'n_external_cameras': 1, 'needs_wrist_camera': True}
    greeting = pack(
        {**config, 'needs_stereo_camera': False, 'needs_session_id': True, 'action_space': 'joint_position'}
    )

    def answer(question: bytes) -> bytes | str:
        is_reset = b'\xa5reset' in question
        return 'reset successful' if is_reset else raw_openpi(actions)

    return FaultyWebSocket(answer, greeting=(greeting,), **fault)


def vla_eval_server(
    actions: object = GOOD, *, version: int = 1, hello: dict[str, Any] | None = None, **fault: Any
) -> FaultyWebSocket:
    def answer(question: bytes) -> bytes | None:
        message = unpack_vla_eval(question)
        reply = {'seq': message['seq'], 'timestamp': 0.0}
        if message['type'] == 'hello':
            told = {'protocol_version': version, 'harness_version': '0', 'model_server': 'X', **(hello or {})}
            return pack_vla_eval({**reply, 'type': 'hello', 'payload': told})
        if message['type'] != 'observation':
            return None
        if isinstance(actions, np.ndarray) and actions.dtype.kind == 'O':
            entry = {'__ndarray__': True, 'data': actions.dumps(), 'dtype': '|O', 'shape': list(actions.shape)}
            return bytes(msgpack.packb({**reply, 'type': 'action', 'payload': {'actions': entry}}))
        return pack_vla_eval({**reply, 'type': 'action', 'payload': {'actions': actions}})

    return FaultyWebSocket(answer, **fault)


def positronic_server(actions: object = GOOD, **fault: Any) -> FaultyWebSocket:
    greeting = (
        pack({'status': 'loading', 'message': 'please wait'}),
        pack({'status': 'ready', 'meta': {'action_fps': 10.0, 'action_horizon_sec': 1.0}}),
    )

    def answer(question: bytes) -> bytes:
        if isinstance(actions, np.ndarray) and actions.dtype.kind == 'O':
            entry = {b'__ndarray__': True, b'data': actions.dumps(), b'dtype': '|O', b'shape': actions.shape}
            command = {'type': 'joint_pos', 'positions': entry}
            return bytes(msgpack.packb({'result': [{'robot_command': command}]}))
        rows: Any = actions
        result = [
            {
                'robot_command': {'type': 'joint_pos', 'positions': row[:7]},
                'target_grip': row[7:8],
                'timestamp': 0.1 * i,
            }
            for i, row in enumerate(rows)
        ]
        return pack({'result': result})

    return FaultyWebSocket(answer, greeting=greeting, **fault)


def groot_answer(
    question: bytes, actions: object, *, form: str = 'npy', old: bool = False, video: Sequence[object] = (0,)
) -> bytes:
    request = unpack_groot(question)
    endpoint = request.get('endpoint', 'get_action')
    if endpoint == 'ping':
        return pack_groot({'status': 'ok', 'message': 'up'})
    if endpoint == 'get_modality_config':
        keys = {'video': ['exterior', 'wrist'], 'state': ['arm'], 'action': ['arm', 'gripper']}
        told = {name: {'delta_indices': [0], 'modality_keys': k} for name, k in keys.items()}
        told['action']['delta_indices'] = list(range(16))
        told['video']['delta_indices'] = list(video)
        if old:
            return pack_groot(
                {k: {'__ModalityConfig_class__': True, 'as_json': json.dumps(v)} for k, v in told.items()}
            )
        return pack_groot({k: {'__ModalityConfig__': True, 'as_json': v} for k, v in told.items()})
    if endpoint == 'reset':
        return pack_groot({'error': 'Unknown endpoint: reset'} if old else {})
    if isinstance(actions, np.ndarray) and actions.dtype.kind == 'O':
        entry: Any = {
            b'nd': True,
            b'type': '|O',
            b'kind': b'O',
            b'shape': list(actions.shape),
            b'data': actions.dumps(),
        }
        return bytes(msgpack.packb([{'arm': entry, 'gripper': entry}, {}]))
    rows: Any = actions
    observation = request['data'] if old else request['data']['observation']
    n = 1 if old else len(next(iter(observation['state'].values())))
    batch = rows if old else np.repeat(rows[None], n, axis=0)
    parts = {'arm': batch[..., :7], 'gripper': batch[..., 7:]}
    if form == 'msgpack-numpy':
        import msgpack_numpy

        return bytes(msgpack.packb([parts, {'info': 1}], default=msgpack_numpy.encode))
    if old:
        return pack_groot({f'action.{name}': value for name, value in parts.items()})
    return pack_groot([parts, {}])


def groot_server(actions: object = GOOD, *, form: str = 'npy', old: bool = False, **fault: Any) -> FaultyZmq:
    return FaultyZmq(lambda question: groot_answer(question, actions, form=form, old=old), **fault)


def openvla_server(actions: object = GOOD, **fault: Any) -> FaultyHttp:
    def answer(body: bytes) -> bytes:
        if isinstance(actions, np.ndarray) and actions.dtype.kind == 'O':
            return json.dumps({'__numpy__': 'gASVCgAAAAAAAABdlEsBYS4=', 'dtype': '|O', 'shape': [2, 8]}).encode()
        return pack_json(actions)

    return FaultyHttp(answer, **fault)


WIRES = {
    'openpi': Wire(OpenPiPolicy, openpi_server, {'observation': OPENPI_OBSERVATION, 'action': ACTION}),
    'roboarena': Wire(RoboArenaPolicy, roboarena_server, {'observation': OPENPI_OBSERVATION, 'action': ACTION}, 1),
    'vla-eval': Wire(
        VlaEvalPolicy,
        vla_eval_server,
        {
            'observation': {
                'images': {'images.exterior': 'exterior', 'images.wrist': 'wrist'},
                'state': {'states': [0, 8]},
                'prompt': 'task_description',
            },
            'action': ACTION,
        },
        1,
    ),
    'positronic': Wire(
        PositronicPolicy,
        positronic_server,
        {
            'observation': {
                'images': {'image.exterior': 'exterior', 'image.wrist': 'wrist'},
                'state': {'robot_state.q': [0, 7], 'grip': [7, 8]},
                'prompt': 'task',
            },
            'action': ACTION,
        },
    ),
    'groot': Wire(
        GrootPolicy,
        groot_server,
        {
            'observation': {
                'images': {'video.exterior': 'exterior', 'video.wrist': 'wrist'},
                'state': {'state.arm': [0, 8]},
                'prompt': 'language.task',
            },
            'action': ACTION,
        },
        4,
    ),
    'openvla': Wire(
        OpenVlaPolicy,
        openvla_server,
        {
            'observation': {
                'images': {'full_image': 'exterior', 'wrist_image': 'wrist'},
                'state': {'state': [0, 8]},
                'prompt': 'instruction',
            },
            'action': ACTION,
        },
    ),
}


def policy_of(name: str, url: str, **changes: Any) -> ServedPolicy:
    """A policy of a wire, fitted to the arm."""
    wire = WIRES[name]
    options = {'connect_timeout_s': 30.0, 'answer_timeout_s': 30.0, **wire.options, **changes}
    policy = wire.policy(url=url, **options)
    policy.fit(HOST)
    return policy
