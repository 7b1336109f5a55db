"""Values with their intervals, one row each: a forest plot with grouping letters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from robotrials.show.chart.svg import (
    Mark,
    Number,
    Scale,
    coordinate,
    frame,
    interval_text,
    is_known,
    label,
    mark_group,
    marker,
    marks_for,
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
from robotrials.value import dataclass

ROW_PX = 40
TALL_ROW_PX = 50  # for a label of two lines
ONE_LINE = 15  # characters that fit beside the plot at a phone's width
GROUP_PX = 26
LETTERS_BESIDE = 5  # longer letters stand under the label instead
ARROW = 'M0-4L7 0L0 4z'
ARROW_BACK = 'M0-4L-7 0L0 4z'


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """One value; an infinite end is drawn as an arrow, an absent value as a dash."""

    policy: str
    value: Number
    low: Number = None
    high: Number = None
    label: str = ''
    letters: str = ''
    group: str = ''
    episodes: EpisodeFilter | None = None  # behind the value

    @property
    def name(self) -> str:
        return self.label or self.policy


def interval_chart(
    key: str,
    rows: Sequence[IntervalRow] | Mapping[str, Sequence[IntervalRow]],
    *,
    title: str,
    x_label: str,
    x_range: tuple[float, float] | None = None,
    reference_line: float | None = None,
    number_format: str = '.2f',
    note: str = '',
    colors: Mapping[str, str] | None = None,
    shown_table: Table | None = None,
) -> Chart:
    """Dots with whiskers, one row each, in groups; a mapping gives one panel a label, all on the same axis."""
    panels = panelled(rows)
    everything = [row for _, some in panels for row in some]
    marks = marks_for((row.policy for row in everything), colors)
    ends = [v for row in everything for v in (row.value, row.low, row.high)]
    scale = scale_over([*ends, reference_line], within=x_range)
    drawn, words = [], []
    for name, some in panels:
        told = sentence(title, name, [_told(row, number_format) for row in some])
        words.append(told)
        body, height = _draw(
            some, scale, marks, reference_line=reference_line, number_format=number_format, x_label=x_label
        )
        svg = frame(body, name=named(title, name), words=told, height=height + 44,
                    padding=(0, 8, 42, 0), kind='intervals')  # fmt: skip
        drawn.append(Panel(name, svg))
    numbers = shown_table or _table(panels, title=title, number_format=number_format)
    return Chart(key, title, whole_alt(words[0], len(drawn)), tuple(drawn), numbers, note)


def _told(row: IntervalRow, number_format: str) -> str:
    return ' '.join(filter(None, (row.name, interval_text(row.value, row.low, row.high, number_format=number_format),
                                  row.letters)))  # fmt: skip


def _draw(
    rows: Sequence[IntervalRow], scale: Scale, marks: Mapping[str, Mark], *, reference_line: float | None,
    number_format: str, x_label: str,
) -> tuple[list[str], float]:  # fmt: skip
    beside = max((len(r.letters) for r in rows), default=0)
    width = 59 if beside == 0 or beside > LETTERS_BESIDE else 50
    row_px = TALL_ROW_PX if any(len(r.name) > ONE_LINE for r in rows) else ROW_PX
    labels, plot, y, group = [], [], 4.0, ''
    for row in rows:
        if row.group and row.group != group:
            labels.append(text(row.group, 0, y + 18, kind='group'))
            y += GROUP_PX
        group = row.group
        detail = interval_text(row.value, row.low, row.high, number_format=number_format)
        if beside > LETTERS_BESIDE:
            detail += f' {row.letters}'
        middle = y + row_px / 2
        beside_text = text(row.letters, '91%', middle + 4, kind='letters') if 0 < beside <= LETTERS_BESIDE else ''
        labels.append(mark_group(row.policy, _told(row, number_format),
                                 label(row.name, y + 2, width='37%', height=row_px - 4, detail=detail), beside_text,
                                 kind='words'))  # fmt: skip
        whisker = _whisker(row, middle, scale, marks[row.policy])
        plot.append(mark_group(row.policy, _told(row, number_format), *whisker, episodes=row.episodes))
        y += row_px
    axis = x_axis(scale, y, title=x_label)
    if is_known(reference_line):
        place = scale.percent(reference_line)
        axis += rule(place, 0, place, y, kind='reference')
    inner = f'<svg x="39%" width="{width}%" height="100%" class="at">{axis}{"".join(plot)}</svg>'
    return [inner, *labels], y


def _whisker(row: IntervalRow, y: float, scale: Scale, mark: Mark) -> list[str]:
    parts = [f'<rect class="catch" x="0" y="{y - 14:.1f}" width="100%" height="28"/>']
    if row.low is not None and row.high is not None and not (math.isnan(row.low) or math.isnan(row.high)):
        parts.append(rule(_place(row.low, scale), y, _place(row.high, scale), y, kind='whisker'))
        if row.low < scale.low or row.low == -math.inf:
            parts.append(marker(ARROW_BACK, '0%', y, kind='dot'))
        if row.high > scale.high or row.high == math.inf:
            parts.append(marker(ARROW, '100%', y, kind='dot'))
    if is_known(row.value):
        parts.append(marker(mark.marker, scale.percent(row.value), y))
    elif row.value is not None and not math.isnan(row.value):
        parts.append(marker(ARROW if row.value > 0 else ARROW_BACK, _place(row.value, scale), y))
    elif row.low is None and row.high is None:
        parts.append(text('—', '50%', y + 4, anchor='middle', kind='absent'))
    return parts


def _place(value: float, scale: Scale) -> str:
    if math.isinf(value):
        return '100%' if value > 0 else '0%'
    return scale.percent(value)


def _table(panels: Sequence[tuple[str, tuple[IntervalRow, ...]]], *, title: str, number_format: str) -> Table:
    rows: list[list[Cell]] = [
        [name, row.group, row.policy, row.name, row.value, row.low, row.high, row.letters]
        for name, some in panels
        for row in some
    ]
    numbers = [Column(name, number_format) for name in ('value', 'low', 'high')]
    return without_empty(table(title, ['panel', 'group', 'policy', 'row', *numbers, 'letters'], rows))


def without_empty(shown: Table) -> Table:
    """The table without text columns that say nothing: all empty, or a row's name that repeats its policy."""
    names = [c.name for c in shown.columns]
    dull = {i for i in range(len(names)) if shown.rows and all(row[i] == '' for row in shown.rows)}
    if 'row' in names and 'policy' in names:
        mine, policy = names.index('row'), names.index('policy')
        if all(row[mine] == row[policy] for row in shown.rows):
            dull.add(mine)
    kept = [i for i in range(len(names)) if i not in dull]
    return Table(
        shown.title,
        tuple(shown.columns[i] for i in kept),
        tuple(tuple(r[i] for i in kept) for r in shown.rows),
        shown.note,
    )


# A rate against a dose: severity across, one line a policy, with intervals.

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
        told = sentence(title, name, [_line_words(s, number_format, x_ticks) for s in some])
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
    numbers = shown_table or _line_table(
        panels, title=title, axes=(x_label, y_label), x_ticks=x_ticks, number_format=number_format
    )
    return Chart(key, title, whole_alt(words[0], len(drawn)), tuple(drawn), numbers, note, policies)


def _at(x: float, x_ticks: Mapping[float, str] | None) -> str:
    return (x_ticks or {}).get(x) or tick_text(x)


def _line_words(series: LineSeries, number_format: str, x_ticks: Mapping[float, str] | None) -> str:
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
    parts = [mark_group(series.policy, _line_words(series, number_format, x_ticks), curve)] if len(known) > 1 else []
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


def _line_table(
    panels: Sequence[tuple[str, tuple[LineSeries, ...]]], *, title: str, axes: tuple[str, str],
    x_ticks: Mapping[float, str] | None, number_format: str,
) -> Table:  # fmt: skip
    rows: list[list[Cell]] = [
        [name, s.policy, _at(p.x, x_ticks) if x_ticks else p.x, p.y, p.low, p.high]
        for name, some in panels for s in some for p in s.points
    ]  # fmt: skip
    numbers = [Column(name, number_format) for name in (axes[1], 'low', 'high')]
    return without_empty(table(title, ['panel', 'policy', axes[0], *numbers], rows))
