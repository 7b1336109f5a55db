"""A benchmark card as a document: the findings, then each part with its numbers, or that nobody ran it."""

from __future__ import annotations

from robotrials.show.audit_data import alteration_table, distance_chart, fall_table, lacking_table, point_table
from robotrials.show.document import Block, ChartBlock, Document, Missing, Section, TableBlock, paragraph, section
from robotrials.show.shortcut import sweep_words
from robotrials.show.table import Cell, Column, Table, table
from robotrials.verdict.audit.card import BASELINES_PERCENT, BenchmarkCard

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
        shown = table('Weaknesses that its rules show by themselves', ['weakness'], [[text] for text in card.notes])
        blocks.append(TableBlock('notes', shown))
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
    found = card.shortcut
    if found is None:
        return []
    rows: list[list[Cell]] = [
        [c.name, 'checkpoint', c.total, c.n, c.mean, c.interval.low, c.interval.high, None] for c in found.checkpoints
    ]
    rows += [
        [v.score.name, f'without {v.removes}', v.score.total, v.score.n, v.score.mean, v.score.interval.low,
         v.score.interval.high, str(v.need)]
        for v in found.variants
    ]  # fmt: skip
    columns: list[str | Column] = [
        'run', 'kind', 'total', 'n', Column('mean', '.3f'), Column('low', '.3f'), Column('high', '.3f'), 'input is',
    ]  # fmt: skip
    chosen = '' if found.probe.sweep is None else f' {sweep_words(found.probe.sweep)}'
    words = paragraph(f'Best checkpoint {found.best}: {found.verdict}.{chosen}')
    return [words, TableBlock('probe', table(f'The probe ({found.title})', columns, rows))]


def _significance(card: BenchmarkCard) -> list[Block]:
    found = card.significance
    if found is None:
        return []
    most = found.protocol.most
    rows: list[list[Cell]] = [
        [percent, row.count_a, _points(row.smallest_feasible, most), _points(row.smallest_guaranteed, most)]
        for percent, row in zip(BASELINES_PERCENT, found.rows, strict=True)
    ]
    columns: list[str | Column] = [
        'baseline %',
        'count',
        Column('could be, points', '.2f'),
        Column('must be, points', '.2f'),
    ]
    title = f'Gaps that averages alone can call significant (T = {found.protocol.tasks}, S = {found.protocol.samples})'
    note = f'One-sided alpha {found.alpha}; {found.source}. A dash: no gap would do.'
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
    found = card.datasource
    if found is None:
        return []
    blocks: list[Block] = [TableBlock('sources', point_table(found))]
    if len(found.distances_m) > 1:
        blocks += [ChartBlock(distance_chart(found)), TableBlock('fall', fall_table(found))]
    return blocks


def _determinism(card: BenchmarkCard) -> list[Block]:
    found = card.determinism
    if found is None:
        return []
    rows: list[list[Cell]] = [[str(g.target), str(g.grade), g.evidence] for g in found.grades]
    closed = {True: 'closed loop', False: 'open loop, which is no evidence', None: 'nobody said whether closed-loop'}
    note = (
        f'{found.n_episodes} episodes of {found.policy}, {closed[found.is_closed_loop]}; {found.contrast}; '
        f'same-machine control: {found.control}. '
        'Nothing here tells what another machine would do unless the contrast names one.'
    )
    return [TableBlock('grades', table('Reproduction targets', ['target', 'grade', 'evidence'], rows, note=note))]


def _rules(card: BenchmarkCard) -> list[Block]:
    if not card.rules:
        return [Missing('Rules', 'The host states none.')]
    rows: list[list[Cell]] = [[name.replace('_', ' '), value] for name, value in card.rules.items()]
    stated: Table = table('As the host states them', ['rule', 'value'], [*rows, ['tasks', ', '.join(card.tasks)]])
    return [TableBlock('stated', stated)]
