"""The server under load: 200 workers that send heartbeats and 50 queue operations a second, on both databases."""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from bench.measure import Result
from trialist.platform.config import read_config
from trialist.platform.offline import issue_offline
from trialist.testing.postgres import new_database, started_postgres

N_WORKERS, HEARTBEAT_S, OPERATIONS_PER_S = 200, 5.0, 50.0
N_SUBMISSIONS = 50
HELD_S = float(os.environ.get('TRIALIST_BENCH_HELD_S', '60'))
PLAN = """
seed = 1
episodes_per_cell = 100
time_cap_s = 4.0
host = "point-mass"
tasks = ["reach"]
"""


def run() -> list[Result]:
    with started_postgres() as postgres:
        return [_load('sqlite', ''), _load('postgresql', new_database(postgres))]


def _load(kind: str, database: str) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / 'p'
        root.mkdir()
        (root / 'platform.toml').write_text(
            '[quota]\nrequests_per_minute = 1000000\nopen_submissions = 1000\nsubmissions_per_day = 1000\n'
        )
        config = read_config(root, database=database or None)
        tokens = {s: issue_offline(config, user=s, scopes=[s], days=None) for s in ('admin', 'submitter', 'worker')}
        command = [sys.executable, '-m', 'trialist.cli', 'serve', str(root), '--port', '0']
        command += ['--database', database] if database else []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            try:
                assert server.stdout is not None
                url = next(m[1] for line in server.stdout if (m := re.search(r'listening on (\S+)', line)))
                took_ms, errors, lasted_s = asyncio.run(_drive(url, tokens))
            finally:
                server.terminate()
    took_ms.sort()
    p50, p99 = statistics.median(took_ms), took_ms[int(0.99 * len(took_ms))]
    asked = (N_WORKERS / HEARTBEAT_S + OPERATIONS_PER_S) * HELD_S
    work = (
        f'{N_WORKERS} workers and {OPERATIONS_PER_S:g} queue operations a second for {HELD_S:g} s: '
        f'{len(took_ms)} answers, {errors} errors, p50 {p50:.1f} ms, p99 {p99:.1f} ms'
    )
    held = (len(took_ms) - errors) / asked * min(1.0, HELD_S / lasted_s)
    return Result(f'platform_queue/load {kind}', lasted_s, 'the load that was asked for', HELD_S, held, 0.99, work)


async def _drive(url: str, tokens: dict[str, str]) -> tuple[list[float], int, float]:
    took_ms: list[float] = []
    errors = 0
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
    async with httpx.AsyncClient(base_url=f'{url}/api/v1', limits=limits, timeout=30) as client:

        async def ask(path: str, who: str, body: Any = None, *, timed: bool = True) -> Any:
            nonlocal errors
            began = time.perf_counter()
            answer = await client.post(path, json=body, headers={'Authorization': f'Bearer {tokens[who]}'})
            if timed:
                took_ms.append(1000 * (time.perf_counter() - began))
                errors += answer.status_code >= 400
            return answer

        await ask('/benchmarks', 'admin', {'name': 'b', 'plan': PLAN}, timed=False)
        subs = []
        for n in range(N_SUBMISSIONS):
            body = {'client_key': f'{n}', 'benchmark': 'b', 'name': f'p{n}'}
            subs.append((await ask('/submissions', 'submitter', body, timed=False)).json()['id'])
        ids = []
        for n in range(N_WORKERS):
            body = {'name': f'w{n}', 'host': 'point-mass', 'address': 'ws://127.0.0.1:1'}
            ids.append((await ask('/workers', 'worker', body, timed=False)).json()['worker_id'])
        began = time.perf_counter()

        async def beats(number: int) -> None:
            await asyncio.sleep(HEARTBEAT_S * number / N_WORKERS)
            for turn in range(int(HELD_S / HEARTBEAT_S)):
                await ask(f'/workers/{ids[number]}/heartbeat', 'worker', {'state': 'idle'})
                due = began + HEARTBEAT_S * (turn + 1 + number / N_WORKERS)
                await asyncio.sleep(max(0.0, due - time.perf_counter()))

        async def operations() -> None:
            """Grants and returns in turn: each lease is given back at once, so that the queue goes on."""
            pending = []
            for turn in range(int(OPERATIONS_PER_S * HELD_S / 2)):
                due = began + 2 * turn / OPERATIONS_PER_S
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                pending.append(asyncio.create_task(operation(subs[turn % len(subs)])))
            await asyncio.gather(*pending)

        async def operation(submission: str) -> None:
            answer = await ask(f'/submissions/{submission}/lease', 'submitter')
            if answer.status_code == 200:
                await ask(f'/leases/{answer.json()["lease_id"]}/fault', 'worker', {'reason': 'given back'})
            else:
                await ask(f'/submissions/{submission}/lease', 'submitter')

        await asyncio.gather(operations(), *(beats(n) for n in range(N_WORKERS)))
        return took_ms, errors, time.perf_counter() - began
