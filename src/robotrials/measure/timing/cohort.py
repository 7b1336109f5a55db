"""Cohorts: the episodes of each policy, cut into the cells (strata) that scores and tests work on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.timing.curve import success_curve
from robotrials.measure.timing.operation import (
    BatchRule,
    Cause,
    Operations,
    is_safety_stopped,
    operations_by_stratum,
    pool,
    stratum_of,
)
from robotrials.measure.timing.unit import followed_to, tau_of
from robotrials.record import Episode, Outcome
from robotrials.record.rows import EpisodeRows, ended, pick
from robotrials.stats import Interval, wilson
from robotrials.stats.success_pair import stratified_exact
from robotrials.value import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """One policy's episodes, and their operations stratum by stratum."""

    policy: str
    is_reference: bool
    episodes: Sequence[Episode]  # INVALID ones included
    cells: Mapping[str, Operations]  # strata with at least one operation

    @property
    def valid(self) -> Sequence[Episode]:
        return pick(self.episodes, np.flatnonzero(~ended(self.episodes, Outcome.INVALID)))

    @property
    def n_episodes(self) -> int:
        return len(self.episodes) - self.n_invalid

    @property
    def n_invalid(self) -> int:
        return int(ended(self.episodes, Outcome.INVALID).sum())

    @property
    def n_safety_stops(self) -> int:
        if isinstance(self.episodes, EpisodeRows) and not self.episodes.has_events:
            return int(self.episodes.ended(Outcome.SAFETY_STOP).sum())
        return sum(e.is_valid and is_safety_stopped(e) for e in self.episodes)

    @property
    def followed_to_s(self) -> float:
        """From when on some stratum's curve is only held flat: nobody watched longer, and not all had succeeded."""
        return min((success_curve(c.durations_s, c.observed).followed_to_s for c in self.cells.values()), default=inf)

    @property
    def pooled(self) -> Operations:
        """All strata as one cell."""
        if not self.cells:
            raise NotEstimable(f'{self.policy}: none of {len(self.episodes)} episodes gives an operation')
        return pool(self.cells)


def cohorts(episodes: Iterable[Episode], *, batch: BatchRule | str = BatchRule.ELAPSED) -> dict[str, Cohort]:
    """Policy -> Cohort, references first and then by name."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.policy, []).append(episode)
    made = [_cohort(policy, group, BatchRule(batch)) for policy, group in groups.items()]
    return {c.policy: c for c in sorted(made, key=lambda c: (not c.is_reference, c.policy))}


def _cohort(policy: str, group: list[Episode], batch: BatchRule) -> Cohort:
    flags = {e.is_reference for e in group}
    if len(flags) > 1:
        raise InputError(f'{policy}: some episodes say is_reference and some do not; correct one of them')
    cells = operations_by_stratum(group, batch=batch)
    return Cohort(policy, flags.pop(), tuple(group), {s: c for s, c in cells.items() if c.n_operations})


def find_cohort(by_policy: Mapping[str, Cohort], policy: str) -> Cohort:
    """The cohort of this name, or an error with the near one."""
    if policy not in by_policy:
        raise UnknownName('policy', policy, by_policy)
    return by_policy[policy]


def find_reference(by_policy: Mapping[str, Cohort], policy: str | None = None) -> Cohort | None:
    """The named cohort, or the only one marked as the reference; None when there is none."""
    if policy is not None:
        return find_cohort(by_policy, policy)
    marked = [c for c in by_policy.values() if c.is_reference]
    if len(marked) > 1:
        names = ', '.join(c.policy for c in marked)
        raise InputError(
            f'several policies are marked as the reference ({names}); name the one to use with --reference'
        )
    return marked[0] if marked else None


# Plain counts of a store: successes by task and condition, and how much was recorded.


@dataclass(frozen=True, slots=True)
class SuccessCount:
    """Successes over valid episodes of one policy in one task under one condition."""

    policy: str
    task: str
    condition: str
    successes: int
    n: int

    @property
    def interval(self) -> Interval:
        """Wilson, 95 %."""
        return wilson(self.successes, self.n)


@dataclass(frozen=True, slots=True)
class RecordedTime:
    """How many valid episodes a stratum has, and how long they took together."""

    stratum: str
    n_episodes: int
    duration_s: float


def success_counts(episodes: Iterable[Episode]) -> list[SuccessCount]:
    """Success by policy, task and condition, in that order; INVALID episodes tested no policy."""
    by_key: dict[tuple[str, str, str], list[bool]] = {}
    for episode in episodes:
        if episode.is_valid:
            key = (episode.policy, episode.task, episode.condition)
            by_key.setdefault(key, []).append(episode.is_success)
    if not by_key:
        raise NotEstimable('no valid episode; a success rate needs one')
    return [SuccessCount(*key, sum(outcomes), len(outcomes)) for key, outcomes in sorted(by_key.items())]


def recorded_times(episodes: Iterable[Episode]) -> list[RecordedTime]:
    """Valid episodes and their time by stratum."""
    durations: dict[str, list[float]] = {}
    for episode in episodes:
        if episode.is_valid:
            durations.setdefault(stratum_of(episode), []).append(episode.known_duration_s)
    if not durations:
        raise NotEstimable('no valid episode; nothing was recorded')
    return [RecordedTime(name, len(times), sum(times)) for name, times in sorted(durations.items())]


# Common follow-up: both arms of a stratum are judged only as far as both were watched.
# Identical policies run under caps of 60 and 120 s are "different" in most trials when each is taken as far as it was
# run. Cut at the common follow-up, curves, tests and counts hold. Random loss (censoring before the cap) that differs
# between the arms is another matter: shuffling labels is then no longer exact, so the KS test is refused.

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
    return len(set(cell.unit_codes[cell.cluster[gone]].tolist()))
