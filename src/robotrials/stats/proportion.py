"""Success rates from counts: intervals of one rate and of a difference, exact tests, posteriors, non-inferiority.

Non-inferiority is of the plain mean over strata of p_new - p_reference. Independent arms: the stratified score
statistic of Miettinen and Nurminen (Statistics in Medicine 1985) with equal weights. Matched pairs: Tango's score
statistic (Statistics in Medicine 1998), stratified in the same way. Both take the variance that the tested difference
implies, which is why they hold with few episodes and at rates near 0 and 1, where a bootstrap or Wald bound does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from robotrials.errors import InputError
from robotrials.stats.interval import (
    Alternative,
    BoolArray,
    FloatArray,
    Interval,
    Significance,
    check_alternative,
    check_count,
    check_open_unit,
    check_successes,
    exact_mean,
    normal_cdf,
    normal_quantile,
    two_sided_z,
)
from robotrials.value import dataclass


def wilson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Wilson's score interval of a proportion (JASA 1927).

    >>> print(wilson(7, 10))
    [0.3968, 0.8922]
    """
    x, n = check_successes(successes, n)
    z2 = two_sided_z(level) ** 2
    center = (x + z2 / 2) / (n + z2)
    half = math.sqrt(z2) * math.sqrt(x * (n - x) / n + z2 / 4) / (n + z2)
    # At 0 and n the interval reaches the end exactly; rounding must not leave 1e-17 there.
    return Interval(0.0 if x == 0 else max(0.0, center - half), 1.0 if x == n else min(1.0, center + half))


def wilson_of_share(share: float, n: float, level: float = 0.95) -> Interval:
    """Wilson's interval for a sample size that need not be whole."""
    z2 = two_sided_z(level) ** 2
    center = (n * share + z2 / 2) / (n + z2)
    half = math.sqrt(z2) * math.sqrt(n * share * (1 - share) + z2 / 4) / (n + z2)
    return Interval(min(share, max(0.0, center - half)), max(share, min(1.0, center + half)))


def clustered_wilson(hits: Sequence[int], sizes: Sequence[int], level: float = 0.95) -> Interval:
    """Wilson's interval of sum(hits) / sum(sizes), where trials of one cluster (marks of one episode) are alike.

    The sample size is the number of independent trials that show as much spread between clusters (the ratio estimator's
    variance), times (z / t)^2 for as few clusters as they are (Korn and Graubard, Survey Methodology 1998). Where all
    or none succeed, a cluster counts as one trial. Clusters without a trial say nothing.

    >>> print(clustered_wilson([4, 4, 0, 4, 4], [4, 4, 4, 4, 4]))
    [0.2572, 0.9788]
    """
    if len(hits) != len(sizes):
        raise InputError(f'{len(hits)} hits and {len(sizes)} sizes, wanted one of each per cluster')
    parts = [check_successes(x, n, names=('hits', 'sizes')) for x, n in zip(hits, sizes, strict=True) if n or x]
    if not parts:
        raise InputError('an interval of a share needs at least one trial, found none')
    n, k = sum(n for _, n in parts), len(parts)
    share = sum(x for x, _ in parts) / n
    effective = effective_trials(n, k, share, math.fsum((x - share * m) ** 2 for x, m in parts) / n**2)
    return wilson_of_share(share, effective * _few_clusters(k, level), level)


def effective_trials(n: int, n_clusters: int, rate: float, variance: float) -> float:
    """How many independent trials have this variance of a rate, between as many as clusters and as many as trials."""
    if n_clusters == n:
        return float(n)
    if not 0 < rate < 1 or n_clusters < 2:
        return float(n_clusters)
    clustered = variance * n_clusters / (n_clusters - 1)
    return float(min(max(rate * (1 - rate) / clustered, n_clusters), n)) if clustered > 0 else float(n)


def _few_clusters(n_clusters: int, level: float) -> float:
    from robotrials.stats.special import stdtrit

    if n_clusters < 2:
        return 1.0
    return float(two_sided_z(level) / stdtrit(n_clusters - 1, (1 + level) / 2)) ** 2


def newcombe(x1: int, n1: int, x2: int, n2: int, level: float = 0.95) -> Interval:
    """Newcombe's hybrid score interval of p1 - p2, independent samples (Statistics in Medicine 1998, method 10)."""
    x1, n1 = check_successes(x1, n1, names=('x1', 'n1'))
    x2, n2 = check_successes(x2, n2, names=('x2', 'n2'))
    p1, p2 = x1 / n1, x2 / n2
    first, second = wilson(x1, n1, level), wilson(x2, n2, level)
    low = p1 - p2 - math.hypot(p1 - first.low, second.high - p2)
    high = p1 - p2 + math.hypot(first.high - p1, p2 - second.low)
    return Interval(max(-1.0, low), min(1.0, high))


def newcombe_paired(both: int, only_first: int, only_second: int, neither: int, level: float = 0.95) -> Interval:
    """Newcombe's interval of p1 - p2 for paired proportions (1998, method 10, with the corrected phi)."""
    named = {'both': both, 'only_first': only_first, 'only_second': only_second, 'neither': neither}
    e, f, g, h = (check_count(name, count) for name, count in named.items())
    n = e + f + g + h
    if n == 0:
        raise InputError('a paired interval needs at least one pair, found none')
    p1, p2 = (e + f) / n, (e + g) / n
    first, second = wilson(e + f, n, level), wilson(e + g, n, level)
    phi = _newcombe_phi(e, f, g, h)
    dl1, du1, dl2, du2 = p1 - first.low, first.high - p1, p2 - second.low, second.high - p2
    low = p1 - p2 - math.sqrt(max(0.0, dl1**2 - 2 * phi * dl1 * du2 + du2**2))
    high = p1 - p2 + math.sqrt(max(0.0, du1**2 - 2 * phi * du1 * dl2 + dl2**2))
    return Interval(max(-1.0, low), min(1.0, high))


def _newcombe_phi(e: int, f: int, g: int, h: int) -> float:
    margins = (e + f) * (g + h) * (e + g) * (f + h)
    if margins == 0:
        return 0.0
    numerator: float = e * h - f * g
    if numerator > 0:
        numerator = max(numerator - (e + f + g + h) / 2, 0)
    return numerator / math.sqrt(margins)


def clopper_pearson(successes: int, n: int, level: float = 0.95) -> Interval:
    """The exact (conservative) interval of Clopper and Pearson (Biometrika 1934)."""
    from robotrials.stats.special import betaincinv

    x, n = check_successes(successes, n)
    tail = (1 - check_open_unit('level', level)) / 2
    low = 0.0 if x == 0 else float(betaincinv(x, n - x + 1, tail))
    high = 1.0 if x == n else float(betaincinv(x + 1, n - x, 1 - tail))
    return Interval(low, high)


def jeffreys(successes: int, n: int, level: float = 0.95) -> Interval:
    """The equal-tailed Jeffreys interval, reaching 0 or 1 when nothing or everything succeeded (Brown et al. 2001)."""
    from robotrials.stats.special import betaincinv

    x, n = check_successes(successes, n)
    tail = (1 - check_open_unit('level', level)) / 2
    low = 0.0 if x == 0 else float(betaincinv(x + 0.5, n - x + 0.5, tail))
    high = 1.0 if x == n else float(betaincinv(x + 0.5, n - x + 0.5, 1 - tail))
    return Interval(low, high)


# Exact tests of two success rates: McNemar for pairs, Barnard for independent arms.

NUISANCE_GRID = 513
BLAS_ALONE, ROWS = 1 << 18, 16  # multiplications for which OpenBLAS takes a single thread; rows it takes at once
NUISANCE_REFINEMENTS = 6


def exact_mcnemar(
    only_first: int, only_second: int, *, alternative: Alternative = 'two-sided', mid_p: bool = False
) -> Significance:
    """McNemar's test from the two discordant counts, by the binomial distribution; p = 1 when no pair disagrees.

    'greater' is "the first succeeds more often". `mid_p` counts the observed table half (Fagerland et al. 2013): nearer
    to nominal, no longer guaranteed. The statistic is only_first - only_second.
    """
    b, c = check_count('only_first', only_first), check_count('only_second', only_second)
    n = b + c
    observed = binomial_pmf(n, 0.5)
    upper, lower = float(observed[b:].sum()), float(observed[: b + 1].sum())
    half = float(observed[b]) / 2 if mid_p else 0.0
    tails = {'greater': upper - half, 'less': lower - half, 'two-sided': 2 * (min(upper, lower) - half)}
    p = tails[check_alternative(alternative)]
    return Significance(float(b - c), min(1.0, p), alternative)


def barnard(
    x1: int, n1: int, x2: int, n2: int, *, alternative: Alternative = 'two-sided', pooled: bool = True
) -> Significance:
    """Barnard's unconditional exact test of p1 = p2 with the Wald statistic as its order (Suissa and Shuster 1985).

    The p-value is the largest chance, over the common rate, of a table at least as extreme: the supremum is taken over
    a grid that is refined around its highest points. 'greater' is p1 > p2.
    """
    x1, n1 = check_successes(x1, n1, names=('x1', 'n1'))
    x2, n2 = check_successes(x2, n2, names=('x2', 'n2'))
    order = wald_order(n1, n2, pooled=pooled)
    region = as_extreme(order, float(order[x1, x2]), check_alternative(alternative))
    return Significance(float(order[x1, x2]), unconditional_size(region), alternative)


def barnard_region(n1: int, n2: int, *, alpha: float, alternative: Alternative = 'two-sided') -> BoolArray:
    """Which tables Barnard's test rejects at alpha, (n1 + 1, n2 + 1): the largest region of size at most alpha."""
    n1, n2 = check_count('n1', n1, least=1), check_count('n2', n2, least=1)
    alpha = check_open_unit('alpha', alpha)
    order = wald_order(n1, n2)
    signed = {'greater': order, 'less': -order, 'two-sided': np.abs(order)}[check_alternative(alternative)]
    values = np.sort(signed, axis=None)
    edges = values[np.r_[True, np.diff(values) > _slack(values[1:])]]
    low, high = 0, edges.size  # the size falls as the edge rises; edges.size rejects nothing
    while low < high:
        middle = (low + high) // 2
        if unconditional_size(as_extreme(signed, float(edges[middle]), 'greater')) <= alpha:
            high = middle
        else:
            low = middle + 1
    if low == edges.size:
        return np.zeros(order.shape, dtype=np.bool_)
    return as_extreme(signed, float(edges[low]), 'greater')


def wald_order(n1: int, n2: int, *, pooled: bool = True) -> FloatArray:
    """The z of p1 - p2 for every table (n1 + 1, n2 + 1); 0 where both arms are all failures or all successes."""
    p1, p2 = np.arange(n1 + 1)[:, None] / n1, np.arange(n2 + 1)[None, :] / n2
    if pooled:
        mean = (np.arange(n1 + 1)[:, None] + np.arange(n2 + 1)[None, :]) / (n1 + n2)
        variance = mean * (1 - mean) * (1 / n1 + 1 / n2)
    else:
        variance = p1 * (1 - p1) / n1 + p2 * (1 - p2) / n2
    with np.errstate(invalid='ignore', divide='ignore'):
        z: FloatArray = np.where(p1 == p2, 0.0, (p1 - p2) / np.sqrt(variance))
    return z


def as_extreme(order: FloatArray, observed: float, alternative: Alternative) -> BoolArray:
    """The tables at least as extreme as the observed statistic, ties within rounding included."""
    signed = {'greater': order, 'less': -order, 'two-sided': np.abs(order)}[alternative]
    edge = {'greater': observed, 'less': -observed, 'two-sided': abs(observed)}[alternative]
    return signed >= edge - _slack(np.asarray(edge))


def unconditional_size(region: BoolArray) -> float:
    """The largest chance, over a common success rate, that a table falls into `region` (n1 + 1, n2 + 1)."""
    rates = _nuisance_grid()
    best, step = 0.0, float(np.max(np.diff(rates)))
    for _ in range(NUISANCE_REFINEMENTS):
        chances = region_chance(region, rates, rates)
        best = max(best, float(chances.max()))
        centres = rates[np.argsort(chances)[-5:]]
        rates = np.unique(np.clip(centres[:, None] + np.linspace(-step, step, 21), 0, 1))
        step /= 10
    return min(1.0, best)


def region_chance(region: BoolArray, rates1: FloatArray, rates2: FloatArray) -> FloatArray:
    """The chance of a table in `region` at each pair of success rates."""
    first = binomial_pmf_table(region.shape[0] - 1, rates1)
    second = binomial_pmf_table(region.shape[1] - 1, rates2)
    # A product with truth values is not BLAS's, and takes a hundred times as long; for one as small as these pieces
    # BLAS starts no threads, which on a busy machine wait for each other longer than they compute.
    weights, rows = region.astype(np.float64), max(ROWS, BLAS_ALONE // region.size // ROWS * ROWS)
    starts = range(rows, len(first) - ROWS + 1, rows)
    inner = [piece @ weights for piece in np.split(first, starts)]
    return np.asarray(np.einsum('ri,ri->r', np.concatenate(inner), second))


def binomial_pmf(n: int, rate: float) -> FloatArray:
    """The binomial probabilities of 0..n successes."""
    return np.asarray(binomial_pmf_table(n, np.array([rate]))[0])


def binomial_pmf_table(n: int, rates: FloatArray) -> FloatArray:
    """The binomial probabilities (rates, n + 1), accurate at rates 0 and 1."""
    from robotrials.stats.special import gammaln, xlog1py, xlogy

    k = np.arange(n + 1)
    log_choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.exp(log_choose + xlogy(k, rates[:, None]) + xlog1py(n - k, -rates[:, None]))


def _nuisance_grid() -> FloatArray:
    """Rates in [0, 1], dense at the ends, where the chance of a region moves fastest."""
    return (1 - np.cos(np.linspace(0, math.pi, NUISANCE_GRID))) / 2


def _slack(values: FloatArray) -> FloatArray:
    finite = np.where(np.isfinite(values), np.abs(values), 0.0)
    return 1e-10 * (1 + finite)


# Posteriors of success rates: Beta distributions, their intervals, and the chance that one policy is better.

PANEL_NODES = 24
PANEL_TAILS = (1e-14, 1e-10, 1e-7, 1e-5, 1e-3, 0.02, 0.1, 0.3)


@dataclass(frozen=True, slots=True)
class BetaPosterior:
    """What is believed of a success rate: Beta(alpha, beta)."""

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        if not (0 < self.alpha < math.inf and 0 < self.beta < math.inf):
            raise InputError(f'a Beta distribution needs two positive numbers, found ({self.alpha}, {self.beta})')

    @property
    def mean(self) -> float:
        return self.alpha / (self.alpha + self.beta)

    @property
    def standard_deviation(self) -> float:
        return math.sqrt(self.mean * (1 - self.mean) / (self.alpha + self.beta + 1))

    def quantile(self, probability: float) -> float:
        from robotrials.stats.special import betaincinv

        return float(betaincinv(self.alpha, self.beta, check_open_unit('probability', probability)))

    def credible(self, level: float = 0.95) -> Interval:
        """The equal-tailed credible interval."""
        tail = (1 - check_open_unit('level', level)) / 2
        return Interval(self.quantile(tail), self.quantile(1 - tail))

    def density(self, rate: FloatArray) -> FloatArray:
        """The density at each rate in (0, 1), for violins."""
        from robotrials.stats.special import betaln, xlog1py, xlogy

        log_density = xlogy(self.alpha - 1, rate) + xlog1py(self.beta - 1, -rate) - betaln(self.alpha, self.beta)
        return np.asarray(np.exp(log_density))

    def cumulative(self, rate: FloatArray) -> FloatArray:
        from robotrials.stats.special import betainc

        return betainc(self.alpha, self.beta, np.clip(rate, 0, 1))

    def draws(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.beta(self.alpha, self.beta, size=check_count('n', n, least=1))


def success_posterior(successes: int, n: int, *, prior: tuple[float, float] = (1.0, 1.0)) -> BetaPosterior:
    """The posterior of a success rate after n > 0 rollouts; the prior is uniform unless given (Jeffreys: 0.5, 0.5)."""
    x, n = check_successes(successes, n)
    prior_belief = BetaPosterior(*prior)
    return BetaPosterior(prior_belief.alpha + x, prior_belief.beta + n - x)


def chance_better(first: BetaPosterior, second: BetaPosterior, *, by: float = 0.0) -> float:
    """P(first > second + by), by Gauss-Legendre quadrature on panels set by both posteriors' quantiles."""
    if not -1 < by < 1:
        raise InputError(f'by must be between -1 and 1, found {by!r} (5 points are 0.05)')
    nodes, weights = _panels([(second, 0.0), (first, -by)])
    above = 1 - first.cumulative(nodes + by)
    return min(1.0, max(0.0, float(np.sum(weights * second.density(nodes) * above))))


def difference_credible(first: BetaPosterior, second: BetaPosterior, *, level: float = 0.95) -> Interval:
    """The equal-tailed credible interval of first - second, by bisection on `chance_better`."""
    tail = (1 - check_open_unit('level', level)) / 2
    return Interval(_difference_quantile(first, second, tail), _difference_quantile(first, second, 1 - tail))


def _difference_quantile(first: BetaPosterior, second: BetaPosterior, probability: float) -> float:
    low, high = -1.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        below = 1 - chance_better(first, second, by=middle) if -1 < middle < 1 else 0.0
        low, high = (middle, high) if below < probability else (low, middle)
    return (low + high) / 2


def _panels(shifted: list[tuple[BetaPosterior, float]]) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights on (0, 1), dense where each shifted posterior has its mass."""
    from robotrials.stats.special import betaincinv

    tails = np.array([*PANEL_TAILS, 0.5, *(1 - t for t in PANEL_TAILS)])
    edges = np.concatenate([betaincinv(p.alpha, p.beta, tails) + shift for p, shift in shifted])
    edges = np.unique(np.clip(np.r_[0.0, edges, 1.0], 0, 1))
    x, w = np.polynomial.legendre.leggauss(PANEL_NODES)
    half = np.diff(edges) / 2
    nodes = (edges[:-1] + half)[:, None] + half[:, None] * x
    return nodes.ravel(), (half[:, None] * w).ravel()


# A number with its interval, or the reason why there is none.


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with the interval that is shown by default; what cannot be estimated is None, and `note` says why.

    `percentile` and `bca` are bootstrap intervals by name, where they were worked out.
    """

    value: float | None
    interval: Interval | None = None
    note: str = ''
    n: int | None = None  # units behind it
    percentile: Interval | None = None
    bca: Interval | None = None

    def excludes(self, null: float) -> bool:
        """Whether the interval leaves out `null`."""
        return self.interval is not None and self.interval.excludes(null)

    def shifted(self, by: float) -> Estimate:
        """Value and interval moved by so much."""
        value = None if self.value is None else self.value + by
        return Estimate(value, self.interval and self.interval.shifted(by), self.note, n=self.n)

    def scaled(self, factor: float) -> Estimate:
        """Value and interval times `factor`."""
        value = None if self.value is None else self.value * factor
        return Estimate(value, self.interval and self.interval.scaled(factor), self.note, n=self.n)


def absent_estimate(note: str) -> Estimate:
    """An estimate that does not exist, and why."""
    return Estimate(None, note=note)


@dataclass(frozen=True, slots=True)
class Rate:
    """A count over a number of trials, with its Wilson interval. No rate exists over nothing.

    >>> Rate(14, 20).value
    0.7
    """

    count: int
    n: int
    level: float = 0.95

    @property
    def value(self) -> float | None:
        return self.count / self.n if self.n else None

    @property
    def interval(self) -> Interval | None:
        return wilson(self.count, self.n, self.level) if self.n else None


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
    score, rates = _score_of(cells, design_effect)
    z = normal_quantile(1 - check_open_unit('alpha', alpha))
    return NonInferiority(
        new=rates[0],
        reference=rates[1],
        difference=rates[0] - rates[1],
        low=falling_root(score.statistic, z),
        high=falling_root(score.statistic, -normal_quantile(1 - worse)),
        margin=margin,
        alpha=alpha,
        alpha_worse=worse,
        p_value=normal_cdf(-score.statistic(-margin)),
        p_worse=normal_cdf(score.statistic(0.0)),
        is_paired=bool(score.n_shared[0]),
        design_effect=design_effect,
    )


def rate_difference_interval(
    cells: Cells, *, level: float = 0.95, design_effect: float = 1.0
) -> tuple[float, float, float, float]:
    """(difference, low, high, two-sided p-value of no difference), by the same score statistic."""
    score, rates = _score_of(cells, design_effect)
    low, high = score.interval(normal_quantile((1 + check_open_unit('level', level)) / 2))
    return rates[0] - rates[1], low, high, score.p_value


def _score_of(cells: Cells, design_effect: float) -> tuple[ScoreStatistic, tuple[float, float]]:
    """The score statistic of strata of one kind, and the macro rates."""
    if not len(cells):
        raise InputError('no stratum was given: there is no difference of nothing')
    if not (math.isfinite(design_effect) and design_effect >= 1):
        raise InputError(f'design_effect is {design_effect}, wanted a finite number >= 1')
    none = np.zeros(len(cells))
    pairs = [c for c in cells if isinstance(c, PairCounts)]
    if pairs and len(pairs) < len(cells):
        raise InputError('strata of pairs and of independent arms are mixed; give one kind')
    if pairs:
        both_won, ahead, behind, n = np.array(
            [[c.both, c.only_new, c.only_reference, c.n] for c in pairs], dtype=np.float64
        ).T
        rates = exact_mean((both_won + ahead) / n), exact_mean((both_won + behind) / n)
        return ScoreStatistic(none, none, none, none, ahead, behind, n, none + 1.0, design_effect), rates
    arms = [c for c in cells if isinstance(c, ArmCounts)]
    x1, n1, x2, n2 = np.array([[c.new, c.n_new, c.reference, c.n_reference] for c in arms], dtype=np.float64).T
    rates = exact_mean(x1 / n1), exact_mean(x2 / n2)
    return ScoreStatistic(x1, n1, x2, n2, none, none, none, none, design_effect), rates


@dataclass(frozen=True, slots=True, eq=False)
class ScoreStatistic:
    """The stratified score statistic of the macro difference, by the variance that the tested difference implies.

    Miettinen and Nurminen's variance for starts of one arm, Tango's for shared ones, added with the weights of both.
    Every field is (strata,); either all strata have shared starts or none, and the same for the others.
    """

    hits_a: FloatArray
    n_a: FloatArray
    hits_b: FloatArray
    n_b: FloatArray
    ahead: FloatArray
    behind: FloatArray
    n_shared: FloatArray
    share: FloatArray  # the weight of the shared starts
    design_effect: float = 1.0  # by which episodes of one start state that are alike multiply the variance

    def statistic(self, delta: float) -> float:
        """Z of "the difference is `delta`": it falls as delta rises."""
        gap, variance = np.zeros(len(self.share)), np.zeros(len(self.share))
        if self.n_shared[0]:
            gap = gap + self.share * (self.ahead - self.behind) / self.n_shared
            variance = variance + self.share**2 * paired_variance(self.ahead, self.behind, self.n_shared, delta)
        if self.n_a[0]:
            gap = gap + (1 - self.share) * (self.hits_a / self.n_a - self.hits_b / self.n_b)
            separate = independent_variance(self.hits_a, self.n_a, self.hits_b, self.n_b, delta)
            variance = variance + (1 - self.share) ** 2 * separate
        spread = math.sqrt(self.design_effect * math.fsum(variance.tolist())) / len(gap)
        beyond = exact_mean(gap) - delta
        if spread > 0:
            return beyond / spread
        return math.copysign(math.inf, beyond) if abs(beyond) > 1e-12 else 0.0

    @property
    def degrees(self) -> float:
        """Units less the means that are estimated from them."""
        separate, shared = self.n_a + self.n_b, self.n_shared
        return max(1.0, float(np.maximum(separate - 2, 0).sum() + np.maximum(shared - 1, 0).sum()))

    @property
    def p_value(self) -> float:
        return min(1.0, 2 * normal_cdf(-abs(self.statistic(0.0))))

    def interval(self, z: float) -> Interval:
        return Interval(falling_root(self.statistic, z), falling_root(self.statistic, -z))


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
    return np.asarray(np.clip(2 * p * np.cos(angle) - l2 / (3 * total), max(0.0, -delta), min(1.0, 1.0 - delta)))


def paired_variance(ahead: FloatArray, behind: FloatArray, n: FloatArray, delta: float) -> FloatArray:
    """(strata,) Tango's variance of the paired difference at the likeliest discordance with difference delta."""
    b = (2 * n - ahead + behind) * delta - ahead - behind
    c = -behind * delta * (1 - delta)
    lost = (np.sqrt(np.maximum(b**2 - 8 * n * c, 0.0)) - b) / (4 * n)  # P(only the reference succeeds)
    lost = np.clip(lost, max(0.0, -delta), (1 - delta) / 2)
    return (2 * lost + delta * (1 - delta)) / n
