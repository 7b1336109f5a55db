"""Small results of diagnoses, drawn from fixed seeds: what `robotrials audit` writes after an evening of training."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robotrials.verdict.audit import (
    DataSource,
    InstanceOutcome,
    MixScore,
    Protocol,
    ReportedScore,
    RunOutcomes,
    ScoreKind,
    SourcePoint,
    SourceProtocol,
    TrainingMix,
    shortcut,
)
from robotrials.verdict.audit.datasource import write_datasource
from robotrials.verdict.audit.mix import mixes, write_mix
from robotrials.verdict.audit.shortcut import ProbeFacts
from robotrials.verdict.audit.sweep import ProbeSweep, SweepSetting


def write_shortcut(path: Path) -> None:
    """A probe on a suite of ten tasks: four checkpoints, three variants, and scores that others reported."""
    rng = np.random.default_rng(11)
    hardness = rng.random((10, 50))

    def run(name: str, skill: float, step: int | None = None) -> RunOutcomes:
        passed = hardness + rng.normal(0.0, 0.05, hardness.shape) < skill
        outcomes = [
            InstanceOutcome(f'task_{t}', f'instance={i}', int(passed[t, i]), start=f'task_{t} instance={i}')
            for t, i in np.ndindex(10, 50)
        ]
        return RunOutcomes(name, tuple(outcomes), step)

    steps = {10_000: 0.71, 20_000: 0.86, 30_000: 0.93, 40_000: 0.91}
    rows = (
        ('a foundation policy', '84.7', 'foundation'),
        ('the best', '96.4', 'other'),
        ('with RL', '98.2', 'rl-finetuned'),
    )
    found = shortcut(
        [run(f'step {step}', skill, step) for step, skill in steps.items()],
        [run('blind', 0.12), run('proprioception', 0.08), run('shuffled', 0.90)],
        reported=[ReportedScore(policy=p, score=s, unit='percent', kind=ScoreKind(k)) for p, s, k in rows],
        official=Protocol(10, 50), rng=rng, title='a suite of ten tasks',
        probe=ProbeFacts(encoder='conv', parameters=412_000, task_input='id', demonstrations=500, mid_motion=0,
                         sweep=_sweep()),
    )  # fmt: skip
    path.write_text(found.as_json(), encoding='utf-8')


def _sweep() -> ProbeSweep:
    losses = {(3e-4, 20_000): 0.0142, (3e-4, 40_000): 0.0119, (1e-3, 20_000): 0.0111, (1e-3, 40_000): 0.0098}
    return ProbeSweep(
        settings=tuple(
            SweepSetting(learning_rate=rate, augmentation=0.25, steps=steps, validation_loss=loss)
            for (rate, steps), loss in losses.items()
        )
    )


def write_datasource_case(path: Path) -> None:
    """Two tasks at three distances; the score falls with the distance."""
    rng = np.random.default_rng(12)
    points = [
        SourcePoint(
            task=task, asked_m=asked_m, n_demonstrations=120, n_tried=131,
            outcomes=tuple(int(v) for v in rng.random(24) < skill),
            nearest_m=tuple(asked_m + rng.uniform(0, 0.004, 24)), nearest_deg=tuple(rng.uniform(0, 15, 24)),
            images={'pixels': tuple(rng.uniform(0.1, 0.3, 24) + 5 * asked_m)}, n_same=0,
            n_leaked=24 if asked_m == 0 else 0, parameters=412_000,
        )
        for task in ('single_block', 'two_block')
        for asked_m, skill in ((0.0, 0.9), (0.02, 0.7), (0.1, 0.2))
    ]  # fmt: skip
    write_datasource(
        DataSource(protocol=SourceProtocol(host='tabletop', learner='probe', seed=1), points=tuple(points)), path
    )


def write_mix_case(path: Path) -> None:
    """Four tasks, trained on alone, three together and all together."""
    rng = np.random.default_rng(13)
    tasks = ('single_block', 'two_block', 'three_block', 'spatial')
    scores = [
        MixScore(
            mix=name, task=task, trained_on=sources[task],
            outcomes=tuple(int(v) for v in rng.random(24) < (0.7 if task in sources[task] else 0.05)),
        )
        for name, sources in mixes(tasks, tasks[:3]).items()
        for task in tasks
    ]  # fmt: skip
    write_mix(TrainingMix(host='tabletop', learner='probe', scores=tuple(scores)), path)
