"""How well detected placements agree with known ones: precision, recall, timing, and how often the counts agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.errors import InputError
from robotrials.measure.annotate.telemetry import FloatArray
from robotrials.record import Episode, EventKind
from robotrials.stats import Interval, clustered_wilson, wilson

TOLERANCE_S = 1.0  # further apart, two marks are of different placements


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """The marks of one episode set against each other, one to one."""

    n_true: int
    n_found: int
    errors_s: FloatArray  # (m,) found minus true, of the pairs

    @property
    def counts_agree(self) -> bool:
        return self.n_true == self.n_found


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Over episodes. A share of nothing is None; intervals take episodes, not marks, as independent."""

    n_episodes: int
    n_true: int
    n_found: int
    n_matched: int
    n_counts_agree: int
    bias_s: float | None  # median of found minus true
    error_s: float | None  # median of its size
    error_90_s: float | None  # which nine in ten do not pass
    precision: Interval | None
    recall: Interval | None

    @property
    def agreement(self) -> Interval | None:
        return wilson(self.n_counts_agree, self.n_episodes) if self.n_episodes else None

    @property
    def f1(self) -> float:
        total = self.n_true + self.n_found
        return 2 * self.n_matched / total if total else 1.0


def placement_times(episode: Episode) -> FloatArray:
    """The times of an episode's placements, one an item."""
    times = [e.t_s for e in episode.events if e.kind is EventKind.PLACEMENT for _ in range(e.count)]
    return np.array(times, dtype=np.float64)


def match_marks(true_s: Sequence[float] | FloatArray, found_s: Sequence[float] | FloatArray, *,
                tolerance_s: float = TOLERANCE_S) -> Matched:  # fmt: skip
    """Pair marks so that as many as possible lie within the tolerance, and then as near as possible."""
    from scipy.optimize import linear_sum_assignment

    if tolerance_s <= 0:
        raise InputError(f'tolerance_s is {tolerance_s}, wanted > 0')
    true, found = np.asarray(true_s, dtype=np.float64), np.asarray(found_s, dtype=np.float64)
    if not len(true) or not len(found):
        return Matched(len(true), len(found), np.empty(0))
    apart = np.abs(true[:, None] - found[None, :])
    # A pair beyond the tolerance costs more than all pairs within it together.
    rows, columns = linear_sum_assignment(np.where(apart <= tolerance_s, apart, tolerance_s * (apart.size + 1)))
    is_pair = apart[rows, columns] <= tolerance_s
    return Matched(len(true), len(found), (found[columns] - true[rows])[is_pair])


def assess(episodes: Sequence[Matched]) -> Assessment:
    """Sum the matches of episodes."""
    matched = [len(m.errors_s) for m in episodes]
    true, found = [m.n_true for m in episodes], [m.n_found for m in episodes]
    errors = np.concatenate([np.empty(0), *(m.errors_s for m in episodes)])
    size = np.abs(errors)
    return Assessment(
        n_episodes=len(episodes),
        n_true=sum(true),
        n_found=sum(found),
        n_matched=len(errors),
        n_counts_agree=sum(m.counts_agree for m in episodes),
        bias_s=float(np.median(errors)) if len(errors) else None,
        error_s=float(np.median(size)) if len(errors) else None,
        error_90_s=float(np.quantile(size, 0.9)) if len(errors) else None,
        precision=clustered_wilson(matched, found) if sum(found) else None,
        recall=clustered_wilson(matched, true) if sum(true) else None,
    )
