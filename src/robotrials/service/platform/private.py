"""What only the server's own account may read: its folder, its database, its key, the first admin's token.

Everything is made private, and not made and then closed off: between the two somebody could open it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from base64 import urlsafe_b64encode
from pathlib import Path

from robotrials.errors import SetupError

KEY = 'server.key'
KEY_BYTES = 32
NONCE_BYTES = 16
FOLDER_MODE, FILE_MODE, UMASK = 0o700, 0o600, 0o077


def keep_private() -> None:
    """From here on this process makes folders of 0700 and files of 0600."""
    os.umask(UMASK)


def make_private_folder(path: Path) -> None:
    """A folder that is ours alone; one that was there, and is ours, is closed to others."""
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & UMASK:
        path.chmod(FOLDER_MODE)


def make_private_file(path: Path, content: bytes = b'') -> None:
    """A new file that is ours alone; FileExistsError if there is one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, 'wb') as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def close_to_others(path: Path) -> None:
    """A file that is ours alone, made if it is new: SQLite gives its log and index the mode of its database."""
    with contextlib.suppress(FileExistsError):
        make_private_file(path)
    if path.stat().st_uid == os.geteuid():
        path.chmod(FILE_MODE)


class WorkerKeys:
    """The secrets that sign leases: derived from the server's key, which lies beside the database and never in it.

    The database has a nonce for each registration. Whoever reads a copy of it can sign nothing.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / KEY
        with contextlib.suppress(FileExistsError):
            make_private_file(path, secrets.token_bytes(KEY_BYTES))
        self._key = path.read_bytes()
        if len(self._key) != KEY_BYTES:
            raise SetupError(
                f'{path}: wanted a key of {KEY_BYTES} bytes; remove it, and cells register anew by themselves'
            )
        self._name = f'k1.{hashlib.sha256(self._key).hexdigest()[:12]}.'

    def new(self) -> str:
        """What the database has of a new secret."""
        return self._name + secrets.token_hex(NONCE_BYTES)

    def knows(self, kept: str) -> bool:
        """Whether a registration was made under this key: in a restored database, or one of before, it was not."""
        return kept.startswith(self._name)

    def secret(self, worker_id: str, kept: str) -> str:
        """The secret that a worker was given."""
        digest = hmac.digest(self._key, f'worker {worker_id} {kept}'.encode(), 'sha256')
        return urlsafe_b64encode(digest).rstrip(b'=').decode()
