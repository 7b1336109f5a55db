"""Two policies from the same starts: does one succeed unsafely more often, or violate more severely?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError, NotEstimable, UnknownName
from robotrials.measure.safety.registry import Registry
from robotrials.measure.safety.result import EpisodeSafety
from robotrials.measure.safety.summary import is_auxiliary
from robotrials.stats import Interval, cluster_bootstrap, exact_mcnemar, holm, newcombe_paired, sign_flip


@dataclass(frozen=True, slots=True)
class SafetyDifference:
    """First minus second on one metric over pairs of episodes with the same start."""

    metric: str  # 'sbu', 'unsafe' or 'vsi'
    benchmark: str  # '' for all main ones together
    n_pairs: int
    first: float
    second: float
    difference: float
    interval: Interval | None
    p_value: float
    p_adjusted: float  # Holm, over every row of the comparison
    only_first: int | None = None  # discordant pairs, for the binary metrics
    only_second: int | None = None

    def is_resolved(self, alpha: float = 0.05) -> bool:
        return self.p_adjusted <= alpha


@dataclass(frozen=True, slots=True)
class SafetyComparison:
    first: str
    second: str
    rows: tuple[SafetyDifference, ...]
    n_unpaired: int  # scored episodes of either policy without a partner
    n_unscored: int


@dataclass(frozen=True, slots=True)
class _Scored:
    """What a comparison needs of one episode."""

    episode_id: str
    benchmark: str
    sbu: bool
    unsafe: bool
    vsi: float


def compare_safety(
    scores: Iterable[EpisodeSafety],
    first: str,
    second: str,
    *,
    rng: np.random.Generator,
    registry: Registry | None = None,
    n_resamples: int = 10_000,
    level: float = 0.95,
) -> SafetyComparison:
    """Pair episodes by benchmark, task, condition, seed, instance and repeat, and test SBU, unsafe and VSI.

    Binary metrics: exact McNemar and Newcombe's paired interval. VSI: sign flips and a paired bootstrap. All
    p-values of the comparison are adjusted together by Holm's method. Benchmarks that `registry` (the built-in one if
    none is given) calls auxiliary have rows of their own and are not in those of all.
    """
    by_policy: dict[str, dict[object, _Scored]] = {}
    n_unscored, n_scored = 0, 0
    for score in scores:
        mine = by_policy.setdefault(score.policy, {})
        if score.policy not in (first, second):
            continue
        if not score.is_scored:
            n_unscored += 1
            continue
        n_scored += 1
        kept = _Scored(score.name, score.benchmark, bool(score.sbu), score.safe is False, score.vsi or 0.0)
        twin = mine.setdefault(score.start, kept)
        if twin is not kept:
            raise InputError(
                f'{score.policy}: episodes {twin.episode_id} and {score.episode_id} have the same start (task, '
                'condition, seed, instance, repeat), so that partners would be picked by chance; number the repeats'
            )
    for name in (first, second):
        if name not in by_policy:
            raise UnknownName('policy', name, by_policy)
    starts = sorted(by_policy[first].keys() & by_policy[second].keys(), key=repr)
    if not starts:
        raise NotEstimable(
            f'{first} and {second} share no start (benchmark, task, condition, seed, instance, repeat); '
            'a paired comparison needs the same starts'
        )
    pairs = [(by_policy[first][s], by_policy[second][s]) for s in starts]
    benchmarks = sorted({a.benchmark for a, _ in pairs})
    main = [b for b in benchmarks if not is_auxiliary(b, registry)]
    scopes = ([''] if main else []) + (benchmarks if benchmarks != main or len(main) > 1 else [])
    rows = []
    for scope, stream in zip(scopes, rng.spawn(len(scopes)), strict=True):
        chosen = [p for p in pairs if (p[0].benchmark == scope if scope else p[0].benchmark in main)]
        rows += [_binary('sbu', scope, chosen, level), _binary('unsafe', scope, chosen, level)]
        rows.append(_severity(scope, chosen, level, n_resamples, stream))
    adjusted = holm([row.p_value for row in rows])
    rows = [dataclasses.replace(row, p_adjusted=float(p)) for row, p in zip(rows, adjusted, strict=True)]
    return SafetyComparison(first, second, tuple(rows), n_scored - 2 * len(pairs), n_unscored)


Pair = tuple[_Scored, _Scored]


def _binary(metric: str, scope: str, pairs: list[Pair], level: float) -> SafetyDifference:
    flags = [(a.sbu, b.sbu) if metric == 'sbu' else (a.unsafe, b.unsafe) for a, b in pairs]
    both, only_a, only_b = (flags.count(kind) for kind in ((True, True), (True, False), (False, True)))
    n = len(pairs)
    interval = newcombe_paired(both, only_a, only_b, n - both - only_a - only_b, level)
    p_value = exact_mcnemar(only_a, only_b).p_value
    return SafetyDifference(
        metric, scope, n, (both + only_a) / n, (both + only_b) / n, (only_a - only_b) / n, interval, p_value, p_value,
        only_a, only_b,
    )  # fmt: skip


def _severity(
    scope: str, pairs: list[Pair], level: float, n_resamples: int, rng: np.random.Generator
) -> SafetyDifference:
    a, b = (np.array([pair[side].vsi for pair in pairs], dtype=np.float64) for side in (0, 1))
    gap = a - b
    p_value = sign_flip(gap, n_resamples=n_resamples - 1, rng=rng).p_value
    interval = None
    if len(gap) > 1:
        interval = cluster_bootstrap(gap, np.arange(len(gap)), n_resamples=n_resamples, rng=rng, level=level).interval
    return SafetyDifference(
        'vsi', scope, len(gap), float(a.mean()), float(b.mean()), float(gap.mean()), interval, p_value, p_value
    )
