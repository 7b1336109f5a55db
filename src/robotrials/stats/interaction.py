"""Does the sign of a difference depend on the stratum? (Gail and Simon, Biometrics 1985)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from robotrials.errors import InputError
from robotrials.stats.allowance import (
    SMALLEST_P,
    MacroDifference,
    allowance_z,
)
from robotrials.stats.argument import FloatArray
from robotrials.stats.normal import STANDARD

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


def _normal_score(found: MacroDifference, alpha: float) -> float:
    from robotrials.stats.special import stdtr

    if found.difference == 0:
        return 0.0
    unseen = allowance_z(alpha) ** 2 * (found.moved_low if found.difference > 0 else found.moved_high)
    error = math.sqrt(found.variance + unseen)
    if error == 0:
        return math.copysign(8.0, found.difference)
    tail = float(stdtr(found.spread.degrees(unseen), -abs(found.difference) / error))
    return math.copysign(-STANDARD.inv_cdf(max(tail, 1e-15)), found.difference)
