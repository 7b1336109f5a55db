"""Time-to-success: operations, curves, scalars, significance and verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.measure.timing.better import (
        Better,
        MacroEstimate,
        better,
        endpoint_estimate,
        hrt_estimate,
        macro_estimate,
    )
    from robotrials.measure.timing.cohort import (
        Cohort,
        CommonFollowUp,
        RecordedTime,
        SuccessCount,
        cohorts,
        common_follow_up,
        cut,
        find_cohort,
        find_reference,
        recorded_times,
        success_counts,
    )
    from robotrials.measure.timing.contrast import Reversal, ScalarTest, StratumAdvantage, reversal, scalar_tests
    from robotrials.measure.timing.curve import SuccessCurve, clustered_variance, macro_curve, rmst, success_curve
    from robotrials.measure.timing.curve_test import (
        Logrank,
        LogrankPair,
        MacroKS,
        PValueRule,
        ks_distance,
        logrank,
        logrank_pairs,
        macro_ks,
    )
    from robotrials.measure.timing.incidence import (
        CauseIncidence,
        End,
        Endings,
        FailureModes,
        Incidence,
        cumulative_incidence,
        endings,
        endings_by_stratum,
        failure_modes,
    )
    from robotrials.measure.timing.label import LabelSensitivity, label_sensitivity, sensitivity_table
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
    from robotrials.measure.timing.shape import Band, BandKind, curve_band, macro_band
    from robotrials.measure.timing.unit import Endpoint, arm_means
    from robotrials.stats import Estimate, Verdict

__all__ = [
    'Band', 'BandKind', 'BatchRule', 'Better', 'Cause', 'CauseIncidence', 'Cohort', 'CohortScore', 'CommonFollowUp',
    'End', 'Endings', 'Endpoint', 'Estimate', 'FailureModes', 'Incidence', 'LabelSensitivity', 'Logrank', 'LogrankPair',
    'MacroEstimate', 'MacroKS', 'NullMethod', 'Operations', 'PValueRule', 'RecordedTime', 'RelativeScore', 'Reversal',
    'ScalarTest', 'Scale', 'StratumAdvantage', 'SuccessCount', 'SuccessCurve', 'Unit', 'Verdict', 'arm_means', 'auc',
    'better', 'clustered_variance', 'cohorts', 'common_follow_up', 'completion', 'cumulative_incidence', 'curve_auc',
    'curve_band', 'cut', 'endings', 'endings_by_stratum', 'endpoint_estimate', 'failure_modes', 'find_cohort',
    'find_reference', 'hrt', 'hrt_estimate', 'ks_distance', 'label_sensitivity', 'logrank', 'logrank_pairs',
    'macro_band', 'macro_curve', 'macro_estimate', 'macro_ks', 'mtbf', 'operations', 'operations_by_stratum', 'pool',
    'recorded_times', 'reversal', 'rmst', 'scalar_label', 'scalar_tests', 'score_cohort', 'sensitivity_table',
    'success_counts', 'success_curve', 'unit_of', 'uph_of_rmst', 'uph_of_successes',
]  # fmt: skip

_PLACES = {
    '.better': 'Better MacroEstimate better endpoint_estimate hrt_estimate macro_estimate',
    '.cohort': (
        'Cohort CommonFollowUp RecordedTime SuccessCount cohorts common_follow_up cut find_cohort find_reference '
        'recorded_times success_counts'
    ),
    '.contrast': 'Reversal ScalarTest StratumAdvantage reversal scalar_tests',
    '.curve': 'SuccessCurve clustered_variance macro_curve rmst success_curve',
    '.curve_test': 'Logrank LogrankPair MacroKS PValueRule ks_distance logrank logrank_pairs macro_ks',
    '.incidence': (
        'CauseIncidence End Endings FailureModes Incidence cumulative_incidence endings endings_by_stratum '
        'failure_modes'
    ),
    '.label': 'LabelSensitivity label_sensitivity sensitivity_table',
    '.operation': 'BatchRule Cause Operations Unit operations operations_by_stratum pool unit_of',
    '.reference': 'RelativeScore auc curve_auc hrt',
    '.resample': 'NullMethod',
    '.scalar': 'CohortScore Scale completion mtbf scalar_label score_cohort uph_of_rmst uph_of_successes',
    '.shape': 'Band BandKind curve_band macro_band',
    '.unit': 'Endpoint arm_means',
    'robotrials.stats': 'Estimate Verdict',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
