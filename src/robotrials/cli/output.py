"""How verbs print: one table option for all of them, and one progress bar for long work."""

from __future__ import annotations

import csv
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.errors import UnknownName
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.show.answer import Card
    from robotrials.show.catalog import ShowRequest
    from robotrials.show.plot import Plot
    from robotrials.show.table import Table
    from robotrials.verdict.analysis import Analysis


LINE_EVERY_S = 10.0  # of progress that nobody's terminal shows
FORMULA_MARKS = ('=', '+', '-', '@', '\t', '\r')
FormatOption = Annotated[
    str, typer.Option('--format', '-f', help='How to print tables: text, json, csv, markdown or latex.')
]

DetailsOption = Annotated[bool, typer.Option('--details', help='Also print the tables behind the summary.')]
PerTaskOption = Annotated[bool, typer.Option('--per-task', help='One row per task, as papers print them.')]
FigureOption = Annotated[Path | None, typer.Option('--figure', help='Save the figure (svg, pdf or png).')]
MethodsOption = Annotated[bool, typer.Option('--methods', help='Describe what was computed, in words for a paper.')]


def say(text: str, *, err: bool = True) -> None:
    """A line on stderr or stdout, wrapped where the width is known (a terminal, COLUMNS); a log keeps whole lines."""
    is_known = (sys.stderr if err else sys.stdout).isatty() or os.environ.get('COLUMNS')
    typer.echo(wrapped(text) if is_known else text, err=err)


def say_error(text: str) -> None:
    """An error on stderr, wrapped on a terminal; whoever keeps or parses it has whole lines."""
    typer.secho(wrapped(text) if sys.stderr.isatty() else text, fg='red', err=True)


def wrapped(text: str) -> str:
    """Prose of the terminal's width; a command stays whole, so that it can be pasted."""
    from robotrials.show.table import terminal_width, wrap

    return '\n'.join(
        part for line in text.splitlines()
        for part in ([line] if line.startswith('Try: ') else wrap(line, terminal_width(), then='  '))
    )  # fmt: skip


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

    analysis = request.analysis

    def chosen() -> Iterable[Table]:
        if not per_task:
            return tables()
        from robotrials.show.report_ranking import by_task

        return [*(tables() if details else ()), by_task(analysis, request.shown(analysis.every_policy))]

    print_card(card, chosen, form, details=details or per_task, analysis=analysis)
    if methods:
        typer.echo(f'\n{harmless(methods_words(analysis), "text")}', nl=False, err=form != 'text')


def print_table(sheet: Table, form: str = 'text') -> None:
    """Print a table in the asked form; an unknown form names the known ones."""
    from robotrials.show.table import render

    typer.echo(harmless(render(sheet, check_form(form)), form), nl=form == 'text')  # a blank line after a text table


def print_tables(tables: Iterable[Table], form: str = 'text') -> None:
    """Print the tables of a verb that may have several: in JSON always one list, however many there are."""
    from robotrials.show.table import render_all

    typer.echo(harmless(render_all(list(tables), check_form(form)), form), nl=form == 'text')


def harmless(text: str, form: str) -> str:
    """A printed table that steers no terminal, and whose cells no spreadsheet takes for formulas."""
    if form == 'csv':
        text = without_formulas(text)
    return ''.join(c if c.isprintable() or c in '\n\t' else ascii(c)[1:-1] for c in text)


def without_formulas(text: str) -> str:
    """CSV in which a text cell that begins like a formula is quoted with an apostrophe; numbers stay as they are."""
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


def print_analysis(analysis: Analysis, tables: Iterable[Table], form: str = 'text') -> None:
    """Print the tables of an analysis: what was used and what to mind on stderr, and in all forms but text inside."""
    from robotrials.cli.source import tell_analysis
    from robotrials.show.table import stated

    tell_analysis(analysis)
    print_tables(stated(tables, analysis.statement), form)


def print_analysis_table(analysis: Analysis, sheet: Table, form: str = 'text') -> None:
    """The same for a verb that always prints one table."""
    from robotrials.cli.source import tell_analysis
    from robotrials.show.table import stated

    tell_analysis(analysis)
    print_table(stated([sheet], analysis.statement)[0], form)


def save_plot(path: Path | None, describe: Callable[[], Plot], *, err: bool = True) -> None:
    """Paint a figure as papers have it where `--figure` says so; without a path it is not even described."""
    if path is not None:
        from robotrials.show.figure import save_figure
        from robotrials.show.plot_paper import paint_paper

        typer.echo(f'wrote {save_figure(paint_paper(describe()), path)}', err=err)


def check_form(form: str) -> str:
    """The name of a table format, or an error that suggests the near one."""
    from robotrials.show.table import TableOutput

    if form not in set(TableOutput):
        raise UnknownName('table format', form, [f.value for f in TableOutput])
    return form


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left on a terminal's stderr, lines elsewhere; call what it yields with (done, total)."""
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


# What a verb is doing, for whoever waits longer than two seconds: a bar on a terminal, else a line every few seconds.
# Lines come from a timer of the operating system and are written straight to the file of stderr: no thread runs beside
# the work, which may fork, and no output that somebody captures has them in it. `ROBOTRIALS_PROGRESS=0` keeps them
# away.

FIRST_S = 2.0
EVERY_S = 5.0
SETTING = 'ROBOTRIALS_PROGRESS'


@dataclass(slots=True)
class _Activity:
    what: str = ''
    is_shown: bool = False  # by a bar, or by a question that waits for its answer


_now = _Activity()


def doing(what: str) -> None:
    """Name what takes the time from here on."""
    _now.what = what


@contextmanager
def shown_otherwise() -> Iterator[None]:
    """No lines while something else on the terminal says what is going on."""
    before, _now.is_shown = _now.is_shown, True
    try:
        yield
    finally:
        _now.is_shown = before


@contextmanager
def told_while_working(verb: str) -> Iterator[None]:
    """Say on stderr what the verb is doing once it takes long, and again every few seconds."""
    is_main = threading.current_thread() is threading.main_thread()
    if os.environ.get(SETTING) == '0' or not hasattr(signal, 'setitimer') or not is_main:
        yield
        return
    started_s = time.monotonic()
    doing('working')

    def tell(number: int, frame: FrameType | None) -> None:
        if not _now.is_shown:
            line = f'robotrials {verb}: {_now.what} ({time.monotonic() - started_s:.0f} s)\n'
            with suppress(OSError):  # nobody reads it
                os.write(2, ''.join(c for c in line if c.isprintable() or c == '\n').encode())

    before = signal.signal(signal.SIGALRM, tell)
    signal.setitimer(signal.ITIMER_REAL, FIRST_S, EVERY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def analysis_progress() -> Callable[[str, int, int], None]:
    """A function that is told how far the work is: a bar on a terminal."""
    if not sys.stderr.isatty():
        return lambda what, done, total: doing(f'{what}, {done:,} of {total:,}')
    from rich.console import Console
    from rich.progress import Progress, TaskID

    bar = Progress(console=Console(stderr=True), transient=True)
    tasks: dict[str, TaskID] = {}

    def advance(what: str, done: int, total: int) -> None:
        if what not in tasks:
            bar.start()
            _now.is_shown = True
            tasks[what] = bar.add_task(what, total=total)
        bar.update(tasks[what], completed=done)
        if done >= total:
            bar.stop()
            _now.is_shown = False

    return advance
