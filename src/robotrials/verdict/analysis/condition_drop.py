"""Drops from the baseline condition, each the contrast of one policy with itself, task by task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.stats.dominance import adjusted_p_values
from robotrials.verdict.analysis.contrast import contrast
from robotrials.verdict.analysis.side import two_sides
from robotrials.verdict.planning.analysis_plan import EndpointName
from robotrials.verdict.robustness import ConditionDrop, condition_trials, conditions_by_severity, iou_drop
from robotrials.verdict.robustness.trial import split_conditions

if TYPE_CHECKING:
    from robotrials.record import Episode
    from robotrials.verdict.analysis.contrast import Contrast
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan


def condition_drops(
    episodes: Sequence[Episode], plan: AnalysisPlan, *, rng: np.random.Generator
) -> list[ConditionDrop]:
    """The drop of every policy under every condition, p-values adjusted by Holm over all of them.

    The estimand is the mean over tasks of baseline minus altered. Starts that both conditions share are compared with
    themselves, the others with each other. The rungs of a ladder are conditions of their own.
    """
    valid = [e for e in episodes if e.is_valid and not e.is_reference]
    split_conditions(condition_trials(valid, baseline=plan.baseline), baseline=plan.baseline)  # refuses what it must
    named = conditions_by_severity(valid)
    altered = dict.fromkeys(named(e) for e in valid if e.condition != plan.baseline)
    drops = []
    for policy in dict.fromkeys(e.policy for e in valid):
        own = [e for e in valid if e.policy == policy]
        first = [e for e in own if e.condition == plan.baseline]
        for condition in altered:
            second = [e for e in own if e.condition != plan.baseline and named(e) == condition]
            if first and second:
                drops.append(_drop(policy, condition, first, second, plan, rng))
    if not drops:
        raise NotEstimable(f'no policy has both {plan.baseline!r} and another condition; nothing to compare')
    adjusted = adjusted_p_values([d.p_value for d in drops], 'holm')
    return [replace(d, p_value_holm=p) for d, p in zip(drops, adjusted, strict=True)]


def condition_contrast(
    first: Sequence[Episode], second: Sequence[Episode], plan: AnalysisPlan, *, names: tuple[str, str]
) -> Contrast:
    """Success of one policy under two conditions: the condition is what differs, so starts and cells go without it."""
    sides = [[e.replace(condition=plan.baseline, condition_parameters={}) for e in side] for side in (first, second)]
    arms = two_sides(sides[0], sides[1], plan, names=names, is_condition_cell=False)
    return contrast(*arms, endpoint=EndpointName.SUCCESS, plan=plan)


def _drop(
    policy: str, condition: str, first: Sequence[Episode], second: Sequence[Episode], plan: AnalysisPlan,
    rng: np.random.Generator,
) -> ConditionDrop:  # fmt: skip
    counts = [(sum(e.is_success for e in side), len(side)) for side in (first, second)]
    trials = [condition_trials(side, baseline=plan.baseline) for side in (first, second)]
    iou, iou_interval = iou_drop(*trials, n_resamples=plan.resamples, rng=rng, level=plan.level)
    try:
        found = condition_contrast(first, second, plan, names=(plan.baseline, condition))
    except (InputError, NotEstimable) as error:
        gap = counts[0][0] / counts[0][1] - counts[1][0] / counts[1][1]
        return ConditionDrop(
            policy, condition, *counts[0], *counts[1], gap, None, None, None, 'pooled', iou, iou_interval, str(error)
        )
    return ConditionDrop(
        policy, condition, *counts[0], *counts[1], found.estimate, found.interval, found.p_value, None, found.test, iou,
        iou_interval, '; '.join(filter(None, (found.withheld, found.note, *(out.why for out in found.left_out)))),
    )  # fmt: skip
