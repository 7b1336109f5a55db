"""Object storage under a store: create-only objects, and a local folder that keeps what was read.

A store at `s3://bucket/prefix` is used through a `CachedPath`: a path on this machine that fetches what it stands for
when somebody reads it. Files of a store never change once they are there, so a copy cannot be out of date; it can only
be damaged, and what is read is checked against the log anyway.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import uuid
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from pathlib import Path, PosixPath
from typing import Any

from robotrials.errors import SetupError, StoreError, WriteError, install_hint
from robotrials.old_name import caches, setting
from robotrials.value import pattern

SPARSE = '.sparse'
MARK = '@objects'  # in the path of every cached file: what follows is the scheme, the bucket and the key
LOCATION = pattern(r'^(?P<scheme>s3|gs):/{1,2}(?P<bucket>[^/]+)(?:/(?P<prefix>.*?))?/*$')
CREDENTIALS = {
    's3': ('AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_REGION'), 'gs': ('GOOGLE_SERVICE_ACCOUNT',),
}  # fmt: skip
FOREIGN = pattern(r'^[a-z][a-z0-9+.-]+:/{1,2}[^/]')
ENDPOINTS = {'s3': ('AWS_ENDPOINT_URL', 'AWS_ENDPOINT'), 'gs': ('GOOGLE_BASE_URL',)}


def addressed_root(path: Path | str) -> Path:
    """The folder that keeps the copies of a store at an address such as s3://bucket/runs/may."""
    text = str(path)
    match = LOCATION.match(text)  # one slash: what is left of s3:// in a Path
    if match is not None:
        scheme, bucket, prefix = match['scheme'], match['bucket'], match['prefix'] or ''
        if not prefix:
            raise StoreError(f'{text}: wanted a place inside the bucket, such as {scheme}://{bucket}/runs/may')
        if any(part in ('', '.', '..') for part in prefix.split('/')):
            raise StoreError(f'{text}: the place in the bucket holds an empty part, . or ..')
        endpoint = next((os.environ[n] for n in ENDPOINTS[scheme] if os.environ.get(n)), '')
        where = f'{scheme}~{hashlib.sha256(endpoint.encode()).hexdigest()[:8]}' if endpoint else scheme
        kept = Path(setting('ROBOTRIALS_CACHE') or caches()[0]).resolve()
        return CachedPath(kept / MARK / where / bucket / prefix)
    if FOREIGN.match(text) and not Path(text).exists():
        raise StoreError(f'{text}: wanted a folder, or an address that begins with s3:// or gs://')
    return CachedPath(path) if f'/{MARK}/' in text else Path(path)


class CachedPath(PosixPath):
    """A file or folder of object storage by the name of its local copy; reading fetches what is not there yet."""

    __slots__ = ()

    @property
    def local(self) -> Path:
        """The copy as an ordinary path, which fetches nothing."""
        return Path(str(self))

    @property
    def key(self) -> str:
        return '/'.join(self._place()[2:])

    @property
    def bucket(self) -> Bucket:
        where, name = self._place()[:2]
        return open_bucket(where.partition('~')[0], name)

    @property
    def address(self) -> str:
        """As a user gives it: s3://bucket/..."""
        where, name, *rest = self._place()
        return f'{where.partition("~")[0]}://{name}/{"/".join(rest)}'

    def __format__(self, spec: str) -> str:
        return format(self.address, spec)  # what is said of it is about the store, not about the copy

    def _place(self) -> tuple[str, ...]:
        parts = self.parts
        return parts[parts.index(MARK) + 1 :]

    def fetch(self) -> Path:
        """The local copy, whole."""
        if not self.local.exists():
            content = self.bucket.read(self.key)
            keep_copy(self.local, content)
        return self.local

    def exists(self, *args: Any, **kwargs: Any) -> bool:
        return self.local.exists() or self.bucket.has(self.key) or self.is_dir()

    def is_file(self, *args: Any, **kwargs: Any) -> bool:
        return self.local.is_file() or self.bucket.has(self.key)

    def is_dir(self, *args: Any, **kwargs: Any) -> bool:
        return self.local.is_dir() or next(self.bucket.keys(self.key), None) is not None

    def stat(self, *args: Any, **kwargs: Any) -> os.stat_result:
        if self.local.exists():
            return self.local.stat(*args, **kwargs)
        size, when_s = self.bucket.size_and_time(self.key)
        return os.stat_result((0o100444, 0, 0, 1, 0, 0, size, int(when_s), int(when_s), int(when_s)))

    def open(self, mode: str = 'r', *args: Any, **kwargs: Any) -> Any:
        return (self.fetch() if 'r' in mode else self.local).open(mode, *args, **kwargs)

    def iterdir(self) -> Generator[CachedPath, None, None]:
        for name in self.bucket.names(self.key):
            yield self / name


def keep_copy(path: Path, content: Any) -> None:
    """Write a local copy, whole or not at all; it needs no syncing, because it can be fetched again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f'.{uuid.uuid4().hex}')
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def forget_copies(root: CachedPath) -> None:
    """Remove all local copies of a store but drafts and locks: what is read next comes from object storage."""
    (root.local / 'trial.json').unlink(missing_ok=True)
    for folder in root.local.iterdir() if root.local.is_dir() else ():
        if folder.is_dir() and (not folder.name.startswith('.') or folder.name == SPARSE):
            shutil.rmtree(folder, ignore_errors=True)


def sparse_copy(path: CachedPath, n_bytes: int) -> Path:
    """A local file of the object's length with nothing in it yet: who checks a range and finds it wrong fetches it."""
    copy = path.local.parent.parent / SPARSE / path.name
    if not copy.exists() or copy.stat().st_size != n_bytes:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with copy.open('ab') as stream:
            stream.truncate(n_bytes)
    return copy


def fetch_spans(path: CachedPath, copy: Path, spans: Sequence[tuple[int, int]]) -> None:
    """Put some ranges of an object into its sparse copy."""
    handle = os.open(copy, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for (offset, _), content in zip(spans, path.bucket.read_spans(path.key, spans), strict=True):
            os.pwrite(handle, content, offset)
    finally:
        os.close(handle)


class Bucket:
    """One bucket of object storage. Keys are what follows the bucket's name."""

    def __init__(self, client: Any, address: str) -> None:
        self._client, self._address = client, address
        self._is_probed = False

    def create(self, key: str, content: bytes | Path) -> bool:
        """Create an object whole; False if there is one of that name, which is left as it is.

        The server decides (If-None-Match: *). A lost answer is asked for again, so False may be about our own object:
        whoever needs to know compares content.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with self._naming_write(key):
            try:
                obstore.put(self._client, key, content, mode='create', use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def probe(self, below: str) -> None:
        """Refuse storage that does not keep create-only promises: two writers would silently replace each other."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        if self._is_probed:
            return
        probe = f'{below}/probe-{uuid.uuid4().hex}'
        with self._naming_write(probe):
            obstore.put(self._client, probe, b'', mode='create', use_multipart=False)
            try:
                obstore.put(self._client, probe, b'', mode='create', use_multipart=False)
            except AlreadyExistsError:
                self._is_probed = True
            obstore.delete(self._client, probe)
        if not self._is_probed:
            raise StoreError(f'{self._address}: ignores create-only puts (If-None-Match: *), so it cannot hold a store')

    def write(self, key: str, content: bytes) -> None:
        """Write an object, whatever was there: for marks and leases, never for the record."""
        import obstore

        with self._naming_write(key):
            obstore.put(self._client, key, content, use_multipart=False)

    def remove(self, key: str) -> None:
        import obstore

        with self._naming_write(key), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._client, key)

    def read(self, key: str) -> Any:
        import obstore

        with self._naming_read(key):
            return obstore.get(self._client, key).bytes()

    def read_spans(self, key: str, spans: Sequence[tuple[int, int]]) -> list[Any]:
        """Some ranges (offset, length) of an object; near ones are fetched together."""
        import obstore

        with self._naming_read(key):
            starts, lengths = [a for a, _ in spans], [n for _, n in spans]
            return list(obstore.get_ranges(self._client, key, starts=starts, lengths=lengths))

    def has(self, key: str) -> bool:
        try:
            self.size_and_time(key)
        except FileNotFoundError:
            return False
        return True

    def size_and_time(self, key: str) -> tuple[int, float]:
        import obstore

        with self._naming_read(key):
            facts = obstore.head(self._client, key)
        return int(facts['size']), facts['last_modified'].timestamp()

    def keys(self, below: str) -> Iterator[str]:
        """Every key below a folder, in order of the listing."""
        import obstore

        with self._naming_read(below):
            for batch in obstore.list(self._client, f'{below}/'):
                for entry in batch:
                    yield entry['path']

    def names(self, below: str) -> list[str]:
        """What lies directly in a folder."""
        import obstore

        with self._naming_read(below):
            listing = obstore.list_with_delimiter(self._client, f'{below}/')
        paths = [o['path'] for o in listing['objects']] + [p.rstrip('/') for p in listing['common_prefixes']]
        return sorted(p.rpartition('/')[2] for p in paths)

    @property
    def _remedy(self) -> str:
        scheme = self._address.partition(':')[0]
        variables = ', '.join(CREDENTIALS[scheme])
        endpoint = next((f'{n}={os.environ[n]}' for n in ENDPOINTS[scheme] if os.environ.get(n)), '')
        return f'is the server there ({endpoint or "no " + ENDPOINTS[scheme][0]}), and are {variables} set? then repeat'

    @contextlib.contextmanager
    def _naming_read(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except self._trouble() as error:
            raise StoreError(f'{self._address}/{key}: cannot be read ({_first_line(error)}); {self._remedy}') from error

    @contextlib.contextmanager
    def _naming_write(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise WriteError(f'{self._address}: no such bucket ({_first_line(error)}); make it first') from error
        except self._trouble() as error:
            todo = 'check the address and the rights, and repeat; what was acknowledged before is safe'
            raise WriteError(f'{self._address}/{key}: cannot be written ({_first_line(error)}); {todo}') from error

    @staticmethod
    def _trouble() -> tuple[type[Exception], ...]:
        from obstore.exceptions import BaseError

        return (BaseError, OSError)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition('\n')[0][:300]


@cache
def open_bucket(scheme: str, name: str) -> Bucket:
    """The client of a bucket; address and credentials come from the environment (AWS_..., GOOGLE_...)."""
    try:
        from obstore.store import GCSStore, S3Store
    except ImportError as error:
        raise SetupError(f'stores on object storage need obstore; install it with: {install_hint("scale")}') from error
    client: Any = GCSStore(name) if scheme == 'gs' else S3Store(name, conditional_put='etag')
    return Bucket(client, f'{scheme}://{name}')
