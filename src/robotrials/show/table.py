"""A table of results, and its five printed forms: text, JSON, CSV, Markdown, LaTeX."""

from __future__ import annotations

import csv
import enum
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from robotrials.errors import InputError, UnknownName
from robotrials.value import dataclass, pattern

Cell = str | int | float | bool | None


class TableFormat(enum.StrEnum):
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
    form: TableFormat | str = TableFormat.TEXT,
    *,
    width: int | None = None,
    latex: LatexLayout | None = None,
) -> str:
    """The table as one string. JSON and CSV keep full precision; the others use each column's number format."""
    form = TableFormat(form)
    if form is TableFormat.JSON:
        return json.dumps(table_document(sheet), **JSON_STYLE) + '\n'
    if form is TableFormat.CSV:
        return _csv(sheet)
    if form is TableFormat.MARKDOWN:
        return _markdown(sheet)
    if form is TableFormat.LATEX:
        return _latex(sheet, latex)
    from robotrials.show.terminal import text_table

    return text_table(sheet, width)


def render_all(
    tables: Sequence[Table], form: TableFormat | str = TableFormat.TEXT, *, latex: LatexLayout | None = None
) -> str:
    """Several tables as one string: in JSON one list, else one after another with an empty line between."""
    if TableFormat(form) is TableFormat.JSON:
        return json.dumps([table_document(sheet) for sheet in tables], **JSON_STYLE) + '\n'
    return '\n'.join(render(sheet, form, latex=_numbered(latex, k)) for k, sheet in enumerate(tables))


def _numbered(latex: LatexLayout | None, number: int) -> LatexLayout | None:
    """The same layout with a label of its own for every table after the first."""
    if latex is None or not latex.label or number == 0:
        return latex
    return LatexLayout(latex.width, f'{latex.label}-{number + 1}')


def cell_text(value: Cell, number_format: str = '') -> str:
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


def table_cells(sheet: Table) -> list[list[str]]:
    """Every cell as people read it."""
    return [[cell_text(v, c.number_format) for v, c in zip(row, sheet.columns, strict=True)] for row in sheet.rows]


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
    def line(cells: Sequence[str]) -> str:
        return '| ' + ' | '.join(c.replace('|', '\\|').replace('\n', ' ') for c in cells) + ' |'

    rule = '|' + '|'.join(' ---: ' if numeric else ' --- ' for numeric in is_numeric(sheet)) + '|'
    lines = [line([c.name for c in sheet.columns]), rule, *(line(row) for row in table_cells(sheet))]
    head = [f'**{sheet.title}**', ''] if sheet.title else []
    tail = [line for text in (sheet.note, sheet.analysis) if text for line in ('', text)]
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
