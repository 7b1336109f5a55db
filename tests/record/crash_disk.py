"""A disk that forgets what was not synced: it runs a store's calls for real, and knows what a crash would leave.

Give it the number of the call to break at. `crash` ends the process there (as an exception that nothing catches), and
`left_after` writes out what would be on the disk then: all unsynced work gone, or, with a generator, any part of it.
An error number instead makes that one call fail, as a full or a broken disk does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robotrials.record.folder import Disk


class Crash(BaseException):
    """The process ends here."""


@dataclass(slots=True, eq=False)
class _Node:
    """A file's bytes, now and as of its last sync."""

    content: bytes
    durable: bytes | None


class CrashDisk(Disk):
    """Breaks at call `at` (from 1): a crash, or the error `number`."""

    def __init__(self, root: Path, *, at: int, number: int | None = None) -> None:
        self.root, self.at, self.number = root, at, number
        self.calls = 0
        self.is_down = False
        self._open: dict[int, _Node] = {}
        found = {path: None if path.is_dir() else _Node(path.read_bytes(), path.read_bytes()) for path in _below(root)}
        self._now: dict[Path, _Node | None] = dict(found)
        self._durable: dict[Path, _Node | None] = dict(found)

    def _call(self) -> None:
        if self.is_down:
            raise Crash
        self.calls += 1
        if self.calls == self.at:
            if self.number is not None:
                raise OSError(self.number, os.strerror(self.number))
            self.is_down = True
            raise Crash

    def create(self, path: Path) -> int:
        self._call()
        handle = super().create(path)
        self._now[path] = self._open[handle] = _Node(b'', None)
        return handle

    def write(self, handle: int, data: Any) -> int:
        was_up = not self.is_down
        try:
            self._call()
        except Crash:
            if was_up:  # the crash may come while half of it is written
                self._open[handle].content += bytes(data[: len(data) // 2])
            raise
        self._open[handle].content += bytes(data)
        return super().write(handle, data)

    def sync(self, handle: int) -> None:
        self._call()
        self._open[handle].durable = self._open[handle].content

    def close(self, handle: int) -> None:
        super().close(handle)  # the end of a process closes everything
        self._open.pop(handle, None)
        self._call()

    def link(self, source: Path, target: Path) -> None:
        self._call()
        super().link(source, target)
        self._now[target] = self._now[source]

    def rename(self, source: Path, target: Path) -> None:
        self._call()
        super().rename(source, target)
        self._now[target] = self._now.pop(source)

    def unlink(self, path: Path) -> None:
        self._call()
        super().unlink(path)
        self._now.pop(path, None)

    def mkdir(self, path: Path) -> None:
        self._call()
        super().mkdir(path)
        self._now[path] = None

    def sync_folder(self, path: Path) -> None:
        self._call()
        for name in [p for p in self._durable if p.parent == path and p not in self._now]:
            del self._durable[name]
        self._durable.update({p: node for p, node in self._now.items() if p.parent == path})

    def touch(self, path: Path) -> None:
        self._call()
        super().touch(path)

    def read(self, path: Path) -> bytes:
        self._call()
        return super().read(path)

    def left_after(self, target: Path, *, rng: np.random.Generator | None = None) -> None:
        """Write out what a crash now would leave; with a generator, some of what was not synced is there."""
        entries = dict(self._durable)
        if rng is not None:
            for path in sorted(self._now.keys() - entries.keys()):
                if rng.random() < 0.5:
                    entries[path] = self._now[path]
            for path in sorted(entries.keys() - self._now.keys()):
                if rng.random() < 0.5:
                    del entries[path]
        target.mkdir(parents=True)
        for path, node in sorted(entries.items()):
            place = target / path.relative_to(self.root)
            if not place.parent.is_dir():
                continue  # in a folder that was never synced
            if node is None:
                place.mkdir()
            else:
                place.write_bytes(_left_of(node, rng))


def _left_of(node: _Node, rng: np.random.Generator | None) -> bytes:
    if node.durable == node.content:
        return node.content
    kept = node.durable or b''
    if rng is None:
        return kept
    return node.content[: int(rng.integers(len(kept), len(node.content) + 1))]


def _below(root: Path) -> list[Path]:
    return sorted(root.rglob('*')) if root.exists() else []
