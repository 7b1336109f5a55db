"""Summaries that merge: counts and times of every cell, from a stream of episodes, in memory that does not grow.

The summary of two sets of episodes is the sum of theirs, so stores of any size are summed up store by store, on as many
machines as wanted, and the order does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, StoreError
from robotrials.record.episode import Episode, Outcome
from robotrials.record.select import Where
from robotrials.record.store import read_store

SHORTEST_S = 1e-3
RATIO = 1.02  # of neighbouring edges: a time read off the histogram is within 2 %
N_BINS = 1200  # up to more than 1e7 s
K = TypeVar('K')
CellKey = tuple[str, str, str, str]  # policy, task, stratum, condition


@dataclass(slots=True)
class CellSummary:
    """One cell: how its episodes ended, and when those that succeeded did. Sums are exact, so merging is too."""

    outcomes: dict[Outcome, int] = field(default_factory=dict)
    n_timed: int = 0  # successes that have a duration
    total_s: Fraction = Fraction(0)  # of these
    bins: dict[int, int] = field(default_factory=dict)  # durations of these, by `_bin`

    def add(self, episode: Episode) -> None:
        self.outcomes[episode.outcome] = self.outcomes.get(episode.outcome, 0) + 1
        if episode.outcome is Outcome.SUCCESS and episode.duration_s is not None:
            self.n_timed += 1
            self.total_s += Fraction(episode.duration_s)
            place = _bin(episode.duration_s)
            self.bins[place] = self.bins.get(place, 0) + 1

    def merge(self, other: CellSummary) -> CellSummary:
        """The summary of both sets of episodes."""
        return CellSummary(
            _added(self.outcomes, other.outcomes),
            self.n_timed + other.n_timed,
            self.total_s + other.total_s,
            _added(self.bins, other.bins),
        )

    @property
    def n_valid(self) -> int:
        return sum(n for outcome, n in self.outcomes.items() if outcome is not Outcome.INVALID)

    @property
    def n_success(self) -> int:
        return self.outcomes.get(Outcome.SUCCESS, 0)

    @property
    def n_invalid(self) -> int:
        return self.outcomes.get(Outcome.INVALID, 0)

    @property
    def mean_success_s(self) -> float | None:
        """Mean duration of the episodes that succeeded; None without any."""
        return float(self.total_s / self.n_timed) if self.n_timed else None

    def success_quantile_s(self, level: float) -> float | None:
        """The time by which this share of the successes had come, within 2 %; None without any."""
        if not 0 < level <= 1:
            raise InputError(f'level is {level}, wanted above 0 and up to 1')
        wanted, seen = math.ceil(level * self.n_timed), 0
        for place in sorted(self.bins):
            seen += self.bins[place]
            if seen >= wanted:
                return SHORTEST_S * RATIO**place
        return None


def _bin(duration_s: float) -> int:
    """The first edge SHORTEST_S * RATIO ** n that is not below the duration."""
    if duration_s <= SHORTEST_S:
        return 0
    return min(N_BINS, math.ceil(math.log(duration_s / SHORTEST_S) / math.log(RATIO) - 1e-9))


def _added(a: Mapping[K, int], b: Mapping[K, int]) -> dict[K, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}}


def summarize_episodes(episodes: Iterable[Episode]) -> dict[CellKey, CellSummary]:
    """Every cell of a stream of counted episodes."""
    cells: dict[CellKey, CellSummary] = {}
    for episode in episodes:
        key = (episode.policy, episode.task, episode.stratum, episode.condition)
        cells.setdefault(key, CellSummary()).add(episode)
    return cells


def merge_summaries(a: Mapping[CellKey, CellSummary], b: Mapping[CellKey, CellSummary]) -> dict[CellKey, CellSummary]:
    """The cells of both; neither is changed."""
    return {key: a.get(key, CellSummary()).merge(b.get(key, CellSummary())) for key in {**a, **b}}


def summarize_stores(paths: Iterable[Path | str], *, where: Where | None = None) -> dict[CellKey, CellSummary]:
    """Every cell over several stores, read one after the other; an episode that stands in two of them is refused.

    Besides the summary, memory holds 8 bytes for each episode, to see that.
    """
    total: dict[CellKey, CellSummary] = {}
    seen: NDArray[np.uint64] = np.zeros(0, np.uint64)
    for path in paths:
        store = read_store(path)
        ids: list[NDArray[np.uint64]] = []
        total = merge_summaries(total, summarize_episodes(_noting(store.episodes(where=where, events=False), ids)))
        own = np.concatenate(ids) if ids else np.zeros(0, np.uint64)
        if len(np.intersect1d(seen, own)):
            raise StoreError(f'{store.path}: has episodes that another of these stores has; merge them instead')
        seen = np.concatenate([seen, own])
    return total


def _noting(episodes: Iterable[Episode], ids: list[NDArray[np.uint64]], at_once: int = 4096) -> Iterator[Episode]:
    """The same episodes; a 64-bit hash of each id is kept."""
    batch: list[int] = []
    for episode in episodes:
        batch.append(hash_of(episode.episode_id))
        if len(batch) == at_once:
            ids.append(np.array(batch, np.uint64))
            batch.clear()
        yield episode
    ids.append(np.array(batch, np.uint64))


def hash_of(episode_id: str) -> int:
    """64 bits of an id; ids are mostly hexadecimal digits of a hash already."""
    try:
        return int(episode_id[:16], 16)
    except ValueError:
        import hashlib

        return int.from_bytes(hashlib.sha256(episode_id.encode()).digest()[:8], 'big')
