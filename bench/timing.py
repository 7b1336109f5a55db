"""Timing against a lifelines loop and vectorised numpy, on one paper-like cohort.

The lifelines loop is far too slow to run whole: a sample of its fits is timed and extrapolated, and `work` says so.
Vectorised numpy is weights (resamples, operations) and cumulative products over the sorted times, which is how the
kernels would be written without a compiler; for the detection study it too is timed on a sample of trials.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from lifelines import KaplanMeierFitter
from lifelines.utils import restricted_mean_survival_time

from bench.measure import Result, Seconds, against, seconds
from robotrials.measure.timing import NullMethod, Operations, cohorts, macro_ks, success_curve
from robotrials.measure.timing.curve_test import macro_ks_trials
from robotrials.measure.timing.resample import PairLayout, pair_layout
from robotrials.measure.timing.scalar import macro_mean, ratio, resampled_cells
from robotrials.testing import paper_like_cohort
from robotrials.verdict.planning import null_calibration

TAU_S = 240.0
RESAMPLES = 1000
FAR_S = 1e9
Cells = Mapping[str, Operations]


def run() -> list[Result]:
    by_policy = cohorts(paper_like_cohort(np.random.default_rng(0)))
    reference, models = by_policy['human'].cells, {n: c.cells for n, c in by_policy.items() if n != 'human'}
    return [
        *headline(models, reference),
        *one_test(models['groot'], models['act']),
        *detection(models),
        *calibration(by_policy),
        *threads(models),
        agreement(models),
    ]


def headline(models: Mapping[str, Cells], reference: Cells) -> list[Result]:
    def ours() -> None:
        rng = np.random.default_rng(0)
        anchors = {s: c.rmst(TAU_S) for s, c in resampled_cells(reference, n_resamples=RESAMPLES, rng=rng).items()}
        for cells in models.values():
            own = resampled_cells(cells, n_resamples=RESAMPLES, rng=rng)
            draws = {s: c.rmst(TAU_S) for s, c in own.items()}
            macro_mean([ratio(anchors[s], draws[s]) for s in draws])

    every = [c for cells in (*models.values(), reference) for c in cells.values()]

    def by_numpy() -> None:
        rng = np.random.default_rng(0)
        drawn = [numpy_rmst(c, rng, RESAMPLES) for c in every]
        for k in range(len(models)):
            np.mean([drawn[-4 + j] / drawn[4 * k + j] for j in range(4)], axis=0)

    ours()
    ours_s = seconds(ours, repeats=10)
    sample = 40
    lifelines_s = seconds(lambda: lifelines_rmst(every, sample), repeats=1) / sample * RESAMPLES
    work = '16 model + 4 reference cells x 1,000 clustered resamples, RMST + HRT'
    return [
        against('timing/headline-lifelines', ours_s=ours_s, peer='lifelines loop', peer_s=lifelines_s, target=10_000,
                work=f'{work}; peer extrapolated from {sample} resamples'),
        against('timing/headline-numpy', ours_s=ours_s, peer='vectorised numpy', peer_s=seconds(by_numpy, repeats=4),
                target=15, work=work),
    ]  # fmt: skip


def one_test(a: Cells, b: Cells) -> list[Result]:
    def ours() -> None:
        macro_ks(a, b, n_resamples=RESAMPLES, rng=np.random.default_rng(0), method=NullMethod.POOLED_BOOTSTRAP)

    layout = pair_layout(a, b)
    units = layout.own_units()[0]
    ours()
    ours_s = seconds(ours, repeats=10)
    sample = 25
    lifelines_s = seconds(lambda: lifelines_macro_ks(a, b, sample), repeats=1) / sample * RESAMPLES
    numpy_s = seconds(lambda: numpy_macro_ks(layout, units, layout.n_a, layout.n_b, RESAMPLES), repeats=4)
    work = 'one macro-KS test, 4 cells, 1,000 pooled resamples'
    return [
        against('timing/macro-ks-lifelines', ours_s=ours_s, peer='lifelines loop', peer_s=lifelines_s, target=10_000,
                work=f'{work}; peer extrapolated from {sample} resamples'),
        against('timing/macro-ks-numpy', ours_s=ours_s, peer='vectorised numpy', peer_s=numpy_s, target=15, work=work),
    ]  # fmt: skip


def detection(models: Mapping[str, Cells]) -> list[Result]:
    from itertools import combinations

    sizes, outer, inner = (5, 10, 15, 20, 25, 30), 300, 200
    layouts = [pair_layout(models[x], models[y], tau_s=120.0) for x, y in combinations(models, 2)]
    plans = [
        (lay, subsamples(lay, n, outer, np.random.default_rng(n)), np.full(4, n)) for lay in layouts for n in sizes
    ]

    def ours() -> None:
        for lay, units, n in plans:
            macro_ks_trials(
                lay, units, n_a=n, n_b=n, n_resamples=inner, rng=np.random.default_rng(0), method='pooled_bootstrap'
            )

    ours_s = seconds(ours, repeats=2)
    total = len(plans) * outer * inner
    trials = 3

    def by_numpy() -> None:
        for lay, units, n in plans:
            for row in units[:trials]:
                numpy_macro_ks(lay, row, n, n, inner)

    numpy_s = seconds(by_numpy, repeats=1) / trials * outer

    def by_lifelines() -> None:
        for lay, units, n in plans:
            lifelines_null(lay, units[0], n, 1)

    lifelines_s = seconds(by_lifelines, repeats=1) * total / len(plans)
    work = f'6 pairs x 6 N x 300 x 200: {total:,} macro-KS'
    return [
        against('timing/detection-lifelines', ours_s=ours_s, peer='lifelines loop', peer_s=lifelines_s, target=30_000,
                work=f'{work}; peer extrapolated from {len(plans)} of them'),
        against('timing/detection-numpy', ours_s=ours_s, peer='vectorised numpy', peer_s=numpy_s, target=20,
                work=f'{work}; peer extrapolated from {trials} of 300 trials'),
    ]  # fmt: skip


def calibration(found: Mapping[str, object]) -> list[Result]:
    chosen = {n: c for n, c in found.items() if n in ('groot', 'openpi')}

    def ours() -> None:
        null_calibration(
            chosen, rng=np.random.default_rng(0), setups=['permutation'], n_trials=500, n_resamples=500,
            method='pooled_bootstrap',
        )  # type: ignore[arg-type]  # fmt: skip

    ours()
    a, b = chosen['groot'].cells, chosen['openpi'].cells  # type: ignore[attr-defined]
    sample = 12
    lifelines_s = seconds(lambda: lifelines_macro_ks(a, b, sample), repeats=1) / sample * 500 * 501
    return [
        against('timing/calibration-lifelines', ours_s=seconds(ours, repeats=2), peer='lifelines loop',
                peer_s=lifelines_s, target=10_000,
                work=f'null calibration of one pair, 500 trials x 500 resamples; peer extrapolated from {sample}')
    ]  # fmt: skip


def threads(models: Mapping[str, Cells]) -> list[Result]:
    layout = pair_layout(models['groot'], models['act'])
    units = np.repeat(layout.own_units(), 400, axis=0)
    results = {}

    def call(count: int) -> None:
        results[count] = macro_ks_trials(
            layout, units, n_a=layout.n_a, n_b=layout.n_b, n_resamples=500, rng=np.random.default_rng(0), threads=count
        ).null

    taken: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(6):  # in turn, so that what other processes take falls on both
        for count in taken:
            taken[count].append(seconds(partial(call, count), repeats=1))
    if not np.array_equal(results[1], results[2]):
        raise AssertionError('results depend on the number of threads')
    return [
        against('timing/two-threads', ours_s=Seconds.of(taken[2]), peer='one thread (our own)',
                peer_s=Seconds.of(taken[1]), target=1.6, work='200,000 macro-KS; results identical')
    ]  # fmt: skip


def agreement(models: Mapping[str, Cells]) -> Result:
    """The largest difference from lifelines, ties and infinities included, as a ratio to the 1e-12 allowed."""
    largest = 0.0
    grid = np.linspace(0, 300, 301)
    for cells in models.values():
        for cell in cells.values():
            coarse = np.ceil(cell.durations_s / 5) * 5
            for times in (cell.durations_s, coarse):
                finite = np.isfinite(times)
                fit = KaplanMeierFitter().fit(np.where(finite, times, FAR_S), cell.observed & finite)
                theirs = 1.0 - fit.survival_function_at_times(grid).to_numpy()
                largest = max(largest, float(np.max(np.abs(success_curve(times, cell.observed).at(grid) - theirs))))
    return Result(
        'timing/agreement-lifelines', largest, 'lifelines', 1e-12, 1e-12 / max(largest, 1e-300), 1.0,
        f'largest difference of F {largest:.1e}, ties and infinities included', unit='',
    )  # fmt: skip


def subsamples(layout: PairLayout, n: int, outer: int, rng: np.random.Generator) -> np.ndarray:
    """(outer, units): n episodes a cell, with replacement."""
    columns = []
    for n_a, n_b in zip(layout.n_a, layout.n_b, strict=True):
        columns += [rng.integers(0, n_a, (outer, n)), n_a + rng.integers(0, n_b, (outer, n))]
    return np.concatenate(columns, axis=1).astype(np.int32)


def lifelines_fit(times: np.ndarray, observed: np.ndarray) -> KaplanMeierFitter:
    finite = np.isfinite(times)
    return KaplanMeierFitter().fit(np.where(finite, times, FAR_S), observed & finite)


def lifelines_rmst(cells: list[Operations], n_resamples: int) -> None:
    rng = np.random.default_rng(0)
    for cell in cells:
        rows = [np.flatnonzero(cell.cluster == e) for e in range(cell.n_episodes)]
        for _ in range(n_resamples):
            picked = np.concatenate([rows[e] for e in rng.integers(0, len(rows), len(rows))])
            restricted_mean_survival_time(lifelines_fit(cell.durations_s[picked], cell.observed[picked]), t=TAU_S)


def lifelines_distance(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> float:
    grid = np.union1d(a[0][np.isfinite(a[0])], b[0][np.isfinite(b[0])])
    chance_a, chance_b = (lifelines_fit(*x).survival_function_at_times(grid).to_numpy() for x in (a, b))
    return float(np.max(np.abs(chance_a - chance_b)))


def lifelines_macro_ks(a: Cells, b: Cells, n_resamples: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(n_resamples):
        for s in a:
            times = np.concatenate([a[s].durations_s, b[s].durations_s])
            seen = np.concatenate([a[s].observed, b[s].observed])
            cluster = np.concatenate([a[s].cluster, b[s].cluster + a[s].n_episodes])
            rows = [np.flatnonzero(cluster == e) for e in range(a[s].n_episodes + b[s].n_episodes)]
            arms = []
            for size in (a[s].n_episodes, b[s].n_episodes):
                picked = np.concatenate([rows[e] for e in rng.integers(0, len(rows), size)])
                arms.append((times[picked], seen[picked]))
            lifelines_distance(arms[0], arms[1])


def lifelines_null(layout: PairLayout, units: np.ndarray, n: np.ndarray, n_resamples: int) -> None:
    rng = np.random.default_rng(0)
    start = 0
    for s in range(len(layout.strata)):
        ops = slice(layout.op_offsets[s], layout.op_offsets[s + 1])
        times, cluster, event = layout.times_s[ops], layout.cluster[ops], layout.event[ops].astype(bool)
        own = units[start : start + 2 * n[s]]
        start += 2 * n[s]
        for _ in range(n_resamples):
            arms = []
            for _ in range(2):
                picked = np.concatenate([np.flatnonzero(cluster == e) for e in rng.choice(own, n[s])])
                arms.append((times[picked], event[picked]))
            if all(len(arm[0]) for arm in arms):
                lifelines_distance(arms[0], arms[1])


def numpy_rmst(cell: Operations, rng: np.random.Generator, n_resamples: int) -> np.ndarray:
    """(n_resamples,) clustered RMST by weights and cumulative products."""
    finite = np.isfinite(cell.durations_s)
    order = np.lexsort((~cell.observed[finite], cell.durations_s[finite]))
    times, event, cluster = (x[finite][order] for x in (cell.durations_s, cell.observed, cell.cluster))
    counts = numpy_counts(rng, cell.n_episodes, cell.n_episodes, n_resamples)
    total = counts @ np.bincount(cell.cluster, minlength=cell.n_episodes)
    survival = numpy_survival(counts[:, cluster], event, total)
    inside = times <= TAU_S
    edges = np.concatenate([[0.0], times[inside], [TAU_S]])
    steps = np.concatenate([np.ones((n_resamples, 1)), survival[:, inside]], axis=1)
    return np.asarray(steps @ np.diff(edges))


def numpy_survival(weight: np.ndarray, event: np.ndarray, total: np.ndarray) -> np.ndarray:
    left = np.cumsum(weight, axis=1)
    at_risk = total[:, None] - left + weight
    return np.cumprod(1.0 - np.where(event, weight, 0) / np.maximum(at_risk, 1), axis=1)


def numpy_counts(rng: np.random.Generator, n_from: int, size: int, n_resamples: int) -> np.ndarray:
    drawn = rng.integers(0, n_from, (n_resamples, size)) + np.arange(n_resamples)[:, None] * n_from
    return np.bincount(drawn.ravel(), minlength=n_resamples * n_from).reshape(n_resamples, n_from)


def numpy_macro_ks(layout: PairLayout, units: np.ndarray, n_a: np.ndarray, n_b: np.ndarray, n_resamples: int) -> None:
    """The pooled-resample null of one arrangement, all resamples of a stratum at once."""
    rng = np.random.default_rng(0)
    total, start = np.zeros(n_resamples), 0
    for s in range(len(layout.strata)):
        own = units[start : start + n_a[s] + n_b[s]]
        start += n_a[s] + n_b[s]
        ops = slice(layout.op_offsets[s], layout.op_offsets[s + 1])
        sizes = layout.sizes[layout.episode_offsets[s] : layout.episode_offsets[s + 1]]
        chosen, place = np.unique(own, return_inverse=True)
        kept = np.isin(layout.cluster[ops], chosen)
        cluster = np.searchsorted(chosen, layout.cluster[ops][kept])
        event, rank = layout.event[ops][kept].astype(bool), layout.rank[ops][kept]
        ends = np.append(np.diff(rank) != 0, True)
        curves = []
        for size in (n_a[s], n_b[s]):
            by_unit = numpy_counts(rng, len(own), size, n_resamples)
            counts = np.stack([by_unit[:, place == k].sum(axis=1) for k in range(len(chosen))], axis=1)
            curves.append(numpy_survival(counts[:, cluster], event, counts @ sizes[chosen]))
        total += np.max(np.abs(curves[0] - curves[1])[:, ends], axis=1) / len(layout.strata)
