"""Permutation tests against full enumeration, exact McNemar, Fisher and simulated size."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from robotrials.errors import InputError
from robotrials.stats import exact_mcnemar, label_permutation, sign_flip

SMALL = st.lists(st.integers(-3, 3), min_size=1, max_size=9)


def flip_p(d: np.ndarray, weight: np.ndarray, alternative: str) -> float:
    """Every one of the 2^n sign patterns."""
    observed = float(d @ weight)
    sums = np.array([np.array(s) * d @ weight for s in itertools.product([-1, 1], repeat=d.size)])
    if alternative == 'two-sided':
        return float(np.mean(np.abs(sums) >= abs(observed) - 1e-9))
    return float(np.mean(sums >= observed - 1e-9 if alternative == 'greater' else sums <= observed + 1e-9))


@settings(max_examples=40)
@given(SMALL, SMALL)
def test_stratified_sign_flip_against_enumeration(first: list[int], second: list[int]) -> None:
    d = np.array(first + second)
    strata = np.repeat([0, 1], [len(first), len(second)])
    weight = np.where(strata == 0, 1 / len(first), 1 / len(second))
    if d.size <= 11:
        for alternative in ('two-sided', 'greater', 'less'):
            ours = sign_flip(d, strata=strata, alternative=alternative)
            assert ours.exact
            assert ours.p_value == pytest.approx(flip_p(d, weight, alternative), abs=1e-12)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 30))
def test_sign_flip_of_binary_pairs_is_exact_mcnemar(b: int, c: int, same: int) -> None:
    d = np.repeat([1, -1, 0], [b, c, same + 1])
    assert sign_flip(d).p_value == pytest.approx(exact_mcnemar(b, c).p_value, abs=1e-12)


def test_monte_carlo_flips_agree_with_the_exact_test_and_are_never_zero() -> None:
    d = np.random.default_rng(0).integers(-2, 4, 40)
    exact = sign_flip(d)
    sampled = sign_flip(d.astype(float), rng=np.random.default_rng(1), n_resamples=20_000)
    assert not sampled.exact
    assert sampled.p_value == pytest.approx(exact.p_value, abs=0.01)
    assert sign_flip(np.full(50, 0.3), rng=np.random.default_rng(1), n_resamples=99).p_value == pytest.approx(0.01)


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_label_permutation_of_binary_scores_is_fishers_test(n1: int, n2: int, data: st.DataObject) -> None:
    x1, x2 = data.draw(st.integers(0, n1)), data.draw(st.integers(0, n2))
    a, b = np.arange(n1) < x1, np.arange(n2) < x2
    for alternative in ('greater', 'less'):
        theirs = scipy_stats.fisher_exact([[x1, n1 - x1], [x2, n2 - x2]], alternative=alternative).pvalue
        assert label_permutation(a, b, alternative=alternative).p_value == pytest.approx(theirs, abs=1e-10)


@settings(max_examples=25)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=8), st.integers(1, 7))
def test_label_permutation_against_enumeration(pool: list[int], take: int) -> None:
    n_a = min(take, len(pool) - 1)
    a, b = np.array(pool[:n_a]), np.array(pool[n_a:])
    means = []
    for chosen in itertools.combinations(range(len(pool)), n_a):
        inside = [pool[i] for i in chosen]
        outside = [pool[i] for i in range(len(pool)) if i not in chosen]
        means.append(np.mean(inside) - np.mean(outside))
    observed = a.mean() - b.mean()
    expected = np.mean(np.abs(means) >= abs(observed) - 1e-9)
    assert label_permutation(a, b).p_value == pytest.approx(expected, abs=1e-10)


def test_stratified_labels_exact_against_monte_carlo() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 2, (2, 2, 8))
    exact = label_permutation(a, b)
    sampled = label_permutation(a.astype(float), b.astype(float), rng=rng, n_resamples=20_000)
    assert exact.exact
    assert not sampled.exact
    assert sampled.p_value == pytest.approx(exact.p_value, abs=0.015)


def test_size_under_heterogeneous_strata_is_at_most_alpha() -> None:
    rng = np.random.default_rng(4)
    rates = np.array([[0.1], [0.9]])
    rejected = [
        label_permutation(rng.random((2, 15)) < rates, rng.random((2, 15)) < rates).p_value <= 0.05 for _ in range(600)
    ]
    assert np.mean(rejected) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 600)


def test_large_problems_ask_for_a_generator() -> None:
    with pytest.raises(InputError, match='rng'):
        sign_flip([0.1, 0.2, -0.3])
    with pytest.raises(InputError, match='rng'):
        label_permutation([0.1, 0.2], [0.4])
