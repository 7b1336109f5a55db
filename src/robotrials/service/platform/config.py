"""How a server behaves: read from `platform.toml` in its folder, with defaults that suit one lab.

What only the server's own account may read: its folder, its database, its key, the first admin's token.

Everything is made private, and not made and then closed off: between the two somebody could open it.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import hmac
import os
import secrets
import tomllib
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, SetupError
from robotrials.service.platform.client import read_networks
from robotrials.value import read_table

FILE = 'platform.toml'
DATABASE = 'platform.db'  # in the folder, unless another one is given


class Strategy(enum.StrEnum):
    """In which order the jobs of a benchmark are handed out."""

    FIFO = 'fifo'  # the oldest submission first
    FAIR_SHARE = 'fair_share'  # whoever was served least in the last day first
    PRIORITY = 'priority'  # the highest priority first, then the oldest
    BLINDED_ROTATION = 'blinded_rotation'  # the balanced blocks of a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What one user may ask for, unless an admin says otherwise."""

    open_submissions: int = 10
    submissions_per_day: int = 50
    requests_per_minute: int = 1200

    def __post_init__(self) -> None:
        for name in ('open_submissions', 'submissions_per_day', 'requests_per_minute'):
            if getattr(self, name) < 1:
                raise InputError(f'quota: {name} is {getattr(self, name)}, wanted >= 1')


@dataclass(frozen=True, slots=True, kw_only=True)
class DialRules:
    """Which policy servers the platform may dial: patterns of `HOST:PORT`, such as `gpu-box:*`. None unless named."""

    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformConfig:
    """Everything that can be set. Times are in seconds by the server's clock, which is the only one that counts."""

    folder: Path
    database: str = ''  # '' is SQLite in the folder; else postgresql://...
    strategy: Strategy = Strategy.FIFO  # of benchmarks that name none
    heartbeat_s: float = 5.0
    lease_s: float = 30.0  # a lease that was begun lives so long after its last heartbeat
    claim_s: float = 15.0  # a lease that nobody begins lives so long
    lost_s: float = 20.0  # a worker that was not heard of for so long is lost
    presence_s: float = 10.0  # a client that has not asked for so long does not hold up the queue
    absence_s: float = 3 * 86_400.0  # a submission that was begun and whose client stays away so long is cancelled
    retry_s: float = 1.0  # when a waiting client should ask again
    longest_episode_s: float = 3600.0  # of real time, however often the worker renews
    leases_per_submission: int = 1
    sweep_s: float = 1.0
    drain_s: float = 30.0  # on SIGTERM: how long requests under way may take
    connections: int = 2000  # at a time; a full house lets go of whoever keeps it waiting longest
    connections_per_address: int = 512
    private_addresses: tuple[str, ...] = ()  # networks, such as 192.168.0.0/16, in which workers and policies may be
    most_body_bytes: int = 1 << 20
    most_bundle_bytes: int = 256 << 20
    sign_in_s: float = 12 * 3600.0  # a browser stays signed in for so long
    public_leaderboards: bool = False  # whether those of open benchmarks are shown to everyone
    least_free_bytes: int = 64 << 20  # results are refused, to be sent again later, when the disk has less
    quota: Quota = field(default_factory=Quota)
    dial: DialRules = field(default_factory=DialRules)

    def __post_init__(self) -> None:
        for name in ('heartbeat_s', 'lease_s', 'claim_s', 'lost_s', 'presence_s', 'absence_s', 'retry_s', 'sweep_s',
                     'drain_s', 'sign_in_s'):  # fmt: skip
            if not getattr(self, name) > 0:
                raise InputError(f'{name} is {getattr(self, name)}, wanted > 0')
        for name in ('connections', 'connections_per_address'):
            if getattr(self, name) < 1:
                raise InputError(f'{name} is {getattr(self, name)}, wanted >= 1')
        read_networks(self.private_addresses)
        if self.lease_s < 2 * self.heartbeat_s:
            raise InputError(
                f'lease_s is {self.lease_s:g} and heartbeat_s {self.heartbeat_s:g}: one lost heartbeat would end a '
                'lease; wanted lease_s of at least twice heartbeat_s'
            )

    @property
    def url(self) -> str:
        """The database as SQLAlchemy names it."""
        if not self.database:
            return f'sqlite:///{self.folder / DATABASE}'
        scheme, mark, rest = self.database.partition('://')
        if not mark or scheme not in ('postgresql', 'postgres', 'postgresql+psycopg', 'sqlite'):
            raise InputError(f'database is {scheme or self.database!r}, wanted postgresql://USER@HOST/NAME, or none')
        return self.database if scheme == 'sqlite' else f'postgresql+psycopg://{rest}'


def read_config(folder: Path | str, **given: Any) -> PlatformConfig:
    """The configuration of a folder: its `platform.toml`, if there is one, under what is `given`."""
    root = Path(folder)
    file = root / FILE
    values: dict[str, Any] = {}
    if file.exists():
        try:
            values = tomllib.loads(file.read_text(encoding='utf-8'))
        except (OSError, ValueError) as error:
            raise InputError(f'{file}: not TOML ({error})') from error
    if 'folder' in values:
        raise InputError(f'{file}: folder is not for this file; it lies in it')
    values |= {k: v for k, v in given.items() if v is not None}
    return read_table(PlatformConfig, {**values, 'folder': root}, where=str(file))


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
