"""An exact sequential sign test for binary pairs with a declared horizon.

Among pairs on which the policies disagree, the winner is a fair coin if they are equally good, whatever the rate of
disagreement: the difference of wins is a symmetric walk, and its boundary at each disagreement follows by exact
recursion from an error-spending function of the share of the horizon used. No normal approximation, no nuisance rate.
"""

from __future__ import annotations

import numpy as np

from trialist.errors import InputError
from trialist.stats.argument import FloatArray, IntArray

SPENDING_POWER = 2.0


def walk_bounds(disagreed_at: IntArray, *, horizon: int, alpha: float) -> IntArray:
    """The lead in wins that stops the trial at each disagreement; horizon + 1 where no lead can.

    `disagreed_at` holds the numbers of the pairs (1-based) that disagreed, in order. Each side may spend
    (alpha / 2) (n / horizon)^2 by pair n.
    """
    if disagreed_at.size and int(disagreed_at[-1]) > horizon:
        raise InputError(f'pair {int(disagreed_at[-1])} lies beyond the declared horizon of {horizon} pairs')
    size = disagreed_at.size
    chance = np.zeros(2 * size + 3)  # of each lead among walks that have not stopped; lead 0 at index size + 1
    chance[size + 1] = 1.0
    bounds = np.full(size, horizon + 1, dtype=np.int64)
    spent = 0.0
    for t, n in enumerate(disagreed_at):
        moved = np.zeros_like(chance)
        moved[1:] += chance[:-1] / 2
        moved[:-1] += chance[1:] / 2
        budget = alpha / 2 * (int(n) / horizon) ** SPENDING_POWER - spent
        lead = _smallest_lead(moved, size + 1, budget)
        if lead is not None:
            bounds[t] = lead
            spent += float(moved[size + 1 + lead :].sum())
            moved[size + 1 + lead :] = 0
            moved[: size + 2 - lead] = 0
        chance = moved
    return bounds


def _smallest_lead(chance: FloatArray, origin: int, budget: float) -> int | None:
    tail = np.cumsum(chance[origin + 1 :][::-1])[::-1]  # of a lead of at least 1, 2, ...
    fits = np.flatnonzero(tail <= budget)
    if fits.size == 0:
        return None
    lead = int(fits[0]) + 1
    return lead if tail[lead - 1] > 0 else None
