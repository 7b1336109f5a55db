"""One name per task where sources name it differently: a number, its sentence, or the name of its file.

LIBERO's host names a task by its number in the suite, other people's results by its sentence or its BDDL file. The
registry lists all three for its 130 tasks. Names are a projection: ids and the record keep what each source said, and
where only one name of a task is there, it stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from robotrials.record.counted import counted_columns
from robotrials.record.rows import distinct_values

if TYPE_CHECKING:
    from robotrials.record import Episode, Store
    from robotrials.record.select import Where

TaskName = tuple[str, str]  # the benchmark and the task, as a source names them
SAME_BENCHMARK: Mapping[str, str] = {'libero-long': 'libero-10'}  # two names for the same ten tasks


def one_name(found: Iterable[TaskName]) -> dict[TaskName, TaskName]:
    """The names to replace, each with its canonical one: of every task that stands there under several names."""
    groups: dict[TaskName, set[TaskName]] = {}
    for name in set(found):
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
    found: dict[str, dict[str, set[TaskName]]] = {}
    for entry in registry.entries:
        benchmark = registry.benchmarks[entry.benchmark]
        known = SAME_BENCHMARK.get(benchmark.id, benchmark.id), entry.id
        spellings = {benchmark.id, *benchmark.aliases}
        spellings |= {n for other, same in SAME_BENCHMARK.items() if same == benchmark.id for n in (other,)}
        for spelling in spellings:
            tasks = found.setdefault(_folded(spelling), {})
            for name in filter(None, (entry.id, entry.name, entry.instruction)):
                tasks.setdefault(_folded(name), set()).add(known)
    return {spelling: {name: frozenset(ids) for name, ids in tasks.items()} for spelling, tasks in found.items()}


@cache
def _folded(text: str) -> str:
    """Lower case with one kind of separator: a file's name and a sentence differ in nothing else."""
    return re.sub(r'[^a-z0-9]+', ' ', text.lower()).strip()
