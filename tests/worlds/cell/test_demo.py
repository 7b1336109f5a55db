"""The demo's plan, registry and folder; the trial itself is run by `make demo`."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from robotrials.cli.demo import next_commands, prepare, sentences
from robotrials.cli.source import open_analysis
from robotrials.errors import InputError
from robotrials.measure.safety import load_registry, score_pairs, store_pairs
from robotrials.record import read_store
from robotrials.run import close_trial, read_plan, run_trial
from robotrials.run.component import check_host_fits, check_policy_fits, open_host, open_policy
from robotrials.show.document import Block, Chart, Document, Missing, Paragraph, Passage, TableBlock
from robotrials.show.phrase import decision_sentence
from robotrials.show.report import trial_document
from robotrials.show.table import format_cell
from robotrials.stats.dominance import PairVerdict
from robotrials.verdict.analysis import Analysis, present
from robotrials.worlds.cell import TASKS
from robotrials.worlds.cell.scripted import TEMPERS


def test_the_plan_of_the_demo_fits_together(tmp_path: Path) -> None:
    plan = read_plan(prepare(tmp_path / 'demo', episodes=3, seed=9))
    assert (plan.episodes_per_cell, plan.seed, plan.reference) == (3, 9, 'reference (scripted)')
    assert {entry.options['temper'] for entry in plan.policies.values()} == set(TEMPERS) - {'careful'}
    host = open_host(plan.host)
    check_host_fits(plan, host)
    for name, entry in plan.policies.items():
        check_policy_fits(plan, host, open_policy(entry), name=name, shown=name)


def test_without_mujoco_the_demo_says_so_before_it_writes(tmp_path: Path) -> None:
    script = "import sys; sys.modules['mujoco'] = None; from robotrials.cli import run_command; run_command()"
    ended = subprocess.run(
        [sys.executable, '-c', script, 'demo', '-o', str(tmp_path / 'demo')],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith('Error: the tabletop cell needs MuJoCo')
    assert not ended.stdout
    assert not (tmp_path / 'demo').exists()


def test_the_demo_declares_its_analysis(tmp_path: Path) -> None:
    plan = read_plan(prepare(tmp_path / 'demo', episodes=2, seed=9))
    assert plan.analysis is not None
    assert [e.value for e in plan.analysis.primary] == ['success', 'time', 'safety']
    assert [e.value for e in plan.analysis.secondary] == ['lost']
    assert (plan.analysis.tau_s, plan.analysis.seed) == (8.0, 9)


SEEDS = range(1, 11)
STORY = {
    'drifting': PairVerdict.BETTER,  # steady is better
    'hasty': PairVerdict.TRADE_OFF,
    'forgetful': PairVerdict.UNRESOLVED,
}


MOST_WORDS = 2500  # of the report, before its appendix


@pytest.mark.story
def test_the_story_of_the_demo_does_not_depend_on_its_seed(tmp_path: Path) -> None:
    """In 9 of 10 seeds or more: one pair better, one trade-off, one open that says what it takes, unsafe successes.

    Without cameras and films, which no verdict reads; under a minute of one core for every seed. What every seed says
    stands in docs/concepts/demo.md.
    """
    holds = {}
    for seed in SEEDS:
        plan = read_plan(prepare(tmp_path / 'demo', episodes=6, seed=seed, cameras=False))
        store = tmp_path / 'demo' / 'store'
        run_trial(plan, store, workers=2)
        close_trial(plan, store, by='test')
        analysis = open_analysis(store)
        holds[seed] = story_holds(analysis)
        print(seed, holds[seed], *sentences(analysis), sep='\n  ')
        assert open_words(trial_document(analysis)) <= MOST_WORDS
    assert sum(holds.values()) >= 9, holds


def story_holds(analysis: Analysis) -> bool:
    pairs, safety = present(analysis.pairs), present(analysis.safety).summary
    decided = {other: pairs.decision('steady', other) for other in STORY}
    rough, steady = safety.cell('rough', 'tabletop'), safety.cell('steady', 'tabletop')
    return (
        {other: d.verdict for other, d in decided.items()} == STORY
        and decided['drifting'].winner == 'steady'
        and 'start states' in decision_sentence(pairs, 'steady', 'forgetful')
        and rough.success.count >= 0.9 * rough.n
        and rough.unsafe_given_success.count >= 0.5 * rough.success.count
        and steady.sbu.count <= 0.1 * steady.n
    )


def open_words(document: Document) -> int:
    """Words that a reader meets before the appendix: folded sections and tables are not among them."""
    text = [document.title, document.subtitle, document.statement, *document.cautions, *(p.text for p in document.lead)]
    for part in document.sections:
        if not part.is_folded:
            text += [part.title, *(block_text(block) for block in part.blocks)]
    return len(' '.join(text).split())


def block_text(block: Block) -> str:
    match block:
        case Paragraph():
            return block.text
        case TableBlock(is_folded=True):
            return block.table.title
        case TableBlock(table=shown):
            cells = [format_cell(value) for row in shown.rows for value in row]
            return ' '.join([shown.title, shown.note, *(c.name for c in shown.columns), *cells])
        case Chart() as chart:
            return ' '.join([chart.title, chart.note, *chart.policies])
        case Missing():
            return ' '.join([block.heading, *block.sentences])
        case Passage():
            return f'{block.label} {block.text}'


def test_what_the_demo_says_to_try_next_works(tmp_path: Path) -> None:
    """The printed commands, in new processes, on the store of a demo; and its report stays short."""
    plan = read_plan(prepare(tmp_path / 'demo', episodes=1, seed=3, cameras=False))
    two = dataclasses.replace(plan, strata=plan.strata[:1])
    run_trial(two, tmp_path / 'demo' / 'store', workers=0)
    close_trial(two, tmp_path / 'demo' / 'store', by='test')
    document = trial_document(open_analysis(tmp_path / 'demo' / 'store'))
    assert 300 < open_words(document) <= MOST_WORDS
    assert [type(b) for b in document.sections[0].blocks] == [TableBlock, Chart]  # scoreboard, and the one chart
    commands = next_commands(tmp_path / 'demo')
    assert len(commands) == 3
    for command in commands:
        _, *words = shlex.split(command)
        done = subprocess.run([sys.executable, '-m', 'robotrials', *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f'{command}: {done.stderr}'


def test_only_an_earlier_demo_is_removed(tmp_path: Path) -> None:
    mine = tmp_path / 'mine'
    mine.mkdir()
    (mine / 'thesis.tex').touch()
    with pytest.raises(InputError, match='is not an earlier demo'):
        prepare(mine, episodes=1, seed=1)
    prepare(tmp_path / 'demo', episodes=1, seed=1)
    assert prepare(tmp_path / 'demo', episodes=2, seed=1).exists()


def test_every_task_has_active_safety_specs() -> None:
    registry = load_registry()
    assert set(registry.tasks('tabletop')) == set(TASKS)
    families = {s.family for s in registry.active('tabletop', 'bin_to_bin')}
    assert {'arm_furniture_force', 'max_contact_force', 'joint_torque', 'self_collision_free'} <= families


PLAN = """
seed = 3
episodes_per_cell = 1
time_cap_s = 12
tasks = [{name = "single_block"}]
host = {use = "tabletop", options = {state = "privileged"}}
[policies.north]
use = "scripted"
options = {temper = "reference"}
[policies.south]
use = "scripted"
options = {temper = "drifting"}
"""


def test_a_trial_in_the_cell_is_the_same_with_two_workers(tmp_path: Path) -> None:
    (tmp_path / 'trial.toml').write_text(PLAN, encoding='utf-8')
    plan = read_plan(tmp_path / 'trial.toml')
    seen = []
    for workers in (0, 2):
        run_trial(plan, tmp_path / f'store{workers}', workers=workers)
        store = read_store(tmp_path / f'store{workers}')
        pairs = sorted(store.trajectories(), key=lambda pair: pair[0].episode_id)
        seen.append([(e.episode_id, e.duration_s, e.instruction, t.body_pose.tobytes()) for e, t in pairs])
    assert seen[0] == seen[1]
    assert len(seen[0]) == 2
    assert all(words.startswith('put the') for _, _, words, _ in seen[0])


SCORED = """
benchmark = "tabletop"
seed = 4
episodes_per_cell = 1
time_cap_s = 15
tasks = [{name = "single_block"}, {name = "insertion"}, {name = "three_block"}]
host = {use = "tabletop", options = {state = "privileged"}}
[policies.only]
use = "scripted"
options = {temper = "reference"}
"""


def test_tasks_without_bystanders_are_scored_by_what_they_have(tmp_path: Path) -> None:
    (tmp_path / 'trial.toml').write_text(SCORED, encoding='utf-8')
    run_trial(read_plan(tmp_path / 'trial.toml'), tmp_path / 'store', workers=0)
    scores = {s.task: s for s in score_pairs(store_pairs(read_store(tmp_path / 'store')))}
    assert {task: (s.is_scored, s.because) for task, s in scores.items()} == dict.fromkeys(
        ('single_block', 'insertion', 'three_block'), (True, '')
    )
    bystander = 'non_target_max_disp_5mm'
    assert [bystander in scores[t].inapplicable for t in ('single_block', 'insertion', 'three_block')] == [1, 1, 0]
    assert bystander in scores['three_block'].robustness
    for score in scores.values():
        grasp = score.robustness['stable_grasp_maintained_2cm']
        assert 0 < grasp < 0.02  # it was held, and what the physics lets slip is millimetres
        assert score.cannot_fail == ('joint_torque',)
        assert score.notes == ()
