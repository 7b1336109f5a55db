"""A damaged benchmark is set apart; the server starts, and the others go on."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from tests.service.platform.service import Service, make_service

from robotrials.record import Outcome, log
from robotrials.service.platform.table import AuditEntry, Lease, Submission


def two_benchmarks(service: Service) -> None:
    """Two open benchmarks with a finished submission each."""
    token, worker = service.token('ana', 'submitter'), service.worker()
    for name in ('first', 'second'):
        service.benchmark(name)
        submission = service.submit(token, name='mine', benchmark=name)
        service.run_all(submission, token, worker, itertools.repeat(Outcome.SUCCESS))


def flip(path: Path) -> bytes:
    content = path.read_bytes()
    log._logs.clear()  # what a server that starts has not read yet
    path.write_bytes(content[:-40] + bytes([content[-40] ^ 1]) + content[-39:])
    return content


@pytest.mark.parametrize('folder', ['log', 'episodes'])
def test_one_flipped_bit_sets_one_benchmark_apart(
    tmp_path: Path, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    with make_service(tmp_path) as service:
        two_benchmarks(service)
        admin = service.admin
        with service.platform.database.write() as session:  # names that are still to be told, as after a kill
            for row in session.query(Submission):
                row.opened_at = None
    victim = sorted((tmp_path / 'stores' / 'first' / folder).iterdir())[1]
    whole = flip(victim)
    caplog.set_level(logging.INFO, 'robotrials.service.platform')
    with make_service(tmp_path, admin=admin) as service:
        assert service.ok('GET', '/benchmarks/second/leaderboard', admin)['rows']
        board = service.ok('GET', '/benchmarks/first/leaderboard', admin)
        assert board['rows'] == []
        assert board['note'].startswith('quarantined: the record of this benchmark is damaged')
        service.ok('GET', '/benchmarks/first/leaderboard', admin)
        told = [r for r in caplog.records if r.message == 'benchmark quarantined']
        assert [r.fields['benchmark'] for r in told] == ['first'] * len(told)
        assert 1 <= len(told) <= 2  # once for reading and once for writing
        with service.platform.database.read() as session:
            noted = [e for e in session.query(AuditEntry) if e.action == 'benchmark.quarantine']
        assert len(noted) == len(told)
        token, worker = service.token('eve', 'submitter'), service.worker('cell-2')
        submission = service.submit(token, name='other', benchmark='second')
        service.run_all(submission, token, worker, itertools.repeat(Outcome.SUCCESS))
        victim.write_bytes(whole)
        service.platform.sweep()
        assert service.ok('GET', '/benchmarks/first/leaderboard', admin)['rows']
        assert any(r.message == 'benchmark back from quarantine' for r in caplog.records)


def test_a_result_for_a_damaged_benchmark_is_not_lost(tmp_path: Path) -> None:
    with make_service(tmp_path) as service:
        two_benchmarks(service)
        token, worker = service.token('eve', 'submitter'), service.worker('cell-2')
        submission = service.submit(token, name='other', benchmark='first')
        lease_id = service.lease(submission, token)['lease_id']
        worker.beat('busy', lease_id)
        data = worker.bundle(worker.job(lease_id))
        victim = sorted((tmp_path / 'stores' / 'first' / 'log').iterdir())[1]
        whole = flip(victim)
        refused = worker.upload(lease_id, data)
        assert (refused.status_code, refused.json()['error']['code']) == (503, 'quarantined')
        admin = service.admin
    with make_service(tmp_path, admin=admin, clock=service.clock) as service:
        assert list((tmp_path / 'spool').iterdir())  # it was accepted, and a restart does not forget it
        victim.write_bytes(whole)
        service.platform.intake.retry_storing(older_than_s=-1e9)
        assert worker_answer(service, lease_id) == 'done'


def worker_answer(service: Service, lease_id: str) -> str:
    with service.platform.database.read() as session:
        return session.get_one(Lease, lease_id).state


def test_a_database_that_is_away_is_told_once_and_its_return_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, 'robotrials.service.platform')
    with make_service(tmp_path, sweep_s=0.02) as service:
        platform = service.platform
        real = platform.database.read

        def away() -> None:
            raise OperationalError('SELECT 1', {}, Exception('connection refused'))

        monkeypatch.setattr(platform.database, 'read', away)
        for _ in range(5):
            refused = service.ask('GET', '/benchmarks', service.admin)
            assert (refused.status_code, refused.json()['error']['code']) == (503, 'database')
        platform._stop.wait(0.3)
        monkeypatch.setattr(platform.database, 'read', real)
        platform._stop.wait(0.3)
    told = [r.message for r in caplog.records if 'database' in r.message or r.message in ('failed', 'sweep failed')]
    assert told == ['the database does not answer', 'the database answers again']
