"""Episodes as a table that anyone can read: CSV, JSONL or Parquet, one row an episode; `from_table` reads it back."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from robotrials.errors import InputError
from robotrials.record.episode import Episode
from robotrials.record.event import Event
from robotrials.record.folder import put_durably
from robotrials.record.schema import EPISODE_FIELDS, episodes_to_arrow


def to_table(episodes: Iterable[Episode], path: Path | str) -> int:
    """Write the episodes by the file's suffix (.csv, .jsonl, .parquet); gives how many."""
    target = Path(path)
    suffix = target.suffix.lower()
    writers = {'.csv': _write_csv, '.jsonl': _write_jsonl, '.ndjson': _write_jsonl, '.parquet': _write_parquet}
    if suffix not in writers:
        raise InputError(f'{target}: wanted a table ending in .csv, .jsonl or .parquet, found {target.suffix!r}')
    if target.is_dir() or not target.parent.is_dir():
        raise InputError(f'{target}: wanted a file in a folder that is there')
    with put_durably(target) as draft:
        return writers[suffix](episodes, draft)


def episode_row(episode: Episode) -> dict[str, Any]:
    """An episode as plain JSON values; absent fields are None."""
    row: dict[str, Any] = {}
    for name in EPISODE_FIELDS:
        value = getattr(episode, name)
        if name in ('condition_parameters', 'labels'):
            value = dict(value)
        elif name == 'started_at' and value is not None:
            value = value.isoformat()
        elif name == 'outcome':
            value = value.value
        row[name] = value
    row['events'] = [
        {'t_s': e.t_s, 'kind': e.kind.value, 'source': e.source.value, 'count': e.count} | _name_of(e)
        for e in episode.events
    ]
    return row


def _name_of(event: Event) -> dict[str, str]:
    return {'name': event.name} if event.name else {}


def _write_csv(episodes: Iterable[Episode], target: Path) -> int:
    count = 0
    with target.open('w', encoding='utf-8', newline='') as stream:
        writer = csv.writer(stream, lineterminator='\n')
        careful = csv.writer(stream, lineterminator='\n', quoting=csv.QUOTE_ALL)
        writer.writerow([*EPISODE_FIELDS, 'events'])
        for count, episode in enumerate(episodes, start=1):  # noqa: B007 - the last count is the answer
            row = episode_row(episode)
            nested = {
                k: json.dumps(v, ensure_ascii=False) if v else '' for k, v in row.items() if isinstance(v, dict | list)
            }
            cells = ['' if v is None else v for v in {**row, **nested}.values()]
            # The writer leaves a lone carriage return bare, and readers would end the row there.
            (careful if any('\r' in str(c) for c in cells) else writer).writerow(cells)
    return count


def _write_jsonl(episodes: Iterable[Episode], target: Path) -> int:
    count = 0
    with target.open('w', encoding='utf-8') as stream:
        for count, episode in enumerate(episodes, start=1):  # noqa: B007 - the last count is the answer
            stream.write(json.dumps(episode_row(episode), ensure_ascii=False) + '\n')
    return count


def _write_parquet(episodes: Iterable[Episode], target: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    batch = list(episodes)
    events = [json.dumps(episode_row(e)['events']) for e in batch]
    pq.write_table(
        episodes_to_arrow(batch).append_column('events', pa.array(events, pa.string())), target, compression='zstd'
    )
    return len(batch)
