"""Leaving one episode out, against the plain curve without it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robotrials.measure.timing import Operations, curve_auc, rmst, success_curve
from robotrials.measure.timing.resample import auc_jackknife, pair_layout, scalar_jackknife, sort_cell

INF = float('inf')


def odd_cell(rng: np.random.Generator) -> Operations:
    """Any mixture of ties, ghosts, censorings, single and long episodes, and episodes without an operation."""
    n_episodes = int(rng.integers(1, 14))
    most = int(rng.choice([1, 2, 6, 40]))
    sizes = rng.integers(0, most + 1, n_episodes)
    sizes[int(rng.integers(n_episodes))] = most
    episode = np.repeat(np.arange(n_episodes), sizes)
    times = rng.exponential(40, len(episode))
    if rng.random() < 0.6:
        times = np.floor(times / 10) * 10
    ghost = rng.random(len(times)) < rng.choice([0.0, 0.1, 0.5])
    seen = rng.random(len(times)) < rng.choice([0.0, 0.5, 0.9, 1.0])
    return Operations(np.where(ghost, INF, times), ghost | seen, episode, scored=np.arange(n_episodes))


def rest_of(cell: Operations, e: int) -> Operations:
    return cell.take([c for c in range(cell.n_episodes) if c != e])


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.sampled_from([10.0, 60.0, 1000.0]))
def test_scalars_equal_those_of_the_plain_curve_without_the_episode(seed: int, tau_s: float) -> None:
    cell = odd_cell(np.random.default_rng(seed))
    table = scalar_jackknife(sort_cell(cell), tau_s=tau_s, levels=[0.25, 0.5, 0.9])
    for e in range(cell.n_episodes + 1):
        rest = rest_of(cell, e)
        if rest.n_operations == 0:
            assert table[e, :4].tolist() == [tau_s, 0.0, 0.0, 0.0]
            continue
        curve = success_curve(rest.durations_s, rest.observed)
        assert table[e, 0] == pytest.approx(rmst(curve, tau_s), rel=1e-12)
        assert table[e, 1] == pytest.approx(curve.at(tau_s), rel=1e-12, abs=1e-13)
        assert table[e, 3] == pytest.approx(curve.plateau, rel=1e-12, abs=1e-13)
        inside = curve.times_s <= tau_s
        moment = np.sum(np.diff(np.concatenate([[0.0], curve.chance]))[inside] * curve.times_s[inside])
        assert table[e, 2] == pytest.approx(moment, rel=1e-12, abs=1e-11)
        for k, level in enumerate((0.25, 0.5, 0.9)):
            found = curve.quantile(level)
            assert np.isnan(table[e, 4 + k]) if found is None else table[e, 4 + k] == found


@settings(max_examples=500)
@given(st.integers(0, 2**32), st.sampled_from([None, 10.0, 60.0]))
def test_auc_equals_that_of_the_plain_curves_without_the_episode(seed: int, tau_s: float | None) -> None:
    rng = np.random.default_rng(seed)
    arms = odd_cell(rng), odd_cell(rng)
    curves = [success_curve(c.durations_s, c.observed) for c in arms]
    found = auc_jackknife(pair_layout({'s': arms[0]}, {'s': arms[1]}, tau_s=tau_s)).tolist()
    assert found.pop() == pytest.approx(curve_auc(*curves, tau_s=tau_s), rel=1e-12, abs=1e-13)
    for side, cell in enumerate(arms):
        for e in range(cell.n_episodes):
            left, rest = found.pop(0), rest_of(cell, e)
            if rest.n_operations == 0:
                assert 0 <= left <= 1
                continue
            pair = list(curves)
            pair[side] = success_curve(rest.durations_s, rest.observed)
            assert left == pytest.approx(curve_auc(*pair, tau_s=tau_s), rel=1e-12, abs=1e-13)


def test_an_episode_in_which_all_of_the_last_operations_fall() -> None:
    """Without it the others are through by 3 s; with a censored last one the curve is held flat from there."""
    times = np.array([1.0, 2.0, 3.0, 8.0, 9.0, 9.0])
    episode = np.array([0, 1, 2, 3, 3, 3])
    for seen, left in ((True, 0.0), (False, 1 / 3)):
        cell = Operations(times, np.array([True, True, seen, True, True, False]), episode)
        row = scalar_jackknife(sort_cell(cell), tau_s=20.0)[3]
        assert row == pytest.approx([2.0 + left * 17.0, 1 - left, 1.0 if not seen else 2.0, 1 - left], rel=1e-13)


def test_a_large_cell_costs_little_and_agrees_with_a_plain_curve() -> None:
    """Twenty thousand episodes: the left-out rows of a few of them, against success_curve."""
    rng = np.random.default_rng(7)
    n = 20_000
    episode = np.repeat(np.arange(n), rng.integers(1, 4, n))
    times = np.round(rng.exponential(30, len(episode)), 1)
    cell = Operations(np.minimum(times, 60.0), times < 60.0, episode)
    table = scalar_jackknife(sort_cell(cell), tau_s=55.0, levels=[0.5])
    for e in rng.integers(0, n, 8):
        kept = episode != e
        curve = success_curve(cell.durations_s[kept], cell.observed[kept])
        assert table[e, 0] == pytest.approx(rmst(curve, 55.0), rel=1e-12)
        assert table[e, 1] == pytest.approx(curve.at(55.0), rel=1e-12)
        assert table[e, 4] == curve.median_s
