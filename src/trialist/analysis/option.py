"""How a report is computed, and what stands in the place of a part that a store can't give."""

from __future__ import annotations

from dataclasses import dataclass

from trialist.errors import InputError
from trialist.safety import Registry
from trialist.timing.curve import check_tau


@dataclass(frozen=True, slots=True)
class Absent:
    """A part of a report that this store can't give: why, and what would change that."""

    reason: str
    remedy: str = ''


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The choices of an analysis; with the same store and options every number is the same."""

    tau_s: float | None = None  # None: the largest time cap, or else as long as everything was watched
    reference: str | None = None  # None: the policy that is marked
    alpha: float = 0.05
    n_resamples: int = 1000
    seed: int = 0
    baseline: str = 'nominal'
    compound: str = 'chaos'
    registry: Registry | None = None  # None: the built-in one

    def __post_init__(self) -> None:
        if self.tau_s is not None:
            check_tau(self.tau_s)
        if not 0 < self.alpha < 1:
            raise InputError(f'alpha is {self.alpha}, wanted a number between 0 and 1')
        if self.n_resamples < 1:
            raise InputError(f'n_resamples is {self.n_resamples}, wanted at least 1')
        if self.seed < 0:
            raise InputError(f'seed is {self.seed}, wanted a whole number from 0 on')

    @property
    def level(self) -> float:
        """Of every interval: what is left of 1 by alpha."""
        return 1.0 - self.alpha
