"""Pictures of distributional shape and scalar trade-offs (PhAIL, Figures 5, 8, 9, 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import InputError
from robotrials.measure.timing import SuccessCurve
from robotrials.measure.timing.sup_sign import SupSign
from robotrials.measure.timing.trace import QQTrace, TradeOffTrace
from robotrials.show.figure import (
    COLUMN_WIDTH_IN,
    THING_PALETTE,
    PolicyLook,
    add_legend,
    fold,
    label_outer,
    legend_entries,
    new_figure,
    new_panels,
)
from robotrials.show.figure_catalog import FigureRequest
from robotrials.show.figure_mark import lead_to, of_policies
from robotrials.show.step_mark import lead_from_vertices
from robotrials.show.timing_figure import check_strata, draw_steps, drawn_policies, required_reference, whole_strata
from robotrials.verdict.analysis import present
from robotrials.verdict.analysis.ranking import ALL_STRATA
from robotrials.verdict.analysis.shape import Cycle

BUDGETS_APART = 10

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _panels(strata: Sequence[str]) -> tuple[Figure, dict[str, Axes]]:
    """One panel per stratum, four to a row where there is room, sharing scales."""
    figure, panels = new_panels(len(strata), panel_in=(1.6, 2.2), extra_in=0.4, sharex=True, sharey=True)
    named = dict(zip(strata, panels, strict=True))
    for stratum, axes in named.items():
        axes.set_title(stratum)
    return figure, named


def draw_qq(request: FigureRequest) -> Figure:
    """Quantile-quantile plots against the reference in each stratum; circles mark the last quantile reached.

    The last quantile of each policy, in percent, stands at the top of the panel in the policy's colour.
    """
    traces, looks = qq_traces(request), request.looks()
    reference = required_reference(request, 'qq')
    figure, panels = _panels(tuple(traces))
    for stratum, axes in panels.items():
        reached = []
        for policy, trace in traces[stratum].items():
            look = looks[policy]
            axes.plot(
                trace.model_s, trace.reference_s, color=look.color, linestyle=look.dash, linewidth=1.2, label=policy
            )
            axes.plot(
                trace.model_s[-1], trace.reference_s[-1], 'o', markersize=4, markerfacecolor='white',
                markeredgecolor=look.color,
            )  # fmt: skip
            quantiles = {policy: trace.model_s, reference: trace.reference_s}
            lead_from_vertices(axes, request, trace.model_s, trace.reference_s, quantiles, stratum=stratum)
            reached.append((f'{100 * trace.last_level:.0f} %', look.color))
        _write_levels(axes, reached)
        axes.axline((0, 0), slope=1, color='0.6', linewidth=0.8, linestyle='--')
    first = next(iter(panels.values()))
    first.set_xlim(left=0)
    first.set_ylim(bottom=0, top=1.25 * first.get_ylim()[1])
    label_outer(list(panels.values()), x='T model (s)', y=f'T {reference} (s)')
    add_legend(figure, *legend_entries(panels.values()))
    return figure


def qq_traces(request: FigureRequest) -> dict[str, dict[str, QQTrace]]:
    """Stratum -> policy -> trace, of those shown."""
    shapes = present(request.analysis.detail.shapes)
    reference = required_reference(request, 'qq')
    check_strata(request)
    strata = [s for s in shapes.strata_of(reference) if not request.strata or s in request.strata]
    if not strata:
        raise InputError(f'{reference} was not run on {", ".join(request.strata)}')
    shown = drawn_policies(request, with_reference=False)
    return {s: {p: shapes.qq[p, s] for p in shown if (p, s) in shapes.qq} for s in strata}


def _write_levels(axes: Axes, reached: Sequence[tuple[str, str]]) -> None:
    """The last quantiles side by side, so that none covers another."""
    for place, (text, color) in enumerate(reached):
        axes.text(
            (place + 0.5) / len(reached), 0.99, text, transform=axes.transAxes, ha='center', va='top', color=color,
            fontsize='x-small',
        )  # fmt: skip


def trade_offs(request: FigureRequest) -> dict[str, dict[str, TradeOffTrace]]:
    """Stratum (ALL_STRATA first) -> policy -> trace, of those shown."""
    shapes = present(request.analysis.detail.shapes)
    check_strata(request)
    shown = drawn_policies(request, with_reference=False)
    strata = dict.fromkeys(s for p, s in shapes.trade_off if p in shown)
    kept = [s for s in strata if s == ALL_STRATA or not request.strata or s in request.strata]
    return {s: {p: shapes.trade_off[p, s] for p in shown if (p, s) in shapes.trade_off} for s in kept}


def draw_uph_mtbf(request: FigureRequest) -> Figure:
    """UPH against MTBF in each stratum as the time budget grows from 30 s to tau."""
    found, looks = trade_offs(request), request.looks()
    figure, panels = _panels([s for s in found if s != ALL_STRATA])
    for stratum, axes in panels.items():
        for policy, trace in found[stratum].items():
            _draw_trade_off(axes, trace, looks[policy], policy)
            _lead_from_budgets(axes, request, trace, policy, stratum)
        _log_seconds(axes)
    label_outer(list(panels.values()), x='UPH = 3600 / RMST', y='MTBF/A (s)')
    add_legend(figure, *legend_entries(panels.values()))
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
    whole_strata(request, 'uph-mtbf-macro')
    found, looks = trade_offs(request)[ALL_STRATA], request.looks()
    figure = new_figure(COLUMN_WIDTH_IN * 1.2, 2.9)
    axes = figure.subplots()
    for policy, trace in found.items():
        _draw_trade_off(axes, trace, looks[policy], policy)
        _lead_from_budgets(axes, request, trace, policy, ALL_STRATA)
    axes.set(xlabel='UPH = 3600 / RMST, mean over strata', ylabel='MTBF/A (s), ratio of means over strata')
    _log_seconds(axes)
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure


def _lead_from_budgets(axes: Axes, request: FigureRequest, trace: TradeOffTrace, policy: str, stratum: str) -> None:
    """Every tenth budget and the last lead to the episodes that were counted under it: all of the cell."""
    behind = of_policies(present(request.analysis.frame), policy, stratum=stratum)
    for k in (*range(0, len(trace.tau_s) - 1, BUDGETS_APART), len(trace.tau_s) - 1):
        uph, between = float(trace.uph[k]), float(trace.mtbf_s[k])
        if np.isfinite(uph) and np.isfinite(between) and between > 0:
            words = f'{policy} at {trace.tau_s[k]:.0f} s: UPH {uph:.0f}, MTBF/A {between:.0f} s'
            lead_to(axes, uph, between, behind, words)


def _draw_trade_off(axes: Axes, trace: TradeOffTrace, look: PolicyLook, label: str) -> None:
    shown = np.isfinite(trace.mtbf_s) & np.isfinite(trace.uph) & (trace.mtbf_s > 0)
    if not shown.any():
        # Nothing failed within any budget: no point to draw, and the legend says so.
        axes.plot([], [], color=look.color, linestyle=look.dash, linewidth=1.2, label=f'{label} (no failure)')
        return
    uph, between = trace.uph[shown], trace.mtbf_s[shown]
    axes.plot(uph, between, color=look.color, linestyle=look.dash, linewidth=1.2, label=label)
    axes.plot(uph[0], between[0], 'o', markersize=3, color=look.color)
    axes.plot(uph[-1], between[-1], '^', markersize=4, color=look.color)


def draw_sup_sign_cycle(request: FigureRequest) -> Figure:
    """Three curves whose KS signs cycle, so that none is first: from the store if it has such a triple.

    Else the constructed example, and the title says so.
    """
    whole_strata(request, 'sup-sign-cycle')
    cycle = present(request.analysis.detail.shapes).cycle
    if not cycle.is_example:
        figure = _draw_cycle(
            cycle.curves, cycle.edges, title='sup-signs of three recorded policies cycle', looks=request.looks()
        )
        _lead_from_cycle(figure.axes[0], request, cycle)
        return figure
    looks = {name: PolicyLook(color) for name, color in zip(cycle.curves, THING_PALETTE, strict=False)}
    title = 'constructed example (no three policies of this store cycle)'
    return _draw_cycle(cycle.curves, cycle.edges, title=title, looks=looks)


def _lead_from_cycle(axes: Axes, request: FigureRequest, cycle: Cycle) -> None:
    """The steps of the three curves, and each phase: where one is furthest above the next."""
    frame = present(request.analysis.frame)
    for edge in cycle.edges:
        curve = cycle.curves[edge.upper]
        lead_from_vertices(
            axes, request, curve.times_s, curve.chance, {edge.upper: curve.times_s}, stratum=ALL_STRATA
        )  # fmt: skip
        low, high = (float(cycle.curves[name].at(edge.time_s)) for name in (edge.lower, edge.upper))
        words = f'{edge.upper} over {edge.lower} by {edge.distance:.2f} at {edge.time_s:.2f} s'
        lead_to(axes, edge.time_s, (low, high), of_policies(frame, edge.upper, edge.lower), words)


def _draw_cycle(
    curves: Mapping[str, SuccessCurve], cycle: Sequence[SupSign], *, title: str, looks: Mapping[str, PolicyLook]
) -> Figure:
    figure = new_figure(4.2, 2.9)
    axes = figure.subplots()
    names = {name for edge in cycle for name in (edge.upper, edge.lower)}
    end_s = 1.4 * max(edge.time_s for edge in cycle)
    for name in sorted(names):
        draw_steps(axes, curves[name], end_s, look=looks[name], label=name)
    behind = {'facecolor': 'white', 'edgecolor': 'none', 'alpha': 0.75, 'pad': 0.5}
    for edge in cycle:
        at = edge.time_s + 0.015 * end_s
        low, high = (float(curves[name].at(edge.time_s)) for name in (edge.lower, edge.upper))
        axes.annotate('', (at, high), (at, low), arrowprops={'arrowstyle': '<->', 'color': '0.3', 'linewidth': 0.9})
        axes.text(
            at + 0.012 * end_s, (low + high) / 2, f'{edge.upper} over {edge.lower}\n{edge.distance:.2f}',
            fontsize='small', va='center', bbox=behind,
        )  # fmt: skip
    axes.set(xlim=(0, end_s), ylim=(0, 1.02), xlabel='t (s)', ylabel='F(t)')
    axes.set_title(fold(title, 0.8 * figure.get_figwidth()))
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure
