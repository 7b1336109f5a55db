from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats.build import make_rlds, rlds_example, rlds_features, rollout, tensor

from robotrials.errors import InputError
from robotrials.formats.catalog import detect, open_source
from robotrials.formats.imported import ImportOptions
from robotrials.formats.intake import import_into
from robotrials.formats.rlds import write_rlds
from robotrials.formats.video import VideoFrames
from robotrials.record import Outcome, Store, read_store

SAID: dict[str, Any] = {'defaults': {'policy': 'human'}, 'rate_hz': 5.0}


def imported(path: Path, to: Path, **options: Any) -> Store:
    import_into(to, open_source(path, ImportOptions(**{**SAID, **options})))
    return read_store(to)


def test_an_rlds_dataset_becomes_episodes(tmp_path: Path) -> None:
    folder = make_rlds(tmp_path, train=4, test=2)
    assert detect(tmp_path).name == 'rlds'
    store = imported(folder, tmp_path / 'store')
    found = list(store.trajectories())
    assert [(e.labels['split'], e.labels['index']) for e, _ in found] == [
        ('train', '0'), ('train', '1'), ('train', '2'), ('train', '3'), ('test', '0'), ('test', '1')
    ]  # fmt: skip
    for episode, trajectory in found:
        seed = int(episode.labels['index']) + (1000 if episode.labels['split'] == 'test' else 0)
        made = rollout(seed, trajectory.n_steps)
        assert episode.outcome is Outcome.SUCCESS
        assert episode.task == f'push to corner {seed % 4}'
        assert episode.duration_s == pytest.approx(trajectory.n_steps / 5)
        assert episode.labels['file_path'] == f'demo_{seed}.hdf5'
        assert trajectory.action_raw is not None
        np.testing.assert_allclose(trajectory.action_raw[:, 2:], made['move'], rtol=1e-6)
        np.testing.assert_array_equal(trajectory.extra['state'], made['state'].astype(np.float32))
        camera = trajectory.scene.cameras[0]
        frames = VideoFrames(store.path / 'media' / camera.video, 0.0, 5.0, trajectory.n_steps)
        assert frames[trajectory.n_steps - 1].array().shape == (24, 32, 3)


def test_the_rate_must_be_said(tmp_path: Path) -> None:
    folder = make_rlds(tmp_path, train=2)
    with pytest.raises(InputError, match='RLDS does not state how long a step took; wanted --rate-hz'):
        open_source(folder, ImportOptions(defaults={'policy': 'human'}))


def test_rewards_that_never_come_do_not_make_failures(tmp_path: Path) -> None:
    examples = [rlds_example(i, 6, with_image=False) for i in range(3)]
    for example in examples:
        example['steps']['reward'] = np.zeros(6, np.float32)
    features = rlds_features(with_image=False)
    folder = write_rlds(tmp_path, {'train': examples}, name='dull', features=features)
    with pytest.raises(InputError, match='no step of any of the 3 episodes has a reward of 1'):
        imported(folder, tmp_path / 'store')
    assert not (tmp_path / 'store').exists()
    store = imported(folder, tmp_path / 'store', defaults={'policy': 'human', 'outcome': 'success'})
    assert {e.outcome for e in store.episodes()} == {Outcome.SUCCESS}


def test_nan_and_a_damaged_shard_are_named(tmp_path: Path) -> None:
    examples = [rlds_example(i, 6, with_image=False) for i in range(3)]
    examples[1]['steps']['observation']['state'][4, 2] = np.nan
    folder = write_rlds(tmp_path, {'train': examples}, name='x', features=rlds_features(with_image=False))
    with pytest.raises(InputError, match=r'train episode 1: state is nan at step 4, number 2'):
        imported(folder, tmp_path / 'store')
    shard = next(folder.glob('*.tfrecord*'))
    shard.write_bytes(shard.read_bytes()[:-40])
    with pytest.raises(InputError, match='truncated'):
        imported(folder, tmp_path / 'store', answers={'nan': 'keep'})
    assert not (tmp_path / 'store').exists()


def test_what_has_no_place_is_accounted_for(tmp_path: Path) -> None:
    features = rlds_features(with_image=False)
    steps = features.children['steps'].inner
    assert steps is not None
    steps.children['observation'].children['natural_language_embedding'] = tensor('float32', 4)  # type: ignore[index]
    example = rlds_example(0, 6, with_image=False)
    example['steps']['observation']['natural_language_embedding'] = np.zeros((6, 4), np.float32)
    folder = write_rlds(tmp_path, {'train': [example]}, name='x', features=features)
    source = open_source(folder, ImportOptions(**SAID))
    dropped = [str(entry) for entry in source.ledger.dropped]
    assert dropped == ['steps/natural_language_embedding: an embedding, or of no fixed size: no place in a trajectory']
    assert 'action_raw from action' in [str(entry) for entry in source.ledger.kept]
