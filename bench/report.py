"""A whole report of a large store, against one pass of reading its tables."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from bench.measure import Result, against, seconds
from robotrials.record import Episode, Outcome, Store, read_store
from robotrials.show.page import render_html
from robotrials.show.report import trial_document
from robotrials.verdict.analysis import analyse

POLICIES, TASKS, EPISODES = 8, 40, 10_000
MOST_BYTES = 5_000_000


def large_store(path: Path) -> Store:
    """10,000 episodes of 8 policies on 40 tasks: successes in lognormal times, timeouts and failures."""
    rng = np.random.default_rng(0)
    episodes = []
    for i in range(EPISODES):
        k, t = i % POLICIES, (i // POLICIES) % TASKS
        time_s = float(rng.lognormal(2.8 + 0.02 * t - 0.03 * k, 0.5))
        success = bool(rng.random() < 0.5 + 0.05 * k - 0.01 * (t % 10) and time_s < 60)
        outcome = Outcome.SUCCESS if success else (Outcome.TIMEOUT if rng.random() < 0.7 else Outcome.FAILURE)
        ended_s = time_s if success else 60.0 if outcome is Outcome.TIMEOUT else float(rng.uniform(5, 60))
        episodes.append(
            Episode(
                policy=f'policy {k}', task=f'task_{t:02}', stratum=f'task_{t:02}', benchmark='suite', success=success,
                outcome=outcome, duration_s=ended_s, time_cap_s=60.0, seed=i // (POLICIES * TASKS),
            )
        )  # fmt: skip
    store = Store.create(path)
    store.append(episodes)
    return store


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        path = large_store(Path(folder) / 'store').path

        def ours() -> str:
            return render_html(trial_document(analyse(read_store(path))))

        def peer() -> object:
            return list(read_store(path).episodes())

        page = ours()
        ours_s, peer_s = seconds(ours), seconds(peer, repeats=5)
        size = len(page.encode())
    work = (
        f'{EPISODES:,} episodes, {POLICIES} policies, {TASKS} tasks: store to HTML, 2,000 resamples, compiled kernels '
        f'warm; a ratio of 1/20 is the target; the file has {size / 1e6:.1f} MB'
    )
    size_work = 'the same report as one HTML file; bytes, not seconds, against the largest size wanted'
    return [
        against(
            'report/html', ours_s=ours_s, peer='one pass of reading the tables', peer_s=peer_s, target=1 / 20, work=work
        ),
        against('report/size', ours_s=size, peer='5 MB', peer_s=MOST_BYTES, target=1.0, work=size_work),
    ]
