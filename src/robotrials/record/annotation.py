"""Annotations: what a detector, a reviewer or a sensor says happened in an episode, laid over the recording.

They are entries of the commit log. None replaces another or the recording: a reader chooses whom to believe
(`robotrials.measure.annotate.stream`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from robotrials.errors import InputError, RecordError, StoreError
from robotrials.record.event import Event, EventSource, enum_member

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
