"""`robotrials audit shortcut`: what does a deliberately small probe score?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import LINE_EVERY_S, FormatOption, print_tables

if TYPE_CHECKING:
    from robotrials.study import ShortcutPlan

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
        str, typer.Option(help="Which protocol of the reported scores; the host's own if it has one.")
    ] = '',
    margin: Annotated[float | None, typer.Option(help='How near counts, in shares of the full score.')] = None,
    workers: Annotated[int, typer.Option(min=0, help='Processes that run episodes.')] = 1,
    device: Annotated[str, typer.Option(help='What trains: cpu, cuda.')] = 'cpu',
    paper: Annotated[bool, typer.Option('--paper', help="Print the audit paper's own tables and stop.")] = False,
    figure: Annotated[Path | None, typer.Option('--figure', help='Save the figure (svg, pdf or png).')] = None,
    form: FormatOption = 'text',
) -> None:
    """What a small probe with no language encoder scores, beside reported scores, and which input its score needs.

    Trains the probe, evaluates every checkpoint and variant as one trial, and resumes when it is run again.

    Example: `robotrials audit shortcut tabletop -t choose_red -t choose_green --episodes 40 --time-cap 12`
    With a plan: `robotrials audit shortcut shortcut.toml --reported scores.csv --figure shortcut.svg`
    """
    from robotrials.cli.output import check_form
    from robotrials.errors import InputError
    from robotrials.show import shortcut as shown

    check_form(form)
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
    maker = ProbeMaker(plan, folder, device=device, told=ProgressLines())
    check_training(folder / 'shortcut.json')
    with shown_progress() as report:
        found = diagnose_shortcut(plan, folder, maker, workers=workers, report=report, told=_tell)
    if form == 'text':
        typer.echo(shown.shortcut_words(found))
    tables = [shown.gap_table(found)] if found.gaps else []
    tables += [shown.checkpoint_table(found), shown.optimism_table(found), shown.input_table(found)]
    if found.probe.sweep is not None:
        tables.append(shown.sweep_table(found))
    print_tables([*tables, shown.task_table(found)], form)
    _tell(f'wrote {folder / "shortcut.json"}')
    if figure is not None:
        from robotrials.show.figure import save_figure
        from robotrials.show.shortcut_figure import shortcut_figure

        _tell(f'wrote {save_figure(shortcut_figure(found), figure)}')


def _plan(
    subject: str, *, task: list[str] | None, suite: str, demonstrations: list[Path] | None, expert: str,
    episodes: int | None, time_cap: float | None, steps: int | None, reported: Path | None, protocol: str,
    margin: float | None,
) -> ShortcutPlan:  # fmt: skip
    """The declared plan, or that of a host with what was given; how it is read may be changed for both."""
    import dataclasses

    from robotrials.errors import InputError
    from robotrials.study import read_shortcut_plan
    from robotrials.study.shortcut_preset import host_plan

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
        import time

        now = time.monotonic()
        if what != self._last[0] or now - self._last[1] >= LINE_EVERY_S or done >= total:
            self._last = (what, now)
            _tell(f'{what}: {done} of {total}')
