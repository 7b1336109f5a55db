"""Columns of the counted episodes, read as columns: what a table or an index needs, without building an episode.

What an account that can read a store sees of each episode, as numbers: for measuring what a blinded trial gave away.

Rows as they lie in the files, with their pseudonyms and ids; order; names, sizes and times of the files that hold them.
"""

from __future__ import annotations

import datetime as dt
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robotrials.errors import InputError, StoreError
from robotrials.record.blinding import (
    ALL_ARMS,
    KEY_COLUMNS,
    Unblindings,
    UncountedRows,
    Where,
    check_blinded_where,
    check_duplicates,
    check_where,
    coarse_reason,
    column_table,
    named_ids,
    prune_parts,
    rows_named,
    select_attempts,
    where_expression,
)
from robotrials.record.episode import Episode, Outcome
from robotrials.record.ledger import Edits
from robotrials.record.part import PART_NAME, PartInfo, naming_damage
from robotrials.record.rows import EPISODE_SCHEMA, SCHEMA_VERSION, episodes_to_arrow, migrate
from robotrials.record.store import Store, read_store
from robotrials.value import dataclass

MOST_TABLES = 512


def counted_columns(store: Store, names: Sequence[str], *, where: Where | None = None) -> pa.Table:
    """These columns of the episodes that `Store.episodes` gives, in its order: edits, openings and blinding applied."""
    return CountedColumns(store, names, where=where).read()


class CountedColumns:
    """Columns of a store that grows: what was read of a part is kept, since parts never change.

    Edits, openings and the choice of attempts are applied to all rows every time, since any entry may change them.
    """

    def __init__(self, store: Store, names: Sequence[str], *, where: Where | None = None) -> None:
        check_where(where)
        unknown = [name for name in names if name not in EPISODE_SCHEMA.names]
        if unknown:
            raise InputError(f'no column {unknown[0]!r} of episodes; there are {", ".join(EPISODE_SCHEMA.names)}')
        self._store, self._names, self._where = store, list(names), where
        needed = dict.fromkeys([*names, *(where or {}), *KEY_COLUMNS, 'trial_id', 'policy', 'is_reference'])
        self._rows = EPISODE_SCHEMA.empty_table().select(list(needed))  # as recorded, part after part
        self._counts: dict[str, int] = {}  # part -> rows, in the order of `_rows`
        self._ids: list[str] | None = None  # the only ids of which rows were read

    def read(self) -> pa.Table:
        """The columns as the store stands now; only parts that are new are opened, and those of edited episodes."""
        store, where = self._store, self._where
        if store.skip_damaged:
            return episodes_to_arrow(list(store.episodes(where=where, events=False))).select(self._names)
        if store.is_blinded:
            check_blinded_where(where, board=bool(store.board))
        edits, unblindings = store.edits(), store.openings()
        parts = prune_parts(store.parts(), where, edits=edits, unblindings=unblindings)
        self._extend(parts, named_ids(where, edits))
        selection = select_attempts([self._rows], edits)
        check_duplicates(parts, selection.duplicates)
        whole = _counted(self._rows, selection, edits)
        whole = _edited(store, _opened(whole, unblindings), edits)
        if where:
            whole = whole.filter(where_expression(where))
        return (_blinded(whole, board=bool(store.board)) if store.is_blinded else whole).select(self._names)

    def _extend(self, parts: Sequence[PartInfo], ids: list[str] | None) -> None:
        """Bring the rows up to these parts: those of new ones in their place, and none of parts that are gone."""
        if ids != self._ids:
            self._rows, self._counts, self._ids = self._rows.slice(0, 0), {}, ids
        places = {part.path.name: place for place, part in enumerate(parts)}
        if list(places) == list(self._counts):
            return
        new = [part for part in parts if part.path.name not in self._counts]
        counts, tables = dict(self._counts), [self._rows] if len(self._rows) else []
        for part in new:
            tables.append(_part_columns(part, self._rows.column_names, ids))
            counts[part.path.name] = tables[-1].num_rows
            if len(tables) > MOST_TABLES:  # a table of one row takes a thousand times its bytes
                tables = [_one_table(tables)]
        rows = _one_table(tables)
        place = np.repeat([places.get(name, -1) for name in counts], list(counts.values()))
        if np.any(place < 0) or np.any(np.diff(place) < 0):
            order = np.argsort(place, kind='stable')
            rows = rows.take(order[np.count_nonzero(place < 0) :])
        self._rows, self._counts = rows, {name: counts[name] for name in places}


def _one_table(tables: list[pa.Table]) -> pa.Table:
    """The rows of these tables, of which the list is emptied: a column's memory is freed once it was copied."""
    rest = pa.concat_tables(tables).unify_dictionaries()
    tables.clear()
    schema, columns = rest.schema, []
    while rest.num_columns:
        column, rest = rest.column(0), rest.remove_column(0)
        columns.append(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())
    return pa.table(columns, schema=schema)


def _part_columns(part: PartInfo, names: list[str], ids: list[str] | None) -> pa.Table:
    with naming_damage(part.path):
        if part.schema_version == SCHEMA_VERSION and ids is None:
            return column_table(part, names)
        if ids is not None:
            return rows_named(part, ids).select(names)
        return migrate(column_table(part), part.schema_version, where=str(part.path)).select(names)


def _counted(table: pa.Table, selection: UncountedRows, edits: Edits) -> pa.Table:
    """The rows that count; only rows that are recorded twice or edited are looked at one by one."""
    doubtful = {key[0] for _, key in (*selection.excluded, *selection.repeated)} | set(edits.by_episode)
    if not doubtful:
        return table
    keeps = np.ones(table.num_rows, dtype=np.bool_)
    seen: set[tuple[str, int]] = set()
    for row in _rows_of(table, doubtful).tolist():
        key = (table['episode_id'][row].as_py(), table['attempt'][row].as_py())
        keeps[row] = selection.keeps(0, key, shown=seen) and not edits.is_dropped(*key)
    return table.filter(pa.array(keeps))


def _rows_of(table: pa.Table, ids: set[str]) -> NDArray[np.int64]:
    return np.flatnonzero(pc.is_in(table['episode_id'], pa.array(sorted(ids))).to_numpy())


def _opened(table: pa.Table, unblindings: Unblindings) -> pa.Table:
    """Policies of closed trials under their names."""
    for trial_id, unblinding in unblindings.by_trial.items():
        own = pc.equal(table['trial_id'].cast(pa.string()), trial_id)
        codes = table['policy'].cast(pa.string())
        known = unblinding.names()
        coded = pc.and_(own, pc.is_in(codes, pa.array(list(known), pa.string())))
        names = pa.array([known.get(code, code) for code in codes.to_pylist()], pa.string())
        reference = unblinding.policies.get(unblinding.reference, '')
        table = _with(table, 'policy', pc.if_else(coded, names, codes))
        is_reference = pc.if_else(coded, pc.equal(names, reference), table['is_reference'])
        table = _with(table, 'is_reference', is_reference)
    return table


def _edited(store: Store, table: pa.Table, edits: Edits) -> pa.Table:
    """The table with edited episodes as they stand now: those few are built, because an edit may be set aside."""
    rows = _rows_of(table, set(edits.by_episode)) if edits.by_episode else np.zeros(0, np.int64)
    if not len(rows):
        return table
    edited = {e.key: e for e in store.episodes(where={'episode_id': sorted(edits.by_episode)}, events=False)}
    keys = [(table['episode_id'][r].as_py(), table['attempt'][r].as_py()) for r in rows.tolist()]
    changed = episodes_to_arrow([edited[key] for key in keys]).select(table.column_names)
    order = np.arange(table.num_rows)
    order[rows] = table.num_rows + np.arange(len(rows))
    return pa.concat_tables([table, changed]).unify_dictionaries().take(pa.array(order))


def _blinded(table: pa.Table, *, board: bool) -> pa.Table:
    """What may be seen of an open trial, as `blinded_episode` shows it."""
    if 'reason' in table.column_names:
        coarse = [coarse_reason(reason) for reason in table['reason'].cast(pa.string()).to_pylist()]
        table = _with(table, 'reason', pa.chunked_array([pa.array(coarse, pa.string())]))
    if not board:
        table = _with(table, 'policy', pa.chunked_array([pa.array([ALL_ARMS] * table.num_rows, pa.string())]))
        table = _with(table, 'is_reference', pa.chunked_array([pa.array([False] * table.num_rows, pa.bool_())]))
        if 'seed' in table.column_names:
            table = _with(
                table, 'seed', pa.chunked_array([pa.nulls(table.num_rows, EPISODE_SCHEMA.field('seed').type)])
            )
    return table


def _with(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    field = EPISODE_SCHEMA.field(name)
    if pa.types.is_dictionary(field.type):
        values = values.dictionary_encode().cast(field.type)
    return table.set_column(table.column_names.index(name), field, values)


# Summaries that merge: counts and times of every cell, from a stream of episodes, in memory that does not grow.
# The summary of two sets of episodes is the sum of theirs, so stores of any size are summed up store by store, on as
# many machines as wanted, and the order does not matter.

SHORTEST_S = 1e-3
RATIO = 1.02  # of neighbouring edges: a time read off the histogram is within 2 %
N_BINS = 1200  # up to more than 1e7 s
K = TypeVar('K')
CellKey = tuple[str, str, str, str]  # policy, task, stratum, condition


@dataclass(slots=True)
class CellSummary:
    """One cell: how its episodes ended, and when those that succeeded did. Sums are exact, so merging is too."""

    outcomes: dict[Outcome, int] = field(default_factory=dict)
    n_timed: int = 0  # successes that have a duration
    total_s: Fraction = Fraction(0)  # of these
    bins: dict[int, int] = field(default_factory=dict)  # durations of these, by `_bin`

    def add(self, episode: Episode) -> None:
        self.outcomes[episode.outcome] = self.outcomes.get(episode.outcome, 0) + 1
        if episode.outcome is Outcome.SUCCESS and episode.duration_s is not None:
            self.n_timed += 1
            self.total_s += Fraction(episode.duration_s)
            place = _bin(episode.duration_s)
            self.bins[place] = self.bins.get(place, 0) + 1

    def merge(self, other: CellSummary) -> CellSummary:
        """The summary of both sets of episodes."""
        return CellSummary(
            _added(self.outcomes, other.outcomes),
            self.n_timed + other.n_timed,
            self.total_s + other.total_s,
            _added(self.bins, other.bins),
        )

    @property
    def n_valid(self) -> int:
        return sum(n for outcome, n in self.outcomes.items() if outcome is not Outcome.INVALID)

    @property
    def n_success(self) -> int:
        return self.outcomes.get(Outcome.SUCCESS, 0)

    @property
    def n_invalid(self) -> int:
        return self.outcomes.get(Outcome.INVALID, 0)

    @property
    def mean_success_s(self) -> float | None:
        """Mean duration of the episodes that succeeded; None without any."""
        return float(self.total_s / self.n_timed) if self.n_timed else None

    def success_quantile_s(self, level: float) -> float | None:
        """The time by which this share of the successes had come, within 2 %; None without any."""
        if not 0 < level <= 1:
            raise InputError(f'level is {level}, wanted above 0 and up to 1')
        wanted, seen = math.ceil(level * self.n_timed), 0
        for place in sorted(self.bins):
            seen += self.bins[place]
            if seen >= wanted:
                return SHORTEST_S * RATIO**place
        return None


def _bin(duration_s: float) -> int:
    """The first edge SHORTEST_S * RATIO ** n that is not below the duration."""
    if duration_s <= SHORTEST_S:
        return 0
    return min(N_BINS, math.ceil(math.log(duration_s / SHORTEST_S) / math.log(RATIO) - 1e-9))


def _added(a: Mapping[K, int], b: Mapping[K, int]) -> dict[K, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}}


def summarize_episodes(episodes: Iterable[Episode]) -> dict[CellKey, CellSummary]:
    """Every cell of a stream of counted episodes."""
    cells: dict[CellKey, CellSummary] = {}
    for episode in episodes:
        key = (episode.policy, episode.task, episode.stratum, episode.condition)
        cells.setdefault(key, CellSummary()).add(episode)
    return cells


def merge_summaries(a: Mapping[CellKey, CellSummary], b: Mapping[CellKey, CellSummary]) -> dict[CellKey, CellSummary]:
    """The cells of both; neither is changed."""
    return {key: a.get(key, CellSummary()).merge(b.get(key, CellSummary())) for key in {**a, **b}}


def summarize_stores(paths: Iterable[Path | str], *, where: Where | None = None) -> dict[CellKey, CellSummary]:
    """Every cell over several stores, read one after the other; an episode that stands in two of them is refused.

    Besides the summary, memory holds 8 bytes for each episode, to see that.
    """
    total: dict[CellKey, CellSummary] = {}
    seen: NDArray[np.uint64] = np.zeros(0, np.uint64)
    for path in paths:
        store = read_store(path)
        ids: list[NDArray[np.uint64]] = []
        total = merge_summaries(total, summarize_episodes(_noting(store.episodes(where=where, events=False), ids)))
        own = np.concatenate(ids) if ids else np.zeros(0, np.uint64)
        if len(seen) and len(np.intersect1d(seen, own)):
            raise StoreError(f'{store.path}: has episodes that another of these stores has; merge them instead')
        seen = np.concatenate([seen, own]) if len(seen) else own
    return total


def _noting(episodes: Iterable[Episode], ids: list[NDArray[np.uint64]], at_once: int = 4096) -> Iterator[Episode]:
    """The same episodes; a 64-bit hash of each id is kept."""
    batch: list[int] = []
    for episode in episodes:
        batch.append(hash_of(episode.episode_id))
        if len(batch) == at_once:
            ids.append(np.array(batch, np.uint64))
            batch.clear()
        yield episode
    ids.append(np.array(batch, np.uint64))


def hash_of(episode_id: str) -> int:
    """64 bits of an id; ids are mostly hexadecimal digits of a hash already."""
    try:
        return int(episode_id[:16], 16)
    except ValueError:
        import hashlib

        return int.from_bytes(hashlib.sha256(episode_id.encode()).digest()[:8], 'big')


Key = tuple[str, int]
# What the robot did. Whoever stands beside it sees this, blinded or not.
BEHAVIOUR = (
    'duration_s', 'steps', 'outcome', 'success', 'items_placed', 'items_lost', 'score', 'is_unrecoverable', 'reason',
)  # fmt: skip


def visible_features(store: Store, *, behaviour: bool) -> tuple[tuple[Key, ...], tuple[str, ...], NDArray[np.float64]]:
    """The attempts of a store in its order, the names of features, and their values (attempts, features).

    behaviour: with what the robot did; else only what files tell besides.
    """
    rows: dict[Key, dict[str, float]] = {}
    media = _media(store.path)
    before: dict[str, float] = {}
    for part in store.parts():
        times = _part_times(part)
        gaps = {f'{name} since the last part': at - before.get(name, at) for name, at in times.items()}
        before = times
        table = column_table(part)
        for place, row in enumerate(table.to_pylist()):
            key = (row['episode_id'], row['attempt'])
            own = {'place in the store': float(len(rows)), 'place in its part': float(place), **gaps}
            own['rows of its part'] = float(part.n_rows)
            for name, value in row.items():
                if behaviour or name not in BEHAVIOUR:
                    own.update(_numbers(name, value))
            for kind, (size, written) in media.get(key, {}).items():
                own[f'{kind} size'] = size
                own[f'{kind} written after its part'] = written - times['written']
            rows[key] = own
    names = tuple(sorted({name for own in rows.values() for name in own}))
    values = np.array([[own.get(name, np.nan) for name in names] for own in rows.values()], dtype=np.float64)
    return tuple(rows), names, values.reshape(len(rows), len(names))


def _part_times(part: PartInfo) -> dict[str, float]:
    facts = part.path.stat()
    named = PART_NAME.match(part.path.name)
    return {
        'time in the name': int(named['time'], 16) / 1e9 if named else 0.0, 'written': facts.st_mtime_ns / 1e9,
        'size': facts.st_size / max(part.n_rows, 1),
    }  # fmt: skip


def _media(root: Path) -> Mapping[Key, Mapping[str, tuple[float, float]]]:
    """Size and time of every file of media/ that an episode's key names."""
    bounds: dict[Key, dict[str, tuple[float, float]]] = {}
    for path in (root / 'media').rglob('*') if (root / 'media').is_dir() else ():
        for part in (path.name, path.parent.name):
            episode_id, _, rest = part.partition('-')
            attempt = rest.partition('.')[0]
            if attempt.isdigit() and path.is_file():
                state = path.stat()
                kind = f'{path.parent.parent.name}{"".join(path.suffixes)}'
                bounds.setdefault((episode_id, int(attempt)), {})[kind] = (state.st_size, state.st_mtime_ns / 1e9)
                break
    return bounds


def _numbers(name: str, value: Any) -> dict[str, float]:
    if value is None:
        return {name: np.nan}
    if isinstance(value, dt.datetime):
        return {name: value.timestamp()}
    if isinstance(value, bool | int | float):
        return {name: float(value)}
    text = str(value)
    return {name: float(zlib.crc32(text.encode('utf-8', 'replace'))), f'{name} length': float(len(text))}
