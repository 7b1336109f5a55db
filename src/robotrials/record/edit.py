"""The overlay of edits over immutable recordings. Each edit says who, when and why, and which attempt it is about.

Edits are entries of the commit log, and are applied in its order: an edit made in the knowledge of another comes after
it; of two that were made side by side, the one with the later time (then the larger id) comes later. The later one
wins, field by field. An edit that would break the record's rules where it stands is set aside, and named by `verify`.
"""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, RecordError, StoreError, UnknownName
from robotrials.record.episode import Episode, Event, EventSource, enum_member
from robotrials.value import dataclass

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


# Annotations: what a detector, a reviewer or a sensor says happened in an episode, laid over the recording.
# They are entries of the commit log. None replaces another or the recording: a reader chooses whom to believe
# (`robotrials.measure.annotate.stream`).

MOST_EVENTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One account of one attempt. `count` is how many items it says were placed; `by` is who, or which tool."""

    episode_id: str
    attempt: int
    source: EventSource
    by: str
    events: tuple[Event, ...] = ()
    count: int | None = None
    note: str = ''
    details: Mapping[str, Any] = field(default_factory=dict)  # plain values: thresholds, candidates
    at: str = ''  # set when it is logged

    def __post_init__(self) -> None:
        object.__setattr__(self, 'source', enum_member(EventSource, self.source, 'source'))
        if not str(self.by).strip():
            raise InputError('an annotation wants the name of whoever made it (by)')
        for name in ('by', 'note'):
            value: object = getattr(self, name)
            if not isinstance(value, str) or value != _encodable(value):
                raise InputError(f'{name} is {value!r:.60}, wanted text that can be written as UTF-8')
        if len(self.events) > MOST_EVENTS:
            raise InputError(f'an annotation has {len(self.events)} events, wanted at most {MOST_EVENTS}')
        if self.count is not None and (type(self.count) is not int or self.count < 0):
            raise InputError(f'count is {self.count!r}, wanted a whole number from 0 on')
        for event in self.events:
            if event.source is not self.source:
                raise InputError(f'an event of source {event.source} in an annotation of source {self.source}')
        ordered = tuple(sorted(self.events, key=lambda e: e.t_s))
        object.__setattr__(self, 'events', ordered)

    @property
    def key(self) -> tuple[str, int]:
        return (self.episode_id, self.attempt)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the commit log."""
        return {
            'episode_id': self.episode_id, 'attempt': self.attempt, 'source': self.source.value, 'by': self.by,
            'at': self.at, 'count': self.count, 'note': self.note, 'details': dict(self.details),
            'events': [{'t_s': e.t_s, 'kind': e.kind.value, 'count': e.count, 'name': e.name} for e in self.events],
        }  # fmt: skip


def annotation_from_json(values: Any, *, where: str) -> Annotation:
    """The annotation of an entry's body; what is not one is named."""
    try:
        source = EventSource(values['source'])
        events = tuple(
            Event(float(e['t_s']), e['kind'], source, int(e.get('count', 1)), str(e.get('name', '')))
            for e in values['events']
        )
        count = values.get('count')
        return Annotation(
            episode_id=str(values['episode_id']), attempt=_whole(values['attempt']), source=source,
            by=_encodable(values['by']), at=str(values.get('at', '')), count=count, events=events,
            note=_encodable(values.get('note', '')), details=dict(values.get('details', {})),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecordError) as error:
        raise StoreError(f'{where}: an annotation cannot be read ({error})') from error


def _encodable(value: object) -> str:
    return str(value).encode('utf-8', 'replace').decode()


def _whole(value: object) -> int:
    if type(value) is not int:
        raise InputError(f'{value!r:.60} where a whole number was wanted')
    return value


def check_within(annotation: Annotation, duration_s: float | None) -> None:
    """Refuse events after the end of the episode."""
    end_s = math.inf if duration_s is None else duration_s
    late = next((e for e in annotation.events if e.t_s > end_s + 1e-6), None)
    if late is not None:
        raise InputError(f'{annotation.episode_id}: a mark at {late.t_s:g} s, and the episode ended at {end_s:g} s')
