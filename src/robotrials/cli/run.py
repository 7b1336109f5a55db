"""`robotrials run`: run what is left of a declared trial."""

from __future__ import annotations

import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robotrials.cli.output import LINE_EVERY_S
from robotrials.cli.plan import PlanPath
from robotrials.cli.source import ray_options
from robotrials.errors import InputError

if TYPE_CHECKING:
    from robotrials.run.plan import RecordingOptions, TrialPlan
    from robotrials.run.schedule import Report, TrialProgress

StoreOption = Annotated[
    Path | None, typer.Option('--store', help='The folder of the store.', show_default='runs/ and the plan hash')
]
SHORTEST_SECRET = 8


def run(
    trial: PlanPath,
    store: StoreOption = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help='Number of processes; each has its own host and policies.',
            show_default='1; with Ray, what the cluster has room for',
        ),
    ] = None,
    operator: Annotated[str, typer.Option(help='The person beside the robot; recorded with every episode.')] = '',
    fixture: Annotated[str | None, typer.Option(help='Only the slots of this fixture.')] = None,
    session: Annotated[str | None, typer.Option(help='Only the slots of this session: s1, s2, ...')] = None,
    shard: Annotated[
        str | None,
        typer.Option(help="Only shard i of n, such as 3/64: for array jobs that share the store's folder."),
    ] = None,
    stop_after: Annotated[
        int | None, typer.Option(help='Maximum number of episodes to run now; run again for more.')
    ] = None,
    engine: Annotated[str, typer.Option(help='local, or ray: workers on a Ray cluster.')] = 'local',
    address: Annotated[
        str | None,
        typer.Option(help='For --engine ray: the cluster, such as auto or HOST:6379.', show_default='this machine'),
    ] = None,
    resource: Annotated[
        list[str] | None,
        typer.Option(
            help='For --engine ray: what one worker needs, such as CPU=1, GPU=0.5 or robot_cell=1; repeatable.'
        ),
    ] = None,
    policy_servers: Annotated[
        int,
        typer.Option(min=0, help='For --engine ray: servers per policy, shared by all workers; 0: one in each worker.'),
    ] = 0,
    arms: Annotated[
        Path | None,
        typer.Option(help="For an operator's plan: the file that says how to reach the policies behind its codes."),
    ] = None,
    worker_log: Annotated[
        Path | None,
        typer.Option(help='Keep what hosts and policies print. It may name policies: keep it from the operator.'),
    ] = None,
) -> None:
    """Run the remaining episodes of a trial in blinded random order. Interrupt it any time; run it again to resume.

    Example: `robotrials run trial.toml --workers 2 --operator kim`
    On a cluster: `robotrials run trial.toml --engine ray --address auto --store s3://lab/may`
    """
    from robotrials.run import Shard, read_plan, run_trial

    declared = read_plan(trial)
    check_secret(declared, trial)
    folder = default_store(declared.hash) if store is None else store
    ray = ray_options(engine, address, resource, policy_servers=policy_servers)
    default_workers = 0 if ray is not None else 1
    _tell_no_films(declared.recording)
    with shown_progress() as report:
        done = run_trial(
            declared, folder, workers=default_workers if workers is None else workers, ray=ray, operator=operator,
            fixture=fixture, session=session,
            shard=None if shard is None else Shard.parse(shard), stop_after=stop_after,
            report=report, worker_log=worker_log, tell=lambda head: typer.echo(f'head {head} at the start'), arms=arms,
        )  # fmt: skip
    typer.echo(f'{done.store}: {done.n_valid} of {done.n_total} episodes valid, {done.n_run} run now')
    typer.echo(f'head {done.head} (note it: robotrials store verify --head can then tell whether anything was changed)')
    if done.n_interrupted:
        typer.echo(f'{done.n_interrupted} attempts of earlier runs were started and never finished; they are on record')
    _tell_unfilmed(done.store)
    if done.n_given_up:
        typer.echo(f'{done.n_given_up} given up: every attempt was INVALID; `robotrials store ls --all` says why')
    if done.stop is not None:
        typer.echo(f'stopped by the rule: {done.stop.reason}')
    if done.is_complete and (fixture, session, shard) == (None, None, None):
        key = ' --allocation allocation.json' if declared.blinding.is_sealed else ''
        aim = 'unblind' if declared.blinding.enabled else 'end the trial'
        typer.echo(f'complete; {aim} with: robotrials close {trial} --store {done.store} --by NAME{key}')


def check_secret(plan: TrialPlan, path: Path) -> None:
    """Refuse a blinded plan whose codes could be guessed."""
    blinding = plan.blinding
    if blinding.enabled and not blinding.is_sealed and len(blinding.secret) < SHORTEST_SECRET:
        length = len(blinding.secret)
        given = f' (found {length} characters, wanted {SHORTEST_SECRET} or more)' if length else ''
        raise InputError(
            f'{path}: a blinded trial needs a secret{given}, or its codes can be guessed; seal it '
            f'(robotrials seal {path} -o FOLDER), or add under [blinding]: secret = "{secrets.token_hex(16)}"'
        )


def _tell_no_films(recording: RecordingOptions) -> None:
    """That there will be no films, and why, before hours are run without them."""
    from robotrials.record.footage import film_obstacle

    if recording.filming is not None and recording.filming.draw and (why := film_obstacle()):
        typer.echo(
            f'no films: {why}. Hosts that can draw keep the states of their episodes, and `robotrials store film` '
            'makes films of them later',
            err=True,
        )


def _tell_unfilmed(store: Path) -> None:
    """Why episodes that were to be filmed have no film, each reason once."""
    from robotrials.record import read_store

    labels = Counter(e.labels['film'] for e in read_store(store).episodes(events=False) if 'film' in e.labels)
    for label, count in labels.most_common(3):
        typer.echo(f'{count} episodes have no film ({label.removeprefix("none: ")})')


def default_store(plan_hash: str) -> Path:
    """Where a trial's store lies unless said otherwise; it gives no name away."""
    return Path('runs') / plan_hash[:12]


@contextmanager
def shown_progress() -> Iterator[Report]:
    """A bar on a terminal, else a line now and then."""
    last_s = time.monotonic()

    def print_line(progress: TrialProgress) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= LINE_EVERY_S:
            last_s = time.monotonic()
            typer.echo(f'{progress.n_valid} of {progress.n_total}; {describe(progress)}', err=True)

    if not sys.stderr.isatty():
        yield print_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn('{task.description}'))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task('starting', total=None)
        yield lambda done: bar.update(task, total=done.n_total, completed=done.n_valid, description=describe(done))


def describe(progress: TrialProgress) -> str:
    """The rest of a progress line: time left, counts of coded arms, troubles."""
    parts = []
    if progress.eta_s is not None:
        minutes, seconds = divmod(round(progress.eta_s), 60)
        parts.append(f'{minutes} min {seconds} s left')
    parts += [f'{code} {count}' for code, count in progress.per_arm.items()]
    if progress.n_invalid:
        parts.append(f'invalid {progress.n_invalid}')
    return ', '.join(parts)
