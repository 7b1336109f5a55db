"""The engine: one result whatever the workers, the kills and the faults."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S
from tests.run.plans import FAST, SLOW, content, make_plan

from robotrials.errors import InputError, StoreError
from robotrials.record import Outcome, Store, trajectories_equal
from robotrials.record.verify import verify_store
from robotrials.run import TrialPlan, run_trial
from robotrials.run.fault import read_fault
from robotrials.run.schedule import TrialProgress, trial_slots

KILLS = 50

# One process imports everything once and forks a run for each line it is given, to be killed while running.
NURSERY = """
import os, signal, sys
from robotrials.run import run_trial
from robotrials.run.plan import plan_from_json
plan = plan_from_json(open(sys.argv[1]).read())
import robotrials.run.engine as opening
provenance = opening.collect_provenance()
opening.collect_provenance = lambda: provenance
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        run_trial(plan, line.strip(), workers=0)
        os._exit(0)
    print(pid, flush=True)
"""


def assert_same(a: Path, b: Path) -> None:
    """Equal episodes and trajectories, bit for bit."""
    (episodes_a, paths_a), (episodes_b, paths_b) = content(a), content(b)
    assert episodes_a == episodes_b
    assert paths_a.keys() == paths_b.keys()
    assert all(trajectories_equal(paths_a[key], paths_b[key]) for key in paths_a)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_fifty_kills_and_resumes_give_the_episodes_of_an_uninterrupted_run(tmp_path: Path) -> None:
    plan = make_plan(episodes_per_cell=20, strata=['a', 'b'], nuisance={'side': ['l', 'r']})
    (tmp_path / 'plan.json').write_text(plan.as_json())
    command = [sys.executable, '-c', NURSERY, str(tmp_path / 'plan.json')]
    nursery = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert nursery.stdin is not None
    assert nursery.stdout is not None

    def start(store: Path) -> int:
        print(store, file=nursery.stdin, flush=True)
        return int(nursery.stdout.readline())  # type: ignore[union-attr]

    rng = random.Random(3)
    kills = trial = 0
    broken: list[Path] = []
    try:
        while kills < KILLS:  # a trial that is done before its next kill is followed by another
            store = tmp_path / f'killed-{trial}'
            broken.append(store)
            trial += 1
            while kills < KILLS:
                pid = start(store)
                time.sleep(rng.uniform(0.01, 0.12))
                if not is_alive(pid):
                    break
                os.kill(pid, signal.SIGKILL)
                kills += 1
                while is_alive(pid):
                    time.sleep(0.002)
                if store.exists():
                    check_balance(plan, store)
        whole = tmp_path / 'whole'
        for store in [*broken, whole]:
            pid = start(store)
            while is_alive(pid):
                time.sleep(0.01)
    finally:
        nursery.communicate(timeout=PATIENCE_S)
    for store in broken:
        assert verify_store(store).is_clean
        assert_same(store, whole)
    assert Store.open(whole).count() == 80


def check_balance(plan: TrialPlan, store: Path) -> None:
    counts = (
        Counter(e.policy for e in Store.open(store).episodes(events=False)) if (store / 'trial.json').exists() else {}
    )
    if counts:
        most = max(counts.values())
        least = min(counts.values()) if len(counts) == len(plan.policies) else 0
        assert most - least <= plan.rotation.max_rounds_per_block


def test_one_and_four_workers_and_none_give_the_same_store(tmp_path: Path) -> None:
    plan = make_plan(episodes_per_cell=5, strata=['a', 'b'])
    for workers in (0, 1, 4):
        run = run_trial(plan, tmp_path / str(workers), workers=workers)
        assert run.is_complete
        assert run.n_valid == run.n_total == 20
        assert verify_store(tmp_path / str(workers)).findings == ()
    assert_same(tmp_path / '0', tmp_path / '1')
    assert_same(tmp_path / '0', tmp_path / '4')


def test_a_run_in_pieces_is_the_run_as_a_whole_and_a_finished_one_adds_nothing(tmp_path: Path) -> None:
    plan = make_plan()
    pieces = [run_trial(plan, tmp_path / 'a', workers=0, stop_after=3) for _ in range(3)]
    assert [p.n_run for p in pieces] == [3, 3, 2]
    assert pieces[-1].is_complete
    assert not pieces[0].is_complete
    assert run_trial(plan, tmp_path / 'a', workers=0).n_run == 0
    run_trial(plan, tmp_path / 'b', workers=0)
    assert_same(tmp_path / 'a', tmp_path / 'b')
    order = [e.key for part in Store.open(tmp_path / 'a').parts() for e in Store.open(tmp_path / 'a').recorded(part)]
    assert len(order) == len(trial_slots(plan))


def faulty_plan(fault: str, **changes: Any) -> TrialPlan:
    """Two arms, one of which breaks on odd instances."""
    broken = {'fault': fault, 'seconds': 60.0 if fault == 'hang' else 1.4, 'only_odd': True, 'message': f'{FAST} broke'}
    policies = {FAST: {'use': 'robotrials.testing.policy:FaultyPolicy', 'options': broken}, SLOW: 'seek'}
    values: dict[str, Any] = {
        'policies': policies,
        'watchdog': {'policy_s': 1.5 if fault == 'hang' else 60.0, 'host_s': 60.0},
        'loop': {'deadline_s': 1.0} if fault == 'late' else {},
        'faults': {'attempts': 2},
        'title': '',
    }
    return make_plan(**{**values, **changes})


@pytest.mark.parametrize(
    ('fault', 'outcome', 'reason'),
    [
        ('nan', Outcome.FAILURE, 'policy answer: actions at step 1 are not finite'),
        ('shape', Outcome.FAILURE, 'policy answer: actions at step 1 are (1, 7) of float64, declared (1, 3)'),
        ('late', Outcome.FAILURE, 'policy late: an answer at step 1 took longer than the deadline of 1 s'),
        ('crash', Outcome.INVALID, 'policy crash: RuntimeError at step 1'),
        ('hang', Outcome.INVALID, 'policy hang: no answer within 1.5 s'),
        ('exit', Outcome.FAILURE, 'policy exit: the process ended with exit code 11'),
        ('leave', Outcome.FAILURE, 'policy exit: SystemExit at step 1'),
        ('kill', Outcome.FAILURE, 'policy exit: the process ended with signal 9'),
    ],
)
def test_a_broken_policy_makes_episodes_with_the_right_outcome_and_the_trial_goes_on(
    tmp_path: Path, fault: str, outcome: Outcome, reason: str
) -> None:
    plan = faulty_plan(fault, episodes_per_cell=2)
    run = run_trial(plan, tmp_path / 's', workers=1)
    assert run.is_complete
    store = Store.open(tmp_path / 's')
    broken = [e for e in store.episodes(attempts='all') if e.reason]
    assert {(e.outcome, e.reason) for e in broken} == {(outcome, reason)}
    if fault == 'hang':
        assert 'in act' in (read_fault(store, broken[0], plan=plan) or '')  # the stack of the hanging call is kept
    if outcome is Outcome.INVALID:
        assert [e.attempt for e in broken] == [0, 1]
        assert (run.n_valid, run.n_given_up) == (3, 1)
    else:
        assert [(e.attempt, e.success, e.is_unrecoverable, e.items) for e in broken] == [(0, False, True, 2)]
        assert (run.n_valid, run.n_given_up) == (4, 0)
    assert verify_store(tmp_path / 's').is_clean


def test_a_hang_inside_this_process_is_cut_by_its_alarm_clock(tmp_path: Path) -> None:
    import signal

    plan = faulty_plan('hang', episodes_per_cell=2, watchdog={'policy_s': 1.0, 'host_s': 60.0})
    run = run_trial(plan, tmp_path / 's', workers=0)
    assert run.is_complete
    broken = [e for e in Store.open(tmp_path / 's').episodes(attempts='all') if e.reason]
    assert {(e.outcome, e.reason) for e in broken} == {(Outcome.INVALID, 'policy silent: no answer in time at step 1')}
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize(
    ('fault', 'reason'),
    [
        ('mutate', 'host answer: the state of an observation changed after it was handed out (step 1)'),
        ('crash', 'host crash: OSError at step 2: the arm does not answer'),
        ('hang', 'host hang: no return within 1.5 s'),
        ('exit', 'worker death: the process ended with exit code 12'),
    ],
)
def test_a_broken_host_makes_invalid_episodes_that_are_tried_again_and_given_up(
    tmp_path: Path, fault: str, reason: str
) -> None:
    host = {'use': 'robotrials.testing.policy:FaultyHost', 'options': {'fault': fault}}
    plan = make_plan(
        host=host, watchdog={'host_s': 1.5 if fault == 'hang' else 60.0}, faults={'attempts': 2}, episodes_per_cell=1,
        tasks=['reach'], policies={FAST: 'seek'}, reference='', title='',
    )  # fmt: skip
    run = run_trial(plan, tmp_path / 's', workers=1)
    assert (run.n_run, run.n_valid, run.n_given_up, run.is_complete) == (2, 0, 1, True)
    episodes = list(Store.open(tmp_path / 's').episodes(attempts='all'))
    assert [(e.outcome, e.reason) for e in episodes] == [(Outcome.INVALID, reason)] * 2


def test_a_host_that_hangs_inside_this_process_is_known_by_its_alarm_clock(tmp_path: Path) -> None:
    plan = make_plan(
        host={'use': 'robotrials.testing.policy:FaultyHost', 'options': {'fault': 'hang'}}, watchdog={'host_s': 1.0},
        faults={'attempts': 1}, episodes_per_cell=1, tasks=['reach'], policies={FAST: 'seek'}, reference='', title='',
    )  # fmt: skip
    run_trial(plan, tmp_path / 's', workers=0)
    (episode,) = Store.open(tmp_path / 's').episodes(attempts='all')
    assert episode.outcome is Outcome.INVALID
    assert episode.reason.startswith('host hang: ')
    assert episode.reason.endswith('the host did not come back within 1 s')


def test_a_crash_keeps_its_traceback_sealed_until_the_plan_is_at_hand(tmp_path: Path) -> None:
    plan = faulty_plan('crash')
    run_trial(plan, tmp_path / 's', workers=0)
    store = Store.open(tmp_path / 's')
    crashed = next(e for e in store.episodes() if e.outcome is Outcome.INVALID)
    with pytest.raises(InputError, match='sealed until the trial is closed'):
        read_fault(store, crashed)
    text = read_fault(store, crashed, plan=plan)
    assert text is not None
    assert f'RuntimeError: {FAST} broke' in text
    assert read_fault(store, next(e for e in store.episodes() if e.is_valid)) is None


def test_an_invalid_episode_is_rerun_at_the_end_of_its_block(tmp_path: Path) -> None:
    plan = faulty_plan('crash', episodes_per_cell=6, faults={'attempts': 3})
    run_trial(plan, tmp_path / 's', workers=0)
    store = Store.open(tmp_path / 's')
    run_order = [e for part in store.parts() for e in store.recorded(part)]
    blocks = [e.block for e in run_order]
    assert blocks == sorted(blocks, key=lambda b: int(b.split('-b')[1]))
    for block in set(blocks):
        attempts = [e.attempt for e in run_order if e.block == block]
        assert attempts == sorted(attempts)


def test_results_of_a_trial_with_faults_do_not_depend_on_the_workers(tmp_path: Path) -> None:
    plan = faulty_plan('crash', episodes_per_cell=3)
    for workers in (0, 2):
        run_trial(plan, tmp_path / str(workers), workers=workers)
    assert_same(tmp_path / '0', tmp_path / '2')


def test_a_killed_parent_leaves_no_workers_and_the_trial_can_be_resumed_at_once(tmp_path: Path) -> None:
    plan = make_plan(episodes_per_cell=30, host={'use': 'point-mass', 'options': {'substeps': 3000}})
    (tmp_path / 'plan.json').write_text(plan.as_json())
    code = (
        'import sys; from robotrials.run import run_trial; from robotrials.run.plan import plan_from_json\n'
        'plan = plan_from_json(open(sys.argv[1]).read())\n'
        "run_trial(plan, sys.argv[2], workers=2, report=lambda p: print('.', flush=True))"
    )
    store = tmp_path / 's'
    parent = subprocess.Popen(
        [sys.executable, '-c', code, str(tmp_path / 'plan.json'), str(store)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    parent.stdout.readline()
    children = [int(p) for p in Path(f'/proc/{parent.pid}/task/{parent.pid}/children').read_text().split()]
    assert len(children) >= 2
    parent.kill()
    parent.communicate(timeout=PATIENCE_S)
    run = run_trial(plan, store, workers=0, stop_after=2)
    assert run.n_run == 2
    deadline = time.monotonic() + PATIENCE_S
    while any(is_alive(pid) and 'Z' not in _state(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in children if is_alive(pid) and 'Z' not in _state(pid)]
    assert verify_store(store).is_clean


def _state(pid: int) -> str:
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return 'Z'


def test_two_runs_at_once_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(rotation={'fixtures': ['left', 'right'], 'max_rounds_per_block': 1})
    monkeypatch.setattr('robotrials.run.engine.LOCK_WAIT_S', 0.05)

    def again(progress: TrialProgress) -> None:
        with pytest.raises(StoreError, match='another run of this trial is under way'):
            run_trial(plan, tmp_path / 's', workers=0)
        assert run_trial(plan, tmp_path / 's', workers=0, fixture='right', stop_after=1).n_run == 1

    assert run_trial(plan, tmp_path / 's', workers=0, fixture='left', stop_after=1, report=again).n_run == 1


def test_sessions_and_fixtures_can_be_run_one_by_one(tmp_path: Path) -> None:
    plan = make_plan(rotation={'sessions': 2, 'fixtures': ['left', 'right']}, episodes_per_cell=8)
    run_trial(plan, tmp_path / 's', workers=0, session='s1')
    episodes = list(Store.open(tmp_path / 's').episodes())
    assert {e.session for e in episodes} == {'s1'}
    assert len(episodes) == 8
    assert {e.labels['fixture'] for e in episodes} <= {'left', 'right'}
    ruled = make_plan(stopping={'rule': 'sequential'})
    with pytest.raises(InputError, match='a stopping rule looks at all slots'):
        run_trial(ruled, tmp_path / 'ruled', workers=0, session='s1')
    with pytest.raises(InputError, match="no session of this plan named 's3'"):
        run_trial(plan, tmp_path / 's', workers=0, session='s3')


def test_a_mismatch_stops_the_run_before_the_first_episode_without_naming_the_policy(tmp_path: Path) -> None:
    plan = make_plan(policies={FAST: {'use': 'seek', 'options': {'rate_hz': 10.0}}, SLOW: 'seek'})
    for workers in (0, 1):
        with pytest.raises(InputError, match='control_rate_hz: host point-mass has 20, policy arm-') as caught:
            run_trial(plan, tmp_path / str(workers), workers=workers)
        assert FAST not in str(caught.value)
        assert Store.open(tmp_path / str(workers)).count() == 0


def test_a_policy_that_cannot_be_opened_is_reported_by_its_code(tmp_path: Path) -> None:
    plan = make_plan(policies={FAST: {'use': 'seek', 'options': {'speed': 1}}, SLOW: 'seek'})
    with pytest.raises(InputError, match='does not take these options'):
        run_trial(plan, tmp_path / 's', workers=1)


def test_a_sequential_rule_ends_a_clear_trial_early_and_at_the_same_place_for_any_workers(tmp_path: Path) -> None:
    policies = {
        FAST: {'use': 'seek', 'options': {'speed_m_s': 2.0}},
        SLOW: {'use': 'seek', 'options': {'speed_m_s': 0.05}},
    }
    plan = make_plan(policies=policies, episodes_per_cell=60, stopping={'rule': 'sequential', 'look_every_rounds': 4})
    runs = [run_trial(plan, tmp_path / str(w), workers=w) for w in (0, 2)]
    assert runs[0].stop is not None
    assert runs[0].stop == runs[1].stop
    assert runs[0].is_complete
    assert runs[0].n_valid < 60
    assert FAST not in runs[0].stop.reason
    assert_same(tmp_path / '0', tmp_path / '2')
    again = run_trial(plan, tmp_path / '0', workers=0)
    assert (again.n_run, again.stop) == (0, runs[0].stop)


def test_a_rule_on_promptness_tells_apart_what_always_succeeds(tmp_path: Path) -> None:
    """Both policies reach every goal within the cap; only how soon differs."""
    policies = {
        FAST: {'use': 'seek', 'options': {'speed_m_s': 3.0}},
        SLOW: {'use': 'seek', 'options': {'speed_m_s': 0.5}},
    }
    rule = {'rule': 'sequential', 'look_every_rounds': 10}
    common = {'policies': policies, 'episodes_per_cell': 60, 'time_cap_s': 8.0}
    by_success = run_trial(make_plan(**common, stopping=rule), tmp_path / 'success', workers=0)
    timed = make_plan(**common, stopping={**rule, 'score': 'promptness', 'tau_s': 4.0})
    by_time = run_trial(timed, tmp_path / 'time', workers=0)
    assert by_success.stop is None
    assert by_success.n_valid == 120
    assert by_time.stop is not None
    assert by_time.n_valid < 120
    assert run_trial(timed, tmp_path / 'time', workers=0).stop == by_time.stop
    with pytest.raises(InputError, match='shortest cap'):
        make_plan(time_cap_s=3.0, stopping={**rule, 'tau_s': 4.0})


def test_progress_counts_coded_arms_and_guesses_the_time_left(tmp_path: Path) -> None:
    seen: list[TrialProgress] = []
    run_trial(make_plan(), tmp_path / 's', workers=0, report=seen.append)
    assert [p.n_valid for p in seen] == list(range(1, 9))
    assert all(code.startswith('arm-') for p in seen for code in p.per_arm)
    assert sum(seen[-1].per_arm.values()) == 8
    assert seen[0].eta_s is not None
    assert seen[0].eta_s > 0
    assert seen[-1].eta_s == 0


def test_wall_clock_episodes_have_a_start_and_conditions_reach_the_host(tmp_path: Path) -> None:
    plan = make_plan(
        episodes_per_cell=1, time_cap_s=0.2, loop={'clock': 'wall'}, operator=None,
        conditions=['nominal', {'name': 'drift', 'parameters': {'x_m_s': 30.0}}],
    )  # fmt: skip
    run_trial(plan, tmp_path / 's', workers=0, operator='kim')
    episodes = list(Store.open(tmp_path / 's').episodes())
    assert all(e.started_at is not None and e.operator == 'kim' for e in episodes)
    assert {e.outcome for e in episodes if e.condition == 'drift'} == {Outcome.SAFETY_STOP}
    assert {e.outcome for e in episodes if e.condition == 'nominal'} == {Outcome.TIMEOUT}
