"""`robotrials audit datasource | overfit | mix | card`: diagnostics of a benchmark that run policies."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robotrials.cli.audit_training import check_training
from robotrials.cli.output import LINE_EVERY_S, DetailsOption, FormatOption, check_form, print_card, print_tables

if TYPE_CHECKING:
    from robotrials.run.plan import PolicyEntry

WorkersOption = Annotated[int, typer.Option(min=0, help='Processes that run episodes; 0 runs inside this one.')]
FigureOption = Annotated[Path | None, typer.Option('--figure', help='Save the figure (svg, pdf or png).')]


def datasource_command(
    folder: Annotated[
        Path | None, typer.Argument(help='Where everything is kept; a stopped run resumes there.')
    ] = None,
    plan: Annotated[Path | None, typer.Option(help='A TOML file that says what to run.')] = None,
    task: Annotated[list[str] | None, typer.Option(help='A task of the host; may be repeated.')] = None,
    distance_mm: Annotated[
        list[float] | None, typer.Option('--distance-mm', help='How far from the test to collect; may be repeated.')
    ] = None,
    grid: Annotated[int | None, typer.Option(min=2, help='Test start states of each task; 24 as in the paper.')] = None,
    learner: Annotated[str, typer.Option(help='probe, or lookup, which plays the nearest demonstration back.')] = '',
    seed: Annotated[int | None, typer.Option(help='Of the grid, the training starts and the training.')] = None,
    workers: WorkersOption = 1,
    read: Annotated[Path | None, typer.Option(help='Print a datasource.json that is there already.')] = None,
    template: Annotated[
        bool, typer.Option('--template', help='Print the form that asks a submission how close its data is.')
    ] = False,
    paper: Annotated[bool, typer.Option('--paper', help="Print the paper's Table 9.")] = False,
    figure: FigureOption = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Can a score be had by collecting data beside the test? Trains at rising distances from it.

    Example: `robotrials audit datasource work/source --task single_block --distance-mm 0 --distance-mm 100`
    """
    from robotrials.errors import InputError
    from robotrials.show.audit_data import (
        SUBMISSION_FORM,
        datasource_card,
        datasource_tables,
        distance_figure,
        published_table,
    )
    from robotrials.verdict.audit.datasource import read_datasource

    check_form(form)
    if template:
        typer.echo(SUBMISSION_FORM, nl=False)
        return
    if paper:
        print_tables([published_table()], form)
        return
    if read is not None:
        found = read_datasource(read)
    elif folder is None:
        raise InputError('wanted a folder to work in, or --read, --template or --paper')
    else:
        from robotrials.study.datasource import RESULT, SourcePlan, read_source_plan, run_data_source

        asked: dict[str, Any] = {
            'tasks': tuple(task) if task else None, 'grid': grid, 'learner': learner or None, 'seed': seed,
            'distances_m': tuple(d / 1000 for d in distance_mm) if distance_mm else None,
        }  # fmt: skip
        declared = _changed(SourcePlan() if plan is None else read_source_plan(plan), asked)
        if declared.learner == 'probe':
            check_training(folder / RESULT)
        found = run_data_source(declared, folder, workers=workers, told=Teller())
        typer.echo(f'wrote {folder / RESULT}', err=True)
    print_card(lambda: datasource_card(found), lambda: datasource_tables(found), form, details=details)
    if figure is not None:
        from robotrials.show.figure import save_figure

        typer.echo(f'wrote {save_figure(distance_figure(found), figure)}', err=True)


def overfit_command(
    folder: Annotated[
        Path | None, typer.Argument(help='Where everything is kept; a stopped run resumes there.')
    ] = None,
    plan: Annotated[Path | None, typer.Option(help='A TOML file: host, policies, task, changes, training.')] = None,
    workers: WorkersOption = 1,
    read: Annotated[Path | None, typer.Option(help='Print an overfit.json that is there already.')] = None,
    figure: FigureOption = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """How much is lost on fresh samples and under changes? Says "overfitting" only where training data was counted.

    Example: `robotrials audit overfit work/overfit --plan overfit.toml`
    """
    from robotrials.errors import InputError
    from robotrials.show.audit_data import alteration_lines, alteration_table, lacking_table, overfit_card
    from robotrials.verdict.audit.overfit import read_overfit

    check_form(form)
    if read is not None:
        found = read_overfit(read)
    elif folder is None or plan is None:
        raise InputError('wanted a folder to work in and --plan, or --read')
    else:
        from robotrials.study.overfit import RESULT, read_overfit_plan, run_overfit

        found = run_overfit(read_overfit_plan(plan), folder, workers=workers, told=Teller())
        typer.echo(f'wrote {folder / RESULT}', err=True)
    lacking = lacking_table(found)
    tables = [alteration_table(found), *([lacking] if lacking is not None else [])]
    print_card(lambda: overfit_card(found), lambda: tables, form, details=details)
    if figure is not None:
        from robotrials.show.audit_figure import drop_forest
        from robotrials.show.figure import save_figure

        typer.echo(f'wrote {save_figure(drop_forest(alteration_lines(found), level=found.level), figure)}', err=True)


def card_command(
    host: Annotated[str, typer.Argument(help='The benchmark: a host by name.')],
    output: Annotated[Path, typer.Option('--output', '-o', help='The page: .html, .md, .tex or .json.')] = Path(
        'card.html'
    ),
    benchmark: Annotated[str, typer.Option('--benchmark', '-b', help='A preset, such as libero-spatial.')] = '',
    samples: Annotated[int | None, typer.Option(min=2, help='S, the episodes per task of the benchmark.')] = None,
    option: Annotated[list[str] | None, typer.Option(help='An option of the host, KEY=VALUE; may be repeated.')] = None,
    shortcut: Annotated[Path | None, typer.Option(help='A shortcut.json of `robotrials audit shortcut`.')] = None,
    overfit: Annotated[Path | None, typer.Option(help='An overfit.json of `robotrials audit overfit`.')] = None,
    datasource: Annotated[Path | None, typer.Option(help='A datasource.json of `robotrials audit datasource`.')] = None,
    run: Annotated[
        list[Path] | None, typer.Option(help='Recorded runs of one plan: two, and perhaps a repeat of the first.')
    ] = None,
    policy: Annotated[str, typer.Option(help='Who is run three times for the determinism check.')] = '',
    task: Annotated[str, typer.Option(help='The task of the determinism check.')] = '',
    rerun: Annotated[bool, typer.Option(help='Run the determinism check where no runs are given.')] = True,
) -> None:
    """One page on a benchmark: four diagnostics, significance cutoffs, determinism. What was not run is said.

    Example: `robotrials audit card tabletop -o tabletop-card.html`
    """
    from robotrials.cli.worker import read_option
    from robotrials.run.plan import HostEntry
    from robotrials.show.audit_card import card_document
    from robotrials.show.file import check_target, write_file
    from robotrials.show.report_file import choose_format, render_document
    from robotrials.study.card import CardRequest, make_card
    from robotrials.verdict.audit.datasource import read_datasource
    from robotrials.verdict.audit.overfit import read_overfit
    from robotrials.verdict.audit.shortcut import read_shortcut

    chosen = choose_format(None, output)
    check_target(output)
    card = make_card(
        CardRequest(
            host=HostEntry(host, dict(read_option(text) for text in option or [])),
            benchmark=benchmark, samples=samples, runs=tuple(run or ()),
            rerun=rerun, policy=_policy(policy), task=task,
            shortcut=None if shortcut is None else read_shortcut(shortcut),
            overfit=None if overfit is None else read_overfit(overfit),
            datasource=None if datasource is None else read_datasource(datasource),
        ),
        told=Teller(),
    )  # fmt: skip
    write_file(output, render_document(card_document(card), chosen))
    for finding in card.findings():
        typer.echo(f'{finding.part}: {finding.standing}. {finding.text}')
    typer.echo(card.standing())
    typer.echo(f'wrote {output}', err=True)


def mix_command(
    folder: Annotated[
        Path | None, typer.Argument(help='Where everything is kept; a stopped run resumes there.')
    ] = None,
    plan: Annotated[Path | None, typer.Option(help='A TOML file that says what to run.')] = None,
    workers: WorkersOption = 1,
    read: Annotated[Path | None, typer.Option(help='Print a mix.json that is there already.')] = None,
    paper: Annotated[bool, typer.Option('--paper', help="Print RADAR's Table 2.")] = False,
    form: FormatOption = 'text',
) -> None:
    """Train on one task at a time, on some together and on all, and test each on every task.

    Example: `robotrials audit mix work/mix --plan mix.toml`
    """
    from robotrials.errors import InputError
    from robotrials.show.audit_data import mix_table, published_mix_table
    from robotrials.verdict.audit.mix import read_mix

    check_form(form)
    if paper:
        print_tables([published_mix_table()], form)
        return
    if read is not None:
        found = read_mix(read)
    elif folder is None:
        raise InputError('wanted a folder to work in, or --read')
    else:
        from robotrials.study.mix import RESULT, MixPlan, read_mix_plan, run_mix

        declared = MixPlan() if plan is None else read_mix_plan(plan)
        check_training(folder / RESULT)
        found = run_mix(declared, folder, workers=workers, told=Teller())
        typer.echo(f'wrote {folder / RESULT}', err=True)
    print_tables([mix_table(found)], form)


class Teller:
    """One line that is written over on a terminal; elsewhere, as in a job's log, a line now and then."""

    def __init__(self) -> None:
        self._last_s = -math.inf

    def __call__(self, text: str) -> None:
        if sys.stderr.isatty():
            typer.echo(f'\r\033[K{text}', nl=False, err=True)
        elif time.monotonic() - self._last_s >= LINE_EVERY_S:
            self._last_s = time.monotonic()
            typer.echo(text, err=True)


def _changed(plan: Any, asked: dict[str, Any]) -> Any:
    from dataclasses import replace

    return replace(plan, **{name: value for name, value in asked.items() if value is not None})


def _policy(text: str) -> PolicyEntry | None:
    from robotrials.run.plan import PolicyEntry

    return PolicyEntry(text) if text else None
