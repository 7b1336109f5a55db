"""The picture of a store's placement by name: the voxels of one episode's result and target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trialist.analysis import present
from trialist.show.geometry import placement_figure
from trialist.show.request import ShowRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_placement(request: ShowRequest) -> Figure:
    """Where the object came to lie against where it should: boxes, and voxels that agree or differ.

    Of the episodes of the policies asked for, the one with the median overlap, by its recorded pose.
    """
    found = present(request.analysis.placements)
    shown = request.shown(dict.fromkeys(p.episode.policy for p in found))
    asked = [p for p in found if p.episode.policy in shown]
    drawn = asked[len(asked) // 2]
    return placement_figure(drawn.result, drawn.target, score=drawn.score)
