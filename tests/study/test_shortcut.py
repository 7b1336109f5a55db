"""The diagnosis from training to reading, on a world where the truth is known; it must be able to fail."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.study.choice import ChoiceHost, RidgeMaker

from robotrials.errors import InputError, NotEstimable, RigError, StoreError
from robotrials.record import read_store
from robotrials.run import Observation
from robotrials.run.plan import HostEntry, TaskEntry
from robotrials.show.shortcut import SWEPT_VARIANTS, shortcut_words, sweep_table
from robotrials.study import EvaluationOptions, ShortcutPlan, diagnose_shortcut
from robotrials.study.evaluate import work_folder
from robotrials.study.shortcut import SweepOptions
from robotrials.verdict.audit import RunOutcomes, ShortcutVerdict, read_shortcut, shortcut
from robotrials.verdict.audit.outcome import InstanceOutcome
from robotrials.verdict.audit.shortcut import InputNeed, Shortcut

CHOOSE, SINGLE = ('choose_left', 'choose_right'), ('single_left', 'single_right')
SCORES = 'policy,score,unit,kind,tasks,samples\nbig,90.0,percent,foundation,2,50\nbest,99.0,percent,other,2,50\n'


def plan_of(tasks: tuple[str, ...], **changes: object) -> ShortcutPlan:
    evaluation = EvaluationOptions(
        tasks=tuple(TaskEntry(name, scene=name.partition('_')[0]) for name in tasks), episodes_per_task=12,
        time_cap_s=1.5, seed=5,
    )  # fmt: skip
    plan = ShortcutPlan(
        host=HostEntry('tests.study.choice:ChoiceHost'), demonstrations=('ridge',), evaluation=evaluation,
        margin=0.15, variants=('blind', 'proprioception', 'shuffled'),
    )  # fmt: skip
    return dataclasses.replace(plan, **changes)  # type: ignore[arg-type]


FEW = dataclasses.replace(plan_of(SINGLE[:1]).evaluation, episodes_per_task=3)


def diagnosed(tmp_path: Path, tasks: tuple[str, ...], *, reads_task: bool = True, **changes: object) -> Shortcut:
    maker = RidgeMaker(tmp_path / 'probe', tasks, reads_task=reads_task)
    return diagnose_shortcut(plan_of(tasks, **changes), tmp_path / 'work', maker, workers=0)


def needs(found: Shortcut) -> dict[str, InputNeed]:
    return {v.score.name: v.need for v in found.variants}


@pytest.fixture(scope='module')
def choose(tmp_path_factory: pytest.TempPathFactory) -> Shortcut:
    return diagnosed(tmp_path_factory.mktemp('choose'), CHOOSE)


@pytest.fixture(scope='module')
def single_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('single')
    (folder / 'scores.csv').write_text(SCORES, encoding='utf-8')
    diagnosed(folder, SINGLE, variants=('blind', 'shuffled'), reported=str(folder / 'scores.csv'))
    return folder


@pytest.fixture
def single(single_folder: Path) -> Shortcut:
    return read_shortcut(single_folder / 'work' / 'shortcut.json')


def test_a_probe_that_uses_the_instruction_is_seen_to_need_it(choose: Shortcut) -> None:
    """choose_left and choose_right share their scenes: told the wrong one, the probe goes to the wrong mark."""
    assert choose.final_checkpoint.mean == 1.0
    assert needs(choose) == dict.fromkeys(('blind', 'proprioception', 'shuffled'), InputNeed.NEEDED)
    shuffled = choose.variants[-1]
    assert shuffled.score.total == 0
    assert {t.need for t in shuffled.tasks} == {InputNeed.NEEDED}


def test_where_the_scene_tells_the_task_the_instruction_is_not_needed(single: Shortcut) -> None:
    assert single.final_checkpoint.mean == 1.0
    assert needs(single) == {'blind': InputNeed.NEEDED, 'shuffled': InputNeed.NOT_NEEDED}


def test_a_probe_that_ignores_the_instruction_is_caught(tmp_path: Path) -> None:
    """Where the task is needed it fails, and nothing changes when it is told the wrong one."""
    found = diagnosed(tmp_path, CHOOSE, reads_task=False, variants=('shuffled',))
    assert found.final_checkpoint.mean < 0.3
    shuffled = found.variants[0]
    assert shuffled.score.total == found.final_checkpoint.total
    assert shuffled.need is InputNeed.UNRESOLVED


def test_checkpoints_are_set_beside_reported_scores(single: Shortcut) -> None:
    assert [c.step for c in single.checkpoints] == [2, 40]
    assert single.best == 'step 40'
    assert single.verdict is ShortcutVerdict.NEAR_BEST
    assert single.optimism is not None
    assert single.deviations == ()


def test_a_diagnosis_resumes_and_runs_nothing_twice(single: Shortcut, single_folder: Path) -> None:
    store = single_folder / 'work' / 'store'
    episodes = sorted(e.episode_id for e in read_store(store).episodes())
    maker = RidgeMaker(single_folder / 'probe', SINGLE)
    plan = plan_of(SINGLE, variants=('blind', 'shuffled'), reported=str(single_folder / 'scores.csv'))
    assert diagnose_shortcut(plan, single_folder / 'work', maker, workers=0) == single
    assert maker.trained == []
    assert sorted(e.episode_id for e in read_store(store).episodes()) == episodes


def test_another_plan_is_refused_and_another_reading_is_not(single_folder: Path) -> None:
    kept = single_folder / 'work' / 'shortcut.json'
    before = kept.read_bytes()
    with pytest.raises(InputError, match='another plan'):
        diagnosed(single_folder, SINGLE, variants=('blind',))
    try:
        strict = diagnosed(single_folder, SINGLE, variants=('blind', 'shuffled'), margin=0.02)
    finally:
        kept.write_bytes(before)  # the other tests read it, in any order
    assert needs(strict)['shuffled'] is InputNeed.UNRESOLVED


def test_one_task_has_no_other_to_be_told(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, SINGLE[:1], variants=('shuffled',))
    assert not found.variants
    assert found.not_run == ('shuffled: the demonstrations are of one task, and there is no other to be told',)


def test_a_sweep_chooses_by_held_out_demonstrations_and_only_the_chosen_one_is_tested(tmp_path: Path) -> None:
    sweep = SweepOptions(steps=(2, 3, 40))
    maker = RidgeMaker(tmp_path / 'probe', CHOOSE, steps=(), sweep=sweep)
    found = diagnose_shortcut(plan_of(CHOOSE, sweep=sweep, variants=('blind',)), tmp_path / 'work', maker, workers=0)
    assert found.probe.sweep is not None
    assert [s.steps for s in found.probe.sweep.settings] == [2, 3, 40]
    assert found.probe.sweep.chosen.steps == 40, 'three demonstrations are too few to act on new ones'
    assert [c.step for c in found.checkpoints] == [40]
    assert {e.policy for e in read_store(tmp_path / 'work' / 'store').episodes()} == {'step 40', 'blind'}
    assert read_shortcut(tmp_path / 'work' / 'shortcut.json') == found
    words = shortcut_words(found)
    assert 'chosen among 3 by validation loss' in words
    assert 'and not by score' in words
    assert 'another setting may score higher' in words
    assert 'is the smallest of 3 and optimistic' in words
    assert SWEPT_VARIANTS in words
    assert [row[-1] for row in sweep_table(found).rows] == ['', '', 'chosen']


def test_without_a_sweep_none_is_claimed_and_old_work_folders_go_on(choose: Shortcut) -> None:
    assert choose.probe.sweep is None
    assert 'validation loss' not in shortcut_words(choose)
    assert sweep_table(choose).rows == ()
    assert 'sweep' not in plan_of(CHOOSE).as_json()
    assert plan_of(CHOOSE, sweep=SweepOptions(steps=(2, 40))).as_json() != plan_of(CHOOSE).as_json()


class BrokenHost(ChoiceHost):
    """A rig that breaks on half of the start states, whoever runs there."""

    def reset(self, task: str, *, seed: int) -> Observation:
        if seed % 2:
            raise RigError('the arm does not answer')
        return super().reset(task, seed=seed)


def test_start_states_that_nobody_could_run_do_not_leave_the_score(tmp_path: Path) -> None:
    """Without them every run would be whole, and its score that of the rest."""
    host = HostEntry('tests.study.test_shortcut:BrokenHost')
    with pytest.raises(NotEstimable, match='no checkpoint has a valid episode of each of the 3 instances'):
        diagnosed(tmp_path, SINGLE[:1], host=host, variants=(), evaluation=FEW)
    assert not (tmp_path / 'work' / 'shortcut.json').exists()


def test_a_task_that_lacks_episodes_shows_no_need() -> None:
    outcomes = tuple(InstanceOutcome(t, f'instance={i}', 1) for t in CHOOSE for i in range(12))
    lost = tuple(dataclasses.replace(o, score=0) for o in outcomes[2:])
    found = shortcut(
        [RunOutcomes('step 1', outcomes, 1)], [RunOutcomes('blind', lost)], rng=np.random.default_rng(0)
    )  # fmt: skip
    assert found.variants[0].need is InputNeed.UNRESOLVED
    assert {t.task: t.need for t in found.variants[0].tasks} == {
        'choose_left': InputNeed.UNRESOLVED, 'choose_right': InputNeed.NEEDED,
    }  # fmt: skip


@pytest.mark.parametrize(
    ('change', 'said'),
    [
        ({'episodes_per_task': 0}, 'episodes_per_cell is 0'),
        ({'time_cap_s': 0.0}, 'the time cap is 0.0 s'),
        ({'tasks': ()}, 'tasks is missing'),
        ({'seed': -1}, 'seed is -1'),
    ],
)
def test_a_mistake_in_the_evaluation_shows_before_training(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:  # fmt: skip
    evaluation = dataclasses.replace(plan_of(SINGLE).evaluation, **change)
    with pytest.raises(InputError, match=said):
        diagnosed(tmp_path, SINGLE, evaluation=evaluation)
    assert not (tmp_path / 'probe').exists()


def test_two_processes_do_not_share_a_work_folder(tmp_path: Path) -> None:
    with work_folder(tmp_path / 'work'), pytest.raises(StoreError, match='another process is at work'):
        diagnosed(tmp_path, SINGLE)
    assert not (tmp_path / 'probe').exists()


def test_a_plan_that_came_to_nothing_can_be_mended_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / 'work').mkdir()
    (tmp_path / 'work' / 'plan.json').write_text('{"host": "misspelt"}', encoding='utf-8')
    assert diagnosed(tmp_path, SINGLE[:1], variants=(), evaluation=FEW).final_checkpoint.mean == 1.0
    (tmp_path / 'work' / 'plan.json').unlink()
    with pytest.raises(InputError, match=r'no plan\.json'):
        diagnosed(tmp_path, SINGLE[:1], variants=(), evaluation=FEW)


def test_a_preset_says_what_is_behind_a_score_and_that_it_is_of_another_benchmark(tmp_path: Path) -> None:
    """Without tasks and samples in the file; a protocol that nobody knows leaves nothing provable."""
    scores = tmp_path / 'scores.csv'
    for protocol, interval, said in (('libero-spatial', True, 1), ('ours', False, 0)):
        scores.write_text(f'policy,score,unit,kind,protocol\nbig,10.0,percent,other,{protocol}\n', encoding='utf-8')
        if said:
            with pytest.raises(InputError, match=r'scores are on libero-spatial, the run is on tests\.study\.'):
                diagnosed(tmp_path, SINGLE[:1], variants=(), evaluation=FEW, reported=str(scores))
        found = diagnosed(
            tmp_path, SINGLE[:1], variants=(), evaluation=FEW, reported=str(scores), protocol=protocol
        )  # fmt: skip
        assert (found.gaps[0].interval is not None) is interval
        assert len(found.deviations) == said


def test_two_foundation_policies_show_before_training(tmp_path: Path) -> None:
    scores = tmp_path / 'scores.csv'
    scores.write_text(SCORES.replace('other', 'foundation'), encoding='utf-8')
    with pytest.raises(InputError, match='mark the most cited one'):
        diagnosed(tmp_path, SINGLE, reported=str(scores))
    assert not (tmp_path / 'probe').exists()


def test_a_mistake_in_reported_scores_shows_before_training(tmp_path: Path) -> None:
    scores = tmp_path / 'scores.csv'
    scores.write_text(SCORES.replace('99.0', '990'), encoding='utf-8')
    with pytest.raises(InputError, match='line 3'):
        diagnosed(tmp_path, SINGLE, reported=str(scores))
    assert not (tmp_path / 'probe').exists()
