"""A document's tables by key; and a page read back: tables by their anchor, with the exact values of their cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

from robotrials.show.document import Document, TableBlock


@dataclass
class ParsedTable:
    columns: list[str] = field(default_factory=list)
    rows: list[list[float | str]] = field(default_factory=list)

    def column(self, name: str) -> list[float | str]:
        return [row[self.columns.index(name)] for row in self.rows]

    def value(self, name: str, **keys: str) -> float | str:
        """The cell of this column in the one row whose other columns are as given."""
        (row,) = (r for r in self.rows if all(r[self.columns.index(k)] == v for k, v in keys.items()))
        return row[self.columns.index(name)]


class PageParser(HTMLParser):
    """Tables by the id of the element they stand in; links and ids for checks of the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, ParsedTable] = {}
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.anchor = ''
        self._table: ParsedTable | None = None
        self._cell: tuple[str, str | None] | None = None
        self._text = ''
        self._row: list[float | str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get('id'):
            self.ids.append(str(given['id']))
        if tag == 'a' and (given.get('href') or '').startswith('#'):
            self.targets.append(str(given['href'])[1:])
        if tag in ('div', 'details', 'section', 'figure') and given.get('id'):
            self.anchor = str(given['id'])
        if tag == 'table':
            self._table = self.tables.setdefault(self.anchor, ParsedTable())
        if tag == 'tr':
            self._row = []
        if tag in ('td', 'th'):
            self._cell, self._text = (tag, given.get('data-value')), ''

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ('td', 'th') and self._cell is not None:
            exact = self._cell[1]
            self._row.append(float(exact) if exact is not None else self._text.strip())
            self._cell = None
        if tag == 'tr' and self._table is not None and self._row:
            if not self._table.columns:
                self._table.columns = [str(cell) for cell in self._row]
            else:
                self._table.rows.append(self._row)
        if tag == 'table':
            self._table = None


def parse_page(html: str) -> PageParser:
    parser = PageParser()
    parser.feed(html)
    return parser


def table_blocks(document: Document) -> dict[str, TableBlock]:
    """Every table of a document by its key."""
    return {b.key: b for s in document.sections for b in s.blocks if isinstance(b, TableBlock)}
