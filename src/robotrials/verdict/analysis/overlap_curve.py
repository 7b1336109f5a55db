"""Overlap with the target over an episode, by cameras, beside what the host's own poses say (RADAR, figure 5a)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robotrials.errors import NotEstimable
from robotrials.measure.geometry import score_recorded_pose
from robotrials.measure.geometry.camera_score import score_moment
from robotrials.record.rgbd import END, START, kept_views
from robotrials.verdict.analysis.absent import Absent

if TYPE_CHECKING:
    from robotrials.record import Episode
    from robotrials.verdict.analysis.selection import Selection

MOST_EPISODES = 12


@dataclass(frozen=True, slots=True)
class OverlapCurve:
    """One episode: (seconds, IoU) by cameras where they could tell, and by recorded poses."""

    episode: Episode
    threshold: float | None
    by_cameras: tuple[tuple[float, float], ...]
    untold_s: tuple[float, ...]  # moments at which the cameras could not tell
    by_host: tuple[tuple[float, float], ...]


def find_overlaps(selection: Selection) -> tuple[OverlapCurve, ...] | Absent:
    """The first episodes, in the canonical order, that kept RGB-D between start and end."""
    found: list[OverlapCurve] = []
    if selection.store is None:
        return Absent('these episodes are in no store, and views are kept in one')
    for episode, trajectory in selection.pairs():
        kept = kept_views(selection.store.path / 'media', *episode.key) if episode.is_valid else None
        if kept is None or not kept.names or not kept.has_ends:
            continue
        known = kept.known()
        told, untold = [], []
        for name in (START, *kept.names, END):
            views = kept.moment(name)
            t_s = next(iter(views.values())).t_s
            iou = score_moment(views, known).iou
            if iou is None:
                untold.append(t_s)
            else:
                told.append((t_s, iou))
        host: list[tuple[float, float]] = []
        if trajectory is not None:
            try:
                steps = range(trajectory.n_steps)
                host = [(float(trajectory.time_s[k]), score_recorded_pose(trajectory, step=k).iou) for k in steps]
            except NotEstimable:
                host = []
        found.append(OverlapCurve(episode, known.threshold, tuple(told), tuple(untold), tuple(host)))
        if len(found) == MOST_EPISODES:
            break
    if not found:
        return Absent('no episode has RGB-D between its start and its end', 'run with recording.rgbd = 2 (per second)')
    return tuple(found)
