"""robosuite in its own environment: an episode judged by its own predicate, and signals against MuJoCo by hand."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.worlds.controllers import StatePolicy

from robotrials.errors import InputError
from robotrials.record import Outcome
from robotrials.run import Setup
from robotrials.run.environment import Environment, read_recipe
from robotrials.run.environment.create import create_environment
from robotrials.run.environment.recipe import link_robotrials
from robotrials.run.loop import Order, run_episode
from robotrials.run.plan import RecordingOptions
from robotrials.worlds import check_host
from robotrials.worlds.robosuite import robosuite_host

pytestmark = pytest.mark.hosts

INSIDE = Path(__file__).with_name('robosuite_inside.py')
STEP_M = 0.05  # what an action of 1 moves the hand by


@pytest.fixture(scope='module')
def environment() -> Environment:
    return create_environment(read_recipe('robosuite'))


@pytest.fixture(scope='module')
def inside(environment: Environment) -> dict[str, Any]:
    variables = {**os.environ, 'PYTHONPATH': str(link_robotrials(environment.folder))}
    ran = subprocess.run(
        [str(environment.python), str(INSIDE)], capture_output=True, text=True, timeout=900, env=variables
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope='module')
def host(environment: Environment) -> Iterator[Any]:
    opened = robosuite_host(state='privileged', step_cap=120)
    yield opened
    opened.close()


def lift(state: NDArray[Any]) -> NDArray[Any]:
    """Over the cube, down, grip, up: by where the hand and the cube are."""
    hand, fingers, cube = state[:3], state[6] - state[7], state[8:11]
    away = cube - hand
    if np.linalg.norm(away[:2]) > 0.015 and hand[2] > cube[2] + 0.03:
        motion, grip = np.array([away[0], away[1], 0.0]), -1.0
    elif away[2] < -0.01 and fingers > 0.06:
        motion, grip = away, -1.0
    else:
        is_held = fingers < 0.055
        motion, grip = np.array([0.0, 0.0, 0.05 if is_held else 0.0]), 1.0
    return np.concatenate([np.clip(motion / STEP_M, -1.0, 1.0), np.zeros(3), [grip]])


def test_a_scripted_lift_succeeds_by_robosuites_own_predicate(host: Any) -> None:
    order = Order(time_cap_s=6.0, policy_seed=0, recording=RecordingOptions(simulator_state=True))
    rollout = run_episode(host, StatePolicy(host.spec, lift), Setup(task='Lift', seed=4), order=order)
    assert rollout.fault is None, rollout.fault
    assert rollout.outcome is Outcome.SUCCESS
    assert rollout.report.success is True
    assert rollout.report.instruction == 'Lift the cube'
    trajectory = rollout.trajectory
    assert trajectory is not None
    risen_m = trajectory.body('cube')[:, 2] - 0.8  # the table's height; the predicate wants 4 cm over it
    assert risen_m[-1] > 0.04
    assert (risen_m[:-1] <= 0.04).all()
    assert trajectory.gripper_contact[-1]
    assert trajectory.scene.body_roles['cube'] == 'target'
    assert trajectory.scene.target_object == 'cube'
    assert (np.abs(trajectory.joint_torque_nm) <= trajectory.joint_torque_limit_nm + 1e-9).all()


def test_it_keeps_the_contract_of_a_host_and_shows_other_starts_for_other_seeds(host: Any) -> None:
    check_host(host, task='Lift', seed=5, steps=5)
    starts = [host.reset('Lift', seed=seed).state for seed in (6, 7, 6)]
    assert starts[0].tobytes() == starts[2].tobytes()
    assert starts[0].tobytes() != starts[1].tobytes()
    facts = host.protocol()
    assert facts.simulator == 'mujoco 3.9.0, robosuite 1.5.2'
    assert (facts.step_cap, len(facts.success_source)) == (120, 16)


def test_a_robot_that_robosuite_lacks_is_told_with_the_near_name(environment: Environment) -> None:
    with pytest.raises(InputError, match="no robot of robosuite named 'Pandda': did you mean 'Panda'"):
        robosuite_host(robot='Pandda')


def test_contacts_and_torques_are_the_peaks_over_all_substeps(inside: dict[str, Any]) -> None:
    n_pairs = n_hidden = 0
    for step in inside['compared']:
        assert step['n_substeps'] == 25
        assert [row[:2] for row in step['told']] == [row[:2] for row in step['by_hand']]
        for told, wanted in zip(step['told'], step['by_hand'], strict=True):
            assert told[2] == pytest.approx(wanted[2], rel=1e-9)
            n_pairs += 1
        np.testing.assert_allclose(step['torque_told'], step['torque_by_hand'], rtol=0, atol=0)
        last = {tuple(row[:2]): row[2] for row in step['at_the_end']}
        n_hidden += sum(row[2] > 1.05 * last.get(tuple(row[:2]), 0.0) for row in step['told'])
    assert n_pairs > 25
    assert n_hidden > 0  # peaks that one sample a control step would have missed
    assert inside['limits'] == [80.0, 80.0, 80.0, 80.0, 80.0, 12.0, 12.0]


def test_measuring_changes_not_a_bit(inside: dict[str, Any]) -> None:
    assert inside['bit_equal'] is True
    assert 'contacts' not in inside['plain_signals']
    assert 'joint_torque_nm' not in inside['plain_signals']


def test_what_robocasas_kitchens_have_besides_is_understood(inside: dict[str, Any]) -> None:
    kitchen = inside['kitchen']
    assert kitchen['instruction'] == 'put the red cube onto the green one'
    assert kitchen['targets'] == ['obj']
    assert kitchen['roles']['obj'] == 'target'
    assert kitchen['roles']['distr_counter'] == 'bystander'
    assert kitchen['roles']['table'] == 'furniture'
    assert kitchen['roles']['world'] == 'structure'


def test_robocasas_robot_moves_its_arm_and_keeps_its_base(environment: Environment, tmp_path: Path) -> None:
    family = tmp_path / 'omron.toml'
    family.write_text(
        'control_rate_hz = 20.0\nstep_cap = 50\nrobot = "PandaOmron"\n'
        'cameras = { wrist = "robot0_eye_in_hand" }\n[tasks.Lift]\ninstruction = "Lift"\ntargets = ["cube"]\n'
    )
    host: Any = robosuite_host(benchmark=str(family), cameras=['wrist'], image_size=[64, 64])
    try:
        first = host.reset('Lift', seed=1)
        before = host.signals()
        for _ in range(8):
            seen = host.step(np.array([0.0, 0.0, 0.6, 0.0, 0.0, 0.0, -1.0]))
        after = host.signals()
        assert after['ee_pose'][2] - before['ee_pose'][2] > 0.03
        np.testing.assert_allclose(after['ee_pose'][:2], before['ee_pose'][:2], atol=0.02)
        assert seen.images['wrist'].std() > 3
        assert not np.array_equal(seen.images['wrist'], first.images['wrist'])
        roles = host.scene().body_roles
        assert roles['manipulator_mount'] == roles['mobilebase0_base'] == 'robot'
        assert len(after['joint_torque_nm']) == 7
    finally:
        host.close()
