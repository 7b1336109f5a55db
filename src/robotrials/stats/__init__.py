"""Arrays in, intervals and decisions out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.stats.bootstrap import (
        AGGREGATES,
        Bootstrap,
        Profile,
        Ranks,
        aggregate,
        bootstrap_interval,
        cluster_bootstrap,
        improvement_chance,
        iqm,
        jackknife_statistics,
        mean_score,
        median_score,
        optimality_gap,
        performance_profile,
        probability_of_improvement,
        rank_policies,
        resample_counts,
        weighted_mean,
    )
    from robotrials.stats.dominance import (
        Claim,
        Judgement,
        PairDecision,
        PairFlags,
        PairVerdict,
        bonferroni,
        different_matrix,
        holm,
        judge,
        letter_groups,
    )
    from robotrials.stats.interaction import RateContrast, gail_simon, rate_contrast, reversal_p_value
    from robotrials.stats.interval import (
        Interval,
        MacroArm,
        MacroDifference,
        Significance,
        Spread,
        Verdict,
        allowance_factor,
        fewest_units,
        macro_difference,
        macro_interval,
    )
    from robotrials.stats.matching import UnseenRule, fewest_for_claim
    from robotrials.stats.mean_difference import (
        Permutation,
        Wald,
        clustered_wald,
        label_permutation,
        paired_wald,
        sign_flip,
        two_sample_wald,
        welch,
    )
    from robotrials.stats.proportion import (
        ArmCounts,
        BetaPosterior,
        Estimate,
        NonInferiority,
        PairCounts,
        Rate,
        absent_estimate,
        barnard,
        barnard_p_values,
        barnard_region,
        chance_better,
        clopper_pearson,
        clustered_wilson,
        difference_credible,
        exact_mcnemar,
        jeffreys,
        newcombe,
        newcombe_paired,
        noninferiority,
        rate_difference_interval,
        success_posterior,
        wilson,
    )
    from robotrials.stats.ratio import (
        MeanCell,
        RatioCells,
        RatioKind,
        RatioNonInferiority,
        clustered_covariance,
        macro_ratio,
        macro_ratio_bounds,
        ratio_noninferiority,
    )
    from robotrials.stats.sample_size import Price, mcnemar_sample_size, price, tau_warning, wilson_sample_size
    from robotrials.stats.success_rule import (
        SuccessArm,
        SuccessContrast,
        SuccessRule,
        UnitShares,
        stratified_exact,
        success_arm,
        success_contrast,
        unit_shares,
    )
    from robotrials.stats.win import WinArm, WinContrast, WinDesign, lost_contrast, win_arm, win_contrast

__all__ = [
    'AGGREGATES', 'ArmCounts', 'BetaPosterior', 'Bootstrap', 'Claim', 'Estimate', 'Interval', 'Judgement', 'MacroArm',
    'MacroDifference', 'MeanCell', 'NonInferiority', 'PairCounts', 'PairDecision', 'PairFlags', 'PairVerdict',
    'Permutation', 'Price', 'Profile', 'Ranks', 'Rate', 'RateContrast', 'RatioCells', 'RatioKind',
    'RatioNonInferiority', 'Significance', 'Spread', 'SuccessArm', 'SuccessContrast', 'SuccessRule', 'UnitShares',
    'UnseenRule', 'Verdict', 'Wald', 'WinArm', 'WinContrast', 'WinDesign', 'absent_estimate', 'aggregate',
    'allowance_factor', 'barnard', 'barnard_p_values', 'barnard_region', 'bonferroni', 'bootstrap_interval',
    'chance_better', 'clopper_pearson', 'cluster_bootstrap', 'clustered_covariance', 'clustered_wald',
    'clustered_wilson', 'difference_credible', 'different_matrix', 'exact_mcnemar', 'fewest_for_claim', 'fewest_units',
    'gail_simon', 'holm', 'improvement_chance', 'iqm', 'jackknife_statistics', 'jeffreys', 'judge', 'label_permutation',
    'letter_groups', 'lost_contrast', 'macro_difference', 'macro_interval', 'macro_ratio', 'macro_ratio_bounds',
    'mcnemar_sample_size', 'mean_score', 'median_score', 'newcombe', 'newcombe_paired', 'noninferiority',
    'optimality_gap', 'paired_wald', 'performance_profile', 'price', 'probability_of_improvement', 'rank_policies',
    'rate_contrast', 'rate_difference_interval', 'ratio_noninferiority', 'resample_counts', 'reversal_p_value',
    'sign_flip', 'stratified_exact', 'success_arm', 'success_contrast', 'success_posterior', 'tau_warning',
    'two_sample_wald', 'unit_shares', 'weighted_mean', 'welch', 'wilson', 'wilson_sample_size', 'win_arm',
    'win_contrast',
]  # fmt: skip

_PLACES = {
    '.bootstrap': (
        'AGGREGATES Bootstrap Profile Ranks aggregate bootstrap_interval cluster_bootstrap improvement_chance '
        'iqm jackknife_statistics mean_score median_score optimality_gap performance_profile '
        'probability_of_improvement rank_policies resample_counts weighted_mean'
    ),
    '.dominance': (
        'Claim Judgement PairDecision PairFlags PairVerdict bonferroni different_matrix holm judge letter_groups'
    ),
    '.interaction': 'RateContrast gail_simon rate_contrast reversal_p_value',
    '.interval': (
        'Interval MacroArm MacroDifference Significance Spread Verdict allowance_factor fewest_units '
        'macro_difference macro_interval'
    ),
    '.matching': 'UnseenRule fewest_for_claim',
    '.mean_difference': (
        'Permutation Wald clustered_wald label_permutation paired_wald sign_flip two_sample_wald welch'
    ),
    '.proportion': (
        'ArmCounts BetaPosterior Estimate NonInferiority PairCounts Rate absent_estimate barnard '
        'barnard_p_values barnard_region chance_better clopper_pearson clustered_wilson difference_credible '
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
    '.win': 'WinArm WinContrast WinDesign lost_contrast win_arm win_contrast',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
