"""One commit: files that go into a store together, and count once the log entry that names them is durable."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from robotrials.errors import StoreError
from robotrials.record.entry import NAMES, LoggedFile, is_inside
from robotrials.record.folder import PENDING, Folder, shared_writing, sole_entry
from robotrials.record.log import add_entry, is_logged
from robotrials.record.part import logged_part, part_name

if TYPE_CHECKING:
    from robotrials.record.entry import Entry, EntryKind

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
        from robotrials.record.part import file_hash

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


def log_entry(root: Path, kind: EntryKind, *, by: str = '', body: Mapping[str, Any] | None = None,
              parents: Sequence[str] = (), at: str = '') -> Entry:  # fmt: skip
    """Log something that brings no files."""
    check_logged(root)
    return add_entry(root, kind, by=by, body=body, parents=parents, at=at)[1]
