"""The cell between its ticks: commands that take over at a substep, a belt, and policies that act on the past."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.run.plans import content
from tests.worlds.cell.latency_dose import DELAYS_S, dose_plan, run_doses

from robotrials.errors import InputError
from robotrials.record import Outcome, trajectories_equal
from robotrials.run import Setup, run_trial
from robotrials.run.host import Ability
from robotrials.run.loop import Order, Rollout, run_episode
from robotrials.run.plan import LatencyMode, LatencyOptions, LoopOptions, RecordingOptions
from robotrials.run.seam import StepPart
from robotrials.worlds.cell import TabletopHost
from robotrials.worlds.cell.scene import SUBSTEPS
from robotrials.worlds.cell.scripted import ScriptedPolicy


def started(control: str = 'se3', task: str = 'single_block') -> TabletopHost:
    host = TabletopHost(state='privileged', control=control)
    host.reset(task, seed=2)
    return host


def moved(control: str) -> np.ndarray:
    return np.array([0.01, 0.0, -0.01, 0.0, 0.0, 0.02, 1.0]) if control == 'se3' else np.array([0.02] * 7 + [1.0])


@pytest.mark.parametrize('control', ['se3', 'joint'])
def test_one_part_of_full_length_is_a_step_bit_for_bit(control: str) -> None:
    whole, parts = started(control), started(control)
    assert Ability.SUBSTEPS in parts.abilities
    for _ in range(4):
        action = whole.hold() + (moved(control) if control == 'joint' else 0.0)
        action = moved(control) if control == 'se3' else action
        first, second = whole.step(action), parts.step_through([StepPart(0, action, SUBSTEPS)])
        assert first.state.tobytes() == second.state.tobytes()


@pytest.mark.parametrize('control', ['se3', 'joint'])
def test_an_action_in_two_parts_goes_as_far_as_in_one(control: str) -> None:
    whole, parts = started(control), started(control)
    for _ in range(6):
        action = moved(control) if control == 'se3' else whole.hold() + moved(control)
        whole.step(action)
        parts.step_through([StepPart(0, action, SUBSTEPS), StepPart(8, action, SUBSTEPS)])
    tools = [host.signals()['ee_pose'][:3] for host in (whole, parts)]
    assert float(np.linalg.norm(tools[0] - tools[1])) < 0.004
    processed = [host.signals()['action_processed'] for host in (whole, parts)]
    np.testing.assert_allclose(processed[0], processed[1], atol=0.006)


def test_a_command_takes_over_between_two_ticks() -> None:
    """Up for 15 of 20 substeps and still for the rest: less far than for all of them, farther than for half."""
    up, heights = np.array([0.0, 0.0, 0.02, 0, 0, 0, 1.0]), []
    for begins in (0, 5, 10):
        host = started()
        for _ in range(3):
            still = StepPart(0, host.hold(), SUBSTEPS)
            host.step_through(
                [still, StepPart(begins, up, begins + SUBSTEPS)] if begins else [StepPart(0, up, SUBSTEPS)]
            )
        heights.append(float(host.signals()['ee_pose'][2]))
    assert heights == sorted(heights, reverse=True)


@pytest.mark.parametrize('starts', [[], [3], [0, 8, 8], [0, 20]])
def test_parts_that_are_no_control_step_are_refused(starts: list[int]) -> None:
    host = started()
    with pytest.raises(InputError, match='wanted 0 and rising'):
        host.step_through([StepPart(s, host.hold(), SUBSTEPS) for s in starts])


# --- the belt


@pytest.mark.parametrize(('task', 'speed_m_s'), [('belt_slow', 0.10), ('belt_fast', 0.15)])
def test_a_belt_carries_its_block_at_its_speed_and_in_the_end_off_the_table(task: str, speed_m_s: float) -> None:
    host = started(task=task)
    (name,) = host.signals()['body_pose']
    places = [host.signals()['body_pose'][name].copy()]
    while host.outcome() is None and len(places) < 240:
        host.step(host.hold())
        places.append(host.signals()['body_pose'][name].copy())
    path = np.array(places)
    assert path[41, 1] - path[1, 1] == pytest.approx(-2 * speed_m_s, rel=0.02)
    assert np.abs(path[:41, 0] - path[0, 0]).max() < 0.002
    assert host.outcome() is Outcome.FAILURE
    assert host.scene().body_roles['belt'] == 'furniture'


def late(temper: str, task: str, *, seed: int, chunk_length: int = 1, **latency: Any) -> Rollout:
    options = LatencyOptions(mode=LatencyMode.INJECTED, **latency)
    policy = ScriptedPolicy(temper=temper, chunk_length=chunk_length)
    order = Order(time_cap_s=15.0, policy_seed=seed, loop=LoopOptions(latency=options), recording=RecordingOptions())
    host = TabletopHost(state='privileged')
    return run_episode(host, policy, Setup(task=task, seed=seed, instance=seed % 4), order=order)


@pytest.mark.parametrize(('temper', 'chunk_length'), [('reference', 1), ('reference', 5), ('hasty', 1), ('careful', 1)])
def test_scripted_policies_meet_what_the_belt_brings(temper: str, chunk_length: int) -> None:
    done = late(temper, 'belt_slow', seed=3, chunk_length=chunk_length, network_s=0.03)
    assert done.outcome is Outcome.SUCCESS
    assert done.labels['latency_resolution_s'] == '0.0025'
    assert done.trajectory is not None
    ages = done.trajectory.extra['observation_age_s']
    np.testing.assert_allclose(ages[np.isfinite(ages)], 0.03, atol=1e-9)


def test_a_late_trial_in_the_cell_is_the_same_bits_with_two_workers(tmp_path: Path) -> None:
    plan = dose_plan(0.2, episodes=1, policies=('fast', 'chunking'), tasks=('belt_fast',), jitter=0.4, loss=0.1)
    plan = dataclasses.replace(plan, recording=RecordingOptions(film=False))
    for workers in (1, 2):
        run_trial(plan, tmp_path / str(workers), workers=workers)
    (one, paths), (two, others) = content(tmp_path / '1'), content(tmp_path / '2')
    assert one == two
    assert paths
    assert all(trajectories_equal(paths[key], others[key]) for key in paths)


@pytest.mark.study
def test_the_dose_response_on_success_and_time_is_smooth(tmp_path: Path) -> None:
    """A static block only takes longer, evenly; on the belt success falls with the delay, without a cliff."""
    doses = run_doses(tmp_path, episodes=16, policies=('fast', 'hasty', 'chunking'))
    for policy in ('fast', 'hasty', 'chunking'):
        static = [d for d in doses if d.policy == policy and d.task == 'single_block']
        belt = [d for d in doses if d.policy == policy and d.task == 'belt_fast']
        assert [d.delay_s for d in static] == list(DELAYS_S)
        assert min(d.successes for d in static) >= static[0].successes - 3
        times = [d.median_s for d in static if d.median_s is not None]
        assert all(-0.2 <= b - a <= 1.0 for a, b in itertools.pairwise(times))
        assert times[-1] > times[0]
        rates = [d.successes / d.episodes for d in belt]
        assert rates[0] >= 0.85
        assert rates[-1] <= 0.4
        assert all(a - b <= 0.75 for a, b in itertools.pairwise(rates))
        assert all(b - a <= 0.15 for a, b in itertools.pairwise(rates))
