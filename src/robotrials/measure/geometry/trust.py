"""Where an object is, by checked cameras, and how far that may be off: the confidence of a reconstructed box.

Everything that a box rests on enters it: what its cameras' fit to the static scene leaves open, the distance between
what two views say, the offset of its outline from the object's pixels, and the evidence of the reconstruction itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from robotrials.errors import NotEstimable
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray, box_iou, box_iou_pairs
from robotrials.measure.geometry.fit import surface_distance
from robotrials.measure.geometry.segment import view_points
from robotrials.measure.geometry.view import RgbdView
from robotrials.value import dataclass

if TYPE_CHECKING:
    from robotrials.measure.geometry.calibration import CalibrationCheck
    from robotrials.measure.geometry.reconstruct import Reconstruction
    from robotrials.measure.geometry.segment import ObjectModel, StaticScene


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
        from robotrials.measure.geometry.calibration import Standing

        return max(c.residual_m for c in self.checks if c.standing is not Standing.REFUSED)

    @property
    def turn_rad(self) -> float:
        """What a camera may still be turned by, as a standard deviation."""
        from robotrials.measure.geometry.calibration import Standing

        return max(c.doubt_rad for c in self.checks if c.standing is not Standing.REFUSED) / 2

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
    from robotrials.measure.geometry.calibration import Standing, check_calibration

    checks = tuple(check_calibration(view, scene, parameters=parameters) for view in views)
    return CheckedViews(tuple(c.view for c in checks if c.standing is not Standing.REFUSED), checks, scene)


@dataclass(frozen=True, slots=True, eq=False)
class LocatedBox:
    """A box, how far it may be off (95 %), and what that rests on."""

    box: Box
    error_m: float
    agreement: ViewAgreement | None
    found: Reconstruction

    @property
    def confidence(self) -> float:
        """In [0, 1]: of the reconstruction, less where an error that is to be expected would make a wrong box.

        An ordering, no probability; docs/concepts/reconstruction-accuracy.md has how often a trusted box is wrong.
        """
        worst = min(box_iou_pairs([self.box] * len(WAYS), self.moved(self.error_m)))
        return self.found.confidence * self.drawn * min(1.0, float(worst) / RIGHT_IOU) ** STEEPNESS

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
        return reached, self.found.confidence * self.drawn * float(same.mean())


def locate(
    checked: CheckedViews, model: ObjectModel, *, start: Box | None = None, others: Sequence[Box] = ()
) -> LocatedBox:
    """Find an object of known colour and size in checked views; NotEstimable when it is not seen."""
    from robotrials.measure.geometry.reconstruct import identify, reconstruct_boxes
    from robotrials.measure.geometry.segment import supported_masks, whole_patches

    if not checked.views:
        raise NotEstimable(checked.refusal)
    views, tolerance_m = checked.views, checked.tolerance_m
    found = identify(
        reconstruct_boxes(views, model, tolerance_m=tolerance_m, scene=checked.scene), start, others=others
    )
    masks = supported_masks(views, model, checked.scene, tolerance_m=tolerance_m)
    outlines = whole_patches(views, model, masks)
    spread_m = max(2.5 * checked.residual_m, 0.0005)
    box = upright(found.box, found.cloud.point_m, tolerance_m=tolerance_m)
    if found.n_parts == 1:  # of several patches the outline would be of all
        box = laid_on_outlines(box, views, outlines=outlines, depth_spread_m=spread_m, turn_rad=checked.turn_rad)
    agreement = view_agreement(box, views, masks=masks, outlines=outlines, tolerance_m=tolerance_m)
    return LocatedBox(box, _error_m(checked, agreement), agreement, replace(found, box=box))


def upright(box: Box, points: FloatArray, *, tolerance_m: float) -> Box:
    """The box with a face down, where that explains the points as well: things at rest do not lean for nothing."""
    from robotrials.measure.geometry.fit import fit_cost, refine_box, rotation_of

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
    told = [agreement.cross_view_m or 0.0, agreement.reprojection_m or 0.0]
    excess = max(max(told) - max(OFFSET_SLACK_M, noise), 0.0)
    return noise + excess if agreement.n_views > 1 else 1.5 * noise + excess


# Do the views agree about a box? What a stale calibration shows in the object itself.

LEAST_POINTS = 12
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
        if int(near.sum()) >= LEAST_POINTS:
            shifts.append(_own_shift(points[near], box))
    if not shifts:
        return None
    apart = [
        float(np.linalg.norm((a - b) * np.minimum(ka, kb))) for i, (a, ka) in enumerate(shifts) for b, kb in shifts[:i]
    ]
    drawn = [o for view in views if (o := outline(box, view, outlines[view.name])) is not None]
    return ViewAgreement(
        max(apart) if apart else None, max((o.offset_m for o in drawn), default=None),
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
    jacobian: FloatArray = local @ turn.T
    return jacobian


def _own_shift(points: FloatArray, box: Box) -> tuple[FloatArray, FloatArray]:
    """How one view alone would move the box, along its edges, and how well it knows each (0 to 1)."""
    distance, gradient = surface_distance(points, box)
    inside = np.abs(distance) < 0.5 * float(box.size.min())
    if int(inside.sum()) < LEAST_POINTS:
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
    if int(seen.sum()) < LEAST_POINTS or int((covered & about & ~pixels).sum()) > 0.1 * n_drawn:
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
