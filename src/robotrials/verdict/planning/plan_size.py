"""A whole plan's rollouts: policies x tasks x conditions, with the price of many comparisons."""

from __future__ import annotations

import math
import statistics
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Literal

from robotrials.errors import InputError
from robotrials.stats.interval import check_count, check_open_unit, check_unit
from robotrials.stats.sample_size import margin_size, pairs_size, success_size, wilson_sample_size

Claim = Literal['overall', 'per_cell']
Contrast = Literal['all_pairs', 'against_reference']
ROUNDING = 1e-9  # 0.9 and 0.1 are 1


@dataclass(frozen=True, slots=True)
class PlanSize:
    """What one design costs over a plan; a cell is one (policy, task, condition)."""

    design: str
    comparisons: int
    alpha_each: float
    per_cell: int
    per_policy: int
    total: int


def plan_size(
    design: str,
    sample_size: Callable[[float], int],
    *,
    policies: int,
    tasks: int = 1,
    conditions: int = 1,
    claim: Claim = 'per_cell',
    contrast: Contrast = 'all_pairs',
    alpha: float = 0.05,
    comparisons: int | None = None,
) -> PlanSize:
    """The rollouts of a plan in which `sample_size(alpha_each)` gives the rollouts of one arm in one comparison.

    Bonferroni over comparisons (counted from the plan unless given). 'per_cell' makes every comparison in every
    (task, condition) and needs that many rollouts in each cell; 'overall' compares policies on the mean over cells and
    spreads the rollouts over them.
    """
    policies, cells = check_count('policies', policies, least=1), _cells(tasks, conditions)
    pairs = math.comb(policies, 2) if contrast == 'all_pairs' else policies - 1
    if contrast not in ('all_pairs', 'against_reference') or claim not in ('overall', 'per_cell'):
        raise InputError(f'unknown contrast {contrast!r} or claim {claim!r}')
    counted = max(1, pairs) * (cells if claim == 'per_cell' else 1)
    comparisons = counted if comparisons is None else check_count('comparisons', comparisons, least=1)
    alpha_each = check_open_unit('alpha', alpha) / comparisons
    n = sample_size(alpha_each)
    per_cell = n if claim == 'per_cell' else math.ceil(n / cells)
    return PlanSize(design, comparisons, alpha_each, per_cell, per_cell * cells, per_cell * cells * policies)


def plan_sizes(
    success_rate: float,
    difference: float,
    *,
    discordance: float,
    policies: int,
    tasks: int = 1,
    conditions: int = 1,
    claim: Claim = 'per_cell',
    contrast: Contrast = 'all_pairs',
    power: float = 0.8,
    alpha: float = 0.05,
) -> tuple[PlanSize, ...]:
    """One row per design: an interval of +- difference, unpaired and paired tests of it, non-inferiority by it.

    Tests of a difference are sized by the rule that will judge them, over as many strata as it will have. Tests pay
    for their comparisons by Bonferroni; the interval describes each rate alone, at 1 - alpha. `success_rate` is that of
    the worse policy.
    """
    p, d, better = success_rate, difference, better_rate(success_rate, difference)
    shape = {'policies': policies, 'tasks': tasks, 'conditions': conditions}
    strata = _cells(tasks, conditions) if claim == 'overall' else 1
    designs: list[tuple[str, Callable[[float], int], int | None]] = [
        ('interval of each rate (Wilson)', lambda a: wilson_sample_size(d, p, level=1 - a), 1),
        ('unpaired difference',
         lambda a: strata * success_size(p, better, strata=strata, power=power, alpha=a), None),
        ('paired difference (McNemar)', lambda a: pairs_size(d, discordance, power=power, alpha=a), None),
        ('unpaired non-inferiority',
         lambda a: strata * margin_size(p, p, margin=d, strata=strata, power=power, alpha=a), None),
    ]  # fmt: skip
    return tuple(
        plan_size(name, size, **shape, claim=claim, contrast=contrast, alpha=alpha, comparisons=comparisons)
        for name, size, comparisons in designs
    )


def better_rate(worse: float, difference: float) -> float:
    """The success rate of the better policy; an InputError where there is no such rate."""
    better = check_unit('success_rate', worse) + check_open_unit('difference', difference)
    if better > 1 + ROUNDING:
        raise InputError(
            f'the success rate is that of the worse policy: {100 * worse:g} % and {100 * difference:g} points more are '
            f'{100 * better:g} %, which no policy can reach; give a lower rate or a smaller difference'
        )
    return min(better, 1.0)


def _cells(tasks: int, conditions: int) -> int:
    return check_count('tasks', tasks, least=1) * check_count('conditions', conditions, least=1)


# What is usual: rollouts per cell in recent papers, and where a plan stands among them.


@dataclass(frozen=True, slots=True)
class SurveyedPaper:
    """One paper's rollouts per (policy, task) cell; the bounds are None where it gives no number."""

    name: str
    reported: str
    n_low: int | None
    n_high: int | None
    statistics: str
    intervals: bool


@dataclass(frozen=True, slots=True)
class FieldPosition:
    """A plan's rollouts per cell among the surveyed papers that give a number."""

    n: int
    papers_counted: int
    papers_without_number: int
    fewer: tuple[str, ...]
    as_many: tuple[str, ...]
    more: tuple[str, ...]
    median: float

    def __str__(self) -> str:
        counts = {'more than': len(self.fewer), 'as many as': len(self.as_many), 'fewer than': len(self.more)}
        of_all = next((f'{words} all' for words, n in counts.items() if n == self.papers_counted), '')
        others = [f', {words} {n}' for words, n in list(counts.items())[1:] if n and not of_all]
        than = of_all or f'more than {len(self.fewer)} of the'
        return (
            f'{self.n} rollouts per cell: {than} {self.papers_counted} surveyed papers that give a number'
            f'{"".join(others)} (median {self.median:g}; {self.papers_without_number} more papers give none)'
        )


@cache
def read_survey() -> tuple[SurveyedPaper, ...]:
    """The survey of PhAIL's Table 5, in its order."""
    text = resources.files('robotrials.verdict.planning').joinpath('data', 'survey.toml').read_text(encoding='utf-8')
    return tuple(
        SurveyedPaper(
            name=str(row['name']),
            reported=str(row['reported']),
            n_low=row.get('n_low'),
            n_high=row.get('n_high'),
            statistics=str(row['statistics']),
            intervals=bool(row['intervals']),
        )
        for row in tomllib.loads(text)['paper']
    )


def field_position(n: int) -> FieldPosition:
    """Where n rollouts per cell stand: fewer than a paper whose lower bound is above n, more if its upper is below."""
    n = check_count('n', n, least=1)
    bounds = [(p.name, p.n_low, p.n_high) for p in read_survey() if p.n_low is not None and p.n_high is not None]
    return FieldPosition(
        n=n,
        papers_counted=len(bounds),
        papers_without_number=len(read_survey()) - len(bounds),
        fewer=tuple(name for name, _, high in bounds if high < n),
        as_many=tuple(name for name, low, high in bounds if low <= n <= high),
        more=tuple(name for name, low, _ in bounds if low > n),
        median=statistics.median((low + high) / 2 for _, low, high in bounds),
    )


# How long a trial takes on so many workers, how many are worth having, what it costs, and what saturates first.
# Workers are the customers of a closed queueing network: an episode is a delay of its own (host, recording, a policy
# in the worker's process) and visits to what all workers share (policy servers, the driver). Exact mean value analysis
# (Reiser and Lavenberg 1980) gives the throughput of N workers; it assumes exponential service, which is pessimistic
# for the regular service of an inference, so predictions of queues are on the safe side.

WORTH = 0.9  # of the throughput that the bottleneck allows: from here on workers mostly wait
MOST_WORKERS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeDemand:
    """What one episode takes, in seconds on the clock of the wall."""

    host_s: float  # of the host and the loop
    inferences: float
    inference_s: float
    store_s: float  # until the store has acknowledged it
    driver_s: float  # of the one process that hands out slots
    start_s: float = 0.0  # until a worker's host and policies are open, once

    def __post_init__(self) -> None:
        for name in ('host_s', 'inferences', 'inference_s', 'store_s', 'driver_s', 'start_s'):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f'{name} is {getattr(self, name)}, wanted a number >= 0')
        if self.host_s + self.inferences * self.inference_s + self.store_s <= 0:
            raise InputError('an episode takes no time at all; measure it with --measure, or give --episode-s')


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What there is, and what an hour of it costs."""

    most_workers: int
    policy_servers: int = 0  # 0: every worker has the policy in its own process
    batch_speedup: float = 1.0  # how many times as many inferences a second a server gives when it batches
    worker_price: float = 0.0  # per hour
    server_price: float = 0.0  # per hour

    def __post_init__(self) -> None:
        if not 1 <= self.most_workers <= MOST_WORKERS:
            raise InputError(f'most_workers is {self.most_workers}, wanted 1 to {MOST_WORKERS}')
        if self.policy_servers < 0 or not self.batch_speedup >= 1 or self.worker_price < 0 or self.server_price < 0:
            raise InputError('wanted policy_servers >= 0, batch_speedup >= 1 and prices >= 0')


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPoint:
    """A trial on so many workers."""

    workers: int
    wall_s: float
    cost: float
    worker_use: float  # share of its time that a worker does not wait for what is shared
    use: Mapping[str, float] = field(default_factory=dict)  # of each shared thing


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The prediction: every worker count up to the most, the one worth having, and the bottleneck."""

    points: tuple[CapacityPoint, ...]
    best: CapacityPoint
    saturates_first: str  # '': nothing that is shared
    saturates_at: float  # workers; inf if nothing does
    least_wall_s: float  # with any number of workers


def predict_capacity(demand: EpisodeDemand, n_episodes: int, fleet: Fleet) -> Capacity:
    """Wall time and cost of `n_episodes` for 1 to `fleet.most_workers` workers."""
    if n_episodes < 1:
        raise InputError(f'n_episodes is {n_episodes}, wanted >= 1')
    delay_s, shared = _demands(demand, fleet)
    most = min(fleet.most_workers, n_episodes)
    points = [_point(n, x, demand, n_episodes, fleet, delay_s, shared) for n, x in _throughputs(delay_s, shared, most)]
    slowest = max(shared, key=lambda name: shared[name])
    saturates_at = (delay_s + sum(shared.values())) / shared[slowest] if shared[slowest] > 0 else math.inf
    ceiling = min(1 / shared[slowest] if shared[slowest] > 0 else math.inf, most / (delay_s + sum(shared.values())))
    rate = {p.workers: p.workers * p.worker_use / delay_s if delay_s > 0 else ceiling for p in points}
    best = next((p for p in points if rate[p.workers] >= WORTH * ceiling), points[-1])
    is_bound = saturates_at <= most
    return Capacity(
        points=tuple(points),
        best=best,
        saturates_first=slowest if is_bound else '',
        saturates_at=saturates_at,
        least_wall_s=demand.start_s + n_episodes * shared[slowest],
    )


def _demands(demand: EpisodeDemand, fleet: Fleet) -> tuple[float, dict[str, float]]:
    """What an episode takes of its worker, and of each thing that is shared."""
    thinking_s = demand.inferences * demand.inference_s
    delay_s = demand.host_s + demand.store_s
    shared = {'the driver': demand.driver_s}
    if fleet.policy_servers:
        shared['the policy servers'] = thinking_s / (fleet.policy_servers * fleet.batch_speedup)
        # Of several servers a question meets one: the rest of its time is no queue.
        delay_s += max(0.0, thinking_s - shared['the policy servers'])
    else:
        delay_s += thinking_s
    return delay_s, shared


def _throughputs(delay_s: float, shared: Mapping[str, float], most: int) -> list[tuple[int, float]]:
    """Episodes per second of 1 to `most` workers, by exact mean value analysis."""
    queue = dict.fromkeys(shared, 0.0)
    throughputs = []
    for n in range(1, most + 1):
        waits = {name: service * (1 + queue[name]) for name, service in shared.items()}
        rate = n / (delay_s + sum(waits.values()))
        queue = {name: rate * wait for name, wait in waits.items()}
        throughputs.append((n, rate))
    return throughputs


def _point(
    n: int, rate: float, demand: EpisodeDemand, n_episodes: int, fleet: Fleet, delay_s: float,
    shared: Mapping[str, float],
) -> CapacityPoint:  # fmt: skip
    # The last round is not full: on average half a worker's episode is waited for at the end.
    tail_s = (delay_s + sum(shared.values())) * (n - 1) / (2 * n)
    wall_s = demand.start_s + n_episodes / rate + tail_s
    hourly = n * fleet.worker_price + fleet.policy_servers * fleet.server_price
    return CapacityPoint(
        workers=n, wall_s=wall_s, cost=hourly * wall_s / 3600, worker_use=rate * delay_s / n,
        use={name: rate * service for name, service in shared.items()},
    )  # fmt: skip
