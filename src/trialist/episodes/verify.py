"""Find every damage in a store, and name the file. Reads everything, changes nothing."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trialist.episodes.column import trajectories_from_arrow
from trialist.episodes.edit import Edits, parse_edit
from trialist.episodes.episode import Episode, Outcome
from trialist.episodes.part import PART_NAME, PENDING, PartInfo, file_hash, leftovers, read_part_info, row_groups
from trialist.episodes.provenance import provenance_from_json
from trialist.episodes.schema import EVENT_MIGRATIONS, SCHEMA_VERSION, events_by_episode, migrate
from trialist.episodes.select import read_part_episodes
from trialist.episodes.store import FOLDERS, Store
from trialist.episodes.trajectory import check_trajectory
from trialist.episodes.unblinding import FOLDER as UNBLINDING
from trialist.errors import RecordError, StoreError, TrialistError

Key = tuple[str, int]


class FindingKind(enum.StrEnum):
    DAMAGED = 'damaged'  # bytes that are not what was written
    MISSING = 'missing'  # a file that another names
    FOREIGN = 'foreign'  # a file that trialist did not write
    SCHEMA = 'schema'  # another schema version
    RECORD = 'record'  # a row that breaks the record's rules
    CLASH = 'clash'  # one id and attempt, two contents; or two valid attempts
    EDIT = 'edit'  # an edit that can't be read or applied
    LEFTOVER = 'leftover'  # harmless: what a killed writer or compaction left behind


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be, and the file it is in."""

    kind: FindingKind
    path: Path
    detail: str

    @property
    def is_damage(self) -> bool:
        return self.kind is not FindingKind.LEFTOVER


@dataclass(frozen=True, slots=True)
class Verification:
    """What a check of a whole store found."""

    findings: tuple[Finding, ...]
    n_episodes: int
    n_events: int
    n_trajectories: int

    @property
    def is_clean(self) -> bool:
        """Nothing damaged; leftovers of killed writers are no damage."""
        return not any(f.is_damage for f in self.findings)


def verify_store(path: Path | str) -> Verification:
    """Check every file of a store: names against bytes, companions, rows, ids, edits, provenance."""
    root = Path(path)
    findings: list[Finding] = []
    store = Store.open(root)
    findings += _missing_folders(root)
    parts: list[PartInfo] = []
    for found in _part_files(root, 'episodes', findings):
        try:
            parts.append(read_part_info(found))
        except StoreError as error:
            kind = FindingKind.FOREIGN if 'not written by trialist' in str(error) else FindingKind.DAMAGED
            findings.append(Finding(kind, found, str(error).partition(': ')[2]))
    replaced = {name for part in parts for name in part.replaces}
    counts = _check_parts(store, [part for part in parts if part.path.name not in replaced], findings)
    findings += _check_edits(store)
    findings += _check_unblindings(store)
    findings += [Finding(FindingKind.LEFTOVER, path, why) for path, why in leftovers(root, parts)]
    return Verification(tuple(findings), *counts)


def _missing_folders(root: Path) -> list[Finding]:
    gone = [name for name in FOLDERS if not (root / name).is_dir()]
    known = {*FOLDERS, 'trial.json', 'edits.jsonl', PENDING, '.lock', UNBLINDING}
    passing = ('.trial.json', '.run.')  # drafts and locks
    foreign = [p for p in sorted(root.iterdir()) if p.name not in known and not p.name.startswith(passing)]
    return [Finding(FindingKind.MISSING, root / name, 'a folder of the store is gone') for name in gone] + [
        Finding(FindingKind.FOREIGN, p, 'not part of a store') for p in foreign
    ]


def _part_files(root: Path, folder: str, findings: list[Finding]) -> Iterator[Path]:
    """The part files of one folder whose bytes fit their name; everything else becomes a finding."""
    if not (root / folder).is_dir():
        return
    for path in sorted((root / folder).iterdir()):
        match = PART_NAME.match(path.name)
        if match is None:
            findings.append(Finding(FindingKind.FOREIGN, path, f'not a part file; nothing else belongs in {folder}/'))
        elif file_hash(path) != match['hash']:
            findings.append(Finding(FindingKind.DAMAGED, path, f'its bytes do not fit its name{_what_is_lost(path)}'))
        else:
            yield path


def _what_is_lost(path: Path) -> str:
    try:
        rows = pq.read_metadata(path).num_rows
    except (pa.ArrowException, OSError):
        return f' and its footer is unreadable ({path.stat().st_size} bytes)'
    return f'; its footer names {rows} rows'


def _check_parts(store: Store, parts: list[PartInfo], findings: list[Finding]) -> tuple[int, int, int]:
    good = {folder: set(_part_files(store.path, folder, findings)) for folder in ('events', 'trajectories')}
    seen: dict[Key, tuple[Path, str]] = {}
    valid_attempts: dict[str, list[tuple[Key, Path]]] = {}
    n_episodes = n_events = n_trajectories = 0
    edits = _readable_edits(store)
    origins: dict[str, str | None] = {}
    for part in parts:
        if part.schema_version > SCHEMA_VERSION:
            detail = f'schema version {part.schema_version}, this trialist reads up to {SCHEMA_VERSION}'
            findings.append(Finding(FindingKind.SCHEMA, part.path, detail))
            continue
        events = _check_events(store, part, good['events'], findings)
        n_events += part.n_events if events is not None else 0
        try:
            for episode in read_part_episodes(part, events or {}, edits=Edits({}), where=None):
                n_episodes += 1
                _check_key(part, episode.key, repr(episode), seen, findings)
                if _is_valid(store, edits, episode, findings) and not edits.is_dropped(*episode.key):
                    valid_attempts.setdefault(episode.episode_id, []).append((episode.key, part.path))
                _check_origin(store, part, episode.provenance_id, origins, findings)
        except StoreError as error:
            kind = FindingKind.SCHEMA if 'schema version' in str(error) else FindingKind.RECORD
            findings.append(Finding(kind, part.path, str(error).removeprefix(str(part.path)).lstrip(': ')))
        n_trajectories += _check_trajectories(store, part, good['trajectories'], findings)
    findings += _double_counts(valid_attempts)
    return n_episodes, n_events, n_trajectories


def _is_valid(store: Store, edits: Edits, episode: Episode, findings: list[Finding]) -> bool:
    try:
        return edits.apply(episode).is_valid
    except StoreError as error:
        findings.append(Finding(FindingKind.EDIT, store.path / 'edits.jsonl', str(error)))
        return episode.is_valid


def _check_events(store: Store, part: PartInfo, good: set[Path], findings: list[Finding]) -> Any:
    if not part.events:
        return {}
    path = store.path / 'events' / part.events
    if not path.exists():
        findings.append(Finding(FindingKind.MISSING, path, f'{part.path.name} names it for its {part.n_events} events'))
        return None
    if path not in good:
        return None  # already found damaged
    try:
        table = migrate(pq.read_table(path), part.schema_version, migrations=EVENT_MIGRATIONS, where=str(path))
        return events_by_episode(table)
    except (RecordError, KeyError, pa.ArrowException) as error:
        findings.append(Finding(FindingKind.RECORD, path, str(error)))
    except StoreError as error:
        findings.append(Finding(FindingKind.SCHEMA, path, str(error).removeprefix(f'{path}: ')))
    return None


def _check_key(
    part: PartInfo, key: Key, content: str, seen: dict[Key, tuple[Path, str]], findings: list[Finding]
) -> None:
    if key not in seen:
        seen[key] = (part.path, _digest(content))
    elif seen[key][1] != _digest(content):
        other = seen[key][0].name
        detail = f'episode {key[0]} attempt {key[1]} is here and, with other content, in {other}'
        findings.append(Finding(FindingKind.CLASH, part.path, detail))


def _digest(content: str) -> str:
    import hashlib

    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _double_counts(valid_attempts: dict[str, list[tuple[Key, Path]]]) -> Iterator[Finding]:
    for episode_id, rows in valid_attempts.items():
        keys = sorted({key for key, _ in rows})
        if len(keys) > 1:
            attempts = ', '.join(str(attempt) for _, attempt in keys)
            detail = f'episode {episode_id} has valid attempts {attempts}; only attempt {keys[0][1]} counts'
            yield Finding(FindingKind.CLASH, rows[-1][1], f'{detail}; drop one, or set it {Outcome.INVALID.value}')


def _check_origin(
    store: Store, part: PartInfo, identity: str, origins: dict[str, str | None], findings: list[Finding]
) -> None:
    if not identity or identity in origins:
        return
    path = store.path / 'provenance' / f'{identity}.json'
    origins[identity] = None
    if not path.exists():
        findings.append(Finding(FindingKind.MISSING, path, f'episodes in {part.path.name} name this provenance'))
        return
    try:
        found = provenance_from_json(json.loads(path.read_text(encoding='utf-8')), where=str(path))
        if found.provenance_id != identity:
            findings.append(Finding(FindingKind.DAMAGED, path, 'its content does not fit its name'))
    except (json.JSONDecodeError, TrialistError, TypeError) as error:
        findings.append(Finding(FindingKind.DAMAGED, path, str(error)))


def _check_trajectories(store: Store, part: PartInfo, good: set[Path], findings: list[Finding]) -> int:
    count = 0
    for name in part.trajectories:
        path = store.path / 'trajectories' / name
        if not path.exists():
            findings.append(Finding(FindingKind.MISSING, path, f'{part.path.name} names it'))
        elif path in good:
            for group, table in enumerate(row_groups(store.path, 'trajectories', name)):
                try:
                    for _, trajectory in trajectories_from_arrow(table):
                        check_trajectory(trajectory)
                        count += 1
                except (RecordError, KeyError) as error:
                    findings.append(Finding(FindingKind.RECORD, path, f'row group {group}: {error}'))
    return count


def _readable_edits(store: Store) -> Edits:
    try:
        return store.edits()
    except StoreError:
        return Edits({})


def _check_unblindings(store: Store) -> Iterator[Finding]:
    folder = store.path / UNBLINDING
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix != '.json':
            kind = FindingKind.LEFTOVER if path.name.startswith('.') else FindingKind.FOREIGN
            yield Finding(kind, path, 'not an unblinding record')
    try:
        for trial_id in store.unblindings().by_trial:
            if not (folder / f'{trial_id}.json').exists():
                yield Finding(FindingKind.RECORD, folder, f'the record of trial {trial_id} is under another name')
    except StoreError as error:
        where, _, detail = str(error).partition(': ')
        yield Finding(FindingKind.DAMAGED, Path(where), detail)


def _check_edits(store: Store) -> Iterator[Finding]:
    path = store.path / 'edits.jsonl'
    if not path.exists():
        return
    try:
        content = path.read_bytes().decode('utf-8')
    except UnicodeDecodeError as error:
        yield Finding(FindingKind.EDIT, path, f'not UTF-8 text (byte {error.start}); no edit can be read')
        return
    lines = content.removesuffix('\n').split('\n')
    if content and not content.endswith('\n'):
        yield Finding(
            FindingKind.LEFTOVER, path, f'line {len(lines)} was cut off while being written; it never counted'
        )
        lines = lines[:-1]
    for number, line in enumerate(lines if content else (), start=1):
        try:
            parse_edit(line, where=f'line {number}')
        except StoreError as error:
            yield Finding(FindingKind.EDIT, path, str(error))
