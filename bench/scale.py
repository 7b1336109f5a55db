"""What an engine costs per episode, what a second core brings on Ray, and how memory grows with a store."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet

from bench.measure import PEAK_MB, Result, Seconds, against, attempts
from bench.run import stepping_plan
from bench.verbs import rows, verb
from robotrials.record import Episode, Outcome, Store
from robotrials.run import TrialPlan, run_trial
from robotrials.run.component import open_host, open_policy
from robotrials.run.loop import Order, run_episode
from robotrials.run.ray_crew import RayOptions
from robotrials.run.schedule import trial_slots
from robotrials.run.station import setup_of

EPISODE_STEPS = 40
THINK_S = 0.025  # a step: a second an episode, in which it waits, as for a robot or a GPU
EPISODES = 24
SKIPPED = 12  # until every worker is at work, also where starting one takes seconds
ROUNDS = 3
SMALL, LARGE = 30_000, 300_000  # both are read as columns: fewer would be kept as objects
TRAJECTORIES = (1_000, 10_000)

CHILD = (
    PEAK_MB
    + """
import json, sys, time
from robotrials.verdict.analysis import Absent, analyse
from robotrials.record.counted import summarize_stores
began = time.process_time()
if sys.argv[2] == 'summary':
    n = sum(c.n_valid + c.n_invalid for c in summarize_stores([sys.argv[1]]).values())
else:
    analysis = analyse(sys.argv[1], resamples=50)
    asked = {'score': ['ranking', 'success'], 'compare': ['pairs'], 'report': ['pairs'], 'safety': ['safety']}
    if any(isinstance(getattr(analysis, name), Absent) for name in asked[sys.argv[2]]):
        raise SystemExit('an analysis is absent')
    if sys.argv[2] == 'report':
        from robotrials.show.page import render_html
        from robotrials.show.report import trial_document
        render_html(trial_document(analysis))
    n = len(analysis.episodes)
print(json.dumps([n, time.process_time() - began, peak_mb()]))
"""
)


def run() -> Iterator[Result]:
    yield from attempts((_engines, _memory))


def _plan() -> TrialPlan:
    return stepping_plan(episodes=EPISODES, steps=EPISODE_STEPS, think_s=THINK_S)


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
    """Episodes wait most of their time, so a busy machine tells little; rounds take turns, and medians are compared.

    The ratio of an engine is the share of a second-long episode that is left to it: what it costs is the absolute
    difference, which the work says. Two nodes against one shows that workers do not wait for each other.
    """
    with _cluster():
        rounds = [
            {
                'pool': (_pool(2), 0.0), 'local': _engine(2, None), 'ray': _engine(2, RayOptions()),
                'ray alone': _engine(1, RayOptions()),
            }
            for _ in range(ROUNDS)
        ]  # fmt: skip
    wall = {name: Seconds.of([r[name][0] for r in rounds]) for name in rounds[0]}
    own = {name: statistics.median(r[name][1] for r in rounds) for name in rounds[0]}
    size = (
        f'{EPISODES} episodes of {EPISODE_STEPS * THINK_S:g} s, nearly all of it waiting; seconds per episode after '
        f'the first {SKIPPED}, the median of {ROUNDS} rounds that take turns'
    )
    results = [
        against(
            f'scale/{name} engine, two workers', ours_s=wall[name], peer='process pool that writes nothing',
            peer_s=wall['pool'], target=0.9,
            work=f'{size}; {2000 * (wall[name] - wall["pool"]):.0f} ms more for a worker and an episode, with store '
            f'and log; the driver takes {own[name] * 1000:.1f} ms of a processor',
        )
        for name in ('local', 'ray')
    ]  # fmt: skip
    two = against(
        'scale/ray, two nodes',
        ours_s=wall['ray'],
        peer='one node (our own)',
        peer_s=wall['ray alone'],
        target=1.7,
        work=size,
    )
    return [*results, two]


def _synthetic(path: Path, n: int) -> None:
    table = path.with_suffix('.parquet')
    pyarrow.parquet.write_table(rows(n, policies=4, tasks=7), table)
    subprocess.run([sys.executable, *verb('import', table, '--to', path)], capture_output=True, check=True)


def _with_trajectories(path: Path, n: int) -> None:
    from tests.measure.safety.scene import lifted

    store, steps = Store.create(path), lifted(100)
    for first in range(0, n, 500):
        made = [
            Episode(
                policy=f'p{k % 2}', task='task_4', benchmark='libero-10', seed=k // 2, duration_s=5.0,
                outcome=Outcome.SUCCESS if k % 3 else Outcome.FAILURE,
            )
            for k in range(first, first + 500)
        ]  # fmt: skip
        store.append(made, trajectories={e.key: steps for e in made})


def _memory() -> Iterator[Result]:
    """Bytes for each further episode, between a store and one of ten times as many: what a process starts with is out.

    The ratio is the bytes per episode that are allowed over those measured.
    """
    with tempfile.TemporaryDirectory() as folder:
        for n in (SMALL, LARGE):
            _synthetic(Path(folder) / str(n), n)
        for n in TRAJECTORIES:
            _with_trajectories(Path(folder) / str(n), n)
        for what, sizes, aim in (
            ('summary', (SMALL, LARGE), 50.0), ('score', (SMALL, LARGE), 500.0), ('compare', (SMALL, LARGE), 500.0),
            ('report', (SMALL, LARGE), 500.0), ('safety', TRAJECTORIES, 3000.0),
        ):  # fmt: skip
            measured = {n: _child(Path(folder) / str(n), what, n) for n in sizes}
            (few, (_, few_mb)), (many, (_, many_mb)) = measured.items()
            each = max((many_mb - few_mb) * 2**20 / (many - few), 1.0)
            work = ', '.join(
                f'{n:,} episodes: {s:.0f} s of a processor, {mb:.0f} MB' for n, (s, mb) in measured.items()
            )
            of = ' with trajectories' if what == 'safety' else ''
            yield against(
                f'scale/memory of {what}{of}', ours_s=each, peer=f'a limit of {aim:.0f} bytes', peer_s=aim, target=1.0,
                work=f'bytes for each further episode; {work}', unit='B',
            )  # fmt: skip


def _child(store: Path, what: str, n: int) -> tuple[float, float]:
    """Processor seconds and peak memory (MB) in a process of its own."""
    done = subprocess.run(
        [sys.executable, '-c', CHILD, str(store), what], capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    counted, took_s, peak_mb = json.loads(done)
    if counted != n:
        raise RuntimeError(f'{counted} episodes of {n} in the {what}')
    return float(took_s), float(peak_mb)
