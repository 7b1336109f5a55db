"""Every pair of policies on every endpoint: one contrast each, judged in one list, and put into words once."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING

from robotrials.record.blinding import ALL_ARMS
from robotrials.stats import Estimate, different_matrix, letter_groups
from robotrials.stats.matching import fewest_for_claim
from robotrials.value import dataclass
from robotrials.verdict.analysis.selection import Absent
from robotrials.verdict.planning.analysis_plan import Correction, EndpointName

if TYPE_CHECKING:
    from robotrials.stats import Interval
    from robotrials.verdict.analysis.contrast import Contrast, ContrastCell, NeededUnits
    from robotrials.verdict.analysis.selection import ComparisonFrame


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
