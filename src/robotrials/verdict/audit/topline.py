"""What two published averages can and can't say: the sharp three-way reading of a gap (Appendix C).

Over all paired outcome tables with the two reported totals, either none rejects "no improvement" (impossible), every
one does (guaranteed), or the averages leave it open (inconclusive).
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from robotrials.errors import InputError
from robotrials.verdict.audit.envelope import relaxed_q_high, scaled_q_high, scaled_q_low
from robotrials.verdict.audit.realize import RealizedScore, Score, realize
from robotrials.verdict.audit.threshold import Threshold, check_alpha, threshold


class Classification(enum.StrEnum):
    NO_IMPROVEMENT = 'no_improvement'
    IMPOSSIBLE = 'impossible'
    INCONCLUSIVE = 'inconclusive'
    GUARANTEED = 'guaranteed'


INDEPENDENT_READING = {
    Classification.NO_IMPROVEMENT: 'the new score is not higher, so there is nothing to test',
    Classification.IMPOSSIBLE: 'no independently sampled outcome table with these scores rejects either',
    Classification.INCONCLUSIVE: 'the paired bounds do not settle the two-sample test (they are not sharp for it)',
    Classification.GUARANTEED: 'every independently sampled outcome table with these scores rejects as well',
}


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a benchmark counts: T tasks, S samples a task, scores 0..R."""

    tasks: int
    samples: int
    max_score: int = 1

    def __post_init__(self) -> None:
        for name, least in (('tasks', 1), ('samples', 2), ('max_score', 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not hasattr(value, '__index__') or value.__index__() < least:
                why = ' (one sample has no variance)' if name == 'samples' and value == 1 else ''
                raise InputError(f'{name} is {value!r}, wanted a whole number >= {least}{why}')
            object.__setattr__(self, name, value.__index__())

    @property
    def instances(self) -> int:
        """N = T S."""
        return self.tasks * self.samples

    @property
    def most(self) -> int:
        """R N, the greatest total score."""
        return self.max_score * self.instances


@dataclass(frozen=True, slots=True)
class Reading:
    """The class of one pair of integer counts."""

    count_a: int
    count_b: int
    classification: Classification


@dataclass(frozen=True, slots=True)
class Topline:
    """What the two averages say; counts are total scores out of R N, Q is scaled by S so that it is an integer."""

    classification: Classification
    score_a: RealizedScore
    score_b: RealizedScore
    count_a: int
    count_b: int
    gap_count: int
    scaled_q_low: int
    scaled_q_high: int
    smallest_feasible: int | None  # L_exists: the first gap that some table makes significant; None if none does
    smallest_guaranteed: int | None  # L_forall: from here on every table is significant; None if never
    protocol: Protocol
    alpha: Fraction
    readings: tuple[Reading, ...]  # every way that ties can be rounded; one when there is no tie

    @property
    def is_tie_decisive(self) -> bool:
        """Whether the class depends on which way a half count is rounded."""
        return len({r.classification for r in self.readings}) > 1

    @property
    def is_realizable(self) -> bool:
        """Whether both scores, as printed, are whole counts."""
        return self.score_a.is_realizable and self.score_b.is_realizable

    @property
    def is_printable(self) -> bool:
        """Whether one pass over the test set can print both scores, rounded to the digits given."""
        return self.score_a.is_printable and self.score_b.is_printable

    @property
    def feasible_difference(self) -> Fraction | None:
        """The normalised cutoff L_exists / N, on the scale of a mean score."""
        return self._normalised(self.smallest_feasible)

    @property
    def guaranteed_difference(self) -> Fraction | None:
        """The normalised cutoff L_forall / N, on the scale of a mean score."""
        return self._normalised(self.smallest_guaranteed)

    @property
    def z_range(self) -> tuple[float, float]:
        """The least and greatest paired Wald statistic of any compatible table; the gap's sign decides at Q = 0."""
        ends = (self._z(self.scaled_q_high), self._z(self.scaled_q_low))
        return min(ends), max(ends)

    @property
    def q_range(self) -> tuple[float, float]:
        """The least and greatest Q of any compatible table."""
        return self.scaled_q_low / self.protocol.samples, self.scaled_q_high / self.protocol.samples

    @property
    def decisive_q(self) -> float | None:
        """A paired table with these totals rejects exactly when its Q is below this; None without an improvement."""
        if self.gap_count <= 0:
            return None
        samples, z = self.protocol.samples, threshold(self.alpha).z
        return self.gap_count**2 * (samples - 1) / (z * z * samples)

    @property
    def independent_reading(self) -> str:
        """What the class means if the two policies were run on independently drawn instances (C.6)."""
        return INDEPENDENT_READING[self.classification]

    def _normalised(self, count: int | None) -> Fraction | None:
        return None if count is None else Fraction(count, self.protocol.instances)

    def _z(self, scaled_q: int) -> float:
        if scaled_q == 0:
            return math.copysign(math.inf, self.gap_count) if self.gap_count else 0.0
        return self.gap_count * math.sqrt((self.protocol.samples - 1) / scaled_q)


def topline(
    score_a: Score,
    score_b: Score,
    *,
    tasks: int,
    samples: int,
    max_score: int = 1,
    alpha: float | str | Fraction = 0.05,
    unit: str = 'fraction',
) -> Topline:
    """Classify the claim that B improves on A, given only the two averages (Appendix C, paired and exact).

    unit: 'fraction' of max_score in [0, 1], 'percent', 'score' (a mean in [0, max_score]) or 'count' (a total). Scores
    are exact decimals. One that a single pass can't give is rounded to the nearest that it can, half counts up;
    `readings` holds the other ways.
    """
    protocol = Protocol(tasks, samples, max_score)
    limit = threshold(check_alpha(alpha))
    scores = [
        realize(s, tasks=protocol.tasks, samples=protocol.samples, max_score=protocol.max_score, unit=unit)
        for s in (score_a, score_b)
    ]
    readings = tuple(
        Reading(a, b, classify(a, b - a, protocol=protocol, limit=limit))
        for a, b in itertools.product(scores[0].nearest, scores[1].nearest)
    )
    count_a, count_b = scores[0].half_up, scores[1].half_up
    return Topline(
        classification=classify(count_a, count_b - count_a, protocol=protocol, limit=limit),
        score_a=scores[0],
        score_b=scores[1],
        count_a=count_a,
        count_b=count_b,
        gap_count=count_b - count_a,
        scaled_q_low=scaled_q_low(count_b - count_a, samples=protocol.samples),
        scaled_q_high=_q_high(count_a, count_b - count_a, protocol),
        smallest_feasible=smallest_feasible(count_a, protocol=protocol, limit=limit),
        smallest_guaranteed=smallest_guaranteed(count_a, protocol=protocol, limit=limit),
        protocol=protocol,
        alpha=limit.alpha,
        readings=readings,
    )


def classify(count_a: int, gap: int, *, protocol: Protocol, limit: Threshold) -> Classification:
    """The sharp class of one pair of counts (C.5), pointwise: neither set of gaps need be an up-set."""
    if gap <= 0:
        return Classification.NO_IMPROVEMENT
    if not is_feasible(gap, protocol=protocol, limit=limit):
        return Classification.IMPOSSIBLE
    if is_guaranteed(count_a, gap, protocol=protocol, limit=limit):
        return Classification.GUARANTEED
    return Classification.INCONCLUSIVE


def is_feasible(gap: int, *, protocol: Protocol, limit: Threshold) -> bool:
    """Whether some compatible paired table rejects: L > c sqrt(Q_lo)."""
    return limit.is_exceeded(gap * gap * (protocol.samples - 1), scaled_q_low(gap, samples=protocol.samples))


def is_guaranteed(count_a: int, gap: int, *, protocol: Protocol, limit: Threshold) -> bool:
    """Whether every compatible paired table rejects: L > c sqrt(Q_hi)."""
    return limit.is_exceeded(gap * gap * (protocol.samples - 1), _q_high(count_a, gap, protocol))


def smallest_feasible(count_a: int, *, protocol: Protocol, limit: Threshold) -> int | None:
    """L_exists: 1 + floor(z^2 S / (S - 1 + z^2)), if the baseline leaves that much room (C.3)."""
    least = 1 + limit.floor_of_ratio(protocol.samples, protocol.samples - 1)
    return least if least <= protocol.most - count_a else None


def smallest_guaranteed(count_a: int, *, protocol: Protocol, limit: Threshold) -> int | None:
    """L_forall, the suffix cutoff: the least gap from which on every gap is guaranteed (C.4).

    A concave upper bound of Q_hi gives, by halving, a gap from which all are guaranteed; from there the exact bound is
    walked down to the first gap that is not.
    """
    room = protocol.most - count_a
    gap = min(_relaxed_cutoff(count_a, protocol=protocol, limit=limit) - 1, room)
    while gap >= 1 and is_guaranteed(count_a, gap, protocol=protocol, limit=limit):
        gap -= 1
    return gap + 1 if gap < room else None


def _relaxed_cutoff(count_a: int, *, protocol: Protocol, limit: Threshold) -> int:
    """The least gap that passes against the relaxed bound; all greater ones pass too. RN - A + 1 if none does."""
    shape = {'tasks': protocol.tasks, 'samples': protocol.samples, 'max_score': protocol.max_score}
    low, high = 1, protocol.most - count_a + 1
    while low < high:
        middle = (low + high) // 2
        bound = relaxed_q_high(count_a, middle, **shape)
        if limit.is_exceeded(middle * middle * (protocol.samples - 1), bound):
            high = middle
        else:
            low = middle + 1
    return low


@dataclass(frozen=True, slots=True)
class Cutoff:
    """The gaps that a baseline count needs: to be significant at all, and to be so for certain."""

    count_a: int
    smallest_feasible: int | None
    smallest_guaranteed: int | None


def cutoffs(
    counts_a: Iterable[int], *, tasks: int, samples: int, max_score: int = 1, alpha: float | str | Fraction = 0.05
) -> tuple[Cutoff, ...]:
    """L_exists and L_forall for each baseline count."""
    protocol = Protocol(tasks, samples, max_score)
    limit = threshold(check_alpha(alpha))
    found = []
    for count in counts_a:
        if not 0 <= count <= protocol.most:
            raise InputError(f'baseline count {count} is outside 0..{protocol.most} (R T S)')
        feasible = smallest_feasible(count, protocol=protocol, limit=limit)
        found.append(Cutoff(count, feasible, smallest_guaranteed(count, protocol=protocol, limit=limit)))
    return tuple(found)


def _q_high(count_a: int, gap: int, protocol: Protocol) -> int:
    return scaled_q_high(count_a, gap, tasks=protocol.tasks, samples=protocol.samples, max_score=protocol.max_score)
