"""Runs under attack: odd answers, full disks, dying workers, plans that name what they should not."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.record.crash_disk import CrashDisk
from tests.run.plans import FAST, SLOW, make_plan

from robotrials.errors import InputError, StoreError, WriteError
from robotrials.record import Event, EventKind, Outcome, Store
from robotrials.record.folder import replaced_disk
from robotrials.record.verify import verify_store
from robotrials.run import close_trial, run_trial
from robotrials.run.closing import arm_counts
from robotrials.run.component import checkpoint_digest
from robotrials.run.fault import FaultKind
from robotrials.run.loop import Order, on_one_clock, run_episode
from robotrials.run.mark import mark_begun
from robotrials.run.plan import Clock, LatencyMode, LatencyOptions, LoopOptions, read_plan
from robotrials.run.seam import Chunk, Observation, Setup
from robotrials.testing.policy import PointMassHost, SeekPolicy


class OddPolicy(SeekPolicy):
    """Says what it is told to."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def start(self, setup: Setup, *, seed: int) -> OddPolicy:  # type: ignore[override]
        return self

    def act(self, observation: Observation) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class UnsayableError(Exception):
    def __str__(self) -> str:
        raise ValueError('no')


@pytest.mark.parametrize(
    'answer',
    [
        Chunk([[0.1, 0.2], [0.3]]),  # type: ignore[arg-type]
        Chunk(np.array([['a', 'b']])),  # type: ignore[arg-type]
        Chunk(np.array([[1j, 2]])),  # type: ignore[arg-type]
        Chunk(np.array([[object(), 1]])),
        Chunk(np.array([['2026-01-01', '2026-01-02']], dtype='M8[D]')),  # type: ignore[arg-type]
        Chunk(np.array([[np.longdouble('1e4000'), 0]])),
        Chunk(np.full((1, 2), np.nan)),
        Chunk(np.zeros((1, 2)), inference_s=float('nan')),
        Chunk(np.zeros((1, 2)), inference_s=-1.0),
        Chunk(np.zeros((1, 2)), inference_s='soon'),  # type: ignore[arg-type]
        None, 7, 'text', {'actions': 1},
    ],
)  # fmt: skip
def test_an_odd_answer_is_the_policys_fault(answer: Any) -> None:
    order = Order(
        time_cap_s=1.0, policy_seed=1, loop=LoopOptions(latency=LatencyOptions(mode=LatencyMode.MEASURED))
    )  # fmt: skip
    rollout = run_episode(PointMassHost(), OddPolicy(answer), Setup(task='reach', seed=1), order=order)
    assert rollout.fault is not None
    assert rollout.fault.kind is FaultKind.POLICY_ANSWER, rollout.fault


@pytest.mark.parametrize('error', [SystemExit(3), RuntimeError('half \ud800'), UnsayableError(), RecursionError()])
def test_an_odd_exception_is_the_policys_crash_and_its_text_can_be_stored(error: BaseException) -> None:
    rollout = run_episode(
        PointMassHost(), OddPolicy(error), Setup(task='reach', seed=1), order=Order(time_cap_s=1.0, policy_seed=1)
    )
    assert rollout.fault is not None
    left = isinstance(error, SystemExit)
    assert rollout.fault.kind is (FaultKind.POLICY_EXIT if left else FaultKind.POLICY_CRASH)
    rollout.fault.text.encode()


@pytest.mark.parametrize('seed', range(6))
def test_in_wall_clock_time_no_event_lies_after_the_end(seed: int) -> None:
    """The host's clock counts steps, the loop's the wall's seconds; successes used to end before their last event."""
    host = PointMassHost(control_rate_hz=200.0)
    order = Order(time_cap_s=3.0, policy_seed=1, loop=LoopOptions(clock=Clock.WALL))
    setup = Setup(task='reach', seed=seed, items=2)
    rollout = run_episode(host, SeekPolicy(speed_m_s=20.0), setup, order=order)
    assert rollout.outcome is Outcome.SUCCESS
    times = [e.t_s for e in rollout.report.events]
    assert len(times) == 2
    assert 0 <= times[0] < times[1] <= rollout.duration_s


def test_one_clock_maps_between_steps_and_never_outside() -> None:
    events = tuple(Event(t, EventKind.PLACEMENT) for t in (0.5, 1.0, 1.5, 9.0))
    clock = [(0.0, 0.0), (1.0, 1.2), (2.0, 2.2)]
    assert [round(e.t_s, 6) for e in on_one_clock(events, clock)] == [0.6, 1.2, 1.7, 2.2]
    assert [e.t_s for e in on_one_clock(events, [(1.0, 0.0), (0.0, 0.7)])] == [0.5, 0.7, 0.7, 0.7]


def test_a_full_disk_stops_the_run_and_burns_no_attempt(tmp_path: Path) -> None:
    plan = make_plan()
    run_trial(plan, tmp_path / 's', workers=0, stop_after=1)
    with replaced_disk(CrashDisk(tmp_path, at=60, number=errno.ENOSPC)), pytest.raises(WriteError, match='make room'):
        run_trial(plan, tmp_path / 's', workers=0)
    run_trial(plan, tmp_path / 's', workers=0)
    episodes = list(Store.open(tmp_path / 's').episodes(attempts='all'))
    assert {e.attempt for e in episodes} == {0}
    assert len(episodes) == 8


FORKING = """
import os
from robotrials.testing.policy import SeekPolicy

class ForkingPolicy(SeekPolicy):
    def start(self, setup, *, seed):
        if setup.instance == 1 and not os.path.exists(os.environ['ROBOTRIALS_TEST_MARK']):
            open(os.environ['ROBOTRIALS_TEST_MARK'], 'w').close()
            if os.fork() == 0:
                import time
                time.sleep(4)
                os._exit(0)
            os.closerange(3, 256)
        return super().start(setup, seed=seed)

class DyingPolicy(SeekPolicy):
    def __init__(self, **options):
        if not os.path.exists(os.environ['ROBOTRIALS_TEST_MARK']):
            open(os.environ['ROBOTRIALS_TEST_MARK'], 'w').close()
            os._exit(9)
        super().__init__(**options)
"""


@pytest.mark.parametrize('policy', ['ForkingPolicy', 'DyingPolicy'])
def test_a_policy_that_forks_closes_descriptors_or_dies_while_loading_hangs_nobody(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / 'odd_module.py').write_text(FORKING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv('ROBOTRIALS_TEST_MARK', str(tmp_path / 'mark'))
    plan = make_plan(policies={FAST: {'use': f'odd_module:{policy}'}, SLOW: 'seek'}, episodes_per_cell=2)
    done = run_trial(plan, tmp_path / 's', workers=1)
    assert done.is_complete
    assert done.n_valid == 4
    again = run_trial(plan, tmp_path / 's', workers=0)
    assert again.n_run == 0, 'the lock is free, whatever a child of the policy holds'
    assert verify_store(tmp_path / 's').is_clean


@pytest.mark.parametrize('use', ['os:system', 'builtins:exec', 'subprocess:run', 'os:getcwd', 'shutil:rmtree'])
@pytest.mark.parametrize('role', ['host', 'policy'])
def test_a_plan_calls_nothing_that_is_not_known_to_be_a_host_or_a_policy(tmp_path: Path, use: str, role: str) -> None:
    victim = tmp_path / 'ran'
    entry = {'use': use, 'options': {'command': f'touch {victim}'}}
    changes: dict[str, Any] = {'host': entry} if role == 'host' else {'policies': {FAST: entry, SLOW: 'seek'}}
    with pytest.raises(InputError, match='not known to be a'):
        run_trial(make_plan(**changes), tmp_path / 's', workers=0)
    assert not victim.exists()


def made_elsewhere() -> SeekPolicy:
    """A policy from a function that says what it makes."""
    return SeekPolicy(speed_m_s=1.0)


def test_a_function_that_says_what_it_makes_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, 'made_here', sys.modules[__name__])
    plan = make_plan(policies={FAST: 'made_here:made_elsewhere', SLOW: 'seek'}, episodes_per_cell=1)
    assert run_trial(plan, tmp_path / 's', workers=0).n_valid == 2


def test_checkpoints_are_checked_at_the_start_and_between_episodes(tmp_path: Path) -> None:
    weights = tmp_path / 'weights'
    weights.mkdir()
    (weights / 'a.bin').write_bytes(b'one')
    digest = checkpoint_digest(weights)
    policies = {FAST: {'use': 'seek', 'checkpoints': {str(weights): digest}}, SLOW: 'seek'}
    plan = make_plan(policies=policies)
    run_trial(plan, tmp_path / 's', workers=0, stop_after=2)

    def swap(progress: object) -> None:
        (weights / 'a.bin').write_bytes(b'two')

    with pytest.raises(InputError, match='checkpoint 1 of 1 has SHA-256') as caught:
        run_trial(plan, tmp_path / 's', workers=0, report=swap)
    assert FAST not in str(caught.value)
    with pytest.raises(InputError, match='checkpoint 1 of 1 has SHA-256'):
        run_trial(plan, tmp_path / 's', workers=1)
    with pytest.raises(InputError, match='64 hex digits'):
        make_plan(policies={FAST: {'use': 'seek', 'checkpoints': {'a': 'abc'}}, SLOW: 'seek'})
    assert make_plan().hash == make_plan(policies={**make_plan_policies()}).hash


def make_plan_policies() -> dict[str, Any]:
    return {
        name: {k: v for k, v in dataclasses.asdict(entry).items() if v not in (None, {})}
        for name, entry in make_plan().policies.items()
    }


@pytest.mark.parametrize(
    'changes',
    [
        {'episodes_per_cell': 10**9}, {'repeats': 10**7}, {'rotation': {'sessions': 10**9}}, {'time_cap_s': 1e12},
        {'tasks': [{'name': 'reach', 'items': 10**9}]}, {'seed': 2**70}, {'faults': {'attempts': 10**6}},
        {'nuisance': {f'n{i}': [str(j) for j in range(20)] for i in range(5)}},
    ],
)  # fmt: skip
def test_sizes_are_bounded_before_anything_is_made(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match='wanted at most'):
        make_plan(**changes)


@pytest.mark.parametrize(
    'text', [b'\xff\xfe', b'a = ' + b'[' * 5000, b'x = 1' * 2_000_000, b'seed = 1' + b'0' * 5000, b'']
)
def test_a_hostile_file_is_one_clear_error(tmp_path: Path, text: bytes) -> None:
    (tmp_path / 'trial.toml').write_bytes(text)
    with pytest.raises(InputError, match=r'trial\.toml'):
        read_plan(tmp_path / 'trial.toml')


class SeedPolicy(SeekPolicy):
    """Remembers its seeds, and breaks the first time."""

    seeds: list[int] = []  # noqa: RUF012 - shared on purpose

    def start(self, setup: Setup, *, seed: int) -> Any:
        SeedPolicy.seeds.append(seed)
        if len(SeedPolicy.seeds) % 2:
            raise RuntimeError('broken rig')
        return super().start(setup, seed=seed)


def test_a_rerun_has_the_same_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, 'made_here', sys.modules[__name__])
    SeedPolicy.seeds.clear()
    plan = make_plan(policies={FAST: 'made_here:SeedPolicy'}, reference='', episodes_per_cell=3)
    run_trial(plan, tmp_path / 's', workers=0)
    assert len(SeedPolicy.seeds) == 6
    assert len(set(SeedPolicy.seeds)) == 3, 'each attempt again with the seed of the first'


def test_a_dropped_or_invalidated_episode_is_run_again_and_the_trial_closes(tmp_path: Path) -> None:
    plan = make_plan(faults={'attempts': 1})
    run_trial(plan, tmp_path / 's', workers=0)
    store = Store.open(tmp_path / 's')
    first, second = sorted(store.episodes(), key=lambda e: e.key)[:2]
    store.edit(first.episode_id, 'drop', by='kim', why='wrong object')
    store.edit(second.episode_id, 'set', by='kim', why='camera', field='outcome', value='invalid')
    with pytest.raises(InputError, match='2 of 8 episodes are still to be run'):
        close_trial(plan, store.path, by='kim')
    assert run_trial(plan, store.path, workers=0).n_run == 2
    counted = {e.episode_id: e for e in store.episodes()}
    assert (counted[first.episode_id].attempt, counted[second.episode_id].attempt) == (1, 1)
    assert len(counted) == 8
    assert sum(a.n_valid for a in close_trial(plan, store.path, by='kim')) == 8
    assert verify_store(store.path).is_clean


def test_an_attempt_that_was_begun_and_never_finished_is_on_record_by_arm(tmp_path: Path) -> None:
    plan = make_plan()
    run_trial(plan, tmp_path / 's', workers=0, stop_after=7)
    store = Store.open(tmp_path / 's')
    done = {e.episode_id for e in store.episodes()}
    heads: list[str] = []
    again = run_trial(plan, store.path, workers=0, stop_after=0, tell=heads.append)
    assert heads == [again.head_before] != ['']
    from robotrials.run.schedule import trial_slots
    from robotrials.run.station import Context

    context = Context.of(plan)
    (left,) = [k for s in trial_slots(plan) if (k := context.planned(s).key)[0] not in done]
    mark_begun(store.path, left)  # what a run that is killed now leaves
    assert run_trial(plan, store.path, workers=0).n_interrupted == 1
    assert os.listdir(store.path / 'begun') == []
    assert sum(a.n_interrupted for a in arm_counts(plan, store)) == 1
    assert verify_store(store.path).is_clean


def test_a_trial_can_not_be_closed_while_it_runs_and_is_closed_or_not_whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan()
    monkeypatch.setattr('robotrials.run.engine.LOCK_WAIT_S', 0.05)
    tried: list[str] = []

    def close_meanwhile(progress: object) -> None:
        with pytest.raises(StoreError, match='another run of this trial is under way'):
            close_trial(plan, tmp_path / 's', by='kim', early=True, why='impatient')
        tried.append('x')

    run_trial(plan, tmp_path / 's', workers=0, report=close_meanwhile)
    assert len(tried) == 8
    assert not Store.open(tmp_path / 's').unblindings().by_trial
    close_trial(plan, tmp_path / 's', by='kim')
    assert verify_store(tmp_path / 's').findings == ()
