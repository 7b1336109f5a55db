"""Common follow-up: both arms of a stratum are judged only as far as both were watched.

Identical policies run under caps of 60 and 120 s are "different" in most trials when each is taken as far as it was
run. Cut at the common follow-up, curves, tests and counts hold. Random loss (censoring before the cap) that differs
between the arms is another matter: shuffling labels is then no longer exact, so the KS test is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from robotrials.measure.timing.operation import Cause, Operations
from robotrials.measure.timing.unit import followed_to, tau_of
from robotrials.stats.success_pair import stratified_exact

LOSS_LEVEL = 0.2  # an unequal loss that is missed at this level does little harm


@dataclass(frozen=True, slots=True, eq=False)
class CommonFollowUp:
    """Both arms cut at the time to which both were watched, stratum by stratum."""

    a: Mapping[str, Operations]
    b: Mapping[str, Operations]
    tau_s: Mapping[str, float]
    shortened: tuple[str, ...]  # strata whose tau the follow-up cut
    loss_p_value: float  # of equal loss before the cap in both arms
    n_lost: tuple[int, int]  # units of each arm with an operation that was lost before the cap

    @property
    def ks_refused(self) -> str:
        """Why a test that shuffles labels would not hold; empty when it does."""
        if self.loss_p_value > LOSS_LEVEL:
            return ''
        return (
            f'operations were lost before the time cap in {self.n_lost[0]} and {self.n_lost[1]} units: unequal loss '
            '(p = {:.2g}) would pass for a difference of the curves'.format(self.loss_p_value)
        )


def common_follow_up(
    a: Mapping[str, Operations], b: Mapping[str, Operations], tau_s: float | Mapping[str, float]
) -> CommonFollowUp:
    """Cut both arms in each stratum at the smaller of tau and what both were followed to."""
    ends = {s: min(tau_of(tau_s, s), followed_to(a[s]), followed_to(b[s])) for s in a}
    counts = {s: (_lost_units(a[s], ends[s]), _lost_units(b[s], ends[s])) for s in a}
    test = stratified_exact([(x, a[s].n_units, y, b[s].n_units) for s, (x, y) in counts.items()])
    return CommonFollowUp(
        a={s: cut(a[s], ends[s]) for s in a},
        b={s: cut(b[s], ends[s]) for s in a},
        tau_s=ends,
        shortened=tuple(s for s in a if ends[s] < tau_of(tau_s, s)),
        loss_p_value=test.p_value,
        n_lost=(sum(x for x, _ in counts.values()), sum(y for _, y in counts.values())),
    )


def cut(cell: Operations, at_s: float) -> Operations:
    """The cell as if watching had stopped at `at_s`: what was not done by then is censored there."""
    later = cell.durations_s > at_s
    durations_s = np.where(later, at_s, cell.durations_s)
    lost = None if cell.lost is None else cell.lost & ~later
    cause = cell.cause
    if cause is not None and later.any():
        causes = np.array(cause, dtype=object)
        causes[later] = Cause.TAIL
        cause = tuple(causes.tolist())
    return replace(cell, durations_s=durations_s, observed=cell.observed & ~later, lost=lost, cause=cause)


def _lost_units(cell: Operations, at_s: float) -> int:
    """Units with an operation that something else than the clock cut off before `at_s`."""
    if cell.lost is None:
        return 0
    gone = cell.lost & (cell.durations_s < at_s)
    return len(np.unique(cell.unit_codes[cell.cluster[gone]]))
