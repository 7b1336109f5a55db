"""The exact range of the paired Wald denominator that two top-line counts leave open.

Q = sum over tasks of (s_t - d_t^2 / S), with d_t and s_t the sum and the sum of squares of a task's paired score
differences. T tasks, S samples a task, scores 0..R; A and A + L are the two total scores. Everything is in integers,
as S Q. Derivations: docs/concepts/topline-envelope.md. The oracle is tests/verdict/audit/dynamic_program.py.
"""

from __future__ import annotations

import decimal
import functools
import math
import statistics
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.value import dataclass


def scaled_q_low(gap: int, *, samples: int) -> int:
    """The least S Q of any paired table with this count gap: r (S - r), r = |L| mod S (Appendix C.3)."""
    residue = abs(gap) % samples
    return residue * (samples - residue)


def scaled_q_high(count_a: int, gap: int, *, tasks: int, samples: int, max_score: int = 1) -> int:
    """The greatest S Q of any paired table with totals A and A + L (Appendix C.4), by the cheapest exact form.

    O(1) for binary scores and for one task; otherwise a dynamic program over a window whose size depends on R only.
    Q does not change when the two policies are swapped, so a negative gap is read from the other side.
    """
    if gap < 0:
        count_a, gap = count_a + gap, -gap
    most = max_score * tasks * samples
    if not 0 <= count_a <= most - gap:
        raise InputError(f'counts {count_a} and {count_a + gap} do not both lie in 0..{most} (R T S)')
    if max_score == 1:
        return _binary(count_a, gap, tasks, samples)
    headroom = min(count_a, most - count_a - gap)
    if tasks == 1:
        return _one_task(headroom, gap, samples, max_score)

    return windowed_q_high(headroom, gap, tasks=tasks, samples=samples, max_score=max_score)


def _binary(count_a: int, gap: int, tasks: int, samples: int) -> int:
    excess = abs(2 * count_a + gap - samples * tasks)
    k, r = divmod(gap, tasks)
    odd = r if (k - samples) % 2 == 0 else tasks - r
    return samples * (samples * tasks - excess) - balanced_squares(gap, tasks) - max(0, odd - excess)


def _one_task(headroom: int, gap: int, samples: int, max_score: int) -> int:
    down = min(headroom, most_downward(gap, samples, max_score))
    return samples * (packed(gap + down, max_score) + packed(down, max_score)) - gap * gap


def balanced_squares(total: int, parts: int) -> int:
    """The least sum of squares of `parts` integers with this sum: as equal as can be."""
    k, r = divmod(total, parts)
    return parts * k * k + r * (2 * k + 1)


def packed(movement: int, max_score: int) -> int:
    """The greatest sum of squares of parts in 0..R that sum to `movement`: q R^2 + r^2 (Pi_R of the paper)."""
    whole, rest = divmod(movement, max_score)
    return whole * max_score * max_score + rest * rest


def most_downward(gap: int, samples: int, max_score: int) -> int:
    """The greatest j with ceil((L + j) / R) + ceil(j / R) <= S, for 0 <= L <= R S."""
    whole, rest = divmod(gap, max_score)
    free = samples - whole
    if rest == 0:
        return max_score * (free // 2)
    pairs, left = divmod(free - 1, 2)
    return pairs * max_score + (max_score - rest if left else 0)


def relaxed_q_high(count_a: int, gap: int, *, tasks: int, samples: int, max_score: int = 1) -> int:
    """An upper bound of `scaled_q_high` that is concave in the gap, so that it can be searched by halves.

    S R min(2 A + L, 2 (R N - A) - L) - E(L): whole movements only, and the gap spread evenly over the tasks.
    """
    most = max_score * tasks * samples
    movement = min(2 * count_a + gap, 2 * (most - count_a) - gap)
    return samples * max_score * movement - balanced_squares(gap, tasks)


# The upper envelope for several tasks and scores beyond 0/1: a dynamic program over a window that depends on R only.
# A task moves p up and n down in all (d = p - n), and feels the rest only through sum d = L and sum n <= h, with h =
# min(A, R N - A - L). Some optimal table has every d within 3 R of L / T (4 R when S = 2) and every headroom c, an
# upper limit of n, within 4 R + 1 of h / T; ordered well, its partial sums stay within twice that of the straight
# line. Both facts are proved in docs/concepts/topline-envelope.md.

IntArray = NDArray[np.integer[Any]]
UNREACHED = np.iinfo(np.int64).min // 4
MOST_CELLS = 10**10  # some ten seconds


@functools.lru_cache(maxsize=4096)
def windowed_q_high(headroom: int, gap: int, *, tasks: int, samples: int, max_score: int) -> int:
    """The greatest S Q over tables with this gap and total headroom; exact integers."""
    if max_score * max_score * samples * samples * tasks >= -UNREACHED:
        raise InputError(
            f'R^2 S^2 T is {max_score**2 * samples**2 * tasks}, beyond the exact integers of this method '
            f'(about 2e18); check tasks, samples and max_score'
        )
    reach_d = (3 if samples > 2 else 4) * max_score
    reach_c = 4 * max_score + 1
    if tasks * 8 * (2 * reach_d * 2 * reach_c) ** 2 > 2 * MOST_CELLS:
        raise InputError(
            f'several tasks ({tasks}) with scores 0..{max_score} are beyond the exact method (0..15 at 10 tasks); '
            f'classify per task, or on a coarser score'
        )
    differences = _near(gap, tasks, reach_d, low=-max_score * samples, high=max_score * samples)
    caps = _near(headroom, tasks, reach_c, low=0, high=max_score * (samples + 1))
    gain = _gains(differences, caps, samples, max_score)
    best: IntArray = np.zeros((1, 1), dtype=np.int64)
    start_d, start_c = 0, 0  # the sums that best[0, 0] stands for
    for task in range(1, tasks + 1):
        best = _add_task(best, gain)
        start_d, start_c = start_d + differences.start, start_c + caps.start
        rows, start_d = _clip(start_d, best.shape[0], gap * task, tasks, 2 * reach_d)
        columns, start_c = _clip(start_c, best.shape[1], headroom * task, tasks, 2 * reach_c)
        best = best[rows, columns]
    return int(best[gap - start_d, headroom - start_c])


def _near(total: int, parts: int, reach: int, *, low: int, high: int) -> range:
    """The integers within `reach` of total / parts, and within low..high."""
    return range(max(low, -((reach * parts - total) // parts)), min(high, (total + reach * parts) // parts) + 1)


def _clip(start: int, size: int, numerator: int, denominator: int, reach: int) -> tuple[slice, int]:
    """Where an axis of sums starting at `start` lies within `reach` of numerator / denominator."""
    first = max(start, numerator // denominator - reach)
    last = min(start + size - 1, numerator // denominator + 1 + reach)
    return slice(first - start, last - start + 1), first


def _gains(differences: range, caps: range, samples: int, max_score: int) -> IntArray:
    """S (Pi(p) + Pi(n)) - d^2 of the best task with difference d and n <= c, for every d and c."""
    gain = np.full((len(differences), len(caps)), UNREACHED, dtype=np.int64)
    for row, d in enumerate(differences):
        forced = max(0, -d)
        limit = forced + most_downward(abs(d), samples, max_score)
        for column, cap in enumerate(caps):
            if cap >= forced:
                down = min(cap, limit)
                squares = packed(d + down, max_score) + packed(down, max_score)
                gain[row, column] = samples * squares - d * d
    return gain


def _add_task(best: IntArray, gain: IntArray) -> IntArray:
    rows, columns = best.shape
    after = np.full((rows + gain.shape[0] - 1, columns + gain.shape[1] - 1), UNREACHED, dtype=np.int64)
    for i, j in np.argwhere(gain > UNREACHED):
        view = after[i : i + rows, j : j + columns]
        np.maximum(view, best + gain[i, j], out=view)
    return after


# Exact comparison of a Wald statistic with the normal quantile: integers against a bracket of z squared.
# Rejection is L^2 (S - 1) > z^2 (S Q), with integers on both sides but for z^2. `Threshold` holds two integers around
# z^2 scaled by a power of two, so that no decision rests on a rounded float; where the bracket can't decide, it is
# narrowed.

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
    exponent = digits.lower().partition('e')[2].strip().lstrip('+-')
    return int(exponent) if exponent.isdecimal() else 0


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
