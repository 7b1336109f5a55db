"""The score of an episode by its cameras alone: RGB-D of its start and end, and what was known of the scene.

Each goal is reached, missed, or cannot be told; what cannot be told leaves the episode unscored, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robotrials.errors import NotEstimable
from robotrials.measure.geometry.bin_count import ViewCount, count_objects
from robotrials.measure.geometry.box import Box
from robotrials.measure.geometry.calibration import CalibrationCheck
from robotrials.measure.geometry.fit import weigh_evidence
from robotrials.measure.geometry.score import score_placement
from robotrials.measure.geometry.segment import ObjectModel
from robotrials.measure.geometry.static_scene import StaticScene
from robotrials.measure.geometry.trust import LEAST_CONFIDENCE, CheckedViews, check_views, locate
from robotrials.measure.geometry.view import RgbdView, view_from_camera
from robotrials.record.rgbd import BoxGoal, KnownBox, KnownObject, KnownScene, RegionGoal, View

METHOD = 'reconstruction 3'  # changes whenever the same views may be scored otherwise
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
    """All objects of a look in a region, by the pieces that each view shows inside and elsewhere."""
    objects = [o for o in known.objects if o.name in region.objects]
    name = f'{len(objects)} objects'
    if not objects or any(not _looks_like(o, objects[0]) for o in objects):
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
