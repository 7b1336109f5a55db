"""Success and time against delay on the embedded cell: the trial behind the table and the picture of the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.record import Store
from robotrials.run import TrialPlan, run_trial
from robotrials.value import read_table

DELAYS_S = (0.0, 0.1, 0.2, 0.3, 0.4)
TASKS = ('single_block', 'belt_fast')
POLICIES: Mapping[str, dict[str, Any]] = {
    'fast': {'use': 'scripted', 'options': {'temper': 'reference'}},
    'hasty': {'use': 'scripted', 'options': {'temper': 'hasty'}},
    'slow': {'use': 'scripted', 'options': {'temper': 'careful'}},
    'chunking': {'use': 'scripted', 'options': {'temper': 'reference', 'chunk_length': 5}},
}
WIRES = {'network_s': 0.5, 'transport_s': 0.5}
THINKING = {'inference_s': 1.0}


@dataclass(frozen=True, slots=True)
class Dose:
    """What came of one policy on one task at one delay."""

    task: str
    policy: str
    delay_s: float
    successes: int
    episodes: int
    median_s: float | None  # of the successes


def dose_plan(
    delay_s: float, *, episodes: int, tasks: Sequence[str] = TASKS, policies: Sequence[str] = tuple(POLICIES),
    shares: Mapping[str, float] = WIRES, **latency: Any,
) -> TrialPlan:  # fmt: skip
    """A trial in which every answer is late by `delay_s` in all, shared out as stated."""
    parts = {name: delay_s * share for name, share in shares.items()}
    values = {
        'seed': 21,
        'host': {'use': 'tabletop', 'options': {'state': 'privileged'}},
        'tasks': list(tasks),
        'policies': {name: POLICIES[name] for name in policies},
        'episodes_per_cell': episodes,
        'time_cap_s': 30.0,
        'loop': {'latency': {'mode': 'injected', **parts, **latency}},
        'recording': {'trajectories': False},
        'blinding': {'enabled': False},
    }
    return read_table(TrialPlan, values, where=f'latency of {delay_s:g} s')


def run_doses(folder: Path, delays_s: Sequence[float] = DELAYS_S, *, workers: int = 1, **options: Any) -> list[Dose]:
    """Run a trial for each delay, on the same start states."""
    doses = []
    for number, delay_s in enumerate(delays_s):
        plan = dose_plan(delay_s, **options)
        store = folder / f'dose-{number}'
        run_trial(plan, store, workers=workers)
        episodes = list(Store.open(store).episodes())
        for task in dict.fromkeys(t.name for t in plan.tasks):
            for policy in plan.policies:
                of_both = [e for e in episodes if e.task == task and e.policy == policy]
                times = [e.duration_s for e in of_both if e.success]
                median_s = float(np.median(times)) if times else None
                doses.append(Dose(task, policy, delay_s, len(times), len(of_both), median_s))
    return doses
