"""The verdict on two policies, and the letters that group many (PhAIL, section 3.3)."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from trialist.errors import InputError
from trialist.planning.power import NeededEpisodes, needed_episodes
from trialist.stats import Verdict, different_matrix, holm, letter_groups
from trialist.timing.cohort import Cohort
from trialist.timing.contrast import ScalarTest, scalar_tests
from trialist.timing.estimate import (
    Draws,
    Estimate,
    ResampledCell,
    combine,
    difference,
    estimate,
    macro_mean,
    pair_left_out,
    resampled_cells,
)
from trialist.timing.ks import MacroKS, macro_ks, match_scenes
from trialist.timing.logrank import Logrank, logrank
from trialist.timing.operation import Operations
from trialist.timing.reference import auc_draws, check_cells, shared_strata
from trialist.timing.resample import NullMethod, available_cores, stream_seed
from trialist.timing.scalar import Scale, scalar_label

# Resampling one or two episodes of a cell shows no spread, and with three or four the 95 % interval of the needed N
# holds the true one 81 to 97 % of the time; with five it does 93 to 99 %.
FEWEST_FOR_PLANNING = 5
MOST_STRATA_IN_THREADS = 8
AGAINST_REFERENCE = ('hrt', 'auc_vs_reference')


class Planned(enum.StrEnum):
    """For which comparisons the needed episodes are worked out; that takes longer than all of the rest."""

    ALL = 'all'
    UNRESOLVED = 'unresolved'
    NONE = 'none'


@dataclass(frozen=True, slots=True, eq=False)
class TimingComparison:
    """Two policies compared: the gate (macro KS), the scalars, and what may be said.

    `advantages` are oriented so that a positive value favours policy a, whatever the scalar's own direction.
    """

    policy_a: str
    policy_b: str
    verdict: Verdict
    better: str | None  # the name of the better policy, only with Verdict.BETTER
    favouring_a: tuple[str, ...]  # scalars whose interval excludes zero in a's favour
    favouring_b: tuple[str, ...]
    ks: MacroKS
    advantages: Mapping[str, Estimate]
    tests: Mapping[str, ScalarTest]
    logrank: Logrank | None  # None when it is not estimable
    alpha: float
    needed: NeededEpisodes | None = None  # episodes a cell for 80 % power; None when no curve can be planned from
    without_reference: tuple[str, ...] = ()  # strata left out of HRT and AUC vs reference: the reference lacks them
    p_corrected: float | None = None  # the gate's p-value after correction over pairs, when there are several

    @property
    def n_for_power(self) -> float | None:
        """Episodes a cell for 80 % power of the gate; infinite when no difference shows beyond chance."""
        return None if self.needed is None else self.needed.n

    @property
    def sentence(self) -> str:
        """The verdict in plain words."""
        a, b = self.policy_a, self.policy_b
        if self.verdict is Verdict.BETTER:
            other = b if self.better == a else a
            return f'{self.better} is better than {other} ({self.gate}; direction by RMST).'
        if self.verdict is Verdict.CROSSING:
            return (
                f'{a} and {b} differ ({self.gate}) and neither is better: {a} is ahead by '
                f'{_listed(self.favouring_a)}, {b} by {_listed(self.favouring_b)}.'
            )
        if self.verdict is Verdict.DIRECTION_UNRESOLVED:
            return f'{a} and {b} differ ({self.gate}); which is better is not resolved.'
        return f'{a} and {b} are not told apart at this N ({self.gate}).{self._need}'

    @property
    def _need(self) -> str:
        if self.needed is None or self.needed.interval is None:
            return ''
        low, high = self.needed.interval
        share = f'{self.needed.power:.0%} power'
        if math.isinf(self.needed.n):
            bound = '' if math.isinf(low) else f'; at least {low:.0f} ({self.needed.level:.0%})'
            return f' No difference shows beyond chance, so no N promises {share}{bound}.'
        upper = 'any number' if math.isinf(high) else f'{high:.0f}'
        return (
            f' For {share} about {self.needed.n:.0f} episodes a cell are needed '
            f'({self.needed.level:.0%} interval {low:.0f} to {upper}).'
        )

    @property
    def gate(self) -> str:
        """The p-value that decided whether they differ, in words."""
        corrected = '' if self.p_corrected is None else f', {self.p_corrected:.3g} after Holm'
        return f'macro KS p = {self.ks.p_value:.3g}{corrected}'


def _listed(names: Sequence[str]) -> str:
    *first, last = (scalar_label(name) for name in names)
    return f'{", ".join(first)} and {last}' if first else last


def compare_timing(
    a: Mapping[str, Operations], b: Mapping[str, Operations], *, rng: np.random.Generator,
    reference: Mapping[str, Operations] | None = None, names: tuple[str, str] = ('a', 'b'),
    scale: Scale | None = None, ks_tau_s: float | None = None, n_resamples: int = 2000, alpha: float = 0.05,
    method: NullMethod | str = NullMethod.PERMUTATION, missing: str = 'refuse', planned: Planned | str = Planned.ALL,
    threads: int | None = None,
) -> TimingComparison:  # fmt: skip
    """Compare two policies given as stratum -> Operations.

    The macro KS at `alpha` decides whether they differ. If they do: scalars whose intervals exclude zero on both sides
    make it a crossing; else the macro RMST difference gives the direction when its interval excludes zero. With
    'paired_swap' matched episodes are swapped, and resampled, together.
    """
    return _compare(
        a, b, reference, rng=rng, names=names, times=scale or Scale(), ks_tau_s=ks_tau_s, n_resamples=n_resamples,
        alpha=alpha, method=NullMethod(method), missing=missing, planned=Planned(planned), threads=threads,
    )  # fmt: skip


def _compare(
    a: Mapping[str, Operations], b: Mapping[str, Operations], reference: Mapping[str, Operations] | None, *,
    rng: np.random.Generator, names: tuple[str, str], times: Scale, ks_tau_s: float | None, n_resamples: int,
    alpha: float, method: NullMethod, missing: str, planned: Planned, threads: int | None,
    resampled: _Resampled | None = None,
) -> TimingComparison:  # fmt: skip
    """compare_timing, with cells that were resampled before where given."""
    if not 0 < alpha < 1:
        raise InputError(f'alpha is {alpha}, wanted a number between 0 and 1')
    both, _ = shared_strata(a, b, missing=missing)
    first, second = {s: a[s] for s in both}, {s: b[s] for s in both}
    if reference is not None:
        check_cells(reference)
    paired = method is NullMethod.PAIRED_SWAP
    if paired:
        first, second = match_scenes(first, second)
    ks = macro_ks(
        a, b, n_resamples=n_resamples, rng=rng, tau_s=ks_tau_s, method=method, missing=missing, threads=threads
    )
    advantages = _advantages(
        first, second, reference, times, paired=paired, n_resamples=n_resamples, rng=rng, level=1 - alpha,
        threads=threads, resampled=None if paired else resampled,
    )  # fmt: skip
    tests = scalar_tests(
        first, second, tau_s=times.tau_s, thresholds_s=sorted({*times.thresholds_s, times.tau_s}),
        n_resamples=n_resamples, rng=rng,
        method=method, threads=threads,
    )  # fmt: skip
    for_a = tuple(n for n, e in advantages.items() if e.percentile is not None and e.percentile.low > 0)
    for_b = tuple(n for n, e in advantages.items() if e.percentile is not None and e.percentile.high < 0)
    verdict, better = _decide(ks, for_a, for_b, names, alpha)
    needed = None
    if _is_planned(verdict, planned):
        needed = _needed_or_none(first, second, rng=rng, alpha=alpha, tau_s=ks_tau_s, method=method)
    return TimingComparison(
        policy_a=names[0], policy_b=names[1], verdict=verdict, better=better, favouring_a=for_a, favouring_b=for_b,
        ks=ks, advantages=advantages, tests=tests, logrank=_logrank_or_none(first, second), alpha=alpha,
        needed=needed,
        without_reference=tuple(s for s in first if reference is not None and not _has(reference, s)),
    )  # fmt: skip


def _is_planned(verdict: Verdict, planned: Planned | str) -> bool:
    return {Planned.ALL: True, Planned.NONE: False, Planned.UNRESOLVED: verdict is Verdict.UNRESOLVED}[Planned(planned)]


@dataclass(frozen=True, slots=True, eq=False)
class _Resampled:
    """Both arms and the reference, resampled for many pairs at once."""

    a: Mapping[str, ResampledCell]
    b: Mapping[str, ResampledCell]
    reference: Mapping[str, ResampledCell] | None


def _has(cells: Mapping[str, Operations], stratum: str) -> bool:
    return stratum in cells and cells[stratum].n_operations > 0


def _decide(
    ks: MacroKS, for_a: Sequence[str], for_b: Sequence[str], names: tuple[str, str], alpha: float
) -> tuple[Verdict, str | None]:
    if ks.p_value > alpha:
        return Verdict.UNRESOLVED, None
    if for_a and for_b:
        return Verdict.CROSSING, None
    if 'rmst_s' in for_a:
        return Verdict.BETTER, names[0]
    if 'rmst_s' in for_b:
        return Verdict.BETTER, names[1]
    return Verdict.DIRECTION_UNRESOLVED, None


def _needed_or_none(
    a: Mapping[str, Operations], b: Mapping[str, Operations], *, rng: np.random.Generator, alpha: float,
    tau_s: float | None, method: NullMethod | str,
) -> NeededEpisodes | None:  # fmt: skip
    from trialist.errors import NotEstimable

    if min(cell.n_episodes for arm in (a, b) for cell in arm.values()) < FEWEST_FOR_PLANNING:
        return None
    try:
        return needed_episodes(a, b, rng=rng, alpha=alpha, tau_s=tau_s, method=method)
    except NotEstimable:
        return None


def _logrank_or_none(a: Mapping[str, Operations], b: Mapping[str, Operations]) -> Logrank | None:
    from trialist.errors import NotEstimable

    try:
        return logrank(a, b)
    except NotEstimable:
        return None


def _advantages(
    a: Mapping[str, Operations], b: Mapping[str, Operations], reference: Mapping[str, Operations] | None,
    times: Scale, *, paired: bool, n_resamples: int, rng: np.random.Generator, level: float, threads: int | None,
    resampled: _Resampled | None,
) -> dict[str, Estimate]:  # fmt: skip
    """Macro differences of scalars, oriented so that positive favours a."""
    if resampled is None:
        ours, theirs = (resampled_cells(c, n_resamples=n_resamples, rng=rng, threads=threads) for c in (a, b))
    else:
        ours, theirs = ({s: cells[s] for s in a} for cells in (resampled.a, resampled.b))
    if paired:
        # One stream for both arms draws both episodes of a matched pair.
        theirs = {s: replace(cell, seed=ours[s].seed) for s, cell in theirs.items()}
    first, second = _macro_scalars(ours, times), _macro_scalars(theirs, times)
    signs = {'rmst_s': -1.0, 'hard_failure': -1.0}
    found = {name: _signed(difference(first[name], second[name]), signs.get(name, 1.0)) for name in first}
    between = [
        auc_draws(a[s], b[s], seeds=(ours[s].seed, theirs[s].seed), tau_s=times.tau_s, n_resamples=n_resamples,
                  threads=threads)
        for s in a
    ]  # fmt: skip
    found['auc_between'] = _shifted(macro_mean(between), -0.5)
    if reference is not None:
        human = resampled.reference if resampled is not None else None
        found |= _reference_advantages(a, b, reference, ours, theirs, times, rng=rng, threads=threads, human=human)
    if paired:
        anchored = 0 if reference is None else sum(_has(reference, s) for s in a)
        found = {
            name: pair_left_out(d, _matched_groups(name, anchored if name in AGAINST_REFERENCE else len(a)))
            for name, d in found.items()
        }
    return {name: estimate(d, level=level) for name, d in found.items()}


def _matched_groups(name: str, n_strata: int) -> list[tuple[int, int]]:
    """Which groups of left-out episodes are the two sides of matched pairs."""
    if name == 'hrt':  # reference, a, b in each stratum
        return [(3 * k + 1, 3 * k + 2) for k in range(n_strata)]
    if name == 'auc_vs_reference':  # a, b, reference
        return [(3 * k, 3 * k + 1) for k in range(n_strata)]
    if name == 'auc_between':  # a, b
        return [(2 * k, 2 * k + 1) for k in range(n_strata)]
    return [(k, n_strata + k) for k in range(n_strata)]


def _macro_scalars(cells: Mapping[str, ResampledCell], times: Scale) -> dict[str, Draws]:
    per = []
    for cell in cells.values():
        mean_s, done, _, plateau = cell.scalars(times.tau_s)
        chances = {
            f'chance_{t:g}s': d for t, d in zip(times.thresholds_s, cell.chances(times.thresholds_s), strict=True)
        }
        hard = _shifted(_signed(plateau, -1.0), 1.0)
        per.append({'rmst_s': mean_s, **chances, f'chance_{times.tau_s:g}s': done, 'hard_failure': hard})
    return {name: macro_mean([p[name] for p in per]) for name in per[0]}


def _reference_advantages(
    a: Mapping[str, Operations], b: Mapping[str, Operations], reference: Mapping[str, Operations],
    ours: Mapping[str, ResampledCell], theirs: Mapping[str, ResampledCell], times: Scale, *,
    rng: np.random.Generator, threads: int | None, human: Mapping[str, ResampledCell] | None = None,
) -> dict[str, Draws]:  # fmt: skip
    """HRT and AUC-vs-reference differences; both policies see the same resampled reference."""
    strata = [s for s in a if _has(reference, s)]
    if not strata:
        return {}
    n_resamples = next(iter(ours.values())).n_resamples
    if human is None:
        human = resampled_cells({s: reference[s] for s in strata}, n_resamples=n_resamples, rng=rng, threads=threads)
    anchors = {s: human[s] for s in strata}
    ratios = [
        combine(lambda r, x, y: r / x - r / y, [side[s].rmst(times.tau_s) for side in (anchors, ours, theirs)])
        for s in strata
    ]

    def area(cell: Operations, own: ResampledCell, stratum: str) -> Draws:
        anchor = anchors[stratum].seed
        return own.once(
            ('auc', int(anchor), times.tau_s),
            lambda: auc_draws(cell, reference[stratum], seeds=(own.seed, anchor), tau_s=times.tau_s,
                              n_resamples=n_resamples, threads=threads),
        )  # fmt: skip

    areas = [_shared_difference(area(a[s], ours[s], s), area(b[s], theirs[s], s)) for s in strata]
    return {'hrt': macro_mean(ratios), 'auc_vs_reference': macro_mean(areas)}


def _shared_difference(a: Draws, b: Draws) -> Draws:
    """The difference where group 1 of both are the same (the reference's) episodes, left out of both at once."""
    own_a, own_b = a.left_out[a.group == 0] - b.value, a.value - b.left_out[b.group == 0]
    shared = a.left_out[a.group == 1] - b.left_out[b.group == 1]
    left = [own_a, own_b, shared]
    group = np.repeat([0, 1, 2], [len(part) for part in left])
    return Draws(a.value - b.value, a.draws - b.draws, np.concatenate(left), group.astype(np.int64))


def _signed(sample: Draws, sign: float) -> Draws:
    # Adding 0 turns -0 into 0.
    return Draws(sign * sample.value + 0.0, sign * sample.draws + 0.0, sign * sample.left_out + 0.0, sample.group)


def _shifted(sample: Draws, by: float) -> Draws:
    return Draws(sample.value + by, sample.draws + by, sample.left_out + by, sample.group)


@dataclass(frozen=True, slots=True, eq=False)
class AllPairs:
    """Every pair of policies, best RMST first; policies that share a letter are not told apart."""

    policies: tuple[str, ...]
    letters: Mapping[str, str]
    comparisons: tuple[TimingComparison, ...]
    p_holm: tuple[float, ...]  # macro-KS p-values of the comparisons, corrected over all pairs
    alpha: float

    @property
    def n_resamples(self) -> int:
        """Permutations of each pair's gate."""
        return min(c.ks.n_resamples for c in self.comparisons)

    @property
    def fewest_resamples(self) -> int:
        """Permutations below which Holm's correction leaves every pair unresolved, however far apart they are."""
        return math.ceil(len(self.comparisons) / self.alpha) - 1

    @property
    def is_resolvable(self) -> bool:
        """Whether the smallest p-value that these permutations can give would survive the correction."""
        return self.n_resamples >= self.fewest_resamples


def compare_all(
    found: Sequence[Cohort], *, rng: np.random.Generator, reference: Cohort | None = None, scale: Scale | None = None,
    ks_tau_s: float | None = None, n_resamples: int = 2000, alpha: float = 0.05,
    method: NullMethod | str = NullMethod.PERMUTATION, missing: str = 'refuse', planned: Planned | str = Planned.ALL,
    threads: int | None = None,
) -> AllPairs:  # fmt: skip
    """Compare all pairs; letters and verdicts both go by the macro-KS p-values after Holm's correction.

    A policy's episodes are resampled once for all of its pairs. Every pair has a random stream of its own for the rest,
    so that its numbers depend neither on the threads nor on `planned`;
    planned='unresolved' works out the needed episodes of what the corrected p-values leave unresolved.
    """
    if len(found) < 2:
        raise InputError(f'wanted at least two policies to compare, found {len(found)}')
    times = scale or Scale()
    ranked = sorted(found, key=lambda c: _macro_rmst(c, times.tau_s))
    pairs = list(itertools.combinations(range(len(ranked)), 2))
    streams = [np.random.default_rng(int(stream_seed(rng))) for _ in pairs]
    outer, inner = _shared_out(len(pairs), threads)
    resampled = [resampled_cells(c.cells, n_resamples=n_resamples, rng=rng, threads=inner) for c in ranked]
    anchor = None if reference is None else reference.cells
    human = None if anchor is None else resampled_cells(anchor, n_resamples=n_resamples, rng=rng, threads=inner)

    def compare(pair: tuple[int, int], stream: np.random.Generator) -> TimingComparison:
        i, j = pair
        return _compare(
            ranked[i].cells, ranked[j].cells, anchor, rng=stream, names=(ranked[i].policy, ranked[j].policy),
            times=times, ks_tau_s=ks_tau_s, n_resamples=n_resamples, alpha=alpha, method=NullMethod(method),
            missing=missing, planned=Planned.ALL if Planned(planned) is Planned.ALL else Planned.NONE, threads=inner,
            resampled=_Resampled(resampled[i], resampled[j], human),
        )  # fmt: skip

    with ThreadPoolExecutor(outer) as pool:
        comparisons = tuple(pool.map(compare, pairs, streams))
        adjusted = holm([c.ks.p_value for c in comparisons])
        judged = tuple(_corrected(c, float(p), alpha) for c, p in zip(comparisons, adjusted, strict=True))
        if Planned(planned) is Planned.UNRESOLVED:
            arms = [(ranked[i].cells, ranked[j].cells) for i, j in pairs]
            plan = partial(_plan_unresolved, tau_s=ks_tau_s, missing=missing)
            # Many strata are many short calls, and threads would only wait for each other between them.
            spread = pool.map if max(len(c.cells) for c in ranked) <= MOST_STRATA_IN_THREADS else map
            judged = tuple(spread(plan, judged, arms, streams))
    letters = letter_groups(different_matrix(pairs, list(adjusted), k=len(ranked), alpha=alpha))
    names = tuple(c.policy for c in ranked)
    return AllPairs(names, dict(zip(names, letters, strict=True)), judged, tuple(map(float, adjusted)), alpha)


def _shared_out(n_pairs: int, threads: int | None) -> tuple[int, int | None]:
    """Threads over pairs, and within each: all go over pairs when there are enough of them."""
    wanted = threads if threads is not None else available_cores()
    return (wanted, 1) if n_pairs >= 2 * wanted else (1, threads)


def _corrected(found: TimingComparison, p: float, alpha: float) -> TimingComparison:
    """The comparison as one of many: what the corrected p-value does not resolve is unresolved."""
    if p <= alpha:
        return replace(found, p_corrected=p)
    return replace(found, p_corrected=p, verdict=Verdict.UNRESOLVED, better=None)


def _plan_unresolved(
    found: TimingComparison, arms: tuple[Mapping[str, Operations], Mapping[str, Operations]],
    rng: np.random.Generator, *, tau_s: float | None, missing: str,
) -> TimingComparison:  # fmt: skip
    """The comparison with the needed episodes, if it is unresolved."""
    if found.verdict is not Verdict.UNRESOLVED:
        return found
    both, _ = shared_strata(*arms, missing=missing)
    first, second = ({s: cells[s] for s in both} for cells in arms)
    if found.ks.method is NullMethod.PAIRED_SWAP:
        first, second = match_scenes(first, second)
    needed = _needed_or_none(first, second, rng=rng, alpha=found.alpha, tau_s=tau_s, method=found.ks.method)
    return replace(found, needed=needed)


def _macro_rmst(cohort: Cohort, tau_s: float) -> float:
    from trialist.timing.curve import rmst, success_curve

    if not cohort.cells:
        raise InputError(f'{cohort.policy}: no valid episode gives an operation; leave it out of the comparison')
    return float(np.mean([rmst(success_curve(c.durations_s, c.observed), tau_s) for c in cohort.cells.values()]))
