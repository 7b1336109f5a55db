"""All pairs of policies on every endpoint: contrasts, one list of claims, verdicts, and times to success.

A claim that one episode would undo is a claim all the same, but a reader should know on how many outcomes it rests.
Successes of the policy that is ahead are turned into failures, those first that weigh most: at starts where the other
failed, in the smallest cells. The count is enough to undo the claim; another choice of episodes might need one less.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from types import NoneType
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.better import better
from robotrials.measure.timing.curve import Endpoint, check_tau, common_follow_up
from robotrials.record import Episode
from robotrials.record.blinding import ALL_ARMS
from robotrials.stats import Estimate, Interval, different_matrix, letter_groups
from robotrials.stats.dominance import Claim, PairFlags, adjusted_p_values, judge
from robotrials.stats.interval import check_count, check_open_unit, check_rng
from robotrials.stats.matching import fewest_for_claim
from robotrials.value import dataclass
from robotrials.verdict.analysis.arm import success_of
from robotrials.verdict.analysis.contrast import Contrast, contrast
from robotrials.verdict.analysis.selection import Absent, or_absent, present
from robotrials.verdict.planning.analysis_plan import Correction, EndpointName

if TYPE_CHECKING:
    from robotrials.measure.timing import Logrank, MacroKS, Operations
    from robotrials.measure.timing.better import Better
    from robotrials.measure.timing.curve import CommonFollowUp
    from robotrials.measure.timing.curve_test import Reversal
    from robotrials.stats.dominance import Judgement, PairDecision
    from robotrials.verdict.analysis.analysis import Analysis
    from robotrials.verdict.analysis.arm import Side
    from robotrials.verdict.analysis.contrast import ContrastCell, NeededUnits
    from robotrials.verdict.analysis.ranking import Rates, Stream, Times
    from robotrials.verdict.analysis.selection import ComparisonFrame
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan


class Standing(enum.StrEnum):
    """What may be said of two policies on one endpoint; "better" is never said of one endpoint alone."""

    AHEAD = 'ahead'
    DEPENDS = 'depends on the stratum'
    SAME = 'the same within the margin'
    UNRESOLVED = 'unresolved'


@dataclass(frozen=True, slots=True, eq=False)
class EndpointVerdict:
    """Two policies on one endpoint: their contrast, and what the list of claims makes of it. > 0 favours policy a."""

    contrast: Contrast
    standing: Standing = Standing.UNRESOLVED
    ahead: str | None = None  # who the claim is for, only with Standing.AHEAD
    is_confirmatory: bool = True  # False: exploratory, because the endpoint is not a primary one
    p_same: float | None = None  # of equivalence within the margin, corrected over pairs
    p_reversal: float | None = None  # that cells truly point different ways, corrected over pairs
    reversed: tuple[ContrastCell, ...] = ()  # cells in which the order is shown to be the other one
    plan_needed: Callable[[], NeededUnits | None] = NoneType  # searches for it the first time; here nothing to find

    @property
    def needed(self) -> NeededUnits | None:
        """The units that would resolve the pair, from whichever side it is told; cards want those of open pairs."""
        return self.plan_needed()

    @property
    def endpoint(self) -> EndpointName:
        return self.contrast.endpoint

    @property
    def policy_a(self) -> str:
        return self.contrast.a

    @property
    def policy_b(self) -> str:
        return self.contrast.b

    @property
    def effect(self) -> Estimate:
        """The size of the effect: seconds less, or a difference of rates, or items fewer."""
        seconds = self.contrast.seconds_ahead
        if seconds is not None:
            return seconds
        if self.endpoint is EndpointName.LOST:
            return Estimate(self.contrast.values[1] - self.contrast.values[0])
        return Estimate(self.contrast.estimate, self.contrast.interval)

    @property
    def difference(self) -> float:
        return self.effect.value or 0.0

    @property
    def interval(self) -> Interval | None:
        return self.effect.interval

    @property
    def p_value(self) -> float | None:
        return self.contrast.p_value

    @property
    def p_corrected(self) -> float | None:
        return self.contrast.p_adjusted

    @property
    def test(self) -> str:
        return self.contrast.test

    @property
    def is_paired(self) -> bool:
        return self.contrast.is_matched

    @property
    def n_units(self) -> tuple[int, int]:
        return self.contrast.n_units

    @property
    def unit(self) -> str:
        return self.contrast.unit

    @property
    def withheld(self) -> str:
        return self.contrast.withheld

    @property
    def unit_text(self) -> str:
        """Of the difference."""
        if self.endpoint is EndpointName.LOST:
            return 'items'
        return 's' if self.contrast.seconds is not None else 'points'

    @property
    def scale(self) -> float:
        """What the difference is multiplied by where it is shown."""
        return 100.0 if self.unit_text == 'points' else 1.0

    def seen_from(self, policy: str) -> EndpointVerdict:
        """The same comparison told from the side of `policy`."""
        if policy == self.policy_a:
            return self
        return replace(self, contrast=self.contrast.seen_from(policy), reversed=tuple(c.turned for c in self.reversed))

    @property
    def is_resolved(self) -> bool:
        return self.standing is not Standing.UNRESOLVED


@dataclass(frozen=True, slots=True, eq=False)
class EndpointPairs:
    """All pairs on one endpoint, and letters: policies sharing a letter are not significantly different on it."""

    endpoint: EndpointName
    is_primary: bool
    policies: tuple[str, ...]  # best first
    pairs: tuple[EndpointVerdict, ...]  # canonical: policy_a before policy_b by name
    letters: Mapping[str, str]
    alpha: float
    correction: Correction
    n_tests: int  # that the correction is over

    def pair(self, a: str, b: str) -> EndpointVerdict:
        """The comparison of two policies, told from the side of `a`."""
        match = next(p for p in self.pairs if {p.policy_a, p.policy_b} == {a, b})
        return match.seen_from(a)

    def oriented(self) -> tuple[EndpointVerdict, ...]:
        """Every pair, told from the side of the policy that is ranked higher."""
        return tuple(self.pair(a, b) for a, b in itertools.combinations(self.policies, 2))


def lettered(policies: Sequence[str], pairs: Sequence[EndpointVerdict]) -> dict[str, str]:
    """Letters by the claims that were made, best policy first: the same decisions as the words."""
    place = {name: k for k, name in enumerate(policies)}
    index = [tuple(sorted((place[p.policy_a], place[p.policy_b]))) for p in pairs]
    told_apart = [0.0 if p.standing in (Standing.AHEAD, Standing.DEPENDS) else 1.0 for p in pairs]
    matrix = different_matrix([(i, j) for i, j in index], told_apart, k=len(policies), alpha=0.5)
    return dict(zip(policies, letter_groups(matrix), strict=True))


def too_few(frame: ComparisonFrame) -> Absent | None:
    """Why there is no pair to compare; None when there is one."""
    policies, reference = frame.policies, frame.reference
    if len(policies) >= 2:
        return None
    if frame.everyone == (ALL_ARMS,):
        return Absent(
            'this trial is still blinded: its arms cannot be compared before it is closed',
            'when every episode has run: robotrials close TRIAL.toml --store STORE --by NAME',
        )
    if frame.unscored and not frame.apart:
        counts = '; '.join(f'{p}: {n} invalid' for p, n in list(frame.unscored.items())[:3])
        return Absent(f'fewer than two policies have a valid episode ({counts})', 'run them again')
    if frame.apart:
        counts = '; '.join(f'{p}: {why}' for p, why in list(frame.apart.items())[:3])
        return Absent(f'fewer than two policies can be ranked ({counts})', 'run every policy on the same strata')
    remedy = 'a comparison wants two; bring another on the same tasks'
    if not policies:
        return Absent('only the reference was tested', remedy)
    beside = ' beside the reference' if reference is not None else ''
    return Absent(f'only one policy was tested{beside}', remedy)


# The price of a claim: the fewest units per policy at which any could be made, however clear the data.


@dataclass(frozen=True, slots=True)
class WinnerPrice:
    """What a claim costs, on whichever primary endpoint comes cheapest."""

    n_tests: int  # that p-values are corrected over
    alpha: float
    per_policy: int  # units per policy below which nothing can be claimed of any pair, however far apart
    unit: str


def winner_price(tested: Sequence[EndpointPairs]) -> WinnerPrice:
    """The price under the correction that the primary endpoints are judged with."""
    first = tested[0]
    n = 1 if first.correction is Correction.NONE else first.n_tests
    least = min(_fewest(endpoint, n) for endpoint in tested)
    return WinnerPrice(n, first.alpha, least, first.pairs[0].unit)


def _fewest(endpoint: EndpointPairs, n_tests: int) -> int:
    if endpoint.endpoint in (EndpointName.SUCCESS, EndpointName.SAFETY):
        return fewest_for_rates(n_tests, alpha=endpoint.alpha, paired=all(p.is_paired for p in endpoint.pairs))
    return fewest_for_claim(n_tests, alpha=endpoint.alpha)


def fewest_for_rates(n_tests: int, *, alpha: float, paired: bool) -> int:
    """Units per policy at which an exact test of all against none first reaches alpha over the tests.

    Paired: McNemar's sign test, 2 / 2^n. Independent: Fisher's test, 2 / C(2n, n).

    >>> fewest_for_rates(1, alpha=0.05, paired=True), fewest_for_rates(1, alpha=0.05, paired=False)
    (6, 4)
    """
    wanted, n = alpha / n_tests, 1
    while 2 / (2**n if paired else math.comb(2 * n, n)) > wanted:
        n += 1
    return n


Advance = Callable[[int], None]  # told how many pairs are done
Contrasts = Mapping[EndpointName, Sequence[Contrast]]


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Every pair on every endpoint, primary ones first, and what the primary ones say of each pair together."""

    primary: tuple[EndpointName, ...]
    endpoints: Mapping[EndpointName, EndpointPairs | Absent]
    decisions: tuple[PairDecision, ...] = ()
    compare_times: Callable[[], tuple[TimeComparison, ...]] = tuple
    readings: BothReadings | None = None  # what invalid episodes could turn; None where there are none

    @cached_property
    def times(self) -> tuple[TimeComparison, ...]:
        """The shapes of curves and their scalars, where there are times: no decision needs them, and no card."""
        return self.compare_times()

    @property
    def lead(self) -> EndpointPairs | Absent:
        """The first primary endpoint, which is told first."""
        return self.endpoints[self.primary[0]]

    @property
    def tested(self) -> tuple[EndpointPairs, ...]:
        """The primary endpoints that could be judged."""
        endpoints = (self.endpoints[name] for name in self.primary)
        return tuple(f for f in endpoints if isinstance(f, EndpointPairs))

    def decision(self, a: str, b: str) -> PairDecision:
        """What is said of two policies over all primary endpoints."""
        return next(d for d in self.decisions if set(d.pair) == {a, b})

    def time_pair(self, a: str, b: str) -> TimeComparison | None:
        """The comparison of times of two policies, in its canonical order."""
        return next((t for t in self.times if {t.policy_a, t.policy_b} == {a, b}), None)


def pairs_of(frame: ComparisonFrame) -> list[tuple[str, str]]:
    return list(itertools.combinations(frame.policies, 2))


def compare_shapes(
    contrasts: Sequence[Contrast], sides: Mapping[str, Side], times: Times, plan: AnalysisPlan, stream: Stream, *,
    advance: Advance | None = None,
) -> tuple[TimeComparison, ...]:  # fmt: skip
    """Whether curves differ anywhere, and every scalar of them, pair by pair; the KS p-values corrected over pairs."""
    comparisons = []
    for pair in contrasts:
        names = [c.name for c in pair.cells]
        a, b = ({c: sides[p].operations(c) for c in names} for p in (pair.a, pair.b))
        assert pair.seconds is not None
        comparisons.append(
            compare_cells(
                a, b, names=(pair.a, pair.b), primary=pair.seconds, stream=stream, n_resamples=plan.resamples,
                thresholds_s=times.scale_of(pair.taus_s).thresholds_s,
            )
        )  # fmt: skip
        if advance is not None:
            advance(len(comparisons))
    ks = [None if isinstance(f.ks, Absent) else f.ks.p_value for f in comparisons]
    adjusted = adjusted_p_values(ks, plan.correction.value)
    return tuple(
        replace(f, p_different=p, n_pairs=len(comparisons)) for f, p in zip(comparisons, adjusted, strict=True)
    )


def pair_contrasts(
    sides: Mapping[str, Side], pairs: Sequence[tuple[str, str]], plan: AnalysisPlan, *, endpoint: EndpointName,
    value: Callable[..., float] | None = None,
) -> list[Contrast]:  # fmt: skip
    """The contrast of every pair on one endpoint."""
    return [contrast(sides[a], sides[b], endpoint=endpoint, plan=plan, value=value) for a, b in pairs]


def judged(
    contrasts: Contrasts, plan: AnalysisPlan, primary: Sequence[EndpointName], *,
    chances: Mapping[str, int] | None = None,
) -> Judgement:  # fmt: skip
    """One list over all pairs and primary endpoints, and the decision of each pair.

    chances: how many tries of its account a policy is the best of; a claim in its favour is tested at alpha over them.
    """
    listed = [c for name in primary if name in contrasts for c in contrasts[name]]
    claims = [
        Claim((c.a, c.b), c.endpoint.value, _p_value(c, chances or {}), _favours(c), c.p_behind(c.a), c.p_behind(c.b))
        for c in listed
    ]
    by_pair: dict[tuple[str, str], list[Contrast]] = {}
    for c in listed:
        by_pair.setdefault((c.a, c.b), []).append(c)
    same = {name: _corrected_same(contrasts[name], plan) for name in primary if name in contrasts}
    flags = {}
    for pair, own in by_pair.items():
        reversals = [p for c in own if (p := reversal_p(c, len(by_pair))) is not None]
        flags[pair] = PairFlags(
            reverses=any(p <= plan.alpha for p in reversals), contradicts=_contradicts(own),
            is_same=all(_shown(same[c.endpoint].get(pair), plan) for c in own),
        )  # fmt: skip
    return judge(claims, alpha=plan.alpha, correction=plan.correction.value, flags=flags)


def _p_value(effect: Contrast, chances: Mapping[str, int]) -> float | None:
    return None if effect.p_value is None else min(1.0, effect.p_value * chances.get(effect.ahead or '', 1))


def _favours(effect: Contrast) -> str | None:
    return None if effect.ahead is None else 'a' if effect.ahead == effect.a else 'b'


def _shown(p: float | None, plan: AnalysisPlan) -> bool:
    return p is not None and p <= plan.alpha


def reversal_p(effect: Contrast, n_pairs: int) -> float | None:
    p = effect.p_reversal
    return None if p is None else min(1.0, p * n_pairs)


def _corrected_same(effects: Sequence[Contrast], plan: AnalysisPlan) -> dict[tuple[str, str], float | None]:
    adjusted = adjusted_p_values([c.p_same for c in effects], plan.correction.value)
    return {(c.a, c.b): p for c, p in zip(effects, adjusted, strict=True)}


def _contradicts(own: Sequence[Contrast]) -> bool:
    """Whether who is faster and who took less time point apart, and success does not explain it.

    It does where the one who is faster fails more often: then seconds pay for failures, and success tells of them.
    """
    timed = next((c for c in own if c.seconds_ahead is not None), None)
    if timed is None or not timed.advantage:
        return False
    seconds = (timed.seconds_ahead.value if timed.seconds_ahead else None) or 0.0
    if seconds * timed.advantage >= 0:
        return False
    rate = next((c for c in own if c.endpoint is EndpointName.SUCCESS), None)
    return rate is None or rate.advantage * timed.advantage >= 0


def endpoint_verdicts(
    effects: Sequence[Contrast], plan: AnalysisPlan, *, is_primary: bool, judgement: Judgement | None, n_tests: int
) -> list[EndpointVerdict]:
    """Every pair on one endpoint: primary ones by the one list, others corrected over their own pairs, exploratory."""
    if judgement is not None and is_primary:
        own = {j.claim.pair: j.p_adjusted for j in judgement.claims if j.claim.endpoint == effects[0].endpoint.value}
        adjusted = [own[c.a, c.b] for c in effects]
    else:
        adjusted = adjusted_p_values([c.p_value for c in effects], plan.correction.value)
    same = _corrected_same(effects, plan)
    return [
        _verdict(replace(c, p_adjusted=p), plan, same[c.a, c.b], len(effects), is_primary=is_primary, n_tests=n_tests)
        for c, p in zip(effects, adjusted, strict=True)
    ]


def _verdict(
    effect: Contrast, plan: AnalysisPlan, p_same: float | None, n_pairs: int, *, is_primary: bool, n_tests: int
) -> EndpointVerdict:
    p_reversal = reversal_p(effect, n_pairs)
    is_claim = effect.p_adjusted is not None and effect.p_adjusted <= plan.alpha and effect.ahead is not None
    standing, ahead = Standing.UNRESOLVED, None
    if _shown(p_reversal, plan):
        standing = Standing.DEPENDS
    elif is_claim:
        standing, ahead = Standing.AHEAD, effect.ahead
    elif _shown(p_same, plan):
        standing = Standing.SAME
    return EndpointVerdict(
        contrast=effect, standing=standing, ahead=ahead, is_confirmatory=is_primary, p_same=p_same,
        p_reversal=p_reversal, plan_needed=cache(partial(effect.needed, n_tests=n_tests)),
        reversed=effect.reversed_cells(plan.alpha) if is_claim or standing is Standing.DEPENDS else (),
    )  # fmt: skip


def ordered_by_rate(frame: ComparisonFrame, rates: Rates) -> tuple[str, ...]:
    """Highest macro rate first; equal ones by name."""
    return tuple(sorted(frame.policies, key=lambda p: (-(rates.macro[p].value or 0.0), p)))


def gather(
    endpoint: EndpointName, policies: Sequence[str], pairs: Sequence[EndpointVerdict], plan: AnalysisPlan, *,
    is_primary: bool, n_tests: int, correction: Correction,
) -> EndpointPairs:  # fmt: skip
    return EndpointPairs(
        endpoint=endpoint, is_primary=is_primary, policies=tuple(policies), pairs=tuple(pairs),
        letters=lettered(policies, pairs), alpha=plan.alpha, correction=correction, n_tests=n_tests,
    )  # fmt: skip


# Episodes that tested no policy as far as the record says: what they could turn, read both ways.
# An invalid episode is set aside, because a rig that broke says nothing of a policy. A harness that gave up without
# saying why may hide failures of the policy all the same. So where counting them as failures would change a verdict or
# an order, both readings are told.

COUNTED = (EndpointName.SUCCESS, EndpointName.TIME)


@dataclass(frozen=True, slots=True)
class BothReadings:
    """Invalid episodes set aside, as everywhere, and counted as failures."""

    n_invalid: Mapping[str, int]  # policy -> invalid episodes in compared cells
    reasons: tuple[str, ...]  # that the record gives for them
    order: tuple[str, ...]  # by episode success, best first: set aside
    order_counted: tuple[str, ...]  # counted as failures
    rates: Mapping[str, float]  # macro success, set aside
    bounds: Mapping[str, Interval]  # whatever the invalid ones were: all failures, all successes
    decisions: tuple[PairDecision, ...]
    decisions_counted: tuple[PairDecision, ...]

    @property
    def turned(self) -> tuple[tuple[PairDecision, PairDecision], ...]:
        """The pairs of which something else would be said."""
        pairs = zip(self.decisions, self.decisions_counted, strict=True)
        return tuple((a, b) for a, b in pairs if (a.verdict, a.winner) != (b.verdict, b.winner))

    @property
    def matters(self) -> bool:
        return self.order != self.order_counted or bool(self.turned)


def both_readings(
    frame: ComparisonFrame, sides: Mapping[str, Side], contrasts: Mapping[EndpointName, Sequence[Contrast]],
    plan: AnalysisPlan, primary: Sequence[EndpointName], decisions: Sequence[PairDecision],
) -> BothReadings | None:  # fmt: skip
    """What invalid episodes could turn; None where there are none among the ranked policies."""
    counted = counted_sides(frame, sides)
    n_invalid = {p: sum(map(len, side.missing.values())) for p, side in counted.items() if side.missing}
    if not n_invalid:
        return None
    pairs = [(c.a, c.b) for c in next(iter(contrasts.values()))]
    try:
        again = {
            name: pair_contrasts(counted, pairs, plan, endpoint=name)
            for name in contrasts if name in COUNTED and name in primary
        }  # fmt: skip
    except (InputError, NotEstimable):
        return None
    judgement = judged({**contrasts, **again}, plan, primary)
    set_aside, low = (_rates(own, 0.0) for own in (sides, counted))
    high = _rates(counted, 1.0)
    reasons = dict.fromkeys(e.reason for p in n_invalid for e in frame.invalid.get(p, ()) if e.reason)
    return BothReadings(
        n_invalid, tuple(reasons), _order(set_aside), _order(low), set_aside,
        {p: Interval(low[p], high[p]) for p in n_invalid}, tuple(decisions), judgement.decisions,
    )  # fmt: skip


def counted_sides(frame: ComparisonFrame, sides: Mapping[str, Side]) -> dict[str, Side]:
    """The same arms with their invalid episodes as runs that came to nothing, each a failure at its start."""
    counted = {}
    for policy, side in sides.items():
        missing: dict[str, list[Episode]] = {}
        for episode in frame.invalid.get(policy, ()):
            missing.setdefault(_cell(frame, side, episode), []).append(episode)
        counted[policy] = replace(side, missing={c: g for c, g in missing.items() if c in side.cells}, _kept={})
    return counted


def success_order(sides: Mapping[str, Side]) -> tuple[str, ...]:
    """Highest macro success first, missing runs counted as failures; equal ones by name."""
    return _order(_rates(sides, 0.0))


def _cell(frame: ComparisonFrame, side: Side, episode: Episode) -> str:
    stratum = frame.stratum_of(episode)
    return next((c for c in side.cells if c == stratum or c.startswith(f'{stratum}, ')), stratum)


def _rates(sides: Mapping[str, Side], missing_as: float) -> dict[str, float]:
    """Macro success of every policy, its missing runs counted as failures or as successes."""
    rates = {}
    for policy, side in sides.items():
        cells = []
        for cell in side.cells:
            values = side.shares(cell, success_of)
            n = len(side.missing.get(cell, ()))
            cells.append((float(values.sum()) + missing_as * n) / len(values))
        rates[policy] = sum(cells) / len(cells)
    return rates


def _order(rates: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(sorted(rates, key=lambda p: (-rates[p], p)))


ArmCells = Mapping[str, 'Operations']


@dataclass(frozen=True, slots=True, eq=False)
class TimeComparison:
    """What lies behind a contrast of times: mean times, the shapes of curves, scalars. > 0 favours policy a.

    It names no winner: who is faster is the contrast's claim, and a difference in shape is no more than that.
    """

    policy_a: str
    policy_b: str
    better: Better
    reversal: Reversal
    ks: MacroKS | Absent  # whether the curves differ anywhere
    advantages: Mapping[str, Estimate]
    logrank: Logrank | Absent
    strata: tuple[str, ...]
    n_pairs: int = 1
    p_different: float | None = None  # of the KS test, corrected over pairs

    @property
    def favouring_a(self) -> tuple[str, ...]:
        """Scalars whose interval excludes zero in a's favour."""
        return tuple(n for n, e in self.advantages.items() if e.interval is not None and e.interval.low > 0)

    @property
    def favouring_b(self) -> tuple[str, ...]:
        return tuple(n for n, e in self.advantages.items() if e.interval is not None and e.interval.high < 0)

    @property
    def crossing_text(self) -> tuple[str, str]:
        """What each side is ahead by, in words."""
        return _listed(self.favouring_a), _listed(self.favouring_b)


def _listed(names: Sequence[str]) -> str:
    from robotrials.measure.timing import scalar_label

    *first, last = (scalar_label(name) for name in names) if names else ('nothing',)
    return f'{", ".join(first)} and {last}' if first else last


def compare_cells(
    a: ArmCells, b: ArmCells, *, names: tuple[str, str], primary: Better, stream: Stream,
    thresholds_s: Sequence[float] = (30.0, 60.0), n_resamples: int = 2000,
) -> TimeComparison:  # fmt: skip
    """What lies behind the difference of mean times `primary` of two policies given as stratum -> Operations."""
    from robotrials.measure.timing import logrank, reversal

    strata = tuple(primary.tau_s)
    first, second = {s: a[s] for s in strata}, {s: b[s] for s in strata}
    follow = common_follow_up(first, second, primary.tau_s)
    return TimeComparison(
        policy_a=names[0], policy_b=names[1], better=primary, reversal=reversal(primary),
        ks=_ks(follow, primary, stream('ks', *sorted(names)), n_resamples=n_resamples),
        advantages=_advantages(first, second, primary, thresholds_s, stream, names, n_resamples, level=primary.level),
        logrank=or_absent(lambda: logrank(follow.a, follow.b)), strata=strata,
    )  # fmt: skip


def _ks(follow: CommonFollowUp, effect: Better, rng: np.random.Generator, *, n_resamples: int) -> MacroKS | Absent:
    from robotrials.measure.timing import NullMethod, macro_ks

    if effect.ks_refused:
        return Absent(effect.ks_refused, 'run both policies under one protocol')
    method = NullMethod.PAIRED_SWAP if effect.is_paired else NullMethod.PERMUTATION
    arms = [{s: _by_unit(c) for s, c in cells.items()} for cells in (follow.a, follow.b)]
    return or_absent(lambda: macro_ks(*arms, n_resamples=n_resamples, rng=rng, method=method))


def _by_unit(cell: Operations) -> Operations:
    """Whole units as what is shuffled, and as what is matched."""
    whole = cell.by_unit()
    return replace(whole, scenes=whole.units)


def _advantages(
    a: ArmCells, b: ArmCells, primary: Better, thresholds_s: Sequence[float], stream: Stream, names: tuple[str, str],
    n_resamples: int, *, level: float,
) -> dict[str, Estimate]:  # fmt: skip
    """Macro differences of scalars, oriented so that positive favours a."""
    from robotrials.measure.timing import auc

    def judged(endpoint: Endpoint, tau_s: float | Mapping[str, float]) -> Estimate:
        judgement = better(a, b, tau_s=tau_s, paired=primary.is_paired, level=level, endpoint=endpoint)
        return Estimate(judgement.difference, judgement.interval, judgement.withheld, n=sum(judgement.n_units))

    advantages = {'rmst_s': Estimate(primary.difference, primary.interval, primary.withheld, n=sum(primary.n_units))}
    least = min(primary.tau_s.values())
    for t in thresholds_s:
        if t < least:
            advantages[f'chance_{t:g}s'] = judged(Endpoint.CHANCE, t)
    advantages['chance_tau'] = judged(Endpoint.CHANCE, primary.tau_s)
    advantages['hard_failure'] = judged(Endpoint.HARD_FAILURE, primary.tau_s)
    order = sorted(names)
    sides = (a, b) if order[0] == names[0] else (b, a)
    area = or_absent(
        lambda: auc(*sides, tau_s=primary.tau_s, n_resamples=n_resamples, rng=stream('auc', *order), level=level)
    )
    if not isinstance(area, Absent):
        advantages['auc_between'] = area.macro.shifted(-0.5).scaled(1.0 if order[0] == names[0] else -1.0)
    return advantages


def compare_timing(
    a: ArmCells, b: ArmCells, *, rng: np.random.Generator, names: tuple[str, str] = ('a', 'b'),
    tau_s: float | Mapping[str, float] = 240.0, paired: bool = False, thresholds_s: Sequence[float] = (30.0, 60.0),
    alpha: float = 0.05, n_resamples: int = 2000,
) -> TimeComparison:  # fmt: skip
    """Mean times, curves and scalars of two policies given as stratum -> Operations: a single pair.

    `rng` feeds the permutations of the KS test and the interval of AUC. Who is faster is asked of episodes
    (`robotrials.load(...).compare()`), whose starts and items operations no longer know.
    """
    from robotrials.measure.timing.scalar import check_cells

    for cells in (a, b):
        check_cells(cells)
    check_rng(rng)
    check_count('n_resamples', n_resamples, least=1)
    check_open_unit('alpha', alpha)
    for time_s in tau_s.values() if isinstance(tau_s, Mapping) else (tau_s,):
        check_tau(time_s)
    streams = {'ks': rng, 'auc': rng}
    strata = [s for s in sorted(a) if s in b]
    first, second = {s: a[s] for s in strata}, {s: b[s] for s in strata}
    comparison = compare_cells(
        first, second, names=names, primary=better(first, second, tau_s=tau_s, paired=paired, level=1 - alpha),
        stream=lambda quantity, *_: streams[quantity], thresholds_s=thresholds_s, n_resamples=n_resamples,
    )  # fmt: skip
    return replace(comparison, p_different=None if isinstance(comparison.ks, Absent) else comparison.ks.p_value)


MOST_EPISODES = 5_000  # of a pair: beyond, no handful of episodes decides, and each try costs seconds


def flips_to_undo(analysis: Analysis, a: str, b: str) -> int | None:
    """Successes of the policy that succeeds more often whose failure would undo that claim; None without a claim."""
    pairs = present(analysis.pairs)
    success = pairs.endpoints.get(EndpointName.SUCCESS)
    if not isinstance(success, EndpointPairs) or analysis.by_cameras is not None:
        return None
    winner = success.pair(a, b).ahead
    if winner is None or not success.is_primary:
        return None
    ahead, behind = analysis.sides[winner], analysis.sides[b if winner == a else a]
    if ahead.n_episodes + behind.n_episodes > MOST_EPISODES:
        return None
    order = _by_weight(ahead, behind)
    low, high = 0, len(order)  # holds with `low` flips, falls with `high`
    while high - low > 1:
        middle = (low + high) // 2
        keys = {e.key for e in order[:middle]}
        low, high = (middle, high) if _holds(analysis, pairs, ahead, behind, keys) else (low, middle)
    return high


def _by_weight(ahead: Side, behind: Side) -> Sequence[Episode]:
    """Successes of the one ahead, the weightiest first."""
    weighed: list[tuple[bool, int, str, Episode]] = []
    for cell, group in ahead.cells.items():
        starts, others = ahead.starts(cell), behind.starts(cell)
        failed = {
            s for s, e in zip(others, behind.cells.get(cell, ()), strict=False) if s is not None and not e.is_success
        }
        for start, episode in zip(starts, group, strict=False):
            if episode.is_success:
                weighed.append((start not in failed, len(group), episode.episode_id, episode))
    return [row[-1] for row in sorted(weighed, key=lambda row: row[:-1])]


def _holds(analysis: Analysis, pairs: Comparisons, ahead: Side, behind: Side, flipped: set[tuple[str, int]]) -> bool:
    """Whether the claim is still made, by the same list of claims, with these successes as failures."""

    def value(episode: Episode) -> float:
        return float(episode.is_success and episode.key not in flipped)

    turned = contrast(ahead, behind, endpoint=EndpointName.SUCCESS, plan=analysis.plan, value=value)
    names = {ahead.name, behind.name}
    contrasts = {
        endpoint.endpoint: [
            turned if endpoint.endpoint is EndpointName.SUCCESS and {p.policy_a, p.policy_b} == names else p.contrast
            for p in endpoint.pairs
        ]
        for endpoint in pairs.tested
    }
    judgement = judged(contrasts, analysis.plan, analysis.primary, chances=analysis.chances)
    own = next(
        j for j in judgement.claims if set(j.claim.pair) == names and j.claim.endpoint == EndpointName.SUCCESS.value
    )
    return turned.ahead == ahead.name and own.p_adjusted is not None and own.p_adjusted <= analysis.plan.alpha
