"""The episodes behind a success curve: every placement at its place on the curve that the analysis draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from robotrials.verdict.analysis.ranking import ALL_STRATA
from robotrials.verdict.analysis.selection import Absent, present

if TYPE_CHECKING:
    from robotrials.record import Episode
    from robotrials.verdict.analysis.analysis import Analysis
    from robotrials.verdict.analysis.ranking import PolicyCurve


@dataclass(frozen=True, slots=True, eq=False)
class CurvePoint:
    """One placement: how long it took, the chance of success by then, and when in its episode it was."""

    took_s: float
    chance: float
    episode: Episode
    at_s: float


def curve_points(analysis: Analysis) -> list[tuple[PolicyCurve, tuple[CurvePoint, ...]]] | Absent:
    """Each policy's curve over all strata, as in every report of this analysis, with the placements up to its tau."""
    if isinstance(analysis.curves, Absent):
        return analysis.curves
    times, frame = present(analysis.times), present(analysis.frame)
    rows = []
    for curve in analysis.curves[ALL_STRATA]:
        points = []
        for stratum, cell in times.cohorts[curve.policy].cells.items():
            own = frame.cells[curve.policy][stratum]
            for place in np.flatnonzero(cell.observed & (cell.durations_s <= curve.times_s.max(initial=-1.0))):
                took_s = float(cell.durations_s[place])
                step = int(np.searchsorted(curve.times_s, took_s + 1e-12, side='right')) - 1
                same = np.flatnonzero(cell.episode[: place + 1] == cell.episode[place])
                chance = float(curve.chance[step]) if step >= 0 else 0.0
                at_s = float(cell.durations_s[same].sum())
                points.append(CurvePoint(took_s, chance, own[int(cell.episode[place])], at_s))
        rows.append((curve, tuple(sorted(points, key=lambda p: (p.took_s, p.episode.key)))))
    return rows
