"""Ratios to a reference: the written formulas, and that no interval explodes at 3 to 10 episodes per cell."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from robotrials.stats import RatioCells, RatioKind, macro_ratio, macro_ratio_bounds

TAU = 240.0


def _cells(above, below, n=5, spread=0.2) -> RatioCells:
    above, below = np.array(above, dtype=float), np.array(below, dtype=float)
    size = np.full(above.shape, float(n))
    return RatioCells(
        above, below, (spread * above) ** 2 / n, (spread * below) ** 2 / n, size, size, np.full(above.shape, TAU)
    )


def _ends(mean: float, variance: float, n: int) -> tuple[float, float]:
    """ln(M / L') and ln(U / M) of one policy in one stratum, as the note writes them."""
    z = stats.norm.ppf(0.95)
    ends = []
    for unseen in (mean / n, (TAU - mean) / n):
        u = z**2 * unseen**2
        degrees = (variance + u) ** 2 / (variance**2 / (n - 1))
        ends.append(stats.t.ppf(0.975, degrees) * math.sqrt(variance + u))
    x = ends[0] / mean
    return x + min(x, 0.5) ** 2 / 2, math.log(min(TAU, mean + ends[1]) / mean)


def test_one_stratum_is_the_written_formula() -> None:
    cells = _cells([10.0], [40.0])
    low, high = macro_ratio_bounds(cells, kind=RatioKind.RATIO_OF_MEANS)
    down_h, up_h = _ends(10.0, 4.0 / 5, 5)
    down_m, up_m = _ends(40.0, 64.0 / 5, 5)
    assert float(low) == pytest.approx(0.25 * math.exp(-math.hypot(down_h, up_m)))
    assert float(high) == pytest.approx(0.25 * math.exp(math.hypot(up_h, down_m)))
    fixed = macro_ratio_bounds(cells, kind=RatioKind.FIXED_REFERENCE)
    centre = 0.25 * (1 - 64.0 / 5 / 40**2)
    assert float(fixed[0]) == pytest.approx(centre * math.exp(-up_m))
    assert float(fixed[1]) == pytest.approx(centre * math.exp(down_m))


def test_point_estimates_are_what_their_names_say() -> None:
    cells = _cells([10.0, 20.0], [20.0, 160.0])
    assert float(macro_ratio(cells)) == pytest.approx((0.5 + 0.125) / 2)
    assert float(macro_ratio(cells, RatioKind.RATIO_OF_MEANS)) == pytest.approx(30 / 180)


@pytest.mark.parametrize('kind', list(RatioKind))
@pytest.mark.parametrize('n', [3, 5, 10])
def test_intervals_hold_their_value_and_stay_finite(kind: RatioKind, n: int) -> None:
    """One interval read 19 % [4, 88867]: with 3 episodes per cell and tau = 24 times the reference's mean."""
    rng = np.random.default_rng(n)
    for strata in (1, 4):
        cells = _cells(rng.uniform(8, 15, strata), rng.uniform(30, 90, strata), n, spread=0.6)
        low, high = (float(x) for x in macro_ratio_bounds(cells, kind=kind))
        assert 0 < low <= float(macro_ratio(cells, kind)) <= high
        assert high / low < 2_000


def test_a_ratio_lies_inside_the_box_of_both_means() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        cells = _cells(rng.uniform(5, 30, 1), rng.uniform(20, 150, 1), int(rng.integers(3, 30)), rng.uniform(0, 1))
        low, high = (float(x) for x in macro_ratio_bounds(cells, kind=RatioKind.RATIO_OF_MEANS))
        n = int(cells.n_above[0])
        down_h, up_h = _ends(float(cells.above[0]), float(cells.variance_above[0]) or 1e-12, n)
        down_m, up_m = _ends(float(cells.below[0]), float(cells.variance_below[0]) or 1e-12, n)
        ratio = float(macro_ratio(cells))
        assert ratio * math.exp(-down_h - up_m) <= low * (1 + 1e-9)
        assert high <= ratio * math.exp(up_h + down_m) * (1 + 1e-9)
