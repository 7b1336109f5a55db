"""The folder that a diagnosis works in: one process at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from robotrials.record.folder import held_lock

BUSY = 'another process is at work in this folder; wait for it to end, or name another folder'


@contextmanager
def work_folder(folder: Path | str) -> Iterator[Path]:
    """Make the folder, and hold it: two trainings that write to one folder would mix their states."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    with held_lock(root, '.lock', busy=BUSY):
        yield root
