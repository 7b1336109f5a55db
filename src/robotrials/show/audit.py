"""Tables and plain words of the benchmark audit: toplines, pairs and drops, and where two runs of one plan diverged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from robotrials.errors import NotEstimable
from robotrials.show.answer import ALL, Card, brief, p_text
from robotrials.show.catalog import ShowRequest, named, takes
from robotrials.show.figure import COLUMN_WIDTH_IN, PAGE_WIDTH_IN
from robotrials.show.phrase import claim_words, ends, plural
from robotrials.show.plot import THING_PALETTE, Area, Axis, Curve, GuideLine, Layer, Note, Plot, Sheet, facets
from robotrials.show.robustness import forest_plot, forest_row
from robotrials.show.table import Cell, Column, Table, cut, estimate_text, mark, points_text, table
from robotrials.verdict.analysis.contrast import Contrast, design_word
from robotrials.verdict.analysis.subject import BenchmarkGaps, Input
from robotrials.verdict.audit import (
    Benchmark,
    Channel,
    Classification,
    Drop,
    PairedSignificance,
    Protocol,
    RunComparison,
    Topline,
    TraceComparison,
    half_up_percent,
)
from robotrials.verdict.audit.determinism import RepeatControl
from robotrials.verdict.audit.topline import Cutoff

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
    size = f'{gap / protocol.instances:.4g} of {protocol.max_score}'
    if unit in ('percent', 'fraction'):
        size = f'{100 * gap / protocol.most:.2f} percentage points'
    return f'{gap} {kind} ({size})'


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


def contrast_card(contrast: Contrast) -> Card:
    """Two runs as every verb compares them."""
    size = points_text(contrast.estimate, contrast.interval)
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
        change=change, notes=(f'Left out of {aside}',) if aside else (),
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
        size = estimate_text(drop.estimate, drop.interval, scale=scale, sign='+', unit=unit)
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
def draw_cutoffs(request: ShowRequest) -> Plot:
    """The gap that could and the gap that must be significant on a benchmark, over baseline scores."""
    gaps = request.value(BenchmarkGaps)
    return cutoff_plot(gaps.drawn, gaps.benchmark)


@takes(Input.BENCHMARK)
def needed_gaps(request: ShowRequest) -> list[Table]:
    """How big a gap on a benchmark could and how big a gap must be significant, by baseline score."""
    gaps = request.value(BenchmarkGaps)
    return [cutoff_table(gaps.listed, gaps.benchmark, alpha=gaps.alpha)]


CONTROL_NOTES = {
    RepeatControl.MISSING: (
        'Control missing: without a same-machine repeat, a divergence cannot be laid to the change of hardware.'
    ),
    RepeatControl.IDENTICAL: 'Control: the same-machine repeat is bitwise identical in all that was recorded.',
}


SHORT_CHANNELS = {
    Channel.STATE: 'state', Channel.CONTACTS: 'contacts', Channel.PIXELS: 'pixels', Channel.ACTION_RAW: 'raw',
    Channel.ACTION_PROCESSED: 'processed', Channel.REWARD: 'reward', Channel.DONE: 'done', Channel.LENGTH: 'length',
    Channel.SUCCESS: 'success',
}  # fmt: skip


def propagation_words(run: RunComparison) -> str:
    """How a difference travelled through the loop, earliest first."""
    total = len(run.traces)
    if not total:
        return 'no trajectories recorded in both runs'
    steps = [(step, c) for c in Channel if (step := run.first_step(c)) is not None]
    if not steps:
        return f'0/{total} episode pairs diverged'
    parts = [
        f'{channel} at step {step} ({len(run.diverged(channel))}/{total} episodes)'
        for step, channel in sorted(steps, key=lambda pair: pair[0])
    ]
    return '; '.join(parts)


def trace_card(run: RunComparison) -> Card:
    """Whether two runs are bit for bit the same, where they part first, and which targets they meet."""
    total, differing = len(run.traces), sum(not t.is_bitwise_equal for t in run.traces)
    if not total:
        verdict = 'Nothing can be said of traces: no trajectories recorded in both runs.'
    elif differing:
        verdict = f'{differing} of {plural(total, "episode pair")} diverged.'
    else:
        verdict = f'No divergence in what was recorded of {plural(total, "episode pair")}.'
    ends = sum(t.is_outcome_equal for t in run.traces)
    rows = [('outcomes', f'{ends} of {total} episode pairs end alike')] if total else []
    steps = sorted((step, c) for c in Channel if (step := run.first_step(c)) is not None)
    rows += [(str(c), f'from step {step}, in {len(run.diverged(c))} of {total} episodes') for step, c in steps]
    rows += [(str(g.target), f'{g.grade}: {brief(g.evidence)}') for g in run.grades]
    return Card(
        title=run.name or 'Two runs of one plan', scope=run.contrast, verdict=(verdict,), rows=tuple(rows),
        notes=(_control_note(run),), more=(ALL, '--episodes'),
    )  # fmt: skip


@named(lambda r: [r.value(RunComparison)], wants=Input.TWO_STORES)
def trace_table(runs: Sequence[RunComparison]) -> Table:
    """Two runs of one plan: how a difference travelled through the loop, and whether they are bitwise equal."""
    rows: list[list[Cell]] = [
        [r.name or '(unnamed)', r.contrast, propagation_words(r),
         all(t.is_bitwise_equal for t in r.traces) if r.traces else None, str(r.control)]
        for r in runs
    ]  # fmt: skip
    notes = [_control_note(r) for r in runs]
    note = ' '.join(dict.fromkeys(notes))
    columns = ['stack', 'hardware contrast', 'observed propagation', 'bitwise identical?', 'same-machine control']
    return table('Trace comparison', columns, rows, note=note)


def _control_note(run: RunComparison) -> str:
    if run.control is RepeatControl.DIVERGED:
        channels = ', '.join(run.control_channels)
        return (
            f'Control: the same-machine repeat diverges itself ({channels}), so the contrast shows nothing by itself.'
        )
    return CONTROL_NOTES[run.control]


@named(lambda r: r.value(RunComparison), wants=Input.TWO_STORES)
def grade_table(run: RunComparison) -> Table:
    """Two runs of one plan: which of the four reproduction targets they meet."""
    rows = [(str(g.target), str(g.grade), g.evidence) for g in run.grades]
    return table('Reproduction targets', ['target', 'grade', 'evidence'], rows)


@named(lambda r: r.value(RunComparison), wants=Input.TWO_STORES)
def channel_table(run: RunComparison) -> Table:
    """Two runs of one plan: what diverged, in how many episodes, and when first."""
    rows: list[list[Cell]] = []
    for channel in Channel:
        steps = [t.first[channel] for t in run.traces if channel in t.first]
        compared = sum(channel in t.compared for t in run.traces)
        first, last = (min(steps), max(steps)) if steps else (None, None)
        rows.append([str(channel), compared, len(steps) if compared else None, first, last])
    note = 'A dash: not recorded in both runs, or never diverged.'
    return table(
        'Divergence by channel', ['channel', 'compared', 'diverged', 'earliest step', 'latest'], rows, note=note
    )


def divergence_table(run: RunComparison) -> Table:
    """The first divergent step of every channel in every episode."""
    columns = ['task', *SHORT_CHANNELS.values(), 'episode']
    rows: list[list[Cell]] = [[t.task, *(_step(t, c) for c in SHORT_CHANNELS), t.episode_id] for t in run.traces]
    note = (
        'The first step that differs; "=" if none does; a dash if it was not recorded in both runs. '
        'Raw and processed are the actions.'
    )
    return table('First divergence', columns, rows, note=note)


def _step(trace: TraceComparison, channel: Channel) -> Cell:
    if channel in trace.first:
        return str(trace.first[channel])
    return '=' if channel in trace.compared else None


def metadata_table(run: RunComparison) -> Table:
    """What Appendix B.3 asks to be released, checked off."""
    rows = [(m.item, m.recorded_a, m.recorded_b, m.is_same) for m in run.metadata]
    missing = ', '.join(run.missing_metadata)
    note = f'Missing: {missing}.' if missing else 'Nothing is missing.'
    return table('Metadata', ['item', 'run A', 'run B', 'same'], rows, note=note)


# How a divergence grows, step by step.

GROWTH_COLORS = {
    Channel.STATE: THING_PALETTE[0], Channel.PIXELS: THING_PALETTE[3], Channel.ACTION_RAW: THING_PALETTE[2],
    Channel.ACTION_PROCESSED: THING_PALETTE[1],
}  # fmt: skip


def growth_plot(trace: TraceComparison) -> Plot:
    """How a divergence grows, as in Figure 6: L-infinity for state and actions, mean absolute difference for images.

    Zeros are drawn at the floor of the logarithmic scale; a dotted line says where a channel first differs.
    """
    floor = min((v for curve in trace.growth.values() for v in curve.tolist() if v > 0), default=1e-16) / 10
    layers: list[Layer] = []
    for channel, curve in trace.growth.items():
        values = [max(v, floor) for v in curve.tolist()]
        dash = '--' if channel is Channel.ACTION_PROCESSED else '-'  # it often lies on the raw action
        color = GROWTH_COLORS[channel]
        layers.append(Curve('', range(len(values)), values, name=str(channel), color=color, dash=dash, width=1.1))
    first: dict[int, list[str]] = {}
    for channel, step in trace.first.items():
        first.setdefault(step, []).append(str(channel))
    for number, (step, names) in enumerate(sorted(first.items())):
        is_late = step > 0.45 * max(trace.steps)
        layers += [
            GuideLine(x=step, color='#7F7F7F', dash=':', width=0.6),
            Note(', '.join(names), step, 0.98 - 0.09 * (number % 4), size='x-small', is_share=(False, True),
                 align=('right' if is_late else 'left', 'top'), shift_pt=-2 if is_late else 2),
        ]  # fmt: skip
    return Plot(
        'divergence', trace.task, facets({trace.task: layers}), Axis('step'),
        Axis('difference (zeros at the floor)', is_log=True), sheet=Sheet(PAGE_WIDTH_IN * 0.75, 2.6),
    )  # fmt: skip


@takes(Input.TWO_STORES)
def draw_divergence(request: ShowRequest) -> Plot:
    """How the difference between two runs of one plan grows in states, images and actions, step by step."""
    traces = request.value(RunComparison).traces
    drawn = next((t for t in traces if t.first and t.growth), next(iter(traces), None))
    if drawn is None or not drawn.growth:
        raise NotEstimable('no trajectory with states, actions or frames in both runs; nothing to draw')
    return growth_plot(drawn)
