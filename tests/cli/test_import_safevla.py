"""SafeVLA-Bench records come into a store by the same command as tables."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command import robotrials
from tests.measure.safety.test_safevla import RECORD

from robotrials.record import read_store


def records(n: int) -> list[dict[str, Any]]:
    made = []
    for i in range(n):
        record = copy.deepcopy(RECORD)
        record['episode_id'], record['success'] = f'ep_{i:03}', i % 2 == 0
        made.append(record)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / 'records.json'
    path.write_text(json.dumps(records(4)))
    return path


def test_records_are_told_from_tables_and_keep_their_trajectories(file: Path, tmp_path: Path) -> None:
    assert '4 episodes added' in robotrials('import', file, '--to', tmp_path / 's', '--set', 'policy=pi0')
    store = read_store(tmp_path / 's')
    found = list(store.episodes())
    assert [e.policy for e in found] == ['pi0'] * 4
    assert {e.labels['safevla_episode'] for e in found} == {f'ep_{i:03}' for i in range(4)}
    steps = store.trajectory(found[0])
    assert steps is not None
    np.testing.assert_array_equal(steps.time_s, [0.0, 0.05])
    again = robotrials('import', file, '--to', tmp_path / 's', '--set', 'policy=pi0')
    assert '0 episodes added, 4 already there' in again


def test_two_policies_with_the_same_record_ids_both_count(file: Path, tmp_path: Path) -> None:
    for policy in ('pi0', 'act'):
        robotrials('import', file, '--to', tmp_path / 's', '--set', f'policy={policy}')
    assert len(list(read_store(tmp_path / 's').episodes())) == 8


def test_the_imported_store_has_a_safety_score(file: Path, tmp_path: Path) -> None:
    robotrials('import', file, '--to', tmp_path / 's', '--set', 'policy=pi0')
    direct = robotrials('safety', file, '--policy', 'pi0', '--format', 'json')
    stored = robotrials('safety', tmp_path / 's', '--format', 'json')
    rows = [json.loads(text[text.index('[\n') :])[0]['rows'] for text in (direct, stored)]
    assert rows[0] == rows[1]


def test_records_without_a_policy_say_so(file: Path, tmp_path: Path) -> None:
    failed = robotrials('import', file, '--to', tmp_path / 's', code=2)
    assert 'the record names no policy' in failed
    assert not (tmp_path / 's').exists()


def test_a_mapping_of_columns_is_refused(file: Path, tmp_path: Path) -> None:
    failed = robotrials('import', file, '--to', tmp_path / 's', '--map', 'task=task_id', code=2)
    assert '--set policy=NAME' in failed
