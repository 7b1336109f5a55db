"""No worse by more than a margin: score tests and bounds of a difference of success rates, macro over strata.

The estimand is the plain mean over strata of p_new - p_reference. Independent arms: the stratified score statistic of
Miettinen and Nurminen (Statistics in Medicine 1985) with equal weights. Matched pairs: Tango's score statistic
(Statistics in Medicine 1998), stratified in the same way. Both take the variance that the tested difference implies,
which is why they hold with few episodes and at rates near 0 and 1, where a bootstrap or Wald bound does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from robotrials.errors import InputError
from robotrials.stats.argument import FloatArray, check_count, check_open_unit, check_successes, exact_mean
from robotrials.stats.interval import normal_cdf, normal_quantile
from robotrials.value import dataclass

MOST_STEPS = 200
FARTHEST = 1e3  # where a statistic without spread is infinite, the search still needs a number
EDGE = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class ArmCounts:
    """One stratum of two independent arms."""

    new: int
    n_new: int
    reference: int
    n_reference: int

    def __post_init__(self) -> None:
        check_successes(self.new, self.n_new, names=('new', 'n_new'))
        check_successes(self.reference, self.n_reference, names=('reference', 'n_reference'))


@dataclass(frozen=True, slots=True)
class PairCounts:
    """One stratum of matched pairs: in how many both, only the new, only the reference, neither succeeded."""

    both: int
    only_new: int
    only_reference: int
    neither: int

    def __post_init__(self) -> None:
        for name in ('both', 'only_new', 'only_reference', 'neither'):
            check_count(name, getattr(self, name))
        if self.n == 0:
            raise InputError('a stratum of pairs needs at least one pair, found none')

    @property
    def n(self) -> int:
        return self.both + self.only_new + self.only_reference + self.neither


Cells = Sequence[ArmCounts] | Sequence[PairCounts]


@dataclass(frozen=True, slots=True)
class NonInferiority:
    """A difference of rates new - reference against a margin.

    `low` is the one-sided bound at 1 - alpha: non-inferior when it lies above -margin. `high` is the one-sided bound at
    1 - alpha_worse: worse when it lies below 0.
    """

    new: float
    reference: float
    difference: float
    low: float
    high: float
    margin: float
    alpha: float
    alpha_worse: float
    p_value: float  # of difference <= -margin
    p_worse: float  # of difference >= 0
    is_paired: bool
    design_effect: float

    @property
    def is_shown(self) -> bool:
        return self.p_value <= self.alpha

    @property
    def is_worse(self) -> bool:
        return self.p_worse <= self.alpha_worse


def noninferiority(
    cells: Cells, *, margin: float, alpha: float = 0.05, alpha_worse: float | None = None, design_effect: float = 1.0
) -> NonInferiority:
    """Test new > reference - margin, one-sided, on strata of independent arms or of matched pairs.

    `design_effect` multiplies the variance where episodes of one start state are alike (Rao and Scott 1992).

    >>> found = noninferiority([ArmCounts(83, 88, 69, 76)], margin=0.1)
    >>> round(found.low, 4), found.is_shown
    (-0.0337, True)
    """
    check_open_unit('margin', margin)
    worse = check_open_unit('alpha_worse', alpha if alpha_worse is None else alpha_worse)
    statistic, rates, paired = _statistic(cells, design_effect)
    z = normal_quantile(1 - check_open_unit('alpha', alpha))
    return NonInferiority(
        new=rates[0],
        reference=rates[1],
        difference=rates[0] - rates[1],
        low=falling_root(statistic, z),
        high=falling_root(statistic, -normal_quantile(1 - worse)),
        margin=margin,
        alpha=alpha,
        alpha_worse=worse,
        p_value=normal_cdf(-statistic(-margin)),
        p_worse=normal_cdf(statistic(0.0)),
        is_paired=paired,
        design_effect=design_effect,
    )


def rate_difference_interval(
    cells: Cells, *, level: float = 0.95, design_effect: float = 1.0
) -> tuple[float, float, float, float]:
    """(difference, low, high, two-sided p-value of no difference), by the same score statistic."""
    statistic, rates, _ = _statistic(cells, design_effect)
    z = normal_quantile((1 + check_open_unit('level', level)) / 2)
    p_value = min(1.0, 2 * normal_cdf(-abs(statistic(0.0))))
    return rates[0] - rates[1], falling_root(statistic, z), falling_root(statistic, -z), p_value


def _statistic(cells: Cells, design_effect: float) -> tuple[Callable[[float], float], tuple[float, float], bool]:
    """Z as a falling function of the tested difference, the macro rates, and whether the cells are pairs."""
    if not len(cells):
        raise InputError('no stratum was given: there is no difference of nothing')
    if not (math.isfinite(design_effect) and design_effect >= 1):
        raise InputError(f'design_effect is {design_effect}, wanted a finite number >= 1')
    pairs = [c for c in cells if isinstance(c, PairCounts)]
    if pairs and len(pairs) < len(cells):
        raise InputError('strata of pairs and of independent arms are mixed; give one kind')
    if pairs:
        both, ahead, behind = (np.array([getattr(c, n) for c in pairs], dtype=np.float64) for n in PAIR_FIELDS)
        n = np.array([c.n for c in pairs], dtype=np.float64)
        gaps, rates = (ahead - behind) / n, (exact_mean((both + ahead) / n), exact_mean((both + behind) / n))

        def variance(delta: float) -> FloatArray:
            return paired_variance(ahead, behind, n, delta)
    else:
        arms = [c for c in cells if isinstance(c, ArmCounts)]
        x1, n1, x2, n2 = (np.array([getattr(c, name) for c in arms], dtype=np.float64) for name in ARM_FIELDS)
        gaps, rates = x1 / n1 - x2 / n2, (exact_mean(x1 / n1), exact_mean(x2 / n2))

        def variance(delta: float) -> FloatArray:
            return independent_variance(x1, n1, x2, n2, delta)

    def statistic(delta: float) -> float:
        spread = math.sqrt(design_effect * math.fsum(variance(delta).tolist())) / len(gaps)
        gap = exact_mean(gaps) - delta
        if spread > 0:
            return gap / spread
        return math.copysign(math.inf, gap) if abs(gap) > 1e-12 else 0.0

    return statistic, rates, bool(pairs)


PAIR_FIELDS = ('both', 'only_new', 'only_reference')
ARM_FIELDS = ('new', 'n_new', 'reference', 'n_reference')


def falling_root(statistic: Callable[[float], float], z: float) -> float:
    """The difference at which the falling statistic equals z, by false position with Illinois' halving."""
    low, high = -EDGE, EDGE
    above, below = (min(max(statistic(end) - z, -FARTHEST), FARTHEST) for end in (low, high))
    if above <= 0:
        return -1.0
    if below >= 0:
        return 1.0
    kept = 0
    for _ in range(MOST_STEPS):
        middle = (low * below - high * above) / (below - above)
        here = statistic(middle) - z
        if abs(here) < 1e-12 or high - low < 1e-13:
            return middle
        if here > 0:
            low, above, below, kept = middle, here, below / 2 if kept == 1 else below, 1
        else:
            high, below, above, kept = middle, here, above / 2 if kept == -1 else above, -1
    return (low + high) / 2


def independent_variance(x1: FloatArray, n1: FloatArray, x2: FloatArray, n2: FloatArray, delta: float) -> FloatArray:
    """(strata,) variance of p1 - p2 at the likeliest rates with p1 = p2 + delta, times N / (N - 1)."""
    p2 = restricted_rate(x1, n1, x2, n2, delta)
    p1 = np.clip(p2 + delta, 0.0, 1.0)
    total = n1 + n2
    return (p1 * (1 - p1) / n1 + p2 * (1 - p2) / n2) * total / (total - 1)


def restricted_rate(x1: FloatArray, n1: FloatArray, x2: FloatArray, n2: FloatArray, delta: float) -> FloatArray:
    """(strata,) the likeliest p2 given p1 = p2 + delta: a root of Miettinen and Nurminen's cubic, in closed form."""
    total, hits = n1 + n2, x1 + x2
    l2 = (n1 + 2 * n2) * delta - total - hits
    l1 = (n2 * delta - total - 2 * x2) * delta + hits
    l0 = x2 * delta * (1 - delta)
    q = l2**3 / (3 * total) ** 3 - l1 * l2 / (6 * total**2) + l0 / (2 * total)
    p = np.where(q >= 0, 1.0, -1.0) * np.sqrt(np.maximum(l2**2 / (3 * total) ** 2 - l1 / (3 * total), 0.0))
    cosine = np.divide(q, p**3, out=np.zeros_like(q), where=p != 0)
    angle = (math.pi + np.arccos(np.clip(cosine, -1.0, 1.0))) / 3
    root: FloatArray = np.clip(2 * p * np.cos(angle) - l2 / (3 * total), max(0.0, -delta), min(1.0, 1.0 - delta))
    return root


def paired_variance(ahead: FloatArray, behind: FloatArray, n: FloatArray, delta: float) -> FloatArray:
    """(strata,) Tango's variance of the paired difference at the likeliest discordance with difference delta."""
    b = (2 * n - ahead + behind) * delta - ahead - behind
    c = -behind * delta * (1 - delta)
    lost = (np.sqrt(np.maximum(b**2 - 8 * n * c, 0.0)) - b) / (4 * n)  # P(only the reference succeeds)
    lost = np.clip(lost, max(0.0, -delta), (1 - delta) / 2)
    return (2 * lost + delta * (1 - delta)) / n
