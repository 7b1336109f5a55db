"""The scalars of Table 1 as functionals of the curve, per cell, macro-averaged and pooled, with intervals.

Against a reference: human-relative throughput (HRT) and AUC = P(T < T_reference).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar, cast

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.better import endpoint_estimate, hrt_estimate
from robotrials.measure.timing.curve import Cohort, Endpoint, SuccessCurve, check_tau, rmst, tau_of
from robotrials.measure.timing.operation import FloatArray, IntArray, Operations
from robotrials.measure.timing.resample import (
    FIRST_QUANTILE,
    RMST,
    SortedCell,
    auc_jackknife,
    curve_draws,
    pair_layout,
    scalar_draws,
    scalar_jackknife,
    sort_cell,
    spread,
    stream_seed,
)
from robotrials.stats import Estimate, Interval, RatioKind, UnseenRule, absent_estimate, bootstrap_interval
from robotrials.stats.interval import FEWEST_PER_CELL, Spread, check_count, check_open_unit
from robotrials.value import dataclass

# Estimates with episode-clustered bootstrap intervals, and how they combine: macro means, ratios, differences.

Kept = TypeVar('Kept')


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """A statistic: its value, its bootstrap draws, and its values with each episode left out (grouped by cell)."""

    value: float
    draws: FloatArray  # (B,)
    left_out: FloatArray  # (M,)
    group: IntArray  # (M,)


def combine(function: Callable[..., Any], parts: Sequence[Draws]) -> Draws:
    """`function` of independent statistics: draws go in parallel, one episode of one part is left out at a time."""
    values = [p.value for p in parts]
    left, group, start = [], [], 0
    with np.errstate(divide='ignore', invalid='ignore'):
        for i, part in enumerate(parts):
            left.append(np.broadcast_to(function(*values[:i], part.left_out, *values[i + 1 :]), part.left_out.shape))
            group.append(part.group + start)
            start += int(part.group.max(initial=-1)) + 1
        value = float(function(*(np.float64(v) for v in values)))
        draws = np.asarray(function(*(p.draws for p in parts)), dtype=np.float64)
    return Draws(value, draws, np.concatenate(left), np.concatenate(group))


def jointly(function: Callable[..., Any], parts: Sequence[Draws]) -> Draws:
    """`function` of several statistics of one cell: they are resampled, and their episodes left out, together."""
    with np.errstate(divide='ignore', invalid='ignore'):
        return Draws(
            float(function(*(np.float64(p.value) for p in parts))),
            np.asarray(function(*(p.draws for p in parts)), dtype=np.float64),
            np.asarray(function(*(p.left_out for p in parts)), dtype=np.float64),
            parts[0].group,
        )


def macro_mean(parts: Sequence[Draws]) -> Draws:
    """The equal-weight mean of the strata's statistics."""
    if not parts:
        raise NotEstimable('no stratum was given: there is no mean of nothing')
    n = len(parts)
    values = np.array([p.value for p in parts])
    starts = np.cumsum([0, *(int(p.group.max(initial=-1)) + 1 for p in parts)])
    with np.errstate(invalid='ignore'):
        # Sums before and after each part, since a value that is infinite cannot be taken off the total.
        others = np.cumsum([0.0, *values[:-1]]) + np.cumsum([0.0, *values[:0:-1]])[::-1]
        left = [(other + p.left_out) / n for other, p in zip(others, parts, strict=True)]
        draws = np.sum([p.draws for p in parts], axis=0) / n
    return Draws(
        value=float(values.sum() / n),
        draws=np.asarray(draws, dtype=np.float64),
        left_out=np.concatenate(left),
        group=np.concatenate([p.group + start for p, start in zip(parts, starts[:-1], strict=True)]),
    )


def ratio(a: Draws, b: Draws) -> Draws:
    return combine(lambda x, y: x / y, [a, b])


def estimate(sample: Draws, *, level: float = 0.95, note: str = '') -> Estimate:
    """Value and both intervals; an interval that the data cannot give is None."""
    if np.isnan(sample.value):
        return absent_estimate(note or 'not estimable from these data')
    if len(sample.left_out) <= np.count_nonzero(np.bincount(sample.group)):
        return Estimate(sample.value, note=note or 'no interval: one episode per stratum does not vary')
    sample = Draws(sample.value, np.sort(sample.draws), sample.left_out, sample.group)
    intervals: list[Interval | None] = []
    for method in ('percentile', 'bca'):
        try:
            intervals.append(_interval(sample, level=level, method=method))
        except NotEstimable:
            intervals.append(None)
    if intervals[0] is None and not note:
        note = 'no interval: some resamples do not have this statistic'
    percentile, bca = intervals
    default = percentile
    if percentile is not None and percentile.width == 0:
        default, note = None, note or 'no interval: every resample gave the same value, which proves nothing'
    return Estimate(sample.value, default, note, percentile=percentile, bca=bca)


def _interval(sample: Draws, *, level: float, method: str) -> Interval:
    if method == 'percentile':
        return bootstrap_interval(sample.value, sample.draws, level=level, method='percentile')
    if sample.draws[0] == sample.draws[-1] == sample.value:
        return Interval(sample.value, sample.value)
    strata = sample.group if sample.group.any() else None
    return bootstrap_interval(
        sample.value, sample.draws, level=level, method='bca', jackknife=sample.left_out, strata=strata
    )


@dataclass(frozen=True, slots=True, eq=False)
class ResampledCell:
    """A cell with its own random stream: every statistic asked of it sees the same resampled episodes."""

    sorted: SortedCell
    seed: np.uint64
    n_resamples: int
    threads: int | None = None
    kept: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)  # what was worked out already

    def once(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """What `make` gives, worked out the first time that `key` is asked for."""
        if key not in self.kept:
            self.kept[key] = make()
        return cast('Kept', self.kept[key])

    def scalars(self, tau_s: float, levels: Sequence[float] = ()) -> tuple[Draws, ...]:
        """RMST, F(tau), integral of t dF, plateau, and one quantile per level (infinite where it is not reached)."""
        return self.once(('scalars', tau_s, tuple(levels)), lambda: self._scalars(tau_s, levels))

    def _scalars(self, tau_s: float, levels: Sequence[float]) -> tuple[Draws, ...]:
        asked = sorted(levels)
        draws = scalar_draws(
            self.sorted, n_resamples=self.n_resamples, seed=self.seed, tau_s=tau_s, levels=asked, threads=self.threads
        )
        left = scalar_jackknife(self.sorted, tau_s=tau_s, levels=asked)
        for table in (draws, left):
            quantiles = table[:, FIRST_QUANTILE:]
            quantiles[np.isnan(quantiles)] = np.inf
        return tuple(
            Draws(float(left[-1, k]), draws[:, k], left[:-1, k], np.zeros(len(left) - 1, dtype=np.int64))
            for k in (*range(FIRST_QUANTILE), *(FIRST_QUANTILE + asked.index(level) for level in levels))
        )

    def rmst(self, tau_s: float) -> Draws:
        return self.scalars(tau_s)[RMST]

    def chances(self, times_s: Sequence[float]) -> tuple[Draws, ...]:
        """F at each of some times; none for none."""
        return self.once(('chances', tuple(times_s)), lambda: self._chances(times_s))

    def _chances(self, times_s: Sequence[float]) -> tuple[Draws, ...]:
        if not len(times_s):
            return ()
        grid = np.sort(np.asarray(times_s, dtype=np.float64))
        draws = curve_draws(self.sorted, grid, n_resamples=self.n_resamples, seed=self.seed, threads=self.threads)
        left = np.stack([scalar_jackknife(self.sorted, tau_s=float(t))[:, 1] for t in grid], axis=1)
        zeros = np.zeros(len(left) - 1, dtype=np.int64)
        chances = {t: Draws(float(left[-1, k]), draws[:, k], left[:-1, k], zeros) for k, t in enumerate(grid.tolist())}
        return tuple(chances[float(t)] for t in times_s)


def resampled_cells(
    cells: Mapping[str, Operations], *, n_resamples: int, rng: np.random.Generator, threads: int | None = None
) -> dict[str, ResampledCell]:
    """Each stratum's cell with a stream of its own, drawn from `rng` in the mapping's order."""
    n_resamples = check_count('n_resamples', n_resamples, least=1)
    return {
        name: ResampledCell(sort_cell(cell), stream_seed(rng), n_resamples, threads) for name, cell in cells.items()
    }


SECONDS_AN_HOUR = 3600.0
NOT_REACHED = 'not reached'
ALL_CENSORED = 'no success or hard failure was seen: all censored'


LABELS = {
    'rmst_s': 'RMST',
    'uph_of_successes': 'UPH of successes',
    'uph_of_rmst': 'UPH of RMST',
    'completion': 'share done within the budget',
    'chance_tau': 'share done within tau',
    'mtbf_s': 'MTBF/A',
    'missing_at_tau': 'share not done by tau',
    'hard_failure': 'hard failure',
    'median_s': 'median',
    'hrt': 'HRT',
    'auc_vs_reference': 'AUC vs reference',
    'auc_between': 'pairwise AUC',
}


def scalar_label(name: str) -> str:
    """What people call the scalar of this name, in sentences and at the head of table rows."""
    if name.startswith('chance_') and name not in LABELS:
        return f'share done within {name.removeprefix("chance_").removesuffix("s")} s'
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
    """The statistic as an Estimate; what these cells cannot answer is absent with the reason."""
    seen = sum(int(c.observed.sum()) for c in cells)
    if name == 'hard_failure' and any(not c.observed.any() for c in cells):
        return absent_estimate('every operation is censored: no end was seen')
    if name.startswith(('median', 'quantile')) and np.isinf(sample.value):
        return absent_estimate(NOT_REACHED)
    if name == 'uph_of_successes' and np.isnan(sample.value):
        return absent_estimate('no success within the time budget')
    return estimate(sample, level=level, note='' if seen else ALL_CENSORED)


def _of_pooled(scale: Scale) -> Scale:
    """All strata as one cell are judged up to the smallest of their times."""
    return scale if scale.taus_s is None else replace(scale, tau_s=min(scale.taus_s.values()), taus_s=None)


def _described(
    statistics: Mapping[str, Draws], cells: Mapping[str, Operations], scale: Scale, level: float
) -> dict[str, Estimate]:
    every = list(cells.values())
    described = {name: describe(name, sample, every, level=level) for name, sample in statistics.items()}
    return {name: _with_rule(name, e, cells, scale, level) for name, e in described.items()}


def _with_rule(name: str, estimate: Estimate, cells: Mapping[str, Operations], scale: Scale, level: float) -> Estimate:
    """The estimate with the interval that covers from three units per cell on, where there is one for this scalar."""
    if estimate.value is None:
        return estimate
    asked: dict[str, tuple[Endpoint, float | Mapping[str, float]]] = {
        'rmst_s': (Endpoint.RMST, scale.tau_by_stratum),
        'completion': (Endpoint.CHANCE, scale.budget_by_stratum),
        'missing_at_tau': (Endpoint.CHANCE, scale.tau_by_stratum),
        'hard_failure': (Endpoint.HARD_FAILURE, scale.tau_by_stratum),
    }
    if name.startswith('chance_'):
        asked[name] = Endpoint.CHANCE, float(name.removeprefix('chance_').removesuffix('s'))
    if name not in asked:
        return estimate
    endpoint, tau_s = asked[name]
    judged = endpoint_estimate(cells, tau_s=tau_s, endpoint=endpoint, level=level)
    interval = judged.interval
    if interval is not None and name == 'missing_at_tau':
        interval = interval.scaled(-1.0).shifted(1.0)
    note = estimate.note if interval is not None and not estimate.note.startswith('no interval') else judged.withheld
    return replace(estimate, interval=interval, note=note, n=judged.n_units)


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
    macro = {n: macro_mean([sample[n] for sample in statistics.values()]) for n in names}
    budget_rmst = macro_mean([cell.rmst(times.at(name).budget_s) for name, cell in own.items()])
    # A ratio of means: the mean of ratios is infinite as soon as one stratum has no failure.
    macro['mtbf_s'] = jointly(lambda r, f: r / _positive(1.0 - f), [budget_rmst, macro['completion']])
    n_episodes = cohort.n_episodes
    return CohortScore(
        policy=cohort.policy,
        is_reference=cohort.is_reference,
        cells={
            stratum: _described(sample, {stratum: cohort.cells[stratum]}, times, level)
            for stratum, sample in statistics.items()
        },
        macro=_described(macro, cohort.cells, times, level),
        pooled=_described(cell_statistics(whole, _of_pooled(times)), {'': pooled}, _of_pooled(times), level),
        n_episodes=n_episodes,
        n_invalid=len(cohort.episodes) - n_episodes,
        n_safety_stops=cohort.n_safety_stops,
    )


def mean_time(cohort: Cohort, *, scale: Scale | None = None, level: float = 0.95) -> Estimate:
    """The macro RMST as `score_cohort` gives it but for the intervals of resampling: its own comes from the rule."""
    times = scale or Scale()
    curves = [scalar_jackknife(sort_cell(c), tau_s=times.at(s).tau_s)[-1] for s, c in cohort.cells.items()]
    if not curves:
        raise NotEstimable(f'{cohort.policy}: no stratum has an operation, so there is no mean of times')
    value = float(np.array([whole[RMST] for whole in curves]).sum() / len(curves))
    seen = any(c.observed.any() for c in cohort.cells.values())
    return _with_rule('rmst_s', Estimate(value, note='' if seen else ALL_CENSORED), cohort.cells, times, level)


@dataclass(frozen=True, slots=True, eq=False)
class RelativeScore:
    """A scalar against the reference: macro over the strata both have, and in each of them."""

    macro: Estimate
    per_stratum: Mapping[str, Estimate]
    dropped: tuple[str, ...]  # strata that only one of the two has, left out
    rows: Mapping[str, Estimate] = field(default_factory=dict)  # further readings of a ratio, by name

    @property
    def value(self) -> float | None:
        return self.macro.value


def check_cells(cells: object) -> None:
    """Raise InputError unless this maps strata to Operations."""
    if isinstance(cells, Operations):
        raise InputError("wanted stratum -> Operations, found Operations alone; for a single cell pass {'all': them}")
    if not isinstance(cells, Mapping):
        raise InputError(
            f'wanted a mapping of stratum -> Operations, found {type(cells).__name__}; '
            'operations_by_stratum(episodes) and Cohort.cells are such mappings'
        )
    for stratum, cell in cells.items():
        if not isinstance(cell, Operations):
            raise InputError(f'stratum {stratum!r} holds {type(cell).__name__}, wanted Operations')


def shared_strata(
    a: Mapping[str, Operations], b: Mapping[str, Operations], *, missing: str = 'refuse'
) -> tuple[dict[str, Operations], dict[str, Operations], tuple[str, ...]]:
    """Strata with operations in both, of a and of b, in a's order; those in only one are refused, or dropped."""
    for cells in (a, b):
        check_cells(cells)
    filled = [{s for s, cell in cells.items() if cell.n_operations} for cells in (a, b)]
    shared = [s for s in a if s in filled[0] & filled[1]]
    lonely = tuple(sorted((set(a) | set(b)) - set(shared)))
    if missing not in ('refuse', 'drop'):
        raise InputError(f"missing is {missing!r}, wanted 'refuse' or 'drop'")
    if not shared:
        raise InputError(
            f'no stratum has operations of both; first: {sorted(filled[0])}, second: {sorted(filled[1])}. Run both on '
            'the same strata, or give them one name (--map stratum=COLUMN at import)'
        )
    if lonely and missing == 'refuse':
        raise InputError(
            f'strata with operations of only one of the two: {", ".join(lonely)}; run them, or leave them out with '
            '--drop (missing="drop" in Python)'
        )
    return {s: a[s] for s in shared}, {s: b[s] for s in shared}, lonely


def hrt(
    model: Mapping[str, Operations], reference: Mapping[str, Operations], *, tau_s: float | Mapping[str, float] = 240.0,
    n_resamples: int = 1000, rng: np.random.Generator, level: float = 0.95, missing: str = 'refuse',
    threads: int | None = None,
) -> RelativeScore:  # fmt: skip
    """Human-relative throughput: RMST_reference / RMST_model in each stratum, then their equal-weight mean.

    A fraction, not a percentage. Both sides vary. `rows` of the result has two more readings by name: the ratio of the
    macro means, and the mean of ratios with the reference taken as fixed, whose unseen failures are most of the width.
    """
    shared, anchor, dropped = shared_strata(model, reference, missing=missing)
    for stratum in shared:
        check_tau(tau_of(tau_s, stratum))
    ours, theirs = (
        resampled_cells(cells, n_resamples=n_resamples, rng=rng, threads=threads) for cells in (shared, anchor)
    )
    per = {s: hrt_draws(ours[s], theirs[s], tau_of(tau_s, s)) for s in shared}
    relative = _relative(per, dropped, level)
    return RelativeScore(
        macro=_judged(relative.macro, shared, reference, tau_s, level),
        per_stratum={s: _judged(e, {s: model[s]}, reference, tau_s, level) for s, e in relative.per_stratum.items()},
        dropped=dropped,
        rows={
            kind.value: _judged(relative.macro, shared, reference, tau_s, level, kind)
            for kind in (RatioKind.RATIO_OF_MEANS, RatioKind.FIXED_REFERENCE)
        },
    )


def _judged(
    plain: Estimate, model: Mapping[str, Operations], reference: Mapping[str, Operations],
    tau_s: float | Mapping[str, float], level: float, kind: RatioKind = RatioKind.MEAN_OF_RATIOS,
) -> Estimate:  # fmt: skip
    """The ratio with the rule's interval, or why there is none."""
    judged = hrt_estimate(model, reference, tau_s=tau_s, level=level, kind=kind)
    value = judged.value if kind is RatioKind.RATIO_OF_MEANS else plain.value
    return replace(plain, value=value, interval=judged.interval, n=judged.n_units, note=judged.withheld)


def hrt_draws(model: ResampledCell, reference: ResampledCell, tau_s: float) -> Draws:
    """One cell's ratio of restricted means."""
    return ratio(reference.rmst(tau_s), model.rmst(tau_s))


def curve_auc(a: SuccessCurve, b: SuccessCurve, *, tau_s: float | None = None) -> float:
    """P(Ta < Tb) + P(Ta = Tb)/2 from two curves; AUC(a, b) + AUC(b, a) = 1.

    Mass beyond the horizon is tied: beyond tau_s, or beyond the first time from which either curve is unknown.
    """
    horizon = min(np.inf if tau_s is None else tau_s, a.followed_to_s, b.followed_to_s)
    times = np.union1d(a.times_s, b.times_s)
    times = times[times <= horizon]
    fa, fb = (np.concatenate([[0.0], np.atleast_1d(c.at(times))]) for c in (a, b))
    won = np.diff(fa) * (1.0 - fb[1:] + np.diff(fb) / 2)
    return float(won.sum() + (1.0 - fa[-1]) * (1.0 - fb[-1]) / 2)


def auc(
    model: Mapping[str, Operations], reference: Mapping[str, Operations], *,
    tau_s: float | Mapping[str, float] | None = None,
    n_resamples: int = 1000, rng: np.random.Generator, level: float = 0.95, missing: str = 'refuse',
    threads: int | None = None,
) -> RelativeScore:  # fmt: skip
    """P(T_model < T_reference) with ties halved, infinity tied with infinity: per stratum, and their mean."""
    shared, anchor, dropped = shared_strata(model, reference, missing=missing)
    if tau_s is not None:
        for stratum in shared:
            check_tau(tau_of(tau_s, stratum))
    ours, theirs = (
        resampled_cells(cells, n_resamples=n_resamples, rng=rng, threads=threads) for cells in (shared, anchor)
    )
    per = {
        s: auc_draws(model[s], reference[s], seeds=(ours[s].seed, theirs[s].seed),
                     tau_s=None if tau_s is None else tau_of(tau_s, s), n_resamples=n_resamples, threads=threads)
        for s in shared
    }  # fmt: skip
    relative = _relative(per, dropped, level)
    return replace(
        relative,
        macro=_compared(relative.macro, list(per.values()), level),
        per_stratum={s: _compared(e, [per[s]], level) for s, e in relative.per_stratum.items()},
    )


def _compared(plain: Estimate, parts: Sequence[Draws], level: float) -> Estimate:
    """An AUC with the interval of R: resampling 3 to 5 episodes per cell does not cover."""
    if plain.value is None:
        return plain
    terms, dof, sizes = [], [], []
    for part in parts:
        for arm in (0, 1):
            left = part.left_out[part.group == arm]
            n = len(left)
            if n < FEWEST_PER_CELL:
                note = f'{n} episodes in a cell; at least {FEWEST_PER_CELL} are needed'
                return replace(plain, interval=None, note=note)
            terms.append((n - 1) / n * float(np.sum((left - left.mean()) ** 2)))
            dof.append(n - 1.0)
            sizes.append(n)
    rule = UnseenRule(
        plain.value, Spread(np.array(terms) / len(parts) ** 2, np.array(dof)), len(parts) * min(sizes), 0.5
    )
    return replace(plain, interval=rule.interval(level, low=0.0, high=1.0))


def _relative(per: Mapping[str, Draws], dropped: tuple[str, ...], level: float) -> RelativeScore:
    return RelativeScore(
        macro=estimate(macro_mean(list(per.values())), level=level),
        per_stratum={s: estimate(d, level=level) for s, d in per.items()},
        dropped=dropped,
    )


def auc_draws(
    a: Operations, b: Operations, *, seeds: tuple[np.uint64, np.uint64], tau_s: float | None, n_resamples: int,
    threads: int | None = None,
) -> Draws:  # fmt: skip
    """One cell's AUC with its bootstrap draws and jackknife; each side resampled by its own seed."""
    from robotrials.measure.timing import kernel

    layout = pair_layout({'': a}, {'': b}, tau_s=tau_s)
    arrays = (layout.rank, layout.cluster, layout.event)
    n_a, n = a.n_episodes, a.n_episodes + b.n_episodes
    draws = np.empty(n_resamples)

    def work(start: int, stop: int) -> None:
        kernel.bootstrap_auc(*arrays, layout.sizes, n_a, *seeds, start, draws[start:stop])

    spread(n_resamples, work, steps_a_row=len(layout.times_s), threads=threads)
    left = auc_jackknife(layout)
    return Draws(float(left[-1]), draws, left[:-1], (np.arange(n) >= n_a).astype(np.int64))
