"""Tables as they are found in the wild: index columns, odd line breaks, huge numbers, half-written text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robotrials.errors import InputError, RecordError, StoreError
from robotrials.formats.catalog import from_table
from robotrials.formats.export import to_table
from robotrials.record import Episode, Outcome, Store
from robotrials.record.maintain import add_episodes

HEAD = 'policy,task,success,duration_s'


def written(folder: Path, text: str, name: str = 'rollouts.csv') -> Path:
    path = folder / name
    path.write_bytes(text.encode('utf-8'))
    return path


def test_the_index_column_of_a_data_frame_is_a_label_and_no_event(tmp_path: Path) -> None:
    path = written(tmp_path, f',{HEAD}\n0,a,t,1,3\n1,a,t,0,9\n')
    episodes = from_table(path)
    assert [e.events for e in episodes] == [(), ()]
    assert [dict(e.labels) for e in episodes] == [{'column 1': '0'}, {'column 1': '1'}]


def test_spaces_around_a_name_do_not_make_another_policy(tmp_path: Path) -> None:
    path = written(tmp_path, f'{HEAD},side\n act , t ,1 , 3 , left\nact,t,1,4,left\n')
    assert {(e.policy, e.task, e.labels['side']) for e in from_table(path)} == {('act', 't', 'left')}


@pytest.mark.parametrize('ends', ['\n', '\r\n', '\r'])
def test_any_line_end_separates_rows(tmp_path: Path, ends: str) -> None:
    path = written(tmp_path, ends.join([HEAD, 'a,t,1,3', 'a,t,0,4', '']))
    assert [e.duration_s for e in from_table(path)] == [3.0, 4.0]


@pytest.mark.parametrize('mark', ['\u2028', '\x85', '\x0b', '\x1c', '\r', '\n', '\r\n'])
@pytest.mark.parametrize('suffix', ['.csv', '.jsonl'])
def test_only_a_line_feed_ends_a_row(tmp_path: Path, mark: str, suffix: str) -> None:
    given = Episode(policy=f'a{mark}b', task='t', outcome=Outcome.SUCCESS, duration_s=3.0, trial_id='x')
    assert to_table([given], tmp_path / f'out{suffix}') == 1
    assert from_table(tmp_path / f'out{suffix}') == [given]


@pytest.mark.parametrize(
    ('column', 'value'),
    [('items', 99999999999), ('seed', 10**20), ('instance', -(10**20)), ('attempt', 5 * 10**9), ('repeat', 2**31)],
)
def test_a_number_too_large_for_the_record_is_named(tmp_path: Path, column: str, value: int) -> None:
    with pytest.raises(RecordError, match=rf'row 1: {column} is {value}'):
        from_table(written(tmp_path, f'{HEAD},{column}\na,t,1,3,{value}\n'), columns={column: column})


def test_an_event_of_too_many_items_is_named(tmp_path: Path) -> None:
    row = {'policy': 'a', 'task': 't', 'success': True, 'duration_s': 3, 'events': [{'t_s': 1, 'kind': 'placement'}]}
    row['events'][0]['count'] = 10**11  # type: ignore[index]
    with pytest.raises(RecordError, match='count is 100000000000'):
        from_table(written(tmp_path, json.dumps(row), 'rollouts.jsonl'))


def test_half_a_character_is_refused(tmp_path: Path) -> None:
    line = '{"policy": "a\\ud800", "task": "t", "success": true, "duration_s": 3}\n'
    with pytest.raises(RecordError, match='half of a character'):
        from_table(written(tmp_path, line, 'rollouts.jsonl'))
    given = Episode(policy='a', task='t', outcome=Outcome.SUCCESS, duration_s=3.0, reason='b\ud800')
    with pytest.raises(RecordError, match='reason cannot be stored'):
        Store.create(tmp_path / 'store').append([given])


@pytest.mark.parametrize(
    ('text', 'name'),
    [
        (f'{HEAD}\n{"a" * 200_000},t,1,3\n', 'r.csv'),
        ('[' * 100_000, 'r.json'),
        (f'{{"seed": {"9" * 5000}}}', 'r.jsonl'),
    ],
)
def test_a_file_that_breaks_its_reader_is_named(tmp_path: Path, text: str, name: str) -> None:
    with pytest.raises(InputError, match=name):
        from_table(written(tmp_path, text, name))


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    (tmp_path / 'x.csv').mkdir()
    with pytest.raises(InputError, match='cannot be read'):
        from_table(tmp_path / 'x.csv')


def test_a_nested_condition_parameter_is_refused(tmp_path: Path) -> None:
    line = '{"policy": "a", "task": "t", "success": 1, "duration_s": 3, "condition_parameters": {"x": [1, NaN]}}'
    with pytest.raises(RecordError, match=r"condition_parameters\['x'\]"):
        from_table(written(tmp_path, line, 'rollouts.jsonl'))


def test_one_placement_time_needs_no_list(tmp_path: Path) -> None:
    line = '{"policy": "a", "task": "t", "success": 1, "duration_s": 3, "placement_times": 2.5}'
    (episode,) = from_table(written(tmp_path, line, 'rollouts.jsonl'))
    assert [e.t_s for e in episode.events] == [2.5]


def test_times_can_not_be_set_for_every_row(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='placement_times_s cannot be the same'):
        from_table(written(tmp_path, f'{HEAD}\na,t,1,3\n'), defaults={'placement_times_s': '1'})


def test_an_instance_set_for_every_row_is_kept(tmp_path: Path) -> None:
    path = written(tmp_path, f'{HEAD}\na,t,1,3\na,t,1,4\n')
    assert [(e.instance, e.repeat) for e in from_table(path, defaults={'instance': '7'})] == [(7, 0), (7, 1)]


def test_rows_that_share_an_id_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, f'{HEAD},episode_id\na,t,1,3,x\na,t,1,3,y\na,t,1,4,x\n')
    with pytest.raises(StoreError, match='rows 1 and 3 share an id'):
        add_episodes(Store.create(tmp_path / 'store'), from_table(path))


def test_an_export_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    target = written(tmp_path, 'precious', 'out.csv')

    def breaks() -> object:
        yield Episode(policy='a', task='t', outcome=Outcome.SUCCESS, duration_s=3.0)
        raise StoreError('damaged')

    with pytest.raises(StoreError, match='damaged'):
        to_table(breaks(), target)  # type: ignore[arg-type]
    assert target.read_text(encoding='utf-8') == 'precious'
    assert [p.name for p in tmp_path.iterdir()] == ['out.csv']
