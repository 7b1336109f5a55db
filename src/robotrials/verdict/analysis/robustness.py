"""The robustness part of a report: what the conditions of a store cost each policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from robotrials.errors import InputError, NotEstimable
from robotrials.verdict.analysis.absent import Absent
from robotrials.verdict.analysis.condition_drop import condition_drops
from robotrials.verdict.robustness import (
    by_severity,
    compound_effects,
    condition_rows,
    condition_trials,
    dose_responses,
    spatial_sensitivities,
    start_spreads,
    swap_tests,
    told_spread,
)

if TYPE_CHECKING:
    from robotrials.record import Episode
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan
    from robotrials.verdict.robustness import (
        CompoundEffect,
        ConditionDrop,
        ConditionRow,
        DoseResponse,
        SpatialSensitivity,
        StartPlace,
        StartSpread,
        StartTrial,
        SwapResult,
        SwapTrial,
    )

R = TypeVar('R')
CHANGED = 'run the same seeds under changed conditions: docs/how-to/test-robustness.md'


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
    if not conditions:
        return Absent('no valid episode: nothing tested a policy under a condition', CHANGED)
    if len(conditions) < 2 and isinstance(swap, Absent) and isinstance(spatial, Absent):
        return Absent(f'all episodes were run under one condition ({", ".join(conditions) or "none"})', CHANGED)
    level = plan.level
    trials = condition_trials(episodes, baseline=baseline)
    spreads = start_spreads(places, baseline=baseline)
    one = Absent('all episodes were run under one condition', CHANGED) if len(conditions) < 2 else None
    return RobustnessPart(
        baseline=baseline, conditions=conditions,
        rows=tuple(
            condition_rows(by_severity(trials), n_resamples=n, rng=stream('conditions'), level=level) if trials else ()
        ),
        drops=one or _or_absent(
            lambda: [_with_starts(d, spreads) for d in condition_drops(episodes, plan, rng=stream('drops'))]
        ),
        doses=one or _or_absent(
            lambda: dose_responses(trials, baseline=baseline, level=level),
            empty='no condition was run at two severities',
        ),
        compound=one or _or_absent(
            lambda: compound_effects(trials, compound=plan.compound, baseline=baseline, level=level)
        ),
        swap=swap, spatial=spatial,
        starts=one or tuple(spreads) or Absent('no trajectory shows where the target or the arm started'),
    )  # fmt: skip


def _with_starts(drop: ConditionDrop, spreads: Sequence[StartSpread]) -> ConditionDrop:
    """A drop with what its change of start states amounts to."""
    return replace(drop, note='; '.join(filter(None, (drop.note, told_spread(spreads, drop.condition)))))


def _or_absent(compute: Callable[[], Sequence[R]], *, empty: str = 'nothing to compare') -> tuple[R, ...] | Absent:
    try:
        return tuple(compute()) or Absent(empty)
    except (NotEstimable, InputError) as error:
        return Absent(str(error))
