"""How long a trial takes on so many workers, how many are worth having, what it costs, and what saturates first.

Workers are the customers of a closed queueing network: an episode is a delay of its own (host, recording, a policy in
the worker's process) and visits to what all workers share (policy servers, the driver). Exact mean value analysis
(Reiser and Lavenberg 1980) gives the throughput of N workers; it assumes exponential service, which is pessimistic
for the regular service of an inference, so predictions of queues are on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from robotrials.errors import InputError

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
    found = []
    for n in range(1, most + 1):
        waits = {name: service * (1 + queue[name]) for name, service in shared.items()}
        rate = n / (delay_s + sum(waits.values()))
        queue = {name: rate * wait for name, wait in waits.items()}
        found.append((n, rate))
    return found


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
