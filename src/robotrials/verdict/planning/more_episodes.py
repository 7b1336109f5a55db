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

from robotrials.errors import InputError
from robotrials.stats.argument import FloatArray, IntArray, check_open_unit
from robotrials.stats.mean_ratio import MeanCell
from robotrials.stats.noninferiority import ArmCounts, PairCounts, independent_variance, paired_variance
from robotrials.stats.normal import normal_cdf, normal_quantile

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


def rate_standing(
    cells: Sequence[ArmCounts] | Sequence[PairCounts], *, margin: float, design_effect: float = 1.0
) -> Standing:
    """Where a test of success rates stands."""
    if not cells:
        raise InputError('no stratum was given')
    arms = [c for c in cells if isinstance(c, ArmCounts)]
    if len(arms) == len(cells):
        return _arm_standing(arms, margin, design_effect)
    return _pair_standing([c for c in cells if isinstance(c, PairCounts)], margin, design_effect)


def _arm_standing(arms: Sequence[ArmCounts], margin: float, design_effect: float) -> Standing:
    x1, n1, x2, n2 = (
        np.array([getattr(c, name) for c in arms], dtype=np.float64)
        for name in ('new', 'n_new', 'reference', 'n_reference')
    )
    # Half an episode each way over all strata: where all went well, it is not promised that all will.
    rate = (x1 + x2 + 0.5 / len(arms)) / (n1 + n2 + 1 / len(arms))
    scale = design_effect * (n1 + n2) / (n1 + n2 - 1)

    def test_variance(all1: FloatArray, all2: FloatArray) -> FloatArray:
        hits = x1 + rate * (all1 - n1), x2 + rate * (all2 - n2)  # what is there, and what is expected
        return scale * independent_variance(hits[0], all1, hits[1], all2, -margin)

    return Standing(
        x1 / n1, x2 / n2, rate * (1 - rate) * scale, test_variance, n1.astype(np.int64), n2.astype(np.int64),
        threshold=-margin,
    )  # fmt: skip


def _pair_standing(pairs: Sequence[PairCounts], margin: float, design_effect: float) -> Standing:
    both, ahead, behind = (
        np.array([getattr(c, name) for c in pairs], dtype=np.float64) for name in ('both', 'only_new', 'only_reference')
    )
    n = np.array([c.n for c in pairs], dtype=np.float64)
    apart = (ahead + behind + 0.5 / len(pairs)) / (n + 1 / len(pairs))  # equal policies: half of them each way
    sizes = n.astype(np.int64)

    def test_variance(all1: FloatArray, all2: FloatArray) -> FloatArray:
        more = apart / 2 * (all1 - n)
        return design_effect * paired_variance(ahead + more, behind + more, all1, -margin)

    return Standing(
        (both + ahead) / n, (both + behind) / n, apart * design_effect, test_variance, sizes, sizes,
        threshold=-margin, is_paired=True,
    )  # fmt: skip


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
