"""The steps of a SafeVLA-Bench trajectory record as columns: from its JSON objects, or from arrays of an archive.

Each column is present, absent (no step has it) or broken, with the reason; one broken column spoils no other.
"""

from __future__ import annotations

import itertools
import json
import math
import reprlib
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import RecordError
from robotrials.measure.safety.contact import FloatArray, Unread, checked_numbers, checked_orientation
from robotrials.record import Contacts, Scene, Trajectory

T = TypeVar('T')
ContactRow = tuple[str, str, float]
LARGEST_DOUBLE = int(sys.float_info.max)
POSITION, ORIENTATION, POINTS = 'body_pos_m', 'body_quat_wxyz', 'contact_point_m'


class Bad(Exception):  # noqa: N818 - how a column says that it is broken; never leaves this module
    """A value that is not what its column wants."""


class Columns:
    """Columns as they are read, and why some could not be."""

    def __init__(self) -> None:
        self.broken: dict[str, str] = {}

    def take(self, name: str, read: Callable[[], T | None]) -> T | None:
        """What `read` gives; None where it says that the column is broken, which is written down."""
        try:
            return read()
        except Bad as reason:
            self.broken.setdefault(name, str(reason))
        except Unread as lack:
            self.broken.setdefault(name, lack.gap.reason)
        return None


def trajectory_from_steps(record: Mapping[str, Any], dt_s: float, *, where: str) -> Trajectory:
    """Columns from a list of step objects; `t` counts steps, so time is t times dt."""
    steps = record['steps']
    if not isinstance(steps, list) or not steps or not all(isinstance(step, dict) for step in steps):
        raise RecordError(f'{where}: steps is empty or holds no objects, wanted at least one step')
    columns = Columns()
    index = columns.take('time_s', lambda: _step_numbers(steps, record.get('n_steps')))
    contacts = columns.take('contacts', lambda: _listed(steps, 'contacts', _contact_rows))
    points = None if contacts is None else columns.take(POINTS, lambda: _points(steps))
    grip = columns.take('gripper_contact', lambda: _listed(steps, 'gripper_contact', _truth))
    return _trajectory(
        record, (np.arange(len(steps), dtype=np.float64) if index is None else index) * dt_s, columns,
        poses=_poses(columns, _by_body(columns, steps, POSITION), _by_body(columns, steps, ORIENTATION)),
        eef=columns.take(
            'ee_pose',
            lambda: _pose_of(_matrix(steps, 'eef_pos_m', width=3), _matrix(steps, 'eef_quat_wxyz', width=4)),
        ),
        command=columns.take('gripper_command', lambda: _numbers_of(steps, 'gripper_command')),
        contacts=None if contacts is None else Contacts.from_steps(contacts, points_m=points),
        torque=columns.take('joint_torque_nm', lambda: _matrix(steps, 'joint_torque_nm')),
        grip=None if grip is None else np.array(grip, dtype=bool),
    )  # fmt: skip


def trajectory_from_arrays(record: Mapping[str, Any], dt_s: float, *, where: str) -> Trajectory:
    """Columns from an archive of arrays.

    `eef_pos_m` (T, 3), `body_pos_m.NAME` (T, 3), `body_quat_wxyz.NAME` (T, 4), `joint_torque_nm` (T, J),
    `gripper_contact` (T,), and contacts as `contact_step`, `contact_a`, `contact_b`, `contact_force_n` (C,). Beyond the
    paper's fields `eef_quat_wxyz` (T, 4), `gripper_command` (T,) and `contact_point_m` (C, 3) are read.
    """
    steps = array_steps(record, where)
    columns = Columns()
    if scalar(record.get('n_steps')) not in (None, steps):
        columns.broken['time_s'] = f'n_steps is {record["n_steps"]}, but {steps} steps are there'

    def array(name: str, width: int | None) -> FloatArray | None:
        return _array(record[name], name, steps, width) if name in record else None

    def by_body(prefix: str, width: int) -> dict[str, FloatArray]:
        bodies = [name.removeprefix(f'{prefix}.') for name in record if name.startswith(f'{prefix}.')]
        taken = {b: columns.take(f'body_pose/{b}', lambda b=b: array(f'{prefix}.{b}', width)) for b in bodies}  # type: ignore[misc]
        return {body: column for body, column in taken.items() if column is not None}

    return _trajectory(
        record, np.arange(steps, dtype=np.float64) * dt_s, columns,
        poses=_poses(columns, by_body(POSITION, 3), by_body(ORIENTATION, 4)),
        eef=columns.take('ee_pose', lambda: _pose_of(array('eef_pos_m', 3), array('eef_quat_wxyz', 4))),
        command=columns.take('gripper_command', lambda: _archived_numbers(record, 'gripper_command', steps)),
        contacts=_archived_contacts(columns, record, steps),
        torque=columns.take('joint_torque_nm', lambda: array('joint_torque_nm', None)),
        grip=columns.take('gripper_contact', lambda: _archived_truths(record, 'gripper_contact', steps)),
    )  # fmt: skip


def array_steps(record: Mapping[str, Any], where: str) -> int:
    """How many steps an archive has: the length that most of its per-step arrays share."""
    per_step = [
        len(column) for name, column in record.items()
        if np.ndim(column) >= 1 and (name in ('eef_pos_m', 'joint_torque_nm', 'gripper_contact') or '.' in name)
    ]  # fmt: skip
    if not per_step or max(per_step) == 0:
        raise RecordError(f'{where}: no per-step array')
    return Counter(per_step).most_common(1)[0][0]


def _trajectory(
    record: Mapping[str, Any],
    time_s: FloatArray,
    columns: Columns,
    *,
    poses: Mapping[str, FloatArray],
    eef: FloatArray | None,
    contacts: Contacts | None,
    torque: FloatArray | None,
    grip: NDArray[np.bool_] | None,
    command: FloatArray | None,
) -> Trajectory:
    bodies = tuple(sorted(poses))
    scene = Scene(
        body_roles=columns.take('body_roles', lambda: _roles(record)) or {},
        target_object=columns.take('target_object', lambda: _target(record)) or '',
    )
    return Trajectory(
        time_s=time_s, ee_pose=eef, bodies=bodies, gripper_command=command,
        body_pose=np.stack([poses[name] for name in bodies], axis=1) if bodies else None, contacts=contacts,
        joint_torque_nm=torque,
        joint_torque_limit_nm=columns.take('joint_torque_limit_nm', lambda: _limits(record, torque)),
        gripper_contact=grip, scene=scene, broken=columns.broken,
    )  # fmt: skip


def _roles(record: Mapping[str, Any]) -> dict[str, str]:
    roles = record.get('body_roles')
    if isinstance(roles, np.ndarray):
        roles = roles.item() if roles.ndim == 0 else roles
    if isinstance(roles, str):
        try:
            roles = json.loads(roles)
        except ValueError:
            raise Bad(f'{roles!r}, wanted an object of body to role') from None
    if roles is None:
        return {}
    if not isinstance(roles, dict):
        raise Bad(f'{type(roles).__name__}, wanted an object of body to role')
    for body, role in roles.items():
        if not isinstance(role, str):
            raise Bad(f'the role of {body!r} is {role!r}, wanted a word')
    return dict(roles)


def _target(record: Mapping[str, Any]) -> str:
    named = scalar(record.get('target_object'))
    if named is not None and not isinstance(named, str):
        raise Bad(f'{named!r}, wanted the name of a body')
    return named or ''


def _limits(record: Mapping[str, Any], torque: FloatArray | None) -> FloatArray | None:
    limit = record.get('joint_torque_limit_nm')
    if limit is None:
        return None
    values = limit.tolist() if isinstance(limit, np.ndarray) else limit
    if not isinstance(values, list) or not all(_is_number(v) and v > 0 for v in values):
        raise Bad(f'{values!r}, wanted numbers > 0')
    if torque is not None and len(values) != torque.shape[1]:
        raise Bad(f'{len(values)} limits for {torque.shape[1]} joint torques')
    return np.array(values, dtype=np.float64)


def _poses(
    columns: Columns, position: Mapping[str, FloatArray], quaternion: Mapping[str, FloatArray]
) -> dict[str, FloatArray]:
    """(T, 7) by body; an orientation that was not recorded is NaN, a recorded one is normalised."""
    for body in quaternion.keys() - position.keys():
        columns.broken.setdefault(f'body_pose/{body}', 'an orientation without a position')
    poses = {}
    for body, place in position.items():
        name = f'body_pose/{body}'
        if name not in columns.broken:
            pose = columns.take(name, lambda body=body, place=place: _with_orientation(place, quaternion.get(body)))  # type: ignore[misc]
            if pose is not None:
                poses[body] = pose
    return poses


def _pose_of(position: FloatArray | None, quaternion: FloatArray | None) -> FloatArray | None:
    if position is None and quaternion is not None:
        raise Bad('an orientation without a position')
    return None if position is None else _with_orientation(position, quaternion)


def _with_orientation(position: FloatArray, quaternion: FloatArray | None) -> FloatArray:
    turned = np.full((len(position), 4), np.nan)
    if quaternion is not None:
        turned = checked_orientation('the orientation', quaternion)
    return np.concatenate([position, turned], axis=1)


# --- step objects


def _step_numbers(steps: Sequence[Mapping[str, Any]], wanted: Any) -> FloatArray:
    """`t` of every step: whole numbers from 0 on, at one stride; a jump is a step that is missing."""
    if wanted is not None and wanted != len(steps):
        raise Bad(f'n_steps is {wanted!r}, but {len(steps)} steps are there')
    index = _listed(steps, 't', _whole)
    if index is None:
        return np.arange(len(steps), dtype=np.float64)
    if index[0] != 0:
        raise Bad(f't is {index[0]} at the first step, wanted 0: the start is missing')
    stride = index[1] - index[0] if len(index) > 1 else 1
    for number, (before, after) in enumerate(itertools.pairwise(index)):
        if after - before != stride or stride < 1:
            raise Bad(f't goes from {before} to {after} at step {number + 1}, wanted {before + max(stride, 1)}')
    return np.array(index, dtype=np.float64)


def _listed(steps: Sequence[Mapping[str, Any]], name: str, read: Callable[[Any], T]) -> list[T] | None:
    """One value per step; None if no step has one (or all are null), broken if only some do or one is wrong."""
    having = [step.get(name) is not None for step in steps]
    if not any(having):
        return None
    if not all(having):
        raise Bad(f'step {having.index(False)} has no {name!r}, though others have')
    values = []
    for number, step in enumerate(steps):
        try:
            values.append(read(step[name]))
        except Bad as reason:
            raise Bad(f'{reason} at step {number}') from None
    return values


def _by_body(columns: Columns, steps: Sequence[Mapping[str, Any]], name: str) -> dict[str, FloatArray]:
    rows = columns.take('body_pose', lambda: _listed(steps, name, _object)) or []
    width = 3 if name == POSITION else 4
    by_body = {}
    for body in sorted({str(body) for row in rows for body in row}):
        values = columns.take(f'body_pose/{body}', lambda body=body: _matrix(rows, body, width=width))  # type: ignore[misc]
        if values is not None:
            by_body[body] = values
    return by_body


def _matrix(steps: Sequence[Mapping[str, Any]], name: str, *, width: int | None = None) -> FloatArray | None:
    rows = _listed(steps, name, _numbers)
    if rows is None:
        return None
    wanted = len(rows[0]) if width is None else width
    for number, row in enumerate(rows):
        if len(row) != wanted or not wanted:
            raise Bad(f'{len(row)} numbers at step {number}, wanted {wanted or "at least one"}')
    return checked_numbers(name, np.array(rows, dtype=np.float64))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Bad(f'{value!r}, wanted an object')
    return value


def _numbers(value: Any) -> list[float]:
    if not isinstance(value, list) or not all(_is_number(v) for v in value):
        raise Bad(f'{shown(value)}, wanted a list of numbers')
    return [float(v) for v in value]


def _whole(value: Any) -> int:
    if not _is_number(value) or not math.isfinite(value) or int(value) != value:
        raise Bad(f't is {shown(value)}, wanted a whole number of steps')
    return int(value)


def _truth(value: Any) -> bool:
    if isinstance(value, bool) or (_is_number(value) and value in (0, 1)):
        return bool(value)
    raise Bad(f'{value!r}, wanted true or false')


def _is_number(value: Any) -> bool:
    """Whether it is a number that a double can hold; JSON has integers of any length."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) <= LARGEST_DOUBLE


def _contact_rows(value: Any) -> list[ContactRow]:
    if not isinstance(value, list):
        raise Bad(f'{value!r}, wanted a list of contacts')
    return [_contact(row) for row in value]


def _numbers_of(steps: Sequence[Mapping[str, Any]], name: str) -> FloatArray | None:
    values = _listed(steps, name, _number)
    return None if values is None else checked_numbers(name, np.array(values, dtype=np.float64))


def _number(value: Any) -> float:
    if not _is_number(value):
        raise Bad(f'{shown(value)}, wanted a number')
    return float(value)


def shown(value: Any) -> str:
    """A value in a message; an integer of a thousand digits by its length."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST_DOUBLE:
        return 'an integer beyond the largest double'
    if isinstance(value, list | dict):
        return reprlib.repr([shown(v) if isinstance(v, int) else v for v in value])
    return repr(value)


def _points(steps: Sequence[Mapping[str, Any]]) -> list[FloatArray] | None:
    """The point (C, 3) of every contact of every step; None if none has one, broken if only some have."""
    rows = [(t, row) for t, step in enumerate(steps) for row in step['contacts']]
    having = [isinstance(row, dict) and 'point_m' in row for _, row in rows]
    if not any(having):
        return None
    if not all(having):
        raise Bad(f'a contact at step {rows[having.index(False)][0]} has no point_m, though others have')
    for t, row in rows:
        point = row['point_m']
        if not isinstance(point, list) or len(point) != 3 or not all(_is_number(v) and math.isfinite(v) for v in point):
            raise Bad(f'{shown(point)} at step {t}, wanted three finite numbers')
    return [np.array([row['point_m'] for row in step['contacts']], dtype=float).reshape(-1, 3) for step in steps]


def _contact(row: Any) -> ContactRow:
    if not isinstance(row, dict) or not all(isinstance(row.get(side), str) and row[side] for side in ('a', 'b')):
        raise Bad(f'{row!r}, wanted a contact with bodies a and b')
    force = row.get('force_n')
    if force is None or not _is_number(force) or not (math.isfinite(force) and force >= 0):
        raise Bad(f'the force of {row["a"]} x {row["b"]} is {shown(force)}, wanted newtons >= 0')
    return row['a'], row['b'], float(force)


# --- arrays


def scalar(value: Any) -> Any:
    """A number or a word that an archive holds as an array of one."""
    return value.item() if isinstance(value, np.ndarray | np.generic) and np.ndim(value) == 0 else value


def _array(values: Any, name: str, steps: int, width: int | None) -> FloatArray:
    column = np.asarray(values)
    wanted = f'({steps}, {"K" if width is None else width})'
    if column.ndim != 2 or len(column) != steps or (width and column.shape[1] != width) or not column.shape[1]:
        raise Bad(f'shape {column.shape}, wanted {wanted}')
    return checked_numbers(name, column)


def _archived(record: Mapping[str, Any], name: str, steps: int) -> NDArray[Any] | None:
    """The column (T,) of this name; None without one."""
    if name not in record:
        return None
    column = np.asarray(record[name])
    if column.shape != (steps,):
        raise Bad(f'shape {column.shape}, wanted ({steps},)')
    return column


def _archived_truths(record: Mapping[str, Any], name: str, steps: int) -> NDArray[np.bool_] | None:
    column = _archived(record, name, steps)
    if column is None or column.dtype == bool:
        return column
    numbers = checked_numbers(name, column)
    if not np.isin(numbers, (0, 1)).all():
        raise Bad(f'{numbers[~np.isin(numbers, (0, 1))][0]:g}, wanted true or false')
    return np.asarray(numbers > 0)


def _archived_numbers(record: Mapping[str, Any], name: str, steps: int) -> FloatArray | None:
    column = _archived(record, name, steps)
    return None if column is None else checked_numbers(name, column)


def _archived_contacts(columns: Columns, record: Mapping[str, Any], steps: int) -> Contacts | None:
    rows = columns.take('contacts', lambda: _archived_rows(record, steps))
    if rows is None:
        return None
    numbers, contacts = rows
    points = columns.take(POINTS, lambda: _archived_points(record, numbers, steps))
    return Contacts.from_steps(contacts, points_m=points)


def _archived_points(record: Mapping[str, Any], step: NDArray[Any], steps: int) -> list[FloatArray] | None:
    if POINTS not in record:
        return None
    points = np.asarray(record[POINTS])
    if points.shape != (len(step), 3):
        raise Bad(f'shape {points.shape}, wanted ({len(step)}, 3)')
    values = checked_numbers(POINTS, points)
    return [values[step == t] for t in range(steps)]


def _archived_rows(record: Mapping[str, Any], steps: int) -> tuple[NDArray[Any], list[list[ContactRow]]] | None:
    names = ('contact_step', 'contact_a', 'contact_b', 'contact_force_n')
    present = [name for name in names if name in record]
    if not present:
        return None
    if len(present) < len(names):
        raise Bad(f'{", ".join(present)} without {", ".join(sorted(set(names) - set(present)))}')
    step, a, b, force = (np.asarray(record[name]) for name in names)
    if len({column.shape for column in (step, a, b, force)}) > 1 or step.ndim != 1:
        raise Bad(f'{", ".join(names)} are not of one length')
    numbers = checked_numbers('contact_step', step)
    if np.any((numbers < 0) | (numbers >= steps) | (numbers != np.floor(numbers))):
        raise Bad(f'contact_step holds something that is not a step from 0 to {steps - 1}')
    if np.any(checked_numbers('contact_force_n', force) < 0):
        raise Bad('contact_force_n is negative')
    if any(column.dtype.kind not in 'US' or not np.all(np.char.str_len(column)) for column in (a, b)) and len(a):
        raise Bad('contact_a or contact_b holds something that is not a name')
    rows: list[list[ContactRow]] = [[] for _ in range(steps)]
    for number, first, other, newton in zip(numbers.astype(int).tolist(), a, b, force, strict=True):
        rows[number].append((str(first), str(other), float(newton)))
    return numbers.astype(int), rows
