"""The robustness part of a report: what the conditions of a store cost each policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.record.episode import conditions_by_severity
from robotrials.stats.dominance import adjusted_p_values
from robotrials.value import dataclass
from robotrials.verdict.analysis.arm import two_sides
from robotrials.verdict.analysis.contrast import contrast
from robotrials.verdict.analysis.selection import CHANGED, Absent, or_absent, unchanged_world
from robotrials.verdict.planning.analysis_plan import EndpointName
from robotrials.verdict.robustness import (
    ConditionDrop,
    by_severity,
    compound_effects,
    condition_rows,
    condition_trials,
    dose_responses,
    iou_drop,
    spatial_sensitivities,
    start_spreads,
    swap_tests,
    told_spread,
)
from robotrials.verdict.robustness.trial import split_conditions

if TYPE_CHECKING:
    from robotrials.record import Episode
    from robotrials.verdict.analysis.contrast import Contrast
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan
    from robotrials.verdict.robustness import (
        CompoundEffect,
        ConditionRow,
        DoseResponse,
        SpatialSensitivity,
        StartPlace,
        StartSpread,
        StartTrial,
        SwapResult,
        SwapTrial,
    )


# Drops from the baseline condition, each the contrast of one policy with itself, task by task.


def condition_drops(
    episodes: Sequence[Episode], plan: AnalysisPlan, *, rng: np.random.Generator,
    incomparable: dict[str, str] | None = None,
) -> list[ConditionDrop]:  # fmt: skip
    """The drop of every policy under every condition, p-values adjusted by Holm over all of them.

    The estimand is the mean over tasks of baseline minus altered. Starts that both conditions share are compared with
    themselves, the others with each other. The rungs of a ladder are conditions of their own. What cannot be compared
    (no task was run under both) has no drop; `incomparable` is told why.
    """
    valid = [e for e in episodes if e.is_valid and not e.is_reference]
    split_conditions(condition_trials(valid, baseline=plan.baseline), baseline=plan.baseline)  # refuses what it must
    named = conditions_by_severity(valid)
    altered = dict.fromkeys(named(e) for e in valid if e.condition != plan.baseline)
    drops: list[ConditionDrop] = []
    reasons: dict[str, str] = {}
    for policy in dict.fromkeys(e.policy for e in valid):
        own = [e for e in valid if e.policy == policy]
        first = [e for e in own if e.condition == plan.baseline]
        for condition in altered:
            second = [e for e in own if e.condition != plan.baseline and named(e) == condition]
            if not (first and second):
                continue
            try:
                drops.append(_test_drop(policy, condition, first, second, plan, rng))
            except (InputError, NotEstimable) as error:
                reasons[f'{policy} under {condition}'] = str(error)
    if incomparable is not None:
        incomparable |= reasons
    if not drops:
        why = next(iter(reasons.values()), f'no policy has both {plan.baseline!r} and another condition')
        raise NotEstimable(f'{why}; nothing to compare')
    adjusted = adjusted_p_values([d.p_value for d in drops], 'holm')
    return [replace(d, p_value_holm=p) for d, p in zip(drops, adjusted, strict=True)]


def condition_contrast(
    first: Sequence[Episode], second: Sequence[Episode], plan: AnalysisPlan, *, names: tuple[str, str]
) -> Contrast:
    """Success of one policy under two conditions: the condition is what differs, so starts and cells go without it."""
    sides = [[e.replace(condition=plan.baseline, condition_parameters={}) for e in side] for side in (first, second)]
    arms = two_sides(sides[0], sides[1], plan, names=names, is_condition_cell=False)
    return contrast(*arms, endpoint=EndpointName.SUCCESS, plan=plan)


def _test_drop(
    policy: str, condition: str, first: Sequence[Episode], second: Sequence[Episode], plan: AnalysisPlan,
    rng: np.random.Generator,
) -> ConditionDrop:  # fmt: skip
    counts = [(sum(e.is_success for e in side), len(side)) for side in (first, second)]
    trials = [condition_trials(side, baseline=plan.baseline) for side in (first, second)]
    iou, iou_interval = iou_drop(*trials, n_resamples=plan.resamples, rng=rng, level=plan.level)
    effect = condition_contrast(first, second, plan, names=(plan.baseline, condition))
    return ConditionDrop(
        policy, condition, *counts[0], *counts[1], effect.estimate, effect.interval, effect.p_value, None,
        effect.test, iou, iou_interval,
        '; '.join(filter(None, (effect.withheld, effect.note, *(out.why for out in effect.left_out)))),
    )  # fmt: skip


R = TypeVar('R')


@dataclass(frozen=True, slots=True)
class RobustnessPart:
    """Drops and what else the conditions allow; each is absent with its reason where they do not."""

    baseline: str
    conditions: tuple[str, ...]
    rows: tuple[ConditionRow, ...]
    drops: tuple[ConditionDrop, ...] | Absent
    doses: tuple[DoseResponse, ...] | Absent
    compound: tuple[CompoundEffect, ...] | Absent
    swap: tuple[SwapResult, ...] | Absent
    spatial: tuple[SpatialSensitivity, ...] | Absent
    starts: tuple[StartSpread, ...] | Absent
    incomparable: Mapping[str, str] = field(default_factory=dict)  # policy and condition -> why there is no drop


def kept_classes() -> tuple[type, ...]:
    """What a part is built of, for whoever keeps one."""
    from robotrials.measure.geometry.score import PlacementSummary, SplitSummary
    from robotrials.stats import Estimate, Interval
    from robotrials.verdict.robustness import dose, trial

    return (
        RobustnessPart, Absent, Interval, Estimate, PlacementSummary, SplitSummary, dose.Dose, dose.DoseResponse,
        dose.CompoundVerdict, dose.CompoundEffect, trial.ConditionRow, trial.ConditionDrop, trial.SpatialSensitivity,
        trial.StartSpread, trial.Habit, trial.HabitShare, trial.SwapResult, trial.SwapVerdict,
    )  # fmt: skip


def robustness_part(
    episodes: Sequence[Episode], plan: AnalysisPlan, *, stream: Callable[..., np.random.Generator],
    swaps: Sequence[SwapTrial] = (), starts: Sequence[StartTrial] = (), places: Sequence[StartPlace] = (),
) -> RobustnessPart | Absent:  # fmt: skip
    """All of a robustness analysis that these episodes can give; absent when they know one condition and no starts."""
    conditions = tuple(dict.fromkeys(e.condition for e in episodes if e.is_valid))
    baseline, n = plan.baseline, plan.resamples
    swap = (
        _or_absent(lambda: swap_tests(swaps, n_resamples=n, rng=stream('swap')))
        if swaps
        else Absent('no scene was run under two instructions')
    )
    spatial = (
        _or_absent(lambda: spatial_sensitivities(starts, n_resamples=n, rng=stream('starts'), level=plan.level))
        if starts
        else Absent('no start position is recorded')
    )
    if not conditions or (len(conditions) < 2 and isinstance(swap, Absent) and isinstance(spatial, Absent)):
        return unchanged_world(conditions)
    level = plan.level
    trials = condition_trials(episodes, baseline=baseline)
    spreads = start_spreads(places, baseline=baseline)
    lonely = Absent('all episodes were run under one condition', CHANGED) if len(conditions) < 2 else None
    aside: dict[str, str] = {}
    return RobustnessPart(
        baseline=baseline, conditions=conditions,
        rows=tuple(
            condition_rows(by_severity(trials), n_resamples=n, rng=stream('conditions'), level=level) if trials else ()
        ),
        drops=lonely or _or_absent(
            lambda: [
                _with_starts(d, spreads)
                for d in condition_drops(episodes, plan, rng=stream('drops'), incomparable=aside)
            ]
        ),
        doses=lonely or _or_absent(
            lambda: dose_responses(trials, baseline=baseline, level=level),
            empty='no condition was run at two severities',
        ),
        compound=lonely or _or_absent(
            lambda: compound_effects(trials, compound=plan.compound, baseline=baseline, level=level)
        ),
        swap=swap, spatial=spatial,
        starts=lonely or tuple(spreads) or Absent('no trajectory shows where the target or the arm started'),
        incomparable=aside,
    )  # fmt: skip


def _with_starts(drop: ConditionDrop, spreads: Sequence[StartSpread]) -> ConditionDrop:
    """A drop with what its change of start states amounts to."""
    return replace(drop, note='; '.join(filter(None, (drop.note, told_spread(spreads, drop.condition)))))


def _or_absent(compute: Callable[[], Sequence[R]], *, empty: str = 'nothing to compare') -> tuple[R, ...] | Absent:
    rows = or_absent(lambda: tuple(compute()))
    return rows or Absent(empty)
