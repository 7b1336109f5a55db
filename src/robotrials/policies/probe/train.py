"""Training a probe, from outside its environment: bounded calls, progress, checkpoints, resuming."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, RemoteError, UnknownName
from robotrials.old_name import PROBE_FORMAT
from robotrials.policies.probe.demonstration import Demonstrations
from robotrials.policies.probe.option import ProbeOptions, TaskInput, TextEmbedding, read_options
from robotrials.record.folder import write_durably
from robotrials.run.environment import Environment, WorkerProcess, find_environment, read_recipe

ENVIRONMENT = 'probe'
SERVICE = 'robotrials.policies.probe.service:ProbeService'
RECORD = 'training.json'
CARD = 'probe.json'
START_S, CALL_S = 600.0, 1800.0
SLICE_S = 5.0  # of training between two words of progress


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """How far a training is; losses are the last that were measured, NaN before."""

    step: int
    steps: int
    training_loss: float
    validation_loss: float
    seconds: float


@dataclass(frozen=True, slots=True)
class LossPoint:
    """Losses at a step: the mean over the updates since the last point, and over what was held out (NaN: nothing)."""

    step: int
    training_loss: float
    validation_loss: float


@dataclass(frozen=True, slots=True)
class ProbeCheckpoint:
    """A probe after this many updates; `folder` is what `ProbePolicy` takes."""

    step: int
    folder: Path
    training_loss: float
    validation_loss: float


@dataclass(frozen=True, slots=True)
class TrainedProbe:
    """A finished training. `seconds` is what the updates took, however often it was stopped and resumed."""

    folder: Path
    options: ProbeOptions
    data_digest: str
    checkpoints: tuple[ProbeCheckpoint, ...]
    loss_curve: tuple[LossPoint, ...]
    parameters: Mapping[str, int]  # total, encoder, head
    seconds: float
    cpu_seconds: float  # of all threads; below `seconds` where others use the machine too

    @property
    def last(self) -> ProbeCheckpoint:
        return self.checkpoints[-1]


def train_probe(
    demonstrations: Demonstrations,
    options: ProbeOptions,
    folder: Path | str,
    *,
    progress: Callable[[TrainingProgress], None] | None = None,
    device: str = 'cpu',
) -> TrainedProbe:
    """Train a probe into a folder, or resume one of the same options and demonstrations that was stopped there."""
    folder = Path(folder)
    check_options(options, demonstrations)
    demonstrations.verify()
    card = {
        'format': PROBE_FORMAT,
        'version': 1,
        'options': dataclasses.asdict(options),
        'options_digest': options.digest,
        'data_digest': demonstrations.digest,
        'tasks': list(demonstrations.facts.tasks),
        'phrasings': dict(demonstrations.facts.phrasings),
        'control_rate_hz': demonstrations.facts.control_rate_hz,
        'action': dataclasses.asdict(demonstrations.facts.action),
        'state_layout': list(demonstrations.facts.state_layout),
        'state_width': int(demonstrations.state.shape[1]),
    }
    claim = _claim(folder, card)
    if claim.get('is_finished'):
        return read_trained(folder)
    worker = start_worker(start_timeout_s=START_S)
    try:
        result = _run(worker, demonstrations, options, folder, card, progress=progress, device=device)
    finally:
        worker.close()
    _write(folder, {**card, **result, 'is_finished': True})
    return read_trained(folder)


def read_trained(folder: Path | str) -> TrainedProbe:
    """A finished training; InputError if it is none, or was stopped."""
    folder = Path(folder)
    record = _read_record(folder)
    if not record.get('is_finished'):
        raise InputError(f'{folder}: the training was stopped before its end; train_probe resumes it')
    try:
        curve = tuple(
            LossPoint(int(step), float(t), math.nan if v is None else float(v)) for step, t, v in record['curve']
        )
        spent = {key: float(record[key]) for key in ('seconds', 'cpu_seconds')}
        parameters, data_digest = {k: int(v) for k, v in record['parameters'].items()}, str(record['data_digest'])
        options = read_options(record['options'], where='options of the checkpoint')
        kept = {point.step: point for point in curve}
        losses = {step: kept[step] for step in options.kept_steps}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f'{folder / RECORD}: was changed after the training ({error!r}); train again') from error
    checkpoints = []
    for step in options.kept_steps:
        place = folder / f'step-{step:06d}'
        if not (place / CARD).is_file():
            raise InputError(f'{place}: the checkpoint is missing; train again into another folder')
        checkpoints.append(ProbeCheckpoint(step, place, losses[step].training_loss, losses[step].validation_loss))
    return TrainedProbe(
        folder=folder,
        options=options,
        data_digest=data_digest,
        checkpoints=tuple(checkpoints),
        loss_curve=curve,
        parameters=parameters,
        **spent,
    )


def check_options(options: ProbeOptions, demonstrations: Demonstrations) -> None:
    """InputError if these demonstrations cannot train such a probe."""
    facts = demonstrations.facts
    for camera in (*options.cameras, *options.crops):
        if camera not in facts.cameras:
            raise UnknownName('camera of the demonstrations', camera, facts.cameras)
    if options.uses_images and not facts.cameras:
        raise InputError(f'{demonstrations.folder} has no images; wanted some, or uses_images = false')
    if options.uses_state and not demonstrations.state.shape[1]:
        raise InputError(f'{demonstrations.folder} has no state; wanted one, or uses_state = false')
    if options.task_input is TaskInput.TEXT:
        embedding = TextEmbedding(options.text_embeddings)
        for episode in facts.episodes:
            embedding.vector(episode.instruction or episode.task)


def probe_environment(environment: str = ENVIRONMENT) -> Environment:
    """The environment that a probe is trained and run in; SetupError, with the command that makes it, without one."""
    recipe = read_recipe(environment)
    return find_environment(recipe.name, recipe.digest)


def start_worker(*, start_timeout_s: float, environment: str = ENVIRONMENT) -> WorkerProcess:
    """The service in its environment."""
    variables = {'CUBLAS_WORKSPACE_CONFIG': ':4096:8'}  # what torch asks for to be deterministic on a GPU
    place = probe_environment(environment)
    return WorkerProcess(place, SERVICE, start_timeout_s=start_timeout_s, variables=variables)


def _run(
    worker: WorkerProcess,
    demonstrations: Demonstrations,
    options: ProbeOptions,
    folder: Path,
    card: Mapping[str, Any],
    *,
    progress: Callable[[TrainingProgress], None] | None,
    device: str,
) -> dict[str, Any]:
    asked = {
        'options': json.loads(json.dumps(card['options'])),
        'card': json.loads(json.dumps(card)),
        'demonstrations': str(demonstrations.folder.resolve()),
        'folder': str(folder.resolve()),
        'device': device,
    }
    try:
        begun = worker.call('begin', asked, timeout_s=CALL_S)
    except RemoteError as error:
        raise InputError(f'{folder}: the training cannot begin: {_last_line(error)}') from error
    progress_so_far: dict[str, Any] = {'step': begun['step'], 'seconds': begun['seconds'], 'curve': []}
    while True:
        try:
            progress_so_far = worker.call(
                'train', {'seconds': SLICE_S, 'kept': list(options.kept_steps)}, timeout_s=CALL_S
            )
        except RemoteError as error:
            raise InputError(
                f'{folder}: the training failed at step {progress_so_far["step"]} or after: {_last_line(error)}'
            ) from error
        last = progress_so_far['curve'][-1] if progress_so_far['curve'] else (0, math.nan, math.nan)
        if progress is not None:
            progress(
                TrainingProgress(progress_so_far['step'], options.steps, last[1], last[2], progress_so_far['seconds'])
            )
        if progress_so_far['step'] >= options.steps:
            break
    curve = [[step, t, v if math.isfinite(v) else None] for step, t, v in progress_so_far['curve']]
    spent = {key: progress_so_far[key] for key in ('seconds', 'cpu_seconds')}
    return {'curve': curve, 'parameters': begun['parameters'], **spent}


def _claim(folder: Path, card: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record of a folder that holds the same training, or a new one; InputError if it holds another."""
    if not (folder / RECORD).exists():
        if folder.exists() and any(folder.iterdir()):
            raise InputError(f'{folder} is not empty and holds no training; name a new folder')
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, dict(card))
    record = _read_record(folder)
    for key, what in (('options_digest', 'options'), ('data_digest', 'demonstrations')):
        if record.get(key) != card[key]:
            raise InputError(f'{folder} holds a training with other {what}; name a new folder, or remove this one')
    return record


def _read_record(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / RECORD).read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise InputError(f'{folder}: no training is there ({error})') from error
    if not isinstance(record, dict) or record.get('format') != PROBE_FORMAT or record.get('version') != 1:
        raise InputError(f'{folder / RECORD}: not a {PROBE_FORMAT} of version 1')
    return record


def _write(folder: Path, record: Mapping[str, Any]) -> None:
    write_durably(folder / RECORD, json.dumps(record, indent=1))


def _last_line(error: RemoteError) -> str:
    """What went wrong, without the way there: a traceback ends with it."""
    return next((line for line in reversed(str(error).splitlines()) if line.strip()), str(error))


# A small grid of trainings over learning rate, augmentation and steps.


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Every training of a grid. `best` is by validation loss, which need not be the best by success."""

    trained: tuple[TrainedProbe, ...]

    @property
    def best(self) -> TrainedProbe:
        return min(self.trained, key=lambda trained: trained.last.validation_loss)


def sweep_settings(
    options: ProbeOptions,
    *,
    learning_rates: Sequence[float] = (),
    augmentations: Sequence[float] = (),
    steps: Sequence[int] = (),
) -> tuple[ProbeOptions, ...]:
    """The options of every combination; what is not given stays, and checkpoints beyond the steps are left out."""
    grid = tuple(
        dataclasses.replace(
            options, learning_rate=rate, augmentation=augmentation, steps=n_steps,
            checkpoints=tuple(step for step in options.checkpoints if step <= n_steps),
        )
        for rate in learning_rates or (options.learning_rate,)
        for augmentation in augmentations or (options.augmentation,)
        for n_steps in steps or (options.steps,)
    )  # fmt: skip
    if len(grid) > 1 and not options.validation:
        raise InputError('validation is 0, and a sweep is compared by the validation loss; hold some out')
    return grid


def sweep_probe(
    demonstrations: Demonstrations,
    options: ProbeOptions,
    folder: Path | str,
    *,
    learning_rates: Sequence[float] = (),
    augmentations: Sequence[float] = (),
    steps: Sequence[int] = (),
    progress: Callable[[int, int, TrainingProgress], None] | None = None,
    device: str = 'cpu',
) -> SweepResult:
    """Train one probe for every combination into a folder each; those that are finished are not trained again."""
    grid = sweep_settings(options, learning_rates=learning_rates, augmentations=augmentations, steps=steps)
    trained = []
    for number, tried in enumerate(grid, start=1):
        named = f'rate-{tried.learning_rate:g}-augmentation-{tried.augmentation:g}-steps-{tried.steps}'
        place = Path(folder) / named

        def tell(at: TrainingProgress, number: int = number) -> None:
            if progress is not None:
                progress(number, len(grid), at)

        trained.append(train_probe(demonstrations, tried, place, progress=tell, device=device))
    if any(math.isnan(probe.last.validation_loss) for probe in trained) and len(grid) > 1:
        raise InputError('a training has no validation loss; wanted at least two demonstrations')
    return SweepResult(tuple(trained))
