"""A number a cell: strata down, policies across, shaded by value, with the number printed in each cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robotrials.show.chart.svg import (
    Number,
    Scale,
    coordinate,
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
from robotrials.show.phrase import escape
from robotrials.show.table import Cell, Column, Table, table
from robotrials.value import dataclass

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


# What a policy's episodes are made of: shares by cause, stacked, told apart by hatching as well as by tint.

STACKED_ROW_PX = 34
LEGEND_PX = 22
LEAST_LABELLED = 0.17  # a narrower part holds no number at a phone's width
HATCHES = (
    '',
    'M0 8L8 0M-2 2L2-2M6 10L10 6',
    'M0 4h8',
    'M0 0L8 8M-2 6L2 10M6-2L10 2',
    'M3 4a1.2 1.2 0 1 0 2.4 0a1.2 1.2 0 1 0-2.4 0',
    'M4 0v8',
    'M0 4h8M4 0v8',
    'M0 8L8 0M0 0L8 8',
)


@dataclass(frozen=True, slots=True)
class Share:
    """A cause's share of the whole (0 to 1), and how many episodes that is."""

    cause: str
    share: Number
    count: int | None = None
    episodes: EpisodeFilter | None = None  # behind the share


@dataclass(frozen=True, slots=True)
class StackedBar:
    policy: str
    shares: tuple[Share, ...]
    label: str = ''

    @property
    def name(self) -> str:
        return self.label or self.policy


def stacked_bar_chart(
    key: str,
    bars: Sequence[StackedBar] | Mapping[str, Sequence[StackedBar]],
    *,
    title: str,
    x_label: str = 'share of episodes',
    causes: Sequence[str] = (),
    note: str = '',
    shown_table: Table | None = None,
) -> Chart:
    """One bar a policy. `causes` fixes their order; those not named follow in order of appearance."""
    panels = panelled(bars)
    order = list(dict.fromkeys([*causes, *(s.cause for _, some in panels for bar in some for s in bar.shares)]))
    drawn, words = [], []
    for place, (name, some) in enumerate(panels):
        told = sentence(title, name, [_bar_words(bar) for bar in some])
        words.append(told)
        drawn.append(Panel(name, _draw_bars(some, order, prefix=f'{key}-{place}', title=title, panel=name, words=told,
                                       x_label=x_label)))  # fmt: skip
    numbers = shown_table or _bar_table(panels, order, title=title)
    return Chart(key, title, whole_alt(words[0], len(drawn)), tuple(drawn), numbers, note)


def _bar_words(bar: StackedBar) -> str:
    parts = [f'{s.cause} {_percent(s.share)}' for s in bar.shares if is_known(s.share) and s.share > 0]
    return f'{bar.name}: {", ".join(parts) or "no shares"}'


def _percent(share: Number) -> str:
    return f'{number_text(None if share is None else 100 * share, ".1f")} %'


def _patterns(n_causes: int, prefix: str) -> str:
    """A tint with its hatching, one a cause; ids carry the chart's key, so that they are unique on the page."""
    parts = [
        f'<pattern id="{escape(prefix)}-h{i}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<rect width="8" height="8" class="tint t{i % 8}"/>'
        + (f'<path d="{HATCHES[(i + i // 8) % 8]}" class="hatch t{i % 8}"/>' if HATCHES[(i + i // 8) % 8] else '')
        + '</pattern>'
        for i in range(n_causes)
    ]
    return f'<defs>{"".join(parts)}</defs>'


def _draw_bars(
    bars: Sequence[StackedBar], causes: Sequence[str], *, prefix: str, title: str, panel: str, words: str, x_label: str
) -> str:
    safe = ''.join(ch if ch.isalnum() or ch in '-_' else '-' for ch in prefix)
    labels, rows = [], []
    for place, bar in enumerate(bars):
        y = 4 + place * STACKED_ROW_PX
        name = label(bar.name, y + 2, width='32%', height=STACKED_ROW_PX - 4)
        labels.append(mark_group(bar.policy, _bar_words(bar), name, kind='words'))
        rows.append(''.join(_parts(bar, y, causes, safe)))
    bottom = 4 + len(bars) * STACKED_ROW_PX
    ticks = ''.join(
        text(f'{at} %', f'{at}%', bottom + 16, anchor='end' if at == 100 else 'middle', kind='tick')
        for at in (0, 50, 100)
    ) + text(x_label, '50%', bottom + 34, anchor='middle', kind='axis')
    legend = _legend(causes, bottom + 48, safe)
    inner = f'<svg x="34%" width="66%" height="100%" class="at">{"".join(rows)}{ticks}</svg>'
    height = bottom + 56 + LEGEND_PX * ((len(causes) + 1) // 2)
    return frame([_patterns(len(causes), safe), inner, *labels, legend], name=named(title, panel),
                 words=words, height=height, padding=(0, 2, 0, 0), kind='stacked')  # fmt: skip


def _parts(bar: StackedBar, y: float, causes: Sequence[str], prefix: str) -> list[str]:
    at, parts = 0.0, []
    for share in sorted(bar.shares, key=lambda s: causes.index(s.cause)):
        if not is_known(share.share) or share.share <= 0:
            continue
        counted = f' ({share.count} episodes)' if share.count is not None else ''
        wide = min(share.share, 1 - at)
        rect = (
            f'<rect x="{coordinate(100 * at)}%" y="{coordinate(y + 4)}" width="{coordinate(100 * wide)}%"'
            f' height="{STACKED_ROW_PX - 10}" class="part" fill="url(#{prefix}-h{causes.index(share.cause)})"/>'
        )
        said = ''
        if share.share >= LEAST_LABELLED:
            middle = f'{coordinate(100 * (at + wide / 2))}%'
            said = (
                f'<svg x="{middle}" y="{coordinate(y + STACKED_ROW_PX / 2)}" class="at">'
                '<rect x="-10" y="-9" width="20" height="16" rx="3" class="plate"/>'
                f'<text y="3" text-anchor="middle" class="inside">{number_text(100 * share.share, ".0f")}</text></svg>'
            )
        told = f'{bar.name}: {share.cause} {_percent(share.share)}{counted}'
        parts.append(mark_group(bar.policy, told, rect, said, episodes=share.episodes))
        at += wide
    if not parts:
        parts.append(mark_group(bar.policy, f'{bar.name}: no shares', text('—', '50%', y + 20, kind='absent')))
    return parts


def _legend(causes: Sequence[str], top: float, prefix: str) -> str:
    parts = []
    for i, cause in enumerate(causes):
        column, y = i % 2, top + LEGEND_PX * (i // 2)
        fill = f'class="part" fill="url(#{prefix}-h{i})"'
        swatch = f'<rect x="{50 * column}%" y="{coordinate(y)}" width="16" height="14" {fill}/>'
        place = f'<svg x="{50 * column}%" y="{coordinate(y - 2)}" width="49%" height="{LEGEND_PX}">'
        parts.append(f'{swatch}{place}{label(cause, 0, width="100%", height=LEGEND_PX, x="0")}</svg>')
    return f'<g class="legend">{"".join(parts)}</g>'


def _bar_table(panels: Sequence[tuple[str, tuple[StackedBar, ...]]], causes: Sequence[str], *, title: str) -> Table:
    rows: list[list[Cell]] = []
    for name, some in panels:
        for bar in some:
            held = {s.cause: s.share for s in bar.shares}
            rows.append([name, bar.policy, *(held.get(cause) for cause in causes)])
    shown = table(title, ['panel', 'policy', *(Column(cause, '.3f') for cause in causes)], rows)
    if len(panels) > 1:
        return shown
    return Table(shown.title, shown.columns[1:], tuple(row[1:] for row in shown.rows), shown.note)
