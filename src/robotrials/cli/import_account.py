"""What `robotrials import` prints of a source: the guess, the account, the questions."""

from __future__ import annotations

from collections.abc import Sequence

from robotrials.formats.export import Exporter
from robotrials.formats.imported import Format, Imported, Ledger
from robotrials.record import Episode
from robotrials.show.table import Cell, Column, Table, table, without_empty


def guess_table(imported: Imported) -> Table:
    """Which field comes from where."""
    rows: list[list[Cell]] = [[g.field, g.source, g.change or None] for g in imported.guesses]
    return table(
        f'Read as {imported.format}',
        ['field', 'from', 'how'],
        rows,
        note='wrong? --map FIELD=COLUMN, --set FIELD=VALUE'
        if imported.resolved
        else 'wrong? --set FIELD=VALUE, --as NAME',
    )


def account_tables(imported: Imported) -> list[Table]:
    """What was kept, what was dropped and why, what the reader must know, and what looks odd."""
    return ledger_tables(imported.ledger)


def ledger_tables(ledger: Ledger) -> list[Table]:
    """The same of any account."""
    rows: list[list[Cell]] = [['kept', e.count, e.what, e.why or None] for e in ledger.kept]
    rows += [['dropped', e.count, e.what, e.why or None] for e in ledger.dropped]
    tables = [table('Account', ['', 'number', 'what', 'why'], rows)] if rows else []
    remarks: list[list[Cell]] = [['note', text] for text in ledger.notes]
    remarks += [['hint', text] for text in ledger.hints]
    if remarks:
        tables.append(table('Remarks', ['', 'text'], remarks))
    return tables


def preview_table(episodes: Sequence[Episode], *, count: int) -> Table:
    """The first episodes as the record would have them; columns that are empty throughout are left out."""
    columns: list[str | Column] = [
        'policy', 'task', 'benchmark', 'stratum', 'condition', 'seed', 'instance', 'repeat', 'attempt', 'outcome',
        Column('duration_s', '.2f'), Column('time_cap_s', '.2f'), 'steps', 'items', 'items_placed', 'items_lost',
        Column('score', '.3f'), 'events', 'reason', 'labels',
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [e.policy, e.task, e.benchmark or None, e.stratum or None, None if e.condition == 'nominal' else e.condition,
         e.seed, e.instance, e.repeat or None, e.attempt or None, e.outcome.value, e.duration_s, e.time_cap_s, e.steps,
         e.items, e.items_placed, e.items_lost, e.score, len(e.events) or None, e.reason or None,
         '; '.join(f'{k}={v}' for k, v in e.labels.items()) or None]
        for e in episodes
    ]  # fmt: skip
    return without_empty(table(f'{count:,} episodes, the first {len(episodes)}', columns, rows))


def format_table(formats: Sequence[Format]) -> Table:
    """The formats that can be read."""
    rows: list[list[Cell]] = [[f.name, f.summary] for f in sorted(formats, key=lambda f: f.name)]
    return table('Formats', ['name', 'reads'], rows, note='found by content; --as NAME insists on one')


def exporter_table(exporters: Sequence[Exporter]) -> Table:
    """The formats that can be written."""
    rows: list[list[Cell]] = [[e.name, e.summary] for e in sorted(exporters, key=lambda e: e.name)]
    return table('Formats', ['name', 'writes'], rows)
