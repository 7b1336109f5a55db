"""Language of a LeRobotDataset as phases: subtask rows, subtask numbers, and tasks that change within an episode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robotrials.errors import InputError
from robotrials.formats.lerobot_frame import EpisodeFrames

LANGUAGE_COLUMNS = ('language_persistent', 'language_events')
STYLE = 'subtask'
Phases = tuple[tuple[float, str], ...]


def phases(frames: EpisodeFrames, texts: Sequence[str], *, subtasks: Mapping[int, str], fps: float) -> Phases:
    """(seconds, name) where each phase of an episode begins, in order."""
    numbers = frames.numbers.get('subtask_index')
    if numbers is not None and subtasks:
        return _changes([subtasks.get(int(n), f'subtask {n}') for n in numbers.reshape(-1)], fps)
    spoken = {*_persistent(frames), *_events(frames, fps)}
    if spoken:
        end_s = frames.row.length / fps
        return tuple(sorted((t_s, name) for t_s, name in spoken if t_s <= end_s))
    return _changes(texts, fps) if len(texts) > 1 else ()


def _changes(names: Sequence[str], fps: float) -> Phases:
    return tuple((i / fps, name) for i, name in enumerate(names) if i == 0 or names[i - 1] != name)


def _persistent(frames: EpisodeFrames) -> set[tuple[float, str]]:
    """Rows that hold from their own timestamp on; every frame may carry all of them."""
    column = frames.others.get('language_persistent')
    if column is None:
        return set()
    start_s = float(frames.numbers['timestamp'].reshape(-1)[0])
    found = set()
    for cell in column.to_pylist():
        for row in _subtasks(cell):
            stamp = row.get('timestamp')
            if stamp is None:
                raise InputError(f'{frames.where}: a subtask of language_persistent has no timestamp')
            found.add((max(0.0, float(stamp) - start_s), str(row['content'])))
    return found


def _events(frames: EpisodeFrames, fps: float) -> set[tuple[float, str]]:
    column = frames.others.get('language_events')
    if column is None:
        return set()
    return {(i / fps, str(row['content'])) for i, cell in enumerate(column.to_pylist()) for row in _subtasks(cell)}


def _subtasks(cell: Any) -> Iterable[Mapping[str, Any]]:
    return (row for row in cell or () if row.get('style') == STYLE and row.get('content'))


def read_subtasks(root: Path) -> Mapping[int, str]:
    """`meta/subtasks.parquet`: number -> text; empty where the dataset has none."""
    path = root / 'meta' / 'subtasks.parquet'
    if not path.exists():
        return {}
    try:
        table = pq.read_table(path).to_pydict()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f'{path}: not readable as Parquet ({error})') from error
    text = next((c for c in ('subtask', '__index_level_0__') if c in table), None)
    if text is None or 'subtask_index' not in table:
        raise InputError(f'{path}: wanted the columns subtask and subtask_index, found {list(table)}')
    return dict(zip(np.asarray(table['subtask_index']).tolist(), table[text], strict=True))
