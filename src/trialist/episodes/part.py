"""Part files: immutable Parquet files whose name carries the hash of their bytes.

A part is written beside its folder, synced, and renamed into place, so it is there whole or not at all; any later
damage shows as a name that no longer fits the bytes. Episodes' parts are written last: they name their companions.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trialist.errors import StoreError

PART_NAME = re.compile(r'^(?P<time>[0-9a-f]{16})-(?P<hash>[0-9a-f]{32})\.parquet$')
PENDING = '.pending'
METADATA_KEY = b'trialist'


@dataclass(frozen=True, slots=True)
class PartInfo:
    """What an episodes part says of itself: its schema, its companions, and the parts it stands in for."""

    path: Path
    n_rows: int
    schema_version: int
    n_events: int
    events: str  # file name in events/, or ''
    trajectories: tuple[str, ...]  # file names in trajectories/
    replaces: tuple[str, ...] = ()  # episodes parts that a compaction put into this one


def file_hash(path: Path) -> str:
    """32 hex digits over a file's bytes."""
    with path.open('rb') as stream:
        return hashlib.file_digest(stream, 'sha256').hexdigest()[:32]


def write_part(root: Path, folder: str, write: Callable[[Path], None]) -> str:
    """Let `write` make a file, then put it into `root/folder` under its hashed name, durably. Gives the name."""
    pending = root / PENDING
    pending.mkdir(exist_ok=True)
    draft = pending / f'{uuid.uuid4().hex}.parquet'
    try:
        write(draft)
        with draft.open('rb') as stream:
            os.fsync(stream.fileno())
            digest = hashlib.file_digest(stream, 'sha256').hexdigest()[:32]
        name = f'{time.time_ns():016x}-{digest}.parquet'
        (root / folder).mkdir(exist_ok=True)  # copies made by git or an archive may lack empty folders
        os.rename(draft, root / folder / name)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(root / folder)
    return name


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_table(table: pa.Table, path: Path, *, metadata: Mapping[str, Any], row_group_size: int = 65536) -> None:
    """Write one table with page checksums, and our metadata in its footer."""
    described = table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode()})
    pq.write_table(described, path, **parquet_options(described.schema), row_group_size=row_group_size)


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """How our Parquet is encoded: byte-stream-split floats, dictionaries for names only.

    Trajectories take LZ4: on split float bytes it is 2 % larger than zstd and twice as fast.
    """
    floats, dictionaries = [], []
    has_lists = any(pa.types.is_list(field.type) for field in schema)
    for field in schema:
        if pa.types.is_floating(field.type):
            floats.append(field.name)
        elif pa.types.is_list(field.type) and pa.types.is_floating(field.type.value_type):
            floats.append(f'{field.name}.list.element')
        elif pa.types.is_dictionary(field.type):
            dictionaries.append(field.name)
    return {
        'compression': 'lz4' if has_lists else 'zstd',
        'use_dictionary': dictionaries or False,
        'use_byte_stream_split': floats or False,
        'write_page_checksum': True,
        'write_statistics': not has_lists,
    }


def read_part_info(path: Path) -> PartInfo:
    """The footer of an episodes part; a file that is not ours, or is damaged, is named."""
    try:
        footer = pq.read_metadata(path)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f'{path}: not a readable Parquet file ({error}); run: trialist store verify') from error
    raw = (footer.metadata or {}).get(METADATA_KEY)
    if raw is None:
        raise StoreError(f'{path}: a Parquet file, but not written by trialist; move it out of the store')
    values = json.loads(raw)
    return PartInfo(
        path=path,
        n_rows=footer.num_rows,
        schema_version=int(values['schema_version']),
        n_events=int(values.get('n_events', 0)),
        events=str(values.get('events', '')),
        trajectories=tuple(values.get('trajectories', ())),
        replaces=tuple(values.get('replaces', ())),
    )


def live_parts(root: Path) -> list[PartInfo]:
    """The episodes parts that count, oldest first: those that no compaction has replaced."""
    if not (root / 'episodes').is_dir():
        raise StoreError(f'{root / "episodes"}: the folder is gone; run: trialist store verify')
    infos = [read_part_info(p) for p in sorted((root / 'episodes').iterdir()) if PART_NAME.match(p.name)]
    replaced = {name for info in infos for name in info.replaces}
    return [info for info in infos if info.path.name not in replaced]


def read_companion(root: Path, folder: str, name: str) -> pa.Table:
    """One events part, whole; a missing or damaged file is named."""
    return pa.concat_tables(list(row_groups(root, folder, name)))


def row_groups(
    root: Path, folder: str, name: str, *, choose: Callable[[Sequence[str]], list[str]] | None = None
) -> Iterator[pa.Table]:
    """The row groups of an events or trajectories part, one at a time; `choose` picks columns from those there are."""
    path = root / folder / name
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        columns = choose(file.schema_arrow.names) if choose is not None else None
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=columns)
        if file.num_row_groups == 0:
            yield file.schema_arrow.empty_table()
    except FileNotFoundError as error:
        raise StoreError(f'{path}: missing, though an episodes part names it; run: trialist store verify') from error
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f'{path}: damaged ({error}); run: trialist store verify') from error


def leftovers(root: Path, parts: Sequence[PartInfo]) -> Iterator[tuple[Path, str]]:
    """Files that no reader looks at, and why: what killed writers and compactions left behind."""
    replaced = {name for part in parts for name in part.replaces}
    for part in parts:
        if part.path.name in replaced:
            yield part.path, 'already compacted into another part'
    live = [part for part in parts if part.path.name not in replaced]
    named = {'events': {p.events for p in live}, 'trajectories': {n for p in live for n in p.trajectories}}
    for folder, names in named.items():
        for path in sorted((root / folder).iterdir()) if (root / folder).is_dir() else ():
            if PART_NAME.match(path.name) and path.name not in names:
                yield path, 'no live episodes part names it'
    pending = root / PENDING
    for draft in sorted(pending.iterdir()) if pending.is_dir() else ():
        yield draft, 'a part that a writer began and never finished'
