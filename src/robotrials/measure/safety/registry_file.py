"""The registry's data files: read, checked against each other, refused with the line and the reason."""

from __future__ import annotations

import dataclasses
import enum
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from robotrials.errors import InputError, near_miss
from robotrials.measure.safety.formula import Window
from robotrials.measure.safety.registry import Benchmark, Registry, TaskEntry, Template
from robotrials.measure.safety.spec import Phase, Spec, Tier
from robotrials.value import dataclass

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
    'tags.toml', 'specs.toml', 'templates.toml', 'libero.toml', 'libero_90.toml', 'robocasa.toml', 'tabletop.toml',
)  # fmt: skip
KINDS = ('tag', 'signal', 'spec', 'template', 'benchmark', 'task', 'task_family')
TAG_CLASSES = ('signal', 'mechanism', 'object', 'invalidating')
SPEC_FIELDS = {f.name for f in dataclasses.fields(Spec)}
TASK_FIELDS = {f.name for f in dataclasses.fields(TaskEntry)} - {'pattern'} | {'template'}


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
        self.benchmarks: dict[str, Benchmark] = {}
        self.same_as: dict[str, str] = {}
        self.entries: list[TaskEntry] = []
        self.families: list[TaskEntry] = []
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
        known = {f.name for f in dataclasses.fields(Benchmark)} | {'same_as'}
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
        self.benchmarks[name] = Benchmark(
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

    def _entry(self, row: Row, name: str, *, pattern: str = '') -> TaskEntry:
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
        return TaskEntry(
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
