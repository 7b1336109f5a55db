"""Oriented-box IoU against manifold3d, RGB-D fusion against Open3D and numpy, and the score of an episode.

Open3D runs in its own environment (tools/peer_open3d.sh makes .peers/open3d, or ROBOTRIALS_OPEN3D_PYTHON names one);
without it that row is not measured and not kept.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import Result, against, seconds
from robotrials.measure.geometry import (
    ObjectModel,
    RgbdView,
    VoxelCloud,
    box_iou_arrays,
    fuse_views,
    reconstruct_box,
    rotation_from_quaternion,
)
from robotrials.testing.scene import DepthNoise, PaintedBox, look_at, render_view

ROOT = Path(__file__).resolve().parent.parent
PEERS = Path(os.environ.get('ROBOTRIALS_PEERS', ROOT / '.peers'))
OPEN3D_PYTHON = Path(os.environ.get('ROBOTRIALS_OPEN3D_PYTHON', PEERS / 'open3d' / 'bin' / 'python'))
PAIRS = 2000
VOXEL_M = 0.005
BOUNDS = ((-0.5, -0.5, -0.05), (0.5, 0.5, 0.4))


def run() -> list[Result]:
    return [
        *(_iou(*kind) for kind in (('random', _random_pairs), ('nearly coincident', _tilted_pairs))),
        *_fuse(),
        _score(),
    ]


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
        ious = np.empty(PAIRS)
        for i in range(PAIRS):
            solids = [
                Manifold.cube(pairs[k + 1][i], True).transform(np.hstack([pairs[k + 2][i], pairs[k][i][:, None]]))
                for k in (0, 3)
            ]
            shared = (solids[0] ^ solids[1]).volume()
            ious[i] = shared / (np.prod(pairs[1][i]) + np.prod(pairs[4][i]) - shared)
        return ious

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
    from robotrials.measure.geometry import Box

    return Box((x, y, 0.025), (0.05, 0.05, 0.05))


def _fuse() -> list[Result]:
    views = _views()
    # Open3D reads single precision depth with 0 for missing; all sides get the same arrays.
    plain = [np.nan_to_num(v.depth_m, nan=0.0, posinf=0.0).astype(np.float32) for v in views]
    views = [dataclasses.replace(v, depth_m=depth) for v, depth in zip(views, plain, strict=True)]
    cloud = fuse_views(views, BOUNDS, voxel_m=VOXEL_M)
    model = ObjectModel('red', (200, 40, 35), (0.05, 0.05, 0.05))
    reconstruct_box(views, model)

    def ours() -> float:
        return seconds(lambda: fuse_views(views, BOUNDS, voxel_m=VOXEL_M), repeats=9)

    before_s = ours()
    theirs = _open3d_report(views)
    ours_s = min(before_s, ours())
    frame_s = seconds(lambda: reconstruct_box(views, model))
    name = 'geometry/3 RGB-D views of 640x480 to 5 mm voxels'
    numpy_s = seconds(lambda: _numpy_fuse(views))
    work = f'{len(cloud)} coloured voxels; one box reconstructed from the same frames takes {1000 * frame_s:.0f} ms'
    rows = [against(f'{name}, numpy', ours_s=ours_s, peer='numpy', peer_s=numpy_s, target=1.5, work=work)]
    if theirs is None:
        print(f'not measured: {name} against Open3D; no {OPEN3D_PYTHON}, make it with tools/peer_open3d.sh')
        return rows
    return [_against_open3d(name, ours_s, theirs, cloud), *rows]


def _against_open3d(name: str, ours_s: float, theirs: dict[str, Any], cloud: VoxelCloud) -> Result:
    """Against the faster of Open3D's two ways to the same voxels; the one on our lattice must give the same voxels."""
    ways = theirs['ways']
    same = ways['tensor point clouds']
    wanted = [*cloud.point_m.mean(axis=0), *cloud.color.mean(axis=0) / 255]
    means = [*same['mean_point'], *(c / 255 for c in same['mean_color'])]
    if abs(same['n'] - len(cloud)) > 0.001 * len(cloud) or np.abs(np.subtract(wanted, means)).max() > 1e-4:
        raise SystemExit(f'Open3D fuses to {same}, ours to {len(cloud)} voxels with means {wanted}: not the same work')
    for way, answer in ways.items():
        if not answer.get('n_inside'):
            raise SystemExit(f'Open3D {way} gave nothing: {answer}; an empty volume is no peer')
    best = min(('point clouds', 'tensor point clouds'), key=lambda way: ways[way]['seconds'])
    times = ', '.join(f'{way} {1000 * w["seconds"]:.0f} ms for {w["n_inside"]}' for way, w in ways.items())
    return against(
        name,
        ours_s=ours_s,
        peer=f'Open3D {theirs["version"]}, {best}',
        peer_s=ways[best]['seconds'],
        target=1.5,
        work=f'{len(cloud)} coloured voxels on one thread; Open3D on all cores: {times} (TSDF: another result)',
    )


def _score() -> Result:
    """An episode of the demo's kind by three cameras, start and end, against the second of CPU that it may take."""
    from robotrials.measure.geometry.camera_score import score_episode
    from robotrials.worlds.cell.host import TabletopHost

    host = TabletopHost(state='privileged', watchers=('front', 'side', 'gallery'), watcher_noise='default')
    host.reset('bin_to_bin', seed=1)
    start, end, known = dict(host.views()), dict(host.views(is_over=True)), host.known_scene()
    host.close()
    score = score_episode(start, end, known)
    if score.success is not False:
        raise SystemExit(f'items that nobody moved were scored as {score}')
    return against(
        'geometry/score of an episode from three cameras', ours_s=seconds(lambda: score_episode(start, end, known)),
        peer='a budget of 1 s', peer_s=1.0, target=1.0, work='six views of 320x240: calibration, edges, warp and count',
    )  # fmt: skip


def _open3d_report(views: list[RgbdView]) -> dict[str, Any] | None:
    if not OPEN3D_PYTHON.exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'views.npz'
        np.savez(
            path,
            rgb=np.array([v.rgb for v in views]),
            depth=np.array([v.depth_m for v in views]),
            intrinsics=np.array([v.intrinsics_px for v in views]),
            pose=np.array([v.base_from_camera for v in views]),
            low=np.array(BOUNDS[0]),
            high=np.array(BOUNDS[1]),
            voxel_m=VOXEL_M,
        )
        command = [str(OPEN3D_PYTHON), str(ROOT / 'tools' / 'open3d_fuse.py'), str(path)]
        environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600, env=environment)
    report: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return report


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
