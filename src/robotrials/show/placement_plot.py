"""The picture of a store's placement by name: the voxels of one episode's result and target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.show.figure import PAGE_WIDTH_IN, new_figure
from robotrials.show.figure_mark import lead_to, these_episodes
from robotrials.show.geometry import placement_figure
from robotrials.show.request import ShowRequest
from robotrials.verdict.analysis import present

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SHOWN = 6


def draw_placement(request: ShowRequest) -> Figure:
    """Where the object came to lie against where it should: boxes, and voxels that agree or differ.

    Of the episodes of the policies asked for, the one with the median overlap, by its recorded pose.
    """
    found = present(request.analysis.placements)
    shown = request.shown(dict.fromkeys(p.episode.policy for p in found))
    asked = [p for p in found if p.episode.policy in shown]
    drawn = asked[len(asked) // 2]
    figure = placement_figure(drawn.result, drawn.target, score=drawn.score)
    for axes in figure.axes:
        lead_to(axes, None, None, these_episodes([drawn.episode]), f'{drawn.episode.policy}, {drawn.episode.task}')
    return figure


def draw_iou_over_time(request: ShowRequest) -> Figure:
    """Overlap with the target over time: by cameras (dots), by the host's poses (line), and the threshold (dashes).

    Where cameras could not tell, a mark stands on the axis. Of the policies asked for, six episodes at most.
    """
    found = present(request.analysis.overlaps)
    looks = request.looks()
    shown = request.shown(dict.fromkeys(c.episode.policy for c in found))
    curves = [c for c in found if c.episode.policy in shown][:MOST_SHOWN]
    columns = min(3, len(curves))
    rows = -(-len(curves) // columns)
    figure = new_figure(PAGE_WIDTH_IN, 0.6 + 1.7 * rows)
    for number, curve in enumerate(curves):
        axes = figure.add_subplot(rows, columns, number + 1)
        color = looks[curve.episode.policy].color
        if curve.by_host:
            axes.plot(*zip(*curve.by_host, strict=True), color='0.6', lw=1.0, label='host')
        if curve.by_cameras:
            axes.plot(*zip(*curve.by_cameras, strict=True), 'o', color=color, ms=3, label='cameras')
        if curve.untold_s:
            axes.plot(
                curve.untold_s, [0.0] * len(curve.untold_s), 'x', color='0.4', ms=4, label='not told', clip_on=False
            )
        if curve.threshold is not None:
            axes.axhline(curve.threshold, color='0.3', lw=0.8, ls='--')
        axes.set_ylim(-0.02, 1.02)
        for t_s, overlap in curve.by_cameras:
            words = f'{curve.episode.policy} at {t_s:.1f} s: IoU {overlap:.2f}'
            lead_to(axes, t_s, overlap, these_episodes([curve.episode]), words, t_s=t_s)
        axes.set_title(f'{curve.episode.policy}, {curve.episode.task}: {curve.episode.outcome.value}', fontsize='small')
        if number % columns == 0:
            axes.set_ylabel('IoU with the target')
        if number >= len(curves) - columns:
            axes.set_xlabel('time, s')
        if number == 0:
            axes.legend(fontsize='x-small', loc='upper left')
    return figure
