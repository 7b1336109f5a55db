"""Aggregates of (runs, tasks) against rliable on the same matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rliable import library, metrics

from robotrials.errors import InputError, UnknownName
from robotrials.stats import (
    aggregate,
    improvement_chance,
    iqm,
    mean_score,
    median_score,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    rank_policies,
)

SHAPES = st.tuples(st.integers(1, 12), st.integers(1, 9), st.integers(0, 10**6))


def matrix(runs: int, tasks: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.round(rng.beta(2, 2, (runs, tasks)) * 1.3, 1)


@settings(max_examples=60)
@given(SHAPES)
def test_point_aggregates_against_rliable(shape: tuple[int, int, int]) -> None:
    x = matrix(*shape)
    assert iqm(x) == pytest.approx(metrics.aggregate_iqm(x), abs=1e-12)
    assert mean_score(x) == pytest.approx(metrics.aggregate_mean(x), abs=1e-12)
    assert median_score(x) == pytest.approx(metrics.aggregate_median(x), abs=1e-12)
    assert optimality_gap(x) == pytest.approx(metrics.aggregate_optimality_gap(x), abs=1e-12)


@settings(max_examples=40)
@given(SHAPES, st.integers(1, 12))
def test_probability_of_improvement_against_rliable(shape: tuple[int, int, int], runs: int) -> None:
    a, b = matrix(*shape), matrix(runs, shape[1], shape[2] + 1)
    assert improvement_chance(a, b) == pytest.approx(metrics.probability_of_improvement(a, b), abs=1e-12)
    assert improvement_chance(a, b) + improvement_chance(b, a) == pytest.approx(1)


def test_profiles_against_rliable() -> None:
    x, at = matrix(10, 6, 0), np.linspace(0, 1.3, 14)
    ours = performance_profile(x, at, n_resamples=200, rng=np.random.default_rng(0))
    assert ours.share == pytest.approx([library.run_score_deviation(x, t) for t in at])
    by_task = performance_profile(x, at, n_resamples=200, rng=np.random.default_rng(0), of='tasks')
    assert by_task.share == pytest.approx([library.mean_score_deviation(x, t) for t in at])
    assert (ours.low <= ours.share + 1e-12).all()
    assert (ours.high >= ours.share - 1e-12).all()


@pytest.mark.filterwarnings('ignore:random_state is deprecated:FutureWarning')
def test_stratified_bootstrap_intervals_against_rliable() -> None:
    x = matrix(12, 8, 3)
    ours = aggregate(x, 'iqm', n_resamples=4000, rng=np.random.default_rng(0))
    _, theirs = library.get_interval_estimates(
        {'x': x}, lambda s: np.array([metrics.aggregate_iqm(s)]), reps=4000, random_state=np.random.RandomState(0)
    )
    assert tuple(ours.interval) == pytest.approx(tuple(theirs['x'].ravel()), abs=0.01)


def test_improvement_interval_covers_a_known_truth() -> None:
    rng = np.random.default_rng(4)
    held = 0
    for _ in range(60):
        a, b = rng.normal(0.5, 1, (25, 4)), rng.normal(0, 1, (25, 4))
        held += probability_of_improvement(a, b, n_resamples=200, rng=rng).interval.contains(0.6382)
    assert held / 60 > 0.88


def test_same_seed_same_numbers() -> None:
    x = matrix(9, 5, 7)
    one, again, other = (aggregate(x, n_resamples=50, rng=np.random.default_rng(s)).draws for s in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_ranks_with_their_uncertainty() -> None:
    rng = np.random.default_rng(8)
    scores = {
        'low': rng.normal(0, 0.1, (20, 3)),
        'top': rng.normal(3, 0.1, (20, 3)),
        'mid': rng.normal(1, 0.1, (20, 3)),
    }
    ours = rank_policies(scores, n_resamples=300, rng=rng)
    assert ours.rank == (3, 1, 2)
    assert ours.chance.sum(axis=1) == pytest.approx(np.ones(3))
    assert ours.expected == pytest.approx([3, 1, 2])
    gap = rank_policies(scores, 'optimality_gap', n_resamples=300, rng=rng)
    assert gap.rank[0] == 3


def test_equal_policies_share_their_ranks() -> None:
    same = np.tile([0.0, 1.0], 20)
    ours = rank_policies({'a': same, 'b': same}, n_resamples=2000, rng=np.random.default_rng(9))
    assert ours.rank == (1.5, 1.5)
    assert ours.chance == pytest.approx(np.full((2, 2), 0.5), abs=0.04)


def test_bad_input_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(UnknownName, match="did you mean 'iqm'"):
        aggregate([[1.0]], 'iqmm', n_resamples=10, rng=rng)
    with pytest.raises(InputError, match='same tasks'):
        probability_of_improvement([[1, 2]], [[1, 2, 3]], n_resamples=10, rng=rng)
    with pytest.raises(InputError, match='empty'):
        aggregate([], n_resamples=10, rng=rng)
    with pytest.raises(InputError, match='nan'):
        aggregate([[np.nan]], n_resamples=10, rng=rng)
    with pytest.raises(InputError, match='two policies'):
        rank_policies({'a': [1.0]}, n_resamples=10, rng=rng)
