"""Who works how fast: scores, curves and failures of every policy under the condition that ranks them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from robotrials.measure.timing import auc, hrt, rmst, score_cohort, success_curve

if TYPE_CHECKING:
    from robotrials.measure.timing import (
        Cohort,
        CohortScore,
        FailureModes,
        Operations,
        RelativeScore,
    )
    from robotrials.measure.timing.operation import FloatArray
    from robotrials.verdict.analysis.frame import ComparisonFrame
    from robotrials.verdict.analysis.times import Times
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan

ALL_STRATA = ''
MOST_STEPS = 256
Stream = Callable[..., np.random.Generator]


@dataclass(frozen=True, slots=True, eq=False)
class PolicyCurve:
    """One policy's chance of success by time with its pointwise band; the equal-weight mean when over all strata."""

    policy: str
    stratum: str  # ALL_STRATA is the mean over them
    times_s: FloatArray
    chance: FloatArray
    low: FloatArray | None  # None where nothing succeeded: no band exists
    high: FloatArray | None
    n_episodes: int
    n_operations: int


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Every policy's time to success under one condition."""

    condition: str  # '' where the conditions of the source are pooled
    times: Times
    reference: str | None
    order: tuple[str, ...]  # lowest macro RMST first; neither the reference nor those of `apart` are among them
    apart: Mapping[str, str]  # policies that are not ranked, and why
    strata: tuple[str, ...]
    scores: Mapping[str, CohortScore]
    relative: Mapping[str, RelativeScore]  # HRT
    areas: Mapping[str, RelativeScore]  # AUC against the reference
    unscored: Mapping[str, int]  # policies none of whose episodes is valid, and how many they have
    cautions: tuple[str, ...]

    @property
    def tau_s(self) -> float:
        return self.times.tau_s

    @property
    def policies(self) -> tuple[str, ...]:
        """All scored policies: the reference, those ranked, those apart."""
        return (*((self.reference,) if self.reference else ()), *self.order, *self.apart)


def rank_policies(frame: ComparisonFrame, times: Times, plan: AnalysisPlan, stream: Stream) -> Ranking:
    """Score every policy in the strata that it is judged on."""
    cohorts = times.cohorts
    scores = {
        name: score_cohort(
            c, scale=times.scale(tuple(c.cells)), n_resamples=plan.resamples, rng=stream('score', name),
            level=plan.level,
        )
        for name, c in cohorts.items() if c.cells
    }  # fmt: skip
    relative, areas = _against_reference(frame, times, plan, stream)
    return Ranking(
        condition=frame.condition, times=times, reference=frame.reference,
        order=order_by_time(frame, times), apart=frame.apart, strata=frame.strata, scores=scores, relative=relative,
        areas=areas, unscored=frame.unscored, cautions=frame.cautions,
    )  # fmt: skip


def order_by_time(frame: ComparisonFrame, times: Times) -> tuple[str, ...]:
    """The ranked policies, lowest macro RMST first: their values alone, without the resamples of their scores."""
    values = {}
    for policy in frame.policies:
        cells = times.cohorts[policy].cells
        if cells:
            curves = {s: success_curve(c.durations_s, c.observed) for s, c in cells.items()}
            values[policy] = math.fsum(rmst(curve, times.taus_s[s]) for s, curve in curves.items()) / len(cells)
    return tuple(sorted(values, key=lambda policy: (values[policy], policy)))


def _against_reference(
    frame: ComparisonFrame, times: Times, plan: AnalysisPlan, stream: Stream
) -> tuple[dict[str, RelativeScore], dict[str, RelativeScore]]:
    relative: dict[str, RelativeScore] = {}
    areas: dict[str, RelativeScore] = {}
    anchor = None if frame.reference is None else times.cohorts[frame.reference]
    for name, cohort in times.cohorts.items():
        if anchor is None or name == anchor.policy or not cohort.cells.keys() & anchor.cells.keys():
            continue
        for kind, compute, into in (('hrt', hrt, relative), ('auc', auc, areas)):
            into[name] = compute(
                cohort.cells, anchor.cells, tau_s=times.taus_s, n_resamples=plan.resamples,
                rng=stream(kind, name, anchor.policy), level=plan.level, missing='drop',
            )  # fmt: skip
    return relative, areas


def policy_failures(times: Times) -> tuple[FailureModes, ...]:
    """How operations and episodes of every policy failed."""
    from robotrials.measure.timing import failure_modes

    return tuple(failure_modes(c, tau_s=times.scale(tuple(c.cells)).tau_s) for c in times.cohorts.values() if c.cells)


def policy_curves(times: Times, strata: Sequence[str], level: float) -> dict[str, tuple[PolicyCurve, ...]]:
    """Curves by stratum, ALL_STRATA (the mean over those that are ranked) first."""
    found = [c for c in times.cohorts.values() if c.cells]
    panels = {ALL_STRATA: [_curve(c, ALL_STRATA, c.cells, times, level) for c in found]}
    if len(strata) > 1:
        for stratum in strata:
            having = [c for c in found if stratum in c.cells]
            panels[stratum] = [_curve(c, stratum, {stratum: c.cells[stratum]}, times, level) for c in having]
    return {stratum: tuple(curves) for stratum, curves in panels.items()}


def _curve(cohort: Cohort, stratum: str, cells: Mapping[str, Operations], times: Times, level: float) -> PolicyCurve:
    """F at its own steps up to tau (at most MOST_STEPS of them), and its pointwise band clustered by unit."""
    from robotrials.measure.timing import BandKind, macro_band

    units = {s: c.by_unit() for s, c in cells.items()}
    curves = [success_curve(c.durations_s, c.observed) for c in units.values()]
    steps = np.unique(np.concatenate([c.times_s[c.n_success > 0] for c in curves]))
    drawn = _thinned(steps[steps <= max(times.taus_s[s] for s in cells)])
    chance = np.mean([np.atleast_1d(c.at(drawn)) for c in curves], axis=0)
    low, high = None, None
    if len(drawn):
        band = macro_band(units, kind=BandKind.CLUSTERED, level=level, grid_s=drawn)
        low, high = band.low, band.high
    return PolicyCurve(
        cohort.policy, stratum, drawn, np.asarray(chance, dtype=np.float64), low, high,
        sum(c.n_episodes for c in cells.values()), sum(c.n_operations for c in cells.values()),
    )  # fmt: skip


def _thinned(times: FloatArray) -> FloatArray:
    if len(times) <= MOST_STEPS:
        return times
    return times[np.unique(np.linspace(0, len(times) - 1, MOST_STEPS).round().astype(np.int64))]
