"""`trialist import`: bring anyone's rollouts into a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trialist.cli.output import FormatOption, print_tables

if TYPE_CHECKING:
    from trialist.episodes import Episode, Trajectory


def import_table(
    table: Annotated[
        Path,
        typer.Argument(
            help='A table (.csv, .tsv, .jsonl, .json, .parquet), one row an episode; or SafeVLA-Bench records.'
        ),
    ],
    to: Annotated[Path, typer.Option('--to', '-t', help='The store to add to; made if it is not there.')],
    mapped: Annotated[
        list[str] | None, typer.Option('--map', '-m', help='FIELD=COLUMN where the guess is wrong; repeat it for more.')
    ] = None,
    fixed: Annotated[
        list[str] | None, typer.Option('--set', '-s', help='FIELD=VALUE for every row, such as task=pick.')
    ] = None,
    source: Annotated[
        str | None, typer.Option(help='Name of the source, part of the ids; default: the file name.')
    ] = None,
    kind: Annotated[str, typer.Option('--as', help='table or safevla; default: by what is in the file.')] = '',
    dry_run: Annotated[bool, typer.Option('--dry-run', help='Show what would be imported, and write nothing.')] = False,
    form: FormatOption = 'text',
) -> None:
    """Import a table of rollouts. The guess at its columns is printed; columns that fit no field are kept as labels.

    Example: `trialist import rollouts.csv --to runs/may --map policy=ckpt --set task="pick batteries"`
    """
    from trialist.formats.from_table import drop_misfits, from_table, guess_columns, read_rows
    from trialist.show.record import column_table, episode_table

    columns, defaults = parse_pairs(mapped, '--map'), parse_pairs(fixed, '--set')
    if choose_kind(kind, table) == 'safevla':
        import_safevla(table, to, columns, defaults, source=source, dry_run=dry_run, form=form)
        return
    episodes = from_table(table, columns=columns, defaults=defaults, source=source)
    rows = read_rows(table)
    guessed = guess_columns(list(dict.fromkeys(name for row in rows for name in row)), columns=columns)
    tables = [column_table(drop_misfits(guessed, rows, sure=columns), defaults)]
    if dry_run:
        print_tables([*tables, episode_table(episodes[:10], title=f'{len(episodes)} episodes, the first 10')], form)
        return
    print_tables(tables, form)
    add(to, episodes, None, form=form)


def choose_kind(kind: str, path: Path) -> str:
    """What a file is read as: as said, else by its content."""
    from trialist.errors import UnknownName
    from trialist.safety.safevla import is_safevla

    if not kind:
        return 'safevla' if is_safevla(path) else 'table'
    if kind not in ('table', 'safevla'):
        raise UnknownName('kind of import', kind, ('table', 'safevla'))
    return kind


def import_safevla(
    path: Path, to: Path, columns: dict[str, str], defaults: dict[str, str], *, source: str | None, dry_run: bool,
    form: str,
) -> None:  # fmt: skip
    """Records have fixed fields: of the options only the policy, which they do not name, makes sense."""
    from trialist.errors import InputError
    from trialist.safety.safevla import from_safevla
    from trialist.show.record import episode_table

    if columns or defaults.keys() - {'policy'}:
        told = ', '.join([*columns, *(defaults.keys() - {'policy'})])
        raise InputError(f'{path}: SafeVLA-Bench records take --set policy=NAME and no other mapping, found {told}')
    pairs = from_safevla(path, policy=defaults.get('policy', ''), source=source)
    if dry_run:
        first = [episode for episode, _ in pairs[:10]]
        print_tables([episode_table(first, title=f'{len(pairs)} episodes, the first 10')], form)
        return
    add(to, [episode for episode, _ in pairs], {episode.key: steps for episode, steps in pairs}, form=form)


def add(
    to: Path, episodes: list[Episode], trajectories: dict[tuple[str, int], Trajectory] | None, *, form: str
) -> None:
    """Add what the store lacks, and say how much that was."""
    from trialist.episodes import Store
    from trialist.episodes.maintain import add_episodes

    store = Store.create(to) if not (to / 'trial.json').exists() else Store.open(to)
    done = add_episodes(store, episodes, trajectories=trajectories)
    typer.echo(f'{to}: {done.added} episodes added, {done.already_there} already there', err=form != 'text')
    from trialist.safety import load_registry, unnamed_benchmark

    gap = unnamed_benchmark(episodes, load_registry())
    if gap is not None and (gap.candidates or trajectories):
        typer.echo(f'{gap} (--set benchmark=NAME)', err=True)


def parse_pairs(pairs: list[str] | None, option: str) -> dict[str, str]:
    """`['policy=ckpt']` as a mapping."""
    from trialist.errors import InputError

    parsed = {}
    for pair in pairs or []:
        name, separator, value = pair.partition('=')
        if not separator or not name or not value:
            raise InputError(f'{option} wants FIELD={"COLUMN" if option == "--map" else "VALUE"}, found {pair!r}')
        parsed[name] = value
    return parsed
