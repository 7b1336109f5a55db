"""A report's charts, each from one part of an analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robotrials.measure.timing.incidence import CAUSES, End, Incidence
from robotrials.show.chart import (
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
from robotrials.show.document import Chart, EpisodeFilter, Missing, TableBlock
from robotrials.show.figure_mark import Behind, of_policies, these_episodes
from robotrials.show.phrase import ends
from robotrials.show.table import Table
from robotrials.stats import Estimate
from robotrials.verdict.analysis import Absent, Analysis, ComparisonFrame, PolicyCurve, Ranking, Rates, SafetyPart
from robotrials.verdict.analysis.behind import EpisodesBehind
from robotrials.verdict.robustness import ConditionDrop, DoseResponse

ALL_STRATA = 'all strata'
ENDS = {
    End.SUCCESS: 'done', End.DROP: 'dropped', End.SAFETY_STOP: 'safety stop', End.FAILURE: 'failed',
    End.TIME_OUT: 'timed out',
}  # fmt: skip
UNDER_WAY = 'under way'
SHARED_LETTER = 'Policies sharing a letter are not significantly different.'
Colors = Mapping[str, str]


def ranking_chart(ranking: Ranking, frame: ComparisonFrame, letters: Mapping[str, str], colors: Colors) -> Chart:
    """RMST of every ranked policy with its interval and letters: over all strata, and in each."""
    policies = [p for p in (ranking.reference, *ranking.order) if p is not None and p in ranking.scores]
    panels = {
        ALL_STRATA: [
            _row(p, ranking.scores[p].macro['rmst_s'], letters.get(p, ''), episodes=of_policies(frame, p))
            for p in policies
        ]
    }
    if len(ranking.strata) > 1:
        for stratum in ranking.strata:
            cells = {p: ranking.scores[p].cells.get(stratum) for p in policies}
            panels[stratum] = [
                _row(p, None if found is None else found['rmst_s'], episodes=of_policies(frame, p, stratum=stratum))
                for p, found in cells.items()
            ]
    note = f'Capped at {ranking.times.tau_text}.'
    return interval_chart(
        'ranking-chart', panels, title='Restricted mean time to success', x_label='seconds (less is better)',
        number_format='.1f', colors=colors, note=f'{note} {SHARED_LETTER}' if letters else note,
    )  # fmt: skip


def _row(
    policy: str, found: Estimate | None, letters: str = '', *, scale: float = 1.0, episodes: EpisodeFilter
) -> IntervalRow:
    low, high = ends(None if found is None else found.interval, scale)
    value = None if found is None or found.value is None else scale * found.value
    return IntervalRow(policy, value, low, high, letters=letters, episodes=episodes)


def success_chart(
    rates: Rates, frame: ComparisonFrame, policies: Sequence[str], letters: Mapping[str, str], colors: Colors
) -> Chart:
    """Episode success of every ranked policy with its interval and letters: over all strata, and in each."""
    panels = {
        ALL_STRATA: [
            _row(p, rates.macro[p], letters.get(p, ''), scale=100.0, episodes=of_policies(frame, p)) for p in policies
        ]
    }
    if len(frame.strata) > 1:
        for stratum in frame.strata:
            counts = {p: rates.counts.get((p, stratum)) for p in policies}
            panels[stratum] = [
                _row(
                    p,
                    None if c is None else Estimate(c.value, c.interval),
                    scale=100.0,
                    episodes=of_policies(frame, p, stratum=stratum),
                )
                for p, c in counts.items()
            ]
    return interval_chart(
        'success-chart', panels, title='Episode success', x_label='% of episodes (more is better)',
        x_range=(0.0, 100.0), number_format='.0f', colors=colors, note=SHARED_LETTER if letters else '',
    )  # fmt: skip


def curve_chart(
    curves: Mapping[str, tuple[PolicyCurve, ...]], ranking: Ranking, frame: ComparisonFrame, colors: Colors, *,
    level: float,
) -> Chart:  # fmt: skip
    """F(t) with pointwise bands: the mean over the ranked strata, and each stratum.

    A policy that stands apart is drawn only in the strata that it was run on.
    """
    panels = []
    for stratum, found in curves.items():
        shown = [c for c in found if stratum or c.policy not in ranking.apart]
        taus = ranking.times.taus_s
        end_s = taus[stratum] if stratum else min(taus[s] for s in ranking.strata or taus)
        series = tuple(
            _step_series(c, end_s, of_policies(frame, c.policy, stratum=stratum))
            for c in sorted(shown, key=lambda c: ranking.policies.index(c.policy))
        )
        panels.append(StepPanel(stratum or ALL_STRATA, series))
    return step_chart(
        'curve-chart', panels, title='Operations done by time t', x_max=ranking.tau_s, colors=colors,
        note=f'F(t), Kaplan-Meier; shaded: pointwise {100 * level:g} % bands that take start states (or episodes), not '
        'operations, as independent. Over all strata: their equal-weight mean, as far as every stratum is judged.',
    )  # fmt: skip


def _step_series(curve: PolicyCurve, end_s: float, episodes: EpisodeFilter) -> StepSeries:
    """The curve as far as it is judged: where strata have caps of their own, the mean ends at the smallest."""
    n = int((curve.times_s <= end_s).sum())
    low, high = (None if band is None else band[:n].tolist() for band in (curve.low, curve.high))
    times_s, chance = curve.times_s[:n].tolist(), curve.chance[:n].tolist()
    return StepSeries(curve.policy, times_s, chance, low, high, end_s=end_s, episodes=episodes)


def incidence_chart(
    found: Mapping[str, Incidence], frame: ComparisonFrame, behind: EpisodesBehind, policies: Sequence[str]
) -> Chart:
    """How operations ended: by the end of observation, and by tau."""
    by_end = {p: behind.by_end(frame, p) for p in policies}

    def bar(policy: str, *, at_tau: bool) -> StackedBar:
        incidence = found[policy]
        ends_ = [incidence.causes[c].by_tau if at_tau else incidence.causes[c].chance[-1] for c in CAUSES]
        rest = incidence.under_way_at_tau if at_tau else incidence.under_way[-1]
        everyone = of_policies(frame, policy)
        shares = [
            Share(ENDS[c], share, episodes=these_episodes(by_end[policy].get(c, ()), everyone))
            for c, share in zip(CAUSES, ends_, strict=True)
        ]
        return StackedBar(policy, (*shares, Share(UNDER_WAY, rest, episodes=everyone)))

    panels = {
        'by the end': [bar(p, at_tau=False) for p in policies], 'by tau': [bar(p, at_tau=True) for p in policies]
    }  # fmt: skip
    return stacked_bar_chart(
        'failure-chart', panels, title='How operations end', x_label='share of operations',
        causes=[*ENDS.values(), UNDER_WAY],
        note='Cumulative incidence (Aalen-Johansen), the mean over strata, by the end of observation or by tau.',
    )  # fmt: skip


def success_grid(rates: Rates, frame: ComparisonFrame, policies: Sequence[str], strata: Sequence[str]) -> Chart:
    """Episode success in every cell."""
    cells = []
    for stratum in strata:
        for policy in policies:
            count = rates.counts.get((policy, stratum))
            detail = '' if count is None else f'{count.count} of {count.n} episodes'
            value = None if count is None or count.value is None else 100 * count.value
            behind = None if count is None else of_policies(frame, policy, stratum=stratum)
            cells.append(GridCell(policy, stratum, value, detail, behind))
    return grid_chart(
        'success-grid', cells, title='Episode success in every cell', value_label='episode success (%)',
        value_range=(0.0, 100.0), number_format='.0f', policies=policies, strata=strata,
    )  # fmt: skip


def pareto_chart(safety: SafetyPart, colors: Colors) -> Chart:
    """Success against safety, one panel per benchmark."""
    panels: dict[str, list[ScatterPoint]] = {}
    for c in safety.summary.cells:
        (x_low, x_high), (y_low, y_high) = ends(c.success.interval, 100.0), ends(c.safety.interval, 100.0)
        panels.setdefault(c.benchmark or 'all', []).append(
            ScatterPoint(
                c.policy, 100 * c.success.count / c.n, 100 * c.safety.count / c.n, x_low, x_high, y_low, y_high,
                is_front=c.policy in safety.frontier[c.benchmark],
                episodes={'policy': (c.policy,), **({'benchmark': (c.benchmark,)} if c.benchmark else {})},
            )
        )  # fmt: skip
    return scatter_chart(
        'pareto-chart', panels, title='Episode success against safety', x_label='episode success (%)',
        y_label='safe episodes (%)', x_range=(0.0, 100.0), y_range=(0.0, 100.0), number_format='.0f', colors=colors,
        note='Up and to the right is better. No policy on the line is beaten in both by another. Wilson intervals.',
    )  # fmt: skip


def drop_chart(drops: Sequence[ConditionDrop], colors: Colors, behind: Behind) -> Chart:
    """What each condition costs each policy."""
    rows = [
        IntervalRow(
            d.policy,
            100 * d.success_drop,
            None if d.success_interval is None else 100 * d.success_interval.low,
            None if d.success_interval is None else 100 * d.success_interval.high,
            group=d.condition,
            episodes=behind(d.policy, d.condition, None),
        )
        for d in sorted(drops, key=lambda d: d.condition)
    ]
    return interval_chart(
        'drop-chart', rows, title='Drop in success from the baseline', x_label='points (more is worse)',
        reference_line=0.0, number_format='+.0f', colors=colors,
    )  # fmt: skip


def dose_chart(doses: Sequence[DoseResponse], colors: Colors, behind: Behind, *, level: float) -> Chart:
    """Success against severity, one panel per condition."""
    panels: dict[str, list[LineSeries]] = {}
    for response in doses:
        points = tuple(
            LinePoint(
                d.severity, d.rate, d.interval.low, d.interval.high,
                behind(response.policy, response.condition, d.severity),
            )
            for d in response.doses
        )  # fmt: skip
        panels.setdefault(response.condition, []).append(LineSeries(response.policy, points))
    return line_chart(
        'dose-chart', panels, title='Episode success against severity', x_label='severity', y_label='episode success',
        colors=colors, note=f'Severity 0 is the baseline. Wilson {100 * level:g} % intervals.',
    )  # fmt: skip


# What the sections of a report share: blocks of tables with their definitions, links to episodes, what is missing.

__all__ = ['missing', 'of_policies', 'shown_order', 'table_block']


def missing(what: str, absent: Absent) -> Missing:
    return Missing(what, absent.reason, absent.remedy)


def table_block(
    key: str, shown: Table, definitions: Mapping[str, str], *, episodes: Sequence[EpisodeFilter | None] = (),
    policy: str = 'policy', stratum: str = '', is_folded: bool = False,
    cells: Mapping[tuple[int, str], EpisodeFilter] | None = None,
) -> TableBlock:  # fmt: skip
    """A block that keeps only the definitions of columns that the table has."""
    names = {c.name for c in shown.columns}
    return TableBlock(
        key, shown, {k: v for k, v in definitions.items() if k in names}, tuple(episodes),
        policy if policy in names else '', stratum if stratum in names else '', is_folded,
        cells or {},
    )  # fmt: skip


def shown_order(analysis: Analysis, frame: ComparisonFrame) -> tuple[str, ...]:
    """The reference, then the ranked policies by the first primary endpoint, best first; policies apart come last."""
    pairs = analysis.pairs
    ranked = frame.policies
    if not isinstance(pairs, Absent) and not isinstance(pairs.lead, Absent):
        ranked = pairs.lead.policies
    elif not isinstance(analysis.ranking, Absent):
        ranked = analysis.ranking.order
    return (*((frame.reference,) if frame.reference else ()), *ranked)
