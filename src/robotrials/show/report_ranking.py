"""A report's sections on times to success: the ranking, who stands apart, cells and tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robotrials.measure.timing import FailureModes
from robotrials.measure.timing.incidence import CAUSES, Incidence, OperationEnd
from robotrials.record import Outcome
from robotrials.show.answer import letters_of
from robotrials.show.document import (
    Block,
    EpisodeFilter,
    Missing,
    TableBlock,
    missing,
    paragraph,
    table_block,
)
from robotrials.show.pair_table import endpoint_blocks
from robotrials.show.phrase import ends, percent
from robotrials.show.plot import Axis, Bar, Curve, Plot, Point, Tile, facets, of_policies, these_episodes
from robotrials.show.plot_page import paint_page
from robotrials.show.report_lead import story_paragraphs
from robotrials.show.table import Cell, Column, Table, table, without_empty
from robotrials.stats import Estimate
from robotrials.verdict.analysis import Absent, Analysis, ComparisonFrame, PolicyCurve, Ranking, Rates, present
from robotrials.verdict.analysis.detail import EpisodesBehind
from robotrials.verdict.analysis.ranking import ALL_STRATA
from robotrials.verdict.analysis.selection import SEPARATOR
from robotrials.verdict.planning.analysis_plan import EndpointName

RULE = 'jackknife-t with an allowance for failures not yet seen, by start state where starts repeat'
RANKING_DEFINITIONS = {
    'letters': 'letters', 'RMST (s)': 'rmst', 'RMST low': 'interval', 'RMST high': 'interval', 'HRT (%)': 'hrt',
    'HRT low': 'interval', 'HRT high': 'interval', 'done by tau (%)': 'curve', 'episode success (%)': 'success',
    'median (s)': 'median', 'hard failure (%)': 'hard-failure', 'intervention (%)': 'intervention',
    'episodes': 'episode', 'invalid': 'invalid',
}  # fmt: skip
COUNTED = {'episodes', 'invalid', 'letters'}
MOST_SUITES = 12  # side by side in a table


def ranking_blocks(analysis: Analysis, ranking: Ranking, frame: ComparisonFrame) -> list[Block]:
    """The ranking, one tau per stratum where they differ, and policies without a valid episode."""
    ranked = ranked_policies(ranking)
    filters = [of_policies(frame, policy) for policy in ranked]
    sheet = ranking_table(analysis, ranking)
    blocks: list[Block] = [table_block('ranking-table', sheet, RANKING_DEFINITIONS, episodes=filters)]
    taus = ranking.times.taus_s
    if len({taus[s] for s in ranking.strata}) > 1 or ranking.times.short:
        rows = [(s, taus[s], ranking.times.short.get(s)) for s in ranking.strata]
        sheet = without_empty(table('Tau by stratum', ['stratum', Column('tau (s)', 'g'), 'shorter because'], rows))
        blocks.append(table_block('tau-table', sheet, {'stratum': 'stratum', 'tau (s)': 'rmst'}, stratum='stratum'))
    return blocks


def ranked_policies(ranking: Ranking) -> tuple[str, ...]:
    """The reference, where it was scored on these strata, and the ranked policies, best first."""
    return tuple(p for p in (ranking.reference, *ranking.order) if p is not None and p in ranking.scores)


def ranking_table(analysis: Analysis, ranking: Ranking) -> Table:
    """The reference first, then the shortest macro mean time; policies that stand apart are not in it."""
    letters = letters_of(analysis, EndpointName.TIME)
    policies = ranked_policies(ranking)
    rows = [_ranking_row(policy, analysis, ranking, letters.get(policy)) for policy in policies]
    columns = [n if n in COUNTED else Column(n, '.1f') for n in RANKING_DEFINITIONS]
    times = ranking.times
    note = (
        f'RMST is the mean over {len(ranking.strata)} strata of equal weight, with times capped at tau = '
        f'{times.tau_text} ({times.reason}). {100 * analysis.plan.level:g} % intervals: {RULE}. '
    )
    if len(ranking.strata) == 1:
        note = note.replace('the mean over 1 strata of equal weight', 'of one stratum')
    note += f'HRT is relative to {ranking.reference}. ' if ranking.reference else 'No HRT: no policy is the reference. '
    if letters:
        note += 'Policies sharing a letter are not significantly different. '
    # Why some mean times have no interval.
    why = {ranking.scores[p].macro['rmst_s'].note for p in ranking.order} - {''}
    note += f'Without an interval: {"; ".join(sorted(why))}.' if why else ''
    return without_empty(table('Ranking by time to success', ['policy', *columns], rows, note=note.rstrip()))


def _ranking_row(policy: str, analysis: Analysis, ranking: Ranking, letters: str | None) -> tuple[Cell, ...]:
    score, relative = ranking.scores[policy], ranking.relative.get(policy)
    rmst, missed = score.macro['rmst_s'], score.macro['missing_at_tau'].value
    done = None if missed is None else 1.0 - missed
    against: tuple[Cell, ...] = (None, None, None)
    if policy == ranking.reference:
        against = (100.0, None, None)
    elif relative is not None:
        against = (percent(relative.value), *ends(relative.macro.interval, 100.0))
    rates = analysis.success
    success = None if isinstance(rates, Absent) else rates.macro[policy].value
    return (
        policy, letters, rmst.value, *ends(rmst.interval), *against, percent(done),
        percent(success), score.pooled['median_s'].value, percent(score.macro['hard_failure'].value),
        100 * score.intervention_rate, score.n_episodes, score.n_invalid,
    )  # fmt: skip


# --- who stands apart


def apart_blocks(analysis: Analysis, frame: ComparisonFrame) -> list[Block]:
    """Policies that are not ranked: why, and what they have, in a table of their own."""
    blocks: list[Block] = []
    for name, n in frame.unscored.items():
        words = 'its only episode is invalid' if n == 1 else f'none of its {n} episodes is valid'
        blocks.append(Missing(name, words, 'run it again'))
    if not frame.apart:
        return blocks
    rows = [_apart_row(policy, why, analysis, frame) for policy, why in frame.apart.items()]
    columns: list[str | Column] = [
        'policy', 'why', 'strata', 'episodes', Column('episode success (%)', '.1f'), Column('success low', '.1f'),
        Column('success high', '.1f'), Column('RMST (s)', '.1f'), Column('RMST low', '.1f'), Column('RMST high', '.1f'),
    ]  # fmt: skip
    note = 'Over the strata that each was run on: not comparable with the ranking, nor with each other.'
    sheet = without_empty(table('Not ranked', columns, rows, note=note))
    definitions = RANKING_DEFINITIONS | {'success low': 'success', 'success high': 'success', 'strata': 'stratum'}
    filters = [of_policies(frame, policy) for policy in frame.apart]
    return [*blocks, table_block('apart-table', sheet, definitions, episodes=filters)]


def _apart_row(policy: str, why: str, analysis: Analysis, frame: ComparisonFrame) -> tuple[Cell, ...]:
    cells = frame.cells[policy]
    own: tuple[Cell, ...] = (None, None, None)
    if not isinstance(analysis.success, Absent):
        rate = analysis.success.macro[policy]
        own = (percent(rate.value), *ends(rate.interval, 100.0))
    timed: tuple[Cell, ...] = (None, None, None)
    if not isinstance(analysis.ranking, Absent) and policy in analysis.ranking.scores:
        rmst = analysis.ranking.scores[policy].macro['rmst_s']
        timed = (rmst.value, *ends(rmst.interval))
    return (policy, why, len(cells), sum(map(len, cells.values())), *own, *timed)


# --- every cell, every task

CELL_DEFINITIONS = {
    'stratum': 'stratum', 'episodes': 'episode', 'episode success (%)': 'success', 'success low': 'success',
    'success high': 'success', 'RMST (s)': 'rmst', 'RMST low': 'interval', 'RMST high': 'interval',
    'HRT (%)': 'hrt', 'median (s)': 'median', 'tau (s)': 'rmst',
}  # fmt: skip


def cell_block(analysis: Analysis, frame: ComparisonFrame, rates: Rates) -> TableBlock:
    """One row per cell, policies that stand apart included."""
    rows: list[tuple[Cell, ...]] = []
    filters: list[EpisodeFilter] = []
    for stratum in sorted({s for cells in frame.cells.values() for s in cells}):
        for policy in frame.everyone:
            count = rates.counts.get((policy, stratum))
            if count is None or count.value is None:
                continue
            rows.append((
                stratum, policy, count.n, 100 * count.value, *ends(count.interval, 100.0),
                *_cell_times(analysis, policy, stratum),
            ))  # fmt: skip
            filters.append(of_policies(frame, policy, stratum=stratum))
    columns: list[str | Column] = ['stratum', 'policy']
    columns += [n if n == 'episodes' else Column(n, '.1f') for n in CELL_DEFINITIONS if n != 'stratum']
    level = f'{100 * analysis.plan.level:g} %'
    note = f'A cell is one policy in one stratum. {level} intervals: Wilson for episode success; RMST: {RULE}.'
    sheet = without_empty(table('Every cell', columns, rows, note=note))
    return table_block('cell-table', sheet, CELL_DEFINITIONS, episodes=filters, stratum='stratum', is_folded=True)


def _cell_times(analysis: Analysis, policy: str, stratum: str) -> tuple[Cell, ...]:
    nothing = (None,) * 6
    if isinstance(analysis.ranking, Absent) or policy not in analysis.ranking.scores:
        return nothing
    ranking = analysis.ranking
    cell = ranking.scores[policy].cells.get(stratum)
    if cell is None:
        return nothing
    relative = ranking.relative.get(policy)
    hrt = relative.per_stratum.get(stratum) if relative is not None else None
    rmst = cell['rmst_s']
    return (
        rmst.value, *ends(rmst.interval), None if hrt is None else percent(hrt.value), cell['median_s'].value,
        ranking.times.taus_s[stratum],
    )  # fmt: skip


def task_block(analysis: Analysis, frame: ComparisonFrame, rates: Rates) -> TableBlock | None:
    """One row per task and policy; None where strata are the tasks themselves."""
    tasks = sorted({task for _, task in rates.by_task})
    if set(tasks) <= {s for cells in frame.cells.values() for s in cells} or len(tasks) < 2:
        return None
    rows: list[tuple[Cell, ...]] = []
    filters: list[EpisodeFilter] = []
    for task in tasks:
        for policy in frame.everyone:
            count = rates.by_task.get((policy, task))
            if count is not None and count.value is not None:
                rows.append((task, policy, count.n, count.count, 100 * count.value, *ends(count.interval, 100.0)))
                filters.append({**of_policies(frame, policy), 'task': (task,)})
    columns: list[str | Column] = ['task', 'policy', 'episodes', 'successes']
    columns += [Column(name, '.1f') for name in ('episode success (%)', 'success low', 'success high')]
    sheet = table('Episode success by task', columns, rows, note='Wilson score intervals.')
    definitions = CELL_DEFINITIONS | {'successes': 'success'}
    return table_block('task-table', sheet, definitions, episodes=filters, is_folded=len(rows) > 24)


def by_task(analysis: Analysis, chosen: Sequence[str]) -> Table:
    """Episode success as papers print it: tasks down, the chosen policies across, and below the mean over strata."""
    frame, rates = present(analysis.frame), present(analysis.success)
    policies = [p for p in frame.everyone if p in rates.macro and p in chosen]
    tasks = sorted({task for policy, task in rates.by_task if policy in policies})
    rows: list[list[Cell]] = []
    for task in tasks:
        cells: list[Cell] = [task]
        for policy in policies:
            rate = rates.by_task.get((policy, task))
            cells += [None, None] if rate is None else [100 * rate.count / rate.n, f'{rate.count}/{rate.n}']
        rows.append(cells)
    last: list[Cell] = ['mean over strata']
    for policy in policies:
        value, total = rates.macro[policy].value, rates.counts.get((policy, ALL_STRATA))  # None: ran no shared stratum
        last += [percent(value), None if total is None else f'{total.count}/{total.n}']
    columns: list[str | Column] = ['task']
    for policy in policies:
        columns += [Column(f'{policy} %', '.1f'), f'{policy} n']
    readings = None if isinstance(analysis.pairs, Absent) else analysis.pairs.readings
    if readings is not None:
        counted: list[Cell] = ['mean, invalid counted as failures']
        for policy in policies:
            bounds, value = readings.bounds.get(policy), rates.macro[policy].value
            low = value if bounds is None else bounds.low
            counted += [percent(low), None]
        rows += [last]
        last = counted
    invalid = {p: len(frame.invalid.get(p, ())) for p in policies if frame.invalid.get(p)}
    aside = ', '.join(f'{p} {n}' for p, n in invalid.items())
    note = f'Invalid episodes are set aside: {aside}.' if aside else ''
    return table('Episode success by task', columns, [*rows, last], note=note)


def suite_block(analysis: Analysis, frame: ComparisonFrame, rates: Rates) -> TableBlock | None:
    """Policies down, suites across and the mean over strata; with invalid episodes, that counts them as failures too.

    None where there is one suite, or too many to stand side by side.
    """
    # Strata by suite: those of several benchmarks are named `BENCHMARK / TASK`; others are suites of their own.
    suites: dict[str, list[str]] = {}
    for stratum in frame.strata:
        suites.setdefault(stratum.partition(SEPARATOR)[0], []).append(stratum)
    if not 1 < len(suites) <= MOST_SUITES:
        return None
    policies = [p for p in frame.everyone if p in rates.macro]
    readings = None if isinstance(analysis.pairs, Absent) else analysis.pairs.readings
    rows: list[tuple[Cell, ...]] = []
    for policy in policies:
        cells = [_suite_mean(rates, policy, strata) for strata in suites.values()]
        mean = None if None in cells else rates.macro[policy].value
        bounds = None if readings is None else readings.bounds.get(policy)
        counted = mean if bounds is None or mean is None else bounds.low
        rows.append((policy, *map(percent, cells), percent(mean), percent(counted)))
    columns: list[str | Column] = ['policy', *(Column(suite, '.1f') for suite in suites)]
    columns += [Column('mean', '.1f'), Column('mean, invalid as failures', '.1f')]
    kept = columns if readings is not None else columns[:-1]
    invalid = ', '.join(f'{p} {len(frame.invalid[p])}' for p in policies if frame.invalid.get(p))
    note = f'% of valid episodes, strata of equal weight. Invalid episodes, set aside: {invalid or "none"}.'
    sheet = table('Episode success (%)', kept, [row[: len(kept)] for row in rows], note=note)
    return table_block('suite-table', sheet, {'mean': 'success'}, episodes=[of_policies(frame, p) for p in policies])


def _suite_mean(rates: Rates, policy: str, strata: Sequence[str]) -> float | None:
    """The equal-weight mean of a policy over strata; None where it lacks one of them."""
    counts = [rates.counts.get((policy, stratum)) for stratum in strata]
    values = [c.value for c in counts if c is not None and c.value is not None]
    return sum(values) / len(values) if len(values) == len(strata) else None


def times_missing(analysis: Analysis) -> Block:
    """Why there are no times to rank by."""
    assert isinstance(analysis.ranking, Absent)
    return missing('Time to success', analysis.ranking)


def condition_block(frame: ComparisonFrame) -> list[Block]:
    """Which condition policies are ranked under, where there are several."""
    if frame.n_conditions < 2:
        return []
    words = f'condition {frame.condition}' if frame.condition else 'all conditions pooled'
    return [paragraph(f'Ranked by the episodes of {words}.')]


def pooled_count(rates: Rates, policy: str) -> tuple[int | None, int | None]:
    """(successes, episodes) of a policy over the strata that it is judged on; nothing where it has none of them."""
    count = rates.counts.get((policy, ALL_STRATA))
    return (None, None) if count is None else (count.count, count.n)


# A report's section on failures: competing risks of how operations end, and counts of how episodes ended.

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
    incidences = {p: i for p, i in analysis.incidences.items() if isinstance(i, Incidence)}
    policies = [p for p in (*shown_order(analysis, frame), *frame.apart) if p in incidences]
    sheet, filters = incidence_table(incidences, policies, frame)
    modes = {m.policy: m for m in analysis.failures}
    counted = [modes[p] for p in policies if p in modes]
    return [
        paint_page(incidence_plot(incidences, frame, analysis.behind, policies)),
        table_block('incidence-table', sheet, INCIDENCE_DEFINITIONS, episodes=filters),
        table_block(
            'failure-episodes', episode_table(counted), EPISODE_DEFINITIONS,
            episodes=[of_policies(frame, m.policy) for m in counted],
        ),
    ]  # fmt: skip


def incidence_table(
    incidences: Mapping[str, Incidence], policies: Sequence[str], frame: ComparisonFrame
) -> tuple[Table, list[EpisodeFilter]]:
    """One row per policy and end: its cumulative incidence by tau and the mean time lost to it."""
    rows: list[tuple[Cell, ...]] = []
    filters: list[EpisodeFilter] = []
    for policy in policies:
        for cause in CAUSES:
            c = incidences[policy].causes[cause]
            is_done = cause is CAUSES[0]
            lost: tuple[Cell, ...] = (None, None, None) if is_done else (c.time_lost_s, *ends(c.time_lost_interval))
            rows.append((
                policy, ENDS[cause], 100 * c.chance[-1], 100 * c.by_tau,
                *ends(c.by_tau_interval, 100.0), *lost, c.n_operations,
            ))  # fmt: skip
            filters.append(of_policies(frame, policy))
    columns: list[str | Column] = ['policy', 'end']
    columns += [
        Column(n, '.1f')
        for n in ('by the end (%)', 'by tau (%)', 'low', 'high', 'time lost (s)', 'lost low', 'lost high')
    ]
    censored = sum(i.n_lost for i in incidences.values())
    level = f'{100 * next(iter(incidences.values())).level:g} %' if incidences else ''
    note = (
        'Cumulative incidence (Aalen-Johansen), the mean over strata of equal weight: ends compete, so they and what '
        'is still under way add up to 100 %. Time lost is the mean time up to tau that this end takes from an '
        f'operation. {level} intervals: jackknife-t with an allowance for ends not yet seen.'
    )
    if censored:
        note += f' {censored} operations were lost to follow-up and are censored.'
    return without_empty(table('How operations end', [*columns, 'operations'], rows, note=note)), filters


def episode_table(modes: Sequence[FailureModes]) -> Table:
    """How episodes ended, in counts' shares; one episode may be in several columns."""
    rows: list[tuple[Cell, ...]] = [
        (
            m.policy, m.n_episodes, 100 * m.episode_rate(Outcome.SUCCESS), 100 * m.dropping_rate,
            100 * m.safety_stop_rate, 100 * m.episode_rate(Outcome.TIMEOUT), 100 * m.episode_rate(Outcome.FAILURE),
            m.n_operations, 100 * m.ghost_share, percent(m.hard_failure),
            m.n_assists, m.n_invalid,
        )
        for m in modes
    ]  # fmt: skip
    names = [
        'policy', 'episodes', 'outcome success (%)', 'with a drop (%)', 'safety stop (%)', 'time-out (%)',
        'failure (%)', 'operations', 'ghosts (%)', 'hard failure (%)', 'assists', 'invalid',
    ]  # fmt: skip
    note = 'Shares of valid episodes, all strata pooled; ghosts and hard failure are shares of operations.'
    return table('How episodes ended', [Column(n, '.1f' if n.endswith('(%)') else '') for n in names], rows, note=note)


# A report's section on episode success: an endpoint of its own, with its own tests, letters and needed N.

SUCCESS_DEFINITIONS = {
    'letters': 'letters', 'episode success (%)': 'success', 'low': 'interval', 'high': 'interval',
    'successes': 'success', 'episodes': 'episode', 'units': 'unit',
}  # fmt: skip


def success_blocks(analysis: Analysis, frame: ComparisonFrame, rates: Rates, colors: Mapping[str, str]) -> list[Block]:
    """The rates of every policy, then every pair; the pairs are left to another section where success is primary."""
    sheet = success_table(analysis, frame, rates)
    filters = [of_policies(frame, policy) for policy in shown_order(analysis, frame)]
    letters = letters_of(analysis, EndpointName.SUCCESS)
    blocks: list[Block] = [
        paint_page(success_plot(rates, frame, shown_order(analysis, frame), letters), colors),
        table_block('success-table', sheet, SUCCESS_DEFINITIONS, episodes=filters),
    ]
    if not isinstance(analysis.stories, Absent):
        blocks += story_paragraphs(analysis.stories, analysis)
    if EndpointName.SUCCESS not in analysis.primary:
        blocks += endpoint_blocks(analysis, frame, EndpointName.SUCCESS)
    return blocks


def success_table(analysis: Analysis, frame: ComparisonFrame, rates: Rates) -> Table:
    letters = letters_of(analysis, EndpointName.SUCCESS)
    rows: list[tuple[Cell, ...]] = []
    for policy in shown_order(analysis, frame):
        rate = rates.macro[policy]
        value = percent(rate.value)
        rows.append((
            policy, letters.get(policy), value, *ends(rate.interval, 100.0), *pooled_count(rates, policy), rate.n
        ))  # fmt: skip
    columns: list[str | Column] = ['policy', 'letters', Column('episode success (%)', '.1f'), Column('low', '.1f')]
    columns += [Column('high', '.1f'), 'successes', 'episodes', 'units']
    level = f'{100 * analysis.plan.level:g} %'
    kind = (
        'Wilson'
        if len(frame.strata) == 1 and all(r.n == pooled_count(rates, p)[1] for p, r in rates.macro.items())
        else 'jackknife-t with an allowance for what was not seen'
    )
    note = f'The mean over strata of equal weight; {level} intervals: {kind}. Units are {analysis.plan.unit}s.'
    if letters:
        note += ' Policies sharing a letter are not significantly different.'
    return without_empty(table('Episode success', columns, rows, note=note))


def shown_order(analysis: Analysis, frame: ComparisonFrame) -> tuple[str, ...]:
    """The reference, then the ranked policies by the first primary endpoint, best first; policies apart come last."""
    pairs = analysis.pairs
    ranked = frame.policies
    if not isinstance(pairs, Absent) and not isinstance(pairs.lead, Absent):
        ranked = pairs.lead.policies
    elif not isinstance(analysis.ranking, Absent):
        ranked = analysis.ranking.order
    return (*((frame.reference,) if frame.reference else ()), *ranked)


# The plots of a report, each from one part of an analysis.

EVERY_STRATUM = 'all strata'
ENDS = {
    OperationEnd.SUCCESS: 'done', OperationEnd.DROP: 'dropped', OperationEnd.SAFETY_STOP: 'safety stop',
    OperationEnd.FAILURE: 'failed',
    OperationEnd.TIME_OUT: 'timed out',
}  # fmt: skip
UNDER_WAY = 'under way'
SHARED_LETTER = 'Policies sharing a letter are not significantly different.'


def ranking_plot(ranking: Ranking, frame: ComparisonFrame, letters: Mapping[str, str]) -> Plot:
    """RMST of every ranked policy with its interval and letters: over all strata, and in each."""
    policies = ranked_policies(ranking)
    rows = {
        EVERY_STRATUM: [
            _row(p, ranking.scores[p].macro['rmst_s'], letters.get(p, ''), episodes=of_policies(frame, p))
            for p in policies
        ]
    }
    if len(ranking.strata) > 1:
        for stratum in ranking.strata:
            cells = {p: ranking.scores[p].cells.get(stratum) for p in policies}
            rows[stratum] = [
                _row(p, None if cell is None else cell['rmst_s'], episodes=of_policies(frame, p, stratum=stratum))
                for p, cell in cells.items()
            ]
    note = f'Capped at {ranking.times.tau_text}.'
    return Plot(
        'ranking-chart', 'Restricted mean time to success', facets(rows), Axis('seconds (less is better)'),
        number_format='.1f', note=f'{note} {SHARED_LETTER}' if letters else note,
    )  # fmt: skip


def _row(
    policy: str, estimate: Estimate | None, letters: str = '', *, scale: float = 1.0, episodes: EpisodeFilter
) -> Point:
    low, high = ends(None if estimate is None else estimate.interval, scale)
    value = None if estimate is None or estimate.value is None else scale * estimate.value
    return Point(policy, value, x_low=low, x_high=high, letters=letters, episodes=episodes)


def success_plot(
    rates: Rates, frame: ComparisonFrame, policies: Sequence[str], letters: Mapping[str, str]
) -> Plot:  # fmt: skip
    """Episode success of every ranked policy with its interval and letters: over all strata, and in each."""
    rows = {
        EVERY_STRATUM: [
            _row(p, rates.macro[p], letters.get(p, ''), scale=100.0, episodes=of_policies(frame, p)) for p in policies
        ]
    }
    if len(frame.strata) > 1:
        for stratum in frame.strata:
            counts = {p: rates.counts.get((p, stratum)) for p in policies}
            rows[stratum] = [
                _row(p, None if c is None else Estimate(c.value, c.interval), scale=100.0,
                     episodes=of_policies(frame, p, stratum=stratum))
                for p, c in counts.items()
            ]  # fmt: skip
    return Plot(
        'success-chart', 'Episode success', facets(rows), Axis('% of episodes (more is better)', (0.0, 100.0)),
        number_format='.0f', note=SHARED_LETTER if letters else '',
    )  # fmt: skip


def curve_plot(
    curves: Mapping[str, tuple[PolicyCurve, ...]], ranking: Ranking, frame: ComparisonFrame, *, level: float
) -> Plot:
    """F(t) with pointwise bands: the mean over the ranked strata, and each stratum.

    A policy that stands apart is drawn only in the strata that it was run on.
    """
    drawn: dict[str, list[Curve]] = {}
    for stratum, every in curves.items():
        taus = ranking.times.taus_s
        end_s = taus[stratum] if stratum else min(taus[s] for s in ranking.strata or taus)
        kept = [c for c in every if stratum or c.policy not in ranking.apart]
        drawn[stratum or EVERY_STRATUM] = [
            _steps(c, end_s, of_policies(frame, c.policy, stratum=stratum))
            for c in sorted(kept, key=lambda c: ranking.policies.index(c.policy))
        ]
    return Plot(
        'curve-chart', 'Operations done by time t', facets(drawn), Axis('time (s)', (0.0, ranking.tau_s)),
        Axis('operations done by then', (0.0, 1.0)),
        note=f'F(t), Kaplan-Meier; shaded: pointwise {100 * level:g} % bands that take start states (or episodes), not '
        'operations, as independent. Over all strata: their equal-weight mean, as far as every stratum is judged. '
        'Where all are done the band has no width and none is given: see the interval of episode success.',
    )  # fmt: skip


def _steps(curve: PolicyCurve, end_s: float, episodes: EpisodeFilter) -> Curve:
    """The curve as far as it is judged: where strata have caps of their own, the mean ends at the smallest."""
    n = int((curve.times_s <= end_s).sum())
    low, high = (None if band is None else band[:n].tolist() for band in (curve.low, curve.high))
    return Curve(
        curve.policy, curve.times_s[:n].tolist(), curve.chance[:n].tolist(), low, high, is_step=True, end=end_s,
        episodes=episodes,
    )  # fmt: skip


def incidence_plot(
    incidences: Mapping[str, Incidence], frame: ComparisonFrame, behind: EpisodesBehind, policies: Sequence[str]
) -> Plot:
    """How operations ended: by the end of observation, and by tau."""
    by_end = {p: behind.by_end(frame, p) for p in policies}

    def bars(policy: str, *, at_tau: bool) -> list[Bar]:
        incidence = incidences[policy]
        shares = [incidence.causes[c].by_tau if at_tau else incidence.causes[c].chance[-1] for c in CAUSES]
        rest = incidence.under_way_at_tau if at_tau else incidence.under_way[-1]
        everyone = of_policies(frame, policy)
        parts = [
            Bar(policy, policy, share, ENDS[c], episodes=these_episodes(by_end[policy].get(c, ()), everyone))
            for c, share in zip(CAUSES, shares, strict=True)
        ]
        return [*parts, Bar(policy, policy, rest, UNDER_WAY, episodes=everyone)]

    drawn = {
        label: [bar for p in policies for bar in bars(p, at_tau=at_tau)]
        for label, at_tau in (('by the end', False), ('by tau', True))
    }
    return Plot(
        'failure-chart', 'How operations end', facets(drawn), Axis('share of operations'),
        names=(*ENDS.values(), UNDER_WAY),
        note='Cumulative incidence (Aalen-Johansen), the mean over strata, by the end of observation or by tau.',
    )  # fmt: skip


def success_grid(rates: Rates, frame: ComparisonFrame, policies: Sequence[str], strata: Sequence[str]) -> Plot:
    """Episode success of every policy in every stratum."""
    tiles = []
    for stratum in strata:
        for policy in policies:
            count = rates.counts.get((policy, stratum))
            detail = '' if count is None else f'{count.count} of {count.n} episodes'
            value = None if count is None else percent(count.value)
            behind = None if count is None else of_policies(frame, policy, stratum=stratum)
            tiles.append(Tile(policy, stratum, value, detail, behind))
    return Plot(
        'success-grid', 'Episode success in every cell', facets(tiles), value=Axis('episode success (%)', (0.0, 100.0)),
        number_format='.0f', names=tuple(policies), rows=tuple(strata),
    )  # fmt: skip
