"""Tables of pairs: all of them on one endpoint, or two policies in every detail."""

from __future__ import annotations

import math
from collections.abc import Sequence

from robotrials.measure.timing.scalar import scalar_label
from robotrials.show.document import Block, Paragraph, Section, missing, paragraph, section, table_block
from robotrials.show.phrase import (
    CORRECTIONS,
    capital,
    decision_sentence,
    design_sentence,
    design_text,
    endpoint_name,
    ends,
    letters_sentence,
    needed_sentence,
    pair_sentence,
    pair_words,
    plural,
    short_decision,
    short_verdict,
)
from robotrials.show.plot import of_policies
from robotrials.show.table import Cell, Column, Table, table, without_empty
from robotrials.show.timing import scalar_name
from robotrials.stats import Estimate
from robotrials.verdict.analysis import (
    Absent,
    Analysis,
    ComparisonFrame,
    Comparisons,
    EndpointPairs,
    EndpointVerdict,
    TimeComparison,
)
from robotrials.verdict.analysis.contrast import TIMED, design_word
from robotrials.verdict.analysis.detail import StratumPair
from robotrials.verdict.analysis.endpoint_pairs import Standing, WinnerPrice
from robotrials.verdict.planning.analysis_plan import Correction, EndpointName


def endpoint_table(
    endpoint: EndpointPairs, pairs: Sequence[EndpointVerdict], *, policies: Sequence[str], comparisons: Comparisons
) -> Table:
    """Every pair shown on one endpoint, with corrected p-values, verdicts and what would resolve it."""
    is_timed = endpoint.endpoint in TIMED
    rows: list[tuple[Cell, ...]] = []
    for pair in pairs:
        curve = _curve_cells(comparisons.time_pair(pair.policy_a, pair.policy_b)) if is_timed else ()
        rows.append(
            (pair.policy_a, pair.policy_b, *_difference(pair), *chance_cells(pair), pair.p_value, pair.p_corrected,
             short_verdict(pair), pair.is_confirmatory, *_needed(pair), *curve)
        )  # fmt: skip
    unit = f'({pairs[0].unit_text})' if pairs else '(s)'
    corrected = 'uncorrected' if endpoint.correction is Correction.NONE else CORRECTIONS[endpoint.correction]
    columns: list[str | Column] = [
        'a', 'b', Column(f'a ahead by {unit}', '.3g'), Column('low', '.3g'), Column('high', '.3g'),
        *(chance_columns(endpoint) if pairs else ()), Column('p', '.3g'), Column(f'p ({corrected})', '.3g'),
        'verdict', 'confirmatory', *NEEDED_COLUMNS,
    ]  # fmt: skip
    if is_timed:
        columns += [Column('macro KS', '.3f'), Column('p (KS)', '.3g'), Column('p (KS, corrected)', '.3g')]
        columns.append(Column('p logrank (robust)', '.3g'))
    note = _note(endpoint, pairs, policies) + (_coarse(endpoint, comparisons) if is_timed else '')
    return table(f'All pairs: {endpoint_name(endpoint.endpoint)}', columns, rows, note=note)


def chance_cells(pair: EndpointVerdict) -> tuple[Cell, ...]:
    """How often a was first (or lost less), of times and of lost items."""
    contrast = pair.contrast
    return () if contrast.null == 0 else (100 * contrast.estimate, *ends(contrast.interval, 100.0))


def chance_columns(tested: EndpointPairs) -> list[str | Column]:
    if tested.endpoint not in (*TIMED, EndpointName.LOST):
        return []
    name = 'a loses less' if tested.endpoint is EndpointName.LOST else 'a first'
    return [Column(f'{name} (%)', '.1f'), Column(f'{name} low', '.1f'), Column(f'{name} high', '.1f')]


def _coarse(tested: EndpointPairs, comparisons: Comparisons) -> str:
    """Where the resamples of the KS test are too few for any pair to differ after the correction."""
    n_pairs = len(comparisons.times)
    n = min((t.ks.n_resamples for t in comparisons.times if not isinstance(t.ks, Absent)), default=None)
    least = math.ceil(n_pairs / tested.alpha - 1e-9) - 1
    if n is None or n >= least or tested.correction is Correction.NONE:
        return ''
    return (
        f' {n} resamples cannot show that the curves of any of {n_pairs} pairs differ after the correction, however '
        f'far apart they are; {least} are the least that can. Who is faster is tested without any.'
    )


NEEDED_COLUMNS: list[str | Column] = [Column('needed N', '.0f'), Column('N low', '.0f'), Column('N high', '.0f')]


def _note(tested: EndpointPairs, pairs: Sequence[EndpointVerdict], policies: Sequence[str]) -> str:
    unit = pairs[0].unit if pairs else 'episode'
    parts = [
        letters_sentence(tested, policies), design_text(pairs),
        f'Needed N is {unit}s per cell for 80 % power if the difference is what was observed; N low and N high are '
        'what the ends of its interval would need. ∞: the data show no difference.',
    ]  # fmt: skip
    if not tested.is_primary:
        parts.append('A secondary endpoint: what is shown of it is exploratory.')
    parts += [f'{p.policy_a} and {p.policy_b}: {p.withheld}.' for p in pairs if p.withheld]
    parts += [f'{p.policy_a} and {p.policy_b}: {p.contrast.note}.' for p in pairs if p.contrast.note]
    for pair in (p for p in pairs if p.reversed):
        cells = ', '.join(cell.name for cell in pair.reversed)
        parts.append(f'{pair.policy_a} against {pair.policy_b} is reversed in {cells}.')
    return ' '.join(parts)


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


def _curve_cells(comparison: TimeComparison | None) -> tuple[Cell, ...]:
    if comparison is None:
        return None, None, None, None
    ks = (None, None) if isinstance(comparison.ks, Absent) else (comparison.ks.statistic, comparison.ks.p_value)
    rank = None if isinstance(comparison.logrank, Absent) else comparison.logrank.robust.p_value
    return *ks, comparison.p_different, rank


def pair_tables(
    comparisons: Comparisons, a: str, b: str, *, n_strata: int, strata: Sequence[StratumPair] = ()
) -> list[Table]:
    """Two policies: the verdict on each endpoint, then every scalar and every stratum; signs favour `a`."""
    time = comparisons.time_pair(a, b)
    tables = [_verdict_table(comparisons, a, b, n_strata=n_strata)]
    if time is not None:
        tables.append(_scalar_table(time, a, b))
    if strata:
        tables.append(stratum_table(strata, title=f'{a} against {b} by stratum', ks=time))
    return tables


def _verdict_table(comparisons: Comparisons, a: str, b: str, *, n_strata: int) -> Table:
    rows: list[tuple[Cell, ...]] = []
    sentences: list[str] = [decision_sentence(comparisons, a, b)]
    for name, tested in comparisons.endpoints.items():
        if isinstance(tested, Absent):
            remedy = f'; {tested.remedy}' if tested.remedy else ''
            sentences.append(f'No comparison of {endpoint_name(name)}: {tested.reason}{remedy}.')
            continue
        pair = tested.pair(a, b)
        rows.append(
            (endpoint_name(name), *_difference(pair), pair.unit_text, *(chance_cells(pair) or (None, None, None)),
             pair.p_value, pair.p_corrected, short_verdict(pair), pair.is_confirmatory, design_word(pair.contrast),
             pair.test, *pair.n_units, *_needed(pair))
        )  # fmt: skip
        sentences.append(pair_sentence(pair, tested, n_strata=n_strata))
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
    return f' {capital(said)}.' if said else ''


def _scalar_table(comparison: TimeComparison, a: str, b: str) -> Table:
    sign = 1.0 if comparison.policy_a == a else -1.0
    rows: list[tuple[Cell, ...]] = []
    for name, e in comparison.advantages.items():
        turned = e if sign > 0 else _turned(e)
        low, high = ends(turned.interval)
        ahead = a if low is not None and low > 0 else b if high is not None and high < 0 else ''
        rows.append((scalar_name(name), turned.value, low, high, ahead, turned.note))
    columns: list[str | Column] = [
        'scalar', Column('a ahead by', '.4g'), Column('low', '.4g'), Column('high', '.4g'), 'favours', 'note',
    ]  # fmt: skip
    return table(f'Scalars of the curves: {a} (a) against {b} (b)', columns, rows, note=_curve_note(comparison))


def _turned(estimate: Estimate) -> Estimate:
    interval = None if estimate.interval is None else estimate.interval.scaled(-1.0)
    return Estimate(None if estimate.value is None else -estimate.value + 0.0, interval, estimate.note, n=estimate.n)


def _curve_note(comparison: TimeComparison) -> str:
    parts = ['Oriented: positive favours a. Intervals of single scalars, uncorrected.']
    if isinstance(comparison.ks, Absent):
        parts.append(f'No KS test: {comparison.ks.reason}; {comparison.ks.remedy}.')
    else:
        ks = comparison.ks
        parts.append(
            f'Macro KS {ks.statistic:.4f} (null mean {ks.null_mean:.4f}), p = {ks.p_value:.4g} by {ks.method}, '
            f'{ks.n_resamples} resamples.'
        )
    if isinstance(comparison.logrank, Absent):
        parts.append(f'No logrank test: {comparison.logrank.reason}.')
    else:
        rank = comparison.logrank
        parts.append(
            f'Stratified logrank: p = {rank.robust.p_value:.3g} robust to episodes, {rank.classical.p_value:.3g} '
            'classical.'
        )
    return ' '.join(parts)


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
    sheet = table(title, columns, cells, note=note)
    return sheet if ks is not None else Table(sheet.title, sheet.columns[:-1], tuple(r[:-1] for r in sheet.rows), note)


# A report's sections on what the data resolve: every pair on every endpoint, the strata behind it, and the price.

MOST_SENTENCES = 15
MOST_OPEN_PAIRS = 3  # of which everything is said in the open
PAIR_DEFINITIONS = {
    'verdict': 'verdict', 'difference (s)': 'difference', 'difference (points)': 'difference', 'low': 'interval',
    'high': 'interval', 'p': 'p-value', 'p (corrected)': 'holm', 'units a': 'unit', 'units b': 'unit',
    'N needed': 'needed', 'N low': 'needed', 'N high': 'needed', 'a first (%)': 'win',
}  # fmt: skip


def resolution_section(analysis: Analysis, frame: ComparisonFrame) -> Section:
    """What is claimed of every pair on the primary endpoints."""
    title = 'What the data resolve, and what they do not'
    pairs = analysis.pairs
    if isinstance(pairs, Absent):
        return section('resolution', title, [missing('Comparisons', pairs)])
    blocks: list[Block] = []
    if len(pairs.tested) > 1:
        blocks.append(table_block('decision-table', decision_table(pairs, frame.policies), {'verdict': 'verdict'}))
    if not _is_apart(analysis):
        blocks += _pair_blocks(analysis, frame)
    return section('resolution', title, [*blocks, *price_blocks(analysis.price)])


def pair_section(analysis: Analysis, frame: ComparisonFrame) -> list[Section]:
    """Every pair on every primary endpoint, where that is too long to stand under the decisions."""
    if not _is_apart(analysis):
        return []
    return [section('pairs', 'Every pair on every primary endpoint', _pair_blocks(analysis, frame))]


def _is_apart(analysis: Analysis) -> bool:
    """Whether the table of decisions says it all, and the evidence of each pair goes to a section of its own."""
    pairs = analysis.pairs
    return not isinstance(pairs, Absent) and len(pairs.tested) > 1 and len(pairs.decisions) > MOST_OPEN_PAIRS


def _pair_blocks(analysis: Analysis, frame: ComparisonFrame) -> list[Block]:
    pairs = analysis.pairs
    assert not isinstance(pairs, Absent)
    blocks = [block for tested in pairs.primary for block in endpoint_blocks(analysis, frame, tested)]
    if any(e in (EndpointName.TIME, EndpointName.THROUGHPUT) for e in pairs.endpoints):
        blocks += time_blocks(analysis, frame)
    return blocks


def endpoint_blocks(analysis: Analysis, frame: ComparisonFrame, endpoint: EndpointName) -> list[Block]:
    """Every pair of one endpoint in sentences and as a table; or why there is none."""
    pairs = analysis.pairs
    name = endpoint_name(endpoint)
    if isinstance(pairs, Absent):
        return [missing(f'Comparisons of {name}', pairs)]
    tested = pairs.endpoints.get(endpoint)
    if tested is None:
        return [paragraph(f'No claim about {name} was declared, so no pair is tested on it.')]
    if isinstance(tested, Absent):
        return [missing(f'Comparisons of {name}', tested)]
    blocks: list[Block] = [paragraph(_role(tested)), *_sentences(tested, analysis, frame)]
    filters = [of_policies(frame, p.policy_a, p.policy_b) for p in tested.oriented()]
    key = 'pair-table' if endpoint is pairs.primary[0] else f'pair-table-{endpoint.value}'
    return [*blocks, table_block(key, pair_table(tested), PAIR_DEFINITIONS, episodes=filters)]


def _role(tested: EndpointPairs) -> str:
    name = endpoint_name(tested.endpoint)
    how = f'{correction_text(tested)}at alpha = {tested.alpha:g}'
    if tested.is_primary:
        return f'Primary endpoint: {name}. {plural(len(tested.pairs), "pair")} tested, {how}.'
    return f'Secondary endpoint: {name}, exploratory. {plural(len(tested.pairs), "pair")} tested, {how}.'


def correction_text(tested: EndpointPairs) -> str:
    """`corrected by Holm over 6 tests `, or nothing."""
    if tested.correction is Correction.NONE or tested.n_tests < 2:
        return ''
    return f'corrected by {tested.correction.value.capitalize()} over {plural(tested.n_tests, "test")} '


def _sentences(tested: EndpointPairs, analysis: Analysis, frame: ComparisonFrame) -> list[Paragraph]:
    """Every verdict on a primary endpoint in a sentence.

    With very many pairs, and on secondary endpoints, only those that name a winner or depend on the stratum.
    """
    assert not isinstance(analysis.pairs, Absent)
    every = tested.oriented()
    reported = every
    if len(every) > MOST_SENTENCES or not tested.is_primary:
        reported = tuple(p for p in every if p.standing in (Standing.AHEAD, Standing.DEPENDS))[:MOST_SENTENCES]
    said = [paragraph(*pair_words(p, tested, n_strata=len(frame.strata))) for p in reported]
    if len(reported) < len(every):
        rest = plural(len(every) - len(reported), 'further pair')
        rest = rest if reported else f'No claim in {plural(len(every), "pair")}'
        said.append(paragraph(f'{rest}: see the table.'))
    return said


def pair_table(tested: EndpointPairs) -> Table:
    """Every pair of one endpoint, told from the side of the policy that is ranked higher."""
    pairs = tested.oriented()
    unit = pairs[0].unit_text
    rows = [_pair_row(p, is_primary=tested.is_primary) for p in pairs]
    columns: list[str | Column] = ['a', 'b', 'verdict', 'standing', Column(f'difference ({unit})', '+.1f')]
    columns += [Column('low', '+.1f'), Column('high', '+.1f'), *chance_columns(tested), Column('p', '.3g')]
    columns += [Column('p (corrected)', '.3g'), 'design', 'units a', 'units b']
    columns += [Column(n, '.0f') for n in ('N needed', 'N low', 'N high')]
    note = (
        f'A positive difference favours a. {design_text(pairs)} {_units_note(pairs)}N is {pairs[0].unit}s per cell for '
        '80 % power if the difference is what was observed, for pairs without a claim.'
    )
    notes = list(dict.fromkeys(p.contrast.note for p in pairs if p.contrast.note))
    note += ''.join(f' {capital(text)}.' for text in notes)
    return without_empty(table(f'Every pair: {endpoint_name(tested.endpoint)}', columns, rows, note=note))


def _units_note(pairs: tuple[EndpointVerdict, ...]) -> str:
    units = list(dict.fromkeys(p.unit for p in pairs))
    left = sum(out.n for p in pairs for out in p.contrast.left_out)
    out = f'{left} episodes or starts were left out of pairs; `compare A B` says why. ' if left else ''
    return f'Units are {" or ".join(f"{u}s" for u in units)}. {out}'


def _pair_row(p: EndpointVerdict, *, is_primary: bool) -> tuple[Cell, ...]:
    return (
        p.policy_a, p.policy_b, short_verdict(p), None if is_primary else 'exploratory', *_difference(p),
        *chance_cells(p), p.p_value, p.p_corrected, design_word(p.contrast), *p.n_units, *_needed(p),
    )  # fmt: skip


def price_blocks(price: WinnerPrice | Absent) -> list[Block]:
    """The fewest units at which anything could be claimed."""
    if isinstance(price, Absent):
        return []
    over = 'the one test' if price.n_tests == 1 else f'{price.n_tests} tests'
    return [
        paragraph(
            f'The price of a claim: over {over}, none can be made below {price.per_policy} {price.unit}s per policy, '
            'however far apart two policies are.'
        )
    ]


# --- times: strata, curves, scalars


def time_blocks(analysis: Analysis, frame: ComparisonFrame) -> list[Block]:
    """What lies behind the comparisons of times: every stratum, whether curves differ at all, every scalar."""
    assert not isinstance(analysis.pairs, Absent)
    times = analysis.pairs.times
    if not times:
        return []
    blocks: list[Block] = []
    if len(frame.strata) > 1:
        sheet = report_stratum_table(times)
        definitions = {'difference (s)': 'difference', 'low': 'interval', 'high': 'interval', 'stratum': 'stratum'}
        blocks.append(table_block('stratum-table', sheet, definitions, stratum='stratum', is_folded=True))
    curves = {'macro KS': 'macro-ks', 'p': 'p-value', 'p (corrected)': 'holm'}
    blocks.append(table_block('difference-table', different_table(times), curves, is_folded=True))
    blocks.append(table_block('advantage-table', advantage_table(times), {'advantage': 'advantage'}, is_folded=True))
    return blocks


def report_stratum_table(times: tuple[TimeComparison, ...]) -> Table:
    """Each stratum's difference; those against the mean are marked."""
    rows: list[tuple[Cell, ...]] = []
    for t in times:
        against = {s.stratum for s in t.reversal.reversed}
        rows += [
            (t.policy_a, t.policy_b, s.stratum, s.difference, *ends(s.interval),
             'reversed' if s.stratum in against else None, *s.n_units)
            for s in t.reversal.strata
        ]  # fmt: skip
    columns: list[str | Column] = [
        'a', 'b', 'stratum', Column('difference (s)', '+.1f'), Column('low', '+.1f'), Column('high', '+.1f'),
        'against the mean', 'units a', 'units b',
    ]  # fmt: skip
    note = (
        'A positive difference favours a. Intervals are those of single strata, not corrected. No reversal found is '
        'no evidence that there is none.'
    )
    return without_empty(table('Every pair in every stratum', columns, rows, note=note))


def different_table(times: tuple[TimeComparison, ...]) -> Table:
    """Whether two curves differ anywhere: a claim of its own, which names no winner."""
    rows: list[tuple[Cell, ...]] = []
    for t in times:
        if isinstance(t.ks, Absent):
            rows.append((t.policy_a, t.policy_b, None, None, None, t.ks.reason))
        else:
            rows.append((t.policy_a, t.policy_b, t.ks.statistic, t.ks.p_value, t.p_different, None))
    columns: list[str | Column] = [
        'a', 'b', Column('macro KS', '.3f'), Column('p', '.3g'), Column('p (corrected)', '.3g'), 'refused because'
    ]  # fmt: skip
    note = 'A difference in shape, and no more: the macro KS test asks whether the curves differ anywhere.'
    return without_empty(table('Do the curves differ at all?', columns, rows, note=note))


def advantage_table(times: tuple[TimeComparison, ...]) -> Table:
    """Every scalar of every pair, oriented so that positive favours a."""
    rows = [
        (t.policy_a, t.policy_b, scalar_label(name), e.value, *ends(e.interval), _favours(name, t))
        for t in times
        for name, e in t.advantages.items()
    ]
    columns: list[str | Column] = ['a', 'b', 'scalar']
    columns += [Column(name, '+.4g') for name in ('advantage', 'low', 'high')]
    note = 'Intervals of single scalars, not corrected: they describe, and name no winner.'
    return table('Every scalar of every pair', [*columns, 'favours'], rows, note=note)


def _favours(name: str, comparison: TimeComparison) -> str | None:
    if name in comparison.favouring_a:
        return comparison.policy_a
    return comparison.policy_b if name in comparison.favouring_b else None
