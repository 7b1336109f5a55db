"""The trajectory: what was measured at every control step of an episode, by columns.

Poses are (x, y, z, qw, qx, qy, qz) in metres and unit quaternions, in the world frame. T is the number of steps.

Trajectories as Arrow: one row an episode, one list column a scalar signal.

A matrix signal is split by component (`ee_pose:0` ... `ee_pose:6`), a body's pose by body and component
(`body_pose/cube:2`), so that a reader asks for just the signals it needs, and episodes of different robots share a
file: what an episode lacks is null.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robotrials.errors import RecordError, StoreError
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
    shown: FloatArray = np.append(0.0, times_s)[np.minimum(camera.video_steps, len(times_s))]
    return shown


def trusted_trajectory(**columns: Any) -> Trajectory:
    """A trajectory from a store's own columns, every field given, which were checked when they were written."""
    trajectory = object.__new__(Trajectory)
    for name, value in columns.items():
        _SET[name](trajectory, value)
    return trajectory


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
    if not np.all(np.isfinite(time_s)) or np.any(np.diff(time_s) <= 0):
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
    wanted = f'({steps},)' if width == 0 else f'({steps}, {"K" if width is None else width})'
    is_right = column.ndim == (1 if width == 0 else 2) and len(column) == steps
    if not is_right or (width and column.shape[1] != width):
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


KEY_COLUMNS = ('episode_id', 'attempt', 'scene')
CONTACT_COLUMNS = ('contacts/offsets', 'contacts/body_a', 'contacts/body_b', 'contacts/force_n')
CONTACT_POINTS = 'contacts/point_m'
ARRAY_TYPES = {
    'f4': pa.float32(),
    'f8': pa.float64(),
    'i4': pa.int32(),
    'i8': pa.int64(),
    'u8': pa.uint64(),
    'b1': pa.bool_(),
}


def recorded_signals(trajectory: Trajectory) -> dict[str, NDArray[Any]]:
    """Every recorded signal by its stored name: (T,) or (T, K) arrays, and the few that are not by step."""
    signals: dict[str, NDArray[Any]] = {'time_s': np.asarray(trajectory.time_s)}
    for name in (*STEP_COLUMNS, 'joint_torque_limit_nm'):
        values = getattr(trajectory, name)
        if values is not None:
            signals[name] = np.asarray(values)
    if trajectory.body_pose is not None:
        for index, body in enumerate(trajectory.bodies):
            signals[f'body_pose/{escape(body)}'] = np.asarray(trajectory.body_pose)[:, index]
    for camera, hashes in trajectory.frame_hash.items():
        signals[f'frame_hash/{escape(camera)}'] = np.asarray(hashes, dtype=np.uint64)
    for name, values in trajectory.extra.items():
        signals[f'extra/{escape(name)}'] = np.asarray(values)
    if trajectory.contacts is not None:
        for column in CONTACT_COLUMNS:
            signals[column] = np.asarray(getattr(trajectory.contacts, column.partition('/')[2]))
        if trajectory.contacts.point_m is not None:
            signals[CONTACT_POINTS] = np.asarray(trajectory.contacts.point_m)
    return signals


def escape(name: str) -> str:
    """A host's own name as part of a column's name."""
    return name.replace('%', '%25').replace('/', '%2F').replace(':', '%3A')


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return text.replace('%3A', ':').replace('%2F', '/').replace('%25', '%')


def trajectories_to_arrow(keys: Sequence[tuple[str, int]], trajectories: Sequence[Trajectory]) -> pa.Table:
    """One table for a batch of trajectories; its columns are the union of theirs."""
    columns: dict[str, Any] = {
        'episode_id': pa.array([k for k, _ in keys], pa.string()),
        'attempt': pa.array([a for _, a in keys], pa.int32()),
        'scene': pa.array([json.dumps(scene_to_json(t)) for t in trajectories], pa.string()),
    }
    recorded = [recorded_signals(t) for t in trajectories]
    for name in dict.fromkeys(name for signals in recorded for name in signals):
        columns.update(_signal_columns(name, [signals.get(name) for signals in recorded]))
    return pa.table(columns)


def _signal_columns(name: str, values: Sequence[NDArray[Any] | None]) -> dict[str, Any]:
    """One signal of a batch as list columns: `name` for vectors, `name:0` ... for matrices."""
    vectors = [v if v is not None and v.ndim == 1 else None for v in values]
    matrices = [v if v is not None and v.ndim == 2 else None for v in values]
    columns: dict[str, Any] = {}
    if any(v is not None for v in vectors):
        columns[name] = _list_arrays(vectors)[0]
    widths = {v.shape[1] for v in matrices if v is not None}
    if len(widths) == 1 and 0 not in widths:
        columns.update({f'{name}:{i}': array for i, array in enumerate(_list_arrays(matrices))})
        return columns
    for index in range(max(widths, default=0)):
        component = [v[:, index] if v is not None and v.shape[1] > index else None for v in matrices]
        columns[f'{name}:{index}'] = _list_arrays(component)[0]
    if 0 in widths:
        empty = [np.zeros(0) if v is not None and v.shape[1] == 0 else None for v in matrices]
        columns[f'{name}:none'] = _list_arrays(empty)[0]
    return columns


def _list_arrays(values: Sequence[NDArray[Any] | None]) -> list[Any]:
    """List arrays, one a component, of vectors (T,) or of matrices (T, K) of one width; None becomes null."""
    present = [v for v in values if v is not None]
    dtype = np.result_type(*{v.dtype for v in present})
    code = {'f': 'f4' if dtype.itemsize <= 4 else 'f8', 'b': 'b1', 'u': 'u8', 'i': 'i8'}.get(dtype.kind)
    if code is None:
        raise StoreError(f'a trajectory column of type {dtype} cannot be stored; wanted numbers or booleans')
    ends = np.cumsum([0 if v is None else len(v) for v in values])
    # Episode by episode, so that each transposition happens in cache.
    rows = np.empty((1 if present[0].ndim == 1 else present[0].shape[1], int(ends[-1])), dtype=code)
    for value, end in zip(values, ends.tolist(), strict=True):
        if value is not None:
            rows[:, end - len(value) : end] = value.T
    missing = [v is None for v in values]
    mask = pa.array(missing) if any(missing) else None
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    kind = pa.list_(pa.field('element', ARRAY_TYPES[code], nullable=False))
    return [pa.ListArray.from_arrays(offsets, pa.array(row), type=kind, mask=mask) for row in rows]


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """A signal over all steps of several episodes: row i owns values[offsets[i]:offsets[i + 1]], if it has any."""

    values: NDArray[Any]
    offsets: list[int]  # lists, because indexing one is several times faster than indexing an array
    present: list[bool]

    def row(self, index: int) -> NDArray[Any] | None:
        if not self.present[index]:
            return None
        found: NDArray[Any] = self.values[self.offsets[index] : self.offsets[index + 1]]
        return found


def trajectories_from_arrow(table: pa.Table) -> Iterator[tuple[tuple[str, int], Trajectory]]:
    """Every trajectory of a table with its key (episode_id, attempt)."""
    ragged = {n: _ragged(table.column(n)) for n in table.schema.names if n not in KEY_COLUMNS}
    signals = _join_components(ragged, table.num_rows)
    ids, attempts, scenes = (table.column(name).to_pylist() for name in KEY_COLUMNS)
    parsed = {text: json.loads(text) for text in set(scenes)}
    built = {text: scene_from_json(values) for text, values in parsed.items()}
    poses = {text: _pose_signals(values, signals) for text, values in parsed.items()}
    plain = {name: signals[name] for name in (*STEP_COLUMNS, 'joint_torque_limit_nm') if name in signals}
    absent = {name: None for name in (*STEP_COLUMNS, 'joint_torque_limit_nm') if name not in signals}
    hashes, extra = _under('frame_hash/', signals), _under('extra/', signals)
    for row, (episode_id, attempt, text) in enumerate(zip(ids, attempts, scenes, strict=True)):
        bodies, body_pose = poses[text]
        time_s = signals['time_s'].row(row)
        if time_s is None:
            raise RecordError(f'episode {episode_id} attempt {attempt} has a trajectory without time_s')
        yield (
            (episode_id, attempt),
            trusted_trajectory(
                time_s=time_s,
                bodies=bodies,
                body_pose=_pose(body_pose, row, parsed[text], len(time_s)),
                contacts=_contacts(signals, row, parsed[text]),
                frame_hash=_rows_of(hashes, row),
                extra=_rows_of(extra, row),
                scene=built[text],
                broken=parsed[text].get('broken', {}),
                **{name: signal.row(row) for name, signal in plain.items()},
                **absent,
            ),
        )


def _under(prefix: str, signals: Mapping[str, Ragged]) -> dict[str, Ragged]:
    return {unescape(n.removeprefix(prefix)): v for n, v in signals.items() if n.startswith(prefix)}


def _rows_of(signals: Mapping[str, Ragged], row: int) -> dict[str, NDArray[Any]]:
    return {name: values for name, signal in signals.items() if (values := signal.row(row)) is not None}


def _pose(body_pose: Ragged | None, row: int, scene: Mapping[str, Any], steps: int) -> NDArray[Any] | None:
    if scene['has_poses'] and not scene['bodies']:
        return np.zeros((steps, 0, POSE_WIDTH))
    return body_pose.row(row) if body_pose is not None else None


def _contacts(signals: Mapping[str, Ragged], row: int, scene: Mapping[str, Any]) -> Contacts | None:
    if CONTACT_COLUMNS[0] not in signals or not signals[CONTACT_COLUMNS[0]].present[row]:
        return None
    offsets, body_a, body_b, force_n = (signals[name].row(row) for name in CONTACT_COLUMNS)
    if offsets is None or body_a is None or body_b is None or force_n is None:
        raise RecordError('contacts are stored in part; wanted offsets, bodies and forces')
    points = signals[CONTACT_POINTS].row(row) if CONTACT_POINTS in signals else None
    return Contacts(tuple(scene['contact_bodies']), offsets, body_a, body_b, force_n, points)


def _ragged(column: Any) -> Ragged:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return Ragged(
        array.values.to_numpy(zero_copy_only=False),
        array.offsets.to_numpy().tolist(),
        array.is_valid().to_numpy(zero_copy_only=False).tolist() if array.null_count else [True] * len(array),
    )


COMPONENT = re.compile(r'^(?P<signal>.*):(?P<index>\d+|none)$')


def _join_components(ragged: Mapping[str, Ragged], n_rows: int) -> dict[str, Ragged]:
    """Matrices from their components: `ee_pose:0` ... become one `ee_pose`."""
    signals: dict[str, Ragged] = {}
    parts: dict[str, dict[int, Ragged]] = {}
    for name, signal in ragged.items():
        match = COMPONENT.match(name)
        if match is None:
            signals[name] = signal
        elif match['index'] != 'none':
            parts.setdefault(match['signal'], {})[int(match['index'])] = signal
    for name, components in parts.items():
        signals[name] = _stack([components[i] for i in sorted(components)], n_rows)
    for name, signal in ragged.items():
        match = COMPONENT.match(name)
        if match is not None and match['index'] == 'none':
            signals[match['signal']] = _with_empty(signals.get(match['signal']), signal, ragged['time_s'])
    return signals


def _stack(components: Sequence[Ragged], n_rows: int) -> Ragged:
    """Components side by side; in one pass where all rows have all of them, else row by row."""
    first = components[0]
    if all(c.offsets == first.offsets and c.present == first.present for c in components):
        # Components stay side by side in memory: joining them step by step would cost more than reading them.
        joined = _pooled((len(components), *first.values.shape), np.result_type(*(c.values for c in components)))
        np.stack([c.values for c in components], out=joined)
        return Ragged(np.moveaxis(joined, 0, 1), first.offsets, first.present)
    rows: list[NDArray[Any] | None] = []
    for row in range(n_rows):
        own = [values for c in components if (values := c.row(row)) is not None]
        rows.append(np.stack(own, axis=1) if own else None)
    return _by_rows(rows)


def _pooled(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array in Arrow's memory: freed with the trajectories it is for, its pages serve the next row group at once."""
    size = math.prod(shape)
    memory = pa.allocate_buffer(size * dtype.itemsize)
    return np.frombuffer(memory, dtype, count=size).reshape(shape)


def _by_rows(rows: Sequence[NDArray[Any] | None]) -> Ragged:
    """Rows of different widths, kept as objects."""
    values = np.empty(len(rows), dtype=object)
    values[:] = rows
    return _Rows(values, list(range(len(rows) + 1)), [r is not None for r in rows])


class _Rows(Ragged):
    __slots__ = ()

    def row(self, index: int) -> NDArray[Any] | None:
        found: NDArray[Any] | None = self.values[index]
        return found


def _with_empty(signal: Ragged | None, empty: Ragged, time_s: Ragged) -> Ragged:
    """Rows that recorded a matrix of no columns get one back."""
    rows: list[NDArray[Any] | None] = []
    for row in range(len(empty.present)):
        steps = time_s.row(row)
        if empty.present[row] and steps is not None:
            rows.append(np.zeros((len(steps), 0)))
        else:
            rows.append(signal.row(row) if signal is not None else None)
    return _by_rows(rows)


def _pose_signals(scene: Mapping[str, Any], signals: Mapping[str, Ragged]) -> tuple[tuple[str, ...], Ragged | None]:
    """The bodies whose poses were read, and their poses as one (T, B, 7) signal."""
    if not scene['has_poses']:
        return tuple(scene['bodies']), None
    bodies = tuple(b for b in scene['bodies'] if f'body_pose/{escape(b)}' in signals)
    if bodies:
        return bodies, _stack([signals[f'body_pose/{escape(b)}'] for b in bodies], len(signals['time_s'].present))
    return (), None


def columns_for(names: Iterable[str], available: Sequence[str]) -> list[str]:
    """The stored columns behind some signals (`ee_pose`, `body_pose/cube`, `contacts`), with the keys and the time."""
    wanted = tuple(names)
    return [
        column
        for column in available
        if column in ('time_s', *KEY_COLUMNS)
        or any(column == n or column.startswith((f'{n}/', f'{n}:')) for n in wanted)
    ]


def scene_to_json(trajectory: Trajectory) -> dict[str, Any]:
    """What holds for the whole episode, as plain values."""
    scene = trajectory.scene
    return {
        'bodies': list(trajectory.bodies),
        'has_poses': trajectory.body_pose is not None,
        'contact_bodies': list(trajectory.contacts.bodies) if trajectory.contacts is not None else [],
        'body_roles': dict(scene.body_roles),
        'target_object': scene.target_object,
        'target_center_m': scene.target_center_m,
        'target_size_m': scene.target_size_m,
        'target_rotation': scene.target_rotation,
        'target_threshold': scene.target_threshold,
        'control_mode': scene.control_mode,
        'control_rate_hz': scene.control_rate_hz,
        **({'broken': dict(trajectory.broken)} if trajectory.broken else {}),
        'cameras': [
            {
                'name': c.name,
                'intrinsics_px': _listed(c.intrinsics_px),
                'world_from_camera': _listed(c.world_from_camera),
                'width_px': c.width_px,
                'height_px': c.height_px,
                'video': c.video,
                'depth': c.depth,
                **({'video_steps': c.video_steps} if c.video_steps else {}),
            }
            for c in scene.cameras
        ],
    }


def _listed(values: NDArray[Any] | None) -> Any:
    return None if values is None else np.asarray(values, dtype=float).tolist()


def _unlisted(values: Any) -> NDArray[Any] | None:
    return None if values is None else np.array(values)


def scene_from_json(values: Mapping[str, Any]) -> Scene:
    """The inverse of `scene_to_json`."""
    cameras = tuple(
        Camera(
            **{
                **c,
                'intrinsics_px': _unlisted(c['intrinsics_px']),
                'world_from_camera': _unlisted(c['world_from_camera']),
                'video_steps': tuple(c.get('video_steps', ())),
            }
        )
        for c in values['cameras']
    )
    vectors = {
        n: tuple(values[n]) if values[n] is not None else None
        for n in ('target_center_m', 'target_size_m', 'target_rotation')
    }
    return Scene(
        body_roles=values['body_roles'],
        target_object=values['target_object'],
        target_threshold=values['target_threshold'],
        control_mode=values['control_mode'],
        control_rate_hz=values['control_rate_hz'],
        cameras=cameras,
        **vectors,
    )
