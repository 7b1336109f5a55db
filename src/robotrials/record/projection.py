"""What is worked out of a record once and asked for often: kept in the user's cache, and never in place of the record.

What was made of a file is kept under a key that names all it was made from: the digest that the log states of the file,
the source of the code, and its options; in it, each row under the episode as it is read now (edits and names included).
Whatever changes one of them asks for another, so that nothing has to be removed to stay true. What is kept carries a
digest of its own: if it was damaged, it is worked out again.

The cache is one SQLite file that anybody may delete at any time. Where it cannot be written (no home, a full disk, a
folder that others may write to) everything is worked out as if there were none, and `unkept` has the reason for whoever
says it. A question writes nothing into a store.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import operator
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np

from robotrials.errors import StoreError
from robotrials.old_name import caches, setting
from robotrials.record.episode import Episode
from robotrials.record.part import PartInfo, check_part

if TYPE_CHECKING:
    from robotrials.record.blinding import Where
    from robotrials.record.part import LoggedFile
    from robotrials.record.store import Store
    from robotrials.record.trajectory import Trajectory

T = TypeVar('T')
Key = tuple[str, int]
SWITCH = 'ROBOTRIALS_PROJECTIONS'  # 'off': everything is worked out anew, and nothing is kept
FILE = 'projections.sqlite'
DIGEST_BYTES = 16
MOST_BYTES = 2 << 30  # beyond that the cache begins anew
BATCH = 512
PARTS = ('first', 'rest')  # of packed values
PATIENCE_S = 2.0  # for another process that writes; without its turn by then, a row is not kept
BASE = ('robotrials.record', 'robotrials.stats', 'robotrials.errors', 'robotrials.value')  # code under every projection
FIELDS = operator.attrgetter(*(f.name for f in dataclasses.fields(Episode)))
SOURCES = ('.py', '.toml', '.so', '.pyd')
unkept: set[str] = set()  # why something that was worked out in this process could not be kept


@dataclass(frozen=True, slots=True, eq=False)
class Projection(Generic[T]):
    """A value of one episode and its trajectory that is worth keeping, and how it becomes JSON and is read again.

    Packed, it is a pair: what `kept_values` gives, and the rest, which is kept beside it and passed over there.
    """

    version: str  # of the code and of every option: see `version_of`
    make: Callable[[Episode, Trajectory], T]
    pack: Callable[[T], tuple[Any, Any]]
    unpack: Callable[[Episode, tuple[Any, Any]], T]


def projected(
    store: Store, projection: Projection[T], *, where: Where | None = None, sound: set[str] | None = None
) -> Iterator[tuple[Episode, T]]:
    """The value of every counted episode that has a trajectory, in the order of `Store.trajectories`.

    Files of trajectories all of whose values are kept are not parsed. Their bytes are checked against the log all the
    same, so that damage shows as it does without a cache. `sound` has the files that this question has checked already.
    """
    sound = set() if sound is None else sound
    if store.hides_columns:  # what is shown of a trajectory depends on who asks, and when
        for episode, trajectory in store.trajectories(where=where):
            yield episode, projection.make(episode, trajectory)
        return
    with Kept() as kept:
        for part, episodes in store.recorded_parts(where=where):
            for name in part.trajectories:
                yield from _of_file(store, part, name, episodes, projection, kept, sound)


def _of_file(
    store: Store, part: PartInfo, name: str, episodes: Mapping[Key, Episode], projection: Projection[T], kept: Kept,
    sound: set[str],
) -> Iterator[tuple[Episode, T]]:  # fmt: skip
    logged = part.files.get(f'trajectories/{name}')
    if logged is None:  # a store without a log: nothing says what the file should hold
        for episode, trajectory in store.trajectories_in(name, None, episodes):
            yield episode, projection.make(episode, trajectory)
        return
    place, beside = (key_of(projection.version, logged.sha256, which) for which in PARTS)
    stored, rest = kept.get(place), kept.get(beside)
    if stored is None or rest is None or stored[1].keys() != rest.keys():  # one was damaged, or is another process's
        stored, rest = None, {}
    known = _known(stored, episodes)
    if known is not None and _is_sound(store, name, logged, sound):
        for episode, row_name in known:
            yield episode, projection.unpack(episode, (stored[1][row_name], rest[row_name]))
        return
    first: dict[str, Any] = {} if stored is None else stored[1]
    everyone: list[Key] = []
    n_known = len(first)
    for episode, trajectory in store.trajectories_in(name, logged, episodes, seen=everyone):
        row_name = _row_name(episode)
        if row_name in first:
            value = projection.unpack(episode, (first[row_name], rest[row_name]))
        else:
            value = projection.make(episode, trajectory)
            first[row_name], rest[row_name] = projection.pack(value)
        yield episode, value
    if not store.skipped and (stored is None or len(first) > n_known):
        kept.put(place, [everyone, first])
        kept.put(beside, rest)


def _known(stored: Any, episodes: Mapping[Key, Episode]) -> list[tuple[Episode, str]] | None:
    """The episodes of a file and the name of the row that is kept of each; None where something is not."""
    if stored is None:
        return None
    keys, rows = stored
    asked = [episodes[key] for i, attempt in keys if (key := (i, attempt)) in episodes]
    known = [(episode, _row_name(episode)) for episode in asked]
    return known if all(name in rows for _, name in known) else None


def kept_values(
    store: Store, version: str, *, where: Where | None = None, sound: set[str] | None = None
) -> tuple[dict[Key, Any], str] | None:
    """The first part of the packed value of every episode that `projected` would give; None where one is not kept.

    For a question that needs a little of each value: none is unpacked, and nothing that makes one is imported. Files
    are checked as `projected` checks them, with the same `sound`. Beside it a digest of all that the values were made
    of, under which an answer that was worked out of them may be kept (`kept_answer`).
    """
    if store.hides_columns:
        return None
    sound = set() if sound is None else sound
    files = {n: part.files.get(f'trajectories/{n}') for part in store.parts() for n in part.trajectories}
    values: dict[Key, Any] = {}
    sources = []
    with Kept() as kept:
        if not all(log is not None and kept.has(key_of(version, log.sha256, PARTS[0])) for log in files.values()):
            return None
        for part, episodes in store.recorded_parts(where=where):
            for name in part.trajectories:
                logged = part.files[f'trajectories/{name}']
                stored = kept.get(key_of(version, logged.sha256, PARTS[0]))
                known = _known(stored, episodes)
                if known is None or not _is_sound(store, name, logged, sound):
                    return None
                values |= {episode.key: stored[1][row_name] for episode, row_name in known}
                sources += [logged.sha256, *(row_name for _, row_name in known)]
    return values, key_of(version, *sources).hex()


def kept_answer(key: bytes, make: Callable[[], T], classes: Callable[[], Iterable[type]]) -> T:
    """What `make` gives, or gave under the same key: scalars, tuples and mappings of them, and values of `classes`.

    These are dataclasses and enums; they are asked for, and so imported, only where something is built of them.
    """
    with Kept() as kept:
        stored = kept.get(key)
        if stored is not None:
            known = {c.__name__: c for c in classes()}
            return cast('T', _as_values(stored[0], known))
        answer = make()
        kept.put(key, [_as_json(answer)])
    return answer


MAPPING = ''  # in the place of a class's name


def _as_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {type(value).__name__: [_as_json(getattr(value, f.name)) for f in dataclasses.fields(value)]}
    if isinstance(value, enum.Enum):  # before texts: some are texts too
        return {type(value).__name__: value.name}
    if isinstance(value, Mapping):
        return {MAPPING: [[_as_json(k), _as_json(v)] for k, v in value.items()]}
    if isinstance(value, list | set | frozenset):
        raise TypeError(f'{type(value).__name__}: would be read again as a tuple')
    return [*map(_as_json, value)] if isinstance(value, tuple) else value


def _as_values(stored: Any, classes: Mapping[str, type]) -> Any:
    if isinstance(stored, dict):
        ((name, values),) = stored.items()
        if name == MAPPING:
            return {_as_values(k, classes): _as_values(v, classes) for k, v in values}
        made: Any = classes[name]
        return made[values] if isinstance(values, str) else made(*(_as_values(value, classes) for value in values))
    return tuple(_as_values(value, classes) for value in stored) if isinstance(stored, list) else stored


def episodes_digest(episodes: Iterable[Episode]) -> str:
    """A digest of every field of these episodes, in their order."""
    return key_of(*map(_row_name, episodes)).hex()


def _row_name(episode: Episode) -> str:
    # The text of every field: what an edit, a closing or another name of a task changes, changes the name.
    return hashlib.sha256(repr(FIELDS(episode)).encode('utf-8', 'surrogatepass')).hexdigest()[:32]


def _is_sound(store: Store, name: str, logged: LoggedFile, sound: set[str]) -> bool:
    """Whether a file is as it was written; if not, reading it says so in the words of every reader."""
    if name not in sound:
        try:
            check_part(store.path / 'trajectories' / name, logged)
        except StoreError:
            return False
        sound.add(name)
    return True


# Keys and versions.


def key_of(*parts: str) -> bytes:
    """A key of these texts, none of which can pass for another's end or beginning."""
    framed = b''.join(len(text := part.encode('utf-8', 'surrogatepass')).to_bytes(8, 'little') + text for part in parts)
    return hashlib.sha256(framed).digest()


def version_of(what: str, packages: Iterable[str], *options: object) -> str:
    """The version of a projection: its name, the source of its code, numpy, scipy, and every option by value."""
    numbers = np.__version__, _scipy_version()
    return key_of(what, *numbers, *map(_source_digest, (*BASE, *packages)), *map(digest_of, options)).hex()


@functools.cache
def _scipy_version() -> str:
    """What scipy says of its version, without importing it: on a hit, nothing else may need it."""
    spec = find_spec('scipy')
    if spec is None or spec.origin is None:
        return ''
    return hashlib.sha256(Path(spec.origin).with_name('version.py').read_bytes()).hexdigest()


@functools.cache
def _source_digest(package: str) -> str:
    """A digest of every source, table and compiled kernel of a package: of what would run, not of a number in it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise StoreError(f'{package}: no such package, though a projection is made by it')
    path = Path(spec.origin)
    files = [path] if not spec.submodule_search_locations else sorted(path.parent.rglob('*'))
    sources = [file for file in files if file.suffix in SOURCES]
    if not sources:  # an installation without sources: nothing tells its versions apart
        return os.urandom(16).hex()
    digest = hashlib.sha256()
    for file in sources:
        digest.update(key_of(str(file.relative_to(path.parent))) + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def digest_of(value: object) -> str:
    """A digest of a value by its content: equal ones have the same, in every process."""
    return hashlib.sha256(json.dumps(_canonical(value), ensure_ascii=True).encode()).hexdigest()


def _canonical(value: object) -> Any:
    if isinstance(value, enum.Enum):
        return [type(value).__qualname__, value.name]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [type(value).__qualname__, *(_canonical(getattr(value, f.name)) for f in dataclasses.fields(value))]
    if isinstance(value, Mapping):
        return ['map', *sorted(([_canonical(k), _canonical(v)] for k, v in value.items()), key=repr)]
    if isinstance(value, set | frozenset):
        return ['set', *sorted(map(_canonical, value), key=repr)]
    if isinstance(value, list | tuple):
        return ['list', *map(_canonical, value)]
    if value is None or isinstance(value, str | int | float):
        return [type(value).__name__, repr(value)]
    raise TypeError(f'{type(value).__name__}: not a value that a projection can depend on')


# The file.


def cache_folder() -> Path | None:
    """Where this user's cache is, or would be; None where there is none."""
    if os.environ.get(SWITCH) == 'off':
        return None
    try:
        return Path(setting('ROBOTRIALS_CACHE') or caches()[0])
    except RuntimeError:  # no home
        return None


@dataclass(slots=True)
class Kept:
    """The rows of the cache, opened for one question; used as a context, whose end writes what is new."""

    new: dict[bytes, bytes] = field(default_factory=dict)
    file: sqlite3.Connection | None = None
    obstacle: str = ''  # why there is no file, where one was wanted

    def __enter__(self) -> Kept:
        folder = cache_folder()
        if folder is not None and _is_own(folder):
            self.file = _opened(folder / FILE)
        if self.file is None and os.environ.get(SWITCH) != 'off':
            self.obstacle = 'no home is known' if folder is None else f'{folder} cannot be used'
        return self

    def __exit__(self, *_: object) -> None:
        self._write()
        if self.file is not None:
            self.file.close()

    def has(self, key: bytes) -> bool:
        """Whether there is a row under a key, whatever it holds."""
        return key in self.new or self._row('SELECT 1 FROM kept WHERE key = ?', key) is not None

    def get(self, key: bytes) -> Any:
        """The value under a key, or None: no row, or one that is not as it was written."""
        row = self.new.get(key) or self._row('SELECT value FROM kept WHERE key = ?', key)
        if not isinstance(row, bytes) or row[:DIGEST_BYTES] != _own_digest(key, row[DIGEST_BYTES:]):
            return None
        return json.loads(zlib.decompress(row[DIGEST_BYTES:]))

    def _row(self, query: str, key: bytes) -> Any:
        try:
            first = None if self.file is None else self.file.execute(query, (key,)).fetchone()
        except sqlite3.Error as error:
            self._give_up(error)
            return None
        return first[0] if first else None

    def put(self, key: bytes, value: Any) -> None:
        """Keep a value, which must be one of JSON; None cannot be told from nothing."""
        if self.obstacle:
            unkept.add(self.obstacle)
        if self.file is not None:
            content = zlib.compress(json_text(value).encode(), 1)
            self.new[key] = _own_digest(key, content) + content
            if len(self.new) >= BATCH:
                self._write()

    def _write(self) -> None:
        rows, self.new = self.new, {}
        if self.file is None or not rows:
            return
        try:
            self.file.execute('BEGIN IMMEDIATE')
            self.file.executemany('INSERT OR REPLACE INTO kept VALUES (?, ?)', rows.items())
            self.file.execute('COMMIT')
        except sqlite3.Error as error:  # full, locked or damaged: the next question works it out again
            self._give_up(error)

    def _give_up(self, error: sqlite3.Error) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None
        folder = cache_folder()
        if isinstance(error, sqlite3.OperationalError):  # locked or full
            unkept.add(f'{folder}: {error}')
        elif folder is not None:  # damaged
            _remove(folder / FILE)


def json_text(value: object) -> str:
    """A value as it is kept."""
    return json.dumps(value, separators=(',', ':'), default=_plain)


def _plain(value: object) -> Any:
    """A scalar of numpy as Python's own."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f'{type(value).__name__} is not a JSON value')


def _own_digest(key: bytes, content: bytes) -> bytes:
    return hashlib.sha256(key + content).digest()[:DIGEST_BYTES]


def _is_own(folder: Path) -> bool:
    """Whether nobody else can write there, so that what is read there is what this user's programs wrote."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return False
    return os.name != 'posix' or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)


def _remove(path: Path) -> None:
    for name in (FILE, f'{FILE}-wal', f'{FILE}-shm'):
        path.with_name(name).unlink(missing_ok=True)


def _opened(path: Path) -> sqlite3.Connection | None:
    for is_new in (False, True):
        try:
            if is_new or (path.exists() and path.stat().st_size > MOST_BYTES):
                _remove(path)
            file = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
            file.execute('PRAGMA journal_mode = WAL')
            file.execute('PRAGMA synchronous = OFF')  # what a power cut takes is worked out again
            file.execute('CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID')
        except sqlite3.OperationalError:  # read-only, full, or another process has it
            return None
        except (sqlite3.DatabaseError, OSError):  # not a database any more: begun anew, once
            continue
        return file
    return None
