"""What choosing a checkpoint on the test set adds, on worlds where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.verdict.audit.shortcut import latest_best, selection_optimism


def drawn(rates: list[float], starts: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([rng.random(starts) < rate for rate in rates], dtype=float)


def test_equal_checkpoints_gain_by_choice_and_cross_fitting_takes_it_back() -> None:
    """Eight checkpoints of 0.7 on 100 starts: the best shows 0.765 in the mean (1.42 standard errors), all are 0.7."""
    found = [
        selection_optimism(drawn([0.7] * 8, 100, seed), np.ones(100), ['a'] * 100, rng=np.random.default_rng(seed),
                           n_resamples=60)
        for seed in range(60)
    ]  # fmt: skip
    assert np.mean([f.best for f in found]) == pytest.approx(0.765, abs=0.015)
    assert np.mean([f.cross_fitted for f in found]) == pytest.approx(0.7, abs=0.015)
    assert np.mean([f.gain for f in found]) == pytest.approx(np.mean([f.gain_by_chance for f in found]), abs=0.01)
    assert np.mean([f.p_value <= 0.05 for f in found]) <= 0.15


def test_a_truly_better_checkpoint_keeps_its_score() -> None:
    totals = drawn([0.1, 0.9, 0.2], 400, 5)
    found = selection_optimism(totals, np.ones(400), ['a'] * 400, rng=np.random.default_rng(0), n_resamples=200)
    assert found.estimate == pytest.approx(0.0, abs=1e-9)
    assert found.p_value == pytest.approx(1 / 201)
    assert found.over_final > 0.5


def test_the_null_gain_is_that_of_an_enumeration() -> None:
    """Two checkpoints, three starts, every exchange counted by hand: 2^3 tables."""
    totals = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    gains = []
    for code in range(8):
        first = [totals[(code >> k) & 1, k] for k in range(3)]
        means = np.array([sum(first), totals.sum() - sum(first)]) / 3
        gains.append(means.max() - means.mean())
    found = selection_optimism(totals, np.ones(3), ['a'] * 3, rng=np.random.default_rng(1), n_resamples=4_000)
    assert found.gain_by_chance == pytest.approx(np.mean(gains), abs=0.01)


def test_the_seed_changes_the_draw_and_equal_seeds_do_not() -> None:
    totals = drawn([0.5, 0.6, 0.5], 40, 2)
    made = [
        selection_optimism(totals, np.ones(40), ['a'] * 40, rng=np.random.default_rng(s), n_resamples=50)
        for s in (0, 0, 1)
    ]
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_of_equal_checkpoints_the_latest_is_the_best() -> None:
    assert latest_best(np.array([0.5, 0.7, 0.7])) == 2
    assert latest_best(np.array([0.7, 0.6])) == 0


def test_one_checkpoint_leaves_nothing_to_choose() -> None:
    with pytest.raises(InputError, match='at least two'):
        selection_optimism(np.ones((1, 5)), np.ones(5), ['a'] * 5, rng=np.random.default_rng(0))
