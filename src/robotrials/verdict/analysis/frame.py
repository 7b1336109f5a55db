"""Who is compared on what: strata, comparable policies, the reference, and the condition that ranks them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robotrials.errors import InputError, UnknownName
from robotrials.measure.timing.operation import unit_of
from robotrials.record import Outcome
from robotrials.record.rows import EpisodeRows, IntArray, coded, distinct, pick
from robotrials.value import dataclass
from robotrials.verdict.analysis.selection import Absent
from robotrials.verdict.planning.analysis_plan import FailureRule, SuccessSource

if TYPE_CHECKING:
    from robotrials.measure.timing.operation import Unit
    from robotrials.record import Episode
    from robotrials.verdict.analysis.selection import Selection
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan

SEPARATOR = ' / '
A_FEW = 16


@dataclass(frozen=True, slots=True, eq=False)
class ComparisonFrame:
    """The episodes that policies are ranked by, cut into strata, and which policies may be ranked on them."""

    condition: str  # '' where the conditions of the source are taken together, because none is the baseline
    cells: Mapping[str, Mapping[str, Sequence[Episode]]]  # policy -> stratum -> valid episodes, both by name
    reference: str | None
    policies: tuple[str, ...]  # compared with each other, by name; the reference is not among them
    strata: tuple[str, ...]  # that they are compared on
    apart: Mapping[str, str]  # policies that are not ranked, and why
    left_out: tuple[str, ...]  # strata of the data that nobody is ranked on
    unscored: Mapping[str, int]  # policies none of whose episodes is valid, and how many they have
    invalid: Mapping[str, Sequence[Episode]]  # policy -> its INVALID episodes
    stratum_names: Mapping[tuple[str, str, str], str]  # (benchmark, task, stratum) -> name
    n_conditions: int
    cautions: tuple[str, ...]
    labels: dict[Hashable, Hashable] = field(default_factory=dict)  # of units, each kept once: many episodes share one

    def stratum_of(self, episode: Episode) -> str:
        return self.stratum_names[episode.benchmark, episode.task, episode.stratum]

    def ranked_cells(self, policy: str) -> dict[str, Sequence[Episode]]:
        """The policy's episodes in the strata that are ranked."""
        own = self.cells[policy]
        return {s: own[s] for s in self.strata if s in own}

    def unit_label(self, episode: Episode, unit: Unit) -> Hashable:
        """The label of the unit that the episode belongs to: the same object for every episode of the unit."""
        label = unit_of(episode, unit)
        return self.labels.setdefault(label, label)

    @property
    def everyone(self) -> tuple[str, ...]:
        """Every policy with a valid episode: the reference, those that are ranked, those that stand apart."""
        return (*((self.reference,) if self.reference else ()), *self.policies, *self.apart)


def build_frame(
    selection: Selection, plan: AnalysisPlan, by_cameras: Mapping[tuple[str, int], bool] | None = None
) -> ComparisonFrame | Absent:
    """The frame of a selection; absent where no policy has a valid episode.

    `by_cameras` is the success of the episodes that cameras could score, where the plan takes theirs.
    """
    taken, condition, n_conditions = ranked_episodes(selection.episodes, plan.baseline)
    projected = projected_episodes(taken, plan, by_cameras)
    names = stratum_names(projected, plan.stratify_by)
    cells, invalid = _places(projected, names)
    if not cells:
        return Absent('no policy has a valid episode', 'run or import episodes whose outcome is not invalid')
    frozen = {p: {s: pick(projected, cells[p][s]) for s in sorted(cells[p])} for p in sorted(cells)}
    reference = find_reference(frozen, plan.reference)
    policies, strata, unranked, left_out = comparable(
        {p: tuple(c) for p, c in frozen.items() if p != reference}, plan.policies, plan.strata
    )
    return ComparisonFrame(
        condition=condition, cells=frozen, reference=reference, policies=policies, strata=strata, apart=unranked,
        left_out=left_out, unscored={p: len(episodes) for p, episodes in invalid.items() if p not in frozen},
        invalid={p: pick(projected, episodes) for p, episodes in invalid.items()}, stratum_names=names,
        n_conditions=n_conditions, cautions=tuple(_cautions(projected, condition, n_conditions, left_out, plan)),
    )  # fmt: skip


def _places(
    episodes: Sequence[Episode], names: Mapping[tuple[str, str, str], str]
) -> tuple[dict[str, dict[str, IntArray]], dict[str, IntArray]]:
    """Where the valid episodes of each policy and stratum are, and its INVALID ones."""
    codes, kinds = coded(episodes, 'policy', 'benchmark', 'task', 'stratum', 'outcome')
    group = np.argsort(codes, kind='stable')
    ends = np.cumsum(np.bincount(codes, minlength=len(kinds)))
    cells: dict[str, dict[str, IntArray]] = {}
    invalid: dict[str, IntArray] = {}
    for (policy, benchmark, task, stratum, outcome), own in zip(kinds, np.split(group, ends[:-1]), strict=True):
        if outcome is Outcome.INVALID:
            into, name = invalid, policy
        else:
            into, name = cells.setdefault(policy, {}), names[benchmark, task, stratum]
        into[name] = np.sort(np.concatenate([into[name], own])) if name in into else own
    return cells, invalid


def ranked_episodes(episodes: Sequence[Episode], baseline: str) -> tuple[Sequence[Episode], str, int]:
    """The episodes that policies are ranked by: those of the baseline condition where there is one.

    The second value names the condition; it is '' where several are taken together because none is the baseline.
    """
    conditions = {condition for (condition,) in distinct(episodes, 'condition')}
    if len(conditions) == 1:
        return episodes, conditions.pop(), 1
    if baseline in conditions:
        codes, kinds = coded(episodes, 'condition')
        return pick(episodes, np.flatnonzero(codes == kinds.index((baseline,)))), baseline, len(conditions)
    return episodes, '', len(conditions)


def projected_episodes(
    episodes: Sequence[Episode], plan: AnalysisPlan, by_cameras: Mapping[tuple[str, int], bool] | None = None
) -> Sequence[Episode]:
    """The episodes as the plan reads them; a constant seed column is no start state."""
    startless = _constant_starts(episodes)
    if isinstance(episodes, EpisodeRows):
        return _projected_rows(episodes, plan, by_cameras, startless)

    def change(episode: Episode) -> Episode:
        changed = project(episode, plan, by_cameras)
        return changed.replace(seed=None, instance=None) if episode.policy in startless else changed

    return [change(episode) for episode in episodes]


def _projected_rows(
    rows: EpisodeRows, plan: AnalysisPlan, by_cameras: Mapping[tuple[str, int], bool] | None, startless: frozenset[str]
) -> EpisodeRows:
    """`project` and starts that are none, in whole columns."""
    whole, values = rows.whole, {}
    if plan.success is SuccessSource.OUTCOME:
        values['success'] = pa.nulls(len(whole), pa.bool_())
    if by_cameras:
        successes = values.get('success', whole.array('success')).to_pylist()
        values['success'] = pa.array(
            [by_cameras.get(e.key, t) for e, t in zip(whole, successes, strict=True)], pa.bool_()
        )
    if plan.failure is FailureRule.CENSORED:
        failed = pa.array(whole.ended(Outcome.FAILURE))
        values['is_unrecoverable'] = pc.if_else(failed, False, whole.array('is_unrecoverable'))
    if startless:
        codes, policies = whole.codes('policy')
        is_startless = pa.array(np.array([policy in startless for (policy,) in policies])[codes])
        for name in ('seed', 'instance'):
            values[name] = pc.if_else(is_startless, pa.scalar(None, pa.int64()), whole.array(name))
    return rows.with_columns(values) if values else rows


def _constant_starts(episodes: Sequence[Episode]) -> frozenset[str]:
    """Policies with several valid episodes that all carry one seed and instance, and no numbered repeats."""
    codes, kinds = coded(episodes, 'policy', 'outcome')
    constant = set()
    for policy in {policy for policy, _ in kinds}:
        is_own = np.array([name == policy and outcome is not Outcome.INVALID for name, outcome in kinds])
        places = np.flatnonzero(is_own[codes])
        looks = (places[:A_FEW], places)  # where starts differ, a few episodes tell
        if len(places) > 1 and all(_has_one_start(pick(episodes, look)) for look in looks):
            constant.add(policy)
    return frozenset(constant)


def _has_one_start(episodes: Sequence[Episode]) -> bool:
    (seed, instance, _), *others = distinct(episodes, 'seed', 'instance', 'repeat')
    return not others and (seed, instance) != (None, None)


def project(episode: Episode, plan: AnalysisPlan, by_cameras: Mapping[tuple[str, int], bool] | None = None) -> Episode:
    """The episode as the plan reads it: what counts as a success, and what an early failure means."""
    if plan.success is SuccessSource.OUTCOME and episode.success is not None:
        episode = episode.replace(success=None)
    if by_cameras is not None and episode.key in by_cameras:
        episode = episode.replace(success=by_cameras[episode.key])
    is_early = plan.failure is FailureRule.CENSORED and episode.outcome is Outcome.FAILURE
    return episode.replace(is_unrecoverable=False) if is_early else episode


def stratum_names(episodes: Iterable[Episode], fields: Sequence[str]) -> dict[tuple[str, str, str], str]:
    """A name for every benchmark x task x object: the declared fields that vary, or the task where none does."""
    keys = sorted(distinct(episodes, 'benchmark', 'task', 'stratum'))
    places = [k for k, name in enumerate(('benchmark', 'task', 'stratum')) if name in fields]
    varying = [k for k in places if len({key[k] for key in keys}) > 1]
    if not varying:
        last = next((k for k in reversed(places) if keys and keys[0][k]), 1)
        return {key: key[last] for key in keys}
    return {key: SEPARATOR.join(key[k] for k in varying if key[k]) or key[1] for key in keys}


def find_reference(policies: Mapping[str, Mapping[str, Sequence[Episode]]], named: str) -> str | None:
    """The declared reference, or the only policy that is marked as one; None when there is none."""
    if named:
        if named not in policies:
            raise UnknownName('policy', named, policies)
        return named
    marked = []
    for policy, cells in policies.items():
        flags = {flag for episodes in cells.values() for (flag,) in distinct(episodes, 'is_reference')}
        if len(flags) > 1:
            raise InputError(f'{policy}: some episodes say is_reference and some do not; correct one of them')
        if flags == {True}:
            marked.append(policy)
    if len(marked) > 1:
        raise InputError(f'several policies are marked as the reference ({", ".join(marked)}); declare the one to use')
    return marked[0] if marked else None


def comparable(
    strata_of: Mapping[str, Sequence[str]], policies: Sequence[str], declared: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, str], tuple[str, ...]]:
    """Policies that may be ranked, the strata they are ranked on, those that stand apart and why, and strata left out.

    On the declared strata; undeclared: on all strata if at least two policies have them all, else on those that all
    policies share. A policy that lacks one is never ranked ahead of others because its strata were easier.
    """
    for name in policies:
        if name not in strata_of:
            raise UnknownName('policy', name, strata_of)
    chosen = {p: set(s) for p, s in strata_of.items() if not policies or p in policies}
    unranked = {p: 'not among the policies of the analysis' for p in strata_of if p not in chosen}
    every = sorted(set().union(*chosen.values())) if chosen else []
    for name in declared:
        if name not in every:
            raise UnknownName('stratum', name, every)
    strata = list(declared) or _common_strata(chosen, every)
    ranked = []
    for policy in sorted(chosen):
        lacking = [s for s in strata if s not in chosen[policy]]
        if lacking or not strata:
            unranked[policy] = (
                _lacks(lacking, len(strata)) if strata else 'it shares no stratum with every other policy'
            )
        else:
            ranked.append(policy)
    left_out = tuple(s for s in every if s not in strata)
    return tuple(ranked), tuple(sorted(strata)), unranked, left_out


def _common_strata(chosen: Mapping[str, set[str]], every: Sequence[str]) -> list[str]:
    if sum(own == set(every) for own in chosen.values()) >= min(2, len(chosen)):
        return list(every)
    return sorted(set.intersection(*chosen.values())) if chosen else []


def _lacks(lacking: Sequence[str], n: int) -> str:
    names = ', '.join(lacking[:3]) + (', ...' if len(lacking) > 3 else '')
    return f'it was not run on {len(lacking)} of {n} strata ({names})'


def _cautions(
    episodes: Sequence[Episode], condition: str, n_conditions: int, left_out: Sequence[str], plan: AnalysisPlan
) -> Iterable[str]:
    if n_conditions > 1 and not condition:
        yield f'{n_conditions} conditions are pooled, because none of them is the baseline ({plan.baseline}).'
    if left_out:
        names = ', '.join(left_out[:3]) + (', ...' if len(left_out) > 3 else '')
        n = f'{len(left_out)} strata' if len(left_out) > 1 else 'one stratum'
        yield f'Not every policy was run on {n} ({names}); policies are ranked on the others.'
    pooled = [name for name in ('benchmark', 'task', 'stratum') if name not in plan.stratify_by]
    for name in pooled:
        if len(distinct(episodes, name)) > 1:
            yield f'Episodes of different {name} are pooled into one stratum, as declared.'
