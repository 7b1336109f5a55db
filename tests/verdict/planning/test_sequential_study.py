"""How the sequential tests do beside a fixed-N Barnard test and a group-sequential z-test: error, power, mean N.

The horizon of 200 rollouts a policy and the error of 0.05 are those of STEP (Snyder et al., RSS 2025); its test is
one-sided, so that the comparison is with two-sided tests at 0.10. `-s` prints the tables.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from robotrials.stats import barnard_region
from robotrials.stats.proportion import region_chance
from robotrials.verdict.planning import group_sequential
from robotrials.verdict.planning.betting import betting_prior, walk_bounds

HORIZON = 200
NULLS = ((0.1, 0.1), (0.5, 0.5), (0.9, 0.9))
ALTERNATIVES = ((0.55, 0.45), (0.6, 0.45), (0.65, 0.45), (0.75, 0.45), (0.95, 0.85), (0.25, 0.05))


def by_betting(a: np.ndarray, b: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    d = a.astype(int) - b.astype(int)
    prior = betting_prior(alpha / 2, horizon=HORIZON)
    best = np.zeros(d.shape)
    for signed in (d, -d):
        capital = np.zeros(d.shape)
        for share, weight in zip(prior.shares, prior.weights, strict=True):
            capital += weight * np.cumprod(1 + share * signed, axis=1)
        best = np.maximum(best, capital)
    return first_crossing(best >= 2 / alpha)


def by_sign_walk(a: np.ndarray, b: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    d = a.astype(int) - b.astype(int)
    crossed = np.zeros(d.shape, dtype=bool)
    for row, signs in enumerate(d):
        at = np.flatnonzero(signs)
        crossed[row, at] = np.abs(np.cumsum(signs[at])) >= walk_bounds(at + 1, horizon=HORIZON, alpha=alpha)
    return first_crossing(crossed)


def by_group_sequential(a: np.ndarray, b: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Five looks, O'Brien-Fleming bounds, pooled z."""
    design = group_sequential(5, alpha=alpha)
    at = np.arange(1, 6) * HORIZON // 5
    x, y = np.cumsum(a, axis=1)[:, at - 1], np.cumsum(b, axis=1)[:, at - 1]
    mean = (x + y) / (2 * at)
    spread = np.sqrt(2 * mean * (1 - mean) / at)
    z = np.divide(x / at - y / at, spread, out=np.zeros(x.shape), where=spread > 0)
    rejected, look = first_crossing(np.abs(z) >= design.bounds)
    return rejected, np.where(rejected, at[np.minimum(look, 5) - 1], HORIZON)


def first_crossing(crossed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rejected = crossed.any(axis=1)
    return rejected, np.where(rejected, crossed.argmax(axis=1) + 1, crossed.shape[1])


METHODS = {'betting': by_betting, 'sign walk': by_sign_walk, 'group-sequential': by_group_sequential}


def simulate(pairs: tuple[tuple[float, float], ...], trials: int, alpha: float) -> dict[str, list[tuple[float, float]]]:
    """(share decided, mean rollouts a policy) of each method at each pair of rates; and Barnard's exact power."""
    rng = np.random.default_rng(2025)
    region = barnard_region(HORIZON, HORIZON, alpha=alpha)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in [*METHODS, 'Barnard']}
    for pa, pb in pairs:
        a, b = rng.random((trials, HORIZON)) < pa, rng.random((trials, HORIZON)) < pb
        for name, method in METHODS.items():
            rejected, n = method(a, b, alpha)
            found[name].append((float(rejected.mean()), float(n.mean())))
        chance = region_chance(region, np.array([pa]), np.array([pb]))[0]
        found['Barnard'].append((float(chance), float(HORIZON)))
    return found


def show(title: str, pairs: tuple[tuple[float, float], ...], found: dict[str, list[tuple[float, float]]]) -> None:
    print(f'\n{title}')
    for name, row in found.items():
        print(f'  {name:17s}', *(f'{p}: {share:.3f} N={n:5.1f} ' for p, (share, n) in zip(pairs, row, strict=True)))


@pytest.mark.study
@pytest.mark.parametrize('alpha', [0.05, 0.10])
def test_error_power_and_mean_rollouts_at_steps_horizon(alpha: float) -> None:
    trials = 4000
    nulls = simulate(NULLS, trials, alpha)
    show(f'equal policies, alpha {alpha}, {trials} trials', NULLS, nulls)
    noise = 3 * math.sqrt(alpha * (1 - alpha) / trials)
    for name in ('betting', 'sign walk'):
        assert max(share for share, _ in nulls[name]) <= alpha + noise
    found = simulate(ALTERNATIVES, trials // 2, alpha)
    show(f'different policies, alpha {alpha}, {trials // 2} trials', ALTERNATIVES, found)
    for k in range(len(ALTERNATIVES)):
        assert found['sign walk'][k][0] > found['Barnard'][k][0] - 0.12
        assert found['sign walk'][k][1] < HORIZON
        assert found['betting'][k][1] < HORIZON


def test_sequential_tests_save_rollouts_where_barnard_is_sure_to_win() -> None:
    """80 % against 45 %: Barnard with 200 rollouts a policy has power over 0.999, and needs all of them."""
    found = simulate(((0.8, 0.45),), 100, 0.05)
    assert found['Barnard'][0][0] > 0.999
    for name in METHODS:
        assert found[name][0][0] > 0.97
        assert found[name][0][1] < 0.5 * HORIZON


@pytest.mark.study
def test_mean_over_steps_grid_of_45_pairs() -> None:
    """STEP's page: rates 0.05, 0.15, ..., 0.95, every pair; one-sided error 0.05, n_max 200."""
    rates = np.round(np.arange(0.05, 1.0, 0.1), 2).tolist()
    pairs = tuple((q, p) for i, p in enumerate(rates) for q in rates[i + 1 :])
    assert len(pairs) == 45
    found = simulate(pairs, 400, 0.10)
    print('\n45 pairs, two-sided alpha 0.10, 400 trials each: mean share decided, mean rollouts a policy')
    for name, row in found.items():
        share, n = np.mean(row, axis=0)
        print(f'  {name:17s} {share:.3f}  {n:6.1f}')
    assert np.mean(found['sign walk'], axis=0)[0] > np.mean(found['Barnard'], axis=0)[0] - 0.05
