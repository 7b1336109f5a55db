"""One design effect for many pairs: fitted to some detection rates, judged on others (PhAIL, Appendix H)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from robotrials.errors import InputError
from robotrials.measure.timing.resample import NullMethod
from robotrials.verdict.planning.bridge import Bridges, Cell
from robotrials.verdict.planning.power import simulated_pair


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
        found = modelled(factor)
        return sum((found[name, n] - rates[name][n]) ** 2 for name, n in found if n in fit_on)

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
