"""Large additions to a store, written piece by piece: nothing of one counts until it is finished."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robotrials.errors import InputError, StoreError
from robotrials.record.blinding import blinded_trajectory, part_keys
from robotrials.record.folder import PENDING, Folder, held_lock
from robotrials.record.log import Commit, check_logged, commit
from robotrials.record.part import (
    METADATA_KEY,
    ROW_GROUP,
    EntryKind,
    PartInfo,
    encode_hashes,
    id_hashes,
    open_part,
    parquet_options,
    part_metadata,
    write_table,
)
from robotrials.record.rows import EPISODE_SCHEMA, EVENT_SCHEMA, SCHEMA_VERSION
from robotrials.record.store import (
    Key,
    Store,
    check_media_name,
    decode_index,
    encode_index,
    write_episodes,
    write_trajectories,
)
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.record.trajectory import Trajectory


@dataclass(slots=True)
class Addition:
    """Trajectories and media first, then the tables in one commit. `discard` takes back what was written before it."""

    store: Store
    checked: Collection[str] = ()  # parts that are known to have none of its episodes
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

    def finish(
        self, episodes: Iterable[pa.Table], events: pa.Table, *, hashes: Sequence[NDArray[np.uint64]] | None = None
    ) -> None:
        """The commit: tables of the record's schema, taken one at a time, become one part.

        `hashes` are the `id_hashes` of each table, from who knows them already.
        """
        under_way = self._under_way()
        version = {'schema_version': SCHEMA_VERSION}
        name = ''
        if events.num_rows:
            name = under_way.add_part('events', lambda sink: write_table(events, sink, metadata=version))
        meta = {**version, 'n_events': events.num_rows, 'events': name, 'trajectories': self._trajectories}
        numbers: list[int] = []  # of each row's file of trajectories, where there are any
        hashed: list[NDArray[np.uint64]] = []

        def write(sink: IO[bytes]) -> None:
            with pq.ParquetWriter(sink, EPISODE_SCHEMA, **parquet_options(EPISODE_SCHEMA)) as writer:
                for place, table in enumerate(episodes):
                    if self._places:
                        keys = zip(table['episode_id'].to_pylist(), table['attempt'].to_pylist(), strict=True)
                        numbers.extend(self._places.get(key, 0) for key in keys)
                    hashed.append(id_hashes(table['episode_id']) if hashes is None else hashes[place])
                    writer.write_table(table, row_group_size=ROW_GROUP)
                metadata = {**meta, 'replaces': [], **({'index': encode_index(numbers)} if self._places else {})}
                writer.add_key_value_metadata({METADATA_KEY.decode(): json.dumps(metadata)})

        part_name = under_way.add_part('episodes', write)
        part = PartInfo(
            self.store.path / 'episodes' / part_name, sum(map(len, hashed)), SCHEMA_VERSION, events.num_rows, name,
            tuple(self._trajectories), ids=''.join(map(encode_hashes, hashed)),
        )  # fmt: skip

        def check() -> None:
            self.store.check_open()
            if any(other.path.name not in self.checked for other in self.store.parts()):
                self.store.check_new(part_keys(part), but=self.checked)

        under_way.finish(EntryKind.APPEND, {'parts': [part.as_json()]}, check=check)
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


# Trajectories and films for episodes that were recorded without them, in one durable write.
# Rows and events stay as they are: the parts that hold them are written again, as one, with the trajectories beside
# them, and the log's entry names what it replaces, as a compaction's does. What is refused is refused before a byte is
# written.

STEPS_PER_PART = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Attachment:
    """What is joined to one episode; `media` writes files of media/ by their names."""

    key: Key
    trajectory: Trajectory
    media: Mapping[str, Callable[[Path], object]] = field(default_factory=dict)


def check_attachable(store: Store, keys: Sequence[Key]) -> None:
    """Refuse a closed trial, an episode that is not there or that has a trajectory, and one that is named twice."""
    check_logged(store.path)
    wanted = set(keys)
    if len(wanted) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise StoreError(
            f'{store.path}: two recordings for episode {twice[0]} attempt {twice[1]}; nothing was attached'
        )
    episodes = {
        e.key: e
        for e in store.episodes(attempts='all', dropped=True, events=False, where={'episode_id': {k[0] for k in keys}})
    }
    absent = next((key for key in keys if key not in episodes), None)
    if absent is not None:
        raise InputError(f'{store.path}: no episode {absent[0]} attempt {absent[1]} in it; nothing was attached')
    store.check_open({episodes[key].trial_id for key in keys})
    for part in store.parts():
        for key, number in _numbered(part):
            if key in wanted and number:
                raise StoreError(
                    f'{store.path}: episode {key[0]} attempt {key[1]} has a trajectory already; nothing was attached. '
                    'What was attached stays: import the recording into a store of its own to look at it'
                )


def attach(store: Store, attachments: Iterable[Attachment], *, keys: Sequence[Key], body: Mapping[str, Any],
           by: str = '') -> int:  # fmt: skip
    """Join trajectories and films to the episodes `keys`: when this returns all are there, if it does not none is.

    `attachments` gives one for each key, in any order, one at a time in memory. `body` says how they were joined. While
    a trial is blinded, columns that would tell arms apart are left out.
    """
    from robotrials.record.maintain import remove_unlogged, retire_part

    with held_lock(store.path, '.lock', busy='a compaction or another attachment is running; wait for it'):
        check_attachable(store, keys)
        is_blinded = store.is_blinded
        remove_unlogged(store.path)  # films of an attachment that broke would stand in the way of better ones
        with commit(store.path) as under_way:
            names: list[str] = []
            places: dict[Key, int] = {}
            for batch in _batches(attachments, partial(_add_media, store, under_way)):
                keyed = [(key, blinded_trajectory(t) if is_blinded else t) for key, t in batch]
                names += write_trajectories(under_way, [keyed])
                places.update(dict.fromkeys((key for key, _ in keyed), len(names) - 1))
            if set(places) != set(keys):
                raise InputError(f'{store.path}: {len(places)} of {len(keys)} recordings came; nothing was attached')
            replaced = [part for part in store.parts() if any(key in places for key, _ in _numbered(part))]
            part = _joined_part(store, under_way, replaced, names, places)
            under_way.finish(
                EntryKind.ATTACH, {'parts': [part.as_json()], 'attached': dict(body)}, by=by,
                check=partial(check_attachable, store, keys),
            )  # fmt: skip
        for old in replaced:
            retire_part(store.path, old)
        return len(places)


def _batches(
    attachments: Iterable[Attachment], add_media: Callable[[Attachment], None]
) -> Iterator[list[tuple[Key, Trajectory]]]:
    """Trajectories for one part each; media are taken at once, because a reader's files go with its recording."""
    batch: list[tuple[Key, Trajectory]] = []
    steps = 0
    for attachment in attachments:
        add_media(attachment)
        batch.append((attachment.key, attachment.trajectory))
        steps += attachment.trajectory.n_steps
        if steps >= STEPS_PER_PART:
            yield batch
            batch, steps = [], 0
    if batch:
        yield batch


def _add_media(store: Store, under_way: Commit, attachment: Attachment) -> None:
    folder = Folder(store.path)
    for name, write in attachment.media.items():
        target = f'media/{check_media_name(name)}'
        folder.make(PENDING)
        draft = store.path / PENDING / f'attach-{attachment.key[0]}-{attachment.key[1]}-{Path(name).name}'
        try:
            write(draft)
            under_way.announce([target])
            under_way.add_file(target, draft)
        finally:
            draft.unlink(missing_ok=True)


def _numbered(part: PartInfo) -> list[tuple[Key, int]]:
    """Every row of a part and the number of its trajectories part, 0 for none; without an index all have one."""
    from robotrials.record.maintain import episode_table

    table = episode_table(part).select(['episode_id', 'attempt'])
    keys = list(zip(table['episode_id'].to_pylist(), table['attempt'].to_pylist(), strict=True))
    if not part.trajectories:
        return [(key, 0) for key in keys]
    values = part_metadata(open_part(part.path, part.logged), part.path)
    numbers = decode_index(values['index']) if 'index' in values else [1] * len(keys)
    return list(zip(keys, numbers, strict=True))


def _joined_part(
    store: Store, under_way: Commit, group: Sequence[PartInfo], names: Sequence[str], places: Mapping[Key, int]
) -> PartInfo:
    """The same rows and events as one part, with the old trajectories and the new ones beside them.

    One part, because every part that names a file of trajectories reads all of it.
    """
    from robotrials.record.maintain import episode_table, event_table

    beside = [name for part in group for name in part.trajectories]
    index: list[int] = []
    before = 0
    for part in group:
        for key, old in _numbered(part):
            index.append(len(beside) + places[key] + 1 if key in places else old and before + old)
        before += len(part.trajectories)
    episodes = pa.concat_tables([episode_table(part) for part in group]).unify_dictionaries()
    events = [event_table(store, part) for part in group if part.events]
    return write_episodes(
        store.path, under_way, episodes,
        pa.concat_tables(events).unify_dictionaries() if events else EVENT_SCHEMA.empty_table(),
        trajectories=[*beside, *names], replaces=[part.path.name for part in group], index=index,
    )  # fmt: skip
