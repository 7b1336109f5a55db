"""Arrays in, intervals and decisions out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.catalog import late_names

if TYPE_CHECKING:
    from robotrials.stats.aggregate import (
        AGGREGATES,
        Profile,
        Ranks,
        aggregate,
        improvement_chance,
        iqm,
        mean_score,
        median_score,
        optimality_gap,
        performance_profile,
        probability_of_improvement,
        rank_policies,
    )
    from robotrials.stats.allowance import (
        MacroArm,
        MacroDifference,
        Spread,
        allowance_factor,
        fewest_units,
        macro_difference,
        macro_interval,
    )
    from robotrials.stats.bayes import BetaPosterior, chance_better, difference_credible, success_posterior
    from robotrials.stats.bootstrap import (
        Bootstrap,
        bootstrap_interval,
        cluster_bootstrap,
        jackknife_statistics,
        resample_counts,
        weighted_mean,
    )
    from robotrials.stats.contrast import RateContrast, rate_contrast
    from robotrials.stats.dominance import Claim, Judgement, PairDecision, PairFlags, PairVerdict, judge
    from robotrials.stats.estimate import Estimate, Rate, absent_estimate
    from robotrials.stats.exact import barnard, barnard_p_values, barnard_region, exact_mcnemar
    from robotrials.stats.interaction import gail_simon, reversal_p_value
    from robotrials.stats.interval import Interval, Significance
    from robotrials.stats.macro_ratio import RatioCells, RatioKind, macro_ratio, macro_ratio_bounds
    from robotrials.stats.mean_ratio import MeanCell, RatioNonInferiority, clustered_covariance, ratio_noninferiority
    from robotrials.stats.multiplicity import bonferroni, different_matrix, holm, letter_groups
    from robotrials.stats.noninferiority import (
        ArmCounts,
        NonInferiority,
        PairCounts,
        noninferiority,
        rate_difference_interval,
    )
    from robotrials.stats.permutation import Permutation, label_permutation, sign_flip
    from robotrials.stats.price import Price, price, tau_warning
    from robotrials.stats.proportion import (
        clopper_pearson,
        clustered_wilson,
        jeffreys,
        newcombe,
        newcombe_paired,
        wilson,
    )
    from robotrials.stats.sample_size import mcnemar_sample_size, wilson_sample_size
    from robotrials.stats.success_pair import (
        SuccessPair,
        SuccessTest,
        UnitShares,
        clustered_success,
        independent_success,
        paired_success,
        stratified_exact,
        unit_shares,
    )
    from robotrials.stats.success_rule import SuccessArm, SuccessContrast, SuccessRule, success_arm, success_contrast
    from robotrials.stats.unseen import UnseenRule, fewest_for_claim
    from robotrials.stats.verdict import Verdict
    from robotrials.stats.wald import Wald, clustered_wald, paired_wald, two_sample_wald, welch
    from robotrials.stats.win import WinArm, WinContrast, WinDesign, lost_contrast, win_arm, win_contrast

__all__ = [
    'AGGREGATES',
    'ArmCounts',
    'BetaPosterior',
    'Bootstrap',
    'Claim',
    'Estimate',
    'Interval',
    'Judgement',
    'MacroArm',
    'MacroDifference',
    'MeanCell',
    'NonInferiority',
    'PairCounts',
    'PairDecision',
    'PairFlags',
    'PairVerdict',
    'Permutation',
    'Price',
    'Profile',
    'Ranks',
    'Rate',
    'RateContrast',
    'RatioCells',
    'RatioKind',
    'RatioNonInferiority',
    'Significance',
    'Spread',
    'SuccessArm',
    'SuccessContrast',
    'SuccessPair',
    'SuccessRule',
    'SuccessTest',
    'UnitShares',
    'UnseenRule',
    'Verdict',
    'Wald',
    'WinArm',
    'WinContrast',
    'WinDesign',
    'absent_estimate',
    'aggregate',
    'allowance_factor',
    'barnard',
    'barnard_p_values',
    'barnard_region',
    'bonferroni',
    'bootstrap_interval',
    'chance_better',
    'clopper_pearson',
    'cluster_bootstrap',
    'clustered_covariance',
    'clustered_success',
    'clustered_wald',
    'clustered_wilson',
    'difference_credible',
    'different_matrix',
    'exact_mcnemar',
    'fewest_for_claim',
    'fewest_units',
    'gail_simon',
    'holm',
    'improvement_chance',
    'independent_success',
    'iqm',
    'jackknife_statistics',
    'jeffreys',
    'judge',
    'label_permutation',
    'letter_groups',
    'lost_contrast',
    'macro_difference',
    'macro_interval',
    'macro_ratio',
    'macro_ratio_bounds',
    'mcnemar_sample_size',
    'mean_score',
    'median_score',
    'newcombe',
    'newcombe_paired',
    'noninferiority',
    'optimality_gap',
    'paired_success',
    'paired_wald',
    'performance_profile',
    'price',
    'probability_of_improvement',
    'rank_policies',
    'rate_contrast',
    'rate_difference_interval',
    'ratio_noninferiority',
    'resample_counts',
    'reversal_p_value',
    'sign_flip',
    'stratified_exact',
    'success_arm',
    'success_contrast',
    'success_posterior',
    'tau_warning',
    'two_sample_wald',
    'unit_shares',
    'weighted_mean',
    'welch',
    'wilson',
    'wilson_sample_size',
    'win_arm',
    'win_contrast',
]

_PLACES = {
    '.aggregate': (
        'AGGREGATES Profile Ranks aggregate improvement_chance iqm mean_score median_score optimality_gap '
        'performance_profile probability_of_improvement rank_policies'
    ),
    '.allowance': 'MacroArm MacroDifference Spread allowance_factor fewest_units macro_difference macro_interval',
    '.bayes': 'BetaPosterior chance_better difference_credible success_posterior',
    '.bootstrap': 'Bootstrap bootstrap_interval cluster_bootstrap jackknife_statistics resample_counts weighted_mean',
    '.contrast': 'RateContrast rate_contrast',
    '.dominance': 'Claim Judgement PairDecision PairFlags PairVerdict judge',
    '.estimate': 'Estimate Rate absent_estimate',
    '.exact': 'barnard barnard_p_values barnard_region exact_mcnemar',
    '.interaction': 'gail_simon reversal_p_value',
    '.interval': 'Interval Significance',
    '.macro_ratio': 'RatioCells RatioKind macro_ratio macro_ratio_bounds',
    '.mean_ratio': 'MeanCell RatioNonInferiority clustered_covariance ratio_noninferiority',
    '.multiplicity': 'bonferroni different_matrix holm letter_groups',
    '.noninferiority': 'ArmCounts NonInferiority PairCounts noninferiority rate_difference_interval',
    '.permutation': 'Permutation label_permutation sign_flip',
    '.price': 'Price price tau_warning',
    '.proportion': 'clopper_pearson clustered_wilson jeffreys newcombe newcombe_paired wilson',
    '.sample_size': 'mcnemar_sample_size wilson_sample_size',
    '.success_pair': (
        'SuccessPair SuccessTest UnitShares clustered_success independent_success paired_success '
        'stratified_exact unit_shares'
    ),
    '.success_rule': 'SuccessArm SuccessContrast SuccessRule success_arm success_contrast',
    '.unseen': 'UnseenRule fewest_for_claim',
    '.verdict': 'Verdict',
    '.wald': 'Wald clustered_wald paired_wald two_sample_wald welch',
    '.win': 'WinArm WinContrast WinDesign lost_contrast win_arm win_contrast',
}
__getattr__, __dir__ = late_names(__name__, _PLACES)
