"""Oriented-box IoU against manifold3d, and RGB-D fusion against Open3D where it is installed, else against numpy."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from bench.measure import Result, against, seconds
from trialist.geometry import (
    ObjectModel,
    RgbdView,
    box_iou_arrays,
    fuse_views,
    reconstruct_box,
    rotation_from_quaternion,
)
from trialist.testing.scene import DepthNoise, PaintedBox, look_at, render_view

PAIRS = 2000
VOXEL_M = 0.005
BOUNDS = ((-0.5, -0.5, -0.05), (0.5, 0.5, 0.4))


def run() -> list[Result]:
    return [*(_iou(*kind) for kind in (('random', _random_pairs), ('nearly coincident', _tilted_pairs))), _fuse()]


def _random_pairs(rng: np.random.Generator) -> list[Any]:
    center = rng.normal(size=(PAIRS, 3)) * 0.3
    return [
        center, rng.uniform(0.1, 1.0, (PAIRS, 3)), _rotations(rng),
        center + rng.normal(size=(PAIRS, 3)) * 0.3, rng.uniform(0.1, 1.0, (PAIRS, 3)), _rotations(rng),
    ]  # fmt: skip


def _tilted_pairs(rng: np.random.Generator) -> list[Any]:
    center, size, turn = rng.normal(size=(PAIRS, 3)) * 0.3, rng.uniform(0.1, 1.0, (PAIRS, 3)), _rotations(rng)
    tilt = np.array([rotation_from_quaternion([1, *v]) for v in rng.normal(size=(PAIRS, 3)) * 1e-7])
    return [center, size, turn, center, size, turn @ tilt]


def _rotations(rng: np.random.Generator) -> Any:
    return np.array([rotation_from_quaternion(q) for q in rng.normal(size=(PAIRS, 4))])


def _iou(kind: str, make: Any) -> Result:
    from manifold3d import Manifold

    pairs = make(np.random.default_rng(0))
    ours = box_iou_arrays(*pairs)

    def peer() -> Any:
        found = np.empty(PAIRS)
        for i in range(PAIRS):
            solids = [
                Manifold.cube(pairs[k + 1][i], True).transform(np.hstack([pairs[k + 2][i], pairs[k][i][:, None]]))
                for k in (0, 3)
            ]
            shared = (solids[0] ^ solids[1]).volume()
            found[i] = shared / (np.prod(pairs[1][i]) + np.prod(pairs[4][i]) - shared)
        return found

    error = float(np.abs(ours - peer()).max())
    if error > 1e-9:
        raise SystemExit(f'IoU of {kind} pairs differs from manifold3d by {error:.2g}, wanted at most 1e-9')
    return against(
        f'geometry/box IoU, {kind}',
        ours_s=seconds(lambda: box_iou_arrays(*pairs), repeats=5),
        peer='manifold3d',
        peer_s=seconds(peer, repeats=2),
        target=30,
        work=f'{PAIRS} pairs, largest difference {error:.1g}',
    )


def _views() -> list[RgbdView]:
    rng = np.random.default_rng(0)
    colors = ((200, 40, 35), (35, 70, 190), (40, 150, 60))
    boxes = [
        PaintedBox(_block(x, y), c) for (x, y), c in zip(((0.1, 0.0), (-0.1, 0.1), (0.0, -0.12)), colors, strict=True)
    ]
    eyes = ((0.8, 0.0, 0.6), (0.0, 0.8, 0.6), (-0.6, -0.3, 0.7))
    return [
        render_view(
            f'camera {i}', look_at(eye, (0, 0, 0)), boxes=boxes, width_px=640, height_px=480,
            noise=DepthNoise(0.001, 0.02), rng=rng,
        )
        for i, eye in enumerate(eyes)
    ]  # fmt: skip


def _block(x: float, y: float) -> Any:
    from trialist.geometry import Box

    return Box((x, y, 0.025), (0.05, 0.05, 0.05))


def _fuse() -> Result:
    views = _views()
    # Open3D reads single precision depth with 0 for missing; both sides get the same arrays.
    plain = [np.nan_to_num(v.depth_m, nan=0.0, posinf=0.0).astype(np.float32) for v in views]
    views = [dataclasses.replace(v, depth_m=depth) for v, depth in zip(views, plain, strict=True)]
    fuse_views(views, BOUNDS, voxel_m=VOXEL_M)
    reconstruct_box(views, ObjectModel('red', (200, 40, 35), (0.05, 0.05, 0.05)))
    ours = seconds(lambda: fuse_views(views, BOUNDS, voxel_m=VOXEL_M), repeats=5)
    frame = seconds(lambda: reconstruct_box(views, ObjectModel('red', (200, 40, 35), (0.05, 0.05, 0.05))))
    try:
        import open3d
    except (ImportError, OSError):
        peer, call, target = 'numpy (Open3D is not installed)', lambda: _numpy_fuse(views), 1.5
    else:
        peer, call, target = f'Open3D {open3d.__version__}', lambda: _open3d_fuse(open3d, views), 1.5
    call()
    return against(
        'geometry/3 RGB-D views of 640x480 to 5 mm voxels',
        ours_s=ours,
        peer=peer,
        peer_s=seconds(call),
        target=target,
        work=f'fused and coloured; one box reconstructed from the same frames takes {1000 * frame:.0f} ms',
    )


def _open3d_fuse(open3d: Any, views: list[RgbdView]) -> Any:
    whole = open3d.geometry.PointCloud()
    for view in views:
        k = view.intrinsics_px
        height, width = view.depth_m.shape
        lens = open3d.camera.PinholeCameraIntrinsic(width, height, k[0, 0], k[1, 1], k[0, 2], k[1, 2])
        image = open3d.geometry.RGBDImage.create_from_color_and_depth(
            open3d.geometry.Image(view.rgb), open3d.geometry.Image(view.depth_m), depth_scale=1.0, depth_trunc=10.0,
            convert_rgb_to_intensity=False,
        )  # fmt: skip
        whole += open3d.geometry.PointCloud.create_from_rgbd_image(image, lens, np.linalg.inv(view.base_from_camera))
    whole = whole.crop(open3d.geometry.AxisAlignedBoundingBox(*BOUNDS))
    return whole.voxel_down_sample(VOXEL_M)


def _numpy_fuse(views: list[RgbdView]) -> Any:
    points, colors = [], []
    for view in views:
        v, u = np.nonzero(view.has_depth)
        k = view.intrinsics_px
        rays = np.stack([(u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], np.ones(len(u))], axis=1)
        points.append((rays * view.depth_m[v, u][:, None]) @ view.base_from_camera[:3, :3].T + view.position_m)
        colors.append(view.rgb[v, u])
    xyz, rgb = np.concatenate(points), np.concatenate(colors).astype(float)
    inside = ((xyz >= np.array(BOUNDS[0])) & (xyz < np.array(BOUNDS[1]))).all(axis=1)
    xyz, rgb = xyz[inside], rgb[inside]
    cell = np.floor((xyz - BOUNDS[0]) / VOXEL_M).astype(np.int64)
    key = (cell[:, 0] * 1000 + cell[:, 1]) * 1000 + cell[:, 2]
    _, index, count = np.unique(key, return_inverse=True, return_counts=True)
    return [np.bincount(index, weights=w) / count for w in (*xyz.T, *rgb.T)]
