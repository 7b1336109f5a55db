"""The table of episodes: columns in memory, read once a state of the store, and filtered there."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robotrials.errors import UnknownName
from robotrials.record import Store
from robotrials.record.counted import CountedColumns, counted_columns
from robotrials.record.select import Where

FILTERS = ('policy', 'benchmark', 'task', 'stratum', 'condition', 'outcome', 'session', 'operator')
COLUMNS = (*FILTERS, 'duration_s', 'items', 'items_placed', 'success', 'episode_id', 'attempt', 'reason')
PAGE_ROWS = 100
MOST_CHOICES = 200
SORTS = ('place', 'duration_s', 'items_placed', 'outcome', 'policy')


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeIndex:
    """Every counted episode: the columns that filters and the table need, as codes."""

    ids: pa.StringArray
    attempts: NDArray[np.int64]
    codes: Mapping[str, NDArray[np.int64]]  # filter -> (n,) place of its value in `values`
    values: Mapping[str, tuple[str, ...]]
    duration_s: NDArray[np.float64]  # NaN where absent
    placed: NDArray[np.int64]  # -1 where absent
    items: NDArray[np.int64]
    success: NDArray[np.int8]  # -1 where absent
    reasons: pa.Array

    def __len__(self) -> int:
        return len(self.ids)

    def key(self, place: int) -> tuple[str, int]:
        return self.ids[place].as_py(), int(self.attempts[place])

    def place(self, key: tuple[str, int]) -> int:
        """Where an episode stands; -1 if it is not here."""
        rows = np.flatnonzero(pc.equal(self.ids, key[0]).to_numpy(zero_copy_only=False) & (self.attempts == key[1]))
        return int(rows[0]) if len(rows) else -1

    def matching(self, wanted: Mapping[str, Sequence[str]]) -> NDArray[np.int64]:
        """The rows that have one of the wanted values in every field asked for, in order."""
        mask = np.ones(len(self), dtype=np.bool_)
        for name, choices in wanted.items():
            if name == 'episode_id':
                begins = [pc.starts_with(self.ids, choice).to_numpy(zero_copy_only=False) for choice in choices]
                mask &= np.any(begins, axis=0)
                continue
            if name not in self.codes:
                raise UnknownName('filter', name, (*FILTERS, 'episode_id'))
            known = {value: code for code, value in enumerate(self.values[name])}
            mask &= np.isin(self.codes[name], [known[c] for c in choices if c in known])
        return np.flatnonzero(mask)

    def ordered(self, rows: NDArray[np.int64], sort: str) -> NDArray[np.int64]:
        """Rows by a column; a leading minus turns it round, and rows without a value come last."""
        name = sort.removeprefix('-')
        if name not in SORTS:
            raise UnknownName('order', name, SORTS)
        if name == 'place':
            return rows[::-1] if sort.startswith('-') else rows
        column = {'duration_s': self.duration_s, 'items_placed': self.placed.astype(float)}.get(name)
        ranked = self.codes[name].astype(float) if column is None else column
        values = np.where(ranked < 0, np.nan, ranked)[rows]
        return rows[np.argsort(-values if sort.startswith('-') else values, kind='stable')]

    def choices(self, name: str, rows: NDArray[np.int64]) -> list[tuple[str, int]]:
        """The values of a field among some rows, with how many each has."""
        counts = np.bincount(self.codes[name][rows], minlength=len(self.values[name]))
        return [(value, int(n)) for value, n in zip(self.values[name], counts, strict=True) if n][:MOST_CHOICES]

    def row(self, place: int) -> dict[str, Any]:
        """One line of the table."""
        key = self.key(place)
        fields: dict[str, Any] = {name: self.values[name][self.codes[name][place]] for name in FILTERS}
        duration_s, success = float(self.duration_s[place]), int(self.success[place])
        return {
            **fields, 'episode_id': key[0], 'attempt': key[1], 'reason': self.reasons[place].as_py() or '',
            'duration_s': None if np.isnan(duration_s) else duration_s,
            'placed': None if self.placed[place] < 0 else int(self.placed[place]),
            'items': None if self.items[place] < 0 else int(self.items[place]),
            'success': None if success < 0 else bool(success),
        }  # fmt: skip


def build_index(store: Store, *, where: Where | None = None) -> EpisodeIndex:
    """Read the columns that the table needs, as the store shows itself: an open trial without its arms."""
    return _index(counted_columns(store, COLUMNS, where=where))


def _index(table: pa.Table) -> EpisodeIndex:
    codes: dict[str, NDArray[np.int64]] = {}
    values: dict[str, tuple[str, ...]] = {}
    for name in FILTERS:
        values[name], codes[name] = _coded(table[name])
    return EpisodeIndex(
        ids=_whole(table['episode_id']),
        attempts=table['attempt'].to_numpy().astype(np.int64),
        codes=codes,
        values=values,
        duration_s=_filled(table['duration_s'], np.nan).astype(np.float64),
        placed=_filled(table['items_placed'], -1).astype(np.int64),
        items=_filled(table['items'], -1).astype(np.int64),
        success=_filled(table['success'].cast(pa.int8()), -1).astype(np.int8),
        reasons=_whole(table['reason']),
    )


def _filled(column: pa.ChunkedArray, absent: float) -> NDArray[Any]:
    return np.asarray(pc.fill_null(column, pa.scalar(absent, column.type)).to_numpy())


def _whole(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined


def _coded(column: pa.ChunkedArray) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The values that occur, sorted, and each row's place among them."""
    array = _whole(column)
    indices = array.indices.to_numpy()
    names = array.dictionary.to_pylist()
    used = sorted(np.flatnonzero(np.bincount(indices, minlength=len(names))).tolist(), key=names.__getitem__)
    rank = np.zeros(len(names), np.int64)
    rank[used] = np.arange(len(used))
    return tuple(names[k] for k in used), rank[indices]


class LiveIndex:
    """The index of a store, brought up to date when the store has changed: only what is new is read."""

    def __init__(self, store: Store, *, where: Where | None = None) -> None:
        self._store, self._columns = store, CountedColumns(store, COLUMNS, where=where)
        self._lock = threading.Lock()
        self._head = ''
        self._index: EpisodeIndex | None = None

    def now(self) -> EpisodeIndex:
        with self._lock:
            head = self._store.head() or str(self._store.count())
            if self._index is None or head != self._head:
                self._index, self._head = _index(self._columns.read()), head
            return self._index
