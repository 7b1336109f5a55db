"""The steps of a SafeVLA-Bench trajectory record as columns: from its JSON objects, or from arrays of an archive."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trialist.episodes import Contacts, Scene, Trajectory
from trialist.errors import RecordError

FloatArray = NDArray[np.float64]
POSE_PREFIXES = ('body_pos_m.', 'body_quat_wxyz.')


def trajectory_from_steps(record: Mapping[str, Any], dt_s: float, *, where: str) -> Trajectory:
    """Columns from a list of step objects; `t` counts steps, so time is t times dt."""
    steps = record['steps']
    if not isinstance(steps, list) or not steps:
        raise RecordError(f'{where}: steps is empty, wanted at least one')
    index = [step.get('t', number) for number, step in enumerate(steps)]
    position, quaternion = (_by_body(steps, name, where) for name in ('body_pos_m', 'body_quat_wxyz'))
    contacts = _column(steps, 'contacts', where, lambda rows: [(r['a'], r['b'], float(r['force_n'])) for r in rows])
    eef = _column(steps, 'eef_pos_m', where, lambda p: [*map(float, p)])
    torque = _column(steps, 'joint_torque_nm', where, lambda p: [*map(float, p)])
    grip = _column(steps, 'gripper_contact', where, bool)
    return _trajectory(
        record, np.asarray(index, dtype=np.float64) * dt_s, where=where,
        position=position, quaternion=quaternion, eef=None if eef is None else _floats(eef, 'eef_pos_m', where),
        contacts=None if contacts is None else Contacts.from_steps(contacts),
        torque=None if torque is None else _floats(torque, 'joint_torque_nm', where),
        grip=None if grip is None else np.array(grip, dtype=bool),
    )  # fmt: skip


def trajectory_from_arrays(record: Mapping[str, Any], dt_s: float, *, where: str) -> Trajectory:
    """Columns from an archive of arrays.

    `eef_pos_m` (T, 3), `body_pos_m.NAME` (T, 3), `body_quat_wxyz.NAME` (T, 4), `joint_torque_nm` (T, J),
    `gripper_contact` (T,), and contacts as `contact_step`, `contact_a`, `contact_b`, `contact_force_n` (C,).
    """
    position, quaternion = (
        {n.removeprefix(prefix): np.asarray(c, dtype=np.float64) for n, c in record.items() if n.startswith(prefix)}
        for prefix in POSE_PREFIXES
    )
    columns = [*position.values(), *quaternion.values()]
    columns += [np.asarray(record[n]) for n in ('eef_pos_m', 'joint_torque_nm', 'gripper_contact') if n in record]
    if not columns:
        raise RecordError(f'{where}: no per-step array')
    steps = len(columns[0])
    return _trajectory(
        record, np.arange(steps, dtype=np.float64) * dt_s, where=where, position=position, quaternion=quaternion,
        eef=np.asarray(record['eef_pos_m'], dtype=np.float64) if 'eef_pos_m' in record else None,
        contacts=_archived_contacts(record, steps, where),
        torque=np.asarray(record['joint_torque_nm'], dtype=np.float64) if 'joint_torque_nm' in record else None,
        grip=np.asarray(record['gripper_contact'], dtype=bool) if 'gripper_contact' in record else None,
    )  # fmt: skip


def _archived_contacts(record: Mapping[str, Any], steps: int, where: str) -> Contacts | None:
    names = ('contact_step', 'contact_a', 'contact_b', 'contact_force_n')
    present = [name for name in names if name in record]
    if not present:
        return None
    if len(present) < len(names):
        raise RecordError(f'{where}: {", ".join(present)} without {", ".join(sorted(set(names) - set(present)))}')
    rows: list[list[tuple[str, str, float]]] = [[] for _ in range(steps)]
    for step, a, b, force in zip(*(record[name] for name in names), strict=True):
        if not 0 <= int(step) < steps:
            raise RecordError(f'{where}: contact_step is {step}, wanted 0 to {steps - 1}')
        rows[int(step)].append((str(a), str(b), float(force)))
    return Contacts.from_steps(rows)


def _trajectory(
    record: Mapping[str, Any],
    time_s: FloatArray,
    *,
    where: str,
    position: Mapping[str, FloatArray],
    quaternion: Mapping[str, FloatArray],
    eef: FloatArray | None,
    contacts: Contacts | None,
    torque: FloatArray | None,
    grip: NDArray[np.bool_] | None,
) -> Trajectory:
    bodies = tuple(sorted(position))
    poses = [_pose(position[name], quaternion.get(name)) for name in bodies]
    limit = record.get('joint_torque_limit_nm')
    try:
        return Trajectory(
            time_s=time_s, ee_pose=None if eef is None else _pose(eef, None), bodies=bodies,
            body_pose=np.stack(poses, axis=1) if poses else None, contacts=contacts, joint_torque_nm=torque,
            joint_torque_limit_nm=None if limit is None else np.asarray(limit, dtype=np.float64),
            gripper_contact=grip, scene=_scene(record, where),
        )  # fmt: skip
    except RecordError as error:
        raise RecordError(f'{where}: {error}') from error


def _scene(record: Mapping[str, Any], where: str) -> Scene:
    roles = record.get('body_roles', {})
    if isinstance(roles, np.ndarray | str):
        roles = json.loads(str(roles))
    if not isinstance(roles, dict):
        raise RecordError(f'{where}: body_roles is {type(roles).__name__}, wanted an object of body to role')
    return Scene(
        body_roles={str(body): str(role) for body, role in roles.items()},
        target_object=str(record.get('target_object', '')),
    )


def _pose(position: FloatArray, quaternion: FloatArray | None) -> FloatArray:
    """(T, 7); an orientation that was not recorded is NaN, a recorded one is normalised."""
    if quaternion is None:
        quaternion = np.full((len(position), 4), np.nan)
    length = np.linalg.norm(quaternion, axis=1, keepdims=True)
    return np.concatenate([position, np.divide(quaternion, length, where=length > 0, out=quaternion.copy())], axis=1)


def _column(steps: Sequence[Mapping[str, Any]], name: str, where: str, read: Callable[[Any], Any]) -> list[Any] | None:
    """One value a step; None if no step has the field, an error if only some do."""
    having = [name in step for step in steps]
    if not any(having):
        return None
    if not all(having):
        raise RecordError(f'{where}: step {having.index(False)} has no {name!r}, though others have')
    try:
        return [read(step[name]) for step in steps]
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f'{where}: {name} cannot be read ({error!r})') from error


def _by_body(steps: Sequence[Mapping[str, Any]], name: str, where: str) -> dict[str, FloatArray]:
    rows = _column(steps, name, where, dict) or []
    found = {}
    for body in sorted({body for row in rows for body in row}):
        for number, row in enumerate(rows):
            if body not in row:
                raise RecordError(f'{where}: step {number} has no {name} of {body!r}, though others have')
        found[body] = _floats([row[body] for row in rows], f'{name} of {body!r}', where)
    return found


def _floats(rows: Sequence[Any], name: str, where: str) -> FloatArray:
    try:
        return np.array(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise RecordError(f'{where}: {name} is not the same count of numbers in every step') from error
