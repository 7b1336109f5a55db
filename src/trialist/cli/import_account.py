"""What `trialist import` prints of a source: the guess, the account, the questions."""

from __future__ import annotations

from collections.abc import Sequence

from trialist.formats.export import Exporter
from trialist.formats.imported import Format, Imported, Ledger
from trialist.show.table import Cell, Table, table


def guess_table(imported: Imported) -> Table:
    """Which field comes from where."""
    rows: list[list[Cell]] = [[g.field, g.source, g.change or None] for g in imported.guesses]
    return table(
        f'Read as {imported.format}',
        ['field', 'from', 'how'],
        rows,
        note='wrong? --map FIELD=COLUMN, --set FIELD=VALUE',
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


def format_table(formats: Sequence[Format]) -> Table:
    """The formats that can be read."""
    rows: list[list[Cell]] = [[f.name, f.summary] for f in sorted(formats, key=lambda f: f.name)]
    return table('Formats', ['name', 'reads'], rows, note='found by content; --as NAME insists on one')


def exporter_table(exporters: Sequence[Exporter]) -> Table:
    """The formats that can be written."""
    rows: list[list[Cell]] = [[e.name, e.summary] for e in sorted(exporters, key=lambda e: e.name)]
    return table('Formats', ['name', 'writes'], rows)
