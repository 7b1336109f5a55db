"""One task under two names: analyses take them as one, the record keeps both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import robotrials

from robotrials.measure.safety import load_registry
from robotrials.record import Episode, Outcome, Store
from robotrials.verdict.analysis import select_episodes, select_store
from robotrials.verdict.analysis.arm import two_sides
from robotrials.verdict.analysis.contrast import contrast
from robotrials.verdict.analysis.selection import canonical_name, one_name
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, EndpointName

SENTENCE = 'open the middle drawer of the cabinet'
FILE = 'open_the_middle_drawer_of_the_cabinet'


def episodes(policy: str, task: str, benchmark: str = 'libero-goal', *, seed: int | None = None) -> list[Episode]:
    return [
        Episode(
            policy=policy, task=task, benchmark=benchmark, outcome=Outcome.SUCCESS if n % 2 else Outcome.FAILURE,
            instance=n, seed=None if seed is None else seed + n, trial_id=task, success=bool(n % 2),
        )
        for n in range(10)
    ]  # fmt: skip


def test_every_task_of_libero_has_one_canonical_name_by_its_number_and_its_file() -> None:
    entries = [e for e in load_registry().entries if e.benchmark.startswith('libero-')]
    assert len({(e.benchmark, e.id) for e in entries if e.benchmark != 'libero-long'}) == 130
    for entry in entries:
        known = ('libero-10' if entry.benchmark == 'libero-long' else entry.benchmark, entry.id)
        assert canonical_name(entry.benchmark, entry.id) == known
        assert canonical_name(entry.benchmark.replace('-', '_').upper(), entry.name) == known
        assert canonical_name(entry.benchmark, entry.instruction.capitalize() + '.') in (known, None)
        if entry.benchmark != 'libero-90':
            assert canonical_name(entry.benchmark, entry.instruction) == known
    assert canonical_name('libero-long', 'task_3') == canonical_name('libero-10', 'task_3') == ('libero-10', 'task_3')


def test_a_sentence_that_stands_for_several_tasks_and_other_benchmarks_are_left_alone() -> None:
    assert canonical_name('libero-90', 'turn on the stove') is None
    assert canonical_name('libero-plus-goal', SENTENCE) is None
    assert canonical_name('', 'task_0') is None
    assert one_name([('libero-goal', SENTENCE), ('libero-goal', 'turn on the stove')]) == {}, 'one name each'


@pytest.mark.parametrize('name', [SENTENCE, FILE])
def test_two_names_of_a_task_are_one_stratum_and_pair(name: str) -> None:
    ours, theirs = episodes('ours', 'task_0', seed=100), episodes('theirs', name, 'libero_goal')
    selection = select_episodes([*ours, *theirs])
    assert {(e.benchmark, e.task) for e in selection.episodes} == {('libero-goal', 'task_0')}
    assert {e.episode_id for e in selection.episodes} == {e.episode_id for e in (*ours, *theirs)}
    plan = AnalysisPlan()
    sides = two_sides(ours, theirs, plan, names=('ours', 'theirs'))
    assert contrast(*sides, endpoint=EndpointName.SUCCESS, plan=plan).n_matched == 10


def test_a_merge_says_so_and_a_report_compares_the_two(tmp_path: Path) -> None:
    for store, rows in (('a', episodes('ours', 'task_0', seed=5)), ('b', episodes('theirs', SENTENCE))):
        Store.create(tmp_path / store).append(rows)
    printed = robotrials('store', 'merge', tmp_path / 'all', tmp_path / 'a', tmp_path / 'b')
    assert f"note: libero-goal '{SENTENCE}' is libero-goal task_0" in printed
    again = Store.open(tmp_path / 'all')
    assert {e.task for e in again.episodes()} == {'task_0', SENTENCE}, 'the record keeps what each source said'
    assert {e.task for e in select_store(again).episodes} == {'task_0'}
    report = json.loads(robotrials('report', tmp_path / 'all', '--reference', 'ours', '--format', 'json'))
    assert 'task_0' in json.dumps(report)
    assert SENTENCE not in json.dumps(report.get('strata', report))
    for asked in ('task_0', SENTENCE):
        assert len(select_store(again, where={'task': asked}).episodes) == 20, 'a filter finds the task by any name'
    alone = robotrials('store', 'merge', tmp_path / 'one', tmp_path / 'b')
    assert 'note:' not in alone
    assert {e.task for e in select_store(Store.open(tmp_path / 'one')).episodes} == {SENTENCE}
