"""Power of the macro-KS test, and the episodes per cell that a resolved comparison needs (PhAIL, 5.2 and H)."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.timing.curve import Cohort, check_tau, find_cohort
from robotrials.measure.timing.curve_test import TIE_SLACK, PValueRule, macro_ks_trials, match_scenes
from robotrials.measure.timing.incidence import check_label, label_reader
from robotrials.measure.timing.operation import FloatArray, IntArray, Operations, stratum_of
from robotrials.measure.timing.resample import (
    NullMethod,
    PairLayout,
    contrast_trials,
    curve_draws,
    ks_trials,
    pair_layout,
    sort_cell,
    stream_seed,
)
from robotrials.measure.timing.scalar import shared_strata
from robotrials.stats import Interval, wilson
from robotrials.stats.sample_size import search_size
from robotrials.verdict.planning.bridge import Bridges, Cell, StratumModel, simulate_bridges, stratum_models
from robotrials.verdict.planning.rule_power import AssumedCell, assumed_operations

KS, RMST = 'ks', 'rmst_s'
METRICS = (KS, RMST, 'chance_30s', 'chance_60s')
DETECTION_PER_CELL = (5, 10, 15, 20, 25, 30)
TRIALS_AT_ONCE = 2_000
ASSUMED_EPISODES = 3000


@dataclass(frozen=True, slots=True)
class DetectionRow:
    """One test of one pair at one N: in how many of the simulated trials it rejected, and in how many under a null.

    The matched null deals the episodes of both policies anew into two pilots of the same sizes and resamples those: a
    pilot's own noise is taken for an effect there too, so that a rate says something only beyond its null rate.
    """

    policy_a: str
    policy_b: str
    metric: str
    per_cell: int
    n_detected: int
    n_trials: int
    n_null: int = 0

    @property
    def rate(self) -> float:
        return self.n_detected / self.n_trials

    @property
    def null_rate(self) -> float:
        """How often the test rejects where both pilots come from one policy."""
        return self.n_null / self.n_trials

    @property
    def interval(self) -> Interval:
        """The Monte-Carlo (Wilson) 95 % interval of the rate."""
        return wilson(self.n_detected, self.n_trials)


@dataclass(frozen=True, slots=True)
class DetectionStudy:
    """Every (pair, test, N) and its detection rate."""

    rows: tuple[DetectionRow, ...]
    tau_s: float
    alpha: float
    n_resamples: int
    method: NullMethod
    rule: PValueRule

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple(dict.fromkeys((r.policy_a, r.policy_b) for r in self.rows))

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(r.metric for r in self.rows))

    def rates(self, pair: tuple[str, str], metric: str) -> dict[int, float]:
        """N -> rate of one test on one pair."""
        by_size = {r.per_cell: r.rate for r in self.rows if (r.policy_a, r.policy_b) == pair and r.metric == metric}
        if not by_size:
            raise UnknownName('pair and metric', f'{pair} {metric}', [f'{p} {m}' for p in self.pairs for m in METRICS])
        return by_size

    def smallest(self, pair: tuple[str, str], metric: str, *, target: float = 0.8) -> int | None:
        """The smallest N of the grid with a rate of at least `target`; None when none has it."""
        return min((n for n, rate in self.rates(pair, metric).items() if rate >= target), default=None)

    def null_rates(self, pair: tuple[str, str], metric: str) -> dict[int, float]:
        """N -> rate of one test on one pair under its matched null."""
        return {r.per_cell: r.null_rate for r in self.rows if (r.policy_a, r.policy_b) == pair and r.metric == metric}

    def mean_rate(self, metric: str, per_cell: int) -> float:
        """The rate at one N averaged over pairs."""
        return float(np.mean([self.rates(pair, metric)[per_cell] for pair in self.pairs]))


def detection_rate(
    policies: Mapping[str, Mapping[str, Cell]], *, rng: np.random.Generator,
    per_cell: Sequence[int] = DETECTION_PER_CELL,
    pairs: Sequence[tuple[str, str]] | None = None, metrics: Sequence[str] = METRICS, tau_s: float = 120.0,
    n_trials: int = 300, n_resamples: int = 200, alpha: float = 0.05,
    method: NullMethod | str = NullMethod.PERMUTATION, rule: PValueRule | str = PValueRule.PLUS_ONE,
    missing: str = 'refuse', threads: int | None = None, on_row: Callable[[int, int], None] | None = None,
) -> DetectionStudy:  # fmt: skip
    """How often each test rejects, for every pair and every N of episodes per cell.

    `policies` maps policy -> stratum -> Operations (a pilot: each trial draws N of its episodes per cell with
    replacement) or AssumedCell (no pilot: episodes are drawn from the assumed curves). Metrics are 'ks', 'rmst_s' and
    'chance_<t>s' for any t; RMST is up to tau_s and KS looks no further. Each trial tests all metrics on the same
    resamples, macro-averaged over strata. The same seed gives the same study, whatever the number of threads.
    """
    check_tau(tau_s)
    method, rule = NullMethod(method), PValueRule(rule)
    if method is NullMethod.PAIRED_SWAP:
        raise InputError('paired_swap needs matched scenes, which drawing episodes one by one breaks up')
    thresholds = _thresholds(metrics)
    sizes = _check_counts(per_cell, n_trials=n_trials, n_resamples=n_resamples, alpha=alpha)
    chosen = _check_pairs(policies, pairs)
    rows: list[DetectionRow] = []
    for a, b in chosen:
        layout = _pair(policies[a], policies[b], missing=missing, tau_s=max([tau_s, *thresholds]), rng=rng)
        for n in sizes:
            counts, null = (
                _detected(
                    layout, n, metrics=metrics, thresholds=thresholds, tau_s=tau_s, n_trials=n_trials,
                    n_resamples=n_resamples, alpha=alpha, method=method, rule=rule, rng=rng, threads=threads,
                    is_null=is_null,
                )
                for is_null in (False, True)
            )  # fmt: skip
            rows += [
                DetectionRow(a, b, m, n, int(c), n_trials, int(k))
                for m, c, k in zip(metrics, counts, null, strict=True)
            ]
            if on_row is not None:
                on_row(len(rows) // len(metrics), len(chosen) * len(sizes))
    return DetectionStudy(tuple(rows), tau_s, alpha, n_resamples, method, rule)


def threshold_of(metric: str) -> float | None:
    """The time of a 'chance_<t>s' metric; None for KS and RMST."""
    if metric in (KS, RMST):
        return None
    try:
        value = float(metric.removeprefix('chance_').removesuffix('s'))
    except ValueError:
        raise UnknownName('metric', metric, METRICS) from None
    check_tau(value)
    return value


def _thresholds(metrics: Sequence[str]) -> list[float]:
    if not metrics or len(set(metrics)) < len(metrics):
        raise InputError(f'metrics is {list(metrics)}, wanted at least one and none twice')
    return sorted({t for t in map(threshold_of, metrics) if t is not None})


def _check_counts(per_cell: Sequence[int], *, n_trials: int, n_resamples: int, alpha: float) -> list[int]:
    if not 0 < alpha < 1:
        raise InputError(f'alpha is {alpha}, wanted a number between 0 and 1')
    if n_trials < 1 or n_resamples < 1:
        raise InputError(f'n_trials is {n_trials} and n_resamples {n_resamples}, wanted at least 1 of each')
    if not per_cell or any(n < 2 for n in per_cell):
        raise InputError(f'per_cell is {list(per_cell)}, wanted numbers of episodes >= 2')
    if math.floor(alpha * (n_resamples + 1) + TIE_SLACK) < 1:
        raise InputError(f'{n_resamples} resamples give no p-value as small as {alpha:g}; take {math.ceil(1 / alpha)}')
    return sorted({int(n) for n in per_cell})


def _check_pairs(
    policies: Mapping[str, Mapping[str, Cell]], pairs: Sequence[tuple[str, str]] | None
) -> list[tuple[str, str]]:
    for name in {n for pair in pairs or () for n in pair}:
        if name not in policies:
            raise UnknownName('policy', name, policies)
    chosen = list(itertools.combinations(policies, 2)) if pairs is None else list(pairs)
    if not chosen:
        raise InputError(f'wanted at least two policies to compare, found {len(policies)}')
    return chosen


def _pair(
    a: Mapping[str, Cell], b: Mapping[str, Cell], *, missing: str, tau_s: float, rng: np.random.Generator
) -> PairLayout:
    first, second = (
        {s: assumed_operations(c, ASSUMED_EPISODES, rng=rng) if isinstance(c, AssumedCell) else c for s, c in x.items()}
        for x in (a, b)
    )
    first, second, _ = shared_strata(first, second, missing=missing)
    return pair_layout(first, second, tau_s=tau_s)


def subsamples(layout: PairLayout, n: int, n_trials: int, *, rng: np.random.Generator) -> NDArray[np.int32]:
    """(trials, strata x 2N): N episodes of each arm in each stratum, drawn with replacement."""
    columns = []
    for n_a, n_b in zip(layout.n_a.tolist(), layout.n_b.tolist(), strict=True):
        columns += [rng.integers(0, n_a, (n_trials, n)), n_a + rng.integers(0, n_b, (n_trials, n))]
    return np.concatenate(columns, axis=1).astype(np.int32)


def null_subsamples(layout: PairLayout, n: int, n_trials: int, *, rng: np.random.Generator) -> NDArray[np.int32]:
    """The same from pilots of the same sizes whose episodes were dealt anew from both policies, trial by trial."""
    drawn = subsamples(layout, n, n_trials, rng=rng)
    for stratum, (n_a, n_b) in enumerate(zip(layout.n_a.tolist(), layout.n_b.tolist(), strict=True)):
        columns = slice(2 * n * stratum, 2 * n * (stratum + 1))
        dealt = rng.permuted(np.tile(np.arange(n_a + n_b, dtype=np.int32), (n_trials, 1)), axis=1)
        drawn[:, columns] = np.take_along_axis(dealt, drawn[:, columns], axis=1)
    return drawn


def _detected(
    layout: PairLayout, n: int, *, metrics: Sequence[str], thresholds: Sequence[float], tau_s: float, n_trials: int,
    n_resamples: int, alpha: float, method: NullMethod, rule: PValueRule, rng: np.random.Generator,
    threads: int | None, is_null: bool,
) -> NDArray[np.int64]:  # fmt: skip
    """Trials in which each metric's p-value is at most alpha, of the pilots as they are or under their matched null."""
    counts = np.zeros(len(metrics), dtype=np.int64)
    sizes = np.full(len(layout.strata), n, dtype=np.int64)
    columns = [_column(m, thresholds) for m in metrics]
    for start in range(0, n_trials, TRIALS_AT_ONCE):
        draw = null_subsamples if is_null else subsamples
        units = draw(layout, n, min(TRIALS_AT_ONCE, n_trials - start), rng=rng)
        seed = stream_seed(rng)
        if columns == [0]:
            seen, null = ks_trials(
                layout, units, n_a=sizes, n_b=sizes, n_resamples=n_resamples, method=method, seed=seed, threads=threads
            )
            seen, null = seen[:, :, None], null[:, :, None]
        else:
            seen, null = contrast_trials(
                layout, units, n_a=sizes, n_b=sizes, n_resamples=n_resamples, method=method, seed=seed, tau_s=tau_s,
                thresholds_s=thresholds, threads=threads,
            )  # fmt: skip
        counts += _rejections(seen.mean(axis=1), null, alpha=alpha, rule=rule)[columns]
    return counts


def _column(metric: str, thresholds: Sequence[float]) -> int:
    at = threshold_of(metric)
    return 2 + list(thresholds).index(at) if at is not None else (0 if metric == KS else 1)


def _rejections(statistic: FloatArray, null: FloatArray, *, alpha: float, rule: PValueRule) -> NDArray[np.int64]:
    exceeding = np.count_nonzero(np.abs(null) >= np.abs(statistic)[:, None, :] - TIE_SLACK, axis=1)
    added = 1 if rule is PValueRule.PLUS_ONE else 0
    p = (exceeding + added) / (null.shape[1] + added)
    return np.asarray(np.count_nonzero(p <= alpha + TIE_SLACK, axis=0), dtype=np.int64)


# Null calibration: does the macro-KS test reject at its nominal rate on data like yours? (PhAIL, Appendix J)

ALPHAS = (0.01, 0.05, 0.10)
LEAST_EPISODES = 30


class NullSetup(enum.StrEnum):
    SAME_POLICY = 'same_policy'  # one policy's episodes halved within each stratum
    REFERENCE = 'reference'  # the same with the reference
    PERMUTATION = 'permutation'  # two policies' labels shuffled within stratum x label


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationRow:
    """One null scenario: its p-values, which should be uniform."""

    setup: NullSetup
    name: str
    p_values: FloatArray  # (trials,)

    @property
    def mean_p(self) -> float:
        return float(self.p_values.mean())

    def rejection(self, alpha: float) -> tuple[float, Interval]:
        """Share of p-values at or below alpha, with its Monte-Carlo (Wilson) interval."""
        count = int(np.count_nonzero(self.p_values <= alpha + 1e-12))
        return count / len(self.p_values), wilson(count, len(self.p_values))


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    rows: tuple[CalibrationRow, ...]
    method: NullMethod
    rule: PValueRule
    n_trials: int
    n_resamples: int
    skipped: tuple[str, ...]  # scenarios that the data do not allow, and why


def null_calibration(
    by_policy: Mapping[str, Cohort], *, rng: np.random.Generator, setups: Iterable[NullSetup | str] = tuple(NullSetup),
    pairs: Sequence[tuple[str, str]] | None = None, label: str | None = None, n_trials: int = 500,
    n_resamples: int = 500, method: NullMethod | str = NullMethod.PERMUTATION,
    rule: PValueRule | str = PValueRule.PLUS_ONE, tau_s: float | None = None, threads: int | None = None,
    on_row: Callable[[int, int], None] | None = None,
) -> Calibration:  # fmt: skip
    """Run the whole test on data in which nothing differs by construction, made from your own episodes.

    `label` refines the permutation blocks (the paper: tote placement); `pairs` default to all pairs of policies;
    `on_row(done, total)` is told of progress.
    """
    method, rule = NullMethod(method), PValueRule(rule)
    if method is NullMethod.PAIRED_SWAP:
        raise InputError('paired_swap has no null splits; calibrate permutation or pooled_bootstrap')
    if n_trials < 1 or n_resamples < 1:
        raise InputError(f'n_trials is {n_trials} and n_resamples {n_resamples}, wanted at least 1 of each')
    wanted = [NullSetup(s) for s in setups]
    if label is not None:
        check_label(by_policy, label)
    rows, skipped = [], []
    scenarios = _scenarios(by_policy, wanted, pairs)
    for done, (setup, name, a, b) in enumerate(scenarios):
        if on_row is not None:
            on_row(done, len(scenarios))
        if a.n_episodes < LEAST_EPISODES:
            skipped.append(f'{name}: {a.n_episodes} episodes, wanted at least {LEAST_EPISODES}')
            continue
        layout, units, n_a, n_b = (
            _halves(a, n_trials, rng, tau_s) if b is None else _shuffles(a, b, label, n_trials, rng, tau_s)
        )
        trials = macro_ks_trials(
            layout, units, n_a=n_a, n_b=n_b, n_resamples=n_resamples, rng=rng, method=method, threads=threads
        )
        rows.append(CalibrationRow(setup, name, trials.p_values(rule)))
    if not rows:
        raise NotEstimable('no scenario could be run: ' + ('; '.join(skipped) or 'no policy matches the setups asked'))
    return Calibration(tuple(rows), method, rule, n_trials, n_resamples, tuple(skipped))


def _scenarios(
    by_policy: Mapping[str, Cohort], setups: Sequence[NullSetup], pairs: Sequence[tuple[str, str]] | None
) -> list[tuple[NullSetup, str, Cohort, Cohort | None]]:
    models = [c for c in by_policy.values() if not c.is_reference]
    listed: list[tuple[NullSetup, str, Cohort, Cohort | None]] = []
    if NullSetup.SAME_POLICY in setups:
        listed += [(NullSetup.SAME_POLICY, c.policy, c, None) for c in models]
    if NullSetup.REFERENCE in setups:
        listed += [(NullSetup.REFERENCE, c.policy, c, None) for c in by_policy.values() if c.is_reference]
    if NullSetup.PERMUTATION in setups:
        named = None if pairs is None else [(find_cohort(by_policy, x), find_cohort(by_policy, y)) for x, y in pairs]
        chosen = list(itertools.combinations(models, 2)) if named is None else named
        listed += [(NullSetup.PERMUTATION, f'{a.policy} ↔ {b.policy}', a, b) for a, b in chosen]
    return listed


Arrangements = tuple[PairLayout, NDArray[np.int32], IntArray, IntArray]


def _halves(cohort: Cohort, n_trials: int, rng: np.random.Generator, tau_s: float | None) -> Arrangements:
    cells = {s: c for s, c in cohort.cells.items() if c.n_episodes >= 2}
    if not cells:
        raise NotEstimable(f'{cohort.policy}: no stratum has two episodes to split')
    nothing = Operations(np.empty(0), np.empty(0, dtype=bool), np.empty(0, dtype=np.int64))
    layout = pair_layout(cells, dict.fromkeys(cells, nothing), tau_s=tau_s)
    sizes = np.array([c.n_episodes for c in cells.values()], dtype=np.int64)
    columns = [rng.permuted(np.tile(np.arange(n), (n_trials, 1)), axis=1) for n in sizes]
    half = sizes // 2
    return layout, np.concatenate(columns, axis=1).astype(np.int32), half, sizes - half


def _shuffles(
    a: Cohort, b: Cohort, label: str | None, n_trials: int, rng: np.random.Generator, tau_s: float | None
) -> Arrangements:
    shared, others, _ = shared_strata(a.cells, b.cells, missing='drop')
    layout = pair_layout(shared, others, tau_s=tau_s)
    columns = []
    for s in shared:
        first, other = (np.asarray(_block_values(c, s, label)) for c in (a, b))
        columns.append(_blockwise(first, other, n_trials, rng))
    return layout, np.concatenate(columns, axis=1).astype(np.int32), layout.n_a, layout.n_b


def _block_values(cohort: Cohort, stratum: str, label: str | None) -> list[str]:
    """The block of each scored episode of the stratum, in the order of its Operations."""
    own = [e for e in cohort.valid if stratum_of(e) == stratum]
    read = label_reader(label) if label else (lambda _: '')
    return [read(e) or '' for e in own]


def _blockwise(a: NDArray[np.str_], b: NDArray[np.str_], n_trials: int, rng: np.random.Generator) -> IntArray:
    """Rows of episode places with labels shuffled within blocks, each block keeping how many are a's."""
    blocks = np.concatenate([a, b])
    units = np.tile(np.arange(len(blocks)), (n_trials, 1))
    for value in np.unique(blocks):
        places = np.flatnonzero(blocks == value)
        units[:, places] = rng.permuted(units[:, places], axis=1)
    return units


PER_CELL = (5, 10, 15, 20, 25, 30, 40, 50, 75, 100)
MOST_EPISODES = 1_000_000
HALVINGS = 40
RESAMPLES = 400
MOST_MULTIPLE = 3.0


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
    first, second, _ = shared_strata(_pilot(a), _pilot(b), missing=missing)
    return dict(first), dict(second)


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

    def is_enough(n: int) -> bool:  # of a large N to one in 200: the bridges know it no better
        return not bridges.power(n, shrink=shrink, alpha=alpha, critical=edge) < power

    if is_enough(2):
        return 2.0
    n = search_size(is_enough, 2, 4, most=MOST_EPISODES)
    return math.inf if n is None else float(n)


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
