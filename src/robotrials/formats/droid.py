"""`robotrials import` of DROID's raw recordings: folders with trajectory.h5, metadata_<uuid>.json and recordings/MP4.

A folder is one episode; a tree of them (LAB/success|failure/DATE/TIME/) is many. Steps are timed by the robot's own
clock, films by the time each picture was taken. ZED's SVO files are not opened.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.formats.hdf5_format import opened
from robotrials.formats.imported import (
    CERTAIN,
    LIKELY,
    RATES_HZ,
    ImportAccount,
    Imported,
    ImportOptions,
    Recording,
    refuse_unused,
)
from robotrials.formats.rollout import (
    Assignment,
    CameraClip,
    RolloutRecorder,
    SourceRollout,
    account_signals,
    assign,
    camera_question,
    import_rollouts,
    take_signals,
)
from robotrials.formats.video import TimedClip, opened_video
from robotrials.record import Outcome, Provenance
from robotrials.record.footage import film_times
from robotrials.value import dataclass

FILE = 'trajectory.h5'
DEEPEST = 5  # folders above an episode: LAB/success/DATE/TIME
MOST_LOOKED_AT = 50
STATE = 'observation/robot_state'
TIMES = 'observation/timestamp'
POSE = f'{STATE}/cartesian_position'  # x y z, and Euler angles about fixed axes
KNOWN = {
    'joint_position_rad': f'{STATE}/joint_positions', 'joint_torque_nm': f'{STATE}/motor_torques_measured',
    'gripper_position': f'{STATE}/gripper_position', 'gripper_command': 'action/gripper_position', 'ee_pose': POSE,
    'action_raw': 'action/joint_velocity',
}  # fmt: skip
CAMERAS = ('wrist', 'ext1', 'ext2')
LABELS = ('uuid', 'lab', 'building', 'scene_id', 'robot_serial')
LEAST_EPOCH_MS = 946_684_800_000  # 2000; smaller numbers count from a start


class DroidFormat:
    """Episodes as DROID's collection and evaluation write them."""

    name = 'droid'
    summary = 'DROID recordings: a folder with trajectory.h5, its metadata and MP4 films, or a tree of such folders'

    def recognise(self, path: Path) -> float | None:
        try:
            if (path / FILE).is_file():
                return CERTAIN
            return LIKELY if next(_folders(path, most=MOST_LOOKED_AT), None) is not None else None
        except OSError:
            return None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        refuse_unused(options, name='DROID recordings', takes=('columns', 'answers', 'rate_hz'))
        folders = sorted(_folders(path))
        if not folders:
            raise InputError(f'{path}: no {FILE} in it, nor up to {DEEPEST} folders down')
        ledger = ImportAccount()
        with opened(folders[0] / FILE) as file:
            assignments = _assignments(file, options)
        account_signals(assignments, {}, ledger)
        source = _DroidSource(path, tuple(folders), assignments, options, ledger)
        return import_rollouts(
            self.name, source.recordings, assignments, options=options, ledger=ledger,
            sources=(file for folder in folders for file in source.files(folder)),
            origin=Provenance(environment_id='droid', success_parsing='metadata, or the attributes of trajectory.h5'),
        )  # fmt: skip


def _folders(path: Path, *, most: int | None = None) -> Iterator[Path]:
    """The folders of episodes under a path; `most` folders of each level are looked into, for a first look."""
    if (path / FILE).is_file():
        yield path
        return
    level = [path]
    for _ in range(DEEPEST):
        below = [p for folder in level[:most] for p in sorted(folder.iterdir()) if p.is_dir() and p.name[0] != '.']
        level = [folder for folder in below if not (folder / FILE).is_file()]
        yield from (folder for folder in below if (folder / FILE).is_file())


def _columns(file: Any) -> dict[str, NDArray[Any]]:
    """Every numeric series by its path; times and calibrations of cameras are read where they are needed."""
    columns: dict[str, NDArray[Any]] = {}

    def visit(name: str, item: Any) -> None:
        is_series = hasattr(item, 'shape') and len(item.shape) in (1, 2) and item.dtype.kind in 'fiub'
        if is_series and not name.startswith((TIMES, 'observation/camera', 'observations/videos')):
            columns[name] = np.asarray(item)

    file.visititems(visit)
    if POSE in columns:
        columns[POSE] = pose_from_euler(columns[POSE])
    return columns


def _assignments(file: Any, options: ImportOptions) -> tuple[Assignment, ...]:
    names = {key: tuple(map(str, range(v.shape[1] if v.ndim > 1 else 1))) for key, v in _columns(file).items()}
    return assign(names, mapped=options.columns, known=KNOWN)


def pose_from_euler(values: NDArray[Any]) -> NDArray[np.float64]:
    """X y z qw qx qy qz (T, 7) of x y z and Euler angles about the fixed axes x, y and z."""
    if values.ndim != 2 or values.shape[1] != 6:
        raise InputError(f'{POSE}: {values.shape} numbers, wanted x y z and three Euler angles per step')
    half = values[:, 3:].astype(np.float64) / 2
    (cx, cy, cz), (sx, sy, sz) = np.cos(half).T, np.sin(half).T
    turn = [
        cx * cy * cz + sx * sy * sz, sx * cy * cz - cx * sy * sz, cx * sy * cz + sx * cy * sz,
        cx * cy * sz - sx * sy * cz,
    ]  # fmt: skip
    return np.concatenate([values[:, :3], np.stack(turn, axis=1)], axis=1)


@dataclass(frozen=True, slots=True)
class _DroidSource:
    path: Path
    folders: tuple[Path, ...]
    assignments: tuple[Assignment, ...]
    options: ImportOptions
    ledger: ImportAccount

    def files(self, folder: Path) -> list[Path]:
        films = self._films(folder).values() if camera_question().answer(self.options) == 'keep' else ()
        return [folder / FILE, *sorted(folder.glob('metadata_*.json')), *films]

    def recordings(self) -> Iterator[Recording]:
        recorder = RolloutRecorder(
            kind='a DROID recording', options=self.options, source=self.path, ledger=self.ledger, benchmark='droid'
        )
        for number, folder in enumerate(self.folders):
            with opened(folder / FILE) as file:
                facts = _facts(file, folder)
                rollout = self._rollout(file, folder, number, facts)
            verdict = _verdict(facts, folder)
            if user := str(facts.get('user') or ''):
                verdict['operator'] = user
            yield recorder.record(rollout, told=verdict)

    def _rollout(self, file: Any, folder: Path, number: int, facts: Mapping[str, Any]) -> SourceRollout:
        where = f'{folder / FILE}'
        columns = _columns(file)
        lost = next((a.place.key for a in self.assignments if a.place.key not in columns), None)
        if lost is not None:
            raise InputError(f'{where}: no {lost!r}, which {self.folders[0] / FILE} has')
        lengths = {key: len(columns[key]) for key in {a.place.key for a in self.assignments}}
        n_steps = min(lengths.values())
        if n_steps == 0 or max(lengths.values()) > n_steps:
            longest = max(lengths, key=lambda key: lengths[key])
            raise InputError(
                f'{where}: {longest} has {lengths[longest]} steps, others {n_steps}; the recording is not whole'
            )
        stated = facts.get('trajectory_length')
        if isinstance(stated, int) and stated != n_steps:
            raise InputError(f'{where}: {n_steps} steps, and its metadata say {stated}; the recording is not whole')
        time_s, duration_s, start_ms = self._times(file, n_steps)
        task = str(facts.get('current_task') or '')
        return SourceRollout(
            where=where, number=number, time_s=time_s, duration_s=duration_s,
            signals=take_signals(self.assignments, columns, where=where), task=task, instruction=task,
            labels={k: str(v) for k in LABELS if (v := facts.get(k)) not in (None, '')},
            cameras=self._cameras(file, folder, facts, start_ms=start_ms, time_s=time_s),
            control_rate_hz=float(1 / np.median(np.diff(time_s))) if n_steps > 1 else None,
            started_at=None if start_ms is None else dt.datetime.fromtimestamp(start_ms / 1e3, dt.UTC),
        )  # fmt: skip

    def _times(self, file: Any, n_steps: int) -> tuple[NDArray[np.float64], float, float | None]:
        """Seconds of every step, the duration, and the clock's time of the first step where it was recorded."""
        clock = f'{TIMES}/control/step_start'
        stamps = np.asarray(file[clock], dtype=np.float64) if clock in file else np.zeros(0)
        rate_hz = self.options.rate_hz or RATES_HZ['droid']
        if self.options.rate_hz is None and len(stamps) == n_steps and np.all(np.diff(stamps) > 0) and stamps[0] > 0:
            time_s = (stamps - stamps[0]) / 1e3
            step_s = float(np.median(np.diff(time_s))) if n_steps > 1 else 1 / rate_hz
            self.ledger.note(f'times are those of {clock}')
            return time_s, float(time_s[-1]) + step_s, float(stamps[0]) if stamps[0] > LEAST_EPOCH_MS else None
        self.ledger.note(f'times are steps at {rate_hz:g} per second')
        return np.arange(n_steps) / rate_hz, n_steps / rate_hz, None

    def _films(self, folder: Path) -> dict[str, Path]:
        """The films by their cameras' serials; both lenses side by side only where one lens alone is not there."""
        paths = sorted((folder / 'recordings' / 'MP4').glob('*.mp4'))
        stereo = {p.stem.removesuffix('-stereo'): p for p in paths if p.stem.endswith('-stereo')}
        return {**stereo, **{p.stem: p for p in paths if not p.stem.endswith('-stereo')}}

    def _cameras(
        self, file: Any, folder: Path, facts: Mapping[str, Any], *, start_ms: float | None, time_s: NDArray[np.float64]
    ) -> dict[str, CameraClip]:
        if camera_question().answer(self.options) != 'keep':
            return {}
        films = self._films(folder)
        for svo in sorted((folder / 'recordings' / 'SVO').glob('*.svo*')):
            if svo.stem not in films:
                self.ledger.drop('cameras', why="ZED's SVO only; convert it to recordings/MP4 with DROID's scripts")
        names = {str(facts[f'{name}_cam_serial']): name for name in CAMERAS if facts.get(f'{name}_cam_serial')}
        cameras = {}
        for serial, path in films.items():
            with opened_video(path) as container:
                stream = container.streams.video[0]
                size = stream.width, stream.height
            steps, times_s = self._shown(file, serial, len(film_times(path)), start_ms=start_ms, time_s=time_s)
            cameras[names.get(serial, serial)] = CameraClip(TimedClip(path, times_s), *size, steps=steps)
        return cameras

    def _shown(
        self, file: Any, serial: str, n_frames: int, *, start_ms: float | None, time_s: NDArray[np.float64]
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The step that each frame shows, and its time: one frame a step, or spread evenly where there are more."""
        if n_frames == 0:
            raise InputError(f'{serial}: a film without frames')
        if n_frames == len(time_s):
            keys = (k for k in file.get(f'{TIMES}/cameras', ()) if k.startswith(serial))
            key = next((k for k in keys if k.endswith('_estimated_capture')), '')
            taken = np.asarray(file[f'{TIMES}/cameras/{key}'], dtype=np.float64) if key else np.zeros(0)
            if start_ms is not None and len(taken) == n_frames and np.all(np.diff(taken) > 0):
                return (), tuple(((taken - start_ms) / 1e3).tolist())
            return (), tuple(time_s.tolist())
        self.ledger.note('films with another number of frames than steps are spread evenly over the episode')
        steps = np.rint(np.linspace(1, len(time_s), n_frames)).astype(int)
        return tuple(steps.tolist()), tuple(np.linspace(0.0, float(time_s[-1]), n_frames).tolist())


def _facts(file: Any, folder: Path) -> dict[str, Any]:
    """What the attributes of the file and, before them, its metadata say."""
    facts = {str(k): _plain(v) for k, v in file.attrs.items()}
    for path in itertools.islice(sorted(folder.glob('metadata_*.json')), 2):
        try:
            values = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f'{path}: not readable as JSON ({error})') from error
        if not isinstance(values, dict):
            raise InputError(f'{path}: wanted an object, found {type(values).__name__}')
        by_values, kept = _flag(values, 'success', folder), _flag(facts, 'success', folder)
        if by_values is not None and kept is not None and by_values != kept:
            raise InputError(f'{path}: success is {values["success"]}, and {FILE} says {facts["success"]}')
        facts.update(values)
    return facts


def _plain(value: Any) -> Any:
    """An attribute as Python has it."""
    if isinstance(value, bytes):
        return value.decode('utf-8', 'replace')
    return value.item() if isinstance(value, np.generic) else value


def _flag(facts: Mapping[str, Any], name: str, folder: Path) -> bool | None:
    """Whether something is said to hold; text is read as it is written, and anything else is refused."""
    value = facts.get(name)
    if value is None or isinstance(value, bool):
        return value
    words: dict[object, bool] = {'true': True, 'false': False, 1: True, 0: False}
    known = value.strip().lower() if isinstance(value, str) else value
    if not isinstance(known, str | int) or known not in words:
        raise InputError(f'{folder}: {name} is {value!r}, wanted true or false')
    return words[known]


def _verdict(facts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """By the metadata or attributes, else by the folder that it lies in; nothing where none says."""
    success, failure = (_flag(facts, name, folder) for name in ('success', 'failure'))
    if success and failure:
        raise InputError(f'{folder}: success and failure at once')
    if success is False and failure is False:
        return {'outcome': Outcome.INVALID, 'reason': 'broken off: neither success nor failure was recorded'}
    if success is not None or failure:
        return {'success': bool(success)}
    by_folder = [part for part in folder.parts if part in ('success', 'failure')]
    return {'success': by_folder[-1] == 'success'} if by_folder else {}


DROID = DroidFormat()
