"""What a LeRobotDataset that robotrials wrote says beyond LeRobot's own fields, in `meta/trialist.jsonl`.

The first line maps signals of the record to features; one line per episode follows, with the episode as a table would
have it and its scene. A dataset with this file comes back as the record it was; other readers need not know of it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError, RecordError
from robotrials.formats.imported import Media, Recording
from robotrials.formats.lerobot_frame import EpisodeFrames
from robotrials.formats.lerobot_layout import read_json_lines
from robotrials.formats.rollout import CameraClip
from robotrials.formats.signal import Assignment, Place
from robotrials.formats.to_table import episode_row
from robotrials.old_name import LEROBOT_FILE, LEROBOT_FORM
from robotrials.record import Episode, Trajectory
from robotrials.record.column import escape, scene_from_json, scene_to_json, unescape
from robotrials.record.field import parse_field
from robotrials.record.trajectory import STEP_COLUMNS

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
