"""The inner loops of a control step: inverse kinematics, peaks of contact forces, the state of the items.

In plain floats here, in C beside: both call the same functions of the C library in the same order, so that a controller
gives the same bits with either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.compiled import in_c

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
Floats = Sequence[float]
Matrix = list[list[float]]


@in_c
def keep_peaks(
    peaks: FloatArray,
    points: FloatArray,
    total: FloatArray,
    moment: FloatArray,
    geoms: IntArray,
    rows: IntArray,
    forces: FloatArray,
    places: FloatArray,
    group: IntArray,
) -> None:
    """Raise `peaks` (B, B) to this substep's total force of each pair of bodies, and set where they touch.

    `points` (B, B, 3), in both orders, is the mean of a pair's contact points weighted by force; a pair that does not
    touch now keeps its last one. `total` (B, B) and `moment` (B, B, 3) are room to work, left zero.
    geoms: (contacts, 2). rows: where each contact's forces begin in `forces`, negative if it does not push.
    places: (contacts, 3).
    """
    sums: dict[tuple[int, int], list[float]] = {}
    pairs = group[geoms].tolist()
    for (a, b), row, place in zip(pairs, rows.tolist(), places.tolist(), strict=True):
        if row >= 0:
            x, y, z = forces[row : row + 3].tolist()
            force = math.sqrt(x * x + y * y + z * z)
            pair = sums.setdefault((a, b), [0.0, 0.0, 0.0, 0.0])
            for k, term in enumerate((force, *(force * p for p in place))):
                pair[k] += term
    for a, b in dict.fromkeys(map(tuple, pairs)):
        force, *moments = sums.get((a, b), (0.0,))
        peaks[a, b] = max(force, peaks[a, b])
        if force > 0.0:
            points[a, b] = points[b, a] = [m / force for m in moments]


def above(peaks: FloatArray, floor: float) -> list[tuple[int, int, float]]:
    """The pairs over `floor`, both orders joined, and `peaks` set back to zero."""
    joined = np.triu(np.maximum(peaks, peaks.T))
    first, second = np.nonzero(joined > floor)
    forces = joined[first, second].tolist()
    peaks[:] = 0.0
    return list(zip(first.tolist(), second.tolist(), forces, strict=True))


def _forward(table: Matrix, hand: Floats, angles: Floats) -> tuple[list[float], Matrix, Matrix, Matrix]:
    """Position and rotation of the tool, each joint's axis and origin.

    table: rows of (a, d, sin alpha, cos alpha); hand: (length along the flange's z, sin yaw, cos yaw).
    """
    rotation = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    place, axes, origins = [0.0, 0.0, 0.0], [], []
    for (a, d, sa, ca), angle in zip(table, angles, strict=True):
        st, ct = math.sin(angle), math.cos(angle)
        place = [p + (row[0] * a - row[1] * sa * d + row[2] * ca * d) for p, row in zip(place, rotation, strict=True)]
        rotation = _product(rotation, [[ct, -st, 0.0], [st * ca, ct * ca, -sa], [st * sa, ct * sa, ca]])
        axes.append([row[2] for row in rotation])
        origins.append(place)
    place = [p + row[2] * hand[0] for p, row in zip(place, rotation, strict=True)]
    turned = _product(rotation, [[hand[2], -hand[1], 0.0], [hand[1], hand[2], 0.0], [0.0, 0.0, 1.0]])
    return place, turned, axes, origins


def _product(a: Matrix, b: Matrix) -> Matrix:
    return [[row[0] * b[0][j] + row[1] * b[1][j] + row[2] * b[2][j] for j in range(3)] for row in a]


def _quaternion(m: Matrix) -> list[float]:
    """The wxyz quaternion of a rotation, by its largest component."""
    trace = m[0][0] + m[1][1] + m[2][2]
    if trace > 0:
        s = math.sqrt(trace + 1.0) * 2
        return [s / 4, (m[2][1] - m[1][2]) / s, (m[0][2] - m[2][0]) / s, (m[1][0] - m[0][1]) / s]
    i = 1 if m[1][1] > m[0][0] else 0
    if m[2][2] > m[i][i]:
        i = 2
    j, k = (i + 1) % 3, (i + 2) % 3
    s = math.sqrt(1.0 + m[i][i] - m[j][j] - m[k][k]) * 2
    q = [(m[k][j] - m[j][k]) / s, 0.0, 0.0, 0.0]
    q[1 + i] = s / 4
    q[1 + j] = (m[j][i] + m[i][j]) / s
    q[1 + k] = (m[k][i] + m[i][k]) / s
    return q


def _turn_error(target: Floats, rotation: Matrix) -> list[float]:
    """The axis-angle vector from `rotation` to the target's quaternion."""
    q = _quaternion(rotation)
    tw, tx, ty, tz = target[3:7]
    w = tw * q[0] + tx * q[1] + ty * q[2] + tz * q[3]
    x = -tw * q[1] + tx * q[0] - ty * q[3] + tz * q[2]
    y = -tw * q[2] + tx * q[3] + ty * q[0] - tz * q[1]
    z = -tw * q[3] - tx * q[2] + ty * q[1] + tz * q[0]
    if w < 0:
        w, x, y, z = -w, -x, -y, -z
    sine = math.sqrt(x * x + y * y + z * z)
    scale = 2.0 if sine < 1e-9 else 2 * math.atan2(sine, w) / sine
    return [x * scale, y * scale, z * scale]


def _solve(gram: Matrix, right: Floats) -> list[float]:
    """Cholesky solution of a small positive definite system."""
    n = len(right)
    low = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            total = gram[i][j]
            for k in range(j):
                total -= low[i][k] * low[j][k]
            low[i][j] = math.sqrt(total) if i == j else total / low[j][j]
    y = [0.0] * n
    for i in range(n):
        total = right[i]
        for k in range(i):
            total -= low[i][k] * y[k]
        y[i] = total / low[i][i]
    for i in range(n - 1, -1, -1):
        total = y[i]
        for k in range(i + 1, n):
            total -= low[k][i] * y[k]
        y[i] = total / low[i][i]
    return y


@in_c
def inverse(
    table: FloatArray,
    hand: FloatArray,
    target: FloatArray,
    start: FloatArray,
    home: FloatArray,
    ease: FloatArray,
    low: FloatArray,
    high: FloatArray,
    iterations: int,
    out: FloatArray,
) -> None:
    """Damped least squares towards the pose `target` (7,), eased towards `home` where the task does not mind."""
    links, tool, goal, angles = table.tolist(), hand.tolist(), target.tolist(), start.tolist()
    homes, eases, lows, highs = home.tolist(), ease.tolist(), low.tolist(), high.tolist()
    for _ in range(iterations):
        place, rotation, axes, origins = _forward(links, tool, angles)
        error = [goal[r] - place[r] for r in range(3)] + _turn_error(goal, rotation)
        columns = []
        for i, (axis, origin) in enumerate(zip(axes, origins, strict=True)):
            x, y, z = (place[k] - origin[k] for k in range(3))
            column = [axis[1] * z - axis[2] * y, axis[2] * x - axis[0] * z, axis[0] * y - axis[1] * x, *axis]
            columns.append(column)
            error = [e - c * eases[i] * (homes[i] - angles[i]) for e, c in zip(error, column, strict=True)]
        gram = [[1e-4 if r == c else 0.0 for c in range(6)] for r in range(6)]
        for r in range(6):
            for c in range(6):
                for column in columns:
                    gram[r][c] += column[r] * column[c]
        weight = _solve(gram, error)
        for i, column in enumerate(columns):
            step = eases[i] * (homes[i] - angles[i])
            for r in range(6):
                step += column[r] * weight[r]
            angles[i] = min(max(angles[i] + min(max(step, -0.3), 0.3), lows[i]), highs[i])
    out[:] = angles


@in_c
def refer(
    goal: FloatArray,
    last_goal: FloatArray,
    angles: FloatArray,
    velocity: FloatArray,
    brake: FloatArray,
    fastest: FloatArray,
    acceleration: FloatArray,
    lasting_s: float,
    end: FloatArray,
    after: FloatArray,
) -> None:
    """Angles and velocity of the joint reference when `lasting_s` is over: at the goal, as far as the limits allow.

    A reference that has fallen behind catches up no faster than it can brake, so that it does not overshoot.
    """
    pace = (goal - last_goal) / lasting_s
    behind = goal - angles - pace * lasting_s
    slowed = brake * lasting_s
    brakeable = (np.sqrt(slowed * slowed + 8 * brake * np.abs(behind)) - slowed) / 2
    wanted = pace + np.minimum(np.maximum(behind / lasting_s, -brakeable), brakeable)
    change = acceleration * lasting_s
    wanted = np.minimum(np.maximum(wanted, velocity - change), velocity + change)
    after[:] = np.minimum(np.maximum(wanted, -fastest), fastest)
    end[:] = angles + after * lasting_s


def heading(w: float, x: float, y: float, z: float) -> float:
    """The heading of an item's long axis in the plane, however it came to lie."""
    if abs(2 * (x * z - w * y)) < 0.7:
        return math.atan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z))
    return math.atan2(1 - 2 * (x * x + z * z), 2 * (x * y - w * z)) - math.pi / 2


def _grasp(item_pose: Floats, grasp_m: Floats, box_m: Floats, turns: int, tip_m: float) -> list[float]:
    """The tool's pose (7,) for a grasp from above: z down, the pads across the item's short side."""
    step = 2 * math.pi / turns
    px, py, pz, w, x, y, z = item_pose
    yaw = heading(w, x, y, z)
    yaw -= step * round(yaw / step)
    gx, gy, gz = grasp_m
    tx, ty, tz = 2 * (y * gz - z * gy), 2 * (z * gx - x * gz), 2 * (x * gy - y * gx)
    ux, uy, uz = 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)
    bottom = pz - (abs(ux) * box_m[0] + abs(uy) * box_m[1] + abs(uz) * box_m[2]) / 2
    place = [px + gx + w * tx + y * tz - z * ty, py + gy + w * ty + z * tx - x * tz]
    height = max(pz + gz + w * tz + x * ty - y * tx, bottom + tip_m)
    return [*place, height, 0.0, math.cos(yaw / 2), math.sin(yaw / 2), 0.0]  # Rz(yaw) Rx(pi)


def _nearest_turn(goal: Floats, item_pose: Floats, turns: int) -> list[float]:
    """The goal, turned about its own z to the equal pose nearest to how the item is turned now."""
    step = 2 * math.pi / turns
    angle = step * round((heading(*item_pose[3:]) - heading(*goal[3:])) / step)
    w, z = math.cos(angle / 2), math.sin(angle / 2)
    qw, qx, qy, qz = goal[3:]
    return [*goal[:3], qw * w - qz * z, qx * w + qy * z, qy * w - qx * z, qw * z + qz * w]


@in_c
def write_slots(
    out: FloatArray,
    poses: FloatArray,
    measures: FloatArray,
    turns: IntArray,
    goals: FloatArray,
    status: FloatArray,
    tip_m: float,
) -> None:
    """The items as a policy sees them, one slot a row; an item whose goal is NaN has its own pose there.

    measures (n, 8): grip width, is yaw free, grasp point, box.
    """
    columns = (x.tolist() for x in (poses, measures, turns, goals, status))
    for i, (pose, measure, turn, goal, state) in enumerate(zip(*columns, strict=True)):
        aim = pose if math.isnan(goal[0]) else _nearest_turn(goal, pose, turn)
        out[i] = [state, *measure[:2], *pose, *_grasp(pose, measure[2:5], measure[5:8], turn, tip_m), *aim]
