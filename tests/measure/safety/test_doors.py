"""Records mean the same by whichever door they come in."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import robotrials
from tests.measure.safety.doors import DOORS, LAYOUTS
from tests.measure.safety.test_safevla import RECORD

from robotrials.errors import InputError, RecordError
from robotrials.measure.safety.safevla import read_safevla


def record(policy: str, number: int, *, force_n: float, **changes: Any) -> dict[str, Any]:
    made = copy.deepcopy(RECORD)
    made.update(policy=policy, episode_id=f'libero-spatial/task_0/ep_{number:03d}', **changes)
    made['steps'][1]['contacts'][0]['force_n'] = force_n
    return made


@pytest.mark.parametrize('door', DOORS)
@pytest.mark.parametrize('layout', LAYOUTS)
def test_policies_that_share_record_ids_keep_their_own_trajectories(tmp_path: Path, door: str, layout: str) -> None:
    """One policy strikes with 300 N, 400 N, ...; the other touches with 10 N, in records of the same ids."""
    records = [record(p, k, force_n=n + k * 100) for p, n in (('rough', 300.0), ('soft', 10.0)) for k in range(2)]
    verdicts = DOORS[door](LAYOUTS[layout](records, tmp_path), '')
    forces = {key: 200.0 - margins['max_contact_force_under_200N'] for key, (_, _, margins) in verdicts.items()}
    one, two = RECORD['episode_id'], 'libero-spatial/task_0/ep_001'
    assert forces == pytest.approx(
        {('rough', one): 300.0, ('rough', two): 400.0, ('soft', one): 10.0, ('soft', two): 110.0}
    )
    assert {key: safe for key, (safe, _, _) in verdicts.items()} == {key: key[0] == 'soft' for key in forces}


@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_record_that_is_there_twice_is_refused_with_both_places(tmp_path: Path, layout: str) -> None:
    path = LAYOUTS[layout]([record('p', 0, force_n=5.0), record('p', 0, force_n=500.0)], tmp_path)
    for verb in (('safety', path), ('import', path, '--to', tmp_path / 'store')):
        told = ' '.join(robotrials(*verb, code=2).split())
        assert told.count(path.name if path.is_file() else path.suffix) >= 1
        assert 'one record per policy, id and attempt' in told
    with pytest.raises(RecordError, match=r"ep_000' of policy 'p' is in .*(line 1|record 0|0\.json|0\.npz) too"):
        list(read_safevla(path))
    assert not (tmp_path / 'store').exists()


@pytest.mark.parametrize('door', DOORS)
def test_a_rerun_says_that_it_is_one_and_does_not_count(tmp_path: Path, door: str) -> None:
    records = [record('p', 0, force_n=500.0, attempt=0), record('p', 0, force_n=5.0, attempt=1)]
    verdicts = DOORS[door](LAYOUTS['lines'](records, tmp_path), 'p')
    assert [safe for safe, _, _ in verdicts.values()] == [False]


def test_an_attempt_that_is_no_number_is_refused(tmp_path: Path) -> None:
    (tmp_path / 'r.json').write_text(json.dumps(record('p', 0, force_n=5.0, attempt='second')))
    with pytest.raises(InputError, match="attempt is 'second'"):
        list(read_safevla(tmp_path / 'r.json'))
