"""The server under load: 200 workers that send heartbeats and 50 queue operations a second, on both databases.

Latency is that of the machine as it is: so the same load is held on a bare FastAPI application, which does nothing, in
the same run. The server's CPU time per answer depends far less on what else runs. Each load takes HELD_S seconds.

    python -m bench platform_queue
"""

from __future__ import annotations

import asyncio
import collections
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI, Request
from tests.service.postgres import new_database, started_postgres

from bench.measure import Result, against
from robotrials.service.platform.backup import issue_offline
from robotrials.service.platform.cells import PROTOCOL
from robotrials.service.platform.config import read_config

N_WORKERS, HEARTBEAT_S, OPERATIONS_PER_S = 200, 5.0, 50.0
N_SUBMISSIONS = 50
HELD_S = float(os.environ.get('ROBOTRIALS_BENCH_HELD_S', '60'))
HEARTBEAT_WAIT_S, WAIT_S = 5.0, 30.0  # as long as a worker and a client wait for an answer
START_S = 60.0
SCOPES = ('admin', 'submitter', 'worker')
PLAIN = 1000  # requests that touch no database
PLAN = """
seed = 1
episodes_per_cell = 100
time_cap_s = 4.0
host = "point-mass"
tasks = ["reach"]
"""


@dataclass(slots=True)
class Answers:
    """What came back while the load was held."""

    took_ms: list[float] = field(default_factory=list)
    errors: collections.Counter[str] = field(default_factory=collections.Counter)  # by status and code
    lasted_s: float = 0.0
    cpu_s: float = 0.0  # of the server, per answer
    plain_cpu_s: float = 0.0  # the same for answers that touch no database

    @property
    def quantiles_ms(self) -> tuple[float, float]:
        """The median and the 99th of a hundred."""
        return statistics.median(self.took_ms), sorted(self.took_ms)[int(0.99 * len(self.took_ms))]


def run() -> list[Result]:
    with started_postgres() as postgres:
        echo = _echo()
        return [*_load('sqlite', '', echo), *_load('postgresql', new_database(postgres), echo)]


def echo_app() -> FastAPI:
    """What a bare FastAPI application costs: every path answers with what the load looks for, from no database."""
    app = FastAPI()

    @app.get('/healthz')
    def healthz() -> str:
        return 'ok'

    @app.post('/api/v1/{path:path}')
    async def echo(path: str, request: Request) -> dict[str, str]:
        await request.body()
        return {'id': path, 'worker_id': 'w', 'lease_id': 'l'}

    return app


def _echo() -> Answers:
    """The same load on that application, as uvicorn runs it alone."""
    with socket.create_server(('127.0.0.1', 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, '-m', 'uvicorn', '--factory', 'bench.platform_queue:echo_app', '--port', str(port)]
    with subprocess.Popen([*command, '--log-level', 'error']) as server:
        try:
            url = f'http://127.0.0.1:{port}'
            until_s = time.monotonic() + START_S
            while True:
                try:
                    httpx.get(f'{url}/healthz')
                    break
                except httpx.TransportError:
                    if time.monotonic() > until_s:
                        raise
                    time.sleep(0.1)
            return asyncio.run(_Load(url, dict.fromkeys(SCOPES, 'none'), server.pid).drive())
        finally:
            server.terminate()


def _load(kind: str, database: str, echo: Answers) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / 'p'
        root.mkdir()
        (root / 'platform.toml').write_text(
            "private_addresses = ['127.0.0.0/8']\n"
            '[quota]\nrequests_per_minute = 1000000\nopen_submissions = 1000\nsubmissions_per_day = 1000\n'
        )
        config = read_config(root, database=database or None)
        tokens = {s: issue_offline(config, user=s, scopes=[s], days=None) for s in SCOPES}
        command = [sys.executable, '-m', 'robotrials.cli', 'serve', str(root), '--port', '0']
        command += ['--database', database] if database else []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            try:
                assert server.stdout is not None
                url = next(m[1] for line in server.stdout if (m := re.search(r'listening on (\S+)', line)))
                answers = asyncio.run(_Load(url, tokens, server.pid).drive())
            finally:
                server.terminate()
    return _results(kind, answers, echo)


def _results(kind: str, answers: Answers, echo: Answers) -> list[Result]:
    took_ms, n_errors = answers.took_ms, answers.errors.total()
    (p50, p99), (echo_p50, echo_p99) = answers.quantiles_ms, echo.quantiles_ms
    beside = f'the same load on a bare FastAPI echo: p50 {echo_p50:.1f} ms, p99 {echo_p99:.1f} ms'
    asked = (N_WORKERS / HEARTBEAT_S + OPERATIONS_PER_S) * HELD_S
    errors = ', '.join(f'{n} x {what}' for what, n in answers.errors.most_common()) or 'none'
    work = (
        f'{N_WORKERS} workers and {OPERATIONS_PER_S:g} queue operations a second for {HELD_S:g} s: '
        f'{len(took_ms)} answers, errors: {errors}; p50 {p50:.1f} ms, p99 {p99:.1f} ms'
    )
    held = (len(took_ms) - n_errors) / asked * min(1.0, HELD_S / answers.lasted_s)
    return [
        Result(
            f'platform_queue/load {kind}', answers.lasted_s, 'the load that was asked for', HELD_S, held, 0.99, work
        ),
        against(
            f'platform_queue/cpu {kind}', ours_s=answers.cpu_s, peer='the same server answering /healthz (our own)',
            peer_s=answers.plain_cpu_s, target=0.1,
            work=f'CPU time of the server per answer of that load: {1000 * answers.cpu_s:.2f} ms',
        ),
        against(
            f'platform_queue/tail {kind}', ours_s=p99 / 1000, peer='5 times the median answer', peer_s=5 * p50 / 1000,
            target=1.0, work=f'p99 {p99:.1f} ms, p50 {p50:.1f} ms; {beside}',
        ),
        against(
            f'platform_queue/answer {kind}', ours_s=p50 / 1000, peer='a bare FastAPI echo', peer_s=echo_p50 / 1000,
            target=0.1, work=f'the median answer under that load: {p50:.1f} ms; {beside}',
        ),
    ]  # fmt: skip


class _Load:
    """A lab of 200 workers and 50 clients in one process."""

    def __init__(self, url: str, tokens: dict[str, str], server_pid: int) -> None:
        self._url, self._tokens, self._pid = url, tokens, server_pid
        self._answers = Answers()
        self._free: asyncio.Queue[str] = asyncio.Queue()  # submissions whose client waits for nothing
        self._began_s = 0.0

    async def drive(self) -> Answers:
        limits = httpx.Limits(max_connections=300, max_keepalive_connections=300)
        async with httpx.AsyncClient(base_url=f'{self._url}/api/v1', limits=limits, timeout=60) as client:
            self._client = client
            ids = await self._set_up()
            cpu_s, self._began_s = _cpu_s(self._pid), time.perf_counter()
            await asyncio.gather(self._operations(), *(self._beats(n, worker) for n, worker in enumerate(ids)))
            answers = self._answers
            answers.lasted_s = time.perf_counter() - self._began_s
            answers.cpu_s = (_cpu_s(self._pid) - cpu_s) / len(answers.took_ms)
            cpu_s = _cpu_s(self._pid)
            for _ in range(PLAIN):
                await client.get(f'{self._url}/healthz')
            answers.plain_cpu_s = (_cpu_s(self._pid) - cpu_s) / PLAIN
        return answers

    async def _post(self, path: str, who: str, body: Any = None, *, wait_s: float = 60.0) -> httpx.Response:
        headers = {'Authorization': f'Bearer {self._tokens[who]}'}
        return await self._client.post(path, json=body, headers=headers, timeout=wait_s)

    async def _timed(self, path: str, who: str, body: Any = None, *, wait_s: float = WAIT_S) -> Any:
        """The answer, or None for an error, which is counted."""
        began_s = time.perf_counter()
        try:
            answer = await self._post(path, who, body, wait_s=wait_s)
        except httpx.TransportError as error:
            answer, what = None, f'{type(error).__name__} of {path.split("/")[-1]}'
        self._answers.took_ms.append(1000 * (time.perf_counter() - began_s))
        if answer is not None and answer.status_code < 400:
            return answer
        if answer is not None:
            what = f'{answer.status_code} {answer.json()["error"]["code"]} of {path.split("/")[-1]}'
        self._answers.errors[what] += 1
        return None

    async def _set_up(self) -> list[str]:
        await self._post('/benchmarks', 'admin', {'name': 'b', 'plan': PLAN})
        for n in range(N_SUBMISSIONS):
            body = {'client_key': f'{n}', 'benchmark': 'b', 'name': f'p{n}'}
            self._free.put_nowait((await self._post('/submissions', 'submitter', body)).json()['id'])
        ids = []
        for n in range(N_WORKERS):
            body = {'name': f'w{n}', 'host': 'point-mass', 'address': 'ws://127.0.0.1:1', 'protocol': PROTOCOL}
            body['key'] = f'{n:064x}'
            ids.append(str((await self._post('/workers', 'worker', body)).json()['worker_id']))
        return ids

    async def _until(self, due_s: float) -> None:
        await asyncio.sleep(max(0.0, self._began_s + due_s - time.perf_counter()))

    async def _beats(self, number: int, worker: str) -> None:
        for turn in range(int(HELD_S / HEARTBEAT_S)):
            await self._until(HEARTBEAT_S * (turn + number / N_WORKERS))
            await self._timed(f'/workers/{worker}/heartbeat', 'worker', {'state': 'idle'}, wait_s=HEARTBEAT_WAIT_S)

    async def _operations(self) -> None:
        pending = []
        for turn in range(int(OPERATIONS_PER_S * HELD_S / 2)):
            await self._until(2 * turn / OPERATIONS_PER_S)
            pending.append(asyncio.create_task(self._operation()))
        await asyncio.gather(*pending)

    async def _operation(self) -> None:
        """A grant and its return, so that the queue goes on; a client asks for one thing at a time."""
        submission = await self._free.get()
        answer = await self._timed(f'/submissions/{submission}/lease', 'submitter')
        if answer is not None and answer.status_code == 200:
            lease = answer.json()['lease_id']
            await self._timed(f'/leases/{lease}/fault', 'worker', {'reason': 'given back'})
        else:
            await self._timed(f'/submissions/{submission}/lease', 'submitter')
        self._free.put_nowait(submission)


def _cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf('SC_CLK_TCK'))
