"""``POST /act``: json-numpy itself on the server's side, its double encoding, and errors that come with HTTP 200."""

from __future__ import annotations

import json
from typing import Any

import json_numpy
import numpy as np
import pytest
from tests.policies.wires import GOOD, ask, policy_of
from tests.servers import FaultyHttp

from robotrials.errors import AnswerError, InputError, RemoteError, RigError
from robotrials.policies.openvla import OpenVlaPolicy
from robotrials.run import ActionConvention, HostSpec, Observation, Setup
from robotrials.wire.array import WireLimits, pack_json, unpack_json
from robotrials.wire.request import HttpLink

LIBERO = HostSpec(
    name='libero',
    action=ActionConvention(
        control_mode='se3', target='delta', frame='base', rotation='axis_angle', gripper='closed_is_plus_one'
    ),
    control_rate_hz=20.0,
    state_width=8,
    images={'agentview': (16, 16), 'wrist': (16, 16)},
)  # fmt: skip


def json_numpy_server(answers: Any, bodies: list[Any], **options: Any) -> FaultyHttp:
    """A server that reads and writes with the json-numpy package."""

    def answer(body: bytes) -> str:
        asked = json.loads(body)
        if 'encoded' in asked:
            bodies.append(json_numpy.loads(asked['encoded']))
            return json.dumps(json_numpy.dumps(answers))
        bodies.append(json_numpy.loads(body.decode()))
        return str(json_numpy.dumps(answers))

    return FaultyHttp(answer, **options)


def seen() -> Observation:
    image = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    return Observation(0.0, np.arange(8.0), {'agentview': image, 'wrist': image})


@pytest.mark.parametrize('double', [False, True])
def test_openvla_is_asked_and_understood_in_both_encodings(double: bool) -> None:
    bodies: list[Any] = []
    with json_numpy_server(np.array([0.1, 0.2, 0.3, 0.0, 0.0, 0.0, 1.0]), bodies) as serving:
        policy = OpenVlaPolicy(
            url=serving.url, preset='openvla-libero', fields={'unnorm_key': 'libero_spatial'}, double_encoded=double,
            connect_timeout_s=30.0, answer_timeout_s=30.0,
        )  # fmt: skip
        policy.fit(LIBERO)
        chunk = policy.start(Setup(task='t', seed=0, instruction='stack'), seed=0).act(seen())
        policy.close()
    np.testing.assert_allclose(chunk.actions, [[0.1, 0.2, 0.3, 0.0, 0.0, 0.0, -1.0]])
    (asked,) = bodies
    assert list(asked) == ['image', 'instruction', 'unnorm_key']
    assert asked['image'].shape == (224, 224, 3)
    assert asked['image'].dtype == np.uint8


def test_oft_gets_its_keys_in_the_mappings_order_and_answers_with_a_chunk() -> None:
    bodies: list[Any] = []
    chunk = [np.full(7, float(i)) for i in range(8)]
    with json_numpy_server(chunk, bodies) as serving:
        policy = OpenVlaPolicy(
            url=serving.url, preset='openvla-oft-libero', connect_timeout_s=30.0, answer_timeout_s=30.0,
            observation={'images': {'wrist_second': {'camera': 'wrist'}}},
        )  # fmt: skip
        policy.fit(LIBERO)
        found = policy.start(Setup(task='t', seed=0, instruction='stack'), seed=0).act(seen())
        policy.close()
    assert found.actions.shape == (8, 7)
    assert list(bodies[0]) == ['full_image', 'wrist_image', 'wrist_second', 'state', 'instruction']


def test_the_word_error_with_status_200_is_an_error() -> None:
    with FaultyHttp(lambda body: '"error"') as serving:
        policy = policy_of('openvla', serving.url)
        with pytest.raises(RemoteError, match="answered 'error' with HTTP 200"):
            ask(policy)
        policy.close()


@pytest.mark.parametrize(
    ('status', 'kind'), [(500, RemoteError), (400, RemoteError), (502, RigError), (503, RigError), (302, RigError)]
)
def test_statuses_are_told_apart_and_redirects_are_refused(status: int, kind: type[Exception]) -> None:
    with FaultyHttp(lambda body: 'no', status=status) as serving:
        policy = policy_of('openvla', serving.url)
        with pytest.raises(kind, match=str(status)):
            ask(policy)
        policy.close()


@pytest.mark.parametrize('answer', ['3.5', 'null', '{"action": 1}', '[[1, 2], [3]]', '"nonsense"', '[]', '', '[1e999]'])
def test_answers_that_are_no_actions_are_refused(answer: str) -> None:
    with FaultyHttp(lambda body: answer) as serving:
        policy = policy_of('openvla', serving.url)
        with pytest.raises(AnswerError):
            ask(policy)
        policy.close()


def test_a_reset_path_is_posted_to_and_may_be_missing() -> None:
    with FaultyHttp(lambda body: pack_json(GOOD) if b'__numpy__' in body else b'{}') as serving:
        policy = policy_of('openvla', serving.url, reset_path='/reset')
        np.testing.assert_allclose(ask(policy).actions, GOOD)
        policy.close()


def test_a_server_that_closes_between_questions_is_connected_to_anew() -> None:
    with FaultyHttp(lambda body: pack_json(GOOD)) as serving:
        policy = policy_of('openvla', serving.url)
        session = policy.start(Setup(task='t', seed=0), seed=0)
        from tests.policies.wires import observation

        session.act(observation())
        link = policy._link._link  # type: ignore[attr-defined]
        link._socket.shutdown(2)
        session.act(observation())
        assert serving.n_connections == 2
        policy.close()


@pytest.mark.parametrize(
    'value', [np.arange(6, dtype=np.float32).reshape(2, 3), np.float64(2.5), [np.zeros(0, np.uint8)], {'a': None}]
)
def test_arrays_are_json_numpys_in_both_directions(value: Any) -> None:
    theirs = json_numpy.loads(pack_json(value).decode())
    ours = unpack_json(json_numpy.dumps(value))
    np.testing.assert_equal(theirs, value)
    np.testing.assert_equal(ours, value)


@pytest.mark.parametrize(
    ('body', 'told'),
    [
        (b'[' * 100_000, 'nested deeper'),
        (b'[' + b'[],' * 300_000 + b'[]]', 'values allowed'),
        (b'{"__numpy__": "AAAA", "dtype": "<f8", "shape": [1]}', 'with 3 bytes'),
        (b'{"__numpy__": "!!", "dtype": "<f8", "shape": [0]}', 'not base64'),
        (b'{"__numpy__": "", "dtype": [["a", "<f8"]], "shape": [0]}', 'without a known dtype'),
        (b'{"__numpy__": "", "dtype": "|O", "shape": [0]}', 'not accepted'),
        (b'1' * 5000, 'not JSON'),
        (b'\xff\xfe', 'not JSON'),
    ],
)
def test_json_is_bounded_before_it_is_built(body: bytes, told: str) -> None:
    with pytest.raises(InputError, match=told):
        unpack_json(body)


def test_an_answer_without_end_is_cut_off() -> None:
    def answer(body: bytes) -> str:
        return 'x' * (3 << 20)

    with FaultyHttp(answer) as serving:
        link = HttpLink(serving.url, limits=WireLimits(max_bytes=1 << 20))
        with pytest.raises(AnswerError, match='more than the 1048576 allowed'):
            link.post('/act', b'{}', timeout_s=30.0)
        link.close()
