"""openpi's wire, spoken with openpi's own client and encoder, and every way a server can fail."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.run.plans import make_plan
from tests.servers import OpenPiServer
from tests.service.postgres import free_port

from robotrials.errors import AnswerError, InputError, NoAnswer, RigError, SetupError
from robotrials.policies.openpi import OpenPiPolicy
from robotrials.record import Outcome, Store, trajectories_equal
from robotrials.run import Observation, Setup, TrialPlan, check_policy, run_trial
from robotrials.run.schedule import TrialProgress
from robotrials.testing.policy import PointMassHost, SeekPolicy
from robotrials.wire import pack

CONVENTION = {'control_mode': 'se3', 'target': 'delta', 'frame': 'world'}
OPTIONS: dict[str, Any] = {
    'observation': {
        'images': {'observation/image': {'camera': 'top'}},
        'state': {'observation/state': {'parts': [{'take': [0, 4]}], 'number': 'float64'}},
        'prompt': 'prompt',
    },
    'action': {'convention': CONVENTION, 'chunk_length': 4, 'control_rate_hz': 20.0},
    'connect_timeout_s': 1.0,
    'answer_timeout_s': 2.0,
}


def seek(question: Mapping[str, Any]) -> dict[str, Any]:
    """A served policy: the seeker, from what came over the wire."""
    state = np.asarray(question['observation/state'])
    session = SeekPolicy(chunk_length=4).start(Setup(task='', seed=0), seed=0)
    return {'actions': session.act(Observation(0.0, state)).actions, 'server_timing': {'infer_ms': 12.5}}


@pytest.fixture
def server() -> Iterator[OpenPiServer]:
    with OpenPiServer(seek, metadata={'name': 'seek', 'action_horizon': 4}) as serving:
        yield serving


def policy_at(url: str, **changes: Any) -> OpenPiPolicy:
    policy = OpenPiPolicy(url=url, **{**OPTIONS, **changes})
    policy.fit(PointMassHost(camera_px=6).spec)
    return policy


def observation() -> Observation:
    return Observation(0.0, np.array([0.0, 0.0, 0.5, 0.5]), {'top': np.zeros((6, 6, 3), dtype=np.uint8)})


def test_a_served_policy_conforms_and_gives_metadata_and_its_thinking_time(server: OpenPiServer) -> None:
    policy = policy_at(server.url)
    check_policy(policy, host=PointMassHost(camera_px=6), task='reach', deterministic=True)
    assert policy.facts == {'name': 'seek', 'action_horizon': 4}
    chunk = policy.start(Setup(task='reach', seed=0, instruction='go'), seed=0).act(observation())
    assert chunk.actions.shape == (4, 3)
    assert chunk.inference_s == 0.0125
    policy.close()


def test_a_trial_over_the_wire_is_the_trial_without_it(tmp_path: Path, server: OpenPiServer) -> None:
    host = {'use': 'point-mass', 'options': {'camera_px': 6}}
    remote = {'use': 'openpi', 'options': {'url': server.url, **OPTIONS}}
    local = {'use': 'seek', 'options': {'chunk_length': 4}}
    for name, entry in (('remote', remote), ('local', local)):
        policies = {'served': entry}
        plan = make_plan(
            host=host, policies=policies, reference='', title='', episodes_per_cell=2, recording={'film': 'off'}
        )
        run_trial(plan, tmp_path / name, workers=1)
    stores = [Store.open(tmp_path / name) for name in ('remote', 'local')]
    found = [{e.seed: t for e, t in store.trajectories()} for store in stores]
    assert found[0].keys() == found[1].keys()
    asked = found[0][next(iter(found[0]))]
    latencies = asked.inference_latency_s
    assert latencies is not None
    assert np.isfinite(latencies[::4]).all()
    assert np.isnan(latencies[1]), 'recorded where a question was asked, and only there'
    plain = {
        seed: dataclasses.replace(t, network_latency_s=None, inference_latency_s=None, transport_latency_s=None)
        for seed, t in found[0].items()
    }
    assert all(trajectories_equal(plain[seed], found[1][seed]) for seed in plain)


def test_an_error_frame_is_a_policy_crash_with_the_servers_traceback_and_the_next_episode_connects_anew(
    tmp_path: Path,
) -> None:
    calls = []

    def fail_once(question: Mapping[str, Any]) -> dict[str, Any]:
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError('CUDA out of memory')
        return seek(question)

    with OpenPiServer(fail_once) as serving:
        policy = policy_at(serving.url)
        with pytest.raises(InputError, match='CUDA out of memory'):
            check_policy(policy, host=PointMassHost(camera_px=6), task='reach')
        check_policy(policy, host=PointMassHost(camera_px=6), task='reach')
        assert len(serving.authorizations) == 2
        policy.close()


def mortal_plan(url: str, *, start_s: float) -> TrialPlan:
    entry = {'use': 'openpi', 'options': {'url': url, **OPTIONS, 'connect_timeout_s': 1.0}}
    return make_plan(
        host={'use': 'point-mass', 'options': {'camera_px': 6}}, policies={'served': entry}, reference='',
        episodes_per_cell=3, faults={'attempts': 2}, watchdog={'start_s': start_s},
    )  # fmt: skip


@pytest.mark.parametrize('workers', [0, 1])
def test_a_server_that_dies_costs_one_episode_and_is_waited_for(workers: int, tmp_path: Path) -> None:
    port = free_port()
    serving = [OpenPiServer(seek, port=port)]

    def back() -> None:
        time.sleep(2.5)  # some tries fail
        serving.append(OpenPiServer(seek, port=port))

    def unplug(progress: TrialProgress) -> None:
        if progress.n_valid == 1 and not progress.n_invalid:
            serving[0].close()
            threading.Thread(target=back, daemon=True).start()

    done = run_trial(mortal_plan(serving[0].url, start_s=60.0), tmp_path / 's', workers=workers, report=unplug)
    serving[1].close()
    assert (done.is_complete, done.n_given_up, done.n_run) == (True, 0, 4)
    (lost,) = (e for e in Store.open(tmp_path / 's').episodes(attempts='all') if e.outcome is Outcome.INVALID)
    assert lost.reason.startswith('policy endpoint: the connection failed')


def test_a_server_that_stays_away_ends_the_run_and_uses_up_no_attempts(tmp_path: Path) -> None:
    serving = OpenPiServer(seek)
    plan = mortal_plan(serving.url, start_s=3.0)

    def unplug(progress: TrialProgress) -> None:
        if progress.n_valid == 1 and not progress.n_invalid:
            serving.close()

    with pytest.raises(SetupError, match=r'did not answer again within 3 s .* run the same command again to resume'):
        run_trial(plan, tmp_path / 's', workers=0, report=unplug)
    recorded = Store.open(tmp_path / 's').episodes(attempts='all')
    assert sorted(e.outcome for e in recorded) == [Outcome.INVALID, Outcome.SUCCESS]
    with pytest.raises(RigError, match='the openpi server did not answer within'):
        run_trial(plan, tmp_path / 's', workers=0)


def test_a_silent_server_is_a_timeout_and_its_late_answer_is_never_taken_for_the_next(tmp_path: Path) -> None:
    naps = [2.0, 0.0, 0.0]

    def slow(question: Mapping[str, Any]) -> dict[str, Any]:
        time.sleep(naps.pop(0))
        return {'actions': np.full((4, 3), float(question['observation/state'][0]))}

    with OpenPiServer(slow) as serving:
        policy = policy_at(serving.url, answer_timeout_s=1.0)
        session = policy.start(Setup(task='t', seed=0), seed=0)
        with pytest.raises(NoAnswer, match=r'no answer within 1 s'):
            session.act(Observation(0.0, np.full(4, 1.0), {'top': np.zeros((6, 6, 3), np.uint8)}))
        answer = session.act(Observation(0.0, np.full(4, 2.0), {'top': np.zeros((6, 6, 3), np.uint8)}))
        assert set(answer.actions.ravel()) == {2.0}
        policy.close()


def test_padded_actions_are_cut_and_missing_ones_are_named() -> None:
    with OpenPiServer(lambda q: {'actions': np.ones((50, 32))}) as serving:
        policy = policy_at(serving.url)
        assert policy.start(Setup(task='t', seed=0), seed=0).act(observation()).actions.shape == (4, 3)
        policy.close()
    with OpenPiServer(lambda q: {'action': np.ones((4, 3))}) as serving:
        policy = policy_at(serving.url)
        with pytest.raises(AnswerError, match="without 'actions'; it gave action"):
            policy.start(Setup(task='t', seed=0), seed=0).act(observation())
        policy.close()


def test_mistakes_in_the_options_are_named() -> None:
    for changes, kind, message in [
        ({'url': 'gpu-box:8000'}, InputError, 'wanted ws://HOST:PORT'),
        ({'url': 'ws://me:secret@x'}, InputError, 'name an environment variable'),
        ({'observation': {'state': {'observation/state': [4, 2]}}}, InputError, r'wanted \[first, last\)'),
        ({'action': {'convention': {**CONVENTION, 'frame': 'bas'}}}, InputError, "frame is 'bas': did you mean 'base'"),
        ({'action': {}}, InputError, 'convention is missing'),
        ({'preset': 'openpi-libera'}, InputError, "did you mean 'openpi-libero'"),
        ({'answer_timeout_s': float('inf')}, InputError, 'finite number of seconds'),
        ({'api_key_variable': 'ROBOTRIALS_TEST_KEY'}, SetupError, 'ROBOTRIALS_TEST_KEY.* is not set'),
    ]:
        with pytest.raises(kind, match=message):
            OpenPiPolicy(**{'url': 'ws://x', **OPTIONS, **changes})  # type: ignore[arg-type]


def test_the_key_goes_out_as_openpi_sends_it(server: OpenPiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('ROBOTRIALS_TEST_KEY', 'opensesame')
    policy = policy_at(server.url, api_key_variable='ROBOTRIALS_TEST_KEY')
    assert policy.facts
    assert server.authorizations == ['Api-Key opensesame']
    policy.close()


# --- openpi's own code on the other side

SAMPLE = """
import numpy as np
sample = {
    'observation/image': np.arange(6 * 6 * 3, dtype=np.uint8).reshape(6, 6, 3),
    'observation/state': np.array([0.0, 0.0, 0.5, 0.5]),
    'single': np.float32(2.5), 'big': np.arange(3, dtype='>i4'), 'flag': np.bool_(True),
    'prompt': 'pick up the spoon', 'nested': {'list': [1, 2.5, None, True]}, 'empty': np.zeros((0, 3), np.float32),
}
"""

REAL_CLIENT = (
    SAMPLE
    + """
import hashlib, json, sys
from openpi_client import msgpack_numpy
from openpi_client.websocket_client_policy import WebsocketClientPolicy
client = WebsocketClientPolicy('127.0.0.1', int(sys.argv[1]))
answer = client.infer(sample)
print(json.dumps({
    'metadata': client.get_server_metadata(), 'actions': answer['actions'].tolist(),
    'dtype': answer['actions'].dtype.str, 'infer_ms': answer['server_timing']['infer_ms'],
    'packed': hashlib.sha256(msgpack_numpy.packb(sample)).hexdigest(),
}))
try:
    client.infer({'fail': True})
except RuntimeError as error:
    print(json.dumps({'error': str(error)}))
"""
)

REAL_SERVER = """
import sys, time
import numpy as np
from openpi_client import msgpack_numpy
from websockets.sync.server import serve

def handle(connection):
    packer = msgpack_numpy.Packer()
    connection.send(packer.pack({'served_by': 'openpi-client', 'shape': np.array([4, 3])}))
    for frame in connection:
        question = msgpack_numpy.unpackb(frame)
        state = question['observation/state']
        actions = np.tile(state[:3].astype(np.float32), (4, 1)) + question['observation/image'].mean()
        connection.send(packer.pack({'actions': actions, 'server_timing': {'infer_ms': np.float64(3.0)}}))

with serve(handle, '127.0.0.1', 0, compression=None, max_size=None) as server:
    print(server.socket.getsockname()[1], flush=True)
    server.serve_forever()
"""


def test_openpis_own_client_is_served_and_packs_the_same_bytes(openpi_python: Path) -> None:
    scope: dict[str, Any] = {}
    exec(SAMPLE, scope)

    def infer(question: Mapping[str, Any]) -> dict[str, Any]:
        if 'fail' in question:
            raise ValueError('no such observation')
        return seek(question)

    with OpenPiServer(infer, metadata={'name': 'seek'}) as serving:
        ran = subprocess.run(
            [str(openpi_python), '-c', REAL_CLIENT, str(serving.port)],
            capture_output=True, text=True, timeout=PATIENCE_S, check=True, env={'PATH': ''},
        )  # fmt: skip
    answer, failure = (json.loads(line) for line in ran.stdout.splitlines())
    assert answer['metadata'] == {'name': 'seek'}
    np.testing.assert_array_equal(answer['actions'], seek(scope['sample'])['actions'])
    assert answer['infer_ms'] == 12.5
    assert answer['packed'] == hashlib.sha256(pack(scope['sample'])).hexdigest()
    assert serving.raw_questions[0] == pack(scope['sample'])
    assert 'no such observation' in failure['error']


def test_a_server_with_openpis_own_encoder_is_understood(openpi_python: Path) -> None:
    serving = subprocess.Popen(
        [str(openpi_python), '-c', REAL_SERVER], stdout=subprocess.PIPE, text=True, env={'PATH': ''}
    )
    try:
        assert serving.stdout is not None
        policy = policy_at(f'ws://127.0.0.1:{int(serving.stdout.readline())}')
        np.testing.assert_array_equal(policy.facts['shape'], [4, 3])
        seen = Observation(0.0, np.array([0.1, 0.2, 0.3, 0.4]), {'top': np.full((6, 6, 3), 2, np.uint8)})
        chunk = policy.start(Setup(task='reach', seed=0, instruction='go'), seed=0).act(seen)
        np.testing.assert_allclose(chunk.actions, np.tile([2.1, 2.2, 2.3], (4, 1)), atol=1e-6)
        assert chunk.inference_s == 0.003
        policy.close()
    finally:
        serving.kill()
        serving.communicate(timeout=PATIENCE_S)
