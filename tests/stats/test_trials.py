"""Many trials at once give the p-values of the one contrast that judges."""

from __future__ import annotations

import numpy as np
import pytest

from robotrials.stats import success_arm, success_contrast, win_arm, win_contrast
from robotrials.stats.trials import success_trials, win_trials

TRIALS = 25
# n of a, n of b, shared starts per stratum, runs per start
DESIGNS = {
    'one stratum': ([(8, 9, 0)], 1),
    'one large stratum': ([(120, 110, 0)], 1),
    'equal cells': ([(6, 6, 0)] * 3, 1),
    'unequal cells': ([(6, 9, 0), (12, 4, 0)], 1),
    'matched': ([(8, 8, 8)] * 2, 1),
    'matched, unequal cells': ([(8, 8, 8), (4, 4, 4)], 1),
    'half shared': ([(9, 9, 5)] * 3, 1),
    'part shared, unequal': ([(9, 7, 4), (6, 8, 3)], 1),
    'a lone remainder and a lone shared start': ([(7, 9, 6), (7, 9, 1)], 1),
    'repeats': ([(5, 6, 0)] * 2, 3),
    'matched repeats': ([(5, 5, 5)] * 2, 3),
    'too few': ([(2, 2, 0)] * 2, 1),
}


def _starts(n: int, shared: int, runs: int, side: str) -> list[str]:
    return [f'{k}' if k < shared else f'{side}{k}' for k in range(n) for _ in range(runs)]


@pytest.mark.parametrize('name', DESIGNS)
@pytest.mark.parametrize('items', [1, 2])
def test_win_trials_are_the_contrasts(name: str, items: int) -> None:
    design, runs = DESIGNS[name]
    rng = np.random.default_rng(len(name))
    draw = lambda n, late: np.where(rng.random((TRIALS, n, runs, items)) < 0.15, np.inf,  # noqa: E731
                                    rng.integers(1, 9, (TRIALS, n, runs, items)) + late)  # fmt: skip
    a, b = [draw(n, 0) for n, _, _ in design], [draw(m, 1) for _, m, _ in design]
    found = win_trials(a, b, n_shared=[s for _, _, s in design])
    for t in range(TRIALS):
        arms = [
            [win_arm(x[t].reshape(-1, items), _starts(x.shape[1], row[2], runs, side))
             for x, row in zip(arm, design, strict=True)]
            for arm, side in ((a, 'a'), (b, 'b'))
        ]  # fmt: skip
        one = win_contrast(*arms)
        expected = (1.0, 1.0, 1.0) if one.withheld else (one.p_value, one.p_one_sided('a'), one.p_one_sided('b'))
        assert (found.p_value[t], found.p_a[t], found.p_b[t]) == pytest.approx(expected)
        if one.favours:
            assert (found.gap[t] > 0) == (one.favours == 'a')


@pytest.mark.parametrize('name', DESIGNS)
def test_success_trials_are_the_contrasts(name: str) -> None:
    design, runs = DESIGNS[name]
    rng = np.random.default_rng(len(name) + 1)
    a, b = ([rng.random((TRIALS, row[k], runs)) < p for row in design] for k, p in ((0, 0.8), (1, 0.5)))
    found = success_trials(a, b, n_shared=[s for _, _, s in design])
    for t in range(TRIALS):
        arms = [
            [success_arm(x[t].ravel(), _starts(x.shape[1], row[2], runs, side))
             for x, row in zip(arm, design, strict=True)]
            for arm, side in ((a, 'a'), (b, 'b'))
        ]  # fmt: skip
        one = success_contrast(*arms)
        expected = (1.0, 1.0, 1.0) if one.withheld else (one.p_value, one.p_one_sided('a'), one.p_one_sided('b'))
        assert (found.p_value[t], found.p_a[t], found.p_b[t]) == pytest.approx(expected)
        assert found.gap[t] == pytest.approx(one.difference)
