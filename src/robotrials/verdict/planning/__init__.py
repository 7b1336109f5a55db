"""How many episodes, what they can resolve, and when a trial may stop: sizes, power and sequential rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.stats.sample_size import (
        barnard_power,
        barnard_sample_size,
        cluster_sample_size,
        mcnemar_rollouts,
        mcnemar_sample_size,
        mean_sample_size,
        noninferiority_sample_size,
        paired_mean_sample_size,
        paired_noninferiority_sample_size,
        two_proportion_power,
        two_proportion_sample_size,
        wilson_sample_size,
    )
    from robotrials.verdict.planning.analysis_plan import (
        AnalysisPlan,
        DeclaredAnalysis,
        EndpointName,
        declared_analysis,
    )
    from robotrials.verdict.planning.arms import ArmPair, SequentialArms, sequential_arms
    from robotrials.verdict.planning.assumed import (
        AssumedCell,
        AssumedCurve,
        assumed_cells,
        assumed_operations,
        lognormal_curve,
    )
    from robotrials.verdict.planning.bridge import design_effect
    from robotrials.verdict.planning.calibration import Calibration, NullSetup, null_calibration
    from robotrials.verdict.planning.design import DesignCalibration, calibrate_design_effect
    from robotrials.verdict.planning.detection import DetectionRow, DetectionStudy, detection_rate
    from robotrials.verdict.planning.group_sequential import (
        GroupSequential,
        drift_for_power,
        group_sequential,
        operating_characteristics,
        spending_bounds,
    )
    from robotrials.verdict.planning.horizon import HorizonCheck, check_horizon
    from robotrials.verdict.planning.more_episodes import (
        MoreEpisodes,
        Standing,
        more_episodes,
        more_for_margin,
        predictive_power,
        time_standing,
    )
    from robotrials.verdict.planning.plan_size import PlanSize, plan_size, plan_sizes
    from robotrials.verdict.planning.power import BridgePower, NeededEpisodes, bridge_power, needed_episodes
    from robotrials.verdict.planning.promptness import promptness
    from robotrials.verdict.planning.repeat import UnitScores, unit_scores
    from robotrials.verdict.planning.rule_power import (
        RuleDesign,
        RulePower,
        curve_law,
        rule_power,
        rule_size,
        sample_law,
        units_needed,
    )
    from robotrials.verdict.planning.safe_logrank import LogrankLook, SafeLogrank, safe_logrank
    from robotrials.verdict.planning.sequential import Decision, Look, SequentialComparison, sequential_comparison
    from robotrials.verdict.planning.sequential_power import SequentialPower, sequential_power
    from robotrials.verdict.planning.success_size import (
        margin_power,
        margin_size,
        paired_margin_power,
        paired_margin_size,
        pairs_power,
        pairs_size,
        success_power,
        success_size,
    )
    from robotrials.verdict.planning.survey import FieldPosition, SurveyedPaper, field_position, read_survey
    from robotrials.verdict.planning.watch import WatchedScore, WatchedTrial, episode_promptness, watch_trial

__all__ = [
    'AnalysisPlan',
    'ArmPair',
    'AssumedCell',
    'AssumedCurve',
    'BridgePower',
    'Calibration',
    'Decision',
    'DeclaredAnalysis',
    'DesignCalibration',
    'DetectionRow',
    'DetectionStudy',
    'EndpointName',
    'FieldPosition',
    'GroupSequential',
    'HorizonCheck',
    'LogrankLook',
    'Look',
    'MoreEpisodes',
    'NeededEpisodes',
    'NullSetup',
    'PlanSize',
    'RuleDesign',
    'RulePower',
    'SafeLogrank',
    'SequentialArms',
    'SequentialComparison',
    'SequentialPower',
    'Standing',
    'SurveyedPaper',
    'UnitScores',
    'WatchedScore',
    'WatchedTrial',
    'assumed_cells',
    'assumed_operations',
    'barnard_power',
    'barnard_sample_size',
    'bridge_power',
    'calibrate_design_effect',
    'check_horizon',
    'cluster_sample_size',
    'curve_law',
    'declared_analysis',
    'design_effect',
    'detection_rate',
    'drift_for_power',
    'episode_promptness',
    'field_position',
    'group_sequential',
    'lognormal_curve',
    'margin_power',
    'margin_size',
    'mcnemar_rollouts',
    'mcnemar_sample_size',
    'mean_sample_size',
    'more_episodes',
    'more_for_margin',
    'needed_episodes',
    'noninferiority_sample_size',
    'null_calibration',
    'operating_characteristics',
    'paired_margin_power',
    'paired_margin_size',
    'paired_mean_sample_size',
    'paired_noninferiority_sample_size',
    'pairs_power',
    'pairs_size',
    'plan_size',
    'plan_sizes',
    'predictive_power',
    'promptness',
    'read_survey',
    'rule_power',
    'rule_size',
    'safe_logrank',
    'sample_law',
    'sequential_arms',
    'sequential_comparison',
    'sequential_power',
    'spending_bounds',
    'success_power',
    'success_size',
    'time_standing',
    'two_proportion_power',
    'two_proportion_sample_size',
    'unit_scores',
    'units_needed',
    'watch_trial',
    'wilson_sample_size',
]

_PLACES = {
    'robotrials.stats.sample_size': (
        'barnard_power barnard_sample_size cluster_sample_size mcnemar_rollouts mcnemar_sample_size '
        'mean_sample_size noninferiority_sample_size paired_mean_sample_size '
        'paired_noninferiority_sample_size two_proportion_power two_proportion_sample_size wilson_sample_size'
    ),
    '.analysis_plan': 'AnalysisPlan DeclaredAnalysis EndpointName declared_analysis',
    '.arms': 'ArmPair SequentialArms sequential_arms',
    '.assumed': 'AssumedCell AssumedCurve assumed_cells assumed_operations lognormal_curve',
    '.bridge': 'design_effect',
    '.calibration': 'Calibration NullSetup null_calibration',
    '.design': 'DesignCalibration calibrate_design_effect',
    '.detection': 'DetectionRow DetectionStudy detection_rate',
    '.group_sequential': 'GroupSequential drift_for_power group_sequential operating_characteristics spending_bounds',
    '.horizon': 'HorizonCheck check_horizon',
    '.more_episodes': 'MoreEpisodes Standing more_episodes more_for_margin predictive_power time_standing',
    '.plan_size': 'PlanSize plan_size plan_sizes',
    '.power': 'BridgePower NeededEpisodes bridge_power needed_episodes',
    '.promptness': 'promptness',
    '.repeat': 'UnitScores unit_scores',
    '.rule_power': 'RuleDesign RulePower curve_law rule_power rule_size sample_law units_needed',
    '.safe_logrank': 'LogrankLook SafeLogrank safe_logrank',
    '.sequential': 'Decision Look SequentialComparison sequential_comparison',
    '.sequential_power': 'SequentialPower sequential_power',
    '.success_size': (
        'margin_power margin_size paired_margin_power paired_margin_size pairs_power pairs_size success_power '
        'success_size'
    ),
    '.survey': 'FieldPosition SurveyedPaper field_position read_survey',
    '.watch': 'WatchedScore WatchedTrial episode_promptness watch_trial',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
