"""How many episodes, what they can resolve, and when a trial may stop: sizes, power and sequential rules."""

from trialist.planning.arms import ArmPair, SequentialArms, sequential_arms
from trialist.planning.assumed import AssumedCell, AssumedCurve, assumed_cells, assumed_operations, lognormal_curve
from trialist.planning.bridge import design_effect
from trialist.planning.calibration import Calibration, NullSetup, null_calibration
from trialist.planning.design import DesignCalibration, calibrate_design_effect
from trialist.planning.detection import DetectionRow, DetectionStudy, detection_rate
from trialist.planning.group_sequential import (
    GroupSequential,
    drift_for_power,
    group_sequential,
    operating_characteristics,
    spending_bounds,
)
from trialist.planning.more_episodes import (
    MoreEpisodes,
    Standing,
    more_episodes,
    predictive_power,
    rate_standing,
    time_standing,
)
from trialist.planning.plan_size import PlanSize, plan_size, plan_sizes
from trialist.planning.power import BridgePower, NeededEpisodes, bridge_power, needed_episodes
from trialist.planning.promptness import promptness
from trialist.planning.sample_size import (
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
from trialist.planning.sequential import Decision, Look, SequentialComparison, sequential_comparison
from trialist.planning.sequential_power import SequentialPower, sequential_power
from trialist.planning.survey import FieldPosition, SurveyedPaper, field_position, read_survey
from trialist.planning.watch import WatchedScore, WatchedTrial, episode_promptness, watch_trial

__all__ = [
    'ArmPair',
    'AssumedCell',
    'AssumedCurve',
    'BridgePower',
    'Calibration',
    'Decision',
    'DesignCalibration',
    'DetectionRow',
    'DetectionStudy',
    'FieldPosition',
    'GroupSequential',
    'Look',
    'MoreEpisodes',
    'NeededEpisodes',
    'NullSetup',
    'PlanSize',
    'SequentialArms',
    'SequentialComparison',
    'SequentialPower',
    'Standing',
    'SurveyedPaper',
    'WatchedScore',
    'WatchedTrial',
    'assumed_cells',
    'assumed_operations',
    'barnard_power',
    'barnard_sample_size',
    'bridge_power',
    'calibrate_design_effect',
    'cluster_sample_size',
    'design_effect',
    'detection_rate',
    'drift_for_power',
    'episode_promptness',
    'field_position',
    'group_sequential',
    'lognormal_curve',
    'mcnemar_rollouts',
    'mcnemar_sample_size',
    'mean_sample_size',
    'more_episodes',
    'needed_episodes',
    'noninferiority_sample_size',
    'null_calibration',
    'operating_characteristics',
    'paired_mean_sample_size',
    'paired_noninferiority_sample_size',
    'plan_size',
    'plan_sizes',
    'predictive_power',
    'promptness',
    'rate_standing',
    'read_survey',
    'sequential_arms',
    'sequential_comparison',
    'sequential_power',
    'spending_bounds',
    'time_standing',
    'two_proportion_power',
    'two_proportion_sample_size',
    'watch_trial',
    'wilson_sample_size',
]
