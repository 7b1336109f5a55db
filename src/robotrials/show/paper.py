"""Which names here have the layout of which table and figure of the five papers, and the lists of all names."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from robotrials.show.figure_catalog import FIGURES, find_figure
from robotrials.show.request import input_of, summary_of
from robotrials.show.table_catalog import TABLES, find_table

SHORT_TITLES = {
    'phail': 'PhAIL', 'benchmark-audit': 'Benchmark audit', 'multinet': 'MultiNet', 'radar': 'RADAR',
    'safevla-bench': 'SafeVLA-Bench',
}  # fmt: skip
Row = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class PaperItem:
    """A table or figure of a paper: the names that have its layout, or in `note` why there is none."""

    paper: str
    item: str  # such as 'Figure 3'
    what: str
    figures: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    note: str = ''

    @property
    def is_figure(self) -> bool:
        return self.item.startswith('Figure')

    @property
    def is_named(self) -> bool:
        return bool(self.figures or self.tables)


@dataclass(frozen=True, slots=True)
class Paper:
    id: str
    title: str
    items: tuple[PaperItem, ...]


@functools.cache
def papers() -> tuple[Paper, ...]:
    """The five papers with all their tables and figures."""
    text = (Path(__file__).parent / 'data' / 'papers.toml').read_text(encoding='utf-8')
    return tuple(
        Paper(row['id'], row['title'], tuple(_item(row['id'], item) for item in row['items']))
        for row in tomllib.loads(text)['paper']
    )


def _item(paper: str, row: dict[str, object]) -> PaperItem:
    def names(key: str) -> tuple[str, ...]:
        found = row.get(key, [])
        assert isinstance(found, list)
        return tuple(str(name) for name in found)

    return PaperItem(
        paper, str(row['item']), str(row['what']), names('figures'), names('tables'), str(row.get('note', ''))
    )


def layouts(kind: str) -> dict[str, str]:
    """Name -> the papers' items of its layout, such as 'PhAIL Figures 1, 3'; kind is 'figures' or 'tables'."""
    found: dict[str, dict[tuple[str, str], list[str]]] = {}
    for item in (item for paper in papers() for item in paper.items):
        word, _, number = item.item.partition(' ')
        for name in getattr(item, kind):
            found.setdefault(name, {}).setdefault((item.paper, word), []).append(number)
    return {
        name: '; '.join(
            f'{SHORT_TITLES[paper]} {word}{"s" if len(numbers) > 1 else ""} {", ".join(numbers)}'
            for (paper, word), numbers in places.items()
        )
        for name, places in found.items()
    }


def listed_figures() -> list[Row]:
    """Every figure: name, what it shows, whose layout it has, what it is made from."""
    return _listed(FIGURES.names(), find_figure, layouts('figures'))


def listed_tables() -> list[Row]:
    """Every table: name, what it shows, whose layout it has, what it is made from."""
    return _listed(TABLES.names(), find_table, layouts('tables'))


def _listed(names: tuple[str, ...], find: Callable[[str], Callable[..., object]], known: dict[str, str]) -> list[Row]:
    rows = []
    for name in names:
        made = find(name)
        rows.append((name, summary_of(made), known.get(name, ''), input_of(made).value))
    return rows
