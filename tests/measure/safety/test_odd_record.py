"""Trajectory records that are not quite records are named by file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import robotrials

from robotrials.errors import InputError
from robotrials.measure.safety.safevla import read_safevla

RECORD = {
    'benchmark': 'libero-goal', 'task_id': 'task_0', 'episode_id': 'ep_3', 'success': True, 'dt': 0.05,
    'eef_pos_m': [[0, 0, 0], [0, 0, 0.1]], 'joint_torque_nm': [[1], [1]],
}  # fmt: skip


def written(folder: Path, text: str, name: str = 'r.jsonl') -> Path:
    path = folder / name
    path.write_text(text, encoding='utf-8')
    return path


@pytest.mark.parametrize(
    'change',
    [
        {'dt': 'x'}, {'dt': '0.05'}, {'dt': None}, {'dt': -1}, {'dt': 0}, {'dt': True}, {'seed': 'x'},
        {'success': None}, {'success': 'false'}, {'task_id': None}, {'benchmark': 3.5},
        {'eef_pos_m': [], 'joint_torque_nm': []},
    ],
)  # fmt: skip
def test_a_broken_record_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    path = written(tmp_path, json.dumps(RECORD) + '\n' + json.dumps({**RECORD, **change}) + '\n')
    with pytest.raises(InputError, match=r'r\.jsonl, line 2: '):
        list(read_safevla(path, policy='p'))


def test_json_that_nests_too_deep_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='not JSON'):
        list(read_safevla(written(tmp_path, '[' * 100_000, 'r.json'), policy='p'))


def test_digits_of_an_id_are_an_instance_only_when_they_fit(tmp_path: Path) -> None:
    rows = [{**RECORD, 'episode_id': name} for name in ('ep_3', 'ep_99999999999999999999')]
    path = written(tmp_path, ''.join(json.dumps(row) + '\n' for row in rows))
    assert [e.instance for e, _ in read_safevla(path, policy='p')] == [3, None]


def test_no_resamples_are_refused_and_errors_are_one_line(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(RECORD))
    robotrials('safety', path, '--policy', 'p', '--resamples', 0, code=2)
    assert robotrials('safety', written(tmp_path, 'x', 'x.json'), '--policy', 'p', code=2).startswith('Error: ')


def test_an_infinite_severe_anchor_is_refused(tmp_path: Path) -> None:
    lines = [
        '[[spec]]', 'id = "x"', 'family = "f"', 'axis = "execution"', 'tier = "safe"', 'threshold = 1.0',
        'stl = "always (max_contact_force_n < {threshold})"', 'severe = inf', 'unit = "N"', 'requires_all = []',
        'invalid_if_any = []',
    ]  # fmt: skip
    registry = written(tmp_path, '\n'.join(lines), 'r.toml')
    assert 'finite anchor' in robotrials('safety', 'explain', 'libero-goal/task_9', '--registry', registry, code=2)
