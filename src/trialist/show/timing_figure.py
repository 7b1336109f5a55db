"""Pictures of time-to-success: curves with bands, P-P plots, restricted means (PhAIL, Figures 1, 2, 6, 7)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trialist.errors import InputError, UnknownName
from trialist.show.figure import (
    COLUMN_WIDTH_IN,
    PAGE_WIDTH_IN,
    PolicyLook,
    add_legend,
    figure_width_in,
    font_scale,
    legend_entries,
    new_figure,
    new_panels,
)
from trialist.show.figure_catalog import FigureRequest
from trialist.timing import (
    Cohort,
    SuccessCurve,
    auc,
    cohorts,
    find_cohort,
    find_reference,
    macro_band,
    macro_curve,
    score_cohort,
    success_curve,
)
from trialist.timing.scalar import Scale
from trialist.timing.trace import PPTrace, pp_trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, eq=False)
class Cast:
    """Who is in the picture: the reference if there is one, the models, the strata, and how everyone is drawn."""

    reference: Cohort | None
    models: tuple[Cohort, ...]
    strata: tuple[str, ...]
    looks: Mapping[str, PolicyLook]

    @property
    def everyone(self) -> tuple[Cohort, ...]:
        return (*(() if self.reference is None else (self.reference,)), *self.models)

    def required_reference(self, figure: str) -> Cohort:
        if self.reference is None:
            raise InputError(f'{figure} draws against a reference, and none is marked; name one with --reference')
        return self.reference

    def cells(self, cohort: Cohort) -> dict[str, SuccessCurve]:
        """The curves of the cohort's cells, in the picture's order of strata."""
        return {
            s: success_curve(cohort.cells[s].durations_s, cohort.cells[s].observed)
            for s in self.strata
            if s in cohort.cells
        }


def cast_of(request: FigureRequest) -> Cast:
    """Pick the policies and strata asked for; colours are fixed over all policies of the store."""
    found = cohorts(request.episodes)
    reference = find_reference(found, request.reference)
    if request.policies:
        chosen = [find_cohort(found, name) for name in request.policies]
    else:
        chosen = [c for c in found.values() if c.cells]
    models = tuple(c for c in chosen if reference is None or c.policy != reference.policy)
    if not models:
        raise InputError('no policy with a valid episode is left to draw; check --policy and --where')
    known = sorted({s for c in found.values() for s in c.cells})
    for name in request.strata:
        if name not in known:
            raise UnknownName('stratum', name, known)
    strata = tuple(request.strata or sorted({s for c in models for s in c.cells}))
    return Cast(reference, models, strata, request.looks())


def draw_cdf(request: FigureRequest) -> Figure:
    """Success curves of all policies, averaged over strata, with 95 % bands and numbers at risk."""
    cast = cast_of(request)
    rows_in = 0.14 * font_scale() * (len(cast.everyone) + 1)
    figure = new_figure(PAGE_WIDTH_IN * 0.75, 2.9 + rows_in)
    axes, table = figure.subplots(2, 1, height_ratios=[figure.get_figheight() - 0.5 - rows_in, rows_in])
    ticks = np.linspace(0, request.tau_s, 9 if figure.get_figwidth() > 4.2 * font_scale() else 5)
    rng = np.random.default_rng(request.seed)
    for cohort in cast.everyone:
        curve = macro_curve(cast.cells(cohort))
        cells = {s: cohort.cells[s] for s in cast.strata if s in cohort.cells}
        grid = np.linspace(0, request.tau_s, 241)
        band = macro_band(cells, kind='bootstrap', rng=rng, n_resamples=request.n_resamples, grid_s=grid)
        look = cast.looks[cohort.policy]
        axes.fill_between(grid, band.low, band.high, step='post', color=look.color, alpha=0.15, linewidth=0)
        draw_steps(axes, curve, request.tau_s, look=look, label=cohort.policy)
    axes.set(xlim=(0, request.tau_s), ylim=(0, 1.02), xlabel='time to success T (s)', ylabel='F(t) = P(T ≤ t)')
    axes.set_xticks(ticks)
    draw_at_risk(table, cast, ticks)
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure


def draw_steps(axes: Axes, curve: SuccessCurve, tau_s: float, *, look: PolicyLook, label: str | None = None) -> None:
    """One curve as steps from (0, 0) to tau_s."""
    inside = curve.times_s <= tau_s
    times = np.concatenate([[0.0], curve.times_s[inside], [tau_s]])
    chance = np.concatenate([[0.0], curve.chance[inside], [float(curve.at(tau_s))]])
    axes.step(times, chance, where='post', color=look.color, linestyle=look.dash, linewidth=1.3, label=label)


def draw_at_risk(axes: Axes, cast: Cast, ticks: np.ndarray) -> None:
    """Operations still unfinished at each tick, one row a policy, aligned with the axis above."""
    axes.set(xlim=(0, ticks[-1]), ylim=(-len(cast.everyone) + 0.4, 1.4))
    axes.axis('off')
    beside = axes.get_yaxis_transform()
    axes.text(-0.06, 1.0, 'at risk', transform=beside, ha='right', va='center', fontsize='small')
    for row, cohort in enumerate(cast.everyone):
        counts = np.sum([c.at_risk_at(ticks) for c in cast.cells(cohort).values()], axis=0)
        look = cast.looks[cohort.policy]
        said: dict[str, Any] = {'va': 'center', 'fontsize': 'small', 'color': look.color}
        axes.text(-0.06, -row, cohort.policy, transform=beside, ha='right', **said)
        for tick, count in zip(ticks, counts, strict=True):
            axes.text(tick, -row, f'{count:.0f}', ha='center', **said)


def draw_pp(request: FigureRequest) -> Figure:
    """One cell against the reference: both curves, and their P-P plot with AUC and KS segment.

    The first policy and stratum unless asked for others.
    """
    cast = cast_of(request)
    reference = cast.required_reference('pp')
    model = cast.models[0]
    stratum = next((s for s in cast.strata if s in model.cells and s in reference.cells), None)
    if stratum is None:
        raise InputError(f'{model.policy} and {reference.policy} share no stratum to draw')
    curves = [cast.cells(c)[stratum] for c in (model, reference)]
    is_narrow = figure_width_in(PAGE_WIDTH_IN * 0.85) < 4.5
    figure = new_figure(PAGE_WIDTH_IN * 0.85, 3.6 if is_narrow else 2.9, is_rows=is_narrow)
    left, right = figure.subplots(2, 1) if is_narrow else figure.subplots(1, 2)
    for cohort, curve in zip((model, reference), curves, strict=True):
        draw_steps(left, curve, request.tau_s, look=cast.looks[cohort.policy], label=cohort.policy)
    left.set(xlim=(0, request.tau_s), ylim=(0, 1.02), xlabel='time to success T (s)', ylabel='F(t)', title=stratum)
    trace = pp_trace(curves[0], curves[1], tau_s=request.tau_s)
    draw_pp_axes(right, trace, color=cast.looks[model.policy].color)
    right.set(xlabel=f'F {reference.policy}', ylabel=f'F {model.policy}')
    right.set_title(f'AUC {trace.auc:.3f}, KS {trace.ks:.3f}')
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


def draw_pairwise_pp(request: FigureRequest) -> Figure:
    """P-P plots of every pair of policies, averaged over strata, with macro-AUC and its interval."""
    cast = cast_of(request)
    pairs = list(itertools.combinations(cast.models, 2))
    if not pairs:
        raise InputError('pairwise-pp needs two policies besides the reference')
    figure, panels = new_panels(len(pairs), most=3, panel_in=(1.8, 2.4), extra_in=0.0, is_square=True)
    rng = np.random.default_rng(request.seed)
    for axes, (a, b) in zip(panels, pairs, strict=True):
        shared = [s for s in cast.strata if s in a.cells and s in b.cells]
        if not shared:
            raise InputError(f'{a.policy} and {b.policy} share no stratum; leave one of them out with --policy')
        score = auc(
            {s: a.cells[s] for s in shared}, {s: b.cells[s] for s in shared}, tau_s=request.tau_s, rng=rng,
            n_resamples=request.n_resamples,
        )  # fmt: skip
        own, other = (macro_curve({s: cast.cells(c)[s] for s in shared}) for c in (a, b))
        draw_pp_axes(axes, pp_trace(own, other, tau_s=request.tau_s), color=cast.looks[a.policy].color)
        interval = score.macro.percentile
        between = f' [{interval.low:.2f}, {interval.high:.2f}]' if interval else ''
        axes.set(xlabel=f'F {b.policy}', ylabel=f'F {a.policy}')
        axes.set_title(f'AUC {score.value:.2f}{between}')
    return figure


def draw_rmst_grid(request: FigureRequest) -> Figure:
    """Restricted mean time-to-success of every policy in every stratum, with 95 % intervals."""
    cast = cast_of(request)
    figure = new_figure(max(COLUMN_WIDTH_IN, 1.1 * len(cast.strata) + 1.6), 2.8)
    axes = figure.subplots()
    rng = np.random.default_rng(request.seed)
    width = 0.7 / max(len(cast.everyone) - 1, 1)
    for k, cohort in enumerate(cast.everyone):
        score = score_cohort(cohort, scale=Scale(tau_s=request.tau_s), n_resamples=request.n_resamples, rng=rng)
        look = cast.looks[cohort.policy]
        for position, stratum in enumerate(cast.strata):
            if stratum not in score.cells:
                continue
            found = score.cells[stratum]['rmst_s']
            if found.value is None:
                continue
            low, high = found.percentile or (found.value, found.value)
            reach = [[max(0.0, found.value - low)], [max(0.0, high - found.value)]]
            axes.errorbar(
                position - 0.35 + k * width, found.value, reach,
                marker=look.marker, markersize=3.5, capsize=2, color=look.color, linewidth=1, linestyle='',
                label=cohort.policy,
            )  # fmt: skip
    turned = max(map(len, cast.strata)) * len(cast.strata) > 11 * figure.get_figwidth() / font_scale()
    turn: dict[str, Any] = {'rotation': 30, 'ha': 'right', 'rotation_mode': 'anchor'} if turned else {}
    axes.set_xticks(range(len(cast.strata)), cast.strata, **turn)
    axes.set(ylabel=f'RMST({request.tau_s:g} s) (s)', xlim=(-0.6, len(cast.strata) - 0.4))
    axes.set_ylim(bottom=0)
    add_legend(figure, *legend_entries([axes]))
    return figure
