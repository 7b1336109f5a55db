"""Two policies' success rates: exact tests within strata, and intervals of the macro difference that agree with them.

Independent arms: given each stratum's total of successes, how they fall on the arms is hypergeometric under equal
rates, and the strata convolve (the stratified Fisher test). Matched starts: the sign of each start's difference is a
fair coin, so signs are flipped (for single runs of one stratum the exact McNemar test). The interval is that of the
stratified score statistic (Miettinen and Nurminen, or Tango for pairs). A p-value is the larger of the exact and the
score one, and an interval reaches 0 where the test does not reject, so that test and interval never contradict each
other. Repeats of a start state are one unit: its share of successes is its value.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from robotrials.errors import InputError
from robotrials.stats.allowance import FEWEST_PER_CELL, MacroArm, MacroDifference, Spread, macro_difference
from robotrials.stats.argument import (
    Alternative,
    BoolArray,
    FloatArray,
    IntArray,
    check_alternative,
    check_open_unit,
    check_successes,
)
from robotrials.stats.interval import Interval, Significance
from robotrials.stats.matching import Labels, NumberedLabels, unit_sums, units_of
from robotrials.stats.noninferiority import ArmCounts, PairCounts, rate_difference_interval
from robotrials.stats.proportion import binomial_pmf
from robotrials.value import dataclass

Table = tuple[int, int, int, int]  # successes and episodes of a, then of b
MOST_ROUNDS = 200
MOST_LISTED = 2_000_000  # values, which are sorted
MOST_WORK = 100_000_000  # of a lattice: some hundredths of a second
LATTICE = 20_000  # steps of a difference of 1
NEGLIGIBLE = 1e-18
SLACK = 1e-9  # differences nearer than this are equal


class SuccessTest(enum.StrEnum):
    """How two success rates are tested."""

    EXACT = 'stratified exact'
    MID_P = 'stratified mid-p'
    SCORE = 'Miettinen-Nurminen'
    MCNEMAR = 'exact McNemar'
    SIGN_FLIP = 'sign flips of start states'
    UNIT_PERMUTATION = 'permuted start states'


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


def discordant_null(pairs: Sequence[PairCounts]) -> NullDistribution:
    """Matched starts: the macro difference of the rates when every discordant pair is a fair coin."""
    parts = []
    for c in pairs:
        apart = c.only_new + c.only_reference
        parts.append(_Part(Fraction(-apart, c.n), Fraction(2, c.n), binomial_pmf(apart, 0.5), c.only_new))
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


@dataclass(frozen=True, slots=True)
class SuccessPair:
    """Two policies' macro success rates: the difference a - b, its test, and an interval of the same null."""

    rate_a: float
    rate_b: float
    difference: float
    interval: Interval | None
    p_value: float | None
    level: float
    test: SuccessTest
    is_paired: bool
    n_units: tuple[int, int]
    withheld: str = ''  # why there is no test or no interval

    @property
    def is_resolved(self) -> bool:
        return self.p_value is not None and self.p_value <= 1 - self.level


def independent_success(
    tables: Sequence[Table], *, level: float = 0.95, test: SuccessTest | str = SuccessTest.EXACT
) -> SuccessPair:
    """Independent arms, one row (x_a, n_a, x_b, n_b) a stratum, every episode a unit of its own."""
    kind, alpha = SuccessTest(test), 1 - check_open_unit('level', level)
    counts = [ArmCounts(*row) for row in tables]
    if kind not in (SuccessTest.EXACT, SuccessTest.MID_P, SuccessTest.SCORE):
        raise InputError(f'{kind.value} is for matched or repeated starts; use an exact, mid-p or score test here')
    difference, low, high, p_score = rate_difference_interval(counts, level=level)
    p = p_score
    if kind is not SuccessTest.SCORE:
        p = max(p_score, stratified_exact(tables, mid_p=kind is SuccessTest.MID_P).p_value)
    rates = [math.fsum(row[k] / row[k + 1] for row in tables) / len(tables) for k in (0, 2)]
    return SuccessPair(
        rates[0], rates[1], difference, _agreeing(Interval(low, high), p, alpha), p, level, kind, False,
        (sum(row[1] for row in tables), sum(row[3] for row in tables)),
    )  # fmt: skip


def _agreeing(interval: Interval, p_value: float, alpha: float) -> Interval:
    """The interval, reaching 0 where the test does not reject."""
    if p_value <= alpha or interval.contains(0.0):
        return interval
    return Interval(min(interval.low, 0.0) + 0.0, max(interval.high, 0.0))


def paired_success(pairs: Sequence[PairCounts], *, level: float = 0.95, mid_p: bool = False) -> SuccessPair:
    """Matched starts run once by each policy: discordant pairs are fair coins within every stratum.

    In one stratum this is the exact McNemar test. `new` of the counts is policy a.
    """
    alpha = 1 - check_open_unit('level', level)
    difference, low, high, p_score = rate_difference_interval(pairs, level=level)
    p = max(p_score, discordant_null(pairs).p_value(mid_p=mid_p))
    n = sum(c.n for c in pairs)
    rates = [math.fsum((c.both + own) / c.n for c, own in rows) / len(pairs) for rows in _marginals(pairs)]
    return SuccessPair(
        rates[0], rates[1], difference, _agreeing(Interval(low, high), p, alpha), p, level, SuccessTest.MCNEMAR, True,
        (n, n),
    )  # fmt: skip


def _marginals(pairs: Sequence[PairCounts]) -> tuple[list[tuple[PairCounts, int]], list[tuple[PairCounts, int]]]:
    return [(c, c.only_new) for c in pairs], [(c, c.only_reference) for c in pairs]


@dataclass(frozen=True, slots=True, eq=False)
class UnitShares:
    """One stratum of one policy: the share of successes of each start state, and its label (None: no start known)."""

    shares: FloatArray  # (units,)
    labels: Labels


def unit_shares(successes: Sequence[bool | int] | BoolArray, starts: Labels | Sequence[Hashable | None]) -> UnitShares:
    """Successes and start states, one an episode; an episode without a start (None) is a unit of its own."""
    if len(successes) != len(starts):
        raise InputError(f'{len(successes)} successes and {len(starts)} starts, wanted one start an episode')
    if isinstance(starts, NumberedLabels):
        units = units_of(starts, len(starts))
        hits = unit_sums(units, np.asarray(successes, dtype=np.bool_).astype(np.float64))
        return UnitShares(hits / np.bincount(units.codes, minlength=units.n), units.labels)
    runs: dict[Hashable, list[int]] = {}
    for place, (hit, start) in enumerate(zip(successes, starts, strict=True)):
        runs.setdefault((place, None) if start is None else start, []).append(int(bool(hit)))
    labels = tuple(None if isinstance(k, tuple) and len(k) == 2 and k[1] is None else k for k in runs)
    return UnitShares(np.array([math.fsum(v) / len(v) for v in runs.values()]), labels)


def clustered_success(
    a: Mapping[str, UnitShares], b: Mapping[str, UnitShares], *, paired: bool, level: float = 0.95,
    n_resamples: int = 9_999, rng: np.random.Generator | None = None,
) -> SuccessPair:  # fmt: skip
    """Start states run more than once: units are permuted (or, matched, their signs flipped), and the interval is the
    rule's own (jackknife over units with an allowance for what was not seen).

    Exact where shares are whole numbers on a common scale; else by Monte Carlo, which needs `rng`.
    """
    from robotrials.stats.mean_difference import label_permutation, sign_flip

    alpha = 1 - check_open_unit('level', level)
    strata = sorted(a)
    if strata != sorted(b):
        raise InputError(f'both policies need the same strata, found {strata} and {sorted(b)}')
    if paired:
        a, b = matched_shares(a, b)
        strata = sorted(a)
        if not strata:
            raise InputError('no start state was run by both policies; compare them as independent')
    whole = _common_runs([x for arm in (a, b) for s in strata for x in arm[s].shares.tolist()])
    parts = [[_scaled(arm[s].shares, whole) for s in strata] for arm in (a, b)]
    labels = [np.repeat(np.arange(len(strata)), [len(p) for p in arm]) for arm in parts]
    first, second = (np.concatenate(arm) for arm in parts)
    if paired:
        p_exact = sign_flip(first - second, strata=labels[0], n_resamples=n_resamples, rng=rng).p_value
    else:
        p_exact = label_permutation(
            first, second, strata_a=labels[0], strata_b=labels[1], n_resamples=n_resamples, rng=rng
        ).p_value
    rule = share_difference([a[s] for s in strata], [b[s] for s in strata], paired=paired)
    sizes = tuple(sum(len(arm[s].shares) for s in strata) for arm in (a, b))
    rates = [math.fsum(float(arm[s].shares.mean()) for s in strata) / len(strata) for arm in (a, b)]
    test = SuccessTest.SIGN_FLIP if paired else SuccessTest.UNIT_PERMUTATION
    few = min(len(arm[s].shares) for arm in (a, b) for s in strata)
    if few < FEWEST_PER_CELL:
        reason = f'{few} start states in a cell; at least {FEWEST_PER_CELL} are needed for an interval and a verdict'
        return SuccessPair(
            rates[0], rates[1], rates[0] - rates[1], None, None, level, test, paired, (sizes[0], sizes[1]), reason
        )
    p = max(p_exact, rule.p_value)
    interval = _within_unit(rule.interval(level))
    return SuccessPair(
        rates[0], rates[1], rates[0] - rates[1], _agreeing(interval, p, alpha), p, level, test, paired,
        (sizes[0], sizes[1]),
    )  # fmt: skip


def _within_unit(interval: Interval) -> Interval:
    return Interval(max(interval.low, -1.0), min(interval.high, 1.0))


def matched_shares(
    a: Mapping[str, UnitShares], b: Mapping[str, UnitShares]
) -> tuple[dict[str, UnitShares], dict[str, UnitShares]]:
    first, second = {}, {}
    for s in a:
        places = [{x: k for k, x in enumerate(arm[s].labels) if x is not None} for arm in (a, b)]
        common = [x for x in places[0] if x in places[1]]
        if common:
            first[s], second[s] = (
                UnitShares(arm[s].shares[[place[x] for x in common]], tuple(common))
                for arm, place in zip((a, b), places, strict=True)
            )
    return first, second


def _common_runs(shares: Sequence[float]) -> int:
    """The smallest number that makes every share whole, or 0 where that takes more than MOST_ROUNDS."""
    values = np.unique(np.asarray(shares))
    for runs in range(1, MOST_ROUNDS + 1):
        if np.allclose(values * runs, np.round(values * runs), atol=1e-9):
            return runs
    return 0


def _scaled(shares: FloatArray, runs: int) -> FloatArray | IntArray:
    return np.round(shares * runs).astype(np.int64) if runs else shares


def share_difference(a: Sequence[UnitShares], b: Sequence[UnitShares], *, paired: bool) -> MacroDifference:
    """The rule's difference a - b of macro shares."""

    def arm(parts: Sequence[UnitShares]) -> MacroArm:
        return MacroArm(
            np.array([p.shares.mean() for p in parts]), np.zeros(len(parts)), np.ones(len(parts)),
            np.array([float(len(p.shares)) for p in parts]),
        )  # fmt: skip

    rows = [x.shares - y.shares for x, y in zip(a, b, strict=True)] if paired else [p.shares for p in (*a, *b)]
    variances = [float(np.var(row, ddof=1)) / len(row) if len(row) > 1 else 0.0 for row in rows]
    dof = np.array([max(len(row) - 1.0, 1.0) for row in rows])
    return macro_difference(arm(b), arm(a), Spread(np.array(variances) / len(a) ** 2, dof))
