"""When going on is pointless: rules that stop without a winner.

Stopping early without a winner never adds a false claim of one, so these rules are approximations that need no proof.
Whether a trial can still be won is judged at effects that the data leave plausible: the smallest difference of
interest, and up to one standard error beyond what has been seen. A trial that is being won is never futile because a
smaller difference could not be shown.
"""

from __future__ import annotations

import math

import numpy as np

from robotrials.stats.argument import FloatArray
from robotrials.stats.normal import normal_cdf, normal_quantile
from robotrials.verdict.planning.betting import Prior

FUTILE_POWER = 0.1
PLAUSIBLE_Z = 1.0


def plausible_effects(values: FloatArray, counts: FloatArray, smallest: float) -> tuple[float, ...]:
    """Differences in favour of a at which going on is judged: the smallest of interest, and what the data suggest.

    The spread counts one more value at each end, so that early looks are not too sure.
    """
    n = float(counts.sum())
    mean = float(counts @ values) / n
    spread = math.sqrt((float(counts @ (values - mean) ** 2) + (1 - mean) ** 2 + (1 + mean) ** 2) / (n + 2) / n)
    reachable = min(mean + PLAUSIBLE_Z * spread, 0.999)
    return (smallest,) if reachable <= smallest else (smallest, reachable)


def betting_power(
    values: FloatArray, counts: FloatArray, *, rest: int, difference: float, prior: Prior, alpha: float
) -> float:
    """About the chance to show a's advantage by the horizon if it is `difference` from now on.

    The future values are the past ones (and one of each extreme, so that early looks are not too sure), shifted in
    probability towards the difference by exponential tilting; the log capital of each share is then about normal.
    """
    support = np.concatenate([values, [-1.0, 0.0, 1.0]])
    weights = _tilt(support, np.concatenate([counts, np.full(3, 1.0)]), difference)
    gains = np.log1p(prior.shares[:, None] * support[None, :])
    mean = gains @ weights
    spread = np.sqrt(np.maximum((gains**2) @ weights - mean**2, 1e-12) * rest)
    now = np.log1p(prior.shares[:, None] * values[None, :]) @ counts + np.log(prior.weights)
    # Neighbouring shares act together: half of the capital near the best share counts as one.
    reach = now + rest * mean + math.log(prior.shares.size / 2) - math.log(2 / alpha)
    return max(normal_cdf(float(x)) for x in reach / spread)


def walk_power(lead: int, disagreements: int, *, pairs: int, rest: int, difference: float, alpha: float) -> float:
    """About the chance that a lead in wins becomes decisive by the horizon if the difference is as given from now."""
    rate = max((disagreements + 1) / (pairs + 2), difference)
    edge = normal_quantile(1 - alpha / 2.4) * math.sqrt(disagreements + rest * rate)
    spread = math.sqrt(max(rest * (rate - difference**2), 1e-12))
    return normal_cdf((lead + rest * difference - edge) / spread)


def _tilt(support: FloatArray, counts: FloatArray, mean: float) -> FloatArray:
    """Weights proportional to counts * exp(k * support) with the given mean."""
    low, high = -60.0, 60.0
    weights: FloatArray = counts / counts.sum()
    for _ in range(60):
        k = (low + high) / 2
        tilted = counts * np.exp(k * support - max(k, -k))
        weights = tilted / tilted.sum()
        low, high = (k, high) if weights @ support < mean else (low, k)
    return weights
