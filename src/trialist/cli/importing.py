"""`trialist import`: bring anyone's table of rollouts into a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trialist.cli.output import FormatOption, print_tables


def import_table(
    table: Annotated[Path, typer.Argument(help='A table: .csv, .tsv, .jsonl, .json or .parquet, one row an episode.')],
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
    dry_run: Annotated[bool, typer.Option('--dry-run', help='Show what would be imported, and write nothing.')] = False,
    form: FormatOption = 'text',
) -> None:
    """Import a table of rollouts. The guess at its columns is printed; columns that fit no field are kept as labels.

    Example: `trialist import rollouts.csv --to runs/may --map policy=ckpt --set task="pick batteries"`
    """
    from trialist.episodes import Store
    from trialist.episodes.from_table import drop_misfits, from_table, guess_columns, read_rows
    from trialist.episodes.maintain import add_episodes
    from trialist.show.record import column_table, episode_table

    columns, defaults = parse_pairs(mapped, '--map'), parse_pairs(fixed, '--set')
    episodes = from_table(table, columns=columns, defaults=defaults, source=source)
    rows = read_rows(table)
    guessed = guess_columns(list(dict.fromkeys(name for row in rows for name in row)), columns=columns)
    tables = [column_table(drop_misfits(guessed, rows, sure=columns), defaults)]
    if dry_run:
        print_tables([*tables, episode_table(episodes[:10], title=f'{len(episodes)} episodes, the first 10')], form)
        return
    print_tables(tables, form)
    done = add_episodes(Store.create(to) if not (to / 'trial.json').exists() else Store.open(to), episodes)
    typer.echo(f'{to}: {done.added} episodes added, {done.already_there} already there', err=form != 'text')


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
