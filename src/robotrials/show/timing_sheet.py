"""Tables of time to success and episode success by name, from an analysis."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from robotrials.errors import InputError
from robotrials.show.request import named_table
from robotrials.show.table import Column, Table, table
from robotrials.show.timing import (
    calibration_table,
    failure_tables,
    label_table,
    logrank_table,
    ranking_table,
    relative_table,
    scalar_table,
    success_table,
)
from robotrials.verdict.analysis import Absent, present
from robotrials.verdict.analysis.subject import Input
from robotrials.verdict.analysis.success import ALL_STRATA
from robotrials.verdict.planning.analysis_plan import EndpointName

if TYPE_CHECKING:
    from robotrials.show.request import ShowRequest
    from robotrials.show.table import Cell
    from robotrials.verdict.analysis import Comparisons, EndpointPairs
    from robotrials.verdict.analysis.detail import StratumPair, TaskSuccess

CALIBRATION_TRIALS = 500
# PhAIL's Table 1; UPH by the first formula there, and MTBF/A of the whole episode.
DEFINITIONS = (
    ('items placed within τ', 'F(τ)'),
    ('median time to success', 'smallest t with F(t) ≥ 0.5'),
    ('RMST(τ), restricted mean time', 'integral of 1 - F(t) from 0 to τ'),
    ('UPH, units per hour', '3600 / E[T given T < τ], or 3600 / RMST(τ)'),
    ('items placed within the budget', 'F(τ) at the time budget of the episode'),
    ('MTBF/A, mean time between failures or assists', 'RMST(τ) / (1 - F(τ))'),
    ('HRT, relative throughput', 'RMST(τ) of the reference / RMST(τ), mean over strata'),
    ('AUC', 'P(T < T of the reference), mean over strata'),
)


def headline(request: ShowRequest) -> list[Table]:
    """RMST, HRT and episode success of every policy, with intervals and letters; without times, success alone."""
    analysis = request.analysis
    ranking = analysis.ranking
    if isinstance(ranking, Absent):
        return [_success(request, absent=ranking)]
    shown = request.shown(ranking.policies)
    times = ranking_table(
        ranking, [p for p in shown if p in ranking.scores], level=analysis.plan.level,
        pairs=endpoint_pairs(request, EndpointName.TIME),
    )  # fmt: skip
    tables = [times, _success(request)]
    return tables if EndpointName.SUCCESS not in analysis.primary[:1] else tables[::-1]


def success(request: ShowRequest) -> list[Table]:
    """Episode success of every policy, mean over strata, with counts and letters; then every pair."""
    found = endpoint_pairs(request, EndpointName.SUCCESS)
    shown = [_success(request)]
    pairs = request.analysis.pairs
    if found is not None and not isinstance(pairs, Absent):
        shown += _endpoint(request, found, pairs)
    return shown


def _success(request: ShowRequest, *, absent: Absent | None = None) -> Table:
    analysis = request.analysis
    frame, rates = present(analysis.frame), present(analysis.success)
    found = endpoint_pairs(request, EndpointName.SUCCESS)
    order = frame.policies if found is None else found.policies
    named = (*((frame.reference,) if frame.reference else ()), *order, *frame.apart)
    everyone = [p for p in named if (p, ALL_STRATA) in rates.counts]  # a reference may lack every ranked stratum
    return success_table(rates, frame, request.shown(everyone), level=analysis.plan.level, pairs=found, absent=absent)


def endpoint_pairs(request: ShowRequest, name: EndpointName) -> EndpointPairs | None:
    """The pairs of one endpoint, where it is among those of the analysis and could be compared."""
    pairs = request.analysis.pairs
    if isinstance(pairs, Absent):
        return None
    found = pairs.endpoints.get(name)
    return None if found is None or isinstance(found, Absent) else found


def scalars(request: ShowRequest) -> list[Table]:
    """Every scalar of the success curve with its intervals, mean over strata, one table per policy."""
    ranking = present(request.analysis.ranking)
    return [scalar_table(ranking.scores[p]) for p in request.shown(ranking.policies) if p in ranking.scores]


def scalars_by_stratum(request: ShowRequest) -> list[Table]:
    """Every scalar of the success curve in each stratum, and with all strata pooled, by policy."""
    ranking = present(request.analysis.ranking)
    shown = []
    for policy in request.shown(ranking.policies):
        if policy in ranking.scores:
            score = ranking.scores[policy]
            shown += [scalar_table(score, stratum=s) for s in request.shown_strata(score.cells)]
            shown += [] if request.strata else [scalar_table(score, scope='pooled')]
    return shown


def relative(request: ShowRequest) -> list[Table]:
    """HRT and AUC against the reference, mean over strata and in each of them."""
    ranking = present(request.analysis.ranking)
    if ranking.reference is None:
        raise InputError('HRT and AUC are measured against a reference, and none is marked or declared')
    kept = request.shown(ranking.relative)
    against = f'Against {ranking.reference}.'
    return [
        relative_table('HRT (fraction)', {p: ranking.relative[p] for p in kept}, note=against),
        relative_table('AUC = P(T < T reference)', {p: ranking.areas[p] for p in kept}, note=against),
    ]


scalar_definitions = named_table(
    'What each scalar is as a function of the success curve F(t).',
    lambda _: table('Scalars of the success curve', ['scalar', 'of F(t)'], DEFINITIONS),
    wants=Input.NOTHING,
)


def pairs(request: ShowRequest) -> list[Table]:
    """Every pair of policies on every endpoint: corrected p-values, verdicts, needed N; of two policies, everything."""
    from robotrials.show.pair_table import decision_table, pair_tables

    found = present(request.analysis.pairs)
    if len(request.policies) == 2:
        a, b = compared(request)
        strata = request.analysis.detail.strata
        own = (
            () if isinstance(strata, Absent) else [d.seen_from(a) for d in strata if {d.policy_a, d.policy_b} == {a, b}]
        )
        return pair_tables(found, a, b, n_strata=len(present(request.analysis.frame).strata), strata=own)
    shown: list[Table] = []
    absent: list[str] = []
    for name, endpoint in found.endpoints.items():
        if isinstance(endpoint, Absent):
            absent.append(f'No comparison of {name.value}: {endpoint.reason}.')
        else:
            shown += _endpoint(request, endpoint, found)
    if not shown:
        present(next(e for e in found.endpoints.values() if isinstance(e, Absent)))
    first = decision_table(found, request.shown(found.tested[0].policies if found.tested else ()))
    return [Table(first.title, first.columns, first.rows, ' '.join([first.note, *absent])), *shown]


def _endpoint(request: ShowRequest, endpoint: EndpointPairs, found: Comparisons) -> list[Table]:
    from robotrials.show.pair_table import endpoint_table

    policies = request.shown(endpoint.policies)
    pairs = [p for p in endpoint.oriented() if p.policy_a in policies and p.policy_b in policies]
    return [endpoint_table(endpoint, pairs, policies=policies, comparisons=found)] if pairs else []


def compared(request: ShowRequest) -> tuple[str, str]:
    """The two policies asked for, both of which must be among those compared."""
    frame = present(request.analysis.frame)
    request.shown(())
    a, b = request.policies
    if a == b:
        raise InputError(f'{a} cannot be compared with itself; name two policies')
    for name in (a, b):
        if name == frame.reference:
            raise InputError(f'{name} is the reference: policies are measured against it by HRT and AUC, not compared')
        if name not in frame.policies:
            why = frame.apart.get(name) or 'none of its episodes is valid'
            raise InputError(f'{name} cannot be compared: {why}')
    return a, b


def shown_pairs(request: ShowRequest) -> list[tuple[str, str]]:
    """Pairs of the policies shown, in the order of the ranking."""
    frame = present(request.analysis.frame)
    return list(itertools.combinations(request.shown(frame.policies), 2))


def logrank(request: ShowRequest) -> list[Table]:
    """Logrank tests of every pair, stratified and pooled, corrected over the pairs."""
    found = present(request.analysis.detail.logranks)
    kept = [p for p in found if (p.policy_a, p.policy_b) in set(shown_pairs(request))]
    return [logrank_table(kept, n_pairs=len({(p.policy_a, p.policy_b) for p in found}))]


def differences(request: ShowRequest) -> list[Table]:
    """RMST differences of every pair in every stratum, corrected over all of them."""
    from robotrials.show.pair_table import stratum_table

    found: Sequence[StratumPair] = present(request.analysis.detail.strata)
    strata = request.shown_strata(dict.fromkeys(d.stratum for d in found))
    kept = [d for d in found if (d.policy_a, d.policy_b) in set(shown_pairs(request)) and d.stratum in strata]
    return [stratum_table(kept, title='RMST differences by stratum', n=len(found))]


def failures(request: ShowRequest) -> list[Table]:
    """How operations and episodes of every policy failed."""
    found = present(request.analysis.failures)
    shown = request.shown(m.policy for m in found)
    return failure_tables([m for m in found if m.policy in shown])


def labels(request: ShowRequest) -> list[Table]:
    """Items placed by a label of the episodes, such as the side of the camera; say which label."""
    found = request.analysis.detail.labels(request.label)
    shown = request.shown(s.policy for s in found)
    return [label_table([s for s in found if s.policy in shown])]


def calibration(request: ShowRequest) -> list[Table]:
    """Rejection rates of the macro-KS test on null data made from the store's own episodes."""
    resamples = request.analysis.plan.resamples
    found = request.analysis.planning.calibration(
        n_trials=min(CALIBRATION_TRIALS, resamples), n_resamples=min(CALIBRATION_TRIALS, resamples),
        label=request.label,
    )  # fmt: skip
    return [calibration_table(found)]


def recorded(request: ShowRequest) -> list[Table]:
    """Valid episodes and minutes of every stratum."""
    found = request.analysis.detail.recorded
    policies = request.shown(dict.fromkeys(r.policy for r in found))
    rows: list[Sequence[Cell]] = []
    totals: list[tuple[int, float | None]] = []
    for stratum in request.shown_strata(sorted({r.stratum for r in found})):
        own = [r for r in found if r.stratum == stratum and r.policy in policies]
        totals.append((sum(r.n_episodes for r in own), _sum([r.duration_s for r in own])))
        rows.append((stratum, totals[-1][0], _minutes(totals[-1][1])))
    rows.append(('all', sum(n for n, _ in totals), _minutes(_sum([d for _, d in totals]))))
    return [table('What was recorded', ['stratum', 'episodes', Column('duration (min)', '.1f')], rows)]


def _sum(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if len(known) == len(values) else None


def _minutes(value: float | None) -> float | None:
    return None if value is None else value / 60


def task_success(request: ShowRequest) -> list[Table]:
    """Episode success by task, conditions across, one table per policy; with intervals where there is one condition."""
    found = present(request.analysis.detail.task_success)
    policies = request.shown(dict.fromkeys(c.policy for c in found))
    level = request.analysis.plan.level
    return [_task_table(p, [c for c in found if c.policy == p], level) for p in policies]


def _task_table(policy: str, counts: Sequence[TaskSuccess], level: float) -> Table:
    conditions = list(dict.fromkeys(c.condition for c in counts))
    by_key = {(c.task, c.condition): c.rate for c in counts}
    is_single = len(conditions) == 1
    columns: list[str | Column] = ['task']
    for name in conditions:
        columns += [f'{name} successes', Column(f'{name} %', '.1f')]
    columns += [Column('low', '.1f'), Column('high', '.1f')] if is_single else []
    rows: list[Sequence[Cell]] = []
    for task in dict.fromkeys(c.task for c in counts):
        row: list[Cell] = [task]
        for name in conditions:
            rate = by_key.get((task, name))
            row += [None, None] if rate is None else [f'{rate.count}/{rate.n}', 100 * rate.count / rate.n]
        interval = by_key[task, conditions[0]].interval if is_single else None
        rows.append([*row, *(() if interval is None else (100 * end for end in interval))])
    last: list[Cell] = ['all']
    for name in conditions:
        own = [c.rate for c in counts if c.condition == name]
        done, n = sum(r.count for r in own), sum(r.n for r in own)
        last += [f'{done}/{n}', 100 * done / n]
    rows.append([*last, *((None, None) if is_single else ())])
    note = 'The last row adds the counts up.' + (f' Wilson intervals, {100 * level:g} %.' if is_single else '')
    return table(f'Episode success by task: {policy}', columns, rows, note=note)


def by_task(request: ShowRequest) -> list[Table]:
    """Episode success as papers print it: tasks down, policies across, and below the mean over strata."""
    analysis = request.analysis
    frame, rates = present(analysis.frame), present(analysis.success)
    policies = [p for p in request.shown(frame.everyone) if p in rates.macro]
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
        last += [None if value is None else 100 * value, None if total is None else f'{total.count}/{total.n}']
    columns: list[str | Column] = ['task']
    for policy in policies:
        columns += [Column(f'{policy} %', '.1f'), f'{policy} n']
    readings = None if isinstance(analysis.pairs, Absent) else analysis.pairs.readings
    if readings is not None:
        counted: list[Cell] = ['mean, invalid counted as failures']
        for policy in policies:
            bounds, value = readings.bounds.get(policy), rates.macro[policy].value
            low = value if bounds is None else bounds.low
            counted += [None if low is None else 100 * low, None]
        rows += [last]
        last = counted
    invalid = {p: len(frame.invalid.get(p, ())) for p in policies if frame.invalid.get(p)}
    aside = ', '.join(f'{p} {n}' for p, n in invalid.items())
    note = f'Invalid episodes are set aside: {aside}.' if aside else ''
    return [table('Episode success by task', columns, [*rows, last], note=note)]


def counts(request: ShowRequest) -> list[Table]:
    """Episodes by policy, stratum and outcome, and the recorded events."""
    from robotrials.show.record import count_tables

    analysis = request.analysis
    policies = request.shown(dict.fromkeys(e.policy for e in analysis.episodes))
    chosen = [e for e in analysis.episodes if e.policy in policies]
    return count_tables(chosen, n_dropped=analysis.quality.n_dropped)
