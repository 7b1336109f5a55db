"""Intervals of rates: published values, statsmodels, scipy, and coverage by full enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from robotrials.errors import InputError
from robotrials.stats import Interval, clopper_pearson, clustered_wilson, jeffreys, newcombe, newcombe_paired, wilson

COUNTS = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def test_wilson_at_7_of_10_and_14_of_20() -> None:
    """PhAIL, Appendix H; it prints 0.86 for the last end, which is 0.8545."""
    assert tuple(wilson(7, 10)) == pytest.approx((0.40, 0.89), abs=0.005)
    assert tuple(wilson(14, 20)) == pytest.approx((0.481, 0.8545), abs=5e-5)


@given(COUNTS, st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_single_proportion_intervals_against_statsmodels(count: tuple[int, int], level: float) -> None:
    x, n = count
    for ours, name in ((wilson, 'wilson'), (clopper_pearson, 'beta')):
        theirs = proportion_confint(x, n, alpha=1 - level, method=name)
        assert tuple(ours(x, n, level)) == pytest.approx(theirs, abs=1e-10)
    inner = scipy_stats.beta.ppf([(1 - level) / 2, (1 + level) / 2], x + 0.5, n - x + 0.5)
    expected = (0.0 if x == 0 else inner[0], 1.0 if x == n else inner[1])
    assert tuple(jeffreys(x, n, level)) == pytest.approx(expected, abs=1e-9)


@given(COUNTS, COUNTS)
def test_newcombe_against_statsmodels(first: tuple[int, int], second: tuple[int, int]) -> None:
    theirs = confint_proportions_2indep(*first, *second, compare='diff', method='newcomb')
    assert tuple(newcombe(*first, *second)) == pytest.approx((max(-1, theirs[0]), min(1, theirs[1])), abs=1e-10)


@given(COUNTS, COUNTS)
def test_newcombe_turns_its_sign_with_its_arguments(first: tuple[int, int], second: tuple[int, int]) -> None:
    assert tuple(newcombe(*first, *second)) == pytest.approx(tuple(newcombe(*second, *first).scaled(-1)), abs=1e-12)


def test_newcombe_of_published_differences() -> None:
    """Newcombe 1998, Statistics in Medicine 17:873, Table II, method 10: 56/70 - 48/80 and 10/10 - 0/20."""
    assert tuple(newcombe(56, 70, 48, 80)) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert tuple(newcombe(10, 10, 0, 20)) == pytest.approx((0.6791, 1.0), abs=5e-5)


@pytest.mark.parametrize(
    ('calibration', 'fresh', 'printed'),
    [(1956, 9718, (-0.18, 1.27)), (1946, 9760, (-1.15, 0.40)), (1951, 9741, (-0.69, 0.82))],
)
def test_newcombe_gives_the_audit_papers_table_7(calibration: int, fresh: int, printed: tuple[float, float]) -> None:
    ours = newcombe(calibration, 2000, fresh, 10_000).scaled(100)
    assert tuple(ours) == pytest.approx(printed, abs=0.0051)


def test_newcombe_paired_of_a_published_difference() -> None:
    """Newcombe 1998, Statistics in Medicine 17:2635, Table II, method 10."""
    assert tuple(newcombe_paired(36, 12, 2, 0)) == pytest.approx((0.0569, 0.3404), abs=5e-5)


@given(COUNTS)
def test_intervals_hold_the_observed_rate_and_stay_in_range(count: tuple[int, int]) -> None:
    x, n = count
    for ours in (wilson, clopper_pearson, jeffreys):
        interval = ours(x, n)
        assert 0 <= interval.low <= x / n + 1e-12
        assert x / n - 1e-12 <= interval.high <= 1


@pytest.mark.parametrize('n', [10, 25, 100])
def test_coverage_by_enumeration(n: int) -> None:
    """Clopper-Pearson never covers less than its level; Wilson's mean coverage over p is close to it."""
    p = np.linspace(0.005, 0.995, 199)
    pmf = scipy_stats.binom.pmf(np.arange(n + 1)[:, None], n, p)
    coverage = {}
    for ours in (wilson, clopper_pearson):
        ends = np.array([tuple(ours(x, n)) for x in range(n + 1)])
        coverage[ours] = (pmf * ((ends[:, :1] <= p) & (p <= ends[:, 1:]))).sum(0)
    assert coverage[clopper_pearson].min() >= 0.95 - 1e-12
    assert coverage[wilson].mean() == pytest.approx(0.95, abs=0.012)


@pytest.mark.parametrize(
    ('arguments', 'said'),
    [
        ((11, 10), 'successes must be at most n = 10, found 11'),
        ((0, 0), 'n must be at least 1, found 0'),
        ((-1, 10), 'successes must be at least 0, found -1'),
        ((1, -10), 'n must be at least 1, found -10'),
        ((math.nan, 10), 'successes must be a whole number'),
        ((0.7, 10), 'successes must be a whole number'),
        ((7, 10, 95), 'level must be strictly between 0 and 1, found 95'),
        ((7, 10, 0), 'level must be strictly between 0 and 1'),
        ((7, 10, math.nan), 'level must be strictly between 0 and 1'),
    ],
)
def test_bad_counts_and_levels_are_refused(arguments: tuple[float, ...], said: str) -> None:
    for ours in (wilson, clopper_pearson, jeffreys):
        with pytest.raises(InputError, match=said):
            ours(*arguments)


def test_newcombe_names_the_bad_argument() -> None:
    with pytest.raises(InputError, match='x2 must be at most n2 = 5, found 6'):
        newcombe(1, 5, 6, 5)
    with pytest.raises(InputError, match='n1 must be at least 1'):
        newcombe(0, 0, 1, 5)
    with pytest.raises(InputError, match='at least one pair'):
        newcombe_paired(0, 0, 0, 0)


def test_an_interval_refuses_nan_and_disorder() -> None:
    with pytest.raises(InputError):
        Interval(math.nan, 1)
    with pytest.raises(InputError):
        Interval(2, 1)


def test_an_interval_answers_for_itself() -> None:
    interval = Interval(-0.1, 0.3)
    low, high = interval
    assert (low, high, interval.width, interval.center) == (-0.1, 0.3, 0.4, pytest.approx(0.1))
    assert interval.contains(0)
    assert interval.excludes(0.31)
    assert interval.half_width == pytest.approx(0.2)
    assert tuple(interval.scaled(-100)) == (-30.0, 10.0)


def test_clusters_of_one_trial_are_trials() -> None:
    """With 100,000 clusters t is normal, and the interval is Wilson's own."""
    n = 100_000
    ours = clustered_wilson([1] * 30_000 + [0] * 70_000, [1] * n)
    assert tuple(ours) == pytest.approx(tuple(wilson(30_000, n)), abs=1e-6)


def test_a_cluster_counts_once_where_none_fails_and_an_empty_one_not_at_all() -> None:
    few = clustered_wilson([4] * 10, [4] * 10)
    assert few.low < wilson(10, 10).low < wilson(40, 40).low
    assert clustered_wilson([4] * 10 + [0, 0], [4] * 10 + [0, 0]) == few


@pytest.mark.parametrize('rate', [0.9, 0.6])
def test_clustered_wilson_covers_where_trials_are_alike(rate: float) -> None:
    """Beta-binomial clusters of 0 to 4 trials with a correlation of 0.4; Wilson on the trials alone does not cover."""
    rng = np.random.default_rng(5)
    n_samples, k, held, held_naive = 800, 25, 0, 0
    for _ in range(n_samples):
        sizes = rng.integers(0, 5, k)
        hits = rng.binomial(sizes, rng.beta(1.5 * rate, 1.5 * (1 - rate), k))
        held += clustered_wilson(hits.tolist(), sizes.tolist()).contains(rate)
        held_naive += wilson(int(hits.sum()), int(sizes.sum())).contains(rate)
    assert held / n_samples > 0.93
    assert held_naive / n_samples < 0.90


@pytest.mark.parametrize(('hits', 'sizes'), [([1], [1, 2]), ([], []), ([0], [0]), ([3], [2]), ([-1], [2])])
def test_clusters_that_cannot_be_are_refused(hits: list[int], sizes: list[int]) -> None:
    with pytest.raises(InputError):
        clustered_wilson(hits, sizes)
