"""A small grid of trainings over learning rate, augmentation and steps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from robotrials.errors import InputError
from robotrials.policies.probe.demonstration import Demonstrations
from robotrials.policies.probe.option import ProbeOptions
from robotrials.policies.probe.train import TrainedProbe, TrainingProgress, train_probe


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
