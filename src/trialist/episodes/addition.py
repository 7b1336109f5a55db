"""One large addition to a store, written piece by piece: nothing of it counts until `finish`, then all of it does."""

from __future__ import annotations

import filecmp
import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trialist.episodes.part import METADATA_KEY, PENDING, parquet_options, write_part, write_table
from trialist.episodes.schema import EPISODE_SCHEMA, SCHEMA_VERSION
from trialist.episodes.store import Key, Store
from trialist.episodes.trajectory import Trajectory
from trialist.errors import StoreError

ROW_GROUP = 65536


@dataclass(slots=True)
class Addition:
    """Trajectories and media first, then the tables in one commit. `discard` takes back what was written before it."""

    store: Store
    _trajectories: list[str] = field(default_factory=list)
    _media: list[Path] = field(default_factory=list)

    def spill_path(self) -> Path:
        """A file of one's own for what must not stay in memory; the caller removes it."""
        folder = self.store.path / PENDING
        folder.mkdir(exist_ok=True)
        return folder / f'{uuid.uuid4().hex}.arrows'

    def add_trajectories(self, keyed: Sequence[tuple[Key, Trajectory]]) -> None:
        """One part of trajectories, by the keys of their episodes."""
        self._trajectories.append(self.store.write_trajectories(keyed))

    def add_media(self, name: str, write: Callable[[Path], object]) -> None:
        """Let `write` make the file `name` of media/; the same content again is fine, other content is refused."""
        target = self.store.path / 'media' / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when whole, so that a killed writer leaves no half of a video under a name that counts.
        draft = target.with_name(f'.{uuid.uuid4().hex}{target.suffix}')
        try:
            write(draft)
            if not target.exists():
                self._media.append(target)
                draft.replace(target)
            elif not filecmp.cmp(draft, target, shallow=False):
                raise StoreError(f'{target}: is there with other content; nothing was added. Give it another name')
        finally:
            draft.unlink(missing_ok=True)

    def finish(self, episodes: Iterable[pa.Table], events: pa.Table) -> None:
        """The commit: tables of the record's schema, taken one at a time, become one part."""
        version = {'schema_version': SCHEMA_VERSION}
        name = ''
        if events.num_rows:
            name = write_part(self.store.path, 'events', lambda path: write_table(events, path, metadata=version))
        meta = {**version, 'n_events': events.num_rows, 'events': name, 'trajectories': self._trajectories}
        schema = EPISODE_SCHEMA.with_metadata({METADATA_KEY: json.dumps({**meta, 'replaces': []}).encode()})

        def write(path: Path) -> None:
            with pq.ParquetWriter(path, schema, **parquet_options(schema)) as writer:
                for table in episodes:
                    writer.write_table(table, row_group_size=ROW_GROUP)

        write_part(self.store.path, 'episodes', write)

    def discard(self) -> None:
        """Remove what was put into the store before the commit that did not come."""
        for name in self._trajectories:
            (self.store.path / 'trajectories' / name).unlink(missing_ok=True)
        for path in self._media:
            path.unlink(missing_ok=True)
            if path.parent != self.store.path / 'media' and not any(path.parent.iterdir()):
                path.parent.rmdir()
