"""Keeping stores in order: compaction of many small parts, and merging one store into another."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import pyarrow as pa

from robotrials.errors import RobotrialsError, StoreError
from robotrials.record.blinding import FOLDER as UNBLINDING
from robotrials.record.bucket import CachedPath
from robotrials.record.episode import Episode
from robotrials.record.folder import WRITE_LOCK, Folder, disk, held_lock, inside, naming_trouble, store_root
from robotrials.record.foreign import Bounds, parse
from robotrials.record.ledger import EDITS, Edit, Ledger, read_edits, read_ledger
from robotrials.record.log import (
    LOG,
    Commit,
    add_entry,
    add_pack,
    announced,
    check_logged,
    commit,
    is_logged,
    pack_log,
    read_log,
)
from robotrials.record.part import (
    METADATA_KEY,
    PART_NAME,
    Entry,
    EntryKind,
    LoggedFile,
    PartInfo,
    entry_id,
    file_hash,
    naming_damage,
    new_entry,
    open_part,
    parquet_options,
    part_metadata,
    read_companion,
    row_groups,
)
from robotrials.record.rows import EVENT_SCHEMA, SCHEMA_VERSION, migrate
from robotrials.record.store import TRAJECTORY_ROW_GROUP, Store, decode_index, write_episodes
from robotrials.record.trajectory import Trajectory
from robotrials.value import dataclass

# Giving a store of an older version its commit log: what it holds is taken as it is found, and said to be so.


def adopt_store(path: Path | str, *, by: str = '', why: str = '') -> Entry:
    """Give a store its log. From then on nothing can go missing unnoticed; what went before can't be known."""
    store = Store.open(path)
    if is_logged(store.path):
        raise StoreError(f'{store.path}: has a commit log already')
    entry = adoption_of(store)
    Folder(store.path).make(LOG)
    add_pack(store.path, [entry.line()])
    return add_entry(store.path, EntryKind.ADOPT, by=by, body={'why': why})[1]


def adoption_of(store: Store) -> Entry:
    """The entry that vouches for what lies in a store of an older version. The same store gives the same entry."""
    parts = store.parts()
    root, folder = store.path, Folder(store.path)
    names = [name for part in parts for name in _files_of(part)]
    others = [name for room in ('provenance', 'media', UNBLINDING) for name in folder.files(room)]
    names += [name for name in others if not name.rpartition('/')[2].startswith('.')]  # which is a draft
    names += [EDITS] if (root / EDITS).exists() else []
    files = [_found(root, name) for name in names]
    text = folder.read('trial.json').decode('utf-8')
    body = {
        'parts': [part.as_json() for part in parts],
        'edits': [edit.as_json() for edit in _explicit_edits(store, parts)],
        'trial': {'store_id': store.trial.store_id, 'text': text},
    }
    return new_entry(EntryKind.ADOPT, (), by='adoption', at=store.trial.created_at, files=files, body=body)


def _files_of(part: PartInfo) -> list[str]:
    events = [f'events/{part.events}'] if part.events else []
    return [f'episodes/{part.path.name}', *events, *(f'trajectories/{name}' for name in part.trajectories)]


def _found(root: Path, name: str) -> LoggedFile:
    path = inside(root, name)
    if not path.exists():
        raise StoreError(f'{path}: missing, though a part names it; put it back, or move its episodes part away')
    digest, match = file_hash(path), PART_NAME.match(path.name)
    if match is not None and not digest.startswith(match['hash']):
        raise StoreError(f'{path}: its bytes do not fit its name; put it back, or move it and its episodes part away')
    return LoggedFile(name=name, sha256=digest, n_bytes=path.stat().st_size)


def _explicit_edits(store: Store, parts: list[PartInfo]) -> list[Edit]:
    """The edits with the attempts they are about: in older versions one without an attempt was about all there were."""
    attempts: dict[str, set[int]] = {}
    edits = read_edits(store.path / EDITS)
    for part in parts if any(e.attempt is None for e in edits) else ():
        for episode in store.recorded(part):
            attempts.setdefault(episode.episode_id, set()).add(episode.attempt)
    explicit = []
    for edit in edits:
        known = [edit.attempt] if edit.attempt is not None else sorted(attempts.get(edit.episode_id, ()))
        explicit += [dataclasses.replace(edit, attempt=attempt) for attempt in known]
    return explicit


ROWS_A_PART = 100_000
PACKED_AFTER_S = 60.0  # who lists the log and finds an entry packed lists it again; others have a minute
PILE = 64  # small parts that are joined on the way
TRAJECTORY_BYTES_A_PART = 256 << 20
STALE_AFTER_S = 3600.0
VETTING = Bounds(cpu_s=12 * 3600, silence_s=12 * 3600.0)  # of whole stores, however large
ROOMS = ('episodes', 'events', 'trajectories')

Key = tuple[str, int]


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
    check_logged(store.path)
    with held_lock(store.path, '.lock', busy='another compaction is running; wait for it'):
        removed = _remove_leftovers(store.path, stale_after_s)
        before = store.parts()
        for group in _groups(before, store.path, rows_a_part):
            if len(group) > 1 or group[0].schema_version < SCHEMA_VERSION:
                _rewrite(store, group)
        pack_log(store.path, stale_after_s=stale_after_s)
        if stale_after_s <= 0:
            removed += _remove_leftovers(store.path, stale_after_s)
        return Compaction(len(before), len(store.parts()), removed)


def tidy_store(store: Store) -> None:
    """Join small commits that have piled up, and their log entries; what was added is there whatever comes of it.

    Parts with trajectories stay: a writer must not wait until gigabytes are written anew. A part is written anew once
    for each of the two tiers, so that appends cost the same however many there were.
    """
    with (
        contextlib.suppress(RobotrialsError, OSError),
        held_lock(store.path, '.lock', busy='a compaction is running'),
    ):
        for low, high in ((1, PILE), (PILE, PILE**2)):
            small = [p for p in store.parts() if low <= p.n_rows < high and not p.trajectories]
            if len(small) >= PILE and all(p.schema_version == SCHEMA_VERSION for p in small):
                _rewrite(store, small)
        pack_log(store.path, stale_after_s=PACKED_AFTER_S, fresh=False)
        _remove_leftovers(store.path, STALE_AFTER_S)


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
    ledger = store.ledger()
    fresh = _fresh_keys(store, group)
    if fresh is None:
        return  # two contents under one key: verify names them, and neither may vanish
    episodes = pa.concat_tables(
        [_only(episode_table(part), keys) for part, keys in zip(group, fresh, strict=True)]
    ).unify_dictionaries()
    events = [_only(event_table(store, part), keys) for part, keys in zip(group, fresh, strict=True) if part.events]
    joined = pa.concat_tables(events).unify_dictionaries() if events else EVENT_SCHEMA.empty_table()
    sources = [(name, keys) for part, keys in zip(group, fresh, strict=True) for name in part.trajectories]
    with commit(store.path) as under_way:
        trajectories = [_join_trajectories(store.path, under_way, ledger, sources)] if sources else []
        part = write_episodes(
            store.path, under_way, episodes, joined, trajectories=trajectories,
            replaces=[p.path.name for p in group], index=_joined_index(group, fresh) if sources else (),
        )  # fmt: skip
        under_way.finish(EntryKind.COMPACT, {'parts': [part.as_json()]})
    for old in group:
        retire_part(store.path, old)


def _fresh_keys(store: Store, group: Sequence[PartInfo]) -> list[set[Key] | None] | None:
    """For each part, the keys that no part before it has; None: all of them. None for all if contents differ."""
    seen: dict[Key, int] = {}
    fresh: list[set[Key] | None] = []
    for number, part in enumerate(group):
        table = read_companion(part.path, part.logged).select(['episode_id', 'attempt'])
        keys = list(zip(table['episode_id'].to_pylist(), table['attempt'].to_pylist(), strict=True))
        new = {key for key in keys if key not in seen}
        if len(new) < len(keys) and not _are_same(store, group, [*(seen[k] for k in keys if k in seen), number]):
            return None
        fresh.append(None if len(new) == len(keys) else new)
        seen.update(dict.fromkeys(new, number))
    return fresh


def _are_same(store: Store, group: Sequence[PartInfo], numbers: Sequence[int]) -> bool:
    """Whether episodes that several parts, or one part several times, have under one key are the same."""
    known: dict[Key, Episode] = {}
    for number in sorted(set(numbers)):
        for episode in store.recorded(group[number]):
            if known.setdefault(episode.key, episode) != episode:
                return False
    return True


def _only(table: pa.Table, keys: set[Key] | None) -> pa.Table:
    """The rows of some keys; each key's rows once where a table has one row a key."""
    if keys is None:
        return table
    pairs = zip(table['episode_id'].to_pylist(), table['attempt'].to_pylist(), strict=True)
    return table.filter(pa.array([pair in keys for pair in pairs], pa.bool_()))


def event_table(store: Store, part: PartInfo) -> pa.Table:
    """The events of a part, in the schema of today."""
    table = read_companion(store.path / 'events' / part.events, part.logged_events)
    return migrate(table, part.schema_version, schema=EVENT_SCHEMA, where=part.events)


def episode_table(part: PartInfo) -> pa.Table:
    """The rows of a part, in the schema of today."""
    table = read_companion(part.path, part.logged)
    return migrate(table, part.schema_version, where=str(part.path))


def _joined_index(group: Sequence[PartInfo], fresh: Sequence[set[Key] | None]) -> list[int]:
    """1 for each row that has a trajectory; nothing where an older part, or a part with rows left out, can't tell."""
    numbers: list[int] = []
    for part, keys in zip(group, fresh, strict=True):
        if keys is not None:
            return []
        if not part.trajectories:
            numbers += [0] * part.n_rows
            continue
        values = part_metadata(open_part(part.path, part.logged), part.path)
        if 'index' not in values or list(part.trajectories) != values['trajectories']:
            return []
        numbers += [min(number, 1) for number in decode_index(values['index'])]
    return numbers


def retire_part(root: Path, part: PartInfo) -> None:
    """Date the files of a replaced part: readers that began with them have `stale_after_s` to finish."""
    events = [root / 'events' / part.events] if part.events else []
    for path in (part.path, *events, *(root / 'trajectories' / name for name in part.trajectories)):
        with naming_trouble(path), contextlib.suppress(FileNotFoundError):
            disk().touch(path.local if isinstance(path, CachedPath) else path)


def _join_trajectories(
    root: Path, under_way: Commit, ledger: Ledger, sources: Sequence[tuple[str, set[Key] | None]]
) -> str:
    """Stream several trajectory parts into one, a row group at a time, over the union of their columns."""
    files = [(root / 'trajectories' / name, ledger.file(f'trajectories/{name}'), keys) for name, keys in sources]
    schemas = [open_part(path, logged).schema_arrow.remove_metadata() for path, logged, _ in files]
    schema = pa.unify_schemas(schemas, promote_options='permissive')
    schema = schema.with_metadata({METADATA_KEY: f'{{"schema_version": {SCHEMA_VERSION}}}'.encode()})

    def write(sink: IO[bytes]) -> None:
        import pyarrow.parquet as pq

        with pq.ParquetWriter(sink, schema, **parquet_options(schema)) as writer:
            for tables in _full_groups(files):
                writer.write_table(_fit(tables, schema), row_group_size=TRAJECTORY_ROW_GROUP)

    return under_way.add_part('trajectories', write)


def _full_groups(files: Sequence[tuple[Path, LoggedFile | None, set[Key] | None]]) -> Iterator[pa.Table]:
    """The rows of all files in tables of exactly one row group, but for the last."""
    pending: list[pa.Table] = []
    rows = 0
    for path, logged, keys in files:
        for table in row_groups(path, logged):
            pending.append(_only(table.replace_schema_metadata(None), keys))
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


def _remove_leftovers(root: Path, stale_after_s: float) -> int:
    """Remove replaced parts that nobody can still be reading, and what killed writers left if nobody is writing now."""
    folder, ledger = Folder(root), read_ledger(root)
    before = time.time() - stale_after_s
    if isinstance(root, CachedPath):
        # What no entry names stays there: nobody can tell whether its writer is dead or slow.
        retired = ledger.retired_before(dt.datetime.fromtimestamp(before, dt.UTC))
        there = retired & {f'{room}/{name}' for room in ROOMS for name in folder.names(room)}
        for name in sorted(there):
            folder.remove(name)
        return len(there)
    old = [name for name in sorted(ledger.retired) if _written_before(root / name, before)]
    for name in old:
        folder.remove(name)
    return len(old) + remove_unlogged(root)


def remove_unlogged(root: Path) -> int:
    """Remove what writers left that failed or were killed, if nobody is writing now; how many files it was."""
    if isinstance(root, CachedPath):
        return 0
    folder = Folder(root)
    with contextlib.suppress(StoreError), held_lock(root, WRITE_LOCK, busy='being written to'):
        known = read_ledger(root)
        left = unlogged_parts(root, known)
        left += [name for name in announced(root) if known.file(name) is None] + drafts(root)
        for name in left:
            folder.remove(name)
        return len(left)
    return 0


def unlogged_parts(root: Path, ledger: Ledger) -> list[str]:
    """Parts that no entry of the log names: a writer is about to, or was killed before it could."""
    folder = Folder(root)
    names = [f'{room}/{name}' for room in ROOMS for name in folder.names(room)]
    return [name for name in names if PART_NAME.match(name.rpartition('/')[2]) and ledger.file(name) is None]


def drafts(root: Path) -> list[str]:
    """Files that a writer has begun and not shown yet."""
    return [f'.pending/{name}' for name in Folder(root).names('.pending')]


def _written_before(path: Path, when: float) -> bool:
    try:
        return path.stat().st_mtime <= when
    except FileNotFoundError:
        return False


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


def merge_target(target: Path | str, sources: Sequence[Store]) -> Store:
    """The store to merge into, made if need be: of the trial that all sources are of, so that it can go on, blinded."""
    root = store_root(target)
    if (root / 'trial.json').exists():
        return Store.open(root)
    descriptions = {(s.trial.trial_id, s.trial.title, s.trial.plan_hash, s.trial.plan) for s in sources}
    trial_id, title, plan_hash, plan = descriptions.pop() if len(descriptions) == 1 else ('', '', '', '')
    return Store.create(root, trial_id=trial_id, title=title, plan_hash=plan_hash, plan=plan)


def merge_stores(target: Path | str, source: Path | str) -> Merge:
    """Bring everything in `source` into `target`: files byte for byte, and the whole log; again adds nothing.

    An episode that stands in both with different content is a clash: nothing is merged, and it is named. Edits of
    both are kept, and their order does not depend on which store was merged into which.
    """
    into, other = Store.open(target), Store.open(source)
    check_logged(into.path)
    if into.path.resolve() == other.path.resolve():
        raise StoreError(f'{into.path}: a store cannot be merged into itself')
    if dataclasses.replace(other, is_view=True).is_blinded and other.trial.trial_id != into.trial.trial_id:
        raise StoreError(
            f'{other.path}: its trial is blinded and open, and {into.path} is not a store of it, so that its arms '
            'would show there; nothing was merged. Merge into a store of the same trial, or close the trial first'
        )
    _vet(other)
    shared, theirs = _shared_episodes(into, other)
    ledger = other.ledger()
    lines = _log_lines(other, ledger)
    with commit(into.path) as under_way:
        files = _wanted_files(other, ledger)
        under_way.announce(
            n for n in files if not PART_NAME.match(n.rpartition('/')[2]) and not (into.path / n).exists()
        )
        _copy_files(into.path, other.path, files)
        edits_added = _add_history(into, other, lines)
    return Merge(len(theirs - shared), len(shared), edits_added)


def _vet(store: Store) -> None:
    """Have every byte of a store parsed in a bounded process first: what kills a parser there is not parsed here.

    Not of object storage, which a process without a network cannot reach.
    """
    if not isinstance(store.path, CachedPath):
        list(parse(f'{__name__}:read_whole', what=str(store.path), bounds=VETTING, path=str(store.path)))


def read_whole(*, path: str) -> Iterator[None]:
    """Read everything of a store; what is wrong with it is told by whoever reads it next."""
    from robotrials.record.verify import verify_store

    with contextlib.suppress(RobotrialsError):
        verify_store(path)
    yield from ()


def _log_lines(store: Store, ledger: Ledger) -> dict[str, bytes]:
    """Every entry of a store's log, byte for byte; of an older version's store, the one it would be adopted with."""
    if not ledger.is_logged:
        line = adoption_of(store).line()
        return {entry_id(line): line}
    log = read_log(store.path, fresh=True)
    if log.damage or log.dangling().keys() - ledger.mended:
        raise StoreError(f'{store.path}: its commit log is damaged; nothing was merged. Run: robotrials store repair')
    folder = Folder(store.path)
    content = [folder.read(f'{LOG}/{name}') for name in log.sources]
    return {entry_id(line): line for text in content for line in text.splitlines(keepends=True)}


def _wanted_files(store: Store, ledger: Ledger) -> dict[str, LoggedFile]:
    if ledger.is_logged:
        return {name: ledger.files[name] for name in ledger.wanted()}
    return {file.name: file for file in adoption_of(store).files}


def _copy_files(into: Path, other: Path, files: Mapping[str, LoggedFile]) -> None:
    """Copy what is not there yet, checking every byte against the log."""
    folder, changed = Folder(into), set()
    for name, logged in sorted(files.items()):
        source, target = inside(other, name), inside(into, name)
        if target.exists():
            with target.open('rb') as stream:
                if hashlib.file_digest(stream, 'sha256').hexdigest() != logged.sha256:
                    raise StoreError(f'{target} and {source} differ; no episode was merged. Rename one of the two')
            continue
        with naming_damage(source), source.open('rb') as stream, folder.draft(_copier(stream)) as draft:
            if draft.sha256 != logged.sha256:
                raise StoreError(f'{source}: damaged; nothing was merged. Run: robotrials store repair {other}')
            folder.publish(draft, name)
        changed.add(name.rpartition('/')[0])
    folder.sync(*sorted(changed))


def _copier(source: IO[bytes]) -> Callable[[IO[bytes]], object]:
    import shutil

    return lambda sink: shutil.copyfileobj(source, sink, 1 << 20)


def _add_history(into: Store, other: Store, lines: Mapping[str, bytes]) -> int:
    """Add the entries that are new, all at once, and one that joins them to ours; how many edits came along."""
    log = read_log(into.path)
    before = len(into.ledger().edits)
    fresh = [line for name, line in lines.items() if name not in log.entries]
    add_pack(into.path, fresh)
    joined = read_log(into.path)
    if fresh or len(joined.heads()) > 1:
        add_entry(into.path, EntryKind.MERGE, body={'sources': [other.trial.store_id]})
    return len(into.ledger().edits) - before


def _shared_episodes(into: Store, other: Store) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """The keys that stand in both stores with equal content, and all of the other's; unequal content raises."""
    sources = {e.key: part for part in other.parts() for e in other.recorded(part)}
    common = {e.key: e for part in into.parts() for e in into.recorded(part) if e.key in sources}
    for part in {sources[key] for key in common}:
        for episode in other.recorded(part):
            if episode.key in common and common[episode.key] != episode:
                raise StoreError(
                    f'episode {episode.episode_id} attempt {episode.attempt} stands in {into.path} and, with other '
                    f'content, in {part.path}; nothing was merged. Leave one of the two out'
                )
    return set(common), set(sources)
