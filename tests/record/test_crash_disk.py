"""Every verb that writes, on a disk that crashes or fails at call N: nothing acknowledged is lost or half done.

`make test` takes 50 random calls of each verb; `make crash` takes every call, in every way of failing.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.record.crash_disk import Crash, CrashDisk
from tests.record.test_log import as_older_version, episode
from tests.run.plans import make_plan

from robotrials.errors import RobotrialsError, StoreError
from robotrials.record import Outcome, Provenance, Store, Trajectory
from robotrials.record.folder import Disk, replaced_disk
from robotrials.record.log import is_logged
from robotrials.record.maintain import add_episodes, adopt_store, compact_store, merge_stores
from robotrials.record.verify import repair_store, verify_store
from robotrials.run import close_trial, run_trial

PLAN = make_plan(episodes_per_cell=1, time_cap_s=1.0, recording={'trajectories': False})
RANDOM_CALLS = 50
DROPPED, PARTLY = 'unsynced work is dropped', 'some unsynced work is there'
WAYS: tuple[str | int, ...] = (DROPPED, PARTLY, errno.EIO, errno.ENOSPC, errno.EINTR)


def path_of(seed: int) -> Trajectory:
    return Trajectory(time_s=np.arange(4.0), joint_position_rad=np.full((4, 3), float(seed)))


def small_store(root: Path) -> Store:
    store = Store.create(root / 's')
    for seed in (0, 1):
        one = episode(seed)
        store.append([one], trajectories={one.key: path_of(seed)}, media={f'faults/{seed}.txt': b'text'})
    store.edit(episode(1).episode_id, 'set', by='ana', why='typo', field='reason', value='slipped')
    return store


def two_stores(root: Path) -> None:
    small_store(root)
    other = Store.create(root / 'other')
    other.append([episode(1), episode(2)], trajectories={episode(2).key: path_of(2)}, media={'b.mp4': b'film'})
    other.edit(episode(2).episode_id, 'drop', by='bo', why='lights')


def damaged_store(root: Path) -> None:
    small_store(root)
    min((root / 's' / 'episodes').iterdir()).write_bytes(b'PAR1')


def older_store(root: Path) -> None:
    as_older_version(small_store(root))
    (root / 's' / 'edits.jsonl').unlink()


def run_part(root: Path) -> None:
    run_trial(PLAN, root / 's', workers=0, stop_after=1)


def run_all(root: Path) -> None:
    run_trial(PLAN, root / 's', workers=0)


def close(root: Path) -> None:
    store = Store.open(root / 's')
    if PLAN.hash not in store.unblindings().by_trial:
        close_trial(PLAN, root / 's', by='kim')


def append(root: Path) -> None:
    batch = [episode(5), episode(6, outcome=Outcome.INVALID)]
    paths = {batch[0].key: path_of(5)}
    try:
        Store.open(root / 's').append(batch, trajectories=paths, media={'faults/6.txt': b'broke'})
    except StoreError as error:  # repeated after it went through, though the disk said that it had not
        if 'is there already' not in str(error):
            raise


def edit(root: Path) -> None:
    Store.open(root / 's').edit(episode(0).episode_id, 'drop', by='ana', why='lights')


@dataclass(frozen=True)
class Verb:
    prepare: Callable[[Path], object]
    act: Callable[[Path], object]
    steps: bool = False  # it may stop half way, with some of its work acknowledged
    starts_damaged: bool = False


VERBS = {
    'create': Verb(lambda root: None, lambda root: Store.create(root / 's', title='x')),
    'append': Verb(small_store, append),
    'provenance': Verb(small_store, lambda root: Store.open(root / 's').write_provenance(Provenance(cpu='y'))),
    'media': Verb(small_store, lambda root: Store.open(root / 's').add_media('a/wrist.mp4', b'film')),
    'edit': Verb(small_store, edit),
    'look': Verb(small_store, lambda root: Store.open(root / 's').log_look('score')),
    'import': Verb(small_store, lambda root: add_episodes(Store.open(root / 's'), [episode(0), episode(7)])),
    'merge': Verb(two_stores, lambda root: merge_stores(root / 's', root / 'other')),
    'compact': Verb(small_store, lambda root: compact_store(root / 's')),
    'compact at once': Verb(small_store, lambda root: compact_store(root / 's', stale_after_s=0)),
    'repair': Verb(
        damaged_store, lambda root: repair_store(root / 's', by='ana', why='disk'), steps=True, starts_damaged=True
    ),
    'adopt': Verb(older_store, lambda root: adopt_store(root / 's') if not is_logged(root / 's') else None),
    'run': Verb(lambda root: None, run_all, steps=True),
    'resume': Verb(run_part, run_all, steps=True),
    'close': Verb(run_all, close),
}


def content(root: Path, *, is_damaged: bool = False) -> Any:
    """All that a store says, in an order that does not depend on how it came about; None before there is one."""
    if not (root / 's' / 'trial.json').exists():
        return None
    store = Store.open(root / 's', skip_damaged=is_damaged)
    edits, ledger = store.edits(), store.ledger()
    episodes = sorted(store.episodes(attempts='all', dropped=True), key=lambda e: e.key)
    kept = {e.key: e for e in episodes}
    media = {n: (root / 's' / n).read_bytes() for n in ledger.wanted() if n.startswith(('media/', 'provenance/'))}
    paths = {
        e.key: float(t.joint_position_rad.sum()) for e, t in store.trajectories() if t.joint_position_rad is not None
    }
    closed = {k: dict(u.policies) for k, u in store.unblindings().by_trial.items()}
    return list(kept.values()), [edits.is_dropped(*k) for k in kept], media, paths, closed


class QuickDisk(Disk):
    """A disk that does not wait."""

    def sync(self, handle: int) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


class Bench:
    """One verb: its start, its end, and how many calls lie between."""

    def __init__(self, name: str, folder: Path) -> None:
        self.verb, self.folder = VERBS[name], folder
        self.base = folder / 'base'
        self.base.mkdir()
        with replaced_disk(QuickDisk()):
            self.verb.prepare(self.base)
        self.before = content(self.base, is_damaged=self.verb.starts_damaged)
        work = self.copy('whole')
        with replaced_disk(CrashDisk(work, at=0)) as disk:
            self.verb.act(work)
        self.calls = disk.calls  # type: ignore[attr-defined]
        self.after = content(work)

    def copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.base, self.folder / name))

    def check(self, at: int, way: str | int, *, rng: np.random.Generator) -> None:
        """Break at one call, look at what is left, and repeat the verb."""
        work = self.copy(f'work-{at}-{way}')
        left = work
        disk = CrashDisk(work, at=at, number=way if isinstance(way, int) else None)
        try:
            with replaced_disk(disk):
                self.verb.act(work)
        except Crash:
            left = self.folder / f'left-{at}-{way}'
            disk.left_after(left, rng=rng if way == PARTLY else None)
        except RobotrialsError:
            pass  # one clear line; anything else would be a traceback
        found = content(left, is_damaged=self.verb.starts_damaged)
        if not self.verb.steps:
            assert found in (self.before, self.after, content_of_nothing(found)), 'half done'
        if found is not None and not self.verb.starts_damaged and is_logged(left / 's'):
            assert verify_store(left / 's').is_clean, verify_store(left / 's').findings
        if self.before is not None and not self.verb.starts_damaged:
            assert found is not None
            assert all(e in found[0] or self.verb.act in (edit, close) for e in self.before[0]), 'lost'
        with replaced_disk(QuickDisk()):
            self.verb.act(left)
        assert content(left) == self.after, 'repeated, it comes to something else'
        assert verify_store(left / 's').is_clean, verify_store(left / 's').findings
        for folder in {work, left}:
            shutil.rmtree(folder)


def content_of_nothing(found: Any) -> Any:
    """A store that is there and empty is a step of making one."""
    return found if found is not None and not found[0] else None


@pytest.fixture(autouse=True)
def _plain_provenance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('robotrials.run.engine.collect_provenance', lambda: Provenance(cpu='x'))


@pytest.mark.crash
@pytest.mark.parametrize('name', [name for name in VERBS if name not in ('import', 'resume')])  # appends and runs
def test_a_verb_on_a_disk_that_breaks_at_random(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(sum(map(ord, name)))
    bench = Bench(name, tmp_path)
    assert bench.calls > 3
    for _ in range(RANDOM_CALLS):
        bench.check(int(rng.integers(1, bench.calls + 1)), WAYS[rng.integers(len(WAYS))], rng=rng)


@pytest.mark.crash
@pytest.mark.parametrize('way', WAYS, ids=lambda way: errno.errorcode[way] if isinstance(way, int) else way)
@pytest.mark.parametrize('name', VERBS)
def test_a_verb_on_a_disk_that_breaks_at_every_call(name: str, way: str | int, tmp_path: Path) -> None:
    bench = Bench(name, tmp_path)
    rng = np.random.default_rng(0)
    for at in range(1, bench.calls + 1):
        bench.check(at, way, rng=rng)
