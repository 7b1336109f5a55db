"""Many comparisons at once: adjusted p-values, and letters that group what can't be told apart."""

from __future__ import annotations

import itertools
import string
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from robotrials.errors import InputError
from robotrials.stats.argument import BoolArray, FloatArray, check_open_unit, check_p_values


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
        raise InputError(f'wanted one p-value a pair, found {len(pairs)} pairs and {p.size} p-values')
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
    found: list[tuple[int, ...]] = []

    def grow(clique: list[int], candidates: set[int], excluded: set[int]) -> None:
        if not candidates and not excluded:
            found.append(tuple(sorted(clique)))
            return
        pivot = max(candidates | excluded, key=lambda v: len(near[v] & candidates))
        for v in sorted(candidates - near[pivot]):
            grow([*clique, v], candidates & near[v], excluded & near[v])
            candidates, excluded = candidates - {v}, excluded | {v}

    grow([], set(range(len(near))), set())
    return found


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
