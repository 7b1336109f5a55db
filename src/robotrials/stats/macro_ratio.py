"""The mean over strata of ratios of two bounded means (a human's time over a policy's), with the rule's allowance.

A ratio with a noisy denominator is too large on average, by variance / mean^2 of it, and averaging over strata does not
help: the interval is centred where that is taken off. Its ends are reached on scales on which the ratio is nearly
linear: below, the inverse (an unseen failure adds to the denominator); above, the logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robotrials.stats.allowance import allowance_z, reaches, satterthwaite
from robotrials.stats.argument import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class RatioCells:
    """Means above and below the line, stratum by stratum (last axis); leading axes are trials."""

    above: FloatArray
    below: FloatArray
    variance_above: FloatArray
    variance_below: FloatArray
    n_above: FloatArray
    n_below: FloatArray
    high: FloatArray  # the largest value of either


def macro_ratio(cells: RatioCells) -> FloatArray:
    """(...,) the mean over strata of above / below."""
    found: FloatArray = (cells.above / cells.below).mean(axis=-1)
    return found


def macro_ratio_bounds(cells: RatioCells, *, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """(...,) the lower and upper end of the rule's interval of the macro ratio."""
    alpha, strata = 1 - level, cells.above.shape[-1]
    z2 = allowance_z(alpha) ** 2
    ratio, slope = cells.above / cells.below, cells.above / cells.below**2
    terms = np.concatenate([slope**2 * cells.variance_below, cells.variance_above / cells.below**2], axis=-1)
    dof = np.concatenate([cells.n_below - 1, cells.n_above - 1], axis=-1) + 0.0 * terms
    bias = (ratio * cells.variance_below / cells.below**2).mean(axis=-1)
    # A bias as large as the value itself says that the approximation has ended; half of it is kept.
    centre = np.maximum(ratio.mean(axis=-1) - bias, ratio.mean(axis=-1) / 2)
    ends = []
    for unseen_below, unseen_above in (
        (cells.high - cells.below, cells.above),
        (cells.below, cells.high - cells.above),
    ):
        worst = [
            (slope * unseen_below / (strata * cells.n_below)).max(axis=-1),
            (unseen_above / cells.below / (strata * cells.n_above)).max(axis=-1),
        ]
        unseen = z2 * (worst[0] ** 2 + worst[1] ** 2)
        scaled = terms / strata**2
        ends.append(reaches(scaled.sum(axis=-1), satterthwaite(scaled, dof, unseen), unseen, alpha))
    low: FloatArray = centre / (1 + ends[0] / centre)
    high: FloatArray = np.maximum(centre * np.exp(np.minimum(ends[1] / centre, 700.0)), ratio.mean(axis=-1))
    return np.minimum(low, ratio.mean(axis=-1)), high
