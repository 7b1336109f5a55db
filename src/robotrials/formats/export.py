"""Writing a store in other people's formats: what every exporter gives and takes.

An exporter reads the store as anyone would, edits applied and codes of an open blinded trial left as codes, so that it
can never tell more than the store does.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

from robotrials.catalog import Catalog
from robotrials.errors import InputError, SetupError
from robotrials.formats.imported import Ledger
from robotrials.record import Camera, Episode, Store, Trajectory
from robotrials.record.episode import Event
from robotrials.record.folder import put_durably
from robotrials.record.schema import EPISODE_FIELDS, episodes_to_arrow
from robotrials.record.select import Where
from robotrials.value import dataclass

# Episodes as a table that anyone can read: CSV, JSONL or Parquet, one row an episode; `from_table` reads it back.


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


EXPORTERS = Catalog(
    'export format',
    {
        'lerobot': 'robotrials.formats.lerobot_write:LEROBOT',
        'lerobot-v2.1': 'robotrials.formats.lerobot_write:LEROBOT_V21',
        'rerun': 'robotrials.formats.rerun_write:RERUN',
        'mcap': 'robotrials.formats.mcap_file:MCAP_EXPORT',
        'table': 'robotrials.formats.export:TABLE',
    },
    entry_point_group='robotrials.exporters',
)


@dataclass(frozen=True, slots=True, eq=False)
class Film:
    """One camera of one episode for an export: its file, and the step that each of its frames shows."""

    camera: Camera  # with `video_steps`
    path: Path


Redraw = Callable[[Episode], Sequence[Film]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What the user says beyond the store and the format."""

    where: Where | None = None
    rate_hz: float | None = None  # for formats with one rate, where the record does not state it
    redraw: Redraw | None = None  # films drawn from kept states, instead of those that were recorded


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export came to."""

    episodes: int
    ledger: Ledger = field(default_factory=Ledger)


class Exporter(Protocol):
    """How to write one kind of file or folder."""

    name: str
    summary: str
    suffix: str  # of the file that is written; empty for a folder

    def write(self, store: Store, target: Path, options: ExportOptions) -> Exported:
        """Write the whole target, which is not there yet, or nothing."""


def load_exporter(name: str) -> Exporter:
    """The exporter of this name, or of a literal ``module:attribute``."""
    loaded = EXPORTERS.load(name)
    for attribute in ('name', 'summary', 'suffix', 'write'):
        if not hasattr(loaded, attribute):
            raise SetupError(
                f'{name}: {loaded!r} has no {attribute!r}; wanted an object like robotrials.formats.Exporter'
            )
    return loaded  # type: ignore[return-value]  # checked above, as far as can be


@contextmanager
def fresh_target(target: Path) -> Iterator[Path]:
    """A place beside `target` to write to, renamed when all is written and removed when anything fails."""
    if target.exists():
        raise InputError(f'{target}: is there already; give a new name')
    if not target.parent.is_dir():
        raise InputError(f'{target}: wanted a name in a folder that is there')
    with put_durably(target) as draft:
        yield draft


def recorded_rollouts(store: Store, options: ExportOptions, ledger: Ledger) -> Iterator[tuple[Episode, Trajectory]]:
    """The valid counted episodes with a trajectory; the others are entered as dropped."""
    with_steps = set()
    for episode, trajectory in store.trajectories(where=options.where):
        with_steps.add(episode.key)
        if episode.is_valid:
            yield episode, trajectory
    for episode in store.episodes(where=options.where, events=False):
        if not episode.is_valid:
            ledger.drop('episodes', why='invalid: the rig broke, so they show nothing of the policy')
        elif episode.key not in with_steps:
            ledger.drop('episodes', why='no trajectory was recorded')


def check_some(count: int) -> None:
    """Raise InputError where nothing was written."""
    if not count:
        raise InputError('no valid episode with a trajectory to write')


def media_file(store: Store, name: str) -> Path | None:
    """A file of the store's media folder, or None where it is gone."""
    return store.file(f'media/{name}') if store.has_file(f'media/{name}') else None


def episode_facts(episode: Episode) -> dict[str, str]:
    """What an episode is, as text by field, for a file's own notes; absent fields are left out."""
    row = episode_row(episode)
    skipped = ('events', 'provenance_id')
    facts = {k: v for k, v in row.items() if k not in skipped and v not in (None, '', {}, [])}
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items()}


def file_stem(episode: Episode) -> str:
    """A file name for one episode: its id, and its attempt where that is not the first."""
    safe = ''.join(c if c.isalnum() or c in '-_.' else '_' for c in episode.episode_id)
    return f'{safe}-{episode.attempt}' if episode.attempt else safe


# A store as a table with one row per episode, by the suffix of its name: .csv, .jsonl or .parquet.


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
