"""Planning against a lifelines loop and vectorised numpy: the whole detection study, threads, and reused bridges."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from bench.measure import Result, Seconds, against, seconds
from bench.timing import Cells, lifelines_null, numpy_macro_ks
from robotrials.measure.timing import cohorts
from robotrials.measure.timing.resample import pair_layout
from robotrials.testing import paper_like_cohort
from robotrials.verdict.planning import DetectionStudy, bridge_power, detection_rate
from robotrials.verdict.planning.power import DETECTION_PER_CELL, subsamples

TRIALS, RESAMPLES, TAU_S = 300, 200, 120.0
NUMPY_TRIALS = 3


def run() -> list[Result]:
    by_policy = cohorts(paper_like_cohort(np.random.default_rng(0)))
    models = {name: dict(c.cells) for name, c in by_policy.items() if not c.is_reference}
    return [*detection(models), *threads(models), *bridges(models)]


def study(
    models: Mapping[str, Cells], count: int | None = None, metrics: tuple[str, ...] = ('ks',), trials: int = TRIALS
) -> DetectionStudy:
    return detection_rate(
        models, rng=np.random.default_rng(0), metrics=metrics, tau_s=TAU_S, n_trials=trials, n_resamples=RESAMPLES,
        method='pooled_bootstrap', threads=count,
    )  # fmt: skip


def detection(models: Mapping[str, Cells]) -> list[Result]:
    from itertools import combinations

    study(models, trials=2)
    ours_s = seconds(lambda: study(models), repeats=2)
    plans = []
    for x, y in combinations(models, 2):
        layout = pair_layout(models[x], models[y], tau_s=TAU_S)
        plans += [
            (layout, subsamples(layout, n, NUMPY_TRIALS, rng=np.random.default_rng(n)), np.full(4, n))
            for n in DETECTION_PER_CELL
        ]
    total = len(plans) * TRIALS * RESAMPLES

    def by_numpy() -> None:
        for layout, units, n in plans:
            for row in units:
                numpy_macro_ks(layout, row, n, n, RESAMPLES)

    def by_lifelines() -> None:
        for layout, units, n in plans:
            lifelines_null(layout, units[0], n, 1)

    numpy_s = seconds(by_numpy, repeats=1) / NUMPY_TRIALS * TRIALS
    lifelines_s = seconds(by_lifelines, repeats=1) * total / len(plans)
    work = f'detection_rate, 6 pairs x 6 N x {TRIALS} x {RESAMPLES}: {total:,} macro-KS, drawing and p-values included'
    every = ('ks', 'rmst_s', 'chance_30s', 'chance_60s')
    study(models, metrics=every, trials=2)
    all_s = seconds(lambda: study(models, metrics=every), repeats=1)
    return [
        against('planning/detection-lifelines', ours_s=ours_s, peer='lifelines loop', peer_s=lifelines_s,
                target=30_000, work=f'{work}; peer extrapolated from {len(plans)} of them'),
        against('planning/detection-numpy', ours_s=ours_s, peer='vectorised numpy', peer_s=numpy_s, target=20,
                work=f'{work}; peer extrapolated from {NUMPY_TRIALS} of {TRIALS} trials'),
        against('planning/detection-four-tests', ours_s=all_s, peer='four numpy passes of KS', peer_s=4 * numpy_s,
                target=20, work='the same with KS, RMST, F(30), F(60); peer is 4 x the KS time above'),
    ]  # fmt: skip


def threads(models: Mapping[str, Cells]) -> list[Result]:
    results: dict[int, DetectionStudy] = {}

    def call(count: int) -> None:
        results[count] = study(models, count)

    taken: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(3):  # in turn, so that what other processes take falls on both
        for count in taken:
            taken[count].append(seconds(partial(call, count), repeats=1))
    if results[1] != results[2]:
        raise AssertionError('results depend on the number of threads')
    return [
        against('planning/two-threads', ours_s=Seconds.of(taken[2]), peer='one thread (our own)',
                peer_s=Seconds.of(taken[1]), target=1.6, work='the whole detection study; results identical')
    ]  # fmt: skip


def bridges(models: Mapping[str, Cells]) -> list[Result]:
    sizes = range(5, 101, 5)

    def power(grid: range | list[int]) -> None:
        bridge_power(models['groot'], models['act'], rng=np.random.default_rng(0), per_cell=list(grid), tau_s=TAU_S)

    power(sizes)
    reused_s = seconds(lambda: power(sizes), repeats=2)
    anew_s = seconds(lambda: power([20]), repeats=2) * len(sizes)
    return [
        against('planning/bridges-reused', ours_s=reused_s, peer='bridges drawn for each N (our own)',
                peer_s=anew_s, target=3,
                work='power at 20 N, 4 strata, 4,000 bridges, N_0.8 with its interval; peer extrapolated from one N')
    ]  # fmt: skip
