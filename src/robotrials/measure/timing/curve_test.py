"""Tests of two success curves: the macro-averaged Kolmogorov-Smirnov test, and the logrank test."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.cohort import Cohort
from robotrials.measure.timing.curve import SuccessCurve, check_tau
from robotrials.measure.timing.operation import FloatArray, IntArray, Operations, Scene, pool
from robotrials.measure.timing.reference import shared_strata
from robotrials.measure.timing.resample import NullMethod, PairLayout, ks_trials, pair_layout, stream_seed
from robotrials.stats import bonferroni, holm
from robotrials.stats.argument import check_count
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
    times = np.union1d(a.times_s, b.times_s)
    times = times if tau_s is None else times[times <= tau_s]
    if len(times) == 0:
        return 0.0, 0.0
    gap = np.atleast_1d(a.at(times)) - np.atleast_1d(b.at(times))
    where = int(np.argmax(np.abs(gap)))
    return float(abs(gap[where])), float(gap[where])


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
    shared, dropped = shared_strata(a, b, missing=missing)
    first, second = {s: a[s] for s in shared}, {s: b[s] for s in shared}
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
    return None if scenes is None else tuple(s.start if isinstance(s, Scene) else s for s in scenes)


def _scene_pairs(a: Labels | None, b: Labels | None, stratum: str) -> tuple[IntArray, IntArray]:
    """Where the scenes that both have stand in either arm; scenes that are unknown or repeat are refused."""
    for scenes in (a, b):
        if scenes is None or None in scenes:
            raise InputError(
                f'stratum {stratum}: some episodes have neither seed nor instance, so scenes cannot be matched'
            )
        again = np.setdiff1d(
            np.arange(len(scenes)), np.unique(units_of(scenes, len(scenes)).codes, return_index=True)[1]
        )
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
    shared, dropped = shared_strata(a, b, missing=missing)
    first, second = {s: a[s] for s in shared}, {s: b[s] for s in shared}
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
