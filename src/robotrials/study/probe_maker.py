"""Makes the probe that a shortcut plan declares: demonstrations first, then one training for each variant.

A policy that learns nothing: it plays the demonstration whose start looks most like what it sees.

Where it scores, the test lies in its training data. It needs no training and no weights, so it is the cheapest witness
of how much a score depends on where data was collected.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.policies.probe import (
    Demonstrations,
    ProbeOptions,
    TrainedProbe,
    collect_demonstrations,
    read_demonstrations,
    read_options,
    sweep_probe,
    train_probe,
    variants,
)
from robotrials.policies.probe.collect import CollectProgress, using_host
from robotrials.policies.probe.demonstration import file_digest
from robotrials.policies.probe.option import TaskInput, find_task_id
from robotrials.policies.probe.train import TrainingProgress, sweep_settings
from robotrials.run.component import checkpoint_digest
from robotrials.run.host import Host
from robotrials.run.plan import HostEntry, PolicyEntry
from robotrials.run.schedule import trial_slots
from robotrials.run.seam import Chunk, Observation, PolicySpec, Setup, Target, check_conventions
from robotrials.run.station import setup_of
from robotrials.study.evaluate import evaluation_plan, official_protocol
from robotrials.study.shortcut import ExpertOptions, MadeCheckpoint, ShortcutPlan, SweepOptions
from robotrials.verdict.audit.datasource import EMBEDDINGS, FloatArray
from robotrials.verdict.audit.shortcut import ProbeFacts, ProbeSweep, SweepSetting

# Which demonstrations begin in mid-motion, by where the arm stands at their first step.

FARTHEST = 0.5


def begins_in_motion(
    state: NDArray[np.floating[Any]], starts: NDArray[np.integer[Any]], *, farthest: float = FARTHEST
) -> NDArray[np.bool_]:
    """For each demonstration, whether it begins away from where demonstrations begin; state (N, S), starts (E + 1,).

    A number of the state is measured by its spread over all steps. Whole demonstrations begin near one pose, so that
    their starts differ little by that measure; segments cut out of longer ones begin anywhere. A start that is farther
    than `farthest` spreads (root mean square over the numbers that vary) from the median start is away.
    """
    if state.ndim != 2 or not len(state) or starts[-1] != len(state):
        raise InputError(f'state {state.shape} and {len(starts) - 1} demonstrations do not fit together')
    values = np.asarray(state, dtype=np.float64)
    spread = values.std(axis=0)
    first = values[starts[:-1]][:, spread > 1e-9] / spread[spread > 1e-9]
    if not first.shape[1]:
        return np.zeros(len(first), dtype=bool)
    away = np.sqrt(np.mean((first - np.median(first, axis=0)) ** 2, axis=1))
    return np.asarray(away > farthest)


SHUFFLE_SEED = 0
FULL = 'full'

Tell = Callable[[str, int, int], None]  # what is being done, how far, of how much


class ProbeMaker:
    """The probe of `robotrials.policies.probe`, in the folders ``demonstrations`` and ``probe`` of a work folder."""

    def __init__(
        self, plan: ShortcutPlan, folder: Path | str, *, device: str = 'cpu', tell: Tell | None = None
    ) -> None:  # fmt: skip
        self._plan, self._root, self._device = plan, Path(folder).resolve(), device
        self._tell: Tell = tell or (lambda *_: None)
        options = read_options(plan.probe, where='[probe]')
        if plan.sweep is not None:
            sweep_settings(options, **dataclasses.asdict(plan.sweep))  # a mistake shows before anything is trained
        self._options = variants(options)
        self._demonstrations: Demonstrations | None = None
        self._full: TrainedProbe | None = None
        self._sweep: ProbeSweep | None = None

    @property
    def demonstrations(self) -> Demonstrations:
        """Those that the plan names, or those of its expert, collected once."""
        if self._demonstrations is None:
            self._demonstrations = self._read_or_collect()
        return self._demonstrations

    def task_names(self) -> Sequence[str]:
        return self.demonstrations.facts.tasks

    def train(self, variant: str) -> Sequence[MadeCheckpoint]:
        """Train a variant, or take up what its folder holds; the full probe with every setting of the sweep."""

        def report(progress: TrainingProgress) -> None:
            self._tell(f'training {variant}', progress.step, progress.steps)

        if variant == FULL and not (self._root / 'probe' / FULL).exists():
            self._check_host()  # hours before the trial would say it
        if variant == FULL and self._plan.sweep is not None:
            made = self._swept(self._plan.sweep)
        else:
            made = train_probe(
                self.demonstrations, self._chosen(variant), self._root / 'probe' / variant, progress=report,
                device=self._device,
            )  # fmt: skip
        if variant == FULL:
            self._full = made
        return [MadeCheckpoint(c.step, _entry(c.folder)) for c in made.checkpoints]

    def shuffled(self, final: MadeCheckpoint) -> PolicyEntry:
        return dataclasses.replace(final.entry, options={**final.entry.options, 'shuffle_tasks': SHUFFLE_SEED})

    def facts(self) -> ProbeFacts:
        held = self.demonstrations
        full = self._options[FULL]
        return ProbeFacts(
            encoder=full.encoder.value if full.uses_images else '',
            parameters=None if self._full is None else self._full.parameters['total'],
            task_input=full.task_input.value,
            demonstrations=held.n_episodes,
            mid_motion=_mid_motion(held),
            digest=held.digest,
            sweep=self._sweep,
        )

    def _swept(self, grid: SweepOptions) -> TrainedProbe:
        """The training of the smallest validation loss; the test is not looked at."""

        def report(number: int, of: int, progress: TrainingProgress) -> None:
            self._tell(f'training {FULL}, setting {number} of {of}', progress.step, progress.steps)

        sweep = sweep_probe(
            self.demonstrations, self._options[FULL], self._root / 'probe' / FULL, progress=report, device=self._device,
            **dataclasses.asdict(grid),
        )  # fmt: skip
        self._sweep = ProbeSweep(settings=tuple(_setting(trained) for trained in sweep.trained))
        return sweep.best

    def _chosen(self, variant: str) -> ProbeOptions:
        """A variant has the full probe's settings and keeps its last checkpoint alone: nothing is chosen for it."""
        options = self._options[variant]
        if variant == FULL:
            return options
        if self._plan.sweep is not None:
            if self._full is None:
                self.train(FULL)
            assert self._full is not None
            chosen = self._full.options
            settings = {name: getattr(chosen, name) for name in ('learning_rate', 'augmentation', 'steps')}
            return dataclasses.replace(options, checkpoints=(), **settings)
        return dataclasses.replace(options, checkpoints=())

    def _read_or_collect(self) -> Demonstrations:
        target = self._root / 'demonstrations'
        if self._plan.expert is not None:
            return self._collect(self._plan.expert, target)
        if target.exists():
            held = read_demonstrations(target)
            check_files(self._plan.demonstrations, held)
            return held
        return open_demonstrations(self._plan.demonstrations, target)

    def _check_host(self) -> None:
        """InputError if the host shows or does another thing than the demonstrations, or asks for other tasks."""
        held, options = self.demonstrations, self._options[FULL]
        facts = held.facts
        cameras = (options.cameras or facts.cameras) if options.uses_images else ()
        needs = PolicySpec(
            name='of these demonstrations',
            action=facts.action,
            chunk_length=1,
            control_rate_hz=facts.control_rate_hz,
            state_width=held.state.shape[1] if options.uses_state else None,
            state_layout=facts.state_layout if options.uses_state else (),
            images={c: (held.images[c].shape[1], held.images[c].shape[2]) for c in cameras if c in held.images},
        )
        with using_host(self._plan.host) as host:
            check_conventions(host.spec, needs)
            for setup in tested_setups(self._plan):
                if host.spec.tasks and setup.task not in host.spec.tasks:
                    raise UnknownName(f'task of host {host.spec.name}', setup.task, host.spec.tasks)
                if options.task_input is TaskInput.ID and setup.task not in facts.tasks:
                    words = setup.instruction or _asked(host, setup)
                    find_task_id(setup.task, words, tasks=facts.tasks, phrasings=facts.phrasings)

    def _collect(self, expert: ExpertOptions, folder: Path) -> Demonstrations:
        host = HostEntry(self._plan.host.use, {**self._plan.host.options, **expert.host})

        def report(progress: CollectProgress) -> None:
            self._tell('demonstrating', progress.tried, progress.of)

        collected = collect_demonstrations(
            host, PolicyEntry(expert.use, expert.options), demonstration_setups(self._plan), folder,
            state_width=_state_width(self._plan.host), padding_steps=expert.padding_steps, noise=expert.noise,
            seed=expert.seed, task_key=expert.task_key, time_cap_s=expert.time_cap_s, progress=report,
        )  # fmt: skip
        if not collected.n_episodes:
            raise InputError(f'[expert] {expert.use} succeeded in none of its episodes; the probe has nothing to learn')
        return collected


def open_demonstrations(sources: Sequence[str], folder: Path) -> Demonstrations:
    """A folder of demonstrations as it is, or HDF5 files of LIBERO or robomimic, read into `folder`."""
    from robotrials.policies.probe import demonstrations_from_hdf5

    paths = [Path(source) for source in sources]
    absent = next((p for p in paths if not p.exists()), None)
    if absent is not None:
        raise InputError(f'demonstrations: {absent}: no such file or folder')
    if len(paths) == 1 and (paths[0] / 'facts.json').exists():
        return read_demonstrations(paths[0])
    files = hdf5_files(paths)
    if not files or any(f.suffix.lower() not in ('.hdf5', '.h5') for f in files):
        raise InputError(
            f'demonstrations: {", ".join(sources)} is not a folder of demonstrations and holds no HDF5 files; a '
            'LeRobot dataset or a store becomes one by demonstrations_from_lerobot or demonstrations_from_store'
        )
    return demonstrations_from_hdf5(files, folder)


def hdf5_files(paths: Sequence[Path]) -> list[Path]:
    return [f for p in paths for f in (sorted(p.glob('*.hdf5')) if p.is_dir() else [p])]


def check_files(sources: Sequence[str], held: Demonstrations) -> None:
    """InputError if a file is another one now than when it was read; files that are gone are not missed."""
    known = held.facts.source.get('files')
    there = {f.name: f for f in hdf5_files([Path(s) for s in sources]) if f.is_file()}
    for name, digest in known.items() if isinstance(known, Mapping) else ():
        if name in there and file_digest(there[name]) != digest:
            raise InputError(f'{there[name]} has changed since it was read into {held.folder}; take a new folder')


def tested_setups(plan: ShortcutPlan) -> list[Setup]:
    """The first set-up of every task of the evaluation."""
    trial = evaluation_plan(plan.host, {'probe': PolicyEntry('probe')}, plan.evaluation)
    first = {slot.cell.task.name: slot for slot in reversed(trial_slots(trial))}
    return [setup_of(first[task.name]) for task in trial.tasks]


def _asked(host: Host, setup: Setup) -> str:
    """How the host itself asks for a task."""
    host.prepare(setup)
    host.reset(setup.task, seed=setup.seed)
    return host.instruction()


def demonstration_setups(plan: ShortcutPlan) -> list[Setup]:
    """Start states for the expert: tasks of one scene share theirs, and none is one that the evaluation will meet."""
    expert = plan.expert
    if expert is None:
        raise InputError('the plan has no [expert] that could demonstrate')
    if official_protocol(plan.host) is not None and expert.condition == 'nominal':
        raise InputError(
            f'[expert] on {plan.host.use} would demonstrate from the start states of the test; say condition = '
            '"fresh_start", or give demonstrations = [...]'
        )
    trial = evaluation_plan(plan.host, {'probe': PolicyEntry('probe')}, plan.evaluation)
    scenes = sorted({task.scene or task.name for task in trial.tasks})
    tested = {(slot.cell.task.name, slot.seed) for slot in trial_slots(trial)}
    made = []
    for task in trial.tasks:
        scene = scenes.index(task.scene or task.name)
        for number in range(expert.episodes_per_task):
            seed = int(np.random.SeedSequence([expert.seed, scene, number]).generate_state(1, np.uint64)[0] >> 2)
            made.append(
                Setup(task=task.name, seed=seed, instance=number, instruction=task.instruction,
                      condition=expert.condition, items=task.items)
            )  # fmt: skip
    same = next((s for s in made if (s.task, s.seed) in tested), None)
    if same is not None:
        raise InputError(f'{same.task}: seed {same.seed} is a start state of the test; give the expert another seed')
    return made


def _mid_motion(held: Demonstrations) -> int:
    """As the source says; of files, which do not say it, as their first steps show it."""
    is_said = np.array([e.begins_in_motion for e in held.facts.episodes], dtype=bool)
    if held.facts.source.get('kind') == 'collected':
        return int(is_said.sum())
    return int((is_said | begins_in_motion(held.state, held.starts)).sum())


def _state_width(host: HostEntry) -> int:
    """How many numbers the probe will be shown: those of the host that it is tested on."""
    with using_host(host) as opened:
        return opened.spec.state_width


def _setting(trained: TrainedProbe) -> SweepSetting:
    used = trained.options
    return SweepSetting(
        learning_rate=used.learning_rate, augmentation=used.augmentation, steps=used.steps,
        validation_loss=trained.last.validation_loss,
    )  # fmt: skip


def _entry(folder: Path) -> PolicyEntry:
    return PolicyEntry('probe', {'path': str(folder)}, checkpoints={str(folder): checkpoint_digest(folder)})


class LookupPolicy:
    """Plays back actions, `chunk_length` at a time, and keeps still when they end.

    path: a folder of demonstrations. embedding: how pictures are compared (pixels or random).
    """

    def __init__(self, *, path: str, embedding: str = 'pixels', chunk_length: int = 5) -> None:
        if embedding not in EMBEDDINGS:
            raise UnknownName('embedding', embedding, EMBEDDINGS)
        if chunk_length < 1:
            raise InputError(f'chunk_length is {chunk_length}, wanted >= 1')
        self._demonstrations = read_demonstrations(Path(path))
        facts = self._demonstrations.facts
        if not facts.cameras:
            raise InputError(f'{path}: demonstrations without images; a start is looked up by its picture')
        self._embed, self._chunk_length = EMBEDDINGS[embedding], chunk_length
        first = self._demonstrations.starts[:-1]
        self._keys = np.concatenate([self._embed(v[first]) for v in self._demonstrations.images.values()], axis=1)
        sizes = {c: (int(v.shape[1]), int(v.shape[2])) for c, v in self._demonstrations.images.items()}
        self._spec = PolicySpec(
            name='lookup', action=facts.action, chunk_length=chunk_length, control_rate_hz=facts.control_rate_hz,
            images=sizes,
        )  # fmt: skip

    @property
    def spec(self) -> PolicySpec:
        return self._spec

    def start(self, setup: Setup, *, seed: int) -> LookupSession:
        return LookupSession(self, self._chunk_length)

    def recall(self, observation: Observation) -> FloatArray:
        """The actions (T, A) of the demonstration that begins most like this."""
        key = np.concatenate([self._embed(observation.images[c][None]) for c in self._spec.images], axis=1)
        nearest = int(np.argmin(np.mean((self._keys - key) ** 2, axis=1)))
        first, last = self._demonstrations.starts[nearest : nearest + 2]
        return np.asarray(self._demonstrations.action[first:last])


class LookupSession:
    def __init__(self, policy: LookupPolicy, chunk_length: int) -> None:
        self._policy, self._chunk_length = policy, chunk_length
        self._actions: FloatArray | None = None
        self._taken = 0

    def act(self, observation: Observation) -> Chunk:
        if self._actions is None:
            self._actions = self._policy.recall(observation)
        chosen = self._actions[self._taken : self._taken + self._chunk_length]
        self._taken += len(chosen)
        rest = [self._still(self._actions[-1])] * (self._chunk_length - len(chosen))
        return Chunk(np.array([*chosen, *rest], dtype=float))

    def _still(self, last: FloatArray) -> FloatArray:
        convention = self._policy.spec.action
        still = np.array(last, dtype=float)
        if convention.target is Target.DELTA:
            still[: convention.motion_width] = 0.0
        return still
