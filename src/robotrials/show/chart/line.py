"""A rate against a dose: severity across, one line a policy, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robotrials.show.chart.interval import without_empty
from robotrials.show.chart.mark import Mark, marks_for
from robotrials.show.chart.svg import (
    Number,
    Scale,
    coordinate,
    frame,
    interval_text,
    is_known,
    mark_group,
    marker,
    named,
    panelled,
    rule,
    scale_over,
    sentence,
    text,
    tick_text,
    whole_alt,
    x_axis,
    y_axis,
)
from robotrials.show.document import Chart, EpisodeFilter, Panel
from robotrials.show.table import Cell, Column, Table, table

HEIGHT_PX = 230
UNITS = 1000
DODGE_PX = 4.0  # between neighbours, so that their whiskers stand side by side


@dataclass(frozen=True, slots=True)
class LinePoint:
    x: float
    y: Number
    low: Number = None
    high: Number = None
    episodes: EpisodeFilter | None = None  # behind the value


@dataclass(frozen=True, slots=True)
class LineSeries:
    policy: str
    points: tuple[LinePoint, ...]
    label: str = ''

    @property
    def name(self) -> str:
        return self.label or self.policy


def line_chart(
    key: str,
    series: Sequence[LineSeries] | Mapping[str, Sequence[LineSeries]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    x_ticks: Mapping[float, str] | None = None,
    y_range: tuple[float, float] | None = (0.0, 1.0),
    number_format: str = '.2f',
    note: str = '',
    colors: Mapping[str, str] | None = None,
    shown_table: Table | None = None,
) -> Chart:
    """Lines through points with whiskers; `x_ticks` names places on the axis (levels of severity)."""
    panels = panelled(series)
    everything = [s for _, some in panels for s in some]
    points = [p for s in everything for p in s.points]
    marks = marks_for((s.policy for s in everything), colors)
    x_scale = scale_over([*(p.x for p in points), *(x_ticks or {})])
    y_scale = scale_over([v for p in points for v in (p.y, p.low, p.high)], within=y_range)
    drawn, words = [], []
    for name, some in panels:
        told = sentence(title, name, [_told(s, number_format, x_ticks) for s in some])
        words.append(told)
        axis = _named_axis(x_scale, x_ticks, x_label) if x_ticks else x_axis(x_scale, HEIGHT_PX, title=x_label)
        lines = [
            _line(s, (x_scale, y_scale), marks[s.policy], shift_px=DODGE_PX * (i - (len(some) - 1) / 2),
                  number_format=number_format, x_ticks=x_ticks)
            for i, s in enumerate(some)
        ]  # fmt: skip
        body = [axis, y_axis(y_scale, HEIGHT_PX, title=y_label), *lines]
        svg = frame(body, name=named(title, name), words=told, height=HEIGHT_PX + 68, padding=(26, 18, 42, 42),
                    kind='lines')  # fmt: skip
        drawn.append(Panel(name, svg))
    policies = tuple(p for p in marks if any(s.policy == p for s in everything))
    numbers = shown_table or _table(
        panels, title=title, axes=(x_label, y_label), x_ticks=x_ticks, number_format=number_format
    )
    return Chart(key, title, whole_alt(words[0], len(drawn)), tuple(drawn), numbers, note, policies)


def _at(x: float, x_ticks: Mapping[float, str] | None) -> str:
    return (x_ticks or {}).get(x) or tick_text(x)


def _told(series: LineSeries, number_format: str, x_ticks: Mapping[float, str] | None) -> str:
    known = [p for p in series.points if is_known(p.y)]
    if not known:
        return f'{series.name} has no numbers'
    ends = [known[0], known[-1]] if len(known) > 1 else known
    return f'{series.name} ' + ' to '.join(
        f'{interval_text(p.y, p.low, p.high, number_format=number_format)} at {_at(p.x, x_ticks)}' for p in ends
    )


def _named_axis(scale: Scale, names: Mapping[float, str], title: str) -> str:
    parts = []
    for x, name in names.items():
        place = scale.percent(x)
        short = name if len(name) <= 12 else name[:11] + '…'
        parts.append(rule(place, 0, place, HEIGHT_PX, kind='grid'))
        parts.append(text(short, place, HEIGHT_PX + 16, anchor='middle', kind='tick'))
    return ''.join(parts) + text(title, '50%', HEIGHT_PX + 34, anchor='middle', kind='axis')


def _line(
    series: LineSeries, scales: tuple[Scale, Scale], mark: Mark, *, shift_px: float, number_format: str,
    x_ticks: Mapping[float, str] | None,
) -> str:  # fmt: skip
    x_scale, y_scale = scales
    known = sorted((p for p in series.points if is_known(p.y) and is_known(p.x)), key=lambda p: p.x)
    path = 'L'.join(
        f'{round(UNITS * x_scale.fraction(p.x))} {round(UNITS * (1 - y_scale.fraction(p.y or 0.0)))}' for p in known
    )
    dash = f' stroke-dasharray="{mark.dash}"' if mark.dash else ''
    curve = (
        f'<svg class="plot" width="100%" height="{HEIGHT_PX}" viewBox="0 0 {UNITS} {UNITS}" preserveAspectRatio="none">'
        f'<path class="curve" d="M{path}"{dash}/></svg>'
    )
    parts = [mark_group(series.policy, _told(series, number_format, x_ticks), curve)] if len(known) > 1 else []
    for p in known:
        y = HEIGHT_PX * (1 - y_scale.fraction(p.y or 0.0))
        told = f'{series.name} at {_at(p.x, x_ticks)}: ' + interval_text(
            p.y, p.low, p.high, number_format=number_format
        )
        whisker = ''
        if is_known(p.low) and is_known(p.high):
            ends = [HEIGHT_PX * (1 - y_scale.fraction(v)) for v in (p.low, p.high)]
            whisker = rule(0, ends[0] - y, 0, ends[1] - y, kind='whisker')
        place = f'<svg x="{x_scale.percent(p.x)}" y="{coordinate(y)}" class="at">'
        drawn = f'{place}{whisker}{marker(mark.marker, "0", 0)}</svg>'
        parts.append(mark_group(series.policy, told, drawn, episodes=p.episodes))
    return f'<g transform="translate({coordinate(shift_px)} 0)">{"".join(parts)}</g>'


def _table(
    panels: Sequence[tuple[str, tuple[LineSeries, ...]]], *, title: str, axes: tuple[str, str],
    x_ticks: Mapping[float, str] | None, number_format: str,
) -> Table:  # fmt: skip
    rows: list[list[Cell]] = [
        [name, s.policy, _at(p.x, x_ticks) if x_ticks else p.x, p.y, p.low, p.high]
        for name, some in panels for s in some for p in s.points
    ]  # fmt: skip
    numbers = [Column(name, number_format) for name in (axes[1], 'low', 'high')]
    return without_empty(table(title, ['panel', 'policy', axes[0], *numbers], rows))
