"""What a figure's marks rest on: places of a drawing that lead to episodes, kept beside it as values.

Whoever draws says which episodes stand behind a point, a cell or a panel (`lead_to`); whoever shows the drawing lays
links over it (`figure_marks`). A figure drawn outside `leading()`, for a file, has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from robotrials.measure.timing.operation import FloatArray
from robotrials.record import Episode
from robotrials.show.document import EpisodeFilter
from robotrials.show.plot import Link, Place
from robotrials.show.request import ShowRequest
from robotrials.value import dataclass
from robotrials.verdict.analysis import Analysis, ComparisonFrame, present

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_IDS = 150  # more would not fit into an address
POINT_PX = 5.0  # half the width of what can be clicked around a point
# The episodes of a policy under a condition, at a severity where its name does not say it.
Behind = Callable[[str, str, float | None], EpisodeFilter]


@dataclass(frozen=True, slots=True)
class FigureMark:
    """A box of a figure, in shares of its width and height from the upper left, and the episodes that it leads to."""

    left: float
    top: float
    width: float
    height: float
    words: str
    episodes: EpisodeFilter
    t_s: float | None = None  # the moment, where it is one of a single episode


@dataclass(frozen=True, slots=True)
class _Placed:
    axes: Axes
    x: Place | None
    y: Place | None
    words: str
    episodes: EpisodeFilter
    t_s: float | None

    def corners(self) -> NDArray[np.float64]:
        """(2, 2) two corners of the box, in pixels of the figure as it was drawn."""
        if self.x is None or self.y is None:
            return np.asarray(self.axes.bbox.get_points())
        xs, ys = (v if isinstance(v, tuple) else (v, v) for v in (self.x, self.y))
        return np.asarray(self.axes.transData.transform([(xs[0], ys[0]), (xs[1], ys[1])]))


class OneEpisode(Protocol):
    """An episode, or a score of one."""

    @property
    def episode_id(self) -> str: ...
    @property
    def policy(self) -> str: ...


_marks: WeakKeyDictionary[Any, list[_Placed]] = WeakKeyDictionary()
_leading: ContextVar[bool] = ContextVar('leading', default=False)


@contextmanager
def leading() -> Iterator[None]:
    """Figures drawn inside keep their marks."""
    token = _leading.set(True)
    try:
        yield
    finally:
        _leading.reset(token)


def is_leading() -> bool:
    """Whether marks are kept now."""
    return _leading.get()


def lead_to(
    axes: Axes, x: Place | None, y: Place | None, episodes: EpisodeFilter, words: str, *, t_s: float | None = None
) -> None:
    """Let a point, or the box between two values, lead to episodes; None spans the whole panel."""
    if not is_leading():
        return
    _marks.setdefault(axes.get_figure(root=True), []).append(_Placed(axes, x, y, words, episodes, t_s))


def figure_marks(figure: Figure) -> tuple[FigureMark, ...]:
    """The marks of a figure that has been drawn, in the order in which they were made; those out of sight left out."""
    width, height = figure.bbox.width, figure.bbox.height
    marks = []
    for placed in _marks.get(figure, ()):
        corners = placed.corners()
        if not np.isfinite(corners).all():
            continue
        left, right = _widened(*sorted(corners[:, 0].tolist()), end=width)
        bottom, top = _widened(*sorted(corners[:, 1].tolist()), end=height)
        if left < right and bottom < top:
            marks.append(
                FigureMark(
                    left / width, 1 - top / height, (right - left) / width, (top - bottom) / height,
                    placed.words, placed.episodes, placed.t_s,
                )
            )  # fmt: skip
    return tuple(marks)


def _widened(low: float, high: float, *, end: float) -> tuple[float, float]:
    """A span that can be clicked, cut off at the figure's edges; empty where it lies outside."""
    room = max(0.0, POINT_PX - (high - low) / 2)
    return max(0.0, low - room), min(end, high + room)


def of_policies(frame: ComparisonFrame, *policies: str, stratum: str | None = None) -> EpisodeFilter:
    """The filter of policies' episodes, of the ranked condition where one was taken out of several."""
    chosen: dict[str, tuple[str, ...]] = {'policy': policies}
    if frame.condition and frame.n_conditions > 1:
        chosen['condition'] = (frame.condition,)
    if stratum:
        keys = [key for key, name in frame.stratum_names.items() if name == stratum]
        for place, field in enumerate(('benchmark', 'task', 'stratum')):
            values = tuple(sorted({key[place] for key in keys} - {''}))
            if values:
                chosen[field] = values
    return chosen


def these_episodes(episodes: Iterable[OneEpisode], otherwise: EpisodeFilter | None = None) -> EpisodeFilter:
    """Exactly these episodes, by id; or, where they are too many for an address, the filter that holds them all."""
    ids: dict[str, None] = {}
    policies: dict[str, None] = {}
    for episode in episodes:
        if len(ids) <= MOST_IDS:
            ids[episode.episode_id] = None
        elif otherwise is not None:
            break  # too many, and nothing else is asked of them
        policies[episode.policy] = None
    if ids and len(ids) <= MOST_IDS:
        return {'episode_id': tuple(ids)}
    return dict(otherwise) if otherwise is not None else {'policy': tuple(policies)}


def counted(episodes: Sequence[OneEpisode]) -> str:
    """How many episodes these are, in words."""
    n = len({e.episode_id for e in episodes})
    return f'{n} episode' if n == 1 else f'{n} episodes'


# Marks on curves of times: every vertex leads to the episodes whose placements make it.

MOST_VERTICES = 120  # marks on one curve; neighbours beyond that share one
DIGITS = 9


def vertex_links(
    request: ShowRequest, x: FloatArray, y: FloatArray, times_s: Mapping[str, FloatArray], *, stratum: str
) -> list[Link]:
    """Let the vertices (x[i], y[i]) lead to the placements of each policy that took `times_s[policy][i]`."""
    if not is_leading():
        return []
    frame = present(request.analysis.frame)
    kept = np.flatnonzero(np.r_[True, (np.diff(x) != 0) | (np.diff(y) != 0)]) if len(x) else np.arange(0)
    at = {policy: _by_time(request.analysis, policy, stratum) for policy in times_s}
    otherwise = of_policies(frame, *times_s, stratum=stratum)
    links = []
    for some in np.array_split(kept, max(1, min(len(kept), MOST_VERTICES))):
        behind = [
            episode
            for policy, times in times_s.items()
            for t_s in np.unique(np.round(times[some], DIGITS)).tolist()
            for episode in at[policy].get(t_s, ())
        ]
        if behind:
            middle = some[len(some) // 2]
            took = ', '.join(f'{policy} {times[middle]:.2f} s' for policy, times in times_s.items())
            episodes = these_episodes(behind, otherwise)
            links.append(Link(float(x[middle]), float(y[middle]), episodes, f'{took}: {counted(behind)}'))
    return links


def _by_time(analysis: Analysis, policy: str, stratum: str) -> dict[float, list[Episode]]:
    by_time: dict[float, list[Episode]] = {}
    frame, times = present(analysis.frame), present(analysis.times)
    for took_s, episode in analysis.behind.placements(frame, times, policy, stratum):
        by_time.setdefault(round(took_s, DIGITS), []).append(episode)
    return by_time
