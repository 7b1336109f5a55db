"""Adjusted p-values against statsmodels, and letters against their definition on every small graph."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from robotrials.errors import InputError
from robotrials.stats import bonferroni, different_matrix, holm, letter_groups

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=20)


def by_statsmodels(p: list[float], method: str) -> list[float]:
    """Without the collection of all garbage that it begins with: seconds, each time, among the objects of all tests."""
    with mock.patch('gc.collect'):
        adjusted: list[float] = multipletests(p, method=method)[1].tolist()
    return adjusted


@settings(max_examples=30)
@given(P_VALUES)
def test_adjusted_p_values_against_statsmodels(p: list[float]) -> None:
    assert holm(p) == pytest.approx(by_statsmodels(p, 'holm'), abs=1e-14)
    assert bonferroni(p) == pytest.approx(by_statsmodels(p, 'bonferroni'), abs=1e-14)


@given(P_VALUES)
def test_holm_is_never_above_bonferroni_nor_below_raw(p: list[float]) -> None:
    assert (holm(p) <= bonferroni(p) + 1e-15).all()
    assert (holm(p) >= np.array(p) - 1e-15).all()


def test_bonferroni_counts_comparisons_that_are_not_shown() -> None:
    assert bonferroni([0.01], comparisons=6) == pytest.approx([0.06])
    with pytest.raises(InputError):
        bonferroni([0.01, 0.2], comparisons=1)


def shares(a: str, b: str) -> bool:
    return bool(set(a) & set(b))


@pytest.mark.parametrize('k', [1, 2, 3, 4, 5])
def test_arms_share_a_letter_exactly_when_not_different_on_every_graph(k: int) -> None:
    pairs = list(itertools.combinations(range(k), 2))
    for pattern in itertools.product([False, True], repeat=len(pairs)):
        different = np.zeros((k, k), dtype=bool)
        for (i, j), value in zip(pairs, pattern, strict=True):
            different[i, j] = different[j, i] = value
        letters = letter_groups(different)
        assert all(letters)
        assert all(shares(letters[i], letters[j]) != different[i, j] for i, j in pairs)


def test_letters_of_an_intransitive_chain() -> None:
    """A ~ B and B ~ C but A differs from C: B carries both letters."""
    different = different_matrix([(0, 1), (0, 2), (1, 2)], [0.4, 0.001, 0.2], k=3, alpha=0.05)
    assert letter_groups(different) == ('a', 'ab', 'b')


def test_letters_start_with_the_first_arm() -> None:
    assert letter_groups(np.zeros((3, 3))) == ('a', 'a', 'a')
    assert letter_groups(~np.eye(4, dtype=bool)) == ('a', 'b', 'c', 'd')


def test_bad_matrices_and_p_values_are_refused() -> None:
    with pytest.raises(InputError, match='symmetric'):
        letter_groups([[0, 1], [0, 0]])
    with pytest.raises(InputError, match='itself'):
        letter_groups([[1]])
    with pytest.raises(InputError, match='square'):
        letter_groups([[0, 1]])
    with pytest.raises(InputError, match=r'p_values\[1\]'):
        holm([0.1, float('nan')])
    with pytest.raises(InputError, match='non-empty'):
        bonferroni([])
