"""The passes against plain numpy, lifelines and each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robotrials.errors import NotEstimable
from robotrials.measure.timing import Operations, auc, curve_auc, kernel, ks_distance, rmst, success_curve
from robotrials.measure.timing.resample import (
    NullMethod,
    contrast_trials,
    curve_draws,
    ks_trials,
    macro_curve_draws,
    pair_layout,
    scalar_draws,
    sort_cell,
)
from robotrials.measure.timing.scalar import auc_draws, resampled_cells

INF = float('inf')


def random_cell(rng: np.random.Generator, *, n_episodes: int = 12, coarse: bool = False) -> Operations:
    episode = np.repeat(np.arange(n_episodes), rng.integers(1, 6, n_episodes))
    times = rng.exponential(40, len(episode))
    times = np.ceil(times / 10) * 10 if coarse else times
    ghost = rng.random(len(times)) < 0.1
    return Operations(np.where(ghost, INF, times), ghost | (rng.random(len(times)) < 0.7), episode)


def test_bootstrap_rows_are_curves_of_resampled_episodes() -> None:
    """F on a grid and the scalars come from the same resamples: the integral of one is the other."""
    cell = sort_cell(random_cell(np.random.default_rng(3)))
    seed = np.uint64(11)
    grid = np.linspace(0, 60, 6001)
    curves = curve_draws(cell, grid, n_resamples=20, seed=seed)
    scalars = scalar_draws(cell, n_resamples=20, seed=seed, tau_s=60.0)
    integral = (1.0 - curves[:, :-1]).sum(axis=1) * 0.01
    assert np.allclose(integral, scalars[:, 0], atol=0.02 * 6)
    assert np.allclose(curves[:, -1], scalars[:, 1], atol=1e-12)


def test_bootstrap_mean_and_spread_are_those_of_numpy_resampling() -> None:
    rng = np.random.default_rng(5)
    cell = random_cell(rng, n_episodes=15)
    ours = scalar_draws(sort_cell(cell), n_resamples=4000, seed=np.uint64(1), tau_s=60.0)[:, 0]
    plain = []
    for _ in range(1500):
        drawn = cell.take(rng.integers(0, 15, 15))
        plain.append(rmst(success_curve(drawn.durations_s, drawn.observed), 60.0))
    assert ours.mean() == pytest.approx(np.mean(plain), abs=4 * np.std(plain) / np.sqrt(1500))
    assert ours.std() == pytest.approx(np.std(plain), rel=0.1)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([None, 50.0]))
def test_ks_of_the_recorded_arrangement_equals_the_plain_curves(seed: int, coarse: bool, tau_s: float | None) -> None:
    rng = np.random.default_rng(seed)
    a, b = ({s: random_cell(rng, coarse=coarse) for s in 'xy'} for _ in range(2))
    layout = pair_layout(a, b, tau_s=tau_s)
    seen, _ = ks_trials(
        layout, layout.own_units(), n_a=layout.n_a, n_b=layout.n_b, n_resamples=1, method=NullMethod.PERMUTATION,
        seed=np.uint64(0),
    )  # fmt: skip
    for k, s in enumerate('xy'):
        plain = [success_curve(c[s].durations_s, c[s].observed) for c in (a, b)]
        assert seen[0, k] == pytest.approx(ks_distance(plain[0], plain[1], tau_s=tau_s)[0], abs=1e-12)


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_contrasts_of_a_subsample_equal_the_plain_curves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_cell(rng, coarse=True), random_cell(rng)
    layout = pair_layout({'s': a}, {'s': b})
    units = np.concatenate([rng.integers(0, 12, (3, 7)), 12 + rng.integers(0, 12, (3, 7))], axis=1).astype(np.int32)
    sizes = np.array([7])
    seen, _ = contrast_trials(
        layout, units, n_a=sizes, n_b=sizes, n_resamples=1, method=NullMethod.POOLED_BOOTSTRAP, seed=np.uint64(0),
        tau_s=70.0, thresholds_s=[20.0, 35.0],
    )  # fmt: skip
    for trial in range(3):
        drawn = [a.take(units[trial, :7]), b.take(units[trial, 7:] - 12)]
        curves = [success_curve(c.durations_s, c.observed) for c in drawn]
        wanted = [
            ks_distance(*curves, tau_s=70.0)[0],
            rmst(curves[0], 70.0) - rmst(curves[1], 70.0),
            *(float(curves[0].at(t)) - float(curves[1].at(t)) for t in (20.0, 35.0)),
        ]
        assert seen[trial, 0] == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize('method', list(NullMethod))
def test_results_do_not_depend_on_the_number_of_threads(method: NullMethod) -> None:
    rng = np.random.default_rng(8)
    layout = pair_layout({'s': random_cell(rng)}, {'s': random_cell(rng)})
    many = np.repeat(layout.own_units(), 40, axis=0)
    for units, resamples in ((layout.own_units(), 300), (many, 20)):
        nulls = [
            ks_trials(layout, units, n_a=layout.n_a, n_b=layout.n_b, n_resamples=resamples, method=method,
                      seed=np.uint64(5), threads=threads)[1]
            for threads in (1, 2, 3)
        ]  # fmt: skip
        assert np.array_equal(nulls[0], nulls[1])
        assert np.array_equal(nulls[0], nulls[2])
    assert not np.array_equal(nulls[0][0], nulls[0][1]), 'every trial has its own streams'
    cell = sort_cell(random_cell(rng))
    draws = [scalar_draws(cell, n_resamples=101, seed=np.uint64(5), tau_s=60.0, threads=k) for k in (1, 2)]
    assert np.array_equal(*draws)
    other = scalar_draws(cell, n_resamples=101, seed=np.uint64(6), tau_s=60.0)
    assert not np.array_equal(draws[0], other)


def test_permutations_of_two_episodes_are_all_dealt_equally_often() -> None:
    """With 2 + 2 single-operation episodes there are 6 deals and 3 distinct distances."""
    a, b = (Operations(np.array(t), np.ones(2, dtype=bool), np.arange(2)) for t in ([1.0, 2.0], [3.0, 4.0]))
    layout = pair_layout({'s': a}, {'s': b})
    _, null = ks_trials(
        layout, layout.own_units(), n_a=layout.n_a, n_b=layout.n_b, n_resamples=30_000, method=NullMethod.PERMUTATION,
        seed=np.uint64(2),
    )  # fmt: skip
    assert np.mean(null == 1.0) == pytest.approx(1 / 3, abs=0.01)
    assert np.mean(null == 0.5) == pytest.approx(2 / 3, abs=0.01)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([None, 60.0]))
def test_auc_by_kernel_equals_auc_by_curves_and_is_antisymmetric(seed: int, coarse: bool, tau_s: float | None) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_cell(rng, coarse=coarse), random_cell(rng, coarse=coarse)
    curves = [success_curve(c.durations_s, c.observed) for c in (a, b)]
    by_kernel = auc({'s': a}, {'s': b}, tau_s=tau_s, n_resamples=2, rng=rng).value
    assert by_kernel == pytest.approx(curve_auc(*curves, tau_s=tau_s), abs=1e-12)
    assert curve_auc(*curves, tau_s=tau_s) + curve_auc(*curves[::-1], tau_s=tau_s) == pytest.approx(1, abs=1e-12)


def drawn_episodes(seed: np.uint64, row: int, n: int) -> np.ndarray:
    """Which episodes resample `row` of a stream draws."""
    return np.sort(kernel.draw_episodes(seed, row, 1, n)[0])


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([None, 60.0]), st.sampled_from([3, 12]))
def test_resampled_auc_and_chances_are_those_of_the_plain_curves(
    seed: int, coarse: bool, tau_s: float | None, n_episodes: int
) -> None:
    """Few episodes, so that a resample's last operation is often censored and its curve unknown from there."""
    rng = np.random.default_rng(seed)
    cells = [random_cell(rng, n_episodes=n_episodes, coarse=coarse) for _ in range(2)]
    seeds = np.uint64(seed), np.uint64(seed + 1)
    areas = auc_draws(cells[0], cells[1], seeds=seeds, tau_s=tau_s, n_resamples=35, threads=2).draws
    grid = np.array([20.0, 30.0, 60.0])
    chances = curve_draws(sort_cell(cells[0]), grid, n_resamples=35, seed=seeds[0], threads=2)
    for row in range(35):
        drawn = [c.take(drawn_episodes(s, row, n_episodes)) for c, s in zip(cells, seeds, strict=True)]
        curves = [success_curve(c.durations_s, c.observed) for c in drawn]
        assert areas[row] == pytest.approx(curve_auc(*curves, tau_s=tau_s), abs=1e-12)
        assert chances[row] == pytest.approx(curves[0].at(grid), abs=1e-12)


def test_the_resampled_macro_curve_is_the_mean_of_the_resampled_curves() -> None:
    rng = np.random.default_rng(9)
    cells = [(sort_cell(random_cell(rng, coarse=k == 1)), np.uint64(k)) for k in range(3)]
    grid = np.concatenate([np.unique(np.concatenate([c.times_s[::2] for c, _ in cells])), [500.0]])
    for threads in (1, 2):
        macro = macro_curve_draws(cells, grid, n_resamples=70, threads=threads)
        each = [curve_draws(cell, grid, n_resamples=70, seed=seed) for cell, seed in cells]
        assert macro == pytest.approx(np.mean(each, axis=0), abs=1e-13)


def test_auc_without_censoring_is_the_share_of_won_races() -> None:
    """Brute force over all pairs; ties count half, infinity = infinity included."""
    x, y = np.array([1.0, 5, 5, INF, 9]), np.array([2.0, 5, INF, INF])
    brute = np.mean([(i < j) + 0.5 * (i == j) for i in x for j in y])
    assert curve_auc(success_curve(x, x > 0), success_curve(y, y > 0)) == pytest.approx(brute, abs=1e-12)


def test_an_empty_cell_is_not_estimable() -> None:
    nothing = Operations(np.empty(0), np.empty(0, dtype=bool), np.empty(0, dtype=int))
    with pytest.raises(NotEstimable, match='no operation'):
        resampled_cells({'s': nothing}, n_resamples=2, rng=np.random.default_rng(0))
