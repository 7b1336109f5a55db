"""Episodes as rows of a robustness analysis: policy, condition, severity, split, scene and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import NotEstimable, UnknownName
from robotrials.stats import Interval, cluster_bootstrap
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.measure.geometry import PlacementSummary, PlacementTrial
    from robotrials.record import Episode


NOMINAL = 'nominal'


@dataclass(frozen=True, slots=True)
class ConditionTrial:
    """One valid episode under one condition. `severity` is None where the record has none, 0 for the baseline."""

    policy: str
    condition: str
    severity: float | None
    placement: PlacementTrial
    repeat: int = 0
    parts: tuple[tuple[str, float], ...] = ()  # kind and severity of what a compound condition is made of

    @property
    def success(self) -> bool:
        return self.placement.success

    @property
    def scene(self) -> str:
        """The split and the start state: what pairs a trial with its baseline."""
        return f'{self.placement.split}/{self.placement.cluster}'


def condition_trials(episodes: Iterable[Episode], *, baseline: str = NOMINAL) -> list[ConditionTrial]:
    """The valid, non-reference episodes as rows; INVALID ones say nothing about a policy."""
    from robotrials.measure.geometry import placement_trial

    return [
        ConditionTrial(
            e.policy, e.condition, recorded_severity(e, baseline=baseline), placement_trial(e), e.repeat,
            recorded_parts(e),
        )
        for e in episodes if e.is_valid and not e.is_reference
    ]  # fmt: skip


def recorded_severity(episode: Episode, *, baseline: str = NOMINAL) -> float | None:
    """The severity in an episode's condition parameters; the largest of a compound's parts."""
    if episode.condition == baseline:
        return 0.0
    severities = [
        float(value)
        for name, value in episode.condition_parameters.items()
        if name.rsplit('.', 1)[-1] == 'severity' and isinstance(value, int | float)
    ]
    return max(severities) if severities else None


def recorded_parts(episode: Episode) -> tuple[tuple[str, float], ...]:
    """Kind and severity of the parts of a compound condition, by its parameters `kind.severity`; none of a single."""
    return tuple(
        (name.removesuffix('.severity'), float(value))
        for name, value in episode.condition_parameters.items()
        if name.endswith('.severity') and isinstance(value, int | float)
    )


def split_conditions(
    trials: Sequence[ConditionTrial], *, baseline: str = NOMINAL
) -> tuple[list[ConditionTrial], dict[str, list[ConditionTrial]]]:
    """The baseline's trials, and those of every other condition in order of appearance."""
    if not trials:
        raise NotEstimable('no valid episodes; a robustness analysis needs a baseline and at least one condition')
    names = list(dict.fromkeys(t.condition for t in trials))
    if baseline not in names:
        raise UnknownName('baseline condition in the store', baseline, names)
    return (
        [t for t in trials if t.condition == baseline],
        {name: [t for t in trials if t.condition == name] for name in names if name != baseline},
    )


def by_severity(trials: Sequence[ConditionTrial]) -> list[ConditionTrial]:
    """The trials with the rungs of a ladder as conditions of their own (`light at 0.5`): doses are not pooled."""
    rungs: dict[str, set[float | None]] = {}
    for trial in trials:
        rungs.setdefault(trial.condition, set()).add(trial.severity)
    return [
        replace(t, condition=f'{t.condition} at {t.severity:g}')
        if len(rungs[t.condition]) > 1 and t.severity is not None
        else t
        for t in trials
    ]


def conditions_by_severity(episodes: Iterable[Episode]) -> Callable[[Episode], str]:
    """The same for episodes: what the condition of one is called, with its severity where there are several."""
    rungs: dict[str, set[float | None]] = {}
    for episode in episodes:
        rungs.setdefault(episode.condition, set()).add(recorded_severity(episode))

    def named(episode: Episode) -> str:
        severity = recorded_severity(episode)
        if len(rungs[episode.condition]) < 2 or severity is None:
            return episode.condition
        return f'{episode.condition} at {severity:g}'

    return named


def policies_of(trials: Iterable[ConditionTrial]) -> list[str]:
    return list(dict.fromkeys(t.policy for t in trials))


# What conditions come to: RADAR's rows, and a drop from the baseline as a value.
# A drop is baseline minus altered, so a positive number is a loss. It is worked out where contrasts are.


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
    from robotrials.measure.geometry import summarize_placements

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

    A scene that both arms have is drawn for both at once. Without any spread there is no interval: resamples of equal
    values know nothing of what was not seen.
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
    return drawn.estimate, drawn.interval if drawn.interval.width > 0 else None
