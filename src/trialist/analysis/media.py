"""What of the trajectories can be looked at: films, and where objects came to lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trialist.analysis.absent import Absent
from trialist.analysis.selection import Selection
from trialist.episodes import Episode
from trialist.errors import NotEstimable
from trialist.geometry import Box, PlacementScore, recorded_placement, score_recorded_pose


@dataclass(frozen=True, slots=True)
class Film:
    """An episode's first recorded video that is there."""

    episode: Episode
    path: Path


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where one episode's object came to lie, where it should have, and the score of it."""

    episode: Episode
    result: Box
    target: Box
    score: PlacementScore


def find_films(selection: Selection) -> tuple[Film, ...]:
    """The film of every valid episode that has one."""
    found = []
    for episode, trajectory in selection.pairs():
        if trajectory is None or selection.store is None or not episode.is_valid:
            continue
        video = next((camera.video for camera in trajectory.scene.cameras if camera.video), '')
        path = selection.store.path / 'media' / video
        if video and path.exists():
            found.append(Film(episode, path))
    return tuple(found)


def find_placements(selection: Selection) -> tuple[Placement, ...] | Absent:
    """Placements by the recorded poses, the smallest overlap first."""
    found: list[Placement] = []
    why = 'no episode has a trajectory'
    for episode, trajectory in selection.pairs():
        if trajectory is None or not episode.is_valid:
            continue
        try:
            score = score_recorded_pose(trajectory)
        except NotEstimable as error:
            why = str(error)
            continue
        found.append(Placement(episode, *recorded_placement(trajectory), score))
    if not found:
        return Absent(f'no placement is recorded; {why}')
    return tuple(sorted(found, key=lambda p: (p.score.iou, -p.score.translation_error_m, p.episode.episode_id)))
