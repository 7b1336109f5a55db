"""Where episodes begin, as a host itself shows it: objects as numbers for distances, and the pictures a policy gets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.old_name import SOURCE_SEED
from robotrials.record import read_store
from robotrials.run.blinding import derived_seed
from robotrials.run.conditions import Displacement, condition_parameters
from robotrials.run.host import Ability, Host
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
from robotrials.run.schedule import trial_slots
from robotrials.run.seam import Setup
from robotrials.run.station import setup_of
from robotrials.study.evaluate import SCORES_ALONE, EvaluationOptions, evaluation_plan
from robotrials.verdict.audit.datasource import StartStates, state_distance

TARGET, GOAL = 'target', 'goal'
FloatArray = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class ObservedStarts:
    """What a host shows right after the reset of each set-up."""

    states: StartStates
    images: Mapping[str, NDArray[np.uint8]]  # camera -> (n, H, W, 3)
    instructions: tuple[str, ...]


def observe_starts(host: Host, setups: Iterable[Setup], *, turns: int) -> ObservedStarts:
    """Reset the host once for each set-up and look; no step is taken."""
    asked = list(setups)
    seen = [observe_start(host, setup) for setup in asked]
    if not seen:
        raise InputError('no set-up was given; wanted at least one start to look at')
    names = tuple(seen[0].objects)
    for setup, start in zip(asked, seen, strict=True):
        if tuple(start.objects) != names:
            raise InputError(
                f'task {setup.task}, seed {setup.seed}: objects {", ".join(start.objects)}, wanted {", ".join(names)}; '
                'distances compare starts of the same objects'
            )
    poses = np.array([[start.objects[name] for name in names] for start in seen])
    return ObservedStarts(
        states=states_of(names, poses, turns=turns),
        images={c: np.stack([start.images[c] for start in seen]) for c in seen[0].images},
        instructions=tuple(start.instruction for start in seen),
    )


@dataclass(frozen=True, slots=True, eq=False)
class ObservedStart:
    objects: Mapping[str, FloatArray]  # role -> (x, y, z, yaw)
    images: Mapping[str, NDArray[np.uint8]]
    instruction: str

    @property
    def numbers(self) -> FloatArray:
        """One row of a start state: (x, y, z, yaw) of every object."""
        return np.concatenate(list(self.objects.values()))


def observe_start(host: Host, setup: Setup) -> ObservedStart:
    """The target, the other objects in the order of their names, the goal: roles, since names change with colours."""
    if not {Ability.SIGNALS, Ability.SCENE} <= host.abilities:
        raise InputError(f'host {host.spec.name} shows no object poses and no target; distances need both')
    host.prepare(setup)
    observation = host.reset(setup.task, seed=setup.seed)
    poses: Mapping[str, FloatArray] = host.signals().get('body_pose', {})
    scene = host.scene()
    if not poses or scene.target_object not in poses:
        raise InputError(
            f'host {host.spec.name}, task {setup.task}: no pose of the target object is known at the start'
        )
    objects = {TARGET: _planar(poses[scene.target_object])}
    others = [pose for name, pose in sorted(poses.items()) if name != scene.target_object]
    objects |= {f'object {number}': _planar(pose) for number, pose in enumerate(others, start=2)}
    if scene.target_center_m is not None:
        rotation = np.array(scene.target_rotation if scene.target_rotation is not None else np.eye(3).ravel())
        yaw = math.atan2(rotation[3], rotation[0])
        objects[GOAL] = np.array([*scene.target_center_m, yaw])
    instruction = setup.instruction or host.instruction()
    return ObservedStart(objects, dict(observation.images), instruction)


def states_of(names: Sequence[str], poses: FloatArray, *, turns: int) -> StartStates:
    """Start states from (n, k, 4) rows of x, y, z and yaw; every object has the same symmetry."""
    return StartStates(tuple(names), poses[..., :3], poses[..., 3], (turns,) * len(names))


def _planar(pose: FloatArray) -> FloatArray:
    """(x, y, z, yaw) of a pose (x, y, z, qw, qx, qy, qz)."""
    x, y, z, qw, qx, qy, qz = (float(v) for v in pose)
    return np.array([x, y, z, math.atan2(2 * (qw * qz + qx * qy), 1 - 2 * (qy * qy + qz * qz))])


# The test's start states, and training starts at a chosen distance from them.

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
        count = 0
        for draw in range(DRAWS * per_start):
            if count == per_start or (draw >= DRAWS and not count):
                break
            drawn = _displaced(setup, distance_m, jitter_m, turn_rad, derived_seed(SOURCE_SEED, seed, number, draw))
            try:
                start = observe_start(host, drawn)
            except InputError:
                continue  # no room at this distance in this direction
            if _is_far_enough(start.numbers, observed, distance_m):
                kept.append(TrainingStart(drawn, number, tuple(start.numbers.tolist())))
                count += 1
        if count < per_start:
            raise InputError(
                f'test start {number} of task {setup.task}: {count} of {per_start} training starts at {distance_m:g} m '
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
    outcomes = {
        e.instance: int(bool(e.success)) for e in read_store(store).episodes() if e.is_valid and e.policy == policy
    }
    lacking = sorted(set(range(grid)) - set(outcomes))
    if lacking:
        raise NotEstimable(
            f'{store}: policy {policy} has no valid episode at start states {lacking}; the record says '
            'why: mend that, and run it again in a new folder'
        )
    return tuple(outcomes[number] for number in range(grid))
