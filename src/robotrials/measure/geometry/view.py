"""A calibrated RGB-D view, and several views fused into coloured voxels in the base frame."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robotrials.errors import InputError, NotEstimable
from robotrials.measure.geometry.box import check_pose
from robotrials.record import Camera
from robotrials.record.footage import check_distortion, resampled, straightened, unbend
from robotrials.value import dataclass

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
        return np.asarray(np.isfinite(self.depth_m) & (self.depth_m > 0))

    @property
    def position_m(self) -> FloatArray:
        """Where the camera stands, in the base frame."""
        return np.asarray(self.base_from_camera[:3, 3])

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


def rectified(view: RgbdView, distortion: Sequence[float]) -> RgbdView:
    """The pinhole picture of a view that a lens has bent; depth is taken from the nearest pixel and never mixed."""
    check_distortion(distortion, f'view {view.name}')
    if not any(distortion):
        return view
    rgb, depth_m = straightened(view.rgb, view.depth_m, view.intrinsics_px, distortion)
    return replace(view, rgb=rgb, depth_m=depth_m)


def distorted(
    view: RgbdView, distortion: Sequence[float], *, intrinsics_px: FloatArray, shape: tuple[int, int]
) -> RgbdView:
    """The picture (`shape` as height, width) that a lens makes of a pinhole view: the way back from `rectified`."""
    v, u = np.mgrid[0 : shape[0], 0 : shape[1]].astype(np.float64)
    x, y = unbend(
        (u - intrinsics_px[0, 2]) / intrinsics_px[0, 0], (v - intrinsics_px[1, 2]) / intrinsics_px[1, 1], distortion
    )
    k = view.intrinsics_px
    rgb, depth_m = resampled(view.rgb, view.depth_m, rows=k[1, 1] * y + k[1, 2], columns=k[0, 0] * x + k[0, 2])
    return replace(view, rgb=rgb, depth_m=depth_m, intrinsics_px=intrinsics_px)


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


# What a stereo depth camera does to depth: noise, steps and bias in disparity, and holes where it sees nothing.
# Depth is z = f B / d of a disparity d in pixels, so that an error in disparity becomes one that grows with the square
# of the range. The numbers are those of a reference camera (`FOCAL_PX`, `BASELINE_M`: about a RealSense D435 at 640 x
# 480) whatever the size of the picture, so that a small picture of the same scene is as noisy in metres.

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]

FOCAL_PX = 385.0
BASELINE_M = 0.05
EDGE_STEP_PX = 0.4  # of disparity between neighbours that makes an edge


@dataclass(frozen=True, slots=True)
class StereoNoise:
    """How bad a stereo camera is; zero everywhere changes nothing. Lengths in the picture are shares of its height."""

    noise_px: float  # standard deviation of disparity, anew in every frame
    bias_px: float  # standard deviation over units of a unit's own offset and of its smooth warp
    quantum_px: float  # step of the disparity
    holes: float  # share of pixels without depth, in patches
    edge: float = 0.0  # how far holes reach from an edge in depth
    noise_length: float = 0.012  # over which noise is correlated
    bias_length: float = 0.25  # over which a unit's warp is
    has_shadow: bool = False  # holes where only one of the two lenses sees the surface

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (np.isfinite(value) and value >= 0):
                raise InputError(f'stereo noise: {field.name} must be finite and not negative, found {value!r}')
        if self.holes >= 1:
            raise InputError(f'stereo noise: holes must be a share below 1, found {self.holes}')

    def scaled(self, factor: float) -> StereoNoise:
        """The same camera, worse or better by a factor."""
        grown = ('noise_px', 'bias_px', 'quantum_px', 'holes', 'edge')
        return replace(self, **{name: getattr(self, name) * factor for name in grown})


STEREO_NOISE: Mapping[str, StereoNoise] = {
    'mild': StereoNoise(noise_px=0.03, bias_px=0.02, quantum_px=1 / 32, holes=0.005, edge=0.004, has_shadow=True),
    'default': StereoNoise(noise_px=0.08, bias_px=0.06, quantum_px=1 / 16, holes=0.02, edge=0.006, has_shadow=True),
    'heavy': StereoNoise(noise_px=0.2, bias_px=0.15, quantum_px=1 / 8, holes=0.06, edge=0.012, has_shadow=True),
}


def stereo_depth(
    depth_m: FloatArray,
    noise: StereoNoise,
    *,
    focal_px: float,
    unit: np.random.Generator,
    frame: np.random.Generator,
) -> FloatArray:
    """Depth (H, W) along z as a stereo camera with a right-hand second lens would report it; NaN where it has none.

    `focal_px` is the picture's own. `unit` draws what a camera unit keeps (give the same stream for all its frames),
    `frame` what is new in every picture.
    """
    if depth_m.ndim != 2 or not focal_px > 0:
        raise InputError(f'stereo depth wants depth (H, W) and a focal length > 0, found {depth_m.shape}, {focal_px}')
    height = depth_m.shape[0]
    is_known = np.isfinite(depth_m) & (depth_m > 0)
    near = np.where(is_known, depth_m, np.inf).astype(np.float64)
    disparity = FOCAL_PX * BASELINE_M / near  # 0 where nothing was measured
    lost = ~is_known
    if noise.has_shadow:
        lost |= _seen_by_one_lens(disparity * (focal_px / FOCAL_PX))
    if noise.edge > 0:
        lost |= _near_edges(disparity, reach_px=noise.edge * height)
    if noise.holes > 0:
        lost |= _patches(depth_m.shape, noise.holes, length_px=2 * noise.noise_length * height, rng=frame)
    measured = disparity
    if noise.bias_px > 0:
        warp = smooth_field(depth_m.shape, length_px=noise.bias_length * height, rng=unit)
        measured = measured + noise.bias_px * (unit.standard_normal() + warp)
    if noise.noise_px > 0:
        field = smooth_field(depth_m.shape, length_px=noise.noise_length * height, rng=frame)
        measured = measured + noise.noise_px * field
    if noise.quantum_px > 0:
        measured = np.rint(measured / noise.quantum_px) * noise.quantum_px
    lost |= measured <= 0
    reported = np.full(depth_m.shape, np.nan)
    np.divide(FOCAL_PX * BASELINE_M, measured, out=reported, where=~lost)
    return reported.astype(depth_m.dtype)


def smooth_field(shape: tuple[int, ...], *, length_px: float, rng: np.random.Generator) -> FloatArray:
    """A Gaussian random field (H, W) of mean 0 and variance 1, correlated as exp(-r^2 / 4 length^2)."""
    rows, columns = shape
    white = rng.standard_normal((rows, columns))
    ky, kx = np.fft.fftfreq(rows)[:, None], np.fft.rfftfreq(columns)[None, :]
    kernel = np.exp(-2 * (np.pi * length_px) ** 2 * (ky**2 + kx**2))
    # The mean square of the whole (two-sided) kernel is the variance that it leaves of white noise.
    power = (np.exp(-((2 * np.pi * length_px) ** 2) * np.fft.fftfreq(n) ** 2).mean() for n in (rows, columns))
    return np.asarray(np.fft.irfft2(np.fft.rfft2(white) * kernel, s=(rows, columns)) / np.sqrt(np.prod(list(power))))


def _seen_by_one_lens(disparity_px: FloatArray) -> BoolArray:
    """Pixels that something nearer, further right, hides from the second lens."""
    columns = np.arange(disparity_px.shape[1])
    in_second = columns - disparity_px
    nearest_right = np.minimum.accumulate(in_second[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(in_second > nearest_right + 1e-6)


def _near_edges(disparity: FloatArray, *, reach_px: float) -> BoolArray:
    edges = np.zeros(disparity.shape, dtype=np.bool_)
    for axis in (0, 1):
        jump = np.abs(np.diff(disparity, axis=axis)) > EDGE_STEP_PX
        low, high = (slice(None), slice(-1)), (slice(None), slice(1, None))
        edges[low if axis else low[::-1]] |= jump
        edges[high if axis else high[::-1]] |= jump
    for _ in range(int(np.rint(reach_px)) - 1):
        grown = edges.copy()
        grown[1:] |= edges[:-1]
        grown[:-1] |= edges[1:]
        grown[:, 1:] |= edges[:, :-1]
        grown[:, :-1] |= edges[:, 1:]
        edges = grown
    return edges


def _patches(shape: tuple[int, ...], share: float, *, length_px: float, rng: np.random.Generator) -> BoolArray:
    field = smooth_field(shape, length_px=length_px, rng=rng)
    return np.asarray(field < np.quantile(field, share))
