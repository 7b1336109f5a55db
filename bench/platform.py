# ruff: noqa: A005
"""The platform under load: a worker's link against a bare WebSocket, and the queue with 200 workers on it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Result, against

TURNS, ASKED = 20, 25  # ours and the bare socket take turns, so that both meet the same machine
SECRET = b'bench-secret-of-16-bytes'
TARGET = 0.6

CLIENT = """
import sys
import numpy as np
from trialist.platform.client import act_in_episode
from trialist.run import Chunk
from trialist.testing.policy import SeekPolicy

class Fixed(SeekPolicy):
    actions = np.zeros((1, 3))
    def start(self, setup, *, seed):
        return self
    def act(self, observation):
        return Chunk(self.actions)

try:
    act_in_episode(Fixed(), sys.argv[1], sys.argv[2])
except Exception:
    pass
"""

BARE = """
import sys
from websockets.sync.client import connect
answer = bytes(int(sys.argv[2]))
with connect(sys.argv[1], compression=None, max_size=None) as link:
    for _ in link:
        link.send(answer)
"""


PLAN = """
seed = 1
host = 'point-mass'
tasks = ['reach']
time_cap_s = 2.0
episodes_per_cell = 500
"""
SETTINGS = """
lease_s = 60.0
lost_s = 60.0
presence_s = 60.0
quota = {open_submissions = 100, submissions_per_day = 1000, requests_per_minute = 10000000}
"""
WORKERS, HEARTBEAT_S = 200, 5.0
RATE_HZ, HELD_S = 50.0, float(os.environ.get('TRIALIST_BENCH_HELD_S', '60'))
SUBMISSIONS = 8


def run() -> list[Result]:
    from trialist.testing.postgres import running_postgres

    results = [_link('state', 0), _link('two 224 x 224 pictures', 224), *_queue('SQLite', '')]
    with running_postgres() as url:
        return results + _queue('PostgreSQL', url)


class _Desk:
    """Lets one client in."""

    def __init__(self) -> None:
        self.links: queue.Queue[Any] = queue.Queue()

    def admit(self, token: str) -> Any:
        from trialist.platform.lease_token import read_lease

        return read_lease(SECRET, token, worker_id='w', now_s=time.time())

    def take(self, claim: Any, link: Any) -> None:
        self.links.put(link)

    def state(self) -> dict[str, object]:
        return {}

    def stop(self, why: str) -> None: ...

    def resume(self) -> None: ...


def _link(what: str, side_px: int) -> Result:
    from trialist.platform.lease_token import sign_lease
    from trialist.platform.link import Interrupts, LinkPolicy, greet
    from trialist.platform.message import MessageType, Welcome, encode, observation_to_map
    from trialist.platform.worker_port import WorkerPort
    from trialist.run import Observation, Setup
    from trialist.testing.point_mass import PointMassHost

    desk = _Desk()
    port = WorkerPort(desk, interrupts=Interrupts(), host='127.0.0.1', port=0)
    token = sign_lease(SECRET, lease_id='l', worker_id='w', job_id='j', expires_at=time.time() + 600)
    client = subprocess.Popen([sys.executable, '-c', CLIENT, f'ws://127.0.0.1:{port.port}/eval', token])
    link = desk.links.get(timeout=60)
    spec = greet(link, Welcome(host=PointMassHost().spec, time_cap_s=1.0), timeout_s=60)
    policy = LinkPolicy(link, spec, code='a', answer_s=10.0, hold=lambda: np.zeros(3))
    session = policy.start(Setup(task='reach', seed=1), seed=1)
    images = {n: np.zeros((side_px, side_px, 3), np.uint8) for n in ('front', 'wrist')} if side_px else {}
    seen = Observation(0.0, np.zeros(8), images)
    question = encode(MessageType.OBSERVATION, step=0, **observation_to_map(seen, None))
    answer = encode(MessageType.ACTION, step=0, actions=np.zeros((1, 3)), inference_s=0.001)
    with _BareEcho(len(answer)) as bare:
        ours, theirs = _in_turns(lambda: session.act(seen), lambda: bare.ask(question))
    link.close()
    client.wait(10)
    port.close()
    work = (
        f'one action over a worker link, {what}: {len(question):,} bytes out, {len(answer)} back, coded and checked; '
        f'{1 / ours:,.0f} actions a second, {1 / theirs:,.0f} echoes a second'
    )
    name = f'platform/link, {what}'
    return against(name, ours_s=ours, peer='bare WebSocket echo', peer_s=theirs, target=TARGET, work=work)


class _BareEcho:
    """The websockets package alone, with a client in a process of its own that answers with as many bytes."""

    def __init__(self, answer_bytes: int) -> None:
        import threading

        from websockets.sync.server import serve

        self._links: queue.Queue[Any] = queue.Queue()
        self._done = threading.Event()
        self._server = serve(self._handle, '127.0.0.1', 0, compression=None, max_size=None, ping_interval=None)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        url = f'ws://127.0.0.1:{self._server.socket.getsockname()[1]}'
        self._client = subprocess.Popen([sys.executable, '-c', BARE, url, str(answer_bytes)])
        self._link = self._links.get(timeout=60)

    def _handle(self, link: Any) -> None:
        self._links.put(link)
        self._done.wait()

    def ask(self, question: bytes) -> None:
        self._link.send(question)
        self._link.recv()

    def __enter__(self) -> _BareEcho:
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._server.shutdown()
        self._client.wait(10)


def _in_turns(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """The lower quartile of the times of each, taken in turns: what else runs here must not decide."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(TURNS):
        for call, times in zip((ours, theirs), taken, strict=True):
            for _ in range(ASKED):
                started = time.perf_counter()
                call()
                times.append(time.perf_counter() - started)
    ours_s, theirs_s = (statistics.quantiles(times, n=4)[0] for times in taken)
    return ours_s, theirs_s


# --- the queue


def _queue(database: str, url: str) -> list[Result]:
    """One server process under the heartbeats of 200 workers and a steady stream of queue operations."""
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder), url) as (address, tokens):
        return asyncio.run(_Load(address, tokens).run(database))


@contextlib.contextmanager
def _server(folder: Path, database: str) -> Iterator[tuple[tuple[str, int], dict[str, str]]]:
    from trialist.platform.config import read_config
    from trialist.platform.offline import issue_offline
    from trialist.testing.postgres import free_port

    (folder / 'platform.toml').write_text(SETTINGS)
    config = read_config(folder, database=database or None)
    scopes = {'boss': ['admin'], 'cells': ['worker'], 'kim': ['submitter']}
    tokens = {user: issue_offline(config, user=user, scopes=given, days=None) for user, given in scopes.items()}
    port = free_port()
    command = [sys.executable, '-m', 'trialist.cli', 'serve', 'start', str(folder), '--port', str(port)]
    options = ['--database', database] if database else []
    process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        asyncio.run(_await_ready(('127.0.0.1', port)))
        yield ('127.0.0.1', port), tokens
    finally:
        process.terminate()
        process.wait(60)


async def _await_ready(address: tuple[str, int]) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError):
            if (await _Caller(address, '').call('GET', '/readyz'))[0] == 200:
                return
        await asyncio.sleep(0.1)
    raise RuntimeError('the server does not become ready')


class _Caller:
    """One kept connection; calls on it follow one another."""

    def __init__(self, address: tuple[str, int], token: str) -> None:
        self._address, self._token = address, token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: bytes = b'') -> tuple[int, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        lines = [f'{method} {path} HTTP/1.1', 'Host: bench', f'Authorization: Bearer {self._token}',
                 'Content-Type: application/json', f'Content-Length: {len(body)}']  # fmt: skip
        writer.write('\r\n'.join(lines).encode() + b'\r\n\r\n' + body)
        head = (await reader.readuntil(b'\r\n\r\n')).decode().lower()
        length = head.partition('content-length: ')[2].partition('\r')[0]
        answer = await reader.readexactly(int(length)) if length else b''
        status = int(head.split(' ', 2)[1])
        return status, json.loads(answer) if answer and answer[:1] in b'{[' else None

    async def ok(self, method: str, path: str, body: object = None) -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body if body is not None else {}).encode()
        status, answer = await self.call(method, f'/api/v1{path}', data)
        if status >= 300:
            raise RuntimeError(f'{method} {path}: HTTP {status} {answer}')
        return status, answer


class _Load:
    def __init__(self, address: tuple[str, int], tokens: dict[str, str]) -> None:
        self._address, self._tokens = address, tokens
        self._beats_s: list[float] = []
        self._operations_s: list[float] = []
        self._busy: dict[str, str] = {}  # worker -> the lease it is at

    def _caller(self, user: str) -> _Caller:
        return _Caller(self._address, self._tokens[user])

    async def run(self, database: str) -> list[Result]:
        boss, cells, kim = (self._caller(user) for user in ('boss', 'cells', 'kim'))
        await boss.ok('POST', '/benchmarks', {'name': 'load', 'plan': PLAN})
        body = {'benchmark': 'load', 'card': {}}
        made = [await kim.ok('POST', '/submissions', {**body, 'client_key': f'k{n}', 'name': f'p{n}'})
                for n in range(SUBMISSIONS)]  # fmt: skip
        submissions = [answer['id'] for _, answer in made]
        workers = []
        for n in range(WORKERS):
            place = {'name': f'cell-{n}', 'host': 'point-mass', 'address': 'ws://127.0.0.1:1', 'protocol': 1}
            _, answer = await cells.ok('POST', '/workers', place)
            workers.append(answer['worker_id'])
            await cells.ok('POST', f'/workers/{answer["worker_id"]}/heartbeat', {'state': 'idle'})
        alone_s = await self._cycles(submissions[0], seconds=min(10.0, HELD_S), pace_s=0.0)
        self._operations_s.clear()
        ends_s = time.monotonic() + HELD_S
        pace_s = SUBMISSIONS / RATE_HZ
        beats = [self._beat(worker, n * HEARTBEAT_S / WORKERS, ends_s) for n, worker in enumerate(workers)]
        cycles = [self._cycles(s, seconds=HELD_S, pace_s=pace_s) for s in submissions]
        await asyncio.gather(*beats, *cycles)
        return [self._row(database, alone_s)]

    async def _beat(self, worker: str, offset_s: float, ends_s: float) -> None:
        await asyncio.sleep(offset_s)
        caller = self._caller('cells')
        while time.monotonic() < ends_s:
            started = time.perf_counter()
            lease = self._busy.get(worker)
            await caller.ok(
                'POST', f'/workers/{worker}/heartbeat', {'state': 'busy' if lease else 'idle', 'lease_id': lease}
            )
            self._beats_s.append(time.perf_counter() - started)
            await asyncio.sleep(max(0.0, HEARTBEAT_S - (time.perf_counter() - started)))

    async def _cycles(self, submission: str, *, seconds: float, pace_s: float) -> float:
        """Ask, begin, upload, over and over, at a pace; the mean time of an operation."""
        kim, cells = self._caller('kim'), self._caller('cells')
        ends_s = due_s = time.monotonic()
        ends_s += seconds
        first = len(self._operations_s)
        while time.monotonic() < ends_s:
            status, lease = await self._operation(kim, 'POST', f'/submissions/{submission}/lease')
            if status == 200:
                await self._begin_and_upload(cells, lease['lease_id'])
            due_s += pace_s * (3 if status == 200 else 1)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        taken = self._operations_s[first:]
        return sum(taken) / len(taken)

    async def _begin_and_upload(self, cells: _Caller, lease_id: str) -> None:
        from trialist.episodes import Outcome
        from trialist.platform.bundle import pack_bundle
        from trialist.platform.job import job_from_json

        _, answer = await self._operation(cells, 'GET', f'/leases/{lease_id}/job')
        planned = job_from_json(answer).planned(operator='bench')
        bundle = pack_bundle(planned.replace(outcome=Outcome.SUCCESS, duration_s=1.0))
        await self._operation(cells, 'POST', f'/leases/{lease_id}/result', bundle)

    async def _operation(self, caller: _Caller, method: str, path: str, body: object = None) -> Any:
        started = time.perf_counter()
        answer = await caller.ok(method, path, body)
        self._operations_s.append(time.perf_counter() - started)
        return answer

    def _row(self, database: str, alone_s: float) -> Result:
        cuts = statistics.quantiles(self._operations_s, n=100)
        beats = statistics.quantiles(self._beats_s, n=100)
        work = (
            f'{WORKERS} workers heartbeating every {HEARTBEAT_S:g} s and {len(self._operations_s) / HELD_S:.0f} queue '
            f'operations a second (ask, begin, store a result) for {HELD_S:g} s with no error on {database}: p50 '
            f'{1e3 * cuts[49]:.0f} ms, p99 {1e3 * cuts[98]:.0f} ms; heartbeats p50 {1e3 * beats[49]:.0f} ms, p99 '
            f'{1e3 * beats[98]:.0f} ms; alone, one after the other: {1 / alone_s:.0f} operations a second'
        )
        name = f'platform/queue, {database}'
        return against(name, ours_s=cuts[98], peer='their median', peer_s=cuts[49], target=0.02, work=work)
