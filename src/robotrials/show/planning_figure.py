"""Pictures of planning: detection rates and power against N, a trial as it was watched (PhAIL, Figures 1b, 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from robotrials.errors import InputError
from robotrials.show.figure import THING_PALETTE, add_legend, label_outer, new_panels
from robotrials.show.figure_catalog import FigureRequest
from robotrials.show.planning import metric_name
from robotrials.show.timing_figure import whole_strata
from robotrials.verdict.analysis import present
from robotrials.verdict.analysis.planning import DETECTION_TRIALS, POWER_SIZES
from robotrials.verdict.planning import ArmPair, BridgePower, DetectionStudy, WatchedTrial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TARGET = 0.8
RULE_COLOR = '#404040'  # a curve about a pair belongs to neither policy
KS_COLOR = '#C00000'


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    return new_panels(count, most=3, panel_in=(1.75, 1.9), extra_in=0.4, sharey=True)


def pairs_shown(request: FigureRequest, name: str) -> list[tuple[str, str]]:
    """Pairs of the policies shown; the others are neither drawn nor asked about."""
    whole_strata(request, name)
    shown = request.shown(present(request.analysis.frame).policies)
    pairs = [(a, b) for a, b in request.analysis.planning.pairs() if a in shown and b in shown]
    if not pairs:
        raise InputError(f'{name} needs two policies besides the reference')
    return pairs


def requested_study(request: FigureRequest, name: str = 'detection') -> DetectionStudy:
    """The detection study of the pairs shown; each pair's rates are its own, whoever else is shown."""
    pairs = pairs_shown(request, name)
    trials = min(DETECTION_TRIALS, request.analysis.plan.resamples)
    study = request.analysis.planning.detection(n_trials=trials)
    return replace(study, rows=tuple(r for r in study.rows if (r.policy_a, r.policy_b) in pairs))


def requested_powers(request: FigureRequest, name: str = 'power') -> dict[tuple[str, str], BridgePower]:
    """Power of every pair shown."""
    planning = request.analysis.planning
    return {(a, b): planning.power(a, b, per_cell=POWER_SIZES) for a, b in pairs_shown(request, name)}


def draw_detection(request: FigureRequest) -> Figure:
    """Detection rate of every test against episodes per cell, for every pair, by subsampling the store."""
    return draw_detection_study(requested_study(request))


def draw_detection_study(study: DetectionStudy, *, target: float = TARGET) -> Figure:
    """One panel per pair, one line per test with Monte-Carlo intervals, and a pale one of its matched null."""
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
            axes.plot(
                [r.per_cell for r in rows], [r.null_rate for r in rows], color=colors[metric], linestyle=dashes[metric],
                linewidth=0.7, alpha=0.45,
            )  # fmt: skip
        _finish(axes, title=f'{pair[0]} vs. {pair[1]}', target=target)
    label_outer(panels, x='episodes per cell N', y='detection rate')
    add_legend(figure, *panels[0].get_legend_handles_labels())
    return figure


def _finish(axes: Axes, *, title: str, target: float) -> None:
    axes.axhline(target, color='0.5', linewidth=0.8, linestyle='--')
    axes.set(ylim=(-0.02, 1.04))
    axes.set_xlim(left=0)
    axes.set_title(title)


def draw_power(request: FigureRequest) -> Figure:
    """Power of the macro-KS test against episodes per cell, by the bridge model; the N for 0.8 and its interval."""
    return draw_power_curves(requested_powers(request))


def draw_power_curves(found: Mapping[tuple[str, str], BridgePower]) -> Figure:
    """One panel per pair; the bar under the curve is the interval of the N that is needed."""
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
    label_outer(panels, x='episodes per cell N', y='power')
    return figure


def watched_pairs(request: FigureRequest) -> tuple[WatchedTrial, list[ArmPair]]:
    """The trial as watched, and the pairs of policies shown."""
    found = request.analysis.planning.watched()
    shown = request.shown(found.n_episodes)
    return found, [p for p in found.arms.pairs if p.a in shown and p.b in shown]


def draw_sequential(request: FigureRequest) -> Figure:
    """The confidence sequence of every pair's difference in episode success, look after look, and where it decided."""
    whole_strata(request, 'sequential')
    _, pairs = watched_pairs(request)
    if not pairs:
        raise InputError('sequential needs two policies besides the reference')
    figure, panels = _panels(len(pairs))
    for axes, pair in zip(panels, pairs, strict=True):
        _draw_looks(axes, pair)
    label_outer(panels, x='episodes each', y='a - b')
    return figure


def _draw_looks(axes: Axes, pair: ArmPair) -> None:
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
