"""Find every damage in a store and name the file, which changes nothing; and repair it.

A repair sets damage aside in quarantine/ and puts that on record, so that everything else can be read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from robotrials.errors import InputError, RecordError, RobotrialsError, StoreError
from robotrials.record.blinding import FOLDER as UNBLINDING
from robotrials.record.blinding import all_unblindings, check_unblinding, read_part_episodes
from robotrials.record.bucket import CachedPath, forget_copies
from robotrials.record.column import trajectories_from_arrow
from robotrials.record.episode import Episode, Outcome, provenance_from_json
from robotrials.record.folder import (
    LEASES,
    PENDING,
    Draft,
    Folder,
    disk,
    inside,
    is_file_inside,
    naming_trouble,
    shared_writing,
    store_root,
)
from robotrials.record.ledger import EDITS, Edits, Ledger, known_losses, listed_edits, read_ledger, what_it_held
from robotrials.record.log import (
    LOG,
    Finding,
    FindingKind,
    Signing,
    add_entry,
    announced,
    check_logged,
    check_owner,
    check_signature,
    read_known,
    read_log,
    signings,
)
from robotrials.record.maintain import unlogged_parts
from robotrials.record.part import (
    PART_NAME,
    EntryKind,
    LoggedFile,
    PartInfo,
    file_hash,
    id_hashes,
    read_companion,
    read_part_info,
    repeated_hashes,
    row_groups,
)
from robotrials.record.rows import EVENT_SCHEMA, SCHEMA_VERSION, events_by_episode, migrate
from robotrials.record.store import FOLDERS, Store
from robotrials.record.trajectory import check_trajectory
from robotrials.value import dataclass

QUARANTINE = 'quarantine'
TRIES = 3


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair did; all empty for a sound store."""

    lost: Mapping[str, str] = field(default_factory=dict)  # file -> what it held
    log_files: tuple[str, ...] = ()  # damaged files of the log
    entries: tuple[str, ...] = ()  # ids of entries that are gone
    regained: tuple[str, ...] = ()  # episodes parts that only a lost entry had named
    restored: tuple[str, ...] = ()  # files written anew from what the log holds

    @property
    def is_empty(self) -> bool:
        return not (self.lost or self.log_files or self.entries or self.regained or self.restored)


def repair_store(path: Path | str, *, by: str, why: str) -> Repair:
    """Set damaged files aside, note what is missing, and make the rest readable. It brings nothing back.

    A merge with a sound copy brings back what the copy has.
    """
    root = store_root(path)
    if isinstance(root, CachedPath):
        raise StoreError(
            f'{root.address}: a repair moves files, which object storage cannot do in one step; copy it as it is into '
            'a folder (such as `aws s3 sync`), repair that, and bring it to a new address with: robotrials store merge'
        )
    if not by.strip() or not why.strip():
        raise InputError('a repair says who and why: both must be given')
    check_logged(root)
    with shared_writing(root):
        ledger = _settled_ledger(root)
        damaged = [f.path.name for f in ledger.damage if f.path.parent == root / LOG and f.path.exists()]
        _move_to_quarantine(root, [f'{LOG}/{name}' for name in damaged])
        log = read_log(root, fresh=True)
        gone = sorted(log.dangling().keys() - ledger.mended)
        restored = [*_restore_folders(root), *_restore_trial(root, ledger)]
        lost = {
            name: what_it_held(ledger, name) for name in sorted(ledger.wanted()) if not is_sound(root, name, ledger)
        }
        # A link, and whatever lies behind one, is left alone.
        _move_to_quarantine(root, [name for name in lost if is_file_inside(root, name)])
        regained, files = _regain(root, ledger) if damaged or gone else ([], [])
        done = Repair(lost, tuple(damaged), tuple(gone), tuple(p.path.name for p in regained), tuple(restored))
        if not done.is_empty:
            body = {
                'why': why, 'lost': lost, 'mended': gone, 'log_files': damaged, 'restored': restored,
                'parts': [part.as_json() for part in regained], **_readopted(root, ledger),
            }  # fmt: skip
            add_entry(root, EntryKind.REPAIR, by=by, body=body, files=files)
    return done


def _settled_ledger(root: Path) -> Ledger:
    """The ledger, read again where the disk stumbled: what can be read at the third try is not damaged."""
    for _ in range(TRIES - 1):
        ledger = read_ledger(root, fresh=True)
        if not any('cannot be read' in finding.detail for finding in ledger.damage):
            return ledger
    return read_ledger(root, fresh=True)


def is_sound(root: Path, name: str, ledger: Ledger) -> bool:
    """Whether a logged file is there with the bytes it was logged with."""
    path, logged = root / name, ledger.files[name]
    for _ in range(TRIES):
        try:
            return inside(root, name).stat().st_size == logged.n_bytes and file_hash(path) == logged.sha256
        except (FileNotFoundError, StoreError):
            return False
        except OSError:
            continue
    return False


def _move_to_quarantine(root: Path, names: list[str]) -> None:
    folder = Folder(root)
    for name in names:
        target = f'{QUARANTINE}/{time.time_ns():016x}-{name.replace("/", "-")}'
        folder.publish(Draft(root / name, '', 0), target)
        folder.sync(QUARANTINE)
        with naming_trouble(root / name):
            if (root / name).exists():
                disk().unlink(root / name)
            disk().sync_folder((root / name).parent)


def _restore_folders(root: Path) -> list[str]:
    """Make the folders of a store that are gone: a copy of objects has none that were empty."""
    gone = [name for name in FOLDERS if not (root / name).is_dir()]
    for name in gone:
        Folder(root).make(name)
    return gone


def _restore_trial(root: Path, ledger: Ledger) -> list[str]:
    """Write trial.json anew if it is not what the log says it was."""
    path = root / 'trial.json'
    content = path.read_bytes().decode('utf-8', 'replace') if path.exists() else ''
    if content in ledger.trials.values():
        return []
    # Merged logs bring the descriptions of other stores along; what is left of the file may tell which it was.
    texts = [text for store_id, text in ledger.trials.items() if store_id in content] or list(ledger.trials.values())
    if not texts:
        return []  # the entry that had it is lost: what the file says is all there is, and is logged anew
    if len(texts) != 1:
        raise StoreError(f'{path}: damaged, and the log does not tell which of {len(texts)} descriptions it had')
    if path.exists():
        _move_to_quarantine(root, ['trial.json'])
    Folder(root).create('trial.json', texts[0].encode())
    return ['trial.json']


def _readopted(root: Path, ledger: Ledger) -> dict[str, object]:
    """The description of the store, where the entry that held it is lost."""
    if ledger.trials:
        return {}
    text = (root / 'trial.json').read_text(encoding='utf-8')
    return {'trial': {'store_id': json.loads(text)['store_id'], 'text': text}}


def _regain(root: Path, ledger: Ledger) -> tuple[list[PartInfo], list[LoggedFile]]:
    """Episodes parts that are sound by their own names, with their companions, and that only a lost entry named."""
    loose = set(unlogged_parts(root, ledger))
    parts, files = [], []
    for name in sorted(n for n in loose if n.startswith('episodes/')):
        try:
            info = read_part_info(root / name)
        except (StoreError, FileNotFoundError):
            continue
        events = [f'events/{info.events}'] if info.events else []
        names = [name, *events, *(f'trajectories/{t}' for t in info.trajectories)]
        if all(is_file_inside(root, n) and _fits_name(root / n) for n in names):
            parts.append(info)
            files += [
                LoggedFile(name=n, sha256=file_hash(root / n), n_bytes=(root / n).stat().st_size)
                for n in names
                if ledger.file(n) is None
            ]
    return parts, files


def _fits_name(path: Path) -> bool:
    match = PART_NAME.match(path.name)
    return match is not None and file_hash(path).startswith(match['hash'])


Key = tuple[str, int]
LOCK_NAME = re.compile(r'^\.(lock|write\.lock|entry\.lock|run(\..*)?\.lock)$')
BEGUN = 'begun'


@dataclass(frozen=True, slots=True)
class Verification:
    """What a check of a whole store found."""

    findings: tuple[Finding, ...]
    n_episodes: int
    n_events: int
    n_trajectories: int
    head: str = ''
    signings: tuple[Signing, ...] = ()  # who signed what of the log, and what nobody did

    @property
    def is_clean(self) -> bool:
        """Nothing damaged; leftovers of killed writers are no damage, and what a repair set aside is known."""
        return not any(f.is_damage for f in self.findings)


def verify_store(path: Path | str, *, head: str = '') -> Verification:
    """Check every file of a store against its log: names, bytes, companions, rows, ids, edits, closings, provenance.

    `head` is one that somebody noted earlier: it must still be part of the log.
    """
    root = store_root(path)
    if isinstance(root, CachedPath):
        forget_copies(root)  # the question is what object storage holds
    store = Store.open(root)
    findings: list[Finding] = _missing_folders(root)
    listed = set(Folder(root).files())  # in this order, a file that a running trial shows is promised, or else logged
    try:
        promised = announced(root)
    except StoreError:
        promised = set()  # a link in the place of the drafts: found with the files
    ledger = _ledger_of(store, findings)
    findings += _check_head(root, head)
    bad = _check_files(store, ledger, findings, listed=listed, promised=promised)
    counts = _check_parts(store, ledger, bad, findings)
    findings += _check_edits(store, ledger)
    findings += _check_unblindings(store, ledger)
    findings += known_losses(root, ledger)
    known = read_known()
    findings += _check_signatures(root, ledger, known)
    signed = signings([entry for _, entry in ledger.entries], known)
    return Verification(tuple(dict.fromkeys(findings)), *counts, store.head() if ledger.is_logged else '', signed)


def _check_signatures(root: Path, ledger: Ledger, known: Mapping[str, str]) -> Iterator[Finding]:
    for name, entry in ledger.entries:
        for wrong in (check_signature(entry), check_owner(entry, known)):
            if wrong:
                detail = f'entry {name[:12]} ({entry.kind.value} by {entry.by} at {entry.at}): {wrong}'
                yield Finding(FindingKind.SIGNATURE, root / LOG, detail)


def _ledger_of(store: Store, findings: list[Finding]) -> Ledger:
    root = store.path
    try:
        ledger = read_ledger(root, fresh=True)
    except StoreError as error:
        findings.append(_from_error(error, root))
        return Ledger(is_logged=False, parts=())
    if ledger.is_logged:
        findings += ledger.damage
    elif store.trial.is_logged:
        findings.append(Finding(FindingKind.MISSING, root / LOG, 'the commit log is gone: anything may be missing'))
    else:
        detail = 'a store of an older version, without a commit log: what is missing cannot be known'
        findings.append(Finding(FindingKind.UNLOGGED, root, f'{detail}; give it one with: robotrials store adopt'))
    return ledger


def _from_error(error: StoreError, root: Path) -> Finding:
    where, _, detail = str(error).partition(': ')
    kind = FindingKind.FOREIGN if 'not written by robotrials' in detail else FindingKind.DAMAGED
    return Finding(kind, Path(where) if where.startswith(str(root)) else root, detail or str(error))


def _check_head(root: Path, head: str) -> Iterator[Finding]:
    """A noted head, or the start of one, must be an entry that is still there."""
    if not head:
        return
    known = read_log(root, fresh=True).entries
    for noted in head.split('+'):
        if not any(name.startswith(noted) for name in known):
            detail = f'no entry {noted[:12]} in the log: what was logged up to it is not all there'
            yield Finding(FindingKind.MISSING, root / LOG, detail)


def _missing_folders(root: Path) -> list[Finding]:
    if isinstance(root, CachedPath):
        return []  # object storage has no folders
    gone = [name for name in FOLDERS if not (root / name).is_dir()]
    return [Finding(FindingKind.MISSING, root / name, 'a folder of the store is gone') for name in gone]


def _check_files(
    store: Store, ledger: Ledger, findings: list[Finding], *, listed: set[str], promised: set[str]
) -> set[str]:  # fmt: skip
    """Every file's bytes against the log (or, without one, its name); the names of those that can't be trusted."""
    root, bad = store.path, set()
    wanted = ledger.wanted()
    present = {name for name in listed if not name.startswith((f'{LOG}/', f'{QUARANTINE}/', f'{LEASES}/'))}
    present |= {name for name in wanted - present if os.path.lexists(root / name)}  # logged since
    for name in sorted(present):
        try:
            inside(root, name)
            finding = _check_file(store, ledger, name, promised)
        except StoreError as error:
            findings.append(_from_error(error, root))
            bad.add(name)
            continue
        except FileNotFoundError:  # removed since: a draft, a part that was compacted, or damage
            present.discard(name)
            continue
        if finding is not None:
            findings.append(finding)
            bad.add(name)
    for name in sorted(wanted - present):
        findings.append(Finding(FindingKind.MISSING, root / name, what_it_held(ledger, name)))
        bad.add(name)
    return bad


def _check_file(store: Store, ledger: Ledger, name: str, promised: set[str]) -> Finding | None:
    path, logged = store.path / name, ledger.file(name)
    folder, _, file = name.rpartition('/')
    if name == 'trial.json':
        return _check_trial(store, ledger)
    if LOCK_NAME.match(name) or folder == BEGUN:
        empty = path.stat().st_size == 0
        return None if empty else Finding(FindingKind.FOREIGN, path, 'a mark that should be empty is not')
    if folder == PENDING or file.startswith('.'):
        return Finding(FindingKind.LEFTOVER, path, 'something that a writer began and never finished')
    if not ledger.is_logged:
        return _check_unlogged(path, folder, name)
    if logged is None:
        if name in promised or _is_own_origin(store.path, name):
            return Finding(FindingKind.LEFTOVER, path, 'a writer was stopped before it could log it; it does not count')
        if PART_NAME.match(file) and folder in ('episodes', 'events', 'trajectories'):
            return Finding(FindingKind.LEFTOVER, path, 'no entry of the log names it; it does not count')
        return Finding(FindingKind.FOREIGN, path, 'the log does not know it')
    if path.stat().st_size != logged.n_bytes or file_hash(path) != logged.sha256:
        return Finding(FindingKind.DAMAGED, path, f'its bytes are not what was written; {what_it_held(ledger, name)}')
    if name in ledger.retired:
        return Finding(FindingKind.LEFTOVER, path, 'already compacted into another part')
    return None


def _is_own_origin(root: Path, name: str) -> bool:
    """Whether a file is a provenance whose content fits its name: it can't claim anything that it is not."""
    folder, _, file = name.rpartition('/')
    if folder != 'provenance':
        return False
    try:
        content = json.loads((root / name).read_bytes())
        return f'{provenance_from_json(content, where=name).provenance_id}.json' == file
    except (ValueError, TypeError, AttributeError, RobotrialsError):
        return False


def _check_trial(store: Store, ledger: Ledger) -> Finding | None:
    path = store.path / 'trial.json'
    if not ledger.is_logged or ledger.trials.get(store.trial.store_id, '').encode() == path.read_bytes():
        return None
    return Finding(FindingKind.DAMAGED, path, 'it is not what the log says it was; robotrials store repair restores it')


def _check_unlogged(path: Path, folder: str, name: str) -> Finding | None:
    """A file of a store without a log: parts carry their hash in their name, and some names are known."""
    if folder in ('episodes', 'events', 'trajectories'):
        match = PART_NAME.match(path.name)
        if match is None:
            return Finding(FindingKind.FOREIGN, path, f'not a part file; nothing else belongs in {folder}/')
        if not file_hash(path).startswith(match['hash']):
            return Finding(FindingKind.DAMAGED, path, 'its bytes do not fit its name')
    elif folder.partition('/')[0] not in ('media', 'provenance', UNBLINDING) and name != EDITS:
        return Finding(FindingKind.FOREIGN, path, 'not part of a store')
    return None


def _check_parts(store: Store, ledger: Ledger, bad: set[str], findings: list[Finding]) -> tuple[int, int, int]:
    readable = [part for part in ledger.parts if f'episodes/{part.path.name}' not in bad]
    repeated = _repeated_ids(readable)  # no other can clash, or count twice
    seen: dict[Key, tuple[Path, str]] = {}
    valid_attempts: dict[str, list[tuple[Key, Path]]] = {}
    n_episodes = n_events = n_trajectories = 0
    edits = Edits.of(ledger.edits)
    origins: dict[str, str | None] = {}
    for part in readable:
        if part.schema_version > SCHEMA_VERSION:
            detail = f'schema version {part.schema_version}, this robotrials reads up to {SCHEMA_VERSION}'
            findings.append(Finding(FindingKind.SCHEMA, part.path, detail))
            continue
        events = _check_events(store, ledger, part, bad, findings)
        n_events += part.n_events if events is not None else 0
        has_companions = bool(events or part.trajectories)
        keys: set[Key] = set()
        is_whole = False
        try:
            for episode in read_part_episodes(part, events or {}, edits=Edits({}), where=None):
                n_episodes += 1
                if has_companions:
                    keys.add(episode.key)
                is_repeated = episode.episode_id in repeated
                if is_repeated and events is not None:
                    _check_key(part, episode.key, repr(episode), seen, findings)
                if is_repeated and edits.apply(episode).is_valid and not edits.is_dropped(*episode.key):
                    valid_attempts.setdefault(episode.episode_id, []).append((episode.key, part.path))
                findings += _set_aside(store, edits, episode)
                _check_origin(store, part, episode.provenance_id, origins, bad, findings)
            is_whole = True
        except StoreError as error:
            kind = FindingKind.SCHEMA if 'schema version' in str(error) else FindingKind.RECORD
            findings.append(Finding(kind, part.path, str(error).removeprefix(str(part.path)).lstrip(': ')))
        recorded = _check_trajectories(store, ledger, part, bad, findings)
        n_trajectories += len(recorded)
        if is_whole:
            findings += _of_no_episode('events', events or (), keys, part)
            findings += _of_no_episode('a trajectory', recorded, keys, part)
    findings += _double_counts(valid_attempts)
    return n_episodes, n_events, n_trajectories


def _repeated_ids(parts: Sequence[PartInfo]) -> set[str]:
    """The ids that several rows have; 64 bits of each are looked at first, so that a million rows take megabytes."""
    suspects = repeated_hashes([id_hashes(ids) for part in parts for ids in _id_columns(part)])
    return {
        text for part in parts if len(suspects) for ids in _id_columns(part)
        for text in ids.filter(np.isin(id_hashes(ids), suspects)).to_pylist()
    }  # fmt: skip


def _id_columns(part: PartInfo) -> Iterator[pa.ChunkedArray]:
    with contextlib.suppress(StoreError, KeyError, pa.ArrowException):  # named when its rows are read
        for table in row_groups(part.path, part.logged, choose=lambda _: ['episode_id']):
            yield table['episode_id'].cast(pa.string())


def _set_aside(store: Store, edits: Edits, episode: Episode) -> Iterator[Finding]:
    if episode.episode_id not in edits.by_episode:
        return
    for edit, error in edits.set_aside(episode):
        change = f'{edit.field}={edit.value!r} by {edit.by} at {edit.at}'
        detail = f'episode {episode.episode_id} attempt {episode.attempt}: {change} is set aside: {error}'
        yield Finding(FindingKind.EDIT, store.path / LOG, detail)


def _check_events(
    store: Store, ledger: Ledger, part: PartInfo, bad: set[str], findings: list[Finding]
) -> Any:  # fmt: skip
    if not part.events:
        return {}
    name = f'events/{part.events}'
    path = store.path / name
    if not path.exists() and not ledger.is_logged:
        findings.append(Finding(FindingKind.MISSING, path, f'{part.path.name} names it for its {part.n_events} events'))
    if name in bad or not path.exists():
        return None
    try:
        table = read_companion(path, ledger.file(name))
        return events_by_episode(migrate(table, part.schema_version, schema=EVENT_SCHEMA, where=str(path)))
    except (RecordError, KeyError, pa.ArrowException, UnicodeDecodeError) as error:
        findings.append(Finding(FindingKind.RECORD, path, str(error)))
    except StoreError as error:
        findings.append(Finding(FindingKind.SCHEMA, path, str(error).removeprefix(f'{path}: ')))
    return None


def _of_no_episode(what: str, owners: Iterable[Key], keys: Collection[Key], part: PartInfo) -> Iterator[Finding]:
    """What a part's companions hold of episodes that it does not have: nobody would ever read it."""
    strangers = sorted({key for key in owners if key not in keys})
    if strangers:
        (episode_id, attempt), more = strangers[0], len(strangers) - 1
        among = f', and {what} of {more} more' if more else ''
        detail = f'{what} of episode {episode_id} attempt {attempt}{among}: the part has no such episode'
        yield Finding(FindingKind.RECORD, part.path, detail)


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
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _double_counts(valid_attempts: dict[str, list[tuple[Key, Path]]]) -> Iterator[Finding]:
    for episode_id, rows in valid_attempts.items():
        keys = sorted({key for key, _ in rows})
        if len(keys) > 1:
            attempts = ', '.join(str(attempt) for _, attempt in keys)
            detail = f'episode {episode_id} has valid attempts {attempts}; only attempt {keys[0][1]} counts'
            yield Finding(FindingKind.CLASH, rows[-1][1], f'{detail}; drop one, or set it {Outcome.INVALID.value}')


def _check_origin(
    store: Store, part: PartInfo, identity: str, origins: dict[str, str | None], bad: set[str], findings: list[Finding]
) -> None:
    if not identity or identity in origins or f'provenance/{identity}.json' in bad:
        return
    path = store.path / 'provenance' / f'{identity}.json'
    origins[identity] = None
    if not store.has_file(f'provenance/{identity}.json'):
        findings.append(Finding(FindingKind.MISSING, path, f'episodes in {part.path.name} name this provenance'))
        return
    try:
        provenance = provenance_from_json(json.loads(path.read_text(encoding='utf-8')), where=str(path))
        if provenance.provenance_id != identity:
            findings.append(Finding(FindingKind.DAMAGED, path, 'its content does not fit its name'))
    except (json.JSONDecodeError, RobotrialsError, TypeError) as error:
        findings.append(Finding(FindingKind.DAMAGED, path, str(error)))


def _check_trajectories(
    store: Store, ledger: Ledger, part: PartInfo, bad: set[str], findings: list[Finding]
) -> list[Key]:
    """The episodes whose trajectories can be read."""
    keys = []
    for file in part.trajectories:
        name = f'trajectories/{file}'
        path = store.path / name
        if not path.exists() and not ledger.is_logged:
            findings.append(Finding(FindingKind.MISSING, path, f'{part.path.name} names it'))
        if name in bad or not path.exists():
            continue
        for group, table in enumerate(row_groups(path, ledger.file(name))):
            try:
                for key, trajectory in trajectories_from_arrow(table):
                    check_trajectory(trajectory)
                    keys.append(key)
            except (RecordError, KeyError) as error:
                findings.append(Finding(FindingKind.RECORD, path, f'row group {group}: {error}'))
    return keys


def _check_unblindings(store: Store, ledger: Ledger) -> Iterator[Finding]:
    folder = store.path / UNBLINDING
    try:
        records = all_unblindings(store.path, ledger)
    except StoreError as error:
        yield _from_error(error, store.path)
        return
    first: dict[str, dict[str, str]] = {}
    for record in records:
        wrong = check_unblinding(record)
        if wrong:
            detail = f'the closing of trial {record.trial_id} by {record.by}: {wrong}'
            yield Finding(FindingKind.RECORD, store.path / LOG, detail)
        if first.setdefault(record.trial_id, dict(record.policies)) != dict(record.policies):
            yield Finding(FindingKind.CLASH, store.path / LOG, f'trial {record.trial_id} was closed twice, differently')
    if folder.is_dir():
        for path in sorted(folder.glob('*.json')):
            if path.stem not in first:
                yield Finding(FindingKind.RECORD, path, 'the record of a trial is under another name')


def _check_edits(store: Store, ledger: Ledger) -> Iterator[Finding]:
    """The log of edits of an older version, line by line."""
    path = store.path / EDITS
    if not path.exists() or ledger.is_logged:
        return
    content = path.read_bytes()
    if content and not content.endswith(b'\n'):
        yield Finding(FindingKind.LEFTOVER, path, 'its last line was cut off while being written; it never counted')
    for edit in listed_edits(path):
        if isinstance(edit, StoreError):
            yield Finding(FindingKind.EDIT, path, str(edit).removeprefix(f'{path} '))
