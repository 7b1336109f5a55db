"""The spool: finished attempts on the worker's disk until the server has them. It outlives the worker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from robotrials.errors import NoAnswer, RigError
from robotrials.record.folder import move_durably, write_durably
from robotrials.service.platform.api_client import ApiError

WAITING, LATE, REFUSED = 'waiting', 'late', 'refused'
LEASE_NAME = re.compile('[A-Za-z0-9_-]{1,64}')
Upload = Callable[[str, bytes], None]  # lease id and bundle; ApiError, RigError or NoAnswer if it is not taken


@dataclass(frozen=True, slots=True)
class Flushed:
    """What came of trying to send what waits."""

    sent: tuple[str, ...] = ()  # lease ids
    late: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    trouble: str = ''


class Spool:
    """A folder of bundles by lease. A bundle is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in (WAITING, LATE, REFUSED):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def put(self, lease_id: str, bundle: bytes) -> None:
        """Keep a bundle durably; WriteError if the disk does not take it."""
        write_durably(self._path(WAITING, lease_id), bundle)

    def leases(self) -> tuple[str, ...]:
        """The leases whose bundles wait, oldest first."""
        files = sorted((self._folder / WAITING).glob('*.bundle'), key=lambda f: (f.stat().st_mtime_ns, f.name))
        return tuple(f.stem for f in files)

    def flush(self, upload: Upload) -> Flushed:
        """Try to send everything once. What the server will never take is kept aside with its reason."""
        outcome: dict[str, list[str]] = {'sent': [], 'late': [], 'refused': [], 'waiting': []}
        trouble = ''
        for lease_id in self.leases():
            try:
                upload(lease_id, self._path(WAITING, lease_id).read_bytes())
                self._path(WAITING, lease_id).unlink()
                outcome['sent'].append(lease_id)
            except ApiError as error:
                trouble = str(error)
                if error.is_passing or error.status == 401:  # a token that was renewed too late is no reason to lose it
                    outcome['waiting'].append(lease_id)
                else:
                    kind = LATE if error.status == 410 else REFUSED
                    self._set_aside(kind, lease_id, str(error))
                    outcome[kind].append(lease_id)
            except (RigError, NoAnswer) as error:
                trouble = str(error)
                outcome['waiting'].append(lease_id)
        return Flushed(**{name: tuple(ids) for name, ids in outcome.items()}, trouble=trouble)

    def _set_aside(self, kind: str, lease_id: str, reason: str) -> None:
        told = json.dumps({'lease': lease_id, 'reason': reason})
        write_durably(self._path(kind, lease_id).with_suffix('.json'), told)
        move_durably(self._path(WAITING, lease_id), self._path(kind, lease_id))

    def _path(self, kind: str, lease_id: str) -> Path:
        if not LEASE_NAME.fullmatch(lease_id):
            raise RigError(f'a lease id of {lease_id[:40]!r}, wanted letters, digits, - and _')
        return self._folder / kind / f'{lease_id}.bundle'
