"""The commit log: hash-chained entries, each a file that is created once and names the entries before it.

    log/<time>-<id>.json     one entry; the id is the SHA-256 of its bytes
    log/<time>-<hash>.pack   entries that a compaction or a merge put into one file, byte for byte

Two writers make two heads, and the next entry names both. Nothing is appended to or renamed, so that copies can be
joined by taking all files together. The head stands for everything before it: whoever noted it can tell later whether
anything was taken away or changed.

One commit: files that go into a store together, and count once the log entry that names them is durable.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import heapq
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from robotrials.errors import InputError, SetupError, StoreError
from robotrials.record.folder import PENDING, Folder, is_inside, shared_writing, sole_entry
from robotrials.record.part import (
    NAMES,
    Entry,
    EntryKind,
    LoggedFile,
    entry_id,
    file_hash,
    logged_part,
    new_entry,
    parse_entry,
    part_name,
)
from robotrials.value import dataclass, pattern

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


# What is not as it should be in a store: one finding for each file, episode or edit.


class FindingKind(enum.StrEnum):
    DAMAGED = 'damaged'  # bytes that are not what was written
    MISSING = 'missing'  # a file that the log or another file names
    FOREIGN = 'foreign'  # a file that robotrials did not write, or that the log does not know
    SCHEMA = 'schema'  # another schema version
    RECORD = 'record'  # a row that breaks the record's rules
    CLASH = 'clash'  # one id and attempt, two contents; or two valid attempts
    EDIT = 'edit'  # an edit that can't be read or applied
    UNLOGGED = 'unlogged'  # a store of an older version without a commit log: nothing can be missed
    SIGNATURE = 'signature'  # an entry that bears a name or a key, and was not signed by it
    LOST = 'lost'  # known damage: a repair has set it aside
    LEFTOVER = 'leftover'  # harmless: what a killed writer or compaction left behind


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be, and the file it is in."""

    kind: FindingKind
    path: Path
    detail: str

    @property
    def is_damage(self) -> bool:
        return self.kind not in (FindingKind.LEFTOVER, FindingKind.UNLOGGED, FindingKind.LOST)

    @property
    def is_loss(self) -> bool:
        """Whether something that was recorded can't be read."""
        return self.kind not in (FindingKind.LEFTOVER, FindingKind.UNLOGGED, FindingKind.FOREIGN, FindingKind.CLASH)


# Who signed what: Ed25519 keys of people and cells, and the signatures of log entries.
# A key is a file of its owner, 0600, made by `robotrials store key`; whoever has one signs every entry they write, and
# whoever has none writes entries that nobody signed. A signature covers the whole entry with its parents: it fits no
# other entry, and no other place in a log. Whose key is whose is what a reader says, in a list of known keys; a log
# can't say it of itself.

KEY_VARIABLE = 'ROBOTRIALS_KEY'
TAG = b'robotrials log entry\n'  # what a signature is about: one made for something else never fits
PUBLIC = pattern(r'[0-9a-f]{64}')
SIGNATURE = pattern(r'[0-9a-f]{128}')


def key_folder() -> Path:
    """Where a user's own key and the keys they know lie."""
    return Path(os.environ.get('XDG_CONFIG_HOME') or Path.home() / '.config') / 'robotrials'


def key_path() -> Path:
    """The file of the key that this process signs with; it need not be there."""
    given = os.environ.get(KEY_VARIABLE)
    return Path(given) if given else key_folder() / 'key'


def known_path() -> Path:
    """The list of keys whose owners the user knows."""
    return key_folder() / 'known_keys'


def make_key(path: Path) -> str:
    """A new key in a file that only its owner can read; its public half. One that is there is never replaced."""
    key = _library().Ed25519PrivateKey.generate()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, 'w', encoding='ascii') as stream:
        stream.write(key.private_bytes_raw().hex() + '\n')
        stream.flush()
        os.fsync(stream.fileno())
    return public_half(key)


def own_public() -> str:
    """The public half of the key that this process signs with; '' if it has none."""
    key = _own_key()
    return '' if key is None else public_half(key)


def public_half(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


def signed(entry: Entry) -> Entry:
    """The entry with the signature of this process's key, or as it is if there is no key."""
    key = _own_key()
    if key is None:
        return entry
    named = dataclasses.replace(entry, signer=public_half(key), signature='')
    return dataclasses.replace(named, signature=key.sign(TAG + named.line()).hex())


def check_signature(entry: Entry) -> str:
    """What is wrong with an entry's signature; '' if nothing is, or if nobody signed it."""
    if not entry.signer and not entry.signature:
        return ''
    if PUBLIC.fullmatch(entry.signer) is None or SIGNATURE.fullmatch(entry.signature) is None:
        return 'its signature is not one'
    if not is_signed(
        entry.signer, bytes.fromhex(entry.signature), TAG + dataclasses.replace(entry, signature='').line()
    ):
        return f'its signature is not of key {entry.signer[:12]}, or is of another entry'
    return ''


def is_signed(public: str, signature: bytes, message: bytes) -> bool:
    """Whether the owner of a public key signed these very bytes."""
    from cryptography.exceptions import InvalidSignature

    try:
        _library().Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Signing:
    """How many entries of one kind and name were signed with one key ('': with none)."""

    by: str
    key: str
    owner: str  # of the key, by the reader's list; '' if the list does not have it
    n_entries: int
    n_closings: int


def signings(entries: Iterable[Entry], known: Mapping[str, str]) -> tuple[Signing, ...]:
    """Who signed what of a log, and what nobody signed. known: public key -> owner."""
    counts: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        count = counts.setdefault((entry.by, entry.signer), [0, 0])
        count[0] += 1
        count[1] += entry.kind == 'close'
    return tuple(
        Signing(by=by, key=key, owner=known.get(key, ''), n_entries=n, n_closings=closings)
        for (by, key), (n, closings) in sorted(counts.items())
    )


def check_owner(entry: Entry, known: Mapping[str, str]) -> str:
    """What is wrong with who signed an entry: it bears a name whose key is known, and another's signature or none."""
    keys = [key for key, owner in known.items() if owner == entry.by]
    if not keys or entry.signer in keys:
        return ''
    other = known.get(entry.signer) or f'key {entry.signer[:12]}'
    return f'it bears the name of {entry.by}, and {f"{other} signed it" if entry.signer else "nobody signed it"}'


def read_known(path: Path | None = None) -> dict[str, str]:
    """Public key -> owner, from lines of NAME and KEY; a file that is not there knows nobody."""
    source = path or known_path()
    if not source.exists():
        return {}
    known: dict[str, str] = {}
    for number, line in enumerate(source.read_text(encoding='utf-8').splitlines(), start=1):
        name, _, key = line.strip().rpartition(' ')
        if not line.strip() or line.startswith('#'):
            continue
        if not name.strip() or PUBLIC.fullmatch(key) is None:
            raise InputError(f'{source} line {number}: wanted a name and a public key of 64 hex digits')
        known[key] = name.strip()
    return known


def trust_key(name: str, key: str) -> None:
    """Note whose key this is; a key has one owner, and an owner may have several."""
    if not name.strip() or '\n' in name or PUBLIC.fullmatch(key) is None:
        raise InputError(f'wanted a name and a public key of 64 hex digits, found {name!r} and {key!r}')
    owner = read_known().get(key)
    if owner not in (None, name):
        raise InputError(f'{known_path()}: this key is {owner}; take that line out first if it is not')
    if owner is None:
        known_path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(known_path(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 'a') as stream:
            stream.write(f'{name} {key}\n')


def _own_key() -> Ed25519PrivateKey | None:
    path = key_path()
    try:
        return load_key(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # a service may have no home
        if os.environ.get(KEY_VARIABLE):
            raise InputError(
                f'{path}: no key here, and {KEY_VARIABLE} names it; make it: robotrials store key'
            ) from None
        return None


def load_key(path: Path) -> Ed25519PrivateKey:
    """The key in a file of `make_key`, which nobody else may be able to read."""
    state = path.stat()
    if state.st_mode & 0o077:
        raise InputError(f'{path}: others can read this key; run: chmod 600 {path}')
    return _read_key(path, state.st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _read_key(path: Path, written_ns: int) -> Ed25519PrivateKey:
    try:
        key: Ed25519PrivateKey = _library().Ed25519PrivateKey.from_private_bytes(
            bytes.fromhex(path.read_text('ascii').strip())
        )
        return key
    except ValueError as error:
        raise InputError(f'{path}: not a key of robotrials store key ({error})') from error


def _library() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError as error:
        raise SetupError('signatures need the package cryptography; install robotrials again') from error
    return ed25519


LOG = 'log'
ENTRY_NAME = pattern(r'^(?P<time>[0-9a-f]{16})-(?P<id>[0-9a-f]{64})\.(?P<form>json|pack)$')


@dataclass(slots=True)
class Log:
    """The entries of one store, as far as they could be read."""

    root: Path
    entries: dict[str, Entry] = field(default_factory=dict)
    damage: list[Finding] = field(default_factory=list)
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)  # file name -> ids in it
    own: set[str] = field(default_factory=set)  # files that this process knows to be durable
    state: Any = None  # what others derived from these entries but `added`; dropped when others add some
    added: list[tuple[str, Entry]] = field(default_factory=list)  # by this process since, each after all before it
    settled_ns: int = 0  # when the folder had changed last, of a listing that was all known; 0: list it again
    guard: threading.RLock = field(default_factory=threading.RLock)
    _named: set[str] = field(default_factory=set)  # parents of all entries
    _heads: set[str] = field(default_factory=set)  # kept up with every entry: a commit must not cost more in a long log

    def heads(self) -> tuple[str, ...]:
        """The entries that no other names: one, unless writers worked side by side."""
        return tuple(sorted(self._heads))

    def add(self, name: str, entry: Entry) -> None:
        """Take in an entry; once is enough."""
        if name in self.entries:
            return
        self.entries[name] = entry
        self._named.update(entry.parents)
        self._heads.difference_update(entry.parents)
        if name not in self._named:
            self._heads.add(name)

    def clear(self) -> None:
        for held in (self.sources, self.entries, self._named, self._heads, self.added):
            held.clear()

    def dangling(self) -> dict[str, list[str]]:
        """Entries that are named as parents and are not there -> who names them."""
        missing: dict[str, list[str]] = {}
        for name, entry in self.entries.items():
            for parent in entry.parents:
                if parent not in self.entries:
                    missing.setdefault(parent, []).append(name)
        return missing

    def ordered(self) -> list[tuple[str, Entry]]:
        """All entries, parents before children; side by side, by time and id. Independent of who merged whom."""
        waiting = {name: sum(p in self.entries for p in entry.parents) for name, entry in self.entries.items()}
        children: dict[str, list[str]] = {}
        for name, entry in self.entries.items():
            for parent in entry.parents:
                children.setdefault(parent, []).append(name)
        ready = [(self.entries[name].at, name) for name, count in waiting.items() if not count]
        heapq.heapify(ready)
        order = []
        while ready:
            _, name = heapq.heappop(ready)
            order.append((name, self.entries[name]))
            for child in children.get(name, ()):
                waiting[child] -= 1
                if not waiting[child]:
                    heapq.heappush(ready, (self.entries[child].at, child))
        return order

    def ancestors(self, name: str) -> set[str]:
        """An entry and everything before it, as far as it is there."""
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            current = waiting.pop()
            if current in self.entries and current not in seen:
                seen.add(current)
                waiting.extend(self.entries[current].parents)
        return seen


def is_logged(root: Path) -> bool:
    """Whether a store has a commit log at all."""
    return Folder(root).has_any(LOG)


_logs: dict[tuple[Path, Path], Log] = {}  # by where a store is, and by how it was named: what is relative may move
_guard = threading.Lock()


def read_log(root: Path, *, fresh: bool = False) -> Log:
    """The log of a store. Entries never change, so those read before are kept, unless `fresh`."""
    if fresh:
        log = Log(root)
    else:
        with _guard:
            log = _logs.setdefault((root.resolve(), root), Log(root))
    with log.guard:
        _refresh(log, reads_all=fresh)
    return log


def _refresh(log: Log, *, reads_all: bool, tries: int = 5) -> None:
    for left in reversed(range(tries)):
        try:
            _read_new(log, reads_all=reads_all)
            return
        except FileNotFoundError as error:  # packed between listing and reading
            if not left:
                raise StoreError(f'{log.root}: its log changes faster than it can be read ({error})') from error


def _read_new(log: Log, *, reads_all: bool) -> None:
    """Read files that are new; packs first, since a file whose entry a pack has need not be opened to be known."""
    settled_ns = Folder(log.root).settled_ns(LOG)
    if settled_ns and settled_ns == log.settled_ns:  # a verb asks twenty times, and a long log is long to list
        return
    names = Folder(log.root).names(LOG)
    if log.sources.keys() == set(names) and all(f.path.name in log.sources for f in log.damage):
        log.settled_ns = settled_ns
        return
    log.settled_ns = 0
    n_before, damage_before = len(log.entries), list(log.damage)
    log.damage = [f for f in log.damage if f.path.name in log.sources]
    for name in sorted(names, key=lambda name: not name.endswith('.pack')):
        if name not in log.sources:
            match = ENTRY_NAME.match(name)
            is_known = match is not None and match['form'] == 'json' and match['id'] in log.entries
            ids = (match['id'],) if match is not None and is_known and not reads_all else _read_file(log, name)
            if ids is not None:
                log.sources[name] = ids
    gone = log.sources.keys() - set(names)
    there = {i for name, ids in log.sources.items() if name not in gone for i in ids}
    if any(i not in there for name in gone for i in log.sources[name]):  # taken away: start over from what is there
        log.clear()
        log.state = None
        _read_new(log, reads_all=reads_all)
        return
    for name in gone:  # packed
        del log.sources[name]
    if len(log.entries) != n_before or log.damage != damage_before:
        log.state = None
        log.added.clear()


def _read_file(log: Log, name: str) -> tuple[str, ...] | None:
    """The ids in one file; a file that does not fit its name adds to the damage. None: not as it stands just now."""
    path = log.root / LOG / name
    match = ENTRY_NAME.match(name)
    if match is None:
        log.damage.append(Finding(FindingKind.FOREIGN, path, 'not an entry of the commit log'))
        return ()
    try:
        content = Folder(log.root).read(f'{LOG}/{name}')
    except StoreError as error:
        log.damage.append(Finding(FindingKind.DAMAGED, path, str(error).removeprefix(f'{path}: ')))
        return None
    if entry_id(content) != match['id']:
        log.damage.append(Finding(FindingKind.DAMAGED, path, 'its bytes do not fit its name: an entry is lost'))
        if match['form'] == 'json':
            return None  # read again next time: it may have been put back
    ids = []
    for line in content.splitlines(keepends=True):
        try:
            entry = parse_entry(line, where=str(path))
        except StoreError as error:
            log.damage.append(Finding(FindingKind.DAMAGED, path, str(error).removeprefix(f'{path}: ')))
            continue
        ids.append(entry_id(line))
        log.add(ids[-1], entry)
    return tuple(ids)


def add_entry(
    root: Path, kind: EntryKind, *, by: str = '', files: Sequence[LoggedFile] = (), at: str = '',
    body: Mapping[str, Any] | None = None, parents: Iterable[str] = (),
) -> tuple[str, Entry]:  # fmt: skip
    """Add one entry after all heads that are there now, durably; its id and itself."""
    log, folder = read_log(root), Folder(root)
    with log.guard:
        if len(log.sources) > len(log.own) or log.sources.keys() - log.own:
            # What others wrote may not be durable yet; an entry must not outlive its parents.
            folder.sync(LOG)
            log.own.update(log.sources)
        entry = signed(new_entry(kind, (*log.heads(), *parents), by=by, files=files, body=body, at=at))
        line = entry.line()
        identity = entry_id(line)
        name = f'{time.time_ns():016x}-{identity}.json'
        folder.create(f'{LOG}/{name}', line)
        log.add(identity, entry)
        log.sources[name] = (identity,)
        log.own.add(name)
        log.added.append((identity, entry))
    return identity, entry


def add_pack(root: Path, lines: Sequence[bytes]) -> str:
    """Put entries into one file, all at once; the name of the file, or '' if there are none."""
    if not lines:
        return ''
    content = b''.join(lines)
    name = f'{time.time_ns():016x}-{entry_id(content)}.pack'
    Folder(root).create(f'{LOG}/{name}', content)
    return name


def pack_log(root: Path, *, stale_after_s: float, fresh: bool = True) -> int:
    """Put many entries into one file, and remove files older than `stale_after_s` that only repeat packed entries.

    Without `fresh` only files that this process has not read yet are read, beside those that go into the pack.
    """
    log = read_log(root, fresh=fresh)
    folder = Folder(root)
    single = [name for name in log.sources if name.endswith('.json') and log.sources[name]]
    packed = {i for name, ids in log.sources.items() if name.endswith('.pack') for i in ids}
    loose = [name for name in single if log.sources[name][0] not in packed]
    if len(loose) > 1:
        lines = [folder.read(f'{LOG}/{name}') for name in loose]
        add_pack(root, [line for line in lines if entry_id(line) in log.entries])
        packed.update(log.sources[name][0] for name in loose)
    before = time.time() - stale_after_s
    for name in single:
        if log.sources[name][0] in packed and _written_at(root / LOG / name) <= before:
            folder.remove(f'{LOG}/{name}')
    return len(loose) if len(loose) > 1 else 0


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float('inf')


INTENT = '.intent'


def announced(root: Path) -> set[str]:
    """The files that writers were about to show, and may have shown."""
    folder = Folder(root)
    names: set[str] = set()
    for name in folder.names(PENDING):
        if name.endswith(INTENT):
            with contextlib.suppress(FileNotFoundError, StoreError):
                names.update(folder.read(f'{PENDING}/{name}').decode('utf-8', 'replace').split('\n'))
    # Who sweeps removes what these name: nothing that a writer of ours never announces.
    return {name for name in names if is_inside(name) and NAMES.fullmatch(name)}


class Commit:
    """Files on their way into a store; several threads may add to one commit."""

    def __init__(self, root: Path) -> None:
        self._folder = Folder(root)
        self._files: list[LoggedFile] = []
        self._folders: set[str] = set()
        self._intents: list[str] = []
        self._guard = threading.Lock()

    def announce(self, names: Iterable[str]) -> None:
        """Say durably which files are about to be shown: if this process ends before its entry, they are leftovers."""
        listed = sorted(names)
        if listed:
            content = '\n'.join(listed).encode()
            name = f'{PENDING}/{uuid.uuid4().hex}{INTENT}'
            self._folder.make(PENDING)
            self._folder.create(name, content)
            self._intents.append(name)

    def withdraw(self) -> None:
        """The entry is there, or this process gives up and knows it."""
        for name in self._intents:
            self._folder.remove(name)

    def add_part(self, folder: str, write: Callable[[IO[bytes]], object]) -> str:
        """Let `write` make a part of `folder`; its name."""
        with self._folder.draft(write) as draft:
            name = part_name(draft, time.time_ns())
            logged = logged_part(f'{folder}/{name}', draft)
            self._folder.publish(draft, logged.name)
        self._keep(logged, folder)
        return name

    def add_file(self, name: str, content: bytes | Path) -> None:
        """Put a file into the store under its name; the same again is fine, other content under it is refused."""
        with self._folder.draft(lambda stream: _copy(content, stream)) as draft:
            logged = LoggedFile(name=name, sha256=draft.sha256, n_bytes=draft.n_bytes)
            if not self._folder.publish(draft, name):
                self._check_same(logged)
        self._keep(logged, name.rpartition('/')[0])

    def _check_same(self, logged: LoggedFile) -> None:
        path = self._folder.root / logged.name
        if file_hash(path) != logged.sha256:
            raise StoreError(f'{path}: is there with other content; nothing was added. Give it another name')

    def _keep(self, logged: LoggedFile, folder: str) -> None:
        with self._guard:
            self._files.append(logged)
            self._folders.add(folder)

    def finish(
        self, kind: EntryKind, body: Mapping[str, Any] | None = None, *, by: str = '',
        check: Callable[[], object] = lambda: None,
    ) -> Entry:  # fmt: skip
        """Make the files durable, then the entry that names them: from now on they count.

        `check` raises if the entry may not be written; no other process writes one between the check and the entry.
        """
        self._folder.sync(*sorted(self._folders))
        with sole_entry(self._folder.root):
            check()
            return add_entry(self._folder.root, kind, by=by, files=self._files, body=body)[1]


def _copy(content: bytes | Path, stream: IO[bytes]) -> None:
    if isinstance(content, bytes):
        stream.write(content)
        return
    import shutil

    with content.open('rb') as source:
        shutil.copyfileobj(source, stream, 1 << 20)


@contextmanager
def commit(root: Path) -> Iterator[Commit]:
    """A commit into a store with a log; nothing is swept away while it is under way."""
    check_logged(root)
    with shared_writing(root):
        under_way = Commit(root)
        yield under_way
        under_way.withdraw()


def check_logged(root: Path) -> None:
    """Refuse to write into a store of an older version: what it holds has to be adopted first, knowingly."""
    if not is_logged(root):
        raise StoreError(
            f'{root}: a store of an older version, without a commit log; to add one, run: robotrials store adopt {root}'
        )


def log_entry(root: Path, kind: EntryKind, *, by: str = '', body: Mapping[str, Any] | None = None) -> Entry:
    """Log something that brings no files."""
    check_logged(root)
    return add_entry(root, kind, by=by, body=body)[1]
