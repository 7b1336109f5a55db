"""A report's sections on what the data resolve: every pair on every endpoint, the strata behind it, and the price."""

from __future__ import annotations

from robotrials.measure.timing.scalar import scalar_label
from robotrials.show.document import Block, Paragraph, Section, paragraph, section
from robotrials.show.pair_table import chance_cells, chance_columns, decision_table
from robotrials.show.phrase import ends, plural
from robotrials.show.report_block import missing, of_policies, table_block
from robotrials.show.table import Cell, Column, Table, table, without_empty
from robotrials.show.verdict_text import design_text, endpoint_name, pair_words, short_verdict
from robotrials.verdict.analysis import (
    Absent,
    Analysis,
    ComparisonFrame,
    EndpointPairs,
    EndpointVerdict,
    TimeComparison,
)
from robotrials.verdict.analysis.contrast import design_word
from robotrials.verdict.analysis.price import WinnerPrice
from robotrials.verdict.analysis.verdict import Standing
from robotrials.verdict.planning.analysis_plan import Correction, EndpointName

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
    blocks = [block for endpoint in pairs.primary for block in endpoint_blocks(analysis, frame, endpoint)]
    if any(e in (EndpointName.TIME, EndpointName.THROUGHPUT) for e in pairs.endpoints):
        blocks += time_blocks(analysis, frame)
    return blocks


def endpoint_blocks(analysis: Analysis, frame: ComparisonFrame, endpoint: EndpointName) -> list[Block]:
    """Every pair of one endpoint in sentences and as a table; or why there is none."""
    pairs = analysis.pairs
    name = endpoint_name(endpoint)
    if isinstance(pairs, Absent):
        return [missing(f'Comparisons of {name}', pairs)]
    found = pairs.endpoints.get(endpoint)
    if found is None:
        return [paragraph(f'No claim about {name} was declared, so no pair is tested on it.')]
    if isinstance(found, Absent):
        return [missing(f'Comparisons of {name}', found)]
    blocks: list[Block] = [paragraph(_role(found)), *_sentences(found, analysis, frame)]
    filters = [of_policies(frame, p.policy_a, p.policy_b) for p in found.oriented()]
    key = 'pair-table' if endpoint is pairs.primary[0] else f'pair-table-{endpoint.value}'
    return [*blocks, table_block(key, pair_table(found), PAIR_DEFINITIONS, episodes=filters)]


def _role(found: EndpointPairs) -> str:
    name = endpoint_name(found.endpoint)
    how = f'{correction_text(found)}at alpha = {found.alpha:g}'
    if found.is_primary:
        return f'Primary endpoint: {name}. {plural(len(found.pairs), "pair")} tested, {how}.'
    return f'Secondary endpoint: {name}, exploratory. {plural(len(found.pairs), "pair")} tested, {how}.'


def correction_text(found: EndpointPairs) -> str:
    """`corrected by Holm over 6 tests `, or nothing."""
    if found.correction is Correction.NONE or found.n_tests < 2:
        return ''
    return f'corrected by {found.correction.value.capitalize()} over {plural(found.n_tests, "test")} '


def _sentences(found: EndpointPairs, analysis: Analysis, frame: ComparisonFrame) -> list[Paragraph]:
    """Every verdict on a primary endpoint in a sentence.

    With very many pairs, and on secondary endpoints, only those that name a winner or depend on the stratum.
    """
    assert not isinstance(analysis.pairs, Absent)
    every = found.oriented()
    told = every
    if len(every) > MOST_SENTENCES or not found.is_primary:
        told = tuple(p for p in every if p.standing in (Standing.AHEAD, Standing.DEPENDS))[:MOST_SENTENCES]
    said = [paragraph(*pair_words(p, found, n_strata=len(frame.strata))) for p in told]
    if len(told) < len(every):
        rest = plural(len(every) - len(told), 'further pair') if told else f'No claim in {plural(len(every), "pair")}'
        said.append(paragraph(f'{rest}: see the table.'))
    return said


def pair_table(found: EndpointPairs) -> Table:
    """Every pair of one endpoint, told from the side of the policy that is ranked higher."""
    pairs = found.oriented()
    unit = pairs[0].unit_text
    rows = [_pair_row(p, is_primary=found.is_primary) for p in pairs]
    columns: list[str | Column] = ['a', 'b', 'verdict', 'standing', Column(f'difference ({unit})', '+.1f')]
    columns += [Column('low', '+.1f'), Column('high', '+.1f'), *chance_columns(found), Column('p', '.3g')]
    columns += [Column('p (corrected)', '.3g'), 'design', 'units a', 'units b']
    columns += [Column(n, '.0f') for n in ('N needed', 'N low', 'N high')]
    note = (
        f'A positive difference favours a. {design_text(pairs)} {_units_note(pairs)}N is {pairs[0].unit}s per cell for '
        '80 % power if the difference is what was observed, for pairs without a claim.'
    )
    told = list(dict.fromkeys(p.contrast.note for p in pairs if p.contrast.note))
    note += ''.join(f' {_capital(text)}.' for text in told)
    return without_empty(table(f'Every pair: {endpoint_name(found.endpoint)}', columns, rows, note=note))


def _units_note(pairs: tuple[EndpointVerdict, ...]) -> str:
    units = list(dict.fromkeys(p.unit for p in pairs))
    left = sum(out.n for p in pairs for out in p.contrast.left_out)
    out = f'{left} episodes or starts were left out of pairs; `compare A B` says why. ' if left else ''
    return f'Units are {" or ".join(f"{u}s" for u in units)}. {out}'


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _pair_row(p: EndpointVerdict, *, is_primary: bool) -> tuple[Cell, ...]:
    needed = p.needed
    standing = None if is_primary else 'exploratory'
    planned: tuple[Cell, ...] = (None, None, None) if needed is None else (needed.n, needed.low, needed.high)
    return (
        p.policy_a, p.policy_b, short_verdict(p), standing, p.scale * p.difference, *ends(p.interval, p.scale),
        *chance_cells(p), p.p_value, p.p_corrected, design_word(p.contrast), *p.n_units, *planned,
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
        shown = stratum_table(times)
        definitions = {'difference (s)': 'difference', 'low': 'interval', 'high': 'interval', 'stratum': 'stratum'}
        blocks.append(table_block('stratum-table', shown, definitions, stratum='stratum', is_folded=True))
    curves = {'macro KS': 'macro-ks', 'p': 'p-value', 'p (corrected)': 'holm'}
    blocks.append(table_block('difference-table', different_table(times), curves, is_folded=True))
    blocks.append(table_block('advantage-table', advantage_table(times), {'advantage': 'advantage'}, is_folded=True))
    return blocks


def stratum_table(times: tuple[TimeComparison, ...]) -> Table:
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


def _favours(name: str, found: TimeComparison) -> str | None:
    if name in found.favouring_a:
        return found.policy_a
    return found.policy_b if name in found.favouring_b else None
