"""robotrials tables: any table by name, as text, data or LaTeX."""

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


def tables(
    name: Annotated[str | None, typer.Argument(metavar='NAME', help='The table; see --list.')] = None,
    sources: SourcesArgument = None,
    out: Annotated[Path | None, typer.Option('--output', '-o', help='Write it here instead of printing it.')] = None,
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
    label: Annotated[
        list[str] | None,
        typer.Option('--label', help='For `labels`: a label; a=b: whether two agree; two of them, or a*b: crossed.'),
    ] = None,
    width: Annotated[
        str, typer.Option('--width', help='In LaTeX: column, or page for a table across both columns (table*).')
    ] = 'column',
    tex_label: Annotated[str, typer.Option('--tex-label', help='In LaTeX: the \\label, such as tab:headline.')] = '',
    form: FormatOption = 'text',
) -> None:
    """Print a table by name.

    Example: `robotrials tables headline runs/may --format latex --out headline.tex`
    """
    from robotrials.cli.named import list_table, named_request, refuse_source_as_name
    from robotrials.cli.output import check_form, print_table, print_tables
    from robotrials.cli.source import tell_analysis
    from robotrials.errors import InputError
    from robotrials.show.catalog import find_table, listed_tables
    from robotrials.show.file import check_target, write_file
    from robotrials.show.request import input_of
    from robotrials.show.table import LatexLayout, render_all, stated
    from robotrials.verdict.analysis import Analysis

    if listed:
        print_table(list_table('Tables', listed_tables()), form)
        return
    if name is None:
        raise InputError('wanted a table: robotrials tables NAME SOURCE...; names: robotrials tables --list')
    check_form(form)
    if out is not None:
        check_target(out)
    layout = LatexLayout(width=width, label=tex_label or f'tab:{name}')
    refuse_source_as_name(name, 'tables', 'headline')
    build = find_table(name)
    request = named_request(
        name, input_of(build), sources, where=where, policy=policy, stratum=stratum, reference=reference, tau=tau,
        primary=primary, pairing=pairing, baseline=baseline, alpha=alpha, registry=registry, resamples=resamples,
        seed=seed, label='*'.join(label) if label else None,
    )  # fmt: skip
    built = build(request)
    if isinstance(request.subject, Analysis):
        tell_analysis(request.subject, of_safety=name.startswith('safety'))
        built = stated(built, request.subject.statement)
    if out is not None:
        write_file(out, render_all(built, form, latex=layout))
        typer.echo(f'wrote {out}', err=True)
    elif form == 'latex':
        typer.echo(render_all(built, form, latex=layout), nl=False)
    else:
        print_tables(built, form)
