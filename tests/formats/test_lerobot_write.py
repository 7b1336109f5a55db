from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from tests.formats.robot import HEIGHT, RATE_HZ, WIDTH, level, made_store, made_trajectory

from robotrials.errors import InputError
from robotrials.formats.catalog import open_source
from robotrials.formats.dataset import open_dataset
from robotrials.formats.export import ExportOptions, load_exporter
from robotrials.formats.imported import ImportOptions
from robotrials.formats.intake import import_into
from robotrials.formats.video import encode_frames
from robotrials.record import Camera, Episode, Outcome, Store, Trajectory, read_store, trajectories_equal

VERSIONS = {'v3.0': 'lerobot', 'v2.1': 'lerobot-v2.1'}


def exported(store: Store, target: Path, version: str, **options: object) -> Path:
    load_exporter(VERSIONS[version]).write(store, target, ExportOptions(**options))  # type: ignore[arg-type]
    return target


def by_id(store: Store) -> dict[str, tuple[Episode, Trajectory]]:
    return {e.episode_id: (e, t) for e, t in store.trajectories()}


@pytest.mark.parametrize('version', VERSIONS)
def test_a_store_comes_back_as_it_was(tmp_path: Path, version: str) -> None:
    store = made_store(tmp_path / 'store')
    folder = exported(store, tmp_path / 'dataset', version)
    import_into(tmp_path / 'again', open_source(folder, ImportOptions()))
    before, after = by_id(store), by_id(read_store(tmp_path / 'again'))
    assert before.keys() == after.keys()
    for identity, (episode, trajectory) in before.items():
        found, steps = after[identity]
        assert dataclasses.replace(found, provenance_id='') == episode
        assert trajectories_equal(steps, dataclasses.replace(trajectory, contacts=None))
        assert (tmp_path / 'again' / 'media' / steps.scene.cameras[0].video).exists()


@pytest.mark.parametrize('version', VERSIONS)
def test_frames_of_the_videos_are_the_episodes_own(tmp_path: Path, version: str) -> None:
    folder = exported(made_store(tmp_path / 'store'), tmp_path / 'dataset', version)
    for number, episode in enumerate(open_dataset(folder).episodes('train')):
        for frame in (0, 5, 11):
            pixels = episode.observation(frame).image('front')
            assert pixels.shape == (HEIGHT, WIDTH, 3)
            assert float(pixels.mean()) == pytest.approx(level(number, frame), abs=3)


def test_statistics_are_of_the_data(tmp_path: Path) -> None:
    store = made_store(tmp_path / 'store', episodes=6, videos=False)
    folder = exported(store, tmp_path / 'dataset', 'v3.0')
    stats = json.loads((folder / 'meta' / 'stats.json').read_text())
    actions = np.concatenate([t.action_raw for _, t in store.trajectories()])  # type: ignore[arg-type]
    np.testing.assert_allclose(stats['action']['mean'], actions.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(stats['action']['std'], actions.std(axis=0), rtol=1e-6)
    np.testing.assert_allclose(stats['action']['min'], actions.min(axis=0), rtol=1e-6)
    assert stats['action']['count'] == [len(actions)]
    span = np.ptp(actions, axis=0)
    for name, q in (('q01', 0.01), ('q50', 0.5), ('q99', 0.99)):
        sorted_rows = np.sort(actions, axis=0)
        low = sorted_rows[int(np.floor(q * (len(actions) - 1)))]
        high = sorted_rows[min(int(np.ceil(q * (len(actions) - 1))) + 1, len(actions) - 1)]
        found = np.array(stats['action'][name])
        assert np.all(found >= low - span / 2500)
        assert np.all(found <= high + span / 2500)
    norm = json.loads((folder / 'norm_stats.json').read_text())['norm_stats']
    assert norm.keys() == {'state', 'actions'}
    assert norm['actions']['mean'] == stats['action']['mean']
    assert len(norm['state']['q99']) == 7 + 6 + 1


def test_a_dataset_without_actions_says_so(tmp_path: Path) -> None:
    store = Store.create(tmp_path / 'store')
    episode = Episode(policy='p', task='t', seed=0, outcome='success', duration_s=1.0)
    still = Trajectory(time_s=np.arange(20) / 20.0, joint_position_rad=np.zeros((20, 7)))
    store.append([episode], trajectories={episode.key: still})
    done = load_exporter('lerobot').write(store, tmp_path / 'dataset', ExportOptions())
    assert any("no feature 'action'" in hint for hint in done.ledger.hints)
    done = load_exporter('lerobot').write(made_store(tmp_path / 'acting'), tmp_path / 'acting-dataset', ExportOptions())
    assert not any("no feature 'action'" in hint for hint in done.ledger.hints)


def test_what_cannot_be_kept_is_accounted_for(tmp_path: Path) -> None:
    store = made_store(tmp_path / 'store', videos=False)
    store.append([
        Episode(policy='pi0', task='stack', outcome=Outcome.INVALID, reason='camera lost'),
        Episode(policy='pi0', task='stack', outcome=Outcome.FAILURE, duration_s=3.0, seed=99),
    ])  # fmt: skip
    done = load_exporter('lerobot').write(store, tmp_path / 'out', ExportOptions())
    dropped = [str(entry) for entry in done.ledger.dropped]
    assert 'contacts: as many per step as there are; LeRobot features have one shape' in dropped
    assert '1 episodes: invalid: the rig broke, so they show nothing of the policy' in dropped
    assert '1 episodes: no trajectory was recorded' in dropped
    assert done.episodes == 4


def test_episodes_of_two_rates_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    store = made_store(tmp_path / 'store', videos=False)
    other = made_trajectory(9, 10)
    other = dataclasses.replace(
        other, time_s=other.time_s * 2, scene=dataclasses.replace(other.scene, control_rate_hz=RATE_HZ / 2)
    )
    episode = Episode(policy='pi0', task='stack', outcome=Outcome.FAILURE, duration_s=1.0, seed=50)
    store.append([episode], trajectories={episode.key: other})
    with pytest.raises(InputError, match='episodes of 10 to 20 Hz'):
        exported(store, tmp_path / 'out', 'v3.0')
    assert sorted(p.name for p in tmp_path.iterdir()) == ['store']


def test_a_video_of_another_length_is_refused(tmp_path: Path) -> None:
    store = made_store(tmp_path / 'store')
    videos = sorted((store.path / 'media').rglob('*.mp4'))
    videos[0].write_bytes(videos[1].read_bytes())
    with pytest.raises(InputError, match=r'frames for an episode of \d+ steps'):
        exported(store, tmp_path / 'out', 'v3.0')
    assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('version', VERSIONS)
def test_a_film_at_a_rate_of_its_own_has_a_frame_for_every_step(tmp_path: Path, version: str) -> None:
    """Frames at the reset and every fifth step: each step shows the last one; the account says so."""
    store = Store.create(tmp_path / 'store')
    shown = (0, 5, 10)
    for number in range(2):
        episode = Episode(policy='pi0', task='stack', outcome=Outcome.SUCCESS, duration_s=0.6, seed=number)
        name = f'{episode.episode_id}/top.mp4'
        (store.path / 'media' / name).parent.mkdir(parents=True)
        frames = (np.full((HEIGHT, WIDTH, 3), 40 + 5 * step, np.uint8) for step in shown)
        encode_frames(frames, store.path / 'media' / name, fps=4)
        trajectory = made_trajectory(number, 12)
        camera = Camera('top', None, None, WIDTH, HEIGHT, video=name, video_steps=shown)
        scene = dataclasses.replace(trajectory.scene, cameras=(camera,))
        store.append([episode], trajectories={episode.key: dataclasses.replace(trajectory, scene=scene)})
    done = load_exporter(VERSIONS[version]).write(store, tmp_path / 'dataset', ExportOptions())
    assert any('a frame for 17 % of the steps' in str(entry) for entry in done.ledger.kept)
    for episode_ in open_dataset(tmp_path / 'dataset').episodes('train'):
        levels = [float(episode_.observation(k).image('top').mean()) for k in range(12)]
        wanted = [40 if step < 5 else 65 if step < 10 else 90 for step in range(1, 13)]
        assert levels == pytest.approx(wanted, abs=3)
    import_into(tmp_path / 'again', open_source(tmp_path / 'dataset', ImportOptions()))
    for _, trajectory in read_store(tmp_path / 'again').trajectories():
        assert trajectory.scene.cameras[0].video_steps == ()


def test_steps_before_the_first_command_are_left_out(tmp_path: Path) -> None:
    store = made_store(tmp_path / 'store', episodes=1)
    ((episode, trajectory),) = store.trajectories()
    late = np.array(trajectory.action_raw)
    late[:3] = np.nan
    other = Store.create(tmp_path / 'late')
    name = trajectory.scene.cameras[0].video
    other.append(
        [episode], trajectories={episode.key: dataclasses.replace(trajectory, action_raw=late)},
        media={name: store.path / 'media' / name},
    )  # fmt: skip
    folder = exported(other, tmp_path / 'dataset', 'v3.0')
    (read,) = open_dataset(folder).episodes('train')
    assert read.n_steps == trajectory.n_steps - 3
    assert float(read.observation(0).image('front').mean()) == pytest.approx(level(0, 3), abs=3)
    stats = json.loads((folder / 'dataset_statistics.json').read_text())['robotrials']
    assert stats['num_transitions'] == trajectory.n_steps - 3
    assert stats['action']['mask'] == [True] * 4
    np.testing.assert_allclose(stats['action']['mean'], late[3:].mean(axis=0), rtol=1e-4)
