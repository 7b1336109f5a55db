"""The tables. Times are Unix seconds by the server's clock; ids are random text, so that nobody can count them.

Two partial unique indexes hold the queue's promise whatever the code does: a job has one live lease, and so has a
worker.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Float, ForeignKey, Index, Integer, String, Text, UniqueConstraint, func, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

LIVE = ('granted', 'running', 'storing')  # states of a lease that hold a job and a worker
UNSETTLED = (*LIVE, 'kept')  # and those whose end waits for their benchmark's store: they hold a job alone
LIVE_SQL = text("state IN ('granted', 'running', 'storing')")


class Base(DeclarativeBase):
    type_annotation_map = {str: Text, float: Float(53)}  # noqa: RUF012 - SQLAlchemy's own form


class User(Base):
    __tablename__ = 'users'
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[float]
    disabled_at: Mapped[float | None]
    open_submissions: Mapped[int]
    submissions_per_day: Mapped[int]
    requests_per_minute: Mapped[int]


class Token(Base):
    """An API token: only its SHA-256 is here. It has 256 random bits of its own, so a slow hash would add nothing."""

    __tablename__ = 'tokens'
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey('users.id'), index=True)
    label: Mapped[str]
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[str]  # words, one space apart
    created_at: Mapped[float]
    expires_at: Mapped[float | None]
    revoked_at: Mapped[float | None]
    user: Mapped[User] = relationship(lazy='joined')


class SignIn(Base):
    """A browser that showed a token once. Its cookie is random text, of which only the SHA-256 is here."""

    __tablename__ = 'sign_ins'
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    token_id: Mapped[str] = mapped_column(ForeignKey('tokens.id'), index=True)
    created_at: Mapped[float]
    expires_at: Mapped[float] = mapped_column(index=True)
    token: Mapped[Token] = relationship(lazy='joined')


class BenchmarkRow(Base):
    __tablename__ = 'benchmarks'
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    mode: Mapped[str] = mapped_column(String(16))  # open, trial
    state: Mapped[str] = mapped_column(String(16))  # open, collecting, running, closed
    strategy: Mapped[str] = mapped_column(String(32))
    plan: Mapped[str]  # TrialPlan.as_json of the declared plan
    host: Mapped[str]
    reference: Mapped[str]  # USER/NAME of the submission that HRT is measured against, or ''
    arms: Mapped[int | None]  # of a trial: it starts when this many submissions are in
    created_at: Mapped[float]
    closed_at: Mapped[float | None]


class Submission(Base):
    __tablename__ = 'submissions'
    __table_args__ = (
        UniqueConstraint('user_id', 'client_key'),
        UniqueConstraint('benchmark_id', 'policy'),
        UniqueConstraint('benchmark_id', 'code'),
    )
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    benchmark_id: Mapped[str] = mapped_column(ForeignKey('benchmarks.id'), index=True)
    user_id: Mapped[str] = mapped_column(ForeignKey('users.id'), index=True)
    client_key: Mapped[str]
    content: Mapped[str] = mapped_column(String(64))  # SHA-256 of what was asked for
    name: Mapped[str]
    policy: Mapped[str]  # USER/NAME: what the record calls it once it is open
    code: Mapped[str]  # what the record calls it before
    kind: Mapped[str] = mapped_column(String(16))  # client, dial
    dial: Mapped[str]  # PolicyEntry as JSON, or ''
    card: Mapped[str]
    plan: Mapped[str]  # what its jobs are run under
    state: Mapped[str] = mapped_column(String(16), index=True)  # waiting, queued, finished, cancelled, void
    priority: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[float]
    asked_at: Mapped[float | None]  # when its client last asked for a worker
    finished_at: Mapped[float | None]
    opened_at: Mapped[float | None]  # when the record was told its name
    reason: Mapped[str] = mapped_column(default='', server_default='')  # why it was ended before its time
    benchmark: Mapped[BenchmarkRow] = relationship(lazy='joined')
    user: Mapped[User] = relationship(lazy='joined')


class WorkerRow(Base):
    __tablename__ = 'workers'
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    user_id: Mapped[str] = mapped_column(ForeignKey('users.id'))
    host: Mapped[str]
    address: Mapped[str]
    protocol: Mapped[int]
    secret: Mapped[str]  # what its secret is derived from, with a key that lies outside; '': it has to register anew
    state: Mapped[str] = mapped_column(String(16))  # idle, busy, draining, out_of_service, lost
    wanted: Mapped[str] = mapped_column(String(16))  # run, drain, stop
    note: Mapped[str]
    first_at: Mapped[float]  # when it registered for the first time
    registered_at: Mapped[float]
    heard_at: Mapped[float]
    idle_since: Mapped[float | None]
    busy_s: Mapped[float] = mapped_column(default=0.0)  # over all leases that have ended
    spec: Mapped[str] = mapped_column(default='', server_default='')  # of its host as JSON; '': it does not say
    key: Mapped[str] = mapped_column(default='', server_default='')  # public, that it signs results with; in hex


class JobRow(Base):
    """One slot of one submission. `attempt` is the number of the attempt that is under way or comes next."""

    __tablename__ = 'jobs'
    __table_args__ = (
        UniqueConstraint('submission_id', 'slot'),
        Index('jobs_by_place', 'submission_id', 'state', 'position'),
        Index('jobs_by_block', 'benchmark_id', 'state', 'block'),
    )
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey('submissions.id'))
    benchmark_id: Mapped[str] = mapped_column(ForeignKey('benchmarks.id'))
    slot: Mapped[int]  # of the plan
    position: Mapped[int]  # in the order of its benchmark's strategy
    block: Mapped[int]  # of a trial's rotation; 0 elsewhere
    episode_id: Mapped[str] = mapped_column(String(40), index=True)
    state: Mapped[str] = mapped_column(String(16))  # queued, leased, running, done, invalid, cancelled
    attempt: Mapped[int] = mapped_column(default=0)
    failed_on: Mapped[str | None] = mapped_column(String(40))  # the worker that its last attempt broke on
    outcome: Mapped[str] = mapped_column(default='')
    reason: Mapped[str] = mapped_column(default='')
    updated_at: Mapped[float]
    submission: Mapped[Submission] = relationship(lazy='select')


class Lease(Base):
    """A worker for a job until `expires_at`. `storing` is the state from which only its result can bring it on."""

    __tablename__ = 'leases'
    __table_args__ = (
        Index('one_live_lease_per_job', 'job_id', unique=True, sqlite_where=LIVE_SQL, postgresql_where=LIVE_SQL),
        Index('one_live_lease_per_worker', 'worker_id', unique=True, sqlite_where=LIVE_SQL, postgresql_where=LIVE_SQL),
        Index('leases_by_end', 'state', 'expires_at'),
        Index('leases_by_grant', 'granted_at'),
    )
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey('jobs.id'), index=True)
    worker_id: Mapped[str] = mapped_column(ForeignKey('workers.id'), index=True)
    user_id: Mapped[str] = mapped_column(ForeignKey('users.id'))  # whose submission it serves: for fair shares
    attempt: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))  # granted, running, storing, kept, done, failed, unclaimed
    granted_at: Mapped[float]
    begun_at: Mapped[float | None]
    expires_at: Mapped[float]
    ended_at: Mapped[float | None]
    digest: Mapped[str] = mapped_column(String(64), default='')  # of the result that was accepted
    fault: Mapped[str] = mapped_column(default='')  # why it ended without one
    steps: Mapped[int] = mapped_column(default=0)  # as far as the worker told
    job: Mapped[JobRow] = relationship(lazy='select')
    worker: Mapped[WorkerRow] = relationship(lazy='select')


class LateResult(Base):
    """An upload that came after its lease had ended: kept aside, never counted."""

    __tablename__ = 'late_results'
    __table_args__ = (UniqueConstraint('lease_id', 'digest'),)
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    lease_id: Mapped[str] = mapped_column(ForeignKey('leases.id'))
    digest: Mapped[str] = mapped_column(String(64))
    file: Mapped[str]
    received_at: Mapped[float]


class AuditEntry(Base):
    """One state change. Entries are chained by hash, and the database refuses to change or delete one."""

    __tablename__ = 'audit'
    seq: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer, 'sqlite'), primary_key=True, autoincrement=False
    )
    at: Mapped[float]
    actor: Mapped[str]
    action: Mapped[str]
    subject: Mapped[str]
    detail: Mapped[str]
    previous: Mapped[str] = mapped_column(String(64))
    sha256: Mapped[str] = mapped_column(String(64))


# The audit trail: every state change is one entry, chained by hash to the one before, in the same transaction.
# Services say what they change with `note`; `Database.write` puts the notes at the end of the chain just before it
# commits, so that the lock on the chain is held for as short as can be.

START = '0' * 64
CHAIN_LOCK = 0x7472_6961_6C  # of PostgreSQL's advisory locks: one writer at the end of the chain
PAGE = 1000
_LAST = select(AuditEntry.seq, AuditEntry.sha256).order_by(AuditEntry.seq.desc()).limit(1)


def note(session: Session, action: str, subject: str, **detail: Any) -> None:
    """Say what this transaction changes; it is put on record with it, or not at all."""
    session.info.setdefault('notes', []).append((action, subject, detail))


def write_notes(session: Session, *, now: float) -> None:
    """Put the notes of a transaction at the end of the chain."""
    notes = session.info.pop('notes', [])
    if not notes:
        return
    if session.get_bind().dialect.name == 'postgresql':
        session.execute(text('SELECT pg_advisory_xact_lock(:key)'), {'key': CHAIN_LOCK})
    last = session.execute(_LAST).one_or_none()
    seq, previous = (0, START) if last is None else (last[0], last[1])
    actor = session.info.get('actor', 'server')
    for action, subject, detail in notes:
        seq += 1
        entry = AuditEntry(
            seq=seq, at=now, actor=actor, action=action, subject=subject, previous=previous,
            detail=json.dumps(detail, sort_keys=True, ensure_ascii=True),
        )  # fmt: skip
        entry.sha256 = previous = entry_hash(entry)
        session.add(entry)


def entry_hash(entry: AuditEntry) -> str:
    """SHA-256 over everything that an entry says, and over the entry before it."""
    values = [entry.seq, repr(float(entry.at)), entry.actor, entry.action, entry.subject, entry.detail, entry.previous]
    return hashlib.sha256(json.dumps(values, ensure_ascii=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TrailCheck:
    """Whether the chain is whole; if not, the first entry at which it breaks and how."""

    n_entries: int
    head: str
    broken_at: int | None = None
    why: str = ''

    @property
    def is_whole(self) -> bool:
        return self.broken_at is None


def check_trail(session: Session) -> TrailCheck:
    """Recompute the whole chain."""
    previous, seq = START, 0
    while True:
        page = session.scalars(
            select(AuditEntry).where(AuditEntry.seq > seq).order_by(AuditEntry.seq).limit(PAGE)
        ).all()
        for entry in page:
            if entry.seq != seq + 1:
                return TrailCheck(seq, previous, entry.seq, f'entry {seq + 1} is missing')
            if entry.previous != previous:
                return TrailCheck(seq, previous, entry.seq, 'it does not follow the entry before it')
            if entry_hash(entry) != entry.sha256:
                return TrailCheck(seq, previous, entry.seq, 'its hash does not fit what it says')
            previous, seq = entry.sha256, entry.seq
        session.expunge_all()
        if len(page) < PAGE:
            return TrailCheck(seq, previous)


def read_trail(session: Session, *, after: int = 0, limit: int = 100) -> list[AuditEntry]:
    """Entries after a number, oldest first."""
    return list(session.scalars(select(AuditEntry).where(AuditEntry.seq > after).order_by(AuditEntry.seq).limit(limit)))


def trail_length(session: Session) -> int:
    return session.scalar(select(func.coalesce(func.max(AuditEntry.seq), 0))) or 0
