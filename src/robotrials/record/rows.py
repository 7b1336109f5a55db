"""Episodes as columns: a fraction of the memory of as many objects, each of which is built when it is asked for."""

from __future__ import annotations

import itertools
import json
import math
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robotrials.record.episode import EMPTY, Episode, Outcome, trusted_episodes
from robotrials.record.event import Event, EventKind, EventSource
from robotrials.record.schema import (
    EPISODE_FIELDS,
    EPISODE_SCHEMA,
    EVENT_SCHEMA,
    JSON_FIELDS,
    column_values,
    episodes_to_arrow,
    events_to_arrow,
)

IntArray = NDArray[np.int64]
Change = Callable[[Episode], Episode]
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

    def taken(self, places: NDArray[Any]) -> dict[str, list[Any]]:
        """The values of some rows by field, as an episode holds them."""
        index = pa.array(places)
        found = {name: [value] * len(places) for name, value in self.shared.items()}
        for name, array in self.varying.items():
            found[name] = _built(name, column_values(array.take(index)))
        found['events'] = self._events(places)
        return found

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


class EpisodeRows(Sequence[Episode]):
    """A sequence of episodes that are built as they are read: two readings give equal episodes, not the same ones."""

    def __init__(self, columns: _Columns, places: NDArray[Any], change: Change | None = None) -> None:
        self._columns, self._places, self._change = columns, places, change

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Episode]:
        for first in range(0, len(self._places), BATCH):
            built = trusted_episodes(self._columns.taken(self._places[first : first + BATCH]))
            yield from built if self._change is None else map(self._change, built)

    @overload
    def __getitem__(self, place: int) -> Episode: ...
    @overload
    def __getitem__(self, place: slice) -> EpisodeRows: ...
    def __getitem__(self, place: int | slice) -> Episode | EpisodeRows:
        if isinstance(place, slice):
            return EpisodeRows(self._columns, self._places[place], self._change)
        return next(iter(EpisodeRows(self._columns, self._places[[place]], self._change)))

    def at(self, places: Iterable[int]) -> EpisodeRows:
        """The episodes at these places, in their order."""
        chosen = np.fromiter(places, np.int32)
        return EpisodeRows(self._columns, self._places[chosen], self._change)

    def distinct(self, names: Sequence[str]) -> set[tuple[Any, ...]]:
        """The combinations of these fields that occur, which no change is about."""
        columns, index = self._columns, pa.array(self._places)
        varying = {name: columns.varying[name].take(index) for name in names if name in columns.varying}
        rows = [dict(zip(varying, values, strict=True)) for values in distinct_values(pa.table(varying))]
        return {tuple(row[n] if n in row else columns.shared[n] for n in names) for row in rows}

    def changed(self, change: Change) -> EpisodeRows:
        """The same episodes as `change` makes them, each time that they are read."""
        if self._change is not None:
            raise ValueError('these rows are changed already')
        return EpisodeRows(self._columns, self._places, change)

    def joined(self, others: Iterable[EpisodeRows]) -> EpisodeRows:
        """These episodes and others of the same columns."""
        return EpisodeRows(self._columns, np.concatenate([self._places, *(o._places for o in others)]), self._change)


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
    rest = pc.unique(pa.array(codes)).to_numpy()
    chosen: list[list[Any]] = []
    for names in reversed(values):
        rest, place = np.divmod(rest, len(names))
        chosen.append([names[p] for p in place])
    return set(zip(*reversed(chosen), strict=True)) if chosen else {()}


def pick(episodes: Sequence[Episode], places: Sequence[int]) -> Sequence[Episode]:
    """The episodes at these places: as columns where they are columns."""
    return episodes.at(places) if isinstance(episodes, EpisodeRows) else tuple(episodes[p] for p in places)


def distinct(episodes: Iterable[Episode], *names: str) -> set[tuple[Any, ...]]:
    """The combinations of fields that occur among episodes: of names and flags that identify, not of what happened."""
    if isinstance(episodes, EpisodeRows) and episodes:
        return episodes.distinct(names)
    return {tuple(getattr(episode, name) for name in names) for episode in episodes}


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
