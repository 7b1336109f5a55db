"""How verbs print: one table option for all of them, and one progress bar for long work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from robotrials.show.card import Card
    from robotrials.show.request import ShowRequest
    from robotrials.show.table import Table
    from robotrials.verdict.analysis import Analysis

LINE_EVERY_S = 10.0  # of progress that nobody's terminal shows
FORMULA_MARKS = ('=', '+', '-', '@', '\t', '\r')
FormatOption = Annotated[
    str, typer.Option('--format', '-f', help='How to print tables: text, json, csv, markdown or latex.')
]

DetailsOption = Annotated[bool, typer.Option('--details', help='The tables behind the card, too.')]
PerTaskOption = Annotated[bool, typer.Option('--per-task', help='Every task in a row, as papers print them.')]
MethodsOption = Annotated[bool, typer.Option('--methods', help='What was computed, in words for a paper.')]


def say(text: str) -> None:
    """A line on stderr, wrapped where its width is known: on a terminal, or by COLUMNS; a log keeps whole lines."""
    import os

    if sys.stderr.isatty() or os.environ.get('COLUMNS'):
        from robotrials.show.terminal import terminal_width, wrap

        lines = text.splitlines()  # a command stays whole, so that it can be pasted
        text = '\n'.join(
            part for line in lines
            for part in ([line] if line.startswith('Try: ') else wrap(line, terminal_width(), then='  '))
        )  # fmt: skip
    typer.echo(text, err=True)


def print_card(
    card: Callable[[], Card], tables: Callable[[], Iterable[Table]], form: str = 'text', *, details: bool = False,
    analysis: Analysis | None = None,
) -> None:  # fmt: skip
    """An answer: in text the card, with `--details` its tables below; in every other form the tables alone."""
    if check_form(form) != 'text':
        print_analysis(analysis, tables(), form) if analysis is not None else print_tables(tables(), form)
        return
    typer.echo(harmless(card().text(), form), nl=False)
    if details:
        typer.echo()
        print_analysis(analysis, tables(), form) if analysis is not None else print_tables(tables(), form)


def print_answer(
    request: ShowRequest, card: Callable[[], Card], tables: Callable[[], Iterable[Table]], form: str = 'text', *,
    details: bool = False, per_task: bool = False, methods: bool = False,
) -> None:  # fmt: skip
    """The answer of an analysis: its card; with `--per-task` every task, with `--methods` how it was computed."""
    from robotrials.show.answer import methods_words
    from robotrials.show.timing_sheet import by_task

    def chosen() -> Iterable[Table]:
        return [*(tables() if details or not per_task else ()), *(by_task(request) if per_task else ())]

    analysis = request.analysis
    print_card(card, chosen, form, details=details or per_task, analysis=analysis)
    if methods:
        typer.echo(f'\n{harmless(methods_words(analysis), "text")}', nl=False, err=form != 'text')


def print_table(shown: Table, form: str = 'text') -> None:
    """Print a table in the asked form; an unknown form names the known ones."""
    from robotrials.show.table import render

    typer.echo(harmless(render(shown, check_form(form)), form), nl=form == 'text')  # a blank line after a text table


def print_tables(shown: Iterable[Table], form: str = 'text') -> None:
    """Print the tables of a verb that may have several: in JSON always one list, however many there are."""
    from robotrials.show.table import render_all

    typer.echo(harmless(render_all(list(shown), check_form(form)), form), nl=form == 'text')


def harmless(text: str, form: str) -> str:
    """A printed table that steers no terminal, and whose cells no spreadsheet takes for formulas."""
    if form == 'csv':
        text = without_formulas(text)
    return ''.join(c if c.isprintable() or c in '\n\t' else ascii(c)[1:-1] for c in text)


def without_formulas(text: str) -> str:
    """CSV in which a text cell that begins like a formula is quoted with an apostrophe; numbers stay as they are."""
    import csv
    import io

    if not any(mark in text for mark in FORMULA_MARKS):
        return text
    out = io.StringIO()
    writer = csv.writer(out, lineterminator='\n')
    for row in csv.reader(io.StringIO(text)):
        writer.writerow([f"'{cell}" if _is_formula(cell) else cell for cell in row])
    return out.getvalue()


def _is_formula(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell.startswith(FORMULA_MARKS)
    return False


def print_analysis(analysis: Analysis, shown: Iterable[Table], form: str = 'text') -> None:
    """Print the tables of an analysis: what was used and what to mind on stderr, and in all forms but text inside."""
    from robotrials.cli.source import tell_analysis
    from robotrials.show.table import stated

    tell_analysis(analysis)
    print_tables(stated(shown, analysis.statement), form)


def print_analysis_table(analysis: Analysis, shown: Table, form: str = 'text') -> None:
    """The same for a verb that always prints one table."""
    from robotrials.cli.source import tell_analysis
    from robotrials.show.table import stated

    tell_analysis(analysis)
    print_table(stated([shown], analysis.statement)[0], form)


def check_form(form: str) -> str:
    """The name of a table format, or an error that suggests the near one."""
    from robotrials.errors import UnknownName
    from robotrials.show.table import TableFormat

    if form not in set(TableFormat):
        raise UnknownName('table format', form, [f.value for f in TableFormat])
    return form


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left on a terminal's stderr, lines elsewhere; call what it yields with (done, total)."""
    from robotrials.cli.progress import doing, shown_otherwise

    if not sys.stderr.isatty():
        yield lambda done, total: doing(f'{label}, {done:,} of {total:,}')
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with shown_otherwise(), Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show_waiting(what: str, waited_s: float, limit_s: float) -> None:
    """Say on stderr how long a server has been waited for."""
    typer.echo(f'waiting for {what}: {waited_s:.0f} of {limit_s:.0f} s', err=True)
