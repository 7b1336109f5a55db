"""More than two policies at once: every pair watched, the family-wise error kept at every look."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError
from robotrials.stats.argument import check_open_unit
from robotrials.stats.multiplicity import different_matrix, holm, letter_groups
from robotrials.verdict.planning.sequential import Decision, SequentialComparison, sequential_comparison


@dataclass(frozen=True, slots=True)
class ArmPair:
    """One pair of arms: its own comparison at alpha / pairs, and its Holm-adjusted p-value and decision."""

    a: str
    b: str
    comparison: SequentialComparison
    adjusted_p_value: float
    decision: Decision


@dataclass(frozen=True, slots=True)
class SequentialArms:
    """Every pair of arms; `letters` group what has not been told apart (arms in order of their mean, best first)."""

    pairs: tuple[ArmPair, ...]
    order: tuple[str, ...]
    letters: tuple[str, ...]

    @property
    def may_stop(self) -> bool:
        """Whether every pair is decided: one arm is better, or going on is futile."""
        return not self.unresolved

    @property
    def unresolved(self) -> tuple[tuple[str, str], ...]:
        """The pairs for which rollouts should go on; an arm in none of them may stop."""
        return tuple((p.a, p.b) for p in self.pairs if p.decision is Decision.CONTINUE)


def sequential_arms(
    arms: Mapping[str, ArrayLike],
    *,
    paired: bool,
    strata: ArrayLike | Mapping[str, ArrayLike] | None = None,
    tasks: Sequence[object] | None = None,
    alpha: float = 0.05,
    horizon: int | None = None,
    smallest_difference: float | None = None,
    score_range: tuple[float, float] = (0, 1),
) -> SequentialArms:
    """All pairs of arms by betting, with the chance of any false claim, at any time, at most alpha.

    The anytime p-value of a pair is 1 over its largest e-value, twice for two sides; it is a p-value at every stopping
    time, so that Holm's procedure on the p-values of one moment keeps the family-wise error whenever one stops.
    Intervals are at 1 - alpha / pairs and hold together.
    """
    names = list(arms)
    if len(names) < 2:
        raise InputError(f'wanted at least two arms, found {len(names)}')
    check_open_unit('alpha', alpha)
    indices = list(itertools.combinations(range(len(names)), 2))
    compared = [
        sequential_comparison(
            arms[names[i]],
            arms[names[j]],
            paired=paired,
            strata=(strata[names[i]], strata[names[j]]) if isinstance(strata, Mapping) else strata,
            tasks=tasks,
            alpha=alpha / len(indices),
            horizon=horizon,
            smallest_difference=smallest_difference,
            score_range=score_range,
        )
        for i, j in indices
    ]
    adjusted = holm([c.p_value for c in compared])
    pairs = tuple(
        ArmPair(names[i], names[j], c, float(p), _decision(c, float(p), alpha))
        for (i, j), c, p in zip(indices, compared, adjusted, strict=True)
    )
    rank = sorted(range(len(names)), key=lambda i: -_mean(arms[names[i]]))
    different = different_matrix(indices, adjusted.tolist(), k=len(names), alpha=alpha)[np.ix_(rank, rank)]
    return SequentialArms(pairs, tuple(names[i] for i in rank), letter_groups(different))


def _decision(compared: SequentialComparison, adjusted: float, alpha: float) -> Decision:
    if adjusted <= alpha:
        best = max(compared.looks, key=lambda look: max(look.evidence_a, look.evidence_b))
        return Decision.A_BETTER if best.evidence_a > best.evidence_b else Decision.B_BETTER
    return compared.decision


def _mean(values: ArrayLike) -> float:
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise InputError('an arm has no rollouts yet; leave it out until it has one')
    return float(array.mean())
