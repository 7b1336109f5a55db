"""Do two success curves differ, where, and by how much?

The macro-averaged Kolmogorov-Smirnov test, the logrank test, tests of scalar differences by resampling, confidence
bands, P-P and Q-Q traces, and advantages whose sign changes between strata.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.better import Better, oriented_difference
from robotrials.measure.timing.curve import (
    ArmMeans,
    Cohort,
    SuccessCurve,
    check_tau,
    clustered_variance,
    rmst,
    success_curve,
)
from robotrials.measure.timing.operation import FloatArray, IntArray, Operations, SharedStart, pool
from robotrials.measure.timing.resample import (
    NullMethod,
    PairLayout,
    contrast_trials,
    ks_trials,
    macro_curve_draws,
    pair_layout,
    sort_cell,
    stream_seed,
)
from robotrials.measure.timing.scalar import curve_auc, shared_strata, uph_of_rmst
from robotrials.stats import bonferroni, holm
from robotrials.stats.interaction import reversal_p_value
from robotrials.stats.interval import FEWEST_PER_CELL, Interval, check_count
from robotrials.stats.matching import Labels, shared_places, units_of
from robotrials.value import dataclass

# The macro-averaged Kolmogorov-Smirnov test over per-cell success curves (PhAIL, section 3.3).

TIE_SLACK = 1e-12


class PValueRule(enum.StrEnum):
    """How exceedances become a p-value: b of B resamples at least as extreme as the data."""

    PLUS_ONE = 'plus_one'  # (b + 1) / (B + 1): never 0, valid for permutations
    PLAIN = 'plain'  # b / B


@dataclass(frozen=True, slots=True, eq=False)
class MacroKS:
    """The mean over strata of sup|Fa - Fb|, and how often chance alone does as much."""

    statistic: float
    per_stratum: Mapping[str, float]
    p_value: float
    n_exceeding: int
    n_resamples: int
    method: NullMethod
    rule: PValueRule
    null_mean: float  # what the statistic is expected to be when nothing differs
    n_episodes: tuple[int, int]
    dropped: tuple[str, ...] = ()  # strata of only one policy, left out
    n_unmatched: int = 0  # episodes without a partner, left out of a paired test

    @property
    def p_values(self) -> dict[PValueRule, float]:
        """Both conventions, by name."""
        return {rule: p_value_of(self.n_exceeding, self.n_resamples, rule) for rule in PValueRule}


def p_value_of(n_exceeding: int, n_resamples: int, rule: PValueRule | str) -> float:
    if PValueRule(rule) is PValueRule.PLUS_ONE:
        return (n_exceeding + 1) / (n_resamples + 1)
    return n_exceeding / n_resamples


def ks_distance(a: SuccessCurve, b: SuccessCurve, *, tau_s: float | None = None) -> tuple[float, float]:
    """sup|Fa - Fb| and the signed difference where it is reached (first such time), up to tau_s."""
    _, gap = _furthest(a, b, tau_s)
    return abs(gap), gap


def _furthest(a: SuccessCurve, b: SuccessCurve, tau_s: float | None = None) -> tuple[float, float]:
    """The first time at which two curves are furthest apart, and Fa - Fb there; 0 for curves without a time."""
    times = np.union1d(a.times_s, b.times_s)
    times = times if tau_s is None else times[times <= tau_s]
    if len(times) == 0:
        return 0.0, 0.0
    gap = np.atleast_1d(a.at(times)) - np.atleast_1d(b.at(times))
    where = int(np.argmax(np.abs(gap)))
    return float(times[where]), float(gap[where])


def macro_ks(
    a: Mapping[str, Operations], b: Mapping[str, Operations], *, n_resamples: int, rng: np.random.Generator,
    tau_s: float | None = None, method: NullMethod | str = NullMethod.PERMUTATION,
    rule: PValueRule | str = PValueRule.PLUS_ONE, missing: str = 'refuse', threads: int | None = None,
) -> MacroKS:  # fmt: skip
    """Test whether two policies' time-to-success differs anywhere, in any stratum.

    `a`, `b` map stratum -> Operations. The default shuffles episode labels within strata; 'pooled_bootstrap' is the
    published test; 'paired_swap' is for episodes matched by scene. A stratum of only one policy is refused, or left
    out and named with missing='drop'.
    """
    method, rule = NullMethod(method), PValueRule(rule)
    n_resamples = check_count('n_resamples', n_resamples, least=1)
    if tau_s is not None:
        check_tau(tau_s)
    first, second, dropped = shared_strata(a, b, missing=missing)
    total = sum(c.n_episodes for cells in (first, second) for c in cells.values())
    if method is NullMethod.PAIRED_SWAP:
        first, second = match_scenes(first, second)
    check_exchangeable(first, second)
    layout = pair_layout(first, second, tau_s=tau_s)
    observed, null = ks_trials(
        layout, layout.own_units(), n_a=layout.n_a, n_b=layout.n_b, n_resamples=n_resamples, method=method,
        seed=stream_seed(rng), threads=threads,
    )  # fmt: skip
    statistic = float(observed[0].mean())
    exceeding = int(np.count_nonzero(null[0] >= statistic - TIE_SLACK))
    counts = int(layout.n_a.sum()), int(layout.n_b.sum())
    return MacroKS(
        statistic=statistic,
        per_stratum=dict(zip(layout.strata, observed[0].tolist(), strict=True)),
        p_value=p_value_of(exceeding, n_resamples, rule),
        n_exceeding=exceeding,
        n_resamples=n_resamples,
        method=method,
        rule=rule,
        null_mean=float(null.mean()),
        n_episodes=counts,
        dropped=dropped,
        n_unmatched=total - sum(counts),
    )


def check_exchangeable(a: Mapping[str, Operations], b: Mapping[str, Operations]) -> None:
    """Refuse a comparison in which no stratum has more than one episode per side: labels could not be told apart."""
    if all(a[s].n_episodes + b[s].n_episodes <= 2 for s in a) and len(a) == 1:
        raise InputError('one episode per policy in one stratum: no resampling can tell chance from effect; run more')


def match_scenes(
    a: Mapping[str, Operations], b: Mapping[str, Operations]
) -> tuple[dict[str, Operations], dict[str, Operations]]:
    """Within each stratum only the episodes with a partner of the same scene, in the same order on both sides."""
    first, second = {}, {}
    for s in a:
        places_a, places_b = _scene_pairs(a[s].scenes, b[s].scenes, s)
        if not len(places_a):
            places_a, places_b = _scene_pairs(_starts(a[s].scenes), _starts(b[s].scenes), s)
        if len(places_a):
            first[s], second[s] = a[s].take(places_a), b[s].take(places_b)
    if not first:
        raise InputError('no two episodes share a scene (task, condition, seed, instance, repeat); nothing is paired')
    return first, second


def _starts(scenes: Labels | None) -> Labels | None:
    """Scenes by their start state alone, for arms that drew their own seeds."""
    return None if scenes is None else tuple(s.start if isinstance(s, SharedStart) else s for s in scenes)


def _scene_pairs(a: Labels | None, b: Labels | None, stratum: str) -> tuple[IntArray, IntArray]:
    """Where the scenes that both have stand in either arm; scenes that are unknown or repeat are refused."""
    for scenes in (a, b):
        if scenes is None or None in scenes:
            raise InputError(
                f'stratum {stratum}: some episodes have neither seed nor instance, so scenes cannot be matched'
            )
        firsts = np.unique(units_of(scenes, len(scenes)).codes, return_index=True)[1]
        again = np.setdiff1d(np.arange(len(scenes)), firsts)
        if len(again):
            raise InputError(
                f'stratum {stratum}: two episodes of one policy share the scene {scenes[again[0]]}; give them repeats'
            )
    assert a is not None
    assert b is not None
    return shared_places(a, b)


@dataclass(frozen=True, slots=True, eq=False)
class KSTrials:
    """Many macro-KS tests at once: each trial's statistic and its resampled null."""

    statistic: FloatArray  # (trials,)
    null: FloatArray  # (trials, n_resamples)

    def p_values(self, rule: PValueRule | str = PValueRule.PLUS_ONE) -> FloatArray:
        """(trials,) one p-value per trial."""
        exceeding = np.count_nonzero(self.null >= self.statistic[:, None] - TIE_SLACK, axis=1)
        return np.array([p_value_of(n, self.null.shape[1], rule) for n in exceeding.tolist()])


def macro_ks_trials(
    layout: PairLayout, units: NDArray[np.int32], *, n_a: Sequence[int] | IntArray, n_b: Sequence[int] | IntArray,
    n_resamples: int, rng: np.random.Generator, method: NullMethod | str = NullMethod.PERMUTATION,
    threads: int | None = None,
) -> KSTrials:  # fmt: skip
    """One macro-KS test for each row of `units`: the seam that calibration and detection studies stand on.

    A row lists, stratum after stratum, n_a[s] episodes of arm a and n_b[s] of arm b as places among the merged
    episodes of the layout (a's first); repeats are allowed, so a row can be a subsample with replacement.
    """
    seen, null = ks_trials(
        layout, units, n_a=np.asarray(n_a, dtype=np.int64), n_b=np.asarray(n_b, dtype=np.int64),
        n_resamples=n_resamples, method=NullMethod(method), seed=stream_seed(rng), threads=threads,
    )  # fmt: skip
    return KSTrials(seen.mean(axis=1), null)


# The logrank test: stratified or pooled, classical or robust to operations clustered in episodes.


@dataclass(frozen=True, slots=True)
class LogrankTest:
    """One chi-squared test on 1 degree of freedom; `excess` is a's observed minus expected successes."""

    statistic: float
    p_value: float
    excess: float
    variance: float


@dataclass(frozen=True, slots=True)
class Logrank:
    """The classical test takes operations as independent; the robust one only episodes."""

    classical: LogrankTest
    robust: LogrankTest
    stratified: bool
    dropped: tuple[str, ...] = ()


def logrank(
    a: Mapping[str, Operations], b: Mapping[str, Operations], *, stratified: bool = True, missing: str = 'refuse'
) -> Logrank:
    """Mantel's logrank of policy a against b, summed over strata, or with all strata pooled into one.

    Ghosts stay at risk to the end and add nothing at infinity. The robust variance sums each operation's score residual
    within its episode (Lin and Wei's sandwich at the null).
    """
    first, second, dropped = shared_strata(a, b, missing=missing)
    if not stratified:
        first, second = {'': pool(first)}, {'': pool(second)}
    parts = np.sum([_stratum(first[s], second[s]) for s in first], axis=0)
    excess, classical, robust = (float(x) for x in parts)
    if classical <= 0:
        raise NotEstimable('no success happened while both policies were still at risk; logrank has nothing to compare')
    return Logrank(_test(excess, classical), _test(excess, robust), stratified, dropped)


@dataclass(frozen=True, slots=True)
class LogrankPair:
    """One kind of logrank test of one pair; None where it is not estimable, which no correction counts."""

    policy_a: str
    policy_b: str
    stratified: bool
    variance: str  # 'classical' or 'robust'
    p_value: float | None
    p_bonferroni: float | None
    p_holm: float | None


def logrank_pairs(pairs: Iterable[tuple[Cohort, Cohort]], *, missing: str = 'refuse') -> tuple[LogrankPair, ...]:
    """Every pair's stratified and pooled, classical and robust test, each kind corrected over the pairs (Table 3)."""
    names: list[tuple[str, str]] = []
    tests_by_kind: dict[bool, list[Logrank | None]] = {True: [], False: []}  # by whether it is stratified
    for a, b in pairs:  # once: a pair may be made as it is asked for
        names.append((a.policy, b.policy))
        for stratified, tests in tests_by_kind.items():
            tests.append(_logrank_or_none(a, b, stratified, missing))
    if not names:
        raise InputError('no pair of policies was given')
    rows: list[LogrankPair] = []
    for stratified, tests in tests_by_kind.items():
        for kind in ('classical', 'robust'):
            p = [None if f is None else getattr(f, kind).p_value for f in tests]
            known = [value for value in p if value is not None]
            steps = iter(zip(bonferroni(known), holm(known), strict=True) if known else ())
            for pair, value in zip(names, p, strict=True):
                by_all, stepped = (None, None) if value is None else map(float, next(steps))
                rows.append(LogrankPair(*pair, stratified, kind, value, by_all, stepped))
    return tuple(rows)


def _logrank_or_none(a: Cohort, b: Cohort, stratified: bool, missing: str) -> Logrank | None:
    try:
        return logrank(a.cells, b.cells, stratified=stratified, missing=missing)
    except NotEstimable:
        return None


def _test(excess: float, variance: float) -> LogrankTest:
    from robotrials.stats.special import erfc

    if variance <= 0:
        raise NotEstimable('the clustered variance is 0: too few episodes with a success')
    statistic = excess**2 / variance
    return LogrankTest(statistic, float(erfc(np.sqrt(statistic / 2))), excess, variance)


def _stratum(a: Operations, b: Operations) -> FloatArray:
    """Observed minus expected of a, its hypergeometric variance, and the clustered variance."""
    times = np.concatenate([a.durations_s, b.durations_s])
    success = np.concatenate([a.observed, b.observed]) & np.isfinite(times)
    is_a = np.concatenate([np.ones(a.n_operations), np.zeros(b.n_operations)])
    events = np.unique(times[success])
    if len(events) == 0:
        return np.zeros(3)
    order = np.sort(times)
    n = len(times) - np.searchsorted(order, events, side='left')
    n_a = a.n_operations - np.searchsorted(np.sort(a.durations_s), events, side='left')
    place = np.searchsorted(events, times[success])
    d = np.bincount(place, minlength=len(events)).astype(np.float64)
    d_a = np.bincount(place, weights=is_a[success], minlength=len(events))
    share = n_a / n
    spread = np.divide(n - d, n - 1.0, out=np.zeros(len(n)), where=n > 1)
    variance = float(np.sum(d * share * (1 - share) * spread))
    # Each operation's residual: its own jump less what it was at risk of.
    hazard, shared = np.concatenate([[0.0], np.cumsum(d / n)]), np.concatenate([[0.0], np.cumsum(share * d / n)])
    reach = np.searchsorted(events, times, side='right')
    own_share = share[np.minimum(np.searchsorted(events, times), len(events) - 1)]
    residual = success * (is_a - own_share) - (is_a * hazard[reach] - shared[reach])
    cluster = np.concatenate([a.cluster, b.cluster + a.n_episodes])
    clustered = np.bincount(cluster, weights=residual, minlength=a.n_episodes + b.n_episodes)
    return np.array([np.sum(d_a - d * share), variance, np.sum(clustered**2)])


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
    time_s, gap = _furthest(a, b)
    if gap == 0:
        return None
    names = (name_a, name_b) if gap > 0 else (name_b, name_a)
    return SupSign(*names, time_s=time_s, distance=abs(gap))


def find_cycle(curves: Mapping[str, SuccessCurve]) -> tuple[SupSign, SupSign, SupSign] | None:
    """The first three policies whose sup-signs cycle, or None."""
    for x, y, z in itertools.combinations(curves, 3):
        edges = [sup_sign(p, curves[p], name_b=q, b=curves[q]) for p, q in ((x, y), (y, z), (z, x))]
        first, second, third = edges
        if first and second and third and len({e.upper for e in (first, second, third)}) == 3:
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


@dataclass(frozen=True, slots=True)
class ScalarTest:
    """A macro-averaged difference a - b, and its two-sided resampling p-value."""

    difference: float
    p_value: float
    n_resamples: int
    method: NullMethod


def scalar_tests(
    a: Mapping[str, Operations], b: Mapping[str, Operations], *, tau_s: float = 240.0,
    thresholds_s: Sequence[float] = (30.0, 60.0), n_resamples: int = 1000, rng: np.random.Generator,
    method: NullMethod | str = NullMethod.PERMUTATION, rule: PValueRule | str = PValueRule.PLUS_ONE,
    missing: str = 'refuse', threads: int | None = None,
) -> dict[str, ScalarTest]:  # fmt: skip
    """Name -> test: 'rmst_s' at tau and 'chance_<t>s' at each threshold, all on the same resamples as each other."""
    for value in (tau_s, *thresholds_s):
        check_tau(value)
    method = NullMethod(method)
    n_resamples = check_count('n_resamples', n_resamples, least=1)
    first, second, _ = shared_strata(a, b, missing=missing)
    if method is NullMethod.PAIRED_SWAP:
        first, second = match_scenes(first, second)
    layout = pair_layout(first, second)
    ordered = sorted(thresholds_s)
    observed, null = contrast_trials(
        layout, layout.own_units(), n_a=layout.n_a, n_b=layout.n_b, n_resamples=n_resamples, method=method,
        seed=stream_seed(rng), tau_s=tau_s, thresholds_s=ordered, threads=threads,
    )  # fmt: skip
    seen = observed[0].mean(axis=0)
    extreme = np.count_nonzero(np.abs(null[0]) >= np.abs(seen) * (1 - TIE_SLACK) - TIE_SLACK, axis=0)
    names = ['rmst_s', *(f'chance_{t:g}s' for t in ordered)]
    return {
        name: ScalarTest(float(seen[k]), p_value_of(int(extreme[k]), n_resamples, rule), n_resamples, method)
        for k, name in enumerate(names, start=1)
    }


# Strata that point the other way: "better on average over these strata" is not "better in each".


@dataclass(frozen=True, slots=True)
class StratumAdvantage:
    """One stratum's difference, > 0 in favour of a, with the rule's interval."""

    stratum: str
    difference: float
    interval: Interval | None
    n_units: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reversal:
    """Every stratum's advantage, those that point against the mean, and the test that some truly do.

    A p-value above alpha licenses nothing: with four strata and 20 episodes per cell a real reversal of one third is
    found in about 1 % of trials.
    """

    strata: tuple[StratumAdvantage, ...]
    reversed: tuple[StratumAdvantage, ...]
    p_value: float | None
    withheld: str = ''


def reversal(comparison: Better) -> Reversal:
    """What single strata say of a comparison."""
    rules, advantages = [], []
    for stratum in comparison.arms[0].cells:
        first, second = (ArmMeans({stratum: arm.cells[stratum]}, arm.unit) for arm in comparison.arms)
        cells = (first.cells[stratum], second.cells[stratum])
        if all(cell.n_followed > 0 and cell.n_units > 1 for cell in cells):
            rule = oriented_difference(first, second, comparison.endpoint, is_paired=comparison.is_paired)
            is_judged = all(cell.n_units >= FEWEST_PER_CELL for cell in cells)
            interval = rule.interval(comparison.level) if is_judged else None
            n_units = (cells[0].n_units, cells[1].n_units)
            rules.append(rule)
            advantages.append(StratumAdvantage(stratum, rule.difference, interval, n_units))
    against = tuple(s for s in advantages if s.difference * comparison.difference < 0)
    withheld = comparison.withheld or ('' if len(rules) > 1 else 'one stratum: nothing can point the other way')
    p_value = None if withheld else reversal_p_value(rules)
    return Reversal(tuple(advantages), against, p_value, withheld)
