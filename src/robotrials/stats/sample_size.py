"""How many rollouts: half-widths, paired and unpaired differences, non-inferiority, and whole plans.

Every function returns whole numbers, rounded up, and says in its name or docstring whether it counts pairs, rollouts of
one arm, or all rollouts.

Sizes for the rule of success have the power of the very test that judges, not of a formula near it. One stratum and
matched starts are enumerated. Strata of like rates are simulated (their null distribution hangs on every stratum's
total), with the same random numbers at every size, so that a larger trial never looks worse by luck. Beyond a thousand
episodes per arm 1.2 x mid-p is the z-test at alpha / 1.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.stats.interval import (
    FEWEST_PER_CELL,
    Alternative,
    FloatArray,
    IntArray,
    Spread,
    allowance_factor,
    check_alternative,
    check_count,
    check_open_unit,
    check_unit,
    fewest_units,
    normal_cdf,
    normal_quantile,
    satterthwaite,
    two_sided_z,
)
from robotrials.stats.matching import UnseenRule, one_sided_p_values
from robotrials.stats.proportion import barnard_region, binomial_pmf, region_chance, wald_order
from robotrials.stats.ratio import MeanCell
from robotrials.stats.success_rule import (
    BOSCHLOO_PRODUCT,
    MID_P_FACTOR,
    MOST_DISCORDANT,
    boschloo_p_values,
    hypergeometric,
)
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.stats.interval import BoolArray

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


MOST_EXACT = 1_000
MOST_PAIRS = 20_000
MOST_PER_ARM = 1_000_000
TRIALS = 4_000
SEED = 7  # of common random numbers: sizes of one plan must not differ by luck


def success_power(p_a: float, p_b: float, *, per_cell: int, strata: int = 1, alpha: float = 0.05) -> float:
    """The chance that the rule tells two rates apart (in either direction) with `per_cell` episodes of each arm."""
    check_unit('p_a', p_a), check_unit('p_b', p_b), check_open_unit('alpha', alpha)
    n, strata = check_count('per_cell', per_cell, least=1), check_count('strata', strata, least=1)
    if n * strata > MOST_EXACT:
        return two_proportion_power_z(p_a, p_b, n=n * strata, alpha=alpha / MID_P_FACTOR)
    if strata == 1:
        return float(region_chance(_region(n, alpha), np.array([p_a]), np.array([p_b]))[0])
    return _simulated(p_a, p_b, n, strata, alpha)


def success_size(p_a: float, p_b: float, *, strata: int = 1, power: float = 0.8, alpha: float = 0.05) -> int:
    """Episodes of each policy in each stratum with which the rule tells two rates apart."""
    check_unit('p_a', p_a), check_unit('p_b', p_b), check_open_unit('power', power)
    if p_a == p_b:
        raise InputError(f'p_a and p_b must differ, found {p_a}; use an equivalence margin instead')
    strata = check_count('strata', strata, least=1)
    by_formula = two_proportion_sample_size(p_a, p_b, power=power, alpha=alpha / MID_P_FACTOR)
    if by_formula > MOST_EXACT:
        return math.ceil(by_formula / strata)
    start = max(2, math.ceil(by_formula / strata))

    @cache
    def is_enough(n: int) -> bool:
        return success_power(p_a, p_b, per_cell=n, strata=strata, alpha=alpha) >= power

    return fewest(is_enough, start=start, most=4 * start + 20, steady=STEADY if strata == 1 else 1)


def _region(n: int, alpha: float) -> BoolArray:
    """Which tables (n + 1, n + 1) of one stratum the rule rejects."""
    if n * n <= BOSCHLOO_PRODUCT:
        above, below = boschloo_p_values(n, n)
        return np.asarray(2 * np.minimum(above, below) <= alpha)
    region = np.zeros((n + 1, n + 1), dtype=np.bool_)
    for hits in range(2 * n + 1):
        chances, first = hypergeometric(n, n, hits)
        k = np.arange(first, first + len(chances))
        tail = np.minimum(np.cumsum(chances), np.cumsum(chances[::-1])[::-1]) - chances / 2
        region[k, hits - k] = 2 * MID_P_FACTOR * tail <= alpha
    return region


def _simulated(p_a: float, p_b: float, n: int, strata: int, alpha: float) -> float:
    from robotrials.stats.trials import success_count_trials

    rng = np.random.default_rng(SEED)
    hits = [_binomial_draws(rate, n, rng.random((TRIALS, strata))) for rate in (p_a, p_b)]
    return float(np.mean(success_count_trials(hits[0], hits[1], n=n, m=n).p_value <= alpha))


def _binomial_draws(rate: float, n: int, uniform: FloatArray) -> IntArray:
    """Successes among n as a rising function of uniform numbers, so that sizes differ in nothing else."""
    from robotrials.stats.special import bdtr

    edges = bdtr(np.arange(n + 1), n, rate)
    return np.searchsorted(edges, uniform, side='left').clip(0, n).astype(np.int64)


def pairs_power(difference: float, discordance: float, *, n: int, alpha: float = 0.05, is_exact: bool = False) -> float:
    """The chance that McNemar's mid-p (exact above 70 % discordant) rejects on n matched starts in equal cells.

    With `is_exact` the exact sign test of "faster", of which `discordance` is the share of starts that are not level.
    """
    n = check_count('n', n, least=1)
    if not 0 < abs(difference) <= discordance <= 1:
        raise InputError(f'wanted 0 < |difference| <= discordance <= 1, found {difference} and {discordance}')
    from robotrials.stats.special import bdtr, bdtrc

    win = (discordance + difference) / (2 * discordance)
    law = binomial_pmf(n, discordance)
    discordant = np.flatnonzero(law > 1e-12)
    edges = np.array(
        [_edge(k, alpha, is_mid=not is_exact and k <= MOST_DISCORDANT * n) for k in discordant.tolist()], dtype=np.int64
    )
    chances, discordant, edges = law[discordant][edges > 0], discordant[edges > 0], edges[edges > 0]
    rejected = bdtr(edges - 1, discordant, win) + bdtrc(discordant - edges, discordant, win)
    return float(chances @ rejected)


def pairs_size(
    difference: float, discordance: float, *, power: float = 0.8, alpha: float = 0.05, is_exact: bool = False
) -> int:
    """Matched starts in all for the rule; `discordance` is the share of starts on which the policies disagree."""
    check_open_unit('power', power)
    start = mcnemar_sample_size(difference, discordance, power, alpha)

    @cache
    def is_enough(n: int) -> bool:
        return pairs_power(difference, discordance, n=n, alpha=alpha, is_exact=is_exact) >= power

    return fewest(is_enough, start=start, most=MOST_PAIRS, steady=STEADY)


def margin_power(
    p_new: float, p_reference: float, *, margin: float, per_cell: int, strata: int = 1, alpha: float = 0.05
) -> float:
    """The chance to show that the new rate is not lower by `margin` or more, by R on the difference of rates."""
    n, strata = check_count('per_cell', per_cell, least=3), check_count('strata', strata, least=1)
    rng = np.random.default_rng(SEED)
    rates = [_binomial_draws(p, n, rng.random((TRIALS, strata))) / n for p in (p_new, p_reference)]
    terms = np.concatenate([r * (1 - r) / (n - 1) for r in rates], axis=1) / strata**2
    gap = (rates[0] - rates[1]).mean(axis=1) + check_open_unit('margin', margin)
    degrees = satterthwaite(terms, np.full(terms.shape, n - 1.0), 0.0)
    return float(np.mean(one_sided_p_values(gap, terms.sum(axis=1), degrees, float(strata * n)) <= alpha))


def margin_size(
    p_new: float, p_reference: float, *, margin: float, strata: int = 1, power: float = 0.8, alpha: float = 0.05
) -> int:
    """Episodes of each policy in each stratum with which the rule shows "not worse by the margin"."""
    by_formula = noninferiority_sample_size(p_new, p_reference, margin=margin, power=power, alpha=alpha)

    def is_enough(n: int) -> bool:
        return margin_power(p_new, p_reference, margin=margin, per_cell=n, strata=strata, alpha=alpha) >= power

    return _bisected(is_enough, start=max(3, math.ceil(by_formula / strata)))


def paired_margin_power(difference: float, discordance: float, *, margin: float, n: int, alpha: float = 0.05) -> float:
    """The same on n matched starts of one stratum."""
    n = check_count('n', n, least=3)
    if not abs(difference) <= discordance <= 1:
        raise InputError(f'wanted |difference| <= discordance <= 1, found {difference} and {discordance}')
    rng = np.random.default_rng(SEED)
    discordant = _binomial_draws(discordance, n, rng.random((TRIALS, 1)))[:, 0]
    share = (discordance + difference) / (2 * discordance) if discordance else 0.5
    wins = rng.binomial(discordant, share)
    mean, square = (2 * wins - discordant) / n, discordant / n
    variance = (square - mean**2) / (n - 1)
    p = one_sided_p_values(mean + check_open_unit('margin', margin), variance, n - 1.0, float(n))
    return float(np.mean(p <= alpha))


def paired_margin_size(
    difference: float, discordance: float, *, margin: float, power: float = 0.8, alpha: float = 0.05
) -> int:
    """Matched starts in all with which the rule shows "not worse by the margin"."""
    start = paired_noninferiority_sample_size(difference, discordance, margin=margin, power=power, alpha=alpha)

    def is_enough(n: int) -> bool:
        return paired_margin_power(difference, discordance, margin=margin, n=n, alpha=alpha) >= power

    return _bisected(is_enough, start=start)


def _bisected(is_enough: Callable[[int], bool], *, start: int) -> int:
    """The smallest n, from 3 on, for a chance that grows with n; `start` is a guess from below."""
    n = search_size(is_enough, 2, max(3, start), most=MOST_PER_ARM)
    if n is None:
        raise NotEstimable(f'no n up to {MOST_PER_ARM} reaches the power asked for')
    return n


def search_size(is_enough: Callable[[int], bool], low: int, high: int, *, most: int) -> int | None:
    """The smallest n that is enough where `low` is not, to one in 200; None where no n up to `most` is."""
    while not is_enough(high):
        low, high = high, 2 * high
        if high > most:
            return None
    while high - low > max(1, high // 200):
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


@cache
def _edge(n_apart: int, alpha: float, *, is_mid: bool) -> int:
    """How many of the smallest counts of wins are rejected, of `apart` disagreements."""
    if not n_apart:
        return 0
    law = binomial_pmf(n_apart, 0.5)
    tail = 2 * (np.cumsum(law) - (law / 2 if is_mid else 0.0))
    return min(int(np.count_nonzero(tail <= alpha + 1e-12)), (n_apart + 1) // 2)


def fewest(is_enough: Callable[[int], bool], *, start: int, most: int, steady: int = 1) -> int:
    """The smallest n from which on power suffices, `steady` larger n included; searched around `start`."""
    n = max(2, start)
    while not all(is_enough(n + k) for k in range(steady - 1, -1, -1)):
        n += 1
        if n > most:
            raise NotEstimable(f'no n up to {most} reaches the power asked for')
    while n > 2 and is_enough(n - 1):
        n -= 1
    return n


# How many more episodes until a non-inferiority test would probably pass, given those that are there.
# The promise is about the test on all episodes together, the present ones included: if the two policies are equal, and
# that many more are run, it passes with the power asked. What is there already is kept fixed, so an unlucky start
# costs more episodes than the power of a fresh trial would say. What equal policies would score is not known exactly
# either; its uncertainty is part of the forecast.

MOST_PER_CELL = 10_000_000


@dataclass(frozen=True, slots=True)
class MoreEpisodes:
    """Episodes to add to each arm, all strata filled to `per_cell`; spread evenly, since strata count equally."""

    new: int
    reference: int  # 0 where the reference has enough
    per_cell: int
    power: float

    @property
    def total(self) -> int:
        return self.new + self.reference


@dataclass(frozen=True, slots=True, eq=False)
class TestStanding:
    """What a test has so far: scores oriented so that larger is better, one entry a stratum.

    The test passes when mean(y_new - factor * y_reference) exceeds `threshold` by z standard errors.
    """

    y_new: FloatArray
    y_reference: FloatArray
    variance: FloatArray  # of one episode's score if the policies are equal; of one pair's contrast where paired
    test_variance: Callable[[FloatArray, FloatArray], FloatArray]  # of a stratum's contrast, given both arms' sizes
    n_new: IntArray
    n_reference: IntArray
    factor: float = 1.0
    threshold: float = 0.0
    unseen: tuple[float, float] = (0.0, 0.0)  # (episodes of an arm)^2 times the variance the test adds for it
    is_paired: bool = False


def more_episodes(standing: TestStanding, *, alpha: float = 0.05, power: float = 0.8) -> MoreEpisodes | None:
    """The fewest episodes to add, to the new arm or to both; None where no number that could be run is enough."""
    check_open_unit('alpha', alpha), check_open_unit('power', power)
    with_both = _fewest(standing, alpha, power, with_reference=True)
    if standing.is_paired:
        return with_both
    alone = _fewest(standing, alpha, power, with_reference=False)
    # A small reference arm rules what the test can see, and no forecast from it alone has been found reliable.
    if alone is None or alone.per_cell > standing.n_reference.min():
        return with_both
    return alone if with_both is None or alone.total <= with_both.total else with_both


def _fewest(standing: TestStanding, alpha: float, power: float, *, with_reference: bool) -> MoreEpisodes | None:
    def added(per_cell: int) -> tuple[IntArray, IntArray]:
        rest = np.maximum(per_cell - standing.n_reference, 0) if with_reference else np.zeros_like(standing.n_reference)
        return np.maximum(per_cell - standing.n_new, 0), rest

    def is_enough(per_cell: int) -> bool:
        return predictive_power(standing, *added(per_cell), alpha=alpha) >= power

    per_cell = _smallest(is_enough, int(min(standing.n_new.min(), standing.n_reference.min())))
    if per_cell is None:
        return None
    first, second = added(per_cell)
    return MoreEpisodes(int(first.sum()), int(second.sum()), per_cell, power)


def _smallest(is_enough: Callable[[int], bool], start: int) -> int | None:
    low, step = start, 1
    while not is_enough(low + step):
        low, step = low + step, 2 * step
        if low > MOST_PER_CELL:
            return None
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def predictive_power(standing: TestStanding, add_new: IntArray, add_reference: IntArray, *, alpha: float) -> float:
    """The chance that the test on all episodes passes, if the policies are equal and these many are added."""
    s = standing
    n1, n2 = s.n_new.astype(np.float64), s.n_reference.astype(np.float64)
    a1, a2 = np.asarray(add_new, dtype=np.float64), np.asarray(add_reference, dtype=np.float64)
    all1, all2 = n1 + a1, n2 + a2
    f1, f2, c = a1 / all1, a2 / all2, s.factor
    pool = (n1 * s.y_new + n2 * s.y_reference) / (n1 + n2)
    center = (1 - f1) * s.y_new + f1 * pool - c * ((1 - f2) * s.y_reference + f2 * pool)
    if s.is_paired:
        spread = s.variance * a1 / all1**2
    else:
        known = (f1 - c * f2) ** 2 / (n1 + n2)
        spread = s.variance * (a1 / all1**2 + c**2 * a2 / all2**2 + known)
    error, k = s.test_variance(all1, all2), len(center)
    unseen = s.unseen[0] / all1.sum() ** 2 + c**2 * s.unseen[1] / all2.sum() ** 2
    gap = center.mean() - s.threshold - normal_quantile(1 - alpha) * math.sqrt(error.sum() / k**2 + unseen)
    deviation = math.sqrt(spread.sum()) / k
    if deviation == 0:
        return float(gap >= 0)
    return normal_cdf(gap / deviation)


def more_for_margin(
    rule: UnseenRule, units: FloatArray, rates: FloatArray, *, margin: float, is_matched: bool, alpha: float = 0.05,
    power: float = 0.8,
) -> MoreEpisodes | None:  # fmt: skip
    """Units to add so that every cell of both arms has as many, and R then shows "not worse by the margin".

    `units` and `rates` are (cells, arms). What is there is kept; what is added has the pooled rate of its cell, since
    the two are taken to be equal. None where no number that could be run is enough.
    """
    n_cells = len(units)
    # One success and one failure more over all cells: where all went well, it is not promised that all will.
    pooled = (((units * rates).sum(axis=1) + 1 / n_cells) / (units.sum(axis=1) + 2 / n_cells))[:, None]
    scale = rule.spread.variance * n_cells**2 / max(float((pooled * (1 - pooled) / units).sum()), 1e-12)
    factor = min(max(scale, 0.1), 10.0) if is_matched else 1.0  # what matched starts save

    def is_enough(per_cell: int) -> bool:
        later = np.maximum(units, per_cell)
        kept = units / later
        expected = kept * rates + (1 - kept) * pooled
        centre = float((expected[:, 0] - expected[:, 1]).mean())
        variance = factor * float((pooled * (1 - pooled) / later).sum()) / n_cells**2
        drawn = factor * float((pooled * (1 - pooled) * (1 - kept) / later).sum()) / n_cells**2
        # What is pooled is itself estimated, and counts where one arm gets more than the other.
        shift = (1 - kept[:, 0]) - (1 - kept[:, 1])
        drawn += factor * float((shift**2 * (pooled * (1 - pooled))[:, 0] / units.sum(axis=1)).sum()) / n_cells**2
        judged = UnseenRule(
            0.0, Spread(np.array([variance]), np.array([float(per_cell)])), n_cells * float(later.min()), rule.null,
            rule.move,
        )  # fmt: skip
        gap = centre + margin + judged.bound(alpha, is_lower=True)  # by what it clears on average
        return gap >= 0 if drawn <= 0 else normal_cdf(gap / math.sqrt(drawn)) >= power

    per_cell = _smallest(is_enough, int(units.min()))
    if per_cell is None:
        return None
    new, reference = (math.ceil(float(np.maximum(per_cell - units[:, k], 0.0).sum())) for k in (0, 1))
    return MoreEpisodes(new, reference, per_cell, power)


def time_standing(cells: Sequence[MeanCell], *, margin: float, cap: float, alpha: float = 0.05) -> TestStanding:
    """Where a test of mean times stands; scores are negative times."""
    n1, n2 = (np.array([getattr(c, name) for c in cells], dtype=np.float64) for name in ('n_new', 'n_reference'))
    m1, m2 = np.array([c.new for c in cells]), np.array([c.reference for c in cells])
    v1, v2 = n1 * [c.variance_new for c in cells], n2 * [c.variance_reference for c in cells]
    factor, paired = 1 + margin, cells[0].covariance is not None
    variance = (n1 * v1 + n2 * v2) / (n1 + n2)
    if paired:
        covariances = n1 * [c.covariance or 0.0 for c in cells]
        variance = np.maximum(v1 + factor**2 * v2 - 2 * factor * covariances, 0.0)

    def test_variance(all1: FloatArray, all2: FloatArray) -> FloatArray:
        return np.asarray(variance / all1 if paired else variance * (1 / all1 + factor**2 / all2))

    z2 = normal_quantile(1 - alpha) ** 2
    pooled = float(((n1 * m1 + n2 * m2) / (n1 + n2)).mean())
    return TestStanding(
        -m1, -m2, variance, test_variance, n1.astype(np.int64), n2.astype(np.int64), factor=factor,
        unseen=(z2 * (cap - pooled) ** 2, z2 * pooled**2), is_paired=paired,
    )  # fmt: skip
