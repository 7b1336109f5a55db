"""Time-to-success: operations, curves, scalars, significance and verdicts."""

import importlib
from typing import Any

from trialist.stats import Verdict
from trialist.timing.band import Band, BandKind, curve_band, macro_band
from trialist.timing.cohort import Cohort, cohorts, find_cohort, find_reference
from trialist.timing.contrast import ScalarTest, StratumDifference, scalar_tests, stratum_differences
from trialist.timing.curve import SuccessCurve, clustered_variance, macro_curve, rmst, success_curve
from trialist.timing.estimate import Estimate
from trialist.timing.failure import FailureModes, failure_modes
from trialist.timing.ks import MacroKS, PValueRule, ks_distance, macro_ks
from trialist.timing.label import LabelSensitivity, label_sensitivity, sensitivity_table
from trialist.timing.logrank import Logrank, LogrankPair, logrank, logrank_pairs
from trialist.timing.operation import BatchRule, Cause, Operations, operations, operations_by_stratum, pool
from trialist.timing.reference import RelativeScore, auc, curve_auc, hrt
from trialist.timing.resample import NullMethod
from trialist.timing.scalar import (
    CohortScore,
    Scale,
    completion,
    mtbf,
    scalar_label,
    score_cohort,
    uph_of_rmst,
    uph_of_successes,
)
from trialist.timing.tally import RecordedTime, SuccessCount, recorded_times, success_counts

__all__ = [
    'Band',
    'BandKind',
    'BatchRule',
    'Cause',
    'Cohort',
    'CohortScore',
    'Estimate',
    'FailureModes',
    'LabelSensitivity',
    'Logrank',
    'LogrankPair',
    'MacroKS',
    'NullMethod',
    'Operations',
    'PValueRule',
    'RecordedTime',
    'RelativeScore',
    'ScalarTest',
    'Scale',
    'StratumDifference',
    'SuccessCount',
    'SuccessCurve',
    'Verdict',
    'auc',
    'bridge_power',
    'clustered_variance',
    'cohorts',
    'compare_timing',
    'completion',
    'curve_auc',
    'curve_band',
    'detection_rate',
    'failure_modes',
    'find_cohort',
    'find_reference',
    'hrt',
    'ks_distance',
    'label_sensitivity',
    'logrank',
    'logrank_pairs',
    'macro_band',
    'macro_curve',
    'macro_ks',
    'mtbf',
    'null_calibration',
    'operations',
    'operations_by_stratum',
    'pool',
    'recorded_times',
    'rmst',
    'scalar_label',
    'scalar_tests',
    'score_cohort',
    'sensitivity_table',
    'stratum_differences',
    'success_counts',
    'success_curve',
    'uph_of_rmst',
    'uph_of_successes',
]

# Names that people import from here and that live in rooms built on this one: found when asked for.
_ELSEWHERE = {
    'bridge_power': 'trialist.planning',
    'compare_timing': 'trialist.analysis.pairs',
    'detection_rate': 'trialist.planning',
    'null_calibration': 'trialist.planning',
}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
