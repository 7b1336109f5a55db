"""The picture of a store's placement by name: the voxels of one episode's result and target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trialist.episodes import read_store
from trialist.errors import NotEstimable
from trialist.geometry import Box, PlacementScore, recorded_boxes, score_recorded_pose
from trialist.show.geometry import placement_figure
from trialist.show.request import ShowRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_placement(request: ShowRequest) -> Figure:
    """Where the object came to lie against where it should: boxes, and voxels that agree or differ.

    The first episode asked for in which the two overlap, else the first that can be scored.
    """
    store = read_store(request.folder('placement'))
    wanted = {e.key for e in request.chosen() if e.is_valid}
    found: tuple[Box, Box, PlacementScore] | None = None
    why = 'no episode of it has a trajectory'
    for episode, trajectory in store.trajectories():
        if episode.key not in wanted:
            continue
        try:
            score = score_recorded_pose(trajectory)
        except NotEstimable as error:
            why = str(error)
            continue
        if found is None or score.iou > 0:
            found = (*recorded_boxes(trajectory), score)
        if score.iou > 0:
            break
    if found is None:
        raise NotEstimable(f'{request.store}: no placement to draw; {why}')
    return placement_figure(found[0], found[1], score=found[2])
