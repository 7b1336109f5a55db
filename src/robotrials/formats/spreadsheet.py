"""Spreadsheets (.xlsx): the rows of one sheet, with limits against files that unpack to more than they seem."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, SetupError
from robotrials.formats.guess import guess_columns
from robotrials.formats.imported import ImportOptions
from robotrials.formats.rows import HEADER_ROWS, MOST_COLUMNS, Row, Rows, choose_sheet, find_header

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
