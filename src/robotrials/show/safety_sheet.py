"""Tables of safety by name, from a store with trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from robotrials.errors import NotEstimable
from robotrials.measure.safety import CellSafety, SafetySummary
from robotrials.show.request import ShowRequest
from robotrials.show.safety import (
    PERCENT,
    SCORE,
    composition_table,
    contingency_table,
    continuous_table,
    mean_table,
    quadruple_table,
    saving_table,
    sensitivity_table,
    slip_table,
    spec_table,
    task_table,
    unscored_table,
    witness_table,
)
from robotrials.show.safety_plot import requested_safety, safety_cells, shown_cells
from robotrials.show.table import Cell, Column, Table, table


def quadruple(request: ShowRequest) -> list[Table]:
    """Success, Safety, SBU and VSI of every policy and benchmark, with intervals."""
    return [quadruple_table(requested_summary(request))]


def slip(request: ShowRequest) -> list[Table]:
    """Episodes that slip by the scored rule and by the paper's, and how many verdicts differ."""
    chosen = {cell.policy for cell in requested_summary(request).cells}
    shown = slip_table(s for s in requested_safety(request).scores if s.policy in chosen)
    if not shown.rows:
        raise NotEstimable('no episode was scored by both rules of slip')
    return [shown]


def suites(request: ShowRequest) -> list[Table]:
    """SR, Safety and SBU of every suite side by side, one line per policy, with the means and VSI."""
    summary = requested_summary(request)
    main = [c for c in summary.cells if not c.is_auxiliary]
    names = sorted({c.benchmark for c in main})
    columns: list[str | Column] = ['policy']
    for what in ('SR', 'Safety', 'SBU'):
        columns += [*(Column(f'{what} {name}', PERCENT) for name in names), Column(f'{what} mean', PERCENT)]
    by_key = {(c.policy, c.benchmark): c for c in main}
    means = {m.policy: m for m in summary.means if set(m.benchmarks) == set(names)}
    rows = [
        _suite_row(policy, [by_key.get((policy, name)) for name in names], means.get(policy))
        for policy in sorted({c.policy for c in main})
    ]
    note = 'In percent. Means over suites, only where a policy ran all of them and they are one group.'
    return [table('Safety by suite', [*columns, Column('VSI mean', SCORE)], rows, note=note)]


def _suite_row(policy: str, cells: Sequence[CellSafety | None], mean: object) -> list[Cell]:
    row: list[Cell] = [policy]
    for what in ('success', 'safety', 'sbu'):
        for cell in cells:
            rate = None if cell is None else getattr(cell, what)
            row.append(None if rate is None else 100 * rate.count / rate.n)
        row.append(None if mean is None else 100 * getattr(mean, what))
    return [*row, None if mean is None else getattr(mean, 'vsi')]  # noqa: B009 - one of two row types


def means(request: ShowRequest) -> list[Table]:
    """Means over the suites of each group of benchmarks."""
    found = requested_summary(request).means
    if not found:
        raise NotEstimable('no policy has a scored cell outside the auxiliary benchmarks; there is nothing to average')
    return [mean_table(found)]


def violations(request: ShowRequest) -> list[Table]:
    """Episodes that violate each safety family, in percent: policies and benchmarks down, families across."""
    cells = requested_summary(request).cells
    families = [f for _, f in sorted({(s.axis, s.family) for c in cells for s in c.specs})]
    rows: list[Sequence[Cell]] = []
    for cell in cells:
        rates = {s.family: 100 * s.violations.count / s.violations.n for s in cell.specs}
        rows.append([cell.policy, cell.benchmark, *(rates.get(name) for name in families)])
    columns: list[str | Column] = ['policy', 'benchmark', *(Column(f.replace('_', ' '), PERCENT) for f in families)]
    note = 'A dash: inactive on every task of the cell, or its signal is not recorded.'
    return [table('Violations by family (%)', columns, rows, note=note)]


def specs(request: ShowRequest) -> list[Table]:
    """Violation rate and severity of every spec with intervals, report-only diagnostics after them."""
    return [spec_table(requested_summary(request).cells)]


def composition(request: ShowRequest) -> list[Table]:
    """Which specs the unsafe successes of every policy and benchmark violate."""
    return [composition_table(requested_summary(request).cells)]


def sensitivity(request: ShowRequest) -> list[Table]:
    """Safety, SBU and VSI under other thresholds, on the same episodes."""
    return [sensitivity_table(request.analysis.safety_variants)]


def tasks(request: ShowRequest) -> list[Table]:
    """SR and Safety of every task, with Wilson intervals."""
    return [task_table(shown_cells(request, requested_safety(request).by_task.cells))]


def contingency(request: ShowRequest) -> list[Table]:
    """Success and safety crossed: the four counts of every policy and benchmark."""
    return [contingency_table(requested_summary(request).cells)]


def margins(request: ShowRequest) -> list[Table]:
    """Mean worst margin and mean peak force, with intervals."""
    return [continuous_table(requested_summary(request).cells)]


def saving(request: ShowRequest) -> list[Table]:
    """The same episodes with and without the registry: what it keeps from being counted as unsafe."""
    return [saving_table(request.analysis.safety_savings)]


def unscored(request: ShowRequest) -> list[Table]:
    """Episodes that could not be scored, and why."""
    return [unscored_table(requested_safety(request).summary)]


def witnesses(request: ShowRequest) -> list[Table]:
    """Every violation: episode, time, clause, value and the bodies that touched."""
    scores = requested_safety(request).scores
    shown = request.shown(dict.fromkeys(s.policy for s in scores))
    return [witness_table([s for s in scores if s.policy in shown])]


def requested_summary(request: ShowRequest) -> SafetySummary:
    """The summary with the cells and means of the policies asked for."""
    summary = requested_safety(request).summary
    cells = safety_cells(request)
    shown = {c.policy for c in cells}
    return replace(summary, cells=cells, means=tuple(m for m in summary.means if m.policy in shown))
