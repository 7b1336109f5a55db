"""Group-sequential boundaries against published tables and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from robotrials.errors import InputError
from robotrials.verdict.planning import drift_for_power, group_sequential, operating_characteristics, spending_bounds


@pytest.mark.parametrize(
    ('looks', 'pocock', 'obrien_fleming'),
    [(1, 1.960, 1.960), (2, 2.178, 1.977), (3, 2.289, 2.004), (4, 2.361, 2.024), (5, 2.413, 2.040), (10, 2.555, 2.087)],
)
def test_constants_of_jennison_and_turnbull(looks: int, pocock: float, obrien_fleming: float) -> None:
    """Group Sequential Methods (2000), Tables 2.1 and 2.3, two-sided alpha = 0.05; O'Brien-Fleming is c sqrt(K/k)."""
    assert group_sequential(looks, shape='pocock').bounds == pytest.approx(np.full(looks, pocock), abs=6e-4)
    expected = obrien_fleming * np.sqrt(looks / np.arange(1, looks + 1))
    assert group_sequential(looks).bounds == pytest.approx(expected, abs=2e-3)


def test_constants_at_another_alpha() -> None:
    """Jennison and Turnbull, Tables 2.1 and 2.3, alpha = 0.01: 2.986 (K = 5), and 2.609 and 2.621 (K = 4, 5)."""
    assert group_sequential(5, alpha=0.01, shape='pocock').bounds[-1] == pytest.approx(2.986, abs=6e-4)
    assert group_sequential(4, alpha=0.01).bounds[-1] == pytest.approx(2.609, abs=6e-4)
    assert group_sequential(5, alpha=0.01).bounds[-1] == pytest.approx(2.621, abs=6e-4)


def test_lan_demets_bounds_at_five_equal_looks() -> None:
    """The usual published bounds for two-sided 0.05: O'Brien-Fleming type, and Pocock type spending."""
    fifths = [0.2, 0.4, 0.6, 0.8, 1.0]
    assert spending_bounds(fifths, spending='obrien_fleming').bounds == pytest.approx(
        [4.877, 3.357, 2.680, 2.290, 2.031], abs=1e-3
    )
    assert spending_bounds(fifths, spending='pocock').bounds == pytest.approx(
        [2.438, 2.427, 2.410, 2.397, 2.386], abs=1e-3
    )


def test_inflation_of_the_sample_size() -> None:
    """Jennison and Turnbull, Tables 2.2 and 2.4, K = 5, power 0.8: 1.229 (Pocock) and 1.028 (O'Brien-Fleming)."""
    fixed = 1.959964 + 0.841621
    assert (drift_for_power(group_sequential(5, shape='pocock')) / fixed) ** 2 == pytest.approx(1.229, abs=1e-3)
    assert (drift_for_power(group_sequential(5)) / fixed) ** 2 == pytest.approx(1.028, abs=1e-3)


def test_operating_characteristics_against_simulation() -> None:
    design = spending_bounds([0.3, 0.5, 1.0], spending='pocock')
    rng = np.random.default_rng(0)
    for drift in (0.0, 2.5):
        steps = np.diff(np.r_[0, design.fractions])
        sums = np.cumsum(rng.normal(drift * steps, np.sqrt(steps), (60_000, 3)), axis=1)
        crossed = np.abs(sums / np.sqrt(design.fractions)) >= design.bounds
        expected = operating_characteristics(design, drift)
        assert crossed.any(1).mean() == pytest.approx(expected.power, abs=0.008)
        stop = np.where(crossed.any(1), design.fractions[crossed.argmax(1)], 1.0)
        assert stop.mean() == pytest.approx(expected.expected_fraction, abs=0.006)
    assert operating_characteristics(design, 0.0).power == pytest.approx(0.05, abs=1e-6)


def test_bad_designs_are_refused() -> None:
    with pytest.raises(InputError, match='looks'):
        group_sequential(0)
    with pytest.raises(InputError, match='shape'):
        group_sequential(3, shape='haybittle')  # type: ignore[arg-type]
    with pytest.raises(InputError, match='rise'):
        spending_bounds([0.5, 0.4], spending='pocock')
    with pytest.raises(InputError, match='alpha'):
        group_sequential(3, alpha=math.nan)
