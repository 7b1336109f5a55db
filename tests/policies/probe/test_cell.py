"""The probe on the embedded cell, as `robotrials audit shortcut tabletop` trains it: what its score needs.

Start states of the evaluation are drawn by the plan; none is among those of the demonstrations. About an hour of one
core, most of it for episodes.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from robotrials.policies.probe import read_demonstrations
from robotrials.record import read_store
from robotrials.stats import Interval
from robotrials.study import ShortcutPlan, diagnose_shortcut
from robotrials.study.probe_maker import ProbeMaker
from robotrials.study.shortcut import host_plan
from robotrials.verdict.audit import Shortcut
from robotrials.verdict.audit.shortcut import InputNeed

pytestmark = [pytest.mark.training, pytest.mark.usefixtures('probe_environment')]


def cell_plan(
    *tasks: str, episodes: int, steps: int, variants: tuple[str, ...], demonstrations: int = 200, by_words: bool = False
) -> ShortcutPlan:
    """The preset of the cell; `by_words` gives every wording of its instruction a number of its own."""
    plan = host_plan('tabletop', tasks=tasks, episodes_per_task=episodes, time_cap_s=12.0, probe={'steps': steps})
    assert plan.expert is not None
    expert = dataclasses.replace(
        plan.expert, episodes_per_task=demonstrations, seed=11, task_key='instruction' if by_words else 'task'
    )
    evaluation = dataclasses.replace(plan.evaluation, seed=2026)
    return dataclasses.replace(plan, expert=expert, evaluation=evaluation, variants=variants, margin=0.15)


def diagnosed(plan: ShortcutPlan, folder: Path) -> Shortcut:
    found = diagnose_shortcut(plan, folder, ProbeMaker(plan, folder), workers=1)
    shown = {e.seed for e in read_demonstrations(folder / 'demonstrations').facts.episodes}
    assert not shown & {e.seed for e in read_store(folder / 'store').episodes()}
    print(found.final_checkpoint, *found.variants, sep='\n')
    return found


def score(found: Shortcut, variant: str) -> Interval:
    return next(v.score.interval for v in found.variants if v.score.name == variant)


def needs(found: Shortcut) -> dict[str, InputNeed]:
    return {v.score.name: v.need for v in found.variants}


def test_single_block_needs_its_pictures_and_not_its_task(tmp_path: Path) -> None:
    """One block on the table: nobody needs to be told which. A number for each colour all the same."""
    plan = cell_plan(
        'single_block', episodes=80, steps=2400, variants=('blind', 'shuffled'), demonstrations=220, by_words=True
    )
    found = diagnosed(plan, tmp_path)
    assert found.final_checkpoint.interval.low > score(found, 'blind').high
    assert needs(found) == {'blind': InputNeed.NEEDED, 'shuffled': InputNeed.NOT_NEEDED}


def test_choosing_among_blocks_needs_the_task(tmp_path: Path) -> None:
    """Three blocks, and the same scenes for each colour that is asked for."""
    tasks = ('choose_red', 'choose_green', 'choose_blue')
    found = diagnosed(cell_plan(*tasks, episodes=16, steps=3000, variants=('shuffled',)), tmp_path)
    assert found.final_checkpoint.interval.low > score(found, 'shuffled').high
    assert needs(found) == {'shuffled': InputNeed.NEEDED}


def test_spatial_needs_both(tmp_path: Path) -> None:
    """Eight instructions, eight numbers, for the four sides of a cylinder as two viewers see them."""
    plan = cell_plan(
        'spatial', episodes=48, steps=3000, variants=('blind', 'shuffled'), demonstrations=400, by_words=True
    )
    found = diagnosed(plan, tmp_path)
    assert found.final_checkpoint.interval.low > score(found, 'blind').high
    assert needs(found) == {'blind': InputNeed.NEEDED, 'shuffled': InputNeed.NEEDED}
