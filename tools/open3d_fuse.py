"""Fuse RGB-D views into coloured voxels with Open3D, in its own environment; prints times and what came out as JSON.

python tools/open3d_fuse.py VIEWS.npz     rgb (K, H, W, 3), depth (K, H, W) float32 metres, intrinsics (K, 3, 3),
                                          pose (K, 4, 4) base-from-camera, low (3,), high (3,), voxel_m
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import open3d

REPEATS = 7


def legacy_points(data: Any) -> Any:
    """Point clouds of the legacy interface, added up, cropped and thinned to one mean point and colour a voxel."""
    whole = open3d.geometry.PointCloud()
    for rgb, depth, k, pose in zip(data['rgb'], data['depth'], data['intrinsics'], data['pose'], strict=True):
        lens = open3d.camera.PinholeCameraIntrinsic(depth.shape[1], depth.shape[0], k[0, 0], k[1, 1], k[0, 2], k[1, 2])
        image = open3d.geometry.RGBDImage.create_from_color_and_depth(
            open3d.geometry.Image(rgb), open3d.geometry.Image(depth), depth_scale=1.0, depth_trunc=10.0,
            convert_rgb_to_intensity=False,
        )  # fmt: skip
        whole += open3d.geometry.PointCloud.create_from_rgbd_image(image, lens, np.linalg.inv(pose))
    whole = whole.crop(open3d.geometry.AxisAlignedBoundingBox(data['low'], data['high']))
    return whole.voxel_down_sample(float(data['voxel_m']))


def legacy_summary(cloud: Any) -> tuple[int, Any, Any]:
    return len(cloud.points), np.asarray(cloud.points), 255 * np.asarray(cloud.colors)


def tensor_points(data: Any) -> Any:
    """The same through the tensor interface, which uses every core."""
    whole = None
    for rgb, depth, k, pose in zip(data['rgb'], data['depth'], data['intrinsics'], data['pose'], strict=True):
        image = open3d.t.geometry.RGBDImage(open3d.t.geometry.Image(rgb), open3d.t.geometry.Image(depth))
        cloud = open3d.t.geometry.PointCloud.create_from_rgbd_image(
            image, open3d.core.Tensor(k), open3d.core.Tensor(np.linalg.inv(pose)), depth_scale=1.0, depth_max=10.0
        )
        whole = cloud if whole is None else whole + cloud
    box = open3d.t.geometry.AxisAlignedBoundingBox(
        open3d.core.Tensor(data['low'].astype(np.float32)), open3d.core.Tensor(data['high'].astype(np.float32))
    )
    assert whole is not None
    return whole.crop(box).voxel_down_sample(float(data['voxel_m']))


def tensor_summary(cloud: Any) -> tuple[int, Any, Any]:
    color = cloud.point.colors.numpy().astype(float)
    return len(cloud.point.positions), cloud.point.positions.numpy(), color if color.max() > 1.5 else 255 * color


def tsdf_volume(data: Any) -> Any:
    """Integration into a sparse grid of signed distances: another result, for comparison of time only."""
    grid = open3d.t.geometry.VoxelBlockGrid(
        attr_names=('tsdf', 'weight', 'color'),
        attr_dtypes=(open3d.core.float32, open3d.core.float32, open3d.core.float32),
        attr_channels=((1), (1), (3)), voxel_size=float(data['voxel_m']), block_resolution=16, block_count=4000,
    )  # fmt: skip
    for rgb, depth, k, pose in zip(data['rgb'], data['depth'], data['intrinsics'], data['pose'], strict=True):
        picture, far = open3d.t.geometry.Image(rgb.astype(np.float32) / 255), open3d.t.geometry.Image(depth)
        lens, eye = open3d.core.Tensor(k), open3d.core.Tensor(np.linalg.inv(pose))
        blocks = grid.compute_unique_block_coordinates(far, lens, eye, 1.0, 10.0)
        grid.integrate(blocks, far, picture, lens, eye, 1.0, 10.0)
    return grid


def tsdf_summary(grid: Any) -> tuple[int, Any, Any]:
    cloud = grid.extract_point_cloud(weight_threshold=0.5)  # the default wants more than three views
    return len(cloud.point.positions), cloud.point.positions.numpy(), 255 * cloud.point.colors.numpy()


WAYS = {
    'point clouds': (legacy_points, legacy_summary),
    'tensor point clouds': (tensor_points, tensor_summary),
    'TSDF blocks': (tsdf_volume, tsdf_summary),
}


def main() -> None:
    data = dict(np.load(sys.argv[1]))
    report: dict[str, Any] = {'version': open3d.__version__, 'ways': {}}
    for name, (fuse, summarize) in WAYS.items():
        try:
            n, points, colors = summarize(fuse(data))
        except Exception as error:
            report['ways'][name] = {'error': f'{type(error).__name__}: {error}'.splitlines()[0]}
            continue
        best = float('inf')
        for _ in range(REPEATS):
            started = time.perf_counter()
            fuse(data)
            best = min(best, time.perf_counter() - started)
        inside = np.all((points >= data['low']) & (points <= data['high']), axis=1)
        report['ways'][name] = {
            'seconds': best, 'n': int(n), 'n_inside': int(inside.sum()),
            'mean_point': points[inside].mean(axis=0).tolist() if inside.any() else None,
            'mean_color': colors[inside].mean(axis=0).tolist() if inside.any() else None,
        }  # fmt: skip
    print(json.dumps(report))


if __name__ == '__main__':
    main()
