"""A logrank test that may be looked at after every block: times, not only successes, with an error that holds.

Rollouts come in blocks of m of each policy, in the order in which they were started. At each time within a block at
which someone succeeds, the number of a's among the successes is hypergeometric under equal hazards; under a hazard
ratio it is Fisher's noncentral hypergeometric. The product of the likelihood ratios, averaged over a fixed prior of
hazard ratios, is an e-process: it ever reaches 1/alpha with chance at most alpha (ter Schure, Perez-Ortiz, Ly and
Gruenwald 2024, "The safe logrank test"). A stratum may have its own blocks; their products multiply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError
from robotrials.stats.argument import BoolArray, FloatArray, check_count, check_open_unit
from robotrials.stats.interval import Interval

RATIOS = 32
SMALLEST_LOG_RATIO, LARGEST_LOG_RATIO = math.log(1.1), math.log(8.0)
CLAIMS = np.exp(np.linspace(-math.log(50), math.log(50), 401))


@dataclass(frozen=True, slots=True)
class LogrankLook:
    """After some blocks: the e-value of "a is faster" and of "b is faster", and the hazard ratios not refuted."""

    blocks: int
    evidence_a: float
    evidence_b: float
    hazard_ratio: Interval  # of a over b: above 1 favours a; a confidence sequence


@dataclass(frozen=True, slots=True)
class SafeLogrank:
    """Every look; `p_value` is two-sided and valid whenever one stops."""

    looks: tuple[LogrankLook, ...]
    alpha: float
    waiting_a: int
    waiting_b: int

    @property
    def p_value(self) -> float:
        best = max((max(look.evidence_a, look.evidence_b) for look in self.looks), default=1.0)
        return min(1.0, 2 / best)

    @property
    def faster(self) -> str | None:
        """'a' or 'b' once its evidence has reached 2 / alpha, else None."""
        for look in self.looks:
            if look.evidence_a >= 2 / self.alpha:
                return 'a'
            if look.evidence_b >= 2 / self.alpha:
                return 'b'
        return None

    @property
    def hazard_ratio(self) -> Interval | None:
        """The confidence sequence at the last look: it holds at a stop that the data chose."""
        return self.looks[-1].hazard_ratio if self.looks else None


def safe_logrank(
    times_a: ArrayLike, observed_a: ArrayLike, times_b: ArrayLike, observed_b: ArrayLike, *, block: int = 2,
    alpha: float = 0.05,
) -> SafeLogrank:  # fmt: skip
    """An anytime-valid logrank test of times-to-success, one a rollout (or unit) in the order of starts.

    `inf` observed never succeeded, unobserved is censored at its time. `block` rollouts of each policy are compared
    with each other; what has no complete block waits. Repeats of a start state are one unit: collapse them first.
    """
    size = check_count('block', block, least=1)
    check_open_unit('alpha', alpha)
    arms = [_checked(t, o) for t, o in ((times_a, observed_a), (times_b, observed_b))]
    n = min(len(times) for times, _ in arms) // size
    ratios = np.exp(np.linspace(SMALLEST_LOG_RATIO, LARGEST_LOG_RATIO, RATIOS))
    log_a, log_b, against = np.zeros(RATIOS), np.zeros(RATIOS), np.zeros(CLAIMS.size)
    looks = []
    for k in range(n):
        part = slice(k * size, (k + 1) * size)
        tables = _tables(arms[0][0][part], arms[0][1][part], arms[1][0][part], arms[1][1][part])
        log_a += _log_likelihood(tables, ratios) - _log_likelihood(tables, np.ones(1))
        log_b += _log_likelihood(tables, 1 / ratios) - _log_likelihood(tables, np.ones(1))
        against += _log_likelihood(tables, CLAIMS)
        looks.append(_look(k + 1, log_a, log_b, against, ratios, alpha))
    left = [len(times) - n * size for times, _ in arms]
    return SafeLogrank(tuple(looks), alpha, left[0], left[1])


def _checked(times: ArrayLike, observed: ArrayLike) -> tuple[FloatArray, BoolArray]:
    found, seen = np.asarray(times, dtype=np.float64), np.asarray(observed, dtype=np.bool_)
    if found.ndim != 1 or found.shape != seen.shape:
        raise InputError(f'times have shape {found.shape} and observed {seen.shape}, wanted the same (n,)')
    if np.isnan(found).any() or (found < 0).any() or (np.isinf(found) & ~seen).any():
        raise InputError('times must be >= 0; one that never succeeded is inf and observed')
    return found, seen


def _tables(ta: FloatArray, oa: BoolArray, tb: FloatArray, ob: BoolArray) -> list[tuple[int, int, int, int]]:
    """At each time of success: at risk in a and b, and successes in a and b."""
    successes = np.unique(np.concatenate([ta[oa & np.isfinite(ta)], tb[ob & np.isfinite(tb)]]))
    return [
        (int((ta >= t).sum()), int((tb >= t).sum()), int(((ta == t) & oa).sum()), int(((tb == t) & ob).sum()))
        for t in successes
    ]


def _log_likelihood(tables: Sequence[tuple[int, int, int, int]], ratios: FloatArray) -> FloatArray:
    """(ratios,) the log chance of each table's split of successes under a hazard (odds) ratio of a over b."""
    total = np.zeros(ratios.size)
    for at_a, at_b, d_a, d_b in tables:
        d = d_a + d_b
        k = np.arange(max(0, d - at_b), min(at_a, d) + 1)
        weight = np.array([math.comb(at_a, int(i)) * math.comb(at_b, d - int(i)) for i in k], dtype=np.float64)
        terms = np.log(weight)[None, :] + np.log(ratios)[:, None] * k[None, :]
        own = math.log(math.comb(at_a, d_a) * math.comb(at_b, d_b)) + np.log(ratios) * d_a
        total += own - np.logaddexp.reduce(terms, axis=1)
    return total


def _look(
    blocks: int, log_a: FloatArray, log_b: FloatArray, against: FloatArray, ratios: FloatArray, alpha: float
) -> LogrankLook:
    e_a, e_b = (float(np.exp(min(np.logaddexp.reduce(x) - math.log(RATIOS), 700.0))) for x in (log_a, log_b))
    # Against each claimed ratio the same bets are made, on both sides of it, with a common prior of 2 RATIOS.
    base = float(np.interp(0.0, np.log(CLAIMS), against))
    mixed = float(np.logaddexp.reduce(np.concatenate([log_a, log_b])) - math.log(2 * RATIOS)) + base
    kept = CLAIMS[mixed - against < math.log(1 / alpha)]
    if kept.size == 0:
        kept = CLAIMS[[int(np.argmax(against))]]
    low = 0.0 if kept[0] == CLAIMS[0] else float(kept[0])
    high = math.inf if kept[-1] == CLAIMS[-1] else float(kept[-1])
    return LogrankLook(blocks, e_a, e_b, Interval(low, high))
