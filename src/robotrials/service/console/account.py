"""What an operator says of an episode, and whether it can be so.

The same rules are in `static/console-rules.js`, for a page that has no server now; a test holds them to each other.
"""

from __future__ import annotations

import datetime as dt
import enum
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from robotrials.errors import InputError, RobotrialsError, StoreError
from robotrials.record import Episode, Event, EventKind, EventSource, Outcome
from robotrials.record.folder import disk

CLOCK_SLACK_S = 0.5
TEXT = 500


class Label(enum.StrEnum):
    SUCCESS = 'success'
    TIMEOUT = 'timeout'
    SAFETY = 'safety'
    FAULT = 'fault'


OUTCOMES = {
    Label.SUCCESS: Outcome.SUCCESS,
    Label.TIMEOUT: Outcome.TIMEOUT,
    Label.SAFETY: Outcome.SAFETY_STOP,
    Label.FAULT: Outcome.INVALID,
}


class MarkKind(enum.StrEnum):
    PLACEMENT = 'placement'
    DROP_OUTSIDE = 'drop_outside'


class _Given(BaseModel):
    model_config = ConfigDict(extra='forbid', allow_inf_nan=False)


class GivenMark(_Given):
    t_s: float = Field(ge=0, le=1e6)
    kind: MarkKind


class GivenStop(_Given):
    """That the arm was stopped by the operator, when, and whether the hook confirmed it (None: nobody has said)."""

    t_s: float = Field(ge=0, le=1e6)
    confirmed: bool | None = None


class GivenCounts(_Given):
    placed: int | None = Field(default=None, le=1_000_000)
    source: int | None = Field(default=None, le=1_000_000)
    lost: int | None = Field(default=None, le=1_000_000)


class Account(_Given):
    """One episode as it stands: a draft while it is under way, and the record when it is saved."""

    started_ms: int = Field(ge=0, le=10**14)  # since 1970, by the server's clock
    duration_s: float | None = Field(default=None, ge=0, le=1e6)  # None: the clock runs
    marks: list[GivenMark] = Field(default_factory=list, max_length=2000)
    stop: GivenStop | None = None
    label: Label | None = None
    counts: GivenCounts = Field(default_factory=GivenCounts)
    note: str = Field(default='', max_length=TEXT)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an account cannot be so, and the field of the page that it is about."""

    field: str
    why: str
    is_missing: bool = False  # something is still to be said; nothing that was said is wrong


def find_trouble(account: Account, *, items: int | None, time_cap_s: float) -> Trouble | None:
    """The first reason why this cannot be saved."""
    if account.duration_s is None:
        return Trouble('clock', 'the clock still runs: stop it first')
    if account.duration_s > time_cap_s + CLOCK_SLACK_S:
        return Trouble('clock', f'{account.duration_s:.1f} s is more than the time cap of {time_cap_s:g} s')
    counted = _count_trouble(account, items)
    if counted is not None and not counted.is_missing:
        return counted
    if account.label is None:
        return Trouble('label', 'say how it ended', is_missing=True)
    return counted or _label_trouble(account, account.label, items, time_cap_s)


def _count_trouble(account: Account, items: int | None) -> Trouble | None:
    if account.label is Label.FAULT:
        return None  # an episode that is run again has nothing to count
    given = {name: getattr(account.counts, name) for name in ('placed', 'source', 'lost')}
    for name, count in given.items():
        if count is not None and count < 0:
            return Trouble(name, f'{count} is less than none')
    known = {name: count for name, count in given.items() if count is not None}
    if items is not None:
        total = sum(known.values())
        absent = [name for name in given if name not in known]
        if total > items or (total < items and not absent):
            where = 'source' if 'source' in known else list(known)[-1]
            return Trouble(where, f'{" + ".join(known)} = {total}, and there were {items} items')
        if absent:
            return Trouble(absent[0], 'count these too', is_missing=True)
    for kind, name, word in ((MarkKind.PLACEMENT, 'placed', 'placements'), (MarkKind.DROP_OUTSIDE, 'lost', 'losses')):
        n_marked = sum(1 for mark in account.marks if mark.kind is kind)
        if name in known and n_marked > known[name]:
            return Trouble(
                name, f'{n_marked} {word} were marked and {known[name]} counted: undo a mark, or count again'
            )
    return None


def _label_trouble(account: Account, label: Label, items: int | None, time_cap_s: float) -> Trouble | None:
    placed, source = account.counts.placed, account.counts.source
    if label is Label.SUCCESS and items is not None and placed != items:
        return Trouble('placed', f'a success places all {items} items, and {placed} are counted')
    if label is Label.TIMEOUT and items is not None and placed == items:
        return Trouble('label', f'all {items} items are placed: that is a success')
    if account.stop is not None and label in (Label.SUCCESS, Label.TIMEOUT):
        return Trouble('label', 'you stopped the arm: that is Safety, or a system fault')
    left_s = time_cap_s - (account.duration_s or 0.0)
    if label is Label.TIMEOUT and left_s > CLOCK_SLACK_S and source != 0:
        return Trouble(
            'label', f'{left_s:.1f} s were left, and there was something left to do: it did not run out of time'
        )
    return None


def finished_episode(planned: Episode, account: Account) -> Episode:
    """The planned episode with what came of it; the account has no trouble."""
    if account.label is None or account.duration_s is None:
        raise InputError('an account without its end was to be stored')
    end_s = account.duration_s
    events = [Event(min(m.t_s, end_s), EventKind(m.kind.value), EventSource.OPERATOR) for m in account.marks]
    labels = dict(planned.labels)
    if account.label is Label.SAFETY:
        stop_s = end_s if account.stop is None else min(account.stop.t_s, end_s)
        events.append(Event(stop_s, EventKind.SAFETY_STOP, EventSource.OPERATOR))
    if account.stop is not None and account.stop.confirmed is not None:
        labels['arm_stop'] = 'confirmed' if account.stop.confirmed else 'not confirmed'
    is_fault = account.label is Label.FAULT
    note = account.note.strip()
    reason = ': '.join(part for part in ('operator: system fault' if is_fault else '', note) if part)
    return planned.replace(
        outcome=OUTCOMES[account.label], duration_s=end_s, events=tuple(events), labels=labels, reason=reason,
        started_at=dt.datetime.fromtimestamp(account.started_ms / 1000, dt.UTC),
        items_placed=None if is_fault else account.counts.placed, items_lost=None if is_fault else account.counts.lost,
        success=None if is_fault else account.label is Label.SUCCESS,  # the operator is the judge here
    )  # fmt: skip


# What a page asks of the desk, and how it is refused.


class Action(BaseModel):
    """What a page asks for. `id` is of the episode under way for all but an undo, which has its own."""

    model_config = ConfigDict(extra='forbid')
    kind: Literal['draft', 'record', 'withdraw', 'undo']
    id: str = Field(pattern='^[0-9a-f]{32}$')
    key: str = Field(pattern='^[0-9a-f]{8,64}/[0-9]{1,6}$')
    revision: int = Field(default=0, ge=0)
    account: Account | None = None
    why: str = Field(default='', max_length=TEXT)

    @property
    def name(self) -> str:
        """What it is answered under, once."""
        return f'{self.kind} {self.id}'


class ConsoleRefusal(RobotrialsError):  # noqa: N818 - reads as the fact it states
    """An action that cannot be carried out; `field` is where the page says so."""

    def __init__(self, why: str, *, field: str = '', is_conflict: bool = False) -> None:
        super().__init__(why)
        self.field, self.is_conflict = field, is_conflict


def read_action(body: Mapping[str, Any], *, where: Path) -> Action:
    """An action back from the journal."""
    try:
        return Action.model_validate(body)
    except ValidationError as error:
        reason = error.errors()[0]['msg']
        raise StoreError(f'{where}: an action that this version does not know ({reason})') from error


def parse_key(key: str) -> tuple[str, int]:
    """The episode's id and attempt, of the form that pages use."""
    episode_id, _, attempt = key.partition('/')
    return episode_id, int(attempt)


# The console's journal: every action is on disk before it is answered, so that a power cut loses nothing.
# It lies beside the store (`STORE.console/journal.jsonl`), because a store holds only what its own log vouches for.

Entry = dict[str, Any]


def console_folder(store: Path) -> Path:
    """Where the console of a store keeps its own files; made if it is new."""
    path = store.resolve()
    folder = path.with_name(f'{path.name}.console')
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


class Journal:
    """Lines of JSON, each synced before `add` returns; a last line without its end was never answered, and goes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.entries = self._read()
        disk().sync_folder(path.parent)

    def _read(self) -> list[Entry]:
        content = self.path.read_bytes()
        whole = content[: content.rfind(b'\n') + 1]
        if len(whole) != len(content):
            os.ftruncate(self._handle, len(whole))
        entries = []
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = json.loads(line)
                entry['kind'], entry['at'], entry['body']
            except (ValueError, TypeError, KeyError) as error:
                raise StoreError(
                    f'{self.path} line {number}: not an entry of the console ({error}); the store itself is not '
                    'affected; move this file away, and the console starts a new one'
                ) from error
            entries.append(entry)
        return entries

    def add(self, kind: str, body: Mapping[str, Any]) -> None:
        """Keep one entry for good."""
        entry = {'kind': kind, 'at': dt.datetime.now(dt.UTC).isoformat(timespec='milliseconds'), 'body': dict(body)}
        line = json.dumps(entry, separators=(',', ':'), allow_nan=False).encode() + b'\n'
        with self._lock:
            written = 0
            while written < len(line):
                written += os.write(self._handle, line[written:])
            os.fsync(self._handle)
            self.entries.append(entry)

    def close(self) -> None:
        os.close(self._handle)
