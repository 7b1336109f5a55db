"""Exact tests against scipy, statsmodels, and brute force over every table."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from statsmodels.stats.contingency_tables import mcnemar

from robotrials.errors import InputError
from robotrials.stats import barnard, exact_mcnemar
from robotrials.stats.proportion import binomial_pmf_table, region_chance, unconditional_size, wald_order


@given(st.integers(0, 60), st.integers(0, 60))
def test_exact_mcnemar_against_statsmodels_and_scipy(b: int, c: int) -> None:
    theirs = mcnemar([[5, b], [c, 5]], exact=True).pvalue if b + c else 1.0
    assert exact_mcnemar(b, c).p_value == pytest.approx(theirs, abs=1e-12)
    if b + c:
        one_sided = scipy_stats.binomtest(b, b + c, alternative='greater').pvalue
        assert exact_mcnemar(b, c, alternative='greater').p_value == pytest.approx(one_sided, rel=1e-9)


def test_mcnemar_without_discordant_pairs_says_nothing() -> None:
    ours = exact_mcnemar(0, 0)
    assert ours.p_value == 1
    assert ours.statistic == 0


def test_mid_p_lies_below_the_exact_p() -> None:
    assert exact_mcnemar(8, 2, mid_p=True).p_value == pytest.approx(exact_mcnemar(8, 2).p_value - 45 / 1024)


@settings(max_examples=25)
@given(st.integers(2, 25), st.integers(2, 25), st.data())
def test_barnard_against_scipy(n1: int, n2: int, data: st.DataObject) -> None:
    x1, x2 = data.draw(st.integers(0, n1)), data.draw(st.integers(0, n2))
    for alternative in ('two-sided', 'greater', 'less'):
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', RuntimeWarning)
            theirs = scipy_stats.barnard_exact([[x1, x2], [n1 - x1, n2 - x2]], alternative=alternative, n=64)
        ours = barnard(x1, n1, x2, n2, alternative=alternative)
        assert ours.p_value >= theirs.pvalue - 1e-6
        if np.isfinite(theirs.statistic):
            assert ours.statistic == pytest.approx(theirs.statistic, abs=1e-9)
            assert without_ties(ours.statistic, x1, x2, wald_order(n1, n2), alternative) <= theirs.pvalue + 1e-6


def without_ties(z: float, x1: int, x2: int, order: np.ndarray, alternative: str) -> float:
    """The p-value if no other table tied with the observed one: scipy loses some ties to rounding, never more."""
    signed = {'greater': order, 'less': -order, 'two-sided': np.abs(order)}[alternative]
    region = signed > signed[x1, x2] + 1e-9 * (1 + abs(z))
    region[x1, x2] = True
    return unconditional_size(region)


def test_barnard_of_published_tables() -> None:
    """Barnard 1945 / scipy's vaccine example: 7/15 against 12/15 gives a one-sided p of 0.0341."""
    assert barnard(7, 15, 12, 15, alternative='less').p_value == pytest.approx(0.0341, abs=5e-5)
    assert barnard(0, 3, 3, 3, alternative='less').p_value == pytest.approx(1 / 64, abs=1e-9)


def test_p_value_is_the_supremum_over_the_nuisance_rate() -> None:
    """A dense brute-force scan of 200,001 rates finds nothing higher than the refined grid, and as high."""
    rates = np.linspace(0, 1, 200_001)
    for x1, n1, x2, n2 in ((3, 8, 7, 9), (2, 12, 5, 7), (1, 20, 3, 24)):
        z = barnard(x1, n1, x2, n2).statistic
        is_extreme = np.zeros((n1 + 1, n2 + 1))
        for i in range(n1 + 1):
            for j in range(n2 + 1):
                m = (i + j) / (n1 + n2)
                d = i / n1 - j / n2
                t = d / math.sqrt(m * (1 - m) * (1 / n1 + 1 / n2)) if d else 0.0
                is_extreme[i, j] = abs(t) >= abs(z) - 1e-9
        chance = (binomial_pmf_table(n1, rates) @ is_extreme * binomial_pmf_table(n2, rates)).sum(axis=1)
        assert barnard(x1, n1, x2, n2).p_value == pytest.approx(chance.max(), abs=1e-9)


@pytest.mark.parametrize('alpha', [0.05, 0.1])
def test_size_is_at_most_alpha_at_every_common_rate(alpha: float) -> None:
    region = np.array([[barnard(x1, 20, x2, 15).p_value <= alpha for x2 in range(16)] for x1 in range(21)])
    rates = np.linspace(0, 1, 999)
    size = region_chance(region, rates, rates).max()
    assert 0.5 * alpha < size <= alpha + 1e-5


def test_bad_counts_are_refused() -> None:
    with pytest.raises(InputError, match='x1 must be at most n1'):
        barnard(5, 4, 1, 4)
    with pytest.raises(InputError, match='n2 must be at least 1'):
        barnard(1, 4, 0, 0)
    with pytest.raises(InputError, match='only_first'):
        exact_mcnemar(-1, 4)
