"""Normalisation statistics: openpi's, OpenVLA's and LeRobot's files are one value with three spellings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import robotrials

from robotrials.errors import InputError, UnknownName
from robotrials.formats.space import norm_stats_of, read_norm_stats, spell

ACTION = {'mean': [0.1, 0.2], 'std': [1.0, 2.0], 'q01': [-1.0, -4.0], 'q99': [3.0, 4.0]}
STATE = {'mean': [0.5], 'std': [0.1], 'q01': [0.0], 'q99': [1.0]}
FILES = {
    'openpi': {'norm_stats': {'state': STATE, 'actions': ACTION}},
    'openvla': {'bridge': {'action': {**ACTION, 'mask': [True, True]}, 'proprio': STATE, 'num_transitions': 7}},
    'lerobot': {'observation.state': {**STATE, 'count': [7]}, 'action': {**ACTION, 'count': [7]}},
}


@pytest.mark.parametrize('first', FILES)
@pytest.mark.parametrize('second', FILES)
def test_every_spelling_is_read_and_written(tmp_path: Path, first: str, second: str) -> None:
    source, target = tmp_path / 'a.json', tmp_path / 'b.json'
    source.write_text(json.dumps(FILES[first]))
    robotrials('actions', 'convert', source, '--statistics', second, '--out', target)
    for path in (source, target):
        stats = read_norm_stats(path)
        for key in ('action', 'actions'):
            assert stats.vector(key, where='').q99 == (3.0, 4.0)
        assert stats.vector('observation.state', where='').mean == (0.5,)
    np.save(tmp_path / 'said.npy', np.array([[-1.0, 1.0], [0.0, 0.0]]))
    for path in (source, target):
        robotrials(
            'actions', 'convert', tmp_path / 'said.npy', '--step', f'unnormalize:{path}', '-o', tmp_path / 'o.npy'
        )
        np.testing.assert_allclose(np.load(tmp_path / 'o.npy'), [[-1.0, 4.0], [1.0, 0.0]])


def test_a_mask_is_never_lost() -> None:
    masked = norm_stats_of({'x': {'action': {**ACTION, 'mask': [True, False]}}}, where='f')
    assert spell(masked, 'openvla')['x']['action']['mask'] == [True, False]
    with pytest.raises(InputError, match='nothing was written'):
        spell(masked, 'openpi')


def test_what_is_no_file_of_statistics_is_named() -> None:
    with pytest.raises(InputError, match='no statistics in it'):
        norm_stats_of({'a': 1}, where='f')
    with pytest.raises(InputError, match='a, b; wanted one'):
        norm_stats_of({'a': {'action': ACTION}, 'b': {'action': ACTION}}, where='f')
    with pytest.raises(UnknownName, match='bridje'):
        norm_stats_of(FILES['openvla'], where='f', dataset='bridje')
    with pytest.raises(InputError, match='2 and 3 numbers'):
        norm_stats_of({'action': {'mean': [1, 2], 'std': [1, 2, 3]}}, where='f')
