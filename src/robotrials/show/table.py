"""A table of results, and its five printed forms: text, JSON, CSV, Markdown, LaTeX.

A table of a verb may have twenty columns, and a terminal has eighty. Empty columns go, and in a wide table those with
one value in every row, which is said once above. Headings and long texts fold; what is still too wide is split,
and every part repeats the columns that name its rows.
"""

from __future__ import annotations

import csv
import enum
import io
import json
import math
import re
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from robotrials.errors import InputError, UnknownName
from robotrials.stats import Interval
from robotrials.value import dataclass, pattern

Cell = str | int | float | bool | None


class TableOutput(enum.StrEnum):
    TEXT = 'text'
    JSON = 'json'
    CSV = 'csv'
    MARKDOWN = 'markdown'
    LATEX = 'latex'


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading and how its numbers are printed for people (`''` means as they are)."""

    name: str
    number_format: str = ''


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns. An absent value is None; it prints as a dash and is null in JSON, never 0."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ''
    analysis: str = ''  # the line that says what analysis the numbers are of; every form but text carries it

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise InputError(f'{self.title}: row {number} has {len(row)} cells, wanted {len(self.columns)}')


def table(title: str, columns: Sequence[str | Column], rows: Sequence[Sequence[Cell]], *, note: str = '') -> Table:
    """A Table from plain sequences; a bare string is a column printed as it is."""
    named = tuple(c if isinstance(c, Column) else Column(c) for c in columns)
    return Table(title, named, tuple(tuple(row) for row in rows), note)


def without_empty(sheet: Table) -> Table:
    """The table without columns that no row fills."""
    kept = [i for i in range(len(sheet.columns)) if not sheet.rows or any(row[i] is not None for row in sheet.rows)]
    return keep_columns(sheet, kept)


def keep_columns(sheet: Table, kept: Sequence[int]) -> Table:
    """The table with these columns only, by their places."""
    rows = tuple(tuple(row[i] for i in kept) for row in sheet.rows)
    return replace(sheet, columns=tuple(sheet.columns[i] for i in kept), rows=rows)


def stated(tables: Iterable[Table], statement: str) -> list[Table]:
    """The tables with the line that says what analysis their numbers are of."""
    return [replace(sheet, analysis=statement) for sheet in tables]


@dataclass(frozen=True, slots=True)
class LatexLayout:
    """How a table stands in a LaTeX paper: shrunk where it is wider than a column, or than the page (`table*`).

    It needs the packages booktabs, graphicx and array. Long texts are set in lines, since shrinking alone would make
    them too small to read.
    """

    width: str = 'column'
    label: str = ''

    def __post_init__(self) -> None:
        if self.width not in LATEX_WIDTHS:
            raise UnknownName('width of a LaTeX table', self.width, LATEX_WIDTHS)


LATEX_WIDTHS = {'column': ('table', r'\columnwidth'), 'page': ('table*', r'\textwidth')}
LONG_TEXT = {'column': 24, 'page': 36}  # letters; a column with a longer cell is set in lines


def render(
    sheet: Table,
    form: TableOutput | str = TableOutput.TEXT,
    *,
    width: int | None = None,
    latex: LatexLayout | None = None,
) -> str:
    """The table as one string. JSON and CSV keep full precision; the others use each column's number format."""
    form = TableOutput(form)
    if form is TableOutput.JSON:
        return json.dumps(table_document(sheet), **JSON_STYLE) + '\n'
    if form is TableOutput.CSV:
        return _csv(sheet)
    if form is TableOutput.MARKDOWN:
        return _markdown(sheet)
    if form is TableOutput.LATEX:
        return _latex(sheet, latex)

    return text_table(sheet, width)


def render_all(
    tables: Sequence[Table], form: TableOutput | str = TableOutput.TEXT, *, latex: LatexLayout | None = None
) -> str:
    """Several tables as one string: in JSON one list, else one after another with an empty line between."""
    if TableOutput(form) is TableOutput.JSON:
        return json.dumps([table_document(sheet) for sheet in tables], **JSON_STYLE) + '\n'
    return '\n'.join(render(sheet, form, latex=_numbered(latex, k)) for k, sheet in enumerate(tables))


def _numbered(latex: LatexLayout | None, number: int) -> LatexLayout | None:
    """The same layout with a label of its own for every table after the first."""
    if latex is None or not latex.label or number == 0:
        return latex
    return LatexLayout(latex.width, f'{latex.label}-{number + 1}')


def format_cell(value: Cell, number_format: str = '') -> str:
    """One cell for people: a dash for an absent value, 'inf' spelt out, numbers by the column's format."""
    if value is None:
        return '—'
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    if isinstance(value, float) and math.isnan(value):
        return '—'
    if isinstance(value, float) and math.isinf(value):
        return '∞' if value > 0 else '-∞'
    if isinstance(value, int | float) and number_format:
        return format(value + 0.0 if isinstance(value, float) else value, number_format)
    # A line break or another control character is spelt out: it must not break a row or reach the terminal.
    return CONTROL.sub(lambda match: match[0].encode('unicode_escape').decode(), str(value))


CONTROL = pattern(r'[\x00-\x1f\x7f-\x9f\u2028\u2029]')
HTML_TAG = pattern('<(?=[A-Za-z/!?])')


def table_cells(sheet: Table) -> list[list[str]]:
    """Every cell as people read it."""
    return [[format_cell(v, c.number_format) for v, c in zip(row, sheet.columns, strict=True)] for row in sheet.rows]


def is_numeric(sheet: Table) -> list[bool]:
    """For each column, whether it holds numbers."""
    return [
        any(isinstance(row[i], int | float) and not isinstance(row[i], bool) for row in sheet.rows)
        for i in range(len(sheet.columns))
    ]


def json_cell(value: Cell) -> Cell:
    """A cell that JSON can hold: NaN as null, infinities by name."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and math.isinf(value):
        return 'inf' if value > 0 else '-inf'
    return value


JSON_STYLE: dict[str, Any] = {'indent': 2, 'ensure_ascii': False, 'allow_nan': False}


def table_document(sheet: Table) -> dict[str, object]:
    """The table as plain values for JSON: full precision, each row a mapping."""
    names = [c.name for c in sheet.columns]
    rows = [dict(zip(names, map(json_cell, row), strict=True)) for row in sheet.rows]
    document: dict[str, object] = {'title': sheet.title, 'columns': names, 'rows': rows, 'note': sheet.note or None}
    return {**document, 'analysis': sheet.analysis} if sheet.analysis else document


def _csv(sheet: Table) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator='\n')
    careful = csv.writer(buffer, lineterminator='\n', quoting=csv.QUOTE_ALL)
    said = [sheet.analysis] if sheet.analysis else []
    writer.writerow([*(c.name for c in sheet.columns), *(['analysis'] if said else [])])
    for row in sheet.rows:
        # Quoted throughout where a lone carriage return would otherwise end the row.
        cells = ['' if v is None or (isinstance(v, float) and math.isnan(v)) else v for v in row]
        (careful if any('\r' in str(v) for v in cells) else writer).writerow([*cells, *said])
    return buffer.getvalue()


def _markdown(sheet: Table) -> str:
    def one_line(text: str) -> str:
        return HTML_TAG.sub('&lt;', text.replace('\n', ' '))  # a name may be a tag to whoever shows the Markdown

    def line(cells: Sequence[str]) -> str:
        return '| ' + ' | '.join(one_line(c).replace('|', '\\|') for c in cells) + ' |'

    rule = '|' + '|'.join(' ---: ' if numeric else ' --- ' for numeric in is_numeric(sheet)) + '|'
    lines = [line([c.name for c in sheet.columns]), rule, *(line(row) for row in table_cells(sheet))]
    head = [f'**{one_line(sheet.title)}**', ''] if sheet.title else []
    tail = [line for text in (sheet.note, sheet.analysis) if text for line in ('', one_line(text))]
    return '\n'.join([*head, *lines, *tail]) + '\n'


LATEX_SPECIAL = {
    '\\': r'\textbackslash{}', '&': r'\&', '%': r'\%', '$': r'\$', '#': r'\#', '_': r'\_', '{': r'\{', '}': r'\}',
    '~': r'\textasciitilde{}', '^': r'\textasciicircum{}', '∞': r'$\infty$', '—': '--', '±': r'$\pm$', '≥': r'$\geq$',
    '≤': r'$\leq$', '<': r'\textless{}', '>': r'\textgreater{}', '|': r'\textbar{}',
    '↔': r'$\leftrightarrow$', '→': r'$\rightarrow$', '←': r'$\leftarrow$', '↑': r'$\uparrow$', '↓': r'$\downarrow$',
    '×': r'$\times$', '·': r'$\cdot$', '÷': r'$\div$', '−': r'$-$', '≈': r'$\approx$', '≠': r'$\neq$', '∈': r'$\in$',
    '√': r'$\surd$', '∑': r'$\sum$', '∏': r'$\prod$', '∫': r'$\int$', '∂': r'$\partial$', '∧': r'$\wedge$',
    '∨': r'$\vee$', '¬': r'$\neg$', '⇒': r'$\Rightarrow$', '…': r'\dots{}', '–': '--', '‘': '`', '’': "'", '“': '``',
    '”': "''", '°': r'$^{\circ}$', '²': r'$^{2}$', '³': r'$^{3}$', '⁻': r'$^{-}$', '¹': r'$^{1}$',
    'α': r'$\alpha$', 'β': r'$\beta$', 'γ': r'$\gamma$', 'δ': r'$\delta$', 'ε': r'$\varepsilon$', 'η': r'$\eta$',
    'θ': r'$\theta$', 'κ': r'$\kappa$', 'λ': r'$\lambda$', 'μ': r'$\mu$', 'µ': r'$\mu$', 'ν': r'$\nu$', 'π': r'$\pi$',
    'ρ': r'$\rho$', 'σ': r'$\sigma$', 'τ': r'$\tau$', 'φ': r'$\varphi$', 'χ': r'$\chi$', 'ψ': r'$\psi$',
    'ω': r'$\omega$', 'Γ': r'$\Gamma$', 'Δ': r'$\Delta$', 'Θ': r'$\Theta$', 'Λ': r'$\Lambda$',
    'Π': r'$\Pi$', 'Σ': r'$\Sigma$', 'Φ': r'$\Phi$', 'Ψ': r'$\Psi$', 'Ω': r'$\Omega$',
    '\u00a0': '~', '\u2009': r'\,', '\u202f': r'\,',
    '₀': r'$_{0}$', '₁': r'$_{1}$', '₂': r'$_{2}$', '₃': r'$_{3}$',
    '†': r'$\dagger$',
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Text as LaTeX prints it."""
    return ''.join(LATEX_SPECIAL.get(ch, ch) for ch in text)


def latex_line(cells: Sequence[str], *, escape: Callable[[str], str] = escape_latex) -> str:
    """A row of a tabular; a first cell that starts with [ or * must not pass for an argument of the row above."""
    shield = '{}' if cells and cells[0][:1] in ('[', '*') else ''
    return shield + ' & '.join(escape(c) for c in cells) + r' \\'


NEGATIVE = pattern(r'^-(?=[\d$])')  # a minus, not a hyphen


def _latex(sheet: Table, layout: LatexLayout | None) -> str:
    long = _long_columns(sheet, layout)
    environment, across = LATEX_WIDTHS[layout.width] if layout else ('table', '')
    words = '. '.join(' '.join(part.split()).rstrip('.') for part in (sheet.title, sheet.note, sheet.analysis) if part)
    paragraph = rf'>{{\raggedright\arraybackslash}}p{{{LONG_TEXT[layout.width] // 2}em}}' if layout else ''
    spec = ''.join(
        'r' if numeric else paragraph if is_long else 'l'
        for numeric, is_long in zip(is_numeric(sheet), long, strict=True)
    )
    rows = [_latex_row(row, long) for row in ([c.name for c in sheet.columns], *table_cells(sheet))]
    tabular = [
        rf'\begin{{tabular}}{{{spec}}}', r'\toprule', rows[0], r'\midrule', *rows[1:], r'\bottomrule', r'\end{tabular}',
    ]  # fmt: skip
    if across:
        # Shrunk only if it is wider than the place it has.
        tabular[0] = rf'\resizebox{{\ifdim\width>{across}{across}\else\width\fi}}{{!}}{{%' + '\n' + tabular[0]
        tabular[-1] += '}'
    lines = [
        rf'\begin{{{environment}}}', r'\centering', rf'\caption{{{escape_latex(words)}}}',
        *([rf'\label{{{layout.label}}}'] if layout and layout.label else []), *tabular, rf'\end{{{environment}}}',
    ]  # fmt: skip
    return '\n'.join(lines) + '\n'


def _latex_row(cells: Sequence[str], long: Sequence[bool]) -> str:
    """A row; in a long column an identifier may be broken after its underscores and slashes."""
    written = [NEGATIVE.sub('$-$', escape_latex(c)) for c in cells]
    broken = [
        re.sub(r'(\\_|/)', r'\1\\allowbreak{}', c) if is_long else c for c, is_long in zip(written, long, strict=True)
    ]
    return latex_line(broken, escape=str)


def _long_columns(sheet: Table, layout: LatexLayout | None) -> list[bool]:
    """Which columns hold texts too long for one line, in a table that has a width to keep."""
    if layout is None:
        return [False] * len(sheet.columns)
    most, cells = LONG_TEXT[layout.width], table_cells(sheet)
    return [
        not numeric and max((len(row[i]) for row in cells), default=0) > most
        for i, numeric in enumerate(is_numeric(sheet))
    ]


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


def decimals(interval: Interval | None) -> int:
    """The decimals that an interval supports: its width tells which digits of an estimate mean nothing."""
    if interval is None or not math.isfinite(interval.high - interval.low) or interval.high <= interval.low:
        return 1
    return max(0, min(MOST_DECIMALS, math.floor(FINEST - math.log10(interval.high - interval.low))))


def estimate_text(
    value: float | None, interval: Interval | None, *, scale: float = 1.0, sign: str = '', unit: str = ''
) -> str:
    """`31.7 points [15.7, 46.4]` in the digits that the interval supports; a dash where there is no value."""
    if value is None:
        return '—'
    value, interval = scale * value, None if interval is None else interval.scaled(scale)
    digits = decimals(interval)
    if interval is not None and any(0 < abs(end) < 0.5 * 10.0**-digits for end in interval):
        digits += 1  # an end of "-0" would not say on which side of nothing it lies
    text = f'{format_cell(value, f"{sign}.{digits}f")}{unit}'
    if interval is None:
        return text
    low, high = (format_cell(end, f'.{digits}f') for end in interval)
    return f'{text} [{low}, {high}]'


def points_text(share: float, interval: Interval | None) -> str:
    """A difference of shares in points: `+31.7 points [15.7, 46.4]`."""
    return estimate_text(share, interval, scale=100.0, sign='+', unit=' points')


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
    blanks = replace(sheet, rows=tuple(tuple(None if cell == '' else cell for cell in row) for row in sheet.rows))
    kept, constants = _without_constants(without_empty(_in_supported_digits(blanks)), most)
    if constants:
        lines += wrap(f'In every row: {", ".join(constants)}.', most)
    for place, part in enumerate(_parts(kept, most)):
        lines += [*([''] if place else []), *_drawn(part, most)]
    if sheet.note:
        lines += wrap(sheet.note, most)
    return '\n'.join(line.rstrip() for line in lines) + '\n'


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
