"""One large addition to a store, written piece by piece: nothing of it counts until `finish`, then all of it does."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robotrials.record.commit import Commit, commit
from robotrials.record.entry import EntryKind
from robotrials.record.folder import PENDING, Folder
from robotrials.record.id_hash import encode_hashes, id_hashes
from robotrials.record.part import METADATA_KEY, ROW_GROUP, PartInfo, parquet_options, write_table
from robotrials.record.schema import EPISODE_SCHEMA, SCHEMA_VERSION
from robotrials.record.store import Key, Store, check_media_name, encode_index, write_trajectories

if TYPE_CHECKING:
    from robotrials.record.trajectory import Trajectory


@dataclass(slots=True)
class Addition:
    """Trajectories and media first, then the tables in one commit. `discard` takes back what was written before it."""

    store: Store
    _trajectories: list[str] = field(default_factory=list)
    _places: dict[Key, int] = field(default_factory=dict)  # key -> number of its trajectories part, from 1
    _media: list[str] = field(default_factory=list)
    _held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _commit: Commit | None = None

    def _under_way(self) -> Commit:
        if self._commit is None:
            self.store.check_open()
            self._commit = self._held.enter_context(commit(self.store.path))
        return self._commit

    def spill_path(self) -> Path:
        """A file of one's own for what must not stay in memory; the caller removes it."""
        Folder(self.store.path).make(PENDING)
        return self.store.path / PENDING / f'{uuid.uuid4().hex}.arrows'

    def add_trajectories(self, keyed: Sequence[tuple[Key, Trajectory]]) -> None:
        """One part of trajectories, by the keys of their episodes."""
        self._trajectories += write_trajectories(self._under_way(), [keyed])
        self._places.update(dict.fromkeys((key for key, _ in keyed), len(self._trajectories)))

    def add_media(self, name: str, write: Callable[[Path], object]) -> None:
        """Let `write` make the file `name` of media/; the same content again is fine, other content is refused."""
        target = f'media/{check_media_name(name)}'
        under_way = self._under_way()
        draft = self.spill_path().with_suffix(Path(name).suffix)  # writers of videos look at the suffix
        try:
            write(draft)
            is_new = not (self.store.path / target).exists()
            under_way.announce([target] if is_new else [])
            under_way.add_file(target, draft)
            self._media += [target] if is_new else []
        finally:
            draft.unlink(missing_ok=True)

    def finish(self, episodes: Iterable[pa.Table], events: pa.Table) -> None:
        """The commit: tables of the record's schema, taken one at a time, become one part."""
        under_way = self._under_way()
        version = {'schema_version': SCHEMA_VERSION}
        name = ''
        if events.num_rows:
            name = under_way.add_part('events', lambda sink: write_table(events, sink, metadata=version))
        meta = {**version, 'n_events': events.num_rows, 'events': name, 'trajectories': self._trajectories}
        numbers: list[int] = []
        hashes: list[NDArray[np.uint64]] = [np.zeros(0, np.uint64)]

        def write(sink: IO[bytes]) -> None:
            with pq.ParquetWriter(sink, EPISODE_SCHEMA, **parquet_options(EPISODE_SCHEMA)) as writer:
                for table in episodes:
                    keys = zip(table['episode_id'].to_pylist(), table['attempt'].to_pylist(), strict=True)
                    numbers.extend(self._places.get(key, 0) for key in keys)
                    hashes.append(id_hashes(table['episode_id']))
                    writer.write_table(table, row_group_size=ROW_GROUP)
                told = {**meta, 'replaces': [], **({'index': encode_index(numbers)} if self._places else {})}
                writer.add_key_value_metadata({METADATA_KEY.decode(): json.dumps(told)})

        part_name = under_way.add_part('episodes', write)
        part = PartInfo(
            self.store.path / 'episodes' / part_name, len(numbers), SCHEMA_VERSION, events.num_rows, name,
            tuple(self._trajectories), ids=encode_hashes(np.concatenate(hashes)),
        )  # fmt: skip
        under_way.finish(EntryKind.APPEND, {'parts': [part.as_json()]})
        self._held.close()

    def discard(self) -> None:
        """Remove what was put into the store before the commit that did not come."""
        folder = Folder(self.store.path)
        for name in [*(f'trajectories/{name}' for name in self._trajectories), *self._media]:
            folder.remove(name)
        for name in self._media:
            parent = (self.store.path / name).parent
            if parent != self.store.path / 'media' and parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
        self._held.close()
