"""The price of a winner, said in advance: how many units no claim of "better" can do without."""

from __future__ import annotations

import math
from dataclasses import dataclass

from robotrials.errors import InputError
from robotrials.stats.allowance import FEWEST_PER_CELL, allowance_factor, fewest_units
from robotrials.stats.argument import check_count, check_open_unit

LONG_TAU = 3.0  # times the expected mean: from here on most of the price is paid for unseen failures
GOOD_TAU = 2.0


@dataclass(frozen=True, slots=True)
class Price:
    """The fewest units (start states, or episodes where none repeats) at which a winner could be named.

    However clean the data: with fewer, the failures that may not have been seen outweigh the expected difference. It is
    no promise of power.
    """

    per_policy: int
    per_cell: int
    n_pairs: int
    tau_s: float
    means_s: tuple[float, float]
    warning: str = ''

    def __str__(self) -> str:
        pairs = '1 pair' if self.n_pairs == 1 else f'{self.n_pairs} pairs'
        return (
            f'at least {self.per_policy} episodes per policy ({self.per_cell} per cell) before any winner can be named '
            f'among {pairs} at {self.means_s[0]:g} against {self.means_s[1]:g} s with tau = {self.tau_s:g} s'
        )


def price(
    means_s: tuple[float, float], *, tau_s: float, strata: int = 1, n_pairs: int = 1, alpha: float = 0.05
) -> Price:
    """The fewest units for the expected restricted means of two policies: K sqrt((tau - M_a)^2 + M_b^2) / (M_b - M_a).

    >>> price((48, 60), tau_s=120).per_policy, price((48, 60), tau_s=120, n_pairs=15).per_policy
    (26, 63)
    """
    check_open_unit('alpha', alpha)
    low, high = sorted(means_s)
    if not (0 <= low < high <= tau_s and math.isfinite(tau_s)):
        raise InputError(f'wanted two different means between 0 and tau_s = {tau_s}, found {means_s}')
    strata = check_count('strata', strata, least=1)
    hidden = allowance_factor(n_pairs, alpha=alpha) * math.hypot(tau_s - low, high) / (high - low)
    whole = max(math.ceil(hidden), fewest_units(n_pairs, alpha=alpha), FEWEST_PER_CELL * strata)
    per_cell = max(FEWEST_PER_CELL, math.ceil(whole / strata))
    return Price(
        per_cell * strata if strata > 1 else whole, per_cell, n_pairs, tau_s, means_s, tau_warning(means_s, tau_s)
    )


def tau_warning(means_s: tuple[float, ...], tau_s: float) -> str:
    """What to say of a tau far above the expected means; empty when it is not."""
    mean = sum(means_s) / len(means_s)
    if tau_s <= LONG_TAU * mean:
        return ''
    return (
        f'tau = {tau_s:g} s is {tau_s / mean:.1f} times the expected mean of {mean:g} s: each failure that was not '
        f'seen could cost all of it, so many more episodes are needed; about {GOOD_TAU * mean:g} s is a better choice, '
        'if it is fixed before the trial'
    )
