"""Plots as SVG for pages, whatever their kind; here the kinds by rows: intervals, stacked bars, shaded grids."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from robotrials.show.document import Chart, Panel
from robotrials.show.phrase import escape, percent
from robotrials.show.plot import Bar, Curve, Facet, GuideLine, Number, Plot, Point, Tile
from robotrials.show.svg import (
    LinearScale,
    LinePainter,
    Painter,
    ScatterPainter,
    StepPainter,
    Words,
    coordinate,
    frame,
    is_known,
    label,
    mark_group,
    marker,
    number_text,
    rule,
    scale_over,
    text,
    without_empty,
    x_axis,
)
from robotrials.show.table import Cell, Column, Table, table

LISTED_IN_WORDS = 8


def paint_page(plot: Plot, colors: Mapping[str, str] | None = None) -> Chart:
    """The plot's facets as drawings, its words for those who cannot see it, and its numbers as a table.

    `colors` is the document's, for dashes and markers that agree on the whole page. The layers of a plot are of one
    kind: curves in steps, curves with whiskers, points on two axes or in rows, bars, or tiles.
    """
    painter = _painter_of(plot)(plot, colors)
    panels, sentences = [], []
    for facet in plot.facets:
        words = f'{painter.named(facet)}. {_listed(painter.words(facet))}.'
        sentences.append(words)
        panels.append(Panel(facet.label, painter.draw(facet, words)))
    more = f' {len(panels) - 1} more panels have their own words.' if len(panels) > 1 else ''
    return Chart(
        plot.key, plot.title, sentences[0] + more, tuple(panels), painter.table(), plot.note, painter.policies()
    )  # fmt: skip


def _painter_of(plot: Plot) -> type[Painter]:
    kinds = {type(layer) for facet in plot.facets for layer in facet.layers}
    if Tile in kinds:
        return GridPainter
    if Bar in kinds:
        return BarPainter
    if Curve in kinds:
        is_step = any(curve.is_step for facet in plot.facets for curve in facet.of(Curve))
        return StepPainter if is_step else LinePainter
    return ScatterPainter if plot.y.label else RowPainter


def _listed(words: Words) -> str:
    """The first few, and how many more."""
    if not words:
        return 'no numbers to draw'
    more = len(words) - LISTED_IN_WORDS
    return '; '.join(words[:LISTED_IN_WORDS]) + (f'; and {more} more in the table' if more > 0 else '')


# --- points in rows: values with their intervals, a forest plot with grouping letters

ROW_PX = 40
TALL_ROW_PX = 50  # for a label of two lines
ONE_LINE = 15  # characters that fit beside the plot at a phone's width
GROUP_PX = 26
LETTERS_BESIDE = 5  # longer letters stand under the label instead
ARROW = 'M0-4L7 0L0 4z'
ARROW_BACK = 'M0-4L-7 0L0 4z'


class RowPainter(Painter):
    """Dots with whiskers, one row each, in groups, all facets on the same axis."""

    def __init__(self, plot: Plot, colors: Mapping[str, str] | None) -> None:
        super().__init__(plot, colors)
        rules = [r.x for facet in plot.facets for r in facet.of(GuideLine)]
        ends = [v for p in self.points for v in (p.x, p.x_low, p.x_high)]
        self.scale = scale_over([*ends, *rules], within=plot.x.limits)

    def words(self, facet: Facet) -> Words:
        return [self._said(p) for p in facet.of(Point)]

    def _said(self, p: Point) -> str:
        return ' '.join(filter(None, (p.label, self.interval(p.x, p.x_low, p.x_high), p.letters)))

    def draw(self, facet: Facet, words: str) -> str:
        rows = facet.of(Point)
        beside = max((len(r.letters) for r in rows), default=0)
        width = 59 if beside == 0 or beside > LETTERS_BESIDE else 50
        row_px = TALL_ROW_PX if any(len(r.label) > ONE_LINE for r in rows) else ROW_PX
        labels, plot, y, group = [], [], 4.0, ''
        for row in rows:
            if row.group and row.group != group:
                labels.append(text(row.group, 0, y + 18, kind='group'))
                y += GROUP_PX
            group = row.group
            detail = self.interval(row.x, row.x_low, row.x_high)
            if beside > LETTERS_BESIDE:
                detail += f' {row.letters}'
            middle = y + row_px / 2
            letters = text(row.letters, '91%', middle + 4, kind='letters') if 0 < beside <= LETTERS_BESIDE else ''
            name = label(row.label, y + 2, width='37%', height=row_px - 4, detail=detail)
            labels.append(mark_group(row.policy, self._said(row), name, letters, kind='words'))
            whisker = self._whisker(row, middle)
            plot.append(mark_group(row.policy, self._said(row), *whisker, episodes=row.episodes))
            y += row_px
        axis = x_axis(self.scale, y, title=self.plot.x.label)
        for line in facet.of(GuideLine):
            if is_known(line.x):
                place = self.scale.percent(line.x)
                axis += rule(place, 0, place, y, kind='reference')
        inner = f'<svg x="39%" width="{width}%" height="100%" class="at">{axis}{"".join(plot)}</svg>'
        return frame([inner, *labels], name=self.named(facet), words=words, height=y + 44,
                     padding=(0, 8, 42, 0), kind='intervals')  # fmt: skip

    def _whisker(self, row: Point, y: float) -> list[str]:
        scale, low, high = self.scale, row.x_low, row.x_high
        parts = [f'<rect class="catch" x="0" y="{y - 14:.1f}" width="100%" height="28"/>']
        if low is not None and high is not None and not (math.isnan(low) or math.isnan(high)):
            parts.append(rule(_end(low, scale), y, _end(high, scale), y, kind='whisker'))
            if low < scale.low or low == -math.inf:
                parts.append(marker(ARROW_BACK, '0%', y))
            if high > scale.high or high == math.inf:
                parts.append(marker(ARROW, '100%', y))
        if is_known(row.x):
            parts.append(marker(self.marks[row.policy].marker, scale.percent(row.x), y))
        elif row.x is not None and not math.isnan(row.x):
            parts.append(marker(ARROW if row.x > 0 else ARROW_BACK, _end(row.x, scale), y))
        elif low is None and high is None:
            parts.append(text('—', '50%', y + 4, anchor='middle', kind='absent'))
        return parts

    def table(self) -> Table:
        rows: list[list[Cell]] = [
            [facet.label, p.group, p.policy, p.label, p.x, p.x_low, p.x_high, p.letters]
            for facet in self.plot.facets for p in facet.of(Point)
        ]  # fmt: skip
        numbers = self.numbers('value', 'low', 'high')
        columns: list[str | Column] = ['panel', 'group', 'policy', 'row', *numbers, 'letters']
        return without_empty(table(self.plot.title, columns, rows))


def _end(value: float, scale: LinearScale) -> str:
    if math.isinf(value):
        return '100%' if value > 0 else '0%'
    return scale.percent(value)


# --- bars: what a policy's episodes are made of, by hatching as well as by tint

BAR_PX = 34
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


class BarPainter(Painter):
    """One bar of stacked shares (0 to 1) per row; the plot's names fix the order of the parts."""

    def __init__(self, plot: Plot, colors: Mapping[str, str] | None) -> None:
        super().__init__(plot, colors)
        self.parts = list(dict.fromkeys([*plot.names, *(b.name for b in self.bars if b.name)]))

    def rows(self, facet: Facet) -> dict[str, list[Bar]]:
        """Row -> its parts that have a name."""
        rows: dict[str, list[Bar]] = {}
        for bar in facet.of(Bar):
            rows.setdefault(str(bar.at), []).append(bar)
        return rows

    def words(self, facet: Facet) -> Words:
        return [_bar_words(row, bars) for row, bars in self.rows(facet).items()]

    def draw(self, facet: Facet, words: str) -> str:
        prefix = f'{self.plot.key}-{self.plot.facets.index(facet)}'
        safe = ''.join(ch if ch.isalnum() or ch in '-_' else '-' for ch in prefix)
        labels, drawn = [], []
        for place, (row, bars) in enumerate(self.rows(facet).items()):
            y = 4 + place * BAR_PX
            name = label(row, y + 2, width='32%', height=BAR_PX - 4)
            labels.append(mark_group(bars[0].policy, _bar_words(row, bars), name, kind='words'))
            drawn += self._row(row, bars, y, safe)
        bottom = 4 + len(labels) * BAR_PX
        ticks = ''.join(
            text(f'{at} %', f'{at}%', bottom + 16, anchor='end' if at == 100 else 'middle', kind='tick')
            for at in (0, 50, 100)
        ) + text(self.plot.x.label, '50%', bottom + 34, anchor='middle', kind='axis')
        inner = f'<svg x="34%" width="66%" height="100%" class="at">{"".join(drawn)}{ticks}</svg>'
        height = bottom + 56 + LEGEND_PX * ((len(self.parts) + 1) // 2)
        # A tint with its hatching, one per part; ids carry the chart's key, so that they are unique on the page.
        hatches = [HATCHES[(i + i // 8) % 8] for i in range(len(self.parts))]
        parts = [
            f'<pattern id="{escape(safe)}-h{i}" width="8" height="8" patternUnits="userSpaceOnUse">'
            f'<rect width="8" height="8" class="tint t{i % 8}"/>'
            + (f'<path d="{hatch}" class="hatch t{i % 8}"/>' if hatch else '')
            + '</pattern>'
            for i, hatch in enumerate(hatches)
        ]
        body = [f'<defs>{"".join(parts)}</defs>', inner, *labels, self._legend(bottom + 48, safe)]
        return frame(body, name=self.named(facet), words=words, height=height, padding=(0, 2, 0, 0), kind='stacked')

    def _row(self, row: str, bars: Sequence[Bar], y: float, prefix: str) -> list[str]:
        at, drawn = 0.0, []
        for bar in sorted((b for b in bars if b.name), key=lambda b: self.parts.index(b.name)):
            if not is_known(bar.value) or bar.value <= 0:
                continue
            counted = f' ({bar.count} episodes)' if bar.count is not None else ''
            wide = min(bar.value, 1 - at)
            rect = (
                f'<rect x="{coordinate(100 * at)}%" y="{coordinate(y + 4)}" width="{coordinate(100 * wide)}%"'
                f' height="{BAR_PX - 10}" class="part" fill="url(#{prefix}-h{self.parts.index(bar.name)})"/>'
            )
            inside = ''
            if bar.value >= LEAST_LABELLED:
                middle, number = f'{coordinate(100 * (at + wide / 2))}%', number_text(100 * bar.value, '.0f')
                inside = (
                    f'<svg x="{middle}" y="{coordinate(y + BAR_PX / 2)}" class="at">'
                    '<rect x="-10" y="-9" width="20" height="16" rx="3" class="plate"/>'
                    f'<text y="3" text-anchor="middle" class="inside">{number}</text></svg>'
                )
            words = f'{row}: {bar.name} {_percent(bar.value)}{counted}'
            drawn.append(mark_group(bar.policy, words, rect, inside, episodes=bar.episodes))
            at += wide
        return drawn or [
            mark_group(bars[0].policy, f'{row}: no shares', text('—', '50%', y + 20, kind='absent'))
        ]  # fmt: skip

    def _legend(self, top: float, prefix: str) -> str:
        drawn = []
        for i, part in enumerate(self.parts):
            column, y = i % 2, top + LEGEND_PX * (i // 2)
            fill = f'class="part" fill="url(#{prefix}-h{i})"'
            swatch = f'<rect x="{50 * column}%" y="{coordinate(y)}" width="16" height="14" {fill}/>'
            place = f'<svg x="{50 * column}%" y="{coordinate(y - 2)}" width="49%" height="{LEGEND_PX}">'
            drawn.append(f'{swatch}{place}{label(part, 0, width="100%", height=LEGEND_PX, x="0")}</svg>')
        return f'<g class="legend">{"".join(drawn)}</g>'

    def table(self) -> Table:
        rows: list[list[Cell]] = []
        for facet in self.plot.facets:
            for bars in self.rows(facet).values():
                shares = {b.name: b.value for b in bars}
                rows.append([facet.label, bars[0].policy, *(shares.get(part) for part in self.parts)])
        columns: list[str | Column] = ['panel', 'policy', *(Column(part, '.3f') for part in self.parts)]
        return self.without_panel(table(self.plot.title, columns, rows))


def _bar_words(row: str, bars: Sequence[Bar]) -> str:
    parts = [f'{b.name} {_percent(b.value)}' for b in bars if b.name and is_known(b.value) and b.value > 0]
    return f'{row}: {", ".join(parts) or "no shares"}'


def _percent(share: Number) -> str:
    return f'{number_text(percent(share), ".1f")} %'


# --- grids: strata down, policies across, shaded by value, with the number printed in each tile

TILE_ROW_PX = 24
TALL_TILE_ROW_PX = 31  # for a label of two lines
TILE_LINE = 13  # characters that fit beside the grid at a phone's width
HEAD_PX = 104
SHADES = 7
TILE_PX = 27
GUTTER_PX = 84


class GridPainter(Painter):
    """A shaded grid; the plot's names and rows fix the order."""

    def __init__(self, plot: Plot, colors: Mapping[str, str] | None) -> None:
        super().__init__(plot, colors)
        self.columns = list(dict.fromkeys([*plot.names, *(t.policy for t in self.tiles)]))
        self.rows = list(dict.fromkeys([*plot.rows, *(t.row for t in self.tiles)]))
        self.row_px = TALL_TILE_ROW_PX if any(len(row) > TILE_LINE for row in self.rows) else TILE_ROW_PX

    def words(self, facet: Facet) -> Words:
        """Each policy's smallest and largest tile."""
        tiles = facet.of(Tile)
        words = []
        for policy in self.columns:
            known = sorted((t.value, t.row) for t in tiles if t.policy == policy and is_known(t.value))
            if known:
                low, high = (f'{number_text(v, self.plot.number_format)} ({row})' for v, row in (known[0], known[-1]))
                words.append(f'{policy} {low}' if len(known) == 1 else
                             f'{policy} from {low} to {high} over {len(known)} cells')  # fmt: skip
        return words

    def draw(self, facet: Facet, words: str) -> str:
        tiles = {(t.policy, t.row): t for t in facet.of(Tile)}
        scale = scale_over([t.value for t in tiles.values()], within=self.plot.value.limits, margin=0)
        width = 100 / max(1, len(self.columns))
        heads, body = [], []
        for i, policy in enumerate(self.columns):
            name = escape(policy)
            head = (
                f'<foreignObject x="{coordinate(i * width)}%" y="0" width="{coordinate(width)}%"'
                f' height="{HEAD_PX - 6}"><div xmlns="http://www.w3.org/1999/xhtml" class="turned" title="{name}">'
                f'<b>{name}</b></div></foreignObject>'
            )
            heads.append(mark_group(policy, policy, head, kind='words'))
            for k, row in enumerate(self.rows):
                tile = tiles.get((policy, row)) or Tile(policy, row, None)
                body.append(self._tile(tile, i * width, width, HEAD_PX + k * self.row_px, scale))
        gutter = min(28.0, 100 * GUTTER_PX / (GUTTER_PX + TILE_PX * len(self.columns)))
        wide = f'{coordinate(gutter - 1)}%'
        names = [label(r, HEAD_PX + k * self.row_px, width=wide, height=self.row_px) for k, r in enumerate(self.rows)]
        place = f'<svg x="{coordinate(gutter)}%" width="{coordinate(100 - gutter)}%" height="100%" class="at">'
        return frame(
            [f'{place}{"".join(heads)}{"".join(body)}</svg>', *names], name=self.named(facet), words=words,
            height=HEAD_PX + self.row_px * len(self.rows) + 4, padding=(0, 0, 0, 0), kind='cells',
            min_width=GUTTER_PX + TILE_PX * len(self.columns),
        )  # fmt: skip

    def _tile(self, tile: Tile, left: float, width: float, y: float, scale: LinearScale) -> str:
        detail = f' ({tile.detail})' if tile.detail else ''
        shape = (
            f'x="{coordinate(left)}%" y="{coordinate(y + 1)}" width="{coordinate(width)}%"'
            f' height="{self.row_px - 2}"'
        )  # fmt: skip
        middle, measure = f'{coordinate(left + width / 2)}%', self.plot.value.label
        if is_known(tile.value):
            number = number_text(tile.value, self.plot.number_format)
            shade = min(SHADES - 1, int(scale.fraction(tile.value) * SHADES))
            words, kinds = f'{measure} {number}{detail}', (f'shade s{shade}', f'on s{shade}')
        else:
            number, words, kinds = '—', f'no {measure}{detail}', ('none', 'absent')
        inside = text(number, middle, y + self.row_px / 2 + 4, anchor='middle', kind=kinds[1])
        return mark_group(tile.policy, f'{tile.policy}, {tile.row}: {words}', f'<rect {shape} class="{kinds[0]}"/>',
                          inside, episodes=tile.episodes)  # fmt: skip

    def table(self) -> Table:
        rows: list[list[Cell]] = []
        for facet in self.plot.facets:
            values = {(t.policy, t.row): t.value for t in facet.of(Tile)}
            rows += [[facet.label, row, *(values.get((p, row)) for p in self.columns)] for row in self.rows]
        return self.without_panel(table(self.plot.title, ['panel', 'stratum', *self.numbers(*self.columns)], rows))
