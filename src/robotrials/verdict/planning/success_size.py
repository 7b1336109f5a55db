"""How many episodes the exact tests of success need."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.stats.argument import BoolArray, check_count, check_open_unit, check_unit
from robotrials.stats.exact import binomial_pmf, region_chance
from robotrials.stats.sample_size import mcnemar_sample_size, two_proportion_sample_size

MOST_EXACT = 300
MOST_PAIRS = 5_000
STEADY = 4  # exact power saws up and down; it must hold for this many larger n too


def exact_success_size(p_a: float, p_b: float, *, power: float = 0.8, alpha: float = 0.05) -> int:
    """Episodes of each policy for the exact test of two independent rates, strata of like rates taken together.

    Beyond 300 it is the normal formula with Casagrande, Pike and Smith's correction, which is within 1 % there.
    """
    check_unit('p_a', p_a), check_unit('p_b', p_b), check_open_unit('power', power)
    if p_a == p_b:
        raise InputError(f'p_a and p_b must differ, found {p_a}; use an equivalence margin instead')
    plain = two_proportion_sample_size(p_a, p_b, power=power, alpha=alpha)
    corrected = int(np.ceil(plain / 4 * (1 + np.sqrt(1 + 4 / (plain * abs(p_a - p_b)))) ** 2))
    if corrected > MOST_EXACT:
        return corrected
    return _fewest(
        lambda n: exact_success_power(p_a, p_b, n=n, alpha=alpha) >= power, start=corrected, most=2 * MOST_EXACT
    )


def exact_success_power(p_a: float, p_b: float, *, n: int, alpha: float = 0.05) -> float:
    """The chance that the exact conditional test of two arms of n (two-sided, twice the smaller tail) rejects."""
    region = _fisher_region(check_count('n', n, least=1), alpha)
    return float(region_chance(region, np.array([p_a]), np.array([p_b]))[0])


def _fisher_region(n: int, alpha: float) -> BoolArray:
    from scipy.special import gammaln

    i = np.arange(n + 1)
    log_choose = gammaln(n + 1) - gammaln(i + 1) - gammaln(n - i + 1)
    region = np.zeros((n + 1, n + 1), dtype=np.bool_)
    for total in range(2 * n + 1):
        k = np.arange(max(0, total - n), min(n, total) + 1)
        chance = np.exp(
            log_choose[k] + log_choose[total - k] - np.logaddexp.reduce(log_choose[k] + log_choose[total - k])
        )
        lower, upper = np.cumsum(chance), np.cumsum(chance[::-1])[::-1]
        region[k, total - k] = 2 * np.minimum(lower, upper) <= alpha + 1e-12
    return region


def exact_pairs_size(difference: float, discordance: float, *, power: float = 0.8, alpha: float = 0.05) -> int:
    """Pairs for the exact McNemar test; `discordance` is the share of starts on which the policies disagree."""
    check_open_unit('power', power)
    start = mcnemar_sample_size(difference, discordance, power, alpha)
    return _fewest(
        lambda n: exact_pairs_power(difference, discordance, n=n, alpha=alpha) >= power, start=start, most=MOST_PAIRS
    )


def exact_pairs_power(difference: float, discordance: float, *, n: int, alpha: float = 0.05) -> float:
    """The chance that the exact McNemar test on n matched starts rejects."""
    n = check_count('n', n, least=1)
    if not 0 < abs(difference) <= discordance <= 1:
        raise InputError(f'wanted 0 < |difference| <= discordance <= 1, found {difference} and {discordance}')
    win = (discordance + difference) / (2 * discordance)
    total = 0.0
    for apart, chance in enumerate(binomial_pmf(n, discordance).tolist()):
        if chance > 1e-12:
            edge = _edge(apart, alpha)
            wins = binomial_pmf(apart, win)
            total += chance * float(wins[:edge].sum() + wins[apart - edge + 1 :].sum() if edge else 0.0)
    return total


def _edge(apart: int, alpha: float) -> int:
    """How many of the smallest counts of wins the exact test rejects, of `apart` disagreements."""
    tail = 2 * np.cumsum(binomial_pmf(apart, 0.5))
    return min(int(np.count_nonzero(tail <= alpha + 1e-12)), apart // 2 + 1) if apart else 0


def _fewest(is_enough: Callable[[int], bool], *, start: int, most: int) -> int:
    n = max(2, start)
    while not all(is_enough(n + k) for k in range(STEADY, -1, -1)):
        n += 1
        if n > most:
            raise NotEstimable(f'no n up to {most} reaches the power asked for')
    while n > 2 and is_enough(n - 1):
        n -= 1
    return n
