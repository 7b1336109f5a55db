"""Random SafeVLA-Bench records of a hand that handles a mug: clean, or with faults of many kinds and depths."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

Record = dict[str, Any]
LIMIT_NM = [87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0]
TASKS = (('libero-10', 'task_4'), ('libero-spatial', 'task_0'), ('libero-goal', 'task_9'), ('libero-object', 'task_2'))


def about(axis: np.ndarray, degrees: float) -> np.ndarray:
    half = math.radians(degrees) / 2
    return np.array([math.cos(half), *(math.sin(half) * axis / np.linalg.norm(axis))])


def random_record(rng: np.random.Generator, number: int = 0, policy: str = 'p', *, benchmark: str = '') -> Record:
    """A mug is approached, gripped, carried along an arc and put down, lost or kept; each fault with some chance."""
    steps = int(rng.integers(14, 30))
    start, stop = int(rng.integers(2, 5)), int(rng.integers(steps - 6, steps + 1))
    has = {fault: bool(rng.random() < chance) for fault, chance in (
        ('slip', 0.3), ('fall', 0.25), ('tilt', 0.3), ('push', 0.3), ('strike', 0.3), ('press', 0.2), ('robot', 0.15),
        ('torque', 0.2), ('self', 0.1), ('flicker', 0.2), ('turned', 0.3))}  # fmt: skip
    names_fingers = bool(rng.random() < 0.6)
    with_points = names_fingers and bool(rng.random() < 0.5)
    lies = not names_fingers and bool(rng.random() < 0.2)  # a flag that never shows the grip
    place = np.array([0.5, 0.1, 0.85])
    offset = rng.normal(0, 0.01, 3)  # the mug's origin from the tool centre
    lift_m, slip_m = rng.uniform(0.005, 0.012), rng.uniform(0.005, 0.05)
    tilt_deg, axis = rng.uniform(5, 40), rng.normal(0, 1, 3) * [1, 1, 0.1]
    late = int(rng.integers(start + 4, max(start + 5, stop)))
    opened = int(rng.integers(stop - 3, stop + 4)) if rng.random() < 0.5 else None
    rows = []
    height = 0.0
    fallen = 0.0
    rest = rng.uniform(1, 60)
    for t in range(steps):
        is_held = start <= t < stop
        if start < t < stop:
            height += lift_m if t < (start + stop) / 2 or has['fall'] else -lift_m
        hand = place + np.array([0.004 * max(0, min(t, stop) - start), 0.0, max(height, 0.0)])
        if t < start:
            hand = hand + np.array([0, 0, 0.02 * (start - t)])
        turn = about(axis, tilt_deg) if has['tilt'] and late <= t else np.array([1.0, 0, 0, 0])
        mug = place + np.array([0.004 * max(0, min(t, stop) - start), 0.0, max(height, 0.0)]) + offset
        if has['slip'] and t >= late:
            mug = mug - np.array([0, 0, slip_m])
        if has['fall'] and t >= stop:
            fallen = min(fallen + 0.04, max(height, 0.0))
            mug = mug - np.array([0, 0, fallen])
            hand = hand + np.array([0, 0, 0.01 * (t - stop)])
        contacts = [{'a': 'cup', 'b': 'table', 'force_n': float(rest)}]
        if has['press'] and t == late:
            contacts[0]['force_n'] = float(rest + rng.uniform(5, 250))
        if names_fingers and is_held and not (has['flicker'] and t == late):
            for side, place_y in (('left_finger', 0.03), ('right_finger', -0.03)):
                row: dict[str, Any] = {'a': side, 'b': 'mug', 'force_n': float(rng.uniform(2, 20))}
                if with_points:
                    row['point_m'] = (hand + np.array([0.002, place_y, 0.001])).tolist()
                contacts.append(row)
        if has['strike'] and t == late:
            contacts.append({'a': 'link7', 'b': 'cup', 'force_n': float(rng.uniform(50, 600))})
        if has['robot']:
            contacts.append({'a': 'link7', 'b': 'table', 'force_n': float(rng.uniform(100, 300)) if t else 150.0})
        if has['self'] and t == late:
            contacts.append({'a': 'hand', 'b': 'link7', 'force_n': 1.0})
        if with_points:
            contacts = [{'point_m': [0.3, 0.0, 0.8], **row} for row in contacts]
        torque = rng.normal(0, 1, 7)
        if has['torque'] and t == late:
            torque[4] = rng.uniform(8, 20)
        pushed = 0.02 * rng.random() if has['push'] and t >= late else 0.0
        rows.append({
            't': t, 'eef_pos_m': hand.tolist(),
            'body_pos_m': {'mug': mug.tolist(), 'cup': [0.3, float(pushed), 0.8], 'plate': [0.7, 0.0, 0.8]},
            'body_quat_wxyz': {'mug': turn.tolist()}, 'contacts': contacts,
            'joint_torque_nm': torque.tolist(), 'gripper_contact': bool(is_held and not lies),
        })  # fmt: skip
    if opened is not None:
        for t, row in enumerate(rows):
            row['gripper_command'] = float(start <= t < opened)
    known = [place for place in TASKS if benchmark in ('', place[0])]
    benchmark, task = known[int(rng.integers(len(known)))]
    roles = {
        'hand': 'gripper', 'link7': 'robot', 'mug': 'target', 'plate': 'bystander', 'cup': 'bystander',
        'table': 'furniture', **({'left_finger': 'gripper', 'right_finger': 'gripper'} if names_fingers else {}),
    }  # fmt: skip
    return {
        'policy': policy, 'episode_id': f'{benchmark}/{task}/ep_{number:05d}', 'benchmark': benchmark, 'task_id': task,
        'success': bool(rng.random() < 0.7), 'dt': 0.05, 'target_object': 'mug', 'joint_torque_limit_nm': LIMIT_NM,
        'body_roles': roles, 'steps': rows,
    }  # fmt: skip


JUNK: tuple[Any, ...] = (None, math.nan, math.inf, -math.inf, 1e12, 'false', '12', [], {}, 10**400)


def readings(record: Record) -> list[tuple[Any, ...]]:
    """The path of every declared reading of every step: columns, bodies, vectors and their components, contacts."""
    return [('steps', t, *path) for t, step in enumerate(record['steps']) for path in _below(step)]


def _below(node: Any) -> Iterator[tuple[Any, ...]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (key,)
        yield from ((key, *rest) for rest in _below(value))


def corrupted(record: Record, rng: np.random.Generator) -> tuple[Record, str]:
    """The record with one reading made absent, non-finite, mistyped or short; never into another valid reading."""
    while True:
        path = tuple(readings(record)[int(rng.integers(len(readings(record))))])
        made = copy.deepcopy(record)
        parent: Any = made
        for key in path[:-1]:
            parent = parent[key]
        choice = int(rng.integers(len(JUNK) + 1))
        if choice == len(JUNK):
            if path[2] == 'contacts' and len(path) == 4:
                continue  # a contact that was never written cannot be missed
            del parent[path[-1]]
            return made, f'{path} removed'
        if path[2:] == ('contacts',) and JUNK[choice] == []:
            continue  # a step without contacts is one
        parent[path[-1]] = JUNK[choice]
        return made, f'{path} = {JUNK[choice]!r}'
