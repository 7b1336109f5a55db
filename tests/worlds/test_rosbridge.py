"""An arm behind a rosbridge does what the embedded cell does, and what goes wrong with it is not the policy's fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.patience import PATIENCE_S
from tests.worlds.bridge import JOINTS, CellBridge, arm
from tests.worlds.controllers import StatePolicy

from robotrials.errors import AnswerError, InputError, NoAnswer, RemoteError, RigError
from robotrials.record import EventKind, Outcome
from robotrials.run import Setup
from robotrials.run.fault import FaultKind
from robotrials.run.loop import Order, Rollout, run_episode
from robotrials.run.plan import FaultOptions
from robotrials.worlds import check_host
from robotrials.worlds.cell import TabletopHost
from robotrials.worlds.cell.scripted import ScriptedPolicy
from robotrials.worlds.rosbridge import RosbridgeHost

TASK = 'single_block'


@pytest.fixture
def bridges() -> Iterator[list[CellBridge]]:
    opened: list[CellBridge] = []
    yield opened
    for bridge in opened:
        bridge.close()


def connected(bridges: list[CellBridge], **changes: Any) -> tuple[CellBridge, RosbridgeHost]:
    given = {name: changes.pop(name) for name in ('control', 'fault', 'at', 'has_camera') if name in changes}
    bridge = CellBridge(**given)
    bridges.append(bridge)
    return bridge, RosbridgeHost(**arm(bridge, **changes))


def nod(home: NDArray[Any]) -> Any:
    """Joint targets that move the elbow a little, always from where the arm began."""
    count = iter(range(10_000))

    def rule(state: NDArray[Any]) -> NDArray[Any]:
        target = np.array(home)
        target[3] += 0.02 * np.sin(0.5 * next(count))
        return target

    return rule


def episode(host: RosbridgeHost, *, steps: int = 8) -> Rollout:
    home = TabletopHost(control='joint').reset(TASK, seed=1).state
    order = Order(time_cap_s=steps / host.spec.control_rate_hz, policy_seed=0)
    return run_episode(host, StatePolicy(host.spec, nod(home)), Setup(task=TASK, seed=1), order=order)


@pytest.mark.parametrize('kind', ['joint_positions', 'joint_trajectory'])
def test_the_arm_does_what_the_cell_does_to_the_last_bit(bridges: list[CellBridge], kind: str) -> None:
    bridge, host = connected(bridges, command={'topic': '/command', 'kind': kind})
    rollout = episode(host)
    assert rollout.fault is None, rollout.fault
    direct = TabletopHost(control='joint')
    home = direct.reset(TASK, seed=1).state
    rule = nod(home)
    assert rollout.trajectory is not None
    recorded = rollout.trajectory.extra['observation_state']
    for row in range(rollout.n_steps):
        seen = direct.step(rule(home))
        np.testing.assert_array_equal(recorded[row], seen.state)
        np.testing.assert_array_equal(rollout.trajectory.joint_torque_nm[row], direct.signals()['joint_torque_nm'])
        np.testing.assert_array_equal(rollout.trajectory.ee_pose[row], direct.signals()['ee_pose'])
    assert bridge.advertised['/gripper'] == 'std_msgs/msg/Float64'
    host.close()


def test_a_whole_pick_and_place_over_twists_ends_in_success(bridges: list[CellBridge]) -> None:
    cell = TabletopHost(state='privileged')
    setup = Setup(task=TASK, seed=1, stratum='block')
    shown = run_episode(cell, ScriptedPolicy(temper='reference'), setup, order=Order(time_cap_s=20.0, policy_seed=1))
    assert shown.outcome is Outcome.SUCCESS
    assert shown.trajectory is not None
    actions = iter(shown.trajectory.action_processed)
    _, host = connected(bridges, control='se3', command={'topic': '/command', 'kind': 'twist'})
    policy = StatePolicy(host.spec, lambda state: np.array(next(actions)))
    rollout = run_episode(host, policy, setup, order=Order(time_cap_s=20.0, policy_seed=1))
    assert rollout.fault is None, rollout.fault
    assert (rollout.outcome, rollout.report.success) == (Outcome.SUCCESS, True)
    assert abs(rollout.n_steps - shown.n_steps) <= 2
    host.close()


def test_pictures_come_with_the_states(bridges: list[CellBridge]) -> None:
    _, host = connected(bridges, has_camera=True)
    seen = host.reset(TASK, seed=1)
    assert seen.images['side'].shape == (48, 48, 3)
    assert seen.images['side'].std() > 5
    moved = host.hold()
    moved[0] += 0.3
    for _ in range(5):
        after = host.step(moved)
    assert not np.array_equal(after.images['side'], seen.images['side'])
    assert [camera.name for camera in host.scene().cameras] == ['side']
    host.close()


def test_it_keeps_the_contract_of_a_host(bridges: list[CellBridge]) -> None:
    bridge, host = connected(bridges)
    check_host(host, task=TASK, seed=2, steps=5)
    assert bridge.arguments == {'task': TASK, 'seed': 2, 'stratum': ''}
    np.testing.assert_allclose(host.hold()[:7], bridge.cell.hold()[:7], atol=1e-12)
    facts = host.protocol()
    assert facts.initial_states == 'set by the service /stage/reset'
    assert facts.success_predicate == 'what is said on /verdict'
    host.close()


@pytest.mark.parametrize(
    ('fault', 'kind', 'error', 'words'),
    [
        ('silent', FaultKind.HOST_HANG, NoAnswer, 'silence: nothing of topic /joint_states'),
        ('nan', FaultKind.HOST_ANSWER, AnswerError, 'wanted finite numbers'),
        ('nameless', FaultKind.HOST_ANSWER, AnswerError, 'a joint state without panda_joint1'),
        ('rubbish', FaultKind.HOST_ANSWER, AnswerError, 'not JSON'),
        ('strange_op', FaultKind.HOST_ANSWER, AnswerError, "op 'fragment'"),
        ('hang_up', FaultKind.HOST_CRASH, RigError, 'hung up'),
    ],
)
def test_a_rig_that_breaks_makes_the_episode_invalid_and_the_next_one_is_sound(
    bridges: list[CellBridge], fault: str, kind: FaultKind, error: type[Exception], words: str
) -> None:
    bridge, host = connected(bridges, fault=fault, max_age_s=1.5 if fault == 'silent' else 30.0)
    rollout = episode(host)
    assert rollout.fault is not None
    assert rollout.fault.kind is kind
    assert words in rollout.fault.summary
    assert type(error('')).__name__ in rollout.fault.summary
    assert rollout.fault.outcome(FaultOptions()) is Outcome.INVALID
    assert rollout.n_steps == 2
    if fault != 'hang_up':
        assert bridge.n_halts == 1
    bridge.fault = ''
    again = episode(host)
    assert again.fault is None, again.fault
    assert again.outcome is Outcome.TIMEOUT
    host.close()


def test_a_picture_of_the_wrong_size_is_refused(bridges: list[CellBridge]) -> None:
    _, host = connected(bridges, has_camera=True, fault='short_image')
    rollout = episode(host)
    assert rollout.fault is not None
    assert rollout.fault.kind is FaultKind.HOST_ANSWER
    assert '47 x 48' in rollout.fault.summary
    host.close()


def test_the_emergency_stop_is_a_safety_stop_and_the_arm_is_told_to_halt(bridges: list[CellBridge]) -> None:
    bridge, host = connected(bridges, fault='stop')
    rollout = episode(host)
    assert rollout.fault is None
    assert (rollout.outcome, rollout.n_steps) == (Outcome.SAFETY_STOP, 3)
    assert rollout.report.reason == 'the emergency stop was pressed'
    assert [event.kind for event in rollout.report.events] == [EventKind.SAFETY_STOP]
    assert bridge.n_halts == 1
    commands = bridge.n_commands
    with pytest.raises(RigError, match='the emergency stop is pressed; release it'):
        host.reset(TASK, seed=1)
    assert bridge.n_commands == commands  # nothing was moved
    bridge.fault = ''
    bridge.release_stop()
    assert _until(lambda: host.reset(TASK, seed=1).t_s) == 0.0
    host.close()


def _until(call: Callable[[], float]) -> float:
    """What a call gives once the release has come through."""
    ends_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except RigError:
            if time.monotonic() > ends_s:
                raise
            time.sleep(0.02)


def test_an_emergency_stop_that_says_nothing_lets_nothing_begin(bridges: list[CellBridge]) -> None:
    bridge, host = connected(bridges)
    bridge.is_stop_mute = True
    host.close()
    mute = RosbridgeHost(**arm(bridge, max_age_s=0.2))
    with pytest.raises(NoAnswer, match='/emergency_stop does not say whether'):
        mute.reset(TASK, seed=1)
    assert bridge.arguments == {}
    mute.close()


def test_a_stage_that_is_not_set_is_the_rigs_fault(bridges: list[CellBridge]) -> None:
    bridge, host = connected(bridges)
    bridge.stage_answer = {'success': False, 'message': 'the bin is empty'}
    with pytest.raises(RigError, match='the stage was not set: the bin is empty'):
        host.reset(TASK, seed=1)
    host.close()


def test_leaving_in_mid_episode_halts_the_arm(bridges: list[CellBridge]) -> None:
    bridge, host = connected(bridges)
    host.reset(TASK, seed=1)
    host.step(host.hold())
    host.close()
    assert bridge.n_halts == 1
    with pytest.raises(InputError, match='no episode is under way'):
        host.step(np.zeros(8))


def test_nobody_there_is_told(bridges: list[CellBridge]) -> None:
    bridge, host = connected(bridges)
    host.close()
    with pytest.raises(RigError, match=r'did not answer within 0.3 s .* is it running'):
        RosbridgeHost(**arm(bridge, url='ws://127.0.0.1:9', connect_s=0.3))


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'joints': []}, 'wanted the names of different joints'),
        ({'joints': [JOINTS[0]] * 2}, 'wanted the names of different joints'),
        ({'command': {'topic': '/c', 'kind': 'pose'}}, "'pose'"),
        ({'gripper': {'topic': '/g', 'joint': 'f', 'open': 0.0}}, 'the same number'),
        ({'max_age_s': 0.0}, 'max_age_s'),
        ({'torque_limit_nm': [1.0]}, 'torque_limit_nm has 1 numbers for 7 joints'),
        ({'url': 'http://127.0.0.1:1'}, 'wanted ws://'),
        ({'topics': []}, "no key 'topics'"),
    ],
)
def test_options_are_checked_before_anything_moves(
    bridges: list[CellBridge], changes: dict[str, Any], message: str
) -> None:
    bridge, host = connected(bridges)
    host.close()
    with pytest.raises(InputError, match=message):
        RosbridgeHost(**arm(bridge, **changes))


def test_a_service_that_is_silent_or_fails_is_named(bridges: list[CellBridge]) -> None:
    from robotrials.wire.websocket import RosbridgeLink

    bridge, host = connected(bridges)
    host.close()
    link = RosbridgeLink(bridge.url, timeout_s=30.0)
    with pytest.raises(InputError, match='cannot be sent'):
        link.publish('/command', {'data': float('nan')})
    link._replies['call:1'] = {'result': False, 'values': 'no such service'}
    with pytest.raises(RemoteError, match='service /robot/halt failed: no such service'):
        link.call_service('/robot/halt', {}, timeout_s=1.0)
    link.close()


def test_numbers_too_long_for_a_float_and_pictures_that_are_no_base64_are_answers_of_the_rig() -> None:
    from robotrials.worlds.depth import stamp_s
    from robotrials.worlds.rosbridge import joint_values, picture, pose

    long = 10**400
    turn = {'w': 1, 'x': 0, 'y': 0, 'z': 0}
    for read in (
        lambda: joint_values({'name': ['a'], 'position': [long]}, 'position', ['a']),
        lambda: stamp_s({'header': {'stamp': {'sec': long, 'nanosec': 0}}}),
        lambda: pose({'pose': {'position': {'x': long, 'y': 0, 'z': 0}, 'orientation': turn}}),
        lambda: picture({'format': 'jpeg', 'data': 'é'}, height_px=2, width_px=2),
    ):
        with pytest.raises(AnswerError):
            read()
