"""Where a concealed trial keeps the episodes of a block until the block is whole, out of the operator's sight.

When each episode was stored tells how long its policy thought, and so which arm it was. A block holds every arm equally
often: episodes that enter the store together, a block at a time and with one start time, tell nothing. Until then each
is as durable as in the store itself, in a store of its own below `STORE.private`, which only the account that runs the
trial can open.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from robotrials.errors import StoreError
from robotrials.record import Episode, Store
from robotrials.record.bucket import CachedPath
from robotrials.run.schedule import Slot

BLOCKS = 'blocks'  # below the private folder, whose own times an operator can read


def private_folder(store: Path) -> Path:
    """Where the account that runs a concealed trial keeps what the operator must not see; made if it is new."""
    path = store.resolve()
    folder = path.with_name(f'{path.name}.private')
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


class Spool:
    """The blocks of one trial that are not whole yet."""

    def __init__(self, store: Store, *, whole: str = '') -> None:
        """whole: a name for all slots of this run, if they enter the store together: a shard has parts of blocks."""
        self._store, self.whole = store, whole
        self._folder = private_folder(store.path) / BLOCKS
        self._folder.mkdir(exist_ok=True)

    def group(self, slot: Slot) -> str:
        """The name of what enters the store together with a slot."""
        return self.whole or f'{slot.session} {slot.block}'

    def store_of(self, slot: Slot) -> Store:
        """The store that has a slot's episode until its block is whole."""
        trial = self._store.trial
        root = self._folder / hashlib.sha256(self.group(slot).encode()).hexdigest()[:16]
        return Store.create(root, trial_id=trial.trial_id, plan_hash=trial.plan_hash)

    def _stores(self) -> Iterator[Store]:
        for path in sorted(self._folder.iterdir()):
            if (path / 'trial.json').exists():  # else a kill left less than a store, and no episode
                yield Store.open(path)

    def tidy(self) -> None:
        """Forget blocks that a run put into the trial's store, and was killed before it could take them from here."""
        for store in list(self._stores()):
            if (first := next(store.episodes(attempts='all', dropped=True), None)) is not None:
                where = {'episode_id': first.episode_id}
                known = self._store.episodes(attempts='all', dropped=True, events=False, where=where)
                if any(e.attempt == first.attempt for e in known):
                    shutil.rmtree(store.path)

    def episodes(self) -> Iterator[Episode]:
        """Every episode that waits for its block."""
        for store in self._stores():
            yield from store.episodes(attempts='all', dropped=True)

    def release(self, slot: Slot, *, by: str) -> None:
        """Put the episodes of a slot's block, which is whole, into the trial's store at once."""
        self._release(self.store_of(slot), by=by)

    def release_all(self, *, by: str) -> None:
        """Put everything that waits into the trial's store: it is being closed, and no time tells anything more."""
        self.tidy()
        for store in list(self._stores()):
            self._release(store, by=by)

    def _release(self, spool: Store, *, by: str) -> None:
        episodes = _coarse(list(spool.episodes(attempts='all', dropped=True)))
        if episodes:
            trajectories = {e.key: t for e in episodes if (t := spool.trajectory(e)) is not None}
            folder = spool.path / 'media'
            media = {str(p.relative_to(folder)): p for p in sorted(folder.rglob('*')) if p.is_file()}
            self._store.append(episodes, trajectories=trajectories, media=media, by=by)
        shutil.rmtree(spool.path)


def _coarse(episodes: list[Episode]) -> list[Episode]:
    """Episodes of one block with one start time, to the minute."""
    starts = [e.started_at for e in episodes if e.started_at is not None]
    start = min(starts, default=dt.datetime.now(dt.UTC)).replace(second=0, microsecond=0)
    return [e.replace(started_at=None if e.started_at is None else start) for e in episodes]


def spool_of(store: Store, *, is_concealed: bool, whole: str = '') -> Spool | None:
    """The spool of a trial that needs one. Object storage has no private folder: there, episodes enter as they end."""
    if not is_concealed or isinstance(store.path, CachedPath):
        return None
    return Spool(store, whole=whole)


def release_leftovers(store: Store, *, by: str) -> None:
    """Put what an interrupted run left in its private folder into the store, if there is such a folder."""
    if isinstance(store.path, CachedPath):
        return
    folder = store.path.resolve().with_name(f'{store.path.resolve().name}.private')
    try:
        if (folder / BLOCKS).is_dir():
            Spool(store).release_all(by=by)
    except PermissionError as error:
        raise StoreError(
            f'{folder}: an interrupted run left episodes here that only its account can read; finish the block with '
            'robotrials run from that account, or close the trial from there'
        ) from error
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
