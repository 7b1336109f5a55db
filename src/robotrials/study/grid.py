"""The test's start states, and training starts at a chosen distance from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.old_name import SOURCE_SEED
from robotrials.record import read_store
from robotrials.run.blinding import derived_seed
from robotrials.run.conditions import Displacement, condition_parameters
from robotrials.run.host import Host
from robotrials.run.plan import (
    FaultOptions,
    FaultOutcome,
    HostEntry,
    PolicyEntry,
    RecordingOptions,
    StratumEntry,
    TaskEntry,
    TrialPlan,
    WatchdogOptions,
)
from robotrials.run.rotation import trial_slots
from robotrials.run.seam import Setup
from robotrials.run.station import setup_of
from robotrials.study.evaluate import SCORES_ALONE, EvaluationOptions, evaluation_plan
from robotrials.study.start import ObservedStarts, observe_start, states_of
from robotrials.verdict.audit.distance import state_distance

DRAWS = 60
NEARER = 0.8  # a training start may come this share of its distance near to another test start, not nearer


def grid_plan(
    host: HostEntry,
    policies: Mapping[str, PolicyEntry],
    *,
    task: str,
    seed: int,
    grid: int,
    time_cap_s: float,
    stratum: str = '',
    title: str = '',
    repeats: int = 1,
    recording: RecordingOptions = SCORES_ALONE,
) -> TrialPlan:
    """The evaluation of one task, on start states that follow from task, stratum, seed and number alone.

    A policy's fault is INVALID here and ends the diagnosis: counted as a failure it would make a drop.
    """
    options = EvaluationOptions(
        tasks=(TaskEntry(name=task),), episodes_per_task=grid, time_cap_s=time_cap_s, seed=seed, repeats=repeats,
        watchdog=WatchdogOptions(), recording=recording,
        faults=FaultOptions(attempts=2, policy_answer=FaultOutcome.INVALID, policy_late=FaultOutcome.INVALID),
    )  # fmt: skip
    plan = evaluation_plan(host, policies, options, title=title)
    strata = (StratumEntry(name=stratum),) if stratum else ()
    return replace(plan, strata=strata, benchmark=host.use)  # a grid of our own is not the official benchmark


def start_setups(plan: TrialPlan) -> tuple[Setup, ...]:
    """Every start state of a plan once, in the order of their numbers."""
    slots = {slot.instance: slot for slot in trial_slots(plan)}
    return tuple(setup_of(slots[number]) for number in sorted(slots))


@dataclass(frozen=True, slots=True)
class TrainingStart:
    """A set-up to demonstrate, the test start it was displaced from, and what lies where in it."""

    setup: Setup
    test_start: int
    numbers: tuple[float, ...]  # (x, y, z, yaw) of every object


def displaced_starts(
    host: Host,
    test: Sequence[Setup],
    observed: ObservedStarts,
    *,
    distance_m: float,
    per_start: int,
    jitter_m: float,
    turn_rad: float,
    seed: int,
) -> tuple[TrainingStart, ...]:
    """`per_start` starts about each test start, displaced by `distance_m`, and not much nearer to any other test start.

    Directions are drawn; a draw that the host cannot lay out, or that lies near another test start, is drawn again.
    """
    kept: list[TrainingStart] = []
    for number, setup in enumerate(test):
        found = 0
        for draw in range(DRAWS * per_start):
            if found == per_start or (draw >= DRAWS and not found):
                break
            drawn = _displaced(setup, distance_m, jitter_m, turn_rad, derived_seed(SOURCE_SEED, seed, number, draw))
            try:
                start = observe_start(host, drawn)
            except InputError:
                continue  # no room at this distance in this direction
            if _is_far_enough(start.numbers, observed, distance_m):
                kept.append(TrainingStart(drawn, number, tuple(start.numbers.tolist())))
                found += 1
        if found < per_start:
            raise InputError(
                f'test start {number} of task {setup.task}: {found} of {per_start} training starts at {distance_m:g} m '
                f'that keep their distance from the other test starts were found; '
                'ask for a smaller distance or fewer test starts'
            )
    return tuple(kept)


def _displaced(setup: Setup, distance_m: float, jitter_m: float, turn_rad: float, seed: int) -> Setup:
    condition = Displacement.of(distance_m, jitter_m=jitter_m, turn_rad=turn_rad, seed=seed)
    parameters: dict[str, Any] = condition_parameters(condition)
    return replace(setup, condition=condition.kind, condition_parameters=parameters)


def _is_far_enough(numbers: Any, observed: ObservedStarts, distance_m: float) -> bool:
    states = observed.states
    row = states_of(states.names, np.asarray(numbers).reshape(1, -1, 4), turns=states.turns[0])
    metres, _ = state_distance(row, states)
    return bool(metres.min() >= NEARER * distance_m - 1e-9)


def start_table(starts: Sequence[TrainingStart], observed: ObservedStarts) -> Any:
    """The training starts as states that can be compared with the test's."""
    names = observed.states.names
    rows = np.array([s.numbers for s in starts]).reshape(len(starts), len(names), 4)
    return states_of(names, rows, turns=observed.states.turns[0])


def grid_outcomes(store: Path, policy: str, grid: int) -> tuple[int, ...]:
    """Whether a policy succeeded at each start state, in the order of their numbers; one that is missing raises."""
    found = {
        e.instance: int(bool(e.success)) for e in read_store(store).episodes() if e.is_valid and e.policy == policy
    }
    lacking = sorted(set(range(grid)) - set(found))
    if lacking:
        raise NotEstimable(
            f'{store}: policy {policy} has no valid episode at start states {lacking}; the record says '
            'why: mend that, and run it again in a new folder'
        )
    return tuple(found[number] for number in range(grid))
