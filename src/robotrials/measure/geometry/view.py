"""A calibrated RGB-D view, and several views fused into coloured voxels in the base frame."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.geometry.box import BoolArray, FloatArray, check_pose
from robotrials.record import Camera

MOST_CELLS = 100_000_000
NO_MASK = np.zeros((1, 1), dtype=np.bool_)

Bounds = tuple[ArrayLike, ArrayLike]


@dataclass(frozen=True, slots=True, eq=False)
class RgbdView:
    """One camera's image and depth at one time.

    The camera looks along its +z, x to the right, y down; depth is the distance along z in metres, and missing where it
    is not finite or not positive. `base_from_camera` is the 4x4 extrinsic calibration.
    """

    name: str
    rgb: NDArray[np.uint8]  # (H, W, 3)
    depth_m: FloatArray  # (H, W)
    intrinsics_px: FloatArray  # (3, 3)
    base_from_camera: FloatArray  # (4, 4)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, 'rgb', np.ascontiguousarray(self.rgb))
        put(self, 'depth_m', np.ascontiguousarray(self.depth_m))
        put(self, 'intrinsics_px', np.array(self.intrinsics_px, dtype=np.float64))
        put(self, 'base_from_camera', check_pose(f'view {self.name}: base_from_camera', self.base_from_camera))
        if self.rgb.dtype != np.uint8 or self.rgb.ndim != 3 or self.rgb.shape[2] != 3:
            raise InputError(f'view {self.name}: rgb must be (H, W, 3) uint8, found {self.rgb.shape} {self.rgb.dtype}')
        if self.depth_m.shape != self.rgb.shape[:2] or self.depth_m.dtype.kind != 'f':
            raise InputError(
                f'view {self.name}: depth_m must be {self.rgb.shape[:2]} floats in metres, '
                f'found {self.depth_m.shape} {self.depth_m.dtype}'
            )
        k = self.intrinsics_px
        if k.shape != (3, 3) or not np.isfinite(k).all() or k[0, 0] <= 0 or k[1, 1] <= 0:
            raise InputError(f'view {self.name}: intrinsics_px must be 3x3 with focal lengths > 0, found {k.tolist()}')

    @property
    def has_depth(self) -> BoolArray:
        """Where depth was measured, (H, W)."""
        known: BoolArray = np.isfinite(self.depth_m) & (self.depth_m > 0)
        return known

    @property
    def position_m(self) -> FloatArray:
        """Where the camera stands, in the base frame."""
        position: FloatArray = self.base_from_camera[:3, 3]
        return position

    def project(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Pixels (N, 2) as (u, v) and depths (N,) along z of points (N, 3) in the base frame."""
        local = (points - self.position_m) @ self.base_from_camera[:3, :3]
        k = self.intrinsics_px
        with np.errstate(divide='ignore', invalid='ignore'):
            u = k[0, 0] * local[:, 0] / local[:, 2] + k[0, 2]
            v = k[1, 1] * local[:, 1] / local[:, 2] + k[1, 2]
        return np.stack([u, v], axis=1), local[:, 2]


def view_from_camera(camera: Camera, rgb: NDArray[np.uint8], *, depth_m: FloatArray) -> RgbdView:
    """A view from a recorded camera's calibration; the world frame is the base frame."""
    if rgb.shape[:2] != (camera.height_px, camera.width_px):
        raise InputError(
            f'camera {camera.name} is {camera.height_px}x{camera.width_px}, found an image of {rgb.shape[:2]}'
        )
    if camera.intrinsics_px is None or camera.world_from_camera is None:
        raise InputError(f'camera {camera.name} was recorded without its calibration; a view needs one')
    return RgbdView(camera.name, rgb, depth_m, camera.intrinsics_px, camera.world_from_camera)


@dataclass(frozen=True, slots=True, eq=False)
class VoxelCloud:
    """Occupied voxels: the mean point and colour of the pixels that fell into each, and how many they were."""

    voxel_m: float
    origin_m: FloatArray  # (3,) the low corner of cell 0, 0, 0
    cell: NDArray[np.int64]  # (N, 3)
    point_m: FloatArray  # (N, 3)
    color: FloatArray  # (N, 3) 0..255
    count: NDArray[np.int64]  # (N,)

    def __len__(self) -> int:
        return len(self.count)


def fuse_views(
    views: Sequence[RgbdView],
    bounds_m: Bounds,
    *,
    voxel_m: float,
    masks: Mapping[str, BoolArray] | None = None,
) -> VoxelCloud:
    """Fuse views into coloured voxels inside the box `bounds_m` = (low, high); masked pixels only if masks are given.

    The grid's cells are aligned to multiples of the voxel, so that two clouds with one voxel size can be compared.
    """
    from robotrials.measure.geometry.kernel import fuse_pixels

    low, shape = _grid(bounds_m, voxel_m)
    n_pixels = sum(v.depth_m.size if masks is None else int(masks[v.name].sum()) for v in views)
    index = np.full(math.prod(shape), -1, dtype=np.int32)
    sums, counts = np.empty((n_pixels, 6)), np.empty(n_pixels, dtype=np.int64)
    cells = np.empty(n_pixels, dtype=np.int64)
    extent = np.array(shape, dtype=np.int64)
    n = 0
    for view in views:
        k, pose = view.intrinsics_px, view.base_from_camera
        focal = np.array([k[0, 0], k[1, 1], k[0, 2], k[1, 2]])
        mask = NO_MASK if masks is None else np.ascontiguousarray(masks[view.name])
        depth_m = view.depth_m.astype(np.float64, copy=False)
        n = fuse_pixels(
            depth_m, view.rgb, mask, masks is not None, focal, np.ascontiguousarray(pose[:3, :3]),
            np.ascontiguousarray(pose[:3, 3]), low, voxel_m, extent, index, sums, counts, cells, n,
        )  # fmt: skip
    mean = sums[:n] / counts[:n, None]
    cell = np.stack(np.unravel_index(cells[:n], shape), axis=1).astype(np.int64)
    return VoxelCloud(voxel_m, low, cell, mean[:, :3], mean[:, 3:], counts[:n])


def voxel_iou(a: VoxelCloud, b: VoxelCloud) -> float:
    """IoU of two sets of occupied voxels on one lattice: surfaces seen, not solids."""
    if a.voxel_m != b.voxel_m:
        raise InputError(f'wanted one voxel size, found {a.voxel_m} and {b.voxel_m} m')
    keys = [{tuple(c) for c in (x.cell + np.rint(x.origin_m / x.voxel_m).astype(np.int64)).tolist()} for x in (a, b)]
    union = len(keys[0] | keys[1])
    if union == 0:
        raise NotEstimable('neither cloud has an occupied voxel')
    return len(keys[0] & keys[1]) / union


def _grid(bounds_m: Bounds, voxel_m: float) -> tuple[FloatArray, tuple[int, int, int]]:
    low, high = (np.array(end, dtype=np.float64) for end in bounds_m)
    if not (voxel_m > 0 and math.isfinite(voxel_m)):
        raise InputError(f'voxel_m must be a length > 0 in metres, found {voxel_m}')
    if low.shape != (3,) or high.shape != (3,) or not np.isfinite([low, high]).all() or not (low < high).all():
        raise InputError(f'bounds_m must be (low, high) corners in metres, low < high, found {bounds_m}')
    low = np.floor(low / voxel_m) * voxel_m
    shape = np.ceil((high - low) / voxel_m - 1e-9).astype(int)
    if math.prod(shape.tolist()) > MOST_CELLS:
        raise InputError(f'{shape.tolist()} cells of {voxel_m} m are too many; use tighter bounds or a larger voxel')
    return low, (int(shape[0]), int(shape[1]), int(shape[2]))
