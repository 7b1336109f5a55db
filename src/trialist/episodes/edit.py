"""The overlay of edits: an append-only log over immutable recordings. Each edit says who, when and why."""

from __future__ import annotations

import datetime as dt
import enum
import fcntl
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trialist.episodes.episode import Episode
from trialist.episodes.event import enum_member
from trialist.errors import InputError, RecordError, StoreError, UnknownName

IDENTITY_FIELDS = ('trial_id', 'episode_id', 'attempt', 'events')
REQUIRED_FIELDS = ('policy', 'task', 'outcome', 'duration_s', 'is_reference', 'condition', 'repeat')


class EditOperation(enum.StrEnum):
    SET = 'set'
    DROP = 'drop'
    UNDROP = 'undrop'


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Set a field of an episode, drop the episode from every analysis, or take the drop back."""

    episode_id: str
    operation: EditOperation
    by: str
    why: str
    at: str
    attempt: int | None = None  # None: every attempt
    field: str = ''
    value: Any = None

    def concerns(self, episode_id: str, attempt: int) -> bool:
        return self.episode_id == episode_id and self.attempt in (None, attempt)


@dataclass(frozen=True, slots=True)
class Edits:
    """All edits of a store, in order, found by episode."""

    by_episode: Mapping[str, tuple[Edit, ...]]

    @classmethod
    def of(cls, edits: Iterable[Edit]) -> Edits:
        grouped: dict[str, list[Edit]] = {}
        for edit in edits:
            grouped.setdefault(edit.episode_id, []).append(edit)
        return cls({key: tuple(value) for key, value in grouped.items()})

    def apply(self, episode: Episode) -> Episode:
        """The episode as edited; drops do not change it."""
        changes = {
            e.field: e.value
            for e in self.by_episode.get(episode.episode_id, ())
            if e.operation is EditOperation.SET and e.concerns(*episode.key)
        }
        if not changes:
            return episode
        try:
            return episode.replace(**changes)
        except (RecordError, TypeError, ValueError, AttributeError) as error:
            told = ', '.join(f'{name}={value!r}' for name, value in changes.items())
            raise StoreError(
                f'the edits of episode {episode.episode_id} attempt {episode.attempt} ({told}) can not stand together: '
                f'{error}; correct it with: trialist store edit STORE {episode.episode_id} set FIELD=VALUE'
            ) from error

    def is_dropped(self, episode_id: str, attempt: int) -> bool:
        dropped = False
        for edit in self.by_episode.get(episode_id, ()):
            if edit.concerns(episode_id, attempt) and edit.operation is not EditOperation.SET:
                dropped = edit.operation is EditOperation.DROP
        return dropped


def check_edit(edit: Edit, episode: Episode, *, before: Sequence[Edit] = ()) -> None:
    """Refuse an edit that names no such field, touches the identity, or leaves an episode that breaks the rules.

    `episode` is as it was recorded, `before` the edits already made.
    """
    if not edit.by.strip() or not edit.why.strip():
        raise InputError('an edit says who and why: both `by` and `why` must be given')
    if edit.operation is not EditOperation.SET:
        if edit.field or edit.value is not None:
            raise InputError(f'{edit.operation} takes no field, found {edit.field!r}; `set` changes a field')
        return
    known = sorted(set(Episode.__dataclass_fields__) - set(IDENTITY_FIELDS))
    if edit.field in IDENTITY_FIELDS:
        raise InputError(f'{edit.field} is part of the identity and can not be edited; drop the episode instead')
    if edit.field not in known:
        raise UnknownName('field of an episode', edit.field, known)
    if edit.value in (None, '') and edit.field in REQUIRED_FIELDS:
        raise InputError(f'{edit.episode_id}: {edit.field} can not be taken away; wanted a value')
    try:
        Edits.of([*before, edit]).apply(episode)
    except StoreError as error:
        reason = error.__cause__ or error
        raise InputError(f'{edit.episode_id}: setting {edit.field} to {edit.value!r}: {reason}') from error


def write_edit(path: Path, edit: Edit) -> None:
    """Append one edit durably; writers take turns, and a line torn by a killed writer is cut off first."""
    told = {k: v for k, v in asdict(edit).items() if k == 'value' or v not in (None, '')}
    try:
        line = (json.dumps(told, ensure_ascii=False, default=_plain) + '\n').encode()
    except UnicodeEncodeError as error:
        raise InputError(f'the edit {told} holds half of a character; wanted whole Unicode text') from error
    with path.open('a+b') as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.seek(0)
        content = stream.read()
        if content and not content.endswith(b'\n'):
            stream.truncate(content.rfind(b'\n') + 1)
        stream.write(line)
        stream.flush()
        os.fsync(stream.fileno())


def _plain(value: object) -> object:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise InputError(f'{value!r} can not be written to the log of edits')


def read_edits(path: Path) -> list[Edit]:
    """All acknowledged edits; a last line without its newline was never acknowledged and is left out."""
    if not path.exists():
        return []
    edits = []
    try:
        content = path.read_bytes().decode('utf-8')
    except UnicodeDecodeError as error:
        raise StoreError(f'{path}: not UTF-8 text (byte {error.start}); run: trialist store verify') from error
    whole = content[: content.rfind('\n') + 1]
    for number, line in enumerate(whole.split('\n')[:-1], start=1):
        edits.append(parse_edit(line, where=f'{path} line {number}'))
    return edits


def parse_edit(line: str, *, where: str) -> Edit:
    """One line of the log."""
    try:
        values = json.loads(line)
        operation = enum_member(EditOperation, values.pop('operation'), 'operation')
        if values.get('field') == 'started_at' and values.get('value') is not None:
            values['value'] = dt.datetime.fromisoformat(values['value'])
        return Edit(operation=operation, **values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f'{where}: not an edit ({error}); wanted one JSON object a line') from error


def now() -> str:
    """The time of an edit: UTC, to the second."""
    return dt.datetime.now(dt.UTC).isoformat(timespec='seconds')
