"""Plots with matplotlib, for papers: any plot of `show.plot` at the width, height and font that a style asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from robotrials.show.figure import (
    add_legend,
    fold,
    font_scale,
    label_outer,
    lead_to,
    legend_entries,
    new_figure,
    new_panels,
    plain_log_numbers,
)
from robotrials.show.plot import (
    Area,
    Axis,
    Bar,
    Curve,
    Facet,
    GuideLine,
    Note,
    Plot,
    Point,
    PolicyLook,
    Tile,
    policy_looks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Looks = Mapping[str, PolicyLook]
INK = '#404040'  # of what is about no policy and names no colour
UNLISTED = '_nolegend_'
ROOM = 0.7  # of a row or column for the policies in it
DARK = 0.6  # of the largest shade: numbers on darker tiles are white
TURNED: dict[str, Any] = {'rotation': 30, 'ha': 'right', 'rotation_mode': 'anchor'}


def paint_paper(plot: Plot, looks: Looks | None = None) -> Figure:
    """The plot as a figure. `looks` says how each policy of the whole store is drawn; without it these alone count."""
    layers = [layer for facet in plot.facets for layer in facet.layers if not isinstance(layer, GuideLine)]
    figure, panels = _sheet(plot)
    painter = _Painter(plot, looks or policy_looks({layer.policy for layer in layers if layer.policy}), figure)
    for axes, facet in zip(panels, plot.facets, strict=False):
        painter.paint(axes, facet)
    if plot.facets[0].below:
        painter.numbers_at_risk(panels.pop(), plot.facets[0])
    labels = {((facet.x or plot.x).label, (facet.y or plot.y).label) for facet in plot.facets}
    if len(panels) > 1 and len(labels) == 1:
        label_outer(panels, x=(plot.facets[0].x or plot.x).label, y=(plot.facets[0].y or plot.y).label)
    if plot.sheet.has_legend:
        add_legend(figure, *legend_entries(panels))
    return figure


def _sheet(plot: Plot) -> tuple[Figure, list[Axes]]:
    sheet, below = plot.sheet, plot.facets[0].below
    if below:
        rows_in = 0.14 * font_scale() * (len(below) + 1)
        figure = new_figure(sheet.width_in, sheet.height_in + rows_in)
        axes, table = figure.subplots(2, 1, height_ratios=[figure.get_figheight() - 0.5 - rows_in, rows_in])
        return figure, [axes, table]
    if sheet.facet_in is None:
        figure = new_figure(sheet.width_in, sheet.height_in, is_rows=sheet.is_rows)
        return figure, [figure.add_subplot()]
    shared: dict[str, Any] = {'sharex': 'x' in sheet.shared, 'sharey': 'y' in sheet.shared}
    return new_panels(
        len(plot.facets), most=sheet.most, panel_in=sheet.facet_in, extra_in=sheet.extra_in,
        is_square=all(facet.is_square for facet in plot.facets), **shared,
    )  # fmt: skip


class _Painter:
    """One plot on its figure."""

    def __init__(self, plot: Plot, looks: Looks, figure: Figure) -> None:
        self.plot, self.looks, self.figure = plot, looks, figure

    def look(self, policy: str, color: str = '') -> PolicyLook:
        own = self.looks.get(policy) or PolicyLook(color or INK)
        return PolicyLook(color, own.dash, own.marker, own.hatch, own.fill) if color else own

    def paint(self, axes: Axes, facet: Facet) -> None:
        # Policies' curves with whiskers stand a little apart, so that their whiskers can be seen.
        curves = [curve for curve in facet.of(Curve) if curve.has_whiskers and curve.policy]
        places = [x for curve in curves for x in curve.x]
        span = max(places) - min(places) if places else 0.0
        self.curve_shifts = {curve: 0.008 * span * (k - (len(curves) - 1) / 2) for k, curve in enumerate(curves)}
        self.rows, self.row_shifts = _row_places(facet)
        self.bar_rows = list(dict.fromkeys(b.at for b in facet.of(Bar) if isinstance(b.at, str)))
        self.ends: dict[object, float] = {}  # how far the bars at each place reach
        paint: Mapping[type, Callable[[Axes, Any], None]] = {
            Curve: self._curve, Point: self._point, Bar: self._bar, GuideLine: _rule, Area: self._area,
            Note: self._note,
        }  # fmt: skip
        for layer in facet.layers:
            if not isinstance(layer, Tile):
                paint[type(layer)](axes, layer)
        tiles = facet.of(Tile)
        if tiles:
            self._tiles(axes, tiles)
        for link in facet.links:
            lead_to(axes, link.x, link.y, link.episodes, link.words, t_s=link.t_s)
        if facet.label:
            room = 0.95 * self._width_in(axes)
            axes.set_title('\n'.join(fold(line, room) for line in facet.label.split('\n')))
        self._scales(axes, facet, facet.x or self.plot.x, facet.y or self.plot.y)

    def numbers_at_risk(self, axes: Axes, facet: Facet) -> None:
        """Operations still unfinished at each tick, one row per policy, aligned with the axis above."""
        axis = facet.x or self.plot.x
        axes.set(xlim=axis.limits, ylim=(-len(facet.below) + 0.4, 1.4))
        axes.axis('off')
        beside = axes.get_yaxis_transform()
        axes.text(-0.06, 1.0, 'at risk', transform=beside, ha='right', va='center', fontsize='small')
        for row, (policy, counts) in enumerate(facet.below.items()):
            style: dict[str, Any] = {'va': 'center', 'fontsize': 'small', 'color': self.look(policy).color}
            axes.text(-0.06, -row, policy, transform=beside, ha='right', **style)
            for tick, count in zip(axis.ticks, counts, strict=False):
                axes.text(tick, -row, f'{count}', ha='center', **style)

    def _curve(self, axes: Axes, curve: Curve) -> None:
        look, shift = self.look(curve.policy, curve.color), self.curve_shifts.get(curve, 0.0)
        x, y, low, high = _coordinates(curve)
        style: dict[str, Any] = {
            'color': look.color, 'linestyle': curve.dash or look.dash, 'linewidth': curve.width, 'alpha': curve.alpha,
            'label': curve.label if curve.is_listed else UNLISTED,
        }  # fmt: skip
        if curve.has_whiskers:
            ends = None
            if low is not None and high is not None:
                ends = [[max(0.0, v - a) for v, a in zip(y, low, strict=True)],
                        [max(0.0, b - v) for v, b in zip(y, high, strict=True)]]  # fmt: skip
            places = [v + shift for v in x]
            axes.errorbar(places, y, ends, marker=look.marker, ms=3, elinewidth=0.8, capsize=1.5, **style)
        else:
            if low is not None and high is not None:
                step: Any = 'post' if curve.is_step else None
                axes.fill_between(x, low, high, step=step, color=look.color, alpha=0.15, linewidth=0)
            axes.plot(x, y, drawstyle='steps-post' if curve.is_step else 'default', **style)
        for link in curve.links:
            at = link.x + shift if isinstance(link.x, float) else link.x
            lead_to(axes, at, link.y, link.episodes, link.words, t_s=link.t_s)

    def _point(self, axes: Axes, point: Point) -> None:
        look = self.look(point.policy, point.color)
        dot: dict[str, Any] = {'marker': point.marker or look.marker, 'ms': point.size, 'linestyle': ''}
        if point.is_listed or self.row_shifts:
            # A name that several policies share stands in gray.
            color = '0.4' if point.policy and point.label != point.policy else look.color
            axes.plot([], [], color=color, label=point.label, **dot)
        if point.x is None or math.isnan(point.x):
            return
        x, y, room = point.x, point.y, 0.0
        if y is None:
            shift = self.row_shifts.get(point.policy, 0.0)
            y, room = self.rows.index(point.group or point.label) + shift, ROOM / max(1, len(self.row_shifts)) / 2
        width = 1.3 if room else 0.9
        ink: dict[str, Any] = {'color': look.color, 'lw': width, 'solid_capstyle': 'butt', 'alpha': point.alpha}
        for ends, place in (((point.x_low, point.x_high), (y, y)), ((point.y_low, point.y_high), (x, x))):
            if ends[0] is not None and ends[1] is not None:
                axes.plot(*((ends, place) if place == (y, y) else (place, ends)), **ink)
        face = look.color if point.is_filled else 'white'
        axes.plot(x, y, color=look.color, markerfacecolor=face, alpha=point.alpha, label=UNLISTED,
                  fillstyle=look.fill if point.is_filled else 'full', zorder=3 - 0.01 * point.size, **dot)  # fmt: skip
        if point.episodes is not None:
            across = (x, x) if point.x_low is None or point.x_high is None else (point.x_low, point.x_high)
            place_x = (min(across), max(across)) if room else x
            lead_to(axes, place_x, (y - room, y + room) if room else y, point.episodes, point.words, t_s=point.t_s)

    def _bar(self, axes: Axes, bar: Bar) -> None:
        look = self.look(bar.policy, bar.color)
        at = self.bar_rows.index(bar.at) if isinstance(bar.at, str) else bar.at
        start, value = self.ends.get(at, 0.0), float(bar.value or 0.0)
        self.ends[at] = start + value
        style: dict[str, Any] = {
            'color': look.color, 'hatch': look.hatch, 'edgecolor': 'white', 'linewidth': 0.4,
            'label': bar.name or UNLISTED,
        }  # fmt: skip
        if bar.is_upright:
            axes.bar(at, value, bottom=start, width=bar.thickness, **style)
        else:
            axes.barh(at, value, left=start, height=bar.thickness, **style)
        if bar.low is not None and bar.high is not None:
            reach = [[max(0.0, value - bar.low)], [max(0.0, bar.high - value)]]
            axes.errorbar([value], [at], xerr=reach, color='black', linewidth=0.8, capsize=1.5)
        if bar.note:
            axes.annotate(bar.note, (start + value, at), xytext=(3, 0), textcoords='offset points', va='center',
                          fontsize='small')  # fmt: skip
        if bar.episodes is not None and value > 0:
            along, across = (start, start + value), (at - bar.thickness / 2, at + bar.thickness / 2)
            x, y = (across, along) if bar.is_upright else (along, across)
            lead_to(axes, x, y, bar.episodes, bar.words)

    def _area(self, axes: Axes, area: Area) -> None:
        fill: Any = axes.fill_betweenx if area.is_upright else axes.fill_between
        color = self.look(area.policy, area.color).color
        fill(area.along, area.low, area.high, color=color, alpha=area.alpha, linewidth=0)

    def _note(self, axes: Axes, note: Note) -> None:
        from matplotlib.transforms import blended_transform_factory

        spaces = [axes.transAxes if is_share else axes.transData for is_share in note.is_share]
        box = {'facecolor': 'white', 'edgecolor': 'none', 'alpha': 0.75, 'pad': 0.5} if note.is_boxed else None
        color = self.look(note.policy, note.color).color if note.policy or note.color else 'black'
        axes.annotate(
            note.text, (note.x, note.y), xycoords=blended_transform_factory(*spaces), fontsize=note.size, color=color,
            xytext=(note.shift_pt, 0), textcoords='offset points', ha=note.align[0], va=note.align[1], bbox=box,
            annotation_clip=False,
        )  # fmt: skip

    def _tiles(self, axes: Axes, tiles: Sequence[Tile]) -> None:
        """Shades with their numbers; a dash where there is none."""
        columns = list(dict.fromkeys([*self.plot.names, *(t.policy for t in tiles)]))
        rows = list(dict.fromkeys([*self.plot.rows, *(t.row for t in tiles)]))
        values = {(t.row, t.policy): t.value for t in tiles if t.value is not None}
        low, high = self.plot.value.limits or (None, None)
        top = high if high is not None else max(values.values())
        is_narrow = self.figure.get_figwidth() < 0.75 * len(columns) + 2.2
        shades = [[values.get((row, column), float('nan')) for column in columns] for row in rows]
        image = axes.imshow(shades, cmap='YlOrRd', vmin=low or 0.0, vmax=top, aspect='auto')
        for tile in tiles:
            i, j = rows.index(tile.row), columns.index(tile.policy)
            number = '–' if tile.value is None else format(tile.value, self.plot.number_format)
            color = '0.5' if tile.value is None else 'white' if tile.value > DARK * top else '0.15'
            size = 'x-small' if is_narrow else 'small'
            axes.text(j, i, number, ha='center', va='center', fontsize=size, color=color)
            if tile.episodes is not None:
                lead_to(axes, (j - 0.5, j + 0.5), (i - 0.5, i + 0.5), tile.episodes, tile.words)
        axes.set_xticks(range(len(columns)), [name.replace('_', ' ') for name in columns], fontsize='small',
                        **{**TURNED, 'rotation': 60 if is_narrow else 25})  # fmt: skip
        axes.set_yticks(range(len(rows)), rows, fontsize='small')
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        if is_narrow:  # every tile says its number, so the bar can go
            axes.set_title(self.plot.value.label, fontsize='small')
        else:
            self.figure.colorbar(image, ax=axes, label=self.plot.value.label, fraction=0.04)

    def _scales(self, axes: Axes, facet: Facet, x: Axis, y: Axis) -> None:
        from matplotlib.ticker import LogLocator

        rows = self.rows or self.bar_rows
        is_dotted = any(curve.has_whiskers for curve in facet.of(Curve))
        if rows:
            size = 'small' if self.bar_rows else 'medium'
            axes.set_yticks(range(len(rows)), rows, fontsize=size)
            axes.set_ylim(len(rows) - 0.5, -0.5)
        for name, axis in (('x', x), ('y', y)):
            whole = axes.xaxis if name == 'x' else axes.yaxis
            if axis.is_log:
                getattr(axes, f'set_{name}scale')('log')
                plain_log_numbers(whole)
                if max(whole.get_view_interval()) < 1000 * min(whole.get_view_interval()):
                    whole.set_major_locator(LogLocator(subs=(1, 2, 5)))
            if axis.names:
                whole.set_ticks(list(axis.names), list(axis.names.values()), **self._turn(axes, name, axis))
            elif axis.ticks:
                whole.set_ticks(axis.ticks)
            if axis.limits is not None:
                low, high = axis.limits
                room = (
                    0.03 * (high - low) if is_dotted and name == 'y' and low is not None and high is not None else 0.0
                )
                getattr(axes, f'set_{name}lim')(
                    None if low is None else low - room, None if high is None else high + room
                )
            room = 0.75 * self._width_in(axes) if name == 'x' else 0.85 * self._height_in(axes)
            label = fold(axis.label, room) if axis.label else ''
            if name == 'x' and rows and self._is_wide(axes, label, rows):
                axes.set_xlabel(label, loc='right')  # centred it would reach over the edge: names of rows take the left
            else:
                getattr(axes, f'set_{name}label')(label)
        if facet.is_square:
            axes.set_aspect('equal')

    def _turn(self, axes: Axes, name: str, axis: Axis) -> dict[str, Any]:
        """Names along x are turned where they would meet."""
        longest = max(len(line) for text in axis.names.values() for line in text.split('\n'))
        is_tight = longest * len(axis.names) > 12 * self._width_in(axes) / font_scale()
        return TURNED if name == 'x' and is_tight else {}

    def _is_wide(self, axes: Axes, label: str, rows: Sequence[object]) -> bool:
        """Whether a line of the label is wider than what the names of rows leave of the width."""
        line, name = (
            max(len(part) for text in texts for part in text.split('\n')) for texts in ([label], [*map(str, rows)])
        )
        return line + name > 14 * self._width_in(axes) / font_scale()

    def _width_in(self, axes: Axes) -> float:
        place: Any = axes.get_subplotspec()
        return float(self.figure.get_figwidth() / place.get_gridspec().ncols)

    def _height_in(self, axes: Axes) -> float:
        place: Any = axes.get_subplotspec()
        return float(self.figure.get_figheight() / place.get_gridspec().nrows)


def _rule(axes: Axes, line: GuideLine) -> None:
    style: dict[str, Any] = {
        'color': line.color, 'linewidth': line.width, 'linestyle': line.dash, 'zorder': 0,
        'label': line.name or UNLISTED,
    }  # fmt: skip
    if line.x is not None:
        axes.axvline(line.x, **style)
    elif line.y is not None:
        axes.axhline(line.y, **style)
    else:
        axes.axline((0, 0), slope=1, **style)


def _coordinates(curve: Curve) -> tuple[list[float], list[Any], list[Any] | None, list[Any] | None]:
    """The curve's vertices; one that is observed to an end starts at (0, 0) and goes on to it."""
    x, y = [float(v) for v in curve.x], list(curve.y)
    bands = [None if band is None else list(band) for band in (curve.low, curve.high)]
    if curve.end is None:
        return x, y, bands[0], bands[1]
    kept = sum(v <= curve.end for v in x)
    x, y = [0.0, *x[:kept], curve.end], [0.0, *y[:kept], y[kept - 1] if kept else 0.0]
    low, high = (band and [band[0], *band[:kept], band[kept - 1]] for band in bands)
    return x, y, low, high


def _row_places(facet: Facet) -> tuple[list[str], dict[str, float]]:
    """The rows of points without y; and, where rows are groups, how far each policy stands from the row's middle."""
    points = [point for point in facet.of(Point) if point.y is None]
    rows = list(dict.fromkeys(p.group or p.label for p in points))
    policies = sorted({p.policy for p in points if p.group})
    step = ROOM / max(1, len(policies))
    return rows, {policy: (k - (len(policies) - 1) / 2) * step for k, policy in enumerate(policies)}
