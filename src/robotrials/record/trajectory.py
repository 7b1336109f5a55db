"""The trajectory: what was measured at every control step of an episode, by columns.

Poses are (x, y, z, qw, qx, qy, qz) in metres and unit quaternions, in the world frame. T is the number of steps.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import RecordError
from robotrials.value import dataclass

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.integer[Any]]

POSE_WIDTH = 7


@dataclass(frozen=True, slots=True, eq=False)
class Contacts:
    """Ragged contacts: step i has the rows offsets[i] to offsets[i + 1]. Bodies are indices into `bodies`."""

    bodies: tuple[str, ...]
    offsets: IntArray  # (T + 1,)
    body_a: IntArray  # (C,)
    body_b: IntArray  # (C,)
    force_n: FloatArray  # (C,)
    point_m: FloatArray | None = None  # (C, 3) in the world, where the pair touched last in the step

    def __post_init__(self) -> None:
        count = len(self.force_n)
        offsets = np.asarray(self.offsets)
        if offsets.ndim != 1 or len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != count:
            raise RecordError(f'contacts.offsets must run from 0 to the {count} contacts')
        if np.any(np.diff(offsets) < 0):
            raise RecordError('contacts.offsets decrease; wanted one non-decreasing offset a step')
        for name in ('body_a', 'body_b'):
            index = np.asarray(getattr(self, name))
            if len(index) != count:
                raise RecordError(f'contacts.{name} has {len(index)} rows, wanted {count}')
            if count and (index.min() < 0 or index.max() >= len(self.bodies)):
                raise RecordError(f'contacts.{name} points outside the {len(self.bodies)} bodies')
        if self.point_m is not None and np.shape(self.point_m) != (count, 3):
            raise RecordError(f'contacts.point_m has shape {np.shape(self.point_m)}, wanted ({count}, 3)')

    @classmethod
    def from_steps(
        cls, steps: Sequence[Sequence[tuple[str, str, float]]], *, points_m: Sequence[Any] | None = None
    ) -> Contacts:
        """Contacts from one list of (body, other body, force in newton) per step, and a point (3,) for each of them."""
        rows = [row for step in steps for row in step]
        bodies = tuple(sorted({name for a, b, _ in rows for name in (a, b)}))
        index = {name: i for i, name in enumerate(bodies)}
        return cls(
            bodies=bodies,
            offsets=np.concatenate([[0], np.cumsum([len(step) for step in steps])]).astype(np.int64),
            body_a=np.array([index[a] for a, _, _ in rows], dtype=np.int32),
            body_b=np.array([index[b] for _, b, _ in rows], dtype=np.int32),
            force_n=np.array([f for _, _, f in rows], dtype=np.float64),
            point_m=None if points_m is None else np.concatenate([np.reshape(step, (-1, 3)) for step in points_m]),
        )

    def at(self, step: int) -> list[tuple[str, str, float]]:
        """The contacts of one step as (body, other body, force in newton)."""
        rows = range(int(self.offsets[step]), int(self.offsets[step + 1]))
        return [(self.bodies[self.body_a[r]], self.bodies[self.body_b[r]], float(self.force_n[r])) for r in rows]


def pair_points(pair: IntArray, force_n: FloatArray, point_m: FloatArray, *, n_pairs: int) -> FloatArray:
    """The point (n_pairs, 3) of each pair of bodies: the mean of its contact points (C, 3), weighted by force.

    A pair that does not touch, or without force, has NaN. `pair` (C,) is the number of each contact's pair.
    """
    weight = np.bincount(pair, weights=force_n, minlength=n_pairs)
    moment = np.stack([np.bincount(pair, weights=force_n * axis, minlength=n_pairs) for axis in point_m.T], axis=1)
    points: FloatArray = np.full((n_pairs, 3), np.nan)
    np.divide(moment, weight[:, None], out=points, where=weight[:, None] > 0)
    return points


@dataclass(frozen=True, slots=True, eq=False)
class Camera:
    """A camera: 3x3 intrinsics in pixels and 4x4 world-from-camera where it was calibrated, and its files if any."""

    name: str
    intrinsics_px: FloatArray | None
    world_from_camera: FloatArray | None
    width_px: int
    height_px: int
    video: str = ''  # relative to the store's media folder
    depth: str = ''
    # The control step that each frame of `video` shows, 0 being the reset; empty where it has one frame per row.
    video_steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """What holds for the whole episode: roles of bodies, the target, cameras, the control convention."""

    body_roles: Mapping[str, str] = field(default_factory=dict)
    target_object: str = ''
    target_center_m: tuple[float, float, float] | None = None
    target_size_m: tuple[float, float, float] | None = None
    target_rotation: tuple[float, ...] | None = None  # world-from-box, 9 numbers by rows
    target_threshold: float | None = None
    control_mode: str = ''
    control_rate_hz: float | None = None
    cameras: tuple[Camera, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Trajectory:
    """Columns over the T steps of one episode; a column that was not recorded is None, never zeros.

    `broken` names what was recorded and cannot be read (a column, or `body_pose/NAME` for one body), so that a reader
    can tell it from what was never recorded.
    """

    time_s: FloatArray  # (T,)
    ee_pose: FloatArray | None = None  # (T, 7)
    joint_position_rad: FloatArray | None = None  # (T, J)
    joint_torque_nm: FloatArray | None = None  # (T, J)
    joint_torque_limit_nm: FloatArray | None = None  # (J,)
    bodies: tuple[str, ...] = ()
    body_pose: FloatArray | None = None  # (T, B, 7)
    contacts: Contacts | None = None
    gripper_command: FloatArray | None = None  # (T,)
    gripper_position: FloatArray | None = None  # (T,) as measured
    gripper_contact: BoolArray | None = None  # (T,)
    action_raw: FloatArray | None = None  # (T, A)
    action_processed: FloatArray | None = None  # (T, A)
    action_predicted: FloatArray | None = None  # (T, A)
    reward: FloatArray | None = None  # (T,)
    done: BoolArray | None = None  # (T,)
    network_latency_s: FloatArray | None = None  # (T,)
    inference_latency_s: FloatArray | None = None  # (T,)
    transport_latency_s: FloatArray | None = None  # (T,)
    simulator_state: FloatArray | None = None  # (T, S)
    frame_hash: Mapping[str, NDArray[np.uint64]] = field(default_factory=dict)  # camera -> (T,)
    extra: Mapping[str, FloatArray] = field(default_factory=dict)  # a host's own signals, (T,) or (T, K)
    scene: Scene = field(default_factory=Scene)
    broken: Mapping[str, str] = field(default_factory=dict)  # column -> why what was recorded of it cannot be read

    def __post_init__(self) -> None:
        check_trajectory(self)

    @property
    def n_steps(self) -> int:
        return len(self.time_s)

    def body(self, name: str) -> FloatArray:
        """The (T, 7) pose of one body; RecordError if it was not recorded."""
        if self.body_pose is None or name not in self.bodies:
            raise RecordError(f'no recorded pose of body {name!r}; recorded: {", ".join(self.bodies) or "none"}')
        pose: FloatArray = self.body_pose[:, self.bodies.index(name)]
        return pose


def frame_times(camera: Camera, trajectory: Trajectory) -> FloatArray:
    """When each frame of a camera's video is shown, in the trajectory's time; the reset is at 0."""
    times_s = np.asarray(trajectory.time_s, dtype=np.float64)
    if not camera.video_steps:
        return times_s
    instants_s: FloatArray = np.append(0.0, times_s)[np.minimum(camera.video_steps, len(times_s))]
    return instants_s


def trusted_trajectory(**columns: Any) -> Trajectory:
    """A trajectory from a store's own columns, every field given, which were checked when they were written."""
    trajectory = object.__new__(Trajectory)
    set_columns(trajectory, **columns)
    return trajectory


def trusted_trajectories(columns: Mapping[str, Sequence[Any]]) -> list[Trajectory]:
    """The same for many at once: field -> its values, one a trajectory; `set_columns` gives the rest of the fields."""
    made = [object.__new__(Trajectory) for _ in columns['time_s']]
    for name, values in columns.items():
        collections.deque(map(_SET[name], made, values), maxlen=0)  # a loop in C
    return made


def set_columns(trajectory: Trajectory, **columns: Any) -> None:
    """Set fields of a trajectory under construction, which nobody else has seen."""
    for name, value in columns.items():
        _SET[name](trajectory, value)


_SET = {name: getattr(Trajectory, name).__set__ for name in Trajectory.__slots__}


STEP_COLUMNS: Mapping[str, int | None] = {
    # column -> trailing width: 0 for (T,), a number for (T, width), None for (T, anything)
    'ee_pose': POSE_WIDTH,
    'joint_position_rad': None,
    'joint_torque_nm': None,
    'gripper_command': 0,
    'gripper_position': 0,
    'gripper_contact': 0,
    'action_raw': None,
    'action_processed': None,
    'action_predicted': None,
    'reward': 0,
    'done': 0,
    'network_latency_s': 0,
    'inference_latency_s': 0,
    'transport_latency_s': 0,
    'simulator_state': None,
}


def check_trajectory(trajectory: Trajectory) -> None:
    """Raise RecordError, naming the column, if shapes disagree or time does not increase."""
    time_s = np.asarray(trajectory.time_s)
    if time_s.ndim != 1 or len(time_s) == 0:
        raise RecordError(f'time_s has shape {time_s.shape}, wanted (T,) with at least one step')
    # Whatever is not a number compares as False, and infinity can only be at an end of what increases.
    if not (time_s[1:] > time_s[:-1]).all() or not np.isfinite(time_s[[0, -1]]).all():
        raise RecordError('time_s must be finite and strictly increasing')
    steps = len(time_s)
    for name, width in STEP_COLUMNS.items():
        column = getattr(trajectory, name)
        if column is not None:
            _check_column(name, np.asarray(column), steps, width)
    for name, column in {**trajectory.extra, **trajectory.frame_hash}.items():
        if len(column) != steps or np.ndim(column) not in (1, 2):
            raise RecordError(f'{name} has shape {np.shape(column)}, wanted ({steps},) or ({steps}, K)')
    _check_bodies(trajectory, steps)
    if trajectory.contacts is not None and len(trajectory.contacts.offsets) != steps + 1:
        raise RecordError(f'contacts cover {len(trajectory.contacts.offsets) - 1} steps, wanted {steps}')


def _check_column(name: str, column: NDArray[Any], steps: int, width: int | None) -> None:
    is_right = column.ndim == (1 if width == 0 else 2) and len(column) == steps
    if not is_right or (width and column.shape[1] != width):
        wanted = f'({steps},)' if width == 0 else f'({steps}, {"K" if width is None else width})'
        raise RecordError(f'{name} has shape {column.shape}, wanted {wanted}')


def _check_bodies(trajectory: Trajectory, steps: int) -> None:
    if trajectory.body_pose is not None:
        wanted = (steps, len(trajectory.bodies), POSE_WIDTH)
        if np.shape(trajectory.body_pose) != wanted:
            raise RecordError(f'body_pose has shape {np.shape(trajectory.body_pose)}, wanted {wanted} (T, bodies, 7)')
    limit, torque = trajectory.joint_torque_limit_nm, trajectory.joint_torque_nm
    if limit is not None and torque is not None and np.shape(limit) != (torque.shape[1],):
        raise RecordError(f'joint_torque_limit_nm has shape {np.shape(limit)}, wanted ({torque.shape[1]},)')


def trajectories_equal(a: Trajectory, b: Trajectory) -> bool:
    """Whether two trajectories hold the same names, shapes and bits (NaN equals NaN)."""
    return _same(a, b)


def _same(a: object, b: object) -> bool:
    if dataclasses.is_dataclass(a) and type(a) is type(b):
        return all(_same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == 'f' and b.dtype.kind == 'f')
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)
