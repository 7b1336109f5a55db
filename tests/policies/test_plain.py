"""Policies that run on every host: nothing, chance, and demonstrations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.policies.plain import DemonstrationPolicy, NoOpPolicy, RandomPolicy, rest_action
from robotrials.run import ActionConvention, Host, HostSpec, Setup
from robotrials.run.loop import Order, run_episode
from robotrials.run.plan import PolicyEntry
from robotrials.run.seam import check_conventions
from robotrials.testing.policy import PointMassHost
from robotrials.worlds.cell import TabletopHost

HOSTS = {
    'point-mass': lambda: (PointMassHost(), 'reach'),
    'cell': lambda: (TabletopHost(), 'bin_to_bin'),
    'cell-joint': lambda: (TabletopHost(control='joint'), 'bin_to_bin'),
}


def rollout(
    host: Host, task: str, policy: NoOpPolicy | RandomPolicy | DemonstrationPolicy, *, seed: int = 1
) -> np.ndarray:
    policy.fit(host.spec)
    check_conventions(host.spec, policy.spec)
    ran = run_episode(host, policy, Setup(task=task, seed=3), order=Order(time_cap_s=1.0, policy_seed=seed))
    assert ran.fault is None
    assert ran.trajectory is not None
    assert ran.trajectory.action_raw is not None
    return np.asarray(ran.trajectory.action_raw)


@pytest.mark.parametrize('name', sorted(HOSTS))
def test_nothing_and_chance_run_on_every_host(name: str) -> None:
    from robotrials.worlds.cell.task import TASKS

    host, task = HOSTS[name]()
    task = task if name == 'point-mass' else next(iter(TASKS))
    still = rollout(host, task, NoOpPolicy())
    assert np.allclose(still, still[0], atol=0.05)
    first, again = (rollout(host, task, RandomPolicy(scale=0.01), seed=7) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, rollout(host, task, RandomPolicy(scale=0.01), seed=8)), 'the seed changes the draw'


def test_nothing_moves_nothing() -> None:
    host = TabletopHost(control='joint')
    from robotrials.worlds.cell.task import TASKS

    policy = NoOpPolicy()
    policy.fit(host.spec)
    ran = run_episode(
        host, policy, Setup(task=next(iter(TASKS)), seed=3), order=Order(time_cap_s=2.0, policy_seed=1)
    )  # fmt: skip
    assert ran.trajectory is not None
    joints = ran.trajectory.joint_position_rad
    assert joints is not None
    assert np.abs(joints - joints[0]).max() < 0.01


def test_an_absolute_pose_is_not_guessed() -> None:
    pose = ActionConvention(control_mode='se3', target='absolute', frame='base', rotation='axis_angle')  # type: ignore[arg-type]
    joints = ActionConvention(control_mode='joint_position', target='absolute', frame='joint', n_joints=7)  # type: ignore[arg-type]
    for action in (pose, joints):
        with pytest.raises(InputError, match=r'does not know where the tool|wants the 7 joint angles'):
            NoOpPolicy().fit(HostSpec(name='x', action=action, control_rate_hz=10.0, state_width=3))
    with pytest.raises(InputError, match='scale is nan'):
        RandomPolicy(scale=float('nan'))


def test_rest_has_the_gripper_open_and_no_rotation() -> None:
    for rotation, gripper, expected in (
        ('quaternion_wxyz', 'open_is_one', [0, 0, 0, 1, 0, 0, 0, 1]),
        ('matrix_6d', 'closed_is_plus_one', [0, 0, 0, 1, 0, 0, 0, 1, 0, -1]),
    ):
        convention = ActionConvention(
            control_mode='se3', target='delta', frame='base', rotation=rotation, gripper=gripper,  # type: ignore[arg-type]
        )  # fmt: skip
        np.testing.assert_array_equal(rest_action(convention, np.zeros(3)), expected)


def test_demonstrations_are_played_by_instance(tmp_path: Path) -> None:
    h5py = pytest.importorskip('h5py')
    wanted = np.random.default_rng(0).uniform(-0.01, 0.01, (3, 5, 3))
    with h5py.File(tmp_path / 'reach_demo.hdf5', 'w') as file:
        for number, actions in enumerate(wanted):
            file.create_dataset(f'data/demo_{number}/actions', data=actions)
    host = PointMassHost()
    for place in (tmp_path, tmp_path / 'reach_demo.hdf5'):
        policy = DemonstrationPolicy(path=str(place))
        policy.fit(host.spec)
        for instance in (0, 2, 4):
            setup = Setup(task='reach', seed=3, instance=instance)
            ran = run_episode(host, policy, setup, order=Order(time_cap_s=0.4, policy_seed=1))
            assert ran.trajectory is not None
            assert ran.trajectory.action_raw is not None
            np.testing.assert_array_equal(ran.trajectory.action_raw[:5, :2], wanted[instance % 3][:, :2])
            assert not ran.trajectory.action_raw[5:].any(), 'it holds still afterwards'
    with pytest.raises(InputError, match='none of lift'):
        DemonstrationPolicy(path=str(tmp_path)).start(Setup(task='lift', seed=0), seed=0)
    with pytest.raises(InputError, match='no such file'):
        DemonstrationPolicy(path=str(tmp_path / 'gone'))


def test_demonstrations_of_libero_are_found_by_scene_and_words(tmp_path: Path) -> None:
    """As LIBERO-10 and LIBERO-90 name them; twelve instructions of LIBERO-90 are those of several scenes."""
    h5py = pytest.importorskip('h5py')
    names = [f'{scene}_turn_on_the_stove_demo.hdf5' for scene in ('KITCHEN_SCENE3', 'KITCHEN_SCENE9')]
    names += ['KITCHEN_SCENE3_turn_on_the_stove_and_put_the_frying_pan_on_it_demo.hdf5', 'STUDY_SCENE10_read_demo.hdf5']
    for number, name in enumerate(names):
        with h5py.File(tmp_path / name, 'w') as file:
            file.create_dataset('data/demo_0/actions', data=np.full((1, 3), float(number)))

    def played(instruction: str, **options: object) -> float:
        policy = DemonstrationPolicy(path=str(tmp_path), **options)  # type: ignore[arg-type]
        policy.fit(PointMassHost().spec)
        setup = Setup(task='task_20', seed=0, instruction=instruction)
        return float(policy.start(setup, seed=0).act(PointMassHost().reset('reach', seed=0)).actions[0, 0])

    assert played('read') == 3.0
    assert played('turn on the stove and put the frying pan on it') == 2.0
    with pytest.raises(
        InputError, match=r'task_20 may be any of KITCHEN_SCENE3_.*, KITCHEN_SCENE9_.* files = {task_20'
    ):
        played('turn on the stove')
    assert played('turn on the stove', files={'task_20': names[1]}) == 1.0
    with pytest.raises(InputError, match=r"files: task_1 is 'gone\.hdf5'"):
        played('read', files={'task_1': 'gone.hdf5'})


def test_they_are_in_the_catalogue() -> None:
    from robotrials.run.component import open_policy

    for use in ('no_op', 'random', 'libero-scripted'):
        assert open_policy(PolicyEntry(use=use, options={})).spec.name.startswith(use)
