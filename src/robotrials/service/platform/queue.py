"""The queue: which job goes to which cell next. A table of jobs and a table of leases, and one transaction per grant.

Each submission offers its first waiting job. The offers are put in the order of their benchmark's strategy, benchmarks
take turns, and the idle cells are dealt out along that order; who asks gets what was dealt to them, or their place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, func, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from robotrials.service.platform.access import new_id
from robotrials.service.platform.config import PlatformConfig, Strategy
from robotrials.service.platform.refusal import Refusal
from robotrials.service.platform.table import LIVE, Benchmark, Job, Lease, Submission, Worker
from robotrials.service.platform.trail import note

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
class Cell:
    """An idle worker."""

    worker_id: str
    host: str
    idle_since: float


@dataclass(frozen=True, slots=True)
class Wait:
    """No cell yet."""

    place: int  # offers before this one


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


def deal(offers: Sequence[Offer], cells: Sequence[Cell], *, avoided: set[tuple[str, str]]) -> dict[str, str]:
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
    select(Job.id)
    .where(Job.submission_id == Submission.id, Job.state == 'queued')
    .order_by(Job.position)
    .limit(1)
    .correlate(Submission)
    .scalar_subquery()
)
_WAITING = (
    select(
        _FIRST, Submission.id, Submission.user_id, Benchmark.id, Benchmark.host, Benchmark.strategy,
        Submission.kind, Submission.priority, Submission.created_at,
    )
    .join(Benchmark, Benchmark.id == Submission.benchmark_id)
    .where(Submission.state == 'queued', or_(Submission.kind == 'dial', Submission.asked_at > bindparam('asked_after')))
)  # fmt: skip
_PLACES = select(Job.id, Job.position, Job.block, Job.failed_on).where(
    Job.id.in_(bindparam('job_ids', expanding=True)), Job.state == 'queued'
)
_LIVE_COUNTS = (
    select(Job.submission_id, Job.benchmark_id, func.count())
    .join(Lease, Lease.job_id == Job.id)
    .where(Lease.state.in_(LIVE))
    .group_by(Job.submission_id, Job.benchmark_id)
)
_HEARD = Worker.heard_at > bindparam('heard_after')
_IDLE = (
    select(Worker.id, Worker.host, Worker.idle_since)
    .where(
        Worker.state == 'idle', Worker.wanted == 'run', _HEARD,
        Worker.id.not_in(select(Lease.worker_id).where(Lease.state.in_(LIVE))),
    )
    .order_by(Worker.idle_since, Worker.name)
)  # fmt: skip
_QUEUED_JOB = (
    select(Job)
    .where(Job.id == bindparam('job_id'), Job.state == 'queued')
    .with_for_update(skip_locked=True, of=Job)
)  # fmt: skip
_IDLE_WORKER = (
    select(Worker)
    .where(Worker.id == bindparam('worker_id'), Worker.state == 'idle', Worker.wanted == 'run')
    .with_for_update(skip_locked=True)
)
_GRANTED = (
    select(Lease)
    .join(Job, Job.id == Lease.job_id)
    .where(Job.submission_id == bindparam('submission_id'), Lease.state == 'granted')
    .order_by(Lease.granted_at)
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class LiveCounts:
    """How many live leases there are."""

    by_submission: dict[str, int]
    by_benchmark: dict[str, int]


def read_live(session: Session) -> LiveCounts:
    live = LiveCounts({}, {})
    for submission_id, benchmark_id, n in session.execute(_LIVE_COUNTS):
        live.by_submission[submission_id] = n
        live.by_benchmark[benchmark_id] = live.by_benchmark.get(benchmark_id, 0) + n
    return live


def read_offers(session: Session, config: PlatformConfig, live: LiveCounts, *, now: float) -> list[Offer]:
    """The first waiting job of every submission that could run now: dialled, or with a client that keeps asking."""
    rows = session.execute(_WAITING, {'asked_after': now - config.presence_s})
    waiting = {
        row[0]: row[1:]
        for row in rows
        if row[0] is not None and live.by_submission.get(row[1], 0) < config.leases_per_submission
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
        select(Job.benchmark_id, func.min(Job.block))
        .where(Job.benchmark_id.in_(benchmark_ids), Job.state == 'queued')
        .group_by(Job.benchmark_id)
    )
    return {row[0]: row[1] for row in rows}


def idle_cells(session: Session, config: PlatformConfig, *, now: float) -> list[Cell]:
    """Workers that are idle, heard of lately, wanted to run, and without a live lease; the longest idle first."""
    rows = session.execute(_IDLE, {'heard_after': now - config.lost_s})
    return [Cell(worker_id, host, idle_since or 0.0) for worker_id, host, idle_since in rows]


def avoided_cells(
    session: Session, offers: Sequence[Offer], cells: Sequence[Cell], *, now: float, config: PlatformConfig
) -> set[tuple[str, str]]:
    """(job, worker) pairs that may not be: the worker a job broke on, while another could take it.

    With only that one it may, once it has said since then that it is idle, which it does after its checks.
    """
    broken = [o for o in offers if o.failed_on is not None]
    if not broken:
        return set()
    alive = session.execute(
        select(Worker.id, Worker.host).where(Worker.state.in_(('idle', 'busy')), Worker.wanted == 'run', _HEARD),
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
    session: Session, config: PlatformConfig, *, now: float, apart: frozenset[str] = frozenset()
) -> list[Offer]:
    """Everyone who could run now, in order; nobody of a benchmark that is set apart."""
    live = read_live(session)
    offers = [o for o in read_offers(session, config, live, now=now) if o.benchmark_id not in apart]
    fair = any(o.strategy is Strategy.FAIR_SHARE for o in offers)
    return ordered(offers, shares=fair_shares(session, now=now) if fair else {}, busy=live.by_benchmark)


# --- grants


def grant_to_submission(
    session: Session, submission: Submission, config: PlatformConfig, *, now: float, apart: frozenset[str] = frozenset()
) -> Lease | Wait:
    """A lease for a client that asks, if a cell was dealt to it."""
    submission.asked_at = now
    session.flush()
    offers = queue_order(session, config, now=now, apart=apart)
    place = next((i for i, o in enumerate(offers) if o.submission_id == submission.id), None)
    if place is None:
        return Wait(len(offers))  # its job is under way, or its block is not yet open
    cells = idle_cells(session, config, now=now)
    dealt = deal(offers, cells, avoided=avoided_cells(session, offers, cells, now=now, config=config))
    offer = offers[place]
    if offer.job_id not in dealt:
        return Wait(place)
    return _grant(session, offer, dealt[offer.job_id], config, now=now) or Wait(place)


def grant_to_worker(
    session: Session, worker: Worker, config: PlatformConfig, *, now: float, apart: frozenset[str] = frozenset()
) -> Lease | None:
    """A lease on a dialled submission for a worker that asks, if one was dealt to it."""
    cells = idle_cells(session, config, now=now)
    asking = [c for c in cells if c.worker_id == worker.id]
    if not asking:
        return None
    offers = queue_order(session, config, now=now, apart=apart)
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
