"""Can a sequential plan show what it was made to find? A horizon that is too short is refused before the trial."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robotrials.stats.argument import check_count, check_open_unit
from robotrials.verdict.planning.betting import betting_prior
from robotrials.verdict.planning.sign_walk import walk_bounds

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
