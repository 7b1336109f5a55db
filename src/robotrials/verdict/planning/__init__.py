"""How many episodes, what they can resolve, and when a trial may stop: sizes, power and sequential rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.stats.sample_size import *
    from robotrials.verdict.planning.analysis_plan import *
    from robotrials.verdict.planning.bridge import *
    from robotrials.verdict.planning.group_sequential import *
    from robotrials.verdict.planning.plan_size import *
    from robotrials.verdict.planning.power import *
    from robotrials.verdict.planning.rule_power import *
    from robotrials.verdict.planning.sequential import *
    from robotrials.verdict.planning.watch import *

_PLACES = {
    '.analysis_plan': 'AnalysisPlan DeclaredAnalysis EndpointName declared_analysis',
    '.bridge': 'design_effect',
    '.group_sequential': (
        'GroupSequential LogrankLook SafeLogrank drift_for_power group_sequential operating_characteristics '
        'safe_logrank spending_bounds'
    ),
    '.plan_size': 'FieldPosition PlanSize SurveyedPaper better_rate field_position plan_size plan_sizes read_survey',
    '.power': (
        'BridgePower Calibration DesignCalibration DetectionRow DetectionStudy NeededEpisodes NullSetup '
        'bridge_power calibrate_design_effect detection_rate null_calibration'
    ),
    '.rule_power': (
        'AssumedCell AssumedCurve RuleDesign RulePower assumed_operations curve_law '
        'lognormal_curve rule_power rule_size sample_law units_needed'
    ),
    '.sequential': (
        'Decision HorizonCheck SequentialComparison SequentialLook SequentialPower check_horizon '
        'sequential_comparison sequential_power'
    ),
    '.watch': (
        'ArmPair SequentialArms UnitScores WatchedScore WatchedTrial episode_promptness promptness '
        'sequential_arms unit_scores watch_trial'
    ),
    'robotrials.stats.sample_size': (
        'MoreEpisodes TestStanding barnard_power barnard_sample_size cluster_sample_size margin_power '
        'margin_size mcnemar_rollouts mcnemar_sample_size mean_sample_size more_episodes more_for_margin '
        'noninferiority_sample_size paired_margin_power paired_margin_size paired_mean_sample_size '
        'paired_noninferiority_sample_size pairs_power pairs_size predictive_power success_power success_size '
        'time_standing two_proportion_power two_proportion_sample_size wilson_sample_size'
    ),
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
