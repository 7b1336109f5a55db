"""Ratios of two macro means over strata: with an allowance for what was not seen, and bounded by a margin."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.stats.interval import FloatArray, allowance_z, check_open_unit, normal_quantile, reaches, satterthwaite
from robotrials.value import dataclass

# Ratios of two bounded means over strata (a human's time over a policy's), with an allowance for what was not seen.
# Three named quantities: the mean over strata of ratios (PhAIL's HRT), the ratio of the two macro means, and the first
# with the reference taken as known. Ends are reached on the logarithm, so that no interval comes near 0 or grows
# without end: each arm has a move up (linear, an unseen failure costs seconds) and one down (on the logarithm), and
# the two arms' moves are added as squares. Most of the width is the reference's unseen failure, where tau is many
# times its mean.


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


# No slower by more than a share: a bound of the ratio of two macro means of a capped time.
# The statistic for a ratio theta is M_new - theta * M_reference over its standard error, M being the plain mean over
# strata. Standard errors come from leaving out one episode at a time, degrees of freedom from Satterthwaite, and
# bounds from inverting the test (Fieller). A mean of a time with a cap hides what has not happened yet: ten quick
# successes say little about failures, each of which costs the whole cap. So z^2 unseen episodes at the far end of the
# scale are added to the variance of each arm, which for an arm without any failure is Wilson's bound. Without them a t
# or bootstrap bound is wrong up to six times as often as it says (`make study`).

HALVINGS = 60
LARGEST_RATIO = 1e3


@dataclass(frozen=True, slots=True)
class MeanCell:
    """One stratum: the two arms' means, the (co)variances of those means, and the episodes (or pairs) behind them."""

    new: float
    reference: float
    variance_new: float
    variance_reference: float
    n_new: int
    n_reference: int
    covariance: float | None = None  # None for independent arms

    def __post_init__(self) -> None:
        if min(self.n_new, self.n_reference) < 2:
            raise NotEstimable(
                f'a mean time needs at least 2 episodes per stratum and arm to have a bound, found {self.n_new} and '
                f'{self.n_reference}'
            )
        if self.covariance is not None and self.n_new != self.n_reference:
            raise InputError(f'pairs have two members each, found {self.n_new} and {self.n_reference}')
        numbers = (self.new, self.reference, self.variance_new, self.variance_reference)
        if not all(math.isfinite(v) and v >= 0 for v in numbers):
            raise InputError(f'means and variances must be finite and not negative, found {self}')


@dataclass(frozen=True, slots=True)
class RatioNonInferiority:
    """A ratio of mean times new / reference against 1 + margin.

    `high` is the one-sided bound at 1 - alpha: non-inferior when it lies below 1 + margin. `low` is the one-sided bound
    at 1 - alpha_worse: slower when it lies above 1. Either may be infinite (or 0) where the data set no bound.
    """

    new: float
    reference: float
    ratio: float
    low: float
    high: float
    margin: float
    alpha: float
    alpha_worse: float
    p_value: float  # of ratio >= 1 + margin
    p_worse: float  # of ratio <= 1
    is_paired: bool

    @property
    def is_shown(self) -> bool:
        return self.p_value <= self.alpha

    @property
    def is_worse(self) -> bool:
        return self.p_worse <= self.alpha_worse


def ratio_noninferiority(
    cells: Sequence[MeanCell], *, margin: float, cap: float, alpha: float = 0.05, alpha_worse: float | None = None
) -> RatioNonInferiority:
    """Test mean_new < (1 + margin) * mean_reference, one-sided, macro over strata; `cap` is the largest time."""
    worse = alpha if alpha_worse is None else alpha_worse
    for name, value in (('alpha', alpha), ('alpha_worse', worse)):
        check_open_unit(name, value)
    if not (math.isfinite(margin) and margin > 0):
        raise InputError(f'margin is {margin}, wanted a number over 0 (10 % slower is 0.1)')
    quick, slow = _Contrast(cells, cap, alpha=alpha, is_upper=True), _Contrast(cells, cap, alpha=worse, is_upper=False)
    if quick.reference <= 0:
        raise NotEstimable("the reference's mean time is 0: there is no ratio to it")
    ratio = quick.new / quick.reference
    return RatioNonInferiority(
        new=quick.new, reference=quick.reference, ratio=ratio,
        low=_solve(slow, worse, 0.0, ratio), high=_solve(quick, alpha, ratio, LARGEST_RATIO),
        margin=margin, alpha=alpha, alpha_worse=worse, p_value=quick.p_value(1 + margin), p_worse=slow.p_value(1.0),
        is_paired=quick.is_paired,
    )  # fmt: skip


class _Contrast:
    """M_new - theta * M_reference and its one-sided p-values."""

    def __init__(self, cells: Sequence[MeanCell], cap: float, *, alpha: float, is_upper: bool) -> None:
        if not cells:
            raise InputError('no stratum was given: there is no mean of nothing')
        if len({c.covariance is None for c in cells}) > 1:
            raise InputError('strata of pairs and of independent arms are mixed; give one kind')
        self.is_paired = cells[0].covariance is not None
        self.is_upper = is_upper
        means, variances = [c.new for c in cells], [c.variance_new for c in cells]
        self.new, self.reference = math.fsum(means) / len(cells), math.fsum(c.reference for c in cells) / len(cells)
        if max(self.new, self.reference) > cap * (1 + 1e-9):
            raise InputError(f'cap is {cap}, less than a mean time of {max(self.new, self.reference)}')
        self.v1 = np.array(variances) / len(cells) ** 2
        self.v2 = np.array([c.variance_reference for c in cells]) / len(cells) ** 2
        self.cov = np.array([c.covariance or 0.0 for c in cells]) / len(cells) ** 2
        self.n1, self.n2 = np.array([c.n_new for c in cells]), np.array([c.n_reference for c in cells])
        self.unseen = unseen_variance(
            self.new, self.reference, cap=cap, n=(int(self.n1.sum()), int(self.n2.sum())), alpha=alpha,
            is_upper=is_upper,
        )  # fmt: skip

    def p_value(self, theta: float) -> float:
        """Of ratio >= theta (upper) or ratio <= theta (lower)."""
        from robotrials.stats.special import stdtr

        variance, df = self._spread(theta)
        unseen = self.unseen[0] + theta**2 * self.unseen[1]
        gap = self.new - theta * self.reference
        t = gap / math.sqrt(variance + unseen) if variance + unseen > 0 else math.copysign(math.inf, gap)
        return float(stdtr(df, t if self.is_upper else -t))

    def _spread(self, theta: float) -> tuple[float, float]:
        parts, n = [self.v1, theta**2 * self.v2], [self.n1, self.n2]
        if self.is_paired:
            parts, n = [np.maximum(self.v1 + theta**2 * self.v2 - 2 * theta * self.cov, 0.0)], [self.n1]
        total = math.fsum(np.concatenate(parts).tolist())
        squares = math.fsum(np.concatenate([p**2 / (k - 1) for p, k in zip(parts, n, strict=True)]).tolist())
        fewest = float(min(int(k.min()) for k in n) - 1)
        return total, max(total**2 / squares, fewest) if squares > 0 else fewest


def unseen_variance(
    new: float, reference: float, *, cap: float, n: tuple[int, int], alpha: float, is_upper: bool
) -> tuple[float, float]:
    """What z^2 episodes not yet seen, at the end of the scale that would hurt the claim, add to each variance."""
    z2 = normal_quantile(1 - alpha) ** 2
    far_new = cap - new if is_upper else new
    far_reference = reference if is_upper else cap - reference
    return z2 * (far_new / n[0]) ** 2, z2 * (far_reference / n[1]) ** 2


def _solve(contrast: _Contrast, alpha: float, low: float, high: float) -> float:
    """The ratio at which the p-value passes alpha: it falls with theta for upper claims, rises for lower ones."""
    end = high if contrast.is_upper else low
    if contrast.p_value(end) > alpha:
        return math.inf if contrast.is_upper else 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        inside = (contrast.p_value(middle) > alpha) == contrast.is_upper
        low, high = (middle, high) if inside else (low, middle)
    return (low + high) / 2


def clustered_covariance(
    first: FloatArray, second: FloatArray, clusters: Sequence[object] | None = None
) -> tuple[float, float, float]:
    """Variances of two statistics and their covariance, from influences (n,) summed within clusters.

    An influence is what an observation adds to its statistic: (x - mean) / n for a mean, (n - 1) / n times what leaving
    it out takes away in general. With G clusters the sums of squares are scaled by G / (G - 1).
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if clusters is not None:
        place = {label: i for i, label in enumerate(dict.fromkeys(clusters))}
        codes = np.array([place[label] for label in clusters])
        sums = [np.bincount(codes, weights=values, minlength=len(place)).astype(np.float64) for values in (a, b)]
        a, b = sums
    groups = len(a)
    if groups < 2:
        raise NotEstimable('a variance needs at least 2 start states, found 1')
    a, b = a - a.mean(), b - b.mean()
    scale = groups / (groups - 1)
    return scale * float(a @ a), scale * float(b @ b), scale * float(a @ b)
