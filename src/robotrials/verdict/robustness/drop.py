"""What conditions come to: RADAR's rows, and a drop from the baseline as a value.

A drop is baseline minus altered, so a positive number is a loss. It is worked out where contrasts are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.measure.geometry import PlacementSummary, summarize_placements
from robotrials.stats import Interval, cluster_bootstrap
from robotrials.verdict.robustness.trial import ConditionTrial


@dataclass(frozen=True, slots=True)
class ConditionDrop:
    """What one condition costs one policy: the mean over tasks, so that another mix of tasks is no drop."""

    policy: str
    condition: str
    baseline_successes: int  # counts of all episodes, tasks pooled
    baseline_n: int
    successes: int
    n: int
    success_drop: float
    success_interval: Interval | None  # None where too few start states were run
    p_value: float | None
    p_value_holm: float | None
    method: str
    iou_drop: float | None  # of the expectation over splits; None where some IoU is not known
    iou_interval: Interval | None
    note: str = ''

    def is_resolved(self, alpha: float = 0.05) -> bool:
        """Whether the success rate changed, over all comparisons of the report."""
        return self.p_value_holm is not None and self.p_value_holm <= alpha


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """One row of RADAR's tables."""

    policy: str
    condition: str
    summary: PlacementSummary


def condition_rows(
    trials: Sequence[ConditionTrial], *, n_resamples: int, rng: np.random.Generator, level: float = 0.95
) -> list[ConditionRow]:
    """A summary for every policy under every condition, in order of appearance."""
    keys = list(dict.fromkeys((t.policy, t.condition) for t in trials))
    rows = []
    for policy, condition in keys:
        cell = [t.placement for t in trials if (t.policy, t.condition) == (policy, condition)]
        summary = summarize_placements(cell, n_resamples=n_resamples, rng=rng, level=level)
        rows.append(ConditionRow(policy, condition, summary))
    return rows


def _difference_of_means(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Values (n, 2): the outcome and 1 for the baseline, 0 for the altered arm."""
    outcome, is_first = values[:, 0], values[:, 1] > 0
    arms = [(weights[:, arm], outcome[arm]) for arm in (is_first, ~is_first)]
    means = [np.einsum('bn,n->b', weight, values) / weight.sum(axis=1) for weight, values in arms]
    return np.asarray(means[0] - means[1])


def iou_drop(
    first: Sequence[ConditionTrial],
    second: Sequence[ConditionTrial],
    *,
    n_resamples: int,
    rng: np.random.Generator,
    level: float,
) -> tuple[float | None, Interval | None]:
    """The drop of the expectation of IoU over the splits that both have; scenes are drawn within splits.

    A scene that both arms have is drawn for both at once.
    """
    splits = sorted({t.placement.split for t in first} & {t.placement.split for t in second})
    rows = [(t, arm) for arm, side in ((1.0, first), (0.0, second)) for t in side if t.placement.split in splits]
    if not splits or any(t.success and t.placement.iou is None for t, _ in rows):
        return None, None
    values = np.array(
        [[t.placement.iou or 0.0 if t.success else 0.0, arm, splits.index(t.placement.split)] for t, arm in rows]
    )
    shared = {t.scene for t in first} & {t.scene for t in second}
    clusters = [t.scene if t.scene in shared else f'{arm}/{t.scene}' for t, arm in rows]
    strata = [t.placement.split if t.scene in shared else f'{arm}/{t.placement.split}' for t, arm in rows]

    def statistic(v: np.ndarray, weights: np.ndarray) -> np.ndarray:
        parts = [_difference_of_means(v[v[:, 2] == k], weights[:, v[:, 2] == k]) for k in range(len(splits))]
        return np.asarray(np.mean(parts, axis=0))

    drawn = cluster_bootstrap(
        values, clusters, statistic=statistic, n_resamples=n_resamples, rng=rng, level=level, strata=strata
    )
    return drawn.estimate, drawn.interval
