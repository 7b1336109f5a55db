"""All pairs on every endpoint: primary claims corrected together, secondary ones in their order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from robotrials.stats import Verdict
from robotrials.stats.success_pair import SuccessPair, UnitShares, matched_shares, share_difference
from robotrials.verdict.analysis.absent import Absent
from robotrials.verdict.analysis.frame import ComparisonFrame
from robotrials.verdict.analysis.needed import NeededUnits, needed_units
from robotrials.verdict.analysis.pairs import TimeComparison, compare_cells
from robotrials.verdict.analysis.success import Flag, Rates, compare_rates, is_matched, shares_of, start_labels
from robotrials.verdict.analysis.times import Times
from robotrials.verdict.analysis.verdict import EndpointPairs, PairVerdict, corrected, lettered
from robotrials.verdict.planning.analysis_plan import AnalysisPlan, Correction, EndpointName

Stream = Callable[..., np.random.Generator]
Advance = Callable[[int], None]  # told how many pairs are done


@dataclass(frozen=True, slots=True, eq=False)
class Comparisons:
    """Every pair on every endpoint, primary ones first."""

    primary: tuple[EndpointName, ...]
    endpoints: Mapping[EndpointName, EndpointPairs | Absent]
    times: tuple[TimeComparison, ...] = ()  # the whole comparison of times, where there are any

    @property
    def lead(self) -> EndpointPairs | Absent:
        """The first primary endpoint: what letters and the verdict go by."""
        return self.endpoints[self.primary[0]]

    def time_pair(self, a: str, b: str) -> TimeComparison | None:
        """The comparison of times of two policies, in its canonical order."""
        return next((t for t in self.times if {t.policy_a, t.policy_b} == {a, b}), None)


def pairs_of(frame: ComparisonFrame) -> list[tuple[str, str]]:
    return list(itertools.combinations(frame.policies, 2))


def compare_times(
    frame: ComparisonFrame, times: Times, plan: AnalysisPlan, stream: Stream, *, advance: Advance | None = None
) -> tuple[TimeComparison, ...]:
    """Every pair's times to success, with p-values corrected over all pairs."""
    pairs = pairs_of(frame)
    starts = {p: start_labels(frame, p, plan) for p in frame.policies}
    found = []
    for a, b in pairs:
        cells = [times.cohorts[p].cells for p in (a, b)]
        paired = is_matched(starts[a], starts[b], plan)
        strata = [s for s in cells[0] if s in cells[1]]
        found.append(
            compare_cells(
                *cells, names=(a, b), taus_s={s: times.taus_s[s] for s in strata}, stream=stream, paired=paired,
                thresholds_s=times.scale(strata).thresholds_s, alpha=plan.alpha, n_pairs=len(pairs),
                n_resamples=plan.resamples, margin=plan.margins.get(EndpointName.TIME),
            )
        )  # fmt: skip
        if advance is not None:
            advance(len(found))
    return _corrected_times(found, plan)


def _corrected_times(found: Sequence[TimeComparison], plan: AnalysisPlan) -> tuple[TimeComparison, ...]:
    n = len(found)
    better = corrected([f.better.p_value for f in found], plan.correction, n_tests=n)
    ks = [None if isinstance(f.ks, Absent) else f.ks.p_value for f in found]
    different = corrected(ks, plan.correction, n_tests=n)
    same = corrected([f.p_same for f in found], plan.correction, n_tests=n)
    return tuple(replace(f, p_better=better[k], p_different=different[k], p_same=same[k]) for k, f in enumerate(found))


def time_verdict(found: TimeComparison) -> PairVerdict:
    """The comparison of times as a pair on the endpoint `time`."""
    return PairVerdict(
        endpoint=EndpointName.TIME, policy_a=found.policy_a, policy_b=found.policy_b,
        difference=found.better.difference, interval=found.better.interval, p_value=found.better.p_value,
        test='paired jackknife-t with allowance' if found.better.is_paired else 'jackknife-t with allowance',
        is_paired=found.better.is_paired, n_units=found.better.n_units, unit=str(found.better.unit),
        verdict=found.verdict, better=found.winner, p_corrected=found.p_better, reversed=found.reversal.reversed,
        p_reversal=found.p_reversal, needed=found.needed, withheld=_by_name(found), n_left_out=found.better.n_left_out,
    )  # fmt: skip


def _by_name(found: TimeComparison) -> str:
    """Why no winner can be named, with the policies' own names."""
    text = found.better.withheld
    for letter, name in (('a', found.policy_a), ('b', found.policy_b)):
        if text.startswith(f'policy {letter}: '):
            return f'{name}: {text.removeprefix(f"policy {letter}: ")}'
    return text


def rate_pairs(
    frame: ComparisonFrame, plan: AnalysisPlan, stream: Stream, *, endpoint: EndpointName, flag: Flag
) -> list[PairVerdict]:
    """Every pair's difference of a rate, not yet corrected."""
    pairs = pairs_of(frame)
    arms = {p: _rate_arm(frame, p, plan, flag) for p in frame.policies}
    return [
        _rate_pair(a, b, arms, plan, stream(f'{endpoint.value} pair', a, b), endpoint=endpoint, n_pairs=len(pairs))
        for a, b in pairs
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _RateArm:
    shares: Mapping[str, UnitShares]
    n_episodes: int

    @property
    def starts(self) -> dict[str, tuple[Hashable, ...]]:
        return {stratum: part.labels for stratum, part in self.shares.items()}


def _rate_arm(frame: ComparisonFrame, policy: str, plan: AnalysisPlan, flag: Flag) -> _RateArm:
    cells = frame.ranked_cells(policy)
    return _RateArm(shares_of(frame, cells, plan, flag), sum(map(len, cells.values())))


def _rate_pair(
    a: str, b: str, arms: Mapping[str, _RateArm], plan: AnalysisPlan, rng: np.random.Generator, *,
    endpoint: EndpointName, n_pairs: int,
) -> PairVerdict:  # fmt: skip
    first, second = arms[a], arms[b]
    paired = is_matched(first.starts, second.starts, plan)
    n_episodes = [first.n_episodes, second.n_episodes]
    found = compare_rates(first.shares, second.shares, n_episodes=sum(n_episodes), plan=plan, rng=rng, paired=paired)
    repeats = found.n_units != tuple(n_episodes) and not paired
    left_out = (n_episodes[0] - found.n_units[0], n_episodes[1] - found.n_units[1]) if paired else (0, 0)
    return PairVerdict(
        endpoint=endpoint, policy_a=a, policy_b=b, difference=found.difference, interval=found.interval,
        p_value=found.p_value, test=found.test.value, is_paired=paired, n_units=found.n_units,
        unit='start state' if paired or repeats else 'episode', withheld=found.withheld, unit_text='points',
        n_left_out=left_out, needed=_rate_needed(first.shares, second.shares, found, plan, n_pairs=n_pairs),
    )  # fmt: skip


def _rate_needed(
    ours: Mapping[str, UnitShares], theirs: Mapping[str, UnitShares], found: SuccessPair, plan: AnalysisPlan, *,
    n_pairs: int,
) -> NeededUnits | None:  # fmt: skip
    if found.is_paired:
        ours, theirs = matched_shares(ours, theirs)
    rule = share_difference(list(ours.values()), [theirs[s] for s in ours], paired=found.is_paired)
    moved = rule.moved_low if found.difference > 0 else rule.moved_high
    return needed_units(
        difference=found.difference, interval=found.interval, variance=rule.variance, moved=moved,
        per_cell=sum(found.n_units) / (2 * len(ours)), alpha=plan.alpha / n_pairs,
    )  # fmt: skip


def judged_rates(
    pairs: Sequence[PairVerdict], plan: AnalysisPlan, *, n_tests: int, correction: Correction
) -> list[PairVerdict]:
    """One claim: better, or unresolved; where strata significantly disagree, it depends on the stratum."""
    adjusted = corrected([p.p_value for p in pairs], correction, n_tests=n_tests)
    judged = []
    for pair, p in zip(pairs, adjusted, strict=True):
        winner = None
        is_mixed = pair.p_reversal is not None and pair.p_reversal <= plan.alpha
        if p is not None and p <= plan.alpha and pair.difference != 0 and not is_mixed:
            winner = pair.policy_a if pair.difference > 0 else pair.policy_b
        verdict = Verdict.DEPENDS if is_mixed else Verdict.BETTER if winner else Verdict.UNRESOLVED
        judged.append(replace(pair, p_corrected=p, verdict=verdict, better=winner))
    return judged


def ordered_by_rate(frame: ComparisonFrame, rates: Rates) -> tuple[str, ...]:
    """Highest macro rate first; equal ones by name."""
    return tuple(sorted(frame.policies, key=lambda p: (-(rates.macro[p].value or 0.0), p)))


def gather(
    endpoint: EndpointName, policies: Sequence[str], pairs: Sequence[PairVerdict], plan: AnalysisPlan, *,
    is_primary: bool, n_tests: int, correction: Correction,
) -> EndpointPairs:  # fmt: skip
    return EndpointPairs(
        endpoint=endpoint, is_primary=is_primary, policies=tuple(policies), pairs=tuple(pairs),
        letters=lettered(policies, pairs, plan.alpha), alpha=plan.alpha, correction=correction, n_tests=n_tests,
    )  # fmt: skip


def gated(pairs: Sequence[PairVerdict], before: Sequence[EndpointPairs]) -> list[PairVerdict]:
    """A secondary claim is confirmatory for a pair only where every endpoint before it was resolved."""
    found = []
    for pair in pairs:
        earlier = [e.pair(pair.policy_a, pair.policy_b) for e in before]
        is_open = all(p.verdict is Verdict.BETTER for p in earlier)
        found.append(replace(pair, is_confirmatory=is_open))
    return found
