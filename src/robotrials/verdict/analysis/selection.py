"""Which episodes are analysed: a store or plain episodes, in one canonical order, so that rows may come shuffled."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from robotrials.errors import InputError, NotEstimable, RecordError
from robotrials.record import Episode, TrialInfo
from robotrials.record.counted import counted_columns
from robotrials.record.rows import distinct, distinct_values, ordered_columns, ordered_rows
from robotrials.record.schema import EPISODE_FIELDS, episodes_from_arrow
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.record import Store, Trajectory
    from robotrials.record.select import Where


# What stands in the place of a part that the data cannot give.

T = TypeVar('T')


@dataclass(frozen=True, slots=True)
class Absent:
    """A part of an analysis that these data cannot give: why, and what would change that."""

    reason: str
    remedy: str = ''

    @property
    def sentence(self) -> str:
        return f'{self.reason}; {self.remedy}' if self.remedy else self.reason


def present(part: T | Absent) -> T:
    """The part, or NotEstimable with the reason why it is absent."""
    if isinstance(part, Absent):
        raise NotEstimable(part.sentence)
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
        return ordered_columns(table)
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
