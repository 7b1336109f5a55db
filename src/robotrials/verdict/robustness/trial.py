"""Episodes as rows of a robustness analysis: policy, condition, severity, split, scene and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from robotrials.errors import NotEstimable, UnknownName
from robotrials.measure.geometry import placement_trial

if TYPE_CHECKING:
    from robotrials.measure.geometry import PlacementTrial
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
    return [
        ConditionTrial(
            e.policy,
            e.condition,
            recorded_severity(e, baseline=baseline),
            placement_trial(e),
            e.repeat,
            recorded_parts(e),
        )
        for e in episodes
        if e.is_valid and not e.is_reference
    ]


def recorded_severity(episode: Episode, *, baseline: str = NOMINAL) -> float | None:
    """The severity in an episode's condition parameters; the largest of a compound's parts."""
    if episode.condition == baseline:
        return 0.0
    found = [
        float(value)
        for name, value in episode.condition_parameters.items()
        if name.rsplit('.', 1)[-1] == 'severity' and isinstance(value, int | float)
    ]
    return max(found) if found else None


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
