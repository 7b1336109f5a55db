"""Tables of robustness by name, from a store."""

from __future__ import annotations

from collections.abc import Sequence

from robotrials.show.request import ShowRequest, apart
from robotrials.show.robustness import (
    compound_table,
    dose_table,
    drop_table,
    estimate_table,
    spatial_table,
    split_table,
    start_table,
    swap_table,
)
from robotrials.show.robustness_plot import (
    of_shown,
    requested_doses,
    requested_drops,
    requested_part,
    requested_rows,
)
from robotrials.show.table import Cell, Column, Table, table
from robotrials.verdict.analysis import present


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
