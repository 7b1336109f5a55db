"""Gail and Simon's test, and its small-sample form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from robotrials.stats import MacroArm, Spread, gail_simon, macro_difference, reversal_p_value


def test_the_published_example_of_breast_cancer() -> None:
    """Gail and Simon (Biometrics 1985), NSABP trial: Q+ = 4.28, Q- = 10.94 in four subsets, p = 0.0877."""
    assert gail_simon([0.163, -0.114, -0.047, -0.151], [0.0788, 0.0689, 0.0614, 0.0547]) == pytest.approx(
        0.0877, abs=2e-4
    )


def test_two_strata_are_the_smaller_of_two_one_sided_tests() -> None:
    """With two strata P = P(chi2_1 > q) / 2: the one-sided p-value of the weaker side."""
    p = gail_simon([2.0, -3.0], [1.0, 1.0])
    assert p == pytest.approx(stats.norm.sf(2.0))
    assert gail_simon([2.0, 3.0], [1.0, 1.0]) == 1.0


def one(gap: float, n: int, variance: float) -> object:
    ends = np.zeros(1), np.full(1, 120.0)
    arms = [MacroArm(np.array([m]), *ends, np.array([float(n)])) for m in (60.0, 60.0 + gap)]
    return macro_difference(arms[0], arms[1], Spread(np.full(2, variance), np.full(2, n - 1.0)))


def test_a_clear_reversal_is_found_and_one_without_failures_to_rule_them_out_is_not() -> None:
    assert reversal_p_value([one(40, 200, 4.0), one(-40, 200, 4.0)]) < 1e-3  # type: ignore[list-item]
    # As many standard errors apart, on few units: what was not seen may explain it.
    assert reversal_p_value([one(40, 5, 4.0), one(-40, 5, 4.0)]) > 0.05  # type: ignore[list-item]
    assert reversal_p_value([one(40, 200, 4.0), one(30, 200, 4.0)]) == 1.0  # type: ignore[list-item]
