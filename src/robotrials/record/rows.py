"""Episodes as columns: a fraction of the memory of as many objects, each of which is built when it is asked for.

The Arrow schemas of the episode and event tables, their version, and the migrations between versions.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import pickle
import sys
import types
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from operator import attrgetter
from typing import Any, Generic, TypeVar, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robotrials.errors import RecordError, StoreError
from robotrials.record.episode import (
    EMPTY,
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
from robotrials.value import dataclass

SCHEMA_VERSION = 3
LONGEST_SHOWN = 60
REIMPORT = 'run: robotrials store verify, and import the source again into a new store'


def spare_pandas() -> None:
    """Have pyarrow look for pandas and dateutil now, and not find them.

    It looks at its first list, or first column of texts, to tell pandas' missing values and dateutil's intervals from
    others: importing pandas takes longer than a verb's answer, and no verb of ours has any. `from_pandas` and
    `to_pandas` look again.
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
        if name in ('pandas', 'dateutil'):
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
        values = list(map(attrgetter(name), episodes))
        if name in JSON_FIELDS:
            values = [json.dumps(dict(v), sort_keys=True) if v else '{}' for v in values]
        elif name == 'outcome':
            values = [v.value for v in values]
        columns[name] = values
    return _table(columns, EPISODE_SCHEMA)


def _table(columns: Mapping[str, list[Any]], schema: pa.Schema) -> pa.Table:
    arrays = []
    for wanted in schema:
        try:
            arrays.append(pa.array(columns[wanted.name], type=wanted.type))
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise RecordError(f'{wanted.name} cannot be stored as {wanted.type}: {error}') from error
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
    if not all(columns['episode_id']):
        row = next(n for n, text in enumerate(columns['episode_id']) if not text)
        raise RecordError(f'row {row}: episode_id is empty, wanted an id; {REIMPORT}')
    for name in JSON_FIELDS:
        parsed = {text: _json_object(text) for text in set(columns[name])}
        wrong = next((text for text, values in parsed.items() if values is None), None)
        if wrong is not None:
            excerpt = wrong if len(wrong) <= LONGEST_SHOWN else f'{wrong[:LONGEST_SHOWN]}...'
            raise RecordError(
                f'row {columns[name].index(wrong)}: {name} is {excerpt!r}, wanted a JSON object; {REIMPORT}'
            )
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


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


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


def keeps_rules(table: pa.Table) -> bool:
    """Whether columns keep the record's rules, no episode being built; if not, reading row by row names the row."""
    texts = {
        name: table[name].unify_dictionaries().combine_chunks().dictionary_decode().unique().to_pylist()
        for name in ('policy', 'task', 'outcome', *JSON_FIELDS)
    }
    if not all(texts['policy']) or not all(texts['task']) or not set(texts['outcome']) <= set(Outcome):
        return False
    try:
        for name in JSON_FIELDS:
            for text in texts[name]:
                if (values := _json_object(text)) is None:
                    return False
                check_maps(**{name: values})
    except (RecordError, TypeError):
        return False
    return bool(pc.all(pc.not_equal(table['episode_id'], '')).as_py()) and _are_in_bounds(table)


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
    if np.isinf(score).any() or not np.isfinite(table['max_score'].drop_null().to_numpy()).all():
        return False
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
    return {key: tuple(events) for key, events in grouped.items()}


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


def migrate(table: pa.Table, version: int, *, schema: pa.Schema = EPISODE_SCHEMA, where: str) -> pa.Table:
    """Bring a table of an older schema up to today's, in its types; a newer one asks for a newer robotrials."""
    migrations = EVENT_MIGRATIONS if schema is EVENT_SCHEMA else EPISODE_MIGRATIONS
    if version > SCHEMA_VERSION:
        raise StoreError(
            f'{where}: schema version {version}, this robotrials reads up to {SCHEMA_VERSION}; upgrade robotrials'
        )
    while version < SCHEMA_VERSION:
        if version not in migrations:
            raise StoreError(f'{where}: schema version {version} has no migration to {version + 1}')
        table = migrations[version](table)
        version += 1
    return in_schema(table, schema, where=where)


def in_schema(table: pa.Table, schema: pa.Schema, *, where: str) -> pa.Table:
    """The columns of a schema, in its order; StoreError for one that no writer of ours makes."""
    if table.schema.equals(schema) and not any(
        table.column(k).null_count for k, column in enumerate(schema) if not column.nullable
    ):
        return table.replace_schema_metadata(schema.metadata)
    columns = []
    for column in schema:
        places = table.schema.get_all_field_indices(column.name)
        if len(places) != 1:
            raise StoreError(f'{where}: {len(places) or "no"} columns {column.name}, wanted one; {REIMPORT}')
        values = table.column(places[0])
        if values.type != column.type:
            raise StoreError(f'{where}: {column.name} is of type {values.type}, wanted {column.type}; {REIMPORT}')
        if not column.nullable and values.null_count:
            raise StoreError(
                f'{where}: {column.name} is absent in {values.null_count} rows, wanted it in all; {REIMPORT}'
            )
        columns.append(values)
    return pa.table(columns, schema=schema)


IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
BATCH = 4096
EVENT_FIELDS = tuple(name for name in EVENT_SCHEMA.names if name not in ('episode_id', 'attempt'))
SMALL_CODES = (np.int8, np.int16, np.int32)
# The canonical order: by what an episode is, never by when or where it was written.
PLACE = (
    'policy', 'benchmark', 'task', 'stratum', 'condition', 'condition_parameters', 'instance', 'seed', 'repeat',
    'episode_id', 'attempt',
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """What all rows share is kept once; the rest as arrays of one length."""

    shared: dict[str, Any]
    varying: dict[str, pa.Array]
    events: dict[str, pa.Array]
    event_ends: IntArray | None  # (n,) where a row's events end; None where no row has any
    length: int
    numberings: dict[Hashable, Numbering] = field(default_factory=dict)

    def codes(self, name: str) -> tuple[NDArray[Any], pa.Array]:
        """(n,) the number of each row's value, and the values; what is absent has the number after the last."""
        array = self.varying[name]
        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        indices = array.indices.fill_null(len(array.dictionary)) if array.null_count else array.indices
        return indices.to_numpy(), array.dictionary

    def array(self, name: str) -> pa.Array:
        """(n,) a column of numbers or truths, whether or not rows share it."""
        kind = EPISODE_SCHEMA.field(name).type
        return pa.repeat(pa.scalar(self.shared[name], kind), self.length) if name in self.shared else self.varying[name]

    def lacks(self, name: str) -> BoolArray:
        """(n,) whether a row has nothing under this name: no number, or an empty text."""
        if name in self.shared:
            return np.full(self.length, self.shared[name] in (None, ''))
        array = self.varying[name]
        if pa.types.is_dictionary(array.type):
            array = pc.equal(array.dictionary, '').take(array.indices)
            return np.asarray(array.fill_null(True).to_numpy(zero_copy_only=False), dtype=np.bool_)
        return np.asarray(array.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)

    def taken(self, places: NDArray[Any]) -> dict[str, list[Any]]:
        """The values of some rows by field, as an episode holds them."""
        index = pa.array(places)
        columns = {name: [value] * len(places) for name, value in self.shared.items()}
        for name, array in self.varying.items():
            columns[name] = _built(name, column_values(array.take(index)))
        columns['events'] = self._events(places)
        return columns

    def _events(self, places: NDArray[Any]) -> list[tuple[Event, ...]]:
        if self.event_ends is None:
            return [()] * len(places)
        ends = self.event_ends[places]
        starts = np.where(places > 0, self.event_ends[places - 1], 0)
        wanted = np.concatenate([np.arange(a, b) for a, b in zip(starts, ends, strict=True)])
        columns = {name: column_values(self.events[name].take(pa.array(wanted))) for name in EVENT_FIELDS}
        columns['kind'] = [EventKind(kind) for kind in columns['kind']]
        columns['source'] = [EventSource(source) for source in columns['source']]
        every = iter([Event(*values) for values in zip(*columns.values(), strict=True)])
        return [tuple(itertools.islice(every, n)) for n in (ends - starts).tolist()]


class Numbering:
    """A number for every different label of some columns' rows; the labels are made when one is asked for."""

    def __init__(self, columns: _Columns, numbers: IntArray, first: IntArray, label: Callable[[Episode], Hashable]):
        self.numbers = numbers  # (n,) -1: no label
        self._columns, self._first, self._label = columns, first, label
        self._labels: list[Hashable] = []

    def __call__(self, number: int) -> Hashable:
        if not self._labels:
            self._labels = [self._label(episode) for episode in EpisodeRows(self._columns, self._first)]
        return self._labels[number]


class EpisodeRows(Sequence[Episode]):
    """A sequence of episodes that are built as they are read: two readings give equal episodes, not the same ones.

    What needs whole columns asks for them (`floats`, `flags`, `outcomes`, `codes`), and builds none.
    """

    def __init__(self, columns: _Columns, places: NDArray[Any]) -> None:
        self._columns, self._places = columns, places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Episode]:
        for first in range(0, len(self._places), BATCH):
            yield from trusted_episodes(self._columns.taken(self._places[first : first + BATCH]))

    @overload
    def __getitem__(self, place: int) -> Episode: ...
    @overload
    def __getitem__(self, place: slice) -> EpisodeRows: ...
    def __getitem__(self, place: int | slice) -> Episode | EpisodeRows:
        if isinstance(place, slice):
            return EpisodeRows(self._columns, self._places[place])
        return next(iter(EpisodeRows(self._columns, self._places[[place]])))

    def at(self, places: Iterable[int]) -> EpisodeRows:
        """The episodes at these places, in their order."""
        chosen = places if isinstance(places, np.ndarray) else np.fromiter(places, np.int32)
        return EpisodeRows(self._columns, self._places[chosen])

    @property
    def has_events(self) -> bool:
        return self._columns.event_ends is not None

    def is_absent(self, name: str) -> bool:
        """Whether no row has a value under this name."""
        columns = self._columns
        return columns.shared[name] is None if name in columns.shared else bool(np.isnan(self.floats(name)).all())

    def is_known(self, name: str) -> bool:
        """Whether every row has a value under this name."""
        columns = self._columns
        if name in columns.shared:
            return columns.shared[name] is not None
        return not columns.varying[name].null_count or not np.isnan(self.floats(name)).any()

    def lacks(self, name: str) -> BoolArray:
        """(n,) whether a row has nothing under this name: no number, an empty text, or no events."""
        ends = self._columns.event_ends
        lacking: BoolArray
        if name != 'events':
            lacking = self._columns.lacks(name)[self._places]
        elif ends is None:
            lacking = np.full(len(self._places), True)
        else:
            lacking = (np.diff(ends, prepend=0) == 0)[self._places]
        return lacking

    def floats(self, name: str) -> FloatArray:
        """(n,) a column of numbers, or of moments as seconds since 1970; NaN where one is absent."""
        columns = self._columns
        if name in columns.shared:
            return np.full(len(self), _as_number(columns.shared[name]))
        array = columns.varying[name].take(pa.array(self._places))
        if pa.types.is_timestamp(array.type):
            array = pc.divide(pc.cast(pc.cast(array, pa.int64()), pa.float64()), 1e6)
        return np.asarray(pc.cast(array, pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)

    def flags(self, name: str) -> NDArray[np.int8]:
        """(n,) a column of truths: 1, 0, and -1 where one is absent."""
        columns = self._columns
        if name in columns.shared:
            value = columns.shared[name]
            return np.full(len(self), -1 if value is None else int(value), np.int8)
        array = columns.varying[name].take(pa.array(self._places))
        return np.asarray(pc.cast(array, pa.int8()).fill_null(-1).to_numpy(), dtype=np.int8)

    def ended(self, outcome: Outcome) -> BoolArray:
        """(n,) whether each ended so."""
        columns = self._columns
        if 'outcome' in columns.shared:
            return np.full(len(self), columns.shared['outcome'] is outcome)
        codes, values = columns.codes('outcome')
        is_so: BoolArray = np.array([value == outcome.value for value in values.to_pylist()])[codes[self._places]]
        return is_so

    def successes(self) -> BoolArray:
        """(n,) `Episode.is_success` of each."""
        flags = self.flags('success')
        return np.where(flags < 0, self.ended(Outcome.SUCCESS), flags == 1)

    def codes(self, *names: str) -> tuple[IntArray, list[tuple[Any, ...]]]:
        """(n,) the number of each row's combination of these fields, and the combinations, as they first appear."""
        codes = self._mixed(names)
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        rank = np.empty(len(first), dtype=np.int64)
        order = np.argsort(first)
        rank[order] = np.arange(len(first))
        built = self._columns.taken(self._places[first[order]])
        return rank[inverse], list(zip(*(built[name] for name in names), strict=True))

    def _mixed(self, names: Sequence[str]) -> IntArray:
        """(n,) one number for each combination of the fields that vary, however large."""
        mixed = np.zeros(len(self), np.int64)
        for name in (n for n in names if n in self._columns.varying):
            own, values = self._columns.codes(name)
            if int(mixed.max(initial=0)) >= np.iinfo(np.int64).max // (len(values) + 1):
                mixed = np.unique(mixed, return_inverse=True)[1]
            mixed = mixed * (len(values) + 1) + own[self._places]
        return mixed

    def numbered(
        self, names: Sequence[str], label: Callable[[Episode], Hashable], *, told_by: Sequence[str],
        first_only: bool = False,
    ) -> tuple[IntArray, Numbering]:  # fmt: skip
        """(n,) the number of each row's label, which depends on these fields alone, in a numbering of all rows.

        A row that has none of the fields `told_by` has no label (-1); with `first_only` those after the first that it
        has do not tell labels apart.
        """
        columns = self._columns
        key = (tuple(names), label)
        if key not in columns.numberings:
            every = self.whole
            has = [~columns.lacks(name) for name in told_by]
            mixed = every._mixed([n for n in names if n not in told_by])
            for place, name in enumerate(told_by):
                mixed = np.unique(mixed, return_inverse=True)[1]
                own = every._mixed([name])
                ignored = np.logical_or.reduce(has[:place]) if first_only and place else np.zeros(len(own), np.bool_)
                mixed = mixed * (int(own.max(initial=0)) + 2) + np.where(ignored, 0, own + 1)
            _, first, numbers = np.unique(mixed, return_index=True, return_inverse=True)
            numbers = np.where(np.logical_or.reduce(has), numbers, -1)
            columns.numberings[key] = Numbering(columns, numbers, first, label)
        numbering = columns.numberings[key]
        return numbering.numbers[self._places], numbering

    def distinct(self, names: Sequence[str]) -> set[tuple[Any, ...]]:
        """The combinations of these fields that occur, which no change is about."""
        columns, index = self._columns, pa.array(self._places)
        varying = {name: columns.varying[name].take(index) for name in names if name in columns.varying}
        rows = [dict(zip(varying, values, strict=True)) for values in distinct_values(pa.table(varying))]
        return {tuple(row[n] if n in row else columns.shared[n] for n in names) for row in rows}

    @property
    def whole(self) -> EpisodeRows:
        """All rows of these columns, as they were read."""
        return EpisodeRows(self._columns, np.arange(self._columns.length))

    def array(self, name: str) -> pa.Array:
        """A column of numbers or truths of the whole."""
        return self._columns.array(name)

    def with_columns(self, values: Mapping[str, pa.Array]) -> EpisodeRows:
        """The same episodes with other values of some fields: arrays as long as the whole."""
        columns = self._columns
        shared = {name: value for name, value in columns.shared.items() if name not in values}
        arrays = {**columns.varying, **{name: _narrow(array) for name, array in values.items()}}
        return EpisodeRows(_Columns(shared, arrays, columns.events, columns.event_ends, columns.length), self._places)

    def joined(self, others: Iterable[EpisodeRows]) -> EpisodeRows:
        """These episodes and others of the same columns."""
        return EpisodeRows(self._columns, np.concatenate([self._places, *(o._places for o in others)]))


def distinct_values(table: pa.Table) -> set[tuple[Any, ...]]:
    """The combinations of values that occur in the columns; one of nothing without columns.

    By codes, because `group_by` imports pyarrow's datasets and query engine for it.
    """
    values: list[list[Any]] = []
    codes = np.zeros(table.num_rows if table.num_columns else 1, np.int64)
    for column in table.columns:
        array = column.unify_dictionaries().combine_chunks()
        array = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        values.append([None, *array.dictionary.to_pylist()])
        codes = codes * len(values[-1]) + pc.fill_null(array.indices.cast(pa.int64()), -1).to_numpy() + 1
    if math.prod(map(len, values)) > np.iinfo(np.int64).max:
        whole = table.unify_dictionaries().group_by(table.column_names).aggregate([])
        return {tuple(row.values()) for row in whole.to_pylist()}
    # `pa.array` would import numpy's masked arrays, to ask whether this is one.
    rest = pc.unique(pa.Array.from_buffers(pa.int64(), len(codes), [None, pa.py_buffer(codes)])).to_numpy()
    chosen: list[list[Any]] = []
    for names in reversed(values):
        rest, place = np.divmod(rest, len(names))
        chosen.append([names[p] for p in place])
    return set(zip(*reversed(chosen), strict=True)) if chosen else {()}


def pick(episodes: Sequence[Episode], places: Sequence[int] | IntArray) -> Sequence[Episode]:
    """The episodes at these places: as columns where they are columns."""
    return episodes.at(places) if isinstance(episodes, EpisodeRows) else tuple(episodes[p] for p in places)


def distinct(episodes: Iterable[Episode], *names: str) -> set[tuple[Any, ...]]:
    """The combinations of fields that occur among episodes: of names and flags that identify, not of what happened."""
    if isinstance(episodes, EpisodeRows) and episodes:
        return episodes.distinct(names)
    return {tuple(getattr(episode, name) for name in names) for episode in episodes}


def column(episodes: Sequence[Episode], name: str) -> FloatArray:
    """(n,) a field of numbers, or of moments as seconds since 1970; NaN where one is absent."""
    if isinstance(episodes, EpisodeRows):
        return episodes.floats(name)
    return np.array([_as_number(getattr(episode, name)) for episode in episodes], dtype=np.float64)


def _as_number(value: Any) -> float:
    if value is None:
        return np.nan
    return value.timestamp() if isinstance(value, dt.datetime) else float(value)


def lacks(episodes: Sequence[Episode], name: str) -> BoolArray:
    """(n,) whether each episode has nothing under this name: no number, an empty text, or no events."""
    if isinstance(episodes, EpisodeRows):
        return episodes.lacks(name)
    return np.array([getattr(episode, name) in (None, '', ()) for episode in episodes], dtype=np.bool_)


def ended(episodes: Sequence[Episode], outcome: Outcome) -> BoolArray:
    """(n,) whether each episode ended so."""
    if isinstance(episodes, EpisodeRows):
        return episodes.ended(outcome)
    return np.array([episode.outcome is outcome for episode in episodes], dtype=np.bool_)


def coded(episodes: Sequence[Episode], *names: str) -> tuple[IntArray, list[tuple[Any, ...]]]:
    """(n,) the number of each episode's combination of these fields, and the combinations, as they first appear."""
    if isinstance(episodes, EpisodeRows):
        return episodes.codes(*names)
    numbers: dict[tuple[Any, ...], int] = {}
    codes = [numbers.setdefault(tuple(getattr(e, name) for name in names), len(numbers)) for e in episodes]
    return np.array(codes, dtype=np.int64), list(numbers)


def kinds(episodes: Sequence[Episode], *names: str) -> tuple[IntArray, tuple[Episode, ...]]:
    """(n,) the number of each episode's combination of these fields, and the first episode of each combination."""
    if isinstance(episodes, EpisodeRows):
        codes, _ = episodes.codes(*names)
    else:
        numbers: dict[tuple[Any, ...], int] = {}
        fields = (tuple(_hashable(getattr(e, name)) for name in names) for e in episodes)
        codes = np.array([numbers.setdefault(values, len(numbers)) for values in fields], dtype=np.int64)
    return codes, tuple(pick(episodes, np.unique(codes, return_index=True)[1]))


def _hashable(value: Any) -> Hashable:
    return tuple(value.items()) if isinstance(value, Mapping) else value


def join(groups: Sequence[Sequence[Episode]]) -> Sequence[Episode]:
    """Several groups of one selection, one after the other."""
    first, *others = groups or ((),)
    rows = [other for other in others if isinstance(other, EpisodeRows)]
    if isinstance(first, EpisodeRows) and len(rows) == len(others):
        return first.joined(rows)
    return tuple(episode for group in groups for episode in group)


def ordered_rows(episodes: Iterable[Episode]) -> EpisodeRows:
    """Episodes as columns, in the canonical order, in memory that never holds more than a batch of objects."""
    stream = iter(episodes)
    parts: list[dict[str, pa.Array]] = []
    events: list[dict[str, pa.Array]] = []
    counts: list[NDArray[Any]] = []
    while batch := list(itertools.islice(stream, BATCH)):
        table = episodes_to_arrow(batch)
        parts.append({name: _narrow(table[name].combine_chunks()) for name in EPISODE_FIELDS})
        counts.append(np.array([len(e.events) for e in batch], np.int32))
        rows = events_to_arrow(batch)
        if rows.num_rows:
            events.append({name: _narrow(rows[name].combine_chunks()) for name in EVENT_FIELDS})
    length = sum(map(len, counts))
    joined = {name: _joined([p.pop(name) for p in parts], EPISODE_SCHEMA.field(name).type) for name in EPISODE_FIELDS}
    shared = _shared(joined)
    happened = {name: _joined([e.pop(name) for e in events], EVENT_SCHEMA.field(name).type) for name in EVENT_FIELDS}
    ends = np.cumsum(np.concatenate(counts), dtype=np.int64) if events else None
    columns = _Columns(shared, joined, happened, ends, length)
    return EpisodeRows(columns, _order(columns))


def ordered_columns(table: pa.Table) -> EpisodeRows:
    """The rows of an episodes table, none of which has events, in the canonical order: no episode is built."""
    kinds = {name: EPISODE_SCHEMA.field(name).type for name in EPISODE_FIELDS}
    varying = {name: _joined([_narrow(c) for c in table[name].chunks], kind) for name, kind in kinds.items()}
    columns = _Columns(_shared(varying), varying, {}, None, table.num_rows)
    return EpisodeRows(columns, _order(columns))


def _shared(arrays: dict[str, pa.Array]) -> dict[str, Any]:
    """What all rows share, as an episode holds it, which is taken out of the arrays."""
    alike = [name for name, array in arrays.items() if name != 'episode_id' and len(pc.unique(array)) == 1]
    return {name: _built(name, column_values(arrays.pop(name).slice(0, 1)))[0] for name in alike}


def _order(columns: _Columns) -> NDArray[np.int32]:
    """The rows in the canonical order; an absent number comes before every other."""
    keys = {}
    for name in (n for n in PLACE if n in columns.varying):
        array = columns.varying[name]
        if pa.types.is_dictionary(array.type):
            names = array.dictionary.to_pylist()
            rank = np.argsort(np.array(sorted(range(len(names)), key=names.__getitem__), np.int32)).astype(np.int32)
            array = pa.array(rank[array.indices.to_numpy()])
        if array.null_count:
            keys[f'{name} is there'] = pc.cast(pc.is_valid(array), pa.int8())
            array = pc.fill_null(array, 0)
        keys[name] = array
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, 'ascending') for name in keys]).to_numpy()
    return np.asarray(order, np.int32)


def _narrow(array: pa.Array) -> pa.Array:
    """The same values in fewer bytes: absent ones in none, codes of few names in one each."""
    if array.null_count == len(array):
        return pa.nulls(len(array))
    if pa.types.is_dictionary(array.type):
        return _coded(array.indices.to_numpy(), array.dictionary.to_pylist())
    return array


def _coded(codes: NDArray[Any], names: Sequence[str]) -> pa.Array:
    kind = next(k for k in SMALL_CODES if len(names) <= np.iinfo(k).max)
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(kind)), pa.array(names, pa.string()))


def _joined(parts: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        whole = pa.concat_arrays([p.cast(kind) for p in parts]) if parts else pa.array([], kind)
        return pa.nulls(len(whole)) if whole.null_count == len(whole) else whole
    places: dict[str, int] = {}
    codes = [np.zeros(0, np.int32)]
    for part in parts:
        own = [places.setdefault(name, len(places)) for name in part.dictionary.to_pylist()]
        codes.append(np.array(own, np.int32)[part.indices.to_numpy()])
    return _coded(np.concatenate(codes), list(places))


def _built(name: str, values: list[Any]) -> list[Any]:
    """A column's values as an episode holds them."""
    if name == 'outcome':
        return [Outcome(value) for value in values]
    if name in JSON_FIELDS:
        made = {text: types.MappingProxyType(json.loads(text)) if text != '{}' else EMPTY for text in set(values)}
        return [made[text] for text in values]
    return values


# Many values that are made once and read a few times in order: kept as bytes, and built again as they are read.

Value = TypeVar('Value')
PACKED_BATCH = 1024
FAST = 1  # zlib: more effort saves a tenth at most


class Packed(Sequence[Value], Generic[Value]):
    """A sequence of immutable values that grows at its end; of more than a thousand most are compressed batches.

    Two readings give equal values, not the same ones. Pickles never leave the process that made them.
    """

    def __init__(self, values: Iterable[Value] = ()) -> None:
        self._batches: list[bytes] = []
        self._last: list[Value] = []
        for value in values:
            self.append(value)

    def append(self, value: Value) -> None:
        if len(self._last) == PACKED_BATCH:
            self._batches.append(zlib.compress(pickle.dumps(self._last, protocol=5), FAST))
            self._last = []
        self._last.append(value)

    def __len__(self) -> int:
        return PACKED_BATCH * len(self._batches) + len(self._last)

    def __iter__(self) -> Iterator[Value]:
        for number in range(len(self._batches)):
            yield from self._batch(number)
        yield from self._last

    @overload
    def __getitem__(self, place: int) -> Value: ...
    @overload
    def __getitem__(self, place: slice) -> Packed[Value]: ...
    def __getitem__(self, place: int | slice) -> Value | Packed[Value]:
        if isinstance(place, slice):
            return Packed(self[k] for k in range(*place.indices(len(self))))
        number, rest = divmod(range(len(self))[place], PACKED_BATCH)
        return (self._last if number == len(self._batches) else self._batch(number))[rest]

    def _batch(self, number: int) -> list[Value]:
        values: list[Value] = pickle.loads(zlib.decompress(self._batches[number]))
        return values
