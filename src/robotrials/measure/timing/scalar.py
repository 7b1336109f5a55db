"""Scores: the scalars of Table 1 as functionals of the curve, per cell, macro-averaged and pooled, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from robotrials.errors import NotEstimable
from robotrials.measure.timing.better import endpoint_estimate
from robotrials.measure.timing.cohort import Cohort
from robotrials.measure.timing.curve import SuccessCurve, check_tau, rmst
from robotrials.measure.timing.estimate import (
    Draws,
    ResampledCell,
    estimate,
    jointly,
    macro_mean,
    resampled_cells,
)
from robotrials.measure.timing.operation import FloatArray, Operations
from robotrials.measure.timing.unit import Endpoint, tau_of
from robotrials.stats import Estimate, Interval, absent_estimate, wilson
from robotrials.stats.argument import check_open_unit

SECONDS_AN_HOUR = 3600.0
NOT_REACHED = 'not reached'


LABELS = {
    'rmst_s': 'RMST',
    'uph_of_successes': 'UPH of successes',
    'uph_of_rmst': 'UPH of RMST',
    'completion': 'items placed within the budget',
    'chance_tau': 'items placed within tau',
    'mtbf_s': 'MTBF/A',
    'missing_at_tau': 'items not placed by tau',
    'hard_failure': 'hard failure',
    'median_s': 'median',
    'hrt': 'HRT',
    'auc_vs_reference': 'AUC vs reference',
    'auc_between': 'pairwise AUC',
}


def scalar_label(name: str) -> str:
    """What people call the scalar of this name, in sentences and at the head of table rows."""
    if name.startswith('chance_') and name not in LABELS:
        return f'items placed within {name.removeprefix("chance_").removesuffix("s")} s'
    if name.startswith('quantile_'):
        return f'quantile {name.removeprefix("quantile_").removesuffix("_s")}'
    return LABELS.get(name, name)


def uph_of_successes(curve: SuccessCurve, tau_s: float) -> float:
    """Units per hour by Table 1's first form, 3600 / E[T | T <= tau]: the pace of the successes alone."""
    check_tau(tau_s)
    inside = curve.times_s <= tau_s
    steps = np.diff(np.concatenate([[0.0], curve.chance]))[inside]
    moment, chance = float(np.sum(steps * curve.times_s[inside])), float(steps.sum())
    if chance == 0:
        raise NotEstimable(f'no success by {tau_s:g} s: the pace of successes does not exist')
    return SECONDS_AN_HOUR * chance / moment if moment > 0 else float('inf')


def uph_of_rmst(curve: SuccessCurve, tau_s: float) -> float:
    """Units per hour by Table 1's second form, 3600 / RMST(tau): failures are charged tau."""
    mean_s = rmst(curve, tau_s)
    return SECONDS_AN_HOUR / mean_s if mean_s > 0 else float('inf')


def mtbf(curve: SuccessCurve, tau_s: float) -> float:
    """Mean time between failures or assists: RMST(tau) / (1 - F(tau)); infinite when nothing failed by tau."""
    missing = 1.0 - float(curve.at(tau_s))
    return rmst(curve, tau_s) / missing if missing > 1e-12 else float('inf')


def completion(curve: SuccessCurve, tau_s: float) -> float:
    """Completion fraction: F at the episode's time budget."""
    check_tau(tau_s)
    return float(curve.at(tau_s))


@dataclass(frozen=True, slots=True)
class Scale:
    """The times that scores are asked at, in seconds."""

    tau_s: float = 240.0
    episode_tau_s: float | None = None  # the protocol's time budget; tau_s when not given
    thresholds_s: tuple[float, ...] = (30.0, 60.0)
    levels: tuple[float, ...] = (0.25, 0.5, 0.75)
    taus_s: Mapping[str, float] | None = None  # one per stratum, instead of tau_s

    def __post_init__(self) -> None:
        for value in (self.tau_s, self.budget_s, *self.thresholds_s, *(self.taus_s or {}).values()):
            check_tau(value)
        for level in self.levels:
            check_open_unit('levels', level)

    def at(self, stratum: str) -> Scale:
        """The scale of one stratum."""
        if self.taus_s is None:
            return self
        return replace(self, tau_s=tau_of(self.taus_s, stratum), taus_s=None)

    @property
    def tau_by_stratum(self) -> float | Mapping[str, float]:
        return self.tau_s if self.taus_s is None else self.taus_s

    @property
    def budget_by_stratum(self) -> float | Mapping[str, float]:
        return self.tau_by_stratum if self.episode_tau_s is None else self.episode_tau_s

    @property
    def budget_s(self) -> float:
        return self.tau_s if self.episode_tau_s is None else self.episode_tau_s


@dataclass(frozen=True, slots=True, eq=False)
class CohortScore:
    """Every scalar of one policy: in each cell, macro-averaged over cells, and with all strata pooled ("global")."""

    policy: str
    is_reference: bool
    cells: Mapping[str, Mapping[str, Estimate]]
    macro: Mapping[str, Estimate]
    pooled: Mapping[str, Estimate]
    n_episodes: int
    n_invalid: int
    n_safety_stops: int

    @property
    def intervention_rate(self) -> float:
        """Safety stops over valid episodes."""
        return self.n_safety_stops / self.n_episodes

    @property
    def intervention_interval(self) -> Interval:
        return wilson(self.n_safety_stops, self.n_episodes)


def cell_statistics(cell: ResampledCell, scale: Scale) -> dict[str, Draws]:
    """Name -> statistic for one cell, all on the same resampled episodes."""
    mean_s, at_tau, moment, plateau, *quantiles = cell.scalars(scale.tau_s, scale.levels)
    budget_rmst, done = mean_s, at_tau
    if scale.budget_s != scale.tau_s:
        budget_rmst, done, moment, *_ = cell.scalars(scale.budget_s)
    named = {'rmst_s': mean_s}
    named |= {f'chance_{t:g}s': f for t, f in zip(scale.thresholds_s, cell.chances(scale.thresholds_s), strict=True)}
    named |= {_quantile_name(q): d for q, d in zip(scale.levels, quantiles, strict=True)}
    return named | {
        'uph_of_successes': jointly(lambda f, m: SECONDS_AN_HOUR * f / m, [done, moment]),
        'uph_of_rmst': jointly(lambda r: SECONDS_AN_HOUR / r, [budget_rmst]),
        'completion': done,
        'mtbf_s': jointly(lambda r, f: r / _positive(1.0 - f), [budget_rmst, done]),
        'missing_at_tau': jointly(lambda f: 1.0 - f, [at_tau]),
        'hard_failure': jointly(lambda p: 1.0 - p, [plateau]),
    }


def _positive(missing: FloatArray) -> FloatArray:
    """Rounding residue becomes 0, so that a time between no failures is infinite."""
    return np.where(missing > 1e-12, missing, 0.0)


def _quantile_name(level: float) -> str:
    return 'median_s' if level == 0.5 else f'quantile_{level:g}_s'


def describe(name: str, sample: Draws, cells: Sequence[Operations], *, level: float) -> Estimate:
    """The statistic as an Estimate; what these cells can't answer is absent with the reason."""
    seen = sum(int(c.observed.sum()) for c in cells)
    if name == 'hard_failure' and any(not c.observed.any() for c in cells):
        return absent_estimate('every operation is censored: no end was seen')
    if name.startswith(('median', 'quantile')) and np.isinf(sample.value):
        return absent_estimate(NOT_REACHED)
    if name == 'uph_of_successes' and np.isnan(sample.value):
        return absent_estimate('no success within the time budget')
    return estimate(sample, level=level, note='' if seen else 'no success or hard failure was seen: all censored')


def _of_pooled(scale: Scale) -> Scale:
    """All strata as one cell are judged up to the smallest of their times."""
    return scale if scale.taus_s is None else replace(scale, tau_s=min(scale.taus_s.values()), taus_s=None)


def _described(
    found: Mapping[str, Draws], cells: Mapping[str, Operations], scale: Scale, level: float
) -> dict[str, Estimate]:
    every = list(cells.values())
    described = {name: describe(name, sample, every, level=level) for name, sample in found.items()}
    return {name: _with_rule(name, e, cells, scale, level) for name, e in described.items()}


def _with_rule(name: str, found: Estimate, cells: Mapping[str, Operations], scale: Scale, level: float) -> Estimate:
    """The estimate with the interval that covers from three units per cell on, where there is one for this scalar."""
    if found.value is None:
        return found
    asked: dict[str, tuple[Endpoint, float | Mapping[str, float]]] = {
        'rmst_s': (Endpoint.RMST, scale.tau_by_stratum),
        'completion': (Endpoint.CHANCE, scale.budget_by_stratum),
        'missing_at_tau': (Endpoint.CHANCE, scale.tau_by_stratum),
        'hard_failure': (Endpoint.HARD_FAILURE, scale.tau_by_stratum),
    }
    if name.startswith('chance_'):
        asked[name] = Endpoint.CHANCE, float(name.removeprefix('chance_').removesuffix('s'))
    if name not in asked:
        return found
    endpoint, tau_s = asked[name]
    judged = endpoint_estimate(cells, tau_s=tau_s, endpoint=endpoint, level=level)
    interval = judged.interval
    if interval is not None and name == 'missing_at_tau':
        interval = Interval(1.0 - interval.high, 1.0 - interval.low)
    note = found.note if interval is not None and not found.note.startswith('no interval') else judged.withheld
    return replace(found, interval=interval, note=note, n=judged.n_units)


def score_cohort(
    cohort: Cohort, *, scale: Scale | None = None, n_resamples: int = 1000, rng: np.random.Generator,
    level: float = 0.95, threads: int | None = None,
) -> CohortScore:  # fmt: skip
    """All of Table 1 for one policy, in each stratum, macro and pooled, with intervals clustered by units."""
    times = scale or Scale()
    pooled = cohort.pooled
    own = resampled_cells(cohort.cells, n_resamples=n_resamples, rng=rng, threads=threads)
    whole = resampled_cells({'': pooled}, n_resamples=n_resamples, rng=rng, threads=threads)['']
    statistics = {name: cell_statistics(cell, times.at(name)) for name, cell in own.items()}
    names = next(iter(statistics.values()))
    macro = {n: macro_mean([found[n] for found in statistics.values()]) for n in names}
    budget_rmst = macro_mean([cell.rmst(times.at(name).budget_s) for name, cell in own.items()])
    # A ratio of means: the mean of ratios is infinite as soon as one stratum has no failure.
    macro['mtbf_s'] = jointly(lambda r, f: r / _positive(1.0 - f), [budget_rmst, macro['completion']])
    n_episodes = cohort.n_episodes
    return CohortScore(
        policy=cohort.policy,
        is_reference=cohort.is_reference,
        cells={
            stratum: _described(found, {stratum: cohort.cells[stratum]}, times, level)
            for stratum, found in statistics.items()
        },
        macro=_described(macro, cohort.cells, times, level),
        pooled=_described(cell_statistics(whole, _of_pooled(times)), {'': pooled}, _of_pooled(times), level),
        n_episodes=n_episodes,
        n_invalid=len(cohort.episodes) - n_episodes,
        n_safety_stops=cohort.n_safety_stops,
    )
