"""What evaluation code writes: each format read as its authors meant it, and its traps."""

from __future__ import annotations

import json
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.command import robotrials

from robotrials.errors import InputError, SetupError, UnknownName
from robotrials.formats.benchmark_result import completed_counts
from robotrials.formats.catalog import open_here, open_source
from robotrials.formats.imported import Imported, ImportOptions
from robotrials.formats.intake import import_into
from robotrials.formats.lerobot_eval import incomplete_recordings
from robotrials.record import Episode, Outcome, Store

DATA = Path(__file__).with_name('data')


def opened(path: Path, name: str, **options: Any) -> Imported:
    imported = open_source(path, ImportOptions(**options))
    assert imported.format == name
    return imported


def episodes_of(path: Path, name: str, **options: Any) -> list[Episode]:
    return list(opened(path, name, **options).episodes())


def written(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding='utf-8')
    return path


def refused(path: Path, name: str, tmp_path: Path, **options: Any) -> str:
    """The message with which the source is refused; no store is left behind."""
    with pytest.raises(InputError) as caught:
        import_into(tmp_path / 'store', open_source(path, ImportOptions(**options), name=name))
    assert not (tmp_path / 'store').exists()
    return str(caught.value)


# --- LeRobot


def per_task(successes: list[Any], **more: Any) -> dict[str, Any]:
    task = {'task_group': 'libero_10', 'task_id': 3, 'metrics': {'successes': successes}, **more}
    return {'per_task': [task], 'overall': {'pc_success': 50.0, 'n_episodes': len(successes)}}


def test_the_old_layout_of_lerobot_records_seeds(tmp_path: Path) -> None:
    rows = [
        {'episode_ix': k, 'sum_reward': 1.0, 'max_reward': 1.0, 'success': k == 1, 'seed': 1000 + k} for k in range(3)
    ]
    document = {'per_episode': rows, 'aggregated': {'pc_success': 33.33}}
    episodes = episodes_of(written(tmp_path / 'eval_info.json', document), 'lerobot-eval', defaults={'task': 'pusht'})
    assert [(e.seed, e.is_success) for e in episodes] == [(1000, False), (1001, True), (1002, False)]


def test_a_layout_with_intervals_is_read_and_a_missing_task_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path / 'run' / 'eval_info.json', per_task([True, 0], n_episodes=2, pc_success_ci95=[1, 99]))
    assert [e.policy for e in episodes_of(path, 'lerobot-eval')] == ['run', 'run']
    old = written(tmp_path / 'old' / 'eval_info.json', {'per_episode': [{'success': True, 'sum_reward': 1}]})
    assert 'no task is recorded' in refused(old, 'lerobot-eval', tmp_path)


def test_a_success_that_is_nan_is_invalid(tmp_path: Path) -> None:
    text = json.dumps(per_task([True, float('nan')]))
    assert 'NaN' in text
    first, second = episodes_of(written(tmp_path / 'eval_info.json', text), 'lerobot-eval')
    assert (first.outcome, second.outcome, second.reason) == (Outcome.SUCCESS, Outcome.INVALID, 'success is NaN')


def test_recordings_of_successes_only_are_refused_as_a_rate(tmp_path: Path) -> None:
    path = written(tmp_path / 'eval_info.json', per_task([True, False, True, False]))
    written(tmp_path / 'recordings' / 'libero_10_3' / 'meta' / 'info.json', {'total_episodes': 2})
    imported = opened(tmp_path, 'lerobot-eval')
    assert len(list(imported.episodes())) == 4
    assert any('recordings hold 2 of 4 episodes' in note for note in imported.ledger.notes)
    assert len(incomplete_recordings(tmp_path)) == 1
    written(tmp_path / 'recordings' / 'libero_10_3' / 'meta' / 'info.json', {'total_episodes': 4})
    assert incomplete_recordings(path.parent) == []


def test_a_rate_that_the_episodes_contradict_is_said(tmp_path: Path) -> None:
    imported = opened(written(tmp_path / 'eval_info.json', per_task([True, True, True, False])), 'lerobot-eval')
    list(imported.episodes())
    assert 'pc_success says 50 %, the episodes say 75.0 %; the episodes count' in imported.ledger.notes


@pytest.mark.parametrize(
    ('document', 'message'),
    [
        (per_task([0.85]), r'per_task\[0\]\.successes\[0\]: success is 0\.85'),
        (per_task([True], n_episodes=2), 'n_episodes is 2 and 1 successes are listed'),
        ({'per_task': [{'metrics': {}}]}, 'no list "successes"'),
        ({'per_task': [7]}, 'no list "successes"'),
        ({'per_episode': [{}]}, r'per_episode\[0\]: no success'),
        ({'overall': {}}, 'neither "per_episode" nor "per_task"'),
        ('{"per_task": [', 'not JSON'),
    ],
)
def test_a_broken_eval_info_is_named(tmp_path: Path, document: object, message: str) -> None:
    path = written(tmp_path / 'eval_info.json', document)
    assert message.replace('\\', '') in refused(path, 'lerobot-eval', tmp_path, defaults={'task': 't'})


# --- logs


OPENPI = """INFO:root:Task suite: libero_object
  0%|          | 0/10 [00:00<?, ?it/s]INFO:root:
Task: pick up the milk
INFO:root:Starting episode 1...
INFO:root:Success: True
INFO:root:# episodes completed so far: 1
INFO:root:# successes: 1 (100.0%)
INFO:root:Starting episode 2...
ERROR:root:Caught exception: timed out
INFO:root:Success: False
INFO:root:# episodes completed so far: 2
INFO:root:# successes: 1 (50.0%)
INFO:root:Starting episode 3...
"""


def test_the_logging_of_openpi_is_read_and_a_cut_end_is_said(tmp_path: Path) -> None:
    imported = opened(written(tmp_path / 'pi0.log', OPENPI), 'libero-log')
    first, second = imported.episodes()
    assert (first.policy, first.task, first.benchmark, first.instance) == (
        'pi0',
        'pick up the milk',
        'libero-object',
        0,
    )
    assert (second.outcome, second.reason) == (Outcome.INVALID, 'timed out')
    assert any('the log ends before its outcome' in entry.why for entry in imported.ledger.dropped)


@pytest.mark.parametrize(
    ('old', 'new', 'message'),
    [
        ('so far: 2', 'so far: 3', 'the log counts 3 episodes, 2 were read'),
        ('successes: 1 (50', 'successes: 2 (50', 'the log counts 2 successes, 1 were read'),
        ('Starting episode 2', 'Starting episode 1', "episode 1 of 'pick up the milk' is there twice"),
        ('Task: pick', 'Tusk: pick', 'an outcome before any "Task: ..."'),
    ],
)
def test_a_log_that_does_not_add_up_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = written(tmp_path / 'pi0.log', OPENPI.replace(old, new))
    assert message in refused(path, 'libero-log', tmp_path)


def test_a_folder_of_logs_is_one_source(tmp_path: Path) -> None:
    for name in ('a', 'b'):
        written(tmp_path / f'{name}.log', OPENPI)
    written(tmp_path / 'readme.md', 'hello')
    imported = opened(tmp_path, 'libero-log')
    assert Counter(e.policy for e in imported.episodes()) == {'a': 2, 'b': 2}
    assert imported.ledger.dropped[0].what == 'readme.md'


def test_two_logs_of_one_policy_are_two_runs(tmp_path: Path) -> None:
    for hour in ('10', '11'):
        written(tmp_path / f'EVAL-libero_object-openvla-2026_05_12-{hour}_00_00.txt', OPENPI)
    imported = opened(tmp_path, 'libero-log')
    assert {e.policy for e in imported.episodes()} == {'openvla', 'openvla@2026_05_12-11_00_00'}
    assert import_into(tmp_path / 'store', imported).added == 4


# --- DROID


DROID = ',success,duration,video_filename\n0,1.0,120,a.mp4\n1,0.01,90,b.mp4\n2,0.5,600,c.mp4\n3,0.0,600,d.mp4\n'
WHO = {'policy': 'pi0-fast', 'task': 'wipe the table'}


def test_a_success_of_one_hundredth_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path / 'eval_12.csv', DROID)
    told = [v for k in WHO for v in ('--set', f'{k}={WHO[k]}')]
    assert '--answer droid-0.01=success|partial' in robotrials('import', path, '--to', tmp_path / 's', *told, code=2)
    read = {
        answer: [
            (e.outcome.value, e.score)
            for e in episodes_of(path, 'openpi-droid', defaults=WHO, answers={'droid-0.01': answer})
        ]
        for answer in ('success', 'partial')
    }
    assert read['success'][:3] == [('success', 1.0), ('success', 1.0), ('failure', 0.5)]
    assert read['partial'][1] == ('failure', 0.01)


def test_the_duration_of_droid_is_steps_at_15_hz(tmp_path: Path) -> None:
    path = written(tmp_path / 'eval_12.csv', DROID)
    options = {'defaults': {**WHO, 'step_cap': '600'}, 'answers': {'droid-0.01': 'success'}}
    episodes = episodes_of(path, 'openpi-droid', **options)
    assert [(e.steps, e.duration_s) for e in episodes[:2]] == [(120, 8.0), (90, 6.0)]
    assert [e.outcome.value for e in episodes] == ['success', 'success', 'timeout', 'timeout']


def test_a_percentage_in_a_droid_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / 'eval_12.csv', DROID.replace('1.0,120', '85,120'))
    message = refused(path, 'openpi-droid', tmp_path, defaults=WHO, answers={'droid-0.01': 'success'})
    assert 'row 1: success is 85, wanted 0 to 1' in message
    assert 'no task is recorded' in refused(path, 'openpi-droid', tmp_path, defaults={'policy': 'x'})
    whole = written(tmp_path / 'eval_13.csv', DROID)
    told = {**WHO, 'step_cap': 'many'}
    message = refused(whole, 'openpi-droid', tmp_path, defaults=told, answers={'droid-0.01': 'success'})
    assert '--set step_cap=many, wanted a whole number > 0' in message


# --- SimplerEnv


@pytest.fixture
def simpler(tmp_path: Path) -> Path:
    root = tmp_path / 'results'
    scene = 'google_pick_coke_can_1_v4/arm_pd_ee_delta_pose'
    for policy in ('rt-1', 'octo'):
        env = root / policy / scene / 'GraspSingleOpenedCokeCanInScene-v0_upright_True'
        for overlay in ('None', 'google_coke_can_real_eval_1'):
            folder = env / f'rob_0.35_0.20_rot_0.000_-0.000_3.142_rgb_overlay_{overlay}'
            for name in ('success_obj_-0.235_0.02.mp4', 'failure_obj_-0.235_0.22_n_lift_significant_0_moved_True.mp4'):
                written(folder / name, '')
            written(folder / 'actions' / 'success_obj_-0.235_0.02.png', '')
        bridge = root / policy / 'bridge_table_1_v1/arm' / 'PutCarrotOnPlateInScene-v0'
        written(bridge / 'rob_0.147_0.028_rot_0_0_1.57_rgb_overlay_bridge' / 'success_obj_episode_7.mp4', '')
    return root


def test_paths_of_simpler_env_are_the_record(simpler: Path) -> None:
    episodes = episodes_of(simpler, 'simpler-env')
    assert len(episodes) == 10
    assert Counter(e.condition for e in episodes) == {'variant-aggregation': 4, 'visual-matching': 6}
    by_start: dict[tuple[object, ...], set[str]] = {}
    for e in episodes:
        by_start.setdefault((e.task, e.condition, e.instance), set()).add(e.policy)
    assert all(policies == {'rt-1', 'octo'} for policies in by_start.values())
    assert any(e.instance == 7 for e in episodes)
    failed = next(e for e in episodes if e.outcome is Outcome.FAILURE)
    assert (failed.labels['n_lift_significant'], failed.labels['moved']) == ('0', 'True')
    assert failed.condition_parameters['variant'] == 'upright_True'


def test_a_tree_without_videos_is_refused(tmp_path: Path) -> None:
    assert 'no success_obj_*.mp4' in refused(tmp_path, 'simpler-env', tmp_path)


# --- CALVIN


CHAIN = {'avg_seq_len': 2.6, 'chain_sr': {'1': 0.9, '2': 0.7, '3': 0.5, '4': 0.3, '5': 0.2}, 'task_info': {}}


def test_chains_of_calvin_give_back_their_distribution(tmp_path: Path) -> None:
    path = written(tmp_path / 'run' / 'results.json', {'29': CHAIN})
    assert completed_counts(path, '29', CHAIN, 1000) == [100, 200, 200, 200, 100, 200]
    episodes = episodes_of(path, 'calvin')
    assert len(episodes) == 1000
    assert sum(e.score or 0 for e in episodes) == 2600
    assert sum(e.is_success for e in episodes) == 200
    assert {e.policy for e in episodes} == {'run'}


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'chain_sr': {'1': 90, '2': 70, '3': 50, '4': 30, '5': 20}}, 'wanted shares from 0 to 1 (not percentages)'),
        ({'chain_sr': {'1': 0.9}}, 'chain_sr wants the keys "1" to "5"'),
        ({'chain_sr': {'1': 0.5, '2': 0.7, '3': 0.5, '4': 0.3, '5': 0.2}}, 'chain_sr rises'),
        ({'chain_sr': {**CHAIN['chain_sr'], '5': 0.20005}}, 'not counts out of 1000 sequences'),  # type: ignore[dict-item]
        ({'avg_seq_len': 3.6}, 'avg_seq_len is 3.6, chain_sr adds up to 2.600'),
        ({'chain_sr': {**CHAIN['chain_sr'], '5': float('nan')}}, 'wanted shares'),  # type: ignore[dict-item]
    ],
)
def test_chains_that_are_none_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    assert message in refused(written(tmp_path / 'results.json', {'0': {**CHAIN, **change}}), 'calvin', tmp_path)


# --- LIBERO-Plus


CLASSES = {
    'libero_goal': [
        {'id': 1, 'name': 'open_drawer_view_1', 'category': 'Camera Viewpoints', 'difficulty_level': 3},
        {'id': 2, 'name': 'open_drawer_light_2', 'category': 'Light Conditions', 'difficulty_level': None},
    ]
}


def test_variants_of_libero_plus_are_conditions(tmp_path: Path) -> None:
    written(tmp_path / 'task_classification.json', CLASSES)
    imported = opened(written(tmp_path / 'oft__plus.json', {'libero_goal': [1, 0]}), 'libero-plus')
    first, second = imported.episodes()
    assert (first.policy, first.benchmark, first.condition) == ('oft', 'libero-plus-goal', 'camera-viewpoints')
    assert (dict(first.condition_parameters), first.is_success) == ({'difficulty_level': 3}, True)
    assert (dict(second.condition_parameters), second.is_success) == ({}, False)
    assert any('1 variants have no difficulty level' in note for note in imported.ledger.notes)
    by_name = {'libero_goal': {'open_drawer_light_2': 0, '1': 1}}
    again = episodes_of(written(tmp_path / 'oft__plus.json', by_name), 'libero-plus')
    assert [e.is_success for e in again] == [True, False]


@pytest.mark.parametrize(
    ('document', 'message'),
    [
        ({'libero_goal': [1]}, '1 outcomes, the classification has 2 variants'),
        ({'libero_goal': [1, 0.5]}, 'libero_goal[1]: 0.5, wanted 0 or 1'),
        ({'libero_90': [1]}, "suite 'libero_90' is not in the classification"),
        ({'libero_goal': {'1': 1}}, "1 variants have no outcome, the first is 'open_drawer_light_2'"),
        ({'libero_goal': {'x': 1}}, "'x' is not a variant"),
    ],
)
def test_vectors_that_do_not_fit_are_named(tmp_path: Path, document: object, message: str) -> None:
    written(tmp_path / 'task_classification.json', CLASSES)
    assert message in refused(written(tmp_path / 'run.json', document), 'libero-plus', tmp_path)


def test_a_missing_classification_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path / 'run.json', {'libero_goal': [1, 0]})
    assert 'it comes with LIBERO-Plus' in refused(path, 'libero-plus', tmp_path)


# --- positronic


@pytest.fixture
def positronic(tmp_path: Path) -> Path:
    root = tmp_path / 'dataset'
    for number, outcome in enumerate(['Success', 'Ran out of time', 'Safety', 'Success', 'Success']):
        folder = root / '000000000000' / f'{number:012d}'
        facts = {
            'task': 'pack', 'policy': 'act', 'eval.outcome': outcome, 'eval.object': 'towel', 'eval.duration': 40.0,
            'eval.total_items': 4, 'eval.successful_items': 4 if outcome == 'Success' else 2,
            'eval.tote_placement': 'left',
        }  # fmt: skip
        written(folder / 'static.json', facts)
        written(folder / 'meta.json', {'uid': f'u{number}', 'created_ts_ns': 1_750_000_000_000_000_000 + number})
    (root / '000000000000' / '000000000004' / '.unfinished').touch()
    return root


def test_withdrawn_verdicts_are_not_read(positronic: Path) -> None:
    edits = [
        {'op': 'set_static', 'v': 1, 'ep': 'u0', 'data': {'eval.outcome': 'Safety', 'eval.successful_items': 1}},
        {'op': 'drop', 'v': 1, 'ep': 'u3'}, {'op': 'drop', 'v': 1, 'ep': 'u1'}, {'op': 'undrop', 'v': 1, 'ep': 'u1'},
    ]  # fmt: skip
    written(positronic / 'edits.jsonl', '\n'.join(map(json.dumps, edits)))
    imported = opened(positronic, 'positronic')
    episodes = list(imported.episodes())
    assert [(e.labels['positronic_uid'], e.outcome.value) for e in episodes] == [
        ('u0', 'safety_stop'), ('u1', 'timeout'), ('u2', 'safety_stop'),
    ]  # fmt: skip
    assert {str(entry) for entry in imported.ledger.dropped} >= {
        '1 episodes: withdrawn by edits.jsonl', '1 episodes: recording was not finished (.unfinished)',
    }  # fmt: skip
    assert (episodes[0].items, episodes[0].items_placed, episodes[0].stratum) == (4, 1, 'towel')


@pytest.mark.parametrize(
    'line', ['{"op": "erase", "ep": "u0"}', '{"op": "drop"}', 'nonsense', '{"op":"drop","v":2,"ep":"u"}']
)
def test_an_edit_that_is_not_known_stops_the_import(positronic: Path, tmp_path: Path, line: str) -> None:
    written(positronic / 'edits.jsonl', line)
    assert 'edits.jsonl line 1' in refused(positronic, 'positronic', tmp_path)


def test_an_episode_without_policy_or_verdict_is_named(positronic: Path, tmp_path: Path) -> None:
    written(positronic / '000000000000' / '000000000000' / 'static.json', {'task': 'pack', 'policy': 'a'})
    assert 'neither eval.outcome nor eval.success' in refused(positronic, 'positronic', tmp_path)
    written(positronic / '000000000000' / '000000000000' / 'static.json', {'task': 'pack', 'eval.success': True})
    assert 'no policy is recorded' in refused(positronic, 'positronic', tmp_path)


# --- score matrices


@pytest.mark.parametrize('suffix', ['json', 'npz'])
def test_a_score_matrix_is_read(tmp_path: Path, suffix: str) -> None:
    matrices = {'dqn': [[0.2, 1.0], [0.4, 0.9], [1.0, 0.0]], 'ppo': [[0.1, 0.3]]}
    path = tmp_path / f'scores.{suffix}'
    if suffix == 'npz':
        np.savez(path, **{k: np.array(v) for k, v in matrices.items()})  # type: ignore[arg-type]
    else:
        written(path, matrices)
    episodes = episodes_of(path, 'score-matrix')
    assert Counter(e.policy for e in episodes) == {'dqn': 6, 'ppo': 2}
    assert sum(e.is_success for e in episodes) == 2
    assert [e.score for e in episodes if e.policy == 'ppo'] == [0.1, 0.3]
    assert {e.max_score for e in episodes} == {1.0}


@pytest.mark.parametrize(
    ('document', 'message'),
    [
        ({'a': [[85.0, 90.0]]}, 'scores from 85 to 90, wanted 0 to 1; say the largest score'),
        ({'a': [[0.5], [0.5, 0.7]]}, 'wanted rows of numbers, all of one length'),
        ({'a': [0.5, 0.7]}, 'wanted numbers (runs, tasks)'),
        ({'a': [[0.5, float('nan')]]}, 'run 0, task 1 is nan'),
    ],
)
def test_a_matrix_that_is_none_is_named(tmp_path: Path, document: object, message: str) -> None:
    assert message in refused(written(tmp_path / 's.json', document), 'score-matrix', tmp_path)


def test_pickled_scores_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / 's.npz', a=np.array([{'x': 1}], dtype=object))
    assert 'not readable without pickle' in refused(tmp_path / 's.npz', 'score-matrix', tmp_path)


# --- Inspect


def sample(number: int, value: object, **more: Any) -> dict[str, Any]:
    return {'id': number, 'epoch': 1, 'scores': {'success': {'value': value}}, 'metadata': {'task': 'pick'}, **more}


HEADER = {'version': 2, 'status': 'success', 'eval': {'model': 'pi05', 'task': 'tabletop'}}
SAMPLES = [
    sample(1, 'C'), sample(2, 0), sample(3, 'I', limit='time'), sample(4, 'I', error='cuda'), sample(1, 1.0, epoch=2),
]  # fmt: skip


def write_log(path: Path, **members: object) -> Path:
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, value in members.items():
            archive.writestr(name, json.dumps(value))
    return path


def test_samples_of_an_inspect_log_are_episodes(tmp_path: Path) -> None:
    path = write_log(tmp_path / 'x.eval', **{'header.json': HEADER, 'summaries.json': SAMPLES})
    episodes = episodes_of(path, 'inspect')
    assert [e.outcome.value for e in episodes] == ['success', 'failure', 'timeout', 'invalid', 'success']
    assert [(e.instance, e.repeat) for e in episodes] == [(1, 0), (2, 0), (3, 0), (4, 0), (1, 1)]
    assert {(e.policy, e.task) for e in episodes} == {('pi05', 'pick')}


def test_every_harness_says_how_it_reads_what_was_given_up_and_takes_the_switch(tmp_path: Path) -> None:
    """Set aside with a hint that has the other reading's command; counted as failures where that was asked for."""
    log = write_log(tmp_path / 'x.eval', **{'header.json': HEADER, 'summaries.json': SAMPLES})
    nan = written(tmp_path / 'run' / 'eval_info.json', json.dumps(per_task([True, float('nan')])))
    libero = written(tmp_path / 'openpi.log', OPENPI)
    for path, name, n in ((log, 'inspect', 1), (nan, 'lerobot-eval', 1), (libero, 'libero-log', 1)):
        source = opened(path, name)
        given_up = [e for e in source.episodes() if not e.is_valid]
        assert len(given_up) == n, name
        assert any(f'{n} invalid episode' in h and '--answer faults=failures' in h for h in source.ledger.hints), name
        counted = opened(path, name, answers={'faults': 'failures'})
        read = {e.episode_id: e for e in counted.episodes()}
        assert all(read[e.episode_id].outcome is Outcome.FAILURE for e in given_up), name
        assert [read[e.episode_id].reason for e in given_up] == [e.reason for e in given_up], name
        assert all(e.is_valid for e in read.values()), name
        assert any('count as failures' in note for note in counted.ledger.notes), name
        with pytest.raises(UnknownName, match='failures'):
            list(opened(path, name, answers={'faults': 'failure'}).episodes())


def test_an_unfinished_log_is_read_from_its_journal(tmp_path: Path) -> None:
    parts = {'_journal/summaries/2.json': SAMPLES[2:4], '_journal/summaries/10.json': SAMPLES[4:]}
    path = write_log(
        tmp_path / 'x.eval', **{'_journal/start.json': HEADER, '_journal/summaries/1.json': SAMPLES[:2], **parts}
    )
    imported = opened(path, 'inspect')
    assert len(list(imported.episodes())) == 5
    assert any('not finished' in note for note in imported.ledger.notes)


@pytest.mark.parametrize(
    ('samples', 'message'),
    [
        ([sample(1, 7)], "summaries[0]: score 'success' is 7"),
        ([], 'no samples in it'),
        ([{**sample(1, 1), 'scores': {'a': 1, 'b': 0}}], 'scores a, b; say which is the success with --answer scorer='),
    ],
)
def test_a_log_that_says_too_little_is_named(tmp_path: Path, samples: list[Any], message: str) -> None:
    path = write_log(tmp_path / 'x.eval', **{'header.json': HEADER, 'summaries.json': samples})
    assert message in refused(path, 'inspect', tmp_path)


def test_a_cut_log_is_named(tmp_path: Path) -> None:
    path = write_log(tmp_path / 'x.eval', **{'header.json': HEADER, 'summaries.json': SAMPLES})
    path.write_bytes(path.read_bytes()[:100])
    assert 'x.eval' in refused(path, 'inspect', tmp_path)


def test_a_log_of_todays_inspect_is_unpacked(tmp_path: Path) -> None:
    """Written by inspect-ai 0.3.285, which packs with zstd: a solver of its own, `match`, 4 samples, 2 epochs."""
    log = DATA / 'inspect-zstd.eval'
    assert {info.compress_type for info in zipfile.ZipFile(log).infolist()} == {93}
    printed = robotrials('import', log, '--to', tmp_path / 'store')
    assert '8 episodes added' in printed
    episodes = list(Store.open(tmp_path / 'store').episodes())
    won = {(e.instance, e.repeat): e.is_success for e in episodes}
    assert won == {(i, r): (i + r + 1) % 3 != 0 for i in (1, 2, 3, 4) for r in (0, 1)}
    assert {(e.task, e.policy, e.duration_s) for e in episodes if e.instance == 2} == {('pick', 'mockllm/model', 3.0)}


def test_a_zstd_log_whose_bytes_are_broken_is_named(tmp_path: Path) -> None:
    content = bytearray((DATA / 'inspect-zstd.eval').read_bytes())
    info = next(i for i in zipfile.ZipFile(DATA / 'inspect-zstd.eval').infolist() if i.filename == 'summaries.json')
    at = info.header_offset + 30 + len(info.filename) + 20
    content[at : at + 60] = bytes(60)
    (tmp_path / 'x.eval').write_bytes(content)
    assert 'x.eval: not a readable .eval log' in refused(tmp_path / 'x.eval', 'inspect', tmp_path)


def test_a_zstd_log_without_the_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(zipfile, 'ZIP_ZSTANDARD'):
        monkeypatch.delattr(zipfile, 'ZIP_ZSTANDARD')
    monkeypatch.setitem(sys.modules, 'backports.zstd', None)
    with pytest.raises(SetupError, match=r"needs backports.zstd: pip install 'robotrials\[inspect\]'"):
        list(open_here(DATA / 'inspect-zstd.eval', ImportOptions()).episodes())  # another process has it installed


def test_a_source_can_be_read_twice_and_is_counted_once(simpler: Path) -> None:
    """A dry run looks first, and the import reads again: nothing may be used up."""
    imported = opened(simpler, 'simpler-env')
    assert list(imported.episodes()) == list(imported.episodes())
    assert sum(entry.count or 0 for entry in imported.ledger.kept) == 10
