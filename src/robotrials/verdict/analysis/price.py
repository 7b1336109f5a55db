"""The price of a winner: the fewest units per policy at which any could be named, however clean the data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robotrials.stats.allowance import allowance_factor, fewest_units
from robotrials.verdict.analysis.pairs import TimeComparison
from robotrials.verdict.analysis.verdict import EndpointPairs
from robotrials.verdict.planning.analysis_plan import Correction, EndpointName

FAR_TAU = 4.0  # times the mean: beyond, most of the price is for failures that did not happen


@dataclass(frozen=True, slots=True)
class WinnerPrice:
    """What a winner on the first primary endpoint costs; `by_pair` is for the mean times that were observed."""

    endpoint: EndpointName
    n_tests: int  # that p-values are corrected over
    alpha: float
    per_policy: int  # units per policy below which no pair can be called, however far apart
    unit: str
    by_pair: Mapping[tuple[str, str], float]  # (a, b) -> units per policy; infinite for equal means
    far_tau: float | None = None  # tau over the largest mean, where that is far more than twice it


def winner_price(lead: EndpointPairs, times: Sequence[TimeComparison]) -> WinnerPrice:
    """The price under the correction that the lead endpoint is judged with."""
    first = lead.pairs[0]
    n = 1 if lead.correction is Correction.NONE else lead.n_tests
    if lead.endpoint in (EndpointName.SUCCESS, EndpointName.SAFETY):
        fewest = fewest_for_rates(n, alpha=lead.alpha, paired=all(p.is_paired for p in lead.pairs))
        return WinnerPrice(lead.endpoint, n, lead.alpha, fewest, first.unit, {})
    fewest = fewest_units(n, alpha=lead.alpha)
    if lead.endpoint is EndpointName.SCORE:
        return WinnerPrice(lead.endpoint, n, lead.alpha, fewest, first.unit, {})
    factor = allowance_factor(n, alpha=lead.alpha)
    by_pair = {(p.policy_a, p.policy_b): _needed(p, factor) for p in times}
    return WinnerPrice(lead.endpoint, n, lead.alpha, fewest, first.unit, by_pair, _far_tau(times))


def fewest_for_rates(n_tests: int, *, alpha: float, paired: bool) -> int:
    """Units per policy at which an exact test of all against none first reaches alpha over the tests.

    Paired: McNemar's sign test, 2 / 2^n. Independent: Fisher's test, 2 / C(2n, n).

    >>> fewest_for_rates(1, alpha=0.05, paired=True), fewest_for_rates(1, alpha=0.05, paired=False)
    (6, 4)
    """
    wanted, n = alpha / n_tests, 1
    while 2 / (2**n if paired else math.comb(2 * n, n)) > wanted:
        n += 1
    return n


def _needed(pair: TimeComparison, factor: float) -> float:
    """K sqrt((tau - M_a)^2 + M_b^2) / (M_b - M_a) for the faster a: what remains when nothing varies."""
    fast, slow = sorted((pair.better.mean_a.value, pair.better.mean_b.value))
    if slow <= fast:
        return math.inf
    return float(math.ceil(factor * math.hypot(_tau_s(pair) - fast, slow) / (slow - fast) - 1e-9))


def _tau_s(pair: TimeComparison) -> float:
    """The mean over strata."""
    return math.fsum(pair.better.tau_s.values()) / len(pair.better.tau_s)


def _far_tau(pairs: Sequence[TimeComparison]) -> float | None:
    longest = [(p, max(p.better.mean_a.value, p.better.mean_b.value)) for p in pairs]
    least = min((_tau_s(p) / mean_s for p, mean_s in longest if mean_s > 0), default=0.0)
    return least if least > FAR_TAU else None
