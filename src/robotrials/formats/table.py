"""Anyone's table as a source of episodes: one row per episode, per item, or per (policy, task) with counts."""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robotrials.errors import InputError, RecordError, UnknownName
from robotrials.formats.bulk import TAKEN, BulkReader
from robotrials.formats.cell import (
    has_decimal_comma,
    is_missing,
    parse_other,
    parse_plain,
    parse_seconds,
    parse_share,
    parse_truth,
    parse_whole,
    short,
)
from robotrials.formats.control_rate import known_rate_hz
from robotrials.formats.counts import expand_counts
from robotrials.formats.guess import (
    COUNTS,
    FIELDS,
    NUMBERINGS,
    SYNONYMS,
    TIME_LISTS,
    ColumnMap,
    check_field,
    fit_to_cells,
    guess_columns,
    is_usual,
    normal,
    sample_cells,
)
from robotrials.formats.imported import (
    POSSIBLE,
    FieldGuess,
    Imported,
    ImportOptions,
    Ledger,
    Recording,
    refuse_unused,
)
from robotrials.formats.items import group_rows, timed_events
from robotrials.formats.outcome import Caps, derive_outcome
from robotrials.formats.rows import SUFFIXES, Rows, open_rows
from robotrials.record.episode import Episode
from robotrials.record.field import TEXT_FIELDS
from robotrials.record.identity import ID_HEX_DIGITS, digest, episode_id_of

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE_ROWS = 5_000
BULK_BYTES = 1 << 18  # smaller tables are read row by row in less time than it takes to look twice
WHOLE_FIELDS = ('attempt', 'seed', 'instance', 'repeat', 'steps', 'step_cap', 'items', 'trials', 'successes')
NAMES = ('policy', 'task', 'trial_id', 'episode_id', 'benchmark', 'stratum', 'condition', 'provenance_id')
MOST_PROBLEMS = 10
MEMO = 50_000
CELL = (
    ('trial_id', ''), ('policy', ''), ('benchmark', ''), ('task', ''), ('stratum', ''), ('condition', 'nominal'),
)  # fmt: skip
Values = dict[str, Any]
Convert = Callable[[Any], Any]


class TableFormat:
    """A table whose columns are guessed by name and content."""

    name = 'table'
    summary = 'CSV, TSV, XLSX, JSON, JSONL or Parquet: a row per episode, per item, or per (policy, task) with counts'

    def recognise(self, path: Path) -> float | None:
        return POSSIBLE if path.is_file() and path.suffix.lower() in SUFFIXES else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='a table', takes=('columns', 'group_by', 'rate_hz', 'answers'))
        rows = open_rows(path, options, known=is_usual)
        plan = plan_table(rows, options)
        ledger = Ledger()
        for note in (*rows.notes, *plan.chosen.notes, *plan.notes):
            ledger.note(note)
        return Imported(
            format=self.name,
            sources=(path,),
            recordings=lambda: (Recording(e) for e in table_episodes(rows, plan, ledger)),
            ledger=ledger,
            guesses=tuple(_guesses(plan)),
            tables=(lambda: _bulk_tables(rows, plan, ledger)) if can_be_bulk(rows, plan) else None,
            resolved=replace(options, columns=dict(plan.chosen.columns)),
        )


TABLE = TableFormat()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TablePlan:
    """How the rows of one table become episodes."""

    chosen: ColumnMap
    given: Mapping[str, Any]  # parsed values for every row
    told: Mapping[str, str]  # the same as the user wrote them
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


def plan_table(rows: Rows, options: ImportOptions) -> TablePlan:
    """Decide what each column is from its name and its first cells; raise where too little can be told."""
    first = [row for _, row in itertools.islice(rows.read(), SAMPLE_ROWS)]
    if not first:
        raise InputError(f'{rows.path}: no rows; wanted one row an episode')
    guessed = guess_columns(rows.header, columns=options.columns)
    cells = sample_cells(rows.header, first)
    chosen = fit_to_cells(guessed, cells, sure=options.columns)
    told = dict(options.defaults)
    given = {name: _parse_default(name, value) for name, value in told.items()}
    has = {*chosen.columns, *given}
    shape = 'counts' if has & {'successes', 'success_rate'} and 'trials' in has else 'items' if options.group_by else ''
    group_by = tuple(_column_of(rows, name) for name in options.group_by)
    is_own = {'trial_id', 'episode_id'} <= chosen.columns.keys() or 'episode_id' in options.columns
    commas = {name: _decimal_comma(cells[column], rows.separator) for name, column in chosen.columns.items()}
    is_clock = _is_clock(chosen, cells)
    plan = TablePlan(
        chosen=chosen,
        given=given,
        told=told,
        convert={
            name: converter(
                name,
                chosen,
                commas[name] if name in WHOLE_FIELDS else commas[name] is not False,
                clock=1 / 60 if is_clock and options.answers.get('clock') != 'h:mm' else 1.0,
                strict=is_own,
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
    )
    _check_enough(rows, plan)
    return plan


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
    name: str, chosen: ColumnMap, decimal_comma: bool | None, *, clock: float = 1.0, strict: bool = False
) -> Convert:
    """What turns a cell into the value of a field; None where the cell says nothing."""
    scale, comma = chosen.scale.get(name, 1.0), bool(decimal_comma)
    parse: Convert
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
        return lambda v: None if is_missing(v) else (v, scale, comma)
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


def _check_enough(rows: Rows, plan: TablePlan) -> None:
    has = {*plan.chosen.columns, *plan.given}
    for name in ('policy', 'task'):
        if name not in has:
            seen = ', '.join([*plan.chosen.columns.values(), *plan.chosen.labels][:50])
            raise InputError(
                f'{rows.path}: no column for {name} among: {seen}. '
                f'Name it with --map {name}=COLUMN, or give one value for all rows with --set {name}=VALUE'
            )
    if has & {'outcome', 'success', 'successes', 'score'} or {'success_rate', 'trials'} <= has:
        return
    if 'success_rate' in has or any(normal(c) in SYNONYMS['success_rate'] for c in plan.chosen.labels):
        raise InputError(
            f'{rows.path}: a rate without its number of trials; name the column with --map trials=COLUMN, or give '
            'one number with --set trials=N'
        )
    placed = bool(has & {'items_placed', 'placement_times_s'})
    if placed and ('items' in has or plan.shape == 'items'):
        return
    if placed:
        groups = [c for n in ('policy', 'task', 'seed', 'instance', 'condition') if (c := plan.chosen.columns.get(n))]
        groups += [c for c in plan.chosen.labels if normal(c) in NUMBERINGS]
        raise InputError(
            f'{rows.path}: items are placed, and nothing says out of how many. One row per item? '
            f'--group-by {",".join(groups)}. One row per episode? --set items=N'
        )
    raise InputError(f'{rows.path}: no column for outcome or success; name one with --map success=COLUMN')


def _guesses(plan: TablePlan) -> Iterator[FieldGuess]:
    for name in sorted(plan.chosen.columns, key=FIELDS.index):
        yield FieldGuess(name, f'column {plan.chosen.columns[name]!r}', _example(plan, name))
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
    shown = f'{value:g}' if isinstance(value, float) else str(value)
    return '' if shown == str(cell) else f'{short(cell)} is {shown}'


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
        and rows.path.stat().st_size > BULK_BYTES
    )


def _bulk_tables(rows: Rows, plan: TablePlan, ledger: Ledger) -> Iterator[pa.Table]:
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


def table_episodes(rows: Rows, plan: TablePlan, ledger: Ledger) -> Iterator[Episode]:
    """The episodes of a table in order; bad rows are collected, and raised together at the end."""
    caps, numbers, n_bad = Caps(), _Numbers(plan), 0
    problems: list[str] = []
    source = _grouped(rows, plan) if plan.shape == 'items' else _single(rows, plan)
    outcomes: Counter[str] = Counter()
    labelled: set[str] = set()
    for number, values, error in source:
        try:
            if error is not None:
                raise error
            for found in _episodes_of(values, plan, caps, ledger):
                episode = Episode(**numbers.named(found))
                outcomes[episode.outcome.value] += 1
                labelled.update(episode.labels)
                yield episode
        except RecordError as problem:
            n_bad += 1
            if len(problems) < MOST_PROBLEMS:
                problems.append(f'{rows.path} row {number}: {problem}')
    if problems:
        more = f'\n... and {n_bad - len(problems)} more' if n_bad > len(problems) else ''
        raise RecordError('\n'.join(problems) + f'{more}\nnothing was imported')
    _account(rows, plan, ledger, outcomes, caps)
    _account_labels(plan, ledger, labelled)


def _single(rows: Rows, plan: TablePlan) -> Iterator[tuple[int, Values, RecordError | None]]:
    fields = [(name, plan.places[column], plan.convert[name]) for name, column in plan.chosen.columns.items()]
    labels = [(column, plan.places[column]) for column in plan.chosen.labels]
    for number, row in rows.read():
        try:
            values = {name: v for name, place, convert in fields if (v := convert(row[place])) is not None}
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


def _episodes_of(values: Values, plan: TablePlan, caps: Caps, ledger: Ledger) -> Iterator[Values]:
    values = {**plan.given, **values}
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


def _tell_time(values: Values, plan: TablePlan, ledger: Ledger) -> None:
    """Steps become seconds only by a rate that was stated, or that the benchmark fixes."""
    steps, cap = values.get('steps'), values.get('step_cap')
    if steps is None and cap is None:
        return
    rate = plan.rate_hz
    if rate is None and values.get('benchmark'):
        rate = known_rate_hz(values['benchmark'])
        if rate is not None:
            ledger.note(f'steps of {values["benchmark"]} are told in seconds at its {rate:g} steps per second')
    if rate is None:
        if 'duration_s' not in values:
            ledger.hint('steps are kept as steps, so there is no time analysis; --rate-hz N turns them into seconds')
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


def _account(rows: Rows, plan: TablePlan, ledger: Ledger, outcomes: Counter[str], caps: Caps) -> None:
    for outcome, count in sorted(outcomes.items()):
        ledger.keep(f'episodes: {outcome}', count)
    if rows.skipped_lines:
        ledger.drop('lines above the header', rows.skipped_lines, why='no row of the table')
    if plan.shape == 'counts':
        ledger.note('expanded from counts: no seed, no initial state and no time, so nothing is paired or timed')
    for hint in caps.hints():
        ledger.hint(hint)


def _account_labels(plan: TablePlan, ledger: Ledger, labelled: set[str]) -> None:
    for column in plan.chosen.labels:
        if column in labelled:
            ledger.keep(f'column {column!r}', None, why='fits no field; kept as a label')
        else:
            why = 'differs between the items of an episode' if plan.shape == 'items' else 'empty throughout'
            ledger.drop(f'column {column!r}', None, why=why)
        if normal(column) in NUMBERINGS and 'instance' not in plan.chosen.columns:
            ledger.hint(f'column {column!r} numbers the rollouts; if it is the initial state: --map instance={column}')
