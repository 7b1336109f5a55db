"""The rows of a table file, one at a time: CSV, TSV, XLSX, JSON, JSONL or Parquet, within stated limits."""

from __future__ import annotations

import codecs
import csv
import json
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robotrials.errors import InputError, SetupError, UnknownName
from robotrials.formats.guess import guess_columns
from robotrials.formats.imported import ImportOptions
from robotrials.value import dataclass

if TYPE_CHECKING:
    import pyarrow as pa


MOST_COLUMNS = 2_000
MOST_ROWS = 50_000_000
LARGEST_JSON_BYTES = 512 << 20  # a JSON document has to be in memory; JSONL is read line by line
LARGEST_LINE_BYTES = 64 << 20
LARGEST_BATCH_BYTES = 256 << 20  # of a Parquet file, decompressed at a time
HEADER_ROWS = 12  # a header is looked for in the first rows
KEPT_WHOLE = frozenset({'labels', 'condition_parameters'})  # objects that are one field each
TEXT_SUFFIXES = ('.csv', '.tsv', '.txt')
SUFFIXES = (*TEXT_SUFFIXES, '.xlsx', '.jsonl', '.ndjson', '.json', '.parquet', '.md', '.tex', '.yaml', '.yml')
# Lists of objects that are one rollout's steps, not rows of a table.
STEP_LISTS = frozenset({'steps', 'frames', 'transitions', 'trajectory', 'timesteps', 'observations', 'actions'})
WESTERN = 'cp1252'
BULK_BYTES = 1 << 18  # smaller tables are read row by row in less time than it takes to look twice
_CONTROLS = re.compile(r'[\x00-\x08\x0e-\x1f\x7f]')
Row = Sequence[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A table: its header, and its rows as often as they are asked for, each with its number from 1."""

    path: Path
    header: tuple[str, ...]
    read: Callable[[], Iterator[tuple[int, Row]]]
    separator: str = ''
    notes: tuple[str, ...] = ()
    skipped_lines: int = 0  # above the header
    batches: Callable[[], Iterator[pa.RecordBatch]] | None = None  # the same by columns, where a file has them
    loose: frozenset[str] = frozenset()  # columns of numbers whose cells may be whole or not: 1 and 1.0 are other texts


def is_large(path: Path) -> bool:
    """Whether reading a table by columns is worth looking twice."""
    return path.stat().st_size > BULK_BYTES


def open_rows(path: Path, options: ImportOptions | None = None, *, known: Callable[[str], bool] | None = None) -> Rows:
    """Open a table by its suffix. `known` says whether a text is a usual column name, which finds headers."""
    suffix = path.suffix.lower()
    if not path.exists():
        raise InputError(f'{path}: no such file')
    if suffix not in SUFFIXES:
        raise InputError(f'{path}: wanted a table ending in {", ".join(SUFFIXES)}, found {path.suffix!r}')
    if not stat.S_ISREG(path.stat().st_mode):
        raise InputError(f'{path}: cannot be read (not a regular file); wanted a file with a table')
    usual = known or (lambda name: False)
    if suffix == '.parquet':
        return _open_parquet(path)
    if suffix == '.xlsx':
        return open_spreadsheet(path, options or ImportOptions(), usual)
    if suffix in TEXT_SUFFIXES:
        return _open_separated(path, usual)
    if suffix in ('.md', '.tex'):
        return _open_document(path, usual)
    return _open_objects(path, lines=suffix in ('.jsonl', '.ndjson'))


def _encoding(path: Path) -> str:
    """By the mark at its start; else UTF-8, or what Western spreadsheets save (`cp1252`) where it cannot be UTF-8."""
    with path.open('rb') as stream:
        head = stream.read(1 << 16)
    if head[:2] in (b'\xff\xfe', b'\xfe\xff'):
        return 'utf-16'
    try:
        codecs.getincrementaldecoder('utf-8')().decode(head)
    except UnicodeDecodeError:
        try:
            return 'utf-8-sig' if _CONTROLS.search(head.decode(WESTERN)) else WESTERN
        except UnicodeDecodeError:
            pass
    return 'utf-8-sig'


def _encoding_notes(encoding: str) -> tuple[str, ...]:
    return (f'the text is not UTF-8 and is read as {WESTERN} (Windows, Western Europe)',) if encoding == WESTERN else ()


def _not_utf8(path: Path) -> InputError:
    """What is wrong with a text that cannot be decoded; a stream knows the place of the byte in its buffer alone."""
    decoder = codecs.getincrementaldecoder('utf-8')()
    place = before = 0
    with path.open('rb') as stream:
        try:
            while block := stream.read(1 << 20):
                before = place - len(decoder.getstate()[0])
                decoder.decode(block)
                place += len(block)
            before = place - len(decoder.getstate()[0])
            decoder.decode(b'', final=True)
        except UnicodeDecodeError as error:
            place = before + error.start
    return InputError(f'{path}: not UTF-8 text (byte {place}); save it as UTF-8')


# --- separated values


def _open_separated(path: Path, usual: Callable[[str], bool]) -> Rows:
    encoding = _encoding(path)
    separator = '\t' if path.suffix.lower() == '.tsv' else _separator(path, encoding)
    top: list[list[str]] = []
    for cells in _cells(path, encoding, separator):
        top.append(cells)
        if len(top) > HEADER_ROWS:
            break
    if not top:
        return Rows(path, (), lambda: iter(()))
    at, header = find_header(path, top, usual)
    width = len(header)
    if '\0' in ''.join(header):
        raise InputError(f'{path}: a zero byte in the header, wanted text; is the file damaged, or not UTF-8?')

    def read() -> Iterator[tuple[int, Row]]:
        number = 0
        for place, cells in enumerate(_cells(path, encoding, separator)):
            if place <= at or not any(map(str.strip, cells)):
                continue
            number += 1
            if len(cells) != width:
                raise InputError(f'{path} row {number}: {len(cells)} cells, wanted {width} as in the header')
            if '\0' in ''.join(cells):
                _refuse_zero_byte(f'{path} row {number}', header, cells)
            yield number, [cell.strip(' \t') for cell in cells]

    def batches() -> Iterator[pa.RecordBatch]:
        from robotrials.formats.bulk import text_batches

        return text_batches(path, header, separator, skipped_lines=at)

    is_plain = encoding == 'utf-8-sig'  # which is all that Arrow reads
    return Rows(
        path, header, read, separator, notes=_encoding_notes(encoding), skipped_lines=at,
        batches=batches if is_plain else None,
    )  # fmt: skip


def _refuse_zero_byte(where: str, header: Sequence[str], cells: Sequence[str]) -> None:
    """Raise for what a torn write or another encoding leaves; a name with it would be another name that looks alike."""
    column = next(name for name, cell in zip(header, cells, strict=True) if '\0' in cell)
    raise InputError(f'{where}: column {column!r} has a zero byte, wanted text; is the file damaged, or not UTF-8?')


def _cells(path: Path, encoding: str, separator: str) -> Iterator[list[str]]:
    # As it is: a name with a line break in it must come back as it was.
    with path.open(encoding=encoding, newline='') as stream:
        reader = csv.reader(_lines(path, stream), delimiter=separator)
        try:
            yield from reader
        except csv.Error as error:
            place = f'{path} line {reader.line_num}'
            raise InputError(f'{place}: not a table ({error}); is a quotation mark open?') from error
        except UnicodeDecodeError as error:
            raise _not_utf8(path) from error


def _lines(path: Path, stream: Any) -> Iterator[str]:
    number = 0
    while line := stream.readline(LARGEST_LINE_BYTES + 1):
        number += 1
        if len(line) > LARGEST_LINE_BYTES:
            raise InputError(f'{path} line {number}: longer than {LARGEST_LINE_BYTES >> 20} MiB; wanted a table')
        yield line


def _separator(path: Path, encoding: str) -> str:
    try:
        with path.open(encoding=encoding, newline='') as stream:
            text = stream.read(1 << 16)
    except UnicodeDecodeError as error:
        raise _not_utf8(path) from error
    lines = [line for line in re.split(r'[\r\n]+', text) if line.strip()][:HEADER_ROWS]
    # A quoted comma is a decimal point more often than a separator.
    bare = [re.sub(r'"[^"]*"', '', line) for line in lines]
    return max(',;\t', key=lambda mark: (max((line.count(mark) for line in bare), default=0), mark == ','))


def find_header(path: Path, top: Sequence[Sequence[Any]], usual: Callable[[str], bool]) -> tuple[int, tuple[str, ...]]:
    """Which of the first rows is the header, and its names; a merged row above it tells equal names apart."""
    cells = [[str(c).strip() if c is not None else '' for c in row] for row in top]
    scores = [sum(usual(c) for c in row) for row in cells]
    at = max(range(len(scores)), key=lambda i: (scores[i], -i))
    if scores[at] < 2 or scores[at] <= scores[0]:
        at = 0
    names = cells[at]
    if len(names) > MOST_COLUMNS:
        raise InputError(f'{path}: {len(names):,} columns, wanted at most {MOST_COLUMNS:,}; is it one row per episode?')
    if at and len(set(filter(None, names))) < len(list(filter(None, names))):
        names = _joined(cells[at - 1], names)
        if at + 1 < len(cells) and _names_index(cells[at + 1]):  # as data frames are written: the index, by its name
            at, names = at + 1, [cells[at + 1][0], *names[1:]]
    # An index written without a heading (as data frames do) gets its place as a name.
    header = tuple(name or f'column {place}' for place, name in enumerate(names, start=1))
    if len(set(header)) != len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise InputError(f'{path}: the column {twice!r} is there twice')
    return at, header


def _names_index(cells: Sequence[str]) -> bool:
    return len(cells) > 2 and bool(cells[0]) and not cells[0][:1].isdigit() and not any(cells[1:])


def _joined(above: Sequence[str], names: Sequence[str]) -> list[str]:
    group, joined = '', []
    for place, name in enumerate(names):
        over = above[place] if place < len(above) else ''
        group = over or group
        joined.append(f'{group} {name}'.strip() if name and names.count(name) > 1 else name or over)
    return joined


def _open_document(path: Path, usual: Callable[[str], bool]) -> Rows:
    """The table of a text in Markdown or LaTeX that has the most usual column names."""
    from robotrials.formats.reshape import latex_tables, markdown_tables

    encoding = _encoding(path)
    try:
        text = path.read_text(encoding=encoding)
    except UnicodeDecodeError as error:
        raise InputError(f'{path}: not UTF-8 text (byte {error.start}); save it as UTF-8') from error
    is_latex = path.suffix.lower() == '.tex'
    tables = latex_tables(path, text) if is_latex else markdown_tables(path, text)
    best = max(tables, key=lambda table: sum(map(usual, table[0])))
    at, header = find_header(path, best[:HEADER_ROWS] if is_latex else best[:1], usual)
    for number, cells in enumerate(best[at + 1 :], start=1):
        if len(cells) != len(header):
            raise InputError(f'{path} row {number}: {len(cells)} cells, wanted {len(header)} as in the header')
    notes = (f'table {tables.index(best) + 1} of {len(tables)} in the text',) if len(tables) > 1 else ()
    rows = list(enumerate(best[at + 1 :], start=1))
    return Rows(path, header, lambda: iter(rows), ';', notes=(*_encoding_notes(encoding), *notes))


# --- JSON


def _open_objects(path: Path, *, lines: bool) -> Rows:
    objects: Callable[[], Iterator[dict[str, Any]]]
    if lines and is_large(path) and (plain := _open_plain_lines(path)) is not None:
        return plain
    if lines:
        objects = lambda: _json_lines(path)  # noqa: E731 - the two ways to the same iterator
    else:
        table = [flat(row, path) for row in _json_rows(path)]
        objects = lambda: iter(table)  # noqa: E731
    names: dict[str, None] = {}
    for row in objects():
        names.update(dict.fromkeys(row))
        if len(names) > MOST_COLUMNS:
            raise InputError(f'{path}: more than {MOST_COLUMNS:,} different keys; is it one object per episode?')
    header = tuple(names)

    def read() -> Iterator[tuple[int, Row]]:
        for number, row in enumerate(objects(), start=1):
            yield number, [row.get(name) for name in header]

    return Rows(path, header, read)


def _open_plain_lines(path: Path) -> Rows | None:
    """Flat objects with the same columns all along, which need not be built to be read; None for all others."""
    import pyarrow as pa

    from robotrials.formats.bulk import open_json

    plain = open_json(path)
    if plain is None or len(plain[0]) > MOST_COLUMNS:
        return None
    schema, batches = plain
    header = tuple(schema.names)

    def read() -> Iterator[tuple[int, Row]]:
        for number, row in enumerate(_json_lines(path), start=1):
            yield number, [row.get(name) for name in header]

    loose = frozenset(f.name for f in schema if pa.types.is_float64(f.type))
    return Rows(path, header, read, batches=batches, loose=loose)


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding=_encoding(path), newline='\n') as stream:
        number = 0
        try:
            for number, line in enumerate(_lines(path, stream), start=1):
                if line.strip():
                    value = json.loads(line)
                    if not isinstance(value, dict):
                        raise InputError(f'{path} line {number}: wanted one JSON object a line')
                    yield flat(value, path)
        except UnicodeDecodeError as error:
            raise _not_utf8(path) from error
        except (ValueError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f'{path} line {number}: not JSON ({error})') from error


def load_json(path: Path) -> Any:
    """One JSON document, bare NaN allowed; size, depth and encoding are checked."""
    if path.stat().st_size > LARGEST_JSON_BYTES:
        raise InputError(f'{path}: {path.stat().st_size >> 20} MiB of JSON, wanted at most {LARGEST_JSON_BYTES >> 20}')
    try:
        return json.loads(path.read_text(encoding=_encoding(path)))
    except UnicodeDecodeError as error:
        raise InputError(f'{path}: not UTF-8 text (byte {error.start}); save it as UTF-8') from error
    except (ValueError, RecursionError) as error:
        raise InputError(f'{path}: not JSON ({error})') from error


def _json_rows(path: Path) -> list[dict[str, Any]]:
    from robotrials.formats.reshape import load_yaml, nested_rows

    is_json = path.suffix.lower() == '.json'
    value = load_json(path) if is_json else load_yaml(path)
    rows = exploded(value, path) or nested_rows(value)
    if not rows:
        raise InputError(
            f'{path}: wanted a {"JSON" if is_json else "YAML"} list of objects, or an object that holds one, or '
            'results by policy and task'
        )
    return rows


def exploded(value: Any, path: Path, inherited: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The innermost list of objects as rows; the plain values of the objects around it stand in each of its rows."""
    if isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        return [row for v in value for row in exploded(v, path, inherited)]
    if not isinstance(value, dict):
        return []
    around = dict(inherited or {})
    lists = [k for k, v in value.items() if isinstance(v, list) and v and all(isinstance(x, dict) for x in v)]
    lists = [k for k in lists if k != 'events' and k not in STEP_LISTS]
    if not lists:
        return [{**around, **_without_steps(value)}] if inherited is not None else []
    if len(lists) > 1:
        raise InputError(f'{path}: lists of objects under {", ".join(lists)}; wanted one list, with a row per episode')
    around.update({k: v for k, v in value.items() if not isinstance(v, list | dict)})
    return exploded(value[lists[0]], path, around)


def _without_steps(value: Mapping[str, Any]) -> dict[str, Any]:
    """An episode with the number of its steps in place of the steps themselves."""
    kept = {k: v for k, v in value.items() if not (k in STEP_LISTS and isinstance(v, list))}
    steps = next((v for k, v in value.items() if k not in kept and k not in ('observations', 'actions')), None)
    return kept if steps is None or 'steps' in kept else {**kept, 'steps': len(steps)}


def flat(row: Mapping[str, Any], path: Path, prefix: str = '', depth: int = 0) -> dict[str, Any]:
    """Nested objects as dotted keys; those that are one field of an episode stay whole."""
    if depth > 32:
        raise InputError(f'{path}: objects nested deeper than 32 ({prefix[:60]}...); wanted one object per episode')
    columns: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict) and key not in KEPT_WHOLE:
            columns.update(flat(value, path, f'{prefix}{key}.', depth + 1))
        else:
            columns[f'{prefix}{key}'] = value
    return columns


# --- Parquet


def _open_parquet(path: Path) -> Rows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            _check_parquet(path, file.metadata)
    except (pa.ArrowException, OSError, UnicodeDecodeError, IndexError) as error:
        raise InputError(f'{path}: not a readable Parquet file ({error})') from error
    names = tuple(schema.names)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f'{path}: the column {twice!r} is there twice')
    # A text of a megabyte, repeated a million times, is small in the file and stays small as a dictionary.
    texts = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
    return Rows(
        path, names, lambda: _parquet_rows(path, texts), batches=lambda: _parquet_batches(path, texts, n_rows=1 << 16)
    )


def _check_parquet(path: Path, metadata: Any) -> None:
    if metadata.num_columns > MOST_COLUMNS:
        raise InputError(f'{path}: {metadata.num_columns:,} columns, wanted at most {MOST_COLUMNS:,}')
    if metadata.num_rows > MOST_ROWS:
        raise InputError(f'{path}: {metadata.num_rows:,} rows, wanted at most {MOST_ROWS:,}')
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.num_values > MOST_ROWS or column.total_uncompressed_size > LARGEST_BATCH_BYTES:
                raise InputError(
                    f'{path}: column {column.path_in_schema!r} unpacks to {column.num_values:,} values and '
                    f'{column.total_uncompressed_size >> 20} MiB in one row group; wanted a table of episodes'
                )


def _parquet_rows(path: Path, texts: list[str]) -> Iterator[tuple[int, Row]]:
    from robotrials.record.rows import column_values

    number = 0
    for batch in _parquet_batches(path, texts, n_rows=2048):
        for values in zip(*map(column_values, batch.columns), strict=True):
            number += 1
            yield number, values


def _parquet_batches(path: Path, texts: list[str], *, n_rows: int) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            for batch in file.iter_batches(batch_size=n_rows):
                if batch.nbytes > LARGEST_BATCH_BYTES:
                    size = f'{batch.nbytes >> 20} MiB in {batch.num_rows:,} rows'
                    raise InputError(f'{path} after row {number}: {size}; wanted a table of episodes, not of images')
                yield batch
                number += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError, IndexError) as error:
        raise InputError(f'{path} after row {number}: damaged Parquet ({error})') from error


def choose_sheet(path: Path, sheets: Sequence[str], options: ImportOptions) -> str | None:
    """The sheet that the user named, or None."""
    wanted = options.answers.get('sheet')
    if wanted is not None and wanted not in sheets:
        raise UnknownName(f'sheet of {path.name}', wanted, sheets)
    return wanted


# Spreadsheets (.xlsx): the rows of one sheet, with limits against files that unpack to more than they seem.

LARGEST_UNPACKED_BYTES = 512 << 20
MOST_TIMES_PACKED = 200  # plain sheets pack 10 to 40 times
MOST_CELLS = 20_000_000


def open_spreadsheet(path: Path, options: ImportOptions, usual: Callable[[str], bool]) -> Rows:
    """The sheet that the user named, or the one whose header has the most usual column names."""
    check_archive(path)
    book = _workbook(path)
    try:
        sheets = list(book.sheetnames)
        wanted = choose_sheet(path, sheets, options)
        tops = {name: _top(book[name]) for name in ([wanted] if wanted else sheets)}
    finally:
        book.close()
    scored = {name: max((sum(usual(str(c)) for c in row if c) for row in top), default=0) for name, top in tops.items()}
    sheet = max(scored, key=lambda name: scored[name])
    if not tops[sheet]:
        return Rows(path, (), lambda: iter(()))
    at, header = find_header(path, tops[sheet], usual)
    alike = [] if wanted else [n for n in sheets if tops[n] and find_header(path, tops[n], usual) == (at, header)]
    if len(alike) > 1:
        return _joined_sheets(path, alike, at, header)
    notes = [f'sheet {sheet!r} of {", ".join(map(repr, sheets))} (--answer sheet=NAME)'] if len(sheets) > 1 else []
    return Rows(
        path, header, lambda: _read(path, sheet, at, len(header)), ';', notes=tuple(notes), skipped_lines=at
    )  # a spreadsheet's numbers have no separator; text in it was typed by hand


def _joined_sheets(path: Path, sheets: list[str], at: int, header: tuple[str, ...]) -> Rows:
    """Sheets with one header as one table: their names are the policies, or the tasks, that no column names."""
    lacking = [name for name in ('policy', 'task') if name not in guess_columns(header).columns]
    name = lacking[0] if lacking else next(n for n in ('sheet', 'name of the sheet') if n not in header)

    def read() -> Iterator[tuple[int, Row]]:
        rows = ([sheet, *row] for sheet in sheets for _, row in _read(path, sheet, at, len(header)))
        return enumerate(rows, start=1)

    note = f'{len(sheets)} sheets with one header are one table, each named by its sheet ({name}); --answer sheet=NAME'
    return Rows(path, (name, *header), read, ';', notes=(note,), skipped_lines=at)


def check_archive(path: Path) -> None:
    """Refuse what is no spreadsheet, and what unpacks to more than a table of episodes needs."""
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f'{path}: not a spreadsheet ({error}); an old .xls has to be saved as .xlsx first') from error
    unpacked, packed = sum(i.file_size for i in infos), sum(i.compress_size for i in infos)
    if unpacked > LARGEST_UNPACKED_BYTES or unpacked > max(packed, 1 << 16) * MOST_TIMES_PACKED:
        raise InputError(
            f'{path}: unpacks from {packed:,} to {unpacked:,} bytes; wanted at most '
            f'{LARGEST_UNPACKED_BYTES >> 20} MiB and {MOST_TIMES_PACKED} times its size. Save the table as CSV'
        )


def _workbook(path: Path) -> Any:
    try:
        import openpyxl
    except ModuleNotFoundError as error:
        raise SetupError(f'{path}: spreadsheets need the package openpyxl; pip install openpyxl') from error
    try:
        return openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
    except Exception as error:  # openpyxl raises whatever its parsers do
        raise InputError(f'{path}: not a readable spreadsheet ({type(error).__name__}: {error})') from error


def _top(sheet: Any) -> list[list[Any]]:
    if not hasattr(sheet, 'iter_rows'):  # a sheet that is a chart
        return []
    cells = sheet.iter_rows(max_row=HEADER_ROWS, max_col=MOST_COLUMNS + 1, values_only=True)
    top = [_trimmed(row) for row in cells]
    while top and not top[-1]:
        top.pop()
    return top


def _trimmed(cells: Row) -> list[Any]:
    values = list(cells)
    while values and (values[-1] is None or values[-1] == ''):
        values.pop()
    return values


def _read(path: Path, sheet: str, at: int, width: int) -> Iterator[tuple[int, Row]]:
    book = _workbook(path)
    number = cells_read = 0
    try:
        for place, cells in enumerate(book[sheet].iter_rows(values_only=True)):
            values = _trimmed(cells)
            cells_read += len(cells)
            if cells_read > MOST_CELLS:
                raise InputError(f'{path} sheet {sheet!r}: more than {MOST_CELLS:,} cells; save the table as CSV')
            if place <= at or not values:
                continue
            number += 1
            if len(values) > width:
                raise InputError(f'{path} sheet {sheet!r} row {number}: {len(values)} cells, wanted {width} as above')
            filled = [v.strip() if isinstance(v, str) else v for v in values]
            yield number, filled + [None] * (width - len(filled))
    except InputError:
        raise
    except Exception as error:  # openpyxl raises whatever its parsers do
        raise InputError(f'{path} sheet {sheet!r} after row {number}: damaged ({error})') from error
    finally:
        book.close()
