"""Tables of time-to-success: the headline ranking, full scores, comparisons, failures, labels, calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trialist.analysis.pairs import AllPairs, TimingComparison
from trialist.episodes import Outcome
from trialist.planning import Calibration
from trialist.planning.calibration import ALPHAS
from trialist.show.table import Cell, Column, Table, table
from trialist.stats import Interval
from trialist.timing import (
    Cause,
    CohortScore,
    Estimate,
    FailureModes,
    LabelSensitivity,
    LogrankPair,
    RelativeScore,
    StratumDifference,
)
from trialist.timing.scalar import scalar_label

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


def ends(interval: Interval | None, scale: float = 1.0) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else (interval.low * scale, interval.high * scale)


def headline_table(
    scores: Sequence[CohortScore], relative: Mapping[str, RelativeScore], *, tau_s: float, n_resamples: int,
    reference: str | None, interval: str = 'percentile',
) -> Table:  # fmt: skip
    """Table 2's layout: pooled RMST, macro HRT, intervention rate, episodes; best HRT (or RMST) first."""
    rows: list[tuple[Cell, ...]] = []
    for score in sorted(scores, key=lambda s: _rank(s, relative, reference)):
        rmst_s = score.pooled['rmst_s']
        macro = score.macro['rmst_s']
        hrt = relative.get(score.policy)
        own: tuple[Cell, ...] = (None, None, None)
        if score.policy == reference:
            own = (100.0, None, None)
        elif hrt is not None and hrt.value is not None:
            own = (100 * hrt.value, *ends(getattr(hrt.macro, interval), 100.0))
        rows.append(
            (score.policy, rmst_s.value, *ends(getattr(rmst_s, interval)), macro.value, *own,
             100 * score.intervention_rate, score.n_episodes, score.n_invalid)
        )  # fmt: skip
    why = (
        f'HRT is relative to {reference}, macro over strata; both sides are resampled.'
        if reference
        else 'No HRT: no policy is marked as the reference; name one with --reference.'
    )
    note = f'tau = {tau_s:g} s; 95 % episode-clustered {interval} intervals, {n_resamples} resamples. {why}'
    dropped = sorted({s for r in relative.values() for s in r.dropped})
    if dropped:
        note += f' Strata without a partner, left out of HRT: {", ".join(dropped)}.'
    columns: list[str | Column] = [
        'policy', Column('RMST (s)', '.1f'), Column('RMST low', '.1f'), Column('RMST high', '.1f'),
        Column('macro RMST (s)', '.1f'), Column('HRT (%)', '.1f'), Column('HRT low', '.1f'), Column('HRT high', '.1f'),
        Column('intervention (%)', '.1f'), 'episodes', 'invalid',
    ]  # fmt: skip
    return table('Time to success', columns, rows, note=note)


def _rank(score: CohortScore, relative: Mapping[str, RelativeScore], reference: str | None) -> tuple[int, float]:
    if score.policy == reference:
        return 0, 0.0
    found = relative.get(score.policy)
    if found is not None and found.value is not None:
        return 1, -found.value
    value = score.pooled['rmst_s'].value
    return 2, float('inf') if value is None else value


def scalar_table(score: CohortScore, *, scope: str = 'macro', stratum: str | None = None) -> Table:
    """Every scalar of one policy with both intervals: macro, pooled, or one stratum's."""
    found: Mapping[str, Estimate] = getattr(score, scope) if stratum is None else score.cells[stratum]
    rows = [(scalar_name(n), e.value, *ends(e.percentile), *ends(e.bca), e.note) for n, e in found.items()]
    where = scope if stratum is None else stratum
    return table(f'{score.policy} ({where})', _estimate_columns('scalar'), rows)


def relative_table(title: str, found: Mapping[str, RelativeScore]) -> Table:
    """A scalar against the reference: one row a policy and stratum, macro first."""
    rows: list[tuple[Cell, ...]] = []
    for policy, score in found.items():
        for name, e in {'macro': score.macro, **score.per_stratum}.items():
            rows.append((policy, name, e.value, *ends(e.percentile), *ends(e.bca), e.note))
    return table(title, ['policy', *_estimate_columns('stratum')], rows)


def _estimate_columns(first: str) -> list[str | Column]:
    named = ('value', 'low', 'high', 'BCa low', 'BCa high')
    return [first, *(Column(n, '.4g') for n in named), 'note']


def comparison_table(found: TimingComparison) -> Table:
    """One comparison: the gate, then every scalar's advantage of a over b."""
    rows = [
        (scalar_name(n), e.value, *ends(e.percentile), _leaning(n, found), _test_p(n, found))
        for n, e in found.advantages.items()
    ]
    ks = found.ks
    note = (
        f'{found.sentence}\nAdvantages are oriented: positive favours {found.policy_a}. Macro KS {ks.statistic:.4f} '
        f'(null mean {ks.null_mean:.4f}), p = {ks.p_value:.4g} by {ks.method}, {ks.n_resamples} resamples; '
        f'{ks.n_episodes[0]} and {ks.n_episodes[1]} episodes.'
    )
    if ks.n_unmatched:
        note += f' {ks.n_unmatched} episodes without a partner were left out.'
    if found.logrank is not None:
        note += (
            f'\nStratified logrank: p = {found.logrank.robust.p_value:.3g} robust to episodes, '
            f'{found.logrank.classical.p_value:.3g} classical.'
        )
    if found.needed is not None:
        note += f'\nEpisodes a cell for {found.needed.power:.0%} power of the KS test: {found.needed}.'
    if 'hrt' not in found.advantages:
        note += '\nNo HRT and no AUC vs reference: no reference was given, or it shares no stratum.'
    elif found.without_reference:
        note += f'\nStrata that the reference lacks, left out of HRT and AUC: {", ".join(found.without_reference)}.'
    if ks.dropped:
        note += f'\nStrata of only one policy, left out: {", ".join(ks.dropped)}.'
    columns: list[str | Column] = [
        'scalar',
        Column('advantage', '.4g'),
        Column('low', '.4g'),
        Column('high', '.4g'),
        'favours',
    ]
    return table(f'{found.policy_a} against {found.policy_b}', [*columns, Column('p', '.3g')], rows, note=note)


def _leaning(name: str, found: TimingComparison) -> str:
    if name in found.favouring_a:
        return found.policy_a
    return found.policy_b if name in found.favouring_b else ''


def _test_p(name: str, found: TimingComparison) -> float | None:
    return found.tests[name].p_value if name in found.tests else None


def stratum_table(ks_per_stratum: Mapping[str, float]) -> Table:
    """The KS distance in each stratum."""
    return table('KS by stratum', ['stratum', Column('KS', '.4f')], list(ks_per_stratum.items()))


def all_pairs_table(found: AllPairs) -> Table:
    """Every pair, with corrected p-values and verdicts; letters group policies that are not told apart."""
    rows: list[tuple[Cell, ...]] = []
    for c, p in zip(found.comparisons, found.p_holm, strict=True):
        classical = None if c.logrank is None else c.logrank.robust.p_value
        verdict = f'{c.better} better' if c.better else c.verdict.value
        low, high = ends(None if c.needed is None else c.needed.interval)
        rows.append(
            (c.policy_a, c.policy_b, c.ks.statistic, c.ks.p_value, p, classical, verdict, c.n_for_power, low, high)
        )
    letters = ', '.join(f'{p} {found.letters[p]}' for p in found.policies)
    columns: list[str | Column] = [
        'a', 'b', Column('macro KS', '.3f'), Column('p', '.3g'), Column('p (Holm)', '.3g'),
        Column('p logrank (robust)', '.3g'), 'verdict', Column('N for 80 % power', '.0f'), Column('N low', '.0f'),
        Column('N high', '.0f'),
    ]  # fmt: skip
    note = (
        f'Lowest macro RMST first. Who shares a letter is not told apart at alpha = {found.alpha:g} after Holm: '
        f'{letters}. Verdicts go by the same corrected p.'
        ' N is episodes a cell for the KS test of one pair at alpha, uncorrected; ∞: nothing shows beyond chance.'
    )
    return table('All pairs', columns, rows, note=note)


def stratum_difference_table(found: Sequence[StratumDifference]) -> Table:
    """RMST differences of pairs in strata, corrected over all of them."""
    rows = [
        (d.policy_a, d.policy_b, d.stratum, d.rmst_s.value, *ends(d.rmst_s.percentile), d.p_value, d.p_bonferroni,
         d.p_holm)
        for d in found
    ]  # fmt: skip
    columns: list[str | Column] = [
        'a', 'b', 'stratum', Column('RMST a - b (s)', '.1f'), Column('low', '.1f'), Column('high', '.1f'),
        Column('p', '.3g'), Column('p (Bonferroni)', '.3g'), Column('p (Holm)', '.3g'),
    ]  # fmt: skip
    return table('RMST differences by stratum', columns, rows, note=f'Corrected over {len(found)} comparisons.')


def failure_tables(found: Sequence[FailureModes]) -> list[Table]:
    """Appendix F's decomposition, by operation and by episode, with the three meanings of hard failure."""
    causes = {
        'placed %': Cause.PLACEMENT, 'dropped outside %': Cause.DROP_OUTSIDE, 'uncollected %': Cause.DROP_UNCOLLECTED,
        'safety stop %': Cause.SAFETY_STOP, 'unrecoverable %': Cause.FAILURE, 'unfinished %': Cause.TAIL,
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
    after = ['ghost share %', 'hard failure %', '1 - F(tau) %']
    taus = ', '.join(sorted({f'{m.tau_s:g}' for m in found}))
    return [
        table(
            'Failure modes by operation', _percent_columns('policy', 'operations', *causes, *after), by_operation,
            note='Drops, safety stops and unrecoverable failures are ghosts; unfinished operations are censored. '
            f'Hard failure is the gap of the plateau; tau = {taus} s.',
        ),
        table(
            'Failure modes by episode',
            _percent_columns(
                'policy', 'episodes', 'success %', 'with a drop %', 'safety stop %', 'timeout %', 'failure %',
                'assists', 'invalid',
            ),
            by_episode,
            note='Shares of valid episodes; one episode may count in several columns.',
        ),
    ]  # fmt: skip


def _percent_columns(*names: str) -> list[str | Column]:
    return [Column(name, '.1f' if name.endswith('%') else '') for name in names]


def logrank_table(found: Sequence[LogrankPair]) -> Table:
    """Table 3's layout: logrank of every pair, stratified and pooled, classical and robust, with corrected p-values."""
    rows = [
        (p.policy_a, p.policy_b, 'stratified' if p.stratified else 'pooled', p.variance, p.p_value, p.p_bonferroni,
         p.p_holm)
        for p in found
    ]  # fmt: skip
    pairs = len({(p.policy_a, p.policy_b) for p in found})
    note = (
        f'Corrected over {pairs} {"pair" if pairs == 1 else "pairs"}, each kind of test for itself. The classical '
        'variance takes operations as independent; the robust one only episodes.'
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
        'policy', 'value', 'episodes', 'placed', 'items', Column('completion %', '.1f'), Column('low', '.1f'),
        Column('high', '.1f'), Column('difference (points)', '+.1f'), Column('diff. low', '+.1f'),
        Column('diff. high', '+.1f'), 'balanced',
    ]  # fmt: skip
    missing = sum(s.n_unlabelled for s in found)
    note = f'{missing} episodes without the label or a count of items were left out.' if missing else ''
    return table(f'Completion by {found[0].label}', columns, rows, note=note)


def calibration_table(found: Calibration) -> Table:
    """Table 8's layout: mean p and rejection rates under each null scenario, with Monte-Carlo intervals."""
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
    note = f'{found.method}, {found.rule}; {found.n_trials} trials of {found.n_resamples} resamples a row.'
    if found.skipped:
        note += ' Skipped: ' + '; '.join(found.skipped) + '.'
    return table('Null calibration of the macro-KS test', columns, rows, note=note)
