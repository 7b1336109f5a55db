"""Arrays in, intervals and decisions out."""

from trialist.stats.arms import ArmPair, SequentialArms, sequential_arms
from trialist.stats.bootstrap import (
    Bootstrap,
    bootstrap_interval,
    cluster_bootstrap,
    jackknife_statistics,
    resample_counts,
    weighted_mean,
)
from trialist.stats.exact import barnard, barnard_p_values, barnard_region, exact_mcnemar
from trialist.stats.group_sequential import (
    GroupSequential,
    drift_for_power,
    group_sequential,
    operating_characteristics,
    spending_bounds,
)
from trialist.stats.interval import Interval, Significance
from trialist.stats.multiplicity import bonferroni, different_matrix, holm, letter_groups
from trialist.stats.permutation import Permutation, label_permutation, sign_flip
from trialist.stats.plan_size import PlanSize, plan_size, plan_sizes
from trialist.stats.proportion import clopper_pearson, jeffreys, newcombe, newcombe_paired, wilson
from trialist.stats.sample_size import (
    barnard_power,
    barnard_sample_size,
    cluster_sample_size,
    mcnemar_rollouts,
    mcnemar_sample_size,
    mean_sample_size,
    noninferiority_sample_size,
    paired_mean_sample_size,
    paired_noninferiority_sample_size,
    two_proportion_sample_size,
    wilson_sample_size,
)
from trialist.stats.sequential import Decision, Look, SequentialComparison, sequential_comparison
from trialist.stats.survey import FieldPosition, SurveyedPaper, field_position, read_survey
from trialist.stats.wald import Wald, paired_wald, two_sample_wald, welch

__all__ = [
    'ArmPair',
    'Bootstrap',
    'Decision',
    'FieldPosition',
    'GroupSequential',
    'Interval',
    'Look',
    'Permutation',
    'PlanSize',
    'SequentialArms',
    'SequentialComparison',
    'Significance',
    'SurveyedPaper',
    'Wald',
    'barnard',
    'barnard_p_values',
    'barnard_power',
    'barnard_region',
    'barnard_sample_size',
    'bonferroni',
    'bootstrap_interval',
    'clopper_pearson',
    'cluster_bootstrap',
    'cluster_sample_size',
    'different_matrix',
    'drift_for_power',
    'exact_mcnemar',
    'field_position',
    'group_sequential',
    'holm',
    'jackknife_statistics',
    'jeffreys',
    'label_permutation',
    'letter_groups',
    'mcnemar_rollouts',
    'mcnemar_sample_size',
    'mean_sample_size',
    'newcombe',
    'newcombe_paired',
    'noninferiority_sample_size',
    'operating_characteristics',
    'paired_mean_sample_size',
    'paired_noninferiority_sample_size',
    'paired_wald',
    'plan_size',
    'plan_sizes',
    'read_survey',
    'resample_counts',
    'sequential_arms',
    'sequential_comparison',
    'sign_flip',
    'spending_bounds',
    'two_proportion_sample_size',
    'two_sample_wald',
    'weighted_mean',
    'welch',
    'wilson',
    'wilson_sample_size',
]
