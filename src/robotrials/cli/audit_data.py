"""`robotrials audit datasource | overfit | mix | card`: diagnostics of a benchmark that run policies."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robotrials.cli.output import (
    LINE_EVERY_S,
    DetailsOption,
    FigureOption,
    FormatOption,
    print_card,
    print_tables,
    save_plot,
)
from robotrials.errors import InputError

if TYPE_CHECKING:
    from robotrials.study import ShortcutPlan


# `robotrials audit shortcut`: what does a deliberately small probe score?

STEPS = 4000


def shortcut_command(
    subject: Annotated[str, typer.Argument(metavar='PLAN_OR_HOST', help='A TOML plan, or the name of a host.')] = '',
    out: Annotated[
        Path | None, typer.Option('--output', '-o', help='The work folder.', show_default='shortcut-NAME')
    ] = None,
    task: Annotated[list[str] | None, typer.Option('--task', '-t', help='For a host: a task; repeat.')] = None,
    suite: Annotated[str, typer.Option(help='For LIBERO: the suite, such as libero-goal.')] = '',
    demonstrations: Annotated[
        list[Path] | None,
        typer.Option('--demonstrations', '-d', help='For a host: demonstrations (HDF5, or a folder).'),
    ] = None,
    expert: Annotated[str, typer.Option(help='For a host: the policy that demonstrates.')] = '',
    episodes: Annotated[
        int | None, typer.Option('--episodes', help='For a host: start states per task.', show_default='official')
    ] = None,
    time_cap: Annotated[
        float | None, typer.Option('--time-cap', help='For a host: seconds per episode.', show_default='official')
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help=f'For a host: training steps, {STEPS} unless given; a checkpoint is kept at each quarter.'),
    ] = None,
    reported: Annotated[
        Path | None, typer.Option(help='Reported scores: a CSV with policy, score, unit, kind, and more.')
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="The protocol of the reported scores; default: the host's own, if any.")
    ] = '',
    margin: Annotated[
        float | None, typer.Option(help='The margin that counts as near, as a fraction of the full score.')
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help='Processes that run episodes.')] = 1,
    device: Annotated[str, typer.Option(help='The training device: cpu or cuda.')] = 'cpu',
    paper: Annotated[bool, typer.Option('--paper', help="Print the audit paper's own tables and stop.")] = False,
    figure: FigureOption = None,
    form: FormatOption = 'text',
) -> None:
    """Train a small probe without a language encoder, compare its score with reported ones, find the inputs it needs.

    Trains the probe, evaluates every checkpoint and variant as one trial, and resumes when it is run again.

    Example: `robotrials audit shortcut tabletop -t choose_red -t choose_green --episodes 40 --time-cap 12`
    With a plan: `robotrials audit shortcut shortcut.toml --reported scores.csv --figure shortcut.svg`
    """
    from robotrials.show import shortcut as shown

    if paper:
        print_tables([shown.paper_score_table(), shown.paper_checkpoint_table(), shown.paper_task_table()], form)
        return
    if not subject:
        raise InputError('wanted a TOML plan or the name of a host, such as tabletop; or --paper')
    from robotrials.cli.run import shown_progress
    from robotrials.study import diagnose_shortcut
    from robotrials.study.probe_maker import ProbeMaker

    plan = _plan(
        subject, task=task, suite=suite, demonstrations=demonstrations, expert=expert, episodes=episodes,
        time_cap=time_cap, steps=steps, reported=reported, protocol=protocol, margin=margin,
    )  # fmt: skip
    folder = out or Path(f'shortcut-{Path(subject).stem.replace(":", "-")}')
    maker = ProbeMaker(plan, folder, device=device, tell=ProgressLines())
    check_training(folder / 'shortcut.json')
    with shown_progress() as report:
        shortcut = diagnose_shortcut(plan, folder, maker, workers=workers, report=report, tell=_tell)
    if form == 'text':
        typer.echo(shown.shortcut_words(shortcut))
    tables = [shown.gap_table(shortcut)] if shortcut.gaps else []
    tables += [shown.checkpoint_table(shortcut), shown.optimism_table(shortcut), shown.input_table(shortcut)]
    if shortcut.probe.sweep is not None:
        tables.append(shown.sweep_table(shortcut))
    print_tables([*tables, shown.task_table(shortcut)], form)
    _tell(f'wrote {folder / "shortcut.json"}')
    save_plot(figure, lambda: shown.shortcut_plot(shortcut))


def _plan(
    subject: str, *, task: list[str] | None, suite: str, demonstrations: list[Path] | None, expert: str,
    episodes: int | None, time_cap: float | None, steps: int | None, reported: Path | None, protocol: str,
    margin: float | None,
) -> ShortcutPlan:  # fmt: skip
    """The declared plan, or that of a host with what was given; how it is read may be changed for both."""
    from robotrials.study import read_shortcut_plan
    from robotrials.study.shortcut import host_plan

    if Path(subject).suffix == '.toml' or Path(subject).is_file():
        given = {'--task': task, '--suite': suite, '--demonstrations': demonstrations, '--expert': expert,
                 '--episodes': episodes, '--time-cap': time_cap, '--steps': steps}  # fmt: skip
        named = [name for name, value in given.items() if value not in (None, '', [])]
        if named:
            raise InputError(f'{named[0]} goes with the name of a host; {subject} declares it itself')
        plan = read_shortcut_plan(subject)
    else:
        steps = STEPS if steps is None else steps
        kept = sorted({max(1, steps * k // 4) for k in (1, 2, 3)} - {steps})
        plan = host_plan(
            subject, tasks=task or (), demonstrations=[str(p.resolve()) for p in demonstrations or ()], expert=expert,
            episodes_per_task=episodes, time_cap_s=time_cap, suite=suite, probe={'steps': steps, 'checkpoints': kept},
        )  # fmt: skip
    changes: dict[str, object] = {'reported': '' if reported is None else str(reported), 'protocol': protocol}
    changes = {name: value for name, value in changes.items() if value}
    if margin is not None:
        changes['margin'] = margin
    return dataclasses.replace(plan, **changes)  # type: ignore[arg-type]


def check_training(result: Path) -> None:
    """Unless the result is there, tell of a missing environment now, and not after the demonstrations."""
    from robotrials.policies.probe.train import probe_environment

    if not result.exists():
        probe_environment()


def _tell(text: str) -> None:
    typer.echo(text, err=True)


class ProgressLines:
    """A line on stderr now and then: what is being done, and how far it is."""

    def __init__(self) -> None:
        self._last: tuple[str, float] = ('', 0.0)

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self._last[0] or now - self._last[1] >= LINE_EVERY_S or done >= total:
            self._last = (what, now)
            _tell(f'{what}: {done} of {total}')


WorkersOption = Annotated[int, typer.Option(min=0, help='Processes that run episodes; 0 runs them in this one.')]


def datasource_command(
    folder: Annotated[Path | None, typer.Argument(help='The work folder; an interrupted run resumes there.')] = None,
    plan: Annotated[Path | None, typer.Option(help='A TOML file that says what to run.')] = None,
    task: Annotated[list[str] | None, typer.Option(help='A task of the host; repeatable.')] = None,
    distance_mm: Annotated[
        list[float] | None, typer.Option('--distance-mm', help='How far from the test to collect; repeatable.')
    ] = None,
    grid: Annotated[
        int | None, typer.Option(min=2, help='Test start states per task; default: 24, as in the paper.')
    ] = None,
    learner: Annotated[str, typer.Option(help='probe, or lookup, which plays back the nearest demonstration.')] = '',
    seed: Annotated[int | None, typer.Option(help='Seed of the grid, the training starts and the training.')] = None,
    workers: WorkersOption = 1,
    read: Annotated[Path | None, typer.Option(help='Print an existing datasource.json.')] = None,
    template: Annotated[
        bool, typer.Option('--template', help='Print the form that asks submissions how close their data are.')
    ] = False,
    paper: Annotated[bool, typer.Option('--paper', help="Print the paper's Table 9.")] = False,
    figure: FigureOption = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """Can a score be reached by collecting data close to the test? Trains at increasing distances from it.

    Example: `robotrials audit datasource work/source --task single_block --distance-mm 0 --distance-mm 100`
    """
    from robotrials.show.audit_data import (
        SUBMISSION_FORM,
        datasource_card,
        datasource_tables,
        distance_plot,
        published_table,
    )
    from robotrials.verdict.audit.datasource import read_datasource

    if template:
        typer.echo(SUBMISSION_FORM, nl=False)
        return
    if paper:
        print_tables([published_table()], form)
        return
    if read is not None:
        datasource = read_datasource(read)
    elif folder is None:
        raise InputError('wanted a folder to work in, or --read, --template or --paper')
    else:
        from robotrials.study.datasource import RESULT, SourcePlan, run_data_source
        from robotrials.value import read_toml

        asked: dict[str, Any] = {
            'tasks': tuple(task) if task else None, 'grid': grid, 'learner': learner or None, 'seed': seed,
            'distances_m': tuple(d / 1000 for d in distance_mm) if distance_mm else None,
        }  # fmt: skip
        declared = SourcePlan() if plan is None else read_toml(SourcePlan, plan)
        declared = dataclasses.replace(declared, **{k: value for k, value in asked.items() if value is not None})
        if declared.learner == 'probe':
            check_training(folder / RESULT)
        datasource = run_data_source(declared, folder, workers=workers, tell=Teller())
        typer.echo(f'wrote {folder / RESULT}', err=True)
    print_card(lambda: datasource_card(datasource), lambda: datasource_tables(datasource), form, details=details)
    save_plot(figure, lambda: distance_plot(datasource))


def overfit_command(
    folder: Annotated[Path | None, typer.Argument(help='The work folder; an interrupted run resumes there.')] = None,
    plan: Annotated[Path | None, typer.Option(help='A TOML file: host, policies, task, changes, training.')] = None,
    workers: WorkersOption = 1,
    read: Annotated[Path | None, typer.Option(help='Print an existing overfit.json.')] = None,
    figure: FigureOption = None,
    details: DetailsOption = False,
    form: FormatOption = 'text',
) -> None:
    """How much is lost on fresh samples and under changes? Says "overfitting" only where training data were counted.

    Example: `robotrials audit overfit work/overfit --plan overfit.toml`
    """
    from robotrials.show.audit_data import alteration_plot, alteration_table, lacking_table, overfit_card
    from robotrials.verdict.audit.overfit import read_overfit

    if read is not None:
        overfit = read_overfit(read)
    elif folder is None or plan is None:
        raise InputError('wanted a folder to work in and --plan, or --read')
    else:
        from robotrials.study.overfit import RESULT, OverfitPlan, run_overfit
        from robotrials.value import read_toml

        overfit = run_overfit(read_toml(OverfitPlan, plan), folder, workers=workers, tell=Teller())
        typer.echo(f'wrote {folder / RESULT}', err=True)
    lacking = lacking_table(overfit)
    tables = [alteration_table(overfit), *([lacking] if lacking is not None else [])]
    print_card(lambda: overfit_card(overfit), lambda: tables, form, details=details)
    save_plot(figure, lambda: alteration_plot(overfit))


def card_command(
    host: Annotated[str, typer.Argument(help='The benchmark: a host by name.')],
    output: Annotated[Path, typer.Option('--output', '-o', help='The page: .html, .md, .tex or .json.')] = Path(
        'card.html'
    ),
    benchmark: Annotated[str, typer.Option('--benchmark', '-b', help='A preset, such as libero-spatial.')] = '',
    samples: Annotated[int | None, typer.Option(min=2, help='S, the episodes per task of the benchmark.')] = None,
    option: Annotated[list[str] | None, typer.Option(help='An option of the host, KEY=VALUE; repeatable.')] = None,
    shortcut: Annotated[Path | None, typer.Option(help='A shortcut.json of `robotrials audit shortcut`.')] = None,
    overfit: Annotated[Path | None, typer.Option(help='An overfit.json of `robotrials audit overfit`.')] = None,
    datasource: Annotated[Path | None, typer.Option(help='A datasource.json of `robotrials audit datasource`.')] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(help='Recorded runs of one plan: two, and optionally a repeat of the first; repeatable.'),
    ] = None,
    policy: Annotated[str, typer.Option(help='The policy that is run three times for the determinism check.')] = '',
    task: Annotated[str, typer.Option(help='The task of the determinism check.')] = '',
    rerun: Annotated[bool, typer.Option(help='Run the determinism check if no runs are given.')] = True,
) -> None:
    """Write one page on a benchmark: four diagnostics, significance cutoffs, determinism, and what was not run.

    Example: `robotrials audit card tabletop -o tabletop-card.html`
    """
    from robotrials.cli.worker import read_option
    from robotrials.run.plan import HostEntry, PolicyEntry
    from robotrials.show.audit_data import card_document
    from robotrials.show.document import check_target, choose_format, render_document, write_file
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
            rerun=rerun, policy=PolicyEntry(policy) if policy else None, task=task,
            shortcut=None if shortcut is None else read_shortcut(shortcut),
            overfit=None if overfit is None else read_overfit(overfit),
            datasource=None if datasource is None else read_datasource(datasource),
        ),
        tell=Teller(),
    )  # fmt: skip
    write_file(output, render_document(card_document(card), chosen))
    for finding in card.findings():
        typer.echo(f'{finding.part}: {finding.standing}. {finding.text}')
    typer.echo(card.standing())
    typer.echo(f'wrote {output}', err=True)


def mix_command(
    folder: Annotated[Path | None, typer.Argument(help='The work folder; an interrupted run resumes there.')] = None,
    plan: Annotated[Path | None, typer.Option(help='A TOML file that says what to run.')] = None,
    workers: WorkersOption = 1,
    read: Annotated[Path | None, typer.Option(help='Print an existing mix.json.')] = None,
    paper: Annotated[bool, typer.Option('--paper', help="Print RADAR's Table 2.")] = False,
    form: FormatOption = 'text',
) -> None:
    """Train on single tasks, on some together and on all, and test each mix on every task.

    Example: `robotrials audit mix work/mix --plan mix.toml`
    """
    from robotrials.show.audit_data import mix_table, published_mix_table
    from robotrials.verdict.audit.run_score import read_mix

    if paper:
        print_tables([published_mix_table()], form)
        return
    if read is not None:
        mix = read_mix(read)
    elif folder is None:
        raise InputError('wanted a folder to work in, or --read')
    else:
        from robotrials.study.datasource import MIX_RESULT, MixPlan, run_mix
        from robotrials.value import read_toml

        declared = MixPlan() if plan is None else read_toml(MixPlan, plan)
        check_training(folder / MIX_RESULT)
        mix = run_mix(declared, folder, workers=workers, tell=Teller())
        typer.echo(f'wrote {folder / MIX_RESULT}', err=True)
    print_tables([mix_table(mix)], form)


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
