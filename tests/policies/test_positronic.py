"""Positronic's session wire against a recorded exchange: status frames, envelopes, actions with times of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.policies.wires import GOOD, HOST, WIRES, ask, observation, policy_of, positronic_server

from robotrials.errors import AnswerError, InputError, RemoteError
from robotrials.policies.positronic import PositronicPolicy
from robotrials.run import ActionConvention, HostSpec, Setup
from robotrials.testing.faulty_server import FaultyWebSocket
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
