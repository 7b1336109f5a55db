"""The console's journal: every action is on disk before it is answered, so that a power cut loses nothing.

It lies beside the store (`STORE.console/journal.jsonl`), because a store holds only what its own log vouches for.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robotrials.errors import StoreError

Entry = dict[str, Any]


def console_folder(store: Path) -> Path:
    """Where the console of a store keeps its own files; made if it is new."""
    path = store.resolve()
    folder = path.with_name(f'{path.name}.console')
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


class Journal:
    """Lines of JSON, each synced before `add` returns; a last line without its end was never answered, and goes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.entries = self._read()
        _sync_folder(path.parent)

    def _read(self) -> list[Entry]:
        content = self.path.read_bytes()
        whole = content[: content.rfind(b'\n') + 1]
        if len(whole) != len(content):
            os.ftruncate(self._handle, len(whole))
        entries = []
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = json.loads(line)
                entry['kind'], entry['at'], entry['body']
            except (ValueError, TypeError, KeyError) as error:
                raise StoreError(
                    f'{self.path} line {number}: not an entry of the console ({error}); the store itself is not '
                    'concerned: set this file aside, and the console begins a new one'
                ) from error
            entries.append(entry)
        return entries

    def add(self, kind: str, body: Mapping[str, Any]) -> None:
        """Keep one entry for good."""
        entry = {'kind': kind, 'at': dt.datetime.now(dt.UTC).isoformat(timespec='milliseconds'), 'body': dict(body)}
        line = json.dumps(entry, separators=(',', ':'), allow_nan=False).encode() + b'\n'
        with self._lock:
            written = 0
            while written < len(line):
                written += os.write(self._handle, line[written:])
            os.fsync(self._handle)
            self.entries.append(entry)

    def close(self) -> None:
        os.close(self._handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
