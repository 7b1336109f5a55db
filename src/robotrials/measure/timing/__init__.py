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
    from robotrials.measure.timing.curve import (
        Cohort,
        CommonFollowUp,
        Endpoint,
        RecordedTime,
        SuccessCount,
        SuccessCurve,
        arm_means,
        clustered_variance,
        cohorts,
        common_follow_up,
        cut,
        find_cohort,
        find_reference,
        macro_curve,
        recorded_times,
        rmst,
        success_counts,
        success_curve,
    )
    from robotrials.measure.timing.curve_test import (
        Band,
        BandKind,
        Logrank,
        LogrankPair,
        MacroKS,
        PValueRule,
        Reversal,
        ScalarTest,
        StratumAdvantage,
        curve_band,
        ks_distance,
        logrank,
        logrank_pairs,
        macro_band,
        macro_ks,
        reversal,
        scalar_tests,
    )
    from robotrials.measure.timing.incidence import (
        CauseIncidence,
        Endings,
        FailureModes,
        Incidence,
        LabelSensitivity,
        OperationEnd,
        cumulative_incidence,
        endings,
        endings_by_stratum,
        failure_modes,
        label_sensitivity,
        sensitivity_table,
    )
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
    from robotrials.measure.timing.resample import NullMethod
    from robotrials.measure.timing.scalar import (
        CohortScore,
        RelativeScore,
        Scale,
        auc,
        completion,
        curve_auc,
        hrt,
        mtbf,
        scalar_label,
        score_cohort,
        uph_of_rmst,
        uph_of_successes,
    )
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
    'OperationEnd',
    'Operations',
    'PValueRule',
    'RecordedTime',
    'RelativeScore',
    'Reversal',
    'ScalarTest',
    'Scale',
    'StratumAdvantage',
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
    'success_counts',
    'success_curve',
    'unit_of',
    'uph_of_rmst',
    'uph_of_successes',
]  # fmt: skip

_PLACES = {
    '.better': 'Better MacroEstimate better endpoint_estimate hrt_estimate macro_estimate',
    '.curve': (
        'Cohort CommonFollowUp Endpoint RecordedTime SuccessCount SuccessCurve arm_means clustered_variance '
        'cohorts common_follow_up cut find_cohort find_reference macro_curve recorded_times rmst '
        'success_counts success_curve'
    ),
    '.curve_test': (
        'Band BandKind Logrank LogrankPair MacroKS PValueRule Reversal ScalarTest StratumAdvantage curve_band '
        'ks_distance logrank logrank_pairs macro_band macro_ks reversal scalar_tests'
    ),
    '.incidence': (
        'CauseIncidence Endings FailureModes Incidence LabelSensitivity OperationEnd cumulative_incidence '
        'endings endings_by_stratum failure_modes label_sensitivity sensitivity_table'
    ),
    '.operation': 'BatchRule Cause Operations Unit operations operations_by_stratum pool unit_of',
    '.resample': 'NullMethod',
    '.scalar': (
        'CohortScore RelativeScore Scale auc completion curve_auc hrt mtbf scalar_label score_cohort '
        'uph_of_rmst uph_of_successes'
    ),
    'robotrials.stats': 'Estimate Verdict',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
