"""Anyone's table as a source of episodes: one row per episode, per item, or per (policy, task) with counts."""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robotrials.errors import InputError, RecordError, UnknownName
from robotrials.formats import bulk
from robotrials.formats.bulk import TAKEN, BulkReader
from robotrials.formats.guess import (
    ALIKE,
    COUNTS,
    FIELDS,
    NUMBERINGS,
    SYNONYMS,
    TIME_LISTS,
    BlankError,
    ColumnMap,
    Problems,
    alike_names,
    check_field,
    fit_to_cells,
    guess_columns,
    has_decimal_comma,
    is_missing,
    is_usual,
    missing_fields,
    normal,
    parse_other,
    parse_outcome,
    parse_plain,
    parse_seconds,
    parse_share,
    parse_truth,
    parse_whole,
    sample_cells,
    short,
)
from robotrials.formats.imported import (
    BLANKS,
    POSSIBLE,
    Doubt,
    FieldGuess,
    FixableError,
    ImportAccount,
    Imported,
    ImportOptions,
    Question,
    Recording,
    head_of,
    refuse_unused,
)
from robotrials.formats.reshape import FRACTION, MEANS, OUTCOMES, reshaped
from robotrials.formats.row_outcome import Caps, derive_outcome, group_rows, timed_events
from robotrials.formats.rows import SUFFIXES, Row, Rows, is_large, open_rows
from robotrials.record.episode import ID_HEX_DIGITS, TEXT_FIELDS, Episode, Outcome, digest, episode_id_of
from robotrials.value import dataclass, pattern

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE_ROWS = 5_000
WHOLE_FIELDS = ('attempt', 'seed', 'instance', 'repeat', 'steps', 'step_cap', 'items', 'trials', 'successes')
NAMES = ('policy', 'task', 'trial_id', 'episode_id', 'benchmark', 'stratum', 'condition', 'provenance_id')
TELLING = ('outcome', 'success', 'score', 'items_placed', 'items', 'events', *TIME_LISTS)
STARTS = ('policy', 'stratum', 'condition', 'seed', 'instance', 'repeat', 'attempt')
_TIMED = pattern(r'time|long|dur|elapsed|clock|took|\bsec|[\[(]s[\])]|_s$', re.IGNORECASE)
MEMO = 50_000
MOST_REMEDIES = 4
_RESULT = pattern(rb'success|outcome|result|trials|score', re.IGNORECASE)
PROSE = {
    '.md': pattern(rb'\|\s*:?-{2,}'),
    '.yaml': _RESULT,
    '.yml': _RESULT,
    '.tex': pattern(rb'\\begin\{(tab|long)'),
}
CELL = (
    ('trial_id', ''), ('policy', ''), ('benchmark', ''), ('task', ''), ('stratum', ''), ('condition', 'nominal'),
)  # fmt: skip
Values = dict[str, Any]
Convert = Callable[[Any], Any]


class TableFormat:
    """A table whose columns are guessed by name and content."""

    name = 'table'
    summary = 'CSV, TSV, XLSX, JSON, YAML, Markdown or Parquet: a row per episode, item or (policy, task), or wide'

    def recognise(self, path: Path) -> float | None:
        suffix = path.suffix.lower()
        if not path.is_file() or suffix not in SUFFIXES:
            return None
        if suffix in PROSE:  # notes and settings lie beside tables, and end alike
            return POSSIBLE if PROSE[suffix].search(head_of(path)) else None
        if suffix == '.txt':
            return POSSIBLE if _has_columns(path) else None
        return POSSIBLE

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='a table', takes=('columns', 'group_by', 'rate_hz', 'answers', 'values', 'blank'))
        try:
            return self._read(path, options)
        except FixableError as error:
            raise self._with_further(error) from error

    def _read(self, path: Path, options: ImportOptions) -> Imported:
        rows = open_rows(path, options, known=is_usual)
        if not _is_row_per_episode(rows, options):
            rows = reshaped(rows, options)
        return read_rows(rows, options, name=self.name, sources=(path,))

    def _with_further(self, error: FixableError) -> RecordError:
        """The error with what else is wrong once its remedy was taken, so that the command it ends with works."""
        problems, options = [error.problem], error.options
        for _ in range(MOST_REMEDIES):
            try:
                for _ in self._read(error.path, options).episodes():
                    pass
                return FixableError('\n'.join(problems), error.path, options)
            except FixableError as further:
                problems.append(further.problem)
                options = further.options
            except (RecordError, InputError) as further:
                return RecordError('\n'.join([*problems, str(further)]))
        return error


TABLE = TableFormat()


def _is_row_per_episode(rows: Rows, options: ImportOptions) -> bool:
    """Whether columns are named for policy, task and result, and no cell counts: such a table is left as it is."""
    if sum(normal(c) in OUTCOMES for c in rows.header) > 1:
        return False
    if missing_fields(rows.header, {*options.defaults}, options.columns):
        return False
    first = itertools.islice(rows.read(), 50)
    return not any(isinstance(cell, str) and FRACTION.match(cell) for _, row in first for cell in row)


def _has_columns(path: Path) -> bool:
    """Whether a text is a table: it has a header with some usual names in it."""
    try:
        header = open_rows(path, known=is_usual).header
    except InputError:
        return False
    return sum(map(is_usual, header)) > 1


def read_rows(rows: Rows, options: ImportOptions, *, name: str, sources: tuple[Path, ...]) -> Imported:
    """Rows whose columns are guessed, as a source."""
    plan = plan_table(rows, options)
    ledger = ImportAccount()
    for note in (*rows.notes, *plan.chosen.notes, *plan.notes):
        ledger.note(note)
    return Imported(
        format=name,
        sources=sources,
        recordings=lambda: (Recording(e) for e in table_episodes(rows, plan, ledger)),
        ledger=ledger,
        guesses=tuple(_guesses(plan, rows.path)),
        questions=() if plan.alike is None else (plan.alike,),
        doubts=plan.doubts,
        tables=(lambda: _bulk_tables(rows, plan, ledger)) if can_be_bulk(rows, plan) else None,
        resolved=replace(options, columns=dict(plan.chosen.columns)),
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TablePlan:
    """How the rows of one table become episodes."""

    chosen: ColumnMap
    given: Mapping[str, Any]  # parsed values for every row
    told: Mapping[str, str]  # the same as the user wrote them
    assumed: Mapping[str, str] = field(default_factory=dict)  # names for every row, by those of the file and its folder
    convert: Mapping[str, Convert]  # field -> what turns its cell into a value
    places: Mapping[str, int]  # column -> its place in a row
    is_text: bool = False  # cells are texts, with spaces around them
    shape: str  # 'episodes', 'items' or 'counts'
    group_by: tuple[str, ...] = ()
    trial_id: str | None = None  # None: the table brings its own ids
    rate_hz: float | None = None
    max_score: float | None = None
    examples: Mapping[str, Any] = field(default_factory=dict)  # field -> a cell of its column
    notes: tuple[str, ...] = field(default=())
    options: ImportOptions = field(default_factory=ImportOptions)
    alike: Question | None = None  # names that may be one
    doubts: tuple[Doubt, ...] = ()


def plan_table(rows: Rows, options: ImportOptions) -> TablePlan:
    """Decide what each column is from its name and its first cells; raise where too little can be told."""
    from robotrials.formats.row_outcome import half_digit

    first = [row for _, row in itertools.islice(rows.read(), SAMPLE_ROWS)]
    if not first:
        raise InputError(f'{rows.path}: no rows; wanted one row per episode')
    guessed = guess_columns(rows.header, columns=options.columns, given=options.defaults)
    cells = sample_cells(rows.header, first)
    chosen = _with_task(fit_to_cells(guessed, cells, sure=options.columns), options)
    stated = dict(options.defaults)
    assumed = _assumed_names(rows, {*chosen.columns, *stated}, options)
    given = {name: _parse_default(name, value) for name, value in {**assumed, **stated}.items()}
    has = {*chosen.columns, *given}
    shape = 'counts' if has & {'successes', 'success_rate'} and 'trials' in has else 'items' if options.group_by else ''
    group_by = tuple(_column_of(rows, name) for name in options.group_by)
    is_own = {'trial_id', 'episode_id'} <= chosen.columns.keys() or 'episode_id' in options.columns
    commas = {name: _decimal_comma(cells[column], rows.separator) for name, column in chosen.columns.items()}
    is_clock = _is_clock(chosen, cells)
    same = alike_names({name: cells[column] for name, column in chosen.columns.items() if name in ALIKE})
    is_joined = same is not None and options.answers.get(same.question.key) == 'join'
    plan = TablePlan(
        chosen=chosen,
        given=given,
        told=stated,
        assumed=assumed,
        convert={
            name: converter(
                name,
                chosen,
                commas[name] if name in WHOLE_FIELDS else commas[name] is not False,
                clock=1 / 60 if is_clock and options.answers.get('clock') != 'h:mm' else 1.0,
                strict=is_own,
                half=min(map(half_digit, cells[chosen.columns[name]]), default=0.5) if name == 'success_rate' else 0.5,
                same=same.spelling if same is not None and is_joined else None,
            )
            for name in chosen.columns
        },
        places={name: place for place, name in enumerate(rows.header)},
        is_text=bool(rows.separator),
        shape=shape or 'episodes',
        group_by=group_by,
        trial_id=None if is_own else f'import:{options.source_name(rows.path)}',
        rate_hz=options.rate_hz,
        max_score=1.0 if chosen.is_share else None,
        examples={name: cells[column][0] for name, column in chosen.columns.items() if cells[column]},
        notes=(*_comma_notes(chosen, commas), *_clock_notes(is_clock, options)),
        options=options,
        alike=None if same is None else same.question,
    )
    _check_enough(rows, plan, cells)
    return replace(plan, doubts=_doubts(plan, first, cells))


def _with_task(chosen: ColumnMap, options: ImportOptions) -> ColumnMap:
    """Where nothing else names the task, the instruction does, or the object."""
    others = [name for name in ('instruction', 'stratum') if name in chosen.columns]
    if {'task'} & {*chosen.columns, *options.defaults, *options.columns} or not others:
        return chosen
    kept = {name: column for name, column in chosen.columns.items() if (name, others[0]) != ('stratum', 'stratum')}
    return replace(chosen, columns={**kept, 'task': chosen.columns[others[0]]})


def _assumed_names(rows: Rows, has: set[str], options: ImportOptions) -> dict[str, str]:
    """A table without tasks is of one; of a folder's tables without policies, each is of the one it is named by."""
    is_policy = bool(options.folder) and 'policy' not in has
    if 'task' in has or not (is_policy or 'policy' in has):
        return {'policy': rows.path.stem} if is_policy else {}
    return {'policy': rows.path.stem, 'task': options.folder} if is_policy else {'task': rows.path.stem}


def _doubts(plan: TablePlan, first: Sequence[Row], cells: Mapping[str, Sequence[Any]]) -> tuple[Doubt, ...]:
    """What was assumed and may be named; the options of the last name all of it."""
    tasks = tuple(_task_doubts(plan, first, cells))
    options = tasks[-1].options if tasks else plan.options
    unused = [c for c in plan.chosen.labels if c not in options.columns.values()]
    return (*tasks, *_time_doubts(plan, options, {c: cells[c] for c in unused}))


def _task_doubts(plan: TablePlan, first: Sequence[Row], cells: Mapping[str, Sequence[Any]]) -> Iterator[Doubt]:
    """A table of one task, and whether its starts repeat as those of several tasks do."""
    if 'task' not in plan.assumed:
        return
    free = [c for c in plan.chosen.labels if normal(c) not in NUMBERINGS]
    said = f'No task column: all rows are one task, {plan.assumed["task"]!r}'
    columns = [c for name in STARTS if (c := plan.chosen.columns.get(name))]
    if len(first) < SAMPLE_ROWS and {'seed', 'instance'} & plan.chosen.columns.keys():
        times = set(Counter(tuple(str(row[plan.places[c]]) for c in columns) for row in first).values())
        if len(times) == 1 and (k := times.pop()) > 1:
            said += f'. Each {"seed" if "seed" in plan.chosen.columns else "start"} occurs {k} times per policy: is '
            said += 'a task column missing?'
    options = plan.options
    if free:
        likely = next((c for c in free if not any(map(_is_number, cells[c]))), free[0])
        named = replace(options, columns={**options.columns, 'task': likely})
        yield Doubt(said, f'--map task=COLUMN; not used: {", ".join(free[:4])}', named)
    else:
        yield Doubt(said, '--set task=NAME', replace(options, defaults={**options.defaults, 'task': 'NAME'}))


def _time_doubts(plan: TablePlan, options: ImportOptions, unused: Mapping[str, Sequence[Any]]) -> Iterator[Doubt]:
    """Durations that nothing names, where a column of numbers reads as if it were of them."""
    if plan.shape != 'episodes' or {'duration_s', 'steps'} & {*plan.chosen.columns, *plan.given}:
        return
    free = [name for name, cells in unused.items() if cells and all(map(_is_number, cells))]
    column = next((c for c in free if _TIMED.search(c)), '')
    if column:
        how = shlex.quote(f'duration_s={column}')
        named = replace(options, columns={**options.columns, 'duration_s': column})
        yield Doubt(f'No column for durations; not used: {", ".join(free[:4])}', f'--map {how}', named)


def _parse_default(name: str, value: str) -> Any:
    if check_field(name) in TIME_LISTS:
        raise InputError(f'{name} cannot be the same for every row; wanted a column, --map {name}=COLUMN')
    return converter(name, ColumnMap({name: ''}), False)(value)


def _column_of(rows: Rows, name: str) -> str:
    fitting = [c for c in rows.header if c == name] or [c for c in rows.header if normal(c) == normal(name)]
    if not fitting:
        raise UnknownName('column (for --group-by)', name, rows.header)
    return fitting[0]


def _decimal_comma(cells: Sequence[Any], separator: str) -> bool | None:
    return has_decimal_comma((c for c in cells if isinstance(c, str)), separator=separator)


def _comma_notes(chosen: ColumnMap, commas: Mapping[str, bool | None]) -> Iterator[str]:
    for name, column in chosen.columns.items():
        if commas[name] is None and name not in (*TEXT_FIELDS, *WHOLE_FIELDS, *TIME_LISTS):
            yield f'column {column!r}: commas before three digits are read as decimal points (1,234 is 1.234)'


def _is_clock(chosen: ColumnMap, cells: Mapping[str, Sequence[Any]]) -> bool:
    """Whether durations are times of day without seconds: a spreadsheet's reading of `1:23`."""
    column = chosen.columns.get('duration_s')
    times = [c for c in cells.get(column or '', ()) if isinstance(c, dt.time)]
    return bool(times) and all(t.second == 0 and t.microsecond == 0 for t in times)


def _clock_notes(is_clock: bool, options: ImportOptions) -> Iterator[str]:
    if is_clock and options.answers.get('clock') != 'h:mm':
        yield 'the spreadsheet holds hours and minutes; 1:23 is read as a minute and 23 seconds (--answer clock=h:mm)'


def converter(
    name: str, chosen: ColumnMap, decimal_comma: bool | None, *, clock: float = 1.0, strict: bool = False,
    same: Callable[[str], str] | None = None, half: float = 0.5,
) -> Convert:  # fmt: skip
    """What turns a cell into the value of a field; None where the cell says nothing. `same` joins names alike."""
    scale, comma = chosen.scale.get(name, 1.0), bool(decimal_comma)
    parse: Convert
    if same is not None and name in ALIKE:
        return _memo(lambda value: None if (text := _text(value)) is None else same(text))
    if name in TIME_LISTS:
        return lambda value: value
    if name in TEXT_FIELDS:
        return _memo(_text if strict or name in NAMES else _remark)
    if name in ('duration_s', 'time_cap_s'):
        parse = lambda v: parse_seconds(name, v, scale=scale, decimal_comma=comma, clock=clock)  # noqa: E731
    elif name in ('items_placed', 'items_lost'):
        parse = lambda v: _count_or_truth(name, v, comma)  # noqa: E731
    elif name in WHOLE_FIELDS:
        parse = lambda v: parse_whole(name, v, decimal_comma=comma)  # noqa: E731
    elif name == 'score':
        parse = lambda v: parse_share(name, v, scale=scale, decimal_comma=comma)  # noqa: E731
    elif name == 'max_score':
        parse = lambda v: parse_plain(name, v, decimal_comma=comma)  # noqa: E731
    elif name in ('success', 'is_reference', 'is_unrecoverable'):
        parse = lambda v: parse_truth(name, v)  # noqa: E731
    elif name == 'success_rate':
        return lambda v: None if is_missing(v) else (v, scale, comma, half)
    elif name == 'outcome' and not strict:
        parse = parse_outcome
    else:
        parse = lambda v: parse_other(name, v)  # noqa: E731
    return _memo(lambda v: None if is_missing(v) else parse(v))


def _memo(parse: Convert) -> Convert:
    """Cells repeat: most columns of a million rows hold a few texts."""
    known: dict[str, Any] = {}

    def convert(value: Any) -> Any:
        if type(value) is not str:
            return parse(value)
        try:
            return known[value]
        except KeyError:
            parsed = parse(value)
            if len(known) < MEMO:
                known[value] = parsed
            return parsed

    return convert


def _text(value: Any) -> str | None:
    if value is None or value == '' or (isinstance(value, str) and not value.strip()):
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _remark(value: Any) -> str | None:
    return None if is_missing(value) else _text(value)


def _count_or_truth(name: str, value: Any, comma: bool) -> int:
    if isinstance(value, bool) or (isinstance(value, str) and not value.strip()[:1].isdigit()):
        return int(parse_truth(name, value))
    return parse_whole(name, value, decimal_comma=comma)


def _check_enough(rows: Rows, plan: TablePlan, cells: Mapping[str, Sequence[Any]]) -> None:
    from robotrials.formats.row_outcome import fewest_trials

    has, options = {*plan.chosen.columns, *plan.given}, plan.options
    seen = ', '.join(dict.fromkeys([*plan.chosen.columns.values(), *plan.chosen.labels][:50]))
    if 'policy' not in has:
        raise FixableError(
            f'{rows.path}: no column for policy among: {seen}. '
            'Name it with --map policy=COLUMN, or give one value for all rows with --set policy=VALUE',
            rows.path, _naming('policy', rows, plan, cells),
        )  # fmt: skip
    if has & {'outcome', 'success', 'successes', 'score'} or {'success_rate', 'trials'} <= has:
        return
    rates = next((c for c in plan.chosen.labels if normal(c) in SYNONYMS['success_rate']), None)
    if 'success_rate' in has or rates is not None:
        column = plan.chosen.columns.get('success_rate', rates or '')
        fewest = fewest_trials(cells[column], is_percent='%' in column)
        problem = (
            f'{rows.path}: a rate without its number of trials; name the column with --map trials=COLUMN, or give '
            'one number with --set trials=N'
        )
        if fewest is None:
            raise InputError(problem)
        raise FixableError(
            f'{problem} ({fewest} is the least that gives these rates; put your own number)',
            rows.path, replace(options, defaults={**options.defaults, 'trials': str(fewest)}),
        )  # fmt: skip
    placed = bool(has & {'items_placed', 'placement_times_s'})
    if placed and ('items' in has or plan.shape == 'items'):
        return
    if placed:
        groups = [c for n in ('policy', 'task', 'seed', 'instance', 'condition') if (c := plan.chosen.columns.get(n))]
        groups += [c for c in plan.chosen.labels if normal(c) in NUMBERINGS]
        raise FixableError(
            f'{rows.path}: items are placed, and nothing says out of how many. One row per item? '
            f'--group-by {",".join(groups)}. One row per episode? --set items=N',
            rows.path, replace(options, group_by=tuple(groups)),
        )  # fmt: skip
    if options.blank:
        return
    problem = f'{rows.path}: no column for outcome or success among: {seen}. Name one with --map success=COLUMN'
    column = next((c for c in plan.chosen.labels if cells[c] and _is_truth(cells[c])), '')
    if column:
        raise FixableError(problem, rows.path, replace(options, columns={**options.columns, 'success': column}))
    raise FixableError(
        f'{problem}; without results episodes can only be kept as INVALID', rows.path, replace(options, blank='invalid')
    )


def _naming(name: str, rows: Rows, plan: TablePlan, cells: Mapping[str, Sequence[Any]]) -> ImportOptions:
    """The options with the likeliest column for a name, or with the file's own name for all rows."""
    options, free = plan.options, [c for c in plan.chosen.labels if normal(c) not in NUMBERINGS]
    texts = [c for c in free if cells[c] and not any(_is_number(cell) for cell in cells[c])]
    fitting = [c for c in texts if name in normal(c)]
    fitting += [c for c in texts if normal(c) in ('name', 'run', 'run_name', 'experiment', 'job_name', 'group')]
    several = [c for c in texts if len(set(map(str, cells[c]))) > 1]
    fitting += several if len(several) == 1 else []
    if fitting:
        return replace(options, columns={**options.columns, name: fitting[0]})
    return replace(options, defaults={**options.defaults, name: rows.path.stem})


def _is_number(cell: Any) -> bool:
    try:
        parse_plain('cell', cell, decimal_comma=True)
    except RecordError:
        return False
    return True


def _is_truth(cells: Sequence[Any]) -> bool:
    try:
        return len({parse_truth('success', cell) for cell in cells}) == 2
    except RecordError:
        return False


def _guesses(plan: TablePlan, path: Path) -> Iterator[FieldGuess]:
    from robotrials.formats.row_outcome import TIMED

    unused = TIMED if plan.shape == 'counts' else ()
    for name in sorted((n for n in plan.chosen.columns if n not in unused), key=FIELDS.index):
        yield FieldGuess(name, f'column {plan.chosen.columns[name]!r}', _example(plan, name))
    for name, value in plan.assumed.items():
        yield FieldGuess(name, "the file's name" if value == path.stem else f'{value}, for all rows')
    for name, value in plan.told.items():
        yield FieldGuess(name, f'{value!r} for every row without one')
    if plan.shape == 'items':
        yield FieldGuess('(rows)', f'one episode for each {", ".join(plan.group_by)}', 'a row is an item')
    if plan.shape == 'counts':
        yield FieldGuess('(rows)', 'successes out of trials', 'expanded to episodes, labelled from=counts')
    for column in plan.chosen.labels:
        yield FieldGuess('labels', f'column {column!r}')


def _example(plan: TablePlan, name: str) -> str:
    """What becomes of a cell, where it does not stay as it is."""
    cell = plan.examples.get(name)
    if cell is None or name in (*TEXT_FIELDS, *TIME_LISTS, 'success_rate', 'labels', 'events', 'condition_parameters'):
        return ''
    try:
        value = plan.convert[name](cell)
    except RecordError:
        return ''
    text = f'{value:g}' if isinstance(value, float) else str(value)
    return '' if text == str(cell) else f'{short(cell)} is {text}'


# --- whole columns


def can_be_bulk(rows: Rows, plan: TablePlan) -> bool:
    """Whether a table is plain enough to be read by whole columns, and long enough to be worth it."""
    fields = {*plan.chosen.columns, *plan.given} - {'trial_id'}
    return (
        rows.batches is not None
        and plan.shape == 'episodes'
        and plan.trial_id is not None
        and fields <= TAKEN
        and bool(fields & {'success', 'outcome'})
        and not (plan.options.values or plan.options.blank or plan.options.answers)
        and not rows.loose & {*plan.chosen.labels, *(plan.chosen.columns.get(name) for name in bulk.NAMES)}
        and is_large(rows.path)
    )


def _bulk_tables(rows: Rows, plan: TablePlan, ledger: ImportAccount) -> Iterator[pa.Table]:
    assert rows.batches is not None
    reader = BulkReader(rows.batches, plan)
    yield from reader.tables()
    timed = {'duration_s': 0.0} if 'duration_s' in plan.chosen.columns else {}
    if {'steps', 'step_cap'} & {*plan.chosen.columns, *plan.given}:
        for benchmark in sorted(reader.benchmarks) or ['']:
            _tell_time({'steps': 0, 'benchmark': benchmark, **timed}, plan, ledger)
    _account(rows, plan, ledger, reader.outcomes, reader.caps)
    _account_labels(plan, ledger, reader.labelled)


# --- rows to episodes


def table_episodes(rows: Rows, plan: TablePlan, ledger: ImportAccount) -> Iterator[Episode]:
    """The episodes of a table in order; bad rows are collected, and raised together at the end."""
    caps, numbers, problems = Caps(), _Numbers(plan), Problems(rows.path, plan.options)
    source = _grouped(rows, plan) if plan.shape == 'items' else _single(_without_means(rows, plan, ledger), plan)
    outcomes: Counter[str] = Counter()
    labelled: set[str] = set()
    for number, values, error in source:
        try:
            if error is not None:
                raise error
            for fields in _episodes_of(values, plan, caps, ledger):
                episode = Episode(**numbers.named(fields))
                outcomes[episode.outcome.value] += 1
                labelled.update(episode.labels)
                yield episode
        except RecordError as problem:
            problems.add(number, problem)
    problems.refuse()
    _account(rows, plan, ledger, outcomes, caps)
    _account_labels(plan, ledger, labelled)


def _without_means(rows: Rows, plan: TablePlan, ledger: ImportAccount) -> Rows:
    """A table of counts without the rows at its foot that sum up the others."""
    if plan.shape != 'counts':
        return rows
    places = [plan.places[column] for name in ('policy', 'task') if (column := plan.chosen.columns.get(name))]

    def read() -> Iterator[tuple[int, Row]]:
        for number, row in rows.read():
            if any(normal(str(row[place])) in MEANS for place in places):
                ledger.drop('rows', why='means or sums of the others')
            else:
                yield number, row

    return replace(rows, read=read)


def _single(rows: Rows, plan: TablePlan) -> Iterator[tuple[int, Values, RecordError | None]]:
    fields = [(name, plan.places[column], plan.convert[name]) for name, column in plan.chosen.columns.items()]
    labels = [(column, plan.places[column]) for column in plan.chosen.labels]
    words = {word.strip().lower(): Outcome(outcome) for word, outcome in plan.options.values.items()}
    result = plan.chosen.columns.get('outcome', plan.chosen.columns.get('success'))
    word_place = plan.places[result] if words and result is not None else None
    for number, row in rows.read():
        try:
            meant = None if word_place is None else words.get(str(row[word_place]).strip().lower())
            values = {
                name: v for name, place, convert in fields
                if not (meant and place == word_place) and (v := convert(row[place])) is not None
            }  # fmt: skip
            if meant:
                values['outcome'] = meant
        except RecordError as error:
            yield number, {}, error
            continue
        values['labels'] = {
            **{c: str(v) for c, place in labels if (v := row[place]) is not None and v != ''},
            **values.get('labels', {}),
        }
        yield number, values, None


def _grouped(rows: Rows, plan: TablePlan) -> Iterator[tuple[int, Values, RecordError | None]]:
    keys = [plan.places[column] for column in plan.group_by]
    parsed = ((number, values, error) for number, values, error in _single(rows, plan))
    paired = zip(parsed, (tuple(str(row[k]) for k in keys) for _, row in rows.read()), strict=True)
    yield from group_rows(paired, plan.group_by)


def _episodes_of(values: Values, plan: TablePlan, caps: Caps, ledger: ImportAccount) -> Iterator[Values]:
    from robotrials.formats.row_outcome import expand_counts

    values = {**plan.given, **values}
    blank = plan.options.blank
    tells = ('successes', 'success_rate') if plan.shape == 'counts' else TELLING
    is_blank = not any(name in values for name in tells)
    if is_blank and blank == 'drop':
        ledger.drop('rows', why='no result in them (--blank drop)')
        return
    if is_blank and plan.shape == 'counts':
        raise BlankError('successes is empty, wanted how many of the trials succeeded', ('drop',))
    if is_blank and blank:
        values['outcome'] = Outcome(blank)
    if is_blank and not blank:
        raise BlankError('neither outcome nor success is given', BLANKS)
    if plan.shape == 'counts':
        yield from expand_counts(values)
        return
    for name in COUNTS:
        values.pop(name, None)
    values['events'] = (*values.get('events', ()), *timed_events(values))
    for name in TIME_LISTS:
        values.pop(name, None)
    if 'score' in values and 'max_score' not in values and plan.max_score is not None:
        values['max_score'] = plan.max_score
    _tell_time(values, plan, ledger)
    values['outcome'] = derive_outcome(values, caps)
    values.pop('step_cap', None)
    for name in ('policy', 'task'):
        if name not in values:
            raise RecordError(f'{name} is empty, wanted a value')
    yield values


def _tell_time(values: Values, plan: TablePlan, ledger: ImportAccount) -> None:
    """Steps become seconds only by a rate that was stated, or that the benchmark fixes."""
    from robotrials.formats.imported import known_rate_hz

    steps, cap = values.get('steps'), values.get('step_cap')
    if steps is None and cap is None:
        return
    rate = plan.rate_hz
    if rate is None and values.get('benchmark'):
        rate = known_rate_hz(values['benchmark'])
        if rate is not None:
            ledger.note(f'steps of {values["benchmark"]} are converted to seconds at its {rate:g} steps per second')
    if rate is None:
        if 'duration_s' not in values:
            ledger.hint(
                'steps are kept as steps, so there is no time analysis; an import with --rate-hz N turns them into '
                'seconds'
            )
        return
    if steps is not None:
        values.setdefault('duration_s', steps / rate)
    if cap is not None:
        values.setdefault('time_cap_s', cap / rate)


@dataclass(slots=True)
class _Numbers:
    """Ids for rows that bring none: by the row's place in its cell, or as repeats of the start that it names."""

    plan: TablePlan
    seen: dict[str, int] = field(default_factory=dict)
    _cells: dict[tuple[str, ...], str] = field(default_factory=dict)

    def named(self, values: Values) -> Values:
        """The values with the ids that an episode of them is to have."""
        plan = self.plan
        if plan.trial_id is None:
            return values
        foreign = values.pop('episode_id', None)
        values.setdefault('trial_id', plan.trial_id)
        plain = self._plain_id(values)
        if foreign is not None:
            values['labels'] = {**values.get('labels', {}), 'episode_id': foreign}
            values['episode_id'] = digest([plain, 'id', foreign])
            return values
        count = self.seen.get(plain, 0)
        self.seen[plain] = count + 1
        if values.get('seed') is None and values.get('instance') is None:
            # The place in its cell makes the id; it is not a start state, and is recorded as none.
            values['episode_id'] = digest([plain, 'row', count])
        elif count:
            values['repeat'] = count
        else:
            values['episode_id'] = plain
        return values

    def _plain_id(self, values: Values) -> str:
        """What `identity.episode_id_of` gives for the values; the part that rows of a cell share is written once."""
        if values.get('condition_parameters'):
            return episode_id_of(Episode(**values))
        cell = tuple(values.get(name, default) for name, default in CELL)
        prefix = self._cells.get(cell)
        if prefix is None:
            prefix = json.dumps([*cell, {}], separators=(',', ':'), ensure_ascii=False)[:-1]
            self._cells[cell] = prefix
        start = (values.get('seed'), values.get('instance'), values.get('repeat', 0))
        text = ','.join([prefix, *('null' if v is None else str(v) for v in start)]) + ']'
        try:
            return hashlib.sha256(text.encode()).hexdigest()[:ID_HEX_DIGITS]
        except UnicodeEncodeError:
            return digest([*cell, {}, *start])  # which says what is wrong


def _account(rows: Rows, plan: TablePlan, ledger: ImportAccount, outcomes: Counter[str], caps: Caps) -> None:
    for outcome, count in sorted(outcomes.items()):
        ledger.keep(f'episodes: {outcome}', count)
    if rows.skipped_lines:
        ledger.drop('lines above the header', rows.skipped_lines, why='no row of the table')
    if plan.shape == 'counts':
        ledger.note('expanded from counts: no seed, no initial state and no time, so nothing is paired or timed')
    for hint in caps.hints():
        ledger.hint(hint)


def _account_labels(plan: TablePlan, ledger: ImportAccount, labelled: set[str]) -> None:
    for column in plan.chosen.labels:
        if column in labelled:
            ledger.keep(f'column {column!r}', None, why='fits no field; kept as a label')
        else:
            why = 'differs between the items of an episode' if plan.shape == 'items' else 'empty throughout'
            ledger.drop(f'column {column!r}', None, why=why)
        if normal(column) in NUMBERINGS and 'instance' not in plan.chosen.columns:
            how = shlex.quote(f'instance={column}')
            ledger.hint(f'column {column!r} numbers the rollouts; if it is the initial state: --map {how}')
