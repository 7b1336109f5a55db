"""Records mean the same by whichever door they come in."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command import robotrials
from tests.measure.safety.doors import DOORS, LAYOUTS
from tests.measure.safety.random_record import random_record
from tests.measure.safety.second_scorer import Second
from tests.measure.safety.test_safevla import RECORD

from robotrials.errors import InputError, RecordError
from robotrials.measure.safety import score_episode
from robotrials.measure.safety.safevla import read_safevla
from robotrials.service.platform.score import BoardStanding, Standings, make_board
from robotrials.verdict.analysis import analyse


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


@pytest.mark.parametrize('door', DOORS)
@pytest.mark.parametrize('form', ['document', 'lines', 'arrays'])
def test_the_metrics_that_json_writes_are_read_at_every_door(tmp_path: Path, door: str, form: str) -> None:
    """Appendix B's metrics, of two policies that share ids; infinite margins and null ones come back as they were."""
    rng = np.random.default_rng(5)
    made = [random_record(rng, number // 2, 'pq'[number % 2]) for number in range(20)]
    del made[3]['steps'][4]['contacts']  # which leaves one episode unscored
    source = LAYOUTS['lines'](made, tmp_path)
    wanted = DOORS['verb'](source, '')
    printed = robotrials('safety', source, '--json')
    written = json.loads(printed[printed.index('{\n') :])
    path = tmp_path / ('metrics.jsonl' if form == 'lines' else 'metrics.npz' if form == 'arrays' else 'metrics.json')
    rows = written['episodes']
    if form == 'document':
        path.write_text(json.dumps(written))
    elif form == 'lines':
        path.write_text('\n'.join(map(json.dumps, rows)))
    else:
        names = rows[0]['robustness']
        columns = {n: np.array([np.nan if r['robustness'][n] is None else float(r['robustness'][n]) for r in rows])
                   for n in names}  # fmt: skip
        told = {k: np.array([r[k] for r in rows]) for k in ('episode_id', 'success', 'policy')}
        np.savez(path, **told, **columns)  # type: ignore[arg-type]
    found = DOORS[door](path, '')
    assert found.keys() == wanted.keys()
    for key, (safe, vsi, margins) in wanted.items():
        assert found[key][2] == pytest.approx(margins), key
        assert (found[key][0], found[key][1]) == (safe, pytest.approx(vsi) if vsi is not None else None), key
    assert sum(vsi is None for _, vsi, _ in found.values()) == 1


def test_a_metrics_record_that_says_where_it_is_from_needs_no_id_that_does(tmp_path: Path) -> None:
    row = {'episode_id': 'e1', 'success': True, 'robustness': {'max_contact_force_under_200N': 20.0}}
    (tmp_path / 'm.jsonl').write_text(json.dumps(row))
    assert 'wanted BENCHMARK/TASK/NAME' in robotrials('safety', tmp_path / 'm.jsonl', '--policy', 'p', code=2)
    full = {**row, 'benchmark': 'libero-10', 'task_id': 'task_4', 'active_specs': ['max_contact_force_under_200N']}
    (tmp_path / 'm.jsonl').write_text(json.dumps(full))
    printed = robotrials('safety', tmp_path / 'm.jsonl', '--policy', 'p', '--json')
    assert json.loads(printed[printed.index('{\n') :])['aggregate']['safety'] == 1.0


def test_a_trajectory_that_is_gone_is_not_replaced_by_what_the_record_said_of_itself(tmp_path: Path) -> None:
    said = {'safe': True, 'vsi': 0.0, 'robustness': {'max_contact_force_under_200N': 20.0}}
    (tmp_path / 'r.json').write_text(json.dumps(record('p', 0, force_n=5.0, **said)))
    ((episode, _),) = read_safevla(tmp_path / 'r.json')
    assert score_episode(episode, None).safe is None


@pytest.mark.parametrize(
    ('change', 'said'),
    [
        ({'dt': 50}, 'dt is 50, wanted seconds > 0, at most 0.5; if it is in milliseconds'),
        ({'dt': 10**400}, 'dt is an integer beyond the largest double'),
        ({'seed': 10**400}, 'seed'),
        ({'attempt': 10**400}, 'attempt'),
    ],
)
def test_numbers_that_cannot_be_are_refused_by_name(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    (tmp_path / 'r.json').write_text(json.dumps(record('p', 0, force_n=5.0, **change)))
    for verb in (('safety', tmp_path / 'r.json'), ('import', tmp_path / 'r.json', '--to', tmp_path / 's')):
        assert said in ' '.join(robotrials(*verb, code=2).split())


@pytest.mark.parametrize('value', [10**400, 1e6, 1e400])
@pytest.mark.parametrize(('place', 'named'), [('force', 'panda_link7 x table'), ('torque', 'joint_torque_nm'),
                                              ('position', 'eef_pos_m'), ('body', 'plate')])  # fmt: skip
def test_absurd_readings_leave_the_episode_unscored_by_name(
    tmp_path: Path, value: float, place: str, named: str
) -> None:
    made = record('p', 0, force_n=5.0)
    step = made['steps'][1]
    if place == 'force':
        step['contacts'][0]['force_n'] = value
    elif place == 'torque':
        step['joint_torque_nm'][2] = value
    elif place == 'position':
        step['eef_pos_m'][2] = value
    else:
        step['body_pos_m']['plate'][0] = value
    (tmp_path / 'r.json').write_text(json.dumps(made))
    ((episode, trajectory),) = read_safevla(tmp_path / 'r.json')
    found = score_episode(episode, trajectory)
    assert found.safe is None
    assert named in found.because or named in ' '.join(found.notes) or 'ee_pose' in found.because


def test_the_platforms_board_has_the_safety_of_the_second_scorer(tmp_path: Path) -> None:
    """Records of two policies that share ids, imported into a store as a benchmark of the platform keeps it."""
    rng = np.random.default_rng(8)
    made = [random_record(rng, number // 2, 'pq'[number % 2], benchmark='libero-10') for number in range(60)]
    robotrials('import', LAYOUTS['lines'](made, tmp_path), '--to', tmp_path / 's')
    ranked = tuple(
        BoardStanding(policy=p, account=p, state='finished', reason='', missing=(), n_of_account=1) for p in 'pq'
    )
    board = make_board('b', {1: analyse(tmp_path / 's', resamples=20)}, Standings(ranked=ranked))
    assert len(board.rows) == 2
    for row in board.rows:
        mine = [Second(r) for r in made if r['policy'] == row.policy]
        are_safe = [all(m >= 0 for m in second.margins().values()) for second in mine]
        assert row.values['safety'].value == pytest.approx(sum(are_safe) / len(mine))
        assert row.values['vsi'].value == pytest.approx(sum(second.vsi() for second in mine) / len(mine), abs=1e-6)
