"""Comparing two policies while the rollouts come in: stop when the data say so, at an error that was promised.

Rollouts are compared in blocks. A block's difference is bounded, so that betting (`verdict.planning.betting`) gives
e-values against "a is not better" and "b is not better", and a confidence sequence for the mean difference that holds
at every look together. With a declared horizon, binary pairs can also be judged by an exact sequential sign test, which
is sharper and must end at the horizon.
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
from robotrials.stats.interval import (
    BoolArray,
    FloatArray,
    IntArray,
    Interval,
    check_count,
    check_open_unit,
    check_unit,
)
from robotrials.stats.proportion import wilson
from robotrials.verdict.planning.betting import (
    FUTILE_POWER,
    Blocks,
    Prior,
    Strata,
    betting_power,
    betting_prior,
    block_counts,
    check_range,
    log_capital_path,
    mean_bounds,
    pair_blocks,
    plausible_effects,
    walk_bounds,
    walk_estimate,
    walk_power,
)

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
class SequentialLook:
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

    looks: tuple[SequentialLook, ...]
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
    def stopped_at(self) -> SequentialLook | None:
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
    outcome = _watch(blocks, _look_rounds(blocks, looks), rules, width=width, sizes=allocation)
    adjusted = _adjusted(blocks, outcome, rules, scale=width)
    return SequentialComparison(
        outcome, alpha, method, horizon, smallest_difference, blocks.waiting_a, blocks.waiting_b,
        None if adjusted is None else adjusted * width,
    )  # fmt: skip


def _adjusted(blocks: Blocks, looks: tuple[SequentialLook, ...], rules: _Rules, *, scale: float) -> float | None:
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


def _watch(
    blocks: Blocks, at: IntArray, rules: _Rules, *, width: float, sizes: tuple[int, int]
) -> tuple[SequentialLook, ...]:
    """The looks after each number of rounds in `at`; a decision, once made, stays."""
    if at.size == 0:
        return ()
    values, counts = block_counts(blocks, at)
    low, high = mean_bounds(values, counts, alpha=rules.alpha, prior=rules.prior)
    every_round = [log_capital_path(sign * blocks.differences, rules.prior)[:: blocks.strata] for sign in (1.0, -1.0)]
    crossed = _crossings(blocks, at, every_round, rules)
    evidence = [path[at] for path in every_round]
    reports: list[SequentialLook] = []
    decision, reason = GO_ON
    for i, n in enumerate((at * blocks.strata).tolist()):
        mean = float(counts[i] @ values) / n
        interval = Interval(min(float(low[i]), mean), max(float(high[i]), mean))
        if decision is Decision.CONTINUE:
            decision, reason = _winner(bool(crossed[0][i]), bool(crossed[1][i]))
        if decision is Decision.CONTINUE:
            decision, reason = _futile(blocks, values, counts[i], interval, rules)
        for_a, for_b = (math.exp(min(float(e[i]), 700.0)) for e in evidence)
        reports.append(
            SequentialLook(
                n, n * sizes[0], n * sizes[1], mean * width, interval.scaled(width), for_a, for_b, decision, reason
            )
        )
    return tuple(reports)


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


# What a sequential design does before it is run: how often it decides, how rightly, after how many rollouts.


@dataclass(frozen=True, slots=True)
class SequentialPower:
    """Simulated trials: counts of decisions, and the mean number of blocks (rollouts of each policy) until the end."""

    trials: int
    a_better: int
    b_better: int
    mean_blocks: float
    mean_blocks_error: float

    @property
    def power(self) -> float:
        """The share of trials decided either way; with equal rates, the error."""
        return (self.a_better + self.b_better) / self.trials

    @property
    def power_interval(self) -> Interval:
        """The Monte-Carlo uncertainty of `power`."""
        return wilson(self.a_better + self.b_better, self.trials)


def sequential_power(
    p_a: float,
    p_b: float,
    *,
    horizon: int,
    trials: int,
    rng: np.random.Generator,
    alpha: float = 0.05,
    discordance: float | None = None,
    method: SequentialMethod = 'betting',
) -> SequentialPower:
    """Simulate `sequential_comparison` on binary outcomes up to a horizon, looking after every pair, without futility.

    The arms are independent unless `discordance`, the share of pairs that disagree on shared scenes, is given.
    """
    alpha, horizon = check_open_unit('alpha', alpha), check_count('horizon', horizon, least=1)
    trials = check_count('trials', trials, least=2)
    wins, losses = _rates(check_unit('p_a', p_a), check_unit('p_b', p_b), discordance)
    uniform = rng.random((trials, horizon))
    signs = np.where(uniform < wins, 1, np.where(uniform < wins + losses, -1, 0))
    prior = betting_prior(alpha / 2, horizon=horizon)
    ends = [_end(row, method=method, alpha=alpha, prior=prior) for row in signs]
    winner, blocks = np.array([w for w, _ in ends]), np.array([n for _, n in ends], dtype=np.float64)
    error = float(blocks.std(ddof=1)) / math.sqrt(trials)
    return SequentialPower(trials, int((winner > 0).sum()), int((winner < 0).sum()), float(blocks.mean()), error)


def _rates(p_a: float, p_b: float, discordance: float | None) -> tuple[float, float]:
    """The chances that only a, and that only b, succeeds."""
    if discordance is None:
        return p_a * (1 - p_b), p_b * (1 - p_a)
    low, high = abs(p_a - p_b), min(p_a + p_b, 2 - p_a - p_b)
    if not low - 1e-12 <= discordance <= high + 1e-12:
        raise InputError(f'rates {p_a} and {p_b} allow a discordance of {low:.3g} to {high:.3g}, found {discordance}')
    return (discordance + p_a - p_b) / 2, (discordance - p_a + p_b) / 2


def _end(signs: IntArray, *, method: SequentialMethod, alpha: float, prior: Prior) -> tuple[int, int]:
    """(1 for a, -1 for b, 0 for neither; the number of pairs used)."""
    at = np.flatnonzero(signs)
    lead = np.cumsum(signs[at])
    if method == 'betting':
        crossed = _bet(lead, prior) >= math.log(2 / alpha)
    elif method == 'sign_walk':
        crossed = np.abs(lead) >= walk_bounds(at + 1, horizon=signs.size, alpha=alpha)
    else:
        raise InputError(f"method must be 'betting' or 'sign_walk', found {method!r}")
    if not crossed.any():
        return 0, signs.size
    first = int(crossed.argmax())
    return int(np.sign(lead[first])), int(at[first]) + 1


def _bet(lead: IntArray, prior: Prior) -> FloatArray:
    """The larger of the two log capitals after each disagreement, from the number of wins of each side."""
    n = np.arange(1, lead.size + 1)
    capital = []
    for wins in ((n + lead) / 2, (n - lead) / 2):
        path = np.outer(wins, np.log1p(prior.shares)) + np.outer(n - wins, np.log1p(-prior.shares))
        capital.append(np.logaddexp.reduce(path + np.log(prior.weights), axis=1))
    return np.asarray(np.maximum(capital[0], capital[1]))


# Can a sequential plan show what it was made to find? A horizon that is too short is refused before the trial.

FEWEST_CHANCE = 0.5  # of showing the smallest difference at best, below which a plan is refused
NEEDED_CHANCE = 0.8
MOST_BLOCKS = 1_000_000


@dataclass(frozen=True, slots=True)
class HorizonCheck:
    """Whether a sequential plan can show its own smallest difference: the chance at best, and the blocks it takes.

    At best every disagreement goes the same way; any real trial has less of a chance.
    """

    horizon: int
    smallest_difference: float
    chance: float
    wins_needed: int  # in a row, without a loss
    blocks_needed: int  # for a chance of 0.8 at best

    @property
    def is_refused(self) -> bool:
        return self.chance < FEWEST_CHANCE

    def __str__(self) -> str:
        return (
            f'{self.horizon} blocks can show a difference of {self.smallest_difference:g} with a chance of at most '
            f'{self.chance:.2f}; {self.blocks_needed} would give 0.8 at best'
        )


def check_horizon(
    horizon: int, smallest_difference: float, *, alpha: float = 0.05, method: str = 'betting'
) -> HorizonCheck:
    """The chance, at best, that a plan of `horizon` blocks shows a difference of `smallest_difference` (of 0 to 1)."""
    horizon = check_count('horizon', horizon, least=1)
    check_open_unit('smallest_difference', smallest_difference)
    wins = wins_needed(horizon, alpha=alpha, method=method, smallest_difference=smallest_difference)
    blocks = horizon
    if _chance_of_wins(wins, horizon, smallest_difference) < NEEDED_CHANCE:
        low, high = horizon, 2 * horizon
        while _chance_at(high, smallest_difference, alpha, method) < NEEDED_CHANCE and high < MOST_BLOCKS:
            low, high = high, 2 * high
        while high - low > max(1, low // 200):
            middle = (low + high) // 2
            enough = _chance_at(middle, smallest_difference, alpha, method) >= NEEDED_CHANCE
            low, high = (low, middle) if enough else (middle, high)
        blocks = high
    chance = _chance_of_wins(wins, horizon, smallest_difference)
    return HorizonCheck(horizon, smallest_difference, chance, wins, blocks)


def _chance_at(horizon: int, difference: float, alpha: float, method: str) -> float:
    return _chance_of_wins(
        wins_needed(horizon, alpha=alpha, method=method, smallest_difference=difference), horizon, difference
    )


def _chance_of_wins(wins: int, horizon: int, difference: float) -> float:
    from robotrials.stats.special import bdtrc

    return float(bdtrc(wins - 1, horizon, difference)) if wins <= horizon else 0.0


def wins_needed(
    horizon: int, *, alpha: float = 0.05, method: str = 'betting', smallest_difference: float | None = None
) -> int:
    """How many wins without a loss decide a trial by its horizon; more than the horizon when none does."""
    if method == 'betting':
        prior = betting_prior(
            check_open_unit('alpha', alpha) / 2, horizon=horizon, smallest_difference=smallest_difference
        )
        for wins in range(1, horizon + 1):
            if float(np.exp(wins * np.log1p(prior.shares)) @ prior.weights) >= 2 / alpha:
                return wins
        return horizon + 1
    for wins in range(1, horizon + 1):
        spaced = np.ceil(np.arange(1, wins + 1) * horizon / wins).astype(np.int64)
        if walk_bounds(spaced, horizon=horizon, alpha=alpha)[-1] <= wins:
            return wins
    return horizon + 1
