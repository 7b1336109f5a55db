"""The capacity model against closed forms and a simulation that knows nothing of it."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robotrials.errors import InputError
from robotrials.verdict.planning.plan_size import EpisodeDemand, Fleet, predict_capacity


def demand(**changes: float) -> EpisodeDemand:
    values = {'host_s': 20.0, 'inferences': 100.0, 'inference_s': 0.05, 'store_s': 0.1, 'driver_s': 0.0, **changes}
    return EpisodeDemand(**values)


def simulated_wall_s(workers: int, *, delay_s: float, service_s: float, n_episodes: int, seed: int) -> float:
    """One shared first-come-first-served server, exponential times, event by event."""
    rng = np.random.default_rng(seed)
    arrivals = [(float(rng.exponential(delay_s)), n) for n in range(workers)]
    heapq.heapify(arrivals)
    free_s = end_s = 0.0
    for _ in range(n_episodes):
        at_s, worker = heapq.heappop(arrivals)
        free_s = max(free_s, at_s) + float(rng.exponential(service_s))
        end_s = max(end_s, free_s)
        heapq.heappush(arrivals, (free_s + float(rng.exponential(delay_s)), worker))
    return end_s


@pytest.mark.parametrize('workers', [1, 4, 12, 40])
def test_shared_servers_are_predicted_as_simulated(workers: int) -> None:
    found = predict_capacity(demand(store_s=0.0), 4000, Fleet(most_workers=workers, policy_servers=1)).points[-1]
    walls = [simulated_wall_s(workers, delay_s=20.0, service_s=5.0, n_episodes=4000, seed=s) for s in range(4)]
    assert found.wall_s == pytest.approx(float(np.mean(walls)), rel=0.05)


def test_without_anything_shared_twice_the_workers_take_half_the_time() -> None:
    points = predict_capacity(demand(), 64_000, Fleet(most_workers=64)).points
    assert points[0].wall_s == pytest.approx(64_000 * 25.1)
    assert points[63].wall_s == pytest.approx(points[0].wall_s / 64, rel=0.001)


def test_what_saturates_first_is_named_with_where() -> None:
    servers = predict_capacity(demand(driver_s=0.006), 10_000, Fleet(most_workers=200, policy_servers=2))
    assert servers.saturates_first == 'the policy servers'
    assert servers.saturates_at == pytest.approx(25.106 / 2.5, rel=0.001)
    assert servers.best.workers < 40
    driver = predict_capacity(demand(inferences=0.0, host_s=1.0, driver_s=0.006), 10_000, Fleet(most_workers=2000))
    assert driver.saturates_first == 'the driver'
    assert driver.least_wall_s == pytest.approx(60.0)
    free = predict_capacity(demand(driver_s=0.006), 10_000, Fleet(most_workers=16))
    assert (free.saturates_first, free.best.workers) == ('', 15)


@given(
    host_s=st.floats(0.1, 100), inferences=st.floats(0, 500), inference_s=st.floats(0, 1), driver_s=st.floats(0, 0.1),
    servers=st.integers(0, 5), speedup=st.floats(1, 8), most=st.integers(1, 60),
)  # fmt: skip
def test_no_prediction_beats_what_is_possible(
    host_s: float, inferences: float, inference_s: float, driver_s: float, servers: int, speedup: float, most: int
) -> None:
    asked = demand(host_s=host_s, inferences=inferences, inference_s=inference_s, driver_s=driver_s)
    fleet = Fleet(most_workers=most, policy_servers=servers, batch_speedup=speedup, worker_price=1.0)
    found = predict_capacity(asked, 500, fleet)
    walls = [p.wall_s for p in found.points]
    assert all(p.wall_s >= 0.999 * 500 * host_s / p.workers for p in found.points)
    assert all(w >= found.least_wall_s * 0.999 for w in walls)
    assert all(0 <= share <= 1 + 1e-9 for p in found.points for share in (p.worker_use, *p.use.values()))
    assert found.best in found.points
    assert all(math.isfinite(p.cost) and p.cost > 0 for p in found.points)


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match='no time at all'):
        demand(host_s=0.0, inferences=0.0, store_s=0.0)
    with pytest.raises(InputError, match='host_s'):
        demand(host_s=-1.0)
    with pytest.raises(InputError, match='most_workers'):
        Fleet(most_workers=0)
