"""Blocks of rollouts that are compared with each other, in the order in which they were started."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, UnknownName
from robotrials.stats.argument import FloatArray, IntArray, check_count, check_labels, check_values

Strata = ArrayLike | tuple[ArrayLike, ArrayLike]
"""One label a rollout, the same for both arms (pairs), or a pair of label arrays (of a, of b)."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Differences in the order of rounds; a round holds one block of each stratum. Scaled to [-1, 1]."""

    differences: FloatArray
    strata: int
    waiting_a: int
    waiting_b: int

    @property
    def rounds(self) -> int:
        return self.differences.size // self.strata


def pair_blocks(
    a: ArrayLike,
    b: ArrayLike,
    *,
    paired: bool,
    strata: Strata | None = None,
    tasks: Sequence[object] | None = None,
    score_range: tuple[float, float] = (0, 1),
    allocation: tuple[int, int] = (1, 1),
) -> Blocks:
    """The i-th block of a against the i-th of b in each stratum, in complete rounds over `tasks` (or the strata seen).

    Which rollouts meet depends only on their order, never on outcomes or durations: pairing by what has finished would
    favour a policy whose successes are quicker than its failures.
    """
    low, high = score_range
    arms = [_check_scores(name, x, score_range) for name, x in (('a', a), ('b', b))]
    if paired and (arms[0].size != arms[1].size or allocation != (1, 1)):
        raise InputError(
            f'paired arms need one a for each b, found {arms[0].size} and {arms[1].size} with allocation {allocation}'
        )
    sizes = [check_count('allocation', k, least=1) for k in allocation]
    codes, count = _strata_codes(strata, arms, tasks)
    queues = [
        [_block_means(arm[code == t], size) for t in range(count)]
        for arm, code, size in zip(arms, codes, sizes, strict=True)
    ]
    rounds = min(len(queue) for arm in queues for queue in arm)
    first, second = (np.array([queue[:rounds] for queue in arm]).reshape(count, rounds) for arm in queues)
    used = rounds * count
    differences = np.clip(((first - second) / (high - low)).T.ravel(), -1, 1)
    return Blocks(differences, count, arms[0].size - used * sizes[0], arms[1].size - used * sizes[1])


def block_counts(blocks: Blocks, at: IntArray) -> tuple[FloatArray, FloatArray]:
    """The distinct differences, and how often each was seen by each look."""
    values, codes = np.unique(blocks.differences, return_inverse=True)
    counts = np.empty((at.size, values.size))
    running = np.zeros(values.size)
    done = 0
    for i, rounds in enumerate(at):
        n = int(rounds) * blocks.strata
        running += np.bincount(codes[done:n], minlength=values.size)
        counts[i] = running
        done = n
    return values, counts


def check_range(score_range: tuple[float, float]) -> float:
    low, high = score_range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f'score_range must be two finite numbers in order, found {score_range}')
    return high - low


def _check_scores(name: str, scores: ArrayLike, score_range: tuple[float, float]) -> FloatArray:
    if np.size(scores) == 0:
        return np.zeros(0)
    array = check_values(name, scores).astype(np.float64)
    if array.ndim != 1:
        raise InputError(f'{name} must be one outcome a rollout (n,), found shape {array.shape}')
    bad = np.flatnonzero((array < score_range[0]) | (array > score_range[1]))
    if bad.size:
        raise InputError(f'{name}[{bad[0]}] is {array[bad[0]]}, outside score_range {score_range}; pass the true range')
    return array


def _strata_codes(
    strata: Strata | None, arms: list[FloatArray], tasks: Sequence[object] | None
) -> tuple[list[IntArray], int]:
    """Each rollout's stratum in both arms, and how many strata there are: the declared tasks, or those seen."""
    if strata is None:
        if tasks is not None:
            raise InputError('tasks are declared, so strata must give the task of each rollout')
        return [np.zeros(arm.size, dtype=np.int64) for arm in arms], 1
    labels: list[NDArray[Any]] = (
        [np.asarray(part) for part in strata] if isinstance(strata, tuple) else [np.asarray(strata)] * 2
    )
    if len(labels) != 2:
        raise InputError(f'strata must be one array, or a pair (of a, of b), found {len(labels)}')
    for name, label, arm in zip('ab', labels, arms, strict=True):
        if label.shape != arm.shape:
            raise InputError(f'strata must have one label for each of the {arm.size} rollouts of {name}')
    codes, distinct = check_labels('strata', np.concatenate(labels), n=sum(x.size for x in labels), of='rollouts')
    count = max(1, len(distinct))
    if tasks is not None:
        declared = {str(task): k for k, task in enumerate(tasks)}
        unknown = [str(label) for label in distinct if str(label) not in declared]
        if unknown:
            raise UnknownName('task', unknown[0], declared)
        codes = np.array([declared[str(label)] for label in distinct], dtype=np.int64)[codes]
        count = len(declared)
    return [codes[: arms[0].size], codes[arms[0].size :]], count


def _block_means(values: FloatArray, size: int) -> FloatArray:
    whole = values.size // size
    means: FloatArray = values[: whole * size].reshape(whole, size).mean(axis=1)
    return means
