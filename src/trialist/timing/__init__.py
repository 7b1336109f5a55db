"""Time-to-success: operations, curves, scalars, significance and verdicts."""

from trialist.timing.band import Band, BandKind, curve_band, macro_band
from trialist.timing.calibration import Calibration, NullSetup, null_calibration
from trialist.timing.cohort import Cohort, cohorts, find_cohort, find_reference
from trialist.timing.contrast import ScalarTest, StratumDifference, scalar_tests, stratum_differences
from trialist.timing.curve import SuccessCurve, clustered_variance, macro_curve, rmst, success_curve
from trialist.timing.estimate import Estimate
from trialist.timing.failure import FailureModes, failure_modes
from trialist.timing.ks import MacroKS, PValueRule, ks_distance, macro_ks
from trialist.timing.label import LabelSensitivity, label_sensitivity, sensitivity_table
from trialist.timing.logrank import Logrank, logrank
from trialist.timing.operation import BatchRule, Cause, Operations, operations, operations_by_stratum, pool
from trialist.timing.reference import RelativeScore, auc, curve_auc, hrt
from trialist.timing.resample import NullMethod
from trialist.timing.scalar import CohortScore, Scale, completion, mtbf, score_cohort, uph_of_rmst, uph_of_successes
from trialist.timing.verdict import AllPairs, TimingComparison, Verdict, compare_all, compare_timing

__all__ = [
    'AllPairs',
    'Band',
    'BandKind',
    'BatchRule',
    'Calibration',
    'Cause',
    'Cohort',
    'CohortScore',
    'Estimate',
    'FailureModes',
    'LabelSensitivity',
    'Logrank',
    'MacroKS',
    'NullMethod',
    'NullSetup',
    'Operations',
    'PValueRule',
    'RelativeScore',
    'ScalarTest',
    'Scale',
    'StratumDifference',
    'SuccessCurve',
    'TimingComparison',
    'Verdict',
    'auc',
    'clustered_variance',
    'cohorts',
    'compare_all',
    'compare_timing',
    'completion',
    'curve_auc',
    'curve_band',
    'failure_modes',
    'find_cohort',
    'find_reference',
    'hrt',
    'ks_distance',
    'label_sensitivity',
    'logrank',
    'macro_band',
    'macro_curve',
    'macro_ks',
    'mtbf',
    'null_calibration',
    'operations',
    'operations_by_stratum',
    'pool',
    'rmst',
    'scalar_tests',
    'score_cohort',
    'sensitivity_table',
    'stratum_differences',
    'success_curve',
    'uph_of_rmst',
    'uph_of_successes',
]
