"""A lab of real processes on loopback, to be killed at will: `robotrials serve`, `robotrials worker`, `submit`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S
from tests.service.postgres import free_port

import robotrials
from robotrials.errors import RobotrialsError
from robotrials.service.platform.backup import issue_offline
from robotrials.service.platform.client import Api, ApiError
from robotrials.service.platform.config import read_config

# The package under test and the tests themselves, wherever a process is started.
PACKAGES = os.pathsep.join(str(p) for p in (Path(robotrials.__file__).parents[1], Path(__file__).parents[3]))
SETTINGS = """
heartbeat_s = 0.5
lease_s = 300.0
claim_s = 120.0
lost_s = 120.0
presence_s = 120.0
retry_s = 0.2
sweep_s = 0.3
least_free_bytes = 1
private_addresses = ['127.0.0.0/8']
quota = {open_submissions = 100, submissions_per_day = 1000, requests_per_minute = 100000}
dial = {allow = ['127.0.0.1:*']}
"""

# Where processes are killed, and their leases are to run out while the test waits.
HASTY = re.sub('(lease|claim|lost|presence)_s = .*', r'\1_s = 12.0', SETTINGS)


def wait_for(what: Callable[[], Any], *, why: str, seconds: float = PATIENCE_S) -> Any:
    """What `what` gives, once it gives something; errors of a server that restarts are waited out."""
    ends = time.monotonic() + seconds
    while True:
        with contextlib.suppress(RobotrialsError):
            if found := what():
                return found
        if time.monotonic() > ends:
            raise AssertionError(f'not within {seconds:g} s: {why}')
        time.sleep(0.1)


class Lab:
    """One server's folder, and the processes around it."""

    def __init__(self, folder: Path, *, database: str = '', settings: str = SETTINGS, packages: str = '') -> None:
        self.folder, self._database = folder, database
        self._packages = os.pathsep.join(filter(None, (packages, PACKAGES)))
        self.server_folder = folder / 'server'
        self.server_folder.mkdir(parents=True, exist_ok=True)  # it may be a disk of its own
        (self.server_folder / 'platform.toml').write_text(settings)
        self.port = free_port()
        self.url = f'http://127.0.0.1:{self.port}'
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._tokens: dict[str, str] = {}
        self._apis: dict[str, Api] = {}
        self._serve_options = ['--database', database] if database else []

    # --- processes

    def serve(self) -> None:
        """Start the server, and wait until it is ready."""
        arguments = ['serve', 'start', str(self.server_folder), '--port', str(self.port), *self._serve_options]
        self._start('server', arguments)
        wait_for(self._is_ready, why='the server is ready')

    def worker(self, name: str, *, host: str = 'tabletop', options: tuple[str, ...] = ()) -> None:
        arguments = ['worker', '--server', self.url, '--host', host, '--name', name, '--listen', '127.0.0.1:0',
                     '--folder', str(self.folder / f'worker-{name}'), *options]  # fmt: skip
        secret = {'ROBOTRIALS_TOKEN': self.token('cells', 'worker'), 'ROBOTRIALS_STOP_SECRET': 'press'}
        self._start(name, arguments, secret)

    def client(self, name: str, benchmark: str, *, policy: str, options: tuple[str, ...] = ()) -> None:
        arguments = ['submit', benchmark, '--server', self.url, '--name', name, '--policy', policy, '--json', *options]
        self._start(name, arguments, {'ROBOTRIALS_TOKEN': self.token('kim', 'submitter', 'reader')})

    def kill(self, name: str) -> None:
        """kill -9."""
        process = self.processes.pop(name)
        process.kill()
        process.wait(PATIENCE_S)

    def stop(self, name: str, *, seconds: float = PATIENCE_S) -> int:
        """SIGTERM, and wait for the end; its exit code."""
        process = self.processes.pop(name)
        process.terminate()
        return process.wait(seconds)

    def finished(self, name: str, *, code: int = 0) -> bool:
        """Whether a process ended as expected; AssertionError with its log if it ended otherwise."""
        found = self.processes[name].poll()
        assert found in (None, code), f'{name} ended with {found}:\n{self.log(name)[-3000:]}'
        return found is not None

    def log(self, name: str) -> str:
        return (self.folder / f'{name}.log').read_text(errors='replace')

    def output(self, name: str) -> Any:
        """What a client printed at its end."""
        return json.loads(_last_json(self.folder / f'{name}.out'))

    def _start(self, name: str, arguments: list[str], more: Mapping[str, str] | None = None) -> None:
        environment = {**os.environ, 'PYTHONPATH': self._packages, 'OMP_NUM_THREADS': '1', **(more or {})}
        with (self.folder / f'{name}.log').open('ab') as log, (self.folder / f'{name}.out').open('ab') as out:
            self.processes[name] = subprocess.Popen(
                [sys.executable, '-m', 'robotrials.cli', *arguments],
                stdout=out,
                stderr=log,
                env=environment,
                cwd=self.folder,
            )

    def _command(self, arguments: list[str]) -> str:
        done = subprocess.run(
            [sys.executable, '-m', 'robotrials.cli', *arguments], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def check(self) -> str:
        """`robotrials serve check`: it fails if queue, audit trail and stores do not fit together."""
        return self._command(['serve', 'check', str(self.server_folder), *self._serve_options])

    # --- calls

    def _is_ready(self) -> bool:
        import urllib.request

        with contextlib.suppress(OSError), urllib.request.urlopen(f'{self.url}/readyz', timeout=20) as answer:
            return bool(answer.status == 200)
        assert self.processes['server'].poll() is None, self.log('server')[-3000:]
        return False

    def token(self, user: str, *scopes: str) -> str:
        if user not in self._tokens:
            config = read_config(self.server_folder, database=self._database or None)
            self._tokens[user] = issue_offline(config, user=user, scopes=scopes, days=None)
        return self._tokens[user]

    def api(self, user: str = 'boss', *scopes: str) -> Api:
        if user not in self._apis:
            self._apis[user] = Api(self.url, self.token(user, *(scopes or ('admin', 'operator', 'reader'))))
        return self._apis[user]

    def benchmark(self, name: str, plan: str, **more: Any) -> None:
        self.api().post('/benchmarks', {'name': name, 'plan': plan, **more})

    def submissions(self) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = self.api('kim', 'submitter', 'reader').get('/submissions?limit=1000')[1]
        return found

    def cells(self) -> dict[str, Mapping[str, Any]]:
        return {cell['name']: cell for cell in self.api().get('/workers')[1]}

    def close(self) -> None:
        for api in self._apis.values():
            api.close()
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait(PATIENCE_S)
        self.processes = {}


def _last_json(path: Path) -> str:
    text = path.read_text()
    return text[text.rindex('\n{') + 1 :] if '\n{' in text else text


@contextlib.contextmanager
def lab_in(folder: Path, **more: Any) -> Iterator[Lab]:
    lab = Lab(folder, **more)
    try:
        lab.serve()
        yield lab
    finally:
        lab.close()


__all__ = ['ApiError', 'Lab', 'lab_in', 'wait_for']
