"""The inner loops of a control step, compiled: inverse kinematics, peaks of contact forces, the state of the items."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.compiled import njit

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]


@njit()
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
    for c in range(len(rows)):
        r = rows[c]
        if r >= 0:
            a, b = group[geoms[c, 0]], group[geoms[c, 1]]
            force = math.sqrt(forces[r] * forces[r] + forces[r + 1] * forces[r + 1] + forces[r + 2] * forces[r + 2])
            total[a, b] += force
            for k in range(3):
                moment[a, b, k] += force * places[c, k]
    for c in range(len(rows)):
        a, b = group[geoms[c, 0]], group[geoms[c, 1]]
        if total[a, b] > peaks[a, b]:
            peaks[a, b] = total[a, b]
        if total[a, b] > 0.0:
            for k in range(3):
                points[a, b, k] = points[b, a, k] = moment[a, b, k] / total[a, b]
                moment[a, b, k] = 0.0
        total[a, b] = 0.0


@njit()
def above(peaks: FloatArray, floor: float) -> list[tuple[int, int, float]]:
    """The pairs over `floor`, both orders joined, and `peaks` set back to zero."""
    found = [(0, 0, 0.0) for _ in range(0)]
    n = len(peaks)
    for a in range(n):
        for b in range(a, n):
            force = max(peaks[a, b], peaks[b, a])
            if force > floor:
                found.append((a, b, force))
    peaks[:] = 0.0
    return found


@njit()
def forward(
    table: FloatArray, hand: FloatArray, angles: FloatArray, axes: FloatArray, origins: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Position (3,) and rotation (3, 3) of the tool; fills each joint's axis and origin.

    table: rows of (a, d, sin alpha, cos alpha); hand: (length along the flange's z, sin yaw, cos yaw).
    """
    rotation: FloatArray = np.eye(3)
    place = np.zeros(3)
    step = np.empty((3, 3))
    for i in range(len(angles)):
        a, d, sa, ca = table[i]
        st, ct = math.sin(angles[i]), math.cos(angles[i])
        for r in range(3):
            place[r] += rotation[r, 0] * a - rotation[r, 1] * sa * d + rotation[r, 2] * ca * d
        step[0, 0], step[0, 1], step[0, 2] = ct, -st, 0.0
        step[1, 0], step[1, 1], step[1, 2] = st * ca, ct * ca, -sa
        step[2, 0], step[2, 1], step[2, 2] = st * sa, ct * sa, ca
        rotation = _product(rotation, step)
        for r in range(3):
            axes[i, r] = rotation[r, 2]
            origins[i, r] = place[r]
    for r in range(3):
        place[r] += rotation[r, 2] * hand[0]
    step[0, 0], step[0, 1], step[0, 2] = hand[2], -hand[1], 0.0
    step[1, 0], step[1, 1], step[1, 2] = hand[1], hand[2], 0.0
    step[2, 0], step[2, 1], step[2, 2] = 0.0, 0.0, 1.0
    return place, _product(rotation, step)


@njit()
def _product(a: FloatArray, b: FloatArray) -> FloatArray:
    c = np.zeros((3, 3))
    for i in range(3):
        for j in range(3):
            c[i, j] = a[i, 0] * b[0, j] + a[i, 1] * b[1, j] + a[i, 2] * b[2, j]
    return c


@njit()
def quaternion(m: FloatArray) -> FloatArray:
    """The wxyz quaternion of a rotation, by its largest component."""
    q = np.empty(4)
    trace = m[0, 0] + m[1, 1] + m[2, 2]
    if trace > 0:
        s = math.sqrt(trace + 1.0) * 2
        q[0], q[1], q[2], q[3] = s / 4, (m[2, 1] - m[1, 2]) / s, (m[0, 2] - m[2, 0]) / s, (m[1, 0] - m[0, 1]) / s
        return q
    i = 0
    if m[1, 1] > m[0, 0]:
        i = 1
    if m[2, 2] > m[i, i]:
        i = 2
    j, k = (i + 1) % 3, (i + 2) % 3
    s = math.sqrt(1.0 + m[i, i] - m[j, j] - m[k, k]) * 2
    q[0] = (m[k, j] - m[j, k]) / s
    q[1 + i] = s / 4
    q[1 + j] = (m[j, i] + m[i, j]) / s
    q[1 + k] = (m[k, i] + m[i, k]) / s
    return q


@njit()
def _turn_error(target: FloatArray, rotation: FloatArray, error: FloatArray) -> None:
    """The axis-angle vector from `rotation` to the target's quaternion, into error[3:]."""
    q = quaternion(rotation)
    tw, tx, ty, tz = target[3], target[4], target[5], target[6]
    w = tw * q[0] + tx * q[1] + ty * q[2] + tz * q[3]
    x = -tw * q[1] + tx * q[0] - ty * q[3] + tz * q[2]
    y = -tw * q[2] + tx * q[3] + ty * q[0] - tz * q[1]
    z = -tw * q[3] - tx * q[2] + ty * q[1] + tz * q[0]
    if w < 0:
        w, x, y, z = -w, -x, -y, -z
    sine = math.sqrt(x * x + y * y + z * z)
    scale = 2.0 if sine < 1e-9 else 2 * math.atan2(sine, w) / sine
    error[3], error[4], error[5] = x * scale, y * scale, z * scale


@njit()
def _solve(gram: FloatArray, right: FloatArray) -> FloatArray:
    """Cholesky solution of a small positive definite system."""
    n = len(right)
    low = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            total = gram[i, j]
            for k in range(j):
                total -= low[i, k] * low[j, k]
            low[i, j] = math.sqrt(total) if i == j else total / low[j, j]
    y = np.empty(n)
    for i in range(n):
        total = right[i]
        for k in range(i):
            total -= low[i, k] * y[k]
        y[i] = total / low[i, i]
    for i in range(n - 1, -1, -1):
        total = y[i]
        for k in range(i + 1, n):
            total -= low[k, i] * y[k]
        y[i] = total / low[i, i]
    return y


@njit()
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
) -> FloatArray:
    """Damped least squares towards the pose `target` (7,), eased towards `home` where the task does not mind."""
    n = len(start)
    angles = start.copy()
    axes, origins = np.empty((n, 3)), np.empty((n, 3))
    jacobian, gram, error = np.empty((6, n)), np.empty((6, 6)), np.empty(6)
    for _ in range(iterations):
        place, rotation = forward(table, hand, angles, axes, origins)
        for r in range(3):
            error[r] = target[r] - place[r]
        _turn_error(target, rotation, error)
        for i in range(n):
            x, y, z = place[0] - origins[i, 0], place[1] - origins[i, 1], place[2] - origins[i, 2]
            jacobian[0, i] = axes[i, 1] * z - axes[i, 2] * y
            jacobian[1, i] = axes[i, 2] * x - axes[i, 0] * z
            jacobian[2, i] = axes[i, 0] * y - axes[i, 1] * x
            for r in range(3):
                jacobian[3 + r, i] = axes[i, r]
            for r in range(6):
                error[r] -= jacobian[r, i] * ease[i] * (home[i] - angles[i])
        for r in range(6):
            for c in range(6):
                total = 1e-4 if r == c else 0.0
                for i in range(n):
                    total += jacobian[r, i] * jacobian[c, i]
                gram[r, c] = total
        weight = _solve(gram, error)
        for i in range(n):
            step = ease[i] * (home[i] - angles[i])
            for r in range(6):
                step += jacobian[r, i] * weight[r]
            angles[i] = min(max(angles[i] + min(max(step, -0.3), 0.3), low[i]), high[i])
    return angles


@njit()
def refer(
    goal: FloatArray,
    last_goal: FloatArray,
    angles: FloatArray,
    velocity: FloatArray,
    brake: FloatArray,
    fastest: FloatArray,
    acceleration: FloatArray,
    lasting_s: float,
) -> tuple[FloatArray, FloatArray]:
    """Angles and velocity of the joint reference when `lasting_s` is over: at the goal, as far as the limits allow.

    A reference that has fallen behind catches up no faster than it can brake, so that it does not overshoot.
    """
    n = len(goal)
    end, after = np.empty(n), np.empty(n)
    for i in range(n):
        pace = (goal[i] - last_goal[i]) / lasting_s
        behind = goal[i] - angles[i] - pace * lasting_s
        slowed = brake[i] * lasting_s
        brakeable = (math.sqrt(slowed * slowed + 8 * brake[i] * abs(behind)) - slowed) / 2
        wanted = pace + min(max(behind / lasting_s, -brakeable), brakeable)
        change = acceleration[i] * lasting_s
        wanted = min(max(wanted, velocity[i] - change), velocity[i] + change)
        wanted = min(max(wanted, -fastest[i]), fastest[i])
        end[i] = angles[i] + wanted * lasting_s
        after[i] = wanted
    return end, after


@njit()
def heading(w: float, x: float, y: float, z: float) -> float:
    """The heading of an item's long axis in the plane, however it came to lie."""
    if abs(2 * (x * z - w * y)) < 0.7:
        return math.atan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z))
    return math.atan2(1 - 2 * (x * x + z * z), 2 * (x * y - w * z)) - math.pi / 2


@njit()
def write_grasp(
    out: FloatArray, item_pose: FloatArray, grasp_m: FloatArray, box_m: FloatArray, turns: int, tip_m: float
) -> None:
    """The tool's pose (7,) for a grasp from above: z down, the pads across the item's short side."""
    step = 2 * math.pi / turns
    w, x, y, z = item_pose[3], item_pose[4], item_pose[5], item_pose[6]
    yaw = heading(w, x, y, z)
    yaw -= step * round(yaw / step)
    gx, gy, gz = grasp_m[0], grasp_m[1], grasp_m[2]
    tx, ty, tz = 2 * (y * gz - z * gy), 2 * (z * gx - x * gz), 2 * (x * gy - y * gx)
    ux, uy, uz = 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)
    bottom = item_pose[2] - (abs(ux) * box_m[0] + abs(uy) * box_m[1] + abs(uz) * box_m[2]) / 2
    out[0] = item_pose[0] + gx + w * tx + y * tz - z * ty
    out[1] = item_pose[1] + gy + w * ty + z * tx - x * tz
    out[2] = max(item_pose[2] + gz + w * tz + x * ty - y * tx, bottom + tip_m)
    out[3], out[4], out[5], out[6] = 0.0, math.cos(yaw / 2), math.sin(yaw / 2), 0.0  # Rz(yaw) Rx(pi)


@njit()
def write_nearest_turn(out: FloatArray, goal: FloatArray, item_pose: FloatArray, turns: int) -> None:
    """The goal, turned about its own z to the equal pose nearest to how the item is turned now."""
    step = 2 * math.pi / turns
    own = heading(item_pose[3], item_pose[4], item_pose[5], item_pose[6])
    angle = step * round((own - heading(goal[3], goal[4], goal[5], goal[6])) / step)
    w, z = math.cos(angle / 2), math.sin(angle / 2)
    out[:3] = goal[:3]
    out[3] = goal[3] * w - goal[6] * z
    out[4] = goal[4] * w + goal[5] * z
    out[5] = goal[5] * w - goal[4] * z
    out[6] = goal[3] * z + goal[6] * w


@njit()
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
    for i in range(len(poses)):
        row = out[i]
        row[0], row[1], row[2] = status[i], measures[i, 0], measures[i, 1]
        row[3:10] = poses[i]
        write_grasp(row[10:17], poses[i], measures[i, 2:5], measures[i, 5:8], turns[i], tip_m)
        if math.isnan(goals[i, 0]):
            row[17:24] = poses[i]
        else:
            write_nearest_turn(row[17:24], goals[i], poses[i], turns[i])
