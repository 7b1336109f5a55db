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

from robotrials.errors import InputError
from robotrials.stats.argument import FloatArray, check_count, check_open_unit
from robotrials.stats.normal import normal_quantile

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
