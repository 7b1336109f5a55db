"""DROID's raw recordings: telemetry, films, outcomes and durations in one command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.formats.catalog import open_source
from robotrials.formats.droid import pose_from_euler
from robotrials.formats.imported import ImportAccount, ImportOptions
from robotrials.formats.intake import import_into
from robotrials.formats.video import VideoFrames, encode_frames
from robotrials.record import Outcome, Store, read_store
from robotrials.record.footage import film_times

START_MS = 1_684_140_675_000
SERIALS = {'wrist': '16787047', 'ext1': '24259877', 'ext2': '25455306'}
STEPS = 12
EULER = np.array([0.3, -0.7, 2.1])


def make_episode(
    root: Path, *, number: int = 0, success: bool = True, has_metadata: bool = True, frames: int = STEPS
) -> Path:
    """A folder as DROID's collection writes it, by its published schema."""
    day = root / 'CLVR' / ('success' if success else 'failure') / '2023-05-15'
    folder = day / f'Mon_May_15_00:{51 + number}:15_2023'
    (folder / 'recordings' / 'MP4').mkdir(parents=True)
    (folder / 'recordings' / 'SVO').mkdir()
    step_ms = START_MS + 60_000 * number + np.cumsum([0, *([66, 68] * STEPS)])[:STEPS]
    rng = np.random.default_rng(number)
    with h5py.File(folder / 'trajectory.h5', 'w') as file:
        file.attrs.update({'current_task': 'Put the marker in the cup', 'success': success, 'failure': not success,
                           'user': 'Ada Lovelace', 'building': 'Levine'})  # fmt: skip
        state = file.create_group('observation/robot_state')
        state['joint_positions'] = rng.normal(size=(STEPS, 7))
        state['motor_torques_measured'] = rng.normal(size=(STEPS, 7))
        state['gripper_position'] = np.linspace(0, 1, STEPS)
        state['cartesian_position'] = np.concatenate([rng.normal(size=(STEPS, 3)), np.tile(EULER, (STEPS, 1))], axis=1)
        for name, width in (('joint_velocity', 7), ('joint_position', 7), ('cartesian_velocity', 6)):
            file[f'action/{name}'] = rng.normal(size=(STEPS, width))
        file['action/gripper_position'] = np.linspace(0, 1, STEPS)
        file['observation/controller_info/movement_enabled'] = np.ones(STEPS, bool)
        file['observation/timestamp/control/step_start'] = step_ms
        for serial in SERIALS.values():
            file[f'observation/timestamp/cameras/{serial}_estimated_capture'] = step_ms + 20
            file[f'observation/camera_extrinsics/{serial}_left'] = np.zeros((STEPS, 6))
    for name, serial in SERIALS.items():
        if name == 'ext2':
            (folder / 'recordings' / 'SVO' / f'{serial}.svo').write_bytes(b'SVO')
            continue
        pixels = (np.full((48, 64, 3), 10 + 8 * i, np.uint8) for i in range(frames))
        encode_frames(pixels, folder / 'recordings' / 'MP4' / f'{serial}.mp4', fps=60)
    if has_metadata:
        uuid = f'CLVR+236539bc+2023-05-15-00h-{51 + number}m-15s'
        told = {'uuid': uuid, 'lab': 'CLVR', 'user': 'Ada Lovelace', 'success': success, 'scene_id': 7,
                'current_task': 'Put the marker in the cup', 'trajectory_length': STEPS,
                **{f'{name}_cam_serial': serial for name, serial in SERIALS.items()}}  # fmt: skip
        (folder / f'metadata_{uuid}.json').write_text(json.dumps(told))
    return folder


def imported(path: Path, to: Path, **options: Any) -> tuple[Store, ImportAccount]:
    source = open_source(path, ImportOptions(**{'defaults': {'policy': 'pi0'}, **options}))
    import_into(to, source)
    return read_store(to), source.ledger


def test_a_tree_of_recordings_comes_in_by_one_command(tmp_path: Path) -> None:
    make_episode(tmp_path / 'droid')
    make_episode(tmp_path / 'droid', number=1, success=False)
    command = [sys.executable, '-m', 'robotrials.cli', 'import', 'droid', '--to', 'store', '--set', 'policy=pi0']
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    store = read_store(tmp_path / 'store')
    rollouts = {episode.outcome: (episode, trajectory) for episode, trajectory in store.trajectories()}
    episode, trajectory = rollouts[Outcome.SUCCESS]
    assert rollouts.keys() == {Outcome.SUCCESS, Outcome.FAILURE}
    assert episode.task == episode.instruction == 'Put the marker in the cup'
    assert (episode.operator, episode.labels['scene_id'], episode.benchmark) == ('Ada Lovelace', '7', 'droid')
    assert episode.duration_s == pytest.approx((66 * 6 + 68 * 5 + 67) / 1e3, abs=0.002)
    assert episode.started_at is not None
    assert episode.started_at.timestamp() == pytest.approx(START_MS / 1e3)
    assert trajectory.time_s[1] == pytest.approx(0.066)
    assert trajectory.joint_position_rad is not None
    assert trajectory.joint_torque_nm is not None
    assert trajectory.action_raw is not None
    assert trajectory.action_raw.shape == (STEPS, 7)
    assert set(trajectory.extra) >= {'action/cartesian_velocity', 'observation/controller_info/movement_enabled'}
    cameras = {camera.name: camera for camera in trajectory.scene.cameras}
    assert cameras.keys() == {'wrist', 'ext1'}
    path = store.path / 'media' / cameras['wrist'].video
    assert film_times(path)[:3] == pytest.approx([0.020, 0.086, 0.154], abs=2e-3), 'when each picture was taken'
    levels = [float(VideoFrames(path, 0.02, 15.0, STEPS)[i].array().mean()) for i in (0, 5)]
    assert levels == pytest.approx([10, 50], abs=3)
    assert "ZED's SVO only" in ' '.join(told.stdout.split())
    _check_films_open(store)


def _check_films_open(store: Store) -> None:
    """The explorer lists and serves every film."""
    from fastapi.testclient import TestClient

    from robotrials.service.explorer import create_explorer

    explorer = TestClient(create_explorer(store))
    for episode, trajectory in store.trajectories():
        films = explorer.get(f'/data/episode/{episode.episode_id}/{episode.attempt}').json()['films']
        assert len(films) == len(trajectory.scene.cameras)
        for film in films:
            played = explorer.get(f'/media/{film["name"]}', headers={'range': 'bytes=0-99'})
            assert played.status_code == 206


def test_euler_angles_are_about_fixed_axes() -> None:
    from scipy.spatial.transform import Rotation

    x, y, z, w = Rotation.from_euler('xyz', EULER).as_quat()
    assert pose_from_euler(np.array([[1, 2, 3, *EULER]]))[0] == pytest.approx([1, 2, 3, w, x, y, z])


def test_without_metadata_the_file_says_how_it_went_and_films_have_their_serials(tmp_path: Path) -> None:
    folder = make_episode(tmp_path, success=False, has_metadata=False)
    store, _ = imported(folder, tmp_path / 'store')
    ((episode, trajectory),) = store.trajectories()
    assert episode.outcome is Outcome.FAILURE
    assert {c.name for c in trajectory.scene.cameras} == {SERIALS['wrist'], SERIALS['ext1']}


def test_a_film_of_another_rate_is_spread_over_the_episode_and_said(tmp_path: Path) -> None:
    store, ledger = imported(make_episode(tmp_path, frames=30), tmp_path / 'store')
    ((_, trajectory),) = store.trajectories()
    camera = trajectory.scene.cameras[0]
    assert len(camera.video_steps) == 30
    assert (camera.video_steps[0], camera.video_steps[-1]) == (1, STEPS)
    assert any('spread evenly' in note for note in ledger.notes)


def test_an_episode_that_was_broken_off_is_no_failure(tmp_path: Path) -> None:
    folder = make_episode(tmp_path, success=False, has_metadata=False)
    with h5py.File(folder / 'trajectory.h5', 'a') as file:
        file.attrs['failure'] = False
    store, _ = imported(folder, tmp_path / 'store', answers={'cameras': 'leave'})
    (episode,) = store.episodes()
    assert (episode.outcome, episode.reason[:10]) == (Outcome.INVALID, 'broken off')


def _both(folder: Path) -> None:
    with h5py.File(folder / 'trajectory.h5', 'a') as file:
        file.attrs['failure'] = True


def _unclear(folder: Path) -> None:
    with h5py.File(folder / 'trajectory.h5', 'a') as file:
        file.attrs['success'] = 'perhaps'


def _other_verdict(folder: Path) -> None:
    (path,) = folder.glob('metadata_*.json')
    path.write_text(json.dumps({**json.loads(path.read_text()), 'success': False}))


def _short(folder: Path) -> None:
    with h5py.File(folder / 'trajectory.h5', 'a') as file:
        values = np.asarray(file['action/joint_velocity'])[:-3]
        del file['action/joint_velocity']
        file['action/joint_velocity'] = values


def _cut(folder: Path) -> None:
    path = folder / 'trajectory.h5'
    path.write_bytes(path.read_bytes()[:900])


def _no_film(folder: Path) -> None:
    (folder / 'recordings' / 'MP4' / f'{SERIALS["wrist"]}.mp4').write_bytes(b'no film')


def _not_json(folder: Path) -> None:
    next(folder.glob('metadata_*.json')).write_text('{')


@pytest.mark.parametrize(
    ('spoil', 'match'),
    [
        (_both, 'success and failure at once'), (_unclear, "success is 'perhaps'"),
        (_other_verdict, 'success is False, and trajectory.h5 says True'), (_short, 'not whole'),
        (_cut, 'damaged, cut short or not HDF5'), (_no_film, '16787047.mp4'), (_not_json, 'not readable as JSON'),
    ],
)  # fmt: skip
def test_a_recording_that_is_not_whole_is_named(tmp_path: Path, spoil: Callable[[Path], None], match: str) -> None:
    folder = make_episode(tmp_path / 'droid')
    spoil(folder)
    with pytest.raises(InputError, match=match):
        imported(tmp_path / 'droid', tmp_path / 'store')
    assert not (tmp_path / 'store').exists()
