"""Time-to-success: operations, curves, scalars, significance and verdicts."""

from robotrials.catalog import late_names
from robotrials.stats import Estimate, Verdict
from robotrials.timing.band import Band, BandKind, curve_band, macro_band
from robotrials.timing.better import Better, MacroEstimate, better, endpoint_estimate, hrt_estimate, macro_estimate
from robotrials.timing.cohort import Cohort, cohorts, find_cohort, find_reference
from robotrials.timing.contrast import ScalarTest, StratumDifference, scalar_tests, stratum_differences
from robotrials.timing.curve import SuccessCurve, clustered_variance, macro_curve, rmst, success_curve
from robotrials.timing.decision import Decided, Evidence, decide
from robotrials.timing.failure import FailureModes, failure_modes
from robotrials.timing.follow_up import CommonFollowUp, common_follow_up, cut
from robotrials.timing.incidence import (
    CauseIncidence,
    End,
    Endings,
    Incidence,
    cumulative_incidence,
    endings,
    endings_by_stratum,
)
from robotrials.timing.ks import MacroKS, PValueRule, ks_distance, macro_ks
from robotrials.timing.label import LabelSensitivity, label_sensitivity, sensitivity_table
from robotrials.timing.logrank import Logrank, LogrankPair, logrank, logrank_pairs
from robotrials.timing.operation import (
    BatchRule,
    Cause,
    Operations,
    Unit,
    operations,
    operations_by_stratum,
    pool,
    unit_of,
)
from robotrials.timing.reference import RelativeScore, auc, curve_auc, hrt
from robotrials.timing.resample import NullMethod
from robotrials.timing.reversal import Reversal, StratumAdvantage, reversal
from robotrials.timing.scalar import (
    CohortScore,
    Scale,
    completion,
    mtbf,
    scalar_label,
    score_cohort,
    uph_of_rmst,
    uph_of_successes,
)
from robotrials.timing.tally import RecordedTime, SuccessCount, recorded_times, success_counts
from robotrials.timing.unit import Endpoint, arm_means

__all__ = [
    'Band',
    'BandKind',
    'BatchRule',
    'Better',
    'Cause',
    'CauseIncidence',
    'Cohort',
    'CohortScore',
    'CommonFollowUp',
    'Decided',
    'End',
    'Endings',
    'Endpoint',
    'Estimate',
    'Evidence',
    'FailureModes',
    'Incidence',
    'LabelSensitivity',
    'Logrank',
    'LogrankPair',
    'MacroEstimate',
    'MacroKS',
    'NullMethod',
    'Operations',
    'PValueRule',
    'RecordedTime',
    'RelativeScore',
    'Reversal',
    'ScalarTest',
    'Scale',
    'StratumAdvantage',
    'StratumDifference',
    'SuccessCount',
    'SuccessCurve',
    'Unit',
    'Verdict',
    'arm_means',
    'auc',
    'better',
    'bridge_power',
    'clustered_variance',
    'cohorts',
    'common_follow_up',
    'compare_timing',
    'completion',
    'cumulative_incidence',
    'curve_auc',
    'curve_band',
    'cut',
    'decide',
    'detection_rate',
    'endings',
    'endings_by_stratum',
    'endpoint_estimate',
    'failure_modes',
    'find_cohort',
    'find_reference',
    'hrt',
    'hrt_estimate',
    'ks_distance',
    'label_sensitivity',
    'logrank',
    'logrank_pairs',
    'macro_band',
    'macro_curve',
    'macro_estimate',
    'macro_ks',
    'mtbf',
    'null_calibration',
    'operations',
    'operations_by_stratum',
    'pool',
    'recorded_times',
    'reversal',
    'rmst',
    'scalar_label',
    'scalar_tests',
    'score_cohort',
    'sensitivity_table',
    'stratum_differences',
    'success_counts',
    'success_curve',
    'unit_of',
    'uph_of_rmst',
    'uph_of_successes',
]

# Names that people import from here and that live in rooms built on this one: found when asked for.
_ELSEWHERE = {
    'robotrials.analysis.pairs': 'compare_timing',
    'robotrials.planning': 'bridge_power detection_rate null_calibration',
}
__getattr__, __dir__ = late_names(__name__, _ELSEWHERE)
