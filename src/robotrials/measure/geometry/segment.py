"""Which pixels and points belong to an object of known colour and size."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import InputError
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray
from robotrials.measure.geometry.fit import surface_distance
from robotrials.measure.geometry.view import RgbdView, VoxelCloud
from robotrials.value import dataclass

# What stands fixed in the workspace, as boxes over a floor: how far points lie from it, and the depth it shows.

IndexArray = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class StaticScene:
    """Boxes that do not move during a trial (table, bins, fixtures), and the height of the floor below them."""

    boxes: tuple[Box, ...]
    floor_z_m: float | None = None

    def __post_init__(self) -> None:
        if not self.boxes and self.floor_z_m is None:
            raise InputError('a static scene needs a floor, or at least one box, such as the table')

    @property
    def lowest_top_m(self) -> float:
        """The height of the lowest surface that things may lie on, the floor aside where there is any other."""
        return min((float(box.bounds[1][2]) for box in self.boxes), default=self.floor_z_m or 0.0)

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


GREY_SATURATION = 0.15
SUPPORT_SHARE = 0.25  # of a patch that must stand out from the empty scene
LEAST_PATCH = 6  # pixels


@dataclass(frozen=True, slots=True)
class ObjectModel:
    """What is known of an object beforehand: its colour, and its full edge lengths if they are known.

    The colour is compared by hue, so that shading does not matter; a grey object is compared by brightness too. With
    `rgb_slack` it is compared as plain RGB.
    """

    name: str
    color_rgb: tuple[int, int, int]
    size_m: tuple[float, float, float] | None = None
    hue_slack_deg: float = 22.0
    saturation_share: float = 0.4  # of the model's own saturation, the least that a pixel must have
    least_value: float = 0.06
    rgb_slack: float | None = None  # compare plain RGB by this distance instead: simple, and at the mercy of the light

    def __post_init__(self) -> None:
        if not all(0 <= c <= 255 for c in self.color_rgb):
            raise InputError(f'object {self.name}: color_rgb must be three numbers 0..255, found {self.color_rgb}')
        if self.size_m is not None and not all(s > 0 for s in self.size_m):
            raise InputError(f'object {self.name}: size_m must be three edges > 0 in metres, found {self.size_m}')


def color_mask(rgb: NDArray[np.uint8], model: ObjectModel) -> BoolArray:
    """Pixels (H, W) of the model's colour."""
    if model.rgb_slack is not None:
        off = np.linalg.norm(rgb.astype(np.float64) - model.color_rgb, axis=2)
        plain: BoolArray = off <= model.rgb_slack
        return plain
    hue, saturation, value = colorsys.rgb_to_hsv(*(c / 255 for c in model.color_rgb))
    mask = np.empty(rgb.shape[:2], dtype=np.bool_)
    if saturation >= GREY_SATURATION:
        from robotrials.measure.geometry.kernel import hue_mask

        least = saturation * model.saturation_share
        hue_mask(np.ascontiguousarray(rgb), hue * 360, model.hue_slack_deg, least, model.least_value, mask)
        return mask
    top = rgb.max(axis=2).astype(np.float64)
    chroma = top - rgb.min(axis=2)
    grey: BoolArray = (chroma <= GREY_SATURATION * np.maximum(top, 1)) & (np.abs(top - 255 * value) <= 45)
    return grey


def color_masks(views: Sequence[RgbdView], model: ObjectModel) -> dict[str, BoolArray]:
    """One mask a view, with depth, and without the rim of the object where colours and depths of two surfaces mix."""
    masks: dict[str, BoolArray] = {}
    for view in views:
        mask = color_mask(view.rgb, model)
        thinner = _without_rim(mask)
        # A far object is only a few pixels: better a mixed rim than nothing.
        kept = thinner if thinner.sum() >= 0.4 * mask.sum() else mask
        masks[view.name] = kept & view.has_depth
    return masks


def supported_masks(
    views: Sequence[RgbdView], model: ObjectModel, scene: StaticScene, *, tolerance_m: float
) -> dict[str, BoolArray]:
    """Pixels of the model's colour that belong to something which stands out from the empty scene.

    A patch of the colour is kept when a quarter of it is nearer than what stands fixed; a print on a cloth is not.
    """
    from scipy.ndimage import label

    masks = {}
    for view in views:
        mask = color_masks([view], model)[view.name]
        empty = empty_depth(scene, view)
        with np.errstate(invalid='ignore'):
            rises = mask & (view.depth_m < empty - tolerance_m * np.maximum(np.minimum(empty, 4.0) ** 2, 0.25))
        patches, n = label(mask, structure=np.ones((3, 3)))
        size, raised = (np.bincount(patches[m], minlength=n + 1) for m in (mask, rises))
        good = (raised >= SUPPORT_SHARE * np.maximum(size, 1)) & (size >= LEAST_PATCH)
        good[0] = False
        masks[view.name] = mask & good[patches]
    return masks


def whole_patches(views: Sequence[RgbdView], model: ObjectModel, kept: Mapping[str, BoolArray]) -> dict[str, BoolArray]:
    """The patches of the model's colour that hold a kept pixel: with their rim, and where depth is missing."""
    from scipy.ndimage import label

    whole = {}
    for view in views:
        patches, n = label(color_mask(view.rgb, model), structure=np.ones((3, 3)))
        touched = np.zeros(n + 1, dtype=np.bool_)
        touched[np.unique(patches[kept[view.name]])] = True
        touched[0] = False
        whole[view.name] = touched[patches]
    return whole


def _without_rim(mask: BoolArray) -> BoolArray:
    inner = np.zeros_like(mask)
    inner[1:-1, 1:-1] = mask[1:-1, 1:-1] & mask[:-2, 1:-1] & mask[2:, 1:-1] & mask[1:-1, :-2] & mask[1:-1, 2:]
    return inner


def connected_parts(cloud: VoxelCloud, *, gap_m: float) -> list[NDArray[np.int64]]:
    """Indices of voxels in connected parts, the largest part (by pixels) first; nearer than `gap_m` is connected."""
    if not len(cloud):
        return []
    from scipy.ndimage import label

    coarse = np.floor(cloud.point_m / gap_m).astype(np.int64)
    coarse -= coarse.min(axis=0)
    shape = coarse.max(axis=0) + 1
    grid = np.zeros(tuple(shape), dtype=np.bool_)
    grid[tuple(coarse.T)] = True
    labels, n = label(grid, structure=np.ones((3, 3, 3)))
    of_voxel = labels[tuple(coarse.T)]
    weight = np.bincount(of_voxel, weights=cloud.count, minlength=n + 1)
    order = [int(k) for k in np.argsort(-weight, kind='stable') if k > 0 and weight[k] > 0]
    return [np.flatnonzero(of_voxel == k) for k in order]


def surface_bounds(views: Sequence[RgbdView], masks: Mapping[str, BoolArray]) -> tuple[FloatArray, FloatArray] | None:
    """The corners of the masked points' hull, without the outermost thousandth; None when no pixel is masked."""
    found = []
    for view in views:
        v, u = np.nonzero(masks[view.name])
        if not len(v):
            continue
        d = view.depth_m[v, u].astype(np.float64)
        k = view.intrinsics_px
        rays = np.stack([(u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], np.ones(len(u))], axis=1)
        found.append((rays * d[:, None]) @ view.base_from_camera[:3, :3].T + view.position_m)
    if not found:
        return None
    points = np.concatenate(found)
    low, high = np.quantile(points, [0.001, 0.999], axis=0)
    margin = 0.02 + 0.02 * math.sqrt(float(((high - low) ** 2).sum()))
    return low - margin, high + margin
