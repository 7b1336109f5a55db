"""The signals and cameras of a positronic episode: files beside `static.json`, laid on the steps of the robot's state.

A signal is `NAME.parquet` with `value` and one column of nanoseconds per timeline: `ts.<timeline>`, or `timestamp` in
files from before timelines had names. A camera is `NAME.mp4` with the times of its frames in `NAME.frames.parquet`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.imported import Ledger
from robotrials.formats.rollout import EXTRA, build_trajectory, check_finite
from robotrials.formats.ros_signal import hold
from robotrials.formats.video import TimedClip, opened_video
from robotrials.record import Camera, Scene, Trajectory
from robotrials.record.trajectory import POSE_WIDTH, frame_times

NANOSECOND = 1e-9
TIMELINES = ('harness.world', 'received.world', 'recorded')  # positronic's own order; then whatever all signals have
COLUMN = 'ts.'
LEGACY = {'timestamp': 'recorded', 'ts_ns': 'recorded'}  # files from before version 2
STEP_SIGNALS = ('robot_state.ee_pose', 'robot_state.q', 'grip')  # whose samples are the steps, in this order
OBSERVED = ('robot_state', 'grip', 'image.')
POSE_COMMANDS = ('robot_command.pose', 'robot_commands.pose')
JOINT_COMMANDS = ('robot_command.joints', 'robot_commands.joints')
STAGES = 'progress.state'  # what an operator marks while the arm works
CLOSED_AT_ONE = ('grip', 'target_grip')  # 1 is closed; the record's openings have 0 closed

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class SignalFile:
    """One signal on its timelines; `values` is None for the frames of a camera."""

    path: Path
    times_ns: Mapping[str, NDArray[np.int64]]
    values: Array | None


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """What one episode recorded, on one timeline, from the moment at which every sensor had spoken."""

    trajectory: Trajectory | None
    duration_s: float | None
    stages: tuple[tuple[float, str], ...]
    media: Mapping[str, TimedClip]  # the name in media/ -> the film
    starts_at_ns: int | None  # on the wall clock, where one was recorded


def read_signals(folder: Path, ledger: Ledger, *, keeps_cameras: bool, media_stem: str) -> Signals:
    """The signals of one episode; whatever is broken in a file is named by its path."""
    numeric: dict[str, SignalFile] = {}
    texts: dict[str, SignalFile] = {}
    cameras: dict[str, SignalFile] = {}
    for path in sorted(folder.glob('*.parquet')):
        name = path.name.removesuffix('.parquet')
        if name.endswith('.frames'):
            cameras[name.removesuffix('.frames')] = _read_file(path, has_values=False)
            continue
        signal = _read_file(path, has_values=True)
        if signal.values is not None and len(signal.values):
            (texts if signal.values.dtype.kind in 'OU' else numeric)[name] = signal
    if not numeric and not cameras:
        return Signals(None, None, (), {}, None)
    timeline = _timeline({**numeric, **cameras}, folder)
    start_ns, finish_ns = _bounds({**numeric, **texts, **cameras}, timeline, folder)
    films = _films(folder, cameras, timeline, ledger) if keeps_cameras else {}
    if cameras and not keeps_cameras:
        ledger.drop('cameras', len(cameras), why='--answer cameras=leave')
    trajectory = None
    if numeric:
        trajectory = _trajectory(
            folder, numeric, timeline, start_ns, ledger, films={n: (cameras[n], f) for n, f in films.items()},
            media_stem=media_stem,
        )  # fmt: skip
    elif films:
        ledger.drop('camera videos', len(films), why='an episode without signals has no steps to lay frames on')
        films = {}
    return Signals(
        trajectory=trajectory,
        duration_s=(finish_ns - start_ns) * NANOSECOND,
        stages=_stages(texts, timeline, start_ns, ledger),
        media=(
            {}
            if trajectory is None
            else {
                camera.video: TimedClip(
                    folder / Path(camera.video).name, tuple(frame_times(camera, trajectory).tolist())
                )
                for camera in trajectory.scene.cameras
            }
        ),
        starts_at_ns=_wall_start(numeric or cameras, timeline, start_ns),
    )


def _read_file(path: Path, *, has_values: bool) -> SignalFile:
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f'{path}: not readable as Parquet ({error}); fetch it again') from error
    times: dict[str, NDArray[np.int64]] = {}
    for column in table.column_names:
        timeline = column.removeprefix(COLUMN) if column.startswith(COLUMN) else LEGACY.get(column)
        if timeline is None:
            continue
        if table[column].null_count or not pa.types.is_integer(table[column].type):
            raise InputError(f'{path}: {column} wants whole nanoseconds for every sample')
        stamps = table[column].to_numpy().astype(np.int64)
        if np.any(np.diff(stamps) < 0):
            at = int(np.flatnonzero(np.diff(stamps) < 0)[0]) + 1
            raise InputError(f'{path}: {column} falls from {stamps[at - 1]} to {stamps[at]} ns at sample {at}')
        times[timeline] = stamps
    if table.num_rows and not times:
        raise InputError(
            f'{path}: no times in it; wanted ts.<timeline> or timestamp, found {", ".join(table.column_names)}'
        )
    if not has_values:
        return SignalFile(path, times, None)
    if 'value' not in table.column_names:
        raise InputError(f'{path}: no column value in it; found {", ".join(table.column_names)}')
    return SignalFile(path, times, _values(path, table['value']))


def _values(path: Path, column: pa.ChunkedArray) -> Array:
    """(T,) or (T, K); text stays objects."""
    if column.null_count:
        raise InputError(f'{path}: value is missing in {column.null_count} of {len(column)} samples')
    rows: Array = column.to_numpy()
    if rows.dtype != object:
        return rows
    if not len(rows) or isinstance(rows[0], str | bytes):
        return rows.astype(str) if len(rows) and isinstance(rows[0], str) else rows
    widths = {np.size(row) for row in rows}
    if len(widths) != 1:
        raise InputError(f'{path}: value has {min(widths)} to {max(widths)} numbers per sample, wanted always as many')
    return np.stack(
        [np.concatenate([np.ravel(part) for part in row]) if _nested(row) else np.ravel(row) for row in rows]
    )


def _nested(row: Any) -> bool:
    return isinstance(row, np.ndarray) and row.dtype == object


def _timeline(files: Mapping[str, SignalFile], folder: Path) -> str:
    """The timeline that positronic itself would read, if every signal has it."""
    sets = [set(file.times_ns) for file in files.values()]
    common = set.intersection(*sets)
    chosen = next((name for name in TIMELINES if name in common), None) or next(iter(sorted(common)), None)
    if chosen is None:
        names = ', '.join(sorted(set.union(*sets))) or 'none'
        raise InputError(f'{folder}: no timeline that every signal has; found {names}')
    return chosen


def _bounds(files: Mapping[str, SignalFile], timeline: str, folder: Path) -> tuple[int, int]:
    """From when the last sensor first spoke to the last sample of anything; commands and marks may begin later."""
    timed = {name: f.times_ns[timeline] for name, f in files.items() if len(f.times_ns.get(timeline, ()))}
    if not timed:
        raise InputError(f'{folder}: every signal is empty')
    sensors = [t[0] for name, t in timed.items() if name.startswith(OBSERVED)]
    return int(max(sensors or [min(t[0] for t in timed.values())])), int(max(t[-1] for t in timed.values()))


def _trajectory(
    folder: Path, numeric: Mapping[str, SignalFile], timeline: str, start_ns: int, ledger: Ledger, *,
    films: Mapping[str, tuple[SignalFile, Path]], media_stem: str,
) -> Trajectory:  # fmt: skip
    longest = max(numeric, key=lambda name: len(numeric[name].times_ns[timeline]))
    steps = next((name for name in STEP_SIGNALS if name in numeric), longest)
    at_ns = np.unique(numeric[steps].times_ns[timeline])
    at_ns = at_ns[at_ns >= start_ns] if np.any(at_ns >= start_ns) else at_ns[-1:]
    ledger.note(
        f'steps are the samples of {steps}; other signals keep their last value, and have none before the first'
    )
    time_s = (at_ns - start_ns) * NANOSECOND
    held: dict[str, Array] = {}
    for name, file in numeric.items():
        assert file.values is not None
        check_finite({name: file.values}, where=str(file.path))
        values, known = hold(file.times_ns[timeline], file.values, at_ns)
        if not known.all():
            values = values.astype(np.float64)
            values[~known] = np.nan
        held[name] = values
    signals = _named(held, ledger)
    rate_hz = float(1 / np.median(np.diff(time_s))) if len(time_s) > 1 else None
    cameras = tuple(
        _camera(name, video, frames.times_ns[timeline], at_ns, file=f'{media_stem}/{video.name}')
        for name, (frames, video) in films.items()
    )
    ledger.keep('steps', len(time_s))
    scene = Scene(control_rate_hz=rate_hz, cameras=cameras)
    return build_trajectory(time_s, signals, scene=scene, where=str(folder))


def _named(held: Mapping[str, Array], ledger: Ledger) -> dict[str, Array]:
    """The record's signals: poses and joints as they are, openings turned round, commands as one action."""
    signals: dict[str, Array] = {}
    for name, values in held.items():
        is_pose = values.ndim == 2 and values.shape[1] == POSE_WIDTH
        if name == 'robot_state.ee_pose' and is_pose:
            signals['ee_pose'] = values
            ledger.keep('ee_pose from robot_state.ee_pose', None)
        elif name == 'robot_state.q' and values.ndim == 2:
            signals['joint_position_rad'] = values
            ledger.keep('joint_position_rad from robot_state.q', None)
        elif name in CLOSED_AT_ONE and values.size == len(values):
            signal = 'gripper_position' if name == 'grip' else 'gripper_command'
            signals[signal] = 1.0 - values.reshape(-1).astype(np.float64)
            ledger.keep(f'{signal} from {name}', None, why='1 - value: positronic has 1 for closed')
        else:
            whole = values.astype(np.int64) if values.dtype.kind == 'b' else values
            signals[EXTRA + name] = whole.reshape(len(whole), -1) if whole.ndim > 2 else whole
            ledger.keep(f'{EXTRA}{name}', None)
    command = next((name for name in (*POSE_COMMANDS, *JOINT_COMMANDS) if name in held), None)
    if command is not None and 'target_grip' in held:
        parts = [held[name].reshape(len(held[name]), -1).astype(np.float64) for name in (command, 'target_grip')]
        signals['action_raw'] = np.concatenate(parts, axis=1)
        ledger.keep(f'action_raw from {command} and target_grip', None)
    return signals


def _films(
    folder: Path, cameras: Mapping[str, SignalFile], timeline: str, ledger: Ledger
) -> dict[str, Path]:  # fmt: skip
    films = {}
    for name, frames in cameras.items():
        video = folder / f'{name}.mp4'
        if not video.is_file():
            raise InputError(f'{video}: missing; {frames.path.name} has the times of its frames')
        if len(frames.times_ns[timeline]):
            films[name] = video
            ledger.keep('camera videos')
    return films


def _camera(
    name: str, video: Path, frame_ns: NDArray[np.int64], at_ns: NDArray[np.int64], *, file: str
) -> Camera:  # fmt: skip
    with opened_video(video) as container:
        stream = container.streams.video[0]
        width, height = int(stream.codec_context.width), int(stream.codec_context.height)
    shown = np.searchsorted(at_ns, frame_ns, side='right')  # 0: before the first step
    return Camera(name.removeprefix('image.'), None, None, width, height, video=file, video_steps=tuple(shown.tolist()))


def _stages(
    texts: Mapping[str, SignalFile], timeline: str, start_ns: int, ledger: Ledger
) -> tuple[tuple[float, str], ...]:  # fmt: skip
    for name in texts:
        if name != STAGES:
            ledger.drop(f'signal {name}', None, why='text per sample has no place in a trajectory')
    marks = texts.get(STAGES)
    if marks is None or marks.values is None or timeline not in marks.times_ns:
        return ()
    times_s = np.maximum((marks.times_ns[timeline] - start_ns) * NANOSECOND, 0.0)
    ledger.keep('phase events', len(times_s), why=f'{STAGES}, as the operator marked them')
    return tuple((float(t), str(code)) for t, code in zip(times_s, marks.values, strict=True) if str(code))


def _wall_start(files: Mapping[str, SignalFile], timeline: str, start_ns: int) -> int | None:
    """When the episode began by the wall clock, from a signal with both timelines."""
    wall = timeline.rpartition('.')[0] + '.wall'
    for file in files.values():
        if wall in file.times_ns and timeline in file.times_ns and len(file.times_ns[wall]):
            at = min(int(np.searchsorted(file.times_ns[timeline], start_ns)), len(file.times_ns[wall]) - 1)
            return int(file.times_ns[wall][at])
    return None
