"""What an account that can read a store sees of each episode, as numbers: for measuring what a blinded trial gave away.

Rows as they lie in the files, with their pseudonyms and ids; order; names, sizes and times of the files that hold them.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.record.part import PART_NAME, PartInfo
from robotrials.record.select import column_table
from robotrials.record.store import Store

Key = tuple[str, int]
# What the robot did. Whoever stands beside it sees this, blinded or not.
BEHAVIOUR = (
    'duration_s', 'steps', 'outcome', 'success', 'items_placed', 'items_lost', 'score', 'is_unrecoverable', 'reason',
)  # fmt: skip


def visible_features(store: Store, *, behaviour: bool) -> tuple[tuple[Key, ...], tuple[str, ...], NDArray[np.float64]]:
    """The attempts of a store in its order, the names of features, and their values (attempts, features).

    behaviour: with what the robot did; else only what files tell besides.
    """
    rows: dict[Key, dict[str, float]] = {}
    media = _media(store.path)
    before: dict[str, float] = {}
    for part in store.parts():
        times = _part_times(part)
        gaps = {f'{name} since the last part': at - before.get(name, at) for name, at in times.items()}
        before = times
        table = column_table(part)
        for place, row in enumerate(table.to_pylist()):
            key = (row['episode_id'], row['attempt'])
            own = {'place in the store': float(len(rows)), 'place in its part': float(place), **gaps}
            own['rows of its part'] = float(part.n_rows)
            for name, value in row.items():
                if behaviour or name not in BEHAVIOUR:
                    own.update(_numbers(name, value))
            for kind, (size, written) in media.get(key, {}).items():
                own[f'{kind} size'] = size
                own[f'{kind} written after its part'] = written - times['written']
            rows[key] = own
    names = tuple(sorted({name for own in rows.values() for name in own}))
    values = np.array([[own.get(name, np.nan) for name in names] for own in rows.values()], dtype=np.float64)
    return tuple(rows), names, values.reshape(len(rows), len(names))


def _part_times(part: PartInfo) -> dict[str, float]:
    found = part.path.stat()
    named = PART_NAME.match(part.path.name)
    return {
        'time in the name': int(named['time'], 16) / 1e9 if named else 0.0, 'written': found.st_mtime_ns / 1e9,
        'size': found.st_size / max(part.n_rows, 1),
    }  # fmt: skip


def _media(root: Path) -> Mapping[Key, Mapping[str, tuple[float, float]]]:
    """Size and time of every file of media/ that an episode's key names."""
    found: dict[Key, dict[str, tuple[float, float]]] = {}
    for path in (root / 'media').rglob('*') if (root / 'media').is_dir() else ():
        for part in (path.name, path.parent.name):
            episode_id, _, rest = part.partition('-')
            attempt = rest.partition('.')[0]
            if attempt.isdigit() and path.is_file():
                state = path.stat()
                kind = f'{path.parent.parent.name}{"".join(path.suffixes)}'
                found.setdefault((episode_id, int(attempt)), {})[kind] = (state.st_size, state.st_mtime_ns / 1e9)
                break
    return found


def _numbers(name: str, value: Any) -> dict[str, float]:
    if value is None:
        return {name: np.nan}
    if isinstance(value, dt.datetime):
        return {name: value.timestamp()}
    if isinstance(value, bool | int | float):
        return {name: float(value)}
    text = str(value)
    return {name: float(zlib.crc32(text.encode('utf-8', 'replace'))), f'{name} length': float(len(text))}
