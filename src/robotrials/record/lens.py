"""From what a depth camera sends to a pinhole view: its lens taken out, and its depth laid on its colour picture.

Cameras say their distortion as plumb_bob's five numbers (k1, k2, p1, p2, k3) or rational_polynomial's eight, as OpenCV
and ROS do. Views are pinhole pictures; a bent one is straightened once, when it comes in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robotrials.declaration import read_table
from robotrials.errors import InputError
from robotrials.value import dataclass

FloatArray = NDArray[np.floating[Any]]
MOST_SPREAD_PX = 8  # pixels of colour along an edge that one pixel of depth may fill


def bend(x: FloatArray, y: FloatArray, distortion: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """Where a lens puts the pinhole picture's normalised (x, y): the model of OpenCV and of ROS."""
    k1, k2, p1, p2, k3, k4, k5, k6 = (*distortion, *(0.0,) * (8 - len(distortion)))
    r2 = x * x + y * y
    radial = (1 + r2 * (k1 + r2 * (k2 + r2 * k3))) / (1 + r2 * (k4 + r2 * (k5 + r2 * k6)))
    return (
        x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
        y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
    )


def unbend(bent_x: FloatArray, bent_y: FloatArray, distortion: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """The inverse of `bend`, by fixed-point steps."""
    x, y = bent_x, bent_y
    for _ in range(12):
        again_x, again_y = bend(x, y, distortion)
        x, y = x + bent_x - again_x, y + bent_y - again_y
    return x, y


def check_distortion(distortion: Sequence[float], where: str) -> None:
    """Raise InputError unless these are numbers of a lens."""
    if len(distortion) > 8 or not np.isfinite(np.asarray(distortion, dtype=float)).all():
        raise InputError(f'{where}: distortion must be up to 8 finite numbers, found {list(distortion)}')


def straightened(
    rgb: NDArray[np.uint8], depth_m: FloatArray, k: FloatArray, distortion: Sequence[float], *, is_inverse: bool = False
) -> tuple[NDArray[np.uint8], FloatArray]:
    """The pinhole picture (H, W, 3) and depth (H, W) of what a lens has bent.

    `is_inverse`: the numbers undo the lens instead of describing it (RealSense's Inverse Brown Conrady).
    """
    if not any(distortion):
        return rgb, depth_m
    v, u = np.mgrid[0 : depth_m.shape[0], 0 : depth_m.shape[1]].astype(np.float64)
    move = unbend if is_inverse else bend
    x, y = move((u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1], distortion)
    return resampled(rgb, depth_m, rows=k[1, 1] * y + k[1, 2], columns=k[0, 0] * x + k[0, 2])


def resampled(
    rgb: NDArray[np.uint8], depth_m: FloatArray, *, rows: FloatArray, columns: FloatArray
) -> tuple[NDArray[np.uint8], FloatArray]:
    """A picture and its depth at other places; depth is taken from the nearest pixel and never mixed."""
    from scipy.ndimage import map_coordinates

    height, width = depth_m.shape
    row, column = np.rint(rows).astype(np.int64), np.rint(columns).astype(np.int64)
    is_in = (row >= 0) & (column >= 0) & (row < height) & (column < width)
    row, column = row.clip(0, height - 1), column.clip(0, width - 1)
    depth = np.where(is_in, depth_m[row, column], np.nan).astype(depth_m.dtype)
    planes = [map_coordinates(rgb[..., c], [rows, columns], order=1, mode='nearest') for c in range(3)]
    return np.stack(planes, axis=-1), depth


def aligned_depth(
    depth_m: FloatArray, depth_k: FloatArray, *, distortion: Sequence[float], color_from_depth: FloatArray,
    color_k: FloatArray, shape: tuple[int, int], is_inverse: bool = False,
) -> NDArray[np.float32]:  # fmt: skip
    """Depth (H, W) of a depth camera as the pinhole colour camera beside it would see it; NaN where nothing falls.

    Every pixel of depth fills the rectangle of colour pixels that its own corners fall on, and the nearest surface
    wins: holes would otherwise open where colour has the higher resolution, and things behind would show through.
    """
    v, u = np.nonzero(np.isfinite(depth_m) & (depth_m > 0))
    z = depth_m[v, u].astype(np.float64)
    low, high = (_projected(*_rays(u + s, v + s, depth_k, distortion, is_inverse), z, color_from_depth, color_k)
                 for s in (-0.5, 0.5))  # fmt: skip
    left, top = (np.rint(np.minimum(a, b)) for a, b in zip(low[:2], high[:2], strict=True))
    right, bottom = (np.rint(np.maximum(a, b)) for a, b in zip(low[:2], high[:2], strict=True))
    far = (low[2] + high[2]) / 2
    height, width = shape
    kept = (far > 0) & (right >= 0) & (bottom >= 0) & (left < width) & (top < height)
    kept &= (right - left <= MOST_SPREAD_PX) & (bottom - top <= MOST_SPREAD_PX)
    left, top, right, bottom = (a[kept].astype(np.int64) for a in (left, top, right, bottom))
    nearest = np.full(height * width, np.inf)
    widest, tallest = (int((b - a).max(initial=0)) for a, b in ((left, right), (top, bottom)))
    for down in range(tallest + 1):
        for across in range(widest + 1):
            row, column = top + down, left + across
            is_in = (row <= bottom) & (column <= right) & (row >= 0) & (column >= 0) & (row < height) & (column < width)
            np.minimum.at(nearest, row[is_in] * width + column[is_in], far[kept][is_in])
    return np.where(np.isfinite(nearest), nearest, np.nan).reshape(shape).astype(np.float32)


def _rays(
    u: FloatArray, v: FloatArray, k: FloatArray, distortion: Sequence[float], is_inverse: bool
) -> tuple[FloatArray, FloatArray]:
    x, y = (u - k[0, 2]) / k[0, 0], (v - k[1, 2]) / k[1, 1]
    return (bend if is_inverse else unbend)(x, y, distortion) if any(distortion) else (x, y)


def _projected(
    x: FloatArray, y: FloatArray, z: FloatArray, pose: FloatArray, k: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Columns, rows and depths in another camera of points on rays (x, y, 1) at depths z."""
    points = np.stack([x * z, y * z, z], axis=1) @ pose[:3, :3].T + pose[:3, 3]
    far = points[:, 2]
    ahead = np.where(far > 0, far, np.inf)  # what lies behind has no pixel, and is left out by its depth
    columns, rows = (np.clip(k[i, i] * points[:, i] / ahead + k[i, 2], -1e6, 1e6) for i in (0, 1))
    return columns, rows, far


# Where cameras stand: a file that hand-eye calibration writes, and that the depth host and the import of bags read.

POSE_SLACK = 1e-3
MOST_TEXT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraPose:
    """Where a camera was found to stand, by rows of 4: in the world, or on the gripper that carries it."""

    world_from_camera: tuple[float, ...] = ()
    gripper_from_camera: tuple[float, ...] = ()
    error_m: float | None = None  # standard error of its place, over all axes
    error_rad: float | None = None
    n_poses: int | None = None

    def __post_init__(self) -> None:
        if bool(self.world_from_camera) == bool(self.gripper_from_camera):
            raise InputError('wanted world_from_camera or gripper_from_camera, and not both')
        check_rigid(self.world_from_camera or self.gripper_from_camera, 'a camera pose')

    @property
    def matrix(self) -> NDArray[np.float64]:
        """(4, 4), in whichever of the two frames."""
        return np.reshape(self.world_from_camera or self.gripper_from_camera, (4, 4)).astype(np.float64)


def check_rigid(numbers: Sequence[float], what: str) -> None:
    """Raise InputError unless 16 numbers are a rotation and a place, by rows."""
    if len(numbers) != 16 or not np.isfinite(np.asarray(numbers, dtype=float)).all():
        raise InputError(f'{what} has {len(numbers)} numbers, wanted 16 finite ones')
    pose = np.reshape(np.asarray(numbers, dtype=float), (4, 4))
    turn = pose[:3, :3]
    is_turn = np.abs(turn @ turn.T - np.eye(3)).max() <= POSE_SLACK and np.linalg.det(turn) > 0
    if not is_turn or np.abs(pose[3] - (0, 0, 0, 1)).max() > POSE_SLACK:
        raise InputError(f'{what} is no rotation and place by rows (the last row is 0 0 0 1): {pose.round(4).tolist()}')


def read_camera_poses(path: Path) -> dict[str, CameraPose]:
    """The cameras of a file that `robotrials geometry calibrate` wrote, by name."""
    try:
        content = path.read_bytes()[: MOST_TEXT_BYTES + 1]
        values = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f'{path}: not readable as a file of camera poses ({error})') from error
    cameras = values.get('cameras') if isinstance(values, dict) else None
    if not isinstance(cameras, dict) or not cameras:
        raise InputError(f'{path}: wanted {{"cameras": {{NAME: {{"world_from_camera": [16 numbers]}}}}}}')
    return {str(name): read_table(CameraPose, pose, where=f'{path}: {name}') for name, pose in cameras.items()}


def camera_poses_json(poses: Mapping[str, CameraPose]) -> str:
    """The text of such a file."""
    names = ('world_from_camera', 'gripper_from_camera', 'error_m', 'error_rad', 'n_poses')
    rows = {name: {n: v for n in names if (v := getattr(pose, n))} for name, pose in poses.items()}
    return json.dumps({'cameras': rows}, indent=2, allow_nan=False) + '\n'
