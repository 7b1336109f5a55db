"""Simulated two-policy trials whose truth is known: laws of time-to-success, strata, repeats, censoring."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from tests.grid.kernel import ABSENT, CENSORED, OBSERVED

from robotrials.stats.interval import allowance_z, reaches, satterthwaite

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
    n = 40_000
    rng = np.random.default_rng(12345)
    made = _cell(world, law, 0, n, rng.standard_normal((1, n)), rng)
    # One unit for all: only the value is asked for, and the jackknife would be quadratic.
    whole = Cell(made.times_s, made.state, np.zeros_like(made.unit), 1)
    return float(cell_means(whole, world.tau_s).value[0])


# The rule of robotrials.stats.interval over many simulated trials at once.

BoolArray = NDArray[np.bool_]


class Rule(enum.StrEnum):
    SHIPPED = 'jackknife-t with allowance'
    POOLED = 'the same, allowance from all strata together only'
    JACKKNIFE_T = 'jackknife-t'


@dataclass(frozen=True, slots=True, eq=False)
class CellMeans:
    """(trials,) the RMST, its jackknife variance, the units followed; and (trials, units) influences."""

    value: FloatArray
    variance: FloatArray
    followed: FloatArray
    influence: FloatArray


def cell_means(cell: Cell, tau_s: float) -> CellMeans:
    from tests.grid import kernel

    from robotrials.measure.timing.resample import spread

    rows = len(cell.times_s)
    value, variance, followed = np.empty(rows), np.empty(rows), np.empty(rows)
    influence = np.empty((rows, cell.n_units))

    def work(start: int, stop: int) -> None:
        part = slice(start, stop)
        kernel.unit_rmst(
            cell.times_s[part], cell.state[part], cell.unit, cell.n_units, tau_s, value[part], variance[part],
            followed[part], influence[part],
        )  # fmt: skip

    spread(rows, work, steps_a_row=cell.times_s.shape[1] * 4)
    return CellMeans(value, variance, followed, influence)


@dataclass(frozen=True, slots=True, eq=False)
class Arms:
    """Macro means of both policies over many trials, and the variance of their difference by terms."""

    means: tuple[FloatArray, FloatArray]  # each (trials, strata)
    followed: tuple[FloatArray, FloatArray]
    variances: tuple[FloatArray, FloatArray]
    dof: tuple[FloatArray, FloatArray]  # each (strata,)
    terms: FloatArray  # (trials, k) of the difference
    term_dof: FloatArray  # (k,)
    tau_s: float


def arms_of(world: World, cells: tuple[list[Cell], list[Cell]], *, paired: bool = False) -> Arms:
    found = [[cell_means(c, world.tau_s) for c in arm] for arm in cells]
    means, followed, variances = (
        [np.stack([getattr(m, name) for m in arm], axis=1) for arm in found]
        for name in ('value', 'followed', 'variance')
    )
    dof = [np.array([c.n_units - 1.0 for c in arm]) for arm in cells]
    if paired:
        moved = [y.influence - x.influence for x, y in zip(*found, strict=True)]
        terms = np.stack([(m**2).sum(axis=1) for m in moved], axis=1)
        term_dof = dof[0]
    else:
        terms, term_dof = np.concatenate(variances, axis=1), np.concatenate(dof)
    return Arms(
        (means[0], means[1]), (followed[0], followed[1]), (variances[0], variances[1]), (dof[0], dof[1]),
        terms / world.strata**2, term_dof, world.tau_s,
    )  # fmt: skip


def moves(means: FloatArray, followed: FloatArray, end_s: float) -> tuple[FloatArray, FloatArray]:
    """(trials,) how far one unseen unit at `end_s` moves the macro mean: among all strata, and in the worst one."""
    anywhere: FloatArray = np.abs(end_s - means.mean(axis=1)) / np.maximum(followed.sum(axis=1), 1.0)
    worst: FloatArray = (np.abs(end_s - means) / (means.shape[1] * np.maximum(followed, 1.0))).max(axis=1)
    return anywhere, worst


def _moved(first: tuple[FloatArray, FloatArray], second: tuple[FloatArray, FloatArray], rule: Rule) -> FloatArray:
    together: FloatArray = first[0] ** 2 + second[0] ** 2
    if rule is Rule.POOLED:
        return together
    worst: FloatArray = np.maximum(together, np.maximum(first[1], second[1]) ** 2)
    return worst


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """(trials,) the estimate and how far the rule's interval reaches below and above it."""

    value: FloatArray
    below: FloatArray
    above: FloatArray

    def covers(self, truth: float) -> BoolArray:
        held: BoolArray = (self.value - self.below <= truth + 1e-9) & (truth - 1e-9 <= self.value + self.above)
        return held

    @property
    def a_wins(self) -> BoolArray:
        won: BoolArray = self.value > self.below
        return won

    @property
    def b_wins(self) -> BoolArray:
        won: BoolArray = -self.value > self.above
        return won


def difference_bounds(arms: Arms, alpha: float, *, rule: Rule = Rule.SHIPPED) -> Bounds:
    """B less a, by the rule."""
    z2 = 0.0 if rule is Rule.JACKKNIFE_T else allowance_z(alpha) ** 2
    low_a, high_a = (moves(arms.means[0], arms.followed[0], end) for end in (0.0, arms.tau_s))
    low_b, high_b = (moves(arms.means[1], arms.followed[1], end) for end in (0.0, arms.tau_s))
    value = arms.means[1].mean(axis=1) - arms.means[0].mean(axis=1)
    below, above = (
        reach_of(arms.terms, arms.term_dof, z2 * _moved(first, second, rule), alpha)
        for first, second in ((high_a, low_b), (low_a, high_b))
    )
    return Bounds(value, below, above)


def arm_bounds(arms: Arms, arm: int, alpha: float, *, rule: Rule = Rule.SHIPPED) -> Bounds:
    """One policy's macro mean by the rule."""
    z2, strata = allowance_z(alpha) ** 2, arms.means[arm].shape[1]
    terms = arms.variances[arm] / strata**2
    below, above = (
        reach_of(
            terms, arms.dof[arm], z2 * moves(arms.means[arm], arms.followed[arm], end)[rule is Rule.SHIPPED] ** 2, alpha
        )
        for end in (0.0, arms.tau_s)
    )
    return Bounds(arms.means[arm].mean(axis=1), below, above)


def reach_of(terms: FloatArray, dof: FloatArray, unseen: FloatArray, alpha: float) -> FloatArray:
    """(trials,) how far the rule looks, from variances by terms (trials, k) and the allowance."""
    degrees = satterthwaite(terms, np.broadcast_to(dof, terms.shape), unseen)
    return reaches(terms.sum(axis=1), degrees, unseen, alpha)
