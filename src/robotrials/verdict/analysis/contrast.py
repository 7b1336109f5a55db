"""A contrast: two arms, one endpoint, one plan. Whatever sets two arms against each other reads it.

It decides in one place which cells are compared, how long both arms of a cell were watched, what the units are, which
starts make pairs, and what is left out; the tests themselves are those of `robotrials.stats` (rule 2). The estimand is
the mean over cells. Whatever has a sign favours arm a when it is positive.

How many units per cell a pair would need, if the truth is what the data show, is the size of the test that judges: R
is solved for the trial that is x times as large (variance V / x, N* x); the sign test and McNemar's are enumerated; the
conditional tests of rates by their score form, at alpha / 1.2 where the mid-p carries that factor. `tests/verdict/
analysis/test_needed.py` has the power that is realised at these sizes.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.better import better
from robotrials.measure.timing.curve import CENTRES
from robotrials.measure.timing.operation import Unit
from robotrials.record import Episode
from robotrials.record.rows import column
from robotrials.stats import Estimate, Interval
from robotrials.stats.interval import Spread, normal_cdf, two_sided_z
from robotrials.stats.matching import Labels, SignTest, UnseenRule, WorstCase, has_label, same_labels
from robotrials.stats.sample_size import mcnemar_sample_size, pairs_size
from robotrials.stats.success_rule import MID_P_FACTOR, SuccessArm, SuccessContrast, SuccessRule, success_contrast
from robotrials.stats.win import WinArm, win_arm, win_contrast
from robotrials.value import dataclass
from robotrials.verdict.analysis.arm import success_of
from robotrials.verdict.analysis.ranking import cell_tau, seconds_text
from robotrials.verdict.planning.analysis_plan import EndpointName

if TYPE_CHECKING:
    from robotrials.measure.timing.better import Better
    from robotrials.stats.interval import FloatArray
    from robotrials.stats.win import WinContrast
    from robotrials.verdict.analysis.arm import Side
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan


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


Value = Callable[[Episode], float]
Arms = Sequence[Sequence[SuccessArm | WinArm]]
TIMED = (EndpointName.TIME, EndpointName.THROUGHPUT)
HALF = 0.5


class Cells(enum.StrEnum):
    """Which cells a contrast is about."""

    SHARED = 'shared'  # those that both arms have
    DECLARED = 'declared'  # those of the protocol; runs that were never made count as failures


@dataclass(frozen=True, slots=True)
class ContrastCell:
    """One cell of a contrast."""

    name: str
    n_a: int  # episodes
    n_b: int
    value_a: float  # rate, or restricted mean in seconds; of lost items the mean count
    value_b: float
    advantage: float  # of a: difference of rates, or the win probability less one half
    until_s: float | None  # the follow-up that both arms share: tau of times, the common cap of rates where caps differ
    p_value: float | None = None  # two-sided and unadjusted, of this cell alone
    p_a: float | None = None  # one-sided, of "a is not ahead here"
    p_b: float | None = None

    @property
    def turned(self) -> ContrastCell:
        return replace(
            self, n_a=self.n_b, n_b=self.n_a, value_a=self.value_b, value_b=self.value_a, advantage=-self.advantage,
            p_a=self.p_b, p_b=self.p_a,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Episodes or cells that a contrast does not use, and why."""

    name: str  # of the arm
    why: str
    n: int


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """Two arms on one endpoint: one estimate, one interval at one level, one unadjusted two-sided p-value.

    `estimate` is the difference of rates a - b, or the probability that a is faster (loses less), 1/2 meaning level.
    The further p-values have names of their own and are set by whoever holds the hypothesis: `p_adjusted` over a list
    of claims, `p_margin` of a gate, `p_look` of a trial that is watched.
    """

    endpoint: EndpointName
    a: str
    b: str
    estimate: float
    interval: Interval | None
    p_value: float | None
    level: float
    test: str
    unit: str
    is_matched: bool  # every unit that is compared is compared with itself
    n_units: tuple[int, int]
    n_matched: int
    n_episodes: tuple[int, int]
    values: tuple[float, float]  # macro: rates, restricted means in seconds, or lost items
    cells: tuple[ContrastCell, ...]
    left_out: tuple[LeftOut, ...]
    rule: WinContrast | SuccessContrast
    seconds: Better | None = None  # of times: the difference of restricted means, which sizes the effect
    n_items: int = 1  # of a race
    withheld: str = ''
    margin: float | None = None  # within which the two are the same, where the plan declares one
    p_same: float | None = None
    p_adjusted: float | None = None
    p_margin: float | None = None
    p_look: float | None = None
    note: str = ''
    is_turned: bool = False  # told from the other side than the rule was

    @property
    def null(self) -> float:
        return 0.0 if isinstance(self.rule, SuccessContrast) else HALF

    @property
    def advantage(self) -> float:
        """How far the estimate is from "level", in favour of a."""
        return self.estimate - self.null

    @property
    def ahead(self) -> str | None:
        """Who the estimate favours; not yet a claim."""
        return None if self.advantage == 0 else self.a if self.advantage > 0 else self.b

    def p_behind(self, name: str) -> float | None:
        """One-sided and unadjusted, of "this arm is not worse": small is a warning."""
        is_a = (name == self.a) != self.is_turned
        return self.rule.p_one_sided('b' if is_a else 'a')

    @property
    def seconds_ahead(self) -> Estimate | None:
        """How much less time a took, restricted to each cell's tau; None where no times were compared."""
        if self.seconds is None:
            return None
        interval, value = self.seconds.interval, self.seconds.difference
        if self.is_turned:
            interval, value = None if interval is None else interval.scaled(-1.0), -value + 0.0
        return Estimate(value, interval, self.seconds.withheld, n=sum(self.n_units))

    @property
    def taus_s(self) -> dict[str, float]:
        return {c.name: c.until_s for c in self.cells if c.until_s is not None}

    @property
    def p_reversal(self) -> float | None:
        """That one arm is truly ahead in some cell and the other in another; valid for any number of cells."""
        for_a, for_b = (
            [c.p_a for c in self.cells if c.p_a is not None],
            [c.p_b for c in self.cells if c.p_b is not None],
        )
        if len(self.cells) < 2 or not for_a or not for_b:
            return None
        return min(1.0, len(self.cells) * max(min(for_a), min(for_b)))

    def reversed_cells(self, alpha: float) -> tuple[ContrastCell, ...]:
        """The cells in which the other arm is shown to be ahead, each at alpha over their number."""
        against = [(c, c.p_b if self.advantage > 0 else c.p_a) for c in self.cells]
        return tuple(c for c, p in against if p is not None and p * len(self.cells) <= alpha)

    def seen_from(self, name: str) -> Contrast:
        """The same contrast told from the side of `name`."""
        if name == self.a:
            return self
        turned = self.interval and self.interval.scaled(-1.0).shifted(2 * self.null)
        return replace(
            self, a=self.b, b=self.a, estimate=2 * self.null - self.estimate, interval=turned,
            n_units=self.n_units[::-1], n_episodes=self.n_episodes[::-1], values=self.values[::-1],
            cells=tuple(c.turned for c in self.cells), is_turned=not self.is_turned,
        )  # fmt: skip

    def at_margin(self, margin: float) -> Contrast:
        """With the one-sided p-value of "a rate of a is below b's by `margin` or more": small says no worse."""
        assert isinstance(self.rule, SuccessContrast)
        assert not self.is_turned
        return replace(self, p_margin=self.rule.p_not_worse(margin))

    def needed(self, *, n_tests: int = 1, power: float = 0.8) -> NeededUnits | None:
        """Units per cell at which the rule would call what was observed; None where nothing was tested."""
        if self.withheld:
            return None
        return needed_units(
            self.rule, interval=self.interval and self.interval.shifted(-self.null),
            n_cells=len(self.cells), alpha=(1 - self.level) / n_tests, power=power,
        )  # fmt: skip


def contrast(
    a: Side, b: Side, *, endpoint: EndpointName, plan: AnalysisPlan, value: Value | tuple[Value, Value] | None = None,
    cells: Cells = Cells.SHARED,
) -> Contrast:  # fmt: skip
    """Two arms on one endpoint.

    `a` and `b` are arms as `robotrials.verdict.analysis.arm.two_sides` makes them of episodes. `value` is what an
    episode scores on a rate, between 0 and 1 (one function, or one for each arm): by default success, or the host's
    score as a share. The result depends on the two arms and the plan alone, whoever else is compared.
    """
    names = _compared(a, b, cells)
    if endpoint in TIMED or endpoint is EndpointName.LOST:
        _check_timed(a, b, names)
    if endpoint in TIMED:
        effect = _time_contrast(a, b, names, endpoint, plan)
    elif endpoint is EndpointName.LOST:
        effect = _lost_contrast(a, b, names, plan)
    else:
        read = value or rate_value(endpoint)
        readers = read if isinstance(read, tuple) else (read, read)
        effect = _rate_contrast(a, b, names, endpoint, plan, readers)
    return replace(effect, left_out=(*_absent_cells(a, b, names), *effect.left_out))


def rate_value(endpoint: EndpointName) -> Value:
    """What an episode scores on a rate, where the record itself says it."""
    if endpoint is EndpointName.SUCCESS:
        return success_of
    if endpoint is EndpointName.SCORE:
        return _score_share
    raise InputError(f'{endpoint.value} is not in the record of an episode; give its value')


def _score_share(episode: Episode) -> float:
    if episode.score is None or not episode.max_score:
        raise NotEstimable(f'episode {episode.episode_id} has no score with a max_score; record both')
    return episode.score / episode.max_score


def _compared(a: Side, b: Side, cells: Cells) -> list[str]:
    every = sorted({*a.cells, *b.cells, *a.missing, *b.missing})
    has = [{c for c in every if side.cells.get(c) or side.missing.get(c)} for side in (a, b)]
    names = [c for c in every if c in has[0] and c in has[1]]
    if not names:
        held = '; '.join(', '.join(sorted(own)[:6]) or 'nothing valid' for own in has)
        raise InputError(f'{a.name} and {b.name} have no cell in common (task, stratum, condition): {held}')
    lacking = [(side.name, c) for side, own in ((a, has[0]), (b, has[1])) for c in every if c not in own]
    if cells is Cells.DECLARED and lacking:
        raise InputError(f'{lacking[0][0]} has neither runs nor missing runs of the declared cell {lacking[0][1]!r}')
    return names


def _absent_cells(a: Side, b: Side, names: Sequence[str]) -> list[LeftOut]:
    left_out = []
    for side, other in ((a, b), (b, a)):
        left_out += [LeftOut(side.name, why, n) for why, n in side.left_out.items()]
        lonely = [c for c in side.cells if c not in names]
        if lonely:
            listed = ', '.join(lonely[:3]) + (', ...' if len(lonely) > 3 else '')
            n = sum(len(side.cells[c]) for c in lonely)
            left_out.append(LeftOut(side.name, f'in cells that {other.name} did not run ({listed})', n))
    return left_out


def _check_timed(a: Side, b: Side, names: Sequence[str]) -> None:
    untimed = sum(side.n_untimed(c) for side in (a, b) for c in names)
    if untimed:
        n = sum(len(side.cells.get(c, ())) for side in (a, b) for c in names)
        raise NotEstimable(f'{untimed} of {n} valid episodes have no duration')


def _units(a: Side, b: Side, cell: str) -> tuple[Labels | None, Labels | None]:
    """Both arms' units; None where no start is recorded, so that every run is one."""
    starts = [side.starts(cell) for side in (a, b)]
    first, second = (own if has_label(own) else None for own in starts)
    return first, second


def design_word(effect: Contrast) -> str:
    """How the arms were set against each other, in a few words."""
    if effect.is_matched:
        return f'paired by {effect.unit}'
    return (
        f'{effect.n_matched} shared starts paired, the others independent' if effect.n_matched else 'independent arms'
    )


def contrast_values(effect: Contrast) -> dict[str, object]:
    """A contrast as plain values, for JSON."""
    seconds = effect.seconds_ahead
    return {
        'endpoint': effect.endpoint.value, 'a': effect.a, 'b': effect.b, 'estimate': effect.estimate,
        'interval': None if effect.interval is None else list(effect.interval), 'level': effect.level,
        'p_value': effect.p_value, 'p_adjusted': effect.p_adjusted, 'p_margin': effect.p_margin,
        'p_look': effect.p_look, 'seconds_ahead': None if seconds is None else seconds.value,
        'seconds_interval': None if seconds is None or seconds.interval is None else list(seconds.interval),
        'test': effect.test, 'unit': effect.unit, 'n_units': list(effect.n_units), 'n_matched': effect.n_matched,
        'n_episodes': list(effect.n_episodes), 'values': list(effect.values),
        'cells': {c.name: c.advantage for c in effect.cells}, 'taus_s': effect.taus_s,
        'left_out': [{'name': out.name, 'why': out.why, 'n': out.n} for out in effect.left_out],
        'withheld': effect.withheld, 'note': effect.note,
    }  # fmt: skip


# --- rates: success, safety, score


def common_cap_s(a: Side, b: Side, cell: str) -> float | None:
    """The time that all runs of both arms were given; None where either arm was given the same, run for run."""
    caps = a.caps_s(cell), b.caps_s(cell)
    return min(*caps[0], *caps[1]) if caps[0] and caps[1] and caps[0] != caps[1] else None


def _within(value: Value, cap_s: float, cell: str) -> Value:
    def capped(episode: Episode) -> float:
        amount = value(episode)
        if not amount:
            return amount
        if episode.duration_s is None:
            raise NotEstimable(
                f'{cell}: time caps differ between the arms, and episode {episode.episode_id} does not say how long it '
                f'took: whether it succeeded within {cap_s:g} s is not known'
            )
        return amount if episode.duration_s <= cap_s * (1 + 1e-9) else 0.0

    return capped


def _rate_contrast(
    a: Side, b: Side, names: Sequence[str], endpoint: EndpointName, plan: AnalysisPlan,
    values: tuple[Value, Value],
) -> Contrast:  # fmt: skip
    arms: list[list[SuccessArm]] = [[], []]
    caps: dict[str, float | None] = {}
    for cell in names:
        caps[cell] = common_cap_s(a, b, cell) if endpoint is EndpointName.SUCCESS else None
        cut = caps[cell]
        for side, starts, value, into in zip((a, b), _units(a, b, cell), values, arms, strict=True):
            read = value if cut is None else _within(value, cut, cell)
            into.append(SuccessArm(side.shares(cell, read), starts))
    rule = success_contrast(*arms, pairing=plan.pairing.value, level=plan.level, is_linked=a.unit in CENTRES)
    alone = [
        success_contrast([x], [y], pairing=plan.pairing.value, level=plan.level) if len(names) > 1 else rule
        for x, y in zip(*arms, strict=True)
    ]
    margin = plan.margins.get(endpoint)
    rows = tuple(
        ContrastCell(
            cell, len(x.successes), len(y.successes), own.rate_a, own.rate_b, own.difference, caps[cell],
            own.p_value, own.p_one_sided('a'), own.p_one_sided('b'),
        )
        for cell, x, y, own in zip(names, *arms, alone, strict=True)
    )  # fmt: skip
    made = Contrast(
        endpoint=endpoint, a=a.name, b=b.name, estimate=rule.difference,
        interval=rule.interval, p_value=rule.p_value, level=plan.level,
        test=rule.test.value, unit=_unit_word(a, arms, rule.n_units), is_matched=_is_matched(rule),
        n_units=rule.n_units, n_matched=rule.n_matched, n_episodes=_runs(arms), values=(rule.rate_a, rule.rate_b),
        cells=rows, left_out=(), rule=rule, withheld=rule.withheld, margin=margin,
        p_same=None if margin is None else rule.p_within(margin), note=_cap_note(caps, endpoint),
    )  # fmt: skip
    return replace(made, left_out=_unused(made, arms))


def _cap_note(caps: Mapping[str, float | None], endpoint: EndpointName) -> str:
    cut = {cell: cap for cell, cap in caps.items() if cap is not None}
    if not cut:
        return ''
    return f'the arms had different time caps: {endpoint.value} within {seconds_text(cut)}, which both had'


# --- times: the race, and what was lost


def _time_contrast(a: Side, b: Side, names: Sequence[str], endpoint: EndpointName, plan: AnalysisPlan) -> Contrast:
    taus = {c: cell_tau(c, [(s.operations(c), s.cells[c]) for s in (a, b) if s.cells.get(c)], plan) for c in names}
    items = min(side.fewest_items(c) for side in (a, b) for c in names)
    arms: list[list[WinArm]] = [[], []]
    for cell in names:
        for side, starts, into in zip((a, b), _units(a, b, cell), arms, strict=True):
            until_s = taus[cell].tau_s if items == 1 else _budget_s(a, b, cell)
            times, followed = side.race(cell, items=items, until_s=until_s)
            into.append(WinArm(times, starts, followed))
    wins = win_contrast(*arms, pairing=plan.pairing.value, level=plan.level, is_linked=a.unit in CENTRES)
    seconds = better(
        {c: a.operations(c) for c in names}, {c: b.operations(c) for c in names},
        tau_s={c: t.tau_s for c, t in taus.items()}, level=plan.level,
        paired=plan.pairing.value == 'paired' or (plan.pairing.value == 'auto' and _all_matched(arms)),
    )  # fmt: skip
    alone = [
        win_contrast([x], [y], pairing=plan.pairing.value, level=plan.level) if len(names) > 1 else wins
        for x, y in zip(*arms, strict=True)
    ]
    means = [arm.cells for arm in seconds.arms]
    rows = tuple(
        ContrastCell(
            cell, len(x.times_s), len(y.times_s), means[0][cell].value if cell in means[0] else math.nan,
            means[1][cell].value if cell in means[1] else math.nan, own.probability - HALF, taus[cell].tau_s,
            own.p_value, own.p_one_sided('a'), own.p_one_sided('b'),
        )
        for cell, x, y, own in zip(names, *arms, alone, strict=True)
    )  # fmt: skip
    margin = plan.margins.get(endpoint)
    made = Contrast(
        endpoint=endpoint, a=a.name, b=b.name, estimate=wins.probability,
        interval=wins.interval, p_value=wins.p_value, level=plan.level,
        test=wins.design.value, unit=_unit_word(a, arms, wins.n_units), is_matched=_is_matched(wins),
        n_units=wins.n_units, n_matched=wins.n_matched, n_episodes=_runs(arms),
        values=(seconds.mean_a.value, seconds.mean_b.value), cells=rows, left_out=(), rule=wins, seconds=seconds,
        n_items=items, withheld=wins.withheld, margin=margin,
        p_same=None if margin is None else seconds.p_same(margin), note=_loss_note(wins),
    )  # fmt: skip
    return replace(made, left_out=_unused(made, arms))


def _budget_s(a: Side, b: Side, cell: str) -> float:
    """How long both arms had for all items of an episode: tau is that of one item, and ends no race."""
    caps = a.caps_s(cell), b.caps_s(cell)
    if caps[0] and caps[1]:
        return min(*caps[0], *caps[1])
    return min(float(column(side.cells[cell], 'duration_s').max()) for side in (a, b) if side.cells.get(cell))


def _loss_note(wins: WinContrast) -> str:
    """What is assumed of runs that were lost before the end of the follow-up."""
    if not any(wins.n_lost):
        return ''
    lost = f'{wins.n_lost[0]} and {wins.n_lost[1]} runs were lost before the end of the follow-up'
    if wins.p_whatever_lost is not None and wins.p_whatever_lost <= 1 - wins.level:
        return f'{lost}; the claim holds whatever became of them'
    return f'{lost}, taken to say nothing about how they would have ended' if wins.assumes_loss_uninformative else lost


def _lost_contrast(a: Side, b: Side, names: Sequence[str], plan: AnalysisPlan) -> Contrast:
    counts = [[side.lost_items(c) for c in names] for side in (a, b)]
    starts = [_units(a, b, c) for c in names]
    arms = [[win_arm(counts[k][i], starts[i][k]) for i in range(len(names))] for k in (0, 1)]  # fewer is first
    wins = win_contrast(*arms, pairing=plan.pairing.value, level=plan.level, is_linked=a.unit in CENTRES)
    alone = [win_contrast([x], [y], pairing=plan.pairing.value, level=plan.level) for x, y in zip(*arms, strict=True)]
    rows = tuple(
        ContrastCell(
            cell, len(x), len(y), float(x.mean()), float(y.mean()), own.probability - HALF, None,
            own.p_value, own.p_one_sided('a'), own.p_one_sided('b'),
        )
        for cell, x, y, own in zip(names, *counts, alone, strict=True)
    )  # fmt: skip
    values = [math.fsum(float(x.mean()) for x in side) / len(names) for side in counts]
    return Contrast(
        endpoint=EndpointName.LOST, a=a.name, b=b.name, estimate=wins.probability,
        interval=wins.interval, p_value=wins.p_value, level=plan.level,
        test=wins.design.value, unit=_word(a, wins.n_units, tuple(sum(map(len, side)) for side in counts)),
        is_matched=_is_matched(wins), n_units=wins.n_units, n_matched=wins.n_matched,
        n_episodes=(sum(map(len, counts[0])), sum(map(len, counts[1]))), values=(values[0], values[1]), cells=rows,
        left_out=(), rule=wins, withheld=wins.withheld,
    )  # fmt: skip


# --- pieces


def _runs(arms: Arms) -> tuple[int, int]:
    first, second = (sum(len(_rows(arm)) for arm in side) for side in arms)
    return first, second


def _rows(arm: SuccessArm | WinArm) -> Sequence[object]:
    return arm.successes if isinstance(arm, SuccessArm) else arm.times_s  # type: ignore[return-value]


def _all_matched(arms: Sequence[Sequence[WinArm]]) -> bool:
    """Whether every start of either arm was run by the other."""
    return all(same_labels(x.starts, y.starts) for x, y in zip(*arms, strict=True))


def _is_matched(rule: WinContrast | SuccessContrast) -> bool:
    return rule.n_matched > 0 and rule.n_units == (rule.n_matched, rule.n_matched)


def _unit_word(a: Side, arms: Arms, n_units: tuple[int, int]) -> str:
    has_starts = any(arm.starts is not None for side in arms for arm in side)
    return _word(a, n_units, _runs(arms)) if has_starts else 'episode'


def _word(a: Side, n_units: tuple[int, int], n_runs: tuple[int, ...]) -> str:
    """Start states are named where they decide something: where they are shared, or repeat."""
    return a.unit.value if a.unit is not Unit.START or n_units != n_runs else 'start state'


def _unused(rule: Contrast, arms: Arms) -> tuple[LeftOut, ...]:
    """Starts without a partner that the test has no place for: asked to be paired, or too few to be compared apart."""
    totals = [sum(arm.units.n for arm in side) for side in arms]
    return tuple(
        LeftOut(name, 'without a partner', n - used)
        for name, n, used in zip((rule.a, rule.b), totals, rule.n_units, strict=True)
        if n > used
    )
