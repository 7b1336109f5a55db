"""Rows that no writer of ours makes, in a part as it was logged: refused by name by whoever reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.cli.command import robotrials

from robotrials.errors import StoreError
from robotrials.record import Episode, Event, Store, Trajectory
from robotrials.record.counted import counted_columns
from robotrials.record.log import commit
from robotrials.record.part import EntryKind
from robotrials.record.rows import EPISODE_SCHEMA, EVENT_SCHEMA, episodes_to_arrow, events_to_arrow, keeps_rules
from robotrials.record.store import write_episodes, write_trajectories
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
@pytest.mark.parametrize(
    ('values', 'wanted'),
    [
        ({'score': np.inf, 'max_score': np.inf}, 'max_score is inf, wanted a finite number'),
        ({'max_score': np.nan}, 'max_score is nan, wanted a finite number'),
        ({'score': np.nan, 'max_score': 1.0}, 'score is nan, wanted a finite number'),
    ],
)
def test_score_that_is_no_number_is_named(tmp_path: Path, count: int, values: dict[str, float], wanted: str) -> None:
    def change(table: pa.Table) -> pa.Table:
        for name, value in values.items():
            numbers = table[name].to_pylist()
            numbers[BAD] = value
            column = EPISODE_SCHEMA.field(name)
            table = table.set_column(table.column_names.index(name), column, pa.array(numbers, column.type))
        return table

    store = store_of(tmp_path / 'store', change, count)
    with pytest.raises(StoreError, match=rf'parquet after row 0: row {BAD}: {wanted}'):
        list(store.episodes())
    assert not keeps_rules(counted_columns(store, EPISODE_SCHEMA.names))


@pytest.mark.parametrize('count', [FEW, MANY])
def test_two_rows_with_one_id_and_attempt_are_refused(tmp_path: Path, count: int) -> None:
    store = store_of(
        tmp_path / 'store', lambda table: put(table, 'episode_id', table['episode_id'][BAD + 1].as_py()), count
    )
    for read in (lambda: list(store.episodes()), lambda: counted_columns(store, ['policy'])):
        with pytest.raises(StoreError, match=r'parquet: episode_id \w+ attempt 0 is recorded twice, with different'):
            read()
    assert not verify_store(store.path).is_clean


def test_events_and_trajectories_of_no_episode_are_named(tmp_path: Path) -> None:
    known, strange = (
        Episode(policy='p', task='t', seed=k, outcome='success', duration_s=5.0, events=(Event(1.0, 'placement'),))
        for k in (0, 1)
    )
    steps = Trajectory(time_s=np.array([0.0, 0.1]))
    store = Store.create(tmp_path / 'store')
    with commit(store.path) as under_way:
        files = write_trajectories(under_way, [[(known.key, steps), (strange.key, steps)]])
        table, events = episodes_to_arrow([known]), events_to_arrow([known, strange])
        part = write_episodes(store.path, under_way, table, events, trajectories=files)
        under_way.finish(EntryKind.APPEND, {'parts': [part.as_json()]})
    said = ' '.join(robotrials('store', 'verify', store.path, code=1).split())
    for what in ('events', 'a trajectory'):
        assert f'{what} of episode {strange.episode_id} attempt 0: the part has no such episode' in said
    assert known.episode_id not in said


def test_same_row_twice_counts_once(tmp_path: Path) -> None:
    store = store_of(tmp_path / 'store', lambda table: pa.concat_tables([table, table.slice(BAD, 1)]), FEW)
    assert len(list(store.episodes())) == FEW
    assert counted_columns(store, ['policy']).num_rows == FEW


def retype(table: pa.Table, name: str, kind: pa.DataType) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, table[name].cast(kind))


def without_a_value(table: pa.Table, name: str) -> pa.Table:
    values = table[name].to_pylist()
    values[BAD] = None
    return table.set_column(table.column_names.index(name), name, pa.array(values, table[name].type))


@pytest.mark.parametrize('count', [FEW, MANY])
@pytest.mark.parametrize(
    ('change', 'wanted'),
    [
        (lambda t: retype(t, 'duration_s', pa.string()), 'duration_s is of type string, wanted double'),
        (lambda t: retype(t, 'attempt', pa.int64()), 'attempt is of type int64, wanted int32'),
        (lambda t: without_a_value(t, 'is_reference'), 'is_reference is absent in 1 rows, wanted it in all'),
        (lambda t: t.drop_columns(['outcome']), 'no columns outcome, wanted one'),
        (lambda t: t.append_column('outcome', t['outcome']), '2 columns outcome, wanted one'),
    ],
)
def test_column_of_another_schema_is_named(
    tmp_path: Path, count: int, change: Callable[[pa.Table], pa.Table], wanted: str
) -> None:
    store = store_of(tmp_path / 'store', change, count)
    for read in (lambda: list(store.episodes()), lambda: counted_columns(store, EPISODE_SCHEMA.names)):
        with pytest.raises(StoreError, match=rf'parquet: {wanted}; run: robotrials store verify'):
            read()
    assert not verify_store(store.path).is_clean


def test_part_that_would_allow_absent_values_is_read_like_any_other(tmp_path: Path) -> None:
    store = store_of(tmp_path / 'store', lambda table: retype(table, 'episode_id', pa.string()), FEW)
    store.append([Episode(policy='q', task='t', outcome='failure')])
    columns = counted_columns(store, EPISODE_SCHEMA.names)
    assert columns.num_rows == len(list(store.episodes())) == FEW + 1
    assert columns.schema == EPISODE_SCHEMA
