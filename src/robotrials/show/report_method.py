"""The methods paragraph of a report, to be pasted into a paper, with the works it cites."""

from __future__ import annotations

from robotrials import __version__
from robotrials.show.document import Block, Passage, Section, paragraph, section
from robotrials.show.glossary import glossary
from robotrials.show.phrase import plural
from robotrials.show.report_pairs import correction_text
from robotrials.show.verdict_text import design_text, endpoint_name
from robotrials.verdict.analysis import Absent, Analysis, EndpointPairs, Ranking, RobustnessPart, SafetyPart
from robotrials.verdict.planning.analysis_plan import EndpointName

# What each part of an analysis rests on.
WORKS = {
    'timing': ('kaplan-meier', 'royston', 'phail', 'aalen-johansen'),
    'success': ('wilson',),
    'pairs': ('holm', 'piepho', 'mcnemar'),
    'safety': ('safevla', 'wilson'),
    'robustness': ('radar', 'newcombe', 'holm'),
}  # fmt: skip


def method_section(analysis: Analysis) -> Section:
    """The methods in words, and the full citations."""
    works = methods_works(analysis)
    known = glossary().references
    blocks: list[Block] = [
        paragraph('What was computed, in words that can be pasted into a paper; the works are listed below it.'),
        Passage(methods_text(analysis), '', 'Methods'),
    ]
    if works:
        blocks.append(Passage('\n'.join(known[key] for key in works), 'text', 'Works cited'))
    return section('methods', 'Methods', blocks)


def methods_works(analysis: Analysis) -> tuple[str, ...]:
    """Keys of the works that the methods paragraph cites."""
    parts: list[str] = []
    if isinstance(analysis.ranking, Ranking):
        parts += WORKS['timing']
    if not isinstance(analysis.success, Absent):
        parts += WORKS['success']
    if not isinstance(analysis.pairs, Absent):
        parts += WORKS['pairs']
    if isinstance(analysis.safety, SafetyPart):
        parts += WORKS['safety']
    if isinstance(analysis.robustness, RobustnessPart):
        parts += WORKS['robustness']
    return tuple(dict.fromkeys(parts))


def methods_text(analysis: Analysis) -> str:
    """One paragraph with every choice that changes a number."""
    told = [_design(analysis)]
    if isinstance(analysis.ranking, Ranking):
        told.append(_timing(analysis, analysis.ranking))
    if not isinstance(analysis.success, Absent):
        told.append(
            'Episode success is the share of valid episodes that succeeded, the equal-weight mean over strata; rates '
            'of single cells have Wilson (1927) intervals.'
        )
    told += [_endpoint(found) for found in _tested(analysis)]
    if not isinstance(analysis.pairs, Absent) and len(analysis.pairs.tested) > 1:
        told.append(
            'A policy is called better where at least one claim of the list is in its favour, none is against it, and '
            'on no other primary endpoint it looks worse (one-sided uncorrected p of at most 0.10); else it is a '
            'trade-off.'
        )
    if isinstance(analysis.safety, SafetyPart):
        told.append(_safety(analysis.safety))
    if isinstance(analysis.robustness, RobustnessPart) and not isinstance(analysis.robustness.drops, Absent):
        told.append(
            f'Robustness was measured as the drop in episode success from the condition '
            f'"{analysis.robustness.baseline}" (Chen et al. 2026) with Newcombe intervals, paired where the same start '
            'states were run, and Holm-corrected p-values over all policies and conditions.'
        )
    told.append(f'{analysis.statement} The analysis used robotrials {__version__}.')
    return ' '.join(told)


def _tested(analysis: Analysis) -> list[EndpointPairs]:
    if isinstance(analysis.pairs, Absent):
        return []
    return [found for found in analysis.pairs.endpoints.values() if isinstance(found, EndpointPairs)]


def _endpoint(found: EndpointPairs) -> str:
    role = 'primary' if found.is_primary else 'secondary'
    told = (
        f'As the {role} endpoint, {endpoint_name(found.endpoint)} was compared in {plural(len(found.pairs), "pair")}: '
        f'{design_text(found.pairs)[0].lower()}{design_text(found.pairs)[1:].rstrip(".")}, {correction_text(found)}at '
        f'alpha = {found.alpha:g}.'
    )
    if found.endpoint is EndpointName.TIME:
        told += (
            ' Who is faster was tested by the probability to be done first within strata, a try that is not done '
            'counting as later than any that is, with an allowance for losses not yet seen; the difference of '
            'restricted means is its size. Whether curves differ in shape was tested by the macro-averaged '
            'Kolmogorov-Smirnov distance with whole units exchanged within strata, and names nobody.'
        )
    if found.is_primary:
        told += ' Letters group policies of which nothing is claimed on the endpoint (Piepho 2004).'
    return told


def _design(analysis: Analysis) -> str:
    quality = analysis.quality
    n_valid = sum(arm.n_valid for arm in quality.arms)
    n_invalid = sum(arm.n_invalid for arm in quality.arms)
    told = (
        f'We evaluated {plural(len(quality.arms), "policy")} in {plural(n_valid, "valid episode")} '
        f'over {plural(len(quality.strata), "stratum")}'
    )
    if analysis.trial.plan_hash:
        closed = ', blinded until the trial was closed' if quality.was_blinded else ''
        closed = ', in a trial that was not yet closed' if quality.is_open else closed
        told += f', under a plan declared before the first rollout (hash {analysis.trial.plan_hash[:12]}){closed}'
    if analysis.selection.asked:
        chosen = ' and '.join(f'{k} {" or ".join(v)}' for k, v in analysis.selection.asked.items())
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


def _timing(analysis: Analysis, ranking: Ranking) -> str:
    told = (
        'The distribution of time to success was estimated by Kaplan and Meier (1958): operations still under way at '
        'the end of observation are censored, and failures are kept at risk for ever (Arkhangelskiy 2026). We report '
        f'the restricted mean time to success up to {ranking.times.tau_text} (Royston and Parmar 2013) as the '
        f'equal-weight mean over strata, with {100 * analysis.plan.level:g} % intervals by the jackknife over '
        f'{analysis.plan.unit}s with an allowance for failures not yet seen. How operations end was estimated by '
        'cumulative incidences under competing risks (Aalen and Johansen 1978).'
    )
    if ranking.reference:
        told += f' Human-relative throughput is measured against {ranking.reference}.'
    return told


def _safety(safety: SafetyPart) -> str:
    n = sum(cell.n for cell in safety.summary.cells)
    trajectories = f'{n:,} {"trajectory" if n == 1 else "trajectories"}'
    return (
        f'Safety was scored on {trajectories} by signal temporal logic specifications that apply to each task (Fan et '
        'al. 2026): an episode is safe when every one holds throughout; rates have Wilson intervals.'
    )
