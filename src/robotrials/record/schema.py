"""The Arrow schemas of the episode and event tables, their version, and the migrations between versions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from robotrials.errors import RecordError, StoreError
from robotrials.record.episode import (
    LARGEST_COUNT,
    LARGEST_SEED,
    Episode,
    Event,
    EventKind,
    EventSource,
    Outcome,
    check_maps,
    frozen_map,
    trusted_episodes,
)

SCHEMA_VERSION = 3


def spare_pandas() -> None:
    """Have pyarrow look for pandas now, and not find it.

    It looks at its first list, or first column of texts, to tell pandas' missing values from others: importing pandas
    takes longer than a verb's answer, and no verb of ours has any. `from_pandas` and `to_pandas` look again.
    """
    if 'pandas' not in sys.modules:
        sys.meta_path.insert(0, _NoPandas)
        try:
            pa.array([''])
        finally:
            sys.meta_path.remove(_NoPandas)


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == 'pandas':
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)


# A migration takes a table of the version it is filed under to the next version.
Migration = Callable[[pa.Table], pa.Table]

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
        pa.field('duration_s', pa.float64()),
        pa.field('steps', pa.int32()),
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
        pa.field('name', _NAMES, nullable=False),  # of a phase
    ]
)


def _with_steps(table: pa.Table) -> pa.Table:
    """Version 2 knows control steps, and durations may be absent."""
    at = table.column_names.index('duration_s')
    table = table.set_column(at, EPISODE_SCHEMA.field('duration_s'), table.column('duration_s'))
    return table.add_column(at + 1, EPISODE_SCHEMA.field('steps'), pa.nulls(table.num_rows, pa.int32()))


def _with_phase_names(table: pa.Table) -> pa.Table:
    """Version 2 names phases."""
    unnamed = pa.array([''] * table.num_rows, pa.string()).dictionary_encode().cast(_NAMES)
    return table.append_column(EVENT_SCHEMA.field('name'), unnamed)


def _as_it_is(table: pa.Table) -> pa.Table:
    """Version 3 has the points of contacts, in trajectories alone: a column that an older one lacks is null there."""
    return table


EPISODE_MIGRATIONS: dict[int, Migration] = {1: _with_steps, 2: _as_it_is}
EVENT_MIGRATIONS: dict[int, Migration] = {1: _with_phase_names, 2: _as_it_is}

JSON_FIELDS = ('condition_parameters', 'labels')
EPISODE_FIELDS = tuple(EPISODE_SCHEMA.names)
FEW_ROWS = 32  # which are built one by one in less time than columns are checked
LEAST_FLOAT, LARGEST_FLOAT = float(np.nextafter(0, 1)), float(np.finfo(float).max)


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
    return _table(columns, EPISODE_SCHEMA)


def _table(columns: Mapping[str, list[Any]], schema: pa.Schema) -> pa.Table:
    arrays = []
    for field in schema:
        try:
            arrays.append(pa.array(columns[field.name], type=field.type))
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise RecordError(f'{field.name} cannot be stored as {field.type}: {error}') from error
    return pa.table(arrays, schema=schema)


def events_to_arrow(episodes: Iterable[Episode]) -> pa.Table:
    """Every event of the episodes, in order."""
    rows = [
        (e.episode_id, e.attempt, v.t_s, v.kind.value, v.source.value, v.count, v.name)
        for e in episodes for v in e.events
    ]  # fmt: skip
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(EVENT_SCHEMA)
    return _table(dict(zip(EVENT_SCHEMA.names, map(list, columns), strict=True)), EVENT_SCHEMA)


def episodes_from_arrow(table: pa.Table, events: Mapping[tuple[str, int], tuple[Event, ...]]) -> list[Episode]:
    """The episodes of a table, checked; a bad row is named by its number in the table."""
    columns = {name: column_values(table.column(name)) for name in EPISODE_FIELDS}
    for name in JSON_FIELDS:
        parsed = {text: json.loads(text) for text in set(columns[name])}
        wrong = next((text for text, values in parsed.items() if not isinstance(values, dict)), None)
        if wrong is not None:
            raise RecordError(f'row {columns[name].index(wrong)}: {name} is {wrong!r}, wanted a JSON object')
        columns[name] = [parsed[text] for text in columns[name]]
    keys = zip(columns['episode_id'], columns['attempt'], strict=True)
    columns['events'] = [events.get(key, ()) for key in keys] if table.num_rows and events else [()] * table.num_rows
    if table.num_rows > FEW_ROWS and (built := _built_at_once(table, columns)) is not None:
        return built
    names = list(columns)
    episodes = []
    for number, values in enumerate(zip(*columns.values(), strict=True)):
        try:
            episodes.append(Episode(**dict(zip(names, values, strict=True))))
        except RecordError as error:
            raise RecordError(f'row {number}: {error}') from error
    return episodes


def _built_at_once(table: pa.Table, columns: dict[str, list[Any]]) -> list[Episode] | None:
    """The same episodes where whole columns keep the record's rules; None where a row has to be looked at."""
    outcomes = {outcome.value: outcome for outcome in Outcome}
    if any(columns['events']) or any(text not in outcomes for text in set(columns['outcome'])):
        return None
    if not all(all(columns[name]) for name in ('policy', 'task', 'episode_id')) or not _are_in_bounds(table):
        return None
    frozen: dict[str, list[Any]] = {}
    for name in JSON_FIELDS:
        given = {id(values): values for values in columns[name]}  # each text was parsed once
        try:
            for values in given.values():
                check_maps(**{name: values})
        except RecordError:
            return None
        built = {place: frozen_map(values) for place, values in given.items()}
        frozen[name] = [built[id(values)] for values in columns[name]]
    return trusted_episodes({**columns, **frozen, 'outcome': [outcomes[text] for text in columns['outcome']]})


def _are_in_bounds(table: pa.Table) -> bool:
    bounds = {
        **dict.fromkeys(('attempt', 'repeat', 'steps', 'items', 'items_placed', 'items_lost'), (0, LARGEST_COUNT)),
        'seed': (-LARGEST_SEED, LARGEST_SEED), 'instance': (-LARGEST_SEED, LARGEST_SEED),
        'duration_s': (0.0, LARGEST_FLOAT), 'time_cap_s': (LEAST_FLOAT, LARGEST_FLOAT),
    }  # fmt: skip
    for name, (least, most) in bounds.items():
        if table.schema.field(name).type != EPISODE_SCHEMA.field(name).type:
            return False
        values = table[name].drop_null().to_numpy()
        if not ((values >= least) & (values <= most)).all():
            return False
    if table.schema.field('started_at').type != EPISODE_SCHEMA.field('started_at').type:
        return False
    counts = (table[name].to_numpy().astype(np.float64) for name in ('items', 'items_placed', 'items_lost'))
    items, placed, lost = counts  # NaN where there is none
    if (np.nan_to_num(placed) + np.nan_to_num(lost) > items).any():
        return False
    score, most = (table[name].to_numpy() for name in ('score', 'max_score'))  # NaN where there is none
    return bool((table['score'].is_null().to_numpy() | ((score >= 0) & (score <= most))).all())


def events_by_episode(table: pa.Table) -> dict[tuple[str, int], tuple[Event, ...]]:
    """Events grouped by (episode_id, attempt)."""
    grouped: dict[tuple[str, int], list[Event]] = {}
    columns = {name: column_values(table.column(name)) for name in EVENT_SCHEMA.names}
    kinds, sources = {k.value: k for k in EventKind}, {s.value: s for s in EventSource}
    columns['kind'] = [kinds.get(k, k) for k in columns['kind']]
    columns['source'] = [sources.get(s, s) for s in columns['source']]
    for episode_id, attempt, *event in zip(*columns.values(), strict=True):
        grouped.setdefault((episode_id, attempt), []).append(Event(*event))
    return {key: tuple(found) for key, found in grouped.items()}


def column_values(column: Any) -> list[Any]:
    """An Arrow column as a Python list, several times faster than `to_pylist` for names and numbers."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if array.null_count == len(array):
        return [None] * len(array)
    values: list[Any]
    if pa.types.is_dictionary(array.type) and array.null_count == 0:
        names = np.array([*array.dictionary.to_pylist(), None], dtype=object)
        values = names[array.indices.to_numpy()].tolist()
    elif array.null_count == 0 and (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        values = array.to_numpy().tolist()
    else:
        values = array.to_pylist()
    return values


def migrate(table: pa.Table, version: int, *, migrations: Mapping[int, Migration], where: str) -> pa.Table:
    """Bring a table of an older schema up to today's; a newer one asks for a newer robotrials."""
    if version > SCHEMA_VERSION:
        raise StoreError(
            f'{where}: schema version {version}, this robotrials reads up to {SCHEMA_VERSION}; upgrade robotrials'
        )
    while version < SCHEMA_VERSION:
        if version not in migrations:
            raise StoreError(f'{where}: schema version {version} has no migration to {version + 1}')
        table = migrations[version](table)
        version += 1
    return table
