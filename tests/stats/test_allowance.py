"""The rule behind "better": its formula, its p-value, and what it never does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from robotrials.errors import InputError
from robotrials.stats import MacroArm, Spread, allowance_factor, fewest_units, macro_difference, macro_interval, price
from robotrials.stats.sample_size import tau_warning

TAU = 120.0


def arm(samples: np.ndarray) -> MacroArm:
    """Rows are strata."""
    n = np.full(len(samples), float(samples.shape[1]))
    return MacroArm(samples.mean(axis=1), np.zeros(len(n)), np.full(len(n), TAU), n)


def spread(*samples: np.ndarray) -> Spread:
    rows = [row for sample in samples for row in sample]
    terms = np.array([row.var(ddof=1) / row.size for row in rows]) / len(samples[0]) ** 2
    return Spread(terms, np.array([row.size - 1.0 for row in rows]))


def written_rule(a: np.ndarray, b: np.ndarray, alpha: float) -> tuple[float, float]:
    """D and t sqrt(V + u), straight from the formula: strata of equal size and like means."""
    strata, n = a.shape
    m_a, m_b, big_n = a.mean(), b.mean(), strata * n
    v = np.concatenate([a.var(axis=1, ddof=1), b.var(axis=1, ddof=1)]) / n
    z = stats.norm.ppf(1 - alpha)
    u = z**2 * (((TAU - m_a) / big_n) ** 2 + (m_b / big_n) ** 2)
    variance = v.sum() / strata**2
    df = (variance + u) ** 2 / np.sum((v / strata**2) ** 2 / (n - 1))
    t = stats.t.ppf(1 - alpha / 2, max(df, n - 1))
    return m_b - m_a, t * math.sqrt(variance + u)


def test_the_rule_is_its_written_formula() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.uniform(20, 40, (4, 12)), rng.uniform(40, 60, (4, 12))
    ours = macro_difference(arm(a), arm(b), spread(a, b))
    for level in (0.8, 0.95, 0.999):
        gap, reach = written_rule(a, b, 1 - level)
        assert ours.difference == pytest.approx(gap)
        assert ours.interval(level).low == pytest.approx(gap - reach)
    assert written_rule(a, b, ours.p_value * 1.0001)[1] < ours.difference
    assert written_rule(a, b, ours.p_value * 0.9999)[1] > ours.difference * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(3, 9), st.floats(0.01, 100.0))
def test_arms_swapped_and_other_units_of_time_say_the_same(seed: int, strata: int, n: int, unit: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(0, TAU, (strata, n)), rng.uniform(0, TAU, (strata, n))
    ours, swapped = macro_difference(arm(a), arm(b), spread(a, b)), macro_difference(arm(b), arm(a), spread(b, a))
    assert swapped.p_value == ours.p_value
    assert swapped.difference == -ours.difference
    assert swapped.interval().low == pytest.approx(-ours.interval().high)
    scaled = [MacroArm(x.means * unit, x.low, x.high * unit, x.n_units) for x in (arm(a), arm(b))]
    wide = Spread(spread(a, b).terms * unit**2, spread(a, b).dof)
    assert macro_difference(scaled[0], scaled[1], wide).p_value == pytest.approx(ours.p_value, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.5, 0.999))
def test_interval_and_p_value_are_of_one_null(seed: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(0, 60, (3, 6)), rng.uniform(20, TAU, (3, 6))
    found = macro_difference(arm(a), arm(b), spread(a, b))
    if abs(found.p_value - (1 - level)) > 1e-6:
        assert found.interval(level).excludes(0.0) == (found.p_value < 1 - level)


def test_without_any_spread_the_bound_is_that_of_failures_not_seen() -> None:
    """K = 3.22 expected failures stay unseen with a chance of 4 %; exact binomial: 1 - 0.04^(1/n)."""
    means, n = np.zeros(1), np.array([20.0])
    high = macro_interval(MacroArm(means, np.zeros(1), np.ones(1), n), Spread(np.zeros(1), n - 1)).high
    assert high == pytest.approx(allowance_factor() / 20)
    assert (1 - high) ** 20 < 0.05


def test_a_stratum_with_few_units_is_allowed_what_it_may_hide() -> None:
    """A stratum of 3 among strata of 40 may hide as much as if all had 3."""
    means = np.array([30.0, 30.0, 30.0, 30.0])
    ends = np.zeros(4), np.full(4, TAU)
    even = MacroArm(means, *ends, np.full(4, 3.0))
    uneven = MacroArm(means, *ends, np.array([3.0, 40.0, 40.0, 40.0]))
    assert uneven.unseen(ends[1]) == pytest.approx(even.unseen(ends[1]))
    assert uneven.unseen(ends[1]) > 9 * uneven.unseen_anywhere(ends[1])


def test_the_price_is_that_of_the_published_table() -> None:
    assert [fewest_units(k) for k in (1, 6, 15)] == [5, 9, 12]
    table = {
        (2, 0.8): (26, 63),
        (4, 0.8): (55, 134),
        (8, 0.8): (118, 290),
        (2, 0.67): (17, 41),
        (4, 0.67): (34, 84),
        (8, 0.67): (73, 179),
    }
    for (ratio, share), wanted in table.items():
        means = (share * TAU / ratio, TAU / ratio)
        assert tuple(price(means, tau_s=TAU, n_pairs=k).per_policy for k in (1, 15)) == wanted
    assert price((48, 60), tau_s=TAU, strata=10).per_cell == 3
    with pytest.raises(InputError, match='two different means'):
        price((60, 60), tau_s=TAU)


def test_no_winner_below_the_price_however_clean() -> None:
    wanted = price((48, 60), tau_s=TAU).per_policy
    for n in (wanted - 1, wanted):
        one = [MacroArm(np.array([m]), np.zeros(1), np.array([TAU]), np.array([float(n)])) for m in (48.0, 60.0)]
        found = macro_difference(one[0], one[1], Spread(np.zeros(2), np.full(2, n - 1.0)))
        assert (found.p_value <= 0.05) == (n == wanted)


def test_a_long_tau_is_warned_of() -> None:
    assert tau_warning((40.0, 50.0), 120.0) == ''
    assert '5.3 times the expected mean' in tau_warning((40.0, 50.0), 240.0)


def test_the_same_within_a_margin_needs_the_interval_inside_it() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(40, 2, (4, 60)), rng.normal(40.5, 2, (4, 60))
    found = macro_difference(arm(a), arm(b), spread(a, b))
    low, high = found.interval(0.95)
    wide, narrow = max(-low, high) * 1.01, max(-low, high) * 0.99
    assert found.p_within(wide) < 0.05 < found.p_within(narrow)
    with pytest.raises(InputError, match='margin'):
        found.p_within(0.0)
