"""`robotrials plot` and `robotrials tables`: any figure or table by name, in the width and font of a paper."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import FormatOption, harmless, print_table, print_tables, without_formulas
from robotrials.cli.source import (
    AnalysisChanges,
    PolicyOption,
    open_analysis,
    takes_analysis,
    tell_analysis,
)
from robotrials.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from robotrials.show.catalog import ShowRequest
    from robotrials.show.table import Table
    from robotrials.verdict.analysis.subject import Input


SourcesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar='SOURCE...', help='The input: a store, for most; see --list for the others.'),
]
CHANGES = 'reference tau primary pairing baseline alpha registry resamples seed where'
StratumOption = Annotated[list[str] | None, typer.Option('--stratum', '-s', help='Show only this stratum; repeatable.')]
ListOption = Annotated[bool, typer.Option('--list', help='List the names and stop.')]


@takes_analysis(CHANGES)
def plot(
    name: Annotated[str | None, typer.Argument(metavar='NAME', help='The figure; see --list.')] = None,
    sources: SourcesArgument = None,
    output: Annotated[Path | None, typer.Option('--output', '-o', help='Where to write: .svg, .pdf or .png.')] = None,
    listed: ListOption = False,
    policy: PolicyOption = None,
    stratum: StratumOption = None,
    *,
    changes: AnalysisChanges,
    style: Annotated[
        str, typer.Option('--style', help='A venue: ieee, acm, icml, neurips, jmlr, lncs, nature or plain.')
    ] = '',
    width: Annotated[str, typer.Option('--width', help='column or page of the style, or 3.5in, 252pt, 89mm.')] = '',
    height: Annotated[str, typer.Option('--height', help='In the same units; default: what the figure needs.')] = '',
    font: Annotated[str, typer.Option('--font', help='sans or serif.')] = '',
    font_size: Annotated[float | None, typer.Option('--font-size', help='Font size of the axes, in points.')] = None,
    form: FormatOption = 'text',
) -> None:
    """Draw a figure by name.

    Example: `robotrials plot cdf runs/may -o cdf.pdf --style ieee --width column`
    """
    from robotrials.show.catalog import find_figure, input_of, listed_figures
    from robotrials.show.document import check_target
    from robotrials.show.figure import figure_style, save_figure, styled
    from robotrials.verdict.analysis import Analysis

    if listed:
        print_table(_list_table('Figures', listed_figures()), form)
        return
    if name is None:
        raise InputError('wanted a figure: robotrials plot NAME SOURCE... -o FILE; names: robotrials plot --list')
    chosen = figure_style(style, width=width, height=height, font=font, font_size_pt=font_size)
    _refuse_source(name, 'plot', 'cdf')
    draw = find_figure(name)
    check_target(output or Path(f'{name}.pdf'))
    request = _request(name, input_of(draw), sources, changes, policy=policy, stratum=stratum)
    with warnings.catch_warnings(record=True) as caught, styled(chosen):
        warnings.simplefilter('always', UserWarning)
        written = save_figure(draw(request), output or Path(f'{name}.pdf'))
    for sentence in dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning)):
        typer.echo(f'look at the figure: {sentence}', err=True)
    if isinstance(request.subject, Analysis):
        tell_analysis(request.subject, of_safety=name.startswith('safety'))
    typer.echo(f'wrote {written}')


@takes_analysis(CHANGES)
def tables(
    name: Annotated[str | None, typer.Argument(metavar='NAME', help='The table; see --list.')] = None,
    sources: SourcesArgument = None,
    out: Annotated[Path | None, typer.Option('--output', '-o', help='Write it here instead of printing it.')] = None,
    listed: ListOption = False,
    policy: PolicyOption = None,
    stratum: StratumOption = None,
    *,
    changes: AnalysisChanges,
    label: Annotated[
        list[str] | None,
        typer.Option(
            '--label',
            help='For `labels`: a label; a=b for whether two agree; a*b, or two --label, for their combinations.',
        ),
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
    from robotrials.show.catalog import find_table, input_of, listed_tables
    from robotrials.show.document import check_target, write_file
    from robotrials.show.table import LatexLayout, render_all, stated
    from robotrials.verdict.analysis import Analysis

    if listed:
        print_table(_list_table('Tables', listed_tables()), form)
        return
    if name is None:
        raise InputError('wanted a table: robotrials tables NAME SOURCE...; names: robotrials tables --list')
    if out is not None:
        check_target(out)
    layout = LatexLayout(width=width, label=tex_label or f'tab:{name}')
    _refuse_source(name, 'tables', 'headline')
    build = find_table(name)
    request = _request(
        name, input_of(build), sources, changes, policy=policy, stratum=stratum, label='*'.join(label or ()) or None
    )
    built = build(request)
    if isinstance(request.subject, Analysis):
        tell_analysis(request.subject, of_safety=name.startswith('safety'))
        built = stated(built, request.subject.statement)
    if out is not None:
        text = render_all(built, form, latex=layout)
        write_file(out, without_formulas(text) if form == 'csv' else text)
        typer.echo(f'wrote {out}', err=True)
    elif form == 'latex':
        typer.echo(harmless(render_all(built, form, latex=layout), form), nl=False)
    else:
        print_tables(built, form)


def _request(
    name: str, wanted: Input, sources: list[str] | None, changes: AnalysisChanges, *, policy: list[str] | None,
    stratum: list[str] | None, label: str | None = None,
) -> ShowRequest:  # fmt: skip
    """The request for a name that takes this kind of input; the wrong kind is an error that says which is wanted."""
    from robotrials.show.catalog import ShowRequest, check_sources
    from robotrials.verdict.analysis.subject import Input, read_subject

    given = tuple(sources or ())
    check_sources(name, wanted, given)
    subject: object
    if wanted is Input.STORE:
        subject = open_analysis(Path(given[0]), **changes)
    else:
        if changes['where']:
            raise InputError(f'{name} takes no store of episodes, so --where cannot choose any')
        drawn = {'n_resamples': changes['resamples'], 'seed': changes['seed']}
        subject = read_subject(wanted, given, **{key: value for key, value in drawn.items() if value is not None})
    return ShowRequest(subject=subject, policies=tuple(policy or ()), strata=tuple(stratum or ()), label=label)


def _refuse_source(name: str, verb: str, usual: str) -> None:
    """Raise where a file stands in the place of a name: it comes second."""
    if Path(name).exists():
        raise InputError(
            f'{name} is a source, and a name comes before it (robotrials {verb} --list)\n'
            f'Try: {shlex.join(["robotrials", verb, usual, name])}'
        )


def _list_table(title: str, rows: Sequence[tuple[str, str, str, str]]) -> Table:
    """Names with what they show, the papers' figures or tables of that layout, and what they are made from."""
    from robotrials.show.table import table

    return table(title, ['name', 'what it shows', 'layout of', 'made from'], rows)
