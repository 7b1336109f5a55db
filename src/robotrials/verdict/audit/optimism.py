"""What choosing a checkpoint on the test set adds to its score.

The best of several checkpoints scores higher than any of them deserves, even where all are the same. Two honest
numbers stand beside it: what the choice alone would add if the checkpoints did not differ (their labels are exchanged
within each start state), and the score of the same choice made on one half of the start states and counted on the
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError

FloatArray = NDArray[np.float64]
BATCH_ENTRIES = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOptimism:
    """Mean scores; `n_checkpoints` were compared on `n_starts` start states that all of them met."""

    best: float
    final: float
    cross_fitted: float  # chosen on half of the start states, counted on the other half; mean over random halves
    gain_by_chance: float  # how far the best stands above the mean of all, expected if they did not differ
    gain: float  # how far it does
    p_value: float  # the chance of such a gain if they did not differ
    n_checkpoints: int
    n_starts: int

    @property
    def over_final(self) -> float:
        """Best minus final: what Table 2 shows."""
        return self.best - self.final

    @property
    def estimate(self) -> float:
        """Best minus the cross-fitted score: how much of the best score is owed to the choice."""
        return self.best - self.cross_fitted


def selection_optimism(
    totals: FloatArray,
    sizes: FloatArray,
    tasks: Sequence[str],
    *,
    rng: np.random.Generator,
    n_resamples: int = 2_000,
) -> SelectionOptimism:
    """From `totals` (checkpoints, starts), in training order, the last one final; `sizes` (starts,) are episodes each.

    Halves are drawn within tasks. Of equal checkpoints the latest is chosen, so that nothing is gained by a tie.
    """
    count, starts = totals.shape
    if count < 2 or starts < 2:
        raise InputError(f'{count} checkpoints on {starts} start states; wanted at least two of each to choose among')
    episodes = float(sizes.sum())
    codes = np.unique(np.asarray(tasks), return_inverse=True)[1]
    means = totals.sum(axis=1) / episodes
    gain = float(means.max() - means.mean())
    by_chance = _exchanged_gains(totals, episodes, rng, n_resamples)
    return SelectionOptimism(
        best=float(means.max()),
        final=float(means[-1]),
        cross_fitted=_cross_fitted(totals, sizes, codes, rng, n_resamples),
        gain_by_chance=float(by_chance.mean()),
        gain=gain,
        p_value=float((1 + (by_chance >= gain - 1e-12).sum()) / (1 + n_resamples)),
        n_checkpoints=count,
        n_starts=starts,
    )  # fmt: skip


def latest_best(means: FloatArray) -> int:
    """The place of the highest mean; of equal ones the last."""
    return int(len(means) - 1 - np.argmax(means[::-1] >= means.max() - 1e-12))


def _exchanged_gains(totals: FloatArray, episodes: float, rng: np.random.Generator, n_resamples: int) -> FloatArray:
    """Best minus mean with the checkpoints' labels exchanged within each start state, (n_resamples,)."""
    count, starts = totals.shape
    gains = []
    left = n_resamples
    while left:
        batch = min(left, max(1, BATCH_ENTRIES // totals.size))
        order = np.argsort(rng.random((batch, count, starts)), axis=1)
        means = np.take_along_axis(np.broadcast_to(totals, order.shape), order, axis=1).sum(axis=2) / episodes
        gains.append(means.max(axis=1) - means.mean(axis=1))
        left -= batch
    return np.concatenate(gains)


def _cross_fitted(
    totals: FloatArray, sizes: FloatArray, tasks: NDArray[np.int64], rng: np.random.Generator, n_resamples: int
) -> float:
    members = [np.flatnonzero(tasks == task) for task in range(int(tasks.max()) + 1)]
    scores = np.empty(n_resamples)
    for draw in range(n_resamples):
        first = np.zeros(totals.shape[1], dtype=bool)
        for ids in members:
            # an odd start goes to either half by chance, so that tasks of one start state are not all in one half
            half = (len(ids) + int(rng.integers(2))) // 2
            first[rng.permutation(ids)[:half]] = True
        scores[draw] = _swapped(totals, sizes, first)
    return float(scores.mean())


def _swapped(totals: FloatArray, sizes: FloatArray, first: NDArray[np.bool_]) -> float:
    """The score of choosing on either half and counting on the other."""
    if first.all() or not first.any():
        first = np.arange(len(first)) % 2 == 0
    counted = 0.0
    for chosen_on, counted_on in ((first, ~first), (~first, first)):
        means = totals[:, chosen_on].sum(axis=1) / sizes[chosen_on].sum()
        counted += float(totals[latest_best(means), counted_on].sum())
    return counted / float(sizes.sum())
