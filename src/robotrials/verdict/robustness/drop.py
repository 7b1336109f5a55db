"""Drops from the baseline: how much each condition costs each policy, with intervals and Holm's correction.

A drop is baseline minus altered, so a positive number is a loss.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from robotrials.errors import NotEstimable
from robotrials.measure.geometry import PlacementSummary, summarize_placements
from robotrials.stats import (
    Interval,
    barnard,
    cluster_bootstrap,
    exact_mcnemar,
    holm,
    newcombe,
    newcombe_paired,
    sign_flip,
)  # fmt: skip
from robotrials.verdict.robustness.trial import NOMINAL, ConditionTrial, by_severity, policies_of, split_conditions


class DropMethod(enum.StrEnum):
    """How the interval of a success drop was made."""

    PAIRED = 'paired Newcombe, exact McNemar'  # the same scenes once in both
    INDEPENDENT = 'Newcombe, Barnard'  # other scenes
    CLUSTERED = 'cluster bootstrap, sign flips'  # the same scenes, some of them several times


@dataclass(frozen=True, slots=True)
class ConditionDrop:
    """What one condition costs one policy."""

    policy: str
    condition: str
    baseline_successes: int
    baseline_n: int
    successes: int
    n: int
    success_drop: float
    success_interval: Interval
    p_value: float
    p_value_holm: float
    method: DropMethod
    iou_drop: float | None  # of the expectation over splits; None where some IoU is not known
    iou_interval: Interval | None

    def is_resolved(self, alpha: float = 0.05) -> bool:
        """Whether the success rate changed, over all comparisons of the report."""
        return self.p_value_holm <= alpha


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


def drops_from_baseline(
    trials: Sequence[ConditionTrial],
    *,
    baseline: str = NOMINAL,
    n_resamples: int,
    rng: np.random.Generator,
    level: float = 0.95,
) -> list[ConditionDrop]:
    """The drop of every policy under every condition, p-values adjusted by Holm over all of them.

    Scenes that both conditions share once each are paired; scenes run several times are drawn as clusters; other scenes
    are independent samples. The rungs of a ladder are conditions of their own.
    """
    before, altered = split_conditions(by_severity(trials), baseline=baseline)
    drops = []
    for policy in policies_of(trials):
        first = [t for t in before if t.policy == policy]
        for condition, rows in altered.items():
            second = [t for t in rows if t.policy == policy]
            if not first or not second:
                continue
            drops.append(_drop(policy, condition, first, second, n_resamples=n_resamples, rng=rng, level=level))
    if not drops:
        raise NotEstimable(f'no policy has both {baseline!r} and another condition; nothing to compare')
    adjusted = holm([d.p_value for d in drops])
    return [replace(d, p_value_holm=float(p)) for d, p in zip(drops, adjusted, strict=True)]


def _drop(
    policy: str,
    condition: str,
    first: Sequence[ConditionTrial],
    second: Sequence[ConditionTrial],
    *,
    n_resamples: int,
    rng: np.random.Generator,
    level: float,
) -> ConditionDrop:
    method = pairing(first, second)
    x1, n1, x2, n2 = sum(t.success for t in first), len(first), sum(t.success for t in second), len(second)
    if method is DropMethod.PAIRED:
        after = {t.scene: t.success for t in second}
        cells = Counter((t.success, after[t.scene]) for t in first)
        both, lost, gained, neither = (cells[k] for k in ((True, True), (True, False), (False, True), (False, False)))
        interval = newcombe_paired(both, lost, gained, neither, level)
        p_value = exact_mcnemar(lost, gained).p_value
    elif method is DropMethod.INDEPENDENT:
        interval = newcombe(x1, n1, x2, n2, level)
        p_value = barnard(x1, n1, x2, n2).p_value
    else:
        interval, p_value = _clustered(first, second, n_resamples=n_resamples, rng=rng, level=level)
    iou, iou_interval = _iou_drop(first, second, n_resamples=n_resamples, rng=rng, level=level)
    return ConditionDrop(
        policy, condition, x1, n1, x2, n2, x1 / n1 - x2 / n2, interval, p_value, p_value, method, iou, iou_interval
    )


def pairing(first: Sequence[ConditionTrial], second: Sequence[ConditionTrial]) -> DropMethod:
    """Whether two sets of trials share their scenes, once each or several times."""
    a, b = Counter(t.scene for t in first), Counter(t.scene for t in second)
    if a.keys() == b.keys():
        is_single = max(a.values()) == 1 == max(b.values())
        return DropMethod.PAIRED if is_single else DropMethod.CLUSTERED
    if a.keys() & b.keys() or max(a.values()) > 1 or max(b.values()) > 1:
        return DropMethod.CLUSTERED
    return DropMethod.INDEPENDENT


def _difference_of_means(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Values (n, 2): the outcome and 1 for the baseline, 0 for the altered arm."""
    outcome, is_first = values[:, 0], values[:, 1] > 0
    arms = [(weights[:, arm], outcome[arm]) for arm in (is_first, ~is_first)]
    means = [np.einsum('bn,n->b', weight, values) / weight.sum(axis=1) for weight, values in arms]
    return np.asarray(means[0] - means[1])


def _clustered(
    first: Sequence[ConditionTrial],
    second: Sequence[ConditionTrial],
    *,
    n_resamples: int,
    rng: np.random.Generator,
    level: float,
) -> tuple[Interval, float]:
    rows = [*first, *second]
    values = np.array([[float(t.success), float(i < len(first))] for i, t in enumerate(rows)])
    # A scene that only one arm has is drawn within that arm, so that no resample is without one.
    shared = {t.scene for t in first} & {t.scene for t in second}
    strata = ['shared' if t.scene in shared else f'arm {i < len(first)}' for i, t in enumerate(rows)]
    clusters = [t.scene if t.scene in shared else f'{i < len(first)}/{t.scene}' for i, t in enumerate(rows)]
    drawn = cluster_bootstrap(
        values, clusters, statistic=_difference_of_means, n_resamples=n_resamples, rng=rng, level=level, strata=strata
    )
    if shared != {t.scene for t in rows}:
        below = float(np.mean(drawn.draws <= 0) + 1 / n_resamples), float(np.mean(drawn.draws >= 0) + 1 / n_resamples)
        return drawn.interval, min(1.0, 2 * min(below))
    differences = [
        np.mean([t.success for t in first if t.scene == s]) - np.mean([t.success for t in second if t.scene == s])
        for s in sorted(shared)
    ]
    return drawn.interval, sign_flip(np.array(differences, dtype=float), rng=rng).p_value


def _iou_drop(
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
