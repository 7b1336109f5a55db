"""A report's sections on the data themselves: quality, provenance, policy cards, the plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from robotrials import __version__
from robotrials.record import Provenance, Unblinding
from robotrials.show.document import Block, Missing, Passage, Section, paragraph, section, table_block
from robotrials.show.pair_table import correction_text
from robotrials.show.phrase import design_text, endpoint_name, glossary, plural
from robotrials.show.table import Cell, Column, Table, table, without_empty
from robotrials.verdict.analysis import (
    Absent,
    Analysis,
    DataQuality,
    EndpointPairs,
    KnownPolicy,
    Presence,
    Ranking,
    RobustnessPart,
    SafetyPart,
)
from robotrials.verdict.planning.analysis_plan import EndpointName

CARD_FIELDS = (
    'checkpoint', 'training_data', 'training_steps', 'frozen_parts', 'state_representation', 'action_representation',
    'chunk_length', 'image_resolution_px', 'notes',
)  # fmt: skip


def quality_section(analysis: Analysis) -> Section:
    quality = analysis.quality
    blocks: list[Block] = [paragraph(sentence) for sentence in quality_sentences(quality)]
    filters = [{'policy': (arm.policy,)} for arm in quality.arms]
    definitions = {
        'valid': 'episode', 'invalid': 'invalid', 'smallest cell': 'cell', 'largest cell': 'cell', 'position': 'order',
    }  # fmt: skip
    blocks.append(table_block('quality-arms', arm_table(quality), definitions, episodes=filters))
    if quality.invalid_reasons:
        rows = sorted(quality.invalid_reasons.items(), key=lambda item: -item[1])
        blocks.append(
            table_block('quality-invalid', table('Why episodes are invalid', ['reason', 'episodes'], rows), {})
        )
    blocks.append(
        table_block('quality-facts', presence_table('What episodes record', quality.facts), {}, is_folded=True)
    )
    if analysis.n_trajectories:
        sheet = presence_table(f'What {analysis.n_trajectories:,} trajectories record', analysis.signals)
        blocks.append(table_block('quality-signals', sheet, {}, is_folded=True))
    else:
        blocks.append(Missing('Trajectories', 'none is in the store', 'record them with robotrials run'))
    if quality.edits:
        blocks.append(table_block('quality-edits', edit_table(quality), {}, is_folded=len(quality.edits) > 12))
    return section('quality', 'Data quality', blocks)


def quality_sentences(quality: DataQuality) -> list[str]:
    """What a careful reader should know of the data, in words."""
    n_valid, n_invalid = (sum(getattr(arm, name) for arm in quality.arms) for name in ('n_valid', 'n_invalid'))
    cells = [n for arm in quality.arms for n in (arm.smallest_cell, arm.largest_cell)]
    if not quality.strata:
        balance = 'No policy has a valid episode.'
    elif quality.is_balanced:
        balance = f'Every policy has {plural(cells[0], "valid episode")} in every stratum.'
    else:
        balance = f'Cells are not balanced: they hold {min(cells)} to {max(cells)} valid episodes.'
    parts = [
        f'{n_valid:,} valid and {plural(n_invalid, "invalid episode")}; {plural(quality.n_superseded, "attempt")} '
        f'superseded by another of the same episode, {quality.n_dropped:,} dropped by edits, '
        f'{plural(len(quality.edits), "edit")}. {balance}'
    ]
    if quality.n_scenes and len(quality.arms) > 1:
        parts.append(
            f'{quality.n_shared_scenes:,} of {plural(quality.n_scenes, "start state")} '
            f'{"was" if quality.n_shared_scenes == 1 else "were"} met by every policy.'
        )
    if quality.order_p_value is None and len(quality.arms) > 1:
        parts.append('In which order the policies were run is not recorded.')
    elif quality.order_p_value is not None:
        verdict = 'is uneven' if quality.order_p_value < 0.01 else 'shows no imbalance'
        parts.append(
            f'The order in which policies were run {verdict} (Kruskal-Wallis p = {quality.order_p_value:.3g}).'
        )
    if len(quality.conditions) > 1:
        named = ', '.join(f'{name} ({n:,})' for name, n in sorted(quality.conditions.items()))
        parts.append(f'Conditions and their valid episodes: {named}.')
    return parts


def arm_table(quality: DataQuality) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (arm.policy, arm.is_reference, arm.n_valid, arm.n_invalid, arm.n_strata, arm.smallest_cell, arm.largest_cell,
         arm.mean_position)
        for arm in quality.arms
    ]  # fmt: skip
    columns = ['policy', 'reference', 'valid', 'invalid', 'strata', 'smallest cell', 'largest cell']
    return without_empty(table('Episodes of each policy', [*columns, Column('position', '.2f')], rows))


def presence_table(title: str, presences: Sequence[Presence]) -> Table:
    rows = [(p.name, p.n_present, p.n, 100 * p.n_present / p.n if p.n else None) for p in presences]
    return table(title, ['fact', 'present', 'of', Column('%', '.0f')], rows)


def edit_table(quality: DataQuality) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (e.at, e.by, e.episode_id[:12], e.operation.value, f'{e.field} = {e.value}' if e.field else None, e.why)
        for e in quality.edits
    ]
    return table('Edits', ['at', 'by', 'episode', 'operation', 'change', 'why'], rows)


def provenance_section(analysis: Analysis) -> Section:
    trial = analysis.trial
    blocks: list[Block] = []
    facts: list[tuple[Cell, ...]] = [
        ('trial', trial.title or trial.trial_id or None), ('store', analysis.source), ('created', trial.created_at),
        ('head of the commit log', analysis.head or None),
        ('plan hash', trial.plan_hash or None), ('analysis', analysis.declared.standing),
        ('analysis hash', analysis.plan.hash),
        ('closed', '; '.join(_opening(o) for o in analysis.quality.openings) or None),
        # How well arms could be guessed while the trial was open, as it was measured at closing.
        *((f'leakage to the operator, from {leak.source}', str(leak))
          for o in analysis.quality.openings for leak in o.leakage),
    ]  # fmt: skip
    sheet = table('The trial', ['fact', 'value'], [row for row in facts if row[1] is not None])
    blocks.append(table_block('trial-table', sheet, {}))
    if not trial.plan_hash:
        reason = 'these episodes were imported, not run under a plan declared first'
        blocks.append(Missing('A plan', reason, 'robotrials plan, robotrials run'))
    blocks += _cards(analysis.known_policies, [arm.policy for arm in analysis.quality.arms])
    if any(origin.protocol for origin, _ in analysis.provenance):
        blocks.append(table_block('protocol-table', protocol_table(analysis.provenance), {}))
    if analysis.provenance:
        blocks.append(table_block('provenance-table', provenance_table(analysis.provenance), {}, is_folded=True))
    else:
        blocks.append(Missing('Provenance', 'no episode says where it came from', 'robotrials run records it'))
    plan = _plan_text(analysis)
    if plan:
        blocks.append(Passage(plan, 'json', 'The plan as declared'))
    return section('provenance', 'Provenance, policy cards and plan', blocks)


def _opening(unblinding: Unblinding) -> str:
    return f'{unblinding.at} by {unblinding.by}' + (f' ({unblinding.why})' if unblinding.why else '')


def _plan_text(analysis: Analysis) -> str:
    """The plan that was opened at closing, or the one in the store's description, laid out for reading."""
    text = next((o.plan for o in analysis.quality.openings if o.plan), analysis.trial.plan)
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except json.JSONDecodeError:
        return text


def _cards(known: Mapping[str, KnownPolicy], policies: Sequence[str]) -> list[Block]:
    if not known:
        remedy = 'declare them in the plan: card = {checkpoint = "...", training_data = "..."} under [policies.NAME]'
        return [Missing('Policy cards', 'nothing is recorded of how the policies were made', remedy)]
    rows: list[tuple[Cell, ...]] = []
    for policy in policies:
        card = known.get(policy)
        values = [getattr(card.card, name) if card else None for name in CARD_FIELDS]
        cells = [None if v in ('', None) else (v if isinstance(v, int) else _joined(v)) for v in values]
        rows.append((policy, (card.declared or None) if card else None, *cells))
    named = [name.replace('_', ' ') for name in CARD_FIELDS]
    cards = without_empty(table('Policy cards', ['policy', 'declared as', *named], rows, note='a dash is unknown'))
    return [table_block('card-table', cards, {})]


def _joined(value: object) -> str:
    return ' x '.join(map(str, value)) if isinstance(value, tuple) else str(value)


def provenance_table(origins: Sequence[tuple[Provenance, int]]) -> Table:
    """Every origin's known facts; what none of them knows is named in the note."""
    rows: list[tuple[Cell, ...]] = []
    for place, (origin, n) in enumerate(origins, start=1):
        for name, value in origin.as_json().items():
            if name not in ('policy_cards', 'protocol') and value not in ('', None, [], {}):
                words = ', '.join(f'{k} {v}' for k, v in value.items()) if isinstance(value, dict) else str(value)
                rows.append((place, n, name.replace('_', ' '), words))
    unknown = set.intersection(*(set(origin.missing()) for origin, _ in origins))
    note = f'Not recorded: {", ".join(sorted(unknown)).replace("_", " ")}.' if unknown else ''
    return table('Where the episodes came from', ['origin', 'episodes', 'fact', 'value'], rows, note=note)


def protocol_table(origins: Sequence[tuple[Provenance, int]]) -> Table:
    """What hosts state of their own rules: equal values mean that results are about the same thing."""
    counts: dict[tuple[str, str], int] = {}
    for origin, n in origins:
        for name, value in origin.protocol.items():
            counts[name, value] = counts.get((name, value), 0) + n
    rows: list[tuple[Cell, ...]] = [(name.replace('_', ' '), value, n) for (name, value), n in counts.items()]
    return table('The protocol, as the host states it', ['fact', 'value', 'episodes'], rows)


# The methods paragraph of a report, to be pasted into a paper, with the works it cites.

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
    sentences = [_design(analysis)]
    if isinstance(analysis.ranking, Ranking):
        sentences.append(_timing(analysis, analysis.ranking))
    if not isinstance(analysis.success, Absent):
        sentences.append(
            'Episode success is the share of valid episodes that succeeded, the equal-weight mean over strata; rates '
            'of single cells have Wilson (1927) intervals.'
        )
    endpoints = () if isinstance(analysis.pairs, Absent) else analysis.pairs.endpoints.values()
    sentences += [_endpoint(endpoint) for endpoint in endpoints if isinstance(endpoint, EndpointPairs)]
    if not isinstance(analysis.pairs, Absent) and len(analysis.pairs.tested) > 1:
        sentences.append(
            'A policy is called better where at least one claim of the list is in its favour, none is against it, and '
            'on no other primary endpoint it looks worse (one-sided uncorrected p of at most 0.10); else it is a '
            'trade-off.'
        )
    if isinstance(analysis.safety, SafetyPart):
        sentences.append(_safety(analysis.safety))
    if isinstance(analysis.robustness, RobustnessPart) and not isinstance(analysis.robustness.drops, Absent):
        sentences.append(
            f'Robustness was measured as the drop in episode success from the condition '
            f'"{analysis.robustness.baseline}" (Chen et al. 2026) with Newcombe intervals, paired where the same start '
            'states were run, and Holm-corrected p-values over all policies and conditions.'
        )
    sentences.append(f'{analysis.statement} The analysis used robotrials {__version__}.')
    return ' '.join(sentences)


def _endpoint(pairs: EndpointPairs) -> str:
    role = 'primary' if pairs.is_primary else 'secondary'
    words = (
        f'As the {role} endpoint, {endpoint_name(pairs.endpoint)} was compared in {plural(len(pairs.pairs), "pair")}: '
        f'{design_text(pairs.pairs)[0].lower()}{design_text(pairs.pairs)[1:].rstrip(".")}, {correction_text(pairs)}at '
        f'alpha = {pairs.alpha:g}.'
    )
    if pairs.endpoint is EndpointName.TIME:
        words += (
            ' Who is faster was tested by the probability to be done first within strata, a try that is not done '
            'counting as later than any that is, with an allowance for losses not yet seen; the difference of '
            'restricted means is its size. Whether curves differ in shape was tested by the macro-averaged '
            'Kolmogorov-Smirnov distance with whole units exchanged within strata, and names nobody.'
        )
    if pairs.is_primary:
        words += ' Letters group policies of which nothing is claimed on the endpoint (Piepho 2004).'
    return words


def _design(analysis: Analysis) -> str:
    quality = analysis.quality
    n_valid = sum(arm.n_valid for arm in quality.arms)
    n_invalid = sum(arm.n_invalid for arm in quality.arms)
    words = (
        f'We evaluated {plural(len(quality.arms), "policy")} in {plural(n_valid, "valid episode")} '
        f'over {plural(len(quality.strata), "stratum")}'
    )
    if analysis.trial.plan_hash:
        closed = ', blinded until the trial was closed' if quality.was_blinded else ''
        closed = ', in a trial that was not yet closed' if quality.is_open else closed
        words += f', under a plan declared before the first rollout (hash {analysis.trial.plan_hash[:12]}){closed}'
    if analysis.selection.asked:
        chosen = ' and '.join(f'{k} {" or ".join(v)}' for k, v in analysis.selection.asked.items())
        words += f' (only those with {chosen})'
    words += '. '
    if n_invalid:
        were = 'was' if n_invalid == 1 else 'were'
        words += (
            f'{n_invalid:,} further episode{"" if n_invalid == 1 else "s"} {were} invalid (the rig broke, not the '
            f'policy) and {were} not scored. '
        )
    if quality.n_shared_scenes and len(quality.arms) > 1:
        were = 'was' if quality.n_shared_scenes == 1 else 'were'
        words += f'{plural(quality.n_shared_scenes, "start state")} {were} met by every policy. '
    return words.strip()


def _timing(analysis: Analysis, ranking: Ranking) -> str:
    words = (
        'The distribution of time to success was estimated by Kaplan and Meier (1958): operations still under way at '
        'the end of observation are censored, and failures are kept at risk for ever (Arkhangelskiy 2026). We report '
        f'the restricted mean time to success up to {ranking.times.tau_text} (Royston and Parmar 2013) as the '
        f'equal-weight mean over strata, with {100 * analysis.plan.level:g} % intervals by the jackknife over '
        f'{analysis.plan.unit}s with an allowance for failures not yet seen. How operations end was estimated by '
        'cumulative incidences under competing risks (Aalen and Johansen 1978).'
    )
    if ranking.reference:
        words += f' Human-relative throughput is measured against {ranking.reference}.'
    return words


def _safety(safety: SafetyPart) -> str:
    n = sum(cell.n for cell in safety.summary.cells)
    trajectories = f'{n:,} {"trajectory" if n == 1 else "trajectories"}'
    return (
        f'Safety was scored on {trajectories} by signal temporal logic specifications that apply to each task (Fan et '
        'al. 2026): an episode is safe when every one holds throughout; rates have Wilson intervals.'
    )
