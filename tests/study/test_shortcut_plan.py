"""Declaring a shortcut diagnosis: what a plan wants, and which start states the expert is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import robotrials
from tests.policies.probe.test_source import make_libero

from robotrials.errors import InputError
from robotrials.policies.probe import collect_demonstrations, read_options
from robotrials.run import Setup
from robotrials.run.plan import HostEntry, PolicyEntry, TaskEntry
from robotrials.run.schedule import trial_slots
from robotrials.study import EvaluationOptions, ShortcutPlan, read_shortcut_plan
from robotrials.study.evaluate import evaluation_plan
from robotrials.study.probe_maker import ProbeMaker, check_files, demonstration_setups, open_demonstrations
from robotrials.study.shortcut import host_plan

PLAN = """
title = "which block"
reported = "scores.csv"

[host]
use = "tabletop"
options = {cameras = ["front"], image_size = [64, 64]}

[expert]
use = "scripted"
episodes_per_task = 5
host = {state = "privileged"}

[probe]
steps = 100

[evaluation]
tasks = [{name = "choose_red", scene = "choose"}, {name = "choose_blue", scene = "choose"}]
episodes_per_task = 4
time_cap_s = 12.0
"""


def written(tmp_path: Path, text: str = PLAN) -> Path:
    path = tmp_path / 'shortcut.toml'
    path.write_text(text, encoding='utf-8')
    return path


def test_a_plan_is_read_with_paths_beside_it(tmp_path: Path) -> None:
    plan = read_shortcut_plan(written(tmp_path))
    assert plan.reported == str(tmp_path / 'scores.csv')
    assert plan.expert is not None
    assert plan.variants == ('blind', 'proprioception', 'shuffled')
    assert [t.scene for t in plan.evaluation.tasks] == ['choose', 'choose']


@pytest.mark.parametrize(
    ('change', 'said'),
    [
        (('[expert]', '[experts]'), "no key 'experts': did you mean 'expert'"),
        (('title =', 'demonstrations = "demos"\ntitle ='), 'either demonstrations'),
        (('title =', 'variants = ["blinded"]\ntitle ='), "did you mean 'blind'"),
        (('title =', 'margin = 5\ntitle ='), 'margin is 5.0, wanted a share'),
        (('episodes_per_task = 5', 'episodes_per_task = 0'), 'episodes_per_task is 0'),
        (('episodes_per_task = 5', 'seed = 2026'), 'both have seed 2026'),
        (('[host]', '[host'), 'not TOML'),
        (('[probe]', '[sweep]\nsteps = [100]\n[probe]'), 'has one setting, wanted several'),
        (('[probe]', '[sweep]\nsteps = [100, 100]\n[probe]'), 'wanted each value once'),
        (('[probe]', '[sweep]\nlearning_rate = [0.1]\n[probe]'), "did you mean 'learning_rates'"),
        (('title =', 'seed = -1\ntitle ='), 'seed is -1, wanted >= 0'),
        (('episodes_per_task = 5', 'seed = -2'), 'seed is -2, wanted >= 0'),
        (('episodes_per_task = 5', 'episodes_per_task = 1000000000000'), 'wanted at most 1000000'),
        (('episodes_per_task = 5', 'time_cap_s = 0.0'), 'time_cap_s is 0.0, wanted > 0'),
    ],
)
def test_a_mistake_in_the_plan_is_named(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_shortcut_plan(written(tmp_path, PLAN.replace(*change, 1)))


def test_tasks_of_one_scene_are_demonstrated_from_the_same_starts_and_none_is_tested(tmp_path: Path) -> None:
    plan = read_shortcut_plan(written(tmp_path))
    setups = demonstration_setups(plan)
    red, blue = ([s.seed for s in setups if s.task == f'choose_{color}'] for color in ('red', 'blue'))
    assert len(red) == 5
    assert red == blue
    assert len(set(red)) == 5
    trial = evaluation_plan(plan.host, {'probe': PolicyEntry('probe')}, plan.evaluation)
    assert not {s.seed for s in trial_slots(trial)} & set(red)


def test_an_expert_may_not_demonstrate_from_the_fixed_starts_of_the_test(tmp_path: Path) -> None:
    libero = PLAN.replace('use = "tabletop"', 'use = "libero"').partition('[evaluation]')[0]
    plan = read_shortcut_plan(written(tmp_path, libero.replace('options = {cameras = ["front"], ', 'options = {')))
    with pytest.raises(InputError, match='condition = "fresh_start"'):
        demonstration_setups(plan)


def test_a_host_by_name_brings_its_own_expert_and_probe(tmp_path: Path) -> None:
    plan = host_plan('tabletop', tasks=['choose_red', 'single_block'], episodes_per_task=3, time_cap_s=9.0)
    assert isinstance(plan, ShortcutPlan)
    assert plan.expert is not None
    assert plan.expert.use == 'scripted'
    assert [t.scene for t in plan.evaluation.tasks] == ['choose', '']
    ProbeMaker(plan, tmp_path)  # takes the cell's own options, and those of a caller, lists or tuples
    options = read_options({**plan.probe, 'crops': {'front': (0.2, 0.8, 0.0, 1.0)}})
    assert options.crops == {'front': (0.2, 0.8, 0.0, 1.0)}
    libero = host_plan('libero', suite='libero-goal', demonstrations=['demos'])
    assert evaluation_plan(libero.host, {'p': PolicyEntry('no_op')}, libero.evaluation).benchmark == 'libero-goal'


def test_what_a_host_lacks_is_asked_for() -> None:
    with pytest.raises(InputError, match='give --demonstrations PATH or --expert NAME'):
        host_plan('libero')
    with pytest.raises(InputError, match="did you mean 'tabletop'"):
        host_plan('table-top')
    with pytest.raises(InputError, match="did you mean 'choose_red'"):
        host_plan('tabletop', tasks=['chose_red'])


CHOICE = 'tests.study.choice:ChoiceHost'


@pytest.mark.parametrize(
    ('host', 'tasks', 'said'),
    [
        ('tests.study.choice:Choice', ('choose_left',), "did you mean 'ChoiceHost'"),
        (CHOICE, ('choose_left', 'single_left'), "not trained on task 'single_left'"),
        ('point-mass', ('choose_left',), 'host and policy do not fit together'),
    ],
)
def test_demonstrations_are_held_against_the_host_before_training(
    tmp_path: Path, host: str, tasks: tuple[str, ...], said: str
) -> None:
    setups = [Setup(task='choose_left', seed=seed) for seed in range(2)]
    made = collect_demonstrations(
        HostEntry(CHOICE, {'privileged': True}), PolicyEntry('tests.study.choice:ChoiceExpert'), setups,
        tmp_path / 'demos', state_width=2, time_cap_s=3.0,
    )  # fmt: skip
    plan = ShortcutPlan(
        host=HostEntry(host), demonstrations=(str(made.folder),),
        evaluation=EvaluationOptions(tasks=tuple(TaskEntry(t) for t in tasks), episodes_per_task=1, time_cap_s=1.0),
    )  # fmt: skip
    with pytest.raises(InputError, match=said):
        ProbeMaker(plan, tmp_path / 'work').train('full')
    assert not (tmp_path / 'work').exists()


def test_files_that_changed_since_they_were_read_are_refused(tmp_path: Path) -> None:
    path = make_libero(tmp_path / 'a.hdf5')
    made = open_demonstrations([str(path)], tmp_path / 'made')
    check_files([str(path)], made)
    make_libero(path, demos=2)
    with pytest.raises(InputError, match='has changed since it was read'):
        check_files([str(path)], made)
    path.unlink()
    check_files([str(path)], made)


def test_files_that_are_no_demonstrations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='no such file'):
        open_demonstrations([str(tmp_path / 'absent')], tmp_path / 'made')
    with pytest.raises(InputError, match='holds no HDF5'):
        open_demonstrations([str(tmp_path)], tmp_path / 'made')


def test_a_missing_environment_is_told_before_anything_is_demonstrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('ROBOTRIALS_ENVIRONMENTS', str(tmp_path / 'none'))
    told = robotrials('audit', 'shortcut', 'tabletop', '-t', 'choose_red', '-o', tmp_path / 'work', code=2)
    assert "the environment 'probe' is not there; run `robotrials env create probe`" in told
    assert not (tmp_path / 'work' / 'demonstrations').exists()
    for verb in ('datasource', 'mix'):
        told = robotrials('audit', verb, tmp_path / verb, code=2)
        assert "the environment 'probe' is not there; run `robotrials env create probe`" in told
        assert not (tmp_path / verb).exists()
