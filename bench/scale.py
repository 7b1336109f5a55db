"""What an engine costs per episode, what a second core brings on Ray, and how memory grows with a store."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Result, against
from bench.run import stepping_plan
from trialist.episodes import Episode, Outcome, Store
from trialist.run import Order, TrialPlan, run_episode, run_trial, trial_slots
from trialist.run.component import open_host, open_policy
from trialist.run.ray_crew import RayOptions
from trialist.run.station import setup_of

EPISODE_STEPS = 400
EPISODES = 40
SKIPPED = 6  # until every worker is at work
SMALL, LARGE = 100_000, 1_000_000
BATCH = 50_000

CHILD = """
import resource, sys, time
from trialist.episodes.cell_summary import summarize_stores
began = time.perf_counter()
cells = summarize_stores([sys.argv[1]])
took = time.perf_counter() - began
print(sum(c.n_valid + c.n_invalid for c in cells.values()), took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def run() -> list[Result]:
    return [*_engines(), *_memory()]


def _plan() -> TrialPlan:
    return stepping_plan(episodes=EPISODES, steps=EPISODE_STEPS)


_warm: dict[str, Any] = {}


def _bare_episode(number: int) -> float:
    """One episode in a process of the pool, with its host and policies kept, and nothing written."""
    plan = _warm.setdefault('plan', _plan())
    slot = _warm.setdefault('slots', trial_slots(plan))[number]
    host = _warm.setdefault('host', open_host(plan.host))
    policy = _warm.setdefault(slot.policy, open_policy(plan.policies[slot.policy]))
    order = Order(time_cap_s=slot.cell.time_cap_s, policy_seed=0, recording=plan.recording)
    run_episode(host, policy, setup_of(slot), order=order)
    return time.monotonic()


def _each_s(moments: list[float]) -> float:
    return (moments[-1] - moments[SKIPPED - 1]) / (len(moments) - SKIPPED)


def _pool(workers: int) -> float:
    with multiprocessing.get_context('spawn').Pool(workers) as pool:
        return _each_s(list(pool.imap_unordered(_bare_episode, range(EPISODES))))


def _engine(workers: int, ray: RayOptions | None) -> tuple[float, float]:
    """Seconds per episode, and of these the driver's own on a processor, which a busy machine does not change."""
    with tempfile.TemporaryDirectory() as folder:
        moments: list[float] = []
        own: list[float] = []

        def note(_: object) -> None:
            moments.append(time.monotonic())
            own.append(time.process_time())

        run_trial(_plan(), Path(folder) / 's', workers=workers, ray=ray, report=note)
        return _each_s(moments), _each_s(own)


@contextlib.contextmanager
def _cluster() -> Iterator[None]:
    """Two nodes of one core; the tests' way, because a lone node would start processes at will."""
    os.environ['RAY_USAGE_STATS_ENABLED'] = '0'
    import ray
    from ray.cluster_utils import Cluster

    small = {'object_store_memory': 80 << 20, 'include_dashboard': False}
    cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 0, **small})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, **small)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def _engines() -> list[Result]:
    bare_s, (local_s, local_own_s) = _pool(2), _engine(2, None)
    with _cluster():
        (ray_two_s, ray_own_s), (ray_one_s, _) = _engine(2, RayOptions()), _engine(1, RayOptions())
    size = f'{EPISODES} episodes of {EPISODE_STEPS} steps, seconds per episode after the first {SKIPPED}'
    results = [
        against(
            f'scale/{name} engine, two workers', ours_s=ours_s, peer='process pool that writes nothing', peer_s=bare_s,
            target=0.7, work=f'{size}, store and log included; the driver takes {own_s * 1000:.1f} ms of these',
        )
        for name, ours_s, own_s in (('local', local_s, local_own_s), ('ray', ray_two_s, ray_own_s))
    ]  # fmt: skip
    two = against('scale/ray, two nodes', ours_s=ray_two_s, peer='one node', peer_s=ray_one_s, target=1.7, work=size)
    return [*results, two]


def _synthetic(path: Path, n: int) -> None:
    store = Store.create(path)
    rng = np.random.default_rng(0)
    outcomes = (Outcome.SUCCESS, Outcome.FAILURE, Outcome.TIMEOUT)
    for first in range(0, n, BATCH):
        kinds, times_s = rng.integers(0, 3, BATCH).tolist(), rng.lognormal(3, 1, BATCH).tolist()
        store.append(
            Episode(
                policy=f'p{i % 4}', task=f't{i % 7}', outcome=outcomes[kinds[i]], duration_s=times_s[i], seed=first + i
            )
            for i in range(BATCH)
        )


def _memory() -> list[Result]:
    """The ratio is of bytes: what the small store takes over what one of ten times as many episodes does."""
    found = {}
    for n in (SMALL, LARGE):
        with tempfile.TemporaryDirectory() as folder:
            _synthetic(Path(folder) / 's', n)
            told = subprocess.run(
                [sys.executable, '-c', CHILD, f'{folder}/s'], capture_output=True, text=True, check=True
            ).stdout.split()
            if int(told[0]) != n:
                raise RuntimeError(f'{told[0]} episodes summed up of {n}')
            found[n] = float(told[1]), int(told[2]) / 1024
    work = ', '.join(f'{n:,} episodes: {s:.1f} s, {mb:.0f} MB at the most' for n, (s, mb) in found.items())
    return [
        Result(
            'scale/memory of a summary, ten times the episodes', found[LARGE][0], 'a tenth of the episodes',
            found[SMALL][0], found[SMALL][1] / found[LARGE][1], 0.7, work,
        )
    ]  # fmt: skip
