"""How a probe's training settings were chosen: by the loss on held-out demonstrations, never by a score on the test."""

from __future__ import annotations

import math
from dataclasses import dataclass

from robotrials.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSetting:
    """One training of a sweep, and the loss of its last checkpoint on demonstrations that were held out."""

    learning_rate: float
    augmentation: float
    steps: int
    validation_loss: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.validation_loss):
            raise InputError(f'validation_loss is {self.validation_loss}, wanted a finite loss to compare settings by')

    def __str__(self) -> str:
        return f'learning rate {self.learning_rate:g}, augmentation {self.augmentation:g}, {self.steps} steps'


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSweep:
    """All trainings of a sweep, in the order they were run."""

    settings: tuple[SweepSetting, ...]

    def __post_init__(self) -> None:
        if len(self.settings) < 2:
            raise InputError(f'a sweep of {len(self.settings)} settings, wanted at least two to choose among')

    @property
    def chosen(self) -> SweepSetting:
        """The setting of the smallest validation loss; of equal ones the first."""
        return min(self.settings, key=lambda setting: setting.validation_loss)
