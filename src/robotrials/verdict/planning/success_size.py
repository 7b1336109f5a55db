"""How many episodes the rule for success needs: the power of the very test that judges, not of a formula near it.

One stratum and matched starts are enumerated. Strata of like rates are simulated (their null distribution hangs on
every stratum's total), with the same random numbers at every size, so that a larger trial never looks worse by luck.
Beyond a thousand episodes per arm 1.2 x mid-p is the z-test at alpha / 1.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.stats.allowance import satterthwaite
from robotrials.stats.argument import check_count, check_open_unit, check_unit
from robotrials.stats.exact import binomial_pmf, region_chance
from robotrials.stats.sample_size import (
    mcnemar_sample_size,
    noninferiority_sample_size,
    paired_noninferiority_sample_size,
    two_proportion_power_z,
    two_proportion_sample_size,
)
from robotrials.stats.success_rule import (
    BOSCHLOO_PRODUCT,
    MID_P_FACTOR,
    MOST_DISCORDANT,
    boschloo_p_values,
    hypergeometric,
)
from robotrials.stats.unseen import one_sided_p_values

if TYPE_CHECKING:
    from robotrials.stats.argument import BoolArray, FloatArray, IntArray

MOST_EXACT = 1_000
MOST_PAIRS = 20_000
MOST_PER_ARM = 1_000_000
STEADY = 4  # exact power saws up and down; it must hold for this many larger n too
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
        rejected: BoolArray = 2 * np.minimum(above, below) <= alpha
        return rejected
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
    win = (discordance + difference) / (2 * discordance)
    total = 0.0
    for apart, chance in enumerate(binomial_pmf(n, discordance).tolist()):
        if chance > 1e-12:
            edge = _edge(apart, alpha, is_mid=not is_exact and apart <= MOST_DISCORDANT * n)
            wins = binomial_pmf(apart, win)
            total += chance * float(wins[:edge].sum() + wins[apart - edge + 1 :].sum() if edge else 0.0)
    return total


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
    apart = _binomial_draws(discordance, n, rng.random((TRIALS, 1)))[:, 0]
    share = (discordance + difference) / (2 * discordance) if discordance else 0.5
    wins = rng.binomial(apart, share)
    mean, square = (2 * wins - apart) / n, apart / n
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
    low, high = 2, max(3, start)
    while not is_enough(high):
        low, high = high, 2 * high
        if high > MOST_PER_ARM:
            raise NotEstimable(f'no n up to {MOST_PER_ARM} reaches the power asked for')
    while high - low > max(1, high // 200):
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


@cache
def _edge(apart: int, alpha: float, *, is_mid: bool) -> int:
    """How many of the smallest counts of wins are rejected, of `apart` disagreements."""
    if not apart:
        return 0
    law = binomial_pmf(apart, 0.5)
    tail = 2 * (np.cumsum(law) - (law / 2 if is_mid else 0.0))
    return min(int(np.count_nonzero(tail <= alpha + 1e-12)), (apart + 1) // 2)


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
