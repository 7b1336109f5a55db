"""The stratified exact test of two arms' counts, and the successes of one arm by start state.

Given each stratum's total of successes, how they fall on the arms is hypergeometric under equal rates, and the strata
convolve (the stratified Fisher test). What two policies are told by is `robotrials.stats.success_rule`; this test holds
where strata may not be opposite, such as for whether two arms lost runs alike.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from robotrials.errors import InputError
from robotrials.stats.argument import (
    Alternative,
    BoolArray,
    FloatArray,
    check_alternative,
    check_successes,
)
from robotrials.stats.interval import Significance
from robotrials.stats.matching import Labels, NumberedLabels, unit_sums, units_of
from robotrials.value import dataclass

Table = tuple[int, int, int, int]  # successes and episodes of a, then of b
MOST_ROUNDS = 200
MOST_LISTED = 2_000_000  # values, which are sorted
MOST_WORK = 100_000_000  # of a lattice: some hundredths of a second
LATTICE = 20_000  # steps of a difference of 1
NEGLIGIBLE = 1e-18
SLACK = 1e-9  # differences nearer than this are equal


@dataclass(frozen=True, slots=True, eq=False)
class NullDistribution:
    """The values a macro difference a - b can take under equal rates, their chances, and the value observed."""

    values: FloatArray  # (points,), ascending
    chances: FloatArray  # (points,), summing to 1
    observed: float

    def p_value(self, alternative: Alternative = 'two-sided', *, mid_p: bool = False) -> float:
        """The chance of a difference at least as extreme; two-sided, twice the smaller tail.

        `mid_p` counts half of the observed value's own chance.
        """
        upper = float(self.chances[self.values >= self.observed - SLACK].sum())
        lower = float(self.chances[self.values <= self.observed + SLACK].sum())
        at_observed = np.abs(self.values - self.observed) <= SLACK
        half = float(self.chances[at_observed].sum()) / 2 if mid_p else 0.0
        tails = {'greater': upper - half, 'less': lower - half, 'two-sided': 2 * (min(upper, lower) - half)}
        return min(1.0, max(0.0, tails[check_alternative(alternative)]))


def stratified_exact(
    tables: Sequence[Table], *, alternative: Alternative = 'two-sided', mid_p: bool = False
) -> Significance:
    """The exact conditional test of equal success rates in every stratum; two-sided p is twice the smaller tail.

    The statistic is the macro difference of the rates, a - b. One stratum is Fisher's exact test (one-sided).

    >>> round(stratified_exact([(8, 10, 3, 10)], alternative='greater').p_value, 4)
    0.0349
    """
    null = conditional_null(tables)
    return Significance(null.observed, null.p_value(alternative, mid_p=mid_p), alternative)


def conditional_null(tables: Sequence[Table]) -> NullDistribution:
    """Independent arms: the macro difference of the rates given each stratum's total of successes."""
    if not tables:
        raise InputError('no stratum was given: there is no difference of nothing')
    parts = []
    for x1, n1, x2, n2 in tables:
        check_successes(x1, n1, names=('x1', 'n1')), check_successes(x2, n2, names=('x2', 'n2'))
        hits, least = x1 + x2, max(0, x1 + x2 - n2)
        start = Fraction(least, n1) - Fraction(hits - least, n2)
        parts.append(_Part(start, Fraction(n1 + n2, n1 * n2), _hypergeometric(n1, n2, hits), x1 - least))
    return _summed(parts)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A difference of rates that moves in equal steps from `start`, with the chance of each number of steps."""

    start: Fraction
    step: Fraction
    chances: FloatArray
    observed: int  # steps taken


def _summed(parts: Sequence[_Part]) -> NullDistribution:
    """The distribution of the mean over strata.

    Strata of equal sizes move it by one step and convolve. Strata of a few sizes move it on the lattice of their common
    denominator, also exactly. Where sizes are so many that this lattice is too fine, the values are listed if they are
    few, and else each contribution is rounded to a coarser lattice: the test of the rounded difference is as exact.
    """
    groups = _grouped(parts)
    spacing = _common_spacing([group.step for group in groups])
    if _work(groups, spacing) <= MOST_WORK:
        return _on_common_lattice(groups, spacing, len(parts))
    if math.prod(len(group.chances) for group in groups) <= MOST_LISTED:
        return _listed(groups, len(parts))
    return _on_coarse_lattice(parts)


def _grouped(parts: Sequence[_Part]) -> list[_Part]:
    """The parts of equal steps added up, the one of most values first."""
    groups: dict[Fraction, _Part] = {}
    for part in parts:
        group = groups.get(part.step)
        groups[part.step] = part if group is None else _Part(
            group.start + part.start, part.step, np.convolve(group.chances, part.chances),
            group.observed + part.observed,
        )  # fmt: skip
    return sorted(groups.values(), key=lambda group: -len(group.chances))


def _common_spacing(steps: Sequence[Fraction]) -> Fraction:
    """The largest number of which every step is a multiple."""
    below = math.lcm(*(step.denominator for step in steps))
    return Fraction(math.gcd(*(int(step * below) for step in steps)), below)


def _work(groups: Sequence[_Part], spacing: Fraction) -> int:
    """About how many multiplications the common lattice takes; starting a convolution counts as some of them."""
    points, work = 1, 0
    for group in groups:
        stride, n = int(group.step / spacing), len(group.chances)
        work += (points + stride) * n + 5_000 * stride
        points += stride * (n - 1)
    return work + points


def _on_common_lattice(groups: Sequence[_Part], spacing: Fraction, n_strata: int) -> NullDistribution:
    """Exact: a group moves in strides of whole points, so the points of one remainder convolve by themselves."""
    chances = np.ones(1)
    for group in groups:
        stride = int(group.step / spacing)
        n_points = len(chances) + stride * (len(group.chances) - 1)
        by_remainder = np.zeros((stride, -(-len(chances) // stride)))
        by_remainder.T.flat[: len(chances)] = chances
        chances = np.array([np.convolve(row, group.chances) for row in by_remainder]).T.ravel()[:n_points]
    start = sum((group.start for group in groups), Fraction())
    observed = start + sum(group.step * group.observed for group in groups)
    can_occur = np.flatnonzero(chances)
    values: FloatArray = float(start / n_strata) + float(spacing / n_strata) * can_occur.astype(np.float64)
    return NullDistribution(values, chances[can_occur], float(observed / n_strata))


def _listed(groups: Sequence[_Part], n_strata: int) -> NullDistribution:
    sums, joint = np.zeros(1), np.ones(1)
    for group in groups:
        moves = (float(group.start) + float(group.step) * np.arange(len(group.chances))) / n_strata
        sums, joint = np.add.outer(sums, moves).ravel(), np.multiply.outer(joint, group.chances).ravel()
    values, place = np.unique(np.round(sums, 12), return_inverse=True)
    chances = np.bincount(place, weights=joint, minlength=len(values)).astype(np.float64)
    observed = sum((group.start + group.step * group.observed for group in groups), Fraction())
    return NullDistribution(values, chances, float(observed / n_strata))


def _on_coarse_lattice(parts: Sequence[_Part]) -> NullDistribution:
    chances, least, observed = np.ones(1), 0, 0
    for part in parts:
        moves = (float(part.start) + float(part.step) * np.arange(len(part.chances))) / len(parts)
        # Rounded twice, so that halves go the same way for a - b and b - a whatever the last bit.
        steps = np.round(np.round(moves * LATTICE, 6)).astype(np.int64)
        summed = np.zeros(len(chances) + int(steps[-1] - steps[0]))
        for place in np.flatnonzero(part.chances > NEGLIGIBLE):
            shift = int(steps[place] - steps[0])
            summed[shift : shift + len(chances)] += part.chances[place] * chances
        chances, least, observed = summed, least + int(steps[0]), observed + int(steps[part.observed])
    can_occur = np.flatnonzero(chances)
    return NullDistribution((least + can_occur) / LATTICE, chances[can_occur], observed / LATTICE)


@lru_cache(maxsize=4096)
def _hypergeometric(n1: int, n2: int, hits: int) -> FloatArray:
    """The chances of each number of successes in the first arm, by ratios from the mode outwards."""
    k = np.arange(max(0, hits - n2), min(n1, hits), dtype=np.float64)
    ratios = (n1 - k) * (hits - k) / ((k + 1) * (n2 - hits + k + 1))
    mode = int(np.count_nonzero(ratios >= 1))
    weights = np.r_[np.cumprod(1 / ratios[:mode][::-1])[::-1], 1.0, np.cumprod(ratios[mode:])]
    chances: FloatArray = weights / weights.sum()
    chances.flags.writeable = False  # shared by every caller
    return chances


@dataclass(frozen=True, slots=True, eq=False)
class UnitShares:
    """One stratum of one policy: the share of successes of each start state, and its label (None: no start known)."""

    shares: FloatArray  # (units,)
    labels: Labels


def unit_shares(successes: Sequence[bool | int] | BoolArray, starts: Labels | Sequence[Hashable | None]) -> UnitShares:
    """Successes and start states, one an episode; an episode without a start (None) is a unit of its own."""
    if len(successes) != len(starts):
        raise InputError(f'{len(successes)} successes and {len(starts)} starts, wanted one start per episode')
    if isinstance(starts, NumberedLabels):
        units = units_of(starts, len(starts))
        hits = unit_sums(units, np.asarray(successes, dtype=np.bool_).astype(np.float64))
        return UnitShares(hits / np.bincount(units.codes, minlength=units.n), units.labels)
    runs: dict[Hashable, list[int]] = {}
    for place, (hit, start) in enumerate(zip(successes, starts, strict=True)):
        runs.setdefault((place, None) if start is None else start, []).append(int(bool(hit)))
    labels = tuple(None if isinstance(k, tuple) and len(k) == 2 and k[1] is None else k for k in runs)
    return UnitShares(np.array([math.fsum(v) / len(v) for v in runs.values()]), labels)
