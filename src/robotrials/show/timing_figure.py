"""Pictures of time to success: curves with bands, P-P plots, restricted means (PhAIL, Figures 1, 2, 6, 7).

Each picture is a value first, made from the analysis by a function of its own (`curve_panels`, `pp_plot`, ...); the
drawing only places it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robotrials.errors import InputError, UnknownName
from robotrials.measure.timing import SuccessCurve
from robotrials.measure.timing.shape import PPTrace, QQTrace, SupSign, TradeOffTrace
from robotrials.show.catalog import FigureRequest
from robotrials.show.figure import (
    COLUMN_WIDTH_IN,
    PAGE_WIDTH_IN,
    THING_PALETTE,
    PolicyLook,
    add_legend,
    figure_width_in,
    fold,
    font_scale,
    label_outer,
    legend_entries,
    new_figure,
    new_panels,
)
from robotrials.show.figure_mark import lead_from_vertices, lead_to, of_policies
from robotrials.verdict.analysis import PolicyCurve, present
from robotrials.verdict.analysis.detail import Cycle, PairShape
from robotrials.verdict.analysis.ranking import ALL_STRATA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


TICKS = 9


def drawn_policies(request: FigureRequest, *, with_reference: bool = True) -> tuple[str, ...]:
    """The reference, then who is ranked; a policy that stands apart only where it was asked for by name."""
    frame = present(request.analysis.frame)
    known = (*((frame.reference,) if frame.reference and with_reference else ()), *frame.policies)
    shown = request.shown((*known, *(p for p in frame.apart if p in request.policies)))
    if not [p for p in shown if p != frame.reference]:
        raise InputError('no policy with a valid episode is left to draw')
    return shown


def whole_strata(request: FigureRequest, name: str) -> None:
    """Refuse to show some strata of what is a mean over all of them."""
    if request.strata:
        raise InputError(
            f'{name} is over all strata of the analysis; analyse a selection of episodes to leave some out'
        )


# --- curves


@dataclass(frozen=True, slots=True, eq=False)
class CurvePanel:
    """One drawing of curves: the mean over strata, or one stratum."""

    stratum: str  # ALL_STRATA is the mean
    tau_s: float
    curves: tuple[PolicyCurve, ...]
    ticks_s: tuple[float, ...]
    at_risk: Mapping[str, tuple[int, ...]]  # policy -> operations still unfinished at each tick


def curve_panels(request: FigureRequest, *, n_ticks: int = TICKS) -> tuple[CurvePanel, ...]:
    """The mean over strata; or, where strata were asked for, a panel for each of them."""
    analysis = request.analysis
    curves, times = present(analysis.curves), present(analysis.times)
    strata = present(analysis.frame).strata
    asked = request.shown_strata(strata) if request.strata else (ALL_STRATA,)
    policies = drawn_policies(request)
    panels = []
    for stratum in asked:
        found = curves.get(stratum, curves[ALL_STRATA])
        tau_s = times.tau_s if stratum == ALL_STRATA else times.taus_s[stratum]
        ticks = np.linspace(0, tau_s, n_ticks)
        panels.append(
            CurvePanel(
                stratum, tau_s, tuple(c for p in policies for c in found if c.policy == p), tuple(ticks.tolist()),
                {p: _at_risk(request, p, stratum, ticks) for p in policies},
            )
        )  # fmt: skip
    return tuple(panels)


def _at_risk(request: FigureRequest, policy: str, stratum: str, ticks: np.ndarray) -> tuple[int, ...]:
    shapes = present(request.analysis.detail.shapes)
    own = shapes.strata_of(policy) if stratum == ALL_STRATA else (stratum,)
    counts = [shapes.curves[policy, s].at_risk_at(ticks) for s in own if (policy, s) in shapes.curves]
    return tuple(int(n) for n in np.sum(counts, axis=0)) if counts else ()


def draw_cdf(request: FigureRequest) -> Figure:
    """Success curves of all policies, mean over strata, with bands and numbers at risk; or single strata."""
    n_ticks = TICKS if figure_width_in(PAGE_WIDTH_IN * 0.75) > 4.2 * font_scale() else 5
    panels, looks = curve_panels(request, n_ticks=n_ticks), request.looks()
    if len(panels) > 1:
        figure, axes_of = new_panels(len(panels), panel_in=(1.9, 2.2), extra_in=0.4, sharey=True)
        for axes, panel in zip(axes_of, panels, strict=True):
            _draw_panel(axes, panel, request)
            axes.set_title(panel.stratum)
        add_legend(figure, *legend_entries(axes_of))
        return figure
    panel = panels[0]
    rows_in = 0.14 * font_scale() * (len(panel.curves) + 1)
    figure = new_figure(PAGE_WIDTH_IN * 0.75, 2.9 + rows_in)
    axes, table = figure.subplots(2, 1, height_ratios=[figure.get_figheight() - 0.5 - rows_in, rows_in])
    _draw_panel(axes, panel, request)
    axes.set_xticks(panel.ticks_s)
    if panel.stratum:
        axes.set_title(panel.stratum)
    draw_at_risk(table, panel, looks)
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure


def _draw_panel(axes: Axes, panel: CurvePanel, request: FigureRequest) -> None:
    looks = request.looks()
    for curve in panel.curves:
        look = looks[curve.policy]
        times = np.concatenate([[0.0], curve.times_s, [panel.tau_s]])
        chance = np.concatenate([[0.0], curve.chance, curve.chance[-1:] if len(curve.chance) else [0.0]])
        if curve.low is not None and curve.high is not None:
            low, high = (np.concatenate([end[:1], end, end[-1:]]) for end in (curve.low, curve.high))
            axes.fill_between(
                times[1:], low[1:], high[1:], step='post', color=look.color, alpha=0.15, linewidth=0
            )  # fmt: skip
        axes.step(times, chance, where='post', color=look.color, linestyle=look.dash, linewidth=1.3, label=curve.policy)
        own = {curve.policy: curve.times_s}
        lead_from_vertices(axes, request, curve.times_s, curve.chance, own, stratum=panel.stratum)
    axes.set(xlim=(0, panel.tau_s), ylim=(0, 1.02), xlabel='time to success T (s)', ylabel='F(t) = P(T ≤ t)')


def draw_steps(axes: Axes, curve: SuccessCurve, tau_s: float, *, look: PolicyLook, label: str | None = None) -> None:
    """One curve as steps from (0, 0) to tau_s."""
    inside = curve.times_s <= tau_s
    times = np.concatenate([[0.0], curve.times_s[inside], [tau_s]])
    chance = np.concatenate([[0.0], curve.chance[inside], [float(curve.at(tau_s))]])
    axes.step(times, chance, where='post', color=look.color, linestyle=look.dash, linewidth=1.3, label=label)


def draw_at_risk(axes: Axes, panel: CurvePanel, looks: Mapping[str, PolicyLook]) -> None:
    """Operations still unfinished at each tick, one row per policy, aligned with the axis above."""
    axes.set(xlim=(0, panel.tau_s), ylim=(-len(panel.at_risk) + 0.4, 1.4))
    axes.axis('off')
    beside = axes.get_yaxis_transform()
    axes.text(-0.06, 1.0, 'at risk', transform=beside, ha='right', va='center', fontsize='small')
    for row, (policy, counts) in enumerate(panel.at_risk.items()):
        said: dict[str, Any] = {'va': 'center', 'fontsize': 'small', 'color': looks[policy].color}
        axes.text(-0.06, -row, policy, transform=beside, ha='right', **said)
        for tick, count in zip(panel.ticks_s, counts, strict=False):
            axes.text(tick, -row, f'{count}', ha='center', **said)


# --- P-P


@dataclass(frozen=True, slots=True, eq=False)
class PPPlot:
    """One policy against the reference in one stratum."""

    policy: str
    reference: str
    stratum: str
    tau_s: float
    curve: SuccessCurve
    reference_curve: SuccessCurve
    trace: PPTrace


def required_reference(request: FigureRequest, name: str) -> str:
    reference = present(request.analysis.frame).reference
    if reference is None:
        raise InputError(f'{name} draws against a reference, and none is marked or declared')
    return reference


def pp_plot(request: FigureRequest) -> PPPlot:
    """The first policy and stratum, unless others were asked for."""
    shapes = present(request.analysis.detail.shapes)
    reference = required_reference(request, 'pp')
    policy = drawn_policies(request, with_reference=False)[0]
    check_strata(request)
    stratum = next((s for p, s in shapes.pp if p == policy and (not request.strata or s in request.strata)), None)
    if stratum is None:
        raise InputError(f'{policy} and {reference} share no stratum to draw')
    return PPPlot(
        policy, reference, stratum, shapes.taus_s[stratum], shapes.curves[policy, stratum],
        shapes.curves[reference, stratum], shapes.pp[policy, stratum],
    )  # fmt: skip


def check_strata(request: FigureRequest) -> None:
    """A stratum that no policy has is an error with the near name."""
    known = tuple(dict.fromkeys(s for _, s in present(request.analysis.detail.shapes).curves if s != ALL_STRATA))
    for name in request.strata:
        if name not in known:
            raise UnknownName('stratum', name, known)


def draw_pp(request: FigureRequest) -> Figure:
    """One cell against the reference: both curves, and their P-P plot with AUC and KS segment.

    The first policy and stratum unless asked for others.
    """
    plot, looks = pp_plot(request), request.looks()
    is_narrow = figure_width_in(PAGE_WIDTH_IN * 0.85) < 4.5
    figure = new_figure(PAGE_WIDTH_IN * 0.85, 3.6 if is_narrow else 2.9, is_rows=is_narrow)
    left, right = figure.subplots(2, 1) if is_narrow else figure.subplots(1, 2)
    for policy, curve in ((plot.policy, plot.curve), (plot.reference, plot.reference_curve)):
        draw_steps(left, curve, plot.tau_s, look=looks[policy], label=policy)
        lead_from_vertices(left, request, curve.times_s, curve.chance, {policy: curve.times_s}, stratum=plot.stratum)
    left.set(xlim=(0, plot.tau_s), ylim=(0, 1.02), xlabel='time to success T (s)', ylabel='F(t)', title=plot.stratum)
    draw_pp_axes(right, plot.trace, color=looks[plot.policy].color)
    lead_from_pp(right, request, plot.trace, (plot.policy, plot.reference), stratum=plot.stratum)
    right.set(xlabel=f'F {plot.reference}', ylabel=f'F {plot.policy}')
    right.set_title(f'AUC {plot.trace.auc:.3f}, KS {plot.trace.ks:.3f}')
    add_legend(figure, *left.get_legend_handles_labels())
    return figure


def draw_pp_axes(axes: Axes, trace: PPTrace, *, color: str) -> None:
    """The P-P curve, its shaded area, the diagonal, and the perpendicular of length KS / sqrt 2."""
    axes.plot([0, 1], [0, 1], color='0.6', linewidth=0.8, linestyle='--')
    axes.fill_between(trace.reference, 0, trace.model, color=color, alpha=0.12, linewidth=0)
    axes.plot(trace.reference, trace.model, color=color, linewidth=1.3)
    x, y = trace.ks_point
    middle = (x + y) / 2
    axes.plot([x, middle], [y, middle], color='#C00000', linewidth=1.6)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect='equal', xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])


def lead_from_pp(
    axes: Axes, request: FigureRequest, trace: PPTrace, policies: tuple[str, str], *, stratum: str
) -> None:
    """Let every point of a P-P curve lead to the placements of both policies at its time."""
    times_s = dict.fromkeys(policies, trace.times_s)
    lead_from_vertices(axes, request, trace.reference, trace.model, times_s, stratum=stratum)


def pair_plots(request: FigureRequest) -> list[PairShape]:
    """The P-P plot of every pair shown."""
    whole_strata(request, 'pairwise-pp')
    shown = drawn_policies(request, with_reference=False)
    found = present(request.analysis.detail.pair_shapes)
    kept = [p for p in found if p.policy_a in shown and p.policy_b in shown]
    if not kept:
        raise InputError('pairwise-pp needs two policies besides the reference')
    return kept


def draw_pairwise_pp(request: FigureRequest) -> Figure:
    """P-P plots of every pair of policies, averaged over strata, with macro-AUC and its interval."""
    pairs, looks = pair_plots(request), request.looks()
    figure, panels = new_panels(len(pairs), most=3, panel_in=(1.8, 2.4), extra_in=0.0, is_square=True)
    for axes, pair in zip(panels, pairs, strict=True):
        draw_pp_axes(axes, pair.trace, color=looks[pair.policy_a].color)
        lead_from_pp(axes, request, pair.trace, (pair.policy_a, pair.policy_b), stratum=ALL_STRATA)
        axes.set(xlabel=f'F {pair.policy_b}', ylabel=f'F {pair.policy_a}')
        interval = pair.auc.interval
        between = f' [{interval.low:.2f}, {interval.high:.2f}]' if interval else ''
        if pair.auc.value is not None:
            axes.set_title(f'AUC {pair.auc.value:.2f}{between}')
    return figure


# --- restricted means


@dataclass(frozen=True, slots=True)
class GridPoint:
    """One policy's RMST in one stratum."""

    policy: str
    stratum: str
    value: float
    low: float | None
    high: float | None


def rmst_grid(request: FigureRequest) -> tuple[tuple[str, ...], tuple[str, ...], tuple[GridPoint, ...]]:
    """Policies, strata, and the points that exist."""
    ranking = present(request.analysis.ranking)
    policies = tuple(p for p in drawn_policies(request) if p in ranking.scores)
    strata = request.shown_strata(dict.fromkeys(s for p in policies for s in ranking.scores[p].cells))
    points = []
    for policy in policies:
        for stratum in strata:
            found = ranking.scores[policy].cells.get(stratum, {}).get('rmst_s')
            if found is not None and found.value is not None:
                low, high = found.interval or (None, None)
                points.append(GridPoint(policy, stratum, found.value, low, high))
    return policies, strata, tuple(points)


def draw_rmst_grid(request: FigureRequest) -> Figure:
    """Restricted mean time to success of every policy in every stratum, with intervals."""
    policies, strata, points = rmst_grid(request)
    looks, times = request.looks(), present(request.analysis.times)
    figure = new_figure(max(COLUMN_WIDTH_IN, 1.1 * len(strata) + 1.6), 2.8)
    axes = figure.subplots()
    width = 0.7 / max(len(policies) - 1, 1)
    for point in points:
        look = looks[point.policy]
        reach = None
        if point.low is not None and point.high is not None:
            reach = [[max(0.0, point.value - point.low)], [max(0.0, point.high - point.value)]]
        axes.errorbar(
            strata.index(point.stratum) - 0.35 + policies.index(point.policy) * width, point.value, reach,
            marker=look.marker, markersize=3.5, capsize=2, color=look.color, linewidth=1, linestyle='',
            label=point.policy,
        )  # fmt: skip
        behind = of_policies(present(request.analysis.frame), point.policy, stratum=point.stratum)
        at = strata.index(point.stratum) - 0.35 + policies.index(point.policy) * width
        lead_to(axes, at, point.value, behind, f'{point.policy}, {point.stratum}: {point.value:.1f} s')
    turned = max(map(len, strata)) * len(strata) > 11 * figure.get_figwidth() / font_scale()
    turn: dict[str, Any] = {'rotation': 30, 'ha': 'right', 'rotation_mode': 'anchor'} if turned else {}
    axes.set_xticks(range(len(strata)), strata, **turn)
    axes.set(ylabel=f'RMST({times.tau_text}) (s)', xlim=(-0.6, len(strata) - 0.4))
    axes.set_ylim(bottom=0)
    add_legend(figure, *legend_entries([axes]))
    return figure


# Pictures of distributional shape and scalar trade-offs (PhAIL, Figures 5, 8, 9, 10).

BUDGETS_APART = 10


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
