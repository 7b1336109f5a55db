"""A report's section on failures: competing risks of how operations end, and counts of how episodes ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robotrials.measure.timing import FailureModes
from robotrials.measure.timing.incidence import CAUSES, Incidence
from robotrials.record import Outcome
from robotrials.show import report_chart as charts
from robotrials.show.document import Block, ChartBlock, EpisodeFilter
from robotrials.show.phrase import ends
from robotrials.show.report_block import missing, of_policies, shown_order, table_block
from robotrials.show.table import Cell, Column, Table, table, without_empty
from robotrials.verdict.analysis import Absent, Analysis, ComparisonFrame

INCIDENCE_DEFINITIONS = {
    'by the end (%)': 'incidence', 'by tau (%)': 'incidence', 'low': 'interval', 'high': 'interval',
    'time lost (s)': 'time-lost', 'lost low': 'interval', 'lost high': 'interval', 'operations': 'operation',
}  # fmt: skip
EPISODE_DEFINITIONS = {
    'operations': 'operation', 'episodes': 'episode', 'ghosts (%)': 'ghost', 'hard failure (%)': 'hard-failure',
    'episode success (%)': 'success', 'safety stop (%)': 'intervention', 'invalid': 'invalid',
}  # fmt: skip


def failure_blocks(analysis: Analysis, frame: ComparisonFrame) -> list[Block]:
    """How operations ended by tau, with what each way to fail costs; then episodes."""
    if isinstance(analysis.incidences, Absent) or isinstance(analysis.failures, Absent):
        absent = analysis.incidences if isinstance(analysis.incidences, Absent) else analysis.failures
        assert isinstance(absent, Absent)
        return [missing('How operations end', absent)]
    found = {p: i for p, i in analysis.incidences.items() if isinstance(i, Incidence)}
    policies = [p for p in (*shown_order(analysis, frame), *frame.apart) if p in found]
    shown, filters = incidence_table(found, policies, frame)
    modes = {m.policy: m for m in analysis.failures}
    counted = [modes[p] for p in policies if p in modes]
    return [
        ChartBlock(charts.incidence_chart(found, frame, analysis.behind, policies)),
        table_block('incidence-table', shown, INCIDENCE_DEFINITIONS, episodes=filters),
        table_block(
            'failure-episodes', episode_table(counted), EPISODE_DEFINITIONS,
            episodes=[of_policies(frame, m.policy) for m in counted],
        ),
    ]  # fmt: skip


def incidence_table(
    found: Mapping[str, Incidence], policies: Sequence[str], frame: ComparisonFrame
) -> tuple[Table, list[EpisodeFilter]]:
    """One row per policy and end: its cumulative incidence by tau and the mean time lost to it."""
    rows: list[tuple[Cell, ...]] = []
    filters: list[EpisodeFilter] = []
    for policy in policies:
        for cause in CAUSES:
            c = found[policy].causes[cause]
            is_done = cause is CAUSES[0]
            lost: tuple[Cell, ...] = (None, None, None) if is_done else (c.time_lost_s, *ends(c.time_lost_interval))
            rows.append((
                policy, charts.ENDS[cause], 100 * c.chance[-1], 100 * c.by_tau,
                *ends(c.by_tau_interval, 100.0), *lost, c.n_operations,
            ))  # fmt: skip
            filters.append(of_policies(frame, policy))
    columns: list[str | Column] = ['policy', 'end']
    columns += [
        Column(n, '.1f')
        for n in ('by the end (%)', 'by tau (%)', 'low', 'high', 'time lost (s)', 'lost low', 'lost high')
    ]
    censored = sum(i.n_lost for i in found.values())
    note = (
        'Cumulative incidence (Aalen-Johansen), the mean over strata of equal weight: ends compete, so they and what '
        'is still under way add up to 100 %. Time lost is the mean time up to tau that this end takes from an '
        f'operation. {_level(found)} intervals: jackknife-t with an allowance for ends not yet seen.'
    )
    if censored:
        note += f' {censored} operations were lost to follow-up and are censored.'
    return without_empty(table('How operations end', [*columns, 'operations'], rows, note=note)), filters


def _level(found: Mapping[str, Incidence]) -> str:
    return f'{100 * next(iter(found.values())).level:g} %' if found else ''


def episode_table(found: Sequence[FailureModes]) -> Table:
    """How episodes ended, in counts' shares; one episode may be in several columns."""
    rows: list[tuple[Cell, ...]] = [
        (
            m.policy, m.n_episodes, 100 * m.episode_rate(Outcome.SUCCESS), 100 * m.dropping_rate,
            100 * m.safety_stop_rate, 100 * m.episode_rate(Outcome.TIMEOUT), 100 * m.episode_rate(Outcome.FAILURE),
            m.n_operations, 100 * m.ghost_share, None if m.hard_failure is None else 100 * m.hard_failure,
            m.n_assists, m.n_invalid,
        )
        for m in found
    ]  # fmt: skip
    names = [
        'policy', 'episodes', 'outcome success (%)', 'with a drop (%)', 'safety stop (%)', 'time-out (%)',
        'failure (%)', 'operations', 'ghosts (%)', 'hard failure (%)', 'assists', 'invalid',
    ]  # fmt: skip
    note = 'Shares of valid episodes, all strata pooled; ghosts and hard failure are shares of operations.'
    return table('How episodes ended', [Column(n, '.1f' if n.endswith('(%)') else '') for n in names], rows, note=note)
