"""Stores as somebody with bad intentions would hand them over: each reaches for files that are not its own.

`make_box` lays one out beside files of the reader's: `outside/` (with a secret), a place to merge into, and others.
What is in the box and not in the store itself must be the same after every verb that opens the store.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from robotrials.record import Camera, Episode, Event, Scene, Store, Trajectory
from robotrials.record.footage import encode_film
from robotrials.record.log import read_log
from robotrials.record.part import METADATA_KEY

SECRET = b'TOP SECRET of the reader\n'
STORE, TARGET, OUTSIDE = 'theirs/store', 'ours/target', 'outside'


def episode(seed: int, *, policy: str = 'p') -> Episode:
    return Episode(
        policy=policy, task='t', outcome='success' if seed % 3 else 'failure', duration_s=3.0, time_cap_s=9.0,
        seed=seed, events=(Event(1.0, 'placement'),),
    )  # fmt: skip


@functools.cache
def film() -> bytes:
    frames = [np.full((16, 16, 3), shade, np.uint8) for shade in (0, 80, 160, 240)]
    return encode_film(frames, (1, 2, 3, 4), control_rate_hz=2.0)


def sound_store(path: Path, *, video: str = 'wrist.mp4', more: bool = False) -> Store:
    """Two policies, a trajectory with a camera, a film; `more`: a further episode. A copy of one that was made once."""
    shutil.copytree(_made_store(video, more), path)
    return Store.open(path)


@functools.cache
def _made_store(video: str, more: bool) -> Path:
    folder = tempfile.TemporaryDirectory(prefix='robotrials-hostile-')
    atexit.register(folder.cleanup)
    store = Store.create(Path(folder.name, 'store'))
    batch = [episode(seed, policy=policy) for policy in ('p', 'q') for seed in range(6)]
    camera = Camera('wrist', np.eye(3), np.eye(4), width_px=16, height_px=16, video=video)
    steps = Trajectory(
        time_s=np.arange(1.0, 5.0) / 2, joint_position_rad=np.zeros((4, 7)),
        scene=Scene(control_rate_hz=2.0, cameras=(camera,)),
    )  # fmt: skip
    store.append(batch, trajectories={batch[0].key: steps}, media={'wrist.mp4': film()})
    if more:
        store.append([episode(50)])
    return Path(folder.name, 'store')


def forge(
    root: Path, *, kind: str = 'append', files: Sequence[Any] = (), body: Any = None, at: Any = None,
    parents: Any = None,
) -> None:  # fmt: skip
    """Add an entry to a log by hand, with whatever in it; its name fits its bytes, and it comes after all heads."""
    values = {
        'format': 'trialist-log-1', 'kind': kind, 'files': list(files), 'body': {} if body is None else body,
        'parents': list(read_log(root, fresh=True).heads()) if parents is None else parents,
        'at': '2026-01-01T00:00:00.000000+00:00' if at is None else at, 'by': 'mallory',
    }  # fmt: skip
    line = json.dumps(values, sort_keys=True, separators=(',', ':')).encode() + b'\n'
    (root / 'log' / f'{time.time_ns():016x}-{hashlib.sha256(line).hexdigest()}.json').write_bytes(line)


def file_row(name: Any, content: bytes = SECRET) -> dict[str, Any]:
    return {'name': name, 'sha256': hashlib.sha256(content).hexdigest(), 'bytes': len(content)}


def part_row(root: Path, **changes: Any) -> dict[str, Any]:
    return {**Store.open(root).parts()[0].as_json(), **changes}


def _names(*names: str) -> Callable[[Path, Path], None]:
    def make(root: Path, outside: Path) -> None:
        forge(root, files=[file_row(name.format(outside=outside)) for name in names])

    return make


def _wrong_digest(root: Path, outside: Path) -> None:
    forge(root, files=[file_row('../../outside/secret.txt', b'other'), file_row('../note.txt', b'other')])


def _body(**changes: Any) -> Callable[[Path, Path], None]:
    def make(root: Path, outside: Path) -> None:
        forge(root, kind='compact', body={'parts': [part_row(root, **changes)]})

    return make


def _lost(root: Path, outside: Path) -> None:
    forge(root, kind='repair', body={'lost': {'../../outside/secret.txt': 'x'}})


def _intent(root: Path, outside: Path) -> None:
    (root / '.pending').mkdir(exist_ok=True)
    (root / '.pending' / 'a.intent').write_text(f'../../outside/secret.txt\n{outside}/notes.txt\n../note.txt')


def _linked(
    name: str, target: str, *, is_logged: bool = False, content: bytes = SECRET
) -> Callable[[Path, Path], None]:
    """Something of the store is a link to something outside."""

    def make(root: Path, outside: Path) -> None:
        place = root / name
        if place.is_dir():
            place.rename(outside.parent / 'theirs' / f'was-{place.name}')
        else:
            place.unlink(missing_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(outside / target)
        if is_logged:
            forge(
                root, kind='media', files=[file_row(name if target.endswith('.txt') else f'{name}/secret.txt', content)]
            )

    return make


def _damaged_and_linked_quarantine(root: Path, outside: Path) -> None:
    (root / 'quarantine').symlink_to(outside)
    part = next((root / 'episodes').iterdir())
    part.write_bytes(part.read_bytes()[:-9])


def _pipe(root: Path, outside: Path) -> None:
    os.mkfifo(root / 'media' / 'pipe.mp4')
    forge(root, kind='media', files=[file_row('media/pipe.mp4')])


def _footer(root: Path, outside: Path) -> None:
    """A store of an older version, whose parts name their companions themselves."""
    unlog(root)
    (part,) = (root / 'episodes').iterdir()
    table = pq.read_table(part)
    told = json.loads(table.schema.metadata[METADATA_KEY]) | {
        'events': '../../../outside/secret.txt', 'trajectories': ['../../../outside/secret.txt'],
        'replaces': ['../../../outside/secret.txt'],
    }  # fmt: skip
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(told).encode()}), root / 'x')
    digest = hashlib.sha256((root / 'x').read_bytes()).hexdigest()[:32]
    part.unlink()
    (root / 'x').rename(part.with_name(f'{"0" * 16}-{digest}.parquet'))


def unlog(root: Path) -> None:
    for file in (root / 'log').iterdir():
        file.unlink()
    (root / 'log').rmdir()
    told = json.loads((root / 'trial.json').read_text())
    (root / 'trial.json').write_text(json.dumps(told | {'is_logged': False}))


def _typed(**changes: Any) -> Callable[[Path, Path], None]:
    return lambda root, outside: forge(root, **changes)


def _origin(root: Path, outside: Path) -> None:
    (outside / 'origin.json').write_text('{"cpu": "TOP SECRET of the reader"}')
    Store.open(root).append([episode(90).replace(provenance_id='../../../outside/origin')])


def _ids(root: Path, outside: Path) -> None:
    Store.open(root).append([dataclasses.replace(episode(91), episode_id='../../../outside/secret')])


# What `store verify` finds in each; '' where it is sound as a record, and only what its rows name leads outside.
HOSTILE: Mapping[str, tuple[str, Callable[[Path, Path], None]]] = {
    'a file above': ('damaged', _names('../planted.txt', '../../outside/secret.txt')),
    'a file of the root': ('damaged', _names('{outside}/secret.txt')),
    'a way out of media': ('damaged', _names('media/../../../outside/secret.txt')),
    'a dot, an empty step, a backslash': ('damaged', _names('media/./a', 'media//a', 'media/a\\b')),
    'a folder no store has': ('damaged', _names('hooks/post-merge')),
    'the log itself': ('damaged', _names('log/x.json')),
    'a name that no disk takes': ('damaged', _names(f'media/{"a" * 5000}', 'media/\ud800', 'media/\x00')),
    'digests that do not fit': ('damaged', _wrong_digest),
    'a part above': ('damaged', _body(name='../../../outside/secret.txt')),
    'events above': ('damaged', _body(events='../../../outside/secret.txt')),
    'trajectories above': ('damaged', _body(trajectories=['../../../outside/secret.txt'])),
    'replaced parts above': ('damaged', _body(replaces=['../../../outside/secret.txt'])),
    'a loss above': ('damaged', _lost),
    'an announcement of leftovers above': ('', _intent),
    'media that is a link': ('damaged', _linked('media', '', is_logged=True, content=b'other')),
    'a folder in media that is a link': ('damaged', _linked('media/a', '', is_logged=True, content=b'other')),
    'a film that is a link': ('damaged', _linked('media/wrist.mp4', 'secret.txt')),
    'a logged link': ('damaged', _linked('media/other.txt', 'secret.txt', is_logged=True)),
    'episodes that are a link': ('damaged', _linked('episodes', '')),
    'a log that is a link': ('damaged', _linked('log', '')),
    'a quarantine that is a link': ('damaged', _damaged_and_linked_quarantine),
    'drafts that are a link': ('damaged', _linked('.pending', '')),
    'a lock that is a link': ('damaged', _linked('.write.lock', 'new.txt')),
    'a description that is a link': ('', _linked('trial.json', 'trial.json')),
    'a pipe': ('damaged', _pipe),
    'a footer that leads out': ('damaged', _footer),
    'a time that is a number': ('damaged', _typed(at=5)),
    'parents that are tables': ('damaged', _typed(parents=[{}])),
    'a body that is a list': ('damaged', _typed(body=[1])),
    'parts that are no tables': ('damaged', _typed(body={'parts': [3]})),
    'a trial that is a number': ('damaged', _typed(body={'trial': 3})),
    'a closing without a record': ('damaged', _typed(kind='close', body={'unblinding': {'trial_id': 3}})),
    'files that are no tables': ('damaged', _typed(files=[7])),
    'a size that is less than nothing': ('damaged', _typed(files=[{**file_row('media/a'), 'bytes': -1}])),
    'an origin outside': ('missing', _origin),
    'an id that leads out': ('', _ids),
}


def make_box(box: Path, name: str) -> Path:
    """A hostile store and what lies around it; the store."""
    outside = box / OUTSIDE
    outside.mkdir(parents=True)
    for file in ('secret.txt', 'notes.txt'):
        (outside / file).write_bytes(SECRET)
    (box / 'theirs').mkdir()
    (box / 'ours').mkdir()
    for file in ('theirs/planted.txt', 'theirs/note.txt'):
        (box / file).write_bytes(SECRET)
    (outside / 'trial.json').write_text('{"secret": "TOP SECRET of the reader"}')
    root = box / STORE
    video = '../../../outside/secret.txt' if name == 'an id that leads out' else 'wrist.mp4'
    sound_store(root, video=video)
    sound_store(box / TARGET, more=True)
    HOSTILE[name][1](root, outside)
    return root


def around(box: Path, *, without: Sequence[str] = (STORE, TARGET)) -> dict[str, tuple[int, bytes]]:
    """Everything in the box but the stores: when it was changed, and its bytes."""
    found = {}
    for folder, folders, files in os.walk(box):
        here = Path(folder)
        folders[:] = [f for f in folders if (here / f).relative_to(box).as_posix() not in without]
        for name in [*files, *folders]:
            path = here / name
            status = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b''
            found[path.relative_to(box).as_posix()] = (status.st_mtime_ns if content else 0, content)
    return found
