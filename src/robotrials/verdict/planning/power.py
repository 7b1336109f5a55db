"""Power of the macro-KS test, and the episodes per cell that a resolved comparison needs (PhAIL, Appendix H)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.curve import check_tau
from robotrials.measure.timing.curve_test import match_scenes
from robotrials.measure.timing.operation import FloatArray, IntArray, Operations
from robotrials.measure.timing.reference import shared_strata
from robotrials.measure.timing.resample import NullMethod, curve_draws, sort_cell, stream_seed
from robotrials.stats import Interval
from robotrials.verdict.planning.bridge import Bridges, Cell, StratumModel, simulate_bridges, stratum_models
from robotrials.verdict.planning.detection import DetectionRow, DetectionStudy, detection_rate
from robotrials.verdict.planning.rule_power import AssumedCell

__all__ = [
    'BridgePower', 'DetectionRow', 'DetectionStudy', 'NeededEpisodes', 'bridge_power', 'detection_rate',
    'needed_episodes',
]  # fmt: skip

PER_CELL = (5, 10, 15, 20, 25, 30, 40, 50, 75, 100)
MOST_EPISODES = 1_000_000
HALVINGS = 40
RESAMPLES = 400
MOST_MULTIPLE = 3.0
FINEST = 200  # a large N is found to one in so many: the bridges know it no better


@dataclass(frozen=True, slots=True)
class NeededEpisodes:
    """Episodes a cell (one policy in one stratum) for the power asked; infinite when the data show no difference.

    The interval is at `level`, from resampled episodes of the pilot; None where all curves were assumed.
    """

    n: float
    interval: Interval | None
    level: float
    power: float
    alpha: float

    def __str__(self) -> str:
        if self.interval is None:
            return _count(self.n)
        return f'{_count(self.n)} [{_count(self.interval.low)}, {_count(self.interval.high)}]'


def _count(n: float) -> str:
    return '∞' if math.isinf(n) else f'{n:.0f}'


@dataclass(frozen=True, slots=True, eq=False)
class BridgePower:
    """Power against episodes per cell, by the bridge model."""

    per_cell: IntArray  # (k,)
    power: FloatArray  # (k,)
    needed: NeededEpisodes
    effect: float  # macro-KS of the curves as they are
    null_effect: float | None  # what chance alone gives at the pilot's size; None for assumed curves
    shrinkage: float  # by what the drift was multiplied to take that away
    strata: Mapping[str, StratumModel]
    n_bridges: int
    alpha: float

    @property
    def error(self) -> FloatArray:
        """(k,) Monte-Carlo standard error of the power."""
        return np.asarray(np.sqrt(self.power * (1 - self.power) / self.n_bridges), dtype=np.float64)

    @property
    def design_effect(self) -> float:
        """The mean over strata and arms."""
        return float(np.mean([d for m in self.strata.values() for d in m.design_effect]))


def bridge_power(
    a: Mapping[str, Cell], b: Mapping[str, Cell], *, rng: np.random.Generator, per_cell: Sequence[int] = PER_CELL,
    power: float = 0.8, alpha: float = 0.05, tau_s: float | None = None, design_effect: float | None = None,
    debias: str = 'deconvolve', method: NullMethod | str = NullMethod.PERMUTATION, missing: str = 'refuse',
    n_bridges: int = 4000, level: float = 0.95,
) -> BridgePower:  # fmt: skip
    """Power of the macro-KS test of two policies, given as stratum -> Operations (a pilot) or AssumedCell.

    The design effect is estimated in each cell unless given. A pilot's plug-in difference is too large by chance:
    `debias` shrinks it until such a pilot would show, on average, what was seen ('deconvolve'), by the null expectation
    ('subtract'), or not at all ('none': power in a world whose curves are the pilot's, as subsampling has it).
    """
    sizes = _check_sizes(per_cell, power=power, alpha=alpha, n_bridges=n_bridges)
    bridges, pilot = simulated_pair(
        a, b, tau_s=tau_s, rng=rng, design_effect=design_effect, method=NullMethod(method), missing=missing,
        n_bridges=n_bridges,
    )  # fmt: skip
    effect = _effect(bridges)
    assumed = all(m.is_assumed for m in bridges.models)
    null_effect = None if assumed else float(bridges.pilot_statistics(0.0).mean())
    shrink = 1.0 if null_effect is None else _shrinkage(bridges, effect, null_effect, debias)
    n = _needed(bridges, shrink, power=power, alpha=alpha)
    interval = None
    if not assumed:
        ends = _effect_interval(bridges, *pilot, level=level, rng=rng)
        low, high = (_needed(bridges, c, power=power, alpha=alpha) for c in reversed(ends))
        interval = Interval(min(low, n), max(high, n))
    return BridgePower(
        per_cell=np.array(sizes, dtype=np.int64),
        power=np.array([bridges.power(k, shrink=shrink, alpha=alpha) for k in sizes]),
        needed=NeededEpisodes(n, interval, level, power, alpha),
        effect=effect,
        null_effect=null_effect,
        shrinkage=shrink,
        strata=dict(zip(pilot[0], bridges.models, strict=True)),
        n_bridges=n_bridges,
        alpha=alpha,
    )


def needed_episodes(
    a: Mapping[str, Operations], b: Mapping[str, Operations], *, rng: np.random.Generator, power: float = 0.8,
    alpha: float = 0.05, tau_s: float | None = None, method: NullMethod | str = NullMethod.PERMUTATION,
    n_bridges: int | None = None, level: float = 0.95,
) -> NeededEpisodes:  # fmt: skip
    """Episodes a cell with which the macro-KS test would tell these two apart, with an interval from the pilot.

    By default 2,000 bridges are simulated, and fewer, down to 600 (a power known to 1.6 points), over many strata.
    """
    few = max(600, min(2000, 24_000 // max(1, len(a.keys() & b.keys()))))
    return bridge_power(
        a, b, rng=rng, per_cell=(), power=power, alpha=alpha, tau_s=tau_s, method=method, missing='drop',
        n_bridges=few if n_bridges is None else n_bridges, level=level,
    ).needed  # fmt: skip


def simulated_pair(
    a: Mapping[str, Cell], b: Mapping[str, Cell], *, tau_s: float | None, rng: np.random.Generator,
    design_effect: float | None, method: NullMethod, missing: str, n_bridges: int,
) -> tuple[Bridges, tuple[dict[str, Cell], dict[str, Cell]]]:  # fmt: skip
    """The bridges of two policies, and the cells that they stand for (shared strata; matched scenes if paired)."""
    if tau_s is not None:
        check_tau(tau_s)
    if design_effect is not None and not (math.isfinite(design_effect) and design_effect > 0):
        raise InputError(f'design_effect is {design_effect}, wanted a finite number > 0')
    first, second = _shared_cells(a, b, missing=missing)
    paired = method is NullMethod.PAIRED_SWAP
    if paired:
        matched = match_scenes(_pilot(first), _pilot(second))
        first, second = dict(matched[0]), dict(matched[1])
    models = stratum_models(first, second, tau_s=tau_s, rng=rng, design_effect=design_effect, is_paired=paired)
    return simulate_bridges(models, n_bridges, rng=rng, method=method), (first, second)


def _pilot(cells: Mapping[str, Cell]) -> dict[str, Operations]:
    kept = {s: c for s, c in cells.items() if isinstance(c, Operations)}
    if len(kept) < len(cells):
        raise NotEstimable('assumed curves say nothing about matched scenes; plan them as unpaired')
    return kept


def _shared_cells(
    a: Mapping[str, Cell], b: Mapping[str, Cell], *, missing: str
) -> tuple[dict[str, Cell], dict[str, Cell]]:
    if any(isinstance(c, AssumedCell) for cells in (a, b) for c in cells.values()):
        if set(a) != set(b) or not a:
            raise InputError(f'assumed strata must be the same on both sides, found {sorted(a)} and {sorted(b)}')
        return dict(a), {s: b[s] for s in a}
    shared, _ = shared_strata(_pilot(a), _pilot(b), missing=missing)
    return {s: a[s] for s in shared}, {s: b[s] for s in shared}


def _check_sizes(per_cell: Sequence[int], *, power: float, alpha: float, n_bridges: int) -> list[int]:
    for name, value in (('power', power), ('alpha', alpha)):
        if not 0 < value < 1:
            raise InputError(f'{name} is {value}, wanted a number between 0 and 1')
    if n_bridges < 100:
        raise InputError(f'n_bridges is {n_bridges}, wanted at least 100: a quantile is read off them')
    if any(n < 1 for n in per_cell):
        raise InputError(f'per_cell is {list(per_cell)}, wanted whole numbers >= 1')
    return [int(n) for n in per_cell]


def _effect(bridges: Bridges) -> float:
    return float(np.mean([np.abs(m.drift).max() for m in bridges.models]))


def _shrinkage(bridges: Bridges, effect: float, null_effect: float, debias: str) -> float:
    """By what the drift is multiplied so that it no longer holds what chance put into it."""
    if debias == 'none':
        return 1.0
    if effect <= null_effect:
        return 0.0
    if debias == 'subtract':
        return (effect - null_effect) / effect
    if debias != 'deconvolve':
        raise InputError(f"debias is {debias!r}, wanted 'deconvolve', 'subtract' or 'none'")
    return _bisect(lambda c: float(bridges.pilot_statistics(c).mean()) < effect, 0.0, 1.0)


def _effect_interval(
    bridges: Bridges, a: Mapping[str, Cell], b: Mapping[str, Cell], *, level: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Multiples of the drift between which the truth lies, by resampling the pilot's episodes.

    A resampled pilot holds chance twice, the pilot's own and the resampling's, so that it is the multiple whose
    expected macro-KS under doubled noise equals the resampled one that is taken.
    """
    drawn = np.mean(
        [_resampled_ks(m, a[s], b[s], bridges, rng) for s, m in zip(a, bridges.models, strict=True)], axis=0
    )
    multiples = np.linspace(0, MOST_MULTIPLE, 25)
    expected = [float(bridges.pilot_statistics(c, noise_factor=math.sqrt(2)).mean()) for c in multiples]
    effects = np.interp(drawn, np.maximum.accumulate(expected), multiples)
    low, high = np.quantile(effects, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _resampled_ks(model: StratumModel, a: Cell, b: Cell, bridges: Bridges, rng: np.random.Generator) -> FloatArray:
    """(RESAMPLES,) KS of one stratum with episodes drawn anew in each arm; matched scenes are drawn together."""
    seeds = [stream_seed(rng), stream_seed(rng)]
    if bridges.method is NullMethod.PAIRED_SWAP:
        seeds[1] = seeds[0]
    curves = [
        np.broadcast_to(cell.curve.at(model.times_s), (RESAMPLES, len(model.times_s)))
        if isinstance(cell, AssumedCell)
        else curve_draws(sort_cell(cell), model.times_s, n_resamples=RESAMPLES, seed=seed)
        for cell, seed in zip((a, b), seeds, strict=True)
    ]
    return np.asarray(np.abs(curves[0] - curves[1]).max(axis=1), dtype=np.float64)


def _needed(bridges: Bridges, shrink: float, *, power: float, alpha: float) -> float:
    """The smallest N with the power; infinite without a drift, or past any N that could be run."""
    if shrink <= 0 or _effect(bridges) == 0:
        return math.inf
    pooled = bridges.method is NullMethod.POOLED_BOOTSTRAP
    edge = None if pooled else bridges.critical(shrink, alpha=alpha, n=math.inf)

    def short(n: float) -> bool:
        return bridges.power(n, shrink=shrink, alpha=alpha, critical=edge) < power

    if not short(2):
        return 2.0
    low, high = 2, 4
    while short(high):
        low, high = high, high * 2
        if high > MOST_EPISODES:
            return math.inf
    while high - low > max(1, high // FINEST):
        middle = (low + high) // 2
        low, high = (middle, high) if short(middle) else (low, middle)
    return float(high)


def _bisect(short: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if short(middle) else (low, middle)
        if high - low < 1e-3:
            break
    return (low + high) / 2


# One design effect for many pairs: fitted to some detection rates, judged on others (PhAIL, Appendix H).


@dataclass(frozen=True, slots=True, eq=False)
class DesignCalibration:
    """The design effect that brings the bridge model closest to detection rates, and how close that is."""

    design_effect: float
    estimated: float  # without calibration: the mean of the cells' own
    fitted_gap: float  # largest |model - rate| on the points that were fitted
    judged_gap: float | None  # and on those that were not; None when every point was fitted
    rows: tuple[tuple[str, int, float, float, bool], ...]  # pair, N, rate, model, was it fitted


def calibrate_design_effect(
    pairs: Mapping[str, tuple[Mapping[str, Cell], Mapping[str, Cell]]], rates: Mapping[str, Mapping[int, float]], *,
    fit_on: Sequence[int], rng: np.random.Generator, alpha: float = 0.05, tau_s: float | None = None,
    method: NullMethod | str = NullMethod.PERMUTATION, n_bridges: int = 10_000,
) -> DesignCalibration:  # fmt: skip
    """One design effect for all pairs, by least squares on the detection rates at the N in `fit_on`.

    Rates are those of a world whose curves are the pairs' own (a detection study), so the drift is not debiased. The
    cells' own estimates are scaled by one factor, which keeps what is known about differences between cells.
    """
    first = {
        name: simulated_pair(
            *pair, tau_s=tau_s, rng=rng, design_effect=None, method=NullMethod(method), missing='drop',
            n_bridges=n_bridges,
        )[0]
        for name, pair in pairs.items()
    }  # fmt: skip
    own = float(np.mean([d for b in first.values() for m in b.models for d in m.design_effect]))

    def modelled(factor: float) -> dict[tuple[str, int], float]:
        out = {}
        for name, bridges in first.items():
            scaled = _scaled(bridges, factor)
            for n in rates[name]:
                out[name, n] = scaled.power(n, shrink=1.0, alpha=alpha)
        return out

    def misfit(factor: float) -> float:
        model = modelled(factor)
        return sum((model[name, n] - rates[name][n]) ** 2 for name, n in model if n in fit_on)

    grid = np.geomspace(0.5, 2.0, 29)
    best = float(grid[int(np.argmin([misfit(f) for f in grid]))])
    fine = np.geomspace(best / 1.05, best * 1.05, 21)
    best = float(fine[int(np.argmin([misfit(f) for f in fine]))])
    final = modelled(best)
    rows = tuple((name, n, rates[name][n], value, n in fit_on) for (name, n), value in final.items())
    gaps = {flag: [abs(r[2] - r[3]) for r in rows if r[4] is flag] for flag in (True, False)}
    if not gaps[True]:
        raise InputError(f'no detection rate at the N to fit on, {list(fit_on)}')
    return DesignCalibration(own * best, own, max(gaps[True]), max(gaps[False], default=None), rows)


def _scaled(bridges: Bridges, factor: float) -> Bridges:
    """The same bridges with every design effect multiplied."""
    scale = np.float32(math.sqrt(factor))
    return replace(
        bridges, noise=tuple(z * scale for z in bridges.noise), null_noise=tuple(z * scale for z in bridges.null_noise)
    )
