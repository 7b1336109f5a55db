"""The success curve: Kaplan-Meier chance of success by time, with an atom at infinity (PhAIL, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.timing.operation import FloatArray, IntArray, checked_times
from robotrials.value import dataclass

MOST_NUMBERS = 1_000_000  # of a table that is worked through: 8 MB, and a few times that for what it is made of


@dataclass(frozen=True, slots=True, eq=False)
class SuccessCurve:
    """F(t) = P(T <= t), a right-continuous step function that is held flat after the last finite time.

    `times_s` are the distinct finite times at which something succeeded or was censored. Counts are sums of weights.
    """

    times_s: FloatArray  # (k,)
    chance: FloatArray  # (k,) F at each time
    at_risk: FloatArray  # (k,) still unfinished just before each time, ghosts included
    n_success: FloatArray  # (k,)
    n_censored: FloatArray  # (k,)
    n_ghosts: float

    @property
    def n_operations(self) -> float:
        return float(self.n_success.sum() + self.n_censored.sum() + self.n_ghosts)

    @property
    def plateau(self) -> float:
        """F at the last finite time: the largest chance the data show."""
        return float(self.chance[-1]) if len(self.chance) else 0.0

    @property
    def hard_failure(self) -> float:
        """The gap between the plateau and 1. NotEstimable when every operation is censored: no end was ever seen.

        Without ghosts it is an upper bound, since the rest may yet have succeeded after watching stopped.
        """
        if not self.n_success.sum() and not self.n_ghosts:
            raise NotEstimable('every operation is censored: no success and no hard failure was seen')
        return 1.0 - self.plateau

    @property
    def ghost_share(self) -> float:
        """Ghosts over operations: a plain count, which censoring biases downward."""
        return self.n_ghosts / self.n_operations

    @property
    def followed_to_s(self) -> float:
        """The time up to which the data determine F: infinite when only ghosts, or nothing, is left after the end."""
        if self.n_ghosts or self.plateau >= 1.0 - 1e-12:
            return float('inf')
        return float(self.times_s[-1])

    def at(self, t_s: ArrayLike) -> FloatArray | float:
        """F at one time, or at each of an array of times; flat after the last finite time, also at infinity."""
        asked = np.asarray(t_s, dtype=np.float64)
        if np.isnan(asked).any():
            raise InputError('t_s holds NaN, wanted times in seconds')
        steps = np.concatenate([[0.0], self.chance])
        values = steps[np.searchsorted(self.times_s, asked, side='right')]
        return float(values) if asked.ndim == 0 else values

    def quantile(self, level: float) -> float | None:
        """The first time with F >= level; None when the curve never gets there ("not reached")."""
        if not 0 < level < 1:
            raise InputError(f'level is {level}, wanted a number between 0 and 1')
        reached = np.flatnonzero(self.chance >= level - 1e-12)
        return float(self.times_s[reached[0]]) if len(reached) else None

    @property
    def median_s(self) -> float | None:
        return self.quantile(0.5)

    def at_risk_at(self, t_s: ArrayLike) -> FloatArray:
        """Operations still unfinished just before each time (ghosts stay for ever)."""
        asked = np.atleast_1d(np.asarray(t_s, dtype=np.float64))
        return np.concatenate([self.at_risk, [self.n_ghosts]])[np.searchsorted(self.times_s, asked, side='left')]

    def greenwood_variance(self, t_s: ArrayLike) -> FloatArray:
        """Greenwood's variance of F at each time; it takes operations as independent."""
        left = self.at_risk - self.n_success
        terms = np.divide(self.n_success, self.at_risk * left, out=np.zeros_like(left), where=left > 0)
        total = np.concatenate([[0.0], np.cumsum(terms)])
        asked = np.atleast_1d(np.asarray(t_s, dtype=np.float64))
        index = np.searchsorted(self.times_s, asked, side='right')
        survival = 1.0 - np.concatenate([[0.0], self.chance])[index]
        return np.asarray(survival**2 * total[index], dtype=np.float64)


def success_curve(durations_s: ArrayLike, observed: ArrayLike, *, weights: ArrayLike | None = None) -> SuccessCurve:
    """Kaplan-Meier chance of success by time. `inf` observed is a ghost; unobserved is censored at its duration.

    durations_s, observed and weights are (n,). Censored at a tie counts as still at risk there.
    """
    times, seen = checked_times(durations_s, observed)
    if len(times) == 0:
        raise NotEstimable('no operation was given: there is no curve of nothing')
    weight = np.ones_like(times) if weights is None else np.asarray(weights, dtype=np.float64)
    if weight.shape != times.shape or not np.all(np.isfinite(weight)) or np.any(weight < 0):
        raise InputError(f'weights must be {len(times)} finite numbers >= 0, one per operation')
    if not weight.sum() > 0:
        raise NotEstimable('every weight is 0: there is no curve of nothing')
    finite = np.isfinite(times)
    unique, place = np.unique(times[finite], return_inverse=True)
    kept, flag = weight[finite], seen[finite]
    n_success = np.bincount(place, weights=kept * flag, minlength=len(unique)).astype(np.float64)
    n_censored = np.bincount(place, weights=kept * ~flag, minlength=len(unique)).astype(np.float64)
    n_ghosts = float(weight[~finite].sum())
    leaving = (n_success + n_censored)[::-1]
    at_risk = np.cumsum(leaving)[::-1] + n_ghosts
    ratio = np.divide(n_success, at_risk, out=np.zeros_like(at_risk), where=at_risk > 0)
    chance = np.asarray(1.0 - np.cumprod(1.0 - np.minimum(ratio, 1.0)), dtype=np.float64)
    return SuccessCurve(unique, chance, at_risk, n_success, n_censored, n_ghosts)


def rmst(curve: SuccessCurve, tau_s: float) -> float:
    """Restricted mean time-to-success in seconds: the integral of 1 - F up to tau_s, so a ghost is charged tau_s."""
    check_tau(tau_s)
    inside = curve.times_s[curve.times_s < tau_s]
    edges = np.concatenate([[0.0], inside, [tau_s]])
    survival = 1.0 - np.concatenate([[0.0], curve.chance[: len(inside)]])
    return float(np.sum(survival * np.diff(edges)))


def check_tau(tau_s: float) -> None:
    """Raise InputError unless tau_s is a finite number of seconds above 0."""
    if not (np.isfinite(tau_s) and tau_s > 0):
        raise InputError(f'tau_s is {tau_s}, wanted a finite number of seconds > 0')


def macro_curve(curves: Mapping[str, SuccessCurve], *, weights: Mapping[str, float] | None = None) -> SuccessCurve:
    """The average of the strata's F with equal (or given) weights: each stratum counts the same, whatever its size.

    At-risk numbers and counts are sums over strata, so they describe the data and not the averaged curve.
    """
    if not curves:
        raise NotEstimable('no stratum was given: there is no average of no curve')
    share = np.array([1.0 if weights is None else weights.get(name, np.nan) for name in curves])
    if not np.all(np.isfinite(share)) or np.any(share < 0) or not share.sum() > 0:
        raise InputError(f'weights must be numbers >= 0 for each of {", ".join(curves)}, not all 0; found {weights}')
    times = np.unique(np.concatenate([c.times_s for c in curves.values()]))
    chance = sum(w * np.atleast_1d(c.at(times)) for w, c in zip(share / share.sum(), curves.values(), strict=True))
    return SuccessCurve(
        times_s=times,
        chance=np.asarray(chance, dtype=np.float64).reshape(len(times)),
        at_risk=np.sum([c.at_risk_at(times) for c in curves.values()], axis=0).reshape(len(times)),
        n_success=_counts_at(times, curves, 'n_success'),
        n_censored=_counts_at(times, curves, 'n_censored'),
        n_ghosts=float(sum(c.n_ghosts for c in curves.values())),
    )


def _counts_at(times: FloatArray, curves: Mapping[str, SuccessCurve], name: str) -> FloatArray:
    total = np.zeros(len(times))
    for curve in curves.values():
        np.add.at(total, np.searchsorted(times, curve.times_s), getattr(curve, name))
    return total


def clustered_variance(
    durations_s: ArrayLike, observed: ArrayLike, episode: IntArray | Sequence[int], t_s: ArrayLike
) -> FloatArray:
    """Variance of F at each time with operations clustered in episodes: the infinitesimal jackknife."""
    cluster = np.unique(np.asarray(episode), return_inverse=True)[1]
    asked = np.atleast_1d(np.asarray(t_s, dtype=np.float64))
    # Times are independent of each other: a few at a time, so that many operations need no large table.
    parts = np.array_split(asked, n_blocks(len(cluster), len(asked)))
    squares = [(episode_influence(durations_s, observed, cluster, some) ** 2).sum(axis=0) for some in parts]
    return np.asarray(np.concatenate(squares), dtype=np.float64)


def n_blocks(rows: int, columns: int) -> int:
    """Into how many parts a table of so many numbers is cut, of which one at a time is held; at most one per column."""
    return max(1, min(columns, -(-rows * columns // MOST_NUMBERS)))


def episode_influence(
    durations_s: ArrayLike, observed: ArrayLike, cluster: IntArray, t_s: ArrayLike, *, n_episodes: int | None = None
) -> FloatArray:
    """(episodes, times): by how much each episode moves F; their squares sum to the clustered variance.

    `cluster` numbers each operation's episode from 0. An operation's derivative of log S(t) is the sum of d/(n (n - d))
    over the times u <= t that it was at risk and did not succeed, less 1/n at its own success; derivatives are summed
    within each episode.
    """
    times, seen = checked_times(durations_s, observed)
    curve = success_curve(times, seen)
    asked = np.atleast_1d(np.asarray(t_s, dtype=np.float64))
    own = np.searchsorted(curve.times_s, times)
    n_own = np.concatenate([curve.at_risk, [1.0]])[own]
    left = curve.at_risk - curve.n_success
    terms = np.divide(curve.n_success, curve.at_risk * left, out=np.zeros_like(left), where=left > 0)
    stayed = np.concatenate([[0.0], np.cumsum(terms)])
    succeeded = (seen & np.isfinite(times))[:, None] & (times[:, None] <= asked[None, :])
    until = np.where(seen, own, own + 1)[:, None]
    by_then = np.searchsorted(curve.times_s, asked, side='right')[None, :]
    slope = stayed[np.minimum(np.minimum(until, by_then), len(terms))] - succeeded / n_own[:, None]
    influence = -(1.0 - np.atleast_1d(curve.at(asked)))[None, :] * slope
    totals = np.zeros((int(cluster.max()) + 1 if n_episodes is None else n_episodes, len(asked)))
    np.add.at(totals, cluster, influence)
    return totals
