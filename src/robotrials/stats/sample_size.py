"""How many rollouts: half-widths, paired and unpaired differences, non-inferiority, and whole plans.

Every function returns whole numbers, rounded up, and says in its name or docstring whether it counts pairs, rollouts of
one arm, or all rollouts.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.stats.interval import (
    FEWEST_PER_CELL,
    Alternative,
    allowance_factor,
    check_alternative,
    check_count,
    check_open_unit,
    check_unit,
    fewest_units,
    normal_cdf,
    normal_quantile,
    two_sided_z,
)
from robotrials.stats.proportion import barnard_region, region_chance, wald_order
from robotrials.value import dataclass

EXACT_ARM_LIMIT = 400
STEADY = 4
"""Exact power saws up and down with n; a sample size must hold for this many larger n too."""


def wilson_sample_size(
    half_width: float,
    proportion: float = 0.5,
    *,
    level: float = 0.95,
    formula: Literal['wilson', 'normal'] = 'wilson',
) -> int:
    """Rollouts for a Wilson interval of at most +- half_width around an observed `proportion`; 0.5 is the worst case.

    'wilson' inverts the interval's own width; 'normal' is the approximation z sqrt(p (1-p) / N) that papers print.

    >>> wilson_sample_size(0.05), wilson_sample_size(0.05, 0.7), wilson_sample_size(0.05, formula='normal')
    (381, 320, 385)
    """
    h, p, z = check_open_unit('half_width', half_width), check_unit('proportion', proportion), two_sided_z(level)
    if formula == 'normal':
        return max(1, _up(z**2 * p * (1 - p) / h**2))
    if formula != 'wilson':
        raise InputError(f"formula must be 'wilson' or 'normal', found {formula!r}")
    # h (n + z^2) = z sqrt(p (1-p) n + z^2 / 4), squared, is quadratic in n.
    b = 2 * h**2 * z**2 - z**2 * p * (1 - p)
    c = z**4 * (h**2 - 0.25)
    return max(1, _up((-b + math.sqrt(b**2 - 4 * h**2 * c)) / (2 * h**2)))


def mcnemar_sample_size(difference: float, discordance: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Pairs for a two-sided McNemar test (Connor 1987, Biometrics 43:207); rollouts are twice as many.

    `difference` is p1 - p2 and `discordance` the share of pairs on which the policies disagree.

    >>> mcnemar_sample_size(0.05, 0.10), mcnemar_sample_size(0.05, 0.25)
    (312, 783)
    """
    psi = check_unit('discordance', discordance)
    if not 0 < abs(difference) <= 1:
        raise InputError(f'difference must be between 0 and 1 and not 0, found {difference!r} (5 points are 0.05)')
    if psi < abs(difference):
        raise InputError(f'discordance must be at least |difference| = {abs(difference)}, found {psi}')
    z_alpha, z_beta = two_sided_z(1 - check_open_unit('alpha', alpha)), normal_quantile(check_open_unit('power', power))
    return _up((z_alpha * math.sqrt(psi) + z_beta * math.sqrt(psi - difference**2)) ** 2 / difference**2)


def mcnemar_rollouts(difference: float, discordance: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Rollouts of both arms together for the paired design: two for each pair of `mcnemar_sample_size`."""
    return 2 * mcnemar_sample_size(difference, discordance, power, alpha)


def two_proportion_sample_size(
    p1: float,
    p2: float,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    variance: Literal['pooled', 'unpooled'] = 'pooled',
    alternative: Alternative = 'two-sided',
) -> int:
    """Rollouts of each arm for the z-test of two independent rates (Fleiss), its variance pooled or not."""
    d = _check_rates(p1, p2)
    z_alpha, z_beta = _z_alpha(alpha, alternative), normal_quantile(check_open_unit('power', power))
    spread, mean = p1 * (1 - p1) + p2 * (1 - p2), (p1 + p2) / 2
    null = 2 * mean * (1 - mean) if variance == 'pooled' else spread
    return max(1, _up((z_alpha * math.sqrt(null) + z_beta * math.sqrt(spread)) ** 2 / d**2))


def two_proportion_power_z(p1: float, p2: float, *, n: int, alpha: float = 0.05) -> float:
    """About the power of the two-sided z-test with n rollouts of each arm, pooled variance under the null."""
    d, mean = abs(_check_rates(p1, p2)), (p1 + p2) / 2
    spread = math.sqrt((p1 * (1 - p1) + p2 * (1 - p2)) / n)
    edge = two_sided_z(1 - check_open_unit('alpha', alpha)) * math.sqrt(2 * mean * (1 - mean) / n)
    return normal_cdf((d - edge) / spread) if spread else 1.0


def two_proportion_power(
    p1: float,
    p2: float,
    *,
    n1: int,
    n2: int,
    alpha: float = 0.05,
    variance: Literal['pooled', 'unpooled'] = 'pooled',
    alternative: Alternative = 'two-sided',
) -> float:
    """The exact chance that the z-test of two rates rejects, by enumeration; at p1 = p2 its true size."""
    rates = np.array([check_unit('p1', p1)]), np.array([check_unit('p2', p2)])
    order = wald_order(check_count('n1', n1, least=1), check_count('n2', n2, least=1), pooled=variance == 'pooled')
    signed = {'greater': order, 'less': -order, 'two-sided': np.abs(order)}[check_alternative(alternative)]
    return float(region_chance(signed > _z_alpha(alpha, alternative), *rates)[0])


def barnard_power(
    p1: float, p2: float, *, n1: int, n2: int, alpha: float = 0.05, alternative: Alternative = 'two-sided'
) -> float:
    """The exact power of Barnard's test, by enumeration of every table."""
    rates = np.array([check_unit('p1', p1)]), np.array([check_unit('p2', p2)])
    n1, n2 = check_count('n1', n1, least=1), check_count('n2', n2, least=1)
    return float(region_chance(barnard_region(n1, n2, alpha=alpha, alternative=alternative), *rates)[0])


def barnard_sample_size(
    p1: float, p2: float, *, power: float = 0.8, alpha: float = 0.05, alternative: Alternative = 'two-sided'
) -> int:
    """Rollouts of each arm for Barnard's test: the smallest n whose exact power, and that of the next few, suffices."""
    approximate = two_proportion_sample_size(p1, p2, power=power, alpha=alpha, alternative=alternative)
    if approximate > EXACT_ARM_LIMIT:
        raise NotEstimable(
            f'about {approximate} rollouts per arm: too many to enumerate (over {EXACT_ARM_LIMIT}); '
            'use two_proportion_sample_size, which is accurate there'
        )

    @cache
    def reached(n: int) -> bool:
        return barnard_power(p1, p2, n1=n, n2=n, alpha=alpha, alternative=alternative) >= power

    # The z-test's n is within a few of Barnard's, so the search starts there and every power is computed once.
    n = max(2, approximate)
    while not all(reached(n + k) for k in range(STEADY, -1, -1)):
        n += 1
        if n > 2 * approximate + 50:
            raise NotEstimable(f'no n up to {n} reaches power {power}')
    while n > 2 and reached(n - 1):
        n -= 1
    return n


def noninferiority_sample_size(
    p_new: float, p_reference: float, *, margin: float, power: float = 0.8, alpha: float = 0.05
) -> int:
    """Rollouts of each arm to show p_new > p_reference - margin, one-sided, unpooled variance."""
    check_unit('p_new', p_new), check_unit('p_reference', p_reference)
    room = _check_room(p_new - p_reference, margin)
    spread = p_new * (1 - p_new) + p_reference * (1 - p_reference)
    return max(1, _up(spread * (_one_sided(alpha, power) / room) ** 2))


def paired_noninferiority_sample_size(
    difference: float, discordance: float, *, margin: float, power: float = 0.8, alpha: float = 0.05
) -> int:
    """Pairs to show difference > -margin, one-sided Wald on paired outcomes (Liu et al. 2002); difference may be 0."""
    psi = check_unit('discordance', discordance)
    if psi < abs(difference) or psi == 0:
        raise InputError(f'discordance must be over 0 and at least |difference| = {abs(difference)}, found {psi}')
    room = _check_room(difference, margin)
    return max(1, _up((psi - difference**2) * (_one_sided(alpha, power) / room) ** 2))


def mean_sample_size(
    difference: float,
    deviations: tuple[float, float],
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    alternative: Alternative = 'two-sided',
) -> int:
    """Rollouts of each arm to tell two mean scores apart, given their standard deviations (normal approximation)."""
    if difference == 0 or not math.isfinite(difference):
        raise InputError(f'difference must be a finite number other than 0, found {difference}')
    if min(deviations) < 0 or max(deviations) == 0 or not all(map(math.isfinite, deviations)):
        raise InputError(f'deviations must be finite, not negative and not both 0, found {deviations}')
    reach = _z_alpha(alpha, alternative) + normal_quantile(check_open_unit('power', power))
    return max(2, _up((deviations[0] ** 2 + deviations[1] ** 2) * (reach / difference) ** 2))


def paired_mean_sample_size(
    difference: float,
    deviation: float,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    alternative: Alternative = 'two-sided',
) -> int:
    """Pairs to find a mean difference, given the differences' standard deviation (normal approximation)."""
    return mean_sample_size(difference, (deviation, 0.0), power=power, alpha=alpha, alternative=alternative)


def cluster_sample_size(n: int, *, cluster_size: float, intraclass_correlation: float) -> int:
    """Clusters (episodes, or repeated start states) that carry as much as n independent observations.

    The design effect is 1 + (cluster_size - 1) rho (Kish).
    """
    n = check_count('n', n, least=1)
    if not cluster_size >= 1:
        raise InputError(f'cluster_size must be at least 1, found {cluster_size}')
    rho = check_unit('intraclass_correlation', intraclass_correlation)
    return _up(n * (1 + (cluster_size - 1) * rho) / cluster_size)


def _check_rates(p1: float, p2: float) -> float:
    check_unit('p1', p1), check_unit('p2', p2)
    if p1 == p2:
        raise InputError(
            f'p1 and p2 must differ, found {p1} twice: no sample size shows a difference that is not there'
        )
    return p1 - p2


def _check_room(difference: float, margin: float) -> float:
    check_open_unit('margin', margin)
    if difference + margin <= 0:
        raise InputError(f'the assumed difference {difference} lies at or below -margin = {-margin}: it is inferior')
    return difference + margin


def _z_alpha(alpha: float, alternative: Alternative) -> float:
    alpha = check_open_unit('alpha', alpha)
    return normal_quantile(1 - alpha / 2 if alternative == 'two-sided' else 1 - alpha)


def _one_sided(alpha: float, power: float) -> float:
    return _z_alpha(alpha, 'greater') + normal_quantile(check_open_unit('power', power))


def _up(n: float) -> int:
    return math.ceil(n - 1e-9)


# The price of a winner, said in advance: how many units no claim of "better" can do without.

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
