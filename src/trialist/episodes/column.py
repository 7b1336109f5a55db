"""Trajectories as Arrow: one row an episode, one list column a scalar signal.

A matrix signal is split by component (`ee_pose:0` ... `ee_pose:6`), a body's pose by body and component
(`body_pose/cube:2`), so that a reader asks for just the signals it needs, and episodes of different robots share a
file: what an episode lacks is null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trialist.episodes.trajectory import POSE_WIDTH, STEP_COLUMNS, Camera, Contacts, Scene, Trajectory
from trialist.errors import StoreError

KEY_COLUMNS = ('episode_id', 'attempt', 'scene')
CONTACT_COLUMNS = ('contacts/offsets', 'contacts/body_a', 'contacts/body_b', 'contacts/force_n')
ARRAY_TYPES = {
    'f4': pa.float32(),
    'f8': pa.float64(),
    'i4': pa.int32(),
    'i8': pa.int64(),
    'u8': pa.uint64(),
    'b1': pa.bool_(),
}


def flatten(trajectory: Trajectory) -> dict[str, NDArray[Any]]:
    """Every recorded signal of a trajectory as named one-dimensional arrays."""
    flat: dict[str, NDArray[Any]] = {'time_s': np.asarray(trajectory.time_s)}
    for name in STEP_COLUMNS:
        values = getattr(trajectory, name)
        if values is not None:
            _put(flat, name, np.asarray(values))
    if trajectory.joint_torque_limit_nm is not None:
        flat['joint_torque_limit_nm'] = np.asarray(trajectory.joint_torque_limit_nm)
    if trajectory.body_pose is not None:
        for index, body in enumerate(trajectory.bodies):
            _put(flat, f'body_pose/{escape(body)}', np.asarray(trajectory.body_pose)[:, index])
    for camera, hashes in trajectory.frame_hash.items():
        flat[f'frame_hash/{escape(camera)}'] = np.asarray(hashes, dtype=np.uint64)
    for name, values in trajectory.extra.items():
        _put(flat, f'extra/{escape(name)}', np.asarray(values))
    if trajectory.contacts is not None:
        for column in CONTACT_COLUMNS:
            flat[column] = np.asarray(getattr(trajectory.contacts, column.partition('/')[2]))
    return flat


def escape(name: str) -> str:
    """A host's own name as part of a column's name."""
    return name.replace('%', '%25').replace('/', '%2F').replace(':', '%3A')


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return text.replace('%3A', ':').replace('%2F', '/').replace('%25', '%')


def _under(prefix: str, signals: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {unescape(n.removeprefix(prefix)): v for n, v in signals.items() if n.startswith(prefix)}


def _put(flat: dict[str, NDArray[Any]], name: str, values: NDArray[Any]) -> None:
    if values.ndim == 1:
        flat[name] = values
    elif values.shape[1] == 0:
        flat[f'{name}:none'] = np.zeros(0)
    else:
        for index in range(values.shape[1]):
            flat[f'{name}:{index}'] = values[:, index]


def trajectories_to_arrow(keys: Sequence[tuple[str, int]], trajectories: Sequence[Trajectory]) -> pa.Table:
    """One table for a batch of trajectories; its columns are the union of theirs."""
    flats = [flatten(t) for t in trajectories]
    names = list(dict.fromkeys(name for flat in flats for name in flat))
    arrays: list[pa.Array[Any]] = [
        pa.array([k for k, _ in keys], pa.string()),
        pa.array([a for _, a in keys], pa.int32()),
        pa.array([json.dumps(scene_to_json(t)) for t in trajectories], pa.string()),
    ]
    arrays += [_list_array([flat.get(name) for flat in flats]) for name in names]
    return pa.table(arrays, names=[*KEY_COLUMNS, *names])


def _list_array(values: Sequence[NDArray[Any] | None]) -> pa.Array[Any]:
    present = [v for v in values if v is not None]
    dtype = np.result_type(*present)
    code = {'f': 'f4' if dtype.itemsize <= 4 else 'f8', 'b': 'b1', 'u': 'u8', 'i': 'i8'}.get(dtype.kind)
    if code is None:
        raise StoreError(f'a trajectory column of type {dtype} can not be stored; wanted numbers or booleans')
    lengths = np.array([0 if v is None else len(v) for v in values], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    joined = np.concatenate(present).astype(code, copy=False)
    element = pa.field('element', ARRAY_TYPES[code], nullable=False)
    missing = np.array([v is None for v in values])
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(joined), type=pa.list_(element), mask=pa.array(missing) if missing.any() else None
    )


def trajectories_from_arrow(table: pa.Table | pa.RecordBatch) -> Iterable[tuple[tuple[str, int], Trajectory]]:
    """Every trajectory of a table with its key (episode_id, attempt)."""
    columns = {name: _column_slices(table.column(name)) for name in table.schema.names if name not in KEY_COLUMNS}
    ids, attempts, scenes = (table.column(name).to_pylist() for name in KEY_COLUMNS)
    for row, (episode_id, attempt, scene) in enumerate(zip(ids, attempts, scenes, strict=True)):
        flat = {name: values[row] for name, values in columns.items()}
        yield (episode_id, attempt), unflatten({k: v for k, v in flat.items() if v is not None}, json.loads(scene))


def _column_slices(column: Any) -> list[NDArray[Any] | None]:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values = array.values.to_numpy(zero_copy_only=False)
    offsets = array.offsets.to_numpy()
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return [values[a:b] if ok else None for a, b, ok in zip(offsets[:-1], offsets[1:], valid, strict=True)]


def unflatten(flat: Mapping[str, NDArray[Any]], scene: Mapping[str, Any]) -> Trajectory:
    """The trajectory behind named one-dimensional arrays; the inverse of `flatten`."""
    steps = len(flat['time_s'])
    signals = _gather(flat, steps)
    bodies = tuple(scene['bodies'])
    poses = {b: signals[f'body_pose/{escape(b)}'] for b in bodies if f'body_pose/{escape(b)}' in signals}
    known = {name: signals[name] for name in STEP_COLUMNS if name in signals}
    contacts = None
    if CONTACT_COLUMNS[0] in flat:
        offsets, body_a, body_b, force_n = (flat[name] for name in CONTACT_COLUMNS)
        contacts = Contacts(tuple(scene['contact_bodies']), offsets, body_a, body_b, force_n)
    return Trajectory(
        time_s=flat['time_s'],
        bodies=tuple(poses) if scene['has_poses'] else bodies,
        body_pose=_stack_poses(poses, scene, steps),
        joint_torque_limit_nm=flat.get('joint_torque_limit_nm'),
        contacts=contacts,
        frame_hash=_under('frame_hash/', signals),
        extra=_under('extra/', signals),
        scene=scene_from_json(scene),
        **known,
    )


def _stack_poses(poses: Mapping[str, NDArray[Any]], scene: Mapping[str, Any], steps: int) -> NDArray[Any] | None:
    if poses:
        return np.stack(list(poses.values()), axis=1)
    return np.zeros((steps, 0, POSE_WIDTH)) if scene['has_poses'] and not scene['bodies'] else None


COMPONENT = re.compile(r'^(?P<signal>.*):(?P<index>\d+|none)$')


def _gather(flat: Mapping[str, NDArray[Any]], steps: int) -> dict[str, NDArray[Any]]:
    """Join components back into matrices: `ee_pose:0` ... become one (T, 7) `ee_pose`."""
    signals: dict[str, NDArray[Any]] = {}
    parts: dict[str, dict[int, NDArray[Any]]] = {}
    for name, values in flat.items():
        match = COMPONENT.match(name)
        if match is None:
            signals[name] = values
        elif match['index'] == 'none':
            signals[match['signal']] = np.zeros((steps, 0))
        else:
            parts.setdefault(match['signal'], {})[int(match['index'])] = values
    for signal, components in parts.items():
        signals[signal] = np.stack([components[i] for i in sorted(components)], axis=1)
    return signals


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
        'cameras': [
            {
                'name': c.name,
                'intrinsics_px': np.asarray(c.intrinsics_px, dtype=float).tolist(),
                'world_from_camera': np.asarray(c.world_from_camera, dtype=float).tolist(),
                'width_px': c.width_px,
                'height_px': c.height_px,
                'video': c.video,
                'depth': c.depth,
            }
            for c in scene.cameras
        ],
    }


def scene_from_json(values: Mapping[str, Any]) -> Scene:
    """The inverse of `scene_to_json`."""
    cameras = tuple(
        Camera(
            **{
                **c,
                'intrinsics_px': np.array(c['intrinsics_px']),
                'world_from_camera': np.array(c['world_from_camera']),
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
