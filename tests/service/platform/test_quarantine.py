"""A damaged benchmark is set apart; the server starts, and the others go on."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import pytest
from sqlalchemy.exc import DataError, OperationalError
from tests.service.platform.service import Service, WorkerMoves, make_service

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


@pytest.mark.parametrize('restarts', [False, True])
def test_jobs_of_a_damaged_benchmark_wait_and_hold_up_nobody(tmp_path: Path, restarts: bool) -> None:
    """A result and a broken rig meet the damage; their cells serve others meanwhile, and all goes on later."""
    with make_service(tmp_path, leases_per_submission=2) as service:
        two_benchmarks(service)
        eve, cells = service.token('eve', 'submitter'), [service.worker(f'cell-{n}') for n in (1, 2)]
        waiting, other = (service.submit(eve, name='other', benchmark=name) for name in ('first', 'second'))
        leases = [begun_on(service, cells, waiting, eve) for _ in cells]
        victim = sorted((tmp_path / 'stores' / 'first' / 'log').iterdir())[1]
        whole = flip(victim)
        (cell, lease_id), (broken, lost_id) = leases
        data = cell.bundle(cell.job(lease_id))
        assert [cell.upload(lease_id, data).json()['state'] for _ in range(2)] == ['kept', 'kept']
        fault = {'kind': 'host crash', 'reason': 'the arm fell off'}
        assert service.ok('POST', f'/leases/{lost_id}/fault', broken.token, fault)['state'] == 'kept'
        cell.beat()
        broken.beat()
        asked = service.ask('POST', f'/submissions/{waiting}/lease', eve)
        assert asked.status_code == 202  # no cell is wasted on it, and its submitter is told why
        assert asked.json()['note'] == service.ok('GET', f'/submissions/{waiting}', eve)['reason'] != ''
        service.run_all(other, eve, cell, itertools.repeat(Outcome.SUCCESS))
        service.clock.pass_(10 * service.platform.config.lease_s)
        service.platform.sweep()  # time does not run against who waits
        assert service.ok('GET', f'/submissions/{waiting}', eve)['jobs'] == {'running': 2}
        admin, clock = service.admin, service.clock
        if not restarts:
            goes_on_once_repaired(service, victim, whole, waiting, eve)
    if restarts:
        with make_service(tmp_path, admin=admin, clock=clock) as service:
            goes_on_once_repaired(service, victim, whole, waiting, eve)


def begun_on(service: Service, cells: list[WorkerMoves], submission: str, token: str) -> tuple[WorkerMoves, str]:
    lease = service.lease(submission, token)
    assert lease is not None
    cell = next(c for c in cells if lease['worker_address'].endswith(c.name))
    cell.job(lease['lease_id'])
    return cell, lease['lease_id']


def goes_on_once_repaired(service: Service, victim: Path, whole: bytes, submission: str, token: str) -> None:
    log._logs.clear()
    victim.write_bytes(whole)
    service.platform.sweep()
    told = service.ok('GET', f'/submissions/{submission}', token)
    assert (told['jobs'], told['reason']) == ({'done': 1, 'queued': 1}, '')  # the broken rig's is tried once more
    assert not list((service.platform.config.folder / 'spool').iterdir())
    cell = service.worker('cell-4')
    service.run_all(submission, token, cell, itertools.repeat(Outcome.SUCCESS))
    assert service.ok('GET', f'/submissions/{submission}', token)['jobs'] == {'done': 2}
    rows = service.ok('GET', '/benchmarks/first/leaderboard', service.admin)['rows']
    assert {r['policy']: r['values']['success']['value'] for r in rows} == {'ana/mine': 1.0, 'eve/other': 1.0}


def test_a_damaged_benchmark_does_not_keep_leases_of_others_from_ending(tmp_path: Path) -> None:
    """Two leases run out in one sweep, the first of them on the damaged benchmark."""
    with make_service(tmp_path) as service:
        two_benchmarks(service)
        eve = service.token('eve', 'submitter')
        ids = {}
        for name, cell in (('first', service.worker('cell-2')), ('second', service.worker('cell-3'))):
            submission = service.submit(eve, name='other', benchmark=name)
            lease = service.lease(submission, eve)
            assert lease is not None
            ids[name] = submission, lease['lease_id']
            cell.job(lease['lease_id'])
        flip(sorted((tmp_path / 'stores' / 'first' / 'log').iterdir())[1])
        service.clock.pass_(10 * service.platform.config.longest_episode_s)
        service.platform.sweep()
        with service.platform.database.read() as session:
            states = {name: session.get_one(Lease, lease_id).state for name, (_, lease_id) in ids.items()}
        assert states == {'first': 'kept', 'second': 'failed'}
        assert {c['state'] for c in service.ok('GET', '/workers', service.admin)} == {'lost'}


def test_a_request_that_the_database_does_not_take_is_no_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage every lease is renewed: a submitter who could feign one would never run out of time."""
    with make_service(tmp_path) as service:

        def refuses() -> None:
            raise DataError('SELECT', {}, Exception('invalid byte sequence'))

        monkeypatch.setattr(service.platform.database, 'read', refuses)
        refused = service.ask('GET', '/benchmarks', service.admin)
        assert (refused.status_code, refused.json()['error']['code']) == (500, 'internal')
        assert not service.platform.outage.begun


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
