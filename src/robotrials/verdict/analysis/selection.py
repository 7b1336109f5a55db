"""Which episodes are analysed, and who is compared on what.

Episodes come in one canonical order, so that rows may be shuffled. A frame holds the strata, the comparable policies,
the reference, and the condition that ranks them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robotrials.errors import InputError, NotEstimable, RecordError, UnknownName
from robotrials.measure.timing.operation import unit_of
from robotrials.record import Episode, Outcome, TrialInfo
from robotrials.record.counted import counted_columns
from robotrials.record.rows import (
    EPISODE_FIELDS,
    EpisodeRows,
    IntArray,
    coded,
    distinct,
    distinct_values,
    episodes_from_arrow,
    keeps_rules,
    ordered_columns,
    ordered_rows,
    pick,
)
from robotrials.value import dataclass
from robotrials.verdict.planning.analysis_plan import FailureRule, SuccessSource

if TYPE_CHECKING:
    from robotrials.measure.timing.operation import Unit
    from robotrials.record import Store, Trajectory
    from robotrials.record.blinding import Where
    from robotrials.verdict.planning.analysis_plan import AnalysisPlan


# What stands in the place of a part that the data cannot give.

T = TypeVar('T')


@dataclass(frozen=True, slots=True)
class Absent:
    """A part of an analysis that these data cannot give: why, and what would change that.

    `command` is one to begin with, for whoever asked for this part alone.
    """

    reason: str
    remedy: str = ''
    command: str = ''

    @property
    def sentence(self) -> str:
        return f'{self.reason}; {self.remedy}' if self.remedy else self.reason


CHANGED = 'run the same seeds under changed conditions, which a plan lists under `conditions`'


def unchanged_world(conditions: Sequence[str]) -> Absent:
    """Why nothing can be said of a changed world: these are the conditions of the valid episodes, one or none."""
    if not conditions:
        return Absent('no valid episode: nothing tested a policy under a condition', CHANGED)
    return Absent(f'all episodes were run under one condition ({conditions[0]})', CHANGED)


def present(part: T | Absent) -> T:
    """The part, or NotEstimable with the reason why it is absent."""
    if isinstance(part, Absent):
        raise NotEstimable(f'{part.sentence}\nTry: {part.command}' if part.command else part.sentence)
    return part


def or_absent(compute: Callable[[], T], *, remedy: str = '') -> T | Absent:
    """What `compute` gives, or why it cannot."""
    try:
        return compute()
    except (NotEstimable, InputError) as error:
        return Absent(str(error), remedy)


# Random streams: one per quantity, so that no digit depends on who asks, in which order, or what else is shown.


def stream(seed: int, quantity: str, *names: str) -> np.random.Generator:
    """The generator of one quantity of these policies (sort the names where their order means nothing)."""
    text = json.dumps([seed, quantity, *names], separators=(',', ':')).encode()
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text).digest()[:16], 'little'))


# One name per task where sources name it differently: a number, its sentence, or the name of its file.
# LIBERO's host names a task by its number in the suite, other people's results by its sentence or its BDDL file. The
# registry lists all three for its 130 tasks. Names are a projection: ids and the record keep what each source said,
# and where only one name of a task is there, it stays.

TaskName = tuple[str, str]  # the benchmark and the task, as a source names them
SAME_BENCHMARK: Mapping[str, str] = {'libero-long': 'libero-10'}  # two names for the same ten tasks


def one_name(present: Iterable[TaskName]) -> dict[TaskName, TaskName]:
    """The names to replace, each with its canonical one: of every task that stands there under several names."""
    groups: dict[TaskName, set[TaskName]] = {}
    names = set(present)
    for name in names if len(names) > 1 else ():
        known = canonical_name(*name)
        if known is not None:
            groups.setdefault(known, set()).add(name)
    return {name: known for known, names in groups.items() if len(names) > 1 for name in names if name != known}


def canonical_name(benchmark: str, task: str) -> TaskName | None:
    """The ids of benchmark and task, by the task's id, its sentence or its file; None where it is not listed, or a
    sentence stands for several tasks, as some of LIBERO-90's do.
    """
    if not benchmark:  # as in most tables: nothing to look up
        return None
    ids = _listed_tasks().get(_folded(benchmark), {}).get(_folded(task), frozenset())
    return next(iter(ids)) if len(ids) == 1 else None


def with_one_name(episodes: Iterable[Episode], names: Mapping[TaskName, TaskName]) -> Iterator[Episode]:
    """The episodes under these names; ids stay, so that nothing counts twice."""
    for episode in episodes:
        known = names.get((episode.benchmark, episode.task))
        yield episode if known is None else episode.replace(benchmark=known[0], task=known[1])


def names_in(store: Store, *, where: Where | None = None) -> set[TaskName]:
    """The benchmarks and tasks of a store's counted episodes."""
    table = counted_columns(store, ['benchmark', 'task'], where=where).select(['benchmark', 'task'])
    return {(benchmark or '', task) for benchmark, task in distinct_values(table)}


def by_any_name(store: Store, where: Where | None) -> Where | None:
    """A filter by task that finds the task under every name it has in the store."""
    if not where or 'task' not in where:
        return where
    asked = where['task']
    wanted = set(asked if isinstance(asked, list | tuple | set | frozenset) else (asked,))
    names = one_name(names_in(store))
    ids = {known for name, known in names.items() if name[1] in wanted or known[1] in wanted}
    more = {task for name, known in names.items() if known in ids for task in (name[1], known[1])}
    return {**where, 'task': sorted(wanted | more)} if more else where


@cache
def _listed_tasks() -> Mapping[str, Mapping[str, frozenset[TaskName]]]:
    """Benchmark -> name of a task, in any spelling -> the tasks it may be."""
    from robotrials.measure.safety import load_registry

    registry = load_registry()
    listed: dict[str, dict[str, set[TaskName]]] = {}
    for entry in registry.entries:
        benchmark = registry.benchmarks[entry.benchmark]
        known = SAME_BENCHMARK.get(benchmark.id, benchmark.id), entry.id
        spellings = {benchmark.id, *benchmark.aliases}
        spellings |= {n for other, same in SAME_BENCHMARK.items() if same == benchmark.id for n in (other,)}
        for spelling in spellings:
            tasks = listed.setdefault(_folded(spelling), {})
            for name in filter(None, (entry.id, entry.name, entry.instruction)):
                tasks.setdefault(_folded(name), set()).add(known)
    return {spelling: {name: frozenset(ids) for name, ids in tasks.items()} for spelling, tasks in listed.items()}


@cache
def _folded(text: str) -> str:
    """Lower case with one kind of separator: a file's name and a sentence differ in nothing else."""
    return re.sub(r'[^a-z0-9]+', ' ', text.lower()).strip()


# As objects (0.5 kB each) so many episodes are kept; more are columns (0.05 kB), built as they are read.
MOST_KEPT = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The counted episodes of a source that match a filter, and what is known of the source as a whole."""

    source: str  # the folder of the store, or a word for what was given instead
    episodes: Sequence[Episode]
    store: Store | None = None
    where: Where | None = None
    every_policy: tuple[str, ...] = ()  # of the whole source, whichever part of it was selected: they fix the colours
    marked_reference: str | None = None
    trial: TrialInfo = field(default_factory=lambda: TrialInfo(store_id='', created_at=''))
    recorded: Sequence[Trajectory | None] = ()  # where there is no store: of the episode at the same place
    sound: set[str] = field(default_factory=set)  # files of trajectories whose bytes were checked for this question

    @property
    def asked(self) -> dict[str, tuple[str, ...]]:
        """The filter in words: field -> values; empty for the whole source."""
        return selection_of(self.where)

    @property
    def has_trajectories(self) -> bool:
        if self.store is None:
            return any(trajectory is not None for trajectory in self.recorded)
        return any(part.trajectories for part in self.store.parts())

    def pairs(self) -> Iterator[tuple[Episode, Trajectory | None]]:
        """Each episode with its trajectory, where one was recorded."""
        from robotrials.measure.safety import store_pairs

        if self.store is None:
            return zip(self.episodes, self.recorded or [None] * len(self.episodes), strict=True)
        return store_pairs(self.store, where=self.where, episodes=self.episodes)


def select_store(store: Store, *, where: Where | None = None) -> Selection:
    """The counted episodes of a store that match; none at all is an error that says what was asked.

    Placements that were timed only afterwards, by a reviewer or by a detector that agrees with the operator, are in it.
    A task that stands there under several names has one here.
    """
    where = by_any_name(store, where)
    annotations = store.annotations()
    names = one_name(names_in(store, where=where or None))
    is_plain = not (annotations or names or store.skip_damaged or store.is_blinded)
    if is_plain and not any(part.n_events for part in store.parts()):
        episodes = _from_columns(store, where)
    else:
        from robotrials.measure.annotate import with_marks

        stream = store.episodes(where=where or None)
        marked = (with_marks(e, annotations.get(e.key, ())) for e in stream) if annotations else stream
        episodes = _kept(with_one_name(marked, names) if names else marked)
    if not episodes:
        raise NotEstimable(f'{store.path}: no episode {asked_for(where)}')
    every = _from_columns(store, None) if where else episodes
    arms = distinct(every, 'policy', 'is_reference')
    return Selection(
        source=str(store.path), episodes=episodes, store=store, where=where or None, trial=store.trial,
        every_policy=tuple(sorted({policy for policy, _ in arms})),
        marked_reference=min((policy for policy, is_reference in arms if is_reference), default=None),
    )  # fmt: skip


def select_episodes(
    episodes: Iterable[Episode], *, source: str = 'episodes', trajectories: Sequence[Trajectory | None] = ()
) -> Selection:
    """Episodes that are in no store, and their trajectories in the same order; of several attempts, the one counted.

    Everything behind this finds an episode by its id and attempt, so that two rows which share them are refused.
    """
    rows = list(episodes)
    for number, row in enumerate(rows):
        if not isinstance(row, Episode):
            raise InputError(f'{source}[{number}] is {type(row).__name__}, wanted an Episode')
    if names := one_name((row.benchmark, row.task) for row in rows):
        rows = list(with_one_name(rows, names))
    if not rows:
        raise NotEstimable(f'{source}: no episode was given')
    counted = sorted(_counted(rows, source), key=lambda number: _place(rows[number]))
    ordered = tuple(rows[number] for number in counted)
    return Selection(
        source=source, episodes=ordered, every_policy=tuple(sorted({e.policy for e in ordered})),
        marked_reference=next((e.policy for e in ordered if e.is_reference), None),
        recorded=tuple(trajectories[number] for number in counted) if trajectories else (),
    )  # fmt: skip


def _counted(rows: Sequence[Episode], source: str) -> list[int]:
    """The rows that count: of each id the first valid attempt, else the last one."""
    by_id: dict[str, dict[int, int]] = {}
    for number, row in enumerate(rows):
        first = by_id.setdefault(row.episode_id, {}).setdefault(row.attempt, number)
        if first != number:
            raise InputError(
                f'{source}: rows {first} ({rows[first].policy}, {rows[first].task}) and {number} ({row.policy}, '
                f'{row.task}) share the id {row.episode_id} and attempt {row.attempt}, so that one would be taken for '
                'the other; give them different ids, seeds, instances or repeats, and reruns different attempts'
            )
    kept = []
    for attempts in by_id.values():
        numbers = [attempts[attempt] for attempt in sorted(attempts)]
        kept.append(next((number for number in numbers if rows[number].is_valid), numbers[-1]))
    return kept


def _from_columns(store: Store, where: Where | None) -> Sequence[Episode]:
    """All parts as one table: the parts of a trial are thousands of single rows, and each costs as much as a table."""
    table = counted_columns(store, EPISODE_FIELDS, where=where or None)
    if table.num_rows > MOST_KEPT:
        if not keeps_rules(table):
            return _kept(store.episodes(where=where or None))
        rows = ordered_columns(table)
        del table
        pa.default_memory_pool().release_unused()  # pages that Arrow would keep for itself, for the analysis
        return rows
    try:
        return ordered_episodes(episodes_from_arrow(table, {}))
    except RecordError:
        return _kept(store.episodes(where=where or None))  # which names the part


def _kept(episodes: Iterable[Episode]) -> Sequence[Episode]:
    """Episodes in the canonical order: as objects while they are few, because building them again takes time."""
    stream = iter(episodes)
    few = list(itertools.islice(stream, MOST_KEPT + 1))
    return ordered_episodes(few) if len(few) <= MOST_KEPT else ordered_rows(itertools.chain(few, stream))


def ordered_episodes(episodes: Iterable[Episode]) -> tuple[Episode, ...]:
    """Episodes in the canonical order, however they came."""
    return tuple(sorted(episodes, key=_place))


def _place(episode: Episode) -> tuple[object, ...]:
    """Where an episode stands in the canonical order: by what it is, never by when or where it was written."""
    numbers = [(-1, 0) if n is None else (0, n) for n in (episode.instance, episode.seed)]
    parameters = json.dumps(dict(episode.condition_parameters), sort_keys=True)
    return (
        episode.policy, episode.benchmark, episode.task, episode.stratum, episode.condition, parameters, *numbers,
        episode.repeat, episode.episode_id, episode.attempt,
    )  # fmt: skip


def selection_of(where: Where | None) -> dict[str, tuple[str, ...]]:
    """A filter in words: field -> values."""
    return {
        name: tuple(map(str, wanted if isinstance(wanted, list | tuple | set | frozenset) else (wanted,)))
        for name, wanted in (where or {}).items()
    }


def asked_for(where: Mapping[str, object] | None) -> str:
    """What was looked for, and what to do."""
    if not where:
        return 'in this store; run or import some first'
    filters = ', '.join(f'{name}={value}' for name, values in selection_of(where).items() for value in values)
    return f'matches {filters}; see what there is with `robotrials store ls`'


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
    return f'not run on {len(lacking)} of {n} strata ({names})'


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
