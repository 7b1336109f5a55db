"""How verbs print: one table option for all, one progress bar, and what to type instead of a mistyped command."""

from __future__ import annotations

import contextlib
import csv
import difflib
import io
import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robotrials.errors import RobotrialsError, UnknownName
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.formats.imported import FixableError, ImportOptions, Question
    from robotrials.record import Store
    from robotrials.show.answer import Card
    from robotrials.show.plot import Plot
    from robotrials.show.table import Table
    from robotrials.verdict.analysis import Analysis

LINE_EVERY_S = 10.0  # of progress that nobody's terminal shows
FORMULA_MARKS = ('=', '+', '-', '@', '\t', '\r')


def check_form(form: str) -> str:
    """The name of a table format, or an error that suggests the near one."""
    from robotrials.show.table import TableOutput

    if form not in set(TableOutput):
        raise UnknownName('table format', form, [f.value for f in TableOutput])
    return form


FormatOption = Annotated[
    str,
    typer.Option(
        '--format', '-f', callback=check_form, help='How to print tables: text, json, csv, markdown or latex.'
    ),
]
DetailsOption = Annotated[bool, typer.Option('--details', help='Also print the tables behind the summary.')]
PerTaskOption = Annotated[bool, typer.Option('--per-task', help='One row per task, as papers print them.')]
FigureOption = Annotated[Path | None, typer.Option('--figure', help='Save the figure (svg, pdf or png).')]
MethodsOption = Annotated[bool, typer.Option('--methods', help='Describe what was computed, in words for a paper.')]


def say(text: str, *, err: bool = True) -> None:
    """A line on stderr or stdout, wrapped where the width is known (a terminal, COLUMNS); a log keeps whole lines."""
    is_known = (sys.stderr if err else sys.stdout).isatty() or os.environ.get('COLUMNS')
    typer.echo(plain(wrapped(text) if is_known else text), err=err)


def say_error(text: str) -> None:
    """An error on stderr, wrapped on a terminal; whoever keeps or parses it has whole lines."""
    typer.secho(plain(wrapped(text) if sys.stderr.isatty() else text), fg='red', err=True)


def wrapped(text: str) -> str:
    """Prose of the terminal's width; a command stays whole, so that it can be pasted."""
    from robotrials.show.table import terminal_width, wrap

    return '\n'.join(
        part for line in text.splitlines()
        for part in ([line] if line.startswith('Try: ') else wrap(line, terminal_width(), then='  '))
    )  # fmt: skip


def print_card(
    card: Callable[[], Card], tables: Callable[[], Iterable[Table]], form: str = 'text', *, details: bool = False,
    asked: Sequence[Table] = (), analysis: Analysis | None = None,
) -> None:  # fmt: skip
    """An answer: in text the card, with `--details` its tables below; in every other form the tables alone.

    `asked` are tables that an option of their own adds, whether or not there are details.
    """
    if form == 'text':
        typer.echo(plain(card().text()), nl=False)
        if not (details or asked):
            return
        typer.echo()
    printed = [*(tables() if details or form != 'text' else ()), *asked]
    print_analysis(analysis, printed, form) if analysis is not None else print_tables(printed, form)


def print_answer(
    analysis: Analysis, statements: Callable[[], Sequence[str]], card: Callable[[], Card],
    tables: Callable[[], Iterable[Table]], form: str = 'text', *,
    details: bool = False, per_task: bool = False, methods: bool = False,
) -> None:  # fmt: skip
    """The answer of an analysis: its card; with `--per-task` every task, with `--methods` how it was computed.

    `shown` are the policies whose tasks `--per-task` lists.
    """
    from robotrials.show.answer import methods_words

    def chosen() -> Iterable[Table]:
        if not per_task:
            return tables()
        from robotrials.show.report_ranking import by_task

        return [*(tables() if details else ()), by_task(analysis, statements())]

    print_card(card, chosen, form, details=details or per_task, analysis=analysis)
    if methods:
        typer.echo(f'\n{plain(methods_words(analysis))}', nl=False, err=form != 'text')


def print_table(sheet: Table, form: str = 'text') -> None:
    """Print a table in the asked form."""
    from robotrials.show.table import render

    typer.echo(harmless(render(sheet, form), form), nl=form == 'text')  # a blank line after a text table


def print_tables(tables: Iterable[Table], form: str = 'text') -> None:
    """Print the tables of a verb that may have several: in JSON always one list, however many there are."""
    from robotrials.show.table import render_all

    typer.echo(harmless(render_all(list(tables), form), form), nl=form == 'text')


def plain(text: str) -> str:
    """`text` without characters that would steer a terminal."""
    return ''.join(c if c.isprintable() or c in '\n\t' else ascii(c)[1:-1] for c in text)


def harmless(text: str, form: str) -> str:
    """A printed table that steers no terminal, and whose cells no spreadsheet takes for formulas."""
    if form == 'json':  # whose own escapes are read back: those of `plain` are Python's
        return ''.join(c if c.isprintable() or c in '\n\t' else json.dumps(c)[1:-1] for c in text)
    return plain(without_formulas(text) if form == 'csv' else text)


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


# What other tools call it.
OTHER_NAMES = {
    'analyze': 'compare', 'analyse': 'compare', 'stats': 'compare', 'eval': 'compare', 'evaluate': 'compare',
    'summary': 'score', 'summarize': 'score', 'show': 'score', 'results': 'score', 'view': 'explore', 'open': 'explore',
    'load': 'doctor', 'read': 'doctor', 'check': 'doctor', 'info': 'doctor', 'inspect': 'doctor', 'html': 'report',
    'init': 'plan', 'new': 'plan', 'start': 'run', 'table': 'tables', 'figure': 'plot',
}  # fmt: skip
# Options of `import` that say how a file is read: an asking verb has a store read so.
READING = frozenset({'--map', '--answer', '--value', '--blank', '--group-by', '--rate-hz', '--map-file', '--as'})
SETTINGS = {'--metric': 'primary', '--endpoint': 'primary', '--bootstrap': 'resamples', '--n-boot': 'resamples'}
FILES = ('.csv', '.tsv', '.xlsx', '.json', '.jsonl', '.parquet', '.yaml', '.md')


def command_instead(error: Any, argv: Sequence[str], verbs: Collection[str]) -> str:
    """The line that says what to try; `error` is what the command line's parser raised."""
    words = list(argv)
    kind, option = type(error).__name__, getattr(error, 'option_name', None)
    verb = next((word for word in words if word in verbs), '')
    tried = ''
    if kind == 'NoSuchOption' and option:
        tried = _other_option(words, verb, option, getattr(error, 'possibilities', None) or ())
    elif kind == 'MissingParameter' and getattr(error.param, 'param_type_name', '') == 'argument' and verb:
        tried = _gated() if verb == 'gate' else _with_a_source(error, words)
    elif 'unexpected extra argument' in str(error.format_message()) and verb in ('report', 'import', 'export'):
        tried = _with_output(words, verb)
    elif words and not verb:
        tried = _other_verb(words, verbs)
    refused_by = _command_path(error) or ([verb] if verb else [])
    return f'Try: robotrials {tried or shlex.join([*refused_by, "--help"])}'


def _command_path(error: Any) -> list[str]:
    """The verb that refused, and its subcommand."""
    path: list[str] = []
    context = error.ctx
    while context is not None and context.parent is not None:
        path.insert(0, context.info_name)
        context = context.parent
    return path


def _other_verb(words: list[str], verbs: Collection[str]) -> str:
    first, rest = words[0], words[1:]
    if Path(first).exists():
        return shlex.join(['compare', *words])
    if first in ('help', 'version'):
        return '--version' if first == 'version' else shlex.join([*rest[:1], '--help'])
    near = OTHER_NAMES.get(first) or next(iter(difflib.get_close_matches(first, sorted(verbs), n=1)), '')
    return shlex.join([near, *rest]) if near else ''


def _other_option(words: list[str], verb: str, option: str, possible: Sequence[str]) -> str:
    place = next((i for i, word in enumerate(words) if word.split('=')[0] == option), None)
    source = next((word for word in words[1:] if Path(word).exists()), None)
    if place is None or not verb:
        return shlex.join([possible[0]]) if possible else ''
    after = words[place + 1 :]
    if source is not None and (option in READING or (verb, option) == ('doctor', '--set')):
        if (Path(source) / 'trial.json').is_file():
            return ''  # a store has been read already
        return _read_so(words, source, {*READING, option})
    if option in SETTINGS and after:
        return shlex.join([*words[:place], '--set', f'{SETTINGS[option]}={after[0]}', *after[1:]])
    if option in ('-o', '--output') and source is not None and after:
        return shlex.join(['report', source, '-o', after[0]])
    near = difflib.get_close_matches(option, possible, n=1, cutoff=0.7)
    if not near:
        return ''
    values = after[0].split(',') if after and ',' in after[0] else after[:1]
    return shlex.join([*words[:place], *(part for value in values for part in (near[0], value)), *after[1:]])


def _read_so(words: list[str], source: str, reading: Collection[str]) -> str:
    """Import with the options that say how, then ask the store."""
    store = f'{Path(source).stem}-store'
    how: list[str] = []
    rest: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if word.split('=')[0] in reading:
            how += [word] if word.startswith('--') and '=' in word else [word, next(waiting, '')]
        else:
            rest.append(store if word == source else word)
    return f'{shlex.join(["import", source, "--to", store, *how])} && {shlex.join(["robotrials", *rest])}'


def _with_a_source(error: Any, words: Sequence[str]) -> str:
    """The same words on what lies here, where a source or a store is all that is missing."""
    required = [p for p in error.ctx.command.params if p.required and p.param_type_name == 'argument']
    takes_files = error.param.metavar == 'SOURCE'
    if len(required) != 1 or not (takes_files or error.param.name == 'store'):
        return ''
    sources = _stores_here()
    if takes_files:
        sources += [path for path in sorted(Path().iterdir()) if path.suffix.lower() in FILES]
    return shlex.join([*words, str(sources[0])]) if sources else ''


def _stores_here() -> list[Path]:
    return [path for path in sorted(Path().iterdir()) if (path / 'trial.json').is_file()]


def _gated() -> str:
    """Two policies of a store that lies here; a gate wants both."""
    from robotrials.record import read_store

    for path in _stores_here():
        with contextlib.suppress(RobotrialsError):
            names = tested_policies(read_store(path))
            if len(names) > 1:
                return gate_words(path, names[1], names[0])
    return ''


def tested_policies(store: Store) -> list[str]:
    """The policies of a store by name; none of a trial that is still blinded, whose arms no gate compares."""
    return [] if store.is_blinded else sorted({episode.policy for episode in store.episodes()})


def gate_words(source: Path, candidate: str, baseline: str) -> str:
    """The gate of one policy of a source against another of it."""
    named = ['--policy', candidate, '--baseline-policy', baseline]
    return shlex.join(['gate', str(source), '--baseline', str(source), *named])


def _with_output(words: list[str], verb: str) -> str:
    plain = [i for i, word in enumerate(words) if not word.startswith('-')]
    if len(plain) != 3:  # the verb, its source, and where to
        return ''
    flag = {'import': '--to', 'export': '-o', 'report': '-o'}[verb]
    return shlex.join([*words[: plain[2]], flag, words[plain[2]], *words[plain[2] + 1 :]])


# What a source leaves open, put to whoever sits at the terminal: its questions, and remedies that are run on "y".


def is_terminal() -> bool:
    """Whether somebody can be asked; what is printed may go elsewhere, questions go to stderr."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(questions: Sequence[Question]) -> dict[str, str]:
    """The answers of whoever sits there."""
    from robotrials.cli.output import say, shown_otherwise

    answers = {}
    with shown_otherwise():
        for question in questions:
            say(question.text)
            prompt = f'{question.key} [{"/".join(question.choices)}]'
            answers[question.key] = typer.prompt(prompt, default=question.assumed, err=True)
    return answers


def accepted(error: FixableError) -> ImportOptions:
    """The options of a remedy that is offered and taken; whoever declines ends the verb."""
    from robotrials.cli.output import wrapped

    typer.secho(plain(wrapped(str(error))), err=True)
    if not _confirmed('Run it?'):
        raise typer.Exit(2) from error
    return error.options


def _confirmed(question: str) -> bool:
    from robotrials.cli.output import shown_otherwise

    with shown_otherwise():
        return typer.confirm(question, default=False, err=True)


def offer_mapping(source: Path, options: ImportOptions) -> None:
    """Keep how a source was read in a file beside it, where every verb finds it."""
    from robotrials.formats.catalog import open_source
    from robotrials.formats.intake import mapping_beside, write_mapping

    beside = mapping_beside(source)
    imported = open_source(source, options)
    if imported.resolved is None:
        return
    if _confirmed(f'Save this as {beside}, so that {source} is always read this way?'):
        write_mapping(beside, imported)


def can_be_asked(error: FixableError, source: Path) -> bool:
    """Whether the verb has an answer once the remedy is taken: episodes with a result, to compare of two policies."""
    from robotrials.formats.catalog import open_source

    wanted, policies = 2 if 'compare' in sys.argv[1:2] else 1, set()
    with contextlib.suppress(RobotrialsError):
        for episode in open_source(source, error.options).episodes():
            policies |= {episode.policy} if episode.is_valid else set()
            if len(policies) == wanted:
                return True
    return False


def asked_again(error: FixableError, source: Path) -> str:
    """The commands that import the source as its remedy says, and ask the store what this process was asked."""
    from robotrials.formats.imported import import_command

    return and_ask(f'{error.problem}\nTry: {import_command(source, error.options)}', source)


def and_ask(text: str, source: Path) -> str:
    """The text with every import of the source that it offers followed by this question, put to the store."""
    from robotrials.formats.imported import ImportOptions, import_command, store_name

    words = list(sys.argv[1:])
    if str(source) not in words:
        return text
    words[words.index(str(source))] = store_name(source)
    start = f'Try: {import_command(source, ImportOptions())}'
    return '\n'.join(
        f'{line} && {shlex.join(["robotrials", *words])}' if line.startswith(start) else line
        for line in text.split('\n')
    )
