"""One cell of the grid: how often every verdict path errs, and how often its intervals hold the truth."""

from __future__ import annotations

import math
import zlib
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray
from tests.grid.kernel import CENSORED
from tests.grid.world import (
    Arms,
    Bounds,
    Cell,
    Censoring,
    Law,
    Rule,
    Shape,
    World,
    arm_bounds,
    arms_of,
    cell_means,
    difference_bounds,
    moves,
    reach_of,
    simulate,
)

from robotrials.measure.timing.curve_test import macro_ks
from robotrials.measure.timing.operation import Operations
from robotrials.measure.timing.scalar import macro_mean, resampled_cells
from robotrials.stats.interval import FEWEST_PER_CELL, allowance_z, fewest_units, satterthwaite
from robotrials.stats.ratio import RatioCells, macro_ratio_bounds

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
ALPHA = 0.05
REFERENCE_S = 15.0
SLOW_TRIALS = 200  # of what is resampled or enumerated trial by trial
POLICIES = 6


@dataclass(frozen=True, slots=True)
class GridRow:
    """Shares over the trials of one world; None where a path does not apply. `withheld`: those without a verdict."""

    world: str
    kind: str  # 'null', 'power' or 'wrong'
    n_trials: int
    withheld: float
    winner: float  # some winner named: false in a null world
    wrong: float | None  # the worse policy named
    jackknife_t: float  # the same without the allowance
    old_rule: float | None  # percentile interval behind a KS gate
    cover_difference: float
    miss_one_side: float  # the larger of the two one-sided misses: what equivalence stands on
    cover_policy: float
    cover_chance: float | None  # F(tau)
    cover_hrt: float | None
    reversal: float | None  # "depends on the stratum" where no stratum reverses
    ks_different: float | None
    any_of_six: float | None  # some false winner among 15 pairs, Holm's first step
    slow_trials: int

    def as_row(self) -> dict[str, str | float | None]:
        return asdict(self)


def study(world: World, kind: str, *, n_trials: int, seed: int, six: bool = False, slow: int = SLOW_TRIALS) -> GridRow:
    """Simulate one world; the stream depends on the seed and the world's name alone."""
    rng = np.random.default_rng([seed, zlib.crc32(world.name.encode())])
    cells = simulate(world, n_trials, rng)
    arms = arms_of(world, cells, paired=world.pairing > 0)
    bounds, plain = difference_bounds(arms, ALPHA), difference_bounds(arms, ALPHA, rule=Rule.JACKKNIFE_T)
    truth = world.difference_s
    is_null = kind == 'null'
    is_withheld = min(world.n_units) < FEWEST_PER_CELL or sum(world.n_units) < fewest_units()
    misses = [np.mean(bounds.value - bounds.below > truth + 1e-9), np.mean(bounds.value + bounds.above < truth - 1e-9)]
    slow = min(slow, n_trials)
    same = all(a == b for a, b in zip(world.a, world.b, strict=True))
    return GridRow(
        world=world.name, kind=kind, n_trials=n_trials, withheld=float(is_withheld),
        winner=float(np.mean(_named(bounds, is_null))),
        wrong=None if is_null else float(np.mean(bounds.b_wins if kind == 'power' else bounds.a_wins)),
        jackknife_t=float(np.mean(_named(plain, is_null))),
        old_rule=_old_rule(world, cells, rng, slow, is_null=is_null),
        cover_difference=float(np.mean(bounds.covers(truth))),
        miss_one_side=float(max(misses)),
        cover_policy=min(float(np.mean(arm_bounds(arms, k, ALPHA).covers(world.mean_s(k)))) for k in (0, 1)),
        cover_chance=_chance_coverage(world, cells),
        cover_hrt=_hrt_coverage(world, arms, _stream(world, seed, 'reference'), n_trials),
        reversal=_reversal(arms) if world.strata > 1 and not world.pairing and kind != 'wrong' else None,
        ks_different=_ks(world, cells, rng, slow) if is_null and same and not world.pairing else None,
        any_of_six=_six(world, rng, n_trials) if six else None,
        slow_trials=slow,
    )  # fmt: skip


def _stream(world: World, seed: int, quantity: str) -> np.random.Generator:
    """A stream of its own for one quantity of one world."""
    return np.random.default_rng([seed, zlib.crc32(f'{world.name} {quantity}'.encode())])


def _named(bounds: Bounds, is_null: bool) -> BoolArray:
    return bounds.a_wins | bounds.b_wins if is_null else bounds.a_wins


def _six(world: World, rng: np.random.Generator, n_trials: int) -> float:
    """The share of six-policy trials with any false winner: some pair passes at alpha / 15."""
    pairs = math.comb(POLICIES, 2)
    drawn: list[list[list[Cell]]] = [list(simulate(world, n_trials, rng)) for _ in range(POLICIES // 2)]
    policies = [arm for trial in drawn for arm in trial]
    any_winner = np.zeros(n_trials, dtype=np.bool_)
    for i in range(POLICIES):
        for j in range(i + 1, POLICIES):
            bounds = difference_bounds(arms_of(world, (policies[i], policies[j])), ALPHA / pairs)
            any_winner |= bounds.a_wins | bounds.b_wins
    return float(np.mean(any_winner))


def _chance_coverage(world: World, cells: tuple[list[Cell], list[Cell]]) -> float | None:
    """Coverage of F(tau): the rule on 0 and 1, which is a restricted mean of a time that is 0 or never."""
    if world.censoring is not Censoring.NONE:
        return None
    held = []
    for arm, laws in enumerate((world.a, world.b)):
        parts = [
            cell_means(Cell(np.where(c.times_s <= world.tau_s, 0.0, np.inf), c.state, c.unit, c.n_units), 1.0)
            for c in cells[arm]
        ]
        means, variances = (np.stack([getattr(p, n) for p in parts], axis=1) for n in ('value', 'variance'))
        followed = np.stack([p.followed for p in parts], axis=1)
        dof = np.array([c.n_units - 1.0 for c in cells[arm]])
        z2 = allowance_z(ALPHA) ** 2
        below, above = (
            reach_of(variances / len(laws) ** 2, dof, z2 * moves(means, followed, end)[1] ** 2, ALPHA)
            for end in (0.0, 1.0)
        )
        truth = float(np.mean([1.0 - law.chance(world.tau_s) for law in laws]))
        held.append(float(np.mean(Bounds(means.mean(axis=1), below, above).covers(truth))))
    return min(held)


def _hrt_coverage(world: World, arms: Arms, rng: np.random.Generator, n_trials: int) -> float | None:
    """Coverage of the macro ratio of a reference's mean to a's, with as many units of the reference."""
    if world.censoring is not Censoring.NONE or world.operations > 1:
        return None
    human = (Law(Shape.LOGNORMAL, REFERENCE_S),) * world.strata
    other = replace(world, b=human, pairing=0.0, n_units_b=())
    reference = arms_of(other, simulate(other, n_trials, rng))
    n = np.array(world.n_units, dtype=np.float64) + 0.0 * arms.means[0]
    table = RatioCells(
        reference.means[1], arms.means[0], reference.variances[1], arms.variances[0], n, n,
        np.full_like(arms.means[0], world.tau_s),
    )  # fmt: skip
    low, high = macro_ratio_bounds(table, level=1 - ALPHA)
    truth = float(np.mean([h.rmst_s(world.tau_s) / a.rmst_s(world.tau_s) for h, a in zip(human, world.a, strict=True)]))
    return float(np.mean((low <= truth) & (truth <= high)))


def _reversal(arms: Arms) -> float:
    """The share of trials in which Gail and Simon's test with the allowance rejects at alpha."""
    from scipy.special import chdtrc, ndtri, stdtr

    gap = arms.means[1] - arms.means[0]
    variance = np.stack(arms.variances)
    dof = np.broadcast_to(np.stack(arms.dof)[:, None, :], variance.shape)
    z2 = allowance_z(ALPHA) ** 2
    follow = [np.maximum(f, 1.0) for f in arms.followed]
    up = ((arms.tau_s - arms.means[0]) / follow[0]) ** 2 + (arms.means[1] / follow[1]) ** 2
    down = (arms.means[0] / follow[0]) ** 2 + ((arms.tau_s - arms.means[1]) / follow[1]) ** 2
    unseen = z2 * np.where(gap > 0, up, down)
    degrees = satterthwaite(np.moveaxis(variance, 0, -1), np.moveaxis(dof, 0, -1), unseen)
    error = np.sqrt(variance.sum(axis=0) + unseen)
    score = -ndtri(np.maximum(stdtr(degrees, -np.abs(gap) / error), 1e-15))
    q = np.minimum((score**2 * (gap > 0)).sum(axis=1), (score**2 * (gap < 0)).sum(axis=1))
    rest = gap.shape[1] - 1
    p = sum(math.comb(rest, h) * 0.5**rest * chdtrc(h, q) for h in range(1, rest + 1))
    return float(np.mean((p <= ALPHA) & (q > 0)))


def _operations(cells: list[Cell], trial: int, tau_s: float) -> dict[str, Operations]:
    made = {}
    for s, c in enumerate(cells):
        there = c.state[trial] > 0
        times, seen = c.times_s[trial][there], c.state[trial][there] != CENSORED
        late = times > tau_s
        made[f's{s:02d}'] = Operations(
            np.where(late, tau_s, times), seen & ~late, c.unit[there], scored=np.arange(c.n_units)
        )
    return made


def _ks(world: World, cells: tuple[list[Cell], list[Cell]], rng: np.random.Generator, n: int) -> float | None:
    if world.censoring is Censoring.LOSS_ONE:
        return None  # refused: labels are not exchangeable under unequal loss
    found = [
        macro_ks(
            _operations(cells[0], k, world.tau_s), _operations(cells[1], k, world.tau_s), n_resamples=199, rng=rng,
            tau_s=world.tau_s,
        ).p_value
        for k in range(n)
    ]  # fmt: skip
    return float(np.mean(np.array(found) <= ALPHA))


def _old_rule(
    world: World, cells: tuple[list[Cell], list[Cell]], rng: np.random.Generator, n: int, *, is_null: bool
) -> float | None:
    """The rule before this one: the percentile interval of the macro RMST excludes 0 and KS calls them different."""
    if world.pairing or world.operations > 1:
        return None

    won = 0
    for k in range(n):
        a, b = (_operations(arm, k, world.tau_s) for arm in cells)
        if macro_ks(a, b, n_resamples=199, rng=rng, tau_s=world.tau_s).p_value > ALPHA:
            continue
        draws = [
            macro_mean([c.rmst(world.tau_s) for c in resampled_cells(x, n_resamples=400, rng=rng).values()]).draws
            for x in (a, b)
        ]
        low, high = np.quantile(draws[1] - draws[0], [ALPHA / 2, 1 - ALPHA / 2])
        won += int(low > 0 or (is_null and high < 0))
    return won / n
