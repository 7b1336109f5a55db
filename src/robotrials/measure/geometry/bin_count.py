"""How many objects of one look lie in a region, by the area they show: for a bin, where anywhere will do.

What one object shows is measured at the start, where the plan says they stand: pixels there that differ from what is
round them. At the end, pixels of the region that have changed since the start, and lie no higher than objects do, are
objects that came; pixels at the start places that have not changed are objects that stayed. Their colour is measured
at the start by the same camera; none is assumed.
Area varies with how an object lies, so its separate patches are counted in each picture, too.
Views are joined place by place: of each few square centimetres the view counts that shows most of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robotrials.measure.geometry.agreement import filled_hull
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray
from robotrials.measure.geometry.static_scene import IndexArray, view_points
from robotrials.measure.geometry.trust import CheckedViews
from robotrials.measure.geometry.view import RgbdView

MOST_STACKED = 2.0  # object heights above the surface: higher up is the arm, or held
CHANGED = 36.0  # distance of two colours, of 441
CELL_M = 0.025
LEAST_PIXELS = 12
LEAST_PIECE = 0.3  # of what one object shows: a smaller patch is none


@dataclass(frozen=True, slots=True)
class ObjectCount:
    """How many objects are shown, in units of what one showed at the start."""

    inside: float
    outside: float  # elsewhere: still at their start, or lying about
    hidden_share: float  # of the region, from every view
    apart: float  # largest difference between two views' own counts inside, where both see it all
    is_known: bool = True  # the objects could be made out at the start
    pieces: tuple[int, ...] = ()  # separate patches of the objects' colour inside, of every view


def count_objects(
    before: CheckedViews, after: CheckedViews, places: Sequence[Box], *, low_m: FloatArray, high_m: FloatArray
) -> ObjectCount:
    """Objects inside (low, high) at the end, of those that stood at `places` at the start."""
    height_m = float(min(min(p.size) for p in places))
    first = {v.name: v for v in before.views}
    unit, inside, outside = (dict[tuple[int, int], float]() for _ in range(3))
    free: set[tuple[int, int]] = set()
    own: list[float] = []
    pieces: list[int] = []
    for view in after.views:
        start = first.get(view.name)
        if start is None or start.depth_m.shape != view.depth_m.shape:
            continue
        here = _places_mask(start, places)
        look = _object_color(start, here, _ring(start, places) & ~here)
        if look is None:
            continue
        was = here & _is_nearer(start.rgb, look[0], look[1]) & start.has_depth
        changed = np.linalg.norm(view.rgb.astype(float) - start.rgb.astype(float), axis=2) > CHANGED
        # Where an object went, its shaded rim turns into what is round it: brighter, but not the object's colour.
        alike = changed & ~here & _is_nearer(view.rgb, look[0], start.rgb) & _is_nearer(view.rgb, look[0], look[1])
        floor = filled_hull(view.project(_floor_corners(low_m, high_m))[0], here.shape)
        low = _is_low(view, after, MOST_STACKED * height_m + after.tolerance_m, alike | was | floor)
        came, stayed = alike & low, was & ~changed & low
        pieces.append(_n_pieces(alike & floor, one_px=_one_px(start, was, len(places), view, floor)))
        _add(unit, _cells(start, was))
        _add(inside, arrived := _within(_cells(view, came), low_m, high_m))
        _add(outside, _cells(view, stayed))
        _add(outside, _elsewhere(_cells(view, came), low_m, high_m))
        seen = _within(_cells(view, low), low_m, high_m)
        free |= {cell for cell, area in seen.items() if area > 0.25 * CELL_M**2}
        alone = sum(_cells(start, was).values()) / len(places)
        if alone > 0 and len(seen) >= 0.9 * _n_cells(low_m, high_m):
            own.append(sum(arrived.values()) / alone)
    one = sum(unit.values()) / len(places)
    if one < 0.2 * height_m**2:
        return ObjectCount(0.0, 0.0, 1.0, 0.0, is_known=False)
    hidden = 1.0 - min(1.0, len(free) / _n_cells(low_m, high_m))
    apart = max(own) - min(own) if len(own) > 1 else 0.0
    return ObjectCount(sum(inside.values()) / one, sum(outside.values()) / one, hidden, apart, True, tuple(pieces))


def _one_px(start: RgbdView, was: BoolArray, n: int, view: RgbdView, floor: BoolArray) -> float:
    """The pixels that one object shows in the region: as many as at the start, by the square of the distance."""
    there = floor & view.has_depth
    if not was.any() or not there.any():
        return 0.0
    nearer = float(np.median(start.depth_m[was])) / float(np.median(view.depth_m[there]))
    return float(was.sum()) / n * nearer**2


def _n_pieces(mask: BoolArray, *, one_px: float) -> int:
    """Separate patches that are large enough to be an object; depth is not asked, so its holes split nothing."""
    from scipy.ndimage import label

    patches, n = label(mask, structure=np.ones((3, 3)))
    size = np.bincount(patches.ravel(), minlength=n + 1)[1:]
    return int((size >= max(LEAST_PIECE * one_px, 4)).sum()) if one_px > 0 else 0


def _places_mask(view: RgbdView, places: Sequence[Box]) -> BoolArray:
    mask = np.zeros(view.depth_m.shape, dtype=np.bool_)
    for place in places:
        mask |= filled_hull(view.project(place.corners)[0], mask.shape)
    return mask


def _ring(view: RgbdView, places: Sequence[Box]) -> BoolArray:
    grown = [Box(p.center, p.size * (1.6, 1.6, 1.0), p.rotation) for p in places]
    return _places_mask(view, grown)


def _object_color(view: RgbdView, inner: BoolArray, ring: BoolArray) -> tuple[FloatArray, FloatArray] | None:
    """The middle colour of the objects in a view, and of what is round them; None where they do not differ."""
    if not ring.any():
        return None
    colors = view.rgb.astype(float)
    about: FloatArray = np.median(colors[ring], axis=0)
    other = inner & (np.linalg.norm(colors - about, axis=2) > CHANGED)
    if int(other.sum()) < LEAST_PIXELS:
        return None
    own: FloatArray = np.median(colors[other], axis=0)
    return own, about


def _is_nearer(rgb: NDArray[np.uint8], to: FloatArray, than: FloatArray | NDArray[np.uint8]) -> BoolArray:
    """Pixels whose colour is nearer to one colour than to another."""
    colors = rgb.astype(float)
    nearer: BoolArray = np.linalg.norm(colors - to, axis=2) < np.linalg.norm(colors - np.asarray(than, float), axis=2)
    return nearer


def _floor_corners(low_m: FloatArray, high_m: FloatArray) -> FloatArray:
    return np.array([[x, y, low_m[2]] for x in (low_m[0], high_m[0]) for y in (low_m[1], high_m[1])])


def _is_low(view: RgbdView, checked: CheckedViews, limit_m: float, asked: BoolArray) -> BoolArray:
    """Of the pixels asked for, those whose points lie on or just above what stands fixed, and not on the floor."""
    rows, columns = np.nonzero(view.has_depth & asked)
    points = view_points(view, rows, columns)
    kept = (checked.scene.distance(points)[0] < limit_m) & (points[:, 2] > checked.scene.lowest_top_m - 0.03)
    low = np.zeros(view.depth_m.shape, dtype=np.bool_)
    low[rows[kept], columns[kept]] = True
    return low


def _cells(view: RgbdView, mask: BoolArray) -> dict[tuple[int, int], float]:
    """Area shown in each cell of the plane, by the masked pixels."""
    rows, columns = np.nonzero(mask & view.has_depth)
    if not len(rows):
        return {}
    points = view_points(view, rows, columns)
    at = np.floor(points[:, :2] / CELL_M).astype(np.int64)
    keys, which = np.unique(at, axis=0, return_inverse=True)
    areas = np.bincount(which.ravel(), weights=pixel_areas(view, rows, columns))
    return {(int(x), int(y)): float(area) for (x, y), area in zip(keys, areas, strict=True)}


def _add(joined: dict[tuple[int, int], float], cells: Mapping[tuple[int, int], float]) -> None:
    for cell, area in cells.items():
        joined[cell] = max(joined.get(cell, 0.0), area)


def _is_in(cell: tuple[int, int], low_m: FloatArray, high_m: FloatArray) -> bool:
    return all(low_m[k] <= (cell[k] + 0.5) * CELL_M <= high_m[k] for k in range(2))


def _within(
    cells: Mapping[tuple[int, int], float], low_m: FloatArray, high_m: FloatArray
) -> dict[tuple[int, int], float]:
    return {cell: area for cell, area in cells.items() if _is_in(cell, low_m, high_m)}


def _elsewhere(
    cells: Mapping[tuple[int, int], float], low_m: FloatArray, high_m: FloatArray
) -> dict[tuple[int, int], float]:
    """Cells well outside: what leans over the region's rim is not elsewhere."""
    rim = 2 * CELL_M
    return {cell: area for cell, area in cells.items() if not _is_in(cell, low_m - rim, high_m + rim)}


def _n_cells(low_m: FloatArray, high_m: FloatArray) -> int:
    spans = [np.arange(np.floor(low_m[k] / CELL_M), np.ceil(high_m[k] / CELL_M)) for k in range(2)]
    return sum(_is_in((int(x), int(y)), low_m, high_m) for x in spans[0] for y in spans[1])


def pixel_areas(view: RgbdView, rows: IndexArray, columns: IndexArray) -> FloatArray:
    """The area (N,) of a level surface that each pixel sees at its depth."""
    k = view.intrinsics_px
    rays = np.stack([(columns - k[0, 2]) / k[0, 0], (rows - k[1, 2]) / k[1, 1], np.ones(len(rows))], axis=1)
    down = np.abs(rays @ view.base_from_camera[2, :3])
    depth = view.depth_m[rows, columns].astype(np.float64)
    areas: FloatArray = depth**2 / (k[0, 0] * k[1, 1] * np.maximum(down, 0.05))
    return areas
