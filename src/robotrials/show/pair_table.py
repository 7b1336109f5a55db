"""Tables of pairs: all of them on one endpoint, or two policies in every detail."""

from __future__ import annotations

import math
from collections.abc import Sequence

from robotrials.show.phrase import ends
from robotrials.show.table import Cell, Column, Table, table
from robotrials.show.timing import scalar_name
from robotrials.show.verdict_text import (
    CORRECTIONS,
    decision_sentence,
    design_sentence,
    design_text,
    endpoint_name,
    letters_sentence,
    needed_sentence,
    pair_sentence,
    short_decision,
    short_verdict,
)
from robotrials.stats import Estimate
from robotrials.verdict.analysis import Absent, Comparisons, EndpointPairs, EndpointVerdict, TimeComparison
from robotrials.verdict.analysis.contrast import TIMED, design_word
from robotrials.verdict.analysis.detail import StratumPair
from robotrials.verdict.analysis.verdict import Standing
from robotrials.verdict.planning.analysis_plan import Correction, EndpointName


def endpoint_table(
    found: EndpointPairs, pairs: Sequence[EndpointVerdict], *, policies: Sequence[str], comparisons: Comparisons
) -> Table:
    """Every pair shown on one endpoint, with corrected p-values, verdicts and what would resolve it."""
    is_timed = found.endpoint in TIMED
    rows: list[tuple[Cell, ...]] = []
    for pair in pairs:
        curve = _curve_cells(comparisons.time_pair(pair.policy_a, pair.policy_b)) if is_timed else ()
        rows.append(
            (pair.policy_a, pair.policy_b, *_difference(pair), *chance_cells(pair), pair.p_value, pair.p_corrected,
             short_verdict(pair), pair.is_confirmatory, *_needed(pair), *curve)
        )  # fmt: skip
    unit = f'({pairs[0].unit_text})' if pairs else '(s)'
    columns: list[str | Column] = [
        'a', 'b', Column(f'a ahead by {unit}', '.3g'), Column('low', '.3g'), Column('high', '.3g'),
        *(chance_columns(found) if pairs else ()), Column('p', '.3g'), Column(corrected_name(found), '.3g'), 'verdict',
        'confirmatory', *NEEDED_COLUMNS,
    ]  # fmt: skip
    if is_timed:
        columns += [Column('macro KS', '.3f'), Column('p (KS)', '.3g'), Column('p (KS, corrected)', '.3g')]
        columns.append(Column('p logrank (robust)', '.3g'))
    note = _note(found, pairs, policies) + (_coarse(found, comparisons) if is_timed else '')
    return table(f'All pairs: {endpoint_name(found.endpoint)}', columns, rows, note=note)


def chance_cells(pair: EndpointVerdict) -> tuple[Cell, ...]:
    """How often a was first (or lost less), of times and of lost items."""
    found = pair.contrast
    return () if found.null == 0 else (100 * found.estimate, *ends(found.interval, 100.0))


def chance_columns(found: EndpointPairs) -> list[str | Column]:
    if found.endpoint not in (*TIMED, EndpointName.LOST):
        return []
    name = 'a loses less' if found.endpoint is EndpointName.LOST else 'a first'
    return [Column(f'{name} (%)', '.1f'), Column(f'{name} low', '.1f'), Column(f'{name} high', '.1f')]


def _coarse(found: EndpointPairs, comparisons: Comparisons) -> str:
    """Where the resamples of the KS test are too few for any pair to differ after the correction."""
    n_pairs = len(comparisons.times)
    n = min((t.ks.n_resamples for t in comparisons.times if not isinstance(t.ks, Absent)), default=None)
    least = math.ceil(n_pairs / found.alpha - 1e-9) - 1
    if n is None or n >= least or found.correction is Correction.NONE:
        return ''
    return (
        f' {n} resamples cannot show that the curves of any of {n_pairs} pairs differ after the correction, however '
        f'far apart they are; {least} are the least that can. Who is faster is tested without any.'
    )


NEEDED_COLUMNS: list[str | Column] = [Column('needed N', '.0f'), Column('N low', '.0f'), Column('N high', '.0f')]


def corrected_name(found: EndpointPairs) -> str:
    """The heading of corrected p-values."""
    return f'p ({CORRECTIONS[found.correction]})' if found.correction is not Correction.NONE else 'p (uncorrected)'


def _note(found: EndpointPairs, pairs: Sequence[EndpointVerdict], policies: Sequence[str]) -> str:
    unit = pairs[0].unit if pairs else 'episode'
    told = [
        letters_sentence(found, policies), design_text(pairs),
        f'Needed N is {unit}s per cell for 80 % power if the difference is what was observed; N low and N high are '
        'what the ends of its interval would need. ∞: the data show no difference.',
    ]  # fmt: skip
    if not found.is_primary:
        told.append('A secondary endpoint: what is shown of it is exploratory.')
    told += [f'{p.policy_a} and {p.policy_b}: {p.withheld}.' for p in pairs if p.withheld]
    told += [f'{p.policy_a} and {p.policy_b}: {p.contrast.note}.' for p in pairs if p.contrast.note]
    for pair in (p for p in pairs if p.reversed):
        cells = ', '.join(cell.name for cell in pair.reversed)
        told.append(f'{pair.policy_a} against {pair.policy_b} is reversed in {cells}.')
    return ' '.join(told)


def _difference(pair: EndpointVerdict) -> tuple[Cell, ...]:
    return pair.scale * pair.difference, *ends(pair.interval, pair.scale)


def decision_table(comparisons: Comparisons, policies: Sequence[str]) -> Table:
    """Every pair over all primary endpoints: better, a trade-off, or what else may be said."""
    rows: list[tuple[Cell, ...]] = []
    for decided in comparisons.decisions:
        a, b = decided.pair
        if a in policies and b in policies:
            rows.append((a, b, short_decision(decided), decision_sentence(comparisons, a, b)))
    names = ', '.join(endpoint_name(e.endpoint) for e in comparisons.tested)
    note = (
        f'Over the primary endpoints: {names}. Better needs a claim in favour, none against, and no other primary '
        'endpoint that looks worse (one-sided uncorrected p of at most 0.10).'
    )
    return table('Which is better', ['a', 'b', 'verdict', 'in words'], rows, note=note)


def _needed(pair: EndpointVerdict) -> tuple[Cell, Cell, Cell]:
    needed = pair.needed
    return (None, None, None) if needed is None else (needed.n, needed.low, needed.high)


def _curve_cells(found: TimeComparison | None) -> tuple[Cell, ...]:
    if found is None:
        return None, None, None, None
    ks = (None, None) if isinstance(found.ks, Absent) else (found.ks.statistic, found.ks.p_value)
    rank = None if isinstance(found.logrank, Absent) else found.logrank.robust.p_value
    return *ks, found.p_different, rank


def pair_tables(
    comparisons: Comparisons, a: str, b: str, *, n_strata: int, strata: Sequence[StratumPair] = ()
) -> list[Table]:
    """Two policies: the verdict on each endpoint, then every scalar and every stratum; signs favour `a`."""
    time = comparisons.time_pair(a, b)
    shown = [_verdict_table(comparisons, a, b, n_strata=n_strata)]
    if time is not None:
        shown.append(_scalar_table(time, a, b))
    if strata:
        shown.append(stratum_table(strata, title=f'{a} against {b} by stratum', ks=time))
    return shown


def _verdict_table(comparisons: Comparisons, a: str, b: str, *, n_strata: int) -> Table:
    rows: list[tuple[Cell, ...]] = []
    sentences: list[str] = [decision_sentence(comparisons, a, b)]
    for name, found in comparisons.endpoints.items():
        if isinstance(found, Absent):
            remedy = f'; {found.remedy}' if found.remedy else ''
            sentences.append(f'No comparison of {endpoint_name(name)}: {found.reason}{remedy}.')
            continue
        pair = found.pair(a, b)
        rows.append(
            (endpoint_name(name), *_difference(pair), pair.unit_text, *(chance_cells(pair) or (None, None, None)),
             pair.p_value, pair.p_corrected, short_verdict(pair), pair.is_confirmatory, design_word(pair.contrast),
             pair.test, *pair.n_units, *_needed(pair))
        )  # fmt: skip
        sentences.append(pair_sentence(pair, found, n_strata=n_strata))
        sentences.append(f'{design_sentence(pair)}{_needed_too(pair)}')
    columns: list[str | Column] = [
        'endpoint', Column('a ahead by', '.3g'), Column('low', '.3g'), Column('high', '.3g'), 'unit',
        Column('a first (%)', '.1f'), Column('first low', '.1f'), Column('first high', '.1f'),
        Column('p', '.3g'), Column('p (corrected)', '.3g'), 'verdict', 'confirmatory', 'design', 'test', 'n a', 'n b',
        *NEEDED_COLUMNS,
    ]  # fmt: skip
    return table(f'{a} (a) against {b} (b)', columns, rows, note='\n'.join(sentences))


def _needed_too(pair: EndpointVerdict) -> str:
    """What is needed, where the sentence of the verdict does not say it."""
    if pair.withheld or pair.standing is Standing.UNRESOLVED:
        return ''
    said = needed_sentence(pair)
    return f' {said[0].upper()}{said[1:]}.' if said else ''


def _scalar_table(found: TimeComparison, a: str, b: str) -> Table:
    sign = 1.0 if found.policy_a == a else -1.0
    rows: list[tuple[Cell, ...]] = []
    for name, e in found.advantages.items():
        turned = e if sign > 0 else _turned(e)
        low, high = ends(turned.interval)
        ahead = a if low is not None and low > 0 else b if high is not None and high < 0 else ''
        rows.append((scalar_name(name), turned.value, low, high, ahead, turned.note))
    columns: list[str | Column] = [
        'scalar', Column('a ahead by', '.4g'), Column('low', '.4g'), Column('high', '.4g'), 'favours', 'note',
    ]  # fmt: skip
    return table(f'Scalars of the curves: {a} (a) against {b} (b)', columns, rows, note=_curve_note(found))


def _turned(found: Estimate) -> Estimate:
    interval = None if found.interval is None else found.interval.scaled(-1.0)
    return Estimate(None if found.value is None else -found.value + 0.0, interval, found.note, n=found.n)


def _curve_note(found: TimeComparison) -> str:
    told = ['Oriented: positive favours a. Intervals of single scalars, uncorrected.']
    if isinstance(found.ks, Absent):
        told.append(f'No KS test: {found.ks.reason}; {found.ks.remedy}.')
    else:
        ks = found.ks
        told.append(
            f'Macro KS {ks.statistic:.4f} (null mean {ks.null_mean:.4f}), p = {ks.p_value:.4g} by {ks.method}, '
            f'{ks.n_resamples} resamples.'
        )
    if isinstance(found.logrank, Absent):
        told.append(f'No logrank test: {found.logrank.reason}.')
    else:
        rank = found.logrank
        told.append(
            f'Stratified logrank: p = {rank.robust.p_value:.3g} robust to episodes, {rank.classical.p_value:.3g} '
            'classical.'
        )
    return ' '.join(told)


def stratum_table(rows: Sequence[StratumPair], *, title: str, ks: TimeComparison | None = None, n: int = 0) -> Table:
    """Mean times of pairs in single strata, corrected over all pairs x strata of the analysis."""
    cells = [
        (d.policy_a, d.policy_b, d.stratum, d.difference_s, *ends(d.interval), d.p_value, d.p_bonferroni, d.p_holm,
         None if ks is None or isinstance(ks.ks, Absent) else ks.ks.per_stratum.get(d.stratum))
        for d in rows
    ]  # fmt: skip
    columns: list[str | Column] = [
        'a', 'b', 'stratum', Column('a ahead by (s)', '.1f'), Column('low', '.1f'), Column('high', '.1f'),
        Column('p', '.3g'), Column('p (Bonferroni)', '.3g'), Column('p (Holm)', '.3g'), Column('KS', '.4f'),
    ]  # fmt: skip
    over = f' ({n} comparisons)' if n else ''
    note = f'RMST of b minus RMST of a; p of who is faster there, corrected over all pairs and strata{over}.'
    shown = table(title, columns, cells, note=note)
    return shown if ks is not None else Table(shown.title, shown.columns[:-1], tuple(r[:-1] for r in shown.rows), note)
