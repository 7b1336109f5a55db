"""Which episodes stand behind a number of an analysis: a placement, an end, a condition, a cell of the confusion."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from robotrials.measure.timing.incidence import places_by_end
from robotrials.record.rows import join, pick
from robotrials.verdict.analysis.cameras import has_truth
from robotrials.verdict.analysis.ranking import ALL_STRATA
from robotrials.verdict.robustness.trial import conditions_by_severity, recorded_severity

if TYPE_CHECKING:
    from robotrials.measure.timing.incidence import End
    from robotrials.record import Episode
    from robotrials.verdict.analysis.cameras import CameraPart
    from robotrials.verdict.analysis.frame import ComparisonFrame
    from robotrials.verdict.analysis.selection import Selection
    from robotrials.verdict.analysis.times import Times


@dataclass(frozen=True, eq=False)
class EpisodesBehind:
    """Looks episodes up for whoever shows a number."""

    selection: Selection
    baseline: str

    def placements(
        self, frame: ComparisonFrame, times: Times, policy: str, stratum: str = ALL_STRATA
    ) -> list[tuple[float, Episode]]:
        """A policy's placements in one stratum or in all: how long each took, and its episode."""
        found: list[tuple[float, Episode]] = []
        for name, cell in times.cohorts[policy].cells.items():
            if stratum in (ALL_STRATA, name):
                placed = np.flatnonzero(cell.observed)
                behind = pick(frame.cells[policy][name], cell.episode[placed].tolist())
                found += zip(cell.durations_s[placed].tolist(), behind, strict=True)
        return found

    def by_end(self, frame: ComparisonFrame, policy: str) -> Mapping[End, Sequence[Episode]]:
        """A policy's ranked episodes by how their operations ended; one episode may be under several ends."""
        own = join(list(frame.cells[policy].values()))
        return {end: pick(own, places) for end, places in places_by_end(own).items()}

    @cached_property
    def _conditioned(self) -> Mapping[tuple[str, str, str, float | None], array[int]]:
        """(policy, condition, its name as tables have it, severity) -> places of the valid episodes.

        The name has the severity in it where the condition was run at several.
        """
        named = conditions_by_severity(e for e in self.selection.episodes if e.is_valid)
        found: dict[tuple[str, str, str, float | None], array[int]] = {}
        for place, e in enumerate(self.selection.episodes):
            if e.is_valid:
                key = e.policy, e.condition, named(e), recorded_severity(e, baseline=self.baseline)
                found.setdefault(key, array('l')).append(place)
        return found

    def under(self, policy: str, condition: str, severity: float | None = None) -> Sequence[Episode]:
        """A policy's episodes under a condition as a table names it; or at one severity of it, 0 being the baseline."""
        places = [
            place
            for (own, recorded, name, rung), group in self._conditioned.items()
            if own == policy
            and (condition in (recorded, name) if severity is None else recorded in (condition, self.baseline)
                 and rung == severity)
            for place in group
        ]  # fmt: skip
        return pick(self.selection.episodes, sorted(places))

    def confused(self, part: CameraPart) -> dict[tuple[bool, bool | None], list[Episode]]:
        """(success by the host, by the cameras or None) -> episodes whose truth the host knows."""
        found: dict[tuple[bool, bool | None], list[Episode]] = {}
        for episode in self.selection.episodes:
            if episode.key in part.scores and has_truth(episode):
                told = (bool(episode.is_success), part.scores[episode.key].success)
                found.setdefault(told, []).append(episode)
        return found
