"""Which episodes stand behind a number of an analysis: a placement, an end, a condition, a cell of the confusion."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import NotEstimable
from robotrials.measure.geometry import recorded_placement, score_recorded_pose
from robotrials.measure.timing.incidence import places_by_end
from robotrials.record.rows import join, pick
from robotrials.record.trajectory import frame_times
from robotrials.value import dataclass
from robotrials.verdict.analysis.cameras import has_truth
from robotrials.verdict.analysis.ranking import ALL_STRATA
from robotrials.verdict.analysis.selection import Absent
from robotrials.verdict.robustness.trial import conditions_by_severity, recorded_severity

if TYPE_CHECKING:
    from robotrials.measure.geometry import Box, PlacementScore
    from robotrials.measure.timing.incidence import End
    from robotrials.record import Camera, Episode, Store, Trajectory
    from robotrials.verdict.analysis.cameras import CameraPart
    from robotrials.verdict.analysis.frame import ComparisonFrame
    from robotrials.verdict.analysis.ranking import Times
    from robotrials.verdict.analysis.selection import Selection


@dataclass(frozen=True, eq=False)
class EpisodesBehind:
    """Looks episodes up for whoever shows a number."""

    selection: Selection
    baseline: str

    def placements(
        self, frame: ComparisonFrame, times: Times, policy: str, stratum: str = ALL_STRATA
    ) -> list[tuple[float, Episode]]:
        """A policy's placements in one stratum or in all: how long each took, and its episode."""
        distances: list[tuple[float, Episode]] = []
        for name, cell in times.cohorts[policy].cells.items():
            if stratum in (ALL_STRATA, name):
                placed = np.flatnonzero(cell.observed)
                behind = pick(frame.cells[policy][name], cell.episode[placed].tolist())
                distances += zip(cell.durations_s[placed].tolist(), behind, strict=True)
        return distances

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
        places: dict[tuple[str, str, str, float | None], array[int]] = {}
        for place, e in enumerate(self.selection.episodes):
            if e.is_valid:
                key = e.policy, e.condition, named(e), recorded_severity(e, baseline=self.baseline)
                places.setdefault(key, array('l')).append(place)
        return places

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
        by_ends: dict[tuple[bool, bool | None], list[Episode]] = {}
        for episode in self.selection.episodes:
            if episode.key in part.scores and has_truth(episode):
                ends = (bool(episode.is_success), part.scores[episode.key].success)
                by_ends.setdefault(ends, []).append(episode)
        return by_ends


# What of the trajectories can be looked at: films, and where objects came to lie.


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
    films: dict[tuple[str, int], list[Film]] = {}
    media = selection.store.path / 'media'
    for episode, trajectory in selection.store.trajectories(where=selection.where, signals=()):
        for camera in trajectory.scene.cameras if episode.is_valid else ():
            if selection.store.has_film(camera.video):
                film = _film(episode, trajectory, camera, path=media / camera.video)
                films.setdefault(episode.key, []).append(film)
    return tuple(film for e in selection.episodes for film in films.get(e.key, ())) if films else ()


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
    placements: list[Placement] = []
    why = 'no episode has a trajectory'
    for episode, trajectory in selection.pairs():
        if trajectory is None or not episode.is_valid:
            continue
        try:
            score = score_recorded_pose(trajectory)
        except NotEstimable as error:
            why = str(error)
            continue
        placements.append(Placement(episode, *recorded_placement(trajectory), score))
    if not placements:
        return Absent(f'no placement is recorded; {why}')
    return tuple(sorted(placements, key=lambda p: (p.score.iou, -p.score.translation_error_m, p.episode.episode_id)))
