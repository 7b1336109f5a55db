"""Filmstrips of episodes with a video: what a success and what a failure of each task looks like."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from robotrials.errors import NotEstimable
from robotrials.record import Episode
from robotrials.show.figure import PAGE_WIDTH_IN, figure_width_in, fold, new_figure
from robotrials.show.figure_mark import lead_to, these_episodes
from robotrials.show.request import ShowRequest
from robotrials.show.safety_figure import read_frames

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_STRIPS = 8
FRAME_IN = 1.1  # about this wide on the page


def draw_successes(request: ShowRequest) -> Figure:
    """Frames of one successful episode of every task (and policy, up to eight), from its start to its end."""
    return _strips(request, success=True)


def draw_failures(request: ShowRequest) -> Figure:
    """Frames of one failed episode of every task (and policy, up to eight), from its start to its end."""
    return _strips(request, success=False)


def _strips(request: ShowRequest, *, success: bool) -> Figure:
    found = _episodes(request, success=success)
    if not found:
        said = 'successful' if success else 'failed'
        raise NotEstimable(f'no {said} episode of this store has a recorded video; a filmstrip needs one')
    count = max(3, min(7, int(figure_width_in() / FRAME_IN)))
    frames = [read_frames(video, [k / (count - 1) for k in range(count)]) for _, video in found]
    height, width = frames[0][0].shape[:2]
    frame_in = figure_width_in() / count
    figure = new_figure(PAGE_WIDTH_IN, (frame_in * height / width + 0.3) * len(found) + 0.2, is_rows=True)
    rows = figure.subfigures(len(found), 1, squeeze=False)[:, 0]
    for row, (episode, _), shown in zip(rows, found, frames, strict=True):
        lasted = '' if episode.duration_s is None else f', {episode.duration_s:.1f} s'
        said = f'{episode.policy}: {episode.instruction or episode.task} ({episode.outcome}{lasted})'
        row.suptitle(fold(said, 0.9 * figure.get_figwidth(), size=0.833), fontsize='small')
        for k, (axes, frame) in enumerate(zip(row.subplots(1, count, squeeze=False)[0], shown, strict=True)):
            axes.imshow(frame)
            at_s = (episode.duration_s or 0.0) * k / (count - 1)
            lead_to(axes, None, None, these_episodes([episode]), f'{said}, at {at_s:.1f} s', t_s=at_s)
            axes.set_axis_off()
    return figure


def _episodes(request: ShowRequest, *, success: bool) -> list[tuple[Episode, Path]]:
    """The first episode of each task and policy with this outcome and a film."""
    films = request.analysis.leading_films.values()
    shown = request.shown(dict.fromkeys(f.episode.policy for f in films))
    found: dict[tuple[str, str], tuple[Episode, Path]] = {}
    for film in films:
        if film.episode.is_success is success and film.episode.policy in shown:
            found.setdefault((film.episode.task, film.episode.policy), (film.episode, film.path))
    return [found[key] for key in sorted(found)][:MOST_STRIPS]
