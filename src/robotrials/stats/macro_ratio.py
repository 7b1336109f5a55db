"""Ratios of two bounded means over strata (a human's time over a policy's), with an allowance for what was not seen.

Three named quantities: the mean over strata of ratios (PhAIL's HRT), the ratio of the two macro means, and the first
with the reference taken as known. Ends are reached on the logarithm, so that no interval comes near 0 or grows without
end: each arm has a move up (linear, an unseen failure costs seconds) and one down (on the logarithm), and the two arms'
moves are added as squares. Most of the width is the reference's unseen failure, where tau is many times its mean.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from robotrials.stats.allowance import allowance_z, reaches, satterthwaite
from robotrials.stats.argument import FloatArray


class RatioKind(enum.StrEnum):
    """What a ratio to a reference is."""

    MEAN_OF_RATIOS = 'mean of ratios'  # PhAIL's HRT
    RATIO_OF_MEANS = 'ratio of macro means'
    FIXED_REFERENCE = 'reference taken as fixed'  # the mean of ratios for this very reference


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


def macro_ratio(cells: RatioCells, kind: RatioKind = RatioKind.MEAN_OF_RATIOS) -> FloatArray:
    """(...,) the ratio that `kind` names."""
    if kind is RatioKind.RATIO_OF_MEANS:
        ratio: FloatArray = cells.above.mean(axis=-1) / cells.below.mean(axis=-1)
    else:
        ratio = (cells.above / cells.below).mean(axis=-1)
    return ratio


def macro_ratio_bounds(
    cells: RatioCells, *, level: float = 0.95, kind: RatioKind = RatioKind.MEAN_OF_RATIOS
) -> tuple[FloatArray, FloatArray]:
    """(...,) the lower and upper end of the interval of the ratio."""
    alpha, strata = 1 - level, cells.above.shape[-1]
    value = macro_ratio(cells, kind)
    if kind is RatioKind.RATIO_OF_MEANS:
        slope_above, slope_below = (1 / (strata * m.mean(axis=-1, keepdims=True)) for m in (cells.above, cells.below))
        most_above = cells.high.mean(axis=-1) / cells.above.mean(axis=-1)
        most_below = cells.high.mean(axis=-1) / cells.below.mean(axis=-1)
        centre = value
    else:
        ratio = cells.above / cells.below
        weight = ratio / ratio.sum(axis=-1, keepdims=True)
        slope_above, slope_below = weight / cells.above, weight / cells.below
        most_above = (cells.high / cells.below).mean(axis=-1) / value
        most_below = value / (cells.above / cells.high).mean(axis=-1)
        # A noisy denominator makes a ratio too large on average, and averaging over strata does not help. Half is kept:
        # a bias as large as the value itself says that the approximation has ended.
        bias = (ratio * cells.variance_below / cells.below**2).mean(axis=-1)
        centre = np.maximum(value - bias, value / 2)
    below = _moves(cells.below, cells.variance_below, cells.n_below, cells.high, slope_below, most_below, alpha)
    above = _moves(cells.above, cells.variance_above, cells.n_above, cells.high, slope_above, most_above, alpha)
    if kind is RatioKind.FIXED_REFERENCE:
        above = (np.zeros_like(value), np.zeros_like(value))
    low = centre * np.exp(-np.hypot(above[1], below[0]))
    high = centre * np.exp(np.hypot(above[0], below[1]))
    return np.minimum(low, value), np.maximum(high, value)


def _moves(
    means: FloatArray, variances: FloatArray, n_units: FloatArray, high: FloatArray, slope: FloatArray,
    most: FloatArray, alpha: float,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """(...,) how far the logarithm of one arm may be above and below its estimate.

    `slope` is what the logarithm moves by per unit of each stratum's mean, `most` the factor at which every stratum is
    at its high end. Downwards the move is lengthened: a mean that has just missed a failure lies too far down, and its
    own variance does not show it (a reference that fails 9 % of tries: .938 without, .952 with).
    """
    z2 = allowance_z(alpha) ** 2
    terms, dof = slope**2 * variances, np.broadcast_to(n_units - 1.0, means.shape) + 0.0 * means
    ends = []
    for unseen in (high - means, means):
        moved = z2 * (slope * unseen / n_units).max(axis=-1) ** 2
        ends.append(reaches(terms.sum(axis=-1), satterthwaite(terms, dof, moved), moved, alpha))
    up: FloatArray = np.minimum(np.log1p(ends[0]), np.log(most))
    down: FloatArray = ends[1] + np.minimum(ends[1], 0.5) ** 2 / 2
    return up, down
