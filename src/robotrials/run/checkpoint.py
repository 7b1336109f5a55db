"""Checkpoints as the plan names them: the files a policy was declared with are the files that it runs with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from robotrials.errors import InputError

Stamp = tuple[tuple[str, int, int, int], ...]


class CheckpointGuard:
    """Hashes a policy's checkpoints once, and again only when their size, time or inode has changed."""

    def __init__(self, checkpoints: Mapping[str, str], *, shown: str) -> None:
        self._wanted, self._shown = checkpoints, shown
        self._stamps: dict[str, Stamp] = {}

    def check(self) -> None:
        """Raise InputError, by the arm's code, if a checkpoint is not what the plan declares."""
        for number, (name, digest) in enumerate(self._wanted.items(), start=1):
            what = f'policy {self._shown}: checkpoint {number} of {len(self._wanted)}'
            try:
                stamp = _stamp(Path(name))
                if self._stamps.get(name) == stamp:
                    continue
                found = checkpoint_digest(Path(name))
            except OSError as error:
                raise InputError(f'{what} cannot be read ({error.strerror}); put it where the plan says') from error
            if found != digest:
                raise InputError(
                    f'{what} has SHA-256 {found[:12]}..., the plan declares {digest[:12]}...; nothing is run with it. '
                    'Put the declared one back, or declare a new trial'
                )
            self._stamps[name] = stamp


def checkpoint_digest(path: Path) -> str:
    """The SHA-256 of a file; of a folder, over the names and digests of all its files in order."""
    if not path.is_dir():
        with path.open('rb') as stream:
            return hashlib.file_digest(stream, 'sha256').hexdigest()
    total = hashlib.sha256()
    for file in _files(path):
        total.update(f'{file.relative_to(path).as_posix()}\0{checkpoint_digest(file)}\n'.encode())
    return total.hexdigest()


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob('*') if p.is_file()) if path.is_dir() else [path]


def _stamp(path: Path) -> Stamp:
    found = [(file, file.stat()) for file in _files(path)]
    return tuple((str(file), s.st_size, s.st_mtime_ns, s.st_ino) for file, s in found)
