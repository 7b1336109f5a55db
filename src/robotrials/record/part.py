"""Part files, immutable Parquet whose name carries the hash of their bytes, and the log's entries that name them.

A part is written beside its folder, synced, and linked into place; it counts once an entry of the commit log names it.
Whatever is read of it is first checked against the digests of that entry. An entry says what was added, by whom,
and after which entries; its id is the hash of its bytes.
"""

from __future__ import annotations

import base64
import datetime as dt
import enum
import getpass
import hashlib
import json
import mmap
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robotrials.errors import InputError, StoreError
from robotrials.old_name import LOG_FORMAT, PARQUET_KEY
from robotrials.record.bucket import CachedPath, fetch_spans, sparse_copy
from robotrials.record.folder import Draft, Folder, check_folders, inside, is_inside
from robotrials.value import dataclass, pattern

FORMAT = LOG_FORMAT
IDENTITY = pattern(r'[0-9a-f]{64}')
# What a log may name. A store may come from anywhere, and who merges, repairs or compacts it acts on these names.
PART = r'[0-9a-f]{16}-[0-9a-f]{32}\.parquet'
NAMES = pattern(rf'(episodes|events|trajectories)/{PART}|(provenance|unblinding)/[^/]+\.json|media/.+|edits\.jsonl')
Chunk = tuple[int, int, str]  # offset, length, first 32 hex digits of its SHA-256


class EntryKind(enum.StrEnum):
    CREATE = 'create'  # the store was made
    ADOPT = 'adopt'  # a store of an older version got its log: what it held was taken as it was found
    APPEND = 'append'  # episodes, with their events, trajectories, fault texts and media
    PROVENANCE = 'provenance'
    MEDIA = 'media'
    EDIT = 'edit'
    ANNOTATION = 'annotation'  # what a detector, a reviewer or a sensor says happened
    LOOK = 'look'  # somebody looked at results
    RUN = 'run'  # a run began or ended
    INTERRUPTED = 'interrupted'  # episodes that were begun and never finished
    CLOSE = 'close'  # the codes were opened
    COMPACT = 'compact'
    ATTACH = 'attach'  # telemetry and films joined to episodes that were recorded without
    MERGE = 'merge'
    REPAIR = 'repair'  # damage was set aside, and what it cost


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedFile:
    """A file that the log vouches for."""

    name: str  # in the store, with forward slashes
    sha256: str
    n_bytes: int
    chunks: tuple[Chunk, ...] = ()  # of a large part: what a reader of some columns can check

    def as_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {'name': self.name, 'sha256': self.sha256, 'bytes': self.n_bytes}
        if self.chunks:
            row['chunks'] = [list(chunk) for chunk in self.chunks]
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry. `body` holds what its kind says, as plain JSON values."""

    kind: EntryKind
    parents: tuple[str, ...]
    at: str
    by: str
    files: tuple[LoggedFile, ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict)
    signer: str = ''  # the public key of whoever signed it; '' if nobody did
    signature: str = ''

    def line(self) -> bytes:
        """The entry's bytes: canonical JSON and a newline."""
        values = {
            'format': FORMAT, 'kind': self.kind.value, 'parents': list(self.parents), 'at': self.at, 'by': self.by,
            'files': [file.as_json() for file in self.files], 'body': dict(self.body),
        }  # fmt: skip
        values |= {name: mark for name in ('signer', 'signature') if (mark := getattr(self, name))}
        try:
            text = json.dumps(values, sort_keys=True, separators=(',', ':'), allow_nan=False)
        except (ValueError, TypeError) as error:
            raise InputError(f'{self.kind} cannot be written to the commit log: {error}') from error
        return text.encode() + b'\n'


def entry_id(line: bytes) -> str:
    """64 hex digits over an entry's bytes."""
    return hashlib.sha256(line).hexdigest()


def parse_entry(line: bytes, *, where: str) -> Entry:
    """The entry of a line; what is not one is named."""
    try:
        values = json.loads(line)
        if values['format'] != FORMAT:
            raise StoreError(
                f'{where}: format {values["format"]!r}, this robotrials reads {FORMAT!r}; upgrade robotrials'
            )
        files = tuple(
            LoggedFile(
                name=check_name(f['name']),
                sha256=_identity(f['sha256']),
                n_bytes=_size(f['bytes']),
                chunks=tuple((int(a), int(n), str(d)) for a, n, d in f.get('chunks', ())),
            )
            for f in values['files']
        )
        body = values['body']
        if not isinstance(body, dict):
            raise ValueError('its body is not a table')
        check_names_in(body)
        dt.datetime.fromisoformat(values['at'])
        return Entry(
            kind=EntryKind(values['kind']), parents=tuple(map(_identity, values['parents'])), at=values['at'],
            by=str(values['by']), files=files, body=body, signer=str(values.get('signer', '')),
            signature=str(values.get('signature', '')),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f'{where}: not an entry of a commit log ({error})') from error


def check_name(name: object) -> str:
    """The name of a file that a log may vouch for; ValueError for any other."""
    if not isinstance(name, str) or not is_inside(name) or NAMES.fullmatch(name) is None:
        raise ValueError(f'it names {name!r}, which no store holds; it is left alone')
    return name


def check_names_in(body: Mapping[str, Any]) -> None:
    """The names that an entry's body gives: parts, their companions, what they replace, and what was lost."""
    for part in body.get('parts', ()):
        check_name(f'episodes/{part["name"]}')
        for name in part.get('replaces', ()):
            check_name(f'episodes/{name}')
        if part['events']:
            check_name(f'events/{part["events"]}')
        for name in part['trajectories']:
            check_name(f'trajectories/{name}')
    for name in body.get('lost', {}):
        check_name(name)


def _identity(text: object) -> str:
    if not isinstance(text, str) or IDENTITY.fullmatch(text) is None:
        raise ValueError(f'{text!r} is not a SHA-256')
    return text


def _size(n_bytes: object) -> int:
    if type(n_bytes) is not int or n_bytes < 0:
        raise ValueError(f'a file of {n_bytes!r} bytes')
    return n_bytes


def new_entry(
    kind: EntryKind, parents: Sequence[str], *, by: str = '', files: Sequence[LoggedFile] = (),
    body: Mapping[str, Any] | None = None, at: str = '',
) -> Entry:  # fmt: skip
    """An entry as of now."""
    return Entry(
        kind=kind, parents=tuple(sorted(parents)), at=at or precise_now(), by=by or login_name(), files=tuple(files),
        body=body or {},
    )  # fmt: skip


def precise_now() -> str:
    """The time of an entry: UTC, to the microsecond."""
    return dt.datetime.now(dt.UTC).isoformat(timespec='microseconds')


def login_name() -> str:
    """Who runs this process, as far as the system knows."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return 'unknown'


# Where an episode may lie: 24 bits of a hash of every row's id, which the log keeps for each part.
# Whoever looks for an episode opens the parts, and of these the row groups, in which its hash occurs. Parts of older
# versions have no such index, and are read whole.

IntArray = NDArray[np.int64]
HASH_BYTES = 3  # of a million episodes one other has the same; four characters of the log for each
HASH_LETTERS = 4
LETTERS = b'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
HASHED_AT_ONCE = 4096
FEW_CODES = 8  # up to here each is looked for in the text


def fnv1a(letters: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The FNV-1a hash of each row of letters; some thousand rows at a time, which stay in the processor's cache."""
    hashes = np.full(len(letters), 0xCBF29CE484222325, np.uint64)
    for first in range(0, len(letters), HASHED_AT_ONCE):
        own = hashes[first : first + HASHED_AT_ONCE]
        for column in letters[first : first + HASHED_AT_ONCE].T.astype(np.uint64, order='C'):
            own ^= column
            own *= np.uint64(0x100000001B3)
    return hashes


def id_hashes(
    ids: pa.ChunkedArray, *, hash_rows: Callable[[NDArray[np.uint8]], NDArray[np.uint64]] = fnv1a
) -> NDArray[np.uint64]:
    """A 64-bit hash of each id: FNV-1a over its UTF-8 bytes, all ids of one length at once."""
    hashes: list[NDArray[np.uint64]] = []
    for chunk in ids.chunks:
        _, offsets, text = chunk.buffers()
        ends = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        letters = np.frombuffer(text or b'', np.uint8)[ends[0] : ends[-1]]
        lengths = np.diff(ends)
        if len(chunk) and (lengths == lengths[0]).all():
            hashes.append(hash_rows(letters.reshape(len(chunk), lengths[0])))
            continue
        own = np.zeros(len(chunk), np.uint64)
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length)
            own[rows] = hash_rows(letters[(ends[rows] - ends[0])[:, None] + np.arange(length)])
        hashes.append(own)
    return hashes[0] if len(hashes) == 1 else np.concatenate([np.zeros(0, np.uint64), *hashes])


def repeated_hashes(hashes: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """Those that occur more than once."""
    ordered = np.concatenate([np.zeros(0, np.uint64), *hashes])
    ordered.sort()
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    is_first = np.concatenate([np.ones(min(1, len(again)), bool), again[1:] != again[:-1]])
    return np.asarray(again[is_first])  # `np.unique` would import `numpy.ma`


def encode_hashes(hashes: NDArray[np.uint64]) -> str:
    """The index of a part, as text: the low 24 bits of each row's hash, in the order of the rows."""
    letters = hashes.astype('<u8').view(np.uint8).reshape(-1, 8)
    low = np.stack([letters[:, k] for k in range(HASH_BYTES)], axis=1)  # a slice would be copied row by row
    return base64.b64encode(low.tobytes()).decode()


def id_codes(ids: Collection[str]) -> frozenset[str]:
    """The letters that stand for each id in an index."""
    text = encode_hashes(id_hashes(pa.chunked_array([pa.array(sorted(ids), pa.string())])))
    return frozenset(text[n : n + HASH_LETTERS] for n in range(0, len(text), HASH_LETTERS))


def candidate_rows(index: str, n_rows: int, codes: Collection[str]) -> IntArray | None:
    """The rows that may have one of the ids with these codes, and no others can; None where the index does not tell."""
    if len(index) != HASH_LETTERS * n_rows or not index.isascii():
        return None
    text = index.encode()
    if text.translate(None, LETTERS):
        return None
    if len(codes) <= FEW_CODES:
        return np.array(sorted(row for code in codes for row in _places(text, code.encode())), np.int64)
    return np.flatnonzero(np.isin(np.frombuffer(text, f'S{HASH_LETTERS}'), [code.encode() for code in codes]))


def _places(text: bytes, code: bytes) -> list[int]:
    """The rows whose letters are these; a row begins at every fourth letter."""
    rows = []
    at = text.find(code)
    while at >= 0:
        if at % HASH_LETTERS == 0:
            rows.append(at // HASH_LETTERS)
        at = text.find(code, at + 1)
    return rows


PART_NAME = pattern(rf'^(?=(?P<time>[0-9a-f]{{16}})-(?P<hash>[0-9a-f]{{32}})){PART}\Z')
METADATA_KEY = PARQUET_KEY
SMALL_BYTES = 4 << 20  # up to here a part is read and hashed whole
CHUNK_HEX = 32
MANY_BYTES = 1 << 20
PRUNED_BY = ('trial_id', 'policy', 'task', 'benchmark', 'stratum', 'condition')
FEW_VALUES = 8
FEW_ROWS = 16  # threads cost more than they bring
ROW_GROUP = 32768
ADVICE = 'run: robotrials store verify, and then: robotrials store repair'


@dataclass(frozen=True, slots=True)
class PartInfo:
    """What is known of an episodes part: its schema, its companions, and the parts it stands in for."""

    path: Path
    n_rows: int
    schema_version: int
    n_events: int
    events: str  # file name in events/, or ''
    trajectories: tuple[str, ...]  # file names in trajectories/
    replaces: tuple[str, ...] = ()  # episodes parts that a compaction put into this one
    # What the columns that identify an episode hold, where it is few.
    values: Mapping[str, Collection[str]] = field(default_factory=dict, compare=False, repr=False)
    ids: str = field(default='', compare=False, repr=False)  # which row may have which id, see `id_hash`; '': unknown
    files: Mapping[str, LoggedFile] = field(default_factory=dict, compare=False, repr=False)  # all that the log knows

    @property
    def logged(self) -> LoggedFile | None:
        """What the log knows of the part itself; None in a store without a log."""
        return self.files.get(f'episodes/{self.path.name}')

    @property
    def logged_events(self) -> LoggedFile | None:
        return self.files.get(f'events/{self.events}')

    def candidates(self, codes: Collection[str]) -> IntArray | None:
        """The rows that may have one of the ids with these codes (`id_codes`); None where only reading them tells."""
        return candidate_rows(self.ids, self.n_rows, codes)

    def as_json(self) -> dict[str, Any]:
        return {
            'name': self.path.name, 'rows': self.n_rows, 'schema_version': self.schema_version,
            'n_events': self.n_events, 'events': self.events, 'trajectories': list(self.trajectories),
            'replaces': list(self.replaces),
            **({'values': {name: sorted(held) for name, held in self.values.items()}} if self.values else {}),
            **({'ids': self.ids} if self.ids else {}),
        }  # fmt: skip


def part_from_json(root: Path, values: Mapping[str, Any], files: Mapping[str, LoggedFile]) -> PartInfo:
    """A part as an entry of the log describes it."""
    return PartInfo(
        path=root / 'episodes' / values['name'],
        n_rows=int(values['rows']),
        schema_version=int(values['schema_version']),
        n_events=int(values['n_events']),
        events=str(values['events']),
        trajectories=tuple(values['trajectories']),
        replaces=tuple(values['replaces']),
        values={str(name): frozenset(map(str, held)) for name, held in values.get('values', {}).items()},
        ids=str(values.get('ids', '')),
        files=files,
    )


def part_values(episodes: pa.Table) -> dict[str, list[str]]:
    """What the columns that identify an episode hold, where it is few: a part that can't match need not be opened."""
    held = {name: episodes[name].unique().to_pylist() for name in PRUNED_BY}
    return {name: sorted(values) for name, values in held.items() if len(values) <= FEW_VALUES and None not in values}


def file_hash(path: Path) -> str:
    """64 hex digits over a file's bytes; a link, or what is no file, is none."""
    with inside(path.parent, path.name).open('rb') as stream:
        return hashlib.file_digest(stream, 'sha256').hexdigest()


def part_name(draft: Draft, time_ns: int) -> str:
    """The name of a part: when it was written, so that names sort by it, and the hash of its bytes."""
    return f'{time_ns:016x}-{draft.sha256[:32]}.parquet'


def logged_part(name: str, draft: Draft) -> LoggedFile:
    """What the log keeps of a part: its digest and, of a large one, the digests of its column chunks and footer."""
    chunks = chunk_digests(draft.path) if draft.n_bytes > SMALL_BYTES else ()
    return LoggedFile(name=name, sha256=draft.sha256, n_bytes=draft.n_bytes, chunks=chunks)


def chunk_digests(path: Path) -> tuple[Chunk, ...]:
    """Digests of every column chunk of a Parquet file, and of its footer (the last)."""
    with _mapped(path) as view:
        ranges = _chunk_ranges(pq.read_metadata(path))
        spans = sorted({span for group in ranges for span in group.values()})
        footer_start = len(view) - 8 - int.from_bytes(view[-8:-4], 'little')
        spans.append((footer_start, len(view) - footer_start))
        return tuple((a, n, digest) for (a, n), digest in zip(spans, _digests(view, spans), strict=True))


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    with path.open('rb') as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            yield view
        finally:
            view.release()


def _chunk_ranges(footer: pq.FileMetaData) -> list[dict[str, tuple[int, int]]]:
    """For each row group, where each top-level column's bytes lie."""
    groups = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        spans = {}
        for index in range(group.num_columns):
            column = group.column(index)
            dictionary = column.dictionary_page_offset
            start = column.data_page_offset if dictionary is None else min(dictionary, column.data_page_offset)
            spans[column.path_in_schema.removesuffix('.list.element')] = (start, column.total_compressed_size)
        groups.append(spans)
    return groups


def write_table(
    table: pa.Table, sink: IO[bytes], *, metadata: Mapping[str, Any], row_group_size: int = ROW_GROUP
) -> None:
    """Write one table with page checksums, and our metadata in its footer."""
    described = table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode()})
    pq.write_table(described, sink, **parquet_options(described.schema), row_group_size=row_group_size)


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """How our Parquet is encoded: byte-stream-split floats, dictionaries for names only.

    LZ4 where it is about as small as zstd, and faster: on split floats of trajectories (2 % larger) and on codes of
    names. Statistics of columns would be a third of the time to write episodes, and no reader of ours asks for them.
    """
    floats, dictionaries, compression, lengths = [], [], {}, {}
    has_lists = any(pa.types.is_list(column.type) for column in schema)
    for column in schema:
        path = f'{column.name}.list.element' if pa.types.is_list(column.type) else column.name
        kind = column.type.value_type if pa.types.is_list(column.type) else column.type
        if pa.types.is_floating(kind):
            floats.append(path)
        elif pa.types.is_dictionary(kind):
            dictionaries.append(path)
        is_dense = pa.types.is_string(kind) or pa.types.is_floating(kind) or pa.types.is_int64(kind)
        compression[path] = 'zstd' if is_dense and not has_lists else 'lz4'
        if pa.types.is_string(kind):
            lengths[path] = 'DELTA_LENGTH_BYTE_ARRAY'  # lengths before the letters, which zstd packs faster alone
    return {
        'compression': compression,
        'column_encoding': lengths or None,
        'use_dictionary': dictionaries or False,
        'use_byte_stream_split': floats or False,
        'write_page_checksum': True,
        'write_statistics': False,
    }


@contextmanager
def naming_damage(path: Path) -> Iterator[None]:
    """Whatever damaged bytes make the Parquet reader raise becomes a StoreError that names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(f'{path}: missing, though the store names it; {ADVICE}') from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, KeyError, ValueError, OverflowError) as error:
        raise StoreError(f'{path}: damaged or gone ({error}); {ADVICE}') from error


def check_digest(path: Path, digest: str, logged: LoggedFile | None) -> None:
    """Raise StoreError if a file's digest is not what the log, or at least its own name, says."""
    match = PART_NAME.match(path.name)
    wanted = logged.sha256 if logged is not None else match['hash'] if match else digest
    if not digest.startswith(wanted):
        raise StoreError(f'{path}: damaged (its bytes are not what was written); {ADVICE}')


def checked_source(path: Path, logged: LoggedFile | None) -> pa.NativeFile:
    """Where the bytes of a part can be read from, after all of them were checked."""
    if isinstance(path, CachedPath) and path.local.exists():
        try:
            return _checked_source(path.local, logged)
        except StoreError:
            path.local.unlink(missing_ok=True)  # a damaged copy: fetched again
    return _checked_source(path, logged)


def _checked_source(path: Path, logged: LoggedFile | None) -> pa.NativeFile:
    with naming_damage(path):
        if _checked_size(path, logged) <= SMALL_BYTES:
            content = Folder(path.parent).read(path.name)
            check_digest(path, hashlib.sha256(content).hexdigest(), logged)
            return pa.BufferReader(content)
        check_digest(path, file_hash(path), logged)
        return pa.memory_map(str(path))


def open_part(path: Path, logged: LoggedFile | None) -> pq.ParquetFile:
    """Open a part after checking it: a small one whole, a large one for now only its footer (see `row_groups`)."""
    with naming_damage(path):
        if logged is None or not logged.chunks or _checked_size(path, logged) <= SMALL_BYTES:
            return pq.ParquetFile(checked_source(path, logged))
        _check_spans(path, [logged.chunks[-1][:2]], logged)
        return pq.ParquetFile(_ranged(path, logged), memory_map=True)


def check_part(path: Path, logged: LoggedFile) -> None:
    """Check every byte of a part that readers use, without parsing it; StoreError where it is not as it was written."""
    with naming_damage(path):
        if not logged.chunks or _checked_size(path, logged) <= SMALL_BYTES:
            checked_source(path, logged).close()
        else:
            _check_spans(path, [chunk[:2] for chunk in logged.chunks], logged)


def _ranged(path: Path, logged: LoggedFile | None) -> Path:
    """Where a large part of object storage is read range by range; other parts are read where they are."""
    if isinstance(path, CachedPath) and logged is not None and logged.chunks and not path.local.exists():
        return sparse_copy(path, logged.n_bytes)
    return path


def _checked_size(path: Path, logged: LoggedFile | None) -> int:
    n_bytes = inside(path.parent, path.name).stat().st_size
    if logged is not None and n_bytes != logged.n_bytes:
        raise StoreError(f'{path}: damaged ({n_bytes} bytes of {logged.n_bytes}); {ADVICE}')
    return n_bytes


def _check_spans(path: Path, spans: Sequence[tuple[int, int]], logged: LoggedFile) -> None:
    place = _ranged(path, logged)
    wrong = _wrong_spans(place, spans, logged)
    if wrong and place is not path and isinstance(path, CachedPath):
        fetch_spans(path, place, wrong)
        wrong = _wrong_spans(place, wrong, logged)
    if wrong:
        offset, length = wrong[0]
        raise StoreError(f'{path}: damaged (bytes {offset} to {offset + length}); {ADVICE}')


def _wrong_spans(path: Path, spans: Sequence[tuple[int, int]], logged: LoggedFile) -> list[tuple[int, int]]:
    known = {(offset, length): digest for offset, length, digest in logged.chunks}
    with _mapped(path) as view:
        return [span for span, digest in zip(spans, _digests(view, spans), strict=True) if known.get(span) != digest]


def _digests(view: memoryview, spans: Sequence[tuple[int, int]]) -> list[str]:
    """The digests of some ranges; those of many bytes side by side, because hashing leaves other threads alone."""

    def digests(spans: Sequence[tuple[int, int]]) -> list[str]:
        return [hashlib.sha256(view[start : start + length]).hexdigest()[:CHUNK_HEX] for start, length in spans]

    if sum(length for _, length in spans) < MANY_BYTES:
        return digests(spans)
    odd: list[str] = []
    other = threading.Thread(
        target=lambda: odd.extend(digests(spans[1::2]))
    )  # an executor would import 3 ms of modules
    other.start()
    even = digests(spans[::2])
    other.join()
    return [(even, odd)[n % 2][n // 2] for n in range(len(spans))]


def row_groups(
    path: Path, logged: LoggedFile | None, *, choose: Callable[[Sequence[str]], list[str]] | None = None,
    wanted: Sequence[int] | None = None, rows: IntArray | None = None,
) -> Iterator[pa.Table]:  # fmt: skip
    """The row groups of a part, checked, one at a time; `choose` picks columns, `wanted` groups by number.

    `rows`, in order, picks rows: only the groups that they are in are read.
    """
    file = open_part(path, logged)
    with naming_damage(path):
        columns = choose(file.schema_arrow.names) if choose is not None else None
        is_chunked = logged is not None and bool(logged.chunks)
        ranges = _chunk_ranges(file.metadata) if is_chunked else []
        starts = np.cumsum([0, *(file.metadata.row_group(n).num_rows for n in range(file.num_row_groups))])
        if rows is not None:
            wanted = np.unique(np.searchsorted(starts, rows, side='right') - 1).tolist()
        groups = range(file.num_row_groups) if wanted is None else wanted
        for group in groups:
            if is_chunked and logged is not None:
                names = ranges[group].keys() if columns is None else columns
                _check_spans(path, [ranges[group][name] for name in names], logged)
            is_large = rows is None and file.metadata.num_rows > FEW_ROWS
            table = file.read_row_group(group, columns=columns, use_threads=is_large)
            first, last = starts[group : group + 2]
            yield table if rows is None else table.take(rows[(first <= rows) & (rows < last)] - first)
        if not groups:
            yield file.schema_arrow.empty_table()


def read_companion(path: Path, logged: LoggedFile | None) -> pa.Table:
    """One events part, whole; a missing or damaged file is named."""
    return pa.concat_tables(list(row_groups(path, logged)))


def part_metadata(file: pq.ParquetFile, path: Path) -> dict[str, Any]:
    """What we wrote into a part's footer; a file that is not ours is named."""
    raw = (file.metadata.metadata or {}).get(METADATA_KEY)
    if raw is None:
        raise StoreError(f'{path}: a Parquet file, but not written by robotrials; move it out of the store')
    try:
        values = json.loads(raw)
        int(values['schema_version'])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f'{path}: its footer is damaged ({error}); {ADVICE}') from error
    return dict(values)


def read_part_info(path: Path) -> PartInfo:
    """The footer of an episodes part, for stores without a log; a file that is not ours, or is damaged, is named."""
    try:
        file = pq.ParquetFile(inside(path.parent, path.name))
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise StoreError(f'{path}: not a readable Parquet file ({error}); {ADVICE}') from error
    with file:
        values = part_metadata(file, path)
        try:
            check_names_in({'parts': [{'name': path.name, 'events': '', 'trajectories': (), **values}]})
            return PartInfo(
                path=path,
                n_rows=file.metadata.num_rows,
                schema_version=int(values['schema_version']),
                n_events=int(values.get('n_events', 0)),
                events=str(values.get('events', '')),
                trajectories=tuple(values.get('trajectories', ())),
                replaces=tuple(values.get('replaces', ())),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(f'{path}: its footer is damaged ({error}); {ADVICE}') from error


def listed_parts(root: Path, *, tries: int = 5) -> list[PartInfo]:
    """Every episodes part in the folder; looked for again when one vanishes while a compaction tidies up."""
    if not (root / 'episodes').is_dir():
        raise StoreError(f'{root / "episodes"}: the folder is gone; {ADVICE}')
    check_folders(root)
    for left in reversed(range(tries)):
        try:
            return [read_part_info(p) for p in sorted((root / 'episodes').iterdir()) if PART_NAME.match(p.name)]
        except FileNotFoundError as error:
            if not left:
                raise StoreError(f'{root}: its parts change faster than they can be read ({error})') from error
    return []
