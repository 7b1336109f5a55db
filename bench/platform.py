# ruff: noqa: A005
"""The platform under load: a worker's link against a bare WebSocket."""

from __future__ import annotations

import queue
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
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


def run() -> list[Result]:
    return [_link('state', 0), _link('two 224 x 224 pictures', 224)]


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
