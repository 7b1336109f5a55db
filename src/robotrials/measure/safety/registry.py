"""Which specs apply to which task: tags by Eq. (2) of SafeVLA-Bench, rules of required and invalidating tags."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from robotrials.errors import InputError, UnknownName
from robotrials.measure.safety.spec import Spec, Tier
from robotrials.value import dataclass


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What a host records, as tags, and the torque limits of its robot where traces carry none."""

    id: str
    signal_tags: frozenset[str]
    aliases: tuple[str, ...] = ()
    joint_torque_limit_nm: tuple[float, ...] | None = None
    is_auxiliary: bool = False  # its cells stay out of every mean
    source: str = ''
    clamped_signals: frozenset[str] = frozenset()  # signals that the host limits: a bound at the limit cannot fail
    excused_bystanders: tuple[str, ...] = ()  # names or patterns of bodies that may move on every task
    caveat: str = ''  # said wherever its safety is shown: what its entries do not rest on


@dataclass(frozen=True, slots=True)
class Template:
    id: str
    tags: frozenset[str]
    meaning: str = ''


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A task, or with a `pattern` a family of them: its mechanism and its own tags."""

    benchmark: str
    id: str
    components: tuple[str, ...]
    tags: frozenset[str] = frozenset()
    object_tags: frozenset[str] = frozenset()
    name: str = ''
    instruction: str = ''
    goal: str = ''
    note: str = ''
    pattern: str = ''
    excused_bystanders: tuple[str, ...] = ()  # names or patterns of bodies that may move


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether one spec is active on one task, and the tags that decided."""

    spec: Spec
    missing: tuple[str, ...]
    invalidating: tuple[str, ...]

    @property
    def is_active(self) -> bool:
        return not self.missing and not self.invalidating

    @property
    def reason(self) -> str:
        if self.is_active:
            return (
                f'has {", ".join(sorted(self.spec.requires_all))}' if self.spec.requires_all else 'applies everywhere'
            )
        parts = []
        if self.missing:
            parts.append(f'missing {", ".join(self.missing)}')
        if self.invalidating:
            parts.append(f'invalidated by {", ".join(self.invalidating)}')
        return '; '.join(parts)


@dataclass(frozen=True, slots=True)
class Registry:
    """Specs, benchmarks, templates and tasks; every question about applicability is answered here."""

    specs: tuple[Spec, ...]
    benchmarks: Mapping[str, Benchmark] = field(default_factory=dict)
    templates: Mapping[str, Template] = field(default_factory=dict)
    entries: tuple[TaskEntry, ...] = ()
    families: tuple[TaskEntry, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)  # tag -> its class
    signal_units: Mapping[str, str] = field(default_factory=dict)

    def benchmark(self, name: str) -> Benchmark:
        """The benchmark of this name or alias."""
        wanted = _folded(name)
        for benchmark in self.benchmarks.values():
            if wanted in {_folded(known) for known in (benchmark.id, *benchmark.aliases)}:
                return benchmark
        raise UnknownName('benchmark in the safety registry', name, self.benchmarks)

    def caveats(self, benchmarks: Iterable[str]) -> tuple[str, ...]:
        """What has to be said with the safety of these benchmarks, by their ids; others have nothing of the kind."""
        known = (self.benchmarks[name] for name in sorted(set(benchmarks) & set(self.benchmarks)))
        return tuple(f'Safety on {benchmark.id}: {benchmark.caveat}.' for benchmark in known if benchmark.caveat)

    def tasks(self, benchmark: str) -> tuple[str, ...]:
        """The ids of the benchmark's explicit tasks, in its own order."""
        known = self.benchmark(benchmark).id
        return tuple(entry.id for entry in self.entries if entry.benchmark == known)

    def entry(self, benchmark: str, task: str) -> TaskEntry:
        """The task's entry by its id, name or instruction; else the first family whose pattern fits."""
        known = self.benchmark(benchmark).id
        wanted = _folded(task)
        mine = [entry for entry in self.entries if entry.benchmark == known]
        for entry in mine:
            if wanted in {_folded(text) for text in (entry.id, entry.name, entry.instruction) if text}:
                return entry
        for family in self.families:
            if family.benchmark == known and fnmatch.fnmatchcase(wanted, _folded(family.pattern, keep='*?[]')):
                return dataclasses.replace(family, id=task)
        raise UnknownName(f'task of {known} in the safety registry', task, [e.id for e in mine])

    def resolved_tags(self, benchmark: str, task: str) -> frozenset[str]:
        """Eq. (2): capabilities of the benchmark, tags of the template or components, tags of the entry."""
        entry = self.entry(benchmark, task)
        mechanism = frozenset[str]().union(*(self.templates[name].tags for name in entry.components))
        return self.benchmark(benchmark).signal_tags | mechanism | entry.tags | entry.object_tags

    def excused(self, benchmark: str, task: str) -> tuple[str, ...]:
        """The names and patterns of bodies that are no bystanders on a task."""
        entry = self.entry(benchmark, task)
        return (*self.benchmark(benchmark).excused_bystanders, *entry.excused_bystanders)

    def holders(self, task: str) -> tuple[str, ...]:
        """The benchmarks that have a task of this id, name or instruction."""
        wanted = _folded(task)
        return tuple(dict.fromkeys(
            e.benchmark for e in self.entries if wanted in {_folded(t) for t in (e.id, e.name, e.instruction) if t}
        ))  # fmt: skip

    def decide(self, tags: Iterable[str], *, tiers: Sequence[Tier] = (Tier.SAFE,)) -> tuple[Decision, ...]:
        """The decision on every spec of these tiers for a set of tags."""
        have = frozenset(tags)
        return tuple(
            Decision(spec, tuple(sorted(spec.requires_all - have)), tuple(sorted(spec.invalid_if_any & have)))
            for spec in self.specs
            if spec.tier in tiers
        )

    def explain(self, benchmark: str, task: str, *, tiers: Sequence[Tier] = (Tier.SAFE,)) -> tuple[Decision, ...]:
        """Why each spec is or is not active on a task."""
        return self.decide(self.resolved_tags(benchmark, task), tiers=tiers)

    def active(self, benchmark: str, task: str, *, tiers: Sequence[Tier] = (Tier.SAFE,)) -> tuple[Spec, ...]:
        """The specs that score a task."""
        return tuple(d.spec for d in self.explain(benchmark, task, tiers=tiers) if d.is_active)

    def template_active(self, template: str) -> tuple[Spec, ...]:
        """The safe specs of a template where every signal is available (Table 3)."""
        if template not in self.templates:
            raise UnknownName('task template', template, self.templates)
        signals = {tag for tag, kind in self.tags.items() if kind == 'signal' and not tag.endswith('_unavailable')}
        return tuple(d.spec for d in self.decide(signals | self.templates[template].tags) if d.is_active)

    def spec(self, name: str) -> Spec:
        """The spec of this id or legacy alias."""
        for spec in self.specs:
            if name in (spec.id, *spec.aliases):
                return spec
        raise UnknownName('safety spec', name, [spec.id for spec in self.specs])

    def find(self, task: str, benchmark: str = '') -> tuple[str, str]:
        """(benchmark, task) from `benchmark/task`, or from a task that only one benchmark has."""
        if benchmark:
            return self.benchmark(benchmark).id, self.entry(benchmark, task).id
        head, slash, tail = task.partition('/')
        if slash:
            return self.benchmark(head).id, self.entry(head, tail).id
        wanted = _folded(task)
        holders = [e for e in self.entries if wanted in {_folded(t) for t in (e.id, e.name, e.instruction) if t}]
        if not holders:
            raise UnknownName('task in the safety registry', task, sorted({e.id for e in self.entries}))
        if len(holders) > 1:
            places = ', '.join(f'{e.benchmark}/{e.id}' for e in holders)
            raise InputError(f'task {task!r} is in several benchmarks; say which: {places}')
        return holders[0].benchmark, holders[0].id

    def with_specs(self, specs: Iterable[Spec]) -> Registry:
        """The same tasks under other specs."""
        return dataclasses.replace(self, specs=tuple(specs))


@functools.lru_cache(maxsize=4096)
def _folded(text: str, *, keep: str = '') -> str:
    """Lower case with one kind of separator, so that file names, ids and sentences of one task meet."""
    return re.sub(rf'[^a-z0-9{re.escape(keep)}]+', ' ', text.lower()).strip()


def is_mentioned(task: str) -> bool:
    """Whether the built-in files have this id, name or instruction in them: False where no benchmark has such a task.

    Found out in a millisecond; loading the registry, which knows more, takes thirty.
    """
    return f' {_folded(task)} ' in _built_in_words()


@functools.cache
def _built_in_words() -> str:
    from importlib import resources

    folder = resources.files('robotrials.measure.safety') / 'data'
    return f' {" ".join(_folded(file.read_text(encoding="utf-8")) for file in folder.iterdir())} '


def load_registry(*extra: Path | str) -> Registry:
    """The built-in registry, and the benchmarks, tasks and specs of your own files after it.

    A benchmark of yours takes the place of a built-in one of its name that has a caveat, with all its tasks.
    """
    if not extra:
        return _built_in()
    from robotrials.measure.safety.registry_file import read_registry

    return read_registry([Path(path) for path in extra])


@functools.cache
def _built_in() -> Registry:
    from robotrials.measure.safety.registry_file import read_registry

    return read_registry([])
