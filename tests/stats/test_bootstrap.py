"""The clustered bootstrap: against scipy's BCa, exact enumeration, simulated coverage, and its own seed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats as scipy_stats

from robotrials.errors import InputError, NotEstimable
from robotrials.stats import (
    bootstrap,
    bootstrap_interval,
    cluster_bootstrap,
    jackknife_statistics,
    resample_counts,
    weighted_mean,
)


def test_percentile_ends_agree_with_full_enumeration() -> None:
    """All 4^4 resamples of four clusters, equally likely."""
    values = np.array([1.0, 2.0, 4.0, 8.0, 3.0])
    clusters = np.array([0, 1, 2, 3, 3])
    rows = [np.flatnonzero(clusters == k) for k in range(4)]
    means = [values[np.concatenate([rows[k] for k in draw])].mean() for draw in itertools.product(range(4), repeat=4)]
    ours = cluster_bootstrap(values, clusters, n_resamples=40_000, rng=np.random.default_rng(0), level=0.8)
    assert ours.estimate == values.mean()
    assert np.mean(ours.draws) == pytest.approx(np.mean(means), abs=0.02)
    assert tuple(ours.interval) == pytest.approx(np.quantile(means, [0.1, 0.9]), abs=0.15)


def test_bca_against_scipy() -> None:
    x = np.random.default_rng(4).exponential(size=40)
    ours = cluster_bootstrap(x, np.arange(40), n_resamples=20_000, rng=np.random.default_rng(0), method='bca')
    peer = scipy_stats.bootstrap((x,), np.mean, n_resamples=20_000, rng=np.random.default_rng(1), method='BCa')
    assert tuple(ours.interval) == pytest.approx(tuple(peer.confidence_interval), abs=0.02)
    assert ours.interval.high - ours.estimate > ours.estimate - ours.interval.low


def test_stratified_acceleration_against_scipy_with_two_samples() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.exponential(size=25), rng.exponential(2, size=18)
    values, cell = np.r_[a, b], np.repeat([0, 1], [25, 18])

    def difference(v: np.ndarray, w: np.ndarray) -> np.ndarray:
        return weighted_mean(v[:25], w[:, :25]) - weighted_mean(v[25:], w[:, 25:])

    ours = cluster_bootstrap(
        values, np.arange(43), statistic=difference, strata=cell, n_resamples=20_000, rng=rng, method='bca'
    )
    peer = scipy_stats.bootstrap(
        (a, b), lambda p, q, axis=-1: p.mean(axis) - q.mean(axis), n_resamples=20_000, rng=rng, method='BCa'
    )
    assert tuple(ours.interval) == pytest.approx(tuple(peer.confidence_interval), abs=0.06)


def test_clusters_are_drawn_whole_and_strata_keep_their_sizes() -> None:
    counts = resample_counts([0, 0, 0, 1, 1], n_resamples=200, rng=np.random.default_rng(0))
    assert (counts[:, :3].sum(1) == 3).all()
    assert (counts[:, 3:].sum(1) == 2).all()
    assert counts.mean(0) == pytest.approx(np.ones(5), abs=0.2)


def test_same_seed_same_draws_whatever_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    values, clusters = np.random.default_rng(1).random(30), np.repeat(np.arange(10), 3)
    once = cluster_bootstrap(values, clusters, n_resamples=100, rng=np.random.default_rng(7))
    monkeypatch.setattr(bootstrap, 'BATCH_ENTRIES', 7 * 30)
    again = cluster_bootstrap(values, clusters, n_resamples=100, rng=np.random.default_rng(7))
    other = cluster_bootstrap(values, clusters, n_resamples=100, rng=np.random.default_rng(8))
    assert np.array_equal(once.draws, again.draws)
    assert not np.array_equal(once.draws, other.draws)


def test_clustering_widens_the_interval_and_restores_coverage() -> None:
    """Ten correlated rows an episode: row-wise draws cover far too little, episode-wise draws about as they should."""
    rng = np.random.default_rng(2)
    held = {'rows': 0, 'episodes': 0}
    for _ in range(300):
        values = (rng.normal(size=(30, 1)) + 0.3 * rng.normal(size=(30, 10))).ravel()
        for kind, clusters in (('rows', np.arange(300)), ('episodes', np.repeat(np.arange(30), 10))):
            held[kind] += cluster_bootstrap(values, clusters, n_resamples=200, rng=rng).interval.contains(0)
    assert held['rows'] / 300 < 0.6
    assert 0.89 < held['episodes'] / 300 < 0.98


def test_jackknife_leaves_one_cluster_out() -> None:
    values, clusters = np.array([1.0, 2.0, 3.0, 10.0]), np.array([0, 0, 1, 2])
    assert jackknife_statistics(weighted_mean, values, clusters) == pytest.approx([6.5, 13 / 3, 2.0])


def test_infinite_values_are_allowed_and_nan_is_not() -> None:
    values = np.array([1.0, 2.0, np.inf, 4.0])

    def finite_share(v: np.ndarray, w: np.ndarray) -> np.ndarray:
        return w @ np.isfinite(v) / w.sum(axis=1)

    ours = cluster_bootstrap(values, np.arange(4), statistic=finite_share, n_resamples=50, rng=np.random.default_rng(0))
    assert ours.estimate == 0.75
    with pytest.raises(InputError, match=r'values\[1\] is nan'):
        cluster_bootstrap([1.0, np.nan], [0, 1], n_resamples=5, rng=np.random.default_rng(0))


def test_infinite_draws_stay_infinite_and_nan_draws_raise() -> None:
    draws = np.r_[np.arange(90.0), np.full(10, np.inf)]
    assert bootstrap_interval(40.0, draws).high == np.inf
    assert bootstrap_interval(40.0, draws).low == pytest.approx(2.475)
    with pytest.raises(NotEstimable, match='1 of 3 resamples'):
        bootstrap_interval(1.0, np.array([1.0, np.nan, 2.0]))


def test_bad_input_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match='empty'):
        cluster_bootstrap([], [], n_resamples=10, rng=rng)
    with pytest.raises(InputError, match='one label for each of the 3'):
        cluster_bootstrap([1, 2, 3], [0, 1], n_resamples=10, rng=rng)
    with pytest.raises(InputError, match='within one stratum'):
        cluster_bootstrap([1, 2], [0, 0], strata=['x', 'y'], n_resamples=10, rng=rng)
    with pytest.raises(InputError, match='n_resamples'):
        cluster_bootstrap([1, 2], [0, 1], n_resamples=0, rng=rng)
    with pytest.raises(InputError, match='one number per row'):
        cluster_bootstrap([1, 2], [0, 1], statistic=lambda v, w: w, n_resamples=5, rng=rng)
    with pytest.raises(InputError, match='method'):
        bootstrap_interval(1.0, np.array([1.0, 2.0]), method='t')
    with pytest.raises(NotEstimable, match='both sides'):
        bootstrap_interval(9.0, np.array([1.0, 2.0]), method='bca', jackknife=np.array([1.0, 2.0]))
