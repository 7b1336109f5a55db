"""Large plain tables by whole columns: the same episodes as row by row, at a fraction of the time.

Only what needs no second thought is done here: separated text, lines of JSON or Parquet, one row per episode, values
that parse and keep the record's rules. Anything else raises NotPlainError, and the caller reads row by row, which names
what is wrong.
Different cells are parsed once each, by what parses them row by row; only whole columns of numbers are cast.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats import kernel
from robotrials.formats.row_outcome import SLACK_S, Caps
from robotrials.record.episode import ID_HEX_DIGITS, LARGEST_COUNT, Outcome
from robotrials.record.rows import EPISODE_SCHEMA
from robotrials.value import dataclass

BLOCK_BYTES = 2 << 20  # of text at a time, of which Arrow reads several ahead
SCANNED_BYTES = 1 << 18  # at a time, which stay in the processor's cache
KEPT_BYTES = 96 << 20  # of lines of JSON, once parsed
NAMES = ('policy', 'benchmark', 'task', 'stratum', 'condition', 'reason', 'operator', 'session', 'block', 'instruction')
CELL = ('policy', 'benchmark', 'task', 'stratum', 'condition')
NUMBERS = ('duration_s', 'time_cap_s', 'score', 'max_score')
WHOLE = ('seed', 'instance', 'steps', 'step_cap')
TRUTHS = ('success', 'is_reference')
TAKEN = frozenset({*NAMES, *NUMBERS, *WHOLE, *TRUTHS, 'outcome'})
NEWLINE, RETURN, BRACE = b'\n\r{'
FLAT = (pa.types.is_string, pa.types.is_int64, pa.types.is_float64, pa.types.is_boolean, pa.types.is_null)
CASTABLE = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_floating)
OUTCOMES = tuple(Outcome)
Plan = Any  # TablePlan, which imports this module


class NotPlainError(Exception):
    """The table needs to be read row by row."""


def text_batches(path: Path, header: Sequence[str], separator: str, *, skipped_lines: int) -> Iterator[pa.RecordBatch]:
    """The cells of separated text below its header, as texts; NotPlainError where Arrow may read it otherwise."""
    options = pcsv.ConvertOptions(column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False)
    parse = pcsv.ParseOptions(delimiter=separator, newlines_in_values=has_quotes(path, n_head_lines=skipped_lines + 1))
    read = pcsv.ReadOptions(block_size=BLOCK_BYTES, column_names=list(header), skip_rows=skipped_lines + 1)
    yield from pcsv.open_csv(path, read_options=read, parse_options=parse, convert_options=options)


def has_quotes(path: Path, *, n_head_lines: int) -> bool:
    """Whether there are quotation marks in a text; NotPlainError where its lines are not told by line feeds alone.

    Lines to the end of the header are skipped by number, so none of their cells may go over a line end.
    """
    carriage = breaks = 0
    is_quoted = False
    with path.open('rb') as stream:
        if any(stream.readline(BLOCK_BYTES).count(b'"') % 2 for _ in range(n_head_lines)):
            raise NotPlainError('a cell of the header has several lines')
        stream.seek(0)
        last = b''
        while block := stream.read(SCANNED_BYTES):
            is_quoted = is_quoted or b'"' in block
            if b'\x00' in block:
                raise NotPlainError('a zero byte')
            if b'\r' in block or last == b'\r':
                carriage += block.count(b'\r')
                breaks += block.count(b'\r\n') + (last == b'\r' and block[:1] == b'\n')
            last = block[-1:]
    if carriage != breaks:
        raise NotPlainError('a carriage return that ends no line')
    return is_quoted


def open_json(path: Path) -> tuple[pa.Schema, Callable[[], Iterator[pa.RecordBatch]]] | None:
    """The columns of a file with one flat JSON object per line, by their first mention, and its rows; None for others.

    The whole file is parsed once, so that no later row has another column or type; rows of a file that is not too large
    are kept from that, those of a larger one are parsed again. Texts that look like times stay texts.
    """
    import pyarrow.json as pjson

    if not _has_flat_lines(path):
        return None
    kept: list[pa.RecordBatch] = []
    n_bytes = 0
    try:
        first = pjson.open_json(path, read_options=pjson.ReadOptions(block_size=BLOCK_BYTES)).schema
        kinds = [pa.string() if pa.types.is_timestamp(kind) else kind for kind in first.types]
        if not all(any(is_kind(kind) for is_kind in FLAT) for kind in kinds):
            return None
        schema = pa.schema(list(zip(first.names, kinds, strict=True)))
        for batch in json_batches(path, schema):
            n_bytes += batch.nbytes
            kept = [*kept, batch] if n_bytes <= KEPT_BYTES else []
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return None
    return schema, lambda: iter(kept) if kept else json_batches(path, schema)


def _has_flat_lines(path: Path) -> bool:
    """Whether every line that is not empty begins an object and none holds another, or a list.

    Arrow's parser goes down into what is nested by calling itself, and a deep file would end this process. A brace or a
    bracket inside of a text sends a file to who reads it line by line, too.
    """
    with path.open('rb') as stream:
        while block := stream.read(BLOCK_BYTES):
            block += stream.readline(BLOCK_BYTES)  # to the end of a line; one that is longer is no row of a table
            if b'[' in block or len(block) == 2 * BLOCK_BYTES:
                return False
            n_lines = block.count(b'\n') + (not block.endswith(b'\n'))
            if block.count(b'{') == block.count(b'\n{') + block.startswith(b'{') == n_lines:
                continue  # every line begins with its one brace, as all but odd files have it
            letters = np.frombuffer(b'\n' + block, np.uint8)
            if not np.isin(letters[1:][letters[:-1] == NEWLINE], (BRACE, NEWLINE, RETURN)).all():
                return False
            marks = letters[(letters == BRACE) | (letters == NEWLINE)]
            if ((marks[1:] == BRACE) & (marks[:-1] == BRACE)).any():
                return False
    return True


def json_batches(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file with one JSON object per line, by these columns; ArrowInvalid where one is otherwise."""
    import pyarrow.json as pjson

    read = pjson.ReadOptions(block_size=BLOCK_BYTES)
    parse = pjson.ParseOptions(explicit_schema=schema, unexpected_field_behavior='error')
    yield from pjson.open_json(path, read_options=read, parse_options=parse)


@dataclass(slots=True)
class BulkReader:
    """The episodes of a plain table as Arrow tables, batch by batch; see `completed` for columns they do not have."""

    batches: Callable[[], Iterator[pa.RecordBatch]]
    plan: Plan
    caps: Caps = field(default_factory=Caps)
    outcomes: Counter[str] = field(default_factory=Counter)
    labelled: set[str] = field(default_factory=set)
    benchmarks: set[str] = field(default_factory=set)
    _places: dict[str, int] = field(default_factory=dict)  # cell -> rows without a start so far

    def tables(self) -> Iterator[pa.Table]:
        """Batches in order; NotPlainError where one row is not what it should be."""
        try:
            for batch in self.batches():
                if batch.num_rows:
                    yield self._table(batch)
        except (pa.ArrowException, OSError, InputError, ValueError) as error:
            raise NotPlainError(str(error)) from error

    def _table(self, batch: pa.RecordBatch) -> pa.Table:
        columns = _BatchColumns(batch, self.plan)
        n = batch.num_rows
        values: dict[str, Any] = {name: columns.names(name) for name in NAMES}
        for name in ('policy', 'task'):
            if values[name] is None or '' in values[name].texts:
                raise NotPlainError(f'{name} is empty')
        numbers = {name: columns.numbers(name) for name in (*NUMBERS, *WHOLE)}
        self._tell_time(values['benchmark'], numbers)
        _check_numbers(numbers)
        truths = {name: columns.truths(name) for name in TRUTHS}
        outcome = self._outcomes(columns, numbers, truths['success'], n)
        cells, codes = _cells(self._trial_id(), values, n)
        ids = self._ids(cells, codes, numbers['seed'], numbers['instance'])
        arrays = {
            **{name: None if names is None else names.encoded() for name, names in values.items()},
            **{name: None if a is None else arrow(a, missing=np.isnan(a)) for name, a in numbers.items()},
            'episode_id': ids,
            'trial_id': _Names([self._trial_id()], np.zeros(n, np.int32)).encoded(),
            'outcome': pa.DictionaryArray.from_arrays(arrow(outcome), pa.array([o.value for o in OUTCOMES])),
            **truths,
            'labels': self._labels(columns),
        }
        if self.plan.max_score is not None and arrays['max_score'] is None and numbers['score'] is not None:
            arrays['max_score'] = arrow(np.full(n, self.plan.max_score), missing=np.isnan(numbers['score']))
        fields = [column for column in EPISODE_SCHEMA if arrays.get(column.name) is not None]
        return pa.table([arrays[f.name].cast(f.type) for f in fields], schema=pa.schema(fields))

    def _trial_id(self) -> str:
        return str(self.plan.given.get('trial_id', self.plan.trial_id))

    def _tell_time(self, benchmark: _Names | None, numbers: dict[str, NDArray[np.float64] | None]) -> None:
        from robotrials.formats.imported import known_rate_hz

        steps, cap = numbers['steps'], numbers['step_cap']
        if steps is None and cap is None:
            return
        rate: Any = self.plan.rate_hz
        if benchmark is not None:
            self.benchmarks.update(benchmark.texts)
        if rate is None and benchmark is not None:
            rates = np.array([known_rate_hz(text) or np.nan for text in benchmark.texts])
            rate = rates[benchmark.codes]
        if rate is None:
            return
        for ours, theirs in (('duration_s', steps), ('time_cap_s', cap)):
            if theirs is not None:
                seconds, known = theirs / rate, numbers[ours]
                numbers[ours] = seconds if known is None else np.where(np.isnan(known), seconds, known)

    def _outcomes(
        self, columns: _BatchColumns, numbers: dict[str, Any], success: pa.Array | None, n: int
    ) -> NDArray[np.int32]:
        lasted, steps, cap_s, cap = (numbers[k] for k in ('duration_s', 'steps', 'time_cap_s', 'step_cap'))
        outcomes = columns.outcomes()
        if outcomes is None:
            if success is None or success.null_count:
                raise NotPlainError('neither outcome nor success is given')
            wins = success.to_numpy(zero_copy_only=False)
            at_cap = np.zeros(n, bool)
            if cap_s is not None and lasted is not None:
                at_cap |= lasted >= cap_s - SLACK_S
            if cap is not None and steps is not None:
                at_cap |= steps >= cap
            failed = np.where(at_cap, OUTCOMES.index(Outcome.TIMEOUT), OUTCOMES.index(Outcome.FAILURE))
            outcomes = np.where(wins, OUTCOMES.index(Outcome.SUCCESS), failed).astype(np.int32)
        is_failure = outcomes == OUTCOMES.index(Outcome.FAILURE)
        if cap_s is not None or cap is not None:
            is_failure = np.zeros(n, bool)
        self.caps.see_many(lasted, steps, is_failure=is_failure, is_success=outcomes == OUTCOMES.index(Outcome.SUCCESS))
        self.outcomes.update({OUTCOMES[k].value: int(c) for k, c in enumerate(np.bincount(outcomes, minlength=5)) if c})
        return outcomes

    def _ids(
        self, cells: list[str], codes: NDArray[np.int64], seed: NDArray[np.float64] | None, instance: Any
    ) -> pa.Array:
        """24 hex digits per row, as `identity.episode_id_of` and the place in a cell make them."""
        if seed is None and instance is None:
            return self._placed_ids(cells, codes)
        if any(a is not None and np.isnan(a).any() for a in (seed, instance)):
            raise NotPlainError('some rows have a start and some have none')
        n = len(codes)
        return row_ids(cells, codes, [np.full(n, kernel.NULL) if a is None else a for a in (seed, instance)], ',0]')

    def _placed_ids(self, cells: list[str], codes: NDArray[np.int64]) -> pa.Array:
        plain = row_ids([f'{cell},null,null,0]' for cell in cells], np.arange(len(cells)), [], '').to_pylist()
        counts = np.bincount(codes, minlength=len(cells))
        before = np.array([self._places.get(cell, 0) for cell in cells])
        self._places.update(zip(cells, (before + counts).tolist(), strict=True))
        places = np.empty(len(codes), np.int64)  # of each row among those of its cell, in all batches
        firsts = np.cumsum(counts) - counts
        places[np.argsort(codes, kind='stable')] = np.arange(len(codes)) + np.repeat(before - firsts, counts)
        return row_ids([f'["{text}","row"' for text in plain], codes, [places], ']')

    def _labels(self, columns: _BatchColumns) -> pa.Array | None:
        names = sorted(self.plan.chosen.labels)
        if not names:
            return None
        labels = [columns.texts(name) for name in names]
        self.labelled.update(name for name, cells in zip(names, labels, strict=True) if any(cells.texts))
        written = [
            _Names([f'{json.dumps(name)}: {json.dumps(t)}' if t else '' for t in cells.texts], cells.codes)
            for name, cells in zip(names, labels, strict=True)
        ]
        rows, codes = _combined(written)
        joined = ['{' + ', '.join(filter(None, row)) + '}' for row in rows]
        return _Names(joined, codes).encoded()


def row_ids(cells: list[str], codes: NDArray[np.int64], numbers: Sequence[NDArray[Any]], suffix: str) -> pa.Array:
    """The first 24 hex digits of the SHA-256 of each row's text: its cell, its numbers after commas, the suffix."""
    texts = [cell.encode() for cell in cells]
    ids = np.empty((len(codes), ID_HEX_DIGITS), np.uint8)
    kernel.row_ids(
        np.frombuffer(b''.join(texts), np.uint8), np.cumsum([len(t) for t in texts]), codes,
        np.array(numbers, np.int64).reshape(-1, len(codes)), np.frombuffer(suffix.encode(), np.uint8), ids, 0,
    )  # fmt: skip
    offsets = np.arange(len(codes) + 1, dtype=np.int32) * ID_HEX_DIGITS
    return pa.StringArray.from_buffers(len(codes), pa.py_buffer(offsets), pa.py_buffer(ids))


@dataclass(frozen=True, slots=True, eq=False)
class _Names:
    """A column of texts: the different ones, and which each row has."""

    texts: list[str]
    codes: NDArray[Any]

    def encoded(self) -> pa.DictionaryArray:
        codes = self.codes.astype(np.int32, copy=False)
        return pa.DictionaryArray.from_arrays(arrow(codes), pa.array(self.texts, pa.string()))


@dataclass(slots=True)
class _BatchColumns:
    """The columns of one batch, parsed field by field as the plan says."""

    batch: pa.RecordBatch
    plan: Plan

    def _column(self, name: str) -> pa.Array | None:
        column = self.plan.chosen.columns.get(name)
        return None if column is None else self.batch.column(self.plan.places[column])

    def different(self, column: pa.Array) -> tuple[list[Any], NDArray[np.int32]]:
        """The different cells of a column as they are read row by row, and which each row has."""
        letters = _letters(column)
        if letters is not None:
            cells, rows = letters
        else:
            encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            cells, codes = encoded.dictionary.to_pylist(), encoded.indices
            if codes.null_count:
                cells, codes = [*cells, None], codes.fill_null(len(cells))
            rows = codes.to_numpy()
        return [cell.strip(' \t') if self.plan.is_text and cell is not None else cell for cell in cells], rows

    def texts(self, column: str) -> _Names:
        cells, codes = self.different(self.batch.column(self.plan.places[column]))
        return _Names(['' if cell is None else str(cell) for cell in cells], codes)

    def names(self, name: str) -> _Names | None:
        given = self.plan.given.get(name)
        if name not in self.plan.chosen.columns:
            return None if given is None else _Names([str(given)], np.zeros(self.batch.num_rows, np.int32))
        cells, codes = self.different(self.batch.column(self.plan.places[self.plan.chosen.columns[name]]))
        default = given if given is not None else 'nominal' if name == 'condition' else ''
        parsed = [self.plan.convert[name](cell) for cell in cells]
        return _Names([default if t is None else t for t in parsed], codes)

    def numbers(self, name: str) -> NDArray[np.float64] | None:
        """Floats with NaN for what is missing; whole numbers beyond 53 bits are not plain."""
        column, given = self._column(name), self.plan.given.get(name)
        if column is None:
            return None if given is None else np.full(self.batch.num_rows, float(given))
        values = self._cast(name, column)
        if given is not None:
            values = np.where(np.isnan(values), float(given), values)
        if name in WHOLE and np.nanmax(np.abs(values), initial=0) >= 2**53:
            raise NotPlainError(f'{name} has large numbers')
        return None if np.isnan(values).all() else values

    def _cast(self, name: str, column: pa.Array) -> NDArray[np.float64]:
        scale = self.plan.chosen.scale.get(name, 1.0)
        is_castable = any(is_kind(column.type) for is_kind in CASTABLE)
        try:
            if name in WHOLE and is_castable:
                return _floats(pc.cast(column, pa.int64()))
            values = _floats(pc.cast(column, pa.float64())) if is_castable else np.array([np.inf])
            # Row by row says what becomes of infinities, and of texts that are no numbers.
            if not np.isinf(values).any() and not (self.plan.is_text and np.isnan(values).any()):
                return values * scale if scale != 1.0 else values
        except pa.ArrowInvalid:
            pass
        cells, codes = self.different(column)
        parsed = [self.plan.convert[name](cell) for cell in cells]
        known = np.array([np.nan if v is None else float(v) for v in parsed])
        return np.asarray(known[codes])

    def truths(self, name: str) -> pa.Array | None:
        column, given = self._column(name), self.plan.given.get(name)
        if column is None:
            return None if given is None else pa.array([bool(given)] * self.batch.num_rows)
        cells, codes = self.different(column)
        parsed = [given if (value := self.plan.convert[name](cell)) is None else value for cell in cells]
        if None in parsed:
            return pa.array(parsed, pa.bool_()).take(arrow(codes))
        return arrow(np.array(parsed, bool)[codes])

    def outcomes(self) -> NDArray[np.int32] | None:
        column = self._column('outcome')
        if column is None:
            if 'outcome' in self.plan.given:
                raise NotPlainError('one outcome for every row')
            return None
        cells, codes = self.different(column)
        parsed = [self.plan.convert['outcome'](cell) for cell in cells]
        if None in parsed:
            raise NotPlainError('some rows have no outcome')
        places: NDArray[np.int32] = np.array([OUTCOMES.index(o) for o in parsed], dtype=np.int32)[codes]
        return places


def arrow(values: NDArray[Any], *, missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers or truths (n,) as Arrow has them, null where `missing` says so; `pa.array` would import `numpy.ma`."""
    present = None if missing is None or not missing.any() else pa.py_buffer(np.packbits(~missing, bitorder='little'))
    is_truth = values.dtype == np.bool_
    content = np.packbits(values, bitorder='little') if is_truth else np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(content)])


def _letters(column: pa.Array) -> tuple[list[Any], NDArray[np.int32]] | None:
    """The different cells of a column of single letters, such as 0 and 1, in a fifth of the time; None for others."""
    n = len(column)
    if not pa.types.is_string(column.type) or column.null_count or column.offset or not n:
        return None
    _, ends, text = column.buffers()
    ends = np.frombuffer(ends, np.int32)[: n + 1]
    if ends[-1] - ends[0] != n or (ends[1:] - ends[:-1] != 1).any():
        return None
    letters = np.frombuffer(text, np.uint8)[ends[0] : ends[-1]]
    present = np.flatnonzero(np.bincount(letters))
    codes = np.zeros(256, np.int32)
    codes[present] = np.arange(len(present))
    return [chr(letter) for letter in present.tolist()], codes[letters]


def _floats(values: pa.Array) -> NDArray[np.float64]:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


def _check_numbers(numbers: dict[str, NDArray[np.float64] | None]) -> None:
    """The record's rules for whole columns."""
    bounds = {
        'duration_s': (0.0, np.inf), 'time_cap_s': (np.finfo(float).tiny, np.inf), 'steps': (0, LARGEST_COUNT),
        'step_cap': (1, LARGEST_COUNT),
    }  # fmt: skip
    for name, (low, high) in bounds.items():
        values = numbers[name]
        if (
            values is not None
            and not ((values >= low) & (values <= high) & np.isfinite(values) | np.isnan(values)).all()
        ):
            raise NotPlainError(f'{name} breaks a rule of the record')
    score, most = numbers['score'], numbers['max_score']
    if score is not None and most is not None and not (((score >= 0) & (score <= most)) | np.isnan(score)).all():
        raise NotPlainError('score breaks a rule of the record')


def _cells(trial_id: str, values: dict[str, Any], n: int) -> tuple[list[str], NDArray[np.int64]]:
    """What the rows of a cell share of the text that is hashed, and the cell of each row."""
    given = [name for name in CELL if values[name] is not None]
    rows, codes = _combined([values[name] for name in given])
    cells = []
    for row in rows:
        texts = {**dict.fromkeys(CELL, ''), 'condition': 'nominal', **dict(zip(given, row, strict=True))}
        cells.append(json.dumps([trial_id, *texts.values(), {}], separators=(',', ':'), ensure_ascii=False)[:-1])
    return cells, codes


def _combined(columns: Sequence[_Names]) -> tuple[list[tuple[str, ...]], NDArray[np.int64]]:
    """The different rows of some columns, and which each row has."""
    rows: list[tuple[str, ...]] = [(text,) for text in columns[0].texts]
    codes = columns[0].codes.astype(np.int64)
    for column in columns[1:]:
        n_texts = len(column.texts)
        codes = codes * n_texts + column.codes
        if len(rows) * n_texts <= len(codes):
            present = np.zeros(len(rows) * n_texts, bool)
            present[codes] = True
            pairs, codes = np.flatnonzero(present), (np.cumsum(present) - 1)[codes]
        else:
            pairs, codes = np.unique(codes, return_inverse=True)
        rows = [(*rows[pair // n_texts], column.texts[pair % n_texts]) for pair in pairs.tolist()]
    return rows, codes
