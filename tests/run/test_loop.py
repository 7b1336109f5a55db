"""The loop: chunks, limits, clocks, latency, recording, and one right ending for every fault."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.record import Outcome, trajectories_equal
from robotrials.run import (
    ActionConvention,
    Chunk,
    ControlMode,
    Frame,
    Gripper,
    HostSpec,
    Observation,
    PolicySpec,
    Setup,
    Target,
)
from robotrials.run.arm_limit import Limiter
from robotrials.run.fault import FaultKind
from robotrials.run.loop import Order, Rollout, run_episode
from robotrials.run.plan import FaultOptions, LimitOptions, LoopOptions, RecordingOptions
from robotrials.run.seam import check_conventions
from robotrials.testing.policy import TRANSLATION, FaultyHost, FaultyPolicy, PointMassHost, SeekPolicy
from robotrials.value import read_table

SETUP = Setup(task='reach', seed=5, items=2)


def rolled(host: Any = None, policy: Any = None, *, cap_s: float = 10.0, loop: Any = None, **order: Any) -> Rollout:
    options = read_table(LoopOptions, loop or {}, where='loop')
    return run_episode(
        host or PointMassHost(),
        policy or SeekPolicy(),
        SETUP,
        order=Order(time_cap_s=cap_s, policy_seed=1, loop=options, **order),
    )


class Script:
    """A policy that notes what it sees and says what it is told."""

    def __init__(self, actions: np.ndarray, rate_hz: float = 20.0) -> None:
        self.spec = PolicySpec(name='script', action=TRANSLATION, chunk_length=len(actions), control_rate_hz=rate_hz)
        self.actions = actions
        self.seen: list[Observation] = []

    def start(self, setup: Setup, *, seed: int) -> Script:
        return self

    def act(self, observation: Observation) -> Chunk:
        self.seen.append(observation)
        return Chunk(self.actions)


class Watched(PointMassHost):
    """Notes when each action was applied."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.applied: list[tuple[float, np.ndarray]] = []

    def step(self, action: np.ndarray) -> Observation:
        self.applied.append((self._steps / self.spec.control_rate_hz, np.array(action)))
        return super().step(action)


def test_a_seeker_succeeds_and_the_record_says_when() -> None:
    rollout = rolled()
    assert rollout.outcome is Outcome.SUCCESS
    assert rollout.duration_s == pytest.approx(rollout.n_steps / 20)
    assert [e.t_s for e in rollout.report.events][-1] == pytest.approx(rollout.duration_s)
    assert rollout.trajectory is not None
    assert rollout.trajectory.n_steps == rollout.n_steps
    assert rollout.trajectory.scene.control_rate_hz == 20.0


def test_a_cap_of_t_is_t_times_rate_actions_and_a_timeout() -> None:
    host = Watched()
    rollout = rolled(host, Script(np.zeros((1, 3))), cap_s=1.5)
    assert rollout.outcome is Outcome.TIMEOUT
    assert len(host.applied) == rollout.n_steps == 30
    assert rollout.duration_s == 1.5


def test_the_first_k_of_h_actions_are_executed_before_asking_again() -> None:
    actions = np.arange(12.0).reshape(4, 3) * 1e-3
    host, policy = Watched(), Script(actions)
    rolled(host, policy, cap_s=0.5, execute=3)
    assert [len(policy.seen), len(host.applied)] == [4, 10]
    np.testing.assert_array_equal([a for _, a in host.applied], np.concatenate([actions[:3]] * 4)[:10])


@pytest.mark.parametrize('execute', [1, 2, 4])
def test_recording_on_or_off_gives_the_same_actions_and_success_bit_for_bit(execute: int) -> None:
    results = []
    for recording in (
        RecordingOptions(trajectories=True, frame_hashes=True, simulator_state=True),
        RecordingOptions(trajectories=False),
    ):
        host = Watched(noise_m=0.003, camera_px=8)
        policy = SeekPolicy(sloppiness_m=0.01, chunk_length=4)
        rollout = rolled(host, policy, recording=recording, execute=execute)
        results.append((rollout.outcome, rollout.report, [(t, a.tobytes()) for t, a in host.applied]))
    assert results[0] == results[1]


def test_the_same_seed_gives_the_same_trajectory_and_another_does_not() -> None:
    a, b = (rolled(PointMassHost(noise_m=0.003), SeekPolicy(sloppiness_m=0.01)).trajectory for _ in range(2))
    assert a is not None
    assert b is not None
    assert trajectories_equal(a, b)
    other = run_episode(
        PointMassHost(noise_m=0.003),
        SeekPolicy(sloppiness_m=0.01),
        SETUP,
        order=Order(time_cap_s=10, policy_seed=2),
    ).trajectory
    assert other is not None
    assert not trajectories_equal(a, other)


def test_a_policy_that_thinks_for_300_ms_acts_on_a_world_300_ms_older() -> None:
    """Injected: 0.1 network + 0.15 inference + 0.05 transport = 6 steps of 50 ms between observation and action."""
    latency = {'mode': 'injected', 'network_s': 0.1, 'inference_s': 0.15, 'transport_s': 0.05}
    host, policy = Watched(goal_speed_m_s=0.2), Script(np.array([[1e-3, 0.0, 0.0]]))
    rollout = rolled(host, policy, cap_s=2.0, loop={'latency': latency})
    driven = [t for t, action in host.applied if action.any()]
    asked = [o.t_s for o in policy.seen]
    assert len(driven) >= 4
    np.testing.assert_allclose(np.subtract(driven, asked[: len(driven)]), 0.3, atol=1e-9)
    # The goal, which moves, is 0.3 s * 0.2 m/s further on than the policy saw it.
    assert rollout.trajectory is not None
    goal_x = rollout.trajectory.extra['observation_state'][:, 2]
    rows = np.flatnonzero(np.isfinite(rollout.trajectory.action_raw).all(axis=1))
    seen_x = [o.state[2] for o in policy.seen][: len(rows)]
    np.testing.assert_allclose(goal_x[rows - 1] - seen_x, 0.3 * 0.2, atol=1e-12)
    charged = rollout.trajectory.inference_latency_s
    np.testing.assert_array_equal(np.isfinite(charged), np.isfinite(rollout.trajectory.action_raw).all(axis=1))
    assert set(charged[np.isfinite(charged)]) == {0.15}


def test_measured_latency_charges_what_the_policy_really_took() -> None:
    rollout = rolled(policy=SeekPolicy(think_s=0.12), cap_s=1.0, loop={'latency': {'mode': 'measured'}})
    assert rollout.trajectory is not None
    taken = rollout.trajectory.inference_latency_s
    assert np.nanmin(taken) >= 0.12
    waits = np.isnan(rollout.trajectory.action_raw).all(axis=1)
    assert waits[:3].all()  # at least three steps of 50 ms pass before the first answer
    assert not rolled(policy=SeekPolicy(think_s=0.01), cap_s=1.0).trajectory.network_latency_s  # type: ignore[union-attr]


def test_without_charging_the_world_waits() -> None:
    host, policy = Watched(), Script(np.full((1, 3), 1e-3))
    rolled(host, policy, cap_s=1.0)
    assert [t for t, _ in host.applied] == [o.t_s for o in policy.seen]


def test_latency_can_vary_and_follows_the_seed() -> None:
    latency = {'mode': 'injected', 'inference_s': {'low_s': 0.0, 'high_s': 0.3}}
    a, b = (rolled(loop={'latency': latency}).trajectory for _ in range(2))
    assert a is not None
    assert b is not None
    assert trajectories_equal(a, b)
    drawn = a.inference_latency_s[np.isfinite(a.inference_latency_s)]
    assert len(set(drawn)) > 2
    assert 0 <= drawn.min() < drawn.max() <= 0.3


def test_while_waiting_the_rest_of_the_last_chunk_can_be_played_out() -> None:
    actions = np.array([[1e-3, 0, 0], [2e-3, 0, 0], [3e-3, 0, 0]])
    latency = {'mode': 'injected', 'inference_s': 0.15, 'waiting': 'continue'}
    host = Watched()
    rolled(host, Script(actions), cap_s=0.5, execute=1, loop={'latency': latency})
    lengths = [round(a[0] * 1e3) for _, a in host.applied]
    assert lengths == [0, 0, 0, 1, 2, 3, 0, 1, 2, 3]


def test_wall_clock_keeps_the_rate_and_goes_on_while_the_policy_thinks() -> None:
    host = Watched()
    started = time.monotonic()
    rollout = rolled(host, SeekPolicy(think_s=0.3, speed_m_s=0.01), cap_s=1.0, loop={'clock': 'wall'})
    elapsed_s = time.monotonic() - started
    assert rollout.started_at is not None
    assert rollout.n_steps == 20
    assert elapsed_s >= 0.9
    assert rollout.trajectory is not None
    held = np.isnan(rollout.trajectory.action_raw).all(axis=1)
    assert 0.4 < held.mean() < 1.0  # 300 ms of thinking are five of six steps, and fewer where steps take long
    assert np.nanmin(rollout.trajectory.inference_latency_s) >= 0.3


@pytest.mark.parametrize('target', ['delta', 'absolute'])
def test_velocity_and_acceleration_stay_within_their_limits(target: str) -> None:
    convention = ActionConvention(
        control_mode=ControlMode.JOINT_POSITION,
        target=Target(target),
        frame=Frame.JOINT,
        n_joints=2,
        gripper=Gripper.OPEN_IS_ONE,
    )
    limits = LimitOptions(velocity=(1.0, 0.5), acceleration=4.0)
    limiter = Limiter(limits, convention, dt_s=0.1, start=np.array([0.2, -0.1, 0.0]))
    rng = np.random.default_rng(0)
    last, last_v = np.array([0.2, -0.1]), np.zeros(2)
    for _ in range(200):
        asked = rng.normal(0, 1, 3)
        sent = limiter.clip(asked)
        v = (sent[:2] - last) / 0.1 if target == 'absolute' else sent[:2] / 0.1
        assert (np.abs(v) <= np.array([1.0, 0.5]) + 1e-9).all()
        assert (np.abs(v - last_v) <= 4.0 * 0.1 + 1e-9).all()
        assert sent[2] == asked[2]
        last, last_v = sent[:2], v


def test_small_motions_pass_the_limits_unchanged() -> None:
    limiter = Limiter(LimitOptions(velocity=1.0), TRANSLATION, dt_s=0.05, start=None)
    np.testing.assert_array_equal(limiter.clip(np.array([0.01, -0.02, 0.0])), [0.01, -0.02, 0.0])
    np.testing.assert_allclose(limiter.clip(np.array([0.5, -0.5, 0.0])), [0.05, -0.05, 0.0])


def test_limits_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match='wanted one number > 0 or 3 of them'):
        Limiter(LimitOptions(velocity=(1.0, 2.0)), TRANSLATION, dt_s=0.05, start=None)


FAULTS = [
    (FaultyHost(fault='crash'), None, FaultKind.HOST_CRASH, Outcome.INVALID),
    (FaultyHost(fault='mutate'), None, FaultKind.HOST_ANSWER, Outcome.INVALID),
    (FaultyHost(fault='nan'), None, FaultKind.HOST_ANSWER, Outcome.INVALID),
    (FaultyHost(fault='shape'), None, FaultKind.HOST_ANSWER, Outcome.INVALID),
    (None, FaultyPolicy(fault='nan'), FaultKind.POLICY_ANSWER, Outcome.FAILURE),
    (None, FaultyPolicy(fault='shape'), FaultKind.POLICY_ANSWER, Outcome.FAILURE),
    (None, FaultyPolicy(fault='late', seconds=0.9), FaultKind.POLICY_LATE, Outcome.FAILURE),
    (None, FaultyPolicy(fault='crash'), FaultKind.POLICY_CRASH, Outcome.INVALID),
    (None, FaultyPolicy(fault='write'), FaultKind.POLICY_CRASH, Outcome.INVALID),
]


@pytest.mark.parametrize(('host', 'policy', 'kind', 'outcome'), FAULTS)
@pytest.mark.parametrize('clock', ['virtual', 'wall'])
def test_every_fault_ends_the_episode_with_its_reason(
    host: Any, policy: Any, kind: FaultKind, outcome: Outcome, clock: str
) -> None:
    deadline = {'deadline_s': 0.6} if kind is FaultKind.POLICY_LATE else {}
    rollout = rolled(host, policy, loop={'clock': clock, **deadline}, cap_s=30.0)
    assert rollout.outcome is None
    assert rollout.fault is not None
    assert rollout.fault.kind is kind, rollout.fault
    assert rollout.fault.outcome(FaultOptions()) is outcome
    assert 'step' in rollout.fault.reason
    if kind in (FaultKind.HOST_CRASH, FaultKind.POLICY_CRASH):
        assert 'Traceback' in rollout.fault.text


def test_a_hung_policy_is_cut_off_in_wall_clock_time() -> None:
    hung = FaultyPolicy(fault='hang', seconds=8.0)
    rollout = rolled(policy=hung, cap_s=10.0, loop={'clock': 'wall'}, policy_limit_s=0.3)
    assert rollout.fault is not None
    assert rollout.fault.kind is FaultKind.POLICY_HANG
    assert rollout.duration_s < 8.0


def test_a_mismatch_of_conventions_names_both_sides() -> None:
    arm = ActionConvention(
        control_mode=ControlMode.JOINT_POSITION, target=Target.ABSOLUTE, frame=Frame.JOINT, n_joints=7
    )
    policy = PolicySpec(
        name='act', action=arm, control_rate_hz=50.0, state_width=8, state_layout=('q_rad',) * 8, images={'wrist': None}
    )
    host = HostSpec(name='cell', action=TRANSLATION, control_rate_hz=20.0, state_width=4, images={'top': (4, 4)})
    with pytest.raises(InputError) as caught:
        check_conventions(host, policy)
    for part in (
        'control_mode: host cell has se3, policy act has joint_position',
        'target: host cell has delta, policy act has absolute',
        'control_rate_hz: host cell has 20, policy act has 50',
        'state_width: host cell has 4, policy act has 8',
        'state_layout: host cell has none',
        'camera wrist: host cell has only top, policy act has a need of it',
        'say state = "privileged" among the options of the host',
    ):
        assert part in str(caught.value)


class Sketching(PointMassHost):
    """Draws where somebody will look, and counts."""

    def __init__(self, **options: Any) -> None:
        super().__init__(camera_px=4, **options)
        self.n_drawn, self._is_looked_at = 0, True

    def reset(self, task: str, *, seed: int) -> Observation:
        self._is_looked_at = True
        return super().reset(task, seed=seed)

    def expect_look(self, is_looked_at: bool) -> None:
        self._is_looked_at = is_looked_at

    def look(self) -> Observation:
        self._is_looked_at = True
        return self._observe()

    def _observe(self) -> Observation:
        whole = super()._observe()
        if not self._is_looked_at:
            return dataclasses.replace(whole, images={})
        self.n_drawn += 1
        return whole


class Forgetful(Sketching):
    """Leaves pictures out that it was told are wanted."""

    def expect_look(self, is_looked_at: bool) -> None:
        self._is_looked_at = False

    def look(self) -> Observation:
        return dataclasses.replace(super().look(), images={})


@pytest.mark.parametrize('length', [1, 3, 5])
def test_pictures_are_drawn_only_for_those_who_look(length: int) -> None:
    sparing, lavish = Sketching(), PointMassHost(camera_px=4)
    actions = np.tile([0.004, 0.002, 0.0], (length, 1))
    policies = Script(actions), Script(actions)
    rollouts = [rolled(host, policy, cap_s=1.0) for host, policy in zip((sparing, lavish), policies, strict=True)]
    assert sparing.n_drawn == len(policies[0].seen) == math.ceil(20 / length)
    assert rollouts[0].trajectory is not None
    assert rollouts[1].trajectory is not None
    assert trajectories_equal(rollouts[0].trajectory, rollouts[1].trajectory)
    for a, b in zip(policies[0].seen, policies[1].seen, strict=True):
        assert np.array_equal(a.images['top'], b.images['top'])


def test_hashes_of_frames_want_every_picture() -> None:
    host = Sketching()
    rolled(host, Script(np.zeros((5, 3))), cap_s=1.0, recording=RecordingOptions(film=False, frame_hashes=True))
    assert host.n_drawn == 21


def test_a_picture_that_is_wanted_and_missing_is_the_hosts_fault() -> None:
    rollout = rolled(Forgetful(), Script(np.zeros((5, 3))), cap_s=1.0)
    assert rollout.fault is not None
    assert rollout.fault.kind is FaultKind.HOST_ANSWER
    assert 'camera top showed' in rollout.fault.summary
