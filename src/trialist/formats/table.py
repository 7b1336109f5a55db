"""Anyone's table as a source of episodes: CSV, TSV, JSON, JSONL or Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trialist.formats.from_table import FORMATS, from_table
from trialist.formats.imported import POSSIBLE, Imported, ImportOptions, Ledger, Recording, refuse_unused


class TableFormat:
    """One row per episode."""

    name = 'table'
    summary = 'CSV, TSV, JSON, JSONL or Parquet with one row per episode'

    def recognise(self, path: Path) -> float | None:
        return POSSIBLE if path.is_file() and path.suffix.lower() in FORMATS else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='a table', takes=('columns',))
        ledger = Ledger()

        def recordings() -> Iterator[Recording]:
            for episode in from_table(
                path, columns=options.columns, defaults=options.defaults, source=options.source_name(path)
            ):
                yield Recording(episode)

        return Imported(format=self.name, sources=(path,), recordings=recordings, ledger=ledger)


TABLE = TableFormat()
