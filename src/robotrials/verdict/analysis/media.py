"""What of the trajectories can be looked at: films, and where objects came to lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import NotEstimable
from robotrials.measure.geometry import recorded_placement, score_recorded_pose
from robotrials.record.trajectory import frame_times
from robotrials.verdict.analysis.absent import Absent

if TYPE_CHECKING:
    from robotrials.measure.geometry import Box, PlacementScore
    from robotrials.record import Camera, Episode, Store, Trajectory
    from robotrials.verdict.analysis.selection import Selection


@dataclass(frozen=True, slots=True, eq=False)
class Film:
    """One camera's film of an episode, with the control step and the time that each frame shows."""

    episode: Episode
    path: Path
    name: str  # in the store's media/
    camera: str
    steps: NDArray[np.int64]  # (N,); 0 is the reset, and row k of the trajectory is the world after step k + 1
    times_s: NDArray[np.floating[Any]]  # (N,), rising
    is_sampled: bool  # filmed at a rate of its own; else there is one frame per row

    def frame_at(self, time_s: float) -> int:
        """The frame that is shown at a time: the last that is not later."""
        return max(int(np.searchsorted(self.times_s, time_s + 1e-9, side='right')) - 1, 0)

    def frame_of_step(self, step: int) -> int:
        """The frame that is shown when a control step is done."""
        return max(int(np.searchsorted(self.steps, step, side='right')) - 1, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where one episode's object came to lie, where it should have, and the score of it."""

    episode: Episode
    result: Box
    target: Box
    score: PlacementScore


def find_films(selection: Selection) -> tuple[Film, ...]:
    """Every film that is there of every valid episode: all cameras, in the episodes' order."""
    if selection.store is None:
        return ()
    found: dict[tuple[str, int], list[Film]] = {}
    media = selection.store.path / 'media'
    for episode, trajectory in selection.store.trajectories(where=selection.where, signals=()):
        for camera in trajectory.scene.cameras if episode.is_valid else ():
            if selection.store.has_film(camera.video):
                film = _film(episode, trajectory, camera, path=media / camera.video)
                found.setdefault(episode.key, []).append(film)
    return tuple(film for e in selection.episodes for film in found.get(e.key, ())) if found else ()


def films_of(store: Store, episode: Episode, trajectory: Trajectory) -> tuple[tuple[Film, Camera], ...]:
    """The films of one episode that are there, with their cameras."""
    media = store.path / 'media'
    there = [c for c in trajectory.scene.cameras if store.has_film(c.video)]
    return tuple((_film(episode, trajectory, c, path=media / c.video), c) for c in there)


def _film(episode: Episode, trajectory: Trajectory, camera: Camera, *, path: Path) -> Film:
    rows = np.arange(1, trajectory.n_steps + 1)
    steps = np.array(camera.video_steps or rows, dtype=np.int64)
    return Film(
        episode, path, camera.video, camera.name, steps, frame_times(camera, trajectory), bool(camera.video_steps)
    )


def leading_films(films: Iterable[Film]) -> dict[tuple[str, int], Film]:
    """One film per episode, to be looked at: the overview, which is filmed last, or an import's first camera."""
    leading: dict[tuple[str, int], Film] = {}
    for film in films:
        if film.is_sampled or film.episode.key not in leading:
            leading[film.episode.key] = film
    return leading


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
