"""Shapes of success curves: confidence bands, P-P and Q-Q traces, and sup-signs that cycle."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.curve import SuccessCurve, clustered_variance, rmst, success_curve
from robotrials.measure.timing.curve_test import ks_distance
from robotrials.measure.timing.operation import FloatArray, Operations
from robotrials.measure.timing.reference import curve_auc
from robotrials.measure.timing.resample import macro_curve_draws, sort_cell, stream_seed
from robotrials.measure.timing.scalar import uph_of_rmst
from robotrials.value import dataclass

# Traces for pictures: P-P and Q-Q points of two curves, and how UPH trades against MTBF as the time budget grows.


@dataclass(frozen=True, slots=True, eq=False)
class PPTrace:
    """(F_reference(t), F_model(t)) as t sweeps from 0; straight between steps, so that ties count half."""

    reference: FloatArray
    model: FloatArray
    auc: float
    ks: float
    ks_point: tuple[float, float]  # (F_reference, F_model) where they are furthest apart
    ks_time_s: float | None
    times_s: FloatArray  # t of each point; the first is 0


def pp_trace(model: SuccessCurve, reference: SuccessCurve, *, tau_s: float | None = None) -> PPTrace:
    """The P-P curve up to tau_s, with the area that ties halve and the largest distance to the diagonal."""
    times = np.union1d(model.times_s, reference.times_s)
    times = times if tau_s is None else times[times <= tau_s]
    x, y = (np.concatenate([[0.0], np.atleast_1d(c.at(times))]) for c in (reference, model))
    where = int(np.argmax(np.abs(y - x)))
    return PPTrace(
        reference=x,
        model=y,
        auc=curve_auc(model, reference, tau_s=tau_s),
        ks=ks_distance(model, reference, tau_s=tau_s)[0],
        ks_point=(float(x[where]), float(y[where])),
        ks_time_s=float(times[where - 1]) if where else None,
        times_s=np.concatenate([[0.0], times]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class QQTrace:
    """Times by which both have done a share q of operations, for the q that both reach."""

    levels: FloatArray
    reference_s: FloatArray
    model_s: FloatArray
    last_level: float  # the highest share that the model reaches at all


def qq_trace(model: SuccessCurve, reference: SuccessCurve, *, n_levels: int = 200) -> QQTrace:
    """Quantile against quantile up to the last level both reach."""
    top = min(model.plateau, reference.plateau)
    if top <= 0:
        raise InputError('one of the two never succeeds: there is no quantile to compare')
    levels = np.linspace(0, top, n_levels + 1)[1:]
    index = [np.searchsorted(c.chance, levels - 1e-12, side='left') for c in (model, reference)]
    return QQTrace(levels, reference.times_s[index[1]], model.times_s[index[0]], model.plateau)


@dataclass(frozen=True, slots=True, eq=False)
class TradeOffTrace:
    """UPH (3600 / RMST) against MTBF at each time budget; MTBF is infinite where nothing fails by then."""

    tau_s: FloatArray
    uph: FloatArray
    mtbf_s: FloatArray


def trade_off_trace(curves: Sequence[SuccessCurve], *, low_s: float = 30.0, high_s: float = 240.0) -> TradeOffTrace:
    """UPH (its equal-weight mean over curves) and MTBF (the ratio of means), as the time budget sweeps low_s to high_s.

    A mean of the curves' own MTBF would be infinite as soon as one of them has no failure.
    """
    if not 0 < low_s < high_s:
        raise InputError(f'the sweep runs from {low_s} to {high_s} s, wanted 0 < low < high')
    if not curves:
        raise InputError('no curve was given to trace')
    taus = np.linspace(low_s, high_s, 85)
    uph = np.array([np.mean([uph_of_rmst(c, t) for c in curves]) for t in taus])
    mean_s = np.array([np.mean([rmst(c, float(t)) for c in curves]) for t in taus])
    missing = np.array([np.mean([1.0 - float(c.at(t)) for c in curves]) for t in taus])
    with np.errstate(divide='ignore'):
        between = np.where(missing > 1e-12, mean_s / np.where(missing > 1e-12, missing, 1.0), np.inf)
    return TradeOffTrace(taus, uph, between)


# Why the sign of a KS distance cannot rank policies: three curves whose sup-signs cycle (PhAIL, Appendix I).

# Time in seconds -> share of operations that succeed then; the rest never does.
EXAMPLE_SHARES: Mapping[str, Mapping[float, float]] = {
    'A': {1: 0.35},
    'B': {5: 0.30, 20: 0.35},
    'C': {20: 0.25, 50: 0.60},
}


@dataclass(frozen=True, slots=True)
class SupSign:
    """Where two curves are furthest apart, and which is on top there."""

    upper: str
    lower: str
    time_s: float
    distance: float


def example_curves() -> dict[str, SuccessCurve]:
    """The constructed cycle: A over B over C over A."""
    curves = {}
    for name, shares in EXAMPLE_SHARES.items():
        counts = [round(100 * share) for share in shares.values()]
        times = np.repeat([*shares, np.inf], [*counts, 100 - sum(counts)])
        curves[name] = success_curve(times, np.ones(100, dtype=bool))
    return curves


def sup_sign(name_a: str, a: SuccessCurve, *, name_b: str, b: SuccessCurve) -> SupSign | None:
    """The supremum of |Fa - Fb| and its winner; None for curves that are equal everywhere."""
    times = np.union1d(a.times_s, b.times_s)
    if len(times) == 0:
        return None
    gap = np.atleast_1d(a.at(times)) - np.atleast_1d(b.at(times))
    where = int(np.argmax(np.abs(gap)))
    if gap[where] == 0:
        return None
    names = (name_a, name_b) if gap[where] > 0 else (name_b, name_a)
    return SupSign(*names, time_s=float(times[where]), distance=float(abs(gap[where])))


def find_cycle(curves: Mapping[str, SuccessCurve]) -> tuple[SupSign, SupSign, SupSign] | None:
    """The first three policies whose sup-signs cycle, or None."""
    for x, y, z in itertools.combinations(curves, 3):
        edges = [sup_sign(p, curves[p], name_b=q, b=curves[q]) for p, q in ((x, y), (y, z), (z, x))]
        first, second, third = edges
        if (
            first is not None
            and second is not None
            and third is not None
            and len({e.upper for e in (first, second, third)}) == 3
        ):
            return first, second, third
    return None


# Confidence bands of success curves: pointwise, and simultaneous over the whole curve.


class BandKind(enum.StrEnum):
    GREENWOOD = 'greenwood'  # pointwise, log-log, operations taken as independent
    CLUSTERED = 'clustered'  # pointwise, log-log, operations clustered in episodes
    BOOTSTRAP = 'bootstrap'  # pointwise, percentiles of resampled episodes
    SIMULTANEOUS = 'simultaneous'  # the whole curve at once, calibrated by resampled episodes


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """Lower and upper limits of F at each of `times_s`."""

    times_s: FloatArray
    low: FloatArray
    high: FloatArray
    kind: BandKind
    level: float


def curve_band(
    cell: Operations, *, kind: BandKind | str = BandKind.BOOTSTRAP, rng: np.random.Generator | None = None,
    n_resamples: int = 1000, level: float = 0.95, grid_s: FloatArray | None = None, threads: int | None = None,
) -> Band:  # fmt: skip
    """The band of one cell's curve at its success times, or on `grid_s`."""
    return macro_band(
        {'': cell}, kind=kind, rng=rng, n_resamples=n_resamples, level=level, grid_s=grid_s, threads=threads
    )


def macro_band(
    cells: Mapping[str, Operations], *, kind: BandKind | str = BandKind.BOOTSTRAP,
    rng: np.random.Generator | None = None, n_resamples: int = 1000, level: float = 0.95,
    grid_s: FloatArray | None = None, threads: int | None = None,
) -> Band:  # fmt: skip
    """The band of the equal-weight mean of the strata's curves, at its success times or on `grid_s`, in time order."""
    kind = BandKind(kind)
    if not 0 < level < 1:
        raise InputError(f'level is {level}, wanted a number between 0 and 1')
    curves = [success_curve(c.durations_s, c.observed) for c in cells.values()]
    times = np.unique(np.concatenate([c.times_s[c.n_success > 0] for c in curves])) if grid_s is None else grid_s
    times = np.sort(np.asarray(times, dtype=np.float64))
    if len(times) == 0:
        raise NotEstimable('no success was seen: the curve is 0 as far as it goes, and has no band')
    chance = np.mean([np.atleast_1d(c.at(times)) for c in curves], axis=0)
    if kind in (BandKind.GREENWOOD, BandKind.CLUSTERED):
        return _log_log(times, chance, _variance(cells, times, kind), kind, level)
    if rng is None:
        raise InputError(f'a {kind} band resamples episodes; pass rng=numpy.random.default_rng(seed)')
    resampled = [(sort_cell(c), stream_seed(rng)) for c in cells.values()]
    draws = macro_curve_draws(resampled, times, n_resamples=n_resamples, threads=threads)
    if kind is BandKind.BOOTSTRAP:
        low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return Band(times, low, high, kind, level)
    return _simultaneous(times, np.asarray(chance, dtype=np.float64), draws, level)


def _variance(cells: Mapping[str, Operations], times: FloatArray, kind: BandKind) -> FloatArray:
    parts = []
    for c in cells.values():
        if kind is BandKind.GREENWOOD:
            parts.append(success_curve(c.durations_s, c.observed).greenwood_variance(times))
        else:
            parts.append(clustered_variance(c.durations_s, c.observed, c.episode, times))
    return np.asarray(np.sum(parts, axis=0) / len(parts) ** 2, dtype=np.float64)


def _log_log(times: FloatArray, chance: FloatArray, variance: FloatArray, kind: BandKind, level: float) -> Band:
    """S^exp(-+z se / (S |log S|)): stays within 0 and 1; where the variance is 0 the band has no width."""
    from robotrials.stats.special import ndtri

    survival = 1.0 - chance
    inner = (survival > 0) & (survival < 1)
    safe = np.where(inner, survival, 0.5)
    reach = ndtri((1 + level) / 2) * np.sqrt(variance) / (safe * -np.log(safe))
    low = np.where(inner, 1.0 - safe ** np.exp(-reach), chance)
    high = np.where(inner, 1.0 - safe ** np.exp(reach), chance)
    return Band(times, low, high, kind, level)


def _simultaneous(times: FloatArray, chance: FloatArray, draws: FloatArray, level: float) -> Band:
    """Constant width on the scale asin(sqrt F), as wide as the largest resampled deviation at this level.

    That scale makes the variance nearly constant, so that no estimated standard error enters: studentised bands cover
    too little with some forty episodes.
    """
    middle = _angle(chance)
    # Row by row, so that a long curve is not held three times over.
    widest = [float(np.max(np.abs(_angle(row) - middle))) for row in draws]
    reach = float(np.quantile(widest, level))
    low, high = (np.sin(np.clip(middle + side * reach, 0, np.pi / 2)) ** 2 for side in (-1, 1))
    return Band(times, low, high, BandKind.SIMULTANEOUS, level)


def _angle(chance: FloatArray) -> FloatArray:
    return np.arcsin(np.sqrt(np.clip(chance, 0.0, 1.0)))
