"""The shortcut diagnosis from start to end: demonstrations, training, one trial of everything, the reading of it.

A stopped diagnosis resumes: demonstrations and checkpoints that are whole are kept, and the trial runs what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from robotrials.errors import InputError, UnknownName
from robotrials.run.plan import PolicyEntry
from robotrials.run.progress import Report
from robotrials.study.evaluate import evaluation_plan, official_protocol, run_evaluation
from robotrials.study.shortcut_plan import ShortcutPlan
from robotrials.study.work import work_folder
from robotrials.verdict.audit import ReportedScore, RunOutcomes, Shortcut, find_benchmark, read_reported, shortcut
from robotrials.verdict.audit.reported import foundation_score, of_protocol
from robotrials.verdict.audit.result import write_whole
from robotrials.verdict.audit.shortcut import SHUFFLED, ProbeFacts
from robotrials.verdict.audit.topline import Protocol as EvaluationProtocol

RESULT, STORE, PLAN = 'shortcut.json', 'store', 'plan.json'


@dataclass(frozen=True, slots=True)
class MadeCheckpoint:
    """A checkpoint that a plan can name."""

    step: int
    entry: PolicyEntry

    @property
    def name(self) -> str:
        return f'step {self.step}'


class Maker(Protocol):
    """Who makes the probe and its variants: the room of the probe, or a stand-in of the same manners."""

    def train(self, variant: str) -> Sequence[MadeCheckpoint]:
        """The checkpoints of 'full' or a trained variant, in training order; what is there already is not made anew."""

    def shuffled(self, final: MadeCheckpoint) -> PolicyEntry:
        """The same checkpoint, told another task than it runs."""

    def task_names(self) -> Sequence[str]:
        """The tasks that the probe tells apart."""

    def facts(self) -> ProbeFacts: ...


def diagnose_shortcut(
    plan: ShortcutPlan,
    folder: Path | str,
    maker: Maker,
    *,
    workers: int = 1,
    report: Report | None = None,
    told: Callable[[str], None] | None = None,
) -> Shortcut:
    """Train, evaluate every checkpoint and variant as one trial, and write the diagnosis to ``shortcut.json``."""
    reported = _reported(plan)  # a mistake shows before hours of training
    evaluation_plan(plan.host, {'probe': PolicyEntry('probe')}, plan.evaluation)
    with work_folder(folder) as root:
        _claim(plan, root)
        return _diagnosed(plan, root, maker, reported, workers=workers, report=report, told=told)


def _diagnosed(
    plan: ShortcutPlan, root: Path, maker: Maker, reported: tuple[ReportedScore, ...], *, workers: int,
    report: Report | None, told: Callable[[str], None] | None,
) -> Shortcut:  # fmt: skip
    checkpoints = list(maker.train('full'))
    if not checkpoints:
        raise InputError('the probe kept no checkpoint; say at which steps to keep one')
    policies = {c.name: c.entry for c in checkpoints}
    not_run = []
    for variant in plan.variants:
        if variant == SHUFFLED and len(maker.task_names()) == 1:
            not_run.append('shuffled: the demonstrations are of one task, and there is no other to be told')
            continue
        policies[variant] = (
            maker.shuffled(checkpoints[-1]) if variant == SHUFFLED else maker.train(variant)[-1].entry
        )  # fmt: skip
    trial = evaluation_plan(
        plan.host, policies, plan.evaluation, title=plan.title or f'shortcut diagnosis of {plan.host.use}'
    )
    if told is not None:
        told(f'{len(policies)} policies x {len(trial.tasks)} tasks x {trial.episodes_in_a_cell()} start states')
    evaluated = run_evaluation(trial, root / STORE, workers=workers, report=report)
    behind, elsewhere = _reported_protocol(plan, reported, trial.benchmark)
    steps = {c.name: c.step for c in checkpoints}
    found = shortcut(
        [RunOutcomes(name, evaluated.outcomes[name], step) for name, step in steps.items()],
        [RunOutcomes(name, runs) for name, runs in evaluated.outcomes.items() if name not in steps],
        planned=evaluated.instances,
        reported=reported,
        official=behind,
        max_score=evaluated.max_score,
        margin=plan.margin,
        rng=np.random.default_rng(plan.seed),
        title=trial.title,
        host=plan.host.use,
        benchmark=trial.benchmark,
        probe=maker.facts(),
        deviations=(*evaluated.deviations, *elsewhere),
        not_run=not_run,
    )
    write_whole(root / RESULT, found.as_json())
    return found


def _reported(plan: ShortcutPlan) -> tuple[ReportedScore, ...]:
    if not plan.reported:
        return ()
    official = official_protocol(plan.host)
    wanted = plan.protocol or (official.benchmark.name if official else '')
    chosen = of_protocol(read_reported(plan.reported), wanted)
    foundation_score(chosen)
    elsewhere = _reported_protocol(plan, chosen, official.benchmark.name if official else plan.host.use)[1]
    if elsewhere and not plan.protocol:
        raise InputError(f'{plan.reported}: {elsewhere[0]}; name the protocol to compare them all the same')
    return chosen


def _reported_protocol(
    plan: ShortcutPlan, reported: Sequence[ReportedScore], ours: str
) -> tuple[EvaluationProtocol | None, tuple[str, ...]]:
    """Tasks and samples behind the reported scores, by the protocol they name, and whether that is not ours."""
    official = official_protocol(plan.host)
    name = reported[0].protocol if reported else ''
    if not name:
        return (official.benchmark.protocol if official else None), ()
    try:
        preset = find_benchmark(name)
    except UnknownName:
        return None, ()
    elsewhere = f'reported scores are on {preset.name}, the run is on {ours}'
    return preset.protocol, () if preset.name == ours else (elsewhere,)


def _claim(plan: ShortcutPlan, root: Path) -> None:
    """A work folder belongs to one plan: another one in it would mix two diagnoses. A plan that came to nothing yet
    is replaced, so that a mistake in it can be mended.
    """
    path, ours = root / PLAN, plan.as_json()
    is_begun = any((root / name).exists() for name in ('demonstrations', 'probe', STORE))
    if is_begun and path.exists() and path.read_text(encoding='utf-8') != ours:
        raise InputError(
            f'{path} is another plan than this one; take a new folder, or the old plan to resume its diagnosis'
        )
    if is_begun and not path.exists():
        raise InputError(f'{root} holds no {PLAN}, and folders of another diagnosis; take a new folder')
    write_whole(path, ours)
