"""SVG of a page's charts: what all kinds share, and plots on two axes (curves in steps, lines, points with a front).

A drawing keeps its text at one size at any width: positions along x are percentages of the page's column, heights are
pixels. Colours come from the page (`[data-policy=...]` sets `--c`), dashes and markers from the place of the policy in
`colors`, so that policies differ without colour too. `show.page` holds the style sheet these drawings need.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeGuard

from robotrials.errors import InputError
from robotrials.show.phrase import escape
from robotrials.show.plot import (
    PALETTE,
    REFERENCE_COLOR,
    Bar,
    Curve,
    Facet,
    Limits,
    Number,
    Plot,
    Point,
    Tile,
    Values,
    policy_colors,
)
from robotrials.show.table import Cell, Column, Table, keep_columns, table
from robotrials.value import dataclass


def is_known(value: Number) -> TypeGuard[float]:
    """A number that can be drawn: not absent, not NaN, not infinite."""
    return value is not None and math.isfinite(value)


def number_text(value: Number, number_format: str = '.3g') -> str:
    if value is None or math.isnan(value):
        return '—'
    if math.isinf(value):
        return '∞' if value > 0 else '-∞'
    return format(value + 0.0, number_format)


def interval_text(value: Number, low: Number, high: Number, *, number_format: str = '.2f') -> str:
    """`0.83 [0.71, 0.90]`, or the value alone when it has no interval."""
    number = number_text(value, number_format)
    if low is None and high is None:
        return number
    return f'{number} [{number_text(low, number_format)}, {number_text(high, number_format)}]'


def coordinate(value: float) -> str:
    """One decimal, without a needless `.0`."""
    text = f'{value:.1f}'
    return text[:-2] if text.endswith('.0') else text


@dataclass(frozen=True, slots=True)
class LinearScale:
    """A straight axis from `low` to `high`; values outside are drawn at its ends."""

    low: float
    high: float

    def fraction(self, value: float) -> float:
        if self.high <= self.low:
            return 0.5
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def percent(self, value: float) -> str:
        return f'{coordinate(100 * self.fraction(value))}%'

    def ticks(self, n_wanted: int = 5) -> list[float]:
        """Round numbers within the axis, about `n_wanted` of them."""
        span = self.high - self.low
        if span <= 0 or not math.isfinite(span):
            return [self.low]
        power = 10.0 ** math.floor(math.log10(span))
        best: list[float] = []
        for step in (m * power for m in (0.1, 0.2, 0.25, 0.5, 1, 2, 5)):
            places = range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)
            if abs(len(places) - n_wanted) < abs(len(best) - n_wanted):
                best = [round(k * step, 12) + 0.0 for k in places]
        return best or [self.low]


def scale_over(values: Iterable[Number], *, within: Limits | None = None, margin: float = 0.04) -> LinearScale:
    """An axis over the values that can be drawn, with a little room; `within` fixes it instead."""
    start, end = within or (None, None)
    if start is not None and end is not None:
        return LinearScale(float(start), float(end))
    known = [float(v) for v in values if is_known(v)]
    if not known:
        return LinearScale(0.0, 1.0)
    low, high = min(known), max(known)
    room = (high - low) * margin or abs(high) * 0.1 or 0.5
    return LinearScale(low - room if start is None else start, high + room if end is None else end)


def tick_text(value: float) -> str:
    return f'{value:.6g}'


def frame(body: Iterable[str], *, name: str, words: str, height: float, padding: tuple[int, int, int, int],
          min_width: int = 0, kind: str = '') -> str:  # fmt: skip
    """The outer <svg>: its name and words for those who cannot see it, its height, room for text around the plot."""
    style = f'height:{height:.0f}px;padding:{"px ".join(map(str, padding))}px'
    if min_width:
        style += f';min-width:{min_width}px'
    return (
        f'<svg class="chart {kind}" role="img" aria-label="{escape(name)}" style="{style}">'
        f'<desc>{escape(words)}</desc>{"".join(body)}</svg>'
    )


def text(content: object, x: str | float, y: float, *, anchor: str = 'start', kind: str = '') -> str:
    place = x if isinstance(x, str) else coordinate(x)
    named = f' class="{kind}"' if kind else ''
    anchored = f' text-anchor="{anchor}"' if anchor != 'start' else ''
    return f'<text x="{place}" y="{coordinate(y)}"{anchored}{named}>{escape(content)}</text>'


def rule(x1: str | float, y1: str | float, x2: str | float, y2: str | float, *, kind: str) -> str:
    a, b, c, d = (v if isinstance(v, str) else coordinate(v) for v in (x1, y1, x2, y2))
    return f'<line x1="{a}" y1="{b}" x2="{c}" y2="{d}" class="{kind}"/>'


def marker(path: str, x: str, y: str | float, *, kind: str = 'dot') -> str:
    """A marker at a place given in percent: a nested <svg> moves by it, and its overflow is shown."""
    place = y if isinstance(y, str) else coordinate(y)
    return f'<svg x="{x}" y="{place}" class="at"><path d="{path}" class="{kind}"/></svg>'


def label(content: str, y: float, *, width: str, height: float, detail: str = '', x: str = '0') -> str:
    """A label that wraps or is cut off with an ellipsis in the width it gets; the whole text is its tooltip."""
    second = f'<span>{escape(detail)}</span>' if detail else ''
    return (
        f'<foreignObject x="{x}" y="{coordinate(y)}" width="{width}" height="{coordinate(height)}">'
        f'<div xmlns="http://www.w3.org/1999/xhtml" class="lab" title="{escape(content)}"><b>{escape(content)}</b>'
        f'{second}</div></foreignObject>'
    )


def x_axis(scale: LinearScale, height: float, *, title: str) -> str:
    """Grid lines with their numbers below, and the axis' name under them."""
    parts = []
    for tick in scale.ticks():
        place = scale.percent(tick)
        parts.append(rule(place, 0, place, height, kind='grid'))
        parts.append(text(tick_text(tick), place, height + 16, anchor='middle', kind='tick'))
    parts.append(text(title, '50%', height + 34, anchor='middle', kind='axis'))
    return ''.join(parts)


def y_axis(scale: LinearScale, height: float, *, title: str) -> str:
    """Grid lines with their numbers at the left, and the axis' name above, where it needs no turning."""
    parts = []
    for tick in scale.ticks():
        y = height * (1 - scale.fraction(tick))
        parts.append(rule(0, y, '100%', y, kind='grid'))
        parts.append(text(tick_text(tick), -8, y + 4, anchor='end', kind='tick'))
    parts.append(text(title, -36, -12, kind='axis'))
    return ''.join(parts)


def mark_group(
    policy: str, title: str, *parts: str, kind: str = '', episodes: Mapping[str, Sequence[str]] | None = None
) -> str:
    """What stands for one policy's number: it carries the policy, its values as a tooltip, and its episodes as a link.

    The link is to the list on the same page; `show.page` turns it to where the episodes are shown.
    """
    names = f'mark{" " + kind if kind else ""}'
    inner = f'<title>{escape(title)}</title>{"".join(parts)}'
    if not episodes:
        return f'<g class="{names}" data-policy="{escape(policy)}">{inner}</g>'
    where = escape(json.dumps({field: list(values) for field, values in episodes.items()}, ensure_ascii=False))
    return (
        f'<a class="{names} eps" data-policy="{escape(policy)}" aria-label="{escape(title)}" href="#episodes"'
        f' data-where="{where}">{inner}</a>'
    )


# How a policy is told apart without colour: its dash, its marker, its place.

DASHES = ('', '7 3', '2 2.5', '9 3 2 3', '14 4', '5 2 1.5 2 1.5 2', '4 4', '1.5 4')
# Drawn around (0, 0) in pixels.
MARKERS = (
    'M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z',  # disc
    'M-4-4h8v8h-8z',  # square
    'M0-5.5L5 3.5H-5z',  # triangle
    'M0-5.5L5.5 0L0 5.5L-5.5 0z',  # diamond
    'M0 5.5L5-3.5H-5z',  # triangle, point down
    'M-2-5h4v3h3v4h-3v3h-4v-3h-3v-4h3z',  # plus
    'M-5-2.5L-2.5-5L0-2.5L2.5-5L5-2.5L2.5 0L5 2.5L2.5 5L0 2.5L-2.5 5L-5 2.5L-2.5 0z',  # cross
    'M0-6L1.8-1.9L6-1.9L2.7.9L3.9 5L0 2.6L-3.9 5L-2.7.9L-6-1.9L-1.8-1.9z',  # star
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A policy's dash (an SVG stroke-dasharray) and marker (a path around 0, 0)."""

    dash: str
    marker: str
    is_reference: bool = False


def policy_marks(colors: Mapping[str, str]) -> dict[str, Mark]:
    """One mark per policy by its place in `colors`; the reference is solid. Colour and dash repeat together at 64."""
    marks = {}
    places = iter(range(len(colors)))
    for policy, color in colors.items():
        if color == REFERENCE_COLOR:
            marks[policy] = Mark(DASHES[0], MARKERS[0], is_reference=True)
            continue
        place = next(places)
        shift = place + place // len(PALETTE)
        marks[policy] = Mark(DASHES[shift % len(DASHES)], MARKERS[shift % len(MARKERS)])
    return marks


UNITS = 1000  # the inside of a plot of curves is stretched, so whole units are finer than pixels
CURVE_PX = 230
PLANE = (26, 18, 42, 42)  # room for text around two axes
Words = list[str]


class Painter:
    """What the painters of all kinds share: the plot, how its policies are marked, and its numbers."""

    def __init__(self, plot: Plot, colors: Mapping[str, str] | None) -> None:
        self.plot = plot
        self.curves = [curve for facet in plot.facets for curve in facet.of(Curve)]
        self.points = [point for facet in plot.facets for point in facet.of(Point)]
        self.bars = [bar for facet in plot.facets for bar in facet.of(Bar)]
        self.tiles = [tile for facet in plot.facets for tile in facet.of(Tile)]
        self.marked = [*(c.policy for c in self.curves), *(p.policy for p in self.points)]
        known = colors or {}  # policies that it lacks come after those it has
        self.marks = policy_marks({**known, **policy_colors(p for p in dict.fromkeys(self.marked) if p not in known)})

    def words(self, facet: Facet) -> Words:
        """What the facet says, mark by mark."""
        raise NotImplementedError

    def draw(self, facet: Facet, words: str) -> str:
        raise NotImplementedError

    def table(self) -> Table:
        raise NotImplementedError

    def policies(self) -> tuple[str, ...]:
        """Who is in the legend under the title; empty where every row says its policy."""
        return ()

    def drawn_policies(self) -> tuple[str, ...]:
        return tuple(p for p in self.marks if p in set(self.marked))

    def named(self, facet: Facet) -> str:
        return ': '.join(filter(None, (self.plot.title, facet.label)))

    def without_panel(self, whole: Table) -> Table:
        """The table without its first column where there is one facet."""
        return whole if len(self.plot.facets) > 1 else keep_columns(whole, range(1, len(whole.columns)))

    def plane(self, facet: Facet, words: str, body: Iterable[str], *, height: float, kind: str) -> str:
        return frame(body, name=self.named(facet), words=words, height=height + 68, padding=PLANE, kind=kind)

    def interval(self, value: Number, low: Number, high: Number) -> str:
        return interval_text(value, low, high, number_format=self.plot.number_format)

    def numbers(self, *names: str) -> list[Column]:
        return [Column(name, self.plot.number_format) for name in names]


def without_empty(whole: Table) -> Table:
    """The table without text columns that say nothing: all empty, or a row's name that repeats its policy."""
    names = [c.name for c in whole.columns]
    dull = {i for i in range(len(names)) if whole.rows and all(row[i] == '' for row in whole.rows)}
    if 'row' in names and 'policy' in names:
        mine, policy = names.index('row'), names.index('policy')
        if all(row[mine] == row[policy] for row in whole.rows):
            dull.add(mine)
    return keep_columns(whole, [i for i in range(len(names)) if i not in dull])


# --- curves with whiskers: a rate against a dose

DODGE_PX = 4.0  # between neighbours, so that their whiskers stand side by side


class LinePainter(Painter):
    """Lines through points with whiskers; names of the x axis stand in place of numbers (levels of severity)."""

    def __init__(self, plot: Plot, colors: Mapping[str, str] | None) -> None:
        super().__init__(plot, colors)
        self.x = scale_over([*(x for c in self.curves for x in c.x), *plot.x.names])
        ends = [v for c in self.curves for values in (c.y, c.low, c.high) if values is not None for v in values]
        self.y = scale_over(ends, within=plot.y.limits)

    policies = Painter.drawn_policies

    def _at(self, x: float) -> str:
        return self.plot.x.names.get(x) or tick_text(x)

    def words(self, facet: Facet) -> Words:
        return [self._said(c) for c in facet.of(Curve)]

    def _said(self, curve: Curve) -> str:
        known = [p for p in _vertices(curve) if is_known(p[1])]
        if not known:
            return f'{curve.label} has no numbers'
        ends = [known[0], known[-1]] if len(known) > 1 else known
        return f'{curve.label} ' + ' to '.join(f'{self.interval(*p[1:])} at {self._at(p[0])}' for p in ends)

    def draw(self, facet: Facet, words: str) -> str:
        curves = facet.of(Curve)
        names, title = self.plot.x.names, self.plot.x.label
        axis = _named_axis(self.x, names, title) if names else x_axis(self.x, CURVE_PX, title=title)
        lines = [self._line(c, DODGE_PX * (i - (len(curves) - 1) / 2)) for i, c in enumerate(curves)]
        body = [axis, y_axis(self.y, CURVE_PX, title=self.plot.y.label), *lines]
        return self.plane(facet, words, body, height=CURVE_PX, kind='lines')

    def _line(self, curve: Curve, shift_px: float) -> str:
        mark = self.marks[curve.policy]
        behind = {link.x: link.episodes for link in curve.links}
        known = sorted((p for p in _vertices(curve) if is_known(p[1]) and is_known(p[0])), key=lambda p: p[0])
        heights = [1 - self.y.fraction(p[1] or 0.0) for p in known]
        path = 'L'.join(
            f'{round(UNITS * self.x.fraction(p[0]))} {round(UNITS * height)}'
            for p, height in zip(known, heights, strict=True)
        )
        drawn = f'{_stretched("")}<path class="curve" d="M{path}"{_dashes(mark)}/></svg>'
        parts = [mark_group(curve.policy, self._said(curve), drawn)] if len(known) > 1 else []
        for (x, value, low, high), height in zip(known, heights, strict=True):
            y, whisker = CURVE_PX * height, ''
            words = f'{curve.label} at {self._at(x)}: {self.interval(value, low, high)}'
            if is_known(low) and is_known(high):
                ends = [CURVE_PX * (1 - self.y.fraction(v)) for v in (low, high)]
                whisker = rule(0, ends[0] - y, 0, ends[1] - y, kind='whisker')
            place = f'<svg x="{self.x.percent(x)}" y="{coordinate(y)}" class="at">'
            dot = f'{place}{whisker}{marker(mark.marker, "0", 0)}</svg>'
            parts.append(mark_group(curve.policy, words, dot, episodes=behind.get(x)))
        return f'<g transform="translate({coordinate(shift_px)} 0)">{"".join(parts)}</g>'

    def table(self) -> Table:
        rows: list[list[Cell]] = [
            [facet.label, c.policy, self._at(x) if self.plot.x.names else x, *values]
            for facet in self.plot.facets for c in facet.of(Curve) for x, *values in _vertices(c)
        ]  # fmt: skip
        numbers = self.numbers(self.plot.y.label, 'low', 'high')
        return without_empty(table(self.plot.title, ['panel', 'policy', self.plot.x.label, *numbers], rows))


def _vertices(curve: Curve) -> list[tuple[float, Number, Number, Number]]:
    absent = [None] * len(curve.x)
    low, high = (absent if band is None else band for band in (curve.low, curve.high))
    return list(zip(curve.x, curve.y, low, high, strict=True))


def _named_axis(scale: LinearScale, names: Mapping[float, str], title: str) -> str:
    parts = []
    for x, name in names.items():
        place = scale.percent(x)
        short = name if len(name) <= 12 else name[:11] + '…'
        parts.append(rule(place, 0, place, CURVE_PX, kind='grid'))
        parts.append(text(short, place, CURVE_PX + 16, anchor='middle', kind='tick'))
    return ''.join(parts) + text(title, '50%', CURVE_PX + 34, anchor='middle', kind='axis')


def _stretched(more: str) -> str:
    return (
        f'<svg class="plot" width="100%" height="{CURVE_PX}" viewBox="0 0 {UNITS} {UNITS}" preserveAspectRatio="none"'
        f'{more}>'
    )


def _dashes(mark: Mark) -> str:
    return f' stroke-dasharray="{mark.dash}"' if mark.dash else ''


# --- curves that rise in steps, with bands: the chance of success by time

MOST_STEPS = 150
MOST_BAND_STEPS = 75
Corners = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Steps:
    """A curve in order of time, without times that cannot be drawn."""

    curve: Curve
    times: list[float]
    chance: list[Number]
    low: list[Number]  # empty without a band
    high: list[Number]

    def at(self, time: float, values: Sequence[Number], *, before: Number) -> Number:
        """The step function's value: that of the last time at or before this one."""
        place = bisect_right(self.times, time)
        return values[place - 1] if place and values else before

    def band_at(self, time: float) -> tuple[Number, Number]:
        return self.at(time, self.low, before=None), self.at(time, self.high, before=None)


def _steps_of(curve: Curve) -> _Steps:
    order = sorted((i for i, t in enumerate(curve.x) if is_known(t)), key=lambda i: float(curve.x[i]))

    def sorted_values(name: str, values: Values | None) -> list[Number]:
        if values is None:
            return []
        if len(values) != len(curve.x):
            raise InputError(f'{curve.policy}: {len(values)} of {name} for {len(curve.x)} times')
        return [None if v is None else float(v) for v in (values[i] for i in order)]

    chance, low, high = (
        sorted_values(n, v) for n, v in (('chance', curve.y), ('low', curve.low), ('high', curve.high))
    )
    if low and high:  # a band without width is no interval: all succeeded, and its variance is 0
        none: tuple[Number, Number] = (None, None)
        bands = [(a, b) if a != b else none for a, b in zip(low, high, strict=True)]
        low, high = [a for a, _ in bands], [b for _, b in bands]
    return _Steps(curve, [float(curve.x[i]) for i in order], chance, low, high)


class StepPainter(Painter):
    """Curves with shaded bands from 0 to the end of the axis."""

    def __init__(self, plot: Plot, colors: Mapping[str, str] | None) -> None:
        super().__init__(plot, colors)
        asked = plot.x.limits[1] if plot.x.limits else None
        longest = max((float(t) for c in self.curves for t in c.x if is_known(t) and t > 0), default=1.0)
        self.end = float(asked) if is_known(asked) and asked > 0 else longest
        self.axis = LinearScale(0.0, self.end)
        self.steps = {facet: [_steps_of(c) for c in facet.of(Curve)] for facet in plot.facets}

    policies = Painter.drawn_policies

    def words(self, facet: Facet) -> Words:
        return [self._said(steps) for steps in self.steps[facet]]

    def _end_of(self, curve: Curve) -> float:
        """Where the curve ends: what it says, it says by then."""
        return self.end if curve.end is None or not is_known(curve.end) else min(self.end, curve.end)

    def _said(self, steps: _Steps) -> str:
        end = self._end_of(steps.curve)
        chance = steps.at(end, steps.chance, before=0.0)
        return f'{steps.curve.label} {interval_text(chance, *steps.band_at(end))} by {tick_text(end)}'

    def draw(self, facet: Facet, words: str) -> str:
        plot, drawn = self.plot, ''.join(map(self._mark, self.steps[facet]))
        inner = _stretched(f' data-x-max="{self.end!r}" data-x-label="{escape(plot.x.label)}"')
        axes = [
            x_axis(self.axis, CURVE_PX, title=plot.x.label), y_axis(LinearScale(0.0, 1.0), CURVE_PX, title=plot.y.label)
        ]  # fmt: skip
        return self.plane(facet, words, [*axes, f'{inner}{drawn}</svg>'], height=CURVE_PX, kind='steps')

    def _mark(self, steps: _Steps) -> str:
        curve, mark = steps.curve, self.marks[steps.curve.policy]
        last_x = round(UNITS * self.axis.fraction(self._end_of(curve)))
        parts = []
        if steps.low and steps.high:
            low, high = (
                self._units(thin(self._inside(steps, ends, start=None), MOST_BAND_STEPS))
                for ends in (steps.low, steps.high)
            )
            if low and high:
                known = max(i for i, v in enumerate(steps.low) if is_known(v))
                after = steps.times[known + 1 : known + 2]  # where the band stops before the curve does
                band_x = min([last_x, *(round(UNITS * self.axis.fraction(t)) for t in after)])
                parts.append(f'<path class="band" d="{_path(high, band_x)}{_backwards(low, band_x)}"/>')
        line = self._units(thin(self._inside(steps, steps.chance, start=0.0), MOST_STEPS))
        parts.append(f'<path class="curve" d="{_path(line, last_x)}"{_dashes(mark)}/>')
        # A short upright tick on the curve where an episode left without success; near ones are drawn once.
        places: dict[int, int] = {}
        for time in steps.curve.censored:
            if is_known(time) and 0 <= time <= self.end:
                chance = steps.at(time, steps.chance, before=0.0)
                [(x, y)] = self._units([(time, chance if is_known(chance) else 0.0)])
                places.setdefault(x // 7 * 7, y)
        ticks = ''.join(f'M{x} {y - 14}v28' for x, y in places.items())
        if ticks:
            parts.append(f'<path class="censor" d="{ticks}"/>')
        kind = 'ref' if mark.is_reference else ''
        return mark_group(curve.policy, self._said(steps), *parts, kind=kind, episodes=curve.episodes)

    def _inside(self, steps: _Steps, values: Sequence[Number], *, start: Number) -> list[tuple[float, float]]:
        """(time, value) of the steps inside the axis that can be drawn, from time 0 if a start is given."""
        inside = [(t, v) for t, v in zip(steps.times, values, strict=True) if 0 <= t <= self.end and is_known(v)]
        if start is not None and (not inside or inside[0][0] > 0):
            inside.insert(0, (0.0, float(start)))
        return inside

    def _units(self, points: Corners) -> list[tuple[int, int]]:
        return [(round(UNITS * self.axis.fraction(t)), round(UNITS * (1 - min(1.0, max(0.0, v))))) for t, v in points]

    def table(self) -> Table:
        """The chance at round times, and at the end of each curve, where its band is given too."""
        times = [t for t in self.axis.ticks() if t > 0]
        rows: list[list[Cell]] = []
        for facet, some in self.steps.items():
            for s in some:
                end = self._end_of(s.curve)
                chances = [s.at(t, s.chance, before=0.0) if t <= end else None for t in (*times, end)]
                rows.append([facet.label, s.curve.policy, *chances[:-1], end, chances[-1], *s.band_at(end)])
        heads = [*(f'at {tick_text(t)}' for t in times), 'ends at', 'at the end', 'low at the end', 'high at the end']
        numbers = [Column(head, '.6g' if head == 'ends at' else '.3f') for head in heads]
        note = f'times along {self.plot.x.label}; a dash after the end of a curve, and where its band has no width'
        return table(self.plot.title, ['panel', 'policy', *numbers], rows, note=note)


def thin(points: Corners, most: int) -> list[tuple[float, float]]:
    """At most about `most` steps: a step is kept once the value moved by 1/`most` of the height since the last kept."""
    if len(points) <= most:
        return list(points)
    kept = [points[0]]
    for point in points[1:-1]:
        if abs(point[1] - kept[-1][1]) >= 1 / most:
            kept.append(point)
    return [*kept, points[-1]]


def _path(points: Sequence[tuple[int, int]], last_x: int) -> str:
    """`M0 1000h12v-30...`: relative whole units, across to each step and then up."""
    x, y = points[0]
    parts = [f'M{x} {y}']
    for (_, before), (to_x, to_y) in pairwise(points):
        if to_y == before:
            continue
        parts.append((f'h{to_x - x}' if to_x != x else '') + f'v{to_y - y}')
        x, y = to_x, to_y
    return ''.join(parts) + (f'h{last_x - x}' if last_x != x else '')


def _backwards(points: Sequence[tuple[int, int]], last_x: int) -> str:
    """The same steps from the end to the start, to close a band."""
    x, y = last_x, points[-1][1]
    parts = [f'L{x} {y}']
    for (_, before), (at_x, at_y) in zip(reversed(points[:-1]), reversed(points[1:]), strict=True):
        if at_y == before:
            continue
        parts.append((f'h{at_x - x}' if at_x != x else '') + f'v{before - y}')
        x, y = at_x, before
    return ''.join(parts) + (f'h{points[0][0] - x}' if points[0][0] != x else '') + 'z'


# --- points on two axes, and the front that nobody beats on both

SCATTER_PX = 270
PHONE_PX = 240  # the plot's width on a phone
LABEL_CHARACTERS = 18
LABEL_DROPS = (-6, 15, -18, 27, -30, 39, -42, 51)
RING = 'M-8.5 0a8.5 8.5 0 1 0 17 0a8.5 8.5 0 1 0-17 0z'
Box = tuple[float, float, float, float]  # left, top, right, bottom on a plot of a phone's width, in pixels


class ScatterPainter(Painter):
    """Dots with bars both ways and a stepped line along the front."""

    def __init__(self, plot: Plot, colors: Mapping[str, str] | None) -> None:
        super().__init__(plot, colors)
        self.x = scale_over([v for p in self.points for v in (p.x, p.x_low, p.x_high)], within=plot.x.limits)
        self.y = scale_over([v for p in self.points for v in (p.y, p.y_low, p.y_high)], within=plot.y.limits)

    policies = Painter.drawn_policies

    def _height(self, y: float) -> float:
        return SCATTER_PX * (1 - self.y.fraction(y))

    def words(self, facet: Facet) -> Words:
        return [self._said(p) for p in facet.of(Point)]

    def _said(self, p: Point) -> str:
        x, y = self.interval(p.x, p.x_low, p.x_high), self.interval(p.y, p.y_low, p.y_high)
        said = f'{p.label}: {self.plot.x.label} {x}, {self.plot.y.label} {y}'
        return said + (', on the front' if p.is_front else '')

    def draw(self, facet: Facet, words: str) -> str:
        points = facet.of(Point)
        drawable = [p for p in points if is_known(p.x) and is_known(p.y)]
        # The front as steps: between two of its points, what is reached without losing on the other measure.
        front = sorted((p.x or 0.0, p.y or 0.0) for p in drawable if p.is_front)
        parts = []
        for (x1, y1), (x2, y2) in pairwise(front):
            across, down, up = self.x.percent(x2), self._height(y1), self._height(y2)
            parts.append(rule(self.x.percent(x1), down, across, down, kind='front'))
            parts.append(rule(across, down, across, up, kind='front'))
        body = [
            x_axis(self.x, SCATTER_PX, title=self.plot.x.label), y_axis(self.y, SCATTER_PX, title=self.plot.y.label),
            ''.join(parts),
            *(
                mark_group(p.policy, self._said(p), *self._point(p, place), episodes=p.episodes)
                for p, place in zip(drawable, self._label_places(drawable), strict=True)
            ),
        ]  # fmt: skip
        return self.plane(facet, words, body, height=SCATTER_PX, kind='scatter')

    def _label_places(self, points: Sequence[Point]) -> list[tuple[bool, int] | None]:
        """For each point: whether its label stands at the left, and how far below the point its text's foot is.

        Labels dodge markers and each other on the narrowest page, which is where they meet first. None where there is
        no room: the legend names that point.
        """
        at = [(PHONE_PX * self.x.fraction(p.x or 0.0), self._height(p.y or 0.0)) for p in points]
        taken: list[Box] = [(x - 8, y - 8, x + 8, y + 8) for x, y in at]
        places: list[tuple[bool, int] | None] = []
        for point, (x, y) in zip(points, at, strict=True):
            width = 6.8 * len(_short(point.label))
            sides = (True, False) if x > 0.6 * PHONE_PX else (False, True)
            tries = [(left, down) for down in LABEL_DROPS for left in sides]
            boxes = [_label_box(x, y + down, width, is_left=left) for left, down in tries]
            free = [k for k, box in enumerate(boxes) if _is_inside(box) and not any(_meet(box, o) for o in taken)]
            places.append(tries[free[0]] if free else None)
            taken += [boxes[k] for k in free[:1]]
        return places

    def _point(self, point: Point, place: tuple[bool, int] | None) -> list[str]:
        x, y = self.x.percent(point.x or 0.0), self._height(point.y or 0.0)
        parts = []
        if is_known(point.x_low) and is_known(point.x_high):
            parts.append(rule(self.x.percent(point.x_low), y, self.x.percent(point.x_high), y, kind='whisker'))
        if is_known(point.y_low) and is_known(point.y_high):
            parts.append(rule(x, self._height(point.y_low), x, self._height(point.y_high), kind='whisker'))
        if point.is_front:
            parts.append(marker(RING, x, y, kind='ring'))
        parts.append(marker(self.marks[point.policy].marker, x, y))
        if place is None:
            return parts
        left, drop = place
        name = text(_short(point.label), -11 if left else 11, drop, anchor='end' if left else 'start', kind='name')
        return [*parts, f'<svg x="{x}" y="{coordinate(y)}" class="at">{name}</svg>']

    def table(self) -> Table:
        rows: list[list[Cell]] = [
            [facet.label, p.policy, p.x, p.x_low, p.x_high, p.y, p.y_low, p.y_high, p.is_front]
            for facet in self.plot.facets for p in facet.of(Point)
        ]  # fmt: skip
        heads = [f'{axis.label}{end}' for axis in (self.plot.x, self.plot.y) for end in ('', ', low', ', high')]
        return without_empty(table(self.plot.title, ['panel', 'policy', *self.numbers(*heads), 'on the front'], rows))


def _label_box(x: float, foot: float, width: float, *, is_left: bool) -> Box:
    left = x - 11 - width if is_left else x + 11
    return left, foot - 11, left + width, foot + 3


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _is_inside(box: Box) -> bool:
    return box[0] >= -40 and box[2] <= PHONE_PX + 18 and -12 <= box[1] <= SCATTER_PX - 12


def _short(name: str) -> str:
    return name if len(name) <= LABEL_CHARACTERS else name[: LABEL_CHARACTERS - 1] + '…'
