"""Makes the probe that a shortcut plan declares: demonstrations first, then one training for each variant."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from trialist.audit.shortcut import ProbeFacts
from trialist.audit.sweep import ProbeSweep, SweepSetting
from trialist.diagnose.evaluate import evaluation_plan, official_protocol
from trialist.diagnose.mid_motion import begins_in_motion
from trialist.diagnose.shortcut import MadeCheckpoint
from trialist.diagnose.shortcut_plan import ExpertOptions, ShortcutPlan, SweepOptions
from trialist.errors import InputError
from trialist.policies.probe import (
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
from trialist.policies.probe.collect import CollectProgress
from trialist.policies.probe.sweep import sweep_settings
from trialist.policies.probe.train import TrainingProgress
from trialist.run.checkpoint import checkpoint_digest
from trialist.run.component import open_host
from trialist.run.plan import HostEntry, PolicyEntry
from trialist.run.rotation import trial_slots
from trialist.run.seam import ClosableHost, Setup

SHUFFLE_SEED = 0
FULL = 'full'

Told = Callable[[str, int, int], None]  # what is being done, how far, of how much


class ProbeMaker:
    """The probe of `trialist.policies.probe`, in the folders ``demonstrations`` and ``probe`` of a work folder."""

    def __init__(
        self, plan: ShortcutPlan, folder: Path | str, *, device: str = 'cpu', told: Told | None = None
    ) -> None:  # fmt: skip
        self._plan, self._root, self._device = plan, Path(folder).resolve(), device
        self._told: Told = told or (lambda *_: None)
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

        def told(progress: TrainingProgress) -> None:
            self._told(f'training {variant}', progress.step, progress.steps)

        if variant == FULL and self._plan.sweep is not None:
            made = self._swept(self._plan.sweep)
        else:
            made = train_probe(
                self.demonstrations, self._chosen(variant), self._root / 'probe' / variant, progress=told,
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

        def told(number: int, of: int, progress: TrainingProgress) -> None:
            self._told(f'training {FULL}, setting {number} of {of}', progress.step, progress.steps)

        found = sweep_probe(
            self.demonstrations, self._options[FULL], self._root / 'probe' / FULL, progress=told, device=self._device,
            **dataclasses.asdict(grid),
        )  # fmt: skip
        self._sweep = ProbeSweep(settings=tuple(_setting(trained) for trained in found.trained))
        return found.best

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
            return read_demonstrations(target)
        return open_demonstrations(self._plan.demonstrations, target)

    def _collect(self, expert: ExpertOptions, folder: Path) -> Demonstrations:
        host = HostEntry(self._plan.host.use, {**self._plan.host.options, **expert.host})

        def told(progress: CollectProgress) -> None:
            self._told('demonstrating', progress.tried, progress.of)

        found = collect_demonstrations(
            host, PolicyEntry(expert.use, expert.options), demonstration_setups(self._plan), folder,
            state_width=_state_width(self._plan.host), padding_steps=expert.padding_steps, noise=expert.noise,
            seed=expert.seed, task_key=expert.task_key, time_cap_s=expert.time_cap_s, progress=told,
        )  # fmt: skip
        if not found.n_episodes:
            raise InputError(f'[expert] {expert.use} succeeded in none of its episodes; the probe has nothing to learn')
        return found


def open_demonstrations(sources: Sequence[str], folder: Path) -> Demonstrations:
    """A folder of demonstrations as it is, or HDF5 files of LIBERO or robomimic, read into `folder`."""
    from trialist.policies.probe import demonstrations_from_hdf5

    paths = [Path(source) for source in sources]
    absent = next((p for p in paths if not p.exists()), None)
    if absent is not None:
        raise InputError(f'demonstrations: {absent}: no such file or folder')
    if len(paths) == 1 and (paths[0] / 'facts.json').exists():
        return read_demonstrations(paths[0])
    files = [f for p in paths for f in (sorted(p.glob('*.hdf5')) if p.is_dir() else [p])]
    if not files or any(f.suffix.lower() not in ('.hdf5', '.h5') for f in files):
        raise InputError(
            f'demonstrations: {", ".join(sources)} is no folder of demonstrations and holds no HDF5 files; a LeRobot '
            'dataset or a store becomes one by demonstrations_from_lerobot or demonstrations_from_store'
        )
    return demonstrations_from_hdf5(files, folder)


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
    opened = open_host(host)
    try:
        return opened.spec.state_width
    finally:
        if isinstance(opened, ClosableHost):
            opened.close()


def _setting(trained: TrainedProbe) -> SweepSetting:
    used = trained.options
    return SweepSetting(
        learning_rate=used.learning_rate, augmentation=used.augmentation, steps=used.steps,
        validation_loss=trained.last.validation_loss,
    )  # fmt: skip


def _entry(folder: Path) -> PolicyEntry:
    return PolicyEntry('probe', {'path': str(folder)}, checkpoints={str(folder): checkpoint_digest(folder)})
