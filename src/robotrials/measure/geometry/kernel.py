"""Compiled loops: the intersection of two oriented boxes, and the fusing of depth images into voxels.

The intersection clips one closed convex polyhedron by half-spaces. Every vertex is on one side of a plane for all faces
that share it, every cut edge gets one new vertex, and the cap is chained through those shared vertices and never sorted
by angle. The surface therefore stays closed however the rounding falls, which is what makes coincident faces and tilts
far below 1e-6 rad come out right.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.compiled import njit

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]

MAX_FACES = 40
MAX_FACE_VERTICES = 64
MAX_VERTICES = 512
MAX_CUTS = 128

# Corners of a box by the signs of bits 0 (x), 1 (y), 2 (z); faces counter-clockwise from outside.
BOX_FACES = np.array(
    [[0, 4, 6, 2], [1, 3, 7, 5], [0, 1, 5, 4], [2, 6, 7, 3], [0, 2, 3, 1], [4, 5, 7, 6]], dtype=np.int32
)


@njit(error_model='numpy')
def _start(
    vertices: FloatArray, faces: IntArray, counts: IntArray, center: FloatArray, half: FloatArray, turn: FloatArray
) -> None:
    for corner in range(8):
        for axis in range(3):
            value = center[axis]
            for k in range(3):
                sign = 1.0 if (corner >> k) & 1 else -1.0
                value += turn[axis, k] * sign * half[k]
            vertices[corner, axis] = value
    for f in range(6):
        counts[f] = 4
        for i in range(4):
            faces[f, i] = BOX_FACES[f, i]


@njit(error_model='numpy')
def _cut(
    vertices: FloatArray, distance: FloatArray, ends: IntArray, n_cuts: int, n_vertices: int, i: int, j: int, axis: int,
    level: float,
) -> int:  # fmt: skip
    """The number, within this clip, of the new vertex on edge i-j; it is made when the edge is met first."""
    low, high = min(i, j), max(i, j)
    for c in range(n_cuts):
        if ends[c, 0] == low and ends[c, 1] == high:
            return c
    share = distance[low] / (distance[low] - distance[high])
    new = n_vertices + n_cuts
    for k in range(3):
        vertices[new, k] = vertices[low, k] + share * (vertices[high, k] - vertices[low, k])
    vertices[new, axis] = level
    ends[n_cuts, 0] = low
    ends[n_cuts, 1] = high
    return n_cuts


@njit(error_model='numpy')
def _clip(
    vertices: FloatArray, n_vertices: int, faces: IntArray, counts: IntArray, n_faces: int, axis: int, sign: float,
    limit: float, distance: FloatArray, ends: IntArray, follows: IntArray, kept: IntArray,
) -> tuple[int, int]:  # fmt: skip
    """Keep what lies at sign * x[axis] <= limit, in place; the new numbers of vertices and faces."""
    n_out = 0
    n_in = 0
    for f in range(n_faces):
        for i in range(counts[f]):
            v = faces[f, i]
            distance[v] = sign * vertices[v, axis] - limit
            if distance[v] > 0.0:
                n_out += 1
            else:
                n_in += 1
    if n_out == 0:
        return n_vertices, n_faces
    if n_in == 0:
        return n_vertices, 0
    n_cuts = 0
    written = 0
    level = sign * limit
    for f in range(n_faces):
        n = counts[f]
        size = 0
        first_entry = -1
        last_exit = -1
        for i in range(n):
            v = faces[f, i]
            w = faces[f, i + 1] if i + 1 < n else faces[f, 0]
            v_in = distance[v] <= 0.0
            if v_in:
                kept[size] = v
                size += 1
            if v_in != (distance[w] <= 0.0):
                c = _cut(vertices, distance, ends, n_cuts, n_vertices, v, w, axis, level)
                n_cuts = max(n_cuts, c + 1)
                kept[size] = n_vertices + c
                size += 1
                if v_in:
                    last_exit = c
                elif last_exit >= 0:
                    follows[c] = last_exit
                    last_exit = -1
                else:
                    first_entry = c
        if first_entry >= 0:
            follows[first_entry] = last_exit
        if size >= 3:
            for i in range(size):
                faces[written, i] = kept[i]
            counts[written] = size
            written += 1
    for c in range(n_cuts):
        if follows[c] < 0:
            continue
        size = 0
        at = c
        while follows[at] >= 0:
            faces[written, size] = n_vertices + at
            size += 1
            onward = follows[at]
            follows[at] = -1
            at = onward
        if size >= 3:
            counts[written] = size
            written += 1
    return n_vertices + n_cuts, written


@njit(error_model='numpy')
def _volume(vertices: FloatArray, faces: IntArray, counts: IntArray, n_faces: int) -> float:
    """By the divergence theorem, from a vertex of the body itself, so that distance from the origin costs nothing."""
    if n_faces == 0:
        return 0.0
    origin = faces[0, 0]
    ox, oy, oz = vertices[origin, 0], vertices[origin, 1], vertices[origin, 2]
    total = 0.0
    for f in range(n_faces):
        a = faces[f, 0]
        ax, ay, az = vertices[a, 0] - ox, vertices[a, 1] - oy, vertices[a, 2] - oz
        for i in range(1, counts[f] - 1):
            b, c = faces[f, i], faces[f, i + 1]
            bx, by, bz = vertices[b, 0] - ox, vertices[b, 1] - oy, vertices[b, 2] - oz
            cx, cy, cz = vertices[c, 0] - ox, vertices[c, 1] - oy, vertices[c, 2] - oz
            total += ax * (by * cz - bz * cy) + ay * (bz * cx - bx * cz) + az * (bx * cy - by * cx)
    return total / 6.0


@njit(error_model='numpy')
def _b_first(ca: FloatArray, sa: FloatArray, ra: FloatArray, cb: FloatArray, sb: FloatArray, rb: FloatArray) -> bool:
    """An order of two boxes that doesn't depend on which came first, so that the result is the same bit for bit."""
    va, vb = sa[0] * sa[1] * sa[2], sb[0] * sb[1] * sb[2]
    if va != vb:
        return bool(vb > va)
    for k in range(3):
        if sa[k] != sb[k]:
            return bool(sb[k] > sa[k])
        if ca[k] != cb[k]:
            return bool(cb[k] > ca[k])
    for i in range(3):
        for k in range(3):
            if ra[i, k] != rb[i, k]:
                return bool(rb[i, k] > ra[i, k])
    return False


@njit(error_model='numpy')
def intersection_volumes(
    centers_a: FloatArray, sizes_a: FloatArray, turns_a: FloatArray,
    centers_b: FloatArray, sizes_b: FloatArray, turns_b: FloatArray,
) -> FloatArray:  # fmt: skip
    """Volumes (N,) of the pairs' intersections; centers and sizes (N, 3), world-from-box (N, 3, 3)."""
    n_pairs = centers_a.shape[0]
    volumes = np.zeros(n_pairs)
    vertices = np.empty((MAX_VERTICES, 3))
    faces = np.empty((MAX_FACES, MAX_FACE_VERTICES), dtype=np.int32)
    counts = np.empty(MAX_FACES, dtype=np.int32)
    distance = np.empty(MAX_VERTICES)
    ends = np.empty((MAX_CUTS, 2), dtype=np.int32)
    follows = np.full(MAX_CUTS, -1, dtype=np.int32)
    kept = np.empty(MAX_FACE_VERTICES, dtype=np.int32)
    center = np.empty(3)
    half = np.empty(3)
    turn = np.empty((3, 3))
    for p in range(n_pairs):
        ca, sa, ra = centers_a[p], sizes_a[p], turns_a[p]
        cb, sb, rb = centers_b[p], sizes_b[p], turns_b[p]
        if _b_first(ca, sa, ra, cb, sb, rb):
            ca, sa, ra, cb, sb, rb = cb, sb, rb, ca, sa, ra
        apart = 0.0
        reach = 0.0
        for k in range(3):
            apart += (cb[k] - ca[k]) ** 2
            reach += sa[k] ** 2
            half[k] = 0.5 * sb[k]
        other = sb[0] ** 2 + sb[1] ** 2 + sb[2] ** 2
        if apart > (0.5 * (np.sqrt(reach) + np.sqrt(other))) ** 2 * (1 + 1e-12):
            continue
        for i in range(3):
            center[i] = 0.0
            for k in range(3):
                center[i] += ra[k, i] * (cb[k] - ca[k])
                turn[i, k] = ra[0, i] * rb[0, k] + ra[1, i] * rb[1, k] + ra[2, i] * rb[2, k]
        _start(vertices, faces, counts, center, half, turn)
        n_vertices, n_faces = 8, 6
        for axis in range(3):
            for sign in (1.0, -1.0):
                if n_faces > 0:
                    n_vertices, n_faces = _clip(
                        vertices, n_vertices, faces, counts, n_faces, axis, sign, 0.5 * sa[axis], distance, ends,
                        follows, kept,
                    )  # fmt: skip
        volumes[p] = max(0.0, _volume(vertices, faces, counts, n_faces))
    return volumes


@njit(error_model='numpy')
def fuse_pixels(
    depth_m: FloatArray, rgb: IntArray, mask: NDArray[np.bool_], use_mask: bool, focal: FloatArray, turn: FloatArray,
    shift: FloatArray, low: FloatArray, voxel_m: float, shape: IntArray, index: IntArray, sums: FloatArray,
    counts: IntArray, cells: IntArray, n: int,
) -> int:  # fmt: skip
    """Add one view's pixels to the voxels, in place; the new number of voxels.

    `focal` is (fx, fy, cx, cy). `index` maps a cell of the dense grid to its voxel, -1 for none yet; `sums` holds x, y,
    z, r, g, b. Depth that is not finite or not positive is missing.
    """
    height, width = depth_m.shape
    scale = 1.0 / voxel_m
    for v in range(height):
        y_ray = (v - focal[3]) / focal[1]
        for u in range(width):
            d = depth_m[v, u]
            if not (d > 0.0 and d < 1e9) or (use_mask and not mask[v, u]):
                continue
            x_ray = (u - focal[2]) / focal[0]
            x = d * (turn[0, 0] * x_ray + turn[0, 1] * y_ray + turn[0, 2]) + shift[0]
            y = d * (turn[1, 0] * x_ray + turn[1, 1] * y_ray + turn[1, 2]) + shift[1]
            z = d * (turn[2, 0] * x_ray + turn[2, 1] * y_ray + turn[2, 2]) + shift[2]
            fx, fy, fz = (x - low[0]) * scale, (y - low[1]) * scale, (z - low[2]) * scale
            if fx < 0.0 or fy < 0.0 or fz < 0.0 or fx >= shape[0] or fy >= shape[1] or fz >= shape[2]:
                continue
            cell = (np.int64(fx) * shape[1] + np.int64(fy)) * shape[2] + np.int64(fz)
            at = index[cell]
            if at < 0:
                at = n
                index[cell] = at
                cells[at] = cell
                counts[at] = 0
                for k in range(6):
                    sums[at, k] = 0.0
                n += 1
            counts[at] += 1
            sums[at, 0] += x
            sums[at, 1] += y
            sums[at, 2] += z
            sums[at, 3] += rgb[v, u, 0]
            sums[at, 4] += rgb[v, u, 1]
            sums[at, 5] += rgb[v, u, 2]
    return n


@njit(error_model='numpy')
def hue_mask(
    rgb: NDArray[np.uint8],
    hue_deg: float,
    hue_slack_deg: float,
    least_saturation: float,
    least_value: float,
    out: NDArray[np.bool_],
) -> None:  # fmt: skip
    """Mark pixels of a hue (degrees), saturated and bright enough; `out` is (H, W) bool."""
    for v in range(rgb.shape[0]):
        for u in range(rgb.shape[1]):
            r, g, b = float(rgb[v, u, 0]), float(rgb[v, u, 1]), float(rgb[v, u, 2])
            top = max(r, g, b)
            chroma = top - min(r, g, b)
            out[v, u] = False
            if top < least_value * 255.0 or chroma < least_saturation * top or chroma <= 0.0:
                continue
            if top == r:
                hue = 60.0 * ((g - b) / chroma)
            elif top == g:
                hue = 60.0 * ((b - r) / chroma + 2.0)
            else:
                hue = 60.0 * ((r - g) / chroma + 4.0)
            off = abs((hue - hue_deg + 180.0) % 360.0 - 180.0)
            out[v, u] = off <= hue_slack_deg
