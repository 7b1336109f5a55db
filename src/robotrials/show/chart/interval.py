"""Values with their intervals, one row each: a forest plot with grouping letters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robotrials.show.chart.mark import Mark, marks_for
from robotrials.show.chart.svg import (
    Number,
    Scale,
    frame,
    interval_text,
    is_known,
    label,
    mark_group,
    marker,
    named,
    panelled,
    rule,
    scale_over,
    sentence,
    text,
    whole_alt,
    x_axis,
)
from robotrials.show.document import Chart, EpisodeFilter, Panel
from robotrials.show.table import Cell, Column, Table, table

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
