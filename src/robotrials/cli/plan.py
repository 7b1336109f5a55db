"""`robotrials plan`: what a declared trial amounts to, before anything is run."""

from __future__ import annotations

import inspect
import secrets
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robotrials.cli.output import FormatOption, print_tables, show_waiting
from robotrials.errors import InputError, UnknownName

if TYPE_CHECKING:
    from robotrials.run import TrialPlan
    from robotrials.run.plan import ConditionEntry
    from robotrials.run.size import PlanSummary
    from robotrials.verdict.planning.plan_size import EpisodeDemand, Fleet


PlanPath = Annotated[Path, typer.Argument(help='The file that declares the trial.', show_default=False)]


def plan(
    trial: PlanPath,
    check: Annotated[
        bool,
        typer.Option('--check', help='Open host and policies and check that they fit together (this shows names).'),
    ] = False,
    power: Annotated[
        float | None, typer.Option('--power', help='Also print the rollouts that a claim needs at this power.')
    ] = None,
    rate: Annotated[float, typer.Option('--rate', help='For --power: the expected success rate.')] = 0.7,
    difference: Annotated[
        float, typer.Option('--difference', '-d', help='For --power: the difference worth detecting.')
    ] = 0.1,
    discordance: Annotated[
        float | None,
        typer.Option('--discordance', help='For --power: fraction of scenes on which two policies differ.'),
    ] = None,
    pilot: Annotated[
        Path | None, typer.Option('--pilot', help="For --power: a pilot's store, for time to success.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help='Also predict wall time, cost and bottleneck on this engine: local or ray.')
    ] = None,
    measure: Annotated[int, typer.Option(min=1, help='For --engine: number of episodes to run and time here.')] = 4,
    episode_s: Annotated[
        float | None, typer.Option(help='For --engine: seconds per episode, instead of measuring.')
    ] = None,
    inference_s: Annotated[float | None, typer.Option(help='With --episode-s: seconds of it per inference.')] = None,
    inferences: Annotated[float | None, typer.Option(help='With --episode-s: inferences per episode.')] = None,
    most_workers: Annotated[
        int | None, typer.Option(min=1, help='For --engine: largest number of workers.', show_default='8, on Ray 256')
    ] = None,
    policy_servers: Annotated[
        int, typer.Option(min=0, help='For --engine: policy servers shared by all workers; 0: one in each worker.')
    ] = 0,
    batch_speedup: Annotated[
        float, typer.Option(help='For --engine: speed-up of a policy server through batching.')
    ] = 1.0,
    worker_price: Annotated[float, typer.Option(help='For --engine: price of a worker, per hour.')] = 0.0,
    server_price: Annotated[float, typer.Option(help='For --engine: price of a policy server, per hour.')] = 0.0,
    form: FormatOption = 'text',
) -> None:
    """Print the design cells of a declared trial, its longest duration, and what it will be able to resolve.

    Example: `robotrials plan trial.toml --power 0.8 --difference 0.1`
    """
    from robotrials.run import read_plan, summarize_plan
    from robotrials.show.table import Column, table

    declared = read_plan(trial)
    check_stopping(declared)
    _check_views(declared)
    size = summarize_plan(declared)
    rows = [
        [c.task.name, c.stratum.name or None, _condition(c.condition), size.episodes_per_cell, c.items, c.time_cap_s]
        for c in declared.cells()
    ]
    columns: list[str | Column] = [
        'task',
        'stratum',
        'condition',
        'episodes per policy',
        'items',
        Column('time cap (s)', 'g'),
    ]
    cells = table(f'{declared.title or trial.stem}: {size.n_cells} cells', columns, rows)
    print_tables([cells, table('what it amounts to', ['quantity', 'value'], _size_rows(declared, size))], form)
    if declared.blinding.enabled and not declared.blinding.secret and not declared.blinding.is_sealed:
        typer.echo(
            'Blinding has no secret: anyone who can guess the policies can check the guess against the plan hash. '
            f'Add under [blinding]: secret = "{secrets.token_hex(16)}"',
            err=True,
        )
    if not declared.benchmark:
        from robotrials.measure.safety import load_registry, unnamed_tasks

        typer.echo(str(unnamed_tasks([t.name for t in declared.tasks], load_registry())), err=True)
    if power is not None:
        from robotrials.cli.power import print_plan_power

        print_plan_power(
            declared, power=power, rate=rate, difference=difference, discordance=discordance, pilot=pilot, form=form
        )
    if engine is not None:
        from robotrials.cli.source import ENGINES
        from robotrials.verdict.planning.plan_size import Fleet

        if engine not in ENGINES:
            raise UnknownName('engine', engine, ENGINES)
        fleet = Fleet(
            most_workers=most_workers or DEFAULT_MOST[engine], policy_servers=policy_servers,
            batch_speedup=batch_speedup, worker_price=worker_price, server_price=server_price,
        )  # fmt: skip
        demand = _demand(declared, engine, measure, episode_s, inference_s, inferences)
        print_capacity(demand, size, fleet, engine, form)
    if check:
        _check(declared)
        typer.echo('host and policies open, and fit together', err=form != 'text')


def _condition(entry: ConditionEntry) -> str:
    return entry.name if entry.severity is None else f'{entry.name} at {entry.severity}'


def _size_rows(declared: TrialPlan, size: PlanSummary) -> list[list[str | int | float | None]]:
    difference = size.resolvable_difference
    return [
        ['plan hash', declared.hash],
        ['policies', size.n_policies],
        ['episodes', size.n_episodes],
        ['episodes per policy', size.episodes_per_policy],
        ['takes at most', _duration(size.longest_s)],
        ['95 % interval of a success rate, per policy and cell', f'at most +-{size.half_width_per_cell:.3f}'],
        ['95 % interval of a success rate, per policy over all cells', f'at most +-{size.half_width_per_policy:.3f}'],
        [
            f'difference of two policies detected with power 0.8 ({size.resolvable_basis})',
            'none at this size' if difference is None else f'{difference:.3f}',
        ],
        ['stopping rule', declared.stopping.rule.value],
        *_analysis_rows(declared),
    ]


def _analysis_rows(declared: TrialPlan) -> list[list[str | int | float | None]]:
    """What is declared to be analysed, and the fewest starts at which any policy could be called faster."""
    from robotrials.stats.matching import fewest_for_claim
    from robotrials.verdict.planning import AnalysisPlan, EndpointName

    analysis = declared.analysis or AnalysisPlan()
    primary = analysis.primary or (EndpointName.SUCCESS, EndpointName.TIME)
    reference = analysis.reference or declared.reference
    compared = sum(name != reference for name in analysis.policies or declared.policies)
    n_tests = max(1, compared * (compared - 1) // 2 * len(primary))
    fewest = fewest_for_claim(n_tests, alpha=analysis.alpha)
    words = (
        ', '.join(e.value for e in primary)
        if declared.analysis
        else 'none declared: success and time, by the documented defaults'
    )
    return [
        ['primary endpoint', words],
        [f'fewest start states per policy at which any policy could be called faster ({n_tests} tests)', fewest],
    ]


def check_stopping(declared: TrialPlan) -> None:
    """Refuse a sequential plan whose horizon cannot show its own smallest difference."""
    from robotrials.run.plan import StoppingRule
    from robotrials.verdict.planning.sequential import check_horizon

    stopping = declared.stopping
    if stopping.rule is StoppingRule.NONE or stopping.smallest_difference is None:
        return
    horizon = check_horizon(
        declared.episodes_in_a_cell() * declared.repeats, stopping.smallest_difference, alpha=stopping.alpha
    )
    if horizon.is_refused:
        raise InputError(f'stopping: {horizon}; plan more episodes, or a larger smallest_difference')


def _check_views(declared: TrialPlan) -> None:
    """Refuse success by cameras where the host's declaration, or its options, say that it has no views to keep."""
    from robotrials.run.component import HOSTS
    from robotrials.run.host import Ability, declared_abilities
    from robotrials.run.recording import no_views

    if not declared.is_judged_by_cameras:
        return
    made: Any = HOSTS.load(declared.host.use)
    watchers = inspect.signature(made).parameters.get('watchers')
    if watchers is not None and not declared.host.options.get('watchers', watchers.default):
        raise no_views(declared.host.use)
    if not isinstance(made, type):
        try:
            made = typing.get_type_hints(made).get('return')
        except (NameError, TypeError):  # it names no class that can be looked at: the open host will tell
            return
    declared_ones = declared_abilities(made)
    if declared_ones is not None and Ability.VIEWS not in declared_ones:
        raise no_views(declared.host.use)


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f'{hours} h {rest // 60} min' if hours else f'{rest // 60} min {rest % 60} s'


def _check(declared: TrialPlan) -> None:
    from robotrials.run.component import check_host_fits, check_policy_fits, open_host, open_policy
    from robotrials.run.seam import ClosablePolicy
    from robotrials.wire.link import shown_waiting

    host = open_host(declared.host)
    check_host_fits(declared, host)
    for name, entry in declared.policies.items():
        policy = open_policy(entry)
        with shown_waiting(show_waiting):
            check_policy_fits(declared, host, policy, name=name, shown=name)
        if isinstance(policy, ClosablePolicy):
            policy.close()
    host.close()


# The part of `robotrials plan` that predicts what a trial takes on an engine.

DEFAULT_MOST = {'local': 8, 'ray': 256}


def print_capacity(demand: EpisodeDemand, size: PlanSummary, fleet: Fleet, engine: str, form: str) -> None:
    """Wall time, cost and bottleneck for a few worker counts, and the one that is worth having."""
    from robotrials.show.table import Column, table
    from robotrials.verdict.planning.plan_size import predict_capacity

    capacity = predict_capacity(demand, size.n_episodes, fleet)
    chosen = [p for p in capacity.points if p.workers == capacity.best.workers or p.workers.bit_count() == 1]
    if capacity.points[-1] not in chosen:
        chosen.append(capacity.points[-1])
    columns: list[str | Column] = [
        'workers', Column('wall time (h)', '.3g'), Column('cost', '.3g'), Column('workers busy', '.0%'),
        *(Column(f'{name} busy', '.0%') for name in capacity.best.use),
    ]  # fmt: skip
    rows = [[p.workers, p.wall_s / 3600, p.cost, p.worker_use, *p.use.values()] for p in chosen]
    title = f'{engine} engine, {size.n_episodes} episodes'
    print_tables([table(title, columns, rows)], form)
    typer.echo(
        f'an episode: host {demand.host_s:.3g} s, {demand.inferences:.3g} inferences of {demand.inference_s:.3g} s, '
        f'store {demand.store_s:.3g} s, driver {demand.driver_s:.3g} s',
        err=form != 'text',
    )
    bound = (
        f'first to saturate: {capacity.saturates_first}, at about {capacity.saturates_at:.0f} workers'
        if capacity.saturates_first
        else f'nothing shared by workers saturates with up to {capacity.points[-1].workers} workers'
    )
    typer.echo(f'best: {capacity.best.workers} workers; {bound}', err=form != 'text')


def _demand(
    declared: TrialPlan, engine: str, measure: int, episode_s: float | None, inference_s: float | None,
    inferences: float | None,
) -> EpisodeDemand:  # fmt: skip
    from robotrials.run.size import DRIVER_S, measure_demand
    from robotrials.verdict.planning.plan_size import EpisodeDemand

    if episode_s is None:
        if inference_s is not None or inferences is not None:
            raise InputError('--inference-s and --inferences need --episode-s; without it episodes are measured')
        return measure_demand(declared, episodes=measure, engine=engine)
    asked, each_s = inferences or 0.0, inference_s or 0.0
    if asked * each_s > episode_s:
        raise InputError(f'{asked:g} inferences of {each_s:g} s take longer than the episode of {episode_s:g} s')
    return EpisodeDemand(
        host_s=episode_s - asked * each_s, inferences=asked, inference_s=each_s, store_s=0.0, driver_s=DRIVER_S[engine]
    )
