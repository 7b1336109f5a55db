"""Where everything lies in a LeRobotDataset folder: what its metadata say, for versions 2.0, 2.1 and 3.0.

    v2.1   meta/info.json, meta/episodes.jsonl, meta/tasks.jsonl, one Parquet file per episode
    v3.0   meta/info.json, meta/episodes/**.parquet, meta/tasks.parquet, many episodes per Parquet file

Paths come from the templates in info.json, and an episode is found by its own row: files are not numbered by episode.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robotrials.errors import InputError

VERSIONS = ('v2.0', 'v2.1', 'v3.0')
DATA_PATHS = {
    'v2': 'data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet',
    'v3': 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet',
}
VIDEO_PATHS = {
    'v2': 'videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4',
    'v3': 'videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4',
}
PATHS = {'data': DATA_PATHS, 'video': VIDEO_PATHS}
PLACE_COLUMNS = ('timestamp', 'frame_index', 'episode_index', 'index', 'task_index')


@dataclass(frozen=True, slots=True)
class FeatureInfo:
    """One entry of `features`: a number, a vector, an image, a video, a text."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...]  # one per number of a vector; empty where the dataset names none
    is_channel_first: bool = False
    is_depth: bool = False

    @property
    def is_camera(self) -> bool:
        return self.dtype in ('image', 'video')

    @property
    def is_numeric(self) -> bool:
        return self.dtype.startswith(('float', 'int', 'uint', 'bool'))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(height, width, channels), whichever way round the dataset states it."""
        return (*self.shape[1:], self.shape[0]) if self.is_channel_first else self.shape


@dataclass(frozen=True, slots=True)
class VideoPlace:
    path: Path
    start_s: float


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """What the metadata say of one episode."""

    index: int
    length: int
    tasks: tuple[str, ...]
    data: Path
    videos: Mapping[str, VideoPlace] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)  # what its recorder wrote beside LeRobot's own


@dataclass(frozen=True, slots=True)
class Layout:
    """The metadata of one LeRobotDataset."""

    path: Path
    version: str
    fps: float
    robot_type: str
    features: Mapping[str, FeatureInfo]
    ranges: Mapping[str, range]
    rows: tuple[EpisodeRow, ...]
    tasks: Mapping[int, str]
    meta_files: tuple[Path, ...]

    @property
    def cameras(self) -> tuple[str, ...]:
        return tuple(key for key, feature in self.features.items() if feature.is_camera)

    @property
    def data_files(self) -> tuple[Path, ...]:
        """The Parquet files with frames, each once, in the order of their episodes."""
        return tuple(dict.fromkeys(row.data for row in self.rows))


def read_layout(path: Path | str) -> Layout:
    """Read the metadata of the folder that has `meta/info.json` in it."""
    root = Path(path)
    where = root / 'meta' / 'info.json'
    info = _read_info(where)
    features = {key: _feature(key, value, where) for key, value in info['features'].items()}
    is_v3 = info['codebase_version'] == 'v3.0'
    tasks, tasks_file = _read_tasks(root, is_v3=is_v3)
    rows, row_files = (_read_v3 if is_v3 else _read_v2)(root, info, features)
    _check_rows(rows, info, where)
    splits = info.get('splits') or {'train': f'0:{len(rows)}'}
    if not isinstance(splits, dict):
        raise InputError(f'{where}: splits is {splits!r}, wanted an object such as {{"train": "0:50"}}')
    return Layout(
        path=root, version=info['codebase_version'], fps=_fps(info, where),
        robot_type=str(info.get('robot_type') or ''),
        features=features, ranges={name: _range(text, where) for name, text in splits.items()}, rows=rows, tasks=tasks,
        meta_files=(where, tasks_file, *row_files),
    )  # fmt: skip


def _read_info(path: Path) -> dict[str, Any]:
    try:
        info = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise InputError(f'{path}: not readable as LeRobotDataset metadata ({error})') from error
    version = info.get('codebase_version') if isinstance(info, dict) else None
    if version not in VERSIONS:
        raise InputError(f'{path}: codebase_version is {version!r}; robotrials reads {", ".join(VERSIONS)}')
    missing = [key for key in ('fps', 'features') if key not in info]
    if missing:
        raise InputError(f'{path}: no {" and no ".join(missing)} in it')
    if not isinstance(info['features'], dict):
        raise InputError(f'{path}: features is {info["features"]!r}, wanted an object')
    return dict(info)


def whole(value: Any, where: Path | str, name: str) -> int:
    """A whole number of the metadata, not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f'{where}: {name} is {value!r}, wanted a whole number >= 0')
    return value


def _filled(template: Any, where: Path, **values: Any) -> str:
    """A path from one of the templates in info.json."""
    try:
        return str(template).format(**values)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        known = ', '.join(values)
        raise InputError(f'{where}: the template {template!r} cannot be filled with {known} ({error})') from error


def _fps(info: Mapping[str, Any], where: Path) -> float:
    fps = info['fps']
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps < 1e6:
        raise InputError(f'{where}: fps is {fps!r}, wanted frames per second > 0')
    return float(fps)


def _feature(key: str, value: Any, where: Path) -> FeatureInfo:
    if not isinstance(value, Mapping) or not isinstance(value.get('dtype'), str):
        raise InputError(f'{where}: features[{key!r}] is {value!r}, wanted an object with dtype and shape')
    sizes = value.get('shape') or [1]
    if not isinstance(sizes, list):
        raise InputError(f'{where}: the shape of {key} is {sizes!r}, wanted a list of whole numbers')
    shape = tuple(whole(n, where, f'the shape of {key}') for n in sizes)
    names = value.get('names')
    first = str(names[0]) if isinstance(names, list) and names else ''
    is_first = len(shape) == 3 and (first.startswith('channel') or (shape[0] in (1, 3) and shape[2] not in (1, 3, 4)))
    told = [value.get(name) for name in ('video_info', 'info')]
    details = {k: v for facts in told if isinstance(facts, Mapping) for k, v in facts.items()}
    is_depth = bool(details.get('is_depth_map') or details.get('video.is_depth_map'))
    return FeatureInfo(key, value['dtype'], shape, _names(names, math.prod(shape)), is_first, is_depth)


def _names(names: Any, size: int) -> tuple[str, ...]:
    """The names of a vector's numbers: a list, a dictionary of one list, a dictionary name -> place, or none."""
    if isinstance(names, Mapping):
        inner = next((v for v in names.values() if isinstance(v, list)), None)
        names = inner if inner is not None else list(names)
    if not isinstance(names, list) or len(names) != size:
        return ()
    texts = [str(n) for n in names]
    twice = {n for n in texts if texts.count(n) > 1}
    return tuple(f'{n}[{i}]' if n in twice else n for i, n in enumerate(texts))


def _range(text: Any, where: Path) -> range:
    first, separator, last = str(text).partition(':')
    if not separator or not first.isdigit() or not last.isdigit():
        raise InputError(f'{where}: a split is {text!r}, wanted FIRST:LAST such as 0:50')
    return range(int(first), int(last))


def _check_rows(rows: Sequence[EpisodeRow], info: Mapping[str, Any], where: Path) -> None:
    numbers = [row.index for row in rows]
    if len(set(numbers)) != len(numbers):
        twice = next(n for n in numbers if numbers.count(n) > 1)
        raise InputError(f'{where.parent}: episode {twice} is in the metadata twice')
    total = info.get('total_episodes')
    if total is not None and total != len(rows):
        raise InputError(
            f'{where}: total_episodes is {total}, the metadata have rows for {len(rows)} episodes; the dataset is not '
            'whole: fetch or record it again'
        )


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding='utf-8').splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise InputError(f'{path}: not readable as JSON lines ({error})') from error
    odd = next((number for number, row in enumerate(rows, start=1) if not isinstance(row, dict)), None)
    if odd is not None:
        raise InputError(f'{path}: row {odd} is {rows[odd - 1]!r}, wanted a JSON object')
    return rows


def _read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    try:
        return pq.read_table(path, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f'{path}: not readable as Parquet ({error})') from error


def _read_tasks(root: Path, *, is_v3: bool) -> tuple[dict[int, str], Path]:
    if not is_v3:
        path = root / 'meta' / 'tasks.jsonl'
        rows = read_json_lines(path)
        return {whole(row.get('task_index'), path, 'task_index'): str(row.get('task', '')) for row in rows}, path
    path = root / 'meta' / 'tasks.parquet'
    table = _read_table(path).to_pydict()
    # LeRobot keeps the text as the index of a data frame, named or not.
    text = next((c for c in ('task', '__index_level_0__') if c in table), None)
    if text is None or 'task_index' not in table:
        raise InputError(f'{path}: wanted the columns task and task_index, found {list(table)}')
    numbers = [whole(number, path, 'task_index') for number in table['task_index']]
    return dict(zip(numbers, map(str, table[text]), strict=True)), path


Rows = tuple[tuple[EpisodeRow, ...], tuple[Path, ...]]


def _read_v2(root: Path, info: Mapping[str, Any], features: Mapping[str, FeatureInfo]) -> Rows:
    where = root / 'meta' / 'info.json'
    size = whole(info.get('chunks_size') or 1000, where, 'chunks_size')
    path = root / 'meta' / 'episodes.jsonl'
    data_template = info.get('data_path') or DATA_PATHS['v2']
    video_template = info.get('video_path') or VIDEO_PATHS['v2']
    rows = []
    for number, row in enumerate(read_json_lines(path), start=1):
        if 'episode_index' not in row or 'length' not in row:
            raise InputError(f'{path} line {number}: wanted episode_index and length, found {list(row)}')
        index = whole(row['episode_index'], f'{path} line {number}', 'episode_index')
        place = {'episode_chunk': index // size, 'episode_index': index}
        videos = {
            key: VideoPlace(root / _filled(video_template, where, video_key=key, **place), 0.0)
            for key, feature in features.items()
            if feature.dtype == 'video'
        }
        data = root / _filled(data_template, where, **place)
        length = whole(row['length'], f'{path} line {number}', 'length')
        facts = {key: value for key, value in row.items() if key not in ('episode_index', 'length', 'tasks')}
        rows.append(EpisodeRow(index, length, _texts(row.get('tasks')), data, videos, facts))
    return tuple(rows), (path,)


def _read_v3(root: Path, info: Mapping[str, Any], features: Mapping[str, FeatureInfo]) -> Rows:
    files = sorted((root / 'meta' / 'episodes').glob('*/*.parquet'))
    if not files:
        raise InputError(f'{root}/meta/episodes: no Parquet files in it')
    videos = [key for key, feature in features.items() if feature.dtype == 'video']
    rows: list[EpisodeRow] = []
    for file in files:
        names = [n for n in _schema_names(file) if not n.startswith('stats/')]
        wanted = ['episode_index', 'length', 'data/chunk_index', 'data/file_index']
        for key in videos:
            wanted += [f'videos/{key}/{name}' for name in ('chunk_index', 'file_index', 'from_timestamp')]
        missing = [name for name in wanted if name not in names]
        if missing:
            raise InputError(f'{file}: no column {missing[0]!r}; the metadata of an episode need it')
        rows += [_v3_row(file, root, info, row=row, videos=videos) for row in _read_table(file, names).to_pylist()]
    return tuple(sorted(rows, key=lambda r: r.index)), tuple(files)


def _schema_names(path: Path) -> list[str]:
    try:
        return list(pq.read_schema(path).names)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f'{path}: not readable as Parquet ({error})') from error


def _v3_row(
    file: Path, root: Path, info: Mapping[str, Any], *, row: Mapping[str, Any], videos: Sequence[str]
) -> EpisodeRow:
    where = root / 'meta' / 'info.json'
    data_template, video_template = (info.get(f'{k}_path') or p['v3'] for k, p in PATHS.items())
    data = root / _filled(data_template, where, **_place(file, row, 'data'))
    places = {}
    for key in videos:
        path = root / _filled(video_template, where, video_key=key, **_place(file, row, f'videos/{key}'))
        start = row[f'videos/{key}/from_timestamp']
        if not isinstance(start, int | float) or not start >= 0:
            raise InputError(f'{file}: videos/{key}/from_timestamp is {start!r}, wanted seconds >= 0')
        places[key] = VideoPlace(path, float(start))
    index, length = (whole(row[name], file, name) for name in ('episode_index', 'length'))
    return EpisodeRow(index, length, _texts(row.get('tasks')), data, places)


def _place(file: Path, row: Mapping[str, Any], prefix: str) -> dict[str, int]:
    names = ('chunk_index', 'file_index')
    return {name: whole(row[f'{prefix}/{name}'], file, f'{prefix}/{name}') for name in names}


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def matrix(column: pa.ChunkedArray | pa.Array, *, where: str) -> np.ndarray[Any, np.dtype[Any]]:
    """A column of scalars, or of lists of one length, as (T,) or (T, K) in its own dtype."""
    joined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if joined.null_count:
        raise InputError(f'{where}: {joined.null_count} of {len(joined)} values are null')
    if pa.types.is_fixed_size_list(joined.type):
        return np.asarray(joined.flatten().to_numpy(zero_copy_only=False)).reshape(len(joined), joined.type.list_size)
    if pa.types.is_list(joined.type) or pa.types.is_large_list(joined.type):
        offsets = np.asarray(joined.offsets)
        lengths = np.diff(offsets)
        if len(lengths) and lengths.min() != lengths.max():
            raise InputError(f'{where}: vectors of {lengths.min()} to {lengths.max()} numbers, wanted one length')
        flat = joined.flatten()
        if pa.types.is_nested(flat.type):
            inner = matrix(flat, where=where)
            return inner.reshape(len(joined), -1)
        return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(joined), -1)
    return np.asarray(joined.to_numpy(zero_copy_only=False))
