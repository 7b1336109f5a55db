"""Tables and plain words of the shortcut diagnosis."""

from __future__ import annotations

from robotrials.show.audit import CLASS_WORDS
from robotrials.show.catalog import ShowRequest, named, takes
from robotrials.show.plot import THING_PALETTE, Axis, Curve, Facet, GuideLine, Layer, Plot, Point, Sheet, places
from robotrials.show.table import Cell, Column, Table, table
from robotrials.stats import Interval
from robotrials.verdict.analysis.subject import Input
from robotrials.verdict.audit import ScoreKind
from robotrials.verdict.audit.reported import LIBERO_MEANS, SOURCE, TABLE_1, TABLE_3, ProbeStanding, ReportedGap
from robotrials.verdict.audit.run_score import RunScore
from robotrials.verdict.audit.shortcut import (
    BEST,
    FOUNDATION,
    SHUFFLED,
    InputNeed,
    ProbeSweep,
    SelectionOptimism,
    Shortcut,
    ShortcutVerdict,
)

CANNOT_SAY = (
    'It does not say that a policy with a high score lacks the capability: a capable policy reaches a high score too.'
)
SWEPT_VARIANTS = (
    'Variants were trained with these settings, which were chosen for the full probe: with settings of its own a '
    'variant may lose less.'
)
VERDICT_WORDS = {
    ShortcutVerdict.NEAR_BEST: 'On this benchmark a high score is not, by itself, evidence of more than the probe has.',
    ShortcutVerdict.NEAR_FOUNDATION: "The foundation policy's score needs no more than the probe has; the best may.",
    ShortcutVerdict.BELOW: 'No shortcut of this kind was found; another probe might find one.',
    ShortcutVerdict.UNRESOLVED: 'These episodes do not settle it; more of them, or a wider margin, would.',
    ShortcutVerdict.NOTHING_REPORTED: 'Nothing is reported to compare it with; give a file of reported scores.',
}


def score_text(audit: Shortcut, mean: float) -> str:
    """A mean score as it is printed: in percent for success."""
    return f'{100 * mean:.1f} %' if audit.max_score == 1 else f'{mean:.3f} of {audit.max_score}'


def shortcut_words(audit: Shortcut) -> str:
    """The diagnosis in a few lines, none of which claims more than the numbers hold."""
    best, final = audit.best_checkpoint, audit.final_checkpoint
    probe, n = audit.probe, len(audit.checkpoints)
    size = '' if probe.parameters is None else f' of {probe.parameters / 1e6:.2g} M parameters'
    language = 'a frozen text embedding' if probe.has_language_encoder else 'no language encoder'
    chosen = 'its only checkpoint' if n == 1 else f'the best of {n} checkpoints, chosen on the test itself'
    lines = [f'{audit.title}: a probe{size} with {language} reaches {_with_interval(audit, best)} ({chosen}).']
    if best.name != final.name:
        lines.append(f'Without a choice on the test set, at its last step, it reaches {_with_interval(audit, final)}.')
    if audit.optimism is not None:
        lines.append(_optimism_words(audit, audit.optimism))
    if audit.probe.sweep is not None:
        lines.append(sweep_words(audit.probe.sweep))
        if any(v.score.name != SHUFFLED for v in audit.variants):
            lines.append(SWEPT_VARIANTS)
    lines += [_gap_words(audit, gap) for gap in audit.gaps if gap.checkpoint == audit.best]
    lines.append(f'Verdict (margin {_points(audit, audit.margin * audit.max_score)}): {audit.verdict.value}. '
                 f'{VERDICT_WORDS[audit.verdict]}')  # fmt: skip
    unselected = audit.verdict_of(final.name)
    if audit.gaps and unselected is not audit.verdict:
        lines.append(f'By the last step alone: {unselected.value}.')
    lines += [_need_words(audit, v.removes, v.need, v.drop.difference, v.drop.interval) for v in audit.variants]
    if audit.probe.mid_motion:
        lines.append(
            f'{audit.probe.mid_motion} of {audit.probe.demonstrations} demonstrations begin in mid-motion: the probe '
            'never saw how they began, which lowers its score.'
        )
    lines += [f'Not the official protocol: {d}.' for d in audit.deviations]
    lines += [f'Not run: {n}.' for n in audit.not_run]
    if audit.verdict in (ShortcutVerdict.NEAR_BEST, ShortcutVerdict.NEAR_FOUNDATION):
        lines.append(CANNOT_SAY)
    return '\n'.join(lines) + '\n'


def _with_interval(audit: Shortcut, score: RunScore) -> str:
    low, high = (score_text(audit, end) for end in score.interval)
    return f'{score_text(audit, score.mean)} [{low}, {high}]'


def _optimism_words(audit: Shortcut, choice: SelectionOptimism) -> str:
    return (
        f'Choosing on the test set: chosen on one half of the start states and counted on the other it is '
        f'{score_text(audit, choice.cross_fitted)}, so that the choice adds {_points(audit, choice.estimate)}; if the '
        f'checkpoints did not differ, the best would stand {_points(audit, choice.gain_by_chance)} above their mean by '
        f'chance (it does by {_points(audit, choice.gain)}, p = {choice.p_value:.2g}).'
    )


def sweep_words(sweep: ProbeSweep) -> str:
    """How the settings were chosen, what that leaves out of the score and what it flatters."""
    n, chosen = len(sweep.settings), sweep.chosen
    return (
        f'Training settings: {chosen}, chosen among {n} by validation loss, on demonstrations that were held out, and '
        'not by score: no setting but this one was run on the test, so that the choice does not raise the score, and '
        f'another setting may score higher. The loss itself, {chosen.validation_loss:.4g}, is the smallest of {n} and '
        'optimistic.'
    )


@named(lambda r: r.value(Shortcut), wants=Input.SHORTCUT)
def sweep_table(audit: Shortcut) -> Table:
    """Training settings of a probe by validation loss, and the one that was chosen."""
    sweep = audit.probe.sweep
    rows: list[list[Cell]] = [] if sweep is None else [
        [s.learning_rate, s.augmentation, s.steps, s.validation_loss, 'chosen' if s is sweep.chosen else '']
        for s in sweep.settings
    ]  # fmt: skip
    columns: list[str | Column] = [
        Column('learning rate', 'g'), Column('augmentation', 'g'), 'steps', Column('validation loss', '.4g'), '',
    ]  # fmt: skip
    note = 'The settings were declared: nothing was chosen.'
    if sweep is not None:
        note = 'Chosen by the loss on held-out demonstrations at the last step, not by a score on the test.'
    return table(f'{audit.title}: training settings', columns, rows, note=note)


def _gap_words(audit: Shortcut, gap: ReportedGap) -> str:
    who = 'The best reported score' if gap.role == BEST else 'The foundation policy'
    size = f', {gap.reported.parameters}' if gap.reported.parameters else ''
    text = score_text(audit, float(gap.reported.mean(audit.max_score)))
    said = {
        ProbeStanding.ABOVE: 'the probe is provably above it',
        ProbeStanding.BELOW: 'the probe is provably below it',
        ProbeStanding.NOT_PROVABLE: 'the difference is not provable',
        ProbeStanding.UNKNOWN: 'how many episodes stand behind it is unknown, so that nothing is provable',
    }[gap.standing]
    delta = _points(audit, gap.difference, signed=True, interval=gap.interval)
    return f'{who} is {text} ({gap.reported.policy}{size}), {delta} to the probe: {said}.'


def _need_words(audit: Shortcut, removes: str, need: InputNeed, drop: float, interval: Interval | None) -> str:
    said = {
        InputNeed.NEEDED: 'the score needs it',
        InputNeed.NOT_NEEDED: 'the score does not need it',
        InputNeed.UNRESOLVED: 'whether the score needs it is unresolved',
    }[need]
    return f'Without the {removes} the probe loses {_points(audit, drop, interval=interval)}: {said}.'


def _points(audit: Shortcut, difference: float, *, signed: bool = False, interval: Interval | None = None) -> str:
    """A difference of scores with its interval: in percentage points for success."""
    sign = '+' if signed else ''
    scale, digits, unit = (100, f'{sign}.1f', ' points') if audit.max_score == 1 else (1, f'{sign}.3f', '')
    ends = '' if interval is None else ' [{}, {}]'.format(*(format(scale * e + 0.0, digits) for e in interval))
    return f'{scale * difference + 0.0:{digits}}{ends}{unit}'


@named(lambda r: r.value(Shortcut), wants=Input.SHORTCUT)
def gap_table(audit: Shortcut) -> Table:
    """A probe's score beside the foundation policy and the best reported score, with what is provable."""
    rows: list[list[Cell]] = []
    scores = {c.name: c for c in audit.checkpoints}
    for gap in audit.gaps:
        ends = (None, None) if gap.interval is None else tuple(_scaled(audit, e) for e in gap.interval)
        rows.append([
            'best' if gap.checkpoint == audit.best else 'final', _scaled(audit, scores[gap.checkpoint].mean), gap.role,
            gap.reported.policy, gap.reported.parameters or None,
            _scaled(audit, float(gap.reported.mean(audit.max_score))), _scaled(audit, gap.difference), *ends,
            gap.standing.value, None if gap.classification is None else CLASS_WORDS[gap.classification],
        ])  # fmt: skip
    columns: list[str | Column] = [
        'checkpoint', _number(audit, 'probe'), 'against', 'policy', 'parameters', _number(audit, 'reported'),
        _number(audit, 'delta', '+'), _number(audit, 'low', '+'), _number(audit, 'high', '+'), 'the probe is',
        'by the averages',
    ]  # fmt: skip
    note = 'Delta = reported - probe; negative means that the probe scores higher. RL-finetuned policies are left out.'
    return table(f'{audit.title}: probe and reported scores', columns, rows, note=note)


def checkpoint_table(audit: Shortcut) -> Table:
    """Every checkpoint under the official protocol, as Table 2 has the best and the final one."""
    rows = [
        [c.name, c.total, c.n, _scaled(audit, c.mean), *_ends(audit, c.interval), *_ends(audit, c.task_interval),
         c.missing or None, _mark(audit, c)]
        for c in audit.checkpoints
    ]  # fmt: skip
    columns: list[str | Column] = [
        'checkpoint', 'total', 'episodes', _number(audit, 'score'), _number(audit, 'low'), _number(audit, 'high'),
        _number(audit, 'low, over tasks'), _number(audit, 'high, over tasks'), 'missing', '',
    ]  # fmt: skip
    note = 'Over tasks: for tasks drawn like these, and never narrower than the interval over start states.'
    return table(f'{audit.title}: checkpoints', columns, rows, note=note)


def optimism_table(audit: Shortcut) -> Table:
    """What choosing a checkpoint on the test set adds."""
    optimism = audit.optimism
    rows: list[list[Cell]] = []
    if optimism is not None:
        rows = [
            ['best', _scaled(audit, optimism.best)],
            ['final', _scaled(audit, optimism.final)],
            ['best - final', _scaled(audit, optimism.over_final)],
            ['cross-fitted: chosen on half of the starts, counted on the other', _scaled(audit, optimism.cross_fitted)],
            ['best - cross-fitted', _scaled(audit, optimism.estimate)],
            ['best - mean of checkpoints', _scaled(audit, optimism.gain)],
            ['the same by chance, if they did not differ', _scaled(audit, optimism.gain_by_chance)],
        ]
    note = 'One checkpoint: nothing was chosen.'
    if optimism is not None:
        note = f'p = {optimism.p_value:.3g} for "they do not differ".'
    return table(f'{audit.title}: choosing on the test set', ['quantity', _number(audit, 'score')], rows, note=note)


@named(lambda r: r.value(Shortcut), wants=Input.SHORTCUT)
def input_table(audit: Shortcut) -> Table:
    """Which input a probe's score needs: blind, proprioception-only and shuffled-task variants."""
    rows = [
        [v.score.name, v.removes, _scaled(audit, v.score.mean), *_ends(audit, v.score.interval),
         _scaled(audit, v.drop.difference), *_ends(audit, v.drop.interval), v.drop.p_value, v.need.value]
        for v in audit.variants
    ]  # fmt: skip
    columns: list[str | Column] = [
        'variant', 'without', _number(audit, 'score'), _number(audit, 'low'), _number(audit, 'high'),
        _number(audit, 'drop', '+'), _number(audit, 'drop, low', '+'), _number(audit, 'drop, high', '+'),
        Column('p', '.2g'), 'input',
    ]  # fmt: skip
    note = 'Drop = full probe at its last step - variant, on the same start states.'
    return table(f'{audit.title}: which input the score needs', columns, rows, note=note)


@named(lambda r: r.value(Shortcut), wants=Input.SHORTCUT)
def task_table(audit: Shortcut) -> Table:
    """A probe's score on every task, and what each variant loses there."""
    final = audit.final_checkpoint
    drops = {(v.score.name, t.task): t for v in audit.variants for t in v.tasks}
    rows: list[list[Cell]] = []
    for count in final.tasks:
        row: list[Cell] = [count.task, count.n, _scaled(audit, count.total / count.n)]
        for variant in audit.variants:
            drop = drops.get((variant.score.name, count.task))
            row += [None, None] if drop is None else [_scaled(audit, drop.drop.difference), drop.need.value]
        rows.append(row)
    named = [c for v in audit.variants for c in (_number(audit, f'{v.score.name}: drop', '+'), Column('input'))]
    return table(f'{audit.title}: tasks', ['task', 'episodes', _number(audit, 'full'), *named], rows)


@named(wants=Input.NOTHING)
def paper_score_table() -> Table:
    """The audit's own probe beside reported scores on five benchmarks, with what the averages prove."""
    rows: list[list[Cell]] = []
    for row in TABLE_1:
        for role, (policy, parameters, score), printed in (
            (FOUNDATION, row.foundation, row.delta_f),
            (BEST, row.best, row.delta_b),
        ):
            rows.append([
                row.suite, row.probe, role, policy, parameters or 'n.d.', score, float(row.delta(score)), printed,
                row.standing(role).value,
            ])  # fmt: skip
    columns: list[str | Column] = [
        'suite', 'probe', 'against', 'policy', 'parameters', 'reported', Column('delta', '+.2f'), 'delta printed',
        'the probe is',
    ]  # fmt: skip
    note = (
        f'{SOURCE}, Table 1; delta recomputed as reported - probe. CALVIN in tasks completed out of 5, else percent. '
        'n.d.: not disclosed. The last column is what the two averages prove at 0.05, one-sided.'
    )
    return table('Shortcut probe and reported scores', columns, rows, note=note)


@named(wants=Input.NOTHING)
def paper_checkpoint_table() -> Table:
    """Best and final checkpoints of the audit's own probe."""
    kept = [row for row in TABLE_1 if row.final is not None]
    rows: list[list[Cell]] = [[r.suite, r.probe, r.final, r.choice_gain] for r in kept]
    libero = [r for r in kept if r.preset.startswith('libero')]
    gap = sum(r.choice_gain for r in libero) / len(libero)
    rows.append(['LIBERO mean', *LIBERO_MEANS, gap])
    note = f'{SOURCE}, Table 2. Best: of all checkpoints scored on the suite; final: at the last step.'
    return table('Best and final checkpoints', ['suite', 'best', 'final', Column('gap', '+.2f')], rows, note=note)


@named(wants=Input.NOTHING)
def paper_task_table() -> Table:
    """The audit's own probe on every task of RoboTwin 2.0."""
    rows: list[list[Cell]] = [[t.task, t.clean, t.randomized] for t in TABLE_3]
    means: list[Cell] = [
        sum(t.clean for t in TABLE_3) / len(TABLE_3),
        sum(t.randomized for t in TABLE_3) / len(TABLE_3),
    ]
    columns: list[str | Column] = ['task', Column('clean', '.3g'), Column('randomized', '.3g')]
    note = f'{SOURCE}, Table 3, percent of 100 rollouts each.'
    return table('The probe on RoboTwin 2.0', columns, [*rows, ['mean', *means]], note=note)


def _mark(audit: Shortcut, score: RunScore) -> str:
    marks = [('best', score.name == audit.best), ('final', score.name == audit.final_checkpoint.name)]
    return ', '.join(word for word, holds in marks if holds)


def _number(audit: Shortcut, name: str, sign: str = '') -> Column:
    return Column(name, f'{sign}.1f' if audit.max_score == 1 else f'{sign}.3f')


def _scaled(audit: Shortcut, value: float) -> float:
    return round(100 * value, 6) + 0.0 if audit.max_score == 1 else round(value, 6) + 0.0


def _ends(audit: Shortcut, interval: Interval | None) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else (_scaled(audit, interval.low), _scaled(audit, interval.high))


# The shortcut diagnosis by name: its tables from a shortcut.json, the paper's own from nothing, and its figure.


@takes(Input.SHORTCUT)
def checkpoints(request: ShowRequest) -> list[Table]:
    """A probe's checkpoints, best and final, and what choosing on the test set adds."""
    audit = request.value(Shortcut)
    return [checkpoint_table(audit), optimism_table(audit)]


# The figure of the shortcut diagnosis: score by checkpoint, reported scores as lines, variants beside.

PROBE_COLOR = THING_PALETTE[0]
LINE_STYLES = {BEST: ('#000000', '-', 'best reported'), FOUNDATION: ('#000000', '--', 'foundation policy')}
NEED_COLORS = {InputNeed.NEEDED: '#CC6677', InputNeed.NOT_NEEDED: '#117733', InputNeed.UNRESOLVED: '#7F7F7F'}
NEED_WORDS = {
    InputNeed.NEEDED: 'input needed', InputNeed.NOT_NEEDED: 'input not needed', InputNeed.UNRESOLVED: 'unresolved',
}  # fmt: skip


@named(lambda r: r.value(Shortcut), wants=Input.SHORTCUT)
def shortcut_plot(audit: Shortcut) -> Plot:
    """A probe's score by checkpoint with reported scores as lines, and its variants beside it.

    Left: every checkpoint with its interval; right: the full probe and its variants on the same start states.
    """
    scale = 100.0 if audit.max_score == 1 else 1.0
    scores: list[Layer] = [*_reported_lines(audit, scale)]
    for place, score in enumerate(audit.checkpoints):
        scores += _score_layers(
            place, score, scale, PROBE_COLOR, name='best checkpoint' if score.name == audit.best else ''
        )
    variants = _score_layers(0, audit.final_checkpoint, scale, PROBE_COLOR)
    for place, variant in enumerate(audit.variants, start=1):
        variants += _score_layers(place, variant.score, scale, NEED_COLORS[variant.need], name=NEED_WORDS[variant.need])
    steps = [str(c.step if c.step is not None else c.name) for c in audit.checkpoints]
    labels = ['full', *(v.score.name.replace('_', ' ') for v in audit.variants)]
    title = 'success (%)' if audit.max_score == 1 else f'score (of {audit.max_score})'
    limits = (-0.03 * scale * audit.max_score, 1.03 * scale * audit.max_score)
    drawn = (
        Facet('', tuple(scores), Axis('training step', (-0.6, len(steps) - 0.4), names=places(steps))),
        Facet('', tuple(variants), Axis('', (-0.6, len(labels) - 0.4), names=places(labels)), Axis('', limits)),
    )  # fmt: skip
    sheet = Sheet(facet_in=(1.6, 2.5), most=2, extra_in=0.3, shared='y')
    return Plot('shortcut', 'A probe against reported scores', drawn, y=Axis(title, limits), sheet=sheet)


def _score_layers(place: int, score: RunScore, scale: float, color: str, *, name: str = '') -> list[Layer]:
    """A score with its interval over start states, and a thinner one over tasks."""
    low, high = (scale * end for end in score.interval)
    point = Point(
        '', place, scale * score.mean, y_low=low, y_high=high, color=color, name=name, is_listed=bool(name),
        marker='D' if name == 'best checkpoint' else 'o', size=4.5,
    )  # fmt: skip
    if score.task_interval is None:
        return [point]
    ends = [scale * end for end in score.task_interval]
    return [Curve('', [place, place], ends, color=color, width=0.6, is_listed=False), point]


def _reported_lines(audit: Shortcut, scale: float) -> list[GuideLine]:
    lines = []
    for gap in audit.gaps:
        if gap.checkpoint == audit.best:
            color, dash, role = LINE_STYLES[gap.role]
            height = scale * float(gap.reported.mean(audit.max_score))
            lines.append(GuideLine(y=height, color=color, dash=dash, name=f'{role}: {gap.reported.policy}', width=1.0))
    for row in audit.reported:
        if row.kind is ScoreKind.RL_FINETUNED:
            height = scale * float(row.mean(audit.max_score))
            lines.append(GuideLine(y=height, color='#BDBDBD', dash=':', name='RL-finetuned (not compared)'))
    return lines
