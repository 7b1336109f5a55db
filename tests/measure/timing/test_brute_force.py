"""Everything again by plain loops and full enumeration, sharing no code with the package."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from robotrials.measure.timing import (
    Operations,
    curve_auc,
    logrank,
    macro_ks,
    mtbf,
    rmst,
    scalar_tests,
    success_curve,
    uph_of_rmst,
    uph_of_successes,
)
from robotrials.measure.timing.scalar import auc_draws, hrt_draws, macro_mean, resampled_cells

INF = math.inf
Row = tuple[float, bool]
TAUS_S = (5.0, 10.0, 25.0, 60.0, 240.0)


def random_rows(rng: np.random.Generator, n: int) -> list[Row]:
    """Coarse times, so that ties, jumps exactly at tau, ghosts and censorings at a tie all happen."""
    made = []
    for _ in range(n):
        ghost = rng.random() < 0.15
        made.append((INF, True) if ghost else (10.0 * int(rng.integers(0, 7)), bool(rng.random() < 0.7)))
    return made


def kaplan_meier(rows: Sequence[Row]) -> list[tuple[float, float]]:
    survival, steps = 1.0, []
    for t in sorted({t for t, seen in rows if seen and t < INF}):
        at_risk = sum(x >= t for x, _ in rows)
        survival *= 1 - sum(seen and x == t for x, seen in rows) / at_risk
        steps.append((t, 1 - survival))
    return steps


def chance(steps: Sequence[tuple[float, float]], t: float) -> float:
    return max([0.0, *(f for s, f in steps if s <= t)])


def restricted_mean(steps: Sequence[tuple[float, float]], tau: float) -> float:
    edges = [0.0, *(s for s, _ in steps if s < tau), tau]
    return sum((1 - chance(steps, low)) * (high - low) for low, high in itertools.pairwise(edges))


def as_operations(episodes: Sequence[Sequence[Row]]) -> Operations:
    flat = [(t, seen, k) for k, rows in enumerate(episodes) for t, seen in rows]
    return Operations(*(np.array(column) for column in zip(*flat, strict=True)))


def flat(episodes: Sequence[Sequence[Row]]) -> list[Row]:
    return [row for rows in episodes for row in rows]


@pytest.mark.parametrize('seed', range(40))
def test_curve_and_table_1_at_ties_and_exact_jumps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, int(rng.integers(1, 25)))
    steps = kaplan_meier(rows)
    curve = success_curve([t for t, _ in rows], [seen for _, seen in rows])
    for tau in TAUS_S:
        assert curve.at(tau) == pytest.approx(chance(steps, tau), abs=1e-12)
        mean = restricted_mean(steps, tau)
        assert rmst(curve, tau) == pytest.approx(mean, abs=1e-10)
        missing = 1 - chance(steps, tau)
        assert mtbf(curve, tau) == pytest.approx(mean / missing if missing > 1e-9 else INF)
        assert uph_of_rmst(curve, tau) == pytest.approx(3600 / mean if mean else INF)
        inside = [(0.0, 0.0), *(s for s in steps if s[0] <= tau)]
        moment = sum(t * (f - before) for (_, before), (t, f) in itertools.pairwise(inside))
        if chance(steps, tau) > 0:
            assert uph_of_successes(curve, tau) == pytest.approx(3600 * chance(steps, tau) / moment if moment else INF)
    for level in (0.1, 0.25, 1 / 3, 0.5, 0.75, 0.9):
        assert curve.quantile(level) == next((t for t, f in steps if f >= level - 1e-12), None)


@pytest.mark.parametrize('seed', range(25))
def test_auc_up_to_tau_counts_who_is_left_as_tied(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = (np.where(rng.random(n) < 0.3, INF, rng.integers(1, 6, n).astype(float)) for n in (7, 5))
    brute = np.mean([(i < j and i <= 3) + 0.5 * ((i == j and i <= 3) or (i > 3 and j > 3)) for i in x for j in y])
    curves = [success_curve(t, np.ones(len(t), dtype=bool)) for t in (x, y)]
    assert curve_auc(*curves, tau_s=3.0) == pytest.approx(brute, abs=1e-12)


def logrank_by_loops(a: Sequence[Sequence[Row]], b: Sequence[Sequence[Row]]) -> tuple[float, float, float]:
    """Observed minus expected, Mantel's variance, and the sum over episodes of squared score residuals."""
    arms = [(t, seen, 1.0, ('a', k)) for k, rows in enumerate(a) for t, seen in rows]
    arms += [(t, seen, 0.0, ('b', k)) for k, rows in enumerate(b) for t, seen in rows]
    excess = variance = 0.0
    residual = {episode: 0.0 for *_, episode in arms}
    for u in sorted({t for t, seen, *_ in arms if seen and t < INF}):
        risk = [row for row in arms if row[0] >= u]
        n, n_a = len(risk), sum(z for _, _, z, _ in risk)
        dead = [row for row in risk if row[0] == u and row[1]]
        d = len(dead)
        excess += sum(z for _, _, z, _ in dead) - d * n_a / n
        variance += d * n_a * (n - n_a) * (n - d) / (n * n * (n - 1)) if n > 1 else 0.0
        for t, seen, z, episode in risk:
            residual[episode] += (z - n_a / n) * ((t == u and seen) - d / n)
    return excess, variance, sum(r * r for r in residual.values())


@pytest.mark.parametrize('seed', range(15))
def test_logrank_classical_and_clustered_by_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arms = [{s: [random_rows(rng, int(rng.integers(1, 4))) for _ in range(6)] for s in 'xy'} for _ in range(2)]
    found = logrank(*({s: as_operations(e) for s, e in arm.items()} for arm in arms))
    parts = np.sum([logrank_by_loops(arms[0][s], arms[1][s]) for s in 'xy'], axis=0)
    assert [found.classical.excess, found.classical.variance, found.robust.variance] == pytest.approx(list(parts))


@pytest.mark.parametrize('seed', range(3))
def test_permutation_p_values_by_all_deals_of_clustered_unequal_arms(seed: int) -> None:
    """3 against 4 episodes in each of two strata: all 35 x 35 deals."""
    rng = np.random.default_rng(seed)
    arms = {s: [[random_rows(rng, int(rng.integers(1, 4))) for _ in range(n)] for n in (3, 4)] for s in 'xy'}

    def contrasts(a: Sequence[Sequence[Row]], b: Sequence[Sequence[Row]]) -> tuple[float, float]:
        fa, fb = kaplan_meier(flat(a)), kaplan_meier(flat(b))
        sup = max(abs(chance(fa, t) - chance(fb, t)) for t in range(0, 70, 10))
        return sup, restricted_mean(fa, 50.0) - restricted_mean(fb, 50.0)

    deals = []
    for a, b in arms.values():
        whole = [*a, *b]
        deals.append(
            [contrasts([whole[i] for i in c], [whole[i] for i in range(7) if i not in c])
             for c in itertools.combinations(range(7), 3)]
        )  # fmt: skip
    null = np.array([np.add(one, other) / 2 for one in deals[0] for other in deals[1]])
    sup, gap = np.mean([contrasts(*arms[s]) for s in 'xy'], axis=0)
    cells = [{s: as_operations(arms[s][k]) for s in 'xy'} for k in range(2)]
    n = 20_000
    for rule, add in (('plain', 0), ('plus_one', 1)):
        test = macro_ks(*cells, n_resamples=n, rng=np.random.default_rng(1), rule=rule)
        assert test.statistic == pytest.approx(sup)
        assert test.p_value == (test.n_exceeding + add) / (n + add)
        assert test.p_value == pytest.approx(np.mean(null[:, 0] >= sup - 1e-9), abs=0.016)
    tests = scalar_tests(*cells, tau_s=50.0, n_resamples=n, rng=np.random.default_rng(2))
    assert tests['rmst_s'].difference == pytest.approx(gap)
    assert tests['rmst_s'].p_value == pytest.approx(np.mean(np.abs(null[:, 1]) >= abs(gap) - 1e-9), abs=0.016)


def test_the_published_bootstrap_by_all_resamples_of_clustered_arms() -> None:
    """2 against 3 episodes: all 5^5 pairs of arms drawn with replacement from the pool."""
    rng = np.random.default_rng(4)
    a, b = ([random_rows(rng, int(rng.integers(1, 4))) for _ in range(n)] for n in (2, 3))
    whole = [*a, *b]

    def curve_of(episodes: Sequence[Sequence[Row]]) -> np.ndarray:
        steps = kaplan_meier(flat(episodes))
        return np.array([chance(steps, t) for t in range(0, 70, 10)])

    seen = np.abs(curve_of(a) - curve_of(b)).max()
    arms = [[curve_of([whole[i] for i in c]) for c in itertools.product(range(5), repeat=n)] for n in (2, 3)]
    sups = np.abs(np.array(arms[0])[:, None] - np.array(arms[1])[None]).max(axis=2)
    test = macro_ks(
        {'s': as_operations(a)}, {'s': as_operations(b)}, n_resamples=20_000, rng=rng, method='pooled_bootstrap',
        rule='plain',
    )  # fmt: skip
    assert test.statistic == pytest.approx(seen)
    assert test.p_value == pytest.approx(np.mean(sups >= seen - 1e-9), abs=0.016)
    assert test.null_mean == pytest.approx(sups.mean(), abs=0.01)


def test_scores_against_a_reference_with_each_episode_left_out() -> None:
    """BCa's ingredients: HRT and AUC, mean over strata, and their values with each episode of either side left out."""
    rng = np.random.default_rng(0)
    model, human = (
        {s: as_operations([random_rows(rng, int(rng.integers(1, 4))) for _ in range(n)]) for s in 'xy'} for n in (5, 7)
    )
    ours, theirs = (resampled_cells(cells, n_resamples=2, rng=rng) for cells in (model, human))
    ratio = macro_mean([hrt_draws(ours[s], theirs[s], 50.0) for s in 'xy'])
    area = macro_mean([
        auc_draws(model[s], human[s], seeds=(ours[s].seed, theirs[s].seed), tau_s=50.0, n_resamples=2) for s in 'xy'
    ])  # fmt: skip

    def plain(cells: Mapping[str, Mapping[str, Operations]]) -> tuple[float, float]:
        ratios, areas = [], []
        for s in 'xy':
            x, h = (success_curve(cells[k][s].durations_s, cells[k][s].observed) for k in 'mh')
            ratios.append(rmst(h, 50.0) / rmst(x, 50.0))
            areas.append(curve_auc(x, h, tau_s=50.0))
        return float(np.mean(ratios)), float(np.mean(areas))

    arms = {'m': model, 'h': human}
    assert (ratio.value, area.value) == pytest.approx(plain(arms))
    for place, (found, order) in enumerate(((ratio, 'hm'), (area, 'mh'))):
        left = []
        for s, k in itertools.product('xy', order):
            cell = arms[k][s]
            for e in range(cell.n_episodes):
                rest = cell.take([i for i in range(cell.n_episodes) if i != e])
                left.append(plain({**arms, k: {**arms[k], s: rest}})[place])
        assert found.left_out == pytest.approx(left, abs=1e-12)
