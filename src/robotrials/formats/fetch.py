"""Download a prepared dataset from a public storage bucket: listed, resumed, and checked against its checksums.

By the standard library's client, not `wire.request`: files of gigabytes are streamed, and have no deadline as a whole.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robotrials.errors import InputError, SetupError
from robotrials.formats.rlds import crc32c
from robotrials.record.folder import move_durably

BUCKET_HOST = 'https://storage.googleapis.com'
BUCKET = 'gresearch'
FOLDER = 'robotics'
CHUNK_BYTES = 1 << 20
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One object of the bucket; `md5` and `crc32c` are base64 as the bucket tells them, or empty."""

    name: str
    size: int
    md5: str = ''
    crc32c: str = ''


Progress = Callable[[RemoteFile, int], None]
"""Called with a file and how many more of its bytes are here."""


def fetch_dataset(
    name: str,
    to: Path | str,
    *,
    version: str | None = None,
    host: str = BUCKET_HOST,
    only: Callable[[str], bool] = lambda _: True,
    started: Callable[[list[RemoteFile]], None] = lambda _: None,
    progress: Progress = lambda _file, _bytes: None,
) -> Path:
    """Bring `NAME/VERSION` into the folder `to`; the newest version if none is named. Files that are here stay.

    `only` picks files by name. A file is written beside its place and moved there once its checksum fits.
    """
    version = version or _newest_version(name, host)
    prefix = f'{FOLDER}/{name}/{version}/'
    files = [f for f in list_files(prefix, host=host) if only(f.name.removeprefix(prefix))]
    if not files:
        raise InputError(
            f'nothing under {prefix} in the bucket {BUCKET}; `robotrials actions datasets` lists the names'
        )
    root = Path(to) / name / version
    started(files)
    for file in files:
        relative = file.name.removeprefix(prefix)
        target = root / relative
        if not target.resolve().is_relative_to(root.resolve()):
            raise InputError(f'the bucket names a file outside the dataset: {file.name}')
        fetch_file(file, target, host=host, progress=progress)
    return root


def list_files(prefix: str, *, host: str = BUCKET_HOST) -> Iterator[RemoteFile]:
    """The objects whose names start with `prefix`."""
    token = ''
    while True:
        query = {'prefix': prefix, 'fields': 'items(name,size,md5Hash,crc32c),nextPageToken'}
        page = _get_json(f'{host}/storage/v1/b/{BUCKET}/o', {**query, **({'pageToken': token} if token else {})})
        for item in page.get('items', ()):
            if not item['name'].endswith('/'):
                yield RemoteFile(item['name'], int(item['size']), item.get('md5Hash', ''), item.get('crc32c', ''))
        token = page.get('nextPageToken', '')
        if not token:
            return


def _newest_version(name: str, host: str) -> str:
    page = _get_json(f'{host}/storage/v1/b/{BUCKET}/o', {'prefix': f'{FOLDER}/{name}/', 'delimiter': '/'})
    versions = [p.rstrip('/').rpartition('/')[2] for p in page.get('prefixes', ())]
    numbered: list[str] = [v for v in versions if v.replace('.', '').isdigit()]
    if not numbered:
        raise InputError(f'no dataset {name!r} in the bucket {BUCKET}; `robotrials actions datasets` lists the names')
    return max(numbered, key=lambda v: tuple(map(int, v.split('.'))))


def _get_json(url: str, query: dict[str, str]) -> dict[str, Any]:
    with _open(f'{url}?{urllib.parse.urlencode(query)}') as answer:
        parsed = json.loads(answer.read())
    if not isinstance(parsed, dict):
        raise InputError(f'{url}: wanted a JSON object, found {type(parsed).__name__}')
    return parsed


def _open(url: str, *, start: int = 0) -> Any:
    request = urllib.request.Request(url, headers={'Range': f'bytes={start}-'} if start else {})
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        raise InputError(f'{url}: the server answers {error.code} {error.reason}') from error
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, 'reason', error)
        place = urllib.parse.urlsplit(url).netloc
        raise SetupError(f'no connection to {place} ({reason}); fetching needs a network') from error


def fetch_file(
    file: RemoteFile, target: Path, *, host: str = BUCKET_HOST, progress: Progress = lambda _file, _bytes: None,
) -> None:  # fmt: skip
    """Bring one file; a part that is already here is continued, and a whole file that fits is left alone."""
    if target.exists() and _fits(target, file):
        progress(file, file.size)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f'{target.name}.part')
    start = part.stat().st_size if part.exists() else 0
    if start > file.size:
        part.unlink()
        start = 0
    if start < file.size:
        _download(file, part, start, host=host, progress=progress)
    else:
        progress(file, start)
        part.touch()
    if not _fits(part, file):
        part.unlink()
        raise InputError(f'{file.name}: what arrived does not fit its checksum; it was removed, run the command again')
    move_durably(part, target)


def _download(file: RemoteFile, part: Path, start: int, *, host: str, progress: Progress) -> None:
    url = f'{host}/{BUCKET}/{urllib.parse.quote(file.name)}'
    with _open(url, start=start) as answer:
        # A server that ignores the range starts over.
        resumed = start > 0 and answer.status == 206
        with part.open('ab' if resumed else 'wb') as stream:
            if resumed:
                progress(file, start)
            arrived = start if resumed else 0
            while chunk := _read(answer, url):
                stream.write(chunk)
                arrived += len(chunk)
                progress(file, len(chunk))
    if arrived != file.size:
        raise InputError(f'{url}: {arrived} of {file.size} bytes arrived; run the command again to go on from there')


def _read(answer: Any, url: str) -> bytes:
    try:
        return bytes(answer.read(CHUNK_BYTES))
    except (OSError, http.client.HTTPException) as error:
        raise SetupError(f'{url}: the connection broke ({error}); run the command again to go on from there') from error


def _fits(path: Path, file: RemoteFile) -> bool:
    if path.stat().st_size != file.size:
        return False
    if not file.md5 and not file.crc32c:
        return True
    digest, crc = hashlib.md5(usedforsecurity=False), 0
    with path.open('rb') as stream:
        while chunk := stream.read(CHUNK_BYTES):
            if file.md5:
                digest.update(chunk)
            else:
                crc = crc32c(chunk, crc)
    actual = digest.digest() if file.md5 else crc.to_bytes(4, 'big')
    return actual == base64.b64decode(file.md5 or file.crc32c)
