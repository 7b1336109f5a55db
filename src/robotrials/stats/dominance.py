"""From one list of claims, corrected for their number, to what may be said of each pair of policies."""

from __future__ import annotations

import enum
import itertools
import string
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError
from robotrials.stats.interval import BoolArray, FloatArray, check_open_unit, check_p_values
from robotrials.value import dataclass

# Many comparisons at once: adjusted p-values, and letters that group what cannot be told apart.


def bonferroni(p_values: Sequence[float] | FloatArray, *, comparisons: int | None = None) -> FloatArray:
    """Bonferroni-adjusted p-values; `comparisons` when more were made than are shown."""
    p = check_p_values(p_values)
    m = p.size if comparisons is None else comparisons
    if m < p.size:
        raise InputError(f'comparisons must be at least the {p.size} p-values given, found {m}')
    return np.minimum(1.0, p * m)


def holm(p_values: Sequence[float] | FloatArray) -> FloatArray:
    """Holm's step-down adjusted p-values: the same family-wise error as Bonferroni, never less power."""
    p = check_p_values(p_values)
    order = np.argsort(p, kind='stable')
    stepped = np.maximum.accumulate(p[order] * (p.size - np.arange(p.size)))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, stepped)
    return adjusted


def different_matrix(pairs: Sequence[tuple[int, int]], p_values: Sequence[float], *, k: int, alpha: float) -> BoolArray:
    """A symmetric matrix of which of k arms differ, from (adjusted) p-values of pairs of arms."""
    check_open_unit('alpha', alpha)
    p = check_p_values(p_values)
    if len(pairs) != p.size:
        raise InputError(f'wanted one p-value per pair, found {len(pairs)} pairs and {p.size} p-values')
    different = np.zeros((k, k), dtype=np.bool_)
    for (i, j), value in zip(pairs, p, strict=True):
        different[i, j] = different[j, i] = value <= alpha
    return different


def letter_groups(different: ArrayLike) -> tuple[str, ...]:
    """A compact letter display: two arms share a letter exactly when they are not different.

    `different` is a symmetric (k, k) boolean matrix, arms in the order in which letters should be handed out (the best
    first). "Not different" need not be transitive: each letter is a maximal set of mutually indistinguishable arms, and
    sets whose pairs are all covered by others are left out.

    >>> letter_groups([[0, 0, 1], [0, 0, 0], [1, 0, 0]])
    ('a', 'ab', 'b')
    """
    matrix = _check_different(different)
    groups = _needed(sorted(_maximal_cliques(~matrix)), len(matrix))
    names = _letters(len(groups))
    return tuple(
        ''.join(name for name, group in zip(names, groups, strict=True) if i in group) for i in range(len(matrix))
    )


def _check_different(different: ArrayLike) -> BoolArray:
    matrix = np.asarray(different).astype(np.bool_)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise InputError(f'different must be a square matrix, found shape {matrix.shape}')
    if not np.array_equal(matrix, matrix.T):
        i, j = np.argwhere(matrix != matrix.T)[0]
        raise InputError(f'different must be symmetric, but [{i},{j}] and [{j},{i}] disagree')
    if matrix.diagonal().any():
        raise InputError(f'arm {int(np.flatnonzero(matrix.diagonal())[0])} is marked as different from itself')
    return matrix


def _maximal_cliques(linked: BoolArray) -> list[tuple[int, ...]]:
    """Bron and Kerbosch's algorithm with pivots."""
    near = [set(np.flatnonzero(row).tolist()) - {i} for i, row in enumerate(linked)]
    cliques: list[tuple[int, ...]] = []

    def grow(clique: list[int], candidates: set[int], excluded: set[int]) -> None:
        if not candidates and not excluded:
            cliques.append(tuple(sorted(clique)))
            return
        pivot = max(candidates | excluded, key=lambda v: len(near[v] & candidates))
        for v in sorted(candidates - near[pivot]):
            grow([*clique, v], candidates & near[v], excluded & near[v])
            candidates, excluded = candidates - {v}, excluded | {v}

    grow([], set(range(len(near))), set())
    return cliques


def _needed(groups: list[tuple[int, ...]], k: int) -> list[tuple[int, ...]]:
    """Drop, smallest first, every group whose members and pairs all appear in the others."""
    kept = list(groups)
    for group in sorted(groups, key=len):
        rest = [other for other in kept if other != group]
        pairs = {pair for other in rest for pair in itertools.combinations(other, 2)}
        members = {i for other in rest for i in other}
        if set(itertools.combinations(group, 2)) <= pairs and set(group) <= members:
            kept = rest
    return kept


def _letters(n: int) -> list[str]:
    base = string.ascii_lowercase + string.ascii_uppercase
    return [base[i % len(base)] + (str(i // len(base)) if i >= len(base) else '') for i in range(n)]


LOOKS_WORSE = 0.10  # one-sided and uncorrected; at .05 a loss of 10 points passes in .45 of trials, here in .31
CORRECTIONS = ('holm', 'bonferroni', 'none')


class PairVerdict(enum.StrEnum):
    """What may be said of two arms over all primary endpoints; only the first names a winner."""

    BETTER = 'better'
    TRADE_OFF = 'a trade-off'
    DEPENDS = 'depends on the stratum'
    SAME = 'the same within the margins'
    UNRESOLVED = 'unresolved'


@dataclass(frozen=True, slots=True)
class Claim:
    """One hypothesis of the list: two arms on one endpoint.

    `p_value` is two-sided and unadjusted, None where withheld. `favours` is the arm that the estimate favours.
    `p_worse_a` is the one-sided p-value of "a is no worse" (b's claim), and `p_worse_b` the same for b.
    """

    pair: tuple[str, str]
    endpoint: str
    p_value: float | None
    favours: str | None
    p_worse_a: float | None = None
    p_worse_b: float | None = None

    def __post_init__(self) -> None:
        if self.favours not in ('a', 'b', None):
            raise InputError(f"favours must be 'a', 'b' or None, found {self.favours!r}")

    def looks_worse(self, side: str) -> bool:
        """Whether this arm looks worse here: the veto's warning light."""
        p = self.p_worse_a if side == 'a' else self.p_worse_b
        return p is not None and p <= LOOKS_WORSE


@dataclass(frozen=True, slots=True)
class JudgedClaim:
    """A claim with its p-value adjusted over the list, and whether it passed."""

    claim: Claim
    p_adjusted: float | None
    is_made: bool

    @property
    def winner(self) -> str | None:
        """The name of the arm that the claim is for; None where it was not made."""
        if not self.is_made or self.claim.favours is None:
            return None
        return self.claim.pair[0] if self.claim.favours == 'a' else self.claim.pair[1]


@dataclass(frozen=True, slots=True)
class PairFlags:
    """What else is known of a pair, beside its claims."""

    reverses: bool = False  # a reversal between strata was shown
    contradicts: bool = False  # win probability and mean time point in different directions, unexplained by success
    is_same: bool = False  # equivalence was shown on every primary endpoint, within declared margins


@dataclass(frozen=True, slots=True)
class PairDecision:
    """What is said of one pair: the verdict, its winner, the endpoints claimed for either arm, and the vetoes."""

    pair: tuple[str, str]
    verdict: PairVerdict
    winner: str | None
    claims_for_a: tuple[str, ...]
    claims_for_b: tuple[str, ...]
    vetoed_by: tuple[str, ...] = ()  # endpoints on which the arm with the claims looks worse
    contradicts: bool = False

    @property
    def is_different(self) -> bool:
        """Whether any claim was made, for letters and lists of who differs from whom."""
        return bool(self.claims_for_a or self.claims_for_b)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The whole list: every claim with its adjusted p-value, and one decision per pair, in the order of the list."""

    claims: tuple[JudgedClaim, ...]
    decisions: tuple[PairDecision, ...]
    alpha: float
    correction: str
    by_pair: Mapping[tuple[str, str], PairDecision] = field(repr=False, default_factory=dict)

    def of(self, pair: tuple[str, str]) -> PairDecision:
        return self.by_pair[pair]


def judge(
    claims: Sequence[Claim], *, alpha: float = 0.05, correction: str = 'holm',
    flags: Mapping[tuple[str, str], PairFlags] | None = None,
) -> Judgement:  # fmt: skip
    """Correct one list of hypotheses over all pairs and endpoints, and decide every pair.

    A withheld hypothesis stays in the list as a p of 1: whether it could be tested must not change what others need.

    >>> quick = Claim(('hasty', 'careful'), 'time', 0.001, 'a', p_worse_a=0.999, p_worse_b=0.0005)
    >>> sure = Claim(('hasty', 'careful'), 'success', 0.002, 'b', p_worse_a=0.001, p_worse_b=0.999)
    >>> judge([quick, sure]).decisions[0].verdict.value
    'a trade-off'
    """
    check_open_unit('alpha', alpha)
    if len({(c.pair, c.endpoint) for c in claims}) < len(claims):
        raise InputError('a pair has two claims on one endpoint; give each (pair, endpoint) once')
    adjusted = adjusted_p_values([c.p_value for c in claims], correction)
    judged = tuple(
        JudgedClaim(c, p, p is not None and p <= alpha and c.favours is not None)
        for c, p in zip(claims, adjusted, strict=True)
    )
    pairs = dict.fromkeys(c.pair for c in claims)
    known = flags or {}
    decisions = tuple(
        _decide(pair, [j for j in judged if j.claim.pair == pair], known.get(pair, PairFlags())) for pair in pairs
    )
    return Judgement(judged, decisions, alpha, correction, {d.pair: d for d in decisions})


def adjusted_p_values(p_values: Sequence[float | None], correction: str) -> list[float | None]:
    """P-values adjusted over the whole list; None stays None and counts as 1."""
    if correction not in CORRECTIONS:
        raise InputError(f'correction must be one of {", ".join(CORRECTIONS)}, found {correction!r}')
    if not p_values:
        return []
    filled = [1.0 if p is None else p for p in p_values]
    values = filled if correction == 'none' else (holm if correction == 'holm' else bonferroni)(filled).tolist()
    return [None if p is None else float(q) for p, q in zip(p_values, values, strict=True)]


def _decide(pair: tuple[str, str], judged: Sequence[JudgedClaim], flags: PairFlags) -> PairDecision:
    made = {side: tuple(j.claim.endpoint for j in judged if j.is_made and j.claim.favours == side) for side in 'ab'}
    sides = [side for side in 'ab' if made[side]]
    # The endpoints without a claim on which the only arm with claims looks worse.
    unclaimed = [j.claim for j in judged if len(sides) == 1 and j.claim.endpoint not in made[sides[0]]]
    vetoed = tuple(claim.endpoint for claim in unclaimed if claim.looks_worse(sides[0]))
    winner = None
    if flags.reverses:
        verdict = PairVerdict.DEPENDS
    elif len(sides) == 2 or vetoed or (sides and flags.contradicts):
        verdict = PairVerdict.TRADE_OFF
    elif sides:
        verdict, winner = PairVerdict.BETTER, pair[0] if sides[0] == 'a' else pair[1]
    else:
        verdict = PairVerdict.SAME if flags.is_same else PairVerdict.UNRESOLVED
    return PairDecision(pair, verdict, winner, made['a'], made['b'], vetoed, flags.contradicts)
