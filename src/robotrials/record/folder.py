"""The file layer of a store: create-only files, whole or not at all, and durable when it says so.

Everything that a store writes goes through `Folder`, and everything `Folder` does to the disk goes through `Disk`.
A folder of object storage (`bucket.CachedPath`) takes create-only puts instead; a disk that breaks at call N can stand
in for the second.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import random
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from robotrials.errors import StoreError, WriteError
from robotrials.record.bucket import MARK, CachedPath, addressed_root
from robotrials.value import dataclass, pattern

PENDING = '.pending'
UNFIT = pattern(r'[\x00-\x1f\x7f\\\ud800-\udfff]')  # in no name: control characters, what is no text, and \
MOST_NAME_BYTES, MOST_PLACE_BYTES = 255, 1024  # of one folder or file, as file systems have it; of all together
WRITE_LOCK = '.write.lock'
ENTRY_LOCK = '.entry.lock'
LEASES = '.leases'  # on object storage
OWN_NAMES = (
    'trial.json', 'log', 'episodes', 'events', 'trajectories', 'provenance', 'media', 'quarantine', 'unblinding',
    'begun', 'edits.jsonl', PENDING,
)  # fmt: skip
BUFFER_BYTES = 4 << 20
LARGE_BYTES = 1 << 18
POLL_S = 0.02
SETTLED_AFTER_NS = 2_000_000_000
# Some network and removable file systems have no hard links.
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV}


class Disk:
    """The calls by which a store changes a disk. Each may fail, and what is not synced may be gone after a crash."""

    def create(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, handle: int, data: Any) -> int:
        return os.write(handle, data)

    def sync(self, handle: int) -> None:
        os.fsync(handle)

    def close(self, handle: int) -> None:
        os.close(handle)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)

    def sync_folder(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def touch(self, path: Path) -> None:
        os.utime(path)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()


_disks = [Disk()]


def disk() -> Disk:
    """The disk in use."""
    return _disks[-1]


@contextlib.contextmanager
def replaced_disk(other: Disk) -> Iterator[Disk]:
    """Put another disk in the place of the real one, for tests of what happens when it fails."""
    _disks.append(other)
    try:
        yield other
    finally:
        _disks.remove(other)


@dataclass(frozen=True, slots=True)
class Draft:
    """A file that was written whole and synced, and that nobody sees yet."""

    path: Path
    sha256: str
    n_bytes: int


class _DraftFile(io.RawIOBase):
    """Where a draft is written: hashes what passes, and hands it on in large pieces.

    Not a BufferedWriter, which writes again what it could not write when it is thrown away.
    """

    def __init__(self, path: Path) -> None:
        self._handle = disk().create(path)
        self._waiting = bytearray()
        self.hash = hashlib.sha256()
        self.n_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast('B')
        self.n_bytes += len(view)
        if len(view) >= LARGE_BYTES:  # a column: from where it lies
            self._pass_on()
            self._put(view)
        else:
            self._waiting += view
            if len(self._waiting) >= BUFFER_BYTES:
                self._pass_on()
        return len(view)

    def _pass_on(self) -> None:
        waiting, self._waiting = self._waiting, bytearray()
        self._put(memoryview(waiting))

    def _put(self, view: memoryview) -> None:
        self.hash.update(view)
        while len(view):
            view = view[disk().write(self._handle, view) :]

    def tell(self) -> int:
        return self.n_bytes

    def finish(self) -> None:
        """Everything on the disk, durably."""
        self._pass_on()
        disk().sync(self._handle)
        written = os.fstat(self._handle).st_size
        if written != self.n_bytes:
            raise OSError(errno.EIO, f'{written} bytes written of {self.n_bytes}')
        self.release()

    def release(self) -> None:
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            disk().close(handle)


def inside(root: Path, name: str) -> Path:
    """The path of a store's file or folder; StoreError if the name or a link would lead elsewhere.

    Every step below the root is looked at without following it. The root itself may be a link: that is its owner's.
    """
    path = root / name
    if name and not is_inside(name):
        raise StoreError(f'{name[:200]!r}: not the name of a file in {root}; it is left alone')
    if isinstance(root, CachedPath):
        return path  # object storage has no links
    steps = name.split('/') if name else []
    for n in range(1, len(steps) + 1):
        step = os.path.join(root, *steps[:n])
        try:
            mode = os.lstat(step).st_mode
        except (FileNotFoundError, NotADirectoryError):
            break
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            what = 'a link, which is not followed' if stat.S_ISLNK(mode) else 'neither a file nor a folder'
            raise StoreError(f'{step}: {what}; nothing but files and folders belongs in a store. Move it away')
    return path


def is_file_inside(root: Path, name: str) -> bool:
    """Whether a store's folder has a file of this name, inside itself."""
    try:
        return inside(root, name).is_file()
    except (StoreError, OSError):
        return False


def check_folders(root: Path) -> None:
    """Refuse a store one of whose own folders, or whose description, is a link."""
    if isinstance(root, CachedPath):
        return  # object storage has no links
    for name in OWN_NAMES:  # at every question: one call of the system for each
        try:
            mode = os.lstat(f'{root}/{name}').st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            inside(root, name)


def store_root(path: Path | str) -> Path:
    """The folder of a store: as given or, of an address such as s3://bucket/runs/may, the one that keeps its copies."""
    if isinstance(path, CachedPath):
        return path
    text = str(path)
    return addressed_root(path) if ':/' in text or f'/{MARK}/' in text else Path(path)


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of one store. Names are relative to it, with forward slashes, and nothing reaches out of it."""

    root: Path

    @contextlib.contextmanager
    def draft(self, write: Callable[[Any], object]) -> Iterator[Draft]:
        """Let `write` fill a file; it is synced, and gone afterwards unless it was published."""
        self.make(PENDING)
        path = self.root / PENDING / uuid.uuid4().hex
        raw: _DraftFile | None = None
        try:
            with naming_trouble(path):
                raw = _DraftFile(path)
                write(raw)
                raw.finish()
            yield Draft(path, raw.hash.hexdigest(), raw.n_bytes)
        finally:
            with contextlib.suppress(OSError):
                if raw is not None:
                    raw.release()
                disk().unlink(path)

    def publish(self, draft: Draft, name: str) -> bool:
        """Show a draft under its name; False if a file of that name is there. Durable after `sync`."""
        target = inside(self.root, name)
        if isinstance(target, CachedPath) and not _stays_here(name):
            target.bucket.probe(f'{CachedPath(self.root).key}/{LEASES}')
            if not target.bucket.create(target.key, Path(draft.path)):
                return False
        with naming_trouble(target):
            self.make(name.rpartition('/')[0])
            try:
                disk().link(draft.path, target)
            except FileExistsError:
                return isinstance(target, CachedPath)  # an older copy of what is gone from object storage
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                if target.exists():
                    return False
                disk().rename(draft.path, target)
        return True

    def create(self, name: str, content: bytes) -> bool:
        """Create a file durably; False if a file of that name is there, which is left as it is."""
        if not isinstance(self.root, CachedPath) and inside(self.root, name).exists():
            return False
        with self.draft(lambda stream: stream.write(content)) as made:
            is_new = self.publish(made, name)
        self.sync(name.rpartition('/')[0])
        return is_new

    def make(self, name: str) -> None:
        """Make a folder and those above it, durably; fine if it is there."""
        path = inside(self.root, name)
        if isinstance(path, CachedPath):
            path.local.mkdir(parents=True, exist_ok=True)  # object storage has no folders
            return
        if path.is_dir():
            return
        with naming_trouble(path):
            if not path.parent.is_dir():
                Folder(path.parent).make('')
            with contextlib.suppress(FileExistsError):
                disk().mkdir(path)
            disk().sync_folder(path.parent)

    def sync(self, *names: str) -> None:
        """Make what was published in these folders durable."""
        for name in names if not isinstance(self.root, CachedPath) else ():  # a put is durable when it returns
            with naming_trouble(self.root / name):
                disk().sync_folder(self.root / name)

    def read(self, name: str) -> bytes:
        """A file's bytes; FileNotFoundError if it is not there, StoreError if the disk does not give them."""
        path = inside(self.root, name)
        try:
            return disk().read(path.fetch() if isinstance(path, CachedPath) else path)
        except FileNotFoundError:
            raise
        except OSError as error:
            reason = error.strerror or error
            raise StoreError(f'{self.root / name}: cannot be read ({reason}); check the disk and repeat') from error

    def remove(self, name: str) -> None:
        """Remove a file; fine if it is gone."""
        path = inside(self.root, name)
        with naming_trouble(path), contextlib.suppress(FileNotFoundError):
            if isinstance(path, CachedPath):
                path.bucket.remove(path.key)
            disk().unlink(path)

    def mark(self, name: str) -> None:
        """Leave an empty file, which may be there. Not synced: it has to outlive a process, not a power cut."""
        path = inside(self.root, name)
        if isinstance(path, CachedPath):
            path.bucket.write(path.key, b'')
        path.touch()

    def names(self, name: str) -> list[str]:
        """What lies directly in a folder, sorted; nothing if there is no such folder."""
        path = inside(self.root, name)
        try:
            here = set(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            here = set()
        if isinstance(path, CachedPath):
            return sorted(
                {n for n in here if _stays_here(f'{name}/{n}'.lstrip('/'))} | set(path.bucket.names(path.key))
            )
        return sorted(here)

    def settled_ns(self, name: str) -> int:
        """When something in a folder was last added or removed; 0 where that is too recent, or too far away, to tell.

        Two changes within one tick of the clock bear the same time, so that a young one may hide another.
        """
        path = inside(self.root, name)
        try:
            changed_ns = 0 if isinstance(path, CachedPath) else os.stat(path).st_mtime_ns
        except OSError:
            return 0
        return changed_ns if time.time_ns() - changed_ns > SETTLED_AFTER_NS else 0

    def has_any(self, name: str) -> bool:
        """Whether anything lies in a folder."""
        path = inside(self.root, name)
        if isinstance(path, CachedPath):
            return next(path.bucket.keys(path.key), None) is not None
        try:
            with os.scandir(path) as entries:
                return next(entries, None) is not None
        except (FileNotFoundError, NotADirectoryError):
            return False

    def files(self, name: str = '') -> Iterator[str]:
        """Everything below a folder that is no folder, in order, by its name in the store; no link is followed."""
        base = inside(self.root, name)
        if isinstance(base, CachedPath):
            start = len(self.root.key) + 1 if isinstance(self.root, CachedPath) else 0
            yield from sorted(key[start:] for key in base.bucket.keys(base.key))
            return
        for folder, folders, files in os.walk(base):
            links = [f for f in folders if os.path.islink(os.path.join(folder, f))]
            folders.sort()
            for file in sorted([*files, *links]):
                yield (Path(folder) / file).relative_to(self.root).as_posix()


def _stays_here(name: str) -> bool:
    """Whether a file is this machine's alone, also of a store on object storage: drafts and locks."""
    return (name.startswith(f'{PENDING}/') and not name.endswith('.intent')) or name.endswith('.lock')


@contextlib.contextmanager
def naming_trouble(path: Path) -> Iterator[None]:
    """A disk that does not take what is written becomes a WriteError that names the file and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            todo = 'make room and repeat the command; what was acknowledged before is safe'
        elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            todo = 'give a store that may be written to'
        else:
            todo = 'check the disk and repeat the command; what was acknowledged before is safe'
        raise WriteError(f'{path}: cannot be written ({error.strerror or error}); {todo}', error.errno) from error


def write_durably(path: Path, content: bytes | str) -> None:
    """Put a file in its place, whole or not at all and durably, whatever was there; WriteError if that fails.

    The one way to write what must survive and is not part of a store, whose files are never replaced (`Folder`).
    """
    data = content.encode() if isinstance(content, str) else content
    draft = _draft_beside(path)
    raw: _DraftFile | None = None
    try:
        with naming_trouble(path):
            raw = _DraftFile(draft)
            raw.write(data)
            raw.finish()
            _move_in(draft, path)
    finally:
        with contextlib.suppress(OSError):
            if raw is not None:
                raw.release()
            if draft.exists():
                disk().unlink(draft)


@contextlib.contextmanager
def put_durably(path: Path) -> Iterator[Path]:
    """A name beside `path` for whoever writes a file or a folder by name; it is moved in, durably, if all went well."""
    draft = _draft_beside(path)
    try:
        yield draft
        move_durably(draft, path)
    finally:
        if draft.is_dir():
            shutil.rmtree(draft)
        draft.unlink(missing_ok=True)


def move_durably(draft: Path, path: Path) -> None:
    """Sync what was written under another name of the same folder, and give it its own."""
    with naming_trouble(path):
        for file in sorted(draft.rglob('*')) if draft.is_dir() else [draft]:
            if file.is_file():
                _sync_file(file)
            else:
                disk().sync_folder(file)
        _move_in(draft, path)


def _draft_beside(path: Path) -> Path:
    return path.with_name(f'.{uuid.uuid4().hex}{path.suffix}')  # writers of tables and videos look at the suffix


def _sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        disk().sync(handle)
    finally:
        os.close(handle)


def _move_in(draft: Path, path: Path) -> None:
    disk().rename(draft, path)
    disk().sync_folder(path.parent)


@contextlib.contextmanager
def held_lock(root: Path, name: str, *, shared: bool = False, wait_s: float = 0.0, busy: str) -> Iterator[int]:
    """Hold a lock file; `busy` says what is under way if it can't be had within `wait_s`."""
    path = root / name
    with contextlib.ExitStack() as stack:
        if isinstance(root, CachedPath) and name not in (WRITE_LOCK, ENTRY_LOCK):
            Folder(root).make('')
            stack.enter_context(held_lease(root, name, shared=shared, wait_s=wait_s, busy=busy))
        yield stack.enter_context(_held_file(path, shared=shared, wait_s=wait_s, busy=busy))


@contextlib.contextmanager
def _held_file(path: Path, *, shared: bool, wait_s: float, busy: str) -> Iterator[int]:
    with naming_trouble(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    _held.add(handle)
    try:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise StoreError(f'{path.parent}: {busy}') from error
                time.sleep(POLL_S)
            except OSError as error:
                reason = error.strerror or error
                raise StoreError(
                    f'{path}: this file system gives no locks ({reason}); mount it with locks, or give another store'
                ) from error
        yield handle
    finally:
        _held.discard(handle)
        with contextlib.suppress(OSError):  # closed by code that closes descriptors it does not own
            os.close(handle)


_held: set[int] = set()


def _let_go() -> None:
    """A forked child holds no lock: it would keep it for as long as it lives."""
    for handle in _held:
        with contextlib.suppress(OSError):
            os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


@contextlib.contextmanager
def shared_writing(root: Path) -> Iterator[None]:
    """Writers hold this from their first file to their commit, so that nobody sweeps it away in between."""
    with held_lock(root, WRITE_LOCK, shared=True, wait_s=60.0, busy='being swept; repeat the command'):
        yield


@contextlib.contextmanager
def sole_entry(root: Path) -> Iterator[None]:
    """Held from the last check of what an entry says to the entry itself, so that no other comes between the two.

    Always taken after `shared_writing`. On object storage it holds among the processes of one machine.
    """
    with held_lock(root, ENTRY_LOCK, wait_s=60.0, busy='another process is writing to its log; repeat the command'):
        yield


# A lock on object storage: a lease that its holder renews, seen by all machines that use the store.
# Each holder writes an object of its own and then looks for others. Listings show every object that was acknowledged
# before, so of two that come at once at least one sees the other. A holder that is gone stops renewing, and its lease
# runs out. Machines' clocks must agree within `SLACK_S`. Should two holders overlap all the same, ids are
# deterministic and an attempt counts once, so work is done twice and nothing is counted twice.

LEASE_S = 90.0
SLACK_S = 30.0
RENEW_S = 20.0


@contextlib.contextmanager
def held_lease(root: CachedPath, name: str, *, shared: bool, wait_s: float, busy: str) -> Iterator[None]:
    """Hold a lease; `busy` says what is under way if it can't be had within `wait_s`."""
    bucket, folder = root.bucket, f'{root.key}/{LEASES}/{name}'
    own = f'{"shared" if shared else "alone"}-{uuid.uuid4().hex}'
    deadline = time.monotonic() + wait_s
    ended = threading.Event()

    def renew() -> None:
        bucket.write(f'{folder}/{own}', json.dumps({'until': time.time() + LEASE_S}).encode())

    def keep() -> None:
        while not ended.wait(RENEW_S):
            with contextlib.suppress(StoreError):  # tried again in time; a lease that runs out costs double work
                renew()

    try:
        while True:
            renew()
            if not _rivals(root, name, own, shared=shared):
                break
            bucket.remove(f'{folder}/{own}')
            if time.monotonic() >= deadline:
                raise StoreError(f'{root.address}: {busy}')
            time.sleep(random.uniform(0.1, 0.5))
        threading.Thread(target=keep, daemon=True, name='lease').start()
        yield
    finally:
        ended.set()
        bucket.remove(f'{folder}/{own}')


def _rivals(root: CachedPath, name: str, own: str, *, shared: bool) -> list[str]:
    """Other holders that are alive and can't hold it together with us; what ran out long ago is removed."""
    bucket, folder = root.bucket, f'{root.key}/{LEASES}/{name}'
    rivals = []
    for other in bucket.names(folder):
        if other == own or (shared and other.startswith('shared-')):
            continue
        try:
            until_s = float(json.loads(bytes(bucket.read(f'{folder}/{other}')))['until'])
        except FileNotFoundError:
            continue
        if until_s + SLACK_S > time.time():
            rivals.append(other)
        else:
            bucket.remove(f'{folder}/{other}')
    return rivals


def is_inside(name: object) -> bool:
    """Whether a name, with forward slashes, can only be that of something inside the folder it is joined to."""
    if not isinstance(name, str) or UNFIT.search(name) is not None or len(name.encode()) > MOST_PLACE_BYTES:
        return False
    return all(p not in ('', '.', '..') and len(p.encode()) <= MOST_NAME_BYTES for p in name.split('/'))
