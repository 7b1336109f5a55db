"""Marks of living workers: empty files in the store that name a process, so that a new run can wait for old workers.

A lock that workers inherit would do the same, but whatever a policy starts would inherit it too, and keep it.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from robotrials.errors import StoreError
from robotrials.record.folder import Folder

MARK_NAME = re.compile(r'^\.run\.worker-(?P<machine>[0-9a-f]{8})-(?P<pid>\d+)-(?P<start>\d+)\.lock$')
WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class WorkerMark:
    """One worker: the machine it is on, its process, and when that process began."""

    root: Path
    name: str

    @classmethod
    def of(cls, root: Path, pid: int) -> WorkerMark:
        mark = cls(root, f'.run.worker-{_machine()}-{pid}-{_started(pid) or 0}.lock')
        (root / mark.name).touch()
        return mark

    def remove(self) -> None:
        Folder(self.root).remove(self.name)


def await_old_workers(root: Path) -> None:
    """Wait until the workers of a run that was killed are gone, and end those that are not; they are ours."""
    for name in Folder(root).names(''):
        match = MARK_NAME.match(name)
        if match is None or match['machine'] != _machine():
            continue
        pid, start = int(match['pid']), int(match['start'])
        deadline = time.monotonic() + WAIT_S
        while start and _started(pid) == start:
            if time.monotonic() > deadline:
                raise StoreError(f'{root}: worker {pid} of an earlier run does not end; end it and run again')
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        Folder(root).remove(name)


def _machine() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _started(pid: int) -> int | None:
    """When a process began, in the kernel's ticks; None if there is no such process, or it is only a name still."""
    try:
        fields = Path(f'/proc/{pid}/stat').read_text(encoding='utf-8', errors='replace').rpartition(')')[2].split()
    except OSError:
        return None
    return None if fields[0] in 'ZX' else int(fields[19])
