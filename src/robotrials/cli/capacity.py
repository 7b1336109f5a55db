"""The part of `robotrials plan` that predicts what a trial takes on an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from robotrials.cli.output import print_tables

if TYPE_CHECKING:
    from robotrials.run import TrialPlan
    from robotrials.verdict.planning.capacity import CapacityPoint, EpisodeDemand

DEFAULT_MOST = {'local': 8, 'ray': 256}


def print_capacity(
    declared: TrialPlan, *, engine: str, measure: int, episode_s: float | None, inference_s: float | None,
    inferences: float | None, most_workers: int | None, policy_servers: int, batch_speedup: float, worker_price: float,
    server_price: float, form: str,
) -> None:  # fmt: skip
    """Wall time, cost and bottleneck for a few worker counts, and the one that is worth having."""
    from robotrials.cli.engine import ENGINES
    from robotrials.errors import UnknownName
    from robotrials.run import summarize_plan
    from robotrials.show.table import Column, table
    from robotrials.verdict.planning.capacity import Fleet, predict_capacity

    if engine not in ENGINES:
        raise UnknownName('engine', engine, ENGINES)
    demand = _demand(declared, engine, measure, episode_s, inference_s, inferences)
    fleet = Fleet(
        most_workers=most_workers or DEFAULT_MOST[engine], policy_servers=policy_servers, batch_speedup=batch_speedup,
        worker_price=worker_price, server_price=server_price,
    )  # fmt: skip
    found = predict_capacity(demand, summarize_plan(declared).n_episodes, fleet)
    chosen = [p for p in found.points if p.workers == found.best.workers or _is_round(p.workers)]
    if found.points[-1] not in chosen:
        chosen.append(found.points[-1])
    columns: list[str | Column] = [
        'workers', Column('wall time (h)', '.3g'), Column('cost', '.3g'), Column('workers busy', '.0%'),
        *(Column(f'{name} busy', '.0%') for name in found.best.use),
    ]  # fmt: skip
    rows = [_row(point) for point in chosen]
    title = f'{engine} engine, {summarize_plan(declared).n_episodes} episodes'
    print_tables([table(title, columns, rows)], form)
    typer.echo(
        f'an episode: host {demand.host_s:.3g} s, {demand.inferences:.3g} inferences of {demand.inference_s:.3g} s, '
        f'store {demand.store_s:.3g} s, driver {demand.driver_s:.3g} s',
        err=form != 'text',
    )
    bound = (
        f'first to saturate: {found.saturates_first}, at about {found.saturates_at:.0f} workers'
        if found.saturates_first
        else f'nothing that workers share saturates up to {found.points[-1].workers} workers'
    )
    typer.echo(f'best: {found.best.workers} workers; {bound}', err=form != 'text')


def _row(point: CapacityPoint) -> list[str | int | float | None]:
    return [point.workers, point.wall_s / 3600, point.cost, point.worker_use, *point.use.values()]


def _is_round(n: int) -> bool:
    return n & (n - 1) == 0


def _demand(
    declared: TrialPlan, engine: str, measure: int, episode_s: float | None, inference_s: float | None,
    inferences: float | None,
) -> EpisodeDemand:  # fmt: skip
    from robotrials.errors import InputError
    from robotrials.run.pilot import DRIVER_S, measure_demand
    from robotrials.verdict.planning.capacity import EpisodeDemand

    if episode_s is None:
        if inference_s is not None or inferences is not None:
            raise InputError('--inference-s and --inferences go with --episode-s; without it episodes are measured')
        return measure_demand(declared, episodes=measure, engine=engine)
    asked, each_s = inferences or 0.0, inference_s or 0.0
    if asked * each_s > episode_s:
        raise InputError(f'{asked:g} inferences of {each_s:g} s take longer than the episode of {episode_s:g} s')
    return EpisodeDemand(
        host_s=episode_s - asked * each_s, inferences=asked, inference_s=each_s, store_s=0.0, driver_s=DRIVER_S[engine]
    )
