"""vla-eval's wire, in both directions with its own package, and what its frames may not be."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.policies.wires import GOOD, ask, observation, policy_of, vla_eval_server

from robotrials.errors import AnswerError, InputError, RemoteError, SetupError
from robotrials.policies.server import OfferedPolicy, PolicyServer, vla_eval_names
from robotrials.policies.vla_eval import VlaEvalPolicy
from robotrials.run import Observation, Setup, check_policy, run_trial
from robotrials.testing.policy import PointMassHost, SeekPolicy

REAL_SERVER = """
import logging, sys
import numpy as np
from vla_eval.model_servers.predict import PredictModelServer
from vla_eval.specs import DimSpec
import vla_eval

class Seek(PredictModelServer):
    def __init__(self, **options):
        super().__init__(**options)
        self.batches = []
    def get_action_spec(self):
        return {'position': DimSpec('position', 3, 'delta_xyz')}
    def get_observation_spec(self):
        return {'states': DimSpec('states', 4, 'raw'), 'image': DimSpec('image', 0, 'rgb_hwc_uint8')}
    def one(self, obs):
        if obs['task_description'] == 'fail':
            raise ValueError('no such task')
        assert obs['images']['top'].shape == (6, 6, 3) and obs['images']['top'].dtype == np.uint8
        state = np.asarray(obs['states'])
        gap = state[2:4] - state[:2]
        step = gap / max(1.0, np.hypot(*gap) / 0.08)
        return {'actions': np.array([step[0], step[1], 0.0], dtype=np.float32)}
    def predict_batch(self, obs_batch, ctx_batch):
        print(len(obs_batch), file=sys.stderr, flush=True)
        return [self.one(obs) for obs in obs_batch]

server = Seek(max_batch_size=int(sys.argv[1]), max_wait_time=0.2)
running = vla_eval.serve_background(server)
running = running.__enter__() if hasattr(running, '__enter__') else running
print(getattr(running, 'url', None) or running, flush=True)
sys.stdin.read()
"""

REAL_CLIENT = """
import asyncio, json, sys
import numpy as np
from vla_eval.connection import Connection

async def main():
    async with Connection(sys.argv[1]) as connection:
        told = dict(connection.server_info)
        await connection.start_episode({'task': {'name': 'reach'}})
        observation = {'images': {'top': np.zeros((6, 6, 3), np.uint8)},
                       'states': np.array([0.0, 0.0, 0.5, 0.5]), 'task_description': 'go'}
        actions = [np.asarray((await connection.act(observation))['actions']).tolist() for _ in range(4)]
        try:
            await connection.act({'task_description': 'go'})
            failure = ''
        except RuntimeError as error:
            failure = str(error)
        await connection.end_episode({'metrics': {}})
        print(json.dumps({'told': told, 'actions': actions, 'failure': failure}))

asyncio.run(main())
"""

OPTIONS: dict[str, Any] = {
    'observation': {'images': {'images.top': 'top'}, 'state': {'states': [0, 4]}, 'prompt': 'task_description'},
    'action': {'convention': {'control_mode': 'se3', 'target': 'delta', 'frame': 'world'}, 'chunk_length': 1},
    'connect_timeout_s': 20.0,
    'answer_timeout_s': 10.0,
}


@contextmanager
def real_server(python: Path, *, batch: int = 1) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    serving = subprocess.Popen(
        [str(python), '-W', 'ignore', '-c', REAL_SERVER, str(batch)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert serving.stdout is not None
        yield serving.stdout.readline().strip(), serving
    finally:
        serving.kill()
        serving.communicate(timeout=PATIENCE_S)


def test_its_own_model_server_runs_our_episodes_and_its_errors_leave_the_connection_usable(
    vla_eval_python: Path,
) -> None:
    with real_server(vla_eval_python) as (url, _):
        policy = VlaEvalPolicy(url=url, **OPTIONS)
        host = PointMassHost(camera_px=6)
        check_policy(policy, host=host, task='reach', deterministic=True)
        assert policy.facts['model_server'] == 'Seek'
        assert policy.facts['action_spec'] == {'position': {'name': 'position', 'dims': 3, 'format': 'delta_xyz'}}
        with pytest.raises(RemoteError, match='observation_failed: ValueError: no such task'):
            policy.start(Setup(task='t', seed=0, instruction='fail'), seed=0).act(host.reset('reach', seed=0))
        assert policy.start(Setup(task='t', seed=0), seed=0).act(host.reset('reach', seed=0)).actions.shape == (1, 3)
        policy.close()


def test_parallel_workers_are_batched_by_its_server(vla_eval_python: Path, tmp_path: Path) -> None:
    from tests.run.plans import make_plan

    with real_server(vla_eval_python, batch=4) as (url, serving):
        entry = {'use': 'vla-eval', 'options': {'url': url, **OPTIONS}}
        plan = make_plan(
            host={'use': 'point-mass', 'options': {'camera_px': 6}}, policies={'served': entry}, reference='',
            episodes_per_cell=2, time_cap_s=1.0,
        )  # fmt: skip
        assert run_trial(plan, tmp_path / 's', workers=2).n_valid == 2
        serving.kill()
        assert serving.stderr is not None
        sizes = {line for line in serving.stderr.read().splitlines() if line.isdigit()}
    assert '2' in sizes, f'two workers never shared a batch: {sizes}'


def test_its_own_client_is_served(vla_eval_python: Path) -> None:
    policy = SeekPolicy(chunk_length=2)
    offered = OfferedPolicy(policy, state_width=4, names=vla_eval_names(PointMassHost(camera_px=6).spec))
    with PolicyServer(offered, wire='vla-eval') as serving:
        ran = subprocess.run(
            [str(vla_eval_python), '-W', 'ignore', '-c', REAL_CLIENT, f'ws://127.0.0.1:{serving.port}'],
            capture_output=True, text=True, timeout=PATIENCE_S, check=True,
        )  # fmt: skip
    answer = json.loads(ran.stdout)
    assert answer['told']['protocol_version'] == 1
    assert answer['told']['action_spec']['position']['format'] == 'delta_xyz'
    chunk = policy.start(Setup(task='', seed=0), seed=0).act(Observation(0.0, np.array([0.0, 0.0, 0.5, 0.5])))
    np.testing.assert_allclose(answer['actions'][:2], chunk.actions)
    np.testing.assert_allclose(answer['actions'][2], chunk.actions[0])
    assert "observation_failed: InputError: the question has no 'states'" in answer['failure']


def test_a_failed_episode_start_is_its_fault_whenever_it_shows() -> None:
    from tests.servers import FaultyWebSocket

    from robotrials.wire.array import pack_vla_eval, unpack_vla_eval

    def answer(question: bytes) -> bytes | None:
        message = unpack_vla_eval(question)
        kind = message['type']
        payload = {'protocol_version': 1} if kind == 'hello' else {'error': 'episode_start_failed: no GPU'}
        if kind == 'observation':
            return None
        return pack_vla_eval(
            {
                'type': 'hello' if kind == 'hello' else 'error',
                'payload': payload,
                'seq': message['seq'],
                'timestamp': 0.0,
            }
        )

    for pause_s in (0.0, 0.2):
        with FaultyWebSocket(answer) as serving:
            policy = policy_of('vla-eval', serving.url)
            session = policy.start(Setup(task='t', seed=0), seed=0)
            time.sleep(pause_s)
            with pytest.raises(RemoteError, match='no GPU'):
                session.act(observation())
            policy.close()


def test_another_version_of_the_protocol_is_a_matter_of_set_up() -> None:
    with vla_eval_server(version=2) as serving, pytest.raises(SetupError, match='speaks version 2'):
        policy_of('vla-eval', serving.url)


@pytest.mark.parametrize(
    ('hello', 'told'),
    [
        (
            {'action_spec': {'joints': {'name': 'joints', 'dims': 6, 'format': 'joint_positions'}}},
            'gives 6 numbers per action',
        ),
        (
            {'action_spec': {'g': {'name': 'g', 'dims': 8, 'format': 'binary_close_positive'}}},
            'gripper: the server gives',
        ),
        (
            {'action_spec': {'r': {'name': 'r', 'dims': 8, 'format': 'euler_xyz'}}},
            'rotation: the server gives euler_xyz',
        ),
        ({'observation_spec': {'s': {'name': 's', 'dims': 14, 'format': 'raw'}}}, 'wants s of 14 numbers'),
    ],
)
def test_what_the_server_says_of_itself_is_held_against_the_mapping(hello: dict[str, Any], told: str) -> None:
    with vla_eval_server(hello=hello) as serving, pytest.raises(InputError, match=told):
        policy_of('vla-eval', serving.url)


@pytest.mark.parametrize('form', ['png', 'raw', 'jpeg'])
def test_pictures_travel_in_every_form(form: str) -> None:
    from robotrials.wire.array import pack_vla_eval, unpack_vla_eval

    picture = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    found = unpack_vla_eval(pack_vla_eval({'a': picture}, images=form))['a']
    assert found.shape == picture.shape
    assert form == 'jpeg' or (found == picture).all()
    with vla_eval_server() as serving:
        policy = policy_of('vla-eval', serving.url, image_format=form)
        np.testing.assert_allclose(ask(policy).actions, GOOD)
        policy.close()


def test_a_picture_that_lies_about_its_size_is_refused_before_it_is_decompressed() -> None:
    import io

    import msgpack
    from PIL import Image

    from robotrials.wire.array import unpack_vla_eval

    stream = io.BytesIO()
    Image.new('RGB', (9000, 9000)).save(stream, format='PNG')
    for shape, told in [([9000, 9000, 3], 'more than the'), ([8, 8, 3], 'more than the'), ([8, 8, 2], 'more than the')]:
        with pytest.raises(InputError, match=told):
            unpack_vla_eval(
                msgpack.packb({'__image__': True, 'format': 'png', 'data': stream.getvalue(), 'shape': shape})
            )
    small = io.BytesIO()
    Image.new('RGB', (4, 4)).save(small, format='PNG')
    with pytest.raises(InputError, match='announced as'):
        unpack_vla_eval(
            msgpack.packb({'__image__': True, 'format': 'png', 'data': small.getvalue(), 'shape': [8, 8, 3]})
        )


def test_a_message_out_of_turn_is_refused() -> None:
    from robotrials.policies.vla_eval import read_message
    from robotrials.wire.array import pack_vla_eval

    for message in ({'type': 'action'}, {'type': 1, 'payload': {}, 'seq': 0, 'timestamp': 0.0}, [1]):
        with pytest.raises(AnswerError):
            read_message('x', pack_vla_eval(message))
