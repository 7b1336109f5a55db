"""Time-to-success: operations, curves, scalars, significance and verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.measure.timing.better import *
    from robotrials.measure.timing.curve import *
    from robotrials.measure.timing.curve_test import *
    from robotrials.measure.timing.incidence import *
    from robotrials.measure.timing.operation import *
    from robotrials.measure.timing.resample import *
    from robotrials.measure.timing.scalar import *
    from robotrials.stats import Estimate as Estimate
    from robotrials.stats import Verdict as Verdict

_PLACES = {
    '.better': 'Better MacroEstimate better endpoint_estimate hrt_estimate macro_estimate',
    '.curve': (
        'Cohort CommonFollowUp Endpoint SuccessCurve arm_means clustered_variance '
        'cohorts common_follow_up cut find_cohort macro_curve rmst '
        'success_curve'
    ),
    '.curve_test': (
        'Band BandKind Logrank LogrankPair MacroKS PValueRule Reversal ScalarTest StratumAdvantage '
        'ks_distance logrank logrank_pairs macro_band macro_ks reversal scalar_tests'
    ),
    '.incidence': (
        'CauseIncidence Endings FailureModes Incidence LabelSensitivity OperationEnd cumulative_incidence '
        'endings endings_by_stratum failure_modes label_sensitivity'
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
