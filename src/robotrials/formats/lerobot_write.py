"""A store as a LeRobotDataset, v3.0 or v2.1, with statistics per episode and over all, and openpi's and OpenVLA's.

Every episode's video is a file of its own, also in v3.0, where an episode's row says which: joining them would mean to
encode again whatever was recorded with another codec or size.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.attach import cut_trajectory
from robotrials.formats.export import Exported, ExportOptions, Film, Redraw, fresh_target, media_file, recorded_rollouts
from robotrials.formats.imported import Ledger
from robotrials.formats.lerobot_frame import FILE, own_line, own_lines
from robotrials.formats.lerobot_layout import DATA_PATHS, VIDEO_PATHS
from robotrials.formats.lerobot_plan import (
    ACTION,
    ACTION_SIGNALS,
    STATE,
    STATE_SIGNALS,
    Plan,
    Running,
    episode_statistics,
    image_statistics,
    make_plan,
    signals_of,
)
from robotrials.formats.norm_stats import norm_stats_of, spell
from robotrials.formats.rollout import file_name
from robotrials.formats.video import TimedClip, encode_frames, opened_video
from robotrials.record import Camera, Episode, EventKind, Store, Trajectory
from robotrials.record.media import film_times

CHUNK = 1000
DATA_FILE_BYTES = 100 << 20
VIDEO_FILE_MB = 200
SAMPLED_FRAMES = 32
TOLERANCE_S = 1e-4  # LeRobot's own
PLACES = {'timestamp': 'float32', 'frame_index': 'int64', 'episode_index': 'int64', 'index': 'int64',
          'task_index': 'int64'}  # fmt: skip
# LeRobot reads its tasks by pandas, and wants their text as the index of the data frame.
TASKS_INDEX = {
    'index_columns': ['task'],
    'columns': [
        {'name': 'task_index', 'field_name': 'task_index', 'pandas_type': 'int64', 'numpy_type': 'int64',
         'metadata': None},
        {'name': 'task', 'field_name': 'task', 'pandas_type': 'unicode', 'numpy_type': 'object', 'metadata': None},
    ],
    'column_indexes': [
        {'name': None, 'field_name': None, 'pandas_type': 'unicode', 'numpy_type': 'object',
         'metadata': {'encoding': 'UTF-8'}}
    ],
}  # fmt: skip
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class LeRobotExporter:
    """Writes one version of the layout."""

    name: str
    version: str
    summary: str
    suffix: str = ''

    def write(self, store: Store, target: Path, options: ExportOptions) -> Exported:
        survey, ledger = Ledger(), Ledger()
        plan = make_plan(_rollouts(store, options, survey), ledger, rate_hz=options.rate_hz)
        with fresh_target(target) as draft:
            writer = _Writer(draft, plan, self.version, store, options.redraw)
            for episode, trajectory in _rollouts(store, options, ledger):
                writer.add(episode, trajectory)
            writer.finish()
        ledger.keep('episodes', plan.n_episodes)
        return Exported(plan.n_episodes, ledger)


LEROBOT = LeRobotExporter('lerobot', 'v3.0', 'LeRobotDataset v3.0 folder, with statistics for openpi and OpenVLA')
LEROBOT_V21 = LeRobotExporter(
    'lerobot-v2.1', 'v2.1', 'LeRobotDataset v2.1 folder, with statistics for openpi and OpenVLA'
)


@dataclass(slots=True)
class _Writer:
    root: Path
    plan: Plan
    version: str
    store: Store
    redraw: Redraw | None = None
    _tasks: dict[str, int] = field(default_factory=dict)
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)
    _frames: int = 0
    _running: dict[str, Running] = field(default_factory=dict)
    _videos: dict[str, dict[str, Any]] = field(default_factory=dict)
    _parquet: pq.ParquetWriter | None = None
    _file: int = 0
    _bytes: int = 0

    @property
    def is_v3(self) -> bool:
        return self.version == 'v3.0'

    def add(self, episode: Episode, trajectory: Trajectory) -> None:
        """Write one episode's frames, videos and statistics."""
        number, steps = len(self._rows), trajectory.n_steps
        text = episode.instruction or episode.task
        values = self._values(episode, trajectory)
        places = self._places(number, steps, self._tasks.setdefault(text, len(self._tasks)))
        table = _table({**values, **places})
        row: dict[str, Any] = {'episode_index': number, 'tasks': [text], 'length': steps}
        place = self._write_data(table, number)
        if self.is_v3:
            row |= {f'data/{k}': v for k, v in place.items()}
            row |= {'dataset_from_index': self._frames, 'dataset_to_index': self._frames + steps}
            row |= {'meta/episodes/chunk_index': 0, 'meta/episodes/file_index': 0}
        stats: dict[str, Any] = {key: self._statistics(key, v) for key, v in {**values, **places}.items()}
        films = self._films(episode, trajectory)
        for name in self.plan.cameras:
            key = f'observation.images.{name}'
            placed, stats[key] = self._write_video(key, films[name], number, steps)
            row |= placed
        self._rows.append({**row, 'stats': stats})
        self._lines.append(own_line(episode, self._as_written(episode, trajectory)))
        self._frames += steps

    def _as_written(self, episode: Episode, trajectory: Trajectory) -> Trajectory:
        """With a frame per step for every camera that the dataset has."""
        folder = f'{episode.episode_id}-{episode.attempt}'
        cameras = tuple(
            camera
            if camera.name not in self.plan.cameras or not camera.video_steps
            else dataclasses.replace(camera, video=f'{folder}/{file_name(camera.name)}.mp4', video_steps=())
            for camera in trajectory.scene.cameras
        )
        return dataclasses.replace(trajectory, scene=dataclasses.replace(trajectory.scene, cameras=cameras))

    def _values(self, episode: Episode, trajectory: Trajectory) -> dict[str, Array]:
        signals = signals_of(trajectory)
        values = {column.key: column.values(signals) for column in self.plan.columns}
        steps = trajectory.n_steps
        if 'next.done' not in values:
            values['next.done'] = (np.arange(steps) == steps - 1)[:, None]
        if 'next.success' not in values:
            values['next.success'] = _success(episode, trajectory, self.plan.fps)[:, None]
        return values

    def _places(self, number: int, steps: int, task: int) -> dict[str, Array]:
        frame = np.arange(steps)
        columns = {
            'timestamp': frame / self.plan.fps, 'frame_index': frame, 'episode_index': np.full(steps, number),
            'index': self._frames + frame, 'task_index': np.full(steps, task),
        }  # fmt: skip
        return {name: values.astype(PLACES[name])[:, None] for name, values in columns.items()}

    def _write_data(self, table: pa.Table, number: int) -> dict[str, int]:
        if not self.is_v3:
            path = self.root / DATA_PATHS['v2'].format(episode_chunk=number // CHUNK, episode_index=number)
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, path)
            return {}
        if self._parquet is not None and self._bytes + table.nbytes > DATA_FILE_BYTES:
            self._close_data()
        place = {'chunk_index': self._file // CHUNK, 'file_index': self._file % CHUNK}
        if self._parquet is None:
            path = self.root / DATA_PATHS['v3'].format(**place)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._parquet = pq.ParquetWriter(path, table.schema)
        self._parquet.write_table(table)
        self._bytes += table.nbytes
        return place

    def _close_data(self) -> None:
        if self._parquet is not None:
            self._parquet.close()
            self._parquet, self._bytes, self._file = None, 0, self._file + 1

    def _statistics(self, key: str, values: Array) -> dict[str, Any]:
        flat = values.astype(np.float64)
        if key in self.plan.extremes:
            extremes = self.plan.extremes[key]
            assert extremes.low is not None
            assert extremes.high is not None
            self._running.setdefault(key, Running(extremes.low, extremes.high)).add(flat)
        return episode_statistics(flat)

    def _films(self, episode: Episode, trajectory: Trajectory) -> dict[str, Film]:
        """The films of one episode by camera, redrawn or as they lie in the store."""
        redrawn = {} if self.redraw is None else {film.camera.name: film for film in self.redraw(episode)}
        films = {}
        for camera in trajectory.scene.cameras:
            if camera.name not in self.plan.cameras:
                continue
            path = redrawn[camera.name].path if redrawn else media_file(self.store, camera.video)
            if path is None or path.suffix.lower() not in ('.mp4', '.mkv', '.avi', '.webm'):
                raise InputError(
                    f'{self.store.path}/media/{camera.video}: the video of camera {camera.name} is missing or no video '
                    'file'
                )
            films[camera.name] = Film(camera, path)
        return films

    def _write_video(
        self, key: str, film: Film, number: int, n_steps: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
        """Where the camera's video went, and its statistics."""
        place = {'chunk_index': number // CHUNK, 'file_index': number % CHUNK}
        old = {'episode_chunk': number // CHUNK, 'episode_index': number}
        template, at = (VIDEO_PATHS['v3'], place) if self.is_v3 else (VIDEO_PATHS['v2'], old)
        target = self.root / template.format(video_key=key, **at)
        target.parent.mkdir(parents=True, exist_ok=True)
        _one_frame_per_step(film, target, n_steps, fps=self.plan.fps)
        frames, facts = _sample_video(target, n_steps, film.path)
        self._videos.setdefault(key, facts)
        times = {'from_timestamp': 0.0, 'to_timestamp': n_steps / self.plan.fps}
        placed = {f'videos/{key}/{k}': v for k, v in {**place, **times}.items()} if self.is_v3 else {}
        return placed, image_statistics(frames)

    def finish(self) -> None:
        """Write the metadata; the dataset is whole after this."""
        self._close_data()
        meta = self.root / 'meta'
        meta.mkdir(parents=True, exist_ok=True)
        stats = self._global_statistics()
        (self._finish_v3 if self.is_v3 else self._finish_v21)(meta)
        _write_json(meta / 'info.json', self._info())
        _write_json(meta / 'stats.json', stats)
        vectors = {key: stats[key] for key in (STATE, ACTION) if key in stats}
        if vectors:
            value = norm_stats_of(vectors, where=str(meta / 'stats.json'))
            value = dataclasses.replace(
                value, counts={'num_transitions': self._frames, 'num_trajectories': len(self._rows)}
            )
            _write_json(self.root / 'norm_stats.json', spell(value, 'openpi'))
            _write_json(self.root / 'dataset_statistics.json', spell(value, 'openvla'))
        lines = [*own_lines(self.plan.stored, ()), *self._lines]
        (meta / FILE).write_text('\n'.join(lines) + '\n', encoding='utf-8')

    def _finish_v3(self, meta: Path) -> None:
        folder = meta / 'episodes' / 'chunk-000'
        folder.mkdir(parents=True)
        rows = [_flat_row(row) for row in self._rows]
        pq.write_table(pa.Table.from_pylist(rows), folder / 'file-000.parquet')
        tasks = pa.table({'task_index': pa.array(list(self._tasks.values())), 'task': pa.array(list(self._tasks))})
        pq.write_table(tasks.replace_schema_metadata({'pandas': json.dumps(TASKS_INDEX)}), meta / 'tasks.parquet')

    def _finish_v21(self, meta: Path) -> None:
        rows = [{k: row[k] for k in ('episode_index', 'tasks', 'length')} for row in self._rows]
        stats = [{'episode_index': row['episode_index'], 'stats': row['stats']} for row in self._rows]
        tasks = [{'task_index': number, 'task': text} for text, number in self._tasks.items()]
        for name, lines in (('episodes', rows), ('episodes_stats', stats), ('tasks', tasks)):
            text = ''.join(json.dumps(line) + '\n' for line in lines)
            (meta / f'{name}.jsonl').write_text(text, encoding='utf-8')

    def _global_statistics(self) -> dict[str, Any]:
        keys = self._rows[0]['stats']
        exact: dict[str, Any] = {key: running.statistics() for key, running in self._running.items()}
        return {key: exact.get(key) or _joined([row['stats'][key] for row in self._rows]) for key in keys}

    def _info(self) -> dict[str, Any]:
        form = 'v3' if self.is_v3 else 'v2'
        features: dict[str, Any] = {
            f'observation.images.{name}': {
                'dtype': 'video', 'shape': [height, width, 3], 'names': ['height', 'width', 'channels'],
                'info': self._videos[f'observation.images.{name}'] | {'video.fps': _plain(self.plan.fps)},
            }
            for name, (height, width) in self.plan.cameras.items()
        }  # fmt: skip
        features |= {column.key: column.feature() for column in self.plan.columns}
        for key in ('next.done', 'next.success'):
            features.setdefault(key, {'dtype': 'bool', 'shape': [1], 'names': None})
        features |= {name: {'dtype': dtype, 'shape': [1], 'names': None} for name, dtype in PLACES.items()}
        info = {
            'codebase_version': self.version, 'robot_type': None, 'total_episodes': len(self._rows),
            'total_frames': self._frames, 'total_tasks': len(self._tasks), 'chunks_size': CHUNK,
            'fps': _plain(self.plan.fps), 'splits': {'train': f'0:{len(self._rows)}'}, 'data_path': DATA_PATHS[form],
            'video_path': VIDEO_PATHS[form] if self.plan.cameras else None, 'features': features,
        }  # fmt: skip
        if self.is_v3:
            return info | {'data_files_size_in_mb': DATA_FILE_BYTES >> 20, 'video_files_size_in_mb': VIDEO_FILE_MB}
        chunks = -(-len(self._rows) // CHUNK)
        return info | {'total_chunks': chunks, 'total_videos': len(self._rows) * len(self.plan.cameras)}


def _rollouts(store: Store, options: ExportOptions, ledger: Ledger) -> Iterator[tuple[Episode, Trajectory]]:
    """The episodes to be written: with redrawn films if asked for, and from the first step that is whole."""
    for episode, trajectory in recorded_rollouts(store, options, ledger):
        if options.redraw is not None:
            cameras = tuple(film.camera for film in options.redraw(episode))
            trajectory = dataclasses.replace(trajectory, scene=dataclasses.replace(trajectory.scene, cameras=cameras))
        first = _first_whole(trajectory)
        if first:
            ledger.drop('steps', first, why='before the first command: nothing to learn from, and no number to give')
            trajectory = _from_step(trajectory, first)
        yield episode, trajectory


def _first_whole(trajectory: Trajectory) -> int:
    """The first step with a state and an action; recorders of telemetry begin before the first command."""
    names = [name for name in (*STATE_SIGNALS, *ACTION_SIGNALS) if getattr(trajectory, name) is not None]
    if not names:
        return 0
    values = [np.asarray(getattr(trajectory, name)).reshape(trajectory.n_steps, -1) for name in names]
    whole = np.isfinite(np.concatenate(values, axis=1)).all(axis=1)
    return int(np.argmax(whole)) if whole.any() else 0


def _from_step(trajectory: Trajectory, first: int) -> Trajectory:
    rows = np.arange(first, trajectory.n_steps)
    cameras = tuple(
        dataclasses.replace(camera, video_steps=tuple(max(0, s - first) for s in _steps_of(camera, trajectory.n_steps)))
        for camera in trajectory.scene.cameras
    )
    return cut_trajectory(trajectory, rows, np.asarray(trajectory.time_s, dtype=np.float64)[rows], cameras=cameras)


def _steps_of(camera: Camera, n_steps: int) -> Sequence[int]:
    """The step that each frame shows; a film without them has one per row."""
    return camera.video_steps or range(1, n_steps + 1)


def _one_frame_per_step(film: Film, target: Path, n_steps: int, *, fps: float) -> None:
    """A video at the control rate: copied where it is one, else the last frame at each step.

    LeRobot looks a frame up by its time, step / fps, to within 0.1 ms.
    """
    steps = np.asarray(_steps_of(film.camera, n_steps))
    chosen = np.maximum(np.searchsorted(steps, np.arange(1, n_steps + 1), side='right') - 1, 0)
    if np.array_equal(chosen, np.arange(len(steps))):
        times_s = film_times(film.path)
        if len(times_s) == n_steps and np.abs(times_s - np.arange(n_steps) / fps).max() > TOLERANCE_S:
            TimedClip(film.path, tuple((np.arange(n_steps) / fps).tolist())).write(target)
        else:
            shutil.copyfile(film.path, target)
        return
    encode_frames(_repeated(film.path, np.bincount(chosen, minlength=len(steps)).tolist()), target, fps=fps)


def _repeated(path: Path, times: Sequence[int]) -> Iterator[Array]:
    """Each frame of a film so many times."""
    count = 0
    with opened_video(path) as container:
        for frame, often in zip(container.decode(container.streams.video[0]), times, strict=False):
            if often:
                yield from itertools.repeat(frame.to_ndarray(format='rgb24'), often)
            count += 1
    if count < len(times):
        raise InputError(f'{path}: {count} frames, and {len(times)} were recorded; the film is cut short')


def _success(episode: Episode, trajectory: Trajectory, fps: float) -> NDArray[np.bool_]:
    """`next.success` of each frame: from the first placement on, or at the end alone where no time is known."""
    steps = trajectory.n_steps
    flags = np.zeros(steps, dtype=np.bool_)
    if episode.is_success:
        times = [e.t_s for e in episode.events if e.kind is EventKind.PLACEMENT]
        first = round(times[0] * fps) - 1 if len(times) == 1 else steps - 1
        flags[min(max(first, 0), steps - 1) :] = True
    return flags


def _table(columns: Mapping[str, Array]) -> pa.Table:
    arrays = {}
    for key, values in columns.items():
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        arrays[key] = flat if values.shape[1] == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return pa.table(arrays)


def _sample_video(path: Path, steps: int, source: Path) -> tuple[Array, dict[str, Any]]:
    """Some frames spread over a video, and its facts; a video of another length than its episode is refused."""
    wanted = set(np.linspace(0, steps - 1, min(steps, SAMPLED_FRAMES)).round().astype(int).tolist())
    frames, count = [], 0
    with opened_video(path) as container:
        stream = container.streams.video[0]
        facts = {
            'video.height': stream.height, 'video.width': stream.width, 'video.codec': stream.codec.canonical_name,
            'video.pix_fmt': stream.pix_fmt, 'video.is_depth_map': False, 'video.channels': 3, 'has_audio': False,
        }  # fmt: skip
        for frame in container.decode(stream):
            if count in wanted:
                frames.append(frame.to_ndarray(format='rgb24'))
            count += 1
    if count != steps:
        raise InputError(f'{source}: {count} frames for an episode of {steps} steps; a LeRobotDataset has one per step')
    return np.stack(frames), facts


def _flat_row(row: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in row.items() if key != 'stats'}
    for feature, stats in row['stats'].items():
        flat |= {f'stats/{feature}/{name}': value for name, value in stats.items()}
    return flat


def _joined(stats: list[dict[str, Any]]) -> dict[str, Any]:
    """Statistics over episodes from those of each; quantiles are the means of theirs, weighted by frames."""
    counts = np.array([s['count'][0] for s in stats], dtype=np.float64)
    arrays = {name: np.array([s[name] for s in stats]) for name in stats[0] if name != 'count'}
    weights = (counts / counts.sum()).reshape(-1, *([1] * (arrays['mean'].ndim - 1)))
    mean = (arrays['mean'] * weights).sum(axis=0)
    variance = ((arrays['std'] ** 2 + (arrays['mean'] - mean) ** 2) * weights).sum(axis=0)
    joined = {name: (values * weights).sum(axis=0) for name, values in arrays.items()}
    joined |= {'min': arrays['min'].min(axis=0), 'max': arrays['max'].max(axis=0), 'std': np.sqrt(variance)}
    return {**{name: value.tolist() for name, value in joined.items()}, 'count': [int(counts.sum())]}


def _plain(rate: float) -> int | float:
    return int(rate) if float(rate).is_integer() else rate


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=4), encoding='utf-8')
