"""Pictures of planning: detection rates and power against N, a trial as it was watched (PhAIL, Figures 1b, 3)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from trialist.errors import InputError
from trialist.planning import BridgePower, DetectionStudy, bridge_power, detection_rate, watch_trial
from trialist.show.figure import THING_PALETTE, add_legend, label_outer, new_panels
from trialist.show.figure_catalog import FigureRequest
from trialist.show.planning import metric_name
from trialist.show.timing_figure import cast_of
from trialist.timing import Cohort

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TARGET = 0.8
DETECTION_TRIALS = 300
DETECTION_RESAMPLES = 200
RULE_COLOR = '#404040'  # a curve about a pair belongs to neither policy
KS_COLOR = '#C00000'


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    return new_panels(count, most=3, panel_in=(1.75, 1.9), extra_in=0.4, sharey=True)


def _models(request: FigureRequest, figure: str) -> list[tuple[Cohort, Cohort]]:
    pairs = list(itertools.combinations(cast_of(request).models, 2))
    if not pairs:
        raise InputError(f'{figure} needs two policies besides the reference')
    return pairs


def draw_detection(request: FigureRequest) -> Figure:
    """Detection rate of every test against episodes a cell, for every pair, by subsampling the store."""
    cast = cast_of(request)
    _models(request, 'detection')
    study = detection_rate(
        {c.policy: {s: c.cells[s] for s in cast.strata if s in c.cells} for c in cast.models},
        rng=np.random.default_rng(request.seed), tau_s=request.tau_s,
        n_trials=min(DETECTION_TRIALS, request.n_resamples), n_resamples=DETECTION_RESAMPLES, missing='drop',
    )  # fmt: skip
    return draw_detection_study(study)


def draw_detection_study(study: DetectionStudy, *, target: float = TARGET) -> Figure:
    """One panel a pair, one line a test, with Monte-Carlo intervals."""
    figure, panels = _panels(len(study.pairs))
    colors = dict(zip(study.metrics, (KS_COLOR, *(c for c in THING_PALETTE if c != '#CC6677')), strict=False))
    dashes = dict(zip(study.metrics, ('-', '--', '-.', ':') * len(study.metrics), strict=False))
    for axes, pair in zip(panels, study.pairs, strict=True):
        for metric in study.metrics:
            rows = [r for r in study.rows if (r.policy_a, r.policy_b) == pair and r.metric == metric]
            rates = [r.rate for r in rows]
            spans = [
                [max(0.0, r.rate - r.interval.low) for r in rows],
                [max(0.0, r.interval.high - r.rate) for r in rows],
            ]
            axes.errorbar(
                [r.per_cell for r in rows], rates, spans, color=colors[metric], linestyle=dashes[metric],
                label=metric_name(metric), marker='o', markersize=2.5,
                linewidth=1.6 if metric == 'ks' else 1.0, capsize=1.5, elinewidth=0.6,
            )  # fmt: skip
        _finish(axes, title=f'{pair[0]} vs. {pair[1]}', target=target)
    label_outer(panels, x='episodes a cell N', y='detection rate')
    add_legend(figure, *panels[0].get_legend_handles_labels())
    return figure


def _finish(axes: Axes, *, title: str, target: float) -> None:
    axes.axhline(target, color='0.5', linewidth=0.8, linestyle='--')
    axes.set(ylim=(-0.02, 1.04))
    axes.set_xlim(left=0)
    axes.set_title(title)


def draw_power(request: FigureRequest) -> Figure:
    """Power of the macro-KS test against episodes a cell, by the bridge model, with the N for 0.8 and its interval."""
    rng = np.random.default_rng(request.seed)
    cast = cast_of(request)
    found = {}
    for a, b in _models(request, 'power'):
        shared = [s for s in cast.strata if s in a.cells and s in b.cells]
        found[a.policy, b.policy] = bridge_power(
            {s: a.cells[s] for s in shared}, {s: b.cells[s] for s in shared}, rng=rng, tau_s=request.tau_s,
            per_cell=[5, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100],
        )  # fmt: skip
    return draw_power_curves(found)


def draw_power_curves(found: Mapping[tuple[str, str], BridgePower]) -> Figure:
    """One panel a pair; the bar under the curve is the interval of the N that is needed."""
    figure, panels = _panels(len(found))
    for axes, (names, power) in zip(panels, found.items(), strict=True):
        axes.plot(power.per_cell, power.power, color=RULE_COLOR, marker='o', markersize=2.5, linewidth=1.3)
        needed = power.needed
        right = float(power.per_cell.max()) * 1.05
        if needed.interval is not None and needed.interval.low < right:
            high = min(needed.interval.high, right)
            axes.plot([needed.interval.low, high], [0.03, 0.03], color='0.4', linewidth=3, solid_capstyle='butt')
            if needed.interval.high > right:
                axes.plot([right], [0.03], color='0.4', marker='>', markersize=4, clip_on=False)
        if needed.n < right:
            axes.plot([needed.n, needed.n], [0.0, needed.power], color='0.4', linewidth=0.8, linestyle=':')
        said = '∞' if math.isinf(needed.n) else f'{needed.n:.0f}'
        axes.set_xlim(right=right)
        _finish(axes, title=f'{names[0]} vs. {names[1]}\nN = {said}', target=needed.power)
    label_outer(panels, x='episodes a cell N', y='power')
    return figure


def draw_sequential(request: FigureRequest) -> Figure:
    """The confidence sequence of every pair's difference in success rate, look after look, and where it decided."""
    cast = cast_of(request)
    chosen = {c.policy for c in cast.models}
    found = watch_trial([e for e in request.episodes if e.policy in chosen])
    figure, panels = _panels(len(found.arms.pairs))
    for axes, pair in zip(panels, found.arms.pairs, strict=True):
        looks = pair.comparison.looks
        at = [k.n_a for k in looks]
        low, high = [k.interval.low for k in looks], [k.interval.high for k in looks]
        axes.fill_between(at, low, high, step='post', color=RULE_COLOR, alpha=0.18, linewidth=0)
        axes.step(at, [k.difference for k in looks], where='post', color=RULE_COLOR, linewidth=1.2)
        axes.axhline(0, color='0.5', linewidth=0.8, linestyle='--')
        stopped = pair.comparison.stopped_at
        if stopped is not None:
            axes.axvline(stopped.n_a, color=KS_COLOR, linewidth=1.0)
            is_late = stopped.n_a > 0.5 * max(at)
            axes.annotate(
                stopped.decision.value.replace('_', ' '), (stopped.n_a, 0.98), fontsize='small', color=KS_COLOR,
                xytext=(-2 if is_late else 2, 0), textcoords='offset points', ha='right' if is_late else 'left',
                va='top',
            )  # fmt: skip
        axes.set(ylim=(-1, 1.05))
        axes.set_title(f'a {pair.a}, b {pair.b}')
    label_outer(panels, x='episodes each', y='a - b')
    return figure
