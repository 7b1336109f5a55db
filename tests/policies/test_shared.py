"""A policy that workers share: every session its own, batches where it can, faults judged as at home."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from tests.run.waiting import BatchingPolicy

from robotrials.errors import RigError
from robotrials.policies.server import SharedPolicy, SharedPolicyServer
from robotrials.run import Observation, Setup
from robotrials.testing.policy import FaultyPolicy, SeekPolicy

KEY = secrets.token_hex(16)


def observation(x: float) -> Observation:
    return Observation(0.0, np.array([x, 0.0, 1.0, 1.0]))


@pytest.fixture(params=[SeekPolicy, BatchingPolicy])
def server(request: pytest.FixtureRequest) -> Iterator[SharedPolicyServer]:
    started = SharedPolicyServer(request.param(sloppiness_m=0.1), host='127.0.0.1', key=bytes.fromhex(KEY))
    yield started
    started.close()


def reach(server: SharedPolicyServer, key: str = KEY) -> SharedPolicy:
    return SharedPolicy(host='127.0.0.1', port=server.port, key=key)


def test_sessions_side_by_side_answer_as_alone(server: SharedPolicyServer) -> None:
    answers: dict[int, list[bytes]] = {}

    def episode(seed: int) -> None:
        policy = reach(server)
        session = policy.start(Setup(task='t', seed=seed), seed=seed)
        answers[seed] = [session.act(observation(x / 10)).actions.tobytes() for x in range(20)]
        policy.close()

    threads = [threading.Thread(target=episode, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, found in answers.items():
        alone = SeekPolicy(sloppiness_m=0.1).start(Setup(task='t', seed=seed), seed=seed)
        assert found == [alone.act(observation(x / 10)).actions.tobytes() for x in range(20)]
    assert len({answer[0] for answer in answers.values()}) == 6


def test_a_crash_is_the_policys_and_a_lost_server_the_rigs() -> None:
    server = SharedPolicyServer(FaultyPolicy(fault='crash', at=1), host='127.0.0.1', key=bytes.fromhex(KEY))
    policy = reach(server)
    session = policy.start(Setup(task='t', seed=0), seed=0)
    with pytest.raises(RuntimeError, match='broken'):
        for _ in range(3):
            session.act(observation(0.0))
    server.close()
    with pytest.raises(RigError, match='does not answer'):
        reach(server)


def test_a_stranger_is_not_answered(server: SharedPolicyServer) -> None:
    from multiprocessing import AuthenticationError

    with pytest.raises((RigError, AuthenticationError)):
        reach(server, key=secrets.token_hex(16))
    assert reach(server).spec.name == 'seek'
