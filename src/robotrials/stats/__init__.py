"""Arrays in, intervals and decisions out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.stats.bootstrap import *
    from robotrials.stats.dominance import *
    from robotrials.stats.interaction import *
    from robotrials.stats.interval import *
    from robotrials.stats.matching import *
    from robotrials.stats.mean_difference import *
    from robotrials.stats.proportion import *
    from robotrials.stats.ratio import *
    from robotrials.stats.sample_size import *
    from robotrials.stats.success_rule import *
    from robotrials.stats.win import *

_PLACES = {
    '.bootstrap': (
        'AGGREGATES Bootstrap Profile Ranks aggregate cluster_bootstrap improvement_chance '
        'iqm jackknife_statistics mean_score median_score optimality_gap performance_profile '
        'probability_of_improvement rank_policies resample_counts weighted_mean'
    ),
    '.dominance': (
        'Claim Judgement PairDecision PairFlags PairVerdict bonferroni different_matrix holm judge letter_groups'
    ),
    '.interaction': 'RateContrast gail_simon rate_contrast reversal_p_value',
    '.interval': (
        'Interval MacroArm MacroDifference Significance Spread Verdict allowance_factor fewest_units '
        'bootstrap_interval macro_difference macro_interval'
    ),
    '.matching': 'UnseenRule fewest_for_claim',
    '.mean_difference': (
        'Permutation Wald clustered_wald label_permutation paired_wald sign_flip two_sample_wald welch'
    ),
    '.proportion': (
        'ArmCounts BetaPosterior Estimate NonInferiority PairCounts Rate absent_estimate barnard '
        'barnard_region chance_better clopper_pearson clustered_wilson difference_credible '
        'exact_mcnemar jeffreys newcombe newcombe_paired noninferiority rate_difference_interval '
        'success_posterior wilson'
    ),
    '.ratio': (
        'MeanCell RatioCells RatioKind RatioNonInferiority clustered_covariance macro_ratio '
        'macro_ratio_bounds ratio_noninferiority'
    ),
    '.sample_size': 'Price mcnemar_sample_size price tau_warning wilson_sample_size',
    '.success_rule': (
        'SuccessArm SuccessContrast SuccessRule UnitShares stratified_exact success_arm success_contrast unit_shares'
    ),
    '.win': 'WinArm WinContrast WinDesign win_arm win_contrast',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
