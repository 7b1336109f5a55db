"""Tables of time-to-success: the headline ranking, full scores, comparisons, failures, labels, calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trialist.episodes import Outcome
from trialist.show.table import Cell, Column, Table, table
from trialist.stats import Interval
from trialist.timing import (
    AllPairs,
    Calibration,
    Cause,
    CohortScore,
    Estimate,
    FailureModes,
    LabelSensitivity,
    RelativeScore,
    StratumDifference,
    TimingComparison,
)
from trialist.timing.calibration import ALPHAS

NAMES = {
    'rmst_s': 'RMST (s)',
    'uph_of_successes': 'UPH of successes (1/h)',
    'uph_of_rmst': 'UPH of RMST (1/h)',
    'completion': 'completion F(budget)',
    'mtbf_s': 'MTBF/A (s)',
    'missing_at_tau': '1 - F(tau)',
    'hard_failure': 'hard failure (plateau gap)',
    'median_s': 'median (s)',
    'hrt': 'HRT',
    'auc_vs_reference': 'AUC vs reference',
    'auc_between': 'AUC(a, b) - 1/2',
}


def scalar_name(name: str) -> str:
    """How a scalar is headed in tables."""
    if name in NAMES:
        return NAMES[name]
    if name.startswith('chance_'):
        return f'F({name.removeprefix("chance_").removesuffix("s")} s)'
    if name.startswith('quantile_'):
        return f'quantile {name.removeprefix("quantile_").removesuffix("_s")} (s)'
    return name


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
        rows.append((c.policy_a, c.policy_b, c.ks.statistic, c.ks.p_value, p, classical, verdict, c.n_for_power))
    letters = ', '.join(f'{p} {found.letters[p]}' for p in found.policies)
    columns: list[str | Column] = [
        'a', 'b', Column('macro KS', '.3f'), Column('p', '.3g'), Column('p (Holm)', '.3g'),
        Column('p logrank (robust)', '.3g'), 'verdict', 'N for power',
    ]  # fmt: skip
    note = f'Lowest macro RMST first. Who shares a letter is not told apart at alpha = {found.alpha:g}: {letters}.'
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


def failure_table(found: Sequence[FailureModes]) -> Table:
    """Appendix F's decomposition: rates of operations and of episodes, and the three meanings of hard failure."""
    rows = [
        (
            m.policy, m.n_operations, 100 * m.operation_rate(Cause.DROP_OUTSIDE),
            100 * m.operation_rate(Cause.DROP_UNCOLLECTED), 100 * m.operation_rate(Cause.FAILURE), m.n_episodes,
            100 * m.episode_rate(Outcome.SAFETY_STOP), 100 * m.episode_rate(Outcome.TIMEOUT), m.n_assists,
            100 * m.ghost_share, None if m.hard_failure is None else 100 * m.hard_failure, 100 * m.missing_at_tau,
        )
        for m in found
    ]  # fmt: skip
    percent = [
        'operations', 'dropped outside %', 'uncollected %', 'unrecoverable %', 'episodes', 'safety stop %', 'timeout %',
        'assists', 'ghost share %', 'hard failure %', '1 - F(tau) %',
    ]  # fmt: skip
    columns: list[str | Column] = ['policy', *(Column(n, '.1f' if n.endswith('%') else '') for n in percent)]
    note = 'Drops and unrecoverable failures are shares of operations; safety stops and timeouts of episodes.'
    return table('Failure modes', columns, rows, note=note)


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
