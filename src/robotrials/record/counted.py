"""Columns of the counted episodes, read as columns: what a table or an index needs, without building an episode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.record.blinded import ALL_ARMS, check_blinded_where, coarse_reason
from robotrials.record.edit import Edits
from robotrials.record.part import PartInfo, naming_damage
from robotrials.record.schema import EPISODE_MIGRATIONS, EPISODE_SCHEMA, SCHEMA_VERSION, episodes_to_arrow, migrate
from robotrials.record.select import (
    KEY_COLUMNS,
    Selection,
    Where,
    check_where,
    column_table,
    named_ids,
    prune_parts,
    rows_named,
    select_attempts,
    where_expression,
)
from robotrials.record.store import Store
from robotrials.record.unblinding import Unblindings

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
        whole = _counted(self._rows, select_attempts([self._rows], edits), edits)
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
        counts, tables = dict(self._counts), [self._rows]
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


def _one_table(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _part_columns(part: PartInfo, names: list[str], ids: list[str] | None) -> pa.Table:
    with naming_damage(part.path):
        if part.schema_version == SCHEMA_VERSION and ids is None:
            return column_table(part, names)
        whole = column_table(part) if ids is None else rows_named(part, ids)
        whole = migrate(whole, part.schema_version, migrations=EPISODE_MIGRATIONS, where=str(part.path))
        return whole.select(names)


def _counted(table: pa.Table, selection: Selection, edits: Edits) -> pa.Table:
    """The rows that count; only rows that are recorded twice or edited are looked at one by one."""
    doubtful = {key[0] for _, key in (*selection.excluded, *selection.repeated)} | set(edits.by_episode)
    if not doubtful:
        return table
    keeps = np.ones(table.num_rows, dtype=np.bool_)
    shown: set[tuple[str, int]] = set()
    for row in _rows_of(table, doubtful).tolist():
        key = (table['episode_id'][row].as_py(), table['attempt'][row].as_py())
        keeps[row] = selection.keeps(0, key, shown=shown) and not edits.is_dropped(*key)
    return table.filter(pa.array(keeps))


def _rows_of(table: pa.Table, ids: set[str]) -> NDArray[np.int64]:
    return np.flatnonzero(pc.is_in(table['episode_id'], pa.array(sorted(ids))).to_numpy())


def _opened(table: pa.Table, unblindings: Unblindings) -> pa.Table:
    """Policies of closed trials under their names."""
    for trial_id, found in unblindings.by_trial.items():
        own = pc.equal(table['trial_id'].cast(pa.string()), trial_id)
        codes = table['policy'].cast(pa.string())
        known = found.names()
        coded = pc.and_(own, pc.is_in(codes, pa.array(list(known), pa.string())))
        names = pa.array([known.get(code, code) for code in codes.to_pylist()], pa.string())
        reference = found.policies.get(found.reference, '')
        table = _with(table, 'policy', pc.if_else(coded, names, codes))
        is_reference = pc.if_else(coded, pc.equal(names, reference), table['is_reference'])
        table = _with(table, 'is_reference', is_reference)
    return table


def _edited(store: Store, table: pa.Table, edits: Edits) -> pa.Table:
    """The table with edited episodes as they stand now: those few are built, because an edit may be set aside."""
    rows = _rows_of(table, set(edits.by_episode)) if edits.by_episode else np.zeros(0, np.int64)
    if not len(rows):
        return table
    found = {e.key: e for e in store.episodes(where={'episode_id': sorted(edits.by_episode)}, events=False)}
    keys = [(table['episode_id'][r].as_py(), table['attempt'][r].as_py()) for r in rows.tolist()]
    changed = episodes_to_arrow([found[key] for key in keys]).select(table.column_names)
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
