"""Tables of rollouts come in with a sensible guess, go out whole, and bad rows are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robotrials.errors import InputError, RecordError, StoreError, UnknownName
from robotrials.formats.catalog import from_table
from robotrials.formats.export import to_table
from robotrials.formats.guess import guess_columns
from robotrials.record import Episode, Event, EventKind, EventSource, Outcome, Store
from robotrials.record.maintain import add_episodes
from robotrials.testing import strategies


def written(folder: Path, text: str, name: str = 'rollouts.csv') -> Path:
    path = folder / name
    path.write_text(text, encoding='utf-8')
    return path


def test_a_plain_csv_needs_no_map(tmp_path: Path) -> None:
    header = 'Model,task name,success,duration (s),object,camera side\n'
    path = written(tmp_path, header + 'act,pick,1,12.5,towel,left\npi05,pick,False,30,towel,right\n')
    first, second = from_table(path)
    assert (first.policy, first.task, first.outcome, first.duration_s, first.stratum) == (
        'act',
        'pick',
        'success',
        12.5,
        'towel',
    )
    assert dict(first.labels) == {'camera side': 'left'}
    assert (second.outcome, second.success) == (Outcome.FAILURE, False)


@pytest.mark.parametrize(
    ('header', 'field', 'scale'),
    [
        ('duration_ms', 'duration_s', 1e-3), ('elapsedSeconds', 'duration_s', None), ('Time', 'duration_s', None),
        ('episode_time_min', 'duration_s', 60.0), ('time_limit_ms', 'time_cap_s', 1e-3),
        ('wall time', 'duration_s', None),
    ],
)  # fmt: skip
def test_units_in_column_names_are_understood(header: str, field: str, scale: float | None) -> None:
    guessed = guess_columns([header])
    assert guessed.columns == {field: header}
    assert guessed.scale == ({field: scale} if scale else {})


def test_a_failure_at_the_time_cap_is_a_timeout(tmp_path: Path) -> None:
    path = written(tmp_path, 'policy,task,success,time,timeout\na,t,0,30,30\na,t,0,12,30\na,t,1,29,30\n')
    assert [e.outcome for e in from_table(path)] == [Outcome.TIMEOUT, Outcome.FAILURE, Outcome.SUCCESS]


def test_outcome_words_of_others_are_understood(tmp_path: Path) -> None:
    path = written(
        tmp_path, 'policy,task,outcome,time\na,t,Success,1\na,t,Safety,1\na,t,Ran_out_of_time,1\na,t,crashed,1\n'
    )
    assert [e.outcome.value for e in from_table(path)] == ['success', 'safety_stop', 'timeout', 'invalid']


def test_placement_times_become_events(tmp_path: Path) -> None:
    path = written(tmp_path, 'policy,task,outcome,time,items,placement_times,drop_times\na,t,timeout,30,4,3.5;9,12.0\n')
    (episode,) = from_table(path)
    assert [(e.t_s, e.kind) for e in episode.events] == [
        (3.5, EventKind.PLACEMENT), (9.0, EventKind.PLACEMENT), (12.0, EventKind.DROP_OUTSIDE),
    ]  # fmt: skip


def test_a_guess_that_the_values_contradict_is_taken_back(tmp_path: Path) -> None:
    path = written(
        tmp_path, 'policy,task,success,result,time,episode\na,t,1,nice grasp,3,ep_001\na,t,0,slipped,4,ep_002\n'
    )
    episodes = from_table(path)
    assert [e.outcome for e in episodes] == [Outcome.SUCCESS, Outcome.FAILURE]
    assert [dict(e.labels) for e in episodes] == [
        {'result': 'nice grasp', 'episode': 'ep_001'}, {'result': 'slipped', 'episode': 'ep_002'},
    ]  # fmt: skip


def test_rows_of_one_cell_get_different_ids_and_a_grown_table_adds_only_what_is_new(tmp_path: Path) -> None:
    text = 'policy,task,success,time\n' + 'a,t,1,3\n' * 3
    path = written(tmp_path, text)
    store = Store.create(tmp_path / 's')
    assert add_episodes(store, from_table(path)).added == 3
    assert add_episodes(store, from_table(path)).already_there == 3
    again = add_episodes(store, from_table(written(tmp_path, text + 'a,t,0,9\n')))
    assert (again.added, again.already_there) == (1, 3)
    with pytest.raises(StoreError, match='with other content; nothing was added'):
        add_episodes(store, from_table(written(tmp_path, text.replace('a,t,1,3', 'a,t,1,4', 1))))
    assert store.count() == 4


def test_repeats_of_a_seed_are_numbered_as_repeats(tmp_path: Path) -> None:
    episodes = from_table(written(tmp_path, 'policy,task,success,time,seed\na,t,1,3,5\na,t,1,3,5\na,t,1,3,6\n'))
    assert [(e.seed, e.repeat) for e in episodes] == [(5, 0), (5, 1), (6, 0)]
    assert len({e.episode_id for e in episodes}) == 3


def test_every_bad_row_is_named_and_nothing_is_imported(tmp_path: Path) -> None:
    path = written(tmp_path, 'policy,task,success,time\na,t,1,-2\na,t,1,3\n,t,1,3\na,t,maybe,3\na,t,1,\na,t,,3\n')
    with pytest.raises(RecordError) as caught:
        from_table(path)
    message = str(caught.value)
    for part in (
        'row 1: duration_s is -2.0, wanted', 'row 3: policy is empty',
        "row 4: success is 'maybe', wanted true or false",
        'row 6: neither outcome nor success', 'nothing was imported',
    ):  # fmt: skip
        assert part in message
    assert 'row 2' not in message
    assert 'row 5' not in message  # a duration may be absent


@pytest.mark.parametrize(
    ('name', 'text', 'message'),
    [
        ('r.csv', 'skil,success\na,1\n', 'no column for policy among: success, skil.*--set policy='),
        ('r.csv', 'policy,task,time\na,t,1\n', 'no column for outcome or success'),
        ('r.csv', 'policy,task,success,time\na,t,1\n', r'row 1: 3 cells, wanted 4'),
        ('r.csv', 'policy,policy,time\n', "column 'policy' is there twice"),
        ('r.csv', 'policy,task\n', 'no rows'),
        ('r.csv', '', 'no rows'),
        ('r.jsonl', '{"policy": 1\n', 'not JSON'),
        ('r.json', '{"policy": 1}', 'wanted a JSON list of objects'),
        ('r.xls', 'x', r"found '\.xls'"),
        ('r.xlsx', 'x', 'not a spreadsheet'),
        ('r.parquet', 'x', 'not a readable Parquet'),
    ],
)
def test_a_table_that_can_not_be_used_says_what_to_do(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_table(written(tmp_path, text, name))


def test_maps_and_values_for_all_rows_are_checked(tmp_path: Path) -> None:
    path = written(tmp_path, 'ckpt,ok,secs\na,1,3\n')
    (episode,) = from_table(
        path, columns={'policy': 'ckpt', 'success': 'ok', 'duration_s': 'secs'}, defaults={'task': 'pick'}
    )
    assert (episode.policy, episode.task) == ('a', 'pick')
    with pytest.raises(UnknownName, match="did you mean 'ckpt'"):
        from_table(path, columns={'policy': 'ckp'})
    with pytest.raises(UnknownName, match="did you mean 'policy'"):
        from_table(path, columns={'polcy': 'ckpt'})
    with pytest.raises(InputError, match='no such file'):
        from_table(tmp_path / 'gone.csv')
    (tmp_path / 'latin.csv').write_bytes('policy,task,success\nä,t,1\n'.encode('latin-1'))
    assert from_table(tmp_path / 'latin.csv')[0].policy == 'ä'


def test_semicolons_tabs_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    (tmp_path / 'r.csv').write_text('\ufeffpolicy;task;success;time\na;t;1;3\n', encoding='utf-8')
    assert from_table(tmp_path / 'r.csv')[0].policy == 'a'
    assert from_table(written(tmp_path, 'policy\ttask\tsuccess\ttime\na\tt\t1\t3\n', 'r.tsv'))[0].policy == 'a'


@pytest.mark.parametrize('suffix', ['csv', 'jsonl', 'parquet'])
@settings(max_examples=40)
@given(batch=st.lists(strategies.episodes(), min_size=1, max_size=4))
def test_what_goes_out_comes_back(tmp_path_factory: pytest.TempPathFactory, suffix: str, batch: list[Episode]) -> None:
    path = tmp_path_factory.mktemp('table') / f't.{suffix}'
    assert to_table(batch, path) == len(batch)
    assert from_table(path) == batch


@pytest.mark.parametrize('suffix', ['csv', 'jsonl', 'parquet'])
def test_a_repeated_id_keeps_each_rows_own_events(tmp_path: Path, suffix: str) -> None:
    late = Event(t_s=9.0, kind=EventKind.PLACEMENT, source=EventSource.HOST)
    slow = Episode(policy='a', task='t', outcome=Outcome.SUCCESS, duration_s=10.0, episode_id='1', events=(late,))
    rows = [slow, Episode(policy='a', task='t', outcome=Outcome.FAILURE, duration_s=1.0, episode_id='1')]
    to_table(rows, tmp_path / f't.{suffix}')
    assert from_table(tmp_path / f't.{suffix}') == rows


def test_jsonl_of_another_tool_is_read_with_nested_events(tmp_path: Path) -> None:
    row = {'model': 'a', 'task': 't', 'success': True, 'time_s': 9.0, 'events': [{'t_s': 4, 'kind': 'placement'}]}
    (episode,) = from_table(written(tmp_path, json.dumps(row) + '\n', 'r.jsonl'))
    assert episode.events[0].t_s == 4.0
    bad = {**row, 'events': [{'t_s': -4, 'kind': 'placement'}]}
    with pytest.raises(RecordError, match=r'row 1: events\[0\]: t_s is -4'):
        from_table(written(tmp_path, json.dumps(bad) + '\n', 'r.jsonl'))
