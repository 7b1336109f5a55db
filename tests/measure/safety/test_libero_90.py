"""LIBERO-90: tags by a rule that is held to the published tasks, and a caveat wherever its safety is shown."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import robotrials as command
from tests.measure.safety.scene import episode, lifted, with_pose
from tests.tool import tool

import robotrials
from robotrials.errors import InputError
from robotrials.measure.safety import load_registry, score_episode, summarize_safety
from robotrials.record import Episode, Store, Trajectory, read_store
from robotrials.show.change import change_document
from robotrials.show.gate import render_markdown
from robotrials.show.report import trial_document
from robotrials.verdict.analysis.change import compare_stores
from robotrials.verdict.analysis.gate import GateRules, gate_stores

ROOT = Path(__file__).resolve().parents[3]
REGISTRY = load_registry()
NINETY = 'libero-90'
SAID = 'no published safety registry covers LIBERO-90'


def test_the_rule_gives_the_published_tags_of_the_forty_tasks_and_is_what_the_ninety_have() -> None:
    """SafeVLA-Bench, Tables 22 and 23 and the mean counts of Appendix D hold for the forty (test_registry.py)."""
    told = tool('libero_registry')
    suites = ('libero-spatial', 'libero-object', 'libero-goal', 'libero-10', NINETY)
    entries = [e for e in REGISTRY.entries if e.benchmark in suites]
    assert len(entries) == 130
    for entry in entries:
        where = f'{entry.benchmark} {entry.id}: {entry.instruction}'
        assert told.instruction_of(entry.name) == entry.instruction, where
        assert told.components_of(entry.instruction) == entry.components, where
        assert set(told.object_tags_of(entry.instruction)) == entry.object_tags, where


def test_every_task_has_the_limits_that_hold_for_any_and_an_unknown_property_is_held_to_the_tilt() -> None:
    for task in REGISTRY.tasks(NINETY):
        families = {spec.family for spec in REGISTRY.active(NINETY, task)}
        assert {'max_contact_force', 'joint_torque', 'self_collision_free'} <= families, task
    pan = {spec.family for spec in REGISTRY.active(NINETY, 'KITCHEN_SCENE3_put_the_frying_pan_on_the_stove')}
    assert {'held_object_tilt_world', 'stable_grasp_maintained', 'non_target_max_disp'} <= pan
    assert REGISTRY.benchmark('libero_90').caveat.startswith(SAID)


def pairs(policy: str = 'a', *, moved: int = 2) -> list[tuple[Episode, Trajectory]]:
    """Eight starts, `moved` of which push a bystander by 2 cm."""
    push = with_pose('cup', {4: 0.02}, part=slice(1, 2))
    ids = [f'{policy}-{i}' for i in range(8)]
    return [
        (episode(benchmark=NINETY, task='task_9', policy=policy, episode_id=name, instance=i, seed=i),
         push if i < moved else lifted())
        for i, name in enumerate(ids)
    ]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.create(tmp_path / 'store', title='ninety')
    everything = (*pairs('a'), *pairs('b', moved=0))
    made.append([e for e, _ in everything], trajectories={e.key: t for e, t in everything})
    return read_store(tmp_path / 'store')


def test_its_safety_is_scored_kept_out_of_means_and_never_shown_without_the_caveat(store: Store) -> None:
    summary = summarize_safety(
        [score_episode(*pair) for pair in (*pairs('a'), *pairs('b', moved=0))], rng=np.random.default_rng(0)
    )
    assert (summary.cell('a', NINETY).safety.count, summary.cell('b', NINETY).safety.count) == (6, 8)
    assert summary.means == ()
    assert [SAID in text for text in summary.caveats] == [True]
    document = trial_document(robotrials.load(store.path).analysis)
    assert any(SAID in text for text in document.cautions), 'before any number'
    assert render_markdown(document).count(SAID) == 2, 'and under the table'
    for form in (('--format', 'text'), ('--format', 'csv'), ('--json',)):
        told = command('safety', str(store.path), '--resamples', 20, *form)
        assert SAID in ' '.join(told.split()), form
    assert SAID in ' '.join(command('safety', 'explain', 'libero-90/task_9').split())
    assert SAID in ' '.join(command('tables', 'safety-tasks', store.path, '--resamples', 20).split())
    changed = compare_stores(store, store, names={'a': 'b'}, resamples=20)
    assert SAID in render_markdown(change_document(changed))
    gate = gate_stores(store, store, policy='b', baseline_policy='a', rules=GateRules(require=('safety',)))
    assert any(SAID in note for note in gate.notes)


def test_a_published_suite_has_no_caveat() -> None:
    assert REGISTRY.caveats(REGISTRY.benchmarks) == REGISTRY.caveats([NINETY])


def test_a_benchmark_of_ones_own_takes_its_place_and_no_published_ones(tmp_path: Path) -> None:
    """The file is the one that the how-to shows."""
    page = (ROOT / 'docs' / 'how-to' / 'libero.md').read_text(encoding='utf-8')
    shown = next(block for block in re.findall(r'```toml\n(.*?)```', page, re.DOTALL) if '[[benchmark]]' in block)
    (tmp_path / 'mine.toml').write_text(shown)
    mine = load_registry(tmp_path / 'mine.toml')
    assert mine.benchmark(NINETY).caveat == ''
    assert mine.tasks(NINETY) == ('task_18',)
    assert 'held_object_tilt_world' not in {spec.family for spec in mine.active(NINETY, 'task_18')}
    assert {spec.family for spec in mine.active(NINETY, 'task_40')} > {'max_contact_force'}
    unknown = score_episode(episode(benchmark=NINETY, task='turn on the stove'), lifted(), registry=mine)
    assert (unknown.safe, unknown.is_scored) == (None, False)
    (tmp_path / 'goal.toml').write_text(shown.replace('libero-90', 'libero-goal').replace('libero_90', 'goal'))
    with pytest.raises(InputError, match=r"duplicate benchmark id 'libero-goal'; first defined in libero.toml"):
        load_registry(tmp_path / 'goal.toml')
