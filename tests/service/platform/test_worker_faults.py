"""What becomes of an episode when worker, client, server or network fail in the middle of it: kill -9, for real."""

import contextlib
import json
import os
import signal
import time
import urllib.request

import pytest
from tests.patience import PATIENCE_S
from tests.service.platform.lab import HASTY, ApiError, Lab, wait_for

from robotrials.record import Outcome, Store
from robotrials.record.verify import verify_store

pytestmark = pytest.mark.platform

PLAN = """
seed = 5
host = 'point-mass'
tasks = ['reach']
time_cap_s = {cap}
episodes_per_cell = {n}
watchdog = {{policy_s = 100.0}}

[analysis]
resamples = 200
"""
SLOW = ('--option', 'speed_m_s=0.01', '--option', 'think_s=0.05')  # never there in time
FAST = ('--option', 'speed_m_s=2.0')
STEPS_BEFORE = 8
LONG_S = 600.0  # no episode under SLOW is over before the test has done with it


@pytest.fixture(scope='module')
def lab(tmp_path_factory):
    made = Lab(tmp_path_factory.mktemp('lab'), settings=HASTY)
    try:
        made.serve()
        yield made
    finally:
        made.close()


@pytest.fixture
def benchmark(lab, request):
    """A benchmark of the test's own; its processes end with it, and the server is up before and after."""
    name = f'{request.node.originalname.removeprefix("test_")[:50]}-{abs(hash(request.node.name)) % 1000}'
    yield name
    release(lab)
    for other in [p for p in lab.processes if p != 'server']:
        lab.kill(other)
    if 'server' not in lab.processes:
        lab.serve()


def declare(lab, name, *, cap=4.0, n=1):
    lab.benchmark(name, PLAN.format(cap=cap, n=n))


def held_client(lab, benchmark):
    """A client whose episode is held in its middle until `release`, and is a time-out from there on."""
    (lab.folder / 'hold').touch()
    options = [f'folder={lab.folder}', f'after={STEPS_BEFORE}', 'speed_m_s=0.01']
    given = tuple(word for option in options for word in ('--option', option))
    lab.client('seek', benchmark, policy='tests.run.waiting:WaitingPolicy', options=given)


def release(lab):
    (lab.folder / 'hold').unlink(missing_ok=True)


def under_way(lab, *cells):
    """The cell that has come to the middle of an episode."""

    def found():
        busy = (c for n, c in lab.cells().items() if n in cells and c['state'] == 'busy')
        return next((c for c in busy if c['step'] >= STEPS_BEFORE), None)

    return wait_for(found, why=f'an episode is under way on {cells}')


def finished(lab, benchmark):
    """The submission of a benchmark once it is finished."""

    def found():
        return next((s for s in lab.submissions() if s['benchmark'] == benchmark and s['state'] == 'finished'), None)

    return wait_for(found, why=f'{benchmark} is finished')


def attempts(lab, benchmark):
    path = lab.server_folder / 'stores' / benchmark
    assert verify_store(path).is_clean  # the server runs on, and may have drafts
    return sorted(Store.open(path).episodes(attempts='all'), key=lambda e: e.attempt)


def test_a_killed_worker_leaves_an_invalid_attempt_and_the_job_runs_once_more_elsewhere(lab, benchmark):
    declare(lab, benchmark)
    lab.worker('one', host='point-mass')
    lab.worker('two', host='point-mass')
    held_client(lab, benchmark)
    first = under_way(lab, 'one', 'two')['name']
    lab.kill(first)
    release(lab)
    assert finished(lab, benchmark)['jobs'] == {'done': 1}
    lost, kept = attempts(lab, benchmark)
    assert (lost.outcome, kept.outcome) == (Outcome.INVALID, Outcome.TIMEOUT)
    assert lost.reason.startswith('worker death')
    assert kept.operator == ({'one', 'two'} - {first}).pop()


@pytest.mark.parametrize(
    ('right', 'wrong', 'told'),
    [
        ('[analysis]', "[[conditions]]\nname = 'dirft'\n\n[analysis]", "did you mean 'drift'"),
        ("'point-mass'", "{use = 'point-mass', options = {nois_m = 0.1}}", "unexpected keyword argument 'nois_m'"),
    ],
    ids=['condition', 'host option'],
)
def test_a_benchmark_that_no_cell_can_run_ends_with_its_reason_and_the_cell_goes_on(lab, benchmark, right, wrong, told):
    lab.worker('one', host='point-mass')
    wait_for(lambda: 'one' in lab.cells(), why='the cell is registered')
    plan = PLAN.format(cap=4.0, n=3).replace(right, wrong)
    if 'conditions' in wrong:  # which options a host takes only the cell knows
        with pytest.raises(ApiError, match=told):
            lab.benchmark(benchmark, plan)
    lab.benchmark(benchmark, plan, unchecked=True)
    lab.client('lost', benchmark, policy='seek', options=FAST)
    wait_for(lambda: lab.finished('lost', code=1), why='the client is told that it is over, without a score')
    assert told in lab.output('lost')['note']
    wait_for(lambda: lab.cells()['one']['state'] == 'idle', why='the cell is in service')
    lab.benchmark(f'{benchmark}-2', PLAN.format(cap=4.0, n=1))
    lab.client('seek', f'{benchmark}-2', policy='seek', options=FAST)
    assert finished(lab, f'{benchmark}-2')['jobs'] == {'done': 1}


def test_a_worker_that_hangs_loses_its_lease_and_what_it_sends_later_does_not_count(lab, benchmark):
    declare(lab, benchmark)
    lab.worker('one', host='point-mass')
    held_client(lab, benchmark)
    under_way(lab, 'one')
    os.kill(lab.processes['one'].pid, signal.SIGSTOP)  # as if the network were gone: nothing in or out
    release(lab)
    wait_for(lambda: lab.cells()['one']['state'] == 'lost', why='the worker counts as lost')
    lab.worker('two', host='point-mass')
    assert finished(lab, benchmark)['jobs'] == {'done': 1}
    os.kill(lab.processes['one'].pid, signal.SIGCONT)
    wait_for(lambda: lab.cells()['one']['state'] == 'idle', why='the worker is back in service')
    assert [e.outcome for e in attempts(lab, benchmark)] == [Outcome.INVALID, Outcome.TIMEOUT]
    lab.check()


def test_the_only_worker_gets_its_lost_job_again_after_it_restarts(lab, benchmark):
    declare(lab, benchmark)
    lab.worker('one', host='point-mass')
    held_client(lab, benchmark)
    under_way(lab, 'one')
    lab.kill('one')
    release(lab)
    lab.worker('one', host='point-mass')
    assert finished(lab, benchmark)['jobs'] == {'done': 1}
    assert [(e.outcome, e.operator) for e in attempts(lab, benchmark)] == [
        (Outcome.INVALID, 'one'), (Outcome.TIMEOUT, 'one'),
    ]  # fmt: skip


def test_a_killed_client_is_a_fault_of_its_policy_and_the_cell_is_free_at_once(lab, benchmark):
    declare(lab, benchmark, n=2)
    lab.worker('one', host='point-mass')
    held_client(lab, benchmark)
    under_way(lab, 'one')
    lab.kill('seek')
    release(lab)
    wait_for(lambda: lab.cells()['one']['state'] == 'idle', seconds=60, why='the cell is free before the watchdog ends')
    held_client(lab, benchmark)  # the same command: it goes on
    release(lab)
    assert finished(lab, benchmark)['jobs'] == {'done': 2}
    found = attempts(lab, benchmark)
    assert [e.attempt for e in found] == [0, 0]
    failed = next(e for e in found if e.outcome is Outcome.FAILURE)
    assert failed.reason.startswith('policy crash')


def test_a_server_that_is_killed_in_mid_episode_loses_nothing(lab, benchmark):
    declare(lab, benchmark, n=2)
    lab.worker('one', host='point-mass')
    held_client(lab, benchmark)
    under_way(lab, 'one')
    lab.kill('server')
    release(lab)
    lab.serve()
    assert finished(lab, benchmark)['jobs'] == {'done': 2}
    assert [(e.outcome, e.attempt) for e in attempts(lab, benchmark)] == [(Outcome.TIMEOUT, 0)] * 2
    lab.check()


def test_a_finished_episode_survives_the_death_of_server_and_worker(lab, benchmark):
    declare(lab, benchmark)
    lab.worker('one', host='point-mass')
    held_client(lab, benchmark)
    under_way(lab, 'one')
    lab.kill('server')
    release(lab)
    waiting = lab.folder / 'worker-one' / 'waiting'
    wait_for(lambda: list(waiting.glob('*.bundle')), why='the result is in the spool')
    lab.kill('one')
    earlier = len(lab.log('one'))
    lab.worker('one', host='point-mass')
    wait_for(lambda: 'the upload waits' in lab.log('one')[earlier:], why='the worker is up again')
    lab.serve()
    assert finished(lab, benchmark)['jobs'] == {'done': 1}
    assert [(e.outcome, e.attempt) for e in attempts(lab, benchmark)] == [(Outcome.TIMEOUT, 0)]
    wait_for(lambda: not list(waiting.glob('*.bundle')), why='the spool is empty')


@pytest.mark.parametrize('way', ['server', 'cell'])
def test_the_emergency_stop_is_on_record_and_the_cell_stays_out_until_resumed(lab, benchmark, way):
    declare(lab, benchmark, cap=LONG_S, n=2)
    lab.worker('one', host='point-mass')
    lab.client('seek', benchmark, policy='seek', options=SLOW)
    cell = under_way(lab, 'one')
    command = _commander(lab, cell, way)
    command('stop')
    wait_for(lambda: lab.cells()['one']['state'] == 'out_of_service', why='the cell is out of service')
    wait_for(lambda: _recorded(lab, benchmark), why='the stopped episode is on record')
    [stopped] = attempts(lab, benchmark)
    assert (stopped.outcome, stopped.reason) == (Outcome.SAFETY_STOP, 'emergency stop')
    time.sleep(2.0)  # the client asks all the while
    assert len(attempts(lab, benchmark)) == 1
    lab.kill('seek')
    command('resume')
    lab.client('again', benchmark, policy='seek', options=FAST)  # other options: a submission of its own
    assert finished(lab, benchmark)['jobs'] == {'done': 2}


def _commander(lab, cell, way):
    def by_server(word):
        lab.api().post(f'/workers/{cell["id"]}/{word}')

    def at_cell(word):
        address = lab.log('one').rsplit('ws://', 1)[1].split('/')[0]
        headers = {'Authorization': 'Bearer press'}
        with urllib.request.urlopen(
            urllib.request.Request(f'http://{address}/{word}', method='POST', headers=headers), timeout=PATIENCE_S
        ) as answer:
            json.load(answer)

    return by_server if way == 'server' else at_cell


def _recorded(lab, benchmark):
    path = lab.server_folder / 'stores' / benchmark
    with contextlib.suppress(Exception):
        return list(Store.open(path).episodes(attempts='all'))
    return []


def test_a_worker_that_is_told_to_leave_finishes_its_episode_first(lab, benchmark):
    declare(lab, benchmark)
    lab.worker('one', host='point-mass')
    held_client(lab, benchmark)
    under_way(lab, 'one')
    leaving, earlier = lab.processes.pop('one'), len(lab.log('one'))
    leaving.terminate()
    wait_for(lambda: 'draining' in lab.log('one')[earlier:], why='the worker heard that it should leave')
    release(lab)
    assert leaving.wait(PATIENCE_S) == 0
    assert [(e.outcome, e.attempt) for e in attempts(lab, benchmark)] == [(Outcome.TIMEOUT, 0)]


def test_the_platform_dials_a_policy_server_on_behalf_of_a_submission(lab, benchmark):
    import numpy as np
    from tests.servers import OpenPiServer

    from robotrials.service.platform.client import Submitter

    declare(lab, benchmark, n=2)
    lab.worker('one', host='point-mass')

    def infer(question):
        gap = question['state'][2:4] - question['state'][:2]
        return {'actions': np.array([[*np.clip(gap, -0.05, 0.05), 0.0]])}

    mapping = {
        'observation': {'state': {'state': [0, 4]}},
        'action': {'convention': {'control_mode': 'se3', 'target': 'delta', 'frame': 'world'}, 'control_rate_hz': 20.0},
    }
    with (
        OpenPiServer(infer) as server,
        contextlib.closing(Submitter(lab.url, lab.token('kim', 'submitter', 'reader'))) as platform,
    ):
        platform.submit(benchmark, name='dialled', dial={'use': 'openpi', 'options': {'url': server.url, **mapping}})
        assert finished(lab, benchmark)['jobs'] == {'done': 2}
    found = attempts(lab, benchmark)
    assert {e.outcome for e in found} == {Outcome.SUCCESS}
