"""The overlay of edits over immutable recordings. Each edit says who, when and why, and which attempt it is about.

Edits are entries of the commit log, and are applied in its order: an edit made in the knowledge of another comes after
it; of two that were made side by side, the one with the later time (then the larger id) comes later. The later one
wins, field by field. An edit that would break the record's rules where it stands is set aside, and named by `verify`.
"""

from __future__ import annotations

import datetime as dt
import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, RecordError, StoreError, UnknownName
from robotrials.record.episode import Episode
from robotrials.record.event import enum_member

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
    attempt: int | None = None  # None: every attempt (in the log of older versions only)
    field: str = ''
    value: Any = None
    approved_by: str = ''  # a second person, without whom nothing is edited once the trial is closed

    def concerns(self, episode_id: str, attempt: int) -> bool:
        return self.episode_id == episode_id and self.attempt in (None, attempt)

    def sets(self, episode_id: str, attempt: int) -> bool:
        return self.operation is EditOperation.SET and self.concerns(episode_id, attempt)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the commit log."""
        told = {k: v for k, v in asdict(self).items() if k == 'value' or v not in (None, '')}
        try:
            text = json.dumps(told, ensure_ascii=False, default=_plain, allow_nan=False)
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(f'the edit {told} holds half of a character; wanted whole Unicode text') from error
        except ValueError as error:
            raise InputError(f'the edit {told} holds a number that is none ({error})') from error
        return dict(json.loads(text))


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
        """The episode as edited; drops do not change it, and what can't stand with the rest is left out."""
        if episode.episode_id not in self.by_episode:
            return episode
        return self._applied(episode)[0]

    def set_aside(self, episode: Episode) -> list[tuple[Edit, Exception]]:
        """The edits of an episode that can't stand with those before them, and why."""
        return self._applied(episode)[1]

    def _applied(self, episode: Episode) -> tuple[Episode, list[tuple[Edit, Exception]]]:
        settings = [e for e in self.by_episode.get(episode.episode_id, ()) if e.sets(*episode.key)]
        if not settings:
            return episode, []
        try:
            return episode.replace(**{e.field: e.value for e in settings}), []
        except (RecordError, TypeError, ValueError, AttributeError):
            pass
        aside: list[tuple[Edit, Exception]] = []
        for edit in settings:
            try:
                episode = episode.replace(**{edit.field: edit.value})
            except (RecordError, TypeError, ValueError, AttributeError) as error:
                aside.append((edit, error))
        return episode, aside

    def sets(self, episode_id: str, attempt: int, field: str) -> bool:
        """Whether an edit sets this field of an attempt."""
        edits = self.by_episode.get(episode_id, ())
        return any(e.field == field and e.sets(episode_id, attempt) for e in edits)

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
        raise InputError(f'{edit.field} is part of the identity and cannot be edited; drop the episode instead')
    if edit.field not in known:
        raise UnknownName('field of an episode', edit.field, known)
    if edit.value in (None, '') and edit.field in REQUIRED_FIELDS:
        raise InputError(f'{edit.episode_id}: {edit.field} cannot be taken away; wanted a value')
    aside = [(e, error) for e, error in Edits.of([*before, edit]).set_aside(episode) if e is edit]
    if aside:
        raise InputError(f'{edit.episode_id}: setting {edit.field} to {edit.value!r}: {aside[0][1]}') from aside[0][1]


def _plain(value: object) -> object:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise InputError(f'{value!r} cannot be written to the log of edits')


def read_edits(path: Path) -> list[Edit]:
    """The edits of an older version's log; a last line without its newline was never acknowledged and is left out."""
    return [edit for edit in listed_edits(path) if isinstance(edit, Edit)]


def listed_edits(path: Path) -> list[Edit | StoreError]:
    """Every line of an older version's log, as an edit or as what is wrong with it: a bad line costs only itself."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b'\n')[:-1]
    return [_parsed(line, where=f'{path} line {number}') for number, line in enumerate(lines, start=1)]


def _parsed(line: bytes, *, where: str) -> Edit | StoreError:
    try:
        return edit_from_json(json.loads(line.decode('utf-8')), where=where)
    except StoreError as error:
        return error
    except (ValueError, RecursionError) as error:
        return StoreError(f'{where}: not an edit ({error}); wanted one JSON object a line')


def edit_from_json(values: Mapping[str, Any], *, where: str) -> Edit:
    """The inverse of `Edit.as_json`."""
    try:
        given = dict(values)
        operation = enum_member(EditOperation, given.pop('operation'), 'operation')
        if given.get('field') == 'started_at' and given.get('value') is not None:
            given['value'] = dt.datetime.fromisoformat(given['value'])
        if not all(
            isinstance(given.get(name, ''), str) for name in ('episode_id', 'field', 'by', 'why', 'at', 'approved_by')
        ):
            raise TypeError('ids, fields, names, reasons and times must be text')
        return Edit(operation=operation, **given)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f'{where}: not an edit ({error})') from error


def now() -> str:
    """The time of an edit: UTC, to the second."""
    return dt.datetime.now(dt.UTC).isoformat(timespec='seconds')
