"""How many objects of one look lie in a region, by the pieces they show: for a bin, where anywhere will do.

What the objects look like is measured at the start, where the plan says they stand: their colour, and how much of their
box's outline they fill. At the end every patch of that colour is located by its depth and weighed: the pixels it has
over those that one object would show there. Objects that touch show one patch of twice the size, and an object before
the region in one picture is not in it, wherever it is drawn.
Each view counts by itself; the one that looks down most steeply hides and foreshortens least, and counts first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robotrials.measure.geometry.agreement import filled_hull
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray
from robotrials.measure.geometry.static_scene import view_points
from robotrials.measure.geometry.trust import CheckedViews
from robotrials.measure.geometry.view import RgbdView

MOST_STACKED = 2.0  # object heights above what stands fixed: higher up is the arm, or held
CHANGED = 36.0  # distance of two colours, of 441
LEAST_PIXELS = 12
LEAST_PIECE = 0.2  # of what one object shows: a smaller patch is none
LEAST_LOCATED = 0.3  # of a patch's pixels that must have depth
SLACK_PX = 2  # that an outline may be off
BORDER_M = 0.005  # a middle this near to the border may lie on either side
GRID = 12  # points along a region's edge, to see how much of it is hidden
YAWS = np.linspace(0, math.pi, 6, endpoint=False)


@dataclass(frozen=True, slots=True)
class Piece:
    """A patch of the objects' colour: how many objects it is by its pixels, and where."""

    n: float
    inside: float  # share of it over the region
    beyond_m: float  # from the region's border to its middle; negative inside

    @property
    def n_objects(self) -> int:
        return round(self.n)

    @property
    def n_inside(self) -> int:
        """A single object is where its middle is; of several that touch, the share over the region."""
        return int(self.beyond_m < 0) if self.n_objects == 1 else round(self.n_objects * self.inside)


@dataclass(frozen=True, slots=True)
class ViewCount:
    """What one view shows of the objects at the end."""

    view: str
    pieces: tuple[Piece, ...]
    hidden_share: float  # of the region, behind something or out of the picture
    steepness: float  # sine of the angle at which it looks down on the region

    @property
    def n_inside(self) -> int:
        return sum(p.n_inside for p in self.pieces)

    @property
    def n_outside(self) -> int:
        return sum(p.n_objects - p.n_inside for p in self.pieces)

    @property
    def is_clear(self) -> bool:
        """Whether no piece lies on the region's border."""
        return not any(p.n_objects == 1 and abs(p.beyond_m) < BORDER_M for p in self.pieces)


def count_objects(
    before: CheckedViews, after: CheckedViews, places: Sequence[Box], *, low_m: FloatArray, high_m: FloatArray
) -> tuple[ViewCount, ...]:
    """What each view shows inside (low, high) and elsewhere at the end, of the objects that stood at `places`.

    The steepest view first; a view in which the objects could not be made out at the start is left out.
    """
    first = {v.name: v for v in before.views}
    counts = []
    for view in after.views:
        start = first.get(view.name)
        if start is None or start.depth_m.shape != view.depth_m.shape:
            continue
        count = _count_view(start, view, after, places, low_m, high_m)
        if count is not None:
            counts.append(count)
    return tuple(sorted(counts, key=lambda c: -c.steepness))


def _count_view(
    start: RgbdView, view: RgbdView, checked: CheckedViews, places: Sequence[Box], low_m: FloatArray, high_m: FloatArray
) -> ViewCount | None:
    spots = [filled_hull(start.project(place.corners)[0], start.depth_m.shape) for place in places]
    here = np.logical_or.reduce(spots)
    look = _object_look(start, here, _ring(start, places) & ~here)
    if look is None:
        return None
    own, about = look
    stood = _is_nearer(start.rgb, own, about)
    fill = _fill(stood, spots)
    was = stood & _grown(here)
    changed = np.linalg.norm(view.rgb.astype(float) - start.rgb.astype(float), axis=2) > CHANGED
    # Where an object went, its shaded rim turns into what is round it: brighter, but not the object's colour.
    came = changed & ~was & _is_nearer(view.rgb, own, start.rgb)
    objects = _is_nearer(view.rgb, own, about) & (was | came)
    pieces = _pieces(view, checked, objects, places[0], fill, low_m, high_m)
    middle = np.append((low_m + high_m)[:2] / 2, low_m[2])
    away = view.position_m - middle
    return ViewCount(
        view.name, pieces, _hidden_share(view, places[0], low_m, high_m), float(away[2] / np.linalg.norm(away))
    )


def _fill(stood: BoolArray, spots: Sequence[BoolArray]) -> float:
    """Pixels of one object over those of its box's outline: the middle one, since an arm may hide some.

    The outline is widened by what the calibration leaves open, which is much of a thing of five pixels.
    """
    return float(np.median([(stood & _grown(spot)).sum() / max(int(spot.sum()), 1) for spot in spots]))


def _grown(mask: BoolArray) -> BoolArray:
    from scipy.ndimage import binary_dilation

    grown: BoolArray = binary_dilation(mask, iterations=SLACK_PX)
    return grown


def _pieces(
    view: RgbdView,
    checked: CheckedViews,
    mask: BoolArray,
    model: Box,
    fill: float,
    low_m: FloatArray,
    high_m: FloatArray,
) -> tuple[Piece, ...]:
    """Separate patches that are large enough to be an object and lie no higher than objects do."""
    from scipy.ndimage import find_objects, label

    patches, _ = label(mask, structure=np.ones((3, 3)))
    pieces = []
    height_m = float(model.bounds[1][2] - model.bounds[0][2])
    limit_m = MOST_STACKED * height_m + checked.tolerance_m
    for number, window in enumerate(find_objects(patches), start=1):
        rows, columns = np.nonzero(patches[window] == number)
        rows, columns = rows + window[0].start, columns + window[1].start
        if len(rows) < 4:
            continue
        known = view.has_depth[rows, columns]
        if known.mean() < LEAST_LOCATED:
            continue
        points = view_points(view, rows[known], columns[known])
        middle = np.median(points, axis=0)
        low = (checked.scene.distance(points)[0] < limit_m) & (points[:, 2] > checked.scene.lowest_top_m - 0.03)
        if low.mean() < 0.5:
            continue
        one_px = fill * _outline_px(view, model, middle)
        if one_px < 4 or len(rows) < LEAST_PIECE * one_px:
            continue
        beyond = _beyond_m(points, low_m, high_m)
        pieces.append(
            Piece(len(rows) / one_px, float((beyond < 0).mean()), float(_beyond_m(middle[None], low_m, high_m)[0]))
        )
    return tuple(pieces)


def _outline_px(view: RgbdView, model: Box, middle: FloatArray) -> float:
    """Pixels inside the outline of the object's box about a place, over the ways it may be turned."""
    from scipy.spatial import ConvexHull

    areas = []
    for yaw in YAWS:
        c, s = math.cos(yaw), math.sin(yaw)
        turn = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]) @ model.rotation
        pixel, depth = view.project(Box(middle, model.size, turn).corners)
        if not (depth > 0).all():
            return 0.0
        areas.append(float(ConvexHull(pixel).volume))
    return float(np.mean(areas))


def _beyond_m(points: FloatArray, low_m: FloatArray, high_m: FloatArray) -> FloatArray:
    """How far points (N, 3) lie beyond the region's sides, seen from above; negative inside."""
    beyond: FloatArray = np.maximum(low_m[:2] - points[:, :2], points[:, :2] - high_m[:2]).max(axis=1)
    return beyond


def _hidden_share(view: RgbdView, model: Box, low_m: FloatArray, high_m: FloatArray) -> float:
    """How much of the region's floor is behind something higher than objects are, or out of the picture."""
    height_m = float(model.bounds[1][2] - model.bounds[0][2])
    x, y = (np.linspace(low_m[k], high_m[k], GRID + 2)[1:-1] for k in range(2))
    points = np.array([[a, b, low_m[2]] for a in x for b in y])
    pixel, depth = view.project(points)
    u, v = np.rint(pixel).astype(int).T
    rows, columns = view.depth_m.shape
    is_in = (depth > 0) & (u >= 0) & (v >= 0) & (u < columns) & (v < rows)
    measured = view.depth_m[np.where(is_in, v, 0), np.where(is_in, u, 0)]
    away = view.position_m - points
    # What is nearer by more than a stack of objects would be is something else.
    nearer = (MOST_STACKED + 1) * height_m * np.linalg.norm(away, axis=1) / away[:, 2]
    with np.errstate(invalid='ignore'):
        covered = np.isfinite(measured) & (measured < depth - nearer)
    return float((~is_in | covered).mean())


def _places_mask(view: RgbdView, places: Sequence[Box]) -> BoolArray:
    mask = np.zeros(view.depth_m.shape, dtype=np.bool_)
    for place in places:
        mask |= filled_hull(view.project(place.corners)[0], mask.shape)
    return mask


def _ring(view: RgbdView, places: Sequence[Box]) -> BoolArray:
    grown = [Box(p.center, p.size * (1.6, 1.6, 1.0), p.rotation) for p in places]
    return _places_mask(view, grown)


def _object_look(view: RgbdView, inner: BoolArray, ring: BoolArray) -> tuple[FloatArray, FloatArray] | None:
    """The colours (K, 3) that the objects show in a view, and the one (1, 3) of what is round them.

    Faces that are lit differently, and things of several colours, have several. None where they do not differ.
    """
    if not ring.any():
        return None
    colors = view.rgb.astype(float)
    about: FloatArray = np.median(colors[ring], axis=0)
    other = inner & (np.linalg.norm(colors - about, axis=2) > CHANGED)
    if int(other.sum()) < LEAST_PIXELS:
        return None
    own = colors[other]
    centers: FloatArray = own[np.argsort(own.sum(axis=1))[[len(own) // 6, len(own) // 2, 5 * len(own) // 6]]]
    for _ in range(8):
        nearest = np.argmin(np.linalg.norm(own[:, None] - centers, axis=2), axis=1)
        centers = np.array(
            [own[nearest == k].mean(axis=0) if (nearest == k).any() else c for k, c in enumerate(centers)]
        )
    return centers, about[None]


def _is_nearer(rgb: NDArray[np.uint8], to: FloatArray, than: FloatArray | NDArray[np.uint8]) -> BoolArray:
    """Pixels whose colour is nearer to one of some colours (K, 3) than to any of others, or to those of a picture."""
    colors = rgb.astype(float)
    own = np.min([np.linalg.norm(colors - c, axis=2) for c in to], axis=0)
    others = [than.astype(float)] if than.ndim == 3 else list(than)
    nearer: BoolArray = own < np.min([np.linalg.norm(colors - c, axis=2) for c in others], axis=0)
    return nearer
