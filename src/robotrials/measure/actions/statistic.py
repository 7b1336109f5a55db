"""What the training episodes say of the actions. These numbers may be shown to a model; the evaluated ones may not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from robotrials.errors import InputError
from robotrials.formats.dataset import RecordedEpisode
from robotrials.formats.space import FloatArray

RESERVOIR_ROWS = 200_000


@dataclass(frozen=True, slots=True, eq=False)
class ActionStatistics:
    """Minimum, maximum, mean, standard deviation, 1st and 99th percentile of each dimension, (D,) each.

    `episode_ids` are the episodes they were computed from. Percentiles come from a seeded sample of at most 200,000
    timesteps, the rest from all of them.
    """

    minimum: FloatArray
    maximum: FloatArray
    mean: FloatArray
    deviation: FloatArray
    q01: FloatArray
    q99: FloatArray
    n_timesteps: int
    episode_ids: frozenset[str]

    @property
    def size(self) -> int:
        return len(self.mean)

    def as_json(self) -> dict[str, Any]:
        names = ('minimum', 'maximum', 'mean', 'deviation', 'q01', 'q99')
        return {**{n: getattr(self, n).tolist() for n in names}, 'n_timesteps': self.n_timesteps,
                'n_episodes': len(self.episode_ids)}  # fmt: skip


def action_statistics(episodes: Iterable[RecordedEpisode], *, seed: int = 0) -> ActionStatistics:
    """Statistics of the actions of some episodes, in one pass; memory does not grow with their number."""
    rng = np.random.default_rng(seed)
    ids: set[str] = set()
    count, mean, squares = 0, np.zeros(0), np.zeros(0)
    low, high = np.zeros(0), np.zeros(0)
    kept: FloatArray = np.zeros((0, 0))
    for episode in episodes:
        actions = np.asarray(episode.actions, dtype=np.float64)
        if episode.episode_id in ids:
            raise InputError(f'{episode.episode_id} is twice among the training episodes')
        if not ids:
            size = actions.shape[1]
            mean, squares, kept = np.zeros(size), np.zeros(size), np.empty((0, size))
            low, high = np.full(size, np.inf), np.full(size, -np.inf)
        ids.add(episode.episode_id)
        total = count + len(actions)
        # Chan's pairwise update of mean and sum of squares.
        shift = actions.mean(axis=0) - mean
        squares = (
            squares + ((actions - actions.mean(axis=0)) ** 2).sum(axis=0) + shift**2 * count * len(actions) / total
        )
        mean = mean + shift * len(actions) / total
        low, high = np.minimum(low, actions.min(axis=0)), np.maximum(high, actions.max(axis=0))
        kept = _sample(kept, actions, seen=count, rng=rng)
        count = total
    if not ids:
        raise InputError('no training episodes, so no action statistics; give a split that has some')
    q01, q99 = np.quantile(kept, [0.01, 0.99], axis=0)
    return ActionStatistics(low, high, mean, np.sqrt(squares / count), q01, q99, count, frozenset(ids))


def _sample(kept: FloatArray, rows: FloatArray, *, seen: int, rng: np.random.Generator) -> FloatArray:
    """Reservoir sampling, a batch of rows at a time."""
    room = max(0, RESERVOIR_ROWS - len(kept))
    kept = np.concatenate([kept, rows[:room]]) if room else kept
    for number, row in enumerate(rows[room:], start=seen + room):
        place = int(rng.integers(number + 1))
        if place < RESERVOIR_ROWS:
            kept[place] = row
    return kept


def check_no_leak(statistics: ActionStatistics, evaluated: Iterable[str]) -> None:
    """Refuse statistics (or examples) that came from an episode that is to be evaluated."""
    leaked = sorted(statistics.episode_ids & set(evaluated))
    if leaked:
        raise InputError(
            f'{len(leaked)} evaluated episodes, such as {leaked[0]}, are among those the statistics came from; '
            'compute the statistics from the training split'
        )
