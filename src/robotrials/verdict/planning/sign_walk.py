"""An exact sequential sign test for binary pairs with a declared horizon.

Among pairs on which the policies disagree, the winner is a fair coin if they are equally good, whatever the rate of
disagreement: the difference of wins is a symmetric walk, and its boundary at each disagreement follows by exact
recursion from an error-spending function of the share of the horizon used. No normal approximation, no nuisance rate.
"""

from __future__ import annotations

import numpy as np

from robotrials.errors import InputError
from robotrials.stats.argument import FloatArray, IntArray

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


def walk_winners(signs: IntArray, *, horizon: int, alpha: float, past: IntArray | None = None) -> IntArray:
    """Who decides each trial, one a row of `signs`: 1 for a, -1 for b, 0 where no lead does by the end.

    `walk_bounds` of many trials at once: each disagrees at pairs of its own, so each has bounds of its own. They may
    share a `past` (pairs,), which is gone through once.
    """
    shared = np.zeros(0, dtype=np.int64) if past is None else past
    width = int(np.count_nonzero(shared)) + int(np.count_nonzero(signs, axis=1).max(initial=0)) + 1
    chance = np.zeros((1, 2 * width + 1))
    chance[:, width] = 1.0
    spent, lead, winner = np.zeros(1), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    sizes = np.arange(1, width + 1)
    for n, column in enumerate((*shared[:, None], *signs.T), start=1):
        if n == shared.size + 1:
            chance = np.repeat(chance, column.size, axis=0)
            spent, lead, winner = (
                np.repeat(spent, column.size),
                np.repeat(lead, column.size),
                np.repeat(winner, column.size),
            )
        rows = np.flatnonzero((column != 0) & (winner == 0))
        if rows.size == 0:
            continue
        lead[rows] += column[rows]
        moved = np.zeros((rows.size, 2 * width + 1))
        moved[:, 1:] += chance[rows, :-1] / 2
        moved[:, :-1] += chance[rows, 1:] / 2
        tail = np.cumsum(moved[:, :width:-1], axis=1)[:, ::-1]  # of a lead of at least 1, 2, ...
        fits = tail <= (alpha / 2 * (n / horizon) ** SPENDING_POWER - spent[rows])[:, None]
        first = np.where(fits.any(axis=1), fits.argmax(axis=1), width - 1)
        reach = np.take_along_axis(tail, first[:, None], axis=1)[:, 0]
        bound = np.where(fits.any(axis=1) & (reach > 0), first + 1, width + 1)
        spent[rows] += np.where(bound <= width, reach, 0.0)
        beyond = sizes[None, :] >= bound[:, None]
        moved[:, width + 1 :][beyond] = 0.0
        moved[:, :width][:, ::-1][beyond] = 0.0
        chance[rows] = moved
        winner[rows] = np.where(np.abs(lead[rows]) >= bound, np.sign(lead[rows]), 0)
    return winner


def walk_estimate(signs: IntArray, *, horizon: int, alpha: float) -> float:
    """The median-unbiased difference of rates when a walk has stopped (or ended), by the order of stopping.

    Stopping earlier, or with a larger lead at the same pair, is stronger evidence (Tsiatis, Rosner and Mehta 1984). The
    chance of a win among disagreements is the one at which what was seen, or stronger, has chance one half; the rate
    of disagreement is that seen. `signs` are 1, -1 or 0, one a pair, up to the stop.
    """
    at = np.flatnonzero(signs)
    if at.size == 0:
        return 0.0
    lead = int(signs.sum())
    if lead == 0:
        return 0.0
    bounds = walk_bounds(at + 1, horizon=horizon, alpha=alpha)
    low, high = 0.0, 1.0
    for _ in range(50):
        chance = (low + high) / 2
        # The chance of evidence at least this strong for the side that leads rises with its chance of a win.
        low, high = (chance, high) if _stronger(bounds, abs(lead), chance) < 0.5 else (low, chance)
    return float(np.sign(lead)) * (2 * (low + high) / 2 - 1) * at.size / signs.size


def _stronger(bounds: IntArray, lead: int, win: float) -> float:
    """The chance of stopping above earlier, or of a lead of at least `lead` at the last disagreement."""
    size = bounds.size
    chance = np.zeros(2 * size + 3)
    chance[size + 1] = 1.0
    above = 0.0
    for t, bound in enumerate(bounds.tolist()):
        moved = np.zeros_like(chance)
        moved[1:] += chance[:-1] * win
        moved[:-1] += chance[1:] * (1 - win)
        if t == size - 1:
            return above + float(moved[size + 1 + lead :].sum())
        reach = min(bound, size + 1)
        above += float(moved[size + 1 + reach :].sum())
        moved[size + 1 + reach :] = 0
        moved[: size + 2 - reach] = 0
        chance = moved
    return above
