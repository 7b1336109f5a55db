"""The rule of robotrials.stats.allowance over many simulated trials at once."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.allowance import allowance_z, reaches, satterthwaite
from robotrials.testing.grid.world import Cell, World

FloatArray = NDArray[np.float64]
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
    from robotrials.measure.timing.resample import spread
    from robotrials.testing.grid import kernel

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
