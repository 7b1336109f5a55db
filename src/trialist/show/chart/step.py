"""Curves that rise in steps, with bands: the chance of success by time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trialist.show.chart.mark import Mark, marks_for
from trialist.show.chart.svg import (
    Number,
    Scale,
    escape,
    frame,
    interval_text,
    is_known,
    mark_group,
    named,
    number_text,
    sentence,
    tick_text,
    whole_alt,
    x_axis,
    y_axis,
)
from trialist.show.document import Chart, Panel
from trialist.show.table import Cell, Column, Table, table

HEIGHT_PX = 230
UNITS = 1000  # the inside of the plot is stretched, so whole units are finer than pixels
MOST_STEPS = 150
MOST_BAND_STEPS = 75


@dataclass(frozen=True, slots=True)
class StepSeries:
    """One policy's curve: `chance[i]` from `times_s[i]` on, 0 before the first; bands on the same times."""

    policy: str
    times_s: Sequence[float]
    chance: Sequence[float]
    low: Sequence[Number] | None = None
    high: Sequence[Number] | None = None
    censored_s: Sequence[float] = ()
    label: str = ''
    end_s: float | None = None  # where watching ended; the end of the axis unless given

    @property
    def name(self) -> str:
        return self.label or self.policy


@dataclass(frozen=True, slots=True)
class StepPanel:
    label: str
    series: tuple[StepSeries, ...]


def step_chart(
    key: str,
    panels: Sequence[StepPanel],
    *,
    title: str,
    x_max: float | None = None,
    x_label: str = 'time (s)',
    y_label: str = 'chance of success by then',
    note: str = '',
    colors: Mapping[str, str] | None = None,
    shown_table: Table | None = None,
) -> Chart:
    """Curves with shaded bands, one panel a stratum; `colors` is the document's, for dashes that agree everywhere."""
    marks = marks_for((s.policy for p in panels for s in p.series), colors)
    end = float(x_max) if is_known(x_max) and x_max > 0 else _longest(panels)
    drawn, words = [], []
    for panel in panels:
        told = sentence(title, panel.label, [_told(s, end) for s in panel.series])
        words.append(told)
        svg = _draw(panel, end, marks, name=named(title, panel.label), words=told,
                    axes=(x_label, y_label))  # fmt: skip
        drawn.append(Panel(panel.label, svg))
    if not drawn:
        words = [sentence(title, '', [])]
        drawn = [Panel('', frame([], name=title, words=words[0], height=40, padding=(0, 0, 0, 0)))]
    policies = tuple(p for p in marks if any(s.policy == p for panel in panels for s in panel.series))
    numbers = shown_table or _table(panels, end, title=title, x_label=x_label)
    return Chart(key, title, whole_alt(words[0], len(drawn)), tuple(drawn), numbers, note, policies)


def value_at(series: StepSeries, time_s: float, values: Sequence[Number], *, before: Number = 0.0) -> Number:
    """The step function's value: that of the last time at or before `time_s`."""
    found: Number = before
    for t, v in zip(series.times_s, values, strict=True):
        if is_known(t) and t <= time_s:
            found = v
    return found


def _longest(panels: Sequence[StepPanel]) -> float:
    times = [float(t) for p in panels for s in p.series for t in s.times_s if is_known(t) and t > 0]
    return max(times, default=1.0)


def _told(series: StepSeries, end: float) -> str:
    last = value_at(series, end, series.chance)
    low = None if series.low is None else value_at(series, end, series.low, before=None)
    high = None if series.high is None else value_at(series, end, series.high, before=None)
    return f'{series.name} {interval_text(last, low, high)} by {tick_text(end)}'


def _points(series: StepSeries, values: Sequence[Number], end: float, *, start: Number) -> list[tuple[float, float]]:
    """(time, value) of the steps inside the axis that can be drawn, from time 0 if a start is given."""
    inside = [
        (float(t), float(v)) for t, v in zip(series.times_s, values, strict=True)
        if is_known(t) and is_known(v) and 0 <= t <= end
    ]  # fmt: skip
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


def _curve(series: StepSeries, end: float, mark: Mark) -> str:
    watched = end if series.end_s is None or not is_known(series.end_s) else min(end, series.end_s)
    last_x = round(UNITS * Scale(0.0, end).fraction(watched))
    parts = []
    if series.low is not None and series.high is not None:
        low = _units(thin(_points(series, series.low, end, start=None), MOST_BAND_STEPS), end)
        high = _units(thin(_points(series, series.high, end, start=None), MOST_BAND_STEPS), end)
        if low and high:
            parts.append(f'<path class="band" d="{_steps(high, last_x)}{_backwards(low, last_x)}"/>')
    line = thin(_points(series, series.chance, end, start=0.0), MOST_STEPS)
    dash = f' stroke-dasharray="{mark.dash}"' if mark.dash else ''
    parts.append(f'<path class="curve" d="{_steps(_units(line, end), last_x)}"{dash}/>')
    ticks = _censor_ticks(series, end)
    if ticks:
        parts.append(f'<path class="censor" d="{ticks}"/>')
    return mark_group(series.policy, _told(series, end), *parts, kind='ref' if mark.is_reference else '')


def _censor_ticks(series: StepSeries, end: float) -> str:
    """A short upright tick on the curve at each time an episode left without success; one a unit of the axis."""
    places: dict[int, int] = {}
    for time in series.censored_s:
        if is_known(time) and 0 <= time <= end:
            chance = value_at(series, time, series.chance)
            [(x, y)] = _units([(time, chance if is_known(chance) else 0.0)], end)
            places.setdefault(x // 7 * 7, y)
    return ''.join(f'M{x} {y - 14}v28' for x, y in places.items())


def _draw(
    panel: StepPanel, end: float, marks: Mapping[str, Mark], *, name: str, words: str, axes: tuple[str, str]
) -> str:
    curves = ''.join(_curve(s, end, marks[s.policy]) for s in panel.series)
    plot = (
        f'<svg class="plot" width="100%" height="{HEIGHT_PX}" viewBox="0 0 {UNITS} {UNITS}" preserveAspectRatio="none"'
        f' data-x-max="{end!r}" data-x-label="{escape(axes[0])}">{curves}</svg>'
    )
    body = [x_axis(Scale(0.0, end), HEIGHT_PX, title=axes[0]), y_axis(Scale(0.0, 1.0), HEIGHT_PX, title=axes[1]), plot]
    return frame(body, name=name, words=words, height=HEIGHT_PX + 68, padding=(26, 18, 42, 42), kind='steps')


def _table(panels: Sequence[StepPanel], end: float, *, title: str, x_label: str) -> Table:
    """The chance at five times of the axis, and the band at the last."""
    times = [end * k / 4 for k in range(5)][1:]
    rows: list[list[Cell]] = []
    for panel in panels:
        for series in panel.series:
            low = None if series.low is None else value_at(series, end, series.low, before=None)
            high = None if series.high is None else value_at(series, end, series.high, before=None)
            chances: list[Cell] = [_cell(value_at(series, t, series.chance)) for t in times]
            rows.append([panel.label, series.policy, *chances, _cell(low), _cell(high)])
    heads = [Column(f'at {number_text(t)}', '.3f') for t in times]
    columns: list[str | Column] = [
        'panel',
        'policy',
        *heads,
        Column('low at the end', '.3f'),
        Column('high at the end', '.3f'),
    ]
    return table(title, columns, rows, note=f'times along {x_label}')


def _cell(value: Number) -> Cell:
    return None if value is None else float(value)
