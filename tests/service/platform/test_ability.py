"""What no cell can run is refused when it is declared; what slips through ends with its reason, and no cell with it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.service.platform.desk import PLAN as CELL_PLAN
from tests.service.platform.desk import Desk, job, token
from tests.service.platform.service import PLAN, Service, WorkerMoves, registration

from robotrials.errors import StoreError
from robotrials.record import read_store
from robotrials.service.platform.client import WorkerRefused, act_in_episode
from robotrials.service.platform.link import spec_to_map
from robotrials.service.platform.worker_episode import CellOptions, NotBegun
from robotrials.testing.policy import PointMassHost, SeekPolicy

SPEC = spec_to_map(dataclasses.replace(PointMassHost().spec, tasks=('reach', 'place')))
WRONG_TASK = PLAN.replace('"reach"', '"raech"')
WRONG_CONDITION = PLAN.replace('[analysis]', '[[conditions]]\nname = "dirft"\n\n[analysis]')


def register(service: Service, name: str = 'cell-1', spec: Any = SPEC) -> Any:
    body = registration(name, spec=spec)
    return service.ask('POST', '/workers', service.token('cells', 'worker'), body)


@pytest.mark.parametrize(('plan', 'near'), [(WRONG_TASK, 'reach'), (WRONG_CONDITION, 'drift')])
def test_a_benchmark_with_an_unknown_task_or_condition_is_refused_when_it_is_declared(
    service: Service, plan: str, near: str
) -> None:
    assert register(service).status_code == 200
    body = {'name': 'wrong', 'plan': plan}
    answer = service.ask('POST', '/benchmarks', service.admin, body)
    assert answer.status_code == 422
    error = answer.json()['error']
    assert error['code'] == 'not_runnable'
    assert 'cell-1' in error['message']
    assert f"did you mean '{near}'" in error['message']
    assert service.ask('GET', '/benchmarks/wrong', service.admin).status_code == 404
    assert service.ask('POST', '/benchmarks', service.admin, {**body, 'unchecked': True}).status_code == 201


def test_a_condition_that_needs_cameras_is_refused_where_no_cell_has_any(service: Service) -> None:
    plan = PLAN.replace('[analysis]', '[[conditions]]\nname = "sensor_noise"\nseverity = 1.0\n\n[analysis]')
    register(service)
    answer = service.ask('POST', '/benchmarks', service.admin, {'name': 'seen', 'plan': plan})
    assert answer.status_code == 422, answer.text
    register(service, 'cell-2', spec_to_map(PointMassHost(camera_px=8).spec))
    assert service.ask('POST', '/benchmarks', service.admin, {'name': 'seen', 'plan': plan}).status_code == 201


def test_one_cell_that_can_is_enough_and_silent_cells_refuse_nothing(service: Service) -> None:
    assert register(service, 'silent', None).status_code == 200
    service.benchmark('early', WRONG_TASK)
    register(service, 'narrow')
    able = spec_to_map(dataclasses.replace(PointMassHost().spec, tasks=('raech',)))
    register(service, 'able', able)
    service.benchmark('late', WRONG_TASK)


def test_a_cell_of_another_host_has_no_say(service: Service) -> None:
    body = registration('arm', host='tabletop', spec=SPEC)
    service.ok('POST', '/workers', service.token('cells', 'worker'), body)
    service.benchmark('reach', WRONG_TASK)


@pytest.mark.parametrize('spec', [{}, {'name': 'x'}, {**SPEC, 'control_rate_hz': 0}, {**SPEC, 'more': 1}, {'a': [[]]}])
def test_a_spec_that_is_none_is_refused(service: Service, spec: Any) -> None:
    answer = register(service, spec=spec)
    assert answer.status_code == 422
    assert answer.json()['error']['code'] == 'bad_spec'


# --- what slips through


def holder(service: Service, cells: list[WorkerMoves]) -> WorkerMoves:
    """The cell that has a lease."""
    (busy,) = [c['id'] for c in service.ok('GET', '/workers', service.admin) if c['code']]
    return next(w for w in cells if w.worker_id == busy)


def say_impossible(worker: WorkerMoves, lease_id: str) -> Any:
    worker.job(lease_id)
    body = {'kind': 'impossible', 'reason': 'no task raech'}
    settled = worker.service.ok('POST', f'/leases/{lease_id}/fault', worker.token, body)
    worker.beat()
    return settled


def test_a_job_that_one_cell_cannot_run_goes_to_another_with_no_attempt_used(each_service: Service) -> None:
    service = each_service
    service.benchmark()
    kim = service.token('kim', 'submitter')
    submission = service.submit(kim)
    cells = [service.worker('a'), service.worker('b')]
    lease = service.lease(submission, kim)
    assert lease is not None
    first = holder(service, cells)
    assert say_impossible(first, lease['lease_id'])['state'] == 'requeued'
    service.clock.pass_(1.0)
    again = service.lease(submission, kim)
    assert again is not None
    other = holder(service, cells)
    assert other is not first
    assert other.job(again['lease_id']).attempt == 0
    assert other.finish(again['lease_id'])['state'] == 'done'


@pytest.mark.parametrize('mode', ['open', 'trial'])
def test_a_submission_that_no_cell_can_run_ends_with_its_reason_and_the_cells_stay(service: Service, mode: str) -> None:
    service.benchmark(mode=mode, **({'arms': 2} if mode == 'trial' else {}))
    kim = service.token('kim', 'submitter')
    submission, _ = service.submit(kim), service.submit(kim, 'another')
    workers = [service.worker('a'), service.worker('b')]
    for _turn in range(4):
        answer = service.ask('POST', f'/submissions/{submission}/lease', kim)
        if answer.status_code == 410:
            break
        if answer.status_code == 202:  # the rotation of a trial has the other arm first
            service.ask('POST', f'/submissions/{submission}/lease', kim)
            continue
        lease_id = answer.json()['lease_id']
        say_impossible(holder(service, workers), lease_id)
        service.clock.pass_(1.0)
    told = service.ok('GET', f'/submissions/{submission}', kim)
    assert (told['state'], told['reason']) == ('cancelled', 'impossible: no task raech')
    assert told['jobs'] == {'cancelled': 2}
    assert service.ok('GET', f'/submissions/{submission}/score', kim)['note'] == 'impossible: no task raech'
    assert [c['state'] for c in service.ok('GET', '/workers', service.admin)] == ['idle', 'idle']
    service.platform.sweep()
    assert service.ok('GET', '/audit/check', service.admin)['is_whole']
    try:
        recorded = list(read_store(service.platform.config.folder / 'stores' / 'reach').episodes(attempts='all'))
    except StoreError:
        recorded = []
    assert recorded == []  # nothing was run


WRONG_OPTION = CELL_PLAN.replace('control_rate_hz', 'control_rat_hz')


@pytest.mark.parametrize(
    ('plan', 'told'),
    [
        (CELL_PLAN + "conditions = [{name = 'dirft'}]\n", "did you mean 'drift'"),
        (WRONG_OPTION, "unexpected keyword argument 'control_rat_hz'; its options are"),
        (
            CELL_PLAN + "analysis = {success = 'reconstruction'}\n",
            'keeps no calibrated RGB-D views',
        ),
    ],
)
@pytest.mark.parametrize('is_described', [True, False])
def test_a_plan_that_names_what_the_cell_lacks_is_not_the_cells_fault(plan: str, told: str, is_described: bool) -> None:
    desk = Desk()
    try:
        if is_described:
            desk.station.describe()
        begun, client = desk.run(job(plan), lambda: act_in_episode(SeekPolicy(), desk.url, token()))
        assert isinstance(begun, NotBegun)
        assert begun.is_plans
        assert told in str(begun)
        assert isinstance(client, WorkerRefused)
        assert client.is_passing  # another cell may have it, or the server says that it is over
        attempt, _ = desk.run(job(), lambda: act_in_episode(SeekPolicy(), desk.url, token(lease_id='l2')))
        assert not isinstance(attempt, NotBegun)
    finally:
        desk.close()


def test_options_of_its_own_that_a_cells_host_refuses_are_the_cells_fault_unless_it_opened_with_them() -> None:
    for own, plan, is_cells in (({'colour': 'red'}, CELL_PLAN, True), ({'noise_m': 0.0}, WRONG_OPTION, False)):
        desk = Desk(CellOptions(host='point-mass', options=own))
        try:
            desk.station.describe()
            begun, _ = desk.run(job(plan), lambda url=desk.url: act_in_episode(SeekPolicy(), url, token()))
            assert isinstance(begun, NotBegun)
            assert begun.is_plans == (not is_cells)
        finally:
            desk.close()


def test_a_cell_says_what_its_host_can_do_before_its_first_job() -> None:
    desk = Desk()
    try:
        spec = desk.station.describe()
        assert spec is not None
        assert spec.conditions == ('drift',)
    finally:
        desk.close()
