"""`robotrials export`: write a store in other people's formats."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import FormatOption, print_tables
from robotrials.cli.source import WhereOption, parse_where
from robotrials.errors import InputError

if TYPE_CHECKING:
    from robotrials.formats.export import Film, Redraw
    from robotrials.record import Episode, Store


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
    redraw: Annotated[
        bool, typer.Option('--redraw', help='Draw cameras anew from kept states, a frame for every step.')
    ] = False,
    listed: Annotated[bool, typer.Option('--list', help='List the formats that can be written.')] = False,
    form: FormatOption = 'text',
) -> None:
    """Export episodes with their trajectories and videos. In a blinded trial that is still open, codes stay codes.

    Example: `robotrials export runs/may --to lerobot --out may-lerobot --where outcome=success`
    """
    from robotrials.cli.importing import exporter_table, ledger_tables
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
    with contextlib.ExitStack() as held:
        again = held.enter_context(_redrawing(source)) if redraw else None
        options = ExportOptions(where=parse_where(where) or None, rate_hz=rate_hz, redraw=again)
        done = exporter.write(source, target, options)
    print_tables(ledger_tables(done.ledger), form)
    typer.echo(f'{target}: {done.episodes:,} episodes written', err=form != 'text')


@contextlib.contextmanager
def _redrawing(store: Store) -> Iterator[Redraw]:
    """A drawer of every episode's cameras at every step whose state was kept; each episode is drawn once."""
    from robotrials.formats.export import Film
    from robotrials.record import Camera
    from robotrials.run.plan_option import FilmOptions
    from robotrials.run.refilm import filming_host, refilm

    drawn: dict[tuple[str, int], tuple[Film, ...]] = {}
    with tempfile.TemporaryDirectory(prefix='robotrials-redraw-') as folder, filming_host(store) as host:
        options = FilmOptions(rate_hz=host.spec.control_rate_hz)

        def films(episode: Episode) -> tuple[Film, ...]:
            if episode.key not in drawn:
                drawn[episode.key] = tuple(
                    Film(
                        Camera(f.camera, None, None, f.width_px, f.height_px, f.path.name, video_steps=f.steps), f.path
                    )
                    for f in refilm(store, episode, host, Path(folder), options=options)
                )
            return drawn[episode.key]

        yield films
