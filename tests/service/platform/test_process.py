"""The server as a process: killed at every point of its promises, drained on SIGTERM, on both databases."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.patience import PATIENCE_S
from tests.service.platform.service import CELL_KEY, PLAN, registration

from robotrials.record import Outcome, Store
from robotrials.service.platform.backup import check_offline, issue_offline
from robotrials.service.platform.bundle import pack_bundle, sign_bundle
from robotrials.service.platform.config import read_config
from robotrials.service.platform.database import POINTS, VARIABLE
from robotrials.service.platform.job import job_from_json

pytestmark = pytest.mark.platform


@contextlib.contextmanager
def serving(folder: Path, database: str, *, dies_at: str = '') -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    """A server of its own, and a client on it."""
    command = [sys.executable, '-m', 'robotrials.cli', 'serve', str(folder), '--port', '0']
    command += ['--allow-private', '127.0.0.0/8']  # where the worker of these tests is
    command += ['--database', database] if database else []
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | {VARIABLE: dies_at}
    )
    try:
        with httpx.Client(base_url=f'{_address(process)}/api/v1', timeout=PATIENCE_S) as client:
            yield client, process
    finally:
        process.kill()
        process.wait(timeout=PATIENCE_S)
        if process.stdout is not None:
            process.stdout.close()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r'listening on (http://\S+)', line):
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(f'{found[1]}/readyz').status_code == 200:
                        return found[1]
                time.sleep(0.05)
    raise AssertionError('the server did not start')


def ask(client: httpx.Client, method: str, path: str, token: str, **more: Any) -> httpx.Response | None:
    """The answer, or None from a server that died over it."""
    with contextlib.suppress(httpx.TransportError):
        return client.request(method, path, headers={'Authorization': f'Bearer {token}'}, **more)
    return None


class Lab:
    """Tokens, and the moves of a client and a worker that do not mind a server that dies."""

    def __init__(self, folder: Path, database: str) -> None:
        config = read_config(folder, database=database or None)
        users = {'admin': 'admin', 'kim': 'submitter', 'cells': 'worker'}
        self.tokens = {u: issue_offline(config, user=u, scopes=[s], days=None) for u, s in users.items()}
        self.config, self.worker_id, self.submission = config, '', ''

    def submit(self, client: httpx.Client) -> httpx.Response | None:
        body = {'client_key': 'k', 'benchmark': 'reach', 'name': 'mine'}
        answer = ask(client, 'POST', '/submissions', self.tokens['kim'], json=body)
        if answer is not None:
            self.submission = answer.json()['id']
        return answer

    def set_up(self, client: httpx.Client) -> None:
        ask(client, 'POST', '/benchmarks', self.tokens['admin'], json={'name': 'reach', 'plan': PLAN})
        answer = ask(client, 'POST', '/workers', self.tokens['cells'], json=registration('cell'))
        assert answer is not None
        self.worker_id = answer.json()['worker_id']

    def beat(self, client: httpx.Client) -> None:
        ask(client, 'POST', f'/workers/{self.worker_id}/heartbeat', self.tokens['cells'], json={'state': 'idle'})

    def run_to_the_end(self, client: httpx.Client) -> int:
        """Run what is left; how many results were answered with 200. -1 if the server died."""
        for n in range(20):
            self.beat(client)
            answer = ask(client, 'POST', f'/submissions/{self.submission}/lease', self.tokens['kim'])
            if answer is None:
                return -1
            if answer.status_code == 410:
                return n
            assert answer.status_code == 200, answer.text
            lease_id = answer.json()['lease_id']
            told = ask(client, 'GET', f'/leases/{lease_id}/job', self.tokens['cells'])
            assert told is not None
            job = job_from_json(told.json())
            bundle = pack_bundle(job.planned().replace(outcome=Outcome.SUCCESS, duration_s=1.0))
            data = sign_bundle(bundle, CELL_KEY, lease_id=lease_id)
            result = ask(client, 'POST', f'/leases/{lease_id}/result', self.tokens['cells'], content=data)
            if result is None:
                self.unsure = lease_id, data
                return -1
            assert result.status_code == 200, result.text
        raise AssertionError('it does not end')


@pytest.mark.parametrize('point', [p for p in POINTS if not p.startswith('expiry')])
def test_a_killed_server_loses_and_doubles_nothing(tmp_path: Path, database_url: str, point: str) -> None:
    lab = Lab(tmp_path / 'p', database_url)
    with serving(tmp_path / 'p', database_url, dies_at=point) as (client, process):
        lab.set_up(client)
        if lab.submit(client) is not None:
            assert lab.run_to_the_end(client) == -1
        assert process.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    with serving(tmp_path / 'p', database_url) as (client, _):
        again = lab.submit(client)
        assert again is not None
        assert again.status_code == 200  # it was accepted before, whatever died after that
        if point.startswith('result'):
            lease_id, data = lab.unsure
            sent_again = ask(client, 'POST', f'/leases/{lease_id}/result', lab.tokens['cells'], content=data)
            assert sent_again is not None
            assert sent_again.status_code == 200
        lab.run_to_the_end(client)
        whole = ask(client, 'GET', '/audit/check', lab.tokens['admin'])
        assert whole is not None
        assert whole.json()['is_whole']
    assert check_offline(lab.config, tell=lambda line: None) == []
    store = Store.open(tmp_path / 'p' / 'stores' / 'reach')
    assert [(e.outcome, e.attempt) for e in store.episodes(attempts='all')] == [(Outcome.SUCCESS, 0)] * 2


def test_sigterm_lets_requests_finish_and_ends_with_zero(tmp_path: Path, database_url: str) -> None:
    lab = Lab(tmp_path / 'p', database_url)
    with serving(tmp_path / 'p', database_url) as (client, process):
        lab.set_up(client)
        assert lab.submit(client) is not None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) in (0, -signal.SIGTERM)
    with serving(tmp_path / 'p', database_url) as (client, _):
        lab.run_to_the_end(client)
    assert check_offline(lab.config, tell=lambda line: None) == []


def test_the_command_line_backs_up_restores_and_checks(tmp_path: Path) -> None:
    old, new, archive = (str(tmp_path / name) for name in ('p', 'q', 'b.tar'))
    lab = Lab(tmp_path / 'p', '')
    with serving(tmp_path / 'p', '') as (client, _):
        lab.set_up(client)
        lab.submit(client)
        lab.run_to_the_end(client)
        for words in (['backup', old, archive], ['restore', new, archive], ['check', new], ['migrate', new]):
            done = subprocess.run(
                [sys.executable, '-m', 'robotrials.cli', 'serve', *words], capture_output=True, text=True,
                timeout=PATIENCE_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    with serving(tmp_path / 'q', '') as (client, _):
        score = ask(client, 'GET', f'/submissions/{lab.submission}/score', lab.tokens['kim'])
        assert score is not None
        assert score.json()['values']['success']['value'] == 1.0
