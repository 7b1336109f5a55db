"""Demonstrations from an expert on a host, HDF5 files, LeRobot datasets and stores."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.formats.build import make_lerobot, picture, rollout
from tests.run.plans import FAST, make_plan

from robotrials.errors import InputError, UnknownName
from robotrials.policies.probe import (
    collect_demonstrations,
    demonstrations_from_hdf5,
    demonstrations_from_lerobot,
    demonstrations_from_store,
)
from robotrials.record import Outcome, read_store
from robotrials.run import ActionConvention, Setup, close_trial, run_trial
from robotrials.run.plan import HostEntry, PolicyEntry

HOST = HostEntry('point-mass', {'camera_px': 16})
SEEK = PolicyEntry('seek', {'speed_m_s': 1.0})
TOY = ActionConvention(control_mode='se3', target='delta', frame='base', gripper='open_is_one')  # type: ignore[arg-type]


def make_libero(path: Path, *, demos: int = 3, words: str = 'put the bowl on the plate', **changes: Any) -> Path:
    """Demonstrations as LIBERO publishes them: number i has 5 + i steps and actions of i; number 1 was not rewarded."""
    with h5py.File(path, 'w') as file:
        data = file.create_group('data')
        data.attrs['env_args'] = json.dumps({'env_kwargs': {'control_freq': changes.get('rate_hz', 20)}})
        data.attrs['problem_info'] = json.dumps({'language_instruction': words})
        data.attrs['bddl_file_name'] = f'libero_goal/{words.replace(" ", "_")}.bddl'
        data.attrs['num_demos'] = demos
        for number in range(demos):
            demo, steps = data.create_group(f'demo_{number}'), 5 + number
            demo['actions'] = np.full((steps, 7), float(number))
            demo['states'] = np.full((steps, 20), float(number))
            demo['rewards'] = (np.arange(steps) == steps - 1) & (number != 1)
            demo['obs/ee_states'] = np.full((steps, 6), 2.0)
            demo['obs/gripper_states'] = np.full((steps, 2), 3.0)
            for camera, value in (('agentview', 10), ('eye_in_hand', 20)):
                demo[f'obs/{camera}_rgb'] = np.full((steps, 8, 8, 3), value + number, np.uint8)
    return path


def test_an_expert_is_collected_with_what_a_policy_sees(tmp_path: Path) -> None:
    setups = [Setup(task='reach', seed=seed) for seed in range(4)]
    made = collect_demonstrations(HOST, SEEK, setups, tmp_path / 'demos', state_width=2)
    assert made.n_episodes == 4
    assert made.state.shape[1] == 2
    assert made.facts.state_layout == ('x_m', 'y_m')
    assert made.images['top'].shape[1:] == (16, 16, 3)
    assert all(e.success for e in made.facts.episodes)
    for start, end in zip(made.starts[:-1], made.starts[1:], strict=True):
        steps = np.diff(made.state[start:end], axis=0)
        np.testing.assert_allclose(steps, made.action[start : end - 1, :2], atol=1e-6)


def test_pushes_move_the_arm_and_leave_the_experts_action(tmp_path: Path) -> None:
    setups = [Setup(task='reach', seed=seed) for seed in range(6)]
    made = collect_demonstrations(HOST, SEEK, setups, tmp_path / 'demos', noise=0.02, noise_share=0.5)
    start, end = made.starts[:2]
    gap = made.state[start:end, 2:4] - made.state[start:end, :2]
    along = made.action[start:end, :2] / np.linalg.norm(made.action[start:end, :2], axis=1, keepdims=True)
    np.testing.assert_allclose(along, gap / np.linalg.norm(gap, axis=1, keepdims=True), atol=1e-4)
    moved = np.diff(made.state[start:end, :2], axis=0) - made.action[start : end - 1, :2]
    assert 0 < (np.abs(moved).max(axis=1) > 1e-4).mean() < 1
    again = collect_demonstrations(HOST, SEEK, setups, tmp_path / 'again', noise=0.02, noise_share=0.5)
    other = collect_demonstrations(HOST, SEEK, setups, tmp_path / 'other', noise=0.02, noise_share=0.5, seed=1)
    assert made.digest == again.digest != other.digest


def test_starts_that_a_condition_moves_apart_are_pushed_each_in_its_own_way(tmp_path: Path) -> None:
    """The tries about one test start share its seed: pushed alike, an unlucky push would fail them all."""
    setups = [Setup(task='reach', seed=1, condition_parameters={'seed': number}) for number in (1, 2, 1)]
    made = collect_demonstrations(HOST, SEEK, setups, tmp_path / 'demos', noise=0.02, noise_share=0.5)
    first, second, again = (made.state[a:b] for a, b in itertools.pairwise(made.starts))
    np.testing.assert_array_equal(first, again)
    n = min(len(first), len(second))
    assert np.abs(first[:n] - second[:n]).max() > 1e-3


def test_a_folder_is_taken_up_by_the_same_call_and_by_no_other(tmp_path: Path) -> None:
    setups = [Setup(task='reach', seed=seed) for seed in range(2)]
    made = collect_demonstrations(HOST, SEEK, setups, tmp_path / 'demos')
    tried: list[object] = []
    again = collect_demonstrations(HOST, SEEK, setups, tmp_path / 'demos', progress=tried.append)
    assert (again.digest, tried) == (made.digest, [])
    moved = [dataclasses.replace(s, condition_parameters={'distance_m': 0.1}) for s in setups]
    others: list[tuple[list[Setup], dict[str, Any]]] = [(moved, {}), (setups, {'noise': 0.01}), (setups, {'seed': 1})]
    for starts, options in others:
        with pytest.raises(InputError, match='of another plan'):
            collect_demonstrations(HOST, SEEK, starts, tmp_path / 'demos', **options)


def test_of_a_group_no_more_is_collected_than_was_asked_for(tmp_path: Path) -> None:
    setups = [Setup(task='reach', seed=seed) for seed in range(6)]
    tried: list[Any] = []
    made = collect_demonstrations(
        HOST, SEEK, setups, tmp_path / 'demos', groups=[0, 0, 0, 1, 1, 1], per_group=2, progress=tried.append
    )
    assert [e.id for e in made.facts.episodes] == ['0', '1', '3', '4']
    assert len(tried) == 4
    with pytest.raises(InputError, match='2 groups are given for 6 set-ups'):
        collect_demonstrations(HOST, SEEK, setups, tmp_path / 'other', groups=[0, 1])


def test_failures_are_left_out_and_padding_and_skipping_are_kept(tmp_path: Path) -> None:
    setups = [Setup(task='reach', seed=seed) for seed in range(4)]
    slow = PolicyEntry('seek', {'speed_m_s': 0.001})
    with pytest.raises(InputError, match='no demonstration was kept'):
        collect_demonstrations(HOST, slow, setups, tmp_path / 'none', time_cap_s=1.0)
    failed = collect_demonstrations(HOST, slow, setups, tmp_path / 'failed', time_cap_s=1.0, only_successes=False)
    assert [e.success for e in failed.facts.episodes] == [False] * 4
    plain = collect_demonstrations(HOST, SEEK, setups, tmp_path / 'plain')
    changed = collect_demonstrations(HOST, SEEK, setups, tmp_path / 'changed', padding_steps=3, skip_steps=2)
    np.testing.assert_array_equal(np.diff(changed.starts), np.diff(plain.starts) + 1)
    assert (changed.action[changed.starts[1] - 3 : changed.starts[1]] == 0).all()
    np.testing.assert_array_equal(changed.state[0], plain.state[2])
    assert all(e.begins_in_motion for e in changed.facts.episodes)
    assert not any(e.begins_in_motion for e in plain.facts.episodes)


def test_libero_files_become_what_the_libero_host_shows(tmp_path: Path) -> None:
    files = [make_libero(tmp_path / 'a_demo.hdf5'), make_libero(tmp_path / 'b_demo.hdf5', words='open the drawer')]
    made = demonstrations_from_hdf5(files, tmp_path / 'demos', phrasings={'pull it': 'open_the_drawer'})
    assert made.facts.tasks == ('put_the_bowl_on_the_plate', 'open_the_drawer')
    assert made.facts.phrasings['pull it'] == made.facts.phrasings['open the drawer'] == 'open_the_drawer'
    assert made.facts.control_rate_hz == 20.0
    assert list(np.diff(made.starts)) == [5, 6, 7] * 2
    np.testing.assert_array_equal(made.state[0], [2.0] * 6 + [3.0] * 2)
    assert made.facts.state_layout[0] == 'eef_x_m'
    for e, start in enumerate(made.starts[:-1]):
        assert made.action[start, 0] == e % 3
        assert made.images['agentview'][start, 0, 0, 0] == 10 + e % 3
        assert made.images['wrist'][start, 0, 0, 0] == 20 + e % 3
    assert [e.success for e in made.facts.episodes] == [True, False, True] * 2
    assert demonstrations_from_hdf5(files, tmp_path / 'good', only_successes=True).n_episodes == 4


def test_the_probes_layout_of_libero_is_the_hosts() -> None:
    from robotrials.policies.probe.source import LIBERO_LAYOUT
    from robotrials.worlds.arm.signal import PROPRIOCEPTION

    assert LIBERO_LAYOUT == PROPRIOCEPTION


@pytest.mark.parametrize(
    ('key', 'value', 'said'),
    [
        ('obs/ee_states', np.zeros((10, 6)), 'wanted 5 steps as in actions'),  # twice as long: it could be reshaped
        ('obs/gripper_states', np.zeros((3, 2)), 'wanted 5 steps as in actions'),
        ('states', np.zeros((0, 20)), 'wanted (steps, numbers)'),
        ('rewards', np.array([b'x'] * 5), 'not an array of numbers'),
        ('actions', np.full((5, 7), np.nan), 'not finite'),
        ('actions', None, "named 'actions'"),
    ],
)
def test_an_array_that_does_not_fit_is_named(tmp_path: Path, key: str, value: Any, said: str) -> None:
    path = make_libero(tmp_path / 'a.hdf5')
    with h5py.File(path, 'a') as file:
        del file[f'data/demo_0/{key}']
        if value is not None:
            file[f'data/demo_0/{key}'] = value
    with pytest.raises(InputError, match=re.escape(said)):
        demonstrations_from_hdf5([path], tmp_path / 'demos')
    assert [p.name for p in tmp_path.iterdir()] == ['a.hdf5']


def test_a_demonstration_is_not_counted_twice(tmp_path: Path) -> None:
    path = make_libero(tmp_path / 'a.hdf5')
    with pytest.raises(InputError, match=r'two files are named a\.hdf5'):
        demonstrations_from_hdf5([path, path], tmp_path / 'demos')


def test_hdf5_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    files = [make_libero(tmp_path / 'a.hdf5'), make_libero(tmp_path / 'b.hdf5', words='go', rate_hz=10)]
    with pytest.raises(InputError, match='control rates'):
        demonstrations_from_hdf5(files, tmp_path / 'demos')
    with pytest.raises(UnknownName, match='agentview'):
        demonstrations_from_hdf5(files[:1], tmp_path / 'demos', cameras={'top': 'obs/agentvew_rgb'})
    with pytest.raises(InputError, match='no file'):
        demonstrations_from_hdf5([], tmp_path / 'demos')
    assert not (tmp_path / 'demos').exists()


@pytest.mark.parametrize('version', ['v2.1', 'v3.0'])
def test_a_lerobot_dataset_becomes_demonstrations(tmp_path: Path, version: str) -> None:
    path = make_lerobot(tmp_path / 'toy', version)
    made = demonstrations_from_lerobot(path, tmp_path / 'demos', action=TOY, phrasings={'push right': 'push'})
    assert made.facts.tasks == ('push left', 'push')
    assert made.n_episodes == 10
    assert made.facts.episodes[0].success is None
    for e, start in enumerate(made.starts[:-1]):
        state = rollout(e, 8 + e % 5)['state']
        np.testing.assert_array_equal(made.state[start], state[0].astype(np.float32))
        np.testing.assert_array_equal(made.images['image'][start + 1], picture(state[1]))
    with pytest.raises(UnknownName, match='image'):
        demonstrations_from_lerobot(path, tmp_path / 'other', action=TOY, cameras={'top': 'imag'})


def test_a_store_is_played_again_on_its_host(tmp_path: Path) -> None:
    plan = make_plan(episodes_per_cell=3)
    run_trial(plan, tmp_path / 'store', workers=0)
    close_trial(plan, tmp_path / 'store', by='kim')
    made = demonstrations_from_store(tmp_path / 'store', tmp_path / 'demos', policy=FAST, host=HOST)
    store = read_store(tmp_path / 'store')
    recorded = [e for e in store.episodes(where={'policy': FAST}) if e.outcome is Outcome.SUCCESS]
    assert [e.id for e in made.facts.episodes] == [e.episode_id for e in recorded]
    assert list(np.diff(made.starts)) == [round((e.duration_s or 0) * 20) for e in recorded]
    assert made.images['top'].shape[1:] == (16, 16, 3)
    with pytest.raises(InputError, match='no successful episode of nobody'):
        demonstrations_from_store(tmp_path / 'store', tmp_path / 'none', policy='nobody', host=HOST)
    moved = HostEntry('point-mass', {'camera_px': 16, 'reach_m': 0.0001})
    with pytest.raises(InputError, match='its replay in'):
        demonstrations_from_store(tmp_path / 'store', tmp_path / 'other', policy=FAST, host=moved)
