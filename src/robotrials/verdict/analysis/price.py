"""The price of a claim: the fewest units per policy at which any could be made, however clear the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robotrials.stats.unseen import fewest_for_claim
from robotrials.verdict.planning.analysis_plan import Correction, EndpointName

if TYPE_CHECKING:
    from robotrials.verdict.analysis.verdict import EndpointPairs


@dataclass(frozen=True, slots=True)
class WinnerPrice:
    """What a claim costs, on whichever primary endpoint comes cheapest."""

    n_tests: int  # that p-values are corrected over
    alpha: float
    per_policy: int  # units per policy below which nothing can be claimed of any pair, however far apart
    unit: str


def winner_price(tested: Sequence[EndpointPairs]) -> WinnerPrice:
    """The price under the correction that the primary endpoints are judged with."""
    first = tested[0]
    n = 1 if first.correction is Correction.NONE else first.n_tests
    least = min(_fewest(found, n) for found in tested)
    return WinnerPrice(n, first.alpha, least, first.pairs[0].unit)


def _fewest(found: EndpointPairs, n_tests: int) -> int:
    if found.endpoint in (EndpointName.SUCCESS, EndpointName.SAFETY):
        return fewest_for_rates(n_tests, alpha=found.alpha, paired=all(p.is_paired for p in found.pairs))
    return fewest_for_claim(n_tests, alpha=found.alpha)


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
