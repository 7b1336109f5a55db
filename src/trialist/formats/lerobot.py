"""LeRobotDataset folders, versions 2.1 and 3.0, read without LeRobot.

    v2.1   meta/info.json, meta/episodes.jsonl, meta/tasks.jsonl, one Parquet file an episode
    v3.0   meta/info.json, meta/episodes/**.parquet, meta/tasks.parquet, many episodes a Parquet file

Images inside the Parquet files are read. Cameras stored as video are named, and decoded where PyAV is installed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trialist.errors import InputError
from trialist.formats.dataset import RecordedEpisode, RecordedImage, check_split
from trialist.formats.image import EncodedImage
from trialist.formats.lerobot_names import FeatureNames, find_names
from trialist.formats.space import ActionSpace, FloatArray
from trialist.formats.video import VideoFrames

VERSIONS = ('v2.0', 'v2.1', 'v3.0')
DATA_PATHS = {
    'v2': 'data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet',
    'v3': 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet',
}
VIDEO_PATHS = {
    'v2': 'videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4',
    'v3': 'videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4',
}
BATCH_ROWS = 1024


@dataclass(frozen=True, slots=True)
class VideoPlace:
    path: Path
    start_s: float


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """What the metadata says of one episode."""

    index: int
    length: int
    tasks: tuple[str, ...]
    data: Path
    videos: Mapping[str, VideoPlace] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeRobotDataset:
    """A LeRobotDataset. Open it with `LeRobotDataset.open`."""

    path: Path
    name: str
    version: str
    fps: float
    features: Mapping[str, Mapping[str, Any]]
    ranges: Mapping[str, range]
    rows: tuple[EpisodeRow, ...]
    tasks: Mapping[int, str]
    space: ActionSpace
    names: FeatureNames

    @classmethod
    def open(cls, path: Path | str, *, names: Mapping[str, str] | None = None) -> LeRobotDataset:
        """Open the folder with `meta/info.json` in it; `names` says which feature is the action or the state."""
        root = Path(path)
        info = _read_info(root / 'meta' / 'info.json')
        tasks = _read_tasks(root, info)
        rows = _read_v3(root, info) if info['codebase_version'] == 'v3.0' else _read_v2(root, info)
        splits = info.get('splits') or {'train': f'0:{len(rows)}'}
        ranges = {name: _range(text, root) for name, text in splits.items()}
        features = info['features']
        found = find_names(root, features, given=names)
        return cls(root, root.name, info['codebase_version'], float(info['fps']), features, ranges, rows, tasks,
                   ActionSpace.from_names(found.action_names), found)  # fmt: skip

    @property
    def splits(self) -> Mapping[str, int]:
        return {name: sum(row.index in span for row in self.rows) for name, span in self.ranges.items()}

    @property
    def cameras(self) -> tuple[str, ...]:
        return tuple(k for k, f in self.features.items() if f['dtype'] in ('image', 'video'))

    def episodes(self, split: str, *, only: Container[int] | None = None) -> Iterator[RecordedEpisode]:
        """Stream the episodes of a split in order; `only` picks by index."""
        check_split(self, split)
        wanted = [r for r in self.rows if r.index in self.ranges[split]]
        first = self.ranges[split].start
        wanted = [r for r in wanted if only is None or r.index - first in only]
        files: dict[Path, dict[int, EpisodeRow]] = {}
        for row in wanted:
            files.setdefault(row.data, {})[row.index] = row
        for data, rows in files.items():
            for row, table in _tables(data, rows):
                yield self._episode(split, row, table, index=row.index - first)

    def _episode(self, split: str, row: EpisodeRow, table: pa.Table, *, index: int) -> RecordedEpisode:
        state = {
            name: _matrix(table.column(part.feature))[:, part.start : part.end]
            for name, part in self.names.state.items()
        }
        images: dict[str, Sequence[RecordedImage]] = {}
        for name, source in self.names.images.items():
            feature = self.features[source]
            if feature['dtype'] == 'image':
                where = f'{row.data}: episode {row.index}: {source}'
                images[name] = _images(table.column(source), feature, where)
            else:
                place = row.videos[source]
                images[name] = VideoFrames(place.path, place.start_s, self.fps, row.length)
        return RecordedEpisode(
            dataset=self.name,
            split=split,
            index=index,
            actions=_matrix(table.column(self.names.action)),
            instructions=self._instructions(row, table),
            state=state,
            images=images,
            time_s=table.column('timestamp').to_numpy().astype(np.float64),
            metadata={'episode_index': str(row.index)},
        )

    def _instructions(self, row: EpisodeRow, table: pa.Table) -> tuple[str, ...]:
        if self.names.instruction in table.column_names:
            numbers = table.column(self.names.instruction).to_pylist()
            if all(number in self.tasks for number in numbers):
                texts = tuple(self.tasks[number] for number in numbers)
                return texts[:1] if len(set(texts)) == 1 else texts
        return row.tasks[:1]


def _read_info(path: Path) -> dict[str, Any]:
    try:
        info = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f'{path}: not readable as LeRobotDataset metadata ({error})') from error
    version = info.get('codebase_version')
    if version not in VERSIONS:
        raise InputError(f'{path}: codebase_version is {version!r}; trialist reads {", ".join(VERSIONS)}')
    missing = [key for key in ('fps', 'features') if key not in info]
    if missing:
        raise InputError(f'{path}: no {" and no ".join(missing)} in it')
    return dict(info)


def _range(text: str, root: Path) -> range:
    first, separator, last = text.partition(':')
    if not separator or not first.isdigit() or not last.isdigit():
        raise InputError(f'{root}/meta/info.json: a split is {text!r}, wanted FIRST:LAST such as 0:50')
    return range(int(first), int(last))


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding='utf-8').splitlines()
        return [json.loads(line) for line in lines if line.strip()]
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f'{path}: not readable as JSON lines ({error})') from error


def _read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    try:
        return pq.read_table(path, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f'{path}: not readable as Parquet ({error})') from error


def _read_tasks(root: Path, info: Mapping[str, Any]) -> dict[int, str]:
    if info['codebase_version'] != 'v3.0':
        return {int(row['task_index']): row['task'] for row in _read_jsonl(root / 'meta' / 'tasks.jsonl')}
    table = _read_table(root / 'meta' / 'tasks.parquet').to_pydict()
    # LeRobot keeps the text as the index of a data frame, named or not.
    text = next((c for c in ('task', '__index_level_0__') if c in table), None)
    if text is None or 'task_index' not in table:
        raise InputError(f'{root}/meta/tasks.parquet: wanted the columns task and task_index, found {list(table)}')
    return dict(zip(map(int, table['task_index']), table[text], strict=True))


def _video_keys(info: Mapping[str, Any]) -> list[str]:
    return [k for k, f in info['features'].items() if f['dtype'] == 'video']


def _read_v2(root: Path, info: Mapping[str, Any]) -> tuple[EpisodeRow, ...]:
    size = int(info.get('chunks_size', 1000))
    rows = []
    for row in _read_jsonl(root / 'meta' / 'episodes.jsonl'):
        index = int(row['episode_index'])
        place = {'episode_chunk': index // size, 'episode_index': index}
        data = root / (info.get('data_path') or DATA_PATHS['v2']).format(**place)
        template = info.get('video_path') or VIDEO_PATHS['v2']
        videos = {k: VideoPlace(root / template.format(video_key=k, **place), 0.0) for k in _video_keys(info)}
        rows.append(EpisodeRow(index, int(row['length']), tuple(row.get('tasks', ())), data, videos))
    return tuple(rows)


def _read_v3(root: Path, info: Mapping[str, Any]) -> tuple[EpisodeRow, ...]:
    files = sorted((root / 'meta' / 'episodes').glob('*/*.parquet'))
    if not files:
        raise InputError(f'{root}/meta/episodes: no Parquet files in it')
    rows: list[EpisodeRow] = []
    for file in files:
        names = [n for n in pq.read_schema(file).names if not n.startswith('stats/')]
        rows += [_v3_row(root, info, row) for row in _read_table(file, names).to_pylist()]
    return tuple(sorted(rows, key=lambda r: r.index))


def _v3_row(root: Path, info: Mapping[str, Any], row: Mapping[str, Any]) -> EpisodeRow:
    place = {'chunk_index': row['data/chunk_index'], 'file_index': row['data/file_index']}
    data = root / (info.get('data_path') or DATA_PATHS['v3']).format(**place)
    template = info.get('video_path') or VIDEO_PATHS['v3']
    videos = {}
    for key in _video_keys(info):
        place = {'chunk_index': row[f'videos/{key}/chunk_index'], 'file_index': row[f'videos/{key}/file_index']}
        path = root / template.format(video_key=key, **place)
        videos[key] = VideoPlace(path, float(row[f'videos/{key}/from_timestamp']))
    return EpisodeRow(int(row['episode_index']), int(row['length']), tuple(row.get('tasks') or ()), data, videos)


def _tables(path: Path, rows: Mapping[int, EpisodeRow]) -> Iterator[tuple[EpisodeRow, pa.Table]]:
    """The rows of each wanted episode of one file, streamed batch by batch."""
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f'{path}: not readable as Parquet ({error})') from error
    pending: list[pa.RecordBatch] = []
    current: int | None = None
    seen: set[int] = set()
    for batch in file.iter_batches(batch_size=BATCH_ROWS):
        numbers = batch.column('episode_index').to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for first, last in itertools.pairwise(cuts):
            number = int(numbers[first])
            if number != current and current is not None:
                yield from _finished(path, current, pending, rows)
                seen.add(current)
                pending = []
            current = number
            if number in rows:
                pending.append(batch.slice(first, last - first))
    if current is not None:
        yield from _finished(path, current, pending, rows)
        seen.add(current)
    lost = sorted(set(rows) - seen)
    if lost:
        raise InputError(f'{path}: no rows of episode {lost[0]}, which the metadata puts there')


def _finished(
    path: Path, number: int, pending: list[pa.RecordBatch], rows: Mapping[int, EpisodeRow]
) -> Iterator[tuple[EpisodeRow, pa.Table]]:
    if number not in rows:
        return
    table = pa.Table.from_batches(pending)
    if table.num_rows != rows[number].length:
        raise InputError(f'{path}: episode {number} has {table.num_rows} rows, the metadata say {rows[number].length}')
    yield rows[number], table


def _matrix(column: pa.ChunkedArray) -> FloatArray:
    """A column of scalars or of equally long lists as (T, K)."""
    joined = column.combine_chunks()
    if pa.types.is_list(joined.type) or pa.types.is_fixed_size_list(joined.type):
        flat = joined.flatten().to_numpy(zero_copy_only=False)
        matrix: FloatArray = flat.reshape(len(joined), -1).astype(np.float64)
        return matrix
    single: FloatArray = joined.to_numpy(zero_copy_only=False).reshape(-1, 1).astype(np.float64)
    return single


def _images(column: pa.ChunkedArray, feature: Mapping[str, Any], where: str) -> list[EncodedImage]:
    shape = tuple(feature['shape'])
    if shape[0] in (1, 3) and feature.get('names') and str(feature['names'][0]).startswith('channel'):
        shape = (*shape[1:], shape[0])
    images = []
    for cell in column.to_pylist():
        if not cell or cell.get('bytes') is None:
            raise InputError(f'{where}: no image bytes in the Parquet file, only a path')
        images.append(EncodedImage(cell['bytes'], shape, 'uint8', where))
    return images
