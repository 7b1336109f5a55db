"""Non-inferiority of capped mean times: Welch and Fieller as oracles, sizes by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from robotrials.errors import InputError, NotEstimable
from robotrials.stats import MeanCell, clustered_covariance, ratio_noninferiority
from robotrials.stats.ratio import unseen_variance

TAU_S = 60.0


def times(rng: np.random.Generator, shape: tuple[int, ...], *, success: float, spread: float = 0.5) -> np.ndarray:
    drawn = 15.0 * np.exp(spread * rng.normal(size=shape))
    return np.minimum(np.where(rng.random(shape) < success, drawn, np.inf), TAU_S)


def cells(a: np.ndarray, b: np.ndarray) -> list[MeanCell]:
    return [
        MeanCell(x.mean(), y.mean(), x.var(ddof=1) / len(x), y.var(ddof=1) / len(y), len(x), len(y))
        for x, y in zip(a, b, strict=True)
    ]


def test_without_the_unseen_it_is_welchs_test() -> None:
    """Ten thousand episodes of a scale whose ends are near: what was not seen weighs nothing."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(10.2, 1.0, 10000), rng.normal(10.0, 2.0, 8000)
    found = ratio_noninferiority(cells(a[None], b[None]), margin=0.02, cap=20)
    theirs = stats.ttest_ind(a, 1.02 * b, equal_var=False, alternative='less')
    assert found.p_value == pytest.approx(theirs.pvalue, abs=2e-3)


def test_the_bounds_are_fiellers() -> None:
    """Matched pairs, normal quantiles: the roots of (M1 - t M2)^2 = z^2 (V1 + t^2 V2 - 2 t C)."""
    n, v1, v2, c, m1, m2, cap = 4000, 4e-3, 3e-3, 2e-3, 10.0, 9.0, 12.0
    found = ratio_noninferiority([MeanCell(m1, m2, v1, v2, n, n, c)], margin=0.2, cap=cap)
    z = stats.t.ppf(0.95, n - 1)
    e1, e2 = unseen_variance(m1, m2, cap=cap, n=(n, n), alpha=0.05, is_upper=True)
    roots = np.roots([m2**2 - z**2 * (v2 + e2), -2 * (m1 * m2 - z**2 * c), m1**2 - z**2 * (v1 + e1)])
    assert found.high == pytest.approx(max(roots), abs=1e-9)
    assert found.is_shown == (found.high <= 1.2)


def test_the_bound_and_the_test_agree() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        made = cells(times(rng, (3, 6), success=0.9), times(rng, (3, 9), success=0.8))
        found = ratio_noninferiority(made, margin=0.4, cap=TAU_S)
        assert found.is_shown == (found.high <= 1.4)
        assert found.is_worse == (found.low >= 1.0)
        assert found.low <= found.ratio <= found.high


def slower_rate(success: float, margin: float, rng: np.random.Generator, *, spread: float = 0.5) -> float:
    """The lower success rate that makes the mean time longer by exactly the margin."""
    quick = times(rng, (400_000,), success=1.0, spread=spread).mean()
    base = success * quick + (1 - success) * TAU_S
    return (TAU_S - (1 + margin) * base) / (TAU_S - quick)


def size(rng: np.random.Generator, strata: int, n: tuple[int, int], success: float, *, trials: int) -> float:
    """How often a trial at the margin passes; the new policy is slower because it fails more."""
    margin = 0.3
    rate = slower_rate(success, margin, rng)
    passed = 0
    for _ in range(trials):
        made = cells(times(rng, (strata, n[0]), success=rate), times(rng, (strata, n[1]), success=success))
        passed += ratio_noninferiority(made, margin=margin, cap=TAU_S).is_shown
    return passed / trials


@pytest.mark.parametrize(('strata', 'n'), [(1, (10, 10)), (4, (5, 5)), (1, (20, 200)), (4, (30, 30))])
@pytest.mark.parametrize('success', [0.5, 0.9, 1.0])
def test_at_the_margin_it_passes_in_at_most_five_percent(strata: int, n: tuple[int, int], success: float) -> None:
    rng = np.random.default_rng(5)
    assert size(rng, strata, n, success, trials=400) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def test_without_the_unseen_a_t_bound_would_pass_far_too_often() -> None:
    """The reason for the z^2 unseen episodes: 20 of a new policy against 200 of one that hardly fails."""
    rng = np.random.default_rng(6)
    rate = slower_rate(0.98, 0.1, rng, spread=0.2)
    a = times(rng, (1000, 20), success=rate, spread=0.2)
    b = times(rng, (1000, 200), success=0.98, spread=0.2)
    error = np.sqrt(a.var(axis=1, ddof=1) / 20 + 1.21 * b.var(axis=1, ddof=1) / 200)
    plain = np.mean((a.mean(axis=1) - 1.1 * b.mean(axis=1)) / error <= stats.t.ppf(0.05, 19))
    ours = np.mean(
        [
            ratio_noninferiority(cells(x[None], y[None]), margin=0.1, cap=TAU_S).is_shown
            for x, y in zip(a, b, strict=True)
        ]
    )
    assert plain > 0.15
    assert ours <= 0.05


def test_identical_times_do_not_prove_equality() -> None:
    """Everyone timed out: no spread, and still nothing shown from three episodes."""
    never = MeanCell(TAU_S, TAU_S, 0.0, 0.0, 3, 3)
    found = ratio_noninferiority([never], margin=0.1, cap=TAU_S)
    assert not found.is_shown
    assert found.high > 1.1


def test_pairs_that_agree_narrow_the_bound() -> None:
    apart = ratio_noninferiority([MeanCell(10, 10, 0.5, 0.5, 200, 200)], margin=0.1, cap=20)
    close = ratio_noninferiority([MeanCell(10, 10, 0.5, 0.5, 200, 200, 0.45)], margin=0.1, cap=20)
    assert close.high < apart.high
    assert close.is_paired


def test_one_episode_a_stratum_has_no_bound() -> None:
    with pytest.raises(NotEstimable, match='at least 2'):
        MeanCell(10, 10, 0.0, 0.0, 1, 5)


def test_mixed_cells_a_low_cap_and_an_odd_margin_are_refused() -> None:
    plain, paired = MeanCell(10, 10, 1, 1, 5, 5), MeanCell(10, 10, 1, 1, 5, 5, 0.5)
    with pytest.raises(InputError, match='mixed'):
        ratio_noninferiority([plain, paired], margin=0.1, cap=20)
    with pytest.raises(InputError, match='cap is 5'):
        ratio_noninferiority([plain], margin=0.1, cap=5)
    with pytest.raises(InputError, match='margin'):
        ratio_noninferiority([plain], margin=0.0, cap=20)
    with pytest.raises(NotEstimable, match='is 0'):
        ratio_noninferiority([MeanCell(10, 0, 1, 0, 5, 5)], margin=0.1, cap=20)
    with pytest.raises(InputError, match='no stratum'):
        ratio_noninferiority([], margin=0.1, cap=20)


def test_clustered_covariance_is_that_of_cluster_means() -> None:
    """Equal clusters: the variance of the mean of cluster means."""
    rng = np.random.default_rng(7)
    a, b = rng.normal(size=(12, 3)), rng.normal(size=(12, 3))
    influence = [((x - x.mean()) / x.size).ravel() for x in (a, b)]
    labels = [i for i in range(12) for _ in range(3)]
    expected = np.cov(a.mean(axis=1), b.mean(axis=1)) / 12
    found = clustered_covariance(*influence, labels)
    assert found == pytest.approx((expected[0, 0], expected[1, 1], expected[0, 1]))
    alone = clustered_covariance(*influence)
    assert alone[0] == pytest.approx(a.var(ddof=1) / a.size)
    with pytest.raises(NotEstimable, match='start states'):
        clustered_covariance(np.zeros(3), np.zeros(3), ['x', 'x', 'x'])


def fast_passes(a: np.ndarray, b: np.ndarray, margin: float) -> float:
    """The share of trials (trials, strata, n) that pass, by the same arithmetic for all of them at once."""
    k, n1, n2, factor = a.shape[1], a.shape[2], b.shape[2], 1 + margin
    m1, m2 = a.mean(axis=(1, 2)), b.mean(axis=(1, 2))
    v1, v2 = a.var(axis=2, ddof=1) / n1 / k**2, factor**2 * b.var(axis=2, ddof=1) / n2 / k**2
    total = v1.sum(axis=1) + v2.sum(axis=1)
    squares = (v1**2).sum(axis=1) / (n1 - 1) + (v2**2).sum(axis=1) / (n2 - 1)
    df = np.maximum(total**2 / np.maximum(squares, 1e-300), min(n1, n2) - 1)
    unseen = stats.norm.ppf(0.95) ** 2 * (((TAU_S - m1) / (k * n1)) ** 2 + (factor * m2 / (k * n2)) ** 2)
    return float(np.mean(stats.t.cdf((m1 - factor * m2) / np.sqrt(total + unseen), df) <= 0.05))


def test_the_fast_arithmetic_of_the_study_is_that_of_the_test() -> None:
    rng = np.random.default_rng(8)
    a, b = times(rng, (60, 3, 8), success=0.95), times(rng, (60, 3, 12), success=0.8)
    ours = np.mean(
        [ratio_noninferiority(cells(x, y), margin=0.3, cap=TAU_S).is_shown for x, y in zip(a, b, strict=True)]
    )
    assert 0 < ours < 1
    assert fast_passes(a, b, 0.3) == pytest.approx(ours)


@pytest.mark.study
@pytest.mark.parametrize('strata', [1, 4, 10])
@pytest.mark.parametrize('n', [(5, 5), (10, 10), (20, 200), (50, 50), (200, 200)])
def test_study_of_the_size_at_the_margin(strata: int, n: tuple[int, int]) -> None:
    """Slower by failing more, from a baseline of 50 to 100 % success, and margins of 10 and 30 %."""
    rng = np.random.default_rng(9)
    for success in (0.5, 0.9, 0.98, 1.0):
        for margin in (0.1, 0.3):
            rate = slower_rate(success, margin, rng)
            a = times(rng, (2000, strata, n[0]), success=rate)
            passed = fast_passes(a, times(rng, (2000, strata, n[1]), success=success), margin)
            print(f'{strata} x {n}, success {success}, margin {margin}: {passed:.3f}')
            assert passed <= 0.06 + 3 * math.sqrt(0.05 * 0.95 / 2000)
