"""A store as a table with one row per episode, by the suffix of its name: .csv, .jsonl or .parquet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robotrials.errors import InputError
from robotrials.formats.export import Exported, ExportOptions
from robotrials.formats.imported import Ledger
from robotrials.formats.to_table import to_table
from robotrials.record import Store


@dataclass(frozen=True, slots=True)
class TableExporter:
    name: str = 'table'
    summary: str = 'a table with one row per episode: .csv, .jsonl or .parquet'
    suffix: str = '.csv'

    def write(self, store: Store, target: Path, options: ExportOptions) -> Exported:
        if target.exists():
            raise InputError(f'{target}: is there already; give a new name')
        ledger = Ledger()
        count = to_table(store.episodes(where=options.where), target)
        ledger.keep('episodes', count)
        ledger.drop('trajectories and media', None, why='a table has one row per episode')
        return Exported(count, ledger)


TABLE = TableExporter()
