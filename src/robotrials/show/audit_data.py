"""Data-source dependence and creeping overfitting as tables, a curve and a form for submissions."""

from __future__ import annotations

from robotrials.show.answer import GLUE, Card, p_text
from robotrials.show.catalog import ShowRequest, named, takes
from robotrials.show.document import Block, Document, Missing, Section, TableBlock, paragraph, section
from robotrials.show.figure import COLUMN_WIDTH_IN
from robotrials.show.phrase import ends, percent, plural
from robotrials.show.plot import THING_PALETTE, Axis, Curve, Plot, Sheet, facets
from robotrials.show.plot_page import paint_page
from robotrials.show.robustness import forest_plot, forest_row
from robotrials.show.shortcut import sweep_words
from robotrials.show.table import Cell, Column, Table, mark, points_text, table
from robotrials.stats import Interval
from robotrials.verdict.analysis.contrast import design_word
from robotrials.verdict.analysis.subject import Input
from robotrials.verdict.audit.card import BASELINES_PERCENT, BenchmarkCard
from robotrials.verdict.audit.datasource import TABLE_NINE, DataSource
from robotrials.verdict.audit.overfit import OFFICIAL, DropReading, Overfit
from robotrials.verdict.audit.run_score import RADAR_SPLITS, RADAR_TABLE_TWO, TrainingMix

EXISTENCE = (
    'An existence result: it shows that such a score can be had from such data, not how often. One training per row; '
    'intervals are over start states.'
)


def point_table(source: DataSource) -> Table:
    """One row per task and distance: the layout of Table 9, with how close the data was."""
    embeddings = list(dict.fromkeys(name for p in source.points for name in p.images))
    columns: list[str | Column] = [
        'task', Column('displaced mm', '.1f'), Column('nearest mm', '.1f'), 'score', Column('low', '.3f'),
        Column('high', '.3f'), 'leaked', 'same start', Column('nearest deg', '.1f'),
        *(Column(f'image ({name})', '.2f') for name in embeddings), 'demonstrations', 'parameters',
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for p in sorted(source.points, key=lambda p: (p.task, p.asked_m)):
        interval = p.interval
        images: list[Cell] = [p.median_image(name) if name in p.images else None for name in embeddings]
        rows.append(
            [p.task, 1000 * p.asked_m, 1000 * p.median_m, f'{p.successes}/{p.n}', interval.low, interval.high,
             p.n_leaked, p.n_same, p.median_deg, *images, f'{p.n_demonstrations} of {p.n_tried} tried', p.parameters]
        )  # fmt: skip
    protocol = source.protocol
    note = (
        f'{EXISTENCE} Nearest: the median over test starts of the distance to the nearest training start, by the '
        f'object that differs most; image: the same in pictures, where 1 is as far as test starts lie from each other. '
        f'Leaked: test starts with a training start within '
        f'{1000 * protocol.tolerance_m:g} mm and {protocol.tolerance_deg:g} degrees.'
    )
    return table(
        f'Score against distance of the training data ({protocol.host}, {protocol.learner})', columns, rows, note=note
    )


def fall_table(source: DataSource) -> Table:
    """Nearest against farthest data."""
    fall = source.fall()
    row: list[Cell] = [
        1000 * fall.near.median_m, f'{fall.near.successes}/{fall.near.n}', 1000 * fall.far.median_m,
        f'{fall.far.successes}/{fall.far.n}', fall.won_near_only, fall.won_far_only, fall.contrast.estimate,
        *ends(fall.contrast.interval), fall.contrast.p_value, fall.is_resolved,
    ]  # fmt: skip
    columns: list[str | Column] = [
        Column('near mm', '.1f'), 'near score', Column('far mm', '.1f'), 'far score', 'won near only', 'won far only',
        Column('fall', '+.3f'), Column('low', '+.3f'), Column('high', '+.3f'), Column('p', '.2g'), 'resolved',
    ]  # fmt: skip
    return table(
        'Does the score fall with distance?', columns, [row],
        note=f'The contrast of near and far, {design_word(fall.contrast)}; {fall.contrast.test}, two-sided.',
    )  # fmt: skip


def datasource_tables(source: DataSource) -> list[Table]:
    """The points, and the fall where there are two distances to compare."""
    return [point_table(source), *([fall_table(source)] if len(source.distances_m) > 1 else [])]


@named(wants=Input.NOTHING)
def published_table() -> Table:
    """The audit's own policies that were trained beside the test of SimplerEnv."""
    rows: list[list[Cell]] = [[*row, 100 * row[2] / row[3]] for row in TABLE_NINE]
    total = [sum(row[i] for row in TABLE_NINE) for i in (1, 2, 3)]  # type: ignore[misc]
    rows.append(['All four', *total, 100 * total[1] / total[2]])
    return table(
        'Table 9: SimplerEnv WidowX, trained beside the test',
        ['task', 'scripted demonstrations', 'successes', 'n', Column('success %', '.1f')], rows,
        note='arXiv 2606.04233, Appendix A.3. A fixed-grid existence result: generator fixes were chosen on this grid.',
    )  # fmt: skip


def distance_plot(source: DataSource) -> Plot:
    """Score against measured distance, one line for the learner."""
    curve = source.curve()
    x = [1000 * p.median_m for p in curve]
    line = Curve(
        source.protocol.learner, x, [p.rate for p in curve], [p.interval.low for p in curve],
        [p.interval.high for p in curve], has_whiskers=True, color=THING_PALETTE[0],
    )  # fmt: skip
    return Plot(
        'distance', 'Score against distance of the training data', facets([line]),
        Axis('median distance of a test start to the nearest training start (mm)', names={v: f'{v:.3g}' for v in x}),
        Axis('success rate', (0.0, 1.0)), note=EXISTENCE, sheet=Sheet(COLUMN_WIDTH_IN, 2.6),
    )  # fmt: skip


def overfit_card(overfit: Overfit) -> Card:
    """Which policies lose how much under which change, and what the loss may be called."""
    dropped = [row for row in overfit.rows if row.is_dropped]
    called = [row for row in dropped if overfit.reading(row) is DropReading.OVERFITTING]
    verdict = [f'{len(dropped)} of {plural(len(overfit.rows), "comparison")} show a drop.']
    if called:
        verdict.append(f'Overfitting: {", ".join(f"{r.policy} under {r.change}" for r in called)}.')
    elif dropped:
        verdict.append('None may be called overfitting: the training data were not counted, or hold the change rarely.')
    rows = []
    for row in sorted(overfit.rows, key=lambda r: -r.drop):
        size = points_text(row.drop, Interval(row.family_low, row.family_high)).replace(' ', GLUE)
        counts = f'{row.successes[0]:g}/{row.n[0]} to {row.successes[1]:g}/{row.n[1]}'.replace(' ', GLUE)
        rows.append((f'{row.policy}, {row.change}', f'{size}   {counts}   {overfit.reading(row).value}'))
    lacking = [f'{name} cannot be made here: {why}.' for name, why in overfit.missing.items()]
    return Card(
        title=f'{overfit.host}, {overfit.task}', scope=f'drop = calibration - altered, {100 * overfit.level:g} %',
        verdict=tuple(verdict), rows=tuple(rows), notes=tuple(lacking),
    )  # fmt: skip


def datasource_card(source: DataSource) -> Card:
    """Does the score fall as training data move away from the test?"""
    verdict, rows = ['One distance was collected: nothing to compare.'], []
    if len(source.distances_m) > 1:
        fall = source.fall()
        said = 'falls' if fall.is_resolved else 'is not shown to fall'
        verdict = [f'The score {said} as the training data move away from the test.']
        size = points_text(fall.contrast.estimate, fall.contrast.interval)
        rows.append(('fall', f'{size}   {p_text(fall.contrast.p_value)}'))
    for metres in source.distances_m:
        own = [p for p in source.points if p.asked_m == metres]
        done, n = sum(p.successes for p in own), sum(p.n for p in own)
        rows.append((f'{1000 * metres:g} mm away', f'{done}/{n}   {mark(done / n)} {100 * done / n:.0f} %'))
    return Card(
        title=f'{source.protocol.host}, {source.protocol.learner}', scope=plural(len(source.points), 'training'),
        verdict=tuple(verdict), rows=tuple(rows), notes=(EXISTENCE,),
    )  # fmt: skip


def alteration_table(overfit: Overfit) -> Table:
    """Drops of every policy under every change, how often training held it, and what the drop may be called."""
    training = overfit.training
    rows: list[list[Cell]] = [
        [r.policy, r.change, str(r.kind), f'{r.successes[0]:g}/{r.n[0]}', f'{r.successes[1]:g}/{r.n[1]}', 100 * r.drop,
         str(overfit.reading(r)), None if training is None else training.counts.get(r.change),
         None if training is None else training.counts[OFFICIAL],
         percent(r.contrast_low), percent(r.contrast_high), 100 * r.family_low, r.test,
         100 * r.low, 100 * r.high]
        for r in overfit.rows
    ]  # fmt: skip
    columns: list[str | Column] = [
        'policy', 'change', 'kind', 'calibration', 'altered', Column('drop', '+.2f'), 'reading', 'in training',
        'official in training', Column('low', '+.2f'), Column('high', '+.2f'), Column('low, all rows', '+.2f'),
        'test', Column('low, Newcombe', '+.2f'), Column('high, Newcombe', '+.2f'),
    ]  # fmt: skip
    counted = 'The training data was not counted, so no drop is called overfitting.'
    if training is not None:
        counted = f'Counted over {training.total} demonstrations: {training.basis}.'
    note = (
        f"drop = calibration - altered, in points, with the contrast's {100 * overfit.level:g} % interval (Newcombe's, "
        f'by rows, is that of the paper). "Low, all rows" allows for the {len(overfit.rows)} comparisons; a drop is '
        f'claimed where it is above 0. {counted}'
    )
    note += ''.join(f' Starts of {change}: {spread}.' for change, spread in overfit.starts.items() if spread)
    return table(f'Creeping overfitting ({overfit.host}, {overfit.task})', columns, rows, note=note)


def alteration_plot(overfit: Overfit) -> Plot:
    """The same as a forest: the interval that allows for all rows."""
    rows = [
        forest_row(f'{r.policy}, {r.change}', r.drop, Interval(r.family_low, r.family_high), r.is_dropped)
        for r in overfit.rows
    ]
    return forest_plot(rows, level=overfit.level)


def lacking_table(overfit: Overfit) -> Table | None:
    """Changes that could not be run, and why."""
    rows = [[name, why] for name, why in overfit.missing.items()]
    return table('Changes that were not run', ['change', 'why'], rows) if rows else None


@named(lambda r: r.value(TrainingMix), wants=Input.MIX)
def mix_table(mixes: TrainingMix) -> Table:
    """Training on one task, on some and on all, tested on each task."""
    tasks = mixes.tasks
    rows: list[list[Cell]] = []
    for mix in mixes.names:
        scores = [mixes.score(mix, task) for task in tasks]
        total = [sum(s[i] for s in scores) for i in (0, 1)]
        rows.append([mix, *(f'{s}/{n}' for s, n in scores), f'{total[0]}/{total[1]}', total[0] / total[1]])
    return table(
        f'Training mixes ({mixes.host}, {mixes.learner})', ['trained on', *tasks, 'total', Column('rate', '.3f')], rows,
        note='One training per mix. Independent: each task by a policy trained on its own demonstrations alone.',
    )  # fmt: skip


@named(wants=Input.NOTHING)
def published_mix_table() -> Table:
    """RADAR's training mixes, with E[IoU] recomputed and intervals."""
    rows: list[list[Cell]] = []
    for mix in RADAR_TABLE_TWO:
        gap = None if mix is RADAR_TABLE_TWO[0] else mix.behind(RADAR_TABLE_TWO[0])
        rows.append(
            [mix.name, *(f'{x}/{n}' for x, n, _ in mix.splits), '{}/{}'.format(*mix.total), mix.expected_iou,
             mix.recomputed_iou, None if gap is None else gap.low, None if gap is None else gap.high]
        )  # fmt: skip
    columns: list[str | Column] = [
        'trained on', *RADAR_SPLITS, 'total', Column('E[IoU] printed', '.4f'), Column('E[IoU] recomputed', '.5f'),
        Column('behind, low', '+.3f'), Column('behind, high', '+.3f'),
    ]  # fmt: skip
    note = (
        'Behind: Independent minus the row, Newcombe 95 %. One training and one trial per layout; none is resolved, '
        'nor is the failure on Spatial that the paper calls significant (0/8 against 3/8, Fisher p = 0.2).'
    )
    return table('RADAR, Table 2: training mixes', columns, rows, note=note)


SUBMISSION_FORM = """\
## How close is the training data to the test?

Fill in every line; "unknown" is an answer, an empty line is not. Numbers come from `robotrials audit datasource`.

1. Data used, with versions, and who collected it:
2. Was any of it collected in the test's own simulator, scene or cell?  yes / no
3. Were the test's start states, seeds or grid ids known to whoever collected it?  yes / no / unknown
4. Training episodes that begin at a test start (within 1e-6 m and rad):  ___ of ___
5. Test starts with a training start within 5 mm and 15 degrees:  ___ of ___
6. Distance of a test start to the nearest training start, median and smallest:  ___ mm, ___ mm; ___ deg, ___ deg
7. The same in pictures, over the test's own spread (say the embedding):  ___
8. How often the official condition and each altered one occur in the data (say what was counted):
9. Checkpoints scored on the test, and how the reported one was chosen:
10. Score on the test, as a count, and on fresh samples of the same generator:  ___/___, ___/___
"""


# Diagnoses of training data by name: from the files that `robotrials audit datasource` and `mix` write.


@takes(Input.DATASOURCE)
def datasource(request: ShowRequest) -> list[Table]:
    """Score against the distance of the training data to the test, and whether it falls."""
    return datasource_tables(request.value(DataSource))


# A benchmark card as a document: the findings, then each part with its numbers, or that nobody ran it.

HOW = {
    'shortcut solvability': 'run robotrials audit shortcut, then give its shortcut.json with --shortcut',
    'statistical significance': 'give --samples, the episodes per task that the benchmark asks for',
    'creeping overfitting': 'run robotrials audit overfit, then give its overfit.json with --overfit',
    'data-source dependence': 'run robotrials audit datasource, then give its datasource.json with --datasource',
    'determinism': 'give two recorded runs with --run A --run B, or --policy to run one here',
}  # fmt: skip


def card_document(card: BenchmarkCard) -> Document:
    """The card; nothing is computed here."""
    findings = card.findings()
    rows: list[list[Cell]] = [[f.part, str(f.standing), f.text] for f in findings]
    lead = (paragraph(card.standing()), paragraph('A part that was not run is not a part that was passed.'))
    blocks: list[Block] = [TableBlock('findings', table('What was found', ['part', 'finding', 'in words'], rows))]
    if card.notes:
        sheet = table('Weaknesses that its rules show by themselves', ['weakness'], [[text] for text in card.notes])
        blocks.append(TableBlock('notes', sheet))
    return Document(
        title=f'Benchmark card: {card.title}',
        subtitle=f'host {card.host}, {len(card.tasks)} tasks, robotrials {card.version}',
        lead=lead,
        sections=(
            section('summary', 'Findings and weaknesses', blocks),
            _part(card, 'shortcut', 'Shortcut solvability', 'shortcut solvability', _shortcut(card)),
            _part(card, 'significance', 'Significance cutoffs', 'statistical significance', _significance(card)),
            _part(card, 'overfit', 'Creeping overfitting', 'creeping overfitting', _overfit(card)),
            _part(card, 'datasource', 'Data-source dependence', 'data-source dependence', _datasource(card)),
            _part(card, 'determinism', 'Determinism', 'determinism', _determinism(card)),
            section('rules', 'Rules of the host', _rules(card)),
        ),
        glossary={},
        references={},
        colors={} if card.datasource is None else {card.datasource.protocol.learner: '#332288'},
        footer=f'robotrials {card.version}. The four diagnostics follow arXiv 2606.04233.',
    )  # fmt: skip


def _part(card: BenchmarkCard, key: str, title: str, part: str, blocks: list[Block]) -> Section:
    if blocks:
        return section(key, title, blocks)
    reason = 'Not run.' if part not in card.failures else f'Tried, and it broke: {card.failures[part]}'
    return section(key, title, [Missing(title, reason, HOW[part])])


def _shortcut(card: BenchmarkCard) -> list[Block]:
    probe = card.shortcut
    if probe is None:
        return []
    rows: list[list[Cell]] = [
        [c.name, 'checkpoint', c.total, c.n, c.mean, c.interval.low, c.interval.high, None] for c in probe.checkpoints
    ]
    rows += [
        [v.score.name, f'without {v.removes}', v.score.total, v.score.n, v.score.mean, v.score.interval.low,
         v.score.interval.high, str(v.need)]
        for v in probe.variants
    ]  # fmt: skip
    columns: list[str | Column] = [
        'run', 'kind', 'total', 'n', Column('mean', '.3f'), Column('low', '.3f'), Column('high', '.3f'), 'input is',
    ]  # fmt: skip
    chosen = '' if probe.probe.sweep is None else f' {sweep_words(probe.probe.sweep)}'
    words = paragraph(f'Best checkpoint {probe.best}: {probe.verdict}.{chosen}')
    return [words, TableBlock('probe', table(f'The probe ({probe.title})', columns, rows))]


def _significance(card: BenchmarkCard) -> list[Block]:
    gaps = card.significance
    if gaps is None:
        return []
    most = gaps.protocol.most
    rows: list[list[Cell]] = [
        [percent, row.count_a, _points(row.smallest_feasible, most), _points(row.smallest_guaranteed, most)]
        for percent, row in zip(BASELINES_PERCENT, gaps.rows, strict=True)
    ]
    columns: list[str | Column] = [
        'baseline %', 'count', Column('could be, points', '.2f'), Column('must be, points', '.2f'),
    ]  # fmt: skip
    title = f'Gaps that averages alone can call significant (T = {gaps.protocol.tasks}, S = {gaps.protocol.samples})'
    note = f'One-sided alpha {gaps.alpha}; {gaps.source}. A dash: no gap would do.'
    return [TableBlock('cutoffs', table(title, columns, rows, note=note))]


def _points(gap: int | None, most: int) -> float | None:
    return None if gap is None else 100 * gap / most


def _overfit(card: BenchmarkCard) -> list[Block]:
    if card.overfit is None:
        return []
    lacking = lacking_table(card.overfit)
    blocks: list[Block] = [TableBlock('alterations', alteration_table(card.overfit))]
    return blocks + ([TableBlock('lacking', lacking)] if lacking is not None else [])


def _datasource(card: BenchmarkCard) -> list[Block]:
    source = card.datasource
    if source is None:
        return []
    blocks: list[Block] = [TableBlock('sources', point_table(source))]
    if len(source.distances_m) > 1:
        blocks += [paint_page(distance_plot(source)), TableBlock('fall', fall_table(source))]
    return blocks


def _determinism(card: BenchmarkCard) -> list[Block]:
    runs = card.determinism
    if runs is None:
        return []
    rows: list[list[Cell]] = [[str(g.target), str(g.grade), g.evidence] for g in runs.grades]
    closed = {True: 'closed loop', False: 'open loop, which is no evidence', None: 'nobody said whether closed-loop'}
    note = (
        f'{runs.n_episodes} episodes of {runs.policy}, {closed[runs.is_closed_loop]}; {runs.contrast}; '
        f'same-machine control: {runs.control}. '
        'Nothing here tells what another machine would do unless the contrast names one.'
    )
    return [TableBlock('grades', table('Reproduction targets', ['target', 'grade', 'evidence'], rows, note=note))]


def _rules(card: BenchmarkCard) -> list[Block]:
    if not card.rules:
        return [Missing('Rules', 'The host states none.')]
    rows: list[list[Cell]] = [[name.replace('_', ' '), value] for name, value in card.rules.items()]
    stated: Table = table('As the host states them', ['rule', 'value'], [*rows, ['tasks', ', '.join(card.tasks)]])
    return [TableBlock('stated', stated)]
