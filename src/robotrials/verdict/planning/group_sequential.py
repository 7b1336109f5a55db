"""Group-sequential boundaries at any error and number of looks, by recursive numerical integration.

A standardised sum with independent normal increments is watched at fractions of its final information; the density of
what has not stopped is carried from look to look on Gauss-Legendre nodes (Armitage, McPherson and Rowe 1969).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError
from robotrials.stats.interval import BoolArray, FloatArray, Interval, check_count, check_open_unit, normal_quantile

NODES = 128
BISECTIONS = 45
Spending = Callable[[float], float]


@dataclass(frozen=True, slots=True, eq=False)
class GroupSequential:
    """Two-sided boundaries |z| >= bounds[k] at each look, and the fractions of information at which they apply."""

    bounds: FloatArray
    fractions: FloatArray
    alpha: float


@dataclass(frozen=True, slots=True, eq=False)
class Operating:
    """What a design does under a drift: the chance to stop at each look above and below, and the mean information."""

    stop_high: FloatArray
    stop_low: FloatArray
    expected_fraction: float

    @property
    def power(self) -> float:
        return float(self.stop_high.sum() + self.stop_low.sum())


def group_sequential(
    looks: int, *, alpha: float = 0.05, shape: Literal['pocock', 'obrien_fleming'] | float = 'obrien_fleming'
) -> GroupSequential:
    """Equally spaced looks, bounds c (k/K)^(shape - 1/2): Pocock (1/2), O'Brien-Fleming (0), Wang-Tsiatis between."""
    looks = check_count('looks', looks, least=1)
    alpha = check_open_unit('alpha', alpha)
    named = {'pocock': 0.5, 'obrien_fleming': 0.0}
    if isinstance(shape, str) and shape not in named:
        raise InputError(f"shape must be 'pocock', 'obrien_fleming' or a number, found {shape!r}")
    power = named[shape] if isinstance(shape, str) else float(shape)
    fractions = np.arange(1, looks + 1) / looks
    form = fractions ** (power - 0.5)
    low, high = normal_quantile(1 - alpha / 2) * 0.999, normal_quantile(1 - alpha / (2 * looks)) + 0.001
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        spent = _operating(middle * form, fractions, 0.0).power
        low, high = (middle, high) if spent > alpha else (low, middle)
    return GroupSequential(high * form, fractions, alpha)


def spending_bounds(
    fractions: Sequence[float], *, alpha: float = 0.05, spending: Literal['pocock', 'obrien_fleming'] | Spending
) -> GroupSequential:
    """Bounds for looks at any fractions of information by an error-spending function (Lan and DeMets 1983)."""
    at = np.asarray(fractions, dtype=np.float64)
    if at.ndim != 1 or at.size == 0 or np.any(np.diff(at) <= 0) or at[0] <= 0 or at[-1] > 1 + 1e-12:
        raise InputError(f'fractions must rise from over 0 to at most 1, found {list(fractions)}')
    spend = _spending(spending, check_open_unit('alpha', alpha)) if isinstance(spending, str) else spending
    bounds = np.empty(at.size)
    density = _Density(0.0)
    spent = 0.0
    for k, fraction in enumerate(at):
        budget = max(spend(float(fraction)) - spent, 0.0)
        low, high = 0.0, 40.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(density.crossing(middle, float(fraction))) > budget else (low, middle)
        bounds[k] = high
        spent += sum(density.crossing(high, float(fraction)))
        density.advance(high, float(fraction))
    return GroupSequential(bounds, at, alpha)


def operating_characteristics(design: GroupSequential, drift: float) -> Operating:
    """Stopping chances when the final z has mean `drift` (0: the size; 2.8 is 80 % power for a fixed test at 0.05)."""
    return _operating(design.bounds, design.fractions, drift)


def drift_for_power(design: GroupSequential, power: float = 0.8) -> float:
    """The mean of the final z that gives `power`; its square over that of a fixed test is the inflation of N."""
    check_open_unit('power', power)
    low, high = 0.0, 20.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _operating(design.bounds, design.fractions, middle).power < power else (low, middle)
        )
    return high


def _spending(name: str, alpha: float) -> Spending:
    if name == 'pocock':
        return lambda t: alpha * math.log(1 + (math.e - 1) * t)
    if name == 'obrien_fleming':
        z = normal_quantile(1 - alpha / 4)  # each side spends 2 (1 - Phi(z / sqrt t)) of its alpha / 2
        return lambda t: 2 * math.erfc(z / math.sqrt(2 * t))
    raise InputError(f"spending must be 'pocock', 'obrien_fleming' or a function, found {name!r}")


@cache
def _nodes() -> tuple[FloatArray, FloatArray]:
    x, w = np.polynomial.legendre.leggauss(NODES)
    return x, w


class _Density:
    """The sub-density of the sum S(t) among trials that have not stopped, on nodes of the continuation region."""

    def __init__(self, drift: float) -> None:
        self.drift = drift
        self.fraction = 0.0
        self.nodes: FloatArray = np.zeros(1)
        self.mass: FloatArray = np.ones(1)

    def crossing(self, bound: float, fraction: float) -> tuple[float, float]:
        """The chances of first passing above and below at this look."""
        from robotrials.stats.special import ndtr

        edge, mean, deviation = self._step(bound, fraction)
        above = float(np.sum(self.mass * ndtr((mean - edge) / deviation)))
        below = float(np.sum(self.mass * ndtr((-edge - mean) / deviation)))
        return above, below

    def advance(self, bound: float, fraction: float) -> None:
        edge, mean, deviation = self._step(bound, fraction)
        edge = min(edge, float(np.max(np.abs(mean))) + 12 * deviation)
        x, w = _nodes()
        nodes = x * edge
        kernel = np.exp(-0.5 * ((nodes[:, None] - mean[None, :]) / deviation) ** 2) / (
            deviation * math.sqrt(2 * math.pi)
        )
        self.mass = np.einsum('ij,j->i', kernel, self.mass) * w * edge
        self.nodes, self.fraction = nodes, fraction

    def _step(self, bound: float, fraction: float) -> tuple[float, FloatArray, float]:
        step = fraction - self.fraction
        return bound * math.sqrt(fraction), self.nodes + self.drift * step, math.sqrt(step)


def _operating(bounds: FloatArray, fractions: FloatArray, drift: float) -> Operating:
    density = _Density(drift)
    crossings = []
    for bound, fraction in zip(bounds, fractions, strict=True):
        crossings.append(density.crossing(float(bound), float(fraction)))
        density.advance(float(bound), float(fraction))
    high, low = np.array(crossings).T
    stopped = high + low
    expected = float(stopped @ fractions + (1 - stopped.sum()) * fractions[-1])
    return Operating(high, low, expected)


# A logrank test that may be looked at after every block: times, not only successes, with an error that holds.
# Rollouts come in blocks of m of each policy, in the order in which they were started. At each time within a block at
# which someone succeeds, the number of a's among the successes is hypergeometric under equal hazards; under a hazard
# ratio it is Fisher's noncentral hypergeometric. The product of the likelihood ratios, averaged over a fixed prior of
# hazard ratios, is an e-process: it ever reaches 1/alpha with chance at most alpha (ter Schure, Perez-Ortiz, Ly and
# Gruenwald 2024, "The safe logrank test"). A stratum may have its own blocks; their products multiply.

RATIOS = 32
SMALLEST_LOG_RATIO, LARGEST_LOG_RATIO = math.log(1.1), math.log(8.0)
CLAIMS = np.exp(np.linspace(-math.log(50), math.log(50), 401))


@dataclass(frozen=True, slots=True)
class LogrankLook:
    """After some blocks: the e-value of "a is faster" and of "b is faster", and the hazard ratios not refuted."""

    blocks: int
    evidence_a: float
    evidence_b: float
    hazard_ratio: Interval  # of a over b: above 1 favours a; a confidence sequence


@dataclass(frozen=True, slots=True)
class SafeLogrank:
    """Every look; `p_value` is two-sided and valid whenever one stops."""

    looks: tuple[LogrankLook, ...]
    alpha: float
    waiting_a: int
    waiting_b: int

    @property
    def p_value(self) -> float:
        best = max((max(look.evidence_a, look.evidence_b) for look in self.looks), default=1.0)
        return min(1.0, 2 / best)

    @property
    def faster(self) -> str | None:
        """'a' or 'b' once its evidence has reached 2 / alpha, else None."""
        for look in self.looks:
            if look.evidence_a >= 2 / self.alpha:
                return 'a'
            if look.evidence_b >= 2 / self.alpha:
                return 'b'
        return None

    @property
    def hazard_ratio(self) -> Interval | None:
        """The confidence sequence at the last look: it holds at a stop that the data chose."""
        return self.looks[-1].hazard_ratio if self.looks else None


def safe_logrank(
    times_a: ArrayLike, observed_a: ArrayLike, times_b: ArrayLike, observed_b: ArrayLike, *, block: int = 2,
    alpha: float = 0.05,
) -> SafeLogrank:  # fmt: skip
    """An anytime-valid logrank test of times-to-success, one a rollout (or unit) in the order of starts.

    `inf` observed never succeeded, unobserved is censored at its time. `block` rollouts of each policy are compared
    with each other; what has no complete block waits. Repeats of a start state are one unit: collapse them first.
    """
    size = check_count('block', block, least=1)
    check_open_unit('alpha', alpha)
    arms = [_checked(t, o) for t, o in ((times_a, observed_a), (times_b, observed_b))]
    n = min(len(times) for times, _ in arms) // size
    ratios = np.exp(np.linspace(SMALLEST_LOG_RATIO, LARGEST_LOG_RATIO, RATIOS))
    log_a, log_b, against = np.zeros(RATIOS), np.zeros(RATIOS), np.zeros(CLAIMS.size)
    looks = []
    for k in range(n):
        part = slice(k * size, (k + 1) * size)
        tables = _tables(arms[0][0][part], arms[0][1][part], arms[1][0][part], arms[1][1][part])
        log_a += _log_likelihood(tables, ratios) - _log_likelihood(tables, np.ones(1))
        log_b += _log_likelihood(tables, 1 / ratios) - _log_likelihood(tables, np.ones(1))
        against += _log_likelihood(tables, CLAIMS)
        looks.append(_look(k + 1, log_a, log_b, against, ratios, alpha))
    left = [len(times) - n * size for times, _ in arms]
    return SafeLogrank(tuple(looks), alpha, left[0], left[1])


def _checked(times: ArrayLike, observed: ArrayLike) -> tuple[FloatArray, BoolArray]:
    durations, seen = np.asarray(times, dtype=np.float64), np.asarray(observed, dtype=np.bool_)
    if durations.ndim != 1 or durations.shape != seen.shape:
        raise InputError(f'times have shape {durations.shape} and observed {seen.shape}, wanted the same (n,)')
    if np.isnan(durations).any() or (durations < 0).any() or (np.isinf(durations) & ~seen).any():
        raise InputError('times must be >= 0; one that never succeeded is inf and observed')
    return durations, seen


def _tables(ta: FloatArray, oa: BoolArray, tb: FloatArray, ob: BoolArray) -> list[tuple[int, int, int, int]]:
    """At each time of success: at risk in a and b, and successes in a and b."""
    successes = np.unique(np.concatenate([ta[oa & np.isfinite(ta)], tb[ob & np.isfinite(tb)]]))
    return [
        (int((ta >= t).sum()), int((tb >= t).sum()), int(((ta == t) & oa).sum()), int(((tb == t) & ob).sum()))
        for t in successes
    ]


def _log_likelihood(tables: Sequence[tuple[int, int, int, int]], ratios: FloatArray) -> FloatArray:
    """(ratios,) the log chance of each table's split of successes under a hazard (odds) ratio of a over b."""
    total = np.zeros(ratios.size)
    for at_a, at_b, d_a, d_b in tables:
        d = d_a + d_b
        k = np.arange(max(0, d - at_b), min(at_a, d) + 1)
        weight = np.array([math.comb(at_a, int(i)) * math.comb(at_b, d - int(i)) for i in k], dtype=np.float64)
        terms = np.log(weight)[None, :] + np.log(ratios)[:, None] * k[None, :]
        own = math.log(math.comb(at_a, d_a) * math.comb(at_b, d_b)) + np.log(ratios) * d_a
        total += own - np.logaddexp.reduce(terms, axis=1)
    return total


def _look(
    blocks: int, log_a: FloatArray, log_b: FloatArray, against: FloatArray, ratios: FloatArray, alpha: float
) -> LogrankLook:
    e_a, e_b = (float(np.exp(min(np.logaddexp.reduce(x) - math.log(RATIOS), 700.0))) for x in (log_a, log_b))
    # Against each claimed ratio the same bets are made, on both sides of it, with a common prior of 2 RATIOS.
    base = float(np.interp(0.0, np.log(CLAIMS), against))
    mixed = float(np.logaddexp.reduce(np.concatenate([log_a, log_b])) - math.log(2 * RATIOS)) + base
    kept = CLAIMS[mixed - against < math.log(1 / alpha)]
    if kept.size == 0:
        kept = CLAIMS[[int(np.argmax(against))]]
    low = 0.0 if kept[0] == CLAIMS[0] else float(kept[0])
    high = math.inf if kept[-1] == CLAIMS[-1] else float(kept[-1])
    return LogrankLook(blocks, e_a, e_b, Interval(low, high))
