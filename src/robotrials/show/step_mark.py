"""Marks on curves of times: every vertex leads to the episodes whose placements make it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from robotrials.measure.timing.operation import FloatArray
from robotrials.record import Episode
from robotrials.show.figure_mark import counted, is_leading, lead_to, of_policies, these_episodes
from robotrials.show.request import ShowRequest
from robotrials.verdict.analysis import Analysis, present

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_VERTICES = 120  # marks on one curve; neighbours beyond that share one
DIGITS = 9


def lead_from_vertices(
    axes: Axes, request: ShowRequest, x: FloatArray, y: FloatArray, times_s: Mapping[str, FloatArray], *, stratum: str
) -> None:
    """Let the vertices (x[i], y[i]) lead to the placements of each policy that took `times_s[policy][i]`."""
    if not is_leading():
        return
    frame = present(request.analysis.frame)
    kept = np.flatnonzero(np.r_[True, (np.diff(x) != 0) | (np.diff(y) != 0)]) if len(x) else np.arange(0)
    at = {policy: _by_time(request.analysis, policy, stratum) for policy in times_s}
    otherwise = of_policies(frame, *times_s, stratum=stratum)
    for some in np.array_split(kept, max(1, min(len(kept), MOST_VERTICES))):
        behind = [
            episode
            for policy, times in times_s.items()
            for t_s in np.unique(np.round(times[some], DIGITS)).tolist()
            for episode in at[policy].get(t_s, ())
        ]
        if behind:
            middle = some[len(some) // 2]
            took = ', '.join(f'{policy} {times[middle]:.2f} s' for policy, times in times_s.items())
            words = f'{took}: {counted(behind)}'
            lead_to(axes, float(x[middle]), float(y[middle]), these_episodes(behind, otherwise), words)


def _by_time(analysis: Analysis, policy: str, stratum: str) -> dict[float, list[Episode]]:
    found: dict[float, list[Episode]] = {}
    frame, times = present(analysis.frame), present(analysis.times)
    for took_s, episode in analysis.behind.placements(frame, times, policy, stratum):
        found.setdefault(round(took_s, DIGITS), []).append(episode)
    return found
