"""Safety specifications, and the registry that says where each applies.

A spec is a clause with its threshold, its severe anchor, and the tags that decide where it applies (Eq. (2) of
SafeVLA-Bench). Data files are checked against each other and refused with the line and the reason.
"""

from __future__ import annotations

import dataclasses
import enum
import fnmatch
import functools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from robotrials.errors import InputError, UnknownName, near_miss
from robotrials.measure.safety.formula import Formula, Window, event_names, parse_stl, signal_names
from robotrials.value import dataclass

PLACEHOLDER = '{threshold}'


class Tier(enum.StrEnum):
    SAFE = 'safe'  # scored: enters Safety, SBU and VSI
    ALTERNATE = 'alternate'  # another threshold of a scored family
    REPORT = 'report'  # diagnosed and reported, never scored
    PHASE = 'phase'  # scoped to one phase of the episode; scored on request


class Severity(enum.StrEnum):
    """How far past the threshold is how bad, on 0 to 1."""

    RATIO = 'ratio'  # Eq. (1): (signal - threshold) / severe
    ANCHORED = 'anchored'  # (signal - threshold) / (severe - threshold): 1 exactly at the severe anchor

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise UnknownName('severity scale', str(value), [scale.value for scale in cls])


class Phase(enum.StrEnum):
    WHOLE = 'whole'
    APPROACH = 'approach'  # before the first grip
    TRANSPORT = 'transport'  # gripped and lifted
    RELEASE = 'release'  # after the last transport
    LABELLED = 'labelled'  # where the record's own label of the phase fits `phase_label`


@dataclass(frozen=True, slots=True)
class Spec:
    """One threshold instantiation of one constraint family."""

    id: str
    family: str
    tier: Tier
    stl: str  # with {threshold} where the threshold stands
    threshold: float
    unit: str
    severe: float | None = None  # None for a binary hard stop
    is_binary: bool = False
    axis: str = ''
    phase: Phase = Phase.WHOLE
    phase_label: str = ''  # of a labelled phase: a name, or a pattern with * and ?
    requires_all: frozenset[str] = frozenset()
    invalid_if_any: frozenset[str] = frozenset()
    aliases: tuple[str, ...] = ()
    threshold_source: str = ''
    severe_source: str = ''

    def __post_init__(self) -> None:
        check_spec(self)

    @property
    def clause(self) -> str:
        """The STL text with the threshold in its place."""
        return self.stl.replace(PLACEHOLDER, repr(float(self.threshold)))

    @property
    def formula(self) -> Formula:
        return _parsed(self.clause)

    @property
    def signals(self) -> tuple[str, ...]:
        return _names(self.clause)[0]

    @property
    def events(self) -> frozenset[str]:
        """The signals that the clause reads as 0/1 events."""
        return _names(self.clause)[1]

    @property
    def k(self) -> float | None:
        """K of Table 17: the severe anchor over the threshold; None for a binary hard stop."""
        return None if self.severe is None else self.severe / self.threshold

    def depth(self, margin: float, *, severity: Severity | str = Severity.RATIO) -> float:
        """The depth d of Eq. (1) for a robustness margin, on 0 to 1; a violated hard stop is 1."""
        if margin >= 0:
            return 0.0
        if self.severe is None:
            return 1.0
        if Severity(severity) is Severity.ANCHORED:
            return min(1.0, -margin / (self.severe - self.threshold))
        excess = max(0.0, -margin / self.threshold)
        return min(1.0, excess / (self.severe / self.threshold))

    def with_threshold(self, threshold: float, *, severe: float | None) -> Spec:
        """The same family at another threshold, with the severe anchor that goes with it."""
        return dataclasses.replace(self, threshold=threshold, severe=severe)


@functools.lru_cache(maxsize=512)
def _parsed(clause: str) -> Formula:
    return parse_stl(clause)


@functools.lru_cache(maxsize=512)
def _names(clause: str) -> tuple[tuple[str, ...], frozenset[str]]:
    formula = _parsed(clause)
    return signal_names(formula), event_names(formula)


def check_spec(spec: Spec) -> None:
    """Raise InputError, naming the field, if the spec contradicts itself."""
    if not spec.unit:
        raise InputError(f'spec {spec.id!r}: threshold {spec.threshold:g} has no unit')
    if not spec.threshold > 0:
        raise InputError(f'spec {spec.id!r}: threshold is {spec.threshold}, wanted > 0 (put the sign into the formula)')
    if PLACEHOLDER not in spec.stl:
        raise InputError(f'spec {spec.id!r}: stl {spec.stl!r} does not say where {PLACEHOLDER} goes')
    if (spec.phase is Phase.LABELLED) != bool(spec.phase_label):
        raise InputError(f'spec {spec.id!r}: a phase_label goes with phase = "labelled", and only with it')
    if spec.is_binary and spec.severe is not None:
        raise InputError(f'spec {spec.id!r}: a binary hard stop has no severe anchor, found {spec.severe:g}')
    if not spec.is_binary:
        if spec.severe is None:
            raise InputError(f'spec {spec.id!r}: severe is missing; state the anchor, or is_binary = true')
        if not math.isfinite(spec.severe):
            raise InputError(f'spec {spec.id!r}: severe is {spec.severe}, wanted a finite anchor')
        if not spec.severe > spec.threshold:
            pair = (
                f'severe anchor {spec.severe:g} {spec.unit} is not above the threshold {spec.threshold:g} {spec.unit}'
            )
            raise InputError(f'spec {spec.id!r}: {pair}')
    _ = spec.formula


@dataclass(frozen=True, slots=True)
class SafetyBenchmark:
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
class TaskTags:
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

    def is_called(self, folded: str) -> bool:
        """Whether this is its id, name or instruction, as `_folded` has it."""
        return folded in {_folded(text) for text in (self.id, self.name, self.instruction) if text}


@dataclass(frozen=True, slots=True)
class Applicability:
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
    benchmarks: Mapping[str, SafetyBenchmark] = field(default_factory=dict)
    templates: Mapping[str, Template] = field(default_factory=dict)
    entries: tuple[TaskTags, ...] = ()
    families: tuple[TaskTags, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)  # tag -> its class
    signal_units: Mapping[str, str] = field(default_factory=dict)

    def benchmark(self, name: str) -> SafetyBenchmark:
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

    def entry(self, benchmark: str, task: str) -> TaskTags:
        """The task's entry by its id, name or instruction; else the first family whose pattern fits."""
        known = self.benchmark(benchmark).id
        wanted = _folded(task)
        mine = [entry for entry in self.entries if entry.benchmark == known]
        for entry in mine:
            if entry.is_called(wanted):
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
        return tuple(dict.fromkeys(e.benchmark for e in self.entries if e.is_called(wanted)))

    def decide(self, tags: Iterable[str], *, tiers: Sequence[Tier] = (Tier.SAFE,)) -> tuple[Applicability, ...]:
        """The decision on every spec of these tiers for a set of tags."""
        have = frozenset(tags)
        return tuple(
            Applicability(spec, tuple(sorted(spec.requires_all - have)), tuple(sorted(spec.invalid_if_any & have)))
            for spec in self.specs
            if spec.tier in tiers
        )

    def explain(self, benchmark: str, task: str, *, tiers: Sequence[Tier] = (Tier.SAFE,)) -> tuple[Applicability, ...]:
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
        holders = [e for e in self.entries if e.is_called(wanted)]
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
    folder = resources.files('robotrials.measure.safety') / 'data'
    return f' {" ".join(_folded(file.read_text(encoding="utf-8")) for file in folder.iterdir())} '


def load_registry(*extra: Path | str) -> Registry:
    """The built-in registry, and the benchmarks, tasks and specs of your own files after it.

    A benchmark of yours takes the place of a built-in one of its name that has a caveat, with all its tasks.
    """
    return read_registry([Path(path) for path in extra]) if extra else _built_in()


@functools.cache
def _built_in() -> Registry:
    return read_registry([])


# TOML files whose errors name the line: tables of one kind, each value with the place it was written.

T = TypeVar('T')
HEADER = r'^[ \t]*\[\[\s*["\']?([\w-]+)["\']?\s*\]\]'


@dataclass(frozen=True, slots=True)
class Row:
    """One [[table]] of a file: its values, and where each stands."""

    file: str
    kind: str
    values: Mapping[str, Any]
    source: str  # the text of the file, in which lines are looked for where one is to be named
    place: int  # among the tables of its kind

    def line(self, key: str = '') -> int:
        """The line of a key, or of the table."""
        starts = [(line, lines) for line, kind, lines in _places(self.source) if kind == self.kind]
        line, lines = starts[self.place] if self.place < len(starts) else (1, {})
        return lines.get(key, line)

    def error(self, reason: str, *, key: str = '') -> InputError:
        """An error at the key's line, or at the table's."""
        return InputError(f'{self.file}, line {self.line(key)}: {reason}')

    def check_keys(self, known: set[str], needed: set[str]) -> None:
        for key in self.values:
            if key not in known:
                raise self.error(f'[[{self.kind}]] has no field {key!r}: {near_miss(key, sorted(known))}', key=key)
        for key in sorted(needed):
            if key not in self.values:
                raise self.error(f'[[{self.kind}]] {self.values.get("id", "")!r} has no {key!r}')

    def text(self, key: str, default: str = '') -> str:
        return self._typed(key, str, default, 'text')

    def flag(self, key: str) -> bool:
        return self._typed(key, bool, False, 'true or false')

    def number(self, key: str) -> float | None:
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(f'{key} is {value!r}, wanted a number', key=key)
        return float(value)

    def texts(self, key: str) -> tuple[str, ...]:
        values: list[object] = self._typed(key, list, [], 'a list of text')
        for value in values:
            if not isinstance(value, str):
                raise self.error(f'{key} holds {value!r}, wanted text', key=key)
        return tuple(str(value) for value in values)

    def numbers(self, key: str) -> tuple[float, ...] | None:
        if key not in self.values:
            return None
        values: list[object] = self._typed(key, list, [], 'a list of numbers')
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self.error(f'{key} holds {value!r}, wanted numbers', key=key)
        return tuple(float(str(value)) for value in values)

    def _typed(self, key: str, kind: type[T], default: T, wanted: str) -> T:
        value = self.values.get(key, default)
        if not isinstance(value, kind):
            raise self.error(f'{key} is {value!r}, wanted {wanted}', key=key)
        return value


def read_rows(path: Path | str, *, kinds: set[str]) -> list[Row]:
    """Every table of the file, in order of kind; a table of an unknown kind is refused."""
    file = Path(path)
    try:
        text = file.read_text(encoding='utf-8')
    except OSError as error:
        raise InputError(f'{file}: cannot be read ({error.strerror})') from error
    return list(parse_rows(text, str(path), kinds=kinds))


def parse_rows(text: str, file: str, *, kinds: set[str]) -> Iterator[Row]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f'{file}: not TOML: {error}') from error
    headers = re.findall(HEADER, text, re.MULTILINE)
    for kind, tables in document.items():
        if kind not in kinds:
            line = _line_of_key(text, kind)
            raise InputError(f'{file}, line {line}: no table named {kind!r}: {near_miss(kind, sorted(kinds))}')
        if not isinstance(tables, list) or headers.count(kind) < len(tables):
            raise InputError(f'{file}, line {_line_of_key(text, kind)}: wanted one [[{kind}]] for each {kind}')
        for place, values in enumerate(tables):
            yield Row(file, kind, values, text, place)


def _places(text: str) -> list[tuple[int, str, dict[str, int]]]:
    """(line, kind, line of each key) of every [[kind]]; lines inside multi-line values are passed over."""
    places: list[tuple[int, str, dict[str, int]]] = []
    quote, depth = '', 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not quote and depth == 0:
            header = re.match(HEADER, line)
            key = re.match(r'\s*["\']?([\w-]+)["\']?\s*=', line)
            if header:
                places.append((number, header.group(1), {}))
                continue
            if key and places:
                places[-1][2].setdefault(key.group(1), number)
        quote, depth = _open_after(line, quote, depth)
    return places


def _open_after(line: str, quote: str, depth: int) -> tuple[str, int]:
    """The triple quote still open, and the brackets still open, after this line."""
    if not quote and not re.search(r'[][{}]|"""|\'\'\'', line):
        return quote, depth  # as most lines: nothing in it opens or closes
    position = 0
    while position < len(line):
        rest = line[position:]
        if quote:
            end = rest.find(quote)
            if end < 0:
                return quote, depth
            position += end + len(quote)
            quote = ''
            continue
        if rest.startswith(('"""', "'''")):
            quote = rest[:3]
            position += 3
            continue
        string = re.match(r'"(?:\\.|[^"\\])*"|\'[^\']*\'', rest)
        if string:
            position += string.end()
            continue
        if rest[0] == '#':
            break
        depth += (rest[0] in '[{') - (rest[0] in ']}')
        position += 1
    return quote, depth


def _line_of_key(text: str, key: str) -> int:
    for start, kind, _ in _places(text):
        if kind == key:
            return start
    for number, line in enumerate(text.splitlines(), start=1):
        if re.match(rf'\s*\[*\s*["\']?{re.escape(key)}\b', line):
            return number
    return 1


E = TypeVar('E', bound=enum.StrEnum)

BUILT_IN = (
    'tags.toml', 'spec_limits.toml', 'templates.toml', 'libero.toml', 'libero_90.toml', 'robocasa.toml',
    'tabletop.toml',
)  # fmt: skip
KINDS = ('tag', 'signal', 'spec', 'template', 'benchmark', 'task', 'task_family')
TAG_CLASSES = ('signal', 'mechanism', 'object', 'invalidating')
SPEC_FIELDS = {f.name for f in dataclasses.fields(Spec)}
TASK_FIELDS = {f.name for f in dataclasses.fields(TaskTags)} - {'pattern'} | {'template'}


def read_registry(extra: Iterable[Path]) -> Registry:
    """The built-in files, then the extra ones; an id may be defined once, but for benchmarks that have a caveat."""
    rows: list[Row] = []
    folder = resources.files('robotrials.measure.safety') / 'data'
    for name in BUILT_IN:
        rows += parse_rows((folder / name).read_text(encoding='utf-8'), name, kinds=set(KINDS))
    own = [row for path in extra for row in read_rows(path, kinds=set(KINDS))]
    return build_registry([*_without_replaced(rows, own), *own])


def _without_replaced(rows: list[Row], own: list[Row]) -> list[Row]:
    """The built-in rows without those of benchmarks that have a caveat and that a file of one's own defines."""
    named = {row.values.get('id') for row in own if row.kind == 'benchmark'}
    replaced = {row.values['id'] for row in rows if row.kind == 'benchmark' and 'caveat' in row.values} & named
    return [row for row in rows if row.values.get('id' if row.kind == 'benchmark' else 'benchmark') not in replaced]


def build_registry(rows: Iterable[Row]) -> Registry:
    """A registry from rows of any files, in any order."""
    builder = _Builder()
    by_kind: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    for row in rows:
        by_kind[row.kind].append(row)
    for kind in KINDS:
        for row in by_kind[kind]:
            getattr(builder, f'add_{kind}')(row)
    return builder.built()


class _Builder:
    """Rows in, one kind after the other, so that each finds what it refers to."""

    def __init__(self) -> None:
        from robotrials.measure.safety.signal import SIGNAL_UNITS

        self.tags: dict[str, str] = {}
        self.units: dict[str, str] = dict(SIGNAL_UNITS)
        self.specs: dict[str, Spec] = {}
        self.templates: dict[str, Template] = {}
        self.benchmarks: dict[str, SafetyBenchmark] = {}
        self.same_as: dict[str, str] = {}
        self.entries: list[TaskTags] = []
        self.families: list[TaskTags] = []
        self.first: dict[tuple[str, str], Row] = {}

    def claim(self, row: Row, name: str, *, kind: str = '') -> str:
        if not name:
            raise row.error(f'[[{row.kind}]] has an empty id', key='id')
        key = (kind or row.kind, name)
        if key in self.first:
            before = self.first[key]
            where = f'{before.file}, line {before.line()}'
            raise row.error(f'duplicate {row.kind} id {name!r}; first defined in {where}', key='id')
        self.first[key] = row
        return name

    def tag_set(self, row: Row, key: str) -> frozenset[str]:
        return _known(row, key, 'tag', self.tags)

    def add_tag(self, row: Row) -> None:
        row.check_keys({'id', 'class', 'meaning'}, {'id', 'class'})
        if row.text('class') not in TAG_CLASSES:
            raise row.error(f'class is {row.text("class")!r}, wanted one of {", ".join(TAG_CLASSES)}', key='class')
        self.tags[self.claim(row, row.text('id'))] = row.text('class')

    def add_signal(self, row: Row) -> None:
        from robotrials.measure.safety.signal import SIGNAL_UNITS

        row.check_keys({'id', 'unit', 'meaning'}, {'id', 'unit'})
        if row.text('id') in SIGNAL_UNITS:
            raise row.error(f'duplicate signal id {row.text("id")!r}; it is built in', key='id')
        self.units[self.claim(row, row.text('id'))] = row.text('unit')

    def add_spec(self, row: Row) -> None:
        row.check_keys(SPEC_FIELDS, {'id', 'family', 'tier', 'stl', 'threshold'})
        if not row.text('unit'):
            raise row.error(
                f'spec {row.text("id")!r}: threshold {row.values["threshold"]} has no unit', key='threshold'
            )
        threshold, severe = row.number('threshold'), row.number('severe')
        tier, phase = _member(row, 'tier', Tier), _member(row, 'phase', Phase, default=Phase.WHOLE)
        if (tier is Tier.PHASE) != (phase is not Phase.WHOLE):
            raise row.error(f'tier {tier} with phase {phase}: a phase goes with the tier phase, and only with it')
        try:
            spec = Spec(
                id=self.claim(row, row.text('id')), family=row.text('family'), tier=tier, stl=row.text('stl'),
                threshold=float('nan') if threshold is None else threshold, unit=row.text('unit'), severe=severe,
                is_binary=row.flag('is_binary'), axis=row.text('axis'), phase=phase,
                phase_label=row.text('phase_label'),
                requires_all=self.tag_set(row, 'requires_all'), invalid_if_any=self.tag_set(row, 'invalid_if_any'),
                aliases=row.texts('aliases'), threshold_source=row.text('threshold_source'),
                severe_source=row.text('severe_source'),
            )  # fmt: skip
        except InputError as error:
            if str(error).startswith(row.file):
                raise
            raise row.error(str(error), key=_field_at_fault(str(error))) from error
        for name in spec.signals:
            if name not in self.units:
                hint = near_miss(name, sorted(self.units))
                raise row.error(f'the formula reads the unknown signal {name!r}: {hint}; declare your own', key='stl')
        units = {self.units[name] for name in spec.signals}
        if spec.unit not in units:
            known = ', '.join(sorted(units))
            raise row.error(f'spec {spec.id!r}: unit is {spec.unit!r}, but its signals are in {known}', key='unit')
        if phase is not Phase.WHOLE and not isinstance(spec.formula, Window):
            raise row.error(f'spec {spec.id!r}: a phase scopes a clause of the form always(...)', key='stl')
        for alias in spec.aliases:
            self.claim(row, alias)
        self.specs[spec.id] = spec

    def add_template(self, row: Row) -> None:
        row.check_keys({'id', 'tags', 'meaning'}, {'id', 'tags'})
        name = self.claim(row, row.text('id'))
        self.templates[name] = Template(name, self.tag_set(row, 'tags'), row.text('meaning'))

    def add_benchmark(self, row: Row) -> None:
        known = {f.name for f in dataclasses.fields(SafetyBenchmark)} | {'same_as'}
        row.check_keys(known, {'id'} if 'same_as' in row.values else {'id', 'signal_tags'})
        name = self.claim(row, row.text('id'))
        for alias in row.texts('aliases'):
            self.claim(row, alias)
        if 'same_as' in row.values:
            other = row.text('same_as')
            if other not in self.benchmarks:
                hint = near_miss(other, sorted(self.benchmarks))
                raise row.error(f'same_as names no benchmark {other!r} defined before it: {hint}', key='same_as')
            self.same_as[name] = other
            self.benchmarks[name] = dataclasses.replace(
                self.benchmarks[other], id=name, aliases=row.texts('aliases'), source=f'the tasks of {other}'
            )
            return
        for tag in sorted(self.tag_set(row, 'signal_tags')):
            if self.tags[tag] != 'signal':
                raise row.error(f'signal_tags holds {tag!r}, a tag of class {self.tags[tag]}', key='signal_tags')
        self.benchmarks[name] = SafetyBenchmark(
            name, self.tag_set(row, 'signal_tags'), row.texts('aliases'), row.numbers('joint_torque_limit_nm'),
            row.flag('is_auxiliary'), row.text('source'), _known(row, 'clamped_signals', 'signal', self.units),
            row.texts('excused_bystanders'), row.text('caveat'),
        )  # fmt: skip

    def add_task(self, row: Row) -> None:
        row.check_keys(TASK_FIELDS, {'id', 'benchmark'})
        entry = self._entry(row, row.text('id'))
        self.claim(row, entry.id, kind=f'task of {entry.benchmark}')
        self.entries.append(entry)

    def add_task_family(self, row: Row) -> None:
        row.check_keys(TASK_FIELDS - {'id', 'name', 'instruction'} | {'pattern'}, {'pattern', 'benchmark'})
        self.families.append(self._entry(row, row.text('pattern'), pattern=row.text('pattern')))

    def _entry(self, row: Row, name: str, *, pattern: str = '') -> TaskTags:
        benchmark = row.text('benchmark')
        if benchmark not in self.benchmarks:
            hint = near_miss(benchmark, sorted(self.benchmarks))
            raise row.error(f'task {name!r}: no benchmark {benchmark!r}: {hint}', key='benchmark')
        template, components = row.text('template'), row.texts('components')
        if bool(template) == bool(components):
            raise row.error(f'task {name!r}: wanted either a template or components')
        for part in components or (template,):
            if part not in self.templates:
                hint = near_miss(part, sorted(self.templates))
                key = 'components' if components else 'template'
                raise row.error(f'task {name!r}: no template {part!r}: {hint}', key=key)
        return TaskTags(
            benchmark, name, components or (template,), self.tag_set(row, 'tags'), self.tag_set(row, 'object_tags'),
            row.text('name'), row.text('instruction'), row.text('goal'), row.text('note'), pattern,
            row.texts('excused_bystanders'),
        )  # fmt: skip

    def built(self) -> Registry:
        entries, families = list(self.entries), list(self.families)
        for alias, other in self.same_as.items():
            entries += [dataclasses.replace(e, benchmark=alias) for e in self.entries if e.benchmark == other]
            families += [dataclasses.replace(e, benchmark=alias) for e in self.families if e.benchmark == other]
        return Registry(
            tuple(self.specs.values()), dict(self.benchmarks), dict(self.templates), tuple(entries), tuple(families),
            dict(self.tags), dict(self.units),
        )  # fmt: skip


def _known(row: Row, key: str, what: str, known: Mapping[str, str]) -> frozenset[str]:
    """The names under a key, each of which must be known."""
    for name in row.texts(key):
        if name not in known:
            raise row.error(f'unknown {what} {name!r} in {key}: {near_miss(name, sorted(known))}', key=key)
    return frozenset(row.texts(key))


def _member(row: Row, key: str, kind: type[E], *, default: E | None = None) -> E:
    word = row.text(key, '' if default is None else default.value)
    try:
        return kind(word)
    except ValueError as error:
        known = [m.value for m in kind]
        raise row.error(f'{key} is {word!r}: {near_miss(word, known)}', key=key) from error


def _field_at_fault(message: str) -> str:
    for key, words in (('severe', ('severe',)), ('stl', ('STL', 'stl')), ('threshold', ('threshold',))):
        if any(word in message for word in words):
            return key
    return ''
