"""Positronic's session wire against a recorded exchange: status frames, envelopes, actions with times of their own."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.policies.wires import GOOD, HOST, WIRES, ask, observation, policy_of, positronic_server
from tests.servers import FaultyWebSocket
from tests.tool import peer_python

from robotrials.errors import AnswerError, InputError, RemoteError, SetupError
from robotrials.policies.positronic import PositronicPolicy
from robotrials.record import Outcome
from robotrials.run import ActionConvention, HostSpec, Setup
from robotrials.run.fault import FaultKind, policy_fault
from robotrials.run.plan import FaultOptions
from robotrials.wire import pack, unpack

READY = pack({'status': 'ready', 'meta': {'action_fps': 15.0, 'positronic_version': '0.4.1'}})
POSE = {
    'control_mode': 'se3',
    'target': 'absolute',
    'frame': 'base',
    'rotation': 'matrix_6d',
    'gripper': 'closed_is_one',
}
POSE_HOST = HostSpec(
    name='arm', action=ActionConvention(**{**POSE, 'rotation': 'quaternion_wxyz'}), control_rate_hz=10.0, state_width=8,
    images=HOST.images,
)  # fmt: skip


def joints(value: float, at_s: float, *, wrapped: bool = False) -> dict[str, Any]:
    command: Any = {'type': 'joint_pos', 'positions': np.full(7, value)}
    return {'robot_command': {b'__cmd__': command} if wrapped else command, 'target_grip': 0.5, 'timestamp': at_s}


def served(result: object, questions: list[Any] | None = None) -> FaultyWebSocket:
    def answer(question: bytes) -> bytes:
        if questions is not None:
            questions.append(unpack(question))
        return pack({'result': result})

    return FaultyWebSocket(answer, greeting=(pack({'status': 'waiting'}), READY))


def test_actions_are_taken_at_the_first_step_at_or_after_their_time_and_hold() -> None:
    """At 10 Hz, actions meant for 0, 0.15 and 0.3 s are taken at steps 0, 2 and 3."""
    result = [joints(1.0, 0.0), joints(2.0, 0.15), joints(3.0, 0.3, wrapped=True)]
    questions: list[Any] = []
    with served(result, questions) as serving:
        policy = policy_of(
            'positronic', serving.url, action={**WIRES['positronic'].options['action'], 'chunk_length': 6}
        )
        assert policy.facts['positronic_version'] == '0.4.1'
        found = ask(policy).actions
        policy.close()
    np.testing.assert_array_equal(found[:, 0], [1.0, 1.0, 2.0, 3.0, 3.0, 3.0])
    assert set(questions[0]) == {'image.exterior', 'image.wrist', 'robot_state.q', 'grip', 'task'}


def test_every_episode_is_a_session_of_its_own() -> None:
    with positronic_server() as serving:
        policy = policy_of('positronic', serving.url)
        for _ in range(2):
            np.testing.assert_allclose(ask(policy).actions, GOOD)
        assert serving.n_connections == 3  # one to look, one per episode
        policy.close()


def test_a_pose_arrives_as_a_place_and_a_matrix() -> None:
    pose = [0.4, 0.0, 0.6, 0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]  # a quarter turn about z, row by row
    with served(
        [{'robot_command': {'type': 'cartesian_pos', 'pose': pose}, 'target_grip': 1.0, 'timestamp': 0.0}]
    ) as serving:
        options = {**WIRES['positronic'].options, 'action': {'convention': POSE, 'chunk_length': 1}}
        policy = PositronicPolicy(url=serving.url, connect_timeout_s=30.0, answer_timeout_s=30.0, **options)
        policy.fit(POSE_HOST)
        found = ask(policy).actions
        policy.close()
    np.testing.assert_allclose(found, [[0.4, 0.0, 0.6, np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5), 1.0]], atol=1e-12)


def test_no_action_holds_the_last_one_and_is_a_fault_at_the_start() -> None:
    answers = [[joints(1.0, 0.0)], None]

    def answer(question: bytes) -> bytes:
        return pack({'result': answers.pop(0) if answers else None})

    with FaultyWebSocket(answer, greeting=(READY,)) as serving:
        policy = policy_of('positronic', serving.url)
        session = policy.start(Setup(task='t', seed=0), seed=0)
        session.act(observation())
        np.testing.assert_array_equal(session.act(observation()).actions[:, 0], [1.0, 1.0])
        with pytest.raises(AnswerError, match='no action in the first answer'):
            ask(policy)
        policy.close()


@pytest.mark.parametrize(
    ('result', 'told'),
    [
        ([joints(1.0, 0.2), joints(1.0, 0.1)], 'do not rise'),
        ([joints(1.0, float('nan'))], 'do not rise from 0: .nan'),
        ([{'robot_command': {'type': 'reset'}, 'timestamp': 0.0}], "a command of type 'reset'"),
        ([{'robot_command': {'type': 'joint_pos', 'positions': [1.0]}, 'timestamp': 0.0}], 'not fit'),
        ([{'robot_command': {'type': 'cartesian_pos', 'pose': [0.0] * 12}, 'timestamp': 0.0}], 'not fit'),
        ('soon', 'result is a str'),
    ],
)
def test_chunks_that_are_none_are_refused(result: object, told: str) -> None:
    with served(result) as serving:
        policy = policy_of('positronic', serving.url)
        with pytest.raises(AnswerError, match=told):
            ask(policy)
        policy.close()


def test_refusals_and_errors_of_the_server_are_its_own() -> None:
    refusal = pack({'status': 'error', 'error': 'unknown key: codec.fsp'})
    with (
        FaultyWebSocket(lambda q: None, greeting=(refusal,)) as serving,
        pytest.raises(RemoteError, match=r'codec\.fsp'),
    ):
        policy_of('positronic', serving.url)
    with FaultyWebSocket(lambda q: pack({'error': 'Shape mismatch'}), greeting=(READY,)) as serving:
        policy = policy_of('positronic', serving.url)
        with pytest.raises(RemoteError, match='Shape mismatch'):
            ask(policy)
        policy.close()


def test_a_chunk_longer_than_the_servers_horizon_is_refused() -> None:
    with positronic_server() as serving, pytest.raises(InputError, match='plans 1 s ahead'):
        policy_of('positronic', serving.url, action={**WIRES['positronic'].options['action'], 'chunk_length': 20})


# --- version 3: frames recorded from positronic-model-server 0.3.1 (its WebSocket wire, fps 5, 3 actions)

RECORDED = json.loads((Path(__file__).parent / 'positronic_v3.json').read_text())
GREETING = tuple(map(base64.b64decode, RECORDED['greeting']))
ANSWER, REFUSED = (base64.b64decode(RECORDED[name]) for name in ('answer', 'without_session_id'))
SESSION = unpack(GREETING[-1])['session_id']


def v3_server(answer: bytes = ANSWER, questions: list[Any] | None = None, **changes: Any) -> FaultyWebSocket:
    """What the server does with a question: without the session's id it says what 0.3.1 says."""
    ready = {**unpack(GREETING[-1]), **changes}

    def answered(question: bytes) -> bytes:
        asked = unpack(question)
        if questions is not None:
            questions.append(asked)
        return answer if asked.get('session_id') == SESSION else REFUSED

    return FaultyWebSocket(answered, greeting=(*GREETING[:-1], pack({k: v for k, v in ready.items() if v is not None})))


def six_steps(url: str, **options: Any) -> PositronicPolicy:
    action = {**WIRES['positronic'].options['action'], 'chunk_length': 6}
    policy = policy_of('positronic', url, action=action, **options)
    assert isinstance(policy, PositronicPolicy)
    return policy


def test_a_version_3_server_is_given_its_session_id_and_its_schedule_is_kept() -> None:
    """At 10 Hz three actions of a 5 Hz schedule fill six steps."""
    questions: list[Any] = []
    with v3_server(questions=questions) as serving:
        policy = six_steps(serving.url)
        assert policy.facts['model_server_version'] == '0.3.1'
        found = ask(policy)
        policy.close()
    np.testing.assert_array_equal(found.actions[:, 0], [0.0, 0.0, 1.0, 1.0, 2.0, 2.0])
    assert set(questions[0]) == {'session_id', 'observation'}
    assert set(questions[0]['observation']) == {'image.exterior', 'image.wrist', 'robot_state.q', 'grip', 'task'}


def test_commands_of_a_version_3_server_follow_its_schedule_too() -> None:
    rows = [{'robot_command': {'type': 'joint_pos', 'positions': np.full(7, float(k))}} for k in range(3)]
    with v3_server(pack({'result': [{**row, 'target_grip': 0.5} for row in rows]})) as serving:
        policy = six_steps(serving.url)
        np.testing.assert_array_equal(ask(policy).actions[:, 0], [0.0, 0.0, 1.0, 1.0, 2.0, 2.0])
        policy.close()


@pytest.mark.parametrize(
    ('changes', 'told'),
    [
        ({'protocol_version': 4}, 'speaks version 4 of the session protocol, this release 1 and 3'),
        ({'protocol_version': 2}, 'speaks version 2'),
        ({'protocol_version': 'x' * 99}, 'speaks version xxx'),
        ({'session_id': None}, 'issued no session_id'),
    ],
)
def test_a_version_that_is_not_spoken_is_the_set_ups_fault(changes: dict[str, Any], told: str) -> None:
    with v3_server(**changes) as serving, pytest.raises(SetupError, match=told) as caught:
        six_steps(serving.url)
    fault = policy_fault(caught.value, step=0).fault
    assert fault.kind is FaultKind.POLICY_ENDPOINT
    strictest = FaultOptions(
        **dict.fromkeys(('policy_crash', 'policy_hang', 'policy_late', 'policy_answer'), 'failure')
    )
    assert fault.outcome(strictest) is Outcome.INVALID, 'no plan may charge it to the policy'


def test_a_step_of_the_servers_client_must_be_done_by_the_mapping() -> None:
    meta = unpack(GREETING[-1])['meta']
    resize = {'name': 'restrict_image_size', 'version': 2, 'args': {'width': 320, 'height': 180}}
    stack = {'seq': [*meta['local_stack']['seq'], {'par': [resize]}]}
    with v3_server(meta={**meta, 'local_stack': stack}) as serving:
        with pytest.raises(
            InputError, match=r'a step restrict_image_size .*say client_steps = \["restrict_image_size"\]'
        ):
            six_steps(serving.url)
        policy = six_steps(serving.url, client_steps=['restrict_image_size'])
        assert ask(policy).actions.shape == (6, 8)
        policy.close()


def test_numbers_are_no_answer_of_a_version_1_server() -> None:
    with served(np.zeros((3, 8))) as serving:
        policy = policy_of('positronic', serving.url)
        with pytest.raises(AnswerError, match='result is a ndarray'):
            ask(policy)
        policy.close()


REAL_SERVER = """
import numpy as np
from positronic_model_server.server import Model, ModelServer, Session
from positronic_model_server.server_wire import ServedHostPort
from positronic_model_server.spec import component
from positronic_model_server.websocket_wire import WebsocketWire

class Steps(Session):
    def infer(self, observation):
        return np.arange(3.0)[:, None] * np.ones(8)

class Counting(Model):
    def prepare_session(self, params):
        return Steps(component('chunked_schedule', fps=5))

server = ModelServer(Counting)
wire = WebsocketWire(ServedHostPort('127.0.0.1', 0))
server.serve([wire], on_ready=lambda: print(wire.served_address.port, flush=True))
"""


@pytest.mark.peers
def test_its_own_server_is_asked() -> None:
    """Three actions of a 5 Hz schedule fill six steps at 10 Hz, in two episodes."""
    serving = subprocess.Popen(
        [str(peer_python('positronic-model-server')), '-c', REAL_SERVER], stdout=subprocess.PIPE, text=True
    )
    try:
        assert serving.stdout is not None
        policy = six_steps(f'ws://127.0.0.1:{int(serving.stdout.readline())}')
        assert 'model_server_version' in policy.facts
        for _ in range(2):
            np.testing.assert_array_equal(ask(policy).actions[:, 0], [0.0, 0.0, 1.0, 1.0, 2.0, 2.0])
        policy.close()
    finally:
        serving.kill()
        serving.communicate(timeout=PATIENCE_S)
