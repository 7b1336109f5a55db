"""Which of two policies is better on average over these strata: a test, not an interval read off.

The primary endpoint is compared by the jackknife over units with an allowance for what has not been seen
(robotrials.stats.interval), on the common follow-up of both arms. `docs/concepts/verdicts.md` has its measured size,
power and price. No random number enters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import InputError
from robotrials.measure.timing.curve import (
    CENTRES,
    ArmMeans,
    Endpoint,
    arm_means,
    common_follow_up,
    contrast_spread,
    followed_to,
    matched_cells,
    tau_of,
)
from robotrials.stats.interval import (
    FEWEST_STRATA,
    Interval,
    MacroDifference,
    Spread,
    allowance_z,
    check_open_unit,
    fewest_units,
    macro_difference,
    macro_interval,
    new_strata_spread,
    reach,
)
from robotrials.stats.ratio import RatioCells, RatioKind, macro_ratio, macro_ratio_bounds
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.measure.timing.operation import FloatArray, Operations, Unit

LOWER_IS_BETTER = (Endpoint.RMST, Endpoint.HARD_FAILURE)


@dataclass(frozen=True, slots=True)
class MacroEstimate:
    """A macro value with the rule's interval for these strata, and a wider one for strata yet to come."""

    value: float
    interval: Interval | None
    new_strata: Interval | None
    n_units: int
    level: float
    withheld: str = ''  # why there is no interval
    withheld_new_strata: str = ''


@dataclass(frozen=True, slots=True, eq=False)
class Better:
    """Whether a is better than b on average over these strata; every difference is oriented so that > 0 favours a.

    `p_value` is two-sided and uncorrected: correct it over all pairs (Holm) and name a winner where the corrected value
    is at most alpha. It is None where the rule was not applied, and `withheld` says why.
    """

    endpoint: Endpoint
    difference: float  # macro, oriented
    interval: Interval | None
    new_strata: Interval | None  # the same for strata yet to come
    p_value: float | None
    variance: float
    allowance_a: float  # u for "a is better"
    allowance_b: float  # u for "b is better"
    degrees: float
    mean_a: MacroEstimate
    mean_b: MacroEstimate
    tau_s: Mapping[str, float]  # as used, after cutting at the common follow-up
    shortened: tuple[str, ...]  # strata in which the follow-up cut tau
    is_paired: bool
    unit: Unit
    n_units: tuple[int, int]
    n_left_out: tuple[int, int]  # episodes without a matched start, when paired
    level: float
    ks_refused: str  # why curves may not be compared by shuffled labels
    rule: MacroDifference
    arms: tuple[ArmMeans, ArmMeans]
    withheld: str = ''

    @property
    def favoured(self) -> str | None:
        """'a' or 'b', by the sign of the difference; not yet a verdict."""
        return None if self.difference == 0 else 'a' if self.difference > 0 else 'b'

    def p_same(self, margin: float) -> float | None:
        """The p-value of a difference of at least `margin` either way; small says "the same within the margin"."""
        return None if self.withheld else self.rule.p_within(margin)


def better(
    a: Mapping[str, Operations], b: Mapping[str, Operations], *, tau_s: float | Mapping[str, float],
    paired: bool = False, level: float = 0.95, n_pairs: int = 1, endpoint: Endpoint | str = Endpoint.RMST,
) -> Better:  # fmt: skip
    """Test "a is better than b" on the macro endpoint, with start states (or what `operations` was given) as units.

    `a`, `b` map stratum -> Operations, with the same strata. `paired` takes the units that both policies ran and leaves
    each out of both arms at once. `n_pairs` is how many pairs are compared in all: it decides whether any winner could
    be named, not the p-value.
    """
    kind, alpha = Endpoint(endpoint), 1 - check_open_unit('level', level)
    if a.keys() != b.keys():
        lone = sorted(a.keys() ^ b.keys())
        raise InputError(f'both policies need the same strata; only one has: {", ".join(lone)}')
    before = [sum(c.n_episodes for c in cells.values()) for cells in (a, b)]
    if paired:
        a, b = matched_cells(a, {s: b[s] for s in a})
        if not a:
            raise InputError('no start state was run by both policies, so nothing can be paired; compare unpaired')
    follow = common_follow_up(a, b, tau_s)
    taus = {s: max(t, np.finfo(float).tiny) for s, t in follow.tau_s.items()}
    first, second = arm_means(a, taus, kind), arm_means(b, taus, kind)
    rule = oriented_difference(first, second, kind, is_paired=paired)
    withheld = _withheld(first, second, taus, n_pairs=n_pairs, alpha=alpha)
    if kind is Endpoint.HARD_FAILURE and not withheld:
        withheld = _unlike_follow_up(a, b)
    spread = rule.spread
    return Better(
        endpoint=kind,
        difference=rule.difference,
        interval=None if withheld else rule.interval(level),
        new_strata=None if withheld else _new_strata_interval(first, second, rule, kind, level),
        p_value=None if withheld else rule.p_value,
        variance=spread.variance,
        allowance_a=_allowance(rule.moved_low, alpha),
        allowance_b=_allowance(rule.moved_high, alpha),
        degrees=rule.degrees(alpha),
        mean_a=macro_estimate(first, level=level),
        mean_b=macro_estimate(second, level=level),
        tau_s=taus,
        shortened=follow.shortened,
        is_paired=paired,
        unit=first.unit,
        n_units=(first.n_units, second.n_units),
        n_left_out=(before[0] - _episodes(a), before[1] - _episodes(b)),
        level=level,
        ks_refused=follow.ks_refused,
        rule=rule,
        arms=(first, second),
        withheld=withheld,
    )


def _episodes(cells: Mapping[str, Operations]) -> int:
    return sum(c.n_episodes for c in cells.values())


def _allowance(moved: float, alpha: float) -> float:
    return allowance_z(alpha) ** 2 * moved


def oriented_difference(first: ArmMeans, second: ArmMeans, endpoint: Endpoint, *, is_paired: bool) -> MacroDifference:
    """The rule's difference, > 0 in favour of the first arm."""
    spread = contrast_spread(first, second, is_paired=is_paired)
    if endpoint in LOWER_IS_BETTER:
        return macro_difference(first.macro, second.macro, spread)
    return macro_difference(second.macro, first.macro, spread)


def _withheld(first: ArmMeans, second: ArmMeans, taus: Mapping[str, float], *, n_pairs: int, alpha: float) -> str:
    for name, arm in (('a', first), ('b', second)):
        if problem := arm.problem():
            return f'policy {name}: {problem}'
    unwatched = [s for s, t in taus.items() if t <= np.finfo(float).tiny]
    if unwatched:
        return f'nobody was watched for any time in {unwatched[0]}'
    least = fewest_units(n_pairs, alpha=alpha)
    n_fewest = min(first.n_units, second.n_units)
    if n_fewest < least:
        pairs = '1 pair' if n_pairs == 1 else f'{n_pairs} pairs'
        return f'{n_fewest} {first.unit}s per policy; with {pairs} no winner can be named below {least}'
    return ''


def _unlike_follow_up(a: Mapping[str, Operations], b: Mapping[str, Operations]) -> str:
    """Why plateaus cannot be compared: they are read where watching stopped."""
    for stratum in a:
        ends = sorted((followed_to(a[stratum]), followed_to(b[stratum])))
        if np.isfinite(ends[1]) and ends[0] < 0.99 * ends[1]:
            return f'{stratum} was followed to {ends[0]:g} s by one policy and to {ends[1]:g} s by the other'
    return ''


def _new_strata_interval(
    first: ArmMeans, second: ArmMeans, rule: MacroDifference, endpoint: Endpoint, level: float
) -> Interval | None:
    if len(first.cells) < FEWEST_STRATA:
        return None
    sign = 1.0 if endpoint in LOWER_IS_BETTER else -1.0
    values = sign * (second.macro.means - first.macro.means)
    spread = new_strata_spread(values, rule.spread)
    return MacroDifference(rule.difference, spread.variance, rule.moved_low, rule.moved_high, spread).interval(level)


def macro_estimate(arm: ArmMeans, *, level: float = 0.95) -> MacroEstimate:
    """One policy's macro endpoint with the rule's intervals, or the reasons why not."""
    macro, problem = arm.macro, arm.problem()
    few = '' if len(arm.cells) >= FEWEST_STRATA else f'{len(arm.cells)} strata; at least {FEWEST_STRATA} are needed'
    new = None
    if not (problem or few):
        new = macro_interval(macro, new_strata_spread(macro.means, arm.spread), level=level)
    return MacroEstimate(
        value=macro.value,
        interval=None if problem else macro_interval(macro, arm.spread, level=level),
        new_strata=new,
        n_units=arm.n_units,
        level=level,
        withheld=problem,
        withheld_new_strata=problem or few,
    )


def endpoint_estimate(
    cells: Mapping[str, Operations], *, tau_s: float | Mapping[str, float], endpoint: Endpoint | str = Endpoint.RMST,
    level: float = 0.95,
) -> MacroEstimate:  # fmt: skip
    """One policy's macro RMST, F(tau) or hard failure with intervals that cover from three units per cell on.

    A stratum that was followed for less than tau is refused an interval: its mean up to tau is not known.
    """
    kind = Endpoint(endpoint)
    estimate = macro_estimate(arm_means(cells, tau_s, kind), level=level)
    if kind is Endpoint.HARD_FAILURE:
        return estimate
    short = {s: followed_to(c) for s, c in cells.items() if followed_to(c) < tau_of(tau_s, s) * (1 - 1e-9)}
    if not short:
        return estimate
    stratum, end_s = min(short.items(), key=lambda item: item[1])
    reason = f'{stratum} was followed to {end_s:g} s, less than tau = {tau_of(tau_s, stratum):g} s'
    return MacroEstimate(estimate.value, None, None, estimate.n_units, level, reason, reason)


def hrt_estimate(
    cells: Mapping[str, Operations], reference: Mapping[str, Operations], *, tau_s: float | Mapping[str, float],
    level: float = 0.95, kind: RatioKind = RatioKind.MEAN_OF_RATIOS,
) -> MacroEstimate:  # fmt: skip
    """The human-relative throughput, by default the mean over strata of RMST(reference) / RMST(policy).

    Both sides are taken on their common follow-up, and both vary unless `kind` takes the reference as fixed; strata
    without a reference are refused by name.
    """
    lone = sorted(cells.keys() - reference.keys())
    if lone:
        raise InputError(f'the reference has no episodes in {", ".join(lone)}; leave these strata out')
    follow = common_follow_up(cells, {s: reference[s] for s in cells}, tau_s)
    own, human = arm_means(cells, follow.tau_s), arm_means({s: reference[s] for s in cells}, follow.tau_s)
    table = _ratio_cells(own, human)
    value = float(macro_ratio(table, kind))
    problem = own.problem() or (f'reference: {human.problem()}' if human.problem() else '')
    if not problem and any(unit in CENTRES for unit in (own.unit, human.unit)):
        problem = 'sessions or operators that reach over strata: no interval of a ratio has been studied'
    few = '' if len(cells) >= FEWEST_STRATA else f'{len(cells)} strata; at least {FEWEST_STRATA} are needed'
    interval = new = None
    if not problem:
        low, high = macro_ratio_bounds(table, level=level, kind=kind)
        interval = Interval(float(low), float(high))
        if not few:
            # On the logarithm, with the spread between strata; never narrower than for these strata.
            logs = np.log(table.above / table.below)
            spread = Spread(np.array([float(np.var(logs, ddof=1)) / len(logs)]), np.array([len(logs) - 1.0]))
            half = reach(spread, 0.0, 1 - level)
            new = Interval(min(interval.low, value * np.exp(-half)), max(interval.high, value * np.exp(half)))
    return MacroEstimate(value, interval, new, own.n_units, level, problem, problem or few)


def _ratio_cells(own: ArmMeans, human: ArmMeans) -> RatioCells:
    def column(arm: ArmMeans, name: str) -> FloatArray:
        return np.array([float(getattr(part, name)) for part in arm.cells.values()])

    return RatioCells(
        above=column(human, 'value'), below=column(own, 'value'), variance_above=column(human, 'variance'),
        variance_below=column(own, 'variance'), n_above=column(human, 'n_followed'),
        n_below=column(own, 'n_followed'), high=column(own, 'high'),
    )  # fmt: skip
