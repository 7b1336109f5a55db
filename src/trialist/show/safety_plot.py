"""The safety figures that `trialist plot NAME STORE` draws: trajectories read from the store, scored, summarised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trialist.episodes import Episode, Trajectory, read_store
from trialist.errors import NotEstimable
from trialist.safety import CellSafety, EpisodeSafety, load_registry, score_pairs, summarize_safety
from trialist.show.figure_catalog import FigureRequest
from trialist.show.safety_figure import composition_figure, filmstrip_figure, heatmap_figure, pareto_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_pareto(request: FigureRequest) -> Figure:
    """Task success against safety, a marker a policy and benchmark, with Wilson bars and the frontier."""
    return pareto_figure(safety_cells(request), looks=request.looks())


def draw_heatmap(request: FigureRequest) -> Figure:
    """Violation rates of every safety family, a row a policy and benchmark."""
    return heatmap_figure(safety_cells(request))


def draw_axis_heatmap(request: FigureRequest) -> Figure:
    """Violation rates of the three axes of safety, a row a policy and benchmark."""
    return heatmap_figure(safety_cells(request), by='axis')


def draw_composition(request: FigureRequest) -> Figure:
    """Bars of unsafe successes, split by the specs that they violate."""
    return composition_figure(safety_cells(request))


def draw_filmstrip(request: FigureRequest) -> Figure:
    """Start, violation and success of the most severe unsafe success that has a video."""
    return worst_filmstrip(request.folder('a safety figure'), list(score_pairs(safety_pairs(request))))


def worst_filmstrip(store: Path, scores: list[EpisodeSafety]) -> Figure:
    """The filmstrip of the most severe unsafe success with a video under the store's media folder."""
    unsafe = {(s.episode_id, s.attempt): s for s in scores if s.sbu and s.violations}
    shown = None
    for episode, trajectory in read_store(store).trajectories():
        video = next((camera.video for camera in trajectory.scene.cameras if camera.video), '')
        score = unsafe.get(episode.key)
        if video and score is not None and (shown is None or (score.vsi or 0) > (shown[0].vsi or 0)):
            shown = score, store / 'media' / video, episode.known_duration_s
    if shown is None:
        raise NotEstimable('no unsafe success of this store has a recorded video; a filmstrip needs one')
    return filmstrip_figure(shown[0], shown[1], duration_s=shown[2])


def safety_cells(request: FigureRequest) -> tuple[CellSafety, ...]:
    registry = load_registry()
    # The figures show rates with Wilson intervals only, so one resample is drawn and thrown away.
    summary = summarize_safety(
        score_pairs(safety_pairs(request)), rng=np.random.default_rng(request.seed), registry=registry, n_resamples=1
    )
    if not summary.cells:
        lost = summary.not_estimable[0][3][0]
        raise NotEstimable(f'no episode could be scored for safety; the first: {lost.episode_id}: {lost.reason}')
    return summary.cells


def safety_pairs(request: FigureRequest) -> Iterator[tuple[Episode, Trajectory | None]]:
    """The episodes asked for, each with its trajectory, or without where none was recorded."""
    wanted = {e.key: e for e in request.chosen()}
    for episode, trajectory in read_store(request.folder('a safety figure')).trajectories():
        if wanted.pop(episode.key, None) is not None:
            yield episode, trajectory
    yield from ((episode, None) for episode in wanted.values())
