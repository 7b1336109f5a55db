"""Figures of robustness: success by condition, drops as a forest, doses, starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from robotrials.show.figure import (
    PAGE_WIDTH_IN,
    PolicyLook,
    add_legend,
    fold,
    label_outer,
    legend_entries,
    new_figure,
    new_panels,
    policy_looks,
)
from robotrials.show.figure_mark import Behind, lead_to, these_episodes
from robotrials.stats import Interval
from robotrials.verdict.robustness import ConditionDrop, ConditionRow, DoseResponse, StartTrial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Looks = Mapping[str, PolicyLook]


def drop_figure(
    drops: Sequence[ConditionDrop], *, alpha: float = 0.05, looks: Looks | None = None, behind: Behind | None = None
) -> Figure:
    """One line a condition, one mark a policy: the drop of success with its interval; filled where it is resolved."""
    conditions = list(dict.fromkeys(d.condition for d in drops))
    shown = _shown((d.policy for d in drops), looks)
    figure = new_figure(PAGE_WIDTH_IN, 1.1 + len(conditions) * (0.16 + 0.13 * len(shown)), is_rows=True)
    axes = figure.add_subplot()
    step = 0.7 / max(len(shown), 1)
    for k, (policy, look) in enumerate(shown.items()):
        for d in (d for d in drops if d.policy == policy):
            y = conditions.index(d.condition) + (k - (len(shown) - 1) / 2) * step
            span = d.success_interval or Interval(d.success_drop, d.success_drop)
            axes.plot(list(span), [y, y], color=look.color, lw=1.4, solid_capstyle='butt')
            face = look.color if d.is_resolved(alpha) else 'white'
            axes.plot(d.success_drop, y, marker=look.marker, color=look.color, markerfacecolor=face, ms=4.5)
            if behind is not None:
                words = f'{policy} under {d.condition}: {d.successes} of {d.n}, before {d.baseline_successes} of '
                ends = (min(span), max(span))
                lead_to(axes, ends, (y - step / 2, y + step / 2), behind(policy, d.condition, None),
                        f'{words}{d.baseline_n}')  # fmt: skip
        axes.plot([], [], marker=look.marker, color=look.color, ms=4.5, linestyle='', label=policy)
    axes.axvline(0, color='0.6', lw=0.8, zorder=0)
    axes.set_yticks(range(len(conditions)), conditions)
    axes.set_ylim(len(conditions) - 0.5, -0.5)
    said = 'drop of the success rate from the baseline (95 % interval; filled: resolved after Holm)'
    axes.set_xlabel(fold(said, 0.65 * figure.get_figwidth()))
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure


def success_figure(rows: Sequence[ConditionRow], *, looks: Looks | None = None, behind: Behind | None = None) -> Figure:
    """Success rate of every policy under every condition with Wilson intervals, one line a condition."""
    conditions = list(dict.fromkeys(r.condition for r in rows))
    shown = _shown((r.policy for r in rows), looks)
    figure = new_figure(PAGE_WIDTH_IN * 0.75, 0.9 + len(conditions) * (0.14 + 0.1 * len(shown)), is_rows=True)
    axes = figure.add_subplot()
    step = 0.7 / max(len(shown), 1)
    for k, (policy, look) in enumerate(shown.items()):
        for row in (r for r in rows if r.policy == policy):
            y = conditions.index(row.condition) + (k - (len(shown) - 1) / 2) * step
            found = row.summary
            ends = [100 * end for end in found.success_interval]
            axes.plot(ends, [y, y], color=look.color, lw=1.2, solid_capstyle='butt')
            axes.plot(100 * found.successes / found.n, y, marker=look.marker, color=look.color, ms=4)
            if behind is not None:
                words = f'{policy} under {row.condition}: {found.successes} of {found.n}'
                lead_to(
                    axes, (ends[0], ends[1]), (y - step / 2, y + step / 2), behind(policy, row.condition, None), words
                )
        axes.plot([], [], marker=look.marker, color=look.color, ms=4, linestyle='', label=policy)
    axes.set_yticks(range(len(conditions)), conditions)
    axes.set_ylim(len(conditions) - 0.5, -0.5)
    axes.set(xlim=(-2, 102), xlabel='success, %')
    axes.grid(axis='x', color='0.9', linewidth=0.6)
    axes.set_axisbelow(True)
    add_legend(figure, *axes.get_legend_handles_labels())
    return figure


def dose_figure(
    responses: Sequence[DoseResponse], *, looks: Looks | None = None, behind: Behind | None = None
) -> Figure:
    """A panel a condition: success rate with Wilson intervals against severity."""
    conditions = list(dict.fromkeys(r.condition for r in responses))
    shown = _shown((r.policy for r in responses), looks)
    figure, panels = new_panels(
        len(conditions), most=3, panel_in=(1.75, 1.8), extra_in=0.6, sharex=True, sharey=True
    )  # fmt: skip
    for panel, condition in zip(panels, conditions, strict=True):
        panel.set_title(condition)
        for k, (policy, look) in enumerate(shown.items()):
            for r in (r for r in responses if r.condition == condition and r.policy == policy):
                x = [d.severity + 0.008 * (k - (len(shown) - 1) / 2) for d in r.doses]
                y = [d.rate for d in r.doses]
                ends = [[d.rate - d.interval.low for d in r.doses], [d.interval.high - d.rate for d in r.doses]]
                panel.errorbar(
                    x, y, yerr=ends, color=look.color, linestyle=look.dash, marker=look.marker, ms=3, lw=1.2,
                    elinewidth=0.8, label=policy,
                )  # fmt: skip
                for at, d in zip(x, r.doses, strict=True):
                    if behind is not None:
                        words = f'{policy} under {condition} at {d.severity:g}: {d.successes} of {d.n}'
                        lead_to(panel, at, d.rate, behind(policy, condition, d.severity), words)
        panel.set_ylim(-0.03, 1.03)
    label_outer(panels, x='severity', y='success rate')
    add_legend(figure, *legend_entries(panels))
    return figure


def start_figure(trials: Sequence[StartTrial], *, looks: Looks | None = None) -> Figure:
    """Where each policy's episodes started, and which succeeded."""
    shown = _shown((t.policy for t in trials), looks)
    figure, panels = new_panels(
        len(shown), most=4, panel_in=(1.6, 1.9), extra_in=0.4, is_square=True, sharex=True, sharey=True
    )  # fmt: skip
    for panel, (policy, look) in zip(panels, shown.items(), strict=True):
        for good, marker in ((True, 'o'), (False, 'x')):
            cell = [t for t in trials if t.policy == policy and t.success is good]
            panel.plot(
                [100 * t.x_m for t in cell], [100 * t.y_m for t in cell], marker, color=look.color, ms=4, alpha=0.8
            )
            for t in (t for t in cell if t.episode_id):
                words = f'{policy}: {"success" if good else "failure"} from {100 * t.x_m:.1f}, {100 * t.y_m:.1f} cm'
                lead_to(panel, 100 * t.x_m, 100 * t.y_m, these_episodes([t]), words)
        panel.set_title(policy)
        panel.set_aspect('equal')
    label_outer(panels, x='x, cm', y='y, cm')
    marks = [panels[0].plot([], [], marker, color='0.4', ms=4)[0] for marker in ('o', 'x')]
    add_legend(figure, marks, ['success', 'failure'])
    return figure


def _shown(policies: Iterable[str], looks: Looks | None) -> dict[str, PolicyLook]:
    """The policies that are drawn, in order, each as the whole store has it."""
    names = sorted(set(policies))
    known = looks or policy_looks(names)
    return {name: known[name] for name in names}
