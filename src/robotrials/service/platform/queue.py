"""The queue: which job goes to which cell next. A table of jobs and a table of leases, and one transaction per grant.

Each submission offers its first waiting job. The offers are put in the order of their benchmark's strategy, benchmarks
take turns, and the idle cells are dealt out along that order; who asks gets what was dealt to them, or their place.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from sqlalchemy import bindparam, func, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from robotrials.record import Episode
from robotrials.service.platform.access import Caller, Refusal, new_id, not_found
from robotrials.service.platform.benchmark import ATTEMPTS
from robotrials.service.platform.config import PlatformConfig, Strategy
from robotrials.service.platform.job import Job as JobOrder
from robotrials.service.platform.job import job_from_json
from robotrials.service.platform.submission import finish_if_done
from robotrials.service.platform.table import LIVE, BenchmarkRow, JobRow, Lease, Submission, WorkerRow, note

SHARE_WINDOW_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Offer:
    """A submission's next job, and what strategies order it by."""

    job_id: str
    submission_id: str
    user_id: str
    benchmark_id: str
    host: str
    strategy: Strategy
    kind: str
    priority: int
    created_at: float
    position: int
    block: int
    failed_on: str | None


@dataclass(frozen=True, slots=True)
class IdleWorker:
    """An idle worker."""

    worker_id: str
    host: str
    idle_since: float


# --- strategies: the key that offers of one benchmark are sorted by

Shares = dict[str, int]
ORDER: dict[Strategy, Callable[[Offer, Shares], tuple[float, ...]]] = {
    Strategy.FIFO: lambda offer, shares: (offer.created_at,),
    Strategy.FAIR_SHARE: lambda offer, shares: (shares.get(offer.user_id, 0), offer.created_at),
    Strategy.PRIORITY: lambda offer, shares: (-offer.priority, offer.created_at),
    Strategy.BLINDED_ROTATION: lambda offer, shares: (offer.position,),
}


def ordered(offers: Sequence[Offer], *, shares: Shares, busy: dict[str, int]) -> list[Offer]:
    """All offers in the order in which they get cells; benchmarks take turns, those with fewer busy cells first."""
    groups: dict[str, list[Offer]] = {}
    for offer in offers:
        groups.setdefault(offer.benchmark_id, []).append(offer)
    turns: list[tuple[tuple[float, float, str], Offer]] = []
    for benchmark_id, group in groups.items():
        group.sort(key=lambda o: (*ORDER[o.strategy](o, shares), o.submission_id))
        first = min(o.created_at for o in group)
        for number, offer in enumerate(group):
            turns.append(((busy.get(benchmark_id, 0) + number, first, benchmark_id), offer))
    turns.sort(key=lambda turn: turn[0])
    return [offer for _, offer in turns]


def deal(offers: Sequence[Offer], cells: Sequence[IdleWorker], *, avoided: set[tuple[str, str]]) -> dict[str, str]:
    """Job -> worker: each offer takes the first free cell with its host that it need not avoid."""
    free = list(cells)
    dealt: dict[str, str] = {}
    for offer in offers:
        fits = (c for c in free if c.host == offer.host and (offer.job_id, c.worker_id) not in avoided)
        cell = next(fits, None)
        if cell is not None:
            free.remove(cell)
            dealt[offer.job_id] = cell.worker_id
    return dealt


# --- what the tables say. Statements are built once: putting one together costs more than running it.

# One look into an index for each submission, whatever a database knows of its tables: joined to the jobs in one
# statement, PostgreSQL took 50 times as long until it had gathered statistics.
_FIRST = (
    select(JobRow.id)
    .where(JobRow.submission_id == Submission.id, JobRow.state == 'queued')
    .order_by(JobRow.position)
    .limit(1)
    .correlate(Submission)
    .scalar_subquery()
)
_WAITING = (
    select(
        _FIRST, Submission.id, Submission.user_id, BenchmarkRow.id, BenchmarkRow.host, BenchmarkRow.strategy,
        Submission.kind, Submission.priority, Submission.created_at,
    )
    .join(BenchmarkRow, BenchmarkRow.id == Submission.benchmark_id)
    .where(Submission.state == 'queued', or_(Submission.kind == 'dial', Submission.asked_at > bindparam('asked_after')))
)  # fmt: skip
_PLACES = select(JobRow.id, JobRow.position, JobRow.block, JobRow.failed_on).where(
    JobRow.id.in_(bindparam('job_ids', expanding=True)), JobRow.state == 'queued'
)
_LIVE_COUNTS = (
    select(JobRow.submission_id, JobRow.benchmark_id, func.count())
    .join(Lease, Lease.job_id == JobRow.id)
    .where(Lease.state.in_(LIVE))
    .group_by(JobRow.submission_id, JobRow.benchmark_id)
)
_HEARD = WorkerRow.heard_at > bindparam('heard_after')
_IDLE = (
    select(WorkerRow.id, WorkerRow.host, WorkerRow.idle_since)
    .where(
        WorkerRow.state == 'idle', WorkerRow.wanted == 'run', _HEARD,
        WorkerRow.id.not_in(select(Lease.worker_id).where(Lease.state.in_(LIVE))),
    )
    .order_by(WorkerRow.idle_since, WorkerRow.name)
)  # fmt: skip
_QUEUED_JOB = (
    select(JobRow)
    .where(JobRow.id == bindparam('job_id'), JobRow.state == 'queued')
    .with_for_update(skip_locked=True, of=JobRow)
)  # fmt: skip
_IDLE_WORKER = (
    select(WorkerRow)
    .where(WorkerRow.id == bindparam('worker_id'), WorkerRow.state == 'idle', WorkerRow.wanted == 'run')
    .with_for_update(skip_locked=True)
)
_GRANTED = (
    select(Lease)
    .join(JobRow, JobRow.id == Lease.job_id)
    .where(JobRow.submission_id == bindparam('submission_id'), Lease.state == 'granted')
    .order_by(Lease.granted_at)
    .limit(1)
)


def read_offers(session: Session, config: PlatformConfig, n_live: Mapping[str, int], *, now: float) -> list[Offer]:
    """The first waiting job of every submission that could run now: dialled, or with a client that keeps asking.

    `n_live` counts the live leases of each submission.
    """
    rows = session.execute(_WAITING, {'asked_after': now - config.presence_s})
    waiting = {
        row[0]: row[1:] for row in rows if row[0] is not None and n_live.get(row[1], 0) < config.leases_per_submission
    }
    offers = [
        Offer(job, sub, user, ben, host, Strategy(strategy), kind, priority, created_at, position, block, failed_on)
        for job, position, block, failed_on in session.execute(_PLACES, {'job_ids': list(waiting)})
        for sub, user, ben, host, strategy, kind, priority, created_at in [waiting[job]]
    ]
    blocks = _open_blocks(session, {o.benchmark_id for o in offers if o.strategy is Strategy.BLINDED_ROTATION})
    return [o for o in offers if o.block <= blocks.get(o.benchmark_id, o.block)]


def _open_blocks(session: Session, benchmark_ids: set[str]) -> dict[str, int]:
    """The block that each trial is at: nothing of a later one begins while a job of it still waits.

    An arm whose client is away holds its trial up; running ahead without it would undo the balance.
    """
    if not benchmark_ids:
        return {}
    rows = session.execute(
        select(JobRow.benchmark_id, func.min(JobRow.block))
        .where(JobRow.benchmark_id.in_(benchmark_ids), JobRow.state == 'queued')
        .group_by(JobRow.benchmark_id)
    )
    return {row[0]: row[1] for row in rows}


def idle_cells(session: Session, config: PlatformConfig, *, now: float) -> list[IdleWorker]:
    """Workers that are idle, heard of lately, wanted to run, and without a live lease; the longest idle first."""
    rows = session.execute(_IDLE, {'heard_after': now - config.lost_s})
    return [IdleWorker(worker_id, host, idle_since or 0.0) for worker_id, host, idle_since in rows]


def avoided_cells(
    session: Session, offers: Sequence[Offer], cells: Sequence[IdleWorker], *, now: float, config: PlatformConfig
) -> set[tuple[str, str]]:
    """(job, worker) pairs that may not be: the worker a job broke on, while another could take it.

    With only that one it may, once it has said since then that it is idle, which it does after its checks.
    """
    broken = [o for o in offers if o.failed_on is not None]
    if not broken:
        return set()
    alive = session.execute(
        select(WorkerRow.id, WorkerRow.host).where(
            WorkerRow.state.in_(('idle', 'busy')), WorkerRow.wanted == 'run', _HEARD
        ),
        {'heard_after': now - config.lost_s},
    )
    hosts = {row[0]: row[1] for row in alive}
    last = session.execute(
        select(Lease.job_id, func.max(Lease.ended_at))
        .where(Lease.job_id.in_([o.job_id for o in broken]))
        .group_by(Lease.job_id)
    )
    ends = {row[0]: row[1] for row in last}
    idle_since = {c.worker_id: c.idle_since for c in cells}
    avoided = set()
    for offer in broken:
        worker = offer.failed_on or ''
        others = any(w != worker and host == offer.host for w, host in hosts.items())
        checked = idle_since.get(worker, 0.0) > (ends.get(offer.job_id) or 0.0)
        if others or not checked:
            avoided.add((offer.job_id, worker))
    return avoided


def fair_shares(session: Session, *, now: float) -> Shares:
    rows = session.execute(
        select(Lease.user_id, func.count()).where(Lease.granted_at > now - SHARE_WINDOW_S).group_by(Lease.user_id)
    )
    return {row[0]: row[1] for row in rows}


def queue_order(
    session: Session, config: PlatformConfig, *, now: float, quarantined: frozenset[str] = frozenset()
) -> list[Offer]:
    """Everyone who could run now, in order; nobody of a benchmark that is set apart."""
    n_live, busy = Counter[str](), Counter[str]()  # leases by submission and by benchmark
    for submission_id, benchmark_id, n in session.execute(_LIVE_COUNTS):
        n_live[submission_id] += n
        busy[benchmark_id] += n
    offers = [o for o in read_offers(session, config, n_live, now=now) if o.benchmark_id not in quarantined]
    fair = any(o.strategy is Strategy.FAIR_SHARE for o in offers)
    return ordered(offers, shares=fair_shares(session, now=now) if fair else {}, busy=busy)


# --- grants


def grant_to_submission(
    session: Session,
    submission: Submission,
    config: PlatformConfig,
    *,
    now: float,
    quarantined: frozenset[str] = frozenset(),
) -> Lease | int:
    """A lease for a client that asks, if a cell was dealt to it; else how many offers are before its own."""
    submission.asked_at = now
    session.flush()
    offers = queue_order(session, config, now=now, quarantined=quarantined)
    place = next((i for i, o in enumerate(offers) if o.submission_id == submission.id), None)
    if place is None:
        return len(offers)  # its job is under way, or its block is not yet open
    cells = idle_cells(session, config, now=now)
    dealt = deal(offers, cells, avoided=avoided_cells(session, offers, cells, now=now, config=config))
    offer = offers[place]
    if offer.job_id not in dealt:
        return place
    return _grant(session, offer, dealt[offer.job_id], config, now=now) or place


def grant_to_worker(
    session: Session,
    worker: WorkerRow,
    config: PlatformConfig,
    *,
    now: float,
    quarantined: frozenset[str] = frozenset(),
) -> Lease | None:
    """A lease on a dialled submission for a worker that asks, if one was dealt to it."""
    cells = idle_cells(session, config, now=now)
    asking = [c for c in cells if c.worker_id == worker.id]
    if not asking:
        return None
    offers = queue_order(session, config, now=now, quarantined=quarantined)
    cells = asking + [c for c in cells if c.worker_id != worker.id]
    dealt = deal(offers, cells, avoided=avoided_cells(session, offers, cells, now=now, config=config))
    for offer in offers:
        if dealt.get(offer.job_id) == worker.id and offer.kind == 'dial':
            return _grant(session, offer, worker.id, config, now=now)
    return None


def _grant(session: Session, offer: Offer, worker_id: str, config: PlatformConfig, *, now: float) -> Lease | None:
    """The lease, or None where somebody else was quicker. Rows that another transaction holds are passed over."""
    job = session.scalar(_QUEUED_JOB, {'job_id': offer.job_id})
    worker = session.scalar(_IDLE_WORKER, {'worker_id': worker_id})
    if job is None or worker is None:
        return None
    lease = Lease(
        id=new_id('lea'), job_id=job.id, worker_id=worker.id, user_id=offer.user_id, attempt=job.attempt,
        state='granted', granted_at=now, begun_at=None, expires_at=now + config.claim_s, ended_at=None,
    )  # fmt: skip
    try:
        with session.begin_nested():
            session.add(lease)
    except IntegrityError:
        return None  # the index of live leases: job or worker was taken in this very moment
    job.state, job.updated_at = 'leased', now
    worker.state, worker.idle_since = 'busy', None
    lease.job, lease.worker = job, worker
    note(session, 'lease.grant', lease.id, job=job.id, worker=worker.id, attempt=job.attempt)
    return lease


def live_lease(session: Session, submission_id: str) -> Lease | None:
    """A lease that the submission has and has not begun: who asks again gets it again."""
    return session.scalar(_GRANTED, {'submission_id': submission_id})


def check_unfinished(submission: Submission) -> None:
    if submission.state in ('finished', 'cancelled', 'void'):
        raise Refusal(410, submission.state, f'this submission is {submission.state}; there is nothing left to run')


# A lease in the database: who holds it, its job, and what becomes of the job when it ends.

MOST_GIVEN_BACK = 5
_LOCKED_LEASE = select(Lease).where(Lease.id == bindparam('lease_id')).with_for_update()


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a job when its lease ended."""

    state: Annotated[
        str, Field(description='done, requeued, invalid, cancelled; or kept, until its benchmark is repaired.')
    ]
    outcome: str


def own_lease(session: Session, caller: Caller, lease_id: str) -> Lease:
    """A lease on one of the caller's workers."""
    lease = session.get(Lease, lease_id)
    if lease is None or lease.worker.user_id != caller.user_id:
        raise not_found('lease')
    return lease


def begin(session: Session, caller: Caller, lease_id: str, config: PlatformConfig, *, now: float) -> JobOrder:
    """The job of a lease, for the worker that holds it; from now on it is running."""
    own_lease(session, caller, lease_id)
    lease = locked_lease(session, lease_id)
    if lease.state not in ('granted', 'running') or lease.expires_at <= now:
        raise Refusal(410, 'lease_over', 'this lease is over')
    if lease.state == 'granted':
        lease.state, lease.begun_at, lease.expires_at = 'running', now, now + config.lease_s
        lease.job.state, lease.job.updated_at = 'running', now
        note(session, 'lease.begin', lease.id, job=lease.job_id)
    return job_order(session, lease.job, attempt=lease.attempt)


def planning_order(submission: Submission) -> JobOrder:
    """A submission's plan and code as an order of no job in particular, to plan its episodes with."""
    return JobOrder(job_id='', plan=submission.plan, slot=0, attempt=0, code=submission.code)


def job_order(session: Session, job: JobRow, *, attempt: int) -> JobOrder:
    """A job as its worker is told of it."""
    submission = session.get_one(Submission, job.submission_id)
    values = {'job_id': job.id, 'plan': submission.plan, 'slot': job.slot, 'attempt': attempt, 'code': submission.code}
    if submission.dial:
        values['dial'] = json.loads(submission.dial)
    return job_from_json(values)


def locked_lease(session: Session, lease_id: str) -> Lease:
    return session.scalars(_LOCKED_LEASE, {'lease_id': lease_id}).one()


def may_give_back(session: Session, lease: Lease) -> bool:
    """Whether a job that its worker could not take up may wait again without using an attempt."""
    earlier = select(func.count()).select_from(Lease).where(Lease.job_id == lease.job_id, Lease.state == 'unclaimed')
    return lease.state == 'running' and (session.scalar(earlier) or 0) < MOST_GIVEN_BACK


def give_back(session: Session, lease: Lease, reason: str, *, now: float) -> Settled:
    """A lease that was never begun: the job waits again, with no attempt used, and its client is no longer present."""
    job, submission = lease.job, lease.job.submission
    lease.state, lease.fault, lease.ended_at = 'unclaimed', reason, now
    submission.asked_at = None
    job.state = 'queued' if submission.state == 'queued' else 'cancelled'
    job.updated_at = now
    note(session, 'lease.unclaimed', lease.id, job=job.id, reason=reason)
    return Settled('requeued' if job.state == 'queued' else 'cancelled', '')


def settle(session: Session, lease_id: str, episode: Episode, *, now: float) -> tuple[Settled, bool]:
    """The second transaction: what the store has becomes what the queue knows; and whether the submission is done."""
    lease = locked_lease(session, lease_id)
    job = session.scalars(select(JobRow).where(JobRow.id == lease.job_id).with_for_update(of=JobRow)).one()
    lease.state, lease.ended_at = ('done' if lease.digest else 'failed'), lease.ended_at or now
    lease.worker.busy_s += lease.ended_at - lease.granted_at
    job.outcome, job.reason, job.updated_at = episode.outcome.value, episode.reason, now
    if episode.is_valid:
        job.state = word = 'done'
    elif job.submission.state != 'queued':
        job.state = word = 'cancelled'
    elif job.attempt + 1 < ATTEMPTS:
        job.state, job.attempt, job.failed_on, word = 'queued', job.attempt + 1, lease.worker_id, 'requeued'
    else:
        job.state = word = 'invalid'
    note(session, f'job.{word}', job.id, lease=lease.id, attempt=lease.attempt, episode=episode.episode_id,
         outcome=episode.outcome.value)  # fmt: skip
    is_finished = finish_if_done(session, job.submission_id, now=now)
    return Settled(word, episode.outcome.value), is_finished
