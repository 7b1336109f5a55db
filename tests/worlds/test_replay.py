"""A recording played back is the recording; carried out again on the same host it is too, and on another it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.run.plans import FAST, SLOW, make_plan
from typer.testing import CliRunner

from robotrials.cli.audit import audit_app
from robotrials.errors import InputError
from robotrials.policies.plain import ReplayPolicy
from robotrials.record import Outcome, Store
from robotrials.run import Setup, close_trial, run_trial
from robotrials.run.loop import Order, run_episode
from robotrials.run.plan import RecordingOptions
from robotrials.testing.policy import PointMassHost
from robotrials.verdict.audit import compare_traces
from robotrials.verdict.audit.determinism import Grade, ReproductionTarget
from robotrials.worlds import check_host
from robotrials.worlds.replay import ReplayHost, carry_out_again

CONVENTION = {'control_mode': 'se3', 'target': 'delta', 'frame': 'world'}


@pytest.fixture(scope='module')
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('replay') / 'recorded'
    plan = make_plan(episodes_per_cell=3, recording={'trajectories': True, 'frame_hashes': True})
    run_trial(plan, folder, workers=0)
    close_trial(plan, folder, by='kim')
    return folder


def replay(recorded: Path, **changes: Any) -> ReplayHost:
    return ReplayHost(**{'store': str(recorded), 'policy': SLOW, 'convention': CONVENTION, **changes})


@pytest.mark.parametrize('policy', [FAST, SLOW])
def test_a_replay_recorded_again_is_the_recording(recorded: Path, policy: str) -> None:
    host = replay(recorded, policy=policy, actions='same')
    again = ReplayPolicy(store=str(recorded), policy=policy, convention=CONVENTION)
    for episode, trajectory in Store.open(recorded).trajectories(where={'policy': policy}):
        order = Order(time_cap_s=4.0, policy_seed=0, recording=RecordingOptions())
        setup = Setup(task=episode.task, seed=episode.seed or 0, instruction=episode.instruction)
        rollout = run_episode(host, again, setup, order=order)
        assert rollout.fault is None
        assert (rollout.outcome, rollout.duration_s) == (episode.outcome, episode.duration_s)
        assert (rollout.report.success, rollout.report.events) == (episode.success, episode.events)
        assert rollout.trajectory is not None
        assert (
            rollout.trajectory.extra['observation_state'].tobytes() == trajectory.extra['observation_state'].tobytes()
        )
        np.testing.assert_array_equal(rollout.trajectory.ee_pose, trajectory.ee_pose)
        np.testing.assert_array_equal(rollout.trajectory.done, trajectory.done)


def test_a_replay_keeps_the_contract_of_a_host(recorded: Path) -> None:
    episode = next(Store.open(recorded).episodes(where={'policy': SLOW}))
    check_host(replay(recorded), task='reach', seed=episode.seed or 0)


def test_an_action_that_was_not_recorded_is_refused_where_asked(recorded: Path) -> None:
    episode = next(Store.open(recorded).episodes(where={'policy': SLOW}))
    host = replay(recorded, actions='same')
    host.reset('reach', seed=episode.seed or 0)
    with pytest.raises(InputError, match=r'step 0: the action .* is not the recorded'):
        host.step(np.ones(3))


def test_a_replay_ends_with_the_recording_and_not_before(recorded: Path) -> None:
    store = Store.open(recorded)
    episode, trajectory = next(store.trajectories(where={'policy': SLOW}))
    host = replay(recorded)
    host.reset('reach', seed=episode.seed or 0)
    assert host.report().success is None
    for _ in range(trajectory.n_steps):
        assert host.outcome() is None
        host.step(np.zeros(3))
    assert host.outcome() is episode.outcome
    with pytest.raises(InputError, match='the recording ends after'):
        host.step(np.zeros(3))


def test_what_cannot_be_played_is_named(recorded: Path) -> None:
    with pytest.raises(InputError, match='no valid episode on reach with seed 1'):
        replay(recorded).reset('reach', seed=1)
    with pytest.raises(InputError, match=r"no policy with a valid episode in .* named 'nobody': known: "):
        replay(recorded, policy='nobody')
    with pytest.raises(InputError, match="no camera 'top'"):
        replay(recorded, cameras=['top'])
    with pytest.raises(InputError, match="wanted 'ignored' or 'same'"):
        replay(recorded, actions='maybe')


def test_recorded_videos_are_shown_frame_by_frame(tmp_path: Path) -> None:
    """Frames at half the control rate: each is shown until the next one's time has come."""
    from tests.worlds.films import store_with_film

    store, frames = store_with_film(tmp_path, rate_hz=20.0, fps=10.0, steps=8)
    host = ReplayHost(store=str(store), policy='p', convention=CONVENTION, cameras=['top'])
    seen = [host.reset('t', seed=1), *(host.step(np.zeros(3)) for _ in range(8))]
    wanted = [0, 0, 1, 1, 2, 2, 3, 3, 4]  # at 0, 0.05, 0.1, ... seconds; a frame every 0.1
    for observation, index in zip(seen, wanted, strict=True):
        shown = observation.images['top'].mean(axis=(0, 1))
        nearest = min(range(len(frames)), key=lambda i: abs(float(frames[i].mean()) - float(shown.mean())))
        assert nearest == index
    host.close()


def test_the_same_host_does_the_same_again_bit_for_bit(recorded: Path) -> None:
    host = PointMassHost(noise_m=0.002)
    found = compare_traces(recorded, list(carry_out_again(recorded, host)), closed_loop=False)
    assert all(trace.is_bitwise_equal for trace in found.traces)
    assert not found.only_a
    grades = {g.target: g.grade for g in found.grades}
    assert grades[ReproductionTarget.BITWISE] is not Grade.NOT_MET


def test_another_world_is_told_apart_at_the_step_where_it_differs(recorded: Path) -> None:
    pairs = list(carry_out_again(recorded, PointMassHost(noise_m=0.004), policies=[FAST], most=2))
    assert len(pairs) == 2
    recordings = {e.episode_id: t for e, t in Store.open(recorded).trajectories()}
    for episode, trajectory in pairs:
        assert trajectory is not None
        before = recordings[episode.episode_id]
        assert not np.array_equal(before.ee_pose[0], trajectory.ee_pose[0])


def test_an_episode_that_breaks_on_the_way_is_invalid(recorded: Path) -> None:
    class Broken(PointMassHost):
        def step(self, action: Any) -> Any:
            raise OSError('unplugged')

    episode, _ = next(carry_out_again(recorded, Broken()))
    assert episode.outcome is Outcome.INVALID
    assert 'unplugged' in episode.reason


def test_nothing_to_carry_out_is_an_error(recorded: Path) -> None:
    with pytest.raises(InputError, match='no valid episode with recorded actions'):
        list(carry_out_again(recorded, PointMassHost(), policies=['nobody']))


def test_the_verb_grades_the_host_of_the_plan_and_tells_another_one_apart(recorded: Path) -> None:
    same = CliRunner().invoke(audit_app, ['replay', str(recorded), '--most', '3', '--format', 'json'])
    assert same.exit_code == 0, same.output
    assert 'bitwise determinism' in same.stdout
    assert 'not met' not in same.stdout
    other = CliRunner().invoke(audit_app, ['replay', str(recorded), '--host', 'tests.worlds.test_replay:Windy'])
    assert other.exit_code == 0, other.output
    assert 'not met' in other.stdout


class Windy(PointMassHost):
    """The point mass with another noise than the plan's."""
