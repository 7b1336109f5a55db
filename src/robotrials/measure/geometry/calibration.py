"""Is a camera where its calibration says, and how far off may an object be that such cameras locate?

Measured points are compared with the surfaces of the static scene. A robust point-to-plane fit turns the camera about
its centre (and moves it, with six parameters) until they agree; things that are not part of the scene are outliers.
The confidence of a reconstructed box rests on what its cameras' fits leave open, the distance between what two views
say, the offset of its outline from the object's pixels, and the evidence of the reconstruction itself.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import NotEstimable
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray, box_iou, box_iou_pairs
from robotrials.measure.geometry.fit import fit_cost, refine_box, rotation_of, surface_distance
from robotrials.measure.geometry.mask import StaticScene, supported_masks, view_points, whole_patches
from robotrials.measure.geometry.view import RgbdView
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.measure.geometry.mask import IndexArray, ObjectModel
    from robotrials.measure.geometry.reconstruct import Reconstruction


# Where a camera looks, by the edges of what stands fixed: colours have no depth noise.
# A table's plane says nothing of a turn about its normal; its edges in the picture do, to a fraction of a pixel.

SPACING_PX = 4.0
REACHES_PX = (5.0, 3.0, 2.0, 2.0)  # how far from its predicted place an edge is looked for, step by step
APART_PX = 5.0  # edges nearer to each other may be mistaken for one another
CONTRAST = 12.0  # in levels of 255: a weaker edge is none
PRIOR_RAD = 0.006  # how far off the fit to depth may be
LEAST_EDGE_POINTS = 40
VISIBLE_M = 0.012
CORNERS = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
EDGES = [(a, b) for a, b in combinations(range(8), 2) if np.abs(CORNERS[a] - CORNERS[b]).sum() == 1]


def fit_edges(view: RgbdView, scene: StaticScene) -> FloatArray | None:
    """The turn (3, 3) in the world, about the camera's centre, that lays the fixed edges where the picture has them.

    None where too few are seen.
    """
    points, along = visible_edges(view, scene)
    brightness = view.rgb.astype(np.float64)
    turn: FloatArray = np.eye(3)
    for reach in REACHES_PX:
        if len(points) < LEAST_EDGE_POINTS:
            return None
        # In the frame of the turned camera: the points turn the other way about its centre.
        axes = turn @ view.base_from_camera[:3, :3]
        local = (points - view.position_m) @ axes
        pixel, normal = _pixels(local, along @ axes, view)
        offset = edge_offsets(brightness, pixel, normal, reach)
        has_edge = np.isfinite(offset)
        if has_edge.sum() < LEAST_EDGE_POINTS:
            return None
        jacobian = np.einsum('nd,ndk->nk', normal[has_edge], _turned_pixels(local[has_edge], view))
        step = _robust(jacobian, offset[has_edge], width_px=reach)
        turn = axes @ rotation_of(step) @ view.base_from_camera[:3, :3].T
    return turn


def _robust(jacobian: FloatArray, offset: FloatArray, *, width_px: float) -> FloatArray:
    """The step that takes most offsets away (Tukey's weights), held near 0."""
    step = np.zeros(3)
    left = offset
    for _ in range(5):
        weight = (1 - np.clip(left / width_px, -1, 1) ** 2) ** 2
        normal = (jacobian * weight[:, None]).T @ jacobian + np.eye(3) / PRIOR_RAD**2
        step = np.linalg.solve(normal, (jacobian * weight[:, None]).T @ offset)
        left = offset - jacobian @ step
    return step


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
    return np.asarray(np.stack([u, v], axis=1))


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
    distances_px = np.linalg.norm(pixel[kept][:, None] - pixel[kept][None], axis=2)
    mine = owner[kept][:, None] == owner[kept][None]
    alone = kept[np.where(mine, np.inf, distances_px).min(axis=1, initial=np.inf) > APART_PX]
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
SHIFT_M = 0.005  # spread of what a mounted camera has moved by since it was calibrated
EDGE_DOUBT_RAD = math.radians(0.15)  # how far off a camera may be that was laid on edges (95 %)
WARP_STEP, WARP_LENGTH = 4, 0.08  # pixels, and the share of the height over which depth is off alike
WARP_HOLD = 0.02  # where hardly any of the static scene is seen, nothing is taken away


class CalibrationStanding(enum.StrEnum):
    """What became of a camera's calibration."""

    SOUND = 'sound'
    CORRECTED = 'corrected'
    REFUSED = 'refused'


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationCheck:
    """One camera against the static scene."""

    camera: str
    standing: CalibrationStanding
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
            view.name, CalibrationStanding.REFUSED, math.nan, math.nan, math.nan, 0.0, math.nan, view, reason
        )  # fmt: skip
    first = fit_camera(points, view, scene, parameters=parameters)
    corrected = moved_view(view, first)
    last, is_turned = first, first.angle_rad > ALARM_RAD
    if is_turned:
        last = fit_camera(static_points(corrected, scene), corrected, scene, parameters=parameters)
    edges = fit_edges(corrected, scene) if scene.boxes else None
    turn = first.turn
    if edges is not None:
        turn = edges @ turn
        corrected = turned_view(corrected, edges)
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
    standing = (
        CalibrationStanding.REFUSED
        if faults
        else CalibrationStanding.CORRECTED
        if is_turned
        else CalibrationStanding.SOUND
    )
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
    return np.asarray(points[near])


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
            if parameters == 6:  # a plane holds no shift along it; a calibration is seldom off by more
                normal[4:, 4:] += np.eye(3) / SHIFT_M**2
                rhs[4:] -= shift / SHIFT_M**2
            # A plane alone says nothing of a turn about its normal: that stays as it was calibrated.
            step = np.linalg.solve(normal + np.diag(np.maximum(1e-9 * np.diag(normal), 1e-9)), rhs)
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
    pose = turned_view(view, fit.turn).base_from_camera
    pose[:3, 3] += fit.shift_m
    with np.errstate(invalid='ignore'):
        depth = (view.depth_m * (1 + fit.bias_per_m * view.depth_m)).astype(view.depth_m.dtype)
    return replace(view, base_from_camera=pose, depth_m=depth)


LEAST_CONFIDENCE = 0.5
RIGHT_IOU = 0.6  # a box that overlaps the true one by less is wrong
LEAST_ERROR_M = 0.002
WHOLE_OUTLINE = 0.7  # overlap of drawn and seen outline below which a box is trusted less
STEEPNESS = 4  # of the fall of confidence where an error that is to be expected makes a wrong box
NOISE_FACTOR = 2.4  # error of a box over the residual of its cameras: 95 % are below 1.5, 99 % below 2
MOST_LEAN_RAD = math.radians(25)
LEAN_COST = 1.6  # mean square distance of a box that stands over that of one that leans: more is a lean
LEAN_SLACK_M = 0.0005
OFFSET_SLACK_M = 0.004  # offsets between views and outlines below this are pixels
WAYS = np.array([w for w in product((-1.0, 0.0, 1.0), repeat=3) if any(w)])
WAYS /= np.linalg.norm(WAYS, axis=1)[:, None]


@dataclass(frozen=True, slots=True, eq=False)
class CheckedViews:
    """The views of one moment after the check of their calibration; refused ones are left out."""

    views: tuple[RgbdView, ...]
    checks: tuple[CalibrationCheck, ...]
    scene: StaticScene

    @property
    def residual_m(self) -> float:
        return max(c.residual_m for c in self.checks if c.standing is not CalibrationStanding.REFUSED)

    @property
    def turn_rad(self) -> float:
        """What a camera may still be turned by, as a standard deviation."""
        return max(c.doubt_rad for c in self.checks if c.standing is not CalibrationStanding.REFUSED) / 2

    @property
    def tolerance_m(self) -> float:
        """How far a point may lie from its surface: about three times the noise that the static scene shows."""
        return float(np.clip(4.5 * self.residual_m, 0.006, 0.02))

    @property
    def refusal(self) -> str:
        """Why no view is left; empty when there is one."""
        return '' if self.views else '; '.join(c.reason for c in self.checks)


def check_views(views: Sequence[RgbdView], scene: StaticScene, *, parameters: int = 3) -> CheckedViews:
    """Check every view against what stands fixed, and keep those that may be trusted, corrected.

    With six parameters a camera may have moved, too, and not only turned.
    """
    checks = tuple(check_calibration(view, scene, parameters=parameters) for view in views)
    return CheckedViews(tuple(c.view for c in checks if c.standing is not CalibrationStanding.REFUSED), checks, scene)


@dataclass(frozen=True, slots=True, eq=False)
class LocatedBox:
    """A box, how far it may be off (95 %), and what that rests on."""

    box: Box
    error_m: float
    agreement: ViewAgreement | None
    reconstruction: Reconstruction

    @property
    def confidence(self) -> float:
        """In [0, 1]: of the reconstruction, less where an error that is to be expected would make a wrong box.

        An ordering, no probability; docs/concepts/reconstruction-accuracy.md has how often a trusted box is wrong.
        """
        worst = min(box_iou_pairs([self.box] * len(WAYS), self.moved(self.error_m)))
        return self.reconstruction.confidence * self.drawn * min(1.0, float(worst) / RIGHT_IOU) ** STEEPNESS

    @property
    def drawn(self) -> float:
        """In [0, 1]: how well its outline lies on the object's pixels; 1 where no view has it whole."""
        share = None if self.agreement is None else self.agreement.outline_share
        return 1.0 if share is None else min(1.0, share / WHOLE_OUTLINE) ** 2

    def moved(self, by_m: float) -> list[Box]:
        """The box moved by a length, each way."""
        return [Box(self.box.center + by_m * way, self.box.size, self.box.rotation) for way in WAYS]

    def verdict(self, target: Box, threshold: float) -> tuple[bool, float]:
        """Whether it overlaps the target enough, and how sure that is: the share of moved boxes that say the same."""
        reached = box_iou(self.box, target) > threshold
        moved = [b for share in (0.5, 1.0) for b in self.moved(share * self.error_m)]
        same = (box_iou_pairs(moved, [target] * len(moved)) > threshold) == reached
        return reached, self.reconstruction.confidence * self.drawn * float(same.mean())


def locate(
    checked: CheckedViews, model: ObjectModel, *, start: Box | None = None, others: Sequence[Box] = ()
) -> LocatedBox:
    """Find an object of known colour and size in checked views; NotEstimable when it is not seen."""
    from robotrials.measure.geometry.reconstruct import identify, reconstruct_boxes

    if not checked.views:
        raise NotEstimable(checked.refusal)
    views, tolerance_m = checked.views, checked.tolerance_m
    located = identify(
        reconstruct_boxes(views, model, tolerance_m=tolerance_m, scene=checked.scene), start, others=others
    )
    masks = supported_masks(views, model, checked.scene, tolerance_m=tolerance_m)
    outlines = whole_patches(views, model, masks)
    spread_m = max(2.5 * checked.residual_m, 0.0005)
    box = upright(located.box, located.cloud.point_m, tolerance_m=tolerance_m)
    if located.n_parts == 1:  # of several patches the outline would be of all
        box = laid_on_outlines(box, views, outlines=outlines, depth_spread_m=spread_m, turn_rad=checked.turn_rad)
    agreement = view_agreement(box, views, masks=masks, outlines=outlines, tolerance_m=tolerance_m)
    return LocatedBox(box, _error_m(checked, agreement), agreement, replace(located, box=box))


def upright(box: Box, points: FloatArray, *, tolerance_m: float) -> Box:
    """The box with a face down, where that explains the points as well: things at rest do not lean for nothing."""
    axis = int(np.argmax(np.abs(box.rotation[2])))
    up = box.rotation[:, axis] * np.sign(box.rotation[2, axis])
    lean = math.acos(min(1.0, float(up[2])))
    if lean > MOST_LEAN_RAD:
        return box
    about = np.cross(up, [0.0, 0.0, 1.0])
    turn = rotation_of(about / max(float(np.linalg.norm(about)), 1e-12) * lean)
    placed = Box(box.center, box.size, turn @ box.rotation)
    placed = refine_box(points, placed, tolerance_m=tolerance_m, turns=(axis,))
    free, stood = (fit_cost(points, b, tolerance_m) for b in (box, placed))
    return placed if stood <= LEAN_COST * free + LEAN_SLACK_M**2 else box


def _error_m(checked: CheckedViews, agreement: ViewAgreement | None) -> float:
    """How far off a box may be (95 %): the noise of its cameras, and what the views disagree by beyond it."""
    noise = math.hypot(LEAST_ERROR_M, NOISE_FACTOR * checked.residual_m)
    if agreement is None:
        return 2 * noise
    offset = max(agreement.cross_view_m or 0.0, agreement.reprojection_m or 0.0)
    excess = max(offset - max(OFFSET_SLACK_M, noise), 0.0)
    return noise + excess if agreement.n_views > 1 else 1.5 * noise + excess


# Do the views agree about a box? What a stale calibration shows in the object itself.

TRUST_LEAST_POINTS = 12
CLEAR_M = 0.03  # nearer than the object by so much is in front of it
LEAST_OVERLAP = 0.4  # of outline and pixels: below that they may be two objects
OUTLINE_SPREAD_PX = 0.5  # of the middle of an outline
HOLD = 0.02  # of the points' weight: a direction that a view does not see is not moved


@dataclass(frozen=True, slots=True)
class ViewAgreement:
    """How far views are from each other and from the box, in metres at the object."""

    cross_view_m: float | None  # largest distance between where two views have the object; None with one view
    reprojection_m: float | None  # largest offset of the box's outline from the object's pixels; None if none is whole
    outline_share: float | None  # smallest overlap of outline and pixels
    n_views: int  # that saw enough of it


def view_agreement(
    box: Box, views: Sequence[RgbdView], *, masks: Mapping[str, BoolArray], outlines: Mapping[str, BoolArray],
    tolerance_m: float,
) -> ViewAgreement | None:  # fmt: skip
    """Compare each view's own points and pixels with the box; None when no view saw enough of it.

    `masks` are pixels with depth, `outlines` the whole patches of the object's colour.
    """
    shifts: list[tuple[FloatArray, FloatArray]] = []
    reach = float(np.linalg.norm(box.size)) / 2 + 4 * tolerance_m
    for view in views:
        points = view_points(view, *np.nonzero(masks[view.name]))
        near = np.linalg.norm(points - box.center, axis=1) < reach
        if int(near.sum()) >= TRUST_LEAST_POINTS:
            shifts.append(_own_shift(points[near], box))
    if not shifts:
        return None
    distances_m = [
        float(np.linalg.norm((a - b) * np.minimum(ka, kb))) for i, (a, ka) in enumerate(shifts) for b, kb in shifts[:i]
    ]
    drawn = [o for view in views if (o := outline(box, view, outlines[view.name])) is not None]
    return ViewAgreement(
        max(distances_m) if distances_m else None, max((o.offset_m for o in drawn), default=None),
        min((o.overlap for o in drawn), default=None), len(shifts),
    )  # fmt: skip


def laid_on_outlines(
    box: Box, views: Sequence[RgbdView], *, outlines: Mapping[str, BoolArray], depth_spread_m: float, turn_rad: float,
    steps: int = 3,
) -> Box:  # fmt: skip
    """The box moved so that its outlines lie on the object's pixels, as far as its depth allows.

    `turn_rad` is what the cameras may still be turned by. Colours have no depth noise: two views hold a place across
    their lines of sight better than noisy depth does.
    """
    start = box
    for _ in range(steps):
        normal = np.eye(3) / depth_spread_m**2
        rhs = (start.center - box.center) / depth_spread_m**2
        for view in views:
            drawn = outline(box, view, outlines[view.name])
            if drawn is None or drawn.overlap < LEAST_OVERLAP:
                continue
            spread_px = OUTLINE_SPREAD_PX + turn_rad * view.intrinsics_px[0, 0]
            jacobian = _pixel_jacobian(box.center, view)
            normal += jacobian.T @ jacobian / spread_px**2
            rhs += jacobian.T @ drawn.offset_px / spread_px**2
        step = np.linalg.solve(normal, rhs)
        box = Box(box.center + step, box.size, box.rotation)
        if float(np.abs(step).max()) < 1e-4:
            break
    return box


def _pixel_jacobian(point: FloatArray, view: RgbdView) -> FloatArray:
    """How the pixel (u, v) of a point moves with it, (2, 3)."""
    turn, k = view.base_from_camera[:3, :3], view.intrinsics_px
    x, y, z = (point - view.position_m) @ turn
    local = np.array([[k[0, 0] / z, 0.0, -k[0, 0] * x / z**2], [0.0, k[1, 1] / z, -k[1, 1] * y / z**2]])
    return np.asarray(local @ turn.T)


def _own_shift(points: FloatArray, box: Box) -> tuple[FloatArray, FloatArray]:
    """How one view alone would move the box, along its edges, and how well it knows each (0 to 1)."""
    distance, gradient = surface_distance(points, box)
    inside = np.abs(distance) < 0.5 * float(box.size.min())
    if int(inside.sum()) < TRUST_LEAST_POINTS:
        return np.zeros(3), np.zeros(3)
    distance, gradient = distance[inside], gradient[inside]
    normal = gradient.T @ gradient
    total = float(len(distance))
    shift: FloatArray = np.linalg.solve(normal + HOLD * total * np.eye(3), gradient.T @ distance)
    known: FloatArray = np.diag(normal) / (np.diag(normal) + HOLD * total)
    return shift, known


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """A box drawn into a view, against the object's pixels."""

    offset_px: FloatArray  # (2,) from the drawn middle to the seen one, as (u, v)
    offset_m: float
    overlap: float


def outline(box: Box, view: RgbdView, pixels: BoolArray) -> Outline | None:
    """Compare the box's outline with the object's pixels about it; None where too little of it is in free sight."""
    pixel, depth = view.project(box.corners)
    if not (depth > 0).all():
        return None
    drawn = filled_hull(pixel, pixels.shape)
    with np.errstate(invalid='ignore'):
        covered = view.has_depth & (view.depth_m < float(depth.min()) - CLEAR_M)
    about = filled_hull(pixel.mean(axis=0) + 1.8 * (pixel - pixel.mean(axis=0)), pixels.shape)
    seen = pixels & about
    n_drawn = max(int(drawn.sum()), 1)
    # Part of it outside the picture, or behind something: its middle is not the object's.
    if int(seen.sum()) < TRUST_LEAST_POINTS or int((covered & about & ~pixels).sum()) > 0.1 * n_drawn:
        return None
    if int(seen.sum()) < 0.6 * n_drawn or (pixel < 1).any() or (pixel > np.array(pixels.shape[::-1]) - 2).any():
        return None
    middle = [np.array([axis.mean() for axis in np.nonzero(area)[::-1]]) for area in (seen, drawn)]
    offset = middle[0] - middle[1]
    overlap = float((seen & drawn).sum()) / float((seen | drawn).sum())
    return Outline(offset, float(np.linalg.norm(offset)) * float(depth.mean()) / view.intrinsics_px[0, 0], overlap)


def filled_hull(corners_px: FloatArray, shape: tuple[int, ...]) -> BoolArray:
    """The pixels inside the convex hull of points (N, 2) as (u, v)."""
    from scipy.spatial import ConvexHull, QhullError

    area = np.zeros(shape, dtype=np.bool_)
    low = np.maximum(np.floor(corners_px.min(axis=0)).astype(int), 0)
    high = np.minimum(np.ceil(corners_px.max(axis=0)).astype(int) + 1, (shape[1], shape[0]))
    if (low >= high).any():
        return area
    try:
        planes = ConvexHull(corners_px).equations
    except QhullError:
        return area
    v, u = np.mgrid[low[1] : high[1], low[0] : high[0]]
    inside = (planes[:, :2] @ np.stack([u.ravel(), v.ravel()]) + planes[:, 2:] <= 1e-9).all(axis=0)
    area[low[1] : high[1], low[0] : high[0]] = inside.reshape(u.shape)
    return area
