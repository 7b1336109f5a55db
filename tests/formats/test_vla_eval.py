"""vla-eval's results of every generation: broken rigs are INVALID, repeats count once, partial runs are said."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command import robotrials
from tests.formats.vla_eval_files import META, generation_b, generation_c, write_recording

from robotrials.errors import InputError
from robotrials.formats.catalog import open_source
from robotrials.formats.imported import ImportAccount, Imported, ImportOptions
from robotrials.formats.intake import import_into
from robotrials.formats.vla_eval import StepReader, VlaRecording
from robotrials.record import Episode, Outcome, Store
from robotrials.record.trajectory import Trajectory, trajectories_equal
from robotrials.stats import exact_mcnemar

PEER = Path(__file__).with_name('vla_eval_peer.py')
DONE = {'task_name': 'open the drawer', 'steps': 100}


def opened(path: Path, **options: Any) -> Imported:
    imported = open_source(path, ImportOptions(**options))
    assert imported.format == 'vla-eval'
    return imported


def written(path: Path, document: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(document), encoding='utf-8')
    return path


# --- the 6,500 real episodes


@pytest.fixture(scope='module')
def libero(shared: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> list[Episode]:
    store = tmp_path_factory.mktemp('libero') / 'store'
    printed = robotrials('import', shared('data', 'libero-episodes'), '--to', store)
    assert '6,500 episodes added' in printed
    assert 'oft-joint@b342038' in printed
    return list(Store.open(store).episodes())


def test_the_real_libero_episodes_have_the_counts_of_their_readme(libero: list[Episode]) -> None:
    """README: successes of 500 by suite (spatial, object, goal, 10), and 30 episodes of pi0 on spatial are broken."""
    suites = ('libero-spatial', 'libero-object', 'libero-goal', 'libero-10')
    wins = Counter((e.policy, e.benchmark) for e in libero if e.is_success)
    assert {p: [wins[p, s] for s in suites] for p in ('oft-joint', 'pi0-libero', 'xvla-libero')} == {
        'oft-joint': [486, 485, 489, 479],
        'pi0-libero': [463, 494, 491, 481],
        'xvla-libero': [490, 492, 492, 481],
    }
    assert wins['oft-joint@b342038', 'libero-spatial'] == 486
    broken = [e for e in libero if not e.is_valid]
    assert {(e.policy, e.benchmark, e.reason) for e in broken} == {('pi0-libero', 'libero-spatial', 'timeout')}
    assert len(broken) == 30
    assert all(e.success is None and e.duration_s is None for e in broken)
    assert all(e.duration_s == e.time_cap_s for e in libero if e.outcome is Outcome.TIMEOUT)
    assert {e.outcome.value for e in libero} == {'success', 'timeout', 'invalid'}


def discordant(libero: list[Episode], first: str, second: str, *, broken_fail: bool) -> tuple[int, int]:
    """Starts on which only the first, and only the second succeeds."""
    starts: dict[str, dict[tuple[str, int | None], bool]] = {first: {}, second: {}}
    for episode in libero:
        if episode.policy in starts and episode.benchmark == 'libero-spatial' and (episode.is_valid or broken_fail):
            starts[episode.policy][episode.task, episode.instance] = episode.is_success
    common = starts[first].keys() & starts[second].keys()
    assert len(common) >= 470
    pairs = [(starts[first][start], starts[second][start]) for start in common]
    return pairs.count((True, False)), pairs.count((False, True))


def test_broken_episodes_decide_the_verdict_between_pi0_and_oft(libero: list[Episode]) -> None:
    """Exact McNemar on the same initial states: p = 0.0018 with the 30 counted as failures, 0.19 without."""
    counted = exact_mcnemar(*discordant(libero, 'pi0-libero', 'oft-joint', broken_fail=True))
    valid = exact_mcnemar(*discordant(libero, 'pi0-libero', 'oft-joint', broken_fail=False))
    assert counted.p_value == pytest.approx(0.0018, abs=5e-5)
    assert valid.p_value == pytest.approx(0.19, abs=5e-3)


def test_the_two_runs_of_one_checkpoint_are_matched_state_by_state(libero: list[Episode]) -> None:
    """486 successes both times, and yet 6 outcomes and 206 step counts differ."""
    assert sum(discordant(libero, 'oft-joint', 'oft-joint@b342038', broken_fail=False)) == 6
    steps: dict[tuple[str, int | None], set[int | None]] = {}
    for episode in libero:
        if episode.policy.startswith('oft-joint') and episode.benchmark == 'libero-spatial':
            steps.setdefault((episode.task, episode.instance), set()).add(episode.steps)
    assert sum(len(counts) > 1 for counts in steps.values()) == 206


def test_the_two_runs_may_be_repeats_of_one_policy(shared: Callable[..., Path]) -> None:
    episodes = list(opened(shared('data', 'libero-episodes'), answers={'runs': 'repeats'}).episodes())
    assert {e.policy for e in episodes} == {'oft-joint', 'pi0-libero', 'xvla-libero'}
    assert Counter(e.repeat for e in episodes) == {0: 6000, 1: 500}
    assert len({e.episode_id for e in episodes}) == 6500


# --- the harness itself


@pytest.fixture(scope='module')
def recorded(peer: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('vla-eval')
    command = [str(peer('vla-eval')), str(PEER), str(folder)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert json.loads(ran.stdout.strip().splitlines()[-1])['version'] == '0.8.0'
    return folder


def test_what_the_harness_records_comes_in(recorded: Path, tmp_path: Path) -> None:
    imported = opened(recorded, rate_hz=10.0)
    done = import_into(tmp_path / 's', imported)
    episodes = list(Store.open(tmp_path / 's').episodes())
    assert (done.added, {e.policy for e in episodes}) == (8, {'StillServer'})
    assert Counter(e.outcome.value for e in episodes) == {'success': 4, 'timeout': 3, 'invalid': 1}
    (broken,) = [e for e in episodes if not e.is_valid]
    assert (broken.task, broken.instance) == ('pull', 3)
    assert broken.reason.startswith('env_start: ')
    assert broken.reason.endswith('the simulator broke')
    assert {e.duration_s for e in episodes if e.is_success} == {0.4}
    dropped = {entry.what: entry.why for entry in imported.ledger.dropped}
    assert 'the recording beside it holds the same episodes' in dropped['file counting_aggregate.json']
    steps = [trajectory for _, trajectory in Store.open(tmp_path / 's').trajectories()]
    assert {len(t.time_s) for t in steps} == {4, 6}
    assert all(t.action_processed is not None and t.action_processed.shape[1] == 7 for t in steps)


def test_the_recording_and_its_aggregate_hold_the_same_episodes(recorded: Path) -> None:
    def facts(path: Path) -> set[tuple[object, ...]]:
        return {(e.policy, e.task, e.instance, e.outcome, e.steps) for e in opened(path).episodes()}

    (recording,) = recorded.glob('*.sqlite')
    assert facts(recording) == facts(recorded / 'counting_aggregate.json')


# --- older generations


def test_generation_b_has_metrics_and_integer_ids(tmp_path: Path) -> None:
    imported = opened(written(tmp_path / 'goal.json', generation_b()))
    episodes = list(imported.episodes())
    assert [e.outcome.value for e in episodes] == ['success', 'timeout', 'invalid']
    assert [e.duration_s for e in episodes] == [5.0, 15.0, None]
    assert [e.instance for e in episodes] == [0, 1, 2]
    assert episodes[2].reason == 'server_unreachable: ConnectionError: refused'
    assert {e.policy for e in episodes} == {'Pi0Server'}


def test_generation_c_records_the_initial_state(tmp_path: Path) -> None:
    imported = opened(written(tmp_path / 'goal_aggregate.json', generation_c(partial=True, queue_unfinished=[{}, {}])))
    assert [e.instance for e in imported.episodes()] == [10, 11, 12]
    assert any('partial, 2 work items unfinished' in note for note in imported.ledger.notes)


def test_shards_are_one_run_and_a_missing_one_is_said(tmp_path: Path) -> None:
    for shard in (0, 2):
        document = generation_b(shard={'id': shard, 'total': 3})
        for episode in document['tasks'][0]['episodes']:
            episode['episode_id'] += 10 * shard
        written(tmp_path / f'goal_shard{shard}of3.json', document)
    imported = opened(tmp_path)
    assert {e.policy for e in imported.episodes()} == {'Pi0Server'}
    assert 'goal: shards 1 of 3 are missing; the run is partial' in imported.ledger.notes


@pytest.mark.parametrize('generation', ['0.3', '0.7', '0.8'])
def test_a_repeated_episode_counts_once_and_both_counts_are_said(tmp_path: Path, generation: str) -> None:
    rows = [
        {**DONE, 'episode_id': 0, 'status': 'error', 'steps': 0, 'failure_reason': 'timeout'},
        {**DONE, 'episode_id': 1},
        {**DONE, 'episode_id': 0},
    ]
    imported = opened(write_recording(tmp_path / 'recording-run.sqlite', rows, generation=generation))
    import_into(tmp_path / 's', imported)
    store = Store.open(tmp_path / 's')
    assert [e.outcome.value for e in store.episodes()] == ['success', 'success']
    assert len(list(store.episodes(attempts='all'))) == 3
    assert any('3 rows for 2 episodes' in note for note in imported.ledger.notes)


def test_a_timeout_at_the_step_cap_is_the_policys_and_one_without_steps_is_unknown(tmp_path: Path) -> None:
    rows = [
        {**DONE, 'episode_id': 0, 'status': 'error', 'steps': 520, 'failure_reason': 'timeout'},
        {**DONE, 'episode_id': 1, 'status': 'error', 'steps': 0, 'failure_reason': 'timeout'},
    ]
    path = write_recording(tmp_path / 'recording-run.sqlite', rows, generation='0.8')
    at_cap, unknown = opened(path, defaults={'step_cap': '520'}).episodes()
    assert (at_cap.outcome, at_cap.success) == (Outcome.TIMEOUT, False)
    assert (unknown.outcome, unknown.success) == (Outcome.INVALID, None)
    asked = opened(path, defaults={'step_cap': '520'})
    assert [q.key for q in asked.questions] == ['faults']
    counted = opened(path, defaults={'step_cap': '520'}, answers={'faults': 'failures'})
    assert not counted.questions
    assert [e.outcome for e in counted.episodes()] == [Outcome.TIMEOUT, Outcome.FAILURE]


def test_partial_queues_open_shards_and_divergent_renderers_are_said(tmp_path: Path) -> None:
    path = write_recording(
        tmp_path / 'recording-run.sqlite', [{**DONE, 'episode_id': 0}], generation='0.8', shards=[(0, 2, 0)],
        queue=[(0, 0, 1), (1, 0, 0)], metadata={**META, 'render': {'divergent': True}},
    )  # fmt: skip
    imported = opened(path)
    list(imported.episodes())
    said = '\n'.join(imported.ledger.notes)
    assert '1 of 2 work items were not done' in said
    assert '1 of 2 shards, 1 of them not complete' in said
    assert 'render.divergent' in said


def test_a_fault_of_the_policy_is_a_failure_and_keeps_its_reason(tmp_path: Path) -> None:
    rows = [{**DONE, 'episode_id': 0, 'status': 'error', 'steps': 0, 'failure_reason': 'model_act'}]
    (episode,) = opened(write_recording(tmp_path / 'recording-r.sqlite', rows, generation='0.8')).episodes()
    assert (episode.outcome, episode.success, episode.reason) == (Outcome.FAILURE, False, 'model_act')


@pytest.mark.parametrize(('reason', 'asks'), [(None, False), ('', False), ('model_act', False), ('env_start', True)])
def test_faults_are_asked_about_where_some_are_not_the_policys(tmp_path: Path, reason: str | None, asks: bool) -> None:
    rows = [{**DONE, 'episode_id': 0}, {**DONE, 'episode_id': 1, 'status': 'error', 'failure_reason': reason}]
    path = write_recording(tmp_path / 'recording-r.sqlite', rows, generation='0.8')
    assert ('faults' in [question.key for question in opened(path).questions]) == asks


def test_subtasks_of_calvin_are_a_score(tmp_path: Path) -> None:
    rows = [{**DONE, 'episode_id': 0, 'metrics': {'success': False, 'completed_subtasks': 3}}]
    path = write_recording(
        tmp_path / 'recording-r.sqlite', rows, generation='0.8', metadata={**META, 'benchmark': 'CALVIN', 'config': {}}
    )
    (episode,) = opened(path).episodes()
    assert (episode.score, episode.max_score, episode.duration_s) == (3.0, 5.0, 100 / 30)


def test_libero_plus_is_not_libero(tmp_path: Path) -> None:
    """Both have suites of the same names; the caps and initial states of one say nothing of the other."""
    meta = {**META, 'benchmark': 'LIBEROPlusBenchmark_libero_goal', 'config': {'subname': 'libero_goal'}}
    meta['config'] = {'benchmark': 'vla_eval.benchmarks.libero_plus.benchmark:LIBEROPlusBenchmark', **meta['config']}  # type: ignore[dict-item]
    document = {**generation_b(), **meta}
    (first, second, _) = opened(written(tmp_path / 'x.json', document)).episodes()
    assert first.benchmark == 'LIBEROPlusBenchmark_libero_goal'
    assert (first.instance, second.outcome, second.time_cap_s) == (None, Outcome.FAILURE, None)


def test_odd_steps_are_read_by_the_slower_parser(tmp_path: Path) -> None:
    """A field that only some steps have, texts and nested objects have no place in a trajectory; numbers do."""
    step = {'reward': 0, 'action': [0.5] * 7, 'note': 'x', 'pose': {'x': 1}}
    steps = {0: [step, {**step, 'reward': 1.5, 'late': 3}], 1: [{**step, 'action': [1, 2]}, {**step, 'action': 'none'}]}
    rows = [{**DONE, 'episode_id': 0}, {**DONE, 'episode_id': 1}]
    imported = opened(write_recording(tmp_path / 'recording-r.sqlite', rows, generation='0.8', steps=steps))
    first, second = (r.trajectory for r in imported.recordings())
    assert first is not None
    assert second is not None
    assert first.reward is not None
    assert first.reward.tolist() == [0.0, 1.5]
    assert first.action_processed is not None
    assert first.action_processed.shape == (2, 7)
    assert second.action_processed is None
    assert {'steps: note', 'steps: pose', 'steps: late', 'steps: action'} <= {e.what for e in imported.ledger.dropped}


def test_plain_steps_are_what_arrow_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    steps = [
        {'reward': k, 'done': k == 8, 'action': rng.normal(size=7).tolist(), 'state': [k / 7, k, 0.1 * k]}
        for k in range(9)
    ]
    path = write_recording(
        tmp_path / 'recording-r.sqlite', [DONE | {'episode_id': 0}], generation='0.8', steps={0: steps}
    )
    (row,) = VlaRecording.open(path).rows('run-goal')

    def read() -> Trajectory:
        with StepReader(path) as reader:
            trajectory = reader.trajectory(row, rate_hz=20, ledger=ImportAccount())
        assert trajectory is not None
        return trajectory

    plain = read()
    monkeypatch.setattr('robotrials.formats.kernel.step_numbers', lambda *_: 0)
    by_arrow = read()
    assert trajectories_equal(plain, by_arrow)
    assert [plain.extra[n].dtype for n in plain.extra] == [by_arrow.extra[n].dtype for n in by_arrow.extra]
    assert plain.action_processed is not None
    assert plain.action_processed.tolist() == [step['action'] for step in steps]


# --- malformed


def test_an_unknown_metric_or_a_damaged_row_is_named_and_nothing_is_kept(tmp_path: Path) -> None:
    document = generation_b()
    document['tasks'][0]['episodes'][1]['metrics'] = {'success': 0.85}
    path = written(tmp_path / 'goal.json', document)
    with pytest.raises(
        InputError, match=r'goal\.json tasks\[0\]\.episodes\[1\]: success is 0\.85, wanted true or false'
    ):
        import_into(tmp_path / 's', opened(path))
    assert not (tmp_path / 's').exists()


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'tasks': {}}, 'wanted an object with a list "tasks"'),
        ({'tasks': [{'episodes': 3}]}, r'tasks\[0\]: wanted an object with a list'),
        ({'tasks': [{'task': 'x', 'episodes': [7]}]}, r'episodes\[0\]: wanted an object'),
        ({'tasks': [{'task': '', 'episodes': [{'success': True}]}]}, 'task is empty'),
        ({'tasks': [{'task': 'x', 'episodes': [{'steps': 3}]}]}, 'no success'),
        ({'tasks': [{'task': 'x', 'episodes': [{'success': True, 'steps': 1.5}]}]}, 'steps is 1.5, wanted a whole'),
        ({'tasks': [{'task': 'x', 'episodes': [{'success': True, 'steps': float('nan')}]}]}, 'steps is nan'),
    ],
)
def test_a_result_that_is_not_one_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = written(tmp_path / 'r.json', {**META, 'episodes': [], **change})
    with pytest.raises(InputError, match=message):
        list(open_source(path, ImportOptions(), name='vla-eval').episodes())


def test_a_cut_recording_is_named(tmp_path: Path) -> None:
    rows = [{**DONE, 'episode_id': k, 'failure_detail': 'x' * 2000} for k in range(40)]
    path = write_recording(tmp_path / 'recording-r.sqlite', rows, generation='0.8')
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match=r'recording-r\.sqlite'):
        import_into(tmp_path / 's', open_source(path, ImportOptions(), name='vla-eval'))
    assert not (tmp_path / 's').exists()


def test_options_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / 'goal.json', generation_b())
    with pytest.raises(InputError, match='--map means nothing'):
        opened(path, columns={'policy': 'x'})
    with pytest.raises(InputError, match='take --set policy, benchmark, step_cap; found seed'):
        opened(path, defaults={'seed': '1'})


# --- the same episodes twice


def test_a_copy_of_a_recording_under_another_name_counts_once(tmp_path: Path) -> None:
    rows = [{**DONE, 'episode_id': 0}, {**DONE, 'episode_id': 1, 'status': 'fail'}]
    write_recording(tmp_path / 'recording-a.sqlite', rows, generation='0.8')
    write_recording(tmp_path / 'recording-b.sqlite', rows, generation='0.8')
    imported = opened(tmp_path)
    assert len(list(imported.episodes())) == 2
    dropped = {entry.what: entry.why for entry in imported.ledger.dropped}
    assert dropped['file recording-b.sqlite'] == 'the same episodes are in recording-a.sqlite'


def test_of_a_recording_that_holds_another_ones_rows_only_the_new_ones_count(tmp_path: Path) -> None:
    rows = [{**DONE, 'episode_id': i} for i in range(3)]
    write_recording(tmp_path / 'recording-a.sqlite', rows[:2], generation='0.8')
    write_recording(tmp_path / 'recording-merged.sqlite', rows, generation='0.8')
    imported = opened(tmp_path)
    assert len(list(imported.episodes())) == 3
    (entry,) = [e for e in imported.ledger.dropped if e.what == 'repeated rows']
    assert entry.count == 2


def test_a_copied_result_without_ids_counts_once_and_a_second_run_twice(tmp_path: Path) -> None:
    written(tmp_path / 'goal.json', generation_b())
    written(tmp_path / 'copy of goal.json', generation_b())
    assert len(list(opened(tmp_path).episodes())) == 3
    slower = generation_b()
    for episode in slower['tasks'][0]['episodes']:
        episode['elapsed_sec'] = 11.5
    written(tmp_path / 'goal-again.json', slower)
    assert len(list(opened(tmp_path).episodes())) == 6


def test_episodes_that_repeat_anothers_actions_bit_for_bit_are_pointed_out(tmp_path: Path) -> None:
    rows = [{**DONE, 'episode_id': i, 'steps': 8} for i in range(3)]
    moving = [{'action': [0.1 * i] * 7, 'reward': 0.0, 'done': False, 'success': False} for i in range(8)]
    other = [{**step, 'action': [0.2 * i] * 7} for i, step in enumerate(moving)]
    path = write_recording(
        tmp_path / 'recording-run.sqlite', rows, generation='0.8', steps={0: moving, 1: other, 2: moving}
    )
    imported = opened(path, rate_hz=20.0)
    list(imported.episodes())
    assert any('repeat the actions of another one of the run to the last bit: 1' in h for h in imported.ledger.hints)
