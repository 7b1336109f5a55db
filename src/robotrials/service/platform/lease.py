"""A lease in the database: who holds it, its job, and what becomes of the job when it ends."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from robotrials.record import Episode
from robotrials.run.fault import FaultKind
from robotrials.service.platform.access import Caller
from robotrials.service.platform.benchmark import ATTEMPTS
from robotrials.service.platform.config import PlatformConfig
from robotrials.service.platform.job import Job as JobOrder
from robotrials.service.platform.job import job_from_json
from robotrials.service.platform.refusal import Refusal, not_found
from robotrials.service.platform.submission import finish_if_done
from robotrials.service.platform.table import Job, Lease, Submission, Worker
from robotrials.service.platform.trail import note

MOST_GIVEN_BACK = 5
_LOCKED_LEASE = select(Lease).where(Lease.id == bindparam('lease_id')).with_for_update()


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a job when its lease ended."""

    state: str  # done, requeued, invalid, cancelled; kept: it is settled once its benchmark's store is repaired
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


def job_order(session: Session, job: Job, *, attempt: int) -> JobOrder:
    """A job as its worker is told of it."""
    import json

    submission = session.get_one(Submission, job.submission_id)
    values = {'job_id': job.id, 'plan': submission.plan, 'slot': job.slot, 'attempt': attempt, 'code': submission.code}
    if submission.dial:
        values['dial'] = json.loads(submission.dial)
    return job_from_json(values)


@dataclass(frozen=True, slots=True)
class Expired:
    """A lease whose time is up, and whose fault that is."""

    lease_id: str
    was_begun: bool
    kind: str
    reason: str


def expired(session: Session, config: PlatformConfig, *, now: float) -> list[Expired]:
    """Leases whose time is up. Where the cell was there and sound to the end, the policy is to blame.

    A cell that fell silent, or that says it is draining or out of service, is evidence that the rig broke.
    """
    rows = session.execute(
        select(Lease.id, Lease.state, Lease.begun_at, Worker.heard_at, Worker.state)
        .join(Worker, Worker.id == Lease.worker_id)
        .where(Lease.state.in_(('granted', 'running')), Lease.expires_at <= now)
    )
    return [
        _expired(lease_id, state, begun_at, is_there=now - heard_at < config.lost_s and cell in ('idle', 'busy'),
                 longest_s=config.longest_episode_s, now=now)
        for lease_id, state, begun_at, heard_at, cell in rows
    ]  # fmt: skip


def _expired(
    lease_id: str, state: str, begun_at: float | None, *, is_there: bool, longest_s: float, now: float
) -> Expired:
    if state == 'granted':
        if is_there:
            return Expired(lease_id, False, FaultKind.POLICY_WITHDRAWN.value, 'nobody came to its cell in time')
        return Expired(lease_id, False, FaultKind.WORKER_DEATH.value, 'its cell fell silent before anybody came')
    if is_there and begun_at is not None and now >= begun_at + longest_s:
        told = f'the episode was not over after {longest_s:g} s'
        return Expired(lease_id, True, FaultKind.POLICY_LATE.value, told)
    return Expired(lease_id, True, FaultKind.WORKER_DEATH.value, 'no heartbeat in time')


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
    job = session.scalars(select(Job).where(Job.id == lease.job_id).with_for_update(of=Job)).one()
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
