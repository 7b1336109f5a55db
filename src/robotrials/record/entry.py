"""One entry of the commit log: what was added, by whom, after which entries. Its id is the hash of its bytes."""

from __future__ import annotations

import datetime as dt
import enum
import getpass
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from robotrials.errors import InputError, StoreError
from robotrials.old_name import LOG_FORMAT
from robotrials.value import dataclass, pattern

FORMAT = LOG_FORMAT
IDENTITY = pattern(r'[0-9a-f]{64}')
# What a log may name. A store may come from anywhere, and who merges, repairs or compacts it acts on these names.
PART = r'[0-9a-f]{16}-[0-9a-f]{32}\.parquet'
NAMES = pattern(rf'(episodes|events|trajectories)/{PART}|(provenance|unblinding)/[^/]+\.json|media/.+|edits\.jsonl')
UNFIT = pattern(r'[\x00-\x1f\x7f\\\ud800-\udfff]')  # in no name: control characters, what is no text, and \
MOST_NAME_BYTES, MOST_PLACE_BYTES = 255, 1024  # of one folder or file, as file systems have it; of all together
Chunk = tuple[int, int, str]  # offset, length, first 32 hex digits of its SHA-256


class EntryKind(enum.StrEnum):
    CREATE = 'create'  # the store was made
    ADOPT = 'adopt'  # a store of an older version got its log: what it held was taken as it was found
    APPEND = 'append'  # episodes, with their events, trajectories, fault texts and media
    PROVENANCE = 'provenance'
    MEDIA = 'media'
    EDIT = 'edit'
    ANNOTATION = 'annotation'  # what a detector, a reviewer or a sensor says happened
    LOOK = 'look'  # somebody looked at results
    RUN = 'run'  # a run began or ended
    INTERRUPTED = 'interrupted'  # episodes that were begun and never finished
    CLOSE = 'close'  # the codes were opened
    COMPACT = 'compact'
    ATTACH = 'attach'  # telemetry and films joined to episodes that were recorded without
    MERGE = 'merge'
    REPAIR = 'repair'  # damage was set aside, and what it cost


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedFile:
    """A file that the log vouches for."""

    name: str  # in the store, with forward slashes
    sha256: str
    n_bytes: int
    chunks: tuple[Chunk, ...] = ()  # of a large part: what a reader of some columns can check

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {'name': self.name, 'sha256': self.sha256, 'bytes': self.n_bytes}
        if self.chunks:
            told['chunks'] = [list(chunk) for chunk in self.chunks]
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry. `body` holds what its kind says, as plain JSON values."""

    kind: EntryKind
    parents: tuple[str, ...]
    at: str
    by: str
    files: tuple[LoggedFile, ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict)
    signer: str = ''  # the public key of whoever signed it; '' if nobody did
    signature: str = ''

    def line(self) -> bytes:
        """The entry's bytes: canonical JSON and a newline."""
        values = {
            'format': FORMAT, 'kind': self.kind.value, 'parents': list(self.parents), 'at': self.at, 'by': self.by,
            'files': [file.as_json() for file in self.files], 'body': dict(self.body),
        }  # fmt: skip
        values |= {name: told for name in ('signer', 'signature') if (told := getattr(self, name))}
        try:
            text = json.dumps(values, sort_keys=True, separators=(',', ':'), allow_nan=False)
        except (ValueError, TypeError) as error:
            raise InputError(f'{self.kind} cannot be written to the commit log: {error}') from error
        return text.encode() + b'\n'


def entry_id(line: bytes) -> str:
    """64 hex digits over an entry's bytes."""
    return hashlib.sha256(line).hexdigest()


def parse_entry(line: bytes, *, where: str) -> Entry:
    """The entry of a line; what is not one is named."""
    try:
        values = json.loads(line)
        if values['format'] != FORMAT:
            raise StoreError(
                f'{where}: format {values["format"]!r}, this robotrials reads {FORMAT!r}; upgrade robotrials'
            )
        files = tuple(
            LoggedFile(
                name=check_name(f['name']),
                sha256=_identity(f['sha256']),
                n_bytes=_size(f['bytes']),
                chunks=tuple((int(a), int(n), str(d)) for a, n, d in f.get('chunks', ())),
            )
            for f in values['files']
        )
        body = values['body']
        if not isinstance(body, dict):
            raise ValueError('its body is not a table')
        check_names_in(body)
        dt.datetime.fromisoformat(values['at'])
        return Entry(
            kind=EntryKind(values['kind']), parents=tuple(map(_identity, values['parents'])), at=values['at'],
            by=str(values['by']), files=files, body=body, signer=str(values.get('signer', '')),
            signature=str(values.get('signature', '')),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f'{where}: not an entry of a commit log ({error})') from error


def is_inside(name: object) -> bool:
    """Whether a name, with forward slashes, can only be that of something inside the folder it is joined to."""
    if not isinstance(name, str) or UNFIT.search(name) is not None or len(name.encode()) > MOST_PLACE_BYTES:
        return False
    return all(p not in ('', '.', '..') and len(p.encode()) <= MOST_NAME_BYTES for p in name.split('/'))


def check_name(name: object) -> str:
    """The name of a file that a log may vouch for; ValueError for any other."""
    if not isinstance(name, str) or not is_inside(name) or NAMES.fullmatch(name) is None:
        raise ValueError(f'it names {name!r}, which no store holds; it is left alone')
    return name


def check_names_in(body: Mapping[str, Any]) -> None:
    """The names that an entry's body gives: parts, their companions, what they replace, and what was lost."""
    for part in body.get('parts', ()):
        check_name(f'episodes/{part["name"]}')
        for name in part.get('replaces', ()):
            check_name(f'episodes/{name}')
        if part['events']:
            check_name(f'events/{part["events"]}')
        for name in part['trajectories']:
            check_name(f'trajectories/{name}')
    for name in body.get('lost', {}):
        check_name(name)


def _identity(text: object) -> str:
    if not isinstance(text, str) or IDENTITY.fullmatch(text) is None:
        raise ValueError(f'{text!r} is not a SHA-256')
    return text


def _size(n_bytes: object) -> int:
    if type(n_bytes) is not int or n_bytes < 0:
        raise ValueError(f'a file of {n_bytes!r} bytes')
    return n_bytes


def new_entry(
    kind: EntryKind, parents: Sequence[str], *, by: str = '', files: Sequence[LoggedFile] = (),
    body: Mapping[str, Any] | None = None, at: str = '',
) -> Entry:  # fmt: skip
    """An entry as of now."""
    return Entry(
        kind=kind, parents=tuple(sorted(parents)), at=at or precise_now(), by=by or login_name(), files=tuple(files),
        body=body or {},
    )  # fmt: skip


def precise_now() -> str:
    """The time of an entry: UTC, to the microsecond."""
    return dt.datetime.now(dt.UTC).isoformat(timespec='microseconds')


def login_name() -> str:
    """Who runs this process, as far as the system knows."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return 'unknown'
