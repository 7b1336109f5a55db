"""LeRobot's asynchronous inference server: its own, run by its own release, and one that answers with an attack."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.policies.test_lerobot import OPTIONS, ROOT, save, seen
from tests.tool import tool

from robotrials.errors import AnswerError, InputError, RemoteError, SetupError
from robotrials.policies.lerobot import LeRobotServerPolicy, features_of, raw_observation, transfer
from robotrials.run import Setup, check_policy
from robotrials.run.environment import find_environment, read_recipe
from robotrials.run.environment.create import create_environment
from robotrials.testing.policy import PointMassHost

SERVER = """
import sys
sys.path.append(sys.argv.pop(1))
from lerobot.async_inference.policy_server import serve
serve()
"""
EVIL = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc

empty = lambda request, context: b''
evil = lambda request, context: bytes.fromhex(sys.argv[2])
many = lambda requests, context: [None for _ in requests] and b''
handlers = {
    'Ready': grpc.unary_unary_rpc_method_handler(empty),
    'SendPolicyInstructions': grpc.unary_unary_rpc_method_handler(empty),
    'SendObservations': grpc.stream_unary_rpc_method_handler(many),
    'GetActions': grpc.unary_unary_rpc_method_handler(evil),
}
server = grpc.server(ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler('transport.AsyncInference', handlers),))
server.add_insecure_port('127.0.0.1:' + sys.argv[1])
server.start()
server.wait_for_termination()
"""


@pytest.fixture
def grpc() -> None:
    os.environ.setdefault('ROBOTRIALS_ENVIRONMENTS', str(ROOT / '.peers' / 'environments'))
    create_environment(read_recipe('grpc'))


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(('127.0.0.1', 0))
        return int(bound.getsockname()[1])


@contextmanager
def running(command: list[str], folder: Path) -> Iterator[None]:
    variables = {'PATH': os.environ['PATH'], 'HOME': str(folder), 'HF_HUB_OFFLINE': '1'}
    serving = subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        serving.kill()
        serving.wait()


def policy_of(port: int, path: str = '', **more: Any) -> LeRobotServerPolicy:
    return LeRobotServerPolicy(url=f'grpc://127.0.0.1:{port}', path=path, kind='act', **{**OPTIONS, **more})


@pytest.mark.peers
@pytest.mark.drift
def test_lerobots_own_server_answers_as_the_checkpoint_does(grpc: None, tmp_path: Path) -> None:
    sample = save('lerobot-0.6', 'act', tmp_path / 'act')
    overlay = tool('peer_environments').make_overlay('lerobot-eval')
    python = create_environment(read_recipe('lerobot-0.6')).python
    port = free_port()
    command = [str(python), '-c', SERVER, str(overlay), '--host=127.0.0.1', f'--port={port}']
    with running(command, tmp_path):
        policy = policy_of(port, str(sample.folder))
        policy.fit(PointMassHost(camera_px=64).spec)
        session = policy.start(Setup(task='t', seed=0, instruction='go'), seed=0)
        for _ in range(2):
            answer = session.act(seen())
            np.testing.assert_allclose(answer.actions, sample.expected, atol=1e-5)
        check_policy(policy, host=PointMassHost(camera_px=64), task='reach', steps=24, deterministic=True)
        policy.close()
        with pytest.raises(RemoteError, match='SendPolicyInstructions failed'):
            policy_of(port, str(tmp_path / 'nothing')).fit(PointMassHost(camera_px=64).spec)


class Evil:
    def __reduce__(self) -> Any:
        return (os.system, ('touch pwned',))


@pytest.mark.peers
def test_a_server_that_answers_with_a_program_is_refused_and_charged(grpc: None, tmp_path: Path) -> None:
    python = find_environment('grpc', read_recipe('grpc').digest).python
    port, body = free_port(), pickle.dumps([Evil()])
    message = b'\x0a' + bytes([len(body)]) + body
    with running([str(python), '-c', EVIL, str(port), message.hex()], tmp_path):
        policy = policy_of(port)
        policy.fit(PointMassHost(camera_px=64).spec)
        session = policy.start(Setup(task='t', seed=0, instruction='go'), seed=0)
        with pytest.raises(AnswerError, match=r"names 'posix system'; only tensors are read, and nothing was run"):
            session.act(seen())
        policy.close()
    assert not list(tmp_path.glob('**/pwned'))
    assert not Path('pwned').exists()


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match='wanted grpc://HOST:PORT'):
        LeRobotServerPolicy(url='http://127.0.0.1:1', path='x', kind='act', **OPTIONS)


@pytest.mark.peers
def test_a_server_that_is_not_there_says_how_to_start_it(grpc: None) -> None:
    with pytest.raises(SetupError, match='policy server is not there'):
        policy_of(free_port(), connect_timeout_s=3.0).fit(PointMassHost(camera_px=64).spec)


def test_observations_are_those_of_lerobots_client() -> None:
    question = {'observation.state': np.array([1.0, 2.0]), 'observation.images.top': seen().images['top'], 'task': 'go'}
    assert features_of(question)['observation.state']['names'] == ['state.0', 'state.1']
    raw = raw_observation(question)
    assert (raw['state.0'], raw['state.1'], raw['task'], raw['top'].shape) == (1.0, 2.0, 'go', (64, 64, 3))
    parts = transfer(b'x' * (5 << 20))
    assert [part[1] for part in parts] == [1, 2, 3]
    assert [part[1] for part in transfer(b'x')] == [3]
