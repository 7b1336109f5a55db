"""Rows that no writer of ours makes, in a part as it was logged: refused by name by whoever reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from robotrials.errors import StoreError
from robotrials.record import Episode, Store
from robotrials.record.counted import counted_columns
from robotrials.record.entry import EntryKind
from robotrials.record.log import commit
from robotrials.record.rows import EPISODE_SCHEMA, EVENT_SCHEMA, episodes_to_arrow
from robotrials.record.store import write_episodes
from robotrials.record.verify import verify_store

FEW, MANY = 30, 5000
BAD = 7


def store_of(path: Path, change: Callable[[pa.Table], pa.Table], count: int) -> Store:
    store = Store.create(path)
    episodes = [Episode(policy='p', task='t', seed=k, outcome='success', duration_s=5.0 + k) for k in range(count)]
    with commit(path) as under_way:
        part = write_episodes(path, under_way, change(episodes_to_arrow(episodes)), EVENT_SCHEMA.empty_table())
        under_way.finish(EntryKind.APPEND, {'parts': [part.as_json()]})
    return store


def put(table: pa.Table, name: str, text: str) -> pa.Table:
    texts = table[name].cast(pa.string()).to_pylist()
    texts[BAD] = text
    column = EPISODE_SCHEMA.field(name)
    values: Any = pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_dictionary(column.type):
        values = values.dictionary_encode().cast(column.type)
    return table.set_column(table.column_names.index(name), column, values)


@pytest.mark.parametrize('count', [FEW, MANY])
@pytest.mark.parametrize(
    ('name', 'text', 'wanted'),
    [
        ('labels', '{no json', "labels is '{no json', wanted a JSON object"),
        ('labels', '[' * 100_000, 'labels is .*, wanted a JSON object'),
        ('condition_parameters', '[1]', r"condition_parameters is '\[1\]', wanted a JSON object"),
        ('episode_id', '', 'episode_id is empty, wanted an id'),
    ],
)
def test_row_that_cannot_be_read_is_named(tmp_path: Path, count: int, name: str, text: str, wanted: str) -> None:
    store = store_of(tmp_path / 'store', lambda table: put(table, name, text), count)
    with pytest.raises(StoreError, match=rf'parquet after row 0: row {BAD}: {wanted}; run: robotrials store verify'):
        list(store.episodes())
    assert not verify_store(store.path).is_clean


@pytest.mark.parametrize('count', [FEW, MANY])
def test_two_rows_with_one_id_and_attempt_are_refused(tmp_path: Path, count: int) -> None:
    store = store_of(
        tmp_path / 'store', lambda table: put(table, 'episode_id', table['episode_id'][BAD + 1].as_py()), count
    )
    for read in (lambda: list(store.episodes()), lambda: counted_columns(store, ['policy'])):
        with pytest.raises(StoreError, match=r'parquet: episode_id \w+ attempt 0 is recorded twice, with different'):
            read()
    assert not verify_store(store.path).is_clean


def test_same_row_twice_counts_once(tmp_path: Path) -> None:
    store = store_of(tmp_path / 'store', lambda table: pa.concat_tables([table, table.slice(BAD, 1)]), FEW)
    assert len(list(store.episodes())) == FEW
    assert counted_columns(store, ['policy']).num_rows == FEW
