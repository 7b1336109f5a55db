"""robotrials plot: any figure by name, in the width and font of a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robotrials.cli.named import ListOption, PolicyOption, SourcesArgument, StratumOption
from robotrials.cli.output import FormatOption
from robotrials.cli.source import (
    AlphaOption,
    BaselineOption,
    PairingOption,
    PrimaryOption,
    ReferenceOption,
    RegistryOption,
    ResamplesOption,
    SeedOption,
    TauOption,
    WhereOption,
)


def plot(
    name: Annotated[str | None, typer.Argument(metavar='NAME', help='The figure; see --list.')] = None,
    sources: SourcesArgument = None,
    output: Annotated[Path | None, typer.Option('--output', '-o', help='Where to write: .svg, .pdf or .png.')] = None,
    listed: ListOption = False,
    policy: PolicyOption = None,
    stratum: StratumOption = None,
    reference: ReferenceOption = None,
    tau: TauOption = None,
    primary: PrimaryOption = None,
    pairing: PairingOption = None,
    baseline: BaselineOption = None,
    alpha: AlphaOption = None,
    registry: RegistryOption = None,
    resamples: ResamplesOption = None,
    seed: SeedOption = None,
    where: WhereOption = None,
    style: Annotated[
        str, typer.Option('--style', help='A venue: ieee, acm, icml, neurips, jmlr, lncs, nature or plain.')
    ] = '',
    width: Annotated[str, typer.Option('--width', help='column or page of the style, or 3.5in, 252pt, 89mm.')] = '',
    height: Annotated[str, typer.Option('--height', help='In the same units; by default what the figure needs.')] = '',
    font: Annotated[str, typer.Option('--font', help='sans or serif.')] = '',
    font_size: Annotated[float | None, typer.Option('--font-size', help='Of the axes, in points.')] = None,
    form: FormatOption = 'text',
) -> None:
    """Draw a figure by name.

    Example: `robotrials plot cdf runs/may -o cdf.pdf --style ieee --width column`
    """
    import warnings

    from robotrials.cli.named import list_table, named_request, refuse_source_as_name
    from robotrials.cli.output import print_table
    from robotrials.cli.source import tell_analysis
    from robotrials.errors import InputError
    from robotrials.show.catalog import find_figure, listed_figures
    from robotrials.show.figure import figure_style, save_figure, styled
    from robotrials.show.file import check_target
    from robotrials.show.request import input_of
    from robotrials.verdict.analysis import Analysis

    if listed:
        print_table(list_table('Figures', listed_figures()), form)
        return
    if name is None:
        raise InputError('wanted a figure: robotrials plot NAME SOURCE... -o FILE; names: robotrials plot --list')
    chosen = figure_style(style, width=width, height=height, font=font, font_size_pt=font_size)
    refuse_source_as_name(name, 'plot', 'cdf')
    draw = find_figure(name)
    check_target(output or Path(f'{name}.pdf'))
    request = named_request(
        name, input_of(draw), sources, where=where, policy=policy, stratum=stratum, reference=reference, tau=tau,
        primary=primary, pairing=pairing, baseline=baseline, alpha=alpha, registry=registry, resamples=resamples,
        seed=seed,
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as caught, styled(chosen):
        warnings.simplefilter('always', UserWarning)
        written = save_figure(draw(request), output or Path(f'{name}.pdf'))
    for sentence in dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning)):
        typer.echo(f'look at the figure: {sentence}', err=True)
    if isinstance(request.subject, Analysis):
        tell_analysis(request.subject, of_safety=name.startswith('safety'))
    typer.echo(f'wrote {written}')
