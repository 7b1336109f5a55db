"""The Arrow schemas of the episode and event tables, their version, and the migrations between versions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from trialist.episodes.episode import Episode, Outcome
from trialist.episodes.event import Event, EventKind, EventSource
from trialist.errors import RecordError, StoreError

SCHEMA_VERSION = 1

# A migration takes a table of the version it is filed under to the next version.
Migration = Callable[[pa.Table], pa.Table]
EPISODE_MIGRATIONS: dict[int, Migration] = {}
EVENT_MIGRATIONS: dict[int, Migration] = {}

_NAMES = pa.dictionary(pa.int32(), pa.string())

EPISODE_SCHEMA = pa.schema(
    [
        pa.field('trial_id', _NAMES, nullable=False),
        pa.field('episode_id', pa.string(), nullable=False),
        pa.field('attempt', pa.int32(), nullable=False),
        pa.field('policy', _NAMES, nullable=False),
        pa.field('is_reference', pa.bool_(), nullable=False),
        pa.field('benchmark', _NAMES, nullable=False),
        pa.field('task', _NAMES, nullable=False),
        pa.field('stratum', _NAMES, nullable=False),
        pa.field('condition', _NAMES, nullable=False),
        pa.field('condition_parameters', _NAMES, nullable=False),  # canonical JSON
        pa.field('seed', pa.int64()),
        pa.field('instance', pa.int64()),
        pa.field('repeat', pa.int32(), nullable=False),
        pa.field('block', _NAMES, nullable=False),
        pa.field('session', _NAMES, nullable=False),
        pa.field('operator', _NAMES, nullable=False),
        pa.field('started_at', pa.timestamp('us', tz='UTC')),
        pa.field('duration_s', pa.float64(), nullable=False),
        pa.field('time_cap_s', pa.float64()),
        pa.field('items', pa.int32()),
        pa.field('items_placed', pa.int32()),
        pa.field('items_lost', pa.int32()),
        pa.field('success', pa.bool_()),
        pa.field('score', pa.float64()),
        pa.field('max_score', pa.float64()),
        pa.field('outcome', _NAMES, nullable=False),
        pa.field('is_unrecoverable', pa.bool_()),
        pa.field('reason', _NAMES, nullable=False),
        pa.field('instruction', _NAMES, nullable=False),
        pa.field('labels', _NAMES, nullable=False),  # canonical JSON
        pa.field('provenance_id', _NAMES, nullable=False),
    ]
)

EVENT_SCHEMA = pa.schema(
    [
        pa.field('episode_id', pa.string(), nullable=False),
        pa.field('attempt', pa.int32(), nullable=False),
        pa.field('t_s', pa.float64(), nullable=False),
        pa.field('kind', _NAMES, nullable=False),
        pa.field('source', _NAMES, nullable=False),
        pa.field('count', pa.int32(), nullable=False),
    ]
)

JSON_FIELDS = ('condition_parameters', 'labels')
EPISODE_FIELDS = tuple(EPISODE_SCHEMA.names)


def episodes_to_arrow(episodes: Sequence[Episode]) -> pa.Table:
    """The episodes as one Arrow table, in order, without their events."""
    columns: dict[str, list[Any]] = {}
    for name in EPISODE_FIELDS:
        values = [getattr(e, name) for e in episodes]
        if name in JSON_FIELDS:
            values = [json.dumps(dict(v), sort_keys=True) if v else '{}' for v in values]
        elif name == 'outcome':
            values = [v.value for v in values]
        columns[name] = values
    return pa.table(columns, schema=EPISODE_SCHEMA)


def events_to_arrow(episodes: Iterable[Episode]) -> pa.Table:
    """Every event of the episodes, in order."""
    rows = [(e.episode_id, e.attempt, v.t_s, v.kind.value, v.source.value, v.count) for e in episodes for v in e.events]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(EVENT_SCHEMA)
    return pa.table(dict(zip(EVENT_SCHEMA.names, map(list, columns), strict=True)), schema=EVENT_SCHEMA)


def episodes_from_rows(
    columns: Mapping[str, Sequence[Any]], events: Mapping[tuple[str, int], tuple[Event, ...]]
) -> list[Episode]:
    """Episodes from column lists (as `to_pydict` gives); a bad row is named by its number in the batch."""
    parsed: dict[tuple[str, str], Any] = {}
    episodes = []
    names = list(columns)
    for number, values in enumerate(zip(*columns.values(), strict=True)):
        row = dict(zip(names, values, strict=True))
        for name in JSON_FIELDS:
            text = row[name]
            if (name, text) not in parsed:
                parsed[name, text] = json.loads(text)
            row[name] = parsed[name, text]
        try:
            episodes.append(Episode(**row, events=events.get((row['episode_id'], row['attempt']), ())))
        except RecordError as error:
            raise RecordError(f'row {number}: {error}') from error
    return episodes


def events_by_episode(table: pa.Table) -> dict[tuple[str, int], tuple[Event, ...]]:
    """Events grouped by (episode_id, attempt)."""
    grouped: dict[tuple[str, int], list[Event]] = {}
    kinds = {k.value: k for k in EventKind}
    sources = {s.value: s for s in EventSource}
    columns = table.to_pydict()
    for episode_id, attempt, t_s, kind, source, count in zip(*(columns[n] for n in EVENT_SCHEMA.names), strict=True):
        event = Event(t_s, kinds[kind], sources[source], count)
        grouped.setdefault((episode_id, attempt), []).append(event)
    return {key: tuple(events) for key, events in grouped.items()}


def migrate(table: pa.Table, version: int, *, migrations: Mapping[int, Migration], where: str) -> pa.Table:
    """Bring a table of an older schema up to today's; a newer one asks for a newer trialist."""
    if version > SCHEMA_VERSION:
        raise StoreError(
            f'{where}: schema version {version}, this trialist reads up to {SCHEMA_VERSION}; upgrade trialist'
        )
    while version < SCHEMA_VERSION:
        if version not in migrations:
            raise StoreError(f'{where}: schema version {version} has no migration to {version + 1}')
        table = migrations[version](table)
        version += 1
    return table


def field_type(name: str) -> Any:
    """The declared type of an episode's field, for parsing edits and tables."""
    return {f.name: f.type for f in dataclasses.fields(Episode)}[name]


OUTCOMES = tuple(o.value for o in Outcome)
