"""Passes over many simulated trials: placements, shares of wins, and convolved null distributions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.compiled import in_c

F8 = NDArray[np.float64]
I8 = NDArray[np.int64]


def _mean_terms(values: F8, value: F8 | None, variance: F8) -> None:
    """Means of (trials, units), and the variances of those means."""
    n = values.shape[1]
    mean = (values / n).sum(axis=1)
    if value is not None:
        value[:] = mean
    variance[:] = np.square(values - mean[:, None]).sum(axis=1) / (n * (n - 1.0)) if n > 1 else 0.0


def _shares(x: F8, y: F8) -> F8:
    """The share of run-by-run, item-by-item comparisons that x wins: (..., runs, items) against as many of y."""
    x, y = x[..., :, None, :], y[..., None, :, :]
    level = np.count_nonzero(x == y, axis=(-3, -2, -1))
    wins: F8 = (np.count_nonzero(x < y, axis=(-3, -2, -1)) + 0.5 * level) / (x.shape[-3] * y.shape[-2] * x.shape[-1])
    return wins


@in_c
def plain_placements(a: F8, b: F8, value: F8, variance_a: F8, variance_b: F8) -> None:
    """The same as `placements` for one run of one item per unit, (trials, units), each trial sorted."""
    for trial in range(len(a)):
        x, y = a[trial], b[trial]
        for own, other, mean, variance in ((x, y, value, variance_a), (y, x, None, variance_b)):
            later = 1 - (np.searchsorted(other, own) + np.searchsorted(other, own, side='right')) / (2 * len(other))
            _mean_terms(later[None], None if mean is None else mean[trial : trial + 1], variance[trial : trial + 1])


@in_c
def placements(a: F8, b: F8, value: F8, variance_a: F8, variance_b: F8) -> None:
    """Trial by trial: P of (units, runs, items) of a against those of b, and the variances of both placements."""
    for trial in range(len(a)):
        won = np.stack([_shares(unit, b[trial]) for unit in a[trial]])
        part = slice(trial, trial + 1)
        _mean_terms(won.mean(axis=1)[None], value[part], variance_a[part])
        _mean_terms(won.mean(axis=0)[None], None, variance_b[part])


@in_c
def pair_shares(a: F8, b: F8, value: F8, variance: F8) -> None:
    """Trial by trial: the mean share of wins of each start against itself, and its variance."""
    _mean_terms(_shares(a, b), value, variance)


@in_c
def mid_tails(hits_a: I8, hits_b: I8, ahead: I8, behind: I8, chances: F8, coins: F8, above: F8, below: F8) -> None:
    """Trial by trial: mid-p tails of a's successes given every stratum's total, fair coins of shared starts included.

    `hits_*` are (trials, strata) successes among n and m units; `chances` is (n + m + 1, n + 1), the hypergeometric
    chances for every total; `coins` (c + 1, c + 1) the binomial ones for every number of discordant shared starts.
    """
    law = np.ones((len(hits_a), 1))
    rows = [chances[hits_a[:, s] + hits_b[:, s]] for s in range(hits_a.shape[1])]
    for row in [*rows, coins[ahead + behind]]:
        longer = np.zeros((len(law), law.shape[1] + row.shape[1] - 1))
        for k in range(row.shape[1]):
            longer[:, k : k + law.shape[1]] += law * row[:, k : k + 1]
        law = longer
    observed = (ahead + hits_a.sum(axis=1))[:, None]
    place = np.arange(law.shape[1])
    half = np.take_along_axis(law, observed, axis=1)[:, 0] / 2
    above[:] = half + np.where(place > observed, law, 0.0).sum(axis=1)
    below[:] = half + np.where(place < observed, law, 0.0).sum(axis=1)
