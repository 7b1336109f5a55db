"""The intersection of two oriented boxes, and the fusing of depth images into voxels.

The intersection clips one closed convex polyhedron by half-spaces. Every vertex is on one side of a plane for all faces
that share it, every cut edge gets one new vertex, and the cap is chained through those shared vertices and never sorted
by angle. The surface therefore stays closed however the rounding falls, which is what makes coincident faces and tilts
far below 1e-6 rad come out right.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.stats.compiled import in_c

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]

# Corners of a box by the signs of bits 0 (x), 1 (y), 2 (z); faces counter-clockwise from outside.
BOX_FACES = ((0, 4, 6, 2), (1, 3, 7, 5), (0, 1, 5, 4), (2, 6, 7, 3), (0, 2, 3, 1), (4, 5, 7, 6))

Vector = list[float]


@in_c
def intersection_volumes(
    centers_a: FloatArray, sizes_a: FloatArray, turns_a: FloatArray,
    centers_b: FloatArray, sizes_b: FloatArray, turns_b: FloatArray, out: FloatArray,
) -> None:  # fmt: skip
    """Volumes (N,) of the pairs' intersections; centers and sizes (N, 3), world-from-box (N, 3, 3)."""
    columns = (x.tolist() for x in (centers_a, sizes_a, turns_a, centers_b, sizes_b, turns_b))
    for p, (ca, sa, ra, cb, sb, rb) in enumerate(zip(*columns, strict=True)):
        # An order of two boxes that doesn't depend on which came first, so that the result is the same bit for bit.
        a, b = (_order(c, s, r) for c, s, r in ((ca, sa, ra), (cb, sb, rb)))
        out[p] = _shared_volume(cb, sb, rb, ca, sa, ra) if b > a else _shared_volume(ca, sa, ra, cb, sb, rb)


def _order(center: Vector, size: Vector, turn: list[Vector]) -> list[float]:
    between = [x for pair in zip(size, center, strict=True) for x in pair]
    return [size[0] * size[1] * size[2], *between, *(x for row in turn for x in row)]


def _shared_volume(ca: Vector, sa: Vector, ra: list[Vector], cb: Vector, sb: Vector, rb: list[Vector]) -> float:
    shift = [cb[k] - ca[k] for k in range(3)]
    gap = shift[0] * shift[0] + shift[1] * shift[1] + shift[2] * shift[2]
    reach, other = (s[0] * s[0] + s[1] * s[1] + s[2] * s[2] for s in (sa, sb))
    touch = 0.5 * (math.sqrt(reach) + math.sqrt(other))
    if gap > touch * touch * (1 + 1e-12):
        return 0.0
    center = [ra[0][i] * shift[0] + ra[1][i] * shift[1] + ra[2][i] * shift[2] for i in range(3)]
    turn = [[ra[0][i] * rb[0][k] + ra[1][i] * rb[1][k] + ra[2][i] * rb[2][k] for k in range(3)] for i in range(3)]
    half = [0.5 * s for s in sb]
    vertices = []
    for corner in range(8):
        signs = [1.0 if (corner >> k) & 1 else -1.0 for k in range(3)]
        vertices.append([_sum(center[i], *(turn[i][k] * signs[k] * half[k] for k in range(3))) for i in range(3)])
    faces = [list(face) for face in BOX_FACES]
    for axis in range(3):
        for sign in (1.0, -1.0):
            faces = _clip(vertices, faces, axis, sign, 0.5 * sa[axis])
    return max(0.0, _volume(vertices, faces))


def _sum(*terms: float) -> float:
    """From left to right, as C adds them."""
    total = terms[0]
    for term in terms[1:]:
        total += term
    return total


def _clip(vertices: list[Vector], faces: list[list[int]], axis: int, sign: float, limit: float) -> list[list[int]]:
    """The faces of what lies at sign * x[axis] <= limit; new vertices are appended."""
    distance = {v: sign * vertices[v][axis] - limit for face in faces for v in face}
    is_in = {v: d <= 0.0 for v, d in distance.items()}
    if all(is_in.values()):
        return faces
    if not any(is_in.values()):
        return []
    cuts: dict[tuple[int, int], int] = {}
    follows: dict[int, int] = {}
    kept_faces = []
    for face in faces:
        kept, first_entry, last_exit = [], -1, -1
        for v, w in zip(face, face[1:] + face[:1], strict=True):
            if is_in[v]:
                kept.append(v)
            if is_in[v] == is_in[w]:
                continue
            low, high = min(v, w), max(v, w)
            if (low, high) not in cuts:
                share = distance[low] / (distance[low] - distance[high])
                p, q = vertices[low], vertices[high]
                vertices.append([sign * limit if k == axis else p[k] + share * (q[k] - p[k]) for k in range(3)])
                cuts[low, high] = len(vertices) - 1
            new = cuts[low, high]
            kept.append(new)
            if is_in[v]:
                last_exit = new
            elif last_exit >= 0:
                follows[new], last_exit = last_exit, -1
            else:
                first_entry = new
        if first_entry >= 0:
            follows[first_entry] = last_exit
        if len(kept) >= 3:
            kept_faces.append(kept)
    for first in cuts.values():
        cap, at = [], first
        while follows.get(at, -1) >= 0:
            cap.append(at)
            at = follows.pop(at)
        if len(cap) >= 3:
            kept_faces.append(cap)
    return kept_faces


def _volume(vertices: list[Vector], faces: list[list[int]]) -> float:
    """By the divergence theorem, from a vertex of the body itself, so that distance from the origin costs nothing."""
    if not faces:
        return 0.0
    ox, oy, oz = vertices[faces[0][0]]
    total = 0.0
    for face in faces:
        (ax, ay, az), *rest = [(x - ox, y - oy, z - oz) for x, y, z in (vertices[v] for v in face)]
        for (bx, by, bz), (cx, cy, cz) in itertools.pairwise(rest):
            total += ax * (by * cz - bz * cy) + ay * (bz * cx - bx * cz) + az * (bx * cy - by * cx)
    return total / 6.0


@in_c
def fuse_pixels(
    depth_m: FloatArray, rgb: NDArray[np.uint8], mask: NDArray[np.bool_], use_mask: bool, focal: FloatArray,
    turn: FloatArray, shift: FloatArray, low: FloatArray, voxel_m: float, shape: IntArray, index: IntArray,
    sums: FloatArray, counts: IntArray, cells: IntArray, n: int,
) -> int:  # fmt: skip
    """Add one view's pixels to the voxels, in place; the new number of voxels.

    `focal` is (fx, fy, cx, cy). `index` maps a cell of the dense grid to its voxel, -1 for none yet; `sums` holds x, y,
    z, r, g, b. Depth that is not finite or not positive is missing.
    """
    with np.errstate(invalid='ignore'):
        has_depth = (depth_m > 0.0) & (depth_m < 1e9)
    v, u = np.nonzero(has_depth & mask if use_mask else has_depth)
    d, x_ray, y_ray = depth_m[v, u], (u - focal[2]) / focal[0], (v - focal[3]) / focal[1]
    places = [d * (turn[k, 0] * x_ray + turn[k, 1] * y_ray + turn[k, 2]) + shift[k] for k in range(3)]
    scaled = [(place - low[k]) * (1.0 / voxel_m) for k, place in enumerate(places)]
    inside = np.all([(s >= 0.0) & (s < shape[k]) for k, s in enumerate(scaled)], axis=0)
    x, y, z = (s[inside].astype(np.int64) for s in scaled)
    flat = (x * shape[1] + y) * shape[2] + z
    is_new = index[flat] < 0
    fresh, first = np.unique(flat[is_new], return_index=True)
    fresh = fresh[np.argsort(first)]  # voxels are numbered as they are met
    index[fresh] = np.arange(n, n + len(fresh))
    cells[n : n + len(fresh)], counts[n : n + len(fresh)], sums[n : n + len(fresh)] = fresh, 0, 0.0
    n += len(fresh)
    at = index[flat]
    np.add.at(counts, at, 1)
    columns = [*(p[inside] for p in places), *rgb[v, u][inside].T.astype(np.float64)]
    for k, column in enumerate(columns):
        np.add.at(sums[:, k], at, column)
    return n


@in_c
def hue_mask(
    rgb: NDArray[np.uint8],
    hue_deg: float,
    hue_slack_deg: float,
    least_saturation: float,
    least_value: float,
    out: NDArray[np.bool_],
) -> None:
    """Mark pixels of a hue (degrees), saturated and bright enough; `out` is (H, W) bool."""
    r, g, b = np.moveaxis(rgb.astype(np.float64), 2, 0)
    top = np.maximum(np.maximum(r, g), b)
    chroma = top - np.minimum(np.minimum(r, g), b)
    is_clear = (top >= least_value * 255.0) & (chroma >= least_saturation * top) & (chroma > 0.0)
    share = np.where(is_clear, chroma, 1.0)
    sides = [(g - b) / share, (b - r) / share + 2.0, (r - g) / share + 4.0]
    hue = 60.0 * np.where(top == r, sides[0], np.where(top == g, sides[1], sides[2]))
    out[:] = is_clear & (np.abs((hue - hue_deg + 180.0) % 360.0 - 180.0) <= hue_slack_deg)
