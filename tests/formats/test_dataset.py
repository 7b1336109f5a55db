"""Features of LeRobot folders under the names that openpi, RADAR and GR00T give them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.formats.build import make_lerobot

from robotrials.errors import InputError, UnknownName
from robotrials.formats.dataset import RecordedEpisode, open_dataset

OPENPI = {'observation.images.image': 'image', 'observation.state': 'state', 'action': 'actions'}


def renamed(path: Path, names: dict[str, str], version: str = 'v2.1') -> Path:
    """A folder whose features have other names."""
    folder = make_lerobot(path, version, episodes=3)
    info = json.loads((folder / 'meta' / 'info.json').read_text())
    info['features'] = {names.get(n, n): f for n, f in info['features'].items()}
    (folder / 'meta' / 'info.json').write_text(json.dumps(info))
    for file in (folder / 'data').rglob('*.parquet'):
        table = pq.read_table(file)
        pq.write_table(table.rename_columns([names.get(n, n) for n in table.column_names]), file)
    return folder


def first(path: Path, **options: Any) -> RecordedEpisode:
    return next(iter(open_dataset(path, **options).episodes('train')))


@pytest.mark.parametrize('version', ['v2.1', 'v3.0'])
def test_state_and_actions_of_openpi_and_radar_are_found(version: str, tmp_path: Path) -> None:
    """RADAR A.2: a vector `state`, `actions`, and cameras without a prefix."""
    plain = first(make_lerobot(tmp_path / 'plain', version, episodes=3))
    other = first(renamed(tmp_path / 'openpi', OPENPI, version))
    np.testing.assert_array_equal(plain.actions, other.actions)
    np.testing.assert_array_equal(plain.state['state'], other.state['state'])
    assert other.images.keys() == {'image'}
    assert other.instruction() == plain.instruction()


def test_names_of_ones_own_can_be_given_and_a_lack_names_what_there_is(tmp_path: Path) -> None:
    folder = renamed(
        tmp_path / 'own', {'action': 'acts', 'observation.state': 'obs', 'observation.images.image': 'cam'}
    )
    with pytest.raises(InputError, match=r'no feature "action" or "actions".*obs, acts'):
        open_dataset(folder)
    found = first(folder, names={'action': 'acts', 'state': 'obs'})
    assert found.actions.shape[1] == 4
    assert found.state.keys() == {'obs'}
    with pytest.raises(UnknownName, match="did you mean 'acts'"):
        open_dataset(folder, names={'action': 'act'})
    with pytest.raises(UnknownName, match='role'):
        open_dataset(folder, names={'reward': 'acts'})


MODALITY: dict[str, Any] = {
    'state': {'arm': {'start': 0, 'end': 2}, 'gripper': {'start': 2, 'end': 3}},
    'action': {'arm': {'start': 0, 'end': 3}, 'gripper': {'start': 3, 'end': 4}},
    'video': {'ego_view': {'original_key': 'observation.images.image'}},
    'annotation': {'human.task_description': {'original_key': 'task_index'}},
}


def test_the_slices_of_gr00t_have_their_names(tmp_path: Path) -> None:
    folder = make_lerobot(tmp_path / 'groot', 'v2.1', episodes=3)
    plain = first(folder)
    (folder / 'meta' / 'modality.json').write_text(json.dumps(MODALITY))
    dataset = open_dataset(folder)
    assert dataset.space.names == ('arm[0]', 'arm[1]', 'arm[2]', 'gripper')
    found = next(iter(dataset.episodes('train')))
    assert found.images.keys() == {'ego_view'}
    assert found.state.keys() == {'arm', 'gripper'}
    np.testing.assert_array_equal(np.hstack([found.state['arm'], found.state['gripper']]), plain.state['state'])
    assert found.instruction() == plain.instruction()


@pytest.mark.parametrize('text', ['{', '[]', '{"state": {"arm": {"start": 3, "end": 1}}}', '{"action": {"arm": {}}}'])
def test_slices_that_are_none_are_refused(text: str, tmp_path: Path) -> None:
    folder = make_lerobot(tmp_path / 'groot', 'v2.1', episodes=1)
    (folder / 'meta' / 'modality.json').write_text(text)
    with pytest.raises(InputError, match=r'modality\.json'):
        open_dataset(folder)
