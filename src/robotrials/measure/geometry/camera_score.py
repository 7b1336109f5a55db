"""The score of an episode by its cameras alone: RGB-D of its start and end, and what was known of the scene.

Each goal is reached, missed, or cannot be told; what cannot be told leaves the episode unscored, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import NotEstimable
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray
from robotrials.measure.geometry.calibration import CalibrationCheck
from robotrials.measure.geometry.fit import weigh_evidence
from robotrials.measure.geometry.score import score_placement
from robotrials.measure.geometry.segment import IndexArray, ObjectModel, StaticScene, view_points
from robotrials.measure.geometry.trust import LEAST_CONFIDENCE, CheckedViews, check_views, filled_hull, locate
from robotrials.measure.geometry.view import RgbdView, view_from_camera
from robotrials.record.media import BoxGoal, KnownBox, KnownObject, KnownScene, RegionGoal, View

# How many objects of one look lie in a region, by the area they show: for a bin, where anywhere will do.
# What one object shows is measured at the start, where the plan says they stand: pixels there that differ from what is
# round them. At the end, pixels of the region that have changed since the start, and lie no higher than objects do,
# are objects that came; pixels at the start places that have not changed are objects that stayed. Their colour is
# measured at the start by the same camera; none is assumed. Area varies with how an object lies, so its separate
# patches are counted in each picture, too. Views are joined place by place: of each few square centimetres the view
# counts that shows most of it.

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


METHOD = 'reconstruction 2'  # changes whenever the same views may be scored otherwise
EMPTY_SHARE = 0.7  # of a target that must be seen through to call it empty
ONE_SHORT = 0.5  # half an object
SLACK = 0.1  # counts this near to a half are not told
MOST_HIDDEN = 0.1  # of a region, where an object could lie unseen


@dataclass(frozen=True, slots=True)
class GoalScore:
    """One goal by the cameras: reached, missed (False), or not told (None), with the reason."""

    goal: str
    reached: bool | None = None
    confidence: float = 0.0
    reason: str = ''
    iou: float | None = None
    translation_error_m: float | None = None
    error_m: float | None = None  # how far the box may be off (95 %)
    n_placed: int | None = None  # of a region


@dataclass(frozen=True, slots=True)
class CameraCheck:
    """What became of one camera's calibration at the end."""

    camera: str
    standing: str
    angle_deg: float | None = None
    residual_mm: float | None = None


@dataclass(frozen=True, slots=True)
class CameraScore:
    """An episode by its cameras. `success` is None where it cannot be told, and `reason` says why."""

    success: bool | None = None
    confidence: float = 0.0  # the least of what the verdict rests on; in [0, 1], an ordering
    reason: str = ''
    goals: tuple[GoalScore, ...] = ()
    cameras: tuple[CameraCheck, ...] = ()

    @property
    def iou(self) -> float | None:
        """The smallest overlap of any goal; None where one is not known."""
        found = [g.iou for g in self.goals]
        return min((v for v in found if v is not None), default=None) if None not in found else None


def unscored(reason: str, cameras: Sequence[CameraCheck] = (), goals: Sequence[GoalScore] = ()) -> CameraScore:
    """No score, because of `reason`."""
    return CameraScore(None, 0.0, reason, tuple(goals), tuple(cameras))


def score_episode(start: Mapping[str, View], end: Mapping[str, View], known: KnownScene) -> CameraScore:
    """Score the end of an episode; where the cameras do not bear a verdict out, it is unscored."""
    if not known.fixed:
        return unscored('nothing that stands fixed is known, so the cameras cannot be checked')
    scene = static_scene(known)
    after = check_views(_views(end), scene)
    cameras = tuple(_camera(c) for c in after.checks)
    if not after.views:
        return unscored(after.refusal, cameras)
    if known.region is not None:
        before = check_views(_views(start), scene)
        if not before.views:
            return unscored(f'at the start: {before.refusal}', cameras)
        goals: tuple[GoalScore, ...] = (_score_region(before, after, known, known.region),)
    else:
        goals = tuple(_score_goal(after, known, goal) for goal in known.goals)
    return _joined(goals, cameras)


def score_moment(views: Mapping[str, View], known: KnownScene) -> CameraScore:
    """The goals as they stand at one moment; only for goals that are boxes."""
    if known.region is not None:
        return unscored('a region is counted against the start; only boxes have an overlap over time')
    return score_episode(views, views, known)


def _joined(goals: Sequence[GoalScore], cameras: Sequence[CameraCheck]) -> CameraScore:
    """A missed goal is a failure whatever the others are; an untold one leaves the rest unscored."""
    if not goals:
        return unscored('no goal is known', cameras)
    missed = [g for g in goals if g.reached is False]
    if missed:
        return CameraScore(False, max(g.confidence for g in missed), '', tuple(goals), tuple(cameras))
    untold = [g for g in goals if g.reached is None]
    if untold:
        return unscored('; '.join(g.reason for g in untold), cameras, goals)
    return CameraScore(True, min(g.confidence for g in goals), '', tuple(goals), tuple(cameras))


def _score_goal(checked: CheckedViews, known: KnownScene, goal: BoxGoal) -> GoalScore:
    """A box by where the object stands; where that cannot be told, by whether the target is seen to be empty."""
    target, threshold = box_of(goal.box), known.threshold
    objects = {o.name: o for o in known.objects}
    if goal.object not in objects or threshold is None:
        return GoalScore(goal.object, None, 0.0, f'{goal.object}: its look or the threshold is not known')
    wanted = objects[goal.object]
    alike = [box_of(o.start) for o in known.objects if o.name != wanted.name and _looks_like(o, wanted)]
    try:
        if not wanted.is_box:
            raise NotEstimable(f'{wanted.name} is no plain box')
        found = locate(checked, model_of(wanted), start=box_of(wanted.start), others=alike)
    except NotEstimable as error:
        return _if_empty(checked, target, wanted, str(error))
    reached, confidence = found.verdict(target, threshold)
    if confidence < LEAST_CONFIDENCE:
        why = f'{wanted.name}: the verdict has a confidence of {confidence:.2f}, wanted {LEAST_CONFIDENCE:g}'
        return _if_empty(checked, target, wanted, why)
    score = score_placement(found.box, target, threshold=threshold)
    return GoalScore(
        wanted.name, reached, confidence, iou=score.iou, translation_error_m=score.translation_error_m,
        error_m=found.error_m,
    )  # fmt: skip


def _if_empty(checked: CheckedViews, target: Box, wanted: KnownObject, why: str) -> GoalScore:
    """Missed where the cameras see through the target; not told otherwise."""
    nothing = {view.name: np.zeros(view.depth_m.shape, dtype=np.bool_) for view in checked.views}
    seen = weigh_evidence(target, checked.views, masks=nothing, tolerance_m=checked.tolerance_m)
    through = seen_through(target, checked)
    if seen.contradiction > 0 and through >= EMPTY_SHARE:
        return GoalScore(wanted.name, False, through, f'its target is seen to be empty ({why})')
    return GoalScore(wanted.name, None, 0.0, why)


def seen_through(target: Box, checked: CheckedViews) -> float:
    """The least share, over the views, of the target's middle layer that a view sees through to what is behind."""
    grid = np.array([[x, y, z] for x in (-0.3, 0.0, 0.3) for y in (-0.3, 0.0, 0.3) for z in (0.0, 0.3)])
    points = target.center + (grid * target.size) @ target.rotation.T
    shares = []
    for view in checked.views:
        pixel, depth = view.project(points)
        u, v = np.rint(pixel).astype(int).T
        height, width = view.depth_m.shape
        if (depth <= 0).any() or (u < 0).any() or (v < 0).any() or (u >= width).any() or (v >= height).any():
            continue
        measured = view.depth_m[v, u]
        with np.errstate(invalid='ignore'):
            through = np.isfinite(measured) & (measured > depth + checked.tolerance_m)
        shares.append(float(through.mean()))
    return min(shares, default=0.0)


def _score_region(before: CheckedViews, after: CheckedViews, known: KnownScene, region: RegionGoal) -> GoalScore:
    """All objects of a look in a region: as much of them shown inside as all of them showed at the start."""
    objects = [o for o in known.objects if o.name in region.objects]
    name = f'{len(objects)} objects'
    if not objects or any(not _looks_like(o, objects[0]) for o in objects):
        return GoalScore(name, None, 0.0, 'objects of several looks cannot be counted in one region')
    places = [box_of(o.start) for o in objects]
    low, high = np.array(region.low_m), np.array(region.high_m)
    return region_verdict(count_objects(before, after, places, low_m=low, high_m=high), len(objects), name)


def region_verdict(count: ObjectCount, n: int, name: str) -> GoalScore:
    """Reached when all are shown inside and none elsewhere; missed when one is clearly elsewhere, or nowhere.

    What one object shows varies with where it lies, so counts near a half are not told; and a view must show as many
    separate pieces as there are objects, or else three that show much would pass for four.
    """
    if not count.is_known:
        return GoalScore(name, None, 0.0, 'the objects could not be made out at the start')
    placed = int(np.clip(round(count.inside), 0, n))
    missing = n - count.inside
    said = f'cameras show {count.inside:.1f} of {n} inside, {count.outside:.1f} elsewhere'
    if count.pieces:
        said += f', in {"/".join(map(str, count.pieces))} pieces by view'
    sure = 1.0 - min(1.0, count.apart / n)
    is_whole = n in count.pieces
    if count.outside > ONE_SHORT - SLACK and missing > ONE_SHORT / 2 and not is_whole:
        return GoalScore(name, False, sure, n_placed=min(placed, n - 1))
    few = max(count.pieces, default=0) < n
    if missing > 1 + ONE_SHORT + SLACK and count.hidden_share <= MOST_HIDDEN and few:
        return GoalScore(name, False, sure, n_placed=min(placed, n - 1))
    is_clear = count.outside < ONE_SHORT / 2
    if is_whole and is_clear and missing < 1 + ONE_SHORT:
        return GoalScore(name, True, max(sure, LEAST_CONFIDENCE), n_placed=n)
    if not count.pieces and is_clear and missing < ONE_SHORT + SLACK and sure >= LEAST_CONFIDENCE:
        return GoalScore(name, True, sure, n_placed=n)
    if count.hidden_share > MOST_HIDDEN:
        said = f'{100 * count.hidden_share:.0f} % of the region is hidden; {said}'
    return GoalScore(name, None, 0.0, said, n_placed=placed)


def _looks_like(a: KnownObject, b: KnownObject) -> bool:
    return a.color_rgb == b.color_rgb and sorted(a.start.size_m) == sorted(b.start.size_m)


def model_of(known: KnownObject) -> ObjectModel:
    red, green, blue = known.color_rgb
    x, y, z = known.start.size_m
    return ObjectModel(known.name, (red, green, blue), (x, y, z))


def box_of(known: KnownBox) -> Box:
    return Box(known.center_m, known.size_m, np.reshape(known.rotation, (3, 3)))


def static_scene(known: KnownScene) -> StaticScene:
    return StaticScene(tuple(box_of(b) for b in known.fixed), known.floor_z_m)


def _views(views: Mapping[str, View]) -> list[RgbdView]:
    return [view_from_camera(v.camera, v.rgb, depth_m=v.depth_m) for v in views.values()]


def _camera(check: CalibrationCheck) -> CameraCheck:
    is_known = bool(np.isfinite(check.angle_rad))
    return CameraCheck(
        check.camera, check.standing.value, float(np.degrees(check.angle_rad)) if is_known else None,
        1000 * check.residual_m if is_known else None,
    )  # fmt: skip
