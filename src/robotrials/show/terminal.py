"""What fits a terminal: wrapped lines, marks of intervals, and tables that fold or split rather than run over its edge.

A table of a verb may have twenty columns, and a terminal has eighty. Empty columns go, and in a wide table those with
one value in every row, which is said once above. Headings and long texts fold; what is still too wide is split,
and every part repeats the columns that name its rows.
"""

from __future__ import annotations

import math
import shutil
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from robotrials.show.table import Cell, Column, Table, cell_text, is_numeric, table_cells, without_empty
from robotrials.stats import Interval

NARROWEST, USUAL = 40, 80
GAP = 2  # blanks between columns
LEAST_TEXT, LEAST_LONG, LONG = 12, 24, 40  # a folded column keeps at least these letters; LONG is a sentence
MOST_KEYS = 3  # columns that name a row
MARK_CELLS = 12
FINEST = 2.6  # the last digit is at least 1/400 of the interval's width
MOST_DECIMALS = 4


def terminal_width() -> int:
    """Columns of the terminal, or those that COLUMNS says; 80 where nobody knows."""
    return max(NARROWEST, shutil.get_terminal_size((USUAL, 24)).columns)


def display_width(text: str) -> int:
    """The columns that a text takes: two for wide characters, none for those that combine."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in 'WF' else 1 for c in text
    )  # fmt: skip


def cut(text: str, width: int) -> str:
    """A text of at most `width` columns: a longer one loses its middle, since names differ at both ends."""
    if display_width(text) <= width:
        return text
    tail = (width - 1) // 2
    head = width - 1 - tail
    return f'{_first(text, head)}…{_first(text[::-1], tail)[::-1]}'


def _first(text: str, width: int) -> str:
    taken = 0
    for place, letter in enumerate(text):
        taken += display_width(letter)
        if taken > width:
            return text[:place]
    return text


def wrap(text: str, width: int, *, first: str = '', then: str = '') -> list[str]:
    """Lines of at most `width` columns; `first` stands before the first of them, `then` before the others."""
    lines: list[str] = []
    for part in text.split('\n'):
        line, is_empty = (then if lines else first), True
        for word in filter(None, part.split(' ')):  # other blanks hold their neighbours together
            if not is_empty and display_width(line) + 1 + display_width(word) > width:
                lines.append(line)
                line, is_empty = then, True
            while display_width(line) + (not is_empty) + display_width(word) > width:  # longer than a line
                head = _first(word, max(1, width - display_width(line)))
                lines.append(line + head)
                line, word = then, word[len(head) :]
            line, is_empty = (line + word if is_empty else f'{line} {word}'), False
        lines.append(line)
    return lines


def decimals(interval: Interval | None, *, least: int = 0) -> int:
    """The decimals that an interval supports: its width tells which digits of an estimate mean nothing."""
    if interval is None or not math.isfinite(interval.high - interval.low) or interval.high <= interval.low:
        return max(1, least)
    return max(least, min(MOST_DECIMALS, math.floor(FINEST - math.log10(interval.high - interval.low))))


def estimate_text(value: float | None, interval: Interval | None, *, sign: str = '', unit: str = '') -> str:
    """`31.7 points [15.7, 46.4]` in the digits that the interval supports; a dash where there is no value."""
    if value is None:
        return '—'
    digits = decimals(interval)
    if interval is not None and any(0 < abs(end) < 0.5 * 10.0**-digits for end in interval):
        digits += 1  # an end of "-0" would not say on which side of nothing it lies
    text = f'{cell_text(value, f"{sign}.{digits}f")}{unit}'
    if interval is None:
        return text
    low, high = (cell_text(end, f'.{digits}f') for end in interval)
    return f'{text} [{low}, {high}]'


def mark(value: float, interval: Interval | None = None, *, cells: int = MARK_CELLS) -> str:
    """A share between 0 and 1 on a line: the point, and its interval in heavy strokes."""

    def place(share: float) -> int:
        return min(cells - 1, max(0, int(share * cells)))

    low, high = (place(value),) * 2 if interval is None else (place(interval.low), place(interval.high))
    strokes = ['━' if low <= k <= high else '─' for k in range(cells)]
    strokes[place(value)] = '●'
    return ''.join(strokes)


# --- tables


def text_table(sheet: Table, width: int | None = None) -> str:
    """The table in lines of at most `width` columns."""
    most = width or terminal_width()
    lines = wrap(sheet.title, most) if sheet.title else []
    kept, constants = _without_constants(without_empty(_in_supported_digits(_blank_as_none(sheet))), most)
    if constants:
        lines += wrap(f'In every row: {", ".join(constants)}.', most)
    for place, part in enumerate(_parts(kept, most)):
        lines += [*([''] if place else []), *_drawn(part, most)]
    if sheet.note:
        lines += wrap(sheet.note, most)
    return '\n'.join(line.rstrip() for line in lines) + '\n'


def _blank_as_none(sheet: Table) -> Table:
    return replace(sheet, rows=tuple(tuple(None if cell == '' else cell for cell in row) for row in sheet.rows))


def _in_supported_digits(sheet: Table) -> Table:
    """The table with estimates that stand before `low` and `high` in the digits that those support."""
    columns = list(sheet.columns)
    for place in range(len(columns) - 2):
        names = [c.name for c in columns[place : place + 3]]
        form = columns[place].number_format
        if not (names[1].endswith('low') and names[2].endswith('high') and form.endswith('f')):
            continue
        spans = [(row[place + 1], row[place + 2]) for row in sheet.rows]
        widths = sorted(
            high - low for low, high in spans
            if isinstance(low, int | float) and isinstance(high, int | float) and math.isfinite(high - low)
        )  # fmt: skip
        if not widths or widths[len(widths) // 2] <= 0:
            continue
        asked = int(form.rstrip('f').rpartition('.')[2] or 0)
        digits = min(asked, decimals(Interval(0.0, widths[len(widths) // 2])))
        for k in range(place, place + 3):
            sign = '+' if columns[k].number_format.startswith('+') else ''
            columns[k] = Column(columns[k].name, f'{sign}.{digits}f')
    return replace(sheet, columns=tuple(columns))


def _without_constants(sheet: Table, most: int) -> tuple[Table, list[str]]:
    """Columns of one value, which are said once where the table would be too wide."""
    n = len(sheet.columns)
    if len(sheet.rows) < 2 or sum(_natural(sheet)) + GAP * (n - 1) <= most:
        return sheet, []
    cells = table_cells(sheet)
    gone = [
        i for i in range(1, n) if len({row[i] for row in cells}) == 1 and display_width(cells[0][i]) <= LONG
    ]  # fmt: skip
    if not gone:
        return sheet, []
    constants = [f'{sheet.columns[i].name} {cells[0][i]}' for i in gone]
    return _chosen(sheet, [i for i in range(n) if i not in gone]), constants


def _chosen(sheet: Table, places: Sequence[int]) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple(tuple(row[i] for i in places) for row in sheet.rows)
    return Table(sheet.title, tuple(sheet.columns[i] for i in places), rows)


def _natural(sheet: Table) -> list[int]:
    cells = [[c.name for c in sheet.columns], *table_cells(sheet)]
    return [max(display_width(row[i]) for row in cells) for i in range(len(sheet.columns))]


def _least(sheet: Table) -> list[int]:
    """The columns that each column takes when it is folded: no number and no word of a heading is broken."""
    cells, natural = table_cells(sheet), _natural(sheet)
    least = []
    for i, (column, numeric) in enumerate(zip(sheet.columns, is_numeric(sheet), strict=True)):
        heading = max(map(display_width, column.name.split()), default=0)
        own = [row[i] for row in cells]
        if numeric:
            least.append(max([heading, *map(display_width, own)]))
            continue
        word = max((display_width(w) for cell in own for w in cell.split()), default=0)
        least.append(max(heading, min(natural[i], LEAST_LONG if natural[i] > LONG else max(LEAST_TEXT, min(word, 20)))))
    return least


def _parts(sheet: Table, most: int) -> list[Table]:
    """The table in parts that fit when they are folded, each with the columns that name the rows."""
    least, numeric = _least(sheet), is_numeric(sheet)
    n = len(sheet.columns)
    if not n or sum(least) + GAP * (n - 1) <= most:
        return [sheet]
    first_number = next((i for i, is_number in enumerate(numeric) if is_number), n)
    keys = list(range(max(1, min(first_number, MOST_KEYS))))
    while len(keys) > 1 and sum(least[i] for i in keys) > most // 2:
        keys.pop()
    taken = sum(least[i] + GAP for i in keys)
    parts: list[list[int]] = []
    room = 0
    for group in _groups(sheet, start=len(keys)):
        needs = sum(least[i] + GAP for i in group)
        if not parts or needs > room:
            parts.append([])
            room = most + GAP - taken
        parts[-1] += group
        room -= needs
    return [_chosen(sheet, [*keys, *part]) for part in parts]


def _groups(sheet: Table, *, start: int) -> list[list[int]]:
    """Columns that stay together: an estimate and the two ends of its interval."""
    groups: list[list[int]] = []
    for i in range(start, len(sheet.columns)):
        name = sheet.columns[i].name
        is_end = name.endswith(('low', 'high')) or name.startswith('95 %')
        if groups and is_end and len(groups[-1]) < 3:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _drawn(sheet: Table, most: int) -> list[str]:
    """One table that fits when it is folded."""
    widths, least = _natural(sheet), _least(sheet)
    room = most - GAP * (len(widths) - 1)
    while sum(widths) > room:
        places = [i for i in range(len(widths)) if widths[i] > least[i]] or list(range(len(widths)))
        widest = max(places, key=lambda i: widths[i])
        if widths[widest] <= 1:
            break
        widths[widest] -= 1
    numeric = is_numeric(sheet)
    lines = _row([c.name for c in sheet.columns], widths, numeric)
    lines.append('─' * (sum(widths) + GAP * (len(widths) - 1)))
    for row in table_cells(sheet):
        lines += _row(row, widths, numeric)
    return lines


def _row(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> list[str]:
    folded = [wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for k in range(max(map(len, folded))):
        texts = [cell[k] if k < len(cell) else '' for cell in folded]
        padded = [
            ' ' * (w - display_width(t)) + t if is_number else t + ' ' * (w - display_width(t))
            for t, w, is_number in zip(texts, widths, numeric, strict=True)
        ]
        lines.append((' ' * GAP).join(padded).rstrip())
    return lines
