"""Repairing a store: damage is set aside in quarantine/ and put on record, so that everything else can be read."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from robotrials.errors import InputError, StoreError
from robotrials.record.bucket import CachedPath, store_root
from robotrials.record.commit import check_logged
from robotrials.record.entry import EntryKind, LoggedFile
from robotrials.record.folder import Draft, Folder, disk, inside, is_file_inside, naming_trouble, shared_writing
from robotrials.record.ledger import Ledger, read_ledger, what_it_held
from robotrials.record.log import LOG, add_entry, read_log
from robotrials.record.maintain import unlogged_parts
from robotrials.record.part import PART_NAME, PartInfo, file_hash, read_part_info
from robotrials.record.store import FOLDERS
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
        _set_aside(root, [f'{LOG}/{name}' for name in damaged])
        log = read_log(root, fresh=True)
        gone = sorted(log.dangling().keys() - ledger.mended)
        restored = [*_restore_folders(root), *_restore_trial(root, ledger)]
        lost = {
            name: what_it_held(ledger, name) for name in sorted(ledger.wanted()) if not is_sound(root, name, ledger)
        }
        _set_aside(root, [name for name in lost if _is_ours(root, name)])
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


def _is_ours(root: Path, name: str) -> bool:
    """Whether a file is there that can be moved; a link, and whatever lies behind one, is left alone."""
    return is_file_inside(root, name)


def _set_aside(root: Path, names: list[str]) -> None:
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
    found = path.read_bytes().decode('utf-8', 'replace') if path.exists() else ''
    if found in ledger.trials.values():
        return []
    # Merged logs bring the descriptions of other stores along; what is left of the file may tell which it was.
    texts = [text for store_id, text in ledger.trials.items() if store_id in found] or list(ledger.trials.values())
    if not texts:
        return []  # the entry that had it is lost: what the file says is all there is, and is logged anew
    if len(texts) != 1:
        raise StoreError(f'{path}: damaged, and the log does not tell which of {len(texts)} descriptions it had')
    if path.exists():
        _set_aside(root, ['trial.json'])
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
        if all(_is_ours(root, n) and _fits_name(root / n) for n in names):
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
