"""How many more episodes until a non-inferiority test would probably pass, given those that are there.

The promise is about the test on all episodes together, the present ones included: if the two policies are equal, and
that many more are run, it passes with the power asked. What is there already is kept fixed, so an unlucky start costs
more episodes than the power of a fresh trial would say. What equal policies would score is not known exactly either;
its uncertainty is part of the forecast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.stats.allowance import Spread
from robotrials.stats.argument import FloatArray, IntArray, check_open_unit
from robotrials.stats.mean_ratio import MeanCell
from robotrials.stats.normal import normal_cdf, normal_quantile
from robotrials.stats.unseen import UnseenRule

MOST_PER_CELL = 10_000_000


@dataclass(frozen=True, slots=True)
class MoreEpisodes:
    """Episodes to add to each arm, all strata filled to `per_cell`; spread evenly, since strata count equally."""

    new: int
    reference: int  # 0 where the reference has enough
    per_cell: int
    power: float

    @property
    def total(self) -> int:
        return self.new + self.reference


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """What a test has so far: scores oriented so that larger is better, one entry a stratum.

    The test passes when mean(y_new - factor * y_reference) exceeds `threshold` by z standard errors.
    """

    y_new: FloatArray
    y_reference: FloatArray
    variance: FloatArray  # of one episode's score if the policies are equal; of one pair's contrast where paired
    test_variance: Callable[[FloatArray, FloatArray], FloatArray]  # of a stratum's contrast, given both arms' sizes
    n_new: IntArray
    n_reference: IntArray
    factor: float = 1.0
    threshold: float = 0.0
    unseen: tuple[float, float] = (0.0, 0.0)  # (episodes of an arm)^2 times the variance the test adds for it
    is_paired: bool = False


def more_episodes(standing: Standing, *, alpha: float = 0.05, power: float = 0.8) -> MoreEpisodes | None:
    """The fewest episodes to add, to the new arm or to both; None where no number that could be run is enough."""
    check_open_unit('alpha', alpha), check_open_unit('power', power)
    both = _fewest(standing, alpha, power, with_reference=True)
    if standing.is_paired:
        return both
    alone = _fewest(standing, alpha, power, with_reference=False)
    # A small reference arm rules what the test can see, and no forecast from it alone has been found reliable.
    if alone is None or alone.per_cell > standing.n_reference.min():
        return both
    return alone if both is None or alone.total <= both.total else both


def _fewest(standing: Standing, alpha: float, power: float, *, with_reference: bool) -> MoreEpisodes | None:
    def added(per_cell: int) -> tuple[IntArray, IntArray]:
        rest = np.maximum(per_cell - standing.n_reference, 0) if with_reference else np.zeros_like(standing.n_reference)
        return np.maximum(per_cell - standing.n_new, 0), rest

    def is_enough(per_cell: int) -> bool:
        return predictive_power(standing, *added(per_cell), alpha=alpha) >= power

    per_cell = _smallest(is_enough, int(min(standing.n_new.min(), standing.n_reference.min())))
    if per_cell is None:
        return None
    first, second = added(per_cell)
    return MoreEpisodes(int(first.sum()), int(second.sum()), per_cell, power)


def _smallest(is_enough: Callable[[int], bool], start: int) -> int | None:
    low, step = start, 1
    while not is_enough(low + step):
        low, step = low + step, 2 * step
        if low > MOST_PER_CELL:
            return None
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def predictive_power(standing: Standing, add_new: IntArray, add_reference: IntArray, *, alpha: float) -> float:
    """The chance that the test on all episodes passes, if the policies are equal and these many are added."""
    s = standing
    n1, n2 = s.n_new.astype(np.float64), s.n_reference.astype(np.float64)
    a1, a2 = np.asarray(add_new, dtype=np.float64), np.asarray(add_reference, dtype=np.float64)
    all1, all2 = n1 + a1, n2 + a2
    f1, f2, c = a1 / all1, a2 / all2, s.factor
    pool = (n1 * s.y_new + n2 * s.y_reference) / (n1 + n2)
    center = (1 - f1) * s.y_new + f1 * pool - c * ((1 - f2) * s.y_reference + f2 * pool)
    if s.is_paired:
        spread = s.variance * a1 / all1**2
    else:
        known = (f1 - c * f2) ** 2 / (n1 + n2)
        spread = s.variance * (a1 / all1**2 + c**2 * a2 / all2**2 + known)
    error, k = s.test_variance(all1, all2), len(center)
    unseen = s.unseen[0] / all1.sum() ** 2 + c**2 * s.unseen[1] / all2.sum() ** 2
    gap = center.mean() - s.threshold - normal_quantile(1 - alpha) * math.sqrt(error.sum() / k**2 + unseen)
    deviation = math.sqrt(spread.sum()) / k
    if deviation == 0:
        return float(gap >= 0)
    return normal_cdf(gap / deviation)


def more_for_margin(
    rule: UnseenRule, units: FloatArray, rates: FloatArray, *, margin: float, is_matched: bool, alpha: float = 0.05,
    power: float = 0.8,
) -> MoreEpisodes | None:  # fmt: skip
    """Units to add so that every cell of both arms has as many, and R then shows "not worse by the margin".

    `units` and `rates` are (cells, arms). What is there is kept; what is added has the pooled rate of its cell, since
    the two are taken to be equal. None where no number that could be run is enough.
    """
    n_cells = len(units)
    # One success and one failure more over all cells: where all went well, it is not promised that all will.
    pooled = (((units * rates).sum(axis=1) + 1 / n_cells) / (units.sum(axis=1) + 2 / n_cells))[:, None]
    scale = rule.spread.variance * n_cells**2 / max(float((pooled * (1 - pooled) / units).sum()), 1e-12)
    factor = min(max(scale, 0.1), 10.0) if is_matched else 1.0  # what matched starts save

    def is_enough(per_cell: int) -> bool:
        later = np.maximum(units, per_cell)
        kept = units / later
        expected = kept * rates + (1 - kept) * pooled
        centre = float((expected[:, 0] - expected[:, 1]).mean())
        variance = factor * float((pooled * (1 - pooled) / later).sum()) / n_cells**2
        drawn = factor * float((pooled * (1 - pooled) * (1 - kept) / later).sum()) / n_cells**2
        # What is pooled is itself estimated, and counts where one arm gets more than the other.
        shift = (1 - kept[:, 0]) - (1 - kept[:, 1])
        drawn += factor * float((shift**2 * (pooled * (1 - pooled))[:, 0] / units.sum(axis=1)).sum()) / n_cells**2
        judged = UnseenRule(
            0.0, Spread(np.array([variance]), np.array([float(per_cell)])), n_cells * float(later.min()), rule.null
        )  # fmt: skip
        gap = centre + margin + judged.bound(alpha, is_lower=True)  # by what it clears on average
        return gap >= 0 if drawn <= 0 else normal_cdf(gap / math.sqrt(drawn)) >= power

    per_cell = _smallest(is_enough, int(units.min()))
    if per_cell is None:
        return None
    new, reference = (math.ceil(float(np.maximum(per_cell - units[:, k], 0.0).sum())) for k in (0, 1))
    return MoreEpisodes(new, reference, per_cell, power)


def time_standing(cells: Sequence[MeanCell], *, margin: float, cap: float, alpha: float = 0.05) -> Standing:
    """Where a test of mean times stands; scores are negative times."""
    n1, n2 = (np.array([getattr(c, name) for c in cells], dtype=np.float64) for name in ('n_new', 'n_reference'))
    m1, m2 = np.array([c.new for c in cells]), np.array([c.reference for c in cells])
    v1, v2 = n1 * [c.variance_new for c in cells], n2 * [c.variance_reference for c in cells]
    factor, paired = 1 + margin, cells[0].covariance is not None
    variance = (n1 * v1 + n2 * v2) / (n1 + n2)
    if paired:
        both = n1 * [c.covariance or 0.0 for c in cells]
        variance = np.maximum(v1 + factor**2 * v2 - 2 * factor * both, 0.0)

    def test_variance(all1: FloatArray, all2: FloatArray) -> FloatArray:
        found: FloatArray = variance / all1 if paired else variance * (1 / all1 + factor**2 / all2)
        return found

    z2 = normal_quantile(1 - alpha) ** 2
    pooled = float(((n1 * m1 + n2 * m2) / (n1 + n2)).mean())
    return Standing(
        -m1, -m2, variance, test_variance, n1.astype(np.int64), n2.astype(np.int64), factor=factor,
        unseen=(z2 * (cap - pooled) ** 2, z2 * pooled**2), is_paired=paired,
    )  # fmt: skip
