"""Marks of episodes under way: an attempt that was begun and never finished leaves a trace, however it was stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from robotrials.record import Store
from robotrials.record.entry import EntryKind
from robotrials.record.folder import Folder

FOLDER = 'begun'
Key = tuple[str, int]


def mark_begun(root: Path, key: Key) -> None:
    """Say that an attempt is under way. Not synced: it has to outlive a killed process, not a power cut."""
    folder = Folder(root)
    folder.make(FOLDER)
    folder.mark(f'{FOLDER}/{_name(key)}')


def mark_ended(root: Path, key: Key) -> None:
    """Say that an attempt is on record."""
    Folder(root).remove(f'{FOLDER}/{_name(key)}')


def log_interrupted(
    store: Store, arms: Mapping[str, str], *, by: str = '', marks: Path | None = None, spooled: Collection[Key] = ()
) -> int:  # fmt: skip
    """Log the attempts of earlier runs that were begun and never stored, by arm, and take their marks away.

    arms: for every episode id that this run is about, what stands for its arm. marks: where marks are, if not in the
    store. spooled: what is kept and not yet in the store.
    """
    root = marks or store.path
    marked = [key for name in Folder(root).names(FOLDER) if (key := _key(name)) is not None and key[0] in arms]
    if not marked:
        return 0
    lost = set(marked) - set(spooled) - _stored(store, {episode_id for episode_id, _ in marked})
    if lost:
        count = Counter(arms[episode_id] for episode_id, _ in lost)
        body = {'event': 'interrupted', 'arms': dict(count), 'keys': [f'{i}-{a}' for i, a in sorted(lost)]}
        store.log(EntryKind.INTERRUPTED, by=by, body=body)
    for key in marked:
        mark_ended(root, key)
    return len(lost)


def interrupted_counts(store: Store) -> Counter[str]:
    """How many attempts of each arm were begun and never finished, over all runs; by what stood for the arm."""
    counts: Counter[str] = Counter()
    for _, entry in store.ledger().entries:
        if entry.kind is EntryKind.INTERRUPTED:
            counts.update({str(arm): int(n) for arm, n in entry.body.get('arms', {}).items()})
    return counts


def _stored(store: Store, ids: Collection[str]) -> set[Key]:
    where = {'episode_id': sorted(ids)}
    return {e.key for e in store.episodes(attempts='all', dropped=True, events=False, where=where)}


def _name(key: Key) -> str:
    return f'{key[0]}-{key[1]}'


def _key(name: str) -> Key | None:
    episode_id, _, attempt = name.rpartition('-')
    return (episode_id, int(attempt)) if episode_id and attempt.isdigit() else None
