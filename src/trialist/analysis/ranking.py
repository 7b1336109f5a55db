"""Who works how fast and how reliably: scores, pairs, curves and failures of every policy under one condition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trialist.analysis.option import Absent, ReportOptions
from trialist.analysis.pairs import AllPairs, Planned, compare_all
from trialist.episodes import Episode
from trialist.errors import InputError, NotEstimable
from trialist.stats import Interval, wilson
from trialist.timing import (
    BandKind,
    Cohort,
    CohortScore,
    FailureModes,
    Operations,
    RelativeScore,
    Scale,
    auc,
    cohorts,
    failure_modes,
    find_reference,
    hrt,
    macro_band,
    score_cohort,
    success_curve,
)
from trialist.timing.operation import FloatArray, stratum_of

ALL_STRATA = ''
MOST_STEPS = 256


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """Successes over valid episodes, by the host's own predicate or else by the outcome."""

    successes: int
    n: int
    level: float

    @property
    def rate(self) -> float:
        return self.successes / self.n

    @property
    def interval(self) -> Interval:
        return wilson(self.successes, self.n, self.level)


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

    condition: str  # '' where the conditions of the store were taken together
    tau_s: float
    tau_reason: str
    reference: str | None
    order: tuple[str, ...]  # lowest macro RMST first, the reference not among them; those of `apart` last
    strata: tuple[str, ...]
    scores: Mapping[str, CohortScore]
    relative: Mapping[str, RelativeScore]  # HRT
    areas: Mapping[str, RelativeScore]  # AUC against the reference
    successes: Mapping[tuple[str, str], SuccessRate]  # (policy, stratum or ALL_STRATA)
    by_task: Mapping[tuple[str, str], SuccessRate]  # (policy, task)
    pairs: AllPairs | Absent
    curves: Mapping[str, tuple[PolicyCurve, ...]]  # by stratum, ALL_STRATA first
    failures: tuple[FailureModes, ...]
    followed_to_s: Mapping[str, float]
    unscored: Mapping[str, int]  # policies none of whose episodes is valid, and how many they have
    apart: tuple[str, ...] = ()  # policies in no comparison: with some other one they share no stratum
    cautions: tuple[str, ...] = ()  # why means of different policies may not be of the same work

    @property
    def policies(self) -> tuple[str, ...]:
        """All scored policies, the reference first."""
        return (*((self.reference,) if self.reference else ()), *self.order)


def rank_policies(
    episodes: Sequence[Episode], options: ReportOptions, *, rng: np.random.Generator, condition: str
) -> Ranking | Absent:
    """Score and compare the policies of these episodes, which are all of one condition or taken together."""
    everyone = cohorts(episodes)
    found = {name: c for name, c in everyone.items() if c.cells}
    unscored = {name: len(c.episodes) for name, c in everyone.items() if not c.cells}
    if not found:
        return Absent('no policy has a valid episode', 'run or import episodes whose outcome is not invalid')
    anchor = find_reference(found, options.reference)
    tau_s, why = choose_tau(found.values(), options)
    scale = Scale(tau_s=tau_s, thresholds_s=tuple(t for t in (30.0, 60.0) if t < tau_s))
    n = options.n_resamples
    scores = {
        name: score_cohort(c, scale=scale, n_resamples=n, rng=rng, level=options.level) for name, c in found.items()
    }
    relative, areas = _against_reference(found, anchor, tau_s, options, rng)
    arms = [c for name, c in found.items() if anchor is None or name != anchor.policy]
    apart = _apart(arms)
    pairs = _pairs([c for c in arms if c.policy not in apart], anchor, scale, options, rng, apart=apart)
    order = sorted((c.policy for c in arms), key=lambda name: (name in apart, *_value(scores[name])))
    strata = tuple(sorted({s for c in found.values() for s in c.cells}))
    return Ranking(
        condition=condition, tau_s=tau_s, tau_reason=why, reference=anchor.policy if anchor else None,
        order=tuple(order), strata=strata, scores=scores, relative=relative, areas=areas,
        successes=_success_counts(found.values(), options.level, stratum_of, with_total=True),
        by_task=_success_counts(found.values(), options.level, lambda e: e.task),
        pairs=pairs, curves=_curves(found, strata, tau_s, options.level),
        failures=tuple(failure_modes(c, tau_s=tau_s) for c in found.values()),
        followed_to_s={name: c.followed_to_s for name, c in found.items()}, unscored=unscored, apart=apart,
        cautions=tuple(_cautions(list(found.values()), condition)),
    )  # fmt: skip


def choose_tau(found: Iterable[Cohort], options: ReportOptions) -> tuple[float, str]:
    """The cap of restricted means, and why this one: as asked, else the protocol's own, else as long as all watched."""
    if options.tau_s is not None:
        return options.tau_s, 'as asked'
    arms = list(found)
    caps = {c.policy: max((e.time_cap_s for e in c.valid if e.time_cap_s is not None), default=None) for c in arms}
    known = [cap for cap in caps.values() if cap is not None]
    if known and len(set(known)) == 1:
        return known[0], 'the largest time cap of an episode'
    if known:
        return min(known), 'the largest time cap that every policy had'
    followed = min(c.followed_to_s for c in arms)
    if math.isfinite(followed) and followed > 0:
        return _two_digits_down(followed), 'how long every policy was watched in every stratum, rounded down'
    longest = max(
        float(c.durations_s[np.isfinite(c.durations_s)].max(initial=0.0)) for a in arms for c in a.cells.values()
    )
    if longest > 0:
        return longest, 'the longest operation'
    lasted = max(e.known_duration_s for a in arms for e in a.valid)
    return (lasted, 'the longest episode') if lasted > 0 else (1.0, 'no episode lasted longer than 0 s')


def _two_digits_down(value: float) -> float:
    """64.05 becomes 64, 0.0377 becomes 0.037."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(math.floor(value / step + 1e-9) * step, 12)


def _value(score: CohortScore) -> tuple[float, str]:
    value = score.macro['rmst_s'].value
    return math.inf if value is None else value, score.policy


def _against_reference(
    found: Mapping[str, Cohort], anchor: Cohort | None, tau_s: float, options: ReportOptions, rng: np.random.Generator
) -> tuple[dict[str, RelativeScore], dict[str, RelativeScore]]:
    relative, areas = {}, {}
    for name, cohort in found.items():
        if anchor is None or name == anchor.policy or not cohort.cells.keys() & anchor.cells.keys():
            continue
        chosen = {
            'tau_s': tau_s, 'n_resamples': options.n_resamples, 'rng': rng, 'level': options.level, 'missing': 'drop'
        }  # fmt: skip
        relative[name] = hrt(cohort.cells, anchor.cells, **chosen)  # type: ignore[arg-type]
        areas[name] = auc(cohort.cells, anchor.cells, **chosen)  # type: ignore[arg-type]
    return relative, areas


def _pairs(
    arms: Sequence[Cohort], anchor: Cohort | None, scale: Scale, options: ReportOptions, rng: np.random.Generator, *,
    apart: Sequence[str],
) -> AllPairs | Absent:  # fmt: skip
    if not arms:
        return Absent('only the reference was tested', 'a comparison wants two policies beside it')
    if len(arms) < 2 and apart:
        return Absent('no two policies were tested in the same stratum', 'run every policy on the same strata')
    if len(arms) < 2:
        beside = ' beside the reference' if anchor is not None else ''
        return Absent(
            f'only one policy was tested{beside}', 'a comparison wants two; bring another policy on the same tasks'
        )
    try:
        return compare_all(
            arms, rng=rng, reference=anchor, scale=scale, n_resamples=options.n_resamples, alpha=options.alpha,
            missing='drop', planned=Planned.UNRESOLVED,
        )  # fmt: skip
    except (InputError, NotEstimable) as error:
        return Absent(str(error), 'run every policy on the same strata')


def _apart(arms: Sequence[Cohort]) -> tuple[str, ...]:
    """Policies to leave out so that every two of the others share a stratum: who shares with fewest goes first."""
    left, gone = list(arms), []
    while len(left) > 1:
        alone = [sum(not a.cells.keys() & b.cells.keys() for b in left) for a in left]
        if not any(alone):
            break
        gone.append(left.pop(max(range(len(left)), key=lambda i: (alone[i], -left[i].n_episodes))).policy)
    return tuple(gone)


def _cautions(arms: Sequence[Cohort], condition: str) -> list[str]:
    """What keeps the means of these policies from being means of the same work; nothing with a single one."""
    if len(arms) < 2:
        return []
    found = []
    if len({frozenset(c.cells) for c in arms}) > 1:
        found.append('not every policy was run in every stratum, and each mean is over its own strata')
    valid = [e for c in arms for e in c.valid]
    if not condition:
        found.append(f'{len({e.condition for e in valid})} conditions are taken together, as none is the baseline')
    names: dict[str, set[str]] = {}
    for episode in valid:
        names.setdefault(stratum_of(episode), set()).add(episode.benchmark)
    shared = sorted(name for name, benchmarks in names.items() if len(benchmarks) > 1)
    if shared:
        found.append(f'strata of one name in several benchmarks are taken together ({", ".join(shared[:3])})')
    return found


def _success_counts(
    found: Iterable[Cohort], level: float, key: Callable[[Episode], str], *, with_total: bool = False
) -> dict[tuple[str, str], SuccessRate]:
    counts: dict[tuple[str, str], list[float]] = {}
    for cohort in found:
        for episode in cohort.valid:
            for name in (key(episode), ALL_STRATA) if with_total else (key(episode),):
                counts.setdefault((cohort.policy, name), []).append(episode.is_success)
    return {k: SuccessRate(int(sum(v)), len(v), level) for k, v in counts.items()}


def _curves(
    found: Mapping[str, Cohort], strata: Sequence[str], tau_s: float, level: float
) -> dict[str, tuple[PolicyCurve, ...]]:
    panels = {ALL_STRATA: [_curve(c.policy, ALL_STRATA, c.cells, tau_s, level) for c in found.values()]}
    if len(strata) > 1:
        for stratum in strata:
            having = [c for c in found.values() if stratum in c.cells]
            panels[stratum] = [_curve(c.policy, stratum, {stratum: c.cells[stratum]}, tau_s, level) for c in having]
    return {stratum: tuple(curves) for stratum, curves in panels.items()}


def _curve(policy: str, stratum: str, cells: Mapping[str, Operations], tau_s: float, level: float) -> PolicyCurve:
    """F at its own steps up to tau (at most MOST_STEPS of them), and its pointwise band clustered by episode."""
    curves = [success_curve(c.durations_s, c.observed) for c in cells.values()]
    steps = np.unique(np.concatenate([c.times_s[c.n_success > 0] for c in curves]))
    times = _thinned(steps[steps <= tau_s])
    chance = np.mean([np.atleast_1d(c.at(times)) for c in curves], axis=0)
    low, high = None, None
    if len(times):
        band = macro_band(cells, kind=BandKind.CLUSTERED, level=level, grid_s=times)
        low, high = band.low, band.high
    return PolicyCurve(
        policy, stratum, times, np.asarray(chance, dtype=np.float64), low, high,
        sum(c.n_episodes for c in cells.values()), sum(c.n_operations for c in cells.values()),
    )  # fmt: skip


def _thinned(times: FloatArray) -> FloatArray:
    if len(times) <= MOST_STEPS:
        return times
    return times[np.unique(np.linspace(0, len(times) - 1, MOST_STEPS).round().astype(np.int64))]
