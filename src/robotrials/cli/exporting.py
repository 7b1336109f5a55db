"""`robotrials export`: write a store in other people's formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robotrials.cli.output import FormatOption, print_tables
from robotrials.cli.store import WhereOption, parse_where


def export(
    store: Annotated[Path | None, typer.Argument(metavar='STORE', help='The folder of the store.')] = None,
    to: Annotated[str, typer.Option('--to', '-t', help='The format; `--list` says which there are.')] = '',
    out: Annotated[
        Path | None, typer.Option('--output', '-o', help='Where to write; default: the store and the format, joined.')
    ] = None,
    where: WhereOption = None,
    rate_hz: Annotated[
        float | None, typer.Option('--rate-hz', help='Steps per second, for formats with one rate for all episodes.')
    ] = None,
    listed: Annotated[bool, typer.Option('--list', help='List the formats that can be written.')] = False,
    form: FormatOption = 'text',
) -> None:
    """Export episodes with their trajectories and videos. In a blinded trial that is still open, codes stay codes.

    Example: `robotrials export runs/may --to lerobot --out may-lerobot --where outcome=success`
    """
    from robotrials.cli.import_account import exporter_table, ledger_tables
    from robotrials.errors import InputError
    from robotrials.formats.export import EXPORTERS, ExportOptions, load_exporter
    from robotrials.record import read_store

    if listed:
        print_tables([exporter_table([load_exporter(name) for name in EXPORTERS.names()])], form)
        return
    if store is None or not to:
        raise InputError('wanted a store and --to FORMAT (`robotrials export --list` says which)')
    exporter = load_exporter(to)
    source = read_store(store)
    target = out if out is not None else Path(f'{store.resolve().name}-{exporter.name}{exporter.suffix}')
    done = exporter.write(source, target, ExportOptions(where=parse_where(where) or None, rate_hz=rate_hz))
    print_tables(ledger_tables(done.ledger), form)
    typer.echo(f'{target}: {done.episodes:,} episodes written', err=form != 'text')
