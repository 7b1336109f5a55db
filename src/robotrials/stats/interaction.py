"""Does a difference depend on the stratum or the group?

Gail and Simon's test, linear contrasts of success rates, and the Kruskal-Wallis test of ranks with ties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.stats.interval import (
    SMALLEST_P,
    STANDARD,
    FloatArray,
    Interval,
    MacroDifference,
    allowance_z,
    two_sided_z,
)
from robotrials.stats.proportion import effective_trials
from robotrials.value import dataclass

HALVINGS = 40


def gail_simon(differences: Sequence[float], errors: Sequence[float]) -> float:
    """The p-value of "no stratum's difference has the other sign", from independent normal differences.

    >>> round(gail_simon([0.163, -0.114, -0.047, -0.151], [0.0788, 0.0689, 0.0614, 0.0547]), 3)
    0.088
    """
    scores = np.asarray(differences, dtype=np.float64) / np.asarray(errors, dtype=np.float64)
    return _p_of_scores(scores)


def _p_of_scores(scores: FloatArray) -> float:
    from robotrials.stats.special import chdtrc

    strata = len(scores)
    if strata == 0:
        raise InputError('no stratum was given')
    q = min(float(np.sum(scores[scores > 0] ** 2)), float(np.sum(scores[scores < 0] ** 2)))
    if q <= 0:
        return 1.0
    # All strata on the edge but one far away is the least favourable truth: the rest are fair coins.
    rest = strata - 1
    return min(1.0, sum(math.comb(rest, h) * 0.5**rest * float(chdtrc(h, q)) for h in range(1, rest + 1)))


def reversal_p_value(strata: Sequence[MacroDifference]) -> float:
    """Gail and Simon's test on small samples with the allowance in every stratum: the smallest alpha that passes.

    Each stratum's difference is scored by t with the allowance for its own sign, and the scores are taken as normal.
    """
    if _reversal_at(strata, 0.5) > 0.5:
        return 1.0
    low, high = math.log(SMALLEST_P), math.log(0.5)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _reversal_at(strata, math.exp(middle)) <= math.exp(middle) else (middle, high)
    return math.exp(high)


def _reversal_at(strata: Sequence[MacroDifference], alpha: float) -> float:
    return _p_of_scores(np.array([_normal_score(d, alpha) for d in strata]))


def _normal_score(difference: MacroDifference, alpha: float) -> float:
    from robotrials.stats.special import stdtr

    if difference.difference == 0:
        return 0.0
    unseen = allowance_z(alpha) ** 2 * (difference.moved_low if difference.difference > 0 else difference.moved_high)
    error = math.sqrt(difference.variance + unseen)
    if error == 0:
        return math.copysign(8.0, difference.difference)
    tail = float(stdtr(difference.spread.degrees(unseen), -abs(difference.difference) / error))
    return math.copysign(-STANDARD.inv_cdf(max(tail, 1e-15)), difference.difference)


# A linear combination of success rates, such as an interaction: interval and p-value from Wilson's limits.
# MOVER (Zou and Donner, Statistics in Medicine 2008): each rate's own limits are put together as if they were standard
# errors, on the side that matters for each end. For two rates it is Newcombe's interval, independent or paired.

AnyFloats = NDArray[np.floating[Any]]
MOST_Z = 12.0


@dataclass(frozen=True, slots=True)
class RateContrast:
    """The sum of weights times rates, its interval, and the two-sided p-value against zero."""

    estimate: float
    interval: Interval
    p_value: float


def rate_contrast(
    outcomes: Sequence[Sequence[bool]],
    clusters: Sequence[Sequence[str]],
    weights: Sequence[float],
    *,
    level: float = 0.95,
) -> RateContrast:
    """Contrast of the success rates of several cells.

    `outcomes` and `clusters` hold each cell's trials and their start states. Cells that share start states are
    correlated by them, and trials that share one count as fewer: by their own spread over start states, and as one
    where a cell has only successes or only failures, which show none.
    """
    if not (len(outcomes) == len(clusters) == len(weights)) or not outcomes:
        raise InputError(f'a contrast wants outcomes, clusters and weights of the same cells, found {len(outcomes)}, '
                         f'{len(clusters)} and {len(weights)}')  # fmt: skip
    for i, (values, names) in enumerate(zip(outcomes, clusters, strict=True)):
        if len(values) != len(names) or not values:
            raise InputError(f'cell {i} of a contrast has {len(values)} outcomes and {len(names)} clusters')
    rates = np.array([float(np.mean(cell)) for cell in outcomes])
    effective, correlation = _spread(outcomes, clusters, rates)
    weight = np.asarray(weights, dtype=float)
    estimate = float(weight @ rates)
    signed = correlation * np.outer(np.sign(weight), np.sign(weight))

    def limits(z: float) -> tuple[float, float]:
        low, high = _wilson(rates, effective, z)
        below = np.abs(weight) * np.where(weight > 0, rates - low, high - rates)
        above = np.abs(weight) * np.where(weight > 0, high - rates, rates - low)
        down, up = (math.sqrt(max(0.0, float(d @ signed @ d))) for d in (below, above))
        return estimate - down, estimate + up

    low, high = limits(two_sided_z(level))
    return RateContrast(estimate, Interval(low, high), _p_value(limits))


def _p_value(limits: Any) -> float:
    """The largest level's complement at which the interval still holds zero, by bisection over z."""
    from robotrials.stats.special import ndtr

    def holds_zero(z: float) -> bool:
        low, high = limits(z)
        return bool(low <= 0 <= high)

    if holds_zero(1e-6):
        return 1.0
    if not holds_zero(MOST_Z):
        return float(2 * ndtr(-MOST_Z))
    inside, outside = MOST_Z, 1e-6
    for _ in range(40):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds_zero(middle) else (inside, middle)
    return float(2 * ndtr(-inside))


def _wilson(rates: AnyFloats, n: AnyFloats, z: float) -> tuple[AnyFloats, AnyFloats]:
    center = (rates + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(rates * (1 - rates) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return np.where(rates <= 0, 0.0, center - half), np.where(rates >= 1, 1.0, center + half)


def _spread(
    outcomes: Sequence[Sequence[bool]], clusters: Sequence[Sequence[str]], rates: AnyFloats
) -> tuple[AnyFloats, AnyFloats]:
    """Effective numbers of trials (J,), and correlations (J, J) of the rates over shared start states."""
    names = {name: i for i, name in enumerate(sorted({c for cell in clusters for c in cell}))}
    residual = np.zeros((len(outcomes), len(names)))
    for j, (values, cell) in enumerate(zip(outcomes, clusters, strict=True)):
        for value, name in zip(values, cell, strict=True):
            residual[j, names[name]] += (float(value) - rates[j]) / len(values)
    covariance = residual @ residual.T
    effective = np.array([
        effective_trials(len(values), len(set(cell)), rate, own)
        for values, cell, rate, own in zip(outcomes, clusters, rates, np.diag(covariance), strict=True)
    ])  # fmt: skip
    sd = np.sqrt(np.diag(covariance))
    with np.errstate(divide='ignore', invalid='ignore'):
        correlation = np.where(np.outer(sd, sd) > 0, covariance / np.outer(sd, sd), 0.0)
        # Newcombe's correction of a positive phi, for as many start states as both cells share.
        shared = np.array([[len(set(a) & set(b)) for b in clusters] for a in clusters])
        spread = np.sqrt(rates * (1 - rates))
        slack = 1 / (2 * np.maximum(shared, 1) * np.outer(spread, spread))
        corrected = np.where(correlation > 0, np.maximum(correlation - slack, 0.0), correlation)
    corrected = np.where(np.outer(sd, sd) > 0, corrected, 0.0)
    np.fill_diagonal(corrected, 1.0)
    return effective, corrected


def midranks(values: FloatArray) -> FloatArray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middle: FloatArray = (2 * ends - counts + 1) / 2
    return middle[place]


def kruskal_wallis(groups: Sequence[FloatArray]) -> float:
    """The p-value that all groups are of one distribution, by the chi-square limit and corrected for ties.

    Wanted are two or more groups with values that differ.
    """
    from robotrials.stats.special import chdtrc

    values = np.concatenate(groups)
    ranks, n = midranks(values), len(values)
    parts = np.split(ranks, np.cumsum([len(g) for g in groups])[:-1])
    between = sum(float(part.sum()) ** 2 / len(part) for part in parts)
    counts = np.unique(values, return_counts=True)[1].astype(float)
    tied = 1 - float((counts**3 - counts).sum()) / (n**3 - n)
    statistic = (12 / (n * (n + 1)) * between - 3 * (n + 1)) / tied
    return float(chdtrc(len(groups) - 1, statistic))
