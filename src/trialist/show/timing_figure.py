"""Pictures of time-to-success: curves with bands, P-P plots, restricted means (PhAIL, Figures 1, 2, 6, 7)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trialist.errors import InputError, UnknownName
from trialist.show.figure import COLUMN_WIDTH_IN, PAGE_WIDTH_IN, new_figure, policy_colors
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
    """Who is in the picture: the reference if there is one, the models, the strata, and everyone's colour."""

    reference: Cohort | None
    models: tuple[Cohort, ...]
    strata: tuple[str, ...]
    colors: Mapping[str, str]

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
    return Cast(reference, models, strata, policy_colors(found, reference=reference.policy if reference else None))


def draw_cdf(request: FigureRequest) -> Figure:
    """Success curves of all policies, averaged over strata, with 95 % bands and numbers at risk."""
    cast = cast_of(request)
    figure = new_figure(PAGE_WIDTH_IN * 0.75, 3.1 + 0.14 * len(cast.everyone))
    axes, table = figure.subplots(2, 1, height_ratios=[1, 0.055 * (len(cast.everyone) + 1)])
    ticks = np.linspace(0, request.tau_s, 9)
    rng = np.random.default_rng(request.seed)
    for cohort in cast.everyone:
        curve = macro_curve(cast.cells(cohort))
        cells = {s: cohort.cells[s] for s in cast.strata if s in cohort.cells}
        grid = np.linspace(0, request.tau_s, 241)
        band = macro_band(cells, kind='bootstrap', rng=rng, n_resamples=request.n_resamples, grid_s=grid)
        color = cast.colors[cohort.policy]
        axes.fill_between(grid, band.low, band.high, step='post', color=color, alpha=0.15, linewidth=0)
        draw_steps(axes, curve, request.tau_s, color=color, label=cohort.policy)
    axes.set(xlim=(0, request.tau_s), ylim=(0, 1.02), xlabel='time to success T (s)', ylabel='F(t) = P(T ≤ t)')
    axes.set_xticks(ticks)
    axes.legend(loc='lower right', bbox_to_anchor=(1.0, 0.02), fontsize=7)
    draw_at_risk(table, cast, ticks)
    return figure


def draw_steps(axes: Axes, curve: SuccessCurve, tau_s: float, *, color: str, label: str | None = None) -> None:
    """One curve as steps from (0, 0) to tau_s."""
    inside = curve.times_s <= tau_s
    times = np.concatenate([[0.0], curve.times_s[inside], [tau_s]])
    chance = np.concatenate([[0.0], curve.chance[inside], [float(curve.at(tau_s))]])
    axes.step(times, chance, where='post', color=color, linewidth=1.3, label=label)


def draw_at_risk(axes: Axes, cast: Cast, ticks: np.ndarray) -> None:
    """Operations still unfinished at each tick, one row a policy, aligned with the axis above."""
    axes.set(xlim=(0, ticks[-1]), ylim=(-len(cast.everyone) + 0.4, 1.2))
    axes.axis('off')
    axes.text(-0.06, 0.95, 'at risk', transform=axes.get_yaxis_transform(), ha='right', va='center', fontsize=6.5)
    for row, cohort in enumerate(cast.everyone):
        counts = np.sum([c.at_risk_at(ticks) for c in cast.cells(cohort).values()], axis=0)
        color = cast.colors[cohort.policy]
        axes.text(
            -0.06, -row, cohort.policy, transform=axes.get_yaxis_transform(), ha='right', va='center', fontsize=6.5,
            color=color,
        )  # fmt: skip
        for tick, count in zip(ticks, counts, strict=True):
            axes.text(tick, -row, f'{count:.0f}', ha='center', va='center', fontsize=6.5, color=color)


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
    figure = new_figure(PAGE_WIDTH_IN * 0.85, 2.9)
    left, right = figure.subplots(1, 2)
    for cohort, curve in zip((model, reference), curves, strict=True):
        draw_steps(left, curve, request.tau_s, color=cast.colors[cohort.policy], label=cohort.policy)
    left.set(xlim=(0, request.tau_s), ylim=(0, 1.02), xlabel='time to success T (s)', ylabel='F(t)', title=stratum)
    left.legend(loc='lower right')
    trace = pp_trace(curves[0], curves[1], tau_s=request.tau_s)
    draw_pp_axes(right, trace, color=cast.colors[model.policy])
    right.set(xlabel=f'F {reference.policy}', ylabel=f'F {model.policy}')
    right.set_title(f'AUC {trace.auc:.3f}, KS {trace.ks:.3f}')
    return figure


def draw_pp_axes(axes: Axes, trace: PPTrace, *, color: str) -> None:
    """The P-P curve, its shaded area, the diagonal, and the perpendicular of length KS / sqrt 2."""
    axes.plot([0, 1], [0, 1], color='0.6', linewidth=0.8, linestyle='--')
    axes.fill_between(trace.reference, 0, trace.model, color=color, alpha=0.12, linewidth=0)
    axes.plot(trace.reference, trace.model, color=color, linewidth=1.3)
    x, y = trace.ks_point
    middle = (x + y) / 2
    axes.plot([x, middle], [y, middle], color='#C00000', linewidth=1.6)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect='equal')


def draw_pairwise_pp(request: FigureRequest) -> Figure:
    """P-P plots of every pair of policies, averaged over strata, with macro-AUC and its interval."""
    cast = cast_of(request)
    pairs = list(itertools.combinations(cast.models, 2))
    if not pairs:
        raise InputError('pairwise-pp needs two policies besides the reference')
    columns = min(3, len(pairs))
    rows = -(-len(pairs) // columns)
    figure = new_figure(PAGE_WIDTH_IN * columns / 3, 2.5 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    rng = np.random.default_rng(request.seed)
    for axes, (a, b) in zip(grid, pairs, strict=False):
        shared = [s for s in cast.strata if s in a.cells and s in b.cells]
        if not shared:
            raise InputError(f'{a.policy} and {b.policy} share no stratum; leave one of them out with --policy')
        score = auc(
            {s: a.cells[s] for s in shared}, {s: b.cells[s] for s in shared}, tau_s=request.tau_s, rng=rng,
            n_resamples=request.n_resamples,
        )  # fmt: skip
        own, other = (macro_curve({s: cast.cells(c)[s] for s in shared}) for c in (a, b))
        draw_pp_axes(axes, pp_trace(own, other, tau_s=request.tau_s), color=cast.colors[a.policy])
        interval = score.macro.percentile
        between = f' [{interval.low:.2f}, {interval.high:.2f}]' if interval else ''
        axes.set(xlabel=f'F {b.policy}', ylabel=f'F {a.policy}')
        axes.set_title(f'macro-AUC {score.value:.2f}{between}', fontsize=8)
    for axes in grid[len(pairs) :]:
        axes.axis('off')
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
        for position, stratum in enumerate(cast.strata):
            if stratum not in score.cells:
                continue
            found = score.cells[stratum]['rmst_s']
            if found.value is None:
                continue
            low, high = found.percentile or (found.value, found.value)
            axes.errorbar(
                position - 0.35 + k * width, found.value, [[found.value - low], [high - found.value]], fmt='o',
                markersize=3.5, capsize=2, color=cast.colors[cohort.policy], linewidth=1,
                label=cohort.policy if position == 0 else None,
            )  # fmt: skip
    axes.set_xticks(range(len(cast.strata)), cast.strata)
    axes.set(ylabel=f'RMST({request.tau_s:g} s) (s)', xlim=(-0.6, len(cast.strata) - 0.4))
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7, loc='upper center', bbox_to_anchor=(0.5, -0.1), ncols=min(5, len(cast.everyone)))
    return figure
