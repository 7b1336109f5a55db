"""Conversions by name, and the verb that applies them to a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import robotrials

from robotrials.errors import InputError
from robotrials.measure.actions import ActionSpace, Dimension, DimensionKind
from robotrials.measure.actions.prediction import parse_conversion, parse_conversions

ACTIONS = np.array([[0.5, -0.5, 0.02], [1.0, 0.0, 0.5], [-1.0, 0.25, 0.97]])


@pytest.fixture
def stats(tmp_path: Path) -> Path:
    (tmp_path / 'stats.json').write_text(
        json.dumps({'actions': {'q01': [0, 0, 0], 'q99': [2, 4, 1], 'mask': [1, 1, 0]}})
    )
    return tmp_path / 'stats.json'


@pytest.mark.parametrize(
    ('spec', 'row', 'wanted'),
    [
        ('binary-gripper:2', 1, [1.0, 0.0, 1.0]), ('binary-gripper:2:0.6', 1, [1.0, 0.0, 0.0]),
        ('ternary-gripper:2', 0, [0.5, -0.5, -1.0]), ('continuous-gripper:2', 1, [1.0, 0.0, 0.0]),
        ('continuous-gripper:0:-1:1', 0, [0.5, -0.5, 0.02]), ('torque-gripper:2:-4:4', 1, [1.0, 0.0, 0.0]),
        ('reorder:2,0,1:1,-1,1', 0, [0.02, -0.5, -0.5]), ('reorder:2,0,1', 0, [0.02, 0.5, -0.5]),
        ('select:2,0', 2, [0.97, -1.0]), ('unnormalize:STATS', 0, [1.5, 1.0, 0.02]),
    ],
)  # fmt: skip
def test_every_conversion_has_a_name(spec: str, row: int, wanted: list[float], stats: Path) -> None:
    found = parse_conversion(spec.replace('STATS', str(stats)))(ACTIONS)
    np.testing.assert_allclose(found[row], wanted)


@pytest.mark.parametrize(
    ('spec', 'reason'),
    [
        ('ternary-grip:2', 'did you mean'), ('binary-gripper', 'takes 1 to 2 arguments'), ('select:x', 'select:x'),
        ('unnormalize:/no/such/file', 'q01 and q99'), ('reorder:0,0', 'wanted each'), ('drop-terminate', 'the space'),
        ('continuous-gripper:1:0', 'two ends'),
    ],
)  # fmt: skip
def test_what_is_no_conversion_is_refused(spec: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_conversion(spec)


def test_steps_follow_each_other_and_know_the_space_between() -> None:
    space = ActionSpace((Dimension('x'), Dimension('stop', DimensionKind.TERMINATE), Dimension('grip')))
    chain = parse_conversions(['reorder:1,0,2', 'drop-terminate'], space=space)
    np.testing.assert_array_equal(chain(ACTIONS), ACTIONS[:, [0, 2]])
    assert chain.space(space).names == ('x', 'grip')


@pytest.mark.parametrize('suffix', ['.npy', '.csv'])
def test_the_verb_converts_a_file_and_back(suffix: str, tmp_path: Path, stats: Path) -> None:
    source, there, back = (tmp_path / f'{name}{suffix}' for name in ('a', 'b', 'c'))
    np.save(source, ACTIONS) if suffix == '.npy' else np.savetxt(
        source, ACTIONS, delimiter=',', header='x,y,g', comments=''
    )
    steps = ['--step', f'unnormalize:{stats}', '--step', 'reorder:2,1,0']
    robotrials('actions', 'convert', source, *steps, '--out', there)
    robotrials('actions', 'convert', there, *steps, '--inverse', '--out', back)
    read = (lambda p: np.load(p)) if suffix == '.npy' else (lambda p: np.loadtxt(p, delimiter=','))
    np.testing.assert_allclose(read(there)[0], [0.02, 1.0, 1.5])
    np.testing.assert_allclose(read(back), ACTIONS)
    said = robotrials('actions', 'convert', source, '--step', 'ternary-gripper:2', '--inverse', '--out', back, code=2)
    assert 'cannot be undone' in said
    assert 'wanted .npy or .csv' in robotrials('actions', 'convert', stats, '--step', 'select:0', '--out', back, code=2)


def test_the_verb_writes_the_space_too(tmp_path: Path) -> None:
    np.save(tmp_path / 'a.npy', ACTIONS)
    space = ActionSpace((Dimension('x'), Dimension('y'), Dimension('grip', DimensionKind.GRIPPER)))
    (tmp_path / 's.json').write_text(json.dumps(space.as_json()))
    robotrials('actions', 'convert', tmp_path / 'a.npy', '--step', 'select:2,0', '--out', tmp_path / 'b.npy',
             '--space', tmp_path / 's.json', '--space-out', tmp_path / 't.json')  # fmt: skip
    assert [d['name'] for d in json.loads((tmp_path / 't.json').read_text())] == ['grip', 'x']
