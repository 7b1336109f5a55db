"""How leases end: results are taken in, faults recorded, each once, whatever dies on the way.

Ending a lease is three steps. First the lease is marked `storing`, in one transaction: a result is then on disk beside
the database, a fault is in its row, and nothing but this ending can happen to the lease. Then the episode goes into
the store. Then a second transaction settles job, lease and submission. A server that dies between two of them finds
the lease still `storing` when it starts, looks whether the store has the episode, and takes the steps that are left.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.orm import Session

from robotrials.errors import InputError, StoreError, WriteError
from robotrials.record import Episode, Outcome, Store
from robotrials.record.folder import move_durably, write_durably
from robotrials.record.maintain import compact_store
from robotrials.run.fault import Fault, FaultKind
from robotrials.run.plan import Clock, TrialPlan
from robotrials.service.platform.access import Caller, Refusal
from robotrials.service.platform.benchmark import QUARANTINED, Quarantine, cancel_jobs, is_open, open_names, open_store
from robotrials.service.platform.bundle import Bundle, bare_bundle, bundle_digest, checked_signature, unpack_bundle
from robotrials.service.platform.config import PlatformConfig
from robotrials.service.platform.database import Database, disk_full, fault_point
from robotrials.service.platform.job import IMPOSSIBLE, NOT_BEGUN, TURNED_AWAY
from robotrials.service.platform.job import Job as JobOrder
from robotrials.service.platform.queue import (
    Settled,
    give_back,
    job_order,
    locked_lease,
    may_give_back,
    own_lease,
    settle,
)
from robotrials.service.platform.submission import OVER_STATES
from robotrials.service.platform.table import (
    UNSETTLED,
    BenchmarkRow,
    JobRow,
    LateResult,
    Lease,
    Submission,
    WorkerRow,
    note,
)
from robotrials.wire import WireLimits

SPOOL, LATE = 'spool', 'late'
ENDING = ('storing', 'kept')  # states of a lease whose end is certain, and not yet in the store
KEPT = Settled('kept', '')
N_LOCKS = 64
PROBE_BYTES = 1 << 16  # what a disk has to take before it counts as having room again
SLACK_S = 1e-6
CLOCK_S = 5.0  # clocks of server and worker may differ by this much
MANY_PARTS = 256
IDENTITY = ('trial_id', 'policy', 'benchmark', 'task', 'stratum', 'condition', 'seed', 'instance', 'repeat')
log = logging.getLogger('robotrials.service.platform')


class LeaseEnds:
    """The end of leases, for one server on one folder."""

    def __init__(self, config: PlatformConfig, database: Database) -> None:
        self._config, self._database = config, database
        self._locks = [threading.Lock() for _ in range(N_LOCKS)]
        self._store_lock = threading.Lock()
        self.quarantine = Quarantine(config, database)
        self._inherited: frozenset[str] = frozenset()  # leases from before this server: the store may know of their end
        self._limits = WireLimits(max_bytes=config.most_bundle_bytes, max_values=500_000)
        for name in (SPOOL, LATE):
            (config.folder / name).mkdir(parents=True, exist_ok=True)

    # --- results

    def accept(self, caller: Caller, lease_id: str, data: bytes) -> Settled:
        """Take a worker's result in: once, for a lease that holds, if it is the episode that was planned."""
        with self._database.read() as session:
            lease = own_lease(session, caller, lease_id)
            order = job_order(session, lease.job, attempt=lease.attempt)
            key = lease.worker.key
        self._check_room(len(data))
        try:
            bare = checked_signature(data, lease_id=lease_id, key=key)
        except InputError as error:
            raise Refusal(422, 'bad_signature', str(error)) from error
        digest = bundle_digest(bare)
        bundle = self._checked_bundle(bare, order, leased_s=self._database.clock() - lease.granted_at)
        with self._locked(lease_id):
            if (settled := self._settled_before(lease_id, digest)) is not None:
                return settled
            spooled = self._spool(lease_id, digest, data)
            fault_point('result.spooled')
            try:
                was_storing = self._mark_storing(lease_id, digest=digest, key=key, actor=caller.actor)
            except Refusal as refusal:
                spooled.unlink(missing_ok=True)
                if refusal.status == 410:
                    self._keep_aside(lease_id, digest, data, actor=caller.actor)
                raise
            fault_point('result.accepted')
            may_be_stored = was_storing or lease_id in self._inherited
            return self._finish(lease_id, bundle=bundle, may_be_stored=may_be_stored)

    def _settled_before(self, lease_id: str, digest: str) -> Settled | None:
        """The answer to an upload that was taken in already."""
        with self._database.read() as session:
            lease = session.get_one(Lease, lease_id)
            if lease.state == 'kept' and lease.digest == digest:
                return KEPT
            if lease.state != 'done' or lease.digest != digest:
                return None
            is_valid = lease.job.state == 'done'
            return Settled('done' if is_valid else lease.job.state, lease.job.outcome)

    def _checked_bundle(self, data: bytes, order: JobOrder, *, leased_s: float) -> Bundle:
        try:
            bundle = unpack_bundle(data, limits=self._limits)
        except InputError as error:
            raise Refusal(422, 'bad_bundle', str(error)) from error
        planned, episode = order.planned(), bundle.episode
        if episode.key != planned.key:
            wanted = f'{planned.episode_id} attempt {planned.attempt}'
            raise Refusal(
                422, 'wrong_episode', f'wanted episode {wanted}, found {episode.episode_id} {episode.attempt}'
            )
        for name in IDENTITY:
            if getattr(episode, name) != getattr(planned, name):
                raise Refusal(422, 'wrong_episode', f'{name} is not what was planned for this job')
        _check_bounds(bundle, planned, order.read_plan(), leased_s=leased_s)
        if not episode.is_valid and episode.reason.startswith('policy'):
            raise Refusal(422, 'wrong_outcome', 'what a policy did is never INVALID; upgrade this worker')
        return bundle

    def _mark_storing(self, lease_id: str, *, digest: str, key: str, actor: str) -> bool:
        """Accept a result: from here on it is not lost. True if it had been accepted before, and is not yet settled."""
        now = self._database.clock()
        with self._database.write(actor) as session:
            lease = locked_lease(session, lease_id)
            if lease.digest == digest and lease.state == 'storing':
                return True
            if lease.digest:
                raise Refusal(409, 'other_content', 'this lease has a result already, and it is another one')
            if lease.state not in ('granted', 'running') or lease.expires_at <= now:
                raise Refusal(410, 'lease_over', 'this lease is over; the upload is kept aside and does not count')
            lease.state, lease.digest = 'storing', digest
            note(session, 'result.accept', lease.id, job=lease.job_id, digest=digest, key=key)
        return False

    def _spooled(self, lease_id: str, digest: str) -> Path:
        return self._config.folder / SPOOL / f'{lease_id}-{digest[:16]}.bundle'

    def _spool(self, lease_id: str, digest: str, data: bytes) -> Path:
        """Put a result on disk, durably, before the database says that there is one."""
        target = self._spooled(lease_id, digest)
        with _told_if_full():
            write_durably(target, data)
        return target

    def _keep_aside(self, lease_id: str, digest: str, data: bytes, *, actor: str) -> None:
        name = f'{lease_id}-{digest[:16]}.bundle'
        with _told_if_full():
            write_durably(self._config.folder / LATE / name, data)
        with self._database.write(actor) as session:
            known = select(LateResult).where(LateResult.lease_id == lease_id, LateResult.digest == digest)
            if session.scalar(known) is None:
                now = self._database.clock()
                session.add(LateResult(lease_id=lease_id, digest=digest, file=name, received_at=now))
                note(session, 'result.late', lease_id, digest=digest, file=name)

    def _check_room(self, n_bytes: int) -> None:
        if shutil.disk_usage(self._config.folder).free < self._config.least_free_bytes + 2 * n_bytes:
            raise disk_full()

    # --- faults

    def fail(self, lease_id: str, reason: str, *, kind: str = '', actor: str = 'server') -> Settled | None:
        """End a lease without a result: with a fault of the policy as its failure, begun or not.

        A broken rig leaves an INVALID episode of a lease that was begun, and nothing of one that was not.
        """
        now = self._database.clock()
        fault = Fault(fault_kind(kind), reason)
        with self._locked(lease_id):
            with self._database.write(actor) as session:
                lease = locked_lease(session, lease_id)
                if lease.state not in ('granted', 'running'):
                    return None
                if kind == IMPOSSIBLE:
                    return self._give_up(session, lease, reason, now=now)
                if not fault.kind.is_the_policys:
                    if lease.state == 'granted' or (kind == NOT_BEGUN and may_give_back(session, lease)):
                        return give_back(session, lease, reason, now=now)
                    if kind == TURNED_AWAY:
                        return None  # whoever came is not who began it
                lease.state, lease.fault = 'storing', fault.reason
                note(session, 'lease.fail', lease.id, job=lease.job_id, reason=fault.reason)
            fault_point('expiry.accepted')
            return self._finish(lease_id, may_be_stored=True)

    def _give_up(self, session: Session, lease: Lease, reason: str, *, now: float) -> Settled:
        """A cell cannot run a job: another may, and when every one has said so the submission ends, with the reason."""
        job, submission = lease.job, lease.job.submission
        why = f'{IMPOSSIBLE}: {reason}'
        settled = give_back(session, lease, why, now=now)
        job.failed_on = lease.worker_id
        session.flush()
        refused = select(Lease.worker_id).join(JobRow, JobRow.id == Lease.job_id).where(
            JobRow.submission_id == submission.id, Lease.state == 'unclaimed', Lease.fault.startswith(f'{IMPOSSIBLE}:')
        )  # fmt: skip
        others = select(func.count()).select_from(WorkerRow).where(
            WorkerRow.host == lease.worker.host, WorkerRow.state.in_(('idle', 'busy')), WorkerRow.wanted == 'run',
            WorkerRow.heard_at > now - self._config.lost_s, WorkerRow.id.not_in(refused),
        )  # fmt: skip
        if submission.state != 'queued' or session.scalar(others):
            return settled
        cancel_jobs(session, submission, reason=why, now=now)
        submission.state, submission.finished_at, submission.reason = 'cancelled', now, why
        note(session, 'submission.impossible', submission.id, reason=reason)
        return Settled('cancelled', '')

    # --- both

    def _finish(self, lease_id: str, *, bundle: Bundle | None = None, may_be_stored: bool = False) -> Settled:
        """Take a lease that is `storing` to its end."""
        with self._database.read() as session:
            lease = session.get_one(Lease, lease_id)
            order = job_order(session, lease.job, attempt=lease.attempt)
            benchmark, worker = lease.job.submission.benchmark, lease.worker.name
            fault, digest = lease.fault, lease.digest
        spooled = self._spooled(lease_id, digest)
        if bundle is None and digest:
            bare = bare_bundle(spooled.read_bytes())
            if bundle_digest(bare) != digest:
                return self._refuse_result(lease_id, spooled, 'its bytes are not those that were accepted')
            bundle = unpack_bundle(bare, limits=self._limits)
        if bundle is None:
            bundle = Bundle(episode=ended_episode(order, fault, operator=worker), trajectory=None)
        try:
            episode = self._put(benchmark, bundle, by=worker, may_be_stored=may_be_stored)
        except (StoreError, InputError) as error:
            if not digest or isinstance(error, WriteError):
                raise
            return self._refuse_result(lease_id, spooled, str(error))
        except Refusal as refusal:
            if refusal.code != QUARANTINED:
                raise
            return self._keep(lease_id)
        fault_point('result.stored' if digest else 'expiry.stored')
        with self._database.write() as session:
            settled, is_finished = settle(session, lease_id, episode, now=self._database.clock())
        fault_point('result.settled')
        if digest:
            spooled.unlink(missing_ok=True)
        if is_finished:
            self.open_finished()
        return settled

    def _keep(self, lease_id: str) -> Settled:
        """The store is damaged: the end of a lease is on disk and waits for its repair; the cell is free for others."""
        with self._database.write() as session:
            lease = locked_lease(session, lease_id)
            if lease.state != 'kept':
                lease.state, lease.ended_at = 'kept', self._database.clock()
                note(session, 'result.keep', lease.id, job=lease.job_id)
        return KEPT

    def _put(self, benchmark: BenchmarkRow, bundle: Bundle, *, by: str, may_be_stored: bool) -> Episode:
        """Add an attempt to the store, unless it is there; gives the episode that is."""
        episode = bundle.episode
        with self.quarantine.around(benchmark), _told_if_full(), self._store_lock:
            store = open_store(self._config.folder, benchmark)
            if may_be_stored and (stored := stored_attempt(store, episode.key)) is not None:
                return stored
            trajectories = None if bundle.trajectory is None else {episode.key: bundle.trajectory}
            store.append([episode], trajectories=trajectories, media=bundle.media, by=by)
            if len(store.parts()) > MANY_PARTS:
                compact_store(store.path)
        return episode

    def _refuse_result(self, lease_id: str, spooled: Path, why: str) -> Settled:
        """A result that was sound by itself, and that the store would not take: the attempt is INVALID."""
        with self._database.write() as session:
            lease = locked_lease(session, lease_id)
            lease.digest, lease.fault = '', Fault(FaultKind.HOST_ANSWER, f'the store refused its result: {why}').reason
            note(session, 'result.refuse', lease.id, job=lease.job_id, why=why)
        move_durably(spooled, self._config.folder / LATE / spooled.name)
        return self._finish(lease_id)

    def open_finished(self) -> int:
        """Tell the record the names whose blinding has ended; how many were told.

        Not while one of its episodes is under way: a record that was told the names takes no more of them.
        """
        under_way = (
            select(JobRow.submission_id).join(Lease, Lease.job_id == JobRow.id).where(Lease.state.in_(UNSETTLED))
        )
        with self._database.read() as session:
            due = list(
                session.scalars(
                    select(Submission).where(
                        Submission.opened_at.is_(None), Submission.state.in_(OVER_STATES),
                        Submission.id.not_in(under_way),
                    )
                )
            )  # fmt: skip
        groups: dict[str, list[Submission]] = {}
        for submission in due:
            if is_open(submission.benchmark):
                groups.setdefault(submission.benchmark_id, []).append(submission)
        now = self._database.clock()
        for group in groups.values():
            try:
                with self.quarantine.around(group[0].benchmark), _told_if_full(), self._store_lock:
                    open_names(self._config.folder, group[0].benchmark, group, by='platform', now=now)
            except Refusal as refusal:
                if refusal.code != QUARANTINED:
                    raise
                continue
            with self._database.write() as session:
                for submission in group:
                    session.get_one(Submission, submission.id).opened_at = now
                    note(session, 'submission.open', submission.id)
        return len(due)

    def recover(self) -> int:
        """What a killed server left half done; gives how many leases were brought to their end."""
        now = self._database.clock()
        self._inherited = self.renew_leases()
        with self._database.write() as session:
            session.execute(update(WorkerRow).where(WorkerRow.heard_at > now).values(heard_at=now))
            session.execute(update(Submission).where(Submission.asked_at > now).values(asked_at=now))
            half_done = list(session.scalars(select(Lease.id).where(Lease.state.in_(ENDING))))
        kept = [lease_id for lease_id in half_done if not self._taken_up(lease_id)]
        for orphan in (self._config.folder / SPOOL).iterdir():
            if not orphan.name.startswith(tuple(f'{lease_id}-' for lease_id in kept)):
                orphan.unlink()  # never acknowledged: its worker will send it again
        self.open_finished()
        return len(half_done) - len(kept)

    def renew_leases(self) -> frozenset[str]:
        """Give leases that are under way a full term, begun anew; their ids.

        Nobody could renew or end them while there was no server, no database or no room on the disk, and the clock may
        have been set meanwhile.
        """
        now = self._database.clock()
        with self._database.write() as session:
            live = session.scalars(select(Lease).where(Lease.state.in_(('granted', 'running')))).all()
            for lease in live:
                term = self._config.lease_s if lease.state == 'running' else self._config.claim_s
                lease.expires_at, lease.begun_at = now + term, None if lease.begun_at is None else now
            return frozenset(lease.id for lease in live)

    def check_room(self) -> None:
        """Raise `disk_full` unless the spool takes a file."""
        probe = self._config.folder / SPOOL / 'probe'
        try:
            with _told_if_full():
                write_durably(probe, bytes(PROBE_BYTES))
        finally:
            probe.unlink(missing_ok=True)

    def _taken_up(self, lease_id: str) -> bool:
        """Take a lease that is `storing` or `kept` to its end; False if it is kept: its benchmark is set apart."""
        with self._locked(lease_id):
            with self._database.read() as session:
                if session.get_one(Lease, lease_id).state not in ENDING:
                    return True
            return self._finish(lease_id, may_be_stored=True) is not KEPT

    def retry_storing(self, *, older_than_s: float) -> None:
        """Take up endings that a full disk interrupted, and those that waited for a benchmark which is back."""
        self.quarantine.look_again()
        before, quarantined = self._database.clock() - older_than_s, self.quarantine.benchmark_ids
        is_stuck = or_(Lease.state == 'kept', and_(Lease.state == 'storing', Lease.expires_at < before))
        with self._database.read() as session:
            stuck = session.execute(
                select(Lease.id, JobRow.benchmark_id).join(JobRow, JobRow.id == Lease.job_id).where(is_stuck)
            )
            due = [lease_id for lease_id, benchmark_id in stuck if benchmark_id not in quarantined]
        for lease_id in due:
            self._taken_up(lease_id)

    @contextlib.contextmanager
    def _locked(self, lease_id: str) -> Iterator[None]:
        with self._locks[hash(lease_id) % N_LOCKS]:
            yield


@dataclass(frozen=True, slots=True)
class ExpiredLease:
    """A lease whose time is up, and whose fault that is."""

    lease_id: str
    was_begun: bool
    kind: str
    reason: str


def expired_leases(session: Session, config: PlatformConfig, *, now: float) -> list[ExpiredLease]:
    """Leases whose time is up. Where the cell was there and sound to the end, the policy is to blame.

    A cell that fell silent, or that says it is draining or out of service, is evidence that the rig broke.
    """
    rows = session.execute(
        select(Lease.id, Lease.state, Lease.begun_at, WorkerRow.heard_at, WorkerRow.state)
        .join(WorkerRow, WorkerRow.id == Lease.worker_id)
        .where(Lease.state.in_(('granted', 'running')), Lease.expires_at <= now)
    )
    return [
        _expired_lease(
            lease_id, state, begun_at, is_there=now - heard_at < config.lost_s and cell in ('idle', 'busy'),
            longest_s=config.longest_episode_s, now=now,
        )
        for lease_id, state, begun_at, heard_at, cell in rows
    ]  # fmt: skip


def _expired_lease(
    lease_id: str, state: str, begun_at: float | None, *, is_there: bool, longest_s: float, now: float
) -> ExpiredLease:
    if state == 'granted':
        if is_there:
            return ExpiredLease(lease_id, False, FaultKind.POLICY_WITHDRAWN.value, 'nobody came to its cell in time')
        return ExpiredLease(lease_id, False, FaultKind.WORKER_DEATH.value, 'its cell fell silent before anybody came')
    if is_there and begun_at is not None and now >= begun_at + longest_s:
        reason = f'the episode was not over after {longest_s:g} s'
        return ExpiredLease(lease_id, True, FaultKind.POLICY_LATE.value, reason)
    return ExpiredLease(lease_id, True, FaultKind.WORKER_DEATH.value, 'no heartbeat in time')


def _check_bounds(bundle: Bundle, planned: Episode, plan: TrialPlan, *, leased_s: float) -> None:
    """Refuse what no episode of this plan can come to: a worker's word is held to its own plan.

    In virtual time no episode outlasts its cap; by the wall's clock none outlasts its lease, however slow its host is.
    """
    episode, cap_s = bundle.episode, planned.time_cap_s or 0.0
    longest_s = leased_s + CLOCK_S if plan.loop.clock is Clock.WALL else cap_s + SLACK_S
    if episode.duration_s is None:
        raise _unbounded('an episode without its duration')  # it would take times from the whole board
    if episode.duration_s > longest_s:
        raise _unbounded(f'duration_s is {episode.duration_s:g}, under a time cap of {cap_s:g} s')
    if (path := bundle.trajectory) is not None and np.ptp(path.time_s) > longest_s + CLOCK_S:
        raise _unbounded(f'a trajectory of {np.ptp(path.time_s):g} s, under a time cap of {cap_s:g} s')
    if episode.time_cap_s != planned.time_cap_s:
        raise _unbounded(f'time_cap_s is {episode.time_cap_s}, planned {planned.time_cap_s}')
    if planned.items is not None and (episode.items_placed or 0) > planned.items:
        raise _unbounded(f'{episode.items_placed} items placed, of {planned.items} planned')


def _unbounded(what: str) -> Refusal:
    return Refusal(422, 'out_of_bounds', f'{what}: no episode of this plan can come to that')


def stored_attempt(store: Store, key: tuple[str, int]) -> Episode | None:
    """An attempt that the store has; the first, should there be more."""
    attempts = store.episodes(attempts='all', dropped=True, events=False, where={'episode_id': key[0]})
    return next((e for e in attempts if e.attempt == key[1]), None)


def ended_episode(order: JobOrder, reason: str, *, operator: str) -> Episode:
    """What the record has of an attempt without a result: a failure of the policy, or INVALID if the rig broke."""
    planned = order.planned(operator=operator).replace(duration_s=0.0, reason=reason)
    if not fault_kind(reason.partition(':')[0]).is_the_policys:
        return planned
    return planned.replace(outcome=Outcome.FAILURE, success=False, is_unrecoverable=True)


def fault_kind(text: str) -> FaultKind:
    """The kind of a fault by its name; whatever else a worker says, it is the rig's."""
    return next((k for k in FaultKind if k.value == text), FaultKind.WORKER_DEATH)


@contextlib.contextmanager
def _told_if_full() -> Iterator[None]:
    try:
        yield
    except (OSError, WriteError) as error:
        number = error.number if isinstance(error, WriteError) else error.errno
        if number in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full() from error
        raise
