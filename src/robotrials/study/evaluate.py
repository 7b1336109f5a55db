"""Checkpoints and variants as the policies of one ordinary trial, under the benchmark's own protocol.

Where episodes begin, as a host itself shows it: objects as numbers for distances, and the pictures a policy gets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable, StoreError
from robotrials.old_name import SOURCE_SEED
from robotrials.record import Episode, read_store
from robotrials.record.folder import held_lock
from robotrials.run import TrialPlan, run_trial
from robotrials.run.blinding import derived_seed
from robotrials.run.conditions import Displacement, condition_parameters
from robotrials.run.host import Ability, Host
from robotrials.run.plan import (
    BlindingOptions,
    FaultOptions,
    FaultOutcome,
    HostEntry,
    PolicyEntry,
    RecordingOptions,
    StratumEntry,
    TaskEntry,
    WatchdogOptions,
)
from robotrials.run.schedule import Report, trial_slots
from robotrials.run.seam import Setup
from robotrials.run.station import setup_of
from robotrials.verdict.audit import Benchmark, InstanceOutcome, find_benchmark, outcomes_of
from robotrials.verdict.audit.datasource import StartStates, state_distance
from robotrials.verdict.audit.outcome import instances_of

SCORES_ALONE = RecordingOptions(trajectories=False, film=False, rgbd='off')
# Counted as a failure, a variant that answers nonsense would show that the score needs what it lacks.
FAULTS = FaultOptions(policy_answer=FaultOutcome.INVALID, policy_late=FaultOutcome.INVALID)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOptions:
    """How a diagnosis evaluates. What is not given is the benchmark's own, where the host knows it.

    Every policy meets the same start states. `seed` must not be that of the demonstrations.
    """

    tasks: tuple[TaskEntry, ...] = ()
    episodes_per_task: int | None = None
    time_cap_s: float | None = None
    seed: int = 2026
    repeats: int = 1
    watchdog: WatchdogOptions = field(default_factory=lambda: WatchdogOptions(host_s=180.0))
    faults: FaultOptions = field(default_factory=lambda: FAULTS)
    recording: RecordingOptions = SCORES_ALONE


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialProtocol:
    """A benchmark's own protocol on a host that knows it: its tasks, episodes per task and step cap."""

    benchmark: Benchmark
    tasks: tuple[str, ...]
    step_cap: int
    control_rate_hz: float
    initial_states: str  # how the host's statement of its start states begins

    @property
    def time_cap_s(self) -> float:
        return self.step_cap / self.control_rate_hz


def official_protocol(host: HostEntry) -> OfficialProtocol | None:
    """The protocol that published scores on this host are under; None for a host that has none."""
    if host.use != 'libero':
        return None
    from robotrials.worlds.libero.suite import CONTROL_RATE_HZ, find_suite

    suite = find_suite(str(host.options.get('suite', 'libero-spatial')))
    try:
        benchmark = find_benchmark(suite.id)
    except InputError:  # libero-90 is trained on, not reported
        return None
    return OfficialProtocol(
        benchmark=benchmark,
        tasks=suite.tasks,
        step_cap=suite.step_cap,
        control_rate_hz=CONTROL_RATE_HZ,
        initial_states='fixed, by instance',
    )


def evaluation_plan(
    host: HostEntry, policies: Mapping[str, PolicyEntry], options: EvaluationOptions, *, title: str = ''
) -> TrialPlan:
    """One trial of all policies on the same start states; unblinded, because nobody judges what a simulator counts."""
    official = official_protocol(host)
    tasks = options.tasks or tuple(TaskEntry(name) for name in (official.tasks if official else ()))
    samples, cap_s = options.episodes_per_task, options.time_cap_s
    if official is not None:
        samples = official.benchmark.protocol.samples if samples is None else samples
        cap_s = official.time_cap_s if cap_s is None else cap_s
    for name, value in (('tasks', tasks or None), ('episodes_per_task', samples), ('time_cap_s', cap_s)):
        if value is None:
            raise InputError(
                f'[evaluation] {name} is missing, and host {host.use} states no official protocol; give it'
            )
    return TrialPlan(
        host=host,
        policies=policies,
        tasks=tasks,
        seed=options.seed,
        title=title,
        benchmark=official.benchmark.name if official else host.use,
        episodes_per_cell=samples,
        repeats=options.repeats,
        time_cap_s=cap_s,
        watchdog=options.watchdog,
        faults=options.faults,
        recording=options.recording,
        blinding=BlindingOptions(enabled=False),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """What a trial of checkpoints and variants came to, as its record says it."""

    outcomes: Mapping[str, tuple[InstanceOutcome, ...]]  # an episode that stayed INVALID is absent from them
    instances: frozenset[tuple[str, str]]  # all that were run, whatever came of them
    max_score: int
    deviations: tuple[str, ...]  # where the trial left the official protocol


def run_evaluation(plan: TrialPlan, store: Path | str, *, workers: int = 1, report: Report | None = None) -> Evaluated:
    """Run what is left of the trial, and read every policy's outcomes back from its record."""
    run = run_trial(plan, store, workers=workers, report=report)
    if not run.is_complete:
        raise StoreError(
            f'{store}: {run.n_valid} of {run.n_total} episodes are valid and the run was stopped; the same command '
            'resumes it'
        )
    opened = read_store(store)
    episodes = counted_by_success(opened.episodes())
    ids = [e.provenance_id for e in episodes if e.is_valid and e.provenance_id]
    stated = opened.provenance(ids[-1]).protocol if ids else {}
    return Evaluated(
        {name: _outcomes(episodes, name, str(store)) for name in plan.policies},
        instances_of(episodes),
        _max_score(episodes, str(store)),
        official_deviations(plan, stated),
    )


def counted_by_success(episodes: Iterable[Episode]) -> list[Episode]:
    """A score out of 1 beside a success (such as an IoU) is quality: the success is counted."""
    return [
        e.replace(score=None, max_score=None) if e.max_score == 1 and e.success is not None else e for e in episodes
    ]


def _outcomes(episodes: Sequence[Episode], policy: str, where: str) -> tuple[InstanceOutcome, ...]:
    try:
        return outcomes_of(episodes, policy=policy, where=where)
    except NotEstimable as error:
        why = next((e.reason for e in episodes if e.policy == policy and not e.is_valid), '')
        raise NotEstimable(f'{error}{f"; the first says: {why}" if why else ""}') from error


def _max_score(episodes: Sequence[Episode], where: str) -> int:
    """The full score that the record states; 1 where episodes only succeed or fail."""
    stated = {e.max_score for e in episodes if e.is_valid and e.score is not None}
    if not stated:
        return 1
    most = next(iter(stated))
    if len(stated) > 1 or most is None or most != int(most):
        raise InputError(f'{where}: episodes have scores out of {stated}; wanted one whole full score for all')
    return int(most)


def official_deviations(plan: TrialPlan, stated: Mapping[str, str]) -> tuple[str, ...]:
    """Where a trial leaves the official protocol of its host, by the plan and by what the host `stated` of itself."""
    official = official_protocol(plan.host)
    if official is None:
        return ()
    shape, deviations = official.benchmark.protocol, []
    if (names := {t.name for t in plan.tasks}) != set(official.tasks):
        deviations.append(f'{len(names)} of the {shape.tasks} official tasks')
    if plan.episodes_in_a_cell() != shape.samples or plan.repeats != 1:
        deviations.append(
            f'{plan.episodes_in_a_cell()} start states x {plan.repeats} per task, official {shape.samples} x 1'
        )
    steps = round((plan.time_cap_s or 0.0) * official.control_rate_hz)
    if steps != official.step_cap:
        deviations.append(f'episodes end at {steps} steps, official {official.step_cap}')
    if not stated.get('initial_states', '').startswith(official.initial_states):
        deviations.append(
            f'start states: {stated.get("initial_states") or "not stated"}, official {official.initial_states}'
        )
    if stated.get('step_cap') not in (None, str(official.step_cap)):
        deviations.append(f'the host ends episodes at {stated["step_cap"]} steps, official {official.step_cap}')
    if stated.get('assets_note'):
        deviations.append(f'assets: {stated["assets_note"]}')
    return tuple(deviations)


# The folder that a diagnosis works in: one process at a time.

BUSY = 'another process is at work in this folder; wait for it to end, or name another folder'


@contextmanager
def work_folder(folder: Path | str) -> Iterator[Path]:
    """Make the folder, and hold it: two trainings that write to one folder would mix their states."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    with held_lock(root, '.lock', busy=BUSY):
        yield root


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
