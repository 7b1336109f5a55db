"""The score of an episode by its cameras alone: RGB-D of its start and end, and what was known of the scene.

Each goal is reached, missed, or cannot be told; what cannot be told leaves the episode unscored, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from robotrials.errors import NotEstimable
from robotrials.measure.geometry.box import BoolArray, Box, FloatArray, about_z
from robotrials.measure.geometry.calibration import (
    LEAST_CONFIDENCE,
    CalibrationCheck,
    CheckedViews,
    check_views,
    filled_hull,
    locate,
)
from robotrials.measure.geometry.fit import weigh_evidence
from robotrials.measure.geometry.mask import ObjectModel, StaticScene, view_points
from robotrials.measure.geometry.score import score_placement
from robotrials.measure.geometry.view import RgbdView, view_from_camera
from robotrials.record.footage import BoxGoal, KnownBox, KnownObject, KnownScene, RegionGoal, View
from robotrials.value import dataclass

# How many objects of one look lie in a region, by the pieces they show: for a bin, where anywhere will do.
# What the objects look like is measured at the start, where the plan says they stand: their colour, and how much of
# their box's outline they fill. At the end every patch of that colour is located by its depth and weighed: the pixels
# it has over those that one object would show there. Objects that touch show one patch of twice the size, and an
# object before the region in one picture is not in it, wherever it is drawn. Each view counts by itself; the one that
# looks down most steeply hides and foreshortens least, and counts first.

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
class ColourPatch:
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
    pieces: tuple[ColourPatch, ...]
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
    grown = [Box(p.center, p.size * (1.6, 1.6, 1.0), p.rotation) for p in places]
    spots, rings = (
        [filled_hull(start.project(box.corners)[0], start.depth_m.shape) for box in boxes] for boxes in (places, grown)
    )
    here = np.logical_or.reduce(spots)
    look = _object_look(start, here, np.logical_or.reduce(rings) & ~here)
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

    return np.asarray(binary_dilation(mask, iterations=SLACK_PX))


def _pieces(
    view: RgbdView,
    checked: CheckedViews,
    mask: BoolArray,
    model: Box,
    fill: float,
    low_m: FloatArray,
    high_m: FloatArray,
) -> tuple[ColourPatch, ...]:
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
            ColourPatch(
                len(rows) / one_px, float((beyond < 0).mean()), float(_beyond_m(middle[None], low_m, high_m)[0])
            )
        )
    return tuple(pieces)


def _outline_px(view: RgbdView, model: Box, middle: FloatArray) -> float:
    """Pixels inside the outline of the object's box about a place, over the ways it may be turned."""
    from scipy.spatial import ConvexHull

    areas = []
    for yaw in YAWS:
        pixel, depth = view.project(Box(middle, model.size, about_z(yaw) @ model.rotation).corners)
        if not (depth > 0).all():
            return 0.0
        areas.append(float(ConvexHull(pixel).volume))
    return float(np.mean(areas))


def _beyond_m(points: FloatArray, low_m: FloatArray, high_m: FloatArray) -> FloatArray:
    """How far points (N, 3) lie beyond the region's sides, seen from above; negative inside."""
    return np.asarray(np.maximum(low_m[:2] - points[:, :2], points[:, :2] - high_m[:2]).max(axis=1))


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
    return np.asarray(own < np.min([np.linalg.norm(colors - c, axis=2) for c in others], axis=0))


METHOD = 'reconstruction 4'  # changes whenever the same views may be scored otherwise
EMPTY_SHARE = 0.7  # of a target that must be seen through to call it empty
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
    error_rad: float | None = None  # of an object with a shape: how far it may be turned (95 %)
    size_m: tuple[float, ...] | None = None  # its edges, as measured where they were not known
    error_size: float | None = None  # share by which they may be off (95 %)


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
    masks_by: str = ''  # who said which pixels are whose: a segmenter, or the simulation itself (`oracle_masks`)

    @property
    def iou(self) -> float | None:
        """The smallest overlap of any goal; None where one is not known."""
        known = [g.iou for g in self.goals if g.iou is not None]
        return min(known, default=None) if len(known) == len(self.goals) else None


def unscored(reason: str, cameras: Sequence[CameraCheck] = (), goals: Sequence[GoalScore] = ()) -> CameraScore:
    """No score, because of `reason`."""
    return CameraScore(None, 0.0, reason, tuple(goals), tuple(cameras))


def score_episode(
    start: Mapping[str, View], end: Mapping[str, View], known: KnownScene,
    *, masks: Mapping[str, Mapping[str, BoolArray]] | None = None,
) -> CameraScore:  # fmt: skip
    """Score the end of an episode; where the cameras do not bear a verdict out, it is unscored.

    Objects that have a shape are registered: on their `masks` (by object, then by view) where they are given.
    """
    if not known.fixed and known.floor_z_m is None:
        return unscored('nothing that stands fixed is known, so the cameras cannot be checked')
    scene = static_scene(known)
    has_shapes = bool(known.poses) or any(o.shape for o in known.objects)
    after = check_views(_views(end), scene, parameters=6 if has_shapes else 3)
    cameras = tuple(_camera(c) for c in after.checks)
    if not after.views:
        return unscored(after.refusal, cameras)
    if has_shapes:
        from robotrials.measure.geometry.predicate import score_solids

        return _joined(score_solids(after, known, masks or {}), cameras)
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
    alike = [box_of(o.start) for o in known.objects if o.name != wanted.name and looks_like(o, wanted)]
    try:
        if not wanted.is_box:
            raise NotEstimable(f'{wanted.name} is not a plain box')
        located = locate(checked, model_of(wanted), start=box_of(wanted.start), others=alike)
    except NotEstimable as error:
        return _if_empty(checked, target, wanted, str(error))
    reached, confidence = located.verdict(target, threshold)
    if confidence < LEAST_CONFIDENCE:
        why = f'{wanted.name}: the verdict has a confidence of {confidence:.2f}, wanted {LEAST_CONFIDENCE:g}'
        return _if_empty(checked, target, wanted, why)
    score = score_placement(located.box, target, threshold=threshold)
    return GoalScore(
        wanted.name, reached, confidence, iou=score.iou, translation_error_m=score.translation_error_m,
        error_m=located.error_m,
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
    """All objects of a look in a region, by the pieces that each view shows inside and elsewhere."""
    objects = [o for o in known.objects if o.name in region.objects]
    name = f'{len(objects)} objects'
    if not objects or any(not looks_like(o, objects[0]) for o in objects):
        return GoalScore(name, None, 0.0, 'objects of several looks cannot be counted in one region')
    places = [box_of(o.start) for o in objects]
    low, high = np.array(region.low_m), np.array(region.high_m)
    return region_verdict(count_objects(before, after, places, low_m=low, high_m=high), len(objects), name)


def region_verdict(counts: Sequence[ViewCount], n: int, name: str) -> GoalScore:
    """Reached when all are shown inside, missed when one is shown elsewhere or nowhere; the steepest view comes first.

    A view that shows as many objects as there are has accounted for each: it tells where they are. Others miss what is
    hidden, or take an object that is held up for a part of one behind it; so one such view is enough only if it is the
    steepest, and two that contradict each other tell nothing. Where no view shows all of them inside, one was missed if
    two views show something elsewhere, or show the same: what all views miss inside is not there.
    """
    usable = [c for c in counts if c.hidden_share <= MOST_HIDDEN and c.is_clear]
    if not usable:
        return GoalScore(name, None, 0.0, _why_no_count(counts))
    said = 'cameras show ' + ', '.join(f'{c.n_inside} inside and {c.n_outside} elsewhere ({c.view})' for c in usable)
    whole = [c for c in usable if c.n_inside + c.n_outside == n]
    agreed = {c.n_inside == n for c in whole}
    share = len(whole) / len(usable)
    if len(agreed) == 1 and (usable[0] in whole or len(whole) > 1):
        placed = min(c.n_inside for c in whole)
        return GoalScore(name, placed == n, max(share, LEAST_CONFIDENCE), n_placed=placed)
    steepest = usable[0]
    same = [c for c in usable if (c.n_inside, c.n_outside) == (steepest.n_inside, steepest.n_outside)]
    witnesses = max(len(same), sum(c.n_outside > 0 for c in usable))
    if all(c.n_inside < n for c in usable) and witnesses > 1:
        return GoalScore(name, False, max(witnesses / len(usable), LEAST_CONFIDENCE), n_placed=steepest.n_inside)
    return GoalScore(name, None, 0.0, f'{said}, of {n}', n_placed=min(steepest.n_inside, n))


def _why_no_count(counts: Sequence[ViewCount]) -> str:
    if not counts:
        return 'the objects could not be made out at the start'
    hidden = min(c.hidden_share for c in counts)
    if hidden > MOST_HIDDEN:
        return f'{100 * hidden:.0f} % of the region is hidden from every view'
    return 'an object lies on the border of the region'


def looks_like(a: KnownObject, b: KnownObject) -> bool:
    """Whether colour and size cannot tell two objects from one another."""
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
