"""Comparing two policies while the rollouts come in: stop when the data say so, at an error that was promised.

Rollouts are compared in blocks (`verdict.planning.block`). A block's difference is bounded, so that betting
(`verdict.planning.betting`) gives e-values against "a is not better" and "b is not better", and a confidence sequence
for the mean difference that holds at every look together. With a declared horizon, binary pairs can also be judged by
an exact sequential sign test (`verdict.planning.sign_walk`), which is sharper and must end at the horizon.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError
from robotrials.stats.argument import BoolArray, FloatArray, IntArray, check_count, check_open_unit
from robotrials.stats.interval import Interval
from robotrials.verdict.planning.betting import Prior, betting_prior, log_capital_path, mean_bounds
from robotrials.verdict.planning.block import Blocks, Strata, block_counts, check_range, pair_blocks
from robotrials.verdict.planning.futility import FUTILE_POWER, betting_power, plausible_effects, walk_power
from robotrials.verdict.planning.sign_walk import walk_bounds, walk_estimate

FEW_VALUES = 32
SPACED_LOOKS = 50
SequentialMethod = Literal['betting', 'sign_walk']


class Decision(enum.StrEnum):
    CONTINUE = 'continue'
    A_BETTER = 'a_better'
    B_BETTER = 'b_better'
    FUTILE = 'futile'


GO_ON = (Decision.CONTINUE, 'not enough evidence yet')


@dataclass(frozen=True, slots=True)
class Look:
    """What was known after some blocks: the evidence, the interval and the decision so far (kept once made).

    `evidence_a` is the e-value against "a is not better", `evidence_b` that against "b is not better".
    """

    blocks: int
    n_a: int
    n_b: int
    difference: float
    interval: Interval
    evidence_a: float
    evidence_b: float
    decision: Decision
    reason: str


@dataclass(frozen=True, slots=True)
class SequentialComparison:
    """Every look, and the rollouts that had no partner yet and so were not used."""

    looks: tuple[Look, ...]
    alpha: float
    method: SequentialMethod
    horizon: int | None
    smallest_difference: float | None
    waiting_a: int
    waiting_b: int
    adjusted_difference: float | None = None  # at the stop: what is left of the lead once stopping on it is allowed for

    @property
    def decision(self) -> Decision:
        return self.looks[-1].decision if self.looks else Decision.CONTINUE

    @property
    def reason(self) -> str:
        return self.looks[-1].reason if self.looks else 'no complete round of blocks yet'

    @property
    def stopped_at(self) -> Look | None:
        """The first look at which the trial could have stopped, or None while it should go on."""
        return next((look for look in self.looks if look.decision is not Decision.CONTINUE), None)

    @property
    def interval(self) -> Interval | None:
        """The confidence sequence at the last look; None before the first complete round."""
        return self.looks[-1].interval if self.looks else None

    @property
    def p_value(self) -> float:
        """The two-sided p-value of the betting test, valid at any stopping time."""
        best = max((max(look.evidence_a, look.evidence_b) for look in self.looks), default=1.0)
        return min(1.0, 2 / best)


@dataclass(frozen=True, slots=True, eq=False)
class _Rules:
    """What was declared before the trial, differences scaled to [-1, 1]."""

    alpha: float
    method: SequentialMethod
    horizon: int | None
    smallest: float | None
    prior: Prior


def sequential_comparison(
    a: ArrayLike,
    b: ArrayLike,
    *,
    paired: bool,
    strata: Strata | None = None,
    tasks: Sequence[object] | None = None,
    alpha: float = 0.05,
    horizon: int | None = None,
    smallest_difference: float | None = None,
    score_range: tuple[float, float] = (0, 1),
    allocation: tuple[int, int] = (1, 1),
    looks: Sequence[int] | None = None,
    method: SequentialMethod = 'betting',
) -> SequentialComparison:
    """An anytime-valid comparison of mean(a) - mean(b), for success (0/1) or any score in `score_range`.

    a, b: outcomes in the order in which the rollouts were started. `paired` says that a[i] and b[i] share a scene; else
    the arms are independent and may have unequal lengths, and what has no partner yet waits. `allocation` = (2, 1)
    declares, before the trial, blocks of two rollouts of a with one of b.
    strata: the task of each rollout (a pair of arrays when unpaired): the difference is then the mean over tasks, each
    of equal weight, and a look is possible after each complete round of one block a task. `tasks` declares them all;
    without it the tasks seen so far are taken, which is right only once every task has been started.
    horizon: the most blocks there will be; smallest_difference: the smallest that would matter. With them the trial can
    stop for futility. looks: the numbers of rounds after which to look (default: every one; 50 where scores take many
    values). method: 'betting', or 'sign_walk' for binary outcomes of one stratum with a horizon.
    """
    width = check_range(score_range)
    if smallest_difference is not None and not 0 < smallest_difference <= width:
        raise InputError(f'smallest_difference must be over 0 and at most {width}, found {smallest_difference}')
    horizon = None if horizon is None else check_count('horizon', horizon, least=1)
    blocks = pair_blocks(
        a, b, paired=paired, strata=strata, tasks=tasks, score_range=score_range, allocation=allocation
    )
    smallest = None if smallest_difference is None else smallest_difference / width
    prior = betting_prior(check_open_unit('alpha', alpha) / 2, horizon=horizon, smallest_difference=smallest)
    rules = _Rules(alpha, method, horizon, smallest, prior)
    _check_method(blocks, rules)
    found = _watch(blocks, _look_rounds(blocks, looks), rules, width=width, sizes=allocation)
    adjusted = _adjusted(blocks, found, rules, scale=width)
    return SequentialComparison(
        found, alpha, method, horizon, smallest_difference, blocks.waiting_a, blocks.waiting_b,
        None if adjusted is None else adjusted * width,
    )  # fmt: skip


def _adjusted(blocks: Blocks, looks: tuple[Look, ...], rules: _Rules, *, scale: float) -> float | None:
    """The estimate at the stop, without the optimism of having stopped there; None while the trial goes on.

    Sign walk: median-unbiased by the order of stopping. Betting: the middle of the confidence sequence, which holds at
    a stop that the data chose.
    """
    stop = next((look for look in looks if look.decision is not Decision.CONTINUE), None)
    if stop is None:
        return None
    if rules.method == 'sign_walk' and rules.horizon is not None:
        signs = np.sign(blocks.differences[: stop.blocks]).astype(np.int64)
        return walk_estimate(signs, horizon=rules.horizon, alpha=rules.alpha)
    return stop.interval.center / scale


def _watch(blocks: Blocks, at: IntArray, rules: _Rules, *, width: float, sizes: tuple[int, int]) -> tuple[Look, ...]:
    """The looks after each number of rounds in `at`; a decision, once made, stays."""
    if at.size == 0:
        return ()
    values, counts = block_counts(blocks, at)
    low, high = mean_bounds(values, counts, alpha=rules.alpha, prior=rules.prior)
    every_round = [log_capital_path(sign * blocks.differences, rules.prior)[:: blocks.strata] for sign in (1.0, -1.0)]
    crossed = _crossings(blocks, at, every_round, rules)
    evidence = [path[at] for path in every_round]
    found: list[Look] = []
    decision, reason = GO_ON
    for i, n in enumerate((at * blocks.strata).tolist()):
        mean = float(counts[i] @ values) / n
        interval = Interval(min(float(low[i]), mean), max(float(high[i]), mean))
        if decision is Decision.CONTINUE:
            decision, reason = _winner(bool(crossed[0][i]), bool(crossed[1][i]))
        if decision is Decision.CONTINUE:
            decision, reason = _futile(blocks, values, counts[i], interval, rules)
        for_a, for_b = (math.exp(min(float(e[i]), 700.0)) for e in evidence)
        found.append(
            Look(n, n * sizes[0], n * sizes[1], mean * width, interval.scaled(width), for_a, for_b, decision, reason)
        )
    return tuple(found)


def _crossings(blocks: Blocks, at: IntArray, paths: list[FloatArray], rules: _Rules) -> tuple[BoolArray, BoolArray]:
    """Whether the evidence for a, and for b, had reached its threshold after any round up to each look."""
    if rules.method == 'betting':
        goal = math.log(2 / rules.alpha)
        for_a, for_b = (np.maximum.accumulate(path)[at] >= goal for path in paths)
        return for_a, for_b
    assert rules.horizon is not None
    signs = np.sign(blocks.differences[: rules.horizon]).astype(np.int64)
    where = np.flatnonzero(signs)
    lead = np.cumsum(signs[where])
    bounds = walk_bounds(where + 1, horizon=rules.horizon, alpha=rules.alpha)
    hit = np.flatnonzero(np.abs(lead) >= bounds)
    never = np.zeros(at.size, dtype=np.bool_)
    if hit.size == 0:
        return never, never
    by_then = at >= where[hit[0]] + 1
    return (by_then, never) if lead[hit[0]] > 0 else (never, by_then)


def _winner(a_crossed: bool, b_crossed: bool) -> tuple[Decision, str]:
    if a_crossed:
        return Decision.A_BETTER, 'the evidence that a is better reached its threshold'
    if b_crossed:
        return Decision.B_BETTER, 'the evidence that b is better reached its threshold'
    return GO_ON


def _futile(
    blocks: Blocks, values: FloatArray, counts: FloatArray, interval: Interval, rules: _Rules
) -> tuple[Decision, str]:  # fmt: skip
    smallest, n = rules.smallest, int(counts.sum())
    if smallest is not None and -smallest < interval.low and interval.high < smallest:
        return Decision.FUTILE, 'the interval holds no difference of interest'
    if rules.horizon is None:
        return GO_ON
    rest = rules.horizon - n
    if rest <= 0:
        return Decision.FUTILE, 'the horizon is reached without a decision'
    if smallest is not None:
        if _is_beyond_reach(values, counts, rest, rules):
            return Decision.FUTILE, 'the horizon is too short: even winning every block that is left would not decide'
        chance = 0.0
        for sign in (1.0, -1.0):
            for effect in plausible_effects(sign * values, counts, smallest)[::-1]:  # the largest decides most often
                chance = max(chance, _power(blocks, sign, values, counts, rest, effect, rules))
                if chance >= FUTILE_POWER:
                    return GO_ON
        reason = f'no plausible difference would be shown by the horizon (chance {chance:.2f} at most)'
        return Decision.FUTILE, reason
    return GO_ON


def _is_beyond_reach(values: FloatArray, counts: FloatArray, rest: int, rules: _Rules) -> bool:
    """Whether no outcome of the blocks that are left can decide a bet."""
    if rules.method != 'betting':
        return False
    paths = []
    for sign in (1.0, -1.0):
        held = np.log1p(rules.prior.shares[:, None] * (sign * values[None, :])) @ counts
        paths.append(np.logaddexp.reduce(held + rest * np.log1p(rules.prior.shares) + np.log(rules.prior.weights)))
    return bool(max(paths) < math.log(2 / rules.alpha))


def _power(
    blocks: Blocks, sign: float, values: FloatArray, counts: FloatArray, rest: int, difference: float, rules: _Rules
) -> float:
    if rules.method == 'betting':
        return betting_power(
            sign * values, counts, rest=rest, difference=difference, prior=rules.prior, alpha=rules.alpha,
            strata=blocks.strata,
        )  # fmt: skip
    signs = np.sign(sign * blocks.differences[: int(counts.sum())]).astype(np.int64)
    return walk_power(signs, horizon=signs.size + rest, difference=difference, alpha=rules.alpha)


def _look_rounds(blocks: Blocks, looks: Sequence[int] | None) -> IntArray:
    if looks is not None:
        asked = sorted({check_count('looks', n, least=1) for n in looks})
        return np.array([n for n in asked if n <= blocks.rounds], dtype=np.int64)
    if blocks.rounds <= SPACED_LOOKS or np.unique(blocks.differences).size <= FEW_VALUES:
        return np.arange(1, blocks.rounds + 1)
    return np.unique(np.linspace(1, blocks.rounds, SPACED_LOOKS).round()).astype(np.int64)


def _check_method(blocks: Blocks, rules: _Rules) -> None:
    if rules.method == 'betting':
        return
    if rules.method != 'sign_walk':
        raise InputError(f"method must be 'betting' or 'sign_walk', found {rules.method!r}")
    if rules.horizon is None:
        raise InputError("method 'sign_walk' needs a horizon, declared before the trial; 'betting' needs none")
    if blocks.strata > 1 or not np.isin(blocks.differences, (-1, 0, 1)).all():
        raise InputError("method 'sign_walk' is for binary outcomes of one stratum in blocks of 1:1; use 'betting'")
