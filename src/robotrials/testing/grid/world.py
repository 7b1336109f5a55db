"""Simulated two-policy trials whose truth is known: laws of time-to-success, strata, repeats, censoring."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from robotrials.testing.grid.kernel import ABSENT, CENSORED, OBSERVED

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
StateArray = NDArray[np.int8]

QUICK_S = 1.0
HALVINGS = 80


class Shape(enum.StrEnum):
    EXPONENTIAL = 'exponential'
    LOGNORMAL = 'lognormal'
    NEAR_CONSTANT = 'near-constant'  # a coefficient of variation of 5 %


SIGMA = {Shape.LOGNORMAL: 1.0, Shape.NEAR_CONSTANT: 0.05}  # of the logarithm


class Censoring(enum.StrEnum):
    NONE = 'followed to tau'
    LOSS_BOTH = 'random loss in both arms'
    LOSS_ONE = 'random loss in one arm'
    BUDGET = 'episode budget'


@dataclass(frozen=True, slots=True)
class Law:
    """Time to success of one operation: a shape with a mean, never with chance `failure`, at once with `quick`."""

    shape: Shape
    mean_s: float
    failure: float = 0.0
    quick: float = 0.0

    def times_s(self, uniform: FloatArray) -> FloatArray:
        """The quantile function: quick successes first, failures (infinite) last."""
        from scipy.special import ndtri

        spread = 1.0 - self.failure - self.quick
        inner = np.clip((uniform - self.quick) / spread, 1e-12, 1 - 1e-12)
        if self.shape is Shape.EXPONENTIAL:
            times = -self.mean_s * np.log1p(-inner)
        else:
            sigma = SIGMA[self.shape]
            times = self.mean_s * np.exp(sigma * ndtri(inner) - sigma**2 / 2)
        times = np.where(uniform < self.quick, QUICK_S, times)
        return np.where(uniform >= 1.0 - self.failure, np.inf, times)

    def rmst_s(self, tau_s: float) -> float:
        """E min(T, tau), in closed form."""
        inner = (1 - self.failure - self.quick) * _inner_rmst(self.shape, self.mean_s, tau_s)
        return float(self.failure * tau_s + self.quick * min(QUICK_S, tau_s) + inner)

    def chance(self, tau_s: float) -> float:
        """P(T <= tau)."""
        from scipy.special import ndtr

        if self.shape is Shape.EXPONENTIAL:
            inner = -np.expm1(-tau_s / self.mean_s)
        else:
            sigma = SIGMA[self.shape]
            inner = ndtr((np.log(tau_s / self.mean_s) + sigma**2 / 2) / sigma)
        return float(self.quick + (1 - self.failure - self.quick) * inner)

    def matched(self, rmst_s: float, tau_s: float) -> Law:
        """The same shape and failures with the mean that gives this RMST."""
        low, high = 1e-6 * tau_s, 1e6 * tau_s
        for _ in range(HALVINGS):
            middle = float(np.sqrt(low * high))
            found = Law(self.shape, middle, self.failure, self.quick).rmst_s(tau_s)
            low, high = (middle, high) if found < rmst_s else (low, middle)
        return Law(self.shape, middle, self.failure, self.quick)


def _inner_rmst(shape: Shape, mean_s: float, tau_s: float) -> float:
    from scipy.special import ndtr

    if shape is Shape.EXPONENTIAL:
        return float(-mean_s * np.expm1(-tau_s / mean_s))
    sigma = SIGMA[shape]
    place = (np.log(tau_s / mean_s) + sigma**2 / 2) / sigma
    return float(mean_s * ndtr(place - sigma) + tau_s * ndtr(-place))


@dataclass(frozen=True, slots=True)
class World:
    """One cell of the grid: two policies' laws stratum by stratum, and how the trial is run.

    `n_units` are per stratum; a unit is a start state (or an episode) with `operations` correlated by `correlation`.
    """

    name: str
    a: tuple[Law, ...]
    b: tuple[Law, ...]
    n_units: tuple[int, ...]
    tau_s: float = 120.0
    operations: int = 1
    correlation: float = 0.0
    censoring: Censoring = Censoring.NONE
    pairing: float = 0.0  # correlation of the two policies on a start that both ran
    n_units_b: tuple[int, ...] = ()
    budget_s: float = 0.0

    @property
    def strata(self) -> int:
        return len(self.a)

    def sizes(self, arm: int) -> tuple[int, ...]:
        return self.n_units_b if arm and self.n_units_b else self.n_units

    def laws(self, arm: int) -> tuple[Law, ...]:
        return self.b if arm else self.a

    @property
    def difference_s(self) -> float:
        """The truth of the macro RMST of b less that of a."""
        if self.censoring is Censoring.BUDGET:
            limits = [[budget_limit(law, self) for law in laws] for laws in (self.a, self.b)]
            return float(np.mean(limits[1]) - np.mean(limits[0]))
        return self.mean_s(1) - self.mean_s(0)

    def mean_s(self, arm: int) -> float:
        if self.censoring is Censoring.BUDGET:
            return float(np.mean([budget_limit(law, self) for law in self.laws(arm)]))
        return float(np.mean([law.rmst_s(self.tau_s) for law in self.laws(arm)]))


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """Many trials of one policy in one stratum: (trials, operations), with each operation's unit."""

    times_s: FloatArray
    state: StateArray
    unit: IntArray
    n_units: int


def simulate(world: World, n_trials: int, rng: np.random.Generator) -> tuple[list[Cell], list[Cell]]:
    """Both policies' cells, stratum by stratum."""
    arms: tuple[list[Cell], list[Cell]] = ([], [])
    for stratum in range(world.strata):
        most = max(world.sizes(0)[stratum], world.sizes(1)[stratum])
        shared = rng.standard_normal((n_trials, most))
        for arm in (0, 1):
            n = world.sizes(arm)[stratum]
            arms[arm].append(_cell(world, world.laws(arm)[stratum], arm, n, shared[:, :n], rng))
    return arms


def _cell(world: World, law: Law, arm: int, n: int, shared: FloatArray, rng: np.random.Generator) -> Cell:
    from scipy.special import ndtr

    own = rng.standard_normal(shared.shape)
    unit_part = np.sqrt(world.pairing) * shared + np.sqrt(1 - world.pairing) * own
    noise = rng.standard_normal((len(shared), n, world.operations))
    rho = world.correlation if world.operations > 1 else 1.0
    uniform = ndtr(np.sqrt(rho) * unit_part[:, :, None] + np.sqrt(1 - rho) * noise)
    times = law.times_s(uniform)
    state = np.full(times.shape, OBSERVED, dtype=np.int8)
    if world.censoring is Censoring.BUDGET:
        times, state = _budgeted(times, world.budget_s)
    elif world.censoring is Censoring.LOSS_BOTH or (world.censoring is Censoring.LOSS_ONE and arm == 0):
        ends = rng.uniform(0.1 * world.tau_s, 2.5 * world.tau_s, times.shape)
        lost = ends < np.minimum(times, world.tau_s)
        times, state = np.where(lost, ends, times), np.where(lost, CENSORED, state).astype(np.int8)
    unit = np.repeat(np.arange(n), world.operations)
    return Cell(times.reshape(len(times), -1), state.reshape(len(times), -1), unit, n)


def _budgeted(times: FloatArray, budget_s: float) -> tuple[FloatArray, StateArray]:
    """Operations one after another until the budget is used up; a failure is noticed and the next item begun.

    What is under way at the end is censored at the time left, what was not begun is absent.
    """
    spent = np.where(np.isinf(times), budget_s / 4, times)  # a failed item costs a quarter of the budget
    start = np.cumsum(spent, axis=-1) - spent
    left = budget_s - start
    begun = left > 0
    done = begun & (spent <= left)
    state = np.where(done, OBSERVED, np.where(begun, CENSORED, ABSENT)).astype(np.int8)
    return np.where(done, times, np.maximum(left, 0.0)), state


@cache
def budget_limit(law: Law, world: World) -> float:
    """What the pooled curve's RMST tends to with many episodes under a budget: by one very large cell."""
    from robotrials.testing.grid.evaluate import cell_means

    n = 40_000
    rng = np.random.default_rng(12345)
    made = _cell(world, law, 0, n, rng.standard_normal((1, n)), rng)
    # One unit for all: only the value is asked for, and the jackknife would be quadratic.
    whole = Cell(made.times_s, made.state, np.zeros_like(made.unit), 1)
    return float(cell_means(whole, world.tau_s).value[0])
