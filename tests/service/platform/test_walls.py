"""The server's walls: who may connect, for how long, who may read its files, and what it calls or believes."""

from __future__ import annotations

import os
import socket
import sqlite3
import stat
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.service.platform.desk import Desk
from tests.service.platform.lab import PACKAGES, SETTINGS
from tests.service.platform.service import Service, make_service, registration
from tests.service.postgres import free_port

from robotrials.errors import InputError
from robotrials.record import Outcome, Trajectory
from robotrials.service.platform.bundle import pack_bundle, unpack_bundle
from robotrials.service.platform.client import check_public
from robotrials.service.platform.config import KEY
from robotrials.service.platform.worker_port import MOST_OF_ADDRESS

N_HALF_OPEN = 1100


class Process:
    """`robotrials serve` as a process with the descriptors that a system commonly gives, and those alone."""

    def __init__(self, folder: Path, *, descriptors: int = 1024) -> None:
        folder.mkdir()
        (folder / 'platform.toml').write_text(SETTINGS)
        self.folder, self.port = folder, free_port()
        limited = f'import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors})); '
        arguments = ['serve', str(folder), '--port', str(self.port)]
        run = f'import sys; sys.argv[1:] = {arguments!r}; from robotrials.cli import main; main()'
        with (folder.parent / 'server.out').open('wb') as out:
            self.process = subprocess.Popen(
                [sys.executable, '-c', limited + run],
                env={**os.environ, 'PYTHONPATH': PACKAGES},
                stdout=out,
                stderr=out,
            )
        self.wait()

    def wait(self) -> None:
        ends = time.monotonic() + PATIENCE_S
        while self.health_s() is None:
            assert time.monotonic() < ends
            assert self.process.poll() is None, self.output
            time.sleep(0.1)

    @property
    def output(self) -> str:
        return (self.folder.parent / 'server.out').read_text()

    def health_s(self) -> float | None:
        """How long an honest request takes; None if it gets no answer."""
        began = time.monotonic()
        try:
            with urllib.request.urlopen(f'http://127.0.0.1:{self.port}/healthz', timeout=15) as answer:
                return time.monotonic() - began if answer.status == 200 else None
        except OSError:
            return None

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)


@pytest.fixture
def process(tmp_path: Path):
    made = Process(tmp_path / 'lab')
    yield made
    made.close()


def half_open(port: int, said: bytes = b'', *, address: str = '127.0.0.1') -> socket.socket | None:
    made = socket.socket()
    try:
        made.bind((address, 0))
        made.settimeout(5.0)
        made.connect(('127.0.0.1', port))
        if said:
            made.sendall(said)
        return made
    except OSError:
        made.close()
        return None


ASKED = b'GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'


@pytest.mark.parametrize('n_addresses', [1, 8])
def test_half_open_connections_do_not_stop_the_server(process: Process, n_addresses: int) -> None:
    """1,100 of them took every descriptor of a process; from several addresses, too."""
    said = [
        b'',
        b'GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ',
        b'POST /api/v1/submissions HTTP/1.1\r\nContent-Length: 9\r\n\r\n{',
    ]
    made = [half_open(process.port, said[n % 3], address=f'127.0.0.{1 + n % n_addresses}') for n in range(N_HALF_OPEN)]
    try:
        # From the attacker's own address the house may be full; an honest client has another one.
        for _ in range(3):
            honest = half_open(process.port, ASKED, address='127.0.0.99')
            assert honest is not None
            with honest:
                honest.settimeout(15.0)
                assert b'200 OK' in honest.recv(4096)
    finally:
        for connection in made:
            if connection is not None:
                connection.close()


@pytest.mark.parametrize(
    'said', [b'', b'GET /healthz HTTP/1.1\r\nX-Slow: ', b'POST /api/v1/tokens HTTP/1.1\r\nContent-Length: 99\r\n\r\n{']
)
def test_whoever_does_not_finish_a_request_is_let_go(process: Process, said: bytes) -> None:
    connection = half_open(process.port, said)
    assert connection is not None
    with connection:
        connection.settimeout(60.0)
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            try:
                if not connection.recv(4096):
                    return
            except ConnectionError:
                return
        pytest.fail('it was kept')


def test_everything_that_the_server_makes_is_its_accounts_alone(process: Process) -> None:
    assert stat.S_IMODE(process.folder.stat().st_mode) == 0o700
    open_to_others = {
        str(path.relative_to(process.folder)): oct(path.stat().st_mode)
        for path in process.folder.rglob('*')
        if path.name != 'platform.toml' and path.stat().st_mode & 0o077
    }
    assert open_to_others == {}
    assert (process.folder / 'platform.db').exists()


def test_the_first_token_is_in_a_file_and_not_in_the_log(process: Process) -> None:
    file = process.folder / 'first-admin-token'
    token = file.read_text().strip()
    assert token.startswith('tlt_')
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert 'tlt_' not in process.output
    request = urllib.request.Request(
        f'http://127.0.0.1:{process.port}/api/v1/users', headers={'Authorization': f'Bearer {token}'}
    )
    with urllib.request.urlopen(request, timeout=15) as answer:
        assert answer.status == 200


def test_a_copy_of_the_database_signs_nothing(tmp_path: Path) -> None:
    with make_service(tmp_path / 'p') as service:
        worker = service.worker()
        path = service.platform.config.folder / 'platform.db'
        with sqlite3.connect(path) as copy:
            dump = '\n'.join(copy.iterdump())
        copy.close()
        assert worker.secret not in dump
        assert stat.S_IMODE((tmp_path / 'p' / KEY).stat().st_mode) == 0o600


def test_a_server_with_another_key_has_its_workers_register_anew(tmp_path: Path) -> None:
    """A restored database, or one from before the key: nothing that is signed would hold."""
    folder = tmp_path / 'p'
    with make_service(folder) as service:
        admin, worker = service.admin, service.worker()
        assert worker.beat()['leases'] == []
    (folder / KEY).unlink()
    with make_service(folder, admin=admin) as service:
        body = {'state': 'idle', 'lease_id': None}
        told = service.ask('POST', f'/workers/{worker.worker_id}/heartbeat', worker.token, body)
        assert (told.status_code, told.json()['error']['code']) == (410, 'register')
        again = service.worker(worker.name, worker.token)
        assert (again.worker_id, again.secret != worker.secret) == (worker.worker_id, True)
        assert again.beat()['leases'] == []


PRIVATE = ['10.0.0.8', '192.168.1.5', '172.16.3.4', '169.254.169.254', '127.0.0.1', '[::1]', '[fe80::1]', '0.0.0.0',
           '[::ffff:10.0.0.1]', 'localhost', '2130706433', '[64:ff9b::7f00:1]', '[64:ff9b:1::7f00:1]',
           '[5f00::1]', '[2002:7f00:1::]', '[::127.0.0.1]',
           '224.0.0.1', '[ff02::1]', '[fec0::1]', '100.64.0.1']  # fmt: skip


@pytest.mark.parametrize('host', PRIVATE)
def test_a_private_address_wants_an_operator_who_allows_it(tmp_path: Path, host: str) -> None:
    with make_service(tmp_path / 'p', private_addresses=[], dial={'allow': ['*']}) as service:
        service.benchmark()
        body = registration('cell', address=f'ws://{host}:9001/eval')
        refused = service.ask('POST', '/workers', service.token('cells', 'worker'), body)
        assert (refused.status_code, refused.json()['error']['code']) == (422, 'private_address')
        dial = {'use': 'openpi', 'options': {'url': f'ws://{host}:8000'}}
        asked = {'client_key': 'd', 'benchmark': 'reach', 'name': 'dialled', 'dial': dial}
        refused = service.ask('POST', '/submissions', service.token('kim', 'submitter'), asked)
        assert (refused.status_code, refused.json()['error']['code']) == (422, 'bad_dial')


def test_what_the_operator_names_is_allowed() -> None:
    check_public('192.168.1.5', allowed=['192.168.0.0/16'], what='address')
    check_public('8.8.8.8', allowed=[], what='address')
    with pytest.raises(InputError, match=r'10\.0\.0\.8 is a private address'):
        check_public('10.0.0.8', allowed=['192.168.0.0/16'], what='address')


def test_newcomers_of_one_address_do_not_fill_a_cells_port() -> None:
    desk = Desk()
    try:
        silent = [socket.create_connection(('127.0.0.1', desk.port.port)) for _ in range(4 * MOST_OF_ADDRESS)]
        time.sleep(0.5)
        rival = half_open(desk.port.port, b'GET /healthz HTTP/1.1\r\n\r\n', address='127.0.0.7')
        assert rival is not None
        with rival:
            rival.settimeout(15.0)
            assert b'200 OK' in rival.recv(4096)
        for connection in silent:
            connection.close()
    finally:
        desk.close()


@pytest.mark.parametrize(
    'changes',
    [
        {'duration_s': 999.0},
        {'duration_s': None, 'items_placed': None},
        {'time_cap_s': 2000.0, 'duration_s': 999.0},
        {'items': 99, 'items_placed': 99},
        {'path': np.array([0.0, 999.0])},
    ],
)
def test_a_workers_result_is_held_to_its_own_plan(service: Service, changes: dict[str, Any]) -> None:
    changes = dict(changes)
    service.benchmark()
    kim, worker = service.token('kim', 'submitter'), service.worker()
    lease = service.lease(service.submit(kim), kim)
    assert lease is not None
    job = worker.job(lease['lease_id'])
    path = changes.pop('path', None)
    data = worker.bundle(job, Outcome.SUCCESS, **changes)
    if path is not None:
        data = pack_bundle(unpack_bundle(data).episode, trajectory=Trajectory(time_s=path))
    refused = worker.upload(lease['lease_id'], data)
    assert (refused.status_code, refused.json()['error']['code']) == (422, 'out_of_bounds'), refused.text
