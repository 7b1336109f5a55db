"""A report's charts, each from one part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trialist.analysis import Ranking, SafetyPart
from trialist.analysis.pairs import AllPairs
from trialist.robustness import DoseResponse, Drop
from trialist.show.chart import (
    GridCell,
    IntervalRow,
    LinePoint,
    LineSeries,
    ScatterPoint,
    Share,
    StackedBar,
    StepPanel,
    StepSeries,
    grid_chart,
    interval_chart,
    line_chart,
    scatter_chart,
    stacked_bar_chart,
    step_chart,
)
from trialist.show.document import Chart
from trialist.show.timing import ends
from trialist.timing import Cause, Estimate, FailureModes

ALL_STRATA = 'all strata'
CAUSES = {
    Cause.PLACEMENT: 'succeeded', Cause.TAIL: 'unfinished', Cause.DROP_OUTSIDE: 'dropped outside',
    Cause.DROP_UNCOLLECTED: 'not collected', Cause.SAFETY_STOP: 'safety stop', Cause.FAILURE: 'unrecoverable',
}  # fmt: skip
Colors = Mapping[str, str]


def ranking_chart(ranking: Ranking, colors: Colors) -> Chart:
    """RMST of every policy with its interval and letters: over all strata, and in each."""
    letters = ranking.pairs.letters if isinstance(ranking.pairs, AllPairs) else {}

    def row(policy: str, found: Estimate | None, shown: str = '') -> IntervalRow:
        low, high = ends(None if found is None else found.percentile)
        return IntervalRow(policy, None if found is None else found.value, low, high, letters=shown)

    panels = {ALL_STRATA: [row(p, ranking.scores[p].macro['rmst_s'], letters.get(p, '')) for p in ranking.policies]}
    if len(ranking.strata) > 1:
        for stratum in ranking.strata:
            cells = {p: ranking.scores[p].cells.get(stratum) for p in ranking.policies}
            panels[stratum] = [row(p, None if found is None else found['rmst_s']) for p, found in cells.items()]
    return interval_chart(
        'ranking-chart', panels, title='Restricted mean time to success', x_label='seconds (less is better)',
        number_format='.1f', colors=colors,
        note=f'Capped at {ranking.tau_s:g} s. Who shares a letter is not told apart.',
    )  # fmt: skip


def _level(ranking: Ranking) -> float:
    """Of its intervals and bands, which is one for all."""
    return next(iter(ranking.successes.values())).level


def curve_chart(ranking: Ranking, colors: Colors) -> Chart:
    """Success curves with their pointwise bands: the mean over strata, and each stratum."""
    panels = []
    for stratum, curves in ranking.curves.items():
        series = tuple(
            StepSeries(
                c.policy, c.times_s.tolist(), c.chance.tolist(), None if c.low is None else c.low.tolist(),
                None if c.high is None else c.high.tolist(), end_s=min(ranking.followed_to_s[c.policy], ranking.tau_s),
            )
            for c in sorted(curves, key=lambda c: ranking.policies.index(c.policy))
        )  # fmt: skip
        panels.append(StepPanel(stratum or ALL_STRATA, series))
    return step_chart(
        'curve-chart', panels, title='Chance of success by time', x_max=ranking.tau_s, colors=colors,
        note=f'Kaplan-Meier; shaded: pointwise {100 * _level(ranking):g} % bands that take episodes, not operations, '
        'as independent. Over all strata: their equal-weight mean.',
    )  # fmt: skip


def failure_chart(failures: Sequence[FailureModes], policies: Sequence[str]) -> Chart:
    """How operations ended."""
    by_policy = {m.policy: m for m in failures}
    bars = []
    for policy in policies:
        modes = by_policy[policy]
        shares = tuple(
            Share(name, modes.operation_rate(cause), modes.operations_by_cause[cause]) for cause, name in CAUSES.items()
        )
        bars.append(StackedBar(policy, shares))
    return stacked_bar_chart(
        'failure-chart', bars, title='How operations ended', x_label='share of operations', causes=list(CAUSES.values())
    )  # fmt: skip


def success_grid(ranking: Ranking) -> Chart:
    """Success rate in every cell."""
    cells = []
    for stratum in ranking.strata:
        for policy in ranking.policies:
            count = ranking.successes.get((policy, stratum))
            detail = '' if count is None else f'{count.successes} of {count.n} episodes'
            cells.append(GridCell(policy, stratum, None if count is None else 100 * count.rate, detail))
    return grid_chart(
        'success-grid', cells, title='Success rate in every cell', value_label='success (%)', value_range=(0.0, 100.0),
        number_format='.0f', policies=ranking.policies, strata=ranking.strata,
    )  # fmt: skip


def pareto_chart(safety: SafetyPart, colors: Colors) -> Chart:
    """Success against safety, one panel a benchmark."""
    panels: dict[str, list[ScatterPoint]] = {}
    for c in safety.summary.cells:
        (x_low, x_high), (y_low, y_high) = ends(c.success.interval, 100.0), ends(c.safety.interval, 100.0)
        panels.setdefault(c.benchmark or 'all', []).append(
            ScatterPoint(
                c.policy, 100 * c.success.count / c.n, 100 * c.safety.count / c.n, x_low, x_high, y_low, y_high,
                is_front=c.policy in safety.frontier[c.benchmark],
            )
        )  # fmt: skip
    return scatter_chart(
        'pareto-chart', panels, title='Success against safety', x_label='success rate (%)', y_label='safe episodes (%)',
        x_range=(0.0, 100.0), y_range=(0.0, 100.0), number_format='.0f', colors=colors,
        note='Up and to the right is better. No policy on the line is beaten in both by another. Wilson intervals.',
    )  # fmt: skip


def drop_chart(drops: Sequence[Drop], colors: Colors) -> Chart:
    """What each condition costs each policy."""
    rows = [
        IntervalRow(
            d.policy,
            100 * d.success_drop,
            100 * d.success_interval.low,
            100 * d.success_interval.high,
            group=d.condition,
        )
        for d in sorted(drops, key=lambda d: d.condition)
    ]
    return interval_chart(
        'drop-chart', rows, title='Drop in success from the baseline', x_label='points (more is worse)',
        reference_line=0.0, number_format='+.0f', colors=colors,
    )  # fmt: skip


def dose_chart(doses: Sequence[DoseResponse], colors: Colors, *, level: float) -> Chart:
    """Success against severity, one panel a condition."""
    panels: dict[str, list[LineSeries]] = {}
    for response in doses:
        points = tuple(LinePoint(d.severity, d.rate, d.interval.low, d.interval.high) for d in response.doses)
        panels.setdefault(response.condition, []).append(LineSeries(response.policy, points))
    return line_chart(
        'dose-chart', panels, title='Success against severity', x_label='severity', y_label='success rate',
        colors=colors, note=f'Severity 0 is the baseline. Wilson {100 * level:g} % intervals.',
    )  # fmt: skip
