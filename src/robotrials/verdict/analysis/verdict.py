"""Every pair of policies on every declared endpoint: tested, corrected, and put into words once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from robotrials.measure.timing.reversal import StratumAdvantage
from robotrials.stats import Interval, Verdict, bonferroni, different_matrix, holm, letter_groups
from robotrials.verdict.analysis.absent import Absent
from robotrials.verdict.analysis.needed import NeededUnits
from robotrials.verdict.planning.analysis_plan import Correction, EndpointName


@dataclass(frozen=True, slots=True, eq=False)
class PairVerdict:
    """Two policies on one endpoint; the difference is oriented so that > 0 favours policy a."""

    endpoint: EndpointName
    policy_a: str
    policy_b: str
    difference: float
    interval: Interval | None  # of the same null as the test
    p_value: float | None  # None where the rule was not applied, and `withheld` says why
    test: str
    is_paired: bool
    n_units: tuple[int, int]
    unit: str
    verdict: Verdict = Verdict.UNRESOLVED
    better: str | None = None  # the name of the better policy, only with Verdict.BETTER
    p_corrected: float | None = None
    is_confirmatory: bool = True  # False: exploratory, because an endpoint before it was not resolved
    reversed: tuple[StratumAdvantage, ...] = ()  # strata that point the other way
    p_reversal: float | None = None  # that single strata point the other way, corrected over pairs
    needed: NeededUnits | None = None
    withheld: str = ''
    n_left_out: tuple[int, int] = (0, 0)  # episodes without a matched start, when paired
    unit_text: str = 's'  # of the difference: seconds, or percentage points

    def seen_from(self, policy: str) -> PairVerdict:
        """The same comparison told from the side of `policy`."""
        if policy == self.policy_a:
            return self
        turned = None if self.interval is None else self.interval.scaled(-1.0)
        return replace(
            self, policy_a=self.policy_b, policy_b=self.policy_a, difference=-self.difference + 0.0, interval=turned,
            n_units=(self.n_units[1], self.n_units[0]), n_left_out=(self.n_left_out[1], self.n_left_out[0]),
            reversed=tuple(_turned(s) for s in self.reversed),
        )  # fmt: skip

    @property
    def is_resolved(self) -> bool:
        return self.verdict is not Verdict.UNRESOLVED


def _turned(found: StratumAdvantage) -> StratumAdvantage:
    interval = None if found.interval is None else found.interval.scaled(-1.0)
    return replace(
        found, difference=-found.difference + 0.0, interval=interval, n_units=(found.n_units[1], found.n_units[0])
    )


@dataclass(frozen=True, slots=True, eq=False)
class EndpointPairs:
    """All pairs on one endpoint, and letters: policies sharing a letter are not significantly different."""

    endpoint: EndpointName
    is_primary: bool
    policies: tuple[str, ...]  # best first
    pairs: tuple[PairVerdict, ...]  # canonical: policy_a before policy_b by name
    letters: Mapping[str, str]
    alpha: float
    correction: Correction
    n_tests: int  # that the correction is over

    def pair(self, a: str, b: str) -> PairVerdict:
        """The comparison of two policies, told from the side of `a`."""
        found = next(p for p in self.pairs if {p.policy_a, p.policy_b} == {a, b})
        return found.seen_from(a)

    def oriented(self) -> tuple[PairVerdict, ...]:
        """Every pair, told from the side of the policy that is ranked higher."""
        return tuple(self.pair(a, b) for a, b in itertools.combinations(self.policies, 2))


def corrected(p_values: Sequence[float | None], correction: Correction, *, n_tests: int) -> list[float | None]:
    """Corrected over `n_tests` tests; a withheld one counts as a test that showed nothing."""
    filled = [1.0 if p is None else p for p in p_values]
    padded = [*filled, *([1.0] * (n_tests - len(filled)))]
    if correction is Correction.NONE:
        return list(p_values)
    adjusted = holm(padded) if correction is Correction.HOLM else bonferroni(padded)
    found = [float(p) for p in adjusted[: len(filled)]]
    return [None if given is None else p for given, p in zip(p_values, found, strict=True)]


def lettered(policies: Sequence[str], pairs: Sequence[PairVerdict], alpha: float) -> dict[str, str]:
    """Letters by the corrected p-values, best policy first."""
    place = {name: k for k, name in enumerate(policies)}
    index = [tuple(sorted((place[p.policy_a], place[p.policy_b]))) for p in pairs]
    p_values = [1.0 if p.p_corrected is None else p.p_corrected for p in pairs]
    matrix = different_matrix([(i, j) for i, j in index], p_values, k=len(policies), alpha=alpha)
    return dict(zip(policies, letter_groups(matrix), strict=True))


def too_few(policies: Sequence[str], apart: Mapping[str, str], reference: str | None) -> Absent | None:
    """Why there is no pair to compare; None when there is one."""
    if len(policies) >= 2:
        return None
    if apart:
        told = '; '.join(f'{p}: {why}' for p, why in list(apart.items())[:3])
        return Absent(f'fewer than two policies can be ranked ({told})', 'run every policy on the same strata')
    remedy = 'a comparison wants two; bring another on the same tasks'
    if not policies:
        return Absent('only the reference was tested', remedy)
    beside = ' beside the reference' if reference is not None else ''
    return Absent(f'only one policy was tested{beside}', remedy)
