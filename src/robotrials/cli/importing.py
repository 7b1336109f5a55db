"""`robotrials import`: bring anyone's rollouts into a store.

`robotrials export`: write a store in other people's formats.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import FormatOption, doing, print_tables, say
from robotrials.cli.source import WhereOption, parse_where
from robotrials.errors import InputError
from robotrials.formats.imported import ImportAccount, Imported
from robotrials.record import Episode
from robotrials.show.table import Cell, Column, Table, table, without_empty

if TYPE_CHECKING:
    from robotrials.formats.export import ExportedFilm, Redraw
    from robotrials.formats.imported import ImportOptions
    from robotrials.record import Store


ROWS_SHOWN = 10
COLUMNS = ('benchmark', 'stratum', 'task', 'outcome')
SAFEVLA = 'robotrials.cli.safety:SAFEVLA'  # `safety` reads it, and `formats` may not know


def import_source(
    path: Annotated[
        Path | None,
        typer.Argument(metavar='FILE_OR_FOLDER', help='What to import; `--list` shows the formats that can be read.'),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option('--output', '-o', help='The store to add to (--to is the same); created if it does not exist.'),
    ] = None,
    mapped: Annotated[
        list[str] | None, typer.Option('--map', '-m', help='FIELD=COLUMN where the guess is wrong; repeatable.')
    ] = None,
    fixed: Annotated[
        list[str] | None, typer.Option('--set', '-s', help='FIELD=VALUE for every episode, such as task=pick.')
    ] = None,
    answered: Annotated[
        list[str] | None, typer.Option('--answer', '-a', help='KEY=CHOICE, the answer to a printed question.')
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(
            '--value', help="CELL=OUTCOME, what a table cell means: '✓=success', 'dropped=failure'; repeatable."
        ),
    ] = None,
    blank: Annotated[
        str, typer.Option('--blank', help='What a row without a result is: invalid, failure, or drop (left out).')
    ] = '',
    group_by: Annotated[
        str,
        typer.Option(
            '--group-by', help='Columns (a,b) that identify an episode: rows that agree in them are one episode.'
        ),
    ] = '',
    rate_hz: Annotated[
        float | None, typer.Option('--rate-hz', help='Control steps per second, to convert steps to seconds.')
    ] = None,
    kind: Annotated[str, typer.Option('--as', help='The format; default: recognised by content.')] = '',
    source: Annotated[
        str | None, typer.Option(help='Name of the source, which enters the ids; default: the file name.')
    ] = None,
    save_map: Annotated[
        Path | None, typer.Option('--save-map', help='Save the mapping that was used to this file, for reuse.')
    ] = None,
    map_file: Annotated[
        Path | None, typer.Option('--map-file', help='Use the mapping in a file written by --save-map.')
    ] = None,
    dry_run: Annotated[
        bool, typer.Option('--dry-run', help='Print the first episodes as they would be recorded; write nothing.')
    ] = False,
    listed: Annotated[bool, typer.Option('--list', help='List the formats that can be read.')] = False,
    form: FormatOption = 'text',
) -> None:
    """Import rollouts. The format is found by content, and the guess is printed: which field comes from where.

    Example: `robotrials import rollouts.csv --to runs/may --map policy=ckpt --set task="pick batteries"`
    """
    from robotrials.formats.imported import ImportOptions

    if listed:
        from robotrials.formats.catalog import known_formats

        formats: list[list[Cell]] = sorted([f.name, f.summary] for f in known_formats())
        note = 'recognised by content; --as NAME forces one'
        print_tables([table('Formats', ['name', 'reads'], formats, note=note)], form)
        return
    if path is None:
        raise InputError('no source given; wanted a file or folder (formats: `robotrials import --list`)')
    if to is None and not dry_run:
        from robotrials.formats.imported import import_command

        raise InputError(
            f'{path}: no store given; wanted --to STORE, or --dry-run\nTry: {import_command(path, ImportOptions())}'
        )
    options = ImportOptions(
        columns=parse_pairs(mapped, '--map'),
        defaults=parse_pairs(fixed, '--set'),
        answers=parse_pairs(answered, '--answer'),
        group_by=tuple(name.strip() for name in group_by.split(',') if name.strip()),
        rate_hz=rate_hz,
        source=source,
        values=parse_pairs(value, '--value'),
        blank=blank,
    )
    from robotrials.formats.intake import as_mapped, read_mapping

    if map_file is not None:
        kind, options = read_mapping(map_file, kind=kind, options=options)
    else:
        kind, options = as_mapped(path, options, kind=kind)
    imported = _read(path, options, kind, to, lambda opened: _bring_in(opened, to, dry_run=dry_run, form=form))
    if save_map is not None:
        from robotrials.formats.intake import write_mapping

        write_mapping(save_map, imported)


def _read(path: Path, options: ImportOptions, kind: str, to: Path | None, take: Callable[[Imported], None]) -> Imported:
    """Open and take the source; on a terminal a remedy that is known is offered, and run on "y"."""
    from robotrials.cli.output import accepted, is_terminal
    from robotrials.formats.imported import FixableError

    while True:
        try:
            imported = _open(path, options, kind)
            take(imported)
        except FixableError as error:
            remedy = FixableError(error.problem, error.path, error.options, to)  # into the store that was asked for
            if not is_terminal() or error.options == options:
                raise remedy from error
            options = accepted(remedy)
        else:
            return imported


def _open(path: Path, options: ImportOptions, kind: str) -> Imported:
    """The source, with its open questions put to whoever sits at the terminal."""
    from robotrials.cli.output import ask, is_terminal
    from robotrials.cli.source import spare_pandas
    from robotrials.formats.catalog import FORMATS, open_source

    doing(f'reading {path}')
    if not FORMATS.installed():  # a reader of somebody else's may use pandas
        spare_pandas()
    imported = open_source(path, options, name=kind)
    open_questions = [q for q in imported.questions if q.key not in options.answers]
    if open_questions and is_terminal():
        options = dataclasses.replace(options, answers={**options.answers, **ask(open_questions)})
        imported = open_source(path, options, name=imported.format)
    imported.settle(path, options)
    return imported


def _bring_in(imported: Imported, to: Path | None, *, dry_run: bool, form: str) -> None:
    from robotrials.formats.intake import import_into

    guess = [guess_table(imported)] if imported.guesses else []
    if dry_run or to is None:
        first: list[Episode] = []
        count = 0
        for count, episode in enumerate(imported.episodes(), start=1):  # noqa: B007 - the last count is shown
            if len(first) < ROWS_SHOWN:
                first.append(episode)
        print_tables([*guess, preview_table(first, count=count), *account_tables(imported.ledger)], form)
        return
    if form == 'text' and guess:
        print_tables(guess, form)
    done = import_into(to, imported, command=' '.join(['robotrials', *sys.argv[1:]]))
    print_tables([*(guess if form != 'text' else ()), *account_tables(imported.ledger)], form)
    typer.echo(f'{to}: {done.added:,} episodes added, {done.already_there:,} already there', err=form != 'text')
    if done.is_read_anew:
        say(
            f'Warning: this source was imported into {to} before, read in another way; if the rollouts are the '
            'same, each now counts twice. Import it into a new folder instead.'
        )
    elif done.n_alike:
        say(
            f'Warning: {done.n_alike:,} successes added are in {to} from another source, with the same policy, task, '
            'start and time; if the rollouts are the same, each now counts twice. Import them into a new folder '
            'instead; of a renamed file, give the old name: --source NAME.'
        )
    _tell_unnamed(to)


def _tell_unnamed(to: Path) -> None:
    """Say once that episodes without a benchmark's name have no safety specifications, and which names fit."""
    from robotrials.measure.safety.registry import is_mentioned
    from robotrials.record import Outcome, read_store
    from robotrials.record.part import row_groups
    from robotrials.record.rows import distinct_values

    parts = read_store(to).parts()
    has_steps = any(part.trajectories for part in parts)
    named: set[tuple[str, str, str]] = set()
    for rows in (group for p in parts for group in row_groups(p.path, p.logged, choose=lambda _: list(COLUMNS))):
        cells = {row[:3] for row in distinct_values(rows.select(COLUMNS)) if row[3] != Outcome.INVALID}
        if not has_steps and any(not is_mentioned(task) for *names, task in cells if not any(names)):
            return  # no benchmark has all of the tasks, and nothing was recorded that safety could be scored on
        named |= cells
    from robotrials.measure.safety import load_registry, unnamed_benchmark

    gap = unnamed_benchmark(sorted(named), load_registry())
    if gap is not None and (gap.candidates or has_steps):
        typer.echo(f'{gap} (--set benchmark=NAME)' if gap.candidates else str(gap), err=True)


def parse_pairs(pairs: list[str] | None, option: str) -> dict[str, str]:
    """`['policy=ckpt']` as a mapping."""
    wanted = {'--map': 'FIELD=COLUMN', '--set': 'FIELD=VALUE', '--answer': 'KEY=CHOICE', '--value': 'CELL=OUTCOME'}.get(
        option, 'NAME=VALUE'
    )
    parsed = {}
    for pair in pairs or []:
        name, separator, value = pair.rpartition('=') if option == '--value' else pair.partition('=')
        if not separator or not name or not value:
            raise InputError(f'{option} wants {wanted}, found {pair!r}')
        parsed[name] = value
    return parsed


# What `robotrials import` prints of a source: the guess, the account, the questions.


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


def account_tables(ledger: ImportAccount) -> list[Table]:
    """What was kept, what was dropped and why, what the reader must know, and what looks odd."""
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


def export(
    store: Annotated[Path | None, typer.Argument(metavar='STORE', help='The folder of the store.')] = None,
    to: Annotated[str, typer.Option('--to', '-t', help='The format; see `--list`.')] = '',
    out: Annotated[
        Path | None,
        typer.Option(
            '--output',
            '-o',
            help="Where to write (--out is the same); default: the store's name and the format, joined.",
        ),
    ] = None,
    where: WhereOption = None,
    rate_hz: Annotated[
        float | None, typer.Option('--rate-hz', help='Steps per second, for formats with one rate for all episodes.')
    ] = None,
    redraw: Annotated[
        bool, typer.Option('--redraw', help='Render cameras again from the kept states, one frame per step.')
    ] = False,
    listed: Annotated[bool, typer.Option('--list', help='List the formats that can be written.')] = False,
    form: FormatOption = 'text',
) -> None:
    """Export episodes with their trajectories and videos. In a blinded trial that is still open, policies remain codes.

    Example: `robotrials export runs/may --to lerobot --out may-lerobot --where outcome=success`
    """
    from robotrials.formats.export import EXPORTERS, ExportOptions, load_exporter
    from robotrials.record import read_store

    if listed:
        formats: list[list[Cell]] = [[name, load_exporter(name).summary] for name in EXPORTERS.names()]
        print_tables([table('Formats', ['name', 'writes'], formats)], form)
        return
    if store is None or not to:
        raise InputError('wanted a store and --to FORMAT (formats: `robotrials export --list`)')
    exporter = load_exporter(to)
    source = read_store(store)
    target = out if out is not None else Path(f'{store.resolve().name}-{exporter.name}{exporter.suffix}')
    with contextlib.ExitStack() as held:
        again = held.enter_context(_redrawing(source)) if redraw else None
        options = ExportOptions(where=parse_where(where) or None, rate_hz=rate_hz, redraw=again)
        done = exporter.write(source, target, options)
    print_tables(account_tables(done.ledger), form)
    typer.echo(f'{target}: {done.episodes:,} episodes written', err=form != 'text')


@contextlib.contextmanager
def _redrawing(store: Store) -> Iterator[Redraw]:
    """A drawer of every episode's cameras at every step whose state was kept; each episode is drawn once."""
    from robotrials.formats.export import ExportedFilm
    from robotrials.record import Camera
    from robotrials.run.plan import FilmOptions
    from robotrials.run.refilm import filming_host, refilm

    drawn: dict[tuple[str, int], tuple[ExportedFilm, ...]] = {}
    with tempfile.TemporaryDirectory(prefix='robotrials-redraw-') as folder, filming_host(store) as host:
        options = FilmOptions(rate_hz=host.spec.control_rate_hz)

        def films(episode: Episode) -> tuple[ExportedFilm, ...]:
            if episode.key not in drawn:
                drawn[episode.key] = tuple(
                    ExportedFilm(
                        Camera(f.camera, None, None, f.width_px, f.height_px, f.path.name, video_steps=f.steps), f.path
                    )
                    for f in refilm(store, episode, host, Path(folder), options=options)
                )
            return drawn[episode.key]

        yield films
