"""Serving a policy to others' clients, and the verb `policies`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.policies.wires import GOOD, groot_answer
from tests.servers import FaultyZmq

from robotrials.errors import InputError, RemoteError
from robotrials.policies.openpi import OpenPiPolicy
from robotrials.policies.server import OfferedPolicy, PolicyServer, openpi_names, vla_eval_names
from robotrials.policies.vla_eval import VlaEvalPolicy
from robotrials.run import check_policy, run_trial
from robotrials.testing.policy import FaultyPolicy, PointMassHost, SeekPolicy
from robotrials.wire import WireLimits
from robotrials.wire.array import pack_groot, unpack_groot
from robotrials.wire.request import HttpLink

HOST = PointMassHost(camera_px=6)
ACTION = {'convention': {'control_mode': 'se3', 'target': 'delta', 'frame': 'world'}, 'chunk_length': 1}
OPENPI: dict[str, Any] = {
    'observation': {
        'images': {'observation/top': 'top'},
        'state': {'observation/state': {'parts': [{'take': [0, 4]}], 'number': 'float64'}},
        'prompt': 'prompt',
    },
    'action': ACTION, 'connect_timeout_s': 5.0, 'answer_timeout_s': 5.0,
}  # fmt: skip
VLA_EVAL: dict[str, Any] = {
    'observation': {'images': {'images.top': 'top'}, 'state': {'states': [0, 4]}, 'prompt': 'task_description'},
    'action': ACTION, 'connect_timeout_s': 5.0, 'answer_timeout_s': 5.0,
}  # fmt: skip


def offered(policy: Any = None, *, wire: str = 'openpi') -> OfferedPolicy:
    names = openpi_names(HOST.spec) if wire == 'openpi' else vla_eval_names(HOST.spec)
    return OfferedPolicy(policy or SeekPolicy(), state_width=4, names=names)


@pytest.mark.parametrize(
    ('wire', 'client', 'options'), [('openpi', OpenPiPolicy, OPENPI), ('vla-eval', VlaEvalPolicy, VLA_EVAL)]
)
def test_a_served_policy_is_the_policy(wire: str, client: Any, options: dict[str, Any]) -> None:
    with PolicyServer(offered(wire=wire), wire=wire) as serving:
        policy = client(url=f'ws://127.0.0.1:{serving.port}', **options)
        check_policy(policy, host=HOST, task='reach', deterministic=True)
        for path, told in (('/healthz', 'OK\n'), ('/health', '{"status": "ok"}\n')):
            health = HttpLink(f'http://127.0.0.1:{serving.port}')
            assert health.get(path, timeout_s=PATIENCE_S).text() == told
            health.close()
        policy.close()


@pytest.mark.parametrize(
    ('wire', 'client', 'options'), [('openpi', OpenPiPolicy, OPENPI), ('vla-eval', VlaEvalPolicy, VLA_EVAL)]
)
def test_a_policy_that_crashes_is_told_to_the_client_as_the_wire_says(
    wire: str, client: Any, options: dict[str, Any]
) -> None:
    with PolicyServer(offered(FaultyPolicy(fault='crash', message='out of memory'), wire=wire), wire=wire) as serving:
        policy = client(url=f'ws://127.0.0.1:{serving.port}', **options)
        with pytest.raises(InputError, match='out of memory'):
            check_policy(policy, host=HOST, task='reach')
        assert issubclass(RemoteError, RuntimeError)
        policy.close()


def test_clients_that_flood_lie_or_do_not_read_do_not_stop_others() -> None:
    limits = WireLimits(max_bytes=1 << 20)
    with PolicyServer(offered(), wire='openpi', most_connections=4, limits=limits) as serving:
        stalled = [socket.create_connection(('127.0.0.1', serving.port)) for _ in range(2)]
        from robotrials.wire.link import Deadline
        from robotrials.wire.websocket import WebSocketLink

        liar = WebSocketLink(f'ws://127.0.0.1:{serving.port}', deadline=Deadline.after(PATIENCE_S))
        liar.receive(timeout_s=PATIENCE_S)
        liar._link.send(b'\x82\xff' + (3 << 30).to_bytes(8, 'big') + b'\0' * 4, deadline=Deadline.after(PATIENCE_S))
        policy = OpenPiPolicy(url=f'ws://127.0.0.1:{serving.port}', **OPENPI)
        check_policy(policy, host=HOST, task='reach')
        policy.close()
        liar.close()
        for one in stalled:
            one.close()


def test_two_clients_are_served_at_once_and_a_third_too_many_is_turned_away() -> None:
    with PolicyServer(offered(SeekPolicy(think_s=0.02)), wire='openpi', most_connections=2) as serving:
        policies = [OpenPiPolicy(url=f'ws://127.0.0.1:{serving.port}', **OPENPI) for _ in range(2)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda p: check_policy(p, host=PointMassHost(camera_px=6), task='reach', steps=5), policies))
        third = OpenPiPolicy(url=f'ws://127.0.0.1:{serving.port}', **{**OPENPI, 'connect_timeout_s': 1.5})
        with pytest.raises(Exception, match='too many connections'):
            third.fit(HOST.spec)
        for policy in policies:
            policy.close()


def test_a_batching_proxy_gathers_parallel_workers_into_one_question(tmp_path: Path) -> None:
    """Two workers of a trial speak openpi to our server, which asks a GR00T server with a batch of two."""
    from tests.run.plans import make_plan

    from robotrials.policies.groot import GrootPolicy

    sizes: list[int] = []

    def answer(question: bytes) -> bytes:
        request = unpack_groot(question)
        if request['endpoint'] == 'get_modality_config':
            keys = {'video': [], 'state': ['all'], 'action': ['move']}
            return pack_groot({name: {'delta_indices': [0], 'modality_keys': k} for name, k in keys.items()})
        if request['endpoint'] != 'get_action':
            return groot_answer(question, GOOD)
        states = request['data']['observation']['state']['all']
        sizes.append(len(states))
        gap = states[..., 2:4] - states[..., :2]
        steps = np.concatenate(
            [gap / np.maximum(1.0, np.linalg.norm(gap, axis=-1, keepdims=True) / 0.08), gap[..., :1] * 0], -1
        )
        return pack_groot([{'move': steps.astype(np.float32)}, {}])

    with FaultyZmq(answer) as upstream:
        observation = {'state': {'state.all': [0, 4]}, 'prompt': 'language.task'}
        policy = GrootPolicy(url=upstream.url, observation=observation, action=ACTION, connect_timeout_s=PATIENCE_S)
        policy.fit(HOST.spec)
        gathering = OfferedPolicy(policy, state_width=4, names=openpi_names(HOST.spec), batch=2, batch_wait_s=0.1)
        with PolicyServer(gathering, wire='openpi') as serving:
            entry = {'use': 'openpi', 'options': {'url': f'ws://127.0.0.1:{serving.port}', **OPENPI}}
            plan = make_plan(
                host={'use': 'point-mass', 'options': {'camera_px': 6}}, policies={'served': entry}, reference='',
                episodes_per_cell=8, time_cap_s=1.0,  # so many that the slower of two workers has some, too
            )  # fmt: skip
            assert run_trial(plan, tmp_path / 's', workers=2).n_valid == 8
    assert 2 in sizes
    with pytest.raises(InputError, match='one question at a time'):
        OfferedPolicy(SeekPolicy(), state_width=4, names=openpi_names(HOST.spec), batch=2)


# --- the verb

TRIAL = """
seed = 1
episodes_per_cell = 1
time_cap_s = 1.0
[host]
use = "point-mass"
options = {{ camera_px = 6 }}
[[tasks]]
name = "reach"
instruction = "go there"
[policies.mine]
use = "seek"
[policies.served]
use = "openpi"
[policies.served.options]
url = "{url}"
connect_timeout_s = 1.0
[policies.served.options.observation]
images = {{ "observation/top" = {{ camera = "top", size_px = [4, 4] }} }}
state = {{ "observation/state" = [0, 4] }}
prompt = "prompt"
[policies.served.options.action]
convention = {{ control_mode = "se3", target = "delta", frame = "world" }}
"""


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, '-m', 'robotrials.cli', 'policies', *arguments], capture_output=True, text=True,
        timeout=PATIENCE_S, env={**os.environ, 'COLUMNS': '200'},
    )  # fmt: skip


def test_ls_names_kinds_presets_and_a_trials_policies(tmp_path: Path) -> None:
    shown = json.loads(command('ls', '--format', 'json').stdout)
    assert {'openpi', 'groot', 'vla-eval', 'openvla', 'lerobot', 'vlm'} <= {row['use'] for row in shown[0]['rows']}
    assert all(row['what it is'] for row in shown[0]['rows'])
    trial = tmp_path / 'trial.toml'
    trial.write_text(TRIAL.format(url='ws://127.0.0.1:1'))
    listed = command('ls', str(trial)).stdout
    assert 'served' in listed
    assert 'ws://127.0.0.1:1' in listed


def test_check_prints_one_question_and_one_answer(tmp_path: Path) -> None:
    trial = tmp_path / 'trial.toml'
    with PolicyServer(offered(), wire='openpi') as serving:
        trial.write_text(TRIAL.format(url=f'ws://127.0.0.1:{serving.port}'))
        ran = command('check', str(trial), 'served', '--format', 'json')
    values, facts = json.loads(ran.stdout)
    by_key = {(row['side'], row['key']): row for row in values['rows']}
    assert by_key['policy sees', 'observation/top']['shape'] == '(4, 4, 3) uint8'
    assert by_key['policy sees', 'prompt']['content'] == 'go there'
    assert by_key['host gets', 'actions']['shape'] == '(1, 3) float64'
    assert 'robotrials' in str(facts)


def test_check_waits_with_progress_and_says_what_is_wrong(tmp_path: Path) -> None:
    trial = tmp_path / 'trial.toml'
    trial.write_text(TRIAL.format(url='ws://127.0.0.1:1'))
    ran = command('check', str(trial), 'served')
    assert ran.returncode == 2
    assert 'waiting for ws://127.0.0.1:1: the openpi server' in ran.stderr
    assert 'did not answer within' in ran.stderr
    assert 'Traceback' not in ran.stderr
    assert "did you mean 'served'" in command('check', str(trial), 'serve').stderr


def test_serve_serves_until_interrupted(tmp_path: Path) -> None:
    import signal

    trial = tmp_path / 'trial.toml'
    trial.write_text(TRIAL.format(url='ws://127.0.0.1:1'))
    serving = subprocess.Popen(
        [sys.executable, '-u', '-m', 'robotrials.cli', 'policies', 'serve', str(trial), 'mine', '--port', '0'],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a shell's jobs may ignore it
    )  # fmt: skip
    killer = threading.Timer(PATIENCE_S, serving.kill)
    killer.start()
    try:
        assert serving.stdout is not None
        line = serving.stdout.readline()
        url = next(word for word in line.split() if word.startswith('ws://'))
        policy = OpenPiPolicy(url=url, **OPENPI)
        check_policy(policy, host=HOST, task='reach')
        policy.close()
        serving.send_signal(signal.SIGINT)
        assert serving.wait(timeout=PATIENCE_S) == 0
    finally:
        killer.cancel()
        serving.kill()
        serving.communicate(timeout=PATIENCE_S)


def test_a_busy_port_is_told() -> None:
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f'127.0.0.1:{port} cannot be listened on .*; give another port'):
            PolicyServer(offered(), wire='openpi', port=port)
