"""Arrays in, intervals and decisions out."""

from trialist.stats.bootstrap import (
    Bootstrap,
    bootstrap_interval,
    cluster_bootstrap,
    jackknife_statistics,
    resample_counts,
    weighted_mean,
)
from trialist.stats.exact import barnard, barnard_p_values, barnard_region, exact_mcnemar
from trialist.stats.interval import Interval, Significance
from trialist.stats.multiplicity import bonferroni, different_matrix, holm, letter_groups
from trialist.stats.permutation import Permutation, label_permutation, sign_flip
from trialist.stats.proportion import clopper_pearson, jeffreys, newcombe, newcombe_paired, wilson
from trialist.stats.wald import Wald, paired_wald, two_sample_wald, welch

__all__ = [
    'Bootstrap',
    'Interval',
    'Permutation',
    'Significance',
    'Wald',
    'barnard',
    'barnard_p_values',
    'barnard_region',
    'bonferroni',
    'bootstrap_interval',
    'clopper_pearson',
    'cluster_bootstrap',
    'different_matrix',
    'exact_mcnemar',
    'holm',
    'jackknife_statistics',
    'jeffreys',
    'label_permutation',
    'letter_groups',
    'newcombe',
    'newcombe_paired',
    'paired_wald',
    'resample_counts',
    'sign_flip',
    'two_sample_wald',
    'weighted_mean',
    'welch',
    'wilson',
]
