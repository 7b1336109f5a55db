"""Does a policy survive a changed world: drops, dose-response, compounds, the swap test, spatial sensitivity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.record.episode import conditions_by_severity as conditions_by_severity
    from robotrials.record.episode import recorded_severity as recorded_severity
    from robotrials.verdict.robustness.dose import *
    from robotrials.verdict.robustness.trial import *

_PLACES = {
    '.dose': (
        'CompoundEffect CompoundVerdict Dose DoseResponse compound_effects dose_responses falling_rates '
        'half_severity trend_test'
    ),
    '.trial': (
        'ConditionDrop ConditionRow ConditionTrial Habit HabitShare SpatialSensitivity StartPlace StartSpread '
        'StartTrial SwapResult SwapTrial SwapVerdict by_severity condition_rows condition_trials '
        'iou_drop recorded_parts salient_object '
        'spatial_sensitivities split_conditions start_place start_spreads start_trial swap_tests swap_trial '
        'told_spread'
    ),
    'robotrials.record.episode': 'conditions_by_severity recorded_severity',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
