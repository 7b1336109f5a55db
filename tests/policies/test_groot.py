"""GR00T's wire: three generations, both array forms, both answer shapes; pyzmq and msgpack-numpy themselves."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.policies.wires import GOOD, JOINTS, ask, groot_answer, groot_server, observation, policy_of
from tests.servers import FaultyZmq

from robotrials.errors import InputError, RemoteError, SetupError
from robotrials.policies.server import PolicyTurns
from robotrials.run import Setup
from robotrials.wire.array import pack_groot, read_npy, unpack_groot

FLAT = {
    'images': {'video.exterior': 'exterior', 'video.wrist': 'wrist'},
    'state': {'state.arm': [0, 8]},
    'prompt': 'annotation.human.task_description',
}


@pytest.mark.parametrize('form', ['npy', 'msgpack-numpy'])
def test_answers_of_later_servers_are_understood_in_both_array_forms(form: str) -> None:
    with groot_server(form=form) as serving:
        policy = policy_of('groot', serving.url)
        assert policy.facts['generation'] == 'n1.6'
        np.testing.assert_allclose(ask(policy).actions, GOOD)
        policy.close()


def test_an_n1_5_server_is_known_by_its_lack_of_reset_and_gets_flat_keys_with_time_alone() -> None:
    questions: list[dict[str, Any]] = []

    def answer(question: bytes) -> bytes:
        questions.append(unpack_groot(question))
        return groot_answer(question, GOOD, old=True)

    with FaultyZmq(answer) as serving:
        policy = policy_of('groot', serving.url, observation=FLAT)
        assert policy.facts['generation'] == 'n1.5'
        np.testing.assert_allclose(ask(policy).actions, GOOD)
        policy.close()
    asked = questions[-1]
    assert asked['endpoint'] == 'get_action'
    assert asked['data']['video.exterior'].shape == (1, 8, 8, 3)
    assert asked['data']['state.arm'].shape == (1, 8)
    assert asked['data']['annotation.human.task_description'] == ['go']
    assert 'kill' not in {question['endpoint'] for question in questions}


def test_later_servers_get_nested_keys_with_batch_and_time() -> None:
    questions: list[dict[str, Any]] = []

    def answer(question: bytes) -> bytes:
        questions.append(unpack_groot(question))
        return groot_answer(question, GOOD)

    with FaultyZmq(answer) as serving:
        policy = policy_of('groot', serving.url)
        ask(policy)
        policy.close()
    asked = questions[-1]['data']['observation']
    assert asked['video']['wrist'].shape == (1, 1, 8, 8, 3)
    assert asked['state']['arm'].shape == (1, 1, 8)
    assert asked['language']['task'] == [['go']]
    assert [q['endpoint'] for q in questions] == ['ping', 'get_modality_config', 'reset', 'reset', 'get_action']


def test_the_servers_own_decoder_reads_what_we_send() -> None:
    """GR00T's decoder is numpy.load of ``as_npy`` without pickles."""
    import io

    sent = msgpack.unpackb(pack_groot({'x': np.arange(6, dtype=np.float32).reshape(2, 3)}))
    assert sent['x']['__ndarray_class__'] is True
    np.testing.assert_array_equal(
        np.load(io.BytesIO(sent['x']['as_npy']), allow_pickle=False), np.arange(6).reshape(2, 3)
    )


def test_a_wrong_token_is_a_matter_of_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(question: bytes) -> bytes:
        if unpack_groot(question).get('api_token') != 'sesame':
            return pack_groot({'error': 'Unauthorized: Invalid API token'})
        return groot_answer(question, GOOD)

    with FaultyZmq(answer) as serving:
        with pytest.raises(SetupError, match='Unauthorized'):
            policy_of('groot', serving.url)
        monkeypatch.setenv('ROBOTRIALS_TEST_TOKEN', 'sesame')
        policy = policy_of('groot', serving.url, token_variable='ROBOTRIALS_TEST_TOKEN')
        np.testing.assert_allclose(ask(policy).actions, GOOD)
        policy.close()


@pytest.mark.parametrize('told', [pack_groot({'error': 'CUDA out of memory'}), b'ERROR'])
def test_an_error_answer_is_the_policys_fault(told: bytes) -> None:
    def answer(question: bytes) -> bytes:
        return told if unpack_groot(question)['endpoint'] == 'get_action' else groot_answer(question, GOOD)

    with FaultyZmq(answer) as serving:
        policy = policy_of('groot', serving.url)
        with pytest.raises(RemoteError, match=r'CUDA|ERROR'):
            ask(policy)
        policy.close()


def test_names_and_steps_are_held_against_the_servers_modalities() -> None:
    with groot_server() as serving:
        wrong = {'images': {'video.front': 'exterior'}, 'state': {'state.arm': [0, 8]}, 'prompt': 'language.task'}
        with pytest.raises(InputError, match=r'wants video\.exterior.*wants video\.wrist.*sends video\.front'):
            policy_of('groot', serving.url, observation=wrong)
        long = {'convention': JOINTS, 'chunk_length': 40}
        with pytest.raises(InputError, match='the server gives 16 steps'):
            policy_of('groot', serving.url, action=long)


def test_questions_of_parallel_clients_go_to_the_server_as_one_batch() -> None:
    from concurrent.futures import ThreadPoolExecutor

    sizes: list[int] = []

    def answer(question: bytes) -> bytes:
        request = unpack_groot(question)
        if request['endpoint'] == 'get_action':
            states = request['data']['observation']['state']['arm']
            sizes.append(len(states))
            rows = np.repeat(states[:, :, :8], 2, axis=1)
            return pack_groot([{'arm': rows[..., :7], 'gripper': rows[..., 7:]}, {}])
        return groot_answer(question, GOOD)

    with FaultyZmq(answer) as serving:
        policy = policy_of('groot', serving.url)
        session = policy.start(Setup(task='t', seed=0), seed=0)
        turns = PolicyTurns(policy, most=4, wait_s=30.0, limit_s=PATIENCE_S)
        seen = [observation() for _ in range(4)]
        for number, one in enumerate(seen):
            one.state[0] = number
        with ThreadPoolExecutor(4) as pool:
            chunks = list(pool.map(lambda one: turns.act(session, one), seen))
        turns.close()
    assert sizes == [4]
    assert [float(chunk.actions[0, 0]) for chunk in chunks] == [0.0, 1.0, 2.0, 3.0]


def test_an_npy_header_that_lies_allocates_nothing() -> None:
    import io

    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {'descr': '<f8', 'fortran_order': False, 'shape': (1 << 20, 1 << 20)})
    with pytest.raises(InputError):
        read_npy(stream.getvalue() + b'\0' * 8)
    fortran = io.BytesIO()
    np.save(fortran, np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    np.testing.assert_array_equal(read_npy(fortran.getvalue()), np.arange(6.0).reshape(2, 3))
    objects = io.BytesIO()
    np.save(objects, np.array([{'a': 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match='not accepted'):
        read_npy(objects.getvalue())
