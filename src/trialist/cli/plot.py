"""trialist plot: any figure by name, from any store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trialist.cli.output import print_table
from trialist.cli.source import ReferenceOption, ResamplesOption, SeedOption, TauOption, WhereOption


def plot(
    name: Annotated[str | None, typer.Argument(metavar='NAME', help='The figure; see --list.')] = None,
    store: Annotated[Path | None, typer.Argument(metavar='STORE', help='The folder of the store.')] = None,
    output: Annotated[Path | None, typer.Option('--output', '-o', help='Where to write: .svg, .pdf or .png.')] = None,
    listed: Annotated[bool, typer.Option('--list', help='List the figures and stop.')] = False,
    policy: Annotated[list[str] | None, typer.Option('--policy', '-p', help='Only these policies; repeat.')] = None,
    stratum: Annotated[list[str] | None, typer.Option('--stratum', '-s', help='Only these strata; repeat.')] = None,
    reference: ReferenceOption = None,
    tau: TauOption = 240.0,
    resamples: ResamplesOption = 1000,
    seed: SeedOption = 0,
    where: WhereOption = None,
) -> None:
    """Draw a figure from a store.

    Example: `trialist plot cdf runs/may -o cdf.pdf`
    """
    from trialist.cli.source import read_episodes
    from trialist.errors import InputError
    from trialist.show.figure import save_figure
    from trialist.show.figure_catalog import FigureRequest, figure_summaries, find_figure
    from trialist.show.table import table

    if listed:
        print_table(table('Figures', ['name', 'what it shows'], figure_summaries()))
        return
    if name is None or store is None:
        raise InputError('wanted a figure and a store: trialist plot NAME STORE -o FILE; names: trialist plot --list')
    draw = find_figure(name)
    request = FigureRequest(
        episodes=tuple(read_episodes(store, where)), store=store, policies=tuple(policy or ()),
        strata=tuple(stratum or ()), reference=reference, tau_s=tau, n_resamples=resamples, seed=seed,
    )  # fmt: skip
    written = save_figure(draw(request), output or Path(f'{name}.pdf'))
    typer.echo(f'wrote {written}')
