"""Curves that rise in steps, with bands: the chance of success by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

from robotrials.errors import InputError
from robotrials.show.chart.svg import (
    Mark,
    Number,
    Scale,
    frame,
    interval_text,
    is_known,
    mark_group,
    marks_for,
    named,
    number_text,
    sentence,
    tick_text,
    whole_alt,
    x_axis,
    y_axis,
)
from robotrials.show.document import Chart, EpisodeFilter, Panel
from robotrials.show.phrase import escape
from robotrials.show.table import Cell, Column, Table, table
from robotrials.value import dataclass

HEIGHT_PX = 230
UNITS = 1000  # the inside of the plot is stretched, so whole units are finer than pixels
MOST_STEPS = 150
MOST_BAND_STEPS = 75


@dataclass(frozen=True, slots=True)
class StepSeries:
    """One policy's curve: `chance[i]` from `times_s[i]` on, 0 before the first; bands on the same times, or None."""

    policy: str
    times_s: Sequence[float]
    chance: Sequence[float]
    low: Sequence[Number] | None = None
    high: Sequence[Number] | None = None
    censored_s: Sequence[float] = ()
    label: str = ''
    end_s: float | None = None  # where watching ended; the end of the axis unless given
    episodes: EpisodeFilter | None = None  # behind the curve


@dataclass(frozen=True, slots=True)
class StepPanel:
    label: str
    series: tuple[StepSeries, ...]


@dataclass(frozen=True, slots=True)
class _Curve:
    """A series in order of time, without times that can't be drawn."""

    series: StepSeries
    times: list[float]
    chance: list[Number]
    low: list[Number]  # empty without a band
    high: list[Number]

    def at(self, time: float, values: Sequence[Number], *, before: Number) -> Number:
        """The step function's value: that of the last time at or before this one."""
        place = bisect_right(self.times, time)
        return values[place - 1] if place and values else before

    def told(self, end: float) -> str:
        low, high = self.band_at(end)
        chance = self.at(end, self.chance, before=0.0)
        return f'{self.series.label or self.series.policy} {interval_text(chance, low, high)} by {tick_text(end)}'

    def band_at(self, time: float) -> tuple[Number, Number]:
        return self.at(time, self.low, before=None), self.at(time, self.high, before=None)


def _curve_of(series: StepSeries) -> _Curve:
    order = sorted((i for i, t in enumerate(series.times_s) if is_known(t)), key=lambda i: float(series.times_s[i]))

    def sorted_values(name: str, values: Sequence[Number] | None) -> list[Number]:
        if values is None:
            return []
        if len(values) != len(series.times_s):
            raise InputError(f'{series.policy}: {len(values)} of {name} for {len(series.times_s)} times')
        return [None if v is None else float(v) for v in (values[i] for i in order)]

    times = [float(series.times_s[i]) for i in order]
    chance, low, high = (
        sorted_values(n, v) for n, v in (('chance', series.chance), ('low', series.low), ('high', series.high))
    )
    return _Curve(series, times, chance, low, high)


def step_chart(
    key: str,
    panels: Sequence[StepPanel],
    *,
    title: str,
    x_max: float | None = None,
    x_label: str = 'time (s)',
    y_label: str = 'operations done by then',
    note: str = '',
    colors: Mapping[str, str] | None = None,
    shown_table: Table | None = None,
) -> Chart:
    """Curves with shaded bands, one panel a stratum; `colors` is the document's, for dashes that agree everywhere."""
    marks = marks_for((s.policy for p in panels for s in p.series), colors)
    end = float(x_max) if is_known(x_max) and x_max > 0 else _longest(panels)
    curves = [(panel.label, [_curve_of(s) for s in panel.series]) for panel in panels or [StepPanel('', ())]]
    drawn, words = [], []
    for label, some in curves:
        told = sentence(title, label, [c.told(end) for c in some])
        words.append(told)
        svg = _draw(some, end, marks, name=named(title, label), words=told, axes=(x_label, y_label))
        drawn.append(Panel(label, svg))
    present = {c.series.policy for _, some in curves for c in some}
    policies = tuple(p for p in marks if p in present)
    numbers = shown_table or _table(curves, end, title=title, x_label=x_label)
    return Chart(key, title, whole_alt(words[0], len(drawn)), tuple(drawn), numbers, note, policies)


def _longest(panels: Sequence[StepPanel]) -> float:
    times = [float(t) for p in panels for s in p.series for t in s.times_s if is_known(t) and t > 0]
    return max(times, default=1.0)


def _points(curve: _Curve, values: Sequence[Number], end: float, *, start: Number) -> list[tuple[float, float]]:
    """(time, value) of the steps inside the axis that can be drawn, from time 0 if a start is given."""
    inside = [(t, v) for t, v in zip(curve.times, values, strict=True) if 0 <= t <= end and is_known(v)]
    if start is not None and (not inside or inside[0][0] > 0):
        inside.insert(0, (0.0, float(start)))
    return inside


def thin(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most about `most` steps: a step is kept once the value moved by 1/`most` of the height since the last kept."""
    if len(points) <= most:
        return list(points)
    kept = [points[0]]
    for point in points[1:-1]:
        if abs(point[1] - kept[-1][1]) >= 1 / most:
            kept.append(point)
    return [*kept, points[-1]]


def _units(points: Sequence[tuple[float, float]], end: float) -> list[tuple[int, int]]:
    axis = Scale(0.0, end)
    return [(round(UNITS * axis.fraction(t)), round(UNITS * (1 - min(1.0, max(0.0, v))))) for t, v in points]


def _steps(points: Sequence[tuple[int, int]], last_x: int) -> str:
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


def _mark(curve: _Curve, end: float, mark: Mark) -> str:
    series = curve.series
    watched = end if series.end_s is None or not is_known(series.end_s) else min(end, series.end_s)
    last_x = round(UNITS * Scale(0.0, end).fraction(watched))
    parts = []
    if curve.low and curve.high:
        low = _units(thin(_points(curve, curve.low, end, start=None), MOST_BAND_STEPS), end)
        high = _units(thin(_points(curve, curve.high, end, start=None), MOST_BAND_STEPS), end)
        if low and high:
            parts.append(f'<path class="band" d="{_steps(high, last_x)}{_backwards(low, last_x)}"/>')
    line = thin(_points(curve, curve.chance, end, start=0.0), MOST_STEPS)
    dash = f' stroke-dasharray="{mark.dash}"' if mark.dash else ''
    parts.append(f'<path class="curve" d="{_steps(_units(line, end), last_x)}"{dash}/>')
    ticks = _censor_ticks(curve, end)
    if ticks:
        parts.append(f'<path class="censor" d="{ticks}"/>')
    kind = 'ref' if mark.is_reference else ''
    return mark_group(series.policy, curve.told(end), *parts, kind=kind, episodes=series.episodes)


def _censor_ticks(curve: _Curve, end: float) -> str:
    """A short upright tick on the curve where an episode left without success; near ones are drawn once."""
    places: dict[int, int] = {}
    for time in curve.series.censored_s:
        if is_known(time) and 0 <= time <= end:
            chance = curve.at(time, curve.chance, before=0.0)
            [(x, y)] = _units([(time, chance if is_known(chance) else 0.0)], end)
            places.setdefault(x // 7 * 7, y)
    return ''.join(f'M{x} {y - 14}v28' for x, y in places.items())


def _draw(
    curves: Sequence[_Curve], end: float, marks: Mapping[str, Mark], *, name: str, words: str, axes: tuple[str, str]
) -> str:
    drawn = ''.join(_mark(c, end, marks[c.series.policy]) for c in curves)
    plot = (
        f'<svg class="plot" width="100%" height="{HEIGHT_PX}" viewBox="0 0 {UNITS} {UNITS}" preserveAspectRatio="none"'
        f' data-x-max="{end!r}" data-x-label="{escape(axes[0])}">{drawn}</svg>'
    )
    body = [x_axis(Scale(0.0, end), HEIGHT_PX, title=axes[0]), y_axis(Scale(0.0, 1.0), HEIGHT_PX, title=axes[1]), plot]
    return frame(body, name=name, words=words, height=HEIGHT_PX + 68, padding=(26, 18, 42, 42), kind='steps')


def _table(curves: Sequence[tuple[str, Sequence[_Curve]]], end: float, *, title: str, x_label: str) -> Table:
    """The chance at four times of the axis, and the band at the last."""
    times = [end * k / 4 for k in range(1, 5)]
    rows: list[list[Cell]] = [
        [label, c.series.policy, *(c.at(t, c.chance, before=0.0) for t in times), *c.band_at(end)]
        for label, some in curves
        for c in some
    ]
    heads = [Column(f'at {number_text(t)}', '.3f') for t in times]
    ends = [Column('low at the end', '.3f'), Column('high at the end', '.3f')]
    return table(title, ['panel', 'policy', *heads, *ends], rows, note=f'times along {x_label}')
