"""The picture of a store's placement by name: the voxels of one episode's result and target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trialist.episodes import Episode, Trajectory, read_store
from trialist.errors import NotEstimable
from trialist.geometry import PlacementScore, recorded_placement, score_recorded_pose
from trialist.show.geometry import placement_figure
from trialist.show.request import ShowRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_placement(request: ShowRequest) -> Figure:
    """Where the object came to lie against where it should: boxes, and voxels that agree or differ.

    Of the episodes asked for, the one with the median overlap, by its recorded pose.
    """
    store = read_store(request.folder('placement'))
    wanted = {e.key for e in request.chosen() if e.is_valid}
    scored: list[tuple[PlacementScore, Episode, Trajectory]] = []
    why = 'no episode of it has a trajectory'
    for episode, trajectory in store.trajectories():
        if episode.key not in wanted:
            continue
        try:
            scored.append((score_recorded_pose(trajectory), episode, trajectory))
        except NotEstimable as error:
            why = str(error)
    if not scored:
        raise NotEstimable(f'{request.store}: no placement to draw; {why}')
    scored.sort(key=lambda row: (row[0].iou, -row[0].translation_error_m, row[1].episode_id))
    score, episode, trajectory = scored[len(scored) // 2]
    result, target = recorded_placement(trajectory)
    return placement_figure(result, target, score=score)
