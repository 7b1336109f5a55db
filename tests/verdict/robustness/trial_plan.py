"""The shipped robustness trial, with one more policy: a memory that plays back what the script did nominally."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from robotrials.run import TrialPlan, read_plan, run_trial
from robotrials.run.plan import BlindingOptions, ConditionEntry, PolicyEntry
from robotrials.worlds import cell

CONVENTION = {
    'control_mode': 'se3',
    'target': 'delta',
    'frame': 'base',
    'rotation': 'axis_angle',
    'gripper': 'open_is_one',
}
NOMINAL = (ConditionEntry('nominal'),)


def shipped_plan() -> TrialPlan:
    plan = read_plan(Path(cell.__file__).parent / 'robustness.toml')
    return dataclasses.replace(plan, blinding=BlindingOptions(enabled=False))


def with_memory(plan: TrialPlan, folder: Path, *, workers: int) -> TrialPlan:
    """The plan with the policy `memory`, whose record is made by running the script on the same start states."""
    recording = dataclasses.replace(plan.recording, trajectories=True)
    script = {'script': plan.policies['script']}
    first = dataclasses.replace(plan, policies=script, conditions=NOMINAL, recording=recording)
    run_trial(first, folder / 'record', workers=workers)
    options = {'store': str(folder / 'record'), 'policy': 'script', 'convention': CONVENTION, 'column': 'action_raw'}
    memory = PolicyEntry('replay', {**options, 'condition': 'nominal'})
    return dataclasses.replace(plan, policies={**plan.policies, 'memory': memory})


def smaller(
    plan: TrialPlan, *, policies: Sequence[str], conditions: Sequence[str], tasks: Sequence[str], episodes: int
) -> TrialPlan:
    """Some policies under some conditions, on a few start states."""
    return dataclasses.replace(
        plan,
        policies={name: plan.policies[name] for name in policies},
        conditions=tuple(c for c in plan.conditions if c.name in ('nominal', *conditions)),
        tasks=tuple(t for t in plan.tasks if t.name in tasks),
        episodes_per_cell=episodes,
    )
