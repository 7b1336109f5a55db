"""A real PostgreSQL of its own on loopback, for tests and benchmarks."""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from robotrials.errors import SetupError

# Ports for servers of tests and benchmarks that are started, ended and started again.

FIRST, EPHEMERAL = 20_000, 32_768
RANGE_FILE = Path('/proc/sys/net/ipv4/ip_local_port_range')


def free_port() -> int:
    """A port of this machine that nobody has, and that the kernel gives to nobody who does not ask for it by number.

    Those that it gives out itself become the near end of any connection, even of one to a server on that very port
    that is down for a moment: it then connects to itself, and the server cannot come back.
    """
    with contextlib.suppress(OSError):
        last = min(EPHEMERAL, int(RANGE_FILE.read_text().split()[0]))
        for port in random.SystemRandom().sample(range(FIRST, last), k=min(100, max(0, last - FIRST))):
            with contextlib.suppress(OSError), socket.socket() as probe:
                probe.bind(('127.0.0.1', port))
                return port
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return int(probe.getsockname()[1])


INITDB_TIMEOUT_S = 300
START_TIMEOUT_S = 120
UNPRIVILEGED = ('postgres', 'nobody')
_numbers = itertools.count()


def postgres_program(name: str) -> str | None:
    """A program of PostgreSQL: where Debian keeps it, or on the path."""
    places = sorted(glob.glob(f'/usr/lib/postgresql/*/bin/{name}'), reverse=True)
    return next(iter(places), None) or shutil.which(name)


class Postgres:
    """A server that comes and goes: `crash` and `start` again, on the same port with what it had committed."""

    def __init__(self, command: list[str], root: Path, user: int | None, url: str) -> None:
        self.url = url
        self._command, self._root, self._user = command, root, user
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, user=self._user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._root
        )
        _await(self.url)

    def crash(self) -> None:
        """Its immediate end: every process of it quits as it is, and the next start recovers from its log."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        self._end(signal.SIGINT)  # its fast way: it does not wait for connections that are still open

    def _end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait(timeout=120)


@contextlib.contextmanager
def started_postgres() -> Iterator[str]:
    """The address of a new server; SetupError if PostgreSQL is not installed. Nothing in it is kept."""
    with running_postgres() as server:
        yield server.url


@contextlib.contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A new server of our own."""
    initdb, server = postgres_program('initdb'), postgres_program('postgres')
    if initdb is None or server is None:
        raise SetupError('PostgreSQL is not installed (initdb and postgres); tools/system_libraries.sh installs it')
    user = _unprivileged()
    root = Path(tempfile.mkdtemp(prefix='robotrials-postgres-'))
    root.chmod(0o755)
    if user is not None:
        os.chown(root, user, -1)
    data, port = root / 'data', free_port()
    subprocess.run(
        [initdb, '-D', str(data), '-U', 'robotrials', '--auth=trust', '--no-sync', '-E', 'UTF8'],
        user=user, check=True, capture_output=True, timeout=INITDB_TIMEOUT_S, cwd=root,
    )  # fmt: skip
    command = [server, '-D', str(data), '-p', str(port), '-h', '127.0.0.1', '-F', '-k', str(root)]
    try:
        running = Postgres(command, root, user, f'postgresql://robotrials@127.0.0.1:{port}/postgres')
        try:
            yield running
        finally:
            running.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def new_database(postgres: str) -> str:
    """An empty database of its own on a server."""
    import psycopg
    from psycopg import sql

    name = f'trial_{os.getpid()}_{next(_numbers)}'
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(sql.SQL('CREATE DATABASE {}').format(sql.Identifier(name)))
    return postgres.rsplit('/', 1)[0] + f'/{name}'


def _unprivileged() -> int | None:
    """A user for a server that refuses to run as root; None where we are not."""
    if os.getuid() != 0:
        return None
    for name in UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_uid
    raise SetupError('PostgreSQL does not run as root, and there is neither a user postgres nor nobody')


def _await(url: str) -> None:
    import psycopg

    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            psycopg.connect(url, connect_timeout=10).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
