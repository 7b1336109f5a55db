"""The frames of a LeRobotDataset, streamed episode by episode from its Parquet files in bounded memory."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robotrials.errors import InputError, RecordError
from robotrials.formats.export import episode_row
from robotrials.formats.imported import Media, Recording
from robotrials.formats.lerobot_layout import EpisodeRow, FeatureInfo, matrix, read_json_lines
from robotrials.formats.rollout import Assignment, CameraClip, Place
from robotrials.formats.video import EncodedImage
from robotrials.old_name import LEROBOT_FILE, LEROBOT_FORM
from robotrials.record import Episode, Trajectory
from robotrials.record.column import escape, scene_from_json, scene_to_json, unescape
from robotrials.record.episode import parse_field
from robotrials.record.trajectory import STEP_COLUMNS

BATCH_BYTES = 32 << 20
MOST_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeFrames:
    """The rows of one episode: numbers as (T,) or (T, K) arrays, everything else as Arrow columns."""

    row: EpisodeRow
    numbers: Mapping[str, NDArray[Any]]
    others: Mapping[str, pa.ChunkedArray]

    @property
    def where(self) -> str:
        return f'{self.row.data}: episode {self.row.index}'


def column_names(path: Path) -> tuple[str, ...]:
    """The columns of a Parquet file."""
    return tuple(_open(path).schema_arrow.names)


def stream_frames(rows: Iterable[EpisodeRow], columns: Sequence[str] | None = None) -> Iterator[EpisodeFrames]:
    """The frames of these episodes, file by file, each file read once and forward; `columns` limits what is read."""
    files: dict[Path, dict[int, EpisodeRow]] = {}
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


def _stream_file(path: Path, rows: Mapping[int, EpisodeRow], columns: Sequence[str] | None) -> Iterator[EpisodeFrames]:
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
    pieces: Sequence[_Slice], rows: Mapping[int, EpisodeRow], seen: set[int], path: Path
) -> Iterator[EpisodeFrames]:
    number = pieces[0].number
    if number not in rows:
        return
    if number in seen:
        raise InputError(f'{path}: the rows of episode {number} do not lie together')
    seen.add(number)
    row, found = rows[number], sum(len(p.numbers['episode_index']) for p in pieces)
    if found != row.length:
        raise InputError(f'{path}: episode {number} has {found} rows, the metadata say {row.length}')
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
