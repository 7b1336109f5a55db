"""What a test of two arms says at any level: R, the exact sign test, or the worst case over what was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from robotrials.errors import InputError
from robotrials.stats.allowance import FEWEST_PER_CELL
from robotrials.stats.exact import binomial_pmf
from robotrials.stats.interval import Interval
from robotrials.stats.proportion import clopper_pearson
from robotrials.stats.unseen import fewest_for_claim


class Evidence(Protocol):
    """What a design's test says, at any level."""

    @property
    def p_value(self) -> float: ...
    def p_one_sided(self, favours: str) -> float: ...
    def interval(self, level: float, *, low: float, high: float) -> Interval: ...


@dataclass(frozen=True, slots=True)
class SignTest:
    """The exact sign test of wins against losses, with the Clopper-Pearson interval of the share of wins."""

    wins: int
    losses: int

    @property
    def p_value(self) -> float:
        return min(1.0, 2 * min(self.p_one_sided('a'), self.p_one_sided('b')))

    def p_one_sided(self, favours: str) -> float:
        ahead = self.wins if favours == 'a' else self.losses
        return min(1.0, float(binomial_pmf(self.wins + self.losses, 0.5)[ahead:].sum()))

    def interval(self, level: float, *, low: float, high: float) -> Interval:
        if not self.wins + self.losses:
            return Interval(low, high)
        return clopper_pearson(self.wins, self.wins + self.losses, level)


@dataclass(frozen=True, slots=True, eq=False)
class WorstCase:
    """Undecided comparisons counted against whoever claims: against a in `least`, against b in `most`."""

    least: Evidence
    most: Evidence

    @property
    def p_value(self) -> float:
        """The smaller of both claims' two-sided p-values; 1 for a claim that the worst case does not even favour."""
        sides = ((self.least, 'a', 'b'), (self.most, 'b', 'a'))
        return min(e.p_value if e.p_one_sided(x) < e.p_one_sided(y) else 1.0 for e, x, y in sides)

    def p_one_sided(self, favours: str) -> float:
        return self.least.p_one_sided('a') if favours == 'a' else self.most.p_one_sided('b')

    def interval(self, level: float, *, low: float, high: float) -> Interval:
        below, above = (e.interval(level, low=low, high=high) for e in (self.least, self.most))
        return Interval(min(below.low, above.low), max(below.high, above.high))


def check_side(favours: str) -> str:
    if favours not in ('a', 'b'):
        raise InputError(f"favours must be 'a' or 'b', found {favours!r}")
    return favours


def few_units(sizes: Sequence[float], n_tests: int, alpha: float, kind: str, *, farthest: float = 0.5) -> str:
    """Why R makes no claim with these units per stratum and a gap of at most `farthest`; empty where it may."""
    if min(sizes) < FEWEST_PER_CELL:
        return f'{min(sizes):g} {kind} in a cell; at least {FEWEST_PER_CELL} are needed'
    least, n_star = fewest_for_claim(n_tests, alpha=alpha, farthest=farthest), len(sizes) * min(sizes)
    if n_star < least:
        tests = '1 test' if n_tests == 1 else f'{n_tests} tests'
        return f'{n_star:g} comparable {kind} per policy; with {tests} no claim can be made below {least}'
    return ''
