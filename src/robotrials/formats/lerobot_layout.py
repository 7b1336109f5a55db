"""A LeRobotDataset on disk: its metadata, and its frames.

Where everything lies in a LeRobotDataset folder: what its metadata say, for versions 2.0, 2.1 and 3.0.

    v2.1   meta/info.json, meta/episodes.jsonl, meta/tasks.jsonl, one Parquet file per episode
    v3.0   meta/info.json, meta/episodes/**.parquet, meta/tasks.parquet, many episodes per Parquet file

Paths come from the templates in info.json, and an episode is found by its own row: files are not numbered by episode.

The frames of a LeRobotDataset, streamed episode by episode from its Parquet files in bounded memory.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robotrials.errors import InputError, RecordError
from robotrials.formats.export import episode_row
from robotrials.formats.imported import Media, Recording
from robotrials.formats.rollout import Assignment, CameraClip, Place
from robotrials.formats.video import EncodedImage
from robotrials.old_name import LEROBOT_FILE, LEROBOT_FORM
from robotrials.record import Episode, Trajectory
from robotrials.record.column import escape, scene_from_json, scene_to_json, unescape
from robotrials.record.episode import parse_field
from robotrials.record.trajectory import STEP_COLUMNS

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
class LeRobotEpisode:
    """What the metadata say of one episode."""

    index: int
    length: int
    tasks: tuple[str, ...]
    data: Path
    videos: Mapping[str, VideoPlace] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)  # what its recorder wrote beside LeRobot's own


@dataclass(frozen=True, slots=True)
class DatasetLayout:
    """The metadata of one LeRobotDataset."""

    path: Path
    version: str
    fps: float
    robot_type: str
    features: Mapping[str, FeatureInfo]
    ranges: Mapping[str, range]
    rows: tuple[LeRobotEpisode, ...]
    tasks: Mapping[int, str]
    meta_files: tuple[Path, ...]

    @property
    def cameras(self) -> tuple[str, ...]:
        return tuple(key for key, feature in self.features.items() if feature.is_camera)

    @property
    def data_files(self) -> tuple[Path, ...]:
        """The Parquet files with frames, each once, in the order of their episodes."""
        return tuple(dict.fromkeys(row.data for row in self.rows))


def read_layout(path: Path | str) -> DatasetLayout:
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
    return DatasetLayout(
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
    sources = [value.get(name) for name in ('video_info', 'info')]
    details = {k: v for facts in sources if isinstance(facts, Mapping) for k, v in facts.items()}
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


def _check_rows(rows: Sequence[LeRobotEpisode], info: Mapping[str, Any], where: Path) -> None:
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


Rows = tuple[tuple[LeRobotEpisode, ...], tuple[Path, ...]]


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
        rows.append(LeRobotEpisode(index, length, _texts(row.get('tasks')), data, videos, facts))
    return tuple(rows), (path,)


def _read_v3(root: Path, info: Mapping[str, Any], features: Mapping[str, FeatureInfo]) -> Rows:
    files = sorted((root / 'meta' / 'episodes').glob('*/*.parquet'))
    if not files:
        raise InputError(f'{root}/meta/episodes: no Parquet files in it')
    videos = [key for key, feature in features.items() if feature.dtype == 'video']
    rows: list[LeRobotEpisode] = []
    paths = _Paths(root, info)
    for file in files:
        names = [n for n in _schema_names(file) if not n.startswith('stats/')]
        wanted = ['episode_index', 'length', 'data/chunk_index', 'data/file_index']
        for key in videos:
            wanted += [f'videos/{key}/{name}' for name in ('chunk_index', 'file_index', 'from_timestamp')]
        missing = [name for name in wanted if name not in names]
        if missing:
            raise InputError(f'{file}: no column {missing[0]!r}; the metadata of an episode need it')
        rows += [_v3_row(file, paths, row=row, videos=videos) for row in _read_table(file, names).to_pylist()]
    return tuple(sorted(rows, key=lambda r: r.index)), tuple(files)


def _schema_names(path: Path) -> list[str]:
    try:
        return list(pq.read_schema(path).names)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f'{path}: not readable as Parquet ({error})') from error


class _Paths:
    """The files of a dataset by their places, each made once: thousands of episodes lie in a few files."""

    def __init__(self, root: Path, info: Mapping[str, Any]) -> None:
        self._root, self._where = root, root / 'meta' / 'info.json'
        self._templates = {kind: info.get(f'{kind}_path') or paths['v3'] for kind, paths in PATHS.items()}
        self._made: dict[tuple[str, int, int], Path] = {}

    def get(self, file: Path, row: Mapping[str, Any], *, video: str = '') -> Path:
        """Where the frames of a row lie, or its `video`."""
        prefix = f'videos/{video}' if video else 'data'
        chunk, number = (whole(row[name], file, name) for name in (f'{prefix}/chunk_index', f'{prefix}/file_index'))
        path = self._made.get((video, chunk, number))
        if path is None:
            place: dict[str, Any] = {'chunk_index': chunk, 'file_index': number}
            kind = 'data'
            if video:
                kind, place = 'video', {'video_key': video, **place}
            path = self._root / _filled(self._templates[kind], self._where, **place)
            self._made[video, chunk, number] = path
        return path


def _v3_row(file: Path, paths: _Paths, *, row: Mapping[str, Any], videos: Sequence[str]) -> LeRobotEpisode:
    data = paths.get(file, row)
    places = {}
    for key in videos:
        path = paths.get(file, row, video=key)
        start = row[f'videos/{key}/from_timestamp']
        if not isinstance(start, int | float) or not start >= 0:
            raise InputError(f'{file}: videos/{key}/from_timestamp is {start!r}, wanted seconds >= 0')
        places[key] = VideoPlace(path, float(start))
    index, length = (whole(row[name], file, name) for name in ('episode_index', 'length'))
    return LeRobotEpisode(index, length, _texts(row.get('tasks')), data, places)


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


BATCH_BYTES = 32 << 20
MOST_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeFrames:
    """The rows of one episode: numbers as (T,) or (T, K) arrays, everything else as Arrow columns."""

    row: LeRobotEpisode
    numbers: Mapping[str, NDArray[Any]]
    others: Mapping[str, pa.ChunkedArray]

    @property
    def where(self) -> str:
        return f'{self.row.data}: episode {self.row.index}'


def column_names(path: Path) -> tuple[str, ...]:
    """The columns of a Parquet file."""
    return tuple(_open(path).schema_arrow.names)


def stream_frames(rows: Iterable[LeRobotEpisode], columns: Sequence[str] | None = None) -> Iterator[EpisodeFrames]:
    """The frames of these episodes, file by file, each file read once and forward; `columns` limits what is read."""
    files: dict[Path, dict[int, LeRobotEpisode]] = {}
    for row in rows:
        files.setdefault(row.data, {})[row.index] = row
    for path, wanted in files.items():
        yield from _stream_file(path, wanted, columns)


def _open(path: Path) -> pq.ParquetFile:
    if not path.exists():
        raise InputError(f'{path}: missing; the metadata put episodes there')
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f'{path}: not readable as Parquet ({error})') from error


def _batch_rows(file: pq.ParquetFile) -> int:
    groups = range(file.metadata.num_row_groups)
    size = sum(file.metadata.row_group(i).total_byte_size for i in groups)
    per_row = max(1, size // max(1, file.metadata.num_rows))
    return max(1, min(MOST_BATCH_ROWS, int(BATCH_BYTES // per_row)))


def _stream_file(
    path: Path, rows: Mapping[int, LeRobotEpisode], columns: Sequence[str] | None
) -> Iterator[EpisodeFrames]:
    file = _open(path)
    names = file.schema_arrow.names
    missing = [c for c in ('episode_index', *(columns or ())) if c not in names]
    if missing:
        raise InputError(f'{path}: no column {missing[0]!r}, which meta/info.json declares; found {", ".join(names)}')
    asked = None if columns is None else list(dict.fromkeys(['episode_index', *columns]))
    pending: list[_Slice] = []
    seen: set[int] = set()
    try:
        for batch in file.iter_batches(batch_size=_batch_rows(file), columns=asked):
            for piece in _slices(batch, path):
                if pending and piece.number != pending[0].number:
                    yield from _finished(pending, rows, seen, path)
                    pending = []
                pending.append(piece)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f'{path}: damaged or not whole ({error}); fetch it again') from error
    if pending:
        yield from _finished(pending, rows, seen, path)
    lost = sorted(set(rows) - seen)
    if lost:
        raise InputError(f'{path}: no rows of episode {lost[0]}, which the metadata put there')


@dataclass(frozen=True, slots=True, eq=False)
class _Slice:
    number: int
    numbers: Mapping[str, NDArray[Any]]
    others: Mapping[str, pa.Array]


def _slices(batch: pa.RecordBatch, path: Path) -> Iterator[_Slice]:
    """A batch cut where its episode changes; a column of numbers becomes an array once per batch."""
    arrays = {n: matrix(batch.column(n), where=f'{path}: {n}') for n in batch.schema.names if _is_number(batch, n)}
    others = {n: batch.column(n) for n in batch.schema.names if n not in arrays}
    episode = arrays.get('episode_index')
    if episode is None or episode.ndim != 1:
        raise InputError(f'{path}: episode_index is {batch.schema.field("episode_index").type}, wanted whole numbers')
    cuts = [0, *(np.flatnonzero(np.diff(episode)) + 1).tolist(), len(episode)]
    for first, last in itertools.pairwise(cuts):
        yield _Slice(
            int(episode[first]),
            {name: values[first:last] for name, values in arrays.items()},
            {name: values.slice(first, last - first) for name, values in others.items()},
        )


def _is_number(batch: pa.RecordBatch, name: str) -> bool:
    kind = batch.schema.field(name).type
    while pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _finished(
    pieces: Sequence[_Slice], rows: Mapping[int, LeRobotEpisode], seen: set[int], path: Path
) -> Iterator[EpisodeFrames]:
    number = pieces[0].number
    if number not in rows:
        return
    if number in seen:
        raise InputError(f'{path}: the rows of episode {number} do not lie together')
    seen.add(number)
    row, n_frames = rows[number], sum(len(p.numbers['episode_index']) for p in pieces)
    if n_frames != row.length:
        raise InputError(f'{path}: episode {number} has {n_frames} rows, the metadata say {row.length}')
    if len(pieces) == 1:
        numbers = pieces[0].numbers
    else:
        numbers = {n: np.concatenate([p.numbers[n] for p in pieces]) for n in pieces[0].numbers}
    others = {n: pa.chunked_array([p.others[n] for p in pieces]) for n in pieces[0].others}
    yield EpisodeFrames(row, numbers, others)


def encoded_images(frames: EpisodeFrames, feature: FeatureInfo) -> list[EncodedImage]:
    """The images of one camera, still encoded; a cell that only names a file is refused."""
    where = f'{frames.where}: {feature.key}'
    images = []
    for cell in frames.others[feature.key].to_pylist():
        if not cell or cell.get('bytes') is None:
            raise InputError(f'{where}: no image bytes in the Parquet file, only a path')
        images.append(EncodedImage(cell['bytes'], feature.image_shape, 'uint8', where))
    return images


# What a LeRobotDataset that robotrials wrote says beyond LeRobot's own fields, in `meta/trialist.jsonl`.
# The first line maps signals of the record to features; one line per episode follows, with the episode as a table
# would have it and its scene. A dataset with this file comes back as the record it was; other readers need not know of
# it.

FILE = LEROBOT_FILE
FORM = LEROBOT_FORM


@dataclass(frozen=True, slots=True)
class StoredSignal:
    """Where a signal of the record went: some numbers of a feature, and the type and rank it had."""

    signal: str
    key: str
    first: int
    last: int
    dtype: str
    ndim: int


@dataclass(frozen=True, slots=True)
class OwnRecord:
    """The episodes and scenes of a dataset that robotrials wrote."""

    path: Path
    signals: tuple[StoredSignal, ...]
    episodes: tuple[Episode, ...]
    scenes: tuple[Mapping[str, Any], ...]

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        return tuple(Assignment(s.signal, Place(s.key, s.first, s.last)) for s in self.signals)

    def recording(
        self, frames: EpisodeFrames, values: Mapping[str, NDArray[Any]], cameras: Mapping[str, CameraClip]
    ) -> Recording:
        """The recording that was exported as this episode."""
        number = frames.row.index
        scene_row = self.scenes[number]
        signals = {s.signal: _as_stored(values[s.signal], s) for s in self.signals}
        bodies = tuple(scene_row['bodies'])
        poses = [signals[f'body_pose/{b}'] for b in map(escape, bodies) if f'body_pose/{b}' in signals]
        limit = scene_row.get('joint_torque_limit_nm')
        columns: dict[str, Any] = {name: column for name, column in signals.items() if name in STEP_COLUMNS}
        trajectory = Trajectory(
            time_s=signals['time_s'],
            **columns,
            joint_torque_limit_nm=None if limit is None else np.array(limit),
            bodies=bodies if poses else (),
            body_pose=np.stack(poses, axis=1) if poses else None,
            extra={unescape(n.removeprefix('extra/')): v for n, v in signals.items() if n.startswith('extra/')},
            scene=scene_from_json(scene_row),
        )
        media: dict[str, Media] = {
            camera.video: cameras[camera.name].clip
            for camera in trajectory.scene.cameras
            if camera.video and camera.name in cameras
        }
        return Recording(self.episodes[number], trajectory, media)


def _as_stored(values: NDArray[Any], stored: StoredSignal) -> NDArray[Any]:
    flat = values.reshape(len(values), -1).astype(stored.dtype)
    return flat[:, 0] if stored.ndim == 1 else flat


def own_lines(signals: Sequence[StoredSignal], rows: Sequence[tuple[Episode, Trajectory]]) -> list[str]:
    """The lines of the file."""
    head = {'form': FORM, 'signals': [dataclasses.asdict(s) for s in signals]}
    return [json.dumps(head), *(own_line(episode, trajectory) for episode, trajectory in rows)]


def own_line(episode: Episode, trajectory: Trajectory) -> str:
    """One episode and its scene."""
    scene = scene_to_json(trajectory)
    if trajectory.joint_torque_limit_nm is not None:
        scene['joint_torque_limit_nm'] = np.asarray(trajectory.joint_torque_limit_nm, dtype=float).tolist()
    return json.dumps({'episode': episode_row(episode), 'scene': scene})


def read_own(root: Path) -> OwnRecord | None:
    """The file of a dataset, or None where it has none."""
    path = root / 'meta' / FILE
    if not path.exists():
        return None
    head, *rows = read_json_lines(path) or [{}]
    if head.get('form') != FORM:
        raise InputError(f'{path}: the form is {head.get("form")!r}, this version reads {FORM!r}')
    episodes = []
    for number, row in enumerate(rows, start=2):
        try:
            fields = {n: parse_field(n, v) for n, v in row['episode'].items()}
            episodes.append(Episode(**{n: v for n, v in fields.items() if v is not None and n != 'provenance_id'}))
        except (RecordError, KeyError, TypeError) as error:
            raise InputError(f'{path} line {number}: {error}') from error
    try:
        signals = tuple(StoredSignal(**s) for s in head['signals'])
        return OwnRecord(path, signals, tuple(episodes), tuple(row['scene'] for row in rows))
    except (KeyError, TypeError) as error:
        raise InputError(f'{path}: {error}') from error
