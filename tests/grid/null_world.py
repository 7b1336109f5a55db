"""Worlds in which nobody is faster and nobody succeeds more often, built to break the rule.

Every arm of every stratum has a law on a few ordered levels, of which the last is "never". Mixing one arm with its best
or worst level moves the macro win probability (or difference of rates) linearly, so that the null holds exactly,
however unlike the arms and strata are. Kinds are those that broke earlier rules: sparse laws, losses that hide in some
strata, level times with rare losses, rare failures against a spread-out rival, coins about a constant, unequal spreads,
crossing curves, strata that point in opposite directions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class Kind(enum.StrEnum):
    SPARSE = 'sparse laws on few levels'
    HIDDEN = 'losses hidden in some strata'
    LEVEL = 'level times with rare losses'
    RARE_FAILURE = 'rare failures against a spread-out rival'
    COIN = 'a coin about a constant'
    SPREADS = 'unequal spreads'
    CROSSING = 'crossing curves'
    OPPOSITE = 'opposite strata'


LEVELS = {Kind.SPREADS: 21, Kind.CROSSING: 15, Kind.RARE_FAILURE: 12, Kind.OPPOSITE: 9}


@dataclass(frozen=True, slots=True, eq=False)
class NullWorld:
    """Laws (strata, levels) of both arms with a macro win probability of 1/2, and the units of every cell."""

    name: str
    law_a: FloatArray
    law_b: FloatArray
    n_a: tuple[int, ...]
    n_b: tuple[int, ...]
    n_shared: tuple[int, ...] = ()  # starts of each stratum that both arms run
    start_effect: float = 0.0  # the share of a level's rank that comes from the start, for shared and repeated starts
    runs: int = 1  # of each start

    @property
    def strata(self) -> int:
        return len(self.law_a)

    @property
    def cost(self) -> int:
        """Comparisons per trial."""
        return sum(n * m for n, m in zip(self.n_a, self.n_b, strict=True)) * self.runs**2

    def draw(self, n_trials: int, rng: np.random.Generator) -> tuple[list[FloatArray], list[FloatArray]]:
        """(trials, units, runs) times of both arms, stratum by stratum; the last level is infinite."""
        arms: tuple[list[FloatArray], list[FloatArray]] = ([], [])
        for c in range(self.strata):
            most = max(self.n_a[c], self.n_b[c])
            shared = self.n_shared[c] if self.n_shared else 0
            start = [rng.standard_normal((n_trials, most, 1)) for _ in range(2)]
            start[1][:, :shared] = start[0][:, :shared]
            for arm, law, n in ((0, self.law_a[c], self.n_a[c]), (1, self.law_b[c], self.n_b[c])):
                arms[arm].append(self._times(law, start[arm][:, :n], rng))
        return arms

    def _times(self, law: FloatArray, start: FloatArray, rng: np.random.Generator) -> FloatArray:
        from scipy.special import ndtr

        shape = (*start.shape[:2], self.runs)
        if self.start_effect:
            own = rng.standard_normal(shape)
            uniform = ndtr(np.sqrt(self.start_effect) * start + np.sqrt(1 - self.start_effect) * own)
        else:
            uniform = rng.random(shape)
        edges = np.cumsum(law)[:-1]
        level = np.searchsorted(edges, uniform.ravel(), side='right').reshape(shape).astype(np.float64)
        return np.where(level == len(law) - 1, np.inf, level)


def win_chance(law_a: FloatArray, law_b: FloatArray) -> FloatArray:
    """(strata,) P that a is earlier, level by half."""
    later = np.flip(np.cumsum(np.flip(law_b, axis=-1), axis=-1), axis=-1) - law_b
    return np.asarray((law_a * (later + law_b / 2)).sum(axis=-1), dtype=np.float64)


def balanced(law_a: FloatArray, law_b: FloatArray, strata: NDArray[np.bool_] | None = None) -> FloatArray | None:
    """A's laws mixed with their best or worst level (in some strata only) so that the macro P is 1/2, or None."""
    where = np.ones(len(law_a), dtype=np.bool_) if strata is None else strata
    gap = float(win_chance(law_a, law_b).mean()) - 0.5
    if abs(gap) < 1e-12:
        return law_a
    end = np.zeros_like(law_a)
    end[:, -1 if gap > 0 else 0] = 1.0
    mixed = np.where(where[:, None], end, law_a)
    reach = float(win_chance(mixed, law_b).mean()) - 0.5
    if reach * gap > 0:
        return None  # even the whole mixture does not reach 1/2
    share = gap / (gap - reach)
    return np.asarray((1 - share) * law_a + share * mixed, dtype=np.float64)


def random_null(rng: np.random.Generator, *, number: int = 0, most_cost: int = 40_000) -> NullWorld:
    """One world of a random kind and random sizes."""
    while True:
        kind = list(Kind)[rng.integers(len(Kind))]
        strata = int(rng.choice([1, 1, 2, 3, 4, 6, 10, 20, 40]))
        law_a, law_b = _laws(kind, strata, rng)
        some = rng.random(strata) < rng.choice([0.3, 0.6, 1.1])
        mixed = balanced(law_a, law_b, some if some.any() else None)
        n_a, n_b = _sizes(strata, rng)
        if mixed is None:
            continue
        swap = rng.random() < 0.5
        laws, sizes = ((law_b, mixed), (n_b, n_a)) if swap else ((mixed, law_b), (n_a, n_b))
        world = NullWorld(f'{number}: {kind.value}', laws[0], laws[1], sizes[0], sizes[1])
        if world.cost <= most_cost and strata * min(*n_a, *n_b) >= 6:
            return world


def _sizes(strata: int, rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Units of both arms: equal cells, unequal arms, one small cell, or any."""
    base = int(np.round(np.exp(rng.uniform(np.log(3), np.log(100)))))
    design = rng.integers(4)
    sizes = np.full((2, strata), base)
    if design == 1:
        sizes[1] = max(3, int(base * rng.choice([0.3, 0.5, 2, 4])))
    elif design == 2:
        sizes[:, rng.integers(strata)] = 3 + rng.integers(3)
    elif design == 3:
        sizes = np.maximum(3, rng.poisson(base, (2, strata)))
    return tuple(sizes[0].tolist()), tuple(sizes[1].tolist())


def _laws(kind: Kind, strata: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """(strata, levels) of both arms before they are balanced."""
    levels = LEVELS.get(kind, 5)
    a, b = np.zeros((strata, levels)), np.zeros((strata, levels))
    rare = 10 ** rng.uniform(-3, -0.6)
    if kind is Kind.SPARSE:
        spread = rng.choice([0.1, 0.3, 1.0])
        a, b = (rng.dirichlet(np.full(levels, spread), strata) for _ in range(2))
    elif kind is Kind.HIDDEN:
        a[:, 1], b[:, 2] = 1.0, 1.0  # a is always earlier, but for losses that balancing adds where it may
        level = rng.random(strata) < rng.uniform(0, 1)
        a[level] = b[level]
        a[level, 2], a[level, 3] = 1 - rare, rare
    elif kind is Kind.LEVEL:
        a[:, 2] = b[:, 2] = 1 - rare
        a[:, 4], b[:, 3] = rare, rare
        a[:, 1], a[:, 2] = rare * rng.random(), a[:, 2] - rare * 0.5
    elif kind is Kind.RARE_FAILURE:
        b[:, :-1] = 1 / (levels - 1)
        a[:, rng.integers(levels - 1)] = 1 - rare
        a[:, -1] = rare
    elif kind is Kind.COIN:
        b[:, 2] = 1.0
        win = rng.choice([0.5, rng.random()])
        a[:, 1], a[:, 3] = win, 1 - win
        b[:, 2], b[:, 4] = 1 - rare, rare
    elif kind is Kind.SPREADS:
        places = np.arange(levels - 1) - (levels - 2) / 2
        for law, width in ((a, rng.uniform(0.2, 8)), (b, rng.uniform(0.2, 8))):
            law[:, :-1] = np.exp(-((places / width) ** 2) / 2)
    elif kind is Kind.CROSSING:
        steps = np.arange(levels - 1)
        a[:, :-1] = np.exp(-((steps - 6) ** 2) / 8)
        b[:, :-1] = np.exp(-steps / 1.5) + rng.random() * np.exp((steps - 13) / 1.5)
        a[:, -1], b[:, -1] = rare, rare * rng.random()
    else:
        shift = rng.uniform(0.2, 3) * np.where(np.arange(strata) % 2, 1, -1)
        places = np.arange(levels - 1.0)
        a[:, :-1] = np.exp(-((places[None, :] - 3.5 - shift[:, None]) ** 2) / 2)
        b[:, :-1] = np.exp(-((places - 3.5) ** 2) / 2)
        a[:, -1] = b[:, -1] = rare
    a, b = np.maximum(a, 0), np.maximum(b, 0)
    return a / a.sum(axis=1, keepdims=True), b / b.sum(axis=1, keepdims=True)
