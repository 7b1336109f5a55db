"""The methods paragraph of a report, to be pasted into a paper, with the works it cites."""

from __future__ import annotations

from trialist import __version__
from trialist.analysis import Absent, Ranking, RobustnessPart, SafetyPart, TrialReport
from trialist.analysis.pairs import AllPairs
from trialist.show.document import Block, Passage, Section, paragraph, section
from trialist.show.glossary import glossary
from trialist.show.phrase import plural

# What each part of an analysis rests on.
WORKS = {
    'timing': ('kaplan-meier', 'royston', 'phail', 'wilson', 'efron'),
    'pairs': ('holm', 'piepho'),
    'safety': ('safevla', 'wilson'),
    'robustness': ('radar', 'newcombe', 'holm'),
}  # fmt: skip


def method_section(report: TrialReport) -> Section:
    """The methods in words, and the full citations."""
    works = methods_works(report)
    known = glossary().references
    blocks: list[Block] = [
        paragraph('What was computed, in words that can be pasted into a paper; the works are listed below it.'),
        Passage(methods_text(report), '', 'Methods'),
    ]
    if works:
        blocks.append(Passage('\n'.join(known[key] for key in works), 'text', 'Works cited'))
    return section('methods', 'Methods', blocks)


def methods_works(report: TrialReport) -> tuple[str, ...]:
    """Keys of the works that the methods paragraph cites."""
    parts = []
    if isinstance(report.ranking, Ranking):
        parts += [*WORKS['timing'], *(WORKS['pairs'] if isinstance(report.ranking.pairs, AllPairs) else ())]
    if isinstance(report.safety, SafetyPart):
        parts += WORKS['safety']
    if isinstance(report.robustness, RobustnessPart):
        parts += WORKS['robustness']
    return tuple(dict.fromkeys(parts))


def methods_text(report: TrialReport) -> str:
    """One paragraph with every choice that changes a number."""
    told = [_design(report)]
    if isinstance(report.ranking, Ranking):
        told.append(_timing(report, report.ranking))
    if isinstance(report.safety, SafetyPart):
        told.append(_safety(report.safety))
    if isinstance(report.robustness, RobustnessPart) and not isinstance(report.robustness.drops, Absent):
        told.append(
            f'Robustness was measured as the drop in success from the condition "{report.robustness.baseline}" (Chen '
            'et '
            'al. 2026) with Newcombe intervals, paired where the same start states were run, and Holm-corrected '
            'p-values '
            'over all policies and conditions.'
        )
    told.append(f'The analysis used trialist {__version__}, seed {report.options.seed}.')
    return ' '.join(told)


def _design(report: TrialReport) -> str:
    quality = report.quality
    n_valid = sum(arm.n_valid for arm in quality.arms)
    n_invalid = sum(arm.n_invalid for arm in quality.arms)
    told = (
        f'We evaluated {plural(len(quality.arms), "policy")} in {plural(n_valid, "valid episode")} '
        f'over {plural(len(quality.strata), "stratum")}'
    )
    if report.trial.plan_hash:
        closed = ', blinded until the trial was closed' if quality.was_blinded else ''
        closed = ', in a trial that was not yet closed' if quality.is_open else closed
        told += f', under a plan declared before the first rollout (hash {report.trial.plan_hash[:12]}){closed}'
    if report.selection:
        chosen = ' and '.join(f'{k} {" or ".join(v)}' for k, v in report.selection.items())
        told += f' (only those with {chosen})'
    told += '. '
    if n_invalid:
        were = 'was' if n_invalid == 1 else 'were'
        told += (
            f'{n_invalid:,} further episode{"" if n_invalid == 1 else "s"} {were} invalid (the rig broke, not the '
            f'policy) and {were} not scored. '
        )
    if quality.n_shared_scenes and len(quality.arms) > 1:
        were = 'was' if quality.n_shared_scenes == 1 else 'were'
        told += f'{plural(quality.n_shared_scenes, "start state")} {were} met by every policy. '
    return told.strip()


def _timing(report: TrialReport, ranking: Ranking) -> str:
    options = report.options
    told = (
        'The endpoint was time to success: its distribution was estimated by Kaplan and Meier (1958), operations still '
        'under '
        'way at the end of watching being censored and hard failures kept at risk for ever (Arkhangelskiy 2026). We '
        'report '
        f'the restricted mean time to success up to {ranking.tau_s:g} s (Royston and Parmar 2013) as the equal-weight '
        'mean '
        f'over strata, with {100 * options.level:g} % percentile intervals from {options.n_resamples:,} bootstrap '
        'resamples of whole episodes within strata (Efron 1987), and success rates with Wilson (1927) intervals.'
    )
    if ranking.reference:
        told += f' Human-relative throughput is measured against {ranking.reference}.'
    if isinstance(ranking.pairs, AllPairs):
        told += (
            ' Pairs of policies were compared by the macro-averaged Kolmogorov-Smirnov distance with a permutation '
            'test of '
            f'whole episodes within strata ({options.n_resamples:,} permutations), corrected by Holm (1979) over '
            f'{plural(len(ranking.pairs.comparisons), "pair")} at alpha = {options.alpha:g}; letters '
            'group policies that are not told apart (Piepho 2004).'
        )
    return told


def _safety(safety: SafetyPart) -> str:
    n = sum(cell.n for cell in safety.summary.cells)
    trajectories = f'{n:,} {"trajectory" if n == 1 else "trajectories"}'
    return (
        f'Safety was scored on {trajectories} by signal temporal logic specifications that apply to each task (Fan et '
        'al. 2026): an episode is safe when every one holds throughout; rates have Wilson intervals.'
    )
