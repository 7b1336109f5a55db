"""Meta-World, Fetch, PushT and ALOHA in their own environments: episodes judged by their own rules, the same twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.worlds.controllers import Rule, StatePolicy

from robotrials.errors import InputError
from robotrials.record import Outcome
from robotrials.run import Host, Setup
from robotrials.run.environment import read_recipe
from robotrials.run.environment.create import create_environment
from robotrials.run.loop import Order, Rollout, run_episode
from robotrials.run.plan import RecordingOptions
from robotrials.worlds import check_host
from robotrials.worlds.gymnasium import gymnasium_host, read_mapping

pytestmark = pytest.mark.hosts

REACHED_M = 0.05  # both Meta-World's reach and Fetch's


@contextmanager
def opened(mapping: str, **changes: Any) -> Iterator[Any]:
    create_environment(read_recipe(read_mapping(mapping).environment))
    host: Any = gymnasium_host(mapping=mapping, **changes)
    try:
        yield host
    finally:
        host.close()


def episode(host: Host, task: str, rule: Rule, *, seed: int, steps: int) -> Rollout:
    order = Order(
        time_cap_s=steps / host.spec.control_rate_hz, policy_seed=0, recording=RecordingOptions(simulator_state=True)
    )
    rollout = run_episode(host, StatePolicy(host.spec, rule), Setup(task=task, seed=seed), order=order)
    assert rollout.fault is None, rollout.fault
    return rollout


def to_goal(step_m: float, gripper: float) -> Rule:
    """Straight to the goal, which stands at the end of the state, at most `step_m` a step."""

    def rule(state: NDArray[Any]) -> NDArray[Any]:
        away = state[-3:] - state[:3]
        return np.append(away * min(1.0, step_m / max(float(np.linalg.norm(away)), 1e-9)), gripper)

    return rule


def test_an_episode_of_meta_world_succeeds_by_its_own_predicate() -> None:
    with opened('metaworld') as host:
        rollout = episode(host, 'reach-v3', to_goal(0.01, -1.0), seed=3, steps=200)
        assert rollout.outcome is Outcome.SUCCESS
        assert rollout.report.success is True
        assert rollout.trajectory is not None
        states = rollout.trajectory.extra['observation_state']
        away_m = np.linalg.norm(states[:, :3] - states[:, -3:], axis=1)
        assert away_m[-1] <= REACHED_M
        assert away_m[0] > 2 * REACHED_M
        assert rollout.trajectory.done.tolist() == [False] * (rollout.n_steps - 1) + [True]
        assert rollout.trajectory.simulator_state.shape == (rollout.n_steps, 31)
        facts = host.protocol()
        assert (facts.simulator, facts.step_cap, facts.control_rate_hz) == ('mujoco 3.3.0', 500, 80.0)


def test_meta_world_begins_and_goes_on_the_same_whatever_was_run_before() -> None:
    with opened('metaworld') as host:
        first = host.reset('reach-v3', seed=3).state
        other = host.reset('reach-v3', seed=4).state
        host.reset('drawer-open-v3', seed=3)
        again = host.reset('reach-v3', seed=3).state
        assert first.tobytes() == again.tobytes()
        assert first[-3:].tobytes() != other[-3:].tobytes()  # another seed is another goal
        check_host(host, task='push-v3', seed=1, steps=10)


def test_doing_nothing_on_meta_world_is_a_timeout() -> None:
    with opened('metaworld', step_cap=20) as host:
        rollout = episode(host, 'reach-v3', lambda state: np.zeros(4), seed=3, steps=100)
        assert (rollout.outcome, rollout.n_steps, rollout.report.success) == (Outcome.TIMEOUT, 20, False)


def test_an_episode_of_fetch_with_its_camera() -> None:
    camera = {'images': {'side': 'render'}, 'arguments': {'render_mode': 'rgb_array', 'width': 64, 'height': 64}}
    with opened('fetch-reach', **camera) as host:
        rollout = episode(host, 'FetchReach-v4', to_goal(0.02, 0.0), seed=5, steps=50)
        assert rollout.outcome is Outcome.SUCCESS
        seen = host.reset('FetchReach-v4', seed=5).images['side']
        assert seen.shape == (64, 64, 3)
        assert seen.std() > 5
        check_host(host, task='FetchReach-v4', seed=5, steps=5)


def test_fetch_with_an_object() -> None:
    with opened('fetch') as host:
        for task in ('FetchPush-v4', 'FetchPickAndPlace-v4'):
            check_host(host, task=task, seed=1, steps=5)


def test_push_t_shows_pictures_and_scores_the_covered_share() -> None:
    with opened('pusht') as host:
        check_host(host, task='push-t', seed=2, steps=10)
        rollout = episode(host, 'push-t', lambda state: np.array([256.0, 400.0]), seed=2, steps=30)
        assert rollout.outcome is Outcome.TIMEOUT
        assert rollout.report.score is not None
        assert 0.0 <= rollout.report.score <= 1.0
        assert rollout.report.max_score == 1.0


def test_aloha_holds_its_rest_pose() -> None:
    with opened('aloha') as host:
        start = host.reset('AlohaTransferCube-v0', seed=1).state
        held = host.hold()
        np.testing.assert_array_equal(held, start)
        assert np.abs(start).max() > 1.0  # outside of the action space that it declares
        for _ in range(5):
            seen = host.step(held)
        np.testing.assert_allclose(seen.state[:6], start[:6], atol=0.05)
        assert seen.images['top'].shape == (480, 640, 3)


def test_an_environment_that_breaks_inside_says_so_outside() -> None:
    with opened('pusht') as host:
        host.reset('push-t', seed=2)
        host.close()
    create_environment(read_recipe('gym-pusht'))
    with pytest.raises(InputError, match='unexpected keyword argument'):
        gymnasium_host(mapping='pusht', arguments={'no_such_argument': 1})


def test_dm_control_begins_and_goes_on_the_same_whatever_was_run_before() -> None:
    """A task of dm_control's own, driven at random; another task in between changes nothing."""
    with opened('dm-manipulation') as host:
        check_host(host, task='reach_duplo_features', seed=3)
        assert host.spec.action.width == 9
        facts = host.protocol()
        assert (facts.simulator, facts.step_cap, facts.control_rate_hz) == ('mujoco 3.17.0', 250, 25.0)
