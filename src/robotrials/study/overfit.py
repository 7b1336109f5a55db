"""The overfitting diagnostic: the official grid again, fresh samples, and one factor changed at a time, matched.

Every run is an ordinary trial of the same policies: the calibration repeats the grid's start states, a change keeps
them and alters one factor, and a fresh sample draws others from the same generator. How often each of them occurs in
the training data is stated, or counted from demonstrations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.policies.probe import Demonstrations, read_demonstrations
from robotrials.policies.probe.collect import using_host
from robotrials.policies.probe.demonstration import plain_words
from robotrials.record import read_store
from robotrials.run import TrialPlan, run_trial
from robotrials.run.conditions import CHAOS, Support, condition_parameters
from robotrials.run.conditions.condition import CONDITIONS
from robotrials.run.host import Ability, Host
from robotrials.run.plan import ConditionEntry, HostEntry, PolicyEntry, TaskEntry
from robotrials.run.seam import Setup
from robotrials.stats.interval import check_open_unit
from robotrials.study.evaluate import counted_by_success, grid_plan, start_setups, work_folder
from robotrials.verdict.audit import InstanceOutcome, outcomes_of
from robotrials.verdict.audit.overfit import (
    LEAST_SHARE,
    OFFICIAL,
    ChangeKind,
    Overfit,
    TrainingCount,
    overfit,
    write_overfit,
)
from robotrials.verdict.robustness import StartPlace, StartSpread, start_spreads, told_spread

RESULT = 'overfit.json'
CALIBRATION, FRESH = 'calibration', 'fresh sample'
MEASURED_STARTS = 24  # of each run: a reset of a simulator may take seconds
FRESH_SHIFT = 1_000_003  # between the seeds of the grid and of the fresh sample
FloatArray = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverfitChange:
    """One altered factor: another task on the same start states (a reversed instruction), or a condition."""

    name: str
    task: str = ''
    condition: str = ''
    severity: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name in (CALIBRATION, FRESH, OFFICIAL):
            raise InputError(f'a change is named {self.name!r}, which has a meaning of its own; name it otherwise')
        if not re.fullmatch(r'\w[\w .,+=-]*', self.name):
            raise InputError(
                f'a change is named {self.name!r}, wanted letters, digits and spaces: a folder has its name'
            )
        if bool(self.task) == bool(self.condition):
            raise InputError(f'change {self.name}: wanted either a task or a condition')
        if self.condition:
            self.entry()

    def entry(self) -> ConditionEntry:
        return ConditionEntry(name=self.condition, parameters=self.parameters, severity=self.severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverfitPlan:
    """What to run; the defaults of `grid`, `repeats` and `fresh` are those of Appendix A.2.

    `training` states counts. `demonstrations` is a folder to count in instead: an occurrence begins with the same words
    and with every object within `tolerance_m` of where one of the condition's start states has it.
    """

    task: str
    host: HostEntry
    policies: Mapping[str, PolicyEntry]
    changes: tuple[OverfitChange, ...] = ()
    stratum: str = ''
    grid: int = 24
    repeats: int = 12
    fresh: int = 288
    time_cap_s: float = 30.0
    seed: int = 1
    level: float = 0.95
    least_share: float = LEAST_SHARE
    training: TrainingCount | None = None
    demonstrations: str = ''
    tolerance_m: float = 0.025

    def __post_init__(self) -> None:
        if not self.policies:
            raise InputError('no policy is named; wanted at least one under [policies]')
        folders = [run_folder(name) for name in (CALIBRATION, FRESH, *(c.name for c in self.changes))]
        if len(set(folders)) < len(folders):
            raise InputError(f'changes are named {[c.name for c in self.changes]}, wanted each once, spaces as hyphens')
        counted = {OFFICIAL, FRESH, *(c.name for c in self.changes)}
        for name in self.training.counts if self.training is not None else ():
            if name not in counted:
                raise UnknownName('change to count in [training]', name, counted)
        check_open_unit('level', self.level)
        if not 0 < self.least_share <= 1:
            raise InputError(f'least_share is {self.least_share}, wanted above 0 and at most 1')
        if not self.changes and not self.fresh:
            raise InputError('wanted a fresh sample or a change; neither is asked for')
        if self.training is not None and self.demonstrations:
            raise InputError('training counts are stated and demonstrations are to be counted; wanted one of the two')
        if self.tolerance_m < 0:
            raise InputError(f'tolerance_m is {self.tolerance_m}, wanted >= 0')


def tabletop_changes(task: str) -> tuple[OverfitChange, ...]:
    """What can be changed on the embedded cell: poses over the whole platform, another block asked for, a support."""
    other = {'choose_red': 'choose_green', 'choose_green': 'choose_blue', 'choose_blue': 'choose_red'}
    reverse = (OverfitChange(name='reversed instruction', task=other[task]),) if task in other else ()
    support: dict[str, Any] = condition_parameters(Support.of(0.04))
    return (
        OverfitChange(name='resampled poses', condition='layout', severity=1.0), *reverse,
        OverfitChange(name='changed support', condition='support', parameters=support),
    )  # fmt: skip


def run_overfit(
    plan: OverfitPlan, folder: Path | str, *, workers: int = 1, tell: Callable[[str], None] | None = None
) -> Overfit:
    """The whole diagnostic into `folder`, where it resumes; writes overfit.json there."""
    runs, missing = _runs(plan)
    with work_folder(folder) as work:
        return _run(plan, work, runs, missing, workers, tell or (lambda text: None))


def _run(
    plan: OverfitPlan, work: Path, runs: Mapping[str, TrialPlan], missing: Mapping[str, str], workers: int,
    tell: Callable[[str], None],
) -> Overfit:  # fmt: skip
    training = plan.training
    if plan.demonstrations:
        training = count_training(plan, read_demonstrations(plan.demonstrations), runs)
    scored = {}
    for name, trial in runs.items():
        tell(f'{name}: {len(trial.policies)} policies')
        store = work / run_folder(name)
        state = run_trial(trial, store, workers=workers)
        if state.n_given_up or not state.is_complete:
            raise NotEstimable(f'{store}: {state.n_given_up} episodes came to nothing; a drop would leave them out')
        scored[name] = {policy: _outcomes(store, policy) for policy in plan.policies}
    result = overfit(
        scored[CALIBRATION],
        {name: (_kind(name), outcomes) for name, outcomes in scored.items() if name != CALIBRATION},
        host=plan.host.use, task=plan.task, training=training, level=plan.level,
        least_share=plan.least_share, missing=missing,
    )  # fmt: skip
    spreads = _spreads(plan, runs)
    spread_text = {name: told_spread([spread], name) for name, spread in spreads.items()}
    result = replace(
        result, starts=spread_text, still=tuple(name for name, spread in spreads.items() if spread.target_stays)
    )
    write_overfit(result, work / RESULT)
    return result


def _spreads(plan: OverfitPlan, runs: Mapping[str, TrialPlan]) -> dict[str, StartSpread]:
    """Name of a change -> how far its first starts lie from the calibration's, where the host shows poses.

    A change may be another task: it is the calibration's starts that it is held against.
    """
    places = []
    with using_host(plan.host) as host:
        if Ability.SIGNALS not in host.abilities:
            return {}
        for name, trial in runs.items():
            for setup in start_setups(trial)[:MEASURED_STARTS]:
                host.prepare(setup)
                host.reset(setup.task, seed=setup.seed)
                signals = host.signals()
                target = (signals.get('body_pose') or {}).get(host.scene().target_object)
                places.append(StartPlace.of('', name, target=target, arm=signals.get('ee_pose')))
    return {spread.condition: spread for spread in start_spreads(places, baseline=CALIBRATION)}


def run_folder(name: str) -> str:
    """The folder of a run in the work folder."""
    return name.replace(' ', '-')


def _outcomes(store: Path, policy: str) -> tuple[InstanceOutcome, ...]:
    return outcomes_of(counted_by_success(read_store(store).episodes()), policy=policy, where=str(store))


def _kind(name: str) -> ChangeKind:
    return ChangeKind.FRESH if name == FRESH else ChangeKind.ALTERED


def _runs(plan: OverfitPlan) -> tuple[dict[str, TrialPlan], dict[str, str]]:
    """Name of a run -> its trial, and what this host cannot bring about."""
    with using_host(plan.host) as host:
        spec = host.spec
    if spec.tasks and plan.task not in spec.tasks:
        raise UnknownName('task', plan.task, spec.tasks)
    runs = {CALIBRATION: _trial(plan, plan.task)}
    if plan.fresh:
        runs[FRESH] = _trial(plan, plan.task, grid=plan.fresh, repeats=1, seed=plan.seed + FRESH_SHIFT)
    missing = {}
    for change in plan.changes:
        if change.task and spec.tasks and change.task not in spec.tasks:
            missing[change.name] = f'host {spec.name} has no task {change.task}'
        elif change.condition and change.condition not in {*spec.conditions, *CONDITIONS.names(), CHAOS}:
            raise UnknownName('condition', change.condition, [*spec.conditions, *CONDITIONS.names()])
        elif change.condition and change.condition not in spec.conditions:
            missing[change.name] = f'host {spec.name} cannot bring about {change.condition}'
        elif change.task:
            runs[change.name] = _trial(plan, change.task)
        else:
            runs[change.name] = replace(_trial(plan, plan.task), conditions=(change.entry(),))
    return runs, missing


def _trial(
    plan: OverfitPlan, task: str, *, grid: int | None = None, repeats: int | None = None, seed: int | None = None
) -> TrialPlan:
    made = grid_plan(
        plan.host, plan.policies, task=task, seed=plan.seed if seed is None else seed, grid=grid or plan.grid,
        repeats=repeats or plan.repeats, time_cap_s=plan.time_cap_s, stratum=plan.stratum,
        title=f'overfit: {plan.task}',
    )  # fmt: skip
    return replace(made, tasks=(TaskEntry(name=task, scene=plan.task),))  # the same seeds, whatever is asked for


def count_training(plan: OverfitPlan, demonstrations: Demonstrations, runs: Mapping[str, TrialPlan]) -> TrainingCount:
    """How many demonstrations begin as a start state of each run does; the calibration is the official condition."""
    if demonstrations.start_state is None:
        raise InputError(
            f'{demonstrations.folder}: no start states, so nothing can be counted; state the counts in [training]'
        )
    counts = {}
    with using_host(plan.host) as host:
        for name, trial in runs.items():
            starts = [_start(host, setup) for setup in start_setups(trial)]
            counts[OFFICIAL if name == CALIBRATION else name] = _occurrences(demonstrations, starts, plan.tolerance_m)
    basis = (
        f'demonstrations asked for in the same words that begin with every object and the goal within '
        f'{1000 * plan.tolerance_m:g} mm of a start state of the condition'
    )
    return TrainingCount(total=demonstrations.n_episodes, counts=counts, basis=basis)


def _occurrences(demonstrations: Demonstrations, starts: Sequence[tuple[FloatArray, str]], tolerance_m: float) -> int:
    assert demonstrations.start_state is not None
    count = 0
    for numbers, facts in zip(demonstrations.start_state, demonstrations.facts.episodes, strict=True):
        places = start_places(numbers)
        words = plain_words(facts.instruction)
        count += any(
            (not words or not asked or words == plain_words(asked))
            and places.shape == other.shape
            and float(np.linalg.norm(places - other, axis=1).max()) <= tolerance_m
            for other, asked in starts
        )
    return count


def start_places(numbers: FloatArray) -> FloatArray:
    """(k, 3) positions in a start state: poses of seven numbers each, then perhaps the goal's three."""
    poses, rest = divmod(len(numbers), 7)
    if rest not in (0, 3):
        raise InputError(f'a start state of {len(numbers)} numbers, wanted poses of 7 and perhaps a goal of 3')
    places = np.asarray(numbers[: 7 * poses]).reshape(poses, 7)[:, :3]
    return np.vstack([places, numbers[-3:]]) if rest else places


def _start(host: Host, setup: Setup) -> tuple[FloatArray, str]:
    if Ability.SIGNALS not in host.abilities:
        raise InputError(f'host {host.spec.name} shows no poses; state the training counts instead of counting')
    host.prepare(setup)
    host.reset(setup.task, seed=setup.seed)
    poses = host.signals().get('body_pose') or {}
    places = [np.asarray(pose, dtype=float)[:3] for pose in poses.values()]
    target = host.scene().target_center_m
    words = setup.instruction or host.instruction()
    return np.array([*places, *([target] if target is not None else [])]), words
