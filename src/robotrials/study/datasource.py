"""The data-source diagnostic: collect beside the test, train, evaluate on the test, measure how close the data was.

The defaults are the protocol of Appendix A.3: a grid of 24 start states, five demonstrations about each, jittered by
2.5 mm and 15 degrees, successful ones only, padded at the end; chunks of five actions, all of them executed; no
augmentation, no checkpoint selection; evaluation without jitter. Everything lies in one folder and resumes there.

Training mixes on a host: policies trained on the demonstrations of one task, of some and of all, tested on each.

Start states of the test are those of a trial with another seed than the demonstrations', and are shared by all mixes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.policies.probe import (
    Demonstrations,
    DemonstrationWriter,
    ProbeOptions,
    collect_demonstrations,
    read_demonstrations,
    read_options,
    train_probe,
)
from robotrials.policies.probe.collect import using_host
from robotrials.policies.probe.option import TaskInput
from robotrials.run import run_trial
from robotrials.run.plan import HostEntry, PolicyEntry
from robotrials.run.seam import Setup
from robotrials.study.evaluate import (
    ObservedStarts,
    TrainingStart,
    displaced_starts,
    grid_outcomes,
    grid_plan,
    observe_starts,
    start_setups,
    start_table,
    work_folder,
)
from robotrials.verdict.audit.datasource import (
    EMBEDDINGS,
    DataSource,
    SourcePoint,
    SourceProtocol,
    StartStates,
    nearest_image,
    nearest_start,
    write_datasource,
)
from robotrials.verdict.audit.run_score import MixScore, TrainingMix, mixes, write_mix

RESULT = 'datasource.json'
LEARNERS = ('probe', 'lookup')
MOST_DEMONSTRATIONS = 100_000
TRIES = 4  # set-ups drawn for each demonstration that is wanted, since an expert fails at times
Tell = Callable[[str], None]


def _cell() -> HostEntry:
    """The embedded cell with two small pictures."""
    return HostEntry('tabletop', {'cameras': ['front', 'wrist'], 'image_size': [64, 64], 'shadows': False})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertEntry:
    """Who demonstrates: a policy, and what its host shows it beyond what a policy sees."""

    use: str = 'scripted'
    options: Mapping[str, Any] = field(default_factory=lambda: {'temper': 'reference'})
    host_options: Mapping[str, Any] = field(default_factory=lambda: {'state': 'privileged'})
    state_width: int | None = 8  # so many first numbers of its state are what a policy may see
    noise: tuple[float, ...] | float = 0.0  # pushes the executed action aside; the expert's own action is recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlan:
    """What to run. `distances_m`: how far training starts lie from the test's; 0 is the paper's own case.

    `turns`: after how many parts of a circle objects look the same (4 for blocks). `learner`: probe, or lookup, which
    plays the demonstration that begins most alike and needs no training.
    """

    tasks: tuple[str, ...] = ('single_block',)
    stratum: str = ''
    distances_m: tuple[float, ...] = (0.0, 0.02, 0.05, 0.1)
    grid: int = 24
    demonstrations_per_start: int = 5
    jitter_m: float = 0.0025
    turn_deg: float = 15.0
    padding_steps: int = 10
    learner: str = 'probe'
    chunk_length: int = 5
    execute: int = 5
    turns: int = 4
    tolerance_m: float = 0.005
    tolerance_deg: float = 15.0
    time_cap_s: float = 30.0
    seed: int = 1
    host: HostEntry = field(default_factory=_cell)
    expert: ExpertEntry = field(default_factory=ExpertEntry)
    probe: Mapping[str, Any] = field(default_factory=dict)  # ProbeOptions

    def __post_init__(self) -> None:
        if self.learner not in LEARNERS:
            raise UnknownName('learner', self.learner, LEARNERS)
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise InputError(f'tasks are {list(self.tasks)}, wanted at least one, each once')
        if (
            not self.distances_m
            or not all(0 <= d < math.inf for d in self.distances_m)
            or len(set(self.distances_m)) < len(self.distances_m)
        ):
            raise InputError(f'distances_m are {list(self.distances_m)}, wanted finite numbers >= 0, each once')
        for name in ('jitter_m', 'turn_deg', 'padding_steps', 'turns', 'tolerance_m', 'tolerance_deg', 'seed'):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f'{name} is {getattr(self, name)}, wanted >= 0')
        if self.grid * self.demonstrations_per_start > MOST_DEMONSTRATIONS:
            raise InputError(
                f'{self.demonstrations_per_start} demonstrations about each of {self.grid} start states, wanted at '
                f'most {MOST_DEMONSTRATIONS} in all'
            )
        for name in ('grid', 'demonstrations_per_start', 'chunk_length', 'execute'):
            if getattr(self, name) < (2 if name == 'grid' else 1):
                raise InputError(f'{name} is {getattr(self, name)}, wanted at least {2 if name == "grid" else 1}')
        self.probe_options()

    def probe_options(self) -> ProbeOptions:
        """One policy per task, without augmentation, held-out demonstrations or chosen checkpoints."""
        preset = {
            'chunk_length': self.chunk_length, 'execute': self.execute, 'augmentation': 0.0, 'task_input': 'none',
            'validation': 0.0, 'seed': self.seed,
        }  # fmt: skip
        return read_options({**preset, **self.probe}, where='[probe]')

    @property
    def protocol(self) -> SourceProtocol:
        return SourceProtocol(
            host=self.host.use, learner=self.learner, seed=self.seed, grid=self.grid,
            demonstrations_per_start=self.demonstrations_per_start, jitter_m=self.jitter_m, turn_deg=self.turn_deg,
            padding_steps=self.padding_steps, chunk_length=self.chunk_length, execute=self.execute,
            tolerance_m=self.tolerance_m, tolerance_deg=self.tolerance_deg,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Learned:
    """A policy to evaluate, and how many parameters it has, if any."""

    entry: PolicyEntry
    parameters: int | None


def _learn(demonstrations: Demonstrations, options: ProbeOptions, folder: Path, tell: Tell) -> Learned:
    """A probe at its last step: no checkpoint is chosen."""
    trained = train_probe(
        demonstrations, options, folder,
        progress=lambda p: tell(f'step {p.step} of {p.steps}, loss {p.training_loss:.4f}'),
    )  # fmt: skip
    entry = PolicyEntry('probe', {'path': str(trained.checkpoints[-1].folder)})
    return Learned(entry, int(trained.parameters['total']))


def run_data_source(plan: SourcePlan, folder: Path | str, *, workers: int = 1, tell: Tell | None = None) -> DataSource:
    """The whole diagnostic into `folder`; what is there already is kept. Writes datasource.json there."""
    tell = tell or (lambda text: None)
    with work_folder(folder) as work:
        points = [point for task in plan.tasks for point in _run_task(plan, task, work, workers, tell)]
        result = DataSource(protocol=plan.protocol, points=tuple(points))
        write_datasource(result, work / RESULT)
    return result


@dataclass(frozen=True, slots=True)
class _Trained:
    distance_m: float
    demonstrations: Demonstrations
    starts: tuple[TrainingStart, ...]  # of the demonstrations that were kept
    n_tried: int
    learned: Learned


def _run_task(plan: SourcePlan, task: str, work: Path, workers: int, tell: Tell) -> list[SourcePoint]:
    expert = PolicyEntry(plan.expert.use, plan.expert.options)
    test = start_setups(_evaluation(plan, task, {'expert': expert}))
    with using_host(plan.host) as host:
        observed = observe_starts(host, test, turns=plan.turns)
    trained = [_train_at(plan, task, d, test, observed, work, tell) for d in plan.distances_m]
    entries = {_name(t.distance_m): t.learned.entry for t in trained}
    tell(f'{task}: evaluating {len(entries)} policies on {plan.grid} start states')
    store = work / task / 'evaluation'
    trial = run_trial(_evaluation(plan, task, entries), store, workers=workers)
    if not trial.is_complete or trial.n_given_up:
        raise NotEstimable(
            f'{store}: {trial.n_given_up} episodes came to nothing; a score would leave start states out'
        )
    return [_point(plan, task, t, observed, grid_outcomes(store, _name(t.distance_m), plan.grid)) for t in trained]


def _evaluation(plan: SourcePlan, task: str, policies: Mapping[str, PolicyEntry]) -> Any:
    return grid_plan(
        plan.host, policies, task=task, seed=plan.seed, grid=plan.grid, time_cap_s=plan.time_cap_s,
        stratum=plan.stratum, title=f'data source: {task}',
    )  # fmt: skip


def _train_at(
    plan: SourcePlan,
    task: str,
    distance_m: float,
    test: Sequence[Setup],
    observed: ObservedStarts,
    work: Path,
    tell: Tell,
) -> _Trained:
    place = work / task / _name(distance_m)
    with using_host(HostEntry(plan.host.use, {**plan.host.options, 'cameras': []})) as host:
        starts = displaced_starts(
            host, test, observed, distance_m=distance_m, per_start=TRIES * plan.demonstrations_per_start,
            jitter_m=plan.jitter_m, turn_rad=math.radians(plan.turn_deg), seed=plan.seed,
        )  # fmt: skip

    def say(text: str) -> None:
        tell(f'{place.name}: {text}')

    demonstrations = _demonstrations(plan, starts, place / 'demonstrations', say)
    ids = [int(episode.id) for episode in demonstrations.facts.episodes]
    kept = tuple(starts[i] for i in ids)
    counts = Counter(start.test_start for start in kept)
    lacking = [number for number in range(len(test)) if counts[number] < plan.demonstrations_per_start]
    if lacking:
        raise NotEstimable(
            f'{place}: about test starts {lacking} the expert succeeded fewer than {plan.demonstrations_per_start} '
            f'times in {TRIES * plan.demonstrations_per_start}; it is no expert there'
        )
    last = {starts[i].test_start: i for i in ids}  # the tries of a test start end with its last demonstration
    tried = sum(i <= last[start.test_start] for i, start in enumerate(starts))
    if plan.learner == 'lookup':
        options = {'path': str(demonstrations.folder), 'chunk_length': plan.chunk_length}
        learned = Learned(PolicyEntry('lookup', options), None)
    else:
        learned = _learn(demonstrations, plan.probe_options(), place / 'probe', say)
    return _Trained(distance_m, demonstrations, kept, tried, learned)


def _demonstrations(plan: SourcePlan, starts: Sequence[TrainingStart], folder: Path, tell: Tell) -> Demonstrations:
    return _collect(
        plan, [start.setup for start in starts], folder, only_successes=True,
        groups=[start.test_start for start in starts], per_group=plan.demonstrations_per_start,
        progress=lambda p: tell(f'{p.kept} demonstrations of {p.tried} tried, {p.of} starts at most'),
    )  # fmt: skip


def _collect(plan: SourcePlan | MixPlan, setups: Sequence[Setup], folder: Path, **options: Any) -> Demonstrations:
    """The plan's expert on these set-ups, on a host that shows it what no policy sees."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return collect_demonstrations(
        HostEntry(plan.host.use, {**plan.host.options, **plan.expert.host_options}),
        PolicyEntry(plan.expert.use, plan.expert.options), setups, folder, state_width=plan.expert.state_width,
        padding_steps=plan.padding_steps, noise=plan.expert.noise, seed=plan.seed, time_cap_s=plan.time_cap_s,
        **options,
    )  # fmt: skip


def _point(
    plan: SourcePlan, task: str, trained: _Trained, observed: ObservedStarts, outcomes: tuple[int, ...]
) -> SourcePoint:
    table: StartStates = start_table(trained.starts, observed)
    nearest = nearest_start(
        table, observed.states, tolerance_m=plan.tolerance_m, tolerance_rad=math.radians(plan.tolerance_deg)
    )
    first = trained.demonstrations.starts[:-1]
    images = {}
    for name, embed in EMBEDDINGS.items():
        pairs = [(embed(v[first]), embed(observed.images[c])) for c, v in trained.demonstrations.images.items()]
        if pairs:
            train, test = (np.concatenate(side, axis=1) for side in zip(*pairs, strict=True))
            images[name] = tuple(nearest_image(train, test).tolist())
    return SourcePoint(
        task=task, asked_m=trained.distance_m, n_demonstrations=trained.demonstrations.n_episodes,
        n_tried=trained.n_tried, outcomes=outcomes, nearest_m=tuple(nearest.position_m.tolist()),
        nearest_deg=tuple(np.degrees(nearest.yaw_rad).tolist()), images=images, n_same=nearest.n_same,
        n_leaked=nearest.n_leaked, parameters=trained.learned.parameters,
    )  # fmt: skip


def _name(distance_m: float) -> str:
    return f'at-{1000 * distance_m:g}mm'


MIX_RESULT = 'mix.json'
DATA_SHIFT = 7_000_003  # between the seeds of the test and of the demonstrations


@dataclass(frozen=True, slots=True, kw_only=True)
class MixPlan:
    """`tasks` are all tasks; `blocks` those that are mixed without the rest (RADAR's Mix Blocks leaves Spatial out)."""

    tasks: tuple[str, ...] = ('single_block', 'two_block', 'three_block', 'spatial')
    blocks: tuple[str, ...] = ('single_block', 'two_block', 'three_block')
    demonstrations: int = 100  # of each task
    episodes: int = 24  # test start states of each task
    padding_steps: int = 10
    time_cap_s: float = 30.0
    seed: int = 1
    host: HostEntry = field(default_factory=_cell)
    expert: ExpertEntry = field(default_factory=ExpertEntry)
    probe: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(set(self.tasks)) < len(self.tasks) or len(self.tasks) < 2:
            raise InputError(f'tasks are {list(self.tasks)}, wanted at least two, each once')
        if self.demonstrations < 1 or self.episodes < 1:
            raise InputError('demonstrations and episodes are wanted >= 1')
        mixes(self.tasks, self.blocks)
        if 'task_input' in self.probe:
            raise InputError(
                '[probe] task_input: mixes are trained without the task, to be tried on others; leave it out'
            )
        self.probe_options()

    def probe_options(self) -> ProbeOptions:
        return read_options({'seed': self.seed, **self.probe}, where='[probe]')


def run_mix(plan: MixPlan, folder: Path | str, *, workers: int = 1, tell: Tell | None = None) -> TrainingMix:
    """The whole comparison into `folder`, where it resumes; writes mix.json there. A set of tasks is trained once."""
    with work_folder(folder) as work:
        return _run(plan, work, workers, tell or (lambda text: None))


def _run(plan: MixPlan, work: Path, workers: int, tell: Tell) -> TrainingMix:
    made = mixes(plan.tasks, plan.blocks)
    data = {task: _collected(plan, task, work / 'demonstrations', tell) for task in plan.tasks}
    trained: dict[tuple[str, ...], PolicyEntry] = {}
    for sources in dict.fromkeys(s for by_task in made.values() for s in by_task.values()):
        trained[sources] = _trained(plan, sources, data, work, tell)
    scores = []
    for task in plan.tasks:
        entries = {name: trained[by_task[task]] for name, by_task in made.items()}
        tell(f'{task}: evaluating {len(entries)} mixes')
        store = work / 'evaluation' / task
        run_trial(_mix_evaluation(plan, task, entries), store, workers=workers)
        for name, by_task in made.items():
            outcomes = grid_outcomes(store, name, plan.episodes)
            scores.append(MixScore(mix=name, task=task, trained_on=by_task[task], outcomes=outcomes))
    result = TrainingMix(host=plan.host.use, learner='probe', scores=tuple(scores))
    write_mix(result, work / MIX_RESULT)
    return result


def _mix_evaluation(plan: MixPlan, task: str, policies: Mapping[str, PolicyEntry]) -> Any:
    # A probe knows the tasks it was trained on; on another one it is told nothing that it could look up.
    return grid_plan(
        plan.host, policies, task=task, seed=plan.seed, grid=plan.episodes, time_cap_s=plan.time_cap_s,
        title=f'training mix: {task}',
    )  # fmt: skip


def _collected(plan: MixPlan, task: str, folder: Path, tell: Tell) -> Demonstrations:
    source = grid_plan(
        plan.host, {'expert': PolicyEntry(plan.expert.use, plan.expert.options)}, task=task,
        seed=plan.seed + DATA_SHIFT, grid=plan.demonstrations, time_cap_s=plan.time_cap_s,
    )  # fmt: skip
    return _collect(
        plan, start_setups(source), folder / task,
        progress=lambda p: tell(f'{task}: {p.kept} demonstrations of {p.of}'),
    )  # fmt: skip


def _trained(
    plan: MixPlan, sources: tuple[str, ...], data: Mapping[str, Demonstrations], work: Path, tell: Tell
) -> PolicyEntry:
    name = '+'.join(sources)
    joined = (
        data[sources[0]]
        if len(sources) == 1
        else join_demonstrations([data[s] for s in sources], work / 'joined' / name)
    )
    # Without the task's number, so that a policy can be tried on a task that it was not trained on.
    options = replace(plan.probe_options(), task_input=TaskInput.NONE)
    return _learn(joined, options, work / 'probe' / name, lambda text: tell(f'{name}: {text}')).entry


def join_demonstrations(parts: Sequence[Demonstrations], folder: Path) -> Demonstrations:
    """Several sets as one, episode by episode; start states are left out, since tasks have different objects."""
    source = {'kind': 'joined', 'digests': [part.digest for part in parts]}
    if folder.exists():
        there = read_demonstrations(folder)
        if there.facts.source != source:
            raise InputError(f'{folder}: other demonstrations were joined there; name another folder')
        return there
    facts = parts[0].facts
    for part in parts[1:]:
        if part.facts.action != facts.action or part.facts.control_rate_hz != facts.control_rate_hz:
            raise InputError(f'{part.folder}: another action convention or control rate than {parts[0].folder}')
    folder.parent.mkdir(parents=True, exist_ok=True)
    with DemonstrationWriter(
        folder, action=facts.action, control_rate_hz=facts.control_rate_hz, source=source,
        state_layout=facts.state_layout, tasks=tuple(dict.fromkeys(t for p in parts for t in p.facts.tasks)),
    ) as writer:  # fmt: skip
        for part in parts:
            for number, episode in enumerate(part.facts.episodes):
                first, last = part.starts[number : number + 2]
                writer.append(
                    episode, images={c: v[first:last] for c, v in part.images.items()}, state=part.state[first:last],
                    action=part.action[first:last],
                )  # fmt: skip
        return writer.finish()
