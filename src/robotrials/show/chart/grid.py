"""A number a cell: strata down, policies across, shaded by value, with the number printed in each cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robotrials.show.chart.svg import (
    Number,
    Scale,
    coordinate,
    escape,
    frame,
    is_known,
    label,
    mark_group,
    named,
    number_text,
    panelled,
    scale_over,
    sentence,
    text,
    whole_alt,
)
from robotrials.show.document import Chart, EpisodeFilter, Panel
from robotrials.show.table import Cell, Column, Table, table

ROW_PX = 24
TALL_ROW_PX = 31  # for a label of two lines
ONE_LINE = 13  # characters that fit beside the grid at a phone's width
HEAD_PX = 104
SHADES = 7
CELL_PX = 27
GUTTER_PX = 84


@dataclass(frozen=True, slots=True)
class GridCell:
    """One policy in one stratum; without a value the cell is hatched. `detail` adds words to its tooltip."""

    policy: str
    stratum: str
    value: Number
    detail: str = ''
    episodes: EpisodeFilter | None = None  # behind the value


def grid_chart(
    key: str,
    cells: Sequence[GridCell] | Mapping[str, Sequence[GridCell]],
    *,
    title: str,
    value_label: str = 'value',
    value_range: tuple[float, float] | None = (0.0, 1.0),
    number_format: str = '.2f',
    policies: Sequence[str] = (),
    strata: Sequence[str] = (),
    note: str = '',
    shown_table: Table | None = None,
) -> Chart:
    """A shaded grid; a mapping gives one panel a measure. `policies` and `strata` fix the order."""
    panels = panelled(cells)
    everything = [c for _, some in panels for c in some]
    columns = list(dict.fromkeys([*policies, *(c.policy for c in everything)]))
    rows = list(dict.fromkeys([*strata, *(c.stratum for c in everything)]))
    row_px = _row_px(rows)
    drawn, words = [], []
    for name, some in panels:
        scale = scale_over([c.value for c in some], within=value_range, margin=0)
        told = sentence(title, name, _told(some, columns, number_format))
        words.append(told)
        body = _draw(some, columns, rows, scale=scale, value_label=value_label, number_format=number_format)
        svg = frame(
            body, name=named(title, name), words=told, height=HEAD_PX + row_px * len(rows) + 4,
            padding=(0, 0, 0, 0), kind='cells', min_width=GUTTER_PX + CELL_PX * len(columns),
        )  # fmt: skip
        drawn.append(Panel(name, svg))
    numbers = shown_table or _table(panels, columns, rows, title=title, number_format=number_format)
    return Chart(key, title, whole_alt(words[0], len(drawn)), tuple(drawn), numbers, note)


def _told(cells: Sequence[GridCell], policies: Sequence[str], number_format: str) -> list[str]:
    """Each policy's smallest and largest cell."""
    told = []
    for policy in policies:
        known = sorted((c.value, c.stratum) for c in cells if c.policy == policy and is_known(c.value))
        if known:
            (low, where_low), (high, where_high) = known[0], known[-1]
            if len(known) == 1:
                told.append(f'{policy} {number_text(low, number_format)} ({where_low})')
                continue
            told.append(
                f'{policy} from {number_text(low, number_format)} ({where_low}) to {number_text(high, number_format)}'
                f' ({where_high}) over {len(known)} cells'
            )
    return told


def _row_px(strata: Sequence[str]) -> int:
    return TALL_ROW_PX if any(len(s) > ONE_LINE for s in strata) else ROW_PX


def _draw(
    cells: Sequence[GridCell], policies: Sequence[str], strata: Sequence[str], *, scale: Scale, value_label: str,
    number_format: str,
) -> list[str]:  # fmt: skip
    found = {(c.policy, c.stratum): c for c in cells}
    width, row_px = 100 / max(1, len(policies)), _row_px(strata)
    heads, body = [], []
    for i, policy in enumerate(policies):
        place = (
            f'<foreignObject x="{coordinate(i * width)}%" y="0" width="{coordinate(width)}%" height="{HEAD_PX - 6}">'
        )
        name = escape(policy)
        turned = f'<div xmlns="http://www.w3.org/1999/xhtml" class="turned" title="{name}"><b>{name}</b></div>'
        heads.append(mark_group(policy, policy, f'{place}{turned}</foreignObject>', kind='words'))
        for k, stratum in enumerate(strata):
            cell = found.get((policy, stratum)) or GridCell(policy, stratum, None)
            body.append(
                _cell(
                    cell,
                    (i * width, width),
                    HEAD_PX + k * row_px,
                    scale,
                    row_px=row_px,
                    words=(value_label, number_format),
                )
            )
    gutter = min(28.0, 100 * GUTTER_PX / (GUTTER_PX + CELL_PX * len(policies)))
    wide = f'{coordinate(gutter - 1)}%'
    names = [label(s, HEAD_PX + k * row_px, width=wide, height=row_px) for k, s in enumerate(strata)]
    place = f'<svg x="{coordinate(gutter)}%" width="{coordinate(100 - gutter)}%" height="100%" class="at">'
    return [f'{place}{"".join(heads)}{"".join(body)}</svg>', *names]


def _cell(
    cell: GridCell, across: tuple[float, float], y: float, scale: Scale, *, row_px: int, words: tuple[str, str]
) -> str:
    left, width = across
    value_label, number_format = words
    detail = f' ({cell.detail})' if cell.detail else ''
    shape = f'x="{coordinate(left)}%" y="{coordinate(y + 1)}" width="{coordinate(width)}%" height="{row_px - 2}"'
    middle = f'{coordinate(left + width / 2)}%'
    if not is_known(cell.value):
        title = f'{cell.policy}, {cell.stratum}: no {value_label}{detail}'
        return mark_group(cell.policy, title, f'<rect {shape} class="none"/>',
                          text('—', middle, y + row_px / 2 + 4, anchor='middle', kind='absent'),
                          episodes=cell.episodes)  # fmt: skip
    shown = number_text(cell.value, number_format)
    shade = min(SHADES - 1, int(scale.fraction(cell.value) * SHADES))
    title = f'{cell.policy}, {cell.stratum}: {value_label} {shown}{detail}'
    return mark_group(cell.policy, title, f'<rect {shape} class="shade s{shade}"/>',
                      text(shown, middle, y + row_px / 2 + 4, anchor='middle', kind=f'on s{shade}'),
                      episodes=cell.episodes)  # fmt: skip


def _table(
    panels: Sequence[tuple[str, tuple[GridCell, ...]]], policies: Sequence[str], strata: Sequence[str], *, title: str,
    number_format: str,
) -> Table:  # fmt: skip
    rows: list[list[Cell]] = []
    for name, some in panels:
        found = {(c.policy, c.stratum): c.value for c in some}
        rows += [[name, stratum, *(found.get((p, stratum)) for p in policies)] for stratum in strata]
    shown = table(title, ['panel', 'stratum', *(Column(p, number_format) for p in policies)], rows)
    if len(panels) > 1:
        return shown
    return Table(shown.title, shown.columns[1:], tuple(row[1:] for row in shown.rows), shown.note)
