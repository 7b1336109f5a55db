"""The probe on the embedded cell: trained on its scripted expert, it solves what it cannot solve blind.

Start states of the evaluation are drawn by the plan; none is among those of the demonstrations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from trialist.declaration import read_table
from trialist.episodes import Outcome, read_store
from trialist.policies.probe import ProbeOptions, TrainedProbe, collect_demonstrations, train_probe, variants
from trialist.run import Setup, TrialPlan, close_trial, run_trial
from trialist.run.plan import HostEntry, PolicyEntry
from trialist.stats import Rate, wilson

pytestmark = [pytest.mark.training, pytest.mark.usefixtures('probe_environment')]
CAMERAS = {'cameras': ['front', 'side', 'wrist'], 'image_size': [96, 96], 'shadows': False}
EXPERT = PolicyEntry(
    'scripted',
    {
        'temper': 'reference',
        'changes': {'margin_m': 0.02, 'speed_m_s': 0.6, 'near_speed_m_s': 0.24, 'near_acceleration_m_s2': 1.8},
    },
)
INSTANCES = {'single_block': 4, 'spatial': 8}
OPTIONS = ProbeOptions(
    steps=1200,
    execute=8,
    crops={'front': (0.25, 0.8, 0.05, 0.95), 'side': (0.15, 0.7, 0.2, 0.8), 'wrist': (0.1, 1.0, 0.1, 0.9)},
)


@dataclass(frozen=True, slots=True)
class Shown:
    """What came of one task."""

    full: Rate
    blind: Rate
    trained: TrainedProbe


def show(task: str, folder: Path, *, demonstrations: int, episodes: int, seed: int) -> Shown:
    """Collect, train the probe and its blind variant, and run both in one trial from the same start states."""
    made = collect_demonstrations(
        HostEntry('tabletop', {'state': 'privileged', **CAMERAS}),
        EXPERT,
        [Setup(task=task, seed=1000 + i, instance=i % INSTANCES[task]) for i in range(demonstrations)],
        folder / 'demos',
        state_width=8,
        noise=[0.005] * 3 + [0.012] * 3,
        seed=7,
        task_key='instruction' if task == 'spatial' else 'task',
        time_cap_s=15.0,
    )
    options = {name: variants(OPTIONS)[name] for name in ('full', 'blind')}
    trained = {name: train_probe(made, o, folder / name) for name, o in options.items()}
    rates = evaluate(task, {name: p.last.folder for name, p in trained.items()}, folder, episodes=episodes, seed=seed)
    seeds = {e.seed for e in made.facts.episodes}
    assert not seeds & {e.seed for e in read_store(folder / 'store').episodes()}
    return Shown(rates['full'], rates['blind'], trained['full'])


def evaluate(task: str, checkpoints: Mapping[str, Path], folder: Path, *, episodes: int, seed: int) -> dict[str, Rate]:
    """How often each checkpoint succeeds, in one trial."""
    policies = {name: {'use': 'probe', 'options': {'path': str(path)}} for name, path in checkpoints.items()}
    plan = read_table(
        TrialPlan,
        {
            'title': f'the probe on {task}',
            'seed': seed,
            'host': {'use': 'tabletop', 'options': CAMERAS},
            'tasks': [{'name': task}],
            'policies': policies,
            'episodes_per_cell': episodes,
            'time_cap_s': 12.0,
            'recording': {'film': 'off', 'rgbd': 'off'},
        },
        where='plan',
    )
    run_trial(plan, folder / 'store', workers=0)
    close_trial(plan, folder / 'store', by='test')
    found = list(read_store(folder / 'store').episodes())
    assert all(e.is_valid for e in found)
    own = {name: [e.outcome is Outcome.SUCCESS for e in found if e.policy == name] for name in checkpoints}
    assert {len(outcomes) for outcomes in own.values()} == {episodes}
    return {name: Rate(sum(outcomes), len(outcomes)) for name, outcomes in own.items()}


def test_the_probe_solves_single_block_and_not_blind(tmp_path: Path) -> None:
    shown = show('single_block', tmp_path, demonstrations=220, episodes=40, seed=2026)
    assert shown.trained.cpu_seconds < 15 * 60
    print(f'single_block: {shown.full} {shown.full.interval} against blind {shown.blind} {shown.blind.interval}')
    full, blind = (wilson(rate.count, rate.n) for rate in (shown.full, shown.blind))
    assert full.low > blind.high


def test_spatial_has_its_intervals_too(tmp_path: Path) -> None:
    """Eight instructions, eight numbers; whether the probe solves it is not asked here, only that it can be told."""
    shown = show('spatial', tmp_path, demonstrations=240, episodes=40, seed=2027)
    print(f'spatial: {shown.full} {shown.full.interval} against blind {shown.blind} {shown.blind.interval}')
    assert (shown.full.n, shown.blind.n) == (40, 40)
