"""Non-inferiority of success rates: brute force, published examples, statsmodels where it is right, exact sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import xlogy
from statsmodels.stats.proportion import score_test_proportions_2indep

from robotrials.errors import InputError
from robotrials.stats import ArmCounts, PairCounts, noninferiority, rate_difference_interval
from robotrials.stats.proportion import binomial_pmf, independent_variance, paired_variance, restricted_rate

Z = 1.6448536269514722


def one(*values: float) -> list[np.ndarray]:
    return [np.array([float(v)]) for v in values]


@given(st.integers(1, 30), st.integers(1, 30), st.floats(0, 1), st.floats(0, 1), st.floats(-0.9, 0.9))
def test_the_restricted_rate_is_the_likeliest_by_a_grid(
    n1: int, n2: int, share1: float, share2: float, delta: float
) -> None:
    x1, x2 = round(share1 * n1), round(share2 * n2)
    grid = np.linspace(max(0.0, -delta), min(1.0, 1.0 - delta), 20001)
    p1 = np.clip(grid + delta, 0, 1)
    likelihood = xlogy(x1, p1) + xlogy(n1 - x1, 1 - p1) + xlogy(x2, grid) + xlogy(n2 - x2, 1 - grid)
    found = float(restricted_rate(*one(x1, n1, x2, n2), delta)[0])
    at = min(max(found + delta, 0.0), 1.0)
    own = xlogy(x1, at) + xlogy(n1 - x1, 1 - at) + xlogy(x2, found) + xlogy(n2 - x2, 1 - found)
    assert own >= likelihood.max() - 1e-6


@given(st.integers(1, 25), st.data(), st.floats(-0.8, 0.8))
def test_the_paired_variance_is_that_of_the_likeliest_discordance_by_a_grid(
    n: int, data: st.DataObject, delta: float
) -> None:
    ahead = data.draw(st.integers(0, n))
    behind = data.draw(st.integers(0, n - ahead))
    lost = np.linspace(max(0.0, -delta), (1 - delta) / 2, 40001)
    won, rest = np.clip(lost + delta, 0, 1), np.clip(1 - 2 * lost - delta, 0, 1)
    best = lost[np.argmax(xlogy(ahead, won) + xlogy(behind, lost) + xlogy(n - ahead - behind, rest))]
    variance = float(paired_variance(*one(ahead, behind, n), delta)[0])
    assert variance == pytest.approx((2 * best + delta - delta**2) / n, abs=2e-4)


@pytest.mark.parametrize(
    ('counts', 'low', 'high'),
    [((56, 70, 48, 80), 0.0528, 0.3382), ((9, 10, 3, 10), 0.1700, 0.8406)],
)
def test_miettinen_and_nurminens_intervals_of_newcombe_1998_table_2(
    counts: tuple[int, int, int, int], low: float, high: float
) -> None:
    found = rate_difference_interval([ArmCounts(*counts)])
    assert found[1:3] == pytest.approx((low, high), abs=6e-5)


def test_tangos_contact_lenses_are_equivalent_within_ten_points() -> None:
    """Tango 1998: 44 pairs, one discordant; Z = 1.71, p = 0.044."""
    found = noninferiority([PairCounts(43, 0, 1, 0)], margin=0.1)
    assert found.p_value == pytest.approx(0.044, abs=5e-4)
    assert found.is_shown


def test_at_no_difference_the_score_is_that_of_statsmodels() -> None:
    """Elsewhere it is not an oracle: its cubic has count0 where Miettinen and Nurminen have nobs0."""
    theirs = score_test_proportions_2indep(30, 50, 20, 45, value=0, compare='diff', correction=True)
    assert rate_difference_interval([ArmCounts(30, 50, 20, 45)])[3] == pytest.approx(theirs.pvalue, rel=1e-9)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=5), st.booleans())
def test_the_bound_and_the_test_agree(rows: list[tuple[int, int]], paired: bool) -> None:
    cells = (
        [PairCounts(3, min(a, 6), min(b, 6), 2) for a, b in rows]
        if paired
        else [ArmCounts(a, 12, b, 12) for a, b in rows]
    )
    for margin in (0.05, 0.2):
        found = noninferiority(cells, margin=margin)  # type: ignore[arg-type]
        assert found.is_shown == (found.low >= -margin) or abs(found.low + margin) < 1e-9
        assert found.is_worse == (found.high <= 0) or abs(found.high) < 1e-9
        assert -1 <= found.low <= found.difference + 1e-9
        assert found.difference <= found.high + 1e-9


def test_swapping_the_arms_mirrors_the_bounds() -> None:
    ours = noninferiority([ArmCounts(7, 10, 9, 12), ArmCounts(3, 8, 1, 9)], margin=0.1)
    theirs = noninferiority([ArmCounts(9, 12, 7, 10), ArmCounts(1, 9, 3, 8)], margin=0.1)
    assert (ours.low, ours.high) == pytest.approx((-theirs.high, -theirs.low), abs=1e-9)


def test_equal_cells_count_as_one_of_their_sum_when_large() -> None:
    whole = noninferiority([ArmCounts(1800, 2000, 1700, 2000)], margin=0.1)
    parts = noninferiority([ArmCounts(900, 1000, 850, 1000)] * 2, margin=0.1)
    assert parts.low == pytest.approx(whole.low, abs=1e-4)


def test_strata_count_equally_whatever_their_size() -> None:
    found = noninferiority([ArmCounts(90, 100, 80, 100), ArmCounts(1, 4, 2, 4)], margin=0.1)
    assert found.difference == pytest.approx((0.1 - 0.25) / 2)


def test_a_design_effect_widens_the_bound_as_fewer_episodes_would() -> None:
    plain = noninferiority([ArmCounts(45, 50, 45, 50)], margin=0.1)
    wide = noninferiority([ArmCounts(90, 100, 90, 100)], margin=0.1, design_effect=2.0)
    assert wide.low == pytest.approx(plain.low, abs=2e-3)


def exact_size(n1: int, n2: int, p: float, margin: float) -> float:
    """The chance that the test passes when the new rate is exactly p - margin, by enumeration of all tables."""
    x1, x2 = (a.ravel().astype(float) for a in np.meshgrid(np.arange(n1 + 1), np.arange(n2 + 1), indexing='ij'))
    spread = np.sqrt(independent_variance(x1, np.full_like(x1, n1), x2, np.full_like(x2, n2), -margin))
    passed = (x1 / n1 - x2 / n2 + margin) / spread >= Z
    chance = np.outer(binomial_pmf(n1, p - margin), binomial_pmf(n2, p)).ravel()
    return float(chance[passed].sum())


@pytest.mark.parametrize('n', [10, 20, 50, 100, 200])
@pytest.mark.parametrize('p', [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize('margin', [0.05, 0.1])
def test_at_the_margin_an_equal_sized_trial_passes_in_at_most_six_percent(n: int, p: float, margin: float) -> None:
    """Exact sizes at alpha 0.05: a score test is not conservative, and errs by less than a point here."""
    assert exact_size(n, n, p, margin) <= 0.0605


def test_very_unequal_arms_with_ten_episodes_err_by_at_most_two_and_a_half_points() -> None:
    sizes = [exact_size(a, b, p, 0.05) for a, b in ((10, 100), (100, 10)) for p in (0.1, 0.3, 0.5, 0.7, 0.9)]
    assert max(sizes) <= 0.076


def score_passes(
    rng: np.random.Generator, rates: np.ndarray, n: tuple[int, int], gap: np.ndarray, margin: float
) -> float:
    """The share of 4,000 simulated stratified trials that pass."""
    trials, k = 4000, len(rates)
    x1 = rng.binomial(n[0], rates - gap, (trials, k)).astype(float)
    x2 = rng.binomial(n[1], rates, (trials, k)).astype(float)
    n1, n2 = np.full(x1.size, float(n[0])), np.full(x1.size, float(n[1]))
    spread = independent_variance(x1.ravel(), n1, x2.ravel(), n2, -margin).reshape(trials, k).sum(axis=1) / k**2
    z = ((x1 / n[0] - x2 / n[1]).mean(axis=1) + margin) / np.sqrt(spread)
    return float(np.mean(z >= Z))


@pytest.mark.parametrize('n', [(1, 1), (2, 2), (5, 5), (3, 20)])
def test_many_tiny_strata_at_the_margin_pass_in_about_five_percent(n: tuple[int, int]) -> None:
    """Ten strata with their own rates, worse by 0.2 in every other one: 0.1 in the mean, which is the margin."""
    rng = np.random.default_rng(3)
    gap = np.where(np.arange(10) % 2 == 0, 0.2, 0.0)
    assert score_passes(rng, np.linspace(0.3, 0.9, 10), n, gap, 0.1) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 4000)


def test_matched_pairs_at_the_margin_pass_in_about_five_percent() -> None:
    rng = np.random.default_rng(4)
    for k, n in ((1, 20), (4, 5), (10, 1), (10, 5)):
        for lost in (0.1, 0.3):
            drawn = rng.multinomial(n, [lost - 0.05, lost, 1.05 - 2 * lost], (4000, k))
            ahead, behind = (drawn[..., i].astype(float) for i in (0, 1))
            spread = paired_variance(ahead.ravel(), behind.ravel(), np.full(ahead.size, float(n)), -0.05)
            z = (((ahead - behind) / n).mean(axis=1) + 0.05) / np.sqrt(spread.reshape(4000, k).sum(axis=1) / k**2)
            assert np.mean(z >= Z) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 4000)


def test_nothing_seen_to_differ_still_has_a_bound() -> None:
    """Ten successes of ten on both sides show nothing within five points."""
    found = noninferiority([ArmCounts(10, 10, 10, 10)], margin=0.05)
    assert found.difference == 0
    assert found.low < -0.15
    assert not found.is_shown
    assert not found.is_worse
    paired = noninferiority([PairCounts(10, 0, 0, 0)], margin=0.05)
    assert paired.low == pytest.approx(-(Z**2) / (10 + Z**2), abs=1e-6)


@pytest.mark.parametrize(
    ('cells', 'said'),
    [
        ([], 'no stratum'),
        ([ArmCounts(1, 2, 1, 2), PairCounts(1, 0, 0, 0)], 'mixed'),
    ],
)
def test_what_cannot_be_tested_is_refused(cells: list[ArmCounts], said: str) -> None:
    with pytest.raises(InputError, match=said):
        noninferiority(cells, margin=0.05)


def test_odd_counts_margins_and_design_effects_are_refused() -> None:
    with pytest.raises(InputError, match='at most n_new'):
        ArmCounts(3, 2, 1, 2)
    with pytest.raises(InputError, match='at least one pair'):
        PairCounts(0, 0, 0, 0)
    with pytest.raises(InputError, match='margin'):
        noninferiority([ArmCounts(1, 2, 1, 2)], margin=5)
    with pytest.raises(InputError, match='design_effect'):
        noninferiority([ArmCounts(1, 2, 1, 2)], margin=0.05, design_effect=0.5)


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(0, 40))
def test_the_bound_rises_with_each_success_of_the_new_arm(n: int, x: int) -> None:
    x = min(x, n - 1)
    first, second = (noninferiority([ArmCounts(k, n, n // 2, n)], margin=0.1).low for k in (x, x + 1))
    assert second >= first - 1e-12
