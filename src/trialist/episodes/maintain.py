"""Keeping stores in order: compaction of many small parts, and merging one store into another."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trialist.episodes.column import trajectories_from_arrow
from trialist.episodes.edit import Edit, Edits, read_edits, write_edit
from trialist.episodes.episode import Episode
from trialist.episodes.part import (
    METADATA_KEY,
    PART_NAME,
    PartInfo,
    leftovers,
    parquet_options,
    read_companion,
    read_part_info,
    row_groups,
    write_part,
)
from trialist.episodes.schema import EPISODE_MIGRATIONS, EVENT_MIGRATIONS, EVENT_SCHEMA, SCHEMA_VERSION, migrate
from trialist.episodes.store import TRAJECTORY_ROW_GROUP, Store
from trialist.episodes.trajectory import Trajectory
from trialist.episodes.unblinding import FOLDER as UNBLINDING
from trialist.errors import StoreError

ROWS_A_PART = 100_000
TRAJECTORY_BYTES_A_PART = 256 << 20
STALE_AFTER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Compaction:
    """How many parts went in, how many came out, and how many leftovers were removed."""

    parts_before: int
    parts_after: int
    leftovers_removed: int


@dataclass(frozen=True, slots=True)
class Merge:
    """How many episodes came in, how many were already there, and how many edits came along."""

    added: int
    already_there: int
    edits_added: int


def compact_store(
    path: Path | str, *, rows_a_part: int = ROWS_A_PART, stale_after_s: float = STALE_AFTER_S
) -> Compaction:
    """Rewrite many small parts as few large ones; readers and writers may go on meanwhile.

    The new part names those it replaces, so they count no more; they stay for those who are reading them. Leftovers
    that are `stale_after_s` old are removed: what earlier compactions replaced, and what killed writers left.
    """
    store = Store.open(path)
    with _sole_compactor(store.path):
        removed = _remove_leftovers(store, stale_after_s)
        before = store.parts()
        for group in _groups(before, store.path, rows_a_part):
            if len(group) > 1 or group[0].schema_version < SCHEMA_VERSION:
                _rewrite(store, group)
        if stale_after_s <= 0:
            removed += _remove_leftovers(store, stale_after_s)
        return Compaction(len(before), len(store.parts()), removed)


@contextmanager
def _sole_compactor(root: Path) -> Iterator[None]:
    with (root / '.lock').open('w') as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(f'{root}: another compaction is running; wait for it') from error
        yield


def _groups(parts: Sequence[PartInfo], root: Path, rows_a_part: int) -> Iterator[list[PartInfo]]:
    group: list[PartInfo] = []
    rows = size = 0
    for part in parts:
        part_size = sum((root / 'trajectories' / name).stat().st_size for name in part.trajectories)
        if group and (rows + part.n_rows > rows_a_part or size + part_size > TRAJECTORY_BYTES_A_PART):
            yield group
            group, rows, size = [], 0, 0
        group.append(part)
        rows, size = rows + part.n_rows, size + part_size
    if group:
        yield group


def _rewrite(store: Store, group: Sequence[PartInfo]) -> None:
    episodes = pa.concat_tables([_episode_table(part) for part in group]).unify_dictionaries()
    events = [
        migrate(
            read_companion(store.path, 'events', p.events),
            p.schema_version,
            migrations=EVENT_MIGRATIONS,
            where=p.events,
        )
        for p in group
        if p.events
    ]
    joined = pa.concat_tables(events).unify_dictionaries() if events else EVENT_SCHEMA.empty_table()
    sources = [name for part in group for name in part.trajectories]
    trajectories = [_join_trajectories(store, sources)] if sources else []
    # What these parts had replaced may still lie there for readers: it must not come to life when they are gone.
    before = [name for part in group for name in part.replaces if (store.path / 'episodes' / name).exists()]
    replaces = [*(part.path.name for part in group), *before]
    store.write_episodes(episodes, joined, trajectories=trajectories, replaces=replaces)
    for part in group:
        _retire_part(store.path, part)


def _episode_table(part: PartInfo) -> pa.Table:
    try:
        table = pq.read_table(part.path, page_checksum_verification=True)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise StoreError(f'{part.path}: damaged ({error}); run: trialist store verify') from error
    return migrate(
        table, part.schema_version, migrations=EPISODE_MIGRATIONS, where=str(part.path)
    ).replace_schema_metadata(None)


def _retire_part(root: Path, part: PartInfo) -> None:
    """Date the files of a replaced part: readers that began with them have `stale_after_s` to finish."""
    events = [root / 'events' / part.events] if part.events else []
    for path in (part.path, *events, *(root / 'trajectories' / name for name in part.trajectories)):
        path.touch()


def _join_trajectories(store: Store, names: Sequence[str]) -> str:
    """Stream several trajectory parts into one, a row group at a time, over the union of their columns."""
    schemas = [pq.read_schema(store.path / 'trajectories' / name).remove_metadata() for name in names]
    schema = pa.unify_schemas(schemas, promote_options='permissive')
    schema = schema.with_metadata({METADATA_KEY: f'{{"schema_version": {SCHEMA_VERSION}}}'.encode()})

    def write(target: Path) -> None:
        with pq.ParquetWriter(target, schema, **parquet_options(schema)) as writer:
            for tables in _full_groups(store.path, names):
                writer.write_table(_fit(tables, schema), row_group_size=TRAJECTORY_ROW_GROUP)

    return write_part(store.path, 'trajectories', write)


def _full_groups(root: Path, names: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of all files in tables of exactly one row group, but for the last."""
    pending: list[pa.Table] = []
    rows = 0
    for name in names:
        for table in row_groups(root, 'trajectories', name):
            pending.append(table.replace_schema_metadata(None))
            rows += pending[-1].num_rows
            while rows >= TRAJECTORY_ROW_GROUP:
                joined = pa.concat_tables(pending, promote_options='permissive')
                yield joined.slice(0, TRAJECTORY_ROW_GROUP)
                rest = joined.slice(TRAJECTORY_ROW_GROUP)
                pending, rows = ([rest] if rest.num_rows else []), rest.num_rows
    if pending:
        yield pa.concat_tables(pending, promote_options='permissive')


def _fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table.column(f.name).cast(f.type) if f.name in table.schema.names else pa.nulls(table.num_rows, f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


def _remove_leftovers(store: Store, stale_after_s: float) -> int:
    """Remove what killed writers and compactions left, if it is old enough that nobody can still be at it."""
    infos = [read_part_info(p) for p in sorted((store.path / 'episodes').iterdir()) if PART_NAME.match(p.name)]
    before = time.time() - stale_after_s
    old = [path for path, _ in leftovers(store.path, infos) if path.stat().st_mtime <= before]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


def add_episodes(
    store: Store, episodes: Sequence[Episode], *, trajectories: Mapping[tuple[str, int], Trajectory] | None = None
) -> Merge:
    """Append the episodes that the store lacks, so that an import can be repeated; a clash adds nothing, by name."""
    given = {e.key: e for e in episodes}
    if len(given) != len(episodes):
        first: dict[tuple[str, int], int] = {}
        twice = next((first[e.key], n) for n, e in enumerate(episodes, 1) if first.setdefault(e.key, n) != n)
        raise StoreError(
            f'rows {twice[0]} and {twice[1]} share an id and attempt; nothing was added. Give rollouts of one cell '
            'different seeds, instances or repeats, and reruns different attempts'
        )
    there = {e.key: e for part in store.parts() for e in store.recorded(part) if e.key in given}
    for key, episode in there.items():
        if given[key] != episode:
            raise StoreError(
                f'episode {key[0]} attempt {key[1]} ({episode.policy}, {episode.task}) is in {store.path} with other '
                'content; nothing was added. Import into a new store, or edit the episode there'
            )
    fresh = [e for e in episodes if e.key not in there]
    if fresh:
        given_steps = trajectories or {}
        store.append(fresh, trajectories={e.key: given_steps[e.key] for e in fresh if e.key in given_steps})
    return Merge(len(fresh), len(there), 0)


def merge_stores(target: Path | str, source: Path | str) -> Merge:
    """Bring the episodes, trajectories, provenance, media and edits of `source` into `target`; again adds nothing.

    An episode that stands in both with different content is a clash: nothing is merged, and it is named.
    """
    into, other = Store.open(target), Store.open(source)
    if into.path.resolve() == other.path.resolve():
        raise StoreError(f'{into.path}: a store can not be merged into itself')
    shared = _shared_episodes(into, other)
    _check_edits_together(into, other)
    for folder in ('provenance', 'media', UNBLINDING):
        for path in sorted(p for p in (other.path / folder).rglob('*') if p.is_file()):
            _copy_once(path, into.path / folder / path.relative_to(other.path / folder))
    done = set(shared)
    added = 0
    for part in other.parts():
        episodes = [e for e in other.recorded(part) if e.key not in done]
        if episodes:
            _copy_episodes(into, other, part, episodes=episodes)
        done.update(e.key for e in episodes)
        added += len(episodes)
    return Merge(added, len(shared), _merge_edits(into, other))


def _shared_episodes(into: Store, other: Store) -> set[tuple[str, int]]:
    """The keys that stand in both stores with equal content; unequal content raises before anything is written."""
    sources = {e.key: part for part in other.parts() for e in other.recorded(part)}
    common = {e.key: e for part in into.parts() for e in into.recorded(part) if e.key in sources}
    for part in {sources[key] for key in common}:
        for episode in other.recorded(part):
            if episode.key in common and common[episode.key] != episode:
                raise StoreError(
                    f'episode {episode.episode_id} attempt {episode.attempt} stands in {into.path} and, with other '
                    f'content, in {part.path}; nothing was merged. Leave one of the two out'
                )
    return set(common)


def _check_edits_together(into: Store, other: Store) -> None:
    """Refuse a merge after which the edits of both could not be laid over an episode."""
    joined = Edits.of([*read_edits(into.path / 'edits.jsonl'), *_new_edits(into, other)])
    for store in (into, other) if joined.by_episode else ():
        for part in store.parts():
            for episode in store.recorded(part):
                try:
                    joined.apply(episode)
                except StoreError as error:
                    raise StoreError(f'{into.path} and {other.path}: {error}; nothing was merged') from error


def _new_edits(into: Store, other: Store) -> list[Edit]:
    ours = read_edits(into.path / 'edits.jsonl')
    return [e for e in read_edits(other.path / 'edits.jsonl') if e not in ours]


def _copy_episodes(into: Store, other: Store, part: PartInfo, *, episodes: Sequence[Episode]) -> None:
    wanted = {e.key for e in episodes}
    trajectories = {}
    for name in part.trajectories:
        for table in row_groups(other.path, 'trajectories', name):
            found = trajectories_from_arrow(table)
            trajectories.update({key: trajectory for key, trajectory in found if key in wanted})
    into.append(episodes, trajectories=trajectories)


def _copy_once(source: Path, target: Path) -> None:
    if target.exists():
        if target.read_bytes() != source.read_bytes():
            raise StoreError(f'{target} and {source} differ; no episode was merged. Rename one of the two')
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _merge_edits(into: Store, other: Store) -> int:
    theirs = _new_edits(into, other)
    for edit in theirs:
        write_edit(into.path / 'edits.jsonl', edit)
    return len(theirs)
