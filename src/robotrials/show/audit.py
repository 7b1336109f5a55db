"""Tables and plain words of the benchmark audit's significance part: toplines, pairs and drops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from robotrials.show.card import ALL, Card, p_text
from robotrials.show.figure import COLUMN_WIDTH_IN
from robotrials.show.phrase import ends, plural
from robotrials.show.plot import Area, Axis, Curve, Layer, Plot, Sheet, facets
from robotrials.show.plot_paper import paint_paper
from robotrials.show.request import ShowRequest, takes
from robotrials.show.robustness import forest_plot, forest_row
from robotrials.show.table import Cell, Column, Table, table
from robotrials.show.terminal import cut, estimate_text, mark
from robotrials.show.verdict_text import claim_words
from robotrials.verdict.analysis.contrast import Contrast, design_word
from robotrials.verdict.analysis.subject import BenchmarkGaps, Input
from robotrials.verdict.audit import (
    Benchmark,
    Classification,
    Drop,
    PairedSignificance,
    Protocol,
    Topline,
    half_up_percent,
)
from robotrials.verdict.audit.topline import Cutoff

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_UNMATCHED = 5
CLASS_WORDS = {
    Classification.NO_IMPROVEMENT: 'no improvement',
    Classification.IMPOSSIBLE: 'impossible',
    Classification.INCONCLUSIVE: 'inconclusive',
    Classification.GUARANTEED: 'significant',
}
CLASS_SENTENCES = {
    Classification.NO_IMPROVEMENT: 'No improvement: the new score is not higher than the old one.',
    Classification.IMPOSSIBLE: 'Impossible: no outcome table with these two scores makes the gain significant.',
    Classification.INCONCLUSIVE: (
        'Inconclusive: some outcome tables with these two scores make the gain significant and others do not; '
        'the averages alone do not say.'
    ),
    Classification.GUARANTEED: 'Significant: every outcome table with these two scores rejects "no improvement".',
}


def gap_text(gap: int | None, protocol: Protocol, unit: str) -> str:
    """A count gap with its size on the printed scale."""
    if gap is None:
        return 'none (no gap within reach)'
    kind = 'successes' if protocol.max_score == 1 else 'points of total score'
    return f'{gap} {kind} ({size_text(gap, protocol, unit)})'


def size_text(gap: int, protocol: Protocol, unit: str) -> str:
    if unit == 'percent' or unit == 'fraction':
        return f'{100 * gap / protocol.most:.2f} percentage points'
    return f'{gap / protocol.instances:.4g} of {protocol.max_score}'


def topline_card(claim: Topline, *, title: str, unit: str) -> Card:
    """The reading of two averages: what they allow, and the gaps that would settle it."""
    protocol = claim.protocol
    could, sure = (gap_text(g, protocol, unit) for g in (claim.smallest_feasible, claim.smallest_guaranteed))
    shape = f'{plural(protocol.tasks, "task")} x {plural(protocol.samples, "sample")}'
    rows = [
        ('gap', f'{claim.count_b} - {claim.count_a} = {gap_text(claim.gap_count, protocol, unit)}'),
        ('could be', f'significant from {could} on'), ('must be', f'significant from {sure} on'),
    ]  # fmt: skip
    settling = ' '.join(line.removeprefix('What would settle it: ') for line in _settling_lines(claim))
    return Card(
        title=title, scope=f'{shape}, scores 0..{protocol.max_score}, one-sided level {float(claim.alpha):g}',
        verdict=(CLASS_SENTENCES[claim.classification],), rows=tuple(rows), change=settling,
        notes=(*_rounding_lines(claim), f'On independently drawn instances: {claim.independent_reading}.'),
        more=('--table: the gap that every baseline needs',),
    )  # fmt: skip


def contrast_card(contrast: Contrast, *, more: tuple[str, ...] = (ALL,)) -> Card:
    """Two runs as every verb compares them."""
    span = None if contrast.interval is None else contrast.interval.scaled(100.0)
    size = estimate_text(100 * contrast.estimate, span, sign='+', unit=' points')
    rates = '   '.join(
        f'{cut(name, 16)} {100 * value:.0f} % {mark(value)}'
        for name, value in zip((contrast.a, contrast.b), contrast.values, strict=True)
    )
    needed = contrast.needed()
    change = ''
    if needed is not None and (contrast.p_value or 0.0) > 1 - contrast.level:
        planned = math.isfinite(needed.n)
        change = (
            f'about {needed.n:.0f} {contrast.unit}s per task (80 % power, if the difference is as observed).'
            if planned else 'nothing that could be planned: the observed difference is too small.'
        )  # fmt: skip
    sentence, _, aside = contrast_sentence(contrast).partition(' Left out of ')
    n_a, n_b = contrast.n_episodes
    return Card(
        title=f'{contrast.a} vs {contrast.b}',
        scope=f'{n_a:,} and {plural(n_b, "episode")}, {plural(len(contrast.cells), "task")}',
        verdict=(sentence,), rows=(('success', f'{size}   {p_text(contrast.p_value)}   {contrast.test}\n{rates}'),),
        change=change, notes=(f'Left out of {aside}',) if aside else (), more=more,
    )  # fmt: skip


def drop_card(drops: Sequence[Drop]) -> Card:
    """Which altered tests scored lower, beyond chance."""
    lower = [d for d in drops if d.is_resolved and d.estimate > 0]
    level = f'{100 * drops[0].level:g} % intervals'
    if len(drops) == 1:
        said = 'scores lower' if lower else 'is not shown to score lower'
        verdict = f'The altered or fresh test {said} than the calibration.'
    else:
        verdict = f'{len(lower)} of {plural(len(drops), "altered test")} scored lower beyond chance.'
    rows = []
    for drop in sorted(drops, key=lambda d: -d.estimate):
        scale, unit = (100.0, ' points') if drop.is_rate else (1.0, '')
        size = estimate_text(scale * drop.estimate, drop.interval.scaled(scale), sign='+', unit=unit)
        sides = [_side(m, n, drop.is_rate) for m, n in
                 ((drop.calibration, drop.n_calibration), (drop.altered, drop.n_altered))]  # fmt: skip
        rows.append(
            (drop.label or 'drop', f'{"lower" if drop in lower else "not shown"}   {size}\n{" to ".join(sides)}')
        )
    return Card(
        title=plural(len(drops), 'test'), scope=f'drop = calibration - altered; {level}', verdict=(verdict,),
        rows=tuple(rows),
    )  # fmt: skip


def _rounding_lines(claim: Topline) -> list[str]:
    lines = []
    for name, score in (('old', claim.score_a), ('new', claim.score_b)):
        if score.is_tie:
            low, high = score.nearest
            lines.append(f'The {name} score lies halfway between {low} and {high}; {high} is used.')
        elif not score.is_realizable:
            why = 'a rounded figure' if score.is_printable else 'which no single pass prints'
            count = f'{float(score.exact_count):.6g}'
            lines.append(f'The {name} score is {count} on the count scale ({why}); {score.half_up} is used.')
    if claim.is_tie_decisive:
        ways = ', '.join(f'{r.count_a} to {r.count_b}: {CLASS_WORDS[r.classification]}' for r in claim.readings)
        lines.append(f'The class depends on how the tie is rounded ({ways}).')
    return lines


def _settling_lines(claim: Topline) -> list[str]:
    if claim.classification is not Classification.INCONCLUSIVE or claim.decisive_q is None:
        return []
    low, high = claim.q_range
    what = 'successes and failures' if claim.protocol.max_score == 1 else 'scores'
    return [
        f"What would settle it: both policies' {what} on each of the {claim.protocol.instances} instances, by task and "
        f'sample (robotrials audit paired old.csv new.csv). The gain is significant if their paired Q is below '
        f'{claim.decisive_q:.4g}; the two averages allow {low:.4g} to {high:.4g}.'
    ]


def topline_table(claim: Topline, *, title: str) -> Table:
    """Every number of one reading, one row each."""
    low, high = claim.z_range
    rows: list[tuple[str, Cell]] = [
        ('classification', str(claim.classification)), ('count A', claim.count_a), ('count B', claim.count_b),
        ('gap', claim.gap_count), ('S Q low', claim.scaled_q_low), ('S Q high', claim.scaled_q_high),
        ('least z', low), ('greatest z', high), ('smallest feasible gap', claim.smallest_feasible),
        ('smallest guaranteed gap', claim.smallest_guaranteed),
        ('feasible difference', _number(claim.feasible_difference)),
        ('guaranteed difference', _number(claim.guaranteed_difference)), ('realizable', claim.is_realizable),
        ('printable', claim.is_printable),
        ('tie decides', claim.is_tie_decisive), ('tasks', claim.protocol.tasks), ('samples', claim.protocol.samples),
        ('max score', claim.protocol.max_score), ('alpha', float(claim.alpha)),
    ]  # fmt: skip
    return table(title, ['quantity', 'value'], rows)


def cutoff_table(cutoffs: Sequence[Cutoff], benchmark: Benchmark, *, alpha: float) -> Table:
    """How big a gap is needed over each baseline."""
    protocol = benchmark.protocol
    scale = 100 / protocol.most if benchmark.unit == 'percent' else 1 / protocol.instances
    points = 'points' if benchmark.unit == 'percent' else 'score'
    columns = [
        Column('baseline', '.4g'), Column('count'), Column('could: gap'), Column(f'could: {points}', '.3f'),
        Column('must: gap'), Column(f'must: {points}', '.3f'), Column('must: new score', '.4g'),
    ]  # fmt: skip
    rows = []
    for cutoff in cutoffs:
        feasible, sure = cutoff.smallest_feasible, cutoff.smallest_guaranteed
        rows.append((
            cutoff.count_a * scale, cutoff.count_a, feasible, None if feasible is None else feasible * scale, sure,
            None if sure is None else sure * scale, None if sure is None else (cutoff.count_a + sure) * scale,
        ))  # fmt: skip
    title = f'{benchmark.title}: how big a gap is needed (one-sided level {alpha:g})'
    note = 'could: some outcome table is significant. must: from this gap on every table is. A dash: no gap in reach.'
    return table(title, columns, rows, note=note)


def paired_table(test: PairedSignificance, *, alpha: float, names: tuple[str, str] = ('A', 'B')) -> Table:
    """Each test of "B improves on A" with its z, p and decision."""
    rows: list[list[Cell]] = [
        ['paired Wald, by task', test.z, test.p_value, test.p_value < alpha],
        ['two-sample Wald, by task', test.z_independent, test.p_value_independent, test.p_value_independent < alpha],
        ['sign flips, by task', None, test.sign_flip_p_value, test.sign_flip_p_value <= alpha],
    ]
    if test.mcnemar_p_value is not None:
        rows.append(['exact McNemar, pooled', None, test.mcnemar_p_value, test.mcnemar_p_value <= alpha])
    flips = 'all counted' if test.sign_flip.exact else f'{test.sign_flip.n_resamples} drawn'
    note = (
        f'{names[1]} - {names[0]} = {test.difference:+.4g} over {test.instances} instances of {test.tasks} tasks; '
        f'{names[1]} better on {test.wins_b}, {names[0]} on {test.wins_a}, equal on {test.ties}. '
        f'Sign flips: {flips}. The computations of the audit paper: one-sided, matched instances alone. '
        f'{unmatched_words(test, names=names)}'
    ).rstrip()
    columns: list[str | Column] = [
        'test', Column('z', '.3f'), Column('one-sided p', '.4g'), f'significant at {alpha:g}',
    ]  # fmt: skip
    return table(f'Named methods: does {names[1]} improve on {names[0]}?', columns, rows, note=note)


def unmatched_words(test: PairedSignificance, *, names: tuple[str, str] = ('A', 'B')) -> str:
    """How many instances have no partner in the paper's tests, and the first few of them."""
    parts = []
    for name, keys in ((names[0], test.only_a), (names[1], test.only_b)):
        if keys:
            text = ', '.join('/'.join(filter(None, key)) for key in keys[:MOST_UNMATCHED])
            rest = f' and {len(keys) - MOST_UNMATCHED:,} more' if len(keys) > MOST_UNMATCHED else ''
            parts.append(f'{len(keys):,} only in {name} ({text}{rest})')
    return f'Without a partner, left out of these tests: {"; ".join(parts)}.' if parts else ''


def contrast_table(contrast: Contrast) -> Table:
    """Two runs as every verb compares them: the verdict, its estimate and its test."""
    scale, unit = 100.0, 'points'
    rows: list[list[Cell]] = [
        [contrast.a, contrast.b, scale * contrast.values[0], scale * contrast.values[1], scale * contrast.estimate,
         *ends(contrast.interval, scale), contrast.p_value, contrast.test, *contrast.n_units, contrast.n_matched]
    ]  # fmt: skip
    columns: list[str | Column] = [
        'a', 'b', Column('a (%)', '.2f'), Column('b (%)', '.2f'), Column(f'a - b ({unit})', '+.2f'),
        Column('low', '+.2f'), Column('high', '+.2f'), Column('p', '.3g'), 'test', 'units a', 'units b',
        'shared starts',
    ]  # fmt: skip
    return table('The verdict', columns, rows, note=contrast_sentence(contrast))


def contrast_sentence(contrast: Contrast) -> str:
    """What the contrast of two runs says, the reverse included."""
    words = f'{contrast.a} and {contrast.b} are not significantly different'
    if contrast.withheld:
        words = f'{contrast.a} and {contrast.b} cannot be compared: {contrast.withheld}'
    elif contrast.p_value is not None and contrast.p_value <= 1 - contrast.level and contrast.ahead is not None:
        behind = contrast.b if contrast.ahead == contrast.a else contrast.a
        words = f'{contrast.ahead} {claim_words(contrast.endpoint)} than {behind}'
    left = ''.join(f' Left out of {out.name}: {out.n} {out.why}.' for out in contrast.left_out)
    cells = f'mean over {len(contrast.cells)} tasks' if len(contrast.cells) > 1 else 'one task'
    return f'{words} ({cells}, {design_word(contrast)}, two-sided at {1 - contrast.level:.3g}).{left}'


def drop_table(drops: Sequence[Drop]) -> Table:
    """Drops with their intervals; rates in percentage points, scores on their own scale."""
    rates = [d.is_rate for d in drops]
    unit = ' (points)' if all(rates) else ' (score)' if not any(rates) else ''
    form = '+.2f' if all(rates) else '+.4f'
    methods = list(dict.fromkeys(d.method.replace('_', ' ') for d in drops))
    columns: list[str | Column] = [
        'test', 'calibration', 'altered', Column(f'drop{unit}', form), Column('low', form), Column('high', form),
        'not 0', *(['interval'] if len(methods) > 1 else []),
    ]  # fmt: skip
    rows = [[*_drop_row(d), *([d.method.replace('_', ' ')] if len(methods) > 1 else [])] for d in drops]
    level = f'{100 * drops[0].level:g} % intervals ({" or ".join(methods)}). ' if drops else ''
    note = f'{level}drop = calibration - altered: positive means that the altered or fresh test scored lower.'
    return table('Drops', columns, rows, note=note)


def _drop_row(drop: Drop) -> list[Cell]:
    scale = 100.0 if drop.is_rate else 1.0
    return [
        drop.label, _side(drop.calibration, drop.n_calibration, drop.is_rate),
        _side(drop.altered, drop.n_altered, drop.is_rate), round(scale * drop.estimate, 6),
        round(scale * drop.interval.low, 6), round(scale * drop.interval.high, 6), drop.is_resolved,
    ]  # fmt: skip


def _side(mean: float, n: int, is_rate: bool) -> str:
    if is_rate:
        successes = round(mean * n)
        return f'{successes}/{n} {half_up_percent(successes, n)}%'
    return f'{mean:.4f} (n={n})'


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


# The gaps that two averages can settle, as a plot; drops of audited scores as rows of a forest.

CLASS_COLORS = {
    Classification.NO_IMPROVEMENT: '#BDBDBD',
    Classification.IMPOSSIBLE: '#CC6677',
    Classification.INCONCLUSIVE: '#DDCC77',
    Classification.GUARANTEED: '#117733',
}


def cutoff_plot(cutoffs: Sequence[Cutoff], benchmark: Benchmark) -> Plot:
    """The gap that could and the gap that must be significant, over baseline scores."""
    protocol = benchmark.protocol
    is_percent = benchmark.unit == 'percent'
    scale = 100 / protocol.most if is_percent else 1 / protocol.instances
    sure = [(c.count_a * scale, c.smallest_guaranteed * scale) for c in cutoffs if c.smallest_guaranteed is not None]
    could = [(c.count_a * scale, c.smallest_feasible * scale) for c in cutoffs if c.smallest_feasible is not None]
    top, right = 1.15 * max((y for _, y in sure), default=1.0), protocol.most * scale
    layers: list[Layer] = []
    for points, kind, edge, name in (
        (sure, Classification.GUARANTEED, top, 'must be significant'),
        (could, Classification.IMPOSSIBLE, 0.0, 'could be significant'),
    ):  # fmt: skip
        if points:
            x, y = zip(*points, strict=True)
            color = CLASS_COLORS[kind]
            layers += [Area(x, [edge] * len(x), y, color=color, alpha=0.25), Curve('', x, y, name=name, color=color)]
    layers.append(
        Curve('', [right - top, right], [top, 0], name='perfect new score', color='#000000', dash=':', width=0.8)
    )
    unit = '(%)' if is_percent else f'(of {protocol.max_score})'
    return Plot(
        'cutoffs', benchmark.title, facets({benchmark.title: layers}), Axis(f'baseline score {unit}', (0.0, right)),
        Axis('gap (percentage points)' if is_percent else 'gap', (0.0, top)), sheet=Sheet(COLUMN_WIDTH_IN, 2.6),
    )  # fmt: skip


def drop_plot(drops: Sequence[Drop]) -> Plot:
    """Drops of audited scores, with intervals."""
    rows = []
    for number, d in enumerate(drops, start=1):
        scale = 100.0 if d.is_rate else 1.0
        rows.append(forest_row(d.label or f'row {number}', d.estimate, d.interval, d.is_resolved, scale=scale))
    rates = [d.is_rate for d in drops]
    unit = 'percentage points' if all(rates) else 'score' if not any(rates) else 'percentage points, or score'
    return forest_plot(rows, level=drops[0].level, unit=unit)


@takes(Input.BENCHMARK)
def draw_cutoffs(request: ShowRequest) -> Figure:
    """The gap that could and the gap that must be significant on a benchmark, over baseline scores."""
    gaps = request.value(BenchmarkGaps)
    return paint_paper(cutoff_plot(gaps.drawn, gaps.benchmark))


@takes(Input.BENCHMARK)
def needed_gaps(request: ShowRequest) -> list[Table]:
    """How big a gap on a benchmark could and how big a gap must be significant, by baseline score."""
    gaps = request.value(BenchmarkGaps)
    return [cutoff_table(gaps.listed, gaps.benchmark, alpha=gaps.alpha)]
