"""Does a policy survive a changed world: drops, dose-response, compounds, the swap test, spatial sensitivity."""

from robotrials.verdict.robustness.compound import CompoundEffect, CompoundVerdict, compound_effects
from robotrials.verdict.robustness.dispersion import (
    StartPlace,
    StartSpread,
    start_place,
    start_spreads,
    told_spread,
)
from robotrials.verdict.robustness.dose import (
    Dose,
    DoseResponse,
    dose_responses,
    falling_rates,
    half_severity,
    trend_test,
)
from robotrials.verdict.robustness.drop import (
    ConditionDrop,
    ConditionRow,
    condition_rows,
    iou_drop,
)
from robotrials.verdict.robustness.spatial import SpatialSensitivity, StartTrial, spatial_sensitivities, start_trial
from robotrials.verdict.robustness.swap import (
    Habit,
    HabitShare,
    SwapResult,
    SwapTrial,
    SwapVerdict,
    salient_object,
    swap_tests,
    swap_trial,
)
from robotrials.verdict.robustness.trial import (
    ConditionTrial,
    by_severity,
    condition_trials,
    conditions_by_severity,
    recorded_parts,
    recorded_severity,
    split_conditions,
)

__all__ = [
    'CompoundEffect',
    'CompoundVerdict',
    'ConditionDrop',
    'ConditionRow',
    'ConditionTrial',
    'Dose',
    'DoseResponse',
    'Habit',
    'HabitShare',
    'SpatialSensitivity',
    'StartPlace',
    'StartSpread',
    'StartTrial',
    'SwapResult',
    'SwapTrial',
    'SwapVerdict',
    'by_severity',
    'compound_effects',
    'condition_rows',
    'condition_trials',
    'conditions_by_severity',
    'dose_responses',
    'falling_rates',
    'half_severity',
    'iou_drop',
    'recorded_parts',
    'recorded_severity',
    'salient_object',
    'spatial_sensitivities',
    'split_conditions',
    'start_place',
    'start_spreads',
    'start_trial',
    'swap_tests',
    'swap_trial',
    'told_spread',
    'trend_test',
]
