"""A first look at a file or folder: cheap, and never an error."""

from __future__ import annotations

from pathlib import Path

HEAD_BYTES = 1 << 16
MOST_FILES = 100_000


def head_of(path: Path) -> bytes:
    """The first bytes of a file; none where it cannot be read."""
    try:
        with path.open('rb') as stream:
            return stream.read(HEAD_BYTES)
    except OSError:
        return b''


def listed(folder: Path) -> list[Path]:
    """What lies in a folder, by name, without hidden entries; nothing where it cannot be read."""
    try:
        return sorted(p for p in folder.iterdir() if not p.name.startswith('.'))[:MOST_FILES]
    except OSError:
        return []
