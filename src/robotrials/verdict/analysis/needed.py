"""How many units per cell a pair would need, if the truth is what the data show: the size of the test that judges.

Each design is sized by its own test. R is solved for the trial that is x times as large (variance V / x, N* x); the
sign test and McNemar's are enumerated; the conditional tests of rates by their score form, at alpha / 1.2 where the
mid-p carries that factor. `tests/verdict/analysis/test_needed.py` has the power that is realised at these sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from robotrials.stats.allowance import Spread
from robotrials.stats.evidence import SignTest, UnseenRule, WorstCase
from robotrials.stats.interval import normal_cdf, two_sided_z
from robotrials.stats.sample_size import mcnemar_sample_size
from robotrials.stats.success_rule import MID_P_FACTOR, SuccessContrast, SuccessRule
from robotrials.value import dataclass
from robotrials.verdict.planning.success_size import pairs_size

if TYPE_CHECKING:
    from robotrials.stats import Interval
    from robotrials.stats.argument import FloatArray
    from robotrials.stats.win import WinContrast

POWER = 0.8
HALVINGS = 60
MOST_ENUMERATED = 400  # pairs
NO_GAP = 1e-12  # equal shares, summed in another order
Size = Callable[[float], float]  # units per cell for a gap in favour of whoever is ahead


@dataclass(frozen=True, slots=True)
class NeededUnits:
    """Units per cell for the power asked; infinite when the data show no difference.

    `low` is what the far end of the estimate's interval would need, `high` what the near end would (infinite where the
    interval includes no difference).
    """

    n: float
    low: float
    high: float
    power: float
    alpha: float


def needed_units(
    rule: WinContrast | SuccessContrast, *, interval: Interval | None, n_cells: int, alpha: float, power: float = POWER
) -> NeededUnits:
    """`interval` is that of the gap (0: level); `alpha` is that of the first step of the correction."""
    size, gap = _sized(rule, n_cells, alpha, power)
    n = size(abs(gap)) if abs(gap) > NO_GAP else math.inf
    if interval is None:
        return NeededUnits(n, 0.0, math.inf, power, alpha)
    low, high = interval.low, interval.high
    if abs(low) > abs(high):
        low, high = -high, -low
    return NeededUnits(n, size(high), size(low), power, alpha)


def _sized(rule: WinContrast | SuccessContrast, n_cells: int, alpha: float, power: float) -> tuple[Size, float]:
    """The size for any gap by the test of this design, and the gap that was observed."""
    is_part_shared = rule.n_matched > 0 and rule.n_units != (rule.n_matched, rule.n_matched)
    if isinstance(rule, SuccessContrast):
        if rule.exact is not None:
            return _rate_size(rule, alpha, power), rule.difference
        return _unseen_size(rule.rule, n_cells, alpha, power, is_part_shared=is_part_shared), rule.difference
    evidence = rule.evidence
    if isinstance(evidence, WorstCase):  # every undecided pair against whoever is ahead
        evidence = evidence.least if rule.probability >= 0.5 else evidence.most
    if isinstance(evidence, SignTest):
        decided = evidence.wins + evidence.losses
        share = decided / max(sum(rule.n_units) / 2, 1)

        def size(gap: float) -> float:  # of the decided pairs' share of wins, from one half
            return _pairs(2 * gap * share, share, n_cells, alpha, power, is_exact=True)

        return size, 0.0 if not decided else evidence.wins / decided - 0.5
    assert isinstance(evidence, UnseenRule)
    return _unseen_size(evidence, n_cells, alpha, power, is_part_shared=is_part_shared), evidence.gap


def _unseen_size(rule: UnseenRule, n_cells: int, alpha: float, power: float, *, is_part_shared: bool) -> Size:
    """R with as many units in every cell: what is suggested is an even trial, whatever the present one is."""
    from robotrials.verdict.planning.rule_power import units_needed

    per_cell = rule.n_star / n_cells
    terms, units = rule.spread.terms, rule.spread.dof + 1
    if len(terms) in (n_cells, 2 * n_cells) and not is_part_shared:
        per_cell = float(units.mean())
        even = Spread(terms * units / per_cell, np.full(len(terms), max(per_cell - 1, 1.0)))
        rule = UnseenRule(rule.value, even, n_cells * per_cell, rule.null, rule.move)
    return lambda gap: units_needed(rule, per_cell=per_cell, alpha=alpha, power=power, gap=max(gap, 0.0))


def _pairs(difference: float, discordance: float, n_cells: int, alpha: float, power: float, *, is_exact: bool) -> float:
    """Matched starts per cell by enumeration; many by Connor's formula, which is that of the same test there."""
    if not difference > 0:
        return math.inf
    n = mcnemar_sample_size(difference, discordance, power, alpha)
    if n <= MOST_ENUMERATED:
        n = pairs_size(difference, discordance, power=power, alpha=alpha, is_exact=is_exact)
    elif is_exact:
        n += math.ceil(1 / difference)  # what the exact test gives away to mid-p
    return float(math.ceil(n / n_cells))


def _rate_size(rule: SuccessContrast, alpha: float, power: float) -> Size:
    """McNemar by enumeration, the conditional tests by their score form."""
    assert rule.exact is not None
    score, sign = rule.exact.score, -1.0 if rule.difference < 0 else 1.0
    n_cells = len(score.share)
    if not score.n_a[0]:
        n = float(score.n_shared.sum())
        discordance = float((score.ahead + score.behind).sum()) / n

        def paired(gap: float) -> float:
            return _pairs(gap, min(max(discordance, gap), 1.0), n_cells, alpha, power, is_exact=False)

        return paired
    z = two_sided_z(1 - (alpha if rule.test is SuccessRule.BOSCHLOO else alpha / MID_P_FACTOR))
    now = score.n_shared + np.minimum(score.n_a, score.n_b)
    rest_a, rest_b = ((1 - score.share) * now / n for n in (score.n_a, score.n_b))

    def independent(gap: float) -> float:
        if not gap > 0:
            return math.inf
        p, q, differences = _shifted(score.hits_a / score.n_a, score.hits_b / score.n_b, rule.difference, sign * gap)
        middle = (score.hits_a + score.hits_b) / (score.n_a + score.n_b)
        # Per unit and cell; what shared starts add is the spread of their differences.
        null = middle * (1 - middle) * (rest_a + rest_b) * (1 - score.share)
        true = (p * (1 - p) * rest_a + q * (1 - q) * rest_b) * (1 - score.share)
        if score.n_shared[0]:
            discordance = (score.ahead + score.behind) / score.n_shared
            null, true = (
                null + score.share * discordance,
                true + score.share * np.maximum(discordance - differences**2, 0.0),
            )
        spread_0, spread_1 = (math.sqrt(float(v.sum())) / n_cells for v in (null, true))

        from robotrials.verdict.planning.rule_power import MOST_TIMES

        def is_enough(per_cell: float) -> bool:
            beyond = gap - z * spread_0 / math.sqrt(per_cell)
            return beyond >= 0 if spread_1 <= 0 else normal_cdf(beyond * math.sqrt(per_cell) / spread_1) >= power

        return _smallest(is_enough, most=MOST_TIMES * float(now.min()))

    return independent


def _shifted(
    p: FloatArray, q: FloatArray, difference: float, wanted: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Both arms' rates moved alike, so that they differ by `wanted` on average; and the difference of each cell."""
    move = (wanted - difference) / 2
    first, second = np.clip(p + move, 0.0, 1.0), np.clip(q - move, 0.0, 1.0)
    return first, second, first - second


def _smallest(is_enough: Callable[[float], bool], *, most: float) -> float:
    if not is_enough(most):
        return math.inf
    low, high = 1.0, most
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return float(max(2, math.ceil(high - 1e-9)))
