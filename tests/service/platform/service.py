"""A platform in this process, with a clock that tests set, and the moves of clients and workers in one line each."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from robotrials.record import Outcome
from robotrials.record.log import public_half
from robotrials.service.platform.app import create_app
from robotrials.service.platform.bundle import pack_bundle, sign_bundle
from robotrials.service.platform.cells import PROTOCOL
from robotrials.service.platform.config import read_config
from robotrials.service.platform.job import Job, job_from_json
from robotrials.service.platform.server import Platform

with warnings.catch_warnings():
    # Starlette asks for a successor of httpx that is not released everywhere yet.
    warnings.simplefilter('ignore')
    from fastapi.testclient import TestClient

PLAN = """
seed = 11
episodes_per_cell = 2
time_cap_s = 4.0
host = "point-mass"

[[tasks]]
name = "reach"
items = 2
instruction = "go there"

[analysis]
resamples = 200
"""


@dataclass
class TestClock:
    """A server's clock that only tests move."""

    __test__ = False
    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


CELL_KEY = Ed25519PrivateKey.generate()  # of every worker that has none of its own


def registration(name: str = 'cell-1', *, key: Ed25519PrivateKey = CELL_KEY, **more: Any) -> dict[str, Any]:
    """What a worker says of itself when it registers."""
    body = {'name': name, 'host': 'point-mass', 'address': f'ws://127.0.0.1:1/{name}', 'protocol': PROTOCOL}
    return {**body, 'key': public_half(key), **more}


@dataclass
class WorkerMoves:
    service: Service
    worker_id: str
    secret: str
    token: str
    name: str
    key: Ed25519PrivateKey = CELL_KEY

    def beat(self, state: str = 'idle', lease_id: str | None = None, **more: Any) -> dict[str, Any]:
        body = {'state': state, 'lease_id': lease_id, **more}
        return self.service.ok('POST', f'/workers/{self.worker_id}/heartbeat', self.token, body)

    def job(self, lease_id: str) -> Job:
        return job_from_json(self.service.ok('GET', f'/leases/{lease_id}/job', self.token))

    def bundle(self, job: Job, outcome: Outcome = Outcome.SUCCESS, **changes: Any) -> bytes:
        values = {'duration_s': 1.5, 'items_placed': 2 if outcome is Outcome.SUCCESS else 0, **changes}
        return pack_bundle(job.planned(operator=self.name).replace(outcome=outcome, **values))

    def upload(self, lease_id: str, data: bytes) -> Any:
        return self.send(lease_id, sign_bundle(data, self.key, lease_id=lease_id))

    def send(self, lease_id: str, signed: bytes) -> Any:
        return self.service.ask('POST', f'/leases/{lease_id}/result', self.token, content=signed)

    def finish(self, lease_id: str, outcome: Outcome = Outcome.SUCCESS) -> dict[str, Any]:
        """Begin a lease, upload its result, and be idle again."""
        job = self.job(lease_id)
        answer = self.upload(lease_id, self.bundle(job, outcome))
        assert answer.status_code == 200, answer.text
        self.beat()
        return answer.json()  # type: ignore[no-any-return]


@dataclass
class Service:
    """A running platform and an admin's token."""

    platform: Platform
    client: TestClient
    admin: str
    clock: TestClock

    def ask(self, method: str, path: str, token: str | None = None, body: Any = None, **more: Any) -> Any:
        headers = {} if token is None else {'Authorization': f'Bearer {token}'}
        if body is not None:
            more['json'] = body
        return self.client.request(method, f'/api/v1{path}', headers=headers, **more)

    def ok(self, method: str, path: str, token: str | None = None, body: Any = None, **more: Any) -> Any:
        answer = self.ask(method, path, token, body, **more)
        assert answer.status_code < 300, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def token(self, user: str, *scopes: str, **more: Any) -> str:
        """A token of a user, who is added if new."""
        self.ask('POST', '/users', self.admin, {'name': user})
        return str(self.ok('POST', '/tokens', self.admin, {'user': user, 'scopes': list(scopes), **more})['token'])

    def benchmark(self, name: str = 'reach', plan: str = PLAN, **more: Any) -> Any:
        return self.ok('POST', '/benchmarks', self.admin, {'name': name, 'plan': plan, **more})

    def submit(self, token: str, name: str = 'mine', benchmark: str = 'reach', **more: Any) -> str:
        self.clock.pass_(0.001)
        body = {'client_key': f'{benchmark}-{name}', 'benchmark': benchmark, 'name': name, **more}
        return str(self.ok('POST', '/submissions', token, body)['id'])

    def worker(
        self, name: str = 'cell-1', token: str | None = None, host: str = 'point-mass',
        key: Ed25519PrivateKey = CELL_KEY,
    ) -> WorkerMoves:  # fmt: skip
        token = token or self.token('cells', 'worker')
        made = self.ok('POST', '/workers', token, registration(name, key=key, host=host))
        moves = WorkerMoves(self, made['worker_id'], made['secret'], token, name, key)
        moves.beat()
        return moves

    def lease(self, submission: str, token: str) -> dict[str, Any] | None:
        """Get_Worker: a lease, or None for wait."""
        answer = self.ask('POST', f'/submissions/{submission}/lease', token)
        assert answer.status_code in (200, 202), answer.text
        return answer.json() if answer.status_code == 200 else None

    def run_all(self, submission: str, token: str, worker: WorkerMoves, outcomes: Iterator[Outcome]) -> int:
        """Run a submission to its end on one worker."""
        for n in range(1000):
            answer = self.ask('POST', f'/submissions/{submission}/lease', token)
            if answer.status_code == 410:
                return n
            assert answer.status_code == 200, answer.text
            worker.finish(answer.json()['lease_id'], next(outcomes))
        raise AssertionError('it does not end')


@contextlib.contextmanager
def make_service(
    folder: Path, *, database: str = '', clock: TestClock | None = None, admin: str = '', **config: Any
) -> Iterator[Service]:
    """A platform on a folder; with `admin` one that was there before is opened again."""
    ticking = clock or TestClock()
    settings = {
        'database': database or None, 'sweep_s': 3600.0, 'least_free_bytes': 1, 'private_addresses': ['127.0.0.0/8'],
        **config,
    }  # fmt: skip
    platform = Platform(read_config(folder, **settings), clock=ticking)
    token = platform.first_token()
    with TestClient(create_app(platform.config, platform=platform), raise_server_exceptions=False) as client:
        yield Service(platform, client, token or admin, ticking)
