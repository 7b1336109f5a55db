"""What stands fixed in the workspace, as boxes over a floor: how far points lie from it, and the depth it shows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.measure.geometry.box import Box, FloatArray
from robotrials.measure.geometry.fit import surface_distance
from robotrials.measure.geometry.view import RgbdView

IndexArray = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class StaticScene:
    """Boxes that do not move during a trial (table, bins, fixtures), and the height of the floor below them."""

    boxes: tuple[Box, ...]
    floor_z_m: float | None = None

    def __post_init__(self) -> None:
        if not self.boxes:
            raise InputError('a static scene needs at least one box, such as the table')

    @property
    def lowest_top_m(self) -> float:
        """The height of the lowest surface that things may lie on, the floor aside."""
        return min(float(box.bounds[1][2]) for box in self.boxes)

    def distance(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Signed distances (N,) of points (N, 3) from the nearest surface, inside negative, and their gradients."""
        best = np.full(len(points), np.inf)
        gradient = np.zeros((len(points), 3))
        if self.floor_z_m is not None:
            best = points[:, 2] - self.floor_z_m
            gradient[:, 2] = 1.0
        for box in self.boxes:
            low, high = box.bounds
            gap = np.maximum(np.maximum(low - points, points - high), 0.0)
            near = np.flatnonzero(np.einsum('nd,nd->n', gap, gap) < np.maximum(best, 0.0) ** 2 + 1e-12)
            if not len(near):
                continue
            found, local = surface_distance(points[near], box)
            closer = found < best[near]
            best[near[closer]] = found[closer]
            gradient[near[closer]] = local[closer] @ box.rotation.T
        return best, gradient

    def depth(self, view: RgbdView, *, step: int = 1) -> FloatArray:
        """Depth along z (H, W) that the view would have of the scene alone; infinite where it sees nothing of it."""
        height, width = view.depth_m.shape
        v, u = np.mgrid[0:height:step, 0:width:step]
        return self.depth_at(view, v.ravel(), u.ravel()).reshape(u.shape)

    def depth_at(self, view: RgbdView, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """The same at pixels (N,)."""
        k = view.intrinsics_px
        x, y = (columns - k[0, 2]) / k[0, 0], (rows - k[1, 2]) / k[1, 1]
        rays = np.stack([x, y, np.ones(len(rows))], axis=-1) @ view.base_from_camera[:3, :3].T
        depth = np.full(len(rays), np.inf)
        start = view.position_m
        with np.errstate(divide='ignore', invalid='ignore'):
            if self.floor_z_m is not None:
                to_floor = (self.floor_z_m - start[2]) / rays[:, 2]
                depth = np.where(to_floor > 0, to_floor, depth)
            for box in self.boxes:
                # A ray's parameter is its depth, because its third component in the camera is 1.
                origin, way = (start - box.center) @ box.rotation, rays @ box.rotation
                ends = np.stack([(-box.size / 2 - origin) / way, (box.size / 2 - origin) / way])
                low, high = ends.min(axis=0), ends.max(axis=0)
                enter = np.fmax(np.fmax(low[:, 0], low[:, 1]), low[:, 2])
                leave = np.fmin(np.fmin(high[:, 0], high[:, 1]), high[:, 2])
                hit = (enter <= leave) & (enter > 0)
                depth = np.where(hit & (enter < depth), enter, depth)
        return depth


@lru_cache(maxsize=8)
def empty_depth(scene: StaticScene, view: RgbdView) -> FloatArray:
    """`scene.depth(view)`, worked out once for the objects that are looked for in the same view."""
    return scene.depth(view)


def view_points(view: RgbdView, rows: IndexArray, columns: IndexArray) -> FloatArray:
    """World points (N, 3) of pixels with depth."""
    v, u = rows, columns
    k = view.intrinsics_px
    rays = np.stack([(u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], np.ones(len(u))], axis=1)
    depth = view.depth_m[v, u].astype(np.float64)
    points: FloatArray = (rays * depth[:, None]) @ view.base_from_camera[:3, :3].T + view.position_m
    return points
