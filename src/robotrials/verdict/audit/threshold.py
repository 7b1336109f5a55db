"""Exact comparison of a Wald statistic with the normal quantile: integers against a bracket of z squared.

Rejection is L^2 (S - 1) > z^2 (S Q), with integers on both sides but for z^2. `Threshold` holds two integers around
z^2 scaled by a power of two, so that no decision rests on a rounded float; where the bracket can't decide, it is
narrowed.
"""

from __future__ import annotations

import decimal
import functools
import math
import statistics
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from robotrials.errors import InputError

FIRST_BITS = 128
LAST_BITS = 1024
MOST_DIGITS = 400  # of a numeral; floats have at most 324 places
SMALLEST_ALPHA = Fraction(1, 10**100)


@dataclass(frozen=True, slots=True)
class Threshold:
    """The one-sided level `alpha` and integers `low` <= z^2 * 2**bits <= `high`, z = Phi^-1(1 - alpha)."""

    alpha: Fraction
    bits: int
    low: int
    high: int

    @property
    def z(self) -> float:
        return math.sqrt(self.low / (1 << self.bits))

    def is_exceeded(self, squared: int, scale: int) -> bool:
        """Whether squared > z^2 * scale, exactly; both are integers, scale >= 0."""
        shifted = squared << self.bits
        if shifted > self.high * scale:
            return True
        if shifted <= self.low * scale or self.bits >= LAST_BITS:
            return False
        return threshold(self.alpha, bits=2 * self.bits).is_exceeded(squared, scale)

    def floor_of_ratio(self, numerator: int, offset: int) -> int:
        """floor(z^2 numerator / (offset + z^2)), exactly, for positive integers."""
        low = self.low * numerator // ((offset << self.bits) + self.low)
        high = self.high * numerator // ((offset << self.bits) + self.high)
        if low != high and self.bits < LAST_BITS:
            return threshold(self.alpha, bits=2 * self.bits).floor_of_ratio(numerator, offset)
        return low


def exact(number: str | int | float | Decimal | Fraction, what: str = 'number') -> Fraction:
    """The rational that the digits say: a float is read as its shortest decimal, so that 0.05 is 1/20."""
    digits = written(number, what)
    if isinstance(digits, str) and ('_' in digits or len(digits) > MOST_DIGITS or _exponent(digits) > MOST_DIGITS):
        raise InputError(f'{what} is {str(number)[:40]!r}, wanted a finite decimal number such as 96.6')
    try:
        return Fraction(digits)
    except (ValueError, OverflowError, ZeroDivisionError):
        raise InputError(f'{what} is {number!r}, wanted a finite decimal number such as 96.6') from None


def _exponent(digits: str) -> int:
    """How many places a numeral such as 1e-9 shifts its digits: each would be built."""
    told = digits.lower().partition('e')[2].strip().lstrip('+-')
    return int(told) if told.isdecimal() else 0


def written(number: object, what: str = 'number') -> str | int | Decimal | Fraction:
    """The number as someone wrote it: floats of any width by the shortest digits that give them back."""
    if isinstance(number, bool):
        raise InputError(f'{what} is {number!r}, wanted a number')
    if isinstance(number, str | int | Decimal | Fraction):
        return number
    if isinstance(number, float):
        return repr(float(number))
    try:
        value = float(number)  # type: ignore[arg-type]  # numpy scalars and the like
    except (TypeError, ValueError):
        raise InputError(f'{what} is {number!r}, wanted a number') from None
    kind = getattr(getattr(number, 'dtype', None), 'kind', '')
    if kind in ('i', 'u'):
        return int(number)  # type: ignore[call-overload,no-any-return]
    # str of a numpy float is its shortest decimal at its own width: float32 of 95.1 is '95.1'.
    return str(number) if kind == 'f' else repr(value)


def check_alpha(alpha: str | float | Decimal | Fraction) -> Fraction:
    """The level as an exact rational, in (0, 1/2): only there is the quantile positive and the bounds hold."""
    level = exact(alpha, 'alpha')
    if not SMALLEST_ALPHA <= level < Fraction(1, 2):
        raise InputError(f'alpha is {alpha}, wanted a one-sided level between 0 and 0.5, such as 0.05')
    return level


@functools.lru_cache(maxsize=256)
def threshold(alpha: Fraction, *, bits: int = FIRST_BITS) -> Threshold:
    """The bracket of z^2 for one level; its two ends are checked on both sides of the level."""
    digits = int(bits * 0.302) + 8
    with decimal.localcontext() as context:
        context.prec = digits + 12 + int(-2 * math.log10(alpha))
        level = Decimal(alpha.numerator) / Decimal(alpha.denominator)
        z = _quantile(level, digits)
        slack = Decimal(10) ** -(digits - 4)
        if not _upper_tail(z + slack) < level < _upper_tail(z - slack):
            raise ArithmeticError(f'the normal quantile at {alpha} did not converge')  # pragma: no cover - a guard
        scale = Decimal(2) ** bits
        return Threshold(alpha, bits, int((z - slack) ** 2 * scale), int((z + slack) ** 2 * scale) + 1)


def _quantile(level: Decimal, digits: int) -> Decimal:
    """Newton's method on the upper tail, from the double-precision quantile."""
    try:
        z = Decimal(-statistics.NormalDist().inv_cdf(float(level)))
    except (statistics.StatisticsError, ZeroDivisionError):  # pragma: no cover - levels below the double range
        z = (-2 * level.ln()).sqrt()
    for _ in range(60):
        step = (_upper_tail(z) - level) / _density(z)
        z += step
        if abs(step) < Decimal(10) ** -digits:
            break
    return z


def _density(z: Decimal) -> Decimal:
    return (-z * z / 2).exp() / (2 * _pi()).sqrt()


def _upper_tail(z: Decimal) -> Decimal:
    """1 - Phi(z) = 1/2 - phi(z) (z + z^3/3 + z^5/(3 5) + ...), a series of positive terms."""
    total = term = z
    n = 1
    smallest = Decimal(10) ** -(decimal.getcontext().prec + 2)
    while term > smallest * total:
        n += 2
        term = term * z * z / n
        total += term
    return Decimal('0.5') - _density(z) * total


def _pi() -> Decimal:
    return _pi_at(decimal.getcontext().prec)


@functools.lru_cache(maxsize=16)
def _pi_at(digits: int) -> Decimal:
    """Machin: pi = 16 arctan(1/5) - 4 arctan(1/239), in integers."""
    unit: int = 10 ** (digits + 10)

    def arctan_of_inverse(x: int) -> int:
        power = total = unit // x
        n, sign = 1, 1
        while power:
            power //= x * x
            n, sign = n + 2, -sign
            total += sign * (power // n)
        return total

    return Decimal(16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)) / Decimal(unit)
