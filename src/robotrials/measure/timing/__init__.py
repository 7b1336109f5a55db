"""Time-to-success: operations, curves, scalars, significance and verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.measure.timing.band import Band, BandKind, curve_band, macro_band
    from robotrials.measure.timing.better import (
        Better,
        MacroEstimate,
        better,
        endpoint_estimate,
        hrt_estimate,
        macro_estimate,
    )
    from robotrials.measure.timing.cohort import Cohort, cohorts, find_cohort, find_reference
    from robotrials.measure.timing.contrast import ScalarTest, StratumDifference, scalar_tests, stratum_differences
    from robotrials.measure.timing.curve import SuccessCurve, clustered_variance, macro_curve, rmst, success_curve
    from robotrials.measure.timing.failure import FailureModes, failure_modes
    from robotrials.measure.timing.follow_up import CommonFollowUp, common_follow_up, cut
    from robotrials.measure.timing.incidence import (
        CauseIncidence,
        End,
        Endings,
        Incidence,
        cumulative_incidence,
        endings,
        endings_by_stratum,
    )
    from robotrials.measure.timing.ks import MacroKS, PValueRule, ks_distance, macro_ks
    from robotrials.measure.timing.label import LabelSensitivity, label_sensitivity, sensitivity_table
    from robotrials.measure.timing.logrank import Logrank, LogrankPair, logrank, logrank_pairs
    from robotrials.measure.timing.operation import (
        BatchRule,
        Cause,
        Operations,
        Unit,
        operations,
        operations_by_stratum,
        pool,
        unit_of,
    )
    from robotrials.measure.timing.reference import RelativeScore, auc, curve_auc, hrt
    from robotrials.measure.timing.resample import NullMethod
    from robotrials.measure.timing.reversal import Reversal, StratumAdvantage, reversal
    from robotrials.measure.timing.scalar import (
        CohortScore,
        Scale,
        completion,
        mtbf,
        scalar_label,
        score_cohort,
        uph_of_rmst,
        uph_of_successes,
    )
    from robotrials.measure.timing.tally import RecordedTime, SuccessCount, recorded_times, success_counts
    from robotrials.measure.timing.unit import Endpoint, arm_means
    from robotrials.stats import Estimate, Verdict

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
    'End',
    'Endings',
    'Endpoint',
    'Estimate',
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
    'clustered_variance',
    'cohorts',
    'common_follow_up',
    'completion',
    'cumulative_incidence',
    'curve_auc',
    'curve_band',
    'cut',
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

_PLACES = {
    '.band': 'Band BandKind curve_band macro_band',
    '.better': 'Better MacroEstimate better endpoint_estimate hrt_estimate macro_estimate',
    '.cohort': 'Cohort cohorts find_cohort find_reference',
    '.contrast': 'ScalarTest StratumDifference scalar_tests stratum_differences',
    '.curve': 'SuccessCurve clustered_variance macro_curve rmst success_curve',
    '.failure': 'FailureModes failure_modes',
    '.follow_up': 'CommonFollowUp common_follow_up cut',
    '.incidence': 'CauseIncidence End Endings Incidence cumulative_incidence endings endings_by_stratum',
    '.ks': 'MacroKS PValueRule ks_distance macro_ks',
    '.label': 'LabelSensitivity label_sensitivity sensitivity_table',
    '.logrank': 'Logrank LogrankPair logrank logrank_pairs',
    '.operation': 'BatchRule Cause Operations Unit operations operations_by_stratum pool unit_of',
    '.reference': 'RelativeScore auc curve_auc hrt',
    '.resample': 'NullMethod',
    '.reversal': 'Reversal StratumAdvantage reversal',
    '.scalar': 'CohortScore Scale completion mtbf scalar_label score_cohort uph_of_rmst uph_of_successes',
    '.tally': 'RecordedTime SuccessCount recorded_times success_counts',
    '.unit': 'Endpoint arm_means',
    'robotrials.stats': 'Estimate Verdict',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
