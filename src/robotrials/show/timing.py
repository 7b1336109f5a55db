"""Tables of time to success and of episode success: the ranking, full scores, failures, labels, calibration."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from robotrials.errors import InputError
from robotrials.measure.timing import Cause
from robotrials.measure.timing.scalar import scalar_label
from robotrials.record import Outcome
from robotrials.show.answer import Card
from robotrials.show.catalog import ShowRequest, named
from robotrials.show.phrase import design_text, ends, letters_sentence, percent, plural
from robotrials.show.table import Cell, Column, Table, table
from robotrials.verdict.analysis import Absent, present
from robotrials.verdict.analysis.ranking import ALL_STRATA
from robotrials.verdict.analysis.subject import Input
from robotrials.verdict.planning.analysis_plan import EndpointName

if TYPE_CHECKING:
    from robotrials.measure.timing import CohortScore, FailureModes, LabelSensitivity, LogrankPair, RelativeScore
    from robotrials.stats import Estimate
    from robotrials.verdict.analysis import ComparisonFrame, Comparisons, EndpointPairs, Ranking, Rates
    from robotrials.verdict.analysis.detail import StratumPair, TaskSuccess
    from robotrials.verdict.planning import Calibration

UNITS = {
    'rmst_s': ' (s)',
    'uph_of_successes': ' (1/h)',
    'uph_of_rmst': ' (1/h)',
    'mtbf_s': ' (s)',
    'median_s': ' (s)',
    'hard_failure': ' (plateau gap)',
    'auc_between': ' - 1/2',
}


def scalar_name(name: str) -> str:
    """How a scalar is headed in tables: its label, and its unit or meaning."""
    return scalar_label(name) + (' (s)' if name.startswith('quantile_') else UNITS.get(name, ''))


def scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def ranking_table(
    ranking: Ranking, policies: Sequence[str], *, level: float, pairs: EndpointPairs | None = None
) -> Table:
    """Macro RMST and HRT with their intervals, letters, intervention rate and episodes; the reference, then by rank."""
    letters = {} if pairs is None else pairs.letters
    rows: list[tuple[Cell, ...]] = []
    for policy in policies:
        score = ranking.scores[policy]
        macro = score.macro['rmst_s']
        rank = ranking.order.index(policy) + 1 if policy in ranking.order else None
        rows.append(
            (rank, policy, macro.value, *ends(macro.interval), score.pooled['rmst_s'].value, *_hrt(ranking, policy),
             letters.get(policy), 100 * score.intervention_rate, score.n_episodes, score.n_invalid)
        )  # fmt: skip
    columns: list[str | Column] = [
        'rank', 'policy', Column('RMST (s)', '.1f'), Column('RMST low', '.1f'), Column('RMST high', '.1f'),
        Column('pooled RMST (s)', '.1f'), Column('HRT (%)', '.1f'), Column('HRT low', '.1f'), Column('HRT high', '.1f'),
        'letters', Column('intervention (%)', '.1f'), 'episodes', 'invalid',
    ]  # fmt: skip
    return table('Time to success', columns, rows, note=_ranking_note(ranking, policies, level, pairs))


def _hrt(ranking: Ranking, policy: str) -> tuple[Cell, Cell, Cell]:
    if policy == ranking.reference:
        return 100.0, None, None
    hrt = ranking.relative.get(policy)
    if hrt is None or hrt.value is None:
        return None, None, None
    low, high = ends(hrt.macro.interval, 100.0)
    return 100 * hrt.value, low, high


def _ranking_note(ranking: Ranking, policies: Sequence[str], level: float, pairs: EndpointPairs | None) -> str:
    n = len(ranking.strata)
    over = 'in one stratum' if n == 1 else f'mean over {n} strata'
    parts = [f'RMST up to tau = {ranking.times.tau_text}, {over}; {100 * level:g} % intervals.']
    taus = ranking.times.taus_s.values()
    if min(taus) < max(taus):
        parts.append(f'Pooled over strata it is up to {min(taus):g} s, which all of them were followed to.')
    if ranking.reference:
        parts.append(f'HRT is relative to {ranking.reference}, mean over strata.')
    else:
        parts.append('No HRT: no policy is marked as the reference.')
    dropped = sorted({s for p in policies if p in ranking.relative for s in ranking.relative[p].dropped})
    if dropped:
        parts.append(f'Strata without a partner, left out of HRT: {", ".join(dropped)}.')
    lonely = [p for p in policies if ranking.reference not in (None, p) and p not in ranking.relative]
    parts += [f'{p}: no HRT, it shares no stratum with {ranking.reference}.' for p in lonely]
    parts += [f'{p} is not ranked: {why}.' for p, why in ranking.apart.items() if p in policies]
    parts += [f'{p}: {e.note}.' for p in policies if (e := ranking.scores[p].macro['rmst_s']).note]
    if pairs is not None:
        parts.append(letters_sentence(pairs, policies))
    return ' '.join(parts)


def success_table(
    rates: Rates, frame: ComparisonFrame, policies: Sequence[str], *, level: float, pairs: EndpointPairs | None = None,
    absent: Absent | None = None,
) -> Table:  # fmt: skip
    """Episode success: the mean over strata with its interval, counts and letters; `absent` says why no times."""
    letters = {} if pairs is None else pairs.letters
    rows: list[tuple[Cell, ...]] = []
    for policy in policies:
        macro, count = rates.macro[policy], rates.counts[policy, ALL_STRATA]
        rows.append(
            (policy, scaled(macro.value, 100.0), *ends(macro.interval, 100.0), count.count, count.n,
             letters.get(policy))
        )  # fmt: skip
    columns: list[str | Column] = [
        'policy', Column('success (%)', '.1f'), Column('low', '.1f'), Column('high', '.1f'), 'successes', 'episodes',
        'letters',
    ]  # fmt: skip
    n = len(frame.strata)
    over = 'One stratum' if n == 1 else f'Mean over {n} strata'
    parts = [f'{over}; {100 * level:g} % intervals.']
    parts += [f'{p}: {rates.macro[p].note}.' for p in policies if rates.macro[p].note]
    parts += [f'{p} is not compared: {why}.' for p, why in frame.apart.items() if p in policies]
    if pairs is not None:
        parts += [letters_sentence(pairs, policies), design_text(pairs.pairs)]
    if absent is not None:
        parts.append(f'No time to success: {absent.sentence}.')
    return table('Episode success', columns, rows, note=' '.join(parts))


def scalar_table(score: CohortScore, *, scope: str = 'macro', stratum: str | None = None) -> Table:
    """Every scalar of one policy with its intervals: macro, pooled, or one stratum's."""
    estimates: Mapping[str, Estimate] = getattr(score, scope) if stratum is None else score.cells[stratum]
    rows = [(scalar_name(n), *_estimate_cells(e)) for n, e in estimates.items()]
    where = scope if stratum is None else stratum
    return table(f'{score.policy} ({where})', ['scalar', *ESTIMATE_COLUMNS], rows)


def relative_table(title: str, scores: Mapping[str, RelativeScore], *, note: str = '') -> Table:
    """A scalar against the reference: per policy the mean over strata, other readings of it by name, each stratum."""
    rows: list[tuple[Cell, ...]] = []
    for policy, score in scores.items():
        for name, e in {'macro': score.macro, **score.rows, **score.per_stratum}.items():
            rows.append((policy, name, *_estimate_cells(e)))
    return table(title, ['policy', 'stratum', *ESTIMATE_COLUMNS], rows, note=note)


ESTIMATE_COLUMNS: list[str | Column] = [
    *(Column(n, '.4g') for n in (
        'value', 'low', 'high', 'percentile low', 'percentile high', 'BCa low', 'BCa high',
    )), 'note',
]  # fmt: skip


def _estimate_cells(estimate: Estimate) -> tuple[Cell, ...]:
    return estimate.value, *ends(estimate.interval), *ends(estimate.percentile), *ends(estimate.bca), estimate.note


def failure_tables(modes: Sequence[FailureModes]) -> list[Table]:
    """Appendix F's decomposition, by operation and by episode, with the three meanings of hard failure."""
    causes = {
        'placed %': Cause.PLACEMENT, 'dropped outside %': Cause.DROP_OUTSIDE, 'uncollected %': Cause.DROP_UNCOLLECTED,
        'safety stop %': Cause.SAFETY_STOP, 'failed %': Cause.FAILURE, 'unfinished %': Cause.TAIL,
    }  # fmt: skip
    by_operation = [
        (
            m.policy, m.n_operations, *(100 * m.operation_rate(cause) for cause in causes.values()),
            100 * m.ghost_share, percent(m.hard_failure), 100 * m.missing_at_tau,
        )
        for m in modes
    ]  # fmt: skip
    by_episode = [
        (
            m.policy, m.n_episodes, 100 * m.episode_rate(Outcome.SUCCESS), 100 * m.dropping_rate,
            100 * m.safety_stop_rate, 100 * m.episode_rate(Outcome.TIMEOUT), 100 * m.episode_rate(Outcome.FAILURE),
            m.n_assists, m.n_invalid,
        )
        for m in modes
    ]  # fmt: skip
    after = ['ghost share %', 'hard failure %', 'not placed by tau %']
    taus = ', '.join(sorted({f'{m.tau_s:g}' for m in modes}))
    return [
        table(
            'Failure modes by operation', _percent_columns('policy', 'operations', *causes, *after), by_operation,
            note='Drops, safety stops and failures before the time cap are ghosts: they never succeed. Unfinished '
            f'operations are censored. Hard failure is the gap of the plateau; tau = {taus} s.',
        ),
        table(
            'Failure modes by episode',
            _percent_columns(
                'policy', 'episodes', 'outcome success %', 'with a drop %', 'safety stop %', 'timeout %', 'failure %',
                'assists', 'invalid',
            ),
            by_episode,
            note='Shares of valid episodes; one episode may count in several columns.',
        ),
    ]  # fmt: skip


def _percent_columns(*names: str) -> list[str | Column]:
    return [Column(name, '.1f' if name.endswith('%') else '') for name in names]


def logrank_table(logrank_pairs: Sequence[LogrankPair], *, n_pairs: int) -> Table:
    """Table 3's layout: logrank of every pair, stratified and pooled, classical and robust, with corrected p-values."""
    rows = [
        (p.policy_a, p.policy_b, 'stratified' if p.stratified else 'pooled', p.variance, p.p_value, p.p_bonferroni,
         p.p_holm)
        for p in logrank_pairs
    ]  # fmt: skip
    note = (
        f'Corrected over {n_pairs} {"pair" if n_pairs == 1 else "pairs"}, each kind of test on its own, on the common '
        'follow-up of each pair. The classical variance takes operations as independent; the robust one only episodes.'
    )
    columns: list[str | Column] = [
        'a', 'b', 'strata', 'variance', Column('p', '.3g'), Column('p (Bonferroni)', '.3g'), Column('p (Holm)', '.3g')
    ]  # fmt: skip
    return table('Logrank', columns, rows, note=note)


@named(lambda r: r.rows_of(r.analysis.detail.labels(r.label)))
def label_table(sensitivities: Sequence[LabelSensitivity]) -> Table:
    """Items placed by a label of the episodes, such as the side of the camera; say which label."""
    rows: list[tuple[Cell, ...]] = []
    for s in sensitivities:
        low, high = ends(s.difference_interval, 100.0)
        for k, share in enumerate(s.shares):
            gap = (100 * s.difference, low, high) if k == 0 and s.difference is not None else (None, None, None)
            rows.append((s.policy, share.value, share.n_episodes, share.n_placed, share.n_items, 100 * share.completion,
                         *ends(share.interval, 100.0), *gap, s.is_balanced if k == 0 else None))  # fmt: skip
    columns: list[str | Column] = [
        'policy', 'value', 'episodes', 'placed', 'items', Column('items placed %', '.1f'), Column('low', '.1f'),
        Column('high', '.1f'), Column('difference (points)', '+.1f'), Column('diff. low', '+.1f'),
        Column('diff. high', '+.1f'), 'balanced',
    ]  # fmt: skip
    missing = sum(s.n_unlabelled for s in sensitivities)
    note = f'{missing} episodes without the label or a count of items were left out.' if missing else ''
    return table(f'Items placed by {sensitivities[0].label}', columns, rows, note=note)


def calibration_card(rates: Calibration) -> Card:
    """Whether the test rejects as often as it should where nothing differs."""
    from robotrials.verdict.planning.power import ALPHAS

    alpha = ALPHAS[1]
    over = [row for row in rates.rows if row.rejection(alpha)[1].low > alpha]
    mean = sum(row.rejection(alpha)[0] for row in rates.rows) / len(rates.rows)
    verdict = (
        f'The test rejects too often in {len(over)} of {plural(len(rates.rows), "null scenario")}.' if over
        else f'The test keeps its level in all {plural(len(rates.rows), "null scenario")}.'
    )  # fmt: skip
    rows = [('mean of all', f'rejects {100 * mean:.1f} % at alpha {alpha:g}')]
    for row in sorted(rates.rows, key=lambda r: -r.rejection(alpha)[0]):
        rate, interval = row.rejection(alpha)
        share, (low, high) = 100 * rate, interval.scaled(100.0)  # one precision: the rows are read against their mean
        rows.append((row.setup.value.replace('_', ' '), f'{share:.1f} % [{low:.1f}, {high:.1f}]   {row.name}'))
    return Card(
        title='Null calibration of the macro-KS test', scope=f'{plural(rates.n_trials, "trial")} per scenario',
        verdict=(verdict,), rows=tuple(rows), notes=tuple(f'Skipped: {why}.' for why in rates.skipped),
    )  # fmt: skip


def calibration_table(null: Calibration) -> Table:
    """Table 8's layout: mean p and rejection rates under each null scenario, with Monte-Carlo intervals."""
    from robotrials.verdict.planning.power import ALPHAS

    rows: list[tuple[Cell, ...]] = []
    for row in null.rows:
        cells: list[Cell] = [row.setup.value, row.name, row.mean_p]
        for alpha in ALPHAS:
            rate, interval = row.rejection(alpha)
            cells += [rate, interval.low, interval.high]
        rows.append(tuple(cells))
    if len(null.rows) > 1:
        rates = [sum(row.rejection(alpha)[0] for row in null.rows) / len(null.rows) for alpha in ALPHAS]
        mean_p = sum(row.mean_p for row in null.rows) / len(null.rows)
        rows.append(('mean', '', mean_p, *(v for rate in rates for v in (rate, None, None))))
    rows.append(('nominal', '', 0.5, *(v for alpha in ALPHAS for v in (alpha, None, None))))
    columns: list[str | Column] = ['setup', 'scenario', Column('mean p', '.3f')]
    for alpha in ALPHAS:
        columns += [Column(name, '.3f') for name in (f'Pr(p<={alpha:g})', f'{alpha:g} low', f'{alpha:g} high')]
    note = f'{null.method}, {null.rule}; {null.n_trials} trials of {null.n_resamples} resamples per row.'
    if null.skipped:
        note += ' Skipped: ' + '; '.join(null.skipped) + '.'
    return table('Null calibration of the macro-KS test', columns, rows, note=note)


# Tables of time to success and episode success by name, from an analysis.


CALIBRATION_TRIALS = 500
# PhAIL's Table 1; UPH by the first formula there, and MTBF/A of the whole episode.
DEFINITIONS = (
    ('share done within τ', 'F(τ)'),
    ('median time to success', 'smallest t with F(t) ≥ 0.5'),
    ('RMST(τ), restricted mean time', 'integral of 1 - F(t) from 0 to τ'),
    ('UPH, units per hour', '3600 / E[T given T < τ], or 3600 / RMST(τ)'),
    ('share done within the budget', 'F(τ) at the time budget of the episode'),
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
    kept = request.shown(ranking.policies)
    times = ranking_table(
        ranking, [p for p in kept if p in ranking.scores], level=analysis.plan.level,
        pairs=endpoint_pairs(request, EndpointName.TIME),
    )  # fmt: skip
    tables = [times, _success(request)]
    return tables if EndpointName.SUCCESS not in analysis.primary[:1] else tables[::-1]


def success(request: ShowRequest) -> list[Table]:
    """Episode success of every policy, mean over strata, with counts and letters; then every pair."""
    tested = endpoint_pairs(request, EndpointName.SUCCESS)
    tables = [_success(request)]
    pairs = request.analysis.pairs
    if tested is not None and not isinstance(pairs, Absent):
        tables += _endpoint(request, tested, pairs)
    return tables


def _success(request: ShowRequest, *, absent: Absent | None = None) -> Table:
    analysis = request.analysis
    frame, rates = present(analysis.frame), present(analysis.success)
    tested = endpoint_pairs(request, EndpointName.SUCCESS)
    order = frame.policies if tested is None else tested.policies
    named = (*((frame.reference,) if frame.reference else ()), *order, *frame.apart)
    everyone = [p for p in named if (p, ALL_STRATA) in rates.counts]  # a reference may lack every ranked stratum
    return success_table(rates, frame, request.shown(everyone), level=analysis.plan.level, pairs=tested, absent=absent)


def endpoint_pairs(request: ShowRequest, name: EndpointName) -> EndpointPairs | None:
    """The pairs of one endpoint, where it is among those of the analysis and could be compared."""
    pairs = request.analysis.pairs
    if isinstance(pairs, Absent):
        return None
    tested = pairs.endpoints.get(name)
    return None if tested is None or isinstance(tested, Absent) else tested


def scalars(request: ShowRequest) -> list[Table]:
    """Every scalar of the success curve with its intervals, mean over strata, one table per policy."""
    ranking = present(request.analysis.ranking)
    return [scalar_table(ranking.scores[p]) for p in request.shown(ranking.policies) if p in ranking.scores]


def scalars_by_stratum(request: ShowRequest) -> list[Table]:
    """Every scalar of the success curve in each stratum, and with all strata pooled, by policy."""
    ranking = present(request.analysis.ranking)
    tables = []
    for policy in request.shown(ranking.policies):
        if policy in ranking.scores:
            score = ranking.scores[policy]
            tables += [scalar_table(score, stratum=s) for s in request.shown_strata(score.cells)]
            tables += [] if request.strata else [scalar_table(score, scope='pooled')]
    return tables


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


@named(wants=Input.NOTHING)
def scalar_definitions() -> Table:
    """What each scalar is as a function of the success curve F(t)."""
    return table('Scalars of the success curve', ['scalar', 'of F(t)'], DEFINITIONS)


def pairs(request: ShowRequest) -> list[Table]:
    """Every pair of policies on every endpoint: corrected p-values, verdicts, needed N; of two policies, everything."""
    from robotrials.show.pair_table import decision_table, pair_tables

    comparisons = present(request.analysis.pairs)
    if len(request.policies) == 2:
        a, b = compared(request)
        strata = request.analysis.detail.strata
        own = (
            () if isinstance(strata, Absent) else [d.seen_from(a) for d in strata if {d.policy_a, d.policy_b} == {a, b}]
        )
        return pair_tables(comparisons, a, b, n_strata=len(present(request.analysis.frame).strata), strata=own)
    tables: list[Table] = []
    absent: list[str] = []
    for name, endpoint in comparisons.endpoints.items():
        if isinstance(endpoint, Absent):
            absent.append(f'No comparison of {name.value}: {endpoint.reason}.')
        else:
            tables += _endpoint(request, endpoint, comparisons)
    if not tables:
        present(next(e for e in comparisons.endpoints.values() if isinstance(e, Absent)))
    first = decision_table(comparisons, request.shown(comparisons.tested[0].policies if comparisons.tested else ()))
    return [Table(first.title, first.columns, first.rows, ' '.join([first.note, *absent])), *tables]


def _endpoint(request: ShowRequest, endpoint: EndpointPairs, comparisons: Comparisons) -> list[Table]:
    from robotrials.show.pair_table import endpoint_table

    policies = request.shown(endpoint.policies)
    pairs = [p for p in endpoint.oriented() if p.policy_a in policies and p.policy_b in policies]
    return [endpoint_table(endpoint, pairs, policies=policies, comparisons=comparisons)] if pairs else []


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
    logranks = present(request.analysis.detail.logranks)
    kept = [p for p in logranks if (p.policy_a, p.policy_b) in set(shown_pairs(request))]
    return [logrank_table(kept, n_pairs=len({(p.policy_a, p.policy_b) for p in logranks}))]


def differences(request: ShowRequest) -> list[Table]:
    """RMST differences of every pair in every stratum, corrected over all of them."""
    from robotrials.show.pair_table import stratum_table

    stratum_pairs: Sequence[StratumPair] = present(request.analysis.detail.strata)
    strata = request.shown_strata(dict.fromkeys(d.stratum for d in stratum_pairs))
    kept = [d for d in stratum_pairs if (d.policy_a, d.policy_b) in set(shown_pairs(request)) and d.stratum in strata]
    return [stratum_table(kept, title='RMST differences by stratum', n=len(stratum_pairs))]


def failures(request: ShowRequest) -> list[Table]:
    """How operations and episodes of every policy failed."""
    return failure_tables(request.rows_of(present(request.analysis.failures)))


def calibration(request: ShowRequest) -> list[Table]:
    """Rejection rates of the macro-KS test on null data made from the store's own episodes."""
    resamples = request.analysis.plan.resamples
    rates = request.analysis.planning.calibration(
        n_trials=min(CALIBRATION_TRIALS, resamples), n_resamples=min(CALIBRATION_TRIALS, resamples),
        label=request.label,
    )  # fmt: skip
    return [calibration_table(rates)]


def recorded(request: ShowRequest) -> list[Table]:
    """Valid episodes and minutes of every stratum."""
    every = request.analysis.detail.recorded
    chosen = request.rows_of(every)
    rows: list[Sequence[Cell]] = []
    totals: list[tuple[int, float | None]] = []
    for stratum in request.shown_strata(sorted({r.stratum for r in every})):
        own = [r for r in chosen if r.stratum == stratum]
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
    counts = request.rows_of(present(request.analysis.detail.task_success))
    level = request.analysis.plan.level
    policies = dict.fromkeys(c.policy for c in counts)
    return [_task_table(p, [c for c in counts if c.policy == p], level) for p in policies]


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


def counts(request: ShowRequest) -> list[Table]:
    """Episodes by policy, stratum and outcome, and the recorded events."""
    from robotrials.show.record import count_tables

    analysis = request.analysis
    return count_tables(request.rows_of(analysis.episodes), n_dropped=analysis.quality.n_dropped)
