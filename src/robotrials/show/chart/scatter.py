"""Two measures against each other with intervals on both, and the front that nobody beats on both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from robotrials.show.chart.interval import without_empty
from robotrials.show.chart.svg import (
    Mark,
    Number,
    Scale,
    coordinate,
    frame,
    interval_text,
    is_known,
    mark_group,
    marker,
    marks_for,
    named,
    panelled,
    rule,
    scale_over,
    sentence,
    text,
    whole_alt,
    x_axis,
    y_axis,
)
from robotrials.show.document import Chart, EpisodeFilter, Panel
from robotrials.show.table import Cell, Column, Table, table
from robotrials.value import dataclass

HEIGHT_PX = 270
PHONE_PX = 240  # the plot's width on a phone
LABEL_CHARACTERS = 18
LABEL_DROPS = (-6, 15, -18, 27, -30, 39, -42, 51)
RING = 'M-8.5 0a8.5 8.5 0 1 0 17 0a8.5 8.5 0 1 0-17 0z'


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    """One policy's two values; `is_front` marks those that no other beats on both."""

    policy: str
    x: Number
    y: Number
    x_low: Number = None
    x_high: Number = None
    y_low: Number = None
    y_high: Number = None
    is_front: bool = False
    label: str = ''
    episodes: EpisodeFilter | None = None  # behind both values

    @property
    def name(self) -> str:
        return self.label or self.policy


def scatter_chart(
    key: str,
    points: Sequence[ScatterPoint] | Mapping[str, Sequence[ScatterPoint]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    number_format: str = '.2f',
    note: str = '',
    colors: Mapping[str, str] | None = None,
    shown_table: Table | None = None,
) -> Chart:
    """Dots with bars both ways and a stepped line along the front; one panel a label if given a mapping."""
    panels = panelled(points)
    everything = [p for _, some in panels for p in some]
    marks = marks_for((p.policy for p in everything), colors)
    x_scale = scale_over([v for p in everything for v in (p.x, p.x_low, p.x_high)], within=x_range)
    y_scale = scale_over([v for p in everything for v in (p.y, p.y_low, p.y_high)], within=y_range)
    drawn, words = [], []
    for name, some in panels:
        told = sentence(title, name, [_told(p, x_label, y_label, number_format) for p in some])
        words.append(told)
        body = [
            x_axis(x_scale, HEIGHT_PX, title=x_label), y_axis(y_scale, HEIGHT_PX, title=y_label),
            _front(some, x_scale, y_scale),
            *_points(some, (x_scale, y_scale), marks, (x_label, y_label, number_format)),
        ]  # fmt: skip
        svg = frame(body, name=named(title, name), words=told, height=HEIGHT_PX + 68, padding=(26, 18, 42, 42),
                    kind='scatter')  # fmt: skip
        drawn.append(Panel(name, svg))
    policies = tuple(p for p in marks if any(q.policy == p for q in everything))
    numbers = shown_table or _table(panels, title=title, axes=(x_label, y_label), number_format=number_format)
    return Chart(key, title, whole_alt(words[0], len(drawn)), tuple(drawn), numbers, note, policies)


def _told(point: ScatterPoint, x_label: str, y_label: str, number_format: str) -> str:
    x = interval_text(point.x, point.x_low, point.x_high, number_format=number_format)
    y = interval_text(point.y, point.y_low, point.y_high, number_format=number_format)
    return f'{point.name}: {x_label} {x}, {y_label} {y}' + (', on the front' if point.is_front else '')


def _front(points: Sequence[ScatterPoint], x_scale: Scale, y_scale: Scale) -> str:
    """The front as steps: between two of its points, what is reached without losing on the other measure."""
    front = sorted((p.x, p.y) for p in points if p.is_front and is_known(p.x) and is_known(p.y))
    parts = []
    for (x1, y1), (x2, y2) in pairwise(front):
        across, down, up = x_scale.percent(x2), _height(y1, y_scale), _height(y2, y_scale)
        parts.append(rule(x_scale.percent(x1), down, across, down, kind='front'))
        parts.append(rule(across, down, across, up, kind='front'))
    return ''.join(parts)


def _height(y: float, scale: Scale) -> float:
    return HEIGHT_PX * (1 - scale.fraction(y))


@dataclass(frozen=True, slots=True)
class _Box:
    """A place on a plot of a phone's width, in pixels."""

    left: float
    top: float
    width: float
    height: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.left + other.width
            and other.left < self.left + self.width
            and self.top < other.top + other.height
            and other.top < self.top + self.height
        )


def _label_places(points: Sequence[ScatterPoint], x_scale: Scale, y_scale: Scale) -> list[tuple[bool, int] | None]:
    """For each point: whether its label stands at the left, and how far below the point its text's foot is.

    Labels dodge markers and each other on the narrowest page, which is where they meet first. None where there is no
    room: the legend tells that point.
    """
    at = [(PHONE_PX * x_scale.fraction(p.x or 0.0), _height(p.y or 0.0, y_scale)) for p in points]
    taken = [_Box(x - 8, y - 8, 16, 16) for x, y in at]
    places: list[tuple[bool, int] | None] = []
    for point, (x, y) in zip(points, at, strict=True):
        width = 6.8 * len(_short(point.name))
        sides = (True, False) if x > 0.6 * PHONE_PX else (False, True)
        tries = [(left, down) for down in LABEL_DROPS for left in sides]
        boxes = [_Box(x - 11 - width if left else x + 11, y + down - 11, width, 14) for left, down in tries]
        free = [k for k, box in enumerate(boxes) if not any(box.meets(o) for o in taken) and _is_inside(box)]
        places.append(tries[free[0]] if free else None)
        taken += [boxes[k] for k in free[:1]]
    return places


def _is_inside(box: _Box) -> bool:
    return box.left >= -40 and box.left + box.width <= PHONE_PX + 18 and -12 <= box.top <= HEIGHT_PX - 12


def _short(name: str) -> str:
    return name if len(name) <= LABEL_CHARACTERS else name[: LABEL_CHARACTERS - 1] + '…'


def _points(
    points: Sequence[ScatterPoint], scales: tuple[Scale, Scale], marks: Mapping[str, Mark], words: tuple[str, str, str]
) -> list[str]:
    drawable = [p for p in points if is_known(p.x) and is_known(p.y)]
    places = _label_places(drawable, *scales)
    return [
        mark_group(
            p.policy, _told(p, *words), *_point(p, *scales, mark=marks[p.policy], place=place), episodes=p.episodes
        )
        for p, place in zip(drawable, places, strict=True)
    ]


def _point(
    point: ScatterPoint, x_scale: Scale, y_scale: Scale, *, mark: Mark, place: tuple[bool, int] | None
) -> list[str]:
    x, y = x_scale.percent(point.x or 0.0), _height(point.y or 0.0, y_scale)
    parts = []
    if is_known(point.x_low) and is_known(point.x_high):
        parts.append(rule(x_scale.percent(point.x_low), y, x_scale.percent(point.x_high), y, kind='whisker'))
    if is_known(point.y_low) and is_known(point.y_high):
        parts.append(rule(x, _height(point.y_low, y_scale), x, _height(point.y_high, y_scale), kind='whisker'))
    if point.is_front:
        parts.append(marker(RING, x, y, kind='ring'))
    parts.append(marker(mark.marker, x, y))
    if place is None:
        return parts
    left, drop = place
    said = text(_short(point.name), -11 if left else 11, drop, anchor='end' if left else 'start', kind='name')
    parts.append(f'<svg x="{x}" y="{coordinate(y)}" class="at">{said}</svg>')
    return parts


def _table(
    panels: Sequence[tuple[str, tuple[ScatterPoint, ...]]], *, title: str, axes: tuple[str, str], number_format: str
) -> Table:
    rows: list[list[Cell]] = [
        [name, p.policy, p.x, p.x_low, p.x_high, p.y, p.y_low, p.y_high, p.is_front]
        for name, some in panels
        for p in some
    ]
    numbers = [Column(f'{axis}{end}', number_format) for axis in axes for end in ('', ', low', ', high')]
    return without_empty(table(title, ['panel', 'policy', *numbers, 'on the front'], rows))
