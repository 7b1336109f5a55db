"""Tables of robustness: RADAR's layouts, drops with intervals, doses, compounds, swap tests, spatial sensitivity."""

from __future__ import annotations

import math
from collections.abc import Sequence

from robotrials.show.table import Cell, Column, Table, table
from robotrials.stats import Estimate
from robotrials.verdict.robustness import (
    CompoundEffect,
    ConditionDrop,
    ConditionRow,
    DoseResponse,
    SpatialSensitivity,
    StartSpread,
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
