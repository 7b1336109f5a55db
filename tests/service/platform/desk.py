"""A worker's port without a server behind it: tokens are checked, and episodes run in the test's own thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from tests.patience import PATIENCE_S

from robotrials.service.platform.job import Job, LeaseGuard, read_benchmark, sign_lease
from robotrials.service.platform.link import ClientLink, ErrorCode
from robotrials.service.platform.worker import _farewell
from robotrials.service.platform.worker_episode import Attempt, CellOptions, CellStation, NotBegun
from robotrials.service.platform.worker_port import WorkerPort
from robotrials.wire.websocket import WebSocketLink
from robotrials.worlds.wrapper import Interrupts

SECRET = 'a-secret-of-at-least-16-bytes'
PLAN = """
seed = 7
host = {use = 'point-mass', options = {control_rate_hz = 20.0}}
tasks = ['reach']
time_cap_s = 5.0
episodes_per_cell = 3
faults = {policy_crash = 'failure', policy_hang = 'failure'}
watchdog = {policy_s = 60.0}
"""


def job(plan: str = PLAN, *, slot: int = 0, blinded: bool = False, **more) -> Job:
    return Job(
        job_id='j1', plan=read_benchmark(plan).as_json(), slot=slot, attempt=0, code='arm-1', blinded=blinded, **more
    )


def token(**changes) -> str:
    claim = {'lease_id': 'l1', 'worker_id': 'w1', 'job_id': 'j1', 'expires_at': time.time() + 600, **changes}
    secret = claim.pop('secret', SECRET)
    return sign_lease(secret.encode(), **claim)


class Desk:
    """Admits clients and runs their episodes when the test says so."""

    def __init__(self, cell: CellOptions | None = None, *, hello_s: float = 20.0, stop_secret: str = 'press') -> None:
        self.interrupts = Interrupts()
        self.station = CellStation(cell or CellOptions(host='point-mass'), name='cell-1', interrupts=self.interrupts)
        self.guard = LeaseGuard(SECRET.encode(), worker_id='w1')
        self.clients: list[WebSocketLink] = []
        self.inbox: queue.Queue[ClientLink] = queue.Queue()
        self.port = WorkerPort(
            self, interrupts=self.interrupts, host='127.0.0.1', port=0, stop_secret=stop_secret, hello_s=hello_s
        )
        self.url = f'ws://127.0.0.1:{self.port.port}/eval'

    def admit(self, given):
        return self.guard.admit(given, now_s=time.time())

    def take(self, claim, link):
        if not self.inbox.empty():
            return ErrorCode.BUSY, 'busy'
        self.inbox.put(link)
        return None

    def state(self):
        return {'state': 'out_of_service' if self.interrupts.stop.is_set() else 'idle'}

    def stop(self, why):
        self.interrupts.stop.set()

    def resume(self):
        self.interrupts.stop.clear()

    def run(self, given: Job, client: Callable[[], object]) -> tuple[Attempt | NotBegun, object]:
        """One episode with `client` in a thread: what the worker has of it, and what the client got or raised."""
        got: list[object] = []

        def act() -> None:
            try:
                got.append(client())
            except Exception as error:
                got.append(error)

        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        link = self.inbox.get(timeout=PATIENCE_S)
        try:
            attempt: Attempt | NotBegun = self.station.run(given, link)
            link.close(_farewell(given, attempt))
        except NotBegun as error:
            attempt = error
            link.refuse(error.code, str(error))
        thread.join(PATIENCE_S)
        return attempt, got[0] if got else None

    def close(self) -> None:
        for client in self.clients:
            client.close()
        while not self.inbox.empty():
            self.inbox.get().close()
        self.port.close()
        self.station.leave()
