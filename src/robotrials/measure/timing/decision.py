"""From tests to words: what may be said of two policies."""

from __future__ import annotations

from dataclasses import dataclass

from robotrials.stats.argument import check_open_unit
from robotrials.stats.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Evidence:
    """The p-values that a verdict rests on, each corrected over all pairs where there are several; None: not tested."""

    p_better: float | None  # of the primary endpoint
    favoured: str | None  # 'a' or 'b', by the sign of its difference
    p_reversal: float | None = None  # that single strata point the other way
    p_same: float | None = None  # that the difference reaches the margin of equivalence
    p_different: float | None = None  # that the curves differ anywhere (KS)
    is_crossing: bool = False  # other scalars are resolved in favour of both


@dataclass(frozen=True, slots=True)
class Decided:
    """A verdict and, if it names one, the winner: 'a' or 'b'."""

    verdict: Verdict
    winner: str | None = None


def decide(evidence: Evidence, *, alpha: float = 0.05) -> Decided:
    """The strongest verdict that the evidence allows; what was not tested shows nothing.

    "Better" needs the test of the primary endpoint; a significant reversal turns it into "depends on the stratum". A
    difference of the curves gates nothing and names no winner.
    """
    check_open_unit('alpha', alpha)

    def shown(p: float | None) -> bool:
        return p is not None and p <= alpha

    if shown(evidence.p_reversal):
        return Decided(Verdict.DEPENDS)
    if shown(evidence.p_better) and evidence.favoured is not None:
        return Decided(Verdict.BETTER, evidence.favoured)
    if shown(evidence.p_same):
        return Decided(Verdict.SAME)
    if shown(evidence.p_different):
        return Decided(Verdict.CROSSING if evidence.is_crossing else Verdict.DIRECTION_UNRESOLVED)
    return Decided(Verdict.UNRESOLVED)
