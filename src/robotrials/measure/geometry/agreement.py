"""Do the views agree about a box? What a stale calibration shows in the object itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.measure.geometry.box import BoolArray, Box, FloatArray
from robotrials.measure.geometry.fit import surface_distance
from robotrials.measure.geometry.static_scene import view_points
from robotrials.measure.geometry.view import RgbdView

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
