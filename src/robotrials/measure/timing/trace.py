"""Traces for pictures: P-P and Q-Q points of two curves, and how UPH trades against MTBF as the time budget grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError
from robotrials.measure.timing.curve import SuccessCurve, rmst
from robotrials.measure.timing.ks import ks_distance
from robotrials.measure.timing.operation import FloatArray
from robotrials.measure.timing.reference import curve_auc
from robotrials.measure.timing.scalar import uph_of_rmst


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
