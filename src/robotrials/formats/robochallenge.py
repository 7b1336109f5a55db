"""RoboChallenge recordings: a folder an episode with `meta/episode_meta.json`, below folders of policies and tasks.

The recording itself has times and no result. Keys that someone added (`success`, `score`, `policy`, `task_name`) are
taken as a table's columns would be; where policy and task are not named, the folders above the episode do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robotrials.errors import InputError
from robotrials.formats.guess import SYNONYMS, normal
from robotrials.formats.imported import CERTAIN, Imported, ImportOptions, refuse_unused
from robotrials.formats.rows import Row, Rows, flat, load_json
from robotrials.formats.table import read_rows

META = 'episode_meta.json'
MOST_EPISODES = 200_000


class RoboChallengeFormat:
    """What RoboChallenge's client records of its episodes."""

    name = 'robochallenge'
    summary = 'RoboChallenge recordings: folders of episode_<n>/meta/episode_meta.json, by policy and task'

    def recognise(self, path: Path) -> float | None:
        try:
            return CERTAIN if path.is_dir() and next(_metas(path), None) is not None else None
        except OSError:
            return None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='RoboChallenge recordings', takes=('columns', 'values', 'blank', 'answers'))
        metas = sorted(itertools.islice(_metas(path), MOST_EPISODES))
        table = [_row(path, meta) for meta in metas]
        header = tuple(dict.fromkeys(name for row in table for name in row))

        def read() -> Iterator[tuple[int, Row]]:
            for number, row in enumerate(table, start=1):
                yield number, [row.get(name) for name in header]

        return read_rows(Rows(path, header, read), options, name=self.name, sources=tuple(metas))


ROBOCHALLENGE = RoboChallengeFormat()


def _metas(path: Path) -> Iterator[Path]:
    """The descriptions of episodes at the depths where they lie."""
    for depth in ('', '*/', '*/*/', '*/*/*/'):
        yield from path.glob(f'{depth}episode_*/meta/{META}')


def _row(root: Path, meta: Path) -> dict[str, Any]:
    values = load_json(meta)
    if not isinstance(values, dict):
        raise InputError(f'{meta}: wanted a JSON object that describes an episode')
    row = flat(values, meta)
    start, end = row.pop('start_time', None), row.pop('end_time', None)
    if isinstance(start, int | float) and isinstance(end, int | float):
        row['started_at'], row['duration_s'] = start, end - start
    named = {normal(key) for key in row}
    above = [root.resolve().name, *meta.parent.parent.parent.relative_to(root).parts]
    for field, places in (('task', above[-1:]), ('policy', above[-2:-1])):
        if not named & set(SYNONYMS[field]) and places:
            row[field] = places[0]
    return row
