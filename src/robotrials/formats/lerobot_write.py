"""A store as a LeRobotDataset, v3.0 or v2.1, with statistics per episode and over all, and openpi's and OpenVLA's.

Its features are what all episodes share; what is left out is accounted for. Every episode's video is a file of its own,
also in v3.0, where an episode's row says which: joining them would mean to encode again whatever was recorded with
another codec or size.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.attach import cut_trajectory
from robotrials.formats.export import (
    Exported,
    ExportedFilm,
    ExportOptions,
    Redraw,
    check_some,
    fresh_target,
    media_file,
    recorded_rollouts,
)
from robotrials.formats.imported import ImportAccount
from robotrials.formats.lerobot_layout import DATA_PATHS, FILE, VIDEO_PATHS, StoredSignal, own_line, own_lines
from robotrials.formats.rollout import EE_NAMES, GRIPPER_NAME, file_name
from robotrials.formats.space import norm_stats_of, spell
from robotrials.formats.video import TimedClip, encode_frames, opened_video
from robotrials.old_name import LEROBOT_PREFIX
from robotrials.record import Camera, Episode, EventKind, Store, Trajectory
from robotrials.record.column import recorded_signals
from robotrials.record.footage import film_times

# Statistics of a dataset's features, as LeRobot and openpi keep them: min, max, mean, std, count and quantiles.
# Per episode, quantiles are exact. Over the dataset they come from histograms of 5,000 bins between the known
# extremes, so that memory does not grow with the data; they are right to a 5,000th of the range.

QUANTILES = {'q01': 0.01, 'q10': 0.10, 'q50': 0.50, 'q90': 0.90, 'q99': 0.99}
BINS = 5000


def episode_statistics(values: Array) -> dict[str, list[float]]:
    """The statistics of one vector feature (T, K), of its finite numbers; a component that has none is NaN."""
    rows = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
    known = ~np.isnan(rows).all(axis=0)
    stats: dict[str, Array] = {
        name: np.full(rows.shape[1], np.nan) for name in ('min', 'max', 'mean', 'std', *QUANTILES)
    }
    if known.any():
        some = rows[:, known]
        for name, function in (('min', np.nanmin), ('max', np.nanmax), ('mean', np.nanmean), ('std', np.nanstd)):
            stats[name][known] = function(some, axis=0)
        levels = np.nanquantile(some, list(QUANTILES.values()), axis=0)
        for level, name in enumerate(QUANTILES):
            stats[name][known] = levels[level]
    return {**{name: value.tolist() for name, value in stats.items()}, 'count': [len(values)]}


def image_statistics(frames: Array) -> dict[str, Any]:
    """The statistics of sampled frames (N, height, width, 3) of uint8, by channel, in 0..1 and shaped (3, 1, 1)."""
    flat = frames.reshape(-1, frames.shape[-1]) / 255.0
    stats = episode_statistics(flat)
    shaped = {name: [[[v]] for v in values] for name, values in stats.items() if name != 'count'}
    return {**shaped, 'count': [len(frames)]}


@dataclass(slots=True)
class Extremes:
    """The least and greatest of each number of a feature."""

    low: Array | None = None
    high: Array | None = None

    def add(self, values: Array) -> None:
        finite = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
        low, high = np.fmin.reduce(finite, axis=0), np.fmax.reduce(finite, axis=0)
        self.low = low if self.low is None else np.fmin(self.low, low)
        self.high = high if self.high is None else np.fmax(self.high, high)


@dataclass(slots=True)
class Running:
    """Statistics of one feature over all episodes, given its extremes."""

    low: Array
    high: Array
    count: int = 0
    total: Array = field(init=False)
    squares: Array = field(init=False)
    histogram: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.low = np.nan_to_num(np.atleast_1d(self.low))
        self.high = np.nan_to_num(np.atleast_1d(self.high))
        size = len(self.low)
        self.total, self.squares = np.zeros(size), np.zeros(size)
        self.histogram = np.zeros((size, BINS), dtype=np.int64)

    def add(self, values: Array) -> None:
        """Take in (T, K) more; numbers that are not finite are left out."""
        rows = values.astype(np.float64)
        middle = (self.low + self.high) / 2
        centred = np.where(np.isfinite(rows), rows - middle, 0.0)
        self.count += len(rows)
        self.total += centred.sum(axis=0)
        self.squares += (centred**2).sum(axis=0)
        span = np.where(self.high > self.low, self.high - self.low, 1.0)
        place = np.clip(((centred + middle - self.low) / span * BINS).astype(np.int64), 0, BINS - 1)
        for k in range(place.shape[1]):
            self.histogram[k] += np.bincount(place[:, k], minlength=BINS)

    def statistics(self) -> dict[str, list[float]]:
        mean = self.total / self.count
        std = np.sqrt(np.maximum(0.0, self.squares / self.count - mean**2))
        stats = {'min': self.low, 'max': self.high, 'mean': mean + (self.low + self.high) / 2, 'std': std}
        quantiles = {name: np.array([self._quantile(k, q) for k in range(len(mean))]) for name, q in QUANTILES.items()}
        listed = {name: value.tolist() for name, value in {**stats, **quantiles}.items()}
        return {**listed, 'count': [self.count]}

    def _quantile(self, k: int, level: float) -> float:
        counts = np.cumsum(self.histogram[k])
        target = level * counts[-1]
        at = int(np.searchsorted(counts, target))
        before = counts[at - 1] if at else 0
        share = (target - before) / max(1, counts[at] - before)
        return float(self.low[k] + (at + share) / BINS * (self.high[k] - self.low[k]))


STATE, ACTION = 'observation.state', 'action'
STATE_SIGNALS = ('ee_pose', 'joint_position_rad', 'gripper_position')
ACTION_SIGNALS = ('action_raw', 'action_processed')
NEXT = {
    'reward': ('next.reward', 'float32'), 'done': ('next.done', 'bool'), 'extra/next.success': ('next.success', 'bool')
}  # fmt: skip
RATE_TOLERANCE = 1e-3
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class FeatureColumn:
    """One feature with numbers, and the signals it is made of."""

    key: str
    dtype: str
    names: tuple[str, ...]
    signals: tuple[str, ...]

    def values(self, signals: Mapping[str, Array]) -> Array:
        """(T, K)"""
        parts = [np.asarray(signals[name]).reshape(len(signals[name]), -1) for name in self.signals]
        return np.concatenate(parts, axis=1).astype(self.dtype)

    def feature(self) -> dict[str, Any]:
        return {'dtype': self.dtype, 'shape': [len(self.names)], 'names': list(self.names)}


@dataclass(frozen=True, slots=True)
class Plan:
    """The features of the dataset to be written."""

    fps: float
    columns: tuple[FeatureColumn, ...]
    stored: tuple[StoredSignal, ...]
    cameras: Mapping[str, tuple[int, int]]  # name -> (height, width)
    extremes: Mapping[str, Extremes]
    n_episodes: int


@dataclass(slots=True)
class _Survey:
    episodes: int = 0
    shapes: dict[str, set[tuple[int, str, int]]] = field(default_factory=dict)  # (width, dtype, rank)
    counts: dict[str, int] = field(default_factory=dict)
    cameras: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    camera_counts: dict[str, int] = field(default_factory=dict)
    films: dict[str, float] = field(default_factory=dict)  # camera -> the smallest share of steps it shows
    rates: list[float] = field(default_factory=list)
    extremes: dict[str, Extremes] = field(default_factory=dict)
    jitter_s: float = 0.0

    def add(self, trajectory: Trajectory) -> None:
        self.episodes += 1
        for name, values in signals_of(trajectory).items():
            flat = np.asarray(values).reshape(len(values), -1)
            self.shapes.setdefault(name, set()).add((flat.shape[1], str(values.dtype), values.ndim))
            self.counts[name] = self.counts.get(name, 0) + 1
            if len(self.shapes[name]) == 1:
                self.extremes.setdefault(name, Extremes()).add(flat)
        for camera in trajectory.scene.cameras:
            if camera.video_steps:
                share = min(1.0, len(set(camera.video_steps) - {0}) / trajectory.n_steps)
                self.films[camera.name] = min(self.films.get(camera.name, 1.0), share)
            if camera.video:
                self.cameras.setdefault(camera.name, set()).add((camera.height_px, camera.width_px))
                self.camera_counts[camera.name] = self.camera_counts.get(camera.name, 0) + 1
        rate = trajectory.scene.control_rate_hz or _rate(trajectory.time_s)
        if rate is not None:
            self.rates.append(rate)
            regular = np.arange(trajectory.n_steps) / rate
            self.jitter_s = max(self.jitter_s, float(np.abs(trajectory.time_s - trajectory.time_s[0] - regular).max()))


def _rate(time_s: Array) -> float | None:
    return float(1.0 / np.median(np.diff(time_s))) if len(time_s) > 1 else None


def signals_of(trajectory: Trajectory) -> dict[str, Array]:
    """The recorded signals that have one row per step; contacts have none."""
    return {
        name: values
        for name, values in recorded_signals(trajectory).items()
        if len(values) == trajectory.n_steps
        and not name.startswith(('contacts/', 'frame_hash/'))
        and name != 'joint_torque_limit_nm'
    }


def make_plan(rollouts: Iterable[tuple[Episode, Trajectory]], ledger: ImportAccount, *, rate_hz: float | None) -> Plan:
    """Look at every episode once, and decide."""
    survey = _Survey()
    has_contacts = False
    for _, trajectory in rollouts:
        survey.add(trajectory)
        has_contacts = has_contacts or trajectory.contacts is not None
    check_some(survey.episodes)
    if has_contacts:
        ledger.drop('contacts', None, why='as many per step as there are; LeRobot features have one shape')
    common = _common(survey, ledger)
    columns = _columns(common)
    if not any(column.key == ACTION for column in columns):
        ledger.hint(
            f'the dataset has no feature {ACTION!r}, which every training recipe of LeRobot reads: no actions were '
            'recorded in all episodes. If a recording has them under another topic or column, import it with those'
        )
    stored = tuple(s for column in columns for s in _stored(column, common))
    rounded = [s.signal for s in stored if s.dtype == 'float64' and s.key in (STATE, ACTION, 'next.reward')]
    if rounded:
        ledger.drop(f'digits of {", ".join(rounded)}', None, why='LeRobot keeps them as float32')
    fps = _fps(survey, rate_hz)
    if survey.jitter_s > 1e-4:
        ledger.note(
            f'steps lie up to {survey.jitter_s * 1000:.1f} ms off the grid of {fps:g} Hz that LeRobot wants; the '
            f'recorded times are in {LEROBOT_PREFIX}time_s'
        )
    extremes = {c.key: _joined_extremes([survey.extremes[name] for name in c.signals]) for c in columns}
    return Plan(fps, columns, stored, _cameras(survey, ledger), extremes, survey.episodes)


def _common(survey: _Survey, ledger: ImportAccount) -> dict[str, tuple[int, str, int]]:
    common = {}
    for name, shapes in survey.shapes.items():
        if survey.counts[name] < survey.episodes:
            lacking = survey.episodes - survey.counts[name]
            ledger.drop(f'signal {name}', None, why=f'{lacking} of {survey.episodes} episodes lack it')
        elif len({width for width, _, _ in shapes}) > 1:
            widths = ' and '.join(str(w) for w in sorted({width for width, _, _ in shapes}))
            ledger.drop(f'signal {name}', None, why=f'of {widths} numbers in different episodes')
        else:
            common[name] = max(shapes)
            ledger.keep(f'signal {name}', None)
    return common


def _columns(common: Mapping[str, tuple[int, str, int]]) -> tuple[FeatureColumn, ...]:
    columns: list[FeatureColumn] = []
    used: set[str] = set()
    state = [name for name in STATE_SIGNALS if name in common]
    if state and f'extra/{STATE}' not in common:
        names = [part for name in state for part in _part_names(name, common[name][0])]
        columns.append(FeatureColumn(STATE, 'float32', tuple(names), tuple(state)))
        used.update(state)
    action = next((name for name in ACTION_SIGNALS if name in common), None)
    if action is not None:
        columns.append(FeatureColumn(ACTION, 'float32', _part_names(action, common[action][0]), (action,)))
        used.add(action)
    for name, (width, dtype, _) in common.items():
        if name in NEXT and width == 1:
            columns.append(FeatureColumn(*NEXT[name], (NEXT[name][0],), (name,)))
        elif name not in used:
            columns.append(FeatureColumn(_key(name, columns), _dtype(dtype), _part_names(name, width), (name,)))
    return tuple(columns)


def _key(signal: str, taken: Iterable[FeatureColumn]) -> str:
    """A signal that came from a LeRobotDataset gets its feature's name back; LeRobot allows no slash in a name."""
    own = signal.removeprefix('extra/')
    if signal.startswith('extra/observation.') and '%' not in own and own not in {c.key for c in taken}:
        return own
    return LEROBOT_PREFIX + signal.replace('/', '.')


def _dtype(dtype: str) -> str:
    return dtype if dtype in ('float32', 'float64', 'int32', 'int64', 'bool') else 'float64'


def _part_names(signal: str, width: int) -> tuple[str, ...]:
    if signal == 'ee_pose':
        return EE_NAMES
    if signal == 'joint_position_rad':
        return tuple(f'joint_{i}.rad' for i in range(width))
    if signal == 'gripper_position':
        return (GRIPPER_NAME,)
    return tuple(f'{signal}_{i}' for i in range(width)) if width > 1 else (signal,)


def _stored(column: FeatureColumn, common: Mapping[str, tuple[int, str, int]]) -> list[StoredSignal]:
    stored, first = [], 0
    for name in column.signals:
        width, dtype, rank = common[name]
        stored.append(StoredSignal(name, column.key, first, first + width, dtype, rank))
        first += width
    return stored


def _joined_extremes(parts: list[Extremes]) -> Extremes:
    low = np.concatenate([np.atleast_1d(p.low) for p in parts if p.low is not None])
    high = np.concatenate([np.atleast_1d(p.high) for p in parts if p.high is not None])
    return Extremes(low, high)


def _fps(survey: _Survey, rate_hz: float | None) -> float:
    if rate_hz is not None:
        return _whole(rate_hz)
    if not survey.rates:
        raise InputError('every episode has one step, so no rate is known; wanted --rate-hz')
    low, high = min(survey.rates), max(survey.rates)
    if high > low * (1 + RATE_TOLERANCE):
        raise InputError(
            f'episodes of {low:g} to {high:g} Hz; a LeRobotDataset has one rate: choose some with --where, or state '
            'one with --rate-hz'
        )
    return _whole(float(np.median(survey.rates)))


def _whole(rate_hz: float) -> float:
    nearest = round(rate_hz)
    return float(nearest) if nearest and abs(rate_hz - nearest) <= RATE_TOLERANCE * rate_hz else rate_hz


def _cameras(survey: _Survey, ledger: ImportAccount) -> dict[str, tuple[int, int]]:
    cameras = {}
    for name, sizes in survey.cameras.items():
        if survey.camera_counts[name] < survey.episodes:
            lacking = survey.episodes - survey.camera_counts[name]
            ledger.drop(f'camera {name}', None, why=f'{lacking} of {survey.episodes} episodes have no video of it')
        elif len(sizes) > 1:
            ledger.drop(f'camera {name}', None, why='its size differs between episodes')
        else:
            cameras[name] = next(iter(sizes))
            share = survey.films.get(name, 1.0)
            why = '' if share > 0.99 else f'a frame for {100 * share:.0f} % of the steps; the others show the last one'
            ledger.keep(f'camera {name}', None, why=why)
            if why:
                ledger.hint(
                    f'camera {name} was filmed more rarely than the policy acted; export --redraw draws every step, '
                    'where the host can and its states were kept'
                )
    return cameras


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


@dataclass(frozen=True, slots=True)
class LeRobotExporter:
    """Writes one version of the layout."""

    name: str
    version: str
    summary: str
    suffix: str = ''

    def write(self, store: Store, target: Path, options: ExportOptions) -> Exported:
        survey, ledger = ImportAccount(), ImportAccount()
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

    def _films(self, episode: Episode, trajectory: Trajectory) -> dict[str, ExportedFilm]:
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
            films[camera.name] = ExportedFilm(camera, path)
        return films

    def _write_video(
        self, key: str, film: ExportedFilm, number: int, n_steps: int
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


def _rollouts(store: Store, options: ExportOptions, ledger: ImportAccount) -> Iterator[tuple[Episode, Trajectory]]:
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


def _one_frame_per_step(film: ExportedFilm, target: Path, n_steps: int, *, fps: float) -> None:
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
