"""What two published averages can and can't say: the sharp three-way reading of a gap (Appendix C).

Over all paired outcome tables with the two reported totals, either none rejects "no improvement" (impossible), every
one does (guaranteed), or the averages leave it open (inconclusive).
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Literal

from robotrials.errors import InputError, UnknownName
from robotrials.value import dataclass
from robotrials.verdict.audit.envelope import (
    Threshold,
    check_alpha,
    exact,
    relaxed_q_high,
    scaled_q_high,
    scaled_q_low,
    threshold,
    written,
)

# From a printed score to the integer count it stands for, in exact decimals (Appendix C.7).

RawScore = str | int | float | Decimal | Fraction
Unit = Literal['fraction', 'percent', 'score', 'count']
UNITS: tuple[Unit, ...] = ('fraction', 'percent', 'score', 'count')


@dataclass(frozen=True, slots=True)
class RealizedScore:
    """A reported score on the count scale: what it says exactly, and the nearest counts that one pass can give."""

    reported: Fraction  # as given, in its own unit
    exact_count: Fraction
    nearest: tuple[int, ...]  # one count, or two when the score lies halfway between them
    slack: Fraction = Fraction(0)  # half of the last printed digit, on the count scale

    @property
    def is_realizable(self) -> bool:
        """Whether the score as printed is a whole count."""
        return self.exact_count.denominator == 1

    @property
    def is_printable(self) -> bool:
        """Whether some count of one pass prints as this score: 92 of 96 prints as 95.8 %, no count of 500 as 95.3 %."""
        return abs(self.exact_count - self.nearest[0]) <= self.slack

    @property
    def is_tie(self) -> bool:
        return len(self.nearest) == 2

    @property
    def half_up(self) -> int:
        return self.nearest[-1]

    @property
    def half_even(self) -> int:
        return min(self.nearest, key=lambda count: count % 2)


def realize(score: RawScore, *, tasks: int, samples: int, max_score: int = 1, unit: str = 'fraction') -> RealizedScore:
    """The counts nearest to a reported score; a float is read by its shortest decimal digits, never in binary."""
    if unit not in UNITS:
        raise UnknownName('unit', unit, UNITS)
    reported = exact(score, 'score')
    total = tasks * samples
    most = {'fraction': 1, 'percent': 100, 'score': max_score, 'count': max_score * total}[unit]
    if not 0 <= reported <= most:
        raise InputError(f'score {score} is outside 0..{most} for unit={unit!r}{_hint(reported, unit, max_score)}')
    if unit == 'count' and reported.denominator != 1:
        raise InputError(f'count {score} is not whole; wanted a total score, or another unit')
    exact_count = reported * max_score * total / most
    below = exact_count.numerator // exact_count.denominator
    half = exact_count - below - Fraction(1, 2)
    nearest = (below, below + 1) if half == 0 else (below + (half > 0),)
    return RealizedScore(reported, exact_count, nearest, _last_digit(score) / 2 * max_score * total / most)


def _last_digit(score: RawScore) -> Fraction:
    """The worth of the last digit given; zero where a number is exact (an integer or a fraction)."""
    digits = written(score, 'score')
    if isinstance(digits, int | Fraction):
        return Fraction(0)
    try:
        exponent = Decimal(digits).as_tuple().exponent
    except InvalidOperation:  # text such as '1/3', which is exact
        return Fraction(0)
    return Fraction(10) ** min(0, int(exponent))


def _hint(reported: Fraction, unit: str, max_score: int) -> str:
    if unit == 'fraction' and 1 < reported <= 100:
        beside = f", or unit='score' for a mean out of {max_score}" if max_score > 1 else ''
        return f"; if it is a percentage, say unit='percent'{beside}"
    if unit == 'score' and max_score < reported <= 100:
        return "; if it is a percentage, say unit='percent'"
    return ''


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
class CountReading:
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
    readings: tuple[CountReading, ...]  # every way that ties can be rounded; one when there is no tie

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
    score_a: RawScore,
    score_b: RawScore,
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
        CountReading(a, b, classify(a, b - a, protocol=protocol, limit=limit))
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
    rows = []
    for count in counts_a:
        if not 0 <= count <= protocol.most:
            raise InputError(f'baseline count {count} is outside 0..{protocol.most} (R T S)')
        feasible = smallest_feasible(count, protocol=protocol, limit=limit)
        rows.append(Cutoff(count, feasible, smallest_guaranteed(count, protocol=protocol, limit=limit)))
    return tuple(rows)


def _q_high(count_a: int, gap: int, protocol: Protocol) -> int:
    return scaled_q_high(count_a, gap, tasks=protocol.tasks, samples=protocol.samples, max_score=protocol.max_score)


# Published benchmarks as presets: a suite and protocol, with the numbers that a top-line reading needs.


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A suite under one protocol: how it counts, how it prints its score, and where a vla-eval leaderboard has it."""

    name: str
    title: str
    protocol: Protocol
    unit: str = 'percent'
    family: str = ''  # the leaderboard's benchmark key
    suite: str = ''  # the leaderboard's suite key; 'overall' for overall_score
    training: str = ''  # the training protocol or split that scores must share to be compared
    aliases: tuple[str, ...] = ()


def _libero(suite: str, title: str, *aliases: str) -> Benchmark:
    name = suite.replace('_', '-')
    return Benchmark(name, title, Protocol(10, 50), family='libero', suite=suite, aliases=aliases)


def _calvin(split: str) -> Benchmark:
    name = f'calvin-{split.lower().replace("->", "-")}'
    aliases = ('calvin',) if split == 'ABC->D' else ()
    return Benchmark(
        name, f'CALVIN {split}', Protocol(1, 1000, 5), unit='score', family='calvin', suite='overall', training=split,
        aliases=aliases,
    )  # fmt: skip


def _robotwin(suite: str, scene: str, training: str, *aliases: str) -> Benchmark:
    """Protocol A trains on 50 clean demonstrations a task, B on 50 clean and 500 randomized ones."""
    return Benchmark(
        f'robotwin2-{scene}-{training.lower()}', f'RoboTwin 2.0 {scene}, protocol {training}',
        Protocol(50, 100), family='robotwin_v2', suite=suite, training=training, aliases=aliases,
    )  # fmt: skip


BENCHMARKS: tuple[Benchmark, ...] = (
    _libero('libero_spatial', 'LIBERO-Spatial'),
    _libero('libero_object', 'LIBERO-Object'),
    _libero('libero_goal', 'LIBERO-Goal'),
    _libero('libero_10', 'LIBERO-10 (Long)', 'libero-long'),
    Benchmark(
        'libero-average', 'LIBERO, mean of four suites', Protocol(40, 50), family='libero', suite='overall',
        aliases=('libero', 'libero-avg'),
    ),
    _calvin('D->D'),
    _calvin('ABC->D'),
    _calvin('ABCD->D'),
    Benchmark(
        'simpler-widowx', 'SimplerEnv WidowX, visual matching', Protocol(4, 24), family='simpler_env',
        suite='widowx_vm', aliases=('simplerenv-widowx', 'simpler', 'simplerenv'),
    ),
    Benchmark(
        'robocasa-panda', 'RoboCasa, 24 atomic tasks, Panda', Protocol(24, 50), family='robocasa', suite='panda',
        aliases=('robocasa', 'robocasa-24'),
    ),
    _robotwin('easy', 'clean', 'A', 'robotwin2', 'robotwin', 'robotwin-2.0'),
    _robotwin('hard', 'randomized', 'A'),
    _robotwin('easy', 'clean', 'B'),
    _robotwin('hard', 'randomized', 'B'),
)  # fmt: skip


def find_benchmark(name: str) -> Benchmark:
    """The preset of this name or alias; an unknown name suggests the near one."""
    wanted = name.strip().lower().replace('_', '-')
    for benchmark in BENCHMARKS:
        if wanted == benchmark.name or wanted in benchmark.aliases:
            return benchmark
    raise UnknownName('benchmark', name, [n for b in BENCHMARKS for n in (b.name, *b.aliases)])
