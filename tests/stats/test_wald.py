"""Mean differences: against scipy, statsmodels and the audit paper's own formula and tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from robotrials.errors import InputError, NotEstimable
from robotrials.stats import clustered_wald, paired_wald, two_sample_wald, welch

TABLES = st.tuples(st.integers(1, 5), st.integers(2, 12), st.integers(0, 10**6))


def test_paired_wald_against_statsmodels() -> None:
    d = np.random.default_rng(0).normal(0.2, 1, 83)
    ours = paired_wald(d)
    assert tuple(ours.interval) == pytest.approx(DescrStatsW(d).zconfint_mean(), rel=1e-12)
    z, p = DescrStatsW(d).ztest_mean(0)
    assert (ours.z, ours.p_value) == pytest.approx((z, p), rel=1e-12)


def test_two_sample_wald_against_statsmodels() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 6, 50), rng.integers(0, 6, 80)
    ours = two_sample_wald(a, b, alternative='greater')
    peer = CompareMeans(DescrStatsW(a), DescrStatsW(b))
    assert tuple(ours.interval) == pytest.approx(peer.zconfint_diff(usevar='unequal'), rel=1e-12)
    z, p = peer.ztest_ind(alternative='larger', usevar='unequal')
    assert (ours.z, ours.p_value) == pytest.approx((z, p), rel=1e-12)
    assert ours.n == (50, 80)


@given(TABLES)
def test_stratified_statistics_are_those_of_the_audit_paper(shape: tuple[int, int, int]) -> None:
    """benchmark-audit, C.1 and C.6: Z = L / sqrt(S/(S-1) Q), with Q from counts."""
    tasks, samples, seed = shape
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 2, (2, tasks, samples))
    gap = int(b.sum() - a.sum())
    d = b - a
    q = ((d**2).sum(1) - d.sum(1) ** 2 / samples).sum()
    q_independent = sum(x.sum(1) @ (1 - x.sum(1) / samples) for x in (a, b))
    for ours, scale in ((paired_wald(d), q), (two_sample_wald(b, a), q_independent)):
        if scale > 1e-9:
            assert ours.z == pytest.approx(gap / math.sqrt(samples / (samples - 1) * scale), abs=1e-9)
        else:
            assert ours.z == (math.copysign(math.inf, gap) if gap else 0)


@pytest.mark.parametrize(('difference', 'z', 'p'), [(1, math.inf, 0.0), (0, 0.0, 0.5), (-1, -math.inf, 1.0)])
def test_zero_variance_convention(difference: int, z: float, p: float) -> None:
    for values in (np.full(7, difference), np.full(7, 0.1 * difference)):
        ours = paired_wald(values, alternative='greater')
        assert (ours.z, ours.p_value, ours.zero_variance) == (z, p, True)


def test_large_whole_numbers_do_not_overflow() -> None:
    big = np.array([2**40, 2**40 + 2, 2**40 + 4])
    assert paired_wald(big).standard_error ** 2 == pytest.approx(4 / 3)


def test_strata_count_the_same_whatever_their_size() -> None:
    ours = paired_wald([1, 0, 1, 0, 0, 0], strata=['x', 'x', 'y', 'y', 'y', 'y'])
    assert ours.estimate == pytest.approx((0.5 + 0.25) / 2)
    assert ours.standard_error**2 == pytest.approx((0.5 / 2 + 0.25 / 4) / 4)
    labelled = two_sample_wald([1, 0, 1], [0, 0, 1, 0], strata_a=[1, 1, 1], strata_b=[1, 1, 1, 1])
    assert labelled.z == pytest.approx(two_sample_wald([1, 0, 1], [0, 0, 1, 0]).z)


@pytest.mark.parametrize(
    ('discordant', 'net', 'printed'), [(420, 250, (21.29, 28.71)), (297, 135, (10.23, 16.77)), (212, 64, (3.57, 9.23))]
)
def test_paired_binary_drops_of_the_audit_paper(discordant: int, net: int, printed: tuple[float, float]) -> None:
    """benchmark-audit, Table 6, 5/5 chain success over 1,000 shared sequences: X-VLA, GR-1, RoboFlamingo."""
    d = np.repeat([1, -1, 0], [(discordant + net) // 2, (discordant - net) // 2, 1000 - discordant])
    assert tuple(paired_wald(d).interval.scaled(100)) == pytest.approx(printed, abs=0.0051)


@pytest.mark.parametrize('alternative', ['two-sided', 'greater', 'less'])
def test_welch_against_scipy(alternative: str) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.uniform(0, 1, 12), rng.beta(2, 5, 31)
    ours, peer = (
        welch(a, b, alternative=alternative),
        scipy_stats.ttest_ind(a, b, equal_var=False, alternative=alternative),
    )
    assert (ours.z, ours.p_value) == pytest.approx((peer.statistic, peer.pvalue), rel=1e-10)
    both = scipy_stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert tuple(ours.interval) == pytest.approx((both.low, both.high), rel=1e-10)


@pytest.mark.parametrize('shared', [True, False])
def test_clustered_wald_against_statsmodels(shared: bool) -> None:
    """Cluster-robust least squares, undoing its (N - 1) / (N - 2)."""
    rng = np.random.default_rng(5)
    start = np.repeat(np.arange(24), 12)
    a, b = rng.random(288) < 0.7, rng.random(288) < 0.5 + 0.3 * (start % 2)
    other = start if shared else start + 100
    y, arm = np.r_[a, b].astype(float), np.repeat([1.0, 0.0], 288)
    peer = OLS(y, np.c_[np.ones(576), arm]).fit(cov_type='cluster', cov_kwds={'groups': np.r_[start, other]})
    ours = clustered_wald(a, b, clusters_a=start, clusters_b=other)
    assert ours.estimate == pytest.approx(peer.params[1])
    assert ours.standard_error == pytest.approx(peer.bse[1] * math.sqrt(574 / 575), rel=1e-9)


def test_clustered_interval_covers_repeated_starts_and_the_plain_one_does_not() -> None:
    rng = np.random.default_rng(6)
    start = np.repeat(np.arange(24), 12)
    held = {'clustered': 0, 'plain': 0}
    for _ in range(300):
        a = rng.random(288) < np.repeat(rng.beta(0.5, 0.5, 24), 12)
        b = rng.random(288) < np.repeat(rng.beta(0.5, 0.5, 24), 12)
        held['clustered'] += clustered_wald(a, b, clusters_a=start, clusters_b=start + 24).interval.contains(0)
        held['plain'] += two_sample_wald(a, b).interval.contains(0)
    assert held['clustered'] / 300 > 0.91
    assert held['plain'] / 300 < 0.75


def test_one_cluster_is_not_enough() -> None:
    with pytest.raises(NotEstimable, match='2 clusters'):
        clustered_wald([1, 0], [0, 1], clusters_a=[1, 1], clusters_b=[1, 1])


def test_simulated_coverage_of_the_stratified_interval() -> None:
    rng = np.random.default_rng(3)
    p = np.array([[0.2], [0.5], [0.9]])
    held = [
        two_sample_wald(rng.random((3, 60)) < p + 0.05, rng.random((3, 60)) < p).interval.contains(0.05)
        for _ in range(1500)
    ]
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match='empty'):
        paired_wald([])
    with pytest.raises(InputError, match=r'differences\[1\] is nan'):
        paired_wald([0.1, math.nan])
    with pytest.raises(NotEstimable, match='at least 2'):
        paired_wald([1, 0, 1], strata=['x', 'x', 'y'])
    with pytest.raises(InputError, match='only one has: y'):
        two_sample_wald([1, 0, 1, 1], [1, 0], strata_a=['x', 'x', 'y', 'y'], strata_b=['x', 'x'])
    with pytest.raises(InputError, match='both samples or for neither'):
        two_sample_wald([1, 0], [1, 0], strata_a=['x', 'x'])
    with pytest.raises(InputError, match='alternative'):
        paired_wald([1, 0], alternative='bigger')
    with pytest.raises(InputError, match='level'):
        paired_wald([1, 0], 95)
