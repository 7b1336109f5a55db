from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import robotrials
from tests.formats.build import make_lerobot
from tests.formats.robot import made_store

from robotrials.record import read_store


def test_a_store_goes_out_and_comes_back(tmp_path: Path) -> None:
    made_store(tmp_path / 'store', episodes=3)
    said = robotrials('export', tmp_path / 'store', '--to', 'lerobot', '--out', tmp_path / 'out')
    assert '3 episodes written' in said
    assert 'as many per step as there are' in said
    said = robotrials('import', tmp_path / 'out', '--to', tmp_path / 'again')
    assert 'Read as lerobot' in said
    assert '3 episodes added, 0 already there' in said
    listed = [json.loads(robotrials('store', 'ls', tmp_path / name, '--format', 'json')) for name in ('store', 'again')]
    rows = [sorted(table['rows'], key=lambda row: row['episode_id']) for table in listed]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 3


def test_the_list_names_every_format() -> None:
    said = robotrials('export', '--list')
    for name in ('lerobot', 'lerobot-v2.1', 'rerun', 'mcap', 'table'):
        assert name in said


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    made_store(tmp_path / 'store', episodes=1, videos=False)
    for words, wanted in (
        (['--to', 'lerobt'], "no export format named 'lerobt': did you mean 'lerobot'"),
        ([], 'wanted a store and --to FORMAT'),
        (['--to', 'mcap', '--where', 'policy=nobody'], 'no valid episode with a trajectory to write'),
    ):
        said = robotrials('export', tmp_path / 'store', *words, '--out', tmp_path / 'out', code=2)
        assert wanted in said
        assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('words', [['--answer', 'nan=perhaps'], ['--answer', 'colour=red'], ['--group-by', 'task']])
def test_an_option_that_means_nothing_is_refused(tmp_path: Path, words: list[str]) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0', episodes=2)
    said = robotrials('import', root, '--dry-run', '--set', 'policy=act', '--set', 'outcome=success', *words, code=2)
    assert words[-1].split('=')[0] in said or '--group-by' in said


def test_a_dry_run_of_a_dataset_shows_episodes_and_writes_nothing(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v2.1', episodes=3)
    said = robotrials('import', root, '--dry-run', '--set', 'policy=act', '--set', 'outcome=success')
    assert '3 episodes, the first 3' in said
    assert 'action_raw' in said
    assert [p.name for p in tmp_path.iterdir()] == ['toy']


def test_a_mapping_serves_the_next_dataset(tmp_path: Path) -> None:
    first, second = (make_lerobot(tmp_path / name, 'v3.0', episodes=2) for name in ('a', 'b'))
    said = ['--set', 'policy=act', '--set', 'outcome=success', '--map', 'gripper_command=action[3]']
    robotrials('import', first, '--dry-run', *said, '--answer', 'cameras=leave', '--save-map', tmp_path / 'map.json')
    kept = json.loads((tmp_path / 'map.json').read_text())
    assert kept['map'] == {'gripper_command': 'action[3]', 'action_raw': 'action'}
    robotrials('import', second, '--to', tmp_path / 'store', '--map-file', tmp_path / 'map.json')
    ((_, trajectory), *_) = read_store(tmp_path / 'store').trajectories()
    assert trajectory.gripper_command is not None
    provenance = json.loads(next((tmp_path / 'store' / 'provenance').iterdir()).read_text())
    assert 'gripper_command from action[3]' in provenance['imported']['kept']
    assert 'observation.state holds, in order: x, y, z' in provenance['imported']['notes']
