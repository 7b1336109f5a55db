"""Giving a store of an older version its commit log: what it holds is taken as it is found, and said to be so."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from robotrials.errors import StoreError
from robotrials.record.edit import Edit, read_edits
from robotrials.record.entry import Entry, EntryKind, LoggedFile, new_entry
from robotrials.record.folder import Folder, inside
from robotrials.record.ledger import EDITS
from robotrials.record.log import LOG, add_entry, add_pack, is_logged
from robotrials.record.part import PART_NAME, PartInfo, file_hash
from robotrials.record.store import Store
from robotrials.record.unblinding import FOLDER as UNBLINDING


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
    names += [n for room in ('provenance', 'media', UNBLINDING) for n in folder.files(room) if not _is_draft(n)]
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


def _is_draft(name: str) -> bool:
    return name.rpartition('/')[2].startswith('.')


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
