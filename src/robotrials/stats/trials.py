"""The rule over many simulated trials at once: what planning sizes and the grid checks is the test that judges.

Arrays are (trials, units), (trials, units, runs) or (trials, units, runs, items) per stratum; the first `n_shared[c]`
units of stratum c are starts that both arms ran. Every function gives exactly the p-values of `win_contrast` and
`success_contrast` (tests hold them equal), a withheld one as 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.stats.interval import FloatArray, IntArray, satterthwaite
from robotrials.stats.matching import FEWEST_PER_PART, few_units, one_sided_p_values, unseen_p_values
from robotrials.stats.proportion import binomial_pmf
from robotrials.stats.success_rule import (
    BOSCHLOO_PRODUCT,
    MID_P_FACTOR,
    MOST_DISCORDANT,
    boschloo_p_values,
    hypergeometric,
    paired_move,
)
from robotrials.stats.win import fewest_pairs
from robotrials.value import dataclass

Runs = Sequence[NDArray[np.float64] | NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, eq=False)
class TrialTests:
    """(trials,) each: the gap in favour of a, the two-sided p-value, and the one-sided ones of both arms' claims."""

    gap: FloatArray
    p_value: FloatArray
    p_a: FloatArray
    p_b: FloatArray

    def claims(self, alpha: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Where a's, and where b's claim passes at alpha."""
        passed = self.p_value <= alpha
        return passed & (self.gap > 0), passed & (self.gap < 0)


def win_trials(
    a: Runs, b: Runs, *, n_shared: Sequence[int] | None = None, n_tests: int = 1, alpha: float = 0.05
) -> TrialTests:
    """Who is faster, in every trial; infinite times are not done by the follow-up."""
    from robotrials.stats import kernel

    cells = _cells(a, b, n_shared)
    shared = [s for _, _, s in cells]
    is_matched = all(s and not rest for (_, _, s), rest in zip(cells, _rests(cells), strict=True))
    is_plain = all(x.shape[2:] == (1, 1) == y.shape[2:] for x, y, _ in cells)
    if is_matched and is_plain and len(set(shared)) == 1:
        wins = sum((x[:, :s, 0, 0] < y[:, :s, 0, 0]).sum(axis=1) for x, y, s in cells)
        losses = sum((x[:, :s, 0, 0] > y[:, :s, 0, 0]).sum(axis=1) for x, y, s in cells)
        n = sum(s for _, _, s in cells)
        above, below = (_binomial_tail(k, wins + losses) for k in (wins, losses))
        if n < fewest_pairs(n_tests, alpha):
            above = below = np.ones(len(above))
        return TrialTests((wins - losses) / n, _doubled(above, below), above, below)
    values, terms, dof, sizes = [], [], [], []
    for (x, y, s), rest in zip(cells, _rests(cells), strict=True):
        f, value = s / (s + rest), np.zeros(len(x))
        if s:
            share, variance = np.empty(len(x)), np.empty(len(x))
            kernel.pair_shares(np.ascontiguousarray(x[:, :s]), np.ascontiguousarray(y[:, :s]), share, variance)
            value = value + f * share
            terms.append(f**2 * variance)
            dof.append(max(s - 1.0, 1.0))
        if rest:
            p, v, w = (np.empty(len(x)) for _ in range(3))
            if x.shape[2:] == (1, 1) == y.shape[2:]:
                kernel.plain_placements(np.sort(x[:, s:, 0, 0]), np.sort(y[:, s:, 0, 0]), p, v, w)
            else:
                kernel.placements(np.ascontiguousarray(x[:, s:]), np.ascontiguousarray(y[:, s:]), p, v, w)
            value = value + (1 - f) * p
            terms += [(1 - f) ** 2 * v, (1 - f) ** 2 * w]
            dof += [max(x.shape[1] - s - 1.0, 1.0), max(y.shape[1] - s - 1.0, 1.0)]
        values.append(value)
        sizes.append(s + rest)
    return _judged(values, terms, dof, sizes, null=0.5, withheld=bool(few_units(sizes, n_tests, alpha, 'units')))


def success_trials(
    a: Runs, b: Runs, *, n_shared: Sequence[int] | None = None, n_tests: int = 1, alpha: float = 0.05
) -> TrialTests:
    """Who succeeds more often, in every trial; arrays hold 0 and 1."""
    cells = [(x[:, :, :, 0], y[:, :, :, 0], s) for x, y, s in _cells(a, b, n_shared)]
    rests = _rests(cells)
    is_binary = all(x.shape[2] == 1 == y.shape[2] for x, y, _ in cells)
    designs = {(s, x.shape[1] - s if rest else 0, y.shape[1] - s if rest else 0)
               for (x, y, s), rest in zip(cells, rests, strict=True)}  # fmt: skip
    s, n, m = next(iter(designs))
    is_one = len(cells) == 1 and not s
    if is_binary and is_one and n * m <= BOSCHLOO_PRODUCT:
        x, y = (arm[:, :, 0].sum(axis=1).astype(np.int64) for arm in cells[0][:2])
        above, below = (table[x, y] for table in boschloo_p_values(n, m))
        return TrialTests(x / n - y / m, _doubled(above, below), above, below)
    if is_binary and len(designs) == 1 and (n == m or is_one):
        return _conditional_trials(cells, s, n, m)
    return _rate_trials(cells, rests, n_tests=n_tests, alpha=alpha)


Cell = tuple[FloatArray, FloatArray, int]


def _cells(a: Runs, b: Runs, n_shared: Sequence[int] | None) -> list[Cell]:
    """(trials, units, runs, items) of both arms and the shared starts of every stratum, as the rule matches them."""
    if not a or len(a) != len(b):
        raise InputError(f'wanted the same strata of both arms, at least one, found {len(a)} and {len(b)}')
    cells = []
    for x, y, s in zip(_whole(a), _whole(b), n_shared or [0] * len(a), strict=True):
        rest = min(x.shape[1], y.shape[1]) - s
        if 0 < s < FEWEST_PER_PART and rest:
            s = 0  # a lone shared start joins the others
        cells.append((x, y, s))
    return cells


def _whole(arm: Runs) -> list[FloatArray]:
    return [np.ascontiguousarray(part, dtype=np.float64).reshape((*part.shape, 1, 1)[:4]) for part in arm]


def _rests(cells: Sequence[Cell]) -> list[int]:
    """Units of each stratum that are compared with other ones; a lone remainder beside shared starts is left out."""
    rests = [min(x.shape[1], y.shape[1]) - s for x, y, s in cells]
    return [0 if rest < FEWEST_PER_PART and s >= FEWEST_PER_PART else rest
            for rest, (_, _, s) in zip(rests, cells, strict=True)]  # fmt: skip


def _judged(
    values: Sequence[FloatArray], terms: Sequence[FloatArray], dof: Sequence[float], sizes: Sequence[int], *,
    null: float, withheld: bool, move: FloatArray | float = 1.0,
) -> TrialTests:  # fmt: skip
    strata = len(values)
    gap = np.mean(values, axis=0) - null
    table = np.stack(terms, axis=-1) / strata**2
    degrees = satterthwaite(table, np.broadcast_to(np.array(dof), table.shape), 0.0)
    evidence = table.sum(axis=-1), degrees, strata * min(sizes) / move
    if withheld:
        none = np.ones(len(gap))
        return TrialTests(gap, none, none, none)
    return TrialTests(
        gap, unseen_p_values(gap, *evidence), one_sided_p_values(gap, *evidence), one_sided_p_values(-gap, *evidence)
    )


def _binomial_tail(k: IntArray, n: IntArray) -> FloatArray:
    """P(X >= k) of n fair coins."""
    from robotrials.stats.special import bdtrc

    return np.where(k > 0, bdtrc(np.maximum(k, 1) - 1.0, np.maximum(n, 1), 0.5), 1.0)


def _doubled(above: FloatArray, below: FloatArray) -> FloatArray:
    return np.asarray(np.minimum(1.0, 2 * np.minimum(above, below)))


def _conditional_trials(cells: Sequence[Cell], s: int, n: int, m: int) -> TrialTests:
    """Equal counts: mid-p of the conditional test, McNemar's where all starts are shared."""
    strata = len(cells)
    hits_a = np.stack([x[:, s:, 0].sum(axis=1) for x, _, _ in cells], axis=1).astype(np.int64)
    hits_b = np.stack([y[:, s:, 0].sum(axis=1) for _, y, _ in cells], axis=1).astype(np.int64)
    ahead = sum((x[:, :s, 0] > y[:, :s, 0]).sum(axis=1) for x, y, _ in cells).astype(np.int64)
    behind = sum((x[:, :s, 0] < y[:, :s, 0]).sum(axis=1) for x, y, _ in cells).astype(np.int64)
    gap = (ahead - behind) / (strata * (s + min(n, m)))
    if n:
        gap = gap + ((hits_a / n - hits_b / m).sum(axis=1)) * min(n, m) / (strata * (s + min(n, m)))
    if not n:
        above, below = (_binomial_tail(k, ahead + behind) for k in (ahead, behind))
        half = np.where(ahead + behind > 0, (above + below - 1) / 2, 0.5)
        is_mid = ahead + behind <= MOST_DISCORDANT * strata * s
        above, below = np.where(is_mid, above - half, above), np.where(is_mid, below - half, below)
        return TrialTests(gap, _doubled(above, below), above, below)
    tests = success_count_trials(hits_a, hits_b, n=n, m=m, ahead=ahead, behind=behind)
    return TrialTests(gap, tests.p_value, tests.p_a, tests.p_b)


def success_count_trials(
    hits_a: IntArray, hits_b: IntArray, *, n: int, m: int, ahead: IntArray | None = None, behind: IntArray | None = None
) -> TrialTests:
    """1.2 x mid-p from (trials, strata) successes among n and m; discordant shared starts are (trials,) counts."""
    from robotrials.stats import kernel

    ahead, behind = (np.zeros(len(hits_a), dtype=np.int64) if k is None else k for k in (ahead, behind))
    chances = np.zeros((n + m + 1, n + 1))
    for hits in range(n + m + 1):
        law, first = hypergeometric(n, m, hits)
        chances[hits, first : first + len(law)] = law
    most = int((ahead + behind).max())
    coins = np.zeros((most + 1, most + 1))
    for c in range(most + 1):
        coins[c, : c + 1] = binomial_pmf(c, 0.5)
    above, below = np.empty(len(hits_a)), np.empty(len(hits_a))
    counts = [np.ascontiguousarray(k, dtype=np.int64) for k in (hits_a, hits_b, ahead, behind)]
    kernel.mid_tails(counts[0], counts[1], counts[2], counts[3], chances, coins, above, below)
    above, below = np.minimum(1.0, MID_P_FACTOR * above), np.minimum(1.0, MID_P_FACTOR * below)
    gap = (hits_a / n - hits_b / m).mean(axis=1)
    return TrialTests(gap, _doubled(above, below), above, below)


def _rate_trials(cells: Sequence[Cell], rests: Sequence[int], *, n_tests: int, alpha: float) -> TrialTests:
    """R on shares of successes, paired differences of shared starts included."""
    values, terms, dof, sizes, move = [], [], [], [], np.ones(len(cells[0][0]))
    for (x, y, s), rest in zip(cells, rests, strict=True):
        f, value = s / (s + rest), np.zeros(len(x))
        shares_a, shares_b = x.mean(axis=2), y.mean(axis=2)
        parts = []
        if s:
            parts.append((f, shares_a[:, :s] - shares_b[:, :s], 1.0))
            move = np.maximum(move, paired_move(parts[0][1], f))
        if rest:
            parts += [(1 - f, shares_a[:, s:], 1.0), (1 - f, shares_b[:, s:], -1.0)]
        for weight, shares, sign in parts:
            n = shares.shape[1]
            value = value + sign * weight * shares.mean(axis=1)
            terms.append(weight**2 * shares.var(axis=1, ddof=1) / n if n > 1 else np.zeros(len(x)))
            dof.append(max(n - 1.0, 1.0))
        values.append(value)
        sizes.append(s + rest)
    withheld = bool(few_units(sizes, n_tests, alpha, 'units', farthest=1.0))
    return _judged(values, terms, dof, sizes, null=0.0, withheld=withheld, move=move)
