"""Which of two arms succeeds more often: the most powerful test that holds its level for the design at hand.

The estimand is the macro difference: the mean over strata of a's rate less b's. Strata may be unlike under the null
(one arm ahead here, the other there), and then tests that condition on totals hold only where all cells and both arms
have equal counts; elsewhere they err in up to 0.7 of trials, and R on the difference is used. By design, never by the
data (but for one guard of McNemar's test):

- one stratum up to n m = 10,000: Boschloo's test, doubled;
- equal counts everywhere, or one larger stratum: 1.2 x the doubled mid-p of the stratified conditional test;
- matched starts, one run each, equal cells: McNemar's mid-p while at most 70 % of pairs disagree (given the start two
  equal policies disagree in half at most), the exact test above that;
- some starts shared, equal counts: both convolved, 1.2 x the doubled mid-p;
- unequal counts, or starts with several runs: R (robotrials.stats.matching) on rates, shares or paired differences.

Margins (non-inferiority, equivalence) are tested by R in every design. An interval is that of a score statistic (R
where R tests) on a scale on which it excludes 0 exactly when the test rejects.

`stratified_exact` is the stratified Fisher test: given each stratum's total of successes, how they fall on the arms is
hypergeometric under equal rates, and the strata convolve. It holds only where strata cannot be opposite, such as for
whether two arms lost runs alike.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError
from robotrials.stats.interval import (
    STANDARD,
    Alternative,
    BoolArray,
    FloatArray,
    IntArray,
    Interval,
    Significance,
    Spread,
    check_alternative,
    check_open_unit,
    check_successes,
    exact_mean,
    two_sided_z,
)
from robotrials.stats.matching import (
    Labels,
    Match,
    NumberedLabels,
    Pairing,
    Units,
    UnseenRule,
    check_side,
    compared_units,
    distinct_units,
    few_units,
    has_label,
    linked_spread,
    match_units,
    mean_term,
    unit_sums,
    units_of,
)
from robotrials.stats.proportion import ScoreStatistic, binomial_pmf, binomial_pmf_table
from robotrials.value import dataclass

MID_P_FACTOR = 1.2  # mid-p alone reaches 0.058 in one stratum and 0.053 in strata
BOSCHLOO_PRODUCT = 10_000  # of both arms' units, beyond which its tables take seconds
MOST_DISCORDANT = 0.7
NUISANCES = 1_001


class SuccessRule(enum.StrEnum):
    """How a difference of success rates is tested."""

    BOSCHLOO = "Boschloo's exact test"
    MID_P = 'stratified mid-p x 1.2'
    MCNEMAR_MID_P = 'McNemar mid-p'
    MCNEMAR_EXACT = 'exact McNemar'
    PART_SHARED_MID_P = 'shared and other starts combined, mid-p x 1.2'
    UNSEEN = 'R on rates'
    UNSEEN_PAIRED = 'R on paired differences'
    UNSEEN_PART_SHARED = 'R on rates of shared and other starts'


@dataclass(frozen=True, slots=True, eq=False)
class SuccessArm:
    """One stratum's runs of one arm: (runs,) successes as 0/1 or shares, and the start state of each run, if known."""

    successes: FloatArray
    starts: Labels | None

    def __post_init__(self) -> None:
        if self.successes.ndim != 1 or self.successes.size == 0:
            raise InputError(f'successes must be (runs,) with at least one run, found {self.successes.shape}')
        if not ((self.successes >= 0) & (self.successes <= 1)).all():
            raise InputError('successes must lie between 0 and 1; a run without an outcome is left out, not NaN')

    @property
    def units(self) -> Units:
        return units_of(self.starts, len(self.successes))


def success_arm(successes: ArrayLike, starts: Sequence[Hashable | None] | None = None) -> SuccessArm:
    """A SuccessArm from plain sequences."""
    return SuccessArm(np.asarray(successes, dtype=np.float64), None if starts is None else tuple(starts))


@dataclass(frozen=True, slots=True, eq=False)
class SuccessContrast:
    """The macro difference of success rates, a - b, with its interval and two-sided unadjusted p-value.

    A withheld contrast has neither interval nor p-value.
    """

    difference: float
    rate_a: float
    rate_b: float
    interval: Interval | None
    p_value: float | None
    level: float
    test: SuccessRule
    n_units: tuple[int, int]
    n_matched: int
    per_stratum: tuple[float, ...]
    rule: UnseenRule  # R on the difference: the margins' test in every design
    margin_withheld: str  # why a margin is not tested
    exact: _Exact | None
    withheld: str = ''

    @property
    def favours(self) -> str | None:
        """'a' or 'b', by the sign; not yet a claim."""
        return None if self.difference == 0 else 'a' if self.difference > 0 else 'b'

    def p_one_sided(self, favours: str) -> float | None:
        """The p-value of "this arm does not succeed more often"; None where withheld."""
        side = check_side(favours)
        if self.withheld:
            return None
        return self.rule.p_one_sided(side) if self.exact is None else self.exact.p_one_sided(side)

    def p_not_worse(self, margin: float) -> float | None:
        """One-sided p-value of "a is worse than b by `margin` or more": small says non-inferior."""
        _check_margin(margin)
        return None if self.margin_withheld else self.rule.p_above(-margin)

    def p_within(self, margin: float) -> float | None:
        """The p-value of "the rates differ by `margin` or more, either way" (two one-sided tests)."""
        _check_margin(margin)
        return None if self.margin_withheld else max(self.rule.p_above(-margin), self.rule.p_below(margin))


def _check_margin(margin: float) -> None:
    if not 0 < margin < 1:
        raise InputError(f'a margin of rates must lie between 0 and 1 (5 points are 0.05), found {margin}')


@dataclass(frozen=True, slots=True, eq=False)
class _Exact:
    """An exact or mid-p test with its tails, and the score statistic whose interval it is read with."""

    p_value: float
    above: float  # one-sided p-value of "a is not ahead"
    below: float
    score: ScoreStatistic

    def p_one_sided(self, favours: str) -> float:
        return self.above if favours == 'a' else self.below

    def interval(self, level: float) -> Interval:
        """The score interval, on the scale of t, and no narrower or wider than agrees with the test.

        Score statistic and test see the same data with slightly different p-values. `stretch` is the factor on the
        scale of z that makes them agree at every level, so that no end is moved to exactly 0. Few episodes want a
        wider interval than z gives (coverage falls to .85 at 8 per arm): it is widened to Student's t unless it would
        then hold 0 where the test rejects.
        """
        from robotrials.stats.special import stdtrit

        z = two_sided_z(level)
        student = float(stdtrit(self.score.degrees, (1 + level) / 2))
        wide = max(student, z * self.stretch)
        if self.p_value <= 1 - level and wide >= abs(self.score.statistic(0.0)):
            wide = z * self.stretch
        return self.score.interval(wide)

    @property
    def stretch(self) -> float:
        score_z, test_z = (_two_sided_score(p) for p in (self.score.p_value, self.p_value))
        # Below z = 1 no level in use could tell them apart, and the ratio of two small numbers says nothing.
        return score_z / test_z if test_z >= 1.0 else max(1.0, score_z)


def _two_sided_score(p_value: float) -> float:
    return -STANDARD.inv_cdf(max(p_value, 1e-300) / 2) if p_value < 1 else 0.0


def success_contrast(
    a: Sequence[SuccessArm], b: Sequence[SuccessArm], *, pairing: Pairing = 'auto', level: float = 0.95,
    n_tests: int = 1, is_linked: bool = False,
) -> SuccessContrast:  # fmt: skip
    """Compare two arms over the same strata, in the same order.

    `is_linked` says that the units in `starts` reach over strata and arms (sessions, operators): R is then used on
    unmatched rates, a unit's moves are added up over all cells, and N* is the fewest units of an arm.

    >>> from robotrials.stats import success_arm, success_contrast
    >>> found = success_contrast([success_arm([1] * 9 + [0])], [success_arm([1] * 3 + [0] * 7)])
    >>> round(found.difference, 2), round(found.p_value, 4), found.test.value
    (0.6, 0.008, "Boschloo's exact test")
    """
    alpha = 1 - check_open_unit('level', level)
    cells = _cells(a, b, 'independent' if is_linked else pairing)
    rule, rates, per_stratum = _unseen_rule(cells, is_linked=is_linked)
    test = SuccessRule.UNSEEN if is_linked else _test_of(cells)
    kind = 'start states' if any(has_label(c.units_a.labels) for c in cells) else 'episodes'
    sizes = [rule.n_star] if is_linked else [c.match.n_compared for c in cells]
    few = few_units(sizes, n_tests, alpha, kind, farthest=1.0)
    exact, withheld = None, few
    if test not in (SuccessRule.UNSEEN, SuccessRule.UNSEEN_PAIRED, SuccessRule.UNSEEN_PART_SHARED):
        withheld = ''  # an exact test says itself that too few cannot be told apart
        exact = _exact_of(test, cells)
        if test is SuccessRule.MCNEMAR_MID_P and _discordant_share(cells) > MOST_DISCORDANT:
            test = SuccessRule.MCNEMAR_EXACT
    interval = None
    p_value = None
    if not withheld:
        interval = rule.interval(level, low=-1.0, high=1.0) if exact is None else exact.interval(level)
        p_value = rule.p_value if exact is None else exact.p_value
    return SuccessContrast(
        difference=rule.value, rate_a=rates[0], rate_b=rates[1], interval=interval, p_value=p_value, level=level,
        test=test, n_units=compared_units(c.match for c in cells),
        n_matched=sum(c.match.n_shared for c in cells), per_stratum=per_stratum, rule=rule, margin_withheld=few,
        exact=exact, withheld=withheld,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Cell:
    """One stratum: the share of successes of every unit of either arm, and what they share."""

    shares_a: FloatArray
    shares_b: FloatArray
    units_a: Units
    units_b: Units
    match: Match
    is_binary: bool  # one run per unit, 0 or 1

    @property
    def table(self) -> tuple[int, int, int, int]:
        """Successes and runs of the starts that are not shared, a then b; no run where there is no such start."""
        if not self.match.smaller_rest:
            return 0, 0, 0, 0
        x, y = self.shares_a[self.match.rest_a], self.shares_b[self.match.rest_b]
        return int(x.sum()), len(x), int(y.sum()), len(y)

    @property
    def discordant(self) -> tuple[int, int]:
        """Shared starts at which only a, and only b, succeeded."""
        gaps = self.shares_a[self.match.shared_a] - self.shares_b[self.match.shared_b]
        return int((gaps > 0).sum()), int((gaps < 0).sum())


def _cells(a: Sequence[SuccessArm], b: Sequence[SuccessArm], pairing: Pairing) -> list[_Cell]:
    if not a or len(a) != len(b):
        raise InputError(f'wanted the same strata of both arms, at least one, found {len(a)} and {len(b)}')
    cells = []
    for first, second in zip(a, b, strict=True):
        units_a, units_b = first.units, second.units
        match = match_units(units_a, units_b, pairing)
        if not match.n_compared:
            raise InputError('a stratum has no start state that both arms ran; compare the arms as independent')
        is_binary = not (units_a.has_repeats or units_b.has_repeats) and all(
            bool(((arm.successes == 0) | (arm.successes == 1)).all()) for arm in (first, second)
        )
        cells.append(
            _Cell(units_a.means(first.successes), units_b.means(second.successes), units_a, units_b, match, is_binary)
        )
    return cells


def _test_of(cells: Sequence[_Cell]) -> SuccessRule:
    """The test, by the design: what is shared, whether counts are equal, whether starts repeat."""
    is_matched = all(c.match.n_shared and not c.match.smaller_rest for c in cells)
    is_independent = not any(c.match.n_shared for c in cells)
    if not all(c.is_binary for c in cells):
        return _unseen_kind(is_matched, is_independent)
    designs = {c.match.counts for c in cells}
    _, rest_a, rest_b = next(iter(designs))
    if is_independent and len(cells) == 1:
        return SuccessRule.BOSCHLOO if rest_a * rest_b <= BOSCHLOO_PRODUCT else SuccessRule.MID_P
    if len(designs) > 1 or rest_a != rest_b:
        return _unseen_kind(is_matched, is_independent)
    if is_independent:
        return SuccessRule.MID_P
    return SuccessRule.MCNEMAR_MID_P if is_matched else SuccessRule.PART_SHARED_MID_P


def _unseen_kind(is_matched: bool, is_independent: bool) -> SuccessRule:
    if is_matched:
        return SuccessRule.UNSEEN_PAIRED
    return SuccessRule.UNSEEN if is_independent else SuccessRule.UNSEEN_PART_SHARED


def _unseen_rule(
    cells: Sequence[_Cell], *, is_linked: bool = False
) -> tuple[UnseenRule, tuple[float, float], tuple[float, ...]]:
    """R on the macro difference, both arms' macro rates, and each stratum's difference."""
    gaps, rates, terms, parts, moves = [], [], [], [], [1.0]
    strata = len(cells)
    for c in cells:
        f, rate_a, rate_b = c.match.share, 0.0, 0.0
        if c.match.n_shared:
            x, y = c.shares_a[c.match.shared_a], c.shares_b[c.match.shared_b]
            rate_a, rate_b = rate_a + f * exact_mean(x), rate_b + f * exact_mean(y)
            terms.append(mean_term(f * (x - y)))
            moves.append(float(paired_move(x - y, f)))
        if c.match.smaller_rest:
            x, y = c.shares_a[c.match.rest_a], c.shares_b[c.match.rest_b]
            rate_a, rate_b = rate_a + (1 - f) * exact_mean(x), rate_b + (1 - f) * exact_mean(y)
            terms += [mean_term((1 - f) * x), mean_term((1 - f) * y)]
            parts += [(c.units_a.labels, x / strata), (c.units_b.labels, -y / strata)]
        gaps.append(rate_a - rate_b)
        rates.append((rate_a, rate_b))
    if is_linked:
        spread = linked_spread(parts)
        n_star = min(distinct_units(c.units_a for c in cells), distinct_units(c.units_b for c in cells))
        moves.append(_linked_move(cells))
    else:
        spread = Spread(np.array([v for v, _ in terms]) / strata**2, np.array([dof for _, dof in terms]))
        n_star = strata * min(c.match.n_compared for c in cells)
    macro = math.fsum(r for r, _ in rates) / strata, math.fsum(r for _, r in rates) / strata
    return UnseenRule(math.fsum(gaps) / strata, spread, float(n_star), 0.0, max(moves)), macro, tuple(gaps)


def paired_move(differences: FloatArray, share: float = 1.0) -> FloatArray:
    """(...,) by how many comparisons a start of (..., starts) paired differences moves a rate when it turns.

    A start on which the arms differ by d would move it by 2 |d| the other way; one of the other starts by 1. It goes by
    the cell in which it is most, since losses may hide in one.
    """
    return np.asarray(share * 2 * np.abs(differences).mean(axis=-1) + (1 - share))


def _linked_move(cells: Sequence[_Cell]) -> float:
    """The same of units (sessions, operators) that both arms have, over all cells."""
    sums: list[dict[Hashable, list[float]]] = [{}, {}]
    for cell in cells:
        for into, units, shares in zip(sums, (cell.units_a, cell.units_b), (cell.shares_a, cell.shares_b), strict=True):
            for label, share in zip(units.labels, shares.tolist(), strict=True):
                if label is not None:
                    into.setdefault(label, []).append(share)
    gaps = [math.fsum(sums[0][u]) / len(sums[0][u]) - math.fsum(sums[1][u]) / len(sums[1][u])
            for u in sums[0].keys() & sums[1].keys()]  # fmt: skip
    return float(paired_move(np.array(gaps))) if gaps else 1.0


# --- exact tests ------------------------------------------------------------------------------------------------------


def _exact_of(test: SuccessRule, cells: Sequence[_Cell]) -> _Exact:
    if test is SuccessRule.BOSCHLOO:
        x, n, y, m = cells[0].table
        above, below = (float(table[x, y]) for table in boschloo_p_values(n, m))
    elif test is SuccessRule.MCNEMAR_MID_P and _discordant_share(cells) > MOST_DISCORDANT:
        chances, observed = _conditional(cells)
        above, below = (min(1.0, float(tail.sum())) for tail in (chances[observed:], chances[: observed + 1]))
    else:
        chances, observed = _conditional(cells)
        above, below = _mid_tails(chances, observed, 1.0 if test is SuccessRule.MCNEMAR_MID_P else MID_P_FACTOR)
    return _Exact(min(1.0, 2 * min(above, below)), above, below, _score_of(cells))


def _score_of(cells: Sequence[_Cell]) -> ScoreStatistic:
    x, n, y, m = (np.array([c.table[k] for c in cells], dtype=np.float64) for k in range(4))
    ahead, behind = (np.array([c.discordant[k] for c in cells], dtype=np.float64) for k in (0, 1))
    shared = np.array([c.match.n_shared for c in cells], dtype=np.float64)
    return ScoreStatistic(x, n, y, m, ahead, behind, shared, np.array([c.match.share for c in cells]))


def _discordant_share(cells: Sequence[_Cell]) -> float:
    return sum(sum(c.discordant) for c in cells) / sum(c.match.n_shared for c in cells)


def _mid_tails(chances: FloatArray, observed: int, factor: float) -> tuple[float, float]:
    """One-sided mid-p values of "a is not ahead" and "b is not ahead", times the factor."""
    half = float(chances[observed]) / 2
    above, below = float(chances[observed + 1 :].sum()) + half, float(chances[:observed].sum()) + half
    return min(1.0, factor * above), min(1.0, factor * below)


def _conditional(cells: Sequence[_Cell]) -> tuple[FloatArray, int]:
    """The null distribution of a's successes given each stratum's total, and the place of the number observed.

    A shared start at which one arm succeeded is a fair coin. Only for equal counts, where one success more for a moves
    the macro difference by the same step everywhere, so that chances convolve.
    """
    chances, observed = np.ones(1), 0
    for x, n, y, m in (c.table for c in cells):
        if n:
            part, first = hypergeometric(n, m, x + y)
            chances, observed = np.convolve(chances, part), observed + x - first
    ahead, behind = (sum(c.discordant[side] for c in cells) for side in (0, 1))
    return np.convolve(chances, binomial_pmf(ahead + behind, 0.5)), observed + ahead


@lru_cache(maxsize=4096)
def hypergeometric(n: int, m: int, hits: int) -> tuple[FloatArray, int]:
    """The chances of a's successes among n given `hits` among n + m, and the smallest number there can be."""
    from robotrials.stats.special import gammaln

    first = max(0, hits - m)
    k = np.arange(first, min(n, hits) + 1)

    def log_choose(of: int, r: IntArray | int) -> FloatArray:
        return np.asarray(gammaln(of + 1) - gammaln(np.add(r, 1)) - gammaln(np.subtract(of + 1, r)))

    chances = np.exp(log_choose(n, k) + log_choose(m, hits - k) - log_choose(n + m, hits))
    chances.setflags(write=False)
    return chances, first


@lru_cache(maxsize=256)
def boschloo_p_values(n: int, m: int) -> tuple[FloatArray, FloatArray]:
    """Boschloo's one-sided p-value of every table (n + 1, m + 1): a ahead, and b ahead.

    Tables are ordered by Fisher's one-sided p-value; the p-value is the largest chance, over the common rate, of a
    table at least as extreme.
    """
    fisher = np.empty((n + 1, m + 1))
    for hits in range(n + m + 1):
        chances, first = hypergeometric(n, m, hits)
        k = np.arange(first, first + len(chances))
        fisher[k, hits - k] = np.cumsum(chances[::-1])[::-1]
    rates = (1 - np.cos(np.linspace(0, math.pi, NUISANCES))) / 2
    of_a, of_b = binomial_pmf_table(n, rates), binomial_pmf_table(m, rates)
    ahead = _unconditional(fisher, of_a, of_b)
    # b ahead in (x, y) is a ahead in the table of failures (n - x, m - y).
    behind = ahead[::-1, ::-1]
    for table in (ahead, behind):
        table.setflags(write=False)
    return ahead, behind


def _unconditional(order: FloatArray, of_a: FloatArray, of_b: FloatArray) -> FloatArray:
    """The largest chance over rates of a table whose order is at most each table's own."""
    flat = np.argsort(order, axis=None, kind='stable')
    values = order.ravel()[flat]
    ends = np.flatnonzero(np.r_[np.diff(values) > 1e-10 * values[1:], True])
    i, j = np.unravel_index(flat, order.shape)
    p = np.empty(order.size)
    reached, start = np.zeros(len(of_a)), 0
    for end in ends.tolist():
        inside = slice(start, end + 1)
        reached = reached + np.einsum('rk,rk->r', of_a[:, i[inside]], of_b[:, j[inside]])
        p[flat[inside]] = reached.max()
        start = end + 1
    return np.minimum(1.0, p).reshape(order.shape)


Table = tuple[int, int, int, int]  # successes and episodes of a, then of b
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
