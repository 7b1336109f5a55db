"""The audit trail: every state change is one entry, chained by hash to the one before, in the same transaction.

Services say what they change with `note`; `Database.write` puts the notes at the end of the chain just before it
commits, so that the lock on the chain is held for as short as can be.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from robotrials.service.platform.table import AuditEntry

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
