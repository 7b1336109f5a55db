"""Compiled passes over many simulated trials: placements, shares of wins, and convolved null distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]


@njit(cache=True, nogil=True)
def _share(x: F8, y: F8) -> Any:
    """The share of run-by-run, item-by-item comparisons that x wins; both are (runs, items)."""
    wins = 0.0
    for r in range(x.shape[0]):
        for s in range(y.shape[0]):
            for k in range(x.shape[1]):
                if x[r, k] < y[s, k]:
                    wins += 1.0
                elif x[r, k] == y[s, k]:
                    wins += 0.5
    return wins / (x.shape[0] * y.shape[0] * x.shape[1])


@njit(cache=True, nogil=True)
def _mean_term(values: F8) -> Any:
    n = values.shape[0]
    mean = 0.0
    for x in values:
        mean += x / n
    total = 0.0
    for x in values:
        total += (x - mean) ** 2
    return mean, total / (n * (n - 1.0)) if n > 1 else 0.0


@njit(cache=True, nogil=True)
def plain_placements(a: F8, b: F8, value: F8, variance_a: F8, variance_b: F8) -> None:
    """The same as `placements` for one run of one item per unit, (trials, units): by sorting, not by every pair."""
    for trial in range(a.shape[0]):
        x, y = np.sort(a[trial]), np.sort(b[trial])
        value[trial], variance_a[trial] = _later_shares(x, y)
        variance_b[trial] = _later_shares(y, x)[1]


@njit(cache=True, nogil=True)
def _later_shares(x: F8, y: F8) -> Any:
    """Mean, and variance of the mean, of each sorted x's share of later y, level by half."""
    n, m = x.shape[0], y.shape[0]
    before, not_after = 0, 0
    shares = np.empty(n)
    for i in range(n):
        while before < m and y[before] < x[i]:
            before += 1
        while not_after < m and y[not_after] <= x[i]:
            not_after += 1
        shares[i] = 1 - (before + not_after) / (2 * m)
    return _mean_term(shares)


@njit(cache=True, nogil=True)
def placements(a: F8, b: F8, value: F8, variance_a: F8, variance_b: F8) -> None:
    """Trial by trial: P of (units, runs, items) of a against those of b, and the variances of both placements."""
    n, m = a.shape[1], b.shape[1]
    p, q = np.empty(n), np.empty(m)
    for trial in range(a.shape[0]):
        p[:] = 0.0
        q[:] = 0.0
        for i in range(n):
            for j in range(m):
                won = _share(a[trial, i], b[trial, j])
                p[i] += won / m
                q[j] += won / n
        value[trial], variance_a[trial] = _mean_term(p)
        variance_b[trial] = _mean_term(q)[1]


@njit(cache=True, nogil=True)
def pair_shares(a: F8, b: F8, value: F8, variance: F8) -> None:
    """Trial by trial: the mean share of wins of each start against itself, and its variance."""
    w = np.empty(a.shape[1])
    for trial in range(a.shape[0]):
        for i in range(a.shape[1]):
            w[i] = _share(a[trial, i], b[trial, i])
        value[trial], variance[trial] = _mean_term(w)


@njit(cache=True, nogil=True)
def mid_tails(hits_a: I8, hits_b: I8, ahead: I8, behind: I8, chances: F8, coins: F8, above: F8, below: F8) -> None:
    """Trial by trial: mid-p tails of a's successes given every stratum's total, fair coins of shared starts included.

    `hits_*` are (trials, strata) successes among n and m units; `chances` is (n + m + 1, n + 1), the hypergeometric
    chances for every total; `coins` (c + 1, c + 1) the binomial ones for every number of discordant shared starts.
    """
    n, strata = chances.shape[1] - 1, hits_a.shape[1]
    longest = strata * n + coins.shape[0]
    law, next_law = np.zeros(longest + 1), np.zeros(longest + 1)
    for trial in range(hits_a.shape[0]):
        law[0], length, observed = 1.0, 1, ahead[trial]
        for s in range(strata + 1):
            if s < strata:
                row, width = chances[hits_a[trial, s] + hits_b[trial, s]], n
                observed += hits_a[trial, s]
            else:
                row, width = coins[ahead[trial] + behind[trial]], ahead[trial] + behind[trial]
            next_law[: length + width] = 0.0
            for k in range(width + 1):
                if row[k] > 0.0:
                    for place in range(length):
                        next_law[place + k] += law[place] * row[k]
            length += width
            law[:length] = next_law[:length]
        up, down = law[observed] / 2, law[observed] / 2
        for place in range(length):
            if place > observed:
                up += law[place]
            elif place < observed:
                down += law[place]
        above[trial], below[trial] = up, down
