"""Posteriors of success rates: Beta distributions, their intervals, and the chance that one policy is better."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError
from robotrials.stats.argument import FloatArray, check_count, check_open_unit, check_successes
from robotrials.stats.interval import Interval

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
        values: FloatArray = np.exp(log_density)
        return values

    def cumulative(self, rate: FloatArray) -> FloatArray:
        from robotrials.stats.special import betainc

        values: FloatArray = betainc(self.alpha, self.beta, np.clip(rate, 0, 1))
        return values

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
