from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.formats.build import make_lerobot, picture, rollout

from robotrials.errors import InputError, SetupError
from robotrials.formats.dataset import open_dataset
from robotrials.formats.lerobot import LeRobotDataset
from robotrials.formats.video import VideoFrames


@pytest.mark.parametrize('version', ['v2.0', 'v2.1', 'v3.0'])
def test_episodes_are_read_as_written(tmp_path: Path, version: str) -> None:
    dataset = open_dataset(make_lerobot(tmp_path / 'toy', version))
    assert isinstance(dataset, LeRobotDataset)
    assert dataset.splits == {'train': 10}
    assert dataset.space.names == ('x', 'y', 'z', 'gripper')
    assert [d.kind.value for d in dataset.space.dimensions] == ['position', 'position', 'position', 'gripper']
    episodes = list(dataset.episodes('train'))
    assert [e.index for e in episodes] == list(range(10))
    for seed, episode in enumerate(episodes):
        made = rollout(seed, 8 + seed % 5)
        np.testing.assert_array_equal(episode.state['state'], made['state'].astype(np.float32))
        np.testing.assert_array_equal(episode.actions[:, 3], made['grip'])
        assert episode.instruction() == ['push left', 'push right'][seed % 2]
        assert episode.time_s is not None
        np.testing.assert_allclose(np.diff(episode.time_s), 0.1, atol=1e-6)
        np.testing.assert_array_equal(episode.observation(1).image('image'), picture(made['state'][1]))


@pytest.mark.parametrize('version', ['v2.1', 'v3.0'])
def test_only_the_wanted_episodes_are_read(tmp_path: Path, version: str) -> None:
    dataset = open_dataset(make_lerobot(tmp_path / 'toy', version))
    assert [e.index for e in dataset.episodes('train', only={2, 5, 9})] == [2, 5, 9]


def test_splits_are_ranges_of_episodes(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    info = json.loads((root / 'meta' / 'info.json').read_text())
    info['splits'] = {'train': '0:7', 'val': '7:10'}
    (root / 'meta' / 'info.json').write_text(json.dumps(info))
    dataset = open_dataset(root)
    assert dataset.splits == {'train': 7, 'val': 3}
    found = list(dataset.episodes('val', only={0, 2}))
    assert [e.metadata['episode_index'] for e in found] == ['7', '9']
    assert [e.index for e in found] == [0, 2]


def test_an_episode_longer_than_a_batch_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('robotrials.formats.lerobot_layout.MOST_BATCH_ROWS', 3)
    dataset = open_dataset(make_lerobot(tmp_path / 'toy', 'v3.0'))
    assert [e.n_steps for e in dataset.episodes('train')] == [8 + i % 5 for i in range(10)]


def test_rows_that_are_missing_are_named(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v3.0')
    path = root / 'data' / 'chunk-000' / 'file-001.parquet'
    table = pq.read_table(path)
    pq.write_table(table.slice(0, table.num_rows - 1), path)
    with pytest.raises(InputError, match=r'file-001.parquet: episode 7 has 9 rows, the metadata say 10'):
        list(open_dataset(root).episodes('train'))


def test_an_unknown_version_is_refused(tmp_path: Path) -> None:
    root = make_lerobot(tmp_path / 'toy', 'v2.1')
    info = json.loads((root / 'meta' / 'info.json').read_text())
    (root / 'meta' / 'info.json').write_text(json.dumps({**info, 'codebase_version': 'v9.9'}))
    with pytest.raises(InputError, match=r"codebase_version is 'v9.9'; robotrials reads v2.0, v2.1, v3.0"):
        open_dataset(root)


def with_video(root: Path) -> Path:
    info = json.loads((root / 'meta' / 'info.json').read_text())
    info['features']['observation.images.top'] = {'dtype': 'video', 'shape': [24, 32, 3], 'names': None}
    (root / 'meta' / 'info.json').write_text(json.dumps(info))
    return root


def test_a_camera_stored_as_video_leaves_actions_readable(tmp_path: Path) -> None:
    episode = next(open_dataset(with_video(make_lerobot(tmp_path / 'toy', 'v2.1'))).episodes('train'))
    assert isinstance(episode.images['top'], VideoFrames)
    assert episode.actions.shape == (8, 4)
    wanted = InputError if importlib.util.find_spec('av') else SetupError
    with pytest.raises(wanted, match=r'videos/chunk-000/observation.images.top/episode_000000.mp4'):
        episode.observation(0).image('top')


@pytest.mark.skipif(importlib.util.find_spec('av') is None, reason='optional: PyAV is not installed')
def test_frames_of_a_shared_video_are_the_episodes_own(tmp_path: Path) -> None:
    """v3.0 keeps many episodes in one file: an episode starts at its from_timestamp."""
    import av

    path = tmp_path / 'file-000.mp4'
    with av.open(str(path), 'w') as container:
        stream = container.add_stream('mpeg4', rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, 'yuv420p'
        for level in range(30):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), level * 8, np.uint8), format='rgb24')
            container.mux(stream.encode(frame))
        container.mux(stream.encode())

    def level(frames: VideoFrames, index: int) -> float:
        return float(frames[index].array().mean()) / 8

    second = VideoFrames(path, 1.2, 10.0, 18)
    assert [level(second, i) for i in range(18)] == pytest.approx(list(range(12, 30)), abs=0.9)
    assert [level(second, i) for i in (3, 1, 1, 9)] == pytest.approx([15, 13, 13, 21], abs=0.9)
    with pytest.raises(InputError, match='the video ends after 5 of the 9 frames'):
        level(VideoFrames(path, 2.5, 10.0, 9), 8)
