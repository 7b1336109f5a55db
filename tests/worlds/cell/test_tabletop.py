"""The embedded cell as a host: conformant, deterministic, physically plausible, and clear about bad input."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from robotrials.errors import InputError, UnknownName
from robotrials.record import EventKind, Outcome
from robotrials.run.conformance import check_policy
from robotrials.run.loop import Order, Rollout, run_episode
from robotrials.run.seam import Setup
from robotrials.worlds import check_host
from robotrials.worlds.cell import TASKS, TabletopHost, panda
from robotrials.worlds.cell import task as privileged
from robotrials.worlds.cell.reset import reset_cell
from robotrials.worlds.cell.scene import TIMESTEP_S
from robotrials.worlds.cell.scripted import ScriptedPolicy


def cell(**options: object) -> TabletopHost:
    return TabletopHost(**{'state': 'privileged', **options})  # type: ignore[arg-type]


def rollout(host: TabletopHost, temper: str, setup: Setup, *, cap_s: float = 40.0) -> Rollout:
    return run_episode(host, ScriptedPolicy(temper=temper), setup, order=Order(time_cap_s=cap_s, policy_seed=11))


def test_the_cell_is_a_conformant_host_in_both_control_modes() -> None:
    check_host(cell(), task='bin_to_bin', steps=8)
    check_host(TabletopHost(control='joint'), task='single_block', steps=8)


def test_scripted_policies_are_conformant() -> None:
    check_policy(ScriptedPolicy(temper='hasty'), host=cell(), task='single_block')


def test_every_task_resets_to_rest_without_touching_the_robot() -> None:
    for name in TASKS:
        start = reset_cell(name, seed=1)
        for dof in start.scene.item_dof.values():
            assert np.linalg.norm(start.data.qvel[dof : dof + 3]) < 2e-3
        assert start.settle_s > 1.0
        names = [start.scene.model.body(b).name for b in start.scene.model.geom_bodyid]
        touched = {names[g] for pair in start.data.contact.geom for g in pair}
        assert not touched & {'hand', 'left_finger', 'right_finger', *(f'link{i}' for i in range(8))}


def test_things_at_rest_do_not_jitter() -> None:
    host = cell()
    host.prepare(Setup(task='bin_to_bin', seed=2, stratum='scissors'))
    host.reset('bin_to_bin', seed=2)
    before = {n: p.copy() for n, p in host.signals()['body_pose'].items()}
    for _ in range(20):
        host.step(host.hold())
    for name, pose in host.signals()['body_pose'].items():
        assert np.linalg.norm(pose[:3] - before[name][:3]) < 1e-4


def test_a_grasp_is_friction_alone() -> None:
    """The only equality couples the two fingers; no weld, no connect, no adhesion."""
    model = reset_cell('bin_to_bin', seed=0).scene.model
    assert model.neq == 1
    assert model.opt.timestep == TIMESTEP_S
    assert set(model.actuator_trntype.tolist()) == {0}


def test_a_reference_episode_is_within_a_pandas_limits_and_moves_what_it_grasps() -> None:
    done = rollout(cell(), 'reference', Setup(task='bin_to_bin', seed=3, stratum='spoon', items=1))
    assert done.outcome is Outcome.SUCCESS
    assert [e.kind for e in done.report.events].count(EventKind.PLACEMENT) == 1
    recorded = done.trajectory
    assert recorded is not None
    assert recorded.joint_torque_nm is not None
    assert recorded.ee_pose is not None
    assert recorded.contacts is not None
    assert np.all(np.abs(recorded.joint_torque_nm) <= panda.TORQUE_LIMIT_NM + 1e-6)
    assert np.all(np.abs(recorded.extra['joint_velocity_rad_s']) <= panda.JOINT_VELOCITY_RAD_S)
    assert np.linalg.norm(np.diff(recorded.ee_pose[:, :3], axis=0), axis=1).max() * 20 < 1.1
    assert recorded.extra['robot_force_n'].max() < 140
    # Grip force is bounded by the actuators': 30 N a finger, and friction on top.
    grips = [f for s in range(recorded.n_steps) for a, b, f in recorded.contacts.at(s) if 'finger' in a + b]
    assert max(grips) < 60
    assert recorded.gripper_contact is not None
    assert recorded.gripper_contact.any()


def test_nothing_sinks_into_the_floor_of_a_bin() -> None:
    done = rollout(cell(), 'hasty', Setup(task='bin_to_bin', seed=5, stratum='battery', items=2), cap_s=8)
    assert done.trajectory is not None
    assert done.trajectory.body_pose is not None
    heights = done.trajectory.body_pose[:, :, 2]
    assert heights[heights > -0.02].min() > 0.004 + 0.007 - 0.003


@pytest.mark.parametrize('task', ['two_block', 'insertion', 'spatial'])
def test_the_reference_solves_what_is_asked_in_words(task: str) -> None:
    host = cell()
    done = rollout(host, 'reference', Setup(task=task, seed=5, instance=1))
    assert done.outcome is Outcome.SUCCESS
    assert done.report.instruction == host.instruction() != ''
    assert done.trajectory is not None
    scene = done.trajectory.scene
    assert scene.target_threshold is not None
    assert done.report.score is not None
    assert done.report.score > scene.target_threshold
    assert scene.target_object in scene.body_roles


def test_an_item_that_falls_off_the_table_is_lost_and_parked() -> None:
    host = cell()
    host.prepare(Setup(task='bin_to_bin', seed=1, stratum='block', items=1))
    host.reset('bin_to_bin', seed=1)
    start = host._start
    assert start is not None
    address = start.scene.item_qpos['item_0']
    start.data.qpos[address : address + 3] = (0.5, 0.7, 0.2)
    for _ in range(40):
        host.step(host.hold())
        if host.outcome() is not None:
            break
    assert host.outcome() is Outcome.FAILURE
    report = host.report()
    assert (report.items_lost, report.is_unrecoverable) == (1, True)
    assert EventKind.DROP_OUTSIDE in [e.kind for e in report.events]
    for _ in range(5):
        host.step(host.hold())
    assert host.signals()['body_pose']['item_0'][2] == pytest.approx(-0.75 + 0.018, abs=1e-3)


def test_pressing_on_the_table_ends_in_a_safety_stop() -> None:
    host = cell(stop_force_n=50.0)
    host.prepare(Setup(task='bin_to_bin', seed=1, stratum='block', items=1))
    host.reset('bin_to_bin', seed=1)
    down = np.array([0.0, 0.0, -0.03, 0.0, 0.0, 0.0, 0.0])
    for _ in range(80):
        host.step(down)
        if host.outcome() is not None:
            break
    assert host.outcome() is Outcome.SAFETY_STOP
    assert 'limit 50 N' in host.report().reason


def test_an_item_on_the_table_is_an_uncollected_drop() -> None:
    host = cell()
    host.prepare(Setup(task='bin_to_bin', seed=1, stratum='block', items=2))
    host.reset('bin_to_bin', seed=1)
    start = host._start
    assert start is not None
    address = start.scene.item_qpos['item_0']
    start.data.qpos[address : address + 3] = (0.28, 0.0, 0.03)
    for _ in range(10):
        host.step(host.hold())
    report = host.report()
    assert host.outcome() is None
    assert (report.items_placed, report.items_lost) == (0, 1)
    assert [e.kind for e in report.events] == [EventKind.DROP_UNCOLLECTED]


PROBE = """
import hashlib, numpy as np
from robotrials.worlds.cell import TabletopHost
from robotrials.worlds.cell.scripted import ScriptedPolicy
from robotrials.run.seam import Setup
host = TabletopHost(state='privileged')
setup = Setup(task='bin_to_bin', seed=4, stratum='scissors', items=2)
host.prepare(setup)
observation = host.reset('bin_to_bin', seed=4)
session = ScriptedPolicy(temper='reference').start(setup, seed=1)
digest = hashlib.sha256()
for _ in range(70):
    observation = host.step(session.act(observation).actions[0])
    digest.update(host.signals()['simulator_state'].tobytes())
print(digest.hexdigest())
"""


def test_the_same_seed_is_the_same_bits_in_every_process() -> None:
    seen = {subprocess.run([sys.executable, '-c', PROBE], capture_output=True, text=True, check=True).stdout}
    hashed: dict[str, object] = {}
    exec(PROBE.replace('print(digest.hexdigest())', 'result = digest.hexdigest()'), hashed)
    assert seen == {f'{hashed["result"]}\n'}
    assert hashlib.sha256().hexdigest() != hashed['result']


def test_the_seed_changes_the_scene() -> None:
    host = cell()
    first, second = (host.reset('bin_to_bin', seed=s).state for s in (1, 2))
    assert not np.array_equal(first, second)


def test_writer_and_reader_of_the_privileged_state_agree() -> None:
    host = cell()
    host.prepare(Setup(task='stacking', seed=1))
    view = privileged.read_state(host.reset('stacking', seed=1).state)
    goals = [g.item for g in host._start.layout.goals]  # type: ignore[union-attr]
    poses = host.signals()['body_pose']
    assert len(view.items) == len(goals) == 2
    for item, name in zip(view.items, goals, strict=True):
        np.testing.assert_array_equal(item.pose, poses[name])
        np.testing.assert_allclose(item.grasp[:2], poses[name][:2], atol=1e-9)
    np.testing.assert_array_equal(view.tool, host.signals()['ee_pose'])
    np.testing.assert_allclose(view.command, view.tool, atol=1e-3)


def test_bad_input_is_named() -> None:
    with pytest.raises(UnknownName, match="did you mean 'wrist'"):
        TabletopHost(cameras=['wrists'])
    with pytest.raises(UnknownName, match="did you mean 'joint'"):
        TabletopHost(control='joints')
    with pytest.raises(UnknownName, match="did you mean 'careful'"):
        ScriptedPolicy(temper='carefull')
    with pytest.raises(InputError, match='stop_force_n is 0'):
        TabletopHost(stop_force_n=0)
    with pytest.raises(InputError, match='was not reset yet'):
        TabletopHost().signals()
    host = cell()
    host.reset('single_block', seed=0)
    with pytest.raises(InputError, match='wanted 7 finite numbers'):
        host.step(np.full(7, np.nan))
    with pytest.raises(UnknownName, match='condition of the tabletop cell'):
        host.prepare(Setup(task='single_block', seed=0, condition='earthquake'))


def test_clipped_actions_are_recorded_as_processed() -> None:
    host = cell()
    host.reset('single_block', seed=0)
    asked = np.array([0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0])
    host.step(asked)
    kept = host.signals()['action_processed']
    assert 0 < kept[0] < 0.05
    assert kept[-1] == 1.0


def test_robot_state_condition_moves_the_start_and_nothing_else() -> None:
    host = cell()
    nominal = host.reset('single_block', seed=3).state
    host.prepare(Setup(task='single_block', seed=3, condition='robot_state', condition_parameters={'sd_rad': 0.05}))
    moved = host.reset('single_block', seed=3).state
    assert 0.01 < np.abs(nominal[:7] - moved[:7]).max() < 0.2
    a, b = (privileged.read_state(s).items[0].pose for s in (nominal, moved))
    np.testing.assert_allclose(a, b, atol=1e-9)


def test_a_temper_is_changed_by_its_fields_and_by_no_others() -> None:
    plain, wide = (ScriptedPolicy(temper='reference', changes=c).temper for c in ({}, {'margin_m': 0.02}))
    assert (plain, wide.margin_m) == (ScriptedPolicy(temper='reference').temper, 0.02)
    assert wide != plain
    with pytest.raises(InputError, match='margin_m'):
        ScriptedPolicy(temper='reference', changes={'margin': 0.02})
