"""A platform for the tests: on SQLite in this process, and on a PostgreSQL that the tests start themselves."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.platform.service import Service, make_service

INITDB_TIMEOUT_S = 120
START_TIMEOUT_S = 60
UNPRIVILEGED = ('postgres', 'nobody')


def postgres_program(name: str) -> str | None:
    """A program of PostgreSQL: on the path, or where Debian keeps it."""
    places = sorted(glob.glob(f'/usr/lib/postgresql/*/bin/{name}'), reverse=True)
    return next(iter(places), None) or shutil.which(name)


def _unprivileged() -> int | None:
    """A user for a server that refuses to run as root; None where we are not."""
    if os.getuid() != 0:
        return None
    for name in UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    pytest.fail('PostgreSQL does not run as root, and there is neither a user postgres nor nobody')


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope='session')
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real PostgreSQL on loopback; skips without its programs, or fails under CI."""
    initdb, server = postgres_program('initdb'), postgres_program('postgres')
    if initdb is None or server is None:
        message = 'PostgreSQL is not installed (initdb and postgres); tools/system_libraries.sh installs it'
        if os.environ.get('CI') == 'true':
            pytest.fail(message)
        pytest.skip(message)
    user = _unprivileged()
    root = Path(f'/tmp/trialist-postgres-{os.getpid()}')
    root.mkdir(mode=0o755)
    if user is not None:
        os.chown(root, user, -1)
    data, port = root / 'data', free_port()
    subprocess.run(
        [initdb, '-D', str(data), '-U', 'trialist', '--auth=trust', '--no-sync', '-E', 'UTF8'],
        user=user, check=True, capture_output=True, timeout=INITDB_TIMEOUT_S, cwd=root,
    )  # fmt: skip
    process = subprocess.Popen(
        [server, '-D', str(data), '-p', str(port), '-h', '127.0.0.1', '-F', '-k', str(root)],
        user=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=root,
    )  # fmt: skip
    try:
        url = f'postgresql://trialist@127.0.0.1:{port}/postgres'
        _await(url)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)
        shutil.rmtree(root, ignore_errors=True)


def _await(url: str) -> None:
    import psycopg

    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


_numbers = iter(range(10**6))


def new_database(postgres: str) -> str:
    """An empty database of its own."""
    import psycopg

    name = f'trial_{os.getpid()}_{next(_numbers)}'
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE {name}')  # type: ignore[arg-type]  # a name of our own making
    return postgres.rsplit('/', 1)[0] + f'/{name}'


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A platform on SQLite with an admin."""
    with make_service(tmp_path / 'platform') as made:
        yield made


@pytest.fixture(params=['sqlite', pytest.param('postgresql', marks=pytest.mark.platform)])
def database_url(request: pytest.FixtureRequest) -> str:
    """'' for SQLite, or a new PostgreSQL database: what is tested with it holds on both."""
    return '' if request.param == 'sqlite' else new_database(request.getfixturevalue('postgres'))


@pytest.fixture
def each_service(tmp_path: Path, database_url: str) -> Iterator[Service]:
    """A platform on each kind of database."""
    with make_service(tmp_path / 'platform', database=database_url) as made:
        yield made
