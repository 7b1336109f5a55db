"""Where a camera looks, by the edges of what stands fixed: colours have no depth noise.

A table's plane says nothing of a turn about its normal; its edges in the picture do, to a fraction of a pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from robotrials.measure.geometry.box import FloatArray

if TYPE_CHECKING:
    from robotrials.measure.geometry.static_scene import IndexArray, StaticScene
    from robotrials.measure.geometry.view import RgbdView

SPACING_PX = 4.0
REACHES_PX = (5.0, 3.0, 2.0, 2.0)  # how far from its predicted place an edge is looked for, step by step
APART_PX = 5.0  # edges nearer to each other may be mistaken for one another
CONTRAST = 12.0  # in levels of 255: a weaker edge is none
PRIOR_RAD = 0.006  # how far off the fit to depth may be
LEAST_EDGE_POINTS = 40
VISIBLE_M = 0.012
CORNERS = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
EDGES = [(a, b) for a, b in combinations(range(8), 2) if np.abs(CORNERS[a] - CORNERS[b]).sum() == 1]


@dataclass(frozen=True, slots=True, eq=False)
class EdgeFit:
    """The turn about a camera's centre that lays predicted edges on the picture's, and how well they then lie."""

    turn: FloatArray  # (3, 3) in the world
    n_points: int  # of edges that were found
    spread_px: float  # median offset that is left


def fit_edges(view: RgbdView, scene: StaticScene) -> EdgeFit | None:
    """Turn the camera until the fixed edges lie where the picture has them; None where too few are seen."""
    from robotrials.measure.geometry.fit import rotation_of

    points, along = visible_edges(view, scene)
    brightness = view.rgb.astype(np.float64)
    turn = np.eye(3)
    n, spread = 0, np.inf
    for reach in REACHES_PX:
        if len(points) < LEAST_EDGE_POINTS:
            return None
        # In the frame of the turned camera: the points turn the other way about its centre.
        axes = turn @ view.base_from_camera[:3, :3]
        local = (points - view.position_m) @ axes
        pixel, normal = _pixels(local, along @ axes, view)
        offset = edge_offsets(brightness, pixel, normal, reach)
        found = np.isfinite(offset)
        n = int(found.sum())
        if n < LEAST_EDGE_POINTS:
            return None
        jacobian = np.einsum('nd,ndk->nk', normal[found], _turned_pixels(local[found], view))
        step, left = _robust(jacobian, offset[found], width_px=reach)
        spread = float(np.median(np.abs(left)))
        turn = axes @ rotation_of(step) @ view.base_from_camera[:3, :3].T
    return EdgeFit(turn, n, spread)


def _robust(jacobian: FloatArray, offset: FloatArray, *, width_px: float) -> tuple[FloatArray, FloatArray]:
    """The step that takes most offsets away (Tukey's weights), held near 0, and what it leaves."""
    step = np.zeros(3)
    left = offset
    for _ in range(5):
        weight = (1 - np.clip(left / width_px, -1, 1) ** 2) ** 2
        normal = (jacobian * weight[:, None]).T @ jacobian + np.eye(3) / PRIOR_RAD**2
        step = np.linalg.solve(normal, (jacobian * weight[:, None]).T @ offset)
        left = offset - jacobian @ step
    return step, left


def _pixels(local: FloatArray, along: FloatArray, view: RgbdView) -> tuple[FloatArray, FloatArray]:
    """Pixels (N, 2) of points in the camera's frame, and the unit normals there of lines along `along`."""
    k = view.intrinsics_px
    focal, middle = np.array([k[0, 0], k[1, 1]]), np.array([k[0, 2], k[1, 2]])
    pixel = focal * local[:, :2] / local[:, 2:] + middle
    way = focal * (along[:, :2] * local[:, 2:] - local[:, :2] * along[:, 2:])
    way /= np.maximum(np.linalg.norm(way, axis=1), 1e-12)[:, None]
    return pixel, np.stack([-way[:, 1], way[:, 0]], axis=1)


def _turned_pixels(local: FloatArray, view: RgbdView) -> FloatArray:
    """How pixels (N, 2) move with a small turn of the camera about its own axes, (N, 2, 3)."""
    x, y, z = local.T
    fx, fy = view.intrinsics_px[0, 0], view.intrinsics_px[1, 1]
    a, b = x / z, y / z
    # A camera that turns by w sees a still point p move by -w x p.
    u = fx * np.stack([a * b, -(1 + a * a), b], axis=1)
    v = fy * np.stack([1 + b * b, -a * b, -a], axis=1)
    jacobian: FloatArray = np.stack([u, v], axis=1)
    return jacobian


def visible_edges(view: RgbdView, scene: StaticScene) -> tuple[FloatArray, FloatArray]:
    """Points (N, 3) along the edges of the fixed boxes that the view would see of the empty scene, and their ways."""
    line, way, owner = _edge_points(view, scene)
    pixel, depth = view.project(line)
    u, v = np.rint(pixel).astype(int).T
    height, width = view.depth_m.shape
    margin = int(REACHES_PX[0]) + 1
    kept = np.flatnonzero((u >= margin) & (v >= margin) & (u < width - margin) & (v < height - margin))
    shift = np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)])
    rows, columns = (v[kept] + shift[:, :1]).ravel(), (u[kept] + shift[:, 1:]).ravel()
    around = scene.depth_at(view, rows, columns).reshape(len(shift), -1)
    seen = np.abs(around - depth[kept]).min(axis=0) < VISIBLE_M
    kept = kept[seen & (around.min(axis=0) > depth[kept] - VISIBLE_M)]
    apart = np.linalg.norm(pixel[kept][:, None] - pixel[kept][None], axis=2)
    mine = owner[kept][:, None] == owner[kept][None]
    alone = kept[np.where(mine, np.inf, apart).min(axis=1, initial=np.inf) > APART_PX]
    return line[alone], way[alone]


def _edge_points(view: RgbdView, scene: StaticScene) -> tuple[FloatArray, FloatArray, IndexArray]:
    """Points (N, 3) along every edge in front of the camera, the edge's way, and its number."""
    corners = np.stack([box.center + (CORNERS * box.size) @ box.rotation.T for box in scene.boxes])
    ends = corners[:, np.array(EDGES)].reshape(-1, 2, 3)
    pixel, depth = view.project(ends.reshape(-1, 3))
    length = np.linalg.norm(np.diff(pixel.reshape(-1, 2, 2), axis=1)[:, 0], axis=1)
    ahead = (depth.reshape(-1, 2) >= 0.1).all(axis=1)
    n = np.where(ahead, np.clip(np.nan_to_num(length) / SPACING_PX, 2, 200).astype(int), 0)
    owner = np.repeat(np.arange(len(ends)), n)
    share = np.concatenate([np.linspace(0.02, 0.98, k) for k in n])
    span = ends[:, 1] - ends[:, 0]
    way = span / np.linalg.norm(span, axis=1)[:, None]
    return ends[owner, 0] + share[:, None] * span[owner], way[owner], owner


def edge_offsets(rgb: FloatArray, pixel: FloatArray, normal: FloatArray, reach_px: float) -> FloatArray:
    """How far along its normal the picture's edge lies from each pixel (N,); NaN where there is none."""
    from scipy.ndimage import map_coordinates

    t = np.arange(-reach_px - 1, reach_px + 1.01, 0.5)
    at = pixel[:, None, :] + t[None, :, None] * normal[:, None, :]
    where = [at[..., 1], at[..., 0]]
    profile = np.stack([map_coordinates(rgb[..., c], where, order=1, mode='nearest') for c in range(3)])
    slope = np.abs(profile[:, :, 2:] - profile[:, :, :-2]).max(axis=0)  # over one pixel
    middle = t[1:-1]
    likely = slope * np.exp(-0.5 * (middle / reach_px) ** 2)
    best = np.argmax(likely, axis=1)
    near = np.abs(middle[None, :] - middle[best][:, None]) <= 1.0
    weight = np.where(near, slope**2, 0.0)
    offset: FloatArray = (weight * middle).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-9)
    return np.where(slope[np.arange(len(best)), best] >= CONTRAST, offset, np.nan)
