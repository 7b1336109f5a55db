"""Figures of robustness: drops as a forest, success against severity, and where episodes started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from trialist.episodes import read_store
from trialist.errors import NotEstimable
from trialist.robustness import (
    DoseResponse,
    Drop,
    StartTrial,
    condition_trials,
    dose_responses,
    drops_from_baseline,
    start_trial,
)
from trialist.show.figure import PAGE_WIDTH_IN, new_figure, policy_colors
from trialist.show.figure_catalog import FigureRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def drop_figure(drops: Sequence[Drop], *, alpha: float = 0.05) -> Figure:
    """One line a condition, one mark a policy: the drop of success with its interval; filled where it is resolved."""
    conditions = list(dict.fromkeys(d.condition for d in drops))
    colors = policy_colors(d.policy for d in drops)
    figure = new_figure(PAGE_WIDTH_IN, 0.9 + len(conditions) * (0.16 + 0.13 * len(colors)))
    axes = figure.add_subplot()
    step = 0.7 / max(len(colors), 1)
    for k, (policy, color) in enumerate(colors.items()):
        for d in (d for d in drops if d.policy == policy):
            y = conditions.index(d.condition) + (k - (len(colors) - 1) / 2) * step
            axes.plot(list(d.success_interval), [y, y], color=color, lw=1.4, solid_capstyle='butt')
            face = color if d.is_resolved(alpha) else 'white'
            axes.plot(d.success_drop, y, 'o', color=color, markerfacecolor=face, ms=4.5)
        axes.plot([], [], 'o', color=color, ms=4.5, label=policy)
    axes.axvline(0, color='0.6', lw=0.8, zorder=0)
    axes.set_yticks(range(len(conditions)), conditions)
    axes.set_ylim(len(conditions) - 0.5, -0.5)
    axes.set_xlabel('drop of the success rate from the baseline (95 % interval; filled: resolved after Holm)')
    axes.legend(loc='center left', bbox_to_anchor=(1.0, 0.5))
    return figure


def dose_figure(responses: Sequence[DoseResponse]) -> Figure:
    """A panel a condition: success rate with Wilson intervals against severity."""
    conditions = list(dict.fromkeys(r.condition for r in responses))
    colors = policy_colors(r.policy for r in responses)
    columns = min(3, max(1, len(conditions)))
    rows = -(-len(conditions) // columns)
    figure = new_figure(PAGE_WIDTH_IN, 0.5 + 1.9 * max(rows, 1))
    panels = figure.subplots(max(rows, 1), columns, sharex=True, sharey=True, squeeze=False)
    for panel, condition in zip(panels.flat, [*conditions, *[''] * (panels.size - len(conditions))], strict=True):
        if not condition:
            panel.set_visible(False)
            continue
        panel.set_title(condition, fontsize=8)
        for k, (policy, color) in enumerate(colors.items()):
            for r in (r for r in responses if r.condition == condition and r.policy == policy):
                x = [d.severity + 0.008 * (k - (len(colors) - 1) / 2) for d in r.doses]
                y = [d.rate for d in r.doses]
                ends = [[d.rate - d.interval.low for d in r.doses], [d.interval.high - d.rate for d in r.doses]]
                panel.errorbar(x, y, yerr=ends, color=color, marker='o', ms=3, lw=1.2, elinewidth=0.8, label=policy)
        panel.set_ylim(-0.03, 1.03)
    figure.supxlabel('severity', fontsize=8)
    figure.supylabel('success rate', fontsize=8)
    handles = [panels.flat[0].plot([], [], 'o-', color=c, ms=3, lw=1.2, label=p)[0] for p, c in colors.items()]
    figure.legend(handles=handles, loc='outside right upper')
    return figure


def start_figure(trials: Sequence[StartTrial]) -> Figure:
    """Where each policy's episodes started, and which succeeded."""
    policies = list(dict.fromkeys(t.policy for t in trials))
    colors = policy_colors(policies)
    columns = min(3, max(1, len(policies)))
    rows = -(-max(len(policies), 1) // columns)
    figure = new_figure(PAGE_WIDTH_IN, 0.5 + 2.2 * rows)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for panel in panels.flat[len(policies) :]:
        panel.set_visible(False)
    for panel, policy in zip(panels.flat, policies, strict=False):
        for good, marker in ((True, 'o'), (False, 'x')):
            cell = [t for t in trials if t.policy == policy and t.success is good]
            panel.plot(
                [100 * t.x_m for t in cell], [100 * t.y_m for t in cell], marker, color=colors[policy], ms=4, alpha=0.8
            )
        n_good = sum(t.success for t in trials if t.policy == policy)
        panel.set_title(f'{policy}, {n_good}/{sum(t.policy == policy for t in trials)}', fontsize=8)
        panel.set_aspect('equal')
    handles = [
        panels.flat[0].plot([], [], mark, color='0.35', ms=4, label=name)[0]
        for mark, name in (('o', 'success'), ('x', 'failure'))
    ]
    figure.legend(handles=handles, loc='outside right upper')
    figure.supxlabel('x of the object at the start, cm', fontsize=8)
    figure.supylabel('y, cm', fontsize=8)
    return figure


def draw_robustness_drops(request: FigureRequest) -> Figure:
    """What each condition costs each policy, against the nominal one, with intervals."""
    trials = condition_trials(request.chosen())
    rng = np.random.default_rng(request.seed)
    return drop_figure(drops_from_baseline(trials, n_resamples=request.n_resamples, rng=rng))


def draw_robustness_doses(request: FigureRequest) -> Figure:
    """Success against severity, for every condition that was run at two severities or more."""
    responses = dose_responses(condition_trials(request.chosen()))
    if not responses:
        raise NotEstimable('no condition was run at two severities; a dose-response needs a ladder')
    return dose_figure(responses)


def draw_robustness_starts(request: FigureRequest) -> Figure:
    """Where the object stood at the start of each episode, and which episodes succeeded."""
    store = read_store(request.store) if request.store is not None else None
    told = [e for e in request.chosen() if e.is_valid and not e.is_reference and e.condition in ('nominal', 'layout')]
    trials = [t for e in told if (t := start_trial(e, store.trajectory(e) if store is not None else None)) is not None]
    if not trials:
        raise NotEstimable('no episode tells where its object stood: no labels start_x_m and start_y_m, no trajectory')
    return start_figure(trials)
