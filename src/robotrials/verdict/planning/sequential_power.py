"""What a sequential design does before it is run: how often it decides, how rightly, after how many rollouts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError
from robotrials.stats.argument import FloatArray, IntArray, check_count, check_open_unit, check_unit
from robotrials.stats.interval import Interval
from robotrials.stats.proportion import wilson
from robotrials.verdict.planning.betting import Prior, betting_prior
from robotrials.verdict.planning.sequential import SequentialMethod
from robotrials.verdict.planning.sign_walk import walk_bounds


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
    larger: FloatArray = np.maximum(capital[0], capital[1])
    return larger
