"""Delayed feedback, by timelines computed on paper, by properties, and by two clocks that must agree."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.run.plans import content, make_plan
from tests.run.substep_host import RATE_HZ, SUBSTEPS, CoarseHost, Signed, TickHost

from robotrials.errors import InputError
from robotrials.record import trajectories_equal
from robotrials.run import Setup, run_trial
from robotrials.run.component import check_host_fits
from robotrials.run.conditions import Delay
from robotrials.run.link_model import Fate
from robotrials.run.loop import Order, Rollout, run_episode
from robotrials.run.plan import LoopOptions, plan_from_json
from robotrials.value import read_table


def rolled(
    host: Any, policy: Any, *, cap_s: float = 0.4, clock: str = 'virtual', execute: int | None = None, seed: int = 1,
    limits: Any = None, **latency: Any,
) -> Rollout:  # fmt: skip
    values = {'clock': clock, 'latency': {'mode': 'injected', **latency}, 'limits': limits or {}}
    order = Order(
        time_cap_s=cap_s, policy_seed=seed, loop=read_table(LoopOptions, values, where='loop'), execute=execute
    )
    return run_episode(host, policy, Setup(task='wait', seed=0), order=order)


def timeline(*runs: tuple[float, int]) -> list[float]:
    """(value, how many substeps) one after the other."""
    return [value for value, count in runs for _ in range(count)]


def seen_steps(policy: Signed) -> list[int]:
    return [round(o.t_s * RATE_HZ) for o in policy.seen]


# --- timelines on paper: a control step is 50 ms, ten substeps of 5 ms


def test_an_answer_takes_effect_at_the_substep_at_which_it_arrives() -> None:
    """12 + 20 + 8 = 40 ms: the answer to step n arrives at substep 10 n + 8 and lasts ten."""
    host, policy = TickHost(), Signed()
    done = rolled(host, policy, cap_s=0.2, network_s=0.012, inference_s=0.020, transport_s=0.008)
    assert host.in_force == timeline((0, 8), (1, 10), (11, 10), (21, 10), (31, 2))
    assert done.trajectory is not None
    np.testing.assert_allclose(done.trajectory.extra['observation_age_s'], 0.04)
    np.testing.assert_allclose(done.trajectory.network_latency_s, 0.012)
    np.testing.assert_allclose(done.trajectory.inference_latency_s, 0.020)
    np.testing.assert_allclose(done.trajectory.transport_latency_s, 0.008)
    np.testing.assert_array_equal(done.trajectory.action_raw[:, 0], [1, 11, 21, 31])
    # What the host was given over each step: 8 substeps of the one before, 2 of its own.
    np.testing.assert_allclose(done.trajectory.action_processed[:, 0], [0.2, 0.8 + 2.2, 8.8 + 4.2, 16.8 + 6.2])
    assert done.labels['latency_resolution_s'] == '0.005'


def test_a_host_without_substeps_takes_an_answer_up_at_the_next_tick_and_the_record_says_so() -> None:
    host = CoarseHost()
    done = rolled(host, Signed(), cap_s=0.2, network_s=0.012, inference_s=0.020, transport_s=0.008)
    assert host.in_force == timeline((0, 10), (1, 10), (11, 10), (21, 10))
    assert done.labels['latency_resolution_s'] == '0.05'
    assert done.trajectory is not None
    np.testing.assert_allclose(done.trajectory.extra['observation_age_s'][1:], 0.05)


def test_a_busy_policy_takes_the_newest_that_has_arrived_and_drops_the_rest() -> None:
    """70 ms of thinking: step 0 is taken at 0, 1 at 70, 2 at 140, 4 at 210 (3 is dropped), 5 at 280."""
    host, policy = TickHost(), Signed()
    rolled(host, policy, cap_s=0.3, inference_s=0.070)
    assert seen_steps(policy) == [0, 1, 2, 4, 5]
    assert host.in_force == timeline((0, 14), (1, 10), (0, 4), (11, 10), (0, 4), (21, 10), (0, 4), (41, 4))


def test_delay_in_the_wires_does_not_slow_a_policy_down() -> None:
    """150 ms on the way and none of thinking: every observation is answered, three steps late."""
    host, policy = TickHost(), Signed()
    rolled(host, policy, cap_s=0.4, network_s=0.1, transport_s=0.05)
    assert host.in_force == timeline((0, 30), (1, 10), (11, 10), (21, 10), (31, 10), (41, 10))


def test_a_chunking_policy_keeps_its_queue() -> None:
    """Four actions, two to be taken: it takes every second observation, and its chunks meet without a gap."""
    host, policy = TickHost(), Signed(chunk_length=4)
    rolled(host, policy, cap_s=0.3, execute=2, network_s=0.03)
    assert seen_steps(policy) == [0, 2, 4]
    assert host.in_force == timeline((0, 6), (1, 10), (2, 10), (21, 10), (22, 10), (41, 10), (42, 4))


def test_a_slow_chunking_policy_plays_its_queue_out() -> None:
    """120 ms of thinking against four actions of 50 ms: no gap after the first answer. 2 is taken at 120, 4 at 240."""
    host, policy = TickHost(), Signed(chunk_length=4)
    rolled(host, policy, cap_s=0.4, execute=2, inference_s=0.12)
    assert seen_steps(policy) == [0, 2, 4, 7]
    assert host.in_force == timeline((0, 24), (1, 10), (2, 10), (3, 4), (21, 10), (22, 10), (23, 4), (41, 8))


@pytest.mark.parametrize(
    ('waiting', 'target', 'tail'),
    [
        ('keep', 'absolute', [(2, 26)]),  # the last position target stays
        ('keep', 'delta', [(0, 26)]),  # no displacement: the commanded position stays
        ('repeat', 'delta', [(2, 15), (0, 11)]),  # 75 ms more of the same, then still
        ('continue', 'absolute', [(2, 6), (0, 20)]),  # held still from the next tick on
        ('continue', 'delta', [(0, 26)]),
    ],
)
def test_what_the_arm_does_when_the_queue_is_empty(waiting: str, target: str, tail: list[tuple[float, int]]) -> None:
    """Two actions from substep 4 on, and an answer that never comes again: thinking takes longer than the episode."""
    host, policy = TickHost(target), Signed(2, target)
    repeat = {'repeat_s': 0.075} if waiting == 'repeat' else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('robotrials.run.loop.Fates', fates({0: Fate(Delay(0.02, 0, 0))}, rest=Fate(Delay(9.0, 0, 0))))
        rolled(host, policy, cap_s=0.25, waiting=waiting, network_s=0.02, **repeat)
    assert host.in_force == timeline((0, 4), (1, 10), (2, 10), *tail)


def test_holding_still_takes_no_more_than_it_was_told_and_asks_after_that() -> None:
    """Hold: one of two actions from substep 6, asked again at 100 ms (two steps), answered at 130."""
    host, policy = TickHost(), Signed(2)
    rolled(host, policy, cap_s=0.2, execute=1, waiting='hold', network_s=0.03)
    assert seen_steps(policy) == [0, 2]
    assert host.in_force == timeline((0, 6), (1, 10), (0, 10), (21, 10), (0, 4))


def fates(by_step: dict[int, Fate], rest: Fate | None = None) -> Any:
    class Given:
        is_late = False

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def of(self, step: int) -> Fate:
            return by_step.get(step, rest or Fate(Delay(0.0, 0.0, 0.0)))

    return Given


def test_an_overtaken_answer_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to step 0 needs 120 ms and the next none: it comes after those to steps 1 and 2, and is not used."""
    monkeypatch.setattr('robotrials.run.loop.Fates', fates({0: Fate(Delay(0, 0, 0.12))}))
    host = TickHost()
    rolled(host, Signed(), cap_s=0.2, transport_s=0.01)
    assert host.in_force == timeline((0, 10), (11, 10), (21, 10), (31, 10))


def test_a_line_that_keeps_order_holds_up_what_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers to steps 1 and 2 wait for that to step 0 and arrive with it at 120 ms; the newest counts."""
    monkeypatch.setattr('robotrials.run.loop.Fates', fates({0: Fate(Delay(0, 0, 0.12))}))
    host = TickHost()
    rolled(host, Signed(), cap_s=0.2, transport_s=0.01, reorder=False)
    assert host.in_force == timeline((0, 24), (21, 6), (31, 10))


def test_lost_messages_never_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The observation of step 1 and the answer to step 2 are lost."""
    nothing = Delay(0.0, 0.0, 0.0)
    lost = {1: Fate(nothing, is_observation_lost=True), 2: Fate(nothing, is_answer_lost=True)}
    monkeypatch.setattr('robotrials.run.loop.Fates', fates(lost))
    host, policy = TickHost(), Signed()
    rolled(host, policy, cap_s=0.2)
    assert seen_steps(policy) == [0, 2, 3]
    assert host.in_force == timeline((1, 10), (0, 20), (31, 10))


@pytest.mark.parametrize('lost', [Fate(Delay(0, 0, 0), True, False), Fate(Delay(0, 0, 0), False, True)])
def test_a_request_whose_answer_is_lost_is_put_again_after_its_time_out(
    lost: Fate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('robotrials.run.loop.Fates', fates({0: lost}))
    host, policy = TickHost(), Signed()
    rolled(host, policy, cap_s=0.3, asking='request', retry_s=0.15)
    assert seen_steps(policy)[-3:] == [3, 4, 5]
    assert host.in_force == timeline((0, 30), (31, 10), (41, 10), (51, 10))


# --- commands under way


def test_commands_under_way_are_those_that_come_between_the_look_and_the_answer() -> None:
    policy = Signed()
    rolled(TickHost(), policy, cap_s=0.4, network_s=0.15)
    told = [o.under_way[:, 0].tolist() for o in policy.seen if o.under_way is not None]
    # Answers to steps 0, 1, 2 are on their way when step 3 is seen; the first starts then.
    assert told == [[], [1], [1, 11], [1, 11, 21], [11, 21, 31]][: len(told)]


def test_of_a_displacement_under_way_the_rest_is_left() -> None:
    """40 ms late: at each look two of ten substeps of the last command are done, and the answer comes after eight."""
    policy = Signed()
    rolled(TickHost(), policy, cap_s=0.2, network_s=0.04)
    assert [o.under_way[:, 0].tolist() for o in policy.seen if o.under_way is not None] == [
        [], [pytest.approx(0.8)], [pytest.approx(8.8)], [pytest.approx(16.8)]
    ]  # fmt: skip


def test_of_a_chunk_under_way_only_what_will_be_played_is_told() -> None:
    """Five of eight actions a chunk, 200 ms late: at the second look (step 5) one is done and four will be."""
    policy = Signed(chunk_length=8)
    rolled(TickHost(), policy, cap_s=0.75, execute=5, network_s=0.2)
    assert [o.under_way[:, 0].tolist() for o in policy.seen if o.under_way is not None][1] == [2, 3, 4, 5]


def test_a_policy_can_be_left_untold() -> None:
    policy = Signed()
    rolled(TickHost(), policy, network_s=0.1, under_way='untold')
    assert [o.under_way for o in policy.seen] == [None] * len(policy.seen)


@settings(max_examples=40, deadline=None)
@given(delay_ms=st.integers(0, 400), chunk=st.integers(1, 6))
def test_what_is_told_adds_up_to_what_the_arm_does_until_the_answer_comes(delay_ms: int, chunk: int) -> None:
    """With delays that do not change: displacements under way sum to those between the look and its answer."""
    host, policy = TickHost(), Signed(chunk)
    rolled(host, policy, cap_s=2.0, network_s=delay_ms / 1000)
    for observation in policy.seen:
        first = round(observation.t_s * RATE_HZ) * SUBSTEPS
        until = first + int(np.ceil(delay_ms / 5 - 1e-6))
        if until > len(host.in_force) or observation.under_way is None:
            continue
        assert float(observation.under_way.sum()) == pytest.approx(sum(host.in_force[first:until]) / SUBSTEPS)


# --- properties


LATENCY = st.fixed_dictionaries(
    {
        'network_s': st.floats(0, 0.2),
        'inference_s': st.floats(0, 0.2),
        'transport_s': st.floats(0, 0.1),
        'jitter': st.sampled_from([0.0, 0.6]),
        'loss': st.sampled_from([0.0, 0.3]),
        'reorder': st.booleans(),
        'waiting': st.sampled_from(['keep', 'repeat', 'continue', 'hold']),
        'asking': st.sampled_from(['stream', 'request']),
        'retry_s': st.sampled_from([0.1, 1.0]),
    }
)


@settings(max_examples=80, deadline=None)
@given(latency=LATENCY, chunk=st.integers(1, 4), seed=st.integers(0, 99), fine=st.booleans())
def test_nothing_comes_before_its_time_twice_or_out_of_order(
    latency: dict[str, Any], chunk: int, seed: int, fine: bool
) -> None:
    host, policy = (TickHost() if fine else CoarseHost()), Signed(chunk)
    done = rolled(host, policy, cap_s=1.5, seed=seed, **latency)
    assert done.fault is None
    assert len(host.in_force) == done.n_steps * SUBSTEPS
    seen = seen_steps(policy)
    assert all(a < b for a, b in itertools.pairwise(seen))
    recorded = done.trajectory
    assert recorded is not None
    age_s = recorded.extra['observation_age_s']
    rows = np.flatnonzero(np.isfinite(age_s))
    charged = recorded.network_latency_s + recorded.inference_latency_s + recorded.transport_latency_s
    assert (age_s[rows] >= charged[rows] - 1e-6).all()
    # Every action in force is of a question that was put, and questions take effect in the order of what they saw.
    at = [(g, round(v - 1) // 10, round(v - 1) % 10) for g, v in enumerate(host.in_force) if v]
    assert {step for _, step, _ in at} <= set(seen)
    order = [(step, index) for _, step, index in at]
    assert order == sorted(order)
    for (step, index), group in itertools.groupby(at, key=lambda a: a[1:]):
        first, count = next((g for g, *_ in group), 0), order.count((step, index))
        assert first >= step * SUBSTEPS
        is_last = index == chunk - 1
        assert count <= SUBSTEPS or (is_last and latency['waiting'] == 'repeat')
    raw = recorded.action_raw[np.isfinite(recorded.action_raw)]
    assert len(set(raw)) == len(raw)


def test_draws_follow_the_seed_and_the_step_alone() -> None:
    options = {'network_s': {'low_s': 0.0, 'high_s': 0.1}, 'transport_s': 0.05, 'jitter': 0.5, 'loss': 0.2}
    first, again, other = (rolled(TickHost(), Signed(), cap_s=2.0, seed=s, **options).trajectory for s in (1, 1, 2))
    assert first is not None
    assert again is not None
    assert other is not None
    assert trajectories_equal(first, again)
    assert not trajectories_equal(first, other)


def test_late_trials_are_the_same_bits_with_one_worker_and_with_two(tmp_path: Path) -> None:
    latency = {
        'mode': 'injected', 'network_s': {'low_s': 0.02, 'high_s': 0.2}, 'inference_s': 0.06, 'jitter': 0.3,
        'loss': 0.1, 'waiting': 'repeat',
    }  # fmt: skip
    plan = make_plan(loop={'latency': latency})
    for workers in (1, 2):
        run_trial(plan, tmp_path / str(workers), workers=workers)
    (one, paths), (two, others) = content(tmp_path / '1'), content(tmp_path / '2')
    assert one == two
    assert all(trajectories_equal(paths[key], others[key]) for key in paths)
    assert one[0].labels['latency'] == 'repeat, stream, commands under way told'
    assert one[0].labels['latency_resolution_s'] == '0.05'


# --- two clocks

MOST_EPISODES = 20


@pytest.mark.parametrize('kind', [TickHost, CoarseHost])
def test_virtual_and_wall_clock_agree_within_a_control_step(kind: Any) -> None:
    """Injected 60 + 40 + 30 ms. An answer takes effect no earlier than in virtual time, and half of them no more than
    a control step later; a busy machine delays single ones, or whole episodes, and then has another."""
    latency = {'network_s': 0.06, 'inference_s': 0.04, 'transport_s': 0.03}
    virtual = rolled(kind(), Signed(), cap_s=1.5, **latency).trajectory
    assert virtual is not None
    late_s = []
    while not late_s or (abs(late_s[-1]) > 1 / RATE_HZ and len(late_s) < MOST_EPISODES):
        wall = rolled(kind(), Signed(), cap_s=1.5, clock='wall', **latency).trajectory
        assert wall is not None
        ages = [t.extra['observation_age_s'][np.isfinite(t.extra['observation_age_s'])] for t in (virtual, wall)]
        assert ages[1].min() >= 0.13 - 1e-6
        late_s.append(float(np.median(ages[1]) - np.median(ages[0])))
        for name in ('network', 'inference', 'transport'):
            recorded = [getattr(t, f'{name}_latency_s') for t in (virtual, wall)]
            assert set(recorded[0][np.isfinite(recorded[0])]) == set(recorded[1][np.isfinite(recorded[1])])
    assert abs(late_s[-1]) <= 1 / RATE_HZ, late_s


# --- plans


def test_plans_in_which_nothing_is_late_keep_their_hash_and_late_ones_say_what_the_arm_does() -> None:
    """The hash of the plain plan is that of the release before delayed feedback."""
    plain = make_plan()
    assert '"waiting":"hold"' in plain.as_json()
    assert 'under_way' not in plain.as_json()
    late = make_plan(loop={'latency': {'mode': 'injected', 'inference_s': 0.1}})
    assert '"waiting":"keep"' in late.as_json()
    held = make_plan(loop={'latency': {'mode': 'injected', 'inference_s': 0.1, 'waiting': 'hold'}})
    assert held.hash != late.hash
    for plan in (plain, late, held, make_plan(conditions=[{'name': 'light+latency', 'severity': 0.2}])):
        assert plan_from_json(plan.as_json()) == plan
    assert make_plan(conditions=['chaos']).is_late
    assert not make_plan(conditions=[{'name': 'chaos', 'kinds': ['light']}]).is_late


@pytest.mark.parametrize(
    ('latency', 'words'),
    [
        ({'jitter': 0.5}, 'wants mode'),
        ({'loss': 0.5}, 'wants mode'),
        ({'mode': 'injected', 'loss': 1.0}, 'below 1'),
        ({'mode': 'injected', 'jitter': -1.0}, 'jitter is -1'),
        ({'mode': 'injected', 'retry_s': 0.0}, 'retry_s is 0'),
        ({'mode': 'injected', 'waiting': 'keeep'}, "did you mean 'keep'"),
    ],
)
def test_latency_options_that_make_no_sense_are_refused(latency: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_plan(loop={'latency': latency})


def test_repeating_a_position_is_refused_before_the_trial() -> None:
    plan = make_plan(loop={'latency': {'mode': 'injected', 'waiting': 'repeat'}})
    with pytest.raises(InputError, match='takes position targets'):
        check_host_fits(plan, TickHost('absolute'))
    check_host_fits(plan, TickHost('delta'))


def test_limits_hold_across_parts_of_a_control_step() -> None:
    """At most 2 a second, and 20 a second more in a second: a displacement of 0.1 a step at the most."""
    host = TickHost()
    rolled(host, Signed(), cap_s=0.5, network_s=0.03, limits={'velocity': 2.0, 'acceleration': 20.0})
    speeds = np.array(host.in_force) * RATE_HZ
    assert speeds.max() <= 2.0 + 1e-9
    assert speeds.max() == pytest.approx(2.0)
