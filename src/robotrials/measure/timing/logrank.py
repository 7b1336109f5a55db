"""The logrank test: stratified or pooled, classical or robust to operations clustered in episodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.cohort import Cohort
from robotrials.measure.timing.operation import FloatArray, Operations, pool
from robotrials.measure.timing.reference import shared_strata
from robotrials.stats import bonferroni, holm


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
    both, dropped = shared_strata(a, b, missing=missing)
    first, second = {s: a[s] for s in both}, {s: b[s] for s in both}
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
    found: dict[bool, list[Logrank | None]] = {True: [], False: []}  # by whether it is stratified
    for a, b in pairs:  # once: a pair may be made as it is asked for
        names.append((a.policy, b.policy))
        for stratified, tests in found.items():
            tests.append(_logrank_or_none(a, b, stratified, missing))
    if not names:
        raise InputError('no pair of policies was given')
    rows: list[LogrankPair] = []
    for stratified, tests in found.items():
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
