"""Time-to-success: operations, curves, scalars, significance and verdicts."""

from trialist.stats import Verdict
from trialist.timing.assumed import AssumedCell, AssumedCurve, assumed_cells, assumed_operations, lognormal_curve
from trialist.timing.band import Band, BandKind, curve_band, macro_band
from trialist.timing.bridge import design_effect
from trialist.timing.calibration import Calibration, NullSetup, null_calibration
from trialist.timing.cohort import Cohort, cohorts, find_cohort, find_reference
from trialist.timing.contrast import ScalarTest, StratumDifference, scalar_tests, stratum_differences
from trialist.timing.curve import SuccessCurve, clustered_variance, macro_curve, rmst, success_curve
from trialist.timing.design import DesignCalibration, calibrate_design_effect
from trialist.timing.detection import DetectionRow, DetectionStudy, detection_rate
from trialist.timing.estimate import Estimate
from trialist.timing.failure import FailureModes, failure_modes
from trialist.timing.ks import MacroKS, PValueRule, ks_distance, macro_ks
from trialist.timing.label import LabelSensitivity, label_sensitivity, sensitivity_table
from trialist.timing.logrank import Logrank, LogrankPair, logrank, logrank_pairs
from trialist.timing.operation import BatchRule, Cause, Operations, operations, operations_by_stratum, pool
from trialist.timing.power import BridgePower, NeededEpisodes, bridge_power, needed_episodes
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
from trialist.timing.verdict import AllPairs, Planned, TimingComparison, compare_all, compare_timing
from trialist.timing.watch import WatchedScore, WatchedTrial, episode_promptness, episode_success, watch_trial

__all__ = [
    'AllPairs',
    'AssumedCell',
    'AssumedCurve',
    'Band',
    'BandKind',
    'BatchRule',
    'BridgePower',
    'Calibration',
    'Cause',
    'Cohort',
    'CohortScore',
    'DesignCalibration',
    'DetectionRow',
    'DetectionStudy',
    'Estimate',
    'FailureModes',
    'LabelSensitivity',
    'Logrank',
    'LogrankPair',
    'MacroKS',
    'NeededEpisodes',
    'NullMethod',
    'NullSetup',
    'Operations',
    'PValueRule',
    'Planned',
    'RecordedTime',
    'RelativeScore',
    'ScalarTest',
    'Scale',
    'StratumDifference',
    'SuccessCount',
    'SuccessCurve',
    'TimingComparison',
    'Verdict',
    'WatchedScore',
    'WatchedTrial',
    'assumed_cells',
    'assumed_operations',
    'auc',
    'bridge_power',
    'calibrate_design_effect',
    'clustered_variance',
    'cohorts',
    'compare_all',
    'compare_timing',
    'completion',
    'curve_auc',
    'curve_band',
    'design_effect',
    'detection_rate',
    'episode_promptness',
    'episode_success',
    'failure_modes',
    'find_cohort',
    'find_reference',
    'hrt',
    'ks_distance',
    'label_sensitivity',
    'lognormal_curve',
    'logrank',
    'logrank_pairs',
    'macro_band',
    'macro_curve',
    'macro_ks',
    'mtbf',
    'needed_episodes',
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
    'watch_trial',
]
