"""Tables of robustness: RADAR's layouts, drops with intervals, doses, compounds, swap tests, spatial sensitivity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from robotrials.errors import NotEstimable
from robotrials.show.document import EpisodeFilter
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
from robotrials.show.request import ShowRequest, apart
from robotrials.show.table import Cell, Column, Table, table
from robotrials.stats import Estimate, Interval
from robotrials.verdict.analysis import Analysis, RobustnessPart, present
from robotrials.verdict.robustness import (
    CompoundEffect,
    ConditionDrop,
    ConditionRow,
    DoseResponse,
    SpatialSensitivity,
    StartSpread,
    StartTrial,
    SwapResult,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


UNSEEN = (
    'IoU and e_trans of a split are means over its successes, a dash where there are none; E(IoU) is the mean over '
    'splits of SR x IoU, a failure counting as zero; lengths in centimetres'
)


def split_table(rows: Sequence[ConditionRow], *, by: str = 'condition', title: str = '') -> Table:
    """The layout of Tables 1 to 3: one line per policy (`by='policy'`) or condition, three columns per split."""
    splits = list(dict.fromkeys(s.split for row in rows for s in row.summary.splits))
    columns: list[str | Column] = ['policy', 'condition'] if by == 'both' else [by]
    for name in splits:
        columns += [f'{name} SR', Column(f'{name} IoU', '.4f'), Column(f'{name} e_trans', '.2f')]
    columns += ['total SR', Column('E(IoU)', '.4f')]
    lines = []
    for row in rows:
        by_split = {s.split: s for s in row.summary.splits}
        line: list[Cell] = [row.policy, row.condition] if by == 'both' else [getattr(row, by)]
        for name in splits:
            split = by_split.get(name)
            error = split.translation_error_of_successes_m if split else None
            line += [
                f'{split.successes}/{split.n}' if split else None,
                split.iou_of_successes.value if split and split.iou_of_successes else None,
                None if error is None or error.value is None else 100 * error.value,
            ]
        expected = row.summary.expected_iou_over_splits
        lines.append([*line, f'{row.summary.successes}/{row.summary.n}', expected.value if expected else None])
    return table(title or f'Placement by {"policy and condition" if by == "both" else by}', columns, lines, note=UNSEEN)


def estimate_table(rows: Sequence[ConditionRow]) -> Table:
    """Every estimate by its own name, with its interval."""
    columns: list[str | Column] = ['policy', 'condition', 'quantity', Column('value', '.4f'), Column('low', '.4f'),
                                   Column('high', '.4f')]  # fmt: skip
    lines: list[list[Cell]] = []
    for row in rows:
        s = row.summary
        lines.append([row.policy, row.condition, 'success rate', s.successes / s.n, *s.success_interval])
        named: list[tuple[str, Estimate | None, float]] = [
            ('E(IoU) over splits', s.expected_iou_over_splits, 1),
            ('E(IoU) over trials', s.expected_iou_over_trials, 1),
            ('mean IoU', s.mean_iou, 1),
            ('e_trans of successes, cm', s.translation_error_of_successes_m, 100),
            ('e_trans of all, cm', s.translation_error_of_all_m, 100),
            ('alignment angle of successes, degrees', s.alignment_angle_of_successes_rad, 180 / math.pi),
            ('alignment angle of all, degrees', s.alignment_angle_of_all_rad, 180 / math.pi),
        ]
        for split in s.splits:
            rate = Estimate(split.successes / split.n, split.success_interval)
            named += [
                (f'{split.split}: success rate', rate, 1),
                (f'{split.split}: IoU of successes', split.iou_of_successes, 1),
                (f'{split.split}: e_trans of successes, cm', split.translation_error_of_successes_m, 100),
                (f'{split.split}: e_trans of all, cm', split.translation_error_of_all_m, 100),
            ]
        for name, found, scale in named:
            if found is not None and found.value is not None:
                ends = (None, None) if found.interval is None else tuple(scale * end for end in found.interval)
                lines.append([row.policy, row.condition, name, scale * found.value, *ends])
    note = 'rates: Wilson; the rest: percentile bootstrap over scenes within splits; mean IoU is of all trials'
    return table('Estimates with 95 % intervals', columns, lines, note=note)


def drop_table(drops: Sequence[ConditionDrop], *, alpha: float = 0.05) -> Table:
    """Drops from the baseline: a positive number is a loss."""
    columns: list[str | Column] = [
        'policy', 'condition', 'baseline', 'altered', Column('drop', '+.3f'), Column('low', '+.3f'),
        Column('high', '+.3f'), Column('p', '.3g'), Column('p (Holm)', '.3g'), 'resolved', Column('IoU drop', '+.4f'),
        Column('IoU low', '+.4f'), Column('IoU high', '+.4f'), 'method',
    ]  # fmt: skip
    lines: list[list[Cell]] = []
    for d in drops:
        iou: list[Cell] = [d.iou_drop, *(d.iou_interval if d.iou_interval is not None else (None, None))]
        lines.append([
            d.policy, d.condition, f'{d.baseline_successes}/{d.baseline_n}', f'{d.successes}/{d.n}', d.success_drop,
            *(d.success_interval or (None, None)), d.p_value, d.p_value_holm, d.is_resolved(alpha), *iou, d.method,
        ])  # fmt: skip
    note = f'drop = baseline - altered, mean over tasks; resolved at {alpha:g} over all {len(drops)} comparisons'
    note += ''.join(f'; {d.policy}, {d.condition}: {d.note}' for d in drops if d.note)
    return table('Drops from the baseline', columns, lines, note=note)


def dose_table(responses: Sequence[DoseResponse]) -> Table:
    """One line a policy, condition and severity."""
    columns: list[str | Column] = [
        'policy', 'condition', 'severity', 'successes', Column('rate', '.3f'), Column('low', '.3f'),
        Column('high', '.3f'), Column('trend p', '.3g'), Column('half lost at', '.2f'),
    ]  # fmt: skip
    lines: list[list[Cell]] = [
        [r.policy, r.condition, d.severity, f'{d.successes}/{d.n}', d.rate, *d.interval, r.p_value, r.half_severity]
        for r in responses
        for d in r.doses
    ]
    return table('Dose-response', columns, lines, note='trend: Cochran and Armitage; severity 0 is the baseline')


def compound_table(effects: Sequence[CompoundEffect]) -> Table:
    """Is the compound worse than the sum of its parts?"""
    columns: list[str | Column] = [
        'policy', 'compound', 'severity', Column('baseline', '.3f'), Column('rate', '.3f'), Column('if added', '.3f'),
        Column('if multiplied', '.3f'), Column('excess drop', '+.3f'), Column('low', '+.3f'), Column('high', '+.3f'),
        Column('p (Holm)', '.3g'), 'verdict', 'because', 'of',
    ]  # fmt: skip
    lines: list[list[Cell]] = [
        [e.policy, e.compound, e.severity, e.baseline_rate, e.compound_rate, e.additive_rate, e.multiplicative_rate,
         e.excess_drop, *(e.interval or (None, None)), e.p_value_holm, e.verdict.value, e.reason,
         ', '.join(e.singles)]
        for e in effects
    ]  # fmt: skip
    note = (
        'excess drop = drop of the compound - sum of the drops of its parts alone at the same dose, on the scale of '
        'the success rate; at the floor nothing could be worse'
    )
    return table('Compound against single conditions', columns, lines, note=note)


def swap_table(results: Sequence[SwapResult]) -> Table:
    """Does the policy act on the instruction?"""
    columns: list[str | Column] = [
        'policy', 'scenes', 'followed', Column('low', '.3f'), Column('high', '.3f'), 'choice changed',
        Column('p', '.3g'), 'verdict', 'goes for', 'evidence',
    ]  # fmt: skip
    lines: list[list[Cell]] = [
        [r.policy, r.n_scenes, f'{r.followed}/{r.n}', *r.followed_interval, f'{r.changed}/{r.n_pairs}', r.p_value,
         r.verdict.value, ', '.join(r.named) or None,
         '; '.join(f'{h.habit.value} {h.count}/{h.n} (chance {h.chance:.2f})' for h in r.habits) or None]
        for r in results
    ]  # fmt: skip
    note = 'same scene, another instruction; habits are counted only where something else was asked for'
    return table('Swap test', columns, lines, note=note)


def start_table(found: Sequence[StartSpread]) -> Table:
    """What each change of start states amounts to, task by task."""
    columns: list[str | Column] = [
        'task', 'condition', 'n', Column('target (mm)', '.1f'), Column('baseline target (mm)', '.1f'),
        Column('arm (mm)', '.1f'), Column('baseline arm (mm)', '.1f'), 'target stays',
    ]  # fmt: skip
    lines: list[list[Cell]] = [
        [s.task, s.condition, s.n, s.target_mm, s.baseline_target_mm, s.arm_mm, s.baseline_arm_mm, s.target_stays]
        for s in found
    ]
    note = (
        'root mean square distance from the middle of the baseline starts; where the target stays, no drop says nothing'
    )
    return table('Start states', columns, lines, note=note)


def spatial_table(found: Sequence[SpatialSensitivity]) -> Table:
    """Does success depend on where the object started?"""
    columns: list[str | Column] = [
        'policy', 'n', Column('neighbours agree', '.3f'), Column('by luck', '.3f'), Column('p', '.3g'),
        Column('near', '.3f'), Column('far', '.3f'), Column('drop', '+.3f'), Column('low', '+.3f'),
        Column('high', '+.3f'), Column('p (distance)', '.3g'),
    ]  # fmt: skip
    lines: list[list[Cell]] = [
        [s.policy, s.n, s.agreement, s.expected_agreement, s.p_value, s.near_rate, s.far_rate, s.distance_drop,
         *s.distance_interval, s.distance_p_value]
        for s in found
    ]  # fmt: skip
    return table('Spatial sensitivity', columns, lines, note='near and far: halves by distance from the median start')


# Figures of robustness: success by condition, drops as a forest, doses, starts.

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


# The figures of robustness by name, from the analysis of a store.


class _OfPolicy(Protocol):
    @property
    def policy(self) -> str: ...


R = TypeVar('R', bound=_OfPolicy)


@apart
def draw_condition_success(request: ShowRequest) -> Figure:
    """Episode success of every policy under every condition, with Wilson intervals."""
    return success_figure(requested_rows(request), looks=request.looks(), behind=conditioned(request.analysis))


@apart
def draw_condition_drops(request: ShowRequest) -> Figure:
    """What each condition costs each policy, one line per condition; filled where resolved after Holm."""
    return drop_figure(requested_drops(request), looks=request.looks(), behind=conditioned(request.analysis))


@apart
def draw_doses(request: ShowRequest) -> Figure:
    """Success against the severity of each condition that was run at several."""
    return dose_figure(requested_doses(request), looks=request.looks(), behind=conditioned(request.analysis))


@apart
def draw_starts(request: ShowRequest) -> Figure:
    """Where the object stood at the start of each episode, and which episodes succeeded."""
    return start_figure(requested_starts(request), looks=request.looks())


def conditioned(analysis: Analysis) -> Behind:
    """Which episodes stand behind a policy under a condition: as the analysis names it, or at a severity."""

    def behind(policy: str, condition: str, severity: float | None) -> EpisodeFilter:
        own = analysis.behind.under(policy, condition, severity)
        return these_episodes(own, {'policy': (policy,), 'condition': tuple(dict.fromkeys(e.condition for e in own))})

    return behind


def requested_part(request: ShowRequest) -> RobustnessPart:
    return present(request.analysis.robustness)


def of_shown(request: ShowRequest, rows: Sequence[R]) -> list[R]:
    """The rows of the policies asked for."""
    shown = request.shown(dict.fromkeys(row.policy for row in rows))
    return [row for row in rows if row.policy in shown]


def requested_rows(request: ShowRequest) -> list[ConditionRow]:
    return of_shown(request, requested_part(request).rows)


def requested_drops(request: ShowRequest) -> list[ConditionDrop]:
    return of_shown(request, present(requested_part(request).drops))


def requested_doses(request: ShowRequest) -> list[DoseResponse]:
    return of_shown(request, present(requested_part(request).doses))


def requested_starts(request: ShowRequest) -> list[StartTrial]:
    """Starts under the baseline and where only the layout was changed."""
    found = of_shown(request, request.analysis.trajectories.starts)
    if not found:
        raise NotEstimable(
            'no episode says where its object started: no label start_x_m, and no trajectory with a pose'
        )
    return found


# Tables of robustness by name, from a store.


@apart
def condition_success(request: ShowRequest) -> list[Table]:
    """Success in percent: policies down, conditions across, with the counts below."""
    rows = requested_rows(request)
    conditions = list(dict.fromkeys(r.condition for r in rows))
    found = {(r.policy, r.condition): r.summary for r in rows}
    policies = list(dict.fromkeys(r.policy for r in rows))
    lines: list[Sequence[Cell]] = []
    for policy in policies:
        cells = [found.get((policy, condition)) for condition in conditions]
        lines.append([policy, *(None if s is None else 100 * s.successes / s.n for s in cells)])
    sizes = sorted({r.summary.n for r in rows})
    each = f'{sizes[0]} episodes' if len(sizes) == 1 else f'{sizes[0]} to {sizes[-1]} episodes'
    columns: list[str | Column] = ['policy', *(Column(name, '.1f') for name in conditions)]
    return [table('Success by condition (%)', columns, lines, note=f'{each} per policy and condition.')]


@apart
def condition_drops(request: ShowRequest) -> list[Table]:
    """What each condition costs each policy in success and IoU, with intervals and corrected p-values."""
    return [drop_table(requested_drops(request))]


@apart
def doses(request: ShowRequest) -> list[Table]:
    """Success against the severity of each condition, with a trend test."""
    return [dose_table(requested_doses(request))]


@apart
def compound(request: ShowRequest) -> list[Table]:
    """Is the compound condition (`chaos`) worse than the sum of its parts?"""
    return [compound_table(of_shown(request, present(requested_part(request).compound)))]


@apart
def swap(request: ShowRequest) -> list[Table]:
    """Does the policy act on the instruction? The same scenes under other instructions."""
    return [swap_table(of_shown(request, present(requested_part(request).swap)))]


@apart
def spatial(request: ShowRequest) -> list[Table]:
    """Does success depend on where the object started?"""
    return [spatial_table(of_shown(request, present(requested_part(request).spatial)))]


@apart
def starts(request: ShowRequest) -> list[Table]:
    """How far target and arm really start from where they were, for every task and condition."""
    return [start_table(present(requested_part(request).starts))]


@apart
def splits_by_policy(request: ShowRequest) -> list[Table]:
    """SR, IoU and translation error of every split, one line per policy: under the nominal condition if it was run."""
    rows = requested_rows(request)
    nominal = [r for r in rows if r.condition == requested_part(request).baseline]
    shown = nominal or rows
    names = list(dict.fromkeys(r.condition for r in shown))
    return [
        split_table([r for r in shown if r.condition == name], by='policy', title=f'Placement, condition {name}')
        for name in names
    ]


@apart
def splits_by_condition(request: ShowRequest) -> list[Table]:
    """SR, IoU and translation error of every split, one line per condition, one table per policy."""
    rows = requested_rows(request)
    return [
        split_table([r for r in rows if r.policy == name], by='condition', title=f'Placement, policy {name}')
        for name in dict.fromkeys(r.policy for r in rows)
    ]


@apart
def split_estimates(request: ShowRequest) -> list[Table]:
    """Success rate, IoU and translation error of every policy and condition, with intervals."""
    return [estimate_table(requested_rows(request))]
