# ruff: noqa: A005
"""The platform under load: a worker's link against a bare WebSocket, and what a queue operation costs."""

from __future__ import annotations

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

from bench.measure import Result, against, attempts

TURNS, ASKED = 20, 25  # ours and the bare socket take turns, so that both meet the same machine
SECRET = b'bench-secret-of-16-bytes'
TARGET = 0.6

CLIENT = """
import sys
import numpy as np
from robotrials.service.platform.client import act_in_episode
from robotrials.run import Chunk
from robotrials.testing.policy import SeekPolicy

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
episodes_per_cell = 200
"""
CYCLES = 100


def run() -> Iterator[Result]:
    from tests.service.postgres import new_database, started_postgres

    def on_postgres() -> list[Result]:
        with started_postgres() as postgres:
            return [_queue('PostgreSQL', new_database(postgres))]

    yield from attempts((
        lambda: [_link('state', 0)], lambda: [_link('two 224 x 224 pictures', 224)], lambda: [_queue('SQLite', '')],
        on_postgres,
    ))  # fmt: skip


class _Desk:
    """Lets one client in."""

    def __init__(self) -> None:
        self.links: queue.Queue[Any] = queue.Queue()

    def admit(self, token: str) -> Any:
        from robotrials.service.platform.job import read_lease

        return read_lease(SECRET, token, worker_id='w', now_s=time.time())

    def take(self, claim: Any, link: Any) -> None:
        self.links.put(link)

    def state(self) -> dict[str, object]:
        return {}

    def stop(self, why: str) -> None: ...

    def resume(self) -> None: ...


def _link(what: str, side_px: int) -> Result:
    from robotrials.run import Observation, Setup
    from robotrials.service.platform.job import sign_lease
    from robotrials.service.platform.link import LinkPolicy, MessageType, encode, greet, observation_to_map
    from robotrials.service.platform.worker_port import WorkerPort
    from robotrials.testing.policy import PointMassHost
    from robotrials.worlds.wrapper import Interrupts

    desk = _Desk()
    port = WorkerPort(desk, interrupts=Interrupts(), host='127.0.0.1', port=0)
    token = sign_lease(SECRET, lease_id='l', worker_id='w', job_id='j', expires_at=time.time() + 600)
    client = subprocess.Popen([sys.executable, '-c', CLIENT, f'ws://127.0.0.1:{port.port}/eval', token])
    link = desk.links.get(timeout=60)
    spec = greet(link, PointMassHost().spec, answer_s=10.0, thinking_s=3600.0, timeout_s=60)
    policy = LinkPolicy(link, spec, code='a', seed=1, answer_s=10.0, hold=lambda: np.zeros(3))
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


def _queue(kind: str, database: str) -> Result:
    """Ask, begin, store a result, again and again, against bare transactions on the same database."""
    from tests.service.postgres import free_port

    from robotrials.service.platform.backup import issue_offline
    from robotrials.service.platform.client import Api
    from robotrials.service.platform.config import read_config

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, 'platform.toml').write_text('quota = {requests_per_minute = 10000000}\n')
        config = read_config(folder, database=database or None)
        scopes = {'boss': 'admin', 'cells': 'worker', 'kim': 'submitter'}
        tokens = {user: issue_offline(config, user=user, scopes=[scope], days=None) for user, scope in scopes.items()}
        port = free_port()
        command = [
            sys.executable,
            '-m',
            'robotrials.cli',
            'serve',
            'start',
            folder,
            '--port',
            str(port),
            '--allow-private',
            '127.0.0.0/8',
        ]
        options = ['--database', database] if database else []
        process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            apis = {user: Api(f'http://127.0.0.1:{port}', token) for user, token in tokens.items()}
            ours = _cycles(apis)
        finally:
            process.terminate()
            process.wait(60)
        theirs = _bare_transactions(config.url)
    work = (
        f'a queue operation over HTTP on {kind} (ask for a lease, begin it, store its result durably, in turn): '
        f'{1 / ours:,.0f} a second; a bare durable transaction of one row: {1 / theirs:,.0f} a second'
    )
    return against(
        f'platform/queue, {kind}', ours_s=ours, peer='bare transaction', peer_s=theirs, target=0.01, work=work
    )


def _cycles(apis: dict[str, Any]) -> float:
    """The mean time of an operation, with one client and one worker that take turns."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from robotrials.record import Outcome
    from robotrials.record.log import public_half
    from robotrials.service.platform.bundle import pack_bundle, sign_bundle
    from robotrials.service.platform.cells import PROTOCOL
    from robotrials.service.platform.job import job_from_json
    from robotrials.wire.link import keep_trying

    boss, cells, kim = apis['boss'], apis['cells'], apis['kim']
    keep_trying(lambda _: _reached(boss), what='the server', timeout_s=60)
    boss.post('/benchmarks', {'name': 'load', 'plan': PLAN})
    mine = kim.post('/submissions', {'client_key': 'k', 'benchmark': 'load', 'name': 'p'})[1]['id']
    key = Ed25519PrivateKey.generate()
    place = {'name': 'cell', 'host': 'point-mass', 'address': 'ws://127.0.0.1:1', 'protocol': PROTOCOL}
    place['key'] = public_half(key)
    worker = cells.post('/workers', place)[1]['worker_id']
    taken: list[float] = []

    def timed(call: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        answer = call()
        taken.append(time.perf_counter() - started)
        return answer[1]

    for _ in range(CYCLES):
        cells.post(f'/workers/{worker}/heartbeat', {'state': 'idle'})
        lease = timed(lambda: kim.post(f'/submissions/{mine}/lease'))['lease_id']
        job = job_from_json(timed(lambda i=lease: cells.get(f'/leases/{i}/job')))
        bundle = pack_bundle(job.planned(operator='cell').replace(outcome=Outcome.SUCCESS, duration_s=1.0))
        signed = sign_bundle(bundle, key, lease_id=lease)
        timed(lambda i=lease, b=signed: cells.post_bytes(f'/leases/{i}/result', b))
    for api in apis.values():
        api.close()
    return statistics.fmean(taken)


def _reached(api: Any) -> None:
    from robotrials.errors import RigError

    try:
        api.get('/benchmarks')
    except RigError as error:
        raise ConnectionError(str(error)) from error


def _bare_transactions(url: str) -> float:
    import sqlalchemy as sa

    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text('CREATE TABLE bare (n INTEGER)'))
    started = time.perf_counter()
    for n in range(3 * CYCLES):
        with engine.begin() as connection:
            connection.execute(sa.text('INSERT INTO bare VALUES (:n)'), {'n': n})
    taken = (time.perf_counter() - started) / (3 * CYCLES)
    engine.dispose()
    return taken
