"""Is a camera where its calibration says? Found from what stands fixed, and corrected or refused.

Measured points are compared with the surfaces of the static scene. A robust point-to-plane fit turns the camera about
its centre (and moves it, with six parameters) until they agree; things that are not part of the scene are outliers.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace

import numpy as np

from robotrials.measure.geometry.box import FloatArray
from robotrials.measure.geometry.edge import fit_edges
from robotrials.measure.geometry.fit import rotation_of
from robotrials.measure.geometry.static_scene import StaticScene, view_points
from robotrials.measure.geometry.view import RgbdView

# Above what is found at a true error of 0 with units of the default stereo noise (99 % of 48 views: 0.38 degrees):
# smaller estimates are the unit's own depth bias as likely as a turned camera.
ALARM_RAD = math.radians(0.5)
MOST_RAD = math.radians(8.0)  # beyond it the fit may have settled on another surface
LEFT_RAD = math.radians(0.35)  # a second look at a corrected camera finds no more than this
LEAST_INLIERS = 0.8
LEAST_POINTS = 200
MOST_POINTS = 1600
FARTHEST_M = 0.2  # from every surface: no part of the static scene
SIGMA_M = 0.004  # of depth at one metre; it grows with the square of the range
BIAS_PER_M = 0.004  # spread over units of the bias in depth over the square of the range
INDEPENDENT_SHARE = 0.05  # of the points: noise and warp are correlated over the picture
WIDTHS_M = (0.15, 0.1, 0.06, 0.03, 0.02, 0.014)  # of the robust weights at one metre, narrowed step by step
STEPS_EACH = 4
NEARLY_M, NEARLY_WIDTH = 0.006, 3
SETTLED = 3e-5
EDGE_DOUBT_RAD = math.radians(0.15)  # how far off a camera may be that was laid on edges (95 %)
WARP_STEP, WARP_LENGTH = 4, 0.08  # pixels, and the share of the height over which depth is off alike
WARP_HOLD = 0.02  # where hardly any of the static scene is seen, nothing is taken away


class Standing(enum.StrEnum):
    """What became of a camera's calibration."""

    SOUND = 'sound'
    CORRECTED = 'corrected'
    REFUSED = 'refused'


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationCheck:
    """One camera against the static scene."""

    camera: str
    standing: Standing
    angle_rad: float  # by which its calibration was found to be off
    shift_m: float
    doubt_rad: float  # how far off it may still be (95 %)
    inlier_share: float  # of its points that lie on the static scene
    residual_m: float  # median distance of those, at one metre of range
    view: RgbdView  # with the calibration that is to be used
    reason: str = ''


@dataclass(frozen=True, slots=True, eq=False)
class CameraFit:
    """What lays a camera's points on the static scene, and how well they then lie."""

    turn: FloatArray  # (3, 3)
    shift_m: FloatArray  # (3,)
    bias_per_m: float
    inlier_share: float
    residual_m: float

    @property
    def angle_rad(self) -> float:
        return angle_of(self.turn)


def angle_of(turn: FloatArray) -> float:
    return float(np.arccos(np.clip((np.trace(turn) - 1) / 2, -1.0, 1.0)))


def check_calibration(view: RgbdView, scene: StaticScene, *, parameters: int = 3) -> CalibrationCheck:
    """Compare a view with what stands fixed; a turned camera is corrected and looked at again, or refused.

    The fit is applied in every case, since it is nearer to the truth than a stale calibration and than a unit's own
    bias; `standing` says whether it was more than noise.
    """
    points = static_points(view, scene)
    if len(points) < LEAST_POINTS:
        reason = f'camera {view.name}: {len(points)} points near what stands fixed, wanted {LEAST_POINTS}'
        return CalibrationCheck(
            view.name, Standing.REFUSED, math.nan, math.nan, math.nan, 0.0, math.nan, view, reason
        )  # fmt: skip
    first = fit_camera(points, view, scene, parameters=parameters)
    corrected = moved_view(view, first)
    last, is_turned = first, first.angle_rad > ALARM_RAD
    if is_turned:
        last = fit_camera(static_points(corrected, scene), corrected, scene, parameters=parameters)
    edges = fit_edges(corrected, scene) if parameters == 3 else None
    turn = first.turn
    if edges is not None:
        turn = edges.turn @ turn
        corrected = turned_view(corrected, edges.turn)
    corrected = flattened(corrected, scene)
    angle_rad = angle_of(turn)
    faults = []
    if angle_rad > MOST_RAD:
        faults.append(f'off by {math.degrees(angle_rad):.1f} degrees, wanted at most {math.degrees(MOST_RAD):g}')
    if is_turned and last.angle_rad > LEFT_RAD:
        faults.append(f'still off by {math.degrees(last.angle_rad):.1f} degrees after a correction')
    if last.inlier_share < LEAST_INLIERS:
        share = f'{100 * last.inlier_share:.0f} % of its points'
        faults.append(f'{share} lie on what stands fixed, wanted {100 * LEAST_INLIERS:.0f} %')
    standing = Standing.REFUSED if faults else Standing.CORRECTED if is_turned else Standing.SOUND
    return CalibrationCheck(
        view.name, standing, angle_rad, float(np.linalg.norm(first.shift_m)),
        doubt_rad(last.residual_m) if edges is None else EDGE_DOUBT_RAD, last.inlier_share, last.residual_m,
        view if faults else corrected,
        f'camera {view.name}: {"; ".join(faults)}' if faults else '',
    )  # fmt: skip


def doubt_rad(residual_m: float) -> float:
    """How far off a fitted camera may still be (95 %), by how well its points lie: measured, and grows as noise^2."""
    return math.radians(0.3) * max(residual_m / 0.0017, 0.3) ** 2


def static_points(view: RgbdView, scene: StaticScene) -> FloatArray:
    """Measured points (N, 3), evenly over the picture, that may belong to the static scene."""
    height, width = view.depth_m.shape
    step = max(1, int(math.sqrt(height * width / (2 * MOST_POINTS))))
    rows, columns = (g.ravel() for g in np.mgrid[step // 2 : height : step, step // 2 : width : step])
    known = view.has_depth[rows, columns]
    points = view_points(view, rows[known], columns[known])
    near = np.abs(scene.distance(points)[0]) < FARTHEST_M
    kept: FloatArray = points[near]
    return kept


def fit_camera(points: FloatArray, view: RgbdView, scene: StaticScene, *, parameters: int = 3) -> CameraFit:
    """The turn about the camera's centre, its depth bias, and with six parameters the shift, that fit the scene best.

    A bias in disparity moves a point at range z along its ray by `bias_per_m` z^2; without it in the fit it would pass
    for a turned camera. It is held near 0 by what units of the noise model have.
    """
    center, ahead = view.position_m, view.base_from_camera[:3, 2]
    turn, shift, bias = np.eye(3), np.zeros(3), 0.0
    start = points - center
    range_m = start @ ahead
    spread = SIGMA_M * np.maximum(range_m**2, 0.25)
    n_effective = len(points) * INDEPENDENT_SHARE
    off = np.abs(scene.distance(points)[0]) / (spread / SIGMA_M)
    # Most points on their surfaces already: the wide weights would only let in what is no part of the scene.
    for width_m in WIDTHS_M[NEARLY_WIDTH:] if float(np.median(off)) < NEARLY_M else WIDTHS_M:
        for _ in range(STEPS_EACH):
            unbiased = start * (1 + bias * range_m)[:, None]
            arms = unbiased @ turn.T
            distance, gradient = scene.distance(arms + center + shift)
            ratio = np.clip(distance / (width_m * spread / SIGMA_M), -1, 1)
            weight = (1 - ratio**2) ** 2 / spread**2 * (n_effective / len(points))
            along = np.einsum('nd,nd->n', gradient, start @ turn.T) * range_m
            jacobian = np.concatenate([np.cross(arms, gradient), along[:, None]], axis=1)
            if parameters == 6:
                jacobian = np.concatenate([jacobian, gradient], axis=1)
            normal = (jacobian * weight[:, None]).T @ jacobian
            rhs = -(jacobian * weight[:, None]).T @ distance
            normal[3, 3] += 1 / BIAS_PER_M**2
            rhs[3] -= bias / BIAS_PER_M**2
            step = np.linalg.solve(normal + np.diag(1e-9 * np.diag(normal)), rhs)
            turn = rotation_of(step[:3]) @ turn
            bias += float(step[3])
            shift = shift + step[4:] if parameters == 6 else shift
            if float(np.abs(step).max()) < SETTLED:
                break
    placed = (start * (1 + bias * range_m)[:, None]) @ turn.T + center + shift
    distance = np.abs(scene.distance(placed)[0]) / (spread / SIGMA_M)
    inlier = distance < WIDTHS_M[-1]
    residual = float(np.median(distance[inlier])) if inlier.any() else math.inf
    return CameraFit(turn, shift, bias, float(inlier.mean()), residual)


def turned_view(view: RgbdView, turn: FloatArray) -> RgbdView:
    """The view with its camera turned about its own centre."""
    pose = view.base_from_camera.copy()
    pose[:3, :3] = turn @ pose[:3, :3]
    return replace(view, base_from_camera=pose)


def flattened(view: RgbdView, scene: StaticScene) -> RgbdView:
    """The view without the smooth part of its depth's error, as the static scene about each pixel shows it.

    Errors of stereo depth are smooth in disparity, that is in the inverse of depth; objects and arm are left out.
    """
    from scipy.ndimage import gaussian_filter, zoom

    empty = scene.depth(view, step=WARP_STEP)
    measured = view.depth_m[::WARP_STEP, ::WARP_STEP].astype(np.float64)
    with np.errstate(invalid='ignore', divide='ignore'):
        off = 1 / measured - 1 / empty
        on_scene = np.isfinite(off) & np.isfinite(empty) & (np.abs(off) < WIDTHS_M[-1])
    length = WARP_LENGTH * view.depth_m.shape[0] / WARP_STEP
    weight = gaussian_filter(on_scene.astype(np.float64), length)
    smooth = gaussian_filter(np.where(on_scene, off, 0.0), length) / (weight + WARP_HOLD)
    height, width = view.depth_m.shape
    full = zoom(smooth, WARP_STEP, order=1, grid_mode=False)[:height, :width]
    full = np.pad(full, [(0, height - full.shape[0]), (0, width - full.shape[1])], mode='edge')
    with np.errstate(invalid='ignore', divide='ignore'):
        depth = 1 / (1 / view.depth_m - full)
    return replace(view, depth_m=np.where(depth > 0, depth, np.nan).astype(view.depth_m.dtype))


def moved_view(view: RgbdView, fit: CameraFit) -> RgbdView:
    """The view as a fit has it: its camera turned about its own centre and shifted, its depth without the bias."""
    pose = view.base_from_camera.copy()
    pose[:3, :3] = fit.turn @ pose[:3, :3]
    pose[:3, 3] += fit.shift_m
    with np.errstate(invalid='ignore'):
        depth = (view.depth_m * (1 + fit.bias_per_m * view.depth_m)).astype(view.depth_m.dtype)
    return replace(view, base_from_camera=pose, depth_m=depth)
