"""Pictures of distributional shape and scalar trade-offs (PhAIL, Figures 5, 8, 9, 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from trialist.errors import InputError
from trialist.show.figure import COLUMN_WIDTH_IN, PAGE_WIDTH_IN, PALETTE, new_figure
from trialist.show.figure_catalog import FigureRequest
from trialist.show.timing_figure import cast_of, draw_steps
from trialist.timing import SuccessCurve, macro_curve
from trialist.timing.sup_sign import SupSign, example_curves, find_cycle
from trialist.timing.trace import qq_trace, trade_off_trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SWEEP_LOW_S = 30.0


def _panels(strata: Sequence[str]) -> tuple[Figure, dict[str, Axes]]:
    """One panel a stratum, four to a row, sharing scales."""
    columns = min(4, len(strata))
    rows = -(-len(strata) // columns)
    figure = new_figure(max(COLUMN_WIDTH_IN, PAGE_WIDTH_IN * columns / 4), 2.3 * rows + 0.3)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axes in grid[len(strata) :]:
        axes.axis('off')
    named = dict(zip(strata, grid, strict=False))
    for stratum, axes in named.items():
        axes.set_title(stratum, fontsize=8)
    return figure, named


def _legend(figure: Figure, panels: dict[str, Axes]) -> None:
    handles = {label: h for axes in panels.values() for h, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc='outside lower center', ncols=5, fontsize=7)


def draw_qq(request: FigureRequest) -> Figure:
    """Quantile-quantile plots against the reference in each stratum; circles mark the last quantile reached."""
    cast = cast_of(request)
    reference = cast.required_reference('qq')
    strata = [s for s in cast.strata if s in reference.cells]
    if not strata:
        raise InputError(f'{reference.policy} has none of the strata {", ".join(cast.strata)}')
    figure, panels = _panels(strata)
    anchors = cast.cells(reference)
    for stratum, axes in panels.items():
        for cohort in cast.models:
            curve = cast.cells(cohort).get(stratum)
            if curve is None or curve.plateau == 0:
                continue
            trace = qq_trace(curve, anchors[stratum])
            color = cast.colors[cohort.policy]
            axes.plot(trace.model_s, trace.reference_s, color=color, linewidth=1.2, label=cohort.policy)
            axes.plot(
                trace.model_s[-1], trace.reference_s[-1], 'o', markersize=4, markerfacecolor='white',
                markeredgecolor=color,
            )  # fmt: skip
            axes.annotate(
                f'{trace.last_level:.2f}', (trace.model_s[-1], trace.reference_s[-1]), fontsize=5.5, color=color,
                xytext=(3, 2), textcoords='offset points',
            )  # fmt: skip
        axes.axline((0, 0), slope=1, color='0.6', linewidth=0.8, linestyle='--')
        axes.set_xlabel('T model (s)')
    first = next(iter(panels.values()))
    first.set_ylabel(f'T {reference.policy} (s)')
    first.set_xlim(left=0)
    first.set_ylim(bottom=0)
    _legend(figure, panels)
    return figure


def draw_uph_mtbf(request: FigureRequest) -> Figure:
    """UPH against MTBF in each stratum as the time budget grows from 30 s to tau."""
    cast = cast_of(request)
    figure, panels = _panels(cast.strata)
    for stratum, axes in panels.items():
        for cohort in cast.models:
            curve = cast.cells(cohort).get(stratum)
            if curve is not None:
                _draw_trade_off(axes, [curve], cast.colors[cohort.policy], cohort.policy, request.tau_s)
        axes.set_xlabel('UPH = 3600 / RMST')
        _log_seconds(axes)
    next(iter(panels.values())).set_ylabel('MTBF/A (s)')
    _legend(figure, panels)
    return figure


def _log_seconds(axes: Axes) -> None:
    """A log scale of seconds with plain numbers at 1, 2 and 5 of each decade."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    axes.set_yscale('log')
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())


def draw_uph_mtbf_macro(request: FigureRequest) -> Figure:
    """UPH against MTBF averaged over strata, as the time budget grows from 30 s to tau."""
    cast = cast_of(request)
    figure = new_figure(COLUMN_WIDTH_IN * 1.2, 2.9)
    axes = figure.subplots()
    for cohort in cast.models:
        curves = list(cast.cells(cohort).values())
        _draw_trade_off(axes, curves, cast.colors[cohort.policy], cohort.policy, request.tau_s)
    axes.set(xlabel='UPH = 3600 / RMST, mean over strata', ylabel='MTBF/A (s), mean over strata')
    _log_seconds(axes)
    axes.legend(fontsize=7)
    return figure


def _draw_trade_off(axes: Axes, curves: Sequence[SuccessCurve], color: str, label: str, tau_s: float) -> None:
    if tau_s <= SWEEP_LOW_S:
        raise InputError(f'the sweep starts at {SWEEP_LOW_S:g} s; give a --tau above it')
    trace = trade_off_trace(curves, low_s=SWEEP_LOW_S, high_s=tau_s)
    shown = np.isfinite(trace.mtbf_s) & np.isfinite(trace.uph) & (trace.mtbf_s > 0)
    if not shown.any():
        # Nothing failed within any budget: no point to draw, and the legend says so.
        axes.plot([], [], color=color, linewidth=1.2, label=f'{label} (no failure)')
        return
    uph, between = trace.uph[shown], trace.mtbf_s[shown]
    axes.plot(uph, between, color=color, linewidth=1.2, label=label)
    axes.plot(uph[0], between[0], 'o', markersize=3, color=color)
    axes.plot(uph[-1], between[-1], '^', markersize=4, color=color)


def draw_sup_sign_cycle(request: FigureRequest) -> Figure:
    """Three curves whose KS signs cycle, so that none is first: from the store if it has such a triple.

    Else the constructed example, and the title says so.
    """
    cast = cast_of(request)
    curves = {c.policy: macro_curve(cast.cells(c)) for c in cast.models}
    cycle = find_cycle(curves)
    title = 'sup-signs of three recorded policies cycle'
    colors = dict(cast.colors)
    if cycle is None:
        curves = example_curves()
        cycle = find_cycle(curves)
        title = 'constructed example (no three policies of this store cycle)'
        colors = dict(zip(curves, PALETTE, strict=False))
    assert cycle is not None
    return _draw_cycle(curves, cycle, title=title, colors=colors)


def _draw_cycle(
    curves: Mapping[str, SuccessCurve], cycle: Sequence[SupSign], *, title: str, colors: Mapping[str, str]
) -> Figure:
    figure = new_figure(PAGE_WIDTH_IN * 0.6, 2.9)
    axes = figure.subplots()
    names = {name for edge in cycle for name in (edge.upper, edge.lower)}
    end_s = 1.4 * max(edge.time_s for edge in cycle)
    for name in sorted(names):
        draw_steps(axes, curves[name], end_s, color=colors[name], label=name)
    for edge in cycle:
        at = edge.time_s + 0.015 * end_s
        low, high = (float(curves[name].at(edge.time_s)) for name in (edge.lower, edge.upper))
        axes.annotate('', (at, high), (at, low), arrowprops={'arrowstyle': '<->', 'color': '0.3', 'linewidth': 0.9})
        axes.text(
            at + 0.012 * end_s, (low + high) / 2, f'{edge.upper} over {edge.lower}\n{edge.distance:.2f}', fontsize=6.5,
            va='center',
        )  # fmt: skip
    axes.set(xlim=(0, end_s), ylim=(0, 1.02), xlabel='t (s)', ylabel='F(t)', title=title)
    axes.title.set_fontsize(8)
    axes.legend(loc='upper left')
    return figure
