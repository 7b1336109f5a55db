"""Figures of robustness: drops as a forest, and success against severity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trialist.robustness import DoseResponse, Drop, StartTrial
from trialist.show.figure import PAGE_WIDTH_IN, new_figure, policy_colors

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
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc='outside right upper')
    return figure


def start_figure(trials: Sequence[StartTrial]) -> Figure:
    """Where each policy's episodes started, and which succeeded."""
    policies = list(dict.fromkeys(t.policy for t in trials))
    colors = policy_colors(policies)
    figure = new_figure(PAGE_WIDTH_IN, 2.6)
    panels = figure.subplots(1, max(len(policies), 1), sharex=True, sharey=True, squeeze=False)
    for panel, policy in zip(panels.flat, policies, strict=True):
        for good, marker in ((True, 'o'), (False, 'x')):
            rows = [t for t in trials if t.policy == policy and t.success is good]
            panel.plot(
                [100 * t.x_m for t in rows], [100 * t.y_m for t in rows], marker, color=colors[policy], ms=4,
                label='success' if good else 'failure', alpha=0.8,
            )  # fmt: skip
        panel.set_title(policy, fontsize=8)
        panel.set_aspect('equal')
        panel.set_xlabel('x, cm')
    panels.flat[0].set_ylabel('y, cm')
    panels.flat[-1].legend(loc='center left', bbox_to_anchor=(1.0, 0.5))
    return figure
