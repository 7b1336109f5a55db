"""`robotrials doctor`: what a file or store looks like from here, before anything is asked of it."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from robotrials.cli.output import FormatOption, print_table
from robotrials.cli.source import StoreArgument
from robotrials.errors import RecordError

if TYPE_CHECKING:
    from robotrials.formats.imported import Imported
    from robotrials.formats.row_outcome import Checkup

WIDTH = 80
LABEL = 13
LINES_EACH = 2  # twelve findings of two lines are a screen of 24


def doctor(source: StoreArgument, form: FormatOption = 'text') -> None:
    """Describe a file or store: columns, similar names, caps, shared starts, and values that cannot be right.

    Example: `robotrials doctor rollouts.csv`
    """
    from robotrials.formats.catalog import open_source
    from robotrials.formats.imported import FixableError, ImportOptions
    from robotrials.formats.intake import as_mapped
    from robotrials.formats.row_outcome import checkup
    from robotrials.record import read_store
    from robotrials.record.store import is_store
    from robotrials.show.table import table

    if is_store(source) or not source.exists():
        rows = _findings(source, checkup(read_store(source).episodes()))
    else:
        kind, options = as_mapped(source, ImportOptions())
        try:
            imported = open_source(source, options, name=kind)
            rows = _findings(source, checkup(imported.episodes()), imported)
        except FixableError as error:  # what it holds if the remedy is taken, and then the remedy
            imported = open_source(source, error.options, name=kind)
            rows = _findings(source, checkup(imported.episodes()), imported)
            _print([row for row in rows if row[0] != 'next'])  # it cannot be asked as it is
            raise
        except RecordError:
            _print(_seen(source, open_source(source, options, name=kind)))
            raise
    if form == 'text':
        _print(rows)
    else:
        print_table(table(f'{source}', ['what', 'found'], [list(row) for row in rows]), form)


def _seen(source: Path, imported: Imported) -> list[tuple[str, str]]:
    """Which columns became what."""
    from robotrials.formats.intake import column_name, told_in_a_line

    line = told_in_a_line(source, imported).removeprefix(str(source)).strip()
    beside = [column_name(g) for g in imported.guesses if g.field == 'labels']
    return [('columns', line), ('labels', ', '.join(beside) or 'none: every column is a field')]


def _findings(source: Path, checkup: Checkup, imported: Imported | None = None) -> list[tuple[str, str]]:
    from robotrials.formats.row_outcome import counted_names

    wrong = [f'{count:,} episodes {what}' for what, count in checkup.impossible.most_common()]
    outcomes = ', '.join(f'{count:,} {name}' for name, count in checkup.outcomes.most_common())
    notes = [] if imported is None else list(imported.ledger.notes)
    return [
        ('source', f'{source}: {checkup.n:,} episodes'),
        *([] if imported is None else _seen(source, imported)),
        ('policies', counted_names(checkup.policies)),
        ('tasks', counted_names(checkup.tasks)),
        ('outcomes', outcomes or 'none'),
        ('alike', '; '.join(checkup.alike()) or 'no two names look alike'),
        ('caps', checkup.capped()),
        ('pairing', checkup.pairing()),
        ('first step', f'{checkup.at_once:,} successes at the first step: was success true at the reset?'
         if checkup.at_once else 'no success at the first step'),
        *([] if imported is None else [('not named', doubt.text) for doubt in imported.doubts]),
        *_slow_kernels(),
        ('impossible', '; '.join(wrong) or 'nothing'),
        *([('note', '; '.join(notes))] if notes else _next(source, checkup, imported)),
    ]  # fmt: skip


def _next(source: Path, checkup: Checkup, imported: Imported | None) -> list[tuple[str, str]]:
    """A command to go on with: one that names what the source does not, or the comparison."""
    from robotrials.formats.imported import import_command

    if imported is not None and imported.doubts:
        return [('next', import_command(source, imported.doubts[-1].options))]
    return [('next', f'robotrials compare {shlex.quote(str(source))}')] if len(checkup.policies) > 1 else []


def _slow_kernels() -> list[tuple[str, str]]:
    """A row where numpy runs in place of compiled kernels, and why."""
    from robotrials.stats.compiled import COMPILED, backends

    reasons = sorted({text for text in backends().values() if text != COMPILED})
    return [('kernels', f'not compiled, so resampling is slower; {"; ".join(reasons)}')] if reasons else []


def _print(rows: list[tuple[str, str]]) -> None:
    for label, text in rows:
        lines = textwrap.wrap(text, WIDTH - LABEL, max_lines=LINES_EACH, placeholder=' ...') or ['']
        if label == 'next':  # a command stays whole, so that it can be pasted
            lines = [text]
        for number, line in enumerate(lines):
            typer.echo(f'{label if number == 0 else "":<{LABEL}}{line}')
