"""Trajectories as Arrow: one row an episode, one list column a scalar signal.

A matrix signal is split by component (`ee_pose:0` ... `ee_pose:6`), a body's pose by body and component
(`body_pose/cube:2`), so that a reader asks for just the signals it needs, and episodes of different robots share a
file: what an episode lacks is null.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from robotrials.errors import RecordError, StoreError
from robotrials.record.trajectory import (
    POSE_WIDTH,
    STEP_COLUMNS,
    Camera,
    Contacts,
    Scene,
    Trajectory,
    set_columns,
    trusted_trajectories,
)
from robotrials.value import dataclass

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
        values: NDArray[Any] = self.values[self.offsets[index] : self.offsets[index + 1]]
        return values

    def rows(self) -> list[NDArray[Any] | None]:
        """Every row, in half the time of asking for each."""
        values = self.values
        rows = [values[first:end] for first, end in itertools.pairwise(self.offsets)]
        return [v if has else None for v, has in zip(rows, self.present, strict=True)]


def trajectories_from_arrow(table: pa.Table) -> Iterator[tuple[tuple[str, int], Trajectory]]:
    """Every trajectory of a table with its key (episode_id, attempt)."""
    ragged = {n: _ragged(table.column(n)) for n in table.schema.names if n not in KEY_COLUMNS}
    signals = _join_components(ragged, table.num_rows)
    ids, attempts, scenes = (table.column(name).to_pylist() for name in KEY_COLUMNS)
    parsed = {text: json.loads(text) for text in set(scenes)}
    built = {text: scene_from_json(values) for text, values in parsed.items()}
    poses = {text: _pose_signals(values, signals) for text, values in parsed.items()}
    columns: dict[str, Sequence[Any]] = {
        'frame_hash': _rows_under('frame_hash/', signals, len(ids)),
        'extra': _rows_under('extra/', signals, len(ids)),
        'bodies': [poses[text][0] for text in scenes],
        'scene': [built[text] for text in scenes],
        'broken': [parsed[text].get('broken', {}) for text in scenes],
    }
    for name in ('time_s', *STEP_COLUMNS, 'joint_torque_limit_nm'):
        columns[name] = signals[name].rows() if name in signals else [None] * len(ids)
    made = trusted_trajectories(columns)
    for row, (episode_id, attempt, text, trajectory) in enumerate(zip(ids, attempts, scenes, made, strict=True)):
        time_s = trajectory.time_s
        if time_s is None:
            raise RecordError(f'episode {episode_id} attempt {attempt} has a trajectory without time_s')
        set_columns(
            trajectory,
            body_pose=_pose(poses[text][1], row, parsed[text], len(time_s)),
            contacts=_contacts(signals, row, parsed[text]),
        )
        yield (episode_id, attempt), trajectory


def _rows_under(prefix: str, signals: Mapping[str, Ragged], n_rows: int) -> list[dict[str, NDArray[Any]]]:
    """For each row, its values of the signals with this prefix, by the rest of their names."""
    rows = {unescape(n.removeprefix(prefix)): v.rows() for n, v in signals.items() if n.startswith(prefix)}
    return [{name: own for name, values in rows.items() if (own := values[row]) is not None} for row in range(n_rows)]


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
    array = _whole(column) if isinstance(column, pa.ChunkedArray) else column
    return Ragged(
        array.values.to_numpy(zero_copy_only=False),
        array.offsets.to_numpy().tolist(),
        array.is_valid().to_numpy(zero_copy_only=False).tolist() if array.null_count else [True] * len(array),
    )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array; `combine_chunks` would copy even a single chunk."""
    return column.chunk(0) if column.num_chunks == 1 and not column.chunk(0).offset else column.combine_chunks()


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
        values: NDArray[Any] | None = self.values[index]
        return values

    def rows(self) -> list[NDArray[Any] | None]:
        return list(self.values)


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
