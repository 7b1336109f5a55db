"""Who stands on the board, on which cells, and at which level: nobody gains by leaving, cancelling or trying again."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from tests.service.platform.service import PLAN, Service, WorkerMoves, make_service

from robotrials.record import Outcome

SUCCESSES, FAILURES = itertools.repeat(Outcome.SUCCESS), itertools.repeat(Outcome.FAILURE)
TWO_TASKS = PLAN.replace('episodes_per_cell = 2', 'episodes_per_cell = 4').replace(
    '[analysis]', '[[tasks]]\nname = "hard"\nitems = 2\n\n[analysis]\nprimary = ["success"]'
)


def board(service: Service) -> dict[str, Any]:
    return service.ok('GET', '/benchmarks/reach/leaderboard', service.admin)  # type: ignore[no-any-return]


def rows(service: Service) -> dict[str, dict[str, Any]]:
    return {row['policy']: row for row in board(service)['rows']}


def play(service: Service, token: str, name: str, worker: WorkerMoves, outcomes: dict[str, Outcome]) -> str:
    """Run a submission to its end, with an outcome for each task; a task without one breaks its rig twice."""
    submission = service.submit(token, name)
    while (answer := service.ask('POST', f'/submissions/{submission}/lease', token)).status_code == 200:
        lease_id = answer.json()['lease_id']
        job = worker.job(lease_id)
        outcome = outcomes.get(job.planned().task)
        if outcome is None:
            body = {'kind': 'host crash', 'reason': 'the arm stopped'}
            service.ok('POST', f'/leases/{lease_id}/fault', worker.token, body)
            service.clock.pass_(1.0)
        else:
            assert worker.upload(lease_id, worker.bundle(job, outcome)).status_code == 200
        worker.beat()
    return submission


def test_no_submission_shrinks_the_cells_of_another(service: Service) -> None:
    """An arm without a single valid episode on one task once took an honest rival from 0.50 to 0.00."""
    service.benchmark(plan=TWO_TASKS)
    worker = service.worker()
    play(service, service.token('kim', 'submitter'), 'honest', worker,
         {'reach': Outcome.FAILURE, 'hard': Outcome.SUCCESS})  # fmt: skip
    alone = rows(service)['kim/honest']['values']['success']
    play(service, service.token('eve', 'submitter'), 'partial', worker, {'reach': Outcome.SUCCESS})
    found = rows(service)
    assert found['kim/honest']['values']['success']['value'] == alone['value'] == 0.5
    partial = found['eve/partial']
    assert partial['values']['success']['value'] == 0.5  # what is missing has failed
    assert (partial['n_missing'], partial['n_valid']) == (4, 4)
    assert (partial['success_bounds']['low'], partial['success_bounds']['high']) == (0.5, 1.0)


def test_whoever_cancels_when_losing_stands_on_the_board_with_all_that_is_missing(service: Service) -> None:
    service.benchmark(plan=TWO_TASKS)
    eve, worker = service.token('eve', 'submitter'), service.worker()
    for n in range(3):
        submission = service.submit(eve, f'try-{n}')
        lease = service.lease(submission, eve)
        assert lease is not None
        worker.finish(lease['lease_id'], Outcome.SUCCESS if n == 2 else Outcome.FAILURE)
        service.ok('POST', f'/submissions/{submission}/cancel', eve)
    service.platform.sweep()
    found = rows(service)
    assert {p: (r['state'], r['n_missing']) for p, r in found.items()} == {
        f'eve/try-{n}': ('cancelled', 7) for n in range(3)
    }
    assert found['eve/try-2']['values']['success']['value'] == 1 / 8
    assert found['eve/try-0']['values']['success']['value'] == 0.0
    score = service.ok('GET', f'/submissions/{submission}/score', eve)
    assert score['values']['success']['value'] == 1 / 8


def test_the_best_of_k_submissions_is_tested_at_alpha_over_k(service: Service) -> None:
    """Seven of eight against none is significant once, and not as the best of ten."""
    service.benchmark(plan=TWO_TASKS)
    worker = service.worker()
    kim, eve = service.token('kim', 'submitter'), service.token('eve', 'submitter')
    outcomes = itertools.chain([Outcome.FAILURE], SUCCESSES)
    good = service.submit(eve, 'good')
    service.run_all(good, eve, worker, outcomes)
    bad = service.submit(kim, 'bad')
    service.run_all(bad, kim, worker, FAILURES)
    (before,) = board(service)['pairs']
    interval, honest = rows(service)['eve/good']['values']['success'], rows(service)['kim/bad']['values']
    assert before['verdict'] == 'eve/good better'
    for n in range(9):
        submission = service.submit(eve, f'again-{n}')
        lease = service.lease(submission, eve)
        assert lease is not None
        worker.finish(lease['lease_id'], Outcome.FAILURE)
        service.ok('POST', f'/submissions/{submission}/cancel', eve)
    service.platform.sweep()
    told = board(service)
    assert {row['n_of_account'] for row in told['rows'] if row['policy'].startswith('eve/')} == {10}
    assert any('eve has 10 submissions' in caution and '0.05 / 10' in caution for caution in told['cautions'])
    assert told['rows'][0]['policy'] == 'eve/good'
    assert not any('eve/good better' in pair['verdict'] for pair in told['pairs'])
    wider = rows(service)['eve/good']['values']['success']
    assert wider['value'] == interval['value']
    assert wider['low'] < interval['low']
    assert rows(service)['kim/bad']['n_of_account'] == 1
    assert rows(service)['kim/bad']['values'] == honest  # another's tries do not widen its intervals


def test_whoever_leaves_a_losing_submission_open_and_tries_again_has_tried_twice(service: Service) -> None:
    """It is neither finished nor cancelled, and its name is not open: still it counts, and in the end it shows."""
    service.benchmark(plan=TWO_TASKS)
    eve, worker = service.token('eve', 'submitter'), service.worker()
    for n in range(3):
        left = service.submit(eve, f'left-{n}')
        lease = service.lease(left, eve)
        assert lease is not None
        worker.finish(lease['lease_id'], Outcome.FAILURE)
        service.clock.pass_(service.platform.config.presence_s + 1)
        worker.beat()
    service.run_all(service.submit(eve, 'good'), eve, worker, SUCCESSES)
    told = board(service)
    assert {row['policy']: row['n_of_account'] for row in told['rows']} == {'eve/good': 4}
    assert any('eve has 4 submissions' in caution for caution in told['cautions'])
    unbegun = service.submit(eve, 'unbegun')
    service.clock.pass_(service.platform.config.absence_s - 100)
    service.platform.sweep()
    assert list(rows(service)) == ['eve/good']  # they may come back
    service.clock.pass_(101)
    service.platform.sweep()
    found = rows(service)
    assert {p: (r['state'], r['n_missing']) for p, r in found.items()} == {
        'eve/good': ('finished', 0), **{f'eve/left-{n}': ('cancelled', 7) for n in range(3)},
    }  # fmt: skip
    assert service.ok('GET', f'/submissions/{left}', eve)['reason'] == 'its client stayed away for 72 hours'
    assert service.ok('GET', f'/submissions/{unbegun}', eve)['state'] == 'queued'


def test_nobody_is_absent_who_asks_or_who_had_no_server_to_ask(tmp_path: Path) -> None:
    with make_service(tmp_path) as service:
        service.benchmark(plan=TWO_TASKS)
        eve, worker, admin, clock = service.token('eve', 'submitter'), service.worker(), service.admin, service.clock
        submissions = [service.submit(eve, name) for name in ('asks', 'away')]
        for submission in submissions:
            lease = service.lease(submission, eve)
            assert lease is not None
            worker.finish(lease['lease_id'])
            clock.pass_(service.platform.config.presence_s + 1)
            worker.beat()
        clock.pass_(10 * 86_400.0)
    with make_service(tmp_path, admin=admin, clock=clock) as service:
        service.platform.sweep()
        states = [service.ok('GET', f'/submissions/{s}', eve)['state'] for s in submissions]
        assert states == ['queued', 'queued']  # the server was away, and not they
        clock.pass_(86_400.0 + 1)
        assert service.lease(submissions[0], eve) is None  # no cell; but it asks
        service.platform.sweep()
        states = [service.ok('GET', f'/submissions/{s}', eve)['state'] for s in submissions]
        assert states == ['queued', 'cancelled']


def test_what_was_voided_or_never_given_a_cell_is_shown_and_not_ranked(service: Service) -> None:
    service.benchmark()
    kim, eve, worker = service.token('kim', 'submitter'), service.token('eve', 'submitter'), service.worker()
    unbegun = service.submit(eve, 'typo')
    service.ok('POST', f'/submissions/{unbegun}/cancel', eve)
    service.run_all(service.submit(kim, 'mine'), kim, worker, SUCCESSES)
    voided = service.submit(eve, 'broken')
    lease = service.lease(voided, eve)
    assert lease is not None
    code = worker.job(lease['lease_id']).code
    service.ok('POST', '/benchmarks/reach/void', service.admin, {'code': code, 'why': 'the table was moved'})
    service.platform.sweep()
    told = board(service)
    assert [row['policy'] for row in told['rows']] == ['kim/mine']
    assert {(a['policy'], a['state']) for a in told['aside']} == {('eve/broken', 'void'), ('eve/typo', 'cancelled')}
    assert any('voided by admin: the table was moved' in a['reason'] for a in told['aside'])


def test_splits_and_conditions_stand_across_with_their_counts_and_drops(service: Service) -> None:
    """As RADAR prints it: successes of n for each split and condition, and the paired drop with its interval."""
    plan = TWO_TASKS.replace(
        '[analysis]', '[[conditions]]\nname = "nominal"\n\n[[conditions]]\nname = "drift"\n\n[analysis]'
    )
    service.benchmark(plan=plan)
    worker = service.worker()
    token = service.token('kim', 'submitter')
    submission = service.submit(token, 'fragile')
    while (answer := service.ask('POST', f'/submissions/{submission}/lease', token)).status_code == 200:
        lease_id = answer.json()['lease_id']
        job = worker.job(lease_id)
        planned = job.planned()
        good = planned.condition == 'nominal' and planned.task == 'reach'
        outcome = Outcome.SUCCESS if good else Outcome.FAILURE
        assert worker.upload(lease_id, worker.bundle(job, outcome)).status_code == 200
        worker.beat()
    grid = board(service)['grid']
    assert (grid['baseline'], grid['splits']) == ('nominal', ['hard', 'reach'])
    (row,) = grid['rows']
    assert (row['splits']['reach']['successes'], row['splits']['reach']['n']) == (4, 4)
    assert (row['splits']['hard']['successes'], row['splits']['hard']['n']) == (0, 4)
    assert (row['total']['successes'], row['total']['n']) == (4, 8)
    (drift,) = row['conditions'].values()
    assert (drift['successes'], drift['n'], drift['drop']) == (0, 8, 0.5)
    assert drift['low'] <= 0.5 <= drift['high']
