"""The queue: no job twice, no worker twice, and each strategy's order."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from tests.service.platform.service import PLAN, Service, make_service

from robotrials.service.platform.benchmark import rotation_places
from robotrials.service.platform.cells import find_worker
from robotrials.service.platform.config import Strategy
from robotrials.service.platform.job import benchmark_slots
from robotrials.service.platform.queue import (
    IdleWorker,
    Offer,
    deal,
    grant_to_submission,
    grant_to_worker,
    ordered,
)
from robotrials.service.platform.table import LIVE, JobRow, Lease, Submission

N_SUBMISSIONS, N_WORKERS, N_THREADS = 6, 4, 8


def test_many_who_ask_at_once_never_share_a_job_or_a_worker(tmp_path: Path, database_url: str) -> None:
    plan = PLAN.replace('episodes_per_cell = 2', 'episodes_per_cell = 5')
    with make_service(tmp_path / 'p', database=database_url, leases_per_submission=3) as service:
        service.benchmark(plan=plan)
        kim = service.token('kim', 'submitter')
        subs = [service.submit(kim, f'p{n}') for n in range(N_SUBMISSIONS)]
        workers = [service.worker(f'cell-{n}') for n in range(N_WORKERS)]
        granted: list[tuple[str, str, str, int]] = []
        errors: list[BaseException] = []
        platform = service.platform

        def ask(first: int) -> None:
            try:
                for turn in range(30):
                    sub = subs[(first + turn) % len(subs)]
                    with platform.database.write() as session:
                        submission = session.get_one(Submission, sub)
                        lease = grant_to_submission(session, submission, platform.config, now=platform.clock())
                        if isinstance(lease, int):
                            continue
                        granted.append((lease.id, lease.job_id, lease.worker_id, lease.attempt))
                    with platform.database.read() as session:
                        live = list(session.scalars(select(Lease).where(Lease.state.in_(LIVE))))
                        assert max(Counter(x.job_id for x in live).values(), default=0) <= 1
                        assert max(Counter(x.worker_id for x in live).values(), default=0) <= 1
                    if turn % 2:
                        platform.intake.fail(lease.id, 'given back')
                        worker = next(w for w in workers if w.worker_id == lease.worker_id)
                        with platform.database.write() as session:
                            found = find_worker(session, worker.worker_id, lock=True)
                            found.state, found.idle_since = 'idle', platform.clock()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(N_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert not errors
        assert len(granted) >= N_WORKERS
        with platform.database.read() as session:
            leases = list(session.scalars(select(Lease)))
            assert {lease.id for lease in leases} == {g[0] for g in granted}
            live = [lease for lease in leases if lease.state in LIVE]
            assert len({lease.worker_id for lease in live}) == len(live)
            assert len({lease.job_id for lease in live}) == len(live)
            leased = session.scalars(select(JobRow).where(JobRow.state == 'leased')).all()
            assert {job.id for job in leased} == {lease.job_id for lease in live}


def test_the_database_itself_refuses_a_second_live_lease(each_service: Service) -> None:
    service = each_service
    service.benchmark()
    kim = service.token('kim', 'submitter')
    submission = service.submit(kim)
    service.worker()
    lease = service.lease(submission, kim)
    assert lease is not None
    with pytest.raises(IntegrityError), service.platform.database.write() as session:
        found = session.get_one(Lease, lease['lease_id'])
        again = {c.key: getattr(found, c.key) for c in Lease.__table__.columns}
        session.add(Lease(**again | {'id': 'lea_0'}))


# --- strategies, as pure functions

offers = st.lists(
    st.builds(
        Offer,
        job_id=st.uuids().map(str), submission_id=st.uuids().map(str), user_id=st.sampled_from('abc'),
        benchmark_id=st.sampled_from(('b1', 'b2')), host=st.sampled_from(('h1', 'h2')),
        strategy=st.just(Strategy.FIFO), kind=st.sampled_from(('client', 'dial')),
        priority=st.integers(-2, 2), created_at=st.integers(0, 9).map(float), position=st.integers(0, 9),
        block=st.just(0), failed_on=st.none(),
    ),
    max_size=12, unique_by=lambda o: o.job_id,
)  # fmt: skip
cells = st.lists(
    st.builds(IdleWorker, worker_id=st.uuids().map(str), host=st.sampled_from(('h1', 'h2')), idle_since=st.just(0.0)),
    max_size=8, unique_by=lambda c: c.worker_id,
)  # fmt: skip


@settings(max_examples=100)
@given(offers=offers, cells=cells)
def test_cells_are_dealt_once_to_fitting_offers_and_nobody_is_passed_over(
    offers: list[Offer], cells: list[IdleWorker]
) -> None:
    order = ordered(offers, shares={}, busy={})
    assert sorted(o.job_id for o in order) == sorted(o.job_id for o in offers)
    dealt = deal(order, cells, avoided=set())
    hosts = {c.worker_id: c.host for c in cells}
    assert len(set(dealt.values())) == len(dealt)
    for offer in order:
        if offer.job_id in dealt:
            assert hosts[dealt[offer.job_id]] == offer.host
        else:
            left = [c for c in cells if c.worker_id not in dealt.values()]
            assert all(c.host != offer.host for c in left)
    for host in ('h1', 'h2'):  # nobody behind is served before somebody in front
        served = [o.job_id in dealt for o in order if o.host == host]
        assert served == sorted(served, reverse=True)


def _offer(name: str, **changes: object) -> Offer:
    values = {
        'job_id': name, 'submission_id': name, 'user_id': name, 'benchmark_id': 'b', 'host': 'h', 'kind': 'client',
        'strategy': Strategy.FIFO, 'priority': 0, 'created_at': 0.0, 'position': 0, 'block': 0, 'failed_on': None,
    }  # fmt: skip
    return Offer(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ('strategy', 'wanted'),
    [
        (Strategy.FIFO, ['old', 'greedy', 'urgent']),
        (Strategy.FAIR_SHARE, ['urgent', 'old', 'greedy']),
        (Strategy.PRIORITY, ['urgent', 'old', 'greedy']),
        (Strategy.BLINDED_ROTATION, ['greedy', 'urgent', 'old']),
    ],
)
def test_each_strategy_has_its_order(strategy: Strategy, wanted: list[str]) -> None:
    three = [
        _offer('old', created_at=1.0, position=9, strategy=strategy),
        _offer('greedy', created_at=2.0, position=1, strategy=strategy),
        _offer('urgent', created_at=3.0, position=5, priority=7, strategy=strategy),
    ]
    shares = {'old': 3, 'greedy': 8, 'urgent': 0}
    assert [o.job_id for o in ordered(three, shares=shares, busy={})] == wanted


def test_benchmarks_take_turns() -> None:
    offers = [_offer(f'a{n}', benchmark_id='a', created_at=float(n)) for n in range(3)]
    offers += [_offer(f'b{n}', benchmark_id='b', created_at=10.0 + n) for n in range(3)]
    assert [o.job_id for o in ordered(offers, shares={}, busy={})] == ['a0', 'b0', 'a1', 'b1', 'a2', 'b2']
    assert ordered(offers, shares={}, busy={'a': 2})[0].job_id == 'b0'


def test_the_rotation_of_a_trial_is_balanced_at_every_block() -> None:
    from robotrials.service.platform.benchmark import platform_plan

    text = PLAN.replace('episodes_per_cell = 2', 'episodes_per_cell = 12') + '\n[rotation]\nmax_rounds_per_block = 2\n'
    plan = platform_plan(text, name='b', is_trial=True).as_json()
    places = rotation_places(plan, ['arm-1', 'arm-2', 'arm-3'])
    n = len(benchmark_slots(plan))
    assert sorted(p for arm in places.values() for p, _ in arm.values()) == list(range(3 * n))
    for arm in places.values():
        assert sorted(arm) == list(range(n))
    blocks = {code: Counter(block for _, block in arm.values()) for code, arm in places.items()}
    assert blocks['arm-1'] == blocks['arm-2'] == blocks['arm-3']
    first = [code for code, arm in places.items() for position, _ in arm.values() if position == 0]
    others = [
        next(c for c, arm in rotation_places(plan, [f'{s}-1', f'{s}-2']).items() for p, _ in arm.values() if p == 0)[-1]
        for s in 'abcdefgh'
    ]
    assert len(first) == 1
    assert set(others) == {'1', '2'}  # who begins is drawn


def test_nothing_of_a_later_block_begins_while_an_earlier_one_waits(service: Service) -> None:
    plan = PLAN.replace('episodes_per_cell = 2', 'episodes_per_cell = 4') + '\n[rotation]\nmax_rounds_per_block = 1\n'
    service.benchmark(plan=plan, mode='trial', arms=2)
    tokens = [service.token(user, 'submitter') for user in ('kim', 'lee')]
    subs = [service.submit(token) for token in tokens]
    workers = [service.worker(f'cell-{n}') for n in range(2)]
    begun: list[int] = []
    for _ in range(40):
        for sub, token in zip(subs, tokens, strict=True):
            answer = service.ask('POST', f'/submissions/{sub}/lease', token)
            if answer.status_code == 200:
                lease_id = answer.json()['lease_id']
                with service.platform.database.read() as session:
                    lease = session.get_one(Lease, lease_id)
                    begun.append(lease.job.block)
                    worker = next(w for w in workers if w.worker_id == lease.worker_id)
                worker.finish(lease_id)
    assert begun == sorted(begun)
    assert Counter(begun) == {0: 2, 1: 2, 2: 2, 3: 2}


def test_dialled_jobs_go_to_workers_and_client_jobs_do_not(tmp_path: Path) -> None:
    with make_service(tmp_path / 'p', dial={'allow': ['gpu-box:8000']}) as service:
        service.benchmark()
        kim = service.token('kim', 'submitter')
        service.submit(kim, 'by-client')
        dial = {'use': 'openpi', 'options': {'url': 'ws://gpu-box:8000'}, 'execute': 4}
        dialled = service.submit(kim, 'dialled', dial=dial)
        worker, n = service.worker(), 0
        while (answer := service.ask('POST', f'/workers/{worker.worker_id}/next', worker.token)).status_code == 200:
            given = answer.json()
            assert given['job']['dial']['options'] == {'url': 'ws://gpu-box:8000'}
            worker.finish(given['lease_id'])
            n += 1
        assert answer.status_code == 204
        assert n == 2
        assert service.ok('GET', f'/submissions/{dialled}', kim)['state'] == 'finished'
        refused = service.ask('POST', f'/submissions/{dialled}/lease', kim)
        assert refused.status_code == 410


def test_a_worker_that_drains_gets_nothing(service: Service) -> None:
    service.benchmark()
    kim, operator = service.token('kim', 'submitter'), service.token('olga', 'operator')
    submission, worker = service.submit(kim), service.worker()
    service.ok('POST', f'/workers/{worker.worker_id}/drain', operator)
    assert service.lease(submission, kim) is None
    assert worker.beat('draining')['commands'] == ['drain']
    service.ok('POST', f'/workers/{worker.worker_id}/resume', operator)
    assert worker.beat('draining')['commands'] == ['resume']
    worker.beat('idle')
    assert service.lease(submission, kim) is not None


def test_a_client_that_no_longer_asks_holds_nobody_up(service: Service) -> None:
    service.benchmark()
    kim, lee = service.token('kim', 'submitter'), service.token('lee', 'submitter')
    first, second = service.submit(kim), service.submit(lee)
    assert service.lease(first, kim) is None  # asks once, and is never heard of again
    worker = service.worker()
    assert service.lease(second, lee) is None
    service.clock.pass_(service.platform.config.presence_s + 1)
    worker.beat()
    assert service.lease(second, lee) is not None


def test_a_grant_to_a_worker_that_is_not_idle_is_nothing(service: Service) -> None:
    service.benchmark()
    worker = service.worker()
    worker.beat('busy')
    with service.platform.database.write() as session:
        found = find_worker(session, worker.worker_id)
        assert grant_to_worker(session, found, service.platform.config, now=service.clock()) is None
