"""From a printed score to the integer count it stands for, in exact decimals (Appendix C.7)."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Literal

from robotrials.errors import InputError, UnknownName
from robotrials.verdict.audit.threshold import exact, written

Score = str | int | float | Decimal | Fraction
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


def realize(score: Score, *, tasks: int, samples: int, max_score: int = 1, unit: str = 'fraction') -> RealizedScore:
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


def _last_digit(score: Score) -> Fraction:
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
