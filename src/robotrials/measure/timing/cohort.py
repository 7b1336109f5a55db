"""Cohorts: the episodes of each policy, cut into the cells (strata) that scores and tests work on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.timing.curve import success_curve
from robotrials.measure.timing.operation import BatchRule, Operations, is_safety_stopped, operations_by_stratum, pool
from robotrials.record import Episode, Outcome
from robotrials.record.rows import EpisodeRows, ended, pick


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


def find_cohort(found: Mapping[str, Cohort], policy: str) -> Cohort:
    """The cohort of this name, or an error with the near one."""
    if policy not in found:
        raise UnknownName('policy', policy, found)
    return found[policy]


def find_reference(found: Mapping[str, Cohort], policy: str | None = None) -> Cohort | None:
    """The named cohort, or the only one marked as the reference; None when there is none."""
    if policy is not None:
        return find_cohort(found, policy)
    marked = [c for c in found.values() if c.is_reference]
    if len(marked) > 1:
        names = ', '.join(c.policy for c in marked)
        raise InputError(
            f'several policies are marked as the reference ({names}); name the one to use with --reference'
        )
    return marked[0] if marked else None
