"""Which episodes stand behind a number of an analysis: a placement, an end, a condition, a cell of the confusion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trialist.analysis.cameras import CameraPart, has_truth
from trialist.analysis.frame import ComparisonFrame
from trialist.analysis.ranking import ALL_STRATA
from trialist.analysis.selection import Selection
from trialist.analysis.times import Times
from trialist.episodes import Episode
from trialist.robustness.trial import episodes_by_severity, recorded_severity
from trialist.timing.incidence import End, episodes_by_end


@dataclass(frozen=True, eq=False)
class EpisodesBehind:
    """Looks episodes up for whoever shows a number."""

    selection: Selection
    baseline: str

    def placements(
        self, frame: ComparisonFrame, times: Times, policy: str, stratum: str = ALL_STRATA
    ) -> list[tuple[float, Episode]]:
        """A policy's placements in one stratum or in all: how long each took, and its episode."""
        cells, own = times.cohorts[policy].cells, frame.cells[policy]
        return [
            (float(cell.durations_s[place]), own[name][int(cell.episode[place])])
            for name, cell in cells.items()
            if stratum in (ALL_STRATA, name)
            for place in np.flatnonzero(cell.observed)
        ]

    def by_end(self, frame: ComparisonFrame, policy: str) -> Mapping[End, list[Episode]]:
        """A policy's ranked episodes by how their operations ended; one episode may be under several ends."""
        return episodes_by_end([e for own in frame.cells[policy].values() for e in own])

    @cached_property
    def _conditioned(self) -> list[tuple[Episode, str]]:
        """Valid episodes with the condition's name as tables have it: with its severity where it was run at several."""
        valid = [e for e in self.selection.episodes if e.is_valid]
        return [(e, named.condition) for e, named in zip(valid, episodes_by_severity(valid), strict=True)]

    def under(self, policy: str, condition: str, severity: float | None = None) -> list[Episode]:
        """A policy's episodes under a condition as a table names it; or at one severity of it, 0 being the baseline."""
        return [
            e for e, name in self._conditioned
            if e.policy == policy
            and (condition in (e.condition, name) if severity is None else e.condition in (condition, self.baseline)
                 and recorded_severity(e, baseline=self.baseline) == severity)
        ]  # fmt: skip

    def confused(self, part: CameraPart) -> dict[tuple[bool, bool | None], list[Episode]]:
        """(success by the host, by the cameras or None) -> episodes whose truth the host knows."""
        found: dict[tuple[bool, bool | None], list[Episode]] = {}
        for episode in self.selection.episodes:
            if episode.key in part.scores and has_truth(episode):
                told = (bool(episode.is_success), part.scores[episode.key].success)
                found.setdefault(told, []).append(episode)
        return found
