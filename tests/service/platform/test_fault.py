"""What goes wrong, and the answer that is defined for it: nothing lost, nothing counted twice."""

from __future__ import annotations

import errno
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError
from tests.patience import PATIENCE_S
from tests.service.platform.service import PLAN, Service, TestClock, WorkerMoves, make_service, registration

from robotrials.record import Episode, Outcome, Store, read_store
from robotrials.service.platform import database as fault_point
from robotrials.service.platform.backup import check_offline
from robotrials.service.platform.database import Outage, disk_full
from robotrials.service.platform.table import LateResult, Lease

SUCCESSES = itertools.repeat(Outcome.SUCCESS)


class KilledError(Exception):
    """Stands for the end of the process at a fault point."""


@pytest.fixture
def dies() -> Iterator[Any]:
    """Let the server die at a point, once."""

    def at(name: str) -> None:
        def hook(passed: str) -> None:
            if passed == name:
                fault_point.set_hook(None)
                raise KilledError(name)

        fault_point.set_hook(hook)

    yield at
    fault_point.set_hook(None)


def recorded(service: Service) -> list[Episode]:
    path = service.platform.config.folder / 'stores' / 'reach'
    return list(read_store(path).episodes(attempts='all')) if path.exists() else []


def one_running(service: Service) -> tuple[str, str, WorkerMoves, str]:
    """A submission with one episode under way: its id, its submitter, the worker, the lease."""
    service.benchmark()
    kim = service.token('kim', 'submitter')
    submission, worker = service.submit(kim), service.worker()
    lease = service.lease(submission, kim)
    assert lease is not None
    return submission, kim, worker, lease['lease_id']


# --- workers


def test_a_lease_without_heartbeats_becomes_invalid_and_is_requeued_once_elsewhere(each_service: Service) -> None:
    service = each_service
    submission, kim, worker, lease_id = one_running(service)
    other = service.worker('cell-2')
    job = worker.job(lease_id)
    service.clock.pass_(service.platform.config.lease_s + 1)
    other.beat()
    service.platform.sweep()
    (episode,) = recorded(service)
    assert (episode.outcome, episode.attempt) == (Outcome.INVALID, 0)
    assert 'no heartbeat in time' in episode.reason
    assert service.ok('GET', f'/submissions/{submission}', kim)['jobs'] == {'queued': 2}
    worker.beat()  # it is back, and idle; but another cell is there
    again = service.lease(submission, kim)
    assert again is not None
    assert again['worker_address'].endswith('cell-2')
    assert other.job(again['lease_id']).attempt == 1
    late = worker.upload(lease_id, worker.bundle(job))
    assert (late.status_code, late.json()['error']['code']) == (410, 'lease_over')
    assert other.upload(again['lease_id'], other.bundle(other.job(again['lease_id']))).status_code == 200
    assert Counter(e.outcome for e in recorded(service)) == {Outcome.INVALID: 1, Outcome.SUCCESS: 1}
    with service.platform.database.read() as session:
        (aside,) = session.scalars(select(LateResult))
        assert (service.platform.config.folder / 'late' / aside.file).is_file()


def test_a_job_that_breaks_twice_is_invalid_for_good(service: Service) -> None:
    submission, kim, worker, lease_id = one_running(service)
    for attempt in range(2):
        worker.job(lease_id)
        body = {'kind': 'host crash', 'reason': 'the arm stopped'}
        settled = service.ok('POST', f'/leases/{lease_id}/fault', worker.token, body)
        assert settled['state'] == ('requeued' if attempt == 0 else 'invalid')
        service.clock.pass_(1.0)
        worker.beat()
        if attempt == 0:
            lease = service.lease(submission, kim)
            assert lease is not None
            lease_id = lease['lease_id']
    assert service.ok('GET', f'/submissions/{submission}', kim)['jobs'] == {'invalid': 1, 'queued': 1}
    assert [e.reason for e in recorded(service)] == ['host crash: the arm stopped'] * 2
    service.run_all(submission, kim, worker, SUCCESSES)
    assert service.ok('GET', f'/submissions/{submission}', kim)['state'] == 'finished'


def test_with_one_worker_it_gets_the_job_back_only_after_it_said_that_it_is_idle(service: Service) -> None:
    submission, kim, worker, lease_id = one_running(service)
    worker.job(lease_id)
    service.clock.pass_(1.0)
    service.ok('POST', f'/leases/{lease_id}/fault', worker.token, {'reason': 'a cable'})
    assert service.lease(submission, kim) is None
    service.clock.pass_(1.0)
    worker.beat('busy')  # at its checks
    assert service.lease(submission, kim) is None
    worker.beat('idle')
    assert service.lease(submission, kim) is not None


def test_heartbeats_keep_a_lease_and_a_hang_with_heartbeats_ends(service: Service) -> None:
    _, _, worker, lease_id = one_running(service)
    worker.job(lease_id)
    for _ in range(20):
        service.clock.pass_(10.0)
        assert worker.beat('busy', lease_id, step=3)['leases'] == [lease_id]
        service.platform.sweep()
    assert recorded(service) == []
    for _ in range(170):
        service.clock.pass_(25.0)
        worker.beat('busy', lease_id)
    service.platform.sweep()
    (episode,) = recorded(service)  # the cell was there all the time: the policy stalled
    assert (episode.outcome, episode.reason) == (
        Outcome.FAILURE, 'policy late: the episode was not over after 3600 s',
    )  # fmt: skip


def test_a_client_that_does_not_come_to_its_cell_has_failed(service: Service) -> None:
    """Or else a submitter would wait for the cell that suits."""
    submission, kim, worker, _ = one_running(service)
    service.clock.pass_(service.platform.config.claim_s + 1)
    worker.beat()
    service.platform.sweep()
    (episode,) = recorded(service)
    assert (episode.outcome, episode.reason) == (
        Outcome.FAILURE, 'policy withdrawn: nobody came to its cell in time',
    )  # fmt: skip
    assert service.ok('GET', f'/submissions/{submission}', kim)['jobs'] == {'done': 1, 'queued': 1}


@pytest.mark.parametrize('state', ['out_of_service', 'draining', 'turned away', 'silent'])
def test_a_lease_that_its_cell_could_not_take_up_uses_no_attempt(service: Service, state: str) -> None:
    submission, kim, worker, lease_id = one_running(service)
    if state == 'turned away':
        body = {'kind': 'turned away', 'reason': 'an episode is under way here'}
        assert service.ok('POST', f'/leases/{lease_id}/fault', worker.token, body)['state'] == 'requeued'
    elif state != 'silent':
        worker.beat(state)
    service.clock.pass_(service.platform.config.lost_s + 1)
    if state not in ('turned away', 'silent'):
        worker.beat(state)
    service.platform.sweep()
    assert recorded(service) == []
    assert service.ask('GET', f'/leases/{lease_id}/job', worker.token).status_code == 410
    worker.beat()
    lease = service.lease(submission, kim)
    assert lease is not None
    assert worker.job(lease['lease_id']).attempt == 0


def test_a_worker_that_registers_again_voids_its_lease(service: Service) -> None:
    submission, kim, worker, lease_id = one_running(service)
    worker.job(lease_id)
    service.clock.pass_(1.0)
    again = service.worker(worker.name, worker.token)
    assert again.worker_id == worker.worker_id
    assert again.secret != worker.secret
    assert [e.reason for e in recorded(service)] == ['worker death: its worker started anew']
    assert again.beat('busy', lease_id)['leases'] == []
    assert service.ok('GET', f'/submissions/{submission}', kim)['jobs'] == {'queued': 2}


def test_an_episode_in_the_spool_of_a_worker_that_restarts_still_counts(service: Service) -> None:
    _, _, worker, lease_id = one_running(service)
    job = worker.job(lease_id)
    service.clock.pass_(1.0)
    service.ok('POST', '/workers', worker.token, registration(worker.name))
    assert worker.beat('busy', lease_id)['leases'] == [lease_id]  # it speaks of it: it waits to be sent
    assert worker.upload(lease_id, worker.bundle(job)).json()['state'] == 'done'
    assert [e.outcome for e in recorded(service)] == [Outcome.SUCCESS]


def test_a_second_token_does_not_take_a_running_episode_back(service: Service) -> None:
    """Asked twice before it begins, a lease has two tokens; a client may show the other one while it loses."""
    submission, kim, worker, lease_id = one_running(service)
    worker.job(lease_id)
    body = {'kind': 'turned away', 'reason': 'an episode is under way here'}
    refused = service.ask('POST', f'/leases/{lease_id}/fault', worker.token, body)
    assert (refused.status_code, refused.json()['error']['code']) == (410, 'lease_over')
    assert service.ok('GET', f'/submissions/{submission}', kim)['jobs'] == {'running': 1, 'queued': 1}


def test_what_a_policy_did_is_never_taken_for_a_broken_rig(service: Service) -> None:
    _, _, worker, lease_id = one_running(service)
    job = worker.job(lease_id)
    for reason in ('policy silent: no answer', 'policy endpoint: the connection failed'):
        data = worker.bundle(job, Outcome.INVALID, items_placed=None, reason=reason)
        assert worker.upload(lease_id, data).json()['error']['code'] == 'wrong_outcome'
    body = {'kind': 'policy hang', 'reason': 'a call into the policy never came back'}
    settled = service.ok('POST', f'/leases/{lease_id}/fault', worker.token, body)
    assert settled == {'state': 'done', 'outcome': 'failure'}


@pytest.mark.parametrize('fault', ['policy_crash', 'policy_hang', 'policy_late', 'policy_answer'])
def test_no_benchmark_excuses_what_a_policy_does(service: Service, fault: str) -> None:
    plan = PLAN + f"\n[faults]\n{fault} = 'invalid'\n"
    refused = service.ask('POST', '/benchmarks', service.admin, {'name': 'soft', 'plan': plan})
    assert (refused.status_code, refused.json()['error']['code']) == (422, 'bad_plan')
    assert fault in refused.json()['error']['message']


def test_the_thinking_budget_is_announced_and_fits_into_a_lease(service: Service) -> None:
    made = service.benchmark(plan=PLAN + '\n[watchdog]\npolicy_s = 20.0\nthinking_s = 300.0\n')
    assert (made['answer_s'], made['thinking_s']) == (20.0, 300.0)
    assert service.benchmark('other')['thinking_s'] == 1800.0
    plan = PLAN + '\n[watchdog]\nthinking_s = 3600.0\n'
    refused = service.ask('POST', '/benchmarks', service.admin, {'name': 'long', 'plan': plan})
    assert 'longest_episode_s' in refused.json()['error']['message']


def test_an_operator_voids_a_whole_submission_for_everyone_to_see(service: Service) -> None:
    submission, kim, worker, lease_id = one_running(service)
    worker.job(lease_id)
    operator = service.token('olga', 'operator')
    code = worker.job(lease_id).code
    body = {'code': code, 'why': 'the arm was not calibrated'}
    told = service.ok('POST', '/benchmarks/reach/void', operator, body)
    assert told['reason'] == 'voided by olga: the arm was not calibrated'
    assert service.ok('GET', f'/submissions/{submission}', kim)['state'] == 'void'
    assert service.ask('POST', f'/submissions/{submission}/lease', kim).status_code == 410
    assert service.ask('POST', '/benchmarks/reach/void', operator, body).status_code == 409
    assert service.ask('POST', '/benchmarks/reach/void', kim, body).status_code == 403
    actions = [e['action'] for e in service.ok('GET', '/audit?limit=1000', service.admin)]
    assert 'submission.void' in actions
    spec = service.client.get('/api/v1/openapi.json').json()
    assert [path for path in spec['paths'] if 'void' in path] == ['/api/v1/benchmarks/{name}/void']  # no episode's


def test_work_to_dial_that_a_worker_cannot_take_up_waits_again_a_few_times(service: Service) -> None:
    submission, kim, worker, lease_id = one_running(service)
    states = []
    for _ in range(7):
        worker.job(lease_id)
        body = {'kind': 'not begun', 'reason': 'the worker was taken meanwhile'}
        states.append(service.ok('POST', f'/leases/{lease_id}/fault', worker.token, body)['state'])
        service.clock.pass_(1.0)
        worker.beat()
        again = service.lease(submission, kim)
        assert again is not None
        lease_id = again['lease_id']
    with service.platform.database.read() as session:
        attempts = [lease.attempt for lease in session.scalars(select(Lease).order_by(Lease.granted_at))]
    assert attempts[:6] == [0] * 6  # five were given back, the sixth used an attempt
    assert states[:5] == ['requeued'] * 5
    assert [e.attempt for e in recorded(service)] == [0, 1]


def test_an_emergency_stop_ends_the_episode_and_tells_the_worker(service: Service) -> None:
    _, _, worker, lease_id = one_running(service)
    worker.job(lease_id)
    operator = service.token('olga', 'operator')
    service.ok('POST', f'/workers/{worker.worker_id}/stop', operator)
    answer = worker.beat('busy', lease_id)
    assert (answer['leases'], answer['commands']) == ([lease_id], ['stop'])
    stopped = worker.bundle(worker.job(lease_id), Outcome.SAFETY_STOP, reason='emergency stop')
    assert worker.upload(lease_id, stopped).json() == {'state': 'done', 'outcome': 'safety_stop'}
    assert [e.reason for e in recorded(service)] == ['emergency stop']


def test_a_silent_worker_is_lost_and_gets_nothing(service: Service) -> None:
    service.benchmark()
    kim = service.token('kim', 'submitter')
    submission, worker = service.submit(kim), service.worker()
    service.clock.pass_(service.platform.config.lost_s + 1)
    service.platform.sweep()
    assert service.lease(submission, kim) is None
    operator = service.token('olga', 'operator')
    assert service.ok('GET', '/workers', operator)[0]['state'] == 'lost'
    worker.beat()
    assert service.lease(submission, kim) is not None


# --- uploads


def test_the_same_upload_again_counts_once_and_another_is_refused(each_service: Service) -> None:
    service = each_service
    _, _, worker, lease_id = one_running(service)
    job = worker.job(lease_id)
    data = worker.bundle(job)
    answers = [worker.upload(lease_id, data) for _ in range(3)]
    assert [a.status_code for a in answers] == [200, 200, 200]
    assert len({a.text for a in answers}) == 1
    other = worker.upload(lease_id, worker.bundle(job, Outcome.FAILURE))
    assert (other.status_code, other.json()['error']['code']) == (409, 'other_content')
    assert [e.outcome for e in recorded(service)] == [Outcome.SUCCESS]


def test_an_episode_that_was_not_planned_is_refused(service: Service) -> None:
    _, _, worker, lease_id = one_running(service)
    job = worker.job(lease_id)
    unplanned = [{'seed': 5}, {'policy': 'arm-0'}, {'attempt': 1}, {'task': 'other'}, {'episode_id': '0' * 24}]
    for changes in unplanned:
        refused = worker.upload(lease_id, worker.bundle(job, **changes))
        assert (refused.status_code, refused.json()['error']['code']) == (422, 'wrong_episode')
    assert recorded(service) == []


def test_rubbish_is_refused_and_the_lease_holds(service: Service) -> None:
    _, _, worker, lease_id = one_running(service)
    job = worker.job(lease_id)
    for rubbish in (b'', b'\x00' * 100, b'{"version": 1}', worker.bundle(job)[:-7]):
        refused = worker.upload(lease_id, rubbish)
        assert (refused.status_code, refused.json()['error']['code']) == (422, 'bad_bundle')
    assert worker.upload(lease_id, worker.bundle(job)).status_code == 200


def test_an_invalid_upload_is_an_infrastructure_fault(service: Service) -> None:
    submission, kim, worker, lease_id = one_running(service)
    data = worker.bundle(worker.job(lease_id), Outcome.INVALID, items_placed=None, reason='host hang: no return')
    assert worker.upload(lease_id, data).json() == {'state': 'requeued', 'outcome': 'invalid'}
    assert service.ok('GET', f'/submissions/{submission}', kim)['jobs'] == {'queued': 2}


def test_a_full_disk_is_told_and_nothing_is_changed(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, worker, lease_id = one_running(service)
    data = worker.bundle(worker.job(lease_id))
    object.__setattr__(service.platform.config, 'least_free_bytes', 1 << 60)
    refused = worker.upload(lease_id, data)
    assert (refused.status_code, refused.json()['error']['code']) == (507, 'disk_full')
    assert int(refused.headers['Retry-After']) > 0
    object.__setattr__(service.platform.config, 'least_free_bytes', 1)

    with monkeypatch.context() as patched:
        patched.setattr('robotrials.service.platform.lease.write_durably', raise_full)
        assert worker.upload(lease_id, data).status_code == 507
    with monkeypatch.context() as patched:  # accepted, and then the store could not take it
        patched.setattr(Store, 'append', raise_full)
        assert worker.upload(lease_id, data).status_code == 507
    assert recorded(service) == []
    assert worker.upload(lease_id, data).json()['state'] == 'done'
    assert len(recorded(service)) == 1


def test_what_a_full_disk_interrupted_is_taken_up_without_the_worker(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission, kim, worker, lease_id = one_running(service)
    data = worker.bundle(worker.job(lease_id))

    with monkeypatch.context() as patched:
        patched.setattr(Store, 'append', raise_full)
        assert worker.upload(lease_id, data).status_code == 507
    service.clock.pass_(100.0)  # past the lease: it is accepted, so it cannot expire
    service.platform.sweep()
    assert [e.outcome for e in recorded(service)] == [Outcome.SUCCESS]
    assert service.ok('GET', f'/submissions/{submission}', kim)['jobs'] == {'done': 1, 'queued': 1}


def test_a_result_that_the_store_refuses_makes_the_attempt_invalid(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from robotrials.errors import StoreError

    _, _, worker, lease_id = one_running(service)
    original = Store.append

    def picky(self: Store, episodes: Any, **more: Any) -> None:
        if any(e.is_valid for e in episodes):
            raise StoreError('other content under this name')
        original(self, episodes, **more)

    monkeypatch.setattr(Store, 'append', picky)
    settled = worker.upload(lease_id, worker.bundle(worker.job(lease_id)))
    assert settled.json() == {'state': 'requeued', 'outcome': 'invalid'}
    assert len(list((service.platform.config.folder / 'late').iterdir())) == 1


def test_no_lease_runs_out_while_the_disk_is_full_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody could renew it; nor is a policy charged for an answer that nobody could take."""
    with make_service(tmp_path, sweep_s=0.02) as service:
        platform, full = service.platform, True
        _, _, worker, lease_id = one_running(service)
        data = worker.bundle(worker.job(lease_id))

        def check_room() -> None:
            if full:
                raise disk_full()

        monkeypatch.setattr(platform.intake, 'check_room', check_room)
        with monkeypatch.context() as patched:
            patched.setattr('robotrials.service.platform.lease.write_durably', raise_full)
            assert [worker.upload(lease_id, data).status_code for _ in range(3)] == [507] * 3
        service.clock.pass_(10 * platform.config.longest_episode_s)
        platform._stop.wait(0.3)
        assert recorded(service) == []
        full = False
        wait_until(lambda: not platform.outage.begun)
        assert worker.beat('busy', lease_id)['leases'] == [lease_id]
        assert worker.upload(lease_id, data).json()['state'] == 'done'
        assert [e.outcome for e in recorded(service)] == [Outcome.SUCCESS]
    told = [r.message for r in caplog.records if 'disk' in r.message]
    assert told == ['the disk is full', 'the disk has room again']


def test_a_full_disk_is_not_over_with_a_sweep_that_had_begun_before(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(lambda: 0.0)
    before = outage.begun
    outage.note_full(OSError(28, 'No space left on device'))
    outage.over(before)
    assert outage.begun == {'the disk is full'}
    outage.over(outage.begun)
    assert [r.message for r in caplog.records] == ['the disk is full', 'the disk has room again']
    assert not outage.begun


def test_a_server_without_memory_says_so_and_nothing_is_changed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, worker, lease_id = one_running(service)
    data = worker.bundle(worker.job(lease_id))

    def starved(*_args: object, **_more: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr('robotrials.service.platform.lease.unpack_bundle', starved)
        refused = worker.upload(lease_id, data)
    assert (refused.status_code, refused.json()['error']['code']) == (503, 'memory')
    assert 'send it again later' in refused.json()['error']['message']
    assert recorded(service) == []
    assert worker.upload(lease_id, data).json()['state'] == 'done'


def raise_full(*_args: object, **_more: object) -> None:
    raise OSError(errno.ENOSPC, 'No space left on device')


def wait_until(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.02)


# --- the server dies


@pytest.mark.parametrize('point', ['result.spooled', 'result.accepted', 'result.stored', 'result.settled'])
def test_a_server_that_dies_while_it_takes_a_result_in_loses_and_doubles_nothing(
    tmp_path: Path, database_url: str, dies: Any, point: str
) -> None:
    clock = TestClock()
    with make_service(tmp_path / 'p', database=database_url, clock=clock) as service:
        submission, kim, worker, lease_id = one_running(service)
        data = worker.bundle(worker.job(lease_id))
        dies(point)
        assert worker.upload(lease_id, data).status_code == 500
        admin = service.admin
    with make_service(tmp_path / 'p', database=database_url, clock=clock, admin=admin) as service:
        worker.service = service
        expected = {'queued': 1, 'running': 1} if point == 'result.spooled' else {'done': 1, 'queued': 1}
        assert service.ok('GET', f'/submissions/{submission}', kim)['jobs'] == expected
        assert worker.upload(lease_id, data).json() == {'state': 'done', 'outcome': 'success'}
        assert [e.outcome for e in recorded(service)] == [Outcome.SUCCESS]
        assert list((tmp_path / 'p' / 'spool').iterdir()) == []
        worker.beat()
        service.run_all(submission, kim, worker, SUCCESSES)
        assert service.ok('GET', '/audit/check', admin)['is_whole']
        config = service.platform.config
    assert check_offline(config, tell=lambda line: None) == []


@pytest.mark.parametrize('point', ['expiry.accepted', 'expiry.stored'])
def test_a_server_that_dies_while_a_lease_expires_records_it_once(tmp_path: Path, dies: Any, point: str) -> None:
    clock = TestClock()
    with make_service(tmp_path / 'p', clock=clock) as service:
        submission, kim, worker, lease_id = one_running(service)
        worker.job(lease_id)
        clock.pass_(100.0)
        dies(point)
        with pytest.raises(KilledError):
            service.platform.sweep()
        admin = service.admin
    with make_service(tmp_path / 'p', clock=clock, admin=admin) as service:
        assert service.ok('GET', f'/submissions/{submission}', kim)['jobs'] == {'queued': 2}
        service.platform.sweep()
        assert [(e.outcome, e.attempt) for e in recorded(service)] == [(Outcome.INVALID, 0)]
        config = service.platform.config
    assert check_offline(config, tell=lambda line: None) == []


def test_a_submission_that_was_answered_or_committed_is_there_after_a_crash(tmp_path: Path, dies: Any) -> None:
    with make_service(tmp_path / 'p') as service:
        service.benchmark()
        kim = service.token('kim', 'submitter')
        dies('submission.commit')
        body = {'client_key': 'k', 'benchmark': 'reach', 'name': 'mine'}
        assert service.ask('POST', '/submissions', kim, body).status_code == 500
        admin = service.admin
    with make_service(tmp_path / 'p', admin=admin) as service:
        again = service.ask('POST', '/submissions', kim, body)
        assert again.status_code == 200
        assert again.json()['n_jobs'] == 2
        assert len(service.ok('GET', '/submissions', kim)) == 1


def test_leases_outlive_the_time_without_a_server(tmp_path: Path) -> None:
    clock = TestClock()
    with make_service(tmp_path / 'p', clock=clock) as service:
        _, _, worker, lease_id = one_running(service)
        job, admin = worker.job(lease_id), service.admin
    clock.pass_(600.0)
    with make_service(tmp_path / 'p', clock=clock, admin=admin) as service:
        worker.service = service
        service.platform.sweep()
        assert worker.beat('busy', lease_id)['leases'] == [lease_id]
        assert worker.upload(lease_id, worker.bundle(job)).status_code == 200


def test_two_servers_on_one_folder_are_refused(service: Service) -> None:
    from robotrials.errors import StoreError

    with pytest.raises(StoreError, match='another server'), make_service(service.platform.config.folder):
        pass


# --- the audit trail


@pytest.mark.parametrize('statement', ["UPDATE audit SET action = 'x'", 'DELETE FROM audit'])
def test_the_database_refuses_to_change_the_audit_trail(each_service: Service, statement: str) -> None:
    with pytest.raises(DBAPIError, match='only grows'), each_service.platform.database.write() as session:
        session.execute(text(statement))
    assert each_service.ok('GET', '/audit/check', each_service.admin)['is_whole']


def test_a_changed_or_missing_entry_is_found(service: Service) -> None:
    service.benchmark()
    engine = service.platform.database.engine
    with engine.begin() as connection:
        connection.exec_driver_sql('DROP TRIGGER audit_no_UPDATE')
        connection.exec_driver_sql("UPDATE audit SET detail = '{}' WHERE seq = 2")
    broken = service.ok('GET', '/audit/check', service.admin)
    assert (broken['is_whole'], broken['broken_at']) == (False, 2)
    with engine.begin() as connection:
        connection.exec_driver_sql('DROP TRIGGER audit_no_DELETE')
        connection.exec_driver_sql('DELETE FROM audit WHERE seq = 2')
    assert service.ok('GET', '/audit/check', service.admin)['why'] == 'entry 2 is missing'


def test_every_state_change_is_on_the_trail(service: Service) -> None:
    submission, kim, worker, _ = one_running(service)
    service.run_all(submission, kim, worker, SUCCESSES)
    actions = Counter(e['action'] for e in service.ok('GET', '/audit?limit=1000', service.admin))
    for action, n in {
        'user.add': 3, 'token.issue': 3, 'benchmark.declare': 1, 'submission.accept': 1, 'worker.register': 1,
        'lease.grant': 2, 'lease.begin': 2, 'result.accept': 2, 'job.done': 2, 'submission.finish': 1,
        'submission.open': 1,
    }.items():  # fmt: skip
        assert actions[action] == n, action
    with service.platform.database.read() as session:
        assert {lease.state for lease in session.scalars(select(Lease))} == {'done'}


# --- clocks


@pytest.mark.parametrize('jump_s', [-86_400.0, 86_400.0])
def test_a_clock_that_was_set_while_the_server_was_down_is_charged_to_nobody(tmp_path: Path, jump_s: float) -> None:
    """An honest episode is uploaded after the restart, and a cell that died is given up in its usual time."""
    with make_service(tmp_path) as service:
        submission, kim, worker, lease_id = one_running(service)
        job, admin, clock = worker.job(lease_id), service.admin, service.clock
    clock.pass_(jump_s)
    with make_service(tmp_path, admin=admin, clock=clock) as service:
        worker.service = service
        assert worker.beat('busy', lease_id)['leases'] == [lease_id]
        service.platform.sweep()
        assert worker.upload(lease_id, worker.bundle(job)).json()['state'] == 'done'
        worker.beat()
        lease = service.lease(submission, kim)
        assert lease is not None
        worker.job(lease['lease_id'])  # and now its cell dies
    clock.pass_(jump_s)
    with make_service(tmp_path, admin=admin, clock=clock) as service:
        clock.pass_(service.platform.config.lease_s + service.platform.config.lost_s)
        service.platform.sweep()
        assert [c['state'] for c in service.ok('GET', '/workers', admin)] == ['lost']
        assert service.ok('GET', f'/submissions/{submission}', kim)['jobs'] == {'done': 1, 'queued': 1}
        assert [e.outcome for e in recorded(service)] == [Outcome.SUCCESS, Outcome.INVALID]
