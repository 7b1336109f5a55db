"""Tables of time to success and of episode success: the ranking, full scores, failures, labels, calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from robotrials.measure.timing import Cause
from robotrials.measure.timing.scalar import scalar_label
from robotrials.record import Outcome
from robotrials.show.card import Card
from robotrials.show.phrase import ends, plural
from robotrials.show.table import Column, table
from robotrials.show.terminal import estimate_text
from robotrials.show.verdict_text import design_text, letters_sentence
from robotrials.verdict.analysis.success import ALL_STRATA

if TYPE_CHECKING:
    from robotrials.measure.timing import CohortScore, FailureModes, LabelSensitivity, LogrankPair, RelativeScore
    from robotrials.show.table import Cell, Table
    from robotrials.stats import Estimate
    from robotrials.verdict.analysis import Absent, ComparisonFrame, EndpointPairs, Ranking, Rates
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
    found = ranking.relative.get(policy)
    if found is None or found.value is None:
        return None, None, None
    low, high = ends(found.macro.interval, 100.0)
    return 100 * found.value, low, high


def _ranking_note(ranking: Ranking, policies: Sequence[str], level: float, pairs: EndpointPairs | None) -> str:
    n = len(ranking.strata)
    over = 'in one stratum' if n == 1 else f'mean over {n} strata'
    told = [f'RMST up to tau = {ranking.times.tau_text}, {over}; {100 * level:g} % intervals.']
    taus = ranking.times.taus_s.values()
    if min(taus) < max(taus):
        told.append(f'Pooled over strata it is up to {min(taus):g} s, which all of them were followed to.')
    if ranking.reference:
        told.append(f'HRT is relative to {ranking.reference}, mean over strata.')
    else:
        told.append('No HRT: no policy is marked as the reference.')
    dropped = sorted({s for p in policies if p in ranking.relative for s in ranking.relative[p].dropped})
    if dropped:
        told.append(f'Strata without a partner, left out of HRT: {", ".join(dropped)}.')
    lonely = [p for p in policies if ranking.reference not in (None, p) and p not in ranking.relative]
    told += [f'{p}: no HRT, it shares no stratum with {ranking.reference}.' for p in lonely]
    told += [f'{p} is not ranked: {why}.' for p, why in ranking.apart.items() if p in policies]
    told += [f'{p}: {e.note}.' for p in policies if (e := ranking.scores[p].macro['rmst_s']).note]
    if pairs is not None:
        told.append(letters_sentence(pairs, policies))
    return ' '.join(told)


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
            (
                policy,
                scaled(macro.value, 100.0),
                *ends(macro.interval, 100.0),
                count.count,
                count.n,
                letters.get(policy),
            )
        )
    columns: list[str | Column] = [
        'policy', Column('success (%)', '.1f'), Column('low', '.1f'), Column('high', '.1f'), 'successes', 'episodes',
        'letters',
    ]  # fmt: skip
    n = len(frame.strata)
    over = 'One stratum' if n == 1 else f'Mean over {n} strata'
    told = [f'{over}; {100 * level:g} % intervals.']
    told += [f'{p}: {rates.macro[p].note}.' for p in policies if rates.macro[p].note]
    told += [f'{p} is not compared: {why}.' for p, why in frame.apart.items() if p in policies]
    if pairs is not None:
        told += [letters_sentence(pairs, policies), design_text(pairs.pairs)]
    if absent is not None:
        told.append(f'No time to success: {absent.reason}{f"; {absent.remedy}" if absent.remedy else ""}.')
    return table('Episode success', columns, rows, note=' '.join(told))


def scalar_table(score: CohortScore, *, scope: str = 'macro', stratum: str | None = None) -> Table:
    """Every scalar of one policy with its intervals: macro, pooled, or one stratum's."""
    found: Mapping[str, Estimate] = getattr(score, scope) if stratum is None else score.cells[stratum]
    rows = [(scalar_name(n), *_estimate_cells(e)) for n, e in found.items()]
    where = scope if stratum is None else stratum
    return table(f'{score.policy} ({where})', ['scalar', *ESTIMATE_COLUMNS], rows)


def relative_table(title: str, found: Mapping[str, RelativeScore], *, note: str = '') -> Table:
    """A scalar against the reference: per policy the mean over strata, other readings of it by name, each stratum."""
    rows: list[tuple[Cell, ...]] = []
    for policy, score in found.items():
        for name, e in {'macro': score.macro, **score.rows, **score.per_stratum}.items():
            rows.append((policy, name, *_estimate_cells(e)))
    return table(title, ['policy', 'stratum', *ESTIMATE_COLUMNS], rows, note=note)


ESTIMATE_COLUMNS: list[str | Column] = [
    *(Column(n, '.4g') for n in (
        'value', 'low', 'high', 'percentile low', 'percentile high', 'BCa low', 'BCa high',
    )), 'note',
]  # fmt: skip


def _estimate_cells(found: Estimate) -> tuple[Cell, ...]:
    return found.value, *ends(found.interval), *ends(found.percentile), *ends(found.bca), found.note


def failure_tables(found: Sequence[FailureModes]) -> list[Table]:
    """Appendix F's decomposition, by operation and by episode, with the three meanings of hard failure."""
    causes = {
        'placed %': Cause.PLACEMENT, 'dropped outside %': Cause.DROP_OUTSIDE, 'uncollected %': Cause.DROP_UNCOLLECTED,
        'safety stop %': Cause.SAFETY_STOP, 'failed %': Cause.FAILURE, 'unfinished %': Cause.TAIL,
    }  # fmt: skip
    by_operation = [
        (
            m.policy, m.n_operations, *(100 * m.operation_rate(cause) for cause in causes.values()),
            100 * m.ghost_share, None if m.hard_failure is None else 100 * m.hard_failure, 100 * m.missing_at_tau,
        )
        for m in found
    ]  # fmt: skip
    by_episode = [
        (
            m.policy, m.n_episodes, 100 * m.episode_rate(Outcome.SUCCESS), 100 * m.dropping_rate,
            100 * m.safety_stop_rate, 100 * m.episode_rate(Outcome.TIMEOUT), 100 * m.episode_rate(Outcome.FAILURE),
            m.n_assists, m.n_invalid,
        )
        for m in found
    ]  # fmt: skip
    after = ['ghost share %', 'hard failure %', 'not placed by tau %']
    taus = ', '.join(sorted({f'{m.tau_s:g}' for m in found}))
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


def logrank_table(found: Sequence[LogrankPair], *, n_pairs: int) -> Table:
    """Table 3's layout: logrank of every pair, stratified and pooled, classical and robust, with corrected p-values."""
    rows = [
        (p.policy_a, p.policy_b, 'stratified' if p.stratified else 'pooled', p.variance, p.p_value, p.p_bonferroni,
         p.p_holm)
        for p in found
    ]  # fmt: skip
    note = (
        f'Corrected over {n_pairs} {"pair" if n_pairs == 1 else "pairs"}, each kind of test on its own, on the common '
        'follow-up of each pair. The classical variance takes operations as independent; the robust one only episodes.'
    )
    columns: list[str | Column] = [
        'a', 'b', 'strata', 'variance', Column('p', '.3g'), Column('p (Bonferroni)', '.3g'), Column('p (Holm)', '.3g')
    ]  # fmt: skip
    return table('Logrank', columns, rows, note=note)


def label_table(found: Sequence[LabelSensitivity]) -> Table:
    """Table 7's layout for any label: items placed over items by value, and how evenly episodes are split."""
    rows: list[tuple[Cell, ...]] = []
    for s in found:
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
    missing = sum(s.n_unlabelled for s in found)
    note = f'{missing} episodes without the label or a count of items were left out.' if missing else ''
    return table(f'Items placed by {found[0].label}', columns, rows, note=note)


def calibration_card(found: Calibration) -> Card:
    """Whether the test rejects as often as it should where nothing differs."""
    from robotrials.verdict.planning.detection import ALPHAS

    alpha = ALPHAS[1]
    over = [row for row in found.rows if row.rejection(alpha)[1].low > alpha]
    mean = sum(row.rejection(alpha)[0] for row in found.rows) / len(found.rows)
    verdict = (
        f'The test rejects too often in {len(over)} of {plural(len(found.rows), "null scenario")}.' if over
        else f'The test keeps its level in all {plural(len(found.rows), "null scenario")}.'
    )  # fmt: skip
    rows = [('mean of all', f'rejects {100 * mean:.1f} % at alpha {alpha:g}')]
    for row in sorted(found.rows, key=lambda r: -r.rejection(alpha)[0]):
        rate, interval = row.rejection(alpha)
        share = estimate_text(100 * rate, interval.scaled(100.0), unit=' %')
        rows.append((row.setup.value.replace('_', ' '), f'{share}   {row.name}'))
    return Card(
        title='Null calibration of the macro-KS test', scope=f'{plural(found.n_trials, "trial")} per scenario',
        verdict=(verdict,), rows=tuple(rows), notes=tuple(f'Skipped: {why}.' for why in found.skipped),
    )  # fmt: skip


def calibration_table(found: Calibration) -> Table:
    """Table 8's layout: mean p and rejection rates under each null scenario, with Monte-Carlo intervals."""
    from robotrials.verdict.planning.detection import ALPHAS

    rows: list[tuple[Cell, ...]] = []
    for row in found.rows:
        cells: list[Cell] = [row.setup.value, row.name, row.mean_p]
        for alpha in ALPHAS:
            rate, interval = row.rejection(alpha)
            cells += [rate, interval.low, interval.high]
        rows.append(tuple(cells))
    if len(found.rows) > 1:
        rates = [sum(row.rejection(alpha)[0] for row in found.rows) / len(found.rows) for alpha in ALPHAS]
        mean_p = sum(row.mean_p for row in found.rows) / len(found.rows)
        rows.append(('mean', '', mean_p, *(v for rate in rates for v in (rate, None, None))))
    rows.append(('nominal', '', 0.5, *(v for alpha in ALPHAS for v in (alpha, None, None))))
    columns: list[str | Column] = ['setup', 'scenario', Column('mean p', '.3f')]
    for alpha in ALPHAS:
        columns += [
            Column(f'Pr(p<={alpha:g})', '.3f'),
            Column(f'{alpha:g} low', '.3f'),
            Column(f'{alpha:g} high', '.3f'),
        ]
    note = f'{found.method}, {found.rule}; {found.n_trials} trials of {found.n_resamples} resamples per row.'
    if found.skipped:
        note += ' Skipped: ' + '; '.join(found.skipped) + '.'
    return table('Null calibration of the macro-KS test', columns, rows, note=note)
