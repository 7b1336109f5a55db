"""Episodes from anyone's table in one call; `formats.table` does the work, and `robotrials import` shows its guess."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from robotrials.formats.catalog import open_source
from robotrials.formats.guess import ColumnMap, guess_columns
from robotrials.formats.imported import ImportOptions
from robotrials.record.episode import Episode

__all__ = ['ColumnMap', 'from_table', 'guess_columns']


def from_table(
    path: Path | str,
    *,
    columns: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
    source: str | None = None,
    rate_hz: float | None = None,
    group_by: tuple[str, ...] = (),
) -> list[Episode]:
    """Every row of a table as an episode; a bad row is named by file, row and field, and then nothing is given.

    `columns` maps a field to a column where the guess is wrong; `defaults` sets fields for all rows. `source` (default:
    the file's name) is part of the ids, so that the same table imported again, or grown, adds nothing twice.
    """
    options = ImportOptions(
        columns=columns or {}, defaults=defaults or {}, source=source, rate_hz=rate_hz, group_by=group_by
    )
    return list(open_source(Path(path), options, name='table').episodes())
