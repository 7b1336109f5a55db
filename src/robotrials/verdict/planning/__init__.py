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
    from robotrials.verdict.planning.bridge import design_effect
    from robotrials.verdict.planning.group_sequential import (
        GroupSequential,
        LogrankLook,
        SafeLogrank,
        drift_for_power,
        group_sequential,
        operating_characteristics,
        safe_logrank,
        spending_bounds,
    )
    from robotrials.verdict.planning.plan_size import (
        FieldPosition,
        PlanSize,
        SurveyedPaper,
        better_rate,
        field_position,
        plan_size,
        plan_sizes,
        read_survey,
    )
    from robotrials.verdict.planning.power import (
        BridgePower,
        Calibration,
        DesignCalibration,
        DetectionRow,
        DetectionStudy,
        NeededEpisodes,
        NullSetup,
        bridge_power,
        calibrate_design_effect,
        detection_rate,
        needed_episodes,
        null_calibration,
    )
    from robotrials.verdict.planning.rule_power import (
        AssumedCell,
        AssumedCurve,
        RuleDesign,
        RulePower,
        assumed_cells,
        assumed_operations,
        curve_law,
        lognormal_curve,
        rule_power,
        rule_size,
        sample_law,
        units_needed,
    )
    from robotrials.verdict.planning.sequential import (
        Decision,
        HorizonCheck,
        SequentialComparison,
        SequentialLook,
        SequentialPower,
        check_horizon,
        sequential_comparison,
        sequential_power,
    )
    from robotrials.verdict.planning.success_size import (
        MoreEpisodes,
        TestStanding,
        margin_power,
        margin_size,
        more_episodes,
        more_for_margin,
        paired_margin_power,
        paired_margin_size,
        pairs_power,
        pairs_size,
        predictive_power,
        success_power,
        success_size,
        time_standing,
    )
    from robotrials.verdict.planning.watch import (
        ArmPair,
        SequentialArms,
        UnitScores,
        WatchedScore,
        WatchedTrial,
        episode_promptness,
        promptness,
        sequential_arms,
        unit_scores,
        watch_trial,
    )

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
    'MoreEpisodes',
    'NeededEpisodes',
    'NullSetup',
    'PlanSize',
    'RuleDesign',
    'RulePower',
    'SafeLogrank',
    'SequentialArms',
    'SequentialComparison',
    'SequentialLook',
    'SequentialPower',
    'SurveyedPaper',
    'TestStanding',
    'UnitScores',
    'WatchedScore',
    'WatchedTrial',
    'assumed_cells',
    'assumed_operations',
    'barnard_power',
    'barnard_sample_size',
    'better_rate',
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
    '.analysis_plan': 'AnalysisPlan DeclaredAnalysis EndpointName declared_analysis',
    '.bridge': 'design_effect',
    '.group_sequential': (
        'GroupSequential LogrankLook SafeLogrank drift_for_power group_sequential operating_characteristics '
        'safe_logrank spending_bounds'
    ),
    '.plan_size': 'FieldPosition PlanSize SurveyedPaper better_rate field_position plan_size plan_sizes read_survey',
    '.power': (
        'BridgePower Calibration DesignCalibration DetectionRow DetectionStudy NeededEpisodes NullSetup '
        'bridge_power calibrate_design_effect detection_rate needed_episodes null_calibration'
    ),
    '.rule_power': (
        'AssumedCell AssumedCurve RuleDesign RulePower assumed_cells assumed_operations curve_law '
        'lognormal_curve rule_power rule_size sample_law units_needed'
    ),
    '.sequential': (
        'Decision HorizonCheck SequentialComparison SequentialLook SequentialPower check_horizon '
        'sequential_comparison sequential_power'
    ),
    '.success_size': (
        'MoreEpisodes TestStanding margin_power margin_size more_episodes more_for_margin paired_margin_power '
        'paired_margin_size pairs_power pairs_size predictive_power success_power success_size time_standing'
    ),
    '.watch': (
        'ArmPair SequentialArms UnitScores WatchedScore WatchedTrial episode_promptness promptness '
        'sequential_arms unit_scores watch_trial'
    ),
    'robotrials.stats.sample_size': (
        'barnard_power barnard_sample_size cluster_sample_size mcnemar_rollouts mcnemar_sample_size '
        'mean_sample_size noninferiority_sample_size paired_mean_sample_size '
        'paired_noninferiority_sample_size two_proportion_power two_proportion_sample_size wilson_sample_size'
    ),
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
