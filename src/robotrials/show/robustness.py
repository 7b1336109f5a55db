"""Tables of robustness: RADAR's layouts, drops with intervals, doses, compounds, swap tests, spatial sensitivity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from robotrials.errors import NotEstimable
from robotrials.show.catalog import ShowRequest, apart, named
from robotrials.show.document import EpisodeFilter
from robotrials.show.figure import PAGE_WIDTH_IN
from robotrials.show.phrase import ends, percent
from robotrials.show.plot import (
    Axis,
    Behind,
    Curve,
    EpisodeLink,
    Facet,
    GuideLine,
    Plot,
    Point,
    Sheet,
    facets,
    these_episodes,
)
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
                None if error is None else percent(error.value),
            ]
        expected = row.summary.expected_iou_over_splits
        lines.append([*line, f'{row.summary.successes}/{row.summary.n}', expected.value if expected else None])
    return table(title or f'Placement by {"policy and condition" if by == "both" else by}', columns, lines, note=UNSEEN)


@named(lambda r: requested_rows(r), is_apart=True)
def estimate_table(rows: Sequence[ConditionRow]) -> Table:
    """Success rate, IoU and translation error of every policy and condition, with intervals."""
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
        for name, estimate, scale in named:
            if estimate is not None and estimate.value is not None:
                span = ends(estimate.interval, scale)
                lines.append([row.policy, row.condition, name, scale * estimate.value, *span])
    note = 'rates: Wilson; the rest: percentile bootstrap over scenes within splits; mean IoU is of all trials'
    return table('Estimates with 95 % intervals', columns, lines, note=note)


@named(lambda r: requested_drops(r), is_apart=True)
def drop_table(drops: Sequence[ConditionDrop], *, alpha: float = 0.05) -> Table:
    """What each condition costs each policy in success and IoU, with intervals and corrected p-values."""
    columns: list[str | Column] = [
        'policy', 'condition', 'baseline', 'altered', Column('drop', '+.3f'), Column('low', '+.3f'),
        Column('high', '+.3f'), Column('p', '.3g'), Column('p (Holm)', '.3g'), 'resolved', Column('IoU drop', '+.4f'),
        Column('IoU low', '+.4f'), Column('IoU high', '+.4f'), 'method',
    ]  # fmt: skip
    lines: list[list[Cell]] = []
    for d in drops:
        iou: list[Cell] = [d.iou_drop, *ends(d.iou_interval)]
        lines.append([
            d.policy, d.condition, f'{d.baseline_successes}/{d.baseline_n}', f'{d.successes}/{d.n}', d.success_drop,
            *ends(d.success_interval), d.p_value, d.p_value_holm, d.is_resolved(alpha), *iou, d.method,
        ])  # fmt: skip
    note = f'drop = baseline - altered, mean over tasks; resolved at {alpha:g} over all {len(drops)} comparisons'
    note += ''.join(f'; {d.policy}, {d.condition}: {d.note}' for d in drops if d.note)
    return table('Drops from the baseline', columns, lines, note=note)


@named(lambda r: requested_doses(r), is_apart=True)
def dose_table(responses: Sequence[DoseResponse]) -> Table:
    """Success against the severity of each condition, with a trend test."""
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


@named(lambda r: r.rows_of(present(requested_part(r).compound)), is_apart=True)
def compound_table(effects: Sequence[CompoundEffect]) -> Table:
    """Is the compound condition (`chaos`) worse than the sum of its parts?"""
    columns: list[str | Column] = [
        'policy', 'compound', 'severity', Column('baseline', '.3f'), Column('rate', '.3f'), Column('if added', '.3f'),
        Column('if multiplied', '.3f'), Column('excess drop', '+.3f'), Column('low', '+.3f'), Column('high', '+.3f'),
        Column('p (Holm)', '.3g'), 'verdict', 'because', 'of',
    ]  # fmt: skip
    lines: list[list[Cell]] = [
        [e.policy, e.compound, e.severity, e.baseline_rate, e.compound_rate, e.additive_rate, e.multiplicative_rate,
         e.excess_drop, *ends(e.interval), e.p_value_holm, e.verdict.value, e.reason,
         ', '.join(e.singles)]
        for e in effects
    ]  # fmt: skip
    note = (
        'excess drop = drop of the compound - sum of the drops of its parts alone at the same dose, on the scale of '
        'the success rate; at the floor nothing could be worse'
    )
    return table('Compound against single conditions', columns, lines, note=note)


@named(lambda r: r.rows_of(present(requested_part(r).swap)), is_apart=True)
def swap_table(results: Sequence[SwapResult]) -> Table:
    """Does the policy act on the instruction? The same scenes under other instructions."""
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


@named(lambda r: present(requested_part(r).starts), is_apart=True)
def start_table(spreads: Sequence[StartSpread]) -> Table:
    """How far target and arm really start from where they were, for every task and condition."""
    columns: list[str | Column] = [
        'task', 'condition', 'n', Column('target (mm)', '.1f'), Column('baseline target (mm)', '.1f'),
        Column('arm (mm)', '.1f'), Column('baseline arm (mm)', '.1f'), 'target stays',
    ]  # fmt: skip
    lines: list[list[Cell]] = [
        [s.task, s.condition, s.n, s.target_mm, s.baseline_target_mm, s.arm_mm, s.baseline_arm_mm, s.target_stays]
        for s in spreads
    ]
    note = (
        'root mean square distance from the middle of the baseline starts; where the target stays, no drop says nothing'
    )
    return table('Start states', columns, lines, note=note)


@named(lambda r: r.rows_of(present(requested_part(r).spatial)), is_apart=True)
def spatial_table(sensitivities: Sequence[SpatialSensitivity]) -> Table:
    """Does success depend on where the object started?"""
    columns: list[str | Column] = [
        'policy', 'n', Column('neighbours agree', '.3f'), Column('by luck', '.3f'), Column('p', '.3g'),
        Column('near', '.3f'), Column('far', '.3f'), Column('drop', '+.3f'), Column('low', '+.3f'),
        Column('high', '+.3f'), Column('p (distance)', '.3g'),
    ]  # fmt: skip
    lines: list[list[Cell]] = [
        [s.policy, s.n, s.agreement, s.expected_agreement, s.p_value, s.near_rate, s.far_rate, s.distance_drop,
         *s.distance_interval, s.distance_p_value]
        for s in sensitivities
    ]  # fmt: skip
    return table('Spatial sensitivity', columns, lines, note='near and far: halves by distance from the median start')


# Plots of robustness: success by condition, drops as a forest, doses, starts.


def drop_plot(drops: Sequence[ConditionDrop], behind: Behind | None = None, *, alpha: float = 0.05) -> Plot:
    """What each condition costs each policy, with intervals; on paper filled where it is resolved after Holm."""
    rows = [
        Point(
            d.policy, 100 * d.success_drop, None, *ends(d.success_interval, 100.0), group=d.condition,
            episodes=behind and behind(d.policy, d.condition, None), is_filled=d.is_resolved(alpha),
            words=f'{d.policy} under {d.condition}: {d.successes} of {d.n}, before {d.baseline_successes} of '
            f'{d.baseline_n}',
        )
        for d in sorted(drops, key=lambda d: d.condition)
    ]  # fmt: skip
    return Plot(
        'drop-chart', 'Drop in success from the baseline', facets([GuideLine(x=0.0, dash='-'), *rows]),
        Axis('points (more is worse)'), number_format='+.0f', sheet=_row_sheet(rows, PAGE_WIDTH_IN),
    )  # fmt: skip


RESOLVED_COLOR, UNRESOLVED_COLOR = '#332288', '#7F7F7F'


def forest_row(
    label: str, estimate: float, interval: Interval, is_resolved: bool, *, scale: float = 100.0,
    episodes: EpisodeFilter | None = None,
) -> Point:  # fmt: skip
    """One line of a forest: a drop with its interval, coloured where it is resolved."""
    color = RESOLVED_COLOR if is_resolved else UNRESOLVED_COLOR
    return Point('', scale * estimate, None, *ends(interval, scale), name=label, color=color, episodes=episodes,
                 words=f'{label}: {scale * estimate:.1f}')  # fmt: skip


def forest_plot(rows: Sequence[Point], *, level: float, unit: str = 'percentage points') -> Plot:
    """Drops with intervals, one line each."""
    label = f'drop = baseline - altered ({unit}), {100 * level:g} % intervals'
    sheet = Sheet(PAGE_WIDTH_IN * 0.75, 0.75 + 0.24 * len(rows), is_rows=True)
    return Plot(
        'drop-forest', 'Drops', facets([GuideLine(x=0.0, color='#000000', dash='-'), *rows]), Axis(label), sheet=sheet
    )


def success_plot(rows: Sequence[ConditionRow], behind: Behind | None = None) -> Plot:
    """Success rate of every policy under every condition with Wilson intervals."""
    points = [
        Point(
            r.policy, 100 * r.summary.successes / r.summary.n, None, *ends(r.summary.success_interval, 100.0),
            group=r.condition, episodes=behind and behind(r.policy, r.condition, None),
            words=f'{r.policy} under {r.condition}: {r.summary.successes} of {r.summary.n}',
        )
        for r in rows
    ]  # fmt: skip
    return Plot(
        'condition-success', 'Success by condition', facets(points), Axis('success, %', (-2.0, 102.0)),
        sheet=_row_sheet(points, 0.75 * PAGE_WIDTH_IN),
    )  # fmt: skip


def _row_sheet(points: Sequence[Point], width_in: float) -> Sheet:
    """Room for one line per group and one mark per policy in it."""
    groups, policies = len({p.group for p in points}), len({p.policy for p in points})
    return Sheet(width_in, 1.0 + groups * (0.16 + 0.12 * policies), is_rows=True)


def dose_plot(doses: Sequence[DoseResponse], behind: Behind | None = None, *, level: float = 0.95) -> Plot:
    """Success against severity with Wilson intervals, one facet per condition."""
    curves: dict[str, list[Curve]] = {}
    for r in doses:
        links = [
            EpisodeLink(d.severity, d.rate, behind(r.policy, r.condition, d.severity),
                 f'{r.policy} under {r.condition} at {d.severity:g}: {d.successes} of {d.n}')
            for d in r.doses if behind is not None
        ]  # fmt: skip
        curves.setdefault(r.condition, []).append(
            Curve(
                r.policy, [d.severity for d in r.doses], [d.rate for d in r.doses], [d.interval.low for d in r.doses],
                [d.interval.high for d in r.doses], has_whiskers=True, links=links,
            )
        )  # fmt: skip
    return Plot(
        'dose-chart', 'Episode success against severity', facets(curves), Axis('severity'),
        Axis('episode success', (0.0, 1.0)), note=f'Severity 0 is the baseline. Wilson {100 * level:g} % intervals.',
        sheet=Sheet(facet_in=(1.75, 1.8), most=3, extra_in=0.6, shared='xy'),
    )  # fmt: skip


def start_plot(trials: Sequence[StartTrial]) -> Plot:
    """Where each policy's episodes started, and which succeeded: a dot, or a cross."""
    points: dict[str, list[Point]] = {}
    for t in sorted(trials, key=lambda t: (t.policy, not t.success)):
        result = 'success' if t.success else 'failure'
        points.setdefault(t.policy, []).append(
            Point(
                t.policy, 100 * t.x_m, 100 * t.y_m, name=result, marker='o' if t.success else 'x', alpha=0.8,
                words=f'{t.policy}: {result} from {100 * t.x_m:.1f}, {100 * t.y_m:.1f} cm', is_listed=True,
                episodes=these_episodes([t]) if t.episode_id else None,
            )
        )  # fmt: skip
    drawn = tuple(Facet(policy, tuple(some), is_square=True) for policy, some in points.items())
    sheet = Sheet(facet_in=(1.6, 1.9), shared='xy')
    return Plot('starts', 'Where episodes started', drawn, Axis('x, cm'), Axis('y, cm'), sheet=sheet)


# The figures of robustness by name, from the analysis of a store.


@apart
def draw_condition_success(request: ShowRequest) -> Plot:
    """Episode success of every policy under every condition, with Wilson intervals."""
    return success_plot(requested_rows(request), conditioned(request.analysis))


@apart
def draw_condition_drops(request: ShowRequest) -> Plot:
    """What each condition costs each policy, one line per condition; filled where resolved after Holm."""
    plot = drop_plot(requested_drops(request), conditioned(request.analysis))
    label = 'drop in success from the baseline, points (95 % interval; filled: resolved after Holm)'
    return replace(plot, x=Axis(label))


@apart
def draw_drops(request: ShowRequest) -> Plot:
    """What every policy loses under each condition of the store, against the baseline, with intervals."""
    plan, behind = request.analysis.plan, conditioned(request.analysis)
    rows = [
        forest_row(f'{d.policy}, {d.condition}', d.success_drop, d.success_interval, d.is_resolved(plan.alpha),
                   episodes=behind(d.policy, d.condition, None))
        for d in requested_drops(request) if d.success_interval is not None
    ]  # fmt: skip
    return forest_plot(rows, level=plan.level)


@apart
def draw_doses(request: ShowRequest) -> Plot:
    """Success against the severity of each condition that was run at several."""
    return dose_plot(requested_doses(request), conditioned(request.analysis))


@apart
def draw_starts(request: ShowRequest) -> Plot:
    """Where the object stood at the start of each episode, and which episodes succeeded."""
    # Starts under the baseline and where only the layout was changed.
    starts_shown = request.rows_of(request.analysis.trajectories.starts)
    if not starts_shown:
        raise NotEstimable(
            'no episode says where its object started: no label start_x_m, and no trajectory with a pose'
        )
    return start_plot(starts_shown)


def conditioned(analysis: Analysis) -> Behind:
    """Which episodes stand behind a policy under a condition: as the analysis names it, or at a severity."""

    def behind(policy: str, condition: str, severity: float | None) -> EpisodeFilter:
        own = analysis.behind.under(policy, condition, severity)
        return these_episodes(own, {'policy': (policy,), 'condition': tuple(dict.fromkeys(e.condition for e in own))})

    return behind


def requested_part(request: ShowRequest) -> RobustnessPart:
    return present(request.analysis.robustness)


def requested_rows(request: ShowRequest) -> list[ConditionRow]:
    return request.rows_of(requested_part(request).rows)


def requested_drops(request: ShowRequest) -> list[ConditionDrop]:
    return request.rows_of(present(requested_part(request).drops))


def requested_doses(request: ShowRequest) -> list[DoseResponse]:
    return request.rows_of(present(requested_part(request).doses))


# Tables of robustness by name, from a store.


@apart
def condition_success(request: ShowRequest) -> list[Table]:
    """Success in percent: policies down, conditions across, with the counts below."""
    rows = requested_rows(request)
    conditions = list(dict.fromkeys(r.condition for r in rows))
    summaries = {(r.policy, r.condition): r.summary for r in rows}
    policies = list(dict.fromkeys(r.policy for r in rows))
    lines: list[Sequence[Cell]] = []
    for policy in policies:
        cells = [summaries.get((policy, condition)) for condition in conditions]
        lines.append([policy, *(None if s is None else 100 * s.successes / s.n for s in cells)])
    sizes = sorted({r.summary.n for r in rows})
    each = f'{sizes[0]} episodes' if len(sizes) == 1 else f'{sizes[0]} to {sizes[-1]} episodes'
    columns: list[str | Column] = ['policy', *(Column(name, '.1f') for name in conditions)]
    return [table('Success by condition (%)', columns, lines, note=f'{each} per policy and condition.')]


@apart
def splits_by_policy(request: ShowRequest) -> list[Table]:
    """SR, IoU and translation error of every split, one line per policy: under the nominal condition if it was run."""
    rows = requested_rows(request)
    nominal = [r for r in rows if r.condition == requested_part(request).baseline]
    drawn = nominal or rows
    names = list(dict.fromkeys(r.condition for r in drawn))
    return [
        split_table([r for r in drawn if r.condition == name], by='policy', title=f'Placement, condition {name}')
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
