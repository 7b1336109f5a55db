"""The mapping says what an environment's numbers mean, and the host does what the mapping says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robotrials.errors import InputError, SetupError, UnknownName
from robotrials.record import Outcome
from robotrials.run import Host, Setup
from robotrials.run.component import open_host, open_policy
from robotrials.run.host import Ability
from robotrials.run.loop import Order, run_episode
from robotrials.run.plan import HostEntry, PolicyEntry
from robotrials.run.seam import FittedPolicy
from robotrials.worlds import check_host
from robotrials.worlds.gymnasium import GymnasiumHost, gymnasium_host, mapping_names, mapping_table, read_mapping

LINE = {
    'make': 'tests.worlds.gym_worlds:Line',
    'benchmark': 'line',
    'state': ['finger', 'goal.x'],
    'images': {'top': 'picture', 'above': 'render'},
    'flip': ['above'],
    'action': {'control_mode': 'joint_position', 'target': 'delta', 'frame': 'joint', 'n_joints': 2},
    'action_scale': [10.0, 10.0],
    'success': {'info': 'done.well'},
}


def line(**changes: Any) -> Any:
    return gymnasium_host(**{**LINE, **changes})


def drive(host: Host, action: list[float], most: int = 40) -> int:
    for step in range(1, most + 1):
        host.step(np.array(action))
        if host.outcome() is not None:
            return step
    raise AssertionError('it did not end')


def test_a_mapped_environment_keeps_the_contract_of_a_host() -> None:
    check_host(line(), task='anything', seed=3)


def test_state_images_and_actions_are_those_declared() -> None:
    host = line()
    assert host.spec.state_width == 3
    assert host.spec.images == {'top': (4, 6), 'above': (4, 6)}
    assert host.spec.control_rate_hz == 10
    seen = host.reset('x', seed=1)
    assert seen.state[2] == 1.0
    assert seen.images['top'][0].min() == 200
    assert seen.images['above'][-1].min() == 200  # flipped
    after = host.step(np.array([0.05, 0.0]))  # half of what a step can do
    np.testing.assert_allclose(after.state[:2] - seen.state[:2], [0.05, 0.0], atol=1e-6)
    assert after.t_s == pytest.approx(0.1)
    assert host.signals()['reward'] == pytest.approx(after.state[0])


def test_actions_out_of_bounds_are_clipped_and_those_that_are_none_refused() -> None:
    host = line()
    seen = host.reset('x', seed=1)
    after = host.step(np.array([50.0, 0.0]))
    np.testing.assert_allclose(after.state[0] - seen.state[0], 0.1, atol=1e-6)
    for wrong in ([np.nan, 0.0], [0.0]):
        with pytest.raises(InputError, match='wanted 2 finite numbers'):
            host.step(np.array(wrong))


def test_success_failure_and_the_step_cap() -> None:
    host = line(step_cap=30)
    host.reset('x', seed=1)
    drive(host, [0.1, 0.0])
    assert host.outcome() is Outcome.SUCCESS
    assert host.report().success is True
    host.reset('x', seed=1)
    assert host.outcome() is None
    drive(host, [-0.1, 0.0])
    assert host.outcome() is Outcome.FAILURE
    host.reset('x', seed=1)
    assert drive(host, [0.0, 0.0]) == 30
    assert host.outcome() is Outcome.TIMEOUT


@pytest.mark.parametrize(
    ('success', 'action', 'outcome'),
    [
        ({'reward_at_least': 0.5}, [0.1, 0.0], Outcome.SUCCESS),
        ({'terminated': True}, [-0.1, 0.0], Outcome.SUCCESS),
        ({'reward_at_least': 0.5}, [-0.1, 0.0], Outcome.FAILURE),
    ],
)
def test_other_rules_of_success(success: dict[str, Any], action: list[float], outcome: Outcome) -> None:
    host = line(success=success)
    host.reset('x', seed=1)
    drive(host, action)
    assert host.outcome() is outcome


def test_the_score_is_the_best_of_the_episode() -> None:
    host = line(score={'info': 'share', 'max': 1.0})
    host.reset('x', seed=1)
    assert host.report().score is None
    for action in ([0.1, 0.0], [0.1, 0.0], [-0.1, 0.0]):
        host.step(np.array(action))
    state = host.reset('x', seed=1).state[0]
    host.step(np.array([0.1, 0.0]))
    assert host.report().score == pytest.approx((state + 0.1) / 2)
    assert host.report().max_score == 1.0


def test_task_and_seed_go_into_making_it() -> None:
    host = GymnasiumHost(
        mapping={**LINE, 'tasks': ['a', 'b'], 'arguments': {'word': 'do {task}', 'number': '{seed}'}, 'anew': True,
                 'instructions': {'b': 'Go to one'}}
    )  # fmt: skip
    first = host._env
    host.reset('b', seed=7)
    assert (host._env.word, host._env.number) == ('do b', 7)
    assert first.closed
    assert host.instruction() == 'Go to one'
    with pytest.raises(UnknownName, match="no task named 'c'"):
        host.reset('c', seed=1)


def test_tasks_of_another_width_are_refused_by_name() -> None:
    class Widening(GymnasiumHost):
        def _make(self, task: str, seed: int) -> Any:
            from tests.worlds.gym_worlds import Line

            return Line(width=2 if task == 'a' else 3)

    host = Widening(mapping={**LINE, 'tasks': ['a', 'b'], 'arguments': {'word': '{task}'}})
    with pytest.raises(InputError, match='task b has a state of 4 numbers'):
        host.reset('b', seed=1)


def test_a_host_that_shows_its_own_command_can_be_held() -> None:
    plain = line()
    assert Ability.HOLD not in plain.abilities
    host = line(state=['finger'], holds_state=True, action_scale=[])
    assert Ability.HOLD in host.abilities
    seen = host.reset('x', seed=1)
    np.testing.assert_array_equal(host.hold(), seen.state)
    host.step(np.array([0.3, 0.1]))
    np.testing.assert_array_equal(host.hold(), [0.3, 0.1])
    with pytest.raises(InputError, match='holds_state'):
        line(holds_state=True)


def test_start_states_may_go_by_seeds_that_are_counted_up() -> None:
    """As evaluators count that take one seed for all episodes, whatever seeds the plan draws."""
    plain, counted = line(), line(first_seed=40)
    assert Ability.PREPARE not in plain.abilities
    assert Ability.PREPARE in counted.abilities
    for instance in (0, 3):
        counted.prepare(Setup(task='x', seed=99, instance=instance))
        np.testing.assert_array_equal(counted.reset('x', seed=99).state, plain.reset('x', seed=40 + instance).state)
    assert 'reset(seed=40 + instance)' in counted.protocol().initial_states
    with pytest.raises(InputError, match='first_seed is -1'):
        line(first_seed=-1)
    with pytest.raises(InputError, match='condition light'):
        counted.prepare(Setup(task='x', seed=99, condition='light'))


def test_protocol_facts_name_the_predicate_and_its_source() -> None:
    facts = line(step_cap=30).protocol()
    assert facts.success_predicate == "info['done.well']"
    assert len(facts.success_source) == 16
    assert (facts.step_cap, facts.control_rate_hz, facts.benchmark) == (30, 10.0, 'line')


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'state': ['thumb']}, "no 'thumb' there; found .*'finger'"),
        ({'state': ['goal']}, "is a map of .*'x'.*, wanted numbers"),
        ({'images': {'top': 'finger'}, 'flip': []}, r'camera top .* wanted \(height, width, 3\)'),
        ({'action': {**LINE['action'], 'n_joints': 3}, 'action_scale': []}, 'takes actions of shape'),  # type: ignore[dict-item]
        ({'action_scale': [1.0]}, 'action_scale has 1 numbers'),
        ({'action_scale': [1.0, 0.0]}, 'throw a number of the action away'),
        ({'success': {}}, 'exactly one of info, reward_at_least and terminated'),
        ({'flip': ['side']}, "no camera to flip or turn named 'side'"),
        ({'statt': ['finger']}, "no key 'statt': did you mean 'state'"),
        ({'make': 'tests.worlds.gym_worlds:make_unsaid'}, 'not known to be a Gymnasium environment'),
        ({'make': 'tests.worlds.gym_worlds:Old'}, r'reset gave no \(observation, info\)'),
        ({'make': 'tests.worlds.gym_worlds:Lines'}, "did you mean 'Line'"),
        ({'arguments': {'word': '{task}'}}, 'tasks must list those it knows'),
    ],
)
def test_a_mapping_that_does_not_fit_says_where(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        line(**changes)


def test_a_registered_id_without_gymnasium_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, 'gymnasium', None)
    with pytest.raises(SetupError, match='gymnasium is not installed here'):
        line(make='CartPole-v1')
    with pytest.raises(SetupError, match="needs the package 'no_such_worlds'"):
        line(imports=['no_such_worlds'])


def test_a_function_that_says_what_it_makes_will_do() -> None:
    assert line(make='tests.worlds.gym_worlds:make_line').spec.name == 'line'


@pytest.mark.parametrize('name', mapping_names())
def test_shipped_mappings_are_whole(name: str) -> None:
    from robotrials.run.environment import recipe_names

    mapping = read_mapping(name)
    assert mapping.environment in recipe_names()
    assert mapping.tasks
    assert set(mapping.instructions) == set(mapping.tasks)
    assert read_mapping('', mapping_table(mapping)) == mapping


def test_a_mapping_can_be_a_file_with_arguments_changed(tmp_path: Path) -> None:
    file = tmp_path / 'mine.toml'
    file.write_text(
        'make = "tests.worlds.gym_worlds:Line"\nstate = ["finger"]\n[arguments]\nword = "hi"\n'
        '[action]\ncontrol_mode = "joint_position"\ntarget = "delta"\nframe = "joint"\nn_joints = 2\n'
        '[success]\nterminated = true\n'
    )
    host = gymnasium_host(mapping=str(file), arguments={'number': 4})
    assert isinstance(host, GymnasiumHost)
    assert (host._env.word, host._env.number) == ('hi', 4)
    with pytest.raises(InputError, match='cannot be read'):
        gymnasium_host(mapping='no-such-file.toml')
    with pytest.raises(UnknownName, match="did you mean 'metaworld'"):
        gymnasium_host(mapping='metawrld')


def test_a_plan_can_name_it() -> None:
    host = open_host(HostEntry(use='gymnasium', options=dict(LINE)))
    assert host.spec.name == 'line'
    assert isinstance(host.reset('x', seed=1).state, np.ndarray)
    assert Setup(task='x', seed=1).task == 'x'


@pytest.mark.parametrize('policy', ['no_op', 'random'])
def test_the_plain_policies_run_on_it(policy: str) -> None:
    host = line(step_cap=12)
    opened = open_policy(PolicyEntry(use=policy))
    if isinstance(opened, FittedPolicy):
        opened.fit(host.spec)
    rollout = run_episode(host, opened, Setup(task='x', seed=1), order=Order(time_cap_s=2.0, policy_seed=3))
    assert rollout.fault is None, rollout.fault
    assert (rollout.outcome, rollout.n_steps) == (Outcome.TIMEOUT, 12)


def test_a_camera_that_hangs_head_down_is_turned_and_not_mirrored() -> None:
    class Marked(GymnasiumHost):
        def _make(self, task: str, seed: int) -> Any:
            from tests.worlds.gym_worlds import Line

            world = Line()
            picture = np.zeros((4, 6, 3), np.uint8)
            picture[0, 0] = 255
            world.render = lambda: picture  # type: ignore[method-assign]
            return world

    host = Marked(mapping={**LINE, 'images': {'top': 'render'}, 'flip': [], 'turn': ['top']})
    seen = host.reset('x', seed=1).images['top']
    assert seen[3, 5].tolist() == [255, 255, 255]
    assert seen.sum() == 3 * 255
