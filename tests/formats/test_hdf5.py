from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.formats.catalog import detect, open_source
from robotrials.formats.imported import ImportOptions
from robotrials.formats.intake import import_into
from robotrials.formats.video import VideoFrames
from robotrials.record import Outcome, Store, read_store

BDDL = '(define (problem LIBERO_Tabletop_Manipulation) (:language put the bowl on the plate))'


def make_libero(path: Path, *, demos: int = 12, convention: str = 'opengl') -> Path:
    """Demonstrations as LIBERO publishes them; demo 3 was never rewarded."""
    with h5py.File(path, 'w') as file:
        data = file.create_group('data')
        data.attrs['env_args'] = json.dumps({'problem_name': 'libero_tabletop', 'env_kwargs': {'control_freq': 20}})
        data.attrs['problem_info'] = json.dumps({'language_instruction': ['put the bowl', 'on the plate']})
        data.attrs['bddl_file_name'] = 'chiliocosm/bddl_files/libero_goal/put_the_bowl_on_the_plate.bddl'
        data.attrs['bddl_file_content'] = BDDL
        data.attrs['num_demos'] = demos
        data.attrs['macros_image_convention'] = convention
        for number in range(demos):
            fill_demo(data.create_group(f'demo_{number}'), number, 5 + number)
    return path


def fill_demo(demo: Any, number: int, steps: int) -> None:
    rng = np.random.default_rng(number)
    demo.attrs['num_samples'] = steps
    demo.attrs['model_file'] = '<mujoco/>'
    demo['actions'] = np.full((steps, 7), number, dtype=np.float64)
    demo['states'] = rng.normal(size=(steps, 20))
    demo['robot_states'] = rng.normal(size=(steps, 9))
    last = (np.arange(steps) == steps - 1).astype(np.uint8)
    demo['rewards'] = last if number != 3 else np.zeros(steps, np.uint8)
    demo['dones'] = last
    pose = np.zeros((steps, 6))
    pose[:, 2], pose[:, 3] = 1.0, np.pi  # one metre up, turned by half a turn about x
    demo['obs/ee_states'] = pose
    demo['obs/joint_states'] = rng.normal(size=(steps, 7))
    demo['obs/gripper_states'] = rng.normal(size=(steps, 2))
    pictures = np.zeros((steps, 32, 48, 3), np.uint8)
    pictures[:, :16] = 200  # the upper half of the array is bright
    demo['obs/agentview_rgb'] = pictures


def imported(path: Path, to: Path, **options: Any) -> Store:
    import_into(to, open_source(path, ImportOptions(**{'defaults': {'policy': 'human'}, **options})))
    return read_store(to)


def test_demonstrations_come_by_number(tmp_path: Path) -> None:
    path = make_libero(tmp_path / 'put_the_bowl_demo.hdf5')
    assert detect(path).name == 'robomimic'
    store = imported(path, tmp_path / 'store')
    found = list(store.trajectories())
    assert [e.labels['demo'] for e, _ in found] == [str(n) for n in range(12)]
    assert [e.repeat for e, _ in found] == list(range(12))
    for number, (episode, trajectory) in enumerate(found):
        assert trajectory.action_raw is not None
        assert trajectory.action_raw[0, 0] == number
        assert episode.duration_s == pytest.approx((5 + number) / 20)
        assert episode.outcome is (Outcome.FAILURE if number == 3 else Outcome.SUCCESS)
        assert (episode.task, episode.instruction) == ('put_the_bowl_on_the_plate', 'put the bowl on the plate')
        assert trajectory.ee_pose is not None
        np.testing.assert_allclose(trajectory.ee_pose[0], [0, 0, 1, 0, 1, 0, 0], atol=1e-12)
        assert trajectory.simulator_state is not None
        assert trajectory.joint_position_rad is not None
        assert trajectory.extra['obs/gripper_states'].shape[1] == 2


def test_the_world_is_in_the_provenance(tmp_path: Path) -> None:
    store = imported(make_libero(tmp_path / 'a.hdf5'), tmp_path / 'store', answers={'cameras': 'leave'})
    provenance = store.provenance(next(store.episodes()).provenance_id)
    assert json.loads(provenance.config)['bddl_file_content'] == BDDL
    assert provenance.environment_id == 'libero_tabletop'
    assert provenance.imported is not None
    assert any('control_freq = 20 Hz' in note for note in provenance.imported.notes)
    assert 'model_file: the whole scene as XML for every demonstration' in provenance.imported.dropped


@pytest.mark.parametrize(('convention', 'bright_first'), [('opengl', False), ('opencv', True)])
def test_pictures_stand_upright(tmp_path: Path, convention: str, bright_first: bool) -> None:
    path = make_libero(tmp_path / 'a.hdf5', demos=1, convention=convention)
    store = imported(path, tmp_path / 'store')
    _, trajectory = next(store.trajectories())
    camera = trajectory.scene.cameras[0]
    assert camera.name == 'agentview'
    pixels = VideoFrames(store.path / 'media' / camera.video, 0.0, 20.0, 5)[0].array()
    assert bool(pixels[:12].mean() > 150) is bright_first


def test_robomimic_poses_and_masks(tmp_path: Path) -> None:
    path = tmp_path / 'low_dim.hdf5'
    with h5py.File(path, 'w') as file:
        demo = file.create_group('data/demo_0')
        file['data'].attrs['env_args'] = json.dumps({'env_name': 'Lift', 'env_kwargs': {'control_freq': 10}})
        demo['actions'] = np.zeros((4, 7))
        demo['rewards'] = np.array([0, 0, 0, 1.0])
        demo['obs/robot0_eef_pos'] = np.tile([0.1, 0.2, 0.3], (4, 1))
        demo['obs/robot0_eef_quat'] = np.tile([0.0, 0.0, 1.0, 0.0], (4, 1))  # x y z w
        demo['next_obs/robot0_eef_pos'] = np.zeros((4, 3))
        file['mask/valid'] = np.array([b'demo_0'])
    store = imported(path, tmp_path / 'store')
    episode, trajectory = next(store.trajectories())
    assert episode.task == 'Lift'
    assert episode.duration_s == pytest.approx(0.4)
    assert trajectory.ee_pose is not None
    np.testing.assert_allclose(trajectory.ee_pose[0], [0.1, 0.2, 0.3, 0, 0, 0, 1])
    record = store.provenance(episode.provenance_id).imported
    assert record is not None
    assert 'mask/valid names 1 demonstrations' in record.notes
    assert 'next_obs: obs, one step later' in record.dropped


def change(path: Path, edit: Any) -> Path:
    with h5py.File(path, 'r+') as file:
        edit(file)
    return path


def drop_joint(file: Any) -> None:
    del file['data/demo_7/obs/joint_states']


def shorten(file: Any) -> None:
    rewards = file['data/demo_2/rewards'][:-1]
    del file['data/demo_2/rewards']
    file['data/demo_2/rewards'] = rewards


def spoil(file: Any) -> None:
    file['data/demo_4/actions'][2, 1] = np.nan


def miscount(file: Any) -> None:
    file['data'].attrs['num_demos'] = 50


def no_actions(file: Any) -> None:
    del file['data/demo_0/actions']


def bad_arguments(file: Any) -> None:
    file['data'].attrs['env_args'] = '{not json'


@pytest.mark.parametrize(
    ('edit', 'message'),
    [
        (drop_joint, r"data/demo_7: no 'obs/joint_states', which demo_0 has"),
        (shorten, r'data/demo_2: rewards has 6 steps, actions 7'),
        (spoil, r'data/demo_4: action_raw is nan at step 2, number 1'),
        (miscount, r'num_demos is 50, and 12 demonstrations are there'),
        (no_actions, r'data/demo_0 has no "actions"'),
        (bad_arguments, r"data.attrs\['env_args'\] is not JSON"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_imported(tmp_path: Path, edit: Any, message: str) -> None:
    path = change(make_libero(tmp_path / 'a.hdf5'), edit)
    with pytest.raises(InputError, match=message):
        imported(path, tmp_path / 'store', answers={'cameras': 'leave'})
    assert not (tmp_path / 'store').exists()


def test_a_truncated_file_and_a_foreign_one_are_named(tmp_path: Path) -> None:
    path = make_libero(tmp_path / 'a.hdf5')
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InputError, match=r'a.hdf5: damaged, cut short or not HDF5'):
        imported(path, tmp_path / 'store')
    with h5py.File(tmp_path / 'other.h5', 'w') as file:
        file['weights'] = np.zeros(3)
    with pytest.raises(InputError, match='no group "data"; found weights'):
        imported(tmp_path / 'other.h5', tmp_path / 'store')


def test_a_rate_that_is_not_stated_is_said(tmp_path: Path) -> None:
    path = change(make_libero(tmp_path / 'a.hdf5'), lambda f: f['data'].attrs.__setitem__('env_args', '{}'))
    source = open_source(path, ImportOptions(defaults={'policy': 'human'}))
    assert any('20 steps per second are assumed' in hint for hint in source.ledger.hints)
    source = open_source(path, ImportOptions(defaults={'policy': 'human'}, rate_hz=10.0))
    assert next(source.episodes()).duration_s == pytest.approx(0.5)
