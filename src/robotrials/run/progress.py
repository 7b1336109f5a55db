"""How far a trial has come, in terms that give nothing away."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from robotrials.record import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialProgress:
    """Episodes done and to do, arms by their codes."""

    n_valid: int
    n_total: int
    n_invalid: int  # attempts in this run that came out INVALID
    n_given_up: int
    elapsed_s: float
    eta_s: float | None  # None until this run has finished an episode
    per_arm: Mapping[str, int]  # valid episodes by code


Report = Callable[[TrialProgress], None]


class Tally:
    """Keeps the counts of one run, and guesses when it will be over."""

    def __init__(self, per_arm: Mapping[str, int]) -> None:
        self._per_arm = Counter(per_arm)
        self._started_s = time.monotonic()
        self._finished_here = 0
        self._invalid_here = 0

    def add(self, code: str, outcome: Outcome) -> None:
        self._finished_here += 1
        if outcome is Outcome.INVALID:
            self._invalid_here += 1
        elif code:  # of a concealed trial it is not said
            self._per_arm[code] += 1

    def progress(self, *, n_valid: int, n_total: int, n_given_up: int) -> TrialProgress:
        elapsed_s = time.monotonic() - self._started_s
        rest = n_total - n_valid - n_given_up
        eta_s = elapsed_s / self._finished_here * rest if self._finished_here else None
        return TrialProgress(
            n_valid=n_valid,
            n_total=n_total,
            n_invalid=self._invalid_here,
            n_given_up=n_given_up,
            elapsed_s=elapsed_s,
            eta_s=eta_s,
            per_arm=dict(sorted(self._per_arm.items())),
        )
