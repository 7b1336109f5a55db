"""Sensitivity to a label, such as the side a camera stands on, with a balance check (PhAIL, Appendix G)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from robotrials.errors import InputError, UnknownName
from robotrials.measure.timing.cohort import Cohort
from robotrials.record import Episode, EventKind, Outcome
from robotrials.stats import Interval, resample_counts
from robotrials.value import dataclass

BALANCE_LIMIT = 0.08  # the paper calls a split within 8 points of even balanced


@dataclass(frozen=True, slots=True)
class LabelShare:
    """Items placed over items, among one policy's episodes with one value of the label."""

    value: str
    n_episodes: int
    n_placed: int
    n_items: int
    interval: Interval | None  # None where every resample gives the same share, which proves nothing

    @property
    def completion(self) -> float:
        return self.n_placed / self.n_items


@dataclass(frozen=True, slots=True)
class LabelSensitivity:
    """One policy's completion by a label's values; with two values, their difference."""

    policy: str
    label: str
    shares: tuple[LabelShare, ...]  # most complete first
    difference: float | None  # first minus second, when there are exactly two values
    difference_interval: Interval | None
    n_unlabelled: int

    @property
    def imbalance(self) -> float:
        """How far the largest share of episodes is from an even split."""
        counts = [s.n_episodes for s in self.shares]
        return max(counts) / sum(counts) - 1 / len(counts)

    @property
    def is_balanced(self) -> bool:
        return self.imbalance <= BALANCE_LIMIT


def label_reader(label: str) -> Callable[[Episode], str | None]:
    """A label's value by its key; 'a=b' says whether two agree ('same') or not ('opposite'), 'a*b' crosses them."""
    operator = next((sign for sign in '*=' if sign in label), '')
    if not operator:
        return lambda e: e.labels.get(label)
    first, _, second = label.partition(operator)

    def read(episode: Episode) -> str | None:
        value, other = episode.labels.get(first), episode.labels.get(second)
        if value is None or other is None:
            return None
        if operator == '*':
            return f'{value} x {other}'
        return 'same' if value == other else 'opposite'

    return read


def items_of(episode: Episode) -> tuple[int, int] | None:
    """Items placed and items; a host without items has one, done or not. None when the placed count is unknown."""
    timed = sum(e.count for e in episode.events if e.kind is EventKind.PLACEMENT)
    if episode.items is None and episode.items_placed is None and not timed:
        return int(episode.outcome is Outcome.SUCCESS), 1
    if episode.items is None:
        return None
    placed = timed if episode.items_placed is None else episode.items_placed
    if not placed and episode.outcome is Outcome.SUCCESS and episode.items == 1:
        placed = 1
    return placed, episode.items


def label_sensitivity(
    cohort: Cohort, *, label: str, rng: np.random.Generator, n_resamples: int = 2000, level: float = 0.95
) -> LabelSensitivity:
    """Completion by the label's values with episode-bootstrap intervals, and how evenly episodes are split."""
    read = label_reader(label)
    groups: dict[str, list[tuple[int, int]]] = {}
    unlabelled = 0
    for episode in cohort.valid:
        value, items = read(episode), items_of(episode)
        if value is None or items is None:
            unlabelled += 1
        else:
            groups.setdefault(value, []).append(items)
    if not groups:
        known = sorted({k for e in cohort.valid for k in e.labels})
        raise UnknownName(f'label of {cohort.policy} with counted items', label, known)
    draws = {v: _ratio_draws(rows, n_resamples, rng) for v, rows in sorted(groups.items())}
    shares = sorted((_share(v, groups[v], draws[v], level) for v in draws), key=lambda s: -s.completion)
    gap, gap_interval = None, None
    if len(shares) == 2:
        gap = shares[0].completion - shares[1].completion
        gap_interval = _percentile(draws[shares[0].value] - draws[shares[1].value], level)
    return LabelSensitivity(cohort.policy, label, tuple(shares), gap, gap_interval, unlabelled)


def _share(value: str, rows: Sequence[tuple[int, int]], draws: np.ndarray, level: float) -> LabelShare:
    placed, items = (sum(r[k] for r in rows) for k in (0, 1))
    if items == 0:
        raise InputError(f'label value {value!r}: its episodes have no items')
    return LabelShare(value, len(rows), placed, items, _percentile(draws, level))


def _ratio_draws(rows: Sequence[tuple[int, int]], n_resamples: int, rng: np.random.Generator) -> np.ndarray:
    counts = resample_counts(len(rows), n_resamples=n_resamples, rng=rng)
    totals = counts @ np.array(rows)
    with np.errstate(invalid='ignore', divide='ignore'):
        return np.asarray(totals[:, 0] / totals[:, 1], dtype=np.float64)


def _percentile(draws: np.ndarray, level: float) -> Interval | None:
    low, high = np.quantile(draws[np.isfinite(draws)], [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high)) if low < high else None


def sensitivity_table(
    by_policy: Mapping[str, Cohort], *, label: str, rng: np.random.Generator, n_resamples: int = 2000
) -> tuple[LabelSensitivity, ...]:
    """Every policy that carries the label."""
    carrying = check_label(by_policy, label)
    return tuple(label_sensitivity(c, label=label, rng=rng, n_resamples=n_resamples) for c in carrying)


def check_label(by_policy: Mapping[str, Cohort], label: str) -> list[Cohort]:
    """The cohorts with at least one episode that carries the label; none at all is an error with the near name."""
    read = label_reader(label)
    carrying = [c for c in by_policy.values() if any(read(e) is not None for e in c.valid)]
    if not carrying:
        raise UnknownName('label', label, sorted({k for c in by_policy.values() for e in c.valid for k in e.labels}))
    return carrying
